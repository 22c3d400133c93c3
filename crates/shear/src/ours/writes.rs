//! What reads do not show: what a write costs, and which writes cost least.
//!
//! A small write is, in drive operations: 1 without redundancy, a copy each on mirrors, and with p
//! parities the cheaper of reading and writing 1 + p chunks and of reading the rest of the stripe. So
//! the ratio of times of writes to reads says which. Arrays answer writes from memory first: bursts
//! are lengthened until they are no longer faster than reads (section 4 of the paper).
//!
//! What a memory gathers it writes in an order of its own, which moves the ratio by a factor of two; flash reads and
//! writes at different speeds. So the ratio decides only where a single write waits for a drive that is no flash. What
//! compares writes with writes decides always:
//!
//! - *Full stripes* are written without reading: of aligned writes of several lengths, that of the real stripe has the
//!   highest rate by far (`stripe`).
//! - *A drive of parity alone* has its part of every write. Small writes that keep to one chunk of the pattern are as fast
//!   with it as those that are spread over all of them; without it the spread ones are faster.

use std::collections::BTreeSet;

use super::bench::{BLOCK, Bench, Level, Spot};
use super::chunk::Chunks;
use super::class::{Candidate, Found};
use super::pattern::Pattern;
use super::stripe::{self, Flood, Stripe};
use super::{DECISION_ERROR, End};
use crate::belief::Redundancy;
use crate::probe::{Kind, Request};

/// Bursts of each kind.
const BURSTS: u32 = 12;
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
/// A write that takes less than this part of a read has not waited for a drive: a quarter.
const BUFFERED: f64 = 0.25;
/// Requests of a burst that keep the dies of flash drives busy: 64 for each of 64.
const FLASH_REQUESTS: usize = 4096;
/// Writes of one chunk over those of all chunks differ by less than this, as a logarithm, where a drive of parity alone
/// holds both up, and by more where none does: by up to 0.1, and by 0.25 and more.
const AS_SLOW: f64 = 0.18;
/// The two are told apart where they should differ by more than this.
const SPREAD: f64 = 0.4;
/// As many bursts again, at most, until it is sure.
const ROUNDS: u32 = 4;
/// Bursts of each length of a flood.
const FLOOD_BURSTS: u32 = 5;
/// Writes whose queue may hold up others, pairs of places at which it is tried, and reads between two of them.
const HIDDEN_FRONT: usize = 48;
const HIDDEN_PAIRS: u32 = 128;
const HIDDEN_PAUSE: usize = 16;
/// Writes that must be free of the queue. Of two random places of RAID-5 on five drives three in ten share no drive.
const HIDDEN_FREE_MIN: u32 = 3;
/// A write that reads first and waits for none takes so much longer than a read, at most, as a logarithm. Behind 48 reads
/// on 64 dies two are on one of them.
const FREE: f64 = 0.35;

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

/// The policy with fewer operations; both where they have as many.
fn policies(candidate: &Candidate) -> Vec<Policy> {
    let policies = [Policy::ReadModify, Policy::Reconstruct];
    let all = policies.map(|policy| operations(candidate, policy));
    let fewest = all[0].min(all[1]);
    let cheapest = policies.into_iter().zip(all);
    let cheapest = cheapest.filter(|&(_, operations)| operations <= fewest);
    cheapest.map(|(policy, _)| policy).collect()
}

/// Time of small writes to one chunk over that of as many to all chunks. Read-modify-write keeps the drive of the chunk
/// twice as busy as reads do, and the others idle but for parity; reconstruct-write asks all drives alike, and a drive of
/// parity alone has its part of each write in any case.
fn spread(candidate: &Candidate, policy: Policy) -> f64 {
    let read_from = candidate.seats().len();
    if policy == Policy::Reconstruct || read_from < usize::from(candidate.drives) {
        return 1.0;
    }
    #[expect(clippy::cast_precision_loss, reason = "drives")]
    let read_from = read_from as f64;
    read_from / f64::from(1 + candidate.parity)
}

pub(super) async fn decide(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    mut found: Found,
) -> Result<(), End> {
    let Some(widest) = found.candidates.iter().map(|one| one.drives).max() else {
        if let Some(width) = stripe::narrowest(bench, chunks, found.open_widths()).await? {
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
    let buffered = is_buffered(bench).await?;
    let flash = bench.in_order.is_some();
    let kinds = |parity: bool| move |one: &Candidate| (one.parity > 0) == parity;
    let mut ratio = None;
    let flooded = match (buffered, flash) {
        (true, true) if open && waits(bench, pattern).await? => {
            // It goes to a drive at once, and is done before a read of parity could be.
            found.retain(kinds(false));
            Some(0)
        }
        (true, _) => flood(bench, pattern, chunks).await?,
        (false, true) => Some(FLASH_REQUESTS),
        (false, false) => {
            let requests = 12 * usize::from(widest);
            let small = small(bench, pattern, chunks, requests, open).await?;
            ratio = small.map(|(ratio, _)| ratio);
            small.map(|(_, requests)| requests)
        }
    };
    let Some(flooded) = flooded else {
        bench.desk.believe(|belief| {
            if open {
                belief.redundancy = Redundancy::Unknown;
            }
            belief.reasons.push(
                "the longer a burst of small writes is, the longer each takes: a buffer holds more than was written"
                    .to_owned(),
            );
        });
        return Ok(());
    };
    if let Some(ratio) = ratio {
        bench.desk.believe(|belief| {
            belief.write_ratio = Some((ratio.exp() * 100.0).round() / 100.0);
        });
    }
    let before = found.candidates.len();
    let away = |one: &Candidate| {
        let ratio = ratio.unwrap_or(0.0);
        let costs = policies(one).into_iter().map(|policy| cost(one, policy));
        let distances = costs.map(|cost| (cost.ln() - ratio).abs());
        distances.fold(f64::INFINITY, f64::min)
    };
    if ratio.is_some() {
        found.retain(|one| away(one) < FITS);
    }
    // Between layouts with parity the length of the real stripe decides. Without parity there is none.
    let mut seen = Stripe::Unclear;
    let data: BTreeSet<u16> = found.candidates.iter().map(|one| one.data).collect();
    let sides = [true, false].map(|parity| found.candidates.iter().any(kinds(parity)));
    if sides == [true, true] || (sides[0] && data.len() > 1) {
        let flood = match flash && !buffered {
            true => Flood::One,
            false => Flood::Bytes(flooded as u64 * BLOCK),
        };
        seen = stripe::full(bench, pattern, chunks, &found, flood).await?;
        match seen {
            Stripe::Data(data) => found.retain(|one| one.parity > 0 && one.data == data),
            // A stripe of one data chunk and its parity costs what copies do.
            Stripe::None if ratio.is_none() && data.contains(&1) => {}
            Stripe::None => found.retain(|one| one.parity == 0 || one.data == 1),
            Stripe::Unclear => {}
        }
    }
    let data: BTreeSet<u16> = found.candidates.iter().map(|one| one.data).collect();
    if found.candidates.iter().all(kinds(true)) && data.len() == 1 {
        let (most, least) = (widest_spread(&found), least_spread(&found));
        let seen = match (most - least < SPREAD, buffered) {
            (true, _) => None,
            // All of them have as many.
            (false, false) if flash => {
                let data = found.candidates.first().map_or(1, |one| one.data);
                hidden_drive(bench, pattern, data).await?
            }
            _ => spread_out(bench, pattern, chunks, flooded).await?,
        };
        if let Some(spread) = seen {
            let fits = |one: &Candidate| {
                let mut spreads = spreads(one).into_iter();
                spreads.any(|expected| (expected > SPREAD) == spread)
            };
            found.retain(fits);
            bench.desk.spend(DECISION_ERROR);
        }
    }
    if ratio.is_some() {
        let distances = found.candidates.iter().map(away);
        let nearest = distances.fold(f64::INFINITY, f64::min);
        found.retain(|one| away(one) < nearest + NEIGHBOURS);
    }
    if found.candidates.is_empty() {
        bench.desk.believe(|belief| {
            let ratio = belief.write_ratio.unwrap_or_default();
            belief.reasons.push(format!(
                "a small write takes {ratio:.2} times as long as a read, which fits none of the layouts that have this pattern: writes may be buffered, logged, or put in place later"
            ));
        });
        return Ok(());
    }
    if found.candidates.len() < before {
        bench.desk.spend(2.0 * DECISION_ERROR);
    } else if open && seen == Stripe::Unclear {
        bench.desk.believe(|belief| {
            belief.reasons.push(
                "neither what small writes cost nor which aligned writes cost least says how data is protected: a buffer may hold more than was written"
                    .to_owned(),
            );
        });
    }
    found.tell(&bench.desk.clone(), chunks);
    Ok(())
}

/// Whether single writes are answered before a drive could have.
async fn is_buffered(bench: &mut Bench) -> Result<bool, End> {
    let (mut reads, mut writes) = (bench.level(), bench.level());
    for _ in 0..BURSTS {
        reads.add(bench.single(Kind::Read).await?);
        writes.add(bench.single(Kind::Rewrite).await?);
    }
    Ok(writes.mean() < reads.mean() + BUFFERED.ln())
}

/// Whether a write behind a queue of reads waits for them: then no memory took it.
async fn waits(bench: &mut Bench, pattern: &Pattern) -> Result<bool, End> {
    let Some(single) = bench.in_order else {
        return Ok(false);
    };
    for _ in 0..BURSTS {
        if bench.write_behind(pattern, pattern.depth).await? < single {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Writes of a burst that is so long that what buffers take is little of it: a burst of a quarter takes as long for each.
async fn flood(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
) -> Result<Option<usize>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let mut before: Option<f64> = None;
    let mut each = (FLOOD_MAX / 16).div_ceil(places);
    while each * places <= 2 * FLOOD_MAX {
        let mut level = bench.level();
        for _ in 0..FLOOD_BURSTS {
            let writes = bench.evenly(pattern, chunks, 0..places, each, Kind::Rewrite);
            level.add(writes.await?);
        }
        if bench.constant && bench.in_order.is_none() && level.mean() > FLOOD_SECONDS_MAX.ln() {
            return Ok(None);
        }
        if before.is_some_and(|before| level.mean() - before - 4.0_f64.ln() < STEADY) {
            return Ok(Some(each * places));
        }
        before = Some(level.mean());
        each *= 4;
    }
    Ok(None)
}

/// What may be seen of a candidate's small writes: logarithms of their time at one chunk over that at all.
fn spreads(candidate: &Candidate) -> Vec<f64> {
    let policies = policies(candidate).into_iter();
    policies
        .map(|policy| spread(candidate, policy).ln())
        .collect()
}

fn widest_spread(found: &Found) -> f64 {
    let all = found.candidates.iter().flat_map(spreads);
    all.fold(0.0, f64::max)
}

fn least_spread(found: &Found) -> f64 {
    let all = found.candidates.iter().flat_map(spreads);
    all.fold(f64::INFINITY, f64::min)
}

/// Whether small writes to all chunks are faster than as many to one; `None` where it is not sure.
async fn spread_out(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    requests: usize,
) -> Result<Option<bool>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let each = requests.div_ceil(places);
    let (mut one, mut all) = (bench.level(), bench.level());
    for _ in 0..ROUNDS {
        for _ in 0..BURSTS {
            let place = usize::try_from(bench.below(places as u64)).unwrap_or(0);
            let place = place..place + 1;
            let at_one = bench.evenly(pattern, chunks, place, each * places, Kind::Rewrite);
            one.add(at_one.await?);
            let at_all = bench.evenly(pattern, chunks, 0..places, each, Kind::Rewrite);
            all.add(at_all.await?);
        }
        let seen = one.mean() - all.mean();
        let error = 4.0 * (one.error().powi(2) + all.error().powi(2)).sqrt();
        if (seen - AS_SLOW).abs() > error {
            return Ok(Some(seen > AS_SLOW));
        }
    }
    Ok(None)
}

/// The same where drives answer in order and writes wait for what they read: whether any write is free of a queue of
/// others. Each of these reads on a drive of parity alone, and there holds up all writes; without such a drive some share
/// no drive with them.
///
/// Chunks that are a pattern times the stripe apart have the same drives, parity included.
async fn hidden_drive(
    bench: &mut Bench,
    pattern: &Pattern,
    data: u16,
) -> Result<Option<bool>, End> {
    let Some(single) = bench.in_order else {
        return Ok(None);
    };
    let period = pattern.bytes * u64::from(data);
    if bench.repetitions(period) < 2 * HIDDEN_FRONT as u64 {
        return Ok(None);
    }
    let mut free = 0;
    for _ in 0..HIDDEN_PAIRS {
        // Meanwhile pages are programmed; reads of their dies would wait.
        bench.anywhere(HIDDEN_PAUSE).await?;
        free += u32::from(bench.write_behind_writes(period, HIDDEN_FRONT).await? < single + FREE);
        if free >= HIDDEN_FREE_MIN {
            return Ok(Some(true));
        }
    }
    Ok((free == 0).then_some(false))
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
                .evenly(pattern, chunks, 0..places, each, Kind::Read)
                .await?;
            let write = bench
                .evenly(pattern, chunks, 0..places, each, Kind::Rewrite)
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

impl Bench {
    /// One request of a block anywhere.
    async fn single(&mut self, kind: Kind) -> Result<f64, End> {
        let offsets = self.blocks(1).into_iter();
        let requests = offsets.map(|offset| Request {
            offset,
            length: BLOCK,
            kind,
        });
        Ok(self.time(requests.collect()).await?)
    }

    /// A write behind `front` reads of one block, on the drive of these.
    async fn write_behind(&mut self, pattern: &Pattern, front: usize) -> Result<f64, End> {
        let residue = self.below(pattern.bytes / BLOCK) * BLOCK;
        let spot = Spot {
            residue,
            requests: 2,
        };
        let places = self.at(pattern.bytes, &[spot], Kind::Read);
        let write = Request {
            kind: Kind::Rewrite,
            ..places[1]
        };
        let reads = std::iter::repeat_n(places[0], front);
        let requests = reads.chain(std::iter::once(write)).collect();
        Ok(self.time_of_last(requests).await?)
    }

    /// A write behind `front` others that are multiples of `period` apart, anywhere.
    async fn write_behind_writes(&mut self, period: u64, front: usize) -> Result<f64, End> {
        let mut requests = Vec::new();
        for count in [front, 1] {
            let residue = self.below(period / BLOCK) * BLOCK;
            let spot = Spot {
                residue,
                requests: count,
            };
            requests.extend(self.at(period, &[spot], Kind::Rewrite));
        }
        Ok(self.time_of_last(requests).await?)
    }

    /// `each` requests of a block to each of these chunks of the pattern.
    async fn evenly(
        &mut self,
        pattern: &Pattern,
        chunks: &Chunks,
        places: std::ops::Range<usize>,
        each: usize,
        kind: Kind,
    ) -> Result<f64, End> {
        let repetitions = self.repetitions(pattern.bytes);
        let mut requests = Vec::with_capacity(places.len() * each);
        for place in places {
            let begin = chunks.phase + place as u64 * chunks.bytes;
            let end = repetitions.max(each as u64);
            for repetition in self.different(each, end) {
                let residue = self.within(begin, chunks.bytes, pattern);
                requests.push(Request {
                    offset: repetition % repetitions * pattern.bytes + residue,
                    length: BLOCK,
                    kind,
                });
            }
        }
        self.shuffle(&mut requests);
        Ok(self.time(requests).await?)
    }
}
