//! The promise to complete a request exactly once.

use std::sync::Arc;
use std::time::Instant;

use block::{Completed, Fault, Outcome, Permission, Request, RequestKind};

use super::telemetry::Telemetry;

/// One submitted request's right to an answer. Completing consumes it; dropping it unanswered (a
/// queue thrown away, a worker that panicked) answers [`Fault::Shutdown`]. So "exactly once" holds
/// by construction, not by care.
pub(crate) struct Ticket {
    token: u64,
    kind: RequestKind,
    length: u64,
    begun: Instant,
    to: Option<Arc<dyn Completed>>,
    telemetry: Arc<Telemetry>,
}

impl Ticket {
    /// A request that was submitted at `begun`. Those of one batch have one time: a reading of the clock costs as
    /// much as a tenth of a request to memory.
    pub(crate) fn new(
        telemetry: &Arc<Telemetry>,
        request: &Request,
        token: u64,
        to: &Arc<dyn Completed>,
        begun: Instant,
    ) -> Self {
        telemetry.begin();
        Self {
            token,
            kind: request.kind,
            length: request.length,
            begun,
            to: Some(Arc::clone(to)),
            telemetry: Arc::clone(telemetry),
        }
    }

    /// Whether the change may begin, as the submitter says.
    pub(crate) fn permission(&self) -> Permission {
        let to = self.to.as_ref();
        to.map_or(Permission::Revoked, |to| to.permission())
    }

    /// Answers. The caller has dropped every clone of the request's memory by now.
    pub(crate) fn complete(mut self, outcome: Outcome) {
        self.answer(outcome);
    }

    fn answer(&mut self, outcome: Outcome) {
        if let Some(to) = self.to.take() {
            let took = self.begun.elapsed();
            self.telemetry.end(self.kind, self.length, took, outcome);
            to.completed(self.token, outcome);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.answer(Err(Fault::Shutdown));
    }
}
