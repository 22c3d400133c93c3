//! Stripe locks: first come, first served, and acquired all at once.
//!
//! Each holder joins the queues of all its stripes in one step. So all queues have the same order, and two holders
//! cannot wait for each other.

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::ops::Range;

use format::{GroupId, StripeId};

use format::seeded::{self, SeededFault};

/// The stripes of a range that are locked: all of them, unless a fault is seeded.
fn covered(stripes: Range<StripeId>) -> Range<StripeId> {
    match seeded::is(SeededFault::LockFirstOnly) {
        false => stripes,
        true => stripes.start..stripes.start.next(),
    }
}

/// The locks of one lane, or of a model of an array. `Holder` identifies the owner of a lock or a waiter.
#[derive(Clone, Debug)]
pub struct StripeLocks<Holder = u64> {
    /// The front of a queue has the lock, the others wait.
    queues: BTreeMap<(GroupId, StripeId), VecDeque<Holder>>,
    /// The number of queues in which a waiting holder is not yet at the front.
    behind: BTreeMap<Holder, u64>,
}

impl<Holder> Default for StripeLocks<Holder> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            behind: BTreeMap::new(),
        }
    }
}

impl<Holder: Copy + Debug + Ord> StripeLocks<Holder> {
    /// Queues `holder` on the stripes; true if it has the locks of all of them now.
    pub fn acquire(&mut self, holder: Holder, group: GroupId, stripes: Range<StripeId>) -> bool {
        let mut behind = 0;
        let stripes = covered(stripes);
        for stripe in StripeId::each(stripes) {
            let queue = self.queues.entry((group, stripe)).or_default();
            debug_assert!(!queue.contains(&holder), "a holder queues once");
            queue.push_back(holder);
            behind += u64::from(queue.len() > 1);
        }
        if behind > 0 {
            self.behind.insert(holder, behind);
        }
        behind == 0
    }

    /// True if the stripe is not locked.
    pub fn is_free(&self, group: GroupId, stripe: StripeId) -> bool {
        !self.queues.contains_key(&(group, stripe))
    }

    /// True if `holder` has the locks of all of these stripes.
    pub fn has(&self, holder: Holder, group: GroupId, stripes: Range<StripeId>) -> bool {
        let first = |stripe| self.queues.get(&(group, stripe))?.front();
        StripeId::each(stripes).all(|stripe| first(stripe) == Some(&holder))
    }

    /// Releases the stripes. Returns the holders that have all their locks now, in a fixed order.
    pub fn release(
        &mut self,
        holder: Holder,
        group: GroupId,
        stripes: Range<StripeId>,
    ) -> Vec<Holder> {
        let mut ready = Vec::new();
        for stripe in StripeId::each(covered(stripes)) {
            let key = (group, stripe);
            let queue = self.queues.get_mut(&key).expect("a held lock has a queue");
            let front = queue.pop_front();
            assert_eq!(front, Some(holder), "only the holder releases");
            match queue.front() {
                None => {
                    self.queues.remove(&key);
                }
                Some(next) => {
                    let behind = self.behind.get_mut(next).expect("a waiter is behind");
                    *behind -= 1;
                    if *behind == 0 {
                        self.behind.remove(next);
                        ready.push(*next);
                    }
                }
            }
        }
        ready
    }

    /// True if no stripe is locked.
    pub fn is_idle(&self) -> bool {
        self.queues.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_waits_for_every_stripe_and_nobody_overtakes_it() {
        let mut locks = StripeLocks::default();
        assert!(locks.acquire(1, GroupId(0), StripeId::range(0..1)));
        assert!(locks.acquire(2, GroupId(0), StripeId::range(2..3)));
        assert!(
            !locks.acquire(3, GroupId(0), StripeId::range(0..4)),
            "stripes 0 and 2 are held"
        );
        assert!(
            !locks.acquire(4, GroupId(0), StripeId::range(3..4)),
            "3 is first in line for stripe 3"
        );
        assert!(
            locks.acquire(5, GroupId(1), StripeId::range(0..4)),
            "another group"
        );
        assert!(
            locks.has(1, GroupId(0), StripeId::range(0..1))
                && !locks.has(3, GroupId(0), StripeId::range(0..2))
        );
        assert!(
            !locks.has(3, GroupId(0), StripeId::range(1..4)),
            "4 is not before 3, but 2 is"
        );
        assert!(
            locks
                .release(1, GroupId(0), StripeId::range(0..1))
                .is_empty()
        );
        assert_eq!(locks.release(2, GroupId(0), StripeId::range(2..3)), [3]);
        assert_eq!(locks.release(3, GroupId(0), StripeId::range(0..4)), [4]);
        assert!(
            locks
                .release(4, GroupId(0), StripeId::range(3..4))
                .is_empty()
        );
        assert!(
            locks
                .release(5, GroupId(1), StripeId::range(0..4))
                .is_empty()
        );
        assert!(locks.is_idle());
    }
}
