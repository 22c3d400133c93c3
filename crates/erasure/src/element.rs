//! Elements of a stripe, and sets of them.

use std::fmt;

/// One element of a stripe: `row` within the column, `column` of the stripe, both from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Element {
    /// Row, from the top.
    pub row: u16,
    /// Column, from the left; a column is on one drive.
    pub column: u16,
}

impl Element {
    /// The element at (`row`, `column`).
    pub const fn new(row: u16, column: u16) -> Self {
        Self { row, column }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", self.row, self.column)
    }
}

/// A set of slots (element numbers, `row * columns + column`), one bit for each slot.
///
/// It grows as needed. Two sets are equal when they hold the same slots, whatever their initial
/// sizes: there are never zero words at the end. The first word is stored inline, because most
/// stripes have no more elements, and each request makes dozens of sets.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ElementSet {
    first: u64,
    rest: Vec<u64>,
}

impl ElementSet {
    /// An empty set with room for `elements` slots.
    pub fn new(elements: usize) -> Self {
        Self {
            first: 0,
            rest: Vec::with_capacity(elements.saturating_sub(1) / 64),
        }
    }

    /// The slots `0..elements`.
    pub fn full(elements: usize) -> Self {
        (0..elements).collect()
    }

    /// Adds a slot; true if it was not there.
    pub fn insert(&mut self, slot: usize) -> bool {
        let word = match (slot / 64).checked_sub(1) {
            None => &mut self.first,
            Some(index) => {
                if self.rest.len() <= index {
                    self.rest.resize(index + 1, 0);
                }
                &mut self.rest[index]
            }
        };
        let bit = 1 << (slot % 64);
        let absent = *word & bit == 0;
        *word |= bit;
        absent
    }

    /// Removes a slot; true if it was there.
    pub fn remove(&mut self, slot: usize) -> bool {
        let present = self.contains(slot);
        if present {
            let clear = !(1 << (slot % 64));
            match (slot / 64).checked_sub(1) {
                None => self.first &= clear,
                Some(index) => {
                    self.rest[index] &= clear;
                    self.trim();
                }
            }
        }
        present
    }

    /// Whether the slot is in the set.
    pub fn contains(&self, slot: usize) -> bool {
        let word = match (slot / 64).checked_sub(1) {
            None => Some(&self.first),
            Some(index) => self.rest.get(index),
        };
        word.is_some_and(|word| word >> (slot % 64) & 1 == 1)
    }

    fn words(&self) -> impl Iterator<Item = u64> + '_ {
        std::iter::once(self.first).chain(self.rest.iter().copied())
    }

    /// How many slots are in the set.
    pub fn len(&self) -> usize {
        self.words().map(|word| word.count_ones() as usize).sum()
    }

    /// True if the set has no slots.
    pub fn is_empty(&self) -> bool {
        self.first == 0 && self.rest.is_empty()
    }

    /// The slots, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        self.words().enumerate().flat_map(|(i, word)| {
            let mut rest = word;
            std::iter::from_fn(move || {
                (rest != 0).then(|| {
                    let bit = rest.trailing_zeros() as usize;
                    rest &= rest - 1;
                    i * 64 + bit
                })
            })
        })
    }

    /// Adds all of `other`.
    pub fn union_with(&mut self, other: &Self) {
        self.first |= other.first;
        if self.rest.len() < other.rest.len() {
            self.rest.resize(other.rest.len(), 0);
        }
        for (a, b) in self.rest.iter_mut().zip(&other.rest) {
            *a |= b;
        }
    }

    /// Removes all slots of `other`.
    pub fn difference_with(&mut self, other: &Self) {
        self.first &= !other.first;
        for (a, b) in self.rest.iter_mut().zip(&other.rest) {
            *a &= !b;
        }
        self.trim();
    }

    /// Keeps only the slots that are also in `other`.
    pub fn intersect_with(&mut self, other: &Self) {
        self.first &= other.first;
        self.rest.truncate(other.rest.len());
        for (a, b) in self.rest.iter_mut().zip(&other.rest) {
            *a &= b;
        }
        self.trim();
    }

    /// The slots that are in `self` or in `other`.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.union_with(other);
        set
    }

    /// The slots that are in `self` but not in `other`.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.difference_with(other);
        set
    }

    /// The slots that are in both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let mut set = self.clone();
        set.intersect_with(other);
        set
    }

    /// How many slots `other` would add.
    pub fn missing(&self, other: &Self) -> usize {
        let both = self.words().zip(other.words());
        let common: usize = both.map(|(a, b)| (a & b).count_ones() as usize).sum();
        other.len() - common
    }

    /// Whether every slot of `self` is in `other`.
    pub fn is_subset(&self, other: &Self) -> bool {
        other.missing(self) == 0
    }

    /// Whether no slot is in both.
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words().zip(other.words()).all(|(a, b)| a & b == 0)
    }

    fn trim(&mut self) {
        while self.rest.last() == Some(&0) {
            self.rest.pop();
        }
    }
}

impl FromIterator<usize> for ElementSet {
    fn from_iter<I: IntoIterator<Item = usize>>(slots: I) -> Self {
        let mut set = Self::default();
        set.extend(slots);
        set
    }
}

impl Extend<usize> for ElementSet {
    fn extend<I: IntoIterator<Item = usize>>(&mut self, slots: I) {
        for slot in slots {
            self.insert(slot);
        }
    }
}

impl fmt::Debug for ElementSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_made_for_different_sizes_are_equal_when_their_slots_are() {
        let mut wide = ElementSet::new(1000);
        wide.extend([3, 70, 900]);
        wide.remove(900);
        let narrow: ElementSet = [70, 3].into_iter().collect();
        assert_eq!(wide, narrow);
        assert_eq!(wide.iter().collect::<Vec<_>>(), [3, 70]);
    }

    #[test]
    fn algebra_agrees_with_a_plain_set() {
        use std::collections::BTreeSet;
        let a: BTreeSet<usize> = (0..200).filter(|i| i % 3 == 0).collect();
        let b: BTreeSet<usize> = (0..130).filter(|i| i % 5 == 0).collect();
        let (x, y): (ElementSet, ElementSet) =
            (a.iter().copied().collect(), b.iter().copied().collect());
        let plain = |s: ElementSet| s.iter().collect::<BTreeSet<_>>();
        assert_eq!(plain(x.union(&y)), &a | &b);
        assert_eq!(plain(x.difference(&y)), &a - &b);
        assert_eq!(plain(x.intersection(&y)), &a & &b);
        assert_eq!(x.missing(&y), (&b - &a).len());
        assert_eq!(x.len(), a.len());
        assert!(x.intersection(&y).is_subset(&x) && !x.is_subset(&y));
        assert!(x.difference(&y).is_disjoint(&y) && !x.is_disjoint(&y));
    }

    #[test]
    fn removing_the_last_slot_leaves_an_empty_set() {
        let mut set: ElementSet = [100].into_iter().collect();
        assert!(set.remove(100) && !set.remove(100));
        assert!(set.is_empty() && set == ElementSet::default());
    }
}
