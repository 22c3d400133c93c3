//! Operations: what a lane does for requests and jobs, a stripe at a time.
//!
//! [`Operations`] holds the operations in flight, the locks of their stripes, and the queue of those that can be
//! planned. An operation as data is in `op/`, with a picture of its phases in `op/phase.rs`. The files here decide how
//! it goes on: `plan.rs`, `way.rs`, `reads.rs`, `writes.rs`, `compare.rs`; where its data is: `moves.rs`; and what is
//! done about drives that are late: `hedge.rs`, `bounce.rs`.
//!
//! Invariants:
//! - An operation in the queue to be planned has its locks, or needs none.
//! - While an operation waits for its locks, nothing of its earlier plan is in flight.

mod bounce;
mod compare;
mod hedge;
mod moves;
mod plan;
mod reads;
mod way;
mod writes;

use std::collections::VecDeque;
use std::ops::{Index, IndexMut, Range};

use ::plan::SubStripePlans;
use format::seeded::{self, SeededFault};
use format::{Form, GroupId, StripeId};

pub(super) use self::bounce::avoid_stragglers;
pub(super) use self::compare::{
    Compared, Trials, compare, must_check, plan_trials, tried, writes_what_it_recovers,
};
pub(super) use self::moves::{Located, depends_on_forms, forms, is_located, locate, split};
pub(super) use self::plan::{
    Beginning, Planned, begin as begin_plan, closely, fault_of_loss, finds_losses,
};
pub(super) use self::reads::{AfterRead, is_news, note_verified, read_ended, sums_to_verify};
pub(super) use self::way::{Way, provide_memory, way};
pub(super) use self::writes::{
    AfterComputation, AfterWrites, Computation, begin_writes, computation, computed, lacks_target,
    written,
};
use super::context::Context;
use super::ids::OpId;
use super::locks::StripeLocks;
use super::op::{Lock, Op, Phase, Task};
use super::sequence_map::SequenceMap;

/// The operations of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Operations {
    /// Boxed, because the map moves its values.
    ops: SequenceMap<OpId, Box<Op>>,
    locks: StripeLocks<OpId>,
    /// Operations that can be planned now.
    runnable: VecDeque<OpId>,
    plans: SubStripePlans,
    /// The number of second reads in flight.
    hedges: usize,
}

impl Operations {
    /// Adds an operation. The caller then locates, locks or plans it: [`lock`](Self::lock), [`run`](Self::run).
    pub(super) fn begin(&mut self, cx: &mut Context, mut op: Op) -> OpId {
        let id = cx.fresh_op();
        op.begun = cx.now;
        self.ops.insert(id, Box::new(op));
        id
    }

    /// An operation, and the cache of sub-stripe plans.
    pub(super) fn planning(&mut self, id: OpId) -> (&mut Op, &mut SubStripePlans) {
        let op = self.ops.get_mut(id).expect("the operation exists");
        (op, &mut self.plans)
    }

    /// All operations, in the order in which they have begun.
    pub(super) fn iter(&self) -> impl Iterator<Item = (OpId, &Op)> {
        self.ops.iter().map(|(id, op)| (id, &**op))
    }

    /// True if no operation exists.
    pub(super) fn is_idle(&self) -> bool {
        self.ops.is_empty() && self.locks.is_idle()
    }

    /// Queues an operation to be planned. It must not be in another queue.
    pub(super) fn run(&mut self, id: OpId) {
        self.runnable.push_back(id);
    }

    /// The same for operations that have waited.
    pub(super) fn run_all(&mut self, ids: impl IntoIterator<Item = OpId>) {
        self.runnable.extend(ids);
    }

    /// Takes the next operation that can be planned.
    pub(super) fn next(&mut self) -> Option<OpId> {
        self.runnable.pop_front()
    }

    /// True if an operation can be planned now.
    pub(super) fn has_runnable(&self) -> bool {
        !self.runnable.is_empty()
    }

    /// Queues an operation for the locks of its stripes. It is planned when it has them all.
    pub(super) fn lock(&mut self, cx: &mut Context, id: OpId) {
        let op = self.ops.get_mut(id).expect("the operation exists");
        // Nothing of its earlier plan is in flight.
        cx.epochs.leave(&mut op.epoch);
        op.phase = Phase::Locking;
        op.lock = Lock::Own;
        if self.locks.acquire(id, op.group, op.stripes.clone()) {
            self.runnable.push_back(id);
        }
    }

    /// Takes the lock of one more stripe, which is free.
    fn lock_free(&mut self, id: OpId, stripe: StripeId) {
        let group = self[id].group;
        let locked = self.locks.acquire(id, group, stripe..stripe.next());
        assert!(locked, "the lock of stripe {stripe} is free");
    }

    /// Releases stripes that an operation has locked.
    pub(super) fn unlock(&mut self, id: OpId, group: GroupId, stripes: Range<StripeId>) {
        let ready = self.locks.release(id, group, stripes);
        self.runnable.extend(ready);
    }

    /// True if no operation has locked a stripe, or waits for its lock.
    pub(super) fn is_free(&self, group: GroupId, stripe: StripeId) -> bool {
        self.locks.is_free(group, stripe)
    }

    /// True if an operation has locked all of these stripes.
    pub(super) fn has_locked(&self, id: OpId, group: GroupId, stripes: Range<StripeId>) -> bool {
        self.locks.has(id, group, stripes)
    }

    /// Some of what was planned is not available: the operation is planned again, under its lock.
    pub(super) fn plan_again(&mut self, cx: &mut Context, id: OpId) {
        match self[id].is_locked() {
            true => self.run(id),
            false => self.lock(cx, id),
        }
    }

    /// Removes an operation that has ended. [`unlock`](Self::unlock) releases its locks.
    pub(super) fn end(&mut self, cx: &mut Context, id: OpId) -> Box<Op> {
        let mut op = self.ops.remove(id).expect("the operation exists");
        cx.epochs.leave(&mut op.epoch);
        debug_assert!(!op.is_in_flight(), "nothing is in flight at the end");
        op
    }
}

impl Index<OpId> for Operations {
    type Output = Op;

    fn index(&self, id: OpId) -> &Op {
        self.ops.get(id).expect("the operation exists")
    }
}

impl IndexMut<OpId> for Operations {
    fn index_mut(&mut self, id: OpId) -> &mut Op {
        self.ops.get_mut(id).expect("the operation exists")
    }
}

/// True if an operation only reads columns that can be read directly. It needs no lock: every block is old or new.
pub(super) fn needs_no_lock(cx: &Context, op: &Op) -> bool {
    match &op.task {
        Task::Read(pieces) => pieces.iter().all(|piece| {
            let stripe = op.stripes.start;
            // Data is at the same place in both forms.
            let (column, _) = { &cx.geometry }.place(op.group, stripe, Form::Parity, piece.slot);
            let state = cx.view().column(&cx.geometry, op.group, column);
            state.readable()
        }),
        Task::Write(_)
        | Task::Fill { .. }
        | Task::Zero
        | Task::Resync
        | Task::Scrub
        | Task::Convert(_)
        | Task::Repair(_)
        | Task::Relog(_) => false,
        Task::Discard(_) => seeded::is(SeededFault::DiscardUnlocked),
    }
}

#[cfg(test)]
mod lab;
#[cfg(test)]
mod tests;
