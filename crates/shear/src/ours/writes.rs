//! What reads do not show: what a write costs, and which writes cost least.
//!
//! A small write is, in drive operations: 1 without redundancy, a copy each on mirrors, and with p
//! parities the cheaper of reading and writing 1 + p chunks and of reading the rest of the stripe. So
//! the ratio of times of writes to reads says which. Arrays answer writes from memory first: bursts
//! are lengthened until they are no longer faster than reads (section 4 of the paper).
//!
//! Full stripes are written without reading: of aligned writes of the lengths that the candidates
//! give, that of the real stripe has the highest rate by far.

use super::bench::{BLOCK, Bench, Level, Spot};
use super::chunk::Chunks;
use super::class::{Candidate, Found};
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};
use crate::belief::Redundancy;
use crate::probe::{Kind, Request};

/// Bursts of each kind.
const BURSTS: u32 = 12;
/// As many bursts again, at most, until one length is ahead.
const ROUNDS: u32 = 5;
/// The longest flood, in requests: 64 MiB of small writes.
const FLOOD_MAX: usize = 16384;
/// The longest burst of reads to which a flood is compared, where drives always take the same time: such drives are
/// somebody's model, and waited for in real time.
const FLOOD_SECONDS_MAX: f64 = 0.5;
/// A ratio fits a candidate within this, as a logarithm: 45 %. Full stripes decide between neighbours.
const FITS: f64 = 0.37;
/// Bursts four times as long have the same ratio within this.
const STEADY: f64 = 0.15;
/// A layout whose ratio is farther away than that of the nearest by less than this may be the one: deep queues make
/// writes cheaper by up to a fifth.
const NEIGHBOURS: f64 = 0.25;

/// Bytes of a burst of aligned writes where nothing is known of a buffer.
const STRIPE_FLOOD_BYTES: u64 = 4 << 20;
/// Rates of writes are alike within this, as a logarithm, and differ surely above the other.
const AS_FAST: f64 = 0.2;
const SLOWER: f64 = 0.35;

/// How a small write finds the new parity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// From what it changes, and the old parity: both are read and written.
    ReadModify,
    /// From the rest of the stripe, which is read.
    Reconstruct,
}

/// Time of small writes over that of as many reads: drive operations of a write, unless drives that hold nothing but
/// parity have more to do than the others.
fn cost(candidate: &Candidate, policy: Policy) -> f64 {
    if candidate.parity == 0 {
        return f64::from(candidate.copies);
    }
    let read_from = candidate.seats().len();
    let only_parity = usize::from(candidate.drives).saturating_sub(read_from);
    #[expect(clippy::cast_precision_loss, reason = "drives")]
    let (read_from, only_parity) = (read_from as f64, only_parity as f64);
    // Operations of a write on each drive of parity alone.
    let each = match policy {
        Policy::ReadModify => 2.0,
        Policy::Reconstruct => 1.0,
    };
    let all = operations(candidate, policy);
    match only_parity > 0.0 {
        true => (all - each * only_parity).max(read_from * each),
        false => all,
    }
}

/// Drive operations of a small write on a layout with parity.
fn operations(candidate: &Candidate, policy: Policy) -> f64 {
    let (data, parity) = (f64::from(candidate.data), f64::from(candidate.parity));
    match policy {
        Policy::ReadModify => 2.0 * (1.0 + parity),
        Policy::Reconstruct => data + parity,
    }
}

/// The same by whichever policy has fewer operations; by both where they have as many.
fn costs(candidate: &Candidate) -> Vec<f64> {
    let policies = [Policy::ReadModify, Policy::Reconstruct];
    let all = policies.map(|policy| operations(candidate, policy));
    let fewest = all[0].min(all[1]);
    let cheapest = policies.into_iter().zip(all);
    let cheapest = cheapest.filter(|&(_, operations)| operations <= fewest);
    cheapest
        .map(|(policy, _)| cost(candidate, policy))
        .collect()
}

pub(super) async fn decide(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    mut found: Found,
) -> Result<(), End> {
    let Some(widest) = found.candidates.iter().map(|one| one.drives).max() else {
        if let Some(width) = narrowest_stripe(bench, chunks, found.open_widths()).await? {
            bench.desk.spend(DECISION_ERROR);
            found.choose_width(width);
            found.tell(&bench.desk.clone(), chunks);
        }
        bench.desk.believe(|belief| {
            belief
                .reasons
                .push("the redundancy of a declustered array is not looked for".to_owned());
        });
        return Ok(());
    };
    // Where reads have said how data is protected, one length of bursts will do.
    let open = found.redundancies().len() > 1;
    let requests = 12 * usize::from(widest);
    let Some((ratio, flooded)) = small(bench, pattern, chunks, requests, open).await? else {
        bench.desk.believe(|belief| {
            belief.redundancy = Redundancy::Unknown;
            belief.reasons.push(
                "the longer a burst of small writes is, the longer each takes: a buffer holds more than was written"
                    .to_owned(),
            );
        });
        return Ok(());
    };
    bench
        .desk
        .believe(|belief| belief.write_ratio = Some((ratio.exp() * 100.0).round() / 100.0));
    let before = found.candidates.len();
    let away = |one: &Candidate| {
        let distances = costs(one).into_iter().map(|cost| (cost.ln() - ratio).abs());
        distances.fold(f64::INFINITY, f64::min)
    };
    found.retain(|one| away(one) < FITS);
    // Between layouts with parity the length of the real stripe decides. Without parity there is none.
    if found.candidates.iter().any(|one| one.parity > 0) {
        let stripe = full_stripe(bench, chunks, &found, flooded).await?;
        found.retain(|one| match stripe {
            Some(data) => one.parity > 0 && one.data == data,
            None => one.parity == 0,
        });
    }
    let nearest = found
        .candidates
        .iter()
        .map(away)
        .fold(f64::INFINITY, f64::min);
    found.retain(|one| away(one) < nearest + NEIGHBOURS);
    if found.candidates.is_empty() {
        bench.desk.believe(|belief| {
            belief.reasons.push(format!(
                "a small write takes {:.2} times as long as a read, which fits none of the layouts that have this pattern: writes may be buffered, logged, or put in place later",
                ratio.exp()
            ));
        });
        return Ok(());
    }
    // Drives of parity alone have more to do by one policy, and the stripe is the same with and without them.
    if found.redundancies().len() > 1
        && bench.constant
        && let Some(policy) = policy(bench, pattern, chunks).await?
    {
        found.retain(|one| (cost(one, policy).ln() - ratio).abs() < FITS);
        bench.desk.spend(DECISION_ERROR);
    }
    if found.candidates.len() < before {
        bench.desk.spend(2.0 * DECISION_ERROR);
    }
    found.tell(&bench.desk.clone(), chunks);
    Ok(())
}

/// Logarithm of the time of small writes over that of reads, and the requests of a burst that floods buffers.
///
/// Each chunk of the pattern gets as many requests as the others: with random places the busiest drive would have more to
/// do than the mean, and more so with reads than with the more operations of writes.
async fn small(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    requests: usize,
    steady: bool,
) -> Result<Option<(f64, usize)>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let mut each = requests.div_ceil(places);
    let mut before: Option<f64> = None;
    loop {
        let requests = each * places;
        let mut reads = Level::default();
        let mut writes = Level::default();
        for burst in 0..BURSTS {
            let read = bench
                .evenly(pattern, chunks, places, each, Kind::Read)
                .await?;
            let write = bench
                .evenly(pattern, chunks, places, each, Kind::Rewrite)
                .await?;
            // What the first bursts leave in buffers is written during the later ones.
            if burst >= BURSTS / 4 {
                reads.add(read);
                writes.add(write);
            }
            if requests > 1024 && burst >= 5 {
                break;
            }
        }
        let ratio = writes.mean() - reads.mean();
        // A buffer that takes a part of a burst shows itself by the ratio of a longer one.
        let is_steady = before.is_some_and(|before| (ratio - before).abs() < STEADY);
        if ratio > -0.2 && (is_steady || !steady) {
            return Ok(Some((ratio, requests)));
        }
        let is_long = bench.constant && reads.mean() > FLOOD_SECONDS_MAX.ln();
        if requests >= FLOOD_MAX || is_long {
            return Ok(None);
        }
        before = Some(ratio);
        each *= 4;
    }
}

/// How parity is computed, by small writes to one chunk of the pattern: with read-modify-write its drive reads and
/// writes, with reconstruct-write it writes only. `None` between these.
///
/// For drives that always take the same time: on a disk a write of what was just read waits for a turn.
async fn policy(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
) -> Result<Option<Policy>, End> {
    let (mut reads, mut writes) = (bench.level(), bench.level());
    for _ in 0..BURSTS {
        for (level, kind) in [(&mut reads, Kind::Read), (&mut writes, Kind::Rewrite)] {
            let place = bench
                .evenly(pattern, chunks, 1, pattern.depth, kind)
                .await?;
            level.add(place);
        }
    }
    let operations = (writes.mean() - reads.mean()).exp();
    Ok(match operations {
        0.8..1.3 => Some(Policy::Reconstruct),
        1.6..2.5 => Some(Policy::ReadModify),
        _ => None,
    })
}

/// The least of `widths` whose aligned writes are as cheap as those of the best: several stripes at once are no cheaper
/// than one. Writes of one chunk must be dearer; otherwise a memory takes them, and its order is not that of the drives.
async fn narrowest_stripe(
    bench: &mut Bench,
    chunks: &Chunks,
    widths: &[u16],
) -> Result<Option<u16>, End> {
    if widths.is_empty() {
        return Ok(None);
    }
    let mut rates: Vec<(u16, Level)> = std::iter::once(1)
        .chain(widths.iter().copied())
        .map(|width| (width, Level::default()))
        .collect();
    for _ in 0..ROUNDS {
        for _ in 0..BURSTS {
            for (width, level) in &mut rates {
                level.add(bench.rate(chunks, *width, STRIPE_FLOOD_BYTES).await?);
            }
        }
        if let Some(width) = narrowest(&rates) {
            return Ok(Some(width));
        }
    }
    Ok(None)
}

/// The first that is about as fast as the fastest, if all before it are surely slower.
fn narrowest(rates: &[(u16, Level)]) -> Option<u16> {
    let top = rates.iter().map(|(_, level)| level.mean());
    let top = top.fold(f64::NEG_INFINITY, f64::max);
    let behind = |level: &Level| top - level.mean();
    let error = |level: &Level| 4.0 * level.error();
    let at = rates
        .iter()
        .position(|(_, level)| behind(level) < AS_FAST)?;
    let surely = rates[..at]
        .iter()
        .all(|(_, level)| behind(level) - error(level) > AS_FAST);
    let (width, level) = &rates[at];
    (at > 0 && surely && behind(level) + error(level) < SLOWER).then_some(*width)
}

/// Data chunks of the stripe, if aligned writes of it are clearly faster than those of other lengths.
async fn full_stripe(
    bench: &mut Bench,
    chunks: &Chunks,
    found: &Found,
    flooded: usize,
) -> Result<Option<u16>, End> {
    let mut lengths: Vec<u16> = found.candidates.iter().map(|one| one.data).collect();
    if found.candidates.iter().all(|one| one.parity == 0) {
        return Ok(None);
    }
    // Lengths next to the real one, so that there is something to be faster than.
    for &length in &lengths.clone() {
        lengths.extend([length + 1, length.saturating_sub(1).max(1)]);
    }
    lengths.sort_unstable();
    lengths.dedup();
    // Bytes per second of each length, as logarithms.
    let mut rates: Vec<(u16, Level)> = lengths
        .into_iter()
        .map(|length| (length, Level::default()))
        .collect();
    for _ in 0..ROUNDS {
        for _ in 0..BURSTS {
            for (length, level) in &mut rates {
                level.add(bench.rate(chunks, *length, flooded as u64 * BLOCK).await?);
            }
        }
        if let Some(length) = peak(&rates) {
            return Ok(Some(length));
        }
    }
    Ok(None)
}

/// The length that is surely ahead of all others.
fn peak(rates: &[(u16, Level)]) -> Option<u16> {
    let (length, level) = rates
        .iter()
        .max_by(|a, b| a.1.mean().total_cmp(&b.1.mean()))?;
    let ahead = |other: &Level| {
        let error = (level.error().powi(2) + other.error().powi(2)).sqrt();
        level.mean() - other.mean() - 4.0 * error
    };
    rates
        .iter()
        .filter(|(other, _)| other != length)
        .all(|(_, other)| ahead(other) > 0.05)
        .then_some(*length)
}

impl Bench {
    /// `each` requests of a block to each chunk of the pattern.
    async fn evenly(
        &mut self,
        pattern: &Pattern,
        chunks: &Chunks,
        places: usize,
        each: usize,
        kind: Kind,
    ) -> Result<f64, End> {
        let spots: Vec<Spot> = (0..places)
            .map(|place| Spot {
                residue: self.within(
                    chunks.phase + place as u64 * chunks.bytes,
                    chunks.bytes,
                    pattern,
                ),
                requests: each,
            })
            .collect();
        let requests = self.at(pattern.bytes, &spots, kind);
        Ok(self.time(requests).await?)
    }

    /// Logarithm of bytes per second of aligned writes of so many chunks, together some `flood_bytes`.
    async fn rate(&mut self, chunks: &Chunks, length: u16, flood_bytes: u64) -> Result<f64, End> {
        let bytes = u64::from(length) * chunks.bytes;
        let requests = (flood_bytes / bytes).clamp(16, 256);
        let count = usize::try_from(requests).unwrap_or(16);
        let time = self.aligned(bytes, chunks.phase, count).await?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a burst")]
        let all = requests as f64 * bytes as f64;
        Ok(all.ln() - time)
    }

    /// `requests` writes of `bytes`, each at a multiple of it from `phase` on.
    async fn aligned(&mut self, bytes: u64, phase: u64, requests: usize) -> Result<f64, End> {
        let places = (self.size() - phase) / bytes;
        let chosen = self.different(
            requests.min(usize::try_from(places).unwrap_or(usize::MAX)),
            places,
        );
        let burst = chosen.into_iter().map(|place| Request {
            offset: phase + place * bytes,
            length: bytes,
            kind: Kind::Rewrite,
        });
        Ok(self.time(burst.collect()).await?)
    }
}
