//! The names that people use for the drives of a pool: number and path.
//!
//! The pool's state machine uses seats. A spare that takes over gets another drive's seat, while people keep calling
//! both drives by their earlier numbers. A report is about the drives at the time when it was made, but the pool's
//! facts may have changed by the time it is read. So `Names` keeps the numbers and paths from before a change, until
//! the driver carries the change out.

use array::pool::{PoolFacts, Report};
use block::Seat;

/// Numbers and paths, by seat.
#[derive(Debug)]
pub(super) struct Names(Vec<(u16, String)>);

impl Names {
    pub(super) fn new(facts: &PoolFacts) -> Self {
        let seats = facts.seats();
        Self(
            seats
                .map(|(seat, entry)| (facts.number(seat), entry.path.clone()))
                .collect(),
        )
    }

    /// The number of the drive in a seat.
    fn number(&self, facts: &PoolFacts, seat: Seat) -> Seat {
        let known = self.0.get(seat.index());
        Seat(known.map_or_else(|| facts.number(seat), |(number, _)| *number))
    }

    /// A report with drive numbers in place of seats.
    pub(super) fn renumbered(&self, facts: &PoolFacts, report: Report) -> Report {
        report.renumbered(|seat| self.number(facts, seat))
    }

    /// The path of the drive with a number.
    pub(super) fn path(&self, facts: &PoolFacts, number: Seat) -> Option<String> {
        let known = self.0.iter().find(|(known, _)| *known == number.0);
        if let Some((_, path)) = known {
            return Some(path.clone());
        }
        let seat = facts.seat_numbered(number.0)?;
        Some(facts.seats[seat.index()].path.clone())
    }
}
