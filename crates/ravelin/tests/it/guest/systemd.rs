//! A file system on a volume, in a guest with systemd: at boot by the documented line of `/etc/fstab`, over a restart, a
//! kill and an upgrade of the daemon, and after a power cut.

use std::fs;
use std::path::Path;

use crate::support::kit::{Guest, Kit};

/// What the guests run besides `ravelin` and systemd itself.
const PROGRAMS: [&str; 8] = [
    "udevadm",
    "systemctl",
    "losetup",
    "mkfs.ext4",
    "mount",
    "umount",
    "getent",
    "sync",
];

/// The units that a boot to a mounted file system needs. The others would need more programs.
const UNITS: [&str; 27] = [
    "basic.target",
    "sysinit.target",
    "local-fs.target",
    "local-fs-pre.target",
    "remote-fs.target",
    "remote-fs-pre.target",
    "multi-user.target",
    "network.target",
    "network-online.target",
    "paths.target",
    "timers.target",
    "sockets.target",
    "slices.target",
    "swap.target",
    "time-set.target",
    "shutdown.target",
    "umount.target",
    "final.target",
    "poweroff.target",
    "reboot.target",
    "emergency.target",
    "rescue.target",
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
    "systemd-udev-trigger.service",
    "systemd-udev-settle.service",
];

const DISKS: [&str; 4] = ["a", "b", "c", "state"];

fn source(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A guest whose first process is systemd; its drives are the files in `disks`.
fn guest<'a>(kit: &'a Kit, name: &str, disks: &Path) -> Guest<'a> {
    let virtio = [
        "virtio_ring",
        "virtio",
        "virtio_pci_legacy_dev",
        "virtio_pci_modern_dev",
        "virtio_pci",
    ];
    let mut modules: Vec<String> = virtio
        .map(|name| format!("drivers/virtio/{name}.ko"))
        .into();
    let others = [
        "drivers/block/virtio_blk.ko",
        "drivers/block/loop.ko",
        "fs/fuse/fuse.ko",
    ];
    modules.extend(others.map(str::to_owned));
    let names: Vec<&str> = modules.iter().map(String::as_str).collect();
    let mut guest = kit.guest(name, &names);
    for disk in DISKS {
        guest.disk(disks.join(disk));
    }
    guest.program("systemd", "/lib/systemd/systemd");
    guest.program("udevadm", "/bin/udevadm");
    guest.program("udevadm", "/lib/systemd/systemd-udevd");
    // systemd runs `/bin/mount`, and busybox's does not know options of systemd.
    for program in &PROGRAMS[1..] {
        guest.program(program, &format!("/bin/{program}"));
    }
    for helper in [
        "systemd-shutdown",
        "system-generators/systemd-fstab-generator",
    ] {
        guest.helper(Path::new("/lib/systemd").join(helper));
    }
    for unit in UNITS {
        let path = format!("/lib/systemd/system/{unit}");
        guest.file(&path, &path);
    }
    for rules in [
        "50-udev-default.rules",
        "60-block.rules",
        "60-persistent-storage.rules",
        "99-systemd.rules",
    ] {
        let path = format!("/lib/udev/rules.d/{rules}");
        guest.file(&path, &path);
    }
    guest.file(
        source("packaging/udev/65-ravelin.rules"),
        "/etc/udev/rules.d/65-ravelin.rules",
    );
    guest.file(
        source("packaging/systemd/ravelin.service"),
        "/lib/systemd/system/ravelin.service",
    );
    let wants = [
        ("sysinit.target", "systemd-udevd.service"),
        ("sysinit.target", "systemd-udev-trigger.service"),
        ("sockets.target", "systemd-udevd-control.socket"),
        ("sockets.target", "systemd-udevd-kernel.socket"),
        ("multi-user.target", "remote-fs.target"),
        ("multi-user.target", "ravelin.service"),
        ("multi-user.target", "test.service"),
    ];
    for (target, unit) in wants {
        guest.link(
            &format!("/lib/systemd/system/{unit}"),
            &format!("/etc/systemd/system/{target}.wants/{unit}"),
        );
    }
    guest.file(source("packaging/debian/postinst"), "/postinst");
    guest.link("multi-user.target", "/lib/systemd/system/default.target");
    guest.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    guest.text("/etc/group", "root:x:0:\ndisk:x:6:\nravelin:x:900:\n");
    guest.text("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    guest.text("/etc/os-release", "ID=guest\n");
    guest.text("/etc/ravelin/hooks.d/.keep", "");
    guest.text("/home/.keep", "");
    guest.text("/var/lib/ravelin/.keep", "");
    guest.text(
        "/etc/systemd/system/ravelin.service.d/log.conf",
        "[Service]\nStandardError=append:/run/ravelin.log\n",
    );
    guest.text(
        "/lib/systemd/system/test.service",
        "[Unit]\nAfter=ravelin.service remote-fs.target\n[Service]\nType=exec\nExecStart=/bin/sh /test.sh\n\
         Environment=PATH=/bin:/sbin:/usr/bin:/usr/sbin\nStandardOutput=tty\nStandardError=tty\n\
         TTYPath=/dev/ttyS0\n",
    );
    guest
}

const STATE: &str = "/dev/vdd /var/lib/ravelin ext4 defaults 0 0\n";

#[test]
fn a_file_system_is_mounted_at_boot_and_goes_on_over_restart_kill_upgrade_and_power_cut() {
    let systemd = Path::new("/lib/systemd/systemd");
    if !systemd.exists() {
        return eprintln!("skipped: systemd is not installed");
    }
    let kit = match Kit::find(&PROGRAMS) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let disks = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-disks");
    let _ = fs::remove_dir_all(&disks);
    fs::create_dir_all(&disks).unwrap();
    for disk in DISKS {
        let file = fs::File::create(disks.join(disk)).unwrap();
        file.set_len(if disk == "state" { 16 << 20 } else { 160 << 20 })
            .unwrap();
    }
    crate::support::tools::run(
        "mkfs.ext4",
        &["-q", "-F", disks.join("state").to_str().unwrap()],
    );

    let first = guest(&kit, "systemd-1", &disks);
    first.text("/etc/fstab", STATE);
    let said =
        first.run_systemd(&[include_str!("appender.sh"), include_str!("first_boot.sh")].concat());
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "link: /dev/loop0",
            "mounted: /home",
            "restarted: active, same process: no, appends: yes, mounted: /home",
            "killed: active, same process: no, appends: yes, mounted: /home",
            "upgraded: appends: yes, mounted: /home",
            "another file: written",
        ],
    );
    let second = guest(&kit, "systemd-2", &disks);
    // The other form of the line, which also starts the daemon.
    let line = "/dev/ravelin/tank/home /home ext4 _netdev,x-systemd.requires=ravelin.service 0 0\n";
    second.text("/etc/fstab", &[STATE, line].concat());
    let said =
        second.run_systemd(&[include_str!("appender.sh"), include_str!("second_boot.sh")].concat());
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "mounted: /home",
            "lines: right",
            "another file: right",
            "restarted: active, same process: no, appends: yes, mounted: /home",
            "stopped: inactive, mounted: no, device: none",
            "started: active, mounted: /home, lines: right",
        ],
    );
    fs::remove_dir_all(&disks).unwrap();
}
