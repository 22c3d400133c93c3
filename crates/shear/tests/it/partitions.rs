//! Volumes that begin inside the array's pattern, as partitions do: the first stripe begins later, and the first chunk
//! may.

use crate::support::{run, run_behind};
use shear::{Family, Method};

const KIB: u64 = 1024;

/// Regression: `raid5:3c` on a partition was called `raid6`. Writes were compared only from the volume's first border
/// on, and no such border was that of a stripe. An array without stripes that costs three operations was taken for one
/// chunk with two parities. Right-symmetric layouts that begin one chunk later were taken for striping with chunks of
/// twice the size.
#[test]
fn writes_find_where_stripes_begin() {
    // Scheme, begin of the volume and of its first stripe, in KiB; chunks of 32 KiB.
    let cases: [(&str, u64, u64, &[&str]); 9] = [
        ("raid5:3c", 8, 56, &["raid5", "raid6:ls6:4c"]),
        ("raid5:3c", 16, 48, &["raid5", "raid6:ls6:4c"]),
        ("raid5:3c", 32, 32, &["raid5", "raid6:ls6:4c"]),
        ("raid5:4c", 16, 80, &["raid5", "raid6:ls6:5c"]),
        ("raid5:rs:3c", 0, 0, &["raid5:rs", "raid6:rs6:4c"]),
        ("raid5:rs:3c", 16, 48, &["raid5:rs", "raid6:rs6:4c"]),
        ("raid5:rs:3c", 32, 32, &["raid5:rs", "raid6:rs6:4c"]),
        ("raid6:rs:4c", 32, 32, &["raid6:rs"]),
        ("raid0:3c", 16, 16, &["raid0"]),
    ];
    for (scheme, begin, stripe, layout) in cases {
        for disk in ["9lzx", "ssd"] {
            let target = format!("{scheme}?chunk=32K&disk={disk}");
            let belief = run_behind(begin * KIB, &target, true, 1, Method::Ours).belief();
            let name = format!("{target} from {begin} KiB on: {belief:?}");
            assert_eq!(belief.family, Family::Classic, "{name}");
            assert_eq!(belief.chunk_bytes, Some(32 * KIB), "{name}");
            assert_eq!(belief.layout, layout, "{name}");
            assert_eq!(belief.offset_bytes, stripe * KIB, "{name}");
        }
    }
}

/// Two readings: chunks of 64 KiB, with the volume's begin in the middle of one; or two chunks of 32 KiB in a row on
/// each drive.
#[test]
fn reads_alone_have_two_readings_of_half_a_chunk() {
    let halves = run("raid5:rs:3c?chunk=32K", false, 1, Method::Ours);
    let whole = run_behind(32 * KIB, "raid5:3c?chunk=64K", false, 1, Method::Ours);
    for shear in [halves, whole] {
        let belief = shear.belief();
        assert_eq!(belief.family, Family::Unknown, "{belief:?}");
        assert!(belief.layout.is_empty(), "{belief:?}");
        assert!(belief.reasons[0].contains("two readings"), "{belief:?}");
    }
}
