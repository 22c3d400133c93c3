//! Drives that answer in the order of the requests.
//!
//! A flash drive is an array of dies. Reads of different dies do not wait for each other, so bursts show dies and not
//! drives, until they are so deep that all dies of a drive are busy. But if a drive answers in order, a read that has
//! long been done waits for the answers before it:
//!
//! ```text
//!   requests     a a a a a a a a b         one block a many times, so one die after the other; then b
//!   another die  ████████ ██ b             done with its first a, answered with its last
//!   other drive  ██ b                      answered at once
//! ```
//!
//! Therefore a burst is a queue of reads of one block, and the time of the reads behind the queue shows whether they
//! share its drive. A read of the same *die* takes its own time after the queue. This distinguishes drives whose
//! answers overtake each other from drives that answer in order: in the former, only such reads are late.

use super::End;
use super::bench::Bench;

/// Queues at different blocks.
const QUEUES: usize = 64;
/// Reads of a queue's block, and blocks that are read behind it.
const FRONT: usize = 16;
const BEHIND: usize = 8;
/// Reads that a queue must delay by its order, at least: of 512 reads on 40 drives there are 13.
const DELAYED_MIN: usize = 6;

/// Whether drives answer in order, and there are several drives. `single` is the usual time of a read, in seconds.
pub(super) async fn is_kept(bench: &mut Bench, single: f64) -> Result<bool, End> {
    let (mut delayed, mut queued, mut free) = (0, 0, 0);
    for _ in 0..QUEUES {
        let Some((front, behind)) = bench.behind(FRONT, BEHIND).await? else {
            continue;
        };
        if front < 4.0 * single {
            // A memory or several copies served the queue: too short to wait for.
            continue;
        }
        for time in behind {
            match time {
                _ if time < front / 2.0 => free += 1,
                _ if time < front + single / 2.0 => delayed += 1,
                _ => queued += 1,
            }
        }
    }
    // If nearly all reads wait, there is one drive, or one queue before the drives.
    Ok(delayed >= DELAYED_MIN && delayed > 2 * queued && free > delayed / 4)
}
