//! Real block devices: loop and zram, also when they are taken away under load.
//!
//! Linux does not release an open loop or zram device: `losetup -d` waits for the last user, and a
//! zram reset is refused. Shrinking a device to nothing (`losetup -c` after its file was cut) does
//! take it away under load: a pulled disk looks like this to its users. And a zram device that may
//! use no memory fails its writes.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{Fault, Memory, Outcome, RequestKind, SplitMix64};
use testing::eventually;

use super::support::{Collector, Place, against_the_model, open_sized, request};
use crate::drive::{BackEnd, Drive, Open, OpenDriveError, open, sync};

fn run(command: &str, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(command)
        .args(arguments)
        .output()
        .map_err(|error| format!("{command}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    } else {
        Err(format!(
            "{command}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        ))
    }
}

/// A loop device over a file of `size` bytes, detached when dropped.
struct Loop {
    device: String,
    file: String,
    _place: Place,
}

impl Loop {
    fn new(size: u64) -> Option<Self> {
        let place = Place::new();
        let file = place.file("backing");
        fs::File::create(&file).unwrap().set_len(size).unwrap();
        match run("losetup", &["-f", "--show", &file]) {
            Ok(device) => Some(Self {
                device,
                file,
                _place: place,
            }),
            Err(reason) => {
                eprintln!("skipped: {reason}");
                None
            }
        }
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = run("losetup", &["-d", &self.device]);
    }
}

/// A zram device that did not exist before and does not afterwards.
struct Zram(u32);

impl Zram {
    fn new() -> Option<Self> {
        // Reading this file makes the device.
        match fs::read_to_string("/sys/class/zram-control/hot_add") {
            Ok(number) => Some(Self(number.trim().parse().unwrap())),
            Err(error) => {
                eprintln!("skipped: zram: {error}");
                None
            }
        }
    }

    fn device(&self) -> String {
        format!("/dev/zram{}", self.0)
    }

    fn set(&self, name: &str, value: &str) -> std::io::Result<()> {
        fs::write(
            Path::new(&format!("/sys/block/zram{}", self.0)).join(name),
            value,
        )
    }

    fn remove(&self) -> std::io::Result<()> {
        fs::write("/sys/class/zram-control/hot_remove", self.0.to_string())
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        let _ = self.set("reset", "1");
        let _ = self.remove();
    }
}

/// Keeps 32 requests in flight while `disturb` runs, and for some hundred requests after it;
/// returns the outcomes from before its end and from after it.
fn under_load(drive: &Drive, disturb: impl FnOnce() + Send) -> (Vec<Outcome>, Vec<Outcome>) {
    let disturbed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let mut chance = SplitMix64::new(9);
            let (mut before, mut after) = (Vec::new(), Vec::new());
            while after.len() < 500 || before.is_empty() {
                let was = disturbed.load(Ordering::SeqCst);
                let collector = Arc::new(Collector::default());
                for token in 0..32 {
                    let kind = match chance.below(9) {
                        0 => RequestKind::Flush,
                        1..5 => RequestKind::Write,
                        _ => RequestKind::Read,
                    };
                    let carried = if kind == RequestKind::Flush { 0 } else { 4096 };
                    let block = chance.below(drive.size_bytes / 4096);
                    let memory = Memory::from_bytes(&chance.bytes(carried));
                    let request = request(kind, block * 4096, carried as u64);
                    collector.submit(&*drive.device, request, memory, token);
                }
                // Fails after half a minute: that would be the hang.
                collector.wait(32);
                let outcomes = collector.once_each(32);
                if was {
                    after.extend(outcomes);
                } else {
                    before.extend(outcomes);
                }
            }
            (before, after)
        });
        std::thread::sleep(std::time::Duration::from_millis(50));
        disturb();
        disturbed.store(true, Ordering::SeqCst);
        load.join().unwrap()
    })
}

#[test]
fn a_loop_device_is_a_drive_and_others_cannot_take_it() {
    let Some(device) = Loop::new(4 << 20) else {
        return;
    };
    for backend in ["uring", "threads"] {
        let uri = format!("{}?backend={backend}", device.device);
        let drive = match open(
            &uri.parse().unwrap(),
            Open {
                exclusive: true,
                ..Open::default()
            },
        ) {
            Err(OpenDriveError::NoUring { reason, .. }) => {
                eprintln!("skipped: {reason}");
                continue;
            }
            drive => drive.unwrap(),
        };
        assert_eq!((drive.kind, drive.size_bytes), ("block", 4 << 20));
        assert_eq!(drive.back_end == BackEnd::Uring, backend == "uring");
        against_the_model(&*drive.device, 300, 11);
        let how = Open {
            exclusive: true,
            ..Open::default()
        };
        let error = open(&device.device.parse().unwrap(), how).unwrap_err();
        assert!(matches!(error, OpenDriveError::InUse { .. }), "{error}");
        let mounted = run("mkfs.ext4", &["-q", &device.device]);
        assert!(mounted.is_err(), "the exclusive claim keeps mkfs away");
    }
}

#[test]
fn a_mounted_device_is_busy() {
    let Some(device) = Loop::new(16 << 20) else {
        return;
    };
    let place = Place::new();
    let directory = place.file("mnt");
    fs::create_dir(&directory).unwrap();
    let mounted = run("mke2fs", &["-q", &device.device])
        .and_then(|_| run("mount", &[&device.device, &directory]));
    if let Err(reason) = mounted {
        eprintln!("skipped: {reason}");
        return;
    }
    let how = Open {
        exclusive: true,
        ..Open::default()
    };
    let error = open(&device.device.parse().unwrap(), how);
    // A process that another test is just starting has the descriptors of this one.
    let unmounted = (0..100).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        run("umount", &[&directory]).is_ok()
    });
    assert!(unmounted, "{directory} is busy");
    assert!(
        matches!(error, Err(OpenDriveError::Busy { .. })),
        "{error:?}"
    );
}

#[test]
fn a_loop_device_taken_away_under_load_is_gone_and_nothing_hangs() {
    for backend in ["auto", "threads"] {
        let Some(device) = Loop::new(16 << 20) else {
            return;
        };
        let drive = open_sized(&format!("{}?backend={backend}", device.device), 0);
        let (before, after) = under_load(&drive, || {
            run("losetup", &["-d", &device.device]).unwrap();
        });
        let all = before.iter().chain(&after);
        assert!(
            all.copied().all(|outcome| outcome.is_ok()),
            "detaching waits for us"
        );

        let (before, after) = under_load(&drive, || {
            let file = fs::File::options().write(true).open(&device.file).unwrap();
            let name = Path::new(&device.device).file_name().unwrap();
            let size = Path::new("/sys/block").join(name).join("size");
            // Writes in flight make the file longer again until they see the new size.
            eventually("the loop device shrinks to nothing", || {
                file.set_len(0).unwrap();
                run("losetup", &["-c", &device.device]).unwrap();
                fs::read_to_string(&size).unwrap().trim() == "0"
            });
        });
        assert!(before.iter().any(Result::is_ok));
        assert!(after.contains(&Err(Fault::Gone)));
        let flush_or_gone =
            |outcome: &Outcome| matches!(outcome, Ok(()) | Err(Fault::Gone | Fault::Medium));
        assert!(after.iter().all(flush_or_gone), "{backend}: {after:?}");
        for kind in [RequestKind::Read, RequestKind::Write] {
            let outcome = sync::run(&*drive.device, request(kind, 0, 4096), Memory::zeroed(4096));
            assert_eq!(outcome, Err(Fault::Gone), "{backend} {kind:?}");
        }
        drop(drive);
        let left = run("losetup", &["-a"]).unwrap();
        assert!(
            !left.contains(&device.file),
            "the loop device stayed behind: {left}"
        );
    }
}

#[test]
fn a_zram_device_shows_its_use_is_full_at_its_limit_and_takes_writes_after_a_discard() {
    const LIMIT: u64 = 2 << 20;
    for backend in ["auto", "uring"] {
        let Some(zram) = Zram::new() else { return };
        zram.set("mem_limit", &LIMIT.to_string()).unwrap();
        // With and without the kind before its name.
        let kind = if backend == "auto" { "zram:" } else { "" };
        zram.set("disksize", &(16 << 20).to_string()).unwrap();
        let drive = open_sized(&format!("{kind}{}?backend={backend}", zram.device()), 0);
        let device = &*drive.device;
        let usage = device.usage().unwrap();
        assert_eq!((usage.physical_bytes, usage.used_bytes), (LIMIT, 0));
        let write = |at: u64| sync::write(device, at << 16, &SplitMix64::new(at).bytes(64 << 10));
        let full = (0..64)
            .map(|at| (at, write(at)))
            .find(|(_, end)| end.is_err());
        let (at, end) = full.expect("4 MiB of noise have no room");
        assert_eq!(end, Err(Fault::Full), "{backend}");
        assert!(at >= 30, "{backend}: {at}");
        let usage = device.usage().unwrap();
        assert!(usage.used_bytes > LIMIT - (128 << 10), "{usage:?}");
        assert!(sync::read(device, 0, 64 << 10).unwrap() == SplitMix64::new(0).bytes(64 << 10));
        assert_eq!(write(at), Err(Fault::Full), "and again");
        sync::discard(device, 0, 1 << 20).unwrap();
        assert!(device.usage().unwrap().used_bytes < LIMIT - (512 << 10));
        write(at).unwrap();
        drop(drive);
    }
    let Some(zram) = Zram::new() else { return };
    let drive = open_sized(&format!("zram:{}", zram.device()), 8 << 20);
    assert_eq!(drive.device.usage(), None, "it has no limit");
}

#[test]
fn a_zram_device_gets_a_size_refuses_removal_under_load_and_fails_when_full() {
    let Some(zram) = Zram::new() else { return };
    let uri = format!("zram:{}", zram.device());
    let how = Open {
        exclusive: true,
        ..Open::default()
    };
    let error = open(&uri.parse().unwrap(), how).unwrap_err();
    assert!(matches!(error, OpenDriveError::NoBytes { .. }), "{error}");
    let drive = open_sized(&uri, 8 << 20);
    assert_eq!((drive.kind, drive.size_bytes), ("zram", 8 << 20));
    assert!(drive.direct);
    against_the_model(&*drive.device, 200, 13);

    let (before, after) = under_load(&drive, || {
        assert!(zram.set("reset", "1").is_err(), "a reset in use is refused");
        assert!(zram.remove().is_err(), "and so is removal");
    });
    assert!(before.iter().chain(&after).all(Result::is_ok));

    // Like pulling the device: it may store no more pages.
    let (_, after) = under_load(&drive, || zram.set("mem_limit", "1").unwrap());
    assert!(after.contains(&Err(Fault::Full)));
    assert!(!after.contains(&Err(Fault::Medium)), "it is only full");
    drop(drive);
    // The system may open a device that was written, for a moment.
    eventually(
        "nothing holds the device after the drive was dropped",
        || zram.set("reset", "1").is_ok(),
    );
}
