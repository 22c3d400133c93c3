//! Writing the facts to the labels, one generation at a time.

use std::collections::BTreeSet;

use block::{Outcome, Seat};

use super::{Effect, OutReason, Pool, PoolAction, PoolWrite};
use crate::format::{LABEL_OFFSETS, Label};

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
    /// A later generation waits to be written.
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
}

impl Pool {
    /// Makes the facts durable as a new generation; then `effects` happen.
    ///
    /// Every drive that takes part has a generation before the next one is begun, so at opening a
    /// drive that lags by more than one has missed something.
    pub(super) fn commit(&mut self, effects: Vec<Effect>) {
        self.generation += 1;
        self.labels.effects.push((self.generation, effects));
        if self.labels.outstanding.is_empty() {
            self.write_labels();
        } else {
            self.labels.again = true;
        }
    }

    fn write_labels(&mut self) {
        self.labels.again = false;
        self.labels.failed.clear();
        self.labels.writing = self.generation;
        let seats: Vec<Seat> = self.drives.keys().copied().collect();
        for seat in seats {
            self.labels.outstanding.insert(seat);
            let id = self.fresh_io(PoolWrite::Label { seat });
            let drive = self.drives.get_mut(&seat).expect("just listed");
            let offset = LABEL_OFFSETS[drive.label_slot];
            drive.label_slot = 1 - drive.label_slot;
            let label = Label {
                drive: self.facts.seats[seat.index()].drive,
                seat,
                generation: self.generation,
                facts: self.facts.clone(),
            };
            self.actions.push_back(PoolAction::WriteDurably {
                id,
                seat,
                offset,
                bytes: label.encode(),
            });
        }
        if self.labels.outstanding.is_empty() {
            self.generation_durable();
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
