//! Free stripes, which the next overwrites go to (`lane/ops/moves.rs`).
//!
//! While a stream goes over a group each of its stripes is free for a while. To discard it would give nothing back for long, and
//! cost an operation on each drive and the stripe's lock just when it is wanted. So free stripes are left as they are,
//! but in a group that holds nothing: with the last of its data they go, too, for they are up to 3.1 % of its space.

use std::ops::Range;

use block::BLOCK_BYTES;

use super::known::{KnownSpace, entries_of_cell};
use crate::lane::context::Context;

impl KnownSpace<'_> {
    /// Whether nothing of a group counts, as far as that is known without I/O. Its pages are in memory when a checkpoint has
    /// just made the last of it unwritten.
    pub(super) fn group_holds_nothing(&self, cx: &Context, group: u64) -> bool {
        let blocks = cx.geometry.cell_bytes() / BLOCK_BYTES;
        let blocks = u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        (0..cx.geometry.layout().columns()).all(|column| {
            let (first, _) = entries_of_cell(cx, group, column);
            self.entries.pages.are_unwritten(first, blocks)
                && !self.entries.overlay.holds(first, blocks)
        })
    }

    /// The free stripes of a group that are discarded next, if these are the last of a group that holds nothing.
    pub(super) fn free_stripes_beside(
        &self,
        cx: &Context,
        group: u64,
        mut stripes: Range<u64>,
    ) -> Vec<u64> {
        if cx.geometry.free_stripes() == 0 {
            return Vec::new();
        }
        let of_data = stripes.any(|stripe| self.maps.data_held_by(cx, group, stripe).is_some());
        if !of_data || !self.group_holds_nothing(cx, group) {
            return Vec::new();
        }
        let all = 0..cx.geometry.stripes_per_group();
        all.filter(|&stripe| self.maps.is_known_free(group, stripe))
            .collect()
    }
}
