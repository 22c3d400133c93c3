//! Pools of pieces that grow by drives: `docs/design/growing.md`.
//!
//! Inputs: drives that join ([`Growth::expand`]), what the other machines do ([`Others`], with each [`Growth::pump`]), a
//! table that is durable ([`Growth::grown`]). Outputs ([`Next`]): columns to record at home, seats that have exchanged their
//! drives. The machine also has the table that is being written while a drive leaves ([`Growth::switches`]).
//!
//! ```text
//! idle ── expand ──► recording
//! idle ── expand ──► waiting
//! waiting ── settled ──► recording
//! waiting ── close ──► idle
//! waiting ── drive_out ──► idle
//! recording ── settled ──► switching
//! recording ── close ──► idle
//! recording ── drive_out ──► idle
//! switching ── label ──► copying
//! copying ── entry ──► switching
//! switching ── label ──► idle
//! ```
//!
//! Waiting: the new drives are waiting spares, and cells are being filled or recorded. Recording: the columns whose home will
//! change get entries. Switching: the labels get another table. Copying: the facts say that the pool grows, and columns are
//! copied home. When every seat is complete again, columns without content are recorded at home; when no column is away, the
//! second switch gives the pool more groups. Settled, entry: no lane uses the last column's old cell any more, and its entry
//! is removed.
//!
//! A growth is called off when a drive goes out before the switch: the new drives are spares.
//!
//! Invariants:
//! - A table counts for the pool and its lanes from the moment on when it is durable, and for both at once.
//! - Homes change only to drives that join, and only for columns that have a record.
//! - A group is added only when no cell is the place of a column that has its home elsewhere.

mod error;

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{Instant, Seat};
use format::GroupId;
use format::seeded::{self, SeededFault};
use layout::pool::{Move, Pool as Table};
use plan::Geometry;
use plan::action::{Command, GrownGeometry};
use uuid::Uuid;

use super::context::Context;
use super::create::{TABLE_ROOM, to_hex};
use super::fill::kind;
use super::open::geometry_of;
use super::placement::{Key, key_of};
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
    ticket: Ticket,
}

/// What goes on before a table counts.
#[derive(Clone, Debug, Default)]
enum State {
    /// No table is on its way. If the pool grows by the facts, columns are copied home.
    #[default]
    Idle,
    Waiting(Box<Joining>),
    /// The columns that move get records.
    Recording(Box<Joining>),
    /// Another table with so many groups is being written to the labels.
    Switching {
        groups: u64,
    },
}

/// The growth of a pool.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    state: State,
}

/// What another machine is to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// These columns are recorded at home, where they are or where nothing has to be.
    Record(Vec<Key>),
    /// The drives of these pairs of seats have changed places, one pair after the other.
    Exchanged(Vec<(Seat, Seat)>),
}

/// What the pool's other machines do while its layout is to change.
#[derive(Clone, Debug, Default)]
pub(super) struct Others {
    /// Seats whose successors step in.
    pub(super) promoted: BTreeSet<Seat>,
    /// Drives are being replaced.
    pub(super) replacing: bool,
    /// Cells wait to be filled, are filled or recorded.
    pub(super) filling: bool,
    /// Journals of drives that return are being overwritten.
    pub(super) wiping: bool,
    /// Groups of volumes are being made blank.
    pub(super) initializing: bool,
    /// Volumes are being made or get larger.
    pub(super) making_volumes: bool,
    /// Drives are to join, or a table is being written.
    pub(super) growing: bool,
    /// The seat of a drive that leaves or will leave.
    pub(super) leaving: Option<Seat>,
}

impl Others {
    /// Whether the drive of a seat is being replaced, or its successor steps in.
    pub(super) fn replaces(&self, cx: &Context, seat: Seat) -> bool {
        self.promoted.contains(&seat) || cx.placement.successor(seat).is_some()
    }

    /// Whether no column moves or is recorded.
    pub(super) fn are_still(&self, cx: &Context) -> bool {
        !self.filling && !cx.placement.is_any_writing()
    }

    /// Whether nothing goes on that changes places or facts, beside the making of volumes.
    pub(super) fn are_at_rest(&self, cx: &Context) -> bool {
        cx.recovered
            && cx.closing.is_none()
            && !self.initializing
            && !self.replacing
            && self.promoted.is_empty()
            && cx.labels.is_settled()
            && self.are_still(cx)
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

impl Growth {
    pub(super) const fn is_idle(&self) -> bool {
        matches!(self.state, State::Idle)
    }

    /// Whether an expansion is under way.
    const fn is_growing(&self, cx: &Context) -> bool {
        cx.facts.grows || matches!(self.state, State::Waiting(_) | State::Recording(_))
    }

    /// How many of `groups`, those that the table has, volumes can get: those of a table that is being written, if that
    /// has fewer.
    pub(super) fn lasting(&self, groups: u64) -> u64 {
        match self.state {
            State::Switching { groups: after } => groups.min(after),
            State::Idle | State::Waiting(_) | State::Recording(_) => groups,
        }
    }

    /// Whether `drives` and the waiting spares in `waiting` may join the layout now. Returns the table with them.
    fn check(
        &self,
        cx: &Context,
        others: &Others,
        drives: &[NewDrive],
        waiting: &[Seat],
    ) -> Result<Planned, GrowError> {
        self.check_may_grow(cx, others)?;
        let planned = cx.planned(drives.len() + waiting.len())?;
        let mut named = BTreeSet::new();
        for drive in drives {
            if !named.insert(&drive.path) {
                let drive = drive.path.clone();
                return Err(GrowError::Twice { drive });
            }
        }
        let needed_bytes = cx.facts.used_bytes();
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
            let facts = cx.facts.seats.get(seat.index());
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
        Ok(planned)
    }

    /// Whether the pool may grow now, by whatever drives.
    fn check_may_grow(&self, cx: &Context, others: &Others) -> Result<(), GrowError> {
        let scheme = || cx.facts.scheme.clone();
        let parsed = cx.facts.parsed_scheme().ok();
        if cx.geometry.layout().table().is_none() || cx.geometry.is_elastic() {
            return Err(GrowError::NotPieces { scheme: scheme() });
        }
        if parsed.is_none_or(|scheme| scheme.domains.is_some()) {
            return Err(GrowError::Domains { scheme: scheme() });
        }
        if cx.facts.grows || !self.is_idle() {
            return Err(GrowError::Grows);
        }
        if let Some(seat) = others.leaving {
            return Err(GrowError::Leaving { seat });
        }
        for seat in cx.layout_seats() {
            match cx.state(seat) {
                SeatState::Current => {}
                state => {
                    let out = matches!(state, SeatState::Out { .. });
                    return Err(GrowError::NotWhole { seat, out });
                }
            }
            if others.replaces(cx, seat) {
                return Err(GrowError::Replacing { seat });
            }
        }
        let away: BTreeSet<GroupId> = kind::away(&cx.placement).map(|(_, key)| key.0).collect();
        if !away.is_empty() {
            let groups = away.len() as u64;
            return Err(GrowError::Incomplete { groups });
        }
        match cx.lost_blocks() {
            0 => Ok(()),
            blocks => Err(GrowError::Lost { blocks }),
        }
    }

    /// These drives, which wait in seats of the pool, join the layout.
    fn expand(&mut self, planned: Planned, drives: Vec<Uuid>, ticket: Ticket) {
        let Planned { table, moves, .. } = planned;
        self.state = State::Waiting(Box::new(Joining {
            drives,
            table,
            moves,
            ticket,
        }));
    }

    /// Advances a growth that can proceed.
    pub(super) fn pump(&mut self, cx: &mut Context, others: &Others) -> Option<Next> {
        match std::mem::take(&mut self.state) {
            State::Idle => self.finish(cx, others),
            State::Waiting(joining) | State::Recording(joining) if joining.fails(cx, others) => {
                let error = GrowError::CalledOff;
                cx.done(joining.ticket, Err(PoolError::Grow { error }));
                None
            }
            State::Waiting(joining) if others.are_still(cx) => {
                let moves = joining.moves.iter();
                let keys = moves.map(key_of);
                let keys = keys.filter(|&key| !cx.placement.has_record(key));
                let keys = keys.skip(usize::from(seeded::is(SeededFault::HomeWithoutEntry)));
                let keys: Vec<Key> = keys.collect();
                self.state = State::Recording(joining);
                Some(Next::Record(keys))
            }
            State::Recording(joining)
                if others.are_still(cx) && cx.labels.is_settled() && !others.wiping =>
            {
                Some(self.switch(cx, &joining))
            }
            state => {
                self.state = state;
                None
            }
        }
    }

    /// The growth does not take place: its drives stay as spares.
    pub(super) fn call_off(&mut self, cx: &mut Context, error: PoolError) {
        if let State::Waiting(joining) | State::Recording(joining) = &self.state {
            cx.done(joining.ticket, Err(error));
            self.state = State::Idle;
        }
    }

    /// The seeded fault: the labels do not wait for the entries.
    fn switch_early(&mut self, cx: &mut Context) -> Option<Next> {
        let State::Recording(joining) = &self.state else {
            return None;
        };
        let joining = joining.clone();
        Some(self.switch(cx, &joining))
    }

    /// All entries are durable: one generation has the new table and the new seats.
    fn switch(&mut self, cx: &mut Context, joining: &Joining) -> Next {
        let count = u16::try_from(joining.drives.len()).expect("seats are 16 bits");
        let table = cx.geometry.layout().table().expect("it grows");
        let seats: Vec<Seat> = table.seats_for(count).collect();
        let recorded = |piece: &Move| cx.placement.has_record(key_of(piece));
        let wrong = seeded::is(SeededFault::HomeWithoutEntry)
            || seeded::is(SeededFault::LabelsBeforeEntries);
        assert!(
            wrong || joining.moves.iter().all(recorded),
            "all columns that move are recorded"
        );
        let mut exchanged = Vec::new();
        for (&seat, drive) in seats.iter().zip(&joining.drives) {
            let from = { cx.facts.seats() }.find(|(_, facts)| facts.drive == *drive);
            let from = from.expect("it waits").0;
            if from != seat {
                cx.exchange(seat, from);
                exchanged.push((seat, from));
            }
        }
        cx.facts = cx.facts_with(&joining.table);
        cx.facts.grows = true;
        for &seat in &seats {
            let number = cx.facts.number(seat);
            if number != seat.0 {
                cx.facts.joined.push((seat.0, number));
            }
        }
        for &seat in &seats {
            cx.facts.seats[seat.index()].state = SeatState::Filling;
            cx.placement.joins(seat);
            cx.placement.begin_table(seat);
        }
        cx.seats_changed();
        let mut effects = vec![self.switches(cx)];
        for &seat in &seats {
            let drive = cx.facts.seats[seat.index()].drive;
            effects.push(OnDurable::Lanes(Command::SeatIn(seat)));
            effects.push(OnDurable::Report(Report::DriveIn { seat, drive }));
        }
        effects.extend([
            OnDurable::Report(Report::ExpandBegins {
                drives: seats.len() as u64,
                columns: cx.with_content(&joining.moves),
            }),
            OnDurable::Requeue,
            OnDurable::Done(joining.ticket, Ok(())),
        ]);
        // Where a drive takes a vacant seat, the empty entry is in its seat of before.
        effects.extend(exchanged.iter().map(|&(_, from)| OnDurable::Vacate(from)));
        cx.commit(effects);
        Next::Exchanged(exchanged)
    }

    /// The table of the facts counts from the moment on when it is durable.
    pub(super) fn switches(&mut self, cx: &Context) -> OnDurable {
        let geometry = geometry_of(&cx.facts).expect("it was checked when it was planned");
        let groups = geometry.groups();
        self.state = State::Switching { groups };
        OnDurable::Grow(Arc::new(geometry))
    }

    /// The facts with another table are durable.
    pub(super) fn grown(&mut self, cx: &mut Context, geometry: Arc<Geometry>) {
        self.state = State::Idle;
        cx.placement.switch(&geometry);
        cx.tell_lanes(&Command::Grow(GrownGeometry(Arc::clone(&geometry))));
        cx.geometry = geometry;
        for seat in cx.layout_seats() {
            cx.placement.forget_records_at_home(seat);
        }
        cx.act(PoolAction::VolumesChanged);
    }

    /// The new drives are complete: columns of groups without content are recorded at home, and when no column is away from
    /// home, the table gets as many groups as fit.
    fn finish(&mut self, cx: &mut Context, others: &Others) -> Option<Next> {
        if !cx.facts.grows || !others.are_at_rest(cx) || cx.placement.is_incomplete() {
            return None;
        }
        let behind = cx.placement.left_behind();
        let behind: Vec<Key> = behind
            .filter(|_| !seeded::is(SeededFault::HomeOnTakenCell))
            .collect();
        if behind.iter().any(|key| cx.placement.groups().has(key.0)) {
            // It could not be copied so far.
            return None;
        }
        if !behind.is_empty() {
            return Some(Next::Record(behind));
        }
        let mut table = { cx.geometry.layout().table() }
            .expect("only pools of pieces grow")
            .clone();
        let groups = table.fill_up();
        cx.facts = cx.facts_with(&table);
        cx.facts.grows = false;
        let effects = vec![
            self.switches(cx),
            OnDurable::Report(Report::ExpandEnds {
                groups,
                bytes: groups * cx.geometry.group_data_bytes(),
            }),
        ];
        cx.commit(effects);
        None
    }
}

impl Joining {
    /// Whether the growth cannot proceed: a drive of the layout is not complete, or one that was to join waits no more.
    fn fails(&self, cx: &Context, others: &Others) -> bool {
        let whole = |seat: Seat| cx.state(seat) == SeatState::Current && !others.replaces(cx, seat);
        let waits = |drive: &Uuid| {
            let mut seats = cx.facts.seats.iter();
            seats.any(|facts| facts.drive == *drive && facts.is_free())
        };
        !cx.layout_seats().all(whole) || !self.drives.iter().all(waits)
    }
}

/// Tables that the pool could have.
impl Context {
    pub(super) fn lost_blocks(&self) -> u64 {
        let losses = &self.facts.losses;
        let listed = losses.ranges.iter().map(|&(_, _, blocks)| blocks);
        listed.sum::<u64>() + losses.unlisted_blocks
    }

    /// The table after a growth by so many drives.
    fn planned(&self, drives: usize) -> Result<Planned, GrowError> {
        if drives == 0 {
            return Err(GrowError::NoDrives);
        }
        let table = self.geometry.layout().table().expect("it may grow");
        let after = usize::from(layout::Layout::drives(table)) + drives;
        if u16::try_from(after).is_err() {
            let why = format!("{after} drives are more than seats can count");
            return Err(GrowError::Layout { why });
        }
        let drives = u16::try_from(drives).expect("there are as many seats");
        let content = self.placement.groups();
        let (table, moves) = table.grown(drives, &|group| content.has(GroupId(group)));
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
        let content = self.placement.groups();
        let moves = moves
            .iter()
            .filter(|piece| content.has(GroupId(piece.group)));
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
            piece_bytes: larger * self.geometry.cell_bytes(),
        })
    }

    /// The facts with another table. All numbers of the scheme are given: their defaults depend on the number of drives.
    pub(super) fn facts_with(&self, table: &Table) -> PoolFacts {
        let mut facts = self.facts.clone();
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

    /// The drives of two seats beyond the layout's change places; they keep their numbers.
    fn exchange(&mut self, a: Seat, b: Seat) {
        let numbers = [b, a].map(|seat| self.facts.number(seat));
        if seeded::is(SeededFault::ExchangeWithoutSpare) {
            self.facts.seats[a.index()] = self.facts.seats[b.index()].clone();
        } else {
            self.facts.seats.swap(a.index(), b.index());
        }
        self.facts.set_numbers([a, b], numbers);
        for (seat, before) in [(a, b), (b, a)] {
            let facts = &mut self.facts.seats[seat.index()];
            if facts.is_removed(before) {
                facts.replaces = Some(seat.0);
            }
        }
        self.labels.exchange(a, b);
        self.placement.exchange_tables(a, b);
        self.seats_changed();
        self.act(PoolAction::Swap(a, b));
    }
}

impl Pool {
    /// What an expansion by so many drives would do.
    ///
    /// # Errors
    /// When the pool cannot grow by them, whatever drives they are.
    pub fn plan_growth(&self, drives: usize) -> Result<GrowthPlan, GrowError> {
        self.growth.check_may_grow(&self.cx, &self.others())?;
        let planned = self.cx.planned(drives)?;
        let columns = self.cx.with_content(&planned.moves);
        let before = u16::try_from(self.cx.layout_seats().count()).expect("seats are 16 bits");
        let after = before + u16::try_from(drives).expect("they were counted");
        let group_bytes = self.cx.geometry.group_data_bytes();
        Ok(GrowthPlan {
            scheme: self.cx.facts_with(&planned.table).scheme,
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
        let others = self.others();
        let planned = self.growth.check(&self.cx, &others, drives, waiting);
        planned.map(|_| ())
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
        let others = self.others();
        let planned = self.growth.check(&self.cx, &others, &drives, waiting);
        let planned = planned.map_err(|error| PoolError::Grow { error })?;
        let waiting = waiting.iter();
        let mut joining: Vec<Uuid> = { waiting }
            .map(|seat| self.cx.facts.seats[seat.index()].drive)
            .collect();
        let fresh = !drives.is_empty();
        for drive in drives {
            joining.push(drive.uuid);
            self.cx.seat_behind(drive, None)?;
        }
        self.growth.expand(planned, joining, ticket);
        if fresh {
            self.cx.commit(Vec::new());
        }
        self.advance();
        Ok(())
    }

    /// Whether an expansion is under way.
    #[must_use]
    pub const fn is_growing(&self) -> bool {
        self.growth.is_growing(&self.cx)
    }

    /// What a change of the layout has to wait for.
    pub(super) fn others(&self) -> Others {
        Others {
            promoted: self.replacements.promoted_seats().collect(),
            replacing: !self.replacements.is_idle(),
            filling: !self.fills.is_idle(),
            wiping: !self.journal_wipes.is_idle(),
            initializing: self.volumes.is_initializing(),
            making_volumes: !self.volumes.is_idle(),
            growing: !self.growth.is_idle(),
            leaving: self.is_to_leave(),
        }
    }

    /// Advances a growth that can proceed.
    pub(super) fn pump_growth(&mut self) {
        let others = self.others();
        let mut next = self.growth.pump(&mut self.cx, &others);
        if let Some(Next::Record(keys)) = next {
            self.record_all_at_home(keys);
            next = seeded::is(SeededFault::LabelsBeforeEntries)
                .then(|| self.growth.switch_early(&mut self.cx))
                .flatten();
        }
        if let Some(Next::Exchanged(seats)) = next {
            for (seat, from) in seats {
                self.suspicions.swap(seat, from);
                self.draining.exchange(&self.cx.writes, seat, from);
            }
        }
    }

    /// Records columns at home that are there, or whose groups have no content: nothing is copied.
    pub(super) fn record_all_at_home(&mut self, keys: Vec<Key>) {
        if !keys.is_empty() && self.fills.is_idle() {
            // This is no rebuild that could end.
            self.fills.progress.ended.get_or_insert(self.cx.now);
        }
        for key in keys {
            (self.fills).record_unmoved_at_home(&mut self.cx, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use format::Column;

    use super::*;
    use crate::fixture::{Walk, commands, context, drive, filled, is_out, spec};
    use crate::{OutReason, PoolSpec};

    const T: Ticket = Ticket(5);

    fn state(pool: &Pool) -> &'static str {
        match pool.growth.state {
            State::Idle if pool.cx.facts.grows => "copying",
            State::Idle => "idle",
            State::Waiting(_) => "waiting",
            State::Recording(_) => "recording",
            State::Switching { .. } => "switching",
        }
    }

    /// Six drives, and two waiting spares in the seats 6 and 7.
    fn six() -> Pool {
        let spec = PoolSpec {
            spares: vec![drive(20), drive(21)],
            ..spec("ddp:2d:1p", 6)
        };
        filled(&spec, 5)
    }

    fn expand(pool: &mut Pool) {
        pool.expand(Instant::ZERO, vec![drive(40)], &[], T).unwrap();
    }

    /// A pool in which drives are to join, and a column is being recorded.
    fn waiting() -> Pool {
        let mut pool = six();
        pool.record_all_at_home(vec![(GroupId(0), Column(0))]);
        expand(&mut pool);
        pool
    }

    fn goes_out(pool: &mut Pool) {
        let reason = OutReason::FailedByAdministrator;
        pool.fail_drive(Instant::ZERO, Seat(1), reason, false, Ticket(6))
            .unwrap();
    }

    /// The outcome of the expansion, if it has ended.
    fn outcome(actions: &[PoolAction]) -> Option<&Result<(), PoolError>> {
        actions.iter().find_map(|action| match action {
            PoolAction::Done(T, outcome) => Some(outcome),
            _ => None,
        })
    }

    /// The pool's actions up to a state.
    fn until(pool: &mut Pool, to: &str) -> Vec<PoolAction> {
        Walk::new(state).until(pool, to)
    }

    fn planned(cx: &Context) -> (Planned, Vec<Uuid>) {
        (cx.planned(1).unwrap(), vec![Uuid::from_u128(20)])
    }

    /// A context in which a spare is to join, and no column that moves lacks a record.
    fn recording() -> (Growth, Context) {
        let mut cx = six().cx;
        let mut growth = Growth::default();
        let (mut planned, drives) = planned(&cx);
        planned.moves.clear();
        growth.expand(planned, drives, T);
        let next = growth.pump(&mut cx, &Others::default());
        assert_eq!(next, Some(Next::Record(Vec::new())));
        (growth, cx)
    }

    /// The drawing in the head of this file is what the pool does.
    #[test]
    fn the_states_of_a_growth_are_those_of_the_drawing() {
        let mut walk = Walk::new(state);
        let mut pool = six();
        walk.input(&mut pool, "expand", expand);
        for to in ["switching", "copying", "switching", "idle"] {
            walk.until(&mut pool, to);
        }
        let close = |pool: &mut Pool| pool.close(Instant::ZERO, Ticket(6));
        for busy in [false, true] {
            for (event, ends) in [("close", close as fn(&mut Pool)), ("drive_out", goes_out)] {
                for before in ["waiting", "recording"] {
                    let mut pool = six();
                    if busy {
                        pool.record_all_at_home(vec![(GroupId(0), Column(0))]);
                    }
                    walk.input(&mut pool, "expand", expand);
                    if busy || before == "recording" {
                        walk.until(&mut pool, before);
                        walk.input(&mut pool, event, ends);
                    }
                }
            }
        }
        walk.assert_drawn_in(include_str!("mod.rs"));
    }

    #[test]
    fn no_column_gets_an_entry_for_a_growth_while_another_is_recorded() {
        let mut pool = waiting();
        assert_eq!(state(&pool), "waiting");
        let moved = |pool: &Pool| match &pool.growth.state {
            State::Waiting(joining) | State::Recording(joining) => joining.moves.clone(),
            _ => panic!("{}", state(pool)),
        };
        let bare = |pool: &Pool, piece: &Move| {
            !pool
                .cx
                .placement
                .is_taken(pool.cx.placement.home(key_of(piece)))
        };
        let moves = moved(&pool);
        let others: Vec<&Move> = { moves.iter() }
            .filter(|piece| (piece.group, piece.column) != (0, 0))
            .collect();
        assert!(!others.is_empty() && others.iter().all(|piece| bare(&pool, piece)));
        until(&mut pool, "recording");
        assert!(!others.iter().any(|piece| bare(&pool, piece)));
    }

    #[test]
    fn before_the_switch_every_column_that_moves_has_an_entry_and_the_table_is_the_old_one() {
        let mut pool = six();
        let before = pool.cx.facts.layout_table.clone();
        expand(&mut pool);
        let State::Recording(joining) = pool.growth.state.clone() else {
            panic!("{}", state(&pool));
        };
        assert_eq!(pool.cx.facts.layout_table, before);
        until(&mut pool, "switching");
        assert_ne!(pool.cx.facts.layout_table, before);
        let mut moves = joining.moves.iter();
        assert!(moves.all(|piece| pool.cx.placement.has_record(key_of(piece))));
    }

    #[test]
    fn the_table_counts_and_the_command_is_done_when_the_labels_have_it() {
        let mut pool = six();
        expand(&mut pool);
        let actions = until(&mut pool, "switching");
        assert_eq!(pool.geometry().layout().drives(), 6);
        assert_eq!(outcome(&actions), None);
        until(&mut pool, "copying");
        assert_eq!(pool.geometry().layout().drives(), 7);
        let actions = until(&mut pool, "switching");
        assert_eq!(outcome(&actions), Some(&Ok(())));
    }

    #[test]
    fn more_groups_are_there_when_no_column_is_away() {
        let mut pool = six();
        let before = pool.geometry().groups();
        expand(&mut pool);
        until(&mut pool, "copying");
        assert_eq!(pool.geometry().groups(), before);
        assert_ne!(kind::away(&pool.cx.placement).count(), 0);
        until(&mut pool, "switching");
        assert_eq!(pool.cx.placement.left_behind().count(), 0);
        until(&mut pool, "idle");
        assert!(pool.geometry().groups() > before);
    }

    #[test]
    fn a_drive_that_goes_out_calls_the_growth_off_and_the_new_drive_waits_as_a_spare() {
        let mut pool = six();
        expand(&mut pool);
        goes_out(&mut pool);
        assert!(!pool.is_growing());
        assert!(pool.cx.facts.seats[8].is_free());
        let error = PoolError::Grow {
            error: GrowError::CalledOff,
        };
        let done = PoolAction::Done(T, Err(error));
        assert!(pool.cx.actions.contains(&done));
    }

    #[test]
    fn a_spare_that_is_removed_before_it_has_its_seat_calls_the_growth_off() {
        let mut pool = six();
        pool.expand(Instant::ZERO, Vec::new(), &[Seat(7)], T)
            .unwrap();
        pool.remove_spare(Instant::ZERO, Seat(6), Ticket(6))
            .unwrap();
        assert_eq!(state(&pool), "recording", "the other one is to join");
        pool.remove_spare(Instant::ZERO, Seat(7), Ticket(6))
            .unwrap();
        assert_eq!(state(&pool), "idle");
    }

    #[test]
    fn a_waiting_spare_joins_in_the_first_seat_behind_and_keeps_its_number() {
        let mut pool = six();
        pool.expand(Instant::ZERO, Vec::new(), &[Seat(7)], T)
            .unwrap();
        let mut actions = until(&mut pool, "switching");
        actions.extend(until(&mut pool, "copying"));
        let swaps = actions
            .iter()
            .filter(|action| matches!(action, PoolAction::Swap(..)));
        let swaps: Vec<_> = swaps.collect();
        assert_eq!(swaps, [&PoolAction::Swap(Seat(6), Seat(7))]);
        let facts = pool.facts();
        assert_eq!(facts.seats[6].drive, Uuid::from_u128(21));
        assert_eq!([6, 7].map(|seat| facts.number(Seat(seat))), [7, 6]);
        assert_eq!(facts.joined, [(6, 7)]);
    }

    #[test]
    fn closing_calls_off_a_growth_before_the_switch_and_none_after_it() {
        let close = |mut growth: Growth, mut cx: Context| {
            growth.call_off(&mut cx, PoolError::Closing);
            cx.actions
                .contains(&PoolAction::Done(T, Err(PoolError::Closing)))
        };
        let (mut growth, mut cx) = recording();
        assert!(close(growth.clone(), cx.clone()));
        growth.pump(&mut cx, &Others::default());
        assert!(matches!(growth.state, State::Switching { .. }));
        assert!(!close(growth, cx));
    }

    #[test]
    fn the_switch_waits_for_fills_and_for_journals_that_are_overwritten() {
        let (growth, cx) = recording();
        let switches = |others: &Others| {
            let (mut growth, mut cx) = (growth.clone(), cx.clone());
            let next = growth.pump(&mut cx, others);
            assert_eq!(next.is_some(), cx.facts.grows);
            next
        };
        for waits in [
            Others {
                filling: true,
                ..Others::default()
            },
            Others {
                wiping: true,
                ..Others::default()
            },
        ] {
            assert_eq!(switches(&waits), None, "{waits:?}");
        }
        let next = switches(&Others::default());
        assert_eq!(next, Some(Next::Exchanged(Vec::new())));
    }

    #[test]
    fn a_successor_that_steps_in_calls_the_growth_off() {
        let (mut growth, mut cx) = recording();
        let others = Others {
            promoted: BTreeSet::from([Seat(3)]),
            ..Others::default()
        };
        assert_eq!(growth.check_may_grow(&cx, &others), Err(GrowError::Grows));
        assert_eq!(growth.pump(&mut cx, &others), None);
        assert!(growth.is_idle());
        let seat = Seat(3);
        let error = Err(GrowError::Replacing { seat });
        assert_eq!(growth.check_may_grow(&cx, &others), error);
    }

    #[test]
    fn volumes_get_no_group_that_another_table_lacks() {
        let mut cx = context("ddp:2d:1p", 6, 2);
        let mut growth = Growth::default();
        let groups = cx.geometry.groups();
        assert_eq!(growth.lasting(groups), groups);
        let mut fewer = cx.geometry.layout().table().unwrap().clone();
        fewer.keep_groups(groups - 3);
        cx.facts = cx.facts_with(&fewer);
        let OnDurable::Grow(geometry) = growth.switches(&cx) else {
            panic!("a table is written");
        };
        assert_eq!(growth.lasting(groups), groups - 3);
        assert_eq!(growth.lasting(5), 5);
        growth.grown(&mut cx, geometry);
        assert_eq!(cx.geometry.groups(), groups - 3);
        assert_eq!(
            growth.lasting(groups),
            groups,
            "the caller has the new table"
        );
    }

    #[test]
    fn all_lanes_get_a_table_that_is_durable() {
        let mut cx = context("ddp:2d:1p", 6, 2);
        let mut growth = Growth::default();
        let OnDurable::Grow(geometry) = growth.switches(&cx) else {
            panic!("a table is written");
        };
        assert_eq!(commands(&mut cx), []);
        growth.grown(&mut cx, Arc::clone(&geometry));
        let grow = Command::Grow(GrownGeometry(geometry));
        let lanes = 0..cx.geometry.lanes();
        let sent: Vec<_> = lanes.map(|lane| (lane, grow.clone())).collect();
        assert_eq!(commands(&mut cx), sent);
        assert_eq!(cx.actions, [PoolAction::VolumesChanged]);
    }

    #[test]
    fn a_growth_does_not_end_while_groups_are_made_blank_or_a_drive_is_out() {
        let ends = |others: &Others, cx: &Context| {
            let (mut growth, mut cx) = (Growth::default(), cx.clone());
            assert_eq!(growth.pump(&mut cx, others), None);
            !cx.facts.grows
        };
        let mut cx = context("ddp:2d:1p", 6, 2);
        cx.facts.grows = true;
        assert!(ends(&Others::default(), &cx));
        let initializing = Others {
            initializing: true,
            ..Others::default()
        };
        assert!(!ends(&initializing, &cx));
        is_out(&mut cx, Seat(2), OutReason::Hung);
        assert!(!ends(&Others::default(), &cx));
    }

    #[test]
    fn what_is_amiss_is_named_when_a_pool_cannot_grow() {
        let growth = Growth::default();
        let cx = context("ddp:2d:1p", 6, 2);
        let refused = |cx: &Context, others: &Others| growth.check_may_grow(cx, others).err();
        assert_eq!(refused(&cx, &Others::default()), None);
        let seat = Seat(4);
        let leaves = Others {
            leaving: Some(seat),
            ..Others::default()
        };
        assert_eq!(refused(&cx, &leaves), Some(GrowError::Leaving { seat }));
        let mut lossy = cx.clone();
        lossy.facts.losses.unlisted_blocks = 3;
        let lost = GrowError::Lost { blocks: 3 };
        assert_eq!(refused(&lossy, &Others::default()), Some(lost));
        let mut degraded = cx.clone();
        is_out(&mut degraded, seat, OutReason::Hung);
        let out = GrowError::NotWhole { seat, out: true };
        assert_eq!(refused(&degraded, &Others::default()), Some(out));
    }
}
