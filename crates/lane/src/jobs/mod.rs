//! Jobs: work on a whole group, a few stripes at a time.
//!
//! ```text
//!   fill ──── scans the pages of its target ──┐                              ┌─ its pages are written ─► Filled
//!                                              ├─► steps … the last ended ───┤
//!   zero ──── the group's earlier data is ─────┤   (a scrub also waits for   ├─ flushed ─► Zeroed, Resynced
//!             out of the ring (a checkpoint,   │    the repairs of what it   │
//!             if the ring may have some)       │                             │
//!   scrub, resync ─────────────────────────────┘    has found)               └─► Scrubbed
//! ```
//!
//! A job is asked for its next step until it has none; each step is an operation on some of the group's stripes.
//!
//! Invariants:
//! - A job ends once, when none of its steps and repairs is in flight.
//! - A job that has failed takes no more steps.
//! - While clients send requests, the fills and scrubs of a lane have one step in flight together (`pace.rs`).

mod catchup;
mod job;
mod pace;

use std::collections::BTreeMap;
use std::ops::Range;

use block::{Fault, Instant, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{Column, Entry, GroupId, PageName, Sequence, StripeId};
use layout::Cell;
use plan::Geometry;
use plan::action::{Event, FormCounts, Steer};

pub(super) use self::job::Job;
use self::job::{CONVERT_STEP_BYTES, Kind, STEP_BYTES};
use self::pace::Pacer;
use super::context::Context;
use super::ids::JobId;
use super::io::IoTable;
use super::op::Task;

/// How a job begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Begun {
    /// With a scan of the pages of its target.
    Looks,
    /// When a checkpoint has ended.
    Checkpoint,
    /// With its first step.
    Steps,
}

/// What a job does next.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// A step: this task on these stripes of the group. Then the job is to be asked again.
    Step {
        group: GroupId,
        stripes: Range<StripeId>,
        task: Task,
    },
    /// Wait until something has ended, or time has passed.
    Wait,
    /// A checkpoint that writes these pages. Then [`GroupJobs::checkpointed`].
    Checkpoint(Vec<PageName>),
    /// A flush, and then its end.
    Flush,
    /// Its end.
    End(Outcome),
}

/// What is to be done when a job has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Nothing more.
    Reported,
    /// A checkpoint makes the copies of pages that differ alike.
    Scrubbed,
    /// The fill has failed. The view gives up its target, and the event is reported when no operation that was planned
    /// before is in flight.
    FillFailed {
        group: GroupId,
        column: Column,
        target: Cell,
        fault: Fault,
    },
}

/// The jobs of one lane, and their pacing for clients.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupJobs {
    jobs: BTreeMap<JobId, Job>,
    pacer: Pacer,
}

/// Number of stripes that have this many bytes of one cell.
pub(super) fn stripes_in(geometry: &Geometry, bytes: u64) -> u64 {
    let rows = u64::from(geometry.code().rows());
    (bytes / (geometry.chunk_bytes() * rows)).max(1)
}

impl GroupJobs {
    /// Takes a job on. `next_sequence`: the number of the next batch.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        job: Job,
        next_sequence: Sequence,
    ) -> (JobId, Begun) {
        let id = JobId(cx.fresh());
        let zero = matches!(job.kind, Kind::Zero);
        let scans = job.scan.as_ref().filter(|_| job.fault.is_none());
        // A scan helps only if entries from before that batch can be distinguished from later ones.
        let can_look = |before: Sequence| next_sequence.0.saturating_sub(before.0) < Entry::AGE_MAX;
        let scans = scans.is_some_and(|scan| can_look(scan.before));
        let target = match job.kind {
            Kind::Fill { target, .. } if scans => Some(target),
            _ => None,
        };
        self.jobs.insert(id, job);
        let begun = if let Some(target) = target {
            self.scan_target(cx, ios, id, target);
            Begun::Looks
        } else if zero && cx.geometry.regions().is_some() {
            // Nothing that was logged of the group's earlier data may be recovered later.
            self.job(id).waiting = true;
            Begun::Checkpoint
        } else {
            Begun::Steps
        };
        (id, begun)
    }

    fn job(&mut self, id: JobId) -> &mut Job {
        self.jobs.get_mut(&id).expect("a job lives until it ends")
    }

    /// The checkpoint that a job waited for has ended, with this fault if it has failed. Returns the group if it is
    /// made unwritten now; otherwise the job is at its end.
    pub(super) fn checkpointed(&mut self, id: JobId, fault: Option<Fault>) -> Option<GroupId> {
        let job = self.job(id);
        job.waiting = false;
        job.fault = job.fault.or(fault);
        let begins = matches!(job.kind, Kind::Zero) && job.fault.is_none();
        begins.then_some(job.group)
    }

    /// True if a job works on a group, or will.
    pub(super) fn has(&self, group: GroupId) -> bool {
        self.jobs.values().any(|job| job.group == group)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.jobs.is_empty()
    }

    /// The scrub of a group, if it has not taken its first step.
    pub(super) fn scrub_to_begin(&self, group: GroupId) -> Option<JobId> {
        let scrubs = |job: &Job| {
            job.group == group && matches!(job.kind, Kind::Scrub) && job.next_stripe == StripeId(0)
        };
        let mut jobs = self.jobs.iter();
        jobs.find_map(|(&id, job)| scrubs(job).then_some(id))
    }

    /// The group that a job is about to make unwritten.
    pub(super) fn zeroes(&self, id: JobId) -> Option<GroupId> {
        let job = &self.jobs[&id];
        matches!(job.kind, Kind::Zero).then_some(job.group)
    }

    /// True if the job fills a cell whose drive may have some of its blocks already.
    pub(super) fn catches_up(&self, id: JobId) -> bool {
        self.jobs[&id].catches_up
    }

    /// Stripes that one step takes.
    fn step_stripes(&self, cx: &Context, job: &Job) -> u64 {
        let paced = self.pacer.step_bytes();
        let metered = self.pacer.metered_bytes();
        match job.kind {
            Kind::Zero => cx.geometry.stripes_per_group(),
            Kind::Fill { .. } => {
                let all = cx.geometry.fill_step_bytes();
                let metered = metered.unwrap_or(all);
                stripes_in(&cx.geometry, paced.unwrap_or(all).min(metered))
            }
            Kind::Scrub => {
                let columns = u64::from(cx.geometry.layout().columns());
                let metered = metered.map_or(STEP_BYTES, |bytes| bytes / columns);
                let paced = paced.unwrap_or(STEP_BYTES).min(STEP_BYTES);
                stripes_in(&cx.geometry, paced.min(metered))
            }
            Kind::Resync => stripes_in(&cx.geometry, STEP_BYTES),
            Kind::Convert { to: None, .. } => stripes_in(&cx.geometry, STEP_BYTES),
            Kind::Convert { .. } => stripes_in(&cx.geometry, CONVERT_STEP_BYTES),
        }
    }

    /// Bytes that a step of a job moves: a fill writes one cell, a scrub reads all.
    fn moved_bytes(cx: &Context, job: &Job, stripes: u64) -> u64 {
        let rows = u64::from(cx.geometry.code().rows());
        let cells = match job.kind {
            Kind::Scrub => u64::from(cx.geometry.layout().columns()),
            Kind::Fill { .. } | Kind::Zero | Kind::Resync | Kind::Convert { .. } => 1,
        };
        stripes * cx.geometry.chunk_bytes() * rows * cells
    }

    /// What a job does next. A step that is returned is in flight from now on, and the job is to be asked again.
    pub(super) fn next(&mut self, cx: &mut Context, id: JobId) -> Next {
        let job = self.job(id);
        (job.paced, job.resume) = (false, None);
        let job = &self.jobs[&id];
        let all = StripeId(cx.geometry.stripes_per_group());
        let total = job.end_stripe.map_or(all, |end| end.min(all));
        if job.fault.is_none() && job.next_stripe < total {
            if job.in_flight >= job.steps_in_flight() || self.makes_way(cx, id) {
                return Next::Wait;
            }
            return self.step(cx, id, total);
        }
        if job.in_flight > 0 || job.repairs > 0 {
            return Next::Wait;
        }
        let journaled = cx.geometry.regions().is_some();
        match (job.fault, &job.kind) {
            (Some(fault), _) => Next::End(Err(fault)),
            (None, Kind::Fill { .. }) if seeded::is(SeededFault::FillEarly) => Next::End(Ok(())),
            (None, &Kind::Fill { column, .. }) if journaled => {
                let group = job.group;
                let pages = self.pages_to_write(cx, id);
                self.job(id).waiting = true;
                cx.events.push_back(Event::Copied { group, column });
                Next::Checkpoint(pages)
            }
            (None, Kind::Scrub | Kind::Convert { .. }) => Next::End(Ok(())),
            (None, Kind::Fill { .. } | Kind::Zero | Kind::Resync) => Next::Flush,
        }
    }

    fn step(&mut self, cx: &Context, id: JobId, total: StripeId) -> Next {
        let job = &self.jobs[&id];
        let first = job.next_stripe;
        let next = total.min(first.plus(self.step_stripes(cx, job)));
        let moves = Self::moved_bytes(cx, job, StripeId::count(&(first..next)));
        let job = self.job(id);
        job.next_stripe = next;
        job.in_flight += 1;
        job.began = cx.now;
        let step = Next::Step {
            group: job.group,
            stripes: first..next,
            task: job.task(),
        };
        if job.kind.makes_way() {
            self.pacer.begins(moves);
        }
        step
    }

    /// True if a job must not take its next step yet because of clients.
    fn makes_way(&mut self, cx: &mut Context, id: JobId) -> bool {
        let job = &self.jobs[&id];
        if !job.kind.makes_way() {
            return false;
        }
        if job.yields {
            self.job(id).paced = true;
            return true;
        }
        let urgent = matches!(job.kind, Kind::Fill { .. }) && is_urgent(cx, job.group);
        let left = cx.geometry.stripes_per_group() - job.next_stripe.0;
        let stripes = left.min(self.step_stripes(cx, job));
        let moves = Self::moved_bytes(cx, job, stripes);
        let waits = self.pacer.waits(cx, urgent, moves);
        let job = self.job(id);
        job.urgent = urgent;
        job.paced = waits.is_some();
        job.resume = waits.flatten();
        job.paced
    }

    /// Jobs that have made way may go on at this time.
    fn resume_paced(&mut self, at: Instant) {
        let goes_on = |job: &&mut Job| job.paced && !job.yields;
        for job in self.jobs.values_mut().filter(goes_on) {
            job.resume = Some(at);
        }
    }

    /// A more urgent fill uses a drive of this one, or none does any more: then it may be [`due`](Self::due).
    pub(super) fn yield_fill(
        &mut self,
        now: Instant,
        (group, column): (GroupId, Column),
        yields: bool,
    ) {
        for job in self.jobs.values_mut() {
            if job.group == group && job.column_filled() == Some(column) {
                job.yields = yields;
                if !yields && job.paced {
                    job.resume = Some(now);
                }
            }
        }
    }

    /// What an administrator has set: some jobs may be [`due`](Self::due).
    pub(super) fn steer(&mut self, now: Instant, steer: Steer) {
        self.pacer.steer(now, steer);
        self.resume_paced(now);
    }

    /// The pool has granted bytes: some jobs may be [`due`](Self::due).
    pub(super) fn granted(&mut self, now: Instant, bytes: u64) {
        self.pacer.granted(bytes);
        self.resume_paced(now);
    }

    /// Fills of groups that cannot lose another column do not rest.
    fn resume_urgent(&mut self, now: Instant) {
        for job in { self.jobs.values_mut() }.filter(|job| job.paced && job.urgent && !job.yields) {
            job.resume = Some(now);
        }
    }

    /// When a job that has made way for clients goes on.
    pub(super) fn resume_at(&self) -> Option<Instant> {
        self.jobs.values().filter_map(|job| job.resume).min()
    }

    /// The jobs that go on now, in this order: the first of the jobs that make way takes the turn, and a scrub waits
    /// for the lane's fills.
    pub(super) fn due(&self, now: Instant) -> Vec<JobId> {
        let due = |job: &Job| job.resume.is_some_and(|at| at <= now);
        let due = self.jobs.iter().filter(|(_, job)| due(job));
        let mut due: Vec<(bool, JobId)> = due
            .map(|(&id, job)| (matches!(job.kind, Kind::Scrub), id))
            .collect();
        due.sort_unstable();
        due.into_iter().map(|(_, id)| id).collect()
    }

    /// A client has sent a request.
    pub(super) fn client_asks(&mut self, cx: &mut Context) {
        self.pacer.client_asks(cx);
    }

    /// When clients count as gone, if they send nothing before.
    pub(super) fn clients_gone_at(&self) -> Option<Instant> {
        self.pacer.clients_gone_at()
    }

    /// Time has passed: clients may be gone. `waiting`: some clients wait for an answer.
    pub(super) fn clients_gone(&mut self, cx: &mut Context, waiting: bool) {
        self.pacer.clients_gone(cx, waiting);
    }

    /// Sets whether the pool needs reports of whether clients send requests. True if some jobs are [`due`](Self::due).
    pub(super) fn report_clients(&mut self, cx: &mut Context, wanted: bool) -> bool {
        let go_on = self.pacer.report_clients(cx, wanted);
        if go_on {
            self.resume_paced(cx.now);
        }
        go_on
    }

    /// The pool has decided that fills and scrubs make way from now on, or need not any more. True if some jobs are
    /// [`due`](Self::due).
    pub(super) fn make_way(&mut self, now: Instant, makes_way: bool) -> bool {
        let go_on = self.pacer.make_way(now, makes_way);
        if go_on {
            self.resume_paced(now);
        }
        go_on
    }

    /// A job's step has compared blocks with their checksums.
    pub(super) fn verified(&mut self, id: JobId, blocks: u64, bad: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.verified.0 += blocks;
            job.verified.1 += bad;
        }
    }

    /// A scrub waits for one more repair.
    pub(super) fn repair_begins(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.repairs += 1;
        }
    }

    /// A repair for which a scrub waits has ended. True if the job is to be asked for what it does next.
    pub(super) fn repair_ended(
        &mut self,
        id: JobId,
        (mended, lost): (u64, u64),
        outcome: Outcome,
    ) -> bool {
        let job = self.jobs.get_mut(&id);
        let waits = job.is_some();
        if let Some(job) = job {
            job.repairs -= 1;
            job.repair_fault = job.repair_fault.or(outcome.err());
            job.repaired.0 += mended;
            job.repaired.1 += lost;
        }
        waits
    }

    /// A job's step has counted and converted stripes.
    pub(super) fn converted(&mut self, id: JobId, forms: FormCounts) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.forms.add(forms);
        }
    }

    /// Stripes of a group, or of any, are converted no more.
    pub(super) fn stop_conversions(&mut self, group: Option<GroupId>) {
        for job in self.jobs.values_mut() {
            let stops = group.is_none_or(|group| job.group == group);
            if stops && matches!(job.kind, Kind::Convert { .. }) {
                job.fail(Fault::Shutdown);
                // A job that makes way for clients ends now.
                job.resume = job.paced.then_some(Instant::ZERO);
            }
        }
    }

    /// A fill has read so many bytes, and writes so many to its target.
    pub(super) fn copies(&mut self, id: JobId, read: u64, bytes: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.copied_bytes += bytes;
            job.step_copied_bytes += bytes;
            job.step_read_bytes += read;
        }
    }

    /// A step has ended. Then the job is to be asked for what it does next.
    pub(super) fn step_ended(
        &mut self,
        cx: &mut Context,
        id: JobId,
        stripes: &Range<StripeId>,
        outcome: Outcome,
    ) {
        let stripe_bytes = cx.geometry.chunk_bytes() * u64::from(cx.geometry.code().rows());
        let job = self.jobs.get_mut(&id);
        let job = job.expect("a job outlives its operations");
        job.in_flight -= 1;
        let read_bytes = std::mem::take(&mut job.step_read_bytes);
        let copied_bytes = std::mem::take(&mut job.step_copied_bytes);
        if let (None, Err(fault)) = (job.fault, outcome) {
            job.fault = Some(fault);
        }
        if let Kind::Fill { column, .. } = job.kind
            && outcome.is_ok()
        {
            cx.events.push_back(Event::FillStepped {
                group: job.group,
                column,
                bytes: StripeId::count(stripes) * stripe_bytes,
                read_bytes,
                verified_blocks: std::mem::take(&mut job.verified.0),
            });
        }
        if job.kind.makes_way() {
            let took = cx.now.since(job.began);
            let rests = (job.urgent, job.kind.rest_min());
            let moved = StripeId::count(stripes) * stripe_bytes;
            let unused = match job.kind {
                // What the target had, and what reads as zeros, is not copied.
                Kind::Fill { .. } => moved.saturating_sub(copied_bytes),
                Kind::Scrub | Kind::Zero | Kind::Resync | Kind::Convert { .. } => 0,
            };
            self.pacer.ended(cx.now, took, rests, unused);
            self.resume_paced(self.pacer.rests_until());
            self.resume_urgent(cx.now);
        }
    }

    /// A job is done and durable, or has failed and has nothing in flight.
    pub(super) fn end(&mut self, cx: &mut Context, id: JobId, outcome: Outcome) -> Ended {
        let job = self.jobs.remove(&id).expect("a job ends once");
        let group = job.group;
        let outcome = job.fault.map_or(outcome, Err);
        match (job.kind, outcome) {
            (Kind::Fill { column, target, .. }, Ok(())) => {
                cx.events.push_back(Event::Filled {
                    group,
                    column,
                    target,
                    copied_bytes: job.copied_bytes,
                });
            }
            (Kind::Fill { column, target, .. }, Err(fault)) => {
                return Ended::FillFailed {
                    group,
                    column,
                    target,
                    fault,
                };
            }
            (Kind::Zero, outcome) => cx.events.push_back(Event::Zeroed { group, outcome }),
            (Kind::Resync, outcome) => cx.events.push_back(Event::Resynced { group, outcome }),
            (Kind::Scrub, outcome) => {
                // The rest of the group has been scrubbed nevertheless.
                let outcome = outcome.and(job.repair_fault.map_or(Ok(()), Err));
                cx.events.push_back(Event::Scrubbed {
                    group,
                    blocks: job.verified.0,
                    bad: job.verified.1,
                    mended: job.repaired.0,
                    lost: job.repaired.1,
                    outcome,
                });
                return Ended::Scrubbed;
            }
            (Kind::Convert { .. }, outcome) => cx.events.push_back(Event::Converted {
                group,
                stripes: job.first_stripe..job.next_stripe,
                forms: job.forms,
                outcome,
            }),
        }
        Ended::Reported
    }

    /// Fails the fills onto a drive that is out.
    pub(super) fn lost_seat(&mut self, now: Instant, seat: Seat) {
        for job in self.jobs.values_mut() {
            if let Kind::Fill { target, .. } = &job.kind
                && target.seat == seat
            {
                job.fail(Fault::Gone);
                job.ends_at(now);
            }
        }
    }

    /// Stops a fill that is under way, for `Command::Abandon`; it ends with `FillFailed`.
    pub(super) fn abandon_fill(&mut self, now: Instant, group: GroupId, column: Column) {
        for job in self.jobs.values_mut() {
            if job.group == group && job.column_filled() == Some(column) {
                job.fail(Fault::Shutdown);
                job.ends_at(now);
            }
        }
    }

    /// Stops the scrub of a group. Returns the jobs that are to be asked for what they do next.
    pub(super) fn abandon_scrub(&mut self, group: GroupId) -> Vec<JobId> {
        let scrubs = |job: &Job| job.group == group && matches!(job.kind, Kind::Scrub);
        let scrubs = self.jobs.iter_mut().filter(|(_, job)| scrubs(job));
        scrubs
            .map(|(&id, job)| {
                job.fail(Fault::Shutdown);
                id
            })
            .collect()
    }
}

/// True if a group cannot lose another column.
fn is_urgent(cx: &Context, group: GroupId) -> bool {
    let columns = cx.view().columns(&cx.geometry, group);
    let absent = columns.iter().filter(|column| !column.readable()).count();
    absent >= usize::from(cx.geometry.code().tolerance())
}

#[cfg(test)]
mod tests;
