//! Groups that volumes have given up: what is on the drives there is discarded (`lane/discard/`).
//!
//! ```text
//!   delete, shrink ─► facts ─► labels ─► those that are still free ─► Freed, to all lanes
//! ```
//!
//! Before the labels say that a group is free it may be the volume's again after a stop, as it was. And by then another
//! volume may have it: its space is made blank anew, and discarded with that one.

use super::{OnDurable, Pool, Ticket};
use crate::action::Command;
use crate::runs::{self, Runs};

impl Pool {
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

    /// The facts say that these groups are free, which the labels are to know.
    pub(super) fn groups_freed(&mut self, freed: Runs, ticket: Ticket) {
        let done = OnDurable::Done(ticket, Ok(()));
        self.leave_unscrubbed(&freed);
        self.commit(vec![
            OnDurable::VolumesChanged,
            OnDurable::Freed(freed),
            done,
        ]);
        self.advance();
    }

    /// The labels know. Not while the pool is being closed: nobody would wait for the discards.
    pub(super) fn discard_freed(&mut self, freed: &[(u64, u64)]) {
        if self.facts.regions.is_none() || self.closing.is_some() {
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
            self.tell_lanes(&Command::Freed(free));
        }
    }
}
