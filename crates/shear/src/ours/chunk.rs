//! Where the drive changes: chunk size and first border.

use super::bench::{BLOCK, Bench, Spot};
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};

/// Bursts of one comparison, at most.
const BURSTS_MAX: u32 = 80;
/// Bursts at one place alone; and at each place if chunks may have copies.
const ALONE_BURSTS: u32 = 6;
const ALONE_BURSTS_COPIES: u32 = 24;
/// Places that seem to be on the same drives may share only some of them. They are measured more closely if their time
/// is this part of the difference away.
const SUSPECT: f64 = 1.0 / 6.0;
/// Places that may have copies are measured more closely if their time is this part of the difference away from the
/// likeliest level.
const SUSPECT_COPIES: f64 = 0.4;
/// Bursts between two checks of times that lie between levels, and the most bursts.
const CLOSE_BURSTS: u32 = 24;
const CLOSE_BURSTS_MAX: u32 = 240;
/// Standard errors between a time and a level that it is not at: 10⁻⁷ for each of ten checks.
const CLOSE_ERRORS: f64 = 5.2;
/// Copies that lie far apart on a drive make the drive seek: a time of shared drives is at least this part of the
/// difference.
const OVERLAP_PART: f64 = 0.5;

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

/// The question about two places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    /// Whether they are on the same drives. If not, it need not be sure whether they share some.
    Differ,
    /// How they share drives.
    Exact,
}

/// Chunks that were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Chunks {
    /// Bytes of a chunk.
    pub(super) bytes: u64,
    /// The first border, below `bytes`.
    pub(super) phase: u64,
}

impl Chunks {
    /// The same chunks from a later border on.
    pub(super) fn later(&self, chunks: u16) -> Self {
        Self {
            phase: self.phase + u64::from(chunks) * self.bytes,
            ..*self
        }
    }
}

/// Compares two places, each a span of `span` bytes: half of a burst at each.
///
/// Both are measured alone first. A slow drive is then slow on both sides of the comparison, and a chunk that is
/// reconstructed from all other drives is slow alone, too. If only waiting makes bursts late, a place that was late
/// each time it was measured alone would seem apart from all others: places that seem apart are measured again.
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
            let Some(before) = bench.alone.remove(&(residue, pattern.depth)) else {
                continue;
            };
            let again = alone(bench, pattern, residue, span, pattern.depth, ALONE_BURSTS).await?;
            if again < before.mean() - 0.04 {
                less = true;
            } else {
                bench.settled.insert(residue);
            }
            if before.mean() < again {
                bench.alone.insert((residue, pattern.depth), before);
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
    let alone_bursts = match (&pattern.third, question) {
        (Some(_), Question::Exact) if !bench.constant => ALONE_BURSTS_COPIES,
        _ => ALONE_BURSTS,
    };
    let same = slower_alone(bench, pattern, [a, b], span, alone_bursts).await?;
    if let Some(single) = bench.in_order {
        return compare_in_order(bench, pattern, [a, b], span, (question, same, single)).await;
    }
    // Two halves in parallel end when the later one does: half a deviation above the mean of one half.
    let halves = pattern.half.mean() + 0.56 * pattern.half.deviation() - pattern.level.mean();
    // Requests are whole: of eight over three drives, one drive has three; of eight over two drives, each has four. If
    // the rate of answers counts, the last requests do not. Three drives end later than two, by a third of a deviation.
    #[expect(clippy::cast_precision_loss, reason = "requests of a burst")]
    let overlap = match &pattern.third {
        _ if bench.constant => (2.0_f64 / 3.0).ln(),
        Some(third) => third.mean() + 0.34 * third.deviation() - pattern.level.mean(),
        None => (pattern.depth.div_ceil(3) as f64 / pattern.depth.div_ceil(2) as f64).ln(),
    };
    let mut levels = vec![same, same + halves];
    // If each chunk is on one drive, two chunks share all drives or none.
    let may_be_copied = pattern.copies != Some(1);
    if may_be_copied {
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
        let Some(index) = enough else {
            continue;
        };
        let seen = sum / f64::from(burst) - same;
        if index == 0 && pattern.third.is_some() && seen < SUSPECT * overlap {
            break;
        }
        // Foreign load, and copies that lie far apart, move times away from their levels.
        let off = match index {
            1 => seen - halves,
            2 => (seen - overlap).abs(),
            _ => 0.0,
        };
        let is_off = off > SUSPECT_COPIES * (overlap - halves);
        if is_off && may_be_copied && question == Question::Exact && !bench.constant {
            break;
        }
        bench.desk.spend(DECISION_ERROR);
        return Ok((kinds[index], seen.exp()));
    }
    match pattern.copies {
        Some(1) => Err(unsure([a, b])),
        _ if bench.constant => Err(unsure([a, b])),
        _ => closely(bench, pattern, [a, b], span, (question, overlap)).await,
    }
}

/// The same for times that are near none of the levels, by as many bursts at each place alone as at both.
///
/// The time of one drive is known. That of two drives follows from half of a burst at each place: both halves have
/// ended when the later one has, whatever foreign load there is. That of shared drives is not known if copies lie far
/// apart on a drive: if the time is surely neither of the other two, drives are shared.
async fn closely(
    bench: &mut Bench,
    pattern: &Pattern,
    places: [u64; 2],
    span: u64,
    (question, overlap): (Question, f64),
) -> Result<(Relation, f64), End> {
    let deviation = pattern
        .level
        .deviation()
        .max(pattern.half.deviation())
        .max(0.08);
    let mut pair = bench.level();
    for bursts in (CLOSE_BURSTS..=CLOSE_BURSTS_MAX).step_by(CLOSE_BURSTS as usize) {
        for _ in 0..CLOSE_BURSTS {
            let spots = places.map(|place| Spot {
                residue: bench.within(place, span, pattern),
                requests: pattern.depth / 2,
            });
            pair.add(bench.spots(pattern.bytes, &spots).await?);
        }
        let same = slower_alone(bench, pattern, places, span, bursts).await?;
        let apart = later_half(bench, pattern, places, span, bursts).await?;
        let seen = pair.mean() - same;
        let error = CLOSE_ERRORS * deviation * (2.0 / f64::from(bursts)).sqrt();
        let (differs, shares) = (seen < -error, pair.mean() > apart + error);
        let found = match (differs, shares) {
            (true, true) => Relation::Overlap,
            (true, false) if seen < overlap - error || question == Question::Differ => {
                Relation::Apart
            }
            (false, true) if seen > OVERLAP_PART * overlap + error => Relation::Same,
            _ => continue,
        };
        bench.desk.spend(DECISION_ERROR);
        return Ok((found, seen.exp()));
    }
    Err(unsure(places))
}

/// Mean of the later one of two bursts of half as many requests, one at each place.
async fn later_half(
    bench: &mut Bench,
    pattern: &Pattern,
    [a, b]: [u64; 2],
    span: u64,
    bursts: u32,
) -> Result<f64, End> {
    let requests = pattern.depth / 2;
    for place in [a, b] {
        alone(bench, pattern, place, span, requests, bursts).await?;
    }
    let halves = |place| bench.alone[&(place, requests)].values();
    let mut later = bench.level();
    later.extend(halves(a).zip(halves(b)).map(|(a, b)| a.max(b)));
    Ok(later.mean())
}

/// The same if drives answer in order. The last argument is the question, the level of a read behind a queue, and the
/// level of a read alone.
async fn compare_in_order(
    bench: &mut Bench,
    pattern: &Pattern,
    places: [u64; 2],
    span: u64,
    (question, same, single): (Question, f64, f64),
) -> Result<(Relation, f64), End> {
    let deviation = pattern.level.deviation().max(0.08);
    let mut test = bench.test(vec![same, single], deviation, DECISION_ERROR);
    let mut seen = None;
    for _ in 0..BURSTS_MAX {
        let spots = places.map(|place| Spot {
            residue: bench.within(place, span, pattern),
            requests: pattern.depth / 2,
        });
        seen = test.add(bench.spots(pattern.bytes, &spots).await?);
        if seen.is_some() {
            break;
        }
    }
    bench.desk.spend(DECISION_ERROR);
    match (seen, pattern.copies) {
        (None, _) => Err(unsure(places)),
        (Some(0), _) => Ok((Relation::Same, 1.0)),
        // Each chunk is on one drive, or the number of its drives does not matter.
        (Some(_), Some(1)) => Ok((Relation::Apart, 0.5)),
        (Some(_), _) if question == Question::Differ => Ok((Relation::Apart, 0.5)),
        (Some(_), copies) => overlap_in_order(bench, pattern, places, span, (copies, same)).await,
    }
}

/// Whether two chunks that are not on the same drives share some. Reads go to the copy whose drive has least to do:
/// behind a queue on all drives of one chunk, as many reads of the other chunk fill its free drives first.
async fn overlap_in_order(
    bench: &mut Bench,
    pattern: &Pattern,
    places: [u64; 2],
    span: u64,
    (copies, same): (Option<u16>, f64),
) -> Result<(Relation, f64), End> {
    // On c drives, one of which already has n ÷ c reads to do, n reads take (n + n ÷ c) ÷ c.
    let shared = (1.0 / f64::from(copies.unwrap_or(2))).ln_1p();
    let deviation = pattern.level.deviation().max(0.08);
    let mut test = bench.test(vec![same, same + shared], deviation, DECISION_ERROR);
    for _ in 0..BURSTS_MAX {
        let residues = places.map(|place| bench.within(place, span, pattern));
        let time = bench.queues(pattern.bytes, residues, pattern.depth).await?;
        match test.add(time) {
            Some(0) => return Ok((Relation::Apart, 0.5)),
            Some(_) => return Ok((Relation::Overlap, 0.75)),
            None => {}
        }
    }
    Err(unsure(places))
}

fn unsure([a, b]: [u64; 2]) -> End {
    End::Unsure(format!(
        "whether bytes {a} and {b} of the pattern are on one drive cannot be told: times are between those of one drive and of two"
    ))
}

/// Mean level of bursts at the slower one of two places.
async fn slower_alone(
    bench: &mut Bench,
    pattern: &Pattern,
    [a, b]: [u64; 2],
    span: u64,
    bursts: u32,
) -> Result<f64, End> {
    let requests = pattern.depth;
    let one = alone(bench, pattern, a, span, requests, bursts).await?;
    Ok(one.max(alone(bench, pattern, b, span, requests, bursts).await?))
}

/// Mean level of at least `bursts` bursts of `requests` reads at one place; earlier bursts there count.
async fn alone(
    bench: &mut Bench,
    pattern: &Pattern,
    residue: u64,
    span: u64,
    requests: usize,
    bursts: u32,
) -> Result<f64, End> {
    let mut level = match bench.alone.remove(&(residue, requests)) {
        Some(known) => known,
        None => bench.level(),
    };
    while level.count() < bursts.into() {
        let spot = Spot {
            residue: bench.within(residue, span, pattern),
            requests,
        };
        level.add(bench.spots(pattern.bytes, &[spot]).await?);
    }
    let mean = level.mean();
    bench.alone.insert((residue, requests), level);
    Ok(mean)
}

/// The first border behind `from`: the end of the chunk that contains block `from`.
async fn border(bench: &mut Bench, pattern: &Pattern, from: u64) -> Result<u64, End> {
    let blocks = pattern.bytes / BLOCK;
    // Blocks from `from` on that are known to be in the chunk, and a number that is not.
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

pub(super) const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Borders from the begin of the pattern on: several of them, because their distances may differ.
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
