//! A checkpoint writes logged blocks to their places, so that the ring's tail can move.
//!
//! ```text
//!   Flushing ─► Loading ─► Installing ─► Laying ─► Paging ─► Ordering ─► Paging ─► Settling ─► LayingAnchor ─► Anchoring ─► Closing ─► (end)
//!   (records)   (pages)    (blocks)      (pages,   (first    (flush)     (second   (flush)     (in memory)     (anchor)     (flush)
//!                                        in        turn)                 turn)        │
//!                                        memory)                                      └── the tail does not move ─► (end)
//! ```
//!
//! This is the usual way. All changes, by the methods of [`Checkpoints`] and [`Running`] that make them:
//!
//! ```text
//! none ── begin ──► flushing
//! flushing ── collect ──► loading
//! flushing ── refuse ──► none
//! loading ── page_here ──► installing
//! loading ── refuse ──► none
//! installing ── write_pages ──► laying
//! installing ── write_pages ──► paging
//! laying ── paged ──► paging
//! laying ── paged ──► ordering
//! paging ── page_written ──► ordering
//! paging ── judged ──► ordering
//! paging ── settle ──► settling
//! paging ── refuse ──► none
//! ordering ── flushed ──► paging
//! ordering ── refuse ──► none
//! settling ── begin_anchor ──► laying_anchor
//! settling ── end ──► none
//! settling ── refuse ──► none
//! laying_anchor ── anchor_submitted ──► anchoring
//! anchoring ── anchor_written ──► closing
//! anchoring ── judged ──► closing
//! anchoring ── refuse ──► none
//! closing ── end ──► none
//! closing ── refuse ──► none
//! ```
//!
//! Refuse: a drive that stays has failed what the checkpoint needs, or the journal has a gap, and the tail stays where it is.
//! Without pages to write, nothing is laid out. Of a first turn without copies only the flush is left.
//!
//! [`Checkpoints`] decides when a checkpoint begins and keeps what waits for it. [`Running`] is the checkpoint under
//! way. It submits its writes, counts them, and returns the next step ([`Next`]). Journal and pages are passed to it
//! for the steps that use them.
//!
//! Requests go on during a checkpoint. The blocks that they log are not part of it.
//!
//! Invariants:
//! - No block is written to its place before its record is durable.
//! - A block is released from the journal only when the block and its entry are durable in their places.
//! - The tail does not move past a block that stays logged (`held_back`). It does not move at all if a drive that stays
//!   in the pool has refused a page or an anchor.

mod anchor;
mod install;
mod installs;
mod paging;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{BlockName, Column, GroupId, PAGE_BYTES, PageName, Sequence, StripeId};
use plan::action::{BufferId, Slice};
use plan::{ScratchId, Transfer};

use self::install::of_pages;
use self::installs::Installs;
use super::context::Context;
use super::epochs::Epoch;
use super::ids::{JobId, OpId};
use super::io::IoTable;
use super::overlay::{Logged, Overlay};
use super::pages::{CheckpointPages, PageCache};
use super::preserved;
use super::writes::Writes;

pub(super) use self::anchor::{lay_anchor, submit_anchor};

/// If no batch has followed the last one for this long, a checkpoint begins without a request: blocks that are in place
/// cost nothing at the next opening.
const IDLE: Duration = Duration::from_secs(1);

/// What a checkpoint is doing.
#[derive(Clone, Debug)]
enum Phase {
    /// The records of the blocks that it covers are being flushed.
    Flushing,
    /// Pages are being read.
    Loading(Collected),
    /// Blocks are being written to their places.
    Installing {
        collected: Collected,
        installs: Installs,
        writes: Writes,
    },
    /// Its pages are being laid out in memory.
    Laying,
    /// Copies of pages are being written to their places; the copies in `second` follow later.
    Paging {
        writes: Writes,
        second: Vec<Transfer>,
    },
    /// The first turn is being flushed.
    Ordering { second: Vec<Transfer> },
    /// Blocks and pages are being flushed.
    Settling,
    /// Its anchor is being laid out in memory.
    LayingAnchor,
    /// Its anchor is being written to all drives.
    Anchoring(Writes),
    /// The anchor is being flushed.
    Closing,
}

/// What a checkpoint puts in place.
#[derive(Clone, Debug, Default)]
struct Collected {
    blocks: Vec<(BlockName, Logged)>,
    /// Stripes that become unwritten, each with the batch that logged this.
    zeroed: Vec<((GroupId, StripeId), Sequence)>,
    /// Batches whose memory it reads.
    pinned: BTreeSet<Sequence>,
}

/// What the checkpoint under way does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Wait until something in flight has ended.
    Wait,
    /// Flush all that was written, then call [`Running::flushed`].
    Flush,
    /// The records are durable: call [`Running::collect`].
    Collect,
    /// All installs have ended: call [`Running::enter`], then [`Running::write_pages`]. The fault is that of an install
    /// that a drive that stays in the pool has refused.
    Installed(Option<Fault>),
    /// All pages are written. When no block is being logged again any more: call [`Running::settle`], then flush.
    Settle,
    /// Blocks and pages are durable: call [`Running::release`], then write an anchor if one is needed.
    Durable,
    /// A drive that stays in the pool has refused a write that all drives must have: call [`Checkpoints::refuse`], then
    /// [`Checkpoints::end`].
    Refused(Fault),
    /// Its anchor is durable: call [`Checkpoints::end`].
    End,
}

/// Something that waits for the next checkpoint that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CheckpointWaiter {
    /// The pool.
    Pool,
    /// A job of this lane.
    Job(JobId),
}

/// A checkpoint that has ended.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// The last batch that the checkpoint covers.
    pub(super) covers: Sequence,
    /// The oldest batch that the journal must keep.
    pub(super) first: Sequence,
    pub(super) waiters: Vec<CheckpointWaiter>,
    /// The checkpoint was to make room, and held back blocks that could have been logged again in time.
    pub(super) in_the_way: bool,
    /// The checkpoint has put a block in place, or had none to put in place.
    pub(super) progress: bool,
    /// Only preserved blocks were left to put in place, and none was logged again: the next checkpoint would change
    /// nothing either.
    pub(super) no_effect: bool,
    /// In elastic pools: the groups of which it has changed entries.
    pub(super) groups: BTreeSet<GroupId>,
}

impl Ended {
    /// True if the journal must still keep a batch that this checkpoint covers.
    pub(super) fn holds_back(&self) -> bool {
        self.first <= self.covers
    }
}

/// The checkpoint under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    phase: Phase,
    /// The last batch that this checkpoint puts in place.
    covers: Sequence,
    waiters: Vec<CheckpointWaiter>,
    /// An anchor is written even if the tail does not move.
    anchor: bool,
    /// Blocks that stay logged: a drive that stays in the pool has refused them, or they have no place.
    held_back: BTreeSet<BlockName>,
    /// Columns that returned with their drive while the checkpoint ran: nothing was written there.
    back: BTreeSet<(GroupId, Column)>,
    /// Some blocks turned out to have no place when it was too late to log them again.
    late: bool,
    /// Blocks that were put in place. They stay in memory until they are durable there.
    installed: Vec<(BlockName, Logged)>,
    /// Drives that refused a page or the anchor and have not gone out, each with the fault that it returned.
    refused: BTreeMap<Seat, Fault>,
    /// True if this checkpoint must free space in the ring.
    room: bool,
    /// True if it has put a block in place, or had none to put in place.
    progress: bool,
    /// All blocks that it was to put in place are preserved.
    only_preserved: bool,
    /// Preserved blocks were logged again.
    relogged: bool,
    /// The oldest batch that the journal must keep after this checkpoint.
    first: Sequence,
    /// In elastic pools: the groups of which it changes entries.
    groups: BTreeSet<GroupId>,
    pages: BTreeSet<PageName>,
    /// Pages that are only read: preserved blocks are selected by them (`preserved.rs`).
    read_for: BTreeSet<PageName>,
    /// Pages of `pages` that have not changed. Every place that counts has them already; cells that are being filled,
    /// and successors of drives, lack them.
    unchanged: BTreeSet<PageName>,
    scratch: Option<ScratchId>,
    /// Entered while the checkpoint writes to cells: until it leaves, these cells are not given away.
    epoch: Option<Epoch>,
}

/// What decides whether a checkpoint that only has preserved blocks to put in place changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conditions {
    /// The number of changes of the view so far.
    pub(super) view_changes: u64,
    /// Units wait for room.
    pub(super) out_of_space: bool,
}

/// The checkpoint under way, and what the next one is for.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    running: Option<Running>,
    wanted: bool,
    waiters: Vec<CheckpointWaiter>,
    /// The next checkpoint writes an anchor even if the tail has not moved.
    anchor: bool,
    /// The last batch that a checkpoint has covered.
    covered: Sequence,
    /// If the last checkpoint had no effect: the conditions under which the next one has none, either.
    no_effect: Option<Conditions>,
    /// When the last batch became complete.
    logged_at: Instant,
    /// A fill has failed because drives that stay have refused logged blocks: a checkpoint is tried until one succeeds.
    for_fill: bool,
    /// Fills that must wait: they would write where installs are in flight, or over a block that is not flushed. Each
    /// with the batch that a checkpoint must cover.
    fills: Vec<(OpId, Sequence)>,
    /// Pages to be written whether they have changed or not: a fill needs them at its target.
    forced: BTreeSet<PageName>,
}

impl Checkpoints {
    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.waits()
    }

    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// True if a checkpoint is wanted and none is under way.
    pub(super) const fn waits(&self) -> bool {
        (self.wanted || !self.fills.is_empty()) && self.running.is_none()
    }

    /// What the checkpoint under way does with pages. `anchor`: number of the newest anchor.
    pub(super) fn pages(&self, anchor: u64) -> CheckpointPages<'_> {
        match &self.running {
            None => CheckpointPages::none(anchor),
            Some(running) => CheckpointPages {
                anchor,
                written: &running.pages,
                read: &running.read_for,
                unchanged: &running.unchanged,
                on_their_way: running.writes_pages(),
            },
        }
    }

    /// Checks the checkpoint under way. Batches up to `flushed` are durable.
    ///
    /// # Panics When a block is being put in place whose record is not durable.
    pub(super) fn check(&self, flushed: Sequence) {
        let Some(running) = &self.running else {
            return;
        };
        assert!(
            matches!(running.phase, Phase::Flushing) || running.covers <= flushed,
            "a checkpoint covers batches up to {}, and those up to {flushed} are flushed",
            running.covers
        );
    }

    /// True if the checkpoint under way writes a page of the group.
    pub(super) fn writes_of(&self, group: GroupId) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.pages.iter().any(|name| name.group == group))
    }

    /// A batch is complete.
    pub(super) const fn logged(&mut self, now: Instant) {
        self.logged_at = now;
    }

    /// True if no batch has been completed for as long as `IDLE`.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now.since(self.logged_at) >= IDLE
    }

    /// When a checkpoint begins without a request. `completed`: the last complete batch.
    pub(super) fn idle_at(&self, completed: Sequence) -> Option<Instant> {
        let behind = self.is_idle() && self.covered < completed;
        behind.then(|| self.logged_at + IDLE)
    }

    /// The first batch that no checkpoint has covered.
    pub(super) const fn first_uncovered(&self) -> Sequence {
        self.covered.next()
    }

    /// The last checkpoint had no effect under these conditions.
    pub(super) const fn had_no_effect(&mut self, conditions: Conditions) {
        self.no_effect = Some(conditions);
    }

    /// True if the last checkpoint had no effect, and nothing has changed that could help the next one.
    pub(super) fn would_have_no_effect(&self, conditions: Conditions) -> bool {
        self.no_effect == Some(conditions)
    }

    /// A checkpoint should begin as soon as none is running.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// The same; this checkpoint also writes an anchor.
    pub(super) const fn want_anchor(&mut self) {
        self.anchor = true;
        self.wanted = true;
    }

    /// `waiter` waits for the next checkpoint that begins. That checkpoint writes these pages.
    pub(super) fn await_next(
        &mut self,
        waiter: CheckpointWaiter,
        pages: impl IntoIterator<Item = PageName>,
    ) {
        self.waiters.push(waiter);
        self.forced.extend(pages);
        self.wanted = true;
    }

    /// True if a checkpoint begins now. `hindered`: an attempt would fail as the previous one did, so a checkpoint is
    /// attempted only if something waits for it. `log_waits`: something waits to be logged. `completed`: the last
    /// complete batch.
    pub(super) fn is_due(&mut self, hindered: bool, log_waits: bool, completed: Sequence) -> bool {
        // A checkpoint without the batch that a fill waits for changes nothing. It would end at once, the fill would be
        // planned again at once, and wait for the next checkpoint: a lane that is busy with that takes no completion of
        // that batch's writes.
        let for_fills = self.fills.iter().any(|&(_, batch)| batch <= completed);
        if !self.waits() || !self.wanted && !for_fills {
            return false;
        }
        if hindered && self.waiters.is_empty() {
            // Nothing waits for this checkpoint. Attempt it later only if the log or a fill needs it.
            self.wanted = log_waits || self.for_fill;
            return false;
        }
        true
    }

    /// A checkpoint begins that covers batches up to `covers`. Their records are flushed first.
    pub(super) fn begin(&mut self, covers: Sequence) {
        self.wanted = false;
        self.no_effect = None;
        self.running = Some(Running {
            phase: Phase::Flushing,
            covers,
            waiters: std::mem::take(&mut self.waiters),
            anchor: std::mem::take(&mut self.anchor),
            held_back: BTreeSet::new(),
            back: BTreeSet::new(),
            late: false,
            installed: Vec::new(),
            refused: BTreeMap::new(),
            room: false,
            progress: false,
            only_preserved: false,
            relogged: false,
            first: Sequence(0),
            groups: BTreeSet::new(),
            pages: std::mem::take(&mut self.forced),
            read_for: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            scratch: None,
            epoch: None,
        });
    }

    /// The checkpoint under way.
    pub(super) fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("a checkpoint runs")
    }

    /// The checkpoint under way, if there is one.
    pub(super) const fn if_running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// True if a fill must not write to a column now: an older version of one of its blocks may be on its way to the
    /// target, and arrive after the fill's write. The fill is planned again when all installs have ended.
    pub(super) fn fill_must_wait(&mut self, op: OpId, group: GroupId, column: Column) -> bool {
        let installing = self.running.as_ref().is_some_and(|running| {
            let Phase::Installing { collected, .. } = &running.phase else {
                return false;
            };
            let here = |&(name, logged): &(BlockName, Logged)| {
                (name.group, name.column) == (group, column) && logged.bytes.memory().is_some()
            };
            !seeded::is(SeededFault::FillDuringInstall) && collected.blocks.iter().any(here)
        });
        if installing {
            self.fills.push((op, Sequence(0)));
        }
        installing
    }

    /// The fill is planned again when a checkpoint has put the logged blocks in place that this batch is the last of.
    pub(super) fn fill_waits(&mut self, op: OpId, batch: Sequence) {
        self.fills.push((op, batch));
    }

    /// A fill fails because drives that stay refuse logged blocks. It is tried again when they take them.
    pub(super) const fn fill_fails(&mut self) {
        self.for_fill = true;
        self.wanted = true;
    }

    /// True if a fill waits until drives take logged blocks.
    pub(super) const fn tries_for_fill(&self) -> bool {
        self.for_fill
    }

    /// A checkpoint has ended without a refusal.
    pub(super) const fn succeeded(&mut self) {
        self.for_fill = false;
    }

    /// Takes the fills that are to be planned again now: the checkpoint under way has put the blocks that it covers in
    /// place.
    pub(super) fn take_fills(&mut self) -> Vec<OpId> {
        let covers = self.running().covers;
        let fills = self.fills.extract_if(.., |(_, batch)| *batch <= covers);
        fills.map(|(op, _)| op).collect()
    }

    /// A column has returned with its drive and was not filled. The checkpoint under way does not write its blocks
    /// there; the next one does.
    pub(super) fn column_is_back(&mut self, group: GroupId, column: Column) {
        if let Some(running) = self.running.as_mut() {
            running.back.insert((group, column));
            self.wanted = true;
        }
    }

    /// A drive that stays in the pool has refused a write that all drives must have. The checkpoint under way ends
    /// here, and the tail stays where it is.
    pub(super) fn refuse(&mut self, cx: &mut Context, ios: &mut IoTable, pages: &mut PageCache) {
        let running = self.running();
        running.first = Sequence(0);
        if running.writes_pages() {
            // Some copies may be new and others old until these writes are durable: the next checkpoint writes all of
            // them again. The same holds if the flush that was to cover them has failed. A drive may have dropped its
            // cache, and would still report success for the next flush.
            let unsettled = std::mem::take(&mut running.pages);
            for &name in &unsettled {
                pages.unwritten(name);
            }
            self.forced.extend(unsettled);
        }
        let running = self.running();
        running.release_scratch(cx, ios);
        cx.epochs.leave(&mut running.epoch);
    }

    /// The checkpoint under way has ended.
    pub(super) fn end(&mut self) -> Ended {
        let running = self.running.take().expect("a checkpoint runs");
        self.covered = running.covers;
        let holds_back = running.first <= running.covers;
        Ended {
            covers: running.covers,
            first: running.first,
            waiters: running.waiters,
            in_the_way: running.room && holds_back && !running.late,
            progress: running.progress,
            no_effect: running.only_preserved && !running.relogged && !running.late,
            groups: running.groups,
        }
    }
}

impl Running {
    /// True while its pages are being laid out, written or flushed.
    const fn writes_pages(&self) -> bool {
        matches!(
            self.phase,
            Phase::Laying | Phase::Paging { .. } | Phase::Ordering { .. } | Phase::Settling
        )
    }

    /// What waits for it.
    pub(super) fn waiters(&self) -> &[CheckpointWaiter] {
        &self.waiters
    }

    /// The last batch that it covers.
    pub(super) const fn covers(&self) -> Sequence {
        self.covers
    }

    /// Preserved blocks have been logged again.
    pub(super) const fn relogged(&mut self) {
        self.relogged = true;
    }

    /// The flush has ended. If a drive that stays in the pool has failed it, the checkpoint ends here: no block is put
    /// in place before its record is durable, and the tail does not move past data that may be only in drives' caches.
    pub(super) fn flushed(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        outcome: Outcome,
    ) -> Next {
        match (&mut self.phase, outcome) {
            (_, Err(fault)) => Next::Refused(fault),
            (Phase::Flushing, Ok(())) => Next::Collect,
            (Phase::Ordering { second }, Ok(())) => {
                let second = std::mem::take(second);
                self.push_pages(cx, ios, &second, Vec::new())
            }
            (Phase::Settling, Ok(())) => Next::Durable,
            (Phase::Closing, Ok(())) => Next::End,
            (other, Ok(())) => unreachable!("no flush in {other:?}"),
        }
    }

    /// The records are durable: collects what is to be put in place. Returns the pages that must be in memory for that.
    pub(super) fn collect(
        &mut self,
        cx: &Context,
        overlay: &mut Overlay,
        pages: &PageCache,
    ) -> Vec<PageName> {
        let blocks = overlay.up_to(self.covers);
        let zeroed = overlay.zeroed_up_to(self.covers);
        let in_memory = |logged: &Logged| logged.bytes.memory().is_some();
        let pinned: BTreeSet<Sequence> = { blocks.iter().filter(|(_, logged)| in_memory(logged)) }
            .map(|(_, logged)| logged.sequence)
            .collect();
        for &sequence in &pinned {
            overlay.pin(sequence);
        }
        self.pages
            .extend(of_pages(&blocks).map(|same| same[0].0.page()));
        for &((group, stripe), _) in &zeroed {
            let names = cx.geometry.blocks_of_stripes(group, stripe..stripe.next());
            self.pages.extend(names.iter().map(|name| name.page()));
        }
        self.pages.extend(pages.dirty());
        self.read_for = preserved::pages_to_select_by(cx, &blocks);
        self.phase = Phase::Loading(Collected {
            blocks,
            zeroed,
            pinned,
        });
        self.pages.union(&self.read_for).copied().collect()
    }

    /// Drives that stay have failed to read a page. If this checkpoint needs the page, it ends here, and nothing has
    /// changed.
    pub(super) fn page_unread(
        &mut self,
        overlay: &mut Overlay,
        name: PageName,
        fault: Fault,
    ) -> Next {
        let Phase::Loading(collected) = &mut self.phase else {
            return Next::Wait;
        };
        if !self.pages.contains(&name) && !self.read_for.contains(&name) {
            return Next::Wait;
        }
        for sequence in std::mem::take(&mut collected.pinned) {
            overlay.unpin(sequence);
        }
        Next::Refused(fault)
    }

    /// Begins the installs if all pages that they need are in memory.
    pub(super) fn page_here(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        overlay: &Overlay,
        pages: &PageCache,
    ) -> Next {
        let Phase::Loading(collected) = &mut self.phase else {
            return Next::Wait;
        };
        let mut names = self.pages.iter().chain(&self.read_for);
        if !names.all(|&name| pages.contains(name)) {
            return Next::Wait;
        }
        let collected = std::mem::take(collected);
        self.install(cx, ios, overlay, collected)
    }

    /// The pool has decided about a drive.
    pub(super) fn judged(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        out: bool,
    ) -> Next {
        if out {
            self.refused.remove(&seat);
        }
        match &mut self.phase {
            Phase::Installing { writes, .. } => {
                writes.decided(seat, out);
                self.installs_ended()
            }
            Phase::Paging { writes, .. } => {
                writes.decided(seat, out);
                self.pages_ended()
            }
            Phase::Anchoring(writes) => {
                writes.decided(seat, out);
                self.anchors_ended(cx, ios)
            }
            _ => Next::Wait,
        }
    }

    /// The refusal of a write that all drives must have, by a drive that stays in the pool, if there is one.
    fn refusal(&self) -> Option<Next> {
        let fault = self.refused.values().next().copied();
        fault.map(Next::Refused)
    }

    fn release_scratch(&mut self, cx: &mut Context, ios: &mut IoTable) {
        if let Some(scratch) = self.scratch.take() {
            ios.release(cx, scratch);
        }
    }
}

fn page_slice(scratch: ScratchId, index: usize) -> Slice {
    Slice {
        buffer: BufferId::Scratch(scratch),
        offset: index as u64 * PAGE_BYTES,
        length: PAGE_BYTES,
    }
}

#[cfg(test)]
mod tests;
