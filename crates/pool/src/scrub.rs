//! Scrub: every written block is read and compared with its checksum, group by group.
//!
//! A group is scrubbed as part of a scrub of all volumes, or by itself because something in it is unknown or could not be
//! recovered. The lanes make scrubs give way to clients (`lane/jobs/`).
//!
//! Input: commands, the wall clock, what lanes find, and the ends of the scrubs of groups. Output: [`Command::Scrub`] and
//! [`Command::AbandonScrub`] to lanes, the progress in the facts, reports and answers to commands. When a scrub of all
//! volumes is over ([`Scrub::over`]), `Pool` has the lost blocks counted before the scrub ends ([`Scrub::end`]).
//!
//! The phases of a scrub of all volumes:
//!
//! ```text
//! resting ── begin ──► running
//! running ── end ──► resting
//! running ── stop ──► stopped
//! ```
//!
//! It is stopped when the pool is closed. The labels record its progress then and once a minute, so that it continues
//! there at the next opening. It can be planned every so many days. The days are counted by the wall clock, which the
//! driver supplies and which is used for nothing else.
//!
//! Invariant: while no scrub of all volumes is under way, no group waits for one, and groups in flight are scrubbed by
//! themselves.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use block::{Fault, Instant, Outcome, Seat};
use format::{Column, GroupId, runs};
use plan::SubStripePlans;
use plan::action::Command;

use super::context::Context;
use super::{OnDurable, PoolError, Report, Ticket};

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

/// The phase of the scrub of all volumes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// None has begun, or the last one has ended.
    #[default]
    Resting,
    Running,
    /// The pool is being closed. `next`: the group that would have been next.
    Stopped {
        next: GroupId,
    },
}

/// A group that a lane scrubs.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    /// By itself: it is not part of the scrub of all volumes.
    alone: bool,
    /// The lane has the command to abandon it, because the group is needed.
    let_go: bool,
}

/// The scrub under way, or the last one, and groups that are scrubbed by themselves.
#[derive(Clone, Debug, Default)]
pub(super) struct Scrub {
    phase: Phase,
    /// An administrator has paused it.
    paused: bool,
    /// Groups that wait for the scrub of all volumes.
    waiting: BTreeSet<GroupId>,
    /// Groups that wait to be scrubbed by themselves: a page is to be reconstructed. No command waits for these.
    lost_pages: BTreeSet<GroupId>,
    in_flight: BTreeMap<GroupId, InFlight>,
    tickets: Vec<Ticket>,
    progress: ScrubProgress,
    /// When its progress was last recorded.
    noted: Instant,
    /// The last value of the wall clock.
    unix_seconds: Option<u64>,
    /// Groups in which blocks without a known checksum were found.
    found_unknown: BTreeSet<GroupId>,
    /// Groups with blocks that could not be recovered from the drives that were there.
    unrecovered: BTreeSet<GroupId>,
    /// Copies of pages that were damaged, and that were older than others, by drive.
    pages_mended: BTreeMap<Seat, (u64, u64)>,
    /// Drives whose journal is older than their label.
    old_drives: BTreeSet<Seat>,
}

/// Questions.
impl Scrub {
    pub(super) fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
            && self.lost_pages.is_empty()
            && (self.waiting.is_empty() || self.paused)
    }

    /// Whether a lane scrubs the group.
    pub(super) fn is_scrubbing(&self, group: GroupId) -> bool {
        self.in_flight.contains_key(&group)
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// The scrub of all volumes under way, or the last one.
    pub(super) const fn progress(&self) -> &ScrubProgress {
        &self.progress
    }

    /// Whether a scrub of all volumes has begun, has not ended, and is paused.
    pub(super) const fn is_paused(&self, cx: &Context) -> bool {
        !matches!(self.phase, Phase::Resting) && (self.paused || cx.facts.steer.paused)
    }

    /// The lost blocks that the scrub of all volumes has found, if it has just scrubbed its last group.
    pub(super) fn over(&self) -> Option<u64> {
        let over =
            self.phase == Phase::Running && self.in_flight.is_empty() && self.waiting.is_empty();
        over.then_some(self.progress.lost)
    }
}

/// A scrub of all volumes, from its beginning to its end.
impl Scrub {
    /// Begins a scrub of all volumes, unless one is under way; `ticket` is done when it has ended.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when the pool has none, [`PoolError::Closing`].
    pub(super) fn command(&mut self, cx: &mut Context, ticket: Ticket) -> Result<(), PoolError> {
        if cx.closing.is_some() {
            return Err(PoolError::Closing);
        }
        if cx.facts.regions.is_none() {
            return Err(PoolError::NoChecksums);
        }
        if std::mem::take(&mut self.paused) {
            self.rate_from_now(cx.now);
        }
        self.tickets.push(ticket);
        if self.phase == Phase::Resting {
            self.begin(cx);
        }
        Ok(())
    }

    /// Plans a scrub every so many days (0: none), the first in so many days from now. A scrub under way continues.
    ///
    /// # Errors
    /// [`PoolError::NoChecksums`] when there is nothing to compare with.
    pub(super) fn plan(
        &self,
        cx: &mut Context,
        every_days: u32,
        ticket: Ticket,
    ) -> Result<(), PoolError> {
        if cx.facts.regions.is_none() {
            return Err(PoolError::NoChecksums);
        }
        let facts = &mut cx.facts.scrub;
        facts.every_days = every_days;
        facts.counted_from = facts.counted_from.or(self.unix_seconds);
        cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        Ok(())
    }

    /// The wall clock: begins a scrub if one is due, and returns whether it has. A clock that jumps makes a scrub come
    /// sooner or later, and does no other harm.
    pub(super) fn wall_clock(&mut self, cx: &mut Context, unix_seconds: u64) -> bool {
        self.unix_seconds = Some(unix_seconds);
        let facts = &mut cx.facts.scrub;
        let begins = self.phase == Phase::Resting && cx.closing.is_none() && cx.recovered;
        if facts.every_days == 0 || !begins {
            return false;
        }
        let from = *facts.counted_from.get_or_insert(unix_seconds);
        let due = from.saturating_add(u64::from(facts.every_days) * DAY_SECONDS);
        // A scrub that ended in the future: the clock was wrong then.
        let is_due = unix_seconds >= due || from > unix_seconds.saturating_add(DAY_SECONDS);
        if is_due {
            self.begin(cx);
        }
        is_due
    }

    fn begin(&mut self, cx: &mut Context) {
        self.begin_at(cx, GroupId(0));
        let groups = self.progress.groups_total;
        cx.report(Report::ScrubBegins { groups });
        self.record(cx, GroupId(0));
        cx.commit(Vec::new());
    }

    fn begin_at(&mut self, cx: &Context, group: GroupId) {
        let groups: BTreeSet<GroupId> = cx.placement.groups().all().collect();
        let groups_total = groups.len() as u64;
        self.waiting = groups.range(group..).copied().collect();
        if self.phase == Phase::Resting {
            self.phase = Phase::Running;
        }
        self.noted = cx.now;
        self.progress = ScrubProgress {
            groups_done: groups_total - self.waiting.len() as u64,
            groups_total,
            began: cx.now,
            ..ScrubProgress::default()
        };
        self.rate_from_now(cx.now);
    }

    /// After opening: a scrub that was under way continues at its recorded group.
    pub(super) fn resume(&mut self, cx: &mut Context) {
        let Some(group) = cx.facts.scrub.next_group else {
            return;
        };
        self.begin_at(cx, group);
        let (facts, progress) = (&cx.facts.scrub, &mut self.progress);
        progress.blocks = facts.blocks;
        progress.bad = facts.bad;
        progress.failed = facts.failed;
        progress.mended = facts.mended;
        progress.lost = facts.lost;
        self.rate_from_now(cx.now);
        cx.report(Report::ScrubResumed { group });
    }

    /// Records the progress of the scrub in the facts, for the next generation that is written.
    pub(super) fn note(&self, cx: &mut Context) {
        let waiting = match self.phase {
            Phase::Resting => return,
            Phase::Running => self.waiting.first().copied().unwrap_or(GroupId(u64::MAX)),
            Phase::Stopped { next } => next,
        };
        let in_flight = self.in_flight.keys().next().copied();
        self.record(cx, in_flight.unwrap_or(GroupId(u64::MAX)).min(waiting));
    }

    fn record(&self, cx: &mut Context, next: GroupId) {
        let (facts, progress) = (&mut cx.facts.scrub, &self.progress);
        facts.next_group = Some(next);
        facts.blocks = progress.blocks;
        facts.bad = progress.bad;
        facts.failed = progress.failed;
        facts.mended = progress.mended;
        facts.lost = progress.lost;
    }

    /// Pauses the scrub, or resumes it. Without one there is nothing to pause: the next one begins unpaused.
    pub(super) fn pause(&mut self, now: Instant, paused: bool) {
        self.paused = paused && self.phase != Phase::Resting;
        self.rate_from_now(now);
    }

    pub(super) fn rate_from_now(&mut self, now: Instant) {
        let progress = &mut self.progress;
        progress.rate_from = (now, progress.groups_done, progress.blocks);
    }

    /// The scrub is over: it ends.
    pub(super) fn end(&mut self, cx: &mut Context) {
        self.phase = Phase::Resting;
        self.paused = false;
        let facts = &mut cx.facts.scrub;
        facts.next_group = None;
        facts.counted_from = self.unix_seconds.or(facts.counted_from);
        cx.commit(Vec::new());
        let progress = &mut self.progress;
        progress.ended = Some(cx.now);
        cx.report(Report::ScrubEnds {
            blocks: progress.blocks,
            bad: progress.bad,
            mended: progress.mended,
            lost: progress.lost,
            failed: progress.failed,
        });
        for ticket in std::mem::take(&mut self.tickets) {
            cx.done(ticket, Ok(()));
        }
    }

    /// The pool is being closed: no group is scrubbed any more. Lanes finish those in flight.
    pub(super) fn stop(&mut self, cx: &mut Context) {
        // Scrubs that do not go on, or only slowly, must not delay the end.
        let steer = &cx.facts.steer;
        let abandons = steer.paused || steer.rate_bytes.is_some();
        if self.phase != Phase::Resting {
            let mut next = self.waiting.first().copied();
            if abandons {
                let mut own = self.in_flight.iter().filter(|(_, of)| !of.alone);
                let own = own.next().map(|(&group, _)| group);
                next = own.into_iter().chain(next).min();
            }
            let next = next.unwrap_or(GroupId(u64::MAX));
            self.phase = Phase::Stopped { next };
        }
        if abandons {
            for &group in self.in_flight.keys() {
                cx.tell_lane(group, Command::AbandonScrub { group });
            }
        }
        self.waiting.clear();
        self.lost_pages.clear();
        for ticket in std::mem::take(&mut self.tickets) {
            cx.done(ticket, Err(PoolError::Closing));
        }
    }
}

/// The groups.
impl Scrub {
    pub(super) fn pump(&mut self, cx: &mut Context) {
        if cx.facts.steer.paused || cx.closing.is_some() {
            return;
        }
        while self.in_flight.len() < SCRUBBING_MAX
            && cx.recovered
            && let Some(group) = self.lost_pages.pop_first()
        {
            self.start(cx, group, true);
        }
        while !self.paused
            && self.in_flight.len() < SCRUBBING_MAX
            && let Some(group) = self.waiting.pop_first()
        {
            self.start(cx, group, false);
        }
    }

    fn start(&mut self, cx: &mut Context, group: GroupId, alone: bool) {
        match self.in_flight.entry(group) {
            Entry::Vacant(entry) => {
                entry.insert(InFlight {
                    alone,
                    let_go: false,
                });
                cx.tell_lane(group, Command::Scrub { group });
            }
            // A group that is already scrubbed for another reason counts for the scrub of all volumes, too.
            Entry::Occupied(mut entry) => entry.get_mut().alone &= alone,
        }
    }

    /// Abandons the scrub of a group, which is scrubbed again later.
    pub(super) fn let_go(&mut self, cx: &mut Context, group: GroupId) {
        if let Some(of) = self.in_flight.get_mut(&group)
            && !std::mem::replace(&mut of.let_go, true)
        {
            cx.tell_lane(group, Command::AbandonScrub { group });
        }
    }

    /// The scrub of a group has ended.
    pub(super) fn scrubbed(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        found: Found,
        outcome: Outcome,
    ) {
        let Some(InFlight { alone, let_go }) = self.in_flight.remove(&group) else {
            return;
        };
        let abandoned = outcome == Err(Fault::Shutdown);
        let stopped = matches!(self.phase, Phase::Stopped { .. });
        if abandoned && let_go && !stopped {
            self.wait_again(cx, group, alone);
            return;
        }
        // An abandoned group is scrubbed from its beginning by the next opening.
        if alone || abandoned && stopped {
            return;
        }
        // The columns that are present agree, but data that only lost columns have is not checked.
        let failed = outcome.is_err() || cx.is_lost(group, &mut SubStripePlans::default());
        let progress = &mut self.progress;
        progress.groups_done += 1;
        progress.blocks += found.blocks;
        progress.bad += found.bad;
        progress.mended += found.mended;
        progress.lost += found.lost;
        progress.failed += u64::from(failed);
        if cx.now.since(self.noted) >= NOTE_EVERY {
            self.noted = cx.now;
            self.note(cx);
            cx.commit(Vec::new());
        }
    }

    /// The scrub of a group was abandoned: it waits again, unless it belongs to no volume any more.
    fn wait_again(&mut self, cx: &Context, group: GroupId, alone: bool) {
        let has_content = cx.placement.groups().has(group);
        if has_content && alone {
            self.lost_pages.insert(group);
        } else if has_content {
            self.waiting.insert(group);
        } else if !alone {
            self.progress.groups_total -= 1;
        }
    }

    /// These groups belong to no volume any more: they need not be scrubbed.
    pub(super) fn leave_out(&mut self, groups: &[(u64, u64)]) {
        let freed = |group: &GroupId| runs::run_of(groups, group.0).is_some();
        self.lost_pages.retain(|group| !freed(group));
        self.unrecovered.retain(|group| !freed(group));
        let before = self.waiting.len();
        self.waiting.retain(|group| !freed(group));
        self.progress.groups_total -= (before - self.waiting.len()) as u64;
    }

    /// Scrubs a group in which something is unknown; no command waits for this. Blocks that the present drives cannot
    /// supply, a drive that is being filled perhaps can: unless fills are idle, the group is scrubbed again after them.
    pub(super) fn scrub_for(&mut self, cx: &Context, group: GroupId, fills_idle: bool) {
        if cx.placement.groups().has(group) {
            self.lost_pages.insert(group);
            if !fills_idle {
                self.unrecovered.insert(group);
            }
        }
    }

    /// A cell was filled except for blocks that no drive has.
    pub(super) fn blocks_unrecovered(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        column: Column,
        blocks: u64,
    ) {
        self.unrecovered.insert(group);
        cx.report(Report::BlocksUnrecovered {
            group,
            column,
            columns: 1,
            blocks,
        });
    }

    /// Fills are idle again: blocks that could not be reconstructed before perhaps can be now, also those of groups with
    /// `losses`.
    pub(super) fn repair_unrecovered(
        &mut self,
        cx: &Context,
        losses: impl Iterator<Item = GroupId>,
    ) {
        let mut groups = std::mem::take(&mut self.unrecovered);
        groups.extend(losses);
        for group in groups {
            self.scrub_for(cx, group, true);
        }
    }
}

/// What lanes find.
impl Scrub {
    /// Checksums were lost: a scrub of the group computes and writes them again.
    pub(super) fn page_lost(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        column: Column,
        fills_idle: bool,
    ) {
        cx.report(Report::PageLost {
            group,
            column,
            pages: 1,
        });
        self.scrub_for(cx, group, fills_idle);
    }

    /// Blocks without a known checksum were found in a group: scrub it, at most once per opening of the pool. Blocks
    /// that cannot be reconstructed stay unknown, and would be found again each time.
    pub(super) fn blocks_unknown(&mut self, cx: &Context, group: GroupId, fills_idle: bool) {
        if self.found_unknown.insert(group) {
            self.scrub_for(cx, group, fills_idle);
        }
    }

    /// A copy of a page was damaged or older than others; it is written again.
    pub(super) fn page_mended(&mut self, cx: &mut Context, seat: Seat, damaged: bool) {
        let (bad, old) = self.pages_mended.entry(seat).or_default();
        *bad += u64::from(damaged);
        *old += u64::from(!damaged);
        let (damaged, older) = (*bad, *old);
        if (damaged + older).is_power_of_two() {
            cx.report(Report::PagesMended {
                seat,
                damaged,
                older,
            });
        }
    }

    /// A drive's journal is older than its label. Reported once, whichever lane finds it first.
    pub(super) fn drive_old(&mut self, cx: &mut Context, seat: Seat, anchor: u64, newest: u64) {
        if self.old_drives.insert(seat) {
            cx.report(Report::DriveOld {
                seat,
                anchor,
                newest,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OutReason;
    use crate::fixture::{commands, context, done, is_out, reports, volume};
    use testing::walk::Changes;

    const TICKET: Ticket = Ticket(7);
    const ABANDONED: Outcome = Err(Fault::Shutdown);
    const FOUND: Found = Found {
        blocks: 100,
        bad: 4,
        mended: 3,
        lost: 1,
    };

    /// A pool with the groups 0, 1 and 2.
    fn resting() -> (Scrub, Context) {
        (Scrub::default(), context("raid6", 6, 3))
    }

    /// A scrub of all volumes has begun; no lane has a group yet.
    fn running() -> (Scrub, Context) {
        let (mut scrub, mut cx) = resting();
        scrub.command(&mut cx, TICKET).unwrap();
        (scrub, cx)
    }

    /// Passes the end of a group to the scrub, and ends the scrub if it is over, as `Pool` does.
    fn end(scrub: &mut Scrub, cx: &mut Context, group: GroupId, outcome: Outcome) {
        scrub.scrubbed(cx, group, FOUND, outcome);
        if scrub.over().is_some() {
            scrub.end(cx);
        }
    }

    /// The groups that lanes are to scrub from now on.
    fn started(scrub: &mut Scrub, cx: &mut Context) -> Vec<GroupId> {
        scrub.pump(cx);
        let groups = commands(cx).into_iter().map(|(_, command)| match command {
            Command::Scrub { group } => group,
            other => panic!("{other:?}"),
        });
        groups.collect()
    }

    /// The groups that lanes are to abandon.
    fn abandoned(cx: &mut Context) -> Vec<GroupId> {
        let groups = commands(cx).into_iter().map(|(_, command)| match command {
            Command::AbandonScrub { group } => group,
            other => panic!("{other:?}"),
        });
        groups.collect()
    }

    fn has_groups(cx: &mut Context, extents: &[(u64, u64)]) {
        cx.facts.volumes = vec![volume("v", extents.to_vec(), cx)];
        cx.groups_changed();
    }

    /// All that is left is scrubbed.
    fn scrub_all(scrub: &mut Scrub, cx: &mut Context) {
        while !scrub.is_idle() {
            scrub.pump(cx);
            let groups: Vec<GroupId> = scrub.in_flight.keys().copied().collect();
            assert!(!groups.is_empty(), "{scrub:?}");
            for group in groups {
                end(scrub, cx, group, Ok(()));
            }
        }
    }

    /// The drawing in the head of this file is what the phases do: every event, from every phase.
    #[test]
    fn the_phases_of_a_scrub_are_those_of_the_drawing() {
        type Event = (&'static str, fn(&mut Scrub, &mut Context));
        let events: [Event; 7] = [
            ("begin", |scrub, cx| scrub.command(cx, TICKET).unwrap()),
            ("begin", |scrub, cx| {
                cx.facts.scrub.every_days = 1;
                cx.facts.scrub.counted_from = Some(0);
                scrub.wall_clock(cx, 9 * DAY_SECONDS);
            }),
            ("end", scrub_all),
            ("stop", |scrub, cx| scrub.stop(cx)),
            ("pause", |scrub, cx| scrub.pause(cx.now, true)),
            ("let_go", |scrub, cx| {
                scrub.pump(cx);
                scrub.let_go(cx, GroupId(0));
                end(scrub, cx, GroupId(0), ABANDONED);
            }),
            ("scrub_for", |scrub, cx| {
                scrub.scrub_for(cx, GroupId(0), true);
            }),
        ];
        let name = |scrub: &Scrub| match scrub.phase {
            Phase::Resting => "resting",
            Phase::Running => "running",
            Phase::Stopped { .. } => "stopped",
        };
        let mut known = vec![resting()];
        let mut drawn = Changes::default();
        let mut at = 0;
        while let Some((scrub, cx)) = known.get(at).cloned() {
            at += 1;
            for &(event, happens) in &events {
                let (mut after, mut cx) = (scrub.clone(), cx.clone());
                happens(&mut after, &mut cx);
                let (from, to) = (name(&scrub), name(&after));
                drawn.note(from, event, to);
                if known.iter().all(|(scrub, _)| name(scrub) != to) {
                    known.push((after, cx));
                }
            }
        }
        drawn.assert_drawn_in(include_str!("scrub.rs"));
    }

    #[test]
    fn a_scrub_ends_with_its_last_group() {
        let (mut scrub, mut cx) = running();
        assert_eq!(
            started(&mut scrub, &mut cx),
            [GroupId(0), GroupId(1)],
            "two at a time"
        );
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2)]);
        end(&mut scrub, &mut cx, GroupId(2), Err(Fault::Medium));
        assert_eq!(done(&mut cx), []);
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        assert_eq!(done(&mut cx), [(TICKET, Ok(()))]);
        let ends = Report::ScrubEnds {
            blocks: 300,
            bad: 12,
            mended: 9,
            lost: 3,
            failed: 1,
        };
        let all = [Report::ScrubBegins { groups: 3 }, ends];
        assert_eq!(reports(&mut cx), all);
        assert_eq!(cx.facts.scrub.next_group, None);
        assert!(scrub.is_idle());
    }

    #[test]
    fn two_commands_are_done_by_one_scrub() {
        let (mut scrub, mut cx) = running();
        scrub.command(&mut cx, Ticket(8)).unwrap();
        assert_eq!(reports(&mut cx), [Report::ScrubBegins { groups: 3 }]);
        scrub_all(&mut scrub, &mut cx);
        assert_eq!(done(&mut cx), [(TICKET, Ok(())), (Ticket(8), Ok(()))]);
        assert_eq!(scrub.progress().groups_done, 3);
    }

    #[test]
    fn a_pool_without_checksums_has_nothing_to_compare_with() {
        let (mut scrub, mut cx) = resting();
        cx.facts.regions = None;
        let refused = Err(PoolError::NoChecksums);
        assert_eq!(scrub.command(&mut cx, TICKET), refused);
        assert_eq!(scrub.plan(&mut cx, 3, TICKET), refused);
        assert_eq!(cx.facts.scrub.every_days, 0);
        assert!(scrub.is_idle());
    }

    #[test]
    fn a_group_that_was_let_go_is_scrubbed_again() {
        let (mut scrub, mut cx) = running();
        started(&mut scrub, &mut cx);
        for _ in 0..2 {
            scrub.let_go(&mut cx, GroupId(0));
        }
        scrub.let_go(&mut cx, GroupId(2));
        assert_eq!(
            abandoned(&mut cx),
            [GroupId(0)],
            "once, and only what is in flight"
        );
        end(&mut scrub, &mut cx, GroupId(0), ABANDONED);
        assert_eq!(scrub.progress().groups_done, 0);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(0)]);
        end(&mut scrub, &mut cx, GroupId(0), ABANDONED);
        let progress = scrub.progress();
        assert_eq!(
            (progress.groups_done, progress.failed),
            (1, 1),
            "not let go"
        );
    }

    #[test]
    fn a_group_that_was_let_go_and_scrubbed_all_the_same_counts() {
        let (mut scrub, mut cx) = running();
        started(&mut scrub, &mut cx);
        scrub.let_go(&mut cx, GroupId(1));
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        assert_eq!(scrub.progress().groups_done, 1);
    }

    #[test]
    fn freed_groups_are_not_scrubbed_whether_they_wait_or_were_let_go() {
        let (mut scrub, mut cx) = running();
        scrub.scrub_for(&cx, GroupId(2), false);
        scrub.pause(cx.now, true);
        scrub.pump(&mut cx);
        scrub.pause(cx.now, false);
        started(&mut scrub, &mut cx);
        scrub.let_go(&mut cx, GroupId(0));
        scrub.let_go(&mut cx, GroupId(2));
        has_groups(&mut cx, &[(1, 1)]);
        scrub.leave_out(&[(0, 1), (2, 1)]);
        assert_eq!(scrub.progress().groups_total, 2, "group 0 is in flight");
        for group in [GroupId(0), GroupId(2)] {
            end(&mut scrub, &mut cx, group, ABANDONED);
        }
        assert_eq!(scrub.progress().groups_total, 1);
        scrub.repair_unrecovered(&cx, std::iter::empty());
        commands(&mut cx);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        assert_eq!(done(&mut cx), [(TICKET, Ok(()))]);
    }

    #[test]
    fn a_group_that_cannot_be_read_as_a_whole_counts_as_failed() {
        let (mut scrub, mut cx) = running();
        started(&mut scrub, &mut cx);
        for seat in [0, 3] {
            is_out(&mut cx, Seat(seat), OutReason::Hung);
        }
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        assert_eq!(scrub.progress().failed, 0);
        is_out(&mut cx, Seat(1), OutReason::Hung);
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        assert_eq!(scrub.progress().failed, 1);
    }

    #[test]
    fn a_group_with_a_lost_page_goes_first_and_counts_for_no_scrub() {
        let (mut scrub, mut cx) = running();
        scrub.page_lost(&mut cx, GroupId(2), Column(4), true);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2), GroupId(0)]);
        end(&mut scrub, &mut cx, GroupId(2), Ok(()));
        assert_eq!(scrub.progress().groups_done, 0);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        assert_eq!(
            started(&mut scrub, &mut cx),
            [GroupId(2)],
            "now as part of the scrub"
        );
        let lost = Report::PageLost {
            group: GroupId(2),
            column: Column(4),
            pages: 1,
        };
        assert_eq!(reports(&mut cx)[1], lost);
    }

    #[test]
    fn a_group_that_is_scrubbed_by_itself_counts_for_a_scrub_that_begins_meanwhile() {
        let (mut scrub, mut cx) = resting();
        scrub.scrub_for(&cx, GroupId(0), true);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(0)]);
        scrub.command(&mut cx, TICKET).unwrap();
        assert_eq!(
            started(&mut scrub, &mut cx),
            [GroupId(1)],
            "group 0 is scrubbed already"
        );
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        let progress = scrub.progress();
        assert_eq!((progress.groups_done, progress.blocks), (1, 100));
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2)]);
    }

    #[test]
    fn a_paused_scrub_starts_no_group_and_lost_pages_do_not_wait_for_it() {
        let (mut scrub, mut cx) = running();
        scrub.pause(Instant(5), true);
        assert!(scrub.is_paused(&cx) && scrub.is_idle());
        assert!(started(&mut scrub, &mut cx).is_empty());
        scrub.scrub_for(&cx, GroupId(1), true);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
        cx.now = Instant(9);
        scrub.command(&mut cx, Ticket(8)).unwrap();
        assert!(!scrub.is_paused(&cx), "a command resumes it");
        assert_eq!(scrub.progress().rate_from, (Instant(9), 0, 0));
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(0)]);
    }

    #[test]
    fn a_pause_lasts_no_longer_than_the_scrub() {
        let (mut scrub, mut cx) = resting();
        scrub.pause(Instant(5), true);
        scrub.command(&mut cx, TICKET).unwrap();
        assert_eq!(
            started(&mut scrub, &mut cx).len(),
            2,
            "there was none to pause"
        );
        for group in [0, 1] {
            end(&mut scrub, &mut cx, GroupId(group), Ok(()));
        }
        started(&mut scrub, &mut cx);
        // The last group is in flight, and ends the scrub.
        scrub.pause(Instant(6), true);
        end(&mut scrub, &mut cx, GroupId(2), Ok(()));
        assert_eq!(done(&mut cx), [(TICKET, Ok(()))]);
        cx.facts.scrub.every_days = 1;
        scrub.begin(&mut cx);
        assert!(!scrub.is_paused(&cx));
    }

    #[test]
    fn a_pool_that_closes_begins_no_scrub_of_any_kind() {
        let (mut scrub, mut cx) = resting();
        cx.closing = Some(Ticket(9));
        assert_eq!(scrub.command(&mut cx, TICKET), Err(PoolError::Closing));
        scrub.scrub_for(&cx, GroupId(1), true);
        assert!(started(&mut scrub, &mut cx).is_empty());
    }

    #[test]
    fn while_all_moves_are_paused_no_group_is_scrubbed() {
        let (mut scrub, mut cx) = running();
        scrub.scrub_for(&cx, GroupId(1), true);
        cx.facts.steer.paused = true;
        assert!(started(&mut scrub, &mut cx).is_empty());
        assert!(scrub.is_paused(&cx) && !scrub.is_idle());
    }

    #[test]
    fn before_lanes_have_read_their_journals_no_group_is_scrubbed_by_itself() {
        let (mut scrub, mut cx) = resting();
        cx.recovered = false;
        scrub.scrub_for(&cx, GroupId(1), true);
        assert!(started(&mut scrub, &mut cx).is_empty());
        cx.recovered = true;
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
    }

    #[test]
    fn a_scrub_continues_after_a_restart_with_what_it_has_found() {
        let (mut scrub, mut cx) = running();
        started(&mut scrub, &mut cx);
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        scrub.stop(&mut cx);
        assert_eq!(done(&mut cx), [(TICKET, Err(PoolError::Closing))]);
        assert!(started(&mut scrub, &mut cx).is_empty());
        scrub.note(&mut cx);
        assert_eq!(
            cx.facts.scrub.next_group,
            Some(GroupId(1)),
            "it is in flight"
        );
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        scrub.note(&mut cx);
        assert_eq!(cx.facts.scrub.next_group, Some(GroupId(2)));
        let mut scrub = Scrub::default();
        reports(&mut cx);
        scrub.resume(&mut cx);
        assert_eq!(
            reports(&mut cx),
            [Report::ScrubResumed { group: GroupId(2) }]
        );
        let progress = scrub.progress();
        assert_eq!((progress.groups_done, progress.groups_total), (2, 3));
        assert_eq!((progress.blocks, progress.lost), (200, 2));
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2)]);
    }

    #[test]
    fn a_scrub_with_a_rate_does_not_delay_the_end() {
        let (mut scrub, mut cx) = running();
        cx.facts.steer.rate_bytes = Some(1_000_000);
        scrub.scrub_for(&cx, GroupId(2), true);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2), GroupId(0)]);
        scrub.stop(&mut cx);
        assert_eq!(abandoned(&mut cx), [GroupId(0), GroupId(2)]);
        for group in [GroupId(0), GroupId(2)] {
            end(&mut scrub, &mut cx, group, ABANDONED);
        }
        scrub.note(&mut cx);
        assert_eq!(
            cx.facts.scrub.next_group,
            Some(GroupId(0)),
            "from its beginning"
        );
        assert_eq!((scrub.progress().groups_done, scrub.in_flight()), (0, 0));
    }

    #[test]
    fn progress_is_recorded_once_a_minute() {
        let (mut scrub, mut cx) = running();
        started(&mut scrub, &mut cx);
        let before = cx.labels.generation();
        cx.now += Duration::from_secs(59);
        end(&mut scrub, &mut cx, GroupId(0), Ok(()));
        assert_eq!((cx.labels.generation(), cx.facts.scrub.blocks), (before, 0));
        cx.now += Duration::from_secs(1);
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        assert_eq!(cx.labels.generation(), before.next());
        let facts = &cx.facts.scrub;
        assert_eq!((facts.blocks, facts.next_group), (200, Some(GroupId(2))));
    }

    #[test]
    fn a_planned_scrub_begins_when_its_days_are_over() {
        let (mut scrub, mut cx) = resting();
        assert!(!scrub.wall_clock(&mut cx, 1000), "none is planned");
        scrub.plan(&mut cx, 2, TICKET).unwrap();
        let due = 1000 + 2 * DAY_SECONDS;
        assert!(!scrub.wall_clock(&mut cx, due - 1));
        assert!(scrub.wall_clock(&mut cx, due));
        assert!(!scrub.wall_clock(&mut cx, due + 1), "it is under way");
        scrub_all(&mut scrub, &mut cx);
        assert_eq!(cx.facts.scrub.counted_from, Some(due + 1));
        assert!(!scrub.wall_clock(&mut cx, due + 2 * DAY_SECONDS));
        assert!(scrub.wall_clock(&mut cx, due + 1 + 2 * DAY_SECONDS));
    }

    #[test]
    fn no_planned_scrub_begins_while_the_pool_is_opened_or_closed() {
        let (mut scrub, mut cx) = resting();
        cx.facts.scrub.every_days = 1;
        cx.facts.scrub.counted_from = Some(0);
        cx.recovered = false;
        assert!(!scrub.wall_clock(&mut cx, 5 * DAY_SECONDS));
        (cx.recovered, cx.closing) = (true, Some(TICKET));
        assert!(!scrub.wall_clock(&mut cx, 5 * DAY_SECONDS));
        cx.closing = None;
        assert!(scrub.wall_clock(&mut cx, 5 * DAY_SECONDS));
    }

    #[test]
    fn a_scrub_that_ended_in_the_future_does_not_put_off_the_next_one() {
        let (mut scrub, mut cx) = resting();
        cx.facts.scrub.every_days = 30;
        cx.facts.scrub.counted_from = Some(900 * DAY_SECONDS);
        assert!(
            !scrub.wall_clock(&mut cx, 899 * DAY_SECONDS),
            "a day may be"
        );
        assert!(scrub.wall_clock(&mut cx, 899 * DAY_SECONDS - 1));
    }

    #[test]
    fn unknown_blocks_of_a_group_are_looked_for_once() {
        let (mut scrub, mut cx) = resting();
        scrub.blocks_unknown(&cx, GroupId(1), true);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        scrub.blocks_unknown(&cx, GroupId(1), true);
        scrub.blocks_unknown(&cx, GroupId(8), true);
        assert!(
            started(&mut scrub, &mut cx).is_empty(),
            "group 8 has no volume"
        );
    }

    #[test]
    fn what_cannot_be_recovered_is_tried_again_after_fills() {
        let (mut scrub, mut cx) = resting();
        scrub.blocks_unrecovered(&mut cx, GroupId(0), Column(3), 9);
        assert!(
            started(&mut scrub, &mut cx).is_empty(),
            "the drives are not there"
        );
        scrub.scrub_for(&cx, GroupId(1), false);
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(1)]);
        end(&mut scrub, &mut cx, GroupId(1), Ok(()));
        scrub.repair_unrecovered(&cx, [GroupId(2)].into_iter());
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(0), GroupId(1)]);
        for group in [GroupId(0), GroupId(1)] {
            end(&mut scrub, &mut cx, group, Ok(()));
        }
        assert_eq!(started(&mut scrub, &mut cx), [GroupId(2)], "it has losses");
        end(&mut scrub, &mut cx, GroupId(2), Ok(()));
        scrub.repair_unrecovered(&cx, std::iter::empty());
        assert!(scrub.is_idle(), "each is tried once");
    }

    #[test]
    fn mended_pages_are_reported_ever_more_rarely_and_old_drives_once() {
        let (mut scrub, mut cx) = resting();
        for time in 0..8 {
            scrub.page_mended(&mut cx, Seat(1), time < 6);
        }
        let mended = reports(&mut cx).into_iter().map(|report| match report {
            Report::PagesMended { damaged, older, .. } => (damaged, older),
            other => panic!("{other:?}"),
        });
        assert_eq!(mended.collect::<Vec<_>>(), [(1, 0), (2, 0), (4, 0), (6, 2)]);
        for seat in [Seat(2), Seat(2), Seat(3)] {
            scrub.drive_old(&mut cx, seat, 5, 6);
        }
        assert_eq!(reports(&mut cx).len(), 2);
    }
}
