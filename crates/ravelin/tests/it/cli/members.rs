//! One drive that misbehaves does not stop a pool: a stale reservation, a truncated file. A working drive stays a
//! source until it has been replaced.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use array::format::{HOLDER_OFFSET, Holder, newest_label};
use export::nbd::Client;
use testing::eventually;

use crate::support::bench::{Bench, bytes};

const MIB: u64 = 1 << 20;
/// Longer than the time from one renewal of the lease to the next; a renewal reads the reservations.
const PAST_A_RENEWAL: Duration = Duration::from_millis(5_500);

fn claim_on(bench: &Bench, drive: &str) -> Vec<u8> {
    let at = usize::try_from(HOLDER_OFFSET).unwrap();
    bytes(&bench.path(drive))[at..at + 4096].to_vec()
}

fn write_reservation(bench: &Bench, drive: &str, reservation: &[u8]) {
    let path = bench.path(drive);
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(reservation, HOLDER_OFFSET).unwrap();
}

/// Regression: one drive of six got back the reservation of an earlier opening. The pool ended all service, its status
/// was HEALTHY, and it could not be exported because it was "being exported". A reservation that counts still ends
/// service, and then all commands report the reason.
#[test]
fn a_stale_reservation_on_one_drive_of_six_changes_nothing_and_one_that_counts_is_reported() {
    let bench = Bench::new("reservations");
    let drives = bench.drives("d", 6, 32 * MIB);
    assert_eq!(bench.create("tank", "raid6", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "2M"]);
    let stale = claim_on(&bench, "d3");
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    assert!(claim_on(&bench, "d3") != stale);

    write_reservation(&bench, "d3", &stale);
    std::thread::sleep(PAST_A_RENEWAL);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "healthy");
    assert_eq!(status["taken_over"], serde_json::Value::Null);
    bench.ok(&["volume", "create", "tank/w", "--size", "2M"]);
    let events = bench.ok(&["pool", "events", "tank"]);
    assert!(!events.contains("taken the pool over"), "{events}");

    // Another host has opened the pool, and has written its reservation to one drive so far.
    let pool = status["uuid"].as_str().unwrap().parse().unwrap();
    let own = Holder::parse(pool, &claim_on(&bench, "d0")).unwrap();
    let later = Holder {
        opening: pool,
        number: own.number.map(|number| number.plus(100)),
        ..own
    };
    write_reservation(&bench, "d5", &later.encode());
    eventually("the reservation is seen", || {
        bench.json(&["pool", "status", "tank"])["health"] == "unusable"
    });
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["taken_over"]["opening"], status["uuid"]);
    let shown = bench.ok(&["pool", "status", "tank"]);
    assert!(
        shown.contains("another host has taken the pool over"),
        "{shown}"
    );
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 2);
    let why = ["another host has taken the pool over"];
    bench
        .run(&["drive", "offline", "tank", "1"])
        .refused(1, &why);
    bench.run(&["pool", "export", "tank"]).refused(1, &why);
    let pools = bench.json(&["pool", "list"]);
    assert_eq!(pools["pools"], serde_json::json!([]), "it is put away");
}

/// Regression: a file cut to a mebibyte prevented the pool from being opened, even with `--degraded`; a pool with a
/// file cut to a tenth was opened as HEALTHY.
#[test]
fn a_pool_opens_without_a_file_that_was_cut_and_says_so() {
    let bench = Bench::new("cut");
    let drives = bench.drives("d", 5, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "2M"]);
    for left in [4 * MIB, MIB, MIB / 2] {
        bench.ok(&["pool", "export", "tank"]);
        let path = bench.path("d2");
        let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
        file.set_len(left).unwrap();
        let import = ["pool", "import", "--dir", ".", "tank"];
        bench.ok(&import);
        let why = format!("its label says {} bytes, the drive has {left}", 40 * MIB);
        let status = bench.json(&["pool", "status", "tank"]);
        assert_eq!(status["health"], "degraded");
        assert_eq!(status["seats"][2]["state"], "out");
        assert_eq!(status["seats"][2]["detail"], why);
        assert!(bench.ok(&["pool", "status", "tank"]).contains(&why));
        if left == 4 * MIB {
            let events = bench.ok(&["pool", "events", "tank"]);
            assert!(events.contains(&why), "{events}");
        }
        bench
            .run(&["drive", "online", "tank", "2"])
            .refused(1, &["the pool needs"]);
    }
    bench.ok(&["volume", "create", "tank/w", "--size", "2M"]);
}

/// Regression: a working drive was taken out when its replacement began. Undetected damage on another drive was lost
/// then, although the drive just taken out had the data to reconstruct it.
#[test]
fn a_drive_that_is_replaced_helps_with_what_another_one_has_lost() {
    let bench = Bench::new("replaced");
    let drives = bench.drives("d", 4, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let export = bench.json(&attach);
    let connect = |uri: &str| Client::connect(&uri.parse().unwrap(), None).unwrap();
    let pattern: Vec<u8> = (1..=249).cycle().take(16 << 20).collect();
    let mut client = connect(export["uri"].as_str().unwrap());
    client.write(0, &pattern, false).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
    bench.ok(&["pool", "export", "tank"]);

    // A megabyte of drive 3's cells is overwritten.
    let held = bytes(&bench.path("d3"));
    let slot = |at: usize| &held[at..at + (504 << 10)];
    let (_, label) = newest_label([slot(4 << 10), slot(512 << 10)]).unwrap();
    let path = bench.path("d3");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(&[0xa5; 1 << 20], label.facts.data_offset + MIB)
        .unwrap();

    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    bench.drives("new", 1, 40 * MIB);
    let replaced = bench.json(&["drive", "replace", "tank", "0", "new0"]);
    assert_eq!(
        replaced["seat"], 4,
        "behind the others until it is complete"
    );
    bench
        .run(&["drive", "replace", "tank", "0", "d9"])
        .refused(1, &[]);
    bench.ok(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    let seats = status["seats"].as_array().unwrap();
    assert_eq!((seats.len(), &status["health"]), (4, &"healthy".into()));
    assert!(seats[0]["path"].as_str().unwrap().contains("new0"));
    let events = bench.ok(&["pool", "events", "tank"]);
    for part in ["is being replaced by", "has replaced the one before it"] {
        assert!(events.contains(part), "no `{part}` in:\n{events}");
    }
    let export = bench.json(&attach);
    let mut client = connect(export["uri"].as_str().unwrap());
    assert!(client.read(0, pattern.len()).unwrap() == pattern);
    client.disconnect().unwrap();

    // After another import the pool still works without the old drive.
    bench.ok(&["pool", "export", "tank", "--force"]);
    std::fs::remove_file(bench.path("d0")).unwrap();
    let opened = bench.json(&["pool", "import", "--dir", ".", "tank"]);
    assert_eq!(opened["health"], "healthy");
}

/// When a replacement is given up, the old drive has been in use all the time.
#[test]
fn a_replacement_is_seen_and_can_be_given_up() {
    let bench = Bench::new("given-up");
    let drives = bench.drives("d", 3, 40 * MIB);
    let slow: Vec<String> = drives
        .iter()
        .map(|drive| format!("slow:{drive}?bandwidth=2M"))
        .collect();
    assert_eq!(bench.create("tank", "raid5", &slow, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let mut client =
        Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap();
    client.write(0, &[7; 4 << 20], false).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
    bench.drives("new", 1, 40 * MIB);
    bench.ok(&["drive", "replace", "tank", "1", "slow:new0?bandwidth=256K"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["health"], "healthy");
    assert_eq!(status["seats"][1]["replaced_by"], 3);
    assert_eq!(status["seats"][3]["replaces"], 1);
    assert_eq!(status["seats"][3]["state"], "filling");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("being replaced by seat 3"), "{text}");
    bench.ok(&["drive", "fail", "tank", "3"]);
    eventually("its seat is gone", || {
        bench.json(&["pool", "status", "tank"])["seats"]
            .as_array()
            .unwrap()
            .len()
            == 3
    });
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
    let events = bench.ok(&["pool", "events", "tank"]);
    assert!(events.contains("keeps its place"), "{events}");
}
