//! Slow drives and drives that do not answer: which drives to suspect, and which to put out.
//!
//! ```text
//!              late again and again                 late for a minute more, and it can be spared
//!   trusted ───────────────────────────► suspect ─────────────────────────────────────────► out
//!      ▲                                    │
//!      └── nothing late for a while ────────┘          hangs past the deadline, and it can be spared
//!          (twice as long each time)           any ────────────────────────────────────────► out
//! ```
//!
//! A suspect costs little: reads and the journal go to other drives while these are enough. So a drive becomes suspect
//! quickly. Putting a drive out for slowness costs redundancy, so it takes long: one drive at a time, in a pool that is
//! complete otherwise, and only if redundancy is left without the drive or something can take its place.
//!
//! A host that stalls makes all its drives late at once. Therefore no drive becomes suspect while half of the drives
//! are late, and when drives hang there is a short delay to see which.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Instant, Seat};
use plan::DEADLINE;
use plan::action::Command;

use super::context::Context;
use super::context::writes::PoolWrite;
use super::{Report, SeatState};

/// Half-life of the count of late operations.
const HALF_LIFE: Duration = Duration::from_secs(10);
/// Late operations within this time count as one.
const COUNT_EVERY: Duration = Duration::from_millis(50);
/// A drive with this count of late operations is suspect.
const SUSPECT_AT: u64 = 4;
/// Drives that were late within this time are late together.
const TOGETHER: Duration = Duration::from_secs(1);
/// A suspect is trusted again after this time without a late operation. Reads avoid a suspect, so its good behaviour is
/// mostly not observed: each relapse therefore doubles the time.
const CLEAN: Duration = Duration::from_secs(30);
/// The maximum of this time.
const CLEAN_MAX: Duration = Duration::from_mins(10);
/// A drive that has been suspect for this long, and still has this count, may be put out.
const SLOW_OUT: (Duration, u64) = (Duration::from_mins(1), 8);
/// Time between the first report of a drive that hangs and the decision: others may hang too.
const GRACE: Duration = Duration::from_millis(500);
/// While a write of the pool's own hangs, the decision about it is repeated at this interval.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Half-life of the count of failed reads.
const ERRORS_HALF_LIFE: Duration = Duration::from_mins(10);

/// A count with a half-life.
#[derive(Clone, Copy, Debug, Default)]
struct DecayingCounter {
    thousandths: u64,
    at: Instant,
}

impl DecayingCounter {
    fn now(&self, now: Instant, half_life: Duration) -> u64 {
        let gone = now.since(self.at);
        let halvings = gone.as_nanos() / half_life.as_nanos();
        let left = u32::try_from(halvings)
            .map_or(0, |by| self.thousandths.checked_shr(by).unwrap_or_default());
        // Linear between two halvings.
        let part = gone.as_nanos() % half_life.as_nanos();
        let lost = u128::from(left / 2) * part / half_life.as_nanos();
        left - u64::try_from(lost).expect("less than what is left")
    }

    /// Counts one, and returns the new count.
    fn count(&mut self, now: Instant, half_life: Duration) -> u64 {
        self.thousandths = self.now(now, half_life) + 1000;
        self.at = now;
        self.thousandths / 1000
    }
}

/// The pool's record of a drive.
#[derive(Clone, Debug, Default)]
struct Suspicion {
    /// Late operations.
    late: DecayingCounter,
    late_at: Option<Instant>,
    /// Failed reads.
    errors: DecayingCounter,
    /// When it became suspect, if it is.
    since: Option<Instant>,
    /// Time without a late operation after which it is trusted again.
    clean: Duration,
}

/// What waits for a drive that hangs.
#[derive(Clone, Debug, Default)]
struct Hanging {
    lanes: BTreeSet<u16>,
    /// The pool itself.
    own: bool,
    /// It has been reported that it cannot be spared.
    reported: bool,
}

/// The pool's record of its drives.
#[derive(Clone, Debug, Default)]
pub(super) struct Suspicions {
    drives: BTreeMap<Seat, Suspicion>,
    hanging: BTreeMap<Seat, Hanging>,
    decide_at: Option<Instant>,
    /// When it was last reported that drives are late together.
    together_at: Option<Instant>,
}

impl Suspicions {
    /// Another drive has the seat, or no drive.
    pub(super) fn forget(&mut self, seat: Seat) {
        self.drives.remove(&seat);
        self.hanging.remove(&seat);
    }

    /// Two drives have changed places.
    pub(super) fn swap(&mut self, a: Seat, b: Seat) {
        let (of_a, of_b) = (self.drives.remove(&a), self.drives.remove(&b));
        self.drives.extend(of_a.map(|of| (b, of)));
        self.drives.extend(of_b.map(|of| (a, of)));
    }

    fn suspects(&self) -> usize {
        let drives = self.drives.values();
        drives.filter(|drive| drive.since.is_some()).count()
    }

    /// Counts a failed read, and returns the recent count.
    pub(super) fn read_failed(&mut self, now: Instant, seat: Seat) -> u64 {
        let drive = self.drives.entry(seat).or_default();
        drive.errors.count(now, ERRORS_HALF_LIFE)
    }

    /// Failed reads count from zero again.
    pub(super) fn reads_forgiven(&mut self, seat: Seat) {
        if let Some(drive) = self.drives.get_mut(&seat) {
            drive.errors = Default::default();
        }
    }

    fn trust_at(&self) -> Option<Instant> {
        let drives = self.drives.values();
        let suspects = drives.filter(|drive| drive.since.is_some());
        suspects
            .filter_map(|drive| Some(drive.late_at? + drive.clean))
            .min()
    }
}

impl Suspicions {
    /// Whether the seat's drive is slow, and is read only if no other drive can supply the data.
    pub(super) fn is_suspect(&self, seat: Seat) -> bool {
        let drive = self.drives.get(&seat);
        drive.is_some_and(|drive| drive.since.is_some())
    }

    /// Whether the seat's drive does not answer.
    pub(super) fn is_hanging(&self, seat: Seat) -> bool {
        self.hanging.contains_key(&seat)
    }

    /// When something is to be decided.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.trust_at().into_iter().chain(self.decide_at).min()
    }
}

/// Drives that are late.
impl Suspicions {
    /// An operation on a drive takes long. Returns whether the drive is to go out for that.
    pub(super) fn late(&mut self, cx: &mut Context, seat: Seat) -> bool {
        let now = cx.now;
        if !cx.labels.has(seat) {
            return false;
        }
        let drive = self.drives.entry(seat).or_default();
        let again = |at: Instant| now.since(at) < COUNT_EVERY;
        if drive.late_at.is_some_and(again) {
            return false;
        }
        drive.late_at = Some(now);
        let count = drive.late.count(now, HALF_LIFE);
        let since = drive.since;
        let lately = |at: Instant| now.since(at) < TOGETHER;
        let together = { self.drives.iter() }
            .filter(|(_, drive)| drive.late_at.is_some_and(lately))
            .map(|(&seat, _)| seat);
        let together: Vec<Seat> = together.collect();
        if together.len() > 1 && 2 * together.len() >= cx.labels.drives().len() {
            self.host_stall(cx, &together);
            return false;
        }
        match since {
            None => {
                if count >= SUSPECT_AT {
                    self.suspect(cx, seat);
                }
                false
            }
            Some(since) => {
                let (after, late) = SLOW_OUT;
                now.since(since) >= after && count >= late && self.may_go_for_slowness(cx, seat)
            }
        }
    }

    /// Half of the drives are late: the cause is not the drives.
    fn host_stall(&mut self, cx: &mut Context, seats: &[Seat]) {
        for seat in seats {
            if let Some(drive) = self.drives.get_mut(seat) {
                drive.late = DecayingCounter::default();
            }
        }
        let recent = |at: Instant| cx.now.since(at) < CLEAN;
        if !self.together_at.is_some_and(recent) {
            self.together_at = Some(cx.now);
            let drives = seats.len() as u64;
            cx.report(Report::HostStall { drives });
        }
    }

    fn suspect(&mut self, cx: &mut Context, seat: Seat) {
        let most = usize::from(cx.geometry.code().tolerance());
        if self.suspects() >= most {
            // Reads cannot avoid more drives than that.
            return;
        }
        let drive = self.drives.entry(seat).or_default();
        drive.since = Some(cx.now);
        drive.clean = (drive.clean * 2).clamp(CLEAN, CLEAN_MAX);
        cx.report(Report::DriveSuspect { seat });
        cx.tell_lanes(&Command::Suspect(seat));
    }

    /// Suspects that have not been late for long enough are trusted.
    pub(super) fn trust_again(&mut self, cx: &mut Context) {
        let mut trusted = Vec::new();
        for (&seat, drive) in &mut self.drives {
            let clean = drive.late_at.is_none_or(|at| at + drive.clean <= cx.now);
            if drive.since.is_some() && clean {
                drive.since = None;
                drive.late = DecayingCounter::default();
                trusted.push(seat);
            }
        }
        for seat in trusted {
            cx.report(Report::DriveTrusted { seat });
            cx.tell_lanes(&Command::Trust(seat));
        }
    }

    /// Whether a drive that answers may be put out because it is slow.
    fn may_go_for_slowness(&self, cx: &mut Context, seat: Seat) -> bool {
        let whole = cx.facts.seats().all(|(seat, facts)| {
            matches!(facts.state, SeatState::Current | SeatState::Waiting) || facts.is_removed(seat)
        });
        let seats = &cx.facts.seats;
        let waiting = { seats.iter() }.any(|facts| facts.state == SeatState::Waiting);
        let layout = cx.geometry.layout();
        let replaced = waiting || layout.has_spare_space() || cx.geometry.code().tolerance() > 1;
        whole && replaced && self.suspects() == 1 && cx.group_that_needs(seat).is_none()
    }
}

/// Drives that do not answer.
impl Suspicions {
    /// A drive has not answered a lane, or the pool itself, for a long time.
    pub(super) fn hangs(&mut self, cx: &Context, lane: Option<u16>, seat: Seat) {
        if !cx.labels.has(seat) {
            return;
        }
        let hanging = self.hanging.entry(seat).or_default();
        hanging.own |= lane.is_none();
        hanging.lanes.extend(lane);
        self.decide_at = self.decide_at.or(Some(cx.now + GRACE));
    }

    /// A drive has answered all operations for which the lane (or the pool) had waited too long.
    pub(super) fn answers(&mut self, lane: Option<u16>, seat: Seat) {
        let Some(hanging) = self.hanging.get_mut(&seat) else {
            return;
        };
        match lane {
            Some(lane) => {
                hanging.lanes.remove(&lane);
            }
            None => hanging.own = false,
        }
        if hanging.lanes.is_empty() && !hanging.own {
            self.hanging.remove(&seat);
        }
    }

    /// Labels and cell tables are written by the pool, so the pool itself checks these writes for timeouts.
    pub(super) fn check_own_writes(&mut self, cx: &Context) {
        let late = cx.writes.late(cx.now);
        let seats: BTreeSet<Seat> = late.map(PoolWrite::seat).collect();
        for seat in seats {
            self.hangs(cx, None, seat);
        }
    }

    /// Drives that hang, if it is time to decide about them: each goes out if the pool can do without it by then.
    pub(super) fn decide(&mut self, cx: &mut Context) -> Vec<Seat> {
        if self.decide_at.is_none_or(|at| at > cx.now) {
            return Vec::new();
        }
        self.decide_at = None;
        let hanging = self.hanging.keys().copied();
        let seats: Vec<Seat> = hanging.filter(|&seat| cx.labels.has(seat)).collect();
        let all = cx.group_that_needs_one_of(&seats).is_none();
        if !all && 2 * seats.len() > cx.labels.drives().len() {
            // More than half: the cause is not the drives.
            for &seat in &seats {
                self.cannot_be_spared(cx, seat);
            }
            return Vec::new();
        }
        seats
    }

    /// A drive hangs and stays.
    pub(super) fn cannot_be_spared(&mut self, cx: &mut Context, seat: Seat) {
        if let Some(hanging) = self.hanging.get_mut(&seat)
            && !std::mem::replace(&mut hanging.reported, true)
        {
            cx.report(Report::DriveHangs { seat });
        }
    }
}

/// When the pool's own writes are to be looked at: when one of them has taken too long, and from then on at intervals.
pub(super) fn own_writes_at(cx: &Context) -> Option<Instant> {
    cx.writes.oldest().map(|since| match since + DEADLINE {
        at if at > cx.now => at,
        _ => cx.now + CHECK_INTERVAL,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{commands, context, is_out, reports};

    #[test]
    fn what_is_counted_fades_by_halves() {
        let mut count = DecayingCounter::default();
        for _ in 0..8 {
            count.count(Instant(5), HALF_LIFE);
        }
        let after = |seconds| count.now(Instant(5) + Duration::from_secs(seconds), HALF_LIFE);
        assert_eq!(
            [after(0), after(5), after(10), after(30)],
            [8000, 6000, 4000, 1000]
        );
        assert_eq!(after(100_000_000), 0);
    }

    const SECOND: Duration = Duration::from_secs(1);

    /// Lets a drive be late once in each of so many seconds, which begin at `from`; returns whether it is to go out.
    fn late(of: &mut Suspicions, cx: &mut Context, seat: Seat, from: u32, seconds: u32) -> bool {
        let mut goes = false;
        for second in from..from + seconds {
            cx.now = Instant::ZERO + SECOND * second;
            goes |= of.late(cx, seat);
        }
        goes
    }

    #[test]
    fn a_drive_that_is_late_a_few_times_is_suspect_and_lanes_get_it_once() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        late(&mut suspicions, &mut cx, Seat(3), 1, 2);
        assert!(!suspicions.is_suspect(Seat(3)));
        late(&mut suspicions, &mut cx, Seat(3), 3, 5);
        assert!(suspicions.is_suspect(Seat(3)));
        assert_eq!(reports(&mut cx), [Report::DriveSuspect { seat: Seat(3) }]);
        let suspect = (0, Command::Suspect(Seat(3)));
        assert_eq!(commands(&mut cx)[..1], [suspect]);
    }

    #[test]
    fn operations_that_are_late_at_once_count_as_one() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        cx.now = Instant::ZERO + SECOND;
        assert!((0..100).all(|_| !suspicions.late(&mut cx, Seat(3))));
        assert!(!suspicions.is_suspect(Seat(3)));
    }

    #[test]
    fn no_more_drives_are_suspect_than_reads_can_avoid() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        for (at, seat) in (0..3).zip([3, 4, 5]) {
            late(&mut suspicions, &mut cx, Seat(seat), 10 * at + 1, 6);
        }
        let suspects = [3, 4, 5].map(|seat| suspicions.is_suspect(Seat(seat)));
        assert_eq!(suspects, [true, true, false]);
    }

    #[test]
    fn drives_of_which_half_are_late_are_not_the_cause() {
        let mut cx = context("raid6", 6, 1);
        let mut suspicions = Suspicions::default();
        for second in 1..20 {
            cx.now = Instant::ZERO + SECOND * second;
            for seat in 0..3 {
                assert!(!suspicions.late(&mut cx, Seat(seat)));
            }
        }
        assert_eq!(suspicions.suspects(), 0);
        assert_eq!(reports(&mut cx), [Report::HostStall { drives: 3 }], "once");
    }

    #[test]
    fn a_suspect_is_trusted_after_a_while_and_each_relapse_takes_twice_as_long() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        let mut begin = 1;
        for clean in [30, 60, 120] {
            late(&mut suspicions, &mut cx, Seat(3), begin, 6);
            let last = Instant::ZERO + SECOND * (begin + 5);
            assert_eq!(suspicions.poll_timeout(), Some(last + SECOND * clean));
            cx.now = last + SECOND * (clean - 1);
            suspicions.trust_again(&mut cx);
            assert!(suspicions.is_suspect(Seat(3)), "{clean}");
            cx.now = last + SECOND * clean;
            suspicions.trust_again(&mut cx);
            assert!(!suspicions.is_suspect(Seat(3)), "{clean}");
            begin += 1000;
        }
        let trusted = Report::DriveTrusted { seat: Seat(3) };
        assert_eq!(
            reports(&mut cx).iter().filter(|&of| *of == trusted).count(),
            3
        );
    }

    #[test]
    fn a_drive_that_is_late_for_a_minute_goes_out_if_the_pool_is_whole_without_it() {
        for (scheme, drives, goes) in [("raid6", 12, true), ("raid5", 12, false)] {
            let mut cx = context(scheme, drives, 1);
            let mut suspicions = Suspicions::default();
            assert!(!late(&mut suspicions, &mut cx, Seat(3), 1, 60), "{scheme}");
            // Two a second from now on, so that the count is high enough.
            let mut out = false;
            for half in 130..180 {
                cx.now = Instant::ZERO + SECOND / 2 * half;
                out |= suspicions.late(&mut cx, Seat(3));
            }
            assert_eq!(out, goes, "{scheme}: without it a drive less may fail");
        }
    }

    #[test]
    fn a_slow_drive_stays_while_another_drive_is_out() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        is_out(&mut cx, Seat(5), crate::OutReason::Hung);
        for half in 2..400 {
            cx.now = Instant::ZERO + SECOND / 2 * half;
            assert!(!suspicions.late(&mut cx, Seat(3)));
        }
        assert!(suspicions.is_suspect(Seat(3)));
    }

    #[test]
    fn drives_that_hang_are_decided_about_together_after_a_moment() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        suspicions.hangs(&cx, Some(0), Seat(3));
        cx.now = Instant::ZERO + GRACE / 2;
        suspicions.hangs(&cx, None, Seat(5));
        assert_eq!(suspicions.decide(&mut cx), []);
        cx.now = suspicions.poll_timeout().unwrap();
        assert_eq!(cx.now, Instant::ZERO + GRACE);
        assert_eq!(suspicions.decide(&mut cx), [Seat(3), Seat(5)]);
        assert_eq!(suspicions.decide(&mut cx), [], "once");
    }

    #[test]
    fn if_most_drives_hang_all_stay_and_each_is_reported_once() {
        let mut cx = context("raid6", 6, 1);
        let mut suspicions = Suspicions::default();
        for _ in 0..2 {
            for seat in 0..4 {
                suspicions.hangs(&cx, Some(0), Seat(seat));
            }
            cx.now = suspicions.poll_timeout().unwrap();
            assert_eq!(suspicions.decide(&mut cx), []);
        }
        let hang = (0..4).map(|seat| Report::DriveHangs { seat: Seat(seat) });
        assert_eq!(reports(&mut cx), hang.collect::<Vec<_>>());
    }

    #[test]
    fn a_drive_hangs_until_it_has_answered_all_who_wait() {
        let cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        suspicions.hangs(&cx, Some(0), Seat(3));
        suspicions.hangs(&cx, None, Seat(3));
        suspicions.answers(Some(0), Seat(3));
        assert!(suspicions.is_hanging(Seat(3)));
        suspicions.answers(Some(7), Seat(4));
        suspicions.answers(None, Seat(3));
        assert!(!suspicions.is_hanging(Seat(3)));
    }

    #[test]
    fn what_is_known_of_a_drive_goes_with_it_and_ends_with_it() {
        let mut cx = context("raid6", 12, 1);
        let mut suspicions = Suspicions::default();
        late(&mut suspicions, &mut cx, Seat(3), 1, 6);
        assert_eq!(suspicions.read_failed(cx.now, Seat(3)), 1);
        suspicions.swap(Seat(3), Seat(8));
        assert!(suspicions.is_suspect(Seat(8)) && !suspicions.is_suspect(Seat(3)));
        assert_eq!(suspicions.read_failed(cx.now, Seat(8)), 2);
        suspicions.reads_forgiven(Seat(8));
        assert_eq!(suspicions.read_failed(cx.now, Seat(8)), 1);
        suspicions.forget(Seat(8));
        assert!(!suspicions.is_suspect(Seat(8)));
    }
}
