//! Opens a pool that was found.

use std::collections::BTreeMap;

use array::format::{CellPage, ENTRIES_PER_PAGE, Label};
use array::pool::{FoundDrive, Opening};
use block::{Fault, Full, Seat};

use super::drive::{read_label, refusal, repair_label};
use super::occupant::{Access, Examined, Occupant, OpenPool, examine};
use super::permit::{Answer, Command, Meant, Permit, permit};
use super::retired::{give_back, retired_of};
use super::{AssembleError, FoundPool, OPENED};
use crate::drive::{Drive, DriveUri, Enclosures, OpenDriveError, Place, show_to_udev, sync};
use crate::run::{PoolHandle, RunOptions, lease};

/// Which drives an opening may do without.
#[derive(Clone, Debug, Default)]
pub struct Without {
    /// Half of the drives, or data that no drive has that is away.
    pub degraded: bool,
    /// Drives by these numbers, if they are away: what only they have is lost.
    pub given_up: Vec<u16>,
}

/// Opens a pool that was found and starts it; `open` are the pools that are open here.
///
/// # Errors
/// Why the pool cannot be opened; then nothing was written.
pub fn import(
    found: &FoundPool,
    without: &Without,
    (open, enclosures): (&[OpenPool], &Enclosures),
    options: RunOptions,
) -> Result<PoolHandle, AssembleError> {
    let mut drives = Vec::new();
    let mut labels = Vec::new();
    // The drives of which a command has taken the label: nothing is written before all checks have been made.
    let mut taken = Vec::new();
    let places = [&found.found[..], &found.destroyed].concat();
    for examined in examine_all(found, &places, open) {
        let Examined {
            uri,
            occupant,
            mut drive,
        } = examined;
        if let Some(drive) = &mut drive {
            enclosures.place(drive);
        }
        let meant = Meant {
            pool: Some(found.uuid),
            drive: None,
        };
        let takes = permit(Command::Import, Answer::new(&occupant, meant)) == Permit::Take;
        if let (Occupant::Empty, Some(drive)) = (&occupant, &drive)
            && uri.spec.place().is_some_and(|place| found.destroyed.contains(&place))
            // It may have been used again since it was found.
            && let Some(retired) = retired_of(drive).filter(|it| it.label.facts.uuid == found.uuid)
        {
            labels.push(FoundDrive {
                path: drive.uri.to_string(),
                label: retired.label.clone(),
                label_slot: retired.slot,
                size_bytes: drive.size_bytes,
                fault: None,
                bay: drive.bay.clone(),
            });
            drives.push(drive.clone());
            taken.push((drive.clone(), retired));
            continue;
        }
        let Some(drive) = drive.filter(|_| takes) else {
            match occupant {
                Occupant::Taken(error) => return Err(error.into()),
                Occupant::Missing(error) if !is_gone(&error) => return Err(error.into()),
                occupant => tracing::warn!(drive = %uri, "a drive is left out: {occupant}"),
            }
            continue;
        };
        let (label_slot, label) = match read_label(&drive) {
            Ok(Some(found)) => found,
            Ok(None) => continue,
            Err(error) => {
                tracing::warn!("a drive is left out: {}", Full(error));
                continue;
            }
        };
        labels.push(FoundDrive {
            path: drive.uri.to_string(),
            label,
            label_slot,
            size_bytes: drive.size_bytes,
            fault: None,
            bay: drive.bay.clone(),
        });
        drives.push(drive);
    }
    let (opening, tables) = open_what_can_be_read(&mut labels, &drives, without)?;
    let facts = opening.facts();
    let mut slots = BTreeMap::new();
    let mut seats: Vec<Option<Drive>> = vec![None; facts.seats.len()];
    for (seat, at) in in_use(&opening) {
        slots.insert(seat, labels[at].label_slot);
        seats[seat.index()] = Some(drives[at].clone());
    }
    // Drives that are out keep their place, so that they can be returned.
    for (index, facts) in facts.seats.iter().enumerate() {
        if seats[index].is_none() {
            let at = labels
                .iter()
                .position(|found| found.label.drive == facts.drive);
            seats[index] = at.map(|at| drives[at].clone());
        }
    }
    let pool = opening.finish(tables, &slots, OPENED)?;
    for (drive, retired) in &taken {
        give_back(drive, retired)?;
    }
    let all: Vec<Drive> = seats.iter().flatten().cloned().collect();
    let held = |_| AssembleError::Held {
        name: found.name.clone(),
    };
    let reservation = lease::reserve(pool.facts().uuid, pool.generation(), &all).map_err(held)?;
    let started = PoolHandle::start(pool, seats, OPENED, reservation, options)?;
    { taken.iter() }.for_each(|(drive, _)| show_to_udev(drive));
    Ok(started)
}

/// Writes the labels of those drives anew whose beginning is overwritten, by the copies at their ends. What was written
/// over the labels goes, up to the first MiB.
///
/// # Errors
/// Which drive cannot be written, or is in use; drives before it have their labels.
pub fn repair_labels(found: &FoundPool, open: &[OpenPool]) -> Result<(), AssembleError> {
    for examined in examine_all(found, &found.overwritten, open) {
        let Examined {
            uri,
            occupant,
            drive,
        } = examined;
        match (occupant, drive) {
            (Occupant::Overlaid { uuid, what, .. }, Some(drive)) if uuid == found.uuid => {
                repair_label(&drive)?;
                tracing::info!(drive = %uri, "its labels are written anew, over {what}");
            }
            (occupant, _) => return Err(refusal(&uri, occupant)),
        }
    }
    Ok(())
}

/// Looks at drives that were found, at once and in their order. A name may lead elsewhere by now.
fn examine_all(found: &FoundPool, places: &[Place], open: &[OpenPool]) -> Vec<Examined> {
    let uri = |place: &Place| { found.names.get(place).cloned() }.unwrap_or_else(|| place.plain());
    let uris: Vec<DriveUri> = places.iter().map(uri).collect();
    let look = |uri: &DriveUri| {
        // Drives of open pools are locked. Volumes are not, and are reached through their pools.
        let open = match uri.spec.volume() {
            Some(_) => open,
            None => &[],
        };
        examine(uri, open, Access::Write)
    };
    std::thread::scope(|scope| {
        let looks: Vec<_> = { uris.iter() }
            .map(|uri| scope.spawn(move || look(uri)))
            .collect();
        { looks.into_iter() }
            .map(|look| look.join().expect("a look does not panic"))
            .collect()
    })
}

/// The drives that are in use, and those that may be in again: for each seat, the index of the found drive.
fn in_use(opening: &Opening) -> BTreeMap<Seat, usize> {
    let mut drives = opening.candidates();
    drives.extend(opening.seated());
    drives
}

/// Decides which drives are used, and reads their cell tables. If a table cannot be read, its drive is out, and the
/// decision is made again without it.
fn open_what_can_be_read(
    labels: &mut [FoundDrive],
    drives: &[Drive],
    without: &Without,
) -> Result<(Opening, BTreeMap<Seat, Vec<CellPage>>), AssembleError> {
    loop {
        let opening = array::pool::open(labels, without.degraded)?;
        let facts = opening.facts();
        let given_up = without.given_up.iter();
        let given_up: Vec<Seat> = given_up
            .filter_map(|&number| facts.seat_numbered(number))
            .collect();
        let mut tables = BTreeMap::new();
        let mut failed = None;
        for (seat, at) in in_use(&opening) {
            let label = &labels[at].label;
            match read_table(&drives[at], label, facts.cell_table_offset, facts.rows) {
                Ok(table) => {
                    tables.insert(seat, table);
                }
                Err(fault) => failed = Some((at, fault)),
            }
        }
        let Some((at, fault)) = failed else {
            return Ok((opening.giving_up(given_up), tables));
        };
        let drive = &drives[at].uri;
        tracing::warn!(%drive, "a drive is left out: its cell table cannot be read: {fault}");
        labels[at].fault = Some(fault);
    }
}

/// Whether a drive cannot be opened because of its own state, and not because it is in use elsewhere.
const fn is_gone(error: &OpenDriveError) -> bool {
    match error {
        OpenDriveError::NotFound { .. }
        | OpenDriveError::NoVolume { .. }
        | OpenDriveError::NotADrive { .. }
        | OpenDriveError::NoBytes { .. }
        | OpenDriveError::TooSmall { .. }
        | OpenDriveError::Io { .. } => true,
        OpenDriveError::InUse { .. }
        | OpenDriveError::Attached { .. }
        | OpenDriveError::Busy { .. }
        | OpenDriveError::Denied { .. }
        | OpenDriveError::NotZram { .. }
        | OpenDriveError::NoUring { .. }
        | OpenDriveError::Start { .. } => false,
    }
}

fn read_table(
    drive: &Drive,
    label: &Label,
    offset: u64,
    rows: u64,
) -> Result<Vec<CellPage>, Fault> {
    let pages = rows.div_ceil(ENTRIES_PER_PAGE);
    let length = usize::try_from(pages * 2 * array::format::CELL_PAGE_BYTES).unwrap_or(usize::MAX);
    let bytes = sync::read(&*drive.device, offset, length)?;
    Ok(bytes
        .chunks_exact(2 * 4096)
        .zip((0..rows).step_by(usize::try_from(ENTRIES_PER_PAGE).unwrap_or(1)))
        .map(|(pair, first_row)| {
            let (first, second) = pair.split_at(4096);
            CellPage::newest([first, second], label.drive, first_row)
        })
        .collect())
}
