//! Which drives that are out the journal may need.
//!
//! A batch of the journal survives as many losses as a stripe. While a drive is out, batches that were written to it have
//! one copy less. Each lane puts these batches in place, or logs them again, and reports that it does not need the drive
//! any more. The labels say of which drives this has not been reported yet: if more of them are away at an opening than a
//! batch survives, the end of the log is not known, and the pool waits for its drives (`open.rs`).

use block::Seat;

use super::{OnDurable, Pool, SeatState};

impl Pool {
    /// The drive of a seat goes out: the journal may need it.
    pub(super) fn journal_may_need(&mut self, seat: Seat) {
        if self.cx.facts.regions.is_none() || seat.0 >= self.cx.geometry.layout().drives() {
            return;
        }
        self.cx.facts.seats[seat.index()].in_journal = true;
        let lanes = (0..self.cx.geometry.lanes()).collect();
        self.journal_lanes.insert(seat, lanes);
    }

    /// The journal is read now: each lane reports about the drives that are out when its first checkpoint has ended, which
    /// may be before other lanes have read theirs.
    pub(super) fn journal_is_read(&mut self) {
        let seats: Vec<Seat> = self.cx.layout_seats().collect();
        for seat in seats {
            if self.cx.facts.seats[seat.index()].in_journal {
                self.journal_may_need(seat);
            }
        }
    }

    /// A lane's journal does not need a drive that is out.
    pub(super) fn journal_left(&mut self, lane: u16, seat: Seat) {
        let Some(lanes) = self.journal_lanes.get_mut(&seat) else {
            return;
        };
        lanes.remove(&lane);
        if !lanes.is_empty() {
            return;
        }
        self.journal_lanes.remove(&seat);
        let facts = &mut self.cx.facts.seats[seat.index()];
        if facts.in_journal && matches!(facts.state, SeatState::Out { .. }) {
            facts.in_journal = false;
            self.cx.commit(vec![OnDurable::SeatSpare(seat)]);
        }
    }

    /// Whether a drive that is out and was not given up may have batches that count.
    pub(super) fn journal_needs(&self, seat: Seat) -> bool {
        let facts = &self.cx.facts.seats[seat.index()];
        facts.in_journal && !facts.is_given_up()
    }
}
