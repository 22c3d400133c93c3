//! All small cases: every power cut of every reference workload, a failure of the n-th operation for every n (while a
//! pool is created, written, closed and opened), and silent faults of every kind in every state and region.

mod cuts;
mod faults;
mod joins;
mod phases;
mod workloads;

use std::fmt;

use block::{Seat, mix};

use crate::panics::caught;
use crate::schedule::Violation;

pub use cuts::cuts;
pub use faults::{reported, silent};
pub use joins::{Story, joins, stories};
pub use phases::phases;
pub use workloads::{Workload, workloads};

/// Which part of an enumeration is run: one case in so many, chosen by a hash of the case, so that the parts are spread
/// evenly and together are the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// 1 is everything.
    pub one_in: u64,
    /// Which part, below `one_in`.
    pub part: u64,
    /// Further share of the recoveries in which the power is cut again, one in so many: each of them has hundreds of cuts.
    pub again_one_in: u64,
}

impl Share {
    /// Everything.
    pub const ALL: Self = Self::one_in(1);

    /// The first of `one_in` parts.
    #[must_use]
    pub const fn one_in(one_in: u64) -> Self {
        Self {
            one_in,
            part: 0,
            again_one_in: 1,
        }
    }

    /// True if the power is cut again in the recovery of a case.
    fn cuts_again(self, case: u64) -> bool {
        mix(!case).is_multiple_of(self.again_one_in)
    }

    fn has(self, case: u64) -> bool {
        self.one_in == 1 || mix(case) % self.one_in == self.part
    }
}

/// The counts and findings of an enumeration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Writes and flushes of the workloads themselves, after each of which the power was cut.
    pub boundaries: u64,
    /// Moments of a cut, those within recoveries too, or places of a fault.
    pub points: u64,
    /// Possible states at these points: subsets of un-flushed writes combined with lost drives.
    pub states: u64,
    /// The distinct ones of these states: they were recovered and read.
    pub merged: u64,
    /// Of the distinct states, those in which a pool was not created, opened or closed, and returned a reason. In each
    /// of them the expected data was there at the second attempt.
    pub refused: u64,
    /// The violations found.
    pub violations: Vec<String>,
}

impl Tally {
    /// Adds another part.
    pub fn add(&mut self, other: Self) {
        self.boundaries += other.boundaries;
        self.points += other.points;
        self.states += other.states;
        self.merged += other.merged;
        self.refused += other.refused;
        self.violations.extend(other.violations);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} boundaries, {} points, {} states, {} of them different, {} refused, {} violations",
            self.boundaries,
            self.points,
            self.states,
            self.merged,
            self.refused,
            self.violations.len()
        )
    }
}

/// Runs a check. A failed assertion is a violation too.
fn guarded<T>(check: impl FnOnce() -> Result<T, Violation>) -> Result<T, Violation> {
    caught(check).unwrap_or_else(|what| Err(Violation::new("panic", what)))
}

/// All sets of at most `most` of these seats, the empty one first.
fn subsets(seats: &[Seat], most: usize) -> Vec<Vec<Seat>> {
    let mut all = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..most {
        let end = all.len();
        for index in begin..end {
            let last: Option<Seat> = all[index].last().copied();
            for &seat in seats.iter().filter(|&&seat| Some(seat) > last) {
                let mut larger = all[index].clone();
                larger.push(seat);
                all.push(larger);
            }
        }
        begin = end;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_sets_up_to_a_size() {
        let seats = [0, 1, 2, 3, 4].map(Seat);
        let all = subsets(&seats, 2);
        assert_eq!(all.len(), 1 + 5 + 10);
        assert_eq!(all[0], []);
        assert_eq!(all.last(), Some(&vec![Seat(3), Seat(4)]));
    }

    #[test]
    fn the_parts_of_an_enumeration_are_the_whole_of_it() {
        let parts = (0..50).map(|part| Share {
            part,
            ..Share::one_in(50)
        });
        let shares: Vec<Share> = parts.collect();
        for case in 0..1000 {
            assert_eq!(shares.iter().filter(|share| share.has(case)).count(), 1);
        }
    }
}
