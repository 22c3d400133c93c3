//! The paper's method on the paper's arrays, as the yardstick: its results and its signatures.
//!
//! Long: only in `make verify`, one seed each, with fewer requests a burst than the paper's 500 (the figures state no N).

#![expect(clippy::print_stdout, reason = "what a run found, and what is skipped")]

mod support;

use shear::{Method, Redundancy};
use support::run;

const METHOD: Method = Method::Published {
    requests: 100,
    trials: 4,
    step_bytes: 4096,
    pattern_bytes_max: 512 << 10,
};

#[test]
fn the_published_method_finds_the_same() {
    if std::env::var_os("RAVELIN_LONG").is_none() {
        println!("skipped: the published method takes millions of requests; `make verify` runs it");
        return;
    }
    let mut slowest = Vec::new();
    for (scheme, chunk, pattern, redundancy) in [
        ("raid0:4c", 16, 64, Redundancy::None),
        ("raid0:6c", 8, 48, Redundancy::None),
        ("raid1:6c", 8, 24, Redundancy::Mirror),
        ("chained:6c", 8, 48, Redundancy::Mirror),
        ("raid5:ls:6c", 8, 48, Redundancy::Parity),
        ("raid5:la:6c", 8, 240, Redundancy::Parity),
    ] {
        let shear = run(&format!("{scheme}?chunk={chunk}K"), true, 1, METHOD);
        let belief = shear.belief();
        assert_eq!(
            belief.pattern_bytes,
            Some(pattern << 10),
            "{scheme}: {belief:?}"
        );
        assert_eq!(
            belief.chunk_bytes,
            Some(chunk << 10),
            "{scheme}: {belief:?}"
        );
        assert_eq!(belief.redundancy, redundancy, "{scheme}: {belief:?}");
        let curve = shear.curve();
        let time = |stride: u64| curve.iter().find(|&&(at, _)| at == stride).unwrap().1;
        slowest.push((scheme, time(pattern << 10)));
        // Neighbouring chunks against one chunk: apart 1 : 2, chained 2 : 3.
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
    let of = |wanted: &str| {
        slowest
            .iter()
            .find(|(scheme, _)| *scheme == wanted)
            .unwrap()
            .1
    };
    let half = of("raid1:6c") / of("raid0:6c");
    assert!(
        (half / 0.5 - 1.0).abs() < 0.1,
        "RAID-1's worst time is {half} of RAID-0's"
    );
}
