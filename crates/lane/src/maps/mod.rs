//! Which stripe of a group holds which stripe of its data, in pools with free stripes; and the form of each stripe, in
//! elastic pools.
//!
//! ```text
//!   stripe of the data     0  1  2  3  4  5
//!   is held by stripe      0  6  2  3  4  5          1 and 7 are free
//! ```
//!
//! Everything below the map (checksums, overlay, locks, scrub, fills) uses the numbers of stripes. Requests of clients,
//! and reports of lost data, use the numbers of stripes of the data.
//!
//! On the drives the map is in the metadata pages, behind the entries of each column's blocks: as entries of blocks
//! that do not exist ([`Geometry::map_name`]). So a change of the map is logged, put in place, copied and recovered
//! like every other entry. Every column has the whole map, and the latest entry counts: neither a column that is away
//! nor a drive that has been set back moves a stripe back to where it was. An unwritten entry means that the stripe of
//! the data is held by the stripe of the same number.
//!
//! In memory a group's map is built from its pages when the first operation needs it, and may be dropped at any time.
//! `moves.rs` has the stripes that the map does not use and that are about to be used, or are not free yet.

mod group;
mod moves;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use block::Outcome;
use format::seeded::{self, SeededFault};
use format::{
    BlockName, Column, DataStripe, Entry, Form, GroupId, HeldIn, MetaPage, PageName, Sequence,
    StripeId,
};
use plan::Geometry;

pub(super) use self::group::GroupMap;
use self::moves::Moves;
pub(super) use self::moves::Progress;
use super::context::Context;
use super::ids::OpId;
use super::overlay::Overlay;
use super::pages::PageCache;

/// Stripes of all maps that a lane keeps: 4 MiB.
const STRIPES_MAX: usize = 1 << 18;

/// The entries of maps, as journal and pages have them.
#[derive(Clone, Copy, Debug)]
pub(super) struct MapEntries<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
    /// The number of the next batch: ages of entries are counted from there.
    pub(super) sequence: Sequence,
}

impl MapEntries<'_> {
    /// Calls `with` for each entry of the map of a column.
    fn each(
        self,
        geometry: &Geometry,
        (group, column): (GroupId, Column),
        mut with: impl FnMut(usize, Option<Entry>),
    ) {
        let mut page: Option<(PageName, Option<&MetaPage>)> = None;
        for (index, data) in (0..geometry.data_stripes()).map(DataStripe).enumerate() {
            let name = geometry.map_name(group, column, data);
            let of = name.page();
            let page = match page {
                Some((last, page)) if last == of => page,
                _ => page.insert((of, self.pages.page(of))).1,
            };
            let logged = self.overlay.get(name).map(|logged| logged.entry);
            with(
                index,
                logged.or_else(|| page.map(|page| page.get(name.entry()))),
            );
        }
    }

    /// By stripe of the data: the latest known entry of all columns.
    fn latest(self, geometry: &Geometry, group: GroupId) -> Vec<Option<Entry>> {
        let stripes = usize::try_from(geometry.data_stripes());
        let mut latest: Vec<Option<Entry>> = vec![None; stripes.expect("they fit into memory")];
        if seeded::is(SeededFault::MapNotRead) {
            latest.fill(Some(Entry::UNWRITTEN));
            return latest;
        }
        for column in geometry.columns() {
            self.each(geometry, (group, column), |data, entry| {
                let known = entry.filter(|&entry| entry != Entry::UNKNOWN);
                let later = |old: &Entry| {
                    known.is_some_and(|new| new.age(self.sequence) < old.age(self.sequence))
                };
                let latest = &mut latest[data];
                if latest.as_ref().is_none_or(later) {
                    *latest = known;
                }
            });
        }
        latest
    }

    /// Entries that columns should have: these columns lack the latest one or have an older one.
    fn outdated(
        self,
        geometry: &Geometry,
        group: GroupId,
        latest: &[Option<Entry>],
    ) -> Vec<(BlockName, Entry)> {
        let mut outdated = Vec::new();
        for column in geometry.columns() {
            self.each(geometry, (group, column), |data, entry| {
                let Some(latest) = latest[data].filter(|&latest| entry != Some(latest)) else {
                    return;
                };
                let name = geometry.map_name(group, column, DataStripe(data as u64));
                if self.overlay.get(name).is_none() && !self.pages.is_nowhere(name.page()) {
                    outdated.push((name, latest));
                }
            });
        }
        outdated
    }
}

/// The pages with the map of a group.
fn pages_of_map(geometry: &Geometry, group: GroupId) -> BTreeSet<PageName> {
    let columns = geometry.columns();
    let pages = columns.flat_map(|column| {
        let page = |data| {
            geometry
                .map_name(group, column, DataStripe(data))
                .page()
                .index
        };
        let last = page(geometry.data_stripes() - 1);
        (page(0)..=last).map(move |index| PageName {
            group,
            column,
            index,
        })
    });
    pages.collect()
}

/// What is known of a group's map.
#[derive(Clone, Debug)]
pub(super) enum Known<'a> {
    /// All data is in its own place, as parity: the pool has no maps.
    Unmoved,
    Map(Cow<'a, GroupMap>),
    /// Its pages are not in memory.
    Nothing,
}

impl Known<'_> {
    /// The stripe that holds a stripe of the data, if that is known.
    pub(super) fn stripe_holding(&self, data: DataStripe) -> Option<StripeId> {
        match self {
            Self::Unmoved => Some(data.own_place()),
            Self::Map(map) => map.held_by(data),
            Self::Nothing => None,
        }
    }

    /// The form of a stripe, if that is known.
    pub(super) fn form(&self, stripe: StripeId) -> Option<Form> {
        match self {
            Self::Unmoved => Some(Form::Parity),
            Self::Map(map) => Some(map.form(stripe)),
            Self::Nothing => None,
        }
    }

    /// The stripe of the data that a stripe holds, if that is known.
    pub(super) fn data_held_by(&self, stripe: StripeId) -> Option<DataStripe> {
        match self {
            Self::Unmoved => Some(stripe.own_data()),
            Self::Map(map) => map.holds(stripe),
            Self::Nothing => None,
        }
    }
}

/// What an operation does that would write a free stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It writes this one.
    Stripe(StripeId),
    /// It waits: a stripe becomes free later, or other operations have come before it.
    Later,
    /// It writes where its data is.
    Nowhere,
}

/// What follows because stripes have become free, or will not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pumped {
    /// Operations that are planned again.
    pub(super) go_on: Vec<OpId>,
    /// Operations that are planned again and do not move.
    pub(super) stay: Vec<OpId>,
    /// Vacated stripes wait for a flush.
    pub(super) flush: bool,
}

/// The maps of a lane's groups that are in memory, and the stripes that are about to be used or not free yet.
#[derive(Clone, Debug, Default)]
pub(super) struct StripeMaps {
    groups: BTreeMap<GroupId, GroupMap>,
    moves: Moves,
    /// Where the search for a map to drop continues.
    hand: GroupId,
    /// Counts changes of maps.
    version: u64,
}

impl StripeMaps {
    /// Checks the maps in memory.
    ///
    /// # Panics
    /// When the two directions of a map do not agree, or a free stripe is not free.
    pub(super) fn check(&self) {
        for (&group, map) in &self.groups {
            map.check(|stripe| self.moves.has(group, stripe));
        }
    }

    /// Stripes that hold nothing: the free ones of maps in memory, and those that are not free yet.
    pub(super) fn empty(&self) -> impl Iterator<Item = (GroupId, StripeId)> {
        let groups = self.groups.iter();
        let free = groups.flat_map(|(&group, map)| map.free().map(move |stripe| (group, stripe)));
        free.chain(self.moves.vacated())
    }

    /// While this number stays the same, all data is where it was.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Brings the map of a group into memory, or returns the pages that this needs. On success returns the entries that
    /// columns should have but lack, or have in an older state: the next checkpoint writes them.
    pub(super) fn load(
        &mut self,
        cx: &Context,
        entries: MapEntries<'_>,
        group: GroupId,
    ) -> Result<Vec<(BlockName, Entry)>, BTreeSet<PageName>> {
        if !cx.geometry.has_maps() || self.groups.contains_key(&group) {
            return Ok(Vec::new());
        }
        let missing = self.pages_lacking(cx, entries.pages, group);
        if !missing.is_empty() {
            return Err(missing);
        }
        let latest = entries.latest(&cx.geometry, group);
        let outdated = entries.outdated(&cx.geometry, group, &latest);
        let map = self.map_of(cx, group, &latest, entries.sequence);
        self.insert(group, map);
        Ok(outdated)
    }

    /// Builds the map of a group from these entries.
    fn map_of(
        &self,
        cx: &Context,
        group: GroupId,
        latest: &[Option<Entry>],
        sequence: Sequence,
    ) -> GroupMap {
        GroupMap::new(cx.geometry.stripes_per_group(), latest, sequence)
            .without(|stripe| self.moves.has(group, stripe))
    }

    fn insert(&mut self, group: GroupId, map: GroupMap) {
        let most = STRIPES_MAX / map.stripes();
        self.groups.insert(group, map);
        if self.groups.len() > most {
            let behind = (Bound::Excluded(self.hand), Bound::Unbounded);
            let others = self.groups.range(behind).chain(&self.groups);
            let mut others = others.map(|(&other, _)| other);
            let victim = others.find(|&other| other != group);
            if let Some(victim) = victim {
                self.hand = victim;
                self.groups.remove(&victim);
            }
        }
    }

    /// The group is being reused: drops its map.
    pub(super) fn drop_group(&mut self, group: GroupId) {
        self.version += 1;
        self.groups.remove(&group);
    }

    /// Pages that were nowhere may be there again: drops the maps that are not known in full.
    pub(super) fn drop_unknown(&mut self) {
        self.version += 1;
        self.groups.retain(|_, map| map.is_known());
    }

    /// The pages of the group's map that are needed and not in memory.
    pub(super) fn pages_lacking(
        &self,
        cx: &Context,
        pages: &PageCache,
        group: GroupId,
    ) -> BTreeSet<PageName> {
        if !cx.geometry.has_maps() || self.groups.contains_key(&group) {
            return BTreeSet::new();
        }
        let mut missing = pages_of_map(&cx.geometry, group);
        missing.retain(|&name| !pages.contains(name));
        missing
    }

    /// The stripe that holds a stripe of a group's data: itself in a pool without free stripes. `None` if that is not known, or
    /// if the map is not in memory.
    pub(super) fn stripe_holding(
        &self,
        cx: &Context,
        group: GroupId,
        data: DataStripe,
    ) -> Option<StripeId> {
        match cx.geometry.has_maps() {
            false => Some(data.own_place()),
            true => self.groups.get(&group)?.held_by(data),
        }
    }

    /// The stripe of a group's data that a stripe holds. `None` if it is free, or if the map is not in memory.
    pub(super) fn data_held_by(
        &self,
        cx: &Context,
        group: GroupId,
        stripe: StripeId,
    ) -> Option<DataStripe> {
        match cx.geometry.has_maps() {
            false => Some(stripe.own_data()),
            true => self.groups.get(&group)?.holds(stripe),
        }
    }

    /// True if a stripe is free, or will be soon, as far as that is known without I/O.
    pub(super) fn is_known_free(&self, group: GroupId, stripe: StripeId) -> bool {
        let map = self.groups.get(&group);
        map.is_some_and(|map| map.holds(stripe).is_none())
    }

    /// What is known of a group's map without I/O.
    pub(super) fn if_known(
        &self,
        cx: &Context,
        entries: MapEntries<'_>,
        group: GroupId,
    ) -> Known<'_> {
        match (cx.geometry.has_maps(), self.groups.get(&group)) {
            (false, _) => Known::Unmoved,
            (_, Some(map)) => Known::Map(Cow::Borrowed(map)),
            (_, None) if !self.pages_lacking(cx, entries.pages, group).is_empty() => Known::Nothing,
            (_, None) => {
                let latest = entries.latest(&cx.geometry, group);
                let map = self.map_of(cx, group, &latest, entries.sequence);
                Known::Map(Cow::Owned(map))
            }
        }
    }

    /// The form of a stripe. `None` if the map is not in memory.
    pub(super) fn form(&self, cx: &Context, group: GroupId, stripe: StripeId) -> Option<Form> {
        if !cx.geometry.is_elastic() || seeded::is(SeededFault::FormForgotten) {
            return Some(Form::Parity);
        }
        Some(self.groups.get(&group)?.form(stripe))
    }

    /// A batch has logged that a stripe of the data has moved, or has another form. False if the pool has no such
    /// stripes: then no entry records this.
    pub(super) fn moved(
        &mut self,
        cx: &mut Context,
        (group, data): (GroupId, DataStripe),
        to: HeldIn,
        sequence: Sequence,
    ) -> bool {
        let known = cx.geometry.has_maps()
            && data.0 < cx.geometry.data_stripes()
            && to.stripe().0 < cx.geometry.stripes_per_group()
            && cx.geometry.forms().contains(&to.form);
        if known {
            self.version += 1;
            if let Some(map) = self.groups.get_mut(&group) {
                map.moved(data, to);
            }
        }
        self.moves.used(cx, group, to.stripe(), sequence);
        known
    }

    /// Takes a free stripe that `may` be taken, for an operation that is to write it in place of another one. An
    /// operation that has waited comes before those that still wait.
    pub(super) fn take_free(
        &mut self,
        (group, from): (GroupId, StripeId),
        has_waited: bool,
        may: impl Fn(StripeId) -> bool,
    ) -> Taken {
        if !has_waited && self.moves.is_awaited(group) {
            return Taken::Later;
        }
        let free = { self.groups.get_mut(&group) }.and_then(|map| map.take_free(may));
        match free {
            Some(to) => {
                self.moves.begin(group, from, to);
                Taken::Stripe(to)
            }
            None if self.moves.frees(group) => Taken::Later,
            None => Taken::Nowhere,
        }
    }

    /// An operation waits for a free stripe of a group.
    pub(super) fn wait(&mut self, group: GroupId, op: OpId) {
        self.moves.wait(group, op);
    }

    /// An operation that has taken a free stripe has ended, or does not write it after all. If the stripe is free,
    /// returns the operation that is planned again.
    pub(super) fn move_ended(&mut self, group: GroupId, to: StripeId) -> Option<OpId> {
        match self.moves.end(group, to) {
            true => self.freed(group, to),
            false => None,
        }
    }

    /// A stripe may be written from now on. Returns the first operation that has waited for one.
    fn freed(&mut self, group: GroupId, stripe: StripeId) -> Option<OpId> {
        if let Some(map) = self.groups.get_mut(&group) {
            map.give_free(stripe);
        }
        self.moves.pop_waiting(group)
    }

    /// Vacated stripes become free as soon as possible. They need a flush if something waits for them. `idle`: no
    /// operation is about to be planned.
    pub(super) fn pump(&mut self, cx: &Context, progress: Progress, idle: bool) -> Pumped {
        let mut pumped = Pumped::default();
        if self.moves.is_idle() {
            return pumped;
        }
        while let Some((group, stripe)) = self.moves.pop_free(cx, progress.flushed) {
            pumped.go_on.extend(self.freed(group, stripe));
        }
        // If nothing is under way that would free a stripe, operations that wait for one are planned again: they write
        // where their data is.
        if idle && pumped.go_on.is_empty() {
            pumped.go_on = self.moves.take_forlorn();
        }
        if progress.gaps {
            pumped.stay = self.moves.take_waiting();
        }
        pumped.flush = pumped.stay.is_empty() && self.moves.wants_flush(progress);
        pumped
    }

    /// The flush that [`pump`](Self::pump) has asked for is under way, or there is nothing to flush.
    pub(super) const fn flush_begun(&mut self, begun: bool) {
        self.moves.flushing(begun);
    }

    /// The flush has ended. If it has failed, no operation waits for free stripes any more: these operations go through
    /// the journal.
    pub(super) fn flush_ended(&mut self, outcome: Outcome) -> Vec<OpId> {
        self.moves.flushing(false);
        match outcome {
            Ok(()) => Vec::new(),
            Err(_) => self.moves.take_waiting(),
        }
    }
}

#[cfg(test)]
mod tests;
