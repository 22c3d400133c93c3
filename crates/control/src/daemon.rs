//! The daemon's state: pools by name, and where their volumes are served.
//!
//! All methods block; the routes call them from threads that may.

mod drives;
mod exports;
mod links;
mod restore;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use engine::assemble::{self, AssembleError, NewPool};
use engine::drive::{self, DriveUri, Open, OpenDriveError};
use engine::status::{LoggedEvent, PoolStatus};
use engine::traffic::PoolTraffic;
use engine::{PoolHandle, RunOptions};

use crate::Failure;
use crate::api::{
    CreatePool, CreatedPool, DestroyPool, FailedRestore, FoundPool, Import, Overwrite, PoolSummary,
    ScrubPool, Status,
};
use crate::hooks::{HookEvent, Hooks};
use crate::state::StateFile;
pub use drives::Change;
use exports::Exported;

/// How long closing a pool waits for requests of this daemon that still look at it. They end by
/// themselves; what takes longest is [`Daemon::idle`].
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the locks of a killed daemon may last: its last writes must end first. A guess, with
/// slow disks in mind; on an idle machine it is a few tens of milliseconds.
const LAST_LOCKS: Duration = Duration::from_secs(5);

/// All pools that are open here. Ends well only by [`Daemon::close`].
#[derive(Default)]
pub struct Daemon {
    /// `None` holds the name of a pool that is being opened or closed.
    pools: Mutex<BTreeMap<String, Option<Arc<PoolHandle>>>>,
    exports: Mutex<Vec<Exported>>,
    /// What a next life shall begin with.
    state: Option<StateFile>,
    /// Programs to be told.
    hooks: Option<Hooks>,
    /// Where devices of attached volumes have names that stay.
    links: Option<PathBuf>,
    /// What this life did not begin with although it should have, or has not yet.
    failed_restores: Mutex<Vec<FailedRestore>>,
    /// How far the restoration is.
    restoration: restore::Restoration,
}

/// A name that is reserved while its pool is opened or closed; it is free again when this is
/// dropped, unless the pool has been put there.
struct Reserved<'a> {
    daemon: &'a Daemon,
    name: &'a str,
}

impl Reserved<'_> {
    fn fill(self, handle: PoolHandle) {
        self.daemon.tell("pool_open", self.name, "the pool is open");
        self.daemon.keep_events(&handle);
        if let Some(hooks) = self.daemon.hooks.clone() {
            let pool = self.name.to_owned();
            handle.listen(Box::new(move |event| {
                let told = HookEvent::new(&event.event, &pool, event.at, event.text.clone());
                hooks.send(HookEvent {
                    seat: event.seat,
                    path: event.path.clone(),
                    ..told
                });
            }));
        }
        let mut pools = self.daemon.pools();
        pools.insert(self.name.to_owned(), Some(Arc::new(handle)));
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        let mut pools = self.daemon.pools();
        if matches!(pools.get(self.name), Some(None)) {
            pools.remove(self.name);
        }
    }
}

impl Daemon {
    /// Without pools. Those of an earlier life come back by [`Daemon::restore`].
    #[must_use]
    pub fn new(state: StateFile, hooks: Option<Hooks>, links: Option<PathBuf>) -> Self {
        Self {
            state: Some(state),
            hooks,
            links,
            ..Self::default()
        }
    }

    /// Tells hooks what a pool cannot tell itself.
    fn tell(&self, event: &str, pool: &str, text: &str) {
        if let Some(hooks) = &self.hooks {
            let now = std::time::SystemTime::now();
            hooks.send(HookEvent::new(event, pool, now, text.to_owned()));
        }
    }

    /// Has a pool's events kept on disk, numbered as those that follow the ones that are there.
    fn keep_events(&self, handle: &PoolHandle) {
        let Some(files) = self.state.as_ref().map(StateFile::events) else {
            return;
        };
        let Ok(status) = handle.status() else { return };
        let last = files
            .read(&status.uuid)
            .last()
            .map_or(0, |event| event.number);
        handle.number_events_after(last);
        let files = files.clone();
        handle.listen(Box::new(move |event| files.keep(&status.uuid, event)));
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<PoolHandle>>>> {
        self.pools.lock().expect("no holder of the lock panics")
    }

    fn handle(&self, name: &str, what: &str) -> Result<Arc<PoolHandle>, Failure> {
        match self.pools().get(name) {
            Some(Some(handle)) => Ok(Arc::clone(handle)),
            Some(None) => Err(Failure::conflict(
                what,
                format!("the pool `{name}` is just being opened or closed"),
                "wait a moment",
            )),
            None => Err(Failure::missing(
                what,
                format!("there is no pool `{name}` open here"),
                "`ravelin pool list` shows the open ones, `ravelin pool import` opens one",
            )),
        }
    }

    fn reserve<'a>(&'a self, name: &'a str, what: &str) -> Result<Reserved<'a>, Failure> {
        let mut pools = self.pools();
        if pools.contains_key(name) {
            return Err(Failure::conflict(
                what,
                format!("there is already a pool `{name}` open here"),
                "choose another name, or export that pool first",
            ));
        }
        pools.insert(name.to_owned(), None);
        Ok(Reserved { daemon: self, name })
    }

    fn statuses(&self) -> Vec<PoolStatus> {
        let handles: Vec<_> = self.pools().values().flatten().cloned().collect();
        // A pool that has just stopped has no status.
        handles
            .iter()
            .filter_map(|handle| handle.status().ok())
            .collect()
    }

    /// Returns when nobody sits on what every request needs.
    pub(crate) fn touch(&self) {
        drop(self.pools());
        drop(self.exports());
    }

    /// A line for each pool.
    #[must_use]
    pub fn list(&self) -> Vec<PoolSummary> {
        let line = |status: PoolStatus| PoolSummary {
            name: status.name,
            uuid: status.uuid,
            scheme: status.scheme,
            health: status.health,
            capacity_bytes: status.capacity_bytes,
            free_bytes: status.free_bytes,
            drives: status.seats.len(),
            volumes: status.volumes.len(),
        };
        self.statuses().into_iter().map(line).collect()
    }

    /// How a pool is.
    pub fn status(&self, name: &str) -> Result<Status, Failure> {
        let what = format!("the status of pool `{name}` cannot be told");
        let handle = self.handle(name, &what)?;
        let pool = handle
            .status()
            .map_err(|error| Failure::pool(&what, &error))?;
        let exports = self.exports_of(name, None);
        Ok(Status { pool, exports })
    }

    /// The lines of a pool's log after line number `after`.
    pub fn events(&self, name: &str, after: u64) -> Result<Vec<LoggedEvent>, Failure> {
        let pool = self.status(name)?.pool;
        let first = pool.events.first().map_or(u64::MAX, |event| event.number);
        let earlier = { self.state.as_ref() }.map(|state| state.events().read(&pool.uuid));
        let mut events = earlier.unwrap_or_default();
        events.retain(|event| event.number < first);
        events.extend(pool.events);
        events.retain(|event| event.number > after);
        Ok(events)
    }

    /// What drives and volumes of a pool do.
    pub fn traffic(&self, name: &str) -> Result<PoolTraffic, Failure> {
        let what = format!("what is done in pool `{name}` cannot be told");
        let handle = self.handle(name, &what)?;
        handle
            .traffic()
            .map_err(|error| Failure::pool(&what, &error))
    }

    /// Waits, for `timeout` at most, until nothing in the pool is filled or computed anew.
    pub fn idle(&self, name: &str, timeout: Duration) -> Result<bool, Failure> {
        let handle = self.handle(name, &format!("pool `{name}` cannot be waited for"))?;
        Ok(handle.wait_idle(timeout))
    }

    /// Checks a pool's plan, and, unless that is all that is asked, makes the pool.
    pub fn create(&self, request: &CreatePool) -> Result<CreatedPool, Failure> {
        let name = &request.name;
        let what = format!("pool `{name}` was not created");
        let new = plan(request, &what)?;
        let reserved = self.reserve(name, &what)?;
        let prepare = || {
            self.refuse_own(new.drives.iter().chain(&new.spares), &what)?;
            let overwrites = if request.force {
                occupied(&new)
            } else {
                Vec::new()
            };
            let prepared = assemble::prepare(&new)
                .map_err(|error| Failure::assemble(&what, &error, &request.scheme))?;
            Ok::<_, Failure>((overwrites, prepared))
        };
        let (overwrites, prepared) = prepare()?;
        let created = CreatedPool {
            name: name.clone(),
            scheme: prepared.plan().scheme.clone(),
            plan: prepared.plan().clone(),
            created: !request.dry_run,
            arithmetic: prepared.arithmetic(),
            capacity_bytes: prepared.capacity_bytes(),
            overwrites,
        };
        if created.created {
            let handle = assemble::create(prepared, RunOptions::default())
                .map_err(|error| Failure::assemble(&what, &error, &request.scheme))?;
            tracing::info!(pool = name, scheme = created.scheme, "created");
            reserved.fill(handle);
            self.remember(name);
        }
        Ok(created)
    }

    /// Refuses drives that belong to a pool that is open here: their locks would only say that
    /// some daemon has them.
    fn refuse_own<'a>(
        &self,
        mut uris: impl Iterator<Item = &'a DriveUri>,
        what: &str,
    ) -> Result<(), Failure> {
        let statuses = self.statuses();
        let owner = |named: &DriveUri| {
            statuses.iter().find_map(|pool| {
                let seat = pool.seats.iter().find(|seat| {
                    let uri: Result<DriveUri, _> = seat.path.parse();
                    uri.is_ok_and(|uri| uri.is_same_drive(named))
                })?;
                Some((pool.name.clone(), seat.seat))
            })
        };
        let own = uris.find_map(|uri| Some((uri, owner(&uri.absolute())?)));
        match own {
            None => Ok(()),
            Some((uri, (pool, seat))) => Err(Failure::conflict(
                what,
                format!("{uri} is in use: it has seat {seat} of pool `{pool}`, which is open here"),
                "name another drive",
            )),
        }
    }

    /// Pools whose labels are in these places and that are not open here.
    #[must_use]
    pub fn scan(&self, places: &[PathBuf]) -> Vec<FoundPool> {
        let open: BTreeSet<String> = self.statuses().into_iter().map(|pool| pool.uuid).collect();
        let found = assemble::scan(places).into_iter();
        found
            .map(|pool| FoundPool {
                name: pool.name,
                uuid: pool.uuid.to_string(),
                scheme: pool.scheme,
                generation: pool.generation,
                drives: pool.drives,
                paths: pool.paths,
            })
            .filter(|pool| !open.contains(&pool.uuid))
            .collect()
    }

    /// Opens a pool that is somewhere in these places.
    pub fn import(&self, request: &Import) -> Result<Status, Failure> {
        let what = format!("pool `{}` was not imported", request.name);
        let failed = |error: &AssembleError| Failure::assemble(&what, error, "");
        if self.pools().contains_key(&request.name) {
            // Scripts that set up everything after a start find it done.
            let open = self.status(&request.name)?;
            let found = assemble::scan(&request.places).into_iter();
            if { found }.any(|pool| pool.uuid.to_string() == open.pool.uuid) {
                return Ok(open);
            }
            return Err(Failure::conflict(
                what,
                "another pool of this name is already open here",
                "`ravelin pool status` shows it; export it first to import another one",
            ));
        }
        let found = assemble::scan(&request.places);
        let chosen = assemble::choose(&found, &request.name, &request.places)
            .map_err(|error| failed(&error))?;
        self.open(chosen, request.degraded, &what)?;
        self.restore_exports(&chosen.uuid.to_string());
        self.status(&chosen.name)
    }

    /// Opens a pool that was found.
    fn open(&self, found: &assemble::FoundPool, degraded: bool, what: &str) -> Result<(), Failure> {
        let reserved = self.reserve(&found.name, what)?;
        let handle = patiently(|| assemble::import(found, degraded, RunOptions::default()))
            .map_err(|error| Failure::assemble(what, &error, ""))?;
        tracing::info!(pool = found.name, drives = found.paths.len(), "imported");
        reserved.fill(handle);
        self.remember(&found.name);
        Ok(())
    }

    /// Closes a pool: its volumes are served no longer, its drives are free.
    pub fn export(&self, name: &str, force: bool) -> Result<(), Failure> {
        if !self.pools().contains_key(name) && self.forget_failed_restores(name) {
            return Ok(());
        }
        let what = format!("pool `{name}` was not exported");
        let taken_over = self.status(name).ok();
        let taken_over = taken_over.filter(|status| status.pool.taken_over.is_some());
        let taken_down = self.take_down(name, force, &what);
        if let Some(status) = &taken_over {
            // It is open here no longer, but was not closed: who has it must hear of that from us.
            self.forget(&status.pool);
        }
        let let_go = taken_over.is_some() && !self.pools().contains_key(name);
        let status = taken_down.map_err(|mut failure| {
            if let_go {
                failure.problem.what = format!("pool `{name}` is no longer open here, but was not closed");
                failure.problem.hint =
                    "see which host has it; `ravelin pool import` here when that one has exported it".to_owned();
            }
            failure
        })?;
        self.forget(&status);
        Ok(())
    }

    /// Begins a scrub of a pool, or holds it, or lets it go on, or plans it.
    pub fn scrub(&self, name: &str, request: ScrubPool) -> Result<(), Failure> {
        let what = format!("pool `{name}` is not scrubbed");
        let handle = self.handle(name, &what)?;
        let outcome = match (request.pause, request.every_days) {
            (Some(paused), _) => handle.pause_scrub(paused),
            (None, Some(every_days)) => handle.plan_scrub(every_days),
            (None, None) => handle.scrub(false),
        };
        outcome.map_err(|error| Failure::pool(&what, &error))
    }

    /// Closes a pool and removes its labels: what it held is lost.
    pub fn destroy(&self, name: &str, request: &DestroyPool) -> Result<(), Failure> {
        let what = format!("pool `{name}` was not destroyed");
        self.handle(name, &what)?;
        named(request.pool.as_deref(), name, &what)?;
        let status = self.take_down(name, request.force, &what)?;
        self.forget(&status);
        let what = format!("pool `{name}` was closed, but not all of its labels are gone");
        let how = Open {
            create_size: None,
            exclusive: true,
        };
        let mut failed = None;
        for seat in &status.seats {
            let uri = match drives::parse(&seat.path, &what) {
                Ok(uri) => uri,
                Err(failure) => {
                    failed = Some(failure);
                    continue;
                }
            };
            // Memory is gone with the pool, and a drive that is missing cannot be written.
            let Some(path) = uri.spec.path().filter(|path| path.exists()) else {
                continue;
            };
            // The name may meanwhile mean a drive with another pool on it.
            let ours = assemble::scan(&[path.to_owned()]);
            if !ours.iter().any(|pool| pool.uuid.to_string() == status.uuid) {
                continue;
            }
            let wiped = drive::open(&uri, how)
                .map_err(AssembleError::from)
                .and_then(|drive| assemble::wipe_label(&drive));
            if let Err(error) = wiped {
                failed = Some(Failure::assemble(&what, &error, ""));
            }
        }
        if let Some(state) = &self.state {
            state.events().forget(&status.uuid);
        }
        tracing::info!(pool = name, "destroyed");
        failed.map_or(Ok(()), Err)
    }

    /// Ends a pool's exports and closes it. What it last was is returned.
    fn take_down(&self, name: &str, force: bool, what: &str) -> Result<PoolStatus, Failure> {
        let handle = self.handle(name, what)?;
        if !force {
            self.refuse_clients(name, None, what)?;
        }
        // A pool that has stopped by itself has no status; it is put away all the same.
        let status = handle.status().map_err(|error| Failure::pool(what, &error));
        drop(handle);
        let (reserved, handle) = {
            let mut pools = self.pools();
            match pools.get_mut(name).and_then(Option::take) {
                Some(handle) => (Reserved { daemon: self, name }, handle),
                None => {
                    return Err(Failure::conflict(
                        what,
                        "someone else is closing it",
                        "`ravelin pool list` shows when that is done",
                    ));
                }
            }
        };
        self.end_exports(name, None);
        let closed = close(handle, what);
        drop(reserved);
        tracing::info!(pool = name, "closed");
        self.tell("pool_closed", name, "the pool is closed");
        closed.and(status)
    }

    /// Ends all exports and closes all pools.
    ///
    /// # Errors
    /// The failures, by pool; all pools are closed all the same.
    pub fn close(&self) -> Result<(), Vec<Failure>> {
        let names: Vec<String> = self.pools().keys().cloned().collect();
        let failures: Vec<Failure> = names
            .iter()
            .filter_map(|name| {
                let what = format!("pool `{name}` was not closed cleanly");
                self.take_down(name, true, &what).err()
            })
            .collect();
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures)
        }
    }
}

/// Refuses a request that loses data and does not name the pool in its body: a path that was put together
/// wrongly, or a program that tries paths, loses nothing.
fn named(said: Option<&str>, pool: &str, what: &str) -> Result<(), Failure> {
    if said == Some(pool) {
        return Ok(());
    }
    let why = match said {
        None => "it loses data, and the request's body does not name the pool".to_owned(),
        Some(said) => format!("it loses data, and the request's body names the pool `{said}`"),
    };
    let hint = format!("put \"pool\": \"{pool}\" into the body if it is meant");
    Err(Failure::request(what, why, hint))
}

/// Tries again while a drive is locked by nobody who lives. The kernel takes a killed daemon's rings
/// down after it has reaped the process, and until then they hold the drives and their locks.
fn patiently<T>(mut work: impl FnMut() -> Result<T, AssembleError>) -> Result<T, AssembleError> {
    let deadline = Instant::now() + LAST_LOCKS;
    loop {
        match work() {
            Err(AssembleError::Drive(error)) if is_unheld(&error) && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// Whether a drive is taken, but by no process that can be seen. A block device does not tell a
/// lingering claim from a mount.
fn is_unheld(error: &OpenDriveError) -> bool {
    match error {
        OpenDriveError::InUse { holder, .. } => holder.is_empty(),
        OpenDriveError::Busy { .. } => true,
        OpenDriveError::NotFound { .. }
        | OpenDriveError::Denied { .. }
        | OpenDriveError::NotADrive { .. }
        | OpenDriveError::NotZram { .. }
        | OpenDriveError::NoBytes { .. }
        | OpenDriveError::NoUring { .. }
        | OpenDriveError::Io { .. }
        | OpenDriveError::Start { .. } => false,
    }
}

/// Closes a pool when nobody else looks at it any more.
fn close(mut handle: Arc<PoolHandle>, what: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + CLOSE_TIMEOUT;
    let handle = loop {
        handle = match Arc::try_unwrap(handle) {
            Ok(alone) => break alone,
            Err(shared) if Instant::now() < deadline => shared,
            Err(_) => {
                return Err(Failure::new(
                    axum::http::StatusCode::INTERNAL_SERVER_ERROR,
                    what,
                    "a request to the daemon that uses it does not end",
                    "stop the daemon",
                ));
            }
        };
        std::thread::sleep(Duration::from_millis(5));
    };
    handle.close().map_err(|error| Failure::pool(what, &error))
}

/// A request to create, parsed.
fn plan(request: &CreatePool, what: &str) -> Result<NewPool, Failure> {
    let drives = u16::try_from(request.drives.len()).unwrap_or(u16::MAX);
    let scheme: layout::Scheme = request
        .scheme
        .parse()
        .map_err(|error: layout::SchemeError| {
            let span = error.span();
            Failure::scheme(what, &error.with_drives(drives), &request.scheme, span)
        })?;
    let parse = |texts: &[String]| {
        let uris = texts.iter().map(|text| drives::parse(text, what));
        uris.collect::<Result<Vec<DriveUri>, Failure>>()
    };
    Ok(NewPool {
        name: request.name.clone(),
        scheme: scheme.for_new_pool(drives),
        chunk_bytes: request.chunk_bytes,
        cell_bytes: request.cell_bytes,
        journal: !request.unprotected,
        drives: parse(&request.drives)?,
        spares: parse(&request.spares)?,
        force: request.force,
    })
}

/// What is on the drives of a new pool. Drives that cannot be opened are left to `prepare`.
fn occupied(new: &NewPool) -> Vec<Overwrite> {
    let uris = new.drives.iter().chain(&new.spares);
    uris.filter_map(|uri| match assemble::open_empty(uri, false) {
        Err(AssembleError::Occupied { drive, what }) => Some(Overwrite { drive, holds: what }),
        _ => None,
    })
    .collect()
}
