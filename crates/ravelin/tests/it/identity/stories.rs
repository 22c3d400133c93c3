//! Drives whose names changed while they were away, as administrators meet them.

use std::os::unix::fs::{FileExt, MetadataExt};

use export::nbd::Client;
use serde_json::Value;

use super::MIB;
use crate::support::bench::{Bench, bytes, checksum};

const BYTES: u64 = 12 * MIB;

pub(super) fn content() -> Vec<u8> {
    (1..=251)
        .cycle()
        .take(usize::try_from(BYTES).unwrap())
        .collect()
}

pub(super) fn served(bench: &Bench) -> Client {
    bench.run(&["volume", "detach", "tank/v"]);
    let export = bench.json(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap()
}

/// A pool with a volume that is fully written.
pub(super) fn filled(test: &str, scheme: &str, count: usize, more: &[&str]) -> Bench {
    let bench = Bench::new(test);
    fill(&bench, scheme, &bench.drives("d", count, 40 * MIB), more);
    bench
}

/// The same, of a daemon with other options; `drive` gives the URI of a file. What is in `more` may name `s0`.
pub(super) fn filled_with(
    test: &str,
    scheme: &str,
    count: usize,
    options: &[&str],
    more: &[&str],
    drive: impl Fn(String) -> String,
) -> Bench {
    let mut bench = Bench::without_daemon(test);
    bench.start_with(options);
    bench.drives("s", 1, 40 * MIB);
    let drives = bench.drives("d", count, 40 * MIB).into_iter().map(drive);
    fill(&bench, scheme, &drives.collect::<Vec<_>>(), more);
    bench
}

fn fill(bench: &Bench, scheme: &str, drives: &[String], more: &[&str]) {
    let made = bench.create("tank", scheme, drives, more);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "12M"]);
    let mut client = served(bench);
    client.write(0, &content(), false).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
}

pub(super) fn holds_its_content(bench: &Bench) {
    let mut client = served(bench);
    let found = client.read(0, content().len()).unwrap();
    assert!(found == content());
    client.disconnect().unwrap();
}

pub(super) fn moves(bench: &Bench, from: &str, to: &str) {
    std::fs::rename(bench.path(from), bench.path(to)).unwrap();
}

pub(super) fn status(bench: &Bench) -> Value {
    bench.json(&["pool", "status", "tank"])
}

pub(super) fn becomes_healthy(bench: &Bench) {
    bench.ok(&["pool", "wait", "tank"]);
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 0);
}

/// Imports the pool without some of its drives, which lie in `away/`.
pub(super) fn import_without(bench: &Bench, names: &[&str]) {
    bench.ok(&["pool", "export", "--force", "tank"]);
    std::fs::create_dir(bench.path("away")).unwrap();
    for name in names {
        moves(bench, name, &format!("away/{name}"));
    }
    bench.ok(&["pool", "import", "--dir", ".", "--degraded", "tank"]);
}

/// Drives that were away come back under each other's names, after an import without them.
pub(super) fn come_back_exchanged(bench: &Bench, order: &[(&str, &str)]) {
    let names: Vec<&str> = order.iter().map(|(name, _)| *name).collect();
    import_without(bench, &names);
    for (name, to) in order {
        moves(bench, &format!("away/{name}"), to);
    }
}

/// Regression: two drives of a `raid5` came back with their names exchanged. `drive online 1` and `2` overwrote each
/// with the content of the other one's seat, and 40 % of the volume was lost.
#[test]
fn drives_that_come_back_under_each_others_names_return_to_their_own_seats() {
    for (test, scheme, count, order) in [
        ("two", "raid5", 5, &[("d1", "d2"), ("d2", "d1")][..]),
        (
            "three",
            "raid6",
            6,
            &[("d1", "d2"), ("d2", "d4"), ("d4", "d1")],
        ),
        ("halves", "raid1", 3, &[("d0", "d2"), ("d2", "d0")]),
    ] {
        let bench = filled(&format!("exchanged-{test}"), scheme, count, &[]);
        come_back_exchanged(&bench, order);
        for (name, to) in order {
            let seat = &name[1..];
            let back = bench.json(&["drive", "online", "tank", seat]);
            let path = back["path"].as_str().unwrap();
            assert!(path.ends_with(&format!("/{to}")), "seat {seat}: {back}");
        }
        becomes_healthy(&bench);
        holds_its_content(&bench);
        let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
        assert_eq!(scrub.code, 0, "{}", scrub.stdout);
    }
}

#[test]
fn a_spare_and_a_member_that_come_back_exchanged_are_told_apart() {
    let bench = Bench::new("exchanged-spare");
    let drives = bench.drives("d", 5, 40 * MIB);
    let made = bench.create("tank", "raid5", &drives[..4], &["spare", "d4"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    bench.ok(&["volume", "create", "tank/v", "--size", "12M"]);
    let mut client = served(&bench);
    client.write(0, &content(), true).unwrap();
    client.disconnect().unwrap();
    come_back_exchanged(&bench, &[("d1", "d4"), ("d4", "d1")]);
    let back = bench.json(&["drive", "online", "tank", "1"]);
    assert!(back["path"].as_str().unwrap().ends_with("/d4"), "{back}");
    let back = bench.json(&["drive", "online", "tank", "4"]);
    assert!(back["path"].as_str().unwrap().ends_with("/d1"), "{back}");
    becomes_healthy(&bench);
    holds_its_content(&bench);
}

/// Regression: `drive online` looked only under the name that the drive once had.
#[test]
fn a_drive_that_comes_back_under_a_new_name_is_found_by_its_label() {
    let bench = filled("renamed", "raid5", 4, &[]);
    bench.ok(&["drive", "offline", "tank", "1"]);
    // Another file, as a disk in another bay is another device; what is now under its name is nobody's.
    std::fs::copy(bench.path("d1"), bench.path("e1")).unwrap();
    std::fs::remove_file(bench.path("d1")).unwrap();
    bench.drives("d1-", 1, 40 * MIB);
    moves(&bench, "d1-0", "d1");
    bench
        .run(&["drive", "add", "tank", "e1"])
        .refused(1, &["seat 1 of pool `tank`", "drive online tank 1"]);
    let back = bench.json(&["drive", "online", "tank", "1"]);
    assert!(back["path"].as_str().unwrap().ends_with("/e1"), "{back}");
    becomes_healthy(&bench);
    assert!(bytes(&bench.path("d1")).iter().all(|&byte| byte == 0));
    assert_eq!(status(&bench)["rebuild"]["running"], false);
    holds_its_content(&bench);
    // Two copies of a drive: which one is meant is not for the pool to say.
    bench.ok(&["drive", "offline", "tank", "1"]);
    std::fs::copy(bench.path("e1"), bench.path("f1")).unwrap();
    std::fs::copy(bench.path("e1"), bench.path("g1")).unwrap();
    std::fs::remove_file(bench.path("e1")).unwrap();
    bench
        .run(&["drive", "online", "tank", "1"])
        .refused(1, &["f1 and ", "g1 both have the label of seat 1"]);
    std::fs::remove_file(bench.path("g1")).unwrap();
    bench.ok(&["drive", "online", "tank", "1"]);
    becomes_healthy(&bench);
}

/// Regression: a new disk in the bay of a dead one has its name, and every command refused it: "in use: it has seat 1".
#[test]
fn a_new_drive_with_the_name_of_a_dead_one_takes_its_seat() {
    let mut bench = filled("same-name", "raid5", 4, &[]);
    let exchange = |bench: &Bench| {
        std::fs::remove_file(bench.path("d1")).unwrap();
        bench.drives("new", 1, 40 * MIB);
        moves(bench, "new0", "d1");
        std::fs::metadata(bench.path("d1")).unwrap().ino()
    };
    // While the machine is off.
    bench.terminate();
    exchange(&bench);
    bench.start();
    assert_eq!(status(&bench)["seats"][1]["state"], "out");
    bench
        .run(&["drive", "online", "tank", "1"])
        .refused(1, &["no other drive here has the label of seat 1"]);
    bench.ok(&["drive", "replace", "tank", "1", "d1"]);
    becomes_healthy(&bench);
    // While the pool runs: the pool still has the dead drive open.
    bench.ok(&["drive", "fail", "tank", "1"]);
    exchange(&bench);
    bench.ok(&["drive", "replace", "tank", "1", "d1"]);
    becomes_healthy(&bench);
    bench
        .run(&["drive", "replace", "tank", "2", "d1"])
        .refused(1, &["it has seat 1 of pool `tank`, which is open here"]);
    // As a spare.
    bench.ok(&["drive", "fail", "tank", "1"]);
    exchange(&bench);
    bench.ok(&["drive", "add", "tank", "d1"]);
    bench.ok(&["pool", "wait", "tank"]);
    holds_its_content(&bench);
}

/// Regression: `drive remove` of a spare that was not there wiped the disk that had its name by then.
#[test]
fn a_spare_that_is_removed_takes_no_other_drive_with_it() {
    let bench = filled("removed", "raid5", 3, &[]);
    let more = bench.drives("s", 2, 40 * MIB);
    let old = [more[1].clone()];
    assert_eq!(bench.create("old", "raid0", &old, &[]).code, 0);
    bench.ok(&["pool", "export", "old"]);
    bench.ok(&["drive", "add", "tank", "s0"]);
    bench.ok(&["pool", "export", "--force", "tank"]);
    std::fs::create_dir(bench.path("away")).unwrap();
    moves(&bench, "s0", "away/s0");
    moves(&bench, "s1", "s0");
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    let (before, spare) = (bytes(&bench.path("s0")), bytes(&bench.path("away/s0")));
    let text = bench.ok(&["drive", "remove", "tank", "3"]);
    assert!(text.contains("pool `old`"), "{text}");
    assert!(bytes(&bench.path("s0")) == before);
    assert!(bytes(&bench.path("away/s0")) == spare);
    bench.ok(&["pool", "import", "--dir", ".", "old"]);
}

/// A disk that was formatted anew keeps a copy of the label where the file system writes nothing.
#[test]
fn a_spare_that_was_formatted_elsewhere_is_not_wiped() {
    let bench = filled("formatted", "raid5", 3, &[]);
    bench.drives("s", 1, 40 * MIB);
    bench.ok(&["drive", "add", "tank", "s0"]);
    bench.ok(&["pool", "export", "--force", "tank"]);
    let path = bench.path("s0");
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.write_all_at(b"XFSB", 0).unwrap();
    bench.ok(&[
        "pool", "import", "--dir", "d0", "--dir", "d1", "--dir", "d2", "tank",
    ]);
    let before = bytes(&bench.path("s0"));
    let text = bench.ok(&["drive", "remove", "tank", "3"]);
    assert!(text.contains("an XFS file system"), "{text}");
    assert!(bytes(&bench.path("s0")) == before);
}

/// Regression: `drive wipe disk@old` wiped `disk`, for what follows an `@` is a failure domain.
#[test]
fn a_name_with_a_mark_in_it_means_the_file_that_is_called_so() {
    let bench = Bench::new("marks");
    for (called, other) in [("disk@old", "disk"), ("image?new", "image"), ("a%42", "aB")] {
        for name in [called, other] {
            let file = std::fs::File::create(bench.path(name)).unwrap();
            file.set_len(40 * MIB).unwrap();
            file.write_all_at(&[0x53, 0xef], 1080).unwrap();
        }
        let held = bytes(&bench.path(other));
        let wipe = bench.run(&["drive", "wipe", called, "--yes"]);
        let part = match called.contains('?') {
            // What follows is no option, so that only one drive can be meant.
            true => "",
            false => "names two drives",
        };
        if part.is_empty() {
            assert_eq!(wipe.code, 0, "{}", wipe.stderr);
        } else {
            wipe.refused(2, &[part]);
        }
        assert!(bytes(&bench.path(other)) == held, "{called}");
        std::fs::remove_file(bench.path(other)).unwrap();
        bench.ok(&["drive", "wipe", called, "--yes"]);
        assert_eq!(bytes(&bench.path(called))[1080..1082], [0, 0]);
        std::fs::remove_file(bench.path(called)).unwrap();
        // No file is called so: a failure domain means nothing to a wipe.
        bench.drives("disk", 1, 40 * MIB);
        moves(&bench, "disk0", "disk");
        bench
            .run(&["drive", "wipe", "disk@old", "--yes"])
            .refused(2, &["failure domain"]);
        std::fs::remove_file(bench.path("disk")).unwrap();
    }
}

/// Regression: while two drives of a `raid5` were away, `drive replace` was taken for both. When they came back intact,
/// they had no seats.
#[test]
fn nothing_takes_the_seat_of_a_drive_that_may_hold_the_only_copy() {
    for (scheme, count, away) in [
        ("raid5", 5, &["1", "2"][..]),
        ("raid6", 6, &["0", "2", "4"]),
        ("raid10:2r", 4, &["0", "1"]),
    ] {
        let bench = filled(&format!("only-copy-{}", &scheme[4..5]), scheme, count, &[]);
        bench.drives("n", 2, 40 * MIB);
        let names: Vec<String> = away.iter().map(|seat| format!("d{seat}")).collect();
        import_without(
            &bench,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        for seat in away {
            bench
                .run(&["drive", "replace", "tank", seat, "n0"])
                .refused(1, &["the only copy", "`tank/v`", "drive online", "--force"]);
        }
        // With force: after a sentence that says what is given up.
        bench
            .run(&["drive", "replace", "tank", away[0], "n0", "--force"])
            .refused(2, &["This loses what", "the only copy", "--yes"]);
        // A spare leaves the seats alone as well.
        bench.ok(&["drive", "add", "tank", "n0"]);
        bench.ok(&["drive", "remove", "tank", &count.to_string()]);
        for name in &names {
            moves(&bench, &format!("away/{name}"), name);
        }
        for seat in away {
            bench.ok(&["drive", "online", "tank", seat]);
        }
        becomes_healthy(&bench);
        holds_its_content(&bench);
    }
}

/// Regression: a half of a mirror that was in use elsewhere was overwritten by `drive online`, and with it the only
/// copy of what was written there.
#[test]
fn drives_that_were_used_elsewhere_are_not_overwritten_without_force() {
    for (scheme, count, there) in [
        ("raid1", 2, &[1][..]),
        ("raid1:3r", 3, &[0, 2]),
        ("raid10:2r", 4, &[1, 3]),
    ] {
        let test = format!("split-{count}");
        let bench = filled(&test, scheme, count, &[]);
        let other = Bench::new(&format!("{test}-o"));
        let names: Vec<String> = there.iter().map(|seat| format!("d{seat}")).collect();
        import_without(
            &bench,
            &names.iter().map(String::as_str).collect::<Vec<_>>(),
        );
        for name in &names {
            std::fs::rename(bench.path("away").join(name), other.path(name)).unwrap();
        }
        other.ok(&["pool", "import", "--dir", ".", "--degraded", "tank"]);
        let mut client = served(&other);
        client.write(4096, &[0x77; 8192], true).unwrap();
        client.disconnect().unwrap();
        other.ok(&["pool", "export", "--force", "tank"]);
        for name in &names {
            std::fs::rename(other.path(name), bench.path(name)).unwrap();
        }
        let sums = || -> Vec<u32> {
            let sum = |name: &String| checksum(&bench.path(name));
            names.iter().map(sum).collect()
        };
        let before = sums();
        for seat in there {
            let seat = seat.to_string();
            bench
                .run(&["drive", "online", "tank", &seat])
                .refused(1, &["in use elsewhere since", "--force"]);
            bench
                .run(&["drive", "online", "tank", &seat, "--force"])
                .refused(2, &["This loses what", "in use elsewhere since", "--yes"]);
            bench.run(&["drive", "clear", "tank", &seat]);
        }
        assert_eq!(sums(), before, "{scheme}");
        holds_its_content(&bench);
        // What was written there is still there.
        for name in &names {
            std::fs::rename(bench.path(name), other.path(name)).unwrap();
        }
        other.ok(&["pool", "import", "--dir", ".", "--degraded", "tank"]);
        let mut client = served(&other);
        assert!(client.read(4096, 8192).unwrap() == [0x77; 8192], "{scheme}");
        client.disconnect().unwrap();
    }
}

/// Regression: after one opening without some drives the pool was not opened when all of them were back.
#[test]
fn a_pool_opens_when_all_drives_are_back_after_an_opening_without_them() {
    for (scheme, count, away) in [
        ("raid5", 5, &["d1", "d2"][..]),
        ("raid6", 6, &["d0", "d1", "d5"]),
        ("raid10:2r", 4, &["d2", "d3"]),
    ] {
        for stops in [false, true] {
            let test = format!("all-back-{}-{stops}", &scheme[4..5]);
            let mut bench = filled(&test, scheme, count, &[]);
            import_without(&bench, away);
            if stops {
                assert_eq!(bench.terminate(), Some(0));
            } else {
                bench.ok(&["pool", "export", "tank"]);
            }
            for name in away {
                moves(&bench, &format!("away/{name}"), name);
            }
            if stops {
                bench.start();
            } else {
                bench.ok(&["pool", "import", "--dir", ".", "tank"]);
            }
            for name in away {
                let seat = &name[1..];
                if status(&bench)["seats"][seat.parse::<usize>().unwrap()]["state"] == "out" {
                    bench.ok(&["drive", "online", "tank", seat]);
                }
            }
            becomes_healthy(&bench);
            holds_its_content(&bench);
        }
    }
}

/// Regression: a hot spare stayed idle if the drive was missing when the pool was opened, and if the spare was added
/// after the failure.
#[test]
fn a_spare_serves_whoever_lacks_a_drive() {
    // Added after the failure.
    let mut bench = filled("spare-later", "raid5", 4, &[]);
    bench.drives("s", 2, 40 * MIB);
    bench.ok(&["drive", "fail", "tank", "1"]);
    bench.ok(&["drive", "add", "tank", "s0"]);
    becomes_healthy(&bench);
    let spare = &status(&bench)["seats"][4];
    assert_eq!(spare["takes_place_of"], 1, "{spare}");
    // Missing when the daemon starts.
    bench.ok(&["drive", "add", "tank", "s1"]);
    bench.kill();
    std::fs::rename(bench.path("d2"), bench.path("gone")).unwrap();
    std::fs::write(bench.path("gone"), "").unwrap();
    bench.start_with(&["--wait-drives", "0"]);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while bench.run(&["pool", "status", "--check"]).code != 0 {
        let now = status(&bench);
        assert!(std::time::Instant::now() < deadline, "{now}");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    holds_its_content(&bench);
    // Missing at an import: there is a minute to plug the drive in, or to say that it is expected back.
    bench.drives("t", 1, 40 * MIB);
    bench.ok(&["drive", "add", "tank", "t0"]);
    bench.ok(&["pool", "export", "--force", "tank"]);
    std::fs::create_dir(bench.path("away")).unwrap();
    moves(&bench, "d3", "away/d3");
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    let waits = status(&bench)["spares_in_seconds"].as_u64().unwrap();
    assert!((30..=60).contains(&waits), "{waits}");
    let text = bench.ok(&["pool", "status", "tank"]);
    assert!(text.contains("spare 6 takes over in"), "{text}");
    bench.ok(&["drive", "offline", "tank", "3"]);
    assert_eq!(status(&bench)["spares_in_seconds"], Value::Null);
    moves(&bench, "away/d3", "d3");
    bench.ok(&["drive", "online", "tank", "3"]);
    becomes_healthy(&bench);
}

/// Regression: all drives of a pool were unplugged. Three of four were shown as online, and their data as lost.
fn all_drives_return_only_errors(test: &str, scheme: &str, count: usize, fault: &str) {
    let bench = Bench::new(test);
    let drives: Vec<String> = bench
        .drives("d", count, 40 * MIB)
        .iter()
        .map(|name| format!("faulty:{name}?fail={fault}&times=all&on=any&while=unplugged"))
        .collect();
    assert_eq!(bench.create("tank", scheme, &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "12M"]);
    let mut client = served(&bench);
    client.set_timeout(Some(std::time::Duration::from_secs(30)));
    client.write(0, &content(), true).unwrap();
    std::fs::write(bench.path("unplugged"), "").unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(180);
    let mut block = 0;
    // Until all of them fail: a drive that still took its label would let the pool be closed.
    let all_fail = |status: &Value| {
        let seats = status["seats"].as_array().unwrap();
        status["health"] == "unusable"
            && seats
                .iter()
                .all(|seat| seat["state"] == "out" || seat["fails"] == true)
    };
    while !all_fail(&status(&bench)) {
        // Fails sooner or later.
        client.write(block % 3000 * 4096, &[7; 4096], true).ok();
        client.read(block % 3000 * 4096, 4096).ok();
        block += 1;
        assert!(std::time::Instant::now() < deadline, "{}", status(&bench));
    }
    let text = bench.ok(&["pool", "status", "tank"]);
    for part in [
        "returns only errors",
        "bring the drives back",
        "pool import tank",
    ] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    assert!(!text.contains("from a backup"), "{text}");
    assert_eq!(bench.run(&["pool", "status", "--check"]).code, 2);
    bench
        .run(&["pool", "export", "--force", "tank"])
        .refused(1, &["is no longer open, but its drives were not told"]);
    let pools = bench.json(&["pool", "list"]);
    assert_eq!(pools["pools"], serde_json::json!([]));
    // All are plugged in again. What was asked meanwhile is at the beginning of the volume.
    std::fs::remove_file(bench.path("unplugged")).unwrap();
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    let mut client = served(&bench);
    let from = usize::try_from(block.min(3000) * 4096).unwrap();
    let found = client.read(from as u64, content().len() - from).unwrap();
    assert!(found == content()[from..]);
    client.disconnect().unwrap();
}

mod drives_that_return_only_errors_are_shown_so_and_the_advice_is_to_bring_them_back {
    #[test]
    fn raid5() {
        super::all_drives_return_only_errors("dead", "raid5", 4, "eio");
    }

    #[test]
    fn raid6() {
        super::all_drives_return_only_errors("dead-6", "raid6", 5, "gone");
    }

    #[test]
    fn raid1() {
        super::all_drives_return_only_errors("dead-1", "raid1", 3, "gone");
    }
}

/// Regression: a mirror of a disk with itself, by its two paths, was HEALTHY; and a second daemon used the disks of the
/// first by their other names.
#[test]
fn one_disk_under_two_names_is_one_disk() {
    let bench = filled("two-names", "raid5", 3, &[]);
    bench.drives("e", 4, 40 * MIB);
    let by_loop = |name: &str| {
        let line = format!("losetup --direct-io=on -f --show {name}");
        let made = bench.shell(&line);
        (made.code == 0).then(|| made.stdout.trim().to_owned())
    };
    let names = ["e0", "e0", "e1", "e2", "e1", "e2"].map(by_loop);
    let devices: Vec<String> = names.iter().flatten().cloned().collect();
    if devices.len() < names.len() {
        bench.shell(&format!("losetup -d {}", devices.join(" ")));
        eprintln!("skipped: it needs root and loop devices");
        return;
    }
    bench
        .create("twice", "raid1", &devices[..2], &[])
        .refused(1, &["are one device under two names"]);
    assert!(bytes(&bench.path("e0")).iter().all(|&byte| byte == 0));
    assert_eq!(bench.create("one", "raid1", &devices[2..4], &[]).code, 0);
    // A second path to a drive at work, also with force.
    for more in [&[][..], &["--force", "--yes"]] {
        let add = ["drive", "add", "tank", &devices[4]];
        bench
            .run(&[&add[..], more].concat())
            .refused(1, &["it has seat 0 of pool `one`, which is open here"]);
    }
    let other = Bench::new("two-names-o");
    let import = [
        "pool",
        "import",
        "--dir",
        &devices[4],
        "--dir",
        &devices[5],
        "one",
    ];
    other.run(&import).refused(1, &["is at work on it"]);
    bench.ok(&["pool", "export", "one"]);
    other.ok(&import);
    other.ok(&["pool", "export", "one"]);
    bench.shell(&format!("losetup -d {}", devices.join(" ")));
}

/// Two pools of one name: one of them gets another name when it is opened.
#[test]
fn a_pool_is_opened_under_another_name_and_keeps_it() {
    let bench = filled("renamed-pool", "raid5", 4, &[]);
    let other = filled("renamed-pool-other", "raid6", 5, &[]);
    other.ok(&["pool", "export", "tank"]);
    std::fs::create_dir(bench.path("in")).unwrap();
    for index in 0..5 {
        let name = format!("d{index}");
        std::fs::rename(other.path(&name), bench.path("in").join(&name)).unwrap();
    }
    let import = ["pool", "import", "--dir", "in", "tank"];
    bench
        .run(&import)
        .refused(1, &["another pool of this name is already open here"]);
    for (name, code, why) in [
        ("tank", 1, "there is already a pool `tank` open here"),
        ("no/name", 2, "`no/name` is not a name for a pool"),
    ] {
        bench
            .run(&[&import[..], &[name]].concat())
            .refused(code, &[why]);
    }
    bench.ok(&[&import[..], &["rescued"]].concat());
    assert_eq!(
        bench.json(&["pool", "status", "rescued"])["scheme"],
        "raid6"
    );
    holds_its_content(&bench);
    bench.ok(&["pool", "export", "rescued"]);
    bench.ok(&["pool", "export", "tank"]);
    bench.ok(&["pool", "import", "--dir", "in", "rescued"]);
    bench.ok(&["pool", "export", "rescued"]);
    // A copy of a pool that is open has its identity, and no other name makes it another pool.
    bench.ok(&["pool", "import", "--dir", ".", "tank"]);
    std::fs::create_dir(bench.path("copies")).unwrap();
    for index in 0..4 {
        let name = format!("d{index}");
        std::fs::copy(bench.path(&name), bench.path("copies").join(&name)).unwrap();
    }
    let import = ["pool", "import", "--dir", "copies", "tank", "copy"];
    bench
        .run(&import)
        .refused(1, &["a pool of this identity", "is open here"]);
    holds_its_content(&bench);
}
