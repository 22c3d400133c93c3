//! Free stripes, which the next overwrites go to (`lane/moves.rs`).
//!
//! While a stream goes over a group each of its stripes is free for a while. To discard it would give nothing back for long, and
//! cost an operation on each drive and the stripe's lock just when it is wanted. So free stripes are left as they are,
//! but in a group that holds nothing: with the last of its data they go, too, for they are up to 3.1 % of its space.

use std::ops::Range;

use block::BLOCK_BYTES;

use crate::lane::Lane;

impl Lane {
    /// Whether nothing of a group counts, as far as that is known without I/O. Its pages are in memory when a checkpoint has
    /// just made the last of it unwritten.
    pub(super) fn group_holds_nothing(&self, group: u64) -> bool {
        let blocks = self.cx.geometry.cell_bytes() / BLOCK_BYTES;
        let blocks = u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        (0..self.cx.geometry.layout().columns()).all(|column| {
            let (first, _) = self.entries_of_cell(group, column);
            self.pages.are_unwritten(first, blocks) && !self.overlay.holds(first, blocks)
        })
    }

    /// These stripes are discarded. If they are the last of a group that holds nothing its free stripes are next.
    pub(super) fn add_free_stripes(&mut self, group: u64, mut stripes: Range<u64>) {
        if self.cx.geometry.free_stripes() == 0 || self.discards.ready.has_stripes_of(group) {
            return;
        }
        let of_data =
            stripes.any(|stripe| self.maps.data_held_by(&self.cx, group, stripe).is_some());
        if !of_data || !self.group_holds_nothing(group) {
            return;
        }
        for stripe in 0..self.cx.geometry.stripes_per_group() {
            if self.maps.is_known_free(group, stripe) {
                let ready = &mut self.discards.ready;
                ready.add_stripes(group, &(stripe..stripe + 1));
            }
        }
    }
}
