//! Whether a drive holds nothing but parity, in addition to parity that rotates.
//!
//! Every small write uses such a drive, and reads never do. With such a drive, writes that keep to one chunk of the
//! pattern are as fast as writes that are spread over all chunks; without it the spread writes are faster.

use super::End;
use super::bench::{BLOCK, Bench, Spot};
use super::chunk::Chunks;
use super::class::Found;
use super::pattern::Pattern;
use super::policy;
use super::writes::FLOOD_MAX;
use crate::probe::Kind;

/// Bursts of each kind; and of bursts that flood a memory, which are long and differ little from each other.
const BURSTS: u32 = 12;
const BURSTS_LONG: u32 = 4;
/// As many bursts again, at most, until the result is sure.
const ROUNDS: u32 = 4;
/// The times of writes of one chunk and of all chunks differ by less than this, as a logarithm, if a drive of parity
/// alone holds both up, and by more if there is no such drive.
///
/// With such a drive, writes of one chunk wait for the later of two busy drives, and writes of all chunks for one. A
/// memory has few writes put in place at a time, and a read of flash meets a page that is being programmed in a part of
/// all cases, p. With reads of 110 µs and programs of 750 µs the mean wait for one drive is 375 p, for the later of two
/// 750 p − 250 p²: the difference is 0.35 at most, at p = 0.4. Measured were 0.25 at most on flash and 0.05 on disks;
/// without such a drive 0.45 and more on five drives of flash, 0.77 and more on others, 0.57 and more on disks.
const AS_SLOW: f64 = 0.35;
/// The two cases can be distinguished if they should differ by more than this.
const SPREAD: f64 = 0.4;
/// Writes of a queue that may hold up others; pairs of places at which this is tried; reads between two pairs.
const FRONT: usize = 48;
const PAIRS: u32 = 128;
const PAUSE: usize = 16;
/// Writes that must not wait for the queue. Of two random places of RAID-5 on five drives three in ten share no drive.
const FREE_MIN: u32 = 3;
/// A write that reads first and waits for nothing else takes at most so much longer than a read, as a logarithm. Behind
/// 48 reads on 64 dies two are on one of them.
const FREE: f64 = 0.35;

/// Keeps the candidates with such a drive, or those without; keeps all if that is not sure. All candidates have the
/// same number of data chunks.
pub(super) async fn decide(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &mut Found,
    (requests, buffered): (usize, bool),
) -> Result<(), End> {
    let all = || found.candidates.iter().flat_map(policy::spreads);
    if all().fold(0.0, f64::max) - all().fold(f64::INFINITY, f64::min) < SPREAD {
        return Ok(());
    }
    let data = found.candidates.first().map_or(1, |one| one.data);
    let seen = match bench.in_order.is_some() && !buffered {
        true => free(bench, pattern, data).await?,
        false => {
            // The drive of the one chunk has a memory of its own, besides that of the array.
            let (requests, bursts) = match (buffered, bench.in_order.is_some()) {
                (true, true) => (requests.max(FLOOD_MAX), BURSTS_LONG),
                (true, false) => (requests, BURSTS_LONG),
                (false, _) => (requests, BURSTS),
            };
            spread_out(bench, pattern, chunks, (requests, bursts)).await?
        }
    };
    if let Some(spread) = seen {
        found.retain(|one| {
            let mut expected = policy::spreads(one).into_iter();
            expected.any(|expected| (expected > SPREAD) == spread)
        });
    }
    Ok(())
}

/// Whether small writes to all chunks are faster than as many to one; `None` if that is not sure.
async fn spread_out(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    (requests, bursts): (usize, u32),
) -> Result<Option<bool>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let each = requests.div_ceil(places);
    let (mut one, mut all) = (bench.level(), bench.level());
    for _ in 0..ROUNDS {
        for _ in 0..bursts {
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

/// The same if drives answer in order and writes wait for what they read: whether any write is free of a queue of other
/// writes. Each write of the queue reads on a drive of parity alone, and holds up all other writes there; without such
/// a drive, some writes share no drive with the queue.
///
/// Chunks that are a pattern times the stripe apart have the same drives, parity included.
async fn free(bench: &mut Bench, pattern: &Pattern, data: u16) -> Result<Option<bool>, End> {
    let Some(single) = bench.in_order else {
        return Ok(None);
    };
    let period = pattern.bytes * u64::from(data);
    if bench.repetitions(period) < 2 * FRONT as u64 {
        return Ok(None);
    }
    let mut free = 0;
    for _ in 0..PAIRS {
        // In this time pages are programmed; otherwise reads of their dies would wait.
        bench.anywhere(PAUSE).await?;
        free += u32::from(bench.write_behind_writes(period, FRONT).await? < single + FREE);
        if free >= FREE_MIN {
            return Ok(Some(true));
        }
    }
    Ok((free == 0).then_some(false))
}

impl Bench {
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
}
