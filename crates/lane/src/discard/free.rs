//! Free stripes: the next overwrites go there (`lane/ops/moves.rs`).
//!
//! While a stream goes over a group, each of its stripes is free for a while. A discard of such a stripe would give its
//! space back only for a short time, and would cost an operation on each drive and the stripe's lock just when the
//! stream needs it. Free stripes are therefore left as they are, except in a group that holds nothing: there they are
//! discarded with the last data, because they are up to 3.1 % of its space.

use std::ops::Range;

use block::BLOCK_BYTES;
use format::{GroupId, StripeId};

use super::known::{KnownSpace, entries_of_cell};
use crate::context::Context;

impl KnownSpace<'_> {
    /// True if a group is known, without I/O, to hold nothing that counts. Its pages are in memory when a checkpoint
    /// has just made its last stripe unwritten.
    pub(super) fn group_holds_nothing(&self, cx: &Context, group: GroupId) -> bool {
        let blocks = cx.geometry.cell_bytes() / BLOCK_BYTES;
        let blocks = u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        cx.geometry.columns().all(|column| {
            let (first, _) = entries_of_cell(cx, group, column);
            self.entries.pages.are_unwritten(first, blocks)
                && !self.entries.overlay.holds(first, blocks)
        })
    }

    /// The free stripes of a group that are discarded next, if `stripes` had the last data of a group that now holds
    /// nothing.
    pub(super) fn free_stripes_beside(
        &self,
        cx: &Context,
        group: GroupId,
        stripes: Range<StripeId>,
    ) -> Vec<StripeId> {
        if cx.geometry.free_stripes() == 0 {
            return Vec::new();
        }
        let of_data = StripeId::each(stripes)
            .any(|stripe| self.maps.data_held_by(cx, group, stripe).is_some());
        if !of_data || !self.group_holds_nothing(cx, group) {
            return Vec::new();
        }
        let all = 0..cx.geometry.stripes_per_group();
        all.map(StripeId)
            .filter(|&stripe| self.maps.is_known_free(group, stripe))
            .collect()
    }
}
