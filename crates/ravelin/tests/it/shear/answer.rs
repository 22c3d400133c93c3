//! The verdict on an answer.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Command;

use layout::equivalence::{Probe, classic_schemes, holders, pattern_chunks};
use layout::{Geometry, Scheme};
use serde_json::Value;

use crate::support::bench::Bench;

/// Runs of one test, before "cannot tell" fails it.
const RUNS: u64 = 3;
/// Longest run, in seconds.
const SECONDS: &str = "120";
/// Bytes of a chunk of all volumes here.
const CHUNK_BYTES: u64 = 64 << 10;

/// Kind of requests to the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Reads.
    Reads,
    /// Reads and writes.
    Writes,
    /// Reads and writes; the volume may put writes in place later, and then the redundancy need not show.
    LateWrites,
}

/// The true layout of a volume.
#[derive(Clone, Debug)]
pub(crate) enum Truth {
    /// A classic layout, perhaps with a drive missing.
    Classic {
        /// The scheme with its drives.
        scheme: &'static str,
        /// `redundancy` of the answer.
        redundancy: &'static str,
        /// The seat whose drive is missing.
        missing: Option<u16>,
        /// Whether the volume begins with a stripe.
        aligned: bool,
    },
    /// Every drive has all data.
    Copies(u64),
    /// A declustered layout; reads alone find it, but not the width of stripes.
    Declustered {
        /// Its drives.
        drives: u64,
        /// Data chunks of a stripe.
        data_width: u64,
    },
}

impl Truth {
    /// A healthy array whose volume begins with a stripe.
    pub(crate) const fn classic(scheme: &'static str, redundancy: &'static str) -> Self {
        Self::Classic {
            scheme,
            redundancy,
            missing: None,
            aligned: true,
        }
    }

    /// A healthy array whose volume begins anywhere in the array.
    pub(crate) const fn placed_anywhere(scheme: &'static str, redundancy: &'static str) -> Self {
        Self::Classic {
            scheme,
            redundancy,
            missing: None,
            aligned: false,
        }
    }
}

/// The verdict on an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Right,
    /// The reasons in the answer.
    CannotTell(String),
    /// What is wrong.
    Wrong(String),
}

/// Which contents of two layouts are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aspect {
    /// Which drives have the data.
    Data,
    /// Data and parity drives.
    All,
    /// As `All`, without drives that hold only parity. These have no more work than the others, unless parity is
    /// updated by read-modify-write.
    AllButParityDrives,
}

/// The period in chunks, and what each drive holds of one period, as (chunk, is parity), in any order.
fn contents(geometry: &Geometry, aspect: Aspect) -> (usize, Vec<Vec<(usize, bool)>>) {
    let probe = match aspect {
        Aspect::Data => Probe::Reads,
        Aspect::All | Aspect::AllButParityDrives => Probe::Writes,
    };
    let chunks = holders(geometry, probe);
    let mut drives = vec![Vec::new(); usize::from(geometry.drives)];
    for (chunk, seats) in chunks.iter().enumerate() {
        for &(seat, is_parity) in seats {
            drives[usize::from(seat)].push((chunk, is_parity));
        }
    }
    let only_parity = |held: &[(usize, bool)]| held.iter().all(|&(_, is_parity)| is_parity);
    drives.retain(|held| match aspect {
        Aspect::Data | Aspect::All => !held.is_empty(),
        Aspect::AllButParityDrives => !only_parity(held),
    });
    drives.sort();
    (chunks.len(), drives)
}

/// Schemes that are equal to this one in an aspect, as geometry and name without drives.
fn class_of(geometry: &Geometry, aspect: Aspect) -> Vec<(Geometry, String)> {
    let own = contents(geometry, aspect);
    let mut class = Vec::new();
    for drives in 2..=geometry.drives + 2 {
        for scheme in classic_schemes(drives) {
            let Ok(other) = Geometry::new(&scheme, None, 2) else {
                continue;
            };
            if contents(&other, aspect) == own {
                let text = scheme.to_string();
                let name = text.trim_end_matches(&format!(":{drives}c")).to_owned();
                class.push((other, name));
            }
        }
    }
    class
}

/// The verdict on an answer about a classic layout.
fn judge_classic(
    answer: &Value,
    (scheme, redundancy): (&str, &str),
    (missing, aligned): (Option<u16>, bool),
    way: Way,
) -> Verdict {
    let scheme: Scheme = scheme.parse().unwrap();
    let geometry = Geometry::new(&scheme, None, 2).unwrap();
    let said: BTreeSet<String> = { answer["layout"].as_array().unwrap().iter() }
        .map(|name| name.as_str().unwrap().to_owned())
        .collect();
    let names = |aspect| -> BTreeSet<String> {
        let class = class_of(&geometry, aspect).into_iter();
        // A missing drive shows only where its chunks are reconstructed from several others.
        let class = class.filter(|(one, _)| missing.is_none() || one.parity > 0 && one.data > 1);
        let name = |(one, name): (Geometry, String)| match answer["drives"].as_u64()
            == Some(one.drives.into())
        {
            true => name,
            false => format!("{name}:{}c", one.drives),
        };
        class.map(name).collect()
    };
    let (by_reads, by_writes) = (names(Aspect::Data), names(Aspect::All));
    let pattern = pattern_chunks(&geometry) * CHUNK_BYTES;
    let facts = [
        ("family", answer["family"] == "classic"),
        ("pattern_bytes", answer["pattern_bytes"] == pattern),
        ("chunk_bytes", answer["chunk_bytes"] == CHUNK_BYTES),
        ("offset_bytes", answer["offset_bytes"] == 0 || !aligned),
        ("layout", said.is_superset(&by_writes)),
        ("layout", said.is_subset(&by_reads)),
        (
            "redundancy",
            answer["redundancy"] == redundancy || answer["redundancy"] == "unknown",
        ),
        (
            "degraded",
            answer["degraded"].as_array().unwrap().len() == usize::from(missing.is_some()),
        ),
    ];
    if let Some((name, _)) = facts.iter().find(|(_, holds)| !holds) {
        return Verdict::Wrong((*name).to_owned());
    }
    // Seats are numbered as in the first layout, so they are compared only if this is the true one.
    let own = scheme.to_string();
    let is_own = said.len() == 1 && said.iter().all(|name| own.starts_with(name));
    if is_own && missing.is_some_and(|seat| answer["degraded"][0] != seat) {
        return Verdict::Wrong("degraded".to_owned());
    }
    let right = match way {
        Way::Reads => said == by_reads,
        Way::Writes => {
            said.is_subset(&names(Aspect::AllButParityDrives))
                && (said != by_writes || answer["redundancy"] == redundancy)
        }
        Way::LateWrites => true,
    };
    match right {
        true => Verdict::Right,
        false => Verdict::CannotTell(format!("{said:?}: {}", answer["reasons"])),
    }
}

/// The verdict on an answer.
pub(crate) fn judge(answer: &Value, truth: &Truth, way: Way) -> Verdict {
    if answer["family"] == "unknown" {
        return Verdict::CannotTell(answer["reasons"].to_string());
    }
    let healthy = ["odd_drives", "misconfigured"];
    if let Some(name) = { healthy.into_iter() }.find(|name| answer[*name] != Value::Array(vec![])) {
        return Verdict::Wrong(name.to_owned());
    }
    let right = match *truth {
        Truth::Classic {
            scheme,
            redundancy,
            missing,
            aligned,
        } => return judge_classic(answer, (scheme, redundancy), (missing, aligned), way),
        Truth::Copies(copies) => {
            let layout = match copies {
                2 => "raid1".to_owned(),
                _ => format!("raid1:{copies}r"),
            };
            answer["family"] == "classic"
                && answer["layout"] == Value::from(vec![layout])
                && answer["drives"] == copies
                && answer["copies"] == copies
                && answer["redundancy"] == "mirror"
        }
        Truth::Declustered { drives, data_width } => {
            answer["family"] == "declustered"
                && answer["drives"] == drives
                && answer["chunk_bytes"] == CHUNK_BYTES
                && answer["cell_bytes"].is_null()
                && (answer["data_width"] == data_width
                    || answer["data_width"].is_null() && way != Way::Writes)
        }
    };
    match right {
        true => Verdict::Right,
        false => Verdict::Wrong("the layout".to_owned()),
    }
}

/// The advised tools accept the advised options in a run without writes, for a file of 8 GiB.
fn advice_is_accepted(bench: &Bench, answer: &Value) {
    let file = bench.path("advised");
    File::create(&file).unwrap().set_len(8 << 30).unwrap();
    for (tool, looks_only) in [("mkfs.xfs", "-N"), ("mkfs.ext4", "-n")] {
        let Some(advised) = answer["advice"][tool].as_str() else {
            continue;
        };
        if Command::new(tool).arg("-V").output().is_err() {
            println!("skipped: `{advised}`, for there is no {tool}");
            continue;
        }
        // Words: the tool, its options, the target.
        let words: Vec<&str> = advised.split(' ').collect();
        let options = &words[1..words.len() - 1];
        let mut command = Command::new(tool);
        let ran = command.arg(looks_only).args(options).arg(&file).output();
        let ran = ran.unwrap();
        let said = String::from_utf8_lossy(&ran.stderr);
        assert!(ran.status.success(), "{advised}: {said}");
        println!("{tool} accepts {}", options.join(" "));
    }
}

/// Measures `target` until the answer is right.
///
/// # Panics
/// When the answer is wrong, or "cannot tell" each time.
#[track_caller]
pub(crate) fn is_found(bench: &Bench, target: &str, truth: &Truth, way: Way) {
    let mut why = String::new();
    for seed in 1..=RUNS {
        let mode = match way {
            Way::Reads => "--reads-only",
            Way::Writes | Way::LateWrites => "--writes",
        };
        let seed = seed.to_string();
        let arguments = [
            "shear",
            target,
            mode,
            "--max-seconds",
            SECONDS,
            "--seed",
            &seed,
        ];
        let ran = bench.run(&[&arguments[..], &["--json"]].concat());
        assert_eq!(ran.code, 0, "{target}: {}", ran.stderr);
        let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
        let verdict = judge(&answer, truth, way);
        println!(
            "{truth:?} {way:?} {target}: {verdict:?} in {:.0} s by {} requests, {}",
            answer["seconds"].as_f64().unwrap(),
            answer["ios"],
            answer["layout"],
        );
        match verdict {
            Verdict::Right => return advice_is_accepted(bench, &answer),
            Verdict::Wrong(what) => panic!("{truth:?} {way:?}: wrong {what}: {answer:#}"),
            Verdict::CannotTell(reasons) => why = reasons,
        }
    }
    panic!("{truth:?} {way:?}: cannot tell in {RUNS} runs: {why}");
}
