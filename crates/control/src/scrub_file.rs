//! The last scrub of each pool, preserved across restarts of the daemon: `scrubs.json` in the state directory, by the
//! pools' identities.
//!
//! ```text
//!  pool thread ── "a scrub has ended" ──► queue ──► one thread ── status of the pool ──► file
//! ```
//!
//! The label counts the days to the next scrub, and has no more than the position of the one that is under way. A pool's
//! thread does not wait for the file. A record that is lost in a crash costs a line of `pool status`.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use engine::PoolHandle;
use engine::status::{PoolStatus, ScrubStatus};
use serde::{Deserialize, Serialize};

use crate::state::{read_or_set_aside, write_whole};

const FILE: &str = "scrubs.json";
/// Version of the file's format.
const VERSION: u32 = 1;
/// The end of a scrub is computed from the time since then, so it differs a little from one status to the next.
const SAME_MILLISECONDS: u64 = 5_000;

#[derive(Debug, Default, Serialize, Deserialize)]
struct Document {
    version: u32,
    /// By identity.
    pools: BTreeMap<String, ScrubStatus>,
}

/// The record of last scrubs, and the queue of the thread that asks pools.
#[derive(Clone, Debug)]
pub(crate) struct ScrubFile {
    record: Arc<Record>,
    queue: Sender<Weak<PoolHandle>>,
}

#[derive(Debug)]
struct Record {
    path: PathBuf,
    pools: Mutex<BTreeMap<String, ScrubStatus>>,
}

impl ScrubFile {
    /// Reads the file in `state`, the daemon's directory.
    ///
    /// # Errors
    /// When the file cannot be read, or there is no thread.
    pub(crate) fn open(state: &Path) -> io::Result<Self> {
        let path = state.join(FILE);
        let is_ours = |document: &Document| match document.version {
            VERSION => Ok(()),
            version => Err(format!("its version is {version}")),
        };
        let lost = "the last scrubs of pools are not known";
        let document = read_or_set_aside(&path, is_ours, lost)?;
        let record = Arc::new(Record {
            path,
            pools: Mutex::new(document.unwrap_or_default().pools),
        });
        let (queue, ended) = channel();
        let to = Arc::clone(&record);
        std::thread::Builder::new()
            .name("scrubs".to_owned())
            .spawn(move || note_all(&to, &ended))?;
        Ok(Self { record, queue })
    }

    /// A scrub of the pool has ended. Never waits.
    pub(crate) fn has_ended(&self, pool: &Weak<PoolHandle>) {
        self.queue.send(Weak::clone(pool)).unwrap_or_default();
    }

    /// Records the scrub that a status shows, if it has ended and is not recorded yet.
    pub(crate) fn note(&self, status: &PoolStatus) {
        self.record.note(status);
    }

    /// The last scrub of a pool that has ended: of this opening, or an earlier one.
    pub(crate) fn last(&self, status: &PoolStatus) -> Option<ScrubStatus> {
        ended(status).or_else(|| self.record.lock().get(&status.uuid).cloned())
    }

    /// Deletes the record of a pool.
    pub(crate) fn forget(&self, pool: &str) {
        let mut pools = self.record.lock();
        if pools.remove(pool).is_some() {
            self.record.write(&pools);
        }
    }
}

/// The scrub that a status shows, if it has ended.
pub(crate) fn ended(status: &PoolStatus) -> Option<ScrubStatus> {
    let scrub = status.scrub.clone();
    scrub.filter(|scrub| scrub.ended_at_milliseconds.is_some())
}

/// Whether both are the same scrub.
fn is_same(one: &ScrubStatus, other: &ScrubStatus) -> bool {
    let at = |scrub: &ScrubStatus| scrub.ended_at_milliseconds.unwrap_or(0);
    let undated = |scrub: &ScrubStatus| ScrubStatus {
        ended_at_milliseconds: None,
        ..scrub.clone()
    };
    at(one).abs_diff(at(other)) < SAME_MILLISECONDS && undated(one) == undated(other)
}

impl Record {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, ScrubStatus>> {
        self.pools.lock().expect("no holder of the lock panics")
    }

    fn note(&self, status: &PoolStatus) {
        let mut pools = self.lock();
        let recorded = pools.get(&status.uuid);
        let known = |scrub: &ScrubStatus| recorded.is_some_and(|old| is_same(old, scrub));
        if let Some(scrub) = ended(status).filter(|scrub| !known(scrub)) {
            pools.insert(status.uuid.clone(), scrub);
            self.write(&pools);
        }
    }

    fn write(&self, pools: &BTreeMap<String, ScrubStatus>) {
        let document = Document {
            version: VERSION,
            pools: pools.clone(),
        };
        if let Err(error) = write_whole(&self.path, &document) {
            tracing::warn!(
                "{} was not written, so the last scrubs of pools are not known after a restart: {error}",
                self.path.display()
            );
        }
    }
}

fn note_all(record: &Record, ended: &Receiver<Weak<PoolHandle>>) {
    while let Ok(pool) = ended.recv() {
        // A pool that is just being closed is asked by who closes it.
        if let Some(Ok(status)) = pool.upgrade().map(|pool| pool.status()) {
            record.note(&status);
        }
    }
}
