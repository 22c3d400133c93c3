//! Planning of operations: an operation is located, planned by the state of its blocks, and its reads begin.

use std::collections::BTreeSet;

use block::{BLOCK_BYTES, Fault, Outcome, RequestKind, Seat};
use format::{BlockName, ENTRIES_PER_META_PAGE, GroupId};
use plan::action::{Action, BufferId, Event, IoKind, Origin, Service, Slice};
use plan::{Plan, ScratchId};

use crate::balance::Known;
use crate::blank::plan_blank;
use crate::entries::Entries;
use crate::ids::OpId;
use crate::op::{Owner, Phase, Probe, Task};
use crate::ops::{
    Beginning, Planned, Trials, Way, avoid_stragglers, begin_plan, closely, fault_of_loss,
    finds_losses, plan_trials, provide_memory, way,
};
use crate::purpose::Purpose;
use crate::repairs::left_to_repair;
use crate::{Lane, preserved, records};

impl Lane {
    /// Plans an operation and starts its reads.
    pub(crate) fn plan(&mut self, id: OpId) {
        if self.end_orphan(id) || !self.locate(id) || !self.know_forms(id) {
            return;
        }
        self.cx.epochs.enter(&mut self.ops[id].epoch);
        self.release_scratch(id);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        avoid_stragglers(cx, ios, &mut self.ops[id]);
        let left = left_to_repair(&self.cx, self.entries(), &self.ops[id]);
        if let (Some(left), Task::Repair(repair)) = (left, &mut self.ops[id].task) {
            repair.blocks = left;
        }
        // The trials were read into memory that has been released.
        if let Some(arbitration) = self.ops[id].found.arbitration.written() {
            arbitration.drop_trials();
        }
        let known = Known {
            cx: &self.cx,
            ios: &self.ios,
            overlay: &self.overlay,
            pages: &self.pages,
        };
        match begin_plan(&self.balance, &known, &self.ops[id]) {
            Beginning::Blank => self.blank(id),
            Beginning::LogZeroes => {
                let unit = records::unit_of_zeroes(id, &self.ops[id]);
                self.log_units(id, vec![unit]);
            }
            Beginning::Relog => self.relog(id),
            Beginning::Discard(what) => self.discard(id, what),
            Beginning::Trials => self.read_doubted(id),
            Beginning::Read(plan) => self.read(id, plan),
            Beginning::Pages(names) => self.fetch_pages(id, names),
            Beginning::Closely => self.plan_closely(id),
        }
    }

    /// Plans an operation by the state of each of its blocks.
    fn plan_closely(&mut self, id: OpId) {
        if !self.compare_pages(id) {
            return;
        }
        let op = &self.ops[id];
        let group = op.group;
        if finds_losses(op)
            && self.recovery.is_none()
            && let Err(missing) = self.load_map(group)
        {
            self.fetch_pages(id, missing);
            return;
        }
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let op = self.ops.planning(id);
        match closely(&mut self.cx, &self.ios, entries, &self.maps, op) {
            Planned::Plan(plan, scratch) => {
                self.pin(id);
                self.go(id, plan, scratch);
            }
            Planned::Pages(missing) => self.fetch_pages(id, missing),
            // Its reader waits for the late drive.
            Planned::Wait if matches!(self.ops[id].owner, Owner::Hedge(_)) => {
                self.end(id, Err(Fault::Lost));
            }
            Planned::Wait | Planned::Retry => self.ops.run(id),
            Planned::Probe(seats) => self.probe(id, &seats),
            Planned::Lost if self.ops[id].moves_from().is_some() => self.cancel_move(id),
            Planned::Lost if matches!(self.ops[id].task, Task::Convert(_)) => {
                self.end(id, Err(Fault::Lost));
            }
            Planned::Lost => self.lost(id),
        }
    }

    /// Continues an operation by its plan.
    fn go(&mut self, id: OpId, plan: Plan, scratch: ScratchId) {
        let about = (&self.ops[id], &plan);
        let progress = (self.log.flushed(), self.recovery.is_none());
        let way = way(&self.cx, &self.ios, self.entries(), progress, about);
        match way {
            Way::Lock => return self.ops.lock(&mut self.cx, id),
            Way::Pages(missing) => return self.fetch_pages(id, missing),
            Way::CancelMove => return self.cancel_move(id),
            Way::Move if self.begin_move(id) => return,
            Way::Straight | Way::InPlace | Way::Move => {}
        }
        provide_memory(&mut self.cx, &mut self.ops[id], &plan, scratch);
        if way == Way::InPlace {
            self.begin_direct(id);
        }
        self.read(id, plan);
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
                self.ops[id].memory.scratch = Some(scratch);
                let memory = Action::Allocate(scratch, plan.scratch_bytes);
                self.cx.actions.push_back(memory);
                self.read(id, plan);
            }
        }
    }

    /// Logs blocks again from the memory that holds them.
    fn relog(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        let Task::Relog(names) = &op.task else {
            unreachable!("it is logged again");
        };
        let (plan, pinned) = preserved::plan_relog(&self.cx, &self.overlay, names);
        op.memory.pinned = pinned.into_iter().collect();
        op.plan = Some(plan);
        self.pin(id);
        self.compute(id);
    }

    /// True if no block of a group is logged.
    fn is_unlogged(&self, group: GroupId) -> bool {
        let pages = u32::try_from(self.cx.geometry.pages_per_cell()).expect("few pages");
        let logged = |column| {
            let block = 0;
            let first = BlockName {
                group,
                column,
                block,
            };
            self.overlay.holds(first, pages * ENTRIES_PER_META_PAGE)
        };
        !self.overlay.has_zeroed(group) && !self.cx.geometry.columns().any(logged)
    }

    /// Makes a whole group blank.
    fn blank(&mut self, id: OpId) {
        let group = self.ops[id].group;
        debug_assert!(
            self.is_unlogged(group),
            "nothing of group {group} is logged"
        );
        self.maps.drop_group(group);
        let page = self.pages.blank();
        if !self.checkpoints.writes_of(group) {
            // Earlier operations on the stripes may have read old pages of the group after these were dropped.
            self.pages.drop_group(group);
            let checkpoint = self.checkpoints.pages(self.log.anchor());
            self.pages.put_blank(&self.cx, &checkpoint, group, &page);
        }
        let scratch = self.cx.fresh_scratch();
        let (plan, puts) = plan_blank(&self.cx, &page, group, scratch);
        self.cx
            .actions
            .push_back(Action::Allocate(scratch, plan.scratch_bytes));
        let op = &mut self.ops[id];
        op.memory.scratch = Some(scratch);
        op.memory.puts = puts;
        op.plan = Some(plan);
        self.compute(id);
    }

    /// Reads the anchor of the journal from drives that have failed an operation's reads.
    fn probe(&mut self, id: OpId, seats: &BTreeSet<Seat>) {
        self.release_scratch(id);
        let scratch = self.cx.fresh_scratch();
        let op = &mut self.ops[id];
        op.memory.scratch = Some(scratch);
        op.phase = Phase::Fetching;
        op.found.probe = Probe::Asks {
            left: seats.len(),
            failed: false,
        };
        let bytes = seats.len() as u64 * BLOCK_BYTES;
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        let offset = self.cx.geometry.anchor_offset(self.cx.lane);
        for (index, &seat) in (0..).zip(seats) {
            let slice = Slice {
                buffer: BufferId::Scratch(scratch),
                offset: index * BLOCK_BYTES,
                length: BLOCK_BYTES,
            };
            let (purpose, service) = (
                Purpose::Probe { op: id },
                Service::prompt(Origin::Checkpoint),
            );
            let place = (seat, offset);
            { &mut self.ios }.submit_slice(
                &mut self.cx,
                purpose,
                service,
                IoKind::Read,
                place,
                slice,
            );
        }
    }

    /// A drive that has failed reads of an operation has been read elsewhere. If one of them does not work, the operation
    /// fails. Otherwise its blocks are read once more.
    pub(crate) fn probed(&mut self, id: OpId, outcome: Outcome) {
        let op = &mut self.ops[id];
        let Probe::Asks { left, failed } = op.found.probe else {
            unreachable!("it has asked drives");
        };
        let failed = failed || outcome.is_err();
        op.found.probe = match left {
            1 => Probe::Answered,
            left => Probe::Asks {
                left: left - 1,
                failed,
            },
        };
        if left > 1 {
            return;
        }
        if failed {
            self.fails_by_drives(id);
            return;
        }
        op.found.bad.clear();
        op.found.read_fault = None;
        op.found.retries = 0;
        self.ops.run(id);
    }

    /// An operation fails because drives do not work that stay.
    pub(crate) fn fails_by_drives(&mut self, id: OpId) {
        self.cx.events.push_back(Event::DrivesFail);
        self.end(id, Err(Fault::Medium));
    }

    /// An operation needs more blocks than are available.
    pub(crate) fn lost(&mut self, id: OpId) {
        let op = &self.ops[id];
        let fault = fault_of_loss(&self.cx, op);
        let kind = match op.owner {
            Owner::Request(request) => self.requests.kind(request),
            Owner::Job(_) | Owner::Background | Owner::Recovery | Owner::Hedge(_) => {
                RequestKind::Read
            }
        };
        // Recovery may leave out stripes that it cannot repair.
        if op.owner != Owner::Recovery {
            self.cx.events.push_back(Event::StripeLost {
                group: op.group,
                stripe: op.stripes.start,
                kind,
            });
        }
        self.end(id, Err(fault));
    }

    pub(crate) fn read(&mut self, id: OpId, plan: Plan) {
        let op = &mut self.ops[id];
        op.found.checked = false;
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

    /// Keeps the batches in memory that an operation's plan reads.
    fn pin(&mut self, id: OpId) {
        for &sequence in &self.ops[id].memory.pinned {
            self.overlay.pin(sequence);
        }
    }
}
