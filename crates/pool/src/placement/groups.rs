//! Groups of volumes that have content.

use std::ops::Range;

use format::{GroupId, PoolFacts, runs};

use super::walk::touch;

/// Runs of groups, by first group, and the number of each in the volumes' order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Groups(Vec<(Range<u64>, usize)>);

impl Groups {
    pub(super) fn of(facts: &PoolFacts) -> Self {
        let extents = facts.volumes.iter().flat_map(|volume| &volume.extents);
        let runs = extents
            .flat_map(|&(first, count)| runs::without(first..first + count, &facts.uninitialized));
        let mut runs: Vec<(Range<u64>, usize)> = runs.zip(0..).collect();
        runs.sort_by_key(|(run, _)| run.start);
        Self(runs)
    }

    fn run_of(&self, group: GroupId) -> Option<&(Range<u64>, usize)> {
        let index = self.0.partition_point(|(run, _)| run.end <= group.0);
        self.0.get(index).filter(|(run, _)| run.start <= group.0)
    }

    /// Whether a group has content.
    pub(crate) fn has(&self, group: GroupId) -> bool {
        self.run_of(group).is_some()
    }

    /// Whether no group has content.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The first of these groups in the volumes' order.
    pub(crate) fn first(&self, groups: impl Iterator<Item = GroupId>) -> Option<GroupId> {
        groups.min_by_key(|&group| (self.run_of(group).map(|run| run.1), group))
    }

    /// All of them, in the volumes' order: for work on the whole pool.
    pub(crate) fn all(&self) -> impl Iterator<Item = GroupId> + use<> {
        let mut runs = self.0.clone();
        runs.sort_by_key(|&(_, number)| number);
        let groups = runs.into_iter().flat_map(|(run, _)| run).map(GroupId);
        groups.inspect(|&group| touch(group))
    }
}
