//! Back-off: when a lane tries again what its drives refuse.
//!
//! Drives that cannot be spared and refuse (no space on any of them, every flush an error) stay in use,
//! so a lane that tries again at once never rests. Each kind of work has a [`Backoff`]: the first wait
//! is [`WAIT_MIN`], each failed try doubles it up to [`WAIT_MAX`], and a try that succeeds ends it.
//! Failures inside a wait belong to one try.
//!
//! Invariants: requests that wait end at the latest with the next try, well or with the drives' error; one
//! that has waited for [`WAIT_MAX`] already, behind others' locks, ends at once.
//! A lane without waiting requests sets no timer, so a lane at rest stays at rest. A checkpoint that
//! somebody awaits (a fill, the closing pool) does not wait.

use std::time::Duration;

use block::{Fault, Instant};

use super::Lane;
use super::flush::Waiter;
use crate::RequestId;
use crate::action::Event;

/// The wait after the first failure: far longer than a try takes, and not noticed by a client.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// The longest wait. A guess: a lane that tries this often costs nothing, goes on soon after space is
/// there again, and lets a pool be closed in seconds.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// One kind of work, and how long it waits after failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// Failed tries since the last one that succeeded, and what the last one failed with.
    failing: Option<(u32, Fault)>,
    until: Option<Instant>,
}

impl Backoff {
    /// A try has failed.
    fn failed(&mut self, now: Instant, fault: Fault) {
        if self.waits(now) {
            return;
        }
        let tries = self.failing.map_or(0, |(tries, _)| tries);
        let wait = WAIT_MIN.saturating_mul(1 << tries.min(16)).min(WAIT_MAX);
        self.failing = Some((tries.saturating_add(1), fault));
        self.until = Some(now + wait);
    }

    /// A try has succeeded.
    fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// True until the next try is due.
    fn waits(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| until > now)
    }

    fn fault(&self) -> Option<Fault> {
        self.failing.map(|(_, fault)| fault)
    }
}

/// The back-off of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Retries {
    batches: Backoff,
    checkpoints: Backoff,
    flushes: Backoff,
    /// Flush requests that wait for the next try.
    held: Vec<RequestId>,
    /// The pool has been told that the lane is stalled.
    reported: bool,
}

/// What a lane's back-off is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Writing a batch to the ring.
    Batch,
    /// Putting what is logged in place.
    Checkpoint,
    /// Flushing drives for a client.
    Flush,
}

impl Retries {
    fn of(&mut self, work: Work) -> &mut Backoff {
        match work {
            Work::Batch => &mut self.batches,
            Work::Checkpoint => &mut self.checkpoints,
            Work::Flush => &mut self.flushes,
        }
    }

    /// What drives refuse now.
    fn fault(&self) -> Option<Fault> {
        let all = [&self.batches, &self.checkpoints, &self.flushes];
        all.into_iter().find_map(Backoff::fault)
    }
}

impl Lane {
    /// A try of some work has failed on drives that stay.
    pub(super) fn try_failed(&mut self, work: Work, fault: Fault) {
        let now = self.cx.now;
        self.retries.of(work).failed(now, fault);
        self.report_stall();
    }

    /// A try of some work has succeeded.
    pub(super) fn try_succeeded(&mut self, work: Work) {
        // Nearly always: nothing has failed before.
        if self.retries.of(work).failing.is_some() {
            self.retries.of(work).succeeded();
            self.report_stall();
        }
    }

    /// Tells the pool when the lane's drives begin to refuse, and when that has ended: not each try.
    fn report_stall(&mut self) {
        let fault = self.retries.fault();
        let lane = self.cx.lane;
        match fault {
            Some(fault) if !self.retries.reported => {
                self.cx.events.push_back(Event::Stalled { lane, fault });
            }
            None if self.retries.reported => self.cx.events.push_back(Event::Resumed { lane }),
            _ => return,
        }
        self.retries.reported = fault.is_some();
    }

    /// True while no batch is begun, because the last one failed a moment ago.
    pub(super) fn batches_wait(&self) -> bool {
        self.retries.batches.waits(self.cx.now)
    }

    /// True while no checkpoint begins by itself.
    pub(super) fn checkpoints_wait(&self) -> bool {
        self.retries.checkpoints.waits(self.cx.now) || self.batches_wait()
    }

    /// When a checkpoint may begin by itself again.
    pub(super) fn checkpoints_wait_until(&self) -> Option<Instant> {
        self.retries
            .checkpoints
            .until
            .max(self.retries.batches.until)
    }

    /// What the last checkpoint failed with, if it made no progress.
    pub(super) fn checkpoints_fail(&self) -> Option<Fault> {
        self.retries.checkpoints.fault()
    }

    /// What the lane's drives refuse it with, and since when operations must have waited to end with that
    /// before the next try.
    pub(super) fn refusal(&self) -> Option<(Fault, Instant)> {
        if !self.retries.reported {
            return None;
        }
        let nanos = u64::try_from(WAIT_MAX.as_nanos()).expect("seconds");
        let since = Instant(self.cx.now.0.saturating_sub(nanos));
        let checkpoint = self.log.blocked || self.log.crowded;
        let batches = self.retries.batches.fault();
        let checkpoints = self.retries.checkpoints.fault().filter(|_| checkpoint);
        batches.or(checkpoints).map(|fault| (fault, since))
    }

    /// Flushes drives for a request; false if nothing needs a flush.
    pub(super) fn flush_for(&mut self, request: RequestId) -> bool {
        if self.retries.flushes.waits(self.cx.now) {
            self.retries.held.push(request);
            return true;
        }
        self.begin_flush(Waiter::Request(request))
    }

    /// The flush of a request has ended.
    pub(super) fn flushed_for(&mut self, request: RequestId, outcome: Result<(), Fault>) {
        match outcome {
            Ok(()) => self.try_succeeded(Work::Flush),
            Err(fault) => self.try_failed(Work::Flush, fault),
        }
        self.reply(request, outcome);
    }

    /// When something that waits is tried again.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        let waits = |backoff: &Backoff| backoff.until.filter(|&until| until > self.cx.now);
        let retries = &self.retries;
        let batch = waits(&retries.batches).filter(|_| self.log.waits() || self.checkpoint_waits());
        let checkpoint = waits(&retries.checkpoints).filter(|_| self.checkpoint_waits());
        let flush = waits(&retries.flushes).filter(|_| !retries.held.is_empty());
        [batch, checkpoint, flush].into_iter().flatten().min()
    }

    /// Time has passed: begins the flushes whose wait is over.
    pub(super) fn retry(&mut self) {
        if self.retries.held.is_empty() || self.retries.flushes.waits(self.cx.now) {
            return;
        }
        for request in std::mem::take(&mut self.retries.held) {
            if !self.begin_flush(Waiter::Request(request)) {
                self.flushed_for(request, Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_a_bound_and_end_with_a_success() {
        let mut backoff = Backoff::default();
        let mut now = Instant::ZERO;
        let mut waits = Vec::new();
        for _ in 0..9 {
            backoff.failed(now, Fault::Full);
            let until = backoff.until.unwrap();
            waits.push(until.since(now).as_millis());
            // Failures inside the wait are the same try.
            backoff.failed(now + Duration::from_millis(1), Fault::Full);
            assert_eq!(backoff.until, Some(until));
            assert!(backoff.waits(now) && !backoff.waits(until));
            now = until;
        }
        assert_eq!(waits, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
        backoff.succeeded();
        assert!(!backoff.waits(now) && backoff.fault().is_none());
        backoff.failed(now, Fault::Medium);
        assert_eq!(backoff.until, Some(now + WAIT_MIN));
    }

    #[test]
    fn a_lane_fails_with_what_any_kind_of_work_fails_with() {
        let mut retries = Retries::default();
        retries.of(Work::Flush).failed(Instant::ZERO, Fault::Medium);
        assert_eq!(retries.fault(), Some(Fault::Medium));
        retries.of(Work::Batch).failed(Instant::ZERO, Fault::Full);
        retries.of(Work::Flush).succeeded();
        assert_eq!(retries.fault(), Some(Fault::Full));
        retries.of(Work::Batch).succeeded();
        assert_eq!(retries.fault(), None);
    }
}
