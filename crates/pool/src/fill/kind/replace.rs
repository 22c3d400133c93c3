//! Replace: the column's drive works and is being replaced. Its successor gets the column in the same row, and is read when
//! it has taken the seat.

use layout::Cell;

use super::{MoveEnd, MoveKind};
use crate::placement::{Key, Placement};

#[derive(Debug)]
pub(super) struct Replace;

impl MoveKind for Replace {
    fn name(&self) -> &'static str {
        "replace"
    }

    fn is_due(&self, places: &Placement, key: Key) -> bool {
        places.successor_cell(key).is_some()
    }

    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a> {
        Box::new(places.columns_replaced())
    }

    fn target(&self, places: &Placement, key: Key) -> Option<Cell> {
        places.successor_cell(key)
    }

    fn end(&self) -> MoveEnd {
        MoveEnd::OnSuccessor
    }
}
