//! What returned drives hold: `docs/design/catch-up.md`.

use block::Seat;
use format::{Generation, SeatState, Sequence};
use layout::Cell;

use super::{Key, Placement};

/// A drive that has returned and is catching up.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Return {
    /// The generation since which it had been out, if it is known.
    since: Option<Generation>,
    /// Cells that are complete.
    pub(crate) cells: u64,
    pub(crate) copied_bytes: u64,
}

impl Placement {
    /// A drive takes the seat. `since`: it returns, and had been out since this generation.
    pub(crate) fn returns(&mut self, seat: Seat, since: Option<Generation>) {
        self.returns.remove(&seat);
        if since.is_some() {
            let back = Return {
                since,
                ..Return::default()
            };
            self.returns.insert(seat, back);
        }
    }

    /// A cell of a drive that is catching up is complete.
    pub(crate) fn note_return(&mut self, seat: Seat, copied_bytes: u64) {
        let back = self.returns.entry(seat).or_default();
        back.cells += 1;
        back.copied_bytes += copied_bytes;
    }

    /// Nothing is left to copy to a drive, or the drive is out. Returns what was copied, if the drive was catching up.
    pub(crate) fn return_ends(&mut self, seat: Seat) -> Option<Return> {
        self.returns.remove(&seat).filter(|back| back.cells > 0)
    }

    /// The batch before which a cell has everything of the column, if known: the column's home on a returned drive.
    pub(crate) fn held_before(&self, key: Key, cell: Cell) -> Option<Sequence> {
        let holds = self.standings[cell.seat.index()].holds.as_ref();
        let lane = usize::from(self.geometry.lane_of(key.0));
        holds
            .filter(|_| cell == self.home(key))
            .and_then(|holds| holds.get(lane).copied())
    }

    /// The generation since which the content of a seat is missing; if that is not known, late rather than early.
    pub(crate) fn out_since(&self, seat: Seat) -> Generation {
        let returned = || self.returns.get(&seat).and_then(|back| back.since);
        match self.state(seat) {
            SeatState::Out { since, .. } => since,
            _ => returned().unwrap_or(Generation(u64::MAX)),
        }
    }
}
