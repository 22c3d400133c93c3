//! What `Pool` passes to the machines that care for the data, and between them: [`Scrub`](super::scrub::Scrub),
//! [`LossList`](super::loss::LossList), [`Resync`](super::resync::Resync) and [`Meter`](super::steer::Meter).

use block::{BLOCK_BYTES, Instant, Seat};

use super::{LostData, OnDurable, Pool, PoolError, ScrubProgress, Steering, Ticket};

/// What administrators see.
impl Pool {
    /// The scrub under way, or the last one.
    #[must_use]
    pub const fn scrub_progress(&self) -> &ScrubProgress {
        self.scrub.progress()
    }

    /// Whether a scrub is under way.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        !self.scrub.is_idle()
    }

    /// Whether a scrub has begun, has not ended, and is paused.
    #[must_use]
    pub const fn is_scrub_paused(&self) -> bool {
        self.scrub.is_paused(&self.cx)
    }

    /// Lost data, by volume and byte. A label holds ranges of groups; one of these is several ranges of an interleaved
    /// volume.
    #[must_use]
    pub fn lost_data(&self) -> Vec<LostData> {
        self.losses.data(&self.cx)
    }

    /// Bytes of data that are lost and for which [`lost_data`](Self::lost_data) has no room.
    #[must_use]
    pub const fn unlisted_lost_bytes(&self) -> u64 {
        self.cx.facts.losses.unlisted_blocks * BLOCK_BYTES
    }

    /// Whether data of volumes is lost because blocks are bad or unknown. Losses beyond the end of a volume that has
    /// shrunk do not count.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        self.losses.has_data(&self.cx)
    }

    /// Blocks on the seat's drive that did not match what was written, since the drive took the seat.
    #[must_use]
    pub fn bad_blocks(&self, seat: Seat) -> u64 {
        self.cx.bad_blocks(seat)
    }

    /// Groups whose parity is not known to agree with their data.
    #[must_use]
    pub fn resync_left(&self) -> u64 {
        self.resync.left()
    }

    /// Columns of volumes that no drive has.
    #[must_use]
    pub fn absent_columns(&self) -> u64 {
        self.cx.placement.absent().count() as u64
    }

    /// Groups of volumes that can be read and cannot lose another column, though their code has redundancy.
    #[must_use]
    pub fn groups_without_redundancy(&self) -> u64 {
        self.cx.groups_without_redundancy()
    }

    /// Drives that may fail at once from now on, whichever they are, with all data still readable.
    #[must_use]
    pub fn survives_drives(&self) -> u16 {
        self.cx.survives_drives()
    }

    /// Groups of volumes whose data cannot be read as a whole any more.
    #[must_use]
    pub fn lost_groups(&self) -> u64 {
        self.cx.lost_groups()
    }
}

/// Commands.
impl Pool {
    /// Begins a scrub of all volumes; `ticket` is done when it has ended.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when the pool has none.
    pub fn scrub(&mut self, now: Instant, ticket: Ticket) -> Result<(), PoolError> {
        self.cx.now = now;
        self.scrub.command(&mut self.cx, ticket)?;
        self.advance();
        self.end_scrub();
        Ok(())
    }

    /// Plans a scrub every so many days (0: none), the first in so many days from now. A scrub under way continues.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when there is nothing to compare with.
    pub fn plan_scrub(
        &mut self,
        now: Instant,
        every_days: u32,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        self.scrub.plan(&mut self.cx, every_days, ticket)?;
        self.advance();
        Ok(())
    }

    /// The wall clock: begins a scrub if one is due. A clock that jumps makes a scrub come sooner or later, and does no
    /// other harm.
    pub fn handle_wall_clock(&mut self, now: Instant, unix_seconds: u64) {
        self.cx.now = now;
        if self.scrub.wall_clock(&mut self.cx, unix_seconds) {
            self.advance();
            self.end_scrub();
        }
    }

    /// Pauses the scrub, or resumes it.
    pub fn pause_scrub(&mut self, now: Instant, paused: bool) {
        self.cx.now = now;
        self.scrub.pause(now, paused);
        self.advance();
    }

    /// Sets the priority, the rate or the pause of fills and scrubs.
    ///
    /// # Errors
    /// [`PoolError::NotPaused`] if what is not paused is to be resumed, [`PoolError::RateTooLow`]; nothing has changed.
    pub fn steer(
        &mut self,
        now: Instant,
        change: Steering,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        self.cx.now = now;
        let progress = self.progress();
        let total_bytes = progress.cells_total * progress.cell_bytes;
        let unfilled_bytes = total_bytes.saturating_sub(self.rebuilt_bytes());
        let steer = change.of(&self.cx, unfilled_bytes)?;
        let begins = self.fills.progress.cells_done == 0 && self.fills.in_flight() == 0;
        if change.paused == Some(false) && begins {
            self.fills.progress.began = now;
        }
        if steer == self.cx.facts.steer {
            self.cx.done(ticket, Ok(()));
            return Ok(());
        }
        self.cx.facts.steer = steer;
        self.send_steer();
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }
}

/// From machine to machine.
impl Pool {
    /// The lanes have read their journals: they get what was set and known before, and the scrub continues.
    pub(super) fn care_begins(&mut self) {
        self.losses.tell(&mut self.cx);
        if self.cx.facts.steer != super::SteerFacts::default() {
            self.send_steer();
        }
        self.scrub.resume(&mut self.cx);
        self.end_scrub();
    }

    fn send_steer(&mut self) {
        self.meter.steer(&mut self.cx);
        self.scrub.rate_from_now(self.cx.now);
        self.fills.recent.restart();
    }

    /// Ends the scrub of all volumes if it is over. The label that records its end has the lost blocks that it counted.
    pub(super) fn end_scrub(&mut self) {
        if let Some(lost) = self.scrub.over() {
            self.losses.count_unlisted(&mut self.cx, lost);
            self.scrub.end(&mut self.cx);
        }
    }

    /// These groups belong to no volume any more.
    pub(super) fn leave_unscrubbed(&mut self, groups: &[(u64, u64)]) {
        self.scrub.leave_out(groups);
        self.end_scrub();
    }

    /// Cells have been filled: blocks that could not be reconstructed before perhaps can be now.
    pub(super) fn repair_unrecovered(&mut self) {
        let losses = self.losses.groups();
        self.scrub.repair_unrecovered(&self.cx, losses);
    }
}
