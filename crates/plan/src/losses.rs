//! Which blocks of data are lost, as ranges of a group's data.
//!
//! A block is *lost* when it can neither be read nor reconstructed because blocks of its stripe are bad or unknown on
//! drives that are in use. (Data on a missing drive is not lost: it returns with the drive, and `Pool::lost_groups`
//! counts it.) A lane finds losses, one stripe at a time. The pool keeps them in its facts, so that they survive a
//! restart, and passes them to the lanes at opening. A block leaves the list when it is written again or found intact.
//!
//! ```text
//!   a group's data    | 0 1 2 3 | 4 5 6 7 | 8 …     blocks of 4 KiB, in the volume's order
//!   losses                  [2, 6)         [9, 10)  disjoint, not adjacent
//! ```

use std::collections::BTreeMap;
use std::ops::Range;

use format::GroupId;

/// Blocks of a group's data that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LostRange {
    /// Which group.
    pub group: GroupId,
    /// First block, counted in the group's data.
    pub first: u64,
    /// Number of blocks.
    pub blocks: u64,
}

/// A set of lost blocks. Invariant: ranges are not empty, disjoint and not adjacent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// (group, first block) → block behind the last.
    ranges: BTreeMap<(GroupId, u64), u64>,
}

impl Losses {
    /// Whether nothing is lost.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of ranges.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.iter().map(|range| range.blocks).sum()
    }

    /// All ranges, by group and block.
    pub fn iter(&self) -> impl Iterator<Item = LostRange> + '_ {
        self.ranges.iter().map(|(&(group, first), &end)| LostRange {
            group,
            first,
            blocks: end - first,
        })
    }

    /// The lost parts of these blocks of a group.
    pub fn within(
        &self,
        group: GroupId,
        blocks: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> + '_ {
        // Only one range can begin before `blocks` and reach into it.
        let before = self.ranges.range((group, 0)..(group, blocks.start));
        let from = match before.last() {
            Some((&(_, first), &end)) if end > blocks.start => first,
            _ => blocks.start,
        };
        self.ranges
            .range((group, from)..(group, blocks.end.max(from)))
            .map(move |(&(_, first), &end)| first.max(blocks.start)..end.min(blocks.end))
            // An empty range of blocks has no lost part.
            .filter(|part| !part.is_empty())
    }

    /// Whether any of these blocks of a group is lost.
    #[must_use]
    pub fn touch(&self, group: GroupId, blocks: Range<u64>) -> bool {
        !self.is_empty() && self.within(group, blocks).next().is_some()
    }

    /// Adds blocks; returns how many of them were not lost before.
    pub fn insert(&mut self, group: GroupId, blocks: Range<u64>) -> u64 {
        if blocks.is_empty() {
            return 0;
        }
        let known: u64 = self
            .within(group, blocks.clone())
            .map(|part| part.end - part.start)
            .sum();
        // A range that only touches at an end becomes part of the new range.
        let low = blocks.start.saturating_sub(1);
        let joined = self.overlapping(group, low..blocks.end.saturating_add(1));
        let (mut first, mut end) = (blocks.start, blocks.end);
        for (other, other_end) in joined {
            self.ranges.remove(&(group, other));
            first = first.min(other);
            end = end.max(other_end);
        }
        self.ranges.insert((group, first), end);
        blocks.end - blocks.start - known
    }

    /// Removes blocks; returns how many of them were lost.
    pub fn remove(&mut self, group: GroupId, blocks: Range<u64>) -> u64 {
        if blocks.is_empty() {
            return 0;
        }
        let mut removed = 0;
        for (first, end) in self.overlapping(group, blocks.clone()) {
            self.ranges.remove(&(group, first));
            if first < blocks.start {
                self.ranges.insert((group, first), blocks.start);
            }
            if blocks.end < end {
                self.ranges.insert((group, blocks.end), end);
            }
            removed += end.min(blocks.end) - first.max(blocks.start);
        }
        removed
    }

    /// Removes all groups for which `stays` is false.
    pub fn retain_groups(&mut self, stays: impl Fn(GroupId) -> bool) {
        self.ranges.retain(|&(group, _), _| stays(group));
    }

    /// Whole ranges that have a block in common with these.
    fn overlapping(&self, group: GroupId, blocks: Range<u64>) -> Vec<(u64, u64)> {
        self.ranges
            .range((group, 0)..(group, blocks.end))
            .rev()
            .map(|(&(_, first), &end)| (first, end))
            .take_while(|&(_, end)| end > blocks.start)
            .collect()
    }
}

impl FromIterator<LostRange> for Losses {
    fn from_iter<T: IntoIterator<Item = LostRange>>(ranges: T) -> Self {
        let mut losses = Self::default();
        for LostRange {
            group,
            first,
            blocks,
        } in ranges
        {
            losses.insert(group, first..first.saturating_add(blocks));
        }
        losses
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A plain set of blocks is the reference; every pair of ranges of a small group is tried.
    #[test]
    fn ranges_are_what_a_set_of_blocks_would_be() {
        const BLOCKS: u64 = 6;
        let pairs = || (0..BLOCKS).flat_map(|low| (low..=BLOCKS).map(move |high| low..high));
        for (a, b) in pairs().flat_map(|a| pairs().map(move |b| (a.clone(), b))) {
            for c in pairs() {
                let (mut losses, mut set) = (Losses::default(), BTreeSet::new());
                losses.insert(GroupId(7), 0..1);
                for part in [a.clone(), b.clone()] {
                    let new = part.clone().filter(|&block| set.insert(block)).count();
                    assert_eq!(losses.insert(GroupId(8), part), new as u64);
                }
                let here: Vec<u64> = losses.within(GroupId(8), c.clone()).flatten().collect();
                let there: Vec<u64> = c.clone().filter(|block| set.contains(block)).collect();
                assert_eq!(here, there);
                assert_eq!(losses.touch(GroupId(8), c.clone()), !there.is_empty());
                let gone = c.clone().filter(|block| set.remove(block)).count();
                assert_eq!(losses.remove(GroupId(8), c.clone()), gone as u64);
                let left: Vec<u64> = losses.within(GroupId(8), 0..BLOCKS).flatten().collect();
                assert_eq!(left, set.iter().copied().collect::<Vec<_>>());
                assert_eq!(losses.blocks(), 1 + set.len() as u64);
                let ends: Vec<_> = losses
                    .iter()
                    .filter(|range| range.group == GroupId(8))
                    .collect();
                let apart = |pair: &[LostRange]| pair[0].first + pair[0].blocks < pair[1].first;
                assert!(ends.windows(2).all(apart), "{ends:?}");
                assert_eq!(losses.iter().collect::<Losses>(), losses);
            }
        }
    }
}
