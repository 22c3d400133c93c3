//! Putting what is logged in place, so that the ring's tail can move.
//!
//! ```text
//!   Flushing ─► Loading ─► Installing ─► Paging ─► Ordering ─► Paging ─► Settling ─► Anchoring ─► Closing ─► (end)
//!   (records)   (pages)    (blocks)      (first    (flush)     (second   (flush)     (anchor)     (flush)
//!                                        turn)                 turn)
//! ```
//!
//! Requests go on meanwhile. What they log is not part of this checkpoint.

mod anchor;
mod install;
mod installs;
mod paging;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};

use self::installs::Installs;
use super::Lane;
use super::backoff::Work;
use super::epochs::Epoch;
use super::flush::Waiter;
use super::ids::{JobId, OpId};
use super::overlay::Logged;
use super::pages::CheckpointPages;
use super::preserved;
use super::writes::Writes;
use crate::ScratchId;
use crate::action::{BufferId, Slice};
use crate::format::{BlockName, PAGE_BYTES, PageName};
use crate::plan::Transfer;
use crate::seeded::{self, Bug};

/// How long after the last batch a checkpoint begins by itself: what is in place costs nothing at
/// the next opening.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flushing,
    Loading,
    Installing,
    Paging,
    Ordering,
    Settling,
    Anchoring,
    Closing,
}

impl Phase {
    /// Whether pages are on their way to their places.
    const fn writes_pages(self) -> bool {
        matches!(self, Self::Paging | Self::Ordering | Self::Settling)
    }
}

/// Who waits for a checkpoint that begins from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanting {
    /// The pool.
    Pool,
    /// A job of this lane.
    Job(JobId),
}

#[derive(Clone, Debug)]
struct Running {
    phase: Phase,
    /// The last batch that this checkpoint puts in place.
    covers: u64,
    wanting: Vec<Wanting>,
    /// An anchor is written in any case.
    anchor: bool,
    blocks: Vec<(BlockName, Logged)>,
    zeroed: Vec<((u64, u64), u64)>,
    pinned: BTreeSet<u64>,
    installs: Installs,
    /// Copies of pages for the second turn.
    queue: VecDeque<Transfer>,
    writes: Writes,
    /// Blocks that a drive that stays did not take, and those that have no place: they stay logged.
    stuck: BTreeSet<BlockName>,
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
    /// What this phase writes has been laid out and begun.
    begun: bool,
    /// While it writes to cells that it knows of, they must not be given away.
    epoch: Option<Epoch>,
}

/// The checkpoint under way, and what the next one is for.
#[derive(Clone, Debug, Default)]
pub(super) struct Checkpoints {
    running: Option<Running>,
    wanted: bool,
    wanting: Vec<Wanting>,
    /// The next one writes an anchor though the tail may not have moved.
    anchor: bool,
    /// The last batch that a checkpoint has covered.
    covered: u64,
    /// When the last batch became complete.
    logged_at: Instant,
    /// Fills that would write where installs are in flight.
    fills: Vec<OpId>,
    /// Pages to be written whether they have changed or not: a fill needs them at its target.
    forced: BTreeSet<PageName>,
}

impl Checkpoints {
    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.wanted
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
                on_their_way: running.phase.writes_pages(),
            },
        }
    }

    /// Whether the running checkpoint writes any page of a group.
    pub(super) fn writes_of(&self, group: u64) -> bool {
        let running = self.running.as_ref();
        running.is_some_and(|running| running.pages.iter().any(|name| name.group == group))
    }
}

impl Lane {
    pub(super) const fn checkpoint_is_running(&self) -> bool {
        self.checkpoints.running.is_some()
    }

    pub(super) const fn batch_completed(&mut self) {
        self.checkpoints.logged_at = self.cx.now;
    }

    /// When a checkpoint begins although nothing asks for it.
    pub(super) fn idle_checkpoint_at(&self) -> Option<Instant> {
        let idle = self.checkpoints.is_idle() && self.recovery.is_none() && !self.has_gaps();
        let behind = self.checkpoints.covered < self.log.completed;
        let at = self.checkpoints.logged_at + IDLE;
        (idle && behind).then(|| {
            self.retries
                .checkpoints_wait_until()
                .map_or(at, |until| until.max(at))
        })
    }

    pub(super) fn idle_checkpoint(&mut self) {
        if self
            .idle_checkpoint_at()
            .is_some_and(|at| at <= self.cx.now)
        {
            self.want_checkpoint();
        }
    }

    /// A checkpoint should begin as soon as none is running.
    pub(super) fn want_checkpoint(&mut self) {
        self.checkpoints.wanted = true;
    }

    /// A drive has everything: its own anchor must say so, or what it was filled with does not count should
    /// it go and come back before more is logged.
    pub(super) fn want_anchor(&mut self) {
        if self.cx.geometry.store().is_some() {
            self.checkpoints.anchor = true;
            self.want_checkpoint();
        }
    }

    /// A checkpoint for somebody who waits for it, with pages that must be written.
    pub(super) fn await_checkpoint(
        &mut self,
        wanting: Wanting,
        pages: impl IntoIterator<Item = PageName>,
    ) {
        self.checkpoints.wanting.push(wanting);
        self.checkpoints.forced.extend(pages);
        self.want_checkpoint();
    }

    pub(super) fn pump_checkpoint(&mut self) {
        if self.checkpoints.running.is_some() || !self.checkpoints.wanted {
            return;
        }
        if self.has_gaps() {
            if self.checkpoints.wanting.is_empty() {
                self.checkpoints.wanted = self.log.waits() || !self.checkpoints.fills.is_empty();
                return;
            }
            // Whoever waits for this one hears in any case how the next try has ended.
            if self.fill_gaps_for_checkpoint() {
                return;
            }
        }
        if self.checkpoints.wanting.is_empty() && self.retries.checkpoints_wait(self.cx.now) {
            // With nothing that waits the next try is made when there is something.
            self.checkpoints.wanted = self.log.waits() || !self.checkpoints.fills.is_empty();
            return;
        }
        self.checkpoints.wanted = false;
        let running = Running {
            phase: Phase::Flushing,
            covers: self.log.completed,
            wanting: std::mem::take(&mut self.checkpoints.wanting),
            anchor: std::mem::take(&mut self.checkpoints.anchor),
            blocks: Vec::new(),
            zeroed: Vec::new(),
            pinned: BTreeSet::new(),
            installs: Installs::default(),
            queue: VecDeque::new(),
            writes: Writes::default(),
            stuck: BTreeSet::new(),
            back: BTreeSet::new(),
            late: false,
            installed: Vec::new(),
            refused: BTreeMap::new(),
            room: false,
            progress: false,
            first: 0,
            pages: std::mem::take(&mut self.checkpoints.forced),
            read_for: BTreeSet::new(),
            unchanged: BTreeSet::new(),
            scratch: None,
            begun: false,
            epoch: None,
        };
        self.checkpoints.running = Some(running);
        if seeded::is(Bug::InstallEarly) || !self.begin_flush(Waiter::Checkpoint) {
            self.checkpoint_flushed(Ok(()));
        }
    }

    fn running(&mut self) -> &mut Running {
        self.checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs")
    }

    /// A flush of the checkpoint's has ended. If a drive that stays has failed it the checkpoint ends here:
    /// nothing is put in place before its record is durable, and the tail does not move past what may
    /// be in caches only.
    pub(super) fn checkpoint_flushed(&mut self, outcome: Result<(), Fault>) {
        if let Err(fault) = outcome {
            self.checkpoint_refused(fault);
            return;
        }
        match self.running().phase {
            Phase::Flushing => self.collect(),
            Phase::Ordering => self.second_turn(),
            Phase::Settling => self.write_anchor(),
            Phase::Closing => self.end_checkpoint(None),
            other => unreachable!("no flush in {other:?}"),
        }
    }

    /// A drive that stays has refused something that all must have: the checkpoint ends here, and the tail stays
    /// where it is.
    fn checkpoint_refused(&mut self, fault: Fault) {
        self.log.stuck = Some(fault);
        let running = self.running();
        running.first = 0;
        let pages = matches!(running.phase, Phase::Paging | Phase::Ordering);
        let (scratch, mut epoch) = (running.scratch.take(), running.epoch.take());
        if pages {
            // No copy or some are new, and others stay old until these are durable: the next checkpoint writes all
            // of them.
            let pages = std::mem::take(&mut running.pages);
            for &name in &pages {
                self.pages.unwritten(name);
            }
            self.checkpoints.forced.extend(pages);
        }
        scratch
            .into_iter()
            .for_each(|scratch| self.ios.release(&mut self.cx, scratch));
        self.cx.epochs.leave(&mut epoch);
        self.end_checkpoint(Some(fault));
    }

    /// What a drive that stays did not take, of what it was last asked.
    fn refused(&mut self) -> Option<Fault> {
        self.running().refused.values().next().copied()
    }

    /// The records are durable: what is to be put in place?
    fn collect(&mut self) {
        if let Some(fault) = self.gap_fault() {
            // Something newer than what is durable is in memory in its place.
            self.checkpoint_refused(fault);
            return;
        }
        let covers = self.running().covers;
        let blocks = self.overlay.up_to(covers);
        let zeroed = self.overlay.zeroed_up_to(covers);
        let pinned: BTreeSet<u64> = blocks
            .iter()
            .filter(|(_, logged)| logged.bytes.memory().is_some())
            .map(|(_, logged)| logged.sequence)
            .collect();
        for &sequence in &pinned {
            self.overlay.pin(sequence);
        }
        let mut pages: BTreeSet<PageName> = blocks.iter().map(|(name, _)| name.page()).collect();
        for &((group, stripe), _) in &zeroed {
            let names = self
                .cx
                .geometry
                .blocks_of_stripes(group, stripe..stripe + 1);
            pages.extend(names.iter().map(|name| name.page()));
        }
        pages.extend(self.pages.dirty());
        let beside = preserved::pages_to_select_by(&self.cx, &blocks);
        let running = self.running();
        running.blocks = blocks;
        running.zeroed = zeroed;
        running.pinned = pinned;
        running.pages.extend(pages);
        running.read_for = beside;
        running.phase = Phase::Loading;
        let pages: Vec<PageName> = running.pages.union(&running.read_for).copied().collect();
        self.load_pages(pages);
        self.checkpoint_page_here();
    }

    fn checkpoint_is_loading(&self) -> bool {
        let running = self.checkpoints.running.as_ref();
        running.is_some_and(|running| running.phase == Phase::Loading)
    }

    /// A page has come into memory.
    pub(super) fn checkpoint_page_here(&mut self) {
        if self.checkpoint_is_loading() {
            let running = self.checkpoints.running.as_ref().expect("just seen");
            let mut pages = running.pages.iter().chain(&running.read_for);
            if pages.all(|&page| self.pages.contains(page)) {
                self.install();
            }
        }
    }

    /// The same for what all drives must have.
    fn checkpoint_wrote_to_all(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        if let (Err(fault), false) = (outcome, self.cx.view().is_out(seat)) {
            self.running().refused.insert(seat, fault);
        }
        self.checkpoint_wrote(seat, offset, outcome);
    }

    fn checkpoint_wrote(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        self.running().writes.ended(seat, outcome, out);
    }

    /// A column is where it was when its drive left, and was not filled: what the running checkpoint puts in place it
    /// does not put there.
    pub(super) fn column_is_back(&mut self, group: u64, column: u16) {
        if let Some(running) = self.checkpoints.running.as_mut() {
            running.back.insert((group, column));
            self.want_checkpoint();
        }
    }

    /// The pool has decided about a drive.
    pub(super) fn checkpoint_judged(&mut self, seat: Seat, out: bool) {
        let Some(running) = self.checkpoints.running.as_mut() else {
            return;
        };
        running.writes.decided(seat, out);
        if out {
            running.refused.remove(&seat);
        }
        match running.phase {
            Phase::Installing => self.installs_ended(),
            Phase::Paging => self.pages_ended(),
            Phase::Anchoring => self.anchors_ended(),
            _ => {}
        }
    }

    /// The anchor is durable, so that the space before it can be used again; or a flush has failed.
    fn end_checkpoint(&mut self, unflushed: Option<Fault>) {
        let running = self.checkpoints.running.take().expect("a checkpoint runs");
        self.log.gaps_tried = false;
        self.forget_nowhere(None);
        let held_back = running.first <= running.covers;
        self.checkpoints.covered = running.covers;
        self.log.ring.release_before(running.first);
        if running.covers == self.log.completed && !held_back {
            self.log.blocked = false;
        }
        // Where no drive is there nothing is logged, whatever is released.
        let full = self.log.crowded && !self.cx.live_seats().is_empty();
        let in_the_way = running.room && held_back && !running.late && full;
        self.preserved.checkpoint_ended(in_the_way);
        let refused = unflushed.or(self.log.stuck.filter(|_| !running.progress));
        match refused {
            Some(fault) => {
                self.retries.failed(&mut self.cx, Work::Checkpoint, fault);
                if self.log.blocked || self.log.crowded {
                    self.refuse_with(fault);
                }
            }
            None => self.retries.succeeded(&mut self.cx, Work::Checkpoint),
        }
        for wanting in running.wanting {
            if let Wanting::Job(job) = wanting
                && held_back
                && self.log.stuck.is_none()
                && self.jobs.zeroes(job).is_some()
            {
                // The group's earlier life is still in the ring, behind what is preserved.
                self.preserved.release();
                self.await_checkpoint(wanting, []);
                continue;
            }
            match wanting {
                Wanting::Pool => self.discards.report_checkpointed(&mut self.cx),
                Wanting::Job(job) => self.job_checkpointed(job),
            }
        }
        self.discard_after_checkpoint(refused.is_none() && !held_back);
    }

    /// Whether nothing has been logged for as long as makes a checkpoint begin by itself.
    pub(super) fn logs_nothing_lately(&self) -> bool {
        self.cx.now.since(self.checkpoints.logged_at) >= IDLE
    }

    /// Whether the ring has only what no checkpoint has covered.
    pub(super) fn ring_is_checkpointed(&self) -> bool {
        self.log.ring.is_oldest(self.checkpoints.covered + 1)
    }

    /// True if a checkpoint is to begin when its wait is over.
    pub(super) const fn checkpoint_waits(&self) -> bool {
        self.checkpoints.wanted && self.checkpoints.running.is_none()
    }

    /// What a job that waits for a checkpoint is told if the lane's drives fail it.
    pub(super) const fn checkpoint_fault(&self) -> Option<Fault> {
        self.log.stuck
    }
}

fn page_slice(scratch: ScratchId, index: usize) -> Slice {
    Slice {
        buffer: BufferId::Scratch(scratch),
        offset: index as u64 * PAGE_BYTES,
        length: PAGE_BYTES,
    }
}
