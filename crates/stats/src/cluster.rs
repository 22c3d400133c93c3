//! Clusters of numbers on a line.
//!
//! On a line a cluster is a run of neighbours, so the best k clusters are found exactly, by dynamic programming over
//! the sorted values, instead of by Lloyd's iterations, which depend on lucky starting points (H. Wang and M. Song,
//! "Ckmeans.1d.dp", The R Journal 3/2, 2011):
//!
//! ```text
//! best[k][i] = min over m of  best[k−1][m−1] + cost(m..=i)        cost: squared deviations
//! ```
//!
//! The best m never falls as i grows, so a row of the table is filled by halving, in n log n. (The one maintained crate
//! for this exports C symbols and brings bindings for browsers; the algorithm is shorter than that crate's build.)
//!
//! If the number of clusters is unknown, Pelleg and Moore's X-means (ICML 2000) splits clusters while the Bayesian
//! information criterion of their model (Gaussians of one common variance) rises. Their splitting searches for good
//! clusters of each k. Here the best clusters of each k are known. Therefore the k with the best criterion is taken,
//! and no better split is missed.

use libm::log;

use crate::number::to_f64;

/// Values in clusters, in ascending order.
#[derive(Clone, Debug, PartialEq)]
pub struct Clusters {
    parts: Vec<Part>,
}

/// One cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Part {
    least: f64,
    greatest: f64,
    mean: f64,
    size: u64,
    /// Sum of squared deviations from the mean.
    squares: f64,
}

impl Clusters {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// True if there is none: there were no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// Their means, ascending.
    pub fn means(&self) -> impl ExactSizeIterator<Item = f64> + '_ {
        self.parts.iter().map(|part| part.mean)
    }

    /// How many values each has.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = u64> + '_ {
        self.parts.iter().map(|part| part.size)
    }

    /// The least and the greatest value of each.
    pub fn ranges(&self) -> impl ExactSizeIterator<Item = (f64, f64)> + '_ {
        self.parts.iter().map(|part| (part.least, part.greatest))
    }

    /// The index of the cluster of `value`; the border of two clusters is in the middle of the gap between them. For
    /// the values that were clustered this is their own cluster.
    ///
    /// # Panics
    ///
    /// When there are no clusters.
    #[must_use]
    pub fn of(&self, value: f64) -> usize {
        assert!(!self.parts.is_empty(), "no values, no clusters");
        let gaps = self.parts.windows(2);
        let mut cuts = gaps.map(|pair| f64::midpoint(pair[0].greatest, pair[1].least));
        cuts.position(|cut| value < cut)
            .unwrap_or(self.parts.len() - 1)
    }

    /// The sum over all values of the squared deviation from their cluster's mean.
    #[must_use]
    pub fn squares(&self) -> f64 {
        self.parts.iter().map(|part| part.squares).sum()
    }
}

/// The `k` clusters with the least squared deviations; fewer if there are fewer distinct values.
///
/// # Panics
///
/// When `k` is 0 or a value is NaN.
#[must_use]
pub fn k_means(values: &[f64], k: usize) -> Clusters {
    assert!(k > 0, "values are in at least one cluster");
    let line = Line::new(values);
    Table::new(&line, k).clusters(&line, k)
}

/// Clusters whose number follows from the values, at most `most`.
///
/// `resolution` is the largest deviation without a meaning, such as a clock's tick. Values that differ by less are not
/// separated, however many there are (without noise the criterion would see a cluster in every distinct value). The
/// model is Gaussian noise: evenly spread noise is the limit at which one cluster and two halves of it fit equally
/// well. With fewer than some 20 values a cluster may be cut by chance.
///
/// # Panics
///
/// When `most` is 0, `resolution` is not above 0, or a value is NaN.
#[must_use]
pub fn x_means(values: &[f64], most: usize, resolution: f64) -> Clusters {
    assert!(most > 0, "values are in at least one cluster");
    assert!(resolution > 0.0, "a resolution is a width");
    let line = Line::new(values);
    let table = Table::new(&line, most);
    let candidates = (1..=most.min(line.values.len()).max(1)).map(|k| table.clusters(&line, k));
    candidates
        .map(|clusters| (criterion(&clusters, resolution), clusters))
        .reduce(|best, next| if next.0 > best.0 { next } else { best })
        .map(|(_, clusters)| clusters)
        .expect("one cluster is always a candidate")
}

/// Pelleg and Moore's Bayesian information criterion in one dimension: log-likelihood of k Gaussians
/// of one variance, less ln n / 2 for each of its 2k parameters (k means, k − 1 weights, one variance).
fn criterion(clusters: &Clusters, resolution: f64) -> f64 {
    let n = to_f64(clusters.sizes().sum());
    let k = clusters.len();
    let freedom = n - to_f64(k as u64);
    let squares = clusters.squares();
    let variance = (squares / freedom.max(1.0)).max(resolution * resolution);
    let weights: f64 = clusters
        .sizes()
        .map(|size| to_f64(size) * log(to_f64(size) / n))
        .sum();
    let likelihood =
        weights - n / 2.0 * log(2.0 * std::f64::consts::PI * variance) - squares / (2.0 * variance);
    likelihood - to_f64(k as u64) * log(n)
}

/// Distinct values in ascending order, with running sums: the cost of any run of them is a few
/// subtractions.
struct Line {
    values: Vec<f64>,
    /// For the samples before value i: their number, the sum of their offsets from `origin`, and the sum of the squares
    /// of these offsets.
    sums: Vec<(u64, f64, f64)>,
    /// The median: offsets from it are small, so few digits cancel.
    origin: f64,
}

impl Line {
    fn new(values: &[f64]) -> Self {
        assert!(
            values.iter().all(|value| !value.is_nan()),
            "no cluster holds NaN"
        );
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let origin = sorted.get(sorted.len() / 2).copied().unwrap_or_default();
        let mut distinct = Vec::new();
        let mut sums = vec![(0, 0.0, 0.0)];
        for same in sorted.chunk_by(|a, b| a == b) {
            let (samples, sum, squares) = sums[sums.len() - 1];
            let (size, offset) = (same.len() as u64, same[0] - origin);
            distinct.push(same[0]);
            sums.push((
                samples + size,
                sum + to_f64(size) * offset,
                squares + to_f64(size) * offset * offset,
            ));
        }
        Self {
            values: distinct,
            sums,
            origin,
        }
    }

    /// The cluster of the distinct values `first..=last`.
    fn part(&self, first: usize, last: usize) -> Part {
        let (before, after) = (self.sums[first], self.sums[last + 1]);
        let (size, sum) = (after.0 - before.0, after.1 - before.1);
        Part {
            least: self.values[first],
            greatest: self.values[last],
            mean: self.origin + sum / to_f64(size),
            size,
            squares: self.cost(first, last),
        }
    }

    fn cost(&self, first: usize, last: usize) -> f64 {
        let (before, after) = (self.sums[first], self.sums[last + 1]);
        let sum = after.1 - before.1;
        (after.2 - before.2 - sum * sum / to_f64(after.0 - before.0)).max(0.0)
    }
}

/// For each number of clusters and each last value: the start of the last cluster in the best arrangement.
struct Table {
    starts: Vec<Vec<usize>>,
}

impl Table {
    fn new(line: &Line, k: usize) -> Self {
        let n = line.values.len();
        let mut best: Vec<f64> = (0..n).map(|last| line.cost(0, last)).collect();
        let mut starts = vec![vec![0; n]];
        for clusters in 2..=k.min(n) {
            let mut row = Row {
                line,
                previous: &best,
                best: vec![f64::INFINITY; n],
                starts: vec![clusters - 1; n],
            };
            row.fill(clusters - 1..n, clusters - 1..n);
            let Row {
                best: next,
                starts: found,
                ..
            } = row;
            best = next;
            starts.push(found);
        }
        Self { starts }
    }

    fn clusters(&self, line: &Line, k: usize) -> Clusters {
        let mut parts = Vec::new();
        let mut end = line.values.len();
        for starts in self.starts.iter().take(k).rev() {
            let Some(last) = end.checked_sub(1) else {
                break;
            };
            parts.push(line.part(starts[last], last));
            end = starts[last];
        }
        parts.reverse();
        Clusters { parts }
    }
}

/// One more row of the table.
struct Row<'a> {
    line: &'a Line,
    /// The least cost of one cluster fewer, by last value.
    previous: &'a [f64],
    best: Vec<f64>,
    starts: Vec<usize>,
}

impl Row<'_> {
    /// Fills the entries `lasts`, whose last clusters start within `starts`.
    fn fill(&mut self, lasts: std::ops::Range<usize>, starts: std::ops::Range<usize>) {
        if lasts.is_empty() {
            return;
        }
        let last = usize::midpoint(lasts.start, lasts.end);
        for start in starts.start..starts.end.min(last + 1) {
            let cost = self.previous[start - 1] + self.line.cost(start, last);
            if cost < self.best[last] {
                self.best[last] = cost;
                self.starts[last] = start;
            }
        }
        let cut = self.starts[last];
        self.fill(lasts.start..last, starts.start..cut + 1);
        self.fill(last + 1..lasts.end, cut..starts.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// The least squared deviations of k runs of the sorted values, by trying every cut.
    fn exhaustive(sorted: &[f64], k: usize) -> f64 {
        let alone = |part: &[f64]| {
            let moments: crate::Moments = part.iter().copied().collect();
            moments.variance() * to_f64(moments.count().saturating_sub(1))
        };
        if k == 1 || sorted.len() <= 1 {
            return alone(sorted);
        }
        let cuts = 1..sorted.len();
        let halves = cuts.map(|cut| alone(&sorted[cut..]) + exhaustive(&sorted[..cut], k - 1));
        halves.fold(alone(sorted), f64::min)
    }

    proptest! {
        #[test]
        fn no_arrangement_is_better(
            values in prop::collection::vec((0i32..40).prop_map(f64::from), 1..12),
            k in 1usize..5,
        ) {
            let clusters = k_means(&values, k);
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            prop_assert!((clusters.squares() - exhaustive(&sorted, k)).abs() < 1e-6);
            prop_assert_eq!(clusters.sizes().sum::<u64>(), values.len() as u64);
            for value in values {
                let (least, greatest) = clusters.ranges().nth(clusters.of(value)).unwrap();
                prop_assert!((least..=greatest).contains(&value));
            }
        }
    }

    /// `each` samples around each centre, Gaussian with deviation `noise` (Box and Muller, 1958).
    fn around(centres: &[f64], noise: f64, each: usize, seed: u64) -> Vec<f64> {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let samples = centres.iter().flat_map(|&centre| {
            let random = &mut random;
            (0..each)
                .map(|_| {
                    let (radius, turn) = (random.random::<f64>(), random.random::<f64>());
                    let angle = 2.0 * std::f64::consts::PI * turn;
                    centre + noise * (-2.0 * log(1.0 - radius)).sqrt() * libm::cos(angle)
                })
                .collect::<Vec<_>>()
        });
        samples.collect()
    }

    #[test]
    fn x_means_finds_how_many_there_are() {
        for seed in 0..50 {
            for centres in [
                &[10.0][..],
                &[10.0, 12.0],
                &[10.0, 12.0, 20.0],
                &[1.0, 2.0, 3.0, 5.0, 9.0],
            ] {
                let values = around(centres, 0.12, 40, seed);
                let clusters = x_means(&values, 8, 0.01);
                assert_eq!(clusters.len(), centres.len(), "seed {seed}, {centres:?}");
                assert!(clusters.sizes().all(|size| size == 40));
                for (found, &centre) in clusters.means().zip(centres) {
                    assert!((found - centre).abs() < 0.2);
                }
            }
        }
    }

    #[test]
    fn a_small_slow_cluster_is_found() {
        // Three slow pairs among five hundred: one chunk of many is on the same drive.
        let mut values = around(&[5.0], 0.2, 500, 3);
        values.extend([9.8, 10.1, 10.0]);
        let clusters = x_means(&values, 4, 0.01);
        assert_eq!(clusters.sizes().collect::<Vec<_>>(), [500, 3]);
        assert_eq!(clusters.of(9.0), 1);
    }

    #[test]
    fn differences_below_the_resolution_are_none() {
        let values = [5.0, 5.0, 5.001, 5.001, 5.002, 5.002];
        assert_eq!(x_means(&values, 6, 0.01).len(), 1);
        assert_eq!(x_means(&[5.0; 9], 6, 0.01).len(), 1);
    }

    #[test]
    fn without_values_there_are_no_clusters() {
        assert!(k_means(&[], 3).is_empty());
        assert!(x_means(&[], 3, 1.0).is_empty());
    }

    #[test]
    fn a_hundred_thousand_values_take_no_square_of_it() {
        let values = around(&[1.0, 4.0, 9.0], 0.2, 33_000, 8);
        let clusters = k_means(&values, 3);
        assert!(clusters.sizes().all(|size| size == 33_000));
    }
}
