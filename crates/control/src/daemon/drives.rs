//! Commands that change or wipe drives of the daemon's pools.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use array::pool::{LeaveError, OutReason, PoolError};
use axum::http::StatusCode;
use block::{Seat, closest};
use engine::assemble::{
    self, Access, Answer, Command, Meant, Occupant, OpenPool, Permit, Permitted, RemovalPlan,
};
use engine::drive::{Drive, DriveUri, ParseDriveUriError};
use engine::status::{Health, SeatStatus};
use engine::{Member, PoolHandle};
use uuid::Uuid;

use super::Daemon;
use super::stacks::is_volume;
use crate::Failure;
use crate::api::{ChangeLabel, ChangedDrive, DriveChange, Overwrite, RestoredLabel, WipedDrive};
use crate::failure::or_closest;

/// How long closing a drive may take after its pool has released it.
const LET_GO: Duration = Duration::from_secs(5);

/// A change to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Takes the drive out for good.
    Fail,
    /// Takes the drive out for a while.
    Offline,
    /// Returns the drive to its seat.
    Online,
    /// Puts another drive in its seat.
    Replace,
    /// Adds the drive as a spare.
    Add,
    /// Removes a spare.
    Remove,
    /// Clears the drive's error counts; if these had taken the drive out, returns the drive.
    Clear,
}

impl Change {
    /// The word in routes and commands.
    #[must_use]
    pub const fn verb(self) -> &'static str {
        match self {
            Self::Fail => "fail",
            Self::Offline => "offline",
            Self::Online => "online",
            Self::Replace => "replace",
            Self::Add => "add",
            Self::Remove => "remove",
            Self::Clear => "clear",
        }
    }

    const fn done(self) -> &'static str {
        match self {
            Self::Fail => "failed",
            Self::Offline => "taken offline",
            Self::Online => "brought online",
            Self::Replace => "replaced",
            Self::Add => "added",
            Self::Remove => "removed",
            Self::Clear => "cleared",
        }
    }
}

/// Parses a drive's URI.
pub(super) fn parse(text: &str, what: &str) -> Result<DriveUri, Failure> {
    text.parse()
        .map_err(|error: ParseDriveUriError| Failure::of(StatusCode::BAD_REQUEST, what, &error))
}

/// Parses a drive's name as a request gives it.
pub(super) fn typed(text: &str, what: &str) -> Result<DriveUri, Failure> {
    DriveUri::typed(text).map_err(|error| Failure::of(StatusCode::BAD_REQUEST, what, &error))
}

/// What a command does to drives that it looks at.
pub(super) const fn access(dry_run: bool) -> Access {
    match dry_run {
        true => Access::Read,
        false => Access::Write,
    }
}

/// The drives that a pool has open, by their identities.
pub(super) fn of(handle: &PoolHandle) -> BTreeMap<Uuid, Drive> {
    let members = handle.members().map(|(_, members)| members);
    let open = members
        .into_iter()
        .flatten()
        .filter(|member| member.is_open);
    open.filter_map(|member| Some((member.drive, handle.drive(Seat(member.number)).ok()?)))
        .collect()
}

/// Drives whose labels are removed at the same time.
const WIPES_AT_ONCE: usize = 16;

/// Removes the labels of a pool that has just been closed, from those drives that still hold them. `pools` are all
/// pools as they were before, `held` the drives that the pool had open. A drive that has another identity by now, or
/// was in use elsewhere, stays as it is.
pub(super) fn wipe_labels(
    closed: &OpenPool,
    pools: &[OpenPool],
    mut held: BTreeMap<Uuid, Drive>,
    what: &str,
) -> Result<(), Failure> {
    let members = closed.members.iter();
    let drives: Vec<_> = members
        .map(|member| (member, held.remove(&member.drive)))
        .collect();
    // A slow drive takes seconds: one after the other, sixty of them would take minutes.
    let left = Mutex::new(drives.into_iter());
    let wipes = || {
        let mut failed = None;
        loop {
            let next = left.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((member, held)) = next else {
                return failed;
            };
            if let Err(failure) = wipe_label_of(member, closed, pools, held, what) {
                failed = Some(failure);
            }
        }
    };
    std::thread::scope(|scope| {
        let threads = WIPES_AT_ONCE.min(closed.members.len());
        let threads: Vec<_> = (1..threads).map(|_| scope.spawn(wipes)).collect();
        let own = wipes();
        // A drive that a thread has panicked over may still have its label.
        let others = { threads.into_iter() }
            .filter_map(|thread| thread.join().unwrap_or_else(|panic| resume_unwind(panic)));
        own.into_iter().chain(others.collect::<Vec<_>>()).next()
    })
    .map_or(Ok(()), Err)
}

/// Removes the label of one of these drives.
fn wipe_label_of(
    member: &Member,
    closed: &OpenPool,
    pools: &[OpenPool],
    held: Option<Drive>,
    what: &str,
) -> Result<(), Failure> {
    let uri = parse(&member.path, what)?;
    // `mem:` drives are gone with the pool.
    if uri.spec.place().is_none() {
        return Ok(());
    }
    let meant = Meant {
        pool: Some(closed.uuid),
        drive: Some(member.drive),
    };
    match released(held, |held| {
        examine_for(Command::Destroy, &uri, held, pools, meant)
    }) {
        Looked::Permitted(drive) => {
            assemble::wipe_label(&drive).map_err(|error| Failure::assemble(what, &error, ""))
        }
        Looked::Other(Occupant::Taken(error)) => Err(Failure::drive(what, &error)),
        Looked::Other(Occupant::NoAnswer(error)) => Err(Failure::assemble(what, &error, "")),
        Looked::Other(Occupant::Missing(_)) => Ok(()),
        Looked::Other(other) => {
            tracing::warn!(drive = %uri, "left as it is: it holds {other}");
            Ok(())
        }
    }
}

/// What a look at a drive leads to.
enum Looked {
    /// The command may write to the drive.
    Permitted(Drive),
    /// The command leaves it alone.
    Other(Occupant),
}

fn examine_for(
    command: Command,
    uri: &DriveUri,
    held: Option<Drive>,
    pools: &[OpenPool],
    meant: Meant,
) -> Looked {
    let examined = match held {
        Some(drive) => assemble::examine_released(drive, pools),
        None => assemble::examine(uri, pools, Access::Write),
    };
    let answer = Answer::new(&examined.occupant, meant);
    match (assemble::permit(command, answer), examined.drive) {
        (Permit::Take, Some(drive)) => Looked::Permitted(drive),
        _ => Looked::Other(examined.occupant),
    }
}

/// Looks again while the drive is in use: a pool closes a drive a moment after it has released the drive.
fn released(mut held: Option<Drive>, mut look: impl FnMut(Option<Drive>) -> Looked) -> Looked {
    let deadline = Instant::now() + LET_GO;
    loop {
        match look(held.take()) {
            Looked::Other(Occupant::Taken(_)) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            looked => return looked,
        }
    }
}

/// A change in progress: the pool, and the beginning of the error message.
pub(super) struct At<'a> {
    pub(super) handle: &'a PoolHandle,
    pub(super) what: &'a str,
}

/// Whether the request names its drive a second time.
fn is_confirmed(request: &ChangeLabel, what: &str) -> Result<(), Failure> {
    if request.confirm.as_deref() == Some(&*request.drive) {
        return Ok(());
    }
    Err(Failure::request(
        what,
        "it loses data, and the request's body does not name the drive a second time",
        "put \"confirm\" with the drive's name into the body if it is meant",
    ))
}

/// The directories of drives: one that comes back under another name is found there if it is a file.
pub(super) fn directories<'a>(names: impl IntoIterator<Item = &'a str>) -> Vec<PathBuf> {
    let parent = |name: &str| {
        let uri: DriveUri = name.parse().ok()?;
        uri.spec.path()?.parent().map(Path::to_owned)
    };
    let all: BTreeSet<PathBuf> = names.into_iter().filter_map(parent).collect();
    all.into_iter().collect()
}

impl Daemon {
    /// Changes a drive of a pool.
    pub fn change_drive(
        &self,
        pool: &str,
        change: Change,
        request: &DriveChange,
    ) -> Result<ChangedDrive, Failure> {
        let what = format!(
            "drive {} of pool `{pool}` was not {}",
            request.drive,
            change.done()
        );
        let names = request.new.iter().chain([&request.drive]);
        let _taken = self.takes_volumes({ names }.any(|name| is_volume(name)));
        let handle = self.handle(pool, &what)?;
        let at = At {
            handle: &handle,
            what: &what,
        };
        tracing::info!(pool, drive = request.drive, change = change.verb(), "asked");
        let changed = self.change(&at, change, request);
        // The pool's drives may have changed.
        self.remember(pool);
        changed
    }

    fn change(
        &self,
        at: &At<'_>,
        change: Change,
        request: &DriveChange,
    ) -> Result<ChangedDrive, Failure> {
        let At { handle, what } = *at;
        if request.dry_run {
            return self.plan_change(at, change, request);
        }
        match change {
            Change::Fail => at.take_out(
                &request.drive,
                OutReason::FailedByAdministrator,
                request.force,
            ),
            Change::Offline => {
                let reason = match request.rebuild {
                    true => OutReason::FailedByAdministrator,
                    false => OutReason::Offline,
                };
                at.take_out(&request.drive, reason, request.force)
            }
            Change::Online => {
                let seat = at.seat(&request.drive)?;
                if seat.leaves {
                    return at.keep(&seat);
                }
                self.bring_back(at, &seat, Command::Online, request.force)
            }
            Change::Remove => self.remove(at, &request.drive),
            Change::Clear => self.clear(at, &request.drive),
            Change::Add => {
                let drive =
                    self.new_drive(at, (Command::Add, None), &request.drive, request.force)?;
                let before = at.seats()?;
                let added = handle.add_spare(drive.clone());
                added.map_err(|error| at.failed(&error))?;
                engine::drive::show_to_udev(&drive);
                at.changed(&at.newest(&before)?)
            }
            Change::Replace => {
                let Some(new) = &request.new else {
                    return Err(Failure::request(
                        what,
                        "the new drive is not named",
                        "name it",
                    ));
                };
                let old = at.seat(&request.drive)?;
                if let (Some(given_up), false) = (at.only_copy(&old)?, request.force) {
                    return Err(Failure::conflict(
                        what,
                        format!(
                            "some data cannot be read without the drives that are out, and that of seat {} may hold {}",
                            old.seat, given_up.holds
                        ),
                        "bring the drives back (`ravelin drive online`); --force gives up what only they hold",
                    ));
                }
                let drive =
                    self.new_drive(at, (Command::Replace, Some(&old)), new, request.force)?;
                let changed = at.replace(&old, drive.clone())?;
                engine::drive::show_to_udev(&drive);
                Ok(changed)
            }
        }
    }

    /// Wipes the signatures and labels on a drive, if the drive belongs to no pool that is open here.
    pub fn wipe_drive(&self, request: &ChangeLabel) -> Result<WipedDrive, Failure> {
        let what = format!("drive {} was not wiped", request.drive);
        let uri = typed(&request.drive, &what)?;
        let _taken = self.takes_volumes(uri.spec.volume().is_some());
        if let Some(domain) = &uri.domain {
            return Err(Failure::request(
                what,
                format!("`@{domain}` is a failure domain, which no drive on its own has"),
                "name the drive alone; write %40 for an @ in a path",
            ));
        }
        let failed = |error| Failure::assemble(&what, &error, "");
        let open = || {
            let pools = self.open_pools();
            let access = access(request.dry_run);
            assemble::open_for(Command::Wipe, &uri, &pools, Meant::default(), false, access)
        };
        let Permitted { drive, holds } = open().map_err(failed)?;
        let mut restorable = false;
        if !request.dry_run {
            is_confirmed(request, &what)?;
            restorable = assemble::wipe_drive(&drive, &self.open_pools()).map_err(failed)?;
            tracing::info!(drive = request.drive, "wiped");
        }
        Ok(WipedDrive {
            drive: request.drive.clone(),
            holds,
            wiped: !request.dry_run,
            restorable,
        })
    }

    /// Gives a drive its label back.
    pub fn restore_label(&self, request: &ChangeLabel) -> Result<RestoredLabel, Failure> {
        let what = format!("the label of {} was not restored", request.drive);
        let uri = typed(&request.drive, &what)?;
        let _taken = self.takes_volumes(uri.spec.volume().is_some());
        let pools = self.open_pools();
        let restore = |dry_run| {
            assemble::restore_label(&uri, &pools, access(dry_run))
                .map_err(|error| Failure::assemble(&what, &error, ""))
        };
        let mut found = restore(true)?;
        if !request.dry_run {
            if found.over.is_some() {
                is_confirmed(request, &what)?;
            }
            found = restore(false)?;
            tracing::info!(
                drive = request.drive,
                pool = found.pool,
                "has its label again"
            );
        }
        Ok(RestoredLabel {
            drive: request.drive.clone(),
            pool: found.pool,
            uuid: found.uuid.to_string(),
            seat: found.number,
            over: found.over,
            restored: !request.dry_run,
        })
    }

    /// What a change would overwrite.
    fn plan_change(
        &self,
        at: &At<'_>,
        change: Change,
        request: &DriveChange,
    ) -> Result<ChangedDrive, Failure> {
        let what = at.what;
        let overwrite = |(drive, holds): (&Drive, Option<String>)| {
            let drive = drive.uri.to_string();
            holds.map(|holds| Overwrite { drive, holds })
        };
        let (command, new, seat) = match (change, &request.new) {
            (Change::Add, _) => (Command::Add, &request.drive, None),
            (Change::Remove, _) => {
                let seat = at.seat(&request.drive)?;
                return Ok(match at.plan_removal(&seat)? {
                    Some(plan) => at.leaving(&seat, plan),
                    None => at.removed(&seat, None),
                });
            }
            (Change::Replace, Some(new)) => (Command::Replace, new, Some(at.seat(&request.drive)?)),
            (Change::Online, _) => {
                let seat = at.seat(&request.drive)?;
                let found = self.returned(at, &seat, Command::Online, true, Access::Read)?;
                return Ok(ChangedDrive {
                    seat: seat.seat,
                    path: found.drive.uri.to_string(),
                    state: seat.state,
                    overwrites: overwrite((&found.drive, found.holds)).into_iter().collect(),
                    kept: None,
                    plan: None,
                });
            }
            _ => {
                return Err(Failure::request(
                    what,
                    "only `add`, `replace`, `remove` and `online` have a dry run",
                    "",
                ));
            }
        };
        let found = self.permitted(at, (command, seat.as_ref()), new, true, Access::Read)?;
        let given_up = match &seat {
            Some(seat) => at.only_copy(seat)?,
            None => None,
        };
        let next = u16::try_from(at.seats()?.len()).unwrap_or(u16::MAX);
        Ok(ChangedDrive {
            seat: seat.map_or(next, |seat| seat.seat),
            path: found.drive.uri.to_string(),
            state: "out".to_owned(),
            overwrites: { overwrite((&found.drive, found.holds)).into_iter() }
                .chain(given_up)
                .collect(),
            kept: None,
            plan: None,
        })
    }

    /// Opens a drive that is to join a pool, perhaps in the place of the drive `old`.
    pub(super) fn permitted(
        &self,
        at: &At<'_>,
        (command, old): (Command, Option<&SeatStatus>),
        name: &str,
        force: bool,
        access: Access,
    ) -> Result<Permitted, Failure> {
        let uri = typed(name, at.what)?;
        at.check_slot(&uri, old)?;
        let pools = self.open_pools();
        let meant = Meant {
            pool: Some(at.uuid()?),
            drive: None,
        };
        let mut found = assemble::open_for(command, &uri, &pools, meant, force, access)
            .map_err(|error| Failure::assemble(at.what, &error, ""))?;
        self.enclosures.place(&mut found.drive);
        Ok(found)
    }

    /// The same; wipes its earlier label and journal.
    fn new_drive(
        &self,
        at: &At<'_>,
        command: (Command, Option<&SeatStatus>),
        name: &str,
        force: bool,
    ) -> Result<Drive, Failure> {
        let Permitted { drive, .. } = self.permitted(at, command, name, force, Access::Write)?;
        assemble::forget_earlier_life(&drive)
            .map_err(|error| Failure::assemble(at.what, &error, ""))?;
        Ok(drive)
    }

    /// Removes a spare from the pool, and wipes its label. What has the spare's name by now may be another drive: that
    /// one stays as it is. The removal of a drive of the layout begins, and ends without a further command.
    fn remove(&self, at: &At<'_>, name: &str) -> Result<ChangedDrive, Failure> {
        let seat = at.seat(name)?;
        if let Some(plan) = at.plan_removal(&seat)? {
            let removed = at.handle.remove_drive(Seat(seat.seat));
            removed.map_err(|error| at.failed(&error))?;
            return Ok(at.leaving(&seat, plan));
        }
        let mut pools = self.open_pools();
        let meant = at.meant(&seat)?;
        // Kept open until its label is gone.
        let held = at.handle.drive(Seat(seat.seat)).ok();
        at.handle
            .remove_spare(Seat(seat.seat))
            .map_err(|error| at.failed(&error))?;
        let gone = |kept| at.removed(&seat, kept);
        let uri = parse(&seat.path, at.what)?;
        if uri.spec.place().is_none() {
            return Ok(gone(None));
        }
        // The pool lists the spare no more: it is known by what was listed before.
        let own = |member: &&mut Member| Some(member.drive) == meant.drive;
        let members = pools.iter_mut().flat_map(|pool| &mut pool.members);
        for member in { members }.filter(own) {
            (member.is_open, member.device) = (false, None);
        }
        let looked = released(held, |held| {
            examine_for(Command::Remove, &uri, held, &pools, meant)
        });
        match looked {
            Looked::Permitted(drive) => {
                assemble::give_up(&drive)
                    .map(|()| gone(None))
                    .map_err(|error| {
                        let what =
                            format!("{} is no spare any more, and its label stays", seat.path);
                        Failure::assemble(&what, &error, "")
                    })
            }
            Looked::Other(Occupant::Missing(_)) => Ok(gone(None)),
            Looked::Other(other) => {
                tracing::warn!(drive = %uri, "left as it is: it holds {other}");
                Ok(gone(Some(other.to_string())))
            }
        }
    }

    fn clear(&self, at: &At<'_>, name: &str) -> Result<ChangedDrive, Failure> {
        let seat = at.seat(name)?;
        at.handle
            .clear_drive(Seat(seat.seat))
            .map_err(|error| at.failed(&error))?;
        let by_itself = [OutReason::IoErrors, OutReason::Hung, OutReason::Slow];
        match seat.reason {
            Some(reason) if by_itself.contains(&reason) => {
                self.bring_back(at, &seat, Command::Clear, false)
            }
            _ => at.changed(&seat),
        }
    }

    /// Returns the drive that left a seat, wherever it is by now.
    pub(super) fn bring_back(
        &self,
        at: &At<'_>,
        seat: &SeatStatus,
        command: Command,
        force: bool,
    ) -> Result<ChangedDrive, Failure> {
        if seat.state != "out" {
            return Err(Failure::conflict(
                at.what,
                format!("seat {} has a working drive already", seat.seat),
                "`ravelin pool status` shows which drives are out",
            ));
        }
        let access = Access::Write;
        let Permitted { mut drive, .. } = self.returned(at, seat, command, force, access)?;
        self.enclosures.place(&mut drive);
        at.handle
            .return_drive(Seat(seat.seat), Some(drive))
            .map_err(|error| at.failed(&error))?;
        at.changed(seat)
    }

    /// Opens the drive that left a seat: under its name if it is still there, or else under any other.
    fn returned(
        &self,
        at: &At<'_>,
        seat: &SeatStatus,
        command: Command,
        force: bool,
        access: Access,
    ) -> Result<Permitted, Failure> {
        let uri = parse(&seat.path, at.what)?;
        let meant = at.meant(seat)?;
        let first = match self.look_for(at, seat, command, &uri, force, access)? {
            Ok(found) => return Ok(found),
            Err(other) => other,
        };
        // Its name leads elsewhere: names are only where to look.
        let (Some(pool), Some(identity)) = (meant.pool, meant.drive) else {
            return Err(at.not_there(seat, &uri, &first));
        };
        let others = match uri.spec.path() {
            Some(_) => {
                let seats = at.seats()?;
                let names = seats.iter().map(|seat| &*seat.path);
                assemble::with_label_of(pool, identity, &directories(names))
            }
            None => Vec::new(),
        };
        match others.as_slice() {
            [path] => {
                let found = DriveUri {
                    spec: uri.spec.with_path(path),
                    domain: uri.domain.clone(),
                    slot: None,
                };
                tracing::info!(drive = %found, was = %uri, "found by its label");
                self.look_for(at, seat, command, &found, force, access)?
                    .map_err(|other| at.not_there(seat, &found, &other))
            }
            [one, two, ..] => Err(Failure::conflict(
                at.what,
                format!(
                    "{} and {} both have the label of seat {}: one is a copy",
                    one.display(),
                    two.display(),
                    seat.seat
                ),
                "take the copy away",
            )),
            [] => Err(at.not_there(seat, &uri, &first)),
        }
    }

    /// The drive of a name, if the command may bring it back into the seat; or else what is there.
    fn look_for(
        &self,
        at: &At<'_>,
        seat: &SeatStatus,
        command: Command,
        uri: &DriveUri,
        force: bool,
        access: Access,
    ) -> Result<Result<Permitted, Occupant>, Failure> {
        let meant = at.meant(seat)?;
        let pools = self.open_pools();
        if let Some(pool) = meant.pool {
            assemble::refuse_volume(uri, pool, &pools)
                .map_err(|error| Failure::assemble(at.what, &error, ""))?;
        }
        let attached = || at.handle.drive(Seat(seat.seat)).ok();
        let own = |occupant: &Occupant| match occupant {
            Occupant::InUse { uuid, number, .. } => {
                Some(*uuid) == meant.pool && *number == seat.seat
            }
            _ => false,
        };
        let examined = match (uri.spec.place(), attached()) {
            (None, Some(drive)) => {
                Some((assemble::examine_open(&drive, &pools), Some(drive), true))
            }
            (None, None) => None,
            (Some(_), attached) => {
                let examined = assemble::examine(uri, &pools, access);
                match attached {
                    // The pool has the very device open.
                    Some(drive) if own(&examined.occupant) => {
                        Some((assemble::examine_open(&drive, &pools), Some(drive), true))
                    }
                    _ => Some((examined.occupant, examined.drive, false)),
                }
            }
        };
        let Some((occupant, drive, is_attached)) = examined else {
            return Err(at.not_there(seat, uri, &Occupant::Empty));
        };
        let answer = Answer::new(&occupant, meant);
        let permit = assemble::permit(command, answer);
        // The pool took this very device in, and the device refused the label with its new identity.
        let was_ours = is_attached
            && matches!(occupant, Occupant::Former { number, .. } if number == seat.seat);
        let permitted = permit == Permit::Take || was_ours || force && permit == Permit::Force;
        Ok(match drive {
            Some(drive) if permitted => {
                let forced = permit == Permit::Force && !was_ours;
                let holds = forced.then(|| occupant.to_string());
                Ok(Permitted { drive, holds })
            }
            _ if answer == Answer::WentOn => {
                return Err(Failure::assemble(
                    at.what,
                    &assemble::refusal(uri, occupant),
                    "",
                ));
            }
            _ => Err(occupant),
        })
    }
}

impl At<'_> {
    /// What the removal of a drive does; `None` if it is a spare.
    fn plan_removal(&self, seat: &SeatStatus) -> Result<Option<RemovalPlan>, Failure> {
        match self.handle.plan_removal(Seat(seat.seat)) {
            Ok(plan) => Ok(Some(plan)),
            Err(PoolError::Leave {
                error: LeaveError::Spare { .. },
            }) => Ok(None),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// A drive of the layout is being removed, or would be.
    fn leaving(&self, seat: &SeatStatus, plan: RemovalPlan) -> ChangedDrive {
        ChangedDrive {
            state: "leaving".to_owned(),
            plan: Some(plan),
            ..self.removed(seat, None)
        }
    }

    /// A spare is removed, or would be. `kept`: what has its name by now.
    fn removed(&self, seat: &SeatStatus, kept: Option<String>) -> ChangedDrive {
        ChangedDrive {
            seat: seat.seat,
            path: seat.path.clone(),
            state: "removed".to_owned(),
            overwrites: Vec::new(),
            plan: None,
            kept,
        }
    }

    /// The removal of a drive is called off.
    fn keep(&self, seat: &SeatStatus) -> Result<ChangedDrive, Failure> {
        let kept = self.handle.keep_drive(Seat(seat.seat));
        kept.map_err(|error| self.failed(&error))?;
        self.changed(seat)
    }

    fn failed(&self, error: &PoolError) -> Failure {
        Failure::pool(self.what, error)
    }

    /// The identity of the pool.
    fn uuid(&self) -> Result<Uuid, Failure> {
        let members = self.handle.members().map_err(|error| self.failed(&error));
        members.map(|(uuid, _)| uuid)
    }

    /// A command about the drive of a seat.
    fn meant(&self, seat: &SeatStatus) -> Result<Meant, Failure> {
        Ok(Meant {
            pool: Some(self.uuid()?),
            drive: seat.drive.parse().ok(),
        })
    }

    /// The drive of a seat was not found.
    fn not_there(&self, seat: &SeatStatus, uri: &DriveUri, found: &Occupant) -> Failure {
        let number = seat.seat;
        let (why, hint) = match found {
            Occupant::Missing(_) | Occupant::NoAnswer(_) | Occupant::Taken(_) => (
                format!("{found}, and no other drive here has the label of seat {number}"),
                "plug the drive in".to_owned(),
            ),
            Occupant::Member {
                number: other,
                pool,
                ..
            } => (
                format!(
                    "{uri} is the drive of seat {other} of pool `{pool}`, and no other drive here has the label of seat {number}"
                ),
                format!("`ravelin drive online {pool} {other}` brings that one back"),
            ),
            Occupant::InUse { .. } => (
                format!("{uri} is {found}, and no other drive here has the label of seat {number}"),
                "plug the drive in".to_owned(),
            ),
            _ => (
                format!(
                    "{uri} no longer holds a label of this pool that it lists: it holds {found}; and no other drive here has the label of seat {number}"
                ),
                "plug the drive in; if it is gone, `ravelin drive replace` puts another one into the seat"
                    .to_owned(),
            ),
        };
        Failure::conflict(self.what, why, hint)
    }

    /// What is given up with the seat of a drive that is out, while data cannot be read without the drives that are
    /// out.
    fn only_copy(&self, seat: &SeatStatus) -> Result<Option<Overwrite>, Failure> {
        let status = self.handle.status().map_err(|error| self.failed(&error))?;
        if seat.state != "out" || status.health != Health::Unusable || status.taken_over.is_some() {
            return Ok(None);
        }
        let volumes: Vec<String> = { status.volumes.iter() }
            .map(|volume| {
                format!(
                    "`{}/{}` ({} bytes)",
                    status.name, volume.name, volume.size_bytes
                )
            })
            .collect();
        Ok(Some(Overwrite {
            drive: seat.path.clone(),
            holds: format!(
                "the only copy of what cannot be read now of {}",
                volumes.join(", ")
            ),
        }))
    }

    /// Refuses a slot that another drive of the pool has. A drive that is out leaves its slot to its replacement.
    fn check_slot(&self, new: &DriveUri, old: Option<&SeatStatus>) -> Result<(), Failure> {
        let (Some(domain), Some(slot)) = (&new.domain, new.slot) else {
            return Ok(());
        };
        let leaves = |seat: &SeatStatus| {
            seat.state == "out" && old.is_some_and(|old| old.drive == seat.drive)
        };
        let has =
            |seat: &SeatStatus| (seat.domain.as_ref(), seat.slot) == (Some(domain), Some(slot));
        let status = self.handle.status().map_err(|error| self.failed(&error))?;
        let (pool, mut seats) = (&status.name, status.seats.iter());
        let Some(taken) = seats.find(|&seat| has(seat) && !leaves(seat)) else {
            return Ok(());
        };
        let (number, path) = (taken.seat, &taken.path);
        let hint = match &*taken.state {
            "out" => format!("`ravelin drive replace {pool} {number} NEW` if that drive is gone"),
            _ => "name the slot that the new drive is in, or leave it out".to_owned(),
        };
        Err(Failure::conflict(
            self.what,
            format!("slot {slot} of `{domain}` has the drive of seat {number} ({path})"),
            format!("{hint}; `ravelin pool status {pool} --map` shows the slots"),
        ))
    }

    fn seats(&self) -> Result<Vec<SeatStatus>, Failure> {
        let status = self.handle.status().map_err(|error| self.failed(&error))?;
        Ok(status.seats)
    }

    /// A seat by its number, or by its drive's name or path.
    pub(super) fn seat(&self, name: &str) -> Result<SeatStatus, Failure> {
        let seats = self.seats()?;
        let last = seats.last().map_or(0, |seat| seat.seat);
        let number: Option<u16> = name.parse().ok();
        let uri = match number {
            Some(_) => None,
            None => Some(typed(name, self.what)?.absolute()),
        };
        let names = |seat: &SeatStatus| {
            let theirs: Option<DriveUri> = seat.path.parse().ok();
            let same = uri.as_ref().zip(theirs.as_ref());
            seat.path == name || same.is_some_and(|(uri, theirs)| uri.is_same_drive(theirs))
        };
        let typed = uri.as_ref().map(ToString::to_string);
        let close = { typed.as_deref() }
            .and_then(|name| closest(name, seats.iter().map(|seat| &*seat.path)))
            .map(str::to_owned);
        let mut found: Vec<SeatStatus> = seats
            .into_iter()
            .filter(|seat| number.map_or_else(|| names(seat), |number| seat.seat == number))
            .collect();
        if let [first, .., last] = found.as_slice() {
            // `mem:` drives have no names of their own.
            let (count, first, last) = (found.len(), first.seat, last.seat);
            return Err(Failure::conflict(
                self.what,
                format!("{count} drives are called {name}, in seats {first} to {last}"),
                "say the seat's number: `ravelin pool status` shows them",
            ));
        }
        found.pop().ok_or_else(|| {
            Failure::missing(
                self.what,
                match number {
                    Some(number) => {
                        format!("the pool has no seat {number}: it has seats 0 to {last}")
                    }
                    None => format!("no seat of the pool has a drive {name}"),
                },
                or_closest(
                    close.as_deref(),
                    "`ravelin pool status` shows seats and drives",
                ),
            )
        })
    }

    /// The drive that was not among the seats `before`.
    fn newest(&self, before: &[SeatStatus]) -> Result<SeatStatus, Failure> {
        let is_new = |seat: &SeatStatus| before.iter().all(|known| known.drive != seat.drive);
        let gone = || {
            let why = "the new drive is out again already";
            Failure::missing(self.what, why, "`ravelin pool events` says why")
        };
        self.seats()?.into_iter().find(is_new).ok_or_else(gone)
    }

    /// The current state of the seat.
    fn changed(&self, seat: &SeatStatus) -> Result<ChangedDrive, Failure> {
        // By identity first: a replacement drive may have taken the old drive's number by now. Then by number: a
        // drive that has returned gets a new identity.
        let seats = self.seats()?;
        let now = { seats.iter() }
            .find(|now| now.drive == seat.drive)
            .or_else(|| seats.iter().find(|now| now.seat == seat.seat))
            .unwrap_or(seat);
        Ok(ChangedDrive {
            seat: now.seat,
            path: now.path.clone(),
            state: now.state.clone(),
            overwrites: Vec::new(),
            kept: None,
            plan: None,
        })
    }

    fn take_out(
        &self,
        name: &str,
        reason: OutReason,
        force: bool,
    ) -> Result<ChangedDrive, Failure> {
        let seat = self.seat(name)?;
        self.handle
            .fail_drive(Seat(seat.seat), reason, force)
            .map_err(|error| self.failed(&error))?;
        self.changed(&seat)
    }

    fn replace(&self, old: &SeatStatus, new: Drive) -> Result<ChangedDrive, Failure> {
        let before = self.seats()?;
        if old.state == "current" {
            // Do not discard the old drive's data: the drive stays in use until the new one has everything.
            self.handle
                .replace_drive(Seat(old.seat), new)
                .map_err(|error| self.failed(&error))?;
            return self.changed(&self.newest(&before)?);
        }
        let mut took_out = false;
        if old.state != "out" {
            self.handle
                .fail_drive(Seat(old.seat), OutReason::Offline, false)
                .map_err(|error| self.failed(&error))?;
            took_out = true;
        }
        // If a spare has taken the seat's place, the new drive becomes a spare.
        if let Err(error) = self.handle.insert_drive(Seat(old.seat), Some(new)) {
            if took_out {
                // Undo. Report why the new drive was refused; an error of the undo matters less.
                self.handle.insert_drive(Seat(old.seat), None).ok();
            }
            return Err(self.failed(&error));
        }
        self.changed(&self.newest(&before)?)
    }
}
