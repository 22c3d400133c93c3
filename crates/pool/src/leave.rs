//! Drives that leave the pool: `docs/design/growing.md`, "Drives that leave".
//!
//! Inputs: a drive to remove or to keep, what the other machines do ([`Others`], with each [`Leaving::pump`]), lanes whose
//! journals have left the drive, its release. Outputs ([`Next`]): columns to record at home or to move, a seat to vacate.
//!
//! ```text
//! stays ── remove ──► recording
//! stays ── remove ──► moving
//! recording ── settled ──► moving
//! recording ── close ──► stays
//! recording ── drive_out ──► stays
//! moving ── entry ──► journal
//! moving ── entry ──► switching
//! moving ── keep ──► stays
//! journal ── journal_left ──► switching
//! journal ── keep ──► stays
//! switching ── label ──► stays
//! ```
//!
//! Recording: each column of a working drive gets an entry where it is. Moving: its columns move to free cells of other drives;
//! those of a drive that is out are there already. Journal: lanes write no batch to it; a pool without a journal has no such
//! state. Switching: the labels get a table without it. Settled, entry: no lane uses the last column's old cell any more, and
//! its entry is removed.
//!
//! A batch of the journal is on few drives, so it must not lose one because a drive leaves: lanes write no more batches to
//! it, and the switch waits until none counts there. At the switch the places of its columns become their homes, in one
//! generation, so no column moves. A column without content gets any free cell.
//!
//! Invariants:
//! - One drive leaves at a time, and none while the pool grows.
//! - A seat becomes vacant when no column with content has its place there, and each has one.

use std::borrow::Cow;
use std::collections::BTreeSet;

use block::{Hint, Instant, Seat};
use format::Generation;
use plan::action::Command;

use layout::pool::Pool as Table;

use super::context::Context;
use super::grow::Others;
use super::placement::{Key, LeavingPlan};
use super::{
    OnDurable, OutReason, Pool, PoolAction, PoolError, PoolFacts, Report, SeatState, Ticket,
};

/// Why a drive does not leave the pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaveError {
    /// The drive is not in the layout.
    #[error("the drive in seat {seat} is a spare")]
    Spare {
        /// Which seat.
        seat: Seat,
    },
    /// The layout is no table of pieces.
    #[error("a pool of scheme `{scheme}` cannot give up a drive yet")]
    NotPieces {
        /// Its scheme.
        scheme: String,
    },
    /// A group would be wider than the pool.
    #[error("stripes are {width} drives wide, and {left} would be left")]
    TooFew {
        /// Columns of a group.
        width: u16,
        /// Drives that would be left.
        left: u16,
    },
    /// The pool grows, or another drive leaves.
    #[error("{}", match other { Some(seat) => format!("the drive in seat {seat} is being removed"), None => "the pool is being expanded".to_owned() })]
    Busy {
        /// The drive that leaves.
        other: Option<Seat>,
    },
    /// A drive is being filled or replaced.
    #[error("the drive in seat {seat} is being filled or replaced")]
    Filling {
        /// Which seat.
        seat: Seat,
    },
    /// Another drive is out: its columns may be in the cells that this one's need, and on this one.
    #[error("the drive in seat {seat} is out")]
    AnotherOut {
        /// Which seat.
        seat: Seat,
    },
    /// Columns are lost, or not rebuilt yet.
    #[error("{columns} columns are not rebuilt yet")]
    Absent {
        /// How many.
        columns: u64,
    },
    /// Data is lost.
    #[error("{blocks} blocks of data are lost")]
    Lost {
        /// How many.
        blocks: u64,
    },
    /// The other drives have no room.
    #[error("the other drives have no room for its {columns} columns")]
    NoRoom {
        /// Its columns.
        columns: u64,
    },
    /// Something happened before the labels said that it leaves.
    #[error("a drive went out or got a successor before the removal began")]
    CalledOff,
    /// It does not leave.
    #[error("the drive in seat {seat} is not being removed")]
    Stays {
        /// Which seat.
        seat: Seat,
    },
}

impl LeaveError {
    /// The same with other numbers for seats.
    #[must_use]
    pub(crate) fn renumbered(mut self, number: impl Fn(Seat) -> Seat) -> Self {
        match &mut self {
            Self::Filling { seat }
            | Self::Spare { seat }
            | Self::AnotherOut { seat }
            | Self::Stays { seat }
            | Self::Busy { other: Some(seat) } => {
                *seat = number(*seat);
            }
            _ => {}
        }
        self
    }
}

impl Hint for LeaveError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::NotPieces { .. } => {
                "pools made as `ddp`, `crush2` or `crush3` can; here another drive can take its place (`ravelin drive \
                 replace`), and `ravelin drive fail` takes it out"
            }
            Self::TooFew { .. } => {
                "another drive can take its place (`ravelin drive replace`), or the pool gets more drives first \
                 (`ravelin pool expand`)"
            }
            Self::Busy { other: None } => {
                "`ravelin pool wait --for expand` waits until that is done"
            }
            Self::Busy { .. } => {
                "`ravelin pool wait --for remove` waits until that is done, and `ravelin drive online` calls it off"
            }
            Self::Spare { .. } => "spares are removed at once",
            Self::AnotherOut { .. } => "bring it back, replace it or remove it first",
            Self::Filling { .. } | Self::Absent { .. } => {
                "`ravelin pool wait` waits until that is done"
            }
            Self::Lost { .. } => {
                "`ravelin pool status` says where: write these blocks again, or delete their volume"
            }
            Self::NoRoom { .. } => {
                "the pool gets more drives first (`ravelin pool expand`), or another drive takes its place (`ravelin drive \
                 replace`)"
            }
            Self::CalledOff => "nothing has moved. `ravelin pool status` shows what happened",
            Self::Stays { .. } => "`ravelin pool status` shows which drives are",
        };
        Some(hint.into())
    }
}

/// The state of a removal. The facts say which drive leaves once they say so.
#[derive(Clone, Debug, Default)]
enum State {
    /// No drive leaves.
    #[default]
    Stays,
    /// A drive is to leave, and the facts do not say so yet: its columns get records first.
    Recording { seat: Seat, ticket: Ticket },
    /// Its columns move.
    Moving,
    /// Lanes write no batch of the journal to it; those listed may still have one there. Columns that have got content since
    /// move.
    Journal { lanes: BTreeSet<u16> },
    /// The table without it is being written to the labels.
    Switching,
}

/// The removal of a drive.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    state: State,
    /// Groups that volumes have given up since the pool was opened are before this one.
    freed_to: u64,
    /// In this generation there is no room for its columns, and no cell has become free since.
    no_room_at: Option<Generation>,
}

/// What another machine is to do.
#[derive(Debug)]
pub(super) enum Next {
    /// These columns are recorded at home, where they are.
    Record(Vec<Key>),
    /// It is planned where the columns go.
    Fill,
    /// The facts have the seat vacant: its drive goes out, if it is in, and the table counts with these actions.
    Vacate(Seat, Vec<OnDurable>),
}

/// What the removal of a drive would do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeavePlan {
    /// Columns with content that are copied to other drives.
    pub columns: u64,
    /// Their bytes.
    pub moved_bytes: u64,
    /// Drives that may fail, one after the other, and be rebuilt in the pool's free cells: before and after.
    pub spare_drives: (u16, u16),
    /// Bytes of user data that the pool has room for, before and after.
    pub capacity_bytes: (u64, u64),
}

impl Leaving {
    /// The removal that goes on after an opening.
    pub(super) fn new(facts: &PoolFacts) -> Self {
        Self {
            state: match facts.leaves {
                Some(_) => State::Moving,
                None => State::Stays,
            },
            ..Self::default()
        }
    }

    /// The seat of the drive that leaves, or will leave: the facts do not say so yet.
    fn seat(&self, cx: &Context) -> Option<Seat> {
        match self.state {
            State::Recording { seat, .. } => Some(seat),
            _ => cx.leaving(),
        }
    }

    /// A cell has become free, or what should move has changed.
    pub(super) const fn may_have_room(&mut self) {
        self.no_room_at = None;
    }

    /// Volumes have given up these groups.
    pub(super) fn note_freed(&mut self, groups: &[(u64, u64)]) {
        let ends = groups.iter().map(|&(first, count)| first + count);
        self.freed_to = ends.fold(self.freed_to, u64::max);
    }

    /// What the removal of a drive of the layout would do.
    fn plan(&self, cx: &Context, others: &Others, seat: Seat) -> Result<LeavePlan, LeaveError> {
        check_may_leave(cx, others, seat)?;
        let columns = cx.placement.columns_on(seat).count() as u64;
        let before = cx.geometry.layout().spare_drives();
        let room = cx.placement.moves_away_from(seat);
        let after = room.and_then(|_| self.table_without(cx, seat));
        let after = after.ok_or_else(|| LeaveError::NoRoom {
            columns: cx.placement.homes_on(seat).count() as u64,
        })?;
        let group_bytes = cx.geometry.group_data_bytes();
        Ok(LeavePlan {
            columns,
            moved_bytes: columns * cx.geometry.plane_bytes(),
            spare_drives: (before, layout::Layout::spare_drives(&after)),
            capacity_bytes: (
                cx.geometry.groups() * group_bytes,
                after.group_count() * group_bytes,
            ),
        })
    }

    /// The table without the drive of a seat. As many groups are given up as the preservation capacity needs, but none that
    /// a volume has or has had since the pool was opened: lanes may have something of these.
    fn table_without(&self, cx: &Context, seat: Seat) -> Option<Table> {
        let table = cx.geometry.layout().table()?;
        let in_use = u16::try_from(cx.layout_seats().count()).ok()?;
        let volumes = cx.facts.volumes.iter();
        let extents = volumes.flat_map(|volume| &volume.extents);
        let used = extents.map(|&(first, count)| first + count).max();
        let fit = table.groups_beside_preserved(in_use.checked_sub(1)?);
        let needed = used.unwrap_or(0).max(self.freed_to);
        let with_groups = |count| {
            let mut fewer = table.clone();
            fewer.keep_groups(count);
            fewer.without(seat, &cx.placement)
        };
        // Which drives have the last free cells may matter, too.
        with_groups(fit.max(needed)).or_else(|| with_groups(needed))
    }

    /// A drive of the layout is to leave.
    fn remove(
        &mut self,
        cx: &Context,
        others: &Others,
        seat: Seat,
        ticket: Ticket,
    ) -> Result<(), LeaveError> {
        self.plan(cx, others, seat)?;
        self.state = State::Recording { seat, ticket };
        Ok(())
    }

    /// The removal is called off.
    fn keep(&mut self, cx: &mut Context, seat: Seat, ticket: Ticket) -> Result<(), LeaveError> {
        if cx.leaving() != Some(seat) {
            return Err(LeaveError::Stays { seat });
        }
        cx.facts.leaves = None;
        if let State::Journal { .. } = std::mem::take(&mut self.state) {
            cx.tell_lanes(&Command::Leave(None));
        }
        cx.seats_changed();
        cx.commit(vec![
            OnDurable::Report(Report::RemoveCalledOff { seat }),
            OnDurable::Done(ticket, Ok(())),
            OnDurable::Requeue,
        ]);
        Ok(())
    }

    /// Whether the drives beside one that leaves have no room for its columns.
    fn lacks_room(&self, cx: &Context) -> bool {
        cx.leaving().is_some_and(|seat| {
            cx.placement.moves_away_from(seat).is_none() || self.table_without(cx, seat).is_none()
        })
    }

    /// The same, as it was found when the removal could not go on.
    fn waits_for_room(&self, cx: &Context) -> bool {
        cx.leaving().is_some() && self.no_room_at == Some(cx.labels.generation())
    }

    /// Advances a removal that can proceed.
    pub(super) fn pump(&mut self, cx: &mut Context, others: &Others) -> Option<Next> {
        match self.state {
            State::Stays | State::Switching => None,
            State::Recording { seat, ticket } => self.begin(cx, others, seat, ticket),
            State::Moving | State::Journal { .. } => self.proceed(cx, others),
        }
    }

    /// A drive that is to leave: when each of its columns has a record, durably, the facts say so, and no
    /// column is at home there without a record any more. Otherwise one that has moved to a drive that fails then would
    /// count as still being there.
    fn begin(
        &mut self,
        cx: &mut Context,
        others: &Others,
        seat: Seat,
        ticket: Ticket,
    ) -> Option<Next> {
        let refused = if cx.closing.is_some() {
            Some(PoolError::Closing)
        } else if not_whole(cx, seat).is_some() || others.replaces(cx, seat) {
            let error = LeaveError::CalledOff;
            Some(PoolError::Leave { error })
        } else {
            None
        };
        if let Some(error) = refused {
            self.state = State::Stays;
            cx.done(ticket, Err(error));
            return None;
        }
        if !others.are_still(cx) || !cx.labels.is_settled() {
            return None;
        }
        let out = is_out(cx, seat);
        // Those without content, too: a volume may get their groups meanwhile.
        let homes = cx.placement.homes_on(seat).filter(|_| !out);
        let bare: Vec<Key> = { homes }
            .filter(|&key| !cx.placement.has_record(key))
            .collect();
        if !bare.is_empty() {
            return Some(Next::Record(bare));
        }
        self.state = State::Moving;
        let columns = cx.placement.columns_on(seat).count() as u64;
        cx.facts.leaves = Some(seat.0);
        let mut effects = Vec::new();
        if !out {
            // Lanes use the drive: a fault on it is decided as on any other.
            cx.facts.seats[seat.index()].state = SeatState::Filling;
            effects.push(OnDurable::Lanes(Command::SeatIn(seat)));
        }
        cx.seats_changed();
        effects.extend([
            OnDurable::Report(Report::RemoveBegins { seat, columns }),
            OnDurable::Done(ticket, Ok(())),
            OnDurable::Requeue,
        ]);
        cx.commit(effects);
        None
    }

    /// The seat of a drive that leaves becomes vacant when nothing is left there.
    fn proceed(&mut self, cx: &mut Context, others: &Others) -> Option<Next> {
        let seat = cx.leaving().expect("the facts say which drive leaves");
        let at_rest = others.are_at_rest(cx) && !others.growing && !others.making_volumes;
        if !at_rest || self.waits_for_room(cx) {
            return None;
        }
        if cx.placement.columns_on(seat).next().is_some() {
            return match cx.placement.plan_leaving(seat) {
                LeavingPlan::New => Some(Next::Fill),
                LeavingPlan::Stands => None,
                LeavingPlan::NoRoom => {
                    self.no_room_at = Some(cx.labels.generation());
                    None
                }
            };
        }
        if !self.journal_has_left(cx, seat) {
            return None;
        }
        let lacks =
            |key: &Key| cx.placement.groups().has(key.0) && cx.placement.recorded(*key).is_none();
        if cx.placement.homes_on(seat).any(|key| lacks(&key)) {
            return None;
        }
        self.vacate(cx, seat)
    }

    /// Whether no batch of the journal that counts is on a drive that leaves. Lanes are asked once.
    fn journal_has_left(&mut self, cx: &mut Context, seat: Seat) -> bool {
        if cx.facts.regions.is_none() {
            return true;
        }
        if let State::Journal { lanes } = &self.state {
            let needed = !cx.labels.has(seat) && cx.facts.seats[seat.index()].in_journal;
            return lanes.is_empty() && !needed;
        }
        let lanes = (0..cx.geometry.lanes()).collect();
        self.state = State::Journal { lanes };
        cx.tell_lanes(&Command::Leave(Some(seat)));
        false
    }

    /// A lane has no batch that counts on a drive that leaves.
    pub(super) fn lane_has_left(&mut self, cx: &Context, lane: u16, seat: Seat) {
        if let State::Journal { lanes } = &mut self.state
            && cx.leaving() == Some(seat)
        {
            lanes.remove(&lane);
        }
    }

    /// Nothing is left on a drive: one generation has its seat vacant, and the places of its columns as their homes.
    fn vacate(&mut self, cx: &mut Context, seat: Seat) -> Option<Next> {
        let Some(table) = self.table_without(cx, seat) else {
            // Columns of groups without content have no room. Other drives may have taken it since it was planned.
            self.no_room_at = Some(cx.labels.generation());
            return None;
        };
        self.state = State::Switching;
        for page in cx.placement.forget_groups(table.group_count()) {
            cx.write_cell_page(Some(page));
        }
        cx.facts = cx.facts_with(&table);
        cx.facts.leaves = None;
        // The entry keeps the seat's number.
        cx.facts.seats[seat.index()].replaces = Some(seat.0);
        cx.facts.joined.retain(|&(at, _)| at != seat.0);
        if !cx.labels.has(seat) {
            if let SeatState::Out { since, .. } = cx.state(seat) {
                let reason = OutReason::FailedByAdministrator;
                cx.facts.seats[seat.index()].state = SeatState::Out { since, reason };
            }
            cx.seats_changed();
        }
        let effects = vec![
            OnDurable::Report(Report::DriveRemoved { seat }),
            OnDurable::Released(seat),
        ];
        Some(Next::Vacate(seat, effects))
    }

    /// Lanes have processed that its drive is out: they use all drives for their journals, and the driver closes it, and
    /// wipes its label.
    pub(super) fn released(&mut self, cx: &mut Context, seat: Seat) {
        self.state = State::Stays;
        if cx.facts.regions.is_some() {
            cx.tell_lanes(&Command::Leave(None));
        }
        cx.act(PoolAction::Release(seat));
    }
}

impl Context {
    /// The seat whose drive leaves, by the facts.
    pub(super) fn leaving(&self) -> Option<Seat> {
        self.facts.leaves.map(Seat)
    }
}

fn is_out(cx: &Context, seat: Seat) -> bool {
    matches!(cx.state(seat), SeatState::Out { .. })
}

/// A drive of the layout that is not complete, so that the drive of `seat` does not leave. If that one is out, its columns are
/// on the others already, and these need not be complete.
fn not_whole(cx: &Context, seat: Seat) -> Option<Seat> {
    let mut seats = cx.layout_seats().filter(|_| !is_out(cx, seat));
    seats.find(|&seat| cx.state(seat) != SeatState::Current)
}

fn check_may_leave(cx: &Context, others: &Others, seat: Seat) -> Result<(), LeaveError> {
    let layout = cx.geometry.layout();
    if seat.0 >= layout.drives() {
        return Err(LeaveError::Spare { seat });
    }
    let Some(table) = layout.table().filter(|_| !cx.geometry.is_elastic()) else {
        let scheme = cx.facts.scheme.clone();
        return Err(LeaveError::NotPieces { scheme });
    };
    let in_use = u16::try_from(cx.layout_seats().count()).expect("seats are 16 bits");
    let width = layout::Layout::columns(table);
    if in_use <= width {
        let left = in_use - 1;
        return Err(LeaveError::TooFew { width, left });
    }
    if others.leaving.is_some() || cx.facts.grows || others.growing {
        let other = others.leaving;
        return Err(LeaveError::Busy { other });
    }
    for other in cx.layout_seats() {
        if cx.state(other) == SeatState::Filling || others.replaces(cx, other) {
            return Err(LeaveError::Filling { seat: other });
        }
    }
    if let Some(seat) = not_whole(cx, seat) {
        return Err(LeaveError::AnotherOut { seat });
    }
    let lacks = |&key: &Key| cx.placement.groups().has(key.0) && cx.placement.place(key).is_none();
    let homes = cx.placement.homes_on(seat).filter(lacks).count() as u64;
    let absent = homes.max(cx.placement.absent().count() as u64);
    if absent > 0 || cx.placement.is_expected_back(seat) {
        return Err(LeaveError::Absent { columns: absent });
    }
    match cx.lost_blocks() {
        0 => Ok(()),
        blocks => Err(LeaveError::Lost { blocks }),
    }
}

impl Pool {
    /// What the removal of a drive of the layout would do.
    ///
    /// # Errors
    /// When it cannot be removed now.
    pub fn plan_removal(&self, seat: Seat) -> Result<LeavePlan, LeaveError> {
        self.leaving.plan(&self.cx, &self.others(), seat)
    }

    /// A drive of the layout leaves: its columns move to other drives, and then its seat is vacant. The columns of a drive
    /// that is out are there already. Done when the labels say so; the copy needs no further command, after a restart
    /// neither.
    ///
    /// # Errors
    /// [`PoolError::Leave`]; nothing has changed.
    pub fn remove_drive(
        &mut self,
        now: Instant,
        seat: Seat,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.check_seat(seat)?;
        if self.cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        let others = self.others();
        let removed = self.leaving.remove(&self.cx, &others, seat, ticket);
        removed.map_err(|error| PoolError::Leave { error })?;
        self.advance();
        Ok(())
    }

    /// The removal of a drive is called off: its columns move back.
    ///
    /// # Errors
    /// [`PoolError::Leave`] when it is not being removed.
    pub fn keep_drive(
        &mut self,
        now: Instant,
        seat: Seat,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let kept = self.leaving.keep(&mut self.cx, seat, ticket);
        kept.map_err(|error| PoolError::Leave { error })?;
        self.advance();
        Ok(())
    }

    /// Whether the drives beside one that leaves have no room for its columns: it leaves when they have it. This makes a
    /// whole assignment.
    #[must_use]
    pub fn leaving_lacks_room(&self) -> bool {
        self.leaving.lacks_room(&self.cx)
    }

    /// The same, as it was found when the removal could not go on.
    #[must_use]
    pub fn leaving_waits_for_room(&self) -> bool {
        self.leaving.waits_for_room(&self.cx)
    }

    /// The seat whose drive leaves.
    #[must_use]
    pub fn leaving(&self) -> Option<Seat> {
        self.cx.leaving()
    }

    /// The same, or will leave: the labels do not say so yet.
    pub(super) fn is_to_leave(&self) -> Option<Seat> {
        self.leaving.seat(&self.cx)
    }

    /// Advances a removal that can proceed.
    pub(super) fn pump_leaving(&mut self) {
        let others = self.others();
        match self.leaving.pump(&mut self.cx, &others) {
            None => {}
            Some(Next::Record(keys)) => self.record_all_at_home(keys),
            Some(Next::Fill) => {
                self.queue_fills();
                self.pump_fills();
            }
            Some(Next::Vacate(seat, mut effects)) => {
                effects.insert(0, self.growth.switches(&self.cx));
                if self.cx.labels.has(seat) {
                    self.take_out(seat, OutReason::FailedByAdministrator, effects);
                } else {
                    self.cx.commit(effects);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use format::GroupId;

    use super::*;
    use crate::PoolSpec;
    use crate::fixture::{self, Walk, commands, context, filled, is_out, spec};

    const T: Ticket = Ticket(5);
    const SEAT: Seat = Seat(2);

    fn state(pool: &Pool) -> &'static str {
        match pool.leaving.state {
            State::Stays => "stays",
            State::Recording { .. } => "recording",
            State::Moving => "moving",
            State::Journal { .. } => "journal",
            State::Switching => "switching",
        }
    }

    fn eight() -> Pool {
        filled(&spec("ddp:2d:1p", 8), 5)
    }

    fn remove(pool: &mut Pool) {
        pool.remove_drive(Instant::ZERO, SEAT, T).unwrap();
    }

    fn keep(pool: &mut Pool) {
        pool.keep_drive(Instant::ZERO, SEAT, Ticket(6)).unwrap();
    }

    fn fails(pool: &mut Pool, seat: Seat) {
        let reason = OutReason::FailedByAdministrator;
        pool.fail_drive(Instant::ZERO, seat, reason, false, Ticket(7))
            .unwrap();
    }

    /// The pool's actions up to a state.
    fn until(pool: &mut Pool, to: &str) -> Vec<PoolAction> {
        Walk::new(state).until(pool, to)
    }

    /// A pool whose drive is removed, in this state.
    fn removing(to: &str) -> Pool {
        let mut pool = eight();
        remove(&mut pool);
        until(&mut pool, to);
        pool
    }

    /// A pool whose drive is out and rebuilt.
    fn rebuilt() -> Pool {
        let mut pool = eight();
        fails(&mut pool, SEAT);
        while fixture::step(&mut pool).is_some() {}
        assert_eq!(pool.absent_columns(), 0);
        pool
    }

    /// The commands to lanes about the drive that leaves.
    fn sent(actions: &[PoolAction]) -> Vec<Option<Seat>> {
        let sent = actions.iter().filter_map(|action| match action {
            PoolAction::Lane(_, Command::Leave(seat)) => Some(*seat),
            _ => None,
        });
        sent.collect()
    }

    fn is_removed(pool: &Pool) -> bool {
        pool.facts().seats[SEAT.index()].is_removed(SEAT)
    }

    fn refused(cx: &Context, others: &Others) -> Option<LeaveError> {
        check_may_leave(cx, others, SEAT).err()
    }

    /// The drawing in the head of this file is what the pool does.
    #[test]
    fn the_states_of_a_removal_are_those_of_the_drawing() {
        let mut walk = Walk::new(state);
        let mut pool = eight();
        walk.input(&mut pool, "remove", remove);
        for to in ["moving", "journal", "switching", "stays"] {
            walk.until(&mut pool, to);
        }
        let close = |pool: &mut Pool| pool.close(Instant::ZERO, Ticket(6));
        let goes_out = |pool: &mut Pool| fails(pool, Seat(5));
        for (event, ends, from) in [
            ("close", close as fn(&mut Pool), "recording"),
            ("drive_out", goes_out, "recording"),
            ("keep", keep, "moving"),
            ("keep", keep, "journal"),
        ] {
            let mut pool = removing(from);
            walk.input(&mut pool, event, ends);
        }
        walk.input(&mut rebuilt(), "remove", remove);
        let without_journal = PoolSpec {
            journal: false,
            ..spec("ddp:2d:1p", 8)
        };
        let mut pool = filled(&without_journal, 5);
        walk.input(&mut pool, "remove", remove);
        for to in ["moving", "switching", "stays"] {
            walk.until(&mut pool, to);
        }
        walk.assert_drawn_in(include_str!("leave.rs"));
    }

    #[test]
    fn the_labels_say_that_a_drive_leaves_when_each_of_its_columns_has_an_entry() {
        let mut pool = removing("recording");
        let homes: Vec<Key> = pool.cx.placement.homes_on(SEAT).collect();
        assert!(
            homes.iter().any(|key| key.0 >= GroupId(5)),
            "also without content"
        );
        let recorded = |pool: &Pool| {
            let mut homes = homes.iter();
            homes.all(|&key| pool.cx.placement.has_record(key))
        };
        assert!(!recorded(&pool) && pool.leaving().is_none());
        assert_eq!(pool.is_to_leave(), Some(SEAT));
        until(&mut pool, "moving");
        assert!(recorded(&pool));
        assert_eq!(pool.leaving(), Some(SEAT));
        assert_eq!(pool.facts().seats[SEAT.index()].state, SeatState::Filling);
    }

    #[test]
    fn a_drive_that_is_out_leaves_without_entries() {
        let mut pool = rebuilt();
        remove(&mut pool);
        assert_eq!(state(&pool), "moving");
        let actions = until(&mut pool, "stays");
        let fills =
            |action: &PoolAction| matches!(action, PoolAction::Lane(_, Command::Fill { .. }));
        assert!(!actions.iter().any(fills), "nothing is copied");
        assert!(is_removed(&pool));
    }

    #[test]
    fn a_drive_that_goes_out_calls_a_removal_off_that_has_not_begun() {
        let mut pool = removing("recording");
        fails(&mut pool, Seat(5));
        let error = PoolError::Leave {
            error: LeaveError::CalledOff,
        };
        assert!(pool.cx.actions.contains(&PoolAction::Done(T, Err(error))));
        assert_eq!(pool.is_to_leave(), None);
    }

    #[test]
    fn a_removal_that_has_begun_goes_on_when_its_drive_fails() {
        let mut pool = removing("moving");
        fails(&mut pool, SEAT);
        assert_eq!((state(&pool), pool.leaving()), ("moving", Some(SEAT)));
        until(&mut pool, "stays");
        assert!(is_removed(&pool));
    }

    #[test]
    fn the_journal_is_left_when_no_column_with_content_is_on_the_drive() {
        let mut pool = removing("moving");
        assert_ne!(pool.cx.placement.columns_on(SEAT).count(), 0);
        assert_eq!(sent(&until(&mut pool, "journal")), []);
        assert_eq!(pool.cx.placement.columns_on(SEAT).count(), 0);
    }

    #[test]
    fn lanes_are_asked_once_and_the_switch_waits_for_all_of_them() {
        let mut cx = context("ddp:2d:1p", 8, 0);
        let mut leaving = Leaving {
            state: State::Moving,
            ..Leaving::default()
        };
        cx.facts.leaves = Some(SEAT.0);
        assert!(!leaving.journal_has_left(&mut cx, SEAT));
        let lanes = cx.geometry.lanes();
        let asked = (0..lanes).map(|lane| (lane, Command::Leave(Some(SEAT))));
        assert_eq!(commands(&mut cx), asked.collect::<Vec<_>>());
        for lane in 0..lanes {
            assert!(!leaving.journal_has_left(&mut cx, SEAT), "lane {lane}");
            // It is about a drive that is out.
            leaving.lane_has_left(&cx, lane, Seat(3));
            assert!(!leaving.journal_has_left(&mut cx, SEAT), "lane {lane}");
            leaving.lane_has_left(&cx, lane, SEAT);
        }
        assert!(leaving.journal_has_left(&mut cx, SEAT));
        assert_eq!(commands(&mut cx), []);
    }

    #[test]
    fn a_drive_that_is_out_leaves_when_the_labels_say_that_no_batch_is_on_it() {
        let mut cx = context("ddp:2d:1p", 8, 0);
        is_out(&mut cx, SEAT, OutReason::Hung);
        let mut leaving = Leaving {
            state: State::Journal {
                lanes: BTreeSet::new(),
            },
            ..Leaving::default()
        };
        cx.facts.seats[SEAT.index()].in_journal = true;
        assert!(!leaving.journal_has_left(&mut cx, SEAT));
        cx.facts.seats[SEAT.index()].in_journal = false;
        assert!(leaving.journal_has_left(&mut cx, SEAT));
    }

    #[test]
    fn lanes_use_a_drive_that_is_kept_for_their_journals_again_if_they_had_left_it() {
        for (from, lanes_know) in [("moving", false), ("journal", true)] {
            let mut pool = removing(from);
            pool.cx.actions.clear();
            keep(&mut pool);
            let actions: Vec<_> = pool.cx.actions.iter().cloned().collect();
            let sent = sent(&actions);
            assert_eq!(sent.contains(&None), lanes_know, "{from}");
            assert_eq!(pool.leaving(), None);
        }
    }

    #[test]
    fn a_drive_that_does_not_leave_is_not_kept() {
        let stays = |pool: &mut Pool, seat| {
            let kept = pool.keep_drive(Instant::ZERO, seat, Ticket(6));
            let error = LeaveError::Stays { seat };
            kept == Err(PoolError::Leave { error })
        };
        assert!(stays(&mut eight(), SEAT));
        assert!(stays(&mut removing("recording"), SEAT));
        assert!(stays(&mut removing("moving"), Seat(3)));
        assert!(stays(&mut removing("switching"), SEAT));
    }

    #[test]
    fn after_the_switch_the_seat_is_vacant_and_its_drive_is_released() {
        let mut pool = removing("switching");
        assert_eq!(pool.geometry().layout().vacant(), []);
        let mut actions = until(&mut pool, "stays");
        actions.extend(std::mem::take(&mut pool.cx.actions));
        assert_eq!(pool.geometry().layout().vacant(), [SEAT]);
        assert!(is_removed(&pool));
        assert_eq!(pool.facts().number(SEAT), SEAT.0);
        assert!(actions.contains(&PoolAction::Release(SEAT)));
        assert!(sent(&actions).contains(&None));
    }

    #[test]
    fn an_opening_goes_on_with_a_removal() {
        let mut cx = context("ddp:2d:1p", 8, 5);
        assert_eq!(Leaving::new(&cx.facts).seat(&cx), None);
        cx.facts.leaves = Some(SEAT.0);
        cx.seats_changed();
        let mut leaving = Leaving::new(&cx.facts);
        assert_eq!(leaving.seat(&cx), Some(SEAT));
        let next = leaving.pump(&mut cx, &Others::default());
        assert!(matches!(next, Some(Next::Fill)), "{next:?}");
    }

    #[test]
    fn without_room_a_removal_waits_until_a_cell_is_free() {
        let mut cx = context("ddp:2d:1p", 8, 5);
        cx.facts.leaves = Some(SEAT.0);
        cx.seats_changed();
        let mut leaving = Leaving::new(&cx.facts);
        leaving.no_room_at = Some(cx.labels.generation());
        assert!(leaving.waits_for_room(&cx));
        assert!(leaving.pump(&mut cx, &Others::default()).is_none());
        leaving.may_have_room();
        assert!(!leaving.waits_for_room(&cx));
        assert!(leaving.pump(&mut cx, &Others::default()).is_some());
    }

    #[test]
    fn a_removal_waits_for_the_work_of_others() {
        let mut cx = context("ddp:2d:1p", 8, 5);
        cx.facts.leaves = Some(SEAT.0);
        cx.seats_changed();
        let goes_on = |others: Others| {
            let mut leaving = Leaving::new(&cx.facts);
            leaving.pump(&mut cx.clone(), &others).is_some()
        };
        let none = Others::default;
        assert!(goes_on(none()));
        assert!(goes_on(Others {
            wiping: true,
            ..none()
        }));
        for others in [
            Others {
                filling: true,
                ..none()
            },
            Others {
                replacing: true,
                ..none()
            },
            Others {
                initializing: true,
                ..none()
            },
            Others {
                making_volumes: true,
                ..none()
            },
            Others {
                growing: true,
                ..none()
            },
            Others {
                promoted: BTreeSet::from([Seat(1)]),
                ..none()
            },
        ] {
            assert!(!goes_on(others.clone()), "{others:?}");
        }
    }

    #[test]
    fn groups_that_volumes_have_had_since_the_opening_are_not_given_up() {
        let cx = context("ddp:2d:1p", 8, 5);
        let all = cx.geometry.groups();
        let mut leaving = Leaving::default();
        let groups = |leaving: &Leaving| leaving.table_without(&cx, SEAT).unwrap().group_count();
        let fewer = groups(&leaving);
        assert!((5..all).contains(&fewer), "{fewer} of {all}");
        leaving.note_freed(&[(fewer, 1), (2, 1)]);
        assert_eq!(groups(&leaving), fewer + 1);
        leaving.note_freed(&[(0, 1)]);
        assert_eq!(groups(&leaving), fewer + 1);
    }

    #[test]
    fn one_drive_leaves_at_a_time_and_none_while_the_pool_grows() {
        let mut cx = context("ddp:2d:1p", 8, 5);
        let none = Others::default;
        assert_eq!(refused(&cx, &none()), None);
        let leaving = Some(Seat(4));
        let other = LeaveError::Busy { other: leaving };
        assert_eq!(refused(&cx, &Others { leaving, ..none() }), Some(other));
        let grows = LeaveError::Busy { other: None };
        let growing = Others {
            growing: true,
            ..none()
        };
        assert_eq!(refused(&cx, &growing), Some(grows.clone()));
        cx.facts.grows = true;
        assert_eq!(refused(&cx, &none()), Some(grows));
    }

    #[test]
    fn a_drive_leaves_no_pool_in_which_another_one_is_missing_or_replaced() {
        let cx = context("ddp:2d:1p", 8, 5);
        let seat = Seat(6);
        let others = Others {
            promoted: BTreeSet::from([seat]),
            ..Others::default()
        };
        assert_eq!(refused(&cx, &others), Some(LeaveError::Filling { seat }));
        let mut degraded = cx.clone();
        is_out(&mut degraded, seat, OutReason::Hung);
        let out = LeaveError::AnotherOut { seat };
        assert_eq!(refused(&degraded, &Others::default()), Some(out));
        is_out(&mut degraded, SEAT, OutReason::Hung);
        let error = refused(&degraded, &Others::default());
        assert!(
            matches!(error, Some(LeaveError::Absent { .. })),
            "{error:?}"
        );
    }

    #[test]
    fn stripes_stay_as_wide_as_they_are() {
        let mut pool = fixture::pool("ddp:2d:1p", 4);
        remove(&mut pool);
        while fixture::step(&mut pool).is_some() {}
        let few = LeaveError::TooFew { width: 3, left: 2 };
        assert_eq!(pool.plan_removal(Seat(0)), Err(few));
        let spare = Seat(pool.geometry().layout().drives());
        assert_eq!(
            pool.plan_removal(spare),
            Err(LeaveError::Spare { seat: spare })
        );
    }
}
