//! Restores pools and exports of the daemon's earlier run, and records them for the next one.
//!
//! ```text
//!   recorded ───► looked for ─── drives are there ───────────► opened, its exports served
//!                     │                                           ▲
//!                     └── some are not ─► waited for ── timeout or they are there ─► opened, or failed
//! ```
//!
//! A pool that did not open is looked for as long as the daemon runs, and opened when all its drives are there
//! (`late.rs`).
//!
//! Each pool is restored independently of the others. The daemon answers requests once all pools whose drives were
//! found at once are open, or after [`ANSWER_AFTER`]: scripts find what they expect, and a pool with missing drives
//! delays no request. Until a pool is restored, the list of failed restores contains it, with the reason.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use block::Full;
use engine::assemble;
use engine::assemble::Without;
use engine::drive::{DriveUri, Place};
use engine::status::{PoolStatus, Severity};
use export::fuse::loops;

use super::Daemon;
use crate::Failure;
use crate::api::{Attach, Export, FailedRestore, Kind, Problem};
use crate::state::{SavedDevice, SavedExport, SavedPool, SavedVolume, StateFile};

/// How often to look for missing drives.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// How often to look whether the pools below are open.
const BELOW_INTERVAL: Duration = Duration::from_millis(10);

/// Requests are answered after this time even if pools are still being opened.
const ANSWER_AFTER: Duration = Duration::from_secs(5);

/// Progress of the restoration.
#[derive(Default)]
pub(super) struct Restoration {
    /// Pools, by identity, in their first attempt: being looked for, or being opened.
    first: Mutex<BTreeSet<String>>,
    fewer: Condvar,
    /// The daemon is stopping: restore nothing more.
    stopped: AtomicBool,
}

impl Restoration {
    fn first(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a pool in `Restoration::first` until the pool is open, has failed, or waits for drives.
struct First<'a>(&'a Restoration, String);

impl Drop for First<'_> {
    fn drop(&mut self) {
        self.0.first().remove(&self.1);
        self.0.fewer.notify_all();
    }
}

/// Where a pool's drives are.
fn places(status: &PoolStatus) -> Vec<Place> {
    let places = status.seats.iter().filter_map(|seat| {
        let uri: DriveUri = seat.path.parse().ok()?;
        uri.spec.place()
    });
    places.collect()
}

impl Daemon {
    pub(super) fn missing(&self) -> MutexGuard<'_, Vec<FailedRestore>> {
        let failed_restores = self.failed_restores.lock();
        failed_restores.expect("no holder of the lock panics")
    }

    /// Pools and exports of an earlier run that are not restored.
    #[must_use]
    pub fn failed_restores(&self) -> Vec<FailedRestore> {
        self.missing().clone()
    }

    /// Records an open pool and the current paths of its drives. A pool of `mem:` drives only is not recorded: it
    /// ends with the daemon.
    pub(super) fn remember(&self, name: &str) {
        let Some(state) = &self.state else { return };
        let Ok(status) = self.status(name) else {
            return;
        };
        let (mut paths, mut volumes) = (Vec::new(), Vec::new());
        for place in places(&status.pool) {
            match place {
                Place::Path(path) => paths.push(path),
                Place::Volume { pool, volume } => {
                    // A drive that is out may have the name of a pool that is not open any more.
                    let pool_uuid = self.identity(&pool).unwrap_or_default();
                    volumes.push(SavedVolume {
                        pool,
                        pool_uuid,
                        volume,
                    });
                }
            }
        }
        if !paths.is_empty() || !volumes.is_empty() {
            state.remember_pool(name, &status.pool.uuid, paths, volumes);
        }
    }

    /// Forgets a pool that was closed on request.
    pub(super) fn forget(&self, status: &PoolStatus) {
        if let Some(state) = &self.state {
            state.forget_pool(&status.uuid);
        }
        self.missing().retain(|missing| missing.uuid != status.uuid);
    }

    /// Forgets a pool whose restore failed or is pending. True if there was one.
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

    /// Drops the failed restores of a volume's exports from the list. True if there was one.
    pub(super) fn missing_no_more(&self, uuid: &str, volume: &str) -> bool {
        let mut missing = self.missing();
        let before = missing.len();
        missing.retain(|missing| missing.uuid != uuid || missing.volume.as_deref() != Some(volume));
        missing.len() < before
    }

    /// Records an export. False if it was recorded already.
    pub(super) fn remember_export(
        &self,
        uuid: &str,
        volume: &str,
        attach: &Attach,
        what: &str,
    ) -> Result<bool, Failure> {
        let Some(state) = &self.state else {
            return Ok(false);
        };
        state
            .remember_export(uuid, volume, attach)
            .map_err(|error| {
                let why = format!(
                    "it cannot be recorded for the next start in {}: {error}",
                    state.path().display()
                );
                let hint = "free space there, or run the daemon with another directory (--state)";
                Failure::new(StatusCode::INSUFFICIENT_STORAGE, what, why, hint)
            })
    }

    /// Records the loop device that was created: after a crash nothing else may identify it as ours.
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

    /// The pools to restore. Each is listed as a failed restore until it is open.
    pub(crate) fn begin_restoring(&self) -> Vec<SavedPool> {
        let pools = self.state.as_ref().map(StateFile::pools);
        let pools = pools.unwrap_or_default();
        *self.restoration.first() = pools.iter().map(|saved| saved.uuid.clone()).collect();
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

    /// Opens the pools that were open in an earlier run and restores their exports. Waits up to `late_drives` for
    /// missing drives. Failures are logged and listed in [`Daemon::failed_restores`].
    pub(crate) fn restore(&self, pools: &[SavedPool], late_drives: Duration) {
        // In parallel: the missing drives of one pool must not delay another pool.
        std::thread::scope(|scope| {
            for pool in pools {
                let first = First(&self.restoration, pool.uuid.clone());
                scope.spawn(move || self.restore_pool(pool, late_drives, first));
            }
        });
    }

    /// Waits until all pools whose drives were found at once are open, for [`ANSWER_AFTER`] at most.
    pub(crate) fn wait_for_first(&self) {
        let some = |left: &mut BTreeSet<String>| !left.is_empty();
        let waiting = self.restoration.first();
        let waited = (self.restoration.fewer).wait_timeout_while(waiting, ANSWER_AFTER, some);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    /// True when nothing more is to be restored.
    pub(super) fn restores_no_more(&self) -> bool {
        self.restoration.stopped.load(Ordering::SeqCst)
    }

    /// Stops waiting for drives.
    pub(crate) fn stop_restoring(&self) {
        self.restoration.stopped.store(true, Ordering::SeqCst);
    }

    /// True if the pool is still to be restored: no request has imported or forgotten it meanwhile.
    fn is_coming(&self, uuid: &str) -> bool {
        let missing = self.missing();
        let mut coming = missing.iter().filter(|missing| missing.restoring);
        coming.any(|missing| missing.uuid == uuid)
    }

    pub(super) fn is_open(&self, uuid: &str) -> bool {
        self.statuses().iter().any(|pool| pool.uuid == uuid)
    }

    /// Looks for a pool's drives: also on volumes if some of them are volumes.
    pub(super) fn find(&self, saved: &SavedPool) -> Option<assemble::FoundPool> {
        let open = match saved.volumes.is_empty() {
            true => Vec::new(),
            false => self.open_pools(),
        };
        assemble::find(&saved.uuid, &saved.places, &open)
    }

    /// Waits until no pool below is still to be opened, however long drives are waited for there.
    fn wait_for_below(&self, saved: &SavedPool, first: &mut Option<First<'_>>) {
        let below = || saved.volumes.iter().map(|drive| &drive.pool_uuid);
        while below().any(|uuid| self.is_coming(uuid))
            && !self.restores_no_more()
            && self.is_coming(&saved.uuid)
        {
            let tries = self.restoration.first();
            let is_late = first.is_some() && !below().any(|uuid| tries.contains(uuid));
            drop(tries);
            if is_late {
                self.is_late(saved, first, "a pool below waits for drives");
            }
            std::thread::sleep(BELOW_INTERVAL);
        }
    }

    /// The daemon answers requests though this pool is not open.
    fn is_late(&self, saved: &SavedPool, first: &mut Option<First<'_>>, why: &str) {
        let Some(first) = first.take() else { return };
        for missing in self.missing().iter_mut() {
            if missing.uuid == saved.uuid && missing.restoring {
                missing.problem = not_yet(&saved.name, why);
            }
        }
        drop(first);
    }

    /// Looks for a pool's drives until all that the pool counts on are there. `None` if the pool is no longer to be
    /// restored.
    fn find_patiently(
        &self,
        saved: &SavedPool,
        late_drives: Duration,
        first: &mut Option<First<'_>>,
    ) -> Option<Option<assemble::FoundPool>> {
        self.wait_for_below(saved, first);
        let deadline = Instant::now() + late_drives;
        loop {
            let found = self.find(saved);
            let complete = found.as_ref().is_some_and(assemble::FoundPool::is_complete);
            if self.restores_no_more() || !self.is_coming(&saved.uuid) {
                return None;
            }
            if complete || Instant::now() > deadline {
                return Some(found);
            }
            let why = "some of its drives are not there, and are waited for";
            self.is_late(saved, first, why);
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
                let paths = saved.places.iter().map(|path| path.display().to_string());
                let volumes = { saved.volumes.iter() }
                    .map(|drive| format!("volume:{}/{}", drive.pool, drive.volume));
                let places: Vec<String> = paths.chain(volumes).collect();
                Failure::missing(
                    &*what,
                    format!("none of its drives was found: {}", places.join(", ")),
                    format!(
                        "`ravelin pool import --dir DIR {0}` when they are there, or `ravelin pool export {0}` to forget it",
                        saved.name
                    ),
                )
            })
            .and_then(|found| self.open(&found, &found.name, &Without::default(), &what));
        match opened {
            Ok(()) => {
                self.serve_again(&saved.name, &saved.uuid, Duration::ZERO);
            }
            // A request has imported or forgotten the pool meanwhile.
            Err(_) if !self.is_coming(&saved.uuid) || self.is_open(&saved.uuid) => {}
            Err(failure) => {
                let exports = saved.exports.iter();
                exports.for_each(|export| self.remove_dead(&saved.name, export));
                self.missing().retain(|missing| missing.uuid != saved.uuid);
                self.did_not_return(&saved.name, &saved.uuid, None, failure);
            }
        }
    }

    /// A pool that was open before is open again: its spares take the seats of missing drives after this time, and its
    /// volumes are served as before.
    pub(super) fn serve_again(&self, name: &str, uuid: &str, spares_after: Duration) {
        if let Ok(handle) = self.handle(name, "its spares wait") {
            handle.use_spares_after(spares_after);
        }
        self.restore_exports(uuid);
    }

    /// Restores the exports of a pool that has just been opened.
    fn restore_exports(&self, uuid: &str) {
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
        // The pool and its exports have been processed: remove the pool's own entry.
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
        self.tell(event, Severity::Error, pool, &text);
        self.missing().push(FailedRestore {
            pool: pool.to_owned(),
            uuid: uuid.to_owned(),
            volume,
            problem,
            restoring: false,
        });
    }
}

/// The problem that is shown for a pool that is still being restored.
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
