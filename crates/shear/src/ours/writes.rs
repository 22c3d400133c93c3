//! What only writes show: what a write costs, and which writes cost least.
//!
//! A small write takes this many drive operations: 1 without redundancy, one per copy on mirrors, and with p parities
//! the cheaper of reading and writing 1 + p chunks and of reading the rest of the stripe. The ratio of the times of
//! writes and reads shows which. Arrays answer writes from memory first: bursts are lengthened until writes are no
//! longer faster than reads (section 4 of the paper).
//!
//! A memory writes what it gathers in an order of its own, which moves the ratio by a factor of two; flash reads and
//! writes at different speeds. Therefore the ratio decides only if a single write waits for a drive that is not flash.
//! Comparisons of writes with writes decide in any case:
//!
//! - *Full stripes* are written without reading (`stripe`).
//! - *A drive of parity alone* is used by every write (`parity`).

use std::collections::BTreeSet;

use super::bench::{BLOCK, Bench, Level};
use super::chunk::Chunks;
use super::class::{Candidate, Found};
use super::pattern::Pattern;
use super::stripe::{self, Flood, Stripe};
use super::{DECISION_ERROR, End, buffers, parity, policy};
use crate::belief::Redundancy;
use crate::probe::{Kind, Request};

/// Bursts of each kind.
const BURSTS: u32 = 12;
/// The longest flood, in requests: 64 MiB of small writes.
pub(super) const FLOOD_MAX: usize = 16384;
/// The longest burst to which a flood is compared, in seconds, for drives that always take the same time: such drives
/// are models, and the run waits for them in real time.
pub(super) const FLOOD_SECONDS_MAX: f64 = 0.5;
/// A result is steady if bursts four times as long have the same ratio, or take as long per request, within this.
pub(super) const STEADY: f64 = 0.15;
/// A ratio fits a candidate within this, as a logarithm: 45 %. Full stripes decide between neighbours.
const FITS: f64 = 0.37;
/// A layout is still possible if its ratio is farther away than that of the nearest layout by less than this: deep
/// queues make writes cheaper by up to a fifth.
const NEIGHBOURS: f64 = 0.25;
/// What is known of writes before the comparisons.
struct Ground {
    /// Whether a memory takes the writes.
    buffered: bool,
    /// Requests of a burst that floods the memory.
    flooded: usize,
    /// Logarithm of the time of small writes over that of reads, if the ratio counts.
    ratio: Option<f64>,
}

impl Ground {
    /// The distance between the measured ratio and that of a candidate, as a logarithm.
    fn away(&self, one: &Candidate) -> f64 {
        let seen = self.ratio.unwrap_or(0.0);
        let distances = policy::costs(one).into_iter();
        let distances = distances.map(|cost| (cost.ln() - seen).abs());
        distances.fold(f64::INFINITY, f64::min)
    }

    /// How aligned writes are compared.
    const fn flood(&self, flash: bool) -> Flood {
        match (self.buffered, flash) {
            (false, true) => Flood::One,
            // Few aligned writes are many bytes: no fewer bytes than a flood of small writes may have.
            (true, _) if self.flooded < FLOOD_MAX => Flood::Bytes(FLOOD_MAX as u64 * BLOCK),
            _ => Flood::Bytes(self.flooded as u64 * BLOCK),
        }
    }
}

/// Decides between layouts by writes. `halves`: the second reading of the times of reads, with chunks of half the size.
pub(super) async fn decide(
    bench: &mut Bench,
    pattern: &Pattern,
    mut chunks: Chunks,
    mut found: Found,
    halves: Option<(Found, Chunks)>,
) -> Result<(), End> {
    let desk = bench.desk.clone();
    if found.candidates.is_empty() {
        if let Some(width) = stripe::narrowest(bench, &chunks, found.open_widths()).await? {
            desk.spend(DECISION_ERROR);
            found.choose_width(width);
            found.tell(&desk, &chunks);
        }
        desk.believe(|belief| {
            belief
                .reasons
                .push("the redundancy of a declustered array is not looked for".to_owned());
        });
        return Ok(());
    }
    let open = found.redundancies().len() > 1;
    let mut before = found.candidates.len();
    let Some(ground) = ground(bench, pattern, &chunks, &mut found).await? else {
        if halves.is_some() && chunks.phase != 0 {
            desk.believe(super::forget);
            return Err(two_readings(&chunks));
        }
        desk.believe(|belief| {
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
    if let Some((other, smaller)) = halves {
        match by_halves(
            bench,
            pattern,
            (&found, chunks.phase),
            (&other, &smaller),
            &ground,
        )
        .await?
        {
            Some(false) => {}
            Some(true) => {
                before = before.max(other.candidates.len() + 1);
                desk.believe(|belief| belief.chunk_bytes = Some(smaller.bytes));
                (found, chunks) = (other, smaller);
            }
            None => {
                desk.believe(super::forget);
                return Err(two_readings(&chunks));
            }
        }
    }
    let chunks = &chunks;
    let away = |one: &Candidate| ground.away(one);
    if let Some(ratio) = ground.ratio {
        desk.believe(|belief| {
            belief.write_ratio = Some((ratio.exp() * 100.0).round() / 100.0);
        });
        found.retain(|one| away(one) < FITS);
    }
    let seen = by_stripe(bench, pattern, chunks, &mut found, &ground).await?;
    let parity = |one: &Candidate| one.parity > 0;
    if found.candidates.iter().all(parity) && data(&found).len() == 1 {
        let how = (ground.flooded, ground.buffered);
        parity::decide(bench, pattern, chunks, &mut found, how).await?;
    }
    if ground.ratio.is_some() {
        let distances = found.candidates.iter().map(away);
        let nearest = distances.fold(f64::INFINITY, f64::min);
        found.retain(|one| away(one) < nearest + NEIGHBOURS);
    }
    if found.candidates.is_empty() {
        desk.believe(|belief| {
            belief.reasons.push(match belief.write_ratio {
                Some(ratio) => format!(
                    "a small write takes {ratio:.2} times as long as a read, which fits none of the layouts that have this pattern: writes may be buffered, logged, or put in place later"
                ),
                None => "the writes that cost least are full stripes of none of the layouts that have this pattern".to_owned(),
            });
        });
        return Ok(());
    }
    if found.candidates.len() < before {
        desk.spend(3.0 * DECISION_ERROR);
    } else if open && seen == Stripe::Unclear {
        desk.believe(|belief| {
            belief.reasons.push(
                "neither what small writes cost nor which aligned writes cost least says how data is protected: a buffer may hold more than was written"
                    .to_owned(),
            );
        });
    }
    found.tell(&desk, chunks);
    Ok(())
}

/// The numbers of data chunks of a stripe that the candidates have.
fn data(found: &Found) -> BTreeSet<u16> {
    found.candidates.iter().map(|one| one.data).collect()
}

/// How writes can be compared; `None` if a memory holds more than was written.
async fn ground(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &mut Found,
) -> Result<Option<Ground>, End> {
    let open = found.redundancies().len() > 1;
    let buffered = buffers::are_there(bench).await?;
    let flash = bench.in_order.is_some();
    if buffered && flash && open && buffers::are_the_drives(bench, pattern).await? {
        // A write goes to its drives at once, and is done before a read of parity could be: there is no parity, or the
        // stripe has one chunk of data, for which nothing is read.
        found.retain(|one| one.parity == 0 || one.data == 1);
        let asks_all =
            |one: &Candidate| one.copies.max(1 + one.parity) == one.drives && one.drives > 1;
        if found.candidates.iter().any(asks_all)
            && let Some(all) = buffers::ask_all_drives(bench, pattern).await?
        {
            found.retain(|one| asks_all(one) == all);
        }
    }
    let mirrors = found.candidates.iter().all(|one| one.copies > 1);
    let ground = |flooded: usize, ratio| Ground {
        buffered,
        flooded,
        ratio,
    };
    Ok(match (buffered, flash) {
        _ if flash && found.redundancies().len() == 1 => Some(ground(0, None)),
        // Reads have shown of mirrors all that writes could. Flooding a memory would only give the ratio.
        (true, _) if mirrors => Some(ground(0, None)),
        (true, _) => {
            let flooded = buffers::flood(bench, pattern, chunks).await?;
            flooded.map(|flooded| ground(flooded, None))
        }
        (false, true) => Some(ground(0, None)),
        (false, false) => {
            let widest = found.candidates.iter().map(|one| one.drives).max();
            let requests = 12 * usize::from(widest.unwrap_or(1));
            // If reads have shown how data is protected, one length of bursts is enough; for mirrors, with any ratio.
            let steady = match open {
                true => Steady::Twice,
                false if mirrors => Steady::Once,
                false => Steady::First,
            };
            let small = small(bench, pattern, chunks, requests, steady).await?;
            small.map(|(ratio, flooded)| ground(flooded, Some(ratio)))
        }
    })
}

/// The reason why there is no answer if the times of reads have two readings.
pub(super) fn two_readings(chunks: &Chunks) -> End {
    End::CannotTell(format!(
        "two readings fit: chunks of {} bytes that begin at byte {}, or chunks of {} bytes, two in a row on each drive",
        chunks.bytes,
        chunks.phase,
        chunks.bytes / 2
    ))
}

/// Whether chunks are of half the size, two in a row on each drive; `None` if that is not sure. Volumes seldom begin
/// inside a stripe: if writes show nothing, chunks that begin at the first byte are taken to be whole ones.
async fn by_halves(
    bench: &mut Bench,
    pattern: &Pattern,
    (found, begin): (&Found, u64),
    (halves, smaller): (&Found, &Chunks),
    ground: &Ground,
) -> Result<Option<bool>, End> {
    if halves.candidates.iter().any(|one| one.parity == 0) {
        return Ok((begin == 0).then_some(false));
    }
    // Without parity, or with one data chunk in a stripe, a write never needs a read.
    let reads = |one: &Candidate| one.parity > 0 && one.data > 1;
    let costs_so = |one: &Candidate| ground.ratio.is_none() || ground.away(one) < FITS;
    if !found.candidates.iter().any(reads) || !halves.candidates.iter().any(costs_so) {
        return Ok(Some(false));
    }
    let flood = ground.flood(bench.in_order.is_some());
    let begin = halves.begin(2);
    let seen = stripe::between_halves(bench, pattern, smaller, begin, flood).await?;
    if seen.is_some() {
        bench.desk.spend(DECISION_ERROR);
    }
    Ok(seen)
}

/// Between layouts with parity, the length of the real stripe decides. Without parity there is no such length.
async fn by_stripe(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &mut Found,
    ground: &Ground,
) -> Result<Stripe, End> {
    let with_parity = found.candidates.iter().filter(|one| one.parity > 0).count();
    let lengths = data(found);
    if with_parity == 0 || (with_parity == found.candidates.len() && lengths.len() == 1) {
        return Ok(Stripe::Unclear);
    }
    let flood = ground.flood(bench.in_order.is_some());
    let seen = stripe::full(bench, pattern, chunks, found, flood).await?;
    match seen {
        Stripe::Data { chunks, begin } => {
            found.retain(|one| one.parity > 0 && one.data == chunks);
            found.begins(begin);
        }
        Stripe::None => {
            // A stripe of one data chunk is written without reading, wherever writes begin. But each write uses all of
            // its drives: writes of one chunk are as fast as those of all.
            found.retain(|one| one.parity == 0 || one.data == 1);
            if ground.buffered {
                parity::decide(bench, pattern, chunks, found, (ground.flooded, true)).await?;
            }
        }
        Stripe::Unclear => {}
    }
    Ok(seen)
}

/// When the ratio of writes to reads counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Steady {
    /// If a longer burst has the same ratio.
    Twice,
    /// As soon as writes are no faster than reads.
    First,
    /// The same, but longer bursts are not tried: the ratio is only for information.
    Once,
}

/// Logarithm of the time of small writes over that of reads, and the requests of a burst that floods buffers.
///
/// Each chunk of the pattern gets as many requests as the others. With random places the busiest drive would have more
/// to do than the mean, and the excess would be larger for reads than for writes, which have more operations.
async fn small(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    requests: usize,
    steady: Steady,
) -> Result<Option<(f64, usize)>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let mut each = requests.div_ceil(places);
    let bursts = match steady {
        Steady::Twice => BURSTS,
        Steady::First | Steady::Once => BURSTS / 2,
    };
    let mut before: Option<f64> = None;
    loop {
        let requests = each * places;
        let mut reads = Level::default();
        let mut writes = Level::default();
        for burst in 0..bursts {
            let read = bench
                .evenly(pattern, chunks, 0..places, each, Kind::Read)
                .await?;
            let write = bench
                .evenly(pattern, chunks, 0..places, each, Kind::Rewrite)
                .await?;
            // Data that the first bursts leave in buffers is written during the later bursts.
            if burst >= BURSTS / 4 {
                reads.add(read);
                writes.add(write);
            }
            if requests > 1024 && burst >= 5 {
                break;
            }
        }
        let ratio = writes.mean() - reads.mean();
        // If a buffer takes a part of a burst, a longer burst has another ratio.
        let is_steady = before.is_some_and(|before| (ratio - before).abs() < STEADY);
        if ratio > -0.2 && (is_steady || steady != Steady::Twice) {
            return Ok(Some((ratio, requests)));
        }
        if steady == Steady::Once {
            return Ok(None);
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
    /// Carries out `each` requests of a block at each of these chunks of the pattern.
    pub(super) async fn evenly(
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
