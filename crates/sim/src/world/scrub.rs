//! Scrubs: start, schedule, pause, progress. And conversions of elastic stripes.

use array::pool::{PoolError, ScrubProgress, Ticket};

use super::World;
use crate::drive::Drive;

impl World {
    /// Begins a scrub without waiting for it. Returns true if the pool accepted the command.
    pub fn begin_scrub(&mut self) -> bool {
        let ticket = self.ticket();
        let agreed = self.pool.scrub(self.now, ticket).is_ok();
        self.poll_pool();
        agreed
    }

    /// Sets how many stripes should be copies, without waiting for anything. Returns true if the pool accepted the
    /// command.
    pub fn set_elastic_share(&mut self, share: Option<u8>) -> bool {
        let ticket = self.ticket();
        let agreed = self.pool.set_elastic_share(self.now, share, ticket).is_ok();
        self.poll_pool();
        agreed
    }

    /// Schedules a scrub every `every_days` days.
    ///
    /// # Errors
    /// As [`array::pool::Pool::plan_scrub`].
    pub fn plan_scrub(&mut self, every_days: u32) -> Result<(), PoolError> {
        self.command(|pool, now, ticket| pool.plan_scrub(now, every_days, ticket))
    }

    /// Closes the pool during a scrub.
    ///
    /// # Errors
    /// The pool's error.
    pub fn close_now(mut self) -> Result<Vec<Drive>, PoolError> {
        self.begin_close();
        let ticket = Ticket(self.next_ticket - 1);
        self.await_ticket(ticket)?;
        Ok(self.kill())
    }

    /// Runs until the scrub has done `groups` groups, then pauses it.
    ///
    /// # Panics
    /// When the scrub never gets that far.
    pub fn pause_scrub_after(&mut self, groups: u64) {
        while self.scrub_progress().groups_done < groups {
            assert!(self.step(), "the scrub goes on");
        }
        self.pool.pause_scrub(self.now, true);
        self.poll_pool();
    }

    /// Resumes a paused scrub.
    pub fn resume_scrub(&mut self) {
        self.pool.pause_scrub(self.now, false);
        self.poll_pool();
    }

    /// Gives the pool the wall-clock time, in seconds since 1970.
    pub fn tell_wall_clock(&mut self, unix_seconds: u64) {
        self.pool.handle_wall_clock(self.now, unix_seconds);
        self.poll_pool();
    }

    /// The scrub under way, or the last one.
    #[must_use]
    pub const fn scrub_progress(&self) -> &ScrubProgress {
        self.pool.scrub_progress()
    }
}
