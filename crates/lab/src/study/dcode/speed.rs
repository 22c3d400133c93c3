//! Read speed if disks work in parallel and each element takes its disk the same time.
//!
//! A read takes as long as its busiest disk: the greatest number of elements that one disk reads.
//! Speed is the sum of all lengths ÷ the sum of all times, in elements per element time of one
//! disk. In degraded mode one disk is lost, each disk that holds data with the same probability; an
//! element that is needed for several lost elements is read once.

use erasure::{Code, ElementSet, ReadPolicy};
use stats::to_f64;

use super::LENGTH_MAX;
use super::loads::segments;
use crate::study::Stopped;

/// How lost elements are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Policy {
    /// Each lost element by its horizontal equation, or by its first equation where a code has none
    /// (X-Code: the diagonal one). The paper measures this policy.
    Row,
    /// The fewest elements read in all.
    FewestReads,
    /// The fewest elements read from the busiest disk, then the fewest elements in all.
    SmallestMaximum,
}

/// All three, with their names in ids and in tables.
pub(super) const POLICIES: [(Policy, &str, &str); 3] = [
    (Policy::Row, "row", "horizontal equations"),
    (Policy::FewestReads, "fewest", "fewest reads"),
    (Policy::SmallestMaximum, "level", "least busy disk"),
];

/// The speed with all disks present, exact over all operations.
pub(super) fn normal(code: &Code) -> f64 {
    let (elements, time) = Counts::new(code, |wanted| wanted.to_vec()).total();
    to_f64(elements) / to_f64(time)
}

/// The speed with one disk lost, exact over all operations and disks. `check` runs between disks;
/// an error ends the computation.
pub(super) fn degraded(
    code: &Code,
    policy: Policy,
    check: impl Fn() -> Result<(), Stopped>,
) -> Result<f64, Stopped> {
    let (mut elements, mut time) = (0, 0);
    for column in data_columns(code) {
        check()?;
        let known = code.without_columns(&[column]);
        let read = |wanted: &[usize]| {
            if wanted.iter().all(|&slot| known.contains(slot)) {
                return wanted.to_vec();
            }
            let mut set = ElementSet::new(code.elements());
            for &slot in wanted {
                set.insert(slot);
            }
            let policy = match policy {
                Policy::Row => return by_rows(code, &known, wanted),
                Policy::FewestReads => ReadPolicy::FewestReads,
                Policy::SmallestMaximum => ReadPolicy::SmallestMaximum,
            };
            let plan = code.plan_read(&known, &set, policy);
            plan.expect("these codes survive the loss of one column")
                .reads
        };
        let (read, took) = Counts::new(code, read).total();
        elements += read;
        time += took;
    }
    Ok(to_f64(elements) / to_f64(time))
}

/// The reads for `wanted`: its known elements, and the other elements of one equation for each lost
/// element. Each element once.
///
/// This is [`ReadPolicy::FirstEquation`] except for HDP, whose horizontal equations come second:
/// they contain the parities of the others.
pub(super) fn by_rows(code: &Code, known: &ElementSet, wanted: &[usize]) -> Vec<usize> {
    let mut reads = ElementSet::new(code.elements());
    for &slot in wanted {
        if known.contains(slot) {
            reads.insert(slot);
            continue;
        }
        let element = code.element(slot);
        let mut of_element = code.equations().iter().filter(|equation| {
            equation
                .members
                .iter()
                .any(|&(member, _)| member == element)
        });
        let first = of_element.clone().next();
        let horizontal = of_element.find(|equation| equation.kind.starts_with("horizontal"));
        let equation = horizontal
            .or(first)
            .expect("every data element is in an equation");
        let members = equation.members.iter().map(|&(member, _)| member);
        for other in members
            .chain([equation.parity])
            .filter(|&other| other != element)
        {
            reads.insert(code.index(other));
        }
    }
    reads.iter().collect()
}

/// The columns that hold data: the paper counts only their failures.
fn data_columns(code: &Code) -> Vec<u16> {
    let mut columns: Vec<u16> = code.data().iter().map(|element| element.column).collect();
    columns.sort_unstable();
    columns.dedup();
    columns
}

/// The reads of each part of an operation from each disk.
struct Counts {
    columns: usize,
    elements: usize,
    /// By first element, length − 1 and column; parts end at the stripe's end.
    reads: Vec<u16>,
}

impl Counts {
    /// `read` returns the slots to read for some data slots.
    fn new(code: &Code, read: impl Fn(&[usize]) -> Vec<usize>) -> Self {
        let columns = usize::from(code.columns());
        let data: Vec<usize> = code.data_slots().collect();
        let mut reads = vec![0; data.len() * LENGTH_MAX * columns];
        for first in 0..data.len() {
            for length in 1..=LENGTH_MAX.min(data.len() - first) {
                let at = (first * LENGTH_MAX + length - 1) * columns;
                for slot in read(&data[first..first + length]) {
                    reads[at + usize::from(code.element(slot).column)] += 1;
                }
            }
        }
        Self {
            columns,
            elements: data.len(),
            reads,
        }
    }

    /// Elements wanted and time taken, over all operations.
    fn total(&self) -> (u64, u64) {
        let (mut wanted, mut time) = (0, 0);
        let mut disks = vec![0_u16; self.columns];
        for start in 0..self.elements {
            for length in 1..=LENGTH_MAX {
                disks.fill(0);
                for (first, count) in segments(start, length, self.elements) {
                    let at = (first * LENGTH_MAX + count - 1) * self.columns;
                    for (disk, reads) in disks.iter_mut().zip(&self.reads[at..]) {
                        *disk += reads;
                    }
                }
                wanted += length as u64;
                time += u64::from(disks.iter().copied().max().unwrap_or(0));
            }
        }
        (wanted, time)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cases;
    use super::*;

    #[test]
    fn a_read_takes_as_long_as_its_busiest_disk() {
        // RDP with p = 5 has four data disks and 16 data elements: a read of L from any start takes
        // the ceiling of L ÷ 4 at least, and exactly that when consecutive elements are on
        // different disks.
        let lengths: u32 = (1..=20).sum();
        let times: u32 = (1..=20_u32).map(|length| length.div_ceil(4)).sum();
        let speed = normal(&erasure::by_parameter("rdp", 5).unwrap());
        assert!((speed - f64::from(lengths) / f64::from(times)).abs() < 1e-12);
    }

    #[test]
    fn the_papers_policy_is_the_first_equation_except_for_hdp() {
        for (tested, prime) in cases().into_iter().filter(|(_, prime)| *prime <= 7) {
            let code = tested.code(prime);
            let data: Vec<usize> = code.data_slots().collect();
            let mut differs = 0;
            for column in data_columns(&code) {
                let known = code.without_columns(&[column]);
                for window in data.windows(4) {
                    let mut wanted = ElementSet::new(code.elements());
                    for &slot in window {
                        wanted.insert(slot);
                    }
                    let first = code
                        .plan_read(&known, &wanted, ReadPolicy::FirstEquation)
                        .unwrap();
                    let rows = by_rows(&code, &known, window);
                    assert!(
                        rows.iter().all(|&slot| known.contains(slot)),
                        "{}",
                        tested.name
                    );
                    differs += usize::from(first.reads != rows);
                }
            }
            assert_eq!(differs > 0, tested.name == "hdp", "{} {prime}", tested.name);
        }
    }

    #[test]
    fn no_policy_is_slower_than_the_papers_where_it_aims_at_speed() {
        for (tested, prime) in cases().into_iter().filter(|(_, prime)| *prime <= 7) {
            let code = tested.code(prime);
            let speed = |policy| degraded(&code, policy, || Ok(())).unwrap();
            let (row, level) = (speed(Policy::Row), speed(Policy::SmallestMaximum));
            assert!(
                level >= row - 1e-12,
                "{} {prime}: {level} < {row}",
                tested.name
            );
            assert!(level < normal(&code), "{} {prime}", tested.name);
        }
    }
}
