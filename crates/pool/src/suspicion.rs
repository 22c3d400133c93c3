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

use super::scrub::SCRUB_PLAN_INTERVAL;
use super::writes::PoolWrite;
use super::{OutReason, Pool, Report, SeatState};

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

impl Pool {
    /// Whether the seat's drive is slow, and is read only if no other drive can supply the data.
    #[must_use]
    pub fn is_suspect(&self, seat: Seat) -> bool {
        let drive = self.suspicions.drives.get(&seat);
        drive.is_some_and(|drive| drive.since.is_some())
    }

    /// Whether the seat's drive does not answer, and stays because it cannot be spared.
    #[must_use]
    pub fn is_hanging(&self, seat: Seat) -> bool {
        self.suspicions.hanging.contains_key(&seat)
    }

    /// When to call `handle_timeout`.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let oldest = self.cx.writes.oldest();
        let hung = oldest.map(|since| match since + DEADLINE {
            at if at > self.cx.now => at,
            _ => self.cx.now + CHECK_INTERVAL,
        });
        let plan = (self.cx.facts.scrub.every_days > 0).then(|| self.cx.now + SCRUB_PLAN_INTERVAL);
        let times = [
            self.suspicions.trust_at(),
            self.suspicions.decide_at,
            self.cx.labels.retry_at(),
            self.stalls.try_at(),
            self.meter.grant_at(),
            self.rooms.poll_timeout(),
            hung,
            plan,
        ];
        times.into_iter().flatten().min()
    }

    /// The clock has reached [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cx.now = now;
        self.trust_again();
        self.check_own_writes();
        if self.suspicions.decide_at.is_some_and(|at| at <= now) {
            self.suspicions.decide_at = None;
            self.decide_hanging();
        }
        self.advance();
    }

    // --- late --------------------------------------------------------------------------------

    /// An operation on a drive takes long.
    pub(super) fn drive_late(&mut self, seat: Seat) {
        let now = self.cx.now;
        if !self.cx.labels.has(seat) {
            return;
        }
        let drive = self.suspicions.drives.entry(seat).or_default();
        let again = |at: Instant| now.since(at) < COUNT_EVERY;
        if drive.late_at.is_some_and(again) {
            return;
        }
        drive.late_at = Some(now);
        let count = drive.late.count(now, HALF_LIFE);
        let since = drive.since;
        let together: Vec<Seat> = self
            .suspicions
            .drives
            .iter()
            .filter(|(_, drive)| drive.late_at.is_some_and(|at| now.since(at) < TOGETHER))
            .map(|(&seat, _)| seat)
            .collect();
        if together.len() > 1 && 2 * together.len() >= self.cx.labels.drives().len() {
            self.host_stall(&together);
            return;
        }
        match since {
            None if count >= SUSPECT_AT => self.suspect(seat),
            Some(since)
                if now.since(since) >= SLOW_OUT.0
                    && count >= SLOW_OUT.1
                    && self.may_go_for_slowness(seat) =>
            {
                self.take_out(seat, OutReason::Slow, Vec::new());
            }
            _ => {}
        }
    }

    /// Half of the drives are late: the cause is not the drives.
    fn host_stall(&mut self, seats: &[Seat]) {
        for seat in seats {
            if let Some(drive) = self.suspicions.drives.get_mut(seat) {
                drive.late = DecayingCounter::default();
            }
        }
        let recent = |at: Instant| self.cx.now.since(at) < CLEAN;
        if !self.suspicions.together_at.is_some_and(recent) {
            self.suspicions.together_at = Some(self.cx.now);
            let drives = seats.len() as u64;
            self.cx.report(Report::HostStall { drives });
        }
    }

    fn suspect(&mut self, seat: Seat) {
        let most = usize::from(self.cx.geometry.code().tolerance());
        if self.suspicions.suspects() >= most {
            // Reads cannot avoid more drives than that.
            return;
        }
        let now = self.cx.now;
        let drive = self.suspicions.drives.entry(seat).or_default();
        drive.since = Some(now);
        drive.clean = (drive.clean * 2).clamp(CLEAN, CLEAN_MAX);
        self.cx.report(Report::DriveSuspect { seat });
        self.cx.tell_lanes(&Command::Suspect(seat));
    }

    fn trust_again(&mut self) {
        let now = self.cx.now;
        let mut trusted = Vec::new();
        for (&seat, drive) in &mut self.suspicions.drives {
            let clean = drive.late_at.is_none_or(|at| at + drive.clean <= now);
            if drive.since.is_some() && clean {
                drive.since = None;
                drive.late = DecayingCounter::default();
                trusted.push(seat);
            }
        }
        for seat in trusted {
            self.cx.report(Report::DriveTrusted { seat });
            self.cx.tell_lanes(&Command::Trust(seat));
        }
    }

    /// Whether a drive that answers may be put out because it is slow.
    fn may_go_for_slowness(&mut self, seat: Seat) -> bool {
        let whole = self.cx.facts.seats().all(|(seat, facts)| {
            matches!(facts.state, SeatState::Current | SeatState::Waiting) || facts.is_removed(seat)
        });
        let waiting = self
            .cx
            .facts
            .seats()
            .any(|(_, facts)| facts.state == SeatState::Waiting);
        let layout = self.cx.geometry.layout();
        let replaced =
            waiting || layout.has_spare_space() || self.cx.geometry.code().tolerance() > 1;
        whole
            && replaced
            && self.suspicions.suspects() == 1
            && self.group_that_needs(seat).is_none()
    }

    // --- hanging -----------------------------------------------------------------------------

    /// A drive has not answered a lane for a long time.
    pub(super) fn drive_hangs(&mut self, lane: Option<u16>, seat: Seat) {
        if !self.cx.labels.has(seat) {
            return;
        }
        let hanging = self.suspicions.hanging.entry(seat).or_default();
        hanging.own |= lane.is_none();
        hanging.lanes.extend(lane);
        let decide_at = &mut self.suspicions.decide_at;
        *decide_at = decide_at.or(Some(self.cx.now + GRACE));
    }

    /// A drive has answered all operations for which the lane (or the pool) had waited too long.
    pub(super) fn drive_answers(&mut self, lane: Option<u16>, seat: Seat) {
        let Some(hanging) = self.suspicions.hanging.get_mut(&seat) else {
            return;
        };
        match lane {
            Some(lane) => {
                hanging.lanes.remove(&lane);
            }
            None => hanging.own = false,
        }
        if hanging.lanes.is_empty() && !hanging.own {
            self.suspicions.hanging.remove(&seat);
        }
    }

    /// Labels and cell tables are written by the pool, so the pool itself checks these writes for timeouts.
    fn check_own_writes(&mut self) {
        let now = self.cx.now;
        self.give_up_journal_wipes();
        let late = self.cx.writes.late(now);
        let seats: BTreeSet<Seat> = late.map(PoolWrite::seat).collect();
        for seat in seats {
            self.drive_hangs(None, seat);
        }
    }

    /// Puts out those of the hanging drives that the pool can do without.
    fn decide_hanging(&mut self) {
        let hanging = self.suspicions.hanging.keys().copied();
        let seats: Vec<Seat> = hanging.filter(|&seat| self.cx.labels.has(seat)).collect();
        if seats.is_empty() {
            return;
        }
        let all = self.group_that_needs_one_of(&seats).is_none();
        if !all && 2 * seats.len() > self.cx.labels.drives().len() {
            // More than half: the cause is not the drives.
            self.cannot_spare(&seats);
            return;
        }
        for seat in seats {
            if self.group_that_needs(seat).is_none() {
                self.take_out(seat, OutReason::Hung, Vec::new());
            } else {
                self.cannot_spare(&[seat]);
            }
        }
    }

    fn cannot_spare(&mut self, seats: &[Seat]) {
        for &seat in seats {
            if let Some(hanging) = self.suspicions.hanging.get_mut(&seat)
                && !std::mem::replace(&mut hanging.reported, true)
            {
                self.cx.report(Report::DriveHangs { seat });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
