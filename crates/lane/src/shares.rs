//! Shares: how much of the ring, and of the memory of batches, one volume may use while other volumes log, too.
//!
//! ```text
//!   alone           [ a a a a a a a a a a a a a a a a a a a a ]   all of it
//!   another came    [ a a a a a a a a a a a a a a a . . . . . ]   three times as much as is left: a waits, b does not
//!                   [ a a a a a a a a b b b b b b b b . . . ]     both want all of it
//! ```
//!
//! A writer that is faster than checkpoints fills all the space there is. So a volume may use no more than [`TIMES`]
//! what is left: the *dynamic threshold* of shared packet buffers (Choudhury, Hahne: IEEE/ACM ToN 6(2), 1998). No part
//! is reserved for each volume, because the number of volumes is not known: a lone writer gets three quarters, and each
//! of two that need all of it gets three sevenths. A volume that has been alone for [`LATELY`] may use everything.

use std::collections::BTreeMap;
use std::time::Duration;

use block::Instant;
use format::{Sequence, VolumeId};

/// A volume may use this many times what is left.
const TIMES: u64 = 3;

/// Volumes that have logged within this time may log again at any moment.
const LATELY: Duration = Duration::from_secs(60);

/// The volumes that have logged lately.
#[derive(Clone, Debug, Default)]
pub(super) struct Volumes {
    /// When each volume last logged.
    came: BTreeMap<VolumeId, Instant>,
}

impl Volumes {
    pub(super) fn came(&mut self, volume: VolumeId, now: Instant) {
        let known = self.came.insert(volume, now).is_some();
        if !known {
            self.came.retain(|_, at| now.since(*at) < LATELY);
        }
    }

    /// True if more than one volume has logged lately.
    pub(super) fn are_several(&self, now: Instant) -> bool {
        let lately = self.came.values().filter(|&&at| now.since(at) < LATELY);
        self.came.len() > 1 && lately.count() > 1
    }
}

/// The volumes' shares of a resource that batches use, by batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Ledger {
    batches: BTreeMap<Sequence, Vec<(VolumeId, u64)>>,
    used: BTreeMap<VolumeId, u64>,
}

impl Ledger {
    /// A batch takes so much of the resource for each of these volumes.
    pub(super) fn take(&mut self, sequence: Sequence, mut parts: Vec<(VolumeId, u64)>) {
        parts.retain(|&(_, amount)| amount > 0);
        for &(volume, amount) in &parts {
            *self.used.entry(volume).or_default() += amount;
        }
        if !parts.is_empty() {
            self.batches.insert(sequence, parts);
        }
    }

    /// A batch gives back what it took.
    pub(super) fn give_back(&mut self, sequence: Sequence) {
        for (volume, amount) in self.batches.remove(&sequence).unwrap_or_default() {
            let used = self.used.get_mut(&volume).expect("it was taken");
            *used -= amount;
            if *used == 0 {
                self.used.remove(&volume);
            }
        }
    }

    /// Everything is given back.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The amount that a volume uses.
    fn of(&self, volume: VolumeId) -> u64 {
        self.used.get(&volume).copied().unwrap_or(0)
    }

    /// True if a volume may take more, with so much left for all.
    pub(super) fn may_take(&self, volume: VolumeId, left: u64) -> bool {
        self.of(volume) < left.saturating_mul(TIMES)
    }
}

/// The volumes' weights in a batch; `None` is the pool itself.
pub(super) type Weights = BTreeMap<Option<VolumeId>, u64>;

/// The volumes' parts of `whole` by weight, rounded down.
pub(super) fn divide(whole: u64, weights: &Weights) -> Vec<(VolumeId, u64)> {
    let sum = weights.values().sum::<u64>().max(1);
    let parts = weights.iter().filter_map(|(&volume, &weight)| {
        let part = u128::from(whole) * u128::from(weight) / u128::from(sum);
        Some((volume?, u64::try_from(part).expect("a part of a u64")))
    });
    parts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: VolumeId = VolumeId(1);
    const B: VolumeId = VolumeId(2);
    const WHOLE: u64 = 1000;

    /// These volumes take all of the resource, by turns and ten units at a time. Returns the amount of each in the end.
    fn fill(ledger: &mut Ledger, first: u64, who: &[VolumeId]) -> Vec<u64> {
        let mut taken = who.iter().map(|&volume| ledger.of(volume)).sum::<u64>();
        for round in first..first + 200 {
            let volume = who[usize::try_from(round).unwrap() % who.len()];
            if ledger.may_take(volume, WHOLE - taken) && taken < WHOLE {
                ledger.take(Sequence(round), vec![(volume, 10)]);
                taken += 10;
            }
        }
        who.iter().map(|&volume| ledger.of(volume)).collect()
    }

    #[test]
    fn a_volume_leaves_a_quarter_and_two_leave_a_seventh() {
        assert_eq!(fill(&mut Ledger::default(), 0, &[A]), [750]);
        let both = fill(&mut Ledger::default(), 0, &[A, B]);
        assert!(
            both.iter().all(|&has| (420..=440).contains(&has)),
            "{both:?}"
        );
        // A volume that comes later has room at once.
        let mut ledger = Ledger::default();
        fill(&mut ledger, 0, &[A]);
        assert!(ledger.may_take(B, WHOLE - 750));
        assert_eq!(fill(&mut ledger, 1000, &[A, B]), [750, 190]);
    }

    #[test]
    fn what_batches_took_comes_back_once() {
        let mut ledger = Ledger::default();
        for sequence in (1..=4).map(Sequence) {
            ledger.take(sequence, vec![(A, 10), (B, 1), (VolumeId(3), 0)]);
        }
        ledger.give_back(Sequence(2));
        ledger.give_back(Sequence(2));
        assert_eq!((ledger.of(A), ledger.of(B)), (30, 3));
        for sequence in [1, 3, 4].map(Sequence) {
            ledger.give_back(sequence);
        }
        assert!(ledger.used.is_empty() && ledger.batches.is_empty());
    }

    #[test]
    fn volumes_are_several_if_another_came_within_a_minute() {
        let at = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        let mut volumes = Volumes::default();
        volumes.came(A, at(0));
        assert!(!volumes.are_several(at(0)));
        volumes.came(B, at(50));
        assert!(volumes.are_several(at(59)));
        assert!(!volumes.are_several(at(60)));
        volumes.came(VolumeId(3), at(200));
        assert_eq!(volumes.came.len(), 1, "those that are gone are forgotten");
    }

    #[test]
    fn a_batch_is_divided_by_weight_and_the_pools_own_part_is_nobodys() {
        let weights = BTreeMap::from([(None, 1), (Some(A), 2), (Some(B), 1)]);
        assert_eq!(divide(100, &weights), [(A, 50), (B, 25)]);
        assert_eq!(divide(100, &BTreeMap::from([(Some(A), 7)])), [(A, 100)]);
        assert!(divide(100, &BTreeMap::new()).is_empty());
    }
}
