//! Candidates for discards: runs of stripes, and groups that belong to no volume. Their number is bounded; further ones
//! are dropped.

use std::collections::BTreeMap;
use std::ops::Range;

use format::runs::{self, Runs};
use format::{Form, GroupId, StripeId};

/// Runs that a lane keeps, of stripes and of groups: 64 KiB each at most.
const RUNS_MAX: usize = 4096;

/// What may be discarded.
#[derive(Clone, Debug, Default)]
pub(super) struct Candidates {
    /// Runs of stripes by group, and by the form of which only what it alone keeps is discarded.
    stripes: BTreeMap<(GroupId, Option<Form>), Runs>,
    /// How many runs these are.
    stripe_runs: usize,
    /// Runs of groups that belong to no volume; also groups of other lanes.
    groups: Runs,
}

impl Candidates {
    pub(super) fn is_empty(&self) -> bool {
        self.stripes.is_empty() && self.groups.is_empty()
    }

    pub(super) fn add_stripes(
        &mut self,
        group: GroupId,
        only: Option<Form>,
        stripes: &Range<StripeId>,
    ) {
        if self.stripe_runs >= RUNS_MAX {
            return;
        }
        let runs = self.stripes.entry((group, only)).or_default();
        let before = runs.len();
        runs::insert(runs, &StripeId::numbers(stripes));
        self.stripe_runs = self.stripe_runs + runs.len() - before;
    }

    pub(super) fn has_stripes_of(&self, group: GroupId) -> bool {
        self.stripes.contains_key(&(group, None))
    }

    pub(super) fn add_groups(&mut self, groups: &Range<GroupId>) {
        if self.groups.len() < RUNS_MAX {
            runs::insert(&mut self.groups, &GroupId::numbers(groups));
        }
    }

    /// Drops all candidates of these groups.
    pub(super) fn forget(&mut self, groups: &Range<GroupId>) {
        runs::remove(&mut self.groups, &GroupId::numbers(groups));
        let here = (groups.start, None)..(groups.end, None);
        for (_, runs) in self.stripes.extract_if(here, |_, _| true) {
            self.stripe_runs -= runs.len();
        }
    }

    /// Adds all candidates of `other`.
    pub(super) fn append(&mut self, other: Self) {
        for ((group, only), runs) in other.stripes {
            for (first, count) in runs {
                self.add_stripes(group, only, &StripeId::range(first..first + count));
            }
        }
        for (first, count) in other.groups {
            self.add_groups(&GroupId::range(first..first + count));
        }
    }

    /// Takes the first run, of at most `most` stripes.
    pub(super) fn next_stripes(
        &mut self,
        most: u64,
    ) -> Option<(GroupId, Option<Form>, Range<StripeId>)> {
        let (&(group, only), runs) = self.stripes.first_key_value()?;
        let &(first, count) = runs.first()?;
        let stripes = first..first + count.min(most);
        let runs = self.stripes.get_mut(&(group, only))?;
        let before = runs.len();
        runs::remove(runs, &stripes);
        self.stripe_runs = self.stripe_runs + runs.len() - before;
        if runs.is_empty() {
            self.stripes.remove(&(group, only));
        }
        Some((group, only, StripeId::range(stripes)))
    }

    /// Takes the first group that `is_here`.
    pub(super) fn next_group(&mut self, is_here: impl Fn(GroupId) -> bool) -> Option<GroupId> {
        while let Some(&(first, count)) = self.groups.first() {
            let mut groups = first..first + count;
            let found = { groups.by_ref() }
                .map(GroupId)
                .find(|&group| is_here(group));
            runs::remove(&mut self.groups, &(first..groups.start));
            if found.is_some() {
                return found;
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_taken_by_runs_of_one_group_and_no_longer_than_a_step() {
        let mut candidates = Candidates::default();
        candidates.add_stripes(GroupId(5), None, &(StripeId::range(10..14)));
        candidates.add_stripes(GroupId(5), None, &(StripeId::range(14..20)));
        candidates.add_stripes(GroupId(3), None, &(StripeId::range(7..8)));
        candidates.add_stripes(GroupId(5), None, &(StripeId::range(40..41)));
        assert_eq!(candidates.stripe_runs, 3);
        let mut taken = Vec::new();
        while let Some(run) = candidates.next_stripes(8) {
            taken.push(run);
        }
        assert_eq!(
            taken,
            [
                (GroupId(3), None, StripeId::range(7..8)),
                (GroupId(5), None, StripeId::range(10..18)),
                (GroupId(5), None, StripeId::range(18..20)),
                (GroupId(5), None, StripeId::range(40..41))
            ]
        );
        assert_eq!(candidates.stripe_runs, 0);
    }

    #[test]
    fn groups_of_other_lanes_are_passed_over() {
        let mut candidates = Candidates::default();
        candidates.add_groups(&GroupId::range(2..5));
        candidates.add_groups(&GroupId::range(7..8));
        candidates.add_groups(&GroupId::range(20..30));
        let mut next = || candidates.next_group(|group| group.0 % 4 == 1);
        let taken: Vec<Option<GroupId>> = (0..4).map(|_| next()).collect();
        let groups = [Some(21), Some(25), Some(29), None];
        assert_eq!(taken, groups.map(|group| group.map(GroupId)));
    }

    #[test]
    fn what_is_too_much_to_remember_is_forgotten() {
        let mut candidates = Candidates::default();
        for run in 0..2 * RUNS_MAX as u64 {
            candidates.add_stripes(
                GroupId(run % 7),
                None,
                &StripeId::range(2 * run..2 * run + 1),
            );
            candidates.add_groups(&GroupId::range(2 * run..2 * run + 1));
        }
        assert_eq!(candidates.stripe_runs, RUNS_MAX);
        assert_eq!(candidates.groups.len(), RUNS_MAX);
    }
}
