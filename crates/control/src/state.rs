//! The daemon's memory across restarts: the pools that were open and where their volumes were served, in
//! `exports.json` of its state directory.
//!
//! An update writes a new file beside the old one, syncs the new file and renames it over the old one: a reader finds
//! the old or the new content, whole. The file states what *shall* be open and served. An export is recorded before
//! it begins and removed after it has ended, so the file names everything that a killed daemon may leave behind.

use std::borrow::Cow;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use block::Hint;
use rustix::fs::{FlockOperation, flock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Attach;
use crate::event_files::EventFiles;
use crate::history::HistoryFiles;
use crate::scrub_file::ScrubFile;

const FILE: &str = "exports.json";
/// Locked by the daemon that uses the directory.
const LOCK: &str = "lock";
/// Version of the file's format.
const VERSION: u32 = 1;

/// Why a state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Another daemon uses the directory.
    #[error(
        "the state directory {} is in use by another daemon (process {holder})",
        directory.display()
    )]
    Busy {
        /// The directory.
        directory: PathBuf,
        /// The process that has it.
        holder: String,
    },
    /// The operating system refused it.
    #[error("the state directory {} cannot be used: {source}", directory.display())]
    System {
        /// The directory.
        directory: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}

impl Hint for StateError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some(match self {
            Self::Busy { .. } => "stop it, or choose another with --state".into(),
            Self::System { .. } => "choose another with --state".into(),
        })
    }
}

/// A pool that shall be open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedPool {
    pub(crate) name: String,
    pub(crate) uuid: String,
    /// Where its drives were.
    pub(crate) places: Vec<PathBuf>,
    /// Its drives that are volumes of other pools. These pools are opened first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) volumes: Vec<SavedVolume>,
    #[serde(default)]
    pub(crate) exports: Vec<SavedExport>,
}

/// A volume that is a drive of a pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedVolume {
    pub(crate) pool: String,
    pub(crate) pool_uuid: String,
    pub(crate) volume: String,
}

/// A volume that shall be served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SavedExport {
    pub(crate) volume: String,
    pub(crate) attach: Attach,
    /// The loop device that was made for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) device: Option<SavedDevice>,
}

impl SavedExport {
    pub(crate) fn is(&self, volume: &str, attach: &Attach) -> bool {
        self.volume == volume && self.attach == *attach
    }
}

/// A loop device, and what distinguishes it from a later one with the same number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedDevice {
    /// The device.
    pub path: PathBuf,
    /// The kernel's count of devices of that number.
    pub sequence: Option<u64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Document {
    version: u32,
    pools: Vec<SavedPool>,
}

/// An open state directory, locked by this daemon.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    _lock: File,
    pools: Mutex<Vec<SavedPool>>,
    /// The events of pools.
    events: EventFiles,
    /// Their last scrubs.
    scrubs: ScrubFile,
    /// Who changed what in pools.
    history: HistoryFiles,
}

impl StateFile {
    /// Opens a directory, and creates it if it does not exist. A file in it that cannot be parsed is renamed.
    ///
    /// # Errors
    /// When another daemon has it, or it cannot be read and written.
    pub fn open(directory: &Path) -> Result<Self, StateError> {
        let failed = |source| StateError::System {
            directory: directory.to_owned(),
            source,
        };
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(failed)?;
        let mut lock = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(directory.join(LOCK))
            .map_err(failed)?;
        if let Err(error) = flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            if error != rustix::io::Errno::WOULDBLOCK {
                return Err(failed(error.into()));
            }
            let mut holder = String::new();
            lock.read_to_string(&mut holder).map_err(failed)?;
            return Err(StateError::Busy {
                directory: directory.to_owned(),
                holder: holder.trim().to_owned(),
            });
        }
        lock.set_len(0).map_err(failed)?;
        writeln!(lock, "{}", std::process::id()).map_err(failed)?;
        let path = directory.join(FILE);
        let is_ours = |document: &Document| match document.version {
            VERSION => Ok(()),
            version => Err(format!("its version is {version}")),
        };
        let lost = "import pools and attach volumes by hand";
        let document = read_or_set_aside(&path, is_ours, lost).map_err(failed)?;
        let pools = document.map_or_else(Vec::new, |document| document.pools);
        Ok(Self {
            path,
            _lock: lock,
            pools: Mutex::new(pools),
            events: EventFiles::open(directory, "events").map_err(failed)?,
            scrubs: ScrubFile::open(directory).map_err(failed)?,
            history: HistoryFiles::open(directory, "history").map_err(failed)?,
        })
    }

    fn lock(&self) -> MutexGuard<'_, Vec<SavedPool>> {
        self.pools.lock().expect("no holder of the lock panics")
    }

    /// What has happened to pools.
    pub(crate) const fn events(&self) -> &EventFiles {
        &self.events
    }

    /// When pools were scrubbed.
    pub(crate) const fn scrubs(&self) -> &ScrubFile {
        &self.scrubs
    }

    /// Who changed what in pools.
    pub(crate) const fn history(&self) -> &HistoryFiles {
        &self.history
    }

    /// All pools that are recorded as open.
    pub(crate) fn pools(&self) -> Vec<SavedPool> {
        self.lock().clone()
    }

    /// Records that a pool is open. Its recorded exports stay.
    pub(crate) fn remember_pool(
        &self,
        name: &str,
        uuid: &str,
        places: Vec<PathBuf>,
        volumes: Vec<SavedVolume>,
    ) {
        self.change(|pools| {
            if let Some(pool) = pools.iter_mut().find(|pool| pool.uuid == uuid) {
                name.clone_into(&mut pool.name);
                pool.places = places;
                pool.volumes = volumes;
            } else {
                pools.push(SavedPool {
                    name: name.to_owned(),
                    uuid: uuid.to_owned(),
                    places,
                    volumes,
                    exports: Vec::new(),
                });
            }
        });
    }

    /// Removes a pool and its exports.
    pub(crate) fn forget_pool(&self, uuid: &str) {
        self.change(|pools| pools.retain(|pool| pool.uuid != uuid));
    }

    /// Records an export. False if it was recorded already.
    ///
    /// # Errors
    /// If the file cannot be written. The export is not recorded then.
    pub(crate) fn remember_export(
        &self,
        uuid: &str,
        volume: &str,
        attach: &Attach,
    ) -> io::Result<bool> {
        let mut new = false;
        self.try_change(|pools| {
            let pool = pools.iter_mut().find(|pool| pool.uuid == uuid);
            let known = |pool: &&mut SavedPool| pool.exports.iter().any(|e| e.is(volume, attach));
            if let Some(pool) = pool.filter(|pool| !known(pool)) {
                pool.exports.push(SavedExport {
                    volume: volume.to_owned(),
                    attach: attach.clone(),
                    device: None,
                });
                new = true;
            }
        })?;
        Ok(new)
    }

    /// Records the loop device that was created for an export.
    pub(crate) fn remember_device(
        &self,
        uuid: &str,
        volume: &str,
        attach: &Attach,
        device: &SavedDevice,
    ) {
        self.change(|pools| {
            let of_pool = pools.iter_mut().filter(|pool| pool.uuid == uuid);
            let exports = of_pool.flat_map(|pool| &mut pool.exports);
            for export in exports.filter(|export| export.is(volume, attach)) {
                export.device = Some(device.clone());
            }
        });
    }

    /// Removes the exports of a pool for which `which` is true, and returns them.
    pub(crate) fn forget_exports(
        &self,
        uuid: &str,
        which: impl Fn(&SavedExport) -> bool,
    ) -> Vec<SavedExport> {
        let mut gone = Vec::new();
        self.change(|pools| {
            for pool in pools.iter_mut().filter(|pool| pool.uuid == uuid) {
                gone.extend(pool.exports.extract_if(.., |export| which(export)));
            }
        });
        gone
    }

    /// Changes the record, and writes the file if the record differs. The request succeeds even if the file cannot be
    /// written: the error is logged, and the next change writes the file again.
    fn change(&self, change: impl FnOnce(&mut Vec<SavedPool>)) {
        let mut pools = self.lock();
        let before = pools.clone();
        change(&mut pools);
        if *pools != before
            && let Err(error) = write(&self.path, &pools)
        {
            tracing::error!(
                "{} was not written, so a restart would not find things as they are: {error}",
                self.path.display()
            );
        }
    }

    /// The same for a request that fails if the file cannot be written: nothing is changed then.
    fn try_change(&self, change: impl FnOnce(&mut Vec<SavedPool>)) -> io::Result<()> {
        let mut pools = self.lock();
        let mut changed = pools.clone();
        change(&mut changed);
        if *pools != changed {
            write(&self.path, &changed)?;
            *pools = changed;
        }
        Ok(())
    }

    /// The file, for messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Reads a file of the state. One that is not understood is renamed; `lost` says what that means.
pub(crate) fn read_or_set_aside<T: DeserializeOwned>(
    path: &Path,
    is_ours: impl FnOnce(&T) -> Result<(), String>,
    lost: &str,
) -> io::Result<Option<T>> {
    let bytes = match fs::read(path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let document = serde_json::from_slice::<T>(&bytes).map_err(|error| error.to_string());
    let why = match document.and_then(|document| is_ours(&document).map(|()| document)) {
        Ok(document) => return Ok(Some(document)),
        Err(why) => why,
    };
    let aside = path.with_extension("json.unreadable");
    fs::rename(path, &aside)?;
    tracing::error!(
        "{} is not understood ({why}) and now called {}: {lost}",
        path.display(),
        aside.display()
    );
    Ok(None)
}

fn write(path: &Path, pools: &[SavedPool]) -> io::Result<()> {
    let document = Document {
        version: VERSION,
        pools: pools.to_vec(),
    };
    write_whole(path, &document)
}

/// Writes a file of the state anew: a reader finds the old or the new content, whole.
pub(crate) fn write_whole(path: &Path, document: &impl Serialize) -> io::Result<()> {
    let mut bytes = serde_json::to_vec_pretty(document)?;
    bytes.push(b'\n');
    let new = path.with_extension("json.new");
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&new)?;
    file.write_all(&bytes)?;
    file.sync_all()?;
    fs::rename(&new, path)?;
    let directory = path.parent().unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use testing::Directory;

    use super::*;

    fn by_nbd(address: &str) -> Attach {
        Attach {
            at: [("nbd".to_owned(), address.to_owned())].into(),
            ..Attach::default()
        }
    }

    #[test]
    fn what_is_noted_is_there_after_a_restart_and_what_is_struck_out_is_not() {
        let place = Directory::new();
        let state = StateFile::open(&place).unwrap();
        state.remember_pool("tank", "1", vec!["/a".into()], Vec::new());
        state.remember_pool("pond", "2", vec!["/b".into()], Vec::new());
        let [first, second] = ["unix:/s", "unix:/t"].map(by_nbd);
        assert!(state.remember_export("1", "v", &first).unwrap());
        assert!(
            !state.remember_export("1", "v", &first).unwrap(),
            "twice is once"
        );
        assert!(state.remember_export("1", "v", &second).unwrap());
        assert!(
            !state.remember_export("3", "v", &first).unwrap(),
            "no such pool"
        );
        let device = SavedDevice {
            path: "/dev/loop9".into(),
            sequence: Some(77),
        };
        state.remember_device("1", "v", &second, &device);
        let below = SavedVolume {
            pool: "pond".to_owned(),
            pool_uuid: "2".to_owned(),
            volume: "v".to_owned(),
        };
        state.remember_pool("tank", "1", vec!["/c".into()], vec![below.clone()]);
        drop(state);

        let state = StateFile::open(&place).unwrap();
        let pools = state.pools();
        assert_eq!(pools[0].places, [PathBuf::from("/c")]);
        assert_eq!(pools[0].volumes, [below]);
        assert_eq!(
            pools[1].volumes,
            [],
            "a file without volumes has no such field"
        );
        let exports = &pools[0].exports;
        assert!(exports[0].is("v", &first) && exports[1].is("v", &second));
        assert_eq!(exports[0].device, None);
        assert_eq!(exports[1].device, Some(device));
        state.forget_exports("1", |export| export.is("v", &first));
        state.forget_pool("2");
        drop(state);
        let pools = StateFile::open(&place).unwrap().pools();
        assert_eq!(pools.len(), 1);
        assert_eq!(pools[0].exports.len(), 1);
    }

    #[test]
    fn a_directory_has_one_daemon() {
        let place = Directory::new();
        let state = StateFile::open(&place).unwrap();
        let error = StateFile::open(&place).unwrap_err().to_string();
        assert!(error.contains(&std::process::id().to_string()), "{error}");
        drop(state);
        StateFile::open(&place).unwrap();
    }

    #[test]
    fn a_file_that_is_not_understood_is_kept_aside() {
        let place = Directory::new();
        drop(StateFile::open(&place).unwrap());
        for bytes in ["{", "{\"version\":9,\"pools\":[]}", ""] {
            fs::write(place.join(FILE), bytes).unwrap();
            assert_eq!(StateFile::open(&place).unwrap().pools(), []);
            let aside = place.join("exports.json.unreadable");
            assert_eq!(fs::read_to_string(aside).unwrap(), bytes);
            assert!(!place.join(FILE).exists());
        }
    }
}
