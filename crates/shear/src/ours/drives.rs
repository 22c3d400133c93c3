//! Which chunks of a pattern share drives.
//!
//! The first chunks are compared each with each. This meets every drive of a classic layout, and reveals a chunk whose
//! drive is missing: the chunk is read from all other drives, and so shares a drive with chunks that share none with
//! each other. Later chunks are compared with one representative of each drive, beginning with the one that the
//! remaining layouts predict.

use std::collections::BTreeMap;

use super::bench::{Bench, Level, Spot};
use super::chunk::{Chunks, Question, Relation, relation};
use super::class::{self, Candidate, Found};
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};

/// Chunks that are compared each with each.
const MATRIX_MAX: usize = 16;
/// Chunks of a pattern, at most: 40 drives of left-asymmetric RAID-5 have 1560.
const CHUNKS_MAX: usize = 2048;
/// Bursts on each drive, to find slow and fast drives; and the number of such rounds, at most, while a drive may be
/// odd.
const ODD_BURSTS: u32 = 36;
const ODD_ROUNDS: u32 = 8;
/// An odd drive's level is at least this far from the median, and at least this many errors. A disk that turns 1.5
/// times as fast takes an eighth less if seeks take most of the time.
const ODD: f64 = 0.08;
const ODD_ERRORS: f64 = 4.5;
/// A drive is like the others if its difference plus this many errors is less than this difference.
const ODD_EXPECTED: f64 = 0.12;
const LIKE_ERRORS: f64 = 2.0;

/// The map of a pattern.
#[derive(Clone, Debug, Default)]
pub(super) struct Map {
    /// For each chunk its class: chunks of one class are on the same drives. `None` for wild chunks.
    pub(super) class: Vec<Option<usize>>,
    /// The relations between classes that were observed, the lower class first.
    pub(super) between: BTreeMap<(usize, usize), Relation>,
    /// Chunks that share drives with chunks that share none.
    pub(super) wild: Vec<usize>,
    /// A chunk of each class.
    pub(super) representative: Vec<usize>,
    /// Layouts whose pattern has the same number of chunks.
    pub(super) candidates: Vec<Candidate>,
    /// Whether each chunk is known to be served by one drive.
    pub(super) single: bool,
}

impl Map {
    /// The number of chunks after which the same drives follow everywhere, if that is only a part of the assumed
    /// pattern.
    pub(super) fn period(&self) -> Option<usize> {
        let count = self.class.len();
        let mut shorter = (1..count).filter(|shorter| count.is_multiple_of(*shorter));
        shorter
            .find(|&shorter| (shorter..count).all(|at| self.class[at] == self.class[at - shorter]))
    }

    /// Number of classes.
    pub(super) fn classes(&self) -> usize {
        self.representative.len()
    }
}

pub(super) async fn map(bench: &mut Bench, pattern: &Pattern, chunks: &Chunks) -> Result<Map, End> {
    let count = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    if count > CHUNKS_MAX {
        return Err(End::CannotTell(format!(
            "the pattern has {count} chunks: more than are compared"
        )));
    }
    let first = count.min(MATRIX_MAX);
    let mut matrix = vec![vec![None; first]; first];
    for (a, b) in (0..first).flat_map(|a| (a + 1..first).map(move |b| (a, b))) {
        // Copies far apart on a drive put some times between levels: the other pairs are enough.
        let found = match compare(bench, pattern, chunks, a, b).await {
            Ok(found) => Some(found),
            Err(End::Unsure(_)) if pattern.copies != Some(1) => None,
            Err(end) => return Err(end),
        };
        (matrix[a][b], matrix[b][a]) = (found, found);
    }
    let mut map = Map {
        candidates: class::candidates(count, pattern.copies),
        single: pattern.copies == Some(1),
        ..of_matrix(&matrix)?
    };
    for chunk in first..count {
        place(bench, pattern, chunks, &mut map, chunk).await?;
    }
    Ok(map)
}

async fn compare(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    a: usize,
    b: usize,
) -> Result<Relation, End> {
    let place = |chunk: usize| chunks.phase + chunk as u64 * chunks.bytes;
    let (found, ratio) = relation(
        bench,
        pattern,
        place(a),
        place(b),
        chunks.bytes,
        Question::Exact,
    )
    .await?;
    let number = |chunk| u32::try_from(chunk).unwrap_or(u32::MAX);
    bench.desk.pair(number(a), number(b), ratio);
    Ok(found)
}

/// Classes of chunks that were compared each with each; an entry is `None` if the comparison had no result.
fn of_matrix(matrix: &[Vec<Option<Relation>>]) -> Result<Map, End> {
    let count = matrix.len();
    let same = |a: usize, b: usize| a != b && matrix[a][b] == Some(Relation::Same);
    let apart = |a: usize, b: usize| matrix[a][b].is_some_and(|found| found != Relation::Same);
    let is_wild = |chunk: usize| {
        (0..count)
            .any(|a| same(chunk, a) && (0..a).any(|b| same(chunk, b) && a != b && apart(a, b)))
    };
    let mut map = Map {
        wild: (0..count).filter(|&chunk| is_wild(chunk)).collect(),
        ..Map::default()
    };
    for (chunk, row) in matrix.iter().enumerate() {
        if map.wild.contains(&chunk) {
            map.class.push(None);
            continue;
        }
        let members = |class: usize| {
            let all = map.class.iter().enumerate();
            all.filter(move |&(_, &own)| own == Some(class))
                .map(|(member, _)| member)
        };
        let mut classes = 0..map.representative.len();
        if let Some(class) = classes.find(|&class| members(class).any(|other| same(chunk, other))) {
            map.class.push(Some(class));
            continue;
        }
        // The chunk has a class of its own, if it is surely in none of the others.
        let mut between = Vec::new();
        for class in 0..map.representative.len() {
            let mut known = members(class).filter_map(|other| row[other]);
            let Some(found) = known.next() else {
                return Err(End::Unsure(format!(
                    "whether chunks {} and {chunk} are on one drive cannot be told",
                    map.representative[class]
                )));
            };
            between.push(((class, map.representative.len()), found));
        }
        map.between.extend(between);
        map.class.push(Some(map.representative.len()));
        map.representative.push(chunk);
    }
    Ok(map)
}

/// Finds the class of one more chunk.
async fn place(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    map: &mut Map,
    chunk: usize,
) -> Result<(), End> {
    let predicted = class::predict(map, chunk);
    let order = predicted
        .into_iter()
        .chain((0..map.classes()).filter(|&class| Some(class) != predicted));
    let mut seen: Vec<(usize, Relation)> = Vec::new();
    let mut own = None;
    for class in order.collect::<Vec<_>>() {
        let found = compare(bench, pattern, chunks, map.representative[class], chunk).await?;
        seen.push((class, found));
        if found == Relation::Same {
            own = Some(class);
            break;
        }
    }
    if let Some(own) = own {
        // Compare with one other drive, too: a chunk that is on all drives must not be taken for a chunk of this drive.
        let other = (0..map.classes()).find(|&other| {
            let pair = (other.min(own), other.max(own));
            map.between.get(&pair) == Some(&Relation::Apart)
                && seen.iter().all(|&(class, _)| class != other)
        });
        if let Some(other) = other
            && compare(bench, pattern, chunks, map.representative[other], chunk).await?
                == Relation::Same
        {
            map.wild.push(chunk);
            map.class.push(None);
            return Ok(());
        }
        map.class.push(Some(own));
        return Ok(());
    }
    let class = map.classes();
    for (other, found) in seen {
        map.between.insert((other, class), found);
    }
    map.representative.push(chunk);
    map.class.push(Some(class));
    Ok(())
}

/// Drives that are slower or faster than the others.
///
/// A disturbance of some seconds slows all that is measured in that time. Therefore bursts go to all drives in turn,
/// and a drive is reported only if a second measurement, after the first, finds the same difference.
pub(super) async fn odd(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    map: &Map,
    found: &Found,
) -> Result<(), End> {
    if map.classes() < 3 {
        return Ok(());
    }
    let mut first = Levels::new(bench, map);
    let mut rounds = 0;
    while rounds < ODD_ROUNDS {
        first.measure(bench, pattern, chunks, map).await?;
        rounds += 1;
        if first.differences(pattern).iter().all(Difference::is_sure) {
            break;
        }
    }
    let first = first.differences(pattern);
    if !first.iter().any(Difference::is_odd) {
        return Ok(());
    }
    // A difference by chance or by a disturbance does not come again, not even half of it.
    let mut second = Levels::new(bench, map);
    for _ in 0..rounds {
        second.measure(bench, pattern, chunks, map).await?;
    }
    let mut odd = Vec::new();
    for (class, (one, two)) in first.iter().zip(second.differences(pattern)).enumerate() {
        let again = two.log_ratio * one.log_ratio.signum();
        if one.is_odd()
            && again > ODD / 2.0
            && again > ODD_ERRORS / 2.0 * two.error
            && let Some(seat) = found.seat(map, class)
        {
            bench.desk.spend(DECISION_ERROR);
            let ratio = f64::midpoint(one.log_ratio, two.log_ratio).exp();
            odd.push((seat, (ratio * 100.0).round() / 100.0));
        }
    }
    odd.sort_by_key(|&(seat, _)| seat);
    bench.desk.believe(|belief| belief.odd_drives = odd);
    Ok(())
}

/// How a drive's bursts differ from those of the median drive.
struct Difference {
    /// Logarithm of the ratio of their times.
    log_ratio: f64,
    /// The standard error of that.
    error: f64,
}

impl Difference {
    fn is_odd(&self) -> bool {
        self.log_ratio.abs() > ODD.max(ODD_ERRORS * self.error)
    }

    fn is_sure(&self) -> bool {
        self.is_odd() || self.log_ratio.abs() + LIKE_ERRORS * self.error < ODD_EXPECTED
    }
}

/// The level of each class's drive.
struct Levels(Vec<Level>);

impl Levels {
    fn new(bench: &Bench, map: &Map) -> Self {
        Self(vec![bench.level(); map.classes()])
    }

    /// Adds [`ODD_BURSTS`] bursts on each drive.
    async fn measure(
        &mut self,
        bench: &mut Bench,
        pattern: &Pattern,
        chunks: &Chunks,
        map: &Map,
    ) -> Result<(), End> {
        for _ in 0..ODD_BURSTS {
            for (&chunk, level) in map.representative.iter().zip(&mut self.0) {
                let residue = bench.within(
                    chunks.phase + chunk as u64 * chunks.bytes,
                    chunks.bytes,
                    pattern,
                );
                let spot = Spot {
                    residue,
                    requests: pattern.depth,
                };
                level.add(bench.spots(pattern.bytes, &[spot]).await?);
            }
        }
        Ok(())
    }

    fn differences(&self, pattern: &Pattern) -> Vec<Difference> {
        let mut means: Vec<f64> = self.0.iter().map(Level::mean).collect();
        means.sort_by(f64::total_cmp);
        let median = means[means.len() / 2];
        let deviation = pattern.half.deviation();
        let differs = |level: &Level| Difference {
            log_ratio: level.mean() - median,
            error: level.error_of(deviation),
        };
        self.0.iter().map(differs).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_not_made_of_equal_parts() {
        let map = |class: &[usize]| Map {
            class: class.iter().copied().map(Some).collect(),
            ..Map::default()
        };
        assert_eq!(map(&[0, 1, 0, 1, 0, 1, 0, 1]).period(), Some(2));
        assert_eq!(map(&[0, 1, 2, 0, 1, 2]).period(), Some(3));
        assert_eq!(map(&[0, 1, 2, 1, 0, 2]).period(), None);
    }

    #[test]
    fn a_chunk_that_is_on_all_drives_belongs_to_none() {
        // Chunks 0..3 on drives of their own, 4 on drive 0 again; chunk 2's drive is missing.
        let same = |a: usize, b: usize| a % 4 == b % 4 || a == 2 || b == 2;
        let matrix: Vec<Vec<Option<Relation>>> = (0..5)
            .map(|a| {
                (0..5)
                    .map(|b| {
                        Some(match same(a, b) {
                            true => Relation::Same,
                            false => Relation::Apart,
                        })
                    })
                    .collect()
            })
            .collect();
        let Ok(map) = of_matrix(&matrix) else {
            panic!("all pairs are known");
        };
        assert_eq!(map.wild, [2]);
        assert_eq!(map.class, [Some(0), Some(1), None, Some(2), Some(0)]);
    }
}
