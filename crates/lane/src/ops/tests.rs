use ::plan::action::{BufferId, Slice};
use ::plan::{Piece, RequestId};
use block::{BLOCK_BYTES, Fault, Instant, Seat};
use format::{GroupId, StripeId};

use super::*;
use crate::op::Owner;

/// The operations of a small lane.
struct Lab {
    cx: Context,
    ops: Operations,
}

/// An operation that changes these stripes of group 0.
fn resync(stripes: Range<StripeId>) -> Op {
    Op::new(Owner::Background, GroupId(0), stripes, Task::Resync)
}

/// A client's read of the first block of a slot of stripe 0.
fn read(slot: usize) -> Op {
    let slice = Slice {
        buffer: BufferId::Request(RequestId(1)),
        offset: 0,
        length: BLOCK_BYTES,
    };
    let piece = Piece {
        slot,
        low: 0,
        slice,
    };
    let owner = Owner::Request(RequestId(1));
    Op::new(
        owner,
        GroupId(0),
        StripeId::range(0..1),
        Task::Read(vec![piece]),
    )
}

impl Lab {
    fn new() -> Self {
        Self {
            cx: Context::of_test("raid6", 6),
            ops: Operations::default(),
        }
    }

    fn begin(&mut self, op: Op) -> OpId {
        self.ops.begin(&mut self.cx, op)
    }

    /// Begins an operation that gets in line for its stripes.
    fn lock(&mut self, stripes: Range<StripeId>) -> OpId {
        let id = self.begin(resync(stripes));
        self.ops.lock(&mut self.cx, id);
        id
    }

    /// The operations that can be planned, in order.
    fn runnable(&mut self) -> Vec<OpId> {
        std::iter::from_fn(|| self.ops.next()).collect()
    }
}

#[test]
fn operations_are_numbered_as_they_begin_and_know_when() {
    let mut lab = Lab::new();
    lab.cx.now = Instant::ZERO + std::time::Duration::from_millis(5);
    let first = lab.begin(resync(StripeId::range(0..1)));
    let second = lab.begin(resync(StripeId::range(1..2)));
    assert!(first < second);
    assert_eq!(lab.ops[first].begun, lab.cx.now);
    let all: Vec<OpId> = lab.ops.iter().map(|(id, _)| id).collect();
    assert_eq!(all, [first, second]);
    assert!(!lab.ops.has_runnable(), "they are not in line yet");
}

#[test]
fn what_has_its_lock_can_be_planned() {
    let mut lab = Lab::new();
    let op = lab.lock(StripeId::range(0..4));
    assert_eq!(lab.runnable(), [op]);
    assert!(
        lab.ops.has_locked(op, GroupId(0), StripeId::range(0..4))
            && !lab.ops.is_free(GroupId(0), StripeId(3))
    );
    assert_eq!(lab.ops[op].lock, Lock::Own);
}

#[test]
fn what_is_in_line_can_be_planned_when_those_before_have_unlocked() {
    let mut lab = Lab::new();
    let first = lab.lock(StripeId::range(0..1));
    let second = lab.lock(StripeId::range(0..2));
    let third = lab.lock(StripeId::range(1..2));
    assert_eq!(lab.runnable(), [first]);
    lab.ops.unlock(first, GroupId(0), StripeId::range(0..1));
    assert_eq!(lab.runnable(), [second]);
    lab.ops.unlock(second, GroupId(0), StripeId::range(0..2));
    assert_eq!(lab.runnable(), [third]);
}

#[test]
fn operations_of_other_groups_do_not_wait() {
    let mut lab = Lab::new();
    let first = lab.lock(StripeId::range(0..1));
    let other = lab.begin(Op::new(
        Owner::Background,
        GroupId(1),
        StripeId::range(0..1),
        Task::Resync,
    ));
    lab.ops.lock(&mut lab.cx, other);
    assert_eq!(lab.runnable(), [first, other]);
}

#[test]
fn a_free_stripe_is_locked_beside_the_own_one() {
    let mut lab = Lab::new();
    let op = lab.lock(StripeId::range(0..1));
    lab.ops.lock_free(op, StripeId(7));
    assert!(
        lab.ops.has_locked(op, GroupId(0), StripeId::range(0..1))
            && lab.ops.has_locked(op, GroupId(0), StripeId::range(7..8))
    );
    lab.ops.unlock(op, GroupId(0), StripeId::range(7..8));
    assert!(lab.ops.is_free(GroupId(0), StripeId(7)));
}

#[test]
fn what_is_in_line_for_its_lock_is_not_counted_by_its_earlier_plan() {
    let mut lab = Lab::new();
    let op = lab.begin(read(0));
    lab.cx.epochs.enter(&mut lab.ops[op].epoch);
    let planned = lab.cx.epochs.close();
    assert!(!lab.cx.epochs.has_drained(planned));
    lab.ops.lock(&mut lab.cx, op);
    assert!(lab.cx.epochs.has_drained(planned));
}

#[test]
fn a_read_that_is_planned_again_locks_its_stripe_first() {
    let mut lab = Lab::new();
    let writes = lab.lock(StripeId::range(0..1));
    let reads = lab.begin(read(0));
    assert_eq!(lab.runnable(), [writes]);
    lab.ops.plan_again(&mut lab.cx, reads);
    assert_eq!(lab.ops[reads].phase, Phase::Locking);
    assert!(lab.runnable().is_empty(), "the stripe is being written");
    lab.ops.unlock(writes, GroupId(0), StripeId::range(0..1));
    assert_eq!(lab.runnable(), [reads]);
    lab.ops.plan_again(&mut lab.cx, reads);
    assert_eq!(lab.runnable(), [reads], "it has the lock");
}

#[test]
fn a_borrowed_lock_is_not_asked_for_again() {
    let mut lab = Lab::new();
    let reader = lab.lock(StripeId::range(0..1));
    let mut second = read(0);
    second.lock = Lock::Borrowed;
    let second = lab.begin(second);
    lab.runnable();
    lab.ops.plan_again(&mut lab.cx, second);
    assert_eq!(lab.runnable(), [second]);
    assert!(
        lab.ops
            .has_locked(reader, GroupId(0), StripeId::range(0..1))
    );
}

#[test]
fn reads_of_what_is_there_need_no_lock_and_all_else_does() {
    let mut lab = Lab::new();
    let slot = lab.cx.geometry.code().data_slots().next().unwrap();
    assert!(needs_no_lock(&lab.cx, &read(slot)));
    assert!(!needs_no_lock(&lab.cx, &resync(StripeId::range(0..1))));
    let (column, _) = lab
        .cx
        .geometry
        .place(GroupId(0), StripeId(0), Form::Parity, slot);
    let cell = lab.cx.geometry.home(GroupId(0), column);
    lab.cx.change_view(|view, _| view.seat_out(cell.seat));
    assert!(!needs_no_lock(&lab.cx, &read(slot)), "it is reconstructed");
}

#[test]
fn nothing_is_under_way_when_the_last_has_ended_and_has_unlocked() {
    let mut lab = Lab::new();
    let op = lab.lock(StripeId::range(0..1));
    lab.runnable();
    let ended = lab.ops.end(&mut lab.cx, op);
    assert_eq!(ended.stripes, StripeId::range(0..1));
    assert!(lab.ops.iter().count() == 0 && !lab.ops.is_idle());
    lab.ops.unlock(op, GroupId(0), StripeId::range(0..1));
    assert!(lab.ops.is_idle());
}

#[test]
#[should_panic(expected = "nothing is in flight at the end")]
#[cfg(debug_assertions)]
fn an_operation_does_not_end_while_drives_write_for_it() {
    let mut lab = Lab::new();
    let op = lab.lock(StripeId::range(0..1));
    lab.ops[op].begin_writes(1);
    lab.ops[op].write_ended(Seat(0), Err(Fault::Gone), true);
    lab.ops[op].begin_writes(1);
    lab.ops.end(&mut lab.cx, op);
}
