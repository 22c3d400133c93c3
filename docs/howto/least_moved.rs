//! Where the least has been moved: the cell whose drives have read and written the fewest bytes for this rebuild.
//!
//! Drives end together even if some have been slow, or had more to do at the beginning.

use super::{FillChoice, FillLoads, FillOrder};

#[derive(Debug)]
pub(super) struct LeastMoved;

impl FillOrder for LeastMoved {
    fn name(&self) -> &'static str {
        "least-moved"
    }

    fn next(
        &self,
        cells: &mut dyn Iterator<Item = FillChoice>,
        drives: FillLoads<'_>,
    ) -> Option<FillChoice> {
        cells.min_by_key(|choice| {
            let (fills, moved) = drives.busiest(choice);
            (moved, fills, choice.group, choice.column)
        })
    }
}
