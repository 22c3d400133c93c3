//! Putting what is logged in place, so that the ring's tail can move.
//!
//! ```text
//!   Flushing ─► Loading ─► Installing ─► Laying ─► Paging ─► Ordering ─► Paging ─► Settling ─► LayingAnchor ─► Anchoring ─► Closing ─► (end)
//!   (records)   (pages)    (blocks)      (pages,   (first    (flush)     (second   (flush)     (in memory)     (anchor)     (flush)
//!                                        in        turn)                 turn)        │
//!                                        memory)                                      └── the tail does not move ─► (end)
//! ```
//!
//! [`Checkpoints`] knows when one begins and what waits for it; [`Running`] is the one under way. It submits its writes, counts
//! them, and says what is next ([`Next`]); journal and pages are lent to it for the steps that go through them.
//!
//! Requests go on meanwhile. What they log is not part of this checkpoint.
//!
//! Invariants:
//! - Nothing is put in place before its record is durable.
//! - A block leaves the journal only when it and its entry are durable in their places.
//! - The tail does not move past anything that stays logged (`held_back`), nor if a drive that stays has refused a page or an
//!   anchor.

mod anchor;
mod install;
mod installs;
mod paging;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};

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
use crate::ScratchId;
use crate::action::{BufferId, Slice};
use crate::format::{BlockName, PAGE_BYTES, PageName};
use crate::plan::Transfer;
use crate::seeded::{self, SeededFault};

pub(super) use self::anchor::{lay_anchor, submit_anchor};

/// How long after the last batch a checkpoint begins by itself: what is in place costs nothing at
/// the next opening.
const IDLE: Duration = Duration::from_secs(1);

/// What a checkpoint is doing.
#[derive(Clone, Debug)]
enum Phase {
    /// The records of what it puts in place are flushed.
    Flushing,
    /// Pages are read.
    Loading(Collected),
    /// Blocks are on their way to their places.
    Installing {
        collected: Collected,
        installs: Installs,
        writes: Writes,
    },
    /// Its pages are being laid out in memory.
    Laying,
    /// Copies of pages are on their way to their places; those of the second turn are not.
    Paging {
        writes: Writes,
        second: Vec<Transfer>,
    },
    /// The first turn is flushed.
    Ordering { second: Vec<Transfer> },
    /// Blocks and pages are flushed.
    Settling,
    /// Its anchor is being laid out in memory.
    LayingAnchor,
    /// Its anchor is on its way to all drives.
    Anchoring(Writes),
    /// The anchor is flushed.
    Closing,
}

/// What a checkpoint puts in place.
#[derive(Clone, Debug, Default)]
struct Collected {
    blocks: Vec<(BlockName, Logged)>,
    /// Stripes that become unwritten, and since which batch.
    zeroed: Vec<((u64, u64), u64)>,
    /// Batches whose memory it reads.
    pinned: BTreeSet<u64>,
}

/// What the checkpoint under way does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before something that it waits for has ended.
    Wait,
    /// All that was written is flushed; then [`Running::flushed`].
    Flush,
    /// Its records are durable: [`Running::collect`].
    Collect,
    /// All installs have ended: [`Running::enter`], and then [`Running::write_pages`]. A drive that stays has refused some with
    /// this fault.
    Installed(Option<Fault>),
    /// All pages are written. When nothing is being logged again any more: [`Running::settle`], and then a flush.
    Settle,
    /// Blocks and pages are durable: [`Running::release`], and then perhaps an anchor.
    Durable,
    /// A drive that stays has refused what all must have: [`Checkpoints::refuse`], and then [`Checkpoints::end`].
    Refused(Fault),
    /// Its anchor is durable: [`Checkpoints::end`].
    End,
}

/// What waits for a checkpoint that begins from now on.
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
    /// The last batch that it was to put in place.
    pub(super) covers: u64,
    /// The oldest batch that still counts.
    pub(super) first: u64,
    pub(super) waiters: Vec<CheckpointWaiter>,
    /// It was there to make room, and what it has held back could have been logged again in time.
    pub(super) in_the_way: bool,
    /// It has put something in place, or found nothing to put there.
    pub(super) progress: bool,
}

impl Ended {
    /// True if something that it was to put in place stays logged.
    pub(super) const fn holds_back(&self) -> bool {
        self.first <= self.covers
    }
}

/// The checkpoint under way.
#[derive(Clone, Debug)]
pub(super) struct Running {
    phase: Phase,
    /// The last batch that this checkpoint puts in place.
    covers: u64,
    waiters: Vec<CheckpointWaiter>,
    /// An anchor is written in any case.
    anchor: bool,
    /// Blocks that a drive that stays did not take, and those that have no place: they stay logged.
    held_back: BTreeSet<BlockName>,
    /// Columns that came back with their drive while it ran: nothing was written there.
    back: BTreeSet<(u64, u16)>,
    /// Some blocks turned out to have no place when it was too late to log them again.
    late: bool,
    /// Blocks that were put in place, and are in memory until that is durable.
    installed: Vec<(BlockName, Logged)>,
    /// Drives that did not take a page or the anchor and have not gone out, and what they said.
    refused: BTreeMap<Seat, Fault>,
    /// Whether it is there to make room.
    room: bool,
    /// Whether it has put something in place, or found nothing to put there.
    progress: bool,
    /// The oldest batch that still counts when it has ended.
    first: u64,
    pages: BTreeSet<PageName>,
    /// Pages that are only read: preserved blocks are selected by them (`preserved.rs`).
    read_for: BTreeSet<PageName>,
    /// Those of `pages` that have not changed. Every place that counts has them; cells that are being filled, and
    /// successors of drives, lack them.
    unchanged: BTreeSet<PageName>,
    scratch: Option<ScratchId>,
    /// While it writes to cells that it knows of, they must not be given away.
    epoch: Option<Epoch>,
}

/// The checkpoint under way, and what the next one is for.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    running: Option<Running>,
    wanted: bool,
    waiters: Vec<CheckpointWaiter>,
    /// The next one writes an anchor though the tail may not have moved.
    anchor: bool,
    /// The last batch that a checkpoint has covered.
    covered: u64,
    /// When the last batch became complete.
    logged_at: Instant,
    /// Fills that would write where installs are in flight, or over what is not flushed.
    fills: Vec<OpId>,
    /// Pages to be written whether they have changed or not: a fill needs them at its target.
    forced: BTreeSet<PageName>,
}

impl Checkpoints {
    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.wanted
    }

    pub(super) const fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// True if one is wanted, and none is under way.
    pub(super) const fn waits(&self) -> bool {
        self.wanted && self.running.is_none()
    }

    /// What it does with pages. `anchor`: the newest one.
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

    /// Checks the one under way; batches up to `flushed` are durable.
    ///
    /// # Panics
    /// When something is put in place whose record is not.
    pub(super) fn check(&self, flushed: u64) {
        let Some(running) = &self.running else {
            return;
        };
        assert!(
            matches!(running.phase, Phase::Flushing) || running.covers <= flushed,
            "a checkpoint covers batches up to {}, and those up to {flushed} are flushed",
            running.covers
        );
    }

    /// Whether the one under way writes any page of a group.
    pub(super) fn writes_of(&self, group: u64) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.pages.iter().any(|name| name.group == group))
    }

    /// A batch is complete.
    pub(super) const fn logged(&mut self, now: Instant) {
        self.logged_at = now;
    }

    /// True if nothing has been logged for as long as makes a checkpoint begin by itself.
    pub(super) fn is_quiet(&self, now: Instant) -> bool {
        now.since(self.logged_at) >= IDLE
    }

    /// When one begins although nothing asks for it. `completed`: the last batch.
    pub(super) fn idle_at(&self, completed: u64) -> Option<Instant> {
        let behind = self.is_idle() && self.covered < completed;
        behind.then(|| self.logged_at + IDLE)
    }

    /// The first batch that none has covered.
    pub(super) const fn first_uncovered(&self) -> u64 {
        self.covered + 1
    }

    /// One should begin as soon as none is running.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// The same, and it writes an anchor.
    pub(super) const fn want_anchor(&mut self) {
        self.anchor = true;
        self.wanted = true;
    }

    /// One is awaited that begins from now on, and writes these pages.
    pub(super) fn await_next(
        &mut self,
        waiter: CheckpointWaiter,
        pages: impl IntoIterator<Item = PageName>,
    ) {
        self.waiters.push(waiter);
        self.forced.extend(pages);
        self.wanted = true;
    }

    /// Whether one begins now. `hindered`: a try would fail, as one before it did; then only what is awaited is tried.
    /// `log_waits`: something waits to be logged.
    pub(super) fn is_due(&mut self, hindered: bool, log_waits: bool) -> bool {
        if !self.waits() {
            return false;
        }
        if hindered && self.waiters.is_empty() {
            // With nothing that waits the next try is made when there is something.
            self.wanted = log_waits || !self.fills.is_empty();
            return false;
        }
        true
    }

    /// One begins, and covers batches up to this one. Its records are flushed first.
    pub(super) fn begin(&mut self, covers: u64) {
        self.wanted = false;
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
            first: 0,
            pages: std::mem::take(&mut self.forced),
            read_for: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            scratch: None,
            epoch: None,
        });
    }

    /// The one under way.
    pub(super) fn running(&mut self) -> &mut Running {
        self.running.as_mut().expect("a checkpoint runs")
    }

    /// The one under way, if one is.
    pub(super) const fn if_running(&mut self) -> Option<&mut Running> {
        self.running.as_mut()
    }

    /// Whether a fill must not write to a column now: an older version of one of its blocks may be on
    /// its way to the target, and come after the fill's. Then the fill is planned again when all
    /// are in place.
    pub(super) fn fill_must_wait(&mut self, op: OpId, group: u64, column: u16) -> bool {
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
            self.fills.push(op);
        }
        installing
    }

    /// A fill is planned again when one has put in place what is logged.
    pub(super) fn fill_waits(&mut self, op: OpId) {
        self.fills.push(op);
        self.wanted = true;
    }

    /// Fills that are planned again now.
    pub(super) fn take_fills(&mut self) -> Vec<OpId> {
        std::mem::take(&mut self.fills)
    }

    /// A column is where it was when its drive left, and was not filled: what the one under way puts in place it
    /// does not put there.
    pub(super) fn column_is_back(&mut self, group: u64, column: u16) {
        if let Some(running) = self.running.as_mut() {
            running.back.insert((group, column));
            self.wanted = true;
        }
    }

    /// A drive that stays has refused something that all must have: the one under way ends here, and the tail stays
    /// where it is.
    pub(super) fn refuse(&mut self, cx: &mut Context, ios: &mut IoTable, pages: &mut PageCache) {
        let running = self.running();
        running.first = 0;
        if running.writes_pages() {
            // No copy or some are new, and others stay old until these are durable: the next checkpoint writes all
            // of them. So it does when the flush fails that was to cover them: a drive may have dropped what it had in its cache,
            // and would take the next flush as if nothing had happened.
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

    /// The one under way has ended.
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
        }
    }
}

impl Running {
    /// Whether pages are on their way to their places.
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

    /// Whether it is there to make room.
    pub(super) const fn makes_room(&self) -> bool {
        self.room
    }

    /// What was written is flushed. If a drive that stays has failed the flush the checkpoint ends here: nothing is put in
    /// place before its record is durable, and the tail does not move past what may be in caches only.
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

    /// The records are durable: what is to be put in place? Returns pages that must be in memory for that.
    pub(super) fn collect(
        &mut self,
        cx: &Context,
        overlay: &mut Overlay,
        pages: &PageCache,
    ) -> Vec<PageName> {
        let blocks = overlay.up_to(self.covers);
        let zeroed = overlay.zeroed_up_to(self.covers);
        let in_memory = |logged: &Logged| logged.bytes.memory().is_some();
        let pinned: BTreeSet<u64> = { blocks.iter().filter(|(_, logged)| in_memory(logged)) }
            .map(|(_, logged)| logged.sequence)
            .collect();
        for &sequence in &pinned {
            overlay.pin(sequence);
        }
        self.pages
            .extend(of_pages(&blocks).map(|same| same[0].0.page()));
        for &((group, stripe), _) in &zeroed {
            let names = cx.geometry.blocks_of_stripes(group, stripe..stripe + 1);
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

    /// A page has come into memory, or all are there.
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

    /// What a drive that stays did not take, of what all must have.
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
