//! Finds the pools to which the drives of this machine belong.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use array::format::{
    Generation, LABEL_MAGIC, LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, LabelError, label_copies,
    newest_label,
};
use array::pool::{SeatFacts, SeatState};
use block::{Memory, PAGE_BYTES};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use uuid::Uuid;

use super::AssembleError;
use super::drive::is_copy;
use super::occupant::{ANSWER_WITHIN, Access, Occupant, OpenPool, examine, within};
use super::probe::answers;
use super::retired::retired;
use super::stack::{takes_volumes, volume_named};
use crate::drive::{DriveUri, Identity, OpenVolume, Place, identity, probe, sync};

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
    pub generation: Generation,
    /// Drives found.
    pub found: Vec<Place>,
    /// Drives of which only the copy of the label at the end was found.
    pub overwritten: Vec<Place>,
    /// Drives from which a command has taken the label; only [`scan_destroyed`] finds them.
    pub destroyed: Vec<Place>,
    /// Drives that the newest label lists.
    pub drives: usize,
    /// Names that the newest label gives the drives.
    pub(super) names: BTreeMap<Place, DriveUri>,
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
            generation: Generation(0),
            found: Vec::new(),
            overwritten: Vec::new(),
            destroyed: Vec::new(),
            drives: 0,
            names: BTreeMap::new(),
            seen: BTreeSet::new(),
            expected: BTreeSet::new(),
        }
    }

    fn add(&mut self, place: Place, label: &Label) {
        self.found.push(place);
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
        let place = |seat: &SeatFacts| {
            let uri: DriveUri = seat.path.parse().ok()?;
            Some((uri.spec.place()?, uri))
        };
        let is_in = |seat: &&SeatFacts| !matches!(seat.state, SeatState::Out { .. });
        let counted = facts.seats.iter().filter(is_in);
        self.expected = counted
            .filter(|seat| place(seat).is_some())
            .map(|seat| seat.drive)
            .collect();
        self.names = facts.seats.iter().filter_map(place).collect();
    }
}

/// Searches for labels: in the files and devices named, in all files of the directories named, and, where nothing is
/// named, on all block devices. Pools of which a drive is found there, and where nothing is named all pools, are also
/// looked for on the volumes of the pools that are open here. Skips what cannot be read, and what does not answer
/// within [`ANSWER_WITHIN`].
#[must_use]
pub fn scan(places: &[PathBuf], open: &[OpenPool]) -> Vec<FoundPool> {
    scan_with(places, open, Instead::Copies)
}

/// Searches, in the same places, for pools that were destroyed and whose labels can be given back. Drives that still have
/// their label belong to them as well.
#[must_use]
pub fn scan_destroyed(places: &[PathBuf], open: &[OpenPool]) -> Vec<FoundPool> {
    let mut pools = scan_with(places, open, Instead::Retired);
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

fn scan_with(places: &[PathBuf], open: &[OpenPool], instead: Instead) -> Vec<FoundPool> {
    let mut pools: BTreeMap<Uuid, FoundPool> = BTreeMap::new();
    for seen in seen(candidates(places)).into_iter().chain(on_volumes(open)) {
        let other = match instead {
            Instead::Copies => seen.copy,
            Instead::Retired => seen.retired,
        };
        let (label, has_label) = match (seen.label, other) {
            (Ok(label), _) => (label, true),
            (Err(_), Some(label)) => (label, false),
            (Err(_), None) => continue,
        };
        let is_volume = matches!(seen.place, Place::Volume { .. });
        if is_volume && !places.is_empty() && !pools.contains_key(&label.facts.uuid) {
            continue;
        }
        let pool = pools.entry(label.facts.uuid);
        let pool = pool.or_insert_with(|| FoundPool::new(&label));
        match instead {
            // The volume is attached, and its device was found.
            _ if is_volume && pool.seen.contains(&label.drive) => {}
            _ if has_label => pool.add(seen.place, &label),
            Instead::Copies => {
                pool.overwritten.push(seen.place);
                pool.take_facts(&label);
            }
            Instead::Retired => {
                pool.destroyed.push(seen.place);
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
pub fn used_again(found: &FoundPool, open: &[OpenPool]) -> Vec<(Place, String)> {
    let identity = |place: &Place| match place {
        Place::Path(path) => identity(path),
        Place::Volume { .. } => {
            let volume = volume_named(&place.plain(), open);
            volume.map(|volume| Identity::Volume(volume.uuid))
        }
    };
    let known: BTreeSet<Identity> = { found.found.iter() }
        .chain(&found.destroyed)
        .filter_map(identity)
        .collect();
    let missing = { found.names.iter() }
        .filter(|(place, _)| identity(place).is_some_and(|own| !known.contains(&own)));
    missing
        .filter_map(
            |(place, uri)| match examine(uri, open, Access::Read).occupant {
                Occupant::Missing(_) => None,
                occupant => Some((place.clone(), occupant.to_string())),
            },
        )
        .collect()
}

/// Searches for one pool where its drives were, and, for those that are not there, on the volumes of the pools that are
/// open here and on all block devices: names change when a machine starts.
#[must_use]
pub fn find(identity: &str, remembered: &[PathBuf], open: &[OpenPool]) -> Option<FoundPool> {
    let uuid: Uuid = identity.parse().ok()?;
    let mut found: Option<FoundPool> = None;
    let mut look = |labelled: Vec<(Place, Label)>| {
        for (place, label) in labelled {
            if label.facts.uuid != uuid {
                continue;
            }
            let pool = found.get_or_insert_with(|| FoundPool::new(&label));
            if !pool.seen.contains(&label.drive) {
                pool.add(place, &label);
            }
        }
        found.as_ref().is_some_and(FoundPool::is_complete)
    };
    // Without a place, `candidates` means all block devices.
    let is_complete = !remembered.is_empty() && look(labelled(seen(candidates(remembered))))
        || look(labelled(on_volumes(open)))
        || look(labelled(seen(candidates(&[]))));
    tracing::debug!(%uuid, is_complete, "looked for its drives");
    found
}

/// Names of drives with the label of this drive of this pool, among `places` and all block devices. More than one is
/// found where a drive was copied.
#[must_use]
pub fn with_label_of(pool: Uuid, drive: Uuid, places: &[PathBuf]) -> Vec<PathBuf> {
    let mut paths = candidates(places);
    paths.extend(candidates(&[]));
    let ours = |label: &Label| label.facts.uuid == pool && label.drive == drive;
    let found = labelled(seen(paths)).into_iter();
    found
        .filter_map(|(place, label)| match place {
            Place::Path(path) => ours(&label).then_some(path),
            Place::Volume { .. } => None,
        })
        .collect()
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
    place: Place,
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
            place: Place::Path(path),
        })
    };
    let mut all: Vec<Seen> = at_once(paths, look).into_iter().flatten().collect();
    // Its own name is preferred to a link's.
    all.sort_by(|one, two| (one.is_link, &one.place).cmp(&(two.is_link, &two.place)));
    all.dedup_by(|one, two| one.place == two.place);
    let mut known = BTreeSet::new();
    all.retain(|seen| seen.identity.is_none_or(|found| known.insert(found)));
    all.sort_by(|one, two| one.place.cmp(&two.place));
    all
}

/// Looks at the volumes of open pools that are no drives of a pool that is open.
fn on_volumes(open: &[OpenPool]) -> Vec<Seen> {
    let used: BTreeSet<Identity> = { open.iter() }
        .flat_map(|pool| &pool.members)
        .filter_map(|member| member.device)
        .collect();
    let volumes: Vec<(&OpenPool, &OpenVolume)> = { open.iter() }
        .flat_map(|pool| pool.volumes.iter().map(move |volume| (pool, volume)))
        .filter(|(_, volume)| !used.contains(&Identity::Volume(volume.uuid)))
        .collect();
    let look = |pool: &OpenPool, volume: &OpenVolume| {
        let device = Arc::clone(&volume.device);
        let labels = within(2 * ANSWER_WITHIN, move || {
            let size_bytes = device.limits().size_bytes;
            labels_by(size_bytes, |offset, length| {
                let left = usize::try_from(size_bytes.saturating_sub(offset)).unwrap_or(length);
                sync::read(&*device, offset, length.min(left)).unwrap_or_default()
            })
        });
        let place = Place::Volume {
            pool: pool.name.clone(),
            volume: volume.name.clone(),
        };
        let Some(Labels {
            label,
            copy,
            retired,
        }) = labels
        else {
            tracing::warn!("{place} does not answer, and is left out");
            return None;
        };
        // Only such a pool takes volumes. Others are those of a client, such as a guest.
        let takes = |label: &Label| takes_volumes(&label.facts.scheme);
        let is_other = { label.as_ref().ok() }
            .or(copy.as_ref())
            .or(retired.as_ref())
            .is_none_or(|label| !takes(label));
        (!is_other).then_some(Seen {
            place,
            identity: Some(Identity::Volume(volume.uuid)),
            is_link: false,
            label,
            copy,
            retired,
        })
    };
    let mut seen = Vec::new();
    for some in volumes.chunks(LOOKS_AT_ONCE) {
        std::thread::scope(|scope| {
            let looks: Vec<_> = { some.iter() }
                .map(|&(pool, volume)| scope.spawn(move || look(pool, volume)))
                .collect();
            seen.extend(looks.into_iter().filter_map(|look| look.join().ok()?));
        });
    }
    seen
}

/// The names behind which there is a label.
fn labelled(seen: Vec<Seen>) -> Vec<(Place, Label)> {
    let seen = seen.into_iter();
    seen.filter_map(|seen| Some((seen.place, seen.label.ok()?)))
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
    let size_bytes = rustix::fs::seek(file, SeekFrom::End(0)).unwrap_or(0);
    labels_by(size_bytes, |offset, length| {
        read_up_to(file, offset, length)
    })
}

/// The labels of a drive of this size, of which `read` returns bytes: as many as asked for, or fewer.
fn labels_by(size_bytes: u64, read: impl Fn(u64, usize) -> Vec<u8>) -> Labels {
    let newest = |offsets: [u64; 2]| {
        let slots = offsets.map(|offset| {
            let page = read(offset, PAGE_BYTES);
            // Most drives and files are no drives of a pool, and one page shows that.
            match page.starts_with(&LABEL_MAGIC) {
                true => read(offset, LABEL_SLOT_BYTES),
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
    let copy = label_copies(size_bytes, 0).and_then(|offsets| newest(offsets).ok());
    let copy = copy.filter(|copy| is_copy(copy, size_bytes));
    let taken = match &copy {
        Some(_) => None,
        None => retired(&read).filter(|_| !is_marked(size_bytes, &read)),
    };
    Labels {
        label,
        copy,
        retired: taken.map(|taken| taken.label),
    }
}

/// Whether either end of a drive has the mark of another use.
fn is_marked(size_bytes: u64, read: impl Fn(u64, usize) -> Vec<u8>) -> bool {
    let head = read(0, MARKED_BYTES);
    let tail_at =
        size_bytes.saturating_sub(MARKED_BYTES as u64) / PAGE_BYTES as u64 * PAGE_BYTES as u64;
    let tail = read(tail_at, 2 * MARKED_BYTES);
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
        let (place, error) = (seen.place, seen.label.err()?);
        let other = match error {
            LabelError::EarlyFormat | LabelError::Format { .. } | LabelError::Features { .. } => {
                true
            }
            LabelError::Absent | LabelError::Damaged { .. } => false,
        };
        other.then_some((PathBuf::from(place.to_string()), error))
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
        "the block devices of this machine, and on the volumes of open pools".to_owned()
    } else {
        let places: Vec<_> = places
            .iter()
            .map(|place| place.display().to_string())
            .collect();
        places.join(", ")
    };
    AssembleError::NotFound { name, places }
}
