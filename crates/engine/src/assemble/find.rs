//! Finds the pools to which the drives of this machine belong.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use array::format::{
    LABEL_MAGIC, LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, LabelError, label_copies, newest_label,
};
use array::pool::{SeatFacts, SeatState};
use block::{Memory, PAGE_BYTES};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use uuid::Uuid;

use super::AssembleError;
use super::drive::is_copy;
use super::occupant::{ANSWER_WITHIN, Access, Occupant, OpenPool, examine};
use super::probe::answers;
use super::retired::retired;
use crate::drive::{DriveUri, Identity, identity, probe};

/// How much of each end of a drive has marks of other uses.
const MARKED_BYTES: usize = 256 << 10;

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
    /// Drives of which only the copy of the label at the end was found.
    pub overwritten: Vec<PathBuf>,
    /// Drives from which a command has taken the label; only [`scan_destroyed`] finds them.
    pub destroyed: Vec<PathBuf>,
    /// Drives that the newest label lists.
    pub drives: usize,
    /// Names that the newest label gives the drives, by path.
    pub(super) names: BTreeMap<PathBuf, DriveUri>,
    /// Identities of the drives found.
    seen: BTreeSet<Uuid>,
    /// Identities of the drives that the newest label expects: those that are not out, and not in memory, which is
    /// gone.
    expected: BTreeSet<Uuid>,
}

impl FoundPool {
    /// Whether every expected drive has been found.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.expected.is_subset(&self.seen)
    }

    fn new(label: &Label) -> Self {
        let facts = &label.facts;
        Self {
            name: facts.name.clone(),
            uuid: facts.uuid,
            scheme: crate::status::scheme_as_it_is(facts),
            generation: 0,
            paths: Vec::new(),
            overwritten: Vec::new(),
            destroyed: Vec::new(),
            drives: 0,
            names: BTreeMap::new(),
            seen: BTreeSet::new(),
            expected: BTreeSet::new(),
        }
    }

    fn add(&mut self, path: PathBuf, label: &Label) {
        self.paths.push(path);
        self.seen.insert(label.drive);
        self.take_facts(label);
    }

    fn take_facts(&mut self, label: &Label) {
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

/// Searches for labels: in the files and devices named, in all files of the directories named, and, where nothing is
/// named, on all block devices. Skips what cannot be read, and what does not answer within [`ANSWER_WITHIN`].
#[must_use]
pub fn scan(places: &[PathBuf]) -> Vec<FoundPool> {
    scan_with(places, Instead::Copies)
}

/// Searches, in the same places, for pools that were destroyed and whose labels can be given back. Drives that still have
/// their label belong to them as well.
#[must_use]
pub fn scan_destroyed(places: &[PathBuf]) -> Vec<FoundPool> {
    let mut pools = scan_with(places, Instead::Retired);
    pools.retain(|pool| !pool.destroyed.is_empty());
    pools
}

/// What counts of a drive that has no label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Instead {
    /// The copy at its end.
    Copies,
    /// The label that a command has taken from it.
    Retired,
}

fn scan_with(places: &[PathBuf], instead: Instead) -> Vec<FoundPool> {
    let mut pools: BTreeMap<Uuid, FoundPool> = BTreeMap::new();
    for seen in seen(candidates(places)) {
        let other = match instead {
            Instead::Copies => seen.copy,
            Instead::Retired => seen.retired,
        };
        let (label, has_label) = match (seen.label, other) {
            (Ok(label), _) => (label, true),
            (Err(_), Some(label)) => (label, false),
            (Err(_), None) => continue,
        };
        let pool = pools.entry(label.facts.uuid);
        let pool = pool.or_insert_with(|| FoundPool::new(&label));
        match instead {
            _ if has_label => pool.add(seen.path, &label),
            Instead::Copies => {
                pool.overwritten.push(seen.path);
                pool.take_facts(&label);
            }
            Instead::Retired => {
                pool.destroyed.push(seen.path);
                pool.seen.insert(label.drive);
                pool.take_facts(&label);
            }
        }
    }
    pools.into_values().collect()
}

/// Drives of a destroyed pool that hold something else by now, by the newest label: name and content. What is open here
/// is in `open`.
#[must_use]
pub fn used_again(found: &FoundPool, open: &[OpenPool]) -> Vec<(PathBuf, String)> {
    let known: BTreeSet<Identity> = { found.paths.iter() }
        .chain(&found.destroyed)
        .filter_map(|path| identity(path))
        .collect();
    let missing = { found.names.iter() }
        .filter(|(path, _)| identity(path).is_some_and(|own| !known.contains(&own)));
    missing
        .filter_map(
            |(path, uri)| match examine(uri, open, Access::Read).occupant {
                Occupant::Missing(_) => None,
                occupant => Some((path.clone(), occupant.to_string())),
            },
        )
        .collect()
}

/// Searches for one pool where its drives were, and, for those that are not there, on all block devices: names change
/// when a machine starts.
#[must_use]
pub fn find(identity: &str, remembered: &[PathBuf]) -> Option<FoundPool> {
    let uuid: Uuid = identity.parse().ok()?;
    let mut found: Option<FoundPool> = None;
    let mut look = |paths: Vec<PathBuf>| {
        for (path, label) in labelled(paths) {
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

/// Names of drives with the label of this drive of this pool, among `places` and all block devices. More than one is
/// found where a drive was copied.
#[must_use]
pub fn with_label_of(pool: Uuid, drive: Uuid, places: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = candidates(places);
    paths.extend(candidates(&[]));
    let ours = |(_, label): &(PathBuf, Label)| label.facts.uuid == pool && label.drive == drive;
    let found = labelled(paths).into_iter().filter(ours);
    found.map(|(path, _)| path).collect()
}

/// What the names in some places, and those of all block devices, lead to.
///
/// It changes when a drive is plugged in, unplugged or renamed. No drive is read for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(BTreeMap<PathBuf, String>);

/// Asks the kernel for the present [`Names`].
#[must_use]
pub fn names(places: &[PathBuf]) -> Names {
    let files = places
        .iter()
        .flat_map(|place| candidates(std::slice::from_ref(place)));
    let mut all: BTreeMap<PathBuf, String> = files
        .filter_map(|path| {
            // What the kernel knows, without a question to the server of the file, which could hang.
            let (flags, wanted) = (AtFlags::STATX_DONT_SYNC, StatxFlags::INO);
            let found = rustix::fs::statx(CWD, &path, flags, wanted).ok()?;
            let (major, minor) = (found.stx_dev_major, found.stx_dev_minor);
            Some((path, format!("{major}:{minor} {}", found.stx_ino)))
        })
        .collect();
    let devices = std::fs::read_dir("/sys/class/block").into_iter().flatten();
    all.extend(devices.flatten().map(|device| {
        // A device that is plugged in again under its old name has another sequence number.
        let attribute =
            |name| std::fs::read_to_string(device.path().join(name)).unwrap_or_default();
        let attributes = ["dev", "size", "diskseq"].map(attribute);
        (device.path(), attributes.concat())
    }));
    Names(all)
}

/// Names that may lead to drives.
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
    paths
}

/// What is behind a name.
struct Seen {
    path: PathBuf,
    identity: Option<Identity>,
    is_link: bool,
    label: Result<Label, LabelError>,
    /// The copy at the end of a drive that has no label.
    copy: Option<Label>,
    /// The label that a command has taken from the drive.
    retired: Option<Label>,
}

/// Looks behind all names at once, in the order of the names. A drive has many names (`/dev/disk/by-id`), and counts
/// once.
fn seen(paths: Vec<PathBuf>) -> Vec<Seen> {
    let look = |path: PathBuf| {
        let path = std::path::absolute(&path).unwrap_or(path);
        if !answers(&path) {
            tracing::warn!("{} does not answer, and is left out", path.display());
            return None;
        }
        let kind = std::fs::metadata(&path).ok()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return None;
        }
        let link = path.symlink_metadata();
        let Labels {
            label,
            copy,
            retired,
        } = labels_at(&path);
        Some(Seen {
            identity: identity(&path),
            is_link: link.is_ok_and(|found| found.is_symlink()),
            label,
            copy,
            retired,
            path,
        })
    };
    let mut all: Vec<Seen> = at_once(paths, look).into_iter().flatten().collect();
    // Its own name is preferred to a link's.
    all.sort_by(|one, two| (one.is_link, &one.path).cmp(&(two.is_link, &two.path)));
    all.dedup_by(|one, two| one.path == two.path);
    let mut known = BTreeSet::new();
    all.retain(|seen| seen.identity.is_none_or(|found| known.insert(found)));
    all.sort_by(|one, two| one.path.cmp(&two.path));
    all
}

/// The names behind which there is a label.
fn labelled(paths: Vec<PathBuf>) -> Vec<(PathBuf, Label)> {
    let seen = seen(paths).into_iter();
    seen.filter_map(|seen| Some((seen.path, seen.label.ok()?)))
        .collect()
}

/// Threads that look at names at the same time.
const LOOKS_AT_ONCE: usize = 16;

/// Calls `look` for every name, on threads of its own. A name whose drive does not answer is left out when no other
/// look has ended for [`ANSWER_WITHIN`]; its thread waits on.
fn at_once<T: Send + 'static>(
    mut paths: Vec<PathBuf>,
    look: impl Fn(PathBuf) -> T + Copy + Send + 'static,
) -> Vec<T> {
    paths.sort();
    paths.dedup();
    let count = paths.len();
    let paths = Arc::new(Mutex::new(BTreeMap::from_iter(
        paths.into_iter().enumerate(),
    )));
    let (to, looks) = channel();
    let start = || {
        let (paths, to) = (Arc::clone(&paths), to.clone());
        let work = move || {
            loop {
                let next = lock(&paths).pop_first();
                let Some((_, path)) = next else { return };
                // The receiver does not wait for a late answer.
                to.send(look(path)).ok();
            }
        };
        let thread = std::thread::Builder::new().name("drive-look".to_owned());
        thread.spawn(work).is_ok()
    };
    let mut found = Vec::new();
    for _ in 0..LOOKS_AT_ONCE.min(count) {
        start();
    }
    while found.len() < count {
        // Longer than a probe takes.
        match looks.recv_timeout(ANSWER_WITHIN + ANSWER_WITHIN / 10) {
            Ok(seen) => found.push(seen),
            // All threads wait for drives that do not answer: others look at the names that are left.
            Err(_) if !lock(&paths).is_empty() && start() => {}
            Err(_) => {
                let late = count - found.len();
                tracing::warn!("{late} names lead to drives that do not answer; they are left out");
                break;
            }
        }
    }
    found
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a drive has as a label.
pub(super) struct Labels {
    /// The label itself.
    pub(super) label: Result<Label, LabelError>,
    /// The copy at the end, if there is no label.
    pub(super) copy: Option<Label>,
    /// The label that a command has taken from the drive, if there is neither.
    pub(super) retired: Option<Label>,
}

/// The labels of the drive at a path. A drive that cannot be opened has none.
fn labels_at(path: &Path) -> Labels {
    match open_for_labels(path) {
        Ok(file) => labels_of(&file),
        Err(_) => Labels {
            label: Err(LabelError::Absent),
            copy: None,
            retired: None,
        },
    }
}

/// Opens a drive to read its labels, past the page cache where the drive allows that: another program may have read
/// the drive before its content changed. Takes no lock.
pub(super) fn open_for_labels(path: &Path) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
    let open = |flags| rustix::fs::open(path, flags, Mode::empty());
    open(flags | OFlags::DIRECT).or_else(|_| open(flags))
}

/// The labels of a drive.
pub(super) fn labels_of(file: &OwnedFd) -> Labels {
    let newest = |offsets: [u64; 2]| {
        let slots = offsets.map(|offset| {
            let page = read_up_to(file, offset, PAGE_BYTES);
            // Most drives and files are no drives of a pool, and one page shows that.
            match page.starts_with(&LABEL_MAGIC) {
                true => read_up_to(file, offset, LABEL_SLOT_BYTES),
                false => page,
            }
        });
        newest_label([&slots[0], &slots[1]]).map(|(_, label)| label)
    };
    let label = newest(LABEL_OFFSETS);
    if !matches!(label, Err(LabelError::Absent | LabelError::Damaged { .. })) {
        return Labels {
            label,
            copy: None,
            retired: None,
        };
    }
    let size_bytes = rustix::fs::seek(file, SeekFrom::End(0)).unwrap_or(0);
    let copy = label_copies(size_bytes, 0).and_then(|offsets| newest(offsets).ok());
    let copy = copy.filter(|copy| is_copy(copy, size_bytes));
    let taken = match &copy {
        Some(_) => None,
        None => retired(|offset, length| read_up_to(file, offset, length))
            .filter(|_| !is_marked(file, size_bytes)),
    };
    Labels {
        label,
        copy,
        retired: taken.map(|taken| taken.label),
    }
}

/// Whether either end of a drive has the mark of another use.
fn is_marked(file: &OwnedFd, size_bytes: u64) -> bool {
    let head = read_up_to(file, 0, MARKED_BYTES);
    let tail_at =
        size_bytes.saturating_sub(MARKED_BYTES as u64) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let tail = read_up_to(file, tail_at, 2 * MARKED_BYTES);
    !probe(&head, &tail, size_bytes).is_empty()
}

/// Reads at `offset` as far as the file goes, or until a read fails.
fn read_up_to(file: &OwnedFd, offset: u64, length: usize) -> Vec<u8> {
    // Pages, as reads past the page cache need them.
    let mut memory = Memory::zeroed(length);
    let Some(bytes) = memory.unique_mut() else {
        return Vec::new();
    };
    let mut filled = 0;
    while filled < length {
        match rustix::io::pread(file, &mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(_) => break,
        }
    }
    bytes[..filled].to_vec()
}

/// A drive whose label has a version that this program does not read.
fn of_another_version(places: &[PathBuf]) -> Option<(PathBuf, LabelError)> {
    seen(candidates(places)).into_iter().find_map(|seen| {
        let (path, error) = (seen.path, seen.label.err()?);
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
