//! The anchor: from which batch on the ring counts.

use block::{Fault, Outcome, Seat};

use super::{Phase, page_slice};
use crate::ScratchId;
use crate::action::{Action, Compute, IoKind, Origin, Service};
use crate::format::{Anchor, PAGE_BYTES};
use crate::lane::flush::Waiter;
use crate::lane::{Computing, Lane, Purpose};

impl Lane {
    /// The oldest batch that still counts when the running checkpoint has put all in place that it can.
    pub(super) fn first_that_counts(&self) -> u64 {
        let running = self.checkpoints.running.as_ref();
        let running = running.expect("a checkpoint runs");
        let logged = running
            .stuck
            .iter()
            .filter_map(|&name| self.overlay.get(name));
        let oldest = logged.map(|logged| logged.sequence).min();
        oldest.unwrap_or(u64::MAX).min(running.covers + 1)
    }

    /// Blocks and pages are durable: the log may begin later.
    pub(super) fn write_anchor(&mut self) {
        if let Some(fault) = self.gap_fault() {
            // What a newer record has superseded was left out, and that record is not durable.
            self.checkpoint_refused(fault);
            return;
        }
        self.installs_durable();
        let running = self.running();
        running.phase = Phase::Anchoring;
        running.begun = false;
        let (first, anyhow) = (running.first, running.anchor);
        if !anyhow && (self.log.ring.is_empty() || self.log.ring.is_oldest(first)) {
            // The tail has not moved.
            self.end_checkpoint(None);
            return;
        }
        self.push_anchor(first);
    }

    /// Writes an anchor to all drives that take part.
    pub(in crate::lane) fn push_anchor(&mut self, first: u64) {
        let store = *self.cx.geometry.store().expect("an anchor needs a store");
        self.log.anchor += 1;
        let anchor = Anchor {
            incarnation: self.log.incarnation,
            first,
            position: self.log.ring.position_of(first),
            inherited: self.log.inherited,
            number: self.log.anchor,
        };
        let scratch = self.cx.fresh_scratch();
        self.cx
            .actions
            .push_back(Action::Allocate(scratch, PAGE_BYTES));
        let work = Compute {
            puts: vec![(
                page_slice(scratch, 0),
                anchor.encode(store.pool, self.cx.lane).into(),
            )],
            ..Compute::default()
        };
        self.cx.push_compute(Computing::Anchor(scratch), work);
    }

    /// The anchor is laid out in memory.
    pub(in crate::lane) fn anchor_laid(&mut self, scratch: ScratchId) {
        let store = *self.cx.geometry.store().expect("an anchor needs a store");
        let copy = self.log.anchor % 2 * PAGE_BYTES;
        let offset = store.journal_offset + u64::from(self.cx.lane) * store.ring_bytes + copy;
        let seats = self.cx.live_seats();
        if let Some(running) = self.checkpoints.running.as_mut() {
            running.scratch = Some(scratch);
            running.begun = true;
            for _ in &seats {
                running.writes.begin();
            }
        } else {
            self.recovery_anchor_begins(scratch, &seats);
        }
        let nowhere = seats.is_empty();
        for seat in seats {
            let slice = page_slice(scratch, 0);
            let service = Service::prompt(Origin::Checkpoint);
            self.ios.submit_slice(
                &mut self.cx,
                Purpose::Anchor { seat },
                service,
                IoKind::Write,
                (seat, offset),
                slice,
            );
        }
        if nowhere && self.checkpoints.running.is_some() {
            // No drive is there: what is in the ring stays, for those that come back.
            self.checkpoint_refused(Fault::Lost);
        } else if nowhere {
            self.recovered(0, Err(Fault::Lost));
        }
    }

    pub(in crate::lane) fn anchor_written(&mut self, seat: Seat, outcome: Outcome) {
        if self.checkpoints.running.is_some() {
            self.checkpoint_wrote_to_all(seat, 0, outcome);
            self.anchors_ended();
        } else {
            self.recovery_anchor_written(seat, outcome);
        }
    }

    pub(super) fn anchors_ended(&mut self) {
        let running = self.running();
        if running.phase != Phase::Anchoring || !running.begun || !running.writes.is_done() {
            return;
        }
        if let Some(fault) = self.refused() {
            // A drive whose anchor is old would look for batches where others are by then.
            self.checkpoint_refused(fault);
            return;
        }
        let running = self.running();
        running.phase = Phase::Closing;
        if let Some(scratch) = running.scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        if !self.begin_flush(Waiter::Checkpoint) {
            self.end_checkpoint(None);
        }
    }
}
