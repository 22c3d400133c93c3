//! Tests that need kernel modules or a udev that the test machine may lack. They run in an emulated Linux guest,
//! without hardware support and without an image. The guest consists of programs of this machine, a kernel with its
//! modules, and one shell script.
//!
//! `RAVELIN_GUEST` names a directory into which a Debian kernel package has been unpacked (`dpkg -x`); the default is
//! the kernel that is installed here. Missing parts are named, and the test is skipped.

mod pages;
mod systemd;
mod taken_drives;
mod units;

use std::path::Path;
use std::time::Duration;

use crate::support::kit::{Guest, Kit};

/// What disks of the emulator need.
const VIRTIO_DISKS: [&str; 6] = [
    "drivers/virtio/virtio_ring.ko",
    "drivers/virtio/virtio.ko",
    "drivers/virtio/virtio_pci_legacy_dev.ko",
    "drivers/virtio/virtio_pci_modern_dev.ko",
    "drivers/virtio/virtio_pci.ko",
    "drivers/block/virtio_blk.ko",
];

/// Where the rules of udev's own package are.
const UDEV_RULES: &str = "/usr/lib/udev/rules.d";

/// The rules that are installed with the program.
const RULES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../packaging/udev/65-ravelin.rules"
);

/// Gives a guest the rules of the program, and those of udev's package with which udev looks for file systems itself, and
/// again whenever a program has written to a device. The error names the rules that are not installed here.
fn install_rules(guest: &mut Guest<'_>) -> Result<(), String> {
    guest.file(RULES, "/etc/udev/rules.d/65-ravelin.rules");
    for name in ["60-block.rules", "60-persistent-storage.rules"] {
        let rules = Path::new(UDEV_RULES).join(name);
        if !rules.exists() {
            return Err(format!("there is no {}", rules.display()));
        }
        guest.file(&rules, &format!("{UDEV_RULES}/{name}"));
    }
    Ok(())
}

/// `/dev/ravelin/POOL/VOLUME` links to the device of the kernel's NBD client as long as the client is connected.
#[test]
fn a_device_of_the_kernels_nbd_client_has_a_name_that_stays() {
    let programs = ["udevadm", "nbd-client"];
    let kit = match Kit::find(&programs) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let mut guest = kit.guest("nbd-names", &["drivers/block/nbd.ko"]);
    guest.program("udevadm", "/lib/systemd/systemd-udevd");
    guest.program("nbd-client", "/usr/sbin/nbd-client");
    guest.file(RULES, "/etc/udev/rules.d/65-ravelin.rules");
    let said = guest.run(include_str!("nbd_names.sh"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "before: none",
            "connected: /dev/nbd0",
            "listed: tank/home /dev/nbd0",
            "read back: right",
            "the other: none",
            "disconnected: none",
        ],
    );
}

/// Drives of a pool have a type, a pool and a seat in udev's database, from which `lsblk` and installers take them.
#[test]
fn lsblk_names_the_drives_of_a_pool_and_not_those_of_a_destroyed_one() {
    let kit = match Kit::find(&["udevadm", "lsblk", "losetup", "mkfs.ext4"]) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let mut guest = kit.guest("drive-names", &["drivers/block/loop.ko", "fs/fuse/fuse.ko"]);
    guest.time_limit(Duration::from_secs(400));
    guest.program("udevadm", "/lib/systemd/systemd-udevd");
    guest.program("lsblk", "/usr/bin/lsblk");
    guest.program("losetup", "/bin/losetup");
    guest.program("mkfs.ext4", "/bin/mkfs.ext4");
    if let Err(missing) = install_rules(&mut guest) {
        return eprintln!("skipped: {missing}");
    }
    let said = guest.run(include_str!("drive_names.sh"));
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "empty:",
            "created: ravelin_member tank",
            "properties: ID_FS_TYPE=ravelin_member ID_FS_USAGE=raid ID_FS_VERSION=1 ID_FS_LABEL=tank RAVELIN_POOL=tank RAVELIN_SEAT=1",
            "identity: the pool's",
            "added: ravelin_member tank RAVELIN_SEAT=3",
            "volume: ext4 data",
            "without a daemon: ravelin_member tank RAVELIN_SEAT=0",
            "destroyed:",
            "brought back: ravelin_member tank",
        ],
    );
}
