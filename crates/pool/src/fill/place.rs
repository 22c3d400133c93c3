//! Where a column is filled, and which drives are read for it.

use block::Seat;
use format::seeded::{self, SeededFault};
use layout::Cell;

use crate::Pool;

impl Pool {
    /// Whether a column is not at home although its home could take it.
    pub(crate) fn is_away(&self, group: u64, column: u16) -> bool {
        let home = self.geometry.layout().cell(group, column);
        self.facts.seats[home.seat.index()].state.takes_part()
            && self.source(group, column).is_some_and(|cell| cell != home)
    }

    /// Where a column should be filled: its home if a drive is there, else a free spare cell of the home's row. `None`
    /// while the home's drive is joining; the queue is built again after that.
    pub(super) fn target(&self, group: u64, column: u16) -> Option<Cell> {
        let layout = self.geometry.layout();
        let home = layout.cell(group, column);
        let successor = self.successor_cell(group, column);
        if successor.is_some() && !self.is_away(group, column) {
            return successor;
        }
        if self.facts.seats[home.seat.index()].state.takes_part() {
            let joined = !self.joining.contains(home.seat);
            return (joined || seeded::is(SeededFault::FillBeforeJoined)).then_some(home);
        }
        // Its drive is expected back: the columns on it are not rebuilt meanwhile.
        if self.is_away_for_a_while(home.seat) {
            return None;
        }
        // No two columns of a group may be on one drive or be filled there: they would be lost together.
        let neighbours: Vec<Seat> = (0..layout.columns())
            .filter(|&other| other != column)
            .flat_map(|other| {
                let home = layout.cell(group, other).seat;
                let source = self.source(group, other).map(|at| at.seat);
                let filled = self.fills.target((group, other)).map(|at| at.seat);
                [Some(home), source, filled]
            })
            .flatten()
            .collect();
        let out = |seat: Seat| {
            !self.facts.seats[seat.index()].state.takes_part()
                || self.joining.contains(seat)
                || neighbours.contains(&seat)
        };
        layout.spare_for(group, column, &out, &|cell| self.taken.contains_key(&cell))
    }

    /// The drives that a fill should read, and the columns that it should avoid.
    pub(super) fn fill_sources(&self, group: u64, column: u16) -> (Vec<Seat>, Vec<u16>) {
        if let Some(cell) = self.source(group, column) {
            return (vec![cell.seat], Vec::new());
        }
        let layout = self.geometry.layout();
        let mut readable: Vec<(u64, u64, u16, Seat)> = (0..layout.columns())
            .filter_map(|other| {
                let seat = self.source(group, other)?.seat;
                Some((self.fills.busy(seat, 0), self.fills.moved(seat), other, seat))
            })
            .collect();
        readable.sort_unstable_by_key(|&(busy, moved, other, _)| (moved, busy, other));
        let needed = self.columns_needed(readable.len());
        let spared = readable.split_off(needed);
        (
            readable.into_iter().map(|(.., seat)| seat).collect(),
            spared.into_iter().map(|(_, _, other, _)| other).collect(),
        )
    }

    /// How many of the readable columns a fill reads.
    fn columns_needed(&self, readable: usize) -> usize {
        let code = self.geometry.code();
        // A code of several rows recovers a column from fewer elements when it may read a little of every other column
        // (hybrid recovery), so no column is avoided.
        if code.rows() > 1 {
            return readable;
        }
        let columns = self.geometry.layout().columns();
        usize::from(columns.saturating_sub(code.tolerance()))
            .max(1)
            .min(readable)
    }

    /// How many drives a fill reads, and those among which it chooses.
    pub(crate) fn fill_readable(&self, group: u64, column: u16) -> (usize, Vec<Seat>) {
        if let Some(cell) = self.source(group, column) {
            return (1, vec![cell.seat]);
        }
        let columns = 0..self.geometry.layout().columns();
        let readable: Vec<Seat> = columns
            .filter_map(|other| Some(self.source(group, other)?.seat))
            .collect();
        (self.columns_needed(readable.len()), readable)
    }

    /// As [`Pool::target`], for estimates.
    pub(crate) fn target_of(&self, group: u64, column: u16) -> Option<Cell> {
        self.target(group, column)
    }
}
