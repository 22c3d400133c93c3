//! By address: the first cell whose drives have room, as a sequential rebuild goes through its drive.
//!
//! Neighbouring cells are often of the same few drives, so others idle: it shows what the default is worth.

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
