//! Where the writes of a planned operation go: they are logged, or are in place before they are logged, in the same
//! stripe or in a free one.

use std::collections::BTreeSet;

use format::{PageName, Sequence};
use plan::action::Action;
use plan::{Kind, Plan, ScratchId};

use super::moves::may_move;
use crate::context::Context;
use crate::direct;
use crate::entries::Entries;
use crate::io::IoTable;
use crate::op::{Op, Task};

/// The way of a planned operation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// It reads, and its writes are logged or go where they are planned for.
    Straight,
    /// Its stripe is locked first: the view has changed since the operation began.
    Lock,
    /// These pages are read first.
    Pages(BTreeSet<PageName>),
    /// Its writes go in place before they are logged.
    InPlace,
    /// Its data moves to a free stripe, if there is one.
    Move,
    /// Its data does not move after all.
    CancelMove,
}

/// The way of an operation with this plan. `flushed`: the last batch that a flush has covered; `moves`: data may move.
pub(crate) fn way(
    cx: &Context,
    ios: &IoTable,
    entries: Entries<'_>,
    (flushed, moves): (Sequence, bool),
    (op, plan): (&Op, &Plan),
) -> Way {
    if plan.kind == Kind::DegradedRead && !op.is_locked() {
        return Way::Lock;
    }
    let may_go = direct::may_go(cx, ios, entries.overlay, op, plan);
    if may_go {
        let missing = direct::pages_of_writes(cx, entries.pages, op.group, plan);
        if !missing.is_empty() {
            return Way::Pages(missing);
        }
        if direct::holds_nothing(cx, ios, entries, flushed, (op, plan)) {
            return Way::InPlace;
        }
    }
    if op.moves_from().is_some() {
        Way::CancelMove
    } else if may_go && moves && may_move(cx, op) {
        Way::Move
    } else {
        Way::Straight
    }
}

/// Allocates the memory that a plan needs.
pub(crate) fn provide_memory(cx: &mut Context, op: &mut Op, plan: &Plan, scratch: ScratchId) {
    if let Task::Write(prepared) = &mut op.task
        && let Some((staging, bytes)) = prepared.provide()
    {
        cx.actions.push_back(Action::Allocate(staging, bytes));
    }
    if plan.scratch_bytes > 0 {
        op.memory.scratch = Some(scratch);
        let memory = Action::Allocate(scratch, plan.scratch_bytes);
        cx.actions.push_back(memory);
    }
}

#[cfg(test)]
mod tests {
    use format::{GroupId, StripeId};
    use plan::action::Service;

    use super::super::lab::{self, Lab};
    use super::super::plan::tests::{reads, slots};
    use super::*;
    use crate::op::{Destination, Lock, Prepared, Staging};
    use crate::pages::PageCache;

    /// A write of a whole stripe, as part of a stream, in a pool with free stripes.
    fn stream(stripe: StripeId) -> (Lab, Plan) {
        let change = |regions: &mut plan::Regions| {
            regions.direct_writes = true;
            regions.free_stripes = 2;
        };
        let cx = Context::of_test_with("raid6", 6, 256 << 10, change);
        let sources = slots(&cx).into_iter().map(|slot| lab::source(slot, 4));
        let task = Task::Write(Prepared::of(sources.collect()));
        let mut lab = Lab::of(cx, task);
        lab.op.stripes = stripe..stripe.next();
        lab.op.data = Some(stripe.own_data());
        lab.op.service = Service::of_client(format::VolumeId(1), true);
        lab.op.lock = Lock::Own;
        let plan = lab.planned();
        (lab, plan)
    }

    impl Lab {
        fn way(&self, plan: &Plan, flushed: Sequence, moves: bool) -> Way {
            let about = (&self.op, plan);
            way(&self.cx, &self.ios, self.entries(), (flushed, moves), about)
        }
    }

    #[test]
    fn what_cannot_be_read_is_reconstructed_under_the_lock() {
        let (mut lab, column) = reads();
        lab.out(column);
        let plan = lab.planned();
        assert_eq!(plan.kind, Kind::DegradedRead);
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Lock);
        lab.op.lock = Lock::Borrowed;
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Straight);
    }

    #[test]
    fn a_stream_goes_in_place_where_nothing_counts() {
        let (lab, plan) = stream(StripeId(2));
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::InPlace);
        let (mut lab, plan) = stream(StripeId(2));
        lab.op.service.bulk = false;
        assert_eq!(
            lab.way(&plan, Sequence(0), true),
            Way::Straight,
            "it is a commit"
        );
    }

    #[test]
    fn a_stream_over_a_whole_stripe_moves_if_it_may() {
        let (mut lab, plan) = stream(StripeId(1));
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Move);
        assert_eq!(
            lab.way(&plan, Sequence(0), false),
            Way::Straight,
            "in recovery"
        );
        lab.op.location.destination = Destination::Home;
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Straight);
        lab.op.location.destination = Destination::Free { from: StripeId(3) };
        assert_eq!(
            lab.way(&plan, Sequence(0), true),
            Way::CancelMove,
            "it is not free"
        );
    }

    #[test]
    fn whether_a_stripe_holds_nothing_is_said_by_pages() {
        let (mut lab, plan) = stream(StripeId(2));
        lab.pages = PageCache::new(64);
        let Way::Pages(names) = lab.way(&plan, Sequence(0), true) else {
            panic!("no page is here");
        };
        assert_eq!(names.len(), 6);
    }

    #[test]
    fn memory_is_asked_for_once_it_is_needed() {
        let mut lab = Lab::new(Task::Write(Prepared::of(Vec::new())));
        if let Task::Write(prepared) = &mut lab.op.task {
            prepared.staging = Staging::Named(ScratchId(9), 4096);
        }
        let mut plan = Plan::new(Kind::Read);
        plan.scratch_bytes = 8192;
        let scratch = ScratchId(10);
        provide_memory(&mut lab.cx, &mut lab.op, &plan, scratch);
        let staging = Action::Allocate(ScratchId(9), 4096);
        let own = Action::Allocate(scratch, 8192);
        assert_eq!(lab.cx.take_actions(), [staging, own]);
        assert_eq!(lab.op.memory.scratch, Some(scratch));
        plan.scratch_bytes = 0;
        provide_memory(&mut lab.cx, &mut lab.op, &plan, scratch);
        assert!(lab.cx.take_actions().is_empty());
    }

    #[test]
    fn a_stream_whose_drive_is_slow_or_that_has_to_read_is_logged() {
        let (mut lab, plan) = stream(StripeId(2));
        lab.ios.suspect(plan.writes[0].seat, true);
        assert_eq!(lab.way(&plan, Sequence(0), false), Way::Straight);
        let (lab, mut plan) = stream(StripeId(2));
        plan.reads.push(plan.writes[0]);
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Straight);
    }

    #[test]
    fn a_free_stripe_is_written_when_it_is_flushed_that_nothing_is_there() {
        let (mut lab, plan) = stream(StripeId(1));
        lab.op.location.destination = Destination::Free { from: StripeId(3) };
        lab.overlay.zero(
            GroupId(0),
            StripeId::range(1..2),
            Sequence(7),
            std::iter::empty(),
        );
        assert_eq!(lab.way(&plan, Sequence(6), true), Way::CancelMove);
        assert_eq!(lab.way(&plan, Sequence(7), true), Way::InPlace);
    }

    #[test]
    fn a_write_that_has_to_go_through_the_journal_does_not_need_pages_of_what_it_overwrites() {
        let (mut lab, plan) = stream(StripeId(1));
        lab.op.service.bulk = false;
        lab.pages = PageCache::new(64);
        assert_eq!(lab.way(&plan, Sequence(0), true), Way::Straight);
    }
}
