//! Drives and their names.

use super::MIB;
use crate::support::bench::{Bench, bytes};

/// Regression: `drive offline` used up the hot spare: the two drives swapped seats, and `online` found a working drive
/// in the seat.
#[test]
fn a_drive_that_is_offline_keeps_its_seat_and_leaves_the_spare_alone() {
    let mut bench = Bench::new("offline");
    let drives = bench.drives("d", 4, 40 * MIB);
    for scheme in ["raid5", "pddl1:1d:1s"] {
        let made = bench.create("tank", scheme, &drives[..3], &["spare", "d3"]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
        let served = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:first"]);
        let uri = served["uri"].as_str().unwrap().parse().unwrap();
        let mut client = export::nbd::Client::connect(&uri, None).unwrap();
        client.write(0, &[1; 4096], true).unwrap();
        client.disconnect().unwrap();
        bench.ok(&["volume", "detach", "tank/v"]);
        let off = bench.json(&["drive", "offline", "tank", "1"]);
        assert_eq!((&off["seat"], &off["state"]), (&1.into(), &"out".into()));
        bench.ok(&["pool", "wait", "tank"]);
        let seats = |bench: &Bench| bench.json(&["pool", "status", "tank"])["seats"].clone();
        let states = |seats: &serde_json::Value| -> Vec<String> {
            let seats = seats.as_array().unwrap().iter();
            seats
                .map(|seat| seat["state"].as_str().unwrap().to_owned())
                .collect()
        };
        let now = seats(&bench);
        assert_eq!(states(&now), ["current", "out", "current", "waiting"]);
        assert_eq!(now[3]["rebuild_write_bytes"], 0, "{now}");
        // A restart of the daemon changes none of these states.
        bench.terminate();
        bench.start();
        bench.ok(&["pool", "wait", "tank"]);
        assert_eq!(
            states(&seats(&bench)),
            ["current", "out", "current", "waiting"]
        );
        let back = bench.json(&["drive", "online", "tank", "1"]);
        assert_eq!(back["seat"], 1);
        bench.ok(&["pool", "wait", "tank"]);
        assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);

        // With a rebuild: at once (`--rebuild`), or when `drive fail` says that the offline drive does not return.
        if scheme == "raid5" {
            bench.ok(&["drive", "offline", "tank", "1", "--rebuild"]);
        } else {
            bench.ok(&["drive", "offline", "tank", "1"]);
            bench.ok(&["drive", "fail", "tank", "1"]);
        }
        bench.ok(&["pool", "wait", "tank"]);
        assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
        let rebuilt = bench.json(&["pool", "status", "tank"]);
        assert!(
            rebuilt["rebuild"]["cells_total"].as_u64().unwrap() > 0,
            "{rebuilt}"
        );
        bench.ok(&["pool", "destroy", "tank", "--yes"]);
    }
}

/// Regression: a spare and the drive that it replaced swapped seat numbers. `drive online` of the failed drive then
/// meant the spare, and `drive offline` took out the wrong drive.
#[test]
fn a_spare_that_takes_over_keeps_its_number_and_so_does_the_drive_that_failed() {
    let mut bench = Bench::new("numbers");
    let drives = bench.drives("d", 6, 40 * MIB);
    let spares = ["spare", "d3", "d4"];
    let made = bench.create("tank", "raid5", &drives[..3], &spares);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    let path = |name: &str| bench.path(name).display().to_string();
    let paths: Vec<String> = drives.iter().map(|name| path(name)).collect();
    // Number and state of every drive, the seat whose place it takes, and the seat that takes its place; checks the
    // paths.
    let shown = |bench: &Bench| {
        let status = bench.json(&["pool", "status", "tank"]);
        let seats = status["seats"].as_array().unwrap().clone();
        let mut lines = Vec::new();
        for seat in &seats {
            let number = seat["seat"].as_u64().unwrap();
            let at = usize::try_from(number).unwrap();
            assert_eq!(seat["path"], *paths[at], "{status}");
            let state = seat["state"].as_str().unwrap();
            let place = |key: &str| seat[key].as_u64();
            let places = (place("takes_place_of"), place("place_taken_by"));
            lines.push((number, state.to_owned(), places));
        }
        lines
    };
    let line = |number: u64, state: &str, of: Option<u64>, by: Option<u64>| {
        (number, state.to_owned(), (of, by))
    };
    let failed = bench.json(&["drive", "fail", "tank", "1"]);
    assert_eq!(
        (&failed["seat"], &failed["state"]),
        (&1.into(), &"out".into())
    );
    bench.ok(&["pool", "wait", "tank"]);
    let taken_over = [
        line(0, "current", None, None),
        line(1, "out", None, Some(3)),
        line(2, "current", None, None),
        line(3, "current", Some(1), None),
        line(4, "waiting", None, None),
    ];
    assert_eq!(shown(&bench), taken_over);
    let text = bench.ok(&["pool", "status", "tank"]);
    for part in ["spare 3 took its place", "spare in the place of 1"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let events = bench.json(&["pool", "events", "tank"]);
    let events = events["events"].as_array().unwrap();
    let find = |name: &str| {
        { events.iter() }
            .find(|event| event["event"] == name)
            .unwrap()
    };
    for (name, number) in [("drive_out", 1), ("spare_takes_over", 3), ("drive_in", 3)] {
        let event = find(name);
        assert_eq!(event["seat"], number, "{event}");
        let told = format!("seat {number} ({})", paths[number]);
        assert!(
            event["text"].as_str().unwrap().starts_with(&told),
            "{event}"
        );
    }
    // A restart of the daemon changes none of this.
    bench.terminate();
    bench.start();
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(shown(&bench), taken_over);

    // A seat's number stays with its drive: the spare in use goes offline and returns, and so does the failed drive.
    let off = bench.json(&["drive", "offline", "tank", "3"]);
    assert_eq!((&off["seat"], &off["state"]), (&3.into(), &"out".into()));
    assert_eq!(shown(&bench)[3], line(3, "out", Some(1), None));
    assert_eq!(bench.json(&["drive", "online", "tank", "3"])["seat"], 3);
    bench.ok(&["pool", "wait", "tank"]);
    let back = bench.json(&["drive", "online", "tank", "1"]);
    assert_eq!(
        (&back["seat"], &back["state"]),
        (&1.into(), &"waiting".into())
    );
    assert_eq!(shown(&bench)[1], line(1, "waiting", None, Some(3)));

    // When the spare fails, drive 1, as the first waiting spare, takes its own place again.
    bench.ok(&["drive", "fail", "tank", "3"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(
        shown(&bench),
        [
            line(0, "current", None, None),
            line(1, "current", None, None),
            line(2, "current", None, None),
            line(3, "out", None, None),
            line(4, "waiting", None, None),
        ]
    );
    bench
        .run(&["drive", "replace", "tank", "9", "d5"])
        .refused(1, &["no seat 9"]);
    let new = bench.json(&["drive", "replace", "tank", "0", "d5"]);
    bench.ok(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_eq!(status["seats"][0]["path"], *paths[5], "{new} {status}");
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}

/// Regression: `/dev/disk/by-id` has several links to a drive. `import --dir` opened the drive twice, and the second
/// time reported it as "in use by another daemon", which was the same daemon.
#[test]
fn a_drive_with_two_names_is_one_drive() {
    let bench = Bench::new("links");
    let drives = bench.drives("d", 3, 40 * MIB);
    std::fs::create_dir(bench.path("by-id")).unwrap();
    for drive in &drives {
        for kind in ["ata", "wwn"] {
            let link = bench.path("by-id").join(format!("{kind}-{drive}"));
            std::os::unix::fs::symlink(bench.path(drive), link).unwrap();
        }
    }
    let twice = ["by-id/ata-d0", "by-id/wwn-d0", "d1"].map(str::to_owned);
    bench
        .create("tank", "raid5", &twice, &[])
        .refused(2, &["is named twice"]);
    let named = ["by-id/ata-d0", "by-id/ata-d1", "by-id/ata-d2"].map(str::to_owned);
    assert_eq!(bench.create("tank", "raid5", &named, &[]).code, 0);
    // Every name means the drive of the same seat.
    for name in ["d1", "by-id/ata-d1", "by-id/wwn-d1"] {
        assert_eq!(bench.json(&["drive", "offline", "tank", name])["seat"], 1);
        assert_eq!(bench.json(&["drive", "online", "tank", name])["seat"], 1);
    }
    bench
        .run(&["drive", "add", "tank", "by-id/wwn-d2", "--force", "--yes"])
        .refused(1, &["seat 2 of pool `tank`"]);
    bench.ok(&["pool", "export", "tank"]);
    let found = bench.json(&["pool", "import", "--dir", "by-id"]);
    assert_eq!(found["pools"][0]["paths"].as_array().unwrap().len(), 3);
    for places in [&["--dir", "by-id"][..], &["--dir", "by-id", "--dir", "."]] {
        bench.ok(&[&["pool", "import"], places, &["tank"]].concat());
        assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
        bench.ok(&["pool", "export", "tank"]);
    }
}

#[test]
fn memory_drives_that_have_one_name_are_told_apart_by_their_seats() {
    let bench = Bench::new("mem");
    let drives = ["mem:40M", "mem:40M", "mem:40M"].map(str::to_owned);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.run(&["drive", "fail", "tank", "mem:40M"]).refused(
        1,
        &[
            "3 drives are called mem:40M, in seats 0 to 2",
            "seat's number",
        ],
    );
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
    assert_eq!(bench.json(&["drive", "fail", "tank", "1"])["seat"], 1);
}

/// Regression: `drive add --force` and `drive replace --force` destroyed the contents of the new drive without a
/// question.
#[test]
fn a_drive_that_holds_something_is_taken_once_the_pools_name_is_given() {
    let bench = Bench::new("overwrite");
    let drives = bench.drives("d", 3, 40 * MIB);
    let old = bench.drives("old", 3, 40 * MIB);
    assert_eq!(bench.create("old", "raid5", &old, &[]).code, 0);
    bench.ok(&["pool", "export", "old"]);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let before = bytes(&bench.path("old0"));
    for line in [
        &["drive", "add", "tank", "old0", "--force"][..],
        &["drive", "replace", "tank", "1", "old0", "--force"],
    ] {
        bench
            .run(line)
            .refused(2, &["This loses what", "old0 holds", "pool `old`", "--yes"]);
        assert!(bytes(&bench.path("old0")) == before, "{line:?}");
    }
    let added = bench.json(&["drive", "add", "tank", "old0", "--force", "--yes"]);
    assert_eq!(added["seat"], 3);
    let held = added["overwrites"][0]["holds"].as_str().unwrap();
    assert!(held.contains("pool `old`"), "{held}");
    bench.ok(&["drive", "replace", "tank", "1", "old1", "--force", "--yes"]);
}

#[test]
fn a_spare_can_be_removed_and_others_keep_their_numbers() {
    let mut bench = Bench::new("remove");
    let drives = bench.drives("d", 6, 40 * MIB);
    let more = ["spare", "d3", "d4", "d5"];
    assert_eq!(bench.create("tank", "raid5", &drives[..3], &more).code, 0);
    let numbers = |bench: &Bench| -> Vec<u64> {
        let status = bench.json(&["pool", "status", "tank"]);
        let seats = status["seats"].as_array().unwrap().clone();
        { seats.iter() }
            .map(|seat| seat["seat"].as_u64().unwrap())
            .collect()
    };
    bench
        .run(&["drive", "remove", "tank", "1"])
        .refused(1, &["cannot give up a drive yet", "drive fail"]);
    let gone = bench.json(&["drive", "remove", "tank", "d3"]);
    assert_eq!(
        (&gone["seat"], &gone["state"]),
        (&3.into(), &"removed".into())
    );
    assert_eq!(numbers(&bench), [0, 1, 2, 4, 5]);
    // The removed drive is free: it has no label, and another pool may use it.
    let scan = bench.json(&["pool", "import", "--dir", "d3"]);
    assert_eq!(scan["pools"], serde_json::json!([]));
    bench.terminate();
    bench.start();
    assert_eq!(numbers(&bench), [0, 1, 2, 4, 5]);
    bench.ok(&["drive", "remove", "tank", "5"]);
    bench.ok(&["drive", "remove", "tank", "4"]);
    assert_eq!(numbers(&bench), [0, 1, 2]);
    assert_eq!(bench.json(&["drive", "add", "tank", "d3"])["seat"], 3);
    // A spare takes the place of a drive that fails, as before.
    bench.ok(&["drive", "fail", "tank", "0"]);
    bench.ok(&["pool", "wait", "tank"]);
    bench.terminate();
    bench.start();
    bench
        .run(&["drive", "remove", "tank", "3"])
        .refused(1, &["cannot give up a drive yet"]);
    bench.ok(&["drive", "remove", "tank", "0"]);
    assert_eq!(numbers(&bench), [1, 2, 3]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}

#[test]
fn a_wiped_drive_is_empty_and_one_in_use_is_not_wiped() {
    let bench = Bench::new("wipe");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench
        .run(&["drive", "wipe", "d1", "--yes"])
        .refused(1, &["seat 1 of pool `tank`"]);
    bench.ok(&["pool", "export", "tank"]);
    let before = bytes(&bench.path("d1"));
    bench.run(&["drive", "wipe", "d1"]).refused(
        2,
        &[
            "This loses what",
            "seat 1 of the Ravelin pool `tank`",
            "--yes",
        ],
    );
    assert!(bytes(&bench.path("d1")) == before);
    let wiped = bench.json(&["drive", "wipe", "d1", "--yes"]);
    assert_eq!(wiped["wiped"], true);
    let found = bench.json(&["pool", "import", "--dir", "."]);
    assert_eq!(found["pools"][0]["paths"].as_array().unwrap().len(), 2);
    // A drive that is empty may be used without force.
    let one = ["d1".to_owned()];
    assert_eq!(bench.create("other", "raid0", &one, &[]).code, 0);
}

/// Two writes fail and are retried: the drive stays in, and its errors are counted until they are cleared.
#[test]
fn errors_are_counted_until_they_are_cleared() {
    let bench = Bench::new("clear");
    let mut drives = bench.drives("d", 3, 40 * MIB);
    drives[1] = "faulty:d1?fail=eio&nth=80&times=2&on=write".to_owned();
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    let seat = || bench.json(&["pool", "status", "tank"])["seats"][1].clone();
    let mut round = 0;
    while seat()["traffic"]["errors"] != 2 {
        client
            .write(round % 16 * MIB, &[7; 64 << 10], true)
            .unwrap();
        round += 1;
        assert!(round < 400, "{}", seat());
    }
    assert_eq!(seat()["state"], "current");
    let cleared = bench.json(&["drive", "clear", "tank", "1"]);
    assert_eq!(
        (&cleared["seat"], &cleared["state"]),
        (&1.into(), &"current".into())
    );
    assert_eq!(seat()["traffic"]["errors"], 0);
    client.disconnect().unwrap();
}

/// Regression: when a returned drive went out again before its first cell was filled, the rebuild never ended, and
/// neither did `pool wait`.
#[test]
fn a_rebuild_ends_whose_drive_goes_out_again_before_it_has_begun() {
    let bench = Bench::new("again");
    let mut drives = bench.drives("d", 3, 40 * MIB);
    drives[1] = "faulty:d1?fail=eio&nth=80&times=400&on=write".to_owned();
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let mut client = export::nbd::Client::connect(&uri.parse().unwrap(), None).unwrap();
    let state = || bench.json(&["pool", "status", "tank"])["seats"][1]["state"].clone();
    let mut round = 0;
    while state() != "out" {
        client
            .write(round % 16 * MIB, &[7; 64 << 10], true)
            .unwrap();
        round += 1;
        assert!(round < 400);
    }
    // The drive's errors end after four hundred writes; after that `drive clear` succeeds for good.
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(120);
    while state() != "current" {
        assert!(std::time::Instant::now() < deadline, "{}", state());
        bench.run(&["drive", "clear", "tank", "1"]);
        let mut waiting = bench.begin(&["pool", "wait", "tank"]);
        while waiting.try_wait().unwrap().is_none() {
            if std::time::Instant::now() > deadline {
                waiting.kill().unwrap();
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
    }
    client.disconnect().unwrap();
}

/// Regression: after a rebuild onto spare space the pool stayed DEGRADED until it got a new drive, although nothing was
/// missing.
#[test]
fn a_pool_that_is_rebuilt_onto_its_spare_space_is_healthy_and_has_no_spare_left() {
    let bench = Bench::new("rebuilt");
    let drives = bench.drives("d", 6, 40 * MIB);
    assert_eq!(bench.create("tank", "pddl1:3d:1s", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    bench.ok(&["drive", "fail", "tank", "2"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
    let text = bench.ok(&["pool", "status", "tank"]);
    for part in [
        "state: HEALTHY",
        "no spare left",
        "drive replace tank 2 NEW",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    bench.ok(&["drive", "fail", "tank", "4"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 1);
}

/// Regression: a pool of pieces stayed DEGRADED for ever, although all pieces of the drive had moved into preservation
/// capacity.
#[test]
fn a_pool_of_pieces_is_healthy_when_all_is_rebuilt_and_says_how_many_more_drives_have_room() {
    let bench = Bench::new("preserved");
    let drives = bench.drives("d", 12, 40 * MIB);
    let made = bench.create("tank", "ddp:2d:1p:12c:2s", &drives, &[]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "64M"]);
    let served = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = served["uri"].as_str().unwrap().parse().unwrap();
    let mut client = export::nbd::Client::connect(&uri, None).unwrap();
    client.write(0, &vec![7; 8 << 20], true).unwrap();
    client.disconnect().unwrap();
    for (seat, left, advice) in [
        ("3", 1, "spare space is left for one more drive"),
        ("5", 0, "no spare left for the next failure"),
    ] {
        bench.ok(&["drive", "fail", "tank", seat]);
        bench.ok(&["pool", "wait", "tank"]);
        let status = bench.json(&["pool", "status", "tank"]);
        let facts = ["health", "spare_drives_left", "survives_drives"].map(|key| &status[key]);
        let [health, room, survives] = facts;
        assert_eq!(health, "healthy", "{status}");
        assert_eq!((room, survives), (&left.into(), &1.into()), "{status}");
        let people = bench.ok(&["pool", "status", "tank"]);
        assert!(people.contains(advice), "{people}");
    }
    // The third finds no room for its pieces.
    bench.ok(&["drive", "fail", "tank", "7"]);
    bench.run(&["pool", "wait", "tank"]);
    let status = bench.json(&["pool", "status", "tank"]);
    assert_ne!(status["health"], "healthy", "{status}");
}
