//! Devices that the daemon makes: who has one open, and when its number belongs to another device. Devices that become
//! drives: what has them already, and what udev does with them.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::{OFlags, inotify};

use super::MIB;
use crate::support::bench::Bench;
use crate::support::disk::Loop;
use crate::support::tools::{installed, unmount};

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

/// Counts how often files are closed that a program could have written. For a device, udev reads the partition table
/// again each time.
struct Closings {
    watch: std::os::fd::OwnedFd,
    seen: usize,
}

impl Closings {
    fn of(bench: &Bench, files: &[String]) -> Self {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let watch = inotify::init(flags).unwrap();
        for file in files {
            let flags = inotify::WatchFlags::CLOSE_WRITE;
            inotify::add_watch(&watch, bench.path(file), flags).unwrap();
        }
        Self { watch, seen: 0 }
    }

    fn count(&mut self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(&self.watch, &mut buffer);
        while events.next().is_ok() {
            self.seen += 1;
        }
        self.seen
    }

    /// The kernel closes a file a moment after its last user has released it.
    #[track_caller]
    fn reach(&mut self, count: usize) {
        let until = Instant::now() + Duration::from_secs(20);
        while self.count() < count {
            assert!(Instant::now() < until, "{} of {count}", self.seen);
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(self.seen, count);
    }
}

/// Regression: commands opened a drive to see what it holds, closed it, and opened it again to write. In between udev
/// read the partition table again, and the drive was "in use by the kernel".
#[test]
fn a_drive_is_opened_for_writing_once_and_a_plan_only_reads() {
    let bench = Bench::new("once");
    let drives = bench.drives("d", 4, 40 * MIB);
    let mut closings = Closings::of(&bench, &drives);
    let members = &drives[..3];
    assert_eq!(bench.create("tank", "raid5", members, &["-n"]).code, 0);
    assert_eq!(closings.count(), 0, "pool create -n");
    assert_eq!(bench.create("tank", "raid5", members, &[]).code, 0);
    assert_eq!(closings.count(), 0, "the pool has them open");
    bench.ok(&["drive", "add", "tank", "d3"]);
    let added = closings.count();
    bench.ok(&["drive", "remove", "tank", "3"]);
    closings.reach(added + 1);
    bench.ok(&["pool", "destroy", "tank", "--yes"]);
    closings.reach(added + 4);
    assert_ne!(bench.run(&["drive", "wipe", "d0"]).code, 0, "it asks");
    assert_eq!(closings.count(), added + 4, "drive wipe that asks");
    bench.ok(&["drive", "wipe", "d0", "--yes"]);
    closings.reach(added + 5);
}

/// A device, for tests that need one.
fn loop_device(bench: &Bench, size_bytes: u64) -> Option<Loop> {
    if !rustix::process::geteuid().is_root() || !installed("losetup") {
        println!("skipped: loop devices need root");
        return None;
    }
    let file = bench.path("backing");
    File::create(&file).unwrap().set_len(size_bytes).unwrap();
    Some(Loop::over(&file))
}

/// A process of this name that has the device's exclusive claim until its input ends.
fn claim(bench: &Bench, device: &Loop, name: &str, arguments: &[&str]) -> Child {
    let program = bench.path(name);
    std::os::unix::fs::symlink("/bin/sh", &program).unwrap();
    let flags = i32::try_from(OFlags::EXCL.bits()).unwrap();
    let mut options = File::options();
    options.read(true).custom_flags(flags);
    // A process that another test is just starting may have the device open for a moment.
    let until = Instant::now() + Duration::from_secs(20);
    let claimed = loop {
        match options.open(device.device()) {
            Ok(claimed) => break claimed,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    };
    Command::new(program)
        .args(["-c", "read end"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(claimed)
        .spawn()
        .unwrap()
}

/// Regression: on an emulated machine 18 of 18 wipes were refused, because udev needs longer than an instant.
#[test]
fn a_device_that_udev_reads_again_is_waited_for() {
    let bench = Bench::new("udev");
    let Some(device) = loop_device(&bench, 40 * MIB) else {
        return;
    };
    // The second is what udev runs by Ravelin's own rule: it was taken for another daemon.
    let identify = ["drive", "identify", "--udev", device.device()];
    for (name, arguments) in [("systemd-udevd", &[][..]), ("ravelin", &identify)] {
        let mut udev = claim(&bench, &device, name, arguments);
        std::thread::scope(|scope| {
            let wipe = scope.spawn(|| bench.run(&["drive", "wipe", device.device(), "--yes"]));
            // Longer than a passing claim of a process that is just being started is waited for.
            std::thread::sleep(Duration::from_secs(1));
            drop(udev.stdin.take());
            udev.wait().unwrap();
            let wiped = wipe.join().unwrap();
            assert_eq!(wiped.code, 0, "{name}: {}", wiped.stderr);
        });
    }
}

#[test]
fn what_has_a_device_is_named_with_what_releases_it() {
    let bench = Bench::new("who-has-it");
    let Some(device) = loop_device(&bench, 40 * MIB) else {
        return;
    };
    let wipe = ["drive", "wipe", device.device(), "--yes"];
    let mut other = claim(&bench, &device, "imager", &[]);
    let process = format!("another program (pid {}, imager)", other.id());
    bench.run(&wipe).refused(1, &[&process, "end that program"]);
    drop(other.stdin.take());
    other.wait().unwrap();

    if installed("mkfs.ext4") {
        bench.shell(&format!("mkfs.ext4 -q {}", device.device()));
        let place = bench.path("mnt");
        std::fs::create_dir(&place).unwrap();
        let place = place.display().to_string();
        let mount = Command::new("mount")
            .args([device.device(), &place])
            .status();
        assert!(mount.unwrap().success());
        let mounted = Mounted(place.clone());
        let at = format!("in use: mounted at {place}");
        let hint = format!("umount {place}");
        bench.run(&wipe).refused(1, &[&at, &hint]);
        for verb in ["-n", "--yes"] {
            let device = [device.device().to_owned()];
            let created = bench.create("tank", "raid0", &device, &[verb]);
            created.refused(1, &[&at, &hint]);
        }
        drop(mounted);
    }

    if installed("mkswap") {
        bench.shell(&format!("mkswap {}", device.device()));
        let on = bench.shell(&format!("swapon {}", device.device()));
        if on.code != 0 {
            println!("skipped: no swap: {}", on.stdout);
            return;
        }
        let refused = bench.run(&wipe);
        assert_eq!(bench.shell(&format!("swapoff {}", device.device())).code, 0);
        let hint = format!("swapoff {}", device.device());
        refused.refused(1, &["in use: swap space", &hint]);
    }
    bench.ok(&wipe);
}
