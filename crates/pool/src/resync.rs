//! Computing parity again after a stop that was not clean, group by group.
//!
//! Input: the beginning, once the labels of the opening are durable, and the end of each group. Output:
//! [`Command::Resync`] to lanes, and [`Command::CopiesAgree`] when no group is left and none has failed.
//!
//! ```text
//!   begin ─► waiting ── at most 8 at a time ─► in flight ── resynced ─► agrees, or failed
//! ```
//!
//! A group that failed is not tried again: the copies of the whole pool are not known to agree until another opening.

use std::collections::BTreeSet;

use block::Outcome;
use format::GroupId;
use plan::action::Command;

use super::Report;
use super::context::Context;

/// Groups in flight at a time.
const RESYNCING_MAX: usize = 8;

/// Groups whose parity may disagree with their data.
#[derive(Clone, Debug, Default)]
pub(super) struct Resync {
    waiting: BTreeSet<GroupId>,
    in_flight: BTreeSet<GroupId>,
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

    /// Groups whose parity is not known to agree with their data.
    pub(super) fn left(&self) -> u64 {
        (self.waiting.len() + self.in_flight.len()) as u64
    }

    /// Queues every group of every volume.
    pub(super) fn begin(&mut self, cx: &mut Context) {
        self.waiting = cx.placement.groups().all().collect();
        if cx.geometry.code().tolerance() == 0 {
            self.waiting.clear();
        }
        if self.waiting.is_empty() {
            cx.tell_lanes(&Command::CopiesAgree);
        } else {
            let groups = self.waiting.len() as u64;
            cx.report(Report::ResyncBegins { groups });
        }
    }

    pub(super) fn pump(&mut self, cx: &mut Context) {
        if cx.closing.is_some() {
            return;
        }
        while self.in_flight.len() < RESYNCING_MAX
            && let Some(group) = self.waiting.pop_first()
        {
            self.in_flight.insert(group);
            cx.tell_lane(group, Command::Resync { group });
        }
    }

    pub(super) fn resynced(&mut self, cx: &mut Context, group: GroupId, outcome: Outcome) {
        if !self.in_flight.remove(&group) {
            return;
        }
        if outcome.is_err() {
            self.failed = true;
            cx.report(Report::ResyncFailed { group });
        }
        if self.is_idle() {
            if !self.failed {
                cx.tell_lanes(&Command::CopiesAgree);
            }
            cx.report(Report::ResyncEnds);
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Fault;

    use super::*;
    use crate::Ticket;
    use crate::fixture::{commands, context, reports};

    /// A resync of so many groups has begun.
    fn begun(groups: u64) -> (Resync, Context) {
        let mut cx = context("raid6", 6, groups);
        let mut resync = Resync::default();
        resync.begin(&mut cx);
        (resync, cx)
    }

    /// The groups that lanes got since the last call.
    fn sent(resync: &mut Resync, cx: &mut Context) -> Vec<GroupId> {
        resync.pump(cx);
        let groups = commands(cx)
            .into_iter()
            .filter_map(|(_, command)| match command {
                Command::Resync { group } => Some(group),
                _ => None,
            });
        groups.collect()
    }

    fn agree(cx: &mut Context) -> bool {
        let commands = commands(cx);
        let lanes = usize::from(cx.geometry.lanes());
        let all = commands
            .iter()
            .filter(|(_, command)| *command == Command::CopiesAgree);
        let agree = all.count();
        assert!(agree == 0 || agree == lanes, "{commands:?}");
        agree > 0
    }

    #[test]
    fn copies_agree_when_the_last_group_is_resynced() {
        let (mut resync, mut cx) = begun(3);
        assert_eq!(reports(&mut cx), [Report::ResyncBegins { groups: 3 }]);
        assert_eq!(
            sent(&mut resync, &mut cx),
            [GroupId(0), GroupId(1), GroupId(2)]
        );
        for group in [GroupId(2), GroupId(0)] {
            resync.resynced(&mut cx, group, Ok(()));
            assert!(!agree(&mut cx));
        }
        resync.resynced(&mut cx, GroupId(1), Ok(()));
        assert!(agree(&mut cx) && resync.is_idle());
        assert_eq!(reports(&mut cx), [Report::ResyncEnds]);
    }

    #[test]
    fn a_group_that_failed_leaves_the_copies_in_doubt() {
        let (mut resync, mut cx) = begun(2);
        sent(&mut resync, &mut cx);
        reports(&mut cx);
        resync.resynced(&mut cx, GroupId(0), Err(Fault::Medium));
        resync.resynced(&mut cx, GroupId(1), Ok(()));
        assert!(!agree(&mut cx) && resync.is_idle());
        let all = [
            Report::ResyncFailed { group: GroupId(0) },
            Report::ResyncEnds,
        ];
        assert_eq!(reports(&mut cx), all);
    }

    #[test]
    fn a_pool_without_volumes_has_nothing_to_resync() {
        let (resync, mut cx) = begun(0);
        assert!(agree(&mut cx) && resync.is_idle());
        assert_eq!(reports(&mut cx), []);
    }

    #[test]
    fn a_code_without_parity_has_nothing_to_resync() {
        let mut cx = context("raid0", 4, 2);
        let mut resync = Resync::default();
        resync.begin(&mut cx);
        assert!(agree(&mut cx) && resync.is_idle());
    }

    #[test]
    fn a_few_groups_are_in_flight_at_a_time_and_the_others_count_as_left() {
        let mut cx = context("raid6", 6, 0);
        let mut resync = Resync {
            waiting: (10..30).map(GroupId).collect(),
            ..Resync::default()
        };
        assert_eq!(
            sent(&mut resync, &mut cx),
            (10..18).map(GroupId).collect::<Vec<_>>()
        );
        assert_eq!((resync.left(), resync.in_flight()), (20, 8));
        resync.resynced(&mut cx, GroupId(12), Ok(()));
        assert_eq!(sent(&mut resync, &mut cx), [GroupId(18)]);
        assert_eq!((resync.left(), resync.in_flight()), (19, 8));
    }

    #[test]
    fn while_the_pool_is_being_closed_no_group_begins() {
        let (mut resync, mut cx) = begun(2);
        cx.closing = Some(Ticket(3));
        assert!(sent(&mut resync, &mut cx).is_empty());
        assert_eq!((resync.left(), resync.in_flight()), (2, 0));
        assert!(!resync.is_idle());
    }

    #[test]
    fn the_answer_for_a_group_counts_once() {
        let (mut resync, mut cx) = begun(2);
        sent(&mut resync, &mut cx);
        for _ in 0..2 {
            resync.resynced(&mut cx, GroupId(0), Ok(()));
        }
        assert_eq!(resync.left(), 1);
        resync.resynced(&mut cx, GroupId(7), Err(Fault::Medium));
        assert!(!agree(&mut cx));
        resync.resynced(&mut cx, GroupId(1), Ok(()));
        assert!(
            agree(&mut cx),
            "the fault of a group that was not in flight is no failure"
        );
    }
}
