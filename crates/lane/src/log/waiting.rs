//! Units that wait to be logged, in two lots, and in each lot by volume.
//!
//! ```text
//!   commits  volume a [unit][unit]    volume b [unit]       ─┐  by turns: a batch of one, a batch of the other;
//!   streams  volume a [  unit  ][  unit  ][  unit  ] …      ─┘  in a batch the volume that has had least is next
//! ```
//!
//! A commit is a small write that a client waits for. A stream is much data, which fills ring and memory however large
//! they are. So neither lot waits behind the other: each has every second batch, and a part of the ring and of the
//! memory is for commits alone ([`Lot::share`]). Within a lot each volume has its share of the batches, and of ring and
//! memory (`lane/shares.rs`). Units of the pool itself come first, and have no limit of their own.
//!
//! Invariant: within a lot, units of one volume are logged in the order in which they came. Units of different
//! operations that touch the same stripe never wait at the same time, because an operation holds the locks of its
//! stripes.

use std::time::Duration;

use block::{BLOCK_BYTES, Instant};
use format::VolumeId;

use super::Unit;
use crate::fair_queue::FairQueue;
use crate::op::Op;
use crate::shares::Volumes;

/// If no commit has come for this time, commits count as absent.
const COMMITS_QUIET: Duration = Duration::from_secs(2);

/// The two kinds of writes.
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

    /// How much of the ring, or of the memory, this lot may fill, together with the other lot.
    pub(super) const fn share(self, whole: u64) -> u64 {
        match self {
            Self::Commits => whole,
            Self::Streams => whole - whole / 4,
        }
    }
}

#[derive(Clone, Debug, Default)]
struct Queue {
    units: FairQueue<Option<VolumeId>, Unit>,
    urgent: usize,
}

/// The units that wait.
#[derive(Clone, Debug, Default)]
pub(super) struct Waiting {
    commits: Queue,
    streams: Queue,
    /// True if the last batch was one of commits.
    commits_went: bool,
    /// When a commit last came.
    commit_at: Option<Instant>,
    /// The volumes whose units come.
    volumes: Volumes,
}

/// The weight of a unit in its volume's share: its blocks, and the size of its descriptors in blocks.
pub(super) fn weight(unit: &Unit) -> u64 {
    let blocks = unit.blocks.len() + unit.derived.len();
    let described = (unit.bytes() as u64).div_ceil(BLOCK_BYTES);
    blocks as u64 + described
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

    /// True if a commit has come lately.
    pub(super) fn has_commits(&self, now: Instant) -> bool {
        self.commit_at
            .is_some_and(|at| now.since(at) < COMMITS_QUIET)
    }

    /// True if any unit of a lot waits.
    pub(super) fn has(&self, lot: Lot) -> bool {
        !self.queue(lot).units.is_empty()
    }

    /// The number of descriptors of a lot that let a batch begin although another one is in flight.
    pub(super) const fn urgent(&self, lot: Lot) -> usize {
        self.queue(lot).urgent
    }

    /// Both lots, the lot whose turn it is first.
    pub(super) const fn in_turn(&self) -> [Lot; 2] {
        if self.commits_went {
            [Lot::Streams, Lot::Commits]
        } else {
            [Lot::Commits, Lot::Streams]
        }
    }

    /// True if units of more than one volume have come lately.
    pub(super) fn is_shared(&self, now: Instant) -> bool {
        self.volumes.are_several(now)
    }

    pub(super) fn push(&mut self, lot: Lot, volume: Option<VolumeId>, unit: Unit, now: Instant) {
        if lot == Lot::Commits {
            self.commit_at = Some(now);
        }
        if let Some(volume) = volume {
            self.volumes.came(volume, now);
        }
        let queue = self.queue_mut(lot);
        queue.urgent += unit.urgent();
        queue.units.push(volume, unit);
    }

    /// Adds units before all others of the pool itself: they make room for clients.
    pub(super) fn push_first(&mut self, units: Vec<Unit>) {
        for unit in units.into_iter().rev() {
            self.commits.urgent += unit.urgent();
            self.commits.units.push_front(None, unit);
        }
        self.commits_went = false;
    }

    /// True if the next commit logs blocks again that a checkpoint preserves.
    pub(super) fn logs_again(&self) -> bool {
        self.next(Lot::Commits, |_| false)
            .is_some_and(|(_, unit)| unit.again)
    }

    /// The number of waiting units of a lot.
    pub(super) const fn count(&self, lot: Lot) -> usize {
        self.queue(lot).units.len()
    }

    /// The next unit of a lot, and its volume, among volumes for which `may` is true. Units of the pool itself come
    /// first.
    pub(super) fn next(
        &self,
        lot: Lot,
        may: impl Fn(VolumeId) -> bool,
    ) -> Option<(Option<VolumeId>, &Unit)> {
        let units = &self.queue(lot).units;
        let own = units.next(|volume| volume.is_none());
        own.or_else(|| units.next(|volume| volume.is_some_and(&may)))
    }

    /// Takes a volume's first unit, for a batch of this lot.
    pub(super) fn take(&mut self, lot: Lot, volume: Option<VolumeId>) -> Option<Unit> {
        let queue = self.queue_mut(lot);
        let cost = queue.units.first(volume).map(weight)?;
        let unit = queue.units.take(volume, cost)?;
        queue.urgent -= unit.urgent();
        Some(unit)
    }

    /// Puts back units that were just [taken](Self::take), in this order: they found no room.
    pub(super) fn give_back(&mut self, lot: Lot, units: Vec<(Option<VolumeId>, Unit)>) {
        let queue = self.queue_mut(lot);
        for (volume, unit) in units.into_iter().rev() {
            queue.urgent += unit.urgent();
            let cost = weight(&unit);
            queue.units.give_back(volume, unit, cost);
        }
    }

    /// A batch of this lot begins: the other lot is next.
    pub(super) fn went(&mut self, lot: Lot) {
        self.commits_went = lot == Lot::Commits;
    }

    /// Takes all units of both lots for which `such` is true.
    pub(super) fn take_if(&mut self, such: impl Fn(&Unit) -> bool) -> Vec<Unit> {
        let mut taken = Vec::new();
        for queue in [&mut self.commits, &mut self.streams] {
            let out = queue.units.take_if(&such);
            queue.urgent -= out.iter().map(Unit::urgent).sum::<usize>();
            taken.extend(out);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use format::{GroupId, StripeId};

    use super::super::Zeroed;
    use super::*;
    use crate::ids::OpId;

    fn unit(number: u64) -> Unit {
        Unit {
            zeroed: Some(Zeroed {
                group: GroupId(0),
                stripes: StripeId::range(number..number + 1),
                only: None,
            }),
            ..Unit::of(OpId(number))
        }
    }

    const A: VolumeId = VolumeId(10);
    const B: VolumeId = VolumeId(20);

    fn waiting(units: &[(Lot, Option<VolumeId>, u64)]) -> Waiting {
        let mut waiting = Waiting::default();
        for &(lot, volume, number) in units {
            waiting.push(lot, volume, unit(number), Instant::ZERO);
        }
        waiting
    }

    /// The operations of the next units of a lot, among the volumes in `may`.
    fn take(waiting: &mut Waiting, lot: Lot, count: usize, may: &[VolumeId]) -> Vec<u64> {
        let mut numbers = Vec::new();
        while numbers.len() < count
            && let Some((volume, _)) = waiting.next(lot, |volume| may.contains(&volume))
        {
            numbers.push(waiting.take(lot, volume).expect("just seen").op.0);
            waiting.went(lot);
        }
        numbers
    }

    #[test]
    fn lots_take_turns_and_keep_their_order() {
        let (commits, streams) = (Lot::Commits, Lot::Streams);
        let all = (0..6).map(|number| {
            let lot = [streams, commits][usize::from(number % 2 == 1)];
            (lot, Some(A), number)
        });
        let mut waiting = waiting(&all.collect::<Vec<_>>());
        assert_eq!(waiting.in_turn()[0], commits);
        assert_eq!(take(&mut waiting, commits, 2, &[A]), [1, 3]);
        assert_eq!(waiting.in_turn()[0], streams);
        assert_eq!(waiting.urgent(commits), 1);
        assert_eq!(take(&mut waiting, streams, 1, &[A]), [0]);
        assert_eq!(waiting.in_turn()[0], commits);
        waiting.push_first(vec![unit(8), unit(9)]);
        assert_eq!(take(&mut waiting, commits, 2, &[]), [8, 9]);
        assert_eq!(waiting.urgent(streams), 2);
        let rest = waiting.take_if(|unit| unit.op.0 != 5);
        assert_eq!(
            rest.iter().map(|unit| unit.op.0).collect::<Vec<_>>(),
            [2, 4]
        );
        assert_eq!((waiting.urgent(streams), waiting.count(commits)), (0, 1));
        assert_eq!(take(&mut waiting, commits, 9, &[A]), [5]);
        assert!(waiting.is_empty());
    }

    #[test]
    fn volumes_take_turns_in_a_batch_and_one_without_room_lets_others_pass() {
        let commits = Lot::Commits;
        let many = (0..4).map(|number| (commits, Some(A), number));
        let others = [
            (commits, None, 8),
            (commits, Some(B), 9),
            (commits, Some(B), 10),
        ];
        let all: Vec<_> = many.chain(others).collect();
        assert_eq!(
            take(&mut waiting(&all), commits, 9, &[A, B]),
            [8, 0, 9, 1, 10, 2, 3],
            "the pool's own first, then by turns"
        );
        assert_eq!(take(&mut waiting(&all), commits, 9, &[B]), [8, 9, 10]);
    }

    #[test]
    fn what_finds_no_room_waits_as_before() {
        let all: Vec<_> = (0..3)
            .map(|number| (Lot::Streams, Some(A), number))
            .collect();
        let mut waiting = waiting(&all);
        let mut taken = Vec::new();
        for _ in 0..2 {
            let unit = waiting.take(Lot::Streams, Some(A)).unwrap();
            taken.push((Some(A), unit));
        }
        waiting.give_back(Lot::Streams, taken);
        assert_eq!(waiting.urgent(Lot::Streams), 3);
        assert_eq!(take(&mut waiting, Lot::Streams, 9, &[A]), [0, 1, 2]);
    }

    #[test]
    fn commits_have_a_part_of_what_there_is_for_themselves() {
        assert_eq!(Lot::Commits.share(100), 100);
        assert_eq!(Lot::Streams.share(100), 75);
        let mut waiting = Waiting::default();
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert!(!waiting.has_commits(at(0)));
        waiting.push(Lot::Streams, Some(A), unit(1), at(1));
        assert!(!waiting.has_commits(at(1)));
        waiting.push(Lot::Commits, Some(B), unit(2), at(1));
        assert!(waiting.has_commits(at(2)) && !waiting.has_commits(at(4)));
        assert!(waiting.is_shared(at(4)));
    }
}
