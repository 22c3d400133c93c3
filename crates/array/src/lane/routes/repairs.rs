//! Repairs: what an operation has found is repaired by operations of their own, for which a scrub waits.

use block::Outcome;

use crate::lane::Lane;
use crate::lane::blocks::Entries;
use crate::lane::op::Op;

impl Lane {
    /// Starts repairs of what an operation has found bad or unknown.
    pub(in crate::lane) fn begin_repairs(&mut self, op: &Op, outcome: Outcome) {
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        for repair in { &mut self.repairs }.found(&self.cx, entries, op, outcome) {
            if let Some(job) = repair.repair.scrub {
                self.jobs.repair_begins(job);
            }
            self.start(repair);
        }
    }

    /// A repair has ended.
    pub(in crate::lane) fn repair_ended(&mut self, op: &Op, outcome: Outcome) {
        let (cx, assessed) = (&mut self.cx, &op.repair.assessed);
        let lost = match outcome {
            Ok(()) => self.losses.assessed(cx, op.group, assessed),
            Err(_) => 0,
        };
        let mended = self.repairs.ended(cx, op, outcome);
        if let Some(job) = op.repair.scrub
            && self.jobs.repair_ended(job, mended, lost)
        {
            self.step_job(job);
        }
    }
}
