//! Groups that volumes have given up: their space on the drives is discarded (`lane/discard/`).
//!
//! ```text
//!   delete, shrink ─► facts ─► labels ─► those that are still free ─► Freed, to all lanes
//! ```
//!
//! Before the labels record that a group is free, a stop may return the group to its volume as it was. And by then
//! another volume may have the group: its space is made blank again, and is discarded with that volume.

use format::runs::{self, Runs};
use plan::action::Command;

use super::context::Context;

impl Context {
    /// The groups of `before` that are not in `after` and were ever written.
    pub(super) fn written_of(&self, before: &[(u64, u64)], after: &[(u64, u64)]) -> Runs {
        let mut after = after.to_vec();
        after.sort_unstable();
        let mut freed = Runs::new();
        for &(first, count) in before {
            for kept in runs::without(first..first + count, &after) {
                for written in runs::without(kept, &self.facts.uninitialized) {
                    runs::insert(&mut freed, &written);
                }
            }
        }
        freed
    }

    /// The labels record that these groups were given up; `free` are those that no volume has. Not while the pool is being
    /// closed: closing does not wait for discards.
    pub(super) fn discard_freed(&mut self, freed: &Runs, free: &Runs) {
        if self.facts.regions.is_none() || self.closing.is_some() {
            return;
        }
        let mut used = freed.clone();
        remove_all(&mut used, free);
        let mut free = freed.clone();
        remove_all(&mut free, &used);
        if !free.is_empty() {
            self.tell_lanes(&Command::Freed(free));
        }
    }
}

/// Removes all groups of `of`.
pub(super) fn remove_all(runs: &mut Runs, of: &Runs) {
    for &(first, count) in of {
        runs::remove(runs, &(first..first + count));
    }
}
