//! Drives that something else has, in a guest with the programs of that: udev, which reads a drive again each time it was
//! written and is slow here, md and LVM. And names of drives that udev makes late.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::{VIRTIO_DISKS, install_rules};
use crate::support::kit::Kit;

/// What the guest runs besides `ravelin`.
const PROGRAMS: [&str; 3] = ["udevadm", "mdadm", "wipefs"];

const MODULES: [&str; 3] = [
    "drivers/md/md-mod.ko",
    "drivers/md/raid1.ko",
    "drivers/md/dm-mod.ko",
];

/// A disk of few requests a second, so that a reading of its partition table takes long.
const SLOW: &str = ",throttling.iops-total=200";

#[test]
fn drives_are_waited_for_while_udev_reads_them_and_their_owners_are_named() {
    let kit = match Kit::find(&PROGRAMS) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let has_lvm = match Kit::find(&["lvm"]) {
        Ok(_) => true,
        Err(missing) => {
            eprintln!("skipped: the part with LVM: {missing}");
            false
        }
    };
    let disks = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-taken-disks");
    let _ = fs::remove_dir_all(&disks);
    fs::create_dir_all(&disks).unwrap();
    let mut guest = kit.guest("taken-drives", &[&VIRTIO_DISKS[..], &MODULES].concat());
    guest.time_limit(Duration::from_secs(400));
    for (name, serial) in [("a", "ONE"), ("b", "TWO"), ("c", "THREE")] {
        let disk = disks.join(name);
        fs::File::create(&disk).unwrap().set_len(96 << 20).unwrap();
        let drive = format!("file={}{SLOW}", disk.display());
        guest.disk_with(&drive, &format!(",serial={serial}"));
    }
    guest.program("udevadm", "/lib/systemd/systemd-udevd");
    for program in &PROGRAMS[1..] {
        guest.program(program, &format!("/bin/{program}"));
    }
    if has_lvm {
        guest.program("lvm", "/bin/lvm");
    }
    if let Err(missing) = install_rules(&mut guest) {
        return eprintln!("skipped: {missing}");
    }
    let said = guest.run(include_str!("taken_drives.sh"));
    let md = "in use: a drive of the md array md0   try: `mdadm --stop /dev/md0` first if that is not needed";
    let group = "in use: a drive of the LVM volume group group   try: `vgchange --activate n group` first if that is not needed";
    let holds = |what| {
        format!(
            "ravelin: pool `tank` was not created: {what}   try: name another drive, or give --force to destroy what is on it"
        )
    };
    let mut expected = vec![
        "worked: 10 of 10".to_owned(),
        "udev had a drive".to_owned(),
        format!("md, wipe: {md}"),
        format!("md, plan: {md}"),
        format!(
            "md stopped, plan: {}",
            holds("/dev/vda holds an md RAID member (superblock 1)")
        ),
        "md stopped, wipe: yes".to_owned(),
        "md stopped, wipe: yes".to_owned(),
    ];
    if has_lvm {
        expected.extend([
            format!(
                "lvm, not active, plan: {}",
                holds("/dev/vdc holds an LVM2 physical volume")
            ),
            format!("lvm, wipe: {group}"),
            format!("lvm, plan: {group}"),
            "lvm stopped, wipe: yes".to_owned(),
        ]);
    }
    expected.extend(
        [
            "names: not there",
            "pool: state: HEALTHY, drives: 3",
            "names: there",
        ]
        .map(str::to_owned),
    );
    assert_eq!(said.lines().collect::<Vec<_>>(), expected);
    fs::remove_dir_all(&disks).unwrap();
}
