//! Pools that grow and shrink: with clients, over crashes, by spares, and what is refused.

use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde_json::Value;

use super::{MIB, status, write, write_to};
use crate::support::bench::Bench;
use crate::support::writer::{self, Target, Writer};

/// Longer than a daemon takes to serve a volume again.
const TIMEOUT: Duration = Duration::from_secs(60);
/// What the writer writes to.
const REGION: usize = 8 << 20;
const DRIVE: u64 = 64 * MIB;

/// A pool of pieces on six drives with a volume, and more drives.
fn pieces(test: &str, more: usize) -> (Bench, Vec<String>) {
    let bench = Bench::new(test);
    let drives = bench.drives("d", 6, DRIVE);
    let made = bench.create("tank", "ddp:2d:1p", &drives, &["-o", "piece=1M"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "48M"]);
    let more = bench.drives("n", more, DRIVE);
    (bench, more)
}

fn events(bench: &Bench) -> Vec<String> {
    let events = bench.json(&["pool", "events", "tank"]);
    let events = events["events"].as_array().unwrap().iter();
    events
        .map(|event| event["event"].as_str().unwrap().to_owned())
        .collect()
}

#[track_caller]
fn states(status: &Value) -> Vec<(u64, String)> {
    let seats = status["seats"].as_array().unwrap().iter();
    seats
        .map(|seat| {
            let state = seat["state"].as_str().unwrap().to_owned();
            (seat["seat"].as_u64().unwrap(), state)
        })
        .collect()
}

#[test]
fn a_pool_grows_under_a_client_and_goes_on_after_crashes() {
    let (mut bench, new) = pieces("grows", 2);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let log = bench.path("log");
    let mut client = Writer::start(Target::Nbd(&uri), 0, REGION as u64, &log);
    client.has_flushed(TIMEOUT);
    // Behind the client's region: without content nothing would have to be copied.
    write_to(&uri, 8..48);
    let before = status(&bench);
    bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    let planned = bench.json(&["pool", "expand", "tank", &new[0], &new[1], "-n"]);
    assert_eq!(
        (&planned["expanded"], &planned["drives"], &planned["scheme"]),
        (&false.into(), &8.into(), &"ddp:2d:1p:8c:1s".into())
    );
    assert_eq!(status(&bench)["scheme"], before["scheme"]);
    let grown = bench.json(&["pool", "expand", "tank", &new[0], &new[1]]);
    assert_eq!(grown["expanded"], true);
    for key in ["capacity_bytes", "capacity_bytes_before", "scheme"] {
        assert_eq!(grown[key], planned[key], "{key}");
    }
    bench.kill();
    bench.start();
    client.has_flushed(TIMEOUT);
    let paused = status(&bench);
    assert_eq!(
        (&paused["expanding"], &paused["health"]),
        (&true.into(), &"healthy".into()),
        "{paused}"
    );
    assert_eq!(paused["work"][0]["kind"], "expand", "{}", paused["work"]);
    assert_eq!(paused["seats"][7]["joins"], true);
    assert_eq!(paused["capacity_bytes"], before["capacity_bytes"]);
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(
        text.contains("joining") && text.contains(" expand: paused"),
        "{text}"
    );
    bench.ok(&["pool", "rebuild", "tank", "--resume"]);
    bench.kill();
    bench.start();
    bench.ok(&["pool", "wait", "tank", "--for", "expand"]);
    let after = status(&bench);
    assert_eq!(after["expanding"], Value::Null);
    assert_eq!(after["capacity_bytes"], grown["capacity_bytes"]);
    let current = (0..8).map(|seat| (seat, "current".to_owned()));
    assert_eq!(states(&after), current.collect::<Vec<_>>());
    // What only the new drives have now can be read without an old one, and the other way round.
    bench.ok(&["drive", "fail", "tank", "0"]);
    client.has_flushed(TIMEOUT);
    bench.ok(&["pool", "wait", "tank", "--for", "rebuild"]);
    assert_eq!(status(&bench)["health"], "healthy");
    bench.ok(&["drive", "offline", "tank", "7"]);
    client.stop(TIMEOUT);
    let mut reader = writer::connect(&uri, TIMEOUT);
    writer::verify(&reader.read(0, REGION).unwrap(), &log);
    reader.disconnect().unwrap();
    bench.ok(&["drive", "online", "tank", "7"]);
    bench.ok(&["pool", "wait", "tank"]);
    let scrubbed = bench.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrubbed["scrub"]["bad_blocks"], 0, "{scrubbed}");
    let events = events(&bench);
    for event in ["expand_begins", "expand_ends"] {
        let found = events.iter().filter(|name| *name == event).count();
        assert_eq!(found, 1, "{event} in {events:?}");
    }
}

#[test]
fn drives_leave_under_a_client_and_over_crashes_and_are_free() {
    let (mut bench, _) = pieces("leaves", 0);
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    let uri = bench.json(&attach)["uri"].as_str().unwrap().to_owned();
    let log = bench.path("log");
    let mut client = Writer::start(Target::Nbd(&uri), 0, REGION as u64, &log);
    client.has_flushed(TIMEOUT);
    let path = status(&bench)["seats"][2]["path"]
        .as_str()
        .unwrap()
        .to_owned();
    bench.ok(&["pool", "rebuild", "tank", "--pause"]);
    let planned = bench.json(&["drive", "remove", "tank", "2", "-n"]);
    assert_eq!(
        (&planned["state"], &planned["dry_run"]),
        (&"leaving".into(), &true.into())
    );
    assert!(planned["plan"]["pieces"].as_u64().unwrap() > 0, "{planned}");
    assert_eq!(status(&bench)["seats"][2]["leaves"], Value::Null);
    bench.ok(&["drive", "remove", "tank", "2"]);
    bench
        .run(&["drive", "remove", "tank", "3"])
        .refused(1, &["seat 2 is being removed", "drive online"]);
    bench.kill();
    bench.start();
    client.has_flushed(TIMEOUT);
    let paused = status(&bench);
    assert_eq!(
        (&paused["seats"][2]["leaves"], &paused["health"]),
        (&true.into(), &"healthy".into()),
        "{paused}"
    );
    bench.ok(&["pool", "rebuild", "tank", "--resume"]);
    bench.kill();
    bench.start();
    bench.ok(&["pool", "wait", "tank", "--for", "remove"]);
    let after = status(&bench);
    let seats = |numbers: &[u64]| -> Vec<(u64, String)> {
        let current = |&seat: &u64| (seat, "current".to_owned());
        numbers.iter().map(current).collect()
    };
    assert_eq!(states(&after), seats(&[0, 1, 3, 4, 5]));
    assert_eq!(
        (&after["health"], &after["spare_drives_left"]),
        (&"healthy".into(), &1.into())
    );
    // Its label is wiped beside the pool's work.
    let free = || bench.run(&["drive", "identify", &path]).code != 0;
    let tries = (0..200).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        free()
    });
    assert!(tries, "{path} still has a label");
    // One that fails leaves when its pieces are rebuilt.
    bench.ok(&["drive", "fail", "tank", "0"]);
    client.has_flushed(TIMEOUT);
    bench.ok(&["pool", "wait", "tank", "--for", "rebuild"]);
    bench.ok(&["drive", "remove", "tank", "0"]);
    bench.ok(&["pool", "wait", "tank", "--for", "remove"]);
    client.stop(TIMEOUT);
    assert_eq!(states(&status(&bench)), seats(&[1, 3, 4, 5]));
    let mut reader = writer::connect(&uri, TIMEOUT);
    writer::verify(&reader.read(0, REGION).unwrap(), &log);
    reader.disconnect().unwrap();
    let scrubbed = bench.json(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrubbed["scrub"]["bad_blocks"], 0, "{scrubbed}");
}

/// A fresh drive takes the seat behind the layout's last one, where the spare was. The spare is a spare as before, and
/// the drive stands in for no other.
#[test]
fn a_fresh_drive_joins_beside_a_spare_and_users_numbers_stay() {
    let (bench, new) = pieces("beside-a-spare", 2);
    write(&bench, 4 * MIB);
    bench.ok(&["drive", "add", "tank", &new[0]]);
    bench.ok(&["pool", "expand", "tank", &new[1]]);
    bench.ok(&["pool", "wait", "tank"]);
    let shown = |spare: &str| {
        let status = status(&bench);
        let mut wanted: Vec<_> = (0..6).map(|seat| (seat, "current".to_owned())).collect();
        wanted.extend([(6, spare.to_owned()), (7, "current".to_owned())]);
        assert_eq!(states(&status), wanted);
        for (seat, path) in [(6, &new[0]), (7, &new[1])] {
            let seat = &status["seats"][seat];
            assert!(seat["path"].as_str().unwrap().ends_with(&**path), "{seat}");
            for key in ["takes_place_of", "place_taken_by"] {
                assert_eq!(seat[key], Value::Null, "{seat}");
            }
        }
    };
    shown("waiting");
    // By its name, too.
    let grown = bench.json(&["pool", "expand", "tank", &new[0]]);
    assert_eq!(grown["drives"], 8);
    bench.ok(&["pool", "wait", "tank", "--for", "expand"]);
    shown("current");
    // Without a spare nothing is left that a check could miss.
    bench.ok(&["pool", "status", "tank", "--check=strict"]);
}

#[test]
fn what_cannot_join_is_refused_and_nothing_changes() {
    let (bench, new) = pieces("refused", 2);
    write(&bench, 4 * MIB);
    let before = status(&bench)["generation"].clone();
    let held = &new[1];
    // The mark of an ext2 file system.
    let file = std::fs::OpenOptions::new()
        .write(true)
        .open(bench.path(held));
    file.unwrap().write_all_at(&[0x53, 0xef], 1080).unwrap();
    let small = &bench.drives("small", 1, DRIVE / 2)[0];
    let used = status(&bench)["seats"][1]["path"].clone();
    let used = used.as_str().unwrap();
    let refused = |parts: &[&str], drives: &[&str]| {
        for dry in [&["-n"][..], &[]] {
            let command = [&["pool", "expand", "tank"], drives, dry].concat();
            let code = if parts[0] == "is named twice" { 2 } else { 1 };
            bench.run(&command).refused(code, parts);
        }
    };
    refused(
        &["is named twice", "name each drive once"],
        &[&new[0], &new[0]],
    );
    refused(
        &["has 33554432 bytes, the pool needs", "use a larger one"],
        &[&new[0], small],
    );
    refused(&["holds an ext2 file system", "--force"], &[&new[0], held]);
    refused(&["has seat 1 of pool `tank`"], &[&new[0], used]);
    refused(&["the drive in seat 3 is no waiting spare"], &["3"]);
    refused(&["the pool has no seat 9"], &["9"]);
    bench.ok(&["drive", "offline", "tank", "5"]);
    refused(&["the drive in seat 5 is out", "bring it back"], &[&new[0]]);
    bench.ok(&["drive", "online", "tank", "5"]);
    bench.ok(&["pool", "wait", "tank"]);
    let after = status(&bench);
    assert_eq!(after["scheme"], "ddp:2d:1p");
    assert!(after["generation"].as_u64() > before.as_u64());
    // With --force what it holds is named, and the drive joins.
    let forced = bench.json(&["pool", "expand", "tank", held, "--force", "--yes"]);
    let holds = forced["overwrites"][0]["holds"].as_str().unwrap();
    assert!(holds.contains("ext2"), "{forced}");
    bench.ok(&["pool", "wait", "tank"]);

    let plain = bench.drives("p", 4, DRIVE);
    assert_eq!(bench.create("plain", "raid5", &plain, &[]).code, 0);
    let command = ["pool", "expand", "plain", &new[0]];
    bench.run(&command).refused(
        1,
        &[
            "scheme `raid5` cannot grow by a drive yet",
            "`ddp`, `crush2`",
        ],
    );
}
