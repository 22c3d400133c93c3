//! Whether a memory takes writes, and how many writes it takes to see past it.
//!
//! A memory answers a write before a drive could have, and puts it in place later, sorted. Of a burst that is many times as
//! long as what it holds, most is written during the burst: then a burst of a quarter takes as long for each write.

use super::End;
use super::bench::{BLOCK, Bench, Spot};
use super::chunk::Chunks;
use super::pattern::Pattern;
use super::writes::{FLOOD_MAX, FLOOD_SECONDS_MAX, STEADY};
use crate::probe::{Kind, Request};

/// Single writes, and queues.
const TRIALS: u32 = 12;
/// Writes behind queues that may be on other drives, and how many must be free of them: a memory may answer the reads of one.
/// On two drives half of all pairs are apart, and of 32 fewer than three are in one of eight million cases.
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

/// Whether only drives have them: a write behind a queue of reads of its drive waits for these then.
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

/// Whether each write asks all drives, where it waits for what these read: then it is never done before a queue of reads
/// is, on whatever drive they are. `None` where neither is sure.
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

/// Writes of a burst that is so long that what buffers take is little of it: a burst of a quarter takes as long for each.
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
