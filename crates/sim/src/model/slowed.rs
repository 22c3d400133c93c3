//! Any model at a fraction of its speed.
//!
//! The inner model has a clock of its own that runs slower (or faster) by a fixed ratio: its arm, its platters and its
//! interface are all slowed alike. That is the drive of Shear's Figure 18 that is slow as a whole; a drive that only
//! seeks or rotates slowly is a [`Disk`](super::disk::Disk) with other parameters.

use block::Instant;

use super::{Model, Operation, Work};

/// A model whose time runs `thousandths / 1000` times as slow.
#[derive(Clone, Debug)]
pub struct Slowed {
    inner: Box<dyn Model>,
    thousandths: u64,
    /// The time of the last call. The inner clock is rounded down, so the inner model may be due before this time: then
    /// it is due now.
    now: u64,
}

impl Slowed {
    /// `inner` takes `thousandths / 1000` times as long; 1000 changes nothing, 2000 is half the speed.
    ///
    /// # Panics
    /// When `thousandths` is 0.
    #[must_use]
    pub fn new(inner: Box<dyn Model>, thousandths: u64) -> Self {
        assert!(thousandths > 0, "a drive takes some time");
        Self {
            inner,
            thousandths,
            now: 0,
        }
    }

    fn inside(&self, now: Instant) -> Instant {
        let scaled = u128::from(now.0) * 1000 / u128::from(self.thousandths);
        Instant(u64::try_from(scaled).unwrap_or(u64::MAX))
    }
}

impl Model for Slowed {
    fn handle_operation(&mut self, now: Instant, operation: Operation) {
        self.now = now.0;
        self.inner.handle_operation(self.inside(now), operation);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.now = now.0;
        self.inner.handle_timeout(self.inside(now));
    }

    fn poll_done(&mut self) -> Option<u64> {
        self.inner.poll_done()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // Rounded up, so that the inner time has been reached when this time has.
        let at = u128::from(self.inner.poll_timeout()?.0);
        let scaled = (at * u128::from(self.thousandths)).div_ceil(1000);
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        Some(Instant(scaled.max(self.now)))
    }

    fn queued(&self) -> usize {
        self.inner.queued()
    }

    fn work(&self) -> Work {
        let mut work = self.inner.work();
        for time in [&mut work.busy_ns, &mut work.seek_ns, &mut work.rotation_ns] {
            let scaled = u128::from(*time) * u128::from(self.thousandths) / 1000;
            *time = u64::try_from(scaled).unwrap_or(u64::MAX);
        }
        work
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{IoKind, Server, ServerOptions};
    use super::*;

    /// An answer from a drive's cache takes no time. The inner clock was at 2 when the outer one was at 4, and the
    /// answer was due at 3: the array stopped, because its time would have run backwards.
    #[test]
    fn what_is_due_at_once_is_not_due_before() {
        let options = ServerOptions {
            capacity_bytes: 1 << 30,
            bytes_per_second: 0,
            per_operation_ns: 0,
            latency_ns: 0,
        };
        let mut slow = Slowed::new(Box::new(Server::new(options)), 1500);
        let operation = Operation {
            token: 0,
            kind: IoKind::Read,
            offset: 0,
            length: 512,
        };
        slow.handle_operation(Instant(4), operation);
        assert_eq!(slow.poll_timeout(), Some(Instant(4)));
    }

    #[test]
    fn a_drive_at_a_third_of_its_speed_takes_three_times_as_long() {
        let options = ServerOptions {
            capacity_bytes: 1 << 30,
            bytes_per_second: 0,
            per_operation_ns: 101,
            latency_ns: 0,
        };
        let mut slow = Slowed::new(Box::new(Server::new(options)), 3000);
        let operation = Operation {
            token: 0,
            kind: IoKind::Read,
            offset: 0,
            length: 512,
        };
        slow.handle_operation(Instant(6), operation);
        let due = slow.poll_timeout().expect("in flight");
        assert_eq!(due, Instant(6 + 303));
        slow.handle_timeout(due);
        assert_eq!(slow.poll_done(), Some(0));
        assert_eq!(slow.work().busy_ns, 303);
    }
}
