//! File systems of the kernel on a pool: a volume as a file (through our own FUSE server, or by NBD through nbdfuse), a
//! loop device over the file, ext4, xfs and btrfs on the loop device, and a drive that fails meanwhile.
//!
//! Needs root, `/dev/fuse`, loop devices and the tools; missing ones are reported as skipped.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::PoisonError;
use std::time::Duration;

use block::SplitMix64;
use export::fuse::FuseFile;
use sha2::{Digest, Sha256};
use testing::{Directory, eventually};

use crate::common::{DEAD_DEVICES, all_installed, can_mount, run};
use crate::disk::{Loop, Mounted, Nbdfuse};
use crate::pool::{Served, TestPool};

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

/// How the volume becomes a file.
#[derive(Clone, Copy, Debug)]
enum Way {
    Fuse,
    Nbdfuse,
}

/// The volume as a file.
enum Image {
    Fuse(FuseFile),
    Nbdfuse(Nbdfuse, Served),
}

impl Image {
    fn new(way: Way, pool: &TestPool, place: &Directory) -> Self {
        match way {
            Way::Fuse => {
                Self::Fuse(FuseFile::mount(&place.join("volume.img"), pool.volume()).unwrap())
            }
            Way::Nbdfuse => {
                let served = pool.serve(place);
                // As many connections as nbdfuse opens by default to a server that allows several.
                let file = Nbdfuse::mount(&place.join("nbdfuse"), &[served.uri()]);
                Self::Nbdfuse(file, served)
            }
        }
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Fuse(file) => file.path().to_owned(),
            Self::Nbdfuse(file, _) => file.file(),
        }
    }

    /// Waits until the kernel has closed the file, and removes the file.
    fn end(self) {
        match self {
            Self::Fuse(file) => {
                eventually("the loop device lets go", || file.opens() == 0);
                drop(file);
            }
            Self::Nbdfuse(file, served) => {
                file.unmount();
                served.shutdown();
            }
        }
    }
}

fn can_run(system: &System, way: Way) -> bool {
    let mut tools = vec!["losetup", "fstrim", system.make[0], system.check[0]];
    if matches!(way, Way::Nbdfuse) {
        tools.extend(["nbdfuse", "fusermount3"]);
    }
    if !can_mount(&["/dev/fuse", "/dev/loop-control"]) || !all_installed(&tools) {
        return false;
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap();
    let known = kinds.split_whitespace().any(|kind| kind == system.name);
    if !known {
        println!("skipped: this kernel has no {}", system.name);
    }
    known
}

fn run_on(command: &[&str], device: &Loop) {
    let (program, options) = command.split_first().unwrap();
    run(program, &[options, &[device.device()]].concat());
}

/// Files of many sizes in directories of several depths, about 40 MiB.
fn grow_tree(root: &Path) {
    let mut random = SplitMix64::new(4);
    for index in 0..120_usize {
        let directory = root.join(format!("{}/{}", index % 4, index % 7));
        fs::create_dir_all(&directory).unwrap();
        let length = if index % 30 == 0 {
            8 << 20
        } else {
            index * index * 5
        };
        let bytes = random.bytes(length);
        fs::write(directory.join(format!("file {index}")), bytes).unwrap();
    }
}

/// Every file below `root`, with the hash of its content.
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

fn survives_a_failed_drive(system: &System, way: Way) {
    if !can_run(system, way) {
        return;
    }
    let _all_alive = DEAD_DEVICES.read().unwrap_or_else(PoisonError::into_inner);
    let place = Directory::new();
    let [tree, root] = ["tree", "mnt"].map(|name| place.join(name));
    for directory in [&tree, &root] {
        fs::create_dir(directory).unwrap();
    }
    grow_tree(&tree);
    let original = hashes(&tree);
    let pool = TestPool::in_memory("pddl2:4d:14c:2s", 14, VOLUME_BYTES);
    let image = Image::new(way, &pool, &place);
    let disk = Loop::over(&image.path());
    run_on(system.make, &disk);

    let mounted = Mounted::new(&disk, &root);
    copy(&tree, &root.join("before"));
    rustix::fs::sync();
    // The drive fails during the second copy, and the rebuild runs during the third.
    std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            copy(&tree, &root.join("during"));
            rustix::fs::sync();
        });
        std::thread::sleep(Duration::from_millis(50));
        pool.fail(3);
        copying.join().unwrap();
    });
    copy(&tree, &root.join("after"));
    pool.wait_idle();
    fs::remove_dir_all(root.join("after")).unwrap();
    rustix::fs::sync();
    run("fstrim", &[root.to_str().unwrap()]);
    mounted.unmount();
    run_on(system.check, &disk);

    // Another loop device, so that no cached data of the kernel is left.
    drop(disk);
    let disk = Loop::over(&image.path());
    let mounted = Mounted::new(&disk, &root);
    assert_eq!(hashes(&root.join("before")), original, "before");
    assert_eq!(hashes(&root.join("during")), original, "during");
    mounted.unmount();
    drop(disk);

    let path = image.path();
    image.end();
    pool.close();
    assert!(!path.exists(), "nothing is left");
}

#[test]
fn ext4_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&EXT4, Way::Fuse);
}

#[test]
fn ext4_by_nbdfuse_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&EXT4, Way::Nbdfuse);
}

#[test]
fn xfs_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&XFS, Way::Fuse);
}

#[test]
fn xfs_by_nbdfuse_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&XFS, Way::Nbdfuse);
}

#[test]
fn btrfs_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&BTRFS, Way::Fuse);
}

#[test]
fn btrfs_by_nbdfuse_is_clean_and_whole_after_a_drive_failed_under_it() {
    survives_a_failed_drive(&BTRFS, Way::Nbdfuse);
}
