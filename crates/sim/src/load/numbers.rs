//! The results of a load: totals, latencies, and a series over time.

use block::{Instant, Outcome, Request, RequestKind};
use stats::{BatchMeans, Histogram, to_f64};

/// Counts and latencies of requests that ended.
#[derive(Clone, Debug)]
pub struct Numbers {
    began: Instant,
    ended: Instant,
    reads: u64,
    writes: u64,
    others: u64,
    errors: u64,
    read_bytes: u64,
    written_bytes: u64,
    read_latency: Histogram,
    write_latency: Histogram,
    mean: BatchMeans,
    series_ns: u64,
    series: Vec<Interval>,
    open: Interval,
    open_latency: Histogram,
}

/// Requests that ended within one interval of the series.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interval {
    /// When the interval begins.
    pub begin_ns: u64,
    /// Reads that ended in it.
    pub reads: u64,
    /// Writes that ended in it.
    pub writes: u64,
    /// Bytes of both.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Latency that half of the requests did not exceed.
    pub p50_ns: u64,
    /// Latency that 99 % did not exceed.
    pub p99_ns: u64,
    /// The longest.
    pub longest_ns: u64,
}

impl Numbers {
    /// No counts yet, from `began` on. With `series_ns`, also a series of intervals of this length.
    pub(super) fn new(began: Instant, series_ns: Option<u64>) -> Self {
        Self {
            began,
            ended: began,
            reads: 0,
            writes: 0,
            others: 0,
            errors: 0,
            read_bytes: 0,
            written_bytes: 0,
            read_latency: Histogram::default(),
            write_latency: Histogram::default(),
            mean: BatchMeans::default(),
            series_ns: series_ns.unwrap_or(0),
            series: Vec::new(),
            open: Interval {
                begin_ns: began.0,
                ..Interval::default()
            },
            open_latency: Histogram::default(),
        }
    }

    pub(super) fn add(&mut self, now: Instant, request: &Request, taken_ns: u64, outcome: Outcome) {
        self.reach(now);
        if outcome.is_err() {
            self.errors += 1;
            self.open.errors += 1;
            return;
        }
        match request.kind {
            RequestKind::Read => {
                self.reads += 1;
                self.read_bytes += request.length;
                self.read_latency.add(taken_ns);
                self.open.reads += 1;
                self.open.bytes += request.length;
            }
            RequestKind::Write => {
                self.writes += 1;
                self.written_bytes += request.length;
                self.write_latency.add(taken_ns);
                self.open.writes += 1;
                self.open.bytes += request.length;
            }
            RequestKind::Flush
            | RequestKind::Trim
            | RequestKind::Discard
            | RequestKind::WriteZeroes => {
                self.others += 1;
                return;
            }
        }
        self.mean.add(to_f64(taken_ns));
        if self.series_ns > 0 {
            self.open_latency.add(taken_ns);
        }
    }

    /// Time has reached `now`: closes the intervals that are over.
    pub(super) fn reach(&mut self, now: Instant) {
        self.ended = self.ended.max(now);
        while self.series_ns > 0 && now.0 >= self.open.begin_ns + self.series_ns {
            let next = self.open.begin_ns + self.series_ns;
            self.close();
            self.open.begin_ns = next;
        }
    }

    fn close(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.series.push(Interval {
            p50_ns: self.open_latency.quantile(0.5),
            p99_ns: self.open_latency.quantile(0.99),
            longest_ns: self.open_latency.greatest(),
            ..open
        });
        self.open_latency.clear();
    }

    /// When counting began.
    #[must_use]
    pub const fn began(&self) -> Instant {
        self.began
    }

    /// When the last request ended, or the time to which the run has advanced.
    #[must_use]
    pub const fn ended(&self) -> Instant {
        self.ended
    }

    /// Reads and writes that succeeded.
    #[must_use]
    pub const fn requests(&self) -> u64 {
        self.reads + self.writes
    }

    /// Reads that succeeded.
    #[must_use]
    pub const fn reads(&self) -> u64 {
        self.reads
    }

    /// Writes that succeeded.
    #[must_use]
    pub const fn writes(&self) -> u64 {
        self.writes
    }

    /// Requests that failed.
    #[must_use]
    pub const fn errors(&self) -> u64 {
        self.errors
    }

    /// Bytes read and bytes written.
    #[must_use]
    pub const fn bytes(&self) -> (u64, u64) {
        (self.read_bytes, self.written_bytes)
    }

    /// Seconds from the beginning to the end.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        to_f64(self.ended.0 - self.began.0) / 1e9
    }

    /// Requests per second; 0 where no time has passed.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        ratio(to_f64(self.requests()), self.seconds())
    }

    /// Bytes per second; 0 where no time has passed.
    #[must_use]
    pub fn bytes_per_second(&self) -> f64 {
        ratio(to_f64(self.read_bytes + self.written_bytes), self.seconds())
    }

    /// Latencies of reads in nanoseconds.
    #[must_use]
    pub const fn read_latency(&self) -> &Histogram {
        &self.read_latency
    }

    /// Latencies of writes in nanoseconds.
    #[must_use]
    pub const fn write_latency(&self) -> &Histogram {
        &self.write_latency
    }

    /// Latencies of both.
    #[must_use]
    pub fn latency(&self) -> Histogram {
        let mut both = self.read_latency.clone();
        both.merge(&self.write_latency);
        both
    }

    /// Mean latency in nanoseconds with its 95 % interval, by batch means.
    #[must_use]
    pub fn mean_ns(&self) -> stats::Interval {
        self.mean.interval()
    }

    /// The series of intervals that are over.
    #[must_use]
    pub fn series(&self) -> &[Interval] {
        &self.series
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}
