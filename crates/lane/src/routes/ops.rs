//! Routes for the phases of an operation, which `op/phase.rs` draws: the result of each step goes to the state machine
//! that has the next one.

use std::ops::Range;

use block::{Fault, Outcome};
use format::seeded::{self, SeededFault};
use format::{BlockName, GroupId, StripeId};
use plan::Transfer;
use plan::action::{Compute, Computed, IoKind};

use crate::Lane;
use crate::entries::Entries;
use crate::ids::OpId;
use crate::io::FaultReport;
use crate::op::{Hedge, Lock, Op, Owner, Phase, Task, waits_for_verdict};
use crate::ops::{
    self, AfterComputation, AfterRead, AfterWrites, Compared, Computation, begin_writes, compare,
    computation, is_news, lacks_target, must_check, needs_no_lock, note_verified, read_ended,
    sums_to_verify, tried, writes_what_it_recovers, written,
};
use crate::purpose::{Computing, Purpose};
use crate::verify::{Verified, report_bad, verify};

impl Lane {
    /// Starts an operation. Reads of columns that can be read directly need no lock: every block is old or new.
    pub(crate) fn start(&mut self, op: Op) {
        if op.data.is_some() && self.cx.geometry.has_maps() {
            let id = self.ops.begin(&mut self.cx, op);
            if self.locate(id) {
                self.ops.run(id);
            }
            return;
        }
        let free = needs_no_lock(&self.cx, &op);
        let id = self.ops.begin(&mut self.cx, op);
        if free {
            self.ops.run(id);
        } else {
            self.ops.lock(&mut self.cx, id);
        }
    }

    /// Releases stripes that an operation has locked.
    pub(crate) fn give_back(&mut self, id: OpId, group: GroupId, stripes: Range<StripeId>) {
        self.ops.unlock(id, group, stripes.clone());
        if self.preserved.unlocked(group, stripes) {
            self.checkpoints.want();
        }
    }

    /// All reads have succeeded: verifies what was read.
    fn verify(&mut self, id: OpId) {
        let Some(sums) = sums_to_verify(&self.cx, &self.ops[id]) else {
            self.compute(id);
            return;
        };
        self.ops[id].phase = Phase::Verifying;
        let work = Compute {
            sums,
            ..Compute::default()
        };
        self.cx.push_compute(Computing::Verify(id), work);
    }

    /// The blocks that an operation has read have these checksums.
    pub(crate) fn verified(&mut self, id: OpId, sums: &[u32]) {
        if self.end_orphan(id) {
            // The blocks that it has read may have changed since its reader released the lock.
            return;
        }
        let verified = verify(&self.cx, self.entries(), &self.ops[id], sums);
        let Verified::Blocks(blocks, bad) = verified else {
            self.ops.plan_again(&mut self.cx, id);
            return;
        };
        report_bad(&mut self.cx, &self.losses, &self.maps, &bad);
        match note_verified(&mut self.ops[id], blocks, &bad) {
            true => self.compute(id),
            false => self.ops.plan_again(&mut self.cx, id),
        }
    }

    pub(crate) fn push_transfer(&mut self, op: OpId, transfer: Transfer) {
        let service = self.ops[op].service;
        let purpose = Purpose::Transfer { op, transfer };
        self.ios
            .submit_transfer(&mut self.cx, purpose, service, &transfer);
    }

    /// A transfer has ended.
    pub(crate) fn transferred(&mut self, id: OpId, transfer: Transfer, outcome: Outcome) {
        let out = self.cx.view().is_out(transfer.seat);
        if transfer.kind == IoKind::Read {
            self.read_ended(id, transfer, outcome, out);
        } else {
            self.write_ended(id, transfer, outcome, out);
        }
    }

    fn read_ended(&mut self, id: OpId, transfer: Transfer, outcome: Outcome, out: bool) {
        if let (Err(fault), false) = (outcome, out)
            && is_news(&self.cx, &self.losses, &self.maps, &self.ops[id], transfer)
        {
            let report = FaultReport::of_read(transfer.seat, transfer.offset, fault);
            self.ios.report_fault(&mut self.cx, report);
        }
        match read_ended(&self.cx, &mut self.ops[id], transfer, outcome, out) {
            AfterRead::Wait => {}
            AfterRead::Halves(halves) => {
                for half in halves {
                    self.push_transfer(id, half);
                }
            }
            AfterRead::Again => self.ops.plan_again(&mut self.cx, id),
            AfterRead::Lost => self.lost(id),
            AfterRead::Verify => self.verify(id),
        }
    }

    pub(crate) fn compute(&mut self, id: OpId) {
        match computation(&self.cx, &mut self.ops[id]) {
            Computation::ReadEnds => self.end(id, Ok(())),
            Computation::Nothing => self.computed(id, &Computed::default()),
            Computation::Begins(work) => self.cx.push_compute(Computing::Op(id), work),
        }
    }

    pub(crate) fn computed(&mut self, id: OpId, computed: &Computed) {
        let sums = &computed.sums;
        let op = &self.ops[id];
        let (tries, checks) = (op.found.arbitration.is_trying(), must_check(&self.cx, op));
        if (tries || checks) && self.end_orphan(id) {
            return;
        }
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        if tries {
            let (cx, next) = (&mut self.cx, self.log.next_sequence());
            tried(cx, entries, &mut self.ops[id], sums, next);
            self.ops.plan_again(&mut self.cx, id);
            return;
        }
        if checks {
            match compare(&self.cx, entries, &mut self.ops[id], sums) {
                Compared::Again => return self.ops.plan_again(&mut self.cx, id),
                Compared::LeftToReader => return self.end(id, Err(Fault::Lost)),
                Compared::Right if writes_what_it_recovers(&self.ops[id]) => {}
                // The operation goes on with the reconstructed blocks.
                Compared::Right => return self.compute(id),
            }
        }
        match ops::computed(&self.cx, &mut self.ops[id]) {
            AfterComputation::Plan => self.ops.run(id),
            AfterComputation::Gather => {
                if self.ops[id].direct.is_some() || self.begin_conversion(id) {
                    self.gather_direct(id, sums);
                }
            }
            AfterComputation::Log => self.log_writes(id, sums),
            AfterComputation::Fill => self.fill_computed(id, sums),
            AfterComputation::Write => self.begin_writes(id),
        }
    }

    /// The writes of a fill are computed: the fill must wait for a checkpoint, is planned again, or writes in place.
    fn fill_computed(&mut self, id: OpId, sums: &[u32]) {
        let op = &self.ops[id];
        let Task::Fill { column, .. } = op.task else {
            unreachable!("it is a fill");
        };
        if self.checkpoints.fill_must_wait(id, op.group, column) || self.fill_is_early(id) {
            return;
        }
        match self.note_filled(id, sums) {
            true => self.begin_writes(id),
            false => self.ops.plan_again(&mut self.cx, id),
        }
    }

    fn begin_writes(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        if lacks_target(&self.cx, op) {
            self.end(id, Err(Fault::Gone));
            return;
        }
        if let (Owner::Job(job), Task::Fill { .. }) = (op.owner, &op.task) {
            let plan = op.plan.as_ref().expect("it was planned");
            let bytes = plan.writes.iter().map(|write| write.length).sum();
            let read = plan.reads.iter().map(|read| read.length).sum();
            self.jobs.copies(job, read, bytes);
        }
        let writes = begin_writes(&self.cx, op);
        for &transfer in &writes {
            self.push_transfer(id, transfer);
        }
        if writes.is_empty() {
            self.written(id);
        }
    }

    fn write_ended(&mut self, id: OpId, transfer: Transfer, outcome: Outcome, out: bool) {
        let seat = transfer.seat;
        if outcome.is_err() {
            self.direct_failed(id);
        }
        match outcome {
            Ok(()) if seeded::is(SeededFault::DirectUnflushed) && self.ops[id].direct.is_some() => {
            }
            Ok(()) => self.flushes.wrote(seat),
            Err(_) if out => {}
            Err(fault) => {
                let report = FaultReport::new(seat, transfer.kind, transfer.offset, fault);
                let report = report.waiting(waits_for_verdict(fault));
                { &mut self.ios }.report_fault(&mut self.cx, report);
            }
        }
        let op = &mut self.ops[id];
        if op.write_ended(seat, outcome, out) {
            self.written(id);
        }
    }

    /// All writes have ended, and the pool has decided about drives that have failed one.
    pub(crate) fn written(&mut self, id: OpId) {
        match written(&self.cx, self.ops.planning(id)) {
            AfterWrites::Log => self.direct_written(id),
            AfterWrites::Resync => self.ops.run(id),
            AfterWrites::End(outcome) => self.end(id, outcome),
        }
    }

    /// Ends an operation: releases its locks and memory, and passes the outcome to its owner.
    pub(crate) fn end(&mut self, id: OpId, outcome: Outcome) {
        self.release_scratch(id);
        let mut op = self.ops.end(&mut self.cx, id);
        if let Task::Write(prepared) = &op.task
            && let Some(staging) = prepared.staging.memory()
        {
            self.ios.release(&mut self.cx, staging);
        }
        if op.lock == Lock::Own {
            self.give_back(id, op.group, op.stripes.clone());
            self.move_ends(id, &op);
        }
        if op.occupies {
            let stripe = op.data.expect("parts are of the group's data");
            let whole = self.cx.geometry.stripe_data_bytes();
            let ready = self.coalescing.ended((op.group, stripe), whole);
            self.begin_stripes(ready);
        }
        let outcome = op.fault.map_or(outcome, Err);
        if let Hedge::Running(hedge) = op.detour.hedge {
            self.ops.orphan(hedge);
        }
        if let Owner::Hedge(reader) = op.owner {
            if outcome.is_ok() && !op.detour.orphan {
                self.after(&op, outcome);
            }
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            let pair = (reader, id);
            if { &mut self.ops }.second_read_ended(cx, ios, pair, *op, outcome) {
                self.end(reader, Ok(()));
            }
            return;
        }
        if let Some(buffer) = op.memory.bounce_buffer.take() {
            match (op.owner, &op.task) {
                (Owner::Request(reader), Task::Read(pieces)) if outcome.is_ok() => {
                    let now = pieces.iter().map(|piece| piece.slice);
                    self.requests.bytes_elsewhere(reader, buffer, now);
                }
                _ => self.ios.release(&mut self.cx, buffer.scratch),
            }
        }
        self.after(&op, outcome);
        match op.owner {
            Owner::Request(request) => match op.parts.take() {
                None => self.request_op_ended(request, outcome),
                Some(parts) => {
                    let stripe = op.data.unwrap_or(op.stripes.start.own_data());
                    self.parts_ended((op.group, stripe), parts, outcome);
                }
            },
            Owner::Job(job) => {
                { &mut self.jobs }.step_ended(&mut self.cx, job, &op.stripes, outcome);
                self.step_job(job);
            }
            Owner::Background => {}
            Owner::Recovery => {
                let lost = op.plan.is_none_or(|plan| !plan.lost.is_empty());
                let whole = outcome.is_ok() && !lost;
                let bad = op.found.bad.iter().filter_map(|&(column, block)| {
                    let block = u32::try_from(block).ok()?;
                    Some(BlockName {
                        group: op.group,
                        column,
                        block,
                    })
                });
                let bad = if whole { Vec::new() } else { bad.collect() };
                self.torn_repaired(whole, bad);
            }
            Owner::Hedge(_) => unreachable!("ended above"),
        }
    }

    /// Ends an operation whose result is not needed any more; true if it was one.
    pub(crate) fn end_orphan(&mut self, id: OpId) -> bool {
        let orphan = self.ops[id].detour.orphan;
        if orphan {
            self.end(id, Err(Fault::Shutdown));
        }
        orphan
    }

    pub(crate) fn release_scratch(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        let pinned = std::mem::take(&mut op.memory.pinned);
        if let Some(scratch) = op.memory.scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        for sequence in pinned {
            self.overlay.unpin(sequence);
        }
    }
}
