//! Leave: the column's drive leaves the pool. It goes to the cell that was planned for it when the removal began, so that
//! all columns find room wherever there is room for all.

use format::PoolFacts;
use layout::Cell;
use layout::pool::Elsewhere;

use super::{MoveKind, PartOf};
use crate::placement::{Key, LEAVING, Placement};

#[derive(Debug)]
pub(super) struct Leave;

impl MoveKind for Leave {
    fn name(&self) -> &'static str {
        "remove"
    }

    fn is_due(&self, places: &Placement, key: Key) -> bool {
        // One whose home can take it goes there.
        places.leaves(key) && !places.is_away(key)
    }

    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a> {
        let leaving = places.leaving().into_iter();
        Box::new(leaving.flat_map(|seat| places.columns_on(seat)))
    }

    fn target(&self, places: &Placement, key: Key) -> Option<Cell> {
        { places.planned(LEAVING, key) }.filter(|&cell| !places.is_used(cell))
    }

    fn part_of(&self, _facts: &PoolFacts) -> PartOf {
        PartOf::Removal
    }
}
