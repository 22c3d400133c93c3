//! A seeded sample of settings: drives × chunk × every classic layout × disk × the array's cache. What is said is
//! right, or nothing is said.

#![expect(clippy::print_stdout, reason = "figures of a run")]

mod support;

use std::collections::BTreeMap;

use layout::Geometry;
use layout::equivalence::{classic_schemes, pattern_chunks};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use shear::{Belief, Family, Method, Redundancy};
use support::run;

const DISKS: [&str; 4] = ["9lzx", "15k", "nearline", "ssd"];
const CACHES: [&str; 3] = ["off", "read", "writeback"];

/// One array and what it is.
struct Setting {
    target: String,
    disk: &'static str,
    /// Scheme without drives.
    name: String,
    drives: u16,
    chunk: u64,
    pattern: u64,
    redundancy: Redundancy,
}

fn sample(rng: &mut ChaCha8Rng) -> Setting {
    let drives: u16 = rng.random_range(4..=16);
    let schemes = classic_schemes(drives);
    loop {
        let scheme = &schemes[rng.random_range(0..schemes.len())];
        let Ok(geometry) = Geometry::new(scheme, None, 2) else {
            continue;
        };
        let redundancy = match (geometry.code.name.as_str(), geometry.parity) {
            ("mirror", _) => Redundancy::Mirror,
            (_, 0) => Redundancy::None,
            (_, 1) => Redundancy::Parity,
            (_, 2) => Redundancy::DoubleParity,
            _ => Redundancy::Unknown,
        };
        let chunk = 4096_u64 << rng.random_range(0..=5);
        let disk = DISKS[rng.random_range(0..DISKS.len())];
        let cache = CACHES[rng.random_range(0..CACHES.len())];
        let seed: u16 = rng.random();
        let kib = chunk >> 10;
        return Setting {
            target: format!("{scheme}?chunk={kib}K&disk={disk}&cache={cache}&seed={seed}"),
            disk,
            name: scheme
                .to_string()
                .trim_end_matches(&format!(":{drives}c"))
                .to_owned(),
            drives,
            chunk,
            pattern: pattern_chunks(&geometry) * chunk,
            redundancy,
        };
    }
}

/// Whether an answer was given; one that is given is right.
fn is_right(setting: &Setting, belief: &Belief) -> bool {
    let said = format!("{}: {belief:?}", setting.target);
    assert!(belief.degraded.is_empty(), "{said}");
    assert!(belief.misconfigured.is_empty(), "{said}");
    assert!(belief.odd_drives.is_empty(), "{said}");
    if belief.family == Family::Unknown {
        return false;
    }
    assert_eq!(belief.family, Family::Classic, "{said}");
    assert_eq!(belief.pattern_bytes, Some(setting.pattern), "{said}");
    assert_eq!(belief.chunk_bytes, Some(setting.chunk), "{said}");
    if belief.layout.is_empty() || belief.redundancy == Redundancy::Unknown {
        return belief.layout.len() == 1 && setting.redundancy == Redundancy::Unknown;
    }
    let name = match belief.drives == Some(setting.drives) {
        true => setting.name.clone(),
        false => format!("{}:{}c", setting.name, setting.drives),
    };
    assert!(belief.layout.contains(&name), "{said}");
    assert_eq!(belief.redundancy, setting.redundancy, "{said}");
    true
}

/// 4 of them in `make test`, 5,000 in `make verify`; `RAVELIN_SWEEP=FROM..TO` takes a part.
#[test]
fn what_is_said_of_sampled_arrays_is_right() {
    let (from, to) = match std::env::var("RAVELIN_SWEEP") {
        Ok(part) => {
            let (from, to) = part.split_once("..").expect("FROM..TO");
            (from.parse().unwrap(), to.parse().unwrap())
        }
        Err(_) if std::env::var_os("RAVELIN_LONG").is_some() => (0, 5000),
        Err(_) => (0, 4),
    };
    let mut counts: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    for seed in from..to {
        let setting = sample(&mut ChaCha8Rng::seed_from_u64(seed));
        let belief = run(&setting.target, true, seed, Method::Ours).belief();
        let (right, all) = counts.entry(setting.disk).or_default();
        *all += 1;
        match is_right(&setting, &belief) {
            true => *right += 1,
            false => println!("cannot tell: {}: {:?}", setting.target, belief.reasons),
        }
    }
    for (disk, (right, all)) in counts {
        println!("{disk}: {right} of {all} right, none wrong");
    }
}
