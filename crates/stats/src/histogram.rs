//! The distribution of integers (nanoseconds, bytes), in bounded memory.
//!
//! HdrHistogram: buckets of equal *relative* width, so the 99.9th percentile is as exact as the
//! median, whatever the range. Two significant digits would do for a plot; three are kept so that
//! a quantile can be compared with a closed form.

use hdrhistogram::Histogram as Hdr;

/// Counts of values, exact to 0.1 %. Some 25 KB for latencies up to a second, growing by 8 KB
/// with every doubling of the greatest value.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Hdr<u64>,
}

/// Values from `low` to `high`, both included, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bar {
    /// The least value that counts here.
    pub low: u64,
    /// The greatest.
    pub high: u64,
    /// How many.
    pub count: u64,
}

/// Decimal digits that are kept of a value.
const DIGITS: u8 = 3;

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: Hdr::new(DIGITS).expect("three digits are within 0 to 5"),
        }
    }
}

impl Histogram {
    /// Takes one value in.
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    /// Takes one value in, `count` times.
    pub fn add_many(&mut self, value: u64, count: u64) {
        self.counts
            .record_n(value, count)
            .expect("the histogram grows to any u64");
    }

    /// Takes in all values of `other`.
    pub fn merge(&mut self, other: &Self) {
        self.counts
            .add(&other.counts)
            .expect("the histogram grows to any u64");
    }

    /// Removes all values and keeps the memory.
    pub fn clear(&mut self) {
        self.counts.reset();
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.len()
    }

    /// The value that the share `at` (0 to 1) of all values does not exceed; 0 without values.
    #[must_use]
    pub fn quantile(&self, at: f64) -> u64 {
        self.counts.value_at_quantile(at)
    }

    /// The mean, exact to 0.1 %; 0 without values.
    #[must_use]
    pub fn mean(&self) -> f64 {
        self.counts.mean()
    }

    /// The least value, to 0.1 %; 0 without values.
    #[must_use]
    pub fn least(&self) -> u64 {
        self.counts.min()
    }

    /// The greatest value, to 0.1 %; 0 without values.
    #[must_use]
    pub fn greatest(&self) -> u64 {
        self.counts.max()
    }

    /// The counts in bars for a plot with a logarithmic axis: each power of two has `per_doubling` bars of equal width.
    /// Bars in the middle may be empty, the first and last are not.
    #[must_use]
    pub fn bars(&self, per_doubling: u32) -> Vec<Bar> {
        let mut bars: Vec<Bar> = Vec::new();
        for step in self.counts.iter_recorded() {
            let value = step.value_iterated_to();
            let (low, high) = bar_of(value, per_doubling.max(1));
            while let Some(last) = bars.last() {
                let next = last.high.saturating_add(1);
                if last.high >= value {
                    break;
                }
                let (low, high) = if next < low {
                    bar_of(next, per_doubling.max(1))
                } else {
                    (low, high)
                };
                bars.push(Bar {
                    low,
                    high,
                    count: 0,
                });
            }
            if bars.is_empty() {
                bars.push(Bar {
                    low,
                    high,
                    count: 0,
                });
            }
            let last = bars.last_mut().expect("one was made if there was none");
            last.count += step.count_at_value();
        }
        bars
    }
}

/// The bar of `value`, if each power of two is cut into `pieces` equal bars (fewer if the power is less than the
/// pieces).
fn bar_of(value: u64, pieces: u32) -> (u64, u64) {
    if value == 0 {
        return (0, 0);
    }
    let base = 1u64 << value.ilog2();
    let width = (base / u64::from(pieces)).max(1);
    let low = base + (value - base) / width * width;
    let top = base - 1 + base;
    (low, low.saturating_add(width - 1).min(top))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn quantiles_are_within_a_thousandth() {
        let mut histogram = Histogram::default();
        (1..=1_000_000u64).for_each(|value| histogram.add(value * 1_000));
        for (at, expected) in [(0.5, 5e8), (0.99, 9.9e8), (0.999, 9.99e8), (1.0, 1e9)] {
            let found = histogram.quantile(at);
            #[expect(clippy::cast_precision_loss, reason = "compared to 0.1 %")]
            let error = (found as f64 / expected - 1.0).abs();
            assert!(error <= 1e-3, "{at}: {found}");
        }
        assert_eq!(histogram.count(), 1_000_000);
    }

    #[test]
    fn any_value_fits() {
        let mut histogram = Histogram::default();
        histogram.add(0);
        histogram.add(u64::MAX);
        assert_eq!(histogram.count(), 2);
        assert_eq!(
            histogram.bars(4).len() as u64,
            2 + bars_between(1, u64::MAX - 1, 4)
        );
    }

    fn bars_between(first: u64, last: u64, pieces: u32) -> u64 {
        let mut at = first;
        let mut bars = 0;
        while at < last {
            let (_, high) = bar_of(at, pieces);
            if high >= last {
                break;
            }
            bars += 1;
            at = high + 1;
        }
        bars
    }

    proptest! {
        #[test]
        fn bars_touch_and_hold_every_value(
            values in prop::collection::vec(0u64..5_000_000_000, 1..50),
            pieces in 1u32..9,
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            let bars = histogram.bars(pieces);
            let total: u64 = bars.iter().map(|bar| bar.count).sum();
            prop_assert_eq!(total, values.len() as u64);
            prop_assert!(bars.windows(2).all(|pair| pair[0].high + 1 == pair[1].low));
            prop_assert!(bars.first().is_some_and(|bar| bar.count > 0));
            prop_assert!(bars.last().is_some_and(|bar| bar.count > 0));
        }
    }
}
