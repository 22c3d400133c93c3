//! `mkfs.xfs` finds the scheme's units on a volume: on a disk of a virtual machine, and on a device of the device mapper.
//! On volumes of less than 1 GiB it does not look for them.

use std::time::Duration;

use super::VIRTIO_DISKS;
use crate::support::bench::Bench;
use crate::support::kit::Kit;

/// What the guest runs.
const PROGRAMS: [&str; 3] = ["mkfs.xfs", "lsblk", "dmsetup"];

#[test]
fn mkfs_finds_sectors_and_stripes_in_a_virtual_machine_and_through_the_device_mapper() {
    let kit = match Kit::find(&PROGRAMS) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let bench = Bench::new("units");
    let drives = bench.drives("d", 5, 1 << 30);
    let made = bench.create("tank", "raid6", &drives, &["-o", "chunk=64K"]);
    assert_eq!(made.code, 0, "{}", made.stderr);
    let modules = [&VIRTIO_DISKS[..], &["drivers/md/dm-mod.ko"]].concat();
    let mut guest = kit.guest("units", &modules);
    guest.time_limit(Duration::from_secs(400));
    for (name, units) in [("v", true), ("w", false)] {
        let volume = format!("tank/{name}");
        bench.ok(&["volume", "create", &volume, "--size", "1200M"]);
        let socket = bench.path(&format!("{name}.sock"));
        let place = format!("unix:{}", socket.display());
        let attach = ["volume", "attach", &volume, "--nbd", &place];
        bench.ok(&[&attach[..], &["--block-size", "4096"]].concat());
        let shown = bench.json(&["volume", "show", &volume]);
        // What `volume show` prints, for the disk that the guest adds.
        let device = shown["qemu"].as_str().unwrap();
        let options = device.strip_prefix("virtio-blk-pci,drive=NODE").unwrap();
        let drive = format!(
            "file.driver=nbd,file.server.type=unix,file.server.path={},file.export={volume}",
            socket.display()
        );
        guest.disk_with(&drive, if units { options } else { "" });
    }
    for program in PROGRAMS {
        guest.program(program, &format!("/bin/{program}"));
    }
    let said = guest.run(include_str!("units.sh"));
    let lines: Vec<&str> = said.lines().collect();
    // In blocks of 4 KiB: chunks of 64 KiB, three to a stripe.
    let found = "sectsz=4096 sunit=16 swidth=48 sectsz=4096";
    assert_eq!(
        lines,
        [
            &format!("disk with the line: {found}"),
            "disk without: sectsz=512 sunit=0 swidth=0 sectsz=512",
            "lsblk: 65536 196608 4096 4096",
            &format!("device mapper: {found}"),
            "the same blocks",
        ],
    );
}
