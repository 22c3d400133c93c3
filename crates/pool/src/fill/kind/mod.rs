//! Why columns move: kinds of moves, one in each file.
//!
//! | kind | a column is due | where it goes | how it ends |
//! | --- | --- | --- | --- |
//! | `rebuild.rs` | no drive has it | home, or spare space | recorded |
//! | `leave.rs` | its drive leaves the pool | a cell that was planned for it | recorded |
//! | `copy_back.rs` | it is in spare space, and its home is in again | home | recorded |
//! | `replace.rs` | its drive is being replaced | the same row of the successor | kept for the successor |
//!
//! A drive that catches up has no kind of its own: its columns are rebuilt at home, and the lane copies only what the drive
//! does not hold (`placement/returns.rs`).
//!
//! All kinds share one queue and one life (`queue.rs`); a column that is due for several reasons moves for the first of the
//! table. Adding a kind is a file here, its `mod` line and its line in [`MOVE_KINDS`] (`docs/howto/add-a-kind-of-move.md`).

mod copy_back;
mod leave;
mod rebuild;
mod replace;
/// The example of `docs/howto/add-a-kind-of-move.md`, which is compiled and tested here.
#[cfg(test)]
#[path = "../../../../../docs/howto/visit.rs"]
mod visit;

use std::fmt;

use format::PoolFacts;
use layout::Cell;

use crate::placement::{Key, Moves, Placement};

/// A kind of move: which columns it is for, and where they go.
pub(crate) trait MoveKind: fmt::Debug + Send + Sync {
    /// The name for administrators.
    fn name(&self) -> &'static str;

    /// Whether the column should move, if no kind before this one in the table wants it to.
    fn is_due(&self, places: &Placement, key: Key) -> bool;

    /// Columns with content among which are all that are due, each at least once. An event asks for them, so it costs the
    /// columns of the drives that the kind is about, and not those of the pool.
    fn candidates<'a>(&self, places: &'a Placement) -> Box<dyn Iterator<Item = Key> + 'a>;

    /// The cell to which a column that is due can move now, if there is one.
    fn target(&self, places: &Placement, key: Key) -> Option<Cell>;

    /// Whether the column is lost until it has moved: then the more columns of its group are lost and not being filled, the
    /// sooner it is chosen, and others yield drives to it.
    fn is_urgent(&self) -> bool {
        false
    }

    /// What becomes of a cell that is filled.
    fn end(&self) -> MoveEnd {
        MoveEnd::Recorded
    }

    /// The work of an administrator whose reports speak of these moves.
    fn part_of(&self, _facts: &PoolFacts) -> PartOf {
        PartOf::Rebuild
    }

    /// Whether a column stays where it is although its home could take it.
    fn keeps(&self, _places: &Placement, _key: Key) -> bool {
        false
    }
}

/// What becomes of a cell that is filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MoveEnd {
    /// It is recorded as the column's place.
    Recorded,
    /// A successor has it: it is a place when the successor takes its seat.
    OnSuccessor,
}

/// The work that moves belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartOf {
    /// They are a rebuild of their own.
    Rebuild,
    /// Drives were added to a pool of pieces.
    Growth,
    /// A drive is being removed.
    Removal,
}

/// All kinds. Earlier ones are more urgent.
pub(crate) const MOVE_KINDS: &[&dyn MoveKind] = &[
    &rebuild::Rebuild,
    &leave::Leave,
    &copy_back::CopyBack,
    &replace::Replace,
    #[cfg(test)]
    &visit::Visit,
];

/// A kind of the table, by its rank there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Kind(usize);

impl Kind {
    /// The most urgent kind.
    #[cfg(test)]
    pub(crate) const FIRST: Self = Self(0);

    fn all() -> impl Iterator<Item = Self> {
        (0..MOVE_KINDS.len()).map(Self)
    }

    pub(crate) fn policy(self) -> &'static dyn MoveKind {
        MOVE_KINDS[self.0]
    }

    /// The kind of this name.
    #[cfg(test)]
    pub(crate) fn named(name: &str) -> Self {
        let mut all = Self::all();
        all.find(|kind| kind.policy().name() == name).expect(name)
    }

    /// Why a column should move; `None` if it is where it should be.
    pub(crate) fn of(places: &Placement, key: Key) -> Option<Self> {
        Self::all().find(|kind| kind.policy().is_due(places, key))
    }
}

/// Where a column should move: to its home if a drive is there, say. `None` if it should not move, or cannot now; the queue
/// is built again when that changes.
pub(crate) fn target(places: &Placement, key: Key) -> Option<Cell> {
    Kind::of(places, key)?.policy().target(places, key)
}

/// Columns with content that are not where they should be, each at least once.
pub(crate) fn away(places: &Placement) -> impl Iterator<Item = (Kind, Key)> + '_ {
    let candidates = MOVE_KINDS.iter().flat_map(|kind| kind.candidates(places));
    candidates.filter_map(|key| Some((Kind::of(places, key)?, key)))
}

/// For the invariants of places.
pub(crate) const MOVES: Moves = Moves {
    is_due: |places, key| Kind::of(places, key).is_some(),
    away: |places| away(places).map(|(_, key)| key).collect(),
};

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique() {
        let names: BTreeSet<_> = MOVE_KINDS.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), MOVE_KINDS.len());
    }

    #[test]
    fn only_columns_that_no_drive_has_are_urgent() {
        let urgent: Vec<_> = Kind::all()
            .filter(|kind| kind.policy().is_urgent())
            .collect();
        assert_eq!(urgent, [Kind::named("rebuild")]);
    }
}
