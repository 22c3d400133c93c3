//! Writes of cell tables (`placement/table.rs`): what follows when they end.

use block::{Outcome, Seat};

use super::placement::Record;
use super::{Pool, SeatFacts};

impl Pool {
    pub(super) fn cell_page_written(&mut self, seat: Seat, first_row: u64, outcome: Outcome) {
        let Some(records) = self.cx.placement.page_written(seat, first_row) else {
            return;
        };
        if let Err(fault) = outcome
            && self.stays_although_full(seat, fault)
        {
            self.cx.placement.page_refused(seat, first_row, records);
            self.drive_is_full(seat, false);
            self.stalls.try_again_later(self.cx.now);
            return;
        }
        if let Err(fault) = outcome {
            // The entry is not recorded: a drive that cannot write its table cannot hold cells.
            self.fills_unrecorded(records);
            self.take_out_for(seat, fault);
            return;
        }
        let next = self.cx.placement.next_write(seat, first_row);
        self.cx.write_cell_page(next);
        for record in records {
            self.settle(record);
        }
        self.may_be_free(seat);
    }

    /// A spare that was to succeed a drive before the opening can take a seat when its entries of that time are cleared.
    fn may_be_free(&mut self, seat: Seat) {
        let waits = self.cx.facts.seats.get(seat.index());
        let waits = self.cx.recovered && waits.is_some_and(SeatFacts::is_free);
        if waits && !self.cx.placement.is_writing(seat) {
            self.seat_spares();
        }
    }

    /// Writes pages again that full drives have refused.
    pub(super) fn write_refused_cell_pages(&mut self) {
        for page in self.cx.placement.write_refused() {
            self.cx.write_cell_page(Some(page));
        }
    }

    /// The drive is out: its table does not count, and what waited for the table is not recorded.
    pub(super) fn drop_table(&mut self, seat: Seat) {
        let records = self.cx.placement.drop_table(seat);
        self.fills_unrecorded(records);
    }

    fn fills_unrecorded(&mut self, records: Vec<Record>) {
        for record in records {
            self.fills.not_recorded(&mut self.cx, record);
        }
    }
}
