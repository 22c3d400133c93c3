//! What needs kernel modules or a udev that the machine which runs the tests need not have: run in a Linux guest that
//! is emulated, without hardware support and without an image. The guest is the programs of this machine, a kernel
//! with its modules, and one shell script.
//!
//! `RAVELIN_GUEST` names a directory into which a Debian kernel package has been unpacked (`dpkg -x`); without it, the
//! kernel that is installed here is taken. What is missing is named, and the test is skipped.

#[expect(dead_code, reason = "shared with other tests")]
#[path = "guest/kit.rs"]
mod kit;

use kit::Kit;

/// `/dev/ravelin/POOL/VOLUME` leads to the device of the kernel's NBD client, from the connection to its end.
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
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/udev/65-ravelin.rules"
    );
    guest.file(rules, "/etc/udev/rules.d/65-ravelin.rules");
    let said = guest.run(include_str!("guest/nbd_names.sh"));
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
