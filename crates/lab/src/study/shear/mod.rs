//! Shear: inferring a RAID's layout from the times of requests. The paper's procedure and ours, on the paper's
//! simulated arrays.
//!
//! The arrays are `sim::plain` on the paper's disk, the IBM 9LZX, whole drives with queues in order of arrival. Both
//! procedures are in the crate `shear`, which depends neither on the arrays nor on the lab: it requests bursts and
//! receives their times. Numbers without `.ours` in their id are those of the published procedure.
//!
//! | file | figures |
//! | --- | --- |
//! | `striping` | 3, 5, 6, 8 to 13: pattern, boundaries, chunk pairs of whole arrays |
//! | `cost` | 7: requests |
//! | `redundancy` | 14 to 16: cost of writes, region, write buffer |
//! | `faults` | 17 to 19: shared spindles, odd and missing drives |
//! | `alignment` | 20: files in whole stripes |

mod alignment;
mod cost;
mod faults;
mod redundancy;
mod striping;
mod volume;

pub(super) use alignment::Fig20;
pub(super) use cost::Fig7;
pub(super) use faults::{Fig17, Fig18, Fig19};
pub(super) use redundancy::{Fig14, Fig15, Fig16};
pub(super) use striping::{FIG3, FIG5, FIG6, FIG8, FIG9, FIG10, FIG11, FIG12, FIG13};

use shear::Method;
use stats::to_f64;

const KIB: u64 = 1 << 10;

/// N of the paper: "approximately 500 outstanding requests" (section 2.2).
const REQUESTS: u32 = 500;
/// R. The paper does not say; ten gives the totals of its figure 7.
const TRIALS: u32 = 10;
/// "From a single block up to a predefined maximum" (section 2.3.1), and the block of its example.
const STEP_BYTES: u64 = 4 * KIB;

/// The published procedure, with strides up to twice the pattern.
const fn published(requests: u32, trials: u32, pattern_bytes: u64) -> Method {
    Method::Published {
        requests,
        trials,
        step_bytes: STEP_BYTES,
        pattern_bytes_max: 2 * pattern_bytes,
    }
}

/// Bytes in KiB.
fn kib(bytes: u64) -> f64 {
    to_f64(bytes) / 1024.0
}
