//! Putting what is logged in place, so that the ring's tail can move.
//!
//! ```text
//!   Flushing ─► Loading ─► Installing ─► Paging ─► Settling ─► Anchoring ─► Closing ─► (end)
//!   (records)   (pages)    (blocks)      (pages)   (flush)     (anchor)     (flush)
//! ```
//!
//! Requests go on meanwhile. What they log is not part of this checkpoint.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};

use super::flush::Waiter;
use super::op::Owner;
use super::overlay::Logged;
use super::writes::Writes;
use super::{Array, Computing, Purpose};
use crate::ScratchId;
use crate::action::{Action, BufferId, Compute, Event, IoKind, Slice};
use crate::format::{Anchor, BlockName, Entry, PAGE_BYTES, PageName};
use crate::plan::{Transfer, merge};
use crate::planted::{self, Bug};

/// Installs in flight. Enough to keep every drive of a wide pool busy.
const INSTALLS_MAX: u64 = 64;

/// How long after the last batch a checkpoint begins by itself: what is in place costs nothing at
/// the next opening.
const IDLE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Flushing,
    Loading,
    Installing,
    Paging,
    Settling,
    Anchoring,
    Closing,
}

/// Who waits for a checkpoint that begins from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanting {
    /// The pool.
    Pool,
    /// A job of this lane.
    Job(u64),
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
    queue: VecDeque<Transfer>,
    writes: Writes,
    /// Blocks that a drive that stays did not take, and those that have no place: they stay logged.
    stuck: BTreeSet<BlockName>,
    /// Whether it is there to make room.
    room: bool,
    /// The oldest batch that still counts when it has ended.
    first: u64,
    pages: BTreeSet<PageName>,
    scratch: Option<ScratchId>,
    /// What this phase writes has been laid out and begun.
    begun: bool,
    /// While it writes to cells that it knows of, they must not be given away.
    epoch: Option<u64>,
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
    fills: Vec<u64>,
    /// Pages to be written whether they have changed or not: a fill needs them at its target.
    forced: BTreeSet<PageName>,
}

impl Checkpoints {
    pub(super) const fn is_idle(&self) -> bool {
        self.running.is_none() && !self.wanted
    }
}

impl Array {
    pub(super) const fn checkpoint_is_running(&self) -> bool {
        self.checkpoints.running.is_some()
    }

    pub(super) const fn batch_completed(&mut self) {
        self.checkpoints.logged_at = self.now;
    }

    /// When a checkpoint begins although nothing asks for it.
    pub(super) fn idle_checkpoint_at(&self) -> Option<Instant> {
        let idle = self.checkpoints.is_idle() && self.recovery.is_none();
        let behind = self.checkpoints.covered < self.log.completed;
        (idle && behind).then(|| self.checkpoints.logged_at + IDLE)
    }

    pub(super) fn idle_checkpoint(&mut self) {
        if self.idle_checkpoint_at().is_some_and(|at| at <= self.now) {
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
        if self.geometry.store().is_some() {
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

    /// Pages that must not be dropped from memory.
    pub(super) fn checkpoint_pages(&self) -> BTreeSet<PageName> {
        let running = self.checkpoints.running.as_ref();
        running
            .map(|running| running.pages.clone())
            .unwrap_or_default()
    }

    pub(super) fn pump_checkpoint(&mut self) {
        if self.checkpoints.running.is_some() || !self.checkpoints.wanted {
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
            queue: VecDeque::new(),
            writes: Writes::default(),
            stuck: BTreeSet::new(),
            room: false,
            first: 0,
            pages: std::mem::take(&mut self.checkpoints.forced),
            scratch: None,
            begun: false,
            epoch: None,
        };
        self.checkpoints.running = Some(running);
        if planted::is(Bug::InstallEarly) || !self.begin_flush(Waiter::Checkpoint) {
            self.checkpoint_flushed();
        }
    }

    fn running(&mut self) -> &mut Running {
        self.checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs")
    }

    /// A flush of the checkpoint's has ended. A drive that failed it and stays has been reported;
    /// there is nothing that could be done without it.
    pub(super) fn checkpoint_flushed(&mut self) {
        match self.running().phase {
            Phase::Flushing => self.collect(),
            Phase::Settling => self.write_anchor(),
            Phase::Closing => self.close_checkpoint(),
            other => unreachable!("no flush in {other:?}"),
        }
    }

    /// The records are durable: what is to be put in place?
    fn collect(&mut self) {
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
            let names = self.names_of(group, stripe..stripe + 1);
            pages.extend(names.iter().map(|name| name.page()));
        }
        pages.extend(self.pages.dirty());
        let running = self.running();
        running.blocks = blocks;
        running.zeroed = zeroed;
        running.pinned = pinned;
        running.pages.extend(pages);
        running.phase = Phase::Loading;
        let pages: Vec<PageName> = running.pages.iter().copied().collect();
        for page in pages {
            // One that is nowhere but in memory is here at once, and may go on to `install`.
            if self.checkpoint_is_loading() {
                self.load_page(page);
            }
        }
        self.checkpoint_page_here();
    }

    fn checkpoint_is_loading(&self) -> bool {
        let running = self.checkpoints.running.as_ref();
        running.is_some_and(|running| running.phase == Phase::Loading)
    }

    /// A page has come into memory.
    pub(super) fn checkpoint_page_here(&mut self) {
        if self.checkpoint_is_loading() {
            let pages = &self.checkpoints.running.as_ref().expect("just seen").pages;
            if pages.iter().all(|&page| self.pages.contains(page)) {
                self.install();
            }
        }
    }

    fn install(&mut self) {
        let epoch = self.enter_present_epoch();
        let mut transfers = Vec::new();
        let running = self
            .checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs");
        running.epoch = Some(epoch);
        running.phase = Phase::Installing;
        // What has changed since is left to the next checkpoint: the newer record is complete, and
        // will have been flushed when this one's anchor is written.
        let overlay = &self.overlay;
        running.blocks.retain(|(name, logged)| {
            let now = overlay.get(*name);
            now.is_some_and(|now| now.sequence == logged.sequence)
        });
        for (name, logged) in &running.blocks {
            let Some(slice) = logged.bytes.memory() else {
                continue;
            };
            let column = self.view.column(&self.geometry, name.group, name.column);
            let cells = column.cells();
            let cells = cells.take(if planted::is(Bug::SkipFillTarget) {
                1
            } else {
                2
            });
            transfers.extend(cells.map(|cell| Transfer {
                seat: cell.seat,
                column: name.column,
                kind: IoKind::Write,
                offset: self.geometry.block_offset(cell, name.block.into()),
                length: slice.length,
                slice: Some(slice),
            }));
        }
        merge(&mut transfers);
        running.queue = transfers.into();
        self.pump_installs();
    }

    fn pump_installs(&mut self) {
        loop {
            let running = self
                .checkpoints
                .running
                .as_mut()
                .expect("a checkpoint runs");
            if running.writes.in_flight() >= INSTALLS_MAX {
                return;
            }
            let Some(transfer) = running.queue.pop_front() else {
                break;
            };
            if self.view.is_out(transfer.seat) {
                continue;
            }
            running.writes.begin();
            self.push_io(Purpose::Install { transfer }, |id| transfer.io(id));
        }
        self.installs_ended();
    }

    pub(super) fn install_written(&mut self, transfer: Transfer, outcome: Outcome) {
        self.checkpoint_wrote(transfer.seat, transfer.offset, outcome);
        if outcome.is_err() {
            let block = self.geometry.block_of(transfer.offset);
            let blocks = block..block + transfer.length / block::BLOCK_BYTES;
            let out = self.view.is_out(transfer.seat);
            let running = self.running();
            let hit = running.blocks.iter().filter(|(name, logged)| {
                name.column == transfer.column
                    && blocks.contains(&u64::from(name.block))
                    && logged.bytes.memory().is_some_and(|slice| {
                        transfer.slice.is_some_and(|all| all.buffer == slice.buffer)
                    })
            });
            let hit: Vec<BlockName> = hit.map(|&(name, _)| name).collect();
            if !out {
                running.stuck.extend(hit);
            }
        }
        self.pump_installs();
    }

    fn checkpoint_wrote(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        let out = self.view.is_out(seat);
        match outcome {
            Ok(()) => self.flushes.wrote(seat),
            Err(fault) if !out => self.report_fault(seat, IoKind::Write, offset, fault, true),
            Err(_) => {}
        }
        self.running().writes.ended(seat, outcome, out);
    }

    /// The pool has decided about a drive.
    pub(super) fn checkpoint_judged(&mut self, seat: Seat, out: bool) {
        let Some(running) = self.checkpoints.running.as_mut() else {
            return;
        };
        running.writes.decided(seat, out);
        match running.phase {
            Phase::Installing => self.installs_ended(),
            Phase::Paging => self.pages_ended(),
            Phase::Anchoring => self.anchors_ended(),
            _ => {}
        }
    }

    /// Whether a fill must not write to a column now: an older version of one of its blocks may be on
    /// its way to the target, and come after the fill's. Then the fill is planned again when all
    /// are in place.
    pub(super) fn fill_must_wait(&mut self, op: u64, group: u64, column: u16) -> bool {
        let installing = self.checkpoints.running.as_ref().is_some_and(|running| {
            !planted::is(Bug::FillDuringInstall)
                && running.phase == Phase::Installing
                && running.blocks.iter().any(|(name, logged)| {
                    (name.group, name.column) == (group, column) && logged.bytes.memory().is_some()
                })
        });
        if installing {
            self.checkpoints.fills.push(op);
        }
        installing
    }

    /// Whether a fill of a drive that catches up would write a block that is logged and not yet flushed. The
    /// power may go and take the batch with it: then what was there before counts again, by its entry the drive
    /// holds it, and it must not have been overwritten. So the fill is planned again when a checkpoint has put the
    /// block in place.
    pub(super) fn fill_is_hasty(&mut self, op: u64) -> bool {
        let Owner::Job(job) = self.ops[&op].owner else {
            return false;
        };
        if !self.jobs[&job].catches_up {
            return false;
        }
        let flushed = self.log.flushed;
        let hasty = self.written_blocks(&self.ops[&op]).iter().any(|(name, _)| {
            let logged = self.overlay.get(*name);
            logged.is_some_and(|logged| logged.sequence > flushed)
        });
        if hasty && let Some(fault) = self.log.stuck {
            // A drive that stays does not take what is logged: nobody knows until when.
            self.end(op, Err(fault));
        } else if hasty {
            self.checkpoints.fills.push(op);
            self.want_checkpoint();
        }
        hasty
    }

    fn installs_ended(&mut self) {
        let running = self
            .checkpoints
            .running
            .as_mut()
            .expect("a checkpoint runs");
        if running.phase != Phase::Installing
            || !running.queue.is_empty()
            || !running.writes.is_done()
        {
            return;
        }
        if running.writes.kept().is_empty() {
            // Whatever failed was on drives that are out now: it is not there to be missed.
            running.stuck.clear();
        }
        self.log.stuck = running.writes.kept().values().next().copied();
        let (blocks, zeroed) = (
            std::mem::take(&mut running.blocks),
            std::mem::take(&mut running.zeroed),
        );
        let forgotten = self.groups_forgotten();
        let room = self.log.wants_checkpoint()
            || self.overlay.bytes() >= self.batch_memory() / 2
            || !forgotten.is_empty();
        let kept = self.keep(&blocks, &forgotten, room);
        let running = self.running();
        running.stuck.extend(kept);
        running.room = room;
        let stuck = running.stuck.clone();
        let pinned = std::mem::take(&mut running.pinned);
        for (stripe, sequence) in zeroed {
            for name in self.names_of(stripe.0, stripe.1..stripe.1 + 1) {
                if !planted::is(Bug::TrimWithoutEntry) {
                    self.pages.set(name, Entry::UNWRITTEN);
                }
            }
            self.overlay.zeroes_installed(stripe, sequence);
        }
        for (name, logged) in blocks {
            if stuck.contains(&name) {
                continue;
            }
            // A block that nobody had may have been reconstructed meanwhile.
            let now = self.overlay.get(name);
            let entry = match now.filter(|now| now.sequence == logged.sequence) {
                Some(now) => now.entry,
                None => logged.entry,
            };
            self.pages.set(name, entry);
            self.overlay.installed(name, logged.sequence);
        }
        for sequence in pinned {
            self.overlay.unpin(sequence);
        }
        let fills = std::mem::take(&mut self.checkpoints.fills);
        self.runnable.extend(fills);
        self.relog_kept(room);
        self.write_pages();
    }

    /// Groups that those who wait for this checkpoint are about to make unwritten.
    fn groups_forgotten(&self) -> BTreeSet<u64> {
        let running = self.checkpoints.running.as_ref();
        let wanting = running.into_iter().flat_map(|running| &running.wanting);
        let groups = wanting.filter_map(|wanting| match *wanting {
            Wanting::Job(job) => self.zeroes(job),
            Wanting::Pool => None,
        });
        groups.collect()
    }

    /// What is kept may have been logged again.
    pub(super) fn checkpoint_relogged(&mut self) {
        if self.checkpoints.running.is_some() {
            self.pages_ended();
        }
    }

    fn write_pages(&mut self) {
        let store = *self.geometry.store().expect("a checkpoint needs a store");
        let running = self.running();
        running.phase = Phase::Paging;
        running.begun = running.pages.is_empty();
        let names: Vec<PageName> = running.pages.iter().copied().collect();
        let bytes = names.len() as u64 * PAGE_BYTES;
        if names.is_empty() {
            self.pages_ended();
            return;
        }
        let scratch = self.fresh_scratch();
        self.running().scratch = Some(scratch);
        self.actions.push_back(Action::Allocate(scratch, bytes));
        let mut work = Compute::default();
        for (index, &name) in names.iter().enumerate() {
            let page = self.pages.page(name).expect("the checkpoint keeps it here");
            work.puts.push((
                page_slice(scratch, index),
                page.encode(store.pool, name).into(),
            ));
            self.pages.written(name);
        }
        self.push_compute(Computing::Paged, work);
    }

    /// The pages are laid out in memory.
    pub(super) fn paged(&mut self) {
        let running = self
            .checkpoints
            .running
            .as_ref()
            .expect("a checkpoint runs");
        let scratch = running.scratch.expect("pages were laid out");
        let mut transfers = Vec::new();
        for (index, &name) in running.pages.iter().enumerate() {
            for (seat, offset) in self.page_places(name, false) {
                transfers.push(Transfer {
                    seat,
                    column: name.column,
                    kind: IoKind::Write,
                    offset,
                    length: PAGE_BYTES,
                    slice: Some(page_slice(scratch, index)),
                });
            }
        }
        merge(&mut transfers);
        for transfer in transfers {
            if self.view.is_out(transfer.seat) {
                continue;
            }
            self.running().writes.begin();
            let purpose = Purpose::PageWrite {
                seat: transfer.seat,
                offset: transfer.offset,
            };
            self.push_io(purpose, |id| transfer.io(id));
        }
        self.running().begun = true;
        self.pages_ended();
    }

    pub(super) fn page_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        if planted::is(Bug::AnchorBeforePages) && outcome.is_ok() {
            self.running().writes.ended(seat, outcome, false);
            self.pages_ended();
            return;
        }
        self.checkpoint_wrote(seat, offset, outcome);
        self.pages_ended();
    }

    fn pages_ended(&mut self) {
        let relogs = self.keeping.relogs();
        let running = self.running();
        if running.phase != Phase::Paging || !running.begun || !running.writes.is_done() || relogs {
            return;
        }
        running.phase = Phase::Settling;
        let epoch = running.epoch.take().expect("it has installed");
        if let Some(scratch) = running.scratch.take() {
            self.release(scratch);
        }
        self.leave(epoch);
        // What has changed or was logged again by now the flush covers; what does so from now on it need
        // not.
        let running = self.checkpoints.running.as_ref().expect("it runs");
        let logged = running
            .stuck
            .iter()
            .filter_map(|&name| self.overlay.get(name));
        let oldest = logged.map(|logged| logged.sequence).min();
        let first = oldest.unwrap_or(u64::MAX).min(running.covers + 1);
        self.running().first = first;
        if planted::is(Bug::AnchorBeforeBlocks) || !self.begin_flush(Waiter::Checkpoint) {
            self.write_anchor();
        }
    }

    /// Blocks and pages are durable: the log may begin later.
    fn write_anchor(&mut self) {
        let running = self.running();
        running.phase = Phase::Anchoring;
        running.begun = false;
        let (first, anyhow) = (running.first, running.anchor);
        if !anyhow && (self.log.ring.is_empty() || self.log.ring.is_oldest(first)) {
            // The tail has not moved.
            self.close_checkpoint();
            return;
        }
        self.push_anchor(first);
    }

    /// Writes an anchor to all drives that take part.
    pub(super) fn push_anchor(&mut self, first: u64) {
        let store = *self.geometry.store().expect("an anchor needs a store");
        self.log.anchor += 1;
        let anchor = Anchor {
            incarnation: self.log.incarnation,
            first,
            position: self.log.ring.position_of(first),
            inherited: self.log.inherited,
            number: self.log.anchor,
        };
        let scratch = self.fresh_scratch();
        self.actions
            .push_back(Action::Allocate(scratch, PAGE_BYTES));
        let work = Compute {
            puts: vec![(
                page_slice(scratch, 0),
                anchor.encode(store.pool, self.lane).into(),
            )],
            ..Compute::default()
        };
        self.push_compute(Computing::Anchor(scratch), work);
    }

    /// The anchor is laid out in memory.
    pub(super) fn anchor_laid(&mut self, scratch: ScratchId) {
        let store = *self.geometry.store().expect("an anchor needs a store");
        let copy = self.log.anchor % 2 * PAGE_BYTES;
        let offset = store.journal_offset + u64::from(self.lane) * store.ring_bytes + copy;
        let seats = self.live_seats();
        if let Some(running) = self.checkpoints.running.as_mut() {
            running.scratch = Some(scratch);
            running.begun = true;
            for _ in &seats {
                running.writes.begin();
            }
        } else {
            self.recovery_anchor_begins(scratch, &seats);
        }
        for seat in seats {
            let slice = page_slice(scratch, 0);
            self.push_slice(Purpose::Anchor { seat }, seat, IoKind::Write, offset, slice);
        }
    }

    pub(super) fn anchor_written(&mut self, seat: Seat, outcome: Outcome) {
        if self.checkpoints.running.is_some() {
            self.checkpoint_wrote(seat, 0, outcome);
            self.anchors_ended();
        } else {
            self.recovery_anchor_written(seat, outcome);
        }
    }

    fn anchors_ended(&mut self) {
        let running = self.running();
        if running.phase != Phase::Anchoring || !running.begun || !running.writes.is_done() {
            return;
        }
        running.phase = Phase::Closing;
        if let Some(scratch) = running.scratch.take() {
            self.release(scratch);
        }
        if !self.begin_flush(Waiter::Checkpoint) {
            self.close_checkpoint();
        }
    }

    /// The anchor is durable: the space before it can be used again.
    fn close_checkpoint(&mut self) {
        let running = self.checkpoints.running.take().expect("a checkpoint runs");
        let held_back = running.first <= running.covers;
        self.checkpoints.covered = running.covers;
        self.log.ring.release_before(running.first);
        if running.covers == self.log.completed && !held_back {
            self.log.blocked = false;
        }
        self.kept_in_the_way(running.room && held_back);
        for wanting in running.wanting {
            if let Wanting::Job(job) = wanting
                && held_back
                && self.log.stuck.is_none()
                && self.zeroes(job).is_some()
            {
                // The group's earlier life is still in the ring, behind what is kept.
                self.let_kept_go();
                self.await_checkpoint(wanting, []);
                continue;
            }
            match wanting {
                Wanting::Pool => self
                    .events
                    .push_back(Event::Checkpointed { lane: self.lane }),
                Wanting::Job(job) => self.job_checkpointed(job),
            }
        }
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
