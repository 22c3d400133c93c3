//! No run changes a byte.

use std::path::Path;
use std::process::Child;
use std::time::{Duration, Instant};

use super::volume::{BARE, SlowVolume};

/// Longer than any run takes until it begins to write.
const TIME_LIMIT: Duration = Duration::from_secs(120);

/// Writes that the kernel has carried out on a block device.
fn writes_of(device: &Path) -> u64 {
    let name = device.file_name().unwrap();
    let stat = Path::new("/sys/class/block").join(name).join("stat");
    let stat = std::fs::read_to_string(stat).unwrap();
    stat.split_whitespace().nth(4).unwrap().parse().unwrap()
}

/// Waits for a condition while the run continues.
#[track_caller]
fn wait_for(what: &str, run: &mut Child, mut condition: impl FnMut(&Child) -> bool) {
    let deadline = Instant::now() + TIME_LIMIT;
    while !condition(run) {
        assert!(
            run.try_wait().unwrap().is_none(),
            "it has ended before {what}"
        );
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The flags of `open` with which a process has a file open, if any.
fn flags_of(process: u32, file: &Path) -> Option<u32> {
    let files = std::fs::read_dir(format!("/proc/{process}/fd")).ok()?;
    let found = files.flatten().find(|entry| {
        let target = std::fs::read_link(entry.path());
        target.is_ok_and(|target| target == file)
    })?;
    let number = found.file_name().into_string().unwrap();
    let info = std::fs::read_to_string(format!("/proc/{process}/fdinfo/{number}")).ok()?;
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"))?;
    u32::from_str_radix(flags.trim(), 8).ok()
}

#[test]
#[ignore = "real time: make shear"]
fn a_run_that_is_killed_while_it_writes_changes_nothing() {
    let volume = SlowVolume::new("killed", "raid5", 4, BARE);
    let Some(device) = volume.device(&[]) else {
        return;
    };
    let before = volume.hash();
    let name = device.to_str().unwrap();
    // In the first burst, then in the middle, and when most of the volume has been written.
    for (seed, writes) in [("1", 1), ("2", 400), ("3", 2500)] {
        let begun = writes_of(&device);
        let mut run = volume
            .bench
            .begin(&["shear", name, "--writes", "--seed", seed]);
        wait_for("so many writes", &mut run, |_| {
            writes_of(&device) >= begun + writes
        });
        run.kill().unwrap();
        run.wait().unwrap();
        println!("killed after {} writes", writes_of(&device) - begun);
        assert!(volume.hash() == before, "bytes have changed");
    }
}

#[test]
#[ignore = "real time: make shear"]
fn without_writes_the_target_is_opened_read_only() {
    const ACCESS: u32 = 0o3;
    const WRITES: u32 = 0o2;
    let volume = SlowVolume::new("read-only", "raid0", 4, BARE);
    let Some(device) = volume.device(&[]) else {
        return;
    };
    let name = device.to_str().unwrap();
    for (more, access) in [
        (&[][..], 0),
        (&["--reads-only"], 0),
        (&["--writes"], WRITES),
    ] {
        let mut run = volume.bench.begin(&[&["shear", name], more].concat());
        let mut flags = None;
        wait_for("the device is open", &mut run, |run| {
            flags = flags_of(run.id(), &device);
            flags.is_some()
        });
        run.kill().unwrap();
        run.wait().unwrap();
        assert_eq!(flags.unwrap() & ACCESS, access, "{more:?}");
    }
    // A read-only device can be measured, but not with `--writes`.
    let device = volume.device(&["--read-only"]).unwrap();
    let name = device.to_str().unwrap();
    let run = ["shear", name, "--max-ios", "100"];
    assert_eq!(volume.bench.run(&run).code, 0);
    let refused = volume.bench.run(&["shear", name, "--writes"]);
    refused.refused(2, &["cannot be measured", "read-only"]);
    volume.bench.ok(&["volume", "detach", "tank/v"]);
    let attach = [
        "volume",
        "attach",
        "tank/v",
        "--nbd",
        "unix:nbd",
        "--read-only",
    ];
    volume.bench.ok(&attach);
    let run = ["shear", &volume.uri(), "--max-ios", "100"];
    assert_eq!(volume.bench.run(&run).code, 0);
    let refused = volume.bench.run(&["shear", &volume.uri(), "--writes"]);
    refused.refused(2, &["cannot be measured", "read-only"]);
}
