//! Drives that stay although they refuse operations, and lanes that cannot write because of them: which refusals are
//! worth a report. There is one report per change of state, not one per try.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{Fault, Instant, Seat};

use super::{Pool, Report};

/// A drive that refuses again after this long without a refusal is reported again.
const QUIET: Duration = Duration::from_secs(60);

/// The refusals at present.
#[derive(Clone, Debug, Default)]
pub(super) struct Stalls {
    /// Lanes that cannot write or flush.
    lanes: BTreeMap<u16, Fault>,
    /// Drives that were kept although they failed: the last error, and when.
    drives: BTreeMap<Seat, (Fault, Instant)>,
}

impl Stalls {
    /// Whether some lane cannot write or flush.
    pub(super) fn is_stalled(&self) -> bool {
        !self.lanes.is_empty()
    }

    /// Whether a refusal of a drive that stays is worth a report.
    fn is_news(&mut self, now: Instant, seat: Seat, fault: Fault) -> bool {
        let before = self.drives.insert(seat, (fault, now));
        before.is_none_or(|(last, at)| last != fault || now.since(at) >= QUIET)
    }
}

impl Pool {
    /// A drive has failed an operation and stays. Returns whether that has not been reported yet.
    pub(super) fn refuses_newly(&mut self, seat: Seat, fault: Fault) -> bool {
        self.stalls.is_news(self.now, seat, fault)
    }

    pub(super) fn lane_stalled(&mut self, lane: u16, fault: Fault) {
        let first = self.stalls.lanes.is_empty();
        self.stalls.lanes.insert(lane, fault);
        if first {
            self.report(Report::WritesStall { fault });
        }
    }

    pub(super) fn lane_resumed(&mut self, lane: u16) {
        if self.stalls.lanes.remove(&lane).is_some() && self.stalls.lanes.is_empty() {
            self.stalls.drives.clear();
            self.report(Report::WritesResume);
            self.requeue_fills();
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
}
