//! Measures how long drives take, and reports drives that take longer than usual.
//!
//! Per seat and class of operation the lane keeps a high quantile of the time that operations take. Whether an
//! operation is *late* is measured against the median of these quantiles over all seats. So a drive that is always slow
//! still counts as late, and if all drives are slow none is late.
//!
//! ```text
//!   handed out ── late ─► hedged (`lane/ops/hedge.rs`); the pool counts it against the drive
//!              └─ DEADLINE ─► `Hangs`: the pool decides; `Answers` if the drive answers again
//! ```
//!
//! The cost is one subtraction and one comparison per operation. Checks are made when the oldest operation in flight
//! may be late, by the lane's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Instant, Seat};
use plan::action::{DEADLINE, Event, IoId, IoKind};

use super::Flight;
use crate::context::Context;
use crate::sequence_map::SequenceMap;

/// While a drive hangs, this is reported to the pool again at this interval: the state of the pool may have changed.
const TELL_AGAIN: Duration = Duration::from_secs(5);

/// No operation is late before: on a busy host a thread may wait that long for a core.
const LATE_MIN: Duration = Duration::from_millis(10);

/// An operation that takes this many times as long as a good drive's slowest hundredth is late. A guess.
const LATE_FACTOR: u32 = 4;

/// The limit before enough operations have been seen. It is also the upper limit while enough have been seen of one
/// drive only: there is no other drive to compare it with.
const LATE_UNKNOWN: Duration = Duration::from_millis(100);

/// Operations that must have been seen of a drive before its quantile counts for the median.
const LEARNED_AFTER: u32 = 64;

/// The limits are computed again this often at most: the computation reads the figures of every seat.
const WEIGH_EVERY: Duration = Duration::from_millis(50);

/// Binary logarithm of the bytes for which a drive is given one more unit of time.
const UNIT_BYTES_LOG2: u32 = 16;

/// A moving high quantile of what operations take, in nanoseconds per unit.
#[derive(Clone, Copy, Debug, Default)]
struct Quantile {
    seen: u32,
    high: u64,
}

impl Quantile {
    /// Steps up are 128 times as large as steps down, so that the estimate settles where one sample in 129 is above it:
    /// at the 99th percentile.
    const fn saw(&mut self, took: u64) {
        if self.seen < LEARNED_AFTER {
            self.seen += 1;
            if took > self.high {
                self.high = took;
            }
        } else if took > self.high {
            self.high += (self.high >> 3) + 1;
        } else {
            self.high -= self.high >> 10;
        }
    }
}

/// Reads and writes are two classes. Flushes and discards have none: a flush takes as long as what it covers, a discard
/// as long as the drive likes.
const fn class(kind: IoKind) -> Option<usize> {
    match kind {
        IoKind::Read => Some(0),
        IoKind::Write | IoKind::WriteZeroes => Some(1),
        IoKind::Discard | IoKind::Flush => None,
    }
}

/// Units of an operation: long ones count as several.
pub(crate) const fn units(length: u64) -> u64 {
    1 + (length >> UNIT_BYTES_LOG2)
}

/// What a lane has measured of its drives' latency.
#[derive(Clone, Debug)]
pub(super) struct LatencyTracker {
    paces: Vec<[Quantile; 2]>,
    /// The age from which a read or write of one unit is late.
    late_after: [Duration; 2],
    weighed_at: Option<Instant>,
    check_at: Option<Instant>,
    /// Seats that were reported to the pool as hanging, and when.
    told: BTreeMap<Seat, Instant>,
}

impl LatencyTracker {
    pub(super) fn new(seats: u16) -> Self {
        Self {
            paces: vec![[Quantile::default(); 2]; seats.into()],
            late_after: [LATE_UNKNOWN; 2],
            weighed_at: None,
            check_at: None,
            told: BTreeMap::new(),
        }
    }

    /// There are this many seats from now on: drives in new ones are measured, too.
    pub(super) fn measure(&mut self, seats: u16) {
        self.paces.resize(seats.into(), Default::default());
    }

    pub(super) const fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    fn shortest(&self) -> Duration {
        self.late_after[0].min(self.late_after[1])
    }

    fn late_after(&self, kind: IoKind, length: u64) -> Option<Duration> {
        let units = u32::try_from(units(length)).unwrap_or(u32::MAX);
        Some(self.late_after[class(kind)?] * units)
    }

    /// Computes the limits from what is usual for a good drive: the median of the seats, the lower one of two.
    fn weigh(&mut self, now: Instant) {
        let recent = |at: Instant| now.since(at) < WEIGH_EVERY;
        if self.weighed_at.is_some_and(recent) {
            return;
        }
        self.weighed_at = Some(now);
        for class in 0..2 {
            let learned = self.paces.iter().map(|paces| paces[class]);
            let learned = learned.filter(|pace| pace.seen >= LEARNED_AFTER);
            let mut highs: Vec<u64> = learned.map(|pace| pace.high).collect();
            highs.sort_unstable();
            self.late_after[class] = match highs.len() {
                0 => LATE_UNKNOWN,
                1 => {
                    let usual = Duration::from_nanos(highs[0]);
                    (usual * LATE_FACTOR).clamp(LATE_MIN, LATE_UNKNOWN)
                }
                count => {
                    let usual = Duration::from_nanos(highs[(count - 1) / 2]);
                    LATE_MIN.max(usual * LATE_FACTOR)
                }
            };
        }
    }

    /// The seat has another drive, or none.
    pub(super) fn forget(&mut self, seat: Seat) {
        self.told.remove(&seat);
        if let Some(paces) = self.paces.get_mut(seat.index()) {
            *paces = [Quantile::default(); 2];
        }
    }
}

impl LatencyTracker {
    /// An operation has been submitted.
    pub(super) fn begins(&mut self, now: Instant) {
        // Not later, although no operation may be late so soon: the limits are computed at checks. So they are computed
        // once per this time while there is I/O, and never while there is none.
        let at = now + LATE_MIN;
        if self.check_at.is_none_or(|check_at| check_at > at) {
            self.check_at = Some(at);
        }
    }

    /// A drive has answered.
    pub(super) fn ended(&mut self, now: Instant, flight: &Flight) {
        if let (Some(class), Some(paces)) = (
            class(flight.io.kind),
            self.paces.get_mut(flight.io.seat.index()),
        ) {
            let took = now.0.saturating_sub(flight.since.0);
            paces[class].saw(took / units(flight.span));
        }
        if !self.told.is_empty() {
            self.check_at = Some(now);
        }
    }

    /// Checks for late operations, if it is time to. Returns late reads that can perhaps be hedged; then
    /// [`checked`](Self::checked).
    pub(super) fn check(
        &mut self,
        cx: &mut Context,
        in_flight: &mut SequenceMap<IoId, Flight>,
    ) -> Option<Vec<IoId>> {
        if self.check_at.is_none_or(|at| at > cx.now) {
            return None;
        }
        self.weigh(cx.now);
        let shortest = self.shortest();
        let mut newly_late: BTreeSet<Seat> = BTreeSet::new();
        let mut late: BTreeSet<Seat> = BTreeSet::new();
        let mut hung: BTreeSet<Seat> = BTreeSet::new();
        let mut unhedged: Vec<IoId> = Vec::new();
        // Ids are given in order of time: all that follow are younger.
        for (id, flight) in in_flight.iter_mut() {
            let age = cx.now.since(flight.since);
            if age < shortest {
                break;
            }
            let (seat, kind) = (flight.io.seat, flight.io.kind);
            if age >= DEADLINE {
                hung.insert(seat);
            }
            let limit = self.late_after(kind, flight.span);
            if limit.is_none_or(|limit| age < limit) {
                continue;
            }
            late.insert(seat);
            if !std::mem::replace(&mut flight.late, true) {
                newly_late.insert(seat);
            }
            if kind == IoKind::Read && !flight.hedged {
                unhedged.push(id);
            }
        }
        let lane = cx.lane;
        for seat in newly_late {
            cx.events.push_back(Event::Late { seat });
        }
        let told: Vec<Seat> = self.told.keys().copied().collect();
        for seat in told.into_iter().filter(|seat| !hung.contains(seat)) {
            self.told.remove(&seat);
            cx.events.push_back(Event::Answers { lane, seat });
        }
        for seat in hung {
            let told = self.told.get(&seat);
            if told.is_none_or(|&at| cx.now.since(at) >= TELL_AGAIN) {
                self.told.insert(seat, cx.now);
                cx.events.push_back(Event::Hangs { lane, seat });
            }
        }
        // If more drives are late than the code survives, hedges do not help: they would wait for the same drives.
        if late.len() > usize::from(cx.geometry.code().tolerance()) {
            unhedged.clear();
        }
        Some(unhedged)
    }

    /// What could be done about late operations has been done: sets the time of the next check.
    pub(super) fn checked(&mut self, now: Instant, in_flight: &SequenceMap<IoId, Flight>) {
        self.check_at = self.next_look(now, in_flight);
    }

    fn next_look(&self, now: Instant, in_flight: &SequenceMap<IoId, Flight>) -> Option<Instant> {
        let soon = now + LATE_MIN / 2;
        let late_after = self.shortest();
        let mut at: Option<Instant> = None;
        let mut earlier = |time: Instant| at = Some(at.map_or(time, |at| at.min(time)));
        for flight in in_flight.values() {
            let dead = flight.since + DEADLINE;
            if dead > now {
                earlier(dead);
            }
            if flight.late || class(flight.io.kind).is_none() {
                if flight.io.kind == IoKind::Read && !flight.hedged {
                    earlier(now + LATE_MIN);
                }
                continue;
            }
            earlier((flight.since + late_after).max(soon));
            // All that follow are younger.
            break;
        }
        for &told in self.told.values() {
            earlier(told + TELL_AGAIN);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_settles_at_the_slowest_hundredth() {
        let mut pace = Quantile::default();
        // One in fifty takes ten times as long, one in a thousand a hundred times.
        for index in 0..50_000_u64 {
            pace.saw(match index {
                _ if index % 1000 == 0 => 10_000_000,
                _ if index % 50 == 0 => 1_000_000,
                _ => 100_000,
            });
        }
        assert!((900_000..1_400_000).contains(&pace.high), "{pace:?}");
    }

    #[test]
    fn a_drive_in_a_new_seat_is_measured_and_the_others_keep_their_figures() {
        let mut tracker = LatencyTracker::new(2);
        tracker.paces[1][0].saw(7);
        tracker.measure(3);
        assert_eq!(tracker.paces.len(), 3);
        assert_eq!((tracker.paces[1][0].high, tracker.paces[2][0].seen), (7, 0));
    }

    #[test]
    fn one_slow_drive_does_not_change_what_is_usual_and_all_do() {
        for (slow, limit) in [(1, LATE_MIN), (6, Duration::from_millis(800))] {
            let mut tracker = LatencyTracker::new(6);
            for _ in 0..LEARNED_AFTER {
                for (seat, paces) in tracker.paces.iter_mut().enumerate() {
                    let took = if seat < slow { 200 } else { 1 };
                    paces[0].saw(took * 1_000_000);
                }
            }
            tracker.weigh(Instant(1));
            assert_eq!(tracker.late_after[0], limit, "{slow} slow");
        }
    }
}
