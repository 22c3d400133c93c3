//! The paper's method on the paper's arrays, as a reference: its results and its signatures.
//!
//! Long, so only in `make verify`, with one seed each, and with the paper's 500 requests a burst and ten trials.

#![expect(clippy::print_stdout, reason = "what a run found, and what is skipped")]

use std::collections::BTreeMap;

use crate::support::cases::CASES;
use crate::support::run;
use shear::Method;

const METHOD: Method = Method::Published {
    requests: 500,
    trials: 10,
    step_bytes: 4096,
    pattern_bytes_max: 512 << 10,
};

/// Figures 3, 5 and 8 to 13. In the boundary and layout graphs, neighbouring chunks against one chunk take 1 : 2,
/// and with chained declustering 2 : 3 (section 3.3); the slowest stride of RAID-1 takes half of RAID-0's.
#[test]
fn the_published_method_finds_the_same() {
    if std::env::var_os("RAVELIN_LONG").is_none() {
        println!("skipped: the published method takes millions of requests; `make verify` runs it");
        return;
    }
    let mut slowest = BTreeMap::new();
    for (scheme, chunk, pattern, _, redundancy) in CASES {
        let shear = run(&format!("{scheme}?chunk={chunk}K"), true, 1, METHOD);
        let belief = shear.belief();
        let name = format!("{scheme} × {chunk} KiB: {belief:?}");
        assert_eq!(belief.pattern_bytes, Some(pattern << 10), "{name}");
        assert_eq!(belief.chunk_bytes, Some(chunk << 10), "{name}");
        assert_eq!(belief.redundancy, redundancy, "{name}");
        let curve = shear.curve();
        let time = |stride: u64| curve.iter().find(|&&(at, _)| at == stride).unwrap().1;
        slowest.insert((scheme, chunk), time(pattern << 10));
        let pairs = shear.pairs();
        let neighbours = pairs.iter().find(|&&(a, b, _)| (a, b) == (0, 1)).unwrap().2;
        let expected = if scheme.starts_with("chained") {
            2.0 / 3.0
        } else {
            0.5
        };
        assert!(
            (neighbours / expected - 1.0).abs() < 0.1,
            "{scheme}: {neighbours}"
        );
    }
    let half = slowest[&("raid1:6c", 8)] / slowest[&("raid0:6c", 8)];
    assert!(
        (half / 0.5 - 1.0).abs() < 0.1,
        "RAID-1's worst time is {half} of RAID-0's"
    );
}
