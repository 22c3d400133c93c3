//! How much of one kind of operation a drive gets at once: as much as it does within [`TARGET`], as measured. While
//! only records of streams wait behind it, as much as it does within [`DEEP_TARGET`].
//!
//! ```text
//!   begin ──there is room──────────────────────────────────────────► drive
//!     └─────there is none, or it is another thread's turn──► line     │ ends
//!                                                              ▲      ▼
//!                                                              └── the first in the line is woken, and has the turn
//! ```
//!
//! A drive that has none in flight always gets one: that is the minimum rate, and on a slow disk also the limit.
//!
//! Invariant: for [`TURN`], no other thread overtakes a thread that was woken. The thread whose operation has ended
//! runs already, and would otherwise take the room each time.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use block::Instant;

/// How long the operations of one kind that a drive has may take together. A commit reads, writes its record and
/// flushes, one after the other, and waits behind these operations each time.
const TARGET: Duration = Duration::from_micros(300);

/// The same while only records of streams come. A stream has requests in flight for this long, and a drive that is
/// far away is fast only with that many.
const DEEP_TARGET: Duration = Duration::from_millis(20);

/// The least that a drive may have while only records of streams come: two long operations, so that the drive begins
/// the second one while the answer to the first is on its way.
const DEEP_BYTES_MIN: u64 = 2 * (OPERATION_BYTES + (256 << 10));

/// The highest deep limit: the answer of a drive that reaches it takes 20 ms at 13 GB/s.
const DEEP_BYTES_MAX: u64 = 256 << 20;

/// What an operation costs a drive beside its bytes, as bytes. A disk that moves 100 MB/s and takes 2 ms costs more;
/// a flash drive that moves 2 GB/s and takes 20 us costs about as much. The measured time decides in the end.
pub(super) const OPERATION_BYTES: u64 = 32 << 10;

/// The highest limit: a drive that reaches it moves 13 GB/s and more.
const LIMIT_BYTES_MAX: u64 = 4 << 20;

/// An operation that was slower than the estimate lowers it by this part of the difference. A thread that gets a core
/// late makes drives look slow, and nothing makes them look fast: so the fastest of the last operations count.
const FORGET: u64 = 32;

/// A thread that was woken and has begun nothing for this long loses its turn.
const TURN: Duration = Duration::from_millis(1);

/// A thread that can be woken.
pub(super) trait Waiter: Send + Sync {
    /// There may be room for an operation.
    fn wake(&self);
}

/// Threads that hold operations back.
#[derive(Default)]
struct Line {
    /// In the order in which they came.
    waiting: VecDeque<Arc<dyn Waiter>>,
    /// The thread that was woken last and has not begun anything since, and when it was woken.
    turn: Option<(Arc<dyn Waiter>, Instant)>,
}

/// What a drive does within a target, as far as it has been measured.
struct Measured {
    bytes: AtomicU64,
    bytes_min: u64,
    bytes_max: u64,
    target: Duration,
}

impl Measured {
    fn new(target: Duration, bytes_min: u64, bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::default(),
            bytes_min,
            bytes_max,
            target,
        }
    }

    fn bytes(&self) -> u64 {
        let bytes = self.bytes.load(Relaxed);
        bytes.clamp(self.bytes_min, self.bytes_max)
    }

    /// Records that `ahead` bytes (all that the drive had at the time, this operation included) have taken `took`.
    fn learn(&self, took: Duration, ahead: u64) {
        let took = took.as_nanos().max(1);
        let does = u128::from(ahead) * self.target.as_nanos() / took;
        let does = u64::try_from(does).map_or(self.bytes_max, |does| {
            does.clamp(self.bytes_min, self.bytes_max)
        });
        let bytes = self.bytes();
        // Answers that come together make the drive look faster than it is, so the limit rises in steps.
        let next = if does > bytes {
            does.min(bytes + bytes / 4)
        } else {
            bytes - (bytes - does).div_ceil(FORGET)
        };
        self.bytes.store(next, Relaxed);
    }
}

/// What a drive has of one kind of operations, and what it may have.
pub(super) struct Gate {
    /// Bytes in flight, with [`OPERATION_BYTES`] for each operation.
    in_flight: AtomicU64,
    near: Measured,
    deep: Measured,
    /// Whether a thread may be in the line.
    waits: AtomicBool,
    line: Mutex<Line>,
}

impl Gate {
    /// A gate that lets `limit_min` bytes through at once in any case.
    pub(super) fn new(limit_min: u64) -> Arc<Self> {
        Arc::new(Self {
            in_flight: AtomicU64::default(),
            near: Measured::new(TARGET, limit_min, LIMIT_BYTES_MAX),
            deep: Measured::new(DEEP_TARGET, DEEP_BYTES_MIN, DEEP_BYTES_MAX),
            waits: AtomicBool::default(),
            line: Mutex::default(),
        })
    }

    /// Whether the drive has reached the highest limit.
    pub(super) fn is_open(&self) -> bool {
        self.near.bytes.load(Relaxed) == LIMIT_BYTES_MAX
    }

    /// The measured limit.
    pub(super) fn limit(&self) -> u64 {
        self.near.bytes()
    }

    /// The limit while only records of streams come.
    pub(super) fn deep_limit(&self) -> u64 {
        self.deep.bytes()
    }

    /// Begins an operation, if the drive may have one more: up to `limit` bytes.
    pub(super) fn begin(self: &Arc<Self>, now: Instant, limit: u64, bytes: u64) -> Option<Given> {
        let bytes = bytes + OPERATION_BYTES;
        let more = |has: u64| (has == 0 || has.saturating_add(bytes) <= limit).then(|| has + bytes);
        let before = self.in_flight.fetch_update(SeqCst, Relaxed, more).ok()?;
        Some(self.given(now, before, bytes))
    }

    /// Begins an operation whatever the drive has in flight.
    pub(super) fn begin_now(self: &Arc<Self>, now: Instant, bytes: u64) -> Given {
        let bytes = bytes + OPERATION_BYTES;
        let before = self.in_flight.fetch_add(bytes, Relaxed);
        self.given(now, before, bytes)
    }

    fn given(self: &Arc<Self>, since: Instant, before: u64, bytes: u64) -> Given {
        Given {
            gate: Arc::clone(self),
            since,
            until: since,
            ahead: before + bytes,
            bytes,
        }
    }

    /// As [`begin`](Self::begin); if there is no room, `who` is woken in its turn when an operation has ended.
    pub(super) fn begin_or_wait(
        self: &Arc<Self>,
        now: Instant,
        limit: u64,
        bytes: u64,
        who: &Arc<dyn Waiter>,
    ) -> Option<Given> {
        if self.is_anothers_turn(now, who) {
            self.wait(who);
            return None;
        }
        let begun = self.begin(now, limit, bytes);
        if begun.is_some() {
            return begun;
        }
        self.wait(who);
        // The last operation may have ended before `who` was in the line.
        self.begin(now, limit, bytes)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another thread was woken just now. If it is the turn of `who`, `who` uses it up.
    fn is_anothers_turn(&self, now: Instant, who: &Arc<dyn Waiter>) -> bool {
        if !self.waits.load(SeqCst) {
            return false;
        }
        let mut line = self.line();
        let Some((first, since)) = line.turn.take() else {
            return false;
        };
        if Arc::ptr_eq(&first, who) || now.since(since) > TURN {
            return false;
        }
        line.turn = Some((first, since));
        true
    }

    fn wait(&self, who: &Arc<dyn Waiter>) {
        let mut line = self.line();
        if !line.waiting.iter().any(|other| Arc::ptr_eq(other, who)) {
            line.waiting.push_back(Arc::clone(who));
        }
        self.waits.store(true, SeqCst);
    }

    /// Gives the turn to the thread that has waited longest.
    fn wake_next(&self, now: Instant) -> Option<Arc<dyn Waiter>> {
        if !self.waits.load(SeqCst) {
            return None;
        }
        let mut line = self.line();
        let next = line.waiting.pop_front();
        line.turn = next.clone().map(|next| (next, now));
        self.waits.store(next.is_some(), SeqCst);
        next
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let in_flight = self.in_flight.load(Relaxed);
        f.debug_struct("Gate")
            .field("in_flight", &in_flight)
            .finish_non_exhaustive()
    }
}

/// An operation in flight.
pub(super) struct Given {
    gate: Arc<Gate>,
    since: Instant,
    /// When it was answered; until then, when it began.
    until: Instant,
    /// Bytes that the drive had when this operation began, its own included.
    ahead: u64,
    bytes: u64,
}

impl Given {
    /// The operation has been answered: wakes the next thread that waits.
    pub(super) fn ended(mut self, now: Instant) {
        let took = now.since(self.since);
        self.gate.near.learn(took, self.ahead);
        self.gate.deep.learn(took, self.ahead);
        self.until = now;
    }
}

impl Drop for Given {
    fn drop(&mut self) {
        self.gate.in_flight.fetch_sub(self.bytes, SeqCst);
        if let Some(next) = self.gate.wake_next(self.until) {
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

    fn begin(gate: &Arc<Gate>, now: Instant, bytes: u64) -> Option<Given> {
        gate.begin(now, gate.limit(), bytes)
    }

    #[test]
    fn a_drive_that_has_none_is_given_one_however_long() {
        let gate = Gate::new(64 * KIB);
        let first = begin(&gate, at(1), 64 << 20).expect("it has none");
        assert!(begin(&gate, at(1), 4 * KIB).is_none());
        drop(first);
        assert!(begin(&gate, at(1), 4 * KIB).is_some());
    }

    #[test]
    fn a_thread_that_is_late_now_and_then_does_not_make_a_drive_slow() {
        let gate = Gate::new(64 * KIB);
        for round in 0..1_000_u32 {
            let given = begin(&gate, at(round), 64 * KIB).expect("it has none");
            let took = if round % 4 == 0 { MS / 20 } else { MS };
            given.ended(at(round) + took);
        }
        // 96 KiB in 50 µs are 576 KiB in the target.
        assert!(gate.limit() > 384 * KIB, "{}", gate.limit());
    }

    /// How many operations of 4 KiB a drive has in the end, if it does one in `service` and takes `latency` for it.
    fn settles(service: Duration, latency: Duration) -> usize {
        let gate = Gate::new(128 * KIB);
        let (mut now, mut has) = (at(1), VecDeque::new());
        let mut free = now;
        let mut most = 0;
        for round in 0..20_000 {
            while let Some(given) = begin(&gate, now, 4 * KIB) {
                free = free.max(now) + service;
                has.push_back((given, free.max(now + latency)));
            }
            if round > 10_000 {
                most = most.max(has.len());
            }
            let (first, end) = has.pop_front().expect("one at least");
            now = now.max(end);
            first.ended(now);
        }
        most
    }

    #[test]
    fn a_quick_drive_has_enough_of_short_operations_and_a_disk_has_few() {
        let flash = settles(Duration::from_micros(20), Duration::from_micros(80));
        assert!((6..=24).contains(&flash), "{flash}");
        assert_eq!(settles(2 * MS, 2 * MS), 3);
    }

    /// Bytes that a drive has in the end while only records of streams come, in operations of 256 KiB, if it moves
    /// `bytes_per_ms` and its answers take `away`.
    fn settles_deep(bytes_per_ms: u64, away: Duration) -> u64 {
        const BYTES: u64 = 256 * KIB;
        let gate = Gate::new(64 * KIB);
        let service = MS * u32::try_from(BYTES * 1000 / bytes_per_ms).unwrap() / 1000;
        let (mut now, mut has) = (at(1), VecDeque::new());
        let mut free = now;
        let mut most = 0;
        for round in 0..5_000 {
            while let Some(given) = gate.begin(now, gate.deep_limit(), BYTES) {
                free = free.max(now) + service;
                has.push_back((given, free + away));
            }
            if round > 2_500 {
                most = most.max(has.len() as u64 * BYTES);
            }
            let (first, end) = has.pop_front().expect("one at least");
            now = now.max(end);
            first.ended(now);
        }
        most
    }

    #[test]
    fn beside_records_of_streams_a_disk_has_two_operations_and_a_drive_far_away_as_many_as_it_needs()
     {
        assert_eq!(settles_deep(16_000, Duration::ZERO), 512 * KIB);
        // 20 ms of 100 MB/s, and of 1 GB/s with answers that take 5 ms: less would leave the drive idle.
        let disk = settles_deep(100_000, Duration::ZERO);
        assert!((1024 * KIB..=2048 * KIB).contains(&disk), "{disk}");
        let distant = settles_deep(1_000_000, 5 * MS);
        assert!((8 << 20..=24 << 20).contains(&distant), "{distant}");
    }

    #[test]
    fn whoever_waits_is_woken_in_turn_and_once_and_is_not_overtaken() {
        let gate = Gate::new(64 * KIB);
        let woken: [Arc<Woken>; 2] = Default::default();
        let both: Vec<Arc<dyn Waiter>> = woken.iter().map(|who| Arc::clone(who) as _).collect();
        let begin = |who: usize, now| gate.begin_or_wait(now, 64 * KIB, 32 * KIB, &both[who]);
        let counts = || [0, 1].map(|index| woken[index].0.load(Relaxed));
        let first = begin(0, at(1)).expect("the drive has none");
        for who in [0, 1, 0] {
            assert!(begin(who, at(1)).is_none());
        }
        first.ended(at(2));
        assert_eq!(counts(), [1, 0]);
        assert!(begin(1, at(2)).is_none(), "it is the other's turn");
        let second = begin(0, at(2)).expect("it was woken");
        assert!(begin(0, at(2)).is_none());
        second.ended(at(3));
        assert_eq!(counts(), [1, 1]);
        assert!(begin(0, at(3)).is_none());
        let third = begin(0, at(5)).expect("whoever was woken did not come");
        third.ended(at(6));
        assert_eq!(counts(), [2, 1]);
        begin(0, at(6)).expect("it waited").ended(at(7));
        begin(1, at(9)).expect("nobody waits").ended(at(10));
        assert_eq!(counts(), [2, 1], "nobody waits any more");
    }
}
