//! Strides that put most of their requests on one drive, but not all.

use crate::support::run;
use shear::Method;

/// Regression: called `raid5:p0:4c`. At each place of a stride of three chunks, three of five requests are on one
/// drive. This is so at all places and for all divisors, so the stride was taken for one that stays on one drive.
#[test]
fn a_stride_with_a_slower_multiple_is_no_pattern() {
    let target = "raid6:nr:5c?chunk=4K&disk=nearline&cache=read&seed=16783";
    let seeds = [1, 2, 3, 4699];
    for seed in seeds {
        let belief = run(target, true, seed, Method::Ours).belief();
        assert_eq!(belief.pattern_bytes, Some(15 << 12), "{seed}: {belief:?}");
        assert_eq!(belief.layout, ["raid6:nr"], "{seed}: {belief:?}");
    }
}
