//! Scrub: every written block is read and compared with its checksum, group by group.

use std::collections::{BTreeMap, BTreeSet};

use block::{Instant, Outcome, Seat};

use super::{Pool, PoolError, Report, Ticket};
use crate::action::Command;

/// Groups at a time, over all lanes: a scrub is to be felt little.
const SCRUBBING_MAX: usize = 2;

/// How far a scrub has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Groups done.
    pub groups_done: u64,
    /// Groups in all.
    pub groups_total: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Blocks that were not what had been written.
    pub bad: u64,
    /// Groups that could not be read.
    pub failed: u64,
    /// Bad blocks by seat since the pool was opened, found by scrubs or by anybody.
    pub bad_by_seat: BTreeMap<Seat, u64>,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Option<Instant>,
}

/// The scrub under way, or the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub {
    waiting: BTreeSet<u64>,
    /// Groups with a page that is to be made anew; nobody waits for these.
    lost_pages: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    tickets: Vec<Ticket>,
    paused: bool,
    progress: ScrubProgress,
}

impl Scrub {
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.lost_pages.is_empty()
            && (self.waiting.is_empty() || self.paused)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

impl Pool {
    /// The scrub under way, or the last one.
    #[must_use]
    pub const fn scrub_progress(&self) -> &ScrubProgress {
        &self.scrub.progress
    }

    /// Whether a scrub is under way.
    #[must_use]
    pub fn is_scrubbing(&self) -> bool {
        !self.scrub.is_idle()
    }

    /// Begins a scrub of all volumes; `ticket` is done when it has ended.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when the pool has none.
    pub fn scrub(&mut self, now: Instant, ticket: Ticket) -> Result<(), PoolError> {
        self.now = now;
        if self.facts.store.is_none() {
            return Err(PoolError::NoChecksums);
        }
        self.scrub.paused = false;
        self.scrub.tickets.push(ticket);
        if self.scrub.is_idle() {
            self.scrub.waiting = self.facts.allocated_groups().collect();
            let groups = self.scrub.waiting.len() as u64;
            self.scrub.progress = ScrubProgress {
                groups_total: groups,
                began: now,
                bad_by_seat: std::mem::take(&mut self.scrub.progress.bad_by_seat),
                ..ScrubProgress::default()
            };
            self.report(Report::ScrubBegins { groups });
        }
        self.advance();
        self.scrub_ended();
        Ok(())
    }

    /// Holds the scrub, or lets it go on.
    pub fn pause_scrub(&mut self, now: Instant, paused: bool) {
        self.now = now;
        self.scrub.paused = paused;
        self.advance();
    }

    pub(super) fn stop_scrub(&mut self) {
        self.scrub.waiting.clear();
        self.scrub.lost_pages.clear();
        for ticket in std::mem::take(&mut self.scrub.tickets) {
            self.done(ticket, Err(PoolError::Closing));
        }
    }

    pub(super) fn pump_scrub(&mut self) {
        while self.scrub.in_flight.len() < SCRUBBING_MAX
            && self.recovered
            && let Some(group) = self.scrub.lost_pages.pop_first()
        {
            if self.scrub.in_flight.insert(group) {
                self.tell_lane(group, Command::Scrub { group });
            }
        }
        while !self.scrub.paused
            && self.scrub.in_flight.len() < SCRUBBING_MAX
            && let Some(group) = self.scrub.waiting.pop_first()
        {
            if self.scrub.in_flight.insert(group) {
                self.tell_lane(group, Command::Scrub { group });
            }
        }
    }

    pub(super) fn scrubbed(&mut self, group: u64, blocks: u64, bad: u64, outcome: Outcome) {
        if !self.scrub.in_flight.remove(&group) {
            return;
        }
        let progress = &mut self.scrub.progress;
        progress.groups_done += 1;
        progress.blocks += blocks;
        progress.bad += bad;
        progress.failed += u64::from(outcome.is_err());
        self.scrub_ended();
    }

    fn scrub_ended(&mut self) {
        let none = self.scrub.tickets.is_empty();
        if !self.scrub.in_flight.is_empty()
            || !self.scrub.waiting.is_empty()
            || self.scrub.progress.ended.is_some()
            || none
        {
            return;
        }
        let progress = &mut self.scrub.progress;
        progress.ended = Some(self.now);
        let (blocks, bad) = (progress.blocks, progress.bad);
        self.report(Report::ScrubEnds { blocks, bad });
        for ticket in std::mem::take(&mut self.scrub.tickets) {
            self.done(ticket, Ok(()));
        }
    }

    /// Checksums were lost: what they said is found out again, and written again.
    pub(super) fn page_lost(&mut self, group: u64, column: u16) {
        self.report(Report::PageLost { group, column });
        self.scrub_for(group);
    }

    /// Something in a group is unknown: it is found out again, and nobody waits for that.
    pub(super) fn scrub_for(&mut self, group: u64) {
        if self.facts.allocated_groups().any(|other| other == group) {
            self.scrub.lost_pages.insert(group);
        }
    }

    /// A block was not what had been written there.
    pub(super) fn block_bad(&mut self, seat: Seat, offset: u64, group: u64, column: u16) {
        *self.scrub.progress.bad_by_seat.entry(seat).or_default() += 1;
        self.report(Report::BlockBad {
            seat,
            offset,
            group,
            column,
        });
    }
}
