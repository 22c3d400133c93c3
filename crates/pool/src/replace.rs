//! Replacing a drive that works: it stays the seat's drive until its successor has everything.
//!
//! ```text
//!   Copying ── every column of the drive is on the successor ──► Checkpointing ──► Recording ──► Promotion ──► (done)
//!      │                                                                                            │
//!      ├── the successor is out: the drive keeps its place ◄────────── its label is not written ────┘
//!      └── the drive is out: the successor takes the seat with what it has, the rest is rebuilt
//! ```
//!
//! The successor waits in a seat beyond the layout's. Lanes write to both drives (`lane/io/twins.rs`) and copy cell by
//! cell, row for row, so that at the end no column has moved: the seat has another drive.
//!
//! - Checkpointing: everything that was logged before the lanes wrote to both is in place, so that no batch of the
//!   journal needs the old drive.
//! - Recording: the drive's cell table has entries for its spare cells, and for columns that were about to move; the
//!   successor's table gets them, too.
//! - Promotion: one generation of the facts gives the successor the seat. Until it is durable the lanes use the old
//!   drive as before, so that either drive may turn out to be the member after a stop. Then the lanes switch.
//!
//! A stop before that restarts the copy: only the label of the successor counts.

use std::collections::{BTreeMap, BTreeSet};

use block::{Instant, Seat};
use layout::Cell;
use plan::action::Command;

use super::labels::Drive;
use super::placement::{Key, Record};
use super::{
    LeaveError, NewDrive, OnDurable, OutReason, Pool, PoolAction, PoolError, Report, SeatFacts,
    SeatState, Ticket,
};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Copying,
    /// Lanes that have yet to answer the checkpoint of this number.
    Checkpointing(u64, BTreeSet<u16>),
    Recording,
}

/// A working drive that is being replaced.
#[derive(Clone, Debug)]
pub(super) struct Replacement {
    seat: Seat,
    phase: Phase,
    /// Nothing more can be copied at present, and columns are missing.
    blocked: bool,
    /// Why the old drive is out after it has been replaced: `FailedByAdministrator` if an administrator named it.
    reason: OutReason,
}

/// A successor that has its seat in the facts, which are not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Promotion {
    with: Seat,
    /// The old drive, if it is in use until the lanes switch.
    old: Option<(SeatFacts, Drive)>,
    /// Columns that the successor has.
    filled: Vec<Record>,
    /// The old drive was to be removed anyway: the pool forgets it.
    forgets_old: bool,
    report: Report,
}

/// Checkpoints that were requested from lanes: a lane answers in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    next: u64,
    lanes: BTreeMap<u16, std::collections::VecDeque<u64>>,
}

impl Pool {
    /// Replaces a working drive by another one: everything is copied to the new drive, and the old one stays in use
    /// until the copy is complete. Done when the copy has begun. The driver has attached the new drive to the seat
    /// behind the last one.
    ///
    /// # Errors
    /// When the seat does not exist, its drive is not complete or has a successor already, or the new drive is too
    /// small.
    pub fn replace_drive(
        &mut self,
        now: Instant,
        seat: Seat,
        drive: NewDrive,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.check_seat(seat)?;
        let state = self.cx.facts.seats[seat.index()].state;
        if state != SeatState::Current || self.promotions.contains_key(&seat) {
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
        let with = self.seat_behind(drive, Some(seat))?;
        let done = vec![OnDurable::Done(ticket, Ok(()))];
        self.begin_replacement(seat, with, OutReason::FailedByAdministrator, done);
        self.advance();
        Ok(())
    }

    /// Starts to replace a working drive by a waiting one, if there is one. Returns whether the drive is being
    /// replaced.
    pub(super) fn hand_over(&mut self, seat: Seat) -> bool {
        if self.successor(seat).is_some() {
            return true;
        }
        let current = self.cx.facts.seats[seat.index()].state == SeatState::Current;
        let free = self.cx.facts.seats().find(|(_, facts)| facts.is_free());
        let free = free.map(|(with, _)| with);
        let Some(with) = free.filter(|_| current) else {
            return false;
        };
        self.cx.facts.seats[with.index()].replaces = Some(seat.0);
        self.begin_replacement(seat, with, OutReason::IoErrors, Vec::new());
        true
    }

    fn begin_replacement(
        &mut self,
        seat: Seat,
        with: Seat,
        reason: OutReason,
        mut effects: Vec<OnDurable>,
    ) {
        self.resume_replacement(seat, with, reason);
        self.cx.placement.begin_table(with);
        let drive = self.cx.facts.seats[with.index()].drive;
        effects.insert(0, OnDurable::Lanes(Command::Twin { seat, with }));
        effects.push(OnDurable::Report(Report::ReplacementBegins {
            seat,
            with,
            drive,
        }));
        effects.push(OnDurable::Requeue);
        self.cx.commit(effects);
    }

    /// Sets up a replacement that the facts record; the lanes get `Twin` next.
    fn resume_replacement(&mut self, seat: Seat, with: Seat, reason: OutReason) {
        let replacement = Replacement {
            seat,
            phase: Phase::Copying,
            blocked: false,
            reason,
        };
        self.replacements.insert(with, replacement);
        self.cx.placement.twin_begins(seat, with);
        self.cx.placement.joins(with);
    }

    /// At opening: replacements that were under way continue, with the copy from the start.
    pub(super) fn reopen_replacements(&mut self) -> Vec<OnDurable> {
        let successors = self
            .cx
            .facts
            .seats()
            .filter(|(_, facts)| facts.is_successor());
        let all: Vec<(Seat, Seat)> = successors
            .filter_map(|(with, facts)| Some((Seat(facts.replaces?), with)))
            .collect();
        let mut effects = Vec::new();
        for (seat, with) in all {
            self.resume_replacement(seat, with, OutReason::FailedByAdministrator);
            effects.push(OnDurable::Lanes(Command::Twin { seat, with }));
        }
        effects
    }

    /// The seat of the successor of a seat's drive, if there is one.
    #[must_use]
    pub fn successor(&self, seat: Seat) -> Option<Seat> {
        self.cx.placement.successor(seat)
    }

    /// Whether a drive is being replaced, and the replacement can proceed.
    pub(super) fn is_replacing(&self) -> bool {
        let stopped = self.fills.stopped || !self.cx.recovered;
        !stopped && self.replacements.values().any(|of| !of.blocked)
    }

    /// The successor of a drive has a column.
    pub(super) fn successor_has(&mut self, key: Key, target: Cell) {
        self.cx.placement.twin_has(key, target);
        if let Some(replacement) = self.replacements.get_mut(&target.seat) {
            replacement.blocked = false;
        }
    }

    /// Membership or volumes have changed: columns that could not be copied perhaps can be now.
    pub(super) fn replacements_again(&mut self) {
        for replacement in self.replacements.values_mut() {
            replacement.blocked = false;
        }
    }

    /// Advances every replacement that can proceed.
    pub(super) fn pump_replacements(&mut self) {
        if self.replacements.is_empty() || self.fills.stopped || !self.cx.recovered {
            return;
        }
        let all: Vec<Seat> = self.replacements.keys().copied().collect();
        for with in all {
            let replacement = &self.replacements[&with];
            // A label that the old drive is writing is not the successor's.
            let recorded = !self.cx.placement.is_writing(with) && self.cx.labels.is_settled();
            let ready = match replacement.phase {
                Phase::Copying => {
                    // Groups that are being made blank will soon have columns to copy.
                    self.fills.none_is_filled()
                        && !self.volumes.is_initializing()
                        && !replacement.blocked
                        && !self.cx.placement.is_joining(with)
                }
                Phase::Recording => recorded,
                Phase::Checkpointing(..) => false,
            };
            if !ready {
                continue;
            }
            let complete = self.cx.placement.twin_has_all(with);
            let replacement = self.replacements.get_mut(&with).expect("just listed");
            if !complete {
                replacement.blocked = replacement.phase == Phase::Copying;
                replacement.phase = Phase::Copying;
            } else if replacement.phase == Phase::Recording {
                // A column may have been rebuilt on the drive, and copied, meanwhile.
                if !self.record_lacking(with) {
                    self.promote(with);
                }
            } else {
                let lanes = 0..self.cx.geometry.lanes();
                self.asked.next += 1;
                let number = self.asked.next;
                replacement.phase = Phase::Checkpointing(number, lanes.clone().collect());
                for lane in lanes {
                    self.asked.lanes.entry(lane).or_default().push_back(number);
                }
                self.cx.tell_lanes(&Command::Checkpoint);
            }
        }
    }

    /// A lane has put in place everything that was logged when the checkpoint was requested.
    pub(super) fn lane_checkpointed(&mut self, lane: u16) {
        let asked = self.asked.lanes.get_mut(&lane);
        let Some(asked) = asked.and_then(std::collections::VecDeque::pop_front) else {
            if let Some(lanes) = &mut self.checkpointing {
                lanes.remove(&lane);
            }
            return;
        };
        let mut ended = None;
        for (&with, replacement) in &mut self.replacements {
            if let Phase::Checkpointing(number, lanes) = &mut replacement.phase
                && *number == asked
            {
                lanes.remove(&lane);
                ended = lanes.is_empty().then_some(with);
            }
        }
        if let Some(with) = ended {
            let replacement = self.replacements.get_mut(&with).expect("it is complete");
            replacement.phase = Phase::Recording;
            self.record_lacking(with);
        }
    }

    /// Some of the drive's columns have entries in its cell table: write the same entries to the successor's table.
    /// Returns whether some were not there.
    fn record_lacking(&mut self, with: Seat) -> bool {
        let lacking = self.cx.placement.twin_lacks(with);
        for &record in &lacking {
            let page = self.cx.placement.enter_again(record);
            self.cx.write_cell_page(page);
        }
        !lacking.is_empty()
    }

    /// Gives the successor the seat in the facts; `state` is how complete it is. Returns the facts of the old drive.
    fn take_seat(
        &mut self,
        (seat, with): (Seat, Seat),
        state: SeatState,
        reason: OutReason,
        forgets_old: bool,
    ) -> SeatFacts {
        let since = self.cx.labels.next_generation();
        let old = self.cx.facts.seats[seat.index()].clone();
        let new = self.cx.facts.seats[with.index()].clone();
        let numbers = [seat, with].map(|seat| self.cx.facts.number(seat));
        self.cx.facts.seats[seat.index()] = SeatFacts {
            domain: new.domain.or_else(|| old.domain.clone()),
            state,
            holds: None,
            replaces: None,
            ..new
        };
        self.cx.facts.seats[with.index()] = SeatFacts {
            state: SeatState::Out { since, reason },
            holds: None,
            replaces: forgets_old.then_some(seat.0),
            ..old.clone()
        };
        // A drive that was named to replace another gets that seat's number; a spare that steps in keeps its own.
        let [number, successors] = numbers;
        let numbers = match forgets_old {
            true => [number, successors],
            false => [successors, number],
        };
        self.cx.facts.set_numbers([seat, with], numbers);
        self.cx.seats_changed();
        self.cx.placement.joins(seat);
        old
    }

    /// The successor is complete: it has the seat from the next generation on.
    fn promote(&mut self, with: Seat) {
        let Some(Replacement { seat, reason, .. }) = self.replacements.remove(&with) else {
            return;
        };
        let filled = self.cx.placement.twin_ends(with);
        self.cx.labels.takes(with, seat);
        // A copy for a volume that has been deleted may still be under way.
        self.fills.superseded(with);
        let forgets_old = reason == OutReason::FailedByAdministrator;
        let old = self.take_seat((seat, with), SeatState::Current, reason, forgets_old);
        let drive = self.cx.facts.seats[seat.index()].drive;
        let slot = self.cx.labels.leave(seat).unwrap_or_default();
        let promotion = Promotion {
            with,
            old: Some((old, slot)),
            filled,
            forgets_old,
            report: Report::Replaced { seat, drive },
        };
        self.promotions.insert(seat, promotion);
        self.cx
            .commit(vec![OnDurable::Succeed(seat), OnDurable::Requeue]);
    }

    /// The seat that a successor has in the facts, but not yet in the lanes.
    pub(super) fn promoted_to(&self, with: Seat) -> Option<Seat> {
        let mut all = self.promotions.iter();
        all.find(|(_, promotion)| promotion.with == with)
            .map(|(&seat, _)| seat)
    }

    /// The successor could not write the label that gives it the seat.
    pub(super) fn forget_promotion(&mut self, with: Seat) {
        if let Some(seat) = self.promoted_to(with) {
            let is_it =
                |effect: &OnDurable| matches!(effect, OnDurable::Succeed(of) if *of == seat);
            self.cx.labels.drop_effects(is_it);
        }
    }

    /// A drive is about to be put out. If it is being replaced, its successor takes the seat with the columns that it
    /// has. If it is a successor that has the seat in the facts alone, the seat goes back to the old drive. Returns the
    /// actions to commit in these two cases.
    pub(super) fn successor_steps_in(
        &mut self,
        seat: Seat,
        reason: OutReason,
        effects: &mut Vec<OnDurable>,
    ) -> Option<Vec<OnDurable>> {
        if let Some(promotion) = self.promotions.remove(&seat) {
            self.forget_succession(seat);
            return Some(self.give_back(seat, promotion, reason, std::mem::take(effects)));
        }
        let with = self.successor(seat)?;
        let replacement = self.replacements.remove(&with)?;
        let filled = self.cx.placement.twin_ends(with);
        self.cx.labels.takes(with, seat);
        self.fills.superseded(with);
        let since = self.cx.labels.next_generation();
        let forgets_old = replacement.reason == OutReason::FailedByAdministrator;
        self.take_seat((seat, with), SeatState::Filling, reason, forgets_old);
        self.cx.labels.leave(seat);
        self.drop_table(seat);
        self.fills_lost_seat(seat);
        self.cx.forget_writes(seat);
        self.suspicions.forget(seat);
        self.cx.placement.twin_steps_in(seat, &filled);
        let drive = self.cx.facts.seats[seat.index()].drive;
        let report = Report::ReplacedEarly {
            seat,
            drive,
            cells: filled.len() as u64,
            reason,
        };
        let promotion = Promotion {
            with,
            old: None,
            filled,
            forgets_old,
            report,
        };
        self.promotions.insert(seat, promotion);
        let out = Report::DriveOut {
            seat,
            reason,
            since,
        };
        let mut first = vec![OnDurable::Report(out), OnDurable::Succeed(seat)];
        first.append(effects);
        first.push(OnDurable::Requeue);
        Some(first)
    }

    fn forget_succession(&mut self, seat: Seat) {
        let is_it = |effect: &OnDurable| matches!(effect, OnDurable::Succeed(of) if *of == seat);
        self.cx.labels.drop_effects(is_it);
        self.cx.placement.joined(seat);
    }

    /// A successor fails that has its seat in the facts alone: the old drive keeps the seat, if it works.
    fn give_back(
        &mut self,
        seat: Seat,
        promotion: Promotion,
        reason: OutReason,
        mut effects: Vec<OnDurable>,
    ) -> Vec<OnDurable> {
        let since = self.cx.labels.next_generation();
        let state = SeatState::Out { since, reason };
        let with = promotion.with;
        self.cx.labels.leave(with);
        self.drop_table(with);
        self.fills_lost_seat(with);
        self.cx.forget_writes(with);
        self.suspicions.forget(with);
        *self.draining.entry(with).or_default() += u32::from(self.cx.geometry.lanes());
        let mut first = vec![OnDurable::Lanes(Command::SeatOut(with))];
        if let Some((old, drive)) = promotion.old {
            let number = match promotion.forgets_old {
                true => self.cx.facts.number(with),
                false => self.cx.facts.number(seat),
            };
            let new = std::mem::replace(&mut self.cx.facts.seats[seat.index()], old);
            let replaces = Some(seat.0);
            self.cx.facts.seats[with.index()] = SeatFacts {
                state,
                replaces,
                number: (number != with.0).then_some(number),
                ..new
            };
            self.cx.seats_changed();
            self.cx.labels.is_back(seat, drive);
            first.push(OnDurable::Report(Report::ReplacementEnds { seat, with }));
            first.push(OnDurable::Vacate(with));
        } else {
            self.cx.facts.seats[seat.index()].state = state;
            self.cx.seats_changed();
            self.fills_lost_seat(seat);
            *self.draining.entry(seat).or_default() += u32::from(self.cx.geometry.lanes());
            first.insert(0, OnDurable::Lanes(Command::SeatOut(seat)));
            first.push(OnDurable::Report(Report::DriveOut {
                seat,
                reason,
                since,
            }));
            effects.push(OnDurable::SeatSpare(seat));
        }
        first.append(&mut effects);
        first.push(OnDurable::Requeue);
        first
    }

    /// A drive goes out. If it was to succeed another drive, that one keeps its place. Returns the report of that.
    pub(super) fn replacement_ends(&mut self, with: Seat) -> Option<Report> {
        let seat = self.replacements.remove(&with)?.seat;
        self.cx.placement.twin_ends(with);
        Some(Report::ReplacementEnds { seat, with })
    }

    /// The facts that give a successor its seat are durable: the lanes switch to it, and the old drive is detached.
    pub(super) fn promoted(&mut self, seat: Seat) {
        let Some(promotion) = self.promotions.remove(&seat) else {
            return;
        };
        let Promotion {
            with,
            old,
            filled,
            forgets_old,
            ..
        } = promotion;
        self.cx.placement.joined(seat);
        let complete = old.is_some();
        if complete {
            self.drop_table(seat);
            self.cx.forget_writes(seat);
            self.suspicions.forget(seat);
        }
        self.suspicions.forget(with);
        self.drive_moves(with, seat);
        self.cx.placement.twin_moves(with, seat, &filled, complete);
        let lanes = 0..self.cx.geometry.lanes();
        let commands = lanes.map(|lane| {
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
        self.cx.report(promotion.report);
        if !complete {
            for record in filled {
                let page = self.cx.placement.enter_again(record.on(seat));
                self.cx.write_cell_page(page);
            }
        }
        if forgets_old {
            self.vacate(with);
        }
    }

    /// Empties a seat beyond the layout's whose drive is out: it was replaced, was to replace another drive, or was a
    /// spare that is removed. The entry is dropped when it is the last one.
    pub(super) fn vacate(&mut self, with: Seat) {
        let last = self.cx.facts.seats.len().checked_sub(1) == Some(with.index());
        let facts = self.cx.facts.seats.get(with.index());
        let out = facts.is_some_and(|facts| matches!(facts.state, SeatState::Out { .. }));
        if !out || with.0 < self.cx.geometry.layout().drives() {
            return;
        }
        if last {
            self.cx.facts.seats.pop();
        } else if !self.cx.facts.seats[with.index()].is_removed(with) {
            return;
        }
        self.cx.act(PoolAction::Vacate(with));
        // Spares that were removed before: their numbers stayed in use until this one was dropped.
        while let Some((seat, facts)) = self.cx.facts.seats().last()
            && seat.0 >= self.cx.geometry.layout().drives()
            && facts.is_removed(seat)
        {
            self.cx.facts.seats.pop();
        }
        self.cx.seats_changed();
        self.cx.commit(Vec::new());
    }
}
