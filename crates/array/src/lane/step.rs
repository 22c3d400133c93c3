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
use erasure::ElementSet;

use super::balance::{Known, Sound};
use super::blank::plan_blank;
use super::blocks::LaneBlocks;
use super::ids::OpId;
use super::io::FaultReport;
use super::ops::{
    Hedge, Lock, Op, Owner, Phase, Task, avoid_stragglers, avoided, may_move, needs_no_lock,
    waits_for_verdict,
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
            self.arbitrate(id);
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
        let op = &mut self.ops[id];
        let plan = op.plan.as_ref().expect("it was planned");
        if self.cx.geometry.store().is_none() || self.cx.trusted || plan.reads.is_empty() {
            self.compute(id);
            return;
        }
        op.phase = Phase::Verifying;
        let sums = plan.reads.iter().filter_map(|read| read.slice).collect();
        self.cx.push_compute(
            Computing::Verify(id),
            Compute {
                sums,
                ..Compute::default()
            },
        );
    }

    /// What an operation has read has these checksums.
    pub(super) fn verified(&mut self, id: OpId, sums: &[u32]) {
        if self.end_orphan(id) {
            // What it read may have changed since its reader let go of the lock.
            return;
        }
        let op = &self.ops[id];
        let Verified::Blocks(blocks, bad) = verify(&self.cx, self.entries(), op, sums) else {
            self.ops.plan_again(&mut self.cx, id);
            return;
        };
        report_bad(&mut self.cx, &self.losses, &self.maps, &bad);
        let op = &mut self.ops[id];
        op.verified += blocks;
        let names = bad.iter().map(|bad| bad.name);
        op.bad
            .extend(names.map(|name| (name.column, name.block.into())));
        if bad.is_empty() || matches!(op.task, Task::Scrub) {
            self.compute(id);
        } else {
            self.ops.plan_again(&mut self.cx, id);
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
            && self.is_news(id, transfer)
        {
            let report = FaultReport::of_read(transfer.seat, transfer.offset, fault);
            self.ios.report_fault(&mut self.cx, report);
        }
        if outcome == Err(Fault::Medium) && !out && transfer.length > BLOCK_BYTES {
            self.read_halves(id, transfer);
            return;
        }
        let block = self.cx.geometry.block_of(transfer.offset);
        let op = &mut self.ops[id];
        let Phase::Reading { in_flight, failed } = &mut op.phase else {
            unreachable!("its reads are in flight");
        };
        if let Err(fault) = outcome {
            let blocks = block..block + transfer.length / BLOCK_BYTES;
            op.bad.extend(blocks.map(|block| (transfer.column, block)));
            *failed = true;
            if op.read_fault != Some(Fault::Gone) {
                op.read_fault = Some(fault);
            }
        }
        *in_flight -= 1;
        if *in_flight > 0 {
            return;
        }
        let failed = *failed;
        if seeded::is(Bug::OneFailureOnly) && op.is_locked() && outcome.is_err() && !out {
            self.lost(id);
        } else if failed && !matches!(op.task, Task::Scrub) {
            self.ops.plan_again(&mut self.cx, id);
        } else {
            self.verify(id);
        }
    }

    /// Whether a failed read tells something new of its drive. The halves of one that failed do not; and a drive
    /// must not go out because clients ask again and again for what is known to be lost.
    fn is_news(&self, id: OpId, transfer: Transfer) -> bool {
        let op = &self.ops[id];
        let knows = |transfer: &Transfer| {
            let mut blocks = self.cx.geometry.blocks_of(transfer);
            blocks.any(|block| {
                let name = BlockName {
                    group: op.group,
                    column: transfer.column,
                    block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
                };
                self.losses.has(&self.cx, &self.maps, name)
            })
        };
        let whole = |read: &&Transfer| {
            let end = transfer.offset + transfer.length;
            read.seat == transfer.seat
                && read.offset <= transfer.offset
                && end <= read.offset + read.length
        };
        let reads = op.plan.iter().flat_map(|plan| &plan.reads);
        match reads.clone().find(whole) {
            Some(read) if *read != transfer => {
                transfer.length == BLOCK_BYTES && knows(read) && !knows(&transfer)
            }
            _ => !knows(&transfer),
        }
    }

    /// A drive cannot read some of a range: which blocks? The others are as good as ever, and where more drives
    /// than the code survives have a bad block each, they are what makes up for one another.
    fn read_halves(&mut self, id: OpId, transfer: Transfer) {
        let slice = transfer.slice.expect("reads have bytes");
        let middle = (transfer.length / BLOCK_BYTES / 2).max(1) * BLOCK_BYTES;
        let op = &mut self.ops[id];
        if let Phase::Reading { in_flight, .. } = &mut op.phase {
            *in_flight += 1;
        }
        for (from, to) in [(0, middle), (middle, transfer.length)] {
            let half = Transfer {
                offset: transfer.offset + from,
                length: to - from,
                slice: Some(slice.part(from, to - from)),
                ..transfer
            };
            self.push_transfer(id, half);
        }
    }

    pub(super) fn compute(&mut self, id: OpId) {
        let op = &self.ops[id];
        let plan = op.plan.as_ref().expect("it was planned");
        let open = op.arbitration.is_trying() || self.must_check(op);
        if matches!(op.task, Task::Read(_)) && plan.steps.is_empty() && op.puts.is_empty() && !open
        {
            // What nearly all reads come to: the bytes are where they should be.
            self.end(id, Ok(()));
            return;
        }
        let (sums, count) = match open {
            true => self.sums_to_check(id),
            false => (records::sums_of_writes(&self.cx, op), plan.steps.len()),
        };
        let op = &mut self.ops[id];
        let plan = op.plan.as_mut().expect("it was planned");
        let later = plan.steps.split_off(count);
        let steps = std::mem::replace(&mut plan.steps, later);
        let puts = std::mem::take(&mut op.puts);
        if steps.is_empty() && sums.is_empty() && puts.is_empty() {
            self.computed(id, &Computed::default());
            return;
        }
        op.phase = Phase::Computing;
        let work = Compute {
            puts,
            steps,
            sums,
            ..Compute::default()
        };
        self.cx.push_compute(Computing::Op(id), work);
    }

    pub(super) fn computed(&mut self, id: OpId, computed: &Computed) {
        let store = self.cx.geometry.store().is_some();
        if self.ops[id].arbitration.is_trying() {
            self.arbitrated(id, &computed.sums);
            return;
        }
        if self.must_check(&self.ops[id]) {
            if self.recovered_is_right(id, &computed.sums) && !self.writes_what_it_recovers(id) {
                // With what is reconstructed the operation goes on.
                self.compute(id);
                return;
            }
            if !self.ops.find(id).is_some_and(|op| op.checked) {
                return;
            }
        }
        let op = &mut self.ops[id];
        match &mut op.task {
            Task::Write(prepared) if !prepared.is_staged() => {
                prepared.filled();
                self.ops.run(id);
                return;
            }
            Task::Write(_) if op.direct.is_some() => {
                self.gather_direct(id, &computed.sums);
                return;
            }
            // What recovery mends is in place, and what it replaces does not count.
            Task::Write(_) | Task::Heal(_) | Task::Relog(_)
                if store && op.owner != Owner::Recovery =>
            {
                self.log_writes(id, &computed.sums);
                return;
            }
            Task::Fill { column, .. } if store => {
                let (group, column) = (op.group, *column);
                if self.checkpoints.fill_must_wait(id, group, column) || self.fill_is_early(id) {
                    return;
                }
                if !self.note_filled(id, &computed.sums) {
                    self.ops.plan_again(&mut self.cx, id);
                    return;
                }
            }
            _ => {}
        }
        let op = &mut self.ops[id];
        if let Task::Fill { target, .. } = &op.task
            && self.cx.view().is_out(target.seat)
            && !seeded::is(Bug::FillBeforeJoined)
        {
            self.end(id, Err(Fault::Gone));
            return;
        }
        let plan = op.plan.as_ref().expect("it was planned");
        if let (Owner::Job(job), Task::Fill { .. }) = (op.owner, &op.task) {
            let bytes = plan.writes.iter().map(|write| write.length).sum();
            self.jobs.copies(job, bytes);
        }
        let op = &mut self.ops[id];
        let plan = op.plan.as_ref().expect("it was planned");
        let writes: Vec<Transfer> = plan
            .writes
            .iter()
            .filter(|write| !self.cx.view().is_out(write.seat))
            .copied()
            .collect();
        op.begin_writes(writes.len() as u64);
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
        let op = &mut self.ops[id];
        if op.direct.is_some() {
            self.direct_written(id);
            return;
        }
        if let Some(fault) = op.fault {
            let store = self.cx.geometry.store().is_some();
            let mend = !store && matches!(op.task, Task::Write(_) | Task::Zero);
            if mend {
                // Some of the writes have happened and some not: parity must follow the data that
                // is there now. The request has failed in any case.
                op.task = Task::Resync;
                self.ops.run(id);
            } else {
                self.end(id, Err(fault));
            }
            return;
        }
        let outcome = if self.is_durable(id) {
            Ok(())
        } else {
            Err(Fault::Lost)
        };
        self.end(id, outcome);
    }

    /// Whether what an operation wrote can be read back, drives that went out meanwhile left aside.
    fn is_durable(&mut self, id: OpId) -> bool {
        let (op, plans) = self.ops.planning(id);
        let plan = op.plan.as_ref().expect("it was planned");
        if !plan
            .writes
            .iter()
            .any(|write| self.cx.view().is_out(write.seat))
        {
            return true;
        }
        let code = self.cx.geometry.code();
        let columns = self.cx.view().columns(&self.cx.geometry, op.group);
        let mut there = ElementSet::new(code.elements());
        for slot in 0..code.elements() {
            let (column, _) = self.cx.geometry.place(op.group, op.stripes.start, slot);
            if columns[usize::from(column)].writable() {
                there.insert(slot);
            }
        }
        let data: ElementSet = code.data_slots().collect();
        plans.recover(code, &there, &data).is_ok()
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
