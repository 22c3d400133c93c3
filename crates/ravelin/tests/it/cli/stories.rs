//! Damage as administrators meet it, through the binary: bytes of drive files are overwritten or set back while the
//! pool is closed. Each later read returns the written data or an error, and the pool names the lost blocks.

use std::collections::BTreeSet;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use array::format::newest_label;
use block::SplitMix64;
use export::nbd::Client;
use serde_json::Value;

use super::{MIB, connect};
use crate::support::bench::{Bench, bytes};

const BLOCK: u64 = 4096;
const AT_ONCE: usize = 16;
const IMPORT: [&str; 5] = ["pool", "import", "--dir", ".", "tank"];

fn content(block: u64, version: u64) -> Vec<u8> {
    let word = (block << 8 | version).to_le_bytes();
    word.iter().copied().cycle().take(4096).collect()
}

/// A client of the volume; attaches the volume anew if it is served already.
fn attached(bench: &Bench) -> Client {
    bench.run(&["volume", "detach", "tank/v"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    connect(export["uri"].as_str().unwrap())
}

/// Writes the first blocks of the volume `tank/v`.
pub(crate) fn write_all(bench: &Bench, blocks: u64, version: u64) {
    let mut client = attached(bench);
    for first in (0..blocks).step_by(256) {
        let some = first..blocks.min(first + 256);
        let data: Vec<u8> = some.flat_map(|block| content(block, version)).collect();
        client.write(first * BLOCK, &data, false).unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/v"]);
}

/// A closed pool with a volume that is fully written; returns also the number of the volume's blocks.
fn filled(test: &str, scheme: &str, drives: usize, drive_bytes: u64, bytes: u64) -> (Bench, u64) {
    let bench = Bench::new(test);
    let drives = bench.drives("d", drives, drive_bytes);
    assert_eq!(bench.create("tank", scheme, &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", &bytes.to_string()]);
    write_all(&bench, bytes / BLOCK, 1);
    bench.ok(&["pool", "export", "tank"]);
    (bench, bytes / BLOCK)
}

/// Where a drive's metadata and its data begin.
fn regions(bench: &Bench, drive: &str) -> (u64, u64) {
    let held = bytes(&bench.path(drive));
    let slot = |at: usize| &held[at..at + (504 << 10)];
    let (_, label) = newest_label([slot(4 << 10), slot(512 << 10)]).unwrap();
    let facts = &label.facts;
    (facts.regions.unwrap().metadata_offset, facts.data_offset)
}

fn put(bench: &Bench, drive: &str, offset: u64, data: &[u8]) {
    let path = bench.path(drive);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(data, offset).unwrap();
}

/// Overwrites bytes with noise, as a bad controller does; the same noise for the same place.
fn overwrite(bench: &Bench, drive: &str, offset: u64, length: u64) {
    let mut noise = SplitMix64::new(offset ^ u64::from(drive.as_bytes()[1]));
    let length = usize::try_from(length).unwrap();
    put(bench, drive, offset, &noise.bytes(length));
}

/// Blocks whose reads fail; checks that all others have this version.
fn unreadable(bench: &Bench, blocks: u64, version: u64) -> BTreeSet<u64> {
    let mut client = attached(bench);
    let mut errors = BTreeSet::new();
    for first in (0..blocks).step_by(AT_ONCE) {
        let some = first..(first + AT_ONCE as u64).min(blocks);
        let expected: Vec<u8> = some
            .clone()
            .flat_map(|block| content(block, version))
            .collect();
        match client.read(first * BLOCK, expected.len()) {
            Ok(found) => assert!(found == expected, "blocks {some:?}"),
            Err(_) => errors.extend(some.filter(|&block| {
                match client.read(block * BLOCK, 4096) {
                    Ok(found) => assert!(found == content(block, version), "block {block}"),
                    Err(_) => return true,
                }
                false
            })),
        }
    }
    client.disconnect().unwrap();
    errors
}

fn status(bench: &Bench) -> Value {
    bench.json(&["pool", "status", "tank"])
}

fn check(bench: &Bench) -> i32 {
    bench.run(&["pool", "status", "tank", "--check"]).code
}

/// Blocks that the pool names as lost.
fn named(status: &Value) -> BTreeSet<u64> {
    let lost = &status["lost"];
    assert_eq!(lost["unlisted_bytes"], 0, "{lost}");
    let ranges = lost["ranges"].as_array().unwrap();
    let blocks: BTreeSet<u64> = ranges
        .iter()
        .flat_map(|range| {
            assert_eq!(range["volume"], "v");
            let at = |name: &str| range[name].as_u64().unwrap();
            let (first, bytes) = (at("offset_bytes"), at("length_bytes"));
            first / BLOCK..(first + bytes) / BLOCK
        })
        .collect();
    assert_eq!(lost["bytes"], blocks.len() as u64 * BLOCK);
    blocks
}

/// Events of a kind, with their severity.
fn events(bench: &Bench, kind: &str) -> Vec<(String, String)> {
    let events = bench.json(&["pool", "events", "tank"]);
    let events = events["events"].as_array().unwrap().iter();
    let word = |event: &Value, name: &str| event[name].as_str().unwrap_or_default().to_owned();
    events
        .filter(|event| event["event"] == kind)
        .map(|event| (word(event, "severity"), word(event, "text")))
        .collect()
}

fn becomes(bench: &Bench, health: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while status(bench)["health"] != health {
        assert!(Instant::now() < deadline, "not {health}: {}", status(bench));
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Regression: two drives of three were overwritten at the same place. The scrub said "reconstructed" and exited with
/// 0, the status was HEALTHY without an error, and reads failed.
#[test]
fn what_cannot_be_repaired_is_named_until_it_is_written_again() {
    let (mut bench, blocks) = filled("lost", "raid5", 3, 40 * MIB, 48 * MIB);
    for drive in ["d0", "d1"] {
        overwrite(&bench, drive, 20 * MIB, MIB);
    }
    bench.ok(&IMPORT);
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 1, "{}", scrub.stdout);
    assert!(
        scrub.stdout.contains("CANNOT BE REPAIRED"),
        "{}",
        scrub.stdout
    );
    assert_eq!(check(&bench), 2);
    let found = status(&bench);
    assert_eq!(found["health"], "damaged");
    let lost = named(&found);
    assert_eq!(lost, unreadable(&bench, blocks, 1), "named, and an error");
    // Two of three columns; one chunk in three is parity.
    assert!(
        (MIB / BLOCK..=2 * MIB / BLOCK).contains(&(lost.len() as u64)),
        "{}",
        lost.len()
    );
    assert_eq!(found["scrub"]["lost_blocks"], lost.len() as u64);
    for seat in [0, 1] {
        assert_eq!(
            found["seats"][seat]["bad_blocks"],
            MIB / BLOCK,
            "seat {seat}"
        );
    }
    let text = bench.ok(&["pool", "status", "tank"]);
    for part in ["state: DAMAGED", "of data lost", "v: bytes ", "debugfs"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let told = events(&bench, "data_lost");
    assert!((1..10).contains(&told.len()), "{told:?}");
    assert!(
        told.iter()
            .all(|(severity, text)| severity == "error" && text.contains("volume v"))
    );
    assert!(bench.log().contains("ERROR volume v: "), "{}", bench.log());

    assert_eq!(bench.terminate(), Some(0));
    bench.start();
    assert_eq!(named(&status(&bench)), lost, "after a restart");
    assert_eq!(check(&bench), 2);

    let mut client = attached(&bench);
    for &block in &lost {
        client
            .write(block * BLOCK, &content(block, 1), false)
            .unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    becomes(&bench, "healthy");
    assert_eq!(check(&bench), 0);
    assert!(!events(&bench, "data_restored").is_empty());
    assert_eq!(unreadable(&bench, blocks, 1), [].into());
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 0, "{}", scrub.stdout);
    assert_eq!(bench.terminate(), Some(0));
    bench.start();
    assert_eq!(check(&bench), 0);
    bench.ok(&["drive", "offline", "tank", "2"]);
    assert_eq!(
        unreadable(&bench, blocks, 1),
        [].into(),
        "with its redundancy"
    );
}

/// Regression: one drive of six is set back to its state before the last writes, without an error, and another drive
/// fails. The failed drive's blocks were reconstructed from the old ones: neither old nor new nor an error, and a scrub
/// found "nothing wrong".
#[test]
fn beside_a_drive_that_was_set_back_a_lost_one_is_read_as_it_was_written() {
    let (bench, blocks) = filled("back", "raid6", 6, 40 * MIB, 24 * MIB);
    let (metadata, data) = regions(&bench, "d2");
    // The drive beyond the used data does not matter here.
    let used = usize::try_from(data + 10 * MIB).unwrap();
    let before = bytes(&bench.path("d2"))[usize::try_from(metadata).unwrap()..used].to_vec();
    bench.ok(&IMPORT);
    write_all(&bench, blocks, 2);
    bench.ok(&["pool", "export", "tank"]);
    put(&bench, "d2", metadata, &before);
    let copy = |from: &str, to: &str| {
        let mut copy = std::process::Command::new("cp");
        let copy = copy.args(["--sparse=always", from, to]);
        assert!(
            copy.current_dir(&bench.directory)
                .status()
                .unwrap()
                .success()
        );
    };
    let drives: Vec<String> = (0..6).map(|drive| format!("d{drive}")).collect();
    std::fs::create_dir(bench.path("saved")).unwrap();
    for drive in &drives {
        copy(drive, &format!("saved/{drive}"));
    }
    // The drive that has the copies of `d2`'s checksums, and one that has none.
    for lost in ["3", "0"] {
        bench.ok(&IMPORT);
        bench.ok(&["drive", "fail", "tank", lost]);
        assert_eq!(
            unreadable(&bench, blocks, 2),
            [].into(),
            "without drive {lost}"
        );
        let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
        assert_eq!(scrub.code, 0, "{}", scrub.stdout);
        assert_eq!(
            unreadable(&bench, blocks, 2),
            [].into(),
            "without drive {lost}"
        );
        let told = status(&bench)["seats"][2]["bad_blocks"].as_u64().unwrap();
        let mended = events(&bench, "pages_mended");
        assert!(
            told > 0 || !mended.is_empty(),
            "the drive that was set back is named"
        );
        bench.ok(&["pool", "export", "tank", "--force"]);
        for drive in &drives {
            copy(&format!("saved/{drive}"), drive);
        }
    }
}

/// Regression: one bad block prevented the rebuild of its whole cell: the status said "add a drive", and writing all
/// data anew did not help.
#[test]
fn one_bad_block_is_lost_alone_when_a_drive_is_replaced() {
    let (bench, blocks) = filled("cell", "raid5", 4, 40 * MIB, 12 * MIB);
    let (_, data) = regions(&bench, "d3");
    overwrite(&bench, "d3", data + MIB, BLOCK);
    bench.ok(&IMPORT);
    bench.ok(&["drive", "fail", "tank", "0"]);
    bench.drives("new", 1, 40 * MIB);
    bench.ok(&["drive", "replace", "tank", "0", "new0"]);
    bench.run(&["pool", "wait", "tank"]);
    let found = status(&bench);
    assert_eq!(found["rebuild"]["cells_lost"], 0, "{found}");
    assert_eq!(found["seats"][0]["state"], "current", "{found}");
    // One block of the bad drive, and a second one if neither column is parity.
    let lost = named(&found);
    assert!((1..=2).contains(&lost.len()), "{lost:?}");
    assert_eq!(lost, unreadable(&bench, blocks, 1));
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(!text.contains("drive add"), "{text}");
    let mut client = attached(&bench);
    for &block in &lost {
        client
            .write(block * BLOCK, &content(block, 1), false)
            .unwrap();
    }
    client.flush().unwrap();
    client.disconnect().unwrap();
    becomes(&bench, "healthy");
    bench.ok(&["pool", "scrub", "tank", "--wait"]);
    bench.ok(&["drive", "offline", "tank", "1"]);
    assert_eq!(
        unreadable(&bench, blocks, 1),
        [].into(),
        "with its redundancy"
    );
}

/// Regression: 9,364 bad blocks on one drive left it HEALTHY with 0 errors, and their events displaced all others.
#[test]
fn a_drive_with_thousands_of_bad_blocks_is_counted_and_named() {
    let (bench, blocks) = filled("rot", "raid5", 4, 40 * MIB, 48 * MIB);
    let (_, data) = regions(&bench, "d2");
    let bad = 15 * MIB / BLOCK;
    overwrite(&bench, "d2", data, bad * BLOCK);
    bench.ok(&IMPORT);
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 0, "{}", scrub.stdout);
    let found = status(&bench);
    assert_eq!(found["health"], "healthy");
    assert_eq!(found["scrub"]["repaired_blocks"], bad);
    let counts = [0, 1, 2, 3].map(|seat: usize| found["seats"][seat]["bad_blocks"].as_u64());
    assert_eq!(counts, [Some(0), Some(0), Some(bad), Some(0)]);
    let text = bench.ok(&["pool", "status", "tank"]);
    let replace = "ravelin drive replace tank 2 NEW";
    for part in ["the drive in seat 2", "3840 blocks", replace] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let told = events(&bench, "block_bad");
    assert!((1..30).contains(&told.len()), "{} events", told.len());
    assert!(
        told.iter()
            .all(|(severity, text)| severity == "warning" && text.contains("seat 2"))
    );
    assert_eq!(events(&bench, "scrub_begins").len(), 1, "is not pushed out");
    assert!(bench.log().contains("WARN seat 2 ("), "{}", bench.log());
    assert_eq!(unreadable(&bench, blocks, 1), [].into());
    // The count survives an export and import.
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&IMPORT);
    assert_eq!(status(&bench)["seats"][2]["bad_blocks"], bad);
}

/// Regression: two drives of four were missing and return. Each has the other one's checksums, so no block of the first
/// drive can be compared before the second returns. The log had one error for each cell, and the cells were left out
/// until then.
#[test]
fn two_drives_that_come_back_have_everything_and_are_told_in_few_events() {
    let (bench, blocks) = filled("come-back", "raid5", 4, 40 * MIB, 16 * MIB);
    std::fs::create_dir(bench.path("away")).unwrap();
    let moves = |from: &str, to: &str| std::fs::rename(bench.path(from), bench.path(to)).unwrap();
    moves("d1", "away/d1");
    moves("d2", "away/d2");
    bench
        .run(&IMPORT)
        .refused(1, &["only 2 of 4", "seat 1", "seat 2", "--degraded"]);
    bench.ok(&[&IMPORT[..], &["--degraded"]].concat());
    assert_eq!(check(&bench), 2);
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 1, "{}", scrub.stdout);
    assert!(
        scrub.stdout.contains("COULD NOT BE CHECKED"),
        "{}",
        scrub.stdout
    );
    moves("away/d1", "d1");
    moves("away/d2", "d2");
    bench.ok(&["drive", "online", "tank", "1"]);
    std::thread::sleep(Duration::from_millis(300));
    let unrecovered = events(&bench, "blocks_unrecovered").len();
    bench.ok(&["drive", "online", "tank", "2"]);
    bench.ok(&["pool", "wait", "tank"]);
    becomes(&bench, "healthy");
    assert_eq!(unreadable(&bench, blocks, 1), [].into());
    // Nothing was written to these groups while both drives were away, so the drives' contents count as they are.
    assert_eq!(unrecovered, 0, "events");
    // Data that was unavailable meanwhile is there again.
    assert_eq!(named(&status(&bench)), [].into());
    for kind in ["data_lost", "data_restored"] {
        let told = events(&bench, kind).len();
        assert!(told < 8, "{told} events {kind}");
    }
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 0, "{}", scrub.stdout);
}
