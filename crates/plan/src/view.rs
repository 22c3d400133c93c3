//! Where each column of a lane's groups is at this moment.
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
//! Most columns are current at home, so only seats whose drive is out or not yet complete, and columns in other places,
//! take memory.

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use format::{Column, GroupId};
use layout::Cell;

use crate::Geometry;

/// Where a column is read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnState {
    /// The cell with the valid content of the column.
    pub source: Option<Cell>,
    /// The cell that is being filled; it gets every write too.
    pub target: Option<Cell>,
}

impl ColumnState {
    /// Whether the column can be read.
    #[must_use]
    pub const fn readable(&self) -> bool {
        self.source.is_some()
    }

    /// Whether writes go to any cell.
    #[must_use]
    pub const fn writable(&self) -> bool {
        self.source.is_some() || self.target.is_some()
    }

    /// The cells that a write goes to.
    pub fn cells(&self) -> impl Iterator<Item = Cell> + use<> {
        self.source.into_iter().chain(self.target)
    }
}

/// The places of a lane's columns.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Seats whose home cells are absent unless an entry states otherwise.
    incomplete: BTreeSet<Seat>,
    /// Seats without a drive that answers.
    out: BTreeSet<Seat>,
    /// Columns whose place does not follow from the state of their seat.
    entries: BTreeMap<(GroupId, Column), ColumnState>,
}

impl View {
    /// Where a column is.
    #[must_use]
    pub fn column(&self, geometry: &Geometry, group: GroupId, column: Column) -> ColumnState {
        if let Some(entry) = self.entries.get(&(group, column)) {
            return *entry;
        }
        let home = geometry.home(group, column);
        ColumnState {
            source: (!self.incomplete.contains(&home.seat)).then_some(home),
            target: None,
        }
    }

    /// Where all columns of a group are.
    #[must_use]
    pub fn columns(&self, geometry: &Geometry, group: GroupId) -> Vec<ColumnState> {
        geometry
            .columns()
            .map(|column| self.column(geometry, group, column))
            .collect()
    }

    /// Whether all columns can be read.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.incomplete.is_empty() && self.entries.values().all(ColumnState::readable)
    }

    /// Whether the seat's drive is in, and all its home cells without an entry of their own are current.
    #[must_use]
    pub fn is_complete(&self, seat: Seat) -> bool {
        !self.out.contains(&seat) && !self.incomplete.contains(&seat)
    }

    /// Whether nothing may be sent to the seat.
    #[must_use]
    pub fn is_out(&self, seat: Seat) -> bool {
        self.out.contains(&seat)
    }

    /// The seat's drive is out: all cells there are absent.
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

    /// The drive in a seat beyond the layout's is out.
    pub fn successor_out(&mut self, seat: Seat) {
        self.out.insert(seat);
    }

    /// A drive is in a seat beyond the layout's, and answers.
    pub fn successor_in(&mut self, seat: Seat) {
        self.out.remove(&seat);
    }

    /// A drive is in the seat again, with nothing on it.
    pub fn seat_in(&mut self, seat: Seat) {
        self.out.remove(&seat);
        self.incomplete.insert(seat);
    }

    /// Another drive has the seat, and has these of the columns that were on the drive before it.
    pub fn succeed(
        &mut self,
        geometry: &Geometry,
        seat: Seat,
        filled: &BTreeSet<(GroupId, Column)>,
    ) {
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
            // What was being filled there was not the successor's: the pool gives the cell to another column.
            if entry.target.as_ref().is_some_and(here) {
                entry.target = None;
            }
        }
    }

    /// All home cells of the seat are current: removes the entries of single columns that are at home, or nowhere. The latter
    /// have no content: their groups' next volume finds them at home.
    pub fn seat_current(&mut self, geometry: &Geometry, seat: Seat) {
        self.out.remove(&seat);
        self.incomplete.remove(&seat);
        self.entries.retain(|&(group, column), entry| {
            let home = geometry.home(group, column);
            let elsewhere = entry.source.is_some_and(|cell| cell != home);
            home.seat != seat || elsewhere || entry.target.is_some()
        });
    }

    /// Groups from `first` on are given up.
    pub fn forget_groups(&mut self, first: GroupId) {
        self.entries.retain(|&(group, _), _| group < first);
    }

    /// Seats have become vacant: columns without content that were there are at their new homes.
    pub fn forget_vacated(&mut self, before: &Geometry, after: &Geometry) {
        let vacated = |seat: Seat| {
            let [was, is] = [before, after].map(|of| of.layout().vacant().contains(&seat));
            is && !was
        };
        self.entries.retain(|&(group, column), entry| {
            let nowhere = entry.source.is_none() && entry.target.is_none();
            !nowhere || !vacated(before.home(group, column).seat)
        });
    }

    /// From now on writes go to `target` too.
    pub fn begin_fill(
        &mut self,
        geometry: &Geometry,
        group: GroupId,
        column: Column,
        target: Cell,
    ) {
        let now = self.column(geometry, group, column);
        self.entries.insert(
            (group, column),
            ColumnState {
                target: Some(target),
                ..now
            },
        );
    }

    /// The fill was abandoned.
    pub fn abandon_fill(&mut self, geometry: &Geometry, group: GroupId, column: Column) {
        let now = self.column(geometry, group, column);
        self.entries.insert(
            (group, column),
            ColumnState {
                target: None,
                ..now
            },
        );
    }

    /// The group is made blank for new use: columns that had no cell before are at home like any others, if their
    /// seat's drive has its cells.
    pub fn begin_life(&mut self, group: GroupId) {
        let keys = (group, Column(0))..(group.next(), Column(0));
        let absent = { &mut self.entries }.extract_if(keys, |_, column| !column.writable());
        absent.for_each(drop);
    }

    /// The column is in `cell`, and nowhere else.
    pub fn settle(&mut self, group: GroupId, column: Column, cell: Cell) {
        self.entries.insert(
            (group, column),
            ColumnState {
                source: Some(cell),
                target: None,
            },
        );
    }
}
