//! Writing the facts to the labels, one generation at a time.

use std::collections::BTreeSet;

use block::{Outcome, Seat};

use super::{Effect, OutReason, Pool, PoolAction, PoolFacts, PoolWrite};
use crate::format::{LABEL_OFFSETS, Payload};
use crate::planted::{self, Bug};

/// Label writes under way and what waits for them.
#[derive(Clone, Debug, Default)]
pub(super) struct Labels {
    /// Drives whose label is being written.
    outstanding: BTreeSet<Seat>,
    /// Drives that failed to write theirs.
    failed: BTreeSet<Seat>,
    /// Generation being written.
    writing: u64,
    /// What happens once a generation is durable, oldest first.
    effects: Vec<(u64, Vec<Effect>)>,
    /// The next generation waits to be written: nothing of it is on any drive.
    again: bool,
}

impl Labels {
    pub(super) fn is_idle(&self) -> bool {
        self.outstanding.is_empty() && !self.again && self.effects.is_empty()
    }

    /// The seat's drive is out: its label is not waited for. The generation that says so is
    /// written next, and what waits for this one happens with that.
    pub(super) fn forget(&mut self, seat: Seat) {
        self.outstanding.remove(&seat);
        self.failed.remove(&seat);
    }

    /// A drive is in another seat from now on, whatever of its label is under way.
    pub(super) fn rename(&mut self, from: Seat, to: Seat) {
        for seats in [&mut self.outstanding, &mut self.failed] {
            if seats.remove(&from) {
                seats.insert(to);
            }
        }
    }

    /// What was to happen does not.
    pub(super) fn drop_effects(&mut self, is_meant: impl Fn(&Effect) -> bool) {
        for (_, effects) in &mut self.effects {
            effects.retain(|effect| !is_meant(effect));
        }
    }
}

impl Pool {
    /// Makes the facts durable as a new generation; then `effects` happen.
    ///
    /// Every drive that takes part has a generation before the next one is begun, so at opening a
    /// drive that lags by more than one has missed something. For that, no number may be left out:
    /// what comes while a generation is being written is all part of the next one.
    pub(super) fn commit(&mut self, effects: Vec<Effect>) {
        self.generation = self.next_generation();
        self.labels.effects.push((self.generation, effects));
        if self.labels.outstanding.is_empty() {
            self.write_labels();
        } else {
            self.labels.again = true;
        }
    }

    /// The generation that a change of the facts becomes part of.
    pub(super) fn next_generation(&self) -> u64 {
        if self.labels.again && !planted::is(Bug::SkipGenerations) {
            self.generation
        } else {
            self.generation + 1
        }
    }

    fn write_labels(&mut self) {
        self.labels.again = false;
        self.labels.failed.clear();
        self.labels.writing = self.generation;
        let seats: Vec<Seat> = self.drives.keys().copied().collect();
        let payload = Payload::new(&self.facts);
        for seat in seats {
            self.write_label(seat, &payload);
        }
        if self.labels.outstanding.is_empty() {
            self.generation_durable();
        }
    }

    /// The seat's drive gets a label of the generation that is being written.
    fn write_label(&mut self, seat: Seat, payload: &Payload) {
        self.labels.outstanding.insert(seat);
        let id = self.fresh_io(PoolWrite::Label { seat });
        let drive = self.drives.get_mut(&seat).expect("it takes part");
        let offset = LABEL_OFFSETS[drive.label_slot];
        drive.label_slot = 1 - drive.label_slot;
        // A successor is told of the seat that it takes.
        let sits = self.promoted_to(seat).unwrap_or(seat);
        let identity = self.facts.seats[sits.index()].drive;
        let bytes = payload.label(identity, sits, self.labels.writing);
        self.actions.push_back(PoolAction::WriteDurably {
            id,
            seat,
            offset,
            bytes,
        });
    }

    /// At opening: drives that have not got the newest generation get it, as others have it, before the next one
    /// is begun. Else a stop in the middle of that one could leave them two behind, and out.
    pub(super) fn level_labels(&mut self, lagging: &[Seat], facts: &PoolFacts) {
        self.labels.writing = self.generation;
        let payload = Payload::new(facts);
        for &seat in lagging {
            self.write_label(seat, &payload);
        }
    }

    pub(super) fn label_written(&mut self, seat: Seat, outcome: Outcome) {
        self.labels.outstanding.remove(&seat);
        if outcome.is_err() {
            self.labels.failed.insert(seat);
        }
        if self.labels.outstanding.is_empty() {
            self.generation_durable();
        }
    }

    fn generation_durable(&mut self) {
        let failed = std::mem::take(&mut self.labels.failed);
        let failed: Vec<Seat> = failed
            .into_iter()
            .filter(|seat| self.drives.contains_key(seat))
            .collect();
        let enough = usize::from(self.geometry.code().tolerance()) + 1;
        let written = self.drives.len() - failed.len();
        if !failed.is_empty() && written < enough && written > 0 {
            // Too few copies: the drives that failed go out first, and what waits is released with
            // that generation.
        } else {
            let durable = self.labels.writing;
            // A successor without this label does not take its seat.
            for &seat in &failed {
                self.forget_promotion(seat);
            }
            let waiting = std::mem::take(&mut self.labels.effects);
            let (now, later): (Vec<_>, Vec<_>) = waiting
                .into_iter()
                .partition(|&(generation, _)| generation <= durable);
            self.labels.effects = later;
            for effect in now.into_iter().flat_map(|(_, effects)| effects) {
                self.carry_out(effect);
            }
        }
        let mut wrote_again = false;
        for seat in failed {
            self.take_out(seat, OutReason::Faulted, Vec::new());
            wrote_again = true;
        }
        if !wrote_again && self.labels.again && self.labels.outstanding.is_empty() {
            self.write_labels();
        }
    }
}

#[cfg(test)]
mod tests {
    use block::{Instant, Seat};
    use uuid::Uuid;

    use super::*;
    use crate::action::IoId;
    use crate::format::newest_label;
    use crate::pool::{Blueprint, NewDrive, Ticket, create};

    fn drive(number: u128) -> NewDrive {
        NewDrive {
            uuid: Uuid::from_u128(number),
            path: format!("drive:{number}"),
            size_bytes: 64 << 20,
            domain: None,
        }
    }

    /// The labels that the pool wants written, and their generations.
    fn labels(pool: &mut Pool) -> Vec<(IoId, u64)> {
        let mut labels = Vec::new();
        while let Some(action) = pool.poll_action() {
            if let PoolAction::WriteDurably { id, bytes, .. } = action {
                let (_, label) = newest_label([&bytes, &[]]).expect("a label");
                labels.push((id, label.generation));
            }
        }
        labels
    }

    #[test]
    fn what_comes_while_a_generation_is_written_is_the_next_one_together() {
        let blueprint = Blueprint {
            name: "p".to_owned(),
            uuid: Uuid::from_u128(99),
            scheme: "raid6".parse().unwrap(),
            chunk_bytes: None,
            cell_bytes: None,
            journal: true,
            drives: (0..6).map(drive).collect(),
            spares: Vec::new(),
        };
        let mut pool = create(&blueprint, Ticket(0)).unwrap();
        let now = Instant::ZERO;
        let first = labels(&mut pool);
        assert!(first.iter().all(|&(_, generation)| generation == 1));
        for number in 6..9 {
            let NewDrive {
                uuid,
                path,
                size_bytes,
                ..
            } = drive(number);
            pool.add_spare(now, (uuid, path, size_bytes), Ticket(1))
                .unwrap();
        }
        pool.take_out(Seat(0), OutReason::Failed, Vec::new());
        assert_eq!(pool.generation(), 2);
        let seats = &pool.facts().seats;
        assert!(matches!(
            seats[0].state,
            crate::pool::SeatState::Out { since: 2, .. }
        ));
        assert!(
            labels(&mut pool).is_empty(),
            "the first is not yet on all drives"
        );
        for (id, _) in first {
            pool.handle_completion(now, id, Ok(()));
        }
        let second = labels(&mut pool);
        assert_eq!(second.len(), 8);
        assert!(second.iter().all(|&(_, generation)| generation == 2));
    }
}
