//! A seeded sample of settings: drives × chunk × every classic layout × disk × the array's cache. Each answer is right
//! or "cannot tell".

#![expect(clippy::print_stdout, reason = "figures of a run")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::support::run;
use layout::Geometry;
use layout::equivalence::{Probe, classic_schemes, pattern_chunks, signature};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use shear::{Belief, Family, Method, Redundancy};

const DISKS: [&str; 4] = ["9lzx", "15k", "nearline", "ssd"];
const CACHES: [&str; 3] = ["off", "read", "writeback"];

/// Up to this many data chunks in a stripe, the simulated arrays make every small write by reconstruct-write. With
/// three data chunks and one parity it reads two chunks, as many as read-modify-write, and is preferred; with more
/// parities it reads fewer.
const NARROW: u16 = 3;

/// One array and its true properties.
struct Setting {
    target: String,
    disk: &'static str,
    cache: &'static str,
    /// Layouts that writes cannot distinguish from this one: schemes without drives, and drives.
    class: Vec<(String, u16)>,
    chunk: u64,
    pattern: u64,
    /// [`Redundancy::Unknown`] where members of the class differ.
    redundancy: Redundancy,
}

fn redundancy_of(geometry: &Geometry) -> Redundancy {
    match (geometry.code.name.as_str(), geometry.parity) {
        ("mirror", _) => Redundancy::Mirror,
        (_, 0) => Redundancy::None,
        (_, 1) => Redundancy::Parity,
        (_, 2) => Redundancy::DoubleParity,
        _ => Redundancy::Unknown,
    }
}

/// Schemes that reads and writes cannot distinguish from this one, and the redundancy that all of them have.
fn class_of(geometry: &Geometry) -> (Vec<(String, u16)>, Redundancy) {
    let seen = |geometry: &Geometry| {
        let signature = signature(geometry, Probe::Writes);
        match geometry.data <= NARROW {
            true => signature.visible_by_reconstruction(),
            false => signature.visible(),
        }
    };
    let own = seen(geometry);
    let mut class = Vec::new();
    let mut redundancy = redundancy_of(geometry);
    for drives in 2..=geometry.drives + 2 {
        for scheme in classic_schemes(drives) {
            let Ok(other) = Geometry::new(&scheme, None, 2) else {
                continue;
            };
            if seen(&other) == own {
                let scheme = scheme.to_string();
                let name = scheme.trim_end_matches(&format!(":{drives}c"));
                class.push((name.to_owned(), drives));
                if redundancy_of(&other) != redundancy {
                    redundancy = Redundancy::Unknown;
                }
            }
        }
    }
    (class, redundancy)
}

fn sample(rng: &mut ChaCha8Rng) -> Setting {
    let drives: u16 = rng.random_range(4..=16);
    let schemes = classic_schemes(drives);
    loop {
        let scheme = &schemes[rng.random_range(0..schemes.len())];
        let Ok(geometry) = Geometry::new(scheme, None, 2) else {
            continue;
        };
        let (class, redundancy) = class_of(&geometry);
        let chunk = 4096_u64 << rng.random_range(0..=5);
        let disk = DISKS[rng.random_range(0..DISKS.len())];
        let cache = CACHES[rng.random_range(0..CACHES.len())];
        let seed: u16 = rng.random();
        let kib = chunk >> 10;
        return Setting {
            target: format!("{scheme}?chunk={kib}K&disk={disk}&cache={cache}&seed={seed}"),
            disk,
            cache,
            class,
            chunk,
            pattern: pattern_chunks(&geometry) * chunk,
            redundancy,
        };
    }
}

/// The verdict on an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The exact class.
    Right,
    /// No answer, or a longer list that contains the right schemes.
    CannotTell,
    /// Any other answer.
    Wrong,
}

fn judge(setting: &Setting, belief: &Belief) -> Verdict {
    let healthy = belief.degraded.is_empty()
        && belief.misconfigured.is_empty()
        && belief.odd_drives.is_empty();
    if !healthy {
        return Verdict::Wrong;
    }
    if belief.family == Family::Unknown {
        return Verdict::CannotTell;
    }
    let name = |(name, drives): &(String, u16)| match belief.drives == Some(*drives) {
        true => name.clone(),
        false => format!("{name}:{drives}c"),
    };
    let class: BTreeSet<String> = setting.class.iter().map(name).collect();
    let said: BTreeSet<String> = belief.layout.iter().cloned().collect();
    let right = belief.family == Family::Classic
        && belief.pattern_bytes == Some(setting.pattern)
        && belief.chunk_bytes == Some(setting.chunk)
        && (said.is_superset(&class) || said.is_empty())
        && [setting.redundancy, Redundancy::Unknown].contains(&belief.redundancy);
    match right {
        false => Verdict::Wrong,
        true if said == class && belief.redundancy == setting.redundancy => Verdict::Right,
        true => Verdict::CannotTell,
    }
}

/// Seeds: `RAVELIN_SWEEP=FROM..TO,FROM..TO…` selects ranges. With `RAVELIN_SHOW` right answers are printed too.
fn seeds(long: bool) -> Vec<u64> {
    let Ok(parts) = std::env::var("RAVELIN_SWEEP") else {
        return (0..if long { 5000 } else { 4 }).collect();
    };
    let part = |part: &str| -> std::ops::Range<u64> {
        let (from, to) = part.split_once("..").expect("FROM..TO");
        from.parse().unwrap()..to.parse().unwrap()
    };
    parts.split(',').flat_map(part).collect()
}

/// Whether a setting is selected: `RAVELIN_SWEEP_OF=raid1,chained,disk=ssd` selects those with any of these words in
/// their names.
fn is_asked(target: &str) -> bool {
    let words = std::env::var("RAVELIN_SWEEP_OF");
    words.map_or(true, |words| {
        words.split(',').any(|word| target.contains(word))
    })
}

/// 4 settings in `make test`, 5,000 in `make verify`.
#[test]
fn what_is_said_of_sampled_arrays_is_right() {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let seeds = seeds(long);
    let show = std::env::var_os("RAVELIN_SHOW").is_some();
    let next = AtomicUsize::new(0);
    let counts: Mutex<BTreeMap<(&str, &str), [u32; 3]>> = Mutex::default();
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(&seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let setting = sample(&mut ChaCha8Rng::seed_from_u64(seed));
                    if !is_asked(&setting.target) {
                        continue;
                    }
                    let shear = run(&setting.target, true, seed, Method::Ours);
                    let belief = shear.belief();
                    let verdict = judge(&setting, &belief);
                    let mut counts = counts.lock().unwrap();
                    let of = counts.entry((setting.disk, setting.cache)).or_default();
                    of[verdict as usize] += 1;
                    if show || verdict != Verdict::Right {
                        println!(
                            "{seed} {verdict:?}: {} after {} I/Os: {:?} {:?} {:?}",
                            setting.target,
                            shear.ios(),
                            belief.layout,
                            belief.write_ratio,
                            belief.reasons
                        );
                    }
                    if verdict == Verdict::Wrong {
                        println!("{belief:?}");
                    }
                }
            });
        }
    });
    let counts = counts.into_inner().unwrap();
    let mut sums = [0; 3];
    for ((disk, cache), of) in counts {
        let [right, unknown, wrong] = of;
        println!("{disk} {cache}: {right} right, {unknown} cannot be told, {wrong} wrong");
        sums = std::array::from_fn(|at| sums[at] + of[at]);
    }
    let [right, unknown, wrong] = sums;
    println!("{right} right, {unknown} cannot be told, {wrong} wrong");
    assert_eq!(wrong, 0);
    if long {
        assert!(right * 100 >= (right + unknown) * 99, "at least 99 % right");
    }
}
