//! What one read takes, what many take, and whether anything can be told at all.

use super::End;
use super::bench::{Bench, Level};

/// Reads answered in less than this come from a memory: no drive takes a random read in 15 µs. In seconds.
const DRIVE_SECONDS_MIN: f64 = 15e-6;
/// Reads answered in less than this come from flash: a disk turns for longer. In seconds.
const FLASH_SECONDS_MAX: f64 = 500e-6;
/// Bursts of a level.
const BURSTS: u32 = 16;

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
    // The first burst wakes what sleeps: it does not count.
    bench.anywhere(8).await?;
    let mut single = Level::default();
    for _ in 0..2 * BURSTS {
        single.add(bench.anywhere(1).await?);
    }
    if single.mean() < DRIVE_SECONDS_MIN.ln() {
        return Err(End::CannotTell(format!(
            "reads are answered in {:.1} µs, faster than any drive: a cache holds the volume, or its space was never written",
            single.mean().exp() * 1e6
        )));
    }
    if single.mean() < FLASH_SECONDS_MAX.ln() {
        return Err(End::CannotTell(format!(
            "one read takes {:.0} µs: flash, whose drives are arrays of dies themselves; bursts show dies and not drives",
            single.mean().exp() * 1e6
        )));
    }
    Ok(Ground { single })
}

/// `requests` reads anywhere at once.
pub(super) async fn anywhere(bench: &mut Bench, requests: usize) -> Result<Level, End> {
    let mut level = Level::default();
    for _ in 0..BURSTS {
        level.add(bench.anywhere(requests).await?);
    }
    Ok(level)
}
