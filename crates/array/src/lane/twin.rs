//! A drive that is replaced while it works, and its successor: the lane's part.
//!
//! ```text
//!   Twin { seat, with }      every write and flush of the seat goes to both drives; it ends when both have ended
//!   Fill { target on with }  a cell is copied to the same row of the successor
//!   SeatOut(with)            the successor is out: the seat's own drive is all there is, as before
//!   Succeed { seat, with }   the successor is the seat's drive from now on
//! ```
//!
//! Reads go to the seat's own drive until the end: nothing on the successor counts before.
//!
//! Invariants:
//! - A write that is acknowledged is on both drives, or the pool has taken one of them out: of a pair whose second
//!   write fails, the end waits for that. So the successor may take the seat at any time with the cells that it has.
//! - From `Succeed` on, nothing in flight at the drive that leaves decides anything: a pair ends as the successor's
//!   write ends, and a read that fails is planned around.

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Outcome, Seat};

use super::flight::Flight;
use super::{Lane, Purpose};
use crate::action::{Io, IoId, IoKind};

/// How far the successor's part of a write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    InFlight,
    /// It has failed; the pool has yet to decide.
    Failed(Fault),
    /// It is done, or does not matter.
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
    /// The successor has the seat: only its part counts.
    succeeded: bool,
}

/// Seats with two drives, and writes to both.
#[derive(Clone, Debug, Default)]
pub(super) struct Twins {
    /// Where the successor of a seat's drive sits meanwhile.
    with: BTreeMap<Seat, Seat>,
    pairs: BTreeMap<u64, Pair>,
}

impl Twins {
    pub(super) fn is_idle(&self) -> bool {
        self.pairs.is_empty()
    }

    pub(super) fn any(&self) -> bool {
        !self.with.is_empty()
    }

    /// True if what is written to the seat goes to a successor too.
    pub(super) fn has_successor(&self, seat: Seat) -> bool {
        self.with.contains_key(&seat)
    }

    /// Whether a drive is the successor of another one.
    pub(super) fn succeeds(&self, seat: Seat) -> bool {
        self.with.values().any(|&with| with == seat)
    }
}

impl Lane {
    /// From now on all that is written to the seat goes to its drive's successor too.
    pub(super) fn begin_twin(&mut self, seat: Seat, with: Seat) {
        self.watch.forget(with);
        self.cx.view.successor_in(with);
        self.twins.with.insert(seat, with);
    }

    /// A write or flush is about to be handed out: where it goes to two drives, its second part is too.
    pub(super) fn pair_up(&mut self, flight: &mut Flight) -> Option<Flight> {
        let Io { seat, kind, .. } = flight.io;
        let second = matches!(flight.purpose, Purpose::Second { .. });
        if kind == IoKind::Read || flight.pair.is_some() || second {
            return None;
        }
        let &with = self.twins.with.get(&seat)?;
        let number = self.cx.fresh();
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
        self.twins.pairs.insert(number, pair);
        flight.pair = Some(number);
        let id = IoId(self.cx.fresh());
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
    pub(super) fn first_ended(&mut self, number: u64, outcome: Outcome) {
        if let Some(pair) = self.twins.pairs.get_mut(&number) {
            pair.first = Some(outcome);
            self.pair_ends(number);
        }
    }

    /// The write of a pair to the successor has ended.
    pub(super) fn second_ended(&mut self, number: u64, outcome: Outcome) {
        let Some(&Pair {
            kind,
            offset,
            with,
            succeeded,
            ..
        }) = self.twins.pairs.get(&number)
        else {
            // Its pair has ended without it.
            return;
        };
        let second = match outcome {
            Err(fault) if succeeded || !self.cx.view.is_out(with) => Second::Failed(fault),
            _ => Second::Done,
        };
        if let (Second::Failed(fault), false) = (second, succeeded) {
            self.report_fault(with, kind, offset, fault, true);
        }
        let pair = self.twins.pairs.get_mut(&number).expect("just seen");
        pair.second = second;
        self.pair_ends(number);
    }

    fn pair_ends(&mut self, number: u64) {
        let pair = &self.twins.pairs[&number];
        let outcome = match (pair.succeeded, pair.first, pair.second) {
            (true, _, Second::Done) => Ok(()),
            (true, _, Second::Failed(fault)) => Err(fault),
            (false, Some(outcome), Second::Done) => outcome,
            (_, _, Second::InFlight) | (false, None, _) | (false, _, Second::Failed(_)) => return,
        };
        let pair = self.twins.pairs.remove(&number).expect("just seen");
        self.io_ended(pair.purpose, outcome);
    }

    fn pairs_of(&self, is_of: impl Fn(&Pair) -> bool) -> Vec<u64> {
        let pairs = self.twins.pairs.iter();
        pairs
            .filter(|(_, pair)| is_of(pair))
            .map(|(&number, _)| number)
            .collect()
    }

    /// Writes to the drive that are in flight, or all that is.
    fn in_flight_at(&self, seat: Seat, is_meant: impl Fn(&Flight) -> bool) -> Vec<IoId> {
        let flights = self.ios.iter();
        flights
            .filter(|(_, flight)| flight.io.seat == seat && is_meant(flight))
            .map(|(id, _)| id)
            .collect()
    }

    /// A drive is out: if it was to succeed another one, nothing waits for it; if it had a successor, that is not
    /// written to any more. Before anything else is done about the drive.
    pub(super) fn twin_out(&mut self, seat: Seat) {
        let with = self.twins.with.remove(&seat);
        self.twins.with.retain(|_, with| *with != seat);
        let is_second = |flight: &Flight| matches!(flight.purpose, Purpose::Second { .. });
        let seconds = with.map(|with| self.in_flight_at(with, is_second));
        for id in seconds.unwrap_or_default() {
            self.abandon(id);
        }
        for number in self.pairs_of(|pair| pair.seat == seat || pair.with == seat) {
            let pair = self.twins.pairs.get_mut(&number).expect("just listed");
            if pair.seat == seat || pair.second != Second::InFlight {
                pair.second = Second::Done;
                self.pair_ends(number);
            }
        }
    }

    /// The successor takes the seat. `filled`: the columns that it has, where it does not have all.
    pub(super) fn succeed(
        &mut self,
        seat: Seat,
        with: Seat,
        filled: Option<&BTreeSet<(u64, u16)>>,
    ) {
        self.twins.with.remove(&seat);
        self.watch.forget(seat);
        self.watch.forget(with);
        if let Some(filled) = filled {
            self.cx.view.succeed(&self.cx.geometry, seat, filled);
        }
        // Fills that were under way come to nothing. What they have written is not asked for.
        self.cx.view.successor_out(with);
        self.jobs_lost_seat(with);
        let is_second = |flight: &Flight| matches!(flight.purpose, Purpose::Second { .. });
        for id in self.in_flight_at(with, |flight| !is_second(flight)) {
            if let Some(flight) = self.abandon(id) {
                self.io_ended(flight.purpose, Err(Fault::Gone));
            }
        }
        self.decide(with, true);
        // What the successor was given to write before is the seat's now.
        for id in self.in_flight_at(with, is_second) {
            if let Some(flight) = self.ios.get_mut(id) {
                self.balance.ended(&flight.io);
                flight.io.seat = seat;
                self.balance.begins(&flight.io);
            }
        }
        self.flushes.wrote(seat);
        for id in self.in_flight_at(seat, |flight| !is_second(flight)) {
            self.leave_to_successor(id, filled.is_none());
        }
        for number in self.pairs_of(|pair| pair.seat == seat) {
            let pair = self.twins.pairs.get_mut(&number).expect("just listed");
            pair.succeeded = true;
            self.pair_ends(number);
        }
        self.superseded(seat);
        if self.cx.geometry.store().is_some() && self.recovery.is_none() {
            if filled.is_some() {
                self.batches_thinned();
            }
            self.want_anchor();
        }
    }

    /// An operation in flight at the drive that leaves.
    fn leave_to_successor(&mut self, id: IoId, answers: bool) {
        let Some(flight) = self.ios.get_mut(id) else {
            return;
        };
        if flight.io.kind == IoKind::Read && answers {
            flight.left = true;
            return;
        }
        let Some(flight) = self.abandon(id) else {
            return;
        };
        match flight.pair {
            Some(pair) => self.first_ended(pair, Ok(())),
            None => self.left_ended(flight.purpose, Err(Fault::Gone)),
        }
    }

    /// An operation at a drive that has left its seat has ended. A failure says nothing of the drive that has it now.
    pub(super) fn left_ended(&mut self, purpose: Purpose, outcome: Outcome) {
        self.hushed = true;
        self.io_ended(purpose, outcome.map_err(|_| Fault::Medium));
        self.hushed = false;
    }
}
