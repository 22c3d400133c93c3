//! Routes for operations on data that moves: they are planned where the data is, and write whole stripes to free ones.

use block::{Fault, Outcome};
use format::seeded::{self, SeededFault};

use crate::Lane;
use crate::flush::Waiter;
use crate::ids::OpId;
use crate::maps::{Progress, Taken};
use crate::op::{Op, Owner, Phase};
use crate::ops::{Located, depends_on_forms, forms, is_located, locate, needs_no_lock, split};

impl Lane {
    /// Finds the stripe of a client's operation, and queues the operation for its lock. True if the operation may be
    /// planned now: it is where its data is, and has the lock if it needs one.
    pub(crate) fn locate(&mut self, id: OpId) -> bool {
        if is_located(&self.cx, &self.maps, &self.ops[id]) {
            return true;
        }
        let group = self.ops[id].group;
        if let Err(missing) = self.load_map(group) {
            self.fetch_pages(id, missing);
            return false;
        }
        match locate(&self.cx, &self.maps, &mut self.ops[id]) {
            Located::Here => return true,
            Located::Elsewhere { locked } => {
                if let Some(before) = locked {
                    self.give_back(id, group, before);
                }
                if needs_no_lock(&self.cx, &self.ops[id]) {
                    return true;
                }
                self.ops.lock(&mut self.cx, id);
            }
            Located::Split => self.split(id),
            Located::LeftReader => self.end(id, Err(Fault::Lost)),
            Located::Unfindable => {
                let data = self.ops[id].data.expect("it is of the group's data");
                self.losses.unfindable(&mut self.cx, group, data);
                self.end(id, Err(Fault::Lost));
            }
        }
        false
    }

    /// In elastic pools: finds the forms of an operation's stripes, by which it is planned. True if it may be planned
    /// now; otherwise pages of its group's map are read first.
    pub(crate) fn know_forms(&mut self, id: OpId) -> bool {
        let op = &self.ops[id];
        if !self.cx.geometry.is_elastic() || !depends_on_forms(op) {
            return true;
        }
        let group = op.group;
        if let Err(missing) = self.load_map(group) {
            self.fetch_pages(id, missing);
            return false;
        }
        let op = &mut self.ops[id];
        // The lock may have been waited for: the form is that of now.
        if !(op.is_locked() && seeded::is(SeededFault::FormNotFollowed)) {
            op.has_forms(&self.cx.geometry, forms(&self.cx, &self.maps, op));
        }
        true
    }

    /// The stripes that hold a run of the data are no longer one run: splits the operation.
    fn split(&mut self, id: OpId) {
        let parts = split(&self.ops[id]);
        if let Owner::Request(request) = self.ops[id].owner {
            self.requests.expect_more_ops(request, parts.len() as u64);
        }
        for part in parts {
            self.start(part);
        }
        // The operation itself has done nothing to its stripes.
        self.ops[id].data = None;
        self.end(id, Ok(()));
    }

    /// Takes a free stripe for an operation, or makes it wait for one; false if its data stays where it is.
    pub(crate) fn begin_move(&mut self, id: OpId) -> bool {
        let op = &self.ops[id];
        let (group, from) = (op.group, op.stripes.start);
        let has_waited = op.phase == Phase::Waiting;
        let ops = &self.ops;
        let may = |stripe| ops.is_free(group, stripe);
        match self.maps.take_free((group, from), has_waited, may) {
            Taken::Stripe(to) => self.ops.move_to(id, to),
            Taken::Later => {
                self.release_scratch(id);
                self.ops.wait_for_stripe(&mut self.cx, id);
                self.maps.wait(group, id);
            }
            Taken::Nowhere => return false,
        }
        true
    }

    /// An operation does not move after all: it is planned again where it was.
    pub(crate) fn cancel_move(&mut self, id: OpId) {
        let (group, to) = self.ops.cancel_move(id);
        self.give_back(id, group, to..to.next());
        self.ops.run_all(self.maps.move_ended(group, to));
        self.ops.run(id);
    }

    /// An operation that was to move ends. The lock of the other stripe is released. The free stripe is free again,
    /// unless a record says that it is used.
    pub(crate) fn move_ends(&mut self, id: OpId, op: &Op) {
        let Some(from) = op.moves_from() else {
            return;
        };
        self.give_back(id, op.group, from..from.next());
        let next = self.maps.move_ended(op.group, op.stripes.start);
        self.ops.run_all(next);
    }

    /// Frees vacated stripes as soon as possible, and begins a flush if operations wait for them.
    pub(crate) fn pump_moves(&mut self) {
        loop {
            let progress = Progress {
                completed: self.log.completed(),
                flushed: self.log.flushed(),
                gaps: self.log.has_gaps(),
            };
            let idle = !self.ops.has_runnable();
            let pumped = self.maps.pump(&self.cx, progress, idle);
            self.ops.run_all(pumped.go_on);
            self.ops.stay(pumped.stay);
            if !pumped.flush {
                return;
            }
            let begun = self.begin_flush(Waiter::Moves);
            self.maps.flush_begun(begun);
            if begun {
                return;
            }
            // All is flushed already.
        }
    }

    /// The flush for vacated stripes has ended.
    pub(crate) fn moves_flushed(&mut self, outcome: Outcome) {
        let stay = self.maps.flush_ended(outcome);
        self.ops.stay(stay);
    }
}
