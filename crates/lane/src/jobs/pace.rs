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
//! their minimum rate. A scrub waits for the lane's fills, and rests longer, because nothing depends on when it ends.
//! That is the priority `medium`; others have other rests, budgets and numbers of steps (`priority/`). A group that
//! cannot lose another column is filled at the highest, whatever is set.
//!
//! An administrator may pause fills and scrubs, or bound the bytes that all lanes move in a second. A pause holds every
//! next step. For the bound a lane requests each step's bytes from the pool, which meters them (`pool/steer.rs`), and
//! uses for later steps what a step did not move. Both hold whether clients send requests or not, and for groups
//! without redundancy as well.
//!
//! Lanes see whether clients send requests, and this concerns the drives of all lanes. So while the pool needs these
//! reports, a lane reports when its clients begin to send requests and when they have sent none for [`CLIENTS_QUIET`].
//! The pool passes this on to all lanes.

use std::time::Duration;

use block::Instant;
use plan::action::{Event, Steer};
use plan::priority::{self, Priority};

use super::job::STEP_BYTES;
use crate::context::Context;

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
    /// When the last step ended, and how long its rest is at least because of the job's kind, and how long it took.
    last: (Instant, Duration, Duration),
    /// When the rest after the last step ends.
    rests_until: Instant,
    /// Bytes of one cell that the next step moves.
    step_bytes: u64,
    /// What an administrator has set.
    steer: Steer,
    /// Bytes that the pool has granted and no step has used.
    granted_bytes: u64,
    /// A grant was requested and has not come.
    requested: bool,
}

impl Default for Pacer {
    fn default() -> Self {
        Self {
            reports: false,
            reported: false,
            asked_at: None,
            makes_way: false,
            steps: 0,
            last: (Instant::ZERO, Duration::ZERO, Duration::ZERO),
            rests_until: Instant::ZERO,
            step_bytes: STEP_BYTES,
            steer: Steer::default(),
            granted_bytes: 0,
            requested: false,
        }
    }
}

impl Pacer {
    /// Bytes of one cell that a step moves; `None` if clients do not limit it.
    pub(super) fn step_bytes(&self) -> Option<u64> {
        self.makes_way.then_some(self.step_bytes)
    }

    /// Bytes that a step may move at most, if the pool meters them.
    pub(super) const fn metered_bytes(&self) -> Option<u64> {
        self.steer.metered_bytes
    }

    /// The policy of a job. `urgent`: it fills a group that cannot lose another column.
    fn priority(&self, urgent: bool) -> &'static dyn Priority {
        match urgent {
            true => priority::urgent(),
            false => self.steer.priority,
        }
    }

    /// A step begins that moves this many bytes.
    pub(super) const fn begins(&mut self, bytes: u64) {
        self.steps += 1;
        if self.steer.metered_bytes.is_some() {
            self.granted_bytes = self.granted_bytes.saturating_sub(bytes);
        }
    }

    /// A step has ended that took so long. The rest is what the policy says, and at least `rest_min`. The next step is
    /// as long as the budget allows. `unused`: bytes that the step did not move after all.
    pub(super) fn ended(
        &mut self,
        now: Instant,
        took: Duration,
        (urgent, rest_min): (bool, Duration),
        unused: u64,
    ) {
        self.steps -= 1;
        if let Some(most) = self.steer.metered_bytes {
            self.granted_bytes = (self.granted_bytes + unused).min(most.max(self.granted_bytes));
        }
        if !self.makes_way {
            return;
        }
        self.last = (now, rest_min, took);
        self.rests_until = self.rest_ends();
        let policy = self.priority(urgent);
        let budget = policy.budget();
        if took > 2 * budget {
            self.step_bytes = (self.step_bytes / 2).max(PACED_BYTES_MIN);
        } else if took < budget {
            self.step_bytes = (self.step_bytes * 2).min(policy.step_bytes_max());
        }
    }

    /// When the rest after the last step ends, by the policy of now.
    fn rest_ends(&self) -> Instant {
        let (ended, rest_min, took) = self.last;
        ended + self.steer.priority.rest(took).max(rest_min)
    }

    /// `Some` if a job waits with its next step, and until when if that is known. `urgent`: the job fills a group that
    /// cannot lose another column. `bytes`: what the step moves.
    pub(super) fn waits(
        &mut self,
        cx: &mut Context,
        urgent: bool,
        bytes: u64,
    ) -> Option<Option<Instant>> {
        if self.steer.paused {
            return Some(None);
        }
        if self.makes_way {
            if self.steps >= self.priority(urgent).steps() {
                return Some(None);
            }
            if !urgent && self.rests_until > cx.now {
                return Some(Some(self.rests_until));
            }
        }
        if self.steer.metered_bytes.is_none() || self.granted_bytes >= bytes {
            return None;
        }
        if !std::mem::replace(&mut self.requested, true) {
            let lane = cx.lane;
            let bytes = bytes - self.granted_bytes;
            cx.events.push_back(Event::WantsToMove { lane, bytes });
        }
        Some(None)
    }

    /// The pool has granted bytes. Jobs that waited for them may go on.
    pub(super) const fn granted(&mut self, bytes: u64) {
        self.requested = false;
        if self.steer.metered_bytes.is_some() {
            self.granted_bytes += bytes;
        }
    }

    /// An administrator has set something else. Jobs that wait are asked again when [`Pacer::rests_until`] says.
    pub(super) fn steer(&mut self, now: Instant, steer: Steer) {
        self.steer = steer;
        self.step_bytes = self.step_bytes.min(steer.priority.step_bytes_max());
        self.rests_until = self.rest_ends().max(now);
        // Grants belong to the rate before.
        self.granted_bytes = 0;
        self.requested = false;
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

    fn took(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Whether a step of a mebibyte waits.
    fn waits(pacer: &mut Pacer, now: Instant, urgent: bool) -> Option<Option<Instant>> {
        let mut cx = Context::of_test("raid6", 6);
        cx.now = now;
        pacer.waits(&mut cx, urgent, 1 << 20)
    }

    #[test]
    fn one_step_then_a_rest_as_long() {
        let mut pacer = Pacer::default();
        assert_eq!(waits(&mut pacer, at(0), false), None);
        assert_eq!(pacer.step_bytes(), None);
        pacer.makes_way = true;
        pacer.begins(0);
        assert_eq!(
            waits(&mut pacer, at(10), false),
            Some(None),
            "one at a time"
        );
        pacer.ended(at(30), took(30), (false, Duration::ZERO), 0);
        assert_eq!(waits(&mut pacer, at(31), false), Some(Some(at(60))));
        assert_eq!(
            waits(&mut pacer, at(31), true),
            None,
            "no rest where another loss is the last"
        );
        assert_eq!(waits(&mut pacer, at(60), false), None);
    }

    fn set(name: &str) -> Steer {
        Steer {
            priority: priority::named(name).unwrap(),
            ..Steer::default()
        }
    }

    #[test]
    fn a_priority_that_is_set_during_a_rest_counts_for_that_rest() {
        let mut pacer = Pacer {
            makes_way: true,
            ..Pacer::default()
        };
        pacer.steer(at(0), set("low"));
        pacer.begins(0);
        pacer.ended(at(100), took(100), (false, Duration::ZERO), 0);
        let low = waits(&mut pacer, at(110), false).flatten().unwrap();
        assert!(low > at(400), "{low}");
        pacer.steer(at(110), set("medium"));
        assert_eq!(waits(&mut pacer, at(110), false), Some(Some(at(200))));
        pacer.steer(at(120), set("high"));
        for _ in 0..set("high").priority.steps() {
            assert_eq!(waits(&mut pacer, at(120), false), None);
            pacer.begins(0);
        }
        assert_eq!(waits(&mut pacer, at(120), false), Some(None));
    }

    #[test]
    fn nothing_begins_while_paused_however_urgent() {
        let mut pacer = Pacer::default();
        let paused = Steer {
            paused: true,
            ..Steer::default()
        };
        pacer.steer(at(0), paused);
        assert_eq!(waits(&mut pacer, at(0), true), Some(None));
        pacer.steer(at(1), Steer::default());
        assert_eq!(waits(&mut pacer, at(1), true), None);
    }

    #[test]
    fn metered_steps_wait_for_their_grant_and_use_what_others_have_left() {
        let mut cx = Context::of_test("raid6", 6);
        let mut pacer = Pacer::default();
        let metered = Steer {
            metered_bytes: Some(1000),
            ..Steer::default()
        };
        pacer.steer(at(0), metered);
        for _ in 0..2 {
            assert_eq!(pacer.waits(&mut cx, true, 1000), Some(None));
        }
        let (lane, bytes) = (0, 1000);
        assert_eq!(cx.take_events(), [Event::WantsToMove { lane, bytes }]);
        pacer.granted(1000);
        assert_eq!(pacer.waits(&mut cx, false, 1000), None);
        pacer.begins(1000);
        pacer.ended(at(1), took(1), (false, Duration::ZERO), 600);
        assert_eq!(
            pacer.waits(&mut cx, false, 600),
            None,
            "not copied after all"
        );
        assert_eq!(pacer.waits(&mut cx, false, 1000), Some(None));
        assert_eq!(cx.take_events(), [Event::WantsToMove { lane, bytes: 400 }]);
        pacer.steer(at(2), Steer::default());
        assert_eq!(pacer.waits(&mut cx, false, 1000), None);
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
                pacer.begins(0);
                let bytes = pacer.step_bytes().unwrap();
                let took = Duration::from_micros(micros_per_kib * (bytes >> 10));
                now += took;
                pacer.ended(now, took, (false, Duration::ZERO), 0);
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
        pacer.begins(0);
        cx.now = at(10_030);
        pacer.ended(cx.now, took(30), (false, Duration::from_secs(1)), 0);
        assert_eq!(waits(&mut pacer, cx.now, false), Some(Some(at(11_030))));
        assert!(pacer.make_way(cx.now, false));
        assert_eq!(waits(&mut pacer, cx.now, false), None);
        assert!(pacer.report_clients(&mut cx, false), "that is the same");
    }

    #[test]
    fn a_scrub_rests_at_least_as_long_as_it_should() {
        let (mut pacer, cx) = reporting();
        pacer.make_way(cx.now, true);
        pacer.begins(0);
        pacer.ended(at(10_005), took(5), (false, Duration::from_millis(100)), 0);
        assert_eq!(pacer.rests_until(), at(10_105));
    }
}
