//! A map whose keys are issued in ascending order, and whose entries are mostly removed in that order.

use std::collections::VecDeque;

/// Entries by key. A missing key between two present ones takes an empty slot.
#[derive(Clone, Debug)]
pub(super) struct Ascending<T> {
    /// The key of the first entry.
    first: u64,
    entries: VecDeque<Option<T>>,
}

impl<T> Default for Ascending<T> {
    fn default() -> Self {
        Self {
            first: 0,
            entries: VecDeque::new(),
        }
    }
}

impl<T> Ascending<T> {
    fn index(&self, key: u64) -> Option<usize> {
        usize::try_from(key.checked_sub(self.first)?).ok()
    }

    /// Adds an entry with a higher key than all before.
    ///
    /// # Panics
    /// When an earlier entry had that key or a higher one.
    pub(super) fn insert(&mut self, key: u64, value: T) {
        if self.entries.is_empty() {
            assert!(key >= self.first, "{key} is after {}", self.first);
            self.first = key;
        }
        let index = self.index(key).expect("keys ascend");
        assert!(index >= self.entries.len(), "keys ascend");
        self.entries.resize_with(index, || None);
        self.entries.push_back(Some(value));
    }

    pub(super) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let index = self.index(key)?;
        self.entries.get_mut(index)?.as_mut()
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<T> {
        let index = self.index(key)?;
        let value = self.entries.get_mut(index)?.take()?;
        while let Some(None) = self.entries.front() {
            self.entries.pop_front();
            self.first += 1;
        }
        Some(value)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use block::mix;

    use super::*;

    #[test]
    fn it_holds_what_an_ordered_map_holds() {
        let mut entries = Ascending::default();
        let mut plain = BTreeMap::new();
        let mut key = 0;
        for step in 0..5000_u64 {
            let chance = mix(step);
            if chance.is_multiple_of(2) {
                key += 1 + chance / 2 % 3;
                entries.insert(key, step);
                plain.insert(key, step);
            } else {
                let other = key.saturating_sub(chance / 2 % 40);
                assert_eq!(entries.get_mut(other), plain.get_mut(&other));
                assert_eq!(entries.remove(other), plain.remove(&other));
            }
            assert_eq!(entries.len(), plain.len());
        }
        assert!(plain.len() > 100);
    }
}
