//! From one life of the daemon to the next: what is remembered, and how it comes back.
//!
//! ```text
//!   remembered ─► looked for ─── drives are there ───────────► opened, its exports served
//!                     │                                           ▲
//!                     └── some are not ─► waited for ── time is up or they are there ─► opened, or missing
//! ```
//!
//! Each pool comes back by itself. Requests are answered once no pool is being opened whose drives were there at once,
//! or after [`ANSWER_AFTER`]: scripts find what they expect, and a pool without its drives keeps nobody waiting. Until a pool
//! has come back it is among those that are missing, with the reason.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use block::Full;
use engine::assemble;
use engine::drive::DriveUri;
use engine::status::PoolStatus;
use export::fuse::loops;

use super::Daemon;
use super::exports::remove_dead;
use crate::Failure;
use crate::api::{Attach, Export, FailedRestore, Kind, Problem};
use crate::state::{SavedDevice, SavedExport, SavedPool, StateFile};

/// How often a drive that is late is looked for.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Requests are answered after this time though pools are still being opened.
const ANSWER_AFTER: Duration = Duration::from_secs(5);

/// How far the restoration is.
#[derive(Default)]
pub(super) struct Restoration {
    /// Pools that are looked for the first time, or being opened after that.
    first: Mutex<usize>,
    fewer: Condvar,
    /// The daemon ends: nothing more comes back.
    stopped: AtomicBool,
}

impl Restoration {
    fn first(&self) -> MutexGuard<'_, usize> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a pool among the first until it is open, missing, or waited for.
struct First<'a>(&'a Restoration);

impl Drop for First<'_> {
    fn drop(&mut self) {
        *self.0.first() -= 1;
        self.0.fewer.notify_all();
    }
}

/// Where the drives of a pool are.
fn places(status: &PoolStatus) -> Vec<PathBuf> {
    let paths = status.seats.iter().filter_map(|seat| {
        let uri: DriveUri = seat.path.parse().ok()?;
        uri.spec.path().map(Path::to_owned)
    });
    paths.collect()
}

impl Daemon {
    fn missing(&self) -> MutexGuard<'_, Vec<FailedRestore>> {
        let failed_restores = self.failed_restores.lock();
        failed_restores.expect("no holder of the lock panics")
    }

    /// What should be here since an earlier life and is not.
    #[must_use]
    pub fn failed_restores(&self) -> Vec<FailedRestore> {
        self.missing().clone()
    }

    /// Remembers a pool that is open, and where its drives are now. One that is memory through and
    /// through ends with the daemon.
    pub(super) fn remember(&self, name: &str) {
        let Some(state) = &self.state else { return };
        let Ok(status) = self.status(name) else {
            return;
        };
        let places = places(&status.pool);
        if !places.is_empty() {
            state.remember_pool(name, &status.pool.uuid, places);
        }
    }

    /// Forgets a pool that was closed for good.
    pub(super) fn forget(&self, status: &PoolStatus) {
        if let Some(state) = &self.state {
            state.forget_pool(&status.uuid);
        }
        self.missing().retain(|missing| missing.uuid != status.uuid);
    }

    /// Forgets a pool that did not come back; whether there was one.
    pub(super) fn forget_failed_restores(&self, pool: &str) -> bool {
        let gone: Vec<FailedRestore> = self
            .missing()
            .extract_if(.., |missing| {
                missing.pool == pool && missing.volume.is_none()
            })
            .collect();
        for missing in &gone {
            if let Some(state) = &self.state {
                state.forget_pool(&missing.uuid);
            }
            tracing::info!(pool, uuid = missing.uuid, "forgotten");
        }
        !gone.is_empty()
    }

    /// A volume's export that did not come back is of no interest any more; whether there was one.
    pub(super) fn missing_no_more(&self, uuid: &str, volume: &str) -> bool {
        let mut missing = self.missing();
        let before = missing.len();
        missing.retain(|missing| missing.uuid != uuid || missing.volume.as_deref() != Some(volume));
        missing.len() < before
    }

    /// Remembers that a volume is to be served; false if that was to be already.
    pub(super) fn remember_export(&self, uuid: &str, volume: &str, attach: &Attach) -> bool {
        let state = self.state.as_ref();
        state.is_some_and(|state| state.remember_export(uuid, volume, attach))
    }

    /// Remembers the loop device that was made: after a crash nothing else may tell whose it was.
    pub(super) fn remember_device(&self, uuid: &str, attach: &Attach, served: &Export) {
        let (Some(state), Some(device), true) = (&self.state, &served.device, attach.loop_device)
        else {
            return;
        };
        let device = SavedDevice {
            path: device.clone(),
            sequence: loops::sequence(device),
        };
        state.remember_device(uuid, &served.volume, attach, &device);
    }

    pub(super) fn forget_exports(&self, uuid: &str, which: impl Fn(&SavedExport) -> bool) {
        if let Some(state) = &self.state {
            state.forget_exports(uuid, which);
        }
    }

    /// What is to come back. Until it has, it counts as missing.
    pub(crate) fn begin_restoring(&self) -> Vec<SavedPool> {
        let pools = self.state.as_ref().map(StateFile::pools);
        let pools = pools.unwrap_or_default();
        *self.restoration.first() = pools.len();
        let coming = pools.iter().map(|saved| FailedRestore {
            pool: saved.name.clone(),
            uuid: saved.uuid.clone(),
            volume: None,
            problem: not_yet(&saved.name, "it is being opened"),
            restoring: true,
        });
        self.missing().extend(coming);
        pools
    }

    /// Opens the pools that were open in an earlier life, and serves their volumes where they were
    /// served. Drives that are not there are waited for. What does not come back is in the log and in
    /// [`Daemon::failed_restores`].
    pub(crate) fn restore(&self, pools: &[SavedPool], late_drives: Duration) {
        // One pool's drives must not keep another one waiting.
        std::thread::scope(|scope| {
            for pool in pools {
                let first = First(&self.restoration);
                scope.spawn(move || self.restore_pool(pool, late_drives, first));
            }
        });
    }

    /// Waits until no pool is being opened whose drives were there at once; not for long.
    pub(crate) fn wait_for_first(&self) {
        let some = |left: &mut usize| *left > 0;
        let waiting = self.restoration.first();
        let waited = (self.restoration.fewer).wait_timeout_while(waiting, ANSWER_AFTER, some);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// From now on no more drives are waited for.
    pub(crate) fn stop_restoring(&self) {
        self.restoration.stopped.store(true, Ordering::SeqCst);
    }

    /// Whether a pool is still to come back: nobody has imported or forgotten it meanwhile.
    fn is_coming(&self, uuid: &str) -> bool {
        let missing = self.missing();
        let mut coming = missing.iter().filter(|missing| missing.restoring);
        coming.any(|missing| missing.uuid == uuid)
    }

    fn is_open(&self, uuid: &str) -> bool {
        self.statuses().iter().any(|pool| pool.uuid == uuid)
    }

    /// Looks for a pool's drives until all that it counts on are there. `None` if nobody wants it any more.
    fn find_patiently(
        &self,
        saved: &SavedPool,
        late_drives: Duration,
        first: &mut Option<First<'_>>,
    ) -> Option<Option<assemble::FoundPool>> {
        let deadline = Instant::now() + late_drives;
        loop {
            let found = assemble::find(&saved.uuid, &saved.places);
            let complete = found.as_ref().is_some_and(assemble::FoundPool::is_complete);
            if self.restoration.stopped.load(Ordering::SeqCst) || !self.is_coming(&saved.uuid) {
                return None;
            }
            if complete || Instant::now() > deadline {
                return Some(found);
            }
            if let Some(first) = first.take() {
                for missing in self.missing().iter_mut() {
                    if missing.uuid == saved.uuid && missing.restoring {
                        let why = "some of its drives are not there, and are waited for";
                        missing.problem = not_yet(&saved.name, why);
                    }
                }
                drop(first);
            }
            std::thread::sleep(RETRY_INTERVAL);
        }
    }

    fn restore_pool(&self, saved: &SavedPool, late_drives: Duration, first: First<'_>) {
        let what = format!("pool `{}` was not opened again", saved.name);
        let mut first = Some(first);
        let Some(found) = self.find_patiently(saved, late_drives, &mut first) else {
            return;
        };
        let opened = found
            .ok_or_else(|| {
                let places: Vec<String> = saved
                    .places
                    .iter()
                    .map(|place| place.display().to_string())
                    .collect();
                Failure::missing(
                    &*what,
                    format!("none of its drives was found: {}", places.join(", ")),
                    format!(
                        "`ravelin pool import --dir DIR {0}` when they are there, or `ravelin pool export {0}` to forget it",
                        saved.name
                    ),
                )
            })
            .and_then(|found| self.open(&found, false, &what));
        match opened {
            Ok(()) => self.restore_exports(&saved.uuid),
            // Somebody has imported it meanwhile, or forgotten it.
            Err(_) if !self.is_coming(&saved.uuid) || self.is_open(&saved.uuid) => {}
            Err(failure) => {
                saved.exports.iter().for_each(remove_dead);
                self.missing().retain(|missing| missing.uuid != saved.uuid);
                self.did_not_return(&saved.name, &saved.uuid, None, failure);
            }
        }
    }

    /// Serves the volumes of a pool that has just been opened as they were served before.
    pub(super) fn restore_exports(&self, uuid: &str) {
        let Some(state) = &self.state else { return };
        self.missing()
            .retain(|missing| missing.uuid != uuid || missing.restoring);
        let pools = state.pools();
        let saved = pools.iter().find(|pool| pool.uuid == uuid);
        for export in saved.iter().flat_map(|saved| &saved.exports) {
            let pool = &saved.expect("it has exports").name;
            let SavedExport { volume, attach, .. } = export;
            match self.attach_again(pool, export) {
                Ok(served) => self.remember_device(uuid, attach, &served),
                Err(failure) => {
                    self.did_not_return(pool, uuid, Some(volume.clone()), failure);
                }
            }
        }
        // Now all of it is here.
        self.missing()
            .retain(|missing| missing.uuid != uuid || !missing.restoring);
    }

    fn did_not_return(&self, pool: &str, uuid: &str, volume: Option<String>, failure: Failure) {
        let problem = failure.problem;
        let text = Full(&problem).to_string();
        tracing::error!("{text}");
        let event = match &volume {
            None => "pool_missing",
            Some(_) => "export_missing",
        };
        self.tell(event, pool, &text);
        self.missing().push(FailedRestore {
            pool: pool.to_owned(),
            uuid: uuid.to_owned(),
            volume,
            problem,
            restoring: false,
        });
    }
}

/// Why a pool is not here yet.
fn not_yet(pool: &str, why: &str) -> Problem {
    Problem {
        what: format!("pool `{pool}` is not open yet"),
        why: why.to_owned(),
        hint: format!(
            "wait, `ravelin pool import --dir DIR {pool}` if its drives are elsewhere, or `ravelin pool export {pool}` to forget it"
        ),
        kind: Kind::default(),
        span: None,
    }
}
