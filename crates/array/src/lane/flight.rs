//! The table of I/O in flight: what this lane has asked its drives for, and how that ends.
//!
//! ```text
//!   submitted ──── its drive answers ───────────────────────────► ended: whoever asked goes on
//!       │               └── a write failed ─► submitted again
//!       └── its drive is out, or something else was quicker ──► straggler ── it answers ──► (its memory is free)
//! ```
//!
//! The parts of the table are machines of their own: neighbours go out as one operation (`join.rs`, `held_reads.rs`), writes to a
//! drive that is replaced go to its successor too (`twin.rs`), what takes long is noticed (`watch.rs`), what nobody waits for
//! keeps its memory (`stragglers.rs`), and faults are reported to the pool (`fault_reports.rs`).
//!
//! Invariants:
//! - Each operation that was submitted ends exactly once, as an [`Ended`], or was abandoned by who asked for it.
//! - What ends is handed to its purpose before the end of the next one is worked out: one end may begin or abandon others.

use std::collections::BTreeSet;

use block::{Fault, Instant, Outcome, Seat};

use super::Purpose;
use super::context::Context;
use super::fault_reports::FaultReports;
use super::held_reads::HeldReads;
use super::join::Joins;
use super::load::DriveLoad;
use super::sequence_map::SequenceMap;
use super::stragglers::{Late, Stragglers};
use super::twin::Twins;
use super::watch::Watch;
use crate::ScratchId;
use crate::action::{Action, Io, IoId, IoKind, Service, Slice};
use crate::format::PageName;
use crate::plan::Transfer;
use crate::seeded::{self, Bug};

/// How often a write that a drive could not do is tried again before the pool hears of it. Disks
/// have tried for seconds themselves; what one more attempt is good for is a cable or a path. A
/// failed read is not tried again but reconstructed and written anew, which is the better repair;
/// and a failed flush never, for what it should have covered may be gone.
pub(crate) const WRITE_RETRIES: u8 = 2;

/// A drive operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) purpose: Purpose,
    pub(super) io: Io,
    /// When it was handed out.
    pub(super) since: Instant,
    /// How often it has been tried before.
    pub(super) tries: u8,
    /// Bytes of the drive operation that it is, or is a part of (`join.rs`).
    pub(super) span: u64,
    /// Not to be joined with others: it has failed with them.
    pub(super) alone: bool,
    /// It has been noticed to take long.
    pub(super) late: bool,
    /// What could be done about that has been done.
    pub(super) hedged: bool,
    /// It is the first part of a write to two drives (`twin.rs`).
    pub(super) pair: Option<u64>,
    /// Its drive has left the seat since: how it ends says nothing of the one that has it now.
    pub(super) left: bool,
}

impl Flight {
    pub(super) const fn new(purpose: Purpose, io: Io, now: Instant) -> Self {
        Self {
            purpose,
            io,
            since: now,
            tries: 0,
            span: io.length,
            alone: false,
            late: false,
            hedged: false,
            pair: None,
            left: false,
        }
    }

    /// Whether its drive may get it together with its neighbours; what has failed once goes alone.
    pub(super) const fn may_be_joined(&self) -> bool {
        !self.alone && self.tries == 0
    }
}

/// The end of a drive operation, for who asked for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) purpose: Purpose,
    pub(super) outcome: Outcome,
    /// Its drive has left the seat since: a failure says nothing of the drive that has it now.
    pub(super) left: bool,
}

impl Ended {
    pub(super) const fn new(purpose: Purpose, outcome: Outcome) -> Self {
        Self {
            purpose,
            outcome,
            left: false,
        }
    }

    /// Of a drive that has left its seat.
    fn left(purpose: Purpose, outcome: Outcome) -> Self {
        Self {
            purpose,
            outcome: outcome.map_err(|_| Fault::Medium),
            left: true,
        }
    }
}

/// What a drive's answer comes to.
#[derive(Clone, Debug)]
pub(super) enum Answered {
    /// An operation has ended.
    Ended(Ended),
    /// Nothing has ended: it was submitted again, or is one part of a pair.
    Pending,
    /// Members of a joined operation: each goes to [`IoTable::member_answered`], in this order.
    Members(Vec<(IoId, Outcome)>),
    /// One that nobody waits for. Then [`IoTable::straggler_came_back`].
    Late(Late),
}

impl From<Option<Ended>> for Answered {
    fn from(ended: Option<Ended>) -> Self {
        ended.map_or(Self::Pending, Self::Ended)
    }
}

/// The drive operations of one lane.
#[derive(Clone, Debug)]
pub(super) struct IoTable {
    flights: SequenceMap<IoId, Flight>,
    joins: Joins,
    stragglers: Stragglers,
    twins: Twins,
    watch: Watch,
    /// Seats whose drive is slow, by the pool's word: it is asked only if nobody else can answer.
    suspects: BTreeSet<Seat>,
    load: DriveLoad,
    faults: FaultReports,
}

impl IoTable {
    /// Of so many seats.
    pub(super) fn new(seats: u16) -> Self {
        Self {
            flights: SequenceMap::default(),
            joins: Joins::default(),
            stragglers: Stragglers::default(),
            twins: Twins::default(),
            watch: Watch::new(seats),
            suspects: BTreeSet::new(),
            load: DriveLoad::default(),
            faults: FaultReports::default(),
        }
    }

    /// Hands out an operation.
    pub(super) fn submit(
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
    pub(super) fn submit_slice(
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

    /// Begins what a plan says.
    pub(super) fn submit_transfer(
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
            self.flights.insert(flight.io.id, flight);
        }
        self.watch.begins(cx.now);
    }

    /// The turn ends: what it has begun is joined by its place on the drives.
    pub(super) fn end_turn(&mut self, cx: &mut Context) {
        self.joins.join_begun(cx, &mut self.flights);
    }

    /// A drive has answered.
    ///
    /// # Panics
    /// When the operation is not in flight.
    pub(super) fn answered(&mut self, cx: &mut Context, id: IoId, outcome: Outcome) -> Answered {
        self.joins.reads.ended(id);
        let Some(flight) = self.flights.remove(id) else {
            return match self.joins.members(id) {
                Some(members) => self.joined_answered(cx, members, outcome),
                None => Answered::Late(self.stragglers.ended(id)),
            };
        };
        self.load.ended(&flight.io);
        self.watch.ended(cx.now, &flight);
        let write = matches!(flight.io.kind, IoKind::Write | IoKind::WriteZeroes);
        if write
            && outcome == Err(Fault::Medium)
            && flight.tries < WRITE_RETRIES
            && !cx.view.is_out(flight.io.seat)
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
        let waited_for = members.iter().find_map(|&member| self.flights.get(member));
        if let Some(flight) = waited_for {
            self.watch.ended(cx.now, flight);
        }
        let members = members.into_iter().enumerate();
        let members = members.map(|(number, member)| match outcome {
            Err(_) if seeded::is(Bug::JoinedFailureToFirst) && number > 0 => (member, Ok(())),
            outcome => (member, outcome),
        });
        Answered::Members(members.collect())
    }

    /// The joined operation of a member has ended.
    pub(super) fn member_answered(
        &mut self,
        cx: &mut Context,
        id: IoId,
        outcome: Outcome,
    ) -> Answered {
        let Some(flight) = self.flights.remove(id) else {
            return Answered::Late(self.stragglers.ended(id));
        };
        self.load.ended(&flight.io);
        let repeats = match outcome {
            // Of the drive, and so of each member.
            Ok(()) | Err(Fault::Gone | Fault::Shutdown) => false,
            Err(Fault::Medium | Fault::Full | Fault::Invalid | Fault::Lost) => {
                !flight.left && !cx.view.is_out(flight.io.seat)
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
        match (flight.pair, flight.purpose) {
            (_, Purpose::Second { pair }) => {
                self.twins.second_ended(cx, &mut self.faults, pair, outcome)
            }
            (Some(pair), _) => self.twins.first_ended(pair, outcome),
            (None, purpose) if flight.left => Some(Ended::left(purpose, outcome)),
            (None, purpose) => Some(Ended::new(purpose, outcome)),
        }
    }

    /// From now on nobody waits for an operation. Returns its purpose if somebody did.
    pub(super) fn abandon(&mut self, id: IoId) -> Option<Purpose> {
        self.withdraw(id).map(|flight| flight.purpose)
    }

    fn withdraw(&mut self, id: IoId) -> Option<Flight> {
        let flight = self.flights.remove(id)?;
        self.load.ended(&flight.io);
        let reads = &mut self.joins.reads;
        if reads.is_long(&flight.io) && reads.withdraw(id, flight.io.seat) {
            return Some(flight);
        }
        self.stragglers.insert(id, flight.io.seat, flight.io.slice);
        Some(flight)
    }

    /// The same for a read of copies of these pages.
    pub(super) fn abandon_copies(&mut self, id: IoId, names: Vec<PageName>) {
        if self.abandon(id).is_some() {
            self.stragglers.insert_copies(id, names);
        }
    }

    /// A drive is out: the oldest operation that it has not answered has failed, whether it answers or not. To be called
    /// until there is none, for the end of one may be the beginning of another; then
    /// [`seat_abandoned`](Self::seat_abandoned).
    pub(super) fn fail_next_at(&mut self, cx: &mut Context, seat: Seat) -> Option<Answered> {
        let mut there = self.flights.iter();
        let found = there.find(|(_, flight)| flight.io.seat == seat);
        let id = found.map(|(id, _)| id)?;
        drop(there);
        let flight = self.withdraw(id)?;
        Some(self.ended(cx, &flight, Err(Fault::Gone)).into())
    }

    /// Nothing is in flight at a drive that is out.
    pub(super) fn seat_abandoned(&mut self, seat: Seat) {
        self.joins.reads.forget(seat);
    }

    /// A drive is out: it is drained when it has answered everything that it was asked before.
    pub(super) fn drain(&mut self, cx: &mut Context, seat: Seat) {
        self.stragglers.drain(cx, seat);
    }

    /// After [`Answered::Late`]: gives back what only the straggler still used.
    pub(super) fn straggler_came_back(&mut self, cx: &mut Context) {
        self.stragglers.came_back(cx);
    }

    /// Gives scratch memory back as soon as no straggler is in it.
    pub(super) fn release(&mut self, cx: &mut Context, scratch: ScratchId) {
        self.stragglers.release(cx, scratch);
    }

    /// Reports to the pool that a drive has failed an operation. `waiting`: something waits for its verdict.
    pub(super) fn report_fault(
        &mut self,
        cx: &mut Context,
        seat: Seat,
        kind: IoKind,
        offset: u64,
        fault: Fault,
        waiting: bool,
    ) {
        self.faults.report(cx, seat, kind, offset, fault, waiting);
    }

    /// The pool has decided about a drive, or it has left its seat.
    pub(super) fn decided(&mut self, seat: Seat) {
        self.faults.decided(seat);
    }

    /// Whether faults are those of a drive that has left its seat.
    pub(super) const fn is_muted(&self) -> bool {
        self.faults.muted
    }

    /// While an operation is handled that has [`left`](Ended::left): nothing of its fault is reported.
    pub(super) const fn mute(&mut self, muted: bool) {
        self.faults.muted = muted;
    }

    /// From now on all that is written to the seat goes to its drive's successor too.
    pub(super) fn begin_twin(&mut self, seat: Seat, with: Seat) {
        self.forget_pace(with);
        self.twins.begin(seat, with);
    }

    /// A drive is out: ends what waited for it and for a successor at once.
    pub(super) fn twin_out(&mut self, seat: Seat) -> Vec<Ended> {
        if let Some(with) = self.twins.seat_out(seat) {
            for id in self.in_flight_at(with, true) {
                self.abandon(id);
            }
        }
        self.twins.pairs_without(seat)
    }

    /// The successor takes the seat: from now on nothing is written to both.
    pub(super) fn end_twin(&mut self, seat: Seat, with: Seat) {
        self.twins.end(seat);
        self.forget_pace(seat);
        self.forget_pace(with);
    }

    /// What is in flight at a drive: the second parts of writes to two drives, or all else.
    pub(super) fn in_flight_at(&self, seat: Seat, seconds: bool) -> Vec<IoId> {
        let is_second = |flight: &Flight| matches!(flight.purpose, Purpose::Second { .. });
        let flights = self.flights.iter();
        flights
            .filter(|(_, flight)| flight.io.seat == seat && is_second(flight) == seconds)
            .map(|(id, _)| id)
            .collect()
    }

    /// What a successor was given to write is the seat's from now on.
    pub(super) fn seconds_succeed(&mut self, seat: Seat, with: Seat) {
        for id in self.in_flight_at(with, true) {
            if let Some(flight) = self.flights.get_mut(id) {
                self.load.ended(&flight.io);
                flight.io.seat = seat;
                self.load.begins(&flight.io);
            }
        }
    }

    /// Of the pairs of a seat only the successor's part counts from now on.
    pub(super) fn pairs_succeed(&mut self, seat: Seat) -> Vec<Ended> {
        self.twins.pairs_succeed(seat)
    }

    /// An operation in flight at a drive that leaves its seat. `answers`: the drive still answers reads.
    pub(super) fn leave_to_successor(&mut self, id: IoId, answers: bool) -> Option<Ended> {
        let flight = self.flights.get_mut(id)?;
        if flight.io.kind == IoKind::Read && answers {
            flight.left = true;
            return None;
        }
        let flight = self.withdraw(id)?;
        match flight.pair {
            Some(pair) => self.twins.first_ended(pair, Ok(())),
            None => Some(Ended::left(flight.purpose, Err(Fault::Gone))),
        }
    }

    /// Looks for what is late, if it is time to: reads that something may be done about. Then [`looked`](Self::looked).
    pub(super) fn look(&mut self, cx: &mut Context) -> Option<Vec<IoId>> {
        self.watch.look(cx, &mut self.flights)
    }

    /// What could be done about late reads has been done.
    pub(super) fn looked(&mut self, now: Instant) {
        self.watch.looked(now, &self.flights);
    }

    /// When to look for what is late.
    pub(super) const fn look_at(&self) -> Option<Instant> {
        self.watch.look_at()
    }

    /// What a late operation is for.
    pub(super) fn purpose_of(&self, id: IoId) -> Option<Purpose> {
        self.flights.get(id).map(|flight| flight.purpose)
    }

    /// What could be done about a late operation has been done.
    pub(super) fn is_hedged(&mut self, id: IoId) {
        if let Some(flight) = self.flights.get_mut(id) {
            flight.hedged = true;
        }
    }

    /// Another drive sits in the seat, or none.
    pub(super) fn forget_pace(&mut self, seat: Seat) {
        self.watch.forget(seat);
        self.suspects.remove(&seat);
    }

    /// The pool's word: a drive is slow, or as quick as others again.
    pub(super) fn suspect(&mut self, seat: Seat, suspect: bool) {
        match suspect {
            true => self.suspects.insert(seat),
            false => self.suspects.remove(&seat),
        };
    }

    /// True if a drive is to be asked only if nobody else can answer.
    pub(super) fn is_suspect(&self, seat: Seat) -> bool {
        self.suspects.contains(&seat)
    }

    /// True if some drive is.
    pub(super) fn any_suspect(&self) -> bool {
        !self.suspects.is_empty()
    }

    /// What somebody waits for, in the order in which it was handed out.
    pub(super) fn flights(&self) -> impl Iterator<Item = (IoId, &Flight)> {
        self.flights.iter()
    }

    pub(super) const fn stragglers(&self) -> &Stragglers {
        &self.stragglers
    }

    pub(super) const fn twins(&self) -> &Twins {
        &self.twins
    }

    pub(super) const fn load(&self) -> &DriveLoad {
        &self.load
    }

    /// Reads of at least `long_bytes` wait for a drive that has more than `enough_bytes` of them.
    pub(super) fn hold_reads(&mut self, long_bytes: u64, enough_bytes: u64) {
        self.joins.reads = HeldReads::with_limits(long_bytes, enough_bytes);
    }

    /// Whether nobody waits for anything.
    pub(super) fn is_idle(&self) -> bool {
        self.flights.is_empty() && self.twins.is_idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{BufferId, Event, Origin};

    /// The table of a small lane. Operations are named by the number that their purpose has.
    struct Lab {
        ios: IoTable,
        cx: Context,
    }

    impl Lab {
        fn new() -> Self {
            Self {
                ios: IoTable::new(6),
                cx: Context::of_test("raid6", 6),
            }
        }

        /// Submits operation `number`: one block at block `place` of a drive.
        fn submit(&mut self, number: u64, seat: u16, kind: IoKind, place: u64) -> IoId {
            let purpose = Purpose::PageWrite {
                seat: Seat(seat),
                offset: number,
            };
            let slice = Slice {
                buffer: BufferId::Scratch(ScratchId(number)),
                offset: 0,
                length: 4096,
            };
            let service = Service::prompt(Origin::Checkpoint);
            let place = (Seat(seat), place * 4096);
            self.ios
                .submit_slice(&mut self.cx, purpose, service, kind, place, slice);
            match self.cx.actions.back() {
                Some(Action::Io(io)) => io.id,
                other => panic!("{other:?} is no operation"),
            }
        }

        fn answer(&mut self, id: IoId, outcome: Outcome) -> Answered {
            self.ios.answered(&mut self.cx, id, outcome)
        }

        /// The operations that go out at the end of the turn: seat, first block, blocks.
        fn handed_out(&mut self) -> Vec<(IoId, u16, u64, u64)> {
            self.ios.end_turn(&mut self.cx);
            let actions = self.cx.take_actions().into_iter();
            let part = |id, seat: Seat, offset, length| (id, seat.0, offset / 4096, length / 4096);
            let parts = actions.filter_map(|action| match action {
                Action::Io(io) => Some(part(io.id, io.seat, io.offset, io.length)),
                Action::Joined(all) => Some(part(all.id, all.seat, all.offset, all.length)),
                _ => None,
            });
            parts.collect()
        }
    }

    /// Which operation has ended, and how; `None` if none has.
    fn ended(answered: &Answered) -> Option<(u64, Outcome)> {
        match answered {
            Answered::Ended(Ended {
                purpose: Purpose::PageWrite { offset, .. },
                outcome,
                ..
            }) => Some((*offset, *outcome)),
            Answered::Pending => None,
            other => panic!("{other:?} is another operation"),
        }
    }

    #[test]
    fn an_operation_ends_for_who_asked_with_the_drives_outcome() {
        for outcome in [Ok(()), Err(Fault::Medium), Err(Fault::Gone)] {
            let mut lab = Lab::new();
            let id = lab.submit(7, 2, IoKind::Read, 0);
            assert!(!lab.ios.is_idle());
            assert_eq!(ended(&lab.answer(id, outcome)), Some((7, outcome)));
            assert!(lab.ios.is_idle());
        }
    }

    #[test]
    fn a_write_that_fails_is_tried_again_before_it_ends() {
        let mut lab = Lab::new();
        let mut id = lab.submit(7, 2, IoKind::Write, 3);
        for _ in 0..WRITE_RETRIES {
            lab.cx.take_actions();
            assert_eq!(ended(&lab.answer(id, Err(Fault::Medium))), None);
            let again = lab.handed_out();
            assert_eq!(again.len(), 1);
            assert_eq!((again[0].1, again[0].2), (2, 3));
            assert_ne!(again[0].0, id, "numbers are never used again");
            id = again[0].0;
        }
        let fault = Err(Fault::Medium);
        assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
    }

    #[test]
    fn other_faults_and_flushes_are_not_tried_again() {
        for fault in [Fault::Gone, Fault::Full] {
            let mut lab = Lab::new();
            let id = lab.submit(7, 2, IoKind::Write, 3);
            assert_eq!(ended(&lab.answer(id, Err(fault))), Some((7, Err(fault))));
        }
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Flush, 0);
        let fault = Err(Fault::Medium);
        assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
    }

    #[test]
    fn a_write_to_a_drive_that_is_out_is_not_tried_again() {
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Write, 3);
        lab.cx.view.seat_out(Seat(2));
        let fault = Err(Fault::Medium);
        assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
    }

    #[test]
    fn neighbours_go_out_as_one_and_end_one_by_one() {
        let mut lab = Lab::new();
        for number in 0..3 {
            lab.submit(number, 2, IoKind::Write, 10 + number);
        }
        lab.submit(3, 3, IoKind::Write, 13);
        let out = lab.handed_out();
        let places = out.iter().map(|&(_, seat, at, blocks)| (seat, at, blocks));
        assert_eq!(places.collect::<Vec<_>>(), [(2, 10, 3), (3, 13, 1)]);
        let Answered::Members(members) = lab.answer(out[0].0, Ok(())) else {
            panic!("a joined operation has members");
        };
        let mut all = Vec::new();
        for (member, outcome) in members {
            all.extend(ended(&lab.ios.member_answered(
                &mut lab.cx,
                member,
                outcome,
            )));
        }
        assert_eq!(all, [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
    }

    #[test]
    fn members_of_a_failed_operation_are_tried_alone() {
        let mut lab = Lab::new();
        for number in 0..2 {
            lab.submit(number, 2, IoKind::Read, 10 + number);
        }
        let out = lab.handed_out();
        let Answered::Members(members) = lab.answer(out[0].0, Err(Fault::Medium)) else {
            panic!("a joined operation has members");
        };
        for (member, outcome) in members {
            assert_eq!(
                ended(&lab.ios.member_answered(&mut lab.cx, member, outcome)),
                None
            );
        }
        let again = lab.handed_out();
        assert_eq!(again.len(), 2, "not joined again");
        let fault = Err(Fault::Medium);
        assert_eq!(ended(&lab.answer(again[0].0, fault)), Some((0, fault)));
        assert_eq!(ended(&lab.answer(again[1].0, Ok(()))), Some((1, Ok(()))));
    }

    #[test]
    fn what_is_abandoned_ends_for_nobody_and_keeps_its_memory() {
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Read, 0);
        assert!(matches!(
            lab.ios.abandon(id),
            Some(Purpose::PageWrite { offset: 7, .. })
        ));
        assert!(lab.ios.abandon(id).is_none(), "once");
        assert!(lab.ios.is_idle() && lab.ios.stragglers().len() == 1);
        lab.cx.take_actions();
        lab.ios.release(&mut lab.cx, ScratchId(7));
        assert!(lab.cx.take_actions().is_empty());
        assert!(matches!(lab.answer(id, Ok(())), Answered::Late(late) if late.seat == Seat(2)));
        lab.ios.straggler_came_back(&mut lab.cx);
        assert_eq!(lab.cx.take_actions(), [Action::Release(ScratchId(7))]);
    }

    #[test]
    fn a_drive_that_is_out_has_failed_everything_oldest_first() {
        let mut lab = Lab::new();
        for (number, seat) in [(0, 2), (1, 3), (2, 2)] {
            lab.submit(number, seat, IoKind::Write, number);
        }
        lab.cx.view.seat_out(Seat(2));
        let mut failed = Vec::new();
        while let Some(answered) = lab.ios.fail_next_at(&mut lab.cx, Seat(2)) {
            failed.extend(ended(&answered));
        }
        lab.ios.seat_abandoned(Seat(2));
        assert_eq!(failed, [(0, Err(Fault::Gone)), (2, Err(Fault::Gone))]);
        assert_eq!(lab.ios.flights().count(), 1);
        lab.ios.drain(&mut lab.cx, Seat(2));
        assert!(lab.cx.take_events().is_empty(), "it has not answered yet");
    }

    #[test]
    fn a_write_to_a_drive_with_a_successor_ends_when_both_have_it() {
        let mut lab = Lab::new();
        lab.ios.begin_twin(Seat(2), Seat(6));
        let second = lab.submit(7, 2, IoKind::Write, 3);
        let out = lab.handed_out();
        let seats: Vec<u16> = out.iter().map(|&(_, seat, ..)| seat).collect();
        assert_eq!((seats.as_slice(), out[1].0), (&[2, 6][..], second));
        assert_eq!(ended(&lab.answer(out[0].0, Ok(()))), None);
        assert!(!lab.ios.is_idle());
        assert_eq!(ended(&lab.answer(second, Ok(()))), Some((7, Ok(()))));
        assert!(lab.ios.is_idle());
    }

    #[test]
    fn a_read_that_its_drive_leaves_ends_as_a_bad_block() {
        let mut lab = Lab::new();
        lab.ios.begin_twin(Seat(2), Seat(6));
        let id = lab.submit(7, 2, IoKind::Read, 3);
        lab.ios.end_twin(Seat(2), Seat(6));
        assert!(lab.ios.leave_to_successor(id, true).is_none());
        let Answered::Ended(end) = lab.answer(id, Err(Fault::Gone)) else {
            panic!("the read ends");
        };
        assert!(end.left);
        assert_eq!(end.outcome, Err(Fault::Medium), "it is planned around");
    }

    #[test]
    fn what_the_successor_was_given_is_the_seats_after_the_succession() {
        let mut lab = Lab::new();
        lab.ios.begin_twin(Seat(2), Seat(6));
        let second = lab.submit(7, 2, IoKind::Write, 3);
        let first = lab.ios.in_flight_at(Seat(2), false);
        lab.ios.end_twin(Seat(2), Seat(6));
        lab.ios.seconds_succeed(Seat(2), Seat(6));
        assert!(lab.ios.in_flight_at(Seat(6), true).is_empty());
        assert!(lab.ios.leave_to_successor(first[0], true).is_none());
        assert!(lab.ios.pairs_succeed(Seat(2)).is_empty());
        assert_eq!(ended(&lab.answer(second, Ok(()))), Some((7, Ok(()))));
    }

    #[test]
    fn a_late_read_is_found_once_its_drive_takes_longer_than_others() {
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Read, 0);
        assert!(lab.ios.look(&mut lab.cx).is_none(), "it is not time to");
        lab.cx.now = lab.ios.look_at().expect("something is in flight");
        assert_eq!(lab.ios.look(&mut lab.cx), Some(Vec::new()));
        lab.ios.looked(lab.cx.now);
        lab.cx.now = lab.ios.look_at().expect("it may be late");
        assert_eq!(lab.ios.look(&mut lab.cx), Some(vec![id]));
        assert_eq!(lab.cx.take_events(), [Event::Late { seat: Seat(2) }]);
        lab.ios.is_hedged(id);
        lab.ios.looked(lab.cx.now);
        lab.cx.now = lab.ios.look_at().expect("it may hang");
        assert_eq!(lab.ios.look(&mut lab.cx), Some(Vec::new()));
    }

    #[test]
    fn more_late_drives_than_the_code_survives_are_not_read_around() {
        let mut lab = Lab::new();
        for seat in 0..3 {
            lab.submit(seat.into(), seat, IoKind::Read, 0);
        }
        for _ in 0..2 {
            lab.cx.now = lab.ios.look_at().expect("something is in flight");
            assert_eq!(lab.ios.look(&mut lab.cx), Some(Vec::new()));
            lab.ios.looked(lab.cx.now);
        }
        assert_eq!(lab.cx.take_events().len(), 3);
    }
}
