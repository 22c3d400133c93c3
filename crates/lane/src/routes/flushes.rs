//! Routes for flushes: continues what has waited for a flush.

use block::Outcome;
use format::Sequence;

use crate::Lane;
use crate::backoff::Work;
use crate::flush::{Finished, Waiter};

impl Lane {
    /// Flushes every drive that holds writes not yet flushed; false if there is none.
    pub(crate) fn begin_flush(&mut self, waiter: Waiter) -> bool {
        if self.waits_for_relocation(waiter) {
            return true;
        }
        let covers = self.log.completed();
        let begun = self
            .flushes
            .begin(&mut self.cx, &mut self.ios, waiter, covers);
        if !begun {
            self.flush_covered(covers);
            self.retries.succeeded(&mut self.cx, Work::Flush);
        }
        begun
    }

    pub(crate) fn flush_finished(&mut self, finished: impl IntoIterator<Item = Finished>) {
        for finished in finished {
            let outcome = finished.outcome;
            self.ios.flush_finished(&self.cx, finished.number, outcome);
            if outcome.is_ok() {
                self.flush_covered(finished.covers);
                self.direct.flushed(self.log.flushed());
                // Whatever it was for, it has covered what a flush that failed before should have covered.
                self.retries.succeeded(&mut self.cx, Work::Flush);
            }
            if outcome.is_err() || !self.waits_for_relocation(finished.waiter) {
                self.flushed(finished.waiter, outcome);
            }
        }
    }

    /// The flush that this has waited for has ended.
    fn flushed(&mut self, waiter: Waiter, outcome: Outcome) {
        match waiter {
            Waiter::Request(id) => self.flushed_for(id, outcome),
            Waiter::Job(id) => self.end_job(id, outcome),
            Waiter::Checkpoint => self.checkpoint_flushed(outcome),
            Waiter::Recovery => self.recovery_flushed(outcome),
            // The header of the next batch records it.
            Waiter::Log => {}
            Waiter::Moves => self.moves_flushed(outcome),
        }
    }

    /// A flush has covered batches up to this one.
    pub(crate) fn flush_covered(&mut self, sequence: Sequence) {
        for sequence in self.log.flush_covered(sequence) {
            self.overlay.unpin(sequence);
        }
    }

    /// True if `waiter` must wait until batches that their drives have left are on other drives: what has ended well is
    /// durable only then. It is flushed after that.
    fn waits_for_relocation(&mut self, waiter: Waiter) -> bool {
        let waits = self.log.relocates() && !matches!(waiter, Waiter::Log | Waiter::Recovery);
        if waits {
            self.flushes.hold(waiter);
        }
        waits
    }

    /// Batches may have been relocated: begins the flushes that have waited for this. If drives that stay have refused
    /// them, the flushes fail.
    pub(crate) fn flushes_go_on(&mut self) {
        if self.log.relocates() {
            return;
        }
        for waiter in self.flushes.take_held() {
            match self.log.relocation_fault() {
                Some(fault) => self.flushed(waiter, Err(fault)),
                None if self.begin_flush(waiter) => {}
                None => self.flushed(waiter, Ok(())),
            }
        }
    }
}
