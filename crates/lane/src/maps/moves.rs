//! Stripes on their way: free ones that are being written, and vacated ones that are not free yet.
//!
//! ```text
//!   free ── taken ─► under way ── a batch says so ─► in use;    the old one: vacated ─┐
//!    ▲                  │                                                             │
//!    ├── nothing says it ◄─ the operation ends without ◄──────────┘                   │
//!    └──────────────── its record is flushed, all that was planned before has ended ◄─┘
//! ```

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use format::{GroupId, Sequence, StripeId};

use format::seeded::{self, SeededFault};

use crate::context::Context;
use crate::epochs::{Epoch, Epochs};
use crate::ids::OpId;

/// A stripe that holds nothing any more.
#[derive(Clone, Copy, Debug)]
struct Vacated {
    group: GroupId,
    stripe: StripeId,
    /// The batch that has logged this.
    sequence: Sequence,
    /// Operations that were planned in this epoch or before may still touch it.
    epoch: Epoch,
}

impl Vacated {
    /// True if it may be written when batches up to `flushed` are durable.
    fn is_free(&self, epochs: &Epochs, flushed: Sequence) -> bool {
        let drained = epochs.has_drained(self.epoch) || seeded::is(SeededFault::VacatedNotDrained);
        let durable = self.sequence <= flushed || seeded::is(SeededFault::VacatedNotFlushed);
        drained && durable
    }
}

/// What vacated stripes wait for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// Batches up to this one are complete.
    pub(crate) completed: Sequence,
    /// And up to this one flushed.
    pub(crate) flushed: Sequence,
    /// Some batch could not be written: no later one counts as flushed for now.
    pub(crate) gaps: bool,
}

/// Stripes on their way.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// By group and free stripe: the stripe whose place it is to take.
    under_way: BTreeMap<(GroupId, StripeId), StripeId>,
    /// In order of batches and of epochs.
    vacated: VecDeque<Vacated>,
    /// By group: operations that wait for a free stripe. They get one in the order in which they came.
    waiting: BTreeMap<GroupId, BTreeSet<OpId>>,
    /// A flush that vacated stripes wait for is under way.
    flushing: bool,
}

impl Moves {
    /// True if a stripe that the map does not use is on its way to be used, or not free yet.
    pub(super) fn has(&self, group: GroupId, stripe: StripeId) -> bool {
        let vacated = |old: &Vacated| (old.group, old.stripe) == (group, stripe);
        self.under_way.contains_key(&(group, stripe)) || self.vacated.iter().any(vacated)
    }

    /// Stripes that hold nothing any more and are not free yet.
    pub(super) fn vacated(&self) -> impl Iterator<Item = (GroupId, StripeId)> {
        self.vacated.iter().map(|old| (old.group, old.stripe))
    }

    /// True if an operation is to write a free stripe of the group.
    fn is_under_way(&self, group: GroupId) -> bool {
        let mut under_way = self
            .under_way
            .range((group, StripeId(0))..=(group, StripeId(u64::MAX)));
        under_way.next().is_some()
    }

    /// True if a stripe of the group will become free without another request.
    pub(super) fn frees(&self, group: GroupId) -> bool {
        self.is_under_way(group) || self.vacated.iter().any(|old| old.group == group)
    }

    /// True if no stripe is vacated, and nothing waits for a free one.
    pub(super) fn is_idle(&self) -> bool {
        self.vacated.is_empty() && self.waiting.is_empty()
    }

    /// True if an operation waits for a free stripe of the group.
    pub(super) fn is_awaited(&self, group: GroupId) -> bool {
        self.waiting.contains_key(&group)
    }

    pub(super) fn wait(&mut self, group: GroupId, op: OpId) {
        self.waiting.entry(group).or_default().insert(op);
    }

    /// A free stripe is to take the place of another one.
    pub(super) fn begin(&mut self, group: GroupId, from: StripeId, to: StripeId) {
        self.under_way.insert((group, to), from);
    }

    /// An operation that was to write a free stripe has ended. True if no batch has logged that the stripe is used.
    pub(super) fn end(&mut self, group: GroupId, to: StripeId) -> bool {
        self.under_way.remove(&(group, to)).is_some()
    }

    /// A batch has logged that a stripe is used: the stripe whose place it takes is vacated.
    pub(super) fn used(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        to: StripeId,
        sequence: Sequence,
    ) {
        if let Some(stripe) = self.under_way.remove(&(group, to)) {
            self.vacated.push_back(Vacated {
                group,
                stripe,
                sequence,
                epoch: cx.epochs.close(),
            });
        }
    }

    /// The next vacated stripe that may be written from now on.
    pub(super) fn pop_free(
        &mut self,
        cx: &Context,
        flushed: Sequence,
    ) -> Option<(GroupId, StripeId)> {
        let old = { &mut self.vacated }.pop_front_if(|old| old.is_free(&cx.epochs, flushed))?;
        Some((old.group, old.stripe))
    }

    /// Takes the first operation that waits for a stripe of the group.
    pub(super) fn pop_waiting(&mut self, group: GroupId) -> Option<OpId> {
        let waiting = self.waiting.get_mut(&group)?;
        let op = waiting.pop_first();
        if waiting.is_empty() {
            self.waiting.remove(&group);
        }
        op
    }

    /// Takes the operations that wait for a stripe in groups where nothing under way would free one.
    pub(super) fn take_forlorn(&mut self) -> Vec<OpId> {
        let groups: Vec<GroupId> = self.waiting.keys().copied().collect();
        let forlorn = groups.into_iter().filter(|&group| !self.frees(group));
        let forlorn: Vec<GroupId> = forlorn.collect();
        let ops = forlorn
            .iter()
            .filter_map(|group| self.waiting.remove(group));
        ops.flatten().collect()
    }

    /// Takes all operations that wait.
    pub(super) fn take_waiting(&mut self) -> Vec<OpId> {
        let waiting = std::mem::take(&mut self.waiting);
        waiting.into_values().flatten().collect()
    }

    /// True if a flush is to begin that vacated stripes wait for: one for all stripes that have moved since the last
    /// one. On a disk a flush costs as much as writing half a mebibyte, so it waits until the records of these moves
    /// are complete.
    pub(super) fn wants_flush(&self, progress: Progress) -> bool {
        let unflushed = progress.flushed.next()..=progress.completed;
        let wanted = |old: &Vacated| {
            unflushed.contains(&old.sequence)
                && self.waiting.contains_key(&old.group)
                && !self.is_under_way(old.group)
        };
        !self.flushing && self.vacated.iter().any(wanted)
    }

    pub(super) const fn flushing(&mut self, flushing: bool) {
        self.flushing = flushing;
    }
}
