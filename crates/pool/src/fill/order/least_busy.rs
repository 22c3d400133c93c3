//! Least busy: the cell whose busiest drive has the fewest fills, and among these the one whose drives have moved least.
//!
//! With whole cells as units this keeps nearly all drives busy at once; the order of addresses keeps only the drives of
//! a few groups busy. Source: rebuild model of the layouts reference, section 7.2.

use super::{FillChoice, FillLoads, FillOrder};

#[derive(Debug)]
pub(super) struct LeastBusy;

impl FillOrder for LeastBusy {
    fn name(&self) -> &'static str {
        "least-busy"
    }

    fn next(
        &self,
        cells: &mut dyn Iterator<Item = FillChoice>,
        drives: FillLoads<'_>,
    ) -> Option<FillChoice> {
        cells.min_by_key(|choice| (drives.busiest(choice), choice.group, choice.column))
    }
}
