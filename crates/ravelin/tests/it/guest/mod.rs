//! Tests that need kernel modules or a udev that the test machine may lack. They run in an emulated Linux guest,
//! without hardware support and without an image. The guest consists of programs of this machine, a kernel with its
//! modules, and one shell script.
//!
//! `RAVELIN_GUEST` names a directory into which a Debian kernel package has been unpacked (`dpkg -x`); the default is
//! the kernel that is installed here. Missing parts are named, and the test is skipped.

use crate::support::kit::Kit;

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
    let rules = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../packaging/udev/65-ravelin.rules"
    );
    guest.file(rules, "/etc/udev/rules.d/65-ravelin.rules");
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
