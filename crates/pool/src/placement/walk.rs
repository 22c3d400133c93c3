//! Columns by seat. Each walk costs the columns of the drives that it concerns: a pool of 384 drives has tens of millions
//! of groups, and a drive is in a fortieth of them.

use block::Seat;
use format::{Column, GroupId, SeatState};
use layout::Cell;

use super::{Key, Placement};

impl Placement {
    /// The column whose home is a cell.
    fn column_at(&self, cell: Cell) -> Option<Key> {
        self.geometry.column_at(cell)
    }

    /// Columns whose home is on a drive, with content or without, by row.
    pub(crate) fn homes_on(&self, seat: Seat) -> impl Iterator<Item = Key> + '_ {
        (0..self.geometry.rows()).filter_map(move |row| self.column_at(Cell { seat, row }))
    }

    /// The same of groups with content.
    fn filled_homes_on(&self, seat: Seat) -> impl Iterator<Item = Key> + '_ {
        let homes = self.homes_on(seat);
        let homes = homes.filter(|&(group, _)| self.groups.has(group));
        homes.inspect(|&(group, _)| touch(group))
    }

    /// Columns with content whose place is on a drive.
    pub(crate) fn columns_on(&self, seat: Seat) -> impl Iterator<Item = Key> + '_ {
        let complete = self.state(seat) == SeatState::Current;
        let homes = complete.then(|| self.filled_homes_on(seat));
        let homes = homes.into_iter().flatten();
        let unrecorded = homes.filter(|key| !self.places.contains_key(key));
        let is_place = |&(cell, key): &(Cell, Key)| self.is_recorded(key, cell);
        let recorded = self.cells_of(seat).filter(is_place).map(|(_, key)| key);
        let recorded = recorded.filter(|&(group, _)| self.groups.has(group));
        unrecorded.chain(recorded.inspect(|&(group, _)| touch(group)))
    }

    /// Seats of the layout whose drive is not complete. Vacant ones have no column.
    pub(super) fn incomplete(&self) -> impl Iterator<Item = Seat> + '_ {
        let vacant = self.geometry.layout().vacant();
        let seats = (0..self.geometry.layout().drives()).map(Seat);
        seats.filter(|seat| self.state(*seat) != SeatState::Current && !vacant.contains(seat))
    }

    /// Columns with content that no drive has.
    pub(crate) fn absent(&self) -> impl Iterator<Item = Key> + '_ {
        let homes = self
            .incomplete()
            .flat_map(|seat| self.filled_homes_on(seat));
        homes.filter(|key| !self.places.contains_key(key))
    }

    /// Groups with content that lack a column, each once.
    pub(crate) fn lacking(&self) -> impl Iterator<Item = GroupId> + '_ {
        let first = |&(group, column): &Key| {
            Column::each(Column(0)..column).all(|other| self.place((group, other)).is_some())
        };
        self.absent().filter(first).map(|(group, _)| group)
    }

    /// Columns with content that are not at home although their homes could take them.
    pub(crate) fn recorded_away(&self) -> impl Iterator<Item = Key> + '_ {
        let recorded = self.places.keys().copied();
        recorded.filter(|&key| self.groups.has(key.0) && self.is_away(key))
    }

    /// Columns with content whose drive is being replaced.
    pub(crate) fn columns_replaced(&self) -> impl Iterator<Item = Key> + '_ {
        let twins = self.twins.values();
        twins.flat_map(|twin| self.columns_on(twin.of))
    }

    /// Whether a column with content is missing at its home on a drive that is being filled, or its cell before may still be
    /// used. The search continues where a column was missing last.
    pub(crate) fn lacks_columns(&mut self, seat: Seat) -> bool {
        let from = self.missing.remove(&seat).unwrap_or(0);
        let is_missing = |&row: &u64| {
            let home = Cell { seat, row };
            let column = self.column_at(home).filter(|key| self.groups.has(key.0));
            // One that is on its way to another drive may be there next, although this drive does not leave any more.
            let is_here = |key: Key| {
                let moves = self.before.contains_key(&key) || self.claims.contains_key(&key);
                self.place(key) == Some(home) && !moves
            };
            column.is_some_and(|key| !is_here(key))
        };
        let mut rows = (from..self.geometry.rows()).chain(0..from);
        let row = rows.find(is_missing);
        self.missing.extend(row.map(|row| (seat, row)));
        row.is_some()
    }
}

#[cfg(not(test))]
pub(super) const fn touch(_group: GroupId) {}

#[cfg(test)]
pub(super) fn touch(group: GroupId) {
    TOUCHED.with_borrow_mut(|touched| touched.push(group));
}

#[cfg(test)]
thread_local! {
    static TOUCHED: std::cell::RefCell<Vec<GroupId>> = const { std::cell::RefCell::new(Vec::new()) };
}

/// Groups that have been looked at since the last call, on this thread.
#[cfg(test)]
pub(super) fn touched() -> std::collections::BTreeSet<GroupId> {
    TOUCHED.take().into_iter().collect()
}
