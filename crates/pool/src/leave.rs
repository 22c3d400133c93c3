//! Drives that leave the pool: `docs/design/growing.md`, "Drives that leave".
//!
//! ```text
//!   remove a working drive ─► its columns move to free cells of other drives ──────────────┐
//!                    │            (`drive online` calls it off)                            ├─► the journal does not need it
//!   remove a drive that is out ─► its columns are there already ───────────────────────────┘                 ▼
//!                                                                                             switch ─► the seat is vacant
//! ```
//!
//! A batch of the journal is on few drives, so it must not lose one because a drive leaves: lanes write no more batches to
//! it, and the switch waits until none counts there. At the switch the places of its columns become their homes, in one generation, so no column moves. A column without
//! content gets any free cell.
//!
//! Invariants:
//! - One drive leaves at a time, and none while the pool grows.
//! - A seat becomes vacant when no column with content has its place there, and each has one.

use std::borrow::Cow;
use std::collections::BTreeSet;

use block::{Hint, Instant, Seat};
use plan::action::Command;

use layout::pool::Pool as Table;

use super::placement::{Key, LeavingPlan};
use super::{OnDurable, OutReason, Pool, PoolError, Report, SeatState, Ticket};

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

/// The drive that leaves, beside what the facts say.
#[derive(Clone, Debug, Default)]
pub(super) struct Leaving {
    /// A working drive that is to leave: its columns get records first.
    asked: Option<(Seat, Ticket)>,
    /// Lanes whose journal may have a batch on the drive; `None` before they are asked.
    lanes: Option<BTreeSet<u16>>,
    /// Groups that volumes have given up since the pool was opened are before this one.
    freed_to: u64,
    /// In this generation there is no room for its columns, and no cell has become free since.
    no_room_at: Option<u64>,
}

impl Leaving {
    /// A cell has become free, or what should move has changed.
    pub(super) const fn may_have_room(&mut self) {
        self.no_room_at = None;
    }
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

impl Pool {
    /// What the removal of a drive of the layout would do.
    ///
    /// # Errors
    /// When it cannot be removed now.
    pub fn plan_removal(&self, seat: Seat) -> Result<LeavePlan, LeaveError> {
        self.check_may_leave(seat)?;
        let columns = self.cx.placement.columns_on(seat).count() as u64;
        let before = self.cx.geometry.layout().spare_drives();
        let room = self.cx.placement.moves_away_from(seat);
        let after = room.and_then(|_| self.table_without(seat));
        let after = after.ok_or_else(|| LeaveError::NoRoom {
            columns: self.cx.placement.homes_on(seat).count() as u64,
        })?;
        Ok(LeavePlan {
            columns,
            moved_bytes: columns * self.cx.geometry.plane_bytes(),
            spare_drives: (before, layout::Layout::spare_drives(&after)),
            capacity_bytes: (
                self.capacity_bytes(),
                after.group_count() * self.cx.geometry.group_data_bytes(),
            ),
        })
    }

    /// The table without the drive of a seat. As many groups are given up as the preservation capacity needs, but none that
    /// a volume has or has had since the pool was opened: lanes may have something of these.
    fn table_without(&self, seat: Seat) -> Option<Table> {
        let table = self.cx.geometry.layout().table()?;
        let in_use = u16::try_from(self.cx.layout_seats().count()).ok()?;
        let extents = self
            .cx
            .facts
            .volumes
            .iter()
            .flat_map(|volume| &volume.extents);
        let used = extents.map(|&(first, count)| first + count).max();
        let fit = table.groups_beside_preserved(in_use.checked_sub(1)?);
        let needed = used.unwrap_or(0).max(self.leaving.freed_to);
        let with_groups = |count| {
            let mut fewer = table.clone();
            fewer.keep_groups(count);
            fewer.without(seat, &self.cx.placement)
        };
        // Which drives have the last free cells may matter, too.
        with_groups(fit.max(needed)).or_else(|| with_groups(needed))
    }

    fn check_may_leave(&self, seat: Seat) -> Result<(), LeaveError> {
        let layout = self.cx.geometry.layout();
        if seat.0 >= layout.drives() {
            return Err(LeaveError::Spare { seat });
        }
        let Some(table) = layout.table().filter(|_| !self.cx.geometry.is_elastic()) else {
            let scheme = self.cx.facts.scheme.clone();
            return Err(LeaveError::NotPieces { scheme });
        };
        let in_use = u16::try_from(self.cx.layout_seats().count()).expect("seats are 16 bits");
        let width = layout::Layout::columns(table);
        if in_use <= width {
            let left = in_use - 1;
            return Err(LeaveError::TooFew { width, left });
        }
        let other = self.is_to_leave();
        if other.is_some() || self.is_growing() || !self.growth.is_idle() {
            return Err(LeaveError::Busy { other });
        }
        for other in self.cx.layout_seats() {
            let filling = self.cx.facts.seats[other.index()].state == SeatState::Filling;
            let replaced = self.promotions.contains_key(&other) || self.successor(other).is_some();
            if filling || replaced {
                return Err(LeaveError::Filling { seat: other });
            }
        }
        let is_out = |seat: Seat| self.cx.facts.seats[seat.index()].state != SeatState::Current;
        let out = is_out(seat);
        if let Some(seat) = self.cx.layout_seats().find(|&seat| !out && is_out(seat)) {
            return Err(LeaveError::AnotherOut { seat });
        }
        let homes = self.cx.placement.homes_on(seat);
        let lacks = |&key: &Key| {
            self.cx.placement.groups().has(key.0) && self.cx.placement.place(key).is_none()
        };
        let absent = self
            .absent_columns()
            .max(homes.filter(lacks).count() as u64);
        if absent > 0 || out && self.cx.placement.is_expected_back(seat) {
            return Err(LeaveError::Absent { columns: absent });
        }
        match self.lost_blocks() {
            0 => Ok(()),
            blocks => Err(LeaveError::Lost { blocks }),
        }
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
        self.check_seat(seat)?;
        if self.cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        let plan = self.plan_removal(seat);
        plan.map_err(|error| PoolError::Leave { error })?;
        self.leaving.asked = Some((seat, ticket));
        self.advance();
        Ok(())
    }

    /// A drive that is to leave: when each of its columns has a record, durably, the facts say so, and no
    /// column is at home there without a record any more. Otherwise one that has moved to a drive that fails then would
    /// count as still being there.
    fn begin_leaving(&mut self) {
        let Some((seat, ticket)) = self.leaving.asked else {
            return;
        };
        if self.cx.closing.is_some() {
            self.leaving.asked = None;
            self.cx.done(ticket, Err(PoolError::Closing));
            return;
        }
        let others = self.cx.layout_seats().filter(|&other| other != seat);
        let mut states = others.map(|other| self.cx.facts.seats[other.index()].state);
        let out = matches!(
            self.cx.facts.seats[seat.index()].state,
            SeatState::Out { .. }
        );
        let whole = states.all(|state| out || state == SeatState::Current);
        let state = self.cx.facts.seats[seat.index()].state;
        let replaced = self.promotions.contains_key(&seat) || self.successor(seat).is_some();
        if !whole || replaced || !out && state != SeatState::Current {
            self.leaving.asked = None;
            let error = LeaveError::CalledOff;
            self.cx.done(ticket, Err(PoolError::Leave { error }));
            return;
        }
        if !self.fills.is_idle()
            || self.cx.placement.is_any_writing()
            || !self.cx.labels.is_settled()
        {
            return;
        }
        // Those without content, too: a volume may get their groups meanwhile.
        let homes = self.cx.placement.homes_on(seat).filter(|_| !out);
        let bare: Vec<Key> = { homes }
            .filter(|&key| !self.cx.placement.has_record(key))
            .collect();
        if !bare.is_empty() {
            self.record_all_at_home(bare);
            return;
        }
        self.leaving.asked = None;
        let columns = self.cx.placement.columns_on(seat).count() as u64;
        self.cx.facts.leaves = Some(seat.0);
        let mut effects = Vec::new();
        if !out {
            // Lanes use the drive: a fault on it is decided as on any other.
            self.cx.facts.seats[seat.index()].state = SeatState::Filling;
            effects.push(OnDurable::Lanes(Command::SeatIn(seat)));
        }
        self.cx.seats_changed();
        effects.extend([
            OnDurable::Report(Report::RemoveBegins { seat, columns }),
            OnDurable::Done(ticket, Ok(())),
            OnDurable::Requeue,
        ]);
        self.cx.commit(effects);
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
        if self.cx.facts.leaves != Some(seat.0) {
            let error = LeaveError::Stays { seat };
            return Err(PoolError::Leave { error });
        }
        self.cx.facts.leaves = None;
        self.none_leaves();
        self.cx.seats_changed();
        self.cx.commit(vec![
            OnDurable::Report(Report::RemoveCalledOff { seat }),
            OnDurable::Done(ticket, Ok(())),
            OnDurable::Requeue,
        ]);
        self.advance();
        Ok(())
    }

    /// Whether the drives beside one that leaves have no room for its columns: it leaves when they have it. This makes a
    /// whole assignment.
    #[must_use]
    pub fn leaving_lacks_room(&self) -> bool {
        let lacks = |seat| {
            self.cx.placement.moves_away_from(seat).is_none() || self.table_without(seat).is_none()
        };
        self.leaving().is_some_and(lacks)
    }

    /// The same, as it was found when the removal could not go on.
    #[must_use]
    pub fn leaving_waits_for_room(&self) -> bool {
        self.leaving().is_some() && self.leaving.no_room_at == Some(self.cx.labels.generation())
    }

    /// The seat whose drive leaves.
    #[must_use]
    pub fn leaving(&self) -> Option<Seat> {
        self.cx.facts.leaves.map(Seat)
    }

    /// The same, or will leave: the labels do not say so yet.
    pub(super) fn is_to_leave(&self) -> Option<Seat> {
        let asked = self.leaving.asked.as_ref().map(|&(seat, _)| seat);
        self.leaving().or(asked)
    }

    /// The seat of a drive that leaves becomes vacant when nothing is left there.
    pub(super) fn pump_leaving(&mut self) {
        self.begin_leaving();
        let Some(seat) = self.leaving() else {
            return;
        };
        let at_rest = self.cx.recovered
            && self.cx.closing.is_none()
            && self.growth.is_idle()
            && self.fills.is_idle()
            && self.cx.labels.is_settled()
            && self.volumes.is_idle()
            && self.replacements.is_empty()
            && self.promotions.is_empty()
            && !self.cx.placement.is_any_writing();
        if !at_rest || self.leaving_waits_for_room() {
            return;
        }
        if self.cx.placement.columns_on(seat).next().is_some() {
            match self.cx.placement.plan_leaving(seat) {
                LeavingPlan::New => {
                    self.queue_fills(true);
                    self.pump_fills();
                }
                LeavingPlan::Stands => {}
                LeavingPlan::NoRoom => self.leaving.no_room_at = Some(self.cx.labels.generation()),
            }
            return;
        }
        if !self.journal_has_left(seat) {
            return;
        }
        let lacks = |key: &Key| {
            self.cx.placement.groups().has(key.0) && self.cx.placement.recorded(*key).is_none()
        };
        if self.cx.placement.homes_on(seat).any(|key| lacks(&key)) {
            return;
        }
        self.vacate_layout_seat(seat);
    }

    /// Volumes have given up these groups.
    pub(super) fn note_freed(&mut self, groups: &[(u64, u64)]) {
        let ends = groups.iter().map(|&(first, count)| first + count);
        self.leaving.freed_to = ends.fold(self.leaving.freed_to, u64::max);
    }

    /// Whether no batch of the journal that counts is on a drive that leaves. Lanes are asked once.
    fn journal_has_left(&mut self, seat: Seat) -> bool {
        if self.cx.facts.regions.is_none() {
            return true;
        }
        let Some(lanes) = &self.leaving.lanes else {
            self.leaving.lanes = Some((0..self.cx.geometry.lanes()).collect());
            self.cx.tell_lanes(&Command::Leave(Some(seat)));
            return false;
        };
        lanes.is_empty()
            && (self.cx.labels.has(seat) || !self.cx.facts.seats[seat.index()].in_journal)
    }

    /// A lane has no batch that counts on a drive that leaves.
    pub(super) fn lane_has_left(&mut self, lane: u16, seat: Seat) {
        if let Some(lanes) = self
            .leaving
            .lanes
            .as_mut()
            .filter(|_| self.cx.facts.leaves == Some(seat.0))
        {
            lanes.remove(&lane);
        }
    }

    /// No drive leaves any more: lanes use all drives for their journals.
    fn none_leaves(&mut self) {
        if self.leaving.lanes.take().is_some() {
            self.cx.tell_lanes(&Command::Leave(None));
        }
    }

    /// Nothing is left on a drive: one generation has its seat vacant, and the places of its columns as their homes.
    fn vacate_layout_seat(&mut self, seat: Seat) {
        let Some(table) = self.table_without(seat) else {
            // Columns of groups without content have no room. Other drives may have taken it since it was planned.
            self.leaving.no_room_at = Some(self.cx.labels.generation());
            return;
        };
        for page in self.cx.placement.forget_groups(table.group_count()) {
            self.cx.write_cell_page(Some(page));
        }
        self.cx.facts = self.facts_with(&table);
        self.cx.facts.leaves = None;
        // The entry keeps the seat's number.
        self.cx.facts.seats[seat.index()].replaces = Some(seat.0);
        self.cx.facts.joined.retain(|&(at, _)| at != seat.0);
        let effects = vec![
            self.grow_to(),
            OnDurable::Report(Report::DriveRemoved { seat }),
            OnDurable::Released(seat),
        ];
        if self.cx.labels.has(seat) {
            self.take_out(seat, OutReason::FailedByAdministrator, effects);
            return;
        }
        if let SeatState::Out { since, .. } = self.cx.facts.seats[seat.index()].state {
            let reason = OutReason::FailedByAdministrator;
            self.cx.facts.seats[seat.index()].state = SeatState::Out { since, reason };
        }
        self.cx.seats_changed();
        self.cx.commit(effects);
    }

    /// Lanes have processed that its drive is out: the driver closes it, and wipes its label.
    pub(super) fn released(&mut self, seat: Seat) {
        self.none_leaves();
        self.cx.act(super::PoolAction::Release(seat));
    }
}
