//! How long one read and many reads take, and whether the volume can be analysed at all.

use super::End;
use super::bench::{Bench, Level};
use super::order;

/// Reads answered in less than this come from a memory: no drive takes a random read in 15 µs. In seconds.
const DRIVE_SECONDS_MIN: f64 = 15e-6;
/// Reads answered in less than this come from flash: a disk's rotation takes longer. In seconds.
const FLASH_SECONDS_MAX: f64 = 500e-6;
/// Bursts of a level.
const BURSTS: u32 = 16;

/// Reads answered in less than this part of the usual time come from a memory, if drives always take the same time.
const MEMORY_CONSTANT: f64 = 0.5;
/// The same if drives do not: a disk's luckiest read is a tenth of its mean.
const MEMORY_VARYING: f64 = 1.0 / 16.0;

/// Reads differ by less than this, as a logarithm, if drives always take the same time.
const CONSTANT: f64 = 0.06;

/// What is known before the first stride.
#[derive(Clone, Debug)]
pub(super) struct Ground {
    /// One read at a time.
    pub(super) single: Level,
}

pub(super) async fn measure(bench: &mut Bench) -> Result<Ground, End> {
    if bench.size() < 64 << 20 {
        return Err(End::CannotTell(format!(
            "the volume of {} bytes is too small: at least 64 MiB are needed",
            bench.size()
        )));
    }
    // The first burst wakes sleeping drives: it does not count.
    bench.anywhere(8).await?;
    let mut times = Vec::new();
    for _ in 0..2 * BURSTS {
        times.push(bench.anywhere(1).await?);
    }
    times.sort_by(f64::total_cmp);
    let usual = times[times.len() / 2];
    if usual < DRIVE_SECONDS_MIN.ln() {
        return Err(End::CannotTell(format!(
            "reads are answered in {:.1} µs, faster than any drive: a cache holds the volume, or its space was never written",
            usual.exp() * 1e6
        )));
    }
    // Waiting makes reads later and never earlier: if a quarter of them is as fast as the fastest, drives always take
    // the same time.
    let of_drives = |part: f64| -> Vec<f64> {
        let least = usual + part.ln();
        let all = times.iter().copied();
        all.filter(|&time| time >= least).collect()
    };
    let drives = of_drives(MEMORY_CONSTANT / 2.0);
    let constant = drives[drives.len() / 4] - drives[0] < CONSTANT;
    let part = match constant {
        true => MEMORY_CONSTANT,
        false => MEMORY_VARYING,
    };
    bench.memory_seconds = usual.exp() * part;
    bench.constant = constant;
    if usual < FLASH_SECONDS_MAX.ln() {
        if !order::is_kept(bench, usual.exp()).await? {
            return Err(End::CannotTell(format!(
                "one read takes {:.0} µs: a cache or space that was never written, or flash, whose drives are arrays of dies themselves; bursts show dies and not drives, and answers come in no order that would show drives",
                usual.exp() * 1e6
            )));
        }
        bench.in_order = Some(usual);
    }
    let mut single = bench.level();
    for time in of_drives(part) {
        single.add(time);
    }
    Ok(Ground { single })
}

/// `requests` reads anywhere at once.
pub(super) async fn anywhere(bench: &mut Bench, requests: usize) -> Result<Level, End> {
    let mut level = bench.level();
    for _ in 0..BURSTS {
        level.add(bench.anywhere(requests).await?);
    }
    Ok(level)
}
