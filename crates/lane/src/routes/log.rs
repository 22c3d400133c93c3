//! Routes for the log: what happens to units that wait for it, and what follows when its batches end.

use block::{Fault, Outcome, Seat};
use format::{BatchHeader, Sequence};

use crate::backoff::Work;
use crate::direct::IN_PLACE_MAX;
use crate::ids::OpId;
use crate::log::{Applied, BatchBuffer, Begun, Inputs, Unit};
use crate::op::{Phase, Task};
use crate::{Lane, records};

impl Lane {
    /// The writes of an operation are computed: logs them, sub-stripe by sub-stripe.
    pub(crate) fn log_writes(&mut self, id: OpId, sums: &[u32]) {
        let op = &self.ops[id];
        let units = records::units_of_writes(&self.cx, &self.overlay, (id, op), sums);
        self.log_units(id, units);
    }

    pub(crate) fn log_units(&mut self, id: OpId, units: Vec<Unit>) {
        let op = &mut self.ops[id];
        op.phase = Phase::Logging {
            units: units.len() as u64,
        };
        // The batches that it was computed from are not needed any more. If they stayed pinned while the operation
        // waits for memory, no memory would become free. Blocks that are logged again are themselves in a batch's
        // buffer.
        if !matches!(op.task, Task::Relog(_)) {
            for sequence in std::mem::take(&mut op.memory.pinned) {
                self.overlay.unpin(sequence);
            }
        }
        if units.is_empty() {
            self.end(id, Ok(()));
        } else {
            self.log.push(self.cx.now, &self.ops[id], units);
        }
    }

    /// One of an operation's units is logged, or refused.
    fn unit_ended(&mut self, id: OpId, outcome: Outcome) {
        let op = &mut self.ops[id];
        if op.unit_ended(outcome) {
            self.end(id, Ok(()));
        }
    }

    /// Begins the batches that should be in flight, and the checkpoint that the log needs.
    pub(crate) fn pump_log(&mut self) {
        let now = self.cx.now;
        // Operations that have waited long enough for drives that refuse do not wait for the next try, too.
        if let Some((fault, since)) = self.retries.refusal(now, self.log.needs_checkpoint()) {
            let overdue = self.log.refuse_overdue(since);
            self.units_refused(overdue, fault);
        }
        let refused = self.retries.batches_wait(now);
        let due = self.log.take_due(now, self.timed_out, refused);
        if !refused && (self.log.waits() || self.checkpoints.waits()) {
            self.write_gaps();
        }
        while !refused && self.begin_batch(due) {}
        if self.log.has_gaps() && !self.log.writes_gaps() {
            self.refuse_relogs();
        }
        self.flush_direct();
        if self.log.wants_checkpoint(&self.cx, &self.overlay)
            || self.overlay.blocks_in_place() >= IN_PLACE_MAX
        {
            self.want_room();
        }
    }

    /// Requests a checkpoint that makes room. If ring and memory hold nothing but batches in flight, no checkpoint can:
    /// room comes when these have ended. The same is true if they also hold preserved blocks, and the last checkpoint
    /// could do nothing about them. A checkpoint would end at once, and the next one would begin in the same turn.
    fn want_room(&mut self) {
        let fails = self.retries.checkpoints_fail().is_some();
        let covered = self.log.completed() < self.checkpoints.first_uncovered();
        let no_effect = self.checkpoints.would_have_no_effect(self.conditions());
        if fails || !covered || !no_effect && !self.ring_is_checkpointed() {
            self.checkpoints.want();
        }
    }

    /// Begins the next batch; false if no other batch follows.
    fn begin_batch(&mut self, due: bool) -> bool {
        let fails = self.retries.checkpoints_fail().is_some();
        let inputs = Inputs {
            ios: &self.ios,
            due,
            held: self.discards.hold_log(),
            direct: self.direct.in_flight(),
            room_comes: fails || self.checkpoints.is_running(),
        };
        match self.log.begin(&mut self.cx, &mut self.overlay, inputs) {
            Begun::Batch => return true,
            Begun::Nothing => {}
            Begun::NoRoom => {
                self.refuse_relogs();
                if self.log.still_waits_for_room() {
                    self.want_room();
                }
            }
            Begun::Full(fault) => {
                self.batches_tried(Err(fault));
                self.refuse_with(fault);
            }
        }
        false
    }

    /// A batch is ready to be written.
    pub(crate) fn batch_headed(&mut self, sequence: Sequence) {
        let early = { &mut self.log }.headed(&mut self.cx, &mut self.ios, sequence);
        for op in early {
            self.unit_ended(op, Ok(()));
        }
        self.batches_ended();
    }

    /// The write of a column of a batch has ended.
    pub(crate) fn batch_written(
        &mut self,
        sequence: Sequence,
        (seat, offset): (Seat, u64),
        outcome: Outcome,
    ) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        self.log.written(sequence, seat, outcome, out);
        self.batches_ended();
        self.gaps_ended();
    }

    /// The pool has decided about a drive.
    pub(crate) fn batches_judged(&mut self, seat: Seat, out: bool) {
        self.log.judged(seat, out);
        self.batches_ended();
        self.gaps_ended();
    }

    /// Applies the batches that have ended, and continues what waits for them.
    fn batches_ended(&mut self) {
        while let Some(ended) = self.log.next_ended(&mut self.cx) {
            if let Some(tried) = ended.tried {
                self.batches_tried(tried);
            }
            self.apply_batch(&ended.header, ended.buffer);
            self.checkpoints.logged(self.cx.now);
            let outcome = ended.outcome;
            for op in ended.ops {
                self.unit_ended(op, outcome);
            }
            if ended.is_done {
                self.overlay.unpin(ended.header.sequence);
            }
            if let Err(fault) = outcome {
                self.refuse_with(fault);
            }
        }
    }

    /// Applies a batch, which counts from now on.
    pub(crate) fn apply_batch(&mut self, header: &BatchHeader, buffer: BatchBuffer) {
        self.uninitialized
            .logged(header.sequence, &header.descriptors);
        let mut applied = Applied {
            overlay: &mut self.overlay,
            maps: &mut self.maps,
            direct: &mut self.direct,
        };
        applied.apply(&mut self.cx, header, buffer);
    }

    /// Writes gaps again for a checkpoint that something waits for; false if they are written.
    pub(crate) fn fill_gaps_for_checkpoint(&mut self) -> bool {
        if self.log.try_gaps() {
            self.write_gaps();
        }
        self.log.writes_gaps()
    }

    fn write_gaps(&mut self) {
        self.log.write_gaps(&mut self.cx, &mut self.ios);
        self.gaps_ended();
    }

    fn gaps_ended(&mut self) {
        if !self.log.has_gaps() {
            return;
        }
        let filled = self.log.gaps_ended(&mut self.cx);
        for sequence in filled.sequences {
            self.overlay.unpin(sequence);
        }
        if let Some(tried) = filled.tried {
            self.batches_tried(tried);
            if let Err(fault) = tried {
                self.refuse_with(fault);
            }
        }
        self.flushes_go_on();
        self.batches_ended();
    }

    /// Drives have taken the log's writes, or a drive that stays has refused one.
    fn batches_tried(&mut self, outcome: Outcome) {
        match outcome {
            Ok(()) => self.retries.succeeded(&mut self.cx, Work::Batch),
            Err(fault) => self.retries.failed(&mut self.cx, Work::Batch, fault),
        }
    }

    /// A try has failed: the operations that waited for it end with this fault.
    pub(crate) fn refuse_with(&mut self, fault: Fault) {
        let refused = self.log.refuse_all();
        self.units_refused(refused, fault);
    }

    /// Refuses all units that wait to be logged again.
    fn refuse_relogs(&mut self) {
        if self.preserved.relogs() {
            let refused = self.log.refuse_relogs();
            self.units_refused(refused, Fault::Full);
        }
    }

    pub(crate) fn units_refused(&mut self, ops: Vec<OpId>, fault: Fault) {
        for op in ops {
            self.unit_ended(op, Err(fault));
        }
    }
}
