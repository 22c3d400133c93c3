//! Whether a memory (a write buffer of the array or of a drive) takes writes, and how many writes are needed to see
//! past it.
//!
//! A memory acknowledges a write before a drive could have, and writes it to the drive later, in sorted order. If a
//! burst is many times as long as the memory's capacity, most of the burst reaches the drives while it runs. Then a
//! burst of a quarter of the length takes as long per write.

use super::End;
use super::bench::{BLOCK, Bench, Spot};
use super::chunk::Chunks;
use super::pattern::Pattern;
use super::writes::{FLOOD_MAX, FLOOD_SECONDS_MAX, STEADY};
use crate::probe::{Kind, Request};

/// Trials with single writes, and with queues.
const TRIALS: u32 = 12;
/// Writes that are tried behind queues of reads, and how many of them must end before the queue: a memory may answer
/// the reads of one queue. On two drives half of all pairs of places are apart; fewer than three of 32 pairs are apart
/// in one of eight million cases.
const PAIRS: u32 = 32;
const FREE_MIN: u32 = 3;
/// Bursts of each length of a flood.
const BURSTS: u32 = 5;
/// A write that takes less than this part of a read has not waited for a drive: a quarter.
const BUFFERED: f64 = 0.25;

/// Whether single writes are answered before a drive could have.
pub(super) async fn are_there(bench: &mut Bench) -> Result<bool, End> {
    let (mut reads, mut writes) = (bench.level(), bench.level());
    for _ in 0..TRIALS {
        reads.add(bench.single(Kind::Read).await?);
        writes.add(bench.single(Kind::Rewrite).await?);
    }
    Ok(writes.mean() < reads.mean() + BUFFERED.ln())
}

/// Whether only drives have write buffers: then a write behind a queue of reads on its drive waits for these reads.
pub(super) async fn are_the_drives(bench: &mut Bench, pattern: &Pattern) -> Result<bool, End> {
    let Some(single) = bench.in_order else {
        return Ok(false);
    };
    for _ in 0..TRIALS {
        if bench.write_behind(pattern, pattern.depth).await? < single {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether each write uses all drives, and waits for what they read: then a write never ends before a queue of reads,
/// on whatever drive the queue is. `None` if neither is sure.
pub(super) async fn ask_all_drives(
    bench: &mut Bench,
    pattern: &Pattern,
) -> Result<Option<bool>, End> {
    let Some(single) = bench.in_order else {
        return Ok(None);
    };
    let mut free = 0;
    for _ in 0..PAIRS {
        let [front, behind] = [0, 1].map(|_| bench.below(pattern.bytes / BLOCK) * BLOCK);
        let time = bench.write_behind_at(pattern, (front, pattern.depth), behind);
        free += u32::from(time.await? < single);
    }
    Ok(match free {
        0 => Some(true),
        FREE_MIN.. => Some(false),
        _ => None,
    })
}

/// Writes of a burst that is so long that buffers take little of it: a burst of a quarter takes as long per write.
pub(super) async fn flood(
    bench: &mut Bench,
    pattern: &Pattern,
    chunks: &Chunks,
) -> Result<Option<usize>, End> {
    let places = usize::try_from(pattern.bytes / chunks.bytes).unwrap_or(usize::MAX);
    let mut before: Option<f64> = None;
    let mut each = (FLOOD_MAX / 16).div_ceil(places);
    while each * places <= 2 * FLOOD_MAX {
        let mut level = bench.level();
        for _ in 0..BURSTS {
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

impl Bench {
    /// One request of one block at a random place.
    async fn single(&mut self, kind: Kind) -> Result<f64, End> {
        let offsets = self.blocks(1).into_iter();
        let requests = offsets.map(|offset| Request {
            offset,
            length: BLOCK,
            kind,
        });
        Ok(self.time(requests.collect()).await?)
    }

    /// A write behind `front` reads of one block, on the same drive as the reads.
    async fn write_behind(&mut self, pattern: &Pattern, front: usize) -> Result<f64, End> {
        let residue = self.below(pattern.bytes / BLOCK) * BLOCK;
        self.write_behind_at(pattern, (residue, front), residue)
            .await
    }

    /// A write behind so many reads of one block at a place of the pattern.
    async fn write_behind_at(
        &mut self,
        pattern: &Pattern,
        (front, reads): (u64, usize),
        behind: u64,
    ) -> Result<f64, End> {
        let spot = Spot {
            residue: 0,
            requests: 2,
        };
        let places = self.at(pattern.bytes, &[spot], Kind::Read);
        let read = Request {
            offset: places[0].offset + front,
            ..places[0]
        };
        let write = Request {
            offset: places[1].offset + behind,
            kind: Kind::Rewrite,
            ..places[1]
        };
        let reads = std::iter::repeat_n(read, reads);
        let requests = reads.chain(std::iter::once(write)).collect();
        Ok(self.time_of_last(requests).await?)
    }
}
