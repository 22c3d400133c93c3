//! A file on btrfs over four slow drives.
//!
//! ```text
//!   slow: drive ─ FUSE file ─ loop device ┐
//!   …                                     ├ btrfs ─ file, preallocated and written, never copied on write
//!   slow: drive ─ FUSE file ─ loop device ┘
//! ```
//!
//! Btrfs stripes in chunks of 64 KiB, and its RAID-5 is right-symmetric. Btrfs chooses where in a chunk the file
//! begins.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use engine::drive::{Open, open};
use export::fuse::FuseFile;
use testing::{Directory, eventually};

use super::answer::{Truth, Way, is_found};
use super::volume::{DriveFiles, FILL_BYTES, hash_of_file, noise};
use crate::support::bench::Bench;
use crate::support::common::{all_installed, can_mount, run};
use crate::support::disk::{Loop, Mounted};

const DRIVES: usize = 4;
/// Btrfs stripes a tenth of the file system at once; the file is smaller than that.
const DRIVE_BYTES: u64 = 2 << 30;
/// Length of the file in units of [`FILL_BYTES`].
const FILE_PARTS: u64 = 80;

/// A block device over a slow drive.
struct Disk {
    // The order of the fields matters: the device closes the file before the file is unmounted.
    device: Loop,
    file: FuseFile,
}

impl Disk {
    fn new(place: &Directory, uri: &str, index: usize) -> Self {
        let drive = open(&uri.parse().unwrap(), Open::default()).unwrap();
        let file = place.join(format!("{index}.img"));
        let file = FuseFile::mount(&file, drive.device).unwrap();
        let device = Loop::over(file.path());
        Self { device, file }
    }

    fn end(self) {
        drop(self.device);
        eventually("the loop device lets go", || self.file.opens() == 0);
    }
}

/// Makes a file that is preallocated, written in whole stripes, and has no copy-on-write and no checksums.
fn make_file(root: &Path) -> PathBuf {
    let path = root.join("file");
    let name = path.to_str().unwrap();
    File::create(&path).unwrap();
    run("chattr", &["+C", name]);
    let size = FILE_PARTS * FILL_BYTES as u64;
    run("fallocate", &["-l", &size.to_string(), name]);
    let file = File::options().write(true).open(&path).unwrap();
    for part in 0..FILE_PARTS {
        let at = part * FILL_BYTES as u64;
        std::os::unix::fs::FileExt::write_all_at(&file, &noise(part), at).unwrap();
    }
    file.sync_all().unwrap();
    path
}

fn is_identified(profile: &str, truth: &Truth) {
    let tools = ["losetup", "mkfs.btrfs", "chattr", "fallocate"];
    if !can_mount(&["/dev/fuse", "/dev/loop-control"]) || !all_installed(&tools) {
        return;
    }
    let kinds = fs::read_to_string("/proc/filesystems").unwrap();
    if !kinds.split_whitespace().any(|kind| kind == "btrfs") {
        println!("skipped: this kernel has no btrfs");
        return;
    }
    let test = format!("shear-btrfs-{profile}");
    let place = Directory::new();
    let files = DriveFiles::new(&test, DRIVES, DRIVE_BYTES);
    let each = files.uris().into_iter().enumerate();
    let disks: Vec<Disk> = each
        .map(|(index, uri)| Disk::new(&place, &uri, index))
        .collect();
    let mut make = vec!["-q", "-K", "-d", profile, "-m", "raid1"];
    make.extend(disks.iter().map(|disk| disk.device.device()));
    run("mkfs.btrfs", &make);
    let root = place.join("mnt");
    std::fs::create_dir(&root).unwrap();
    let mounted = Mounted::new(&disks[0].device, &root);
    let file = make_file(&root);
    let before = hash_of_file(&file);
    let bench = Bench::without_daemon(&test);
    is_found(&bench, file.to_str().unwrap(), truth, Way::Reads);
    assert!(hash_of_file(&file) == before, "bytes have changed");
    mounted.unmount();
    for disk in disks {
        disk.end();
    }
}

#[test]
#[ignore = "real time: make shear"]
fn a_file_on_btrfs_raid0_shows_its_chunks() {
    is_identified("raid0", &Truth::placed_anywhere("raid0:4c", "none"));
}

#[test]
#[ignore = "real time: make shear"]
fn a_file_on_btrfs_raid5_shows_its_chunks() {
    is_identified("raid5", &Truth::placed_anywhere("raid5:rs:4c", "parity"));
}
