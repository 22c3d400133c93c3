//! Which aligned writes cost least: those of a full stripe, which are written without reading.
//!
//! Writes of one length are compared, which begin at a stripe or some chunks later: lengths differ by themselves, for a
//! drive writes two chunks in a row for little more than one. Of either kind as many begin at each chunk of the pattern,
//! as far as they go, so that all drives have as much to do: without parity both are as fast.

use std::collections::BTreeSet;

use super::End;
use super::bench::{Bench, Level};
use super::chunk::{Chunks, gcd};
use super::class::Found;
use super::pattern::Pattern;
use crate::probe::{Kind, Request};

/// Bursts of each length.
const BURSTS: u32 = 12;
/// As many bursts again, at most, until it is sure.
const ROUNDS: u32 = 5;

/// Bytes of a burst of aligned writes where nothing is known of a buffer.
const STRIPE_FLOOD_BYTES: u64 = 4 << 20;
/// Reads between single writes: meanwhile flash programs what was written.
const PAUSE: usize = 16;
/// Writes of a burst, at least and at most.
const WRITES_MIN: u64 = 16;
const WRITES_MAX: u64 = 4096;
/// Rates of writes are alike within this, as a logarithm, and differ surely above the other.
const AS_FAST: f64 = 0.2;
const SLOWER: f64 = 0.35;
/// A full stripe is faster than parts of two by more than this: it was by 0.27 and more, and what is no stripe by 0.08 at
/// most.
const AHEAD: f64 = 0.15;

/// What aligned writes say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stripe {
    /// Writes of so many chunks are cheaper where they are aligned.
    Data(u16),
    /// Wherever writes begin, they cost the same: no length above one chunk is that of a stripe.
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
                        .rate(chunks, (*width, 0), Flood::Bytes(STRIPE_FLOOD_BYTES), None)
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

/// Data chunks of the stripe, of those that the candidates give: the longest writes that cost more wherever else they
/// begin. So do shorter ones, which divide the stripe, when they lie across its border, but not when they begin a length
/// later.
pub(super) async fn full(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &Found,
    flood: Flood,
) -> Result<Stripe, End> {
    let lengths: BTreeSet<u16> = found.candidates.iter().map(|one| one.data).collect();
    for &length in lengths.iter().rev().filter(|&&length| length > 1) {
        // Later by one chunk first: unless that costs more, the length is no stripe.
        let shifts = (1..length).filter(|shift| length.is_multiple_of(*shift));
        let mut costs = None;
        for shift in shifts {
            costs = shifted(bench, pattern, chunks, (length, shift), flood).await?;
            if costs != Some(true) {
                break;
            }
        }
        match costs {
            Some(true) => return Ok(Stripe::Data(length)),
            Some(false) => {}
            None => return Ok(Stripe::Unclear),
        }
    }
    Ok(Stripe::None)
}

/// Whether writes of `length` chunks cost surely more where they begin `shift` chunks later; `None` where it is not sure.
async fn shifted(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    (length, shift): (u16, u16),
    flood: Flood,
) -> Result<Option<bool>, End> {
    // Long bursts differ little from each other.
    let bursts = match flood {
        Flood::Bytes(bytes) if bytes > STRIPE_FLOOD_BYTES => BURSTS / 3,
        _ => BURSTS,
    };
    // A write to an idle array is late by what its drives do besides, and never early.
    let level = match flood {
        Flood::One => bench.level(),
        Flood::Bytes(_) => Level::default(),
    };
    // Logarithms of seconds for each byte.
    let mut levels = [(0, level.clone()), (shift, level)];
    // What the first bursts leave in buffers is written during the later ones.
    bench
        .rate(chunks, (length, shift), flood, Some(pattern))
        .await?;
    for _ in 0..ROUNDS {
        for _ in 0..bursts {
            for (shift, level) in &mut levels {
                if flood == Flood::One {
                    bench.anywhere(PAUSE).await?;
                }
                let rate = bench.rate(chunks, (length, *shift), flood, Some(pattern));
                level.add(-rate.await?);
            }
        }
        let [(_, aligned), (_, shifted)] = &levels;
        let error = 4.0 * (aligned.error().powi(2) + shifted.error().powi(2)).sqrt();
        let slower = shifted.mean() - aligned.mean();
        if slower - error > AHEAD {
            return Ok(Some(true));
        }
        if slower + error < AHEAD {
            return Ok(Some(false));
        }
    }
    Ok(None)
}

impl Bench {
    /// Logarithm of bytes per second of aligned writes of so many chunks, from so many chunks on. With a pattern they begin
    /// at each of its chunks equally often, as far as they go.
    async fn rate(
        &mut self,
        chunks: &Chunks,
        (length, shift): (u16, u16),
        flood: Flood,
        pattern: Option<&Pattern>,
    ) -> Result<f64, End> {
        let bytes = u64::from(length) * chunks.bytes;
        let begin = chunks.phase + u64::from(shift) * chunks.bytes;
        let places = (self.size() - begin) / bytes;
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
            offset: begin + place * bytes,
            length: bytes,
            kind: Kind::Rewrite,
        });
        let time = self.time(burst.collect()).await?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a burst")]
        let all = requests as f64 * bytes as f64;
        Ok(all.ln() - time)
    }
}
