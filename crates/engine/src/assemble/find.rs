//! Finds the pools to which the drives of this machine belong.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};

use array::format::{LABEL_OFFSETS, LABEL_SLOT_BYTES, Label, LabelError, newest_label};
use array::pool::{SeatFacts, SeatState};
use uuid::Uuid;

use super::AssembleError;
use crate::drive::{DriveUri, identity};

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
            scheme: crate::status::scheme_as_it_is(&facts.scheme),
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

/// Searches for labels: in the files and devices named, in all files of the directories named, and, where nothing is
/// named, on all block devices. Skips what cannot be read.
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

/// Searches for one pool where its drives were, and, for those that are not there, on all block devices: names change
/// when a machine starts.
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
    // A drive has many names (`/dev/disk/by-id`), and counts once. Its own name is preferred to a link's.
    let is_link = |path: &PathBuf| {
        path.symlink_metadata()
            .is_ok_and(|found| found.is_symlink())
    };
    paths.sort_by_key(is_link);
    let mut seen = BTreeSet::new();
    paths.retain(|path| identity(path).is_none_or(|found| seen.insert(found)));
    paths.sort();
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

/// A drive whose label has a version that this program does not read.
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
