//! Which drives are read to fill a column.

use block::Seat;
use format::Column;

use super::Fills;
use crate::context::Context;
use crate::placement::Key;

impl Fills {
    /// The drives that a fill should read, and the columns that it should avoid.
    pub(super) fn sources(&self, cx: &Context, key: Key) -> (Vec<Seat>, Vec<Column>) {
        if let Some(cell) = cx.placement.place(key) {
            return (vec![cell.seat], Vec::new());
        }
        let mut readable: Vec<(u64, u64, Column, Seat)> = { cx.placement.columns() }
            .filter_map(|other| {
                let seat = cx.placement.place((key.0, other))?.seat;
                Some((self.busy(seat, 0), self.moved(seat), other, seat))
            })
            .collect();
        readable.sort_unstable_by_key(|&(busy, moved, other, _)| (moved, busy, other));
        let needed = cx.columns_needed(readable.len());
        let spared = readable.split_off(needed);
        (
            readable.into_iter().map(|(.., seat)| seat).collect(),
            spared.into_iter().map(|(_, _, other, _)| other).collect(),
        )
    }
}

impl Context {
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
    pub(crate) fn fill_readable(&self, key: Key) -> (usize, Vec<Seat>) {
        if let Some(cell) = self.placement.place(key) {
            return (1, vec![cell.seat]);
        }
        let columns = self.placement.columns();
        let readable: Vec<Seat> = columns
            .filter_map(|other| Some(self.placement.place((key.0, other))?.seat))
            .collect();
        (self.columns_needed(readable.len()), readable)
    }
}
