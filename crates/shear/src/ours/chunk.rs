//! Where the drive changes: chunk size and first border.

use super::bench::{BLOCK, Bench, Spot};
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};

/// Bursts of one comparison, at most.
const BURSTS_MAX: u32 = 80;
/// Bursts at one place alone.
const ALONE_BURSTS: u32 = 6;

/// How two places of the pattern share drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Relation {
    /// The same drives.
    Same,
    /// Some drives.
    Overlap,
    /// None.
    Apart,
}

/// What is asked of two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether they are on the same drives; if not, whether they share some need not be sure.
    Differ,
    /// How they share drives.
    Exact,
}

/// Chunks that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Bytes of a chunk.
    pub(super) bytes: u64,
    /// Where the first border lies, below `bytes`.
    pub(super) phase: u64,
}

/// Compares two places, each a span of `span` bytes: half of a burst at each.
///
/// Both are measured alone first: a slow drive is then slow on both sides of the comparison, and a chunk that is
/// reconstructed from all other drives is late by itself. Where bursts are late by waiting only, a place that was late
/// each time it was measured alone would look apart from all others: places that seem apart are measured again.
pub(super) async fn relation(
    bench: &mut Bench,
    pattern: &Pattern,
    a: u64,
    b: u64,
    span: u64,
    question: Question,
) -> Result<(Relation, f64), End> {
    let mut seen = compare(bench, pattern, a, b, span, question).await?;
    while bench.constant && seen.0 != Relation::Same {
        let mut less = false;
        for residue in [a % pattern.bytes, b % pattern.bytes] {
            if bench.settled.contains(&residue) {
                continue;
            }
            let Some(before) = bench.alone.remove(&residue) else {
                continue;
            };
            let again = alone(bench, pattern, residue, span).await?;
            bench.alone.insert(residue, before.min(again));
            if again < before - 0.04 {
                less = true;
            } else {
                bench.settled.insert(residue);
            }
        }
        if !less {
            break;
        }
        seen = compare(bench, pattern, a, b, span, question).await?;
    }
    Ok(seen)
}

async fn compare(
    bench: &mut Bench,
    pattern: &Pattern,
    a: u64,
    b: u64,
    span: u64,
    question: Question,
) -> Result<(Relation, f64), End> {
    let (a, b) = (a % pattern.bytes, b % pattern.bytes);
    let own = alone(bench, pattern, a, span).await?;
    let same = own.max(alone(bench, pattern, b, span).await?);
    // Two halves in parallel end when the later one does: half a deviation above the mean of one.
    let halves = pattern.half.mean() + 0.56 * pattern.half.deviation() - pattern.level.mean();
    // Whole requests: eight over three drives are three on one of them, over two drives four. Where the rate of answers
    // counts, the last of them do not.
    #[expect(clippy::cast_precision_loss, reason = "requests of a burst")]
    let overlap = match bench.constant {
        true => 2.0_f64 / 3.0,
        false => pattern.depth.div_ceil(3) as f64 / pattern.depth.div_ceil(2) as f64,
    }
    .ln();
    let mut levels = vec![same, same + halves];
    // A drive that alone has its chunks shares all of them or none.
    if pattern.copies != Some(1) {
        levels.push(same + overlap);
    }
    let kinds = [Relation::Same, Relation::Apart, Relation::Overlap];
    let deviation = pattern
        .level
        .deviation()
        .max(pattern.half.deviation())
        .max(0.08);
    // The levels themselves are known from a few bursts only.
    let deviation = deviation * (1.0 + 2.0 / f64::from(ALONE_BURSTS)).sqrt();
    let mut test = bench.test(levels, deviation, DECISION_ERROR);
    let mut sum = 0.0;
    for burst in 1..=BURSTS_MAX {
        let requests = pattern.depth / 2;
        let residues = [
            bench.within(a, span, pattern),
            bench.within(b, span, pattern),
        ];
        let spots = residues.map(|residue| Spot { residue, requests });
        let time = bench.spots(pattern.bytes, &spots).await?;
        sum += time;
        let sure = test.add(time);
        let enough = sure
            .or_else(|| (question == Question::Differ && test.excludes(0)).then(|| test.best()));
        if let Some(index) = enough {
            bench.desk.spend(DECISION_ERROR);
            return Ok((kinds[index], (sum / f64::from(burst) - same).exp()));
        }
    }
    Err(End::Unsure(format!(
        "whether bytes {a} and {b} of the pattern are on one drive cannot be told: times are between those of one drive and of two"
    )))
}

/// Mean level of bursts at one place.
pub(super) async fn alone(
    bench: &mut Bench,
    pattern: &Pattern,
    residue: u64,
    span: u64,
) -> Result<f64, End> {
    if let Some(known) = bench.alone.get(&residue) {
        return Ok(*known);
    }
    let mut level = bench.level();
    for _ in 0..ALONE_BURSTS {
        let spot = Spot {
            residue: bench.within(residue, span, pattern),
            requests: pattern.depth,
        };
        level.add(bench.spots(pattern.bytes, &[spot]).await?);
    }
    bench.alone.insert(residue, level.mean());
    Ok(level.mean())
}

/// The first border behind `from`, which lies in the chunk that holds block `from`.
async fn border(bench: &mut Bench, pattern: &Pattern, from: u64) -> Result<u64, End> {
    let blocks = pattern.bytes / BLOCK;
    // Blocks from `from` on that are known to be in the chunk, and one that is not.
    let mut inside = 0;
    let mut outside = 1;
    loop {
        if outside >= blocks {
            return Err(End::Unsure(
                "the whole pattern is on the same drives, and yet strides that are no multiple of it are not".to_owned(),
            ));
        }
        if differs(bench, pattern, from, from + outside * BLOCK).await? {
            break;
        }
        inside = outside;
        outside *= 2;
    }
    while outside - inside > 1 {
        let middle = u64::midpoint(inside, outside);
        if differs(bench, pattern, from, from + middle * BLOCK).await? {
            outside = middle;
        } else {
            inside = middle;
        }
    }
    Ok(from + outside * BLOCK)
}

async fn differs(bench: &mut Bench, pattern: &Pattern, a: u64, b: u64) -> Result<bool, End> {
    Ok(relation(bench, pattern, a, b, BLOCK, Question::Differ)
        .await?
        .0
        != Relation::Same)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Borders from the begin of the pattern on, until their distances have had a chance to differ.
pub(super) async fn find(bench: &mut Bench, pattern: &Pattern) -> Result<Chunks, End> {
    let first = border(bench, pattern, 0).await?;
    let mut at = first;
    let mut bytes = pattern.bytes;
    for _ in 0..3 {
        let next = border(bench, pattern, at).await?;
        bytes = gcd(bytes, next - at);
        at = next;
    }
    Ok(Chunks {
        bytes,
        phase: first % bytes,
    })
}
