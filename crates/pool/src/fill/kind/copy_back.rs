//! Copy-back: the column is in spare space, and its home is in again. Where the layout has another table of pieces, homes
//! are elsewhere: then the same moves bring columns to their new homes.

use format::PoolFacts;
use layout::Cell;

use super::{MOVE_KINDS, MoveKind, PartOf};
use crate::placement::{Key, Placement};

#[derive(Debug)]
pub(super) struct CopyBack;

impl MoveKind for CopyBack {
    fn name(&self) -> &'static str {
        "copy_back"
    }

    fn is_due(&self, places: &Placement, key: Key) -> bool {
        places.is_away(key) && !MOVE_KINDS.iter().any(|kind| kind.keeps(places, key))
    }

    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a> {
        Box::new(places.recorded_away())
    }

    fn target(&self, places: &Placement, key: Key) -> Option<Cell> {
        super::rebuild::home_or_spare(places, key)
    }

    fn part_of(&self, facts: &PoolFacts) -> PartOf {
        if facts.grows {
            PartOf::Growth
        } else {
            PartOf::Rebuild
        }
    }
}
