//! What follows a generation of the facts when the drives have answered: what waited for it is carried out, and drives that
//! do not have it go out, or stay if they cannot be spared (`context/labels.rs`).

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Seat};
use plan::action::{Command, IoKind};

use super::{Pool, PoolError, Report};

impl Pool {
    /// Carries out what waits for generations that all drives have, and decides about drives that do not have them.
    pub(super) fn pump_labels(&mut self) {
        for effect in self.cx.labels.take_early() {
            self.carry_out(effect);
        }
        while self.cx.labels.take_answered() {
            self.generation_durable();
        }
    }

    /// Nothing of the generation is in flight any more.
    fn generation_durable(&mut self) {
        let failed = self.cx.take_failed();
        let refusing = self.not_to_be_spared(&failed);
        let enough = usize::from(self.cx.geometry.code().tolerance()) + 1;
        let written = self.cx.labels.drives().len() - failed.len();
        if !failed.is_empty() && written < enough && (written > 0 || !refusing.is_empty()) {
            // Too few copies: the drives that failed go out first, or accept the label later. The waiting actions are
            // carried out with that.
        } else {
            // A successor without this label does not take its seat.
            for &seat in failed.keys() {
                self.replacements.label_failed(&mut self.cx, seat);
            }
            for effect in self.cx.take_durable() {
                self.carry_out(effect);
            }
        }
        let stay: BTreeSet<Seat> = refusing.keys().copied().collect();
        self.cx.labels.gather(stay);
        for (&seat, &fault) in failed
            .iter()
            .filter(|(seat, _)| !refusing.contains_key(seat))
        {
            self.take_out_for(seat, fault);
        }
        self.cx.gathered();
        if !refusing.is_empty() {
            self.labels_refused(&refusing);
        }
    }

    /// The failed drives that stay, because without all of them data could not be read any more. If not all of them can
    /// be spared, none is put out: they are likely to fail for a common reason. Full drives have not failed.
    fn not_to_be_spared(&mut self, failed: &BTreeMap<Seat, Fault>) -> BTreeMap<Seat, Fault> {
        let full = |(&seat, &fault): (&Seat, &Fault)| self.stays_although_full(seat, fault);
        let full: BTreeMap<Seat, Fault> = { failed.iter() }
            .filter(|&of| full(of))
            .map(|(&seat, &fault)| (seat, fault))
            .collect();
        let others = failed.keys().filter(|seat| !full.contains_key(seat));
        let others: Vec<Seat> = others.copied().collect();
        match self.cx.group_that_needs_one_of(&others) {
            Some(_) => failed.clone(),
            None => full,
        }
    }

    /// Drives stay without the generation: schedules the next attempt, and reports the failure to those that wait.
    fn labels_refused(&mut self, refusing: &BTreeMap<Seat, Fault>) {
        for (&seat, &fault) in refusing {
            if self.stays_although_full(seat, fault) {
                self.drive_is_full(seat, false);
            } else if self.stalls.refuses_newly(self.cx.now, seat, fault) {
                self.cx.report(Report::DriveKept {
                    seat,
                    kind: IoKind::Flush,
                    offset: 0,
                    fault,
                });
            }
        }
        let going_out: Vec<Seat> = self.cx.labels.going_out().collect();
        for seat in going_out {
            self.cx.tell_lanes(&Command::SeatKept(seat));
        }
        let fault = *refusing.values().next().expect("some refuse");
        for ticket in self.cx.wait_for_refusing() {
            self.cx.done(ticket, Err(PoolError::Fault { fault }));
        }
    }
}
