//! The kernel's claims about a drive's I/O, and when they cannot be true.
//!
//! `optimal_io_size` is what the drive, its controller or its USB bridge reports: in SCSI the "optimal transfer length"
//! of the block limits page. Bridges and controllers report their longest transfer there, a field of all ones:
//! 65,535 × 512 = 33,553,920 and 4,095 × 4,096 = 16,773,120 bytes. Partition tools then align to this value (a start
//! that no page divides), and `mkfs.xfs` takes it for a stripe: it fails or, worse, succeeds.

use crate::report::Finding;
use crate::stack::{Device, Kind, Stack};

/// A number of blocks of at least this many ones is the limit of a transfer and not a stripe.
const ALL_ONES_BITS_MIN: u32 = 8;

/// Why the optimal I/O size cannot be an array's stripe; `None` if it may be one.
pub(crate) fn false_optimal(claims: &crate::stack::Claims) -> Option<String> {
    let optimal = claims.optimal;
    if optimal == 0 {
        return None;
    }
    for block in [claims.logical, claims.physical, 4096] {
        let blocks = optimal / block.max(1);
        if optimal.is_multiple_of(block.max(1))
            && (blocks + 1).is_power_of_two()
            && blocks.count_ones() >= ALL_ONES_BITS_MIN
        {
            return Some(format!(
                "it is {blocks} blocks of {block} bytes, a counter of {} ones: the longest transfer, not a stripe",
                blocks.count_ones()
            ));
        }
    }
    for (block, what) in [
        (claims.physical, "physical block"),
        (claims.minimum, "minimum I/O"),
    ] {
        if block > 1 && !optimal.is_multiple_of(block) {
            return Some(format!("it is no multiple of the {what} of {block} bytes"));
        }
    }
    None
}

/// Findings about claims of drives and the partitions that were aligned to them.
pub(crate) fn findings(stack: &Stack, index: usize) -> Vec<Finding> {
    let device = &stack.devices[index];
    let mut findings = Vec::new();
    match &device.kind {
        Kind::Drive => drive(device, &mut findings),
        Kind::Partition { start_bytes } => {
            partition(
                &stack.devices[device.below[0]],
                device,
                *start_bytes,
                &mut findings,
            );
        }
        Kind::Md(_) | Kind::Crypt { .. } | Kind::Logical(_) | Kind::Mapped => {}
    }
    findings
}

fn drive(device: &Device, findings: &mut Vec<Finding>) {
    let claims = &device.claims;
    if let Some(why) = false_optimal(claims) {
        findings.push(Finding::new(
            device,
            "false-optimal-size",
            format!("the optimal I/O size of {} bytes cannot be true: {why}", claims.optimal),
            format!(
                "parted -a minimal {0} mkpart data 1MiB 100%; mkfs.xfs -d noalign; to learn the real stripe: ravelin shear {0}",
                device.path
            ),
        ));
    }
    if claims.physical > 1 && claims.minimum > 0 && !claims.minimum.is_multiple_of(claims.physical)
    {
        findings.push(Finding::new(
            device,
            "false-minimum-size",
            format!(
                "the minimum I/O size of {} bytes cannot be true: it is no multiple of the physical block of {} bytes",
                claims.minimum, claims.physical
            ),
            format!("ravelin shear {}", device.path),
        ));
    }
    if claims.alignment < 0 {
        findings.push(Finding::new(
            device,
            "misaligned",
            "the kernel says that the device is misaligned with what is below it",
            format!("lsblk -t {}", device.path),
        ));
    }
}

fn partition(disk: &Device, device: &Device, start_bytes: u64, findings: &mut Vec<Finding>) {
    let physical = disk.claims.physical;
    if physical <= 1 || start_bytes.is_multiple_of(physical) {
        return;
    }
    let optimal = disk.claims.optimal;
    let because = if optimal > 0 && start_bytes.is_multiple_of(optimal) {
        format!("; it was aligned to the optimal I/O size of {optimal} bytes")
    } else {
        String::new()
    };
    findings.push(Finding::new(
        device,
        "crooked-partition",
        format!(
            "the partition starts at byte {start_bytes}, {} bytes into a physical block of {physical}: every aligned write costs a read{because}",
            start_bytes % physical
        ),
        format!(
            "move its data away, then: parted -a minimal {} mkpart data 1MiB 100%",
            disk.path
        ),
    ));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stack::Claims;

    fn claims(optimal: u64, minimum: u64, physical: u64) -> Claims {
        Claims {
            logical: 512,
            physical,
            minimum,
            optimal,
            alignment: 0,
        }
    }

    #[test]
    fn longest_transfers_are_no_stripes_and_stripes_are() {
        for optimal in [33_553_920, 16_773_120, 0xff_ffff * 512, 65_535 * 4096] {
            assert!(
                false_optimal(&claims(optimal, 512, 512)).is_some(),
                "{optimal}"
            );
            assert!(
                false_optimal(&claims(optimal, 4096, 4096)).is_some(),
                "{optimal}"
            );
        }
        // Three data chunks of 64 KiB, seven of 4 KiB, a 1 MiB default, fifteen of 64 KiB, none.
        for optimal in [3 << 16, 7 << 12, 1 << 20, 15 << 16, 0] {
            assert_eq!(
                false_optimal(&claims(optimal, 4096, 4096)),
                None,
                "{optimal}"
            );
        }
        assert!(false_optimal(&claims(10_000, 4096, 4096)).is_some());
    }
}
