//! Counts the requests of a volume's clients, and how long they take.
//!
//! Requests of 4 KiB on fast drives take little more than a microsecond of CPU, so counting must cost next to
//! nothing: each thread of lanes has counters of its own, and reads the clock once for all answers that it hands out
//! together.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use block::{Instant, Outcome, RequestKind};

use crate::drive::telemetry::{Telemetry, TelemetrySnapshot};

/// A volume's counters.
pub(crate) struct Meter {
    in_flight: AtomicU64,
    /// By thread of lanes.
    answered: Box<[Telemetry]>,
}

impl Meter {
    pub(crate) fn new(threads: u16) -> Self {
        Self {
            in_flight: AtomicU64::new(0),
            answered: (0..threads.max(1)).map(|_| Telemetry::new()).collect(),
        }
    }

    /// A request begins.
    pub(crate) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::AcqRel);
    }

    /// A request has ended; its answer may still be on its way.
    pub(crate) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::AcqRel);
    }

    /// Requests that have not ended.
    pub(crate) fn in_flight(&self) -> u64 {
        self.in_flight.load(Ordering::Acquire)
    }

    /// All threads' counters together.
    pub(crate) fn snapshot(&self) -> TelemetrySnapshot {
        let mut parts = self.answered.iter().map(Telemetry::snapshot);
        let mut all = parts.next().expect("there is a thread");
        parts.for_each(|part| all.add(&part));
        all.in_flight = self.in_flight();
        all
    }
}

/// The facts of a request that are counted when it is answered.
pub(crate) struct Counted {
    pub(crate) meter: Arc<Meter>,
    pub(crate) kind: RequestKind,
    pub(crate) bytes: u64,
    pub(crate) began: Instant,
}

impl Counted {
    /// A thread of lanes answers the request.
    pub(crate) fn answered(&self, thread: u16, now: Instant, outcome: Outcome) {
        let took = Duration::from_nanos(now.0.saturating_sub(self.began.0));
        self.meter.answered[usize::from(thread)].end_alone(self.kind, self.bytes, took, outcome);
    }
}

#[cfg(test)]
mod tests {
    use block::Fault;

    use super::*;

    #[test]
    fn what_several_threads_have_answered_is_counted_together() {
        let meter = Arc::new(Meter::new(2));
        let counted = |began| Counted {
            meter: Arc::clone(&meter),
            kind: RequestKind::Write,
            bytes: 4096,
            began: Instant(began),
        };
        meter.begin();
        meter.begin();
        meter.begin();
        counted(1_000).answered(0, Instant(51_000), Ok(()));
        counted(1_000).answered(1, Instant(151_000), Ok(()));
        counted(0).answered(1, Instant(9), Err(Fault::Medium));
        meter.end();
        let seen = meter.snapshot();
        assert_eq!(seen.in_flight, 2);
        assert_eq!((seen.writes.requests, seen.writes.bytes), (2, 8192));
        assert_eq!(seen.writes.mean(), Duration::from_micros(100));
        assert_eq!(seen.writes.latency.iter().sum::<u64>(), 2);
        assert_eq!(seen.errors(), 1);
    }
}
