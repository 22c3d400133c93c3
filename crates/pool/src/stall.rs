//! Drives that stay although they refuse operations, and lanes that cannot write because of them: which refusals are
//! worth a report. There is one report per change of state, not one per try.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Fault, Instant, Seat};
use plan::action::Command;

use super::{Pool, Report};

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

    /// Whether a refusal of a drive that stays is worth a report.
    fn is_news(&mut self, now: Instant, seat: Seat, fault: Fault) -> bool {
        let before = self.drives.insert(seat, (fault, now));
        before.is_none_or(|(last, at)| last != fault || now.since(at) >= QUIET)
    }
}

impl Pool {
    /// Whether cells that could not be filled, as drives that stay did not work, are tried again within seconds.
    #[must_use]
    pub const fn retries_fills(&self) -> bool {
        self.stalls.retries_fills()
    }

    /// A drive has failed an operation and stays. Returns whether that has not been reported yet.
    pub(super) fn refuses_newly(&mut self, seat: Seat, fault: Fault) -> bool {
        self.stalls.is_news(self.cx.now, seat, fault)
    }

    pub(super) fn lane_stalled(&mut self, lane: u16, fault: Fault) {
        let first = self.stalls.lanes.is_empty();
        self.stalls.lanes.insert(lane, fault);
        self.stalls.try_at.get_or_insert(self.cx.now + TRY_AGAIN);
        if first {
            self.cx.report(Report::WritesStall { fault });
        }
    }

    /// An operation has failed on a drive that stays.
    pub(super) const fn fails_and_stays(&mut self) {
        self.stalls.failed_at = Some(self.cx.now);
    }

    /// A cell could not be filled. If a drive that stays has failed lately, that may be the reason, and the cell is tried
    /// again.
    pub(super) fn fill_waits_for_drives(&mut self) {
        let failed_at = self.stalls.failed_at;
        if failed_at.is_some_and(|at| self.cx.now.since(at) < QUIET) {
            self.stalls.fills = true;
            self.stalls.try_at.get_or_insert(self.cx.now + TRY_AGAIN);
        }
    }

    /// What drives that stay have refused is tried again, if that is due.
    pub(super) fn try_again_when_due(&mut self) {
        if self.stalls.try_at.is_none_or(|at| at > self.cx.now) {
            return;
        }
        let stalled = self.stalls.is_stalled();
        self.stalls.try_at = stalled.then(|| self.cx.now + TRY_AGAIN);
        if stalled {
            self.cx.tell_lanes(&Command::TryAgain);
        }
        if std::mem::take(&mut self.stalls.fills) {
            self.stalls.retries += 1;
            self.requeue_fills();
        }
        self.write_refused_cell_pages();
    }

    /// Something of the pool's own has been refused by a drive that stays.
    pub(super) fn try_again_later(&mut self) {
        self.stalls.try_at.get_or_insert(self.cx.now + TRY_AGAIN);
    }

    pub(super) fn lane_resumed(&mut self, lane: u16) {
        if self.stalls.lanes.remove(&lane).is_some() && self.stalls.lanes.is_empty() {
            self.stalls.drives.clear();
            self.stalls.try_at = None;
            self.stalls.fills = false;
            self.cx.report(Report::WritesResume);
            self.requeue_fills();
            self.write_refused_cell_pages();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drive_that_refuses_again_and_again_is_news_once() {
        let mut stalls = Stalls::default();
        let second = |seconds| Instant::ZERO + Duration::from_secs(seconds);
        assert!(stalls.is_news(second(0), Seat(1), Fault::Full));
        assert!((1..90).all(|at| !stalls.is_news(second(at), Seat(1), Fault::Full)));
        assert!(stalls.is_news(second(90), Seat(2), Fault::Full));
        assert!(stalls.is_news(second(91), Seat(1), Fault::Medium));
        assert!(stalls.is_news(second(91) + QUIET, Seat(1), Fault::Medium));
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
}
