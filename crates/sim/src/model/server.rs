//! One first-come first-served server, and a drive that takes no time.
//!
//! The rule is that of `slow:` drives (`DESIGN.md`, section 4): done = max(now, busy) + size / bandwidth + 1 / iops, no
//! burst, absolute deadlines. A latency outside the server delays the answer and does not occupy the server. A flush
//! waits for all operations accepted before it.

use std::collections::VecDeque;

use block::Instant;

use super::{IoKind, Model, Operation, Work};

/// The parameters of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerOptions {
    /// Size of the drive in bytes.
    pub capacity_bytes: u64,
    /// Bytes per second; 0 stands for no limit.
    pub bytes_per_second: u64,
    /// Time per operation in the server, 1 / iops.
    pub per_operation_ns: u64,
    /// Time per operation outside the server.
    pub latency_ns: u64,
}

/// A server.
#[derive(Clone, Debug)]
pub struct Server {
    options: ServerOptions,
    busy_until: u64,
    /// Done at, token: in order, because the latency is the same for all.
    in_flight: VecDeque<(u64, u64)>,
    done: VecDeque<u64>,
    work: Work,
}

impl Server {
    /// An idle server.
    #[must_use]
    pub fn new(options: ServerOptions) -> Self {
        Self {
            options,
            busy_until: 0,
            in_flight: VecDeque::new(),
            done: VecDeque::new(),
            work: Work::default(),
        }
    }
}

/// `bytes` at `bytes_per_second` in nanoseconds; 0 stands for no limit.
pub(crate) fn transfer_ns(bytes: u64, bytes_per_second: u64) -> u64 {
    if bytes_per_second == 0 {
        return 0;
    }
    match bytes.checked_mul(1_000_000_000) {
        Some(scaled) => scaled / bytes_per_second,
        None => u64::try_from(u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second))
            .unwrap_or(u64::MAX),
    }
}

impl Model for Server {
    fn handle_operation(&mut self, now: Instant, operation: Operation) {
        self.work.count(&operation);
        let begin = now.0.max(self.busy_until);
        let taken = match operation.kind {
            IoKind::Flush => 0,
            IoKind::WriteZeroes | IoKind::Discard => self.options.per_operation_ns,
            IoKind::Read | IoKind::Write => {
                self.options.per_operation_ns
                    + transfer_ns(operation.length, self.options.bytes_per_second)
            }
        };
        self.busy_until = begin + taken;
        self.work.busy_ns += taken;
        self.in_flight
            .push_back((self.busy_until + self.options.latency_ns, operation.token));
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(&(at, token)) = self.in_flight.front()
            && at <= now.0
        {
            self.in_flight.pop_front();
            self.done.push_back(token);
        }
    }

    fn poll_done(&mut self) -> Option<u64> {
        self.done.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.in_flight.front().map(|&(at, _)| Instant(at))
    }

    fn queued(&self) -> usize {
        self.in_flight.len()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

/// A drive that takes no time, to measure the cost of everything else.
#[derive(Clone, Debug, Default)]
pub struct Null {
    now: Instant,
    done: VecDeque<u64>,
    work: Work,
}

impl Model for Null {
    fn handle_operation(&mut self, now: Instant, operation: Operation) {
        self.work.count(&operation);
        self.now = now;
        self.done.push_back(operation.token);
    }

    fn handle_timeout(&mut self, _now: Instant) {}

    fn poll_done(&mut self) -> Option<u64> {
        self.done.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (!self.done.is_empty()).then_some(self.now)
    }

    fn queued(&self) -> usize {
        self.done.len()
    }

    fn work(&self) -> Work {
        self.work
    }

    fn boxed(&self) -> Box<dyn Model> {
        Box::new(self.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_queue_behind_each_other_and_latency_does_not() {
        let mut server = Server::new(ServerOptions {
            capacity_bytes: 1 << 30,
            bytes_per_second: 1_000_000,
            per_operation_ns: 1_000,
            latency_ns: 500_000,
        });
        for token in 0..2 {
            let operation = Operation {
                token,
                kind: IoKind::Read,
                offset: 0,
                length: 1_000,
            };
            server.handle_operation(Instant::ZERO, operation);
        }
        assert_eq!(server.poll_timeout(), Some(Instant(1_501_000)));
        server.handle_timeout(Instant(1_501_000));
        assert_eq!((server.poll_done(), server.poll_done()), (Some(0), None));
        assert_eq!(server.poll_timeout(), Some(Instant(2_502_000)));
        assert_eq!(server.work().busy_ns, 2_002_000);
    }
}
