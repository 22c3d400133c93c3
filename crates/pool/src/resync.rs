//! Computing parity again after a stop that was not clean, group by group.

use std::collections::BTreeSet;

use block::Outcome;
use plan::action::Command;

use super::{Pool, Report};

/// Groups in flight at a time.
const RESYNCING_MAX: usize = 8;

/// Groups whose parity may disagree with their data.
#[derive(Clone, Debug, Default)]
pub(super) struct Resync {
    waiting: BTreeSet<u64>,
    in_flight: BTreeSet<u64>,
    /// Some groups failed.
    failed: bool,
}

impl Resync {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.in_flight.is_empty()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn resyncing(&self) -> bool {
        !self.is_idle()
    }
}

impl Pool {
    /// Queues every group of every volume.
    pub(super) fn begin_resync(&mut self) {
        self.resync.waiting = self.cx.placement.groups().all().collect();
        if self.cx.geometry.code().tolerance() == 0 {
            self.resync.waiting.clear();
        }
        if self.resync.waiting.is_empty() {
            self.cx.tell_lanes(&Command::CopiesAgree);
        } else {
            let groups = self.resync.waiting.len() as u64;
            self.cx.report(Report::ResyncBegins { groups });
        }
    }

    /// Groups whose parity is not known to agree with their data.
    #[must_use]
    pub fn resync_left(&self) -> u64 {
        (self.resync.waiting.len() + self.resync.in_flight.len()) as u64
    }

    pub(super) fn pump_resync(&mut self) {
        if self.cx.closing.is_some() {
            return;
        }
        while self.resync.in_flight.len() < RESYNCING_MAX
            && let Some(group) = self.resync.waiting.pop_first()
        {
            self.resync.in_flight.insert(group);
            self.cx.tell_lane(group, Command::Resync { group });
        }
    }

    pub(super) fn resynced(&mut self, group: u64, outcome: Outcome) {
        if !self.resync.in_flight.remove(&group) {
            return;
        }
        if outcome.is_err() {
            self.resync.failed = true;
            self.cx.report(Report::ResyncFailed { group });
        }
        if self.resync.is_idle() {
            if !self.resync.failed {
                self.cx.tell_lanes(&Command::CopiesAgree);
            }
            self.cx.report(Report::ResyncEnds);
        }
    }
}
