//! Which operations a drive gets while others wait for it (`gate.rs`).
//!
//! ```text
//!   short, of one volume: reads and writes of clients ──────────────────────────► drive
//!   short, of several   ─┐
//!   bulk: streams, checkpoints, fills, scrubs ──► begin? ──yes──────────────────► drive
//!                                                   │ no                           │ ends
//!                                                   └──► held by the lane thread ◄─┘ wakes the next one
//!   the log, records of streams, flushes ────────────────────────────────────────► drive
//! ```
//!
//! A drive serves its operations in an order of its own, so an operation waits for those that the drive got before
//! it. Therefore bulk operations wait outside while short ones come. The limit on bulk operations in the drive is a
//! time, not a number of bytes: as much as the drive does within a target, as measured. A drive that has none always
//! gets one: that is the minimum rate of bulk work, and on a slow disk also the limit.
//!
//! When no short one has come for [`QUIET`], there is no limit, with one exception: a stream that writes in place
//! logs a record of the write, and is answered when the record is written (`lane/src/direct.rs`). Records pass,
//! and while they come a drive has as much bulk as it does within a longer target. Otherwise each request would wait
//! twice for all that the stream itself has in flight.
//!
//! While several volumes submit short operations, these wait outside, too, and the volumes take turns (`held.rs`): if
//! a drive had all operations of a busy volume, the other volumes would wait behind them. The log does not wait: its
//! batches are of all volumes.
//!
//! A drive that moves [`PIECE_BYTES_MIN`] within the target gets long operations in pieces of at most half of the
//! limit: one operation of 512 KiB takes a flash drive of 500 MB/s a millisecond, and a commit would wait for it in
//! each of its steps. Slower drives, which seek for each piece, get operations uncut.
//!
//! Invariants:
//! - Operations in flight have no order among them, so holding one back changes nothing but time.
//! - A thread that holds operations back checks again when it is woken, and after [`LOOK`] in any case.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use array::{Service, VolumeId};
use block::Instant;

use super::gate::{Gate, OPERATION_BYTES};
pub(super) use super::gate::{Given, Waiter};

/// After this long without an operation of a kind, or of a volume, no more are expected.
const QUIET: Duration = Duration::from_secs(2);

/// A thread that holds operations back checks again after this time even if it was not woken.
pub(super) const LOOK: Duration = Duration::from_millis(10);

/// What a drive may have at once however slow it is. A disk gets one long operation, and several short ones: it
/// begins the next one while the answer is on its way, and may choose their order.
const LIMIT_BYTES_MIN: [u64; 2] = [128 << 10, 64 << 10];

/// A log batch of streams that is no longer than this on each drive has records, and hardly anything else.
pub(super) const RECORD_BYTES_MAX: u64 = 16 << 10;

/// The shortest pieces of long operations.
const PIECE_BYTES_MIN: u64 = 64 << 10;

/// Kinds of operations that a drive may have to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Short,
    Bulk,
}

impl Kind {
    pub(super) const ALL: [Self; 2] = [Self::Short, Self::Bulk];

    pub(super) const fn of(service: Service) -> Self {
        if service.bulk {
            Self::Bulk
        } else {
            Self::Short
        }
    }
}

/// What one drive has, what it may have, and which operations came lately.
#[derive(Debug)]
pub(crate) struct Admission {
    /// By [`Kind`].
    gates: [Arc<Gate>; 2],
    /// When a short operation last came, in nanoseconds of the pool's clock; 0 before the first.
    short_at: AtomicU64,
    /// When a record of a stream last came, likewise.
    record_at: AtomicU64,
    /// The volume of the last short operation.
    volume: AtomicU64,
    /// When that volume last changed, in nanoseconds of the pool's clock; 0 if it never did.
    changed_at: AtomicU64,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            gates: LIMIT_BYTES_MIN.map(Gate::new),
            short_at: AtomicU64::new(0),
            record_at: AtomicU64::new(0),
            volume: AtomicU64::new(VolumeId::NONE.0),
            changed_at: AtomicU64::new(0),
        }
    }
}

/// Records that an operation has come, in nanoseconds of the pool's clock; 0 means none so far.
fn note(at: &AtomicU64, now: Instant) {
    // Threads that write the same cache line all the time would slow each other down.
    let seen = at.load(Relaxed);
    if seen == 0 || now.since(Instant(seen)) > QUIET / 1000 {
        at.store(now.0.max(1), Relaxed);
    }
}

/// Whether an operation has come lately.
fn comes(at: &AtomicU64, now: Instant) -> bool {
    let seen = at.load(Relaxed);
    seen != 0 && now.since(Instant(seen)) <= QUIET
}

impl Admission {
    const fn gate(&self, kind: Kind) -> &Arc<Gate> {
        &self.gates[kind as usize]
    }

    /// Records that a short operation has come.
    pub(super) fn short(&self, now: Instant) {
        note(&self.short_at, now);
    }

    /// Records that a stream's log record has come.
    pub(super) fn record(&self, now: Instant) {
        note(&self.record_at, now);
    }

    /// Takes in a short operation of a volume; returns whether several volumes have short operations.
    pub(super) fn is_shared(&self, now: Instant, volume: VolumeId) -> bool {
        if self.volume.load(Relaxed) != volume.0 {
            let before = self.volume.swap(volume.0, Relaxed);
            if before != VolumeId::NONE.0 {
                self.changed_at.store(now.0.max(1), Relaxed);
            }
        }
        let changed = self.changed_at.load(Relaxed);
        changed != 0 && now.since(Instant(changed)) < QUIET
    }

    /// Whether the drive has reached the highest limit. Operations then pass uncounted, except one now and then, to
    /// check that the drive is still as fast.
    pub(super) fn is_open(&self, kind: Kind) -> bool {
        self.gate(kind).is_open()
    }

    fn limit(&self, now: Instant, kind: Kind) -> u64 {
        let gate = self.gate(kind);
        match kind {
            Kind::Bulk if comes(&self.short_at, now) => gate.limit(),
            Kind::Bulk if comes(&self.record_at, now) => gate.deep_limit(),
            Kind::Bulk => u64::MAX,
            Kind::Short => gate.limit(),
        }
    }

    /// The longest operation that the drive gets uncut.
    pub(super) fn piece_bytes(&self, now: Instant, kind: Kind) -> u64 {
        let limit = self.gate(kind).limit();
        if kind == Kind::Short
            || !comes(&self.short_at, now)
            || limit < PIECE_BYTES_MIN + OPERATION_BYTES
        {
            return u64::MAX;
        }
        // The drive works on one piece while the next one is submitted.
        let half = limit / 2 - OPERATION_BYTES;
        (half - half % PIECE_BYTES_MIN).max(PIECE_BYTES_MIN)
    }

    /// Begins an operation whatever the drive has.
    pub(super) fn begin_now(&self, now: Instant, kind: Kind, bytes: u64) -> Given {
        self.gate(kind).begin_now(now, bytes)
    }

    /// Begins an operation if the drive may have one more; if not, `who` is woken in its turn when it may.
    pub(super) fn begin_or_wait(
        &self,
        now: Instant,
        kind: Kind,
        bytes: u64,
        who: &Arc<dyn Waiter>,
    ) -> Option<Given> {
        let limit = self.limit(now, kind);
        self.gate(kind).begin_or_wait(now, limit, bytes, who)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const KIB: u64 = 1 << 10;

    struct Nobody;

    impl Waiter for Nobody {
        fn wake(&self) {}
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + ms * MS
    }

    /// One thread that submits bulk operations.
    fn begin(admission: &Admission) -> impl Fn(Instant, u64) -> Option<Given> {
        let me: Arc<dyn Waiter> = Arc::new(Nobody);
        move |now, bytes| admission.begin_or_wait(now, Kind::Bulk, bytes, &me)
    }

    #[test]
    fn bulk_is_unlimited_until_short_operations_come_and_after_they_have_gone() {
        let admission = Admission::default();
        let begin = begin(&admission);
        let many: Vec<Given> = (0..100)
            .map(|_| begin(at(0), 512 * KIB).expect("no short one has come"))
            .collect();
        admission.short(at(10));
        assert!(begin(at(10), 512 * KIB).is_none());
        assert!(begin(at(2009), 512 * KIB).is_none());
        assert!(begin(at(2011), 512 * KIB).is_some());
        drop(many);
    }

    #[test]
    fn records_of_streams_leave_bulk_deep_and_whole() {
        let admission = Admission::default();
        let begin = begin(&admission);
        admission.record(at(10));
        let two = [begin(at(10), 256 * KIB), begin(at(10), 256 * KIB)];
        assert!(two.iter().all(Option::is_some));
        assert!(begin(at(10), 256 * KIB).is_none());
        assert_eq!(admission.piece_bytes(at(10), Kind::Bulk), u64::MAX);
        assert!(begin(at(2011), 256 * KIB).is_some(), "none come any more");
        admission.record(at(3000));
        admission.short(at(3000));
        drop(two);
        let one = begin(at(3000), 256 * KIB).expect("one at least");
        assert!(begin(at(3000), 256 * KIB).is_none(), "short ones need more");
        drop(one);
    }

    #[test]
    fn volumes_share_a_drive_while_more_than_one_asks() {
        let admission = Admission::default();
        let (a, b) = (VolumeId(1), VolumeId(2));
        assert!(!admission.is_shared(at(1), a) && !admission.is_shared(at(2), a));
        assert!(admission.is_shared(at(3), b) && admission.is_shared(at(4), a));
        assert!(admission.is_shared(at(2003), a));
        assert!(!admission.is_shared(at(2004), a), "the other one has gone");
        assert!(admission.is_shared(at(5000), b));
    }

    /// Bytes that a drive of this rate has in the end, and the length of its pieces, with operations of 512 KiB.
    fn settles(bytes_per_ms: u64) -> (u64, u64) {
        let admission = Admission::default();
        let begin = begin(&admission);
        let (mut now, mut has) = (at(1), VecDeque::new());
        let mut most = 0;
        for round in 0..5_000 {
            admission.short(now);
            let piece = admission.piece_bytes(now, Kind::Bulk).min(512 * KIB);
            while let Some(bulk) = begin(now, piece) {
                has.push_back((bulk, piece));
            }
            if round > 2_500 {
                most = most.max(has.iter().map(|&(_, piece)| piece).sum());
            }
            let (first, bytes) = has.pop_front().expect("one at least");
            now += MS * u32::try_from(bytes).unwrap() / u32::try_from(bytes_per_ms).unwrap();
            first.ended(now);
        }
        (
            most / KIB,
            admission.piece_bytes(now, Kind::Bulk).min(512 * KIB) / KIB,
        )
    }

    #[test]
    fn a_drive_has_as_much_as_it_does_within_the_target() {
        // 4 GB/s, 2 GB/s, 500 MB/s; disks of 100 and 16 MB/s have one operation at a time, uncut.
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
}
