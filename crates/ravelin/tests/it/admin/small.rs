//! Small faults that showed in daily use.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use export::nbd::Client;
use rustix::process::{Pid, Signal, kill_process};

use super::MIB;
use crate::support::bench::{Bench, bytes};

/// Regression: hooks in a directory named relative to the daemon's working directory never ran, and hooks got the
/// daemon's whole environment.
#[test]
fn hooks_in_a_relative_directory_run_with_a_clean_environment() {
    let mut bench = Bench::without_daemon("hooks");
    std::fs::create_dir(bench.path("hooks")).unwrap();
    let hook = bench.path("hooks/10-all");
    let out = bench.path("seen");
    std::fs::write(&hook, format!("#!/bin/sh\nenv >> {}\n", out.display())).unwrap();
    std::fs::set_permissions(&hook, std::fs::Permissions::from_mode(0o755)).unwrap();
    bench.start_with(&["--hooks", "hooks"]);
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    let deadline = Instant::now() + Duration::from_secs(20);
    let seen = loop {
        let seen = std::fs::read_to_string(&out).unwrap_or_default();
        if seen.contains("RAVELIN_EVENT=pool_open") && seen.contains("PATH=") {
            break seen;
        }
        assert!(Instant::now() < deadline, "no hook has run: {seen}");
        std::thread::sleep(Duration::from_millis(20));
    };
    let names = seen.lines().filter_map(|line| line.split_once('='));
    for (name, _) in names {
        let known = ["PATH", "LANG", "PWD", "OLDPWD", "SHLVL", "_"];
        assert!(
            name.starts_with("RAVELIN_") || known.contains(&name),
            "{name}"
        );
    }
}

/// Regression: `ravelin pool status | head -1` ended in "cannot write: Broken pipe".
#[test]
fn a_reader_that_has_had_enough_is_no_error() {
    let bench = Bench::without_daemon("pipe");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ravelin"))
        .args(["code", "list"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .current_dir(&bench.directory)
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    let mut child = Command::new(env!("CARGO_BIN_EXE_ravelin"))
        .args(["layout", "show", "pddl2:8d:22c:2s", "--rows", "2000"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ended = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stderr), "");
    assert!(ended.status.success(), "{ended:?}");
}

#[test]
fn a_volume_is_renamed_while_nobody_knows_it_by_its_name() {
    let mut bench = Bench::new("rename");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/old", "--size", "4M"]);
    bench.ok(&["volume", "create", "tank/other", "--size", "4M"]);
    let attach = |name: &str| {
        let export = bench.json(&["volume", "attach", name, "--nbd", "unix:nbd"]);
        Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap()
    };
    let mut client = attach("tank/old");
    client.write(0, b"precious", false).unwrap();
    client.flush().unwrap();
    client.disconnect().unwrap();
    let rename = |new: &str| bench.run(&["volume", "rename", "tank/old", new]);
    rename("new").refused(1, &["it is attached to unix:", "volume detach tank/old"]);
    bench.ok(&["volume", "detach", "tank/old"]);
    rename("other").refused(1, &["already a volume `other`"]);
    rename("pool/new").refused(2, &["another pool"]);
    rename("a b").refused(2, &["not a volume name"]);
    let renamed = bench.json(&["volume", "rename", "tank/old", "tank/new"]);
    assert_eq!(renamed["name"], "new");
    let mut client = attach("tank/new");
    assert_eq!(client.read(0, 8).unwrap(), b"precious");
    client.disconnect().unwrap();
    bench.ok(&["volume", "detach", "tank/new"]);
    bench.terminate();
    bench.start();
    let names = bench.json(&["volume", "list"]);
    assert_eq!(names["volumes"][0]["name"], "new");
}

#[test]
fn a_volume_attached_read_only_is_not_changed() {
    let bench = Bench::new("read-only");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let attach = [
        "volume",
        "attach",
        "tank/v",
        "--nbd",
        "unix:nbd",
        "--read-only",
    ];
    let export = bench.json(&attach);
    assert_eq!(export["read_only"], true);
    let uri = export["uri"].as_str().unwrap().parse().unwrap();
    let mut client = Client::connect(&uri, None).unwrap();
    client.write(0, b"12345678", false).unwrap_err();
    bench.ok(&["volume", "detach", "tank/v", "--force"]);
    if std::fs::File::open("/dev/fuse").is_err() {
        eprintln!("skipped: a file, for there is no /dev/fuse");
        return;
    }
    let file = bench.path("v.img");
    let attach = [
        "volume",
        "attach",
        "tank/v",
        "--fuse",
        "v.img",
        "--read-only",
    ];
    if bench.run(&attach).code != 0 {
        eprintln!("skipped: a file, for it cannot be mounted here");
        return;
    }
    let written = std::fs::OpenOptions::new()
        .write(true)
        .open(&file)
        .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, &[1; 4096], 0));
    assert!(written.is_err());
    assert!(bytes(&file).iter().all(|&byte| byte == 0));
    bench.ok(&["volume", "detach", "tank/v"]);
}

/// Regression: a loop device kept its size when its volume grew, and status did not show the device.
#[test]
fn a_loop_device_grows_with_its_volume_and_is_shown() {
    let bench = Bench::new("loop");
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    let attach = [
        "volume", "attach", "tank/v", "--fuse", "v.img", "--loop", "--json",
    ];
    let attached = bench.run(&attach);
    if attached.code != 0 {
        eprintln!("skipped: no loop device: {}", attached.stderr);
        return;
    }
    let export: serde_json::Value = serde_json::from_str(&attached.stdout).unwrap();
    let device = export["device"].as_str().unwrap();
    let size = || {
        let name = device.strip_prefix("/dev/").unwrap();
        let sectors = std::fs::read_to_string(format!("/sys/block/{name}/size")).unwrap();
        sectors.trim().parse::<u64>().unwrap() * 512
    };
    assert_eq!(size(), 4 * MIB);
    let status = bench.ok(&["pool", "status", "tank"]);
    assert!(status.contains(device), "{status}");
    bench.ok(&["volume", "resize", "tank/v", "--size", "+12M"]);
    assert_eq!(size(), 16 * MIB);
    bench.ok(&["volume", "detach", "tank/v"]);
}

#[test]
fn status_shows_everything_at_a_glance_or_only_what_is_wrong() {
    let bench = Bench::new("glance");
    assert_eq!(bench.ok(&["status"]), "no pools are open\n");
    for (pool, prefix) in [("tank", "t"), ("attic", "a")] {
        let drives = bench.drives(prefix, 3, 40 * MIB);
        assert_eq!(bench.create(pool, "raid5", &drives, &[]).code, 0);
    }
    let text = bench.ok(&["status"]);
    assert!(text.contains("tank") && text.contains("attic"), "{text}");
    assert_eq!(bench.ok(&["status", "-x"]), "all pools are healthy\n");
    bench.ok(&["drive", "offline", "tank", "1"]);
    let text = bench.ok(&["status", "-x"]);
    assert!(!text.contains("attic"), "{text}");
    for part in ["tank", "DEGRADED", "3, 1 out", "drive online tank 1"] {
        assert!(text.contains(part), "no `{part}` in:\n{text}");
    }
    let ran = bench.run(&["status", "-x", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["kind"], "status");
    assert_eq!(document["pools"][0]["drives_out"], 1);
}

#[test]
fn the_socket_can_be_a_groups() {
    use std::os::unix::fs::MetadataExt;
    let mut bench = Bench::without_daemon("group");
    bench.start();
    let mode = |bench: &Bench| std::fs::metadata(bench.path("socket")).unwrap().mode() & 0o777;
    assert_eq!(mode(&bench), 0o600);
    bench.terminate();
    let group = std::fs::metadata(&bench.directory).unwrap().gid();
    bench.start_with(&["--group", &group.to_string()]);
    assert_eq!(mode(&bench), 0o660);
    let socket = std::fs::metadata(bench.path("socket")).unwrap();
    assert_eq!(socket.gid(), group);
    bench.terminate();
    bench.start_with(&["--group", "no-such-group"]);
    assert_eq!(mode(&bench), 0o600);
    assert!(bench.log().contains("no such group"), "{}", bench.log());
}

/// A loop device gets another number after each start; scripts and fstab need a stable name.
#[test]
fn a_device_has_a_name_that_stays() {
    let mut bench = Bench::without_daemon("links");
    bench.start_with(&["--links", "links"]);
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "4M"]);
    // A link that an earlier run of the daemon left behind.
    std::fs::create_dir_all(bench.path("links/tank")).unwrap();
    let link = bench.path("links/tank/v");
    std::os::unix::fs::symlink("/dev/gone", &link).unwrap();
    let attach = [
        "volume", "attach", "tank/v", "--fuse", "v.img", "--loop", "--json",
    ];
    let attached = bench.run(&attach);
    if attached.code != 0 {
        eprintln!("skipped: no loop device: {}", attached.stderr);
        return;
    }
    let export: serde_json::Value = serde_json::from_str(&attached.stdout).unwrap();
    assert_eq!(export["link"], link.to_str().unwrap());
    let leads_to = |link: &std::path::Path| std::fs::read_link(link).unwrap();
    assert_eq!(leads_to(&link).to_str(), export["device"].as_str());
    bench.terminate();
    assert!(!link.exists() && link.symlink_metadata().is_err());
    bench.start_with(&["--links", "links"]);
    let now = bench.json(&["pool", "status", "tank"])["exports"][0]["device"].clone();
    assert_eq!(leads_to(&link).to_str(), now.as_str());
    bench.ok(&["volume", "detach", "tank/v"]);
    assert!(link.symlink_metadata().is_err());
    assert!(!bench.path("links/tank").exists());
}

/// `timeout` and other programs signal a process and then its group, so one request to stop arrives twice.
#[test]
fn a_daemon_that_is_told_twice_to_stop_at_once_closes_its_pools() {
    let mut bench = Bench::new("told-twice");
    let drives = bench.drives("d", 3, 64 << 20);
    bench.create("tank", "raid5", &drives, &[]);
    let pid = Pid::from_raw(i32::try_from(bench.pid()).unwrap()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    // The kernel merges two pending signals of the same number, so the second signal is another one.
    kill_process(pid, Signal::INT).unwrap();
    assert_eq!(bench.terminate(), Some(0), "{}", bench.log());
}
