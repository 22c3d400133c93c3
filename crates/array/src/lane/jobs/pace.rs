//! Pacing: how fills and scrubs make way for clients.
//!
//! ```text
//!   no client asks          step step step …   of every fill, 4 MiB each, and of every scrub, 1 MiB
//!   clients ask, any lane   ──step──┤  rest  ├──step──┤  rest  ├──   one fill or scrub of the lane at a time
//!                             ▲ long enough for 20 ms of a drive's time, found by measuring
//! ```
//!
//! A drive serves its queue in some order of its own, so a client waits for the operations that are queued before its
//! own. The budget is therefore time and not bytes: a mebibyte takes 40 ms on a slow disk and 2 ms on a flash drive. A
//! lane has one step in flight, rests after it for as long as it took, and halves the next step if it took too long.
//! The rest bounds the share of the drives' time that goes to fills and scrubs; the step that follows each rest is
//! their minimum rate. A group that cannot lose another column is filled without rests. A scrub waits for the lane's
//! fills, and rests longer, because nothing depends on when it ends.
//!
//! Lanes see whether clients send requests, and this concerns the drives of all lanes. So while the pool needs these
//! reports, a lane reports when its clients begin to send requests and when they have sent none for [`CLIENTS_QUIET`].
//! The pool passes this on to all lanes.

use std::time::Duration;

use block::Instant;

use super::job::STEP_BYTES;
use crate::action::Event;
use crate::lane::context::Context;

/// The service time of a step at one drive, while clients send requests. A step reads and then writes, so it takes
/// twice that.
const BUDGET: Duration = Duration::from_millis(20);

/// The shortest step: for less than this, a disk takes more time to reach the bytes than to transfer them.
const PACED_BYTES_MIN: u64 = 128 << 10;

/// Clients that have sent nothing for this long count as gone. A client that pauses for a moment between requests must
/// not count as gone: its next request would wait behind all that fills begin meanwhile.
const CLIENTS_QUIET: Duration = Duration::from_secs(1);

/// How a lane's fills and scrubs make way.
#[derive(Clone, Debug)]
pub(super) struct Pacer {
    /// The pool needs reports of whether clients send requests.
    reports: bool,
    /// The last report was that they do.
    reported: bool,
    /// When the last request came.
    asked_at: Option<Instant>,
    /// Clients send requests, to this lane or to another.
    makes_way: bool,
    /// Steps in flight.
    steps: u64,
    /// When the last step began.
    began: Instant,
    /// When the rest after the last step ends.
    rests_until: Instant,
    /// Bytes of one cell that the next step moves.
    step_bytes: u64,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            reports: false,
            reported: false,
            asked_at: None,
            makes_way: false,
            steps: 0,
            began: Instant::ZERO,
            rests_until: Instant::ZERO,
            step_bytes: STEP_BYTES,
        }
    }
}

impl Pacer {
    /// Bytes of one cell that a step moves; `None` if clients do not limit it.
    pub(super) fn step_bytes(&self) -> Option<u64> {
        self.makes_way.then_some(self.step_bytes)
    }

    /// A step begins.
    pub(super) const fn begins(&mut self, now: Instant) {
        self.steps += 1;
        self.began = now;
    }

    /// A step has ended. The rest is as long as the step took, and at least `rest_min`. The next step is as long as the
    /// budget allows.
    pub(super) fn ended(&mut self, now: Instant, rest_min: Duration) {
        self.steps -= 1;
        if !self.makes_way {
            return;
        }
        let took = now.since(self.began);
        self.rests_until = now + took.max(rest_min);
        if took > 2 * BUDGET {
            self.step_bytes = (self.step_bytes / 2).max(PACED_BYTES_MIN);
        } else if took < BUDGET {
            self.step_bytes = (self.step_bytes * 2).min(STEP_BYTES);
        }
    }

    /// `Some` if a job waits with its next step, and until when if that is known. `urgent`: the job fills a group that
    /// cannot lose another column.
    pub(super) fn waits(&self, now: Instant, urgent: bool) -> Option<Option<Instant>> {
        if !self.makes_way {
            return None;
        }
        if self.steps > 0 {
            return Some(None);
        }
        let rests = !urgent && self.rests_until > now;
        rests.then_some(Some(self.rests_until))
    }

    /// When the next job may go on.
    pub(super) const fn rests_until(&self) -> Instant {
        self.rests_until
    }

    /// Sets whether the pool needs reports of whether clients send requests. True if jobs that made way may go on.
    pub(super) fn report_clients(&mut self, cx: &mut Context, wanted: bool) -> bool {
        self.reports = wanted;
        self.reported = false;
        if !wanted {
            return self.make_way(cx.now, false);
        }
        let recent = |at: Instant| cx.now.since(at) < CLIENTS_QUIET;
        if self.asked_at.is_some_and(recent) {
            self.report_asking(cx);
        }
        false
    }

    /// A client has sent a request. This lane makes way before the pool has notified the others.
    pub(super) fn client_asks(&mut self, cx: &mut Context) {
        self.asked_at = Some(cx.now);
        self.report_asking(cx);
    }

    fn report_asking(&mut self, cx: &mut Context) {
        if self.reports && !std::mem::replace(&mut self.reported, true) {
            self.makes_way = true;
            let lane = cx.lane;
            cx.events.push_back(Event::Clients { lane, ask: true });
        }
    }

    /// When clients count as gone, if they send nothing before.
    pub(super) fn clients_gone_at(&self) -> Option<Instant> {
        let at = self.asked_at.map(|at| at + CLIENTS_QUIET);
        at.filter(|_| self.reported)
    }

    /// Time has passed: clients may be gone. `waiting`: some clients wait for an answer.
    pub(super) fn clients_gone(&mut self, cx: &mut Context, waiting: bool) {
        if self.clients_gone_at().is_none_or(|at| at > cx.now) {
            return;
        }
        if waiting {
            self.asked_at = Some(cx.now);
        } else {
            self.reported = false;
            let lane = cx.lane;
            cx.events.push_back(Event::Clients { lane, ask: false });
        }
    }

    /// The pool has decided that fills and scrubs make way from now on, or need not any more. True if jobs that made
    /// way may go on.
    pub(super) fn make_way(&mut self, now: Instant, makes_way: bool) -> bool {
        self.makes_way = makes_way;
        if !makes_way {
            self.rests_until = now;
        }
        !makes_way
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant(millis * 1_000_000)
    }

    #[test]
    fn one_step_then_a_rest_as_long() {
        let mut pacer = Pacer::default();
        assert_eq!(
            (pacer.waits(at(0), false), pacer.step_bytes()),
            (None, None)
        );
        pacer.makes_way = true;
        pacer.begins(at(0));
        assert_eq!(pacer.waits(at(10), true), Some(None), "one at a time");
        pacer.ended(at(30), Duration::ZERO);
        assert_eq!(pacer.waits(at(31), false), Some(Some(at(60))));
        assert_eq!(
            pacer.waits(at(31), true),
            None,
            "no rest where another loss is the last"
        );
        assert_eq!(pacer.waits(at(60), false), None);
    }

    #[test]
    fn steps_are_as_long_as_a_drive_is_fast() {
        for (micros_per_kib, expected) in [(40, 512 << 10), (400, PACED_BYTES_MIN), (2, STEP_BYTES)]
        {
            let mut pacer = Pacer {
                makes_way: true,
                ..Pacer::default()
            };
            let mut now = at(0);
            for _ in 0..8 {
                pacer.begins(now);
                let bytes = pacer.step_bytes().unwrap();
                now += Duration::from_micros(micros_per_kib * (bytes >> 10));
                pacer.ended(now, Duration::ZERO);
            }
            assert_eq!(
                pacer.step_bytes(),
                Some(expected),
                "{micros_per_kib} us per KiB"
            );
        }
    }

    /// A pacer that reports, at 10 s, and its lane.
    fn reporting() -> (Pacer, Context) {
        let mut cx = Context::of_test("raid6", 6);
        cx.now = at(10_000);
        let mut pacer = Pacer::default();
        assert!(!pacer.report_clients(&mut cx, true));
        (pacer, cx)
    }

    fn clients(ask: bool) -> Event {
        Event::Clients { lane: 0, ask }
    }

    #[test]
    fn clients_are_reported_when_they_begin_to_ask() {
        let (mut pacer, mut cx) = reporting();
        pacer.client_asks(&mut cx);
        pacer.client_asks(&mut cx);
        assert_eq!(cx.take_events(), [clients(true)]);
        assert!(pacer.step_bytes().is_some(), "the lane makes way at once");
    }

    #[test]
    fn nothing_is_reported_to_a_pool_that_does_not_want_to_know() {
        let mut cx = Context::of_test("raid6", 6);
        let mut pacer = Pacer::default();
        pacer.client_asks(&mut cx);
        assert!(cx.take_events().is_empty());
        assert_eq!((pacer.step_bytes(), pacer.clients_gone_at()), (None, None));
    }

    #[test]
    fn clients_that_asked_a_moment_ago_are_reported_when_the_pool_wants_to_know() {
        for (millis, reported) in [(999, true), (1000, false)] {
            let mut cx = Context::of_test("raid6", 6);
            let mut pacer = Pacer::default();
            pacer.client_asks(&mut cx);
            cx.now = at(millis);
            pacer.report_clients(&mut cx, true);
            assert_eq!(!cx.take_events().is_empty(), reported, "{millis} ms");
        }
    }

    #[test]
    fn clients_are_gone_a_second_after_the_last_request() {
        let (mut pacer, mut cx) = reporting();
        pacer.client_asks(&mut cx);
        cx.now = at(10_400);
        pacer.client_asks(&mut cx);
        cx.take_events();
        assert_eq!(pacer.clients_gone_at(), Some(at(11_400)));
        cx.now = at(11_399);
        pacer.clients_gone(&mut cx, false);
        assert!(cx.take_events().is_empty());
        cx.now = at(11_400);
        pacer.clients_gone(&mut cx, false);
        assert_eq!(cx.take_events(), [clients(false)]);
        assert_eq!(pacer.clients_gone_at(), None);
    }

    #[test]
    fn clients_that_wait_for_an_answer_are_not_gone() {
        let (mut pacer, mut cx) = reporting();
        pacer.client_asks(&mut cx);
        cx.take_events();
        cx.now = at(11_000);
        pacer.clients_gone(&mut cx, true);
        assert!(cx.take_events().is_empty());
        assert_eq!(pacer.clients_gone_at(), Some(at(12_000)));
    }

    #[test]
    fn clients_that_come_back_are_reported_again() {
        let (mut pacer, mut cx) = reporting();
        pacer.client_asks(&mut cx);
        cx.now = at(11_000);
        pacer.clients_gone(&mut cx, false);
        cx.take_events();
        pacer.client_asks(&mut cx);
        assert_eq!(cx.take_events(), [clients(true)]);
    }

    #[test]
    fn jobs_go_on_when_they_need_not_make_way_any_more() {
        let (mut pacer, mut cx) = reporting();
        assert!(!pacer.make_way(cx.now, true));
        pacer.begins(cx.now);
        cx.now = at(10_030);
        pacer.ended(cx.now, Duration::from_secs(1));
        assert_eq!(pacer.waits(cx.now, false), Some(Some(at(11_030))));
        assert!(pacer.make_way(cx.now, false));
        assert_eq!(pacer.waits(cx.now, false), None);
        assert!(pacer.report_clients(&mut cx, false), "that is the same");
    }

    #[test]
    fn a_scrub_rests_at_least_as_long_as_it_should() {
        let (mut pacer, cx) = reporting();
        pacer.make_way(cx.now, true);
        pacer.begins(cx.now);
        pacer.ended(at(10_005), Duration::from_millis(100));
        assert_eq!(pacer.rests_until(), at(10_105));
    }
}
