//! Jobs: what is done to a whole group, a few stripes at a time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};
use layout::Cell;

use super::Lane;
use super::catchup::{Held, Look};
use super::checkpoint::Wanting;
use super::flush::Waiter;
use super::ids::JobId;
use super::op::{Op, Owner, Task};
use crate::action::Event;
use crate::format::PageName;
use crate::seeded::{self, Bug};

/// Bytes of one cell that a step of a scrub or resync reads. Clients wait for its stripes' locks.
/// A scrub's is shorter while clients ask (`pace.rs`).
pub(super) const STEP_BYTES: u64 = 1 << 20;

/// Steps of a scrub or resync in flight: one reads while the other writes.
const STEPS_IN_FLIGHT: u64 = 2;

/// Bytes of one cell that a step of a fill moves. A disk turns to another fill after each step: in a rebuild at 7,200 rpm
/// the arm and the rotation take 42 % of its time with 1 MiB, 22 % with 4 MiB. A step's memory is as many times this
/// as columns are read and written.
/// While clients ask it is shorter (`pace.rs`).
pub(crate) const FILL_STEP_BYTES: u64 = 4 << 20;

/// Steps of a fill in flight. Other fills keep the drives busy while this one writes; a second step would take the
/// memory of another fill, and reach fewer drives.
const FILL_STEPS_IN_FLIGHT: u64 = 1;

/// What a scrub rests at least after a step while clients ask: a mebibyte of each of the group's drives in this time.
const SCRUB_REST: Duration = Duration::from_millis(100);

/// Something to be done to every stripe of a group.
#[derive(Clone, Debug)]
pub(super) struct Job {
    group: u64,
    kind: Kind,
    next_stripe: u64,
    in_flight: u64,
    fault: Option<Fault>,
    /// A checkpoint that it needs is under way: before its first step, or after its last.
    waiting: bool,
    /// Blocks compared with their checksums, and how many of them were wrong.
    verified: (u64, u64),
    /// Heals of what a scrub has found that are under way.
    heals: u64,
    /// Blocks that these have mended, and blocks of data that they have found to be lost.
    healed: (u64, u64),
    /// It makes way for clients until then.
    resume: Option<Instant>,
    /// It is a fill or a scrub that makes way.
    paced: bool,
    /// What a fill's target has is yet to be looked at.
    pub(super) look: Option<Look>,
    /// What a fill's target has already.
    pub(super) held: Option<Arc<Held>>,
    /// A fill's target may have blocks already: if not in this life of the pool, then in the next.
    pub(super) catches_up: bool,
    /// Of the target's pages those that are not what they should be.
    pub(super) stale_pages: BTreeSet<PageName>,
    /// Bytes written to a fill's target.
    copied_bytes: u64,
}

#[derive(Clone, Debug)]
enum Kind {
    Fill {
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
    },
    Zero,
    Resync,
    Scrub,
}

impl Kind {
    /// Whether it makes way for clients. Nobody waits for a fill or a scrub as for a volume or a drive's blank pages.
    const fn makes_way(&self) -> bool {
        matches!(self, Self::Fill { .. } | Self::Scrub)
    }

    /// How long it rests at least after a step.
    const fn rest_min(&self) -> Duration {
        match self {
            Self::Scrub => SCRUB_REST,
            Self::Fill { .. } | Self::Zero | Self::Resync => Duration::ZERO,
        }
    }
}

impl Job {
    fn new(group: u64, kind: Kind) -> Self {
        Self {
            group,
            kind,
            next_stripe: 0,
            in_flight: 0,
            fault: None,
            waiting: false,
            verified: (0, 0),
            heals: 0,
            healed: (0, 0),
            resume: None,
            paced: false,
            look: None,
            held: None,
            catches_up: false,
            stale_pages: BTreeSet::new(),
            copied_bytes: 0,
        }
    }

    /// With `holds` the target has everything that was logged before that batch.
    pub(super) fn fill(
        group: u64,
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
        holds: Option<u64>,
    ) -> Self {
        let kind = Kind::Fill {
            column,
            target,
            avoid,
        };
        Self {
            look: holds.map(Look::new),
            catches_up: holds.is_some(),
            ..Self::new(group, kind)
        }
    }

    pub(super) fn zero(group: u64) -> Self {
        Self::new(group, Kind::Zero)
    }

    pub(super) fn resync(group: u64) -> Self {
        Self::new(group, Kind::Resync)
    }

    pub(super) fn scrub(group: u64) -> Self {
        Self::new(group, Kind::Scrub)
    }

    /// It ends with this fault, if not with an earlier one.
    pub(super) fn fail(&mut self, fault: Fault) {
        self.fault = self.fault.or(Some(fault));
    }

    /// Steps of it that may be in flight.
    const fn steps_in_flight(&self) -> u64 {
        match self.kind {
            Kind::Fill { .. } => FILL_STEPS_IN_FLIGHT,
            Kind::Zero | Kind::Resync | Kind::Scrub => STEPS_IN_FLIGHT,
        }
    }

    fn task(&self) -> Task {
        match &self.kind {
            Kind::Fill {
                column,
                target,
                avoid,
            } => Task::Fill {
                column: *column,
                target: *target,
                avoid: avoid.clone(),
                held: self.held.clone(),
            },
            Kind::Zero => Task::Zero,
            Kind::Resync => Task::Resync,
            Kind::Scrub => Task::Scrub,
        }
    }
}

impl Lane {
    pub(super) fn begin_job(&mut self, job: Job) {
        let id = JobId(self.cx.fresh());
        let zero = matches!(job.kind, Kind::Zero);
        let looks = job.look.as_ref().filter(|_| job.fault.is_none());
        let looks = looks.is_some_and(|look| self.can_look(look.before));
        let target = match job.kind {
            Kind::Fill { target, .. } if looks => Some(target),
            _ => None,
        };
        self.jobs.insert(id, job);
        if let Some(target) = target {
            self.look_at_target(id, target);
        } else if zero && self.cx.geometry.store().is_some() {
            // Nothing that was logged in the group's earlier life may come back.
            self.jobs.get_mut(&id).expect("just inserted").waiting = true;
            self.await_checkpoint(Wanting::Job(id), []);
        } else {
            self.step_job(id);
        }
    }

    /// The checkpoint that a job waited for has ended.
    pub(super) fn job_checkpointed(&mut self, id: JobId) {
        let fault = self.checkpoint_fault();
        let job = self.jobs.get_mut(&id).expect("it waits");
        job.waiting = false;
        job.fault = job.fault.or(fault);
        let (group, begins) = (job.group, matches!(job.kind, Kind::Zero));
        if begins && job.fault.is_none() {
            self.pages.drop_group(group);
            self.maps.drop_group(group);
            self.losses.forget(group);
            self.step_job(id);
        } else {
            self.end_job(id, Ok(()));
        }
    }

    /// Whether something is being done to a group, or will be.
    pub(super) fn has_job(&self, group: u64) -> bool {
        self.jobs.values().any(|job| job.group == group)
    }

    /// The group that a job is about to make unwritten.
    pub(super) fn zeroes(&self, id: JobId) -> Option<u64> {
        let job = &self.jobs[&id];
        matches!(job.kind, Kind::Zero).then_some(job.group)
    }

    /// Stripes that one step takes.
    fn step_stripes(&self, job: &Job) -> u64 {
        match job.kind {
            Kind::Zero => self.cx.geometry.stripes_per_group(),
            Kind::Fill { .. } => {
                let paced = self.pacer.step_bytes();
                self.stripes_in(paced.unwrap_or(FILL_STEP_BYTES))
            }
            Kind::Scrub => self.stripes_in(self.pacer.step_bytes().unwrap_or(STEP_BYTES)),
            Kind::Resync => self.stripes_in(STEP_BYTES),
        }
    }

    /// Stripes that have so many bytes of one cell.
    pub(super) fn stripes_in(&self, bytes: u64) -> u64 {
        let rows = u64::from(self.cx.geometry.code().rows());
        (bytes / (self.cx.geometry.chunk_bytes() * rows)).max(1)
    }

    /// Keeps the job's steps in flight; ends it when there are no more.
    pub(super) fn step_job(&mut self, id: JobId) {
        loop {
            let job = &self.jobs[&id];
            let total = self.cx.geometry.stripes_per_group();
            if job.fault.is_some() || job.next_stripe >= total {
                break;
            }
            if job.in_flight >= job.steps_in_flight() || self.makes_way(id) {
                return;
            }
            let job = &self.jobs[&id];
            let first = job.next_stripe;
            let next = total.min(first + self.step_stripes(job));
            let op = Op::new(Owner::Job(id), job.group, first..next, job.task());
            let job = self.jobs.get_mut(&id).expect("just seen");
            job.next_stripe = next;
            job.in_flight += 1;
            if job.kind.makes_way() {
                self.pacer.begins(self.cx.now);
            }
            self.start(op);
        }
        let job = &self.jobs[&id];
        if job.in_flight > 0 || job.heals > 0 {
            return;
        }
        let fault = job.fault;
        let store = self.cx.geometry.store().is_some();
        match fault {
            Some(fault) => self.end_job(id, Err(fault)),
            None if seeded::is(Bug::FillEarly) && matches!(job.kind, Kind::Fill { .. }) => {
                self.end_job(id, Ok(()));
            }
            None if store && matches!(job.kind, Kind::Fill { .. }) => {
                // The column's pages, and those beside it, must be at the target too.
                let mut pages = self.pages_beside(id);
                let job = self.jobs.get_mut(&id).expect("just seen");
                if job.held.is_some() {
                    pages = std::mem::take(&mut job.stale_pages).into_iter().collect();
                }
                job.waiting = true;
                if let Kind::Fill { column, .. } = job.kind {
                    let group = job.group;
                    self.cx.events.push_back(Event::Copied { group, column });
                }
                self.await_checkpoint(Wanting::Job(id), pages);
            }
            None if matches!(job.kind, Kind::Scrub) => self.end_job(id, Ok(())),
            None if self.begin_flush(Waiter::Job(id)) => {}
            None => self.end_job(id, Ok(())),
        }
    }

    /// Whether a job does not take its next step yet because of clients.
    fn makes_way(&mut self, id: JobId) -> bool {
        let job = &self.jobs[&id];
        if !job.kind.makes_way() {
            return false;
        }
        let urgent = matches!(job.kind, Kind::Fill { .. }) && self.is_urgent(id);
        let waits = self.pacer.waits(self.cx.now, urgent);
        let job = self.jobs.get_mut(&id).expect("it takes steps");
        job.paced = waits.is_some();
        job.resume = waits.flatten();
        job.paced
    }

    /// Whether the group that a fill is of cannot lose another column.
    fn is_urgent(&self, id: JobId) -> bool {
        let columns = self
            .cx
            .view()
            .columns(&self.cx.geometry, self.jobs[&id].group);
        let absent = columns.iter().filter(|column| !column.readable()).count();
        absent >= usize::from(self.cx.geometry.code().tolerance())
    }

    /// Jobs that have made way go on.
    pub(super) fn resume_paced_now(&mut self) {
        self.resume_paced(self.cx.now);
        self.resume_jobs();
    }

    /// Jobs that have made way may go on then.
    fn resume_paced(&mut self, at: Instant) {
        for job in self.jobs.values_mut().filter(|job| job.paced) {
            job.resume = Some(at);
        }
    }

    /// When a job that has made way for clients goes on.
    pub(super) fn resume_at(&self) -> Option<Instant> {
        self.jobs.values().filter_map(|job| job.resume).min()
    }

    pub(super) fn resume_jobs(&mut self) {
        let now = self.cx.now;
        let due = |job: &Job| job.resume.is_some_and(|at| at <= now);
        let due = self.jobs.iter().filter(|(_, job)| due(job));
        let mut due: Vec<(bool, JobId)> = due
            .map(|(&id, job)| (matches!(job.kind, Kind::Scrub), id))
            .collect();
        // Of jobs that make way the first one has its turn: a scrub waits for the lane's fills.
        due.sort_unstable();
        for (_, id) in due {
            self.step_job(id);
        }
    }

    /// The column that a job fills, if it fills one.
    pub(super) fn column_filled(&self, id: JobId) -> Option<u16> {
        match self.jobs[&id].kind {
            Kind::Fill { column, .. } => Some(column),
            Kind::Zero | Kind::Resync | Kind::Scrub => None,
        }
    }

    /// The pages beside the target of a fill, in their order on the drive.
    pub(super) fn pages_beside(&self, id: JobId) -> Vec<PageName> {
        let group = self.jobs[&id].group;
        let beside = self.column_filled(id);
        let beside = beside.map(|column| self.cx.geometry.pages_beside(column));
        let names = beside.into_iter().flatten();
        let names = names.map(|(column, index)| PageName {
            group,
            column,
            index,
        });
        names.collect()
    }

    pub(super) fn job_verified(&mut self, id: JobId, blocks: u64, bad: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.verified.0 += blocks;
            job.verified.1 += bad;
        }
    }

    /// A scrub waits for one more heal.
    pub(super) fn job_heals(&mut self, id: JobId) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.heals += 1;
        }
    }

    /// A heal for which a scrub waits has ended.
    pub(super) fn job_healed(&mut self, id: JobId, mended: u64, lost: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.heals -= 1;
            job.healed.0 += mended;
            job.healed.1 += lost;
            self.step_job(id);
        }
    }

    /// A fill writes so much to its target.
    pub(super) fn job_copies(&mut self, id: JobId, bytes: u64) {
        if let Some(job) = self.jobs.get_mut(&id) {
            job.copied_bytes += bytes;
        }
    }

    pub(super) fn job_op_ended(&mut self, id: JobId, stripes: &Range<u64>, outcome: Outcome) {
        let stripe_bytes =
            self.cx.geometry.chunk_bytes() * u64::from(self.cx.geometry.code().rows());
        let job = self
            .jobs
            .get_mut(&id)
            .expect("a job outlives its operations");
        job.in_flight -= 1;
        if let (None, Err(fault)) = (job.fault, outcome) {
            job.fault = Some(fault);
        }
        if let Kind::Fill { column, .. } = job.kind
            && outcome.is_ok()
        {
            self.cx.events.push_back(Event::FillStepped {
                group: job.group,
                column,
                bytes: (stripes.end - stripes.start) * stripe_bytes,
            });
        }
        if job.kind.makes_way() {
            self.pacer.ended(self.cx.now, job.kind.rest_min());
            self.resume_paced(self.pacer.rests_until());
        }
        self.step_job(id);
    }

    /// The job is done and durable, or has failed with nothing of it in flight.
    pub(super) fn end_job(&mut self, id: JobId, outcome: Outcome) {
        let job = self.jobs.remove(&id).expect("a job ends once");
        let group = job.group;
        let outcome = job.fault.map_or(outcome, Err);
        match (job.kind, outcome) {
            (Kind::Fill { column, target, .. }, Ok(())) => {
                self.cx.events.push_back(Event::Filled {
                    group,
                    column,
                    target,
                    copied_bytes: job.copied_bytes,
                });
            }
            (Kind::Fill { column, target, .. }, Err(fault)) => {
                self.cx
                    .change_view(|view, geometry| view.abandon_fill(geometry, group, column));
                // Requests planned before this still write to the target: it must not be given
                // to anyone else before they have ended.
                self.cx.epochs.report_drained(Event::FillFailed {
                    group,
                    column,
                    target,
                    fault,
                });
            }
            (Kind::Zero, outcome) => self.cx.events.push_back(Event::Zeroed { group, outcome }),
            (Kind::Resync, outcome) => self.cx.events.push_back(Event::Resynced { group, outcome }),
            (Kind::Scrub, outcome) => {
                if self.pages.dirty().next().is_some() {
                    // Copies of pages that differ are made alike again.
                    self.want_checkpoint();
                }
                self.cx.events.push_back(Event::Scrubbed {
                    group,
                    blocks: job.verified.0,
                    bad: job.verified.1,
                    mended: job.healed.0,
                    lost: job.healed.1,
                    outcome,
                });
            }
        }
    }

    /// Fills onto a drive that is out come to nothing.
    pub(super) fn jobs_lost_seat(&mut self, seat: Seat) {
        for job in self.jobs.values_mut() {
            if let Kind::Fill { target, .. } = &job.kind
                && target.seat == seat
            {
                job.fail(Fault::Gone);
            }
        }
    }

    /// Stops a fill that is under way, for `Command::Abandon`; it ends with `FillFailed`.
    pub(super) fn abandon_fill(&mut self, group: u64, column: u16) {
        for job in self.jobs.values_mut() {
            if job.group == group
                && matches!(&job.kind, Kind::Fill { column: filled, .. } if *filled == column)
            {
                job.fail(Fault::Shutdown);
            }
        }
    }
}
