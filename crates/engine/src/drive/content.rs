//! Whether a drive holds anything at all, known or not.
//!
//! Marks of known formats first ([`super::signature`], and the system's own `wipefs` where it is there, which knows
//! more of them). A drive without a mark may still hold data: a database, a virtual machine's disk, a member of a
//! system that keeps its marks elsewhere. So every block of the first and last 16 MiB is looked at, and 256 blocks
//! between; one that is not zero is data of no known kind.
//!
//! A drive that was given up by `drive wipe`, `drive remove` or `pool destroy` has old data behind its first MiB. Its
//! first page says that this data does not count; any other use of the drive overwrites that page.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use block::{BlockDevice, Fault};
use rustix::fs::{Mode, OFlags, SeekFrom};
use rustix::io::Errno;

use super::signature::{END_BYTES, probe};
use super::{Drive, Identity, identity, sync};

/// Both ends of a drive are looked at so far.
const EDGE_BYTES: u64 = 16 << 20;
/// Between the ends so many blocks are looked at.
const SAMPLES: u64 = 256;
/// Bytes of a block.
const BLOCK: u64 = 4096;
/// Bytes that are read at a time.
const PIECE_BYTES: u64 = 1 << 20;
/// How far from the start marks lie: VMFS has one behind the second MiB.
const HEAD_BYTES: u64 = (2 << 20) + BLOCK;

/// The beginning of the first page of a drive that was given up.
pub(crate) const GIVEN_UP: &[u8] =
    b"RAVELIN: this drive was given up, and what is left on it does not count\n";

/// What a drive without a Ravelin label holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A known format, with its article.
    Marked(String),
    /// Something else: a byte near this one is not zero.
    Unmarked {
        /// Bytes from the start.
        offset: u64,
    },
    /// Zeros, as far as was looked, or data that was given up.
    Empty,
}

/// Looks at the whole drive, by samples.
///
/// # Errors
/// When it cannot be read.
pub fn content(drive: &Drive) -> Result<Content, Fault> {
    let path = drive.uri.spec.path();
    let sparse = path
        .zip(drive.identity)
        .and_then(|(path, own)| open_as(path, own));
    if sparse.as_ref().is_some_and(is_one_hole) {
        return Ok(Content::Empty);
    }
    let device = &*drive.device;
    let size_bytes = device.limits().size_bytes;
    let head = read(device, 0, HEAD_BYTES.min(size_bytes))?;
    let tail_at = size_bytes.saturating_sub(END_BYTES) / BLOCK * BLOCK;
    let tail = read(device, tail_at, size_bytes - tail_at)?;
    if let Some(mark) = probe(&head, &tail, size_bytes).first() {
        return Ok(Content::Marked(mark.to_string()));
    }
    if let Some(mark) = path
        .zip(drive.identity)
        .and_then(|(path, own)| wipefs(path, own))
    {
        return Ok(Content::Marked(mark));
    }
    if head.starts_with(GIVEN_UP) {
        return Ok(Content::Empty);
    }
    let unmarked = not_zero(device, size_bytes)?;
    Ok(unmarked.map_or(Content::Empty, |offset| Content::Unmarked { offset }))
}

/// Marks a drive whose content is given up. Its first MiB is zeros by now.
///
/// # Errors
/// When it cannot be written.
pub fn give_up(device: &dyn BlockDevice) -> Result<(), Fault> {
    let mut page = vec![0; usize::try_from(BLOCK).unwrap_or(usize::MAX)];
    page[..GIVEN_UP.len()].copy_from_slice(GIVEN_UP);
    sync::write(device, 0, &page)?;
    sync::flush(device)
}

/// The first place that is looked at and is not zero.
fn not_zero(device: &dyn BlockDevice, size_bytes: u64) -> Result<Option<u64>, Fault> {
    let end = size_bytes / BLOCK * BLOCK;
    let front = EDGE_BYTES.min(end);
    let back = end.saturating_sub(EDGE_BYTES).max(front);
    let between = (back - front) / BLOCK;
    let pieces = |range: std::ops::Range<u64>| {
        let step = usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX);
        let until = range.end;
        range
            .step_by(step)
            .map(move |at| (at, PIECE_BYTES.min(until - at)))
    };
    let samples = SAMPLES.min(between);
    // One in each of as many equal parts, each time a little further within its part.
    let sample = |index: u64| {
        let part = between / samples;
        let block = index * part + index * 7 % part.max(1);
        (front + block * BLOCK, BLOCK)
    };
    let middle = (0..samples).map(sample);
    for (at, length) in pieces(0..front).chain(pieces(back..end)).chain(middle) {
        let bytes = read(device, at, length)?;
        if let Some(index) = bytes.iter().position(|&byte| byte != 0) {
            return Ok(Some(at + index as u64));
        }
    }
    Ok(None)
}

fn read(device: &dyn BlockDevice, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
    match usize::try_from(length) {
        Ok(0) => Ok(Vec::new()),
        Ok(length) => sync::read(device, offset, length),
        Err(_) => Err(Fault::Invalid),
    }
}

/// Opens the file or device again, to ask about it; `None` if the path leads elsewhere by now.
fn open_as(path: &Path, own: Identity) -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let file = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    (identity(path) == Some(own)).then_some(file)
}

/// Whether a file has no data anywhere.
fn is_one_hole(file: &OwnedFd) -> bool {
    matches!(rustix::fs::seek(file, SeekFrom::Data(0)), Err(Errno::NXIO))
}

/// What `wipefs` of util-linux finds, without changing anything. It knows more formats than we do, and keeps up.
fn wipefs(path: &Path, own: Identity) -> Option<String> {
    if identity(path) != Some(own) {
        return None;
    }
    let columns = ["--no-act", "--noheadings", "--output", "TYPE,LABEL"];
    let told = Command::new("wipefs")
        .args(columns)
        .arg(path)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    let mut words = told.lines().next()?.split_whitespace();
    let kind = words.next()?;
    let label = words.next().map(|label| format!(" (label {label})"));
    Some(format!("{kind}{} by its mark", label.unwrap_or_default()))
}
