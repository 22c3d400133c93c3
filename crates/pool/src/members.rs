//! Membership: drives that go out or come in, and spares.

use block::{Fault, Seat};
use format::seeded::{self, SeededFault};
use format::{GroupId, Sequence};
use plan::action::{Command, IoKind};
use uuid::Uuid;

use super::context::Context;
use super::replace::{self, GoesOut, Promotion};
use super::{
    LeaveError, NewDrive, OnDurable, OutReason, Pool, PoolAction, PoolError, Report, SeatFacts,
    SeatState, Ticket, is_recoverable,
};

/// Failed reads, counted with a half-life of ten minutes, after which a drive is put out, if it can be spared. A guess
/// in the range that other systems use.
const READ_FAULTS_MAX: u64 = 16;

/// Which drives cannot be spared.
impl Context {
    /// A group that can be read now, and could not be read without the seat's drive.
    pub(crate) fn group_that_needs(&mut self, seat: Seat) -> Option<GroupId> {
        self.group_that_needs_one_of(&[seat])
    }

    /// A group that can be read now, and could not be read without these drives.
    pub(crate) fn group_that_needs_one_of(&mut self, seats: &[Seat]) -> Option<GroupId> {
        self.group_that_needs_beside(&[], seats)
    }

    /// The same, given that the drives in `gone` are out anyway.
    pub(crate) fn group_that_needs_beside(
        &mut self,
        gone: &[Seat],
        seats: &[Seat],
    ) -> Option<GroupId> {
        let all = [gone, seats].concat();
        let tolerance = usize::from(self.geometry.code().tolerance());
        let (placement, geometry, plans) = (&self.placement, &self.geometry, &mut self.plans);
        let there = seats.iter().filter(|seat| !gone.contains(seat));
        let on_them = there.flat_map(|&seat| placement.columns_on(seat));
        let needing = on_them.map(|(group, _)| group).filter(|&group| {
            // Most groups can spare the drives: these are only counted.
            placement.absent_without(group, &all) > tolerance && {
                let mut can_read = |without| {
                    let readable = placement.readable(group, without);
                    is_recoverable(geometry, plans, group, &readable)
                };
                !can_read(&all) && can_read(gone)
            }
        });
        placement.groups().first(needing)
    }
}

/// Seats of the facts.
impl Context {
    /// The drive of a seat is that of another seat from now on, and with it what is written to it.
    pub(crate) fn drive_moves(&mut self, from: Seat, to: Seat) {
        self.labels.rename(from, to);
        self.writes.rename(from, to);
    }

    /// Whether a seat of the layout has no drive because its drive was removed, or is so when the labels say so.
    pub(crate) fn is_vacant(&self, seat: Seat) -> bool {
        let in_layout = seat.0 < self.geometry.layout().drives();
        in_layout && self.facts.seats[seat.index()].is_removed(seat)
    }

    pub(crate) fn check_seat(&self, seat: Seat) -> Result<(), PoolError> {
        if seat.index() < self.facts.seats.len() {
            return Ok(());
        }
        Err(PoolError::NoSeat {
            seat,
            last: u16::try_from(self.facts.seats.len() - 1).expect("seats are 16 bits"),
        })
    }

    /// Gives a drive a seat beyond the layout's. The drive waits there for any seat, or with `replaces` to succeed the
    /// drive of that seat.
    pub(crate) fn seat_behind(
        &mut self,
        drive: NewDrive,
        replaces: Option<Seat>,
    ) -> Result<Seat, PoolError> {
        let needed_bytes = self.facts.used_bytes();
        let size_bytes = drive.size_bytes;
        if size_bytes < needed_bytes {
            return Err(PoolError::DriveTooSmall {
                size_bytes,
                needed_bytes,
            });
        }
        let seat = Seat(u16::try_from(self.facts.seats.len()).expect("seats are 16 bits"));
        self.facts.seats.push(SeatFacts {
            drive: drive.uuid,
            path: drive.path,
            size_bytes,
            domain: drive.domain,
            bay: drive.bay,
            state: SeatState::Waiting,
            holds: None,
            replaces: replaces.map(|seat| seat.0),
            found_bytes: None,
            number: self.facts.new_number(seat),
            in_journal: false,
        });
        self.seats_changed();
        self.labels.join(seat);
        Ok(seat)
    }
}

impl Pool {
    /// A lane reports a drive operation that failed.
    pub(super) fn drive_fault(
        &mut self,
        seat: Seat,
        kind: IoKind,
        offset: u64,
        fault: Fault,
        waiting: bool,
    ) {
        let facts = self.cx.facts.seats.get(seat.index());
        let out = facts.is_none_or(|facts| matches!(facts.state, SeatState::Out { .. }));
        if out || self.cx.placement.is_joining(seat) {
            // Already decided: the lane gets `SeatOut` when the labels are written. The failure is not that of a drive
            // that has joined in this seat meanwhile.
            if waiting {
                self.cx.refuse_going_out(seat);
            }
            return;
        }
        if self.stays_although_full(seat, fault) {
            self.drive_is_full(seat, waiting);
            return;
        }
        if kind == IoKind::Read {
            self.cx.report(Report::ReadFault {
                seat,
                offset,
                fault,
                times: 1,
            });
            let failed = self.suspicions.read_failed(self.cx.now, seat);
            if fault != Fault::Gone && failed < READ_FAULTS_MAX {
                return;
            }
            // If another drive can take its place, keep this one as a source until everything it can read is copied.
            if fault != Fault::Gone && self.replacements.hand_over(&mut self.cx, seat) {
                return;
            }
        }
        // A drive without which data could not be read stays, also if it is gone: drives that vanish together mostly
        // return together, with all their data. While other drives refuse to record that one is out, no more drives
        // are put out: they may fail for a common reason.
        let spared = !self.cx.labels.is_refused() && self.cx.group_that_needs(seat).is_none();
        let trusts = fault == Fault::Gone && seeded::is(SeededFault::GoneForGood);
        if spared || trusts {
            self.take_out_for(seat, fault);
            return;
        }
        self.stalls.fails_and_stays(self.cx.now);
        if waiting {
            if self.stalls.refuses_newly(self.cx.now, seat, fault) {
                self.cx.report(Report::DriveKept {
                    seat,
                    kind,
                    offset,
                    fault,
                });
            }
            self.cx.tell_lanes(&Command::SeatKept(seat));
        }
    }

    /// From the next generation on the seat's drive is out. Once that is durable, the lanes get `SeatOut` and `effects`
    /// are carried out. If the drive is being replaced, its successor takes the seat with the columns that it has. If it is a
    /// successor that has the seat in the facts alone, the seat goes back to the old drive.
    pub(super) fn take_out(&mut self, seat: Seat, reason: OutReason, mut effects: Vec<OnDurable>) {
        let seat = self.replacements.promoted_to(seat).unwrap_or(seat);
        if !self.cx.labels.has(seat) && !self.replacements.is_promoted(seat) {
            return;
        }
        let lanes = self.cx.geometry.lanes();
        let succeeds = match self.replacements.goes_out(&mut self.cx, seat, reason) {
            GoesOut::Alone(succeeds) => succeeds,
            GoesOut::SuccessorStepsIn(steps_in) => {
                self.fills.superseded(steps_in.with);
                self.seat_is_lost(seat);
                let effects = self.replacements.step_in(&mut self.cx, steps_in, effects);
                self.cx.commit(effects);
                return;
            }
            GoesOut::SuccessorFails(promotion) => {
                self.seat_is_lost(promotion.with);
                self.draining.begins(promotion.with, lanes);
                let (effects, lost) =
                    replace::give_back(&mut self.cx, seat, *promotion, reason, effects);
                if let Some(seat) = lost {
                    self.fills.lose_seat(&mut self.cx, seat);
                    self.draining.begins(seat, lanes);
                }
                self.cx.commit(effects);
                return;
            }
        };
        self.cx.labels.leave(seat);
        self.cx.placement.return_ends(seat);
        let since = self.cx.labels.next_generation();
        let was = self.cx.facts.seats[seat.index()].state;
        let known = was != SeatState::Waiting || succeeds.is_some();
        self.cx.facts.seats[seat.index()].state = SeatState::Out { since, reason };
        self.cx.seats_changed();
        self.journal.goes_out(&mut self.cx, seat);
        self.seat_is_lost(seat);
        let mut first = vec![OnDurable::Report(Report::DriveOut {
            seat,
            reason,
            since,
        })];
        let vacates = succeeds.is_some();
        first.extend(succeeds.map(OnDurable::Report));
        if known {
            self.draining.begins(seat, lanes);
        }
        if known && seeded::is(SeededFault::SeatOutEarly) {
            self.cx.tell_lanes(&Command::SeatOut(seat));
        } else if known {
            first.insert(0, OnDurable::Lanes(Command::SeatOut(seat)));
        }
        first.append(&mut effects);
        // Only after the lanes have processed `SeatOut`: otherwise they would take the content of another drive for
        // that of the old one.
        first.push(OnDurable::SeatSpare(seat));
        if vacates {
            first.push(OnDurable::Vacate(seat));
        }
        first.push(OnDurable::Requeue);
        self.cx.commit(first);
    }

    /// Nothing of the seat's drive counts any more.
    fn seat_is_lost(&mut self, seat: Seat) {
        self.drop_table(seat);
        self.fills.lose_seat(&mut self.cx, seat);
        self.cx.forget_writes(seat);
        self.suspicions.forget(seat);
    }

    /// Replaces a working drive by another one: everything is copied to the new drive, and the old one stays in use
    /// until the copy is complete. Done when the copy has begun. The driver has attached the new drive to the seat
    /// behind the last one.
    ///
    /// # Errors
    /// When the seat does not exist, its drive is not complete or has a successor already, or the new drive is too
    /// small.
    pub fn replace_drive(
        &mut self,
        now: block::Instant,
        seat: Seat,
        drive: NewDrive,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.check_seat(seat)?;
        if self.cx.state(seat) != SeatState::Current || self.replacements.is_promoted(seat) {
            return Err(PoolError::NotCurrent { seat });
        }
        if let Some(with) = self.successor(seat) {
            return Err(PoolError::BeingReplaced { seat, with });
        }
        if self.leaving().is_none()
            && let Some(leaves) = self.is_to_leave()
        {
            // A removal begins with drives that are all whole.
            let other = Some(leaves);
            let error = LeaveError::Busy { other };
            return Err(PoolError::Leave { error });
        }
        let with = self.cx.seat_behind(drive, Some(seat))?;
        let done = vec![OnDurable::Done(ticket, Ok(()))];
        let reason = OutReason::FailedByAdministrator;
        (self.replacements).begin(&mut self.cx, seat, with, reason, done);
        self.advance();
        Ok(())
    }

    /// The seat of the successor of a seat's drive, if there is one.
    #[must_use]
    pub fn successor(&self, seat: Seat) -> Option<Seat> {
        self.cx.placement.successor(seat)
    }

    /// Whether a drive is being replaced, and the replacement can proceed.
    pub(super) fn is_replacing(&self) -> bool {
        let stopped = self.fills.stopped || !self.cx.recovered;
        !stopped && self.replacements.can_proceed()
    }

    pub(super) fn pump_replacements(&mut self) {
        if self.fills.stopped || !self.cx.recovered {
            return;
        }
        let copies = !self.fills.none_is_filled() || self.volumes.is_initializing();
        for with in self.replacements.pump(&mut self.cx, copies) {
            // A copy for a volume that has been deleted may still be under way.
            self.fills.superseded(with);
        }
    }

    /// The facts that give a successor its seat are durable: the lanes switch to it, and the old drive is detached.
    pub(super) fn promoted(&mut self, seat: Seat) {
        let Some(promotion) = self.replacements.promoted(&mut self.cx, seat) else {
            return;
        };
        let complete = promotion.is_complete();
        let Promotion {
            with,
            filled,
            forgets_old,
            report,
            ..
        } = promotion;
        if complete {
            self.drop_table(seat);
            self.cx.forget_writes(seat);
            self.suspicions.forget(seat);
        }
        self.suspicions.forget(with);
        self.cx.drive_moves(with, seat);
        (self.cx.placement).twin_moves(with, seat, &filled, complete);
        let commands = (0..self.cx.geometry.lanes()).map(|lane| {
            let here = filled.iter().map(|record| record.key);
            let here = here.filter(|&(group, _)| self.cx.geometry.lane_of(group) == lane);
            Command::Succeed {
                seat,
                with,
                filled: (!complete).then(|| here.collect()),
            }
        });
        let commands = commands.collect();
        self.cx.act(PoolAction::Succeed(seat, with, commands));
        self.cx.report(report);
        if !complete {
            for record in filled {
                let page = self.cx.placement.enter_again(record.on(seat));
                self.cx.write_cell_page(page);
            }
        }
        if forgets_old {
            self.cx.vacate(with);
        }
    }

    /// Takes a drive out because an operation on it failed.
    pub(super) fn take_out_for(&mut self, seat: Seat, fault: Fault) {
        if fault == Fault::Gone
            && let Some(facts) = self.cx.facts.seats.get(seat.index())
        {
            self.vanished.insert(facts.drive);
        }
        self.take_out(seat, OutReason::IoErrors, Vec::new());
    }

    /// Whether the seat's drive is slow, and is read only if no other drive can supply the data.
    #[must_use]
    pub fn is_suspect(&self, seat: Seat) -> bool {
        self.suspicions.is_suspect(seat)
    }

    /// Whether the seat's drive does not answer, and stays because it cannot be spared.
    #[must_use]
    pub fn is_hanging(&self, seat: Seat) -> bool {
        self.suspicions.is_hanging(seat)
    }

    /// Whether cells that could not be filled, as drives that stay did not work, are tried again within seconds.
    #[must_use]
    pub const fn retries_fills(&self) -> bool {
        self.stalls.retries_fills()
    }

    /// Whether a drive went out because it was gone.
    #[must_use]
    pub fn has_vanished(&self, drive: Uuid) -> bool {
        self.vanished.contains(&drive)
    }

    /// Whether the layout's spare space covers every drive of the layout that is out: their columns are rebuilt there,
    /// or can be.
    #[must_use]
    pub fn spares_make_up_for_it(&self) -> bool {
        let expected_back = |seat| self.cx.placement.is_expected_back(seat);
        self.cx.seats_gone().count() <= usize::from(self.cx.geometry.layout().spare_drives())
            && !self.cx.seats_gone().any(expected_back)
    }

    /// Drives beside those that are out whose columns find room in the layout's spare space.
    #[must_use]
    pub fn spare_drives_left(&self) -> u16 {
        let gone = u16::try_from(self.cx.seats_gone().count()).unwrap_or(u16::MAX);
        { self.cx.geometry.layout().spare_drives() }.saturating_sub(gone)
    }

    /// If the layout has no spare space left for a seat, a waiting spare drive takes the seat. Not if its drive leaves: what
    /// that has is rebuilt on the others. Not while the journal needs the drive that is out, either: if others go, too, an opening finds it by its seat and counts on it again.
    pub(super) fn seat_spare(&mut self, seat: Seat) {
        if seat.0 >= self.cx.geometry.layout().drives()
            || self.cx.is_vacant(seat)
            || self.leaving() == Some(seat)
            || self.cx.journal_needs(seat)
            || self.fills.stopped
            || self.journal_wipes.has(seat)
            || self.cx.placement.is_expected_back(seat)
            || self.cx.seats_gone().all(|gone| gone != seat)
        {
            return;
        }
        let spares = usize::from(self.cx.geometry.layout().spares());
        let out = { self.cx.seats_gone() }
            .filter(|&seat| !self.cx.placement.is_expected_back(seat))
            .count();
        if out <= spares {
            return;
        }
        let waiting = self
            .cx
            .facts
            .seats()
            // One that was to succeed a drive may have entries that are being cleared.
            .find(|(seat, facts)| facts.is_free() && !self.cx.placement.is_writing(*seat))
            .map(|(seat, _)| seat);
        // This walks the groups that lack a column, so it is asked last.
        if waiting.is_some() && self.may_have_the_only_copy(seat) {
            self.without_spare.insert(seat);
            return;
        }
        if let Some(waiting) = waiting {
            let seats = [seat, waiting];
            let [number, spare] = seats.map(|seat| self.cx.facts.number(seat));
            self.cx.facts.seats.swap(seat.index(), waiting.index());
            self.cx.facts.set_numbers(seats, [spare, number]);
            self.cx.seats_changed();
            self.suspicions.swap(seat, waiting);
            self.draining.moves(&self.cx.writes, seat, waiting);
            // A label may be on its way to it.
            self.cx.drive_moves(waiting, seat);
            self.cx.placement.exchange_tables(waiting, seat);
            self.cx.act(PoolAction::Swap(seat, waiting));
            let takes_over = Report::SpareTakesOver {
                seat,
                from: waiting,
            };
            self.bring_in(seat, vec![OnDurable::Report(takes_over)]);
        }
    }

    /// Whether data cannot be read, and the drive that is out of this seat may have it: drives that left together mostly come
    /// back together. An administrator who has failed a drive has given up what it alone has.
    fn may_have_the_only_copy(&self, seat: Seat) -> bool {
        !self.cx.facts.seats[seat.index()].is_given_up() && self.lost_groups() > 0
    }

    /// The drive in the seat is in use from the next generation on; its cells are absent.
    fn bring_in(&mut self, seat: Seat, mut effects: Vec<OnDurable>) {
        self.cx.facts.seats[seat.index()].state = SeatState::Filling;
        self.cx.seats_changed();
        self.cx.placement.joins(seat);
        self.cx.labels.join(seat);
        self.cx.placement.begin_table(seat);
        let drive = self.cx.facts.seats[seat.index()].drive;
        effects.insert(0, OnDurable::Lanes(Command::SeatIn(seat)));
        effects.push(OnDurable::Report(Report::DriveIn { seat, drive }));
        effects.push(OnDurable::Requeue);
        self.cx.commit(effects);
    }

    /// Whether a drive of this size may take the seat.
    ///
    /// A seat whose drive is going out is free once all lanes have processed that. Before that, a lane would send
    /// writes for the old drive to the new one, and such a write can arrive there after the rebuild.
    ///
    /// # Errors
    /// When the seat does not exist or is in use, or the drive is too small.
    pub fn check_free(&self, seat: Seat, size_bytes: u64) -> Result<(), PoolError> {
        self.cx.check_seat(seat)?;
        if self.cx.is_vacant(seat) {
            let last = u16::try_from(self.cx.facts.seats.len() - 1).expect("seats are 16 bits");
            return Err(PoolError::NoSeat { seat, last });
        }
        if self.leaving() == Some(seat) {
            // It is vacant soon, and what the drive has is rebuilt elsewhere.
            let error = LeaveError::Busy { other: Some(seat) };
            return Err(PoolError::Leave { error });
        }
        if self.cx.labels.has(seat) {
            return Err(PoolError::Occupied { seat });
        }
        if self.cx.labels.is_going_out(seat) {
            return Err(PoolError::GoingOut { seat });
        }
        if self.journal_wipes.has(seat) {
            let operations = 1;
            return Err(PoolError::StillBusy { seat, operations });
        }
        let needed_bytes = self.needed_bytes();
        if size_bytes < needed_bytes {
            return Err(PoolError::DriveTooSmall {
                size_bytes,
                needed_bytes,
            });
        }
        Ok(())
    }

    /// Takes a drive out by command: `FailedByAdministrator` or `Offline`. Done when that is durable and the lanes have
    /// the command.
    ///
    /// # Errors
    /// When the seat does not exist, is already out, or data would be lost (unless `force`).
    pub fn fail_drive(
        &mut self,
        now: block::Instant,
        seat: Seat,
        reason: OutReason,
        force: bool,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.check_seat(seat)?;
        let state = self.cx.facts.seats[seat.index()].state;
        if let SeatState::Out { since, .. } = state
            && reason == OutReason::FailedByAdministrator
            && self.cx.placement.is_expected_back(seat)
        {
            // The drive was expected back, and no longer is.
            self.cx.facts.seats[seat.index()].state = SeatState::Out { since, reason };
            self.cx.seats_changed();
            let done = OnDurable::Done(ticket, Ok(()));
            self.cx
                .commit(vec![done, OnDurable::SeatSpare(seat), OnDurable::Requeue]);
            self.advance();
            return Ok(());
        }
        if let SeatState::Out { since, .. } = state
            && reason == OutReason::Offline
            && !self.cx.placement.is_expected_back(seat)
            && !self.cx.labels.is_going_out(seat)
        {
            // The drive is expected back from now on: spares wait.
            self.cx.facts.seats[seat.index()].state = SeatState::Out { since, reason };
            self.cx.seats_changed();
            self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
            self.advance();
            return Ok(());
        }
        if !self.cx.labels.has(seat) {
            return Err(PoolError::AlreadyOut { seat });
        }
        if !force && let Some(group) = self.cx.group_that_needs(seat) {
            return Err(PoolError::WouldLose { seat, group });
        }
        self.take_out(seat, reason, vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }

    /// Puts a drive into a seat whose drive is out; all its cells are filled. The drive gets a fresh identity, so that
    /// nothing on it from earlier use counts. The driver has attached the drive to the seat.
    ///
    /// # Errors
    /// When the seat does not exist or is in use, or the drive is too small.
    pub fn insert_drive(
        &mut self,
        now: block::Instant,
        seat: Seat,
        drive: NewDrive,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.seat_drive(seat, drive, None, vec![OnDurable::Done(ticket, Ok(()))])
    }

    /// Puts a drive into a seat. With `holds`, its home cells have everything that was logged before these batches, by
    /// lane.
    pub(super) fn seat_drive(
        &mut self,
        seat: Seat,
        drive: NewDrive,
        holds: Option<Vec<Sequence>>,
        done: Vec<OnDurable>,
    ) -> Result<(), PoolError> {
        self.check_free(seat, drive.size_bytes)?;
        let domain = self.cx.facts.seats[seat.index()].domain.clone();
        self.vanished
            .remove(&self.cx.facts.seats[seat.index()].drive);
        // In seats beyond the layout's there are only waiting spares.
        let waits = seat.0 >= self.cx.geometry.layout().drives();
        let since = match (self.cx.facts.seats[seat.index()].state, &holds) {
            (SeatState::Out { since, .. }, Some(_)) => Some(since),
            _ => None,
        };
        self.cx.placement.returns(seat, since);
        self.cx.facts.seats[seat.index()] = SeatFacts {
            drive: drive.uuid,
            path: drive.path,
            size_bytes: drive.size_bytes,
            domain: drive.domain.or(domain),
            bay: drive.bay,
            state: if waits {
                SeatState::Waiting
            } else {
                SeatState::Filling
            },
            holds: holds.filter(|_| !waits),
            replaces: None,
            found_bytes: None,
            number: self.cx.facts.seats[seat.index()].number,
            in_journal: false,
        };
        if waits {
            self.cx.seats_changed();
            self.cx.labels.join(seat);
            self.cx.commit(done);
        } else {
            self.bring_in(seat, done);
        }
        self.advance();
        Ok(())
    }

    /// Adds a drive that waits for a seat to become free.
    ///
    /// # Errors
    /// When the drive is too small.
    pub fn add_spare(
        &mut self,
        now: block::Instant,
        drive: NewDrive,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.seat_behind(drive, None)?;
        let mut then = vec![OnDurable::Done(ticket, Ok(()))];
        then.extend(self.vacant_seats().into_iter().map(OnDurable::SeatSpare));
        self.cx.commit(then);
        self.advance();
        Ok(())
    }

    /// Seats of the layout whose drive is out and not expected back. None while data cannot be read without the drives
    /// that are out: one of them may hold its only copy, and keeps its seat.
    fn vacant_seats(&self) -> Vec<Seat> {
        let vacant = |&seat: &Seat| {
            !self.cx.placement.is_expected_back(seat) && !self.cx.labels.is_going_out(seat)
        };
        let vacant: Vec<Seat> = self.cx.seats_gone().filter(vacant).collect();
        match vacant.is_empty() || self.lost_groups() > 0 {
            true => Vec::new(),
            false => vacant,
        }
    }

    /// Whether a waiting spare drive could take a seat now.
    #[must_use]
    pub fn could_use_spares(&self) -> bool {
        let spares = usize::from(self.cx.geometry.layout().spares());
        self.cx.facts.seats.iter().any(SeatFacts::is_free) && self.vacant_seats().len() > spares
    }

    /// Waiting spare drives take the seats of drives that were missing when the pool was opened.
    pub fn use_spares(&mut self, now: block::Instant) {
        self.cx.now = now;
        if self.cx.recovered {
            self.seat_spares();
            self.advance();
        }
    }

    /// Waiting spare drives take all seats that they may take.
    pub(super) fn seat_spares(&mut self) {
        for seat in self.vacant_seats() {
            self.seat_spare(seat);
        }
    }

    /// Seats whose every allocated column is at home become current.
    pub(super) fn complete_seats(&mut self) {
        // Groups that are being made blank belong to volumes soon, and may have a column to fill.
        let makes_blank = !self.volumes.is_idle();
        if !self.fills.none_waits() || self.cx.closing.is_some() || makes_blank {
            return;
        }
        let filling: Vec<Seat> = self
            .cx
            .facts
            .seats()
            .filter(|(_, facts)| facts.state == SeatState::Filling)
            .map(|(seat, _)| seat)
            .collect();
        for seat in filling {
            // A drive that joins the layout has no columns before its table counts.
            let layout = self.cx.geometry.layout();
            let joins = seat.0 >= layout.drives() || layout.vacant().contains(&seat);
            let leaves = self.leaving() == Some(seat);
            // A successor that steps in gets its records when it has the seat.
            if joins
                || leaves
                || self.replacements.is_promoted(seat)
                || self.cx.placement.is_any_writing()
                || self.cx.placement.lacks_columns(seat)
            {
                continue;
            }
            self.cx.facts.seats[seat.index()].state = SeatState::Current;
            self.cx.facts.seats[seat.index()].holds = None;
            self.cx.seats_changed();
            let caught_up = self.cx.return_ends(seat);
            self.cx.placement.complete(seat);
            let mut effects = vec![OnDurable::Lanes(Command::SeatCurrent(seat))];
            effects.extend(caught_up.map(OnDurable::Report));
            effects.push(OnDurable::Report(Report::SeatComplete { seat }));
            // With this drive, data that could not be read perhaps can be.
            let without_spare = std::mem::take(&mut self.without_spare);
            effects.extend(without_spare.into_iter().map(OnDurable::SeatSpare));
            // The spare cells of its columns are free for others, and columns that could not be reconstructed before
            // perhaps can be.
            effects.push(OnDurable::Requeue);
            self.cx.commit(effects);
        }
    }

    /// Removes a spare: a drive that waits in a seat beyond the layout's, or is out there. Other drives keep their
    /// numbers; the seat's number is free again when the seat is the last one. Done when that is durable in the labels
    /// and the drive is no longer used.
    ///
    /// # Errors
    /// When the seat does not exist, or its drive belongs to the layout or is to succeed one that does.
    pub fn remove_spare(
        &mut self,
        now: block::Instant,
        seat: Seat,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.check_seat(seat)?;
        let facts = &self.cx.facts.seats[seat.index()];
        let out = matches!(facts.state, SeatState::Out { .. });
        if seat.0 < self.cx.geometry.layout().drives() || !(facts.is_free() || out) {
            return Err(PoolError::NotASpare { seat });
        }
        let done = vec![OnDurable::Vacate(seat), OnDurable::Done(ticket, Ok(()))];
        // The next opening forgets the drive.
        self.cx.facts.seats[seat.index()].replaces = Some(seat.0);
        if self.cx.labels.has(seat) {
            self.take_out(seat, OutReason::FailedByAdministrator, done);
        } else {
            self.cx.commit(done);
        }
        self.advance();
        Ok(())
    }

    /// Resets the error counts of the seat's drive: blocks that did not match what was written, and failed reads.
    ///
    /// # Errors
    /// When the seat does not exist.
    pub fn clear_drive(
        &mut self,
        now: block::Instant,
        seat: Seat,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.cx.check_seat(seat)?;
        let drive = self.cx.facts.seats[seat.index()].drive;
        self.cx.facts.bad_blocks.remove(&drive);
        self.suspicions.reads_forgiven(seat);
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }

    /// Bytes that a drive must have to take a seat.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        self.cx.facts.used_bytes()
    }
}
