//! When pools were scrubbed, and when they will be; and the same advice in all JSON.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::{MIB, status, write};
use crate::support::bench::Bench;

const DAY_MILLISECONDS: u64 = 86_400_000;

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

/// Waits until a status is as it shall be.
#[track_caller]
fn until(bench: &Bench, what: &str, is: impl Fn(&Value) -> bool) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let status = status(bench);
        if is(&status) {
            return status;
        }
        assert!(Instant::now() < deadline, "not {what}: {}", status["scrub"]);
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Regression: after each start of the daemon a pool had never been scrubbed, and dates were shown nowhere.
#[test]
fn the_last_scrub_is_known_after_restarts_and_the_next_one_has_a_date() {
    let mut bench = Bench::new("last-scrub");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    write(&bench, 4 * MIB);
    let fresh = status(&bench);
    assert!(fresh["last_scrub"].is_null(), "{fresh}");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(
        !text.contains("scrub:") && !text.contains("next:"),
        "{text}"
    );

    bench.ok(&["pool", "scrub", "tank", "--every", "month"]);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("scrub: none yet\n   next: 20"), "{text}");
    assert!(text.contains("Z, then every 30 days\n"), "{text}");
    let next = status(&bench)["next_scrub_at_milliseconds"]
        .as_u64()
        .unwrap();
    assert!((now() + 30 * DAY_MILLISECONDS).abs_diff(next) < DAY_MILLISECONDS / 2);

    let before = now();
    bench.ok(&["pool", "scrub", "tank", "--wait"]);
    let first = status(&bench)["last_scrub"].clone();
    let at = first["ended_at_milliseconds"].as_u64().unwrap();
    assert!(before <= at + 1000 && at <= now() + 1000, "{first}");
    assert!(first["read_bytes"].as_u64().unwrap() > 4 * MIB, "{first}");

    // Written a moment after the scrub has ended.
    let file = bench.path("socket.state").join("scrubs.json");
    let deadline = Instant::now() + Duration::from_secs(30);
    while !file.exists() {
        assert!(Instant::now() < deadline, "{} is not there", file.display());
        std::thread::sleep(Duration::from_millis(10));
    }
    bench.kill();
    bench.start();
    let again = status(&bench);
    assert!(again["scrub"].is_null(), "none in this run of the daemon");
    let last = &again["last_scrub"];
    assert_eq!(last["read_bytes"], first["read_bytes"]);
    let dated = last["ended_at_milliseconds"].as_u64().unwrap();
    assert!(dated.abs_diff(at) < 5000, "{last}");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("scrub: ended 20"), "{text}");
    assert!(text.contains("Z, then every 30 days\n"), "{text}");

    // A stop right after a scrub records it, too.
    bench.ok(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(bench.terminate(), Some(0));
    bench.start();
    let later = status(&bench)["last_scrub"]["ended_at_milliseconds"].clone();
    assert!(later.as_u64().unwrap() > dated, "{later} after {dated}");

    let uuid = again["uuid"].as_str().unwrap().to_owned();
    let recorded = || std::fs::read_to_string(&file).unwrap().contains(&uuid);
    assert!(recorded());
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    assert!(!recorded());
}

/// Regression: a scrub under way had no rate and no end in sight, and one that was paused was not shown at all.
#[test]
fn a_scrub_shows_how_fast_it_is_when_it_ends_and_that_it_is_paused() {
    let bench = Bench::new("scrubbing");
    let drives = bench.drives("d", 3, 40 * MIB);
    let slow: Vec<String> = { drives.iter() }
        .map(|drive| format!("slow:{drive}?bandwidth=2M"))
        .collect();
    assert_eq!(bench.create("tank", "raid5", &slow, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    write(&bench, 12 * MIB);
    bench.ok(&["pool", "scrub", "tank"]);
    let said = bench.ok(&["pool", "scrub", "tank", "--pause"]);
    assert!(said.contains("paused at "), "{said}");
    let paused = status(&bench)["scrub"].clone();
    assert_eq!(paused["paused"], true, "{paused}");
    assert_eq!(paused["running"], false, "{paused}");
    let text = bench.ok(&["pool", "status", "tank"]);
    for words in ["scrub: paused at ", "`ravelin pool scrub tank --resume`"] {
        assert!(text.contains(words), "{text}");
    }
    assert!(bench.ok(&["status"]).contains("tank: scrub paused at "));

    bench.ok(&["pool", "scrub", "tank", "--resume"]);
    let is_rated = |status: &Value| status["scrub"]["eta_seconds"].is_f64();
    let running = until(&bench, "rated", is_rated)["scrub"].clone();
    assert_eq!(running["running"], true, "{running}");
    assert!(running["bytes_per_second"].as_f64().unwrap() > 0.0);
    let text = bench.ok(&["pool", "status", "tank"]);
    for words in ["scrub: [", " %, ", " groups, ", "/s, ETA "] {
        assert!(text.contains(words), "{text}");
    }
    bench.ok(&["pool", "wait", "tank", "--for", "scrub"]);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("scrub: ended 20"), "{text}");
}

/// Regression: only `status --json` said what is wrong and what to do, and monitoring asked `pool status --json`.
#[test]
fn the_json_of_a_pool_says_what_is_wrong_and_what_to_do() {
    let bench = Bench::new("advice");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let healthy = status(&bench);
    assert!(healthy["problem"].is_null() && healthy["action"].is_null());
    bench.ok(&["drive", "offline", "tank", "1"]);
    let glance = bench.json(&["status"])["pools"][0].clone();
    let all = bench.json(&["pool", "status"])["pools"][0].clone();
    for shown in [status(&bench), all] {
        for key in ["problem", "action"] {
            assert!(shown[key].is_string(), "{key}: {shown}");
            assert_eq!(shown[key], glance[key]);
        }
        let action = shown["action"].as_str().unwrap();
        assert!(action.contains("ravelin drive online tank 1"), "{action}");
    }
}
