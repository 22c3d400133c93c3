//! Which stripe of a group holds which stripe of its data, in pools with free stripes.
//!
//! ```text
//!   stripe of the data     0  1  2  3  4  5
//!   is held by stripe      0  6  2  3  4  5          1 and 7 are free
//! ```
//!
//! What is below the map (checksums, overlay, locks, scrub, fills) is named by stripes; what clients ask for, and what is
//! reported as lost, by stripes of the data.
//!
//! On the drives the map lies in the pages of checksums, behind the entries of each column's blocks: as blocks that do not exist
//! ([`Geometry::map_name`]). So a change of it is logged, put in place, copied and recovered as every other entry is. Every
//! column has the whole map: the latest entry counts, so that neither a column that is away nor a drive that has been set back
//! takes a stripe to where it was. An unwritten entry says that the stripe of the data is held by the stripe of the same number.
//!
//! In memory a group's map is made from its pages when the first operation needs it, and may be forgotten at any time.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;

use super::Lane;
use super::overlay::{Bytes, Logged};
use crate::Geometry;
use crate::format::{Entry, MetaPage, PageName};
use crate::seeded::{self, Bug};

/// Stripes of all maps that a lane keeps: 4 MiB.
const STRIPES_MAX: usize = 1 << 18;

/// The map of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct GroupMap {
    /// By stripe of the data: the stripe that holds it, if that is known.
    held_by: Vec<Option<u32>>,
    /// By stripe: which stripe of the data it holds.
    holds: Vec<Option<u32>>,
    /// Stripes that hold nothing and may be written, the one that has been free longest first.
    free: VecDeque<u32>,
}

impl GroupMap {
    /// Of so many stripes, by what each column says of each stripe of the data: the latest known entry. Of two that are
    /// said to be held by one stripe the earlier one is not known.
    fn new(stripes: u64, latest: &[Option<Entry>], sequence: u64) -> Self {
        let stripes = usize::try_from(stripes).expect("groups have fewer than 2^32 stripes");
        let mut held_by: Vec<Option<u32>> = vec![None; latest.len()];
        let mut holds: Vec<Option<u32>> = vec![None; stripes];
        for (data, entry) in (0..).zip(latest) {
            let Some(entry) = *entry else {
                continue;
            };
            let stripe = if entry == Entry::UNWRITTEN {
                data
            } else {
                entry.crc
            };
            let Some(holder) = holds.get_mut(stripe as usize) else {
                continue;
            };
            let age = |data: u32| latest[data as usize].map(|entry| entry.age(sequence));
            match *holder {
                Some(other) if age(other) <= age(data) => continue,
                Some(other) => held_by[other as usize] = None,
                None => {}
            }
            *holder = Some(data);
            held_by[data as usize] = Some(stripe);
        }
        let number = |index: usize| u32::try_from(index).expect("fewer than 2^32");
        let known = held_by.iter().all(Option::is_some);
        // A stripe that may hold what the map does not know is not free.
        let free = (0..stripes).filter(|&stripe| known && holds[stripe].is_none());
        Self {
            free: free.map(number).collect(),
            held_by,
            holds,
        }
    }

    /// The stripe that holds a stripe of the data; `None` if that is not known.
    pub(super) fn held_by(&self, data: u64) -> Option<u64> {
        let stripe = self.held_by.get(usize::try_from(data).ok()?)?;
        stripe.map(u64::from)
    }

    /// The stripe of the data that a stripe holds.
    pub(super) fn holds(&self, stripe: u64) -> Option<u64> {
        let data = self.holds.get(usize::try_from(stripe).ok()?)?;
        data.map(u64::from)
    }

    /// Takes the first free stripe that `may` be taken.
    pub(super) fn take_free(&mut self, may: impl Fn(u64) -> bool) -> Option<u64> {
        let at = { self.free.iter() }.position(|&stripe| may(stripe.into()))?;
        self.free.remove(at).map(u64::from)
    }

    /// A stripe is free from now on. The map may have been made since it was taken.
    pub(super) fn give_free(&mut self, stripe: u64) {
        let index = usize::try_from(stripe).expect("fewer than 2^32 stripes");
        let number = u32::try_from(stripe).expect("fewer than 2^32 stripes");
        if self.holds[index].is_none() && !self.free.contains(&number) {
            self.free.push_back(number);
        }
    }

    /// Another stripe holds a stripe of the data.
    fn moved(&mut self, data: u64, to: u32) {
        let index = usize::try_from(data).expect("fewer than 2^32 stripes");
        if let Some(old) = self.held_by[index].replace(to) {
            self.holds[old as usize] = None;
        }
        self.holds[to as usize] = u32::try_from(data).ok();
        self.free.retain(|&stripe| stripe != to);
    }
}

/// The maps that are in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct StripeMaps {
    groups: BTreeMap<u64, GroupMap>,
    /// Where the search for a map to forget goes on.
    hand: u64,
    /// Counts changes of what is known.
    version: u64,
}

impl StripeMaps {
    /// As long as it is the same, all data is where it was.
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn get(&self, group: u64) -> Option<&GroupMap> {
        self.groups.get(&group)
    }

    pub(super) fn get_mut(&mut self, group: u64) -> Option<&mut GroupMap> {
        self.groups.get_mut(&group)
    }

    fn insert(&mut self, group: u64, map: GroupMap) {
        let most = STRIPES_MAX / map.holds.len();
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

    /// The group begins a new life.
    pub(super) fn drop_group(&mut self, group: u64) {
        self.version += 1;
        self.groups.remove(&group);
    }

    /// Pages that were nowhere may be there again.
    pub(super) fn drop_unknown(&mut self) {
        self.version += 1;
        let known = |map: &GroupMap| map.held_by.iter().all(Option::is_some);
        self.groups.retain(|_, map| known(map));
    }
}

/// The pages that have the map of a group.
fn pages_of_map(geometry: &Geometry, group: u64) -> BTreeSet<PageName> {
    let columns = 0..geometry.layout().columns();
    let pages = columns.flat_map(|column| {
        let page = |data| geometry.map_name(group, column, data).page().index;
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
pub(super) enum Known<'a> {
    /// All data is in its own place: the pool has no free stripes.
    Unmoved,
    Map(Cow<'a, GroupMap>),
    /// Its pages are not in memory.
    Nothing,
}

impl Known<'_> {
    /// The stripe that holds a stripe of the data, if that is known.
    pub(super) fn stripe_holding(&self, data: u64) -> Option<u64> {
        match self {
            Self::Unmoved => Some(data),
            Self::Map(map) => map.held_by(data),
            Self::Nothing => None,
        }
    }
}

impl Lane {
    /// The map of a group by these entries.
    fn map_of(&self, group: u64, latest: &[Option<Entry>]) -> GroupMap {
        let sequence = self.log.next_sequence;
        let mut map = GroupMap::new(self.cx.geometry.stripes_per_group(), latest, sequence);
        map.free
            .retain(|&stripe| !self.moves.has(group, stripe.into()));
        map
    }

    /// By stripe of the data: the latest entry that a column knows.
    fn latest_entries(&self, group: u64) -> Vec<Option<Entry>> {
        let sequence = self.log.next_sequence;
        let stripes = usize::try_from(self.cx.geometry.data_stripes());
        let mut latest: Vec<Option<Entry>> = vec![None; stripes.expect("they fit into memory")];
        if seeded::is(Bug::MapNotRead) {
            latest.fill(Some(Entry::UNWRITTEN));
            return latest;
        }
        for column in 0..self.cx.geometry.layout().columns() {
            self.each_entry(group, column, |data, entry| {
                let known = entry.filter(|&entry| entry != Entry::UNKNOWN);
                let later =
                    |old: &Entry| known.is_some_and(|new| new.age(sequence) < old.age(sequence));
                let latest = &mut latest[data];
                if latest.as_ref().is_none_or(later) {
                    *latest = known;
                }
            });
        }
        latest
    }

    /// Calls `with` for each entry of the map of a column, as journal and pages have it.
    fn each_entry(&self, group: u64, column: u16, mut with: impl FnMut(usize, Option<Entry>)) {
        let mut page: Option<(PageName, Option<&MetaPage>)> = None;
        for (index, data) in (0..self.cx.geometry.data_stripes()).enumerate() {
            let name = self.cx.geometry.map_name(group, column, data);
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

    /// Brings the map of a group into memory; else the pages that it needs.
    pub(super) fn load_map(&mut self, group: u64) -> Result<(), BTreeSet<PageName>> {
        if self.cx.geometry.free_stripes() == 0 || self.maps.get(group).is_some() {
            return Ok(());
        }
        let missing = self.pages_of_map_lacking(group);
        if !missing.is_empty() {
            return Err(missing);
        }
        let latest = self.latest_entries(group);
        self.mend_map(group, &latest);
        let map = self.map_of(group, &latest);
        self.maps.insert(group, map);
        Ok(())
    }

    /// Corrects columns that lack an entry or have an older one: the next checkpoint writes them.
    fn mend_map(&mut self, group: u64, latest: &[Option<Entry>]) {
        for column in 0..self.cx.geometry.layout().columns() {
            let mut differ = Vec::new();
            self.each_entry(group, column, |data, entry| {
                if let Some(latest) = latest[data].filter(|&latest| entry != Some(latest)) {
                    differ.push((data as u64, latest));
                }
            });
            for (data, latest) in differ {
                let name = self.cx.geometry.map_name(group, column, data);
                if self.overlay.get(name).is_none() && !self.pages.is_nowhere(name.page()) {
                    self.pages.set(name, latest);
                }
            }
        }
    }

    /// The stripe that holds a stripe of a group's data: itself in a pool without free stripes. `None` if that is not known, or
    /// if the map is not in memory.
    pub(super) fn stripe_holding(&self, group: u64, data: u64) -> Option<u64> {
        match self.cx.geometry.free_stripes() {
            0 => Some(data),
            _ => self.maps.get(group)?.held_by(data),
        }
    }

    /// The stripe of a group's data that a stripe holds. `None` if it is free, or if the map is not in memory.
    pub(super) fn data_held_by(&self, group: u64, stripe: u64) -> Option<u64> {
        match self.cx.geometry.free_stripes() {
            0 => Some(stripe),
            _ => self.maps.get(group)?.holds(stripe),
        }
    }

    /// The stripe of a group's data that a stripe holds, as far as that is known without I/O; `None` also if it holds none.
    #[must_use]
    pub fn data_of_stripe(&self, group: u64, stripe: u64) -> Option<u64> {
        match self.map_if_known(group) {
            Known::Unmoved => Some(stripe),
            Known::Map(map) => map.holds(stripe),
            Known::Nothing => None,
        }
    }

    /// What is known of a group's map without I/O.
    pub(super) fn map_if_known(&self, group: u64) -> Known<'_> {
        match (self.cx.geometry.free_stripes(), self.maps.get(group)) {
            (0, _) => Known::Unmoved,
            (_, Some(map)) => Known::Map(Cow::Borrowed(map)),
            (_, None) if !self.pages_of_map_lacking(group).is_empty() => Known::Nothing,
            (_, None) => {
                let map = self.map_of(group, &self.latest_entries(group));
                Known::Map(Cow::Owned(map))
            }
        }
    }

    /// The pages of the group's map that are not in memory, and needed.
    pub(super) fn pages_of_map_lacking(&self, group: u64) -> BTreeSet<PageName> {
        if self.cx.geometry.free_stripes() == 0 || self.maps.get(group).is_some() {
            return BTreeSet::new();
        }
        let mut missing = pages_of_map(&self.cx.geometry, group);
        missing.retain(|&name| !self.pages.contains(name));
        missing
    }

    /// A batch says that a stripe of the data has moved.
    pub(super) fn map_changes(&mut self, group: u64, data: u64, to: u32, sequence: u64) {
        let known = data < self.cx.geometry.data_stripes()
            && u64::from(to) < self.cx.geometry.stripes_per_group();
        if self.cx.geometry.free_stripes() == 0 || !known {
            return;
        }
        for column in 0..self.cx.geometry.layout().columns() {
            let name = self.cx.geometry.map_name(group, column, data);
            let logged = Logged {
                bytes: Bytes::InPlace,
                entry: Entry::of_map(to, sequence),
                sequence,
            };
            self.overlay.insert(name, logged);
        }
        self.maps.version += 1;
        if let Some(map) = self.maps.get_mut(group) {
            map.moved(data, to);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 100;

    fn unmoved(count: usize) -> Vec<Option<Entry>> {
        vec![Some(Entry::UNWRITTEN); count]
    }

    #[test]
    fn at_first_each_stripe_of_the_data_is_in_its_own_place() {
        let map = GroupMap::new(8, &unmoved(6), NOW);
        assert!((0..6).all(|data| map.held_by(data) == Some(data)));
        assert_eq!(map.free, [6, 7]);
    }

    #[test]
    fn a_stripe_moves_and_leaves_its_place() {
        let mut map = GroupMap::new(8, &unmoved(6), NOW);
        assert_eq!(map.take_free(|stripe| stripe != 6), Some(7));
        map.moved(1, 7);
        assert_eq!(
            (map.held_by(1), map.holds(7), map.holds(1)),
            (Some(7), Some(1), None)
        );
        assert_eq!(map.free, [6]);
        map.give_free(1);
        assert_eq!(map.free, [6, 1]);
        let mut latest = unmoved(6);
        latest[1] = Some(Entry::of_map(7, 40));
        let read = GroupMap::new(8, &latest, NOW);
        assert_eq!(
            (read.held_by(1), read.free),
            (Some(7), VecDeque::from([1, 6]))
        );
    }

    #[test]
    fn of_two_in_one_place_the_later_counts_and_nothing_is_free_while_one_is_not_known() {
        let mut latest = unmoved(6);
        // Stripe 2 of the data was set back to when it was in place 7.
        latest[2] = Some(Entry::of_map(7, 40));
        latest[3] = Some(Entry::of_map(7, 50));
        for order in [[2, 3], [3, 2]] {
            let mut latest = latest.clone();
            latest.swap(order[0], 2);
            latest.swap(order[1], 3);
            let map = GroupMap::new(8, &latest, NOW);
            let later = (0..6).find(|&data| map.held_by(data) == Some(7));
            assert_eq!(later, map.holds(7));
            let later = usize::try_from(later.unwrap()).unwrap();
            assert_eq!(latest[later], Some(Entry::of_map(7, 50)));
            assert!(map.free.is_empty());
        }
        latest[3] = None;
        let map = GroupMap::new(8, &latest, NOW);
        assert_eq!((map.held_by(3), map.held_by(2)), (None, Some(7)));
        assert!(map.free.is_empty());
    }
}
