//! The promise to complete a request exactly once.

use std::sync::Arc;
use std::time::Instant;

use block::{Completed, Fault, Outcome, Permission, Request, RequestKind};

use super::telemetry::Telemetry;

/// The duty to answer one submitted request. Completing consumes the ticket; dropping it unanswered (a queue that is
/// discarded, a worker that panicked) answers [`Fault::Shutdown`]. So the type itself guarantees "exactly once".
pub(crate) struct Ticket {
    token: u64,
    kind: RequestKind,
    length: u64,
    begun: Instant,
    to: Option<Arc<dyn Completed>>,
    telemetry: Arc<Telemetry>,
}

impl Ticket {
    /// A request that was submitted at `begun`. All requests of a batch have the same time: reading the clock costs
    /// as much as a tenth of a request to memory.
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

    /// Asks the submitter whether the change may begin.
    pub(crate) fn permission(&self) -> Permission {
        let to = self.to.as_ref();
        to.map_or(Permission::Revoked, |to| to.permission())
    }

    /// Answers. The caller has dropped every clone of the request's memory by now.
    pub(crate) fn complete(mut self, outcome: Outcome) {
        self.answer(outcome);
    }

    /// Answers several requests that one thread has carried out one after another: reads the clock once, and calls
    /// each submitter once for a run of its requests. The caller has dropped every clone of the requests' memory by
    /// now.
    pub(crate) fn complete_all(tickets: &mut Vec<(Self, Outcome)>) {
        let now = match &tickets[..] {
            [] => return,
            [_] => {
                let (ticket, outcome) = tickets.pop().expect("there is one");
                return ticket.complete(outcome);
            }
            _ => Instant::now(),
        };
        let mut outcomes = Vec::with_capacity(tickets.len());
        let mut rest = &mut tickets[..];
        while let Some((first, _)) = rest.first()
            && let Some(to) = first.to.clone()
        {
            let same = |(ticket, _): &&(Self, Outcome)| {
                let theirs = ticket.to.as_ref();
                theirs.is_some_and(|theirs| Arc::ptr_eq(theirs, &to))
            };
            let run = rest.iter().take_while(same).count();
            let (now_ended, later) = rest.split_at_mut(run);
            rest = later;
            for (ticket, outcome) in now_ended {
                ticket.to = None;
                let took = now.saturating_duration_since(ticket.begun);
                (ticket.telemetry).end(ticket.kind, ticket.length, took, *outcome);
                outcomes.push((ticket.token, *outcome));
            }
            to.completed_all(&outcomes);
            outcomes.clear();
        }
        tickets.clear();
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<(u64, Outcome)>>);

    impl Completed for Told {
        fn completed(&self, token: u64, outcome: Outcome) {
            self.0.lock().unwrap().push((token, outcome));
        }
    }

    #[test]
    fn each_of_several_is_answered_once_by_its_own_submitter_in_order() {
        let telemetry = Arc::new(Telemetry::new());
        let request = Request {
            kind: RequestKind::Read,
            offset: 0,
            length: 4096,
            fua: false,
        };
        let told = [Arc::new(Told::default()), Arc::new(Told::default())];
        let submitters = told
            .each_ref()
            .map(|told| Arc::clone(told) as Arc<dyn Completed>);
        for count in [0, 1, 5] {
            let mut tickets: Vec<(Ticket, Outcome)> = (0..count)
                .map(|token| {
                    // 0, 0, 1, 1, 0: one of the submitters has two runs.
                    let to = &submitters[usize::from(token / 2 == 1)];
                    let ticket = Ticket::new(&telemetry, &request, token, to, Instant::now());
                    let outcome = if token == 3 {
                        Err(Fault::Medium)
                    } else {
                        Ok(())
                    };
                    (ticket, outcome)
                })
                .collect();
            Ticket::complete_all(&mut tickets);
            assert!(tickets.is_empty());
        }
        let first = [(0, Ok(())), (0, Ok(())), (1, Ok(())), (4, Ok(()))];
        let second = [(2, Ok(())), (3, Err(Fault::Medium))];
        assert_eq!(told[0].0.lock().unwrap()[..], first);
        assert_eq!(told[1].0.lock().unwrap()[..], second);
        let seen = telemetry.snapshot();
        assert_eq!((seen.in_flight, seen.errors_medium), (0, 1));
        assert_eq!((seen.reads.requests, seen.reads.bytes), (5, 5 * 4096));
    }
}
