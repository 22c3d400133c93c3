//! Opening a pool that was found.

use std::collections::BTreeMap;
use std::path::Path;

use array::format::{CellPage, ENTRIES_PER_PAGE, Label};
use array::pool::FoundDrive;

use super::drive::read_label;
use super::{AssembleError, FoundPool, OPENED, io_error};
use crate::drive::{self, Drive, DriveSpec, DriveUri, FileOptions, Open, sync};
use crate::run::{PoolHandle, RunOptions, hold};

/// Opens a pool that was found and starts it.
///
/// # Errors
/// What does not work; then nothing was written.
pub fn import(
    found: &FoundPool,
    degraded: bool,
    options: RunOptions,
) -> Result<PoolHandle, AssembleError> {
    let how = Open {
        create_size: None,
        exclusive: true,
    };
    let mut drives = Vec::new();
    let mut labels = Vec::new();
    for path in &found.paths {
        let uri = match found.names.get(path) {
            Some(uri) => uri.clone(),
            None => plain(path),
        };
        let drive = drive::open(&uri, how)?;
        let Some((label_slot, label)) = read_label(&drive)? else {
            continue;
        };
        labels.push(FoundDrive {
            path: drive.uri.to_string(),
            label,
            label_slot,
            size_bytes: drive.size_bytes,
        });
        drives.push(drive);
    }
    let opening = array::pool::open(&labels, degraded)?;
    let facts = opening.facts();
    let mut tables = BTreeMap::new();
    let mut slots = BTreeMap::new();
    let mut seats: Vec<Option<Drive>> = vec![None; facts.seats.len()];
    for (&seat, &at) in opening.seated() {
        let table = read_table(
            &drives[at],
            &labels[at].label,
            facts.cell_table_offset,
            facts.rows,
        )?;
        tables.insert(seat, table);
        slots.insert(seat, labels[at].label_slot);
        seats[seat.index()] = Some(drives[at].clone());
    }
    // Drives that are out keep their place, so that they can be brought back.
    for (index, facts) in facts.seats.iter().enumerate() {
        if seats[index].is_none() {
            let at = labels
                .iter()
                .position(|found| found.label.drive == facts.drive);
            seats[index] = at.map(|at| drives[at].clone());
        }
    }
    let pool = opening.finish(tables, &slots, OPENED)?;
    let in_use: Vec<Drive> = seats.iter().flatten().cloned().collect();
    let claim = hold::claim(pool.facts().uuid, &in_use).map_err(|_| AssembleError::Held {
        name: found.name.clone(),
    })?;
    Ok(PoolHandle::start(pool, seats, OPENED, claim, options)?)
}

/// A path as it is.
fn plain(path: &Path) -> DriveUri {
    DriveUri {
        spec: DriveSpec::File {
            path: path.to_owned(),
            options: FileOptions::default(),
        },
        domain: None,
    }
}

fn read_table(
    drive: &Drive,
    label: &Label,
    offset: u64,
    rows: u64,
) -> Result<Vec<CellPage>, AssembleError> {
    let pages = rows.div_ceil(ENTRIES_PER_PAGE);
    let length = usize::try_from(pages * 2 * array::format::CELL_PAGE_BYTES).unwrap_or(usize::MAX);
    let bytes = sync::read(&*drive.device, offset, length)
        .map_err(|fault| io_error(drive, "reading", fault))?;
    Ok(bytes
        .chunks_exact(2 * 4096)
        .zip((0..rows).step_by(usize::try_from(ENTRIES_PER_PAGE).unwrap_or(1)))
        .map(|(pair, first_row)| {
            let (first, second) = pair.split_at(4096);
            CellPage::newest([first, second], label.drive, first_row)
        })
        .collect())
}
