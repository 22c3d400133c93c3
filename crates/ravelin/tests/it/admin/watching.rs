//! What an administrator monitors: progress, load and events.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MIB, write};
use crate::support::bench::Bench;

/// Regression: `iostat` showed only counts and bytes of drives: no latencies, no queues, no requests of clients.
#[test]
fn iostat_tells_latency_and_queue_of_drives_and_volumes() {
    let bench = Bench::new("iostat");
    let drives = bench.drives("d", 3, 40 * MIB);
    let slow: Vec<String> = drives
        .iter()
        .map(|drive| format!("slow:{drive}?latency=5ms"))
        .collect();
    assert_eq!(bench.create("tank", "raid5", &slow, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    bench.ok(&["volume", "create", "tank/idle", "--size", "1M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    for block in 0..20 {
        client.write(block * 65_536, &[7; 4096], true).unwrap();
        client.read(block * 65_536, 4096).unwrap();
    }
    let told = bench.json(&["pool", "iostat", "tank"]);
    let number = |line: &Value, key: &str| {
        line[key]
            .as_u64()
            .unwrap_or_else(|| panic!("{key}: {told}"))
    };
    let volume = |name: &str| {
        let volumes = told["volumes"].as_array().unwrap().iter();
        { volumes }.find(|line| line["volume"] == name).unwrap()
    };
    let (busy, idle) = (volume("v"), volume("idle"));
    assert_eq!((number(busy, "reads"), number(busy, "writes")), (20, 20));
    assert_eq!(number(busy, "write_bytes"), 20 * 4096);
    for line in told["drives"].as_array().unwrap().iter().chain([busy]) {
        let (mean, most) = ("latency_mean_nanoseconds", "latency_99_nanoseconds");
        assert_eq!(number(line, "queue"), 0, "{line}");
        // A write waits for drives that take 5 ms each; a read of a block just written may not.
        assert!(number(line, mean) > 1_000_000, "{line}");
        assert!(number(line, most) >= 5_000_000, "{line}");
        assert!(number(line, most) >= number(line, mean), "{line}");
    }
    assert_eq!(idle["latency_mean_nanoseconds"], Value::Null);
    let text = bench.ok(&["pool", "iostat", "tank"]);
    for part in ["QUEUE", "MEAN", "99 %", "VOLUME", " ms"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    client.disconnect().unwrap();
}

/// Regression: `iostat` did not separate checkpoints, scrubs and clients' reads, and did not count flushes.
#[test]
fn iostat_counts_flushes_and_discards_and_says_what_operations_are_for() {
    let bench = Bench::new("purposes");
    let drives = bench.drives("d", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives[..3], &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    let iostat = || bench.json(&["pool", "iostat", "tank"]);
    let asked = |told: &Value, purpose: &str, what: &str| {
        let lines = told["purposes"].as_array().unwrap();
        let line = lines.iter().find(|line| line["purpose"] == purpose);
        let all = line.unwrap_or_else(|| panic!("{purpose}: {told}"))[what].as_u64();
        // The pool's number is the sum over its drives.
        let of = |drive: &Value| drive["purposes"][purpose][what].as_u64().unwrap();
        let sum = told["drives"].as_array().unwrap().iter().map(of).sum();
        assert_eq!(all, Some(sum), "{purpose} {what}: {told}");
        sum
    };
    for block in 0..20 {
        client.write(block * 65_536, &[7; 4096], true).unwrap();
    }
    let told = iostat();
    assert!(
        asked(&told, "log", "write_bytes") >= 20 * 2 * 4096,
        "{told}"
    );
    assert!(asked(&told, "log", "flushes") >= 20, "{told}");
    assert_eq!(asked(&told, "rebuild", "reads"), 0, "{told}");
    assert_eq!(asked(&told, "scrub", "reads"), 0, "{told}");
    for drive in told["drives"].as_array().unwrap() {
        assert!(drive["flushes"].as_u64().unwrap() > 0, "{told}");
    }
    client.trim(0, 1 << 20).unwrap();
    client.flush().unwrap();
    let told = iostat();
    let volume = &told["volumes"][0];
    assert_eq!(volume["discards"], 1, "{told}");
    assert_eq!(volume["discard_bytes"], 1 << 20, "{told}");
    assert!(volume["flushes"].as_u64().unwrap() >= 1, "{told}");
    // A checkpoint begins by a timer when no more writes come.
    while asked(&iostat(), "checkpoint", "write_bytes") == 0 {
        std::thread::sleep(Duration::from_millis(100));
    }
    client.write(8 << 20, &[7; 1 << 20], true).unwrap();
    bench.ok(&["pool", "scrub", "tank", "--wait"]);
    let told = iostat();
    assert!(asked(&told, "scrub", "read_bytes") > 1 << 20, "{told}");
    assert_eq!(asked(&told, "scrub", "writes"), 0, "{told}");
    assert_eq!(asked(&told, "rebuild", "reads"), 0, "{told}");
    client.disconnect().unwrap();
    bench.ok(&["drive", "fail", "tank", "1"]);
    bench.ok(&["drive", "replace", "tank", "1", &drives[3]]);
    bench.ok(&["pool", "wait", "tank", "--for", "rebuild"]);
    let told = iostat();
    assert!(asked(&told, "rebuild", "read_bytes") >= 1 << 20, "{told}");
    assert!(asked(&told, "rebuild", "write_bytes") >= 1 << 19, "{told}");
    let text = bench.ok(&["pool", "iostat", "tank"]);
    for part in ["FLUSHES", "DISCARDED", "PURPOSE", "checkpoint"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
}

/// Regression: events were lost when the daemon ended, and named drives by seat only.
#[test]
fn events_outlive_the_daemon_and_name_drives_by_path() {
    let mut bench = Bench::new("events");
    let drives = bench.drives("d", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    bench.ok(&["drive", "fail", "tank", "1"]);
    let events = |bench: &Bench| {
        let told = bench.json(&["pool", "events", "tank"]);
        told["events"].as_array().unwrap().clone()
    };
    let out = |bench: &Bench| -> Vec<(u64, String)> {
        let all = events(bench);
        let outs = all.iter().filter(|event| event["event"] == "drive_out");
        outs.map(|event| {
            (
                event["number"].as_u64().unwrap(),
                event["path"].as_str().unwrap().to_owned(),
            )
        })
        .collect()
    };
    let path = |name: &str| bench.path(name).display().to_string();
    let (d1, d2) = (path("d1"), path("d2"));
    let first = out(&bench);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].1, d1);
    // Events survive a regular end of the daemon, and an import by another one.
    bench.terminate();
    bench.start();
    assert_eq!(out(&bench), first);
    bench.ok(&["drive", "fail", "tank", "2"]);
    let both = out(&bench);
    assert_eq!((both.len(), &both[1].1), (2, &d2));
    bench.kill();
    bench.start();
    assert_eq!(out(&bench), both);
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    assert_eq!(out(&bench), both);
    let numbers: Vec<u64> = events(&bench)
        .iter()
        .map(|event| event["number"].as_u64().unwrap())
        .collect();
    assert!(numbers.is_sorted_by(|a, b| a < b), "{numbers:?}");
    // Events after a given number, as `--follow` requests them.
    let after = both[0].0.to_string();
    let later = bench.json(&["pool", "events", "tank", "--after", &after]);
    assert_eq!(later["events"][0]["number"], both[0].0 + 1);
}

/// Regression: `pool wait` showed a progress bar only for rebuilds. While a scrub ran, the bar stayed empty.
#[test]
fn wait_shows_the_bar_of_what_it_waits_for() {
    let bench = Bench::new("wait");
    let drives = bench.drives("d", 3, 40 * MIB);
    let slow: Vec<String> = drives
        .iter()
        .map(|drive| format!("slow:{drive}?bandwidth=4M"))
        .collect();
    assert_eq!(bench.create("tank", "raid5", &slow, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "32M"]);
    write(&bench, 16 * MIB);
    // `script` gives the program a terminal.
    let shown = |what: &str| {
        let wait = format!(
            "{} pool wait tank --for {what}",
            env!("CARGO_BIN_EXE_ravelin")
        );
        let ran = Command::new("script")
            .args(["-qec", &wait, "/dev/null"])
            .env("RAVELIN_SOCKET", bench.path("socket"))
            .output();
        let ran = ran
            .inspect_err(|error| eprintln!("skipped: script: {error}"))
            .ok()?;
        assert!(ran.status.success(), "{ran:?}");
        Some(String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    bench.ok(&["pool", "scrub", "tank"]);
    let Some(text) = shown("scrub") else { return };
    assert!(
        text.contains("scrub [") && text.contains(" groups, "),
        "{text}"
    );
    assert!(!text.contains("rebuild ["), "{text}");
    let ended = bench.json(&["pool", "status", "tank"]);
    assert_eq!(ended["scrub"]["running"], false);
    bench.ok(&["drive", "fail", "tank", "1"]);
    let new = format!("slow:{}?bandwidth=1M", bench.drives("new", 1, 40 * MIB)[0]);
    bench.ok(&["drive", "replace", "tank", "1", &new]);
    let text = shown("rebuild").unwrap();
    assert!(
        text.contains("rebuild [") && text.contains("/s, "),
        "{text}"
    );
}

/// Regression: a fill that failed because a drive had just refused something is tried again two seconds later. `pool wait`
/// returned before that, and `pool status` asked for a drive that was there.
#[test]
fn wait_counts_a_rebuild_that_is_tried_again() {
    let bench = Bench::new("wait-retry");
    let drives = bench.drives("d", 3, 40 * MIB);
    let gone = bench.path("gone");
    let shaky = format!(
        "faulty:{}?fail=gone&times=all&while={}",
        drives[0],
        gone.display()
    );
    let members = [shaky, drives[1].clone(), drives[2].clone()];
    assert_eq!(bench.create("tank", "raid5", &members, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    write(&bench, 16 * MIB);
    bench.ok(&["drive", "fail", "tank", "1"]);
    let new = format!("slow:{}?bandwidth=2M", bench.drives("new", 1, 40 * MIB)[0]);
    bench.ok(&["drive", "replace", "tank", "1", &new]);
    let status = || bench.json(&["pool", "status", "tank"]);
    assert_eq!(status()["rebuild"]["running"], true);
    // What the new drive gets is computed from a drive that does not answer now.
    std::fs::write(&gone, "").unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = status();
        if status["rebuild"]["tries_again"] == true {
            assert_eq!(status["rebuild"]["running"], false);
            break;
        }
        assert!(Instant::now() < deadline, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_file(&gone).unwrap();
    bench.ok(&["pool", "wait", "tank"]);
    let after = status();
    assert_eq!(after["health"], "healthy", "{after}");
}
