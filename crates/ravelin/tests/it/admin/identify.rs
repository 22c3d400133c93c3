//! `drive identify`: whose drive it is, for udev and for people, without a daemon and without a change to the drive.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use super::MIB;
use crate::support::bench::{Bench, checksum};

/// The offset of the first label.
const LABEL: u64 = 4096;

fn properties(lines: &str) -> BTreeMap<String, String> {
    let pairs = lines.lines().map(|line| line.split_once('=').unwrap());
    pairs
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

fn with_pool(test: &str) -> Bench {
    let mut bench = Bench::new(test);
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.terminate();
    bench
}

#[test]
fn a_member_has_its_pool_and_seat_as_properties_and_any_other_drive_has_none() {
    let mut bench = Bench::new("identify");
    let drives = bench.drives("d", 3, 40 * MIB);
    let others = bench.drives("x", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let status = bench.json(&["pool", "status", "tank"]);
    let identify = |drive: &str| bench.ok(&["drive", "identify", "--udev", drive]);
    // While the pool is open, as udev does it when it hears of a change.
    let open = identify("d1");
    let known = properties(&open);
    for (key, value) in [
        ("ID_FS_TYPE", "ravelin_member"),
        ("ID_FS_USAGE", "raid"),
        ("ID_FS_VERSION", "1"),
        ("ID_FS_LABEL", "tank"),
        ("ID_FS_LABEL_ENC", "tank"),
        ("RAVELIN_POOL", "tank"),
        ("RAVELIN_SEAT", "1"),
    ] {
        assert_eq!(known[key], value, "{open}");
    }
    assert_eq!(known["ID_FS_UUID"], status["uuid"].as_str().unwrap());
    bench.terminate();
    // Without a daemon, and with nothing written.
    let before: Vec<u32> = { drives.iter().chain(&others) }
        .map(|drive| checksum(&bench.path(drive)))
        .collect();
    let identify = |drive: &str| bench.ok(&["drive", "identify", "--udev", drive]);
    assert_eq!(properties(&identify("d1"))["RAVELIN_SEAT"], "1");
    // An empty drive, one with data of no known kind, and one with something else's mark.
    let put = |drive: &str, at: u64, bytes: &[u8]| {
        let file = std::fs::File::options().write(true).open(bench.path(drive));
        file.unwrap().write_all_at(bytes, at).unwrap();
    };
    assert_eq!(identify("x0"), "");
    put("x1", 8192, b"data");
    assert_eq!(identify("x1"), "");
    put("x2", 0, b"XFSB");
    assert_eq!(identify("x2"), "");
    let text = bench.ok(&["drive", "identify", "d2"]);
    assert!(
        text.contains("d2 is the drive of seat 2 of pool `tank`"),
        "{text}"
    );
    let said = bench.json(&["drive", "identify", "d2"]);
    assert_eq!((&said["pool"], &said["seat"]), (&"tank".into(), &2.into()));
    assert_eq!(said["state"], "current");
    assert_eq!(said["uuid"], status["uuid"]);
    let refused = bench.run(&["drive", "identify", "x0"]);
    refused.refused(1, &["x0 cannot be identified", "no Ravelin label"]);
    bench
        .run(&["drive", "identify", "none"])
        .refused(1, &["none cannot be identified"]);
    bench
        .run(&["drive", "identify", "mem:1G"])
        .refused(2, &["drive in memory"]);
    let after: Vec<u32> = { drives.iter().chain(&others[..1]) }
        .map(|drive| checksum(&bench.path(drive)))
        .collect();
    assert_eq!(before[..4], after);
}

/// A drive of a later version is taken as well, although nothing else is known of it. If something else was written
/// over the label, that is what the drive holds.
#[test]
fn a_label_that_cannot_be_read_shows_that_the_drive_is_taken() {
    let bench = with_pool("identify-later");
    let drive = std::fs::File::options()
        .read(true)
        .write(true)
        .open(bench.path("d0"));
    let drive = drive.unwrap();
    let first = |offset: u64| {
        let mut page = vec![0; 4096];
        drive.read_exact_at(&mut page, offset).unwrap();
        page
    };
    // Format 2 in both copies, with the checksum of the header.
    for offset in [LABEL, 512 << 10] {
        let mut page = first(offset);
        if !page.starts_with(b"RAVELIN\0") {
            continue;
        }
        page[8] = 2;
        let sum = block::crc32c(&page[..80]).to_le_bytes();
        page[80..84].copy_from_slice(&sum);
        drive.write_all_at(&page, offset).unwrap();
    }
    let known = properties(&bench.ok(&["drive", "identify", "--udev", "d0"]));
    assert_eq!(known["ID_FS_TYPE"], "ravelin_member");
    assert_eq!(known["ID_FS_VERSION"], "2");
    assert!(!known.contains_key("RAVELIN_POOL"), "{known:?}");
    let refused = bench.run(&["drive", "identify", "d0"]);
    refused.refused(1, &["format 2", "use a newer Ravelin"]);
    // The copies at the end of another drive do not count for udev, and are shown to people.
    let drive = std::fs::File::options().write(true).open(bench.path("d1"));
    drive
        .unwrap()
        .write_all_at(&vec![0x55; 1 << 20], 0)
        .unwrap();
    assert_eq!(bench.ok(&["drive", "identify", "--udev", "d1"]), "");
    let refused = bench.run(&["drive", "identify", "d1"]);
    refused.refused(
        1,
        &[
            "its label is overwritten",
            "seat 1 of pool `tank`",
            "--repair-labels",
        ],
    );
}

/// A block device is read past the page cache, in whole blocks.
#[test]
fn a_loop_device_is_identified_like_its_file() {
    let bench = with_pool("identify-loop");
    let made = Command::new("losetup")
        .args(["--find", "--show"])
        .arg(bench.path("d1"))
        .output();
    let device = match made {
        Ok(made) if made.status.success() => String::from_utf8(made.stdout).unwrap(),
        _ => return eprintln!("skipped: it needs root and loop devices"),
    };
    let said = bench.run(&["drive", "identify", "--udev", device.trim()]);
    let freed = Command::new("losetup")
        .args(["--detach", device.trim()])
        .status();
    assert!(freed.unwrap().success());
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(properties(&said.stdout)["RAVELIN_SEAT"], "1");
}

#[test]
fn udev_can_read_the_rules() {
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/udev/65-ravelin.rules"
    );
    assert!(Path::new(rules).exists());
    let Ok(help) = Command::new("udevadm").arg("--help").output() else {
        return eprintln!("skipped: there is no udevadm");
    };
    if !String::from_utf8_lossy(&help.stdout).contains("verify") {
        return eprintln!("skipped: this udevadm checks no rules");
    }
    let ran = Command::new("udevadm")
        .args(["verify", "--no-style", rules])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{ran:?}");
}
