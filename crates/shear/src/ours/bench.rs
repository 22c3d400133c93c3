//! Bursts, and the statistics of their times.

use std::collections::{BTreeMap, BTreeSet};

use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stats::Moments;

use super::End;
use super::pattern::Pattern;
use crate::Options;
use crate::desk::Desk;
use crate::probe::{Kind, Probe, Request, Sample, Stop};

/// Requests and chunks begin and end at multiples of this, in bytes.
pub(super) const BLOCK: u64 = 4096;
/// Size of the regions for which reads from a memory are recorded, in bytes.
const REGION: u64 = 64 << 10;
/// Reads behind a queue. The earliest of them counts: the more reads there are, the sooner a stride that leaves the
/// drive at a part of all places is detected.
pub(super) const BEHIND: usize = 3;
/// Bursts that are repeated elsewhere because a memory answered a part of them, before the run gives up the volume.
const TRIES: u32 = 64;
/// After this many of them in a row, the memory is filled with other blocks.
const TRIES_FLUSH: u32 = 12;
/// Blocks that fill it: 4 MiB, and 64 MiB after some times; and requests of a burst of this filling.
const FLUSH_MIN: usize = 1024;
const FLUSH_MAX: usize = 16384;
const FLUSH_BURST: usize = 128;

/// Logarithms of burst times of one kind.
///
/// If drives always take the same time, the only variation is waiting for something else, which makes bursts later and
/// never earlier: then the faster quarter represents all bursts.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    moments: Moments,
    values: Vec<f64>,
    constant: bool,
}

impl Level {
    pub(super) fn add(&mut self, log_time: f64) {
        self.moments.add(log_time);
        self.values.push(log_time);
    }

    pub(super) fn extend(&mut self, log_times: impl IntoIterator<Item = f64>) {
        for log_time in log_times {
            self.add(log_time);
        }
    }

    /// The values that were added.
    pub(super) fn values(&self) -> impl Iterator<Item = f64> {
        self.values.iter().copied()
    }

    /// A quarter of the bursts took less.
    pub(super) fn lower_quartile(&self) -> f64 {
        self.lower(4)
    }

    /// Three quarters of the bursts took less.
    pub(super) fn upper_quartile(&self) -> f64 {
        self.at(3 * self.values.len() / 4)
    }

    /// One of `parts` bursts took less.
    pub(super) fn lower(&self, parts: usize) -> f64 {
        self.at(self.values.len() / parts)
    }

    /// The value that `below` of the values are below.
    fn at(&self, below: usize) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(below).copied().unwrap_or(f64::NEG_INFINITY)
    }

    pub(super) fn mean(&self) -> f64 {
        match self.constant && !self.values.is_empty() {
            true => self.lower_quartile(),
            false => self.moments.mean(),
        }
    }

    pub(super) fn count(&self) -> u64 {
        self.moments.count()
    }

    /// Standard deviation of one burst, at least 4 %: the noise of clocks and caches.
    pub(super) fn deviation(&self) -> f64 {
        if self.constant && !self.values.is_empty() {
            // One burst of many may be early for another reason: that is not the noise of the others.
            return (self.lower_quartile() - self.lower(12)).max(0.04);
        }
        let sd = self.moments.variance().max(0.0).sqrt();
        if sd.is_finite() { sd.max(0.04) } else { 0.3 }
    }

    /// Standard error of the mean.
    pub(super) fn error(&self) -> f64 {
        self.error_of(0.0)
    }

    /// The same if one burst has at least this standard deviation.
    pub(super) fn error_of(&self, deviation: f64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few bursts")]
        let count = self.count().max(1) as f64;
        self.deviation().max(deviation) / count.sqrt()
    }
}

/// The most that one burst counts against a hypothesis, as a logarithm of likelihoods.
const BURST_MAX: f64 = 6.0;
/// The same for early and for late bursts, if waiting makes bursts late and never early. Guesses.
const EARLY_MAX: f64 = 8.0;
const LATE_MAX: f64 = 3.0;

/// Makes bursts on a volume.
pub(super) struct Bench {
    pub(super) desk: Desk,
    rng: ChaCha8Rng,
    size: u64,
    /// Whether a drive takes the same time for every read.
    pub(super) constant: bool,
    /// If drives answer in the order of the requests, the logarithm of the seconds of one read: then bursts are queues
    /// (see `order`).
    pub(super) in_order: Option<f64>,
    /// Reads that are answered in less time come from a memory. In seconds.
    pub(super) memory_seconds: f64,
    /// Regions from which a memory answered a read. They are avoided, because nearby blocks were written or read with
    /// it.
    remembered: BTreeSet<u64>,
    /// Blocks to read if a memory holds too many of the requested blocks.
    flush_blocks: usize,
    /// Levels of bursts at a place of the pattern alone, by its residue and the requests of a burst.
    pub(super) alone: BTreeMap<(u64, usize), Level>,
    /// Places whose level was no lower when it was measured again.
    pub(super) settled: BTreeSet<u64>,
}

/// Reads whose time counts, behind others.
struct Burst {
    requests: Vec<Request>,
    /// Requests before those that count; 0 if the time of all requests counts.
    front: usize,
}

impl From<Vec<Request>> for Burst {
    fn from(requests: Vec<Request>) -> Self {
        Self { requests, front: 0 }
    }
}

/// A place in the pattern: requests go to it in randomly chosen repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Spot {
    /// Bytes from the begin of the pattern.
    pub(super) residue: u64,
    /// Requests.
    pub(super) requests: usize,
}

impl Bench {
    pub(super) fn new(options: &Options, desk: Desk) -> Self {
        Self {
            desk,
            rng: ChaCha8Rng::seed_from_u64(options.seed),
            size: options.size_bytes / BLOCK * BLOCK,
            constant: false,
            in_order: None,
            memory_seconds: 0.0,
            remembered: BTreeSet::new(),
            flush_blocks: FLUSH_MIN,
            alone: BTreeMap::new(),
            settled: BTreeSet::new(),
        }
    }

    /// Forgets the levels of places, after the pattern has changed.
    pub(super) fn forget_places(&mut self) {
        self.alone.clear();
        self.settled.clear();
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
    }

    /// A level without bursts.
    pub(super) fn level(&self) -> Level {
        Level {
            constant: self.constant,
            ..Level::default()
        }
    }

    /// A test between levels.
    pub(super) fn test(&self, levels: Vec<f64>, deviation: f64, error: f64) -> Sequential {
        let test = Sequential::new(levels, deviation, error);
        match self.constant {
            true => Sequential {
                early_max: EARLY_MAX,
                late_max: LATE_MAX,
                ..test
            },
            false => test,
        }
    }

    /// A number below `end`, which is at least 1.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.rng.random_range(0..end.max(1))
    }

    /// `count` different numbers below `end`, in random order; `count <= end`.
    pub(super) fn different(&mut self, count: usize, end: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = Vec::with_capacity(count);
        if end <= 4 * count as u64 {
            // Dense: shuffle all of them.
            let mut all: Vec<u64> = (0..end).collect();
            for at in (1..all.len()).rev() {
                let with = self.rng.random_range(0..=at);
                all.swap(at, with);
            }
            all.truncate(count);
            return all;
        }
        let mut chosen = BTreeSet::new();
        while numbers.len() < count {
            let number = self.rng.random_range(0..end);
            if chosen.insert(number) {
                numbers.push(number);
            }
        }
        numbers
    }

    fn read(offset: u64) -> Request {
        Request {
            offset,
            length: BLOCK,
            kind: Kind::Read,
        }
    }

    /// Carries out a burst. Returns the logarithm of its seconds.
    pub(super) async fn time(&mut self, requests: Vec<Request>) -> Result<f64, Stop> {
        let sample = self.desk.ask(Probe { requests }).await?;
        Ok(log_seconds(sample.makespan()))
    }

    /// Carries out a burst. Returns the logarithm of the seconds of its last request.
    pub(super) async fn time_of_last(&mut self, requests: Vec<Request>) -> Result<f64, Stop> {
        let sample = self.desk.ask(Probe { requests }).await?;
        Ok(log_seconds(sample.nanoseconds.last().copied().unwrap_or(0)))
    }

    /// Carries out bursts of reads until a memory answers none of a burst's reads. Returns the logarithm of the seconds
    /// of that burst. A read that uses no drive would make the others look like reads of several drives.
    async fn of_drives(&mut self, mut choose: impl FnMut(&mut Self) -> Burst) -> Result<f64, End> {
        for tries in 1..=TRIES {
            let Burst { requests, front } = choose(self);
            let offsets: Vec<u64> = requests.iter().map(|request| request.offset).collect();
            let sample = self.desk.ask(Probe { requests }).await?;
            if self.note_memory(&offsets, &sample) {
                if tries % TRIES_FLUSH == 0 {
                    self.flush().await?;
                }
                continue;
            }
            let behind = sample.nanoseconds[front..].iter().min();
            return Ok(log_seconds(match (front, behind) {
                (1.., Some(&behind)) => behind,
                _ if self.constant => time_of_drives(&sample),
                _ => sample.makespan(),
            }));
        }
        Err(End::CannotTell(
            "many reads are answered by no drive: a cache holds a part of the volume, or it was never written"
                .to_owned(),
        ))
    }

    /// Reads so many other blocks that a memory of recent reads holds nothing else. Each call reads twice as many.
    async fn flush(&mut self) -> Result<(), Stop> {
        let end = self.size / BLOCK;
        let mut left = self.flush_blocks;
        self.flush_blocks = (2 * left).min(FLUSH_MAX);
        while left > 0 {
            let count = left.min(FLUSH_BURST);
            let offsets = self.different(count, end).into_iter();
            let requests = offsets.map(|block| Self::read(block * BLOCK)).collect();
            self.desk.ask(Probe { requests }).await?;
            left -= count;
        }
        self.remembered.clear();
        Ok(())
    }

    /// Whether a memory answered any of the reads; records the regions of these reads.
    fn note_memory(&mut self, offsets: &[u64], sample: &Sample) -> bool {
        let answers = offsets.iter().zip(&sample.nanoseconds);
        let remembered: Vec<u64> = answers
            .filter(|&(_, &time)| log_seconds(time) < self.memory_seconds.ln())
            .map(|(offset, _)| offset / REGION)
            .collect();
        let any = !remembered.is_empty();
        self.remembered.extend(remembered);
        any
    }

    /// `requests` reads anywhere.
    pub(super) async fn anywhere(&mut self, requests: usize) -> Result<f64, End> {
        self.of_drives(|bench| {
            if bench.in_order.is_some() {
                let offsets = bench.blocks(1 + BEHIND);
                return bench.queue(offsets, requests);
            }
            let reads = bench.blocks(requests).into_iter().map(Self::read);
            reads.collect::<Vec<_>>().into()
        })
        .await
    }

    /// A queue: the first of these blocks is read so many times, then each of the others once.
    fn queue(&self, offsets: Vec<u64>, front: usize) -> Burst {
        let mut offsets = offsets.into_iter().map(Self::read);
        let first = offsets.next();
        let requests = first.into_iter().cycle().take(front).chain(offsets);
        Burst {
            requests: requests.collect(),
            front,
        }
    }

    /// A queue at a place of the pattern, and `BEHIND` reads of another behind it.
    fn queue_at(&mut self, pattern: u64, front: Spot, residue: u64) -> Burst {
        let mut spots = vec![Spot {
            residue,
            requests: BEHIND,
        }];
        match front.residue == residue {
            true => spots[0].requests += 1,
            false => spots.push(Spot {
                requests: 1,
                ..front
            }),
        }
        let at = |bench: &mut Self, spot| bench.at(pattern, &[spot], Kind::Read);
        let requests = spots.into_iter().rev().flat_map(|spot| at(self, spot));
        let offsets = requests.map(|request| request.offset).collect();
        self.queue(offsets, front.requests)
    }

    /// A queue of `front` reads of a block anywhere, and `behind` reads of other blocks. Returns the seconds until the
    /// last read of the queue was answered, and those of each of the others. `None` if a memory answers any.
    pub(super) async fn behind(
        &mut self,
        front: usize,
        behind: usize,
    ) -> Result<Option<(f64, Vec<f64>)>, Stop> {
        let offsets = self.blocks(1 + behind);
        let Burst { requests, .. } = self.queue(offsets, front);
        let sample = self.desk.ask(Probe { requests }).await?;
        let seconds = |&nanoseconds: &u64| log_seconds(nanoseconds).exp();
        let times: Vec<f64> = sample.nanoseconds.iter().map(seconds).collect();
        let asked = times.iter().all(|&time| time >= self.memory_seconds);
        let (front, behind) = times.split_at(front);
        let last = front.iter().copied().fold(0.0, f64::max);
        Ok(asked.then(|| (last, behind.to_vec())))
    }

    /// `requests` reads of one block, then as many of another. Returns the logarithm of the seconds until the last of
    /// the latter.
    pub(super) async fn queues(
        &mut self,
        pattern: u64,
        residues: [u64; 2],
        requests: usize,
    ) -> Result<f64, End> {
        let spots = residues.map(|residue| Spot {
            residue,
            requests: 1,
        });
        let blocks = spots.map(|spot| self.at(pattern, &[spot], Kind::Read));
        let reads = blocks.iter().flat_map(|block| {
            let block = block.iter().copied();
            block.cycle().take(requests)
        });
        let requests = reads.collect();
        let sample = self.desk.ask(Probe { requests }).await?;
        Ok(log_seconds(sample.makespan()))
    }

    /// `requests` reads of each of `blocks` blocks anywhere; `None` if a memory answers at once. Answers of a drive
    /// from its own recent reads count here.
    pub(super) async fn blocks_often(
        &mut self,
        blocks: usize,
        requests: usize,
    ) -> Result<Option<f64>, Stop> {
        let offsets = self.blocks(blocks);
        let reads = offsets.into_iter().cycle().take(blocks * requests);
        let requests = reads.map(Self::read).collect();
        let sample = self.desk.ask(Probe { requests }).await?;
        let earliest = sample.nanoseconds.iter().copied().min().unwrap_or(0);
        let asked = log_seconds(earliest) >= self.memory_seconds.ln();
        Ok(asked.then(|| log_seconds(sample.makespan())))
    }

    /// Offsets of `count` different blocks anywhere.
    pub(super) fn blocks(&mut self, count: usize) -> Vec<u64> {
        let end = self.size / BLOCK;
        let mut offsets = self.different(self.with_spare(count, end), end);
        for block in &mut offsets {
            *block *= BLOCK;
        }
        self.forgotten_first(&mut offsets);
        offsets.truncate(count);
        offsets
    }

    /// How many of `end` places to choose for `count` reads: more where some may be in a memory.
    fn with_spare(&self, count: usize, end: u64) -> usize {
        match self.remembered.is_empty() {
            true => count,
            false => (2 * count).min(usize::try_from(end).unwrap_or(usize::MAX)),
        }
    }

    /// Sorts places from which a memory answered no read to the front.
    fn forgotten_first(&self, offsets: &mut [u64]) {
        if !self.remembered.is_empty() {
            offsets.sort_by_key(|offset| self.remembered.contains(&(offset / REGION)));
        }
    }

    /// Repetitions of a stride that fit into the volume.
    pub(super) const fn repetitions(&self, stride: u64) -> u64 {
        self.size / stride
    }

    /// `requests` reads at one place, anywhere, of different repetitions of `stride`.
    pub(super) async fn stride(&mut self, stride: u64, requests: usize) -> Result<f64, End> {
        self.of_drives(|bench| {
            let residue = bench.below(stride / BLOCK) * BLOCK;
            bench.burst(stride, &[Spot { residue, requests }])
        })
        .await
    }

    /// Reads at one or two places of the pattern.
    fn burst(&mut self, pattern: u64, spots: &[Spot]) -> Burst {
        if self.in_order.is_none() {
            return self.at(pattern, spots, Kind::Read).into();
        }
        let mut ends = [spots[0].residue, spots[spots.len() - 1].residue];
        if self.below(2) == 0 {
            ends.reverse();
        }
        let requests = spots.iter().map(|spot| spot.requests).sum();
        let front = Spot {
            residue: ends[0],
            requests,
        };
        self.queue_at(pattern, front, ends[1])
    }

    /// Requests to places of the pattern, mixed.
    pub(super) fn at(&mut self, pattern: u64, spots: &[Spot], kind: Kind) -> Vec<Request> {
        let mut requests = Vec::new();
        for spot in spots {
            let repetitions = self.repetitions(pattern);
            let end = repetitions.max(spot.requests as u64);
            let mut offsets = self.different(self.with_spare(spot.requests, end), end);
            for repetition in &mut offsets {
                *repetition = (*repetition % repetitions) * pattern + spot.residue;
            }
            self.forgotten_first(&mut offsets);
            offsets.truncate(spot.requests);
            requests.extend(offsets.into_iter().map(|offset| Request {
                kind,
                ..Self::read(offset)
            }));
        }
        self.shuffle(&mut requests);
        requests
    }

    /// Shuffles requests.
    pub(super) fn shuffle(&mut self, requests: &mut [Request]) {
        for at in (1..requests.len()).rev() {
            let with = self.rng.random_range(0..=at);
            requests.swap(at, with);
        }
    }

    /// Reads at places of the pattern.
    pub(super) async fn spots(&mut self, pattern: u64, spots: &[Spot]) -> Result<f64, End> {
        self.of_drives(|bench| bench.burst(pattern, spots)).await
    }

    /// A block within `span` bytes from a place of the pattern.
    pub(super) fn within(&mut self, residue: u64, span: u64, pattern: &Pattern) -> u64 {
        (residue + self.below(span / BLOCK) * BLOCK) % pattern.bytes
    }
}

/// How long a burst keeps drives busy that always take the same time, in nanoseconds.
///
/// Such drives answer at a constant rate. A wait for something else delays some answers and makes none earlier, so the
/// answer that is farthest ahead of the others shows the rate of the drives. Answers of the first half of a burst are
/// not used: the requests of one drive may come first.
///
/// ```text
///   answers   ▪ ▪ ▪ ▪ ▪ ▪ ▪ ▪          makespan 8
///   a wait    ▪ ▪ ▪ ▪ ▪ ▪    ▪▪        makespan 9, by the sixth answer 8
/// ```
fn time_of_drives(sample: &Sample) -> u64 {
    let mut ends = sample.nanoseconds.clone();
    ends.sort_unstable();
    let count = ends.len() as u64;
    let at_that_rate = (1..)
        .zip(&ends)
        .map(|(answered, &end)| end * count / answered);
    let later = at_that_rate.skip(ends.len().saturating_sub(1) / 2);
    later.min().unwrap_or(0).max(1)
}

fn log_seconds(nanoseconds: u64) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "a time")]
    let seconds = nanoseconds.max(1) as f64 / 1e9;
    seconds.ln()
}

/// A sequential test between levels: Wald's, with Gaussian noise of a known deviation.
///
/// Each burst adds −(x − μ)²/2σ² to each hypothesis. A burst that fits none is cut off at three deviations, so that one
/// late answer, for example because of foreign load, does not decide. If drives always take the same time, an early
/// burst counts more and a late burst less.
#[derive(Clone, Debug)]
pub(super) struct Sequential {
    /// The most that a burst that is earlier than a hypothesis takes from it; and a burst that is later.
    early_max: f64,
    late_max: f64,
    levels: Vec<f64>,
    deviation: f64,
    likelihoods: Vec<f64>,
    error: f64,
    bursts: u32,
}

impl Sequential {
    pub(super) fn new(levels: Vec<f64>, deviation: f64, error: f64) -> Self {
        Self {
            early_max: BURST_MAX,
            late_max: BURST_MAX,
            likelihoods: vec![0.0; levels.len()],
            levels,
            deviation,
            error,
            bursts: 0,
        }
    }

    /// Adds a burst's time. Returns the index of the level once the decision is sure.
    pub(super) fn add(&mut self, log_time: f64) -> Option<usize> {
        self.bursts += 1;
        for (likelihood, level) in self.likelihoods.iter_mut().zip(&self.levels) {
            let z = (log_time - level) / self.deviation;
            let most = if z < 0.0 {
                self.early_max
            } else {
                self.late_max
            };
            *likelihood -= (z * z / 2.0).min(most);
        }
        let best = self.best();
        let lead = (0..self.levels.len())
            .filter(|&other| other != best)
            .map(|other| self.likelihoods[best] - self.likelihoods[other])
            .fold(f64::INFINITY, f64::min);
        (self.bursts >= 2 && lead >= (1.0 / self.error).ln()).then_some(best)
    }

    /// Whether the level of this index is surely wrong.
    pub(super) fn excludes(&self, level: usize) -> bool {
        let lead = self.likelihoods[self.best()] - self.likelihoods[level];
        self.bursts >= 2 && lead >= (1.0 / self.error).ln()
    }

    /// The likeliest level by now.
    pub(super) fn best(&self) -> usize {
        let best = (0..self.levels.len())
            .max_by(|&a, &b| self.likelihoods[a].total_cmp(&self.likelihoods[b]));
        best.unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_at_the_end_of_a_burst_does_not_count() {
        let times = |ends: &[u64]| Sample {
            nanoseconds: ends.iter().map(|end| end * 1_000_000).collect(),
        };
        // One drive, in any order; then two drives; each with a host that pauses towards the end.
        let one = times(&[2, 4, 8, 6, 10, 12, 27, 27]);
        assert_eq!(time_of_drives(&one), 16_000_000);
        let two = times(&[2, 2, 4, 4, 6, 6, 27, 27]);
        assert_eq!(time_of_drives(&two), 8_000_000);
        assert_eq!(time_of_drives(&times(&[3])), 3_000_000);
    }

    #[test]
    fn a_sequential_test_is_wrong_no_more_often_than_it_says() {
        // Gaussian noise by twelve uniform numbers; levels a ratio of two apart, noise of 25 %.
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let mut wrong = 0;
        let mut bursts = 0;
        for round in 0..4000 {
            let truth = round % 2;
            let mut test = Sequential::new(vec![0.0, -0.69], 0.25, 1e-2);
            loop {
                let noise: f64 = (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0;
                bursts += 1;
                if let Some(said) = test.add(-0.69 * f64::from(truth) + 0.25 * noise) {
                    wrong += i32::from(said != usize::try_from(truth).unwrap());
                    break;
                }
            }
        }
        assert!(wrong <= 40, "{wrong} of 4000 wrong, 1 % allowed");
        assert!(bursts < 4000 * 4, "{bursts} bursts");
    }
}
