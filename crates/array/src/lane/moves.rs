//! A whole stripe that is overwritten goes to a free stripe of its group.
//!
//! ```text
//!   planned where it is ─► planned where it goes ─► in place (direct.rs) ─► logged: the checksums, what the map says now,
//!        │                      │                                            and that its old stripe holds nothing
//!        └─ none is free:       └─ it cannot go there: logged, content       │
//!           it waits               and all, where it is                      ▼
//!             ▲                                                    the old stripe is vacated
//!             └─ the old stripe is free ◄── its record is flushed, and all that was planned before has ended ──┘
//! ```
//!
//! So nothing is read, and nothing is written twice. Where the group's columns lie is not changed: only the height in them.
//!
//! Invariants:
//! - The operation has the locks of both stripes from before it is planned for the free one until its record is complete.
//! - A free stripe's entries say that it is unwritten, so that what lies there does not count before the record does.
//! - A vacated stripe is not written before its record is flushed: a cut could take the record, and the stripe would count
//!   again.
//! - Nor before all operations that were planned before have ended: a read takes no lock, and the checksum of what is
//!   written there next would let it return that. A checkpoint may have a block on its way there.
//! - What waits for a free stripe, or in line for a lock, counts as ended: nothing that it was planned for is in flight.

use block::{BLOCK_BYTES, Fault, Outcome};

use super::Lane;
use super::flush::Waiter;
use super::ids::OpId;
use super::log::Unit;
use super::maps::{Progress, Taken};
use super::ops::{Destination, Lock, Op, Owner, Phase, Task, needs_no_lock};
use crate::format::{BlockName, Descriptor};
use crate::seeded::{self, Bug};

/// Bytes of the descriptors of a stripe that moves: they have to be in one batch, whose header has four blocks.
const MOVE_BYTES_MAX: usize = 10 << 10;

impl Lane {
    /// Finds the stripe of what a client asks for, and gets in line for its lock. True if the operation may be planned now: it
    /// is where its data is, and has the lock if it needs one.
    pub(super) fn locate(&mut self, id: OpId) -> bool {
        if self.cx.geometry.free_stripes() == 0 {
            return true;
        }
        let op = &self.ops[id];
        let Some(data) = op.data else {
            return true;
        };
        if op.located == Some(self.maps.version()) {
            return true;
        }
        let group = op.group;
        if let Err(missing) = self.load_map(group) {
            self.fetch_pages(id, missing);
            return false;
        }
        let op = &self.ops[id];
        let count = op.stripes.end - op.stripes.start;
        let Some(first) = self.maps.stripe_holding(&self.cx, group, data) else {
            self.losses.unfindable(&mut self.cx, group, data);
            self.end(id, Err(Fault::Lost));
            return false;
        };
        let holding = |index| self.maps.stripe_holding(&self.cx, group, data + index);
        let follows = |index| holding(index) == Some(first + index);
        if !(1..count).all(follows) {
            self.split(id, data);
            return false;
        }
        let version = Some(self.maps.version());
        let op = &mut self.ops[id];
        let located = std::mem::replace(&mut op.located, version).is_some();
        let follows = op.stripes.start == first || seeded::is(Bug::MovedNotFollowed);
        if op.moves_from() == Some(first) || located && follows {
            return true;
        }
        if matches!(op.owner, Owner::Hedge(_)) {
            // Its reader goes on without it.
            self.end(id, Err(Fault::Lost));
            return false;
        }
        let locked = std::mem::replace(&mut op.lock, Lock::None) == Lock::Own;
        let before = std::mem::replace(&mut op.stripes, first..first + count);
        op.bad.clear();
        op.detour.avoid.clear();
        op.unknown.clear();
        if locked {
            self.give_back(id, group, before);
        }
        if needs_no_lock(&self.cx, &self.ops[id]) {
            return true;
        }
        self.ops.lock(&mut self.cx, id);
        false
    }

    /// A run of stripes of the data is not one run of stripes any more: each becomes an operation of its own.
    fn split(&mut self, id: OpId, data: u64) {
        let op = &self.ops[id];
        let (owner, group, service) = (op.owner, op.group, op.service);
        let count = op.stripes.end - op.stripes.start;
        debug_assert!(matches!(op.task, Task::Zero), "others are of one stripe");
        if let Owner::Request(request) = owner {
            self.requests.expect_more_ops(request, count);
        }
        for index in 0..count {
            let stripe = data + index;
            let mut part = Op::new(owner, group, stripe..stripe + 1, Task::Zero).of_data();
            part.service = service;
            self.start(part);
        }
        // It has done nothing to its stripes.
        self.ops[id].data = None;
        self.end(id, Ok(()));
    }

    /// Whether an operation overwrites a whole stripe that may go elsewhere.
    pub(super) fn may_move(&self, op: &Op) -> bool {
        let Task::Write(prepared) = &op.task else {
            return false;
        };
        let bytes: u64 = { prepared.sources.iter() }
            .map(|source| source.slice.length)
            .sum();
        let columns = || self.cx.view().columns(&self.cx.geometry, op.group);
        op.data.is_some()
            && op.destination == Destination::Open
            && self.recovery.is_none()
            && bytes == self.cx.geometry.stripe_data_bytes()
            && self.move_bytes() <= MOVE_BYTES_MAX
            && columns()
                .iter()
                .all(|column| column.source.is_some() && column.target.is_none())
    }

    /// Bytes of the descriptors of a stripe that moves.
    fn move_bytes(&self) -> usize {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let per_chunk = usize::try_from(per_chunk).expect("a chunk fits into memory");
        self.cx.geometry.code().elements() * Descriptor::bytes_of_direct(per_chunk)
    }

    /// Takes a free stripe for an operation, or lets it wait for one; false if it goes on where it is.
    pub(super) fn begin_move(&mut self, id: OpId) -> bool {
        let op = &self.ops[id];
        let (group, from) = (op.group, op.stripes.start);
        let has_waited = op.phase == Phase::Waiting;
        let ops = &self.ops;
        let may = |stripe| ops.is_free(group, stripe);
        match self.maps.take_free((group, from), has_waited, may) {
            Taken::Stripe(to) => {
                self.ops.lock_free(id, to);
                let op = &mut self.ops[id];
                op.destination = Destination::Free { from };
                op.stripes = to..to + 1;
                self.ops.run(id);
                true
            }
            Taken::Later => {
                self.release_scratch(id);
                let op = &mut self.ops[id];
                self.cx.epochs.leave(&mut op.epoch);
                op.phase = Phase::Waiting;
                self.maps.wait(group, id);
                true
            }
            Taken::Nowhere => false,
        }
    }

    /// An operation does not move after all: it is planned again where it was. Nothing of it is in flight.
    pub(super) fn cancel_move(&mut self, id: OpId) {
        let op = &mut self.ops[id];
        let from = op.moves_from().expect("it was to move");
        let (group, to) = (op.group, op.stripes.start);
        op.stripes = from..from + 1;
        op.destination = Destination::Home;
        self.give_back(id, group, to..to + 1);
        self.ops.run_all(self.maps.move_ended(group, to));
        self.ops.run(id);
    }

    /// An operation that was to move ends: what it had locked beside its stripe is free, and so is the stripe itself if nothing
    /// says that it is used.
    pub(super) fn move_ends(&mut self, id: OpId, op: &Op) {
        let Some(from) = op.moves_from() else {
            return;
        };
        self.give_back(id, op.group, from..from + 1);
        let next = self.maps.move_ended(op.group, op.stripes.start);
        self.ops.run_all(next);
    }

    /// What waits for free stripes waits no more: it goes through the journal.
    fn stay(&mut self, ops: Vec<OpId>) {
        for id in ops {
            let op = &mut self.ops[id];
            op.destination = Destination::Home;
            self.ops.run(id);
        }
    }

    /// Vacated stripes become free as soon as they may, and are flushed if somebody waits for them.
    pub(super) fn pump_moves(&mut self) {
        loop {
            let progress = Progress {
                completed: self.log.completed(),
                flushed: self.log.flushed(),
                gaps: self.log.has_gaps(),
            };
            let idle = !self.ops.has_runnable();
            let pumped = self.maps.pump(&self.cx, progress, idle);
            self.ops.run_all(pumped.go_on);
            self.stay(pumped.stay);
            if !pumped.flush {
                return;
            }
            let begun = self.begin_flush(Waiter::Moves);
            self.maps.flush_begun(begun);
            if begun {
                return;
            }
            // All is flushed.
        }
    }

    /// The flush for vacated stripes has ended.
    pub(super) fn moves_flushed(&mut self, outcome: Outcome) {
        let stay = self.maps.flush_ended(outcome);
        self.stay(stay);
    }
}

/// What an operation logs that moves from a stripe to where it is planned for: all of it counts, or nothing.
pub(super) fn unit(id: OpId, op: &Op, from: u64, direct: Vec<(BlockName, Vec<u32>)>) -> Unit {
    let data = op.data.expect("what moves is data");
    let to = u32::try_from(op.stripes.start).expect("fewer than 2^32 stripes");
    let vacates = !seeded::is(Bug::MovedNotVacated);
    Unit {
        direct,
        zeroed: vacates.then_some((op.group, from..from + 1)),
        moved: Some((op.group, data, to)),
        ..Unit::of(id)
    }
}
