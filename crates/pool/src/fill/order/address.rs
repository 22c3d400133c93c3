//! By address: the first cell whose drives have room, as a sequential rebuild goes through its drive.
//!
//! Neighbouring cells are often on the same few drives, so that others idle: it shows the gain of the default.

use super::{FillChoice, FillLoads, FillOrder};

#[derive(Debug)]
pub(super) struct Address;

impl FillOrder for Address {
    fn name(&self) -> &'static str {
        "address"
    }

    fn next(
        &self,
        cells: &mut dyn Iterator<Item = FillChoice>,
        _drives: FillLoads<'_>,
    ) -> Option<FillChoice> {
        cells.next()
    }
}
