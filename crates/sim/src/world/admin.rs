//! A world from the administrator's side: commands to the pool, and their outcomes.

use array::pool::{
    NewDrive, OutReason, Pool, PoolError, RATE_BYTES_MIN, SeatState, Steering, Ticket,
};
use array::priority::PRIORITIES;
use block::{Instant, Seat};

use super::{World, random_uuid};
use crate::drive::Drive;

impl World {
    pub(super) fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tickets.insert(ticket, None);
        ticket
    }

    pub(super) fn await_ticket(&mut self, ticket: Ticket) -> Result<(), PoolError> {
        loop {
            if let Some(Some(_)) = self.tickets.get(&ticket) {
                return self.tickets.remove(&ticket).flatten().expect("just seen");
            }
            assert!(self.step(), "{ticket:?} ends before everything is quiet");
        }
    }

    pub(super) fn command(
        &mut self,
        act: impl FnOnce(&mut Pool, Instant, Ticket) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let ticket = self.ticket();
        let started = act(&mut self.pool, self.now, ticket);
        self.poll_pool();
        started?;
        self.await_ticket(ticket)
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// As [`Pool::create_volume`].
    pub fn create_volume(&mut self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let uuid = random_uuid(&mut self.rng);
        self.command(|pool, now, ticket| pool.create_volume(now, name, uuid, size_bytes, ticket))
    }

    /// The same, without waiting for the end.
    pub(crate) fn begin_create_volume(
        &mut self,
        name: &str,
        size_bytes: u64,
    ) -> Result<Ticket, PoolError> {
        let uuid = random_uuid(&mut self.rng);
        let ticket = self.ticket();
        let begun = self
            .pool
            .create_volume(self.now, name, uuid, size_bytes, ticket);
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Begins to give the pool another name.
    pub(crate) fn begin_rename(&mut self, name: &str) {
        let ticket = self.ticket();
        let begun = self.pool.rename(self.now, name, ticket);
        begun.expect("the name is allowed");
        self.poll_pool();
    }

    /// Deletes a volume, without waiting for the end.
    pub(crate) fn begin_delete_volume(&mut self, name: &str) -> Result<Ticket, PoolError> {
        let ticket = self.ticket();
        let begun = self.pool.delete_volume(self.now, name, ticket);
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Resizes a volume.
    ///
    /// # Errors
    /// As [`Pool::resize_volume`].
    pub fn resize_volume(&mut self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        self.command(|pool, now, ticket| pool.resize_volume(now, name, size_bytes, ticket))
    }

    /// Fails a drive by command; returns when the change is durable.
    ///
    /// # Errors
    /// As [`Pool::fail_drive`].
    pub fn fail_drive(&mut self, seat: Seat, force: bool) -> Result<(), PoolError> {
        self.command(|pool, now, ticket| {
            pool.fail_drive(now, seat, OutReason::FailedByAdministrator, force, ticket)
        })
    }

    /// Fails all drives that are gone and that the pool waits for, as an administrator does who gives them up.
    ///
    /// # Panics
    /// When the pool does not take the command.
    pub fn give_up_gone(&mut self) {
        let seats: Vec<Seat> = self.pool.facts().seats().map(|(seat, _)| seat).collect();
        for seat in seats {
            let state = self.pool.facts().seats[seat.index()].state;
            let is_out = matches!(state, SeatState::Out { .. });
            if is_out || !self.drive_in(seat).is_some_and(|drive| drive.is_gone()) {
                continue;
            }
            match self.fail_drive(seat, true) {
                // The labels are written when the last of them is given up.
                Ok(()) | Err(PoolError::Fault { .. }) => {}
                Err(error) => panic!("seat {seat} cannot be given up: {error}"),
            }
        }
    }

    /// The same, without waiting for the end.
    pub(crate) fn begin_fail_drive(&mut self, seat: Seat) -> Result<Ticket, PoolError> {
        let ticket = self.ticket();
        let failed = OutReason::FailedByAdministrator;
        let begun = self.pool.fail_drive(self.now, seat, failed, false, ticket);
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Begins to set the priority, the rate or the pause of fills and scrubs. Returns true if the pool accepted the
    /// command.
    pub fn begin_steer(&mut self, change: Steering) -> bool {
        let ticket = self.ticket();
        let agreed = self.pool.steer(self.now, change, ticket).is_ok();
        self.poll_pool();
        agreed
    }

    /// Sets all that can be set for fills and scrubs.
    pub(crate) fn steer_to(&mut self, priority: u8, megabytes: u16, paused: bool) {
        let rate = (megabytes > 0).then_some(u64::from(megabytes) * RATE_BYTES_MIN);
        let was_paused = self.pool.facts().steer.paused;
        self.begin_steer(Steering {
            priority: Some(PRIORITIES[usize::from(priority) % PRIORITIES.len()]),
            rate_bytes: Some(rate),
            paused: (paused != was_paused).then_some(paused),
        });
    }

    /// Fills and scrubs that are paused go on.
    pub(crate) fn go_on(&mut self) {
        if self.pool.facts().steer.paused {
            self.begin_steer(Steering {
                paused: Some(false),
                ..Steering::default()
            });
        }
    }

    /// True if a command has ended, with success or with an error.
    pub(crate) fn has_ended(&self, ticket: Ticket) -> bool {
        self.tickets.get(&ticket).is_none_or(Option::is_some)
    }

    /// The outcome of a command, if it has ended.
    pub(crate) fn outcome(&self, ticket: Ticket) -> Option<Result<(), PoolError>> {
        self.tickets.get(&ticket).cloned().unwrap_or(Some(Ok(())))
    }

    /// Puts a fresh drive into an empty seat; returns when the change is durable.
    ///
    /// # Errors
    /// As [`Pool::insert_drive`].
    pub fn replace_drive(&mut self, seat: Seat, drive: Drive) -> Result<(), PoolError> {
        self.begin_replace_drive(seat, drive);
        let ticket = Ticket(self.next_ticket - 1);
        self.await_ticket(ticket)
    }

    /// The same, without waiting. Returns true if the pool accepted the command.
    pub fn begin_replace_drive(&mut self, seat: Seat, drive: Drive) -> bool {
        let uuid = random_uuid(&mut self.rng);
        let size_bytes = drive.size_bytes();
        let ticket = self.ticket();
        let facts = NewDrive::new(uuid, "sim:new".to_owned(), size_bytes);
        let started = self.pool.insert_drive(self.now, seat, facts, ticket);
        let agreed = started.is_ok();
        if agreed {
            self.attach_fresh(seat, drive);
        } else {
            self.tickets.insert(ticket, Some(started));
        }
        self.poll_pool();
        agreed
    }

    /// Begins to replace a working drive by a fresh one, without waiting for anything. Returns the seat of the new
    /// drive until all data has been copied to it.
    ///
    /// # Errors
    /// As [`Pool::replace_drive`].
    pub fn replace_working(&mut self, seat: Seat, drive: Drive) -> Result<Seat, PoolError> {
        let uuid = random_uuid(&mut self.rng);
        let ticket = self.ticket();
        let facts = NewDrive::new(uuid, "sim:successor".to_owned(), drive.size_bytes());
        let with = Seat(u16::try_from(self.pool.facts().seats.len()).expect("few seats"));
        let begun = self.pool.replace_drive(self.now, seat, facts, ticket);
        if begun.is_ok() {
            self.attach_fresh(with, drive);
        } else {
            self.tickets.insert(ticket, Some(begun.clone()));
        }
        self.poll_pool();
        begun.map(|()| with)
    }

    /// Takes fresh drives and waiting spares into the layout; returns when the drives have their seats.
    ///
    /// # Errors
    /// As [`Pool::expand`].
    pub fn expand(&mut self, drives: Vec<Drive>, waiting: &[Seat]) -> Result<(), PoolError> {
        let ticket = self.begin_expand(drives, waiting)?;
        self.await_ticket(ticket)
    }

    /// The same, without waiting for the end.
    ///
    /// # Errors
    /// As [`Pool::expand`].
    pub fn begin_expand(
        &mut self,
        drives: Vec<Drive>,
        waiting: &[Seat],
    ) -> Result<Ticket, PoolError> {
        let ticket = self.ticket();
        let seats = self.pool.facts().seats.len()..;
        let facts = drives.iter().zip(seats.clone()).map(|(drive, seat)| {
            let uuid = random_uuid(&mut self.rng);
            NewDrive::new(uuid, format!("sim:new{seat}"), drive.size_bytes())
        });
        let facts = facts.collect();
        let begun = self.pool.expand(self.now, facts, waiting, ticket);
        if begun.is_ok() {
            for (drive, seat) in drives.into_iter().zip(seats) {
                let seat = Seat(u16::try_from(seat).expect("few seats"));
                self.attach_fresh(seat, drive);
            }
        } else {
            self.tickets.insert(ticket, Some(begun.clone()));
        }
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Removes a drive of the layout; returns when the labels say so.
    ///
    /// # Errors
    /// As [`Pool::remove_drive`].
    pub fn remove(&mut self, seat: Seat) -> Result<(), PoolError> {
        let ticket = self.begin_remove(seat)?;
        self.await_ticket(ticket)
    }

    /// The same, without waiting for the end.
    ///
    /// # Errors
    /// As [`Pool::remove_drive`].
    pub fn begin_remove(&mut self, seat: Seat) -> Result<Ticket, PoolError> {
        let ticket = self.ticket();
        let begun = self.pool.remove_drive(self.now, seat, ticket);
        if begun.is_err() {
            self.tickets.insert(ticket, Some(begun.clone()));
        }
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Calls a removal off.
    ///
    /// # Errors
    /// As [`Pool::keep_drive`].
    pub fn keep(&mut self, seat: Seat) -> Result<(), PoolError> {
        let ticket = self.begin_keep(seat)?;
        self.await_ticket(ticket)
    }

    /// The same, without waiting for the end.
    ///
    /// # Errors
    /// As [`Pool::keep_drive`].
    pub fn begin_keep(&mut self, seat: Seat) -> Result<Ticket, PoolError> {
        let ticket = self.ticket();
        let begun = self.pool.keep_drive(self.now, seat, ticket);
        if begun.is_err() {
            self.tickets.insert(ticket, Some(begun.clone()));
        }
        self.poll_pool();
        begun.map(|()| ticket)
    }

    /// Pulls a drive: from now on all its operations fail.
    pub fn pull(&mut self, seat: Seat) {
        self.drive(seat).pull();
    }

    /// Closes the pool cleanly.
    ///
    /// # Errors
    /// The pool's error.
    pub fn close(mut self) -> Result<Vec<Drive>, PoolError> {
        self.settle();
        let ticket = self.begin_close();
        self.await_ticket(ticket)?;
        self.settle();
        Ok(self.kill())
    }

    /// Begins to close the pool.
    pub(crate) fn begin_close(&mut self) -> Ticket {
        let ticket = self.ticket();
        self.pool.close(self.now, ticket);
        self.poll_pool();
        ticket
    }
}
