//! The life of an operation: lock, plan, read, verify, compute, log or write, end.
//!
//! ```text
//!      ┌─ pages ─► Fetching ─┐    ┌─ a read failed, or is not what was written: plan around it
//!      ▼                     │    │
//!   Locking ──── plan ───────┴─► Reading ─► Verifying ─► Computing ─┬─► Logging ─► (end)
//!      ▲                                                            ├─► Writing ─► (end)
//!      └────────────────── blocks staged ───────────────────────────┘
//! ```
//!
//! Writes of requests are logged, whole stripes onto unwritten space after they are in place (`direct.rs`); what fills a cell that does not count yet is written in place, and
//! so is everything in a pool without a journal.

use std::cell::RefCell;
use std::ops::Range;

use block::{BLOCK_BYTES, Fault, Outcome, RequestKind};

use super::balance::{Known, Sound};
use super::blank::plan_blank;
use super::blocks::{Entries, LaneBlocks};
use super::ids::OpId;
use super::io::FaultReport;
use super::ops::{
    self, AfterComputation, AfterRead, AfterWrites, Compared, Computation, Hedge, Lock, Op, Owner,
    Phase, Task, Trials, avoid_stragglers, avoided, begin_writes, compare, computation, is_news,
    lacks_target, may_move, must_check, needs_no_lock, note_verified, plan_trials, read_ended,
    sums_to_verify, tried, waits_for_verdict, writes_what_it_recovers, written,
};
use super::repairs::left_to_repair;
use super::verify::{Verified, report_bad, verify};
use super::{Computing, Lane, Purpose, direct, preserved, records, trusted};
use crate::action::{Action, Compute, Computed, Event, IoKind};
use crate::format::BlockName;
use crate::plan::{self, Kind, Lost, Plan, Scratch, Stripe, Transfer};
use crate::seeded::{self, Bug};

/// How often blocks that a drive could not read are asked for again before their loss is reported.
/// While they can be reconstructed they are not: that mends them.
const READ_RETRIES: u8 = 2;

impl Lane {
    /// Puts an operation in line. Reads of what is there need no lock: every block is old or new.
    pub(super) fn start(&mut self, op: Op) {
        if op.data.is_some() && self.cx.geometry.free_stripes() > 0 {
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

    /// Gives back stripes that an operation has locked.
    pub(super) fn give_back(&mut self, id: OpId, group: u64, stripes: Range<u64>) {
        self.ops.unlock(id, group, stripes.clone());
        if self.preserved.unlocked(group, stripes) {
            self.checkpoints.want();
        }
    }

    /// Plans an operation and starts its reads.
    pub(super) fn plan(&mut self, id: OpId) {
        if self.end_orphan(id) {
            return;
        }
        if !self.locate(id) {
            return;
        }
        let op = &mut self.ops[id];
        self.cx.epochs.enter(&mut op.epoch);
        self.release_scratch(id);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        avoid_stragglers(cx, ios, &mut self.ops[id]);
        if let Some(left) = left_to_repair(&self.cx, self.entries(), &self.ops[id]) {
            self.ops[id].task = Task::Heal(left);
        }
        // What was tried was read into memory that is released.
        let op = &mut self.ops[id];
        if let Some(arbitration) = op.arbitration.written() {
            arbitration.drop_trials();
        }
        let store = self.cx.geometry.store().is_some();
        let op = &self.ops[id];
        if store && matches!(op.task, Task::Zero) {
            match op.owner {
                Owner::Job(_) => self.blank(id),
                _ => {
                    let unit = records::unit_of_zeroes(id, &self.ops[id]);
                    self.log_units(id, vec![unit]);
                }
            }
            return;
        }
        if let Task::Relog(names) = &op.task {
            let names = names.clone();
            self.relog(id, &names);
            return;
        }
        if let Task::Discard(what) = op.task {
            self.discard(id, what);
            return;
        }
        if op.arbitration.in_doubt() > 0 {
            self.read_doubted(id);
            return;
        }
        let known = Known {
            cx: &self.cx,
            ios: &self.ios,
            overlay: &self.overlay,
            pages: &self.pages,
        };
        match self.balance.plan(&known, op) {
            Some(Sound::Plan(plan)) => {
                self.read(id, plan);
                return;
            }
            Some(Sound::Pages(names)) => {
                self.fetch_pages(id, names);
                return;
            }
            None => {}
        }
        if !self.compare_pages(id) {
            return;
        }
        // What is lost is named by the data that a stripe holds.
        let op = &self.ops[id];
        let (group, stripe) = (op.group, op.stripes.start);
        let finds_losses = matches!(op.task, Task::Heal(_) | Task::Scrub);
        if finds_losses
            && self.recovery.is_none()
            && let Err(missing) = self.load_map(group)
        {
            self.fetch_pages(id, missing);
            return;
        }
        let data = self.maps.data_held_by(&self.cx, group, stripe);
        let plain = trusted::is_plain_fill(&self.cx, &self.overlay, &self.ops[id]);
        if plain {
            let missing = trusted::missing_pages(&self.cx, &self.pages, &self.ops[id]);
            if !missing.is_empty() {
                self.fetch_pages(id, missing);
                return;
            }
        }
        let scratch = self.cx.fresh_scratch();
        let avoided = avoided(&self.cx, &self.ios, &self.ops[id]);
        let (op, plans) = self.ops.planning(id);
        let columns = self.cx.view().columns(&self.cx.geometry, op.group);
        let blocks = LaneBlocks {
            store: store && !plain,
            overlay: &self.overlay,
            pages: &self.pages,
            group: op.group,
            held: op.task.held(),
            leaves_out_lost: op
                .task
                .held()
                .is_some_and(|held| columns[usize::from(held.column)].source.is_none()),
            bad: &op.bad,
            avoid: &op.detour.avoid,
            distrusted: op.arbitration.distrusted(),
            avoided: &avoided,
            missing: RefCell::default(),
            unknown: RefCell::default(),
            pinned: RefCell::default(),
        };
        let stripe = Stripe {
            geometry: &self.cx.geometry,
            group: op.group,
            stripe: op.stripes.start,
            columns: &columns,
            blocks: &blocks,
        };
        let name = Scratch(scratch);
        let mut assessed = Vec::new();
        let planned = match &op.task {
            Task::Read(pieces) => plan::plan_read(plans, &stripe, pieces, name),
            Task::Write(prepared) if !prepared.is_staged() => {
                plan::plan_read(plans, &stripe, &prepared.reads, name).map(|mut plan| {
                    plan.steps.extend(prepared.overlay.iter().cloned());
                    plan
                })
            }
            Task::Write(prepared) => plan::plan_write(plans, &stripe, &prepared.sources, name),
            Task::Fill {
                column,
                target,
                avoid,
                ..
            } => plan::plan_fill(
                plans,
                stripe,
                op.stripes.clone(),
                (*column, *target),
                avoid,
                name,
            ),
            Task::Zero => plan::plan_zero(plans, stripe, op.stripes.clone()),
            Task::Resync => plan::plan_resync(plans, stripe, op.stripes.clone(), name),
            Task::Scrub => Ok(plan::plan_scrub(plans, stripe, op.stripes.clone(), name)),
            Task::Heal(blocks) => {
                assessed = plan::assess_lost(plans, &stripe, blocks);
                for row in &mut assessed {
                    // What only contradicts its row can still be read by itself.
                    row.lost.retain(|&slot| {
                        let (column, chunk) =
                            self.cx.geometry.place(op.group, op.stripes.start, slot);
                        let block =
                            (chunk * self.cx.geometry.chunk_bytes() + row.low) / BLOCK_BYTES;
                        blocks.contains(&(slot, row.low))
                            || !op.arbitration.distrusted().contains(&(column, block))
                    });
                }
                Ok(plan::plan_heal(plans, &stripe, blocks, name))
            }
            Task::Relog(_) | Task::Discard(_) => unreachable!("it needs no plan"),
        };
        let missing = blocks.missing.into_inner();
        let pinned = blocks.pinned.into_inner();
        let unknown = blocks.unknown.into_inner();
        if !missing.is_empty() {
            self.fetch_pages(id, missing);
            return;
        }
        // Something is only read around while there is a way; and what a drive could not read is asked for once
        // more before it is taken for lost.
        let lossy = planned.as_ref().map_or(true, |plan| !plan.lost.is_empty());
        let around = !avoided.is_empty() || !op.detour.avoid.is_empty();
        let again = op.read_fault == Some(Fault::Medium) && op.retries < READ_RETRIES;
        // A drive that is gone takes nothing with it that could not come back with it: until the pool has
        // decided about it, nothing of the stripe counts as lost, and no parity is given up for a write.
        let gone = op.read_fault == Some(Fault::Gone);
        let planned = if lossy && (around || again || gone) {
            Err(Lost)
        } else {
            planned
        };
        // What is logged may make a stripe whole of a group that has lost more columns than the code survives. Still
        // no block of a column that is nowhere changes: if its drive was among the last to leave, it holds the column
        // as it is, and that counts as soon as the drive is back.
        let absent = columns.iter().filter(|column| !column.readable()).count();
        let stays = store
            && matches!(op.task, Task::Write(_))
            && self.cx.geometry.layout().spares() == 0
            && self.cx.geometry.stripes_use_all_columns()
            && absent > usize::from(self.cx.geometry.code().tolerance());
        let planned = planned.and_then(|plan| match stays && !plan.absent.is_empty() {
            true => Err(Lost),
            false => Ok(plan),
        });
        // Where the column is, its blocks should be known: they are mended when this has ended.
        let here = |&(column, _): &(u16, u64)| columns[usize::from(column)].readable();
        op.unknown = unknown.into_iter().filter(here).collect();
        if matches!(op.task, Task::Heal(_)) {
            let assessed = assessed.into_iter();
            // A stripe that holds no data has none that is lost.
            op.repair.assessed = match data {
                Some(data) => assessed.map(|row| (data, row)).collect(),
                None => Vec::new(),
            };
        }
        if planned.is_ok() {
            for &sequence in &pinned {
                self.overlay.pin(sequence);
            }
            op.pinned = pinned.into_iter().collect();
        }
        match planned {
            Ok(plan) => {
                if plan.kind == Kind::DegradedRead && !op.is_locked() {
                    // The view changed between `start` and now.
                    self.ops.lock(&mut self.cx, id);
                    return;
                }
                let op: &Op = &self.ops[id];
                let may_go = direct::may_go(&self.cx, &self.ios, &self.overlay, op, &plan);
                if may_go {
                    let missing = direct::pages_of_writes(&self.cx, &self.pages, op.group, &plan);
                    if !missing.is_empty() {
                        self.fetch_pages(id, missing);
                        return;
                    }
                }
                let (entries, flushed) = (self.entries(), self.log.flushed());
                let about = (op, &plan);
                let direct =
                    may_go && direct::holds_nothing(&self.cx, &self.ios, entries, flushed, about);
                if !direct && self.ops[id].moves_from().is_some() {
                    self.cancel_move(id);
                    return;
                }
                if !direct
                    && may_go
                    && self.recovery.is_none()
                    && may_move(&self.cx, &self.ops[id])
                    && self.begin_move(id)
                {
                    return;
                }
                let op = &mut self.ops[id];
                if let Task::Write(prepared) = &mut op.task
                    && let Some((staging, bytes)) = prepared.provide()
                {
                    self.cx.actions.push_back(Action::Allocate(staging, bytes));
                }
                if plan.scratch_bytes > 0 {
                    op.scratch = Some(scratch);
                    self.cx
                        .actions
                        .push_back(Action::Allocate(scratch, plan.scratch_bytes));
                }
                if direct {
                    self.begin_direct(id);
                }
                self.read(id, plan);
            }
            Err(Lost) if around => {
                op.detour.waits = true;
                op.detour.avoid.clear();
                match op.owner {
                    Owner::Hedge(_) => self.end(id, Err(Fault::Lost)),
                    _ => self.ops.run(id),
                }
            }
            Err(Lost) if again => {
                op.retries += 1;
                op.bad.clear();
                self.ops.run(id);
            }
            Err(Lost) if self.ops[id].moves_from().is_some() => self.cancel_move(id),
            Err(Lost) => self.lost(id),
        }
    }

    /// Reads rows that are in doubt, under the lock.
    fn read_doubted(&mut self, id: OpId) {
        if !self.ops[id].is_locked() {
            self.ops.lock(&mut self.cx, id);
            return;
        }
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        match plan_trials(&mut self.cx, entries, self.ops.planning(id)) {
            Trials::Pages(missing) => self.fetch_pages(id, missing),
            Trials::Unrecoverable => self.ops.plan_again(&mut self.cx, id),
            Trials::Plan(plan, scratch) => {
                self.pin(id);
                self.ops[id].scratch = Some(scratch);
                let memory = Action::Allocate(scratch, plan.scratch_bytes);
                self.cx.actions.push_back(memory);
                self.read(id, plan);
            }
        }
    }

    /// Batches that an operation's plan uses stay in memory.
    fn pin(&mut self, id: OpId) {
        for &sequence in &self.ops[id].pinned {
            self.overlay.pin(sequence);
        }
    }

    /// Logs blocks again from the memory in which they are.
    fn relog(&mut self, id: OpId, names: &[BlockName]) {
        let (plan, pinned) = preserved::plan_relog(&self.cx, &self.overlay, names);
        for &sequence in &pinned {
            self.overlay.pin(sequence);
        }
        let op = &mut self.ops[id];
        op.pinned = pinned.into_iter().collect();
        op.plan = Some(plan);
        self.compute(id);
    }

    /// Makes a whole group unwritten.
    fn blank(&mut self, id: OpId) {
        let group = self.ops[id].group;
        if !self.checkpoints.writes_of(group) {
            // Whoever had the stripes before may have read pages of the earlier life since they were dropped.
            self.pages.drop_group(group);
        }
        self.maps.drop_group(group);
        let page = self.pages.blank();
        let scratch = self.cx.fresh_scratch();
        let (plan, puts) = plan_blank(&self.cx, &page, group, scratch);
        self.cx
            .actions
            .push_back(Action::Allocate(scratch, plan.scratch_bytes));
        let op = &mut self.ops[id];
        op.scratch = Some(scratch);
        op.puts = puts;
        op.plan = Some(plan);
        self.compute(id);
    }

    /// An operation needs more than is left.
    fn lost(&mut self, id: OpId) {
        let op = &self.ops[id];
        // Without missing columns it is only this range that cannot be read: a medium error.
        let columns = self.cx.view().columns(&self.cx.geometry, op.group);
        let op = &self.ops[id];
        let whole = columns.iter().all(|column| column.source.is_some());
        let fault = if whole && op.read_fault == Some(Fault::Medium) {
            Fault::Medium
        } else {
            Fault::Lost
        };
        let kind = match op.owner {
            Owner::Request(request) => self.requests.kind(request),
            Owner::Job(_) | Owner::Background | Owner::Recovery | Owner::Hedge(_) => {
                RequestKind::Read
            }
        };
        // What recovery cannot mend it may leave out.
        if op.owner != Owner::Recovery {
            self.cx.events.push_back(Event::StripeLost {
                group: op.group,
                stripe: op.stripes.start,
                kind,
            });
        }
        self.end(id, Err(fault));
    }

    pub(super) fn read(&mut self, id: OpId, plan: Plan) {
        let op = &mut self.ops[id];
        op.checked = false;
        op.begin_reads(plan.reads.len() as u64);
        for &transfer in &plan.reads {
            self.push_transfer(id, transfer);
        }
        let nothing = plan.reads.is_empty();
        self.ops[id].plan = Some(plan);
        if nothing {
            self.compute(id);
        }
    }

    /// All reads have succeeded: are they what was written?
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

    /// What an operation has read has these checksums.
    pub(super) fn verified(&mut self, id: OpId, sums: &[u32]) {
        if self.end_orphan(id) {
            // What it read may have changed since its reader gave back the lock.
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

    pub(super) fn push_transfer(&mut self, op: OpId, transfer: Transfer) {
        let service = self.ops[op].service;
        let purpose = Purpose::Transfer { op, transfer };
        self.ios
            .submit_transfer(&mut self.cx, purpose, service, &transfer);
    }

    /// A transfer has ended.
    pub(super) fn transferred(&mut self, id: OpId, transfer: Transfer, outcome: Outcome) {
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

    pub(super) fn compute(&mut self, id: OpId) {
        match computation(&self.cx, &mut self.ops[id]) {
            Computation::ReadEnds => self.end(id, Ok(())),
            Computation::Nothing => self.computed(id, &Computed::default()),
            Computation::Begins(work) => self.cx.push_compute(Computing::Op(id), work),
        }
    }

    pub(super) fn computed(&mut self, id: OpId, computed: &Computed) {
        let sums = &computed.sums;
        let op = &self.ops[id];
        let (tries, checks) = (op.arbitration.is_trying(), must_check(&self.cx, op));
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
                // With what is reconstructed the operation goes on.
                Compared::Right => return self.compute(id),
            }
        }
        match ops::computed(&self.cx, &mut self.ops[id]) {
            AfterComputation::Plan => self.ops.run(id),
            AfterComputation::Gather => self.gather_direct(id, sums),
            AfterComputation::Log => self.log_writes(id, sums),
            AfterComputation::Fill => self.fill_computed(id, sums),
            AfterComputation::Write => self.begin_writes(id),
        }
    }

    /// What a fill writes is computed: it has to wait for a checkpoint, is planned again, or goes in place.
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
            self.jobs.copies(job, bytes);
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
            Ok(()) if seeded::is(Bug::DirectUnflushed) && self.ops[id].direct.is_some() => {}
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
    pub(super) fn written(&mut self, id: OpId) {
        match written(&self.cx, self.ops.planning(id)) {
            AfterWrites::Log => self.direct_written(id),
            AfterWrites::Resync => self.ops.run(id),
            AfterWrites::End(outcome) => self.end(id, outcome),
        }
    }

    /// Ends an operation: locks, memory and owner.
    pub(super) fn end(&mut self, id: OpId, outcome: Outcome) {
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
            if outcome.is_ok() && !op.orphan {
                self.after(&op, outcome);
            }
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            let pair = (reader, id);
            if { &mut self.ops }.second_read_ended(cx, ios, pair, *op, outcome) {
                self.end(reader, Ok(()));
            }
            return;
        }
        if let Some(buffer) = op.bounce_buffer.take() {
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
                    let stripe = op.data.unwrap_or(op.stripes.start);
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
                self.torn_repaired(outcome.is_ok() && !lost);
            }
            Owner::Hedge(_) => unreachable!("ended above"),
        }
    }

    /// Ends an operation that nothing needs any more; whether it was one.
    pub(super) fn end_orphan(&mut self, id: OpId) -> bool {
        let orphan = self.ops[id].orphan;
        if orphan {
            self.end(id, Err(Fault::Shutdown));
        }
        orphan
    }

    pub(super) fn release_scratch(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        let pinned = std::mem::take(&mut op.pinned);
        if let Some(scratch) = op.scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        for sequence in pinned {
            self.overlay.unpin(sequence);
        }
    }
}
