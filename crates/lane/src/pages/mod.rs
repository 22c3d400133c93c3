//! The metadata pages of a lane: those in memory, and how others are loaded.
//!
//! ```text
//!   wanted ── load ─► copies are read (reads.rs) ── computed ─► here ─► what has waited goes on
//!     │                  ▲                            │          ▲
//!     │                  └── a copy is needed after ──┘          │
//!     └── no drive that is there has one ── without_copies ──────┘  (nothing is known, or nothing but what has changed)
//!
//!   here ── a late copy comes, a scrub begins ─► copies are read ── computed ─► compared: alike, or written again
//! ```
//!
//! Invariants:
//! - A page that an operation waits for is not in memory. The operation goes on when the last page that it waits for
//!   has come.
//! - Pages come one at a time: after each page the lane lets the checkpoint check whether it has all pages that it
//!   waits for.
//! - A copy is compared with the page in memory only if neither was written, nor a column moved, since its read began.
//! - Changes of a page that drives are expected to bring back are kept apart, and count as later than what these drives
//!   bring.

mod entries;
mod place;
mod reads;

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Outcome, Seat};
use format::{Column, Entry, GroupId, Merged, MetaPage, PageName};
use plan::action::{Computed, Event};

use self::entries::{Cached, Found};
pub(super) use self::place::{PagePlace, is_away, page_places};
use self::place::{comes_back_as_it_is, is_beyond_reading, readable_places};
use self::reads::{Loading, PageReads};
use super::context::Context;
use super::ids::OpId;
use super::io::IoTable;

/// Pages of a column that are asked for at a time: they describe 31 MiB of its cell. With p = 2 and ten columns that
/// is 1.9 MiB of memory while they are read; those of a whole cell of 64 MiB would be twice that.
const PAGES_AHEAD: u32 = 16;

/// What the running checkpoint does with pages, at the time of one input.
#[derive(Clone, Copy, Debug)]
pub(super) struct CheckpointPages<'a> {
    /// Number of the newest anchor: pages are written before an anchor is.
    pub(super) anchor: u64,
    /// Pages that it writes.
    pub(super) written: &'a BTreeSet<PageName>,
    /// Pages that it only reads.
    pub(super) read: &'a BTreeSet<PageName>,
    /// Pages of `written` of which not all copies are written.
    pub(super) unchanged: &'a BTreeSet<PageName>,
    /// The pages are on their way to their places.
    pub(super) on_their_way: bool,
}

impl CheckpointPages<'static> {
    /// No checkpoint runs.
    pub(super) const fn none(anchor: u64) -> Self {
        static NONE: BTreeSet<PageName> = BTreeSet::new();
        Self {
            anchor,
            written: &NONE,
            read: &NONE,
            unchanged: &NONE,
            on_their_way: false,
        }
    }
}

impl CheckpointPages<'_> {
    /// True if a page must not be dropped from memory.
    fn keeps(&self, name: PageName) -> bool {
        self.written.contains(&name) || self.read.contains(&name)
    }

    /// True if every copy of a page is being written.
    fn writes_all_copies(&self, name: PageName) -> bool {
        self.on_their_way && self.written.contains(&name) && !self.unchanged.contains(&name)
    }
}

/// The result of reading the copies of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Loaded {
    /// The copies are read again. No drive that is there has a copy of these pages any more: each page goes to
    /// [`PageCache::without_copies`].
    Again(Vec<PageName>),
    /// The page is here, and these operations have waited for nothing else. If `readable`, its blocks can be read where
    /// they are: [`PageCache::report_unknown`] is to be called when these operations have gone on.
    Here { ready: Vec<OpId>, readable: bool },
    /// The page was here already, and its copies are alike.
    Alike,
    /// The page was here already, and some copy differs: a checkpoint makes them alike.
    Differ,
    /// Drives that stay have failed to read the page, and nothing is decided about it. It is not here. These operations
    /// have waited for it, and wait for nothing any more: they fail.
    Unread { waited: Vec<OpId>, fault: Fault },
}

/// The pages of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct PageCache {
    cached: BTreeMap<PageName, Cached>,
    /// Pages on their way into memory.
    reads: PageReads,
    /// Operations that wait for pages.
    waiting: BTreeMap<OpId, BTreeSet<PageName>>,
    /// Where the search for a page to drop continues.
    hand: Option<PageName>,
    /// Blocks of a cell that stripes use: a column's last page describes fewer than it has room for.
    used_blocks: u64,
    /// UNKNOWN entries of all pages that are here.
    unknown: u64,
    /// There may be pages here that no drive has.
    some_nowhere: bool,
    /// Entries that have changed while their page was nowhere: they count as later than those of a drive that brings
    /// the page back.
    owed: BTreeMap<PageName, BTreeMap<usize, Entry>>,
    /// Counts changes of pages; of two copies the later one counts.
    clock: u64,
}

impl PageCache {
    pub(super) fn new(used_blocks: u64) -> Self {
        Self {
            used_blocks,
            ..Self::default()
        }
    }

    /// True while a page of the group is being read.
    pub(super) fn reads_group(&self, group: GroupId) -> bool {
        self.reads.is_loading_of(group)
    }

    /// The pages behind the missing ones that will be needed next.
    pub(super) fn ahead(cx: &Context, missing: &BTreeSet<PageName>) -> Vec<PageName> {
        let pages = u32::try_from(cx.geometry.pages_per_cell()).expect("few pages");
        let ahead = missing.iter().flat_map(|&name| {
            let behind = name.index + 1..pages.min(name.index + PAGES_AHEAD);
            behind.map(move |index| PageName { index, ..name })
        });
        ahead.collect()
    }

    /// Begins to load pages, except those that are here or on their way. Returns the pages of which no drive that is
    /// there has a copy: each goes to [`without_copies`](Self::without_copies) before an operation begins to
    /// [`wait`](Self::wait).
    #[must_use]
    pub(super) fn load(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        anchor: u64,
        names: impl IntoIterator<Item = PageName>,
    ) -> Vec<PageName> {
        self.load_copies(cx, ios, anchor, names, false)
    }

    /// The same. `patient`: every copy is waited for.
    pub(super) fn load_copies(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        anchor: u64,
        names: impl IntoIterator<Item = PageName>,
        patient: bool,
    ) -> Vec<PageName> {
        let mut names: Vec<PageName> = names.into_iter().collect();
        names.retain(|&name| !self.contains(name) && !self.reads.is_loading(name));
        self.reads.begin(cx, ios, anchor, names, patient)
    }

    /// An operation waits for those of these pages that are not here; false if all are.
    pub(super) fn wait(&mut self, op: OpId, mut names: BTreeSet<PageName>) -> bool {
        names.retain(|&name| !self.contains(name));
        let waits = !names.is_empty();
        if waits {
            self.waiting.insert(op, names);
        }
        waits
    }

    /// A group's pages are being written as blank, and none of them is in memory: takes them into memory, so that the
    /// group's first writes need not read them. Until all are written, nothing uses the group.
    pub(super) fn put_blank(
        &mut self,
        cx: &Context,
        checkpoint: &CheckpointPages<'_>,
        group: GroupId,
        page: &MetaPage,
    ) {
        if cx.trusted {
            return;
        }
        let mut waited_for = self.waiting.values().flatten();
        debug_assert!(
            waited_for.all(|name| name.group != group),
            "no operation uses the group"
        );
        let keep = self.kept(checkpoint);
        let pages = u32::try_from(cx.geometry.pages_per_cell()).expect("few pages");
        for column in cx.geometry.columns() {
            for index in 0..pages {
                let name = PageName {
                    group,
                    column,
                    index,
                };
                if !is_away(cx, name) {
                    self.insert(name, page.clone(), Found::Same, &keep);
                }
            }
        }
    }

    /// The pages that a new one must not drop from memory.
    fn kept(&self, checkpoint: &CheckpointPages<'_>) -> BTreeSet<PageName> {
        let of_checkpoint = checkpoint.written.union(checkpoint.read);
        let waited_for = self.waiting.values().flatten();
        of_checkpoint.chain(waited_for).copied().collect()
    }

    /// No drive that is there has a copy of a page. Returns the operations that waited for this page and for nothing
    /// else.
    #[must_use]
    pub(super) fn without_copies(
        &mut self,
        cx: &Context,
        checkpoint: &CheckpointPages<'_>,
        name: PageName,
    ) -> Vec<OpId> {
        let mut page = MetaPage::filled(Entry::UNKNOWN, 0);
        let changed = self.put_owed(name, &mut page);
        let found = match comes_back_as_it_is(cx, name.group) {
            false if changed => {
                self.forget_owed(name);
                Found::Changed
            }
            // The group can do without the page: its blocks are reconstructed, and count.
            false if !is_beyond_reading(cx, name.group) => Found::Same,
            owes => Found::Nowhere { owes },
        };
        self.here(checkpoint, name, page, found)
    }

    /// A drive has answered a read of copies.
    pub(super) fn read_ended(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        (read, seat): (u64, Seat),
        outcome: Outcome,
    ) {
        let (ended, late) = self.reads.take(read);
        self.late_copies_came(cx, ios, checkpoint, seat, late);
        self.reads.ended(cx, ios, seat, ended, outcome);
    }

    /// Goes on without a late read where there is another copy. True if nothing more is to be done about the read.
    pub(super) fn hedge(&mut self, cx: &mut Context, ios: &mut IoTable, read: u64) -> bool {
        self.reads.hedge(cx, ios, read)
    }

    /// A drive has answered a read that these pages did not wait for. Its copies were not compared, and may be older
    /// than the others. All copies are compared, and made alike before a failure lets the older one count.
    pub(super) fn late_copies_came(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        seat: Seat,
        names: Vec<PageName>,
    ) {
        for name in names {
            if !cx.view().is_out(seat) {
                self.compare_clean(cx, ios, checkpoint, vec![name]);
            }
        }
    }

    /// A scrub begins: reads all copies of the group's pages that are in memory. They are compared with memory, which
    /// stays: it may know what no drive has any more, because a controller has lost its cache and set drives back.
    pub(super) fn compare_copies(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        group: GroupId,
    ) {
        let names = self.clean(group);
        self.compare_clean(cx, ios, checkpoint, names);
    }

    /// Reads all copies of those pages that are clean in memory and of which there is more than one copy.
    pub(super) fn compare_clean(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        mut names: Vec<PageName>,
    ) {
        names.retain(|&name| {
            readable_places(cx, name).len() > 1
                && self.is_clean(name)
                && !self.reads.is_loading(name)
                && !checkpoint.writes_all_copies(name)
        });
        if !names.is_empty() {
            let nowhere = self.reads.begin(cx, ios, checkpoint.anchor, names, true);
            debug_assert!(nowhere.is_empty(), "they can be read in two places");
        }
    }

    /// The copies of a page are in memory, or could not be read.
    #[must_use]
    pub(super) fn computed(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        name: PageName,
        computed: &Computed,
    ) -> Loaded {
        let loading = self.reads.end(cx, ios, name);
        let anchor = checkpoint.anchor;
        if loading.void {
            let patient = loading.patient;
            return Loaded::Again(self.load_copies(cx, ios, anchor, [name], patient));
        }
        if self.contains(name) {
            return match self.compared(cx, ios, checkpoint, &loading, name, computed) {
                true => Loaded::Alike,
                false => Loaded::Differ,
            };
        }
        if cx.trusted {
            // Read, and correct by definition: everything was written.
            let ready = self.here(checkpoint, name, MetaPage::all_written(), Found::Same);
            return Loaded::Here {
                ready,
                readable: false,
            };
        }
        let (mut page, merged) = merge(cx, name, computed);
        if merged.lost > 0 && (loading.early || loading.epoch != cx.epochs.present()) {
            // The other copy is needed after all; or the column has moved meanwhile, and its place may have been given
            // to something else.
            let early = loading.early;
            return Loaded::Again(self.load_copies(cx, ios, anchor, [name], early));
        }
        if merged.lost > 0
            && let Some(fault) = Self::decides_nothing(cx, &loading, name)
        {
            let waited = self
                .waiting
                .extract_if(.., |_, names| names.contains(&name));
            let waited = waited.map(|(op, _)| op).collect();
            return Loaded::Unread { waited, fault };
        }
        report_mended(cx, &loading, name, merged);
        if merged.lost > 0 {
            cx.events.push_back(Event::PageLost {
                group: name.group,
                column: name.column,
            });
        }
        let failed = |outcome: Outcome| !matches!(outcome, Ok(()) | Err(Fault::Shutdown));
        let failed = loading.copies.iter().any(|copy| failed(copy.outcome));
        let changed = self.put_owed(name, &mut page);
        self.forget_owed(name);
        let found = match changed || merged.differ || merged.lost > 0 || failed {
            true => Found::Changed,
            false => Found::Same,
        };
        let ready = self.here(checkpoint, name, page, found);
        let column = cx.view().column(&cx.geometry, name.group, name.column);
        Loaded::Here {
            ready,
            readable: merged.lost == 0 && column.readable(),
        }
    }

    /// No copy of a page is whole. Returns the drives' fault if that decides nothing about the page: more drives fail,
    /// or are absent from the group, than the code survives. They have failed together, and mostly work again together.
    /// Otherwise the page is written again.
    fn decides_nothing(cx: &Context, loading: &Loading, name: PageName) -> Option<Fault> {
        let columns = cx.view().columns(&cx.geometry, name.group);
        let absent = columns.iter().filter(|column| !column.readable()).count();
        let failing = loading.failing_drives();
        let most = usize::from(cx.geometry.code().tolerance());
        let fault = *failing.values().next()?;
        (absent + failing.len() > most).then_some(fault)
    }

    /// A page is here, and its blocks can be read where they are: reports its UNKNOWN entries. An earlier incarnation
    /// of the pool lost these entries, and was cut before it had restored them.
    pub(super) fn report_unknown(&self, cx: &mut Context, name: PageName) {
        if self.has_unknown(name) {
            cx.events
                .push_back(Event::BlocksUnknown { group: name.group });
        }
    }

    /// The copies of a page that is here have been read. False if they are to be written again.
    fn compared(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        checkpoint: &CheckpointPages<'_>,
        loading: &Loading,
        name: PageName,
        computed: &Computed,
    ) -> bool {
        let written = !self.is_clean(name) || checkpoint.writes_all_copies(name);
        if written || cx.trusted {
            // All copies are written in any case, or all are correct by definition.
            return true;
        }
        if (loading.anchor, loading.epoch) != (checkpoint.anchor, cx.epochs.present()) {
            // The page may have been written meanwhile, or its column has moved.
            self.compare_clean(cx, ios, checkpoint, vec![name]);
            return true;
        }
        let (page, merged) = merge(cx, name, computed);
        let here = self.page(name).expect("it is here");
        if here.is_overruled_by(&page) {
            let ready = self.here(checkpoint, name, page, Found::Changed);
            assert!(ready.is_empty(), "nothing waits for a page that is here");
        } else if merged.differ || *here != page {
            self.unwritten(name);
        } else {
            return true;
        }
        report_mended(cx, loading, name, merged);
        false
    }

    /// A page has come. Returns the operations that waited for this page and for nothing else.
    fn here(
        &mut self,
        checkpoint: &CheckpointPages<'_>,
        name: PageName,
        page: MetaPage,
        found: Found,
    ) -> Vec<OpId> {
        let keep = match self.is_full() {
            true => self.kept(checkpoint),
            false => BTreeSet::new(),
        };
        self.insert(name, page, found, &keep);
        let mut ready = Vec::new();
        for (&op, names) in &mut self.waiting {
            names.remove(&name);
            if names.is_empty() {
                ready.push(op);
            }
        }
        for op in &ready {
            self.waiting.remove(op);
        }
        ready
    }

    /// True if a page that was nowhere can be read again and has not been: its changes are not on their way to a drive.
    pub(super) fn is_back(&self, cx: &Context, name: PageName) -> bool {
        self.owes(name) && !is_away(cx, name)
    }

    /// True if a group has lost more columns than the code survives, and with them all copies of a page that has one
    /// beside this column. A fill of the column would write a page there in which nothing is known.
    pub(super) fn lacks_beside(&self, cx: &Context, group: GroupId, column: Column) -> bool {
        let nowhere = |(column, index)| {
            let name = PageName {
                group,
                column,
                index,
            };
            match self.contains(name) {
                true => self.is_nowhere(name),
                false => is_away(cx, name),
            }
        };
        let beside = || cx.geometry.pages_beside(column);
        comes_back_as_it_is(cx, group) && beside().into_iter().any(nowhere)
    }
}

/// Merges the copies of a page.
fn merge(cx: &Context, name: PageName, computed: &Computed) -> (MetaPage, Merged) {
    let regions = cx.geometry.regions().expect("pages need a region");
    let copies: Vec<&[u8]> = computed.bytes.iter().map(Vec::as_slice).collect();
    MetaPage::merge(regions.pool, name, &copies)
}

/// Reports copies that are damaged or older than the others.
fn report_mended(cx: &mut Context, loading: &Loading, name: PageName, merged: Merged) {
    let here = loading.copies.iter().filter(|copy| copy.outcome.is_ok());
    for (index, seat) in here.map(|copy| copy.seat).enumerate() {
        let damaged = merged.damaged & 1 << index != 0;
        if damaged || merged.older & 1 << index != 0 {
            cx.events.push_back(Event::PageMended {
                seat,
                group: name.group,
                column: name.column,
                damaged,
            });
        }
    }
}

/// The checksum that tests of single machines give to a block.
#[cfg(test)]
pub(super) fn sum_of(name: format::BlockName) -> u32 {
    1000 * name.block + u32::from(name.column.0)
}

#[cfg(test)]
impl PageCache {
    /// Pages of a lane of six drives, for tests of single machines: blocks 4 to 7 of each column, those of stripe 1,
    /// are written by batch 9, each with the checksum that [`sum_of`] gives.
    pub(super) fn of_test(cx: &Context) -> Self {
        let pool = cx.geometry.regions().expect("it has a journal").pool;
        let mut pages = Self::new(64);
        for column in (0..6).map(format::Column) {
            let mut page = MetaPage::filled(Entry::UNWRITTEN, 1);
            for at in 4..8 {
                let name = super::blocks::block(column, at);
                page.set(
                    name.entry(),
                    Entry::new(pool, name, sum_of(name), format::Sequence(9)),
                    2,
                );
            }
            pages.put(super::blocks::block(column, 0).page(), page);
        }
        pages
    }
}

#[cfg(test)]
mod tests;
