//! A map of objects in flight, by numbers that are given out in ascending order.
//!
//! A map of its own, because an entry is written and read with every drive operation. New entries go to the end, and
//! entries that end are mostly near the beginning; a balanced tree would move their neighbours. The same entry is
//! mostly looked up several times in a row, so the place of the last look-up is remembered.

use std::cell::Cell;
use std::collections::VecDeque;
use std::ops::Index;

/// Entries in ascending order of their numbers; removed entries leave a gap for a while.
#[derive(Clone, Debug)]
pub(super) struct SequenceMap<K, V> {
    entries: VecDeque<(K, Option<V>)>,
    live: usize,
    /// The index of the last look-up.
    hint: Cell<usize>,
}

/// The number of gaps up to which the entries are not compacted.
const GAPS: usize = 16;

impl<K, V> Default for SequenceMap<K, V> {
    fn default() -> Self {
        Self {
            entries: VecDeque::new(),
            live: 0,
            hint: Cell::new(0),
        }
    }
}

impl<K: Copy + Ord, V> SequenceMap<K, V> {
    /// Adds an entry, whose number must be higher than all before.
    pub(super) fn insert(&mut self, key: K, value: V) {
        debug_assert!(self.entries.back().is_none_or(|(last, _)| *last < key));
        // A new entry is looked up next.
        self.hint.set(self.entries.len());
        self.entries.push_back((key, Some(value)));
        self.live += 1;
    }

    #[inline]
    fn index(&self, key: K) -> Option<usize> {
        let hint = self.hint.get();
        match self.entries.get(hint) {
            Some((there, _)) if *there == key => Some(hint),
            _ => self.search(key),
        }
    }

    fn search(&self, key: K) -> Option<usize> {
        if self.entries.front().is_some_and(|(first, _)| *first == key) {
            return Some(0);
        }
        let found = self.entries.binary_search_by_key(&key, |(key, _)| *key);
        let index = found.ok()?;
        self.hint.set(index);
        Some(index)
    }

    pub(super) fn remove(&mut self, key: K) -> Option<V> {
        let index = self.index(key)?;
        let value = self.entries[index].1.take()?;
        self.live -= 1;
        while let Some((_, None)) = self.entries.front() {
            self.entries.pop_front();
        }
        if self.entries.len() > 2 * self.live + GAPS {
            self.entries.retain(|(_, value)| value.is_some());
        }
        Some(value)
    }

    pub(super) fn get(&self, key: K) -> Option<&V> {
        self.entries[self.index(key)?].1.as_ref()
    }

    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let index = self.index(key)?;
        self.entries[index].1.as_mut()
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.live == 0
    }

    /// All entries, in order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        let entries = self.entries.iter();
        entries.filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    /// The same, mutable.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        let entries = self.entries.iter_mut();
        entries.filter_map(|(key, value)| Some((*key, value.as_mut()?)))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

impl<K: Copy + Ord, V> Index<&K> for SequenceMap<K, V> {
    type Output = V;

    fn index(&self, key: &K) -> &V {
        self.get(*key).expect("it is in flight")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn it_holds_what_a_tree_holds_in_the_same_order() {
        let (mut numbered, mut tree) = (SequenceMap::default(), BTreeMap::new());
        // An entry that never ends stays at the front while thousands come and go behind it.
        let mut random = block::SplitMix64::new(1);
        for key in 0..5000_u64 {
            numbered.insert(2 * key, key);
            tree.insert(2 * key, key);
            for _ in 0..2 {
                let back = random.below(40);
                let gone = (2 * key).saturating_sub(back);
                if gone > 0 {
                    assert_eq!(numbered.remove(gone), tree.remove(&gone));
                }
            }
            assert_eq!(numbered.get(2 * key), tree.get(&(2 * key)));
            assert_eq!(numbered[&0], tree[&0]);
            assert_eq!(numbered.get(2 * key), tree.get(&(2 * key)));
            assert_eq!(numbered.is_empty(), tree.is_empty());
        }
        if let (Some(one), Some(other)) = (numbered.get_mut(0), tree.get_mut(&0)) {
            (*one, *other) = (7, 7);
        }
        let all: Vec<(u64, u64)> = numbered.iter().map(|(key, &value)| (key, value)).collect();
        let same: Vec<(u64, u64)> = tree.iter().map(|(&key, &value)| (key, value)).collect();
        assert_eq!(all, same);
        assert!(numbered.entries.len() <= 2 * tree.len() + GAPS);
    }
}
