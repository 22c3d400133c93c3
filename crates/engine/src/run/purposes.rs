//! Operations that lanes ask of a drive, by purpose.
//!
//! Small requests on fast drives take little more than a microsecond of CPU, so each thread of lanes has counters of
//! its own, to which no other thread writes. An operation is counted when it is asked for, even if it fails later.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use array::Origin;
use block::RequestKind;

use crate::traffic::{Operations, Purposes};

/// Kinds of origins.
const ORIGINS: usize = 5;

const fn index(origin: Origin) -> usize {
    match origin {
        Origin::Client => 0,
        Origin::Log => 1,
        Origin::Checkpoint => 2,
        Origin::Rebuild => 3,
        Origin::Scrub => 4,
    }
}

/// Counters of one origin in one thread.
#[derive(Debug, Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    flushes: AtomicU64,
    discards: AtomicU64,
    discard_bytes: AtomicU64,
}

/// A thread's counters, apart from those of other threads in memory: two cache lines, because processors fetch them
/// in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Place([Counters; ORIGINS]);

/// Operations that lanes have asked of one drive since it took its seat.
#[derive(Debug)]
pub(crate) struct Asked(Box<[Place]>);

impl Asked {
    pub(super) fn new(threads: u16) -> Self {
        Self((0..threads.max(1)).map(|_| Place::default()).collect())
    }

    /// Counts an operation that a thread of lanes asks for. Each thread calls this with its own number only.
    #[inline]
    pub(super) fn count(&self, thread: u16, origin: Origin, kind: RequestKind, bytes: u64) {
        let Some(place) = self.0.get(usize::from(thread)) else {
            debug_assert!(false, "each thread has a place");
            return;
        };
        let counters = &place.0[index(origin)];
        let add = |counter: &AtomicU64, more| counter.store(counter.load(Relaxed) + more, Relaxed);
        let (count, sum) = match kind {
            RequestKind::Read => (&counters.reads, &counters.read_bytes),
            RequestKind::Write => (&counters.writes, &counters.write_bytes),
            RequestKind::Flush => return add(&counters.flushes, 1),
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                (&counters.discards, &counters.discard_bytes)
            }
        };
        add(count, 1);
        add(sum, bytes);
    }

    /// All threads' counters together. The numbers are not of one moment, but each of them only grows.
    pub(crate) fn snapshot(&self) -> Purposes {
        let of = |origin| {
            let mut all = Operations::default();
            for place in &self.0 {
                let counters = &place.0[index(origin)];
                all.add(&Operations {
                    reads: counters.reads.load(Relaxed),
                    read_bytes: counters.read_bytes.load(Relaxed),
                    writes: counters.writes.load(Relaxed),
                    write_bytes: counters.write_bytes.load(Relaxed),
                    flushes: counters.flushes.load(Relaxed),
                    discards: counters.discards.load(Relaxed),
                    discard_bytes: counters.discard_bytes.load(Relaxed),
                });
            }
            all
        };
        Purposes {
            clients: of(Origin::Client),
            log: of(Origin::Log),
            checkpoint: of(Origin::Checkpoint),
            rebuild: of(Origin::Rebuild),
            scrub: of(Origin::Scrub),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_count_by_origin_and_kind_whatever_thread_asks() {
        let asked = Asked::new(2);
        asked.count(0, Origin::Client, RequestKind::Read, 4096);
        asked.count(1, Origin::Client, RequestKind::Read, 8192);
        asked.count(1, Origin::Log, RequestKind::Write, 4096);
        asked.count(0, Origin::Log, RequestKind::Flush, 0);
        asked.count(0, Origin::Checkpoint, RequestKind::Discard, 65_536);
        asked.count(0, Origin::Rebuild, RequestKind::WriteZeroes, 16_384);
        asked.count(1, Origin::Scrub, RequestKind::Read, 1 << 20);
        let seen = asked.snapshot();
        let wanted = Purposes {
            clients: Operations {
                reads: 2,
                read_bytes: 12_288,
                ..Operations::default()
            },
            log: Operations {
                writes: 1,
                write_bytes: 4096,
                flushes: 1,
                ..Operations::default()
            },
            checkpoint: Operations {
                discards: 1,
                discard_bytes: 65_536,
                ..Operations::default()
            },
            rebuild: Operations {
                discards: 1,
                discard_bytes: 16_384,
                ..Operations::default()
            },
            scrub: Operations {
                reads: 1,
                read_bytes: 1 << 20,
                ..Operations::default()
            },
        };
        assert_eq!(seen, wanted);
    }
}
