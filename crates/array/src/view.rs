//! Where a lane finds each column of its groups at this moment.
//!
//! A column has a *home* cell (the layout's), and up to two places:
//!
//! | state | read from | write to |
//! | --- | --- | --- |
//! | current | source | source |
//! | absent | nowhere: reconstruct | nowhere |
//! | filling | nowhere: reconstruct | target |
//! | moving (copy-back) | source | source and target |
//!
//! Most columns are current at home, so only seats whose drive is out or not yet complete and
//! columns that live elsewhere take space.

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use layout::Cell;

use crate::Geometry;

/// Where a column is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Column {
    /// Holds the column's truth.
    pub source: Option<Cell>,
    /// Is being filled; gets every write too.
    pub target: Option<Cell>,
}

impl Column {
    /// Whether the column can be read.
    #[must_use]
    pub const fn readable(&self) -> bool {
        self.source.is_some()
    }

    /// Whether writes go anywhere.
    #[must_use]
    pub const fn writable(&self) -> bool {
        self.source.is_some() || self.target.is_some()
    }

    /// The cells that a write goes to.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + use<> {
        self.source.into_iter().chain(self.target)
    }
}

/// The whereabouts of a lane's columns.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Seats whose home cells are absent unless an entry says otherwise.
    incomplete: BTreeSet<Seat>,
    /// Seats without a drive that answers.
    out: BTreeSet<Seat>,
    /// Columns that are not simply where their seat's state says.
    entries: BTreeMap<(u64, u16), Column>,
}

impl View {
    /// Where a column is.
    #[must_use]
    pub fn column(&self, geometry: &Geometry, group: u64, column: u16) -> Column {
        if let Some(entry) = self.entries.get(&(group, column)) {
            return *entry;
        }
        let home = geometry.layout().cell(group, column);
        Column {
            source: (!self.incomplete.contains(&home.seat)).then_some(home),
            target: None,
        }
    }

    /// Where all columns of a group are.
    #[must_use]
    pub fn columns(&self, geometry: &Geometry, group: u64) -> Vec<Column> {
        (0..geometry.layout().columns())
            .map(|column| self.column(geometry, group, column))
            .collect()
    }

    /// Whether all columns are there.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.incomplete.is_empty() && self.entries.values().all(Column::readable)
    }

    /// Whether the seat's drive is in, and all home cells of it that are not named one by one count.
    #[must_use]
    pub fn is_complete(&self, seat: Seat) -> bool {
        !self.out.contains(&seat) && !self.incomplete.contains(&seat)
    }

    /// Whether nothing may be sent to the seat.
    #[must_use]
    pub fn is_out(&self, seat: Seat) -> bool {
        self.out.contains(&seat)
    }

    /// The seat's drive is out: whatever was there is absent.
    pub fn seat_out(&mut self, seat: Seat) {
        self.out.insert(seat);
        self.incomplete.insert(seat);
        let here = |cell: &Cell| cell.seat == seat;
        for entry in self.entries.values_mut() {
            if entry.source.as_ref().is_some_and(here) {
                entry.source = None;
            }
            if entry.target.as_ref().is_some_and(here) {
                entry.target = None;
            }
        }
    }

    /// The drive of a seat that the layout does not have is out.
    pub fn successor_out(&mut self, seat: Seat) {
        self.out.insert(seat);
    }

    /// A drive sits in a seat that the layout does not have, and answers.
    pub fn successor_in(&mut self, seat: Seat) {
        self.out.remove(&seat);
    }

    /// A drive sits there again, with nothing on it.
    pub fn seat_in(&mut self, seat: Seat) {
        self.out.remove(&seat);
        self.incomplete.insert(seat);
    }

    /// Another drive sits in the seat, and has these of the columns that were on the one before it.
    pub fn succeed(&mut self, geometry: &Geometry, seat: Seat, filled: &BTreeSet<(u64, u16)>) {
        let here = |cell: &Cell| cell.seat == seat;
        for &(group, column) in filled {
            let now = self.column(geometry, group, column);
            self.entries.insert((group, column), now);
        }
        self.incomplete.insert(seat);
        for (key, entry) in &mut self.entries {
            if entry.source.as_ref().is_some_and(here) && !filled.contains(key) {
                entry.source = None;
            }
        }
    }

    /// All home cells of the seat are current: forget the entries that say so one by one.
    pub fn seat_current(&mut self, geometry: &Geometry, seat: Seat) {
        self.out.remove(&seat);
        self.incomplete.remove(&seat);
        self.entries.retain(|&(group, column), entry| {
            let home = geometry.layout().cell(group, column);
            home.seat != seat || entry.source != Some(home) || entry.target.is_some()
        });
    }

    /// From now on writes go to `target` too.
    pub fn begin_fill(&mut self, geometry: &Geometry, group: u64, column: u16, target: Cell) {
        let now = self.column(geometry, group, column);
        self.entries.insert(
            (group, column),
            Column {
                target: Some(target),
                ..now
            },
        );
    }

    /// The fill came to nothing.
    pub fn abandon_fill(&mut self, geometry: &Geometry, group: u64, column: u16) {
        let now = self.column(geometry, group, column);
        self.entries.insert(
            (group, column),
            Column {
                target: None,
                ..now
            },
        );
    }

    /// The group begins a new life: columns of the earlier one that were nowhere are at home like any others, if their
    /// seat's drive has its cells.
    pub fn begin_life(&mut self, group: u64) {
        let absent =
            |&(other, _): &(u64, u16), column: &Column| (other == group) && !column.writable();
        self.entries.retain(|key, column| !absent(key, column));
    }

    /// The column lives in `cell`, and nowhere else.
    pub fn settle(&mut self, group: u64, column: u16, cell: Cell) {
        self.entries.insert(
            (group, column),
            Column {
                source: Some(cell),
                target: None,
            },
        );
    }
}
