//! A map from names of blocks that is asked about single ones, and has no order of its own.
//!
//! Tens of thousands of blocks may be logged, and each small request asks for several: a hash table answers in a third of
//! the time that a balanced tree takes. What depends on the order of its entries would depend on how the table has
//! grown; so none is shown but by [`BlockMap::select`], which sorts.

#![expect(
    clippy::disallowed_types,
    reason = "the hash has no seed, and the order of the entries is not seen"
)]

use std::collections::HashMap;

use rustc_hash::FxBuildHasher;

use crate::format::BlockName;

/// Values by block.
#[derive(Clone, Debug)]
pub(super) struct BlockMap<V> {
    entries: HashMap<BlockName, V, FxBuildHasher>,
}

impl<V> Default for BlockMap<V> {
    fn default() -> Self {
        Self {
            entries: HashMap::default(),
        }
    }
}

impl<V> BlockMap<V> {
    pub(super) fn get(&self, name: BlockName) -> Option<&V> {
        match self.entries.is_empty() {
            true => None,
            false => self.entries.get(&name),
        }
    }

    pub(super) fn get_mut(&mut self, name: BlockName) -> Option<&mut V> {
        self.entries.get_mut(&name)
    }

    /// What was there before.
    pub(super) fn insert(&mut self, name: BlockName, value: V) -> Option<V> {
        self.entries.insert(name, value)
    }

    /// What was there.
    pub(super) fn remove(&mut self, name: BlockName) -> Option<V> {
        self.entries.remove(&name)
    }

    /// Whether there is any of `count` blocks from `first` on.
    pub(super) fn has_any(&self, first: BlockName, count: u32) -> bool {
        let end = first.block.saturating_add(count);
        if self.entries.len() < count as usize {
            let inside = |name: &BlockName| {
                let of_column = (name.group, name.column) == (first.group, first.column);
                of_column && (first.block..end).contains(&name.block)
            };
            return self.entries.keys().any(inside);
        }
        let mut names = (first.block..end).map(|block| BlockName { block, ..first });
        names.any(|name| self.entries.contains_key(&name))
    }

    /// Those with such values, in order of their names.
    pub(super) fn select(&self, such: impl Fn(&V) -> bool) -> Vec<(BlockName, V)>
    where
        V: Copy,
    {
        let entries = self.entries.iter().filter(|(_, value)| such(value));
        let mut selected: Vec<_> = entries.map(|(&name, &value)| (name, value)).collect();
        selected.sort_unstable_by_key(|&(name, _)| name);
        selected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn name(group: u64, column: u16, block: u32) -> BlockName {
        BlockName {
            group,
            column,
            block,
        }
    }

    #[test]
    fn ranges_are_of_one_column_and_what_is_selected_is_in_order() {
        let mut map = BlockMap::default();
        for block in [9, 3, 7] {
            assert_eq!(map.insert(name(1, 2, block), block), None);
        }
        assert_eq!(map.insert(name(1, 1, 5), 5), None);
        // Fewer blocks than there are entries are looked up, more are looked for.
        for (first, count, any) in [
            (name(1, 2, 4), 3, false),
            (name(1, 2, 4), 4, true),
            (name(1, 2, 4), 400, true),
            (name(1, 2, 10), 400, false),
            (name(1, 3, 0), 3, false),
            (name(0, 2, 0), 400, false),
            (name(1, 2, 9), u32::MAX, true),
        ] {
            assert_eq!(map.has_any(first, count), any, "{first:?} and {count}");
        }
        let odd: Vec<u32> = map
            .select(|value| value % 2 == 1)
            .iter()
            .map(|entry| entry.1)
            .collect();
        assert_eq!(odd, [5, 3, 7, 9]);
        assert_eq!(map.remove(name(1, 2, 3)), Some(3));
        assert_eq!(map.get(name(1, 2, 3)), None);
    }
}
