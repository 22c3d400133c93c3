//! Layers that disagree: devices that begin between chunk borders, file systems whose stripe differs from that of the
//! array below them, claims and layers that a measurement contradicts.

use crate::belief::Belief;
use crate::claims::false_optimal;
use crate::report::Finding;
use crate::stack::{Device, Kind, Source, Stack, Striping};
use crate::superblock::FileSystem;

const SECTOR_BYTES: u64 = 512;
/// Where cryptsetup puts the payload of LUKS2 by default, in bytes.
const LUKS2_PAYLOAD_BYTES: u64 = 16 << 20;

/// Findings about the device at `index`.
pub(crate) fn findings(stack: &Stack, index: usize, beliefs: &[Belief]) -> Vec<Finding> {
    let device = &stack.devices[index];
    let mut findings = Vec::new();
    let striping = stack.striping(index, beliefs);
    if let Some(striping) = &striping {
        offset(stack, index, striping, beliefs, &mut findings);
    }
    if let Some(system) = device.file_system() {
        match &striping {
            Some(striping) => file_system(stack, device, system, striping, &mut findings),
            None => unstriped(stack, index, system, beliefs, &mut findings),
        }
    }
    for belief in beliefs.iter().filter(|belief| belief.is_of(device)) {
        measured(device, belief, &mut findings);
    }
    findings
}

/// `1 MiB`, `64 KiB`, or bytes where no unit divides.
pub(crate) fn size(bytes: u64) -> String {
    for (unit, name) in [
        (1 << 40, "TiB"),
        (1 << 30, "GiB"),
        (1 << 20, "MiB"),
        (1 << 10, "KiB"),
    ] {
        if bytes >= unit && bytes.is_multiple_of(unit) {
            return format!("{} {name}", bytes / unit);
        }
    }
    format!("{bytes} bytes")
}

/// A finding if the device begins between borders and the device below it does not: this layer causes the misalignment.
fn offset(
    stack: &Stack,
    index: usize,
    striping: &Striping,
    beliefs: &[Belief],
    findings: &mut Vec<Finding>,
) {
    let device = &stack.devices[index];
    let array = &stack.devices[striping.array];
    let lower = match &device.kind {
        Kind::Partition { .. } | Kind::Crypt { .. } => device.below.first().copied(),
        Kind::Logical(Some(volume)) => Some(volume.on),
        Kind::Drive | Kind::Md(_) | Kind::Logical(None) | Kind::Mapped => None,
    };
    let Some(lower) = lower.filter(|_| striping.array != index) else {
        return;
    };
    let below = stack
        .striping(lower, beliefs)
        .map_or(0, |below| below.offset_bytes);
    let crosses = |unit: u64, offset: u64| unit > 0 && !offset.is_multiple_of(unit);
    let (unit, what, cost) = if crosses(striping.chunk_bytes, striping.offset_bytes)
        && !crosses(striping.chunk_bytes, below)
    {
        (
            striping.chunk_bytes,
            "chunk",
            "requests of one chunk cost two drives",
        )
    } else if striping.parity
        && crosses(striping.stripe_bytes, striping.offset_bytes)
        && !crosses(striping.stripe_bytes, below)
    {
        (
            striping.stripe_bytes,
            "full stripe",
            "writes of one stripe change two, and read both",
        )
    } else {
        return;
    };
    let wanted = match striping.parity && striping.stripe_bytes > 0 {
        true => striping.stripe_bytes,
        false => striping.chunk_bytes,
    };
    let lower = &stack.devices[lower];
    let command = match &device.kind {
        Kind::Partition { .. } => {
            let start = (1_u64 << 20).next_multiple_of(wanted) / SECTOR_BYTES;
            format!(
                "move its data away, then: parted {} unit s mkpart data {start} 100%",
                lower.path
            )
        }
        Kind::Crypt { .. } => {
            let sectors = LUKS2_PAYLOAD_BYTES.next_multiple_of(wanted) / SECTOR_BYTES;
            format!(
                "move its data away, then: cryptsetup luksFormat --type luks2 --offset {sectors} {}",
                lower.path
            )
        }
        Kind::Logical(_) | Kind::Drive | Kind::Md(_) | Kind::Mapped => format!(
            "move its data away, then: pvcreate --dataalignment {wanted}b {}",
            lower.path
        ),
    };
    findings.push(Finding::new(
        device,
        if what == "chunk" {
            "off-chunk"
        } else {
            "off-stripe"
        },
        format!(
            "it begins {} past a {what} border of {} ({what} {}): {cost}",
            size(striping.offset_bytes % unit),
            array.path,
            size(unit)
        ),
        command,
    ));
}

/// Geometry in the terms of the file system's own tools.
fn geometry(system: &FileSystem) -> String {
    let blocks = |bytes: u64| bytes / system.block_bytes;
    match (system.kind, system.chunk_bytes, system.stripe_bytes) {
        (_, 0, 0) => "no stripe".to_owned(),
        ("ext4", chunk, stripe) => format!(
            "stride {} and stripe_width {} ({} and {})",
            blocks(chunk),
            blocks(stripe),
            size(chunk),
            size(stripe)
        ),
        (_, chunk, stripe) => format!("su {} and swidth {}", size(chunk), size(stripe)),
    }
}

fn file_system(
    stack: &Stack,
    device: &Device,
    system: &FileSystem,
    striping: &Striping,
    findings: &mut Vec<Finding>,
) {
    let (chunk, stripe) = (striping.chunk_bytes, striping.stripe_bytes);
    let knows = system.chunk_bytes > 0 || system.stripe_bytes > 0;
    let fits = system.chunk_bytes == chunk && (stripe == 0 || system.stripe_bytes == stripe);
    // Without parity, a file system without a stripe loses little.
    let matters = striping.parity || knows;
    if fits || !matters || !chunk.is_multiple_of(system.block_bytes) {
        return;
    }
    let array = &stack.devices[striping.array];
    let says = match striping.source {
        Source::Layer => "has",
        Source::Shear => "was measured to have",
        Source::Claim => "claims",
    };
    let width = match stripe {
        0 => String::new(),
        stripe => format!(" and a full stripe of {}", size(stripe)),
    };
    let command = match system.kind {
        "ext4" => {
            let stride = chunk / system.block_bytes;
            match stripe {
                0 => format!("tune2fs -E stride={stride} {}", device.path),
                _ => format!(
                    "tune2fs -E stride={stride},stripe_width={} {}",
                    stripe / system.block_bytes,
                    device.path
                ),
            }
        }
        _ => format!(
            "mount -o sunit={},swidth={} {} DIRECTORY",
            chunk / SECTOR_BYTES,
            stripe.max(chunk) / SECTOR_BYTES,
            device.path
        ),
    };
    findings.push(Finding::new(
        device,
        if knows {
            "file-system-disagrees"
        } else {
            "file-system-unaware"
        },
        format!(
            "{} is set to {}; {} {says} a chunk of {}{width}",
            system.kind,
            geometry(system),
            array.path,
            size(chunk),
        ),
        command,
    ));
}

/// A finding if a file system has a stripe and no device below it has one.
fn unstriped(
    stack: &Stack,
    index: usize,
    system: &FileSystem,
    beliefs: &[Belief],
    findings: &mut Vec<Finding>,
) {
    let device = &stack.devices[index];
    if system.chunk_bytes == 0 && system.stripe_bytes == 0 {
        return;
    }
    let mut base = index;
    let mut because = None;
    // Go down through layers that are on one device each, to the drive that made the claim.
    for _ in 0..stack.devices.len() {
        let lower = &stack.devices[base];
        if beliefs
            .iter()
            .any(|belief| belief.is_of(lower) && belief.family == "none")
        {
            because = Some(format!("{} was measured to be one drive", lower.path));
            break;
        }
        if matches!(lower.kind, Kind::Drive) && false_optimal(&lower.claims).is_some() {
            because = Some(format!(
                "{} claims an optimal I/O size of {} bytes that cannot be true",
                lower.path, lower.claims.optimal
            ));
            break;
        }
        let &[next] = lower.below.as_slice() else {
            break;
        };
        base = next;
    }
    let Some(because) = because else { return };
    let command = match system.kind {
        "ext4" => format!("tune2fs -E stride=0,stripe_width=0 {}", device.path),
        _ => format!("mount -o noalign {} DIRECTORY", device.path),
    };
    findings.push(Finding::new(
        device,
        "file-system-disagrees",
        format!("{} is set to {}; {because}", system.kind, geometry(system)),
        command,
    ));
}

/// Compares a measurement with the device's own claims.
fn measured(device: &Device, belief: &Belief, findings: &mut Vec<Finding>) {
    if !belief.degraded.is_empty() {
        let positions: Vec<String> = belief.degraded.iter().map(u64::to_string).collect();
        findings.push(Finding::new(
            device,
            "degraded",
            format!(
                "`shear` measured that the array runs without the drive at position {}",
                positions.join(", ")
            ),
            "ask the array's own tool for its state, and replace the drive",
        ));
    }
    let (Some(chunk), Some(stripe)) = (belief.chunk_bytes, belief.stripe_bytes) else {
        return;
    };
    let disagrees = |chunk_said: u64, stripe_said: u64| {
        chunk_said != chunk || (belief.parity && stripe_said != stripe)
    };
    let said = match &device.kind {
        Kind::Md(md) if md.chunk_bytes > 0 => {
            Some(("md says", md.chunk_bytes, device.claims.optimal))
        }
        Kind::Drive
            if device.claims.optimal > device.claims.minimum
                && device.claims.minimum > device.claims.physical
                && false_optimal(&device.claims).is_none() =>
        {
            Some((
                "the device claims",
                device.claims.minimum,
                device.claims.optimal,
            ))
        }
        _ => None,
    };
    if let Some((who, chunk_said, stripe_said)) = said
        && disagrees(chunk_said, stripe_said)
    {
        findings.push(Finding::new(
            device,
            "measurement-disagrees",
            format!(
                "{who} chunks of {} and stripes of {}; `shear` measured {} and {}",
                size(chunk_said),
                size(stripe_said),
                size(chunk),
                size(stripe)
            ),
            format!("ravelin shear {} --writes", device.path),
        ));
    }
}
