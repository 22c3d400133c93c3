//! Back-off: when a lane tries again what its drives refuse.
//!
//! Drives that cannot be spared stay in use although they refuse work (no space on any of them, every flush an error).
//! A lane that tried again at once would never be idle. So each kind of work has a [`Backoff`]: the first wait is
//! [`WAIT_MIN`], each failed try doubles it up to [`WAIT_MAX`], and a try that succeeds ends it. Failures inside a wait
//! belong to one try.
//!
//! Invariants: a waiting request ends at the latest with the next try, with success or with the drives' error. A
//! request that has already waited for [`WAIT_MAX`], behind the locks of others, ends at once. A lane without waiting
//! requests sets no timer, so an idle lane stays idle: the pool makes lanes whose drives refuse work try again now and then.
//! A checkpoint that something waits for (a fill, the closing pool) does not wait for the back-off.

use std::time::Duration;

use block::{Fault, Instant};
use plan::RequestId;
use plan::action::Event;

use super::context::Context;

/// The wait after the first failure: far longer than a try takes, and too short for a client to notice.
const WAIT_MIN: Duration = Duration::from_millis(50);

/// The longest wait. A guess: tries at this rate cost nothing, the lane continues soon after space is available again,
/// and a pool can be closed in seconds.
const WAIT_MAX: Duration = Duration::from_secs(2);

/// One kind of work, and how long it waits after failures.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Backoff {
    /// The number of failed tries since the last success, and the fault of the last one.
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
    /// Flush requests that wait for the next try of a flush.
    held: Vec<RequestId>,
    /// The lane has reported the stall to the pool.
    reported: bool,
}

/// The kinds of work that have a back-off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// Writing a batch to the ring.
    Batch,
    /// Putting logged blocks in place.
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

    /// The fault with which drives refuse work now.
    fn fault(&self) -> Option<Fault> {
        let all = [&self.batches, &self.checkpoints, &self.flushes];
        all.into_iter().find_map(Backoff::fault)
    }

    /// A try of some work has failed on drives that stay in use.
    pub(super) fn failed(&mut self, cx: &mut Context, work: Work, fault: Fault) {
        self.of(work).failed(cx.now, fault);
        self.report_stall(cx);
    }

    /// A try of some work has succeeded.
    pub(super) fn succeeded(&mut self, cx: &mut Context, work: Work) {
        // Nearly always nothing has failed before.
        if self.of(work).failing.is_some() {
            self.of(work).succeeded();
            self.report_stall(cx);
        }
    }

    /// Reports when the lane's drives begin to refuse work, and when they accept it again; single tries are not
    /// reported.
    fn report_stall(&mut self, cx: &mut Context) {
        let fault = self.fault();
        let lane = cx.lane;
        match fault {
            Some(fault) if !self.reported => cx.events.push_back(Event::Stalled { lane, fault }),
            None if self.reported => cx.events.push_back(Event::Resumed { lane }),
            _ => return,
        }
        self.reported = fault.is_some();
    }

    /// The drives that refused work may have left, or take it again: batches and checkpoints are tried now.
    pub(super) const fn end_waits(&mut self) {
        self.batches.until = None;
        self.checkpoints.until = None;
    }

    /// True if the pool has been told that drives refuse work.
    pub(super) const fn is_stalled(&self) -> bool {
        self.reported
    }

    /// True while no batch may begin, because the last one failed a short time ago.
    pub(super) fn batches_wait(&self, now: Instant) -> bool {
        self.batches.waits(now)
    }

    /// True while a checkpoint that nothing waits for may not begin.
    pub(super) fn checkpoints_wait(&self, now: Instant) -> bool {
        self.checkpoints.waits(now) || self.batches_wait(now)
    }

    /// When a checkpoint that nothing waits for may begin again.
    pub(super) fn checkpoints_wait_until(&self) -> Option<Instant> {
        self.checkpoints.until.max(self.batches.until)
    }

    /// The fault of the last checkpoint, if it made no progress.
    pub(super) fn checkpoints_fail(&self) -> Option<Fault> {
        self.checkpoints.fault()
    }

    /// The fault with which writes are refused, and a time: operations that began before it end with this fault without
    /// waiting for the next try. `needs_checkpoint`: the log can continue only after a checkpoint.
    pub(super) fn refusal(&self, now: Instant, needs_checkpoint: bool) -> Option<(Fault, Instant)> {
        if !self.reported {
            return None;
        }
        let nanos = u64::try_from(WAIT_MAX.as_nanos()).expect("seconds");
        let since = Instant(now.0.saturating_sub(nanos));
        let batches = self.batches.fault();
        let checkpoints = self.checkpoints.fault().filter(|_| needs_checkpoint);
        batches.or(checkpoints).map(|fault| (fault, since))
    }

    /// Holds back the flush of a request if flushes have failed a short time ago; else the caller begins it.
    pub(super) fn hold_flush(&mut self, now: Instant, request: RequestId) -> bool {
        let waits = self.flushes.waits(now);
        if waits {
            self.held.push(request);
        }
        waits
    }

    /// Requests whose flushes begin now, because their wait is over.
    pub(super) fn take_due_flushes(&mut self, now: Instant) -> Vec<RequestId> {
        match self.flushes.waits(now) {
            true => Vec::new(),
            false => std::mem::take(&mut self.held),
        }
    }

    /// When waiting work is tried again. `batches`, `checkpoints`: there is something to log, or to put in place.
    pub(super) fn retry_at(
        &self,
        now: Instant,
        batches: bool,
        checkpoints: bool,
    ) -> Option<Instant> {
        let waits = |backoff: &Backoff| backoff.until.filter(|&until| until > now);
        let batch = waits(&self.batches).filter(|_| batches || checkpoints);
        let checkpoint = waits(&self.checkpoints).filter(|_| checkpoints);
        let flush = waits(&self.flushes).filter(|_| !self.held.is_empty());
        [batch, checkpoint, flush].into_iter().flatten().min()
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

    const MEDIUM: Fault = Fault::Medium;

    fn millis(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    /// A lane at 1 s.
    fn begun() -> (Retries, Context) {
        let mut cx = Context::of_test("raid6", 6);
        cx.now = millis(1000);
        (Retries::default(), cx)
    }

    fn stalled(fault: Fault) -> Event {
        Event::Stalled { lane: 0, fault }
    }

    #[test]
    fn a_stall_is_reported_when_it_begins_and_when_it_ends() {
        let (mut retries, mut cx) = begun();
        retries.failed(&mut cx, Work::Batch, Fault::Full);
        retries.failed(&mut cx, Work::Flush, MEDIUM);
        assert_eq!(cx.take_events(), [stalled(Fault::Full)]);
        retries.succeeded(&mut cx, Work::Batch);
        assert!(cx.take_events().is_empty(), "flushes still fail");
        retries.succeeded(&mut cx, Work::Flush);
        assert_eq!(cx.take_events(), [Event::Resumed { lane: 0 }]);
    }

    #[test]
    fn work_that_never_failed_reports_nothing() {
        let (mut retries, mut cx) = begun();
        for work in [Work::Batch, Work::Checkpoint, Work::Flush] {
            retries.succeeded(&mut cx, work);
        }
        assert!(cx.take_events().is_empty());
        assert_eq!(retries.retry_at(cx.now, true, true), None);
    }

    #[test]
    fn a_checkpoint_waits_for_batches_too_and_batches_not_for_it() {
        let (mut retries, mut cx) = begun();
        retries.failed(&mut cx, Work::Checkpoint, MEDIUM);
        assert!(retries.checkpoints_wait(cx.now) && !retries.batches_wait(cx.now));
        let (mut retries, mut cx) = begun();
        retries.failed(&mut cx, Work::Batch, MEDIUM);
        assert!(retries.checkpoints_wait(cx.now) && retries.batches_wait(cx.now));
        assert_eq!(retries.checkpoints_wait_until(), Some(millis(1050)));
        assert!(!retries.checkpoints_wait(millis(1050)));
        assert_eq!(retries.checkpoints_fail(), None, "no checkpoint has failed");
    }

    #[test]
    fn what_waits_is_tried_at_once_when_a_drive_has_left() {
        let (mut retries, mut cx) = begun();
        retries.failed(&mut cx, Work::Batch, MEDIUM);
        retries.failed(&mut cx, Work::Checkpoint, MEDIUM);
        retries.end_waits();
        assert!(!retries.batches_wait(cx.now) && !retries.checkpoints_wait(cx.now));
        assert!(retries.is_stalled(), "until a try succeeds");
        assert_eq!(retries.checkpoints_fail(), Some(MEDIUM));
    }

    #[test]
    fn flushes_are_kept_only_while_flushes_fail() {
        let (mut retries, mut cx) = begun();
        assert!(!retries.hold_flush(cx.now, RequestId(1)));
        retries.failed(&mut cx, Work::Flush, MEDIUM);
        assert!(retries.hold_flush(cx.now, RequestId(2)));
        assert!(retries.hold_flush(cx.now, RequestId(3)));
        assert!(retries.take_due_flushes(millis(1049)).is_empty());
        let due = retries.take_due_flushes(millis(1050));
        assert_eq!(due, [RequestId(2), RequestId(3)]);
        assert!(retries.take_due_flushes(millis(1050)).is_empty(), "once");
        assert!(!retries.hold_flush(millis(1050), RequestId(4)));
    }

    #[test]
    fn a_lane_without_waiting_work_sets_no_timer() {
        let (mut retries, mut cx) = begun();
        for work in [Work::Batch, Work::Checkpoint, Work::Flush] {
            retries.failed(&mut cx, work, MEDIUM);
        }
        assert_eq!(retries.retry_at(cx.now, false, false), None);
        for (batches, checkpoints) in [(true, false), (false, true)] {
            let at = retries.retry_at(cx.now, batches, checkpoints);
            assert_eq!(at, Some(millis(1050)));
        }
        assert!(retries.hold_flush(cx.now, RequestId(1)));
        assert_eq!(retries.retry_at(cx.now, false, false), Some(millis(1050)));
        assert_eq!(
            retries.retry_at(millis(1050), true, true),
            None,
            "it is due"
        );
    }

    #[test]
    fn requests_are_refused_that_have_waited_for_the_longest_wait() {
        let (mut retries, mut cx) = begun();
        cx.now = millis(5000);
        assert_eq!(retries.refusal(cx.now, true), None);
        retries.failed(&mut cx, Work::Batch, Fault::Full);
        let refusal = Some((Fault::Full, millis(3000)));
        assert_eq!(retries.refusal(cx.now, false), refusal);
    }

    #[test]
    fn failed_checkpoints_refuse_only_what_needs_one() {
        let (mut retries, mut cx) = begun();
        cx.now = millis(5000);
        retries.failed(&mut cx, Work::Checkpoint, MEDIUM);
        assert_eq!(retries.refusal(cx.now, false), None);
        assert_eq!(retries.refusal(cx.now, true), Some((MEDIUM, millis(3000))));
        assert_eq!(retries.checkpoints_fail(), Some(MEDIUM));
    }

    #[test]
    fn failed_flushes_refuse_no_writes() {
        let (mut retries, mut cx) = begun();
        retries.failed(&mut cx, Work::Flush, MEDIUM);
        assert_eq!(retries.refusal(cx.now, true), None);
    }
}
