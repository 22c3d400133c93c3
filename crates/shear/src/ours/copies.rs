//! How many drives serve one chunk.
//!
//! With few reads of one chunk at once, one drive serves them one after the other, and two copies serve two in the time
//! of one. The first number of reads that takes clearly longer than one read is the number of copies plus one. A drive
//! that serves many requests at once (flash) looks the same: then the number cannot be determined.
//!
//! Arrays may choose the copy by place, and serve two blocks of a chunk from one drive although both could come from
//! two. Then one *block* that is read many times at once shows stairs: as many reads as there are copies end together,
//! and as many more take twice the time. A drive's own cache answers all reads at once, and shows no stairs.

use super::bench::{Bench, Level};
use super::ground::Ground;
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};

/// More copies than this are taken for a drive's own parallelism.
const COPIES_MAX: usize = 4;
const BURSTS_MAX: u32 = 300;
/// Bursts of a step of the stairs.
const STAIR_BURSTS: u32 = 15;
/// Stairs are measured again this many times at most: a busy host makes steps higher.
const STAIR_ROUNDS: u32 = 6;
/// The step of the stairs is at least this part of one read.
const STEP_MIN: f64 = 0.6;
/// Pairs of blocks that are tried before all blocks are taken to be on the same drives: a tenth of the volume on other
/// drives would be missed in 1 of 10,000 cases.
const UNSTRIPED_PAIRS: u32 = 48;
/// Reads of each block of a pair.
const UNSTRIPED_READS: usize = 12;

/// The result of many reads of one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stairs {
    /// This many reads end together, and as many again take twice the time.
    Copies(u16),
    /// All end together: a memory serves them.
    Flat,
    /// Neither is sure.
    Unclear,
}

/// Copies of each chunk; `None` if a drive's own parallelism hides them.
pub(super) async fn count(
    bench: &mut Bench,
    ground: &Ground,
    stairs: Option<Stairs>,
    pattern: &Pattern,
) -> Result<Option<u16>, End> {
    match stairs {
        Some(Stairs::Copies(copies)) => Ok(Some(copies)),
        Some(Stairs::Unclear) => Err(End::Unsure(
            "how many drives serve one block cannot be told: times of many reads of it are no multiples of that of one"
                .to_owned(),
        )),
        // Behind a queue one more read waits however many copies there are.
        Some(Stairs::Flat) | None if bench.in_order.is_some() => Ok(None),
        Some(Stairs::Flat) | None => by_stride(bench, ground, pattern).await,
    }
}

/// How many reads of one block end together, as more and more reads are sent; `None` if drives do not always take the
/// same time.
pub(super) async fn stairs(bench: &mut Bench) -> Result<Option<Stairs>, End> {
    if !bench.constant {
        return Ok(None);
    }
    let mut steps = vec![bench.level(); 2 * COPIES_MAX + 1];
    for _ in 0..STAIR_ROUNDS {
        for _ in 0..STAIR_BURSTS {
            for (index, level) in steps.iter_mut().enumerate() {
                level.extend(bench.blocks_often(1, index + 1).await?);
            }
        }
        let seen = of_steps(&steps);
        if seen != Stairs::Unclear {
            bench.desk.spend(DECISION_ERROR);
            return Ok(Some(seen));
        }
    }
    Ok(Some(Stairs::Unclear))
}

/// Waiting makes a burst later and never earlier: the faster bursts show the drives. A step may be shorter than one
/// read: a part of a read's time is spent on the way, where the read keeps no other read waiting.
fn of_steps(steps: &[Level]) -> Stairs {
    let times: Vec<f64> = steps.iter().map(|level| level.lower(8).exp()).collect();
    let (single, last) = (times[0], times[times.len() - 1]);
    #[expect(clippy::cast_precision_loss, reason = "a few steps")]
    let steps_up = |index: usize, copies: usize| (index / copies) as f64;
    let fits = |copies: usize| {
        let up = steps_up(times.len() - 1, copies).max(1.0);
        let step = ((last - single) / up).clamp(STEP_MIN * single, single);
        times.iter().enumerate().all(|(index, time)| {
            let expected = steps_up(index, copies).mul_add(step, single);
            (time / expected).ln().abs() < 0.1
        })
    };
    if fits(usize::MAX) {
        return Stairs::Flat;
    }
    let copies = (1..=COPIES_MAX).find(|&copies| fits(copies));
    copies.map_or(Stairs::Unclear, |copies| {
        Stairs::Copies(u16::try_from(copies).unwrap_or(u16::MAX))
    })
}

/// Whether any two blocks are on the same drives. If so, nothing is striped.
pub(super) async fn unstriped(bench: &mut Bench) -> Result<bool, End> {
    let mut alone = bench.level();
    for _ in 0..STAIR_BURSTS {
        alone.extend(bench.blocks_often(1, 2 * UNSTRIPED_READS).await?);
    }
    for _ in 0..UNSTRIPED_PAIRS {
        let pair = bench.blocks_often(2, UNSTRIPED_READS).await?;
        if pair.is_some_and(|pair| pair < alone.lower_quartile() - 0.2) {
            return Ok(false);
        }
    }
    bench.desk.spend(1e-4);
    Ok(true)
}

async fn by_stride(
    bench: &mut Bench,
    ground: &Ground,
    pattern: &Pattern,
) -> Result<Option<u16>, End> {
    let mut single = ground.single.clone();
    for _ in 0..16 {
        single.add(bench.stride(pattern.bytes, 1).await?);
    }
    for copies in 1..=COPIES_MAX {
        // In parallel: the latest of a few reads takes 15 to 40 % longer than one. In turn on one drive: nearly twice
        // as long.
        let alone = single.mean() + 0.22;
        let queued = single.mean() + 0.62;
        let deviation = single.deviation().max(0.1);
        let mut test = bench.test(vec![alone, queued], deviation, DECISION_ERROR);
        let mut level = bench.level();
        let mut waits = None;
        for _ in 0..BURSTS_MAX {
            let time = bench.stride(pattern.bytes, copies + 1).await?;
            level.add(time);
            if let Some(index) = test.add(time) {
                waits = Some(index == 1);
                break;
            }
        }
        match waits {
            Some(true) => {
                bench.desk.spend(DECISION_ERROR);
                let copies = u16::try_from(copies).ok();
                return match bench.constant && !always_waits(bench, pattern, copies, alone).await? {
                    true => Ok(None),
                    false => Ok(copies),
                };
            }
            Some(false) => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}

/// Whether one read more than there are copies waits at every place. If the array chooses the copy by place, some reads
/// do not wait.
async fn always_waits(
    bench: &mut Bench,
    pattern: &Pattern,
    copies: Option<u16>,
    alone: f64,
) -> Result<bool, End> {
    for _ in 0..32 {
        let requests = usize::from(copies.unwrap_or(1)) + 1;
        if bench.stride(pattern.bytes, requests).await? < alone {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps with waits that a busy host adds to two bursts of three.
    fn steps(turns: impl Fn(usize) -> f64) -> Vec<Level> {
        (0..9)
            .map(|index| {
                let mut level = Level::default();
                for burst in 0..15_u32 {
                    let waits = f64::from(burst % 3) * 0.4;
                    level.add((0.002 * turns(index)).ln() + waits);
                }
                level
            })
            .collect()
    }

    #[expect(clippy::cast_precision_loss, reason = "a few steps")]
    #[test]
    fn stairs_are_as_wide_as_there_are_copies() {
        for copies in 1..=COPIES_MAX {
            let seen = of_steps(&steps(|index| (index / copies + 1) as f64));
            assert_eq!(seen, Stairs::Copies(u16::try_from(copies).unwrap()));
        }
        assert_eq!(of_steps(&steps(|_| 1.0)), Stairs::Flat);
        assert_eq!(
            of_steps(&steps(|index| 1.0 + index as f64 / 3.0)),
            Stairs::Unclear
        );
    }
}
