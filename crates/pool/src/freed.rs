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

use super::{OnDurable, Pool, Ticket};

impl Pool {
    /// The groups of `before` that are not in `after` and were ever written.
    pub(super) fn written_of(&self, before: &[(u64, u64)], after: &[(u64, u64)]) -> Runs {
        let mut after = after.to_vec();
        after.sort_unstable();
        let mut freed = Runs::new();
        for &(first, count) in before {
            for kept in runs::without(first..first + count, &after) {
                for written in runs::without(kept, &self.cx.facts.uninitialized) {
                    runs::insert(&mut freed, &written);
                }
            }
        }
        freed
    }

    /// The facts record these groups as free: make that durable in the labels.
    pub(super) fn groups_freed(&mut self, freed: Runs, ticket: Ticket) {
        let done = OnDurable::Done(ticket, Ok(()));
        self.leave_unscrubbed(&freed);
        self.forget_forms(&freed);
        self.cx.commit(vec![
            OnDurable::VolumesChanged,
            OnDurable::Freed(freed),
            done,
        ]);
        self.advance();
    }

    /// The labels record it. Not while the pool is being closed: closing does not wait for discards.
    pub(super) fn discard_freed(&mut self, freed: &[(u64, u64)]) {
        if self.cx.facts.regions.is_none() || self.cx.closing.is_some() {
            return;
        }
        let mut used: Runs = freed.to_vec();
        for (first, count) in self.free_runs() {
            runs::remove(&mut used, &(first..first + count));
        }
        let mut free: Runs = freed.to_vec();
        for (first, count) in used {
            runs::remove(&mut free, &(first..first + count));
        }
        if !free.is_empty() {
            self.cx.tell_lanes(&Command::Freed(free));
        }
    }
}
