//! Which aligned writes cost least: those of a full stripe, which are written without reading.
//!
//! Lengths are compared at one number of bytes, and begin at each chunk of the pattern equally often, so that all drives
//! have as much to do whatever the length: without parity all lengths are as fast.

use super::End;
use super::bench::{Bench, Level};
use super::chunk::{Chunks, gcd};
use super::class::Found;
use super::pattern::Pattern;
use crate::probe::{Kind, Request};

/// Bursts of each length.
const BURSTS: u32 = 12;
/// As many bursts again, at most, until one length is ahead.
const ROUNDS: u32 = 5;

/// Bytes of a burst of aligned writes where nothing is known of a buffer.
const STRIPE_FLOOD_BYTES: u64 = 4 << 20;
/// Writes of a burst, at least and at most.
const WRITES_MIN: u64 = 16;
const WRITES_MAX: u64 = 4096;
/// Rates of writes are alike within this, as a logarithm, and differ surely above the other.
const AS_FAST: f64 = 0.2;
const SLOWER: f64 = 0.35;
/// Without parity all lengths are as fast as the fastest within this: they were within 0.09.
const FLAT: f64 = 0.15;
/// A full stripe is faster than other lengths by more than this: it was by 0.27 and more.
const AHEAD: f64 = 0.12;

/// What aligned writes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stripe {
    /// Those of so many chunks are cheaper than those of other lengths.
    Data(u16),
    /// All cost the same.
    None,
    /// Neither.
    Unclear,
}

/// What a burst of aligned writes is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// So many bytes at once: more than buffers hold.
    Bytes(u64),
    /// One write to an idle array: its latency shows whether it reads.
    One,
}

/// The least of `widths` whose aligned writes are as cheap as those of the best: several stripes at once are no cheaper
/// than one. Writes of one chunk must be dearer; otherwise a memory takes them, and its order is not that of the drives.
pub(super) async fn narrowest(
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
                level.add(
                    bench
                        .rate(chunks, *width, Flood::Bytes(STRIPE_FLOOD_BYTES), None)
                        .await?,
                );
            }
        }
        if let Some(width) = of_widths(&rates) {
            return Ok(Some(width));
        }
    }
    Ok(None)
}

/// The first that is about as fast as the fastest, if all before it are surely slower.
fn of_widths(rates: &[(u16, Level)]) -> Option<u16> {
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

/// Data chunks of the stripe, of those that the candidates give.
pub(super) async fn full(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &Found,
    flood: Flood,
) -> Result<Stripe, End> {
    let own: Vec<u16> = found.candidates.iter().map(|one| one.data).collect();
    // Lengths next to the real one, so that there is something to be faster than.
    let next_to = own
        .iter()
        .flat_map(|&length| [length - 1, length, length + 1]);
    // Longer ones put two chunks in a row on a drive, which is cheaper by itself.
    let drives = found.candidates.iter().map(|one| one.seats().len()).max();
    let fits = |&length: &u16| length > 0 && usize::from(length) <= drives.unwrap_or(0);
    let mut lengths: Vec<u16> = next_to.filter(fits).collect();
    lengths.sort_unstable();
    lengths.dedup();
    // Bytes per second of each length, as logarithms.
    let mut rates: Vec<(u16, Level)> = lengths
        .into_iter()
        .map(|length| (length, Level::default()))
        .collect();
    // Long bursts differ little from each other.
    let bursts = match flood {
        Flood::Bytes(bytes) if bytes > STRIPE_FLOOD_BYTES => BURSTS / 3,
        _ => BURSTS,
    };
    // What the first bursts leave in buffers is written during the later ones.
    for &(length, _) in &rates {
        bench.rate(chunks, length, flood, Some(pattern)).await?;
    }
    for _ in 0..ROUNDS {
        for _ in 0..bursts {
            for (length, level) in &mut rates {
                level.add(bench.rate(chunks, *length, flood, Some(pattern)).await?);
            }
        }
        let seen = of_rates(&rates);
        if seen != Stripe::Unclear {
            return Ok(seen);
        }
    }
    Ok(Stripe::Unclear)
}

/// The shortest that is about as fast as the fastest, if all lengths but its multiples are surely slower.
fn of_rates(rates: &[(u16, Level)]) -> Stripe {
    let mean = |(_, level): &(u16, Level)| level.mean();
    let error = rates.iter().map(|(_, level)| level.error());
    let error = 4.0 * 2.0_f64.sqrt() * error.fold(0.0, f64::max);
    let fastest = rates.iter().max_by(|a, b| mean(a).total_cmp(&mean(b)));
    let slowest = rates.iter().min_by(|a, b| mean(a).total_cmp(&mean(b)));
    let (Some(fastest), Some(slowest)) = (fastest, slowest) else {
        return Stripe::Unclear;
    };
    if rates.len() > 1 && mean(fastest) - mean(slowest) + error < FLAT {
        return Stripe::None;
    }
    // Two stripes at once are as cheap as one, or a little cheaper where a drive has two chunks in a row.
    let divides = |one: &&(u16, Level)| fastest.0 % one.0 == 0;
    let near = |one: &&(u16, Level)| mean(fastest) - mean(one) < SLOWER;
    let shortest = rates.iter().filter(divides).find(near).unwrap_or(fastest);
    let mut others = rates.iter().filter(|(other, _)| other % shortest.0 != 0);
    let ahead = |other: &(u16, Level)| mean(shortest) - mean(other) - error > AHEAD;
    // Every length is a multiple of one chunk: there is none to be faster than.
    match shortest.0 > 1 && others.all(ahead) {
        true => Stripe::Data(shortest.0),
        false => Stripe::Unclear,
    }
}

impl Bench {
    /// Logarithm of bytes per second of aligned writes of so many chunks. With a pattern they begin at each of its chunks
    /// equally often, as far as they go.
    async fn rate(
        &mut self,
        chunks: &Chunks,
        length: u16,
        flood: Flood,
        pattern: Option<&Pattern>,
    ) -> Result<f64, End> {
        let bytes = u64::from(length) * chunks.bytes;
        let places = (self.size() - chunks.phase) / bytes;
        let requests = match flood {
            Flood::One => 1,
            Flood::Bytes(flooded) => (flooded / bytes).clamp(WRITES_MIN, WRITES_MAX),
        };
        let requests = requests.min(places);
        // Places after which the same chunks of the pattern come again.
        let turn = pattern.map_or(1, |pattern| {
            pattern.bytes / gcd(pattern.bytes, bytes).max(1)
        });
        let turn = turn.clamp(1, places);
        let count = usize::try_from(requests).unwrap_or(usize::MAX);
        let chosen: Vec<u64> = match places / turn {
            turns if turns >= requests => {
                let begins = self.different(usize::try_from(turn).unwrap_or(usize::MAX), turn);
                let rounds = self.different(count, turns).into_iter();
                let begins = begins.into_iter().cycle();
                rounds
                    .zip(begins)
                    .map(|(round, begin)| round * turn + begin)
                    .collect()
            }
            _ => self.different(count, places),
        };
        let burst = chosen.into_iter().map(|place| Request {
            offset: chunks.phase + place * bytes,
            length: bytes,
            kind: Kind::Rewrite,
        });
        let time = self.time(burst.collect()).await?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a burst")]
        let all = requests as f64 * bytes as f64;
        Ok(all.ln() - time)
    }
}
