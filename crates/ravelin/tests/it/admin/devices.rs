//! Devices that the daemon makes: who has one open, and when its number belongs to another device.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use super::MIB;
use crate::support::bench::Bench;
use crate::support::tools::unmount;

/// A volume on a loop device, and the device. None where that is not possible.
fn on_a_loop_device(test: &str) -> Option<(Bench, String)> {
    let mut bench = Bench::without_daemon(test);
    bench.start_with(&["--links", "links"]);
    let bench = with_volume(bench);
    let place = bench.path("file").display().to_string();
    let served = bench.run(&[
        "volume", "attach", "tank/v", "--fuse", &place, "--loop", "--json",
    ]);
    if served.code != 0 {
        eprintln!("skipped: it needs root, FUSE and loop devices");
        return None;
    }
    let served: serde_json::Value = serde_json::from_str(&served.stdout).unwrap();
    let device = served["device"].as_str().unwrap().to_owned();
    Some((bench, device))
}

fn with_volume(bench: Bench) -> Bench {
    let drives = bench.drives("d", 3, 40 * MIB);
    assert_eq!(bench.create("tank", "raid5", &drives, &[]).code, 0);
    bench.ok(&["volume", "create", "tank/v", "--size", "8M"]);
    bench
}

/// A small file system of its own. Dropping this unmounts it.
struct Mounted(String);

impl Mounted {
    fn tmpfs(place: &Path, size: &str) -> Option<Self> {
        std::fs::create_dir(place).unwrap();
        let place = place.display().to_string();
        let options = format!("size={size}");
        let mount = ["-t", "tmpfs", "-o", &options, "tmpfs", &place];
        let ended = Command::new("mount").args(mount).status();
        if !ended.is_ok_and(|ended| ended.success()) {
            eprintln!("skipped: it needs a file system of its own");
            return None;
        }
        Some(Self(place))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A second panic would end all tests of the process.
        if !std::thread::panicking() {
            unmount(&self.0);
        }
    }
}

/// Regression: a program that had the device open was no client, and was cut off.
#[test]
fn a_program_that_has_the_device_open_is_not_cut_off_without_force() {
    let Some((bench, device)) = on_a_loop_device("cut-off") else {
        return;
    };
    let open = File::open(&device).unwrap();
    let said = [&*device, "is open in pid", "--force"];
    let detach = ["volume", "detach", "tank/v"];
    for words in [&detach[..], &["pool", "export", "tank"]] {
        bench.run(words).refused(1, &said);
    }
    bench.ok(&[&detach[..], &["--force"]].concat());
    drop(open);
    assert_eq!(
        bench.json(&["volume", "list"])["volumes"][0]["exports"]
            .as_array()
            .map(Vec::len),
        Some(0)
    );
}

/// Regression: after somebody else had detached the loop device and made another one with its number, that one was
/// still shown as the volume's, and the volume's stable name led to it.
#[test]
fn a_loop_device_that_another_program_has_made_anew_is_not_the_volumes() {
    let Some((bench, device)) = on_a_loop_device("made-anew") else {
        return;
    };
    let link = bench.path("links/tank/v");
    assert_eq!(std::fs::read_link(&link).unwrap(), Path::new(&device));
    let run = |words: &[&str]| {
        let ran = Command::new("losetup").args(words).output().unwrap();
        assert!(
            ran.status.success(),
            "{}",
            String::from_utf8_lossy(&ran.stderr)
        );
    };
    run(&["-d", &device]);
    let other = bench.path("other");
    File::create(&other).unwrap().set_len(MIB).unwrap();
    run(&[&device, other.to_str().unwrap()]);
    let listed = bench.json(&["volume", "list"]);
    let export = &listed["volumes"][0]["exports"][0];
    assert!(
        export["device"].is_null() && export["link"].is_null(),
        "{export}"
    );
    let until = Instant::now() + Duration::from_secs(20);
    while link.is_symlink() {
        assert!(Instant::now() < until, "{} is still there", link.display());
        std::thread::sleep(Duration::from_millis(50));
    }
    bench.ok(&["volume", "detach", "tank/v"]);
    // It is as its owner made it.
    run(&["-d", &device]);
}

/// Regression: with a full file system of the state, a volume was attached, and no restart attached it again.
#[test]
fn a_volume_that_cannot_be_recorded_is_not_attached() {
    let mut bench = Bench::without_daemon("full-state");
    let state = bench.path("state");
    let Some(mounted) = Mounted::tmpfs(&state, "256k") else {
        return;
    };
    bench.start_with(&["--state", "state"]);
    let mut bench = with_volume(bench);
    assert!(
        std::fs::write(state.join("fill"), vec![1; 1 << 20]).is_err(),
        "it is full"
    );
    let attach = ["volume", "attach", "tank/v", "--nbd", "unix:nbd"];
    bench.run(&attach).refused(
        1,
        &[
            "cannot be recorded for the next start",
            "exports.json",
            "No space left",
            "--state",
        ],
    );
    assert!(!bench.path("nbd").exists());
    std::fs::remove_file(state.join("fill")).unwrap();
    bench.ok(&attach);
    bench.kill();
    bench.start_with(&["--state", "state"]);
    assert!(bench.path("nbd").exists(), "it is served again");
    bench.terminate();
    drop(mounted);
}
