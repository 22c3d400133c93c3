//! Commands that change or wipe drives of the daemon's pools.

use std::time::{Duration, Instant};

use array::pool::{OutReason, PoolError};
use axum::http::StatusCode;
use block::Seat;
use engine::PoolHandle;
use engine::assemble::{self, AssembleError};
use engine::drive::{Drive, DriveUri, ParseDriveUriError};
use engine::status::SeatStatus;

use super::Daemon;
use crate::Failure;
use crate::api::{ChangedDrive, DriveChange, Overwrite, WipeDrive, WipedDrive};

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

/// A change in progress: the pool, and the beginning of the error message.
struct At<'a> {
    handle: &'a PoolHandle,
    what: &'a str,
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
            Change::Online => at.bring_back(&request.drive),
            Change::Remove => at.remove(&request.drive),
            Change::Clear => at.clear(&request.drive),
            Change::Add => {
                let drive = self.new_drive(&request.drive, request.force, what)?;
                let before = at.seats()?;
                handle.add_spare(drive).map_err(|error| at.failed(&error))?;
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
                let drive = self.new_drive(new, request.force, what)?;
                at.replace(&old, drive)
            }
        }
    }

    /// Wipes the signatures and labels on a drive, if the drive belongs to no pool that is open here.
    pub fn wipe_drive(&self, request: &WipeDrive) -> Result<WipedDrive, Failure> {
        let what = format!("drive {} was not wiped", request.drive);
        let uri = parse(&request.drive, &what)?;
        self.refuse_own(std::iter::once(&uri), &what)?;
        let failed = |error| Failure::assemble(&what, &error, "");
        let holds = match assemble::open_empty(&uri, false) {
            Ok(_) => None,
            Err(AssembleError::Occupied { what, .. }) => Some(what),
            Err(error) => return Err(failed(error)),
        };
        if !request.dry_run {
            if request.confirm.as_deref() != Some(&*request.drive) {
                return Err(Failure::request(
                    what,
                    "it loses data, and the request's body does not name the drive a second time",
                    "put \"confirm\" with the drive's name into the body if it is meant",
                ));
            }
            let drive = assemble::open_empty(&uri, true).map_err(failed)?;
            assemble::forget_earlier_life(&drive).map_err(failed)?;
            tracing::info!(drive = request.drive, "wiped");
        }
        Ok(WipedDrive {
            drive: request.drive.clone(),
            holds,
            wiped: !request.dry_run,
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
        let (new, seat) = match (change, &request.new) {
            (Change::Add, _) => (&request.drive, None),
            (Change::Replace, Some(new)) => (new, Some(at.seat(&request.drive)?)),
            _ => {
                return Err(Failure::request(
                    what,
                    "only `add` and `replace` have a dry run",
                    "",
                ));
            }
        };
        let uri = parse(new, what)?;
        self.refuse_own(std::iter::once(&uri), what)?;
        let overwrites = match assemble::open_empty(&uri, false) {
            Err(AssembleError::Occupied { drive, what: holds }) => vec![Overwrite { drive, holds }],
            Err(error) => return Err(Failure::assemble(what, &error, "")),
            Ok(_) => Vec::new(),
        };
        let next = u16::try_from(at.seats()?.len()).unwrap_or(u16::MAX);
        Ok(ChangedDrive {
            seat: seat.map_or(next, |seat| seat.seat),
            path: uri.to_string(),
            state: "out".to_owned(),
            overwrites,
        })
    }

    /// Opens a drive that takes a seat of a pool, and wipes its earlier label and journal.
    fn new_drive(&self, name: &str, force: bool, what: &str) -> Result<Drive, Failure> {
        let uri = parse(name, what)?;
        self.refuse_own(std::iter::once(&uri), what)?;
        let failed = |error| Failure::assemble(what, &error, "");
        let drive = assemble::open_empty(&uri, force).map_err(failed)?;
        assemble::forget_earlier_life(&drive).map_err(failed)?;
        Ok(drive)
    }
}

impl At<'_> {
    fn failed(&self, error: &PoolError) -> Failure {
        Failure::pool(self.what, error)
    }

    fn seats(&self) -> Result<Vec<SeatStatus>, Failure> {
        let status = self.handle.status().map_err(|error| self.failed(&error))?;
        Ok(status.seats)
    }

    /// A seat by its number, or by its drive's name or path.
    fn seat(&self, name: &str) -> Result<SeatStatus, Failure> {
        let seats = self.seats()?;
        let last = seats.last().map_or(0, |seat| seat.seat);
        let number: Option<u16> = name.parse().ok();
        let uri: Option<DriveUri> = name.parse().ok().map(|uri: DriveUri| uri.absolute());
        let names = |seat: &SeatStatus| {
            let theirs: Option<DriveUri> = seat.path.parse().ok();
            let same = uri.as_ref().zip(theirs.as_ref());
            seat.path == name || same.is_some_and(|(uri, theirs)| uri.is_same_drive(theirs))
        };
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
                "`ravelin pool status` shows seats and drives",
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

    /// Removes a spare from the pool, and wipes its label.
    fn remove(&self, name: &str) -> Result<ChangedDrive, Failure> {
        let seat = self.seat(name)?;
        self.handle
            .remove_spare(Seat(seat.seat))
            .map_err(|error| self.failed(&error))?;
        let gone = ChangedDrive {
            seat: seat.seat,
            path: seat.path.clone(),
            state: "removed".to_owned(),
            overwrites: Vec::new(),
        };
        let uri = parse(&seat.path, self.what)?;
        if !uri.spec.path().is_some_and(std::path::Path::exists) {
            return Ok(gone);
        }
        // The pool closes the drive a moment after it has released the drive.
        let deadline = Instant::now() + LET_GO;
        let wiped = loop {
            let wiped = assemble::open_empty(&uri, true)
                .and_then(|drive| assemble::forget_earlier_life(&drive));
            match wiped {
                Err(AssembleError::Drive(_)) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(10));
                }
                wiped => break wiped,
            }
        };
        wiped.map_err(|error| {
            let what = format!("{} is no spare any more, and its label stays", seat.path);
            Failure::assemble(&what, &error, "")
        })?;
        Ok(gone)
    }

    fn clear(&self, name: &str) -> Result<ChangedDrive, Failure> {
        let seat = self.seat(name)?;
        self.handle
            .clear_drive(Seat(seat.seat))
            .map_err(|error| self.failed(&error))?;
        let by_itself = [OutReason::IoErrors, OutReason::Hung, OutReason::Slow];
        match seat.reason {
            Some(reason) if by_itself.contains(&reason) => self.bring_back(name),
            _ => self.changed(&seat),
        }
    }

    fn bring_back(&self, name: &str) -> Result<ChangedDrive, Failure> {
        let seat = self.seat(name)?;
        match self.handle.insert_drive(Seat(seat.seat), None) {
            Ok(()) => self.changed(&seat),
            // The drive was missing when the pool was opened; it may be present now.
            Err(PoolError::NoSeat { .. }) => {
                let drive = self.returned(&seat)?;
                self.handle
                    .return_drive(Seat(seat.seat), Some(drive))
                    .map_err(|error| self.failed(&error))?;
                self.changed(&seat)
            }
            Err(PoolError::Occupied { .. }) => Err(Failure::conflict(
                self.what,
                format!("seat {} has a working drive already", seat.seat),
                "`ravelin pool status` shows which drives are out",
            )),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Opens a seat's drive again, if it is still a drive of this pool.
    fn returned(&self, seat: &SeatStatus) -> Result<Drive, Failure> {
        let status = self.handle.status().map_err(|error| self.failed(&error))?;
        let uri = parse(&seat.path, self.what)?;
        let places: Vec<_> = uri
            .spec
            .path()
            .map(std::borrow::ToOwned::to_owned)
            .into_iter()
            .collect();
        let failed = |error| Failure::assemble(self.what, &error, "");
        let drive = assemble::open_empty(&uri, true).map_err(failed)?;
        let ours = !places.is_empty()
            && assemble::scan(&places)
                .iter()
                .any(|pool| pool.uuid.to_string() == status.uuid);
        if ours {
            return Ok(drive);
        }
        Err(Failure::conflict(
            self.what,
            format!("{} no longer holds a label of this pool", seat.path),
            format!("`ravelin drive replace {} {} NEW`", status.name, seat.seat),
        ))
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
