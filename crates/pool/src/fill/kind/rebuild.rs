//! Rebuild: no drive has the column. It goes to its home if a drive is there, else to spare space.

use format::seeded::{self, SeededFault};
use layout::Cell;

use super::MoveKind;
use crate::placement::{Key, Placement};

#[derive(Debug)]
pub(super) struct Rebuild;

impl MoveKind for Rebuild {
    fn name(&self) -> &'static str {
        "rebuild"
    }

    fn is_due(&self, places: &Placement, key: Key) -> bool {
        places.place(key).is_none()
    }

    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a> {
        Box::new(places.absent())
    }

    fn target(&self, places: &Placement, key: Key) -> Option<Cell> {
        home_or_spare(places, key)
    }

    fn is_urgent(&self) -> bool {
        true
    }
}

/// The home of a column if a drive is there, else a free spare cell of the home's row. `None` while that drive is joining,
/// or is expected back.
pub(super) fn home_or_spare(places: &Placement, key: Key) -> Option<Cell> {
    let home = places.home(key);
    if places.takes_columns(home.seat) {
        let joined = !places.is_joining(home.seat) || seeded::is(SeededFault::FillBeforeJoined);
        return joined.then_some(home);
    }
    match places.is_expected_back(home.seat) {
        true => None,
        false => places.spare_for(key),
    }
}
