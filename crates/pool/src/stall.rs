//! Drives that stay although they refuse operations, and lanes that cannot write because of them: which refusals are
//! worth a report. There is one report per change of state, not one per try.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Fault, Instant, Seat};
use plan::action::Command;

use super::Report;
use super::context::Context;

/// A drive that refuses again after this long without a refusal is reported again.
const QUIET: Duration = Duration::from_secs(60);

/// How often lanes try again what drives refuse, if no request makes them: work of the pool may wait for it. A guess, as
/// for the lanes' back-off.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Retries of fills one after the other, none of which fills a cell, that count as work under way. Later ones wait for a
/// drive that has to be brought back.
const RETRIES_UNDER_WAY: u32 = 5;

/// The refusals at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// Lanes that cannot write or flush.
    lanes: BTreeMap<u16, Fault>,
    /// Drives that were kept although they failed: the last error, and when.
    drives: BTreeMap<Seat, (Fault, Instant)>,
    /// When drives that stay have last failed an operation.
    failed_at: Option<Instant>,
    /// Cells could not be filled while drives that stay failed.
    fills: bool,
    /// Retries of fills since a cell was last filled.
    retries: u32,
    /// When lanes and fills are tried again.
    try_at: Option<Instant>,
}

/// What the pool tries again: pages of cell tables, and these.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TryAgain {
    /// Cells that could not be filled.
    pub(super) fills: bool,
}

impl Stalls {
    /// Whether some lane cannot write or flush.
    pub(super) fn is_stalled(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// When lanes and fills are to be tried again.
    pub(super) const fn try_at(&self) -> Option<Instant> {
        self.try_at
    }

    /// Whether cells that could not be filled are tried again soon, and likely to be filled.
    pub(super) const fn retries_fills(&self) -> bool {
        self.fills && self.try_at.is_some() && self.retries < RETRIES_UNDER_WAY
    }

    /// A cell is filled: what stopped fills is over.
    pub(super) const fn filled(&mut self) {
        self.retries = 0;
    }
}

impl Stalls {
    /// A drive has failed an operation and stays. Returns whether that has not been reported yet.
    pub(super) fn refuses_newly(&mut self, now: Instant, seat: Seat, fault: Fault) -> bool {
        let before = self.drives.insert(seat, (fault, now));
        before.is_none_or(|(last, at)| last != fault || now.since(at) >= QUIET)
    }

    /// An operation has failed on a drive that stays.
    pub(super) const fn fails_and_stays(&mut self, now: Instant) {
        self.failed_at = Some(now);
    }

    /// A lane cannot write or flush.
    pub(super) fn lane_stalled(&mut self, cx: &mut Context, lane: u16, fault: Fault) {
        let first = self.lanes.is_empty();
        self.lanes.insert(lane, fault);
        self.try_again_later(cx.now);
        if first {
            cx.report(Report::WritesStall { fault });
        }
    }

    /// A lane writes again. Returns whether it was the last one that could not.
    pub(super) fn lane_resumed(&mut self, cx: &mut Context, lane: u16) -> bool {
        let last = self.lanes.remove(&lane).is_some() && self.lanes.is_empty();
        if last {
            self.drives.clear();
            self.try_at = None;
            self.fills = false;
            cx.report(Report::WritesResume);
        }
        last
    }

    /// A cell could not be filled. If a drive that stays has failed lately, that may be the reason, and the cell is tried
    /// again.
    pub(super) fn fill_failed(&mut self, now: Instant) {
        if self.failed_at.is_some_and(|at| now.since(at) < QUIET) {
            self.fills = true;
            self.try_again_later(now);
        }
    }

    /// Something has been refused by a drive that stays.
    pub(super) fn try_again_later(&mut self, now: Instant) {
        self.try_at.get_or_insert(now + TRY_AGAIN);
    }

    /// What drives that stay have refused is tried again, if that is due: by lanes, and by the pool as returned.
    pub(super) fn try_again(&mut self, cx: &mut Context) -> Option<TryAgain> {
        self.try_at.filter(|&at| at <= cx.now)?;
        let stalled = self.is_stalled();
        self.try_at = stalled.then(|| cx.now + TRY_AGAIN);
        if stalled {
            cx.tell_lanes(&Command::TryAgain);
        }
        let fills = std::mem::take(&mut self.fills);
        self.retries += u32::from(fills);
        Some(TryAgain { fills })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{commands, context, reports};

    #[test]
    fn a_drive_that_refuses_again_and_again_is_news_once() {
        let mut stalls = Stalls::default();
        let second = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert!(stalls.refuses_newly(second(0), Seat(1), Fault::Full));
        assert!((1..90).all(|at| !stalls.refuses_newly(second(at), Seat(1), Fault::Full)));
        assert!(stalls.refuses_newly(second(90), Seat(2), Fault::Full));
        assert!(stalls.refuses_newly(second(91), Seat(1), Fault::Medium));
        assert!(stalls.refuses_newly(second(91) + QUIET, Seat(1), Fault::Medium));
    }

    #[test]
    fn fills_that_fail_at_each_retry_do_not_count_as_under_way_for_ever() {
        let mut stalls = Stalls {
            fills: true,
            try_at: Some(Instant::ZERO),
            ..Stalls::default()
        };
        assert!(stalls.retries_fills());
        stalls.retries = RETRIES_UNDER_WAY;
        assert!(!stalls.retries_fills());
        stalls.filled();
        assert!(stalls.retries_fills());
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn the_first_lane_that_cannot_write_and_the_last_are_reported() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        for lane in [0, 1, 0] {
            stalls.lane_stalled(&mut cx, lane, Fault::Full);
        }
        let stall = Report::WritesStall { fault: Fault::Full };
        assert_eq!(reports(&mut cx), [stall]);
        assert!(!stalls.lane_resumed(&mut cx, 1) && stalls.is_stalled());
        assert!(
            !stalls.lane_resumed(&mut cx, 1),
            "it had not stalled any more"
        );
        assert!(stalls.lane_resumed(&mut cx, 0) && !stalls.is_stalled());
        assert_eq!(reports(&mut cx), [Report::WritesResume]);
        assert_eq!(stalls.try_at(), None);
    }

    #[test]
    fn lanes_that_cannot_write_try_again_at_intervals() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        stalls.lane_stalled(&mut cx, 0, Fault::Gone);
        for round in 1..4 {
            cx.now = at(2 * round - 1);
            assert_eq!(stalls.try_again(&mut cx), None);
            cx.now = at(2 * round);
            let again = TryAgain { fills: false };
            assert_eq!(stalls.try_again(&mut cx), Some(again));
            assert_eq!(commands(&mut cx)[0], (0, Command::TryAgain));
        }
    }

    #[test]
    fn a_fill_that_fails_soon_after_a_drive_that_stays_is_tried_again() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        stalls.fill_failed(at(1));
        assert_eq!(stalls.try_at(), None, "no drive that stays has failed");
        stalls.fails_and_stays(at(1));
        stalls.fill_failed(at(5));
        assert_eq!(stalls.try_at(), Some(at(7)));
        cx.now = at(7);
        let again = TryAgain { fills: true };
        assert_eq!(stalls.try_again(&mut cx), Some(again));
        assert_eq!(stalls.try_again(&mut cx), None, "once");
        assert_eq!(commands(&mut cx), [], "no lane waits");
    }

    #[test]
    fn a_fill_that_fails_long_after_that_is_not() {
        let mut stalls = Stalls::default();
        stalls.fails_and_stays(at(1));
        stalls.fill_failed(at(1) + QUIET);
        assert_eq!(stalls.try_at(), None);
    }

    #[test]
    fn what_is_tried_later_does_not_put_off_what_is_due_sooner() {
        let mut stalls = Stalls::default();
        stalls.try_again_later(at(1));
        stalls.try_again_later(at(2));
        assert_eq!(stalls.try_at(), Some(at(3)));
    }

    #[test]
    fn a_drive_that_has_refused_is_news_again_after_writes_go_on() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        stalls.lane_stalled(&mut cx, 0, Fault::Full);
        assert!(stalls.refuses_newly(at(1), Seat(1), Fault::Full));
        assert!(!stalls.refuses_newly(at(2), Seat(1), Fault::Full));
        stalls.lane_resumed(&mut cx, 0);
        assert!(stalls.refuses_newly(at(3), Seat(1), Fault::Full));
    }

    #[test]
    fn when_writes_go_on_no_retry_of_fills_is_left() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        stalls.lane_stalled(&mut cx, 0, Fault::Gone);
        stalls.fails_and_stays(at(0));
        stalls.fill_failed(at(0));
        assert!(stalls.retries_fills());
        stalls.lane_resumed(&mut cx, 0);
        assert!(!stalls.retries_fills());
    }

    #[test]
    fn every_retry_of_fills_counts_until_a_cell_is_filled() {
        let mut cx = context("raid6", 6, 1);
        let mut stalls = Stalls::default();
        for round in 0..u64::from(RETRIES_UNDER_WAY) {
            stalls.fails_and_stays(at(3 * round));
            stalls.fill_failed(at(3 * round));
            assert!(stalls.retries_fills(), "{round}");
            cx.now = at(3 * round + 2);
            assert!(stalls.try_again(&mut cx).is_some());
        }
        stalls.fails_and_stays(at(100));
        stalls.fill_failed(at(100));
        assert!(!stalls.retries_fills(), "a drive has to be brought back");
        stalls.filled();
        assert!(stalls.retries_fills());
    }
}
