//! Reads and removes what a drive holds from earlier use.

use array::format::{LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, label_copies, newest_label};
use array::pool::Proof;
use block::Fault;
use uuid::Uuid;

use super::occupant::{Access, Examined, Occupant, OpenPool, examine};
use super::permit::{Answer, Command, Meant, Permit, permit};
use super::retired::{give_back, retire, retired_of};
use super::stack::refuse_volume;
use super::{AssembleError, io_error};
use crate::drive::{self, Content, Drive, DriveUri, sync};

/// Bytes of a block.
const BLOCK: usize = 4096;

/// Covers labels, and what file systems keep at the beginning and the end of a drive.
const WIPE_BYTES: u64 = 1 << 20;

/// A drive that a command may write to.
#[derive(Debug)]
pub struct Permitted {
    /// The drive, open and locked.
    pub drive: Drive,
    /// What the drive holds and loses, with its article; `None` if it holds nothing that is known, or is what the
    /// command means.
    pub holds: Option<String>,
}

/// Opens the drive of a name for a command that writes, or says what it would write, if [`permit`] allows that.
///
/// # Errors
/// Why the command does not write there.
pub fn open_for(
    command: Command,
    uri: &DriveUri,
    pools: &[OpenPool],
    meant: Meant,
    force: bool,
    access: Access,
) -> Result<Permitted, AssembleError> {
    if let Some(pool) = meant.pool {
        refuse_volume(uri, pool, pools)?;
    }
    let Examined {
        uri,
        occupant,
        drive,
    } = examine(uri, pools, access);
    let answer = Answer::new(&occupant, meant);
    let permitted = match permit(command, answer) {
        Permit::Take => true,
        Permit::Force => force,
        Permit::Leave | Permit::Refuse => false,
    };
    match drive {
        Some(drive) if permitted => {
            let means_it = answer == Answer::Itself && command == Command::Online;
            let nothing = matches!(occupant, Occupant::Empty) || means_it;
            let holds = (!nothing).then(|| occupant.to_string());
            Ok(Permitted { drive, holds })
        }
        _ => Err(refusal(&uri, occupant)),
    }
}

/// Why nothing is written to what is there.
#[must_use]
pub fn refusal(uri: &DriveUri, occupant: Occupant) -> AssembleError {
    let drive = uri.to_string();
    match occupant {
        Occupant::InUse { pool, number, .. } => AssembleError::InUseHere {
            drive,
            pool,
            seat: number,
        },
        Occupant::Member {
            pool,
            number,
            went_on,
            ..
        } => AssembleError::Listed {
            drive,
            pool,
            seat: number,
            went_on,
        },
        Occupant::Taken(error) | Occupant::Missing(error) => error.into(),
        Occupant::NoAnswer(error) => error,
        Occupant::Former { .. }
        | Occupant::OtherPool { .. }
        | Occupant::Overlaid { .. }
        | Occupant::Foreign { .. }
        | Occupant::Unmarked { .. }
        | Occupant::Empty => AssembleError::Occupied {
            drive,
            what: occupant.to_string(),
        },
    }
}

/// Opens a drive that is to be overwritten, unless something is on it. No pool is open here.
///
/// # Errors
/// When it cannot be opened, or holds something and `force` is not given.
pub fn open_empty(uri: &DriveUri, force: bool) -> Result<Drive, AssembleError> {
    let meant = Meant::default();
    let opened = open_for(Command::Create, uri, &[], meant, force, Access::Write)?;
    Ok(opened.drive)
}

/// Zeroes labels and their copies, cell table and the end of a drive.
pub(super) fn wipe(drive: &Drive, tables: std::ops::Range<u64>) -> Result<(), AssembleError> {
    let error = |fault| io_error(drive, "writing", fault);
    let size = drive.size_bytes / BLOCK as u64 * BLOCK as u64;
    let end = (size / WIPE_BYTES * WIPE_BYTES).saturating_sub(WIPE_BYTES);
    let copies = label_copies(size, 0).map(|[first, _]| first / WIPE_BYTES * WIPE_BYTES);
    let copies = copies.map(|start| (start, WIPE_BYTES));
    for (offset, length) in [
        (0, WIPE_BYTES.min(size)),
        (tables.start, tables.end - tables.start),
        // Up to the end: partition tables have a copy there.
        (end, size - end),
    ]
    .into_iter()
    .chain(copies)
    {
        sync::write_zeroes(&*drive.device, offset, length).map_err(error)?;
    }
    sync::flush(&*drive.device).map_err(error)
}

/// Takes the label from a drive, so that it counts as empty; [`restore_label`] gives it back until the drive is used
/// again. A drive without a label of its own loses all marks for good.
///
/// # Errors
/// When it cannot be read or written.
pub fn wipe_label(drive: &Drive) -> Result<(), AssembleError> {
    if retire(drive)? {
        return Ok(());
    }
    wipe(drive, 0..0)?;
    drive::give_up(&*drive.device).map_err(|fault| io_error(drive, "writing", fault))
}

/// Empties a drive that belongs to no pool that is open here. If the label of a pool is all that it holds, that can be
/// given back by [`restore_label`]. True in this case.
///
/// # Errors
/// When it cannot be read or written.
pub fn wipe_drive(drive: &Drive, pools: &[OpenPool]) -> Result<bool, AssembleError> {
    let label = read_label(drive)?.map(|(_, label)| label);
    let is_open = |label: &Label| pools.iter().any(|pool| pool.uuid == label.facts.uuid);
    // A drive that an open pool has dropped could be added to this pool again, and its journal must not come with it.
    if label.is_some_and(|label| !is_open(&label)) && retire(drive)? {
        let left = drive::content(drive).map_err(|fault| io_error(drive, "reading", fault))?;
        if left == Content::Empty {
            return Ok(true);
        }
    }
    give_up(drive).map(|()| false)
}

/// What [`restore_label`] gives back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restorable {
    /// The pool's name.
    pub pool: String,
    /// The pool's identity.
    pub uuid: Uuid,
    /// The number of the drive.
    pub number: u16,
    /// What was written over the label, and goes; `None` if a command has taken the label.
    pub over: Option<String>,
}

/// Gives a drive its label back: one that a command has taken, or whose copies at the end are left. With
/// [`Access::Read`] nothing is written.
///
/// # Errors
/// When there is none, the drive is in use, or it cannot be read or written.
pub fn restore_label(
    uri: &DriveUri,
    pools: &[OpenPool],
    access: Access,
) -> Result<Restorable, AssembleError> {
    let Examined {
        uri,
        occupant,
        drive,
    } = examine(uri, pools, access);
    let found = |label: &Label, over| Restorable {
        pool: label.facts.name.clone(),
        uuid: label.facts.uuid,
        number: label.facts.number(label.seat),
        over,
    };
    match (&occupant, drive) {
        (Occupant::Empty, Some(drive)) => {
            if let Some(retired) = retired_of(&drive) {
                if access == Access::Write {
                    give_back(&drive, &retired)?;
                }
                return Ok(found(&retired.label, None));
            }
        }
        (Occupant::Overlaid { what, .. }, Some(drive)) => {
            // A label at the beginning is beside what was written, and not below.
            if let (None, Some(label)) = (read_label(&drive)?, read_label_copy(&drive)) {
                if access == Access::Write {
                    repair_label(&drive)?;
                }
                return Ok(found(&label, Some(what.clone())));
            }
        }
        (Occupant::Taken(_) | Occupant::Missing(_) | Occupant::NoAnswer(_), _) => {
            return Err(refusal(&uri, occupant));
        }
        _ => {}
    }
    Err(AssembleError::NoLabelLeft {
        drive: uri.to_string(),
        what: occupant.to_string(),
    })
}

/// Removes the label and the journal of a drive that leaves its pool, and marks what is left as given up.
///
/// # Errors
/// When it cannot be read or written.
pub fn give_up(drive: &Drive) -> Result<(), AssembleError> {
    forget_earlier_life(drive)?;
    drive::give_up(&*drive.device).map_err(|fault| io_error(drive, "writing", fault))
}

/// Makes a drive ready to take a seat: removes its label and the journal of its earlier use. If that was in the same
/// pool, recovery could take the old journal for its own.
///
/// # Errors
/// When it cannot be read or written. The label is removed last: another attempt finds the journal again.
pub fn forget_earlier_life(drive: &Drive) -> Result<(), AssembleError> {
    let label = read_label(drive)?.map(|(_, label)| label);
    let label = { label }
        .or_else(|| read_label_copy(drive))
        .or_else(|| Some(retired_of(drive)?.label));
    if let Some(Label { facts, .. }) = label
        && let Some(regions) = facts.regions
    {
        let start = regions.journal_offset.min(drive.size_bytes);
        let bytes = regions.ring_bytes.saturating_mul(facts.lanes.into());
        let length = bytes.min(drive.size_bytes - start);
        sync::write_zeroes(&*drive.device, start, length)
            .and_then(|()| sync::flush(&*drive.device))
            .map_err(|fault| io_error(drive, "writing", fault))?;
    }
    wipe(drive, 0..0)
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

/// The label at the end of a drive whose beginning is overwritten; `None` if there is none, or it cannot be read.
pub(super) fn read_label_copy(drive: &Drive) -> Option<Label> {
    let slots = label_copies(drive.size_bytes, 0)?;
    let slots = slots
        .map(|offset| sync::read(&*drive.device, offset, LABEL_SLOT_BYTES).unwrap_or_default());
    let (_, label) = newest_label([&slots[0], &slots[1]]).ok()?;
    is_copy(&label, drive.size_bytes).then_some(label)
}

/// Whether a label that was read from the reserve at the end of a drive can be the pool's: not if the pool has data
/// there, in which a client may have stored what looks like a label.
pub(super) fn is_copy(label: &Label, size_bytes: u64) -> bool {
    label_copies(size_bytes, label.facts.used_bytes()).is_some()
}

/// Writes the labels at the beginning of a drive anew, by their copies at its end. What was written over them goes.
///
/// # Errors
/// When the drive cannot be read or written.
pub(super) fn repair_label(drive: &Drive) -> Result<(), AssembleError> {
    let failed = |doing| move |fault| io_error(drive, doing, fault);
    let Some(copies) = label_copies(drive.size_bytes, 0) else {
        return Ok(());
    };
    let mut intact = Vec::new();
    for (copy, offset) in copies.into_iter().zip(LABEL_OFFSETS) {
        let bytes =
            sync::read(&*drive.device, copy, LABEL_SLOT_BYTES).map_err(failed("reading"))?;
        if newest_label([&bytes, &[]]).is_ok_and(|(_, label)| is_copy(&label, drive.size_bytes)) {
            intact.push((offset, bytes));
        }
    }
    // What was written over the labels goes, also its part at the end: a partition table has one.
    let size = drive.size_bytes / BLOCK as u64 * BLOCK as u64;
    let end = size / WIPE_BYTES * WIPE_BYTES - WIPE_BYTES;
    for (start, length) in [(0, WIPE_BYTES), (end, size - end)] {
        sync::write_zeroes(&*drive.device, start, length).map_err(failed("writing"))?;
    }
    for (offset, bytes) in intact {
        sync::write(&*drive.device, offset, &bytes).map_err(failed("writing"))?;
    }
    sync::flush(&*drive.device).map_err(failed("writing"))
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
