//! Work under way, as administrators see it: how much, how fast, which drive is the limit, and when it ends.
//!
//! ```text
//!   what is left on each drive:  waiting cells × (reads, spread over the drives that could be read; the write)
//!   the end:                     what is left on the busiest drive ÷ its rate of late, or what is left of all cells ÷
//!                                their rate of late, whichever is later
//! ```
//!
//! While fills make way for clients, each lane goes at its own pace, and a lane with more cells than others ends later:
//! then what is left of the lane's cells counts as well.
//!
//! The rate of late, not the mean since the beginning: clients come and go, and so do priorities. The samples are as far
//! apart as the work is old, so the first minute counts as well as the tenth hour. They reach back at least four seconds:
//! cells end in bursts, many in a second at first and none in the next.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use block::{BLOCK_BYTES, Instant, Seat};
use plan::priority;

use super::Pool;
use super::fill::kind::{self, PartOf};

/// Samples of the rate. They reach back a half of the work's time so far, at least and at most so much each.
const SAMPLES: usize = 32;
const SPACING_MIN: Duration = Duration::from_millis(125);
const SPACING_MAX: Duration = Duration::from_secs(4);

/// Waiting cells that are looked at for what is left on each drive: an even part of more.
const CELLS: usize = 1024;

/// How far the end may be from the likely one: shares of the time until then, and seconds, because the last cells wait
/// for one drive, and then for a checkpoint.
const LEAST: (f64, f64) = (0.6, 0.5);
/// The last cells wait for their checkpoint.
const LAST_SECONDS: f64 = 0.3;
const MOST: (f64, f64) = (1.5, 1.0);

/// The least, the likely and the most.
fn around(likely: f64) -> [f64; 3] {
    let least = (likely * LEAST.0 - LEAST.1).max(0.0);
    [least, likely, likely * MOST.0 + MOST.1]
}

/// Work under way.
#[derive(Clone, Debug, PartialEq)]
pub struct Work {
    /// `rebuild`, `copy_back`, `replace`, `scrub` or `elastic`.
    pub kind: &'static str,
    /// The name of the priority that is in force for what goes on now.
    pub priority: &'static str,
    /// It is paused.
    pub paused: bool,
    /// Bytes done.
    pub done_bytes: u64,
    /// Bytes in all.
    pub total_bytes: u64,
    /// The rate of late.
    pub bytes_per_second: f64,
    /// Seconds until it ends: the least, the likely, the most. `None`: not known, or not before it is resumed.
    pub eta_seconds: Option<[f64; 3]>,
    /// The drive with the most left to do.
    pub bottleneck: Option<Seat>,
    /// Bytes read for it.
    pub read_bytes: u64,
    /// Of these, bytes compared with their checksums.
    pub verified_bytes: u64,
    /// Blocks that were reconstructed and written again.
    pub repaired_blocks: u64,
    /// Groups that cannot lose another column.
    pub groups_without_redundancy: u64,
}

/// What was moved at a time.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: Instant,
    /// Of cells.
    bytes: u64,
    /// On each drive.
    seats: BTreeMap<Seat, u64>,
    /// By each lane.
    lanes: BTreeMap<u16, u64>,
}

/// Bytes per second of late.
#[derive(Clone, Debug)]
struct Rates {
    cells: f64,
    seats: BTreeMap<Seat, f64>,
    lanes: BTreeMap<u16, f64>,
}

/// What fills have moved of late.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent {
    began: Option<Instant>,
    now: Sample,
    samples: VecDeque<Sample>,
}

impl Recent {
    /// What was moved before does not count: the work begins, or goes on in another way.
    pub(super) fn restart(&mut self) {
        *self = Self::default();
    }

    /// A lane has moved bytes of a cell from and to these drives.
    pub(super) fn stepped(
        &mut self,
        now: Instant,
        lane: u16,
        seats: impl Iterator<Item = Seat>,
        bytes: u64,
    ) {
        let began = *self.began.get_or_insert(now);
        let spacing = now.since(began) / (2 * u32::try_from(SAMPLES).unwrap_or(1));
        let spacing = spacing.clamp(SPACING_MIN, SPACING_MAX);
        let due = |last: &Sample| now.since(last.at) >= spacing;
        if self.samples.back().is_none_or(due) {
            self.now.at = now;
            self.samples.push_back(self.now.clone());
            if self.samples.len() > SAMPLES {
                self.samples.pop_front();
            }
        }
        self.now.at = now;
        self.now.bytes += bytes;
        *self.now.lanes.entry(lane).or_default() += bytes;
        for seat in seats {
            *self.now.seats.entry(seat).or_default() += bytes;
        }
    }

    /// `None` if that is not known yet.
    fn rates(&self, now: Instant) -> Option<Rates> {
        let first = self.samples.front()?;
        let span = self.now.at.since(first.at);
        // If nothing has moved for longer than that is usual, the time since then counts, too.
        let quiet = now.since(self.now.at);
        let usual = span / u32::try_from(self.samples.len()).unwrap_or(1).max(1) * 4;
        let span = (span + quiet.saturating_sub(usual)).as_secs_f64();
        if self.now.bytes == first.bytes || span <= 0.0 {
            return None;
        }
        Some(Rates {
            cells: as_f64(self.now.bytes - first.bytes) / span,
            seats: per_second(&self.now.seats, &first.seats, span),
            lanes: per_second(&self.now.lanes, &first.lanes, span),
        })
    }
}

/// Rates since earlier counts.
fn per_second<K: Copy + Ord>(
    now: &BTreeMap<K, u64>,
    before: &BTreeMap<K, u64>,
    span: f64,
) -> BTreeMap<K, f64> {
    let rate = |(key, bytes): (&K, &u64)| {
        let earlier = before.get(key).copied().unwrap_or(0);
        (*key, as_f64(bytes - earlier) / span)
    };
    now.iter().map(rate).collect()
}

/// The longest time that one of several has left, each at its rate. One that has had little to do of late is not slow
/// for that: none counts as slower than this share of the way from the mean to the fastest.
fn last_of<K: Copy + Ord>(
    left: &BTreeMap<K, f64>,
    rates: &BTreeMap<K, f64>,
    to_fastest: f64,
) -> f64 {
    let mean = rates.values().sum::<f64>() / as_f64(rates.len().max(1) as u64);
    let fastest = rates.values().copied().fold(0.0, f64::max);
    let floor = mean + (fastest - mean) * to_fastest;
    let seconds = left.iter().map(|(key, left)| {
        let rate = rates.get(key).copied().unwrap_or(0.0).max(floor);
        if rate > 0.0 { left / rate } else { 0.0 }
    });
    seconds.fold(0.0, f64::max)
}

impl Pool {
    /// The work under way: fills, the scrub, and conversions of stripes.
    #[must_use]
    pub fn work(&self, now: Instant) -> Vec<Work> {
        let without = self.groups_without_redundancy();
        let fills = self.fill_work(now, without);
        fills
            .into_iter()
            .chain(self.scrub_work(now, without))
            .chain(self.elastic_work(now, without))
            .collect()
    }

    /// Bytes of data in stripes that become parity, or copies. How many become so as far as there is space is not known
    /// before: then there is no end either.
    fn elastic_work(&self, now: Instant, without: u64) -> Option<Work> {
        let progress = self.conversion_progress()?;
        let stripe_bytes = self.cx.geometry.stripe_data_bytes();
        let done_bytes = progress.done * stripe_bytes;
        let left_bytes = progress.left * stripe_bytes;
        let seconds = now.since(progress.began).as_secs_f64();
        let bytes_per_second = match seconds > 0.0 {
            true => as_f64(done_bytes) / seconds,
            false => 0.0,
        };
        let likely = (progress.is_certain && bytes_per_second > 0.0)
            .then(|| as_f64(left_bytes) / bytes_per_second);
        Some(Work {
            kind: "elastic",
            priority: priority::of(&self.cx.facts.steer).name(),
            paused: false,
            done_bytes,
            total_bytes: done_bytes + left_bytes,
            bytes_per_second,
            eta_seconds: likely.map(around),
            bottleneck: None,
            // What they read is compared with its checksums, and not counted here.
            read_bytes: 0,
            verified_bytes: 0,
            repaired_blocks: 0,
            groups_without_redundancy: without,
        })
    }

    fn fill_work(&self, now: Instant, without: u64) -> Option<Work> {
        let kind = self.fills.kind()?.policy();
        let progress = self.progress();
        let steer = &self.cx.facts.steer;
        let done_bytes = self.rebuilt_bytes();
        let total_bytes = progress.cells_total * progress.cell_bytes;
        let left_bytes = total_bytes.saturating_sub(done_bytes);
        let left = self.left_on_drives();
        let rates = self.fills.recent.rates(now).filter(|_| !steer.paused);
        let bottleneck = { left.iter() }.max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
        let likely = rates.as_ref().map(|rates| {
            let all = as_f64(left_bytes) / rates.cells;
            let drives = last_of(&left, &rates.seats, 0.0);
            let lanes = match self.clients.any_ask() {
                true => last_of(&self.left_of_lanes(), &rates.lanes, 0.75),
                false => 0.0,
            };
            let bound = steer
                .rate_bytes
                .map_or(0.0, |rate| as_f64(left_bytes) / as_f64(rate));
            all.max(drives).max(lanes).max(bound) + LAST_SECONDS
        });
        Some(Work {
            kind: match kind.part_of(&self.cx.facts) {
                PartOf::Growth if progress.expands => "expand",
                _ => kind.name(),
            },
            priority: if kind.is_urgent() && without > 0 {
                priority::urgent().name()
            } else {
                priority::of(steer).name()
            },
            paused: steer.paused,
            done_bytes,
            total_bytes,
            bytes_per_second: rates.as_ref().map_or(0.0, |rates| rates.cells),
            eta_seconds: likely.map(around),
            bottleneck: bottleneck.map(|(seat, _)| *seat),
            read_bytes: progress.read_bytes,
            verified_bytes: progress.verified_bytes,
            repaired_blocks: progress.repaired_blocks,
            groups_without_redundancy: without,
        })
    }

    /// Bytes that are left to read and write on each drive.
    fn left_on_drives(&self) -> BTreeMap<Seat, f64> {
        let cell_bytes = self.cx.geometry.plane_bytes();
        let mut left = self.fills.left_in_flight(cell_bytes);
        let waiting = self.fills.waiting_len();
        let stride = waiting.div_ceil(CELLS).max(1);
        let part = as_f64(cell_bytes) * as_f64(stride as u64);
        for (group, column) in self.fills.waiting_keys().step_by(stride) {
            let Some(target) = kind::target(&self.cx.placement, (group, column)) else {
                continue;
            };
            *left.entry(target.seat).or_default() += part;
            let (needed, readable) = self.cx.fill_readable((group, column));
            let share = as_f64(needed as u64) / as_f64(readable.len().max(1) as u64);
            for seat in readable {
                *left.entry(seat).or_default() += part * share;
            }
        }
        left
    }

    /// Bytes of cells that are left to each lane.
    fn left_of_lanes(&self) -> BTreeMap<u16, f64> {
        let cell_bytes = as_f64(self.cx.geometry.plane_bytes());
        let mut left: BTreeMap<u16, f64> = BTreeMap::new();
        for (group, _) in self.fills.waiting_keys() {
            *left.entry(self.cx.geometry.lane_of(group)).or_default() += cell_bytes;
        }
        for (group, stepped) in self.fills.stepped_groups() {
            let bytes = (cell_bytes - as_f64(stepped)).max(0.0);
            *left.entry(self.cx.geometry.lane_of(group)).or_default() += bytes;
        }
        left
    }

    fn scrub_work(&self, now: Instant, without: u64) -> Option<Work> {
        let paused = self.is_scrub_paused();
        if !self.is_scrubbing() && !paused {
            return None;
        }
        let progress = self.scrub_progress();
        let layout = self.cx.geometry.layout();
        let group_bytes = self.cx.geometry.plane_bytes() * u64::from(layout.columns());
        let (from, groups_before, blocks_before) = progress.rate_from;
        let seconds = now.since(from).as_secs_f64();
        let groups = progress.groups_done.saturating_sub(groups_before);
        let blocks = progress.blocks.saturating_sub(blocks_before);
        let left = progress.groups_total.saturating_sub(progress.groups_done);
        let likely = (!paused && groups > 0).then(|| as_f64(left) * seconds / as_f64(groups));
        Some(Work {
            kind: "scrub",
            priority: priority::of(&self.cx.facts.steer).name(),
            paused,
            done_bytes: progress.groups_done * group_bytes,
            total_bytes: progress.groups_total * group_bytes,
            bytes_per_second: match !paused && seconds > 0.0 {
                true => as_f64(blocks * BLOCK_BYTES) / seconds,
                false => 0.0,
            },
            eta_seconds: likely.map(around),
            // All drives of a group are read alike.
            bottleneck: None,
            read_bytes: progress.blocks * BLOCK_BYTES,
            verified_bytes: progress.blocks * BLOCK_BYTES,
            repaired_blocks: progress.mended,
            groups_without_redundancy: without,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "estimates")]
const fn as_f64(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_late_and_falls_while_nothing_moves() {
        let mut recent = Recent::default();
        assert!(recent.rates(Instant(0)).is_none());
        let seats = [Seat(1), Seat(2)];
        let mut now = Instant(0);
        // A second at 100 MB/s, then ten at 10 MB/s.
        for step in 0..1100_u64 {
            now += Duration::from_millis(10);
            let bytes = if step < 100 { 1_000_000 } else { 100_000 };
            recent.stepped(now, 0, seats.into_iter(), bytes);
        }
        let rates = recent.rates(now).unwrap();
        assert!((9.0e6..11.0e6).contains(&rates.cells), "{rates:?}");
        assert!((rates.seats[&Seat(2)] - rates.cells).abs() < 1.0);
        let later = recent.rates(now + Duration::from_secs(20)).unwrap();
        assert!(later.cells < rates.cells / 2.0, "{later:?}");
        recent.restart();
        assert!(recent.rates(now).is_none());
    }
}
