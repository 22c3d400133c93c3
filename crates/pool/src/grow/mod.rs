//! Pools of pieces that grow by drives: `docs/design/growing.md`.
//!
//! ```text
//!   Waiting ─► Recording ── entries durable ──► Switching ── labels durable ──► (columns are copied home)
//!      │            │                                                                   │
//!      └── a drive goes out: called off, the new drives are spares        every seat is complete again
//!                                                                                       ▼
//!                                                     Switching ◄── no column is away ── columns without content
//!                                                         │                              are recorded at home
//!                                                         └─► more groups, `grows` is over
//! ```
//!
//! Invariants:
//! - A table counts for the pool and its lanes from the moment on when it is durable, and for both at once.
//! - Homes change only to drives that join, and only for columns that have a record.
//! - A group is added only when no cell is the place of a column that has its home elsewhere.

mod error;

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{Instant, Seat};
use format::seeded::{self, SeededFault};
use layout::pool::{Move, Pool as Table};
use plan::Geometry;
use plan::action::{Command, GrownGeometry};
use uuid::Uuid;

use super::create::{TABLE_ROOM, to_hex};
use super::open::geometry_of;
use super::placement::Key;
use super::{
    NewDrive, OnDurable, Pool, PoolAction, PoolError, PoolFacts, Report, SeatState, Ticket,
};

pub use error::GrowError;

/// Drives that are to join, until the labels give them their seats.
#[derive(Clone, Debug)]
struct Joining {
    /// In the order of their new seats.
    drives: Vec<Uuid>,
    table: Table,
    moves: Vec<Move>,
    /// The columns that move have records, or get them.
    records: bool,
    ticket: Ticket,
}

/// What goes on before a table counts.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    joining: Option<Box<Joining>>,
    /// Groups of another table that is being written to the labels.
    switches: Option<u64>,
}

impl Growth {
    pub(super) const fn is_idle(&self) -> bool {
        self.joining.is_none() && self.switches.is_none()
    }

    /// How many of `groups`, those that the table has, volumes can get: those of a table that is being written, if that
    /// has fewer.
    pub(super) fn lasting(&self, groups: u64) -> u64 {
        self.switches.map_or(groups, |after| groups.min(after))
    }
}

/// What a growth would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowthPlan {
    /// The scheme afterwards, with all its numbers.
    pub scheme: String,
    /// Drives in the layout, before and after.
    pub drives: (u16, u16),
    /// Columns with content that are copied to the new drives.
    pub columns: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Bytes of user data that the pool has room for, before and after.
    pub capacity_bytes: (u64, u64),
}

/// A table that the pool could have.
struct Planned {
    table: Table,
    moves: Vec<Move>,
    groups: u64,
}

impl Pool {
    /// What an expansion by so many drives would do.
    ///
    /// # Errors
    /// When the pool cannot grow by them, whatever drives they are.
    pub fn plan_growth(&self, drives: usize) -> Result<GrowthPlan, GrowError> {
        self.check_may_grow()?;
        let planned = self.planned(drives)?;
        let columns = self.with_content(&planned.moves);
        let before = u16::try_from(self.cx.layout_seats().count()).expect("seats are 16 bits");
        let after = before + u16::try_from(drives).expect("they were counted");
        let group_bytes = self.cx.geometry.group_data_bytes();
        Ok(GrowthPlan {
            scheme: self.facts_with(&planned.table).scheme,
            drives: (before, after),
            columns,
            moved_bytes: columns * self.cx.geometry.plane_bytes(),
            capacity_bytes: (self.capacity_bytes(), planned.groups * group_bytes),
        })
    }

    /// Whether `drives` and the waiting spares in `waiting` may join the layout now.
    ///
    /// # Errors
    /// [`GrowError`]; nothing has changed.
    pub fn check_expand(&self, drives: &[NewDrive], waiting: &[Seat]) -> Result<(), GrowError> {
        self.plan_growth(drives.len() + waiting.len())?;
        let mut named = BTreeSet::new();
        for drive in drives {
            if !named.insert(&drive.path) {
                let drive = drive.path.clone();
                return Err(GrowError::Twice { drive });
            }
        }
        let needed_bytes = self.needed_bytes();
        let too_small = |path: &String, size_bytes| GrowError::TooSmall {
            path: path.clone(),
            size_bytes,
            needed_bytes,
        };
        if let Some(small) = drives.iter().find(|of| of.size_bytes < needed_bytes) {
            return Err(too_small(&small.path, small.size_bytes));
        }
        let mut seats = BTreeSet::new();
        for &seat in waiting {
            let facts = self.cx.facts.seats.get(seat.index());
            let Some(facts) = facts.filter(|facts| facts.is_free()) else {
                return Err(GrowError::NotWaiting { seat });
            };
            if !seats.insert(seat) {
                let drive = facts.path.clone();
                return Err(GrowError::Twice { drive });
            }
            if facts.size_bytes < needed_bytes {
                return Err(too_small(&facts.path, facts.size_bytes));
            }
        }
        Ok(())
    }

    /// Takes fresh drives and waiting spares into the layout: as many pieces as make all drives equally full move to them,
    /// and then there is room for more groups. The driver has attached `drives` to the seats behind the last one, in order.
    /// Done when the drives have their seats; the copy needs no further command, after a restart neither.
    ///
    /// # Errors
    /// [`PoolError::Grow`]; nothing has changed.
    pub fn expand(
        &mut self,
        now: Instant,
        drives: Vec<NewDrive>,
        waiting: &[Seat],
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        if self.cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        let refused = |error| PoolError::Grow { error };
        self.check_expand(&drives, waiting).map_err(refused)?;
        let planned = self.planned(drives.len() + waiting.len());
        let Planned { table, moves, .. } = planned.map_err(refused)?;
        let waiting = waiting.iter();
        let mut joining: Vec<Uuid> = { waiting }
            .map(|seat| self.cx.facts.seats[seat.index()].drive)
            .collect();
        let fresh = !drives.is_empty();
        for drive in drives {
            joining.push(drive.uuid);
            self.seat_behind(drive, None)?;
        }
        self.growth.joining = Some(Box::new(Joining {
            drives: joining,
            table,
            moves,
            records: false,
            ticket,
        }));
        if fresh {
            self.cx.commit(Vec::new());
        }
        self.advance();
        Ok(())
    }

    /// Whether an expansion is under way.
    #[must_use]
    pub const fn is_growing(&self) -> bool {
        self.cx.facts.grows || self.growth.joining.is_some()
    }

    /// Whether the pool may grow now, by whatever drives.
    fn check_may_grow(&self) -> Result<(), GrowError> {
        let scheme = || self.cx.facts.scheme.clone();
        let parsed = self.cx.facts.parsed_scheme().ok();
        if self.cx.geometry.layout().table().is_none() || self.cx.geometry.is_elastic() {
            return Err(GrowError::NotPieces { scheme: scheme() });
        }
        if parsed.is_none_or(|scheme| scheme.domains.is_some()) {
            return Err(GrowError::Domains { scheme: scheme() });
        }
        if self.is_growing() || self.growth.switches.is_some() {
            return Err(GrowError::Grows);
        }
        if let Some(seat) = self.is_to_leave() {
            return Err(GrowError::Leaving { seat });
        }
        for seat in self.cx.layout_seats() {
            match self.cx.facts.seats[seat.index()].state {
                SeatState::Current => {}
                state => {
                    let out = matches!(state, SeatState::Out { .. });
                    return Err(GrowError::NotWhole { seat, out });
                }
            }
            if self.promotions.contains_key(&seat) || self.successor(seat).is_some() {
                return Err(GrowError::Replacing { seat });
            }
        }
        let away: BTreeSet<u64> = self.cx.placement.away().map(|(_, key)| key.0).collect();
        if !away.is_empty() {
            let groups = away.len() as u64;
            return Err(GrowError::Incomplete { groups });
        }
        match self.lost_blocks() {
            0 => Ok(()),
            blocks => Err(GrowError::Lost { blocks }),
        }
    }

    pub(super) fn lost_blocks(&self) -> u64 {
        let losses = &self.cx.facts.losses;
        let listed = losses.ranges.iter().map(|&(_, _, blocks)| blocks);
        listed.sum::<u64>() + losses.unlisted_blocks
    }

    /// The table after a growth by so many drives.
    fn planned(&self, drives: usize) -> Result<Planned, GrowError> {
        if drives == 0 {
            return Err(GrowError::NoDrives);
        }
        let table = self.cx.geometry.layout().table().expect("it may grow");
        let after = usize::from(layout::Layout::drives(table)) + drives;
        if u16::try_from(after).is_err() {
            let why = format!("{after} drives are more than seats can count");
            return Err(GrowError::Layout { why });
        }
        let drives = u16::try_from(drives).expect("there are as many seats");
        let content = self.cx.placement.groups();
        let (table, moves) = table.grown(drives, &|group| content.has(group));
        let mut full = table.clone();
        full.fill_up();
        self.check_table(&full)?;
        geometry_of(&self.facts_with(&full)).map_err(|error| GrowError::Layout {
            why: error.to_string(),
        })?;
        Ok(Planned {
            groups: full.group_count(),
            table,
            moves,
        })
    }

    /// How many of these columns have content.
    fn with_content(&self, moves: &[Move]) -> u64 {
        let content = self.cx.placement.groups();
        let moves = moves.iter().filter(|piece| content.has(piece.group));
        moves.count() as u64
    }

    /// Whether a table fits into a label.
    fn check_table(&self, table: &Table) -> Result<(), GrowError> {
        let bytes = |groups: u64| 2 * table.stored_bytes(groups);
        let (groups, room) = (table.group_count(), TABLE_ROOM as u64);
        let mut larger = 1;
        while bytes(groups / larger) > room {
            larger *= 2;
        }
        if larger == 1 {
            return Ok(());
        }
        Err(GrowError::TableTooLarge {
            drives: layout::Layout::drives(table).into(),
            bytes: bytes(groups),
            room,
            piece_bytes: larger * self.cx.geometry.cell_bytes(),
        })
    }

    /// The facts with another table. All numbers of the scheme are given: their defaults depend on the number of drives.
    pub(super) fn facts_with(&self, table: &Table) -> PoolFacts {
        let mut facts = self.cx.facts.clone();
        let layout: &dyn layout::Layout = table;
        let mut scheme = facts.parsed_scheme().expect("the pool was opened with it");
        scheme.data = Some(layout.columns() - scheme.parity);
        scheme.drives = Some(layout.drives());
        scheme.spares = Some(table.preserved());
        facts.scheme = scheme.to_string();
        facts.layout_drives = layout.drives();
        facts.layout_table = layout.stored().map(|bytes| to_hex(&bytes));
        facts
    }

    /// Advances a growth that can proceed.
    pub(super) fn pump_growth(&mut self) {
        let Some(joining) = &self.growth.joining else {
            self.finish_growth();
            return;
        };
        if self.growth_fails(&joining.drives) {
            let error = GrowError::CalledOff;
            self.call_off_growth(PoolError::Grow { error });
            return;
        }
        if !self.fills.is_idle() || self.cx.placement.is_any_writing() {
            return;
        }
        if !joining.records {
            let keys = joining
                .moves
                .iter()
                .map(|piece| (piece.group, piece.column));
            let keys = keys.filter(|&key| !self.cx.placement.has_record(key));
            let keys = keys.skip(usize::from(seeded::is(SeededFault::HomeWithoutEntry)));
            let keys: Vec<Key> = keys.collect();
            self.growth.joining.as_mut().expect("just seen").records = true;
            self.record_all_at_home(keys);
            if seeded::is(SeededFault::LabelsBeforeEntries) {
                self.switch();
            }
        } else if self.cx.labels.is_settled() && self.journal_wipes.is_empty() {
            self.switch();
        }
    }

    /// Whether the growth cannot proceed: a drive of the layout is not complete, or one that was to join waits no more.
    fn growth_fails(&self, drives: &[Uuid]) -> bool {
        let whole = |seat: Seat| {
            let complete = self.cx.facts.seats[seat.index()].state == SeatState::Current;
            complete && self.successor(seat).is_none() && !self.promotions.contains_key(&seat)
        };
        let waits = |drive: &Uuid| {
            let mut seats = self.cx.facts.seats.iter();
            seats.any(|facts| facts.drive == *drive && facts.is_free())
        };
        !self.cx.layout_seats().all(whole) || !drives.iter().all(waits)
    }

    /// The growth does not take place: its drives stay as spares.
    pub(super) fn call_off_growth(&mut self, error: PoolError) {
        if let Some(joining) = self.growth.joining.take() {
            self.cx.done(joining.ticket, Err(error));
        }
    }

    /// Records columns at home that are there, or whose groups have no content: nothing is copied.
    pub(super) fn record_all_at_home(&mut self, keys: Vec<Key>) {
        if !keys.is_empty() && self.fills.is_idle() {
            // This is no rebuild that could end.
            self.fills.progress.ended.get_or_insert(self.cx.now);
        }
        for key in keys {
            self.record_unmoved_at_home(key);
        }
    }

    /// All entries are durable: one generation has the new table and the new seats.
    fn switch(&mut self) {
        let joining = self.growth.joining.as_ref().expect("drives are to join");
        let count = u16::try_from(joining.drives.len()).expect("seats are 16 bits");
        let table = self.cx.geometry.layout().table().expect("it grows");
        let seats: Vec<Seat> = table.seats_for(count).collect();
        let recorded = |piece: &Move| self.cx.placement.has_record((piece.group, piece.column));
        let wrong = seeded::is(SeededFault::HomeWithoutEntry)
            || seeded::is(SeededFault::LabelsBeforeEntries);
        assert!(
            wrong || joining.moves.iter().all(recorded),
            "all columns that move are recorded"
        );
        let joining = *self.growth.joining.take().expect("just seen");
        // Where a drive takes a vacant seat, the empty entry is in its seat of before.
        let mut emptied = Vec::new();
        for (&seat, drive) in seats.iter().zip(&joining.drives) {
            let from = self
                .cx
                .facts
                .seats()
                .find(|(_, facts)| facts.drive == *drive);
            let from = from.expect("it waits").0;
            if from != seat {
                self.exchange(seat, from);
                emptied.push(OnDurable::Vacate(from));
            }
        }
        self.cx.facts = self.facts_with(&joining.table);
        self.cx.facts.grows = true;
        for &seat in &seats {
            let number = self.cx.facts.number(seat);
            if number != seat.0 {
                self.cx.facts.joined.push((seat.0, number));
            }
        }
        for &seat in &seats {
            self.cx.facts.seats[seat.index()].state = SeatState::Filling;
            self.cx.placement.joins(seat);
            self.cx.placement.begin_table(seat);
        }
        self.cx.seats_changed();
        let mut effects = vec![self.grow_to()];
        for &seat in &seats {
            let drive = self.cx.facts.seats[seat.index()].drive;
            effects.push(OnDurable::Lanes(Command::SeatIn(seat)));
            effects.push(OnDurable::Report(Report::DriveIn { seat, drive }));
        }
        effects.extend([
            OnDurable::Report(Report::ExpandBegins {
                drives: seats.len() as u64,
                columns: self.with_content(&joining.moves),
            }),
            OnDurable::Requeue,
            OnDurable::Done(joining.ticket, Ok(())),
        ]);
        effects.extend(emptied);
        self.cx.commit(effects);
    }

    /// The table of the facts counts from the moment on when it is durable.
    pub(super) fn grow_to(&mut self) -> OnDurable {
        let geometry = geometry_of(&self.cx.facts).expect("it was checked when it was planned");
        self.growth.switches = Some(geometry.groups());
        OnDurable::Grow(Arc::new(geometry))
    }

    /// The facts with another table are durable.
    pub(super) fn grown(&mut self, geometry: Arc<Geometry>) {
        self.growth.switches = None;
        self.cx.placement.switch(&geometry);
        self.cx
            .tell_lanes(&Command::Grow(GrownGeometry(Arc::clone(&geometry))));
        self.cx.geometry = geometry;
        for seat in self.cx.layout_seats() {
            self.cx.placement.forget_records_at_home(seat);
        }
        self.cx.act(PoolAction::VolumesChanged);
    }

    /// The drives of two seats beyond the layout's change places; they keep their numbers.
    fn exchange(&mut self, a: Seat, b: Seat) {
        let numbers = [b, a].map(|seat| self.cx.facts.number(seat));
        if seeded::is(SeededFault::ExchangeWithoutSpare) {
            self.cx.facts.seats[a.index()] = self.cx.facts.seats[b.index()].clone();
        } else {
            self.cx.facts.seats.swap(a.index(), b.index());
        }
        self.cx.facts.set_numbers([a, b], numbers);
        for (seat, before) in [(a, b), (b, a)] {
            let facts = &mut self.cx.facts.seats[seat.index()];
            if facts.is_removed(before) {
                facts.replaces = Some(seat.0);
            }
        }
        self.cx.labels.exchange(a, b);
        self.suspicions.swap(a, b);
        self.cx.placement.exchange_tables(a, b);
        self.exchange_draining(a, b);
        self.cx.seats_changed();
        self.cx.act(PoolAction::Swap(a, b));
    }

    /// The new drives are complete: columns of groups without content are recorded at home, and when no column is away from
    /// home, the table gets as many groups as fit.
    fn finish_growth(&mut self) {
        let at_rest = self.cx.facts.grows
            && self.growth.switches.is_none()
            && self.cx.recovered
            && self.cx.closing.is_none()
            && self.fills.is_idle()
            && self.cx.labels.is_settled()
            && !self.volumes.is_initializing()
            && self.replacements.is_empty()
            && self.promotions.is_empty();
        if !at_rest || self.cx.placement.is_incomplete() || self.cx.placement.is_any_writing() {
            return;
        }
        let behind = self.cx.placement.left_behind();
        let behind: Vec<Key> = behind
            .filter(|_| !seeded::is(SeededFault::HomeOnTakenCell))
            .collect();
        if behind
            .iter()
            .any(|key| self.cx.placement.groups().has(key.0))
        {
            // It could not be copied so far.
            return;
        }
        if !behind.is_empty() {
            self.record_all_at_home(behind);
            return;
        }
        let mut table = { self.cx.geometry.layout().table() }
            .expect("only pools of pieces grow")
            .clone();
        let groups = table.fill_up();
        self.cx.facts = self.facts_with(&table);
        self.cx.facts.grows = false;
        let effects = vec![
            self.grow_to(),
            OnDurable::Report(Report::ExpandEnds {
                groups,
                bytes: groups * self.cx.geometry.group_data_bytes(),
            }),
        ];
        self.cx.commit(effects);
    }
}
