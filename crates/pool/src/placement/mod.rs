//! Where columns are. A column has a *home*, the cell that the layout names, and a *place*, the cell where it can be read.
//!
//! ```text
//!   home's drive            record                place             should be
//!   complete                none                  home              home
//!   out                     none                  none: absent      spare space (Rebuild)
//!   out                     in spare space        spare space       spare space
//!   filling                 in spare space        spare space       home (CopyBack)
//!   filling                 none                  none: absent      home (Rebuild)
//!   filling                 home                  home              home
//!   being replaced          none, or any          as above          also on the successor (Replace)
//!
//!   a move:  claim ─► a lane fills the cell ─► record ─► the entry is durable ─► settle ─► settled: the cell before is free
//!               │                │                              │
//!               └────────────────┴───────── release ◄───────────┘
//! ```
//!
//! | file | what |
//! | --- | --- |
//! | `table.rs` | the cell tables: records, durable on the drive that has the cell |
//! | `walk.rs` | columns by seat: what a drive has, what is absent, what is away |
//! | `groups.rs` | groups with content, in the volumes' order |
//! | `twins.rs` | what successors of working drives have |
//! | `returns.rs` | what returned drives hold |
//! | `joining.rs` | drives that lanes do not use yet |
//! | `check.rs` | the invariants, and the indexes beside a walk over all groups |
//!
//! Homes are not stored: `Layout::cell` says the home of a column, and `Layout::role` the column of a cell. So the columns
//! of a drive are found by its rows, however many groups there are, and homes change with the layout, in one call
//! ([`Placement::switch`]).
//!
//! Invariants:
//! - Only this machine writes its indexes. The pool reports what seats and groups are (`seats_are`, `groups_are`).
//! - A recorded place is a taken cell, and its entry is in the table of the cell's drive.
//! - A cell is taken for one column. A column has one place, and claims one cell at most.

mod check;
mod groups;
mod joining;
mod returns;
mod table;
#[cfg(test)]
mod tests;
mod twins;
mod walk;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::Seat;
use format::seeded::{self, SeededFault};
use format::{CellEntry, CellPage, Column, GroupId, PoolFacts, SeatState, Sequence};
use layout::Cell;
use layout::pool::{Elsewhere, Move};
use plan::Geometry;
use uuid::Uuid;

pub(crate) use self::check::Moves;
use self::check::Walked;
pub(crate) use self::groups::Groups;
use self::joining::Joining;
use self::returns::Return;
use self::table::CellTable;
pub(crate) use self::table::PageWrite;
use self::twins::Twin;
use crate::OutReason;

/// A column of a group.
pub(crate) type Key = (GroupId, Column);

/// The column that a table's piece is.
pub(crate) const fn key_of(piece: &Move) -> Key {
    (GroupId(piece.group), Column(piece.column))
}

/// A column and the cell that has it, as in a cell table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) key: Key,
    pub(crate) cell: Cell,
    pub(crate) generation: u32,
}

impl Record {
    const fn entry(self) -> CellEntry {
        CellEntry {
            group: self.key.0,
            column: self.key.1,
            generation: self.generation,
        }
    }
}

/// The plan for columns of the drive that leaves.
pub(crate) const LEAVING: &str = "leaving";

/// Where the columns of a drive that leaves go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeavingPlan {
    /// It is planned now.
    New,
    /// It was planned before, and some columns could not be copied.
    Stands,
    /// The other drives have no room for them.
    NoRoom,
}

/// What the facts say about a seat, as far as places of columns depend on it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Standing {
    state: SeatState,
    drive: Uuid,
    /// For a returned drive, by lane: its home cells have everything that was logged before this batch.
    holds: Option<Vec<Sequence>>,
}

/// Where columns are, and which cells are taken.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    geometry: Arc<Geometry>,
    standings: Vec<Standing>,
    groups: Groups,
    joining: Joining,
    /// Columns that are somewhere by an entry of a cell table.
    places: BTreeMap<Key, Record>,
    /// Cells that are places, are claimed, are on successors, or were places and may still be used.
    taken: BTreeMap<Cell, Key>,
    /// Columns that move: the cell that will be the place.
    claims: BTreeMap<Key, Cell>,
    /// Columns that have moved: the cell before, which operations may still use.
    before: BTreeMap<Key, Cell>,
    tables: BTreeMap<Seat, CellTable>,
    next_generation: u32,
    /// By the seat of the successor.
    twins: BTreeMap<Seat, Twin>,
    returns: BTreeMap<Seat, Return>,
    /// The seat whose drive leaves.
    leaving: Option<Seat>,
    /// Cells that were planned for columns, by what planned them ([`Self::plan`]).
    plans: BTreeMap<&'static str, BTreeMap<Key, Cell>>,
    /// Seats that are being filled: the row at which a column was missing last.
    missing: BTreeMap<Seat, u64>,
    /// Only while invariants are checked.
    walked: Option<Arc<Walked>>,
}

impl Placement {
    /// Every column of a drive that is complete is at home. The drives of `seats` have empty tables.
    pub(crate) fn new(
        geometry: &Arc<Geometry>,
        facts: &PoolFacts,
        seats: impl Iterator<Item = Seat>,
    ) -> Self {
        let mut placement = Self {
            geometry: Arc::clone(geometry),
            standings: Vec::new(),
            groups: Groups::of(facts),
            joining: Joining::default(),
            places: BTreeMap::new(),
            taken: BTreeMap::new(),
            claims: BTreeMap::new(),
            before: BTreeMap::new(),
            tables: seats.map(|seat| (seat, CellTable::default())).collect(),
            next_generation: 1,
            twins: BTreeMap::new(),
            returns: BTreeMap::new(),
            leaving: None,
            plans: BTreeMap::new(),
            missing: BTreeMap::new(),
            walked: None,
        };
        placement.seats_are(facts);
        placement
    }

    /// At opening: takes the newest entry of every column. Returns the cells whose entries are superseded.
    pub(crate) fn load(
        &mut self,
        facts: &PoolFacts,
        tables: &BTreeMap<Seat, Vec<CellPage>>,
    ) -> Vec<Cell> {
        let mut stale = Vec::new();
        for (&seat, pages) in tables {
            let table = CellTable::new(pages.clone());
            // It is to succeed another drive, or was: that one is missing now.
            let waits = facts.seats[seat.index()].state == SeatState::Waiting;
            for (row, entry) in table.entries() {
                let cell = Cell { seat, row };
                if waits {
                    // Columns that it got before the stop do not count.
                    stale.push(cell);
                    continue;
                }
                let record = Record {
                    key: (entry.group, entry.column),
                    cell,
                    generation: entry.generation,
                };
                let known = entry.group.0 < self.geometry.groups()
                    && entry.column.0 < self.geometry.layout().columns();
                let after = entry.generation.saturating_add(1);
                self.next_generation = self.next_generation.max(after);
                match self.places.get(&record.key) {
                    _ if !known => stale.push(cell),
                    Some(other) if other.generation >= entry.generation => stale.push(cell),
                    Some(other) => {
                        stale.push(other.cell);
                        self.taken.remove(&other.cell);
                        self.put(record);
                    }
                    None => self.put(record),
                }
            }
            self.tables.insert(seat, table);
        }
        stale
    }
}

/// What the pool reports.
impl Placement {
    /// Seats have other drives, or drives another state.
    pub(crate) fn seats_are(&mut self, facts: &PoolFacts) {
        let standings = facts.seats.iter().map(|seat| Standing {
            state: seat.state,
            drive: seat.drive,
            holds: seat.holds.clone(),
        });
        self.standings = standings.collect();
        self.leaving = facts.leaves.map(Seat);
    }

    /// Volumes have other groups, or groups have got content.
    pub(crate) fn groups_are(&mut self, facts: &PoolFacts) {
        self.groups = Groups::of(facts);
    }

    /// The layout has another table: homes change, places stay. Columns whose home changes are recorded by then.
    pub(crate) fn switch(&mut self, geometry: &Arc<Geometry>) {
        self.geometry = Arc::clone(geometry);
        self.missing.clear();
    }

    /// The facts bring in the seat's drive, and lanes do not use it yet.
    pub(crate) fn joins(&mut self, seat: Seat) {
        self.joining.begins(seat);
    }

    /// Lanes get the command that brings in the seat's drive.
    pub(crate) fn joined(&mut self, seat: Seat) {
        self.joining.ends(seat);
    }

    /// Whether the lanes have yet to get the command that brings in the seat's drive.
    pub(crate) fn is_joining(&self, seat: Seat) -> bool {
        self.joining.contains(seat)
    }
}

/// Where a column is, and where it should be.
impl Placement {
    /// The columns of a group.
    pub(crate) fn columns(&self) -> impl DoubleEndedIterator<Item = Column> + Clone + use<> {
        self.geometry.columns()
    }

    /// Groups of volumes that have content.
    pub(crate) const fn groups(&self) -> &Groups {
        &self.groups
    }

    fn state(&self, seat: Seat) -> SeatState {
        self.standings[seat.index()].state
    }

    /// The cell that the layout names for a column.
    pub(crate) fn home(&self, (group, column): Key) -> Cell {
        self.geometry.home(group, column)
    }

    /// Where a column can be read now, if anywhere.
    pub(crate) fn place(&self, key: Key) -> Option<Cell> {
        if let Some(record) = self.places.get(&key) {
            return Some(record.cell);
        }
        let home = self.home(key);
        (self.state(home.seat) == SeatState::Current).then_some(home)
    }

    /// Where a column is by an entry of a cell table.
    pub(crate) fn recorded(&self, (group, column): Key) -> Option<Cell> {
        { self.places.get(&(group, column)) }.map(|record| record.cell)
    }

    /// Whether a column is somewhere by an entry of a cell table.
    pub(crate) fn has_record(&self, key: Key) -> bool {
        self.places.contains_key(&key)
    }

    /// Columns that are away from home although their home drives are complete, also of groups without content.
    pub(crate) fn left_behind(&self) -> impl Iterator<Item = Key> + '_ {
        let recorded = self.places.keys().copied();
        recorded.filter(|&key| self.is_left_behind(key))
    }

    /// Whether the drive of a seat of the layout is not complete.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.incomplete().next().is_some()
    }

    /// Every column that has a record, in order.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.places.values().copied()
    }

    /// Columns of a group that no drive has.
    pub(crate) fn absent_in(&self, group: GroupId) -> usize {
        self.absent_without(group, &[])
    }

    /// Columns of a group that no drive has but those in `without`.
    pub(crate) fn absent_without(&self, group: GroupId, without: &[Seat]) -> usize {
        walk::touch(group);
        let at = |column| self.place((group, column));
        let is_absent =
            |&column: &Column| at(column).is_none_or(|cell| without.contains(&cell.seat));
        self.columns().filter(is_absent).count()
    }

    /// Columns of a group that can be read without the drives in `without`.
    pub(crate) fn readable(&self, group: GroupId, without: &[Seat]) -> BTreeSet<Column> {
        let at = |column| self.place((group, column));
        let readable =
            |&column: &Column| at(column).is_some_and(|cell| !without.contains(&cell.seat));
        self.columns().filter(readable).collect()
    }

    /// Whether a column is not at home although its home could take it.
    pub(crate) fn is_away(&self, key: Key) -> bool {
        let record = self.places.get(&key);
        record.is_some_and(|record| {
            let home = self.home(key);
            record.cell != home && self.takes_columns(home.seat)
        })
    }

    /// Plans where the columns go that are on the drive that leaves, unless some that were planned are still there: then
    /// these could not be copied.
    pub(crate) fn plan_leaving(&mut self, seat: Seat) -> LeavingPlan {
        if self.columns_planned(LEAVING).any(|key| self.leaves(key)) {
            return LeavingPlan::Stands;
        }
        let Some(planned) = self.moves_away_from(seat) else {
            return LeavingPlan::NoRoom;
        };
        self.plan(LEAVING, planned.into_iter().collect());
        LeavingPlan::New
    }

    /// Where the columns with content of a drive could go, if there is room.
    pub(crate) fn moves_away_from(&self, seat: Seat) -> Option<Vec<(Key, Cell)>> {
        let table = self.geometry.layout().table()?;
        let content = |group| self.groups.has(GroupId(group));
        let moves = table.vacating(seat, self, &content)?.into_iter();
        Some(moves.map(|piece| (key_of(&piece), piece.to)).collect())
    }

    /// Membership has changed: where columns go that leave is planned again.
    pub(crate) fn forget_leaving_plan(&mut self) {
        self.plan(LEAVING, BTreeMap::new());
    }

    /// Cells are planned for columns; a plan by the same name does not count any more. What a plan is for, a kind of move
    /// says.
    pub(crate) fn plan(&mut self, name: &'static str, moves: BTreeMap<Key, Cell>) {
        self.plans.insert(name, moves);
    }

    /// The cell that was planned for a column.
    pub(crate) fn planned(&self, name: &'static str, key: Key) -> Option<Cell> {
        self.plans.get(name)?.get(&key).copied()
    }

    /// Columns with a plan.
    pub(crate) fn columns_planned(&self, name: &'static str) -> impl Iterator<Item = Key> + '_ {
        let plan = self.plans.get(name).into_iter();
        plan.flat_map(|plan| plan.keys().copied())
    }

    /// The seat whose drive leaves.
    pub(crate) const fn leaving(&self) -> Option<Seat> {
        self.leaving
    }

    /// Whether a seat's drive is written to, and does not leave.
    pub(crate) fn takes_columns(&self, seat: Seat) -> bool {
        self.state(seat).takes_part() && self.leaving != Some(seat)
    }

    /// Whether a column is on the drive that leaves.
    pub(crate) fn leaves(&self, key: Key) -> bool {
        let place = || self.place(key).map(|cell| cell.seat);
        self.leaving.is_some() && place() == self.leaving
    }

    /// Whether a column is in spare space although its home drive is complete. That happens in groups without a volume:
    /// their columns are not copied back.
    pub(crate) fn is_left_behind(&self, key: Key) -> bool {
        self.state(self.home(key).seat) == SeatState::Current && self.is_away(key)
    }

    /// A free spare cell of the row of a column's home. No two columns of a group may be on one drive or move to one: they
    /// would be lost together.
    pub(crate) fn spare_for(&self, (group, column): Key) -> Option<Cell> {
        let others = self.columns().filter(|&other| other != column);
        let neighbours: Vec<Seat> = others
            .flat_map(|other| {
                let key = (group, other);
                let recorded = self.places.get(&key).map(|record| record.cell);
                let recorded = recorded.filter(|_| !seeded::is(SeededFault::ColumnsShareDrive));
                let claimed = self.claims.get(&key).copied();
                [Some(self.home(key)), recorded, claimed]
            })
            .flatten()
            .map(|cell| cell.seat)
            .collect();
        let out = |seat: Seat| {
            !self.takes_columns(seat) || self.is_joining(seat) || neighbours.contains(&seat)
        };
        let used = |cell| self.taken.contains_key(&cell);
        self.geometry
            .layout()
            .spare_for(group.0, column.0, &out, &used)
    }

    /// Whether an administrator has taken the seat's drive offline for maintenance: it is expected back, with its columns.
    pub(crate) fn is_expected_back(&self, seat: Seat) -> bool {
        let state = self.state(seat);
        matches!(
            state,
            SeatState::Out {
                reason: OutReason::Offline,
                ..
            }
        )
    }
}

/// What a table needs to know when a drive leaves.
impl Elsewhere for Placement {
    fn elsewhere(&self, group: u64, column: u16) -> Option<Cell> {
        self.recorded((GroupId(group), Column(column)))
    }

    fn is_used(&self, cell: Cell) -> bool {
        self.is_taken(cell) || !self.takes_columns(cell.seat) || self.is_joining(cell.seat)
    }

    fn has_piece(&self, group: u64, seat: Seat) -> bool {
        if seeded::is(SeededFault::ColumnsShareDrive) {
            return false;
        }
        let columns = self.columns().map(|column| (GroupId(group), column));
        let mut cells =
            columns.flat_map(|key| [self.recorded(key), self.claims.get(&key).copied()]);
        cells.any(|cell| cell.is_some_and(|cell| cell.seat == seat))
    }
}

/// The life of a move.
impl Placement {
    /// Whether a cell is taken.
    pub(crate) fn is_taken(&self, cell: Cell) -> bool {
        self.taken.contains_key(&cell)
    }

    /// A column moves to a cell. What a successor has of it elsewhere does not count any more.
    pub(crate) fn claim(&mut self, key: Key, cell: Cell) {
        self.twins_lose(key, cell.seat);
        self.taken.insert(cell, key);
        self.claims.insert(key, cell);
    }

    /// The column does not move: the cell is free, unless its drive went out meanwhile and another column has it.
    pub(crate) fn release(&mut self, key: Key, cell: Cell) {
        self.claims.remove(&key);
        self.give_up(key, cell);
    }

    fn give_up(&mut self, key: Key, cell: Cell) {
        if self.taken.get(&cell) == Some(&key) {
            self.taken.remove(&cell);
        }
    }

    fn new_generation(&mut self) -> u32 {
        let generation = self.next_generation;
        self.next_generation += 1;
        generation
    }

    /// The claimed cell has the column: the entry in the cell's table. Once that is durable, [`Self::page_written`] returns
    /// the record, to be settled.
    #[must_use]
    pub(crate) fn record(&mut self, key: Key, cell: Cell) -> Option<PageWrite> {
        let generation = self.new_generation();
        let record = Record {
            key,
            cell,
            generation,
        };
        self.enter(cell, Some(record.entry()), Some(record))
    }

    /// A record is durable: the cell is the column's place from now on. The cell before it stays taken until the column has
    /// settled.
    pub(crate) fn settle(&mut self, record: Record) {
        self.claims.remove(&record.key);
        if let Some(old) = self.places.get(&record.key) {
            self.before.insert(record.key, old.cell);
            if seeded::is(SeededFault::LeftCellUsedEarly) {
                self.taken.remove(&old.cell);
            }
        }
        self.put(record);
    }

    fn put(&mut self, record: Record) {
        self.places.insert(record.key, record);
        self.taken.insert(record.cell, record.key);
    }

    /// No operation uses the cell any more that a column had before: the cell is free, and its entry is removed.
    #[must_use]
    pub(crate) fn settled(&mut self, key: Key) -> Option<PageWrite> {
        let old = self.before.remove(&key)?;
        self.give_up(key, old);
        match self.tables.contains_key(&old.seat) {
            true => self.clear_entry(old),
            false => None,
        }
    }

    /// A drive is out: what was recorded there is gone, and no cell of it is taken.
    pub(crate) fn lose(&mut self, seat: Seat) {
        self.before.retain(|_, cell| cell.seat != seat);
        self.forget_cells(seat, |_, _| true);
    }

    /// Every column whose home is on the drive is there: these need no record. The seat is complete from now on.
    pub(crate) fn complete(&mut self, seat: Seat) {
        let geometry = Arc::clone(&self.geometry);
        self.forget_cells(seat, |cell, (group, column)| {
            geometry.home(group, column) == cell
        });
    }

    /// Groups from `count` on are given up: their columns are nowhere, and their entries are removed.
    #[must_use]
    pub(crate) fn forget_groups(&mut self, count: u64) -> Vec<PageWrite> {
        let of_groups = self.places.range((GroupId(count), Column(0))..);
        let records: Vec<Record> = of_groups.map(|(_, &record)| record).collect();
        let mut writes = Vec::new();
        for record in records {
            self.places.remove(&record.key);
            self.give_up(record.key, record.cell);
            writes.extend(self.clear_entry(record.cell));
        }
        writes
    }

    /// Homes have changed: columns that are at home by a record need none on a complete drive.
    pub(crate) fn forget_records_at_home(&mut self, seat: Seat) {
        if self.state(seat) != SeatState::Current {
            return;
        }
        let geometry = Arc::clone(&self.geometry);
        let at_home = { self.recorded_on(seat) }
            .filter(|&(cell, (group, column))| geometry.home(group, column) == cell);
        let at_home: Vec<(Cell, Key)> = at_home.collect();
        for (cell, key) in at_home {
            self.taken.remove(&cell);
            self.places.remove(&key);
        }
    }

    /// Cells of a drive for which `is_meant` is true are free, and are no places.
    fn forget_cells(&mut self, seat: Seat, is_meant: impl Fn(Cell, Key) -> bool) {
        let cells: Vec<(Cell, Key)> = self.cells_of(seat).collect();
        for (cell, key) in cells.into_iter().filter(|&(cell, key)| is_meant(cell, key)) {
            self.taken.remove(&cell);
            if self.is_recorded(key, cell) {
                self.places.remove(&key);
            }
        }
    }

    /// Whether a cell is a column's place by a record.
    fn is_recorded(&self, key: Key, cell: Cell) -> bool {
        let record = self.places.get(&key);
        record.is_some_and(|record| record.cell == cell)
    }

    /// The cells of a drive that are places by a record, by row.
    fn recorded_on(&self, seat: Seat) -> impl Iterator<Item = (Cell, Key)> + '_ {
        let cells = self.cells_of(seat);
        cells.filter(|&(cell, key)| self.is_recorded(key, cell))
    }

    /// The taken cells of a drive, by row.
    fn cells_of(&self, seat: Seat) -> impl Iterator<Item = (Cell, Key)> + '_ {
        let cell = |row| Cell { seat, row };
        let cells = self.taken.range(cell(0)..=cell(u64::MAX));
        cells.map(|(&cell, &key)| (cell, key))
    }
}
