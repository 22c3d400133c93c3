//! Arrays side by side, as ZFS stripes records over the vdevs of a pool: RAIDZ.

use std::collections::VecDeque;

use block::{Instant, Outcome, Request, RequestKind};
use sim::load::Target;
use sim::plain::PlainArray;

/// Distributes records over arrays of one size in turn. A request is within one record.
pub(super) struct Islands {
    arrays: Vec<PlainArray>,
    record_bytes: u64,
    done: VecDeque<(u64, Outcome)>,
}

impl Islands {
    pub(super) const fn new(arrays: Vec<PlainArray>, record_bytes: u64) -> Self {
        Self {
            arrays,
            record_bytes,
            done: VecDeque::new(),
        }
    }

    pub(super) fn traces(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrays.iter().map(PlainArray::trace)
    }

    fn collect(&mut self, island: usize) {
        while let Some(done) = self.arrays[island].poll_done() {
            self.done.push_back(done);
        }
    }
}

impl Target for Islands {
    fn capacity_bytes(&self) -> u64 {
        let records = self.arrays[0].capacity_bytes() / self.record_bytes;
        records * self.record_bytes * self.arrays.len() as u64
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        assert!(
            matches!(request.kind, RequestKind::Read | RequestKind::Write),
            "loads of these studies read and write"
        );
        let (record, inside) = (
            request.offset / self.record_bytes,
            request.offset % self.record_bytes,
        );
        assert!(
            inside + request.length <= self.record_bytes,
            "a request lies in one record"
        );
        let count = self.arrays.len() as u64;
        let island = usize::try_from(record % count).expect("an index");
        let offset = record / count * self.record_bytes + inside;
        self.arrays[island].handle_request(now, token, Request { offset, ..request });
        self.collect(island);
    }

    fn handle_timeout(&mut self, now: Instant) {
        for island in 0..self.arrays.len() {
            let due = self.arrays[island].poll_timeout();
            if due.is_some_and(|at| at <= now) {
                self.arrays[island].handle_timeout(now);
                self.collect(island);
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.arrays
            .iter()
            .filter_map(PlainArray::poll_timeout)
            .min()
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        self.done.pop_front()
    }
}
