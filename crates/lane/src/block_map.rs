//! A map by block name for single look-ups, without an order of its own.
//!
//! Tens of thousands of blocks may be logged, and each small request looks up several: a hash table answers in a third
//! of the time that a balanced tree takes. The order of the table's entries depends on how the table has grown, so
//! nothing may depend on it: only [`BlockMap::select`] returns entries in order, and it sorts them.
//!
//! ```text
//!   (group, column, block / 16) ─► leaf: which of its 16 blocks are there, and their values in order
//! ```
//!
//! Streams log runs of blocks, and a checkpoint goes through all of them at once while commits wait. With a leaf for 16
//! neighbours the table stays in the processor's cache, and there is little to sort. Blocks without neighbours have
//! leaves of one value.

#![expect(
    clippy::disallowed_types,
    reason = "the hash has no seed, and the order of the entries is not seen"
)]

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use format::{BlockName, Column, GroupId};
use rustc_hash::FxBuildHasher;

/// Blocks of a leaf. Removing a value moves the values behind it: with larger leaves this would cost more than the
/// smaller table saves.
const LEAF_BLOCKS: u32 = 16;

/// Neighbouring blocks of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct LeafName {
    group: GroupId,
    column: Column,
    index: u32,
}

/// The values of neighbouring blocks.
#[derive(Clone, Debug)]
struct Leaf<V> {
    /// A bit for each block that has a value.
    present: u16,
    /// The values, in order of the blocks.
    values: Vec<V>,
}

impl<V> Default for Leaf<V> {
    fn default() -> Self {
        Self {
            present: 0,
            values: Vec::new(),
        }
    }
}

impl<V> Leaf<V> {
    /// The index of the value of a block: `Ok` if there is one, `Err` with the index where it would be inserted.
    const fn place(&self, bit: u32) -> Result<usize, usize> {
        let before = (self.present & ((1 << bit) - 1)).count_ones() as usize;
        match self.present >> bit & 1 {
            1 => Ok(before),
            _ => Err(before),
        }
    }

    fn insert(&mut self, bit: u32, value: V) -> Option<V> {
        match self.place(bit) {
            Ok(at) => Some(std::mem::replace(&mut self.values[at], value)),
            Err(at) => {
                self.present |= 1 << bit;
                self.values.insert(at, value);
                None
            }
        }
    }

    /// Removes blocks, all of which have values.
    fn remove_all(&mut self, removed: u16) {
        let mut bits = bits(self.present);
        self.values
            .retain(|_| bits.next().is_some_and(|bit| removed >> bit & 1 == 0));
        self.present &= !removed;
    }

    /// The bits of the blocks that have values, in order.
    fn bits(&self) -> impl Iterator<Item = u32> + use<V> {
        bits(self.present)
    }
}

/// The bits that are set, in order.
fn bits(set: u16) -> impl Iterator<Item = u32> {
    (0..LEAF_BLOCKS).filter(move |bit| set >> bit & 1 == 1)
}

/// The leaf of a block, and the block's bit in it.
const fn leaf_of(name: BlockName) -> (LeafName, u32) {
    let leaf = LeafName {
        group: name.group,
        column: name.column,
        index: name.block / LEAF_BLOCKS,
    };
    (leaf, name.block % LEAF_BLOCKS)
}

/// Values by block.
#[derive(Clone, Debug)]
pub(super) struct BlockMap<V> {
    leaves: HashMap<LeafName, Leaf<V>, FxBuildHasher>,
}

impl<V> Default for BlockMap<V> {
    fn default() -> Self {
        Self {
            leaves: HashMap::default(),
        }
    }
}

impl<V> BlockMap<V> {
    pub(super) fn get(&self, name: BlockName) -> Option<&V> {
        if self.leaves.is_empty() {
            return None;
        }
        let (leaf, bit) = leaf_of(name);
        let leaf = self.leaves.get(&leaf)?;
        leaf.place(bit).ok().map(|at| &leaf.values[at])
    }

    pub(super) fn get_mut(&mut self, name: BlockName) -> Option<&mut V> {
        let (leaf, bit) = leaf_of(name);
        let leaf = self.leaves.get_mut(&leaf)?;
        leaf.place(bit).ok().map(|at| &mut leaf.values[at])
    }

    /// Returns the value that was there before.
    pub(super) fn insert(&mut self, name: BlockName, value: V) -> Option<V> {
        let (leaf, bit) = leaf_of(name);
        self.leaves.entry(leaf).or_default().insert(bit, value)
    }

    /// True if a block of a group from `first` on has a value.
    pub(super) fn has_groups_from(&self, first: GroupId) -> bool {
        self.leaves.keys().any(|leaf| leaf.group >= first)
    }

    /// Returns the value that was there.
    pub(super) fn remove(&mut self, name: BlockName) -> Option<V> {
        let (leaf, bit) = leaf_of(name);
        let Entry::Occupied(mut leaf) = self.leaves.entry(leaf) else {
            return None;
        };
        let at = leaf.get().place(bit).ok()?;
        if leaf.get().values.len() == 1 {
            return leaf.remove().values.pop();
        }
        leaf.get_mut().present &= !(1 << bit);
        Some(leaf.get_mut().values.remove(at))
    }

    /// True if any of `count` blocks from `first` on has a value.
    pub(super) fn has_any(&self, first: BlockName, count: u32) -> bool {
        let Some(more) = count.checked_sub(1) else {
            return false;
        };
        let last = first.block.saturating_add(more);
        let (low, high) = (first.block / LEAF_BLOCKS, last / LEAF_BLOCKS);
        let has = |index: u32, leaf: &Leaf<V>| {
            let mut bits = leaf.bits();
            bits.any(|bit| (first.block..=last).contains(&(index * LEAF_BLOCKS + bit)))
        };
        if self.leaves.len() < (high - low) as usize {
            let of_column =
                |name: &LeafName| (name.group, name.column) == (first.group, first.column);
            let mut leaves = self.leaves.iter();
            return leaves.any(|(name, leaf)| of_column(name) && has(name.index, leaf));
        }
        let name = |index| LeafName {
            group: first.group,
            column: first.column,
            index,
        };
        let mut indices = low..=high;
        indices.any(|index| { self.leaves.get(&name(index)) }.is_some_and(|leaf| has(index, leaf)))
    }

    /// All values. The result must not depend on their order.
    pub(super) fn values(&self) -> impl Iterator<Item = &V> {
        self.leaves.values().flat_map(|leaf| &leaf.values)
    }

    /// A cursor for look-ups in order of the names: neighbours share one look-up of their leaf.
    pub(super) const fn in_order(&self) -> InOrder<'_, V> {
        InOrder {
            map: self,
            leaf: None,
        }
    }

    /// Removes the blocks, given in order, for which `such` is true of the given pair and the value in the map.
    pub(super) fn remove_in_order<'a, T: 'a>(
        &mut self,
        blocks: impl IntoIterator<Item = &'a (BlockName, T)>,
        mut such: impl FnMut(&'a (BlockName, T), &V) -> bool,
    ) {
        let mut blocks = blocks.into_iter().peekable();
        while let Some(first) = blocks.peek() {
            let (leaf_name, _) = leaf_of(first.0);
            let mut same =
                std::iter::from_fn(|| blocks.next_if(|block| leaf_of(block.0).0 == leaf_name));
            let Entry::Occupied(mut entry) = self.leaves.entry(leaf_name) else {
                same.by_ref().for_each(drop);
                continue;
            };
            let mut removed = 0;
            for block in same {
                let (_, bit) = leaf_of(block.0);
                let at = entry.get().place(bit);
                removed |=
                    u16::from(at.is_ok_and(|at| such(block, &entry.get().values[at]))) << bit;
            }
            entry.get_mut().remove_all(removed);
            if entry.get().present == 0 {
                entry.remove();
            }
        }
    }

    /// The entries with such values, in order of their names.
    pub(super) fn select(&self, such: impl Fn(&V) -> bool) -> Vec<(BlockName, V)>
    where
        V: Copy,
    {
        let mut leaves: Vec<_> = self.leaves.iter().collect();
        leaves.sort_unstable_by_key(|&(name, _)| *name);
        let most = leaves.iter().map(|(_, leaf)| leaf.values.len()).sum();
        let mut selected = Vec::with_capacity(most);
        for (name, leaf) in leaves {
            let block = |bit| BlockName {
                group: name.group,
                column: name.column,
                block: name.index * LEAF_BLOCKS + bit,
            };
            let values = leaf
                .bits()
                .zip(&leaf.values)
                .filter(|(_, value)| such(value));
            selected.extend(values.map(|(bit, &value)| (block(bit), value)));
        }
        selected
    }
}

/// Looks up blocks in order of their names. Any other order gives correct results, but is slower.
#[derive(Debug)]
pub(super) struct InOrder<'a, V> {
    map: &'a BlockMap<V>,
    /// The leaf of the last look-up.
    leaf: Option<(LeafName, Option<&'a Leaf<V>>)>,
}

impl<'a, V> InOrder<'a, V> {
    pub(super) fn get(&mut self, name: BlockName) -> Option<&'a V> {
        let (leaf_name, bit) = leaf_of(name);
        let leaf = match self.leaf {
            Some((last, leaf)) if last == leaf_name => leaf,
            _ => self.map.leaves.get(&leaf_name),
        };
        self.leaf = Some((leaf_name, leaf));
        let leaf = leaf?;
        leaf.place(bit).ok().map(|at| &leaf.values[at])
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const fn name(group: GroupId, column: Column, block: u32) -> BlockName {
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
            assert_eq!(map.insert(name(GroupId(1), Column(2), block), block), None);
        }
        assert_eq!(map.insert(name(GroupId(1), Column(1), 5), 5), None);
        // Few blocks are looked up one by one. For more blocks than the map has leaves, the leaves are scanned.
        for (first, count, any) in [
            (name(GroupId(1), Column(2), 4), 3, false),
            (name(GroupId(1), Column(2), 4), 4, true),
            (name(GroupId(1), Column(2), 4), 400, true),
            (name(GroupId(1), Column(2), 10), 400, false),
            (name(GroupId(1), Column(3), 0), 3, false),
            (name(GroupId(0), Column(2), 0), 400, false),
            (name(GroupId(1), Column(2), 9), u32::MAX, true),
        ] {
            assert_eq!(map.has_any(first, count), any, "{first:?} and {count}");
        }
        let odd: Vec<u32> = map
            .select(|value| value % 2 == 1)
            .iter()
            .map(|entry| entry.1)
            .collect();
        assert_eq!(odd, [5, 3, 7, 9]);
        assert_eq!(map.remove(name(GroupId(1), Column(2), 3)), Some(3));
        assert_eq!(map.get(name(GroupId(1), Column(2), 3)), None);
    }

    #[test]
    fn it_is_as_a_plain_map_whatever_comes_and_goes() {
        let (mut map, mut model) = (BlockMap::default(), BTreeMap::new());
        let mut random = block::SplitMix64::new(1);
        let mut random = |below: u32| u32::try_from(random.below(below.into())).unwrap();
        for round in 0..20_000 {
            let name = name(GroupId(0), Column(u16::from(random(8) == 0)), random(100));
            match random(3) {
                0 => assert_eq!(map.remove(name), model.remove(&name)),
                _ => assert_eq!(map.insert(name, round), model.insert(name, round)),
            }
            if let Some(value) = map.get_mut(name) {
                *value += 1;
                *model.get_mut(&name).expect("it has one, too") += 1;
            }
            let count = random(40);
            let end = name.block + count;
            let in_range = |other: &BlockName| {
                other.column == name.column && (name.block..end).contains(&other.block)
            };
            assert_eq!(map.has_any(name, count), model.keys().any(in_range));
        }
        let all: Vec<_> = model.iter().map(|(&name, &value)| (name, value)).collect();
        assert_eq!(map.select(|_| true), all);
        // Blocks with and without values, in order; some of them are removed.
        let asked: Vec<(BlockName, u32)> =
            { (0..2).flat_map(|column| (0..110).map(move |block| (column, block))) }
                .map(|(column, block)| (name(GroupId(0), Column(column), block), block % 3))
                .collect();
        let mut in_order = map.in_order();
        for &(name, _) in &asked {
            assert_eq!(in_order.get(name), model.get(&name));
        }
        let mut seen = Vec::new();
        map.remove_in_order(&asked, |&(name, third), &value| {
            seen.push((name, value));
            third == 0
        });
        assert_eq!(seen, all, "each that is there, once and in order");
        let rest: Vec<_> = { all.into_iter() }
            .filter(|(name, _)| name.block % 3 != 0)
            .collect();
        assert_eq!(map.select(|_| true), rest);
        for &(name, value) in &rest {
            assert_eq!(map.remove(name), Some(value));
        }
        assert!(map.leaves.is_empty(), "a leaf goes with its last block");
    }
}
