//! The daemon's state: pools by name, and where their volumes are served.
//!
//! All methods may block. The routes call them on tokio's blocking threads.

mod drives;
mod expand;
mod exports;
mod late;
mod links;
mod restore;
mod returning;
mod stacks;
mod volumes;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, RwLock};
use std::time::{Duration, Instant};

use array::pool::Steering;
use array::priority::{self, PRIORITIES};
use block::closest;
use engine::assemble::{self, AssembleError, NewPool, OpenPool, Without};
use engine::drive::{DriveUri, Enclosures, OpenDriveError, Place};
use engine::status::{LoggedEvent, PoolStatus, Severity};
use engine::traffic::PoolTraffic;
use engine::{PoolHandle, RunOptions};

use crate::Failure;
use crate::api::{
    CreatePool, CreatedPool, DestroyPool, FailedRestore, FoundPool, History, HistoryLine, Import,
    Overwrite, PoolSummary, Scan, ScrubPool, SetElastic, Status, SteerPool,
};
use crate::failure::{exist, or_closest};
use crate::history;
use crate::hooks::{HookEvent, Hooks};
use crate::kept::KeptFiles;
use crate::scrub_file;
use crate::state::StateFile;
pub use drives::Change;
use exports::Exported;
pub use links::LinkPlaces;

/// How long closing a pool waits for requests of this daemon that still have a reference to it. These requests end in
/// bounded time; the longest one is [`Daemon::idle`].
const CLOSE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the drive locks of a killed daemon may remain: its last writes must end first. On an idle machine it is a few
/// tens of milliseconds; more than five seconds were seen while other programs kept the disk busy.
const LAST_LOCKS: Duration = Duration::from_secs(15);

/// How long waiting spares leave the seats of drives that are missing when a pool is imported: time to plug them in.
/// A start of the daemon has waited for drives before it opens a pool.
const SPARES_WAIT: Duration = Duration::from_secs(60);

/// All pools that are open in this daemon. Call [`Daemon::close`] before dropping: only that closes the pools
/// cleanly.
#[derive(Default)]
pub struct Daemon {
    /// `None`: the name is reserved while its pool is being opened or closed.
    pools: Mutex<BTreeMap<String, Option<Arc<PoolHandle>>>>,
    exports: Mutex<Vec<Exported>>,
    /// Orders the users of volumes.
    stacks: RwLock<()>,
    /// The pools and exports to restore at the next start.
    state: Option<StateFile>,
    /// Programs to run for each event.
    hooks: Option<Hooks>,
    /// Directory of stable names (links) for the devices of attached volumes.
    links: Option<LinkPlaces>,
    /// Directory of the files below loop devices whose place the daemon chooses.
    files: Option<PathBuf>,
    /// Pools and exports of an earlier run that are not restored: the attempt failed, or is not finished.
    failed_restores: Mutex<Vec<FailedRestore>>,
    /// Progress of the restoration.
    restoration: restore::Restoration,
    /// Files of volumes that outlive the daemon.
    pub(crate) kept: KeptFiles,
    /// Where drives are.
    enclosures: Enclosures,
}

/// A name that is reserved while its pool is opened or closed. Dropping this frees the name, unless the pool has been
/// put there.
struct Reserved<'a> {
    daemon: &'a Daemon,
    name: &'a str,
}

impl Reserved<'_> {
    fn fill(self, handle: PoolHandle) {
        let (name, info) = (self.name, Severity::Info);
        self.daemon
            .tell("pool_open", info, name, "the pool is open");
        let handle = Arc::new(handle);
        self.daemon.keep_events(&handle);
        self.daemon.keep_scrubs(&handle);
        if let Some(hooks) = self.daemon.hooks.clone() {
            let pool = self.name.to_owned();
            handle.listen(Box::new(move |event| {
                let (kind, severity) = (&event.event, event.severity);
                let told = HookEvent::new(kind, severity, &pool, event.at, event.text.clone());
                hooks.send(HookEvent {
                    seat: event.seat,
                    path: event.path.clone(),
                    ..told
                });
            }));
        }
        let mut pools = self.daemon.pools();
        pools.insert(self.name.to_owned(), Some(handle));
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
    /// A daemon without pools. `Daemon::restore` opens the pools of an earlier run.
    #[must_use]
    pub fn new(
        state: StateFile,
        hooks: Option<Hooks>,
        links: Option<LinkPlaces>,
        files: PathBuf,
        kept: KeptFiles,
        enclosures: Enclosures,
    ) -> Self {
        Self {
            state: Some(state),
            hooks,
            links,
            files: Some(files),
            kept,
            enclosures,
            ..Self::default()
        }
    }

    /// Sends an event to the hooks that the pool itself cannot report.
    fn tell(&self, event: &str, severity: Severity, pool: &str, text: &str) {
        if let Some(hooks) = &self.hooks {
            let now = std::time::SystemTime::now();
            let text = text.to_owned();
            hooks.send(HookEvent::new(event, severity, pool, now, text));
        }
    }

    /// Writes the pool's events to disk from now on. Their numbers follow those of the events that are already in the
    /// file.
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
        let histories = self.state.as_ref().map(|state| state.history().clone());
        handle.listen(Box::new(move |event| {
            files.keep(&status.uuid, event);
            if let (Some(histories), Some(line)) = (&histories, history::of_event(event)) {
                histories.keep(&status.uuid, &line);
            }
        }));
    }

    /// The identity of a pool that is open here, by its name or its identity.
    pub(crate) fn identity(&self, pool: &str) -> Option<String> {
        let status = self.status(pool).ok().map(|status| status.pool);
        let status = status.or_else(|| {
            let mut all = self.statuses().into_iter();
            all.find(|status| status.uuid == pool)
        });
        Some(status?.uuid)
    }

    /// Writes a line into a pool's history.
    pub(crate) fn keep_history(&self, uuid: &str, line: &HistoryLine) {
        if let Some(state) = &self.state {
            state.history().keep(uuid, line);
        }
    }

    /// Who changed what in a pool, and the important events, oldest first.
    pub fn history(&self, name: &str) -> Result<History, Failure> {
        let uuid = self.status(name)?.pool.uuid;
        let history = self.state.as_ref().map(|state| state.history().read(&uuid));
        Ok(History {
            history: history.unwrap_or_default(),
        })
    }

    /// Records the pool's scrubs from now on, when they end.
    fn keep_scrubs(&self, handle: &Arc<PoolHandle>) {
        let Some(scrubs) = self.state.as_ref().map(StateFile::scrubs) else {
            return;
        };
        let (scrubs, pool) = (scrubs.clone(), Arc::downgrade(handle));
        handle.listen(Box::new(move |event| {
            if event.event == "scrub_ends" {
                scrubs.has_ended(&pool);
            }
        }));
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<String, Option<Arc<PoolHandle>>>> {
        self.pools.lock().expect("no holder of the lock panics")
    }

    fn handle(&self, name: &str, what: &str) -> Result<Arc<PoolHandle>, Failure> {
        let pools = self.pools();
        match pools.get(name) {
            Some(Some(handle)) => Ok(Arc::clone(handle)),
            Some(None) => Err(Failure::conflict(
                what,
                format!("the pool `{name}` is just being opened or closed"),
                "wait a moment",
            )),
            None => Err(Failure::missing(
                what,
                format!("there is no pool `{name}` open here"),
                or_closest(
                    closest(name, pools.keys().map(String::as_str)),
                    "`ravelin pool list` shows the open ones, `ravelin pool import` opens one",
                ),
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

    /// Takes and releases each lock that every request needs: returns if none of them is held for good.
    pub(crate) fn touch(&self) {
        drop(self.pools());
        drop(self.exports());
    }

    /// A summary of each open pool.
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

    /// The status of a pool and its exports.
    pub fn status(&self, name: &str) -> Result<Status, Failure> {
        let what = format!("the status of pool `{name}` cannot be told");
        let handle = self.handle(name, &what)?;
        let mut pool = handle
            .status()
            .map_err(|error| Failure::pool(&what, &error))?;
        pool.last_scrub = match &self.state {
            Some(state) => state.scrubs().last(&pool),
            None => scrub_file::ended(&pool),
        };
        let exports = self.exports_of(name, None);
        Ok(Status { pool, exports })
    }

    /// The pool's events with numbers above `after`: older ones from disk, newer ones from the pool's memory.
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

    /// The traffic of a pool's drives and volumes.
    pub fn traffic(&self, name: &str) -> Result<PoolTraffic, Failure> {
        let what = format!("what is done in pool `{name}` cannot be told");
        let handle = self.handle(name, &what)?;
        handle
            .traffic()
            .map_err(|error| Failure::pool(&what, &error))
    }

    /// Waits, for `timeout` at most, until no rebuild or resync runs in the pool.
    pub fn idle(&self, name: &str, timeout: Duration) -> Result<bool, Failure> {
        let handle = self.handle(name, &format!("pool `{name}` cannot be waited for"))?;
        Ok(handle.wait_idle(timeout))
    }

    /// Checks a pool specification and, unless the request is a dry run, creates the pool.
    pub fn create(&self, request: &CreatePool) -> Result<CreatedPool, Failure> {
        let name = &request.name;
        let what = format!("pool `{name}` was not created");
        let new = plan(request, &what)?;
        let mut uris = new.drives.iter().chain(&new.spares);
        let _taken = self.takes_volumes(uris.any(|uri| uri.spec.volume().is_some()));
        let reserved = self.reserve(name, &what)?;
        let access = drives::access(request.dry_run);
        let prepare = || {
            assemble::prepare_beside(&new, &self.open_pools(), &self.enclosures, access)
                .map_err(|error| Failure::assemble(&what, &error, &request.scheme))
        };
        let prepared = prepare()?;
        let overwrite = |(drive, holds): &(String, String)| Overwrite {
            drive: drive.clone(),
            holds: holds.clone(),
        };
        let overwrites = prepared.holds().iter().map(overwrite).collect();
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

    fn open_handles(&self) -> Vec<(String, Arc<PoolHandle>)> {
        let pools = self.pools();
        { pools.iter() }
            .filter_map(|(name, handle)| Some((name.clone(), Arc::clone(handle.as_ref()?))))
            .collect()
    }

    /// The pools that are open here, with the identities of their drives and their volumes.
    fn open_pools(&self) -> Vec<OpenPool> {
        let handles = self.open_handles().into_iter();
        { handles }
            .filter_map(|(name, handle)| self.seen_by_others(name, &handle))
            .collect()
    }

    /// Pools whose labels are found in these places, without those that are open here.
    ///
    /// # Errors
    /// [`Failure`] for a place that does not exist.
    pub fn scan(&self, request: &Scan) -> Result<Vec<FoundPool>, Failure> {
        exist(&request.places, "no pools were looked for")?;
        let open: BTreeSet<String> = self.statuses().into_iter().map(|pool| pool.uuid).collect();
        let pools = self.open_pools();
        let found = match request.destroyed {
            true => assemble::scan_destroyed(&request.places, &pools),
            false => assemble::scan(&request.places, &pools),
        };
        let used_again = |pool: &assemble::FoundPool| match request.destroyed {
            true => assemble::used_again(pool, &pools),
            false => Vec::new(),
        };
        Ok(found
            .into_iter()
            .map(|pool| FoundPool {
                used_again: { used_again(&pool).into_iter() }
                    .map(|(place, holds)| Overwrite {
                        drive: place.to_string(),
                        holds,
                    })
                    .collect(),
                name: pool.name,
                uuid: pool.uuid.to_string(),
                scheme: pool.scheme,
                generation: pool.generation.0,
                drives: pool.drives,
                paths: paths(&[pool.found, pool.destroyed].concat()),
                overwritten: paths(&pool.overwritten),
            })
            .filter(|pool| !open.contains(&pool.uuid))
            .collect())
    }

    /// Opens a pool whose labels are found in the request's places.
    pub fn import(&self, request: &Import) -> Result<Status, Failure> {
        let what = format!("pool `{}` was not imported", request.name);
        exist(&request.places, &what)?;
        let failed = |error: &AssembleError| Failure::assemble(&what, error, "");
        if request.new_name.is_none() && self.pools().contains_key(&request.name) {
            // Success if the same pool is open already: a script that imports after each start may run after the
            // restoration.
            let open = self.status(&request.name)?;
            let found = assemble::scan(&request.places, &self.open_pools()).into_iter();
            if { found }.any(|pool| pool.uuid.to_string() == open.pool.uuid) {
                return Ok(open);
            }
            return Err(Failure::conflict(
                what,
                "another pool of this name is already open here",
                "`ravelin pool status` shows it; export it first to import another one",
            ));
        }
        let find = || {
            let open = self.open_pools();
            let found = match request.destroyed {
                true => assemble::scan_destroyed(&request.places, &open),
                false => assemble::scan(&request.places, &open),
            };
            assemble::choose(&found, &request.name, &request.places).cloned()
        };
        let mut chosen = find().map_err(|error| failed(&error))?;
        if request.repair_labels {
            assemble::repair_labels(&chosen, &self.open_pools()).map_err(|error| failed(&error))?;
            chosen = find().map_err(|error| failed(&error))?;
        }
        let without = Without {
            degraded: request.degraded,
            given_up: request.give_up.clone(),
        };
        let name = request.new_name.as_ref().unwrap_or(&chosen.name).clone();
        if self.is_open(&chosen.uuid.to_string()) {
            return Err(Failure::conflict(
                what,
                format!("a pool of this identity, {}, is open here", chosen.uuid),
                "these drives are copies of its drives: open them on another machine",
            ));
        }
        self.open(&chosen, &name, &without, &what).map_err(|failure| {
            let count = chosen.overwritten.len();
            if count == 0 {
                return failure;
            }
            Failure::conflict(
                &*what,
                format!(
                    "{}; the beginning of {count} of its drives is overwritten, and the labels there are gone",
                    failure.problem.why
                ),
                format!(
                    "`ravelin pool import --repair-labels {}` writes them anew by the copies at the drives' ends",
                    request.name
                ),
            )
        })?;
        self.serve_again(&name, &chosen.uuid.to_string(), SPARES_WAIT);
        self.status(&name)
    }

    /// Opens a pool that was found, under its name or another one.
    fn open(
        &self,
        found: &assemble::FoundPool,
        name: &str,
        without: &Without,
        what: &str,
    ) -> Result<(), Failure> {
        let _taken = self.takes_volumes(stacks::stands_on_volumes(found));
        let reserved = self.reserve(name, what)?;
        let import = || {
            let around = (&*self.open_pools(), &self.enclosures);
            assemble::import(found, without, around, RunOptions::default())
        };
        let handle = patiently(import).map_err(|error| Failure::assemble(what, &error, ""))?;
        if name != found.name {
            // Under its old name it would be in the way of the other pool at the next start.
            handle
                .rename(name)
                .map_err(|error| Failure::pool(what, &error))?;
        }
        tracing::info!(pool = name, drives = found.found.len(), "imported");
        reserved.fill(handle);
        self.remember(name);
        Ok(())
    }

    /// Closes a pool: ends its exports and releases its drives.
    pub fn export(&self, name: &str, force: bool) -> Result<(), Failure> {
        if !self.pools().contains_key(name) && self.forget_failed_restores(name) {
            return Ok(());
        }
        let what = format!("pool `{name}` was not exported");
        let _used = self.uses_volumes();
        self.refuse_below(name, &what)?;
        let before = self.status(name).ok();
        let taken_down = self.take_down(name, force, &what);
        let let_go = before.filter(|_| !self.pools().contains_key(name));
        let status = taken_down.map_err(|mut failure| {
            // The pool is not open here any more, though closing it failed. Forget it all the same; the error
            // explains the state.
            let Some(status) = let_go else { return failure };
            self.forget(&status.pool);
            let problem = &mut failure.problem;
            if status.pool.taken_over.is_some() {
                problem.what = format!("pool `{name}` is no longer open here, but was not closed");
                problem.hint =
                    "see which host has it; `ravelin pool import` here when that one has exported it".to_owned();
            } else {
                problem.what = format!("pool `{name}` is no longer open, but its drives were not told");
                problem.hint = format!(
                    "`ravelin pool import {name}` when its drives are there: they have what was flushed"
                );
            }
            failure
        })?;
        self.forget(&status);
        Ok(())
    }

    /// Begins, pauses, resumes or schedules a scrub of a pool.
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

    /// Sets how many stripes of a pool are kept as copies.
    pub fn set_elastic(&self, name: &str, request: SetElastic) -> Result<(), Failure> {
        let what = format!("pool `{name}` keeps its stripes as they are");
        let handle = self.handle(name, &what)?;
        if let Some(percent) = request.percent.filter(|&percent| percent > 100) {
            let why = format!("{percent} percent of its stripes are more than there are");
            return Err(Failure::request(
                &what,
                &why,
                "a number from 0 to 100, or auto",
            ));
        }
        let outcome = handle.set_elastic_share(request.percent);
        outcome.map_err(|error| Failure::pool(&what, &error))
    }

    /// Sets the priority, the rate or the pause of a pool's rebuild and scrub.
    pub fn steer(&self, name: &str, request: &SteerPool) -> Result<(), Failure> {
        let what = format!("the rebuild of pool `{name}` goes on as before");
        let handle = self.handle(name, &what)?;
        let priority = match &request.priority {
            Some(word) => Some(priority::named(word).ok_or_else(|| {
                let names: Vec<_> = PRIORITIES.iter().map(|known| known.name()).collect();
                let hint = format!("use {}", names.join(", "));
                Failure::request(&what, format!("there is no priority `{word}`"), hint)
            })?),
            None => None,
        };
        let steering = Steering {
            priority,
            rate_bytes: { request.rate_bytes }.map(|rate| (rate > 0).then_some(rate)),
            paused: request.pause,
        };
        let outcome = handle.steer(steering);
        outcome.map_err(|error| Failure::pool(&what, &error))
    }

    /// Closes a pool and removes its labels: what it held is lost.
    pub fn destroy(&self, name: &str, request: &DestroyPool) -> Result<(), Failure> {
        let what = format!("pool `{name}` was not destroyed");
        self.handle(name, &what)?;
        named(request.pool.as_deref(), name, &what)?;
        // Also its own drives may be volumes, which are free once it is closed and still have their labels.
        let _taken = self.takes_volumes(true);
        self.refuse_below(name, &what)?;
        self.refuse_coming(name, &what)?;
        let mut pools = self.open_pools();
        // Kept open until their labels are gone.
        let held = self.handle(name, &what).map(|handle| drives::of(&handle))?;
        let status = self.take_down(name, request.force, &what)?;
        self.forget(&status);
        let what = format!("pool `{name}` was closed, but not all of its labels are gone");
        let failed = match pools.iter_mut().find(|pool| pool.name == name) {
            Some(closed) => {
                for member in &mut closed.members {
                    (member.is_open, member.device) = (false, None);
                }
                let closed = closed.clone();
                drives::wipe_labels(&closed, &pools, held, &what)
            }
            None => Ok(()),
        };
        if let Some(state) = &self.state {
            state.events().forget(&status.uuid);
            state.scrubs().forget(&status.uuid);
        }
        tracing::info!(pool = name, "destroyed");
        failed
    }

    /// Ends a pool's exports and closes the pool. Returns its last status.
    fn take_down(&self, name: &str, force: bool, what: &str) -> Result<PoolStatus, Failure> {
        let handle = self.handle(name, what)?;
        if !force {
            self.refuse_clients(name, None, what)?;
        }
        // A pool that has already stopped has no status. Close it all the same and report the error afterwards.
        let status = handle.status().map_err(|error| Failure::pool(what, &error));
        if let (Some(state), Ok(status)) = (&self.state, &status) {
            state.scrubs().note(status);
        }
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
        self.tell("pool_closed", Severity::Info, name, "the pool is closed");
        closed.and(status)
    }

    /// Ends all exports and closes all pools. With `restarts`, exports that outlive the daemon are left to the next one.
    ///
    /// # Errors
    /// The failures, by pool; all pools are closed all the same.
    pub fn close(&self, restarts: bool) -> Result<(), Vec<Failure>> {
        if restarts {
            self.leave_exports();
        }
        let names = self.upper_first();
        let failures: Vec<Failure> = { names.iter() }
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

/// Places as the API names them.
fn paths(places: &[Place]) -> Vec<PathBuf> {
    let paths = places.iter().map(|place| match place {
        Place::Path(path) => path.clone(),
        Place::Volume { .. } => place.to_string().into(),
    });
    paths.collect()
}

/// Refuses a destructive request whose body does not name the pool. Protects against paths that were put together
/// wrongly and against programs that try paths.
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

/// Tries again while a drive is locked and no live process holds the lock. The kernel tears down the rings of a
/// killed daemon after it has reaped the process; until then the rings hold the drives and their locks.
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

/// True if a drive is in use, but by no process that can be seen. On a block device, a claim of a killed daemon
/// cannot be distinguished from a mount.
fn is_unheld(error: &OpenDriveError) -> bool {
    match error {
        OpenDriveError::InUse { holder, .. } => holder.is_none(),
        OpenDriveError::Busy { claims, .. } => claims.is_empty(),
        OpenDriveError::NotFound { .. }
        | OpenDriveError::Denied { .. }
        | OpenDriveError::NotADrive { .. }
        | OpenDriveError::NoVolume { .. }
        | OpenDriveError::Attached { .. }
        | OpenDriveError::NotZram { .. }
        | OpenDriveError::NoBytes { .. }
        | OpenDriveError::TooSmall { .. }
        | OpenDriveError::NoUring { .. }
        | OpenDriveError::Io { .. }
        | OpenDriveError::Start { .. } => false,
    }
}

/// Waits until this is the last reference to the pool, then closes the pool.
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
        let uris = texts.iter().map(|text| drives::typed(text, what));
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
