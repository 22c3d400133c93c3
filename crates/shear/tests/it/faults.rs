//! Faulty arrays (the paper's figures 17 to 19), and noise: each fault is named, and no answer is wrong.

#![expect(clippy::print_stdout, reason = "what a run found, and what is skipped")]

use crate::support::cases::CASES;
use crate::support::run;
use shear::{Belief, Family, Method, Redundancy};

/// 2 seeds in `make test`, 100 in `make verify`.
fn seeds() -> u64 {
    match std::env::var_os("RAVELIN_LONG") {
        Some(_) => 100,
        None => 2,
    }
}

fn found(target: &str, seed: u64) -> Belief {
    let belief = run(&format!("{target}&seed={seed}"), false, seed, Method::Ours).belief();
    if std::env::var_os("RAVELIN_SHOW").is_some() {
        println!("{target} {seed}: {belief:?}");
    }
    belief
}

/// Figure 17: RAID-0 and the four RAID-5 with two logical drives on one spindle.
#[test]
fn two_seats_on_one_spindle_are_named() {
    for scheme in ["raid0", "raid5:la", "raid5:ls", "raid5:ra", "raid5:rs"] {
        for seed in 0..seeds() {
            let belief = found(&format!("{scheme}:4c?chunk=32K&drive=2G&shared=1:2"), seed);
            assert_eq!(
                belief.misconfigured,
                [(1, 2)],
                "{scheme} {seed}: {belief:?}"
            );
            let name = scheme.trim_end_matches(":ls");
            assert!(
                belief.layout.iter().any(|layout| layout == name),
                "{scheme} {seed}: {belief:?}"
            );
        }
    }
}

/// Figure 18: in RAID-0 on four drives, one drive is faster or slower by a factor of one and a half, in everything, in
/// rotation or in seeks.
#[test]
fn a_slow_and_a_fast_drive_are_named_and_nothing_else() {
    let cases = [
        ("slow=2:0.6667", true),
        ("slow=2:1.5", false),
        ("turn=2:0.6667", true),
        ("turn=2:1.5", false),
        ("seek=2:0.6667", true),
        ("seek=2:1.5", false),
    ];
    for (how, slower) in cases {
        for seed in 0..seeds() {
            let belief = found(&format!("raid0:4c?chunk=16K&{how}"), seed);
            let name = format!("{how} {seed}: {belief:?}");
            assert_eq!(belief.chunk_bytes, Some(16 << 10), "{name}");
            assert_eq!(belief.drives, Some(4), "{name}");
            assert_eq!(belief.odd_drives.len(), 1, "{name}");
            let (seat, ratio) = belief.odd_drives[0];
            assert_eq!(seat, 2, "{name}");
            assert_eq!(ratio > 1.0, slower, "{name}");
            assert!(
                belief.degraded.is_empty() && belief.misconfigured.is_empty(),
                "{name}"
            );
        }
    }
}

/// Figure 19: the fifth of ten drives is missing.
#[test]
fn the_missing_drive_of_ten_is_named() {
    for seed in 0..seeds() {
        let belief = found("raid5:10c?chunk=16K&fail=4", seed);
        let name = format!("{seed}: {belief:?}");
        assert_eq!(belief.degraded, [4], "{name}");
        assert_eq!(belief.drives, Some(10), "{name}");
        assert!(belief.misconfigured.is_empty(), "{name}");
    }
}

/// 30 % foreign load and 20 % noise on the paper's arrays, by reads and by writes: each answer is right or "cannot
/// tell".
#[test]
fn noise_makes_no_answer_wrong() {
    let seeds = match seeds() {
        100 => 0..100,
        _ => 0..6,
    };
    let mut unknown = 0;
    for seed in seeds.clone() {
        let (scheme, chunk, pattern, layout, redundancy) = CASES[seed % CASES.len()];
        let writes = seed / CASES.len() % 2 == 1;
        let seed = seed as u64;
        let target = format!("{scheme}?chunk={chunk}K&noise=20&foreign=30&seed={seed}");
        let belief = run(&target, writes, seed, Method::Ours).belief();
        if std::env::var_os("RAVELIN_SHOW").is_some() {
            println!("{target}: {belief:?}");
        }
        let name = format!("{target}: {belief:?}");
        if belief.family == Family::Unknown {
            unknown += 1;
            continue;
        }
        let drives = scheme.rsplit_once(':').unwrap().1;
        let drives: u16 = drives.trim_end_matches('c').parse().unwrap();
        let is_said = |one: &&str| belief.layout.iter().any(|said| said == one);
        assert_eq!(belief.pattern_bytes, Some(pattern << 10), "{name}");
        assert_eq!(belief.chunk_bytes, Some(chunk << 10), "{name}");
        assert!(belief.drives.is_none_or(|seen| seen == drives), "{name}");
        assert!(layout.iter().all(is_said), "{name}");
        assert!(
            [redundancy, Redundancy::Unknown].contains(&belief.redundancy),
            "{name}"
        );
        assert!(
            belief.degraded.is_empty() && belief.misconfigured.is_empty(),
            "{name}"
        );
        assert!(belief.odd_drives.is_empty(), "{name}");
    }
    println!("{unknown} of {} cannot be told", seeds.len());
}

/// One drive, or a volume without stripes, is no array: the answer is "unknown", with reasons.
#[test]
fn what_has_no_stripes_cannot_be_told_and_says_why() {
    for target in ["raid0:2c?chunk=1G&drive=4G", "raid1:2c?chunk=64K"] {
        let belief = found(target, 1);
        assert!(
            matches!(belief.family, Family::Unknown | Family::None),
            "{target}: {belief:?}"
        );
        assert!(
            belief.layout.is_empty() && !belief.reasons.is_empty(),
            "{target}: {belief:?}"
        );
    }
}
