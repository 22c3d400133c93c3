//! Scrub: every written block is read and compared with its checksum, group by group.
//!
//! The labels record the progress of a scrub once a minute and when the pool is closed, so that the scrub continues
//! there at the next opening. A scrub can be planned every so many days. The days are counted by the wall clock, which
//! the driver supplies ([`Pool::handle_wall_clock`]) and which is used for nothing else. The lanes make scrubs give way
//! to clients (`lane/jobs/`).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};
use format::runs;
use plan::SubStripePlans;
use plan::action::Command;

use super::{OnDurable, Pool, PoolError, Report, Ticket};

/// Groups in flight at a time, over all lanes: a scrub should have little effect on clients.
const SCRUBBING_MAX: usize = 2;

/// How often the progress of a scrub is recorded: each time is a label write on every drive.
const NOTE_EVERY: Duration = Duration::from_mins(1);

/// How often the pool asks for the wall clock while a scrub is planned.
pub(super) const SCRUB_PLAN_INTERVAL: Duration = Duration::from_mins(10);

const DAY_SECONDS: u64 = 86_400;

/// How far a scrub has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScrubProgress {
    /// Groups done.
    pub groups_done: u64,
    /// Groups in all.
    pub groups_total: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Blocks that did not match what was written.
    pub bad: u64,
    /// Of these, blocks that were reconstructed and written again.
    pub mended: u64,
    /// Blocks of data that can neither be read nor reconstructed.
    pub lost: u64,
    /// Groups that could not be read as a whole.
    pub failed: u64,
    /// When it began.
    pub began: Instant,
    /// When it ended.
    pub ended: Option<Instant>,
    /// Since when it has been running without a pause, with the groups and blocks that were done then: the rate is
    /// counted from here.
    pub rate_from: (Instant, u64, u64),
}

/// What the scrub of a group has found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) blocks: u64,
    pub(super) bad: u64,
    pub(super) mended: u64,
    pub(super) lost: u64,
}

/// The scrub under way, or the last one.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub {
    waiting: BTreeSet<u64>,
    /// Groups with a page to reconstruct; no command waits for these.
    lost_pages: BTreeSet<u64>,
    /// Groups in which blocks without a known checksum were found.
    found_unknown: BTreeSet<u64>,
    /// Copies of pages that were damaged, and that were older than others, by drive.
    pages_mended: BTreeMap<Seat, (u64, u64)>,
    /// Drives whose journal is older than their label.
    old_drives: BTreeSet<Seat>,
    /// Groups in flight that are not part of the scrub of all volumes.
    beside: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    /// Those of them that lanes are to abandon, because the groups are needed.
    let_go: BTreeSet<u64>,
    tickets: Vec<Ticket>,
    /// Set when the pool is being closed: the group that would have been next.
    stopped_at: Option<u64>,
    /// A scrub has begun and not ended.
    running: bool,
    /// When its progress was last recorded.
    noted: Instant,
    /// The last value of the wall clock.
    unix_seconds: Option<u64>,
    paused: bool,
    progress: ScrubProgress,
}

impl Scrub {
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.lost_pages.is_empty()
            && (self.waiting.is_empty() || self.paused)
    }

    /// Whether a lane scrubs the group.
    pub(super) fn is_scrubbing(&self, group: u64) -> bool {
        self.in_flight.contains(&group)
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

    /// Whether a scrub has begun, has not ended, and is paused.
    #[must_use]
    pub const fn is_scrub_paused(&self) -> bool {
        self.scrub.running && (self.scrub.paused || self.cx.facts.steer.paused)
    }

    /// Begins a scrub of all volumes; `ticket` is done when it has ended.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when the pool has none.
    pub fn scrub(&mut self, now: Instant, ticket: Ticket) -> Result<(), PoolError> {
        self.cx.now = now;
        if self.cx.facts.regions.is_none() {
            return Err(PoolError::NoChecksums);
        }
        if std::mem::take(&mut self.scrub.paused) {
            self.rate_scrub_from_now();
        }
        self.scrub.tickets.push(ticket);
        if !self.scrub.running {
            self.begin_scrub();
        }
        self.advance();
        self.scrub_ended();
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
        if self.cx.facts.regions.is_none() {
            return Err(PoolError::NoChecksums);
        }
        let from = self.scrub.unix_seconds;
        let facts = &mut self.cx.facts.scrub;
        facts.every_days = every_days;
        facts.counted_from = facts.counted_from.or(from);
        self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        self.advance();
        Ok(())
    }

    /// The wall clock: begins a scrub if one is due. A clock that jumps makes a scrub come sooner or later, and does no
    /// other harm.
    pub fn handle_wall_clock(&mut self, now: Instant, unix_seconds: u64) {
        self.cx.now = now;
        self.scrub.unix_seconds = Some(unix_seconds);
        let facts = &mut self.cx.facts.scrub;
        if facts.every_days == 0
            || self.scrub.running
            || self.cx.closing.is_some()
            || !self.cx.recovered
        {
            return;
        }
        let from = *facts.counted_from.get_or_insert(unix_seconds);
        let due = from.saturating_add(u64::from(facts.every_days) * DAY_SECONDS);
        // A scrub that ended in the future: the clock was wrong then.
        if unix_seconds >= due || from > unix_seconds.saturating_add(DAY_SECONDS) {
            self.begin_scrub();
            self.advance();
            self.scrub_ended();
        }
    }

    fn begin_scrub(&mut self) {
        self.begin_scrub_at(0);
        let groups = self.scrub.progress.groups_total;
        self.cx.report(Report::ScrubBegins { groups });
        let facts = &mut self.cx.facts.scrub;
        facts.next_group = Some(0);
        (facts.blocks, facts.bad, facts.failed) = (0, 0, 0);
        (facts.mended, facts.lost) = (0, 0);
        self.cx.commit(Vec::new());
    }

    fn begin_scrub_at(&mut self, group: u64) {
        let groups: BTreeSet<u64> = self.cx.placement.groups().all().collect();
        let groups_total = groups.len() as u64;
        self.scrub.waiting = groups.range(group..).copied().collect();
        self.scrub.running = true;
        self.scrub.noted = self.cx.now;
        self.scrub.progress = ScrubProgress {
            groups_done: groups_total - self.scrub.waiting.len() as u64,
            groups_total,
            began: self.cx.now,
            ..ScrubProgress::default()
        };
        self.rate_scrub_from_now();
    }

    /// After opening: a scrub that was under way continues at its recorded group.
    pub(super) fn resume_scrub(&mut self) {
        let Some(group) = self.cx.facts.scrub.next_group else {
            return;
        };
        self.begin_scrub_at(group);
        let facts = &self.cx.facts.scrub;
        let progress = &mut self.scrub.progress;
        progress.blocks = facts.blocks;
        progress.bad = facts.bad;
        progress.failed = facts.failed;
        progress.mended = facts.mended;
        progress.lost = facts.lost;
        self.rate_scrub_from_now();
        self.cx.report(Report::ScrubResumed { group });
        self.scrub_ended();
    }

    /// Records the progress of the scrub in the facts, for the next generation that is written.
    pub(super) fn note_scrub(&mut self) {
        if !self.scrub.running {
            return;
        }
        let done = |groups: &BTreeSet<u64>| groups.first().copied().unwrap_or(u64::MAX);
        let waiting = self
            .scrub
            .stopped_at
            .unwrap_or_else(|| done(&self.scrub.waiting));
        let next = done(&self.scrub.in_flight).min(waiting);
        let progress = &self.scrub.progress;
        let facts = &mut self.cx.facts.scrub;
        facts.next_group = Some(next);
        facts.blocks = progress.blocks;
        facts.bad = progress.bad;
        facts.failed = progress.failed;
        facts.mended = progress.mended;
        facts.lost = progress.lost;
    }

    /// Pauses the scrub, or resumes it.
    pub fn pause_scrub(&mut self, now: Instant, paused: bool) {
        self.cx.now = now;
        self.scrub.paused = paused;
        self.rate_scrub_from_now();
        self.advance();
    }

    pub(super) fn rate_scrub_from_now(&mut self) {
        let progress = &mut self.scrub.progress;
        progress.rate_from = (self.cx.now, progress.groups_done, progress.blocks);
    }

    /// These groups belong to no volume any more: they need not be scrubbed.
    pub(super) fn leave_unscrubbed(&mut self, groups: &[(u64, u64)]) {
        let freed = |group: &u64| runs::run_of(groups, *group).is_some();
        self.scrub.lost_pages.retain(|group| !freed(group));
        self.unrecovered.retain(|group| !freed(group));
        let before = self.scrub.waiting.len();
        self.scrub.waiting.retain(|group| !freed(group));
        self.scrub.progress.groups_total -= (before - self.scrub.waiting.len()) as u64;
        self.scrub_ended();
    }

    pub(super) fn stop_scrub(&mut self) {
        // Scrubs that do not go on, or only slowly, must not delay the end.
        let steer = &self.cx.facts.steer;
        let abandons = steer.paused || steer.rate_bytes.is_some();
        if self.scrub.running {
            let mut next = self.scrub.waiting.first().copied();
            if abandons {
                let mut own = self.scrub.in_flight.difference(&self.scrub.beside);
                next = own.next().copied().into_iter().chain(next).min();
            }
            self.scrub.stopped_at = Some(next.unwrap_or(u64::MAX));
        }
        if abandons {
            for group in self.scrub.in_flight.clone() {
                self.cx.tell_lane(group, Command::AbandonScrub { group });
            }
        }
        self.scrub.waiting.clear();
        self.scrub.lost_pages.clear();
        for ticket in std::mem::take(&mut self.scrub.tickets) {
            self.cx.done(ticket, Err(PoolError::Closing));
        }
    }

    pub(super) fn pump_scrub(&mut self) {
        let paused = self.cx.facts.steer.paused;
        while !paused
            && self.scrub.in_flight.len() < SCRUBBING_MAX
            && self.cx.recovered
            && let Some(group) = self.scrub.lost_pages.pop_first()
        {
            if self.scrub.in_flight.insert(group) {
                self.scrub.beside.insert(group);
                self.cx.tell_lane(group, Command::Scrub { group });
            }
        }
        while !paused
            && !self.scrub.paused
            && self.scrub.in_flight.len() < SCRUBBING_MAX
            && let Some(group) = self.scrub.waiting.pop_first()
        {
            // A group that is already scrubbed for another reason counts for this scrub, too.
            self.scrub.beside.remove(&group);
            if self.scrub.in_flight.insert(group) {
                self.cx.tell_lane(group, Command::Scrub { group });
            }
        }
    }

    /// Abandons the scrub of a group, which is scrubbed again later.
    pub(super) fn let_scrub_go(&mut self, group: u64) {
        if self.scrub.is_scrubbing(group) && self.scrub.let_go.insert(group) {
            self.cx.tell_lane(group, Command::AbandonScrub { group });
        }
    }

    pub(super) fn scrubbed(&mut self, group: u64, found: Found, outcome: Outcome) {
        if !self.scrub.in_flight.remove(&group) {
            return;
        }
        let let_go = self.scrub.let_go.remove(&group) && outcome == Err(Fault::Shutdown);
        if let_go && self.scrub.stopped_at.is_none() {
            self.scrub_later(group);
            return;
        }
        if self.scrub.beside.remove(&group) {
            self.scrub_ended();
            return;
        }
        if self.scrub.stopped_at.is_some() && outcome == Err(Fault::Shutdown) {
            // The next opening scrubs the group from its beginning.
            return;
        }
        // The columns that are present agree, but data that only lost columns have is not checked.
        let failed = outcome.is_err() || self.is_lost(group, &mut SubStripePlans::default());
        let progress = &mut self.scrub.progress;
        progress.groups_done += 1;
        progress.blocks += found.blocks;
        progress.bad += found.bad;
        progress.mended += found.mended;
        progress.lost += found.lost;
        progress.failed += u64::from(failed);
        if self.scrub.running && self.cx.now.since(self.scrub.noted) >= NOTE_EVERY {
            self.scrub.noted = self.cx.now;
            self.note_scrub();
            self.cx.commit(Vec::new());
        }
        self.scrub_ended();
    }

    /// The scrub of a group was abandoned: it waits again, unless it belongs to no volume any more.
    fn scrub_later(&mut self, group: u64) {
        let beside = self.scrub.beside.remove(&group);
        match (self.cx.placement.groups().has(group), beside) {
            (true, true) => _ = self.scrub.lost_pages.insert(group),
            (true, false) => _ = self.scrub.waiting.insert(group),
            (false, true) => {}
            (false, false) => self.scrub.progress.groups_total -= 1,
        }
        self.scrub_ended();
    }

    fn scrub_ended(&mut self) {
        if !self.scrub.in_flight.is_empty()
            || !self.scrub.waiting.is_empty()
            || !self.scrub.running
            || self.scrub.stopped_at.is_some()
        {
            return;
        }
        self.scrub.running = false;
        self.count_unlisted(self.scrub.progress.lost);
        let facts = &mut self.cx.facts.scrub;
        facts.next_group = None;
        facts.counted_from = self.scrub.unix_seconds.or(facts.counted_from);
        self.cx.commit(Vec::new());
        let progress = &mut self.scrub.progress;
        progress.ended = Some(self.cx.now);
        let ended = Report::ScrubEnds {
            blocks: progress.blocks,
            bad: progress.bad,
            mended: progress.mended,
            lost: progress.lost,
            failed: progress.failed,
        };
        self.cx.report(ended);
        for ticket in std::mem::take(&mut self.scrub.tickets) {
            self.cx.done(ticket, Ok(()));
        }
    }

    /// Checksums were lost: a scrub of the group computes and writes them again.
    pub(super) fn page_lost(&mut self, group: u64, column: u16) {
        self.cx.report(Report::PageLost {
            group,
            column,
            pages: 1,
        });
        self.scrub_for(group);
    }

    /// Blocks without a known checksum were found in a group: scrub it, at most once per opening of the pool. Blocks
    /// that cannot be reconstructed stay unknown, and would be found again each time.
    pub(super) fn blocks_unknown(&mut self, group: u64) {
        if self.scrub.found_unknown.insert(group) {
            self.scrub_for(group);
        }
    }

    /// Scrubs a group in which something is unknown; no command waits for this.
    pub(super) fn scrub_for(&mut self, group: u64) {
        if self.cx.placement.groups().has(group) {
            self.scrub.lost_pages.insert(group);
            if !self.fills.is_idle() {
                // Blocks that the present drives cannot supply, the drive that is being filled perhaps can.
                self.unrecovered.insert(group);
            }
        }
    }

    /// A copy of a page was damaged or older than others; it is written again.
    pub(super) fn page_mended(&mut self, seat: Seat, damaged: bool) {
        let (bad, old) = self.scrub.pages_mended.entry(seat).or_default();
        *bad += u64::from(damaged);
        *old += u64::from(!damaged);
        let (damaged, older) = (*bad, *old);
        if (damaged + older).is_power_of_two() {
            self.cx.report(Report::PagesMended {
                seat,
                damaged,
                older,
            });
        }
    }

    /// A drive's journal is older than its label. Reported once, whichever lane finds it first.
    pub(super) fn drive_old(&mut self, seat: Seat, anchor: u64, newest: u64) {
        if self.scrub.old_drives.insert(seat) {
            self.cx.report(Report::DriveOld {
                seat,
                anchor,
                newest,
            });
        }
    }
}
