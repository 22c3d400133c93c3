//! The table of I/O in flight: the operations that this lane has submitted to its drives, and how they end.
//!
//! ```text
//!   submitted ──── its drive answers ───────────────────────────► ended: its purpose goes on
//!       │               └── a write failed ─► submitted again
//!       └── its drive is out, or something else was quicker ──► straggler ── it answers ──► (its memory is free)
//! ```
//!
//! Parts of the table are state machines of their own. Neighbours go out as one operation (`join.rs`, `held_reads.rs`).
//! Writes to a drive that is being replaced go to its successor too (`twins.rs`). Late operations are detected
//! (`latency.rs`). Abandoned operations keep their memory (`stragglers.rs`). Faults are reported to the pool
//! (`fault_reports.rs`).
//!
//! Invariants:
//! - Each operation that was submitted ends exactly once, as an [`Ended`], unless its owner has abandoned it.
//! - An end is handed to its purpose before the next end is determined: one end may begin or abandon other operations.

mod fault_reports;
mod flight;
mod held_reads;
mod join;
mod latency;
mod load;
mod stragglers;
mod twins;
mod unflushed;

use std::collections::BTreeSet;

use block::{BLOCK_BYTES, Fault, Instant, Outcome, Seat};
use format::PageName;
use format::seeded::{self, SeededFault};
use plan::action::{Action, Io, IoId, IoKind, Service, Slice, WRITE_RETRIES};
use plan::{ScratchId, Transfer};

pub(crate) use self::fault_reports::FaultReport;
use self::fault_reports::FaultReports;
pub(crate) use self::flight::{Answered, Ended, Flight};
use self::held_reads::HeldReads;
use self::join::Joins;
use self::latency::LatencyTracker;
use self::load::DriveLoad;
use self::stragglers::Stragglers;
use self::twins::Twins;
use self::unflushed::Unflushed;
use crate::context::Context;
use crate::purpose::Purpose;
use crate::sequence_map::SequenceMap;

/// The longest operation that neighbours are joined to. A disk of 100 MB/s that seeks for 2 ms reaches two thirds of
/// its rate with such operations, and a client's operation waits 5 ms behind one.
pub(crate) const JOINED_BYTES_MAX: u64 = 512 << 10;

/// The kernel takes at most 1024 ranges at once (`IOV_MAX`).
const _: () = assert!(JOINED_BYTES_MAX / BLOCK_BYTES <= 1024);

/// The drive operations of one lane.
#[derive(Clone, Debug)]
pub(crate) struct IoTable {
    in_flight: SequenceMap<IoId, Flight>,
    joins: Joins,
    stragglers: Stragglers,
    twins: Twins,
    latency: LatencyTracker,
    /// Seats whose drive is suspect, as the pool has decided: such a drive is asked only for what no other drive has.
    suspects: BTreeSet<Seat>,
    load: DriveLoad,
    faults: FaultReports,
    unflushed: Unflushed,
}

impl IoTable {
    /// A table for this many seats.
    pub(crate) fn new(seats: u16) -> Self {
        Self {
            in_flight: SequenceMap::default(),
            joins: Joins::default(),
            stragglers: Stragglers::default(),
            twins: Twins::default(),
            latency: LatencyTracker::new(seats),
            suspects: BTreeSet::new(),
            load: DriveLoad::default(),
            faults: FaultReports::default(),
            unflushed: Unflushed::default(),
        }
    }

    /// Submits an operation.
    pub(crate) fn submit(
        &mut self,
        cx: &mut Context,
        purpose: Purpose,
        io: impl FnOnce(IoId) -> Io,
    ) {
        let id = IoId(cx.fresh());
        let io = io(id);
        self.submit_flight(cx, Flight::new(purpose, io, cx.now));
    }

    /// Reads or writes the whole of a slice, at a place on a drive.
    pub(crate) fn submit_slice(
        &mut self,
        cx: &mut Context,
        purpose: Purpose,
        service: Service,
        kind: IoKind,
        (seat, offset): (Seat, u64),
        slice: Slice,
    ) {
        self.submit(cx, purpose, |id| Io {
            id,
            seat,
            kind,
            offset,
            length: slice.length,
            slice: Some(slice),
            service,
        });
    }

    /// Submits a transfer of a plan.
    pub(crate) fn submit_transfer(
        &mut self,
        cx: &mut Context,
        purpose: Purpose,
        service: Service,
        transfer: &Transfer,
    ) {
        self.submit(cx, purpose, |id| transfer.io(id, service));
    }

    fn submit_flight(&mut self, cx: &mut Context, mut flight: Flight) {
        let second = self.twins.pair_up(cx, &mut flight);
        for flight in [Some(flight), second].into_iter().flatten() {
            cx.actions.push_back(Action::Io(flight.io));
            self.joins.begins(&flight.io);
            self.load.begins(&flight.io);
            self.in_flight.insert(flight.io.id, flight);
        }
        self.latency.begins(cx.now);
    }

    /// The turn ends: the operations that it has begun are joined with their neighbours on the drives.
    pub(crate) fn end_turn(&mut self, cx: &mut Context) {
        self.joins.join_begun(cx, &mut self.in_flight);
    }

    /// A drive has answered.
    ///
    /// # Panics
    /// When the operation is not in flight.
    pub(crate) fn answered(&mut self, cx: &mut Context, id: IoId, outcome: Outcome) -> Answered {
        self.joins.reads.ended(id);
        let Some(flight) = self.in_flight.remove(id) else {
            return match self.joins.members(id) {
                Some(members) => self.joined_answered(cx, members, outcome),
                None => Answered::Late(self.stragglers.ended(id)),
            };
        };
        self.load.ended(&flight.io);
        self.latency.ended(cx.now, &flight);
        let write = matches!(flight.io.kind, IoKind::Write | IoKind::WriteZeroes);
        if write
            && outcome == Err(Fault::Medium)
            && flight.tries < WRITE_RETRIES
            && !cx.view().is_out(flight.io.seat)
        {
            let id = IoId(cx.fresh());
            let again = Flight {
                io: Io { id, ..flight.io },
                since: cx.now,
                tries: flight.tries + 1,
                late: false,
                ..flight
            };
            self.submit_flight(cx, again);
            return Answered::Pending;
        }
        self.ended(cx, &flight, outcome).into()
    }

    fn joined_answered(&mut self, cx: &Context, members: Vec<IoId>, outcome: Outcome) -> Answered {
        let waited_for = members
            .iter()
            .find_map(|&member| self.in_flight.get(member));
        if let Some(flight) = waited_for {
            self.latency.ended(cx.now, flight);
        }
        let members = members.into_iter().enumerate();
        let members = members.map(|(number, member)| match outcome {
            Err(_) if seeded::is(SeededFault::JoinedFailureToFirst) && number > 0 => {
                (member, Ok(()))
            }
            outcome => (member, outcome),
        });
        Answered::Members(members.collect())
    }

    /// The joined operation of a member has ended.
    pub(crate) fn member_answered(
        &mut self,
        cx: &mut Context,
        id: IoId,
        outcome: Outcome,
    ) -> Answered {
        let Some(flight) = self.in_flight.remove(id) else {
            return Answered::Late(self.stragglers.ended(id));
        };
        self.load.ended(&flight.io);
        let repeats = match outcome {
            // The outcome is that of the drive, and so of each member.
            Ok(()) | Err(Fault::Gone | Fault::Shutdown) => false,
            Err(Fault::Medium | Fault::Full | Fault::Invalid | Fault::Lost) => {
                !flight.left && !cx.view().is_out(flight.io.seat)
            }
        };
        if !repeats {
            return self.ended(cx, &flight, outcome).into();
        }
        let id = IoId(cx.fresh());
        let again = Flight {
            io: Io { id, ..flight.io },
            since: cx.now,
            span: flight.io.length,
            alone: true,
            late: false,
            ..flight
        };
        self.submit_flight(cx, again);
        Answered::Pending
    }

    fn ended(&mut self, cx: &mut Context, flight: &Flight, outcome: Outcome) -> Option<Ended> {
        let offset = flight.io.offset;
        match (flight.pair, flight.purpose) {
            (_, Purpose::Second { pair }) => {
                self.twins.second_ended(cx, &mut self.faults, pair, outcome)
            }
            (Some(pair), _) => self.twins.first_ended(pair, outcome),
            (None, purpose) if flight.left => Some(Ended::left(purpose, offset, outcome)),
            (None, purpose) => Some(Ended::new(purpose, offset, outcome)),
        }
    }

    /// An operation has ended, and is about to be handed to its purpose.
    pub(crate) fn handed_over(&mut self, ended: &Ended) {
        self.unflushed.ended(ended.purpose, ended.outcome);
    }

    /// A flush of all drives with unflushed writes begins. `None`: no drive has any.
    pub(crate) fn flush_begins(&mut self, cx: &Context, number: Option<u64>) {
        self.unflushed.flush_begins(cx, number);
    }

    /// A flush has ended on all drives.
    pub(crate) fn flush_finished(&mut self, cx: &Context, number: u64, outcome: Outcome) {
        self.unflushed.flush_finished(cx, number, outcome);
    }

    /// No write to this seat waits for a flush any more: its drive is out, or the seat has another drive that has all
    /// of the writes.
    pub(crate) fn forget_unflushed(&mut self, seat: Seat) {
        self.unflushed.forget(seat);
    }

    /// Nothing waits for an operation any more. Returns its purpose if it was in flight.
    pub(crate) fn abandon(&mut self, id: IoId) -> Option<Purpose> {
        self.withdraw(id).map(|flight| flight.purpose)
    }

    /// The operation has failed, whether its drive answers or not.
    pub(crate) fn fail(&mut self, id: IoId) -> Option<Ended> {
        let Flight { purpose, io, .. } = self.withdraw(id)?;
        Some(Ended::new(purpose, io.offset, Err(Fault::Gone)))
    }

    fn withdraw(&mut self, id: IoId) -> Option<Flight> {
        let flight = self.in_flight.remove(id)?;
        self.load.ended(&flight.io);
        let reads = &mut self.joins.reads;
        if reads.is_long(&flight.io) && reads.withdraw(id, flight.io.seat) {
            return Some(flight);
        }
        self.stragglers.insert(id, flight.io.seat, flight.io.slice);
        Some(flight)
    }

    /// Like [`abandon`](Self::abandon), for a read of copies of these pages.
    pub(crate) fn abandon_copies(&mut self, id: IoId, names: Vec<PageName>) {
        if self.abandon(id).is_some() {
            self.stragglers.insert_copies(id, names);
        }
    }

    /// A drive is out: the oldest operation that it has not answered has failed. To be called until it returns `None`,
    /// because the end of one operation may begin another; then [`seat_abandoned`](Self::seat_abandoned).
    pub(crate) fn fail_next_at(&mut self, cx: &mut Context, seat: Seat) -> Option<Answered> {
        let mut there = self.in_flight.iter();
        let found = there.find(|(_, flight)| flight.io.seat == seat);
        let id = found.map(|(id, _)| id)?;
        drop(there);
        let flight = self.withdraw(id)?;
        Some(self.ended(cx, &flight, Err(Fault::Gone)).into())
    }

    /// Nothing is in flight at a drive that is out.
    pub(crate) fn seat_abandoned(&mut self, seat: Seat) {
        self.joins.reads.forget(seat);
    }

    /// A drive is out: it is drained when it has answered all operations that were submitted to it before.
    pub(crate) fn drain(&mut self, cx: &mut Context, seat: Seat) {
        self.stragglers.drain(cx, seat);
    }

    /// After [`Answered::Late`]: releases what only the straggler still used.
    pub(crate) fn straggler_came_back(&mut self, cx: &mut Context) {
        self.stragglers.came_back(cx);
    }

    /// Releases scratch memory as soon as no straggler is in it.
    pub(crate) fn release(&mut self, cx: &mut Context, scratch: ScratchId) {
        self.stragglers.release(cx, scratch);
    }

    /// Reports to the pool that a drive has failed an operation. `waiting`: something waits for the pool's verdict.
    pub(crate) fn report_fault(&mut self, cx: &mut Context, report: FaultReport) {
        self.faults.report(cx, report);
    }

    /// The pool has decided about a drive, or it has left its seat.
    pub(crate) fn decided(&mut self, seat: Seat) {
        self.faults.decided(seat);
    }

    /// True while the faults reported are those of a drive that has left its seat.
    pub(crate) const fn is_muted(&self) -> bool {
        self.faults.muted
    }

    /// Set while an operation is handled that has [`left`](Ended::left): its fault is not reported.
    pub(crate) const fn mute(&mut self, muted: bool) {
        self.faults.muted = muted;
    }

    /// From now on all that is written to the seat goes to its drive's successor too.
    pub(crate) fn begin_twin(&mut self, seat: Seat, with: Seat) {
        self.forget_pace(with);
        self.twins.begin(seat, with);
    }

    /// A drive is out: abandons the writes to its successor, and returns the pairs that end because they waited for
    /// this drive.
    pub(crate) fn twin_out(&mut self, seat: Seat) -> Vec<Ended> {
        if let Some(with) = self.twins.seat_out(seat) {
            for id in self.in_flight_at(with, true) {
                self.abandon(id);
            }
        }
        self.twins.pairs_without(seat)
    }

    /// The successor takes the seat: from now on nothing is written to both.
    pub(crate) fn end_twin(&mut self, seat: Seat, with: Seat) {
        self.twins.end(seat);
        self.forget_pace(seat);
        self.forget_pace(with);
    }

    /// The operations in flight at a drive: the second parts of writes to two drives, or all others.
    pub(crate) fn in_flight_at(&self, seat: Seat, seconds: bool) -> Vec<IoId> {
        let is_second = |flight: &Flight| matches!(flight.purpose, Purpose::Second { .. });
        let in_flight = self.in_flight.iter();
        in_flight
            .filter(|(_, flight)| flight.io.seat == seat && is_second(flight) == seconds)
            .map(|(id, _)| id)
            .collect()
    }

    /// Writes in flight at the successor are the seat's from now on.
    pub(crate) fn seconds_succeed(&mut self, seat: Seat, with: Seat) {
        for id in self.in_flight_at(with, true) {
            if let Some(flight) = self.in_flight.get_mut(id) {
                self.load.ended(&flight.io);
                flight.io.seat = seat;
                self.load.begins(&flight.io);
            }
        }
    }

    /// Of the pairs of a seat only the successor's part counts from now on. Returns the pairs that end with this.
    pub(crate) fn pairs_succeed(&mut self, seat: Seat) -> Vec<Ended> {
        self.twins.pairs_succeed(seat)
    }

    /// An operation in flight at a drive that leaves its seat. `answers`: the drive still answers reads.
    pub(crate) fn leave_to_successor(&mut self, id: IoId, answers: bool) -> Option<Ended> {
        let flight = self.in_flight.get_mut(id)?;
        if flight.io.kind == IoKind::Read && answers {
            flight.left = true;
            return None;
        }
        let flight = self.withdraw(id)?;
        match flight.pair {
            Some(pair) => self.twins.first_ended(pair, Ok(())),
            None => Some(Ended::left(
                flight.purpose,
                flight.io.offset,
                Err(Fault::Gone),
            )),
        }
    }

    /// Checks for late operations, if it is time to. Returns late reads that can perhaps be hedged; then
    /// [`checked`](Self::checked).
    pub(crate) fn check(&mut self, cx: &mut Context) -> Option<Vec<IoId>> {
        self.latency.check(cx, &mut self.in_flight)
    }

    /// What could be done about late reads has been done.
    pub(crate) fn checked(&mut self, now: Instant) {
        self.latency.checked(now, &self.in_flight);
    }

    /// When the next check for late operations is due.
    pub(crate) const fn check_at(&self) -> Option<Instant> {
        self.latency.check_at()
    }

    /// What a late operation is for.
    pub(crate) fn purpose_of(&self, id: IoId) -> Option<Purpose> {
        self.in_flight.get(id).map(|flight| flight.purpose)
    }

    /// What could be done about a late operation has been done.
    pub(crate) fn is_hedged(&mut self, id: IoId) {
        if let Some(flight) = self.in_flight.get_mut(id) {
            flight.hedged = true;
        }
    }

    /// There are this many seats from now on.
    pub(crate) fn measure(&mut self, seats: u16) {
        self.latency.measure(seats);
    }

    /// The seat has another drive, or none.
    pub(crate) fn forget_pace(&mut self, seat: Seat) {
        self.latency.forget(seat);
        self.suspects.remove(&seat);
    }

    /// The pool has decided that a drive is suspect, or is not any more.
    pub(crate) fn suspect(&mut self, seat: Seat, suspect: bool) {
        match suspect {
            true => self.suspects.insert(seat),
            false => self.suspects.remove(&seat),
        };
    }

    /// True if a drive is suspect: it is asked only for what no other drive has.
    pub(crate) fn is_suspect(&self, seat: Seat) -> bool {
        self.suspects.contains(&seat)
    }

    /// True if some drive is suspect.
    pub(crate) fn any_suspect(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// All operations in flight that are not abandoned, in the order in which they were submitted.
    pub(crate) fn in_flight(&self) -> impl Iterator<Item = (IoId, &Flight)> {
        self.in_flight.iter()
    }

    pub(crate) const fn stragglers(&self) -> &Stragglers {
        &self.stragglers
    }

    pub(crate) const fn twins(&self) -> &Twins {
        &self.twins
    }

    pub(crate) const fn load(&self) -> &DriveLoad {
        &self.load
    }

    /// Reads of at least `long_bytes` wait for a drive that has more than `enough_bytes` of them.
    pub(crate) fn hold_reads(&mut self, long_bytes: u64, enough_bytes: u64) {
        self.joins.reads = HeldReads::with_limits(long_bytes, enough_bytes);
    }

    /// True if nothing is in flight but stragglers.
    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.twins.is_idle()
    }
}

/// How many of these operations go out as one: the first and the neighbours behind it. They are in order of their
/// places.
fn first_run<T>(
    sorted: &[T],
    length: impl Fn(&T) -> u64,
    is_before: impl Fn(&T, &T) -> bool,
) -> usize {
    let mut bytes = sorted.first().map_or(0, &length);
    let pairs = sorted.iter().zip(sorted.iter().skip(1));
    let more = pairs.take_while(|(last, next)| {
        bytes += length(next);
        is_before(last, next) && bytes <= JOINED_BYTES_MAX
    });
    sorted.len().min(1 + more.count())
}

#[cfg(test)]
mod tests;
