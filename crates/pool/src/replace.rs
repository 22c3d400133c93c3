//! Replacing a drive that works: it stays the seat's drive until its successor has everything.
//!
//! ```text
//! working ── begin ──► copying
//! copying ── copied ──► checkpointing
//! checkpointing ── checkpointed ──► recording
//! recording ── recorded ──► promoted
//! recording ── column_missing ──► copying
//! promoted ── durable ──► replaced
//! promoted ── successor_out ──► working
//! copying ── successor_out ──► working
//! checkpointing ── successor_out ──► working
//! recording ── successor_out ──► working
//! copying ── drive_out ──► stepping_in
//! checkpointing ── drive_out ──► stepping_in
//! recording ── drive_out ──► stepping_in
//! stepping_in ── durable ──► replaced
//! stepping_in ── successor_out ──► lost
//! ```
//!
//! The successor waits in a seat beyond the layout's. Lanes write to both drives (`lane/io/twins.rs`) and copy cell by
//! cell, row for row, so that at the end no column has moved: the seat has another drive.
//!
//! - Checkpointing: everything that was logged before the lanes wrote to both is in place, so that no batch of the
//!   journal needs the old drive.
//! - Recording: the drive's cell table has entries for its spare cells, and for columns that were about to move; the
//!   successor's table gets them, too.
//! - Promoted: one generation of the facts gives the successor the seat. Until it is durable the lanes use the old
//!   drive as before, so that either drive may turn out to be the member after a stop. Then the lanes switch.
//! - Stepping in: the old drive is out, and the successor takes the seat with what it has; the rest is rebuilt.
//!
//! A stop before the facts are durable restarts the copy: only the label of the successor counts.
//!
//! Inputs: commands, columns that the successor has, checkpoints of lanes, drives that go out, durable facts. Outputs:
//! generations of the facts, entries of cell tables, checkpoints; and to the pool: what a drive that goes out means
//! ([`GoesOut`]), and the successor that takes its seat ([`Promotion`]).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::Seat;
use format::Generation;
use layout::Cell;
use plan::action::Command;

use super::context::Context;
use super::context::labels::Drive;
use super::placement::{Key, Record};
use super::{OnDurable, OutReason, PoolAction, Report, SeatFacts, SeatState};

#[derive(Clone, Debug, PartialEq, Eq)]
enum Phase {
    Copying,
    /// Lanes that have yet to answer the checkpoint of this number.
    Checkpointing(u64, BTreeSet<u16>),
    Recording,
}

/// A working drive that is being replaced.
#[derive(Clone, Debug)]
struct Replacement {
    seat: Seat,
    phase: Phase,
    /// Nothing more can be copied at present, and columns are missing.
    blocked: bool,
    /// Why the old drive is out after it has been replaced: `FailedByAdministrator` if an administrator named it.
    reason: OutReason,
}

impl Replacement {
    /// Whether an administrator has named the drive: the pool forgets it.
    fn forgets_old(&self) -> bool {
        self.reason == OutReason::FailedByAdministrator
    }
}

/// A successor that has its seat in the facts, which are not durable yet.
#[derive(Clone, Debug)]
pub(super) struct Promotion {
    pub(super) with: Seat,
    /// The old drive, if it is in use until the lanes switch.
    old: Option<(SeatFacts, Drive)>,
    /// Columns that the successor has.
    pub(super) filled: Vec<Record>,
    /// The old drive was to be removed anyway: the pool forgets it.
    pub(super) forgets_old: bool,
    pub(super) report: Report,
}

impl Promotion {
    /// Whether the successor has every column: the old drive was in use until now.
    pub(super) const fn is_complete(&self) -> bool {
        self.old.is_some()
    }
}

/// What it means for replacements that a drive goes out.
#[derive(Clone, Debug)]
pub(super) enum GoesOut {
    /// It has no successor. If it was to succeed another one, that one keeps its place, and this is the report.
    Alone(Option<Report>),
    /// Its successor takes the seat with what it has.
    SuccessorStepsIn(StepsIn),
    /// It is a successor that has the seat in the facts alone.
    SuccessorFails(Box<Promotion>),
}

/// A successor takes the seat of a drive that goes out.
#[derive(Clone, Debug)]
pub(super) struct StepsIn {
    seat: Seat,
    pub(super) with: Seat,
    since: Generation,
    reason: OutReason,
    forgets_old: bool,
    filled: Vec<Record>,
}

/// Checkpoints that were requested from lanes: a lane answers in order.
#[derive(Clone, Debug, Default)]
struct Asked {
    next: u64,
    lanes: BTreeMap<u16, VecDeque<u64>>,
}

/// Working drives that are being replaced.
#[derive(Clone, Debug, Default)]
pub(super) struct Replacements {
    /// By the successor's temporary seat.
    under_way: BTreeMap<Seat, Replacement>,
    /// By the seat that the successor has in the facts, but not yet in the lanes.
    promotions: BTreeMap<Seat, Promotion>,
    /// Checkpoints that were requested from lanes.
    asked: Asked,
}

/// Questions.
impl Replacements {
    /// Whether no drive is being replaced.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty() && self.promotions.is_empty()
    }

    /// Whether a drive is being replaced, and the replacement can proceed.
    pub(super) fn can_proceed(&self) -> bool {
        self.under_way.values().any(|of| !of.blocked)
    }

    /// Whether the drive of a seat is to succeed another one.
    pub(super) fn is_successor(&self, with: Seat) -> bool {
        self.under_way.contains_key(&with)
    }

    /// Whether the seat has a successor in the facts that lanes do not use yet.
    pub(super) fn is_promoted(&self, seat: Seat) -> bool {
        self.promotions.contains_key(&seat)
    }

    /// The seats that have a successor in the facts that lanes do not use yet.
    pub(super) fn promoted_seats(&self) -> impl Iterator<Item = Seat> + '_ {
        self.promotions.keys().copied()
    }

    /// The seat that a successor has in the facts, but not yet in the lanes.
    pub(super) fn promoted_to(&self, with: Seat) -> Option<Seat> {
        let mut all = self.promotions.iter();
        all.find(|(_, promotion)| promotion.with == with)
            .map(|(&seat, _)| seat)
    }
}

/// The copy.
impl Replacements {
    /// The drive of `seat` is replaced by the one in `with`. The lanes write to both once the facts are durable.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        seat: Seat,
        with: Seat,
        reason: OutReason,
        mut effects: Vec<OnDurable>,
    ) {
        self.resume(cx, seat, with, reason);
        cx.placement.begin_table(with);
        let drive = cx.facts.seats[with.index()].drive;
        effects.insert(0, OnDurable::Lanes(Command::Twin { seat, with }));
        effects.push(OnDurable::Report(Report::ReplacementBegins {
            seat,
            with,
            drive,
        }));
        effects.push(OnDurable::Requeue);
        cx.commit(effects);
    }

    /// Starts to replace a working drive by a waiting one, if there is one. Returns whether the drive is being
    /// replaced.
    pub(super) fn hand_over(&mut self, cx: &mut Context, seat: Seat) -> bool {
        if cx.placement.successor(seat).is_some() {
            return true;
        }
        let current = cx.state(seat) == SeatState::Current;
        let free = cx.facts.seats().find(|(_, facts)| facts.is_free());
        let free = free.map(|(with, _)| with);
        let Some(with) = free.filter(|_| current) else {
            return false;
        };
        cx.facts.seats[with.index()].replaces = Some(seat.0);
        self.begin(cx, seat, with, OutReason::IoErrors, Vec::new());
        true
    }

    /// Sets up a replacement that the facts record; the lanes get `Twin` next.
    fn resume(&mut self, cx: &mut Context, seat: Seat, with: Seat, reason: OutReason) {
        let replacement = Replacement {
            seat,
            phase: Phase::Copying,
            blocked: false,
            reason,
        };
        self.under_way.insert(with, replacement);
        cx.placement.twin_begins(seat, with);
        cx.placement.joins(with);
    }

    /// At opening: replacements that were under way continue, with the copy from the start.
    pub(super) fn reopen(&mut self, cx: &mut Context) -> Vec<OnDurable> {
        let successors = cx.facts.seats().filter(|(_, facts)| facts.is_successor());
        let all: Vec<(Seat, Seat)> = successors
            .filter_map(|(with, facts)| Some((Seat(facts.replaces?), with)))
            .collect();
        let mut effects = Vec::new();
        for (seat, with) in all {
            self.resume(cx, seat, with, OutReason::FailedByAdministrator);
            effects.push(OnDurable::Lanes(Command::Twin { seat, with }));
        }
        effects
    }

    /// The successor of a drive has a column.
    pub(super) fn successor_has(&mut self, cx: &mut Context, key: Key, target: Cell) {
        cx.placement.twin_has(key, target);
        if let Some(replacement) = self.under_way.get_mut(&target.seat) {
            replacement.blocked = false;
        }
    }

    /// Membership or volumes have changed: columns that could not be copied perhaps can be now.
    pub(super) fn try_again(&mut self) {
        for replacement in self.under_way.values_mut() {
            replacement.blocked = false;
        }
    }

    /// Advances every replacement that can proceed. `copies`: cells are being filled, or groups made blank that will soon
    /// have columns to copy. Returns the temporary seats of successors that are complete: fills onto them do not count.
    pub(super) fn pump(&mut self, cx: &mut Context, copies: bool) -> Vec<Seat> {
        let mut promoted = Vec::new();
        let all: Vec<Seat> = self.under_way.keys().copied().collect();
        for with in all {
            let replacement = &self.under_way[&with];
            let ready = match replacement.phase {
                Phase::Copying => !copies && !replacement.blocked && !cx.placement.is_joining(with),
                // A label that the old drive is writing is not the successor's.
                Phase::Recording => !cx.placement.is_writing(with) && cx.labels.is_settled(),
                Phase::Checkpointing(..) => false,
            };
            if !ready {
                continue;
            }
            let complete = cx.placement.twin_has_all(with);
            let replacement = self.under_way.get_mut(&with).expect("just listed");
            if !complete {
                replacement.blocked = replacement.phase == Phase::Copying;
                replacement.phase = Phase::Copying;
            } else if replacement.phase == Phase::Recording {
                // A column may have been rebuilt on the drive, and copied, meanwhile.
                if !record_lacking(cx, with) {
                    self.promote(cx, with);
                    promoted.push(with);
                }
            } else {
                let lanes = 0..cx.geometry.lanes();
                self.asked.next += 1;
                let number = self.asked.next;
                replacement.phase = Phase::Checkpointing(number, lanes.clone().collect());
                for lane in lanes {
                    self.asked.lanes.entry(lane).or_default().push_back(number);
                }
                cx.tell_lanes(&Command::Checkpoint);
            }
        }
        promoted
    }

    /// A lane has put in place everything that was logged when the checkpoint was requested. Returns whether it was
    /// requested here.
    pub(super) fn checkpointed(&mut self, cx: &mut Context, lane: u16) -> bool {
        let asked = self.asked.lanes.get_mut(&lane);
        let Some(asked) = asked.and_then(VecDeque::pop_front) else {
            return false;
        };
        let mut ended = None;
        for (&with, replacement) in &mut self.under_way {
            if let Phase::Checkpointing(number, lanes) = &mut replacement.phase
                && *number == asked
            {
                lanes.remove(&lane);
                ended = lanes.is_empty().then_some(with);
            }
        }
        if let Some(with) = ended {
            let replacement = self.under_way.get_mut(&with).expect("it is complete");
            replacement.phase = Phase::Recording;
            record_lacking(cx, with);
        }
        true
    }
}

/// Some of a drive's columns have entries in its cell table: writes the same entries to the successor's table. Returns
/// whether some were not there.
fn record_lacking(cx: &mut Context, with: Seat) -> bool {
    let lacking = cx.placement.twin_lacks(with);
    for &record in &lacking {
        let page = cx.placement.enter_again(record);
        cx.write_cell_page(page);
    }
    !lacking.is_empty()
}

/// Gives the successor the seat in the facts; `state` is how complete it is. Returns the facts of the old drive.
fn take_seat(
    cx: &mut Context,
    of: &Replacement,
    with: Seat,
    state: SeatState,
    reason: OutReason,
) -> SeatFacts {
    let seat = of.seat;
    let since = cx.labels.next_generation();
    let old = cx.facts.seats[seat.index()].clone();
    let new = cx.facts.seats[with.index()].clone();
    let [number, successors] = [seat, with].map(|seat| cx.facts.number(seat));
    cx.facts.seats[seat.index()] = SeatFacts {
        domain: new.domain.or_else(|| old.domain.clone()),
        state,
        holds: None,
        replaces: None,
        ..new
    };
    cx.facts.seats[with.index()] = SeatFacts {
        state: SeatState::Out { since, reason },
        holds: None,
        replaces: of.forgets_old().then_some(seat.0),
        ..old.clone()
    };
    // A drive that was named to replace another gets that seat's number; a spare that steps in keeps its own.
    let numbers = if of.forgets_old() {
        [number, successors]
    } else {
        [successors, number]
    };
    cx.facts.set_numbers([seat, with], numbers);
    cx.seats_changed();
    cx.placement.joins(seat);
    old
}

/// The switch.
impl Replacements {
    /// The successor is complete: it has the seat from the next generation on.
    fn promote(&mut self, cx: &mut Context, with: Seat) {
        let of = self.under_way.remove(&with).expect("it is under way");
        let (seat, reason) = (of.seat, of.reason);
        let filled = cx.placement.twin_ends(with);
        cx.labels.takes(with, seat);
        let old = take_seat(cx, &of, with, SeatState::Current, reason);
        let drive = cx.facts.seats[seat.index()].drive;
        let slot = cx.labels.leave(seat).unwrap_or_default();
        let promotion = Promotion {
            with,
            old: Some((old, slot)),
            filled,
            forgets_old: of.forgets_old(),
            report: Report::Replaced { seat, drive },
        };
        self.promotions.insert(seat, promotion);
        cx.commit(vec![OnDurable::Succeed(seat), OnDurable::Requeue]);
    }

    /// The facts that give a successor its seat are durable. Returns what the pool has to move there.
    pub(super) fn promoted(&mut self, cx: &mut Context, seat: Seat) -> Option<Promotion> {
        let promotion = self.promotions.remove(&seat)?;
        cx.placement.joined(seat);
        Some(promotion)
    }

    /// The successor could not write the label that gives it the seat.
    pub(super) fn label_failed(&mut self, cx: &mut Context, with: Seat) {
        if let Some(seat) = self.promoted_to(with) {
            forget_succession(cx, seat);
        }
    }
}

fn forget_succession(cx: &mut Context, seat: Seat) {
    let is_it = |effect: &OnDurable| matches!(effect, OnDurable::Succeed(of) if *of == seat);
    cx.labels.drop_effects(is_it);
}

/// Drives that go out.
impl Replacements {
    /// A drive is about to be put out. The facts already give its seat to a successor that steps in.
    pub(super) fn goes_out(&mut self, cx: &mut Context, seat: Seat, reason: OutReason) -> GoesOut {
        if let Some(promotion) = self.promotions.remove(&seat) {
            forget_succession(cx, seat);
            cx.placement.joined(seat);
            cx.labels.leave(promotion.with);
            return GoesOut::SuccessorFails(Box::new(promotion));
        }
        let with = cx.placement.successor(seat);
        let of = with.and_then(|with| self.under_way.remove(&with));
        let (Some(with), Some(of)) = (with, of) else {
            return GoesOut::Alone(self.successor_goes_out(cx, seat));
        };
        let filled = cx.placement.twin_ends(with);
        cx.labels.takes(with, seat);
        let since = cx.labels.next_generation();
        take_seat(cx, &of, with, SeatState::Filling, reason);
        cx.labels.leave(seat);
        GoesOut::SuccessorStepsIn(StepsIn {
            seat,
            with,
            since,
            reason,
            forgets_old: of.forgets_old(),
            filled,
        })
    }

    /// If the drive was to succeed another one, that one keeps its place.
    fn successor_goes_out(&mut self, cx: &mut Context, with: Seat) -> Option<Report> {
        let seat = self.under_way.remove(&with)?.seat;
        cx.placement.twin_ends(with);
        Some(Report::ReplacementEnds { seat, with })
    }

    /// The old drive is out of the seat: the successor takes it with the columns that it has. Returns the actions to commit
    /// before `effects`.
    pub(super) fn step_in(
        &mut self,
        cx: &mut Context,
        steps_in: StepsIn,
        mut effects: Vec<OnDurable>,
    ) -> Vec<OnDurable> {
        let StepsIn {
            seat,
            with,
            since,
            reason,
            forgets_old,
            filled,
        } = steps_in;
        cx.placement.twin_steps_in(seat, &filled);
        let drive = cx.facts.seats[seat.index()].drive;
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
        first.append(&mut effects);
        first.push(OnDurable::Requeue);
        first
    }
}

/// A successor that has its seat in the facts alone is out, and nothing is left of it: the old drive keeps the seat, if it
/// works. Returns the actions to commit, and the seat if it has no drive now.
pub(super) fn give_back(
    cx: &mut Context,
    seat: Seat,
    promotion: Promotion,
    reason: OutReason,
    mut effects: Vec<OnDurable>,
) -> (Vec<OnDurable>, Option<Seat>) {
    let since = cx.labels.next_generation();
    let state = SeatState::Out { since, reason };
    let with = promotion.with;
    let mut first = vec![OnDurable::Lanes(Command::SeatOut(with))];
    let mut lost = None;
    if let Some((old, drive)) = promotion.old {
        let number = if promotion.forgets_old {
            cx.facts.number(with)
        } else {
            cx.facts.number(seat)
        };
        let new = std::mem::replace(&mut cx.facts.seats[seat.index()], old);
        cx.facts.seats[with.index()] = SeatFacts {
            state,
            replaces: Some(seat.0),
            number: (number != with.0).then_some(number),
            ..new
        };
        cx.labels.is_back(seat, drive);
        first.push(OnDurable::Report(Report::ReplacementEnds { seat, with }));
        first.push(OnDurable::Vacate(with));
    } else {
        cx.facts.seats[seat.index()].state = state;
        lost = Some(seat);
        first.insert(0, OnDurable::Lanes(Command::SeatOut(seat)));
        first.push(OnDurable::Report(Report::DriveOut {
            seat,
            reason,
            since,
        }));
        effects.push(OnDurable::SeatSpare(seat));
    }
    cx.seats_changed();
    first.append(&mut effects);
    first.push(OnDurable::Requeue);
    (first, lost)
}

impl Context {
    /// Empties a seat beyond the layout's whose drive is out: it was replaced, was to replace another drive, or was a
    /// spare that is removed. The entry is dropped when it is the last one.
    pub(crate) fn vacate(&mut self, with: Seat) {
        let last = self.facts.seats.len().checked_sub(1) == Some(with.index());
        let facts = self.facts.seats.get(with.index());
        let out = facts.is_some_and(|facts| matches!(facts.state, SeatState::Out { .. }));
        if !out || with.0 < self.geometry.layout().drives() {
            return;
        }
        if last {
            self.facts.seats.pop();
        } else if !self.facts.seats[with.index()].is_removed(with) {
            return;
        }
        self.act(PoolAction::Vacate(with));
        // Spares that were removed before: their numbers stayed in use until this one was dropped.
        while let Some((seat, facts)) = self.facts.seats().last()
            && seat.0 >= self.geometry.layout().drives()
            && facts.is_removed(seat)
        {
            self.facts.seats.pop();
        }
        self.seats_changed();
        self.commit(Vec::new());
    }
}

#[cfg(test)]
mod tests {
    use block::Instant;
    use format::VolumeFacts;
    use plan::action::Event;

    use super::*;
    use crate::fixture::{drive, filled, spec, volume};
    use crate::{Half, Pool, Ticket};
    use testing::walk::Changes;

    const SEAT: Seat = Seat(2);
    const WITH: Seat = Seat(6);
    const NOW: Instant = Instant::ZERO;

    /// A pool whose drive in [`SEAT`] is replaced by one that waits in [`WITH`]. Lanes answer when the test says so.
    #[derive(Clone)]
    struct Lab {
        pool: Pool,
        writes: Vec<plan::action::IoId>,
        fills: Vec<(Key, Cell)>,
        others: Vec<PoolAction>,
    }

    impl Lab {
        fn new() -> Self {
            Self {
                pool: filled(&spec("raid6", 6), 2),
                writes: Vec::new(),
                fills: Vec::new(),
                others: Vec::new(),
            }
        }

        fn replace(&mut self) {
            let replaces = (self.pool).replace_drive(NOW, SEAT, drive(6), Ticket(1));
            replaces.unwrap();
            self.write_all();
        }

        fn poll(&mut self) {
            while let Some(action) = self.pool.poll_action() {
                match action {
                    PoolAction::WriteDurably { id, .. } => self.writes.push(id),
                    PoolAction::Lane(
                        _,
                        Command::Fill {
                            group,
                            column,
                            target,
                            ..
                        },
                    ) => self.fills.push(((group, column), target)),
                    other => self.others.push(other),
                }
            }
        }

        /// The writes that have been asked for by now end.
        fn write(&mut self) {
            self.poll();
            for id in std::mem::take(&mut self.writes) {
                self.pool.handle_completion(NOW, id, Half::Flush, Ok(()));
            }
            self.poll();
        }

        fn write_all(&mut self) {
            self.poll();
            while !self.writes.is_empty() {
                self.write();
            }
        }

        /// Every cell that lanes fill is filled.
        fn copy(&mut self) {
            self.poll();
            for ((group, column), target) in std::mem::take(&mut self.fills) {
                let filled = Event::Filled {
                    group,
                    column,
                    target,
                    copied_bytes: 0,
                };
                self.pool.handle_event(NOW, &filled);
            }
            self.poll();
        }

        fn checkpoint(&mut self) {
            for lane in 0..self.pool.geometry().lanes() {
                self.pool.handle_event(NOW, &Event::Checkpointed { lane });
            }
            self.poll();
        }

        fn fails(&mut self, seat: Seat) {
            let failed = OutReason::FailedByAdministrator;
            let fails = self.pool.fail_drive(NOW, seat, failed, true, Ticket(2));
            fails.unwrap();
            self.poll();
        }

        /// A change of the facts is on its way to the labels: nothing is recorded before it.
        fn hold_labels(&mut self) {
            self.pool.rename(NOW, "other", Ticket(3)).unwrap();
            self.poll();
        }

        fn state(&self) -> &'static str {
            let of = &self.pool.replacements;
            if let Some(replacement) = of.under_way.get(&WITH) {
                return match replacement.phase {
                    Phase::Copying => "copying",
                    Phase::Checkpointing(..) => "checkpointing",
                    Phase::Recording => "recording",
                };
            }
            if let Some(promotion) = of.promotions.get(&SEAT) {
                return if promotion.is_complete() {
                    "promoted"
                } else {
                    "stepping_in"
                };
            }
            let seat = &self.pool.facts().seats[SEAT.index()];
            match (seat.state, seat.drive == drive(6).uuid) {
                (SeatState::Out { .. }, _) => "lost",
                (_, true) => "replaced",
                (_, false) => "working",
            }
        }

        fn asked_for(&self, is_it: impl Fn(&PoolAction) -> bool) -> bool {
            self.others.iter().any(is_it)
        }
    }

    /// The drawing in the head of this file is what happens: every event, from every state.
    #[test]
    fn the_states_of_a_replacement_are_those_of_the_drawing() {
        type Step = (&'static str, &'static [&'static str], fn(&mut Lab));
        let under_way = &["copying", "checkpointing", "recording"];
        let all = &[
            "copying",
            "checkpointing",
            "recording",
            "promoted",
            "stepping_in",
        ];
        let steps: [Step; 8] = [
            ("begin", &["working"], Lab::replace),
            ("copied", &["copying"], Lab::copy),
            ("checkpointed", &["checkpointing"], |lab| {
                lab.hold_labels();
                lab.checkpoint();
            }),
            ("recorded", &["recording"], Lab::write),
            ("column_missing", &["recording"], |lab| {
                // A volume gets another group, and its columns have content.
                let extents = vec![(0, 3)];
                let larger = volume("v", extents, &lab.pool.cx);
                let volumes: &mut Vec<VolumeFacts> = &mut lab.pool.cx.facts.volumes;
                volumes[0] = larger;
                lab.pool.cx.groups_changed();
                lab.write();
            }),
            ("durable", &["promoted", "stepping_in"], Lab::write_all),
            ("drive_out", under_way, |lab| lab.fails(SEAT)),
            ("successor_out", all, |lab| lab.fails(WITH)),
        ];
        let mut known = vec![("working", Lab::new())];
        let mut drawn = Changes::default();
        let mut at = 0;
        while let Some((from, lab)) = known.get(at).cloned() {
            at += 1;
            // A drive that was to be replaced works as before.
            let begins = at == 1 || from != "working";
            for (event, states, happens) in steps {
                if !states.contains(&from) || !begins {
                    continue;
                }
                let mut after = lab.clone();
                happens(&mut after);
                let to = after.state();
                assert_ne!(from, to, "{event}");
                drawn.note(from, event, to);
                if known.iter().all(|&(name, _)| name != to) {
                    known.push((to, after));
                }
            }
        }
        drawn.assert_drawn_in(include_str!("replace.rs"));
    }

    #[test]
    fn every_column_of_the_drive_is_copied_to_the_same_row() {
        let mut lab = Lab::new();
        lab.replace();
        let columns: BTreeSet<Key> = lab.pool.cx.placement.columns_on(SEAT).collect();
        let copied: BTreeSet<Key> = lab.fills.iter().map(|(key, _)| *key).collect();
        assert_eq!(copied, columns);
        for (key, target) in &lab.fills {
            let place = lab.pool.cx.placement.place(*key).unwrap();
            assert_eq!((target.seat, target.row), (WITH, place.row));
        }
    }

    #[test]
    fn the_lanes_write_to_both_drives_before_anything_is_copied() {
        let mut lab = Lab::new();
        let replaces = (lab.pool).replace_drive(NOW, SEAT, drive(6), Ticket(1));
        replaces.unwrap();
        lab.poll();
        assert_eq!(lab.fills, [], "the facts are not durable yet");
        lab.write_all();
        let twin = Command::Twin {
            seat: SEAT,
            with: WITH,
        };
        assert!(lab.asked_for(|action| *action == PoolAction::Lane(0, twin.clone())));
        assert!(!lab.fills.is_empty());
    }

    #[test]
    fn the_lanes_switch_when_the_facts_are_durable_and_the_old_drive_is_forgotten() {
        let mut lab = Lab::new();
        lab.replace();
        lab.copy();
        lab.checkpoint();
        assert_eq!(lab.state(), "promoted");
        let succeeds = |action: &PoolAction| matches!(action, PoolAction::Succeed(SEAT, WITH, _));
        assert!(!lab.asked_for(succeeds));
        lab.write_all();
        assert!(lab.asked_for(succeeds) && lab.asked_for(|of| *of == PoolAction::Vacate(WITH)));
        assert_eq!(lab.pool.facts().seats.len(), 6);
        assert!(lab.pool.is_idle());
    }

    #[test]
    fn nothing_is_promoted_while_a_label_is_on_its_way_to_the_old_drive() {
        let mut lab = Lab::new();
        lab.replace();
        lab.copy();
        lab.hold_labels();
        lab.checkpoint();
        assert_eq!(lab.state(), "recording");
        lab.write();
        assert_eq!(lab.state(), "promoted");
    }

    #[test]
    fn a_column_that_cannot_be_copied_blocks_the_replacement_until_membership_changes() {
        let mut lab = Lab::new();
        lab.replace();
        let ((group, column), target) = lab.fills.pop().unwrap();
        let failed = Event::FillFailed {
            group,
            column,
            target,
            fault: block::Fault::Medium,
        };
        lab.pool.handle_event(NOW, &failed);
        lab.copy();
        assert!(!lab.pool.is_replacing() && lab.state() == "copying");
        lab.pool.requeue_fills();
        assert!(lab.pool.is_replacing());
        lab.pool.pause_fills(NOW, false);
        lab.copy();
        assert_eq!(lab.state(), "checkpointing");
    }

    #[test]
    fn a_successor_that_steps_in_has_what_was_copied_and_the_rest_is_rebuilt() {
        let mut lab = Lab::new();
        lab.replace();
        let ((group, column), target) = lab.fills.pop().unwrap();
        let filled = Event::Filled {
            group,
            column,
            target,
            copied_bytes: 0,
        };
        lab.pool.handle_event(NOW, &filled);
        let (other, onto) = lab.fills.pop().unwrap();
        lab.fails(SEAT);
        assert_eq!(lab.state(), "stepping_in");
        let place = lab.pool.cx.placement.place((group, column)).unwrap();
        assert_eq!((place.seat, place.row), (SEAT, target.row));
        assert_eq!(lab.pool.absent_columns(), 1, "the other column");
        lab.write_all();
        let state = lab.pool.facts().seats[SEAT.index()].state;
        assert_eq!(state, SeatState::Filling);
        // The copy that was under way does not count, whatever its lane reports.
        lab.fills.push((other, onto));
        lab.copy();
        let rebuilt: Vec<_> = lab.fills.iter().map(|(key, to)| (*key, to.seat)).collect();
        assert_eq!(rebuilt, [(other, SEAT)]);
    }

    #[test]
    fn a_drive_of_which_the_successor_fails_keeps_its_seat_and_the_successor_is_vacated() {
        let mut lab = Lab::new();
        let before = lab.pool.facts().seats[SEAT.index()].clone();
        lab.replace();
        lab.copy();
        lab.checkpoint();
        lab.fails(WITH);
        assert_eq!(lab.state(), "working");
        assert_eq!(lab.pool.facts().seats[SEAT.index()], before);
        lab.write_all();
        assert!(lab.asked_for(|of| *of == PoolAction::Vacate(WITH)));
        assert_eq!(lab.pool.absent_columns(), 0);
    }

    #[test]
    fn a_checkpoint_of_closing_is_not_taken_for_one_of_a_replacement() {
        let mut lab = Lab::new();
        assert!(!lab.pool.replacements.checkpointed(&mut lab.pool.cx, 0));
        lab.replace();
        lab.copy();
        assert!(lab.pool.replacements.checkpointed(&mut lab.pool.cx, 0));
    }

    #[test]
    fn a_drive_is_handed_over_to_a_spare_once_and_only_if_it_is_complete() {
        let mut lab = Lab::new();
        assert!(!(lab.pool.replacements).hand_over(&mut lab.pool.cx, SEAT));
        lab.pool.add_spare(NOW, drive(6), Ticket(1)).unwrap();
        lab.write_all();
        for _ in 0..2 {
            assert!((lab.pool.replacements).hand_over(&mut lab.pool.cx, SEAT));
        }
        assert_eq!(lab.pool.successor(SEAT), Some(WITH));
        assert!(!(lab.pool.replacements).hand_over(&mut lab.pool.cx, Seat(3)));
    }

    #[test]
    fn a_spare_that_steps_in_for_a_drive_that_fails_keeps_its_number() {
        let mut lab = Lab::new();
        lab.pool.add_spare(NOW, drive(6), Ticket(1)).unwrap();
        lab.write_all();
        (lab.pool.replacements).hand_over(&mut lab.pool.cx, SEAT);
        lab.write_all();
        lab.copy();
        lab.checkpoint();
        lab.write_all();
        assert_eq!(lab.state(), "replaced");
        assert_eq!(lab.pool.facts().number(SEAT), WITH.0);
        let old = &lab.pool.facts().seats[WITH.index()];
        assert!(matches!(
            old.state,
            SeatState::Out {
                reason: OutReason::IoErrors,
                ..
            }
        ));
    }
}
