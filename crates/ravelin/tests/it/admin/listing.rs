//! `drive list` and `drive locate`: what the machine knows of drives.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use super::MIB;
use crate::support::bench::Bench;

/// A pool of three drives and a spare, and a copy of a machine in which the drives are disks.
fn with_machine(test: &str) -> (Bench, PathBuf) {
    let bench = Bench::new(test);
    let drives = bench.drives("d", 4, 40 * MIB);
    let made = bench.create("tank", "raid5", &drives[..3], &["spare", "d3"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let root = bench.path("machine");
    let put = |path: String, text: &[u8]| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let directory = bench.directory.display().to_string();
    for name in &drives {
        put(format!("{}/{name}", directory.trim_start_matches('/')), b"");
    }
    // One drive with udev's records, one with the kernel's files, one with a page of its own; one is no disk.
    put("sys/class/block/d0/dev".to_owned(), b"8:0\n");
    put(
        "run/udev/data/b8:0".to_owned(),
        b"S:disk/by-id/x\nE:ID_SERIAL=MODEL_S0\nE:ID_SERIAL_SHORT=S0\nE:ID_WWN=0x5000c500\n",
    );
    put("sys/class/block/d1/device/serial".to_owned(), b"S1  \n");
    put("sys/class/block/d1/wwid".to_owned(), b"eui.0025\n");
    put(
        "sys/class/block/d2/device/vpd_pg80".to_owned(),
        b"\0\x80\0\x04S2  ",
    );
    let slot = "sys/class/enclosure/0:0:8:0/Slot 03";
    put(format!("{slot}/locate"), b"0\n");
    put(format!("{slot}/device/block/d1/dev"), b"");
    (bench, root)
}

/// A program that stands for another one: a script at the head of the search path.
fn program(bench: &Bench, name: &str, script: &str) {
    let directory = bench.path("bin");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join(name);
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn drives_are_listed_with_what_identifies_them() {
    let (bench, root) = with_machine("drive-list");
    let root = root.to_str().unwrap();
    let listed = bench.json(&["drive", "list", "tank", "--sysroot", root]);
    let drives = listed["drives"].as_array().unwrap();
    let field = |name: &str| -> Vec<&str> {
        let values = drives.iter().map(|drive| drive[name].as_str());
        values.map(|value| value.unwrap_or("-")).collect()
    };
    assert_eq!(field("serial"), ["S0", "S1", "S2", "-"]);
    assert_eq!(field("wwn"), ["0x5000c500", "eui.0025", "-", "-"]);
    assert_eq!(field("slot"), ["-", "0:0:8:0/Slot 03", "-", "-"]);
    assert_eq!(field("state"), ["current", "current", "current", "waiting"]);
    assert_eq!(drives[3]["seat"], 3);
    assert_eq!(drives[0]["size_bytes"], 40 * MIB);
    assert!(drives[0].get("smart_passed").is_none());
    // Without a pool all drives of all pools; files are no disks, whatever their names.
    let all = bench.ok(&["drive", "list"]);
    assert_eq!(all.lines().count(), 5, "{all}");
    for part in ["POOL", "SERIAL", "WWN", "SLOT", "spare", "d3"] {
        assert!(all.contains(part), "no {part} in:\n{all}");
    }
    bench
        .run(&["drive", "list", "other"])
        .refused(1, &["no pool `other`"]);
}

#[test]
fn smart_says_temperatures_where_asked() {
    let (bench, root) = with_machine("drive-smart");
    let answer = r#"{"temperature":{"current":41},"smart_status":{"passed":false}}"#;
    program(
        &bench,
        "smartctl",
        &format!("case \"$*\" in *d1) echo '{answer}'; exit 8;; *) echo no; exit 2;; esac"),
    );
    let line = format!(
        "PATH={}:$PATH ravelin drive list --smart --sysroot {}",
        bench.path("bin").display(),
        root.display()
    );
    let ran = bench.shell(&line);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    let rows: Vec<&str> = ran.stdout.lines().collect();
    assert!(
        rows[2].contains("41 °C") && rows[2].contains("FAILING"),
        "{}",
        ran.stdout
    );
    assert!(!rows[1].contains("°C"), "{}", ran.stdout);
    let ran = bench.shell(&format!("{line} --json"));
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["drives"][1]["temperature_celsius"], 41);
    assert_eq!(document["drives"][1]["smart_passed"], false);
    assert!(document["drives"][0]["smart_passed"].is_null());
}

#[test]
fn the_light_of_a_slot_is_switched_by_the_enclosure_or_by_ledctl() {
    let (bench, root) = with_machine("locate");
    let tree = root.to_str().unwrap();
    let light = root.join("sys/class/enclosure/0:0:8:0/Slot 03/locate");
    let read = |file: &Path| std::fs::read_to_string(file).unwrap().trim().to_owned();
    let on = bench.json(&["drive", "locate", "tank", "1", "--sysroot", tree]);
    assert_eq!(
        (on["light"].as_str(), on["seat"].as_u64()),
        (Some("on"), Some(1))
    );
    assert_eq!(read(&light), "1");
    bench.ok(&["drive", "locate", "tank", "d1", "--off", "--sysroot", tree]);
    assert_eq!(read(&light), "0");
    // Without a slot there is ledctl.
    program(&bench, "ledctl", "echo \"$*\" >> asked");
    let path = bench.path("bin").display().to_string();
    let line = format!("PATH={path}:$PATH ravelin drive locate tank 0 --sysroot {tree}");
    let ran = bench.shell(&line);
    assert_eq!(ran.code, 0, "{}", ran.stdout);
    assert_eq!(bench.shell(&format!("{line} --off")).code, 0);
    let asked = read(&bench.path("asked"));
    assert_eq!(asked, "locate=/dev/d0\nlocate_off=/dev/d0");
    // With neither, the message says so.
    let own = bench.path("none");
    std::fs::create_dir(&own).unwrap();
    symlink(env!("CARGO_BIN_EXE_ravelin"), own.join("ravelin")).unwrap();
    let ran = bench.shell(&format!(
        "PATH={} ravelin drive locate tank 0 --sysroot {tree}",
        own.display()
    ));
    assert_eq!(ran.code, 1, "{}", ran.stdout);
    for part in ["/sys/class/enclosure", "ledctl", "ledmon", "drive list"] {
        assert!(ran.stdout.contains(part), "no {part} in {}", ran.stdout);
    }
    let file = bench.run(&["drive", "locate", "tank", "0"]);
    file.refused(1, &["is no disk of this machine"]);
    let none = bench.run(&["drive", "locate", "tank", "9"]);
    none.refused(1, &["no such drive", "drive list tank"]);
}
