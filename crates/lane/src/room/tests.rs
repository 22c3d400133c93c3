//! Charges, waits and reports of one lane.

use block::Request;
use format::{GroupId, VolumeId};

use super::*;

const SEAT: Seat = Seat(1);
const MIB: u64 = 1 << 20;

fn request(kind: RequestKind, offset: u64, length: u64) -> GroupRequest {
    GroupRequest {
        group: GroupId(0),
        request: Request {
            kind,
            offset,
            length,
            fua: false,
        },
        buffer_offset: 0,
        volume: VolumeId(0),
    }
}

fn write() -> GroupRequest {
    request(RequestKind::Write, 0, 4096)
}

/// A lane that may charge so much on the drive.
fn granted(bytes: u64) -> (Room, Context) {
    let mut room = Room::default();
    room.granted(&[None, Some(bytes)]);
    (room, Context::of_test("raid5", 4))
}

fn admit(room: &mut Room, cx: &mut Context, id: u64, bytes: u64) -> bool {
    let admitted = room.admit(cx, RequestId(id), write(), vec![(SEAT, bytes)]);
    room.check();
    admitted
}

fn end(room: &mut Room, cx: &mut Context, id: u64, outcome: Outcome) -> bool {
    let again = room.ended(cx, RequestId(id), outcome);
    room.check();
    again
}

fn wants(cx: &mut Context) -> Vec<bool> {
    let events = cx.take_events().into_iter();
    let freed = events.map(|event| match event {
        Event::WantsRoom { freed, .. } => freed,
        other => panic!("{other:?} asks for no room"),
    });
    freed.collect()
}

fn report(room: &mut Room, cx: &Context) -> SeatRoom {
    room.report(cx, (1, true), false).seats[SEAT.index()]
}

#[test]
fn a_write_without_room_waits_and_the_pool_is_asked_once() {
    let (mut room, mut cx) = granted(MIB);
    assert!(admit(&mut room, &mut cx, 1, MIB));
    assert_eq!(wants(&mut cx), [false], "there is little left");
    assert!(!admit(&mut room, &mut cx, 2, 4096));
    assert!(!admit(&mut room, &mut cx, 3, 4096));
    assert!(wants(&mut cx).is_empty(), "it has been asked");
    room.granted(&[None, Some(MIB + 4096)]);
    let next = room.next(cx.now, false);
    assert_eq!(next, Some(Next::Begin(RequestId(2), write())));
    assert_eq!(room.next(cx.now, false), None, "there is room for one");
    room.ask_again(&mut cx);
    assert_eq!(wants(&mut cx), [false]);
}

#[test]
fn writes_wait_in_order_even_if_a_later_one_would_fit() {
    let (mut room, mut cx) = granted(MIB);
    assert!(!admit(&mut room, &mut cx, 1, 2 * MIB));
    assert!(!admit(&mut room, &mut cx, 2, 4096));
}

#[test]
fn with_the_last_grant_what_does_not_fit_ends_and_the_rest_begins() {
    let (mut room, mut cx) = granted(0);
    for (id, bytes) in [(1, 2 * MIB), (2, 4096), (3, 2 * MIB)] {
        assert!(!admit(&mut room, &mut cx, id, bytes));
    }
    room.granted(&[None, Some(MIB)]);
    let next = std::iter::from_fn(|| room.next(cx.now, true));
    let ended = [1, 3].map(|id| Next::NoSpace(RequestId(id)));
    let [first, last] = ended;
    assert_eq!(
        next.collect::<Vec<_>>(),
        [first, Next::Begin(RequestId(2), write()), last]
    );
}

#[test]
fn a_charge_is_settled_by_a_checkpoint_that_begins_after_its_request_has_ended() {
    let (mut room, mut cx) = granted(MIB);
    assert!(admit(&mut room, &mut cx, 1, 8192));
    room.covers_ended();
    assert!(!end(&mut room, &mut cx, 1, Ok(())));
    room.checkpoint_ended(&mut cx, true);
    assert_eq!(report(&mut room, &cx).unsettled(), 8192, "it ended later");
    assert!(room.needs_checkpoint());
    room.covers_ended();
    room.checkpoint_ended(&mut cx, false);
    assert_eq!(report(&mut room, &cx).unsettled(), 8192, "it was held back");
    room.covers_ended();
    room.checkpoint_ended(&mut cx, true);
    assert_eq!(report(&mut room, &cx).unsettled(), 0);
    assert!(!room.needs_checkpoint());
}

#[test]
fn unused_room_is_given_back_but_for_as_much_as_was_used() {
    let (mut room, mut cx) = granted(MIB);
    assert!(admit(&mut room, &mut cx, 1, 8192));
    assert_eq!(report(&mut room, &cx).unused(), 8192);
    assert_eq!(report(&mut room, &cx).unused(), 0, "nothing since");
    assert!(!admit(&mut room, &mut cx, 2, 4096), "it was given back");
}

#[test]
fn while_a_write_waits_all_unused_room_is_given_back() {
    let (mut room, mut cx) = granted(MIB);
    assert!(admit(&mut room, &mut cx, 1, 8192));
    assert!(!admit(&mut room, &mut cx, 2, 2 * MIB));
    let report = room.report(&cx, (1, true), false);
    assert_eq!(report.seats[SEAT.index()].unused(), 0);
    assert_eq!(report.needs, [(SEAT, 2 * MIB)]);
}

#[test]
fn a_write_that_its_drive_refuses_waits_for_the_next_grant() {
    let (mut room, mut cx) = granted(MIB);
    assert!(admit(&mut room, &mut cx, 1, 4096));
    assert!(end(&mut room, &mut cx, 1, Err(Fault::Full)));
    assert_eq!(room.next(cx.now, false), None, "not before the grant");
    assert!(room.report(&cx, (1, true), false).refused);
    room.granted(&[None, Some(MIB)]);
    room.try_again();
    let next = room.next(cx.now, false);
    assert_eq!(next, Some(Next::Begin(RequestId(1), write())));
    assert!(end(&mut room, &mut cx, 1, Err(Fault::Full)));
    assert_eq!(room.next(cx.now, true), Some(Next::NoSpace(RequestId(1))));
}

#[test]
fn the_wait_counts_from_the_beginning_of_the_write() {
    let (mut room, mut cx) = granted(4096);
    let begun = cx.now;
    assert!(admit(&mut room, &mut cx, 1, 4096));
    cx.now = begun + WAIT_MAX / 2;
    assert!(end(&mut room, &mut cx, 1, Err(Fault::Full)));
    assert_eq!(room.gives_up_at(), Some(begun + WAIT_MAX));
    assert_eq!(
        room.next(begun + WAIT_MAX, false),
        Some(Next::NoSpace(RequestId(1)))
    );
}

#[test]
fn after_the_longest_wait_a_refused_write_is_not_tried_again() {
    let (mut room, mut cx) = granted(4096);
    assert!(admit(&mut room, &mut cx, 1, 4096));
    cx.now += WAIT_MAX;
    assert!(!end(&mut room, &mut cx, 1, Err(Fault::Full)));
}

#[test]
fn what_does_not_wait_is_charged_beyond_the_limit() {
    let (mut room, mut cx) = granted(0);
    let zeros = request(RequestKind::WriteZeroes, 0, 4096);
    room.count(&cx, RequestId(1), zeros, vec![(SEAT, 4096)]);
    room.check();
    assert_eq!(report(&mut room, &cx).charged, 4096);
    assert!(
        !end(&mut room, &mut cx, 1, Err(Fault::Full)),
        "nor tried again"
    );
}

#[test]
fn the_lanes_own_work_takes_room_only_while_no_write_waits_for_it() {
    let (mut room, mut cx) = granted(MIB);
    let needs = [(SEAT, MIB / 2)];
    assert!(room.take(&mut cx, &needs));
    room.check();
    assert_eq!(report(&mut room, &cx).unsettled(), MIB / 2);
    room.granted(&[None, Some(MIB)]);
    room.took(&needs);
    room.covers_ended();
    room.checkpoint_ended(&mut cx, true);
    assert_eq!(report(&mut room, &cx).unsettled(), 0);
    room.granted(&[None, Some(MIB)]);
    assert!(!admit(&mut room, &mut cx, 1, MIB));
    assert!(!room.take(&mut cx, &[(SEAT, 4096)]));
}

#[test]
fn the_lanes_own_work_without_room_asks_for_more_and_does_not_wait() {
    let (mut room, mut cx) = granted(MIB);
    assert!(!room.take(&mut cx, &[(SEAT, 2 * MIB)]));
    assert_eq!(wants(&mut cx), [false]);
    assert!(room.next(cx.now, false).is_none());
    assert!(admit(&mut room, &mut cx, 1, MIB), "nothing was charged");
}

#[test]
fn work_that_frees_more_than_it_adds_is_charged_beyond_the_limit() {
    let (mut room, cx) = granted(4096);
    room.take_beyond(&[(SEAT, MIB)]);
    room.check();
    let report = report(&mut room, &cx);
    assert_eq!((report.charged, report.unsettled()), (MIB, MIB));
}

#[test]
fn lanes_of_drives_that_do_not_know_their_use_have_no_accounts() {
    assert!(!Room::default().is_on());
}

/// What each drive needs for a request to a group of `raid5` on four drives.
fn needs(kind: RequestKind, offset: u64, length: u64) -> Vec<u64> {
    let (cx, ios) = (Context::of_test("raid5", 4), IoTable::new(4));
    let request = request(kind, offset, length);
    let needs = match kind {
        RequestKind::Write => needs_of_write(&cx, &ios, &request),
        _ => needs_of_zeros(&cx, &ios, &request),
    };
    let mut bytes: Vec<u64> = needs.into_iter().map(|(_, bytes)| bytes).collect();
    bytes.sort_unstable();
    bytes
}

#[test]
fn a_small_write_needs_its_block_and_one_of_each_parity() {
    assert_eq!(needs(RequestKind::Write, 512, 512), [4096, 4096]);
    assert_eq!(needs(RequestKind::Write, 3584, 1024), [8192, 8192]);
}

#[test]
fn a_whole_stripe_needs_a_chunk_on_each_drive_and_zeros_need_none() {
    let cx = Context::of_test("raid5", 4);
    let (stripe, chunk) = (cx.geometry.stripe_data_bytes(), cx.geometry.chunk_bytes());
    assert_eq!(needs(RequestKind::Write, 0, stripe), [chunk; 4]);
    assert!(needs(RequestKind::Trim, 0, stripe).is_empty());
    assert_eq!(needs(RequestKind::Trim, 0, 4096).len(), 1, "the parity");
}
