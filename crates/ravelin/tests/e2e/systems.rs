//! File systems of the kernel on a pool: a volume as a file through FUSE, a loop device over it,
//! ext4, xfs and btrfs on that, and a drive that fails under them.
//!
//! Needs root, `/dev/fuse`, loop devices and the tools; what is missing is named as skipped.

#![expect(clippy::print_stdout, reason = "tests say what they skip")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use array::pool::OutReason;
use block::Seat;
use engine::assemble::{NewPool, create, prepare};
use engine::drive::DriveUri;
use engine::{PoolHandle, RunOptions};
use export::fuse::FuseFile;
use sha2::{Digest, Sha256};

/// `mkfs.xfs` refuses less than 300 MiB.
const VOLUME_BYTES: u64 = 320 << 20;

/// How a file system is made and checked. The device comes last.
struct System {
    name: &'static str,
    make: &'static [&'static str],
    check: &'static [&'static str],
}

const EXT4: System = System {
    name: "ext4",
    make: &["mkfs.ext4", "-q"],
    check: &["e2fsck", "-fn"],
};
const XFS: System = System {
    name: "xfs",
    make: &["mkfs.xfs", "-q"],
    check: &["xfs_repair", "-n"],
};
const BTRFS: System = System {
    name: "btrfs",
    make: &["mkfs.btrfs", "-q"],
    check: &["btrfs", "check"],
};

fn can_run(system: &System) -> bool {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: loop devices and mounts need root");
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let here = |tool: &str| std::env::split_paths(&path).any(|place| place.join(tool).exists());
    let tools = ["losetup", "fstrim", system.make[0], system.check[0]];
    let devices = ["/dev/fuse", "/dev/loop-control"];
    let kinds = fs::read_to_string("/proc/filesystems").unwrap();
    if let Some(tool) = tools.iter().find(|tool| !here(tool)) {
        println!("skipped: {tool} is not installed");
    } else if let Some(device) = devices.iter().find(|device| !Path::new(device).exists()) {
        println!("skipped: there is no {device}");
    } else if !kinds.split_whitespace().any(|kind| kind == system.name) {
        println!("skipped: this kernel has no {}", system.name);
    } else {
        return true;
    }
    false
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {text}{errors}"
    );
    text.trim().to_owned()
}

fn run_on(command: &[&str], device: &str) {
    let (program, options) = command.split_first().unwrap();
    run(program, &[options, &[device]].concat());
}

/// A directory of its own, removed also after a failure.
struct Place(PathBuf);

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A loop device, detached also after a failure.
struct Loop(String);

impl Loop {
    fn over(file: &Path) -> Self {
        let file = file.to_str().unwrap();
        Self(run("losetup", &["--direct-io=on", "-f", "--show", file]))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        let _ = Command::new("losetup").args(["-d", &self.0]).status();
    }
}

/// A mounted file system, unmounted also after a failure.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(device: &Loop, at: &'a Path) -> Self {
        run("mount", &[&device.0, at.to_str().unwrap()]);
        Self(at)
    }

    fn unmount(self) {
        run("umount", &[self.0.to_str().unwrap()]);
        std::mem::forget(self);
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

/// Files of many sizes in directories of several depths, about 40 MiB.
fn grow_tree(root: &Path) {
    let mut state = 4_u64;
    for index in 0..120_usize {
        let directory = root.join(format!("{}/{}", index % 4, index % 7));
        fs::create_dir_all(&directory).unwrap();
        let length = if index % 30 == 0 {
            8 << 20
        } else {
            index * index * 5
        };
        let step = |_| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            state.to_be_bytes()[0]
        };
        let bytes: Vec<u8> = (0..length).map(step).collect();
        fs::write(directory.join(format!("file {index}")), bytes).unwrap();
    }
}

/// Every file below `root` with the hash of what it holds.
fn hashes(root: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else {
                let hash = Sha256::digest(fs::read(&path).unwrap()).to_vec();
                found.insert(path.strip_prefix(root).unwrap().to_owned(), hash);
            }
        }
    }
    found
}

fn copy(from: &Path, to: &Path) {
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    run("cp", &["-a", from, to]);
}

fn pool(scheme: &str, drives: usize) -> PoolHandle {
    let drive: DriveUri = "mem:96M".parse().unwrap();
    let new = NewPool {
        name: "test".to_owned(),
        scheme: scheme.parse().unwrap(),
        chunk_bytes: None,
        cell_bytes: None,
        drives: vec![drive; drives],
        spares: Vec::new(),
        force: false,
    };
    let pool = create(prepare(&new).unwrap(), RunOptions::default()).unwrap();
    pool.create_volume("v", VOLUME_BYTES).unwrap();
    pool
}

fn survives_a_failed_drive(system: &System) {
    if !can_run(system) {
        return;
    }
    let place =
        std::env::temp_dir().join(format!("ravelin-{}-{}", std::process::id(), system.name));
    let place = Place(place);
    let [tree, root] = ["tree", "mnt"].map(|name| {
        let path = place.0.join(name);
        fs::create_dir_all(&path).unwrap();
        path
    });
    grow_tree(&tree);
    let original = hashes(&tree);
    let pool = pool("pddl2:4d:14c:2s", 14);
    let volume = pool.volume("v").unwrap();
    let file = FuseFile::mount(&place.0.join("volume.img"), volume).unwrap();
    let disk = Loop::over(file.path());
    run_on(system.make, &disk.0);

    let mounted = Mounted::new(&disk, &root);
    copy(&tree, &root.join("before"));
    rustix::fs::sync();
    // The second copy is on its way when the drive fails, and the rebuild runs under the third.
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            copy(&tree, &root.join("during"));
            rustix::fs::sync();
        });
        std::thread::sleep(Duration::from_millis(50));
        pool.fail_drive(Seat(3), OutReason::Failed, false).unwrap();
        copying.join().unwrap();
    });
    copy(&tree, &root.join("after"));
    assert!(pool.wait_quiet(Duration::from_secs(120)), "no hang");
    fs::remove_dir_all(root.join("after")).unwrap();
    rustix::fs::sync();
    run("fstrim", &[root.to_str().unwrap()]);
    mounted.unmount();
    run_on(system.check, &disk.0);

    // Nothing of the kernel's caches is left: the loop device is another one.
    drop(disk);
    let disk = Loop::over(file.path());
    let mounted = Mounted::new(&disk, &root);
    assert_eq!(hashes(&root.join("before")), original, "before");
    assert_eq!(hashes(&root.join("during")), original, "during");
    mounted.unmount();
    drop(disk);

    let deadline = Instant::now() + Duration::from_secs(10);
    while file.opens() > 0 {
        assert!(Instant::now() < deadline, "the loop device has let go");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(file);
    let status = pool.status().unwrap();
    assert_eq!(status.rebuild.map_or(0, |rebuild| rebuild.cells_lost), 0);
    pool.close().unwrap();
    assert!(!place.0.join("volume.img").exists(), "nothing is left");
}

#[test]
fn ext4_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&EXT4);
}

#[test]
fn xfs_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&XFS);
}

#[test]
fn btrfs_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&BTRFS);
}
