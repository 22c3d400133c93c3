//! Routes for repairs: blocks that an operation has found bad are repaired by separate operations, and a scrub waits
//! for these.

use block::Outcome;
use format::seeded::{self, SeededFault};

use crate::Lane;
use crate::entries::Entries;
use crate::op::{Op, Owner, Repair, Task};

impl Lane {
    /// Starts the repairs of blocks that an operation has found bad or unknown.
    pub(crate) fn begin_repairs(&mut self, op: &Op, outcome: Outcome) {
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        for repair in { &mut self.repairs }.found(&self.cx, entries, op, outcome) {
            if let Task::Repair(Repair {
                scrub: Some(job), ..
            }) = repair.task
            {
                self.jobs.repair_begins(job);
            }
            self.start(repair);
        }
    }

    /// A repair has ended.
    fn repair_ended(&mut self, op: &Op, repair: &Repair, outcome: Outcome) {
        let cx = &mut self.cx;
        let lost = match outcome {
            Ok(()) => self.losses.assessed(cx, op.group, &repair.assessed),
            Err(_) => 0,
        };
        let mended = self.repairs.ended(cx, op, outcome);
        if let Some(job) = repair.scrub
            && self.jobs.repair_ended(job, (mended, lost), outcome)
        {
            self.step_job(job);
        }
    }

    /// An operation has ended: repairs the blocks that it has found bad, and updates losses and job.
    pub(crate) fn after(&mut self, op: &Op, outcome: Outcome) {
        if self.cx.geometry.regions().is_none() || op.owner == Owner::Recovery {
            return;
        }
        if let Task::Repair(repair) = &op.task {
            self.repair_ended(op, repair, outcome);
            return;
        }
        if matches!(op.task, Task::Relog(_)) {
            self.relogged(outcome);
            return;
        }
        if let (Owner::Job(job), Task::Scrub) = (op.owner, &op.task) {
            let bad = op.found.bad.len() + op.found.arbitration.in_doubt();
            self.jobs.verified(job, op.found.verified, bad as u64);
        }
        if let (Owner::Job(job), Task::Convert(convert)) = (op.owner, &op.task)
            && outcome.is_ok()
        {
            self.jobs.converted(job, convert.counts());
        }
        if let (Owner::Job(job), Task::Fill { .. }) = (op.owner, &op.task) {
            self.jobs
                .verified(job, op.found.verified, op.found.bad.len() as u64);
        }
        if self.recovery.is_some() || seeded::is(SeededFault::RepairWithoutWrite) {
            return;
        }
        if outcome.is_ok() {
            { &mut self.losses }.op_ended_well(&mut self.cx, &self.maps, op);
        }
        let trim = matches!((op.owner, &op.task), (Owner::Request(_), Task::Zero));
        if trim && seeded::is(SeededFault::DiscardUnflushed) {
            self.discards.trimmed(op.group, &op.stripes);
            self.begin_discard();
        }
        self.begin_repairs(op, outcome);
    }
}
