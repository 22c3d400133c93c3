//! Mean and variance in one pass.
//!
//! Welford's recurrence (Technometrics 4, 1962), and the pairwise form of Chan, Golub and LeVeque (1979) for merging.
//! Neither needs a sum of squares, whose leading digits would cancel.

use crate::number::to_f64;

/// Count, mean, variance, least and greatest of the samples so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Moments {
    count: u64,
    mean: f64,
    /// Sum of squared deviations from the mean.
    squares: f64,
    range: Option<(f64, f64)>,
}

impl Moments {
    /// Takes one sample in.
    pub fn add(&mut self, sample: f64) {
        self.count += 1;
        let deviation = sample - self.mean;
        self.mean += deviation / to_f64(self.count);
        self.squares += deviation * (sample - self.mean);
        self.range = Some(match self.range {
            None => (sample, sample),
            Some((least, greatest)) => (least.min(sample), greatest.max(sample)),
        });
    }

    /// Takes in all samples of `other`.
    pub fn merge(&mut self, other: &Self) {
        let (Some(mine), Some(theirs)) = (self.range, other.range) else {
            if self.count == 0 {
                *self = *other;
            }
            return;
        };
        let total = to_f64(self.count + other.count);
        let deviation = other.mean - self.mean;
        self.squares += other.squares
            + deviation * deviation * to_f64(self.count) * to_f64(other.count) / total;
        self.mean += deviation * to_f64(other.count) / total;
        self.count += other.count;
        self.range = Some((mine.0.min(theirs.0), mine.1.max(theirs.1)));
    }

    /// How many samples there are.
    #[must_use]
    pub const fn count(&self) -> u64 {
        self.count
    }

    /// Their mean; 0 without samples.
    #[must_use]
    pub const fn mean(&self) -> f64 {
        self.mean
    }

    /// The unbiased estimate of the variance (division by n − 1); 0 with fewer than two samples.
    #[must_use]
    pub fn variance(&self) -> f64 {
        match self.count {
            0 | 1 => 0.0,
            n => self.squares / to_f64(n - 1),
        }
    }

    /// The square root of [`variance`](Self::variance).
    #[must_use]
    pub fn deviation(&self) -> f64 {
        self.variance().sqrt()
    }

    /// The least and the greatest sample; none without samples.
    #[must_use]
    pub const fn range(&self) -> Option<(f64, f64)> {
        self.range
    }
}

impl FromIterator<f64> for Moments {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        let mut moments = Self::default();
        samples.into_iter().for_each(|sample| moments.add(sample));
        moments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_large_offset_does_not_swallow_the_variance() {
        // A sum of squares minus the square of the sum gives 0 or less here.
        let moments: Moments = [1e9 + 4.0, 1e9 + 7.0, 1e9 + 13.0, 1e9 + 16.0]
            .into_iter()
            .collect();
        assert_eq!(moments.mean(), 1e9 + 10.0);
        assert_eq!(moments.variance(), 30.0);
        assert_eq!(moments.range(), Some((1e9 + 4.0, 1e9 + 16.0)));
    }

    #[test]
    fn without_samples_there_is_no_range() {
        let mut moments = Moments::default();
        moments.merge(&Moments::default());
        assert_eq!((moments.count(), moments.range()), (0, None));
    }

    proptest! {
        #[test]
        fn merging_equals_adding(
            samples in prop::collection::vec(-1e6f64..1e6, 0..60),
            cut in 0usize..60,
        ) {
            let cut = cut.min(samples.len());
            let whole: Moments = samples.iter().copied().collect();
            let mut merged: Moments = samples[..cut].iter().copied().collect();
            merged.merge(&samples[cut..].iter().copied().collect());
            prop_assert_eq!(merged.count(), whole.count());
            prop_assert_eq!(merged.range(), whole.range());
            prop_assert!((merged.mean() - whole.mean()).abs() <= 1e-6);
            prop_assert!((merged.variance() - whole.variance()).abs() <= 1e-6 * whole.variance().max(1.0));
        }
    }
}
