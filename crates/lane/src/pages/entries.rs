//! The entries of the pages that are in memory, and which pages drives do not have yet.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ops::Bound;

use format::{BlockName, ENTRIES_PER_META_PAGE, Entry, Generation, GroupId, MetaPage, PageName};

use super::place::page_places;
use super::{CheckpointPages, PageCache};
use crate::context::Context;
use crate::io::IoTable;

/// Pages that a lane keeps: with 16 lanes, 256 MiB in all.
const PAGES_MAX: usize = 4096;

/// A page in memory.
#[derive(Clone, Debug)]
pub(super) struct Cached {
    page: MetaPage,
    /// UNKNOWN entries, of blocks that exist.
    unknown: u32,
    /// Used since the hand passed last.
    used: Cell<bool>,
    /// Changed since it was written.
    dirty: bool,
    /// No drive with a copy was there: nothing is known of what the page describes.
    nowhere: bool,
    /// Drives that are away are expected to bring the page back: changes are kept apart.
    owes: bool,
}

/// How a page has come into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The page is here as it is on all drives.
    Same,
    /// Some drive should get the page as it is here.
    Changed,
    /// No drive that is there has it. If `owes`, a drive that is away is expected to bring it back.
    Nowhere { owes: bool },
}

impl PageCache {
    /// True if any cached entry is UNKNOWN.
    pub(crate) const fn lack_entries(&self) -> bool {
        self.unknown > 0
    }

    /// True if any entry of a page is UNKNOWN.
    pub(super) fn has_unknown(&self, name: PageName) -> bool {
        self.cached
            .get(&name)
            .is_some_and(|cached| cached.unknown > 0)
    }

    pub(crate) fn contains(&self, name: PageName) -> bool {
        self.cached.contains_key(&name)
    }

    /// The entry of a block, if its page is here.
    pub(crate) fn entry(&self, name: BlockName) -> Option<Entry> {
        let cached = self.cached.get(&name.page())?;
        cached.used.set(true);
        Some(cached.page.get(name.entry()))
    }

    /// The same for checks: it does not count as a use of the page.
    pub(crate) fn peek(&self, name: BlockName) -> Option<Entry> {
        let cached = self.cached.get(&name.page())?;
        Some(cached.page.get(name.entry()))
    }

    /// True if `count` blocks from `first` on are known to be written, with their checksums.
    pub(crate) fn are_written(&self, first: BlockName, count: u32) -> bool {
        self.are_such(first, count, |entry| {
            entry != Entry::UNWRITTEN && entry != Entry::UNKNOWN
        })
    }

    /// True if `count` blocks from `first` on are known to be unwritten.
    pub(crate) fn are_unwritten(&self, first: BlockName, count: u32) -> bool {
        self.are_such(first, count, |entry| entry == Entry::UNWRITTEN)
    }

    /// True if the pages of `count` blocks from `first` on are here, and all their entries are such.
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
    pub(crate) fn missing(&self, first: BlockName, count: u32) -> BTreeSet<PageName> {
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
    pub(crate) fn set(&mut self, name: BlockName, entry: Entry) {
        self.set_all(name.page(), [(name, entry)]);
    }

    /// Changes entries of one page, if it is here.
    pub(crate) fn set_all(
        &mut self,
        page: PageName,
        entries: impl IntoIterator<Item = (BlockName, Entry)>,
    ) {
        let mut cached = self.cached.get_mut(&page);
        for (name, entry) in entries {
            debug_assert_eq!(name.page(), page, "one page's blocks");
            self.clock += 1;
            let Some(cached) = &mut cached else {
                continue;
            };
            // Entries behind those of the cell's blocks are not counted: stripe maps are there.
            let counts = u64::from(name.block) < self.used_blocks;
            let was = counts && cached.page.get(name.entry()) == Entry::UNKNOWN;
            let is = counts && entry == Entry::UNKNOWN;
            cached.unknown = cached.unknown + u32::from(is) - u32::from(was);
            self.unknown = self.unknown + u64::from(is) - u64::from(was);
            cached.page.set(name.entry(), entry, self.clock);
            if cached.owes {
                // Nothing is known here of the other entries, and a drive that is away may have them.
                let owed = self.owed.entry(page).or_default();
                owed.insert(name.entry(), entry);
            } else {
                cached.dirty = true;
                cached.nowhere = false;
            }
        }
    }

    pub(crate) fn page(&self, name: PageName) -> Option<&MetaPage> {
        self.cached.get(&name).map(|cached| &cached.page)
    }

    pub(crate) fn written(&mut self, name: PageName) {
        if let Some(cached) = self.cached.get_mut(&name) {
            cached.dirty = false;
        }
    }

    /// Drives may not have the page as it is here: it is to be written again.
    pub(crate) fn unwritten(&mut self, name: PageName) {
        if let Some(cached) = self.cached.get_mut(&name) {
            cached.dirty = !cached.nowhere;
        }
    }

    /// The page counts from now on as later than a copy that differs from it.
    pub(crate) fn outdate(&mut self, name: PageName, copy: &MetaPage) {
        let Some(cached) = self.cached.get_mut(&name) else {
            return;
        };
        if !cached.owes && cached.page.is_overruled_by(copy) {
            // Later even than a copy whose clock is ahead of every clock here.
            let later = copy.latest().max(self.clock) + 1;
            self.clock = later;
            cached.page.renew(later);
            cached.dirty = true;
        }
    }

    /// True if a page has changed since it was written.
    pub(crate) fn is_dirty(&self, name: PageName) -> bool {
        self.cached.get(&name).is_some_and(|cached| cached.dirty)
    }

    /// Pages that have changed since they were written.
    pub(crate) fn dirty(&self) -> impl Iterator<Item = PageName> + '_ {
        self.cached
            .iter()
            .filter(|(_, cached)| cached.dirty)
            .map(|(&name, _)| name)
    }

    /// True if nothing is known of what a page describes, because no drive with a copy was there.
    pub(crate) fn is_nowhere(&self, name: PageName) -> bool {
        let cached = self.cached.get(&name);
        cached.is_some_and(|cached| cached.nowhere)
    }

    /// True if there may be pages here that no drive has.
    pub(crate) const fn has_nowhere(&self) -> bool {
        self.some_nowhere
    }

    /// Columns of one group, or of any, can be read again: drives are there that may have pages that no drive had.
    /// Drops these pages, so that they are read again.
    pub(crate) fn forget_nowhere(
        &mut self,
        checkpoint: &CheckpointPages<'_>,
        group: Option<GroupId>,
    ) {
        let unknown = &mut self.unknown;
        let left = &mut self.some_nowhere;
        *left = false;
        self.cached.retain(|name, cached| {
            let here = group.is_none_or(|group| name.group == group);
            let stays = !here || !cached.nowhere || cached.dirty || checkpoint.keeps(*name);
            if !stays {
                *unknown -= u64::from(cached.unknown);
            }
            *left |= stays && cached.nowhere;
            stays
        });
    }

    /// A drive is back whose copies of the group's pages may be later than those that memory came from, or older: pages may
    /// have been written meanwhile. Drops the pages, reads all copies, and compares them. Those that are being read are
    /// read again: the copies on that drive are not among them. Pages that a checkpoint needs stay, and are compared with
    /// their copies. Pages that are about to be written stay, and pages of which memory may have the only copy.
    pub(crate) fn read_again(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        group: GroupId,
    ) {
        self.reads.drop_group(group);
        let clean = self.clean(group).into_iter();
        let (kept, mut dropped): (Vec<_>, Vec<_>) = clean.partition(|&name| checkpoint.keeps(name));
        self.compare_clean(cx, ios, checkpoint, kept);
        dropped.retain(|&name| page_places(cx, name, true).len() > 1);
        for name in &dropped {
            let gone = self.cached.remove(name);
            self.unknown -= gone.map_or(0, |gone| u64::from(gone.unknown));
        }
        self.load_copies(cx, ios, checkpoint.anchor, dropped, true);
    }

    /// Puts into a page the entries that have changed while it was nowhere. True if there were any.
    pub(super) fn put_owed(&mut self, name: PageName, page: &mut MetaPage) -> bool {
        let Some(owed) = self.owed.get(&name) else {
            return false;
        };
        self.clock = self.clock.max(page.latest()) + 1;
        for (&index, &entry) in owed {
            page.set(index, entry, self.clock);
        }
        true
    }

    /// The group is being reused: drops its pages.
    pub(crate) fn drop_group(&mut self, group: GroupId) {
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

    /// Groups from `first` on that have a page here.
    pub(crate) fn groups_from(&self, first: GroupId) -> BTreeSet<GroupId> {
        let names = self.owed.keys().chain(self.cached.keys());
        let groups = names.map(|name| name.group);
        groups.filter(|&group| group >= first).collect()
    }

    /// Pages of the group that are on the drives as they are here.
    pub(super) fn clean(&self, group: GroupId) -> Vec<PageName> {
        let cached = self.cached.iter();
        cached
            .filter(|(name, cached)| name.group == group && !cached.dirty)
            .map(|(&name, _)| name)
            .collect()
    }

    /// True if the page is here as it was written, or as it was read from a drive.
    pub(crate) fn is_clean(&self, name: PageName) -> bool {
        { self.cached.get(&name) }.is_some_and(|cached| !cached.dirty && !cached.nowhere)
    }

    pub(super) fn insert(
        &mut self,
        name: PageName,
        page: MetaPage,
        found: Found,
        keep: &BTreeSet<PageName>,
    ) {
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
                    .range((Bound::Excluded(hand), Bound::Unbounded))
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

    /// A page is here as it is on all drives.
    #[cfg(test)]
    pub(crate) fn put(&mut self, name: PageName, page: MetaPage) {
        self.insert(name, page, Found::Same, &BTreeSet::new());
    }

    /// With the first pages of the columns of group 0, all of whose blocks are written.
    #[cfg(test)]
    pub(crate) fn all_written(columns: u16) -> Self {
        let mut pages = Self::new(64);
        for column in (0..columns).map(format::Column) {
            let first = crate::blocks::block(column, 0);
            pages.put(first.page(), MetaPage::filled(Entry::WRITTEN, 1));
        }
        pages
    }

    /// The entries that were kept apart are in the page now: drives get them with it.
    pub(super) fn forget_owed(&mut self, name: PageName) {
        self.owed.remove(&name);
    }

    /// True if one more page may drop another.
    pub(super) fn is_full(&self) -> bool {
        self.cached.len() >= PAGES_MAX
    }

    /// True if drives that are away are expected to bring the page back: its changes are kept apart until then.
    pub(super) fn owes(&self, name: PageName) -> bool {
        self.cached.get(&name).is_some_and(|cached| cached.owes)
    }

    /// Pages of this incarnation of the pool are later than those of all before.
    pub(crate) const fn begin_clock(&mut self, incarnation: Generation) {
        self.clock = incarnation.0 << 32;
    }

    /// A page of blocks that were not written, later than all that there were.
    pub(crate) fn blank(&mut self) -> MetaPage {
        self.clock += 1;
        MetaPage::filled(Entry::UNWRITTEN, self.clock)
    }
}
