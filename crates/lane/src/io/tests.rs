//! The table of I/O in flight, by scripted submissions and answers.

use plan::action::{BufferId, Event, Origin};

use super::*;

/// The table of a small lane. Operations are named by the number in their purpose.
struct Lab {
    ios: IoTable,
    cx: Context,
}

impl Lab {
    fn new() -> Self {
        Self {
            ios: IoTable::new(6),
            cx: Context::of_test("raid6", 6),
        }
    }

    /// Submits operation `number`: one block at block `place` of a drive.
    fn submit(&mut self, number: u64, seat: u16, kind: IoKind, place: u64) -> IoId {
        let purpose = Purpose::PageWrite {
            seat: Seat(seat),
            offset: number,
        };
        let slice = Slice {
            buffer: BufferId::Scratch(ScratchId(number)),
            offset: 0,
            length: 4096,
        };
        let service = Service::prompt(Origin::Checkpoint);
        let place = (Seat(seat), place * 4096);
        self.ios
            .submit_slice(&mut self.cx, purpose, service, kind, place, slice);
        match self.cx.actions.back() {
            Some(Action::Io(io)) => io.id,
            other => panic!("{other:?} is no operation"),
        }
    }

    fn answer(&mut self, id: IoId, outcome: Outcome) -> Answered {
        self.ios.answered(&mut self.cx, id, outcome)
    }

    /// The operations that go out at the end of the turn: seat, first block, blocks.
    fn handed_out(&mut self) -> Vec<(IoId, u16, u64, u64)> {
        self.ios.end_turn(&mut self.cx);
        let actions = self.cx.take_actions().into_iter();
        let part = |id, seat: Seat, offset, length| (id, seat.0, offset / 4096, length / 4096);
        let parts = actions.filter_map(|action| match action {
            Action::Io(io) => Some(part(io.id, io.seat, io.offset, io.length)),
            Action::Joined(all) => Some(part(all.id, all.seat, all.offset, all.length)),
            _ => None,
        });
        parts.collect()
    }
}

/// Which operation has ended, and how; `None` if none has.
fn ended(answered: &Answered) -> Option<(u64, Outcome)> {
    match answered {
        Answered::Ended(Ended {
            purpose: Purpose::PageWrite { offset, .. },
            outcome,
            ..
        }) => Some((*offset, *outcome)),
        Answered::Pending => None,
        other => panic!("{other:?} is another operation"),
    }
}

#[test]
fn an_operation_ends_for_who_asked_with_the_drives_outcome() {
    for outcome in [Ok(()), Err(Fault::Medium), Err(Fault::Gone)] {
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Read, 0);
        assert!(!lab.ios.is_idle());
        assert_eq!(ended(&lab.answer(id, outcome)), Some((7, outcome)));
        assert!(lab.ios.is_idle());
    }
}

#[test]
fn a_write_that_fails_is_tried_again_before_it_ends() {
    let mut lab = Lab::new();
    let mut id = lab.submit(7, 2, IoKind::Write, 3);
    for _ in 0..WRITE_RETRIES {
        lab.cx.take_actions();
        assert_eq!(ended(&lab.answer(id, Err(Fault::Medium))), None);
        let again = lab.handed_out();
        assert_eq!(again.len(), 1);
        assert_eq!((again[0].1, again[0].2), (2, 3));
        assert_ne!(again[0].0, id, "numbers are never used again");
        id = again[0].0;
    }
    let fault = Err(Fault::Medium);
    assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
}

#[test]
fn other_faults_and_flushes_are_not_tried_again() {
    for fault in [Fault::Gone, Fault::Full] {
        let mut lab = Lab::new();
        let id = lab.submit(7, 2, IoKind::Write, 3);
        assert_eq!(ended(&lab.answer(id, Err(fault))), Some((7, Err(fault))));
    }
    let mut lab = Lab::new();
    let id = lab.submit(7, 2, IoKind::Flush, 0);
    let fault = Err(Fault::Medium);
    assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
}

#[test]
fn a_write_to_a_drive_that_is_out_is_not_tried_again() {
    let mut lab = Lab::new();
    let id = lab.submit(7, 2, IoKind::Write, 3);
    lab.cx.change_view(|view, _| view.seat_out(Seat(2)));
    let fault = Err(Fault::Medium);
    assert_eq!(ended(&lab.answer(id, fault)), Some((7, fault)));
}

#[test]
fn neighbours_go_out_as_one_and_end_one_by_one() {
    let mut lab = Lab::new();
    for number in 0..3 {
        lab.submit(number, 2, IoKind::Write, 10 + number);
    }
    lab.submit(3, 3, IoKind::Write, 13);
    let out = lab.handed_out();
    let places = out.iter().map(|&(_, seat, at, blocks)| (seat, at, blocks));
    assert_eq!(places.collect::<Vec<_>>(), [(2, 10, 3), (3, 13, 1)]);
    let Answered::Members(members) = lab.answer(out[0].0, Ok(())) else {
        panic!("a joined operation has members");
    };
    let mut all = Vec::new();
    for (member, outcome) in members {
        all.extend(ended(&lab.ios.member_answered(
            &mut lab.cx,
            member,
            outcome,
        )));
    }
    assert_eq!(all, [(0, Ok(())), (1, Ok(())), (2, Ok(()))]);
}

#[test]
fn members_of_a_failed_operation_are_tried_alone() {
    let mut lab = Lab::new();
    for number in 0..2 {
        lab.submit(number, 2, IoKind::Read, 10 + number);
    }
    let out = lab.handed_out();
    let Answered::Members(members) = lab.answer(out[0].0, Err(Fault::Medium)) else {
        panic!("a joined operation has members");
    };
    for (member, outcome) in members {
        assert_eq!(
            ended(&lab.ios.member_answered(&mut lab.cx, member, outcome)),
            None
        );
    }
    let again = lab.handed_out();
    assert_eq!(again.len(), 2, "not joined again");
    let fault = Err(Fault::Medium);
    assert_eq!(ended(&lab.answer(again[0].0, fault)), Some((0, fault)));
    assert_eq!(ended(&lab.answer(again[1].0, Ok(()))), Some((1, Ok(()))));
}

#[test]
fn what_is_abandoned_does_not_end_and_keeps_its_memory() {
    let mut lab = Lab::new();
    let id = lab.submit(7, 2, IoKind::Read, 0);
    assert!(matches!(
        lab.ios.abandon(id),
        Some(Purpose::PageWrite { offset: 7, .. })
    ));
    assert!(lab.ios.abandon(id).is_none(), "once");
    assert!(lab.ios.is_idle() && lab.ios.stragglers().len() == 1);
    lab.cx.take_actions();
    lab.ios.release(&mut lab.cx, ScratchId(7));
    assert!(lab.cx.take_actions().is_empty());
    assert!(matches!(lab.answer(id, Ok(())), Answered::Late(late) if late.seat == Seat(2)));
    lab.ios.straggler_came_back(&mut lab.cx);
    assert_eq!(lab.cx.take_actions(), [Action::Release(ScratchId(7))]);
}

#[test]
fn a_drive_that_is_out_has_failed_everything_oldest_first() {
    let mut lab = Lab::new();
    for (number, seat) in [(0, 2), (1, 3), (2, 2)] {
        lab.submit(number, seat, IoKind::Write, number);
    }
    lab.cx.change_view(|view, _| view.seat_out(Seat(2)));
    let mut failed = Vec::new();
    while let Some(answered) = lab.ios.fail_next_at(&mut lab.cx, Seat(2)) {
        failed.extend(ended(&answered));
    }
    lab.ios.seat_abandoned(Seat(2));
    assert_eq!(failed, [(0, Err(Fault::Gone)), (2, Err(Fault::Gone))]);
    assert_eq!(lab.ios.in_flight().count(), 1);
    lab.ios.drain(&mut lab.cx, Seat(2));
    assert!(lab.cx.take_events().is_empty(), "it has not answered yet");
}

#[test]
fn a_write_to_a_drive_with_a_successor_ends_when_both_have_it() {
    let mut lab = Lab::new();
    lab.ios.begin_twin(Seat(2), Seat(6));
    let second = lab.submit(7, 2, IoKind::Write, 3);
    let out = lab.handed_out();
    let seats: Vec<u16> = out.iter().map(|&(_, seat, ..)| seat).collect();
    assert_eq!((seats.as_slice(), out[1].0), (&[2, 6][..], second));
    assert_eq!(ended(&lab.answer(out[0].0, Ok(()))), None);
    assert!(!lab.ios.is_idle());
    assert_eq!(ended(&lab.answer(second, Ok(()))), Some((7, Ok(()))));
    assert!(lab.ios.is_idle());
}

#[test]
fn a_read_that_its_drive_leaves_ends_as_a_bad_block() {
    let mut lab = Lab::new();
    lab.ios.begin_twin(Seat(2), Seat(6));
    let id = lab.submit(7, 2, IoKind::Read, 3);
    lab.ios.end_twin(Seat(2), Seat(6));
    assert!(lab.ios.leave_to_successor(id, true).is_none());
    let Answered::Ended(end) = lab.answer(id, Err(Fault::Gone)) else {
        panic!("the read ends");
    };
    assert!(end.left);
    assert_eq!(end.outcome, Err(Fault::Medium), "it is planned around");
}

#[test]
fn what_the_successor_was_given_is_the_seats_after_the_succession() {
    let mut lab = Lab::new();
    lab.ios.begin_twin(Seat(2), Seat(6));
    let second = lab.submit(7, 2, IoKind::Write, 3);
    let first = lab.ios.in_flight_at(Seat(2), false);
    lab.ios.end_twin(Seat(2), Seat(6));
    lab.ios.seconds_succeed(Seat(2), Seat(6));
    assert!(lab.ios.in_flight_at(Seat(6), true).is_empty());
    assert!(lab.ios.leave_to_successor(first[0], true).is_none());
    assert!(lab.ios.pairs_succeed(Seat(2)).is_empty());
    assert_eq!(ended(&lab.answer(second, Ok(()))), Some((7, Ok(()))));
}

#[test]
fn a_late_read_is_found_once_its_drive_takes_longer_than_others() {
    let mut lab = Lab::new();
    let id = lab.submit(7, 2, IoKind::Read, 0);
    assert!(lab.ios.check(&mut lab.cx).is_none(), "it is not time to");
    lab.cx.now = lab.ios.check_at().expect("something is in flight");
    assert_eq!(lab.ios.check(&mut lab.cx), Some(Vec::new()));
    lab.ios.checked(lab.cx.now);
    lab.cx.now = lab.ios.check_at().expect("it may be late");
    assert_eq!(lab.ios.check(&mut lab.cx), Some(vec![id]));
    assert_eq!(lab.cx.take_events(), [Event::Late { seat: Seat(2) }]);
    lab.ios.is_hedged(id);
    lab.ios.checked(lab.cx.now);
    lab.cx.now = lab.ios.check_at().expect("it may hang");
    assert_eq!(lab.ios.check(&mut lab.cx), Some(Vec::new()));
}

#[test]
fn more_late_drives_than_the_code_survives_are_not_read_around() {
    let mut lab = Lab::new();
    for seat in 0..3 {
        lab.submit(seat.into(), seat, IoKind::Read, 0);
    }
    for _ in 0..2 {
        lab.cx.now = lab.ios.check_at().expect("something is in flight");
        assert_eq!(lab.ios.check(&mut lab.cx), Some(Vec::new()));
        lab.ios.checked(lab.cx.now);
    }
    assert_eq!(lab.cx.take_events().len(), 3);
}
