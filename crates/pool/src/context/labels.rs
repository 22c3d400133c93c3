//! Writing the facts to the labels, one generation at a time.
//!
//! A drive that joins or returns has a new identity, and no label with it. It gets the generation that names it first,
//! and all other drives get it after that: otherwise a power cut could leave the others with a label that counts on a
//! drive that is not found, and of a mirror with one drive left, half of the drives would be missing.
//!
//! A drive that fails to write its label goes out, if it can be spared and is not full (`full.rs`). If the drives that fail together cannot be
//! spared, they stay: put out, they would take the data on them away. The generation is then tried again at growing
//! intervals, and the next generation waits for it. Actions that depend on a generation that too few drives have are
//! not carried out. Commands that wait for it end with an error, but take effect when the drives accept the label after
//! all.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{Generation, LABEL_OFFSETS, Payload};
use plan::action::Command;

use super::Context;
use super::writes::PoolWrite;
use crate::{OnDurable, PoolFacts, SeatState, Ticket};

/// The wait before refused labels are tried again: doubled each time, up to the longest. A guess, as for the lanes'
/// back-off.
const WAIT_MIN: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// A drive that takes labels.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drive {
    /// Copy of the label that is written next.
    slot: usize,
    /// The drive has a label with its present identity.
    has_label: bool,
    /// The seat that its label names, if not its own: a successor's label names the seat that it is to take.
    takes: Option<Seat>,
}

/// Label writes in flight, and the actions that wait for them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    /// The generation of the facts.
    generation: Generation,
    /// The drives that get labels.
    drives: BTreeMap<Seat, Drive>,
    /// Every drive that was to get the generation has answered: what follows has yet to be decided.
    answered: bool,
    /// Drives whose label is being written.
    outstanding: BTreeSet<Seat>,
    /// Drives that get the generation after those that are getting their first label.
    second: BTreeSet<Seat>,
    /// Drives that failed to write their label, and their errors.
    failed: BTreeMap<Seat, Fault>,
    /// Drives that do not have the generation, and stay because they cannot be spared.
    refusing: BTreeSet<Seat>,
    /// Number of failed attempts, and when the next one is due.
    tries: u32,
    retry_at: Option<Instant>,
    /// The payload of the generation that is being written.
    payload: Option<Payload>,
    /// Generation being written.
    writing: Generation,
    /// Actions to carry out once a generation is durable, oldest first.
    effects: Vec<(Generation, Vec<OnDurable>)>,
    /// Another generation waits to be written: no drive has any of it.
    again: bool,
    /// The seeded fault's actions, which do not wait.
    early: Vec<OnDurable>,
    /// Drives that have failed together are being put out: the next generation is written when all of them are.
    gathers: bool,
}

/// The drives that get labels.
impl Labels {
    /// Labels of a pool whose facts have this generation.
    pub(crate) fn new(generation: Generation, drives: impl Iterator<Item = Seat>) -> Self {
        Self {
            generation,
            drives: drives.map(|seat| (seat, Drive::default())).collect(),
            ..Self::default()
        }
    }

    pub(crate) fn drives(&self) -> impl ExactSizeIterator<Item = Seat> + '_ {
        self.drives.keys().copied()
    }

    /// Whether the seat's drive gets labels.
    pub(crate) fn has(&self, seat: Seat) -> bool {
        self.drives.contains_key(&seat)
    }

    /// Whether the seat's drive gets labels and has one.
    pub(crate) fn is_labelled(&self, seat: Seat) -> bool {
        self.drives.get(&seat).is_some_and(|drive| drive.has_label)
    }

    /// The seat's drive gets labels from now on.
    pub(crate) fn join(&mut self, seat: Seat) {
        self.drives.entry(seat).or_default();
    }

    /// The seat's drive gets no labels any more.
    pub(crate) fn leave(&mut self, seat: Seat) -> Option<Drive> {
        self.drives.remove(&seat)
    }

    /// A drive that had left is back in its seat.
    pub(crate) fn is_back(&mut self, seat: Seat, drive: Drive) {
        self.drives.insert(seat, drive);
    }

    /// The drives of two seats change places.
    pub(crate) fn exchange(&mut self, a: Seat, b: Seat) {
        let (of_a, of_b) = (self.drives.remove(&a), self.drives.remove(&b));
        self.drives.extend(of_a.map(|drive| (b, drive)));
        self.drives.extend(of_b.map(|drive| (a, drive)));
    }

    /// The label of a drive names the seat that it is to take.
    pub(crate) fn takes(&mut self, with: Seat, seat: Seat) {
        if let Some(drive) = self.drives.get_mut(&with) {
            drive.takes = Some(seat);
        }
    }
}

/// Generations.
impl Labels {
    /// The generation of the facts.
    pub(crate) const fn generation(&self) -> Generation {
        self.generation
    }

    /// The generation that a change of the facts becomes part of.
    pub(crate) fn next_generation(&self) -> Generation {
        if self.again && !seeded::is(SeededFault::SkipGenerations) {
            self.generation
        } else {
            self.generation.next()
        }
    }

    /// True if nothing is in flight; labels that drives refuse do not count.
    pub(crate) fn is_idle(&self) -> bool {
        let waits = self.again || !self.effects.is_empty();
        self.is_written() && (!waits || self.is_refused())
    }

    /// Whether all facts are durable, and all actions that waited for them are carried out.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_written() && !self.again && self.effects.is_empty()
    }

    /// Whether all drives that were to get the generation have answered since the last call.
    pub(crate) const fn take_answered(&mut self) -> bool {
        std::mem::replace(&mut self.answered, false)
    }

    /// What a seeded fault carries out before it is durable.
    pub(crate) fn take_early(&mut self) -> Vec<OnDurable> {
        std::mem::take(&mut self.early)
    }

    /// These drives stay without the generation. One generation records all those that do not stay, and is written when they
    /// are out: otherwise a drive of which the next one does not say yet that it is out would lag by two.
    pub(crate) fn gather(&mut self, stay: BTreeSet<Seat>) {
        self.refusing = stay;
        self.gathers = true;
    }

    /// Whether what follows a generation has yet to be decided.
    pub(crate) const fn is_answered(&self) -> bool {
        self.answered
    }

    /// Whether no drive has yet to get the generation, or has yet to answer.
    fn is_written(&self) -> bool {
        self.outstanding.is_empty() && self.second.is_empty()
    }

    /// True if drives that stay do not have the generation, and none of them is being tried.
    pub(crate) fn is_refused(&self) -> bool {
        !self.refusing.is_empty() && self.outstanding.is_empty()
    }

    /// Checks the label writes.
    ///
    /// # Panics
    /// When a generation is skipped, or an action waits for a generation that will not come.
    pub(crate) fn check(&self) {
        let newest = self.generation;
        // Nothing has been written since the opening.
        let first = self.writing == Generation(0);
        assert!(
            first || newest == self.writing.plus(u64::from(self.again)),
            "generation {} is written, and {newest} is the newest",
            self.writing
        );
        let generations = self.effects.iter().map(|&(generation, _)| generation);
        assert!(
            generations.clone().is_sorted() && generations.max().is_none_or(|last| last <= newest)
        );
        let soon = self.second.iter().chain(&self.refusing);
        for seat in self.outstanding.iter().chain(soon) {
            assert!(self.has(*seat), "drive {seat} is one of the pool's");
        }
    }

    /// When refused labels are tried again.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        self.retry_at.filter(|_| self.is_refused())
    }

    /// Whether the seat's drive will be out once the labels are durable, and lanes still use the seat.
    pub(crate) fn is_going_out(&self, seat: Seat) -> bool {
        self.going_out().any(|going| going == seat)
    }

    /// Seats for which a `SeatOut` to the lanes waits for the labels.
    pub(crate) fn going_out(&self) -> impl Iterator<Item = Seat> {
        let effects = self.effects.iter().flat_map(|(_, effects)| effects);
        effects.filter_map(|effect| match effect {
            OnDurable::Lanes(Command::SeatOut(seat)) => Some(*seat),
            _ => None,
        })
    }

    /// The seat's drive is out: do not wait for its label. The generation that records this is written next, and
    /// actions that wait for the present one are carried out with that.
    pub(crate) fn forget(&mut self, seat: Seat) {
        self.outstanding.remove(&seat);
        self.second.remove(&seat);
        self.failed.remove(&seat);
        self.refusing.remove(&seat);
    }

    /// A drive has another seat.
    pub(crate) fn rename(&mut self, from: Seat, to: Seat) {
        for seats in [&mut self.outstanding, &mut self.second, &mut self.refusing] {
            if seats.remove(&from) {
                seats.insert(to);
            }
        }
        if let Some(fault) = self.failed.remove(&from) {
            self.failed.insert(to, fault);
        }
        if let Some(drive) = self.drives.remove(&from) {
            self.drives.insert(
                to,
                Drive {
                    takes: None,
                    ..drive
                },
            );
        }
    }

    /// Drops the waiting actions for which `is_meant` is true.
    pub(crate) fn drop_effects(&mut self, is_meant: impl Fn(&OnDurable) -> bool) {
        for (_, effects) in &mut self.effects {
            effects.retain(|effect| !is_meant(effect));
        }
    }
}

/// Writing generations.
impl Context {
    /// Makes the facts durable as a new generation, then carries out `effects`.
    ///
    /// Every drive in use has a generation before the next one is begun. So at opening, a drive that lags by more than
    /// one has missed a change. This requires that no number is skipped: all changes that come while a generation is
    /// being written become part of the next one.
    pub(crate) fn commit(&mut self, effects: Vec<OnDurable>) {
        if seeded::is(SeededFault::InitializedEarly) {
            let initialized = effects
                .iter()
                .filter(|effect| matches!(effect, OnDurable::Initialized(_)));
            self.labels.early.extend(initialized.cloned());
        }
        let generation = self.labels.next_generation();
        self.labels.generation = generation;
        self.labels.effects.push((generation, effects));
        if self.labels.gathers || self.labels.answered {
            // It is begun when the present one has been decided about.
            self.labels.again = true;
            return;
        }
        let is_accepted = self.labels.refusing.is_empty() && self.labels.failed.is_empty();
        if self.labels.is_written() && is_accepted {
            self.write_labels();
            return;
        }
        self.labels.again = true;
        let waits = !self.labels.failed.is_empty() || !self.labels.second.is_empty();
        if self.labels.outstanding.is_empty() && waits {
            // The last drive that had yet to answer has gone out. Drives that have failed and stay must not miss two
            // generations.
            self.labels_answered();
        } else {
            self.retry_labels();
        }
    }

    fn write_labels(&mut self) {
        self.labels.again = false;
        self.labels.failed.clear();
        self.labels.writing = self.labels.generation;
        let (first, second) =
            { self.labels.drives() }.partition(|&seat| !self.labels.is_labelled(seat));
        self.labels.payload = Some(Payload::new(&self.facts));
        self.labels.tries = 0;
        self.labels.second = second;
        self.give_label(first);
        if self.labels.outstanding.is_empty() {
            self.labels_answered();
        }
    }

    /// Writes the label of the present generation to these drives.
    fn give_label(&mut self, seats: BTreeSet<Seat>) {
        if seats.is_empty() {
            return;
        }
        let payload = self.labels.payload.take().expect("a generation is written");
        for seat in seats {
            self.write_label(seat, &payload);
        }
        self.labels.payload = Some(payload);
    }

    /// No drive has yet to answer: the drives are next that have waited for those that join.
    fn labels_answered(&mut self) {
        let second = std::mem::take(&mut self.labels.second);
        self.give_label(second);
        self.labels.answered = self.labels.outstanding.is_empty();
    }

    /// Writes the label again to drives that refused the generation.
    pub(crate) fn retry_labels(&mut self) {
        if !self.labels.is_refused() {
            return;
        }
        self.labels.retry_at = None;
        let refusing = std::mem::take(&mut self.labels.refusing);
        self.give_label(refusing);
    }

    /// The same, if the next attempt is due.
    pub(crate) fn retry_labels_when_due(&mut self) {
        if self.labels.retry_at().is_some_and(|at| at <= self.now) {
            self.retry_labels();
        }
    }

    /// Sends `SeatKept` to lanes that wait for a seat to go out: the drives that cannot be spared do not record it.
    pub(crate) fn refuse_going_out(&mut self, seat: Seat) {
        if self.labels.is_refused() && self.labels.going_out().any(|other| other == seat) {
            self.tell_lanes(&Command::SeatKept(seat));
        }
    }

    /// Writes the label of the present generation to the seat's drive.
    fn write_label(&mut self, seat: Seat, payload: &Payload) {
        self.labels.outstanding.insert(seat);
        let drive = self.labels.drives.get_mut(&seat).expect("it takes part");
        let offset = LABEL_OFFSETS[drive.slot];
        drive.slot = 1 - drive.slot;
        let sits = drive.takes.unwrap_or(seat);
        let identity = self.facts.seats[sits.index()].drive;
        let bytes = payload.label(identity, sits, self.labels.writing);
        self.write_durably(PoolWrite::Label { seat }, offset, bytes);
    }

    /// At opening: all drives get the newest generation, before the next one is begun. `slots`: the copy in which each
    /// drive has its label.
    ///
    /// A drive that lags would be two generations behind after a stop during the next one, and so out. In other drives
    /// the label may be in the cache alone, if the daemon was killed: the label is written over itself, and flushed.
    /// Otherwise a power cut could take both copies, this one with the cache and the other one torn.
    pub(crate) fn level_labels(
        &mut self,
        slots: &BTreeMap<Seat, usize>,
        lagging: &[Seat],
        facts: &PoolFacts,
    ) {
        self.labels.writing = self.labels.generation;
        let payload = Payload::new(facts);
        for (&seat, &slot) in slots {
            let then = facts.seats.get(seat.index());
            let is_in = then.is_some_and(|then| !matches!(then.state, SeatState::Out { .. }));
            let Some(drive) = self.labels.drives.get_mut(&seat) else {
                continue;
            };
            drive.has_label = true;
            drive.slot = match lagging.contains(&seat) || !is_in {
                true => 1 - slot,
                false => slot,
            };
            if is_in {
                self.write_label(seat, &payload);
            }
        }
        self.labels.payload = Some(payload);
    }

    pub(crate) fn label_written(&mut self, seat: Seat, outcome: Outcome) {
        self.labels.outstanding.remove(&seat);
        let drive = self.labels.drives.get_mut(&seat);
        if let Err(fault) = outcome {
            self.labels.failed.insert(seat, fault);
            // The other copy is older, but intact: it stays until this one is.
            if let Some(drive) = drive {
                drive.slot = 1 - drive.slot;
            }
        } else if let Some(drive) = drive {
            drive.has_label = true;
        }
        if self.labels.outstanding.is_empty() {
            self.labels_answered();
        }
    }

    /// All drives have answered: those that do not have the generation, and their errors.
    pub(crate) fn take_failed(&mut self) -> BTreeMap<Seat, Fault> {
        let failed = std::mem::take(&mut self.labels.failed);
        let drives = &self.labels.drives;
        failed
            .into_iter()
            .filter(|(seat, _)| drives.contains_key(seat))
            .collect()
    }

    /// The actions that waited for the generation that is written, or for one before it.
    pub(crate) fn take_durable(&mut self) -> Vec<OnDurable> {
        let durable = self.labels.writing;
        let waiting = std::mem::take(&mut self.labels.effects);
        let (now, later): (Vec<_>, Vec<_>) = waiting
            .into_iter()
            .partition(|&(generation, _)| generation <= durable);
        self.labels.effects = later;
        let now = now.into_iter().flat_map(|(_, effects)| effects);
        out_together(now.collect())
    }

    /// All drives that go out with the present generation are out: the next one, which records them, is written, unless
    /// drives stay that have yet to take the present one.
    pub(crate) fn gathered(&mut self) {
        self.labels.gathers = false;
        let stay = !self.labels.refusing.is_empty();
        if !stay && self.labels.again && self.labels.outstanding.is_empty() {
            self.write_labels();
        }
    }

    /// Drives stay without the generation: the next attempt comes later. Returns the commands that waited for it: the change
    /// is on too few drives. It is still made when they accept it.
    pub(crate) fn wait_for_refusing(&mut self) -> Vec<Ticket> {
        let wait = WAIT_MIN.saturating_mul(1 << self.labels.tries.min(16));
        self.labels.tries = self.labels.tries.saturating_add(1);
        self.labels.retry_at = Some(self.now + wait.min(WAIT_MAX));
        let mut asked = Vec::new();
        for (_, effects) in &mut self.labels.effects {
            take_asked(effects, &mut asked);
        }
        asked
    }
}

#[cfg(test)]
impl Context {
    /// What waited for a generation that all drives have; `None` if they do not have it yet.
    pub(crate) fn take_written(&mut self) -> Option<Vec<OnDurable>> {
        std::mem::take(&mut self.labels.answered).then(|| {
            let effects = self.take_durable();
            self.gathered();
            effects
        })
    }
}

/// Takes the commands that wait for success out of `effects`; an opening is one of them.
fn take_asked(effects: &mut Vec<OnDurable>, asked: &mut Vec<Ticket>) {
    effects.retain_mut(|effect| match effect {
        OnDurable::Done(ticket, Ok(())) => {
            asked.push(*ticket);
            false
        }
        OnDurable::Recover { then, .. } => {
            take_asked(then, asked);
            true
        }
        _ => true,
    });
}

/// Drives that go out with one generation do so in one command, unless lanes get other commands with it (drives that
/// come in).
fn out_together(mut effects: Vec<OnDurable>) -> Vec<OnDurable> {
    let is_out = |effect: &OnDurable| matches!(effect, OnDurable::Lanes(Command::SeatOut(_)));
    let only = |effect: &OnDurable| is_out(effect) || !matches!(effect, OnDurable::Lanes(_));
    let seats = effects.iter().filter_map(|effect| match effect {
        OnDurable::Lanes(Command::SeatOut(seat)) => Some(*seat),
        _ => None,
    });
    let seats: Vec<Seat> = seats.collect();
    if seats.len() > 1 && effects.iter().all(only) {
        // A place on one of these seats would be sent before `SeatOut`, and become invalid with it: drop it.
        effects.retain(
            |effect| !matches!(effect, OnDurable::Place { cell, .. } if seats.contains(&cell.seat)),
        );
        let first = effects.iter().position(is_out).expect("there are some");
        effects[first] = OnDurable::Lanes(Command::SeatsOut(seats));
        effects.retain(|effect| !is_out(effect));
    }
    effects
}

#[cfg(test)]
mod tests {
    use block::{Instant, Seat};
    use format::{Column, GroupId, newest_label};
    use layout::Cell;
    use plan::action::{IoId, WRITE_RETRIES};

    use super::*;
    use crate::fixture::{drive, spec};
    use crate::{Half, OutReason, Pool, PoolAction, Ticket, create};

    /// The label writes that the pool requests, with their generations.
    fn labels(pool: &mut Pool) -> Vec<(IoId, Generation)> {
        let mut labels = Vec::new();
        while let Some(action) = pool.poll_action() {
            if let PoolAction::WriteDurably { id, bytes, .. } = action {
                let (_, label) = newest_label([&bytes, &[]]).expect("a label");
                labels.push((id, label.generation));
            }
        }
        labels
    }

    /// `raid6` of six drives, with its first labels yet to be written.
    fn pool() -> Pool {
        create(&spec("raid6", 6), Ticket(0)).unwrap()
    }

    #[test]
    fn a_label_that_the_medium_refuses_is_written_again_and_one_that_is_not_flushed_is_not() {
        for (last, fault, attempts) in [
            (Half::Write, Fault::Medium, 1 + WRITE_RETRIES),
            (Half::Flush, Fault::Medium, 1),
        ] {
            let mut pool = pool();
            for (id, _) in labels(&mut pool) {
                pool.handle_completion(Instant::ZERO, id, Half::Flush, Ok(()));
            }
            while pool.poll_action().is_some() {}
            // A seventh drive: all seven get labels.
            let added = pool.add_spare(Instant::ZERO, drive(6), Ticket(1));
            added.unwrap();
            for count in [1, 6] {
                let written = labels(&mut pool);
                assert_eq!(written.len(), count);
                for (id, _) in written {
                    pool.handle_completion(Instant::ZERO, id, Half::Flush, Ok(()));
                }
            }
            pool.rename(Instant::ZERO, "q", Ticket(2)).unwrap();
            let written = labels(&mut pool);
            assert_eq!(written.len(), 7);
            let mut refused = written[0];
            for (id, _) in written.into_iter().skip(1) {
                pool.handle_completion(Instant::ZERO, id, Half::Flush, Ok(()));
            }
            for attempt in 1..=attempts {
                pool.handle_completion(Instant::ZERO, refused.0, last, Err(fault));
                let again = labels(&mut pool);
                if attempt < attempts {
                    assert_eq!(again.len(), 1, "{last:?} {fault:?}");
                    assert_eq!(again[0].1, refused.1);
                    refused = again[0];
                } else {
                    // The generation in which the refusing drive is out, to the other drives.
                    assert_eq!(again.len(), 6, "{last:?} {fault:?}");
                    assert!(again.iter().all(|&(_, generation)| generation > refused.1));
                }
            }
        }
    }

    #[test]
    fn what_comes_while_a_generation_is_written_is_the_next_one_together() {
        let mut pool = pool();
        let now = Instant::ZERO;
        let first = labels(&mut pool);
        assert!(
            first
                .iter()
                .all(|&(_, generation)| generation == Generation(1))
        );
        for number in 6..9 {
            pool.add_spare(now, drive(number), Ticket(1)).unwrap();
        }
        pool.take_out(Seat(0), OutReason::FailedByAdministrator, Vec::new());
        assert_eq!(pool.generation(), Generation(2));
        let seats = &pool.facts().seats;
        assert!(matches!(
            seats[0].state,
            crate::SeatState::Out {
                since: Generation(2),
                ..
            }
        ));
        assert!(
            labels(&mut pool).is_empty(),
            "the first is not yet on all drives"
        );
        for (id, _) in first {
            pool.handle_completion(now, id, Half::Flush, Ok(()));
        }
        // First to those that join, then to the others.
        for count in [3, 5] {
            let second = labels(&mut pool);
            assert_eq!(second.len(), count);
            assert!(
                second
                    .iter()
                    .all(|&(_, generation)| generation == Generation(2))
            );
            for (id, _) in second {
                pool.handle_completion(now, id, Half::Flush, Ok(()));
            }
        }
    }

    /// A drive that joins fails before it has a label: the others get the generation that names it before the one
    /// that calls it out. None of them may miss a generation.
    #[test]
    fn no_generation_is_skipped_when_a_drive_that_joins_goes_out_at_once() {
        for fails in [false, true] {
            let mut pool = pool();
            let now = Instant::ZERO;
            for (id, _) in labels(&mut pool) {
                pool.handle_completion(now, id, Half::Flush, Ok(()));
            }
            while pool.poll_action().is_some() {}
            pool.add_spare(now, drive(6), Ticket(1)).unwrap();
            let first = labels(&mut pool);
            assert_eq!(first.len(), 1);
            if fails {
                pool.handle_completion(now, first[0].0, Half::Flush, Err(block::Fault::Gone));
            } else {
                let failed = OutReason::FailedByAdministrator;
                pool.fail_drive(now, Seat(6), failed, false, Ticket(2))
                    .unwrap();
            }
            for generation in [Generation(2), Generation(3)] {
                let next = labels(&mut pool);
                assert_eq!(next.len(), 6, "{fails} {generation}");
                assert!(next.iter().all(|&(_, of)| of == generation));
                for (id, _) in next {
                    pool.handle_completion(now, id, Half::Flush, Ok(()));
                }
            }
            assert!(labels(&mut pool).is_empty());
        }
    }

    #[test]
    fn a_place_on_a_seat_that_goes_out_with_others_is_not_told() {
        let place = |seat| OnDurable::Place {
            group: GroupId(0),
            column: Column(seat),
            cell: Cell {
                seat: Seat(seat),
                row: 0,
            },
        };
        let out = |seat| OnDurable::Lanes(Command::SeatOut(Seat(seat)));
        // Seat 6 failed when the actions of the opening were already waiting.
        let effects = out_together(vec![out(3), place(5), place(6), out(6)]);
        let [
            OnDurable::Lanes(Command::SeatsOut(seats)),
            OnDurable::Place {
                column: Column(5), ..
            },
        ] = &effects[..]
        else {
            panic!("{effects:?}");
        };
        assert_eq!(seats[..], [Seat(3), Seat(6)]);
        // Sent one by one, their order has the same effect.
        assert_eq!(out_together(vec![place(6), out(6)]).len(), 2);
    }
}
