//! How many elements an operation accesses, by disk.
//!
//! An operation is ⟨S, L, T⟩: L consecutive data elements from element S on, T times. Past the last
//! data element it continues in the next stripe, on the same disks, with other parities.
//!
//! ```text
//!   read    one access per data element
//!   write   one access per data element, and one per distinct parity element that changes
//! ```
//!
//! Parities are taken as sums of data: a diagonal parity of RDP that changes only because a row
//! parity changes is counted. The paper does not count the reads that a write needs beforehand. A
//! real read-modify-write reads every element that it writes, and so makes each access twice.
//!
//! S is uniform over the data elements and L over 1 to 20, so the expectation over both is a finite
//! sum: [`Loads::expected`] is exact, [`Loads::sampled`] is one run in the paper's way.

use erasure::Code;
use rand::{Rng, RngExt};
use stats::to_f64;

use super::LENGTH_MAX;

/// Tuples of a run.
const TUPLES: u32 = 2000;
/// T is uniform over 1 to this.
const TIMES_MAX: u32 = 1000;

/// A mix of reads and writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mix {
    /// Name in ids.
    pub(super) id: &'static str,
    /// Name for readers.
    pub(super) name: &'static str,
    /// Number of reads in ten operations.
    pub(super) reads_of_ten: u32,
}

/// The paper's workloads.
pub(super) const MIXES: [Mix; 3] = [
    Mix {
        id: "read",
        name: "read-only",
        reads_of_ten: 10,
    },
    Mix {
        id: "7r3w",
        name: "7:3",
        reads_of_ten: 7,
    },
    Mix {
        id: "1r1w",
        name: "1:1",
        reads_of_ten: 5,
    },
];

/// What a write costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// One access per element written: the paper's count.
    Paper,
    /// Each element is read first: data and parities, old and new.
    ReadModify,
}

impl Write {
    const fn accesses(self) -> u32 {
        match self {
            Self::Paper => 1,
            Self::ReadModify => 2,
        }
    }
}

/// The accesses of every operation of a code, by disk.
pub(super) struct Loads {
    columns: usize,
    /// Data elements: the start positions of operations.
    starts: usize,
    /// By start, length − 1 and column.
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// The parts of an operation: (first data element, how many) in one stripe each.
pub(super) fn segments(
    start: usize,
    length: usize,
    elements: usize,
) -> impl Iterator<Item = (usize, usize)> {
    let (mut first, mut left) = (start, length);
    std::iter::from_fn(move || {
        if left == 0 {
            return None;
        }
        let part = (first, left.min(elements - first));
        (first, left) = (0, left - part.1);
        Some(part)
    })
}

impl Loads {
    pub(super) fn new(code: &Code) -> Self {
        let columns = usize::from(code.columns());
        let data: Vec<usize> = code.data_slots().collect();
        let starts = data.len();
        let mut reads = vec![0; starts * LENGTH_MAX * columns];
        let mut writes = reads.clone();
        let column = |slot: usize| usize::from(code.element(slot).column);
        let mut operations = reads
            .chunks_exact_mut(columns)
            .zip(writes.chunks_exact_mut(columns));
        for start in 0..starts {
            for length in 1..=LENGTH_MAX {
                let (read, written) = operations.next().expect("a place for every operation");
                for (first, count) in segments(start, length, starts) {
                    let changed = &data[first..first + count];
                    for &slot in changed {
                        read[column(slot)] += 1;
                        written[column(slot)] += 1;
                    }
                    for slot in parities(code, changed) {
                        written[column(slot)] += 1;
                    }
                }
            }
        }
        Self {
            columns,
            starts,
            reads,
            writes,
        }
    }

    /// Mean accesses of an operation, by disk: the exact expectation.
    pub(super) fn expected(&self, mix: Mix, write: Write) -> Vec<f64> {
        let sum = |table: &[u32]| {
            let mut sums = vec![0_u64; self.columns];
            for operation in table.chunks_exact(self.columns) {
                for (sum, &accesses) in sums.iter_mut().zip(operation) {
                    *sum += u64::from(accesses);
                }
            }
            sums
        };
        let reads = f64::from(mix.reads_of_ten) / 10.0;
        let writes = (1.0 - reads) * f64::from(write.accesses());
        let operations = to_f64((self.starts * LENGTH_MAX) as u64);
        let both = sum(&self.reads).into_iter().zip(sum(&self.writes));
        both.map(|(read, written)| (reads * to_f64(read) + writes * to_f64(written)) / operations)
            .collect()
    }

    /// The accesses of one run of 2000 tuples, by disk.
    pub(super) fn sampled(&self, mix: Mix, write: Write, random: &mut impl Rng) -> Vec<u64> {
        let mut loads = vec![0; self.columns];
        let reads = TUPLES * mix.reads_of_ten / 10;
        let operations = u32::try_from(self.starts * LENGTH_MAX).expect("stripes are small");
        for tuple in 0..TUPLES {
            let operation = random.random_range(0..operations) as usize;
            let times = u64::from(random.random_range(1..=TIMES_MAX));
            let (table, weight) = match tuple < reads {
                true => (&self.reads, times),
                false => (&self.writes, times * u64::from(write.accesses())),
            };
            let accesses = &table[operation * self.columns..][..self.columns];
            for (load, &count) in loads.iter_mut().zip(accesses) {
                *load += weight * u64::from(count);
            }
        }
        loads
    }
}

/// The parities that a write of these data elements changes, each once: as [`Code::update`],
/// without its schedule.
fn parities(code: &Code, changed: &[usize]) -> std::collections::BTreeSet<usize> {
    let each = changed.iter().flat_map(|&slot| code.parities_of(slot));
    each.copied().collect()
}

/// The paper's load balancing factor (its equation 8): greatest ÷ least.
pub(super) fn balance(loads: &[f64]) -> f64 {
    let greatest = loads.iter().copied().fold(0.0, f64::max);
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    greatest / least
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;
    use rand::SeedableRng;

    #[test]
    fn an_operation_is_cut_at_stripe_ends() {
        let parts = |start, length| segments(start, length, 8).collect::<Vec<_>>();
        assert_eq!(parts(6, 1), [(6, 1)]);
        assert_eq!(parts(6, 2), [(6, 2)]);
        assert_eq!(parts(6, 12), [(6, 2), (0, 8), (0, 2)]);
    }

    #[test]
    fn parities_of_a_write_are_those_that_the_code_updates() {
        for (tested, prime) in cases() {
            let code = tested.code(prime);
            let data: Vec<usize> = code.data_slots().collect();
            for (first, count) in [(0, 1), (1, 3), (0, data.len().min(7)), (data.len() / 2, 2)] {
                let Some(changed) = data.get(first..first + count) else {
                    continue;
                };
                let mut updated = code.update(changed).parities;
                updated.sort_unstable();
                let counted: Vec<usize> = parities(&code, changed).into_iter().collect();
                assert_eq!(counted, updated, "{} {prime}", tested.name);
            }
        }
    }

    #[test]
    fn a_write_of_hdp_changes_three_parities_and_one_of_dcode_two() {
        for (name, parities) in [("hdp", 3.0), ("dcode", 2.0), ("xcode", 2.0)] {
            let loads = Loads::new(&erasure::by_parameter(name, 7).unwrap());
            let ones = loads.writes.chunks_exact(loads.columns).step_by(LENGTH_MAX);
            let total: u32 = ones.flatten().sum();
            assert_eq!(
                f64::from(total) / to_f64(loads.starts as u64),
                1.0 + parities,
                "{name}"
            );
        }
    }

    #[test]
    fn runs_scatter_around_the_expectation() {
        let loads = Loads::new(&erasure::by_parameter("hcode", 7).unwrap());
        let mut random = rand_chacha::ChaCha8Rng::seed_from_u64(4);
        for write in [Write::Paper, Write::ReadModify] {
            let expected: f64 = loads.expected(MIXES[1], write).iter().sum();
            let mean: stats::Moments = (0..200)
                .map(|_| {
                    to_f64(
                        loads
                            .sampled(MIXES[1], write, &mut random)
                            .iter()
                            .sum::<u64>(),
                    )
                })
                .map(|accesses| accesses / (f64::from(TUPLES) * f64::from(1 + TIMES_MAX) / 2.0))
                .collect();
            let interval = stats::Interval::of(&mean);
            assert!(
                (interval.mean - expected).abs() < 2.0 * interval.half_width,
                "{interval}, {expected}"
            );
        }
    }
}
