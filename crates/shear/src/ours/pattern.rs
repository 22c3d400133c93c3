//! Which strides keep to one drive.
//!
//! If B and B + P are on the same drives for all B, the strides that do so are the multiples of P.
//! So P is found from above:
//!
//! ```text
//!   candidates  n(n−1), n(n−2), n(n−3) chunks of up to 1 MiB for all n: one is a multiple of P
//!   slowest     of these by successive elimination
//!   primes      P/2, P/3, …: a shorter stride is taken if places that far apart are on one drive, wherever it is tried
//!   multiples   2P, 3P, …: the same question for P itself
//! ```
//!
//! Means of strides are not compared to the end. A stride of whole cylinders keeps a disk's requests at one angle, and
//! moves the mean of one drive by a fifth; a stride that is on two drives at half of all places moves it no more. So the
//! slowest strides are those with the slowest *quarter* of bursts, and divisors are decided by balanced pairs, half of a
//! burst here and half there: the ratio of one drive to two is 2 then.
//!
//! n(n−1) chunks are a multiple of the pattern of RAID-0, RAID-5, mirrors, chained and zig-zag arrays; n(n−2) and
//! n(n−3) of P+Q and triple parity. Candidates are taken with powers of two as chunks, so a chunk of 24 KiB is found by
//! another n. Depth: a drive that serves several requests at once shows itself once bursts are deeper than that.

use super::bench::{BLOCK, Bench, Level, Spot};
use super::chunk::{Question, Relation, relation};
use super::ground;
use super::{DECISION_ERROR, End};

/// Drives up to which candidates are made.
const DRIVES_MAX: u64 = 24;
/// The largest chunk of which candidates are multiples, in bytes.
const CHUNK_MAX: u64 = 1 << 20;
/// Depths tried, requests of a burst.
const DEPTHS: [usize; 6] = [8, 16, 32, 64, 128, 256];
/// A stride this much slower than reads anywhere is on fewer drives: a ratio of 1.28.
const SLOWER: f64 = 0.25;
/// Strides that are faster than the slowest by this are dropped early.
const FASTER: f64 = 0.25;
/// Strides whose lower quartile is this far below the best are on more drives somewhere: at least a third of places.
const QUARTER: f64 = 0.3;
/// Logarithm of the time of a burst over that of half of it, at least, on busy drives; ln 2 where nothing is parallel.
const BUSY: f64 = 0.5;
/// Places at which a divisor is tried. One that is wrong at half of all places passes in 1 of 65,536 cases.
const PLACES: u32 = 16;
/// Strides that are measured closely. Of equally slow ones it does not matter which.
const FINALISTS_MAX: usize = 8;
/// A pattern that was found.
#[derive(Clone, Debug)]
pub(super) struct Pattern {
    /// P in bytes.
    pub(super) bytes: u64,
    /// Requests of a burst.
    pub(super) depth: usize,
    /// Bursts at stride P.
    pub(super) level: Level,
    /// Bursts of half as many requests at stride P.
    pub(super) half: Level,
    /// Drives that serve one chunk, once counted.
    pub(super) copies: Option<u16>,
}

/// Strides one of which is a multiple of the pattern of any classic layout.
fn candidates(bench: &Bench, depth: usize) -> Vec<u64> {
    let mut strides: Vec<u64> = Vec::new();
    // Repetitions: as many as a burst has requests, and as many again to choose from.
    let longest = bench.size() / (2 * depth as u64);
    for drives in 2..=DRIVES_MAX {
        for less in 1..=3 {
            let chunks = drives * drives.saturating_sub(less);
            if chunks == 0 || chunks * BLOCK > longest {
                continue;
            }
            let unit = (1 << (longest / chunks).ilog2()).min(CHUNK_MAX);
            strides.push(chunks * unit);
        }
    }
    strides.sort_unstable();
    strides.dedup();
    strides
}

/// The pattern, by bursts of at least `depth_min` requests.
pub(super) async fn find(bench: &mut Bench, depth_min: usize) -> Result<Pattern, End> {
    let mut before: Option<f64> = None;
    for depth in DEPTHS.into_iter().filter(|&depth| depth >= depth_min) {
        let everywhere = ground::anywhere(bench, depth).await?;
        let strides = candidates(bench, depth);
        if strides.is_empty() {
            break;
        }
        if let Some((stride, level)) = slowest(bench, &strides, depth).await?
            && level.mean() - everywhere.mean() > SLOWER
        {
            let pattern = reduce(bench, stride, depth).await?;
            // Twice the requests, twice the time: the drives are busy. Otherwise they could do more at once.
            if pattern.level.mean() - pattern.half.mean() >= BUSY {
                return Ok(pattern);
            }
        }
        // Deeper bursts help only while they are served at a higher rate, as by drives with parallelism of their own.
        let saturated = before.is_some_and(|before: f64| everywhere.mean() - before > 0.62);
        if saturated && depth >= 32 {
            break;
        }
        before = Some(everywhere.mean());
    }
    Err(End::CannotTell(
        "no stride is slower than random reads: one drive, a path or a rate cap that hides drives, a cache, space that was never written, or placement without a fixed pattern"
            .to_owned(),
    ))
}

/// The slowest of the strides, by successive elimination: what is surely faster is dropped.
async fn slowest(
    bench: &mut Bench,
    strides: &[u64],
    depth: usize,
) -> Result<Option<(u64, Level)>, End> {
    let mut alive: Vec<(u64, Level)> = strides
        .iter()
        .map(|&stride| (stride, bench.level()))
        .collect();
    for round in 0..6 {
        for (stride, level) in &mut alive {
            level.add(bench.stride(*stride, depth).await?);
        }
        if round < 1 {
            continue;
        }
        let best = alive
            .iter()
            .map(|(_, level)| level.mean() - level.error())
            .fold(f64::NEG_INFINITY, f64::max);
        let (stay, go): (Vec<_>, Vec<_>) = alive.into_iter().partition(|(_, level)| {
            level.mean() + 2.5 * level.error().max(0.25 / f64::from(round + 1)) >= best - FASTER
        });
        for (stride, level) in go {
            bench.desk.plot(stride, level.mean().exp());
        }
        alive = stay;
    }
    // The slowest, and of the others the shortest: those have fewest factors to take away.
    alive.sort_by(|a, b| b.1.mean().total_cmp(&a.1.mean()));
    let mut shortest = alive.split_off(alive.len().min(FINALISTS_MAX));
    shortest.sort_by_key(|&(stride, _)| stride);
    shortest.truncate(FINALISTS_MAX);
    alive.extend(shortest);
    for _ in 0..14 {
        for (stride, level) in &mut alive {
            level.add(bench.stride(*stride, depth).await?);
        }
    }
    for (stride, level) in &alive {
        bench.desk.plot(*stride, level.mean().exp());
    }
    let quartiles = alive.iter().map(|(_, level)| level.lower_quartile());
    let top = quartiles.fold(f64::NEG_INFINITY, f64::max);
    Ok(alive
        .into_iter()
        .filter(|(_, own)| own.lower_quartile() >= top - QUARTER)
        .min_by_key(|&(stride, _)| stride))
}

/// Whether places `step` apart are on the same drives, wherever it is tried. `pattern.bytes` is a multiple of `step`.
async fn same_everywhere(bench: &mut Bench, pattern: &Pattern, step: u64) -> Result<bool, End> {
    for _ in 0..PLACES {
        let residue = bench.below(pattern.bytes / BLOCK) * BLOCK;
        let other = (residue + (1 + bench.below(pattern.bytes / step - 1)) * step) % pattern.bytes;
        // Against the level of all places first, which is known; a place that seems apart against its own.
        if !same_by_level(bench, pattern, residue, other).await?
            && relation(bench, pattern, residue, other, BLOCK, Question::Differ)
                .await?
                .0
                != Relation::Same
        {
            bench.desk.spend(DECISION_ERROR);
            return Ok(false);
        }
    }
    bench.desk.spend(DECISION_ERROR);
    Ok(true)
}

/// Whether a pair is at the level of one drive; an unsure one is not.
async fn same_by_level(bench: &mut Bench, pattern: &Pattern, a: u64, b: u64) -> Result<bool, End> {
    let same = pattern.level.mean();
    let apart = same - 0.3;
    let deviation = pattern.level.deviation().max(0.08);
    let mut test = bench.test(vec![same, apart], deviation, 1e-3);
    for _ in 0..24 {
        let requests = pattern.depth / 2;
        let spots = [a, b].map(|residue| Spot { residue, requests });
        if let Some(index) = test.add(bench.spots(pattern.bytes, &spots).await?) {
            return Ok(index == 0);
        }
    }
    Ok(false)
}

/// The least stride that keeps to one drive, from one that does.
async fn reduce(bench: &mut Bench, stride: u64, depth: usize) -> Result<Pattern, End> {
    let mut pattern = Pattern {
        bytes: stride,
        depth,
        level: bench.level(),
        half: bench.level(),
        copies: None,
    };
    remeasure(bench, &mut pattern).await?;
    // Fewer requests take less time only if the drive is busy: deeper bursts are needed else.
    if pattern.level.mean() - pattern.half.mean() < BUSY {
        return Ok(pattern);
    }
    for prime in [2, 3, 5, 7, 11, 13, 17, 19, 23] {
        while pattern.bytes.is_multiple_of(prime) && (pattern.bytes / prime).is_multiple_of(BLOCK) {
            let shorter = pattern.bytes / prime;
            if !same_everywhere(bench, &pattern, shorter).await? {
                break;
            }
            pattern.bytes = shorter;
            bench.forget_places();
        }
    }
    remeasure(bench, &mut pattern).await?;
    // A stride that keeps to several drives has multiples that keep to fewer.
    for prime in [2, 3, 5, 7] {
        let longer = Pattern {
            bytes: pattern.bytes * prime,
            ..pattern.clone()
        };
        if bench.repetitions(longer.bytes) < 2 * depth as u64 {
            break;
        }
        bench.forget_places();
        if !same_everywhere(bench, &longer, pattern.bytes).await? {
            return Err(End::Unsure(format!(
                "places {} bytes apart are on one drive in part only: the pattern is longer than what was tried",
                pattern.bytes
            )));
        }
    }
    bench.forget_places();
    bench.desk.plot(pattern.bytes, pattern.level.mean().exp());
    Ok(pattern)
}

/// Levels of the pattern's stride, whole and half bursts.
async fn remeasure(bench: &mut Bench, pattern: &mut Pattern) -> Result<(), End> {
    (pattern.level, pattern.half) = (bench.level(), bench.level());
    for _ in 0..32 {
        pattern
            .level
            .add(bench.stride(pattern.bytes, pattern.depth).await?);
        pattern
            .half
            .add(bench.stride(pattern.bytes, pattern.depth / 2).await?);
    }
    Ok(())
}
