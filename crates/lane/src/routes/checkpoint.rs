//! Routes for the checkpoint under way: what it needs of log, journal, pages and preserved blocks, and the consequences
//! for them.

use std::collections::BTreeSet;

use block::{BLOCK_BYTES, Fault, Instant, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{GroupId, Sequence};
use plan::action::Event;
use plan::{ScratchId, Transfer};

use crate::backoff::Work;
use crate::checkpoint::{CheckpointWaiter, Conditions, Next, lay_anchor, submit_anchor};
use crate::entries::Entries;
use crate::flush::Waiter;
use crate::ids::OpId;
use crate::log::batch_memory;
use crate::op::{Op, Owner, Task};
use crate::{Lane, records};

impl Lane {
    /// Requests an anchor. A drive that has been filled needs an anchor of its own; otherwise its content does not
    /// count if it leaves and returns before more is logged.
    pub(crate) fn want_anchor(&mut self) {
        if self.cx.geometry.regions().is_some() {
            self.checkpoints.want_anchor();
        }
    }

    /// When a checkpoint begins that nothing has requested.
    pub(crate) fn idle_checkpoint_at(&self) -> Option<Instant> {
        if self.recovery.is_some() || self.log.has_gaps() {
            return None;
        }
        let at = self.checkpoints.idle_at(self.log.completed())?;
        Some(at.max(self.retries.checkpoints_wait_until().unwrap_or(at)))
    }

    pub(crate) fn idle_checkpoint(&mut self) {
        if self
            .idle_checkpoint_at()
            .is_some_and(|at| at <= self.cx.now)
        {
            self.checkpoints.want();
        }
    }

    /// Begins the next checkpoint, if one is requested and none is under way.
    pub(crate) fn pump_checkpoint(&mut self) {
        let hindered = self.log.has_gaps() || self.retries.checkpoints_wait(self.cx.now);
        let (log_waits, completed) = (self.log.waits(), self.log.completed());
        if !self.checkpoints.is_due(hindered, log_waits, completed) {
            return;
        }
        // A checkpoint that something waits for is tried in any case: its waiters get the outcome.
        if self.log.has_gaps() && self.fill_gaps_for_checkpoint() {
            return;
        }
        self.checkpoints.begin(self.log.completed());
        self.room.covers_ended();
        if seeded::is(SeededFault::InstallEarly) {
            self.checkpoint_flushed(Ok(()));
        } else {
            self.checkpoint_goes_on(Next::Flush);
        }
    }

    /// Performs the next step of the checkpoint under way.
    pub(crate) fn checkpoint_goes_on(&mut self, next: Next) {
        match next {
            Next::Wait => {}
            Next::Flush => {
                if !self.begin_flush(Waiter::Checkpoint) {
                    self.checkpoint_flushed(Ok(()));
                }
            }
            Next::Collect => self.collect(),
            Next::Installed(refused) => self.blocks_installed(refused),
            // The tail moves only when the preserved blocks that are being logged again count.
            Next::Settle if self.preserved.relogs() => {}
            Next::Settle => {
                let running = self.checkpoints.running();
                running.settle(&mut self.cx, &mut self.ios, &self.overlay);
                match seeded::is(SeededFault::AnchorBeforeBlocks) {
                    true => self.checkpoint_flushed(Ok(())),
                    false => self.checkpoint_goes_on(Next::Flush),
                }
            }
            Next::Durable => self.blocks_durable(),
            Next::Refused(fault) => self.checkpoint_refused(fault),
            Next::End => self.end_checkpoint(None),
        }
    }

    /// A flush of the checkpoint has ended.
    pub(crate) fn checkpoint_flushed(&mut self, outcome: Outcome) {
        let running = self.checkpoints.running();
        let next = running.flushed(&mut self.cx, &mut self.ios, outcome);
        self.checkpoint_goes_on(next);
    }

    /// The records are durable: reads the pages that their blocks need.
    fn collect(&mut self) {
        if let Some(fault) = self.log.gap_fault() {
            // In place of durable records, newer ones that are not durable are in memory.
            self.checkpoint_refused(fault);
            return;
        }
        let running = self.checkpoints.running();
        let pages = running.collect(&self.cx, &mut self.overlay, &self.pages);
        self.load_pages(pages);
        self.checkpoint_page_here();
    }

    /// A page has come into memory.
    pub(crate) fn checkpoint_page_here(&mut self) {
        if let Some(running) = self.checkpoints.if_running() {
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            let next = running.page_here(cx, ios, &self.overlay, &self.pages);
            self.checkpoint_goes_on(next);
        }
    }

    pub(crate) fn install_written(&mut self, transfer: &Transfer, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let (seat, offset) = (transfer.seat, transfer.offset);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        let running = self.checkpoints.running();
        let next = running.install_written(cx, ios, transfer, outcome, out);
        self.checkpoint_goes_on(next);
    }

    /// All installs have ended: updates the entries, and preserves blocks that have no place, or logs them again.
    fn blocks_installed(&mut self, refused: Option<Fault>) {
        self.log.installs_ended(refused);
        let forgotten = self.groups_forgotten();
        let room = self.log.wants_checkpoint(&self.cx, &self.overlay) || !forgotten.is_empty();
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let running = self.checkpoints.running();
        let (cx, blocks) = (&self.cx, running.blocks());
        let preserved = { &mut self.preserved }.select(cx, entries, blocks, &forgotten);
        let (overlay, pages) = (&mut self.overlay, &mut self.pages);
        let emptied = running.enter(&self.cx, overlay, pages, preserved, room);
        self.discards.made_unwritten(emptied);
        self.ops.run_all(self.checkpoints.take_fills());
        // While drives that stay refuse blocks, the tail does not move, whatever is logged again.
        if refused.is_none() {
            let for_room = !forgotten.is_empty() || self.relog_makes_room();
            self.relog_preserved(for_room);
        }
        let running = self.checkpoints.running();
        let next = running.write_pages(&mut self.cx, &mut self.pages);
        self.checkpoint_goes_on(next);
    }

    /// Blocks and pages are durable: the journal need not hold them any more, and the tail moves if it can.
    fn blocks_durable(&mut self) {
        if let Some(fault) = self.log.gap_fault() {
            // Blocks that a newer record has superseded were left out, and that record is not durable.
            self.checkpoint_refused(fault);
            return;
        }
        let running = self.checkpoints.running();
        let installed = running.take_installed();
        let forgotten = self.groups_forgotten();
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let kept = { &mut self.preserved }.select_more(&self.cx, entries, &installed, &forgotten);
        let running = self.checkpoints.running();
        let (overlay, pages) = (&mut self.overlay, &mut self.pages);
        let first = running.release(&self.cx, overlay, pages, &installed, kept);
        let ring = self.log.ring();
        let moves = !ring.is_empty() && !ring.is_oldest(first);
        if running.begin_anchor(moves) {
            self.push_anchor(first);
        } else {
            self.end_checkpoint(None);
        }
    }

    /// Writes an anchor to all drives in use: the log begins with batch `first`.
    pub(crate) fn push_anchor(&mut self, first: Sequence) {
        let anchor = self.log.next_anchor(first);
        lay_anchor(&mut self.cx, &anchor);
    }

    /// The anchor is laid out in memory.
    pub(crate) fn anchor_laid(&mut self, scratch: ScratchId) {
        let drives = submit_anchor(&mut self.cx, &mut self.ios, self.log.anchor(), scratch);
        if let Some(running) = self.checkpoints.if_running() {
            let next = running.anchor_submitted(scratch, drives);
            self.checkpoint_goes_on(next);
        } else {
            self.recovery_anchor_submitted(scratch, drives);
        }
    }

    pub(crate) fn anchor_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        if let Some(running) = self.checkpoints.if_running() {
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
            let next = running.anchor_written(cx, ios, seat, outcome, out);
            self.checkpoint_goes_on(next);
        } else {
            self.recovery_written(seat, offset, outcome);
        }
    }

    /// The checkpoint's pages are laid out in memory.
    pub(crate) fn paged(&mut self) {
        let running = self.checkpoints.running();
        let next = running.paged(&mut self.cx, &mut self.ios, &self.pages);
        self.checkpoint_goes_on(next);
    }

    pub(crate) fn page_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let unflushed = seeded::is(SeededFault::AnchorBeforePages) && outcome.is_ok();
        let out = !unflushed && self.flushes.write_ended(cx, ios, seat, offset, outcome);
        let next = { self.checkpoints.running() }.page_written(seat, outcome, out);
        self.checkpoint_goes_on(next);
    }

    /// An operation that logs preserved blocks again has ended.
    pub(crate) fn relogged(&mut self, outcome: Outcome) {
        self.preserved.relogged();
        if let Some(running) = self.checkpoints.if_running() {
            if outcome.is_ok() {
                running.relogged();
            }
            let next = running.pages_ended();
            self.checkpoint_goes_on(next);
        }
    }

    /// The pool has decided about a drive.
    pub(crate) fn checkpoint_judged(&mut self, seat: Seat, out: bool) {
        if let Some(running) = self.checkpoints.if_running() {
            let next = running.judged(&mut self.cx, &mut self.ios, seat, out);
            self.checkpoint_goes_on(next);
        }
    }

    /// Tries what drives that stay have refused.
    pub(crate) fn try_again(&mut self) {
        if self.retries.is_stalled() {
            self.retries.end_waits();
            self.checkpoints.want();
        }
    }

    /// A drive that stays has refused a write that is needed on all drives.
    fn checkpoint_refused(&mut self, fault: Fault) {
        self.log.installs_ended(Some(fault));
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.checkpoints.refuse(cx, ios, &mut self.pages);
        self.end_checkpoint(Some(fault));
    }

    /// The anchor is durable, so the space before it can be used again; or a drive has refused a write.
    fn end_checkpoint(&mut self, refused: Option<Fault>) {
        let ended = self.checkpoints.end();
        if !ended.groups.is_empty() && refused.is_none() {
            let groups = ended.groups.iter().copied().collect();
            self.cx.events.push_back(Event::GroupsChanged(groups));
        }
        self.forget_nowhere(None);
        let holds_back = ended.holds_back();
        self.log.checkpoint_ended(ended.first);
        if refused.is_none() && !self.log.has_gaps() {
            self.journal_begins_at(ended.first);
        }
        let refused = refused.or(self.log.tail_fault().filter(|_| !ended.progress));
        // Without drives, or while drives that stay refuse the blocks, nothing is logged, whatever is released.
        let tries = refused.is_none() && !self.cx.live_seats().is_empty();
        let full = self.log.is_out_of_space() && tries;
        let most = self.relogged_at_most();
        { &mut self.preserved }.checkpoint_ended(ended.in_the_way && full, most);
        if refused.is_none() && ended.no_effect && !self.preserved.releases() {
            self.checkpoints.had_no_effect(self.conditions());
        }
        match refused {
            Some(fault) => {
                self.retries.failed(&mut self.cx, Work::Checkpoint, fault);
                if self.log.needs_checkpoint() {
                    self.refuse_with(fault);
                }
                if self.checkpoints.tries_for_fill() {
                    self.checkpoints.want();
                }
            }
            None => {
                self.checkpoints.succeeded();
                self.retries.succeeded(&mut self.cx, Work::Checkpoint);
                // Batches that drives have refused are not needed any more. If nothing is written, none shows it.
                if !self.log.has_gaps() && !self.log.is_blocked() {
                    self.retries.succeeded(&mut self.cx, Work::Batch);
                }
            }
        }
        for waiter in ended.waiters {
            match waiter {
                CheckpointWaiter::Pool => {
                    let empty = refused.is_none() && self.log.ring().is_empty();
                    if empty && !self.log.has_gaps() && self.preserved.is_empty() {
                        let lane = self.cx.lane;
                        self.cx.events.push_back(Event::JournalEmpty { lane });
                    }
                    self.discards.report_checkpointed(&mut self.cx);
                }
                CheckpointWaiter::Job(job)
                    if holds_back
                        && self.log.tail_fault().is_none()
                        && self.jobs.zeroes(job).is_some() =>
                {
                    // Records of the group from before it is made blank are still in the ring, behind preserved blocks.
                    if self.preserved.locked().next().is_some() {
                        self.refuse_lock_holders();
                    } else {
                        self.preserved.release();
                    }
                    self.checkpoints.await_next(waiter, []);
                }
                CheckpointWaiter::Job(job) => self.job_checkpointed(job),
            }
        }
        let whole = refused.is_none() && !holds_back;
        self.room.checkpoint_ended(&mut self.cx, whole);
        self.discard_after_checkpoint(whole);
    }

    /// True if the ring has only batches that no checkpoint has covered.
    pub(crate) fn ring_is_checkpointed(&self) -> bool {
        let first = self.checkpoints.first_uncovered();
        self.log.ring().is_oldest(first)
    }

    /// Groups that jobs are about to make blank, and that wait for this checkpoint.
    fn groups_forgotten(&mut self) -> BTreeSet<GroupId> {
        let running = self.checkpoints.running();
        let groups = running.waiters().iter().filter_map(|waiter| match *waiter {
            CheckpointWaiter::Job(job) => self.jobs.zeroes(job),
            CheckpointWaiter::Pool => None,
        });
        groups.collect()
    }

    /// What decides whether a checkpoint helps that only has preserved blocks to put in place.
    pub(crate) const fn conditions(&self) -> Conditions {
        Conditions {
            view_changes: self.cx.view_changes(),
            out_of_space: self.log.is_out_of_space(),
        }
    }

    /// The number of blocks that can be logged again at once: no more than a part of ring and memory.
    fn relogged_at_most(&self) -> usize {
        let ring = self.log.ring().batch_blocks_max();
        let memory = batch_memory(&self.cx) / BLOCK_BYTES / 8;
        usize::try_from(ring.min(memory)).expect("a ring fits into memory")
    }

    /// True if the log wants room, and has more of it when the preserved blocks have been logged again.
    fn relog_makes_room(&mut self) -> bool {
        if !self.log.wants_room(&self.cx, &self.overlay) {
            return false;
        }
        let covers = self.checkpoints.running().covers();
        let Some(oldest) = self.preserved.oldest(&self.overlay) else {
            return false;
        };
        let (count, range) = (self.preserved.len(), (oldest, covers));
        { &self.log }.gains_by_relog(&self.cx, &self.overlay, count, range)
    }

    /// Logs those preserved blocks again that must be: all of them if that makes `room`.
    fn relog_preserved(&mut self, room: bool) {
        if let Some(last) = self.log.blocked() {
            self.preserved.log_again_up_to(last);
        }
        let ops = &self.ops;
        let is_free = |group, stripe| ops.is_free(group, stripe);
        for relog in { &mut self.preserved }.relog(&self.cx, &self.overlay, room, is_free) {
            let stripes = relog.stripe..relog.stripe.next();
            let task = Task::Relog(relog.names);
            self.start(Op::new(Owner::Background, relog.group, stripes, task));
        }
        if self.log.is_blocked() {
            self.refuse_lock_holders();
        }
    }

    /// The log goes on when preserved blocks of locked stripes are logged again. Operations in the groups of these stripes
    /// end if they wait for the log, because the locks may wait for them.
    fn refuse_lock_holders(&mut self) {
        let groups: BTreeSet<GroupId> = self.preserved.locked().map(|(group, _)| group).collect();
        let waits = |op: &Op| groups.contains(&op.group) && !matches!(op.task, Task::Relog(_));
        let waiting = self.ops.iter().filter(|(_, op)| waits(op));
        let waiting: BTreeSet<OpId> = waiting.map(|(id, _)| id).collect();
        let refused = self.log.refuse_ops(&waiting);
        self.units_refused(refused, Fault::Lost);
    }

    /// True if a fill of a returning drive would write a block that is logged and not yet flushed. If the power fails,
    /// the batch may be lost: then the old block is valid again. By its entry the drive holds that old block, so it
    /// must not be overwritten before the batch is flushed. The fill is planned again when a checkpoint has put the
    /// block in place.
    pub(crate) fn fill_is_early(&mut self, op: OpId) -> bool {
        let Owner::Job(job) = self.ops[op].owner else {
            return false;
        };
        if !self.jobs.catches_up(job) {
            return false;
        }
        let written = records::written_blocks(&self.cx, &self.ops[op]);
        let logged = written
            .iter()
            .filter_map(|(name, _)| self.overlay.get(*name));
        let last = logged.map(|logged| logged.sequence).max();
        let Some(last) = last.filter(|&last| last > self.log.flushed()) else {
            return false;
        };
        if let Some(fault) = self.log.tail_fault() {
            // A drive that stays refuses the logged blocks, and it is unknown for how long.
            self.checkpoints.fill_fails();
            self.end(op, Err(fault));
        } else {
            self.checkpoints.fill_waits(op, last);
        }
        true
    }
}
