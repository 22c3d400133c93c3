//! Reads and removes what a drive holds from earlier use.

use array::format::{LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, newest_label};
use array::pool::Proof;
use block::Fault;

use super::{AssembleError, io_error};
use crate::drive::{self, Drive, DriveUri, Open, sync};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Covers labels, and what file systems keep at the beginning and the end of a drive.
const WIPE_BYTES: u64 = 1 << 20;

/// Opens a drive that is to be overwritten, unless something is on it.
///
/// # Errors
/// When it cannot be opened, or holds something and `force` is not given.
pub fn open_empty(uri: &DriveUri, force: bool) -> Result<Drive, AssembleError> {
    let how = Open {
        create_size: None,
        exclusive: true,
    };
    let drive = drive::open(uri, how)?;
    if force {
        return Ok(drive);
    }
    let found =
        drive::signatures(&*drive.device).map_err(|fault| io_error(&drive, "reading", fault))?;
    let label = read_label(&drive).ok().flatten();
    let what = match (&label, found.first()) {
        (Some((_, label)), _) => Some(format!(
            "seat {} of the Ravelin pool `{}`",
            label.facts.number(label.seat),
            label.facts.name
        )),
        (None, Some(signature)) => Some(signature.to_string()),
        (None, None) => None,
    };
    match what {
        None => Ok(drive),
        Some(what) => Err(AssembleError::Occupied {
            drive: drive.uri.to_string(),
            what,
        }),
    }
}

/// Zeroes labels, cell table and the end of a drive.
pub(super) fn wipe(drive: &Drive, tables: std::ops::Range<u64>) -> Result<(), AssembleError> {
    let error = |fault| io_error(drive, "writing", fault);
    let size = drive.size_bytes / BLOCK as u64 * BLOCK as u64;
    let end = (size / WIPE_BYTES * WIPE_BYTES).saturating_sub(WIPE_BYTES);
    for (offset, length) in [
        (0, WIPE_BYTES.min(size)),
        (tables.start, tables.end - tables.start),
        // Up to the end: partition tables have a copy there.
        (end, size - end),
    ] {
        sync::write_zeroes(&*drive.device, offset, length).map_err(error)?;
    }
    sync::flush(&*drive.device).map_err(error)
}

/// Removes any label from a drive.
///
/// # Errors
/// When it cannot be written.
pub fn wipe_label(drive: &Drive) -> Result<(), AssembleError> {
    wipe(drive, 0..0)
}

/// Makes a drive ready to take a seat: removes its label and the journal of its earlier use. If that was in the same
/// pool, recovery could take the old journal for its own.
///
/// # Errors
/// When it cannot be read or written. The label is removed last: another attempt finds the journal again.
pub fn forget_earlier_life(drive: &Drive) -> Result<(), AssembleError> {
    let label = read_label(drive)?;
    if let Some((_, Label { facts, .. })) = label
        && let Some(regions) = facts.regions
    {
        let start = regions.journal_offset.min(drive.size_bytes);
        let bytes = regions.ring_bytes.saturating_mul(facts.lanes.into());
        let length = bytes.min(drive.size_bytes - start);
        sync::write_zeroes(&*drive.device, start, length)
            .and_then(|()| sync::flush(&*drive.device))
            .map_err(|fault| io_error(drive, "writing", fault))?;
    }
    wipe_label(drive)
}

pub(super) fn read_label(drive: &Drive) -> Result<Option<(usize, Label)>, AssembleError> {
    let mut slots = Vec::new();
    for offset in LABEL_OFFSETS {
        // If a file was truncated, its first copy may still be whole.
        let left = usize::try_from(drive.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
        let length = left.min(LABEL_SLOT_BYTES) / BLOCK * BLOCK;
        let bytes = match length {
            0 => Vec::new(),
            _ => sync::read(&*drive.device, offset, length)
                .map_err(|fault| io_error(drive, "reading", fault))?,
        };
        slots.push(bytes);
    }
    Ok(newest_label([&slots[0], &slots[1]]).ok())
}

/// The proof of a returning drive; `None` if the drive cannot be read.
pub(crate) fn proof(drive: &Drive) -> Option<Proof> {
    let (_, label) = read_label(drive).ok().flatten()?;
    let heads: Result<Vec<Vec<u8>>, Fault> = Proof::places(&label)
        .into_iter()
        .map(|(offset, length)| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            sync::read(&*drive.device, offset, length)
        })
        .collect();
    Some(Proof::new(label, &heads.ok()?))
}
