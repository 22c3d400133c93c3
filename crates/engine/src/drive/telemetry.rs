//! A drive's counters: requests, bytes, errors and latencies, cheap enough to be always on.
//!
//! Everything is a relaxed atomic; a snapshot is not a consistent cut, only monotone per field.
//! The latency histogram is log-linear: four buckets per doubling from 1 µs (below: one bucket), so
//! a quantile is right to about 19 %, which is what `pool iostat` and a slow-drive policy need.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use block::{Fault, Outcome, RequestKind};

/// Buckets per doubling of latency.
const STEPS: usize = 4;
/// 1 µs is 2^10 ns, near enough; everything below it shares bucket 0.
const FIRST_OCTAVE: usize = 10;
/// Up to 2^37 ns (137 s); everything above shares the last bucket.
const OCTAVES: usize = 27;
/// Number of buckets of a latency histogram.
pub const BUCKETS: usize = 1 + OCTAVES * STEPS;

/// The bucket that `nanoseconds` falls into.
fn bucket(nanoseconds: u64) -> usize {
    let octave = (u64::BITS - 1).saturating_sub(nanoseconds.leading_zeros()) as usize;
    if octave < FIRST_OCTAVE {
        return 0;
    }
    // The two bits below the leading one choose the step.
    let step = usize::from(((nanoseconds >> (octave - 2)) & 3) as u8);
    (1 + (octave - FIRST_OCTAVE) * STEPS + step).min(BUCKETS - 1)
}

/// The largest number of nanoseconds of a bucket, exclusive.
pub(crate) fn bucket_end(index: usize) -> u64 {
    if index == 0 {
        return 1 << FIRST_OCTAVE;
    }
    let octave = FIRST_OCTAVE + (index - 1) / STEPS;
    let step = ((index - 1) % STEPS) as u64;
    (1 << octave) + (step + 1) * (1 << (octave - 2))
}

/// Adds to a counter.
type Add = fn(&AtomicU64, u64);

/// Adds to a counter to which several threads add.
fn among_others(counter: &AtomicU64, more: u64) {
    counter.fetch_add(more, Relaxed);
}

/// Adds to a counter to which no other thread adds: a tenth of the time of `among_others`.
fn alone(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Relaxed) + more, Relaxed);
}

/// Counters of one direction of traffic. The number of requests is the sum of the histogram.
struct Counters {
    bytes: AtomicU64,
    nanoseconds: AtomicU64,
    latency: [AtomicU64; BUCKETS],
}

impl Counters {
    const fn new() -> Self {
        Self {
            bytes: AtomicU64::new(0),
            nanoseconds: AtomicU64::new(0),
            latency: [const { AtomicU64::new(0) }; BUCKETS],
        }
    }

    #[inline]
    fn add(&self, bytes: u64, took: Duration, add: Add) {
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add(&self.bytes, bytes);
        add(&self.nanoseconds, nanoseconds);
        add(&self.latency[bucket(nanoseconds)], 1);
    }

    fn snapshot(&self) -> TrafficSnapshot {
        let latency: [u64; BUCKETS] =
            std::array::from_fn(|index| self.latency[index].load(Relaxed));
        TrafficSnapshot {
            requests: latency.iter().sum(),
            bytes: self.bytes.load(Relaxed),
            nanoseconds: self.nanoseconds.load(Relaxed),
            latency,
        }
    }
}

/// Live counters of one drive. The drive writes them, any thread may read them.
pub struct Telemetry {
    reads: Counters,
    writes: Counters,
    flushes: Counters,
    trims: Counters,
    begun: AtomicU64,
    ended: AtomicU64,
    medium: AtomicU64,
    gone: AtomicU64,
    full: AtomicU64,
    other: AtomicU64,
    /// Requests that failed since the last one that ended well.
    in_a_row: AtomicU64,
}

impl Telemetry {
    /// All zero.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            reads: Counters::new(),
            writes: Counters::new(),
            flushes: Counters::new(),
            trims: Counters::new(),
            begun: AtomicU64::new(0),
            ended: AtomicU64::new(0),
            medium: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            full: AtomicU64::new(0),
            other: AtomicU64::new(0),
            in_a_row: AtomicU64::new(0),
        }
    }

    /// Requests that failed since the last one that ended well.
    #[must_use]
    pub fn failed_in_a_row(&self) -> u64 {
        self.in_a_row.load(Relaxed)
    }

    /// A request was accepted.
    pub(crate) fn begin(&self) {
        self.begun.fetch_add(1, Relaxed);
    }

    /// A request was answered. Failed requests count as errors, not as traffic or latency.
    pub(crate) fn end(&self, kind: RequestKind, bytes: u64, took: Duration, outcome: Outcome) {
        self.count(kind, bytes, took, outcome, among_others);
    }

    /// A request was answered by the only thread that counts here.
    pub(crate) fn end_alone(
        &self,
        kind: RequestKind,
        bytes: u64,
        took: Duration,
        outcome: Outcome,
    ) {
        self.count(kind, bytes, took, outcome, alone);
    }

    #[inline]
    fn count(&self, kind: RequestKind, bytes: u64, took: Duration, outcome: Outcome, add: Add) {
        match outcome {
            Ok(()) => match kind {
                RequestKind::Read => self.reads.add(bytes, took, add),
                RequestKind::Write => self.writes.add(bytes, took, add),
                RequestKind::Flush => self.flushes.add(0, took, add),
                RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                    self.trims.add(bytes, took, add);
                }
            },
            Err(fault) => {
                let counter = match fault {
                    Fault::Medium | Fault::Lost => &self.medium,
                    Fault::Gone => &self.gone,
                    Fault::Full => &self.full,
                    Fault::Invalid | Fault::Shutdown => &self.other,
                };
                add(counter, 1);
                add(&self.in_a_row, 1);
                add(&self.ended, 1);
                return;
            }
        }
        if self.in_a_row.load(Relaxed) > 0 {
            self.in_a_row.store(0, Relaxed);
        }
        add(&self.ended, 1);
    }

    /// Counts errors from zero again.
    pub(crate) fn forget_errors(&self) {
        for counter in [
            &self.medium,
            &self.gone,
            &self.full,
            &self.other,
            &self.in_a_row,
        ] {
            counter.store(0, Relaxed);
        }
    }

    /// The counters now.
    #[must_use]
    pub fn snapshot(&self) -> TelemetrySnapshot {
        // `ended` first: a request that ends between the two loads must not make the depth wrap.
        let ended = self.ended.load(Relaxed);
        TelemetrySnapshot {
            in_flight: self.begun.load(Relaxed).saturating_sub(ended),
            reads: self.reads.snapshot(),
            writes: self.writes.snapshot(),
            flushes: self.flushes.snapshot(),
            trims: self.trims.snapshot(),
            errors_medium: self.medium.load(Relaxed),
            errors_gone: self.gone.load(Relaxed),
            errors_full: self.full.load(Relaxed),
            errors_other: self.other.load(Relaxed),
        }
    }
}

impl Default for Telemetry {
    fn default() -> Self {
        Self::new()
    }
}

/// Traffic of one direction at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrafficSnapshot {
    /// Requests that ended well.
    pub requests: u64,
    /// Their bytes (0 for flushes).
    pub bytes: u64,
    /// The sum of their latencies, from submission to completion.
    pub nanoseconds: u64,
    /// How many fell into each latency bucket.
    pub latency: [u64; BUCKETS],
}

impl TrafficSnapshot {
    /// The traffic since `earlier`, a snapshot of the same drive.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            requests: self.requests.saturating_sub(earlier.requests),
            bytes: self.bytes.saturating_sub(earlier.bytes),
            nanoseconds: self.nanoseconds.saturating_sub(earlier.nanoseconds),
            latency: std::array::from_fn(|index| {
                self.latency[index].saturating_sub(earlier.latency[index])
            }),
        }
    }

    /// Adds the traffic of `other`.
    fn add(&mut self, other: &Self) {
        self.requests += other.requests;
        self.bytes += other.bytes;
        self.nanoseconds += other.nanoseconds;
        for (count, more) in self.latency.iter_mut().zip(&other.latency) {
            *count += more;
        }
    }

    /// Mean latency; zero when there was no request.
    #[must_use]
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.nanoseconds.checked_div(self.requests).unwrap_or(0))
    }

    /// The latency that `per_thousand` of 1000 requests did not exceed, rounded up to the end of
    /// its bucket; zero when there was no request.
    #[must_use]
    pub fn quantile(&self, per_thousand: u64) -> Duration {
        let total: u64 = self.latency.iter().sum();
        let wanted = (u128::from(total) * u128::from(per_thousand))
            .div_ceil(1000)
            .max(1);
        let mut seen = 0_u128;
        for (index, &count) in self.latency.iter().enumerate() {
            seen += u128::from(count);
            if count > 0 && seen >= wanted {
                return Duration::from_nanos(bucket_end(index));
            }
        }
        Duration::ZERO
    }
}

/// A drive's counters at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TelemetrySnapshot {
    /// Requests that were accepted and not yet answered.
    pub in_flight: u64,
    /// Reads.
    pub reads: TrafficSnapshot,
    /// Writes.
    pub writes: TrafficSnapshot,
    /// Flushes.
    pub flushes: TrafficSnapshot,
    /// Trims, discards and writes of zeros; their bytes are what they covered.
    pub trims: TrafficSnapshot,
    /// Requests that failed with a medium error.
    pub errors_medium: u64,
    /// Requests that failed because the drive was gone.
    pub errors_gone: u64,
    /// Requests that failed for lack of space.
    pub errors_full: u64,
    /// Requests that were invalid or met a shutdown.
    pub errors_other: u64,
}

impl TelemetrySnapshot {
    /// Adds the counts of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        self.in_flight += other.in_flight;
        self.reads.add(&other.reads);
        self.writes.add(&other.writes);
        self.flushes.add(&other.flushes);
        self.trims.add(&other.trims);
        self.errors_medium += other.errors_medium;
        self.errors_gone += other.errors_gone;
        self.errors_full += other.errors_full;
        self.errors_other += other.errors_other;
    }

    /// All failed requests.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.errors_medium + self.errors_gone + self.errors_full + self.errors_other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_latency_lies_in_its_bucket_and_buckets_grow_by_a_quarter_at_most() {
        for nanoseconds in (0..200_000_u64).chain((17..37).flat_map(|bit| {
            let base = 1_u64 << bit;
            [base - 1, base, base + base / 4, base + base / 2 + 1]
        })) {
            let index = bucket(nanoseconds);
            assert!(nanoseconds < bucket_end(index), "{nanoseconds}");
            if index > 0 {
                assert!(nanoseconds >= bucket_end(index - 1), "{nanoseconds}");
                assert!(
                    bucket_end(index) * 4 <= bucket_end(index - 1) * 5,
                    "{index}"
                );
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_and_means_come_from_what_was_recorded() {
        let telemetry = Telemetry::new();
        for index in 0..1000_u64 {
            telemetry.begin();
            let took = Duration::from_micros(if index < 990 { 100 } else { 5_000 });
            telemetry.end(RequestKind::Read, 4096, took, Ok(()));
        }
        let snapshot = telemetry.snapshot();
        assert_eq!(snapshot.reads.requests, 1000);
        assert_eq!(snapshot.reads.bytes, 4096 * 1000);
        assert_eq!(snapshot.in_flight, 0);
        assert_eq!(snapshot.reads.mean(), Duration::from_micros(149));
        let near = |found: Duration, wanted: u64| {
            let micros = u64::try_from(found.as_micros()).unwrap();
            assert!(micros >= wanted && micros * 4 <= wanted * 5, "{found:?}");
        };
        near(snapshot.reads.quantile(500), 100);
        near(snapshot.reads.quantile(990), 100);
        near(snapshot.reads.quantile(999), 5_000);
        let rest = snapshot.reads.since(&snapshot.reads);
        assert_eq!((rest.requests, rest.quantile(999)), (0, Duration::ZERO));
    }

    #[test]
    fn faults_count_as_errors_and_not_as_traffic() {
        let telemetry = Telemetry::new();
        for fault in [Fault::Medium, Fault::Gone, Fault::Full, Fault::Shutdown] {
            telemetry.begin();
            telemetry.end(RequestKind::Write, 4096, Duration::ZERO, Err(fault));
        }
        telemetry.begin();
        let snapshot = telemetry.snapshot();
        assert_eq!(snapshot.writes.requests, 0);
        assert_eq!(snapshot.errors(), 4);
        assert_eq!(snapshot.errors_gone, 1);
        assert_eq!(snapshot.in_flight, 1);
    }
}
