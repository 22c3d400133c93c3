//! From drives to a running pool: creating, finding, opening.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use array::format::{
    CellPage, ENTRIES_PER_PAGE, LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, LabelError, newest_label,
};
use array::pool::{
    Blueprint, CreateError, Evidence, FoundDrive, NewDrive, OpenError, Pool, SeatFacts, SeatState,
    Ticket,
};
use block::{Fault, Seat};
use layout::Scheme;
use uuid::Uuid;

use crate::drive::{
    self, Drive, DriveSpec, DriveUri, FaultHandle, FileOptions, Open, OpenDriveError, sync,
};
use crate::run::{PoolHandle, RunOptions, StartError, hold};

/// The ticket of creating or opening.
const OPENED: Ticket = Ticket(0);

/// Labels, and whatever file systems keep at their begin and end.
const WIPE_BYTES: u64 = 1 << 20;

/// A pool to be created.
#[derive(Clone, Debug)]
pub struct NewPool {
    /// Its name.
    pub name: String,
    /// Its scheme.
    pub scheme: Scheme,
    /// `-o chunk=`.
    pub chunk_bytes: Option<u64>,
    /// `-o cell=`.
    pub cell_bytes: Option<u64>,
    /// Journal and checksums.
    pub journal: bool,
    /// Drives of the layout, in order of seats.
    pub drives: Vec<DriveUri>,
    /// Drives that wait as spares.
    pub spares: Vec<DriveUri>,
    /// Take drives that hold something.
    pub force: bool,
}

/// Why a pool could not be put together.
#[derive(Debug, thiserror::Error)]
pub enum AssembleError {
    /// A drive cannot be opened.
    #[error("{0}")]
    Drive(#[from] OpenDriveError),
    /// A drive holds something.
    #[error("{drive} holds {what}: name another drive, or give --force to destroy what is on it")]
    Occupied {
        /// Which drive.
        drive: String,
        /// What was found there.
        what: String,
    },
    /// One drive is named twice.
    #[error("{drive} is named twice: each drive takes one seat")]
    Twice {
        /// Which drive.
        drive: String,
    },
    /// The blueprint does not work.
    #[error("{0}")]
    Create(#[from] CreateError),
    /// The pool must not be opened like this.
    #[error("{0}")]
    Open(#[from] OpenError),
    /// A drive failed while labels were read or written.
    #[error("{drive}: {doing} failed: {fault}{hint}")]
    Io {
        /// Which drive.
        drive: String,
        /// What was being done.
        doing: &'static str,
        /// What it said.
        fault: Fault,
        /// What to do.
        hint: &'static str,
    },
    /// Another host is at work on it.
    #[error(
        "pool `{name}` is open on another host, which is at work on it: export it there, or stop that host"
    )]
    Held {
        /// Which pool.
        name: String,
    },
    /// It did not start.
    #[error("{0}")]
    Start(#[from] StartError),
    /// No pool of this name was found.
    #[error("no pool {name} was found in {places}: name the directories of its drives with --dir")]
    NotFound {
        /// Which name.
        name: String,
        /// Where was looked.
        places: String,
    },
    /// No pool of this name was found, but a label that this program does not read.
    #[error("no pool {name} was found, and on {}: {error}", path.display())]
    Label {
        /// Which name.
        name: String,
        /// The drive.
        path: PathBuf,
        /// What its label is.
        error: LabelError,
    },
    /// Several pools of this name.
    #[error("there are {count} pools called `{name}` here: give the identity instead ({choices})")]
    Ambiguous {
        /// Which name.
        name: String,
        /// How many.
        count: usize,
        /// Their identities.
        choices: String,
    },
    /// A label was not written.
    #[error("not every drive took its label: {failed} failed; nothing was kept{hint}")]
    Labels {
        /// Which drives.
        failed: String,
        /// What to do.
        hint: &'static str,
    },
}

/// A pool that could be created: everything checked, nothing written.
pub struct Prepared {
    pool: Pool,
    drives: Vec<Drive>,
}

impl Prepared {
    /// Capacity and sizes in words.
    #[must_use]
    pub fn arithmetic(&self) -> String {
        self.pool.arithmetic()
    }

    /// The controls of those drives that fail on request, by seat.
    #[must_use]
    pub fn faults(&self) -> Vec<Option<FaultHandle>> {
        self.drives
            .iter()
            .map(|drive| drive.faults.clone())
            .collect()
    }

    /// Bytes of user data that the pool will hold.
    #[must_use]
    pub fn capacity_bytes(&self) -> u64 {
        self.pool.capacity_bytes()
    }
}

/// Opens and checks the drives of a new pool. Nothing is written.
///
/// # Errors
/// What does not work.
pub fn prepare(new: &NewPool) -> Result<Prepared, AssembleError> {
    let uris = || new.drives.iter().chain(&new.spares);
    let absolute: Vec<DriveUri> = uris().map(DriveUri::absolute).collect();
    for (index, uri) in absolute.iter().enumerate() {
        let same =
            |other: &&DriveUri| other.spec.path().is_some() && other.spec.path() == uri.spec.path();
        if absolute[..index].iter().any(|other| same(&other)) {
            return Err(AssembleError::Twice {
                drive: uri.to_string(),
            });
        }
    }
    let mut drives = Vec::new();
    for uri in uris() {
        drives.push(open_empty(uri, new.force)?);
    }
    let blueprint = Blueprint {
        name: new.name.clone(),
        uuid: Uuid::new_v4(),
        scheme: new.scheme.clone(),
        chunk_bytes: new.chunk_bytes,
        cell_bytes: new.cell_bytes,
        journal: new.journal,
        drives: drives[..new.drives.len()].iter().map(new_drive).collect(),
        spares: drives[new.drives.len()..].iter().map(new_drive).collect(),
    };
    let pool = array::pool::create(&blueprint, OPENED)?;
    Ok(Prepared { pool, drives })
}

/// Writes the labels of a prepared pool and starts it.
///
/// # Errors
/// When a drive does not take its label; then no drive keeps one.
pub fn create(prepared: Prepared, options: RunOptions) -> Result<PoolHandle, AssembleError> {
    let Prepared { pool, drives } = prepared;
    let facts = pool.facts();
    let tables = facts.cell_table_offset
        ..pool.geometry().drive_offset(
            layout::Cell {
                seat: Seat(0),
                row: 0,
            },
            0,
        );
    for drive in &drives {
        wipe(drive, tables.clone())?;
    }
    let seats = drives.iter().cloned().map(Some).collect();
    let claim = hold::claim_new(pool.facts().uuid);
    let handle = PoolHandle::start(pool, seats, OPENED, claim, options)?;
    let status = handle.status().map_err(StartError::Pool)?;
    let failed: Vec<String> = status
        .seats
        .iter()
        .filter(|seat| seat.state == "out")
        .map(|seat| seat.path.clone())
        .collect();
    if failed.is_empty() {
        return Ok(handle);
    }
    drop(handle);
    for drive in &drives {
        // What cannot be written cannot be unwritten either.
        wipe(drive, tables.clone()).unwrap_or_default();
    }
    Err(AssembleError::Labels {
        failed: failed.join(", "),
        hint: "; is the file system below them full?",
    })
}

fn new_drive(drive: &Drive) -> NewDrive {
    NewDrive {
        uuid: Uuid::new_v4(),
        path: drive.uri.to_string(),
        size_bytes: drive.size_bytes,
        domain: drive.uri.domain.clone(),
    }
}

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
            label.seat, label.facts.name
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

fn io_error(drive: &Drive, doing: &'static str, fault: Fault) -> AssembleError {
    AssembleError::Io {
        drive: drive.uri.to_string(),
        doing,
        fault,
        hint: match fault {
            Fault::Full => "; free space on the file system below it",
            _ => "",
        },
    }
}

/// Zeroes labels, cell table and the end of a drive.
fn wipe(drive: &Drive, tables: std::ops::Range<u64>) -> Result<(), AssembleError> {
    let error = |fault| io_error(drive, "writing", fault);
    let end = drive.size_bytes / WIPE_BYTES * WIPE_BYTES;
    for (offset, length) in [
        (0, WIPE_BYTES),
        (tables.start, tables.end - tables.start),
        (end.saturating_sub(WIPE_BYTES), WIPE_BYTES),
    ] {
        sync::write_zeroes(&*drive.device, offset, length).map_err(error)?;
    }
    sync::flush(&*drive.device).map_err(error)
}

/// Removes whatever label a drive has.
///
/// # Errors
/// When it cannot be written.
pub fn wipe_label(drive: &Drive) -> Result<(), AssembleError> {
    wipe(drive, 0..0)
}

/// Makes a drive ready to take a seat: whatever label it had is gone, and the journal of its earlier life, which
/// recovery could take for its own if that was in the same pool.
///
/// # Errors
/// When it cannot be read or written. The label goes last: another attempt finds the journal again.
pub fn forget_earlier_life(drive: &Drive) -> Result<(), AssembleError> {
    let label = read_label(drive)?;
    if let Some((_, Label { facts, .. })) = label
        && let Some(store) = facts.store
    {
        let start = store.journal_offset.min(drive.size_bytes);
        let bytes = store.ring_bytes.saturating_mul(facts.lanes.into());
        let length = bytes.min(drive.size_bytes - start);
        sync::write_zeroes(&*drive.device, start, length)
            .and_then(|()| sync::flush(&*drive.device))
            .map_err(|fault| io_error(drive, "writing", fault))?;
    }
    wipe_label(drive)
}

fn read_label(drive: &Drive) -> Result<Option<(usize, Label)>, AssembleError> {
    let mut slots = Vec::new();
    for offset in LABEL_OFFSETS {
        let bytes = sync::read(&*drive.device, offset, LABEL_SLOT_BYTES)
            .map_err(|fault| io_error(drive, "reading", fault))?;
        slots.push(bytes);
    }
    Ok(newest_label([&slots[0], &slots[1]]).ok())
}

/// What a drive that comes back says of itself; `None` if that cannot be read.
pub(crate) fn evidence(drive: &Drive) -> Option<Evidence> {
    let (_, label) = read_label(drive).ok().flatten()?;
    let heads: Result<Vec<Vec<u8>>, Fault> = Evidence::places(&label)
        .into_iter()
        .map(|(offset, length)| {
            let length = usize::try_from(length).unwrap_or(usize::MAX);
            sync::read(&*drive.device, offset, length)
        })
        .collect();
    Some(Evidence::new(label, &heads.ok()?))
}

/// A pool of which drives were found.
#[derive(Clone, Debug)]
pub struct FoundPool {
    /// Its name.
    pub name: String,
    /// Its identity.
    pub uuid: Uuid,
    /// Its scheme.
    pub scheme: String,
    /// Newest generation found.
    pub generation: u64,
    /// Drives found.
    pub paths: Vec<PathBuf>,
    /// Drives that the newest label knows.
    pub drives: usize,
    /// Names that the newest label gives the drives, by path.
    names: BTreeMap<PathBuf, DriveUri>,
    /// Identities of the drives found.
    seen: BTreeSet<Uuid>,
    /// Of those that the newest label counts on: not out, and not memory, which is gone.
    expected: BTreeSet<Uuid>,
}

impl FoundPool {
    /// Whether every drive that the pool counts on has been found.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.expected.is_subset(&self.seen)
    }

    fn new(label: &Label) -> Self {
        let facts = &label.facts;
        Self {
            name: facts.name.clone(),
            uuid: facts.uuid,
            scheme: facts.scheme.clone(),
            generation: 0,
            paths: Vec::new(),
            drives: 0,
            names: BTreeMap::new(),
            seen: BTreeSet::new(),
            expected: BTreeSet::new(),
        }
    }

    fn add(&mut self, path: PathBuf, label: &Label) {
        self.paths.push(path);
        self.seen.insert(label.drive);
        if label.generation <= self.generation {
            return;
        }
        let facts = &label.facts;
        self.generation = label.generation;
        self.drives = facts.seats.len();
        let path = |seat: &SeatFacts| {
            let uri: DriveUri = seat.path.parse().ok()?;
            Some((uri.spec.path()?.to_owned(), uri))
        };
        let is_in = |seat: &&SeatFacts| !matches!(seat.state, SeatState::Out { .. });
        let counted = facts.seats.iter().filter(is_in);
        self.expected = counted
            .filter(|seat| path(seat).is_some())
            .map(|seat| seat.drive)
            .collect();
        self.names = facts.seats.iter().filter_map(path).collect();
    }
}

/// Looks for labels: in the files and devices named, in all files of the directories named, and,
/// where nothing is named, on all block devices. What cannot be read is passed over.
#[must_use]
pub fn scan(places: &[PathBuf]) -> Vec<FoundPool> {
    let mut pools: BTreeMap<Uuid, FoundPool> = BTreeMap::new();
    for path in candidates(places) {
        let Ok(label) = label_of(&path) else {
            continue;
        };
        let pool = pools.entry(label.facts.uuid);
        pool.or_insert_with(|| FoundPool::new(&label))
            .add(path, &label);
    }
    pools.into_values().collect()
}

/// Looks for one pool where its drives were, and, for those that are not there, on all block
/// devices: names change when a machine starts.
#[must_use]
pub fn find(identity: &str, remembered: &[PathBuf]) -> Option<FoundPool> {
    let uuid: Uuid = identity.parse().ok()?;
    let mut found: Option<FoundPool> = None;
    let mut look = |paths: Vec<PathBuf>| {
        for path in paths {
            let Ok(label) = label_of(&path) else { continue };
            if label.facts.uuid != uuid {
                continue;
            }
            let pool = found.get_or_insert_with(|| FoundPool::new(&label));
            if !pool.seen.contains(&label.drive) {
                pool.add(path, &label);
            }
        }
        found.as_ref().is_some_and(FoundPool::is_complete)
    };
    // Without a place, `candidates` means all block devices.
    if remembered.is_empty() || !look(candidates(remembered)) {
        look(candidates(&[]));
    }
    found
}

fn candidates(places: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = Vec::new();
    if places.is_empty() {
        let names = std::fs::read_dir("/sys/class/block")
            .into_iter()
            .flatten()
            .flatten();
        paths.extend(names.map(|entry| Path::new("/dev").join(entry.file_name())));
    }
    for place in places {
        match std::fs::read_dir(place) {
            Ok(entries) => paths.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => paths.push(place.clone()),
        }
    }
    let mut paths: Vec<PathBuf> = paths
        .into_iter()
        .filter_map(|path| {
            let kind = std::fs::metadata(&path).ok()?.file_type();
            (kind.is_file() || kind.is_block_device())
                .then(|| std::path::absolute(&path).unwrap_or(path))
        })
        .collect();
    paths.sort();
    paths.dedup();
    paths
}

fn label_of(path: &Path) -> Result<Label, LabelError> {
    let file = File::open(path).map_err(|_| LabelError::Absent)?;
    let mut slots = Vec::new();
    for offset in LABEL_OFFSETS {
        let mut bytes = vec![0; LABEL_SLOT_BYTES];
        let mut filled = 0;
        while let Ok(count @ 1..) = file.read_at(&mut bytes[filled..], offset + filled as u64) {
            filled += count;
        }
        bytes.truncate(filled);
        slots.push(bytes);
    }
    newest_label([&slots[0], &slots[1]]).map(|(_, label)| label)
}

/// A drive with the label of a version that this program does not read.
fn of_another_version(places: &[PathBuf]) -> Option<(PathBuf, LabelError)> {
    candidates(places).into_iter().find_map(|path| {
        let error = label_of(&path).err()?;
        let other = match error {
            LabelError::EarlyFormat | LabelError::Format { .. } | LabelError::Features { .. } => {
                true
            }
            LabelError::Absent | LabelError::Damaged { .. } => false,
        };
        other.then_some((path, error))
    })
}

/// The one pool of this name or identity among those found.
///
/// # Errors
/// When there is none or more than one.
pub fn choose<'a>(
    pools: &'a [FoundPool],
    name: &str,
    places: &[PathBuf],
) -> Result<&'a FoundPool, AssembleError> {
    let matching: Vec<&FoundPool> = pools
        .iter()
        .filter(|pool| pool.name == name || pool.uuid.to_string() == name)
        .collect();
    match matching.as_slice() {
        [] => Err(not_found(name, places)),
        [pool] => Ok(pool),
        several => {
            let choices: Vec<_> = several.iter().map(|pool| pool.uuid.to_string()).collect();
            Err(AssembleError::Ambiguous {
                name: name.to_owned(),
                count: several.len(),
                choices: choices.join(", "),
            })
        }
    }
}

fn not_found(name: &str, places: &[PathBuf]) -> AssembleError {
    let name = format!("`{name}`");
    if let Some((path, error)) = of_another_version(places) {
        return AssembleError::Label { name, path, error };
    }
    let places = if places.is_empty() {
        "the block devices of this machine".to_owned()
    } else {
        let places: Vec<_> = places
            .iter()
            .map(|place| place.display().to_string())
            .collect();
        places.join(", ")
    };
    AssembleError::NotFound { name, places }
}

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
