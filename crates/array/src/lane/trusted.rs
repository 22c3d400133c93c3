//! Plans where content is right by definition ([`Lane::trust_content`]).
//!
//! Of a group of which nothing is logged and nothing was found bad, every block is in its place, so that a chunk need
//! not be asked about block by block. What the pages would say is known; that they have to be read is not changed: the
//! plan is made when all pages of the range are here.

use std::collections::BTreeSet;
use std::ops::Range;

use super::Lane;
use super::op::{Op, Task};
use crate::format::{BlockName, ENTRIES_PER_META_PAGE, PageName};

impl Lane {
    /// Blocks of each column's cell that the operation's stripes take.
    fn blocks_of_stripes(&self, op: &Op) -> Range<u32> {
        let per_chunk = self.cx.geometry.chunk_bytes() / block::BLOCK_BYTES;
        let per_stripe = per_chunk * u64::from(self.cx.geometry.code().rows());
        let narrow = |value| u32::try_from(value).expect("cells have fewer than 2^32 blocks");
        narrow(op.stripes.start * per_stripe)..narrow(op.stripes.end * per_stripe)
    }

    /// Whether a fill can be planned without a look at single blocks.
    pub(super) fn is_plain_fill(&self, op: &Op) -> bool {
        let fills = matches!(op.task, Task::Fill { .. }) && op.task.held().is_none();
        let sound =
            op.bad.is_empty() && op.avoid.is_empty() && op.arbitration.distrusted.is_empty();
        // Rows and slots are the same in all columns but for layouts that keep several copies on one drive.
        let alike = self.cx.geometry.layout().columns() == self.cx.geometry.code().columns();
        if !(self.cx.trusted && fills && sound && alike && self.cx.geometry.store().is_some()) {
            return false;
        }
        let blocks = self.blocks_of_stripes(op);
        let count = blocks.end - blocks.start;
        let logged = (0..self.cx.geometry.layout().columns()).any(|column| {
            let first = BlockName {
                group: op.group,
                column,
                block: blocks.start,
            };
            self.overlay.holds(first, count)
        });
        let mut stripes = op.stripes.clone();
        !logged && !stripes.any(|stripe| self.overlay.is_zeroed(op.group, stripe))
    }

    /// Pages of the operation's stripes that are not here.
    pub(super) fn missing_pages(&self, op: &Op) -> BTreeSet<PageName> {
        let blocks = self.blocks_of_stripes(op);
        let first = blocks.start / ENTRIES_PER_META_PAGE;
        let last = blocks.end.saturating_sub(1) / ENTRIES_PER_META_PAGE;
        let columns = 0..self.cx.geometry.layout().columns();
        let pages = columns.flat_map(|column| {
            (first..=last).map(move |index| PageName {
                group: op.group,
                column,
                index,
            })
        });
        pages.filter(|&name| !self.pages.contains(name)).collect()
    }
}
