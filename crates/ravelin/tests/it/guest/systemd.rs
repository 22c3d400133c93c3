//! A file system on a volume, in a guest with systemd: at boot by the documented line of `/etc/fstab`, over a restart, a
//! kill and an upgrade of the daemon, and after a power cut. The Debian package from its installation to its removal.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::VIRTIO_DISKS;
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

/// The kit for a guest with systemd, and with these programs besides.
fn kit(others: &[&str]) -> Option<Kit> {
    let systemd = Path::new("/lib/systemd/systemd");
    let kit = match systemd.exists() {
        true => Kit::find(&[&PROGRAMS, others].concat()),
        false => Err("systemd is not installed".to_owned()),
    };
    kit.inspect_err(|missing| eprintln!("skipped: {missing}"))
        .ok()
}

fn source(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(path)
}

/// A guest whose first process is systemd, with a disk for each file. Nothing of Ravelin is in it but the program.
fn machine<'a>(kit: &'a Kit, name: &str, disks: &[PathBuf]) -> Guest<'a> {
    let modules = [
        &VIRTIO_DISKS[..],
        &["drivers/block/loop.ko", "fs/fuse/fuse.ko"],
    ]
    .concat();
    let mut guest = kit.guest(name, &modules);
    for disk in disks {
        guest.disk(disk);
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
    let wants = [
        ("sysinit.target", "systemd-udevd.service"),
        ("sysinit.target", "systemd-udev-trigger.service"),
        ("sockets.target", "systemd-udevd-control.socket"),
        ("sockets.target", "systemd-udevd-kernel.socket"),
        ("multi-user.target", "remote-fs.target"),
        ("multi-user.target", "test.service"),
    ];
    for (target, unit) in wants {
        guest.link(
            &format!("/lib/systemd/system/{unit}"),
            &format!("/etc/systemd/system/{target}.wants/{unit}"),
        );
    }
    guest.link("multi-user.target", "/lib/systemd/system/default.target");
    guest.text("/etc/passwd", "root:x:0:0:root:/root:/bin/sh\n");
    guest.text("/etc/group", "root:x:0:\ndisk:x:6:\n");
    guest.text("/etc/machine-id", "0123456789abcdef0123456789abcdef\n");
    guest.text("/etc/os-release", "ID=guest\n");
    guest.text("/home/.keep", "");
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

/// A machine on which Ravelin is installed and starts at boot.
fn guest<'a>(kit: &'a Kit, name: &str, disks: &Path) -> Guest<'a> {
    let guest = machine(kit, name, &DISKS.map(|disk| disks.join(disk)));
    guest.file(
        source("packaging/udev/65-ravelin.rules"),
        "/etc/udev/rules.d/65-ravelin.rules",
    );
    guest.file(
        source("packaging/systemd/ravelin.service"),
        "/lib/systemd/system/ravelin.service",
    );
    guest.link(
        "/lib/systemd/system/ravelin.service",
        "/etc/systemd/system/multi-user.target.wants/ravelin.service",
    );
    guest.file(source("packaging/debian/postinst"), "/postinst");
    guest.text("/etc/group", "root:x:0:\ndisk:x:6:\nravelin:x:900:\n");
    guest.text("/etc/ravelin/hooks.d/.keep", "");
    guest.text("/var/lib/ravelin/.keep", "");
    guest
}

const STATE: &str = "/dev/vdd /var/lib/ravelin ext4 defaults 0 0\n";

#[test]
fn a_file_system_is_mounted_at_boot_and_goes_on_over_restart_kill_upgrade_and_power_cut() {
    let Some(kit) = kit(&[]) else { return };
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

/// What the package's test runs, and the package's scripts. These are run by `sh`, and two of them run a program in Perl.
const DPKG: [&str; 10] = [
    "dpkg",
    "dpkg-deb",
    "dpkg-split",
    "dpkg-query",
    "tar",
    "ldconfig",
    "groupadd",
    "groupdel",
    "perl",
    "deb-systemd-invoke",
];

/// Long: `dpkg` runs six times, and starts or stops the daemon each time.
const TIME_LIMIT: Duration = Duration::from_secs(480);

/// The libraries that the package depends on; the guest has their files, and not their packages.
const DEPENDED_ON: [&str; 3] = ["libc6", "libgcc-s1", "libssl3"];

/// The package, and another one with the same files and the version before.
fn packages(place: &Path) -> [PathBuf; 2] {
    let run = |program: &str, arguments: &[&Path]| {
        let ran = Command::new(program)
            .args(arguments)
            // The guest would need minutes to decompress it.
            .env("DPKG_DEB_COMPRESSOR_TYPE", "none")
            .output()
            .unwrap();
        assert!(ran.status.success(), "{program}: {ran:?}");
        String::from_utf8(ran.stdout).unwrap()
    };
    let program = Path::new(env!("CARGO_BIN_EXE_ravelin"));
    let script = source("packaging/deb");
    let made = run(script.to_str().unwrap(), &[program, place]);
    let (new, tree, old) = (
        PathBuf::from(made.trim()),
        place.join("tree"),
        place.join("old.deb"),
    );
    run("dpkg-deb", &[Path::new("--raw-extract"), &new, &tree]);
    let control = tree.join("DEBIAN/control");
    let text = fs::read_to_string(&control).unwrap();
    fs::write(&control, text.replace("\nVersion: ", "\nVersion: 0.0.0~")).unwrap();
    let build = ["--build", "--root-owner-group"].map(Path::new);
    run("dpkg-deb", &[&build[..], &[&*tree, &*old]].concat());
    [old, new]
}

/// Debian's `dpkg` installs, upgrades, removes and purges the package. A file system on a volume goes on over the upgrade.
/// What was installed is gone at the end, but for the pools, which are on their drives.
#[test]
fn the_package_is_installed_upgraded_removed_and_purged() {
    let Some(kit) = kit(&DPKG) else { return };
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guest-package-files");
    let _ = fs::remove_dir_all(&place);
    fs::create_dir_all(&place).unwrap();
    let disks = ["a", "b", "c"].map(|name| place.join(name));
    for disk in &disks {
        fs::File::create(disk).unwrap().set_len(160 << 20).unwrap();
    }
    let mut guest = machine(&kit, "package", &disks);
    guest.time_limit(TIME_LIMIT);
    guest.remove("/usr/bin/ravelin");
    for program in DPKG {
        guest.program(program, &format!("/bin/{program}"));
    }
    let modules = "use strict; use warnings; use Getopt::Long; print join qq(\n), values %INC";
    let modules = Command::new("perl").args(["-e", modules]).output().unwrap();
    for module in String::from_utf8(modules.stdout).unwrap().lines() {
        guest.file(module, module);
    }
    let [old, new] = packages(&place);
    guest.file(old, "/old.deb");
    guest.file(new, "/new.deb");
    let architecture = Command::new("dpkg").arg("--print-architecture").output();
    let architecture = String::from_utf8(architecture.unwrap().stdout).unwrap();
    let installed = DEPENDED_ON.map(|name| {
        format!(
            "Package: {name}\nStatus: install ok installed\nVersion: 99\nArchitecture: {architecture}\
             Maintainer: guest\nDescription: guest\n\n"
        )
    });
    guest.text("/var/lib/dpkg/status", &installed.concat());
    guest.text("/var/lib/dpkg/info/.keep", "");
    guest.text("/var/lib/dpkg/updates/.keep", "");
    guest.text("/etc/fstab", "");
    let said =
        guest.run_systemd(&[include_str!("appender.sh"), include_str!("package.sh")].concat());
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(
        lines,
        [
            "installed: disabled, group: 1",
            "upgraded: same process: yes, the one before, appends: yes, says: systemctl restart ravelin",
            "restarted: active, same process: no, appends: yes, mounted: /home",
            "it runs the installed one",
            "upgraded without volumes: the installed one, pool: state: HEALTHY",
            "removed: inactive, mounted: no, device: none, program: none, state: /var/lib/ravelin",
            "installed again: mounted: /home, lines: right",
            "purged: inactive, mounted: no, left:",
            "imported: lines: right",
        ],
    );
    fs::remove_dir_all(&place).unwrap();
}
