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
//! While short ones come, bulk ones therefore wait outside. How much of them the drive may have is time, not bytes: as
//! much as it does in [`TARGET`] by what was measured of it. A drive that has none is always given one: that is the
//! minimum rate of bulk work, and on a slow disk it is also the limit.
//! When no short one has come for [`SHORT_QUIET`] there is no limit.
//!
//! A drive that moves [`PIECE_BYTES_MIN`] within the target is given long operations in pieces of at most half of the
//! limit: one operation of 512 KiB takes a flash drive of 500 MB/s a millisecond, and a commit meets it in each of its
//! steps. Slower drives, which seek for each piece, get operations as they are.
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

/// What the bulk operations that a drive has may take together while short ones come. A commit reads, writes its record
/// and flushes, one after the other, and waits behind them in each of these.
const TARGET: Duration = Duration::from_micros(300);

/// Short operations that have not come for so long do not come any more.
const SHORT_QUIET: Duration = Duration::from_secs(2);

/// A thread that holds operations back looks again after this time though nobody has woken it.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What an operation costs a drive beside its bytes, as bytes: 2 ms of a disk that moves 100 MB/s are more, 20 us of a
/// flash drive that moves 2 GB/s are less. How long they take in the end decides.
const OPERATION_BYTES: u64 = 32 << 10;

/// Bounds of the limit. A drive that reaches the upper one moves 13 GB/s and more.
const LIMIT_BYTES: (u64, u64) = (64 << 10, 4 << 20);

/// The shortest pieces of long operations.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// What was measured once is forgotten by this part with each operation that was slower. A thread that is late for want
/// of a core makes drives look slow, and nothing makes them look fast: so the quickest of some operations counts.
const FORGET: u64 = 32;

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

    /// Whether the drive takes whatever it is given in no time. It need not be asked then, but now and then, to see that it
    /// still does.
    pub(super) fn is_open(&self) -> bool {
        self.limit.load(Relaxed) == LIMIT_BYTES.1
    }

    fn limit(&self, now: Instant) -> u64 {
        let short_at = self.short_at.load(Relaxed);
        if short_at == 0 || now.since(Instant(short_at)) > SHORT_QUIET {
            return u64::MAX;
        }
        self.settled()
    }

    fn settled(&self) -> u64 {
        let (low, high) = LIMIT_BYTES;
        self.limit.load(Relaxed).clamp(low, high)
    }

    /// The longest operation that the drive is to be given as one.
    pub(super) fn piece_bytes(&self, now: Instant) -> u64 {
        let limit = self.limit(now);
        if limit < PIECE_BYTES_MIN + OPERATION_BYTES {
            return u64::MAX;
        }
        // The drive begins with one while the other is asked for.
        let half = limit / 2 - OPERATION_BYTES;
        (half - half % PIECE_BYTES_MIN).max(PIECE_BYTES_MIN)
    }

    /// Begins a bulk operation, if the drive may have one more.
    pub(super) fn begin(self: &Arc<Self>, now: Instant, bytes: u64) -> Option<Bulk> {
        let bytes = bytes + OPERATION_BYTES;
        let limit = self.limit(now);
        let more = |has: u64| (has == 0 || has.saturating_add(bytes) <= limit).then(|| has + bytes);
        let before = self.in_flight.fetch_update(SeqCst, Relaxed, more).ok()?;
        Some(self.bulk(now, before, bytes))
    }

    /// Begins one whatever the drive has.
    pub(super) fn begin_now(self: &Arc<Self>, now: Instant, bytes: u64) -> Bulk {
        let bytes = bytes + OPERATION_BYTES;
        let before = self.in_flight.fetch_add(bytes, Relaxed);
        self.bulk(now, before, bytes)
    }

    fn bulk(self: &Arc<Self>, since: Instant, before: u64, bytes: u64) -> Bulk {
        Bulk {
            admission: Arc::clone(self),
            since,
            ahead: before + bytes,
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

    /// So much, the drive's bulk operations at the time and one more, has taken so long.
    fn learn(&self, took: Duration, ahead: u64) {
        let (low, high) = LIMIT_BYTES;
        let took = took.as_nanos().max(1);
        let does = u128::from(ahead) * TARGET.as_nanos() / took;
        let does = u64::try_from(does).map_or(high, |does| does.clamp(low, high));
        let limit = self.settled();
        // Answers that come together make the drive look faster than it is, so the limit rises in steps.
        let next = if does > limit {
            does.min(limit + limit / 4)
        } else {
            limit - (limit - does).div_ceil(FORGET)
        };
        self.limit.store(next, Relaxed);
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
    /// Bytes of bulk operations that the drive had when it began, itself among them.
    ahead: u64,
    bytes: u64,
}

impl Bulk {
    /// It has been answered: the next one that waits is woken.
    pub(super) fn ended(self, now: Instant) {
        self.admission.learn(now.since(self.since), self.ahead);
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

    /// Bytes that a drive of this rate has in the end, and how long its pieces are, if it is given operations of 512 KiB.
    fn settles(bytes_per_ms: u64) -> (u64, u64) {
        let admission = Arc::new(Admission::default());
        let (mut now, mut has) = (at(1), VecDeque::new());
        let mut most = 0;
        for round in 0..5_000 {
            admission.short(now);
            let piece = admission.piece_bytes(now).min(512 * KIB);
            while let Some(bulk) = admission.begin(now, piece) {
                has.push_back((bulk, piece));
            }
            if round > 2_500 {
                most = most.max(has.iter().map(|&(_, piece)| piece).sum());
            }
            let (first, bytes) = has.pop_front().expect("one at least");
            now += MS * u32::try_from(bytes).unwrap() / u32::try_from(bytes_per_ms).unwrap();
            first.ended(now);
        }
        (most / KIB, admission.piece_bytes(now).min(512 * KIB) / KIB)
    }

    #[test]
    fn a_drive_has_as_much_as_it_does_within_the_target() {
        // 4 GB/s, 2 GB/s, 500 MB/s; disks of 100 and 16 MB/s have one operation at a time, and as it is.
        for (rate, low, high, length) in [
            (4_000_000, 1_024, 2_048, 512),
            (2_000_000, 384, 768, 256),
            (500_000, 64, 192, 64),
            (100_000, 512, 512, 512),
            (16_000, 512, 512, 512),
        ] {
            let (most, piece) = settles(rate);
            assert!((low..=high).contains(&most), "{rate} bytes/ms: {most} KiB");
            assert_eq!(piece, length, "{rate} bytes/ms");
        }
    }

    #[test]
    fn a_thread_that_is_late_now_and_then_does_not_make_a_drive_slow() {
        let admission = Arc::new(Admission::default());
        for round in 0..1_000_u32 {
            admission.short(at(round));
            let bulk = admission.begin(at(round), 64 * KIB).expect("it has none");
            let took = if round % 4 == 0 { MS / 20 } else { MS };
            bulk.ended(at(round) + took);
        }
        // 96 KiB in 50 µs are 576 KiB in the target.
        assert!(admission.settled() > 384 * KIB, "{}", admission.settled());
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
