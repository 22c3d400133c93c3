//! A checkpoint's pages: the entries of what it has put in place.

use block::{Outcome, Seat};

use super::{Phase, page_slice};
use crate::action::{Action, Compute, IoKind};
use crate::format::{PAGE_BYTES, PageName};
use crate::lane::flush::Waiter;
use crate::lane::{Array, Computing, Purpose};
use crate::plan::{Transfer, merge};
use crate::planted::{self, Bug};

impl Array {
    pub(super) fn write_pages(&mut self) {
        let store = *self.geometry.store().expect("a checkpoint needs a store");
        let running = self.running();
        running.phase = Phase::Paging;
        running.begun = running.pages.is_empty();
        let names: Vec<PageName> = running.pages.iter().copied().collect();
        let bytes = names.len() as u64 * PAGE_BYTES;
        if names.is_empty() {
            self.pages_ended();
            return;
        }
        let scratch = self.fresh_scratch();
        self.running().scratch = Some(scratch);
        self.actions.push_back(Action::Allocate(scratch, bytes));
        let mut work = Compute::default();
        for (index, &name) in names.iter().enumerate() {
            let page = self.pages.page(name).expect("the checkpoint keeps it here");
            work.puts.push((
                page_slice(scratch, index),
                page.encode(store.pool, name).into(),
            ));
            self.pages.written(name);
        }
        self.push_compute(Computing::Paged, work);
    }

    /// The pages are laid out in memory.
    pub(in crate::lane) fn paged(&mut self) {
        let running = self
            .checkpoints
            .running
            .as_ref()
            .expect("a checkpoint runs");
        let scratch = running.scratch.expect("pages were laid out");
        let mut transfers = Vec::new();
        for (index, &name) in running.pages.iter().enumerate() {
            for (seat, offset) in self.page_places(name, false) {
                transfers.push(Transfer {
                    seat,
                    column: name.column,
                    kind: IoKind::Write,
                    offset,
                    length: PAGE_BYTES,
                    slice: Some(page_slice(scratch, index)),
                });
            }
        }
        merge(&mut transfers);
        for transfer in transfers {
            if self.view.is_out(transfer.seat) {
                continue;
            }
            self.running().writes.begin();
            let purpose = Purpose::PageWrite {
                seat: transfer.seat,
                offset: transfer.offset,
            };
            self.push_io(purpose, |id| transfer.io(id));
        }
        self.running().begun = true;
        self.pages_ended();
    }

    pub(in crate::lane) fn page_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        if planted::is(Bug::AnchorBeforePages) && outcome.is_ok() {
            self.running().writes.ended(seat, outcome, false);
            self.pages_ended();
            return;
        }
        self.checkpoint_wrote(seat, offset, outcome);
        self.pages_ended();
    }

    pub(super) fn pages_ended(&mut self) {
        let relogs = self.keeping.relogs();
        let running = self.running();
        if running.phase != Phase::Paging || !running.begun || !running.writes.is_done() || relogs {
            return;
        }
        running.phase = Phase::Settling;
        let epoch = running.epoch.take().expect("it has installed");
        if let Some(scratch) = running.scratch.take() {
            self.release(scratch);
        }
        self.leave(epoch);
        // What has changed or was logged again by now the flush covers; what does so from now on it need
        // not.
        self.running().first = self.first_that_counts();
        if planted::is(Bug::AnchorBeforeBlocks) || !self.begin_flush(Waiter::Checkpoint) {
            self.write_anchor();
        }
    }

    /// What is kept may have been logged again.
    pub(in crate::lane) fn checkpoint_relogged(&mut self) {
        if self.checkpoints.running.is_some() {
            self.pages_ended();
        }
    }
}
