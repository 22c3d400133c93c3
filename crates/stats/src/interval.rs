//! How certain a mean is.

use std::fmt;

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::moments::Moments;
use crate::number::to_f64;

/// A mean and its 95 % confidence interval: of a hundred such intervals, each from samples of its
/// own, about 95 contain the true mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval {
    /// The estimate.
    pub mean: f64,
    /// Half the width of the interval; infinite with fewer than two samples.
    pub half_width: f64,
    /// Independent samples (or batches) behind the estimate.
    pub samples: u64,
}

/// The share of such intervals that contain the true mean.
const CONFIDENCE: f64 = 0.95;

impl Interval {
    /// The interval of independent samples, by Student's t.
    ///
    /// Samples in a row of one simulation (waits in a queue, response times) are not independent:
    /// use [`BatchMeans`](crate::BatchMeans).
    #[must_use]
    pub fn of(samples: &Moments) -> Self {
        let n = samples.count();
        let half_width = match n {
            0 | 1 => f64::INFINITY,
            _ => student(n - 1) * (samples.variance() / to_f64(n)).sqrt(),
        };
        Self {
            mean: samples.mean(),
            half_width,
            samples: n,
        }
    }

    /// Whether `value` lies within the interval, ends included.
    #[must_use]
    pub fn contains(&self, value: f64) -> bool {
        (value - self.mean).abs() <= self.half_width
    }

    /// The lower and the upper end.
    #[must_use]
    pub fn ends(&self) -> (f64, f64) {
        (self.mean - self.half_width, self.mean + self.half_width)
    }

    /// Half-width ÷ mean: 0.02 is "within 2 %". Infinite around 0.
    #[must_use]
    pub fn relative(&self) -> f64 {
        if self.mean == 0.0 {
            return f64::INFINITY;
        }
        self.half_width / self.mean.abs()
    }

    /// This mean ÷ another, which must be independent of it: relative half-widths add as squares
    /// (first order: right while both are well below 1).
    #[must_use]
    pub fn quotient(&self, by: &Self) -> Self {
        let mean = self.mean / by.mean;
        Self {
            mean,
            half_width: mean.abs() * self.relative().hypot(by.relative()),
            samples: self.samples.min(by.samples),
        }
    }

    /// The same in another unit.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        Self {
            mean: self.mean * factor,
            half_width: self.half_width * factor.abs(),
            samples: self.samples,
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        write!(f, "{:.digits$} ± {:.digits$}", self.mean, self.half_width)
    }
}

/// The two-sided quantile of Student's t at `freedom` ≥ 1 degrees of freedom.
fn student(freedom: u64) -> f64 {
    StudentsT::new(0.0, 1.0, to_f64(freedom.max(1))).map_or(f64::INFINITY, |t| {
        t.inverse_cdf(f64::midpoint(CONFIDENCE, 1.0))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    #[test]
    fn students_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [(1, 12.706), (4, 2.776), (9, 2.262), (30, 2.042)] {
            assert!((student(freedom) - expected).abs() < 5e-4, "{freedom}");
        }
        assert!((student(100_000) - 1.959_96).abs() < 1e-4);
    }

    #[test]
    fn ninety_five_of_a_hundred_intervals_hold_the_true_mean() {
        // Ten uniform samples each; 10,000 intervals; the count is binomial with σ = 21.8.
        let mut random = ChaCha8Rng::seed_from_u64(19);
        let held = (0..10_000)
            .filter(|_| {
                let samples: Moments = (0..10).map(|_| random.random::<f64>()).collect();
                Interval::of(&samples).contains(0.5)
            })
            .count();
        assert!((9_410..=9_590).contains(&held), "{held}");
    }

    #[test]
    fn a_quotient_of_known_means_has_its_quotient() {
        let one = Interval {
            mean: 10.0,
            half_width: 0.3,
            samples: 20,
        };
        let two = Interval {
            mean: 4.0,
            half_width: 0.16,
            samples: 30,
        };
        let quotient = one.quotient(&two);
        assert_eq!((quotient.mean, quotient.samples), (2.5, 20));
        assert!((quotient.half_width - 2.5 * 0.05).abs() < 1e-12);
    }

    #[test]
    fn one_sample_says_nothing_about_the_mean() {
        let interval = Interval::of(&[3.0].into_iter().collect());
        assert_eq!(interval.half_width, f64::INFINITY);
        assert!(interval.contains(1e9));
        assert_eq!(
            format!(
                "{:.1}",
                Interval {
                    mean: 1.0,
                    half_width: 0.25,
                    samples: 9
                }
            ),
            "1.0 ± 0.2"
        );
    }
}
