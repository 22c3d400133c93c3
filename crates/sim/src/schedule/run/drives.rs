//! Power cuts, and drives that leave and return.

use array::pool::{PoolError, SeatState, Ticket};
use block::{Seat, mix};
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

use super::{BOUND, Checked, Run, Violation};
use crate::drive::{Drive, Regions, Survival};
use crate::world::{CutSpec, World};

impl Run {
    /// Fails a drive by command, as an administrator does. Returns false if the drive was out already.
    pub(super) fn fail(&mut self, seat: Seat) -> Result<bool, Violation> {
        match self.world().begin_fail_drive(seat) {
            Ok(ticket) => {
                let limit = self.world().now() + BOUND;
                while !self.world().has_ended(ticket) {
                    self.go_on(limit, "failing a drive")?;
                }
                Ok(true)
            }
            Err(PoolError::AlreadyOut { .. }) => Ok(false),
            Err(error) => {
                let what = format!("seat {seat} cannot be taken out: {error}");
                Err(Violation::new("I3", what))
            }
        }
    }

    pub(super) fn power(&mut self, cut: Option<CutSpec>) -> Checked {
        let drives = self.stop(cut);
        self.open(drives)
    }

    /// Opens the pool on these drives.
    pub(crate) fn open(&mut self, mut drives: Vec<Drive>) -> Checked {
        for (index, regions, mut then) in std::mem::take(&mut self.stale) {
            if regions == Regions::ALL {
                then.cut(|_, _| Survival::Kept);
                then.note_fault();
                drives[index] = then;
            } else {
                drives[index].set_back(&then, regions);
            }
        }
        match self.try_open(drives)? {
            Ok(()) => Ok(()),
            // A full drive stays, and a pool does not open while too few drives take its labels and anchors: their owner
            // frees space.
            Err((mut drives, why)) => match drives.iter().any(Drive::has_been_full) {
                true => {
                    drives.iter_mut().for_each(Drive::is_given_space);
                    let opened = self.try_open(drives)?;
                    opened.map_err(|(_, why)| Violation::new("open", why))
                }
                false => Err(Violation::new("open", why)),
            },
        }
    }

    /// Opens the pool on these drives, or returns the drives and the reason why that failed.
    pub(crate) fn try_open(
        &mut self,
        mut drives: Vec<Drive>,
    ) -> Result<Result<(), (Vec<Drive>, String)>, Violation> {
        self.reopened += 1;
        if let Some(seed) = self.names.take() {
            drives.shuffle(&mut ChaCha8Rng::seed_from_u64(seed));
        }
        let seed = mix(self.seed ^ self.reopened);
        match World::begin_open(&mut drives, self.degraded, seed, true) {
            Ok(opened) => self.world = Some(opened),
            Err(error) => return Ok(Err((drives, error.to_string()))),
        }
        self.before = 0;
        self.answered = 0;
        Ok(self.opens()?.map_err(|error| {
            let world = self.world.take().expect("just opened");
            (world.kill(), error.to_string())
        }))
    }

    /// Runs until the opening has succeeded or failed.
    pub(crate) fn opens(&mut self) -> Result<Result<(), PoolError>, Violation> {
        let limit = self.world().now() + BOUND;
        loop {
            match self.world().opened() {
                Some(outcome) => return Ok(outcome),
                None => self.go_on(limit, "opening")?,
            }
        }
    }

    /// Runs until a command has ended.
    pub(crate) fn command_ends(
        &mut self,
        ticket: Ticket,
    ) -> Result<Result<(), PoolError>, Violation> {
        let limit = self.world().now() + BOUND;
        loop {
            match self.world().outcome(ticket) {
                Some(outcome) => return Ok(outcome),
                None => self.go_on(limit, "a command")?,
            }
        }
    }

    /// Ends the run's world as [`World::kill`] or a cut does. The run may be opened again on the drives that are
    /// returned.
    pub(crate) fn stop(&mut self, cut: Option<CutSpec>) -> Vec<Drive> {
        self.count();
        self.report();
        self.reported = 0;
        self.in_flight.clear();
        self.neighbours.clear();
        self.ledger.cut(cut.is_none());
        self.cuts += 1;
        let world = self.world.take().expect("the power is on");
        match cut {
            None => world.kill(),
            Some(spec) => world.cut(spec),
        }
    }

    /// Closes the pool and opens it again.
    ///
    /// A full drive stays in use, and a pool is not closed while drives refuse its labels: their owner frees space first.
    pub(super) fn reopen(&mut self) -> Checked {
        self.world()
            .drives_mut()
            .iter_mut()
            .for_each(Drive::is_given_space);
        self.room(0)?;
        self.settle()?;
        self.neighbours.clear();
        let ticket = self.world().begin_close();
        // If a drive becomes full meanwhile, the pool is stopped without having been closed.
        if let Err(error) = self.command_ends(ticket)?
            && !self.world().drives().iter().any(Drive::has_been_full)
        {
            return Err(Violation::new("close", error.to_string()));
        }
        self.settle()?;
        self.count();
        self.report();
        self.reported = 0;
        let world = self.world.take().expect("the power is on");
        self.open(world.kill())
    }

    /// Takes away a drive that has had a fault and puts a fresh one in its place. A drive without a fault so far stays,
    /// and gets none from then on.
    pub(super) fn replace(&mut self, seat: Seat) -> Checked {
        self.settle()?;
        // The drive is not set back at the next opening either.
        let index = self.world().drive_index(seat);
        self.stale.retain(|&(stale, ..)| Some(stale) != index);
        let world = self.world();
        let state = world.pool().facts().seats[seat.index()].state;
        let good = world.drive_in(seat).is_some_and(|drive| {
            drive.stop_faults();
            drive.recover();
            drive.faults_happened() == 0
        });
        if good && !matches!(state, SeatState::Out { .. }) {
            return Ok(());
        }
        self.hand_in(seat)
    }

    fn is_missed(&mut self, seat: Seat) -> bool {
        let drive = self.world().drive_in(seat);
        drive.is_some_and(|drive| drive.is_gone())
    }

    /// Takes out a drive that is gone, and waits until nothing that was asked of it before is under way.
    fn leaves(&mut self, seat: Seat) -> Checked {
        if self.is_missed(seat) && !self.is_out(seat) {
            // The pool has not used the drive since, and has not noticed. The drive's cache must not be lost unnoticed.
            self.fail(seat)?;
        }
        let limit = self.world().now() + BOUND;
        while self.world().pool().is_draining(seat) {
            self.go_on(limit, "what was asked of a drive before it went out")?;
            if self.is_missed(seat) && !self.is_out(seat) {
                // A spare has taken the seat, and the fault planned for the drive has hit the spare.
                self.fail(seat)?;
            }
        }
        Ok(())
    }

    /// Moves a drive that is gone or out to another place. Any other drive is left alone.
    pub(super) fn moves(&mut self, seat: Seat) -> Checked {
        self.leaves(seat)?;
        let seats = self.world().pool().facts().seats.len();
        let mut seats = (0..seats).map(|index| Seat(u16::try_from(index).expect("few seats")));
        let other = seats.find(|&other| other != seat && self.may_move(other));
        if self.may_move(seat) {
            let exchanged = self.world().move_elsewhere(seat, other);
            for (index, ..) in &mut self.stale {
                *index = match exchanged {
                    (one, other) if *index == one => other,
                    (one, other) if *index == other => one,
                    _ => *index,
                };
            }
        }
        Ok(())
    }

    fn may_move(&mut self, seat: Seat) -> bool {
        let world = self.world();
        // A successor that is about to get its seat is in one that counts as out by then.
        let in_use = world.pool().check_free(seat, u64::MAX);
        let in_use = matches!(in_use, Err(PoolError::Occupied { .. }));
        let is_asked = in_use || world.pool().is_draining(seat) || world.is_returning(seat);
        world.drive_in(seat).is_some() && !is_asked && self.is_out(seat)
    }

    /// Brings back a drive that is gone or out, as it is, from wherever it is. Any other drive is left alone.
    pub(super) fn bring_back(&mut self, seat: Seat, lost: Option<u64>) -> Checked {
        self.leaves(seat)?;
        let is_out = self.is_out(seat);
        let world = self.world();
        let attached = world.drive_in(seat).is_some() || world.find_absent(seat);
        let Some(drive) = world.drive_in(seat).filter(|_| attached) else {
            self.insert(seat);
            return Ok(());
        };
        drive.stop_faults();
        let broken = drive.is_broken();
        if broken || !is_out {
            return Ok(());
        }
        if let Some(drive) = world.drive_in(seat) {
            // A drive that was slow or hanging has restarted.
            drive.recover();
        }
        world.plug_in(seat, lost);
        world.begin_return_drive(seat, None);
        Ok(())
    }

    /// Removes the drive of a seat, whatever its state in the pool, and puts a fresh one there.
    pub(super) fn hand_in(&mut self, seat: Seat) -> Checked {
        let state = self.world().pool().facts().seats[seat.index()].state;
        if !matches!(state, SeatState::Out { .. }) {
            self.fail(seat)?;
            self.settle()?;
        }
        self.insert(seat);
        self.settle()
    }

    /// Puts a fresh drive into the seat, if its drive is out.
    pub(super) fn insert(&mut self, seat: Seat) {
        let world = self.world();
        if matches!(
            world.pool().facts().seats[seat.index()].state,
            SeatState::Out { .. }
        ) {
            let drive = world.drives()[0].another();
            world.begin_replace_drive(seat, drive);
        }
    }
}
