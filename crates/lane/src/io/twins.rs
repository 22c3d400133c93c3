//! A drive that is replaced while it works, and its successor: the lane's part.
//!
//! ```text
//!   Twin { seat, with }      every write and flush of the seat goes to both drives; it ends when both have ended
//!   Fill { target on with }  a cell is copied to the same row of the successor
//!   SeatOut(with)            the successor is out: the seat's own drive is all there is, as before
//!   Succeed { seat, with }   the successor is the seat's drive from now on
//! ```
//!
//! Reads go to the seat's own drive until `Succeed`: nothing on the successor counts before.
//!
//! What a pair of writes waits for:
//!
//! ```text
//! none ── pair_up ──► both
//! both ── first_ended ──► other
//! both ── second_ended ──► own
//! both ── second_ended ──► own_judged
//! both ── seat_out ──► own
//! both ── pairs_succeed ──► succeeded
//! own ── first_ended ──► none
//! own ── pairs_succeed ──► none
//! own_judged ── first_ended ──► judged
//! own_judged ── with_out ──► own
//! own_judged ── seat_out ──► own
//! own_judged ── pairs_succeed ──► none
//! other ── second_ended ──► none
//! other ── second_ended ──► judged
//! other ── seat_out ──► none
//! other ── pairs_succeed ──► succeeded
//! judged ── with_out ──► none
//! judged ── seat_out ──► none
//! judged ── pairs_succeed ──► none
//! succeeded ── second_ended ──► none
//! ```
//!
//! Own: for the seat's own drive. Other: for its successor. Judged: the successor has failed its part, and the pool is to
//! decide about it. Succeeded: for the successor alone, which has the seat. Seat out, with out: the seat's drive is out, or
//! the successor.
//!
//! Invariants:
//! - An acknowledged write is on both drives, or the pool has taken one of them out: if the second write of a pair
//!   fails, the pair ends only after the pool's verdict. So the successor may take the seat at any time with the cells
//!   that it has.
//! - From `Succeed` on, the outcome of an operation in flight at the drive that leaves decides nothing: a pair ends
//!   with the outcome of the successor's write, and a read that fails is planned around.

use std::collections::BTreeMap;

use block::{Fault, Outcome, Seat};
use plan::action::{Io, IoId, IoKind};

use super::fault_reports::{FaultReport, FaultReports};
use super::{Ended, Flight};
use crate::context::Context;
use crate::purpose::Purpose;

/// How far the successor's part of a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    InFlight,
    /// It has failed; the pool has not decided yet.
    Failed(Fault),
    /// It has ended, or does not matter.
    Done,
}

/// One write to two drives.
#[derive(Clone, Copy, Debug)]
struct Pair {
    purpose: Purpose,
    kind: IoKind,
    offset: u64,
    seat: Seat,
    with: Seat,
    /// How the write to the seat's own drive has ended.
    first: Option<Outcome>,
    second: Second,
    /// The successor has taken the seat: only its part counts.
    succeeded: bool,
}

/// Seats with two drives, and writes to both.
#[derive(Clone, Debug, Default)]
pub(crate) struct Twins {
    /// By seat: the seat that the successor of its drive has meanwhile.
    with: BTreeMap<Seat, Seat>,
    pairs: BTreeMap<u64, Pair>,
}

impl Twins {
    pub(super) fn is_idle(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(crate) fn any(&self) -> bool {
        !self.with.is_empty()
    }

    /// True if what is written to the seat goes to a successor too.
    pub(crate) fn has_successor(&self, seat: Seat) -> bool {
        self.with.contains_key(&seat)
    }

    /// The seat that the successor of a seat's drive has meanwhile, if it has one.
    pub(crate) fn successor_of(&self, seat: Seat) -> Option<Seat> {
        self.with.get(&seat).copied()
    }

    /// True if a drive is the successor of another one.
    pub(crate) fn succeeds(&self, seat: Seat) -> bool {
        self.with.values().any(|&with| with == seat)
    }

    /// From now on all that is written to the seat goes to its drive's successor too.
    pub(super) fn begin(&mut self, seat: Seat, with: Seat) {
        self.with.insert(seat, with);
    }

    /// A write or flush is about to be submitted. If it goes to two drives, returns its second part.
    pub(super) fn pair_up(&mut self, cx: &mut Context, flight: &mut Flight) -> Option<Flight> {
        let Io { seat, kind, .. } = flight.io;
        let second = matches!(flight.purpose, Purpose::Second { .. });
        if kind == IoKind::Read || flight.pair.is_some() || second {
            return None;
        }
        let &with = self.with.get(&seat)?;
        let number = cx.fresh();
        let pair = Pair {
            purpose: flight.purpose,
            kind,
            offset: flight.io.offset,
            seat,
            with,
            first: None,
            second: Second::InFlight,
            succeeded: false,
        };
        self.pairs.insert(number, pair);
        flight.pair = Some(number);
        let id = IoId(cx.fresh());
        Some(Flight {
            purpose: Purpose::Second { pair: number },
            io: Io {
                id,
                seat: with,
                ..flight.io
            },
            ..*flight
        })
    }

    /// The write of a pair to the seat's own drive has ended.
    pub(super) fn first_ended(&mut self, number: u64, outcome: Outcome) -> Option<Ended> {
        let pair = self.pairs.get_mut(&number)?;
        pair.first = Some(outcome);
        self.pair_ends(number)
    }

    /// The write of a pair to the successor has ended.
    pub(super) fn second_ended(
        &mut self,
        cx: &mut Context,
        faults: &mut FaultReports,
        number: u64,
        outcome: Outcome,
    ) -> Option<Ended> {
        // A pair may have ended without it.
        let pair = self.pairs.get_mut(&number)?;
        pair.second = match outcome {
            Err(fault) if pair.succeeded || !cx.view().is_out(pair.with) => Second::Failed(fault),
            _ => Second::Done,
        };
        if let (Second::Failed(fault), false) = (pair.second, pair.succeeded) {
            let report = FaultReport::new(pair.with, pair.kind, pair.offset, fault);
            faults.report(cx, report.waiting(true));
        }
        self.pair_ends(number)
    }

    /// Ends a pair, if all of it that counts has ended.
    fn pair_ends(&mut self, number: u64) -> Option<Ended> {
        let pair = &self.pairs[&number];
        let outcome = match (pair.succeeded, pair.first, pair.second) {
            (true, _, Second::Done) => Ok(()),
            (true, _, Second::Failed(fault)) => Err(fault),
            (false, Some(outcome), Second::Done) => outcome,
            (_, _, Second::InFlight) | (false, None, _) | (false, _, Second::Failed(_)) => {
                return None;
            }
        };
        let pair = self.pairs.remove(&number).expect("just seen");
        Some(Ended::new(pair.purpose, pair.offset, outcome))
    }

    fn pairs_of(&self, is_of: impl Fn(&Pair) -> bool) -> Vec<u64> {
        let pairs = self.pairs.iter();
        pairs
            .filter(|(_, pair)| is_of(pair))
            .map(|(&number, _)| number)
            .collect()
    }

    /// A drive is out. If it was to succeed another drive, that drive has no successor any more. If it had a successor,
    /// the successor is returned, and is not written to any more. To be called before anything else is done about the
    /// drive.
    pub(super) fn seat_out(&mut self, seat: Seat) -> Option<Seat> {
        let with = self.with.remove(&seat);
        self.with.retain(|_, with| *with != seat);
        with
    }

    /// Ends the pairs that waited only for a drive that is out.
    pub(super) fn pairs_without(&mut self, seat: Seat) -> Vec<Ended> {
        let numbers = self.pairs_of(|pair| pair.seat == seat || pair.with == seat);
        let ended = numbers.into_iter().filter_map(|number| {
            let pair = self.pairs.get_mut(&number).expect("just listed");
            if pair.seat != seat && pair.second == Second::InFlight {
                return None;
            }
            pair.second = Second::Done;
            self.pair_ends(number)
        });
        ended.collect()
    }

    /// The successor of a seat's drive takes the seat.
    pub(super) fn end(&mut self, seat: Seat) {
        self.with.remove(&seat);
    }

    /// Of the pairs of a seat only the successor's part counts from now on. Returns the pairs that end with this.
    pub(super) fn pairs_succeed(&mut self, seat: Seat) -> Vec<Ended> {
        let numbers = self.pairs_of(|pair| pair.seat == seat);
        let ended = numbers.into_iter().filter_map(|number| {
            let pair = self.pairs.get_mut(&number).expect("just listed");
            pair.succeeded = true;
            self.pair_ends(number)
        });
        ended.collect()
    }
}

#[cfg(test)]
mod tests {
    use block::Instant;
    use plan::action::{Event, Origin, Service};

    use super::*;
    use testing::walk::{Changes, Machine};

    const SEAT: Seat = Seat(2);
    const WITH: Seat = Seat(6);

    fn flight(seat: Seat, kind: IoKind) -> Flight {
        let io = Io {
            id: IoId(1),
            seat,
            kind,
            offset: 4096,
            length: 4096,
            slice: None,
            service: Service::prompt(Origin::Log),
        };
        Flight::new(Purpose::Anchor { seat }, io, Instant::ZERO)
    }

    /// A lane whose seat 2 has a successor.
    fn begun() -> (Twins, FaultReports, Context) {
        let mut twins = Twins::default();
        twins.begin(SEAT, WITH);
        (twins, FaultReports::default(), Context::of_test("raid6", 6))
    }

    /// The same with a write to both under way, and its number.
    fn written() -> (Twins, FaultReports, Context, u64) {
        let (mut twins, faults, mut cx) = begun();
        let mut first = flight(SEAT, IoKind::Write);
        let second = twins.pair_up(&mut cx, &mut first);
        let second = second.expect("it goes to both");
        assert_eq!(second.io.seat, WITH);
        let pair = first.pair.expect("it is of a pair");
        assert!(matches!(second.purpose, Purpose::Second { pair: of } if of == pair));
        (twins, faults, cx, pair)
    }

    /// How the pair has ended for the purpose of the write.
    fn outcome(ended: Option<Ended>) -> Option<Outcome> {
        let ended = ended?;
        assert!(matches!(ended.purpose, Purpose::Anchor { seat: SEAT }) && !ended.left);
        Some(ended.outcome)
    }

    #[test]
    fn writes_and_flushes_go_to_both_and_reads_to_the_seat() {
        let (mut twins, _, mut cx) = begun();
        for kind in [IoKind::Write, IoKind::WriteZeroes, IoKind::Flush] {
            assert!({ twins.pair_up(&mut cx, &mut flight(SEAT, kind)) }.is_some());
        }
        assert!({ twins.pair_up(&mut cx, &mut flight(SEAT, IoKind::Read)) }.is_none());
        assert!({ twins.pair_up(&mut cx, &mut flight(Seat(3), IoKind::Write)) }.is_none());
        assert!({ twins.pair_up(&mut cx, &mut flight(WITH, IoKind::Write)) }.is_none());
    }

    #[test]
    fn a_part_that_is_submitted_again_is_not_paired_again() {
        let (mut twins, _, mut cx) = begun();
        let mut first = flight(SEAT, IoKind::Write);
        let mut second = twins.pair_up(&mut cx, &mut first).expect("a pair");
        assert!(twins.pair_up(&mut cx, &mut first).is_none());
        assert!(twins.pair_up(&mut cx, &mut second).is_none());
    }

    #[test]
    fn a_write_ends_when_both_have_it() {
        let (mut twins, mut faults, mut cx, pair) = written();
        assert_eq!(outcome(twins.first_ended(pair, Ok(()))), None);
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Ok(()));
        assert_eq!(outcome(ended), Some(Ok(())));
        assert!(twins.is_idle());
        let (mut twins, mut faults, mut cx, pair) = written();
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Ok(()));
        assert_eq!(outcome(ended), None);
        assert_eq!(outcome(twins.first_ended(pair, Ok(()))), Some(Ok(())));
    }

    #[test]
    fn a_failure_of_the_seats_own_drive_is_the_writes() {
        let (mut twins, mut faults, mut cx, pair) = written();
        assert_eq!(outcome(twins.first_ended(pair, Err(Fault::Medium))), None);
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Ok(()));
        assert_eq!(outcome(ended), Some(Err(Fault::Medium)));
        assert!(cx.take_events().is_empty(), "its purpose reports it");
    }

    #[test]
    fn a_failure_of_the_successor_waits_for_the_verdict() {
        let (mut twins, mut faults, mut cx, pair) = written();
        assert_eq!(outcome(twins.first_ended(pair, Ok(()))), None);
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Err(Fault::Medium));
        assert_eq!(outcome(ended), None);
        let report = Event::DriveFault {
            seat: WITH,
            kind: IoKind::Write,
            offset: 4096,
            fault: Fault::Medium,
            waiting: true,
        };
        assert_eq!(cx.take_events(), [report]);
        assert_eq!(twins.seat_out(WITH), None);
        assert!(!twins.has_successor(SEAT));
        let ended = twins.pairs_without(WITH);
        assert_eq!(ended.len(), 1);
        assert_eq!(outcome(ended.first().copied()), Some(Ok(())));
    }

    #[test]
    fn a_successor_that_is_out_does_not_fail_a_write() {
        let (mut twins, mut faults, mut cx, pair) = written();
        cx.change_view(|view, _| view.successor_out(WITH));
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Err(Fault::Gone));
        assert_eq!(outcome(ended), None);
        assert!(cx.take_events().is_empty());
        assert_eq!(outcome(twins.first_ended(pair, Ok(()))), Some(Ok(())));
    }

    #[test]
    fn a_seat_that_is_out_has_no_successor_and_its_pairs_end_without_it() {
        let (mut twins, mut faults, mut cx, pair) = written();
        assert_eq!(twins.seat_out(SEAT), Some(WITH));
        assert!(twins.pairs_without(SEAT).is_empty(), "the first part runs");
        assert_eq!(
            outcome(twins.first_ended(pair, Err(Fault::Gone))),
            Some(Err(Fault::Gone))
        );
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Ok(()));
        assert_eq!(outcome(ended), None, "its pair has ended without it");
        assert!(!twins.any());
    }

    #[test]
    fn after_the_succession_the_successors_write_decides() {
        for end in [Ok(()), Err(Fault::Medium)] {
            let (mut twins, mut faults, mut cx, pair) = written();
            twins.end(SEAT);
            assert!(twins.pairs_succeed(SEAT).is_empty(), "it is in flight");
            assert_eq!(outcome(twins.first_ended(pair, Err(Fault::Gone))), None);
            let ended = twins.second_ended(&mut cx, &mut faults, pair, end);
            assert_eq!(outcome(ended), Some(end));
            assert!(cx.take_events().is_empty(), "its purpose reports it");
        }
    }

    #[test]
    fn what_the_successor_has_ends_with_the_succession() {
        let (mut twins, mut faults, mut cx, pair) = written();
        let ended = twins.second_ended(&mut cx, &mut faults, pair, Ok(()));
        assert_eq!(outcome(ended), None);
        let ended = twins.pairs_succeed(SEAT);
        assert_eq!(outcome(ended.first().copied()), Some(Ok(())));
        assert_eq!(outcome(twins.first_ended(pair, Ok(()))), None);
        assert!(twins.is_idle());
    }

    #[test]
    fn pairs_of_other_seats_go_on() {
        let (mut twins, _, mut cx, _) = written();
        twins.begin(Seat(4), Seat(7));
        let mut other = flight(Seat(4), IoKind::Write);
        assert!(twins.pair_up(&mut cx, &mut other).is_some());
        assert!(twins.pairs_succeed(SEAT).is_empty());
        assert_eq!(twins.seat_out(WITH), None);
        assert!(twins.has_successor(Seat(4)) && twins.succeeds(Seat(7)));
        assert_eq!(
            outcome(twins.first_ended(other.pair.expect("a pair"), Ok(()))),
            None
        );
    }

    /// A pair of writes on its way, whose inputs are all that may come: for the drawing of its states.
    #[derive(Clone)]
    struct Way {
        twins: Twins,
        faults: FaultReports,
        cx: Context,
        pair: Option<u64>,
        /// Which drives have yet to answer.
        first: bool,
        second: bool,
    }

    impl Way {
        fn new() -> Self {
            let (twins, faults, cx) = begun();
            let (first, second) = (true, true);
            Self {
                twins,
                faults,
                cx,
                pair: None,
                first,
                second,
            }
        }

        fn with(&self, input: impl FnOnce(&mut Self)) -> Self {
            let mut after = self.clone();
            input(&mut after);
            after
        }

        fn pair_up(&mut self) {
            let mut first = flight(SEAT, IoKind::Write);
            self.twins.pair_up(&mut self.cx, &mut first);
            self.pair = first.pair;
        }

        fn first_ended(&mut self, pair: u64, outcome: Outcome) {
            self.first = false;
            self.twins.first_ended(pair, outcome);
        }

        fn second_ended(&mut self, pair: u64, outcome: Outcome) {
            self.second = false;
            let (cx, faults) = (&mut self.cx, &mut self.faults);
            self.twins.second_ended(cx, faults, pair, outcome);
        }

        /// The write to the successor is abandoned: its answer does not come.
        fn seat_out(&mut self) {
            self.second = false;
            self.twins.seat_out(SEAT);
            self.twins.pairs_without(SEAT);
        }

        fn with_out(&mut self) {
            self.cx.change_view(|view, _| view.successor_out(WITH));
            self.twins.seat_out(WITH);
            self.twins.pairs_without(WITH);
        }

        fn pairs_succeed(&mut self) {
            self.twins.end(SEAT);
            self.twins.pairs_succeed(SEAT);
        }
    }

    impl Machine for Way {
        fn state(&self) -> &'static str {
            let Some(pair) = self.twins.pairs.values().next() else {
                return "none";
            };
            match (pair.succeeded, pair.first, pair.second) {
                (true, ..) => "succeeded",
                (_, None, Second::InFlight) => "both",
                (_, None, Second::Done) => "own",
                (_, None, Second::Failed(_)) => "own_judged",
                (_, Some(_), Second::InFlight) => "other",
                (_, Some(_), Second::Failed(_)) => "judged",
                (_, Some(_), Second::Done) => unreachable!("it has ended"),
            }
        }

        fn key(&self) -> String {
            let (state, pairs, any) = (self.state(), &self.twins.pairs, self.twins.any());
            let rest = (
                self.pair,
                self.first,
                self.second,
                self.cx.view().is_out(WITH),
            );
            format!("{state} {pairs:?} {any} {rest:?}")
        }

        fn after(&self) -> Vec<(&'static str, Self)> {
            let Some(pair) = self.pair else {
                return vec![("pair_up", self.with(Self::pair_up))];
            };
            let mut after = Vec::new();
            for outcome in [Ok(()), Err(Fault::Medium)] {
                if self.first {
                    let ended = self.with(|way| way.first_ended(pair, outcome));
                    after.push(("first_ended", ended));
                }
                if self.second {
                    let ended = self.with(|way| way.second_ended(pair, outcome));
                    after.push(("second_ended", ended));
                }
            }
            if self.twins.any() {
                after.push(("seat_out", self.with(Self::seat_out)));
                after.push(("with_out", self.with(Self::with_out)));
                after.push(("pairs_succeed", self.with(Self::pairs_succeed)));
            }
            after
        }
    }

    /// The drawing in the head of the file is what becomes of a pair: every input, in every state in which it may come.
    #[test]
    fn the_states_of_a_pair_are_those_of_the_drawing() {
        Changes::of([Way::new()]).assert_drawn_in(include_str!("twins.rs"));
    }
}
