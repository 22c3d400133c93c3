//! Labels that a command has taken from a drive and can give back, until the drive is used again.
//!
//! `pool destroy` and `drive wipe` change the first eight bytes of each copy of a drive's label into
//! [`RETIRED_MAGIC`]: for every reader of labels, also of earlier versions, the drive has none. All else stays. The
//! first page says that the drive is given up, and at which places the copies are:
//!
//! ```text
//!   0       "RAVELIN: this drive was given up, …", then "copies=4096,524288,…"
//!   4 KiB   RETIRED_MAGIC, the rest of the label     ─┐
//!   512 KiB RETIRED_MAGIC, the rest of the label      ├─ all of them as they were, or nothing is given back
//!   end     the second copies of both                ─┘
//! ```
//!
//! What uses the drive again writes to one of these places, or leaves a mark that is known; a drive with either is not
//! given back.
//!
//! Order. Taking writes the first page, the copies at the end, the older label, then the newer one; giving back writes
//! the newer label first and clears the first page last. There is a flush between any two. So at every moment a drive
//! has its newest label, or has none and can be given back; it never shows an older label alone.

use array::format::{
    LABEL_MAGIC, LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, RETIRED_MAGIC, label_copies,
};
use block::{Fault, PAGE_BYTES};

use super::drive::is_copy;
use super::{AssembleError, io_error};
use crate::drive::{Drive, GIVEN_UP, sync};

/// Before the list of places in the first page.
const COPIES: &str = "copies=";

/// A label that can be given back.
#[derive(Clone, Debug)]
pub(super) struct Retired {
    /// The newest label.
    pub(super) label: Label,
    /// Which of [`LABEL_OFFSETS`] has it.
    pub(super) slot: usize,
    /// Where its copies are, in the order in which they are given back.
    places: Vec<u64>,
}

/// The retired label of a drive of which `read` returns bytes: as many as asked for, or fewer.
pub(super) fn retired(mut read: impl FnMut(u64, usize) -> Vec<u8>) -> Option<Retired> {
    let page = read(0, PAGE_BYTES);
    let rest = page.strip_prefix(GIVEN_UP)?;
    let end = rest.iter().position(|&byte| byte == b'\n')?;
    let (line, rest) = rest.split_at(end);
    // Swap space has its mark at the end of the page.
    if rest[1..].iter().any(|&byte| byte != 0) {
        return None;
    }
    let listed = std::str::from_utf8(line).ok()?.strip_prefix(COPIES)?;
    let mut found: Vec<(u64, Label)> = Vec::new();
    // Two at each end. More would only be read for nothing.
    if listed.split(',').count() > 2 * LABEL_OFFSETS.len() {
        return None;
    }
    for place in listed.split(',') {
        let place: u64 = place.parse().ok()?;
        let mut bytes = read(place, LABEL_SLOT_BYTES);
        let magic = bytes.get_mut(..LABEL_MAGIC.len())?;
        // Those that the power has cut off from the others have their own.
        if *magic == RETIRED_MAGIC {
            magic.copy_from_slice(&LABEL_MAGIC);
        }
        let label = Label::parse(&bytes).ok()?;
        let same = |(_, other): &(u64, Label)| {
            (other.drive, other.facts.uuid) == (label.drive, label.facts.uuid)
        };
        if !found.first().is_none_or(same) {
            return None;
        }
        found.push((place, label));
    }
    let slot = |place: u64| LABEL_OFFSETS.iter().position(|&offset| offset == place);
    let newest = { found.iter() }
        .filter_map(|(place, label)| Some((slot(*place)?, label)))
        .max_by_key(|(_, label)| label.generation);
    let (slot, label) = newest.map(|(slot, label)| (slot, label.clone()))?;
    let mut places: Vec<u64> = found.into_iter().map(|(place, _)| place).collect();
    places.sort_by_key(|&place| (place != LABEL_OFFSETS[slot], place));
    Some(Retired {
        label,
        slot,
        places,
    })
}

/// The same of an open drive; `None` also if it cannot be read.
pub(super) fn retired_of(drive: &Drive) -> Option<Retired> {
    retired(|offset, length| read(drive, offset, length).unwrap_or_default())
}

/// Takes the label from a drive so that it can be given back. False if the drive has no label that could be.
///
/// # Errors
/// When the drive cannot be read or written.
pub(super) fn retire(drive: &Drive) -> Result<bool, AssembleError> {
    let ends = label_copies(drive.size_bytes, 0).into_iter().flatten();
    let mut copies: Vec<(u64, Option<Label>)> = Vec::new();
    for place in LABEL_OFFSETS.into_iter().chain(ends) {
        let bytes = read(drive, place, LABEL_SLOT_BYTES)
            .map_err(|fault| io_error(drive, "reading", fault))?;
        let label = Label::parse(&bytes).ok();
        let is_front = LABEL_OFFSETS.contains(&place);
        let counts = |label: &Label| is_front || is_copy(label, drive.size_bytes);
        if bytes.starts_with(&LABEL_MAGIC) {
            copies.push((place, label.filter(counts)));
        }
    }
    let fronts = copies
        .iter()
        .filter(|(place, _)| LABEL_OFFSETS.contains(place));
    let newest = { fronts.clone() }
        .filter_map(|(place, label)| Some((label.as_ref()?.clone(), *place)))
        .max_by_key(|(label, _)| label.generation);
    let Some((newest, newest_place)) = newest else {
        return Ok(false);
    };
    // Only what is the drive's own label can be given back. A copy at the end may be in the data of a pool.
    let is_own =
        |label: &Label| (label.drive, label.facts.uuid) == (newest.drive, newest.facts.uuid);
    let mut own: Vec<u64> = { copies.iter() }
        .filter(|(_, label)| label.as_ref().is_some_and(is_own))
        .map(|(place, _)| *place)
        .collect();
    own.sort_by_key(|&place| (place == newest_place, LABEL_OFFSETS.contains(&place), place));
    let damaged = { fronts }.filter(|(_, label)| !label.as_ref().is_some_and(is_own));
    let damaged: Vec<u64> = damaged.map(|(place, _)| *place).collect();
    let places: Vec<String> = own.iter().map(u64::to_string).collect();
    let mut page = vec![0; PAGE_BYTES];
    let text = [
        GIVEN_UP,
        COPIES.as_bytes(),
        places.join(",").as_bytes(),
        b"\n",
    ]
    .concat();
    page[..text.len()].copy_from_slice(&text);
    write(drive, 0, &page)?;
    for place in damaged {
        write(drive, place, &vec![0; PAGE_BYTES])?;
    }
    for place in own {
        set_magic(drive, place, RETIRED_MAGIC)?;
    }
    Ok(true)
}

/// Gives a drive its label back.
///
/// # Errors
/// When the drive cannot be read or written.
pub(super) fn give_back(drive: &Drive, retired: &Retired) -> Result<(), AssembleError> {
    for &place in &retired.places {
        set_magic(drive, place, LABEL_MAGIC)?;
    }
    write(drive, 0, &vec![0; PAGE_BYTES])
}

fn set_magic(drive: &Drive, place: u64, magic: [u8; 8]) -> Result<(), AssembleError> {
    let page = read(drive, place, PAGE_BYTES);
    let mut page = page.map_err(|fault| io_error(drive, "reading", fault))?;
    page[..magic.len()].copy_from_slice(&magic);
    write(drive, place, &page)
}

/// Writes and flushes: later writes come later for the drive's cache as well.
fn write(drive: &Drive, offset: u64, bytes: &[u8]) -> Result<(), AssembleError> {
    sync::write(&*drive.device, offset, bytes)
        .and_then(|()| sync::flush(&*drive.device))
        .map_err(|fault| io_error(drive, "writing", fault))
}

/// What is at `offset`, as far as the drive goes.
fn read(drive: &Drive, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
    let left = usize::try_from(drive.size_bytes.saturating_sub(offset)).unwrap_or(usize::MAX);
    match left.min(length) / PAGE_BYTES * PAGE_BYTES {
        0 => Ok(Vec::new()),
        length => sync::read(&*drive.device, offset, length),
    }
}

#[cfg(test)]
mod tests;
