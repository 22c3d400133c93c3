//! Routes for flushes: continues what has waited for a flush.

use crate::Lane;
use crate::backoff::Work;
use crate::flush::{Finished, Waiter};

impl Lane {
    /// Flushes every drive that holds writes not yet flushed; false if there is none.
    pub(crate) fn begin_flush(&mut self, waiter: Waiter) -> bool {
        let covers = self.log.completed();
        let begun = self
            .flushes
            .begin(&mut self.cx, &mut self.ios, waiter, covers);
        if !begun {
            self.log.flush_covered(covers);
            self.retries.succeeded(&mut self.cx, Work::Flush);
        }
        begun
    }

    pub(crate) fn flush_finished(&mut self, finished: impl IntoIterator<Item = Finished>) {
        for finished in finished {
            let outcome = finished.outcome;
            self.ios.flush_finished(&self.cx, finished.number, outcome);
            if outcome.is_ok() {
                self.log.flush_covered(finished.covers);
                self.direct.flushed(self.log.flushed());
                // Whatever it was for, it has covered what a flush that failed before should have covered.
                self.retries.succeeded(&mut self.cx, Work::Flush);
            }
            match finished.waiter {
                Waiter::Request(id) => self.flushed_for(id, outcome),
                Waiter::Job(id) => self.end_job(id, outcome),
                Waiter::Checkpoint => self.checkpoint_flushed(outcome),
                Waiter::Recovery => self.recovery_flushed(outcome),
                // The header of the next batch records it.
                Waiter::Log => {}
                Waiter::Moves => self.moves_flushed(outcome),
            }
        }
    }
}
