//! Which long operations a drive is given while short ones come.
//!
//! ```text
//!   short: reads and commits of clients, flushes ───────────────────────────────► drive
//!   bulk: streams, checkpoints, fills, scrubs ──► begin? ──yes──────────────────► drive
//!                                                   │ no                           │ ends
//!                                                   └──► held by the lane thread ◄─┘ wakes the next one
//! ```
//!
//! A drive serves what it has in an order of its own, so a short operation waits for what the drive was given before it.
//! While short ones come, bulk ones therefore wait outside. How much of them the drive may have is time, not bytes: the
//! limit falls when one of them takes longer than [`TARGET`] and rises when it takes less. A drive that has none
//! is always given one: that is the minimum rate of bulk work, and on a slow disk it is also the limit.
//! When no short one has come for [`SHORT_QUIET`] there is no limit.
//!
//! Invariants:
//! - Operations in flight have no order among them, so to hold one back changes nothing but time.
//! - A thread that holds some back looks again when it is woken, and after [`LOOK`] in any case.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use block::Instant;

/// What the bulk operations that a drive has may take together while short ones come.
const TARGET: Duration = Duration::from_millis(2);

/// Short operations that have not come for so long do not come any more.
const SHORT_QUIET: Duration = Duration::from_secs(2);

/// A thread that holds operations back looks again after this time though nobody has woken it.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What an operation costs a drive beside its bytes, as bytes: 2 ms of a disk that moves 100 MB/s are more, 20 us of a
/// flash drive that moves 2 GB/s are less. How long they take in the end decides.
const OPERATION_BYTES: u64 = 64 << 10;

/// Bounds of the limit.
const LIMIT_BYTES: (u64, u64) = (64 << 10, 16 << 20);

/// Who is to be woken.
pub(super) trait Waiter: Send + Sync {
    /// There may be room for a bulk operation.
    fn wake(&self);
}

/// What one drive has of bulk operations, and what it may have.
#[derive(Default)]
pub(crate) struct Admission {
    /// Bytes of bulk operations in flight, with [`OPERATION_BYTES`] for each.
    in_flight: AtomicU64,
    limit: AtomicU64,
    /// When a short operation last came, in nanoseconds of the pool's clock; 0 before the first.
    short_at: AtomicU64,
    /// Whether `waiting` may have somebody in it.
    waits: AtomicBool,
    /// Threads that hold operations back, in the order in which they came.
    waiting: Mutex<VecDeque<Arc<dyn Waiter>>>,
}

impl Admission {
    /// A short operation comes.
    pub(super) fn short(&self, now: Instant) {
        // Threads that write the same line all the time would slow each other down.
        let seen = self.short_at.load(Relaxed);
        if seen == 0 || now.since(Instant(seen)) > SHORT_QUIET / 1000 {
            self.short_at.store(now.0.max(1), Relaxed);
        }
    }

    /// Whether the drive takes whatever it is given in no time: memory does. It need not be asked then, but now and
    /// then, to see that it still does.
    pub(super) fn is_open(&self) -> bool {
        self.limit.load(Relaxed) == LIMIT_BYTES.1
    }

    fn limit(&self, now: Instant) -> u64 {
        let short_at = self.short_at.load(Relaxed);
        if short_at == 0 || now.since(Instant(short_at)) > SHORT_QUIET {
            return u64::MAX;
        }
        let (low, high) = LIMIT_BYTES;
        self.limit.load(Relaxed).clamp(low, high)
    }

    /// Begins a bulk operation, if the drive may have one more.
    pub(super) fn begin(self: &Arc<Self>, now: Instant, bytes: u64) -> Option<Bulk> {
        let bytes = bytes + OPERATION_BYTES;
        let limit = self.limit(now);
        let more = |has: u64| (has == 0 || has.saturating_add(bytes) <= limit).then(|| has + bytes);
        let begun = self.in_flight.fetch_update(SeqCst, Relaxed, more);
        begun.is_ok().then(|| self.bulk(now, bytes))
    }

    /// Begins one whatever the drive has.
    pub(super) fn begin_now(self: &Arc<Self>, now: Instant, bytes: u64) -> Bulk {
        let bytes = bytes + OPERATION_BYTES;
        self.in_flight.fetch_add(bytes, Relaxed);
        self.bulk(now, bytes)
    }

    fn bulk(self: &Arc<Self>, since: Instant, bytes: u64) -> Bulk {
        Bulk {
            admission: Arc::clone(self),
            since,
            bytes,
        }
    }

    /// The same, or `who` is woken in its turn when one has ended.
    pub(super) fn begin_or_wait(
        self: &Arc<Self>,
        now: Instant,
        bytes: u64,
        who: &Arc<dyn Waiter>,
    ) -> Option<Bulk> {
        let begun = self.begin(now, bytes);
        if begun.is_some() {
            return begun;
        }
        self.wait(who);
        // The last one may have ended before anybody was there to be woken.
        self.begin(now, bytes)
    }

    fn wait(&self, who: &Arc<dyn Waiter>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if !waiting.iter().any(|other| Arc::ptr_eq(other, who)) {
            waiting.push_back(Arc::clone(who));
        }
        self.waits.store(true, SeqCst);
    }

    /// Who has waited longest.
    fn wake_next(&self) -> Option<Arc<dyn Waiter>> {
        if !self.waits.load(SeqCst) {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let next = waiting.pop_front();
        self.waits.store(!waiting.is_empty(), SeqCst);
        next
    }

    /// One has ended after so long.
    fn learn(&self, took: Duration, bytes: u64) {
        let (low, high) = LIMIT_BYTES;
        let limit = self.limit.load(Relaxed).clamp(low, high);
        let next = if took > TARGET {
            limit / 2
        } else {
            limit + bytes / 2
        };
        self.limit.store(next.clamp(low, high), Relaxed);
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight.load(Relaxed);
        f.debug_struct("Admission")
            .field("in_flight", &in_flight)
            .finish_non_exhaustive()
    }
}

/// A bulk operation in flight.
pub(super) struct Bulk {
    admission: Arc<Admission>,
    since: Instant,
    bytes: u64,
}

impl Bulk {
    /// It has been answered: the next one that waits is woken.
    pub(super) fn ended(self, now: Instant) {
        self.admission.learn(now.since(self.since), self.bytes);
    }
}

impl Drop for Bulk {
    fn drop(&mut self) {
        self.admission.in_flight.fetch_sub(self.bytes, SeqCst);
        if let Some(next) = self.admission.wake_next() {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const KIB: u64 = 1 << 10;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Waiter for Woken {
        fn wake(&self) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + ms * MS
    }

    #[test]
    fn bulk_is_unlimited_until_short_operations_come_and_after_they_have_gone() {
        let admission = Arc::new(Admission::default());
        let many: Vec<Bulk> = (0..100)
            .map(|_| {
                admission
                    .begin(at(0), 512 * KIB)
                    .expect("no short one has come")
            })
            .collect();
        admission.short(at(10));
        assert!(admission.begin(at(10), 512 * KIB).is_none());
        assert!(admission.begin(at(2009), 512 * KIB).is_none());
        assert!(admission.begin(at(2011), 512 * KIB).is_some());
        drop(many);
    }

    #[test]
    fn a_drive_without_bulk_is_given_one_however_long() {
        let admission = Arc::new(Admission::default());
        admission.short(at(1));
        let first = admission.begin(at(1), 64 << 20).expect("it has none");
        assert!(admission.begin(at(1), 4 * KIB).is_none());
        drop(first);
        assert!(admission.begin(at(1), 4 * KIB).is_some());
    }

    /// Bytes that a drive of this rate has in the end, if it is given operations of 64 KiB, one after the other.
    fn settles(bytes_per_ms: u64) -> u64 {
        let admission = Arc::new(Admission::default());
        let (mut now, mut has) = (at(1), VecDeque::new());
        let mut most = 0;
        for round in 0..5_000 {
            admission.short(now);
            while let Some(bulk) = admission.begin(now, 64 * KIB) {
                has.push_back(bulk);
            }
            if round > 2_500 {
                most = most.max(has.len() as u64 * 64 * KIB);
            }
            now += MS * 64 * 1024 / u32::try_from(bytes_per_ms).unwrap();
            has.pop_front().expect("one at least").ended(now);
        }
        most
    }

    #[test]
    fn a_drive_has_as_much_as_takes_it_two_milliseconds() {
        // 2 GB/s, 500 MB/s; a disk of 16 MB/s has one operation at a time.
        for (rate, low, high) in [
            (2_000_000, 3_000, 6_000),
            (500_000, 700, 1_500),
            (16_000, 64, 64),
        ] {
            let most = settles(rate) / KIB;
            assert!((low..=high).contains(&most), "{rate} bytes/ms: {most} KiB");
        }
    }

    #[test]
    fn whoever_waits_is_woken_in_turn_and_once() {
        let admission = Arc::new(Admission::default());
        let woken: [Arc<Woken>; 2] = Default::default();
        let both: Vec<Arc<dyn Waiter>> = woken.iter().map(|who| Arc::clone(who) as _).collect();
        admission.short(at(1));
        let bulk = admission.begin(at(1), KIB).unwrap();
        for who in [0, 1, 0] {
            admission.wait(&both[who]);
        }
        let counts = || [0, 1].map(|index| woken[index].0.load(Relaxed));
        bulk.ended(at(2));
        assert_eq!(counts(), [1, 0]);
        admission.begin_now(at(2), KIB).ended(at(3));
        assert_eq!(counts(), [1, 1]);
        admission.begin_now(at(3), KIB).ended(at(4));
        assert_eq!(counts(), [1, 1], "nobody waits any more");
    }
}
