//! The anchor: the block that says where in the ring the log begins.

use block::{Fault, Outcome, Seat};
use format::{Anchor, PAGE_BYTES, Sequence};
use plan::ScratchId;
use plan::action::{Action, Compute, IoKind, Origin, Service};

use super::{Next, Phase, Running, page_slice};
use crate::context::Context;
use crate::io::IoTable;
use crate::overlay::Overlay;
use crate::purpose::{Computing, Purpose};
use crate::writes::Writes;

/// Lays out an anchor in memory.
pub(crate) fn lay_anchor(cx: &mut Context, anchor: &Anchor) {
    let regions = *cx.geometry.regions().expect("an anchor needs a journal");
    let scratch = cx.fresh_scratch();
    cx.actions.push_back(Action::Allocate(scratch, PAGE_BYTES));
    let bytes = anchor.encode(regions.pool, cx.lane);
    let work = Compute {
        puts: vec![(page_slice(scratch, 0), bytes.into())],
        ..Compute::default()
    };
    cx.push_compute(Computing::Anchor(scratch), work);
}

/// Writes anchor `number`, which is laid out in memory, to all drives that are not out. Returns the number of these
/// drives.
pub(crate) fn submit_anchor(
    cx: &mut Context,
    ios: &mut IoTable,
    number: u64,
    scratch: ScratchId,
) -> usize {
    let offset = cx.geometry.anchor_offset(cx.lane) + number % 2 * PAGE_BYTES;
    let seats = cx.live_seats();
    for &seat in &seats {
        let service = Service::prompt(Origin::Checkpoint);
        let (purpose, slice) = (Purpose::Anchor { seat }, page_slice(scratch, 0));
        ios.submit_slice(cx, purpose, service, IoKind::Write, (seat, offset), slice);
    }
    seats.len()
}

impl Running {
    /// All pages are written, and no block is being logged again: the next step is to flush blocks and pages.
    pub(crate) fn settle(&mut self, cx: &mut Context, ios: &mut IoTable, overlay: &Overlay) {
        assert!(self.epoch.is_some(), "it has installed");
        self.phase = Phase::Settling;
        self.release_scratch(cx, ios);
        cx.epochs.leave(&mut self.epoch);
        // The flush covers what has changed or was logged again up to here. Later changes wait for the next checkpoint.
        self.first = self.first_that_counts(overlay);
    }

    /// The oldest batch that the journal must keep once all blocks are in place that can be.
    fn first_that_counts(&self, overlay: &Overlay) -> Sequence {
        let logged = self.held_back.iter();
        let logged = logged.filter_map(|&name| overlay.get(name));
        let oldest = logged.map(|logged| logged.sequence).min();
        oldest.unwrap_or(Sequence(u64::MAX)).min(self.covers.next())
    }

    /// Blocks and pages are durable: the log may begin later. True if an anchor is written: because the ring's tail
    /// `moves`, or because an anchor was requested.
    pub(crate) fn begin_anchor(&mut self, moves: bool) -> bool {
        let begins = moves || self.anchor;
        if begins {
            self.phase = Phase::LayingAnchor;
        }
        begins
    }

    /// The anchor is being written to `drives` drives.
    pub(crate) fn anchor_submitted(&mut self, scratch: ScratchId, drives: usize) -> Next {
        self.scratch = Some(scratch);
        let mut writes = Writes::default();
        for _ in 0..drives {
            writes.begin();
        }
        self.phase = Phase::Anchoring(writes);
        match drives {
            // The blocks in the ring stay, for drives that return.
            0 => Next::Refused(Fault::Lost),
            _ => Next::Wait,
        }
    }

    /// A drive has written the anchor, or has failed to. `out`: the drive is out by now.
    pub(crate) fn anchor_written(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        outcome: Outcome,
        out: bool,
    ) -> Next {
        let Phase::Anchoring(writes) = &mut self.phase else {
            unreachable!("no anchor is written in {:?}", self.phase);
        };
        writes.ended(seat, outcome, out);
        if let (Err(fault), false) = (outcome, out) {
            self.refused.insert(seat, fault);
        }
        self.anchors_ended(cx, ios)
    }

    pub(super) fn anchors_ended(&mut self, cx: &mut Context, ios: &mut IoTable) -> Next {
        match &self.phase {
            Phase::Anchoring(writes) if writes.is_done() => {}
            _ => return Next::Wait,
        }
        // With an old anchor, recovery would look for batches where others have been written by then.
        self.refusal().unwrap_or_else(|| {
            self.phase = Phase::Closing;
            self.release_scratch(cx, ios);
            Next::Flush
        })
    }
}
