//! Sets of groups as runs: first and count, ascending and apart.

use std::ops::Range;

/// A set of groups.
pub type Runs = Vec<(u64, u64)>;

/// The parts of `groups` that are not in `runs`, in ascending order.
#[must_use]
pub fn without(groups: Range<u64>, runs: &[(u64, u64)]) -> Vec<Range<u64>> {
    let mut parts = Vec::new();
    let mut next = groups.start;
    let from = runs.partition_point(|&(first, count)| first + count <= groups.start);
    for &(first, count) in &runs[from..] {
        if first >= groups.end {
            break;
        }
        if first > next {
            parts.push(next..first);
        }
        next = next.max(first + count);
    }
    if next < groups.end {
        parts.push(next..groups.end);
    }
    parts
}

/// The run that contains a group.
#[must_use]
pub fn run_of(runs: &[(u64, u64)], group: u64) -> Option<Range<u64>> {
    let index = runs.partition_point(|&(first, count)| first + count <= group);
    let &(first, count) = runs.get(index)?;
    (first <= group).then_some(first..first + count)
}

/// Removes `groups`.
pub fn remove(runs: &mut Runs, groups: &Range<u64>) {
    let low = runs.partition_point(|&(first, count)| first + count <= groups.start);
    let high = runs.partition_point(|&(first, _)| first < groups.end);
    if low >= high {
        return;
    }
    let (first, (last, count)) = (runs[low].0, runs[high - 1]);
    let rest = [first..groups.start, groups.end..last + count];
    let rest = rest.into_iter().filter(|rest| !rest.is_empty());
    runs.splice(
        low..high,
        rest.map(|rest| (rest.start, rest.end - rest.start)),
    );
}

/// Adds `groups`.
pub fn insert(runs: &mut Runs, groups: &Range<u64>) {
    remove(runs, groups);
    let index = runs.partition_point(|&(first, _)| first < groups.start);
    runs.insert(index, (groups.start, groups.end - groups.start));
    runs.dedup_by(|next, before| {
        let joined = before.0 + before.1 == next.0;
        before.1 += if joined { next.1 } else { 0 };
        joined
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn set(runs: &[(u64, u64)]) -> BTreeSet<u64> {
        let groups = runs.iter().flat_map(|&(first, count)| first..first + count);
        groups.collect()
    }

    #[test]
    fn they_are_what_a_set_is() {
        let (mut runs, mut groups) = (Runs::new(), BTreeSet::new());
        let mut random = block::SplitMix64::new(7);
        for step in 0..2000 {
            let first = random.below(60);
            let range = first..first + 1 + random.below(9);
            if step % 2 == 0 {
                insert(&mut runs, &range);
                groups.extend(range.clone());
            } else {
                remove(&mut runs, &range);
                groups.retain(|group| !range.contains(group));
            }
            assert_eq!(set(&runs), groups);
            let apart = runs.windows(2).all(|two| two[0].0 + two[0].1 < two[1].0);
            assert!(apart, "{runs:?}");
            let rest: BTreeSet<u64> = without(range.clone(), &runs)
                .into_iter()
                .flatten()
                .collect();
            let expected = range.filter(|group| !groups.contains(group));
            assert_eq!(rest, expected.collect());
            let run = run_of(&runs, first);
            assert_eq!(
                run.is_some_and(|run| run.contains(&first)),
                groups.contains(&first)
            );
        }
    }
}
