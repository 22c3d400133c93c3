//! The machine's block devices, which device is on which, and how each is striped.
//!
//! ```text
//!   sda ── sda1 ─┐                     Stack::devices, lower ones first
//!   sdb ── sdb1 ─┼─ md0 ── dm-0 ext4   Device::below: indices of what it stands on
//!   sdc ── sdc1 ─┘
//! ```
//!
//! A *striping* is the array that determines where the chunks of a device lie, and the distance from that array's begin
//! to the device's begin. It is passed up through partitions, dm-crypt and linear logical volumes, each of which adds
//! its offset, and ends at the next array.

use crate::belief::Belief;
use crate::superblock::{self, Content, FileSystem};
use crate::tree::{Tree, sort_key};

const SECTOR_BYTES: u64 = 512;

/// The kernel's claims about a device's I/O, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claims {
    pub(crate) logical: u64,
    pub(crate) physical: u64,
    pub(crate) minimum: u64,
    pub(crate) optimal: u64,
    /// Negative: the kernel reports that the device is misaligned by an unknown number of bytes.
    pub(crate) alignment: i64,
}

/// An md array as `/sys/block/mdX/md` shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Md {
    pub(crate) level: String,
    pub(crate) drives: u64,
    pub(crate) layout: u64,
    pub(crate) chunk_bytes: u64,
    /// Drives that are missing.
    pub(crate) degraded: u64,
    /// `clean`, `active`, `inactive`, …
    pub(crate) state: String,
    /// `idle`, `recover`, `resync`, …
    pub(crate) action: String,
    /// Slots that no drive fills.
    pub(crate) empty_slots: Vec<u64>,
    /// Members that md has marked faulty.
    pub(crate) faulty: Vec<String>,
}

impl Md {
    pub(crate) fn is_redundant(&self) -> bool {
        matches!(
            self.level.as_str(),
            "raid1" | "raid4" | "raid5" | "raid6" | "raid10"
        )
    }

    fn has_parity(&self) -> bool {
        matches!(self.level.as_str(), "raid4" | "raid5" | "raid6")
    }

    /// Chunks of data in a stripe, as the kernel computes its optimal I/O size.
    fn data_chunks(&self) -> u64 {
        match self.level.as_str() {
            "raid4" | "raid5" => self.drives.saturating_sub(1),
            "raid6" => self.drives.saturating_sub(2),
            "raid10" => {
                let near = (self.layout & 0xff).max(1);
                if self.drives.is_multiple_of(near) {
                    self.drives / near
                } else {
                    self.drives
                }
            }
            _ => self.drives,
        }
    }
}

/// The kind of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A drive, or a device that presents itself as a drive.
    Drive,
    /// A partition that begins at this byte of its drive.
    Partition { start_bytes: u64 },
    /// An md array.
    Md(Md),
    /// dm-crypt, whose payload begins at this byte of what is below.
    Crypt { payload_bytes: Option<u64> },
    /// A logical volume.
    Logical(Option<Logical>),
    /// Another device-mapper target.
    Mapped,
}

/// A logical volume's first segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Logical {
    /// Index of the device that its first extent lies on.
    pub(crate) on: usize,
    /// The first byte there.
    pub(crate) offset_bytes: u64,
    /// Where the physical volume's extents begin, in bytes.
    pub(crate) data_bytes: u64,
    /// Stripes over physical volumes; 1: linear.
    pub(crate) stripes: u64,
    /// Bytes of a chunk of those stripes.
    pub(crate) stripe_bytes: u64,
}

/// One block device.
#[derive(Clone, Debug)]
pub(crate) struct Device {
    /// The kernel's name, such as `dm-0`.
    pub(crate) name: String,
    /// The usual name, such as `/dev/mapper/tank-data`.
    pub(crate) path: String,
    pub(crate) size_bytes: u64,
    pub(crate) claims: Claims,
    pub(crate) kind: Kind,
    /// Indices of the devices that it is on.
    pub(crate) below: Vec<usize>,
    pub(crate) content: Option<Content>,
    /// Why its first bytes could not be read.
    pub(crate) unreadable: Option<String>,
}

impl Device {
    pub(crate) fn file_system(&self) -> Option<&FileSystem> {
        match &self.content {
            Some(Content::FileSystem(system)) => Some(system),
            Some(Content::Luks { .. } | Content::Lvm(_)) | None => None,
        }
    }
}

/// The source of a striping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The layer's own metadata.
    Layer,
    /// A saved result of `ravelin shear`.
    Shear,
    /// The kernel's minimum and optimal I/O size.
    Claim,
}

/// The array that decides where a device's chunks lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Striping {
    /// Index of that array.
    pub(crate) array: usize,
    pub(crate) source: Source,
    pub(crate) chunk_bytes: u64,
    /// A full stripe's data in bytes; 0 if it is not known.
    pub(crate) stripe_bytes: u64,
    /// Whether a write that does not fill a stripe costs reads.
    pub(crate) parity: bool,
    /// The device's first byte, from the begin of the array.
    pub(crate) offset_bytes: u64,
}

/// All block devices, lower ones first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stack {
    pub(crate) devices: Vec<Device>,
}

impl Stack {
    pub(crate) fn read(tree: &Tree) -> Self {
        let mut stack = Self::default();
        for name in tree.names("sys/block") {
            stack.add(tree, &name, 0);
        }
        stack
    }

    pub(crate) fn find(&self, name: &str) -> Option<usize> {
        self.devices.iter().position(|device| {
            device.name == name
                || device.path == name
                || Some(device.name.as_str()) == name.strip_prefix("/dev/")
        })
    }

    /// Adds a whole device: first the devices that it is on, then the device, then its partitions.
    fn add(&mut self, tree: &Tree, name: &str, depth: usize) {
        let sys = format!("sys/block/{name}");
        let known = self.devices.iter().any(|device| device.name == name);
        // Real devices form no loops. In a copied tree that was manipulated, a loop ends here.
        if known
            || depth > 32
            || tree
                .number(&format!("{sys}/size"))
                .is_none_or(|size| size == 0)
        {
            return;
        }
        let slaves = tree.names(&format!("{sys}/slaves"));
        for slave in &slaves {
            self.add(tree, &whole(tree, slave), depth + 1);
        }
        if self.devices.iter().any(|device| device.name == name) {
            return;
        }
        let below: Vec<usize> = slaves.iter().filter_map(|slave| self.find(slave)).collect();
        let mut device = self.device(tree, name, &sys, &sys, below);
        device.kind = self.kind(tree, &sys, &device);
        let index = self.devices.len();
        self.devices.push(device);
        let mut partitions = tree.names(&sys);
        partitions.retain(|part| tree.exists(&format!("{sys}/{part}/partition")));
        partitions.sort_by_cached_key(|part| sort_key(part));
        for part in partitions {
            let own = format!("{sys}/{part}");
            let mut device = self.device(tree, &part, &own, &sys, vec![index]);
            let start = tree.number(&format!("{own}/start")).unwrap_or(0);
            device.kind = Kind::Partition {
                start_bytes: start.saturating_mul(SECTOR_BYTES),
            };
            self.devices.push(device);
        }
    }

    fn device(&self, tree: &Tree, name: &str, own: &str, queue: &str, below: Vec<usize>) -> Device {
        let number = |file: &str| tree.number(&format!("{queue}/queue/{file}")).unwrap_or(0);
        let mapped = tree.text(&format!("{own}/dm/name"));
        let node = name.replace('!', "/");
        let mut device = Device {
            path: mapped.map_or(format!("/dev/{node}"), |name| format!("/dev/mapper/{name}")),
            name: name.to_owned(),
            size_bytes: tree
                .number(&format!("{own}/size"))
                .unwrap_or(0)
                .saturating_mul(SECTOR_BYTES),
            claims: Claims {
                logical: number("logical_block_size").max(1),
                physical: number("physical_block_size").max(1),
                minimum: number("minimum_io_size"),
                optimal: number("optimal_io_size"),
                alignment: tree
                    .text(&format!("{own}/alignment_offset"))
                    .and_then(|text| text.parse().ok())
                    .unwrap_or(0),
            },
            kind: Kind::Drive,
            below,
            content: None,
            unreadable: None,
        };
        match tree.bytes(&node, 0, superblock::HEAD_BYTES) {
            Ok(head) => {
                let more = |offset, length| tree.bytes(&node, offset, length).ok();
                device.content = superblock::parse(&head, &more);
            }
            Err(error) => device.unreadable = Some(error.to_string()),
        }
        device
    }

    fn kind(&self, tree: &Tree, sys: &str, device: &Device) -> Kind {
        if tree.exists(&format!("{sys}/md")) {
            return Kind::Md(md(tree, sys));
        }
        let Some(uuid) = tree.text(&format!("{sys}/dm/uuid")) else {
            return match tree.exists(&format!("{sys}/dm")) {
                true => Kind::Mapped,
                false => Kind::Drive,
            };
        };
        let below = || {
            device
                .below
                .iter()
                .map(|&index| (index, &self.devices[index]))
        };
        if uuid.starts_with("CRYPT-LUKS") {
            let payload_bytes = below().find_map(|(_, lower)| match lower.content {
                Some(Content::Luks { payload_bytes }) => payload_bytes,
                Some(Content::FileSystem(_) | Content::Lvm(_)) | None => None,
            });
            return Kind::Crypt { payload_bytes };
        }
        if !uuid.starts_with("LVM-") {
            return Kind::Mapped;
        }
        let volumes = || {
            below().filter_map(|(index, lower)| match &lower.content {
                Some(Content::Lvm(volume)) => Some((index, volume)),
                Some(Content::FileSystem(_) | Content::Luks { .. }) | None => None,
            })
        };
        let first = volumes()
            .filter_map(|(_, volume)| volume.group.as_ref())
            .find_map(|group| group.first_segment(&uuid));
        Kind::Logical(first.and_then(|first| {
            let (on, volume) = volumes().find(|(_, volume)| volume.id == first.physical)?;
            Some(Logical {
                on,
                offset_bytes: first.offset_bytes,
                data_bytes: volume.data_bytes,
                stripes: first.stripes,
                stripe_bytes: first.stripe_bytes,
            })
        }))
    }

    /// How the device at `index` is striped, as far as this is known.
    pub(crate) fn striping(&self, index: usize, beliefs: &[Belief]) -> Option<Striping> {
        let device = &self.devices[index];
        if let Some(belief) = beliefs.iter().find(|belief| belief.is_of(device)) {
            // A measurement overrides claims, and the arrays below the device, which the measurement saw through.
            if let Some(chunk_bytes) = belief.chunk_bytes {
                return Some(Striping {
                    array: index,
                    source: Source::Shear,
                    chunk_bytes,
                    stripe_bytes: belief.stripe_bytes.unwrap_or(0),
                    parity: belief.parity,
                    offset_bytes: 0,
                });
            }
        }
        let through = |lower: usize, offset: u64| {
            let striping = self.striping(lower, beliefs)?;
            Some(Striping {
                offset_bytes: striping.offset_bytes.checked_add(offset)?,
                ..striping
            })
        };
        let first = device.below.first().copied();
        match &device.kind {
            Kind::Md(md) if md.chunk_bytes > 0 => Some(Striping {
                array: index,
                source: Source::Layer,
                chunk_bytes: md.chunk_bytes,
                stripe_bytes: md.chunk_bytes * md.data_chunks(),
                parity: md.has_parity(),
                offset_bytes: 0,
            }),
            Kind::Drive => claimed(index, &device.claims),
            Kind::Partition { start_bytes } => through(first?, *start_bytes),
            Kind::Crypt { payload_bytes } => through(first?, (*payload_bytes)?),
            Kind::Logical(Some(volume)) if volume.stripes > 1 => Some(Striping {
                array: index,
                source: Source::Layer,
                chunk_bytes: volume.stripe_bytes,
                stripe_bytes: volume.stripe_bytes.checked_mul(volume.stripes)?,
                parity: false,
                offset_bytes: 0,
            }),
            Kind::Logical(Some(volume)) => through(volume.on, volume.offset_bytes),
            Kind::Md(_) | Kind::Logical(None) | Kind::Mapped => None,
        }
    }
}

/// The whole device that a partition is part of; a whole device's own name.
fn whole(tree: &Tree, name: &str) -> String {
    if tree.exists(&format!("sys/block/{name}")) {
        return name.to_owned();
    }
    let parent = tree
        .names("sys/block")
        .into_iter()
        .find(|parent| tree.exists(&format!("sys/block/{parent}/{name}")));
    parent.unwrap_or_else(|| name.to_owned())
}

/// A drive that claims a stripe of whole chunks counts as an array.
fn claimed(array: usize, claims: &Claims) -> Option<Striping> {
    let Claims {
        minimum, optimal, ..
    } = *claims;
    let plausible = minimum > claims.physical
        && optimal > minimum
        && optimal.is_multiple_of(minimum)
        && crate::claims::false_optimal(claims).is_none();
    plausible.then_some(Striping {
        array,
        source: Source::Claim,
        chunk_bytes: minimum,
        stripe_bytes: optimal,
        parity: false,
        offset_bytes: 0,
    })
}

fn md(tree: &Tree, sys: &str) -> Md {
    let text = |file: &str| tree.text(&format!("{sys}/md/{file}")).unwrap_or_default();
    // During a reshape, files contain "new (old)": the first number is the new one.
    let number = |file: &str| {
        let text = text(file);
        let digits = text.split_whitespace().next().unwrap_or("");
        digits.parse().unwrap_or(0)
    };
    let drives: u64 = number("raid_disks");
    let members: Vec<String> = tree
        .names(&format!("{sys}/md"))
        .into_iter()
        .filter(|name| name.starts_with("dev-"))
        .collect();
    let state = |member: &str| text(&format!("{member}/state"));
    let filled: Vec<u64> = members
        .iter()
        .filter(|member| state(member).split(',').any(|word| word == "in_sync"))
        .filter_map(|member| text(&format!("{member}/slot")).parse().ok())
        .collect();
    Md {
        level: text("level"),
        drives,
        layout: number("layout"),
        chunk_bytes: number("chunk_size"),
        degraded: number("degraded"),
        state: text("array_state"),
        action: text("sync_action"),
        empty_slots: (0..drives.min(4096))
            .filter(|slot| !filled.contains(slot))
            .collect(),
        faulty: members
            .iter()
            .filter(|member| state(member).split(',').any(|word| word == "faulty"))
            .map(|member| member["dev-".len()..].to_owned())
            .collect(),
    }
}
