//! Drives that left an open pool by themselves and are back: they return without a command.
//!
//! ```text
//!   out ──► the open drive answers ── it was gone, did not answer, or hung ──────────────► returned
//!    │                            └── it always did: it returned errors ────────────────► `drive online` decides
//!    └────► it does not, or none is open ──► a label is searched for under all names ───► returned
//! ```
//!
//! The names of all block devices and of the files beside the pool's own are compared with those of the last look. They
//! change when a drive is plugged in, moved or renamed, and no drive is read for that: sleeping disks stay asleep. The
//! kernel's device events would say the same, but come late, in bursts, before a device has its size, and in containers
//! not at all. Labels are read when the names have changed, and once a minute.
//!
//! A spare that waits is not used, so nothing shows that it was pulled: it is asked for its label once a minute, and when
//! names have changed. One that is gone is out, and returns as any other drive.
//!
//! A drive that comes and goes would be caught up with again and again: after a few returns it waits for a command.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use array::pool::{OutReason, SeatState};
use block::{Full, Seat};
use engine::assemble::{self, Command, Names};
use engine::drive::Drive;
use engine::status::Severity;
use engine::{Member, PoolHandle};
use uuid::Uuid;

use super::Daemon;
use super::drives::{At, directories};
use crate::Failure;

/// How often the names are looked at while a drive is out.
const LOOK_INTERVAL: Duration = Duration::from_secs(2);
/// How often a drive that is out and open is asked whether it answers, and names are looked at for spares.
const ASK_INTERVAL: Duration = Duration::from_secs(10);
/// How often labels are read though no name has changed: a drive that hung may answer again.
const SEARCH_INTERVAL: Duration = Duration::from_secs(60);
/// In this time a drive returns only so often.
const DAMPED_WITHIN: Duration = Duration::from_secs(600);

/// A drive by its pool and its number: its identity changes with each return.
type Key = (Uuid, u16);

/// What is known of a drive that is out.
struct Away {
    /// Its identity when it went out; another one has left the seat since if it differs.
    drive: Uuid,
    /// It has not answered since it is out.
    was_gone: bool,
    /// When the open drive is asked next, and when labels are read next, if no name changes before.
    asks_at: Instant,
    searches_at: Instant,
    /// The names when its label was last searched for.
    names: Names,
    /// Why it did not return, as the log says.
    told: String,
}

impl Away {
    fn new(drive: Uuid, now: Instant) -> Self {
        Self {
            drive,
            was_gone: false,
            asks_at: now,
            searches_at: now,
            names: Names::default(),
            told: String::new(),
        }
    }
}

/// The returns of one drive.
#[derive(Default)]
struct Returns {
    at: Vec<Instant>,
    /// The log says that it waits for a command.
    is_told: bool,
}

impl Returns {
    /// Whether the drive may return once more at `now`.
    fn allow(&mut self, now: Instant, most: usize) -> bool {
        self.at
            .retain(|&at| now.saturating_duration_since(at) < DAMPED_WITHIN);
        self.is_told &= self.at.len() >= most;
        self.at.len() < most
    }
}

/// What is known of a spare that waits.
struct Ready {
    /// When the names are looked at next, and when the spare is asked though they are the same.
    looks_at: Instant,
    asks_at: Instant,
    names: Names,
}

impl Ready {
    /// A spare that was not listed before. It is not asked at once: its label may be on the way to it.
    fn new(now: Instant, names: &Names) -> Self {
        Self {
            looks_at: now,
            asks_at: now + ASK_INTERVAL,
            names: names.clone(),
        }
    }

    /// Whether the spare is asked now.
    fn asks(&mut self, now: Instant, names: &Names) -> bool {
        self.looks_at = now + ASK_INTERVAL;
        if self.names == *names && now < self.asks_at {
            return false;
        }
        self.asks_at = now + SEARCH_INTERVAL;
        self.names.clone_from(names);
        true
    }
}

#[derive(Default)]
struct Watch {
    away: BTreeMap<Key, Away>,
    spares: BTreeMap<Key, Ready>,
    returns: BTreeMap<Key, Returns>,
}

impl Watch {
    /// Forgets drives of the pool that are not out, or no spares, any more.
    fn forget_others(&mut self, pool: Uuid, is_out_or_spare: impl Fn(u16) -> (bool, bool)) {
        self.away
            .retain(|&(of, number), _| of != pool || is_out_or_spare(number).0);
        self.spares
            .retain(|&(of, number), _| of != pool || is_out_or_spare(number).1);
    }
}

impl Daemon {
    /// Returns drives that are back, until the daemon stops; a drive at most `most` times in ten minutes.
    pub(crate) fn return_drives(&self, most: usize) {
        let mut watch = Watch::default();
        while self.rest(LOOK_INTERVAL) {
            let open: Vec<String> = self.pools().keys().cloned().collect();
            for name in open {
                if !self.restores_no_more() {
                    self.look_after(&name, &mut watch, most);
                }
            }
        }
    }

    /// The open pool of a name. Held for a moment only: closing the pool waits for whoever holds it, and a look at a drive
    /// that hangs takes ten seconds.
    fn open_pool(&self, name: &str) -> Option<Arc<PoolHandle>> {
        self.pools().get(name).cloned().flatten()
    }

    fn look_after(&self, name: &str, watch: &mut Watch, most: usize) {
        let members = self.open_pool(name).map(|handle| handle.members());
        // A pool that has just stopped has no drives.
        let Some(Ok((pool, members))) = members else {
            return;
        };
        let now = Instant::now();
        let key = |member: &Member| (pool, member.number);
        let out = |member: &&Member| most > 0 && left(member);
        let spare = |member: &&Member| member.is_free && member.is_open;
        watch.forget_others(pool, |number| {
            let listed = members.iter().find(|member| member.number == number);
            (
                listed.is_some_and(|member| out(&member)),
                listed.is_some_and(|member| spare(&member)),
            )
        });
        let due = |watch: &Watch, member: &Member| {
            let known = watch.spares.get(&key(member));
            spare(&member) && known.is_none_or(|known| now >= known.looks_at)
        };
        let due: Vec<&Member> = { members.iter() }
            .filter(|member| due(watch, member))
            .collect();
        if due.is_empty() && !members.iter().any(|member| out(&member)) {
            return;
        }
        let directories = directories(members.iter().map(|member| &*member.path));
        let names = assemble::names(&directories);
        for member in due {
            let known = watch.spares.entry(key(member));
            let known = known.or_insert_with(|| Ready::new(now, &names));
            if known.asks(now, &names) {
                self.ask(name, member);
            }
        }
        for member in members.iter().filter(out) {
            let key = key(member);
            let fresh = || Away::new(member.drive, now);
            let away = watch.away.entry(key).or_insert_with(fresh);
            if away.drive != member.drive {
                *away = fresh();
            }
            let attached = self.drive_of(name, member.number);
            if is_back((pool, member), attached, away, &names, &directories) {
                let returns = watch.returns.entry(key).or_default();
                self.lets_return(name, member.number, (away, returns), most);
            }
        }
    }

    /// The drive that the pool has open.
    fn drive_of(&self, name: &str, number: u16) -> Option<Drive> {
        self.open_pool(name)?.drive(Seat(number)).ok()
    }

    /// Takes a spare out that does not answer.
    fn ask(&self, name: &str, spare: &Member) {
        let seat = Seat(spare.number);
        let is_gone = |drive: Drive| !assemble::is_still(&drive, spare.drive);
        if self.drive_of(name, spare.number).is_some_and(is_gone)
            && let Some(handle) = self.open_pool(name)
            && let Err(error) = handle.fail_drive(seat, OutReason::Missing, false)
        {
            tracing::warn!(
                pool = name,
                seat = spare.number,
                "the spare is gone: {error}"
            );
        }
    }

    fn lets_return(
        &self,
        name: &str,
        number: u16,
        (away, returns): (&mut Away, &mut Returns),
        most: usize,
    ) {
        if !returns.allow(Instant::now(), most) {
            if !std::mem::replace(&mut returns.is_told, true) {
                let minutes = DAMPED_WITHIN.as_secs() / 60;
                let text = format!(
                    "the drive of seat {number} has come and gone {most} times in {minutes} minutes: \
                     `ravelin drive online {name} {number}` returns it"
                );
                tracing::warn!(pool = name, "{text}");
                self.tell("drive_waits", Severity::Warning, name, &text);
            }
            return;
        }
        match self.brings_back(name, number) {
            Ok(()) => returns.at.push(Instant::now()),
            Err(failure) => {
                let text = Full(&failure.problem).to_string();
                if text != away.told {
                    // A device may be there before it has its size, and the pool may still wait for its last answers.
                    away.searches_at = Instant::now() + ASK_INTERVAL;
                    tracing::warn!("{text}");
                    away.told = text;
                }
            }
        }
    }

    fn brings_back(&self, name: &str, number: u16) -> Result<(), Failure> {
        let what = format!("drive {number} of pool `{name}` did not return by itself");
        let handle = self.handle(name, &what)?;
        let at = At {
            handle: &handle,
            what: &what,
        };
        let seat = at.seat(&number.to_string())?;
        let drive = self.bring_back(&at, &seat, Command::Online, false)?;
        tracing::info!(pool = name, seat = number, drive = drive.path, "it is back");
        self.remember(name);
        Ok(())
    }
}

/// Why a drive is out.
const fn reason(member: &Member) -> Option<OutReason> {
    match member.state {
        SeatState::Out { reason, .. } => Some(reason),
        SeatState::Current | SeatState::Filling | SeatState::Waiting => None,
    }
}

/// Whether a drive is out for a reason that ends when the drive is back. One that a command took out stays out, and one
/// that was much too slow.
const fn left(member: &Member) -> bool {
    match reason(member) {
        Some(OutReason::IoErrors | OutReason::Missing | OutReason::Stale | OutReason::Hung) => true,
        Some(OutReason::FailedByAdministrator | OutReason::Offline | OutReason::Slow) | None => {
            false
        }
    }
}

/// Whether the drive is there again, under any name.
fn is_back(
    (pool, member): (Uuid, &Member),
    attached: Option<Drive>,
    away: &mut Away,
    names: &Names,
    directories: &[PathBuf],
) -> bool {
    let now = Instant::now();
    let moved = away.names != *names;
    if let Some(drive) = &attached
        && (moved || now >= away.asks_at)
    {
        away.asks_at = now + ASK_INTERVAL;
        if assemble::is_still(drive, member.drive) {
            away.names.clone_from(names);
            // It is back, unless it was there all the time and returned errors.
            let was_there = reason(member) == Some(OutReason::IoErrors) && !member.has_vanished;
            return away.was_gone || !was_there;
        }
        away.was_gone = true;
    }
    // An open drive that is not known to be gone is the one that is there.
    let is_away = attached.is_none() || away.was_gone;
    drop(attached);
    if !is_away || !moved && now < away.searches_at {
        return false;
    }
    away.searches_at = now + SEARCH_INTERVAL;
    away.names.clone_from(names);
    // Of two copies none is taken, and the command says why.
    assemble::with_label_of(pool, member.drive, directories).len() == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_comes_and_goes_waits_until_the_time_is_over() {
        let begun = Instant::now();
        let mut returns = Returns::default();
        for second in 0..5 {
            let now = begun + Duration::from_secs(second);
            assert!(returns.allow(now, 5));
            returns.at.push(now);
        }
        assert!(!returns.allow(begun + Duration::from_secs(599), 5));
        assert!(returns.allow(begun + Duration::from_secs(600), 5));
    }
}
