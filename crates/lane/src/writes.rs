//! A set of writes: how many are in flight, and which drives failed theirs.

use std::collections::BTreeMap;

use block::{Fault, Outcome, Seat};

/// Done when all writes have ended and the pool has decided about every drive that failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Writes {
    in_flight: u64,
    failed: BTreeMap<Seat, Fault>,
    kept: BTreeMap<Seat, Fault>,
}

impl Writes {
    pub(super) const fn begin(&mut self) {
        self.in_flight += 1;
    }

    /// A write has ended. `out`: its drive is out already, so that the outcome does not matter.
    pub(super) fn ended(&mut self, seat: Seat, outcome: Outcome, out: bool) {
        self.in_flight -= 1;
        if let (Err(fault), false) = (outcome, out) {
            self.failed.insert(seat, fault);
        }
    }

    /// The pool has decided about a drive: it is out, or it stays although it failed.
    pub(super) fn decided(&mut self, seat: Seat, out: bool) {
        if let (Some(fault), false) = (self.failed.remove(&seat), out) {
            self.kept.insert(seat, fault);
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.in_flight == 0 && self.failed.is_empty()
    }

    /// The drives that failed and stay.
    pub(super) const fn kept(&self) -> &BTreeMap<Seat, Fault> {
        &self.kept
    }
}
