//! What waits to be logged, in two lots.
//!
//! ```text
//!   commits  [unit][unit]                          ─┐  by turns: a batch of one, a batch of the other
//!   streams  [  unit  ][  unit  ][  unit  ] …      ─┘
//! ```
//!
//! A commit is a small write for which somebody waits; a stream is much data, which fills ring and memory however large they
//! are. So neither waits behind the other: each has every second batch, and a part of the ring and of the memory is
//! for commits alone ([`Lot::share`]).
//!
//! Invariant: within a lot, units are logged in the order in which they came. Units of different operations that touch the same
//! stripe never wait at the same time, for an operation holds its stripes' locks.

use std::collections::VecDeque;
use std::time::Duration;

use block::Instant;

use super::Unit;
use crate::lane::op::Op;

/// Commits that have not come for so long do not come any more.
const COMMITS_QUIET: Duration = Duration::from_secs(2);

/// Which kind of writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lot {
    Commits,
    Streams,
}

impl Lot {
    pub(super) const fn of(op: &Op) -> Self {
        if op.service.bulk {
            Self::Streams
        } else {
            Self::Commits
        }
    }

    /// How much of the ring, or of the memory, it may take up together with the other one.
    pub(super) const fn share(self, whole: u64) -> u64 {
        match self {
            Self::Commits => whole,
            Self::Streams => whole - whole / 4,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Queue {
    units: VecDeque<Unit>,
    urgent: usize,
}

/// The units that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    commits: Queue,
    streams: Queue,
    /// The last batch was one of commits.
    commits_went: bool,
    /// When a commit last came.
    commit_at: Option<Instant>,
}

impl Waiting {
    const fn queue(&self, lot: Lot) -> &Queue {
        match lot {
            Lot::Commits => &self.commits,
            Lot::Streams => &self.streams,
        }
    }

    const fn queue_mut(&mut self, lot: Lot) -> &mut Queue {
        match lot {
            Lot::Commits => &mut self.commits,
            Lot::Streams => &mut self.streams,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.commits.units.is_empty() && self.streams.units.is_empty()
    }

    /// Whether commits come these days.
    pub(super) fn has_commits(&self, now: Instant) -> bool {
        self.commit_at
            .is_some_and(|at| now.since(at) < COMMITS_QUIET)
    }

    /// Whether anything waits of a lot.
    pub(super) fn has(&self, lot: Lot) -> bool {
        !self.queue(lot).units.is_empty()
    }

    /// Descriptors of a lot for whose sake a batch begins though another one is in flight.
    pub(super) const fn urgent(&self, lot: Lot) -> usize {
        self.queue(lot).urgent
    }

    /// Both lots, the one whose turn it is first.
    pub(super) const fn in_turn(&self) -> [Lot; 2] {
        if self.commits_went {
            [Lot::Streams, Lot::Commits]
        } else {
            [Lot::Commits, Lot::Streams]
        }
    }

    pub(super) fn push(&mut self, lot: Lot, unit: Unit, now: Instant) {
        if lot == Lot::Commits {
            self.commit_at = Some(now);
        }
        let queue = self.queue_mut(lot);
        queue.urgent += unit.urgent();
        queue.units.push_back(unit);
    }

    /// Before all others: it makes room for them.
    pub(super) fn push_first(&mut self, units: Vec<Unit>) {
        for unit in units.into_iter().rev() {
            self.commits.urgent += unit.urgent();
            self.commits.units.push_front(unit);
        }
        self.commits_went = false;
    }

    /// The units of a lot, in order.
    pub(super) fn units(&self, lot: Lot) -> impl Iterator<Item = &Unit> {
        self.queue(lot).units.iter()
    }

    /// Takes the first units of a lot, for a batch.
    pub(super) fn take(&mut self, lot: Lot, count: usize) -> Vec<Unit> {
        self.commits_went = lot == Lot::Commits;
        let queue = self.queue_mut(lot);
        let units: Vec<Unit> = queue.units.drain(..count).collect();
        queue.urgent -= units.iter().map(Unit::urgent).sum::<usize>();
        units
    }

    /// Takes all that are such, of both lots.
    pub(super) fn take_if(&mut self, such: impl Fn(&Unit) -> bool) -> Vec<Unit> {
        let mut taken = Vec::new();
        for queue in [&mut self.commits, &mut self.streams] {
            let units = std::mem::take(&mut queue.units);
            let (out, stay): (Vec<Unit>, _) = units.into_iter().partition(&such);
            queue.units = Vec::into(stay);
            queue.urgent -= out.iter().map(Unit::urgent).sum::<usize>();
            taken.extend(out);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lane::ids::OpId;

    fn unit(number: u64) -> Unit {
        Unit {
            zeroed: Some((0, number..number + 1)),
            ..Unit::of(OpId(number))
        }
    }

    fn numbers(units: &[Unit]) -> Vec<u64> {
        units.iter().map(|unit| unit.op.0).collect()
    }

    #[test]
    fn lots_take_turns_and_keep_their_order() {
        let mut waiting = Waiting::default();
        for number in 0..6 {
            let lot = [Lot::Streams, Lot::Commits][usize::from(number % 2 == 1)];
            waiting.push(lot, unit(number), Instant::ZERO);
        }
        assert_eq!(waiting.in_turn()[0], Lot::Commits);
        assert_eq!(numbers(&waiting.take(Lot::Commits, 2)), [1, 3]);
        assert_eq!(waiting.in_turn()[0], Lot::Streams);
        assert_eq!(waiting.urgent(Lot::Commits), 1);
        assert_eq!(numbers(&waiting.take(Lot::Streams, 1)), [0]);
        assert_eq!(waiting.in_turn()[0], Lot::Commits);
        waiting.push_first(vec![unit(8), unit(9)]);
        let commits: Vec<u64> = waiting.units(Lot::Commits).map(|unit| unit.op.0).collect();
        assert_eq!(commits, [8, 9, 5]);
        assert_eq!(
            numbers(&waiting.take_if(|unit| unit.op.0 != 5)),
            [8, 9, 2, 4]
        );
        assert_eq!(waiting.urgent(Lot::Streams), 0);
        assert_eq!(numbers(&waiting.take_if(|_| true)), [5]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn commits_have_a_part_of_what_there_is_for_themselves() {
        assert_eq!(Lot::Commits.share(100), 100);
        assert_eq!(Lot::Streams.share(100), 75);
        let mut waiting = Waiting::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert!(!waiting.has_commits(at(0)));
        waiting.push(Lot::Streams, unit(1), at(1));
        assert!(!waiting.has_commits(at(1)));
        waiting.push(Lot::Commits, unit(2), at(1));
        assert!(waiting.has_commits(at(2)) && !waiting.has_commits(at(4)));
    }
}
