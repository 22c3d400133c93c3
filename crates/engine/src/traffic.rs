//! The traffic of drives and volumes, as a value that can be sent.

use serde::{Deserialize, Serialize};

use crate::drive::telemetry::{self, TelemetrySnapshot};

/// Counters since a drive or volume was opened, and its requests in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Reads.
    pub reads: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Flushes.
    #[serde(default)]
    pub flushes: u64,
    /// Discards, and writes of zeros.
    #[serde(default)]
    pub discards: u64,
    /// Bytes that they covered.
    #[serde(default)]
    pub discard_bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Requests that have not been answered.
    pub queue: u64,
    /// How long all reads and writes took together.
    pub nanoseconds: u64,
    /// Latencies of reads and writes, by bucket in ascending order: the bucket's upper bound in nanoseconds, and its
    /// count.
    pub latency: Vec<(u64, u64)>,
}

impl Traffic {
    pub(crate) fn new(seen: &TelemetrySnapshot) -> Self {
        let counts = seen.reads.latency.iter().zip(&seen.writes.latency);
        let counts = counts.map(|(reads, writes)| reads + writes).enumerate();
        Self {
            reads: seen.reads.requests,
            read_bytes: seen.reads.bytes,
            writes: seen.writes.requests,
            write_bytes: seen.writes.bytes,
            flushes: seen.flushes.requests,
            discards: seen.trims.requests,
            discard_bytes: seen.trims.bytes,
            errors: seen.errors(),
            queue: seen.in_flight,
            nanoseconds: seen.reads.nanoseconds + seen.writes.nanoseconds,
            latency: counts
                .filter(|(_, count)| *count > 0)
                .map(|(index, count)| (telemetry::bucket_end(index), count))
                .collect(),
        }
    }

    /// The traffic since `earlier`. Counters restart when a drive is opened again; then all of it counts.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let anew = self.reads < earlier.reads
            || self.writes < earlier.writes
            || self.flushes < earlier.flushes
            || self.discards < earlier.discards
            || self.nanoseconds < earlier.nanoseconds;
        if anew {
            return self.clone();
        }
        let before = |end: u64| {
            let found = earlier.latency.binary_search_by_key(&end, |(end, _)| *end);
            found.map_or(0, |at| earlier.latency[at].1)
        };
        let counts = self.latency.iter();
        Self {
            reads: self.reads - earlier.reads,
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes - earlier.writes,
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            flushes: self.flushes - earlier.flushes,
            discards: self.discards - earlier.discards,
            discard_bytes: self.discard_bytes.saturating_sub(earlier.discard_bytes),
            // Errors may have been cleared.
            errors: self
                .errors
                .checked_sub(earlier.errors)
                .unwrap_or(self.errors),
            queue: self.queue,
            nanoseconds: self.nanoseconds - earlier.nanoseconds,
            latency: counts
                .map(|&(end, count)| (end, count.saturating_sub(before(end))))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// How long a read or write took on average; `None` where there was none.
    #[must_use]
    pub fn mean_nanoseconds(&self) -> Option<u64> {
        self.nanoseconds.checked_div(self.reads + self.writes)
    }

    /// The 99th percentile of the latencies of reads and writes, to about a fifth; `None` where there was none.
    #[must_use]
    pub fn most_nanoseconds(&self) -> Option<u64> {
        let total: u64 = self.latency.iter().map(|(_, count)| count).sum();
        let wanted = (total * 99).div_ceil(100);
        let mut seen = 0;
        let enough = |(_, count): &&(u64, u64)| {
            seen += count;
            seen >= wanted
        };
        self.latency.iter().find(enough).map(|(end, _)| *end)
    }
}

/// Operations that lanes have asked of a drive for one purpose, since it took its seat. Failed operations count, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Operations {
    /// Reads.
    pub reads: u64,
    /// Bytes to read.
    pub read_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes to write.
    pub write_bytes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards, and writes of zeros.
    pub discards: u64,
    /// Bytes that they cover.
    pub discard_bytes: u64,
}

impl Operations {
    /// Adds the counts of `other`.
    pub const fn add(&mut self, other: &Self) {
        self.reads += other.reads;
        self.read_bytes += other.read_bytes;
        self.writes += other.writes;
        self.write_bytes += other.write_bytes;
        self.flushes += other.flushes;
        self.discards += other.discards;
        self.discard_bytes += other.discard_bytes;
    }

    /// The operations since `earlier`.
    fn since(&self, earlier: &Self) -> Self {
        Self {
            reads: self.reads.saturating_sub(earlier.reads),
            read_bytes: self.read_bytes.saturating_sub(earlier.read_bytes),
            writes: self.writes.saturating_sub(earlier.writes),
            write_bytes: self.write_bytes.saturating_sub(earlier.write_bytes),
            flushes: self.flushes.saturating_sub(earlier.flushes),
            discards: self.discards.saturating_sub(earlier.discards),
            discard_bytes: self.discard_bytes.saturating_sub(earlier.discard_bytes),
        }
    }

    /// Whether a counter is below its earlier value: counting has restarted.
    const fn is_below(&self, earlier: &Self) -> bool {
        self.reads < earlier.reads
            || self.writes < earlier.writes
            || self.flushes < earlier.flushes
            || self.discards < earlier.discards
    }
}

/// Operations asked of a drive, by purpose. Writes of labels and cell tables are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Purposes {
    /// Clients' requests: their reads, and writes that go in place at once.
    pub clients: Operations,
    /// The log, and flushes.
    pub log: Operations,
    /// Putting in place what is logged; pages and anchors.
    pub checkpoint: Operations,
    /// Rebuilds, and making groups blank.
    pub rebuild: Operations,
    /// Scrubs, and repairs.
    pub scrub: Operations,
}

impl Purposes {
    /// The operations with the names of their purposes, as shown to people and programs.
    #[must_use]
    pub const fn named(&self) -> [(&'static str, &Operations); 5] {
        [
            ("clients", &self.clients),
            ("log", &self.log),
            ("checkpoint", &self.checkpoint),
            ("rebuild", &self.rebuild),
            ("scrub", &self.scrub),
        ]
    }

    /// Adds the counts of `other`.
    pub const fn add(&mut self, other: &Self) {
        self.clients.add(&other.clients);
        self.log.add(&other.log);
        self.checkpoint.add(&other.checkpoint);
        self.rebuild.add(&other.rebuild);
        self.scrub.add(&other.scrub);
    }

    /// The operations since `earlier`. Counters restart when a drive is opened again; then all of them count.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let pairs = self.named().into_iter().zip(earlier.named());
        let anew = { pairs }.any(|((_, now), (_, earlier))| now.is_below(earlier));
        if anew {
            return *self;
        }
        Self {
            clients: self.clients.since(&earlier.clients),
            log: self.log.since(&earlier.log),
            checkpoint: self.checkpoint.since(&earlier.checkpoint),
            rebuild: self.rebuild.since(&earlier.rebuild),
            scrub: self.scrub.since(&earlier.scrub),
        }
    }
}

/// The traffic of a pool's drives and volumes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolTraffic {
    /// By drive, in the order of their numbers.
    pub drives: Vec<DriveLine>,
    /// By volume.
    pub volumes: Vec<VolumeLine>,
}

/// The traffic of a drive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveLine {
    /// The drive's number.
    pub seat: u16,
    /// Its name.
    pub path: String,
    /// Its identity.
    pub drive: String,
    /// Its physical capacity, where the drive knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub physical_bytes: Option<u64>,
    /// How much of its physical capacity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    /// Its state, as in the pool's status.
    pub state: String,
    /// Its traffic.
    pub traffic: Traffic,
    /// Operations that the pool's lanes asked of the drive, by purpose.
    #[serde(default)]
    pub purposes: Purposes,
}

/// The traffic of a volume: its clients' requests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeLine {
    /// Its name.
    pub name: String,
    /// Its traffic.
    pub traffic: Traffic,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use block::RequestKind;

    use super::*;
    use crate::drive::telemetry::Telemetry;

    #[test]
    fn an_intervals_latencies_are_its_own() {
        let telemetry = Telemetry::new();
        let done = |kind, micros: u64| {
            telemetry.begin();
            telemetry.end(kind, 4096, Duration::from_micros(micros), Ok(()));
        };
        for _ in 0..100 {
            done(RequestKind::Read, 5_000);
        }
        let earlier = Traffic::new(&telemetry.snapshot());
        assert_eq!(earlier.mean_nanoseconds(), Some(5_000_000));
        for index in 0..100 {
            done(RequestKind::Write, if index < 99 { 100 } else { 5_000 });
        }
        telemetry.begin();
        let now = Traffic::new(&telemetry.snapshot());
        let since = now.since(&earlier);
        assert_eq!((since.reads, since.writes, since.queue), (0, 100, 1));
        assert_eq!(since.write_bytes, 409_600);
        assert_eq!(since.mean_nanoseconds(), Some(149_000));
        let most = since.most_nanoseconds().unwrap();
        assert!((100_000..=125_000).contains(&most), "{most}");
        assert!(now.most_nanoseconds().unwrap() >= 5_000_000);
        // A drive that was opened again begins at zero.
        assert_eq!(earlier.since(&now), earlier);
        done(RequestKind::Flush, 10);
        done(RequestKind::Trim, 10);
        done(RequestKind::WriteZeroes, 10);
        let emptied = Traffic::new(&telemetry.snapshot()).since(&now);
        assert_eq!((emptied.flushes, emptied.discards), (1, 2));
        assert_eq!(emptied.discard_bytes, 8192);
        let nothing = now.since(&now);
        assert_eq!(nothing.mean_nanoseconds(), None);
        assert_eq!(nothing.most_nanoseconds(), None);
    }

    #[test]
    fn an_intervals_purposes_are_its_own() {
        let asked = |reads, flushes| {
            let mut all = Purposes::default();
            all.clients.reads = reads;
            all.log.flushes = flushes;
            all
        };
        assert_eq!(asked(7, 3).since(&asked(2, 3)), asked(5, 0));
        // A drive that was opened again begins at zero.
        assert_eq!(asked(7, 1).since(&asked(2, 3)), asked(7, 1));
        let mut sum = asked(1, 2);
        sum.add(&asked(3, 4));
        assert_eq!(sum, asked(4, 6));
    }
}
