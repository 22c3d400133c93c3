//! What people call the drives of a pool: by number and by path.
//!
//! The pool's machine speaks of seats. A spare that takes over has another drive's seat from then on, while people
//! go on calling both drives by the numbers that they had. What the machine reports is about the drives as they
//! were when it happened, and its facts may be further by the time that it is read; so this is what the facts said
//! before, until the driver carries out the change.

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

    /// A report with people's numbers.
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
