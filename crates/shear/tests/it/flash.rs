//! Arrays of flash drives. A flash drive answers requests in the order of their arrival, and this order shows the
//! drive.

use crate::support::run;
use shear::{Family, Method, Redundancy};

#[test]
fn flash_drives_are_told_from_their_dies() {
    let cases: [(&str, u64, u16, &[&str], Redundancy); 7] = [
        // Bursts take the same time with chunks of one page and of eight.
        ("raid0:4c?chunk=16K", 16, 4, &["raid0"], Redundancy::None),
        ("raid0:5c?chunk=128K", 128, 5, &["raid0"], Redundancy::None),
        (
            "raid5:5c?chunk=64K&cache=writeback",
            64,
            5,
            &["raid5"],
            Redundancy::Parity,
        ),
        // A drive that holds only parity, beside rotating parity.
        (
            "raid6:la6:6c?chunk=4K",
            4,
            6,
            &["raid6:la6"],
            Redundancy::DoubleParity,
        ),
        (
            "raid6:shear:6c?chunk=32K&cache=read",
            32,
            6,
            &["raid6:shear"],
            Redundancy::DoubleParity,
        ),
        // One data chunk and three parities: no write needs a read, as without parity.
        (
            "raid7:4c?chunk=8K&cache=read",
            8,
            4,
            &["raid7"],
            Redundancy::Unknown,
        ),
        (
            "chained:6c?chunk=8K",
            8,
            6,
            &["chained", "raid10:offset", "raid10:far"],
            Redundancy::Mirror,
        ),
    ];
    for (target, chunk, drives, layout, redundancy) in cases {
        let belief = run(&format!("{target}&disk=ssd"), true, 1, Method::Ours).belief();
        let name = format!("{target}: {belief:?}");
        assert_eq!(belief.family, Family::Classic, "{name}");
        assert_eq!(belief.chunk_bytes, Some(chunk << 10), "{name}");
        assert_eq!(belief.drives, Some(drives), "{name}");
        assert_eq!(belief.layout, layout, "{name}");
        assert_eq!(belief.redundancy, redundancy, "{name}");
    }
}

/// Regression: called `raid5:rs`. Writes of one chunk were slower than writes of all chunks by 0.22, as reads of two
/// busy drives are compared with one; the limit was 0.18.
#[test]
fn a_drive_of_parity_alone_is_told_from_one_that_is_busy() {
    let target = "raid6:rs6:16c?chunk=128K&disk=ssd&cache=writeback&seed=10294";
    let belief = run(target, true, 4471, Method::Ours).belief();
    assert_eq!(belief.layout, ["raid6:rs6"], "{belief:?}");
    assert_eq!(belief.redundancy, Redundancy::DoubleParity, "{belief:?}");
}

/// Nearly all reads wait for earlier ones: on one drive, and on two drives whose chunks are longer than the strides.
#[test]
fn flash_without_stripes_cannot_be_told() {
    for target in ["raid0:2c?chunk=1G&drive=4G", "raid1:2c?chunk=64K"] {
        let belief = run(&format!("{target}&disk=ssd"), false, 1, Method::Ours).belief();
        assert!(
            matches!(belief.family, Family::Unknown | Family::None),
            "{target}: {belief:?}"
        );
        assert!(!belief.reasons.is_empty(), "{target}: {belief:?}");
    }
}
