//! The arrays of the paper's simulations.

use shear::Redundancy;

/// The paper's simulated arrays (figures 3, 5 and 8 to 13): scheme, chunk in KiB, pattern in KiB, layouts that writes cannot tell apart, redundancy.
pub(crate) const CASES: [(&str, u64, u64, &[&str], Redundancy); 14] = [
    ("raid0:4c", 16, 64, &["raid0"], Redundancy::None),
    ("raid0:6c", 16, 96, &["raid0"], Redundancy::None),
    ("raid0:8c", 16, 128, &["raid0"], Redundancy::None),
    ("raid0:8c", 8, 64, &["raid0"], Redundancy::None),
    ("raid0:16c", 4, 64, &["raid0"], Redundancy::None),
    ("zigzag:6c", 8, 96, &["zigzag"], Redundancy::None),
    ("raid0:6c", 8, 48, &["raid0"], Redundancy::None),
    ("raid5:ls:6c", 8, 48, &["raid5"], Redundancy::Parity),
    ("raid5:la:6c", 8, 240, &["raid5:la"], Redundancy::Parity),
    ("raid5:rs:6c", 8, 240, &["raid5:rs"], Redundancy::Parity),
    ("raid5:ra:6c", 8, 240, &["raid5:ra"], Redundancy::Parity),
    (
        "raid6:shear:6c",
        8,
        48,
        &["raid6:shear"],
        Redundancy::DoubleParity,
    ),
    ("raid1:6c", 8, 24, &["raid1", "raid10"], Redundancy::Mirror),
    (
        "chained:6c",
        8,
        48,
        &["chained", "raid10:offset", "raid10:far"],
        Redundancy::Mirror,
    ),
];
