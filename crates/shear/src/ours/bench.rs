//! Bursts and what their times say.

use std::collections::BTreeMap;

use rand::{RngExt as _, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stats::Moments;

use super::pattern::Pattern;
use crate::Options;
use crate::desk::Desk;
use crate::probe::{Kind, Probe, Request, Stop};

/// Requests begin and end at multiples of this, in bytes, and chunks do.
pub(super) const BLOCK: u64 = 4096;

/// Logarithms of burst times of one kind.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    moments: Moments,
    values: Vec<f64>,
}

impl Level {
    pub(super) fn add(&mut self, log_time: f64) {
        self.moments.add(log_time);
        self.values.push(log_time);
    }

    /// A quarter of the bursts took less.
    pub(super) fn lower_quartile(&self) -> f64 {
        let mut sorted = self.values.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
            .get(sorted.len() / 4)
            .copied()
            .unwrap_or(f64::NEG_INFINITY)
    }

    pub(super) fn mean(&self) -> f64 {
        self.moments.mean()
    }

    pub(super) fn count(&self) -> u64 {
        self.moments.count()
    }

    /// Standard deviation of one burst, never taken for less than 4 %: clocks and caches have that.
    pub(super) fn deviation(&self) -> f64 {
        let sd = self.moments.variance().max(0.0).sqrt();
        if sd.is_finite() { sd.max(0.04) } else { 0.3 }
    }

    /// Standard error of the mean.
    pub(super) fn error(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a few bursts")]
        let count = self.count().max(1) as f64;
        self.deviation() / count.sqrt()
    }
}

/// Makes bursts on a volume.
pub(super) struct Bench {
    pub(super) desk: Desk,
    rng: ChaCha8Rng,
    size: u64,
    /// Mean level of bursts at a place of the pattern alone, by its residue.
    pub(super) alone: BTreeMap<u64, f64>,
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
            alone: BTreeMap::new(),
        }
    }

    pub(super) const fn size(&self) -> u64 {
        self.size
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
        while numbers.len() < count {
            let number = self.rng.random_range(0..end);
            if !numbers.contains(&number) {
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

    /// Carries out a burst: the logarithm of its seconds.
    pub(super) async fn time(&mut self, requests: Vec<Request>) -> Result<f64, Stop> {
        let sample = self.desk.ask(Probe { requests }).await?;
        #[expect(clippy::cast_precision_loss, reason = "a time")]
        let seconds = sample.makespan() as f64 / 1e9;
        Ok(seconds.ln())
    }

    /// `requests` reads anywhere.
    pub(super) async fn anywhere(&mut self, requests: usize) -> Result<f64, Stop> {
        let reads = self.blocks(requests).into_iter().map(Self::read);
        self.time(reads.collect()).await
    }

    /// Offsets of `count` different blocks anywhere.
    pub(super) fn blocks(&mut self, count: usize) -> Vec<u64> {
        let blocks = self.different(count, self.size / BLOCK);
        blocks.into_iter().map(|block| block * BLOCK).collect()
    }

    /// Repetitions of a stride that fit into the volume.
    pub(super) const fn repetitions(&self, stride: u64) -> u64 {
        self.size / stride
    }

    /// `requests` reads at one place, anywhere, of different repetitions of `stride`.
    pub(super) async fn stride(&mut self, stride: u64, requests: usize) -> Result<f64, Stop> {
        let residue = self.below(stride / BLOCK) * BLOCK;
        self.spots(stride, &[Spot { residue, requests }]).await
    }

    /// Requests to places of the pattern, mixed.
    pub(super) fn at(&mut self, pattern: u64, spots: &[Spot], kind: Kind) -> Vec<Request> {
        let mut requests = Vec::new();
        for spot in spots {
            let repetitions = self.repetitions(pattern);
            let chosen = self.different(spot.requests, repetitions.max(spot.requests as u64));
            requests.extend(chosen.into_iter().map(|repetition| Request {
                kind,
                ..Self::read((repetition % repetitions) * pattern + spot.residue)
            }));
        }
        for at in (1..requests.len()).rev() {
            let with = self.rng.random_range(0..=at);
            requests.swap(at, with);
        }
        requests
    }

    /// Reads at places of the pattern.
    pub(super) async fn spots(&mut self, pattern: u64, spots: &[Spot]) -> Result<f64, Stop> {
        let requests = self.at(pattern, spots, Kind::Read);
        self.time(requests).await
    }

    /// A block within `span` bytes from a place of the pattern.
    pub(super) fn within(&mut self, residue: u64, span: u64, pattern: &Pattern) -> u64 {
        (residue + self.below(span / BLOCK) * BLOCK) % pattern.bytes
    }
}

/// A sequential test between levels: Wald's, with Gaussian noise of a known deviation.
///
/// Each burst adds −(x − μ)²/2σ² to each hypothesis. A burst that fits none is cut off at three deviations, so that one
/// late answer, of a foreign load say, does not decide.
#[derive(Clone, Debug)]
pub(super) struct Sequential {
    levels: Vec<f64>,
    deviation: f64,
    likelihoods: Vec<f64>,
    error: f64,
    bursts: u32,
}

impl Sequential {
    pub(super) fn new(levels: Vec<f64>, deviation: f64, error: f64) -> Self {
        Self {
            likelihoods: vec![0.0; levels.len()],
            levels,
            deviation,
            error,
            bursts: 0,
        }
    }

    /// Takes a burst's time; the index of the level once it is sure.
    pub(super) fn add(&mut self, log_time: f64) -> Option<usize> {
        self.bursts += 1;
        for (likelihood, level) in self.likelihoods.iter_mut().zip(&self.levels) {
            let z = (log_time - level) / self.deviation;
            *likelihood -= (z * z).min(12.0) / 2.0;
        }
        let best = self.best();
        let lead = (0..self.levels.len())
            .filter(|&other| other != best)
            .map(|other| self.likelihoods[best] - self.likelihoods[other])
            .fold(f64::INFINITY, f64::min);
        (self.bursts >= 2 && lead >= (1.0 / self.error).ln()).then_some(best)
    }

    /// Whether it is surely not the level of this index.
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
