//! Ravelin's own volumes.

use std::path::Path;

use super::answer::{Truth, Way, is_found};
use super::volume::{BARE, DEFAULTS, SlowVolume};

/// Measures a volume without journal and checksums by NBD and as a loop device. A volume with both is measured as a
/// loop device, or by NBD where there are no loop devices. No byte changes.
///
/// Cells of 256 KiB matter for declustered layouts; classic layouts show no cells.
fn is_identified(test: &str, (scheme, drives): (&str, usize), truth: &Truth, missing: Option<u16>) {
    for options in [BARE, DEFAULTS] {
        let volume = SlowVolume::new(test, scheme, drives, options);
        if let Some(seat) = missing {
            let seat = seat.to_string();
            volume.bench.ok(&["drive", "offline", "tank", &seat]);
        }
        let before = volume.hash();
        let check = |target: &str, way| {
            is_found(&volume.bench, target, truth, way);
            assert!(volume.hash() == before, "{test}: bytes have changed");
        };
        let device = volume.device(&[]);
        let device = device.as_deref().and_then(Path::to_str);
        if options == BARE {
            // With a drive missing, writes have another cost.
            let by_writes = match missing {
                Some(_) => Way::LateWrites,
                None => Way::Writes,
            };
            check(&volume.uri(), by_writes);
            if let Some(device) = device {
                check(device, Way::Reads);
            }
        } else {
            check(device.unwrap_or(&volume.uri()), Way::LateWrites);
        }
    }
}

#[test]
#[ignore = "real time: make shear"]
fn raid0_is_identified() {
    is_identified(
        "raid0",
        ("raid0", 4),
        &Truth::classic("raid0:4c", "none"),
        None,
    );
}

#[test]
#[ignore = "real time: make shear"]
fn raid5_left_symmetric_is_identified() {
    is_identified(
        "ls",
        ("raid5", 4),
        &Truth::classic("raid5:4c", "parity"),
        None,
    );
}

#[test]
#[ignore = "real time: make shear"]
fn raid5_left_asymmetric_is_identified() {
    is_identified(
        "la",
        ("raid5:la", 4),
        &Truth::classic("raid5:la:4c", "parity"),
        None,
    );
}

#[test]
#[ignore = "real time: make shear"]
fn raid6_is_identified() {
    let truth = Truth::classic("raid6:4c", "double-parity");
    is_identified("raid6", ("raid6", 4), &truth, None);
}

#[test]
#[ignore = "real time: make shear"]
fn raid1_is_identified() {
    is_identified("raid1", ("raid1", 4), &Truth::Copies(4), None);
}

#[test]
#[ignore = "real time: make shear"]
fn raid10_is_identified() {
    is_identified(
        "raid10",
        ("raid10", 4),
        &Truth::classic("raid10:4c", "mirror"),
        None,
    );
}

#[test]
#[ignore = "real time: make shear"]
fn a_degraded_raid5_is_identified_and_the_missing_drive_named() {
    let truth = Truth::Classic {
        scheme: "raid5:4c",
        redundancy: "parity",
        missing: Some(2),
        aligned: true,
    };
    is_identified("degraded", ("raid5", 4), &truth, Some(2));
}

#[test]
#[ignore = "real time: make shear"]
fn a_declustered_layout_is_identified() {
    let truth = Truth::Declustered {
        drives: 7,
        data_width: 2,
    };
    is_identified("pddl", ("pddl1:2d:7c:1s", 7), &truth, None);
}
