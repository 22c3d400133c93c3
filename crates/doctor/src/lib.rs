//! Checks whether the layers of this machine's storage fit each other, and whether their claims are true.
//!
//! Alignment goes wrong silently: a bridge reports its longest transfer as the optimal I/O size, a partition tool
//! aligns to it, `mkfs` takes it for a stripe, dm-crypt adds its header, LVM its metadata, and every write then costs
//! two drives. Each layer has only its own part of the picture; `doctor` reads all of them, from `/sys` and the first
//! bytes of each device, compares them, and prints the commands to type.
//!
//! ```text
//!   tree        files below a root: the machine, or a copy of one
//!   superblock  ext4, xfs, LUKS, LVM, parsed from bytes (any bytes: parsers do not panic)
//!   stack       devices, which device is on which, and the array that stripes each
//!   claims      drives' claims that cannot be true, and partitions aligned to them
//!   layers      offsets, file systems, measurements that disagree
//!   arrays      md without drives, md without a monitor
//! ```
//!
//! Nothing is written, and nothing but files below the root is read.

mod arrays;
mod belief;
mod claims;
mod layers;
mod report;
mod stack;
mod superblock;
mod tree;

pub use belief::{Belief, BeliefError};
pub use report::{Finding, Layer, Ours, Report};
pub use tree::Tree;

use std::collections::BTreeMap;

use arrays::Watch;
use layers::size;
use stack::{Device, Kind, Stack};
use superblock::Content;

/// The directory of saved `ravelin shear` results, below the root.
pub const BELIEFS_DIRECTORY: &str = "var/lib/ravelin/shear";

/// The devices to examine, and measurements.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Only these devices with all devices below and above them; all devices if empty.
    pub devices: Vec<String>,
    /// Saved results of `ravelin shear`, besides those in [`BELIEFS_DIRECTORY`].
    pub beliefs: Vec<Belief>,
    /// Devices of Ravelin, by the kernel's names such as `loop0`.
    pub ours: BTreeMap<String, Ours>,
}

/// A requested device is not in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoSuchDevice {
    /// Its name as given.
    pub device: String,
}

impl std::fmt::Display for NoSuchDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` is no block device here", self.device)
    }
}

impl std::error::Error for NoSuchDevice {}

impl NoSuchDevice {
    /// One thing to try, in small letters and without a full stop.
    #[must_use]
    pub const fn hint(&self) -> &'static str {
        "`ravelin doctor` without a device lists all"
    }
}

/// Examines the devices in `tree`.
///
/// # Errors
/// [`NoSuchDevice`].
pub fn examine(tree: &Tree, options: &Options) -> Result<Report, NoSuchDevice> {
    let stack = Stack::read(tree);
    let chosen = chosen(&stack, options)?;
    let mut beliefs = options.beliefs.clone();
    let mut notes = Vec::new();
    saved_beliefs(tree, &mut beliefs, &mut notes);
    let watch = arrays::watch(tree);
    let mut report = Report {
        layers: Vec::new(),
        findings: Vec::new(),
        notes: Vec::new(),
        well: false,
    };
    for index in chosen {
        let device = &stack.devices[index];
        let ours = options.ours.get(&device.name);
        report.layers.push(layer(&stack, device, ours));
        if let Some(why) = &device.unreadable {
            notes.push(format!(
                "the first bytes of {} cannot be read: {why}",
                device.path
            ));
        }
        report.findings.extend(claims::findings(&stack, index));
        report
            .findings
            .extend(arrays::findings(&stack, index, watch));
        report
            .findings
            .extend(layers::findings(&stack, index, &beliefs));
        if watch == Watch::Unknown && matches!(&device.kind, Kind::Md(md) if md.is_redundant()) {
            notes.push(format!(
                "whether {} is watched is not known: there is no proc",
                device.path
            ));
        }
    }
    report.notes = notes;
    report.well = report.findings.is_empty();
    Ok(report)
}

/// Indices of the requested devices, with all devices below and above them.
fn chosen(stack: &Stack, options: &Options) -> Result<Vec<usize>, NoSuchDevice> {
    let names = &options.devices;
    let is_ours = |index: usize| options.ours.contains_key(&stack.devices[index].name);
    let all = 0..stack.devices.len();
    if names.is_empty() {
        return Ok(all
            .filter(|&index| is_ours(index) || !is_idle(stack, index))
            .collect());
    }
    let mut wanted = vec![false; stack.devices.len()];
    let mut above = wanted.clone();
    for name in names {
        let index = stack.find(name).ok_or_else(|| NoSuchDevice {
            device: name.clone(),
        })?;
        (wanted[index], above[index]) = (true, true);
    }
    // Lower devices come first, so one pass up and one pass down are enough.
    for index in all.clone() {
        above[index] |= stack.devices[index].below.iter().any(|&lower| above[lower]);
    }
    for index in all.clone().rev() {
        wanted[index] |= above[index];
        if wanted[index] {
            for &lower in &stack.devices[index].below {
                wanted[lower] = true;
            }
        }
    }
    Ok(all.filter(|&index| wanted[index]).collect())
}

/// RAM disks and loop devices are numerous; those without content are not listed.
fn is_idle(stack: &Stack, index: usize) -> bool {
    let device = &stack.devices[index];
    let dozen = ["ram", "loop", "zram", "nbd"];
    let used = stack
        .devices
        .iter()
        .any(|other| other.below.contains(&index));
    dozen.iter().any(|name| device.name.starts_with(name)) && device.content.is_none() && !used
}

fn saved_beliefs(tree: &Tree, beliefs: &mut Vec<Belief>, notes: &mut Vec<String>) {
    for name in tree.names(BELIEFS_DIRECTORY) {
        let path = format!("{BELIEFS_DIRECTORY}/{name}");
        match tree.text(&path).map(|text| Belief::parse(&text, None)) {
            Some(Ok(belief)) => {
                // Results that the user gives take precedence over saved ones.
                if beliefs.iter().all(|known| known.target != belief.target) {
                    beliefs.push(belief);
                }
            }
            Some(Err(error)) => notes.push(format!("/{path}: {error}; {}", error.hint())),
            None => notes.push(format!("/{path} cannot be read")),
        }
    }
}

/// A drive's size as its maker prints it, to three digits.
fn sold_size(bytes: u64) -> String {
    let (unit, name) = match bytes {
        0..1_000_000_000 => (1_000_000, "MB"),
        1_000_000_000..1_000_000_000_000 => (1_000_000_000, "GB"),
        _ => (1_000_000_000_000, "TB"),
    };
    let hundredths = bytes / (unit / 100);
    format!("{}.{:02} {name}", hundredths / 100, hundredths % 100)
}

fn layer(stack: &Stack, device: &Device, ours: Option<&Ours>) -> Layer {
    let on: Vec<String> = device
        .below
        .iter()
        .map(|&index| stack.devices[index].path.clone())
        .collect();
    let claims = &device.claims;
    let (kind, mut line) = match &device.kind {
        Kind::Drive => {
            let optimal = match claims.optimal {
                0 => "none".to_owned(),
                optimal => optimal.to_string(),
            };
            (
                "drive",
                format!(
                    "drive of {}: physical block {}, minimum I/O {}, optimal {optimal}",
                    sold_size(device.size_bytes),
                    claims.physical,
                    claims.minimum,
                ),
            )
        }
        Kind::Partition { start_bytes } => (
            "partition",
            format!("partition of {} from {}", on.join(" "), size(*start_bytes)),
        ),
        Kind::Md(md) => {
            let chunk = match md.chunk_bytes {
                0 => String::new(),
                chunk => format!(", chunk {}", size(chunk)),
            };
            let level = match md.level.as_str() {
                "" => "md array",
                level => level,
            };
            let line = format!(
                "{level} of {} drives{chunk}, on {}",
                md.drives,
                on.join(" ")
            );
            ("md", line)
        }
        Kind::Crypt { payload_bytes } => {
            let payload = match payload_bytes {
                Some(bytes) => format!("payload from {}", size(*bytes)),
                None => "payload's begin not known".to_owned(),
            };
            ("crypt", format!("dm-crypt on {}, {payload}", on.join(" ")))
        }
        Kind::Logical(volume) => {
            let from = match volume {
                Some(volume) => format!(
                    " from {} (extents begin at {})",
                    size(volume.offset_bytes),
                    size(volume.data_bytes)
                ),
                None => String::new(),
            };
            ("lvm", format!("logical volume on {}{from}", on.join(" ")))
        }
        Kind::Mapped => (
            "mapped",
            format!("device-mapper target on {}", on.join(" ")),
        ),
    };
    let what = match &device.content {
        Some(Content::FileSystem(system)) => match (system.chunk_bytes, system.stripe_bytes) {
            (0, 0) => format!("; {}", system.kind),
            (chunk, stripe) => format!(
                "; {}, chunk {}, stripe {}",
                system.kind,
                size(chunk),
                size(stripe)
            ),
        },
        Some(Content::Luks { .. }) => "; LUKS".to_owned(),
        Some(Content::Lvm(_)) => "; LVM physical volume".to_owned(),
        None => String::new(),
    };
    line.push_str(&what);
    match ours {
        Some(Ours::Volume { volume }) => line = format!("Ravelin's volume `{volume}`: {line}"),
        Some(Ours::Member { pool, seat }) => {
            line.push_str(&format!(
                "; the drive of seat {seat} of Ravelin's pool `{pool}`"
            ));
        }
        None => {}
    }
    Layer {
        device: device.path.clone(),
        layer: kind,
        on,
        size_bytes: device.size_bytes,
        minimum_io_bytes: claims.minimum,
        optimal_io_bytes: claims.optimal,
        file_system: device.file_system().map(|system| system.kind),
        ravelin: ours.cloned(),
        line,
    }
}
