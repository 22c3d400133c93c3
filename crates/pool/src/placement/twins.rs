//! What the successors of working drives have. A successor copies row for row: it has a column in the row in which the
//! drive has it.

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use layout::Cell;

use super::{Key, Placement, Record};

/// The successor of a working drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Twin {
    /// The seat whose drive is being replaced.
    pub(super) of: Seat,
    /// Columns that the successor has.
    has: BTreeMap<Key, Record>,
}

impl Placement {
    /// The drive in `with` is to succeed that of `seat`.
    pub(crate) fn twin_begins(&mut self, seat: Seat, with: Seat) {
        let has = BTreeMap::new();
        self.twins.insert(with, Twin { of: seat, has });
    }

    /// The successor takes its seat, or is out. Returns what it has.
    pub(crate) fn twin_ends(&mut self, with: Seat) -> Vec<Record> {
        let twin = self.twins.remove(&with);
        twin.map_or_else(Vec::new, |twin| twin.has.into_values().collect())
    }

    /// The seat of the successor of a seat's drive, if there is one.
    pub(crate) fn successor(&self, seat: Seat) -> Option<Seat> {
        let mut twins = self.twins.iter();
        twins
            .find(|(_, twin)| twin.of == seat)
            .map(|(&with, _)| with)
    }

    /// The cell to which a column is to be copied because its drive is being replaced.
    pub(crate) fn successor_cell(&self, key: Key) -> Option<Cell> {
        if self.twins.is_empty() {
            return None;
        }
        let Cell { seat, row } = self.place(key)?;
        let seat = self.successor(seat)?;
        let has = self.twins[&seat].has.contains_key(&key);
        (!has && !self.is_joining(seat)).then_some(Cell { seat, row })
    }

    /// The successor has a column in the cell that the column claimed.
    pub(crate) fn twin_has(&mut self, key: Key, cell: Cell) {
        self.claims.remove(&key);
        let generation = self.new_generation();
        if let Some(twin) = self.twins.get_mut(&cell.seat) {
            let record = Record {
                key,
                cell,
                generation,
            };
            twin.has.insert(key, record);
        }
    }

    /// A column moves to another seat than that of a successor that has it.
    pub(super) fn twins_lose(&mut self, key: Key, to: Seat) {
        for (&with, twin) in &mut self.twins {
            if to != with
                && let Some(record) = twin.has.remove(&key)
            {
                self.taken.remove(&record.cell);
            }
        }
    }

    /// Whether the successor has every column that is on the drive.
    pub(crate) fn twin_has_all(&self, with: Seat) -> bool {
        let Twin { of, has } = &self.twins[&with];
        self.columns_on(*of).all(|key| has.contains_key(&key))
    }

    /// Columns with a record, as the successor has them, that have no entry in its table yet: it needs one for each, also at
    /// home, for a column that has a record gets no other entry before its drive leaves. A column without content is there
    /// as soon as it has an entry: lanes write to both drives by now.
    #[must_use]
    pub(crate) fn twin_lacks(&mut self, with: Seat) -> Vec<Record> {
        let Twin { of: seat, has } = &self.twins[&with];
        let seat = *seat;
        let bare = { self.recorded_on(seat) }
            .filter(|(_, key)| !has.contains_key(key))
            .filter(|(_, key)| !self.groups.has(key.0) && !self.claims.contains_key(key));
        let bare: Vec<(Cell, Key)> = bare.collect();
        for (Cell { row, .. }, key) in bare {
            let cell = Cell { seat: with, row };
            self.taken.insert(cell, key);
            self.twin_has(key, cell);
        }
        let has = &self.twins[&with].has;
        let table = self.tables.get(&with);
        let entry = |row| table.and_then(|table| table.at(row));
        let lacks = |record: &&Record| {
            self.has_record(record.key) && entry(record.cell.row) != Some(record.entry())
        };
        has.values().filter(lacks).copied().collect()
    }

    /// The drive of `seat` is out: what its successor has are the places of these columns.
    pub(crate) fn twin_steps_in(&mut self, seat: Seat, has: &[Record]) {
        for &record in has {
            self.put(record.on(seat));
        }
    }

    /// The drive in `with` is that of `seat` from now on. `complete`: it has every column, and only those with a record
    /// keep one. A column without content that was about to be recorded elsewhere is nowhere until then.
    pub(crate) fn twin_moves(&mut self, with: Seat, seat: Seat, has: &[Record], complete: bool) {
        if let Some(table) = self.tables.remove(&with) {
            self.tables.insert(seat, table);
        }
        let cells: Vec<Cell> = self.cells_of(with).map(|(cell, _)| cell).collect();
        for cell in cells {
            self.taken.remove(&cell);
        }
        if complete {
            let has: BTreeSet<Key> = has.iter().map(|record| record.key).collect();
            let bare = { self.recorded_on(seat) }.filter(|(_, key)| !has.contains(key));
            let bare: Vec<(Cell, Key)> = bare.collect();
            for (cell, key) in bare {
                self.taken.remove(&cell);
                self.places.remove(&key);
            }
        }
        for record in has {
            if !complete || self.places.contains_key(&record.key) {
                self.put(record.on(seat));
            }
        }
    }
}

impl Record {
    /// The same row of another seat.
    pub(crate) const fn on(self, seat: Seat) -> Self {
        let cell = Cell {
            seat,
            row: self.cell.row,
        };
        Self { cell, ..self }
    }
}
