//! The metadata pages in memory, and where they lie.

mod reads;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Outcome, Seat};

use self::reads::{Loading, PageReads};
use super::Lane;
use super::ids::OpId;
use crate::action::{Computed, Event};
use crate::format::{BlockName, ENTRIES_PER_META_PAGE, Entry, Merged, MetaPage, PageName};

/// Pages that a lane keeps: with 16 lanes, 256 MiB in all.
const PAGES_MAX: usize = 4096;

#[derive(Clone, Debug)]
struct Cached {
    page: MetaPage,
    /// Entries of blocks that exist and cannot be trusted.
    unknown: u32,
    /// In use since the hand passed last.
    used: Cell<bool>,
    /// Changed since it was written.
    dirty: bool,
    /// No drive that has a copy was there: what it says is that nothing is known.
    nowhere: bool,
    /// And drives that are away are expected to bring it back: what changes is kept apart.
    owes: bool,
}

/// How a page has come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    /// As it is on all drives.
    Same,
    /// Some drive should have it as it is here.
    Changed,
    /// On none that is there; if `owes`, one that is away is expected to bring it back.
    Nowhere { owes: bool },
}

/// Where a copy of a page is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PagePlace {
    pub(super) seat: Seat,
    /// First byte on the drive.
    pub(super) offset: u64,
    /// The column whose cell it lies beside.
    pub(super) column: u16,
    /// Whether it is read: the cell is not just being filled.
    pub(super) counts: bool,
}

/// The pages of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    cached: BTreeMap<PageName, Cached>,
    /// Pages on their way into memory.
    pub(super) reads: PageReads,
    /// Operations that wait for pages.
    waiting: BTreeMap<OpId, BTreeSet<PageName>>,
    /// Where the search for a page to drop goes on.
    hand: Option<PageName>,
    /// Blocks of a cell that stripes use: a column's last page describes fewer than it has room for.
    used_blocks: u64,
    /// Of all pages that are here.
    unknown: u64,
    /// Some may be here that no drive has.
    some_nowhere: bool,
    /// Entries that have changed since their page was nowhere: they count as later than what a drive says that brings
    /// the page back.
    owed: BTreeMap<PageName, BTreeMap<usize, Entry>>,
    /// Counts changes of pages; of two copies the later one counts.
    pub(super) clock: u64,
}

impl Pages {
    pub(super) fn new(used_blocks: u64) -> Self {
        Self {
            used_blocks,
            ..Self::default()
        }
    }

    /// Whether any block is known not to be known.
    pub(super) const fn lack_entries(&self) -> bool {
        self.unknown > 0
    }

    /// Whether anything that a page describes is not known.
    fn has_unknown(&self, name: PageName) -> bool {
        self.cached
            .get(&name)
            .is_some_and(|cached| cached.unknown > 0)
    }

    pub(super) fn contains(&self, name: PageName) -> bool {
        self.cached.contains_key(&name)
    }

    /// The entry of a block, if its page is here.
    pub(super) fn entry(&self, name: BlockName) -> Option<Entry> {
        let cached = self.cached.get(&name.page())?;
        cached.used.set(true);
        Some(cached.page.get(name.entry()))
    }

    /// Whether `count` blocks from `first` on are known to have been written, and with what checksum.
    pub(super) fn are_written(&self, first: BlockName, count: u32) -> bool {
        self.are_such(first, count, |entry| {
            entry != Entry::UNWRITTEN && entry != Entry::UNKNOWN
        })
    }

    /// Whether `count` blocks from `first` on are known to be unwritten.
    pub(super) fn are_unwritten(&self, first: BlockName, count: u32) -> bool {
        self.are_such(first, count, |entry| entry == Entry::UNWRITTEN)
    }

    /// Whether the pages of `count` blocks from `first` on are here, and all their entries are such.
    fn are_such(&self, first: BlockName, count: u32, such: impl Fn(Entry) -> bool) -> bool {
        let end = first.block.saturating_add(count);
        let mut block = first.block;
        while block < end {
            let name = BlockName { block, ..first };
            let Some(cached) = self.cached.get(&name.page()) else {
                return false;
            };
            cached.used.set(true);
            let more = (ENTRIES_PER_META_PAGE - block % ENTRIES_PER_META_PAGE).min(end - block);
            let such = |index: usize| such(cached.page.get(name.entry() + index));
            if !(0..more as usize).all(such) {
                return false;
            }
            block += more;
        }
        true
    }

    /// The pages of `count` blocks from `first` on that are not here.
    pub(super) fn missing(&self, first: BlockName, count: u32) -> BTreeSet<PageName> {
        let end = first.block.saturating_add(count);
        let starts = first.block / ENTRIES_PER_META_PAGE..end.div_ceil(ENTRIES_PER_META_PAGE);
        starts
            .map(|index| {
                let block = index * ENTRIES_PER_META_PAGE;
                BlockName { block, ..first }.page()
            })
            .filter(|&name| !self.contains(name))
            .collect()
    }

    /// Changes an entry of a page that is here.
    pub(super) fn set(&mut self, name: BlockName, entry: Entry) {
        self.clock += 1;
        let clock = self.clock;
        if let Some(cached) = self.cached.get_mut(&name.page()) {
            let was = cached.page.get(name.entry()) == Entry::UNKNOWN;
            let is = entry == Entry::UNKNOWN;
            cached.unknown = cached.unknown + u32::from(is) - u32::from(was);
            self.unknown = self.unknown + u64::from(is) - u64::from(was);
            cached.page.set(name.entry(), entry, clock);
            if cached.owes {
                // Of the others nothing is known here, and a drive that is away may have them.
                let owed = self.owed.entry(name.page()).or_default();
                owed.insert(name.entry(), entry);
            } else {
                cached.dirty = true;
                cached.nowhere = false;
            }
        }
    }

    pub(super) fn page(&self, name: PageName) -> Option<&MetaPage> {
        self.cached.get(&name).map(|cached| &cached.page)
    }

    pub(super) fn written(&mut self, name: PageName) {
        if let Some(cached) = self.cached.get_mut(&name) {
            cached.dirty = false;
        }
    }

    /// Drives may not have the page as it is here: it is written again.
    pub(super) fn unwritten(&mut self, name: PageName) {
        if let Some(cached) = self.cached.get_mut(&name) {
            cached.dirty = !cached.nowhere;
        }
    }

    /// The page counts from now on as later than a copy that differs from it.
    pub(super) fn outdate(&mut self, name: PageName, copy: &MetaPage) {
        let Some(cached) = self.cached.get_mut(&name) else {
            return;
        };
        if !cached.owes && cached.page.is_overruled_by(copy) {
            // Not even a copy of a clock that nobody here has reached.
            let later = copy.latest().max(self.clock) + 1;
            self.clock = later;
            cached.page.renew(later);
            cached.dirty = true;
        }
    }

    /// True if a page has changed since it was written.
    pub(super) fn is_dirty(&self, name: PageName) -> bool {
        self.cached.get(&name).is_some_and(|cached| cached.dirty)
    }

    /// Pages that have changed since they were written.
    pub(super) fn dirty(&self) -> impl Iterator<Item = PageName> + '_ {
        self.cached
            .iter()
            .filter(|(_, cached)| cached.dirty)
            .map(|(&name, _)| name)
    }

    /// True if nobody knows what a page says but that no drive that has it was there.
    pub(super) fn is_nowhere(&self, name: PageName) -> bool {
        let cached = self.cached.get(&name);
        cached.is_some_and(|cached| cached.nowhere)
    }

    /// Drives are there again that may have pages that none had: these are looked for anew.
    fn forget_nowhere(&mut self, group: Option<u64>, keep: &BTreeSet<PageName>) {
        let unknown = &mut self.unknown;
        let left = &mut self.some_nowhere;
        *left = false;
        self.cached.retain(|name, cached| {
            let here = group.is_none_or(|group| name.group == group);
            let stays = !here || !cached.nowhere || cached.dirty || keep.contains(name);
            if !stays {
                *unknown -= u64::from(cached.unknown);
            }
            *left |= stays && cached.nowhere;
            stays
        });
    }

    /// Puts into a page what has changed while it was nowhere; whether there was anything.
    fn put_owed(&mut self, name: PageName, page: &mut MetaPage) -> bool {
        let Some(owed) = self.owed.get(&name) else {
            return false;
        };
        self.clock = self.clock.max(page.latest()) + 1;
        for (&index, &entry) in owed {
            page.set(index, entry, self.clock);
        }
        true
    }

    /// The group begins a new life.
    pub(super) fn drop_group(&mut self, group: u64) {
        self.owed.retain(|name, _| name.group != group);
        self.reads.drop_group(group);
        let unknown = &mut self.unknown;
        self.cached.retain(|name, cached| {
            let stays = name.group != group;
            if !stays {
                *unknown -= u64::from(cached.unknown);
            }
            stays
        });
    }

    /// Pages of the group that are on the drives as they are here.
    fn clean(&self, group: u64) -> Vec<PageName> {
        let cached = self.cached.iter();
        cached
            .filter(|(name, cached)| name.group == group && !cached.dirty)
            .map(|(&name, _)| name)
            .collect()
    }

    /// Whether the page is here as it was written, or as it was found.
    pub(super) fn is_clean(&self, name: PageName) -> bool {
        { self.cached.get(&name) }.is_some_and(|cached| !cached.dirty && !cached.nowhere)
    }

    fn insert(&mut self, name: PageName, page: MetaPage, found: Found, keep: &BTreeSet<PageName>) {
        let first = u64::from(name.index) * u64::from(ENTRIES_PER_META_PAGE);
        let blocks = self.used_blocks.saturating_sub(first);
        let blocks = blocks.min(ENTRIES_PER_META_PAGE.into());
        let blocks = usize::try_from(blocks).expect("at most 496");
        let is_unknown = |&index: &usize| page.get(index) == Entry::UNKNOWN;
        let unknown = u32::try_from((0..blocks).filter(is_unknown).count()).expect("at most 496");
        let cached = Cached {
            page,
            unknown,
            used: Cell::new(true),
            dirty: found == Found::Changed,
            nowhere: matches!(found, Found::Nowhere { .. }),
            owes: found == Found::Nowhere { owes: true },
        };
        self.some_nowhere |= cached.nowhere;
        self.unknown += u64::from(unknown);
        if let Some(old) = self.cached.insert(name, cached) {
            self.unknown -= u64::from(old.unknown);
        }
        // Two rounds of the hand at most: the first may only clear marks.
        let mut left = 2 * self.cached.len();
        while self.cached.len() > PAGES_MAX && left > 0 {
            left -= 1;
            let from = self.hand;
            let next = match from {
                Some(hand) => self
                    .cached
                    .range((std::ops::Bound::Excluded(hand), std::ops::Bound::Unbounded))
                    .next(),
                None => self.cached.iter().next(),
            };
            let Some((&victim, _)) = next else {
                self.hand = None;
                continue;
            };
            self.hand = Some(victim);
            let cached = self.cached.get_mut(&victim).expect("just seen");
            if cached.used.take() || cached.dirty || keep.contains(&victim) {
                continue;
            }
            if victim != name
                && let Some(gone) = self.cached.remove(&victim)
            {
                self.unknown -= u64::from(gone.unknown);
            }
        }
    }
}

impl Lane {
    /// Where a page lies: beside its column's cells, and beside those of the columns that follow, one copy for
    /// each. `sources`: only where it can be read.
    pub(super) fn page_places(&self, name: PageName, sources: bool) -> Vec<PagePlace> {
        let Some(store) = self.cx.geometry.store() else {
            return Vec::new();
        };
        let columns = u64::from(self.cx.geometry.layout().columns());
        let mut places = Vec::new();
        for distance in 0..self.cx.geometry.page_copies() {
            let column = (u64::from(name.column) + distance) % columns;
            let column = u16::try_from(column).expect("below the number of columns");
            let state = self.cx.view().column(&self.cx.geometry, name.group, column);
            let target = state.target.filter(|_| !sources);
            let cells = state.source.map(|cell| (cell, true)).into_iter();
            for (cell, counts) in cells.chain(target.map(|cell| (cell, false))) {
                let index = u64::from(name.index);
                places.push(PagePlace {
                    seat: cell.seat,
                    offset: self.cx.geometry.page_offset(store, cell, index, distance),
                    column,
                    counts,
                });
            }
        }
        places
    }

    /// The group's pages are read again, and their copies compared, when they are asked for next; but for
    /// those that are about to be written, and those of which memory may have the only copy.
    pub(super) fn compare_copies(&mut self, group: u64) {
        let keep = self.checkpoint_pages();
        for name in self.pages.clean(group) {
            if !keep.contains(&name) && self.page_places(name, true).len() > 1 {
                self.pages.cached.remove(&name);
            }
        }
    }

    /// Loads pages for an operation, which is planned again when they are here.
    pub(super) fn fetch_pages(&mut self, op: OpId, names: BTreeSet<PageName>) {
        let ahead = self.pages_ahead(op, &names);
        self.load_pages(names.iter().copied().chain(ahead));
        let left: BTreeSet<PageName> = names
            .into_iter()
            .filter(|&name| !self.pages.contains(name))
            .collect();
        if left.is_empty() {
            self.runnable.push_back(op);
        } else {
            self.pages.waiting.insert(op, left);
        }
    }

    /// Columns can be read again, of one group or of any.
    pub(super) fn forget_nowhere(&mut self, group: Option<u64>) {
        if !self.pages.some_nowhere {
            return;
        }
        let keep = self.checkpoint_pages();
        self.pages.forget_nowhere(group, &keep);
        self.maps.drop_unknown();
    }

    /// True if a group has lost more columns than the code survives, and those that were lost last come back with their
    /// drives as they are.
    fn comes_back_as_it_is(&self, group: u64) -> bool {
        // Where there are spare cells nothing comes back without a fill.
        self.cx.geometry.layout().spares() == 0 && self.is_beyond_reading(group)
    }

    /// True if all stripes of a group have lost more columns than the code survives.
    fn is_beyond_reading(&self, group: u64) -> bool {
        if self.cx.geometry.store().is_none() || !self.cx.geometry.stripes_use_all_columns() {
            return false;
        }
        let columns = self.cx.view().columns(&self.cx.geometry, group);
        let absent = columns.iter().filter(|column| !column.readable()).count();
        absent > usize::from(self.cx.geometry.code().tolerance())
    }

    /// True if a page that was nowhere can be read again and has not been: what has changed in it is not on its way to a
    /// drive.
    pub(super) fn page_is_back(&self, name: PageName) -> bool {
        let owes = self.pages.cached.get(&name).is_some_and(|page| page.owes);
        let places = || self.page_places(name, true);
        owes && places()
            .iter()
            .any(|place| !self.cx.view().is_out(place.seat))
    }

    /// True if a group has lost more columns than the code survives, and with them all copies of a page that has one
    /// beside this column. To fill the column would be to write there that nothing is known.
    pub(super) fn lacks_pages_beside(&self, group: u64, column: u16) -> bool {
        let nowhere = |name: PageName| match self.pages.cached.get(&name) {
            Some(cached) => cached.nowhere,
            None => {
                let places = self.page_places(name, true);
                places.iter().all(|place| self.cx.view().is_out(place.seat))
            }
        };
        self.comes_back_as_it_is(group)
            && self
                .cx
                .geometry
                .pages_beside(column)
                .into_iter()
                .any(|(column, index)| {
                    nowhere(PageName {
                        group,
                        column,
                        index,
                    })
                })
    }

    /// No drive that is there has a copy of a page.
    pub(super) fn page_without_copies(&mut self, name: PageName) {
        let mut page = MetaPage::filled(Entry::UNKNOWN, 0);
        let changed = self.pages.put_owed(name, &mut page);
        let found = match self.comes_back_as_it_is(name.group) {
            false if changed => {
                self.pages.owed.remove(&name);
                Found::Changed
            }
            // The group can do without it: what is in it is reconstructed, and counts.
            false if !self.is_beyond_reading(name.group) => Found::Same,
            owes => Found::Nowhere { owes },
        };
        self.page_here(name, page, found);
    }

    /// A drive has answered that was too slow for somebody who waited for a page: its copy was not looked at, and may
    /// be older than the others. All copies are compared, and made alike before a failure lets the older one count.
    pub(super) fn late_copy_came(&mut self, name: PageName) {
        let places = self.page_places(name, true);
        let readable = places
            .iter()
            .filter(|place| !self.cx.view().is_out(place.seat));
        let compares = readable.count() > 1
            && self.pages.is_clean(name)
            && !self.pages.reads.is_loading(name)
            && !self.checkpoint_writes_all_copies(name);
        if compares {
            self.read_copies([name], true);
        }
    }

    /// The copies of a page that is here have been read.
    fn copies_compared(&mut self, loading: &Loading, name: PageName, computed: &Computed) {
        let written = !self.pages.is_clean(name) || self.checkpoint_writes_all_copies(name);
        if written || self.cx.trusted {
            // All copies are written in any case; or all are right by definition.
            return;
        }
        if (loading.anchor, loading.epoch) != (self.log.anchor, self.cx.epochs.present()) {
            // The page was perhaps written meanwhile, or its column has moved.
            self.late_copy_came(name);
            return;
        }
        let (page, merged) = self.merged(name, computed);
        let here = &self.pages.cached[&name].page;
        if here.is_overruled_by(&page) {
            self.page_here(name, page, Found::Changed);
        } else if merged.differ || *here != page {
            self.pages.unwritten(name);
        } else {
            return;
        }
        self.tell_mended(loading, name, merged);
        self.want_checkpoint();
    }

    /// What the copies of a page say together.
    fn merged(&self, name: PageName, computed: &Computed) -> (MetaPage, Merged) {
        let store = self.cx.geometry.store().expect("pages need a store");
        let copies: Vec<&[u8]> = computed.bytes.iter().map(Vec::as_slice).collect();
        MetaPage::merge(store.pool, name, &copies)
    }

    /// Reports copies that are damaged or older than the others.
    fn tell_mended(&mut self, loading: &Loading, name: PageName, merged: Merged) {
        let here = loading.copies.iter().filter(|copy| copy.outcome.is_ok());
        for (index, seat) in here.map(|copy| copy.seat).enumerate() {
            let damaged = merged.damaged & 1 << index != 0;
            if damaged || merged.older & 1 << index != 0 {
                self.cx.events.push_back(Event::PageMended {
                    seat,
                    group: name.group,
                    column: name.column,
                    damaged,
                });
            }
        }
    }

    pub(super) fn page_loaded(&mut self, name: PageName, computed: &Computed) {
        let loading = self.page_read_ends(name);
        if loading.void {
            self.load_copies([name], loading.patient);
            return;
        }
        if self.pages.contains(name) {
            self.copies_compared(&loading, name, computed);
            return;
        }
        if self.cx.trusted {
            // Read, and right by definition: everything was written.
            self.page_here(name, MetaPage::all_written(), Found::Same);
            return;
        }
        let (mut page, merged) = self.merged(name, computed);
        if merged.lost > 0 && (loading.early || loading.epoch != self.cx.epochs.present()) {
            // The other copy is needed after all; or its column has moved meanwhile, and somebody
            // else may have been given the place.
            self.load_copies([name], loading.early);
            return;
        }
        self.tell_mended(&loading, name, merged);
        if merged.lost > 0 {
            self.cx.events.push_back(Event::PageLost {
                group: name.group,
                column: name.column,
            });
        }
        let failed = |outcome: Outcome| !matches!(outcome, Ok(()) | Err(Fault::Shutdown));
        let failed = loading.copies.iter().any(|copy| failed(copy.outcome));
        let changed = self.pages.put_owed(name, &mut page);
        self.pages.owed.remove(&name);
        let found = match changed || merged.differ || merged.lost > 0 || failed {
            true => Found::Changed,
            false => Found::Same,
        };
        self.page_here(name, page, found);
        let column = self
            .cx
            .view()
            .column(&self.cx.geometry, name.group, name.column);
        if merged.lost == 0 && column.readable() && self.pages.has_unknown(name) {
            // An earlier life of the pool lost the page, and was cut before it had made up for that.
            self.cx
                .events
                .push_back(Event::BlocksUnknown { group: name.group });
        }
    }

    fn page_here(&mut self, name: PageName, page: MetaPage, found: Found) {
        let mut keep = BTreeSet::new();
        if self.pages.cached.len() >= PAGES_MAX {
            keep = self.checkpoint_pages();
            for names in self.pages.waiting.values() {
                keep.extend(names);
            }
        }
        self.pages.insert(name, page, found, &keep);
        let mut ready = Vec::new();
        for (&op, names) in &mut self.pages.waiting {
            names.remove(&name);
            if names.is_empty() {
                ready.push(op);
            }
        }
        for op in ready {
            self.pages.waiting.remove(&op);
            self.runnable.push_back(op);
        }
        self.checkpoint_page_here();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_in_a_page_that_is_nowhere_does_not_hide_what_a_drive_brings_back() {
        let name = PageName {
            group: 0,
            column: 0,
            index: 0,
        };
        let block = |block| BlockName {
            group: 0,
            column: 0,
            block,
        };
        let mut pages = Pages::new(8);
        let nowhere = MetaPage::filled(Entry::UNKNOWN, 0);
        let found = Found::Nowhere { owes: true };
        pages.insert(name, nowhere, found, &BTreeSet::new());
        pages.set(block(3), Entry::UNWRITTEN);
        pages.unwritten(name);
        assert!(pages.is_nowhere(name), "of the others nothing is known");
        assert_eq!(pages.entry(block(3)), Some(Entry::UNWRITTEN));
        assert_eq!(pages.dirty().count(), 0, "it must not be written");

        pages.forget_nowhere(Some(0), &BTreeSet::new());
        assert!(!pages.contains(name), "it is looked for anew");
        let mut brought = MetaPage::filled(Entry::WRITTEN, 1000);
        assert!(pages.put_owed(name, &mut brought));
        assert_eq!(brought.get(3), Entry::UNWRITTEN);
        assert_eq!(brought.get(2), Entry::WRITTEN);
        assert!(brought.latest() > 1000, "it counts as the later one");
        assert!(!pages.lack_entries());
    }
}
