//! How many drives serve one chunk.
//!
//! Few reads of one chunk at once: one drive takes them one after the other, two copies take two at
//! the time of one. The first number of reads that takes clearly longer than one is one more than
//! the copies. A drive that serves many requests at once (flash) looks the same: then it cannot be told.

use super::bench::{Bench, Level, Sequential};
use super::ground::Ground;
use super::pattern::Pattern;
use super::{DECISION_ERROR, End};

/// More copies than this are a drive's own parallelism.
const COPIES_MAX: usize = 4;
const BURSTS_MAX: u32 = 300;

/// Copies of each chunk; `None` where a drive's own parallelism hides them.
pub(super) async fn count(
    bench: &mut Bench,
    ground: &Ground,
    pattern: &Pattern,
) -> Result<Option<u16>, End> {
    let mut single = ground.single.clone();
    for _ in 0..16 {
        single.add(bench.stride(pattern.bytes, 1).await?);
    }
    for copies in 1..=COPIES_MAX {
        // In parallel: the latest of a few, 15 to 40 % above one. In turn on one drive: nearly twice.
        let alone = single.mean() + 0.22;
        let queued = single.mean() + 0.62;
        let deviation = single.deviation().max(0.1);
        let mut test = Sequential::new(vec![alone, queued], deviation, DECISION_ERROR);
        let mut level = Level::default();
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
                return Ok(u16::try_from(copies).ok());
            }
            Some(false) => {}
            None => return Ok(None),
        }
    }
    Ok(None)
}
