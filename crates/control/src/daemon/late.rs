//! Pools that did not open at the start, because drives were away: they are opened when all their drives are there.
//!
//! A shelf may be switched on after the host. A pool whose journal may end on drives that are away does not open without
//! them, and when they come, no command is needed.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use block::Full;
use engine::assemble::{FoundPool, Without};
use engine::drive::Place;

use super::Daemon;
use super::restore::RETRY_INTERVAL;
use crate::state::{SavedPool, StateFile};

/// How often to look for drives. Looking reads the labels of the pool's drives, and of all block devices if one is
/// missing.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);

/// If no more drives come for this long, the pool is opened with those that are there, if they are enough. After an
/// attempt with all drives that failed, the next one waits as long.
const SETTLED: Duration = Duration::from_secs(60);

/// The drives of a pool that were found.
struct Seen {
    found: Vec<Place>,
    /// Since when these, or when they were last tried.
    since: Instant,
    /// The pool does not open with these.
    failed: bool,
}

impl Daemon {
    /// Looks for the drives of pools that did not open, until the daemon stops.
    pub(crate) fn open_late_pools(&self) {
        let mut seen: BTreeMap<String, Seen> = BTreeMap::new();
        while self.rest(LOOK_INTERVAL) {
            self.remove_foreign_links();
            for saved in self.pools_to_come() {
                let Some(found) = self.find(&saved) else {
                    continue;
                };
                let fresh = || Seen {
                    found: found.found.clone(),
                    since: Instant::now(),
                    failed: false,
                };
                let known = seen.entry(saved.uuid.clone()).or_insert_with(fresh);
                if known.found != found.found {
                    *known = fresh();
                }
                let settled = known.since.elapsed() >= SETTLED;
                let tries = match found.is_complete() {
                    true => !known.failed || settled,
                    false => !known.failed && settled,
                };
                if tries {
                    known.failed = !self.opens_late(&saved, &found);
                    known.since = Instant::now();
                }
            }
        }
    }

    fn opens_late(&self, saved: &SavedPool, found: &FoundPool) -> bool {
        let what = format!("pool `{}` was not opened", saved.name);
        match self.open(found, &found.name, &Without::default(), &what) {
            Ok(()) => {
                tracing::info!(pool = saved.name, "its drives are there: it is open");
                self.serve_again(&saved.name, &saved.uuid, Duration::ZERO);
                true
            }
            Err(failure) => {
                tracing::warn!("{}", Full(&failure.problem));
                for missing in self.missing().iter_mut() {
                    if missing.uuid == saved.uuid && missing.volume.is_none() {
                        missing.problem.clone_from(&failure.problem);
                    }
                }
                false
            }
        }
    }

    /// The pools that did not open at the start, and that no request has imported or forgotten since.
    fn pools_to_come(&self) -> Vec<SavedPool> {
        let missing = self.missing();
        let pools = missing
            .iter()
            .filter(|missing| missing.volume.is_none() && !missing.restoring);
        let waiting: Vec<String> = pools.map(|missing| missing.uuid.clone()).collect();
        drop(missing);
        if waiting.is_empty() {
            return Vec::new();
        }
        let mut saved = self.state.as_ref().map_or_else(Vec::new, StateFile::pools);
        saved.retain(|saved| waiting.contains(&saved.uuid));
        saved
    }

    /// Waits; false if the daemon stops.
    pub(super) fn rest(&self, time: Duration) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < time && !self.restores_no_more() {
            std::thread::sleep(RETRY_INTERVAL);
        }
        !self.restores_no_more()
    }
}
