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
/// A ratio fits a candidate within this, as a logarithm: 45 %. Full stripes decide between neighbours.
const FITS: f64 = 0.37;
/// Bursts four times as long have the same ratio within this.
const STEADY: f64 = 0.15;
/// A layout whose ratio is farther away than that of the nearest by less than this may be the one: deep queues make
/// writes cheaper by up to a fifth.
const NEIGHBOURS: f64 = 0.25;

/// Times of small writes over those of as many reads: drive operations of a write, unless drives that hold nothing but
/// parity have more to do than the others. Read-modify-write or reconstruct-write, whichever is fewer operations; both
/// where they are as many.
fn costs(candidate: &Candidate) -> Vec<f64> {
    let (data, parity) = (f64::from(candidate.data), f64::from(candidate.parity));
    if candidate.parity == 0 {
        return vec![f64::from(candidate.copies)];
    }
    let read_from = candidate.seats().len();
    let only_parity = usize::from(candidate.drives).saturating_sub(read_from);
    #[expect(clippy::cast_precision_loss, reason = "drives")]
    let (read_from, only_parity) = (read_from as f64, only_parity as f64);
    // Operations of a write, and those of them on each drive of parity alone.
    let ways = [(2.0 * (1.0 + parity), 2.0), (data + parity, 1.0)];
    let fewest = ways.iter().map(|way| way.0).fold(f64::INFINITY, f64::min);
    let cheapest = ways.into_iter().filter(|way| way.0 <= fewest);
    let cost = |(all, each): (f64, f64)| match only_parity > 0.0 {
        true => (all - each * only_parity).max(read_from * each),
        false => all,
    };
    cheapest.map(cost).collect()
}

pub(super) async fn decide(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    mut found: Found,
) -> Result<(), End> {
    let Some(widest) = found.candidates.iter().map(|one| one.drives).max() else {
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
        if requests >= FLOOD_MAX {
            return Ok(None);
        }
        before = Some(ratio);
        each *= 4;
    }
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
                let bytes = u64::from(*length) * chunks.bytes;
                let requests = (flooded as u64 * BLOCK / bytes).clamp(16, 256);
                let count = usize::try_from(requests).unwrap_or(16);
                let time = bench.aligned(bytes, chunks.phase, count).await?;
                #[expect(clippy::cast_precision_loss, reason = "bytes of a burst")]
                level.add((requests as f64 * bytes as f64).ln() - time);
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
