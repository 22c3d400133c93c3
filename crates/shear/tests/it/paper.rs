//! The paper's simulated arrays (figures 3, 5 and 8 to 13): pattern, chunk, drives, class, redundancy.

#![expect(clippy::print_stdout, reason = "what a run found, and what is skipped")]

use crate::support::cases::CASES;
use crate::support::run;
use shear::{Family, Method, Redundancy};

const KIB: u64 = 1024;

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
