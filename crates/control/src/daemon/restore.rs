//! From one life of the daemon to the next: what is remembered, and how it comes back.

use std::path::{Path, PathBuf};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use engine::assemble;
use engine::drive::DriveUri;
use engine::status::PoolStatus;
use export::fuse::loops;

use super::Daemon;
use super::exports::remove_dead;
use crate::Failure;
use crate::api::{Attach, Export, Unrestored};
use crate::state::{SavedDevice, SavedExport, SavedPool};

/// How often a drive that is late is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// Where the drives of a pool are.
fn places(status: &PoolStatus) -> Vec<PathBuf> {
    let paths = status.seats.iter().filter_map(|seat| {
        let uri: DriveUri = seat.path.parse().ok()?;
        uri.spec.path().map(Path::to_owned)
    });
    paths.collect()
}

impl Daemon {
    fn missing(&self) -> MutexGuard<'_, Vec<Unrestored>> {
        let unrestored = self.unrestored.lock();
        unrestored.expect("no holder of the lock panics")
    }

    /// What should be here since an earlier life and is not.
    #[must_use]
    pub fn unrestored(&self) -> Vec<Unrestored> {
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
    pub(super) fn forget_unrestored(&self, pool: &str) -> bool {
        let gone: Vec<Unrestored> = self
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

    /// Opens the pools that were open in an earlier life, and serves their volumes where they were
    /// served. Drives that are not there are waited for. What does not come back is in the log and in
    /// [`Daemon::unrestored`].
    pub fn restore(&self, late_drives: Duration) {
        let Some(state) = &self.state else { return };
        let pools = state.pools();
        // One pool's drives must not keep another one waiting.
        std::thread::scope(|scope| {
            for pool in &pools {
                scope.spawn(|| self.restore_pool(pool, late_drives));
            }
        });
    }

    fn restore_pool(&self, saved: &SavedPool, late_drives: Duration) {
        let what = format!("pool `{}` was not opened again", saved.name);
        let opened = find_patiently(saved, late_drives)
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
            Err(failure) => {
                saved.exports.iter().for_each(remove_dead);
                self.did_not_return(&saved.name, &saved.uuid, None, failure);
            }
        }
    }

    /// Serves the volumes of a pool that has just been opened as they were served before.
    pub(super) fn restore_exports(&self, uuid: &str) {
        let Some(state) = &self.state else { return };
        self.missing().retain(|missing| missing.uuid != uuid);
        let pools = state.pools();
        let Some(saved) = pools.iter().find(|pool| pool.uuid == uuid) else {
            return;
        };
        for export in &saved.exports {
            let SavedExport { volume, attach, .. } = export;
            match self.attach_again(&saved.name, export) {
                Ok(served) => self.remember_device(uuid, attach, &served),
                Err(failure) => {
                    self.did_not_return(&saved.name, uuid, Some(volume.clone()), failure);
                }
            }
        }
    }

    fn did_not_return(&self, pool: &str, uuid: &str, volume: Option<String>, failure: Failure) {
        let problem = failure.problem;
        let text = format!("{}: {}; try: {}", problem.what, problem.why, problem.hint);
        tracing::error!("{text}");
        let event = match &volume {
            None => "pool_missing",
            Some(_) => "export_missing",
        };
        self.tell(event, pool, &text);
        self.missing().push(Unrestored {
            pool: pool.to_owned(),
            uuid: uuid.to_owned(),
            volume,
            problem,
        });
    }
}

/// Looks for a pool's drives until all that it counts on are there.
fn find_patiently(saved: &SavedPool, late_drives: Duration) -> Option<assemble::FoundPool> {
    let deadline = Instant::now() + late_drives;
    loop {
        let found = assemble::find(&saved.uuid, &saved.places);
        let complete = found.as_ref().is_some_and(assemble::FoundPool::is_complete);
        if complete || Instant::now() > deadline {
            return found;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}
