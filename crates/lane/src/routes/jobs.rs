//! Routes for jobs of groups: their steps are operations, and jobs wait for checkpoints and flushes.

use block::Outcome;
use format::seeded::{self, SeededFault};
use format::{BlockName, GroupId, Sequence};
use plan::action::Event;

use crate::checkpoint::CheckpointWaiter;
use crate::flush::Waiter;
use crate::ids::{JobId, OpId};
use crate::jobs::{Begun, Ended, Job, Next};
use crate::op::{Op, Owner};
use crate::{Lane, fills, records};

impl Lane {
    pub(crate) fn begin_job(&mut self, job: Job) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let (id, begun) = self.jobs.begin(cx, ios, job, self.log.next_sequence());
        match begun {
            Begun::Looks => {}
            Begun::Checkpoint if self.has_no_records(id) => self.job_checkpointed(id),
            Begun::Checkpoint => self.checkpoints.await_next(CheckpointWaiter::Job(id), []),
            Begun::Steps => self.step_job(id),
        }
    }

    /// Begins a scrub of a group. Copies of pages are compared when they are read, and pages in memory would hide a bad
    /// copy: theirs are read and compared first.
    pub(crate) fn begin_scrub(&mut self, group: GroupId) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        if !seeded::is(SeededFault::ScrubKeepsPages) {
            let checkpoint = self.checkpoints.pages(self.log.anchor());
            self.pages.compare_copies(cx, ios, &checkpoint, group);
        }
        let (id, _) =
            { &mut self.jobs }.begin(cx, ios, Job::scrub(group), self.log.next_sequence());
        if !self.pages.reads_group(group) {
            self.step_job(id);
        }
    }

    /// A page of a group has been read: a scrub of the group may have waited for its comparison.
    pub(crate) fn begin_compared_scrub(&mut self, group: GroupId) {
        if !self.pages.reads_group(group)
            && let Some(id) = self.jobs.scrub_to_begin(group)
        {
            self.step_job(id);
        }
    }

    /// True if the group that a job makes blank needs no checkpoint for that: the ring has no records of it, and nothing
    /// is under way that could log or write any.
    fn has_no_records(&self, id: JobId) -> bool {
        let Some(group) = self.jobs.zeroes(id) else {
            return false;
        };
        let records_end = match seeded::is(SeededFault::BlankUnderRecords) {
            true => Sequence(0),
            false => self.uninitialized.records_end(),
        };
        self.uninitialized.contains(group)
            && self.log.tail_fault().is_none()
            && self.log.ring().is_oldest(records_end)
            && !self.checkpoints.writes_of(group)
            && self.ops.iter().all(|(_, op)| op.group != group)
    }

    /// Keeps the job's steps in flight; ends the job when there are no more.
    pub(crate) fn step_job(&mut self, id: JobId) {
        loop {
            match self.jobs.next(&mut self.cx, id) {
                Next::Step {
                    group,
                    stripes,
                    task,
                } => self.start(Op::new(Owner::Job(id), group, stripes, task)),
                Next::Wait => return,
                Next::Checkpoint(pages) => {
                    self.checkpoints
                        .await_next(CheckpointWaiter::Job(id), pages);
                    return;
                }
                Next::Flush if self.begin_flush(Waiter::Job(id)) => return,
                Next::Flush => return self.end_job(id, Ok(())),
                Next::End(outcome) => return self.end_job(id, outcome),
            }
        }
    }

    /// The checkpoint that a job waited for has ended.
    pub(crate) fn job_checkpointed(&mut self, id: JobId) {
        match self.jobs.checkpointed(id, self.log.tail_fault()) {
            Some(group) => {
                self.pages.drop_group(group);
                self.maps.drop_group(group);
                self.losses.forget(group);
                self.step_job(id);
            }
            None => self.end_job(id, Ok(())),
        }
    }

    /// Resumes jobs that have made way for clients, if it is time.
    pub(crate) fn resume_jobs(&mut self) {
        for id in self.jobs.due(self.cx.now) {
            self.step_job(id);
        }
    }

    /// The job is done and durable, or has failed with none of its operations in flight.
    pub(crate) fn end_job(&mut self, id: JobId, outcome: Outcome) {
        match self.jobs.end(&mut self.cx, id, outcome) {
            Ended::Reported => {}
            Ended::Scrubbed => {
                if self.pages.dirty().next().is_some() {
                    self.checkpoints.want();
                }
            }
            Ended::FillFailed {
                group,
                column,
                target,
                fault,
            } => {
                self.cx
                    .change_view(|view, geometry| view.abandon_fill(geometry, group, column));
                // Requests that were planned before still write to the target. The target must not be used for anything
                // else before they have ended.
                self.cx.epochs.report_drained(Event::FillFailed {
                    group,
                    column,
                    target,
                    fault,
                });
            }
        }
    }

    /// Compares the target's pages with the cached ones, for the stripes of a step of a fill. False if pages must be
    /// read first: then the operation waits for them.
    pub(crate) fn compare_pages(&mut self, id: OpId) -> bool {
        let op = &self.ops[id];
        let Owner::Job(job) = op.owner else {
            return true;
        };
        match fills::compare_pages(&self.cx, &mut self.pages, op) {
            Ok(stale) => {
                for name in stale {
                    self.jobs.page_is_stale(job, name);
                }
                true
            }
            Err(missing) => {
                self.fetch_pages(id, missing);
                false
            }
        }
    }

    /// The blocks of a fill have these checksums. False if the fill must be planned again.
    pub(crate) fn note_filled(&mut self, id: OpId, sums: &[u32]) -> bool {
        if self.cx.trusted {
            return true;
        }
        let op = &self.ops[id];
        let names = records::written_blocks(&self.cx, op)
            .into_iter()
            .map(|(name, _)| name);
        let blocks: Vec<(BlockName, u32)> = names.zip(sums.iter().copied()).collect();
        let (overlay, pages) = (&mut self.overlay, &mut self.pages);
        fills::note_filled(
            &mut self.cx,
            overlay,
            pages,
            op,
            &blocks,
            self.log.completed(),
        )
    }
}
