//! Which labels count when labels of one number do not agree.

use std::collections::BTreeMap;

use block::{Instant, Seat};
use format::{Generation, LABEL_OFFSETS, Label, newest_label};
use pool::{
    FoundDrive, Half, OpenError, OutReason, Pool, PoolAction, PoolFacts, SeatState, Ticket, create,
    open,
};

use crate::support::{DRIVE_BYTES, spec};

fn facts(drives: u128) -> PoolFacts {
    let pool = create(&spec(drives, 0), Ticket(0)).unwrap();
    pool.facts().clone()
}

/// These facts with seats out since generation `since`, in which an opening missed their drives.
fn without(facts: &PoolFacts, seats: &[usize], since: Generation) -> PoolFacts {
    let mut facts = facts.clone();
    for &seat in seats {
        let reason = OutReason::Missing;
        facts.seats[seat].state = SeatState::Out { since, reason };
    }
    facts
}

fn found(facts: &PoolFacts, seat: u16, generation: Generation) -> FoundDrive {
    let of = &facts.seats[usize::from(seat)];
    FoundDrive {
        path: of.path.clone(),
        label: Label {
            drive: of.drive,
            seat: Seat(seat),
            generation,
            facts: facts.clone(),
        },
        label_slot: 0,
        size_bytes: DRIVE_BYTES,
        fault: None,
        bay: None,
    }
}

/// Before, when one drive file of six was truncated, the pool did not open at all (truncated to 1 MiB), or
/// opened as whole (to a tenth), and every access to the missing part failed.
#[test]
fn a_drive_that_cannot_be_what_its_label_says_is_out_with_the_reason() {
    let before = facts(3);
    let needed = before.data_offset + before.rows * before.cell_bytes;
    for (bytes, is_out) in [
        (1 << 20, true),
        (DRIVE_BYTES / 10, true),
        (needed - 1, true),
        (needed, false),
        (DRIVE_BYTES, false),
    ] {
        let mut drives = [0, 1, 2].map(|seat| found(&before, seat, Generation(4)));
        drives[1].size_bytes = bytes;
        let opening = open(&drives, false).unwrap();
        let seat = &opening.facts().seats[1];
        assert_eq!(!opening.seated().contains_key(&Seat(1)), is_out, "{bytes}");
        let reason = format!("its label says {DRIVE_BYTES} bytes, the drive has {bytes}");
        assert_eq!(seat.short_of(), is_out.then_some(reason));
        drives[2].size_bytes = bytes;
        if is_out {
            let error = open(&drives, false).unwrap_err().to_string();
            assert!(error.contains(": its label says"), "{error}");
        }
    }
}

#[test]
fn a_drive_whose_cell_table_cannot_be_read_is_out_and_the_others_open() {
    let mut drives = [0, 1, 2].map(|seat| found(&facts(3), seat, Generation(4)));
    drives[2].fault = Some(block::Fault::Medium);
    let opening = open(&drives, false).unwrap();
    let reason = OutReason::IoErrors;
    assert_eq!(
        opening.facts().seats[2].state,
        SeatState::Out {
            since: Generation(5),
            reason
        }
    );
}

/// In whatever order the drives are found, the pool opens with these facts and without drive 2.
fn in_every_order_two_is_dropped(drives: &[FoundDrive; 3], facts: &PoolFacts) {
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0]] {
        let order = order.map(|at: usize| drives[at].clone());
        let opening = open(&order, false).unwrap();
        assert_eq!(opening.facts().seats, facts.seats);
        assert!(!opening.seated().contains_key(&Seat(2)));
    }
}

fn are_two_halves(drives: &[FoundDrive]) {
    for degraded in [false, true] {
        let error = open(drives, degraded).expect_err("refused");
        assert!(matches!(error, OpenError::SplitBrain { .. }), "{error}");
    }
}

/// The power went while generation 3 was being written, and only drive 2 had it. The pool was opened without
/// drive 2, and its generation 3 was another one. When drive 2 returned, the pool was refused as two halves that
/// each went on without the other, though drive 2 had never been alone.
#[test]
fn a_drive_with_a_generation_that_nobody_else_had_is_no_half_of_its_own() {
    let before = facts(3);
    let mut half_written = before.clone();
    half_written.clean = true;
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(3)),
        found(&after, 1, Generation(3)),
        found(&half_written, 2, Generation(3)),
    ];
    in_every_order_two_is_dropped(&drives, &after);
}

/// The same when the opening had written its label on one drive only: the other drive lags, and still counts.
#[test]
fn a_drive_that_lags_takes_part_beside_one_that_was_overtaken() {
    let before = facts(3);
    let mut half_written = before.clone();
    half_written.clean = true;
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(3)),
        found(&before, 1, Generation(2)),
        found(&half_written, 2, Generation(3)),
    ];
    let opening = open(&drives, false).unwrap();
    let seats: Vec<Seat> = opening.seated().keys().copied().collect();
    assert_eq!(seats, [Seat(0), Seat(1)]);
}

/// Only drive 2's label said that drive 1 was out: drive 1 had failed as the power went. By its own facts drive
/// 2 needs two of the three drives, so its label on one drive was not enough for any later write.
#[test]
fn a_generation_that_nobody_else_had_may_say_that_another_drive_is_out() {
    let before = facts(3);
    let half_written = without(&before, &[1], Generation(3));
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(3)),
        found(&after, 1, Generation(3)),
        found(&half_written, 2, Generation(3)),
    ];
    in_every_order_two_is_dropped(&drives, &after);
}

/// The same when the pool has been opened once more since.
#[test]
fn a_generation_that_nobody_else_had_is_no_half_later_on_either() {
    let before = facts(3);
    let half_written = without(&before, &[1], Generation(3));
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(5)),
        found(&after, 1, Generation(4)),
        found(&half_written, 2, Generation(3)),
    ];
    in_every_order_two_is_dropped(&drives, &after);
}

/// A drive that went on alone after an opening missed it has a later generation of its own.
#[test]
fn a_drive_that_went_on_after_it_was_missed_is_a_half_of_its_own() {
    let before = facts(3);
    let alone = without(&before, &[0, 1], Generation(4));
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(5)),
        found(&after, 1, Generation(5)),
        found(&alone, 2, Generation(4)),
    ];
    are_two_halves(&drives);
}

/// A drive that was opened alone (`--degraded`) needs no other drive, and may have been written to.
#[test]
fn a_drive_that_counts_on_itself_alone_is_a_half_of_its_own() {
    let before = facts(3);
    let alone = without(&before, &[0, 1], Generation(3));
    let after = without(&before, &[2], Generation(3));
    let drives = [
        found(&after, 0, Generation(3)),
        found(&after, 1, Generation(3)),
        found(&alone, 2, Generation(3)),
    ];
    are_two_halves(&drives);
}

/// A generation that was on more drives than the code survives may have been followed by writes. The
/// administrator who opened the pool without these drives (`--degraded`) must decide.
#[test]
fn a_generation_that_may_have_counted_is_not_overtaken() {
    let before = facts(4);
    let mut written = before.clone();
    written.clean = true;
    let after = without(&before, &[2, 3], Generation(3));
    let drives = [
        found(&after, 0, Generation(3)),
        found(&after, 1, Generation(3)),
        found(&written, 2, Generation(3)),
        found(&written, 3, Generation(3)),
    ];
    are_two_halves(&drives);
}

/// The label writes that the pool requests, which all succeed: by seat, the copy and the generation.
fn label_writes(pool: &mut Pool) -> BTreeMap<Seat, (usize, Generation)> {
    let mut written = BTreeMap::new();
    let mut ids = Vec::new();
    while let Some(action) = pool.poll_action() {
        if let PoolAction::WriteDurably {
            id,
            seat,
            offset,
            bytes,
        } = action
        {
            let copy = LABEL_OFFSETS.iter().position(|&at| at == offset);
            let (_, label) = newest_label([&bytes, &[]]).expect("a label");
            written.insert(seat, (copy.expect("of a label"), label.generation));
            ids.push(id);
        }
    }
    for id in ids {
        pool.handle_completion(Instant::ZERO, id, Half::Flush, Ok(()));
    }
    written
}

/// A daemon that was killed may leave labels in caches alone. With the next generation in the other copy, a power cut
/// took both copies.
#[test]
fn labels_are_flushed_where_they_are_before_the_next_generation() {
    let facts = facts(3);
    let drives = [
        found(&facts, 0, Generation(4)),
        found(&facts, 1, Generation(4)),
        found(&facts, 2, Generation(3)),
    ];
    let opening = open(&drives, false).unwrap();
    let slots = [(Seat(0), 0), (Seat(1), 1), (Seat(2), 0)].into();
    let mut pool = opening.finish(BTreeMap::new(), &slots, Ticket(0)).unwrap();
    let writes = |copies: [usize; 3], generation| -> BTreeMap<Seat, (usize, Generation)> {
        let writes = copies.map(|copy| (copy, Generation(generation)));
        (0..).map(Seat).zip(writes).collect()
    };
    assert_eq!(label_writes(&mut pool), writes([0, 1, 1], 4));
    assert_eq!(label_writes(&mut pool), writes([1, 0, 0], 5));
}
