//! Batch means: an interval for samples that depend on their predecessors.
//!
//! A request that waits long is followed by others that wait long. Treated as independent, such samples give an
//! interval that is many times too narrow. Means of long batches are nearly independent, so their spread is a valid
//! measure (A. Law, "Simulation Modeling and Analysis", 9.5.3). The right length is not known beforehand: when twice
//! the required number of batches is full, neighbours are merged and the length doubles. Thus memory is bounded, and
//! the batches are as long as the run allows.

use crate::interval::Interval;
use crate::moments::Moments;
use crate::number::to_f64;

/// Collects samples in batches.
///
/// The caller must leave out samples from before the system has settled (empty queues, a cold cache).
#[derive(Clone, Debug)]
pub struct BatchMeans {
    /// Means of the full batches.
    full: Vec<f64>,
    /// Sum and count of the batch that is filling.
    open: (f64, u64),
    /// Samples of a batch.
    length: u64,
    /// The number of batches after a merge; at most twice as many are kept.
    batches: usize,
}

impl Default for BatchMeans {
    /// At least 30 batches: fewer widen Student's t, more do not make the interval more certain (Schmeiser 1982).
    fn default() -> Self {
        Self::new(30)
    }
}

impl BatchMeans {
    /// Keeps `batches` to `2 × batches` batches, of one sample each at first.
    ///
    /// # Panics
    ///
    /// When `batches` is less than 2.
    #[must_use]
    pub fn new(batches: usize) -> Self {
        assert!(batches >= 2, "one batch has no spread");
        Self {
            full: Vec::with_capacity(2 * batches),
            open: (0.0, 0),
            length: 1,
            batches,
        }
    }

    /// Takes one sample in.
    pub fn add(&mut self, sample: f64) {
        self.open = (self.open.0 + sample, self.open.1 + 1);
        if self.open.1 < self.length {
            return;
        }
        self.full.push(self.open.0 / to_f64(self.open.1));
        self.open = (0.0, 0);
        if self.full.len() == 2 * self.batches {
            let halves = self.full.chunks_exact(2);
            self.full = halves.map(|pair| f64::midpoint(pair[0], pair[1])).collect();
            self.length *= 2;
        }
    }

    /// Samples of one batch at present.
    #[must_use]
    pub const fn batch_length(&self) -> u64 {
        self.length
    }

    /// The interval of the mean, from the full batches.
    #[must_use]
    pub fn interval(&self) -> Interval {
        Interval::of(&self.means())
    }

    /// The correlation of neighbouring batches, −1 to 1. If it is well above 0, batches are too short and
    /// [`interval`](Self::interval) is too narrow: run longer. 0 with fewer than three batches.
    #[must_use]
    pub fn correlation(&self) -> f64 {
        let means = self.means();
        if means.count() < 3 || means.variance() == 0.0 {
            return 0.0;
        }
        let products = self.full.windows(2).map(|pair| {
            let deviation = |value: f64| value - means.mean();
            deviation(pair[0]) * deviation(pair[1])
        });
        products.sum::<f64>() / (means.variance() * to_f64(means.count() - 1))
    }

    fn means(&self) -> Moments {
        self.full.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{Rng, RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Waits of an M/M/1 queue at a load of 0.8, by Lindley's recurrence; service takes 1 on
    /// average, so the mean wait is 0.8 / (1 − 0.8) = 4.
    fn waits(random: &mut impl Rng) -> impl Iterator<Item = f64> {
        let mut wait = 0.0f64;
        std::iter::repeat_with(move || {
            let mut exponential = |mean: f64| -mean * libm::log(1.0 - random.random::<f64>());
            wait = (wait + exponential(1.0) - exponential(1.0 / 0.8)).max(0.0);
            wait
        })
    }

    #[test]
    fn dependent_samples_get_an_honest_interval() {
        // Treated as independent, the 100,000 waits give an interval that is eight times too narrow: most such
        // intervals miss the mean.
        let (mut held, mut naive_held) = (0, 0);
        for seed in 0..100 {
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut batches = BatchMeans::default();
            let mut naive = Moments::default();
            for wait in waits(&mut random).skip(10_000).take(100_000) {
                batches.add(wait);
                naive.add(wait);
            }
            held += u32::from(batches.interval().contains(4.0));
            naive_held += u32::from(Interval::of(&naive).contains(4.0));
        }
        assert!((88..=100).contains(&held), "{held}");
        assert!(naive_held < 40, "{naive_held}");
    }

    #[test]
    fn batches_that_are_too_short_are_correlated() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut short = BatchMeans::default();
        waits(&mut random)
            .take(200)
            .for_each(|wait| short.add(wait));
        assert!(short.correlation() > 0.5, "{}", short.correlation());
        let mut long = BatchMeans::default();
        waits(&mut random)
            .take(400_000)
            .for_each(|wait| long.add(wait));
        assert!(long.correlation().abs() < 0.4, "{}", long.correlation());
    }

    #[test]
    fn batches_double_and_the_mean_is_that_of_the_full_ones() {
        let mut batches = BatchMeans::new(2);
        (0..9).for_each(|sample| batches.add(f64::from(sample)));
        assert_eq!(batches.batch_length(), 4);
        // 0 to 3 and 4 to 7 are full; 8 waits.
        assert_eq!(batches.interval().mean, 3.5);
        assert_eq!(batches.interval().samples, 2);
    }
}
