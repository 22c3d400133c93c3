//! Groups of volumes that have content.

use std::ops::Range;

use format::{PoolFacts, runs};

/// Runs of groups, by first group, and the number of each in the volumes' order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Groups(Vec<(Range<u64>, usize)>);

impl Groups {
    pub(super) fn of(facts: &PoolFacts) -> Self {
        let extents = facts.volumes.iter().flat_map(|volume| &volume.extents);
        let runs = extents
            .flat_map(|&(first, count)| runs::without(first..first + count, &facts.uninitialized));
        let mut runs: Vec<(Range<u64>, usize)> = runs.zip(0..).collect();
        runs.sort_by_key(|(run, _)| run.start);
        Self(runs)
    }

    fn run_of(&self, group: u64) -> Option<&(Range<u64>, usize)> {
        let index = self.0.partition_point(|(run, _)| run.end <= group);
        self.0.get(index).filter(|(run, _)| run.start <= group)
    }

    pub(super) fn has(&self, group: u64) -> bool {
        self.run_of(group).is_some()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Sorts groups with content as the volumes have them.
    pub(super) fn order(&self, group: u64) -> (Option<usize>, u64) {
        (self.run_of(group).map(|&(_, number)| number), group)
    }

    /// All of them, in the volumes' order.
    pub(super) fn all(&self) -> impl Iterator<Item = u64> + use<> {
        let mut runs = self.0.clone();
        runs.sort_by_key(|&(_, number)| number);
        runs.into_iter().flat_map(|(run, _)| run)
    }
}
