//! A queue for several that share a resource: of those that wait, the one that has been given least is next.
//!
//! ```text
//!   a  [ 4 ][ 4 ][ 4 ][ 4 ] …   given 12 ┐
//!   b  [ 1 ]                    given  9 ┴─► b, then a until it has had more than b again
//! ```
//!
//! Start-time fair queueing (Goyal, Vin, Cheng: SIGCOMM 1996) with equal weights: the amount given is counted as the
//! caller chooses, in bytes or blocks. A key that has not waited for a while begins at the level of the others: an
//! unused share is not saved.
//!
//! Invariant: the items of one key come out in the order in which they were pushed.

use std::collections::{BTreeMap, VecDeque};

/// Waiting items, by key.
#[derive(Clone, Debug)]
pub struct FairQueue<K, T> {
    shares: BTreeMap<K, Share<T>>,
    /// The amount that the key served last had been given before.
    floor: u64,
    count: usize,
}

#[derive(Clone, Debug)]
struct Share<T> {
    given: u64,
    items: VecDeque<T>,
}

impl<K, T> Default for FairQueue<K, T> {
    fn default() -> Self {
        Self {
            shares: BTreeMap::new(),
            floor: 0,
            count: 0,
        }
    }
}

impl<K: Copy + Ord, T> FairQueue<K, T> {
    /// Number of waiting items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing waits.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds an item of `key`.
    pub fn push(&mut self, key: K, item: T) {
        self.share(key).items.push_back(item);
        self.count += 1;
    }

    /// Adds an item before all others of `key`.
    pub fn push_front(&mut self, key: K, item: T) {
        self.share(key).items.push_front(item);
        self.count += 1;
    }

    fn share(&mut self, key: K) -> &mut Share<T> {
        let floor = self.floor;
        if !self.shares.contains_key(&key) {
            // Keys without items that are not ahead of others need not be remembered.
            let ahead = |share: &Share<T>| !share.items.is_empty() || share.given > floor;
            self.shares.retain(|_, share| ahead(share));
        }
        let share = self.shares.entry(key).or_insert_with(|| Share {
            given: floor,
            items: VecDeque::new(),
        });
        if share.items.is_empty() {
            share.given = share.given.max(floor);
        }
        share
    }

    /// The key whose turn it is among those for which `may` is true, and its first item.
    pub fn next(&self, may: impl Fn(K) -> bool) -> Option<(K, &T)> {
        let waiting = self.shares.iter().filter_map(|(&key, share)| {
            let first = share.items.front()?;
            Some((share.given, key, first))
        });
        let (_, key, first) = waiting
            .filter(|&(_, key, _)| may(key))
            .min_by_key(|&(given, key, _)| (given, key))?;
        Some((key, first))
    }

    /// The first item of `key`.
    #[must_use]
    pub fn first(&self, key: K) -> Option<&T> {
        self.shares.get(&key)?.items.front()
    }

    /// Takes the first item of `key`, and counts `cost` as given.
    pub fn take(&mut self, key: K, cost: u64) -> Option<T> {
        let share = self.shares.get_mut(&key)?;
        let item = share.items.pop_front()?;
        self.floor = self.floor.max(share.given);
        share.given += cost;
        self.count -= 1;
        Some(item)
    }

    /// Puts back the item of `key` that was [taken](Self::take) last: `cost` does not count as given.
    pub fn give_back(&mut self, key: K, item: T, cost: u64) {
        let share = self.share(key);
        share.given = share.given.saturating_sub(cost);
        share.items.push_front(item);
        self.count += 1;
    }

    /// Takes all items for which `such` is true, key by key.
    pub fn take_if(&mut self, such: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for share in self.shares.values_mut() {
            let items = std::mem::take(&mut share.items);
            let (out, stay): (Vec<T>, Vec<T>) = items.into_iter().partition(&such);
            share.items = stay.into();
            taken.extend(out);
        }
        self.count -= taken.len();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(queue: &mut FairQueue<char, u64>, count: usize) -> String {
        let mut turns = String::new();
        for _ in 0..count {
            let Some((key, &cost)) = queue.next(|_| true) else {
                break;
            };
            queue.take(key, cost);
            turns.push(key);
        }
        turns
    }

    #[test]
    fn whoever_has_much_waits_for_whoever_has_little() {
        let mut queue = FairQueue::default();
        (0..8).for_each(|_| queue.push('a', 4));
        assert_eq!(drain(&mut queue, 3), "aaa");
        queue.push('b', 1);
        queue.push('b', 1);
        assert_eq!(drain(&mut queue, 4), "bbaa");
        assert_eq!((queue.len(), drain(&mut queue, 9)), (3, "aaa".to_owned()));
        assert!(queue.is_empty());
    }

    #[test]
    fn shares_are_equal_by_what_is_given_and_not_by_turns() {
        let mut queue = FairQueue::default();
        for _ in 0..400 {
            queue.push('a', 8);
            queue.push('b', 2);
        }
        let turns = drain(&mut queue, 200);
        let bytes = |who| {
            let of = turns.chars().filter(|&turn| turn == who);
            of.count() * if who == 'a' { 8 } else { 2 }
        };
        assert!(bytes('a').abs_diff(bytes('b')) <= 8, "{turns}");
    }

    #[test]
    fn what_was_not_used_is_not_kept_and_what_was_given_is() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|_| queue.push('a', 1));
        drain(&mut queue, 50);
        (0..9).for_each(|_| queue.push('b', 1));
        assert_eq!(drain(&mut queue, 6), "bababa");
        // A key that has been given much and has no items for a moment still counts as having been given much.
        let mut queue = FairQueue::default();
        queue.push('a', 10);
        queue.push('b', 1);
        assert_eq!(drain(&mut queue, 2), "ab");
        queue.push('a', 10);
        (0..9).for_each(|_| queue.push('b', 1));
        assert_eq!(drain(&mut queue, 10), "bbbbbbbbba");
    }

    #[test]
    fn what_may_not_go_lets_others_pass_and_what_comes_back_is_first_again() {
        let mut queue = FairQueue::default();
        queue.push('a', 5);
        queue.push('a', 6);
        queue.push('b', 7);
        assert_eq!(queue.next(|key| key != 'a'), Some(('b', &7)));
        assert_eq!(queue.next(|_| false), None);
        let first = queue.take('a', 5).unwrap();
        queue.give_back('a', first, 5);
        assert_eq!(queue.next(|_| true), Some(('a', &5)));
        queue.push_front('b', 1);
        assert_eq!(queue.clone().take_if(|_| true), [5, 6, 1, 7]);
        assert_eq!(queue.take_if(|&item| item > 5), [6, 7]);
        assert_eq!((queue.len(), drain(&mut queue, 9)), (2, "ab".to_owned()));
    }
}
