//! Documents whose commands need what only a guest has: the kernel's NBD client, device mapper, md.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use crate::docs::pages::of_guest;
use crate::support::kit::Kit;

/// Long, because keys of LUKS and file systems take an emulated processor a while.
const TIME_LIMIT: Duration = Duration::from_secs(480);

/// Before the commands: drives `/dev/sdb` and so on, the address of the documents, and a daemon.
const BEFORE: &str = "
mkdir -p /run/ravelin /run/drives /mnt /etc /root
ip link set lo up
ip addr add 192.0.2.1/32 dev lo
ln -sf /proc/mounts /etc/mtab
ravelin daemon >/daemon.log 2>&1 &
until ravelin pool list >/dev/null 2>&1; do sleep 0.1; done
cd /root
# Makes a drive: its letter, and the number of its loop device.
drive() {
    truncate -s 256M /run/drives/$1
    losetup /dev/loop$2 /run/drives/$1
    ln -s loop$2 /dev/sd$1
}
# Runs a command of the page.
typed() {
    if sh /typed/$1 >/printed 2>&1 </dev/null; then return; fi
    say \"failed: $(cat /typed/$1)\"
    while read -r line; do say \"| $line\"; done </printed
    tail -n 5 /daemon.log | while read -r line; do say \"log: $line\"; done
}
";

/// Runs the commands of a page that need no tools of the host; all must succeed.
fn page_works(name: &str, programs: &[&str], modules: &[&str]) {
    let kit = match Kit::find(programs) {
        Ok(kit) => kit,
        Err(missing) => return eprintln!("skipped: {missing}"),
    };
    let short = name.trim_start_matches("docs/").trim_end_matches(".md");
    let mut guest = kit.guest(&format!("page-{short}"), modules);
    guest.time_limit(TIME_LIMIT);
    for program in programs {
        // In the place of busybox's own.
        guest.program(program, &format!("/bin/{program}"));
    }
    for file in ["/usr/lib/ssl/openssl.cnf", "/etc/ssl/openssl.cnf"] {
        if Path::new(file).exists() {
            guest.file(file, file);
        }
    }
    let (drives, commands) = of_guest(name);
    let mut script = BEFORE.to_owned();
    for (number, letter) in ('b'..='z').take(drives).enumerate() {
        writeln!(script, "drive {letter} {number}").unwrap();
    }
    script += "mkdir /typed\n";
    for (number, command) in commands.iter().enumerate() {
        writeln!(
            script,
            "cat >/typed/{number} <<'END_OF_COMMAND'\n{command}\nEND_OF_COMMAND"
        )
        .unwrap();
        writeln!(script, "typed {number}").unwrap();
    }
    script += "say \"typed $(ls /typed | wc -l)\"\n";
    let said = guest.run(&script);
    // In the message, where the first lines of what failed are.
    assert!(
        said == format!("typed {}", commands.len()),
        "{name}: {said}"
    );
    assert!(commands.len() >= 15, "{name}: {}", commands.len());
}

#[test]
fn the_kernels_nbd_client_connects_by_tls_as_the_page_says() {
    page_works(
        "docs/network.md",
        &["openssl", "nbd-client", "mkfs.ext4"],
        &["drivers/block/loop.ko", "drivers/block/nbd.ko"],
    );
}

#[test]
fn luks_is_on_a_volume_as_the_page_says() {
    page_works(
        "docs/encryption.md",
        &["cryptsetup", "mkfs.ext4", "resize2fs", "losetup"],
        &[
            "drivers/block/loop.ko",
            "fs/fuse/fuse.ko",
            "drivers/md/dm-mod.ko",
            "drivers/md/dm-crypt.ko",
            "crypto/ecb.ko",
            "crypto/xts.ko",
            "crypto/af_alg.ko",
            "crypto/algif_skcipher.ko",
        ],
    );
}

#[test]
fn a_mirror_of_md_moves_to_a_pool_with_one_new_drive_as_the_page_says() {
    page_works(
        "docs/moving-from-md.md",
        &["mdadm", "mkfs.ext4", "losetup"],
        &[
            "drivers/block/loop.ko",
            "fs/fuse/fuse.ko",
            "drivers/md/md-mod.ko",
            "drivers/md/raid1.ko",
        ],
    );
}
