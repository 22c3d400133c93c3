//! Scenarios of the queue alone.

use testing::walk::Changes;

use super::*;

const TARGET: Cell = Cell {
    seat: Seat(3),
    row: 5,
};
const KEY: Key = key(7, 1);
const CELL_BYTES: u64 = 1 << 20;
const LOST_ONE: Class = Class {
    kind: Kind::FIRST,
    urgency: Reverse(1),
};
const LOST_TWO: Class = Class {
    kind: Kind::FIRST,
    urgency: Reverse(2),
};

/// The class of a move of a column that is there.
fn class(kind: &str) -> Class {
    Class::new(Kind::named(kind), || 0)
}

const fn key(group: u64, column: u16) -> Key {
    (GroupId(group), Column(column))
}

fn choice(key: Key) -> FillChoice {
    FillChoice {
        group: key.0,
        column: key.1,
        seats: vec![Seat(key.1.0), Seat(9)],
    }
}

const fn at_most(copying: u64) -> Limits {
    Limits {
        copying,
        per_drive: FILLS_PER_DRIVE,
    }
}

/// The next cell, which leaves the queue.
fn next(fills: &mut Fills, choice: impl Fn(Key) -> FillChoice) -> Option<Key> {
    let (class, key) = fills.next(at_most(u64::MAX / 2), choice)?;
    fills.choose(class, key);
    Some(key)
}

/// A fill of `KEY` that reads two drives.
fn filling() -> Fills {
    let mut fills = Fills::default();
    fills.begin((LOST_ONE, KEY), TARGET, vec![Seat(0), Seat(1)], CELL_BYTES);
    fills
}

/// The state of `KEY`.
fn state(fills: &Fills) -> &'static str {
    let waits = fills.waiting_keys().any(|key| key == KEY);
    let fill = fills.in_flight.get(&KEY);
    let states = [
        (waits, "waiting"),
        (fill.is_some_and(|fill| !fill.copied), "copying"),
        (fill.is_some_and(|fill| fill.copied), "copied"),
        (
            fills.filled.get(&KEY).is_some_and(|is| is.is_moving()),
            "recording",
        ),
        (
            fills.filled.get(&KEY) == Some(&Filled::Settling),
            "settling",
        ),
        (fills.is_unrecoverable(KEY), "unrecoverable"),
    ];
    let mut states = states.iter().filter(|(is, _)| *is);
    let first = states.next();
    assert_eq!(states.next(), None, "a column is in one state");
    first.map_or("still", |&(_, name)| name)
}

/// The drawing in the head of this file is what the queue does: every event, from every state.
#[test]
fn the_states_of_a_column_are_those_of_the_drawing() {
    type Event = (&'static str, fn(&mut Fills));
    let events: [Event; 9] = [
        ("wait", |fills| _ = fills.wait(LOST_ONE, KEY)),
        ("begin", |fills| {
            fills.choose(LOST_ONE, KEY);
            fills.begin((LOST_ONE, KEY), TARGET, vec![Seat(0)], CELL_BYTES);
        }),
        ("copied", |fills| fills.copied(KEY)),
        ("end", |fills| _ = fills.end(KEY)),
        ("record", |fills| fills.record(KEY, TARGET, true)),
        ("recorded", |fills| fills.recorded(KEY)),
        ("unrecorded", |fills| _ = fills.unrecorded(KEY)),
        ("settled", |fills| fills.settled(KEY)),
        ("lost", |fills| fills.lost(KEY)),
    ];
    // These begin something, so they come only in the state that they are for.
    let begins = [
        ("wait", "still"),
        ("begin", "waiting"),
        ("record", "still"),
        ("recorded", "recording"),
        ("lost", "still"),
    ];
    let hope = |fills: &mut Fills| _ = fills.hope_again(KEY.0);
    let events = events.into_iter().chain([("hope_again", hope as _)]);
    let events: Vec<Event> = events.collect();
    let mut known = vec![("still", Fills::default())];
    let mut drawn = Changes::default();
    let mut at = 0;
    while let Some((from, fills)) = known.get(at).cloned() {
        at += 1;
        for &(event, happens) in &events {
            if begins.iter().any(|&(of, only)| of == event && only != from) {
                continue;
            }
            let mut after = fills.clone();
            happens(&mut after);
            let to = state(&after);
            drawn.note(from, event, to);
            if known.iter().all(|&(name, _)| name != to) {
                known.push((to, after));
            }
        }
    }
    drawn.assert_drawn_in(include_str!("../queue.rs"));
}

#[test]
fn what_has_lost_most_is_first() {
    let mut fills = Fills::default();
    for (class, key) in [
        (class("replace"), key(0, 0)),
        (class("copy_back"), key(1, 0)),
        (LOST_ONE, key(2, 0)),
        (LOST_TWO, key(3, 0)),
    ] {
        assert!(fills.wait(class, key));
        assert!(!fills.wait(class, key), "it waits already");
    }
    let order: Vec<GroupId> = std::iter::from_fn(|| next(&mut fills, choice))
        .map(|key| key.0)
        .collect();
    assert_eq!(order, [GroupId(3), GroupId(2), GroupId(1), GroupId(0)]);
    assert!(fills.is_idle());
}

#[test]
fn a_class_whose_drives_are_full_lets_the_next_one_pass() {
    let mut fills = Fills::default();
    for group in (0..FILLS_PER_DRIVE).map(GroupId) {
        fills.begin((LOST_TWO, (group, Column(4))), TARGET, vec![Seat(4)], 0);
    }
    let elsewhere = |key: Key| FillChoice {
        seats: vec![Seat(key.1.0)],
        ..choice(key)
    };
    fills.wait(LOST_TWO, key(100, 4));
    fills.wait(class("copy_back"), key(101, 5));
    assert_eq!(next(&mut fills, elsewhere), Some(key(101, 5)));
    assert_eq!(next(&mut fills, elsewhere), None);
    fills.copied(key(0, 4));
    assert_eq!(next(&mut fills, elsewhere), Some(key(100, 4)));
}

fn at(seat: u16) -> Cell {
    Cell {
        seat: Seat(seat),
        row: 0,
    }
}

#[test]
fn a_fill_yields_while_a_more_urgent_one_uses_one_of_its_drives() {
    let mut fills = filling();
    fills.begin((class("copy_back"), key(8, 0)), at(5), vec![Seat(6)], 0);
    fills.begin((LOST_ONE, key(9, 0)), at(6), vec![Seat(7)], 0);
    assert_eq!(fills.yield_drives(), [(key(8, 0), true)]);
    assert_eq!(fills.yield_drives(), [], "once");
    fills.begin((LOST_TWO, key(10, 0)), at(1), vec![Seat(7)], 0);
    assert_eq!(fills.yield_drives(), [(KEY, true), (key(9, 0), true)]);
    fills.copied(key(10, 0));
    assert_eq!(fills.yield_drives(), [(KEY, false), (key(9, 0), false)]);
    fills.end(key(9, 0));
    assert_eq!(fills.yield_drives(), [(key(8, 0), false)]);
}

#[test]
fn fills_that_yield_do_not_count_for_more_urgent_ones() {
    let mut fills = Fills::default();
    for group in (0..FILLS_PER_DRIVE).map(GroupId) {
        fills.begin((LOST_ONE, (group, Column(0))), at(4), vec![Seat(5)], 0);
    }
    let same_drives = |key: Key| FillChoice {
        seats: vec![Seat(4), Seat(5)],
        ..choice(key)
    };
    fills.wait(LOST_ONE, key(100, 0));
    assert_eq!(fills.next(at_most(u64::MAX / 2), same_drives), None);
    fills.wait(LOST_TWO, key(101, 0));
    assert_eq!(
        fills.next(at_most(0), same_drives),
        None,
        "no fill may copy"
    );
    assert_eq!(
        fills.next(at_most(1), same_drives),
        Some((LOST_TWO, key(101, 0))),
        "as if no other copied"
    );
}

#[test]
fn a_fill_counts_as_urgent_as_its_group_is_now() {
    let mut fills = filling();
    fills.begin((LOST_TWO, key(8, 0)), at(1), vec![Seat(5)], 0);
    fills.set_urgency(KEY, 3);
    assert_eq!(fills.yield_drives(), [(key(8, 0), true)]);
    assert_eq!((fills.busy(Seat(1), 3), fills.busy(Seat(1), 0)), (1, 2));
    fills.end(KEY);
    assert_eq!(fills.busy(Seat(1), 0), 1);
    assert!(fills.busy.values().all(|&fills| fills == 1));
}

#[test]
fn what_begins_is_looked_for_again_when_something_has_changed() {
    let mut fills = filling();
    fills.wait(LOST_ONE, key(8, 0));
    type Change = fn(&mut Fills);
    let changes: [Change; 8] = [
        |fills| _ = fills.wait(LOST_ONE, key(8, 1)),
        |fills| fills.wait_as(LOST_TWO, key(8, 1)),
        |fills| fills.set_urgency(KEY, 2),
        |fills| fills.copied(KEY),
        |fills| _ = fills.end(KEY),
        |fills| fills.record(KEY, TARGET, true),
        |fills| fills.recorded(KEY),
        |fills| fills.rescan(),
    ];
    for (at, change) in changes.into_iter().enumerate() {
        fills.none_begins();
        fills.stepped((Instant(0), 0), KEY, 1, CELL_BYTES);
        assert!(fills.is_exhausted(), "{at}");
        change(&mut fills);
        assert!(!fills.is_exhausted(), "{at}");
    }
}

#[test]
fn a_column_that_waits_can_become_less_urgent() {
    let mut fills = Fills::default();
    fills.wait(LOST_TWO, KEY);
    fills.wait_as(LOST_ONE, KEY);
    fills.wait_as(LOST_ONE, key(9, 9));
    let waiting: Vec<_> = fills.waiting.keys().collect();
    assert_eq!((waiting, fills.waiting_len()), (vec![&LOST_ONE], 1));
}

#[test]
fn what_a_fill_found_lost_is_outdated_once_something_is_back() {
    let mut fills = filling();
    fills.hope_again(KEY.0.next());
    assert!(!fills.in_flight[&KEY].outdated);
    fills.hope_again(KEY.0);
    assert!(fills.end(KEY).expect("under way").outdated);
    let mut fills = filling();
    fills.rescan();
    assert!(fills.end(KEY).expect("under way").outdated);
}

#[test]
fn drives_are_busy_until_the_blocks_are_copied() {
    let mut fills = filling();
    let busy = |fills: &Fills| [0, 1, 3, 2].map(|seat| fills.busy(Seat(seat), 0));
    assert_eq!(busy(&fills), [1, 1, 1, 0]);
    assert_eq!((fills.copying(0), fills.filling(0)), (1, 1));
    fills.copied(KEY);
    fills.copied(KEY);
    assert_eq!(busy(&fills), [0; 4]);
    assert_eq!((fills.copying(0), fills.filling(0)), (0, 1));
    assert!(fills.end(KEY).is_some());
    assert_eq!(busy(&fills), [0; 4], "once");
    assert_eq!(fills.moved(Seat(0)), CELL_BYTES);
}

#[test]
fn a_fill_that_ends_before_its_blocks_are_copied_frees_its_drives() {
    let mut fills = filling();
    let ended = fills.end(KEY).expect("it was under way");
    assert_eq!(ended.sources, [Seat(0), Seat(1)]);
    assert_eq!(fills.busy(Seat(3), 0), 0);
    assert!(fills.end(KEY).is_none() && fills.is_idle());
}

#[test]
fn steps_count_up_to_a_cell() {
    let mut fills = filling();
    fills.stepped((Instant(0), 0), KEY, CELL_BYTES - 1, CELL_BYTES);
    assert_eq!(fills.stepped_bytes(CELL_BYTES), CELL_BYTES - 1);
    fills.stepped((Instant(0), 0), KEY, 2, CELL_BYTES);
    fills.stepped((Instant(0), 0), key(8, 0), 2, CELL_BYTES);
    assert_eq!(fills.stepped_bytes(CELL_BYTES), CELL_BYTES);
    fills.end(KEY);
    fills.record(KEY, TARGET, true);
    assert_eq!(fills.stepped_bytes(CELL_BYTES), CELL_BYTES);
}

#[test]
fn a_column_is_under_way_until_it_settles_after_its_record() {
    let mut fills = filling();
    fills.end(KEY);
    fills.record(KEY, TARGET, true);
    assert!(fills.is_under_way(KEY) && fills.is_filling(KEY.0));
    fills.recorded(KEY);
    assert!(fills.is_under_way(KEY) && !fills.is_filling(KEY.0));
    assert_eq!(fills.progress.cells_done, 1);
    fills.settled(KEY);
    assert!(fills.is_idle());
}

#[test]
fn a_record_that_fails_gives_the_cell_back() {
    let mut fills = filling();
    fills.end(KEY);
    fills.record(KEY, TARGET, true);
    assert_eq!(fills.unrecorded(KEY), Some(TARGET));
    assert_eq!(fills.unrecorded(KEY), None);
    assert_eq!(fills.progress.cells_done, 0);
}

#[test]
fn a_drive_that_goes_out_makes_its_fills_vain() {
    let mut fills = filling();
    fills.begin(
        (LOST_ONE, key(8, 0)),
        Cell {
            seat: Seat(4),
            row: 0,
        },
        vec![Seat(0)],
        0,
    );
    fills.superseded(TARGET.seat);
    assert!(fills.end(KEY).expect("under way").superseded);
    assert!(!fills.end(key(8, 0)).expect("under way").superseded);
}

#[test]
fn what_could_not_be_filled_is_hoped_for_by_group_and_after_a_change_of_membership() {
    let mut fills = Fills::default();
    for key in [key(1, 0), key(1, 2), key(2, 0)] {
        fills.lost(key);
    }
    assert_eq!(fills.progress.cells_lost, 3);
    assert_eq!(fills.hope_again(GroupId(1)), [key(1, 0), key(1, 2)]);
    assert!(!fills.is_unrecoverable(key(1, 0)) && fills.is_unrecoverable(key(2, 0)));
    fills.rescan();
    assert!(!fills.is_unrecoverable(key(2, 0)));
}

#[test]
fn a_rebuild_that_is_under_way_gets_another_end_and_a_new_one_begins_at_zero() {
    let mut fills = Fills::default();
    fills.wait(LOST_ONE, KEY);
    fills.count(Instant(5), true, 1, CELL_BYTES);
    assert_eq!(
        (fills.progress.began, fills.progress.cells_total),
        (Instant(5), 1)
    );
    next(&mut fills, choice);
    fills.begin((LOST_ONE, KEY), TARGET, vec![Seat(0)], CELL_BYTES);
    fills.count(Instant(9), false, 10, CELL_BYTES);
    assert_eq!(
        (fills.progress.began, fills.progress.cells_total),
        (Instant(5), 11)
    );
    fills.count(Instant(9), true, 4, CELL_BYTES);
    assert_eq!(
        (fills.progress.began, fills.progress.cells_total),
        (Instant(9), 4)
    );
    assert!(fills.progress.seats.is_empty());
}

#[test]
fn when_it_stops_nothing_waits_and_what_is_under_way_is_named() {
    let mut fills = filling();
    fills.wait(class("replace"), key(1, 1));
    assert_eq!(fills.stop(), [KEY]);
    assert!(fills.stopped && fills.none_waits() && !fills.none_is_filled());
}
