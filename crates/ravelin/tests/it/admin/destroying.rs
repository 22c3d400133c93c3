//! A slip loses no data: neither the end of a mounted volume, nor a pool by a malformed request. What was destroyed or
//! wiped comes back until its drives are used again.

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use export::nbd::Client;
use serde_json::{Value, json};

use super::MIB;
use crate::support::bench::{Bench, checksum};

/// Sends a request without our client; returns the answer's status and body.
fn ask(bench: &Bench, request: &str, body: &str) -> (u16, Value) {
    let mut stream = UnixStream::connect(bench.path("socket")).unwrap();
    let length = body.len();
    write!(
        stream,
        "{request} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head[9..12].parse().unwrap(), body.parse().unwrap())
}

/// Regression: `volume resize --yes` cut off the end of a volume that was attached and mounted.
#[test]
fn a_volume_that_is_attached_does_not_shrink() {
    let bench = Bench::new("shrink");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "16M"]);
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let shrink = ["volume", "resize", "tank/v", "--size", "4M", "--yes"];
    bench.run(&shrink).refused(
        1,
        &[
            "while it is attached to unix:",
            "volume detach tank/v",
            "--force",
        ],
    );
    let size = |bench: &Bench| bench.json(&["volume", "list"])["volumes"][0]["size_bytes"].clone();
    assert_eq!(size(&bench), 16 * MIB);
    // Growth is always allowed; `--force` allows to shrink an attached volume.
    bench.ok(&["volume", "resize", "tank/v", "--size", "18M"]);
    bench.ok(&[&shrink[..], &["--force"]].concat());
    assert_eq!(size(&bench), 4 * MIB);
    bench.ok(&["volume", "detach", "tank/v"]);
    bench.ok(&["volume", "resize", "tank/v", "--size", "2M", "--yes"]);
    assert_eq!(size(&bench), 2 * MIB);
}

#[test]
fn a_size_can_be_a_change_and_is_rounded_up_with_a_word() {
    let bench = Bench::new("sizes");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let made = bench.run(&["volume", "create", "tank/v", "--size", "1000001"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    assert!(
        made.stderr
            .contains("1000001 bytes are rounded up to 1003520"),
        "{}",
        made.stderr
    );
    let resize = |change: &str| {
        let line = ["volume", "resize", "tank/v", "--size", change, "--yes"];
        bench.json(&line)["size_bytes"].as_u64().unwrap()
    };
    assert_eq!(resize("4M"), 4 * MIB);
    assert_eq!(resize("+3M"), 7 * MIB);
    assert_eq!(resize("-2M"), 5 * MIB);
    let all = ["volume", "resize", "tank/v", "--size", "-5M", "--yes"];
    bench.run(&all).refused(2, &["5 MiB less that is nothing"]);
    assert_eq!(resize("+4K"), 5 * MIB + 4096);
}

/// Regression: 1,500 requests of a fuzzer destroyed a pool, because one of them was a DELETE with the pool's path.
#[test]
fn a_request_that_loses_data_must_name_the_pool_in_its_body() {
    let bench = Bench::new("named");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let shrink = |pool: Value| json!({"size_bytes": MIB, "shrink": true, "pool": pool}).to_string();
    for (request, body) in [
        ("DELETE /v1/pools/tank", String::new()),
        ("DELETE /v1/pools/tank", "{\"force\":true}".to_owned()),
        ("DELETE /v1/pools/tank", "{\"pool\":\"tnak\"}".to_owned()),
        ("DELETE /v1/pools/tank/volumes/v", String::new()),
        (
            "DELETE /v1/pools/tank/volumes/v",
            "{\"pool\":\"v\"}".to_owned(),
        ),
        ("PATCH /v1/pools/tank/volumes/v", shrink(Value::Null)),
        ("PATCH /v1/pools/tank/volumes/v", shrink("other".into())),
    ] {
        let (status, answer) = ask(&bench, request, &body);
        assert_eq!(status, 400, "{request} {body}: {answer}");
        let hint = answer["error"]["try"].as_str().unwrap();
        assert!(hint.contains("\"pool\": \"tank\""), "{request}: {hint}");
    }
    let volumes = bench.json(&["volume", "list"]);
    assert_eq!(volumes["volumes"][0]["size_bytes"], 4 * MIB);
    let named = "{\"pool\":\"tank\"}";
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank/volumes/w", named).0, 404);
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank/volumes/v", named).0, 200);
    assert_eq!(ask(&bench, "DELETE /v1/pools/tank", named).0, 200);
    assert_eq!(bench.json(&["pool", "list"])["pools"], json!([]));
}

/// Writes or reads through NBD; the volume is attached for that only.
fn with_client<T>(bench: &Bench, work: impl FnOnce(&mut Client) -> T) -> T {
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let uri = export["uri"].as_str().unwrap().parse().unwrap();
    let mut client = Client::connect(&uri, None).unwrap();
    let done = work(&mut client);
    client.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/v"]);
    done
}

fn write(bench: &Bench, text: &[u8]) {
    with_client(bench, |client| {
        client.write(0, text, false).unwrap();
        client.flush().unwrap();
    });
}

#[track_caller]
fn holds(bench: &Bench, text: &[u8]) {
    let found = with_client(bench, |client| client.read(0, text.len()).unwrap());
    assert_eq!(
        String::from_utf8_lossy(&found),
        String::from_utf8_lossy(text)
    );
}

/// A pool with a volume that holds some words.
fn with_words(test: &str, scheme: &str, count: usize) -> Bench {
    let bench = Bench::new(test);
    let drives = bench.drives("d", count, 40 * MIB);
    assert_eq!(bench.create("tank", scheme, &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    write(&bench, b"precious");
    bench
}

fn put(bench: &Bench, drive: &str, at: u64, bytes: &[u8]) {
    let file = OpenOptions::new().write(true).open(bench.path(drive));
    file.unwrap().write_all_at(bytes, at).unwrap();
}

/// The states of the pool's seats.
fn states(bench: &Bench) -> Vec<String> {
    let status = bench.json(&["pool", "status", "tank"]);
    let seats = status["seats"].as_array().unwrap().iter();
    seats
        .map(|seat| seat["state"].as_str().unwrap().to_owned())
        .collect()
}

const UNDO: [&str; 6] = ["pool", "import", "--destroyed", "--dir", ".", "tank"];

#[test]
fn a_destroyed_pool_comes_back_with_its_data() {
    for (scheme, count) in [("raid5", 3), ("raid1", 2), ("raid6", 5)] {
        let bench = with_words(&format!("undo-{scheme}"), scheme, count);
        let uuid = bench.json(&["pool", "status", "tank"])["uuid"].clone();
        let said = bench.ok(&["pool", "destroy", "tank", "--yes"]);
        assert!(
            said.contains("`ravelin pool import --destroyed tank`"),
            "{said}"
        );
        // For every other command the drives are empty.
        let list = ["pool", "import", "--dir", "."];
        assert!(bench.ok(&list).contains("no pools to import"));
        bench
            .run(&["pool", "import", "--dir", ".", "tank"])
            .refused(1, &["no pool `tank`"]);
        assert_eq!(bench.ok(&["drive", "identify", "--udev", "d0"]), "");
        let said = bench.run(&["drive", "identify", "d0"]);
        said.refused(
            1,
            &["it was the drive of seat 0 of pool `tank`", "--destroyed"],
        );
        let found = bench.json(&[&list[..], &["--destroyed"]].concat());
        assert_eq!(found["pools"][0]["uuid"], uuid);
        assert_eq!(found["pools"][0]["paths"].as_array().unwrap().len(), count);
        bench.ok(&UNDO);
        assert_eq!(states(&bench), vec!["current"; count]);
        assert_eq!(bench.json(&["pool", "status", "tank"])["uuid"], uuid);
        holds(&bench, b"precious");
        let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
        assert_eq!(scrub.code, 0, "{}", scrub.stdout);
        // It is a pool as any other, and can be destroyed again.
        bench.ok(&["pool", "export", "tank"]);
        assert!(
            bench
                .ok(&[&list[..], &["--destroyed"]].concat())
                .contains("no destroyed pools")
        );
        bench.ok(&[&list[..], &["tank"]].concat());
        bench.ok(&["pool", "destroy", "tank", "--yes"]);
        bench.ok(&UNDO);
        holds(&bench, b"precious");
    }
}

#[test]
fn a_drive_that_is_used_again_does_not_come_back_and_is_named() {
    type Use = fn(&Bench);
    let uses: [(&str, Use, &str); 6] = [
        (
            "pool",
            |bench| {
                let others = bench.drives("x", 2, 40 * MIB);
                let drives = [&["d1".to_owned()], &others[..]].concat();
                assert_eq!(bench.create("other", "raid5", &drives, &[]).code, 0);
            },
            "pool `other`",
        ),
        (
            "file-system",
            |bench| put(bench, "d1", 0, b"XFSB"),
            "an XFS file system",
        ),
        // Beside the first page, over one of the labels.
        (
            "md",
            |bench| put(bench, "d1", 4096, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
            "an md RAID member",
        ),
        (
            "swap",
            |bench| put(bench, "d1", 4086, b"SWAPSPACE2"),
            "swap space",
        ),
        (
            "end",
            |bench| put(bench, "d1", 40 * MIB - 8192, b"\xfc\x4e\x2b\xa9\x01\0\0\0"),
            "an md RAID member",
        ),
        (
            "data",
            |bench| put(bench, "d1", 512 << 10, b"0123456789abcdef"),
            "nothing that is known",
        ),
    ];
    for (name, uses, holds_now) in uses {
        let bench = with_words(&format!("used-{name}"), "raid5", 3);
        bench.ok(&["pool", "destroy", "tank", "--yes"]);
        uses(&bench);
        let before = checksum(&bench.path("d1"));
        let listed = bench.ok(&["pool", "import", "--destroyed", "--dir", "."]);
        let words = ["d1 is used again and does not come back", holds_now];
        for word in words {
            assert!(listed.contains(word), "{name}: {listed}");
        }
        let ran = bench.run(&UNDO);
        assert_eq!(ran.code, 0, "{name}: {}", ran.stderr);
        for word in words {
            assert!(ran.stderr.contains(word), "{name}: {}", ran.stderr);
        }
        assert_eq!(states(&bench), ["current", "out", "current"], "{name}");
        holds(&bench, b"precious");
        if name != "pool" {
            assert_eq!(
                checksum(&bench.path("d1")),
                before,
                "{name}: it was written to"
            );
        }
        bench
            .run(&["drive", "restore-label", "d1"])
            .refused(1, &["no label that could be restored"]);
    }
}

/// What import refuses is refused before a byte is written.
#[test]
fn a_pool_that_lacks_too_many_drives_stays_destroyed_as_it_is() {
    let bench = with_words("undo-few", "raid5", 4);
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    for drive in ["d1", "d2"] {
        put(&bench, drive, 0, b"XFSB");
    }
    let sums = || ["d0", "d1", "d2", "d3"].map(|drive| checksum(&bench.path(drive)));
    let before = sums();
    let ran = bench.run(&UNDO);
    ran.refused(
        1,
        &["d1 is used again", "d2 is used again", "was not imported"],
    );
    assert_eq!(sums(), before);
}

/// The drive that was out has an older state of the data. It may come back, but nothing is read from it before it has
/// got what it missed.
#[test]
fn a_drive_that_was_out_when_the_pool_was_destroyed_is_not_current_afterwards() {
    for (scheme, count) in [("raid1", 2), ("raid5", 3)] {
        for out in ["0", "1"] {
            let bench = with_words(&format!("undo-out-{scheme}-{out}"), scheme, count);
            bench.ok(&["drive", "offline", "tank", out]);
            write(&bench, b"new data");
            bench.ok(&["pool", "destroy", "tank", "--yes"]);
            bench.ok(&UNDO);
            let mut expected = vec!["current"; count];
            expected[out.parse::<usize>().unwrap()] = "out";
            assert_eq!(states(&bench), expected, "{scheme} {out}");
            holds(&bench, b"new data");
            bench.ok(&["drive", "online", "tank", out]);
            bench.ok(&["pool", "wait", "tank"]);
            assert_eq!(states(&bench), vec!["current"; count], "{scheme} {out}");
            holds(&bench, b"new data");
        }
    }
}

#[test]
fn of_two_destroyed_pools_of_one_name_the_identity_says_which() {
    let bench = with_words("undo-two", "raid1", 2);
    let first = bench.json(&["pool", "status", "tank"])["uuid"].clone();
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    let others = bench.drives("x", 2, 40 * MIB);
    assert_eq!(bench.create("tank", "raid1", &others, &[]).code, 0);
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    let first = first.as_str().unwrap();
    bench
        .run(&UNDO)
        .refused(1, &["2 pools called `tank`", first]);
    bench.ok(&[&UNDO[..5], &[first]].concat());
    holds(&bench, b"precious");
}

#[test]
fn a_wiped_label_is_restored_until_the_drive_is_used_again() {
    let bench = with_words("restore-label", "raid5", 3);
    bench.ok(&["pool", "export", "tank"]);
    let said = bench.ok(&["drive", "wipe", "d1", "--yes"]);
    assert!(said.contains("`ravelin drive restore-label"), "{said}");
    let found = bench.json(&["pool", "import", "--dir", "."]);
    assert_eq!(found["pools"][0]["paths"].as_array().unwrap().len(), 2);
    let restored = bench.json(&["drive", "restore-label", "d1"]);
    assert_eq!(
        (&restored["pool"], &restored["seat"]),
        (&json!("tank"), &json!(1))
    );
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    assert_eq!(states(&bench), ["current"; 3]);
    holds(&bench, b"precious");
    bench.run(&["drive", "restore-label", "d1"]).refused(
        1,
        &["no label that could be restored", "which is open here"],
    );
    bench.ok(&["pool", "export", "tank"]);
    // Something else than our own command: the copies at the end are left.
    put(&bench, "d2", 0, &vec![0x55; usize::try_from(MIB).unwrap()]);
    let restore = ["drive", "restore-label", "d2"];
    bench
        .run(&restore)
        .refused(2, &["loses what was written over the label", "--yes"]);
    bench.ok(&[&restore[..], &["--yes"]].concat());
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    assert_eq!(states(&bench), ["current"; 3]);
    holds(&bench, b"precious");
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["drive", "wipe", "d0", "--yes"]);
    put(&bench, "d0", 0, b"XFSB");
    bench.run(&["drive", "restore-label", "d0"]).refused(
        1,
        &["no label that could be restored", "an XFS file system"],
    );
}

/// A wiped drive keeps its journal, so that its label can be restored; where it takes a seat of the same pool, the
/// journal goes.
#[test]
fn a_wiped_drive_that_comes_into_its_pool_again_is_a_new_drive() {
    let bench = with_words("wiped-again", "raid5", 3);
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["drive", "wipe", "d1", "--yes"]);
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    write(&bench, b"new data");
    bench.ok(&["drive", "replace", "tank", "1", "d1"]);
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(states(&bench), ["current"; 3]);
    bench.ok(&["drive", "fail", "tank", "0"]);
    holds(&bench, b"new data");
}
