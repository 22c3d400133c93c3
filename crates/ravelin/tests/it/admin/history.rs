//! `pool history`: who changed what, and the important events.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::MIB;
use crate::support::bench::Bench;

fn history(bench: &Bench, pool: &str) -> Vec<Value> {
    let document = bench.json(&["pool", "history", pool]);
    document["history"].as_array().unwrap().clone()
}

fn texts<'a>(lines: &'a [Value], field: &str) -> Vec<&'a str> {
    lines
        .iter()
        .filter_map(|line| line[field].as_str())
        .collect()
}

/// The commands that users have sent.
fn commands(lines: &[Value]) -> Vec<&str> {
    let sent = lines.iter().filter(|line| line["uid"].is_u64());
    sent.filter_map(|line| line["what"].as_str()).collect()
}

#[test]
fn changes_are_recorded_with_their_user_and_survive_a_restart() {
    let mut bench = Bench::new("history");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    // What reads, and what is refused, leaves no line.
    bench.ok(&["volume", "list"]);
    assert_eq!(
        bench
            .run(&["volume", "create", "tank/v", "--size", "8M"])
            .code,
        1
    );
    bench.ok(&[
        "volume",
        "attach",
        "tank/v",
        "--nbd",
        "unix:v.sock",
        "--read-only",
    ]);
    bench.ok(&["drive", "offline", "tank", "1"]);
    let path = |name: &str| bench.path(name).display().to_string();
    let expected = [
        format!(
            "pool create tank raid5 {} {} {}",
            path("d0"),
            path("d1"),
            path("d2")
        ),
        "volume create tank/v --size 8MiB".to_owned(),
        format!(
            "volume attach tank/v --nbd unix:{} --read-only",
            path("v.sock")
        ),
        "drive offline tank 1".to_owned(),
    ];
    let lines = history(&bench, "tank");
    assert_eq!(commands(&lines), expected);
    let own = u64::from(rustix::process::geteuid().as_raw());
    let sent = lines.iter().filter(|line| line["uid"].is_u64());
    assert!({ sent }.all(|line| line["uid"] == own), "{lines:?}");
    // The event that followed.
    let until = Instant::now() + Duration::from_secs(20);
    while !texts(&history(&bench, "tank"), "what").contains(&"drive_out") {
        assert!(Instant::now() < until, "{:?}", history(&bench, "tank"));
        std::thread::sleep(Duration::from_millis(20));
    }
    bench.terminate();
    bench.start();
    assert_eq!(commands(&history(&bench, "tank")), expected);
    bench.ok(&["volume", "detach", "tank/v"]);
    let text = bench.ok(&["pool", "history", "tank"]);
    for part in ["volume create tank/v", "volume detach tank/v", "seat 1"] {
        assert!(text.contains(part), "no {part} in:\n{text}");
    }
    let first = text.lines().next().unwrap();
    assert!(
        first.contains("Z  ") && first.contains("pool create"),
        "{text}"
    );
}

#[test]
fn another_users_command_is_recorded_as_that_users() {
    let bench = Bench::new("history-user");
    let drives = bench.drives("d", 2, 40 * MIB);
    assert_eq!(bench.create("tank", "raid1", &drives, &[]).code, 0);
    // Everybody may use this socket and enter its directory.
    let open = Command::new("chmod")
        .args(["a+rwx"])
        .args([bench.path("socket"), bench.directory.clone()])
        .status();
    let program = env!("CARGO_BIN_EXE_ravelin");
    let ran = Command::new("setpriv")
        .args(["--reuid", "65534", "--clear-groups", program])
        .args(["volume", "create", "tank/v", "--size", "8M"])
        .env("RAVELIN_SOCKET", bench.path("socket"))
        .output();
    if !open.is_ok_and(|open| open.success()) || !ran.is_ok_and(|ran| ran.status.success()) {
        return eprintln!("skipped: it needs root and setpriv");
    }
    let lines = history(&bench, "tank");
    let last = lines.iter().rfind(|line| line["uid"].is_u64()).unwrap();
    assert_eq!(last["what"], "volume create tank/v --size 8MiB");
    assert_eq!(last["uid"], 65534);
}

#[test]
fn a_pool_that_went_elsewhere_and_came_back_has_its_history() {
    let bench = Bench::new("history-import");
    let drives = bench.drives("d", 2, 40 * MIB);
    assert_eq!(bench.create("tank", "raid1", &drives, &[]).code, 0);
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    let lines = history(&bench, "tank");
    let sent = commands(&lines);
    assert_eq!(sent[1..], ["pool export tank", "pool import tank"]);
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    bench
        .run(&["pool", "history", "tank"])
        .refused(1, &["no pool `tank`"]);
}
