//! Rebuilds that are steered: priority, rate and pause.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::{MIB, status, write};
use crate::support::bench::Bench;

/// Seven slow drives, declustered, with a volume that is written, and one of the drives out.
fn degraded(test: &str, bandwidth: &str) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives("d", 7, 100 * MIB);
    let drives: Vec<String> = { drives.iter() }
        .map(|drive| format!("slow:{drive}?bandwidth={bandwidth}"))
        .collect();
    assert_eq!(bench.create("tank", "pddl2:2d:1s", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "24M"]);
    write(&bench, 24 * MIB);
    bench
}

#[track_caller]
fn until(bench: &Bench, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let status = status(bench);
        if is(&status) {
            return status;
        }
        let shown = (&status["work"], &status["steering"], &status["rebuild"]);
        assert!(Instant::now() < deadline, "not {what}: {shown:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn done_bytes(status: &Value) -> u64 {
    status["rebuild"]["done_bytes"].as_u64().unwrap()
}

/// Waits until the steps that were in flight have ended. Returns what the rebuild has done.
fn at_rest(bench: &Bench) -> u64 {
    let mut before = done_bytes(&status(bench));
    loop {
        std::thread::sleep(Duration::from_millis(700));
        let now = done_bytes(&status(bench));
        if now == before {
            return now;
        }
        before = now;
    }
}

#[test]
fn a_paused_rebuild_stays_paused_over_a_kill_and_nothing_moves_before_it_is_resumed() {
    let mut bench = degraded("paused", "4M");
    let said = bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    assert!(
        said.starts_with("pool `tank`: paused; priority medium"),
        "{said}"
    );
    bench.ok(&["drive", "fail", "tank", "3"]);
    let before = until(&bench, "begun", |status| !status["rebuild"].is_null());
    assert_eq!(before["work"][0]["kind"], "rebuild", "{}", before["work"]);
    assert_eq!(before["work"][0]["paused"], true);
    assert_eq!(before["work"][0]["eta_seconds"], Value::Null);
    assert_eq!(at_rest(&bench), 0);
    bench.kill();
    bench.start();
    let after = until(&bench, "begun", |status| !status["rebuild"].is_null());
    assert_eq!(after["steering"]["paused"], true);
    assert_eq!(at_rest(&bench), 0);
    assert_eq!(
        after["rebuild"]["total_bytes"],
        before["rebuild"]["total_bytes"]
    );
    let text = bench.ok(&["pool", "status", "tank"]);
    for words in [
        "rebuild: paused at 0.0 %, 0 B of ",
        "the rebuild is paused by command",
        "action: `ravelin pool rebuild tank --resume`",
        "steered: paused; priority medium",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }

    bench.ok(&["pool", "rebuild", "tank", "--resume", "--rate", "1M"]);
    bench
        .run(&["pool", "rebuild", "tank", "--resume"])
        .refused(1, &["is paused", "try: "]);
    // Paused again in the middle, and killed: cells that are complete stay complete.
    let total = before["rebuild"]["total_bytes"].as_u64().unwrap();
    until(&bench, "half done", |status| {
        done_bytes(status) >= total / 3
    });
    bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    at_rest(&bench);
    let cells = |status: &Value, name: &str| status["rebuild"][name].as_u64().unwrap();
    let paused = until(&bench, "recorded", |status| cells(status, "cells_done") > 0);
    let left = cells(&paused, "cells_total") - cells(&paused, "cells_done");
    bench.kill();
    bench.start();
    let again = until(&bench, "begun", |status| !status["rebuild"].is_null());
    assert!(
        cells(&again, "cells_total") <= left,
        "{again} after {paused}"
    );
    assert_eq!(done_bytes(&again), 0);
    let resume = ["--resume", "--rate", "off", "--priority", "high"];
    bench.ok(&[&["pool", "rebuild", "tank"], &resume[..]].concat());
    bench.ok(&["pool", "wait", "tank"]);
    let ended = status(&bench);
    assert_eq!(ended["health"], "healthy", "{ended}");
    assert_eq!(cells(&ended, "cells_lost"), 0);
    assert_eq!(ended["work"].as_array().unwrap().len(), 0);
    let scrubbed = bench.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrubbed["scrub"]["bad_blocks"], 0);
    assert_eq!(status(&bench)["steering"]["priority"], "high");
}

#[test]
fn a_rate_bounds_all_lanes_together() {
    let bench = degraded("rate", "40M");
    bench.ok(&["pool", "rebuild", "tank", "--rate", "1M"]);
    bench.ok(&["drive", "fail", "tank", "3"]);
    let first = until(&bench, "under way", |status| {
        status["rebuild"]["done_bytes"].as_u64().unwrap_or(0) >= MIB
    });
    let seconds = |status: &Value| status["rebuild"]["seconds"].as_f64().unwrap();
    let last = until(&bench, "four seconds on", |status| {
        seconds(status) >= seconds(&first) + 4.0
    });
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let moved = (done_bytes(&last) - done_bytes(&first)) as f64;
    let rate = moved / (seconds(&last) - seconds(&first)) / 1048576.0;
    // A busy machine may be late with a step; no lane may be early with one.
    assert!((0.7..1.1).contains(&rate), "{rate} MiB/s");
    let work = &last["work"][0];
    let [least, likely, most] = [0, 1, 2].map(|at| work["eta_seconds"][at].as_f64().unwrap());
    assert!(least < likely && likely < most, "{work}");
    assert!(work["bottleneck_seat"].is_u64(), "{work}");
    assert!(work["verified_bytes"].as_u64().unwrap() > 2 * MIB, "{work}");
    assert_eq!(work["verified_bytes"], work["read_bytes"], "{work}");
    let text = bench.ok(&["pool", "status", "tank"]);
    for words in [
        "ends in ",
        " has the most left; ",
        " read, all verified; priority medium",
    ] {
        assert!(text.contains(words), "no `{words}` in {text}");
    }
    bench.ok(&["pool", "rebuild", "tank", "--rate", "off"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(status(&bench)["steering"]["rate_bytes"], Value::Null);
}

/// A priority or rate that does not parse, a rate below a megabyte a second, and a resume of what is not paused.
#[test]
fn bad_input_is_refused_in_one_message_and_changes_nothing() {
    let bench = Bench::new("refused");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let before = status(&bench)["steering"].clone();
    let rebuild = |more: &[&str]| bench.run(&[&["pool", "rebuild", "tank"], more].concat());
    rebuild(&["--priority", "urgent"]).refused(2, &["low, medium, high"]);
    rebuild(&["--rate", "fast"]).refused(2, &["100M", "off"]);
    rebuild(&["--rate", "1000", "--priority", "low"]).refused(
        2,
        &["less than a megabyte", "would take 7 hours", "--pause"],
    );
    rebuild(&["--resume"]).refused(1, &["neither its rebuild nor its scrub is paused"]);
    rebuild(&["--pause", "--resume"]).refused(2, &["cannot be used with"]);
    assert_eq!(status(&bench)["steering"], before);
    let set = bench.json(&[
        "pool",
        "rebuild",
        "tank",
        "--rate",
        "2M",
        "--priority",
        "low",
    ]);
    assert_eq!(set["priority"], "low");
    assert_eq!(set["rate_bytes"], 2 * MIB);
    let history = bench.ok(&["pool", "history", "tank"]);
    assert!(
        history.contains("pool rebuild tank --priority low --rate 2MiB"),
        "{history}"
    );
}

/// A pool is critical when a group has no redundancy left; a pause says that it leaves such groups waiting.
#[test]
fn a_pool_without_redundancy_is_critical_and_a_pause_says_what_it_leaves_waiting() {
    let bench = Bench::new("critical");
    let drives = bench.drives("d", 4, 40 * MIB);
    let spare = bench.drives("s", 1, 40 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    write(&bench, 8 * MIB);
    bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    bench.ok(&["drive", "fail", "tank", "1"]);
    assert_eq!(status(&bench)["health"], "degraded");
    bench.ok(&["drive", "fail", "tank", "2"]);
    let critical = status(&bench);
    assert_eq!(critical["health"], "critical");
    let groups = critical["steering"]["groups_without_redundancy"].as_u64();
    assert!(groups.unwrap() > 0, "{}", critical["steering"]);
    assert_eq!(bench.run(&["pool", "status", "tank", "--check"]).code, 1);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("state: CRITICAL"), "{text}");
    assert!(text.contains("another failure loses data"), "{text}");
    bench.ok(&["drive", "replace", "tank", "1", &spare[0]]);
    let said = bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    assert!(said.contains("without redundancy wait"), "{said}");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("without redundancy wait"), "{text}");
    bench.ok(&["pool", "rebuild", "tank", "--resume"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(status(&bench)["health"], "degraded");
}
