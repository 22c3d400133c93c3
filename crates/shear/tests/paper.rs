//! The paper's simulated arrays (figures 3, 5 and 8 to 13): pattern, chunk, drives, class, redundancy.

#![expect(clippy::print_stdout, reason = "what a run found, and what is skipped")]

mod support;

use shear::{Family, Method, Redundancy};
use support::run;

const KIB: u64 = 1024;

/// Scheme, chunk in KiB, pattern in KiB, layouts that writes cannot tell apart, redundancy.
const CASES: [(&str, u64, u64, &[&str], Redundancy); 14] = [
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

#[test]
fn the_papers_arrays_are_what_they_are() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let seeds = if long { 100 } else { 5 };
    let mut unknown = 0;
    let mut runs = 0;
    for (scheme, chunk, pattern, layout, redundancy) in CASES {
        let drives: u16 = scheme
            .rsplit(':')
            .next()
            .unwrap()
            .trim_end_matches('c')
            .parse()
            .unwrap();
        for seed in 0..seeds {
            let target = format!("{scheme}?chunk={chunk}K&disk=9lzx&seed={seed}");
            let shear = run(&target, true, seed, Method::Ours);
            let belief = shear.belief();
            if std::env::var_os("RAVELIN_SHOW").is_some() {
                println!("{scheme} {seed}: {} I/Os, {belief:?}", shear.ios());
            }
            runs += 1;
            if belief.family == Family::Unknown || belief.redundancy == Redundancy::Unknown {
                unknown += 1;
                println!("{scheme} {seed}: {belief:?}");
                continue;
            }
            let name = format!("{scheme} × {chunk} KiB, seed {seed}: {belief:?}");
            assert_eq!(belief.pattern_bytes, Some(pattern * KIB), "{name}");
            assert_eq!(belief.chunk_bytes, Some(chunk * KIB), "{name}");
            assert_eq!(belief.drives, Some(drives), "{name}");
            assert_eq!(belief.layout, layout, "{name}");
            assert_eq!(belief.redundancy, redundancy, "{name}");
            assert!(
                belief.degraded.is_empty()
                    && belief.odd_drives.is_empty()
                    && belief.misconfigured.is_empty(),
                "{name}"
            );
        }
    }
    assert!(unknown * 100 <= runs, "{unknown} of {runs} cannot be told");
}
