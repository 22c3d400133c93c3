//! Which strides keep to one drive.
//!
//! P is the least distance with B and B + P on the same drives for all B. The strides with this property are the
//! multiples of P. Therefore P is found from above:
//!
//! ```text
//!   candidates  n(n−1), n(n−2), n(n−3) chunks of up to 1 MiB for all n: one is a multiple of P
//!   slowest     of these by successive elimination
//!   primes      P/2, P/3, …: a shorter stride is taken if places that far apart are on one drive in every trial
//!   multiples   2P, 3P, …: the same question for P itself
//! ```
//!
//! Means of strides do not decide alone. A stride of whole cylinders keeps a disk's requests at one angle, which moves
//! the mean of one drive by a fifth; a stride that is on two drives at half of all places moves the mean no more.
//! Therefore the slowest strides are those with the slowest *quarter* of bursts, and of these the shortest that is as
//! slow at every place is taken. Divisors are decided by balanced pairs, half of a burst at each of two places: then
//! the ratio of one drive to two is 2.
//!
//! n(n−1) chunks are a multiple of the pattern of RAID-0, RAID-5, mirrors, chained and zig-zag arrays; n(n−2) and
//! n(n−3) of P+Q and triple parity. Candidates have chunks of powers of two; chunks of 24 KiB are found through another
//! n. Depth: a drive that serves several requests at once can be seen only by bursts that are deeper than that number.

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
/// Strides that are faster than the slowest stride by this are dropped early.
const FASTER: f64 = 0.25;
/// Strides whose lower quartile is this far below the best are on more drives at a third of places or more.
const QUARTER: f64 = 0.3;
/// Places at which a slow stride is tested; bursts at each; and the most by which a place may be faster than the
/// slowest.
const UNIFORM_PLACES: usize = 16;
const UNIFORM_BURSTS: usize = 4;
const UNIFORM: f64 = 0.15;
/// The fastest places, and as many of the slowest, are measured again.
const UNIFORM_AGAIN: usize = 3;
/// Least logarithm of the time of a burst over the time of half of it, on busy drives; ln 2 if nothing is parallel.
const BUSY: f64 = 0.5;
/// The same if requests are served in turn.
const IN_TURN: f64 = 0.63;
/// Places at which a divisor is tried. A divisor that is wrong at half of all places passes in 1 of 65,536 cases.
const PLACES: u32 = 16;
/// Strides that are measured closely. Among equally slow strides the choice does not matter.
const FINALISTS_MAX: usize = 8;
/// Bursts at each of them.
const FINAL_BURSTS: u32 = 11;
/// Bursts of a level.
const LEVEL_BURSTS: u32 = 32;
/// Bursts of a multiple of the pattern, at least. A multiple is as slow as the pattern, or slower by 0.36 and more.
const MULTIPLE_BURSTS: u32 = 8;
/// Requests of a burst if chunks may have copies.
const DEPTH_COPIES: usize = 24;

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
    /// Bursts of two thirds as many requests, if chunks may have copies: two chunks with two drives each, one of them
    /// shared, use three drives, and each drive has a third of the requests.
    pub(super) third: Option<Level>,
    /// Drives that serve one chunk; `None` until they are counted.
    pub(super) copies: Option<u16>,
}

/// Strides such that the pattern of each classic layout divides one of them.
fn candidates(bench: &Bench, depth: usize) -> Vec<u64> {
    let mut strides: Vec<u64> = Vec::new();
    // Repetitions: as many as a burst has requests, and as many again for a random choice.
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

/// Finds the pattern with bursts of at least `depth_min` requests.
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
            if is_busy(&pattern) {
                return Ok(pattern);
            }
        }
        // Deeper bursts help only while they are served at a higher rate, as by drives with internal parallelism.
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

/// The slowest of the strides, by successive elimination: strides that are surely faster are dropped.
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
    // The slowest strides, and of the others the shortest, which have the fewest factors to remove.
    alive.sort_by(|a, b| b.1.mean().total_cmp(&a.1.mean()));
    let mut shortest = alive.split_off(alive.len().min(FINALISTS_MAX));
    shortest.sort_by_key(|&(stride, _)| stride);
    shortest.truncate(FINALISTS_MAX);
    alive.extend(shortest);
    for _ in 0..FINAL_BURSTS {
        for (stride, level) in &mut alive {
            level.add(bench.stride(*stride, depth).await?);
        }
    }
    for (stride, level) in &alive {
        bench.desk.plot(*stride, level.mean().exp());
    }
    let quartiles = alive.iter().map(|(_, level)| level.lower_quartile());
    let top = quartiles.fold(f64::NEG_INFINITY, f64::max);
    alive.retain(|(_, level)| level.lower_quartile() >= top - QUARTER);
    alive.sort_by_key(|&(stride, _)| stride);
    for (stride, level) in &alive {
        if keeps(bench, *stride, depth).await? {
            return Ok(Some((*stride, level.clone())));
        }
    }
    // If none is uniform, take the shortest: a drive that is slow or fast makes places differ at any stride.
    Ok(alive.into_iter().next())
}

/// Whether a slow stride is as slow at every place. A stride that is no multiple of the pattern has eight of nine
/// requests on one drive at some places, where it is hardly faster than a multiple, but five of nine at others.
async fn keeps(bench: &mut Bench, stride: u64, depth: usize) -> Result<bool, End> {
    let mut places: Vec<(f64, u64)> = Vec::new();
    for _ in 0..UNIFORM_PLACES {
        let residue = bench.below(stride / BLOCK) * BLOCK;
        let level = place(bench, stride, residue, depth, UNIFORM_BURSTS).await?;
        places.push((level.mean(), residue));
    }
    places.sort_by(|a, b| a.0.total_cmp(&b.0));
    // Places that were the slowest and the fastest by chance are alike when they are measured again.
    let mut slow = bench.level();
    for &(_, residue) in &places[UNIFORM_PLACES - UNIFORM_AGAIN..] {
        let again = place(bench, stride, residue, depth, 2 * UNIFORM_BURSTS).await?;
        slow.extend(again.values());
    }
    for &(_, residue) in &places[..UNIFORM_AGAIN] {
        let again = place(bench, stride, residue, depth, 3 * UNIFORM_BURSTS).await?;
        if again.mean() < slow.mean() - UNIFORM {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Bursts at one place of a stride.
async fn place(
    bench: &mut Bench,
    stride: u64,
    residue: u64,
    requests: usize,
    bursts: usize,
) -> Result<Level, End> {
    let mut level = bench.level();
    for _ in 0..bursts {
        level.add(bench.spots(stride, &[Spot { residue, requests }]).await?);
    }
    Ok(level)
}

/// Whether places `step` apart are on the same drives in every trial. `pattern.bytes` is a multiple of `step`.
async fn same_everywhere(bench: &mut Bench, pattern: &Pattern, step: u64) -> Result<bool, End> {
    for _ in 0..PLACES {
        let residue = bench.below(pattern.bytes / BLOCK) * BLOCK;
        let other = (residue + (1 + bench.below(pattern.bytes / step - 1)) * step) % pattern.bytes;
        // First compare with the level of all places, which is known. If the places seem apart, compare with their own
        // levels.
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

/// Whether a pair is at the level of one drive; false if that is not sure.
async fn same_by_level(bench: &mut Bench, pattern: &Pattern, a: u64, b: u64) -> Result<bool, End> {
    let same = pattern.level.mean();
    let apart = bench.in_order.unwrap_or(same - 0.3);
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

/// The least stride that keeps to one drive, from a stride that seems to keep to one.
async fn reduce(bench: &mut Bench, stride: u64, depth: usize) -> Result<Pattern, End> {
    let mut pattern = least(bench, stride, depth).await?;
    if !is_busy(&pattern) {
        return Ok(pattern);
    }
    // A multiple may be slower only because of the angles of its requests. Then its least stride is the same.
    let mut before = None;
    while before != Some(pattern.bytes)
        && let Some(longer) = slower_multiple(bench, &pattern).await?
    {
        before = Some(pattern.bytes);
        pattern = least(bench, longer, depth).await?;
    }
    multiples_are_alike(bench, &pattern).await?;
    bench.desk.plot(pattern.bytes, pattern.level.mean().exp());
    Ok(pattern)
}

/// Checks that multiples of the stride do not keep to fewer drives: they do if the stride keeps to several drives.
async fn multiples_are_alike(bench: &mut Bench, pattern: &Pattern) -> Result<(), End> {
    for longer in multiples(bench, pattern) {
        bench.forget_places();
        let longer = Pattern {
            bytes: longer,
            ..pattern.clone()
        };
        if !same_everywhere(bench, &longer, pattern.bytes).await? {
            return Err(End::Unsure(format!(
                "places {} bytes apart are on one drive in part only: the pattern is longer than what was tried",
                pattern.bytes
            )));
        }
    }
    bench.forget_places();
    Ok(())
}

/// The pattern for a part of `pattern` after which the same drives follow, as far as chunks were compared.
pub(super) async fn shorter(
    bench: &mut Bench,
    pattern: &Pattern,
    bytes: u64,
) -> Result<Pattern, End> {
    let mut shorter = Pattern {
        bytes,
        ..pattern.clone()
    };
    bench.forget_places();
    remeasure(bench, &mut shorter).await?;
    if slower_multiple(bench, &shorter).await?.is_some() {
        return Err(repeats(pattern));
    }
    multiples_are_alike(bench, &shorter).await?;
    Ok(shorter)
}

/// The error for times that do not fit together: drives repeat inside the pattern, so the pattern is wrong.
pub(super) fn repeats(pattern: &Pattern) -> End {
    End::Unsure(format!(
        "drives repeat within what was taken for a pattern of {} bytes",
        pattern.bytes
    ))
}

/// Whether twice the requests take twice the time. If not, drives are not busy and could do more at once: deeper bursts
/// are needed.
fn is_busy(pattern: &Pattern) -> bool {
    pattern.level.mean() - pattern.half.mean() >= BUSY
}

/// Small multiples of the pattern's stride that the volume repeats often enough for bursts of this depth.
fn multiples(bench: &Bench, pattern: &Pattern) -> Vec<u64> {
    let multiples = [2, 3, 5, 7].map(|factor| factor * pattern.bytes);
    let repeated = |&longer: &u64| bench.repetitions(longer) >= 2 * pattern.depth as u64;
    multiples.into_iter().take_while(repeated).collect()
}

/// A multiple of the stride that is slower than the stride. If there is one, the stride is on several drives.
///
/// If three of five requests are on one drive at each place of a stride and of its divisors, pairs of places are as
/// slow as one place, and none of the other tests detects this. A multiple that is on one drive is slower.
///
/// ```text
///   raid6:nr:5c, first chunks of its stripes    0 0 0 2 1    by stripe; every fifth is on the same drive
/// ```
async fn slower_multiple(bench: &mut Bench, pattern: &Pattern) -> Result<Option<u64>, End> {
    for longer in multiples(bench, pattern) {
        let mut level = bench.level();
        for bursts in 1..=LEVEL_BURSTS {
            level.add(bench.stride(longer, pattern.depth).await?);
            let slower = level.mean() - pattern.level.mean();
            if bursts >= MULTIPLE_BURSTS && slower + 2.0 * level.error() < SLOWER {
                break;
            }
            if bursts == LEVEL_BURSTS && slower > SLOWER {
                return Ok(Some(longer));
            }
        }
    }
    Ok(None)
}

/// The least divisor of a stride whose places are on one drive, as far as bursts of the stride itself show.
async fn least(bench: &mut Bench, stride: u64, depth: usize) -> Result<Pattern, End> {
    let mut pattern = Pattern {
        bytes: stride,
        depth,
        level: bench.level(),
        half: bench.level(),
        third: None,
        copies: None,
    };
    remeasure(bench, &mut pattern).await?;
    if !is_busy(&pattern) {
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
    Ok(pattern)
}

/// Levels of the pattern's stride, whole and half bursts.
async fn remeasure(bench: &mut Bench, pattern: &mut Pattern) -> Result<(), End> {
    (pattern.level, pattern.half) = (bench.level(), bench.level());
    for _ in 0..LEVEL_BURSTS {
        pattern
            .level
            .add(bench.stride(pattern.bytes, pattern.depth).await?);
        pattern
            .half
            .add(bench.stride(pattern.bytes, pattern.depth / 2).await?);
    }
    Ok(())
}

/// If chunks may have copies and queues serve longer bursts at higher rates: makes bursts so long that a third of their
/// requests is a whole number and can be distinguished from a half, and measures the levels. Elsewhere levels follow
/// from the number of requests.
pub(super) async fn with_copies(bench: &mut Bench, pattern: &mut Pattern) -> Result<(), End> {
    if pattern.level.mean() - pattern.half.mean() > IN_TURN {
        return Ok(());
    }
    pattern.depth = pattern.depth.max(DEPTH_COPIES).next_multiple_of(12);
    bench.forget_places();
    remeasure(bench, pattern).await?;
    let mut third = bench.level();
    for _ in 0..LEVEL_BURSTS {
        third.add(bench.stride(pattern.bytes, pattern.depth * 2 / 3).await?);
    }
    pattern.third = Some(third);
    Ok(())
}
