//! The one interface of all layouts.

use std::fmt;

use block::Seat;

/// One cell of one drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// The drive's seat.
    pub seat: Seat,
    /// Height on the drive, in cells, from 0.
    pub row: u64,
}

/// What a cell is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It is column `column` of group `group`.
    Column {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// It is spare cell `index` of its row.
    Spare {
        /// Which of the row's spares.
        index: u16,
    },
    /// Unused: rows left over at the end of a drive.
    Unused,
}

/// Where in a group a stripe's unit lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Column of the group.
    pub column: u16,
    /// Slot inside the cell: the unit's first chunk is chunk `slot × code rows` of the cell.
    pub slot: u64,
}

/// The placement of a pool. Deterministic, total on its stated ranges, and cheap: `cell` and
/// `place` are on the path of every request.
pub trait Layout: fmt::Debug + Send + Sync {
    /// Number of seats, including seats that hold only spare space.
    fn drives(&self) -> u16;

    /// Cells in a group. Usually data plus parity; `raid10:far` has a cell for each copy.
    fn columns(&self) -> u16;

    /// Spare cells per row (a hot spare drive is a seat whose every cell is a spare).
    fn spares(&self) -> u16;

    /// Drives whose columns find room in spare space when they go out.
    fn spare_drives(&self) -> u16 {
        self.spares()
    }

    /// Seats that have no drive and no cell, ascending: drives that were removed had them.
    fn vacant(&self) -> &[Seat] {
        &[]
    }

    /// Whether columns may lie in spare space: a column whose home is lost is then filled elsewhere, and the seats alone do
    /// not say when it was lost or whether its drive brings it back. (Pools of pieces answer no so far, although lost
    /// pieces move to free ones there.)
    fn has_spare_space(&self) -> bool {
        self.spares() > 0
    }

    /// Whole groups on drives of `rows` cells.
    fn groups(&self, rows: u64) -> u64;

    /// Where a column of a group is. `group < groups(rows)`, `column < columns()`.
    ///
    /// The cells of one group are on different drives, except in layouts that keep several copies
    /// of a column range on one drive at different heights (`raid10:far`).
    fn cell(&self, group: u64, column: u16) -> Cell;

    /// The inverse of `cell` and `spare`.
    fn role(&self, cell: Cell) -> Role;

    /// The seat whose cell in `row` is spare number `index < spares()`.
    fn spare(&self, row: u64, index: u16) -> Seat;

    /// Rows after which placement repeats, shifted by a whole number of groups.
    fn pattern_rows(&self) -> u64;

    /// (rows, groups) of the smallest stretch after which placement repeats except for the seats: group g + k·groups is
    /// k·rows above group g. Map versions move whole steps.
    fn step(&self) -> (u64, u64) {
        let rows = self.pattern_rows();
        (rows, self.groups(rows))
    }

    /// Slots after which the rotation inside a group repeats.
    fn rotation_slots(&self) -> u64 {
        1
    }

    /// Stripes of a code that fit into a group whose cells have `slots` slots each.
    fn stripes_per_group(&self, slots: u64) -> u64 {
        slots
    }

    /// Where unit `unit` of the group's stripe number `index` is. `stripe` is the stripe's number
    /// over all groups; classic levels rotate by it. `index < stripes_per_group(slots)`.
    fn place(&self, stripe: u64, index: u64, unit: u16) -> Place {
        let _ = stripe;
        Place {
            column: unit,
            slot: index,
        }
    }

    /// The inverse of `place`: (index in the group, unit) of the unit at `place`, `None` for a
    /// place that no stripe uses. `first` is the number, over all groups, of the group's first
    /// stripe.
    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)> {
        let _ = first;
        Some((place.slot, place.column))
    }

    /// The cell that takes over column `column` of `group` when its home is lost. `out` returns
    /// true for seats that cannot take the column, `used` for spare cells that are in use. `None`
    /// when no spare cell is left.
    ///
    /// The spares of the home's own row are tried in order, and a lost spare is skipped. Pools have
    /// no spare cells per row; they choose a free piece.
    fn spare_for(
        &self,
        group: u64,
        column: u16,
        out: &dyn Fn(Seat) -> bool,
        used: &dyn Fn(Cell) -> bool,
    ) -> Option<Cell> {
        let row = self.cell(group, column).row;
        (0..self.spares())
            .map(|index| Cell {
                seat: self.spare(row, index),
                row,
            })
            .find(|&cell| !out(cell.seat) && !used(cell))
    }

    /// The table of pieces, if the layout is one: it can grow by a drive.
    fn table(&self) -> Option<&crate::pool::Pool> {
        None
    }

    /// True if over a whole pattern all drives are alike: for any two drives some renaming of
    /// drives maps one to the other and the pattern to itself. Reports then count one drive only.
    fn is_symmetric(&self) -> bool {
        false
    }

    /// The base permutations of a developed layout, `drives()` entries each, one after the other;
    /// empty for other layouts.
    fn permutations(&self) -> &[u16] {
        &[]
    }

    /// The bytes to store with the pool so that this exact layout can be restored: searched bases,
    /// members of pool groups. `None` where the scheme and the number of drives determine the
    /// layout.
    fn stored(&self) -> Option<Vec<u8>> {
        None
    }
}
