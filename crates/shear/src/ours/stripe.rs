//! Which aligned writes cost least: those of a full stripe, which need no reads.
//!
//! Writes of one length are compared that begin at a stripe or some chunks later. Writes of different lengths cannot be
//! compared: a drive writes two chunks in a row for little more than one. Equally many writes of either kind begin at
//! each chunk of the pattern, as far as they go, so that all drives have as much to do: without parity both kinds are
//! equally fast.
//!
//! A volume may begin inside a stripe, as a partition does. If writes from its first border on are no cheaper, they are
//! tried from each of the next chunks.

use std::collections::BTreeSet;

use super::End;
use super::bench::{BLOCK, Bench, Level};
use super::chunk::{Chunks, gcd};
use super::class::Found;
use super::pattern::Pattern;
use crate::probe::{Kind, Request};

/// Bursts of each length.
const BURSTS: u32 = 12;
/// As many bursts again, at most, until the result is sure.
const ROUNDS: u32 = 5;
/// The first floods are faster while memories of array and drives have room. They do not count if they vary by more
/// than this, as a logarithm: later floods varied by up to 0.1.
const FILLING: f64 = 0.15;

/// Bytes of a burst of aligned writes if nothing is known of a buffer.
const STRIPE_FLOOD_BYTES: u64 = 4 << 20;
/// Reads between single writes: in this time flash programs what was written.
const PAUSE: usize = 16;
/// Writes of a burst, at least and at most.
const WRITES_MIN: u64 = 16;
const WRITES_MAX: u64 = 4096;
/// Rates of writes are equal within the first, as a logarithm, and surely differ above the second.
const AS_FAST: f64 = 0.2;
const SLOWER: f64 = 0.35;
/// A full stripe is faster than parts of two stripes by more than this, at every other begin. Measured differences were
/// 0.15 and more, least if one chunk of fifteen is on the other side of the border. For a length that is no stripe,
/// another begin is as good; measured differences were 0.03 at most. Half of 0.15.
const AHEAD: f64 = 0.075;

/// Bursts from each chunk on, by which the cheapest begin is chosen; this begin is then compared as the first was. For
/// writes that find drives idle, for short floods, for long floods.
const SCREEN_ONE: u32 = 6;
const SCREEN: u32 = 2;
const SCREEN_LONG: u32 = 1;

/// The result of aligned writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stripe {
    /// Writes of this many chunks are cheaper if they are aligned.
    Data {
        /// Chunks of data.
        chunks: u16,
        /// Chunks from the volume's first border to that of a stripe.
        begin: u16,
    },
    /// Writes cost the same wherever they begin: no length above one chunk is that of a stripe.
    None,
    /// Neither is sure.
    Unclear,
}

/// The kind of a burst of aligned writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// So many bytes at once: more than buffers hold.
    Bytes(u64),
    /// One write to an idle array: its latency shows whether the array reads.
    One,
}

/// The least of `widths` whose aligned writes are as cheap as the best: several stripes at once are no cheaper than
/// one. Writes of one chunk must cost more; otherwise a memory takes them, and writes them in an order of its own.
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
                let writes = Writes::aligned(chunks, (*width, 0), None);
                let flood = Flood::Bytes(STRIPE_FLOOD_BYTES);
                level.add(bench.rate(writes, flood).await?);
            }
        }
        if let Some(width) = of_widths(&rates) {
            return Ok(Some(width));
        }
    }
    Ok(None)
}

/// The first width that is about as fast as the fastest, if all widths before it are surely slower.
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

/// Data chunks of the stripe, of the numbers that the candidates have: the longest writes that cost more wherever else
/// they begin. Shorter writes whose length divides the stripe cost more elsewhere, too. For a length that does not
/// divide the stripe, writes begin as many chunks behind a stripe's border as writes that begin the greatest common
/// divisor later, and cost as much.
pub(super) async fn full(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    found: &Found,
    flood: Flood,
) -> Result<Stripe, End> {
    let with_parity = found.candidates.iter().filter(|one| one.parity > 0);
    let lengths: BTreeSet<u16> = with_parity.map(|one| one.data).collect();
    let mut unclear = Vec::new();
    for &length in lengths.iter().rev().filter(|&&length| length > 1) {
        let first = found.begin(length);
        let mut begin = first;
        let mut is_stripe = costs_least(bench, pattern, chunks, (length, begin), flood).await?;
        if is_stripe == Some(false) {
            begin = cheapest(bench, pattern, chunks, length, flood).await?;
            if begin != first {
                is_stripe = costs_least(bench, pattern, chunks, (length, begin), flood).await?;
            }
        }
        match is_stripe {
            Some(true) if unclear.iter().all(|longer| longer % length != 0) => {
                return Ok(Stripe::Data {
                    chunks: length,
                    begin,
                });
            }
            Some(true) => return Ok(Stripe::Unclear),
            Some(false) => {}
            None => unclear.push(length),
        }
    }
    Ok(match unclear.is_empty() {
        true => Stripe::None,
        false => Stripe::Unclear,
    })
}

/// Whether writes of `length` chunks from `begin` on surely cost less than writes that begin later; `None` if that is
/// not sure.
async fn costs_least(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    (length, begin): (u16, u16),
    flood: Flood,
) -> Result<Option<bool>, End> {
    let from = chunks.later(begin);
    let mut least = Some(true);
    for shift in (1..length).filter(|shift| length.is_multiple_of(*shift)) {
        match shifted(bench, pattern, &from, (length, shift), flood).await? {
            // Writes that begin `shift` chunks later cost no more: the length is no stripe.
            Some(false) => return Ok(Some(false)),
            Some(true) => {}
            None => least = None,
        }
    }
    Ok(least)
}

/// The chunk from which on writes of `length` chunks seem to cost least.
async fn cheapest(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    length: u16,
    flood: Flood,
) -> Result<u16, End> {
    let bursts = match flood {
        Flood::One => SCREEN_ONE,
        Flood::Bytes(bytes) if bytes > STRIPE_FLOOD_BYTES => SCREEN_LONG,
        Flood::Bytes(_) => SCREEN,
    };
    let mut best = (f64::NEG_INFINITY, 0);
    for begin in 0..length {
        let writes = Writes::aligned(chunks, (length, begin), Some(pattern));
        let mut level = level(bench, flood);
        for _ in 0..bursts {
            level.add(-bench.rate_after_pause(writes, flood).await?);
        }
        if -level.mean() > best.0 {
            best = (-level.mean(), begin);
        }
    }
    Ok(best.1)
}

/// Other work of the drives may delay a write to an idle array, and never speeds it up.
fn level(bench: &Bench, flood: Flood) -> Level {
    match flood {
        Flood::One => bench.level(),
        Flood::Bytes(_) => Level::default(),
    }
}

/// Whether chunks of half the size, two in a row on each drive, are those of stripes that begin between the two; `None`
/// if that is not sure.
///
/// Writes as long as the pattern use all drives equally. From such a border on they are full stripes; half a stripe
/// later they begin and end with a half-written stripe, the rest of which is read. In stripes of chunks of the whole
/// size as much is missing either way, on average over all of a drive's chunks: then a part of a stripe is always
/// missing from such a border on. Therefore a single write is compared with a write that ends a block earlier.
pub(super) async fn between_halves(
    bench: &mut Bench,
    pattern: &Pattern,
    halves: &Chunks,
    begin: u16,
    flood: Flood,
) -> Result<Option<bool>, End> {
    let whole = Writes {
        begin: halves.later(begin).phase,
        bytes: pattern.bytes,
        every: 2 * halves.bytes,
        turn: pattern.bytes / (2 * halves.bytes),
        counted: pattern.bytes,
    };
    let other = match flood {
        Flood::One => Writes {
            bytes: pattern.bytes - BLOCK,
            ..whole
        },
        Flood::Bytes(_) => Writes {
            begin: whole.begin + halves.bytes,
            ..whole
        },
    };
    dearer(bench, [whole, other], flood).await
}

/// Whether writes of `length` chunks surely cost more if they begin `shift` chunks later; `None` if that is not sure.
async fn shifted(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
    (length, shift): (u16, u16),
    flood: Flood,
) -> Result<Option<bool>, End> {
    let writes = [0, shift].map(|shift| Writes::aligned(chunks, (length, shift), Some(pattern)));
    dearer(bench, writes, flood).await
}

/// Whether the second writes surely cost more than the first; `None` if that is not sure.
async fn dearer(bench: &mut Bench, writes: [Writes; 2], flood: Flood) -> Result<Option<bool>, End> {
    // Long bursts differ little from each other.
    let bursts = match flood {
        Flood::Bytes(bytes) if bytes > STRIPE_FLOOD_BYTES => BURSTS / 3,
        _ => BURSTS,
    };
    // Logarithms of seconds per byte.
    let mut levels = writes.map(|writes| (writes, level(bench, flood)));
    // Data that the first bursts leave in buffers is written during the later bursts.
    bench.rate(writes[1], flood).await?;
    for round in 0..=ROUNDS {
        for _ in 0..bursts {
            for (writes, level) in &mut levels {
                level.add(-bench.rate_after_pause(*writes, flood).await?);
            }
        }
        let varies = |(_, level): &(Writes, Level)| level.deviation() > FILLING;
        if round == 0 && flood != Flood::One && levels.iter().any(varies) {
            for (_, level) in &mut levels {
                *level = Level::default();
            }
            continue;
        }
        let [(_, first), (_, second)] = &levels;
        let seen = match flood {
            Flood::One if round == 0 => None,
            Flood::One => none_as_fast(first, second),
            Flood::Bytes(_) => surely_slower(first, second),
        };
        if seen.is_some() {
            return Ok(seen);
        }
    }
    Ok(None)
}

/// Whether the mean of the second is surely higher, or surely not higher.
fn surely_slower(first: &Level, second: &Level) -> Option<bool> {
    let error = 4.0 * (first.error().powi(2) + second.error().powi(2)).sqrt();
    let slower = second.mean() - first.mean();
    match () {
        () if slower - error > AHEAD => Some(true),
        () if slower + error < AHEAD => Some(false),
        () => None,
    }
}

/// For single writes to an idle array: whether none of the second is as fast as nearly all of the first. Each full
/// stripe takes the same time, and each other write reads. `None` if neither is so.
///
/// If the length is no stripe, writes of both kinds are full stripes at equally many places, and a mean or a quartile
/// of some of them differs by chance: of writes of five chunks on stripes of four, a quarter are fast.
///
/// ```text
///   stripes of five    first  ▪▪▪▪▪▪▪▪          second              ▪▪▪▪▪▪▪▪
///   stripes of four    first  ▪▪     ▪▪ ▪▪  ▪▪  second ▪▪     ▪▪ ▪▪  ▪▪        ──► time
/// ```
fn none_as_fast(first: &Level, second: &Level) -> Option<bool> {
    let fastest = second.lower(12);
    match () {
        () if fastest > first.upper_quartile() + AHEAD => Some(true),
        () if fastest < first.lower_quartile() + AHEAD => Some(false),
        () => None,
    }
}

/// Writes of one length at places that are equally far apart.
#[derive(Clone, Copy, Debug)]
struct Writes {
    /// The first byte of the first place.
    begin: u64,
    /// Bytes of a write.
    bytes: u64,
    /// Bytes from a place to the next.
    every: u64,
    /// Places after which the same chunks of the pattern come again: each of them is written equally often.
    turn: u64,
    /// Bytes for which one write counts.
    counted: u64,
}

impl Writes {
    /// Aligned writes of `length` chunks, from `shift` chunks on. With a pattern they begin at each of its chunks
    /// equally often, as far as they go.
    fn aligned(chunks: &Chunks, (length, shift): (u16, u16), pattern: Option<&Pattern>) -> Self {
        let bytes = u64::from(length) * chunks.bytes;
        Self {
            begin: chunks.later(shift).phase,
            bytes,
            every: bytes,
            turn: pattern.map_or(1, |pattern| {
                pattern.bytes / gcd(pattern.bytes, bytes).max(1)
            }),
            counted: bytes,
        }
    }
}

impl Bench {
    /// The rate of writes, after a pause if they are to find drives idle.
    async fn rate_after_pause(&mut self, writes: Writes, flood: Flood) -> Result<f64, End> {
        if flood == Flood::One {
            self.anywhere(PAUSE).await?;
        }
        self.rate(writes, flood).await
    }

    /// Logarithm of bytes per second.
    async fn rate(&mut self, writes: Writes, flood: Flood) -> Result<f64, End> {
        let Writes {
            begin,
            bytes,
            every,
            ..
        } = writes;
        let places = (self.size() - begin - (bytes.max(every) - every)) / every;
        let requests = match flood {
            Flood::One => 1,
            Flood::Bytes(flooded) => (flooded / bytes).clamp(WRITES_MIN, WRITES_MAX),
        };
        let requests = requests.min(places);
        let turn = writes.turn.clamp(1, places);
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
            offset: begin + place * every,
            length: bytes,
            kind: Kind::Rewrite,
        });
        let time = self.time(burst.collect()).await?;
        #[expect(clippy::cast_precision_loss, reason = "bytes of a burst")]
        let all = requests as f64 * writes.counted as f64;
        Ok(all.ln() - time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(values: &[f64]) -> Level {
        let mut level = Level::default();
        level.extend(values.iter().copied());
        level
    }

    #[test]
    fn single_writes_are_full_stripes_if_all_of_them_are_fast_and_none_of_the_others_is() {
        // Two of 24 were late, one of the others early.
        let mut full = vec![0.0; 22];
        full.extend([0.4, 1.0]);
        let mut part = vec![0.5; 23];
        part.push(0.0);
        assert_eq!(none_as_fast(&level(&full), &level(&part)), Some(true));
        assert_eq!(none_as_fast(&level(&full), &level(&full)), Some(false));
    }

    #[test]
    fn single_writes_of_which_some_are_full_stripes_are_not() {
        // Writes of five chunks on stripes of four: by chance more of the first are fast, and the quartiles differ.
        let mixed = |fast: usize| {
            let mut values = vec![0.0; fast];
            values.resize(18, 0.15);
            values.resize(24, 1.64);
            level(&values)
        };
        for (first, second) in [(16, 5), (9, 3), (5, 16), (6, 6)] {
            let seen = none_as_fast(&mixed(first), &mixed(second));
            assert_eq!(seen, Some(false), "{first} and {second}");
        }
        // Three quarters of the first are fast and hardly any of the second: no result.
        assert_eq!(none_as_fast(&mixed(18), &mixed(2)), None);
    }
}
