//! Room: what lanes may add on drives that know how much of their physical space they use (`docs/design/room.md`).
//!
//! ```text
//!   lanes: short of room ─► ask all lanes ─► they give back what they do not use ─► a sample taken after that ─► grants
//!             ▲                                                                                                  │
//!             └───────── writes still wait, and something can be freed: again, a little later ◄──────────────────┘
//!
//!   a drive   |  used (sample)  | limits of all lanes, less what is settled |  left  |upper line ┊ for what must not wait | reserve |
//! ```
//!
//! [`Rooms`] decides what each lane may charge. It reads no clock and does no I/O: the pool passes reports and samples,
//! and carries out what [`poll`](Rooms::poll) returns.
//!
//! Why a drive cannot run out: at a sample it uses `used`. What lanes may add later is at most what their limits leave
//! beyond what was settled when the sample was taken, at ratio 1; and that sum is at most what was left up to the upper
//! line. Beyond the line is the room for what does not wait (parity under writes of zeros, repairs, conversions), and
//! beyond that the reserve for labels, ring and pages at ratio 1.
//!
//! Invariants:
//! - A sample frees a lane's charges only if it was taken after the lane has reported them as settled.
//! - The limits of all lanes, less what they have settled, and what the drive used at the sample are together at most
//!   the upper line, unless they were granted before the drive used more.
//! - What one lane does not use, the others get in the next round.
//! - A write ends with "no space" only if it would find none if all that can be freed were: all charges that are not
//!   settled took nothing, and the other lanes used nothing of their room; and no drive discards, and no policy of the
//!   pool frees anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use block::{Instant, Seat, Usage};
use format::seeded::{self, SeededFault};
use plan::room::{RoomReport, SeatRoom};

/// One part in so many of what a drive may hold lies beyond the upper line. A guess: it must last for what does not
/// wait between two samples.
const BEYOND_UPPER_ONE_IN: u64 = 64;
/// One part in so many lies between the lower and the upper line.
const BETWEEN_ONE_IN: u64 = 16;
/// The time to the next round while writes wait and something can be freed: doubled each time, up to the longest.
const WAIT_MIN: Duration = Duration::from_millis(20);
const WAIT_MAX: Duration = Duration::from_millis(500);
/// The least time from the end of a round to the next one because something has become free. While writes wait, each
/// round makes the lanes free what they can, and tell so: beside a drive that does not answer that has no end.
const WAIT_FREED: Duration = Duration::from_millis(5);

/// Where the use of a drive is with respect to its lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RoomLevel {
    /// Below the lower line.
    Below,
    /// Between the lines.
    Between,
    /// At the upper line or above.
    Above,
}

/// The physical space of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveRoom {
    /// Its physical capacity.
    pub physical_bytes: u64,
    /// What it used at the last sample.
    pub used_bytes: u64,
    /// What writes may have added since, or will add when they are put in place, at ratio 1.
    pub counted_bytes: u64,
    /// The lower line: below it, space may be spent.
    pub lower_bytes: u64,
    /// The upper line: writes that would pass it wait.
    pub upper_bytes: u64,
}

impl DriveRoom {
    /// Where the drive's use at the last sample is.
    #[must_use]
    pub const fn level(&self) -> RoomLevel {
        match self.used_bytes {
            used if used >= self.upper_bytes => RoomLevel::Above,
            used if used >= self.lower_bytes => RoomLevel::Between,
            _ => RoomLevel::Below,
        }
    }

    /// The same, with what is counted as if it were incompressible.
    #[must_use]
    pub const fn level_at_most(&self) -> RoomLevel {
        let used_bytes = self.used_bytes.saturating_add(self.counted_bytes);
        Self {
            used_bytes,
            ..*self
        }
        .level()
    }
}

/// What a drive may hold in data cells, apart from its capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// Bytes for labels, ring and pages, at ratio 1.
    pub(super) reserve_bytes: u64,
    /// Drives of the layout.
    pub(super) drives: u64,
    /// How many drives' worth of space the layout keeps spare.
    pub(super) spares: u64,
    /// How much of that is in use, because drives are out and their columns are rebuilt.
    pub(super) used_spares: u64,
}

/// Why writes wait, or end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WritesWait {
    /// They wait for room on this drive, and something can be freed.
    ForRoom(Seat),
    /// There is no room on this drive, and nothing can be freed: they end with an error.
    NoSpace(Seat),
}

/// What the pool does for the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Output {
    /// Asks all lanes for a report.
    Ask { round: u64, pressed: bool },
    /// Requests a sample of all drives.
    Sample,
    /// Grants a lane these limits, by seat. `last`: there is no more, and none will be freed.
    Grant {
        lane: u16,
        limits: Vec<Option<u64>>,
        last: bool,
    },
}

/// A round under way.
#[derive(Clone, Debug)]
enum Round {
    /// These lanes have yet to report.
    Asking(BTreeSet<u16>),
    /// A sample taken at this time or later is awaited.
    Sampling(Instant),
}

/// A drive that knows its use.
#[derive(Clone, Copy, Debug)]
struct Known {
    usage: Usage,
    shape: Shape,
}

impl Known {
    /// What it may hold.
    fn line(&self) -> u64 {
        let Shape {
            reserve_bytes,
            drives,
            spares,
            used_spares,
        } = self.shape;
        let bytes = self.usage.physical_bytes.saturating_sub(reserve_bytes);
        let there = drives.saturating_sub(used_spares.min(spares)).max(1);
        let line =
            u128::from(bytes) * u128::from(drives.saturating_sub(spares)) / u128::from(there);
        u64::try_from(line).unwrap_or(u64::MAX).min(bytes)
    }

    fn upper(&self) -> u64 {
        let line = self.line();
        line - line / BEYOND_UPPER_ONE_IN
    }

    fn lower(&self) -> u64 {
        self.upper() - self.line() / BETWEEN_ONE_IN
    }
}

/// The room of all lanes on all drives.
#[derive(Clone, Debug, Default)]
pub(super) struct Rooms {
    /// Drives that know their use.
    known: BTreeMap<Seat, Known>,
    /// The number of seats that grants name.
    seats: usize,
    /// The last report of each lane.
    lanes: Vec<RoomReport>,
    round: Option<Round>,
    number: u64,
    /// Another round follows the one under way, unless writes wait for the next one anyway.
    again: bool,
    /// Something may have become free during the round under way: another one follows soon.
    freed: bool,
    /// When the last round ended.
    granted_at: Instant,
    /// When the next round begins, while writes wait.
    next_at: Option<Instant>,
    wait: Option<Duration>,
    wait_for: Option<WritesWait>,
    /// A policy of the pool can free space.
    frees: bool,
    outputs: VecDeque<Output>,
    /// A grant has been the last although something could be freed: for checks.
    wrongly_last: bool,
}

impl Rooms {
    /// For so many lanes.
    pub(super) fn new(lanes: u16) -> Self {
        Self {
            lanes: vec![RoomReport::default(); usize::from(lanes)],
            ..Self::default()
        }
    }

    /// True if some drive knows its use.
    pub(super) fn is_on(&self) -> bool {
        !self.known.is_empty()
    }

    /// True if drives knew their use when lanes last got limits, or know it now.
    fn is_or_was_on(&self) -> bool {
        self.is_on() || self.number > 0
    }

    /// The limits with which lanes begin: nothing is granted on drives that know their use.
    pub(super) fn first_limits(&self) -> Vec<Option<u64>> {
        let limit = |seat| self.known.contains_key(&Seat(seat)).then_some(0);
        (0..).take(self.seats).map(limit).collect()
    }

    /// The driver has sampled all drives, at `taken_at` or a little later.
    pub(super) fn sampled(
        &mut self,
        now: Instant,
        taken_at: Instant,
        samples: impl IntoIterator<Item = (Seat, Option<Usage>, Shape)>,
    ) {
        let before = std::mem::take(&mut self.known);
        for (seat, usage, shape) in samples {
            self.seats = self.seats.max(seat.index() + 1);
            if let Some(usage) = usage {
                self.known.insert(seat, Known { usage, shape });
            }
        }
        match self.round {
            Some(Round::Sampling(since)) if since <= taken_at => self.grant(now),
            // Lanes have no limit yet on a drive that has just come.
            None if self.number > 0 && self.known.keys().any(|seat| !before.contains_key(seat)) => {
                self.begin();
            }
            _ => self.forget_lack(),
        }
    }

    /// Writes no longer count as without space if there is room again.
    fn forget_lack(&mut self) {
        if let Some(WritesWait::NoSpace(seat)) = self.wait_for
            && self.left(seat).is_none_or(|left| left > self.margin(seat))
        {
            self.wait_for = None;
        }
    }

    fn margin(&self, seat: Seat) -> u64 {
        self.known.get(&seat).map_or(0, |known| known.line() / 256)
    }

    /// The lanes are ready for requests.
    pub(super) fn start(&mut self) {
        if self.is_on() && self.round.is_none() {
            self.begin();
        }
    }

    /// A lane lacks room, or will soon. `freed`: something may have become free since the last round.
    pub(super) fn wanted(&mut self, now: Instant, freed: bool) {
        if !self.is_or_was_on() {
            return;
        }
        if self.round.is_some() {
            self.again = true;
            self.freed |= freed;
        } else if freed {
            self.begins_soon();
            self.handle_timeout(now);
        } else if self.next_at.is_none() {
            self.begin();
        }
    }

    /// Something has become free.
    fn begins_soon(&mut self) {
        let soon = self.granted_at + WAIT_FREED;
        self.next_at = Some(self.next_at.map_or(soon, |at| at.min(soon)));
    }

    /// A policy of the pool can free space, or cannot any more.
    pub(super) fn set_frees(&mut self, frees: bool) {
        self.frees = frees;
    }

    /// When [`handle_timeout`](Self::handle_timeout) is to be called.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.next_at.filter(|_| self.round.is_none())
    }

    /// The clock has reached this time.
    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.poll_timeout().is_some_and(|at| at <= now) {
            self.begin();
        }
    }

    fn begin(&mut self) {
        self.number += 1;
        self.next_at = None;
        self.again = false;
        self.freed = false;
        let lanes = (0..).take(self.lanes.len()).collect();
        self.round = Some(Round::Asking(lanes));
        self.outputs.push_back(Output::Ask {
            round: self.number,
            pressed: self.wait_for.is_some() || self.lanes.iter().any(RoomReport::waits),
        });
    }

    /// A lane has reported.
    pub(super) fn reported(&mut self, now: Instant, report: RoomReport) {
        let Some(Round::Asking(lanes)) = &mut self.round else {
            return;
        };
        if report.round != self.number {
            return;
        }
        lanes.remove(&report.lane);
        let all = lanes.is_empty();
        let lane = usize::from(report.lane);
        self.lanes[lane] = report;
        if all {
            self.round = Some(Round::Sampling(now));
            self.outputs.push_back(Output::Sample);
        }
    }

    /// What the machine wants done.
    pub(super) fn poll(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// A lane's account of a drive, as of its last report and the grants since.
    fn account(&self, lane: usize, seat: Seat) -> SeatRoom {
        let seats = &self.lanes[lane].seats;
        seats.get(seat.index()).copied().unwrap_or_default()
    }

    /// Bytes that a drive may still get, up to its upper line, and that no lane has.
    fn left(&self, seat: Seat) -> Option<u64> {
        let known = self.known.get(&seat)?;
        let counted = self.counted(seat);
        let used = known.usage.used_bytes;
        Some(known.upper().saturating_sub(used).saturating_sub(counted))
    }

    /// Bytes that lanes may add beyond what a sample shows.
    fn counted(&self, seat: Seat) -> u64 {
        let lanes = 0..self.lanes.len();
        let counted = lanes.map(|lane| {
            let account = self.account(lane, seat);
            account
                .limit
                .max(account.charged)
                .saturating_sub(account.settled)
        });
        counted.fold(0, u64::saturating_add)
    }

    /// All lanes have reported, and a sample was taken after that: divides what is left.
    fn grant(&mut self, now: Instant) {
        self.round = None;
        self.granted_at = now;
        let all = self
            .known
            .keys()
            .map(|&seat| (seat, self.left(seat).unwrap_or(0)));
        let mut left: BTreeMap<Seat, u64> = all.collect();
        let mut waiting: Vec<usize> = (0..self.lanes.len())
            .filter(|&lane| self.lanes[lane].waits())
            .collect();
        waiting.sort_by_key(|&lane| (self.lanes[lane].since, lane));
        // The lanes whose writes find no room, each with what they lack on which drive.
        let mut short: Vec<(usize, Seat, u64)> = Vec::new();
        for lane in waiting {
            let lacks: Vec<(Seat, u64)> = { self.lanes[lane].needs.iter() }
                .filter(|(seat, _)| self.known.contains_key(seat))
                .map(|&(seat, need)| (seat, need.saturating_sub(self.account(lane, seat).unused())))
                .collect();
            let lacking = lacks.iter().find(|(seat, lack)| *lack > left[seat]);
            if let Some(&(seat, lack)) = lacking {
                short.push((lane, seat, lack));
                continue;
            }
            for (seat, lack) in lacks {
                self.raise(lane, seat, lack);
                left.entry(seat).and_modify(|left| *left -= lack);
            }
        }
        let mut last = BTreeSet::new();
        for &(lane, seat, lack) in &short {
            let never = lack > left[&seat].saturating_add(self.may_be_freed(lane, seat));
            if never || seeded::is(SeededFault::GivenUpTooEarly) {
                last.insert(lane);
            }
            self.wrongly_last |= last.contains(&lane) && !never;
        }
        // A write that a drive has refused although there was room is tried again as long as something can be freed.
        let refused = (0..self.lanes.len()).filter(|&lane| self.lanes[lane].refused);
        let refused: Vec<usize> = refused.collect();
        let known = || self.known.keys();
        last.extend(
            { refused.iter() }
                .filter(|&&lane| known().all(|&seat| self.may_be_freed(lane, seat) == 0)),
        );
        let share = self.lanes.len() as u64;
        for (seat, left) in left {
            for lane in 0..self.lanes.len() {
                self.raise(lane, seat, left / share);
            }
        }
        self.wait_for = match short.first() {
            Some(&(lane, seat, _)) if last.contains(&lane) => Some(WritesWait::NoSpace(seat)),
            Some(&(_, seat, _)) => Some(WritesWait::ForRoom(seat)),
            None => { self.wait_for }.filter(|wait| matches!(wait, WritesWait::NoSpace(_))),
        };
        self.forget_lack();
        self.push_grants(&last);
        let wait = short.iter().map(|short| short.0).chain(refused);
        let wait = wait.filter(|lane| !last.contains(lane)).count();
        if wait == 0 {
            self.wait = None;
        } else {
            let wait = self.wait.map_or(WAIT_MIN, |wait| (wait * 2).min(WAIT_MAX));
            self.wait = Some(wait);
            self.next_at = Some(now + wait);
        }
        // A lane that asks again after a grant may be heard during the next round: what it lacks is known by then.
        if self.freed {
            self.begins_soon();
        } else if self.again && self.next_at.is_none() {
            self.begin();
        }
    }

    /// Grants the limits; to lanes in `last` with the word that there is no more.
    fn push_grants(&mut self, last: &BTreeSet<usize>) {
        for (number, lane) in (0..).zip(0..self.lanes.len()) {
            let limit = |seat: Seat| {
                let known = self.known.contains_key(&seat);
                known.then(|| self.account(lane, seat).limit)
            };
            let limits = (0..)
                .take(self.seats)
                .map(|seat| limit(Seat(seat)))
                .collect();
            self.outputs.push_back(Output::Grant {
                lane: number,
                limits,
                last: last.contains(&lane),
            });
        }
    }

    fn raise(&mut self, lane: usize, seat: Seat, bytes: u64) {
        let seats = &mut self.lanes[lane].seats;
        if seats.len() <= seat.index() {
            seats.resize(seat.index() + 1, SeatRoom::default());
        }
        let account = &mut seats[seat.index()];
        account.limit = account.limit.max(account.charged).saturating_add(bytes);
    }

    /// Bytes that a lane may get on a drive later, at most, beyond what is left now: charges may take less than they count,
    /// and other lanes give back what they do not use. Without limit while anything is being freed.
    fn may_be_freed(&self, lane: usize, seat: Seat) -> u64 {
        if self.frees || self.lanes.iter().any(|lane| lane.frees) {
            return u64::MAX;
        }
        let of_lane = |other| {
            let account = self.account(other, seat);
            let unused = if other == lane { 0 } else { account.unused() };
            account.unsettled().saturating_add(unused)
        };
        (0..self.lanes.len())
            .map(of_lane)
            .fold(0, u64::saturating_add)
    }

    /// The physical space of a drive, if it knows its use.
    pub(super) fn drive(&self, seat: Seat) -> Option<DriveRoom> {
        let known = self.known.get(&seat)?;
        let unsettled = |lane| self.account(lane, seat).unsettled();
        Some(DriveRoom {
            physical_bytes: known.usage.physical_bytes,
            used_bytes: known.usage.used_bytes,
            counted_bytes: (0..self.lanes.len()).map(unsettled).sum(),
            lower_bytes: known.lower(),
            upper_bytes: known.upper(),
        })
    }

    /// All drives that know their use.
    pub(super) fn drives(&self) -> impl Iterator<Item = DriveRoom> {
        self.known.keys().filter_map(|&seat| self.drive(seat))
    }

    /// Why writes wait.
    pub(super) const fn writes_wait(&self) -> Option<WritesWait> {
        self.wait_for
    }

    /// Checks what holds between events.
    ///
    /// # Panics
    /// When writes were ended although something could be freed.
    pub(super) fn check(&self) {
        assert!(
            !self.wrongly_last,
            "writes end with \"no space\" only if nothing can be freed"
        );
    }
}

#[cfg(test)]
mod tests;
