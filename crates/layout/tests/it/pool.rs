//! Pools: tables, growth, and what they store.

use block::Seat;
use layout::developed::Shape;
use layout::pool::{Choice, Pool};
use layout::{Cell, Geometry, Layout, Role};

use crate::common::{cells_are_a_bijection, chunks_are_a_bijection, geometry};

const fn shape(drives: u16, width: u16, spares: u16) -> Shape {
    Shape {
        drives,
        width,
        parity: 2,
        spares,
    }
}

#[test]
fn pools_are_bijections_on_up_to_twelve_drives() {
    for name in ["ddp", "crush"] {
        for drives in 3..=12 {
            for parity in 1..=3 {
                for data in 1..=drives - parity - 1 {
                    let name = name.replace("crush", &format!("crush{parity}"));
                    let parity = if name == "ddp" {
                        format!(":{parity}p")
                    } else {
                        String::new()
                    };
                    let geometry = geometry(&format!("{name}{parity}:{data}d:{drives}c:1s"), 40);
                    cells_are_a_bijection(&geometry, 40);
                    chunks_are_a_bijection(&geometry, 2, 3);
                    if geometry.layout.groups(40) > 0 {
                        crate::common::spare_is_outside_the_group(&geometry, 40);
                    }
                }
            }
        }
    }
}

#[test]
fn larger_pools_are_bijections() {
    for scheme in [
        "ddp",
        "ddp:8d:60c:3s",
        "crush2:8d:60c:3s",
        "ddp:16d:3p:255c",
        "ddp:8d:384c",
        "ddp:8d:96c:8s:8f",
    ] {
        let parsed: layout::Scheme = scheme.parse().unwrap();
        let geometry = Geometry::new(&parsed, parsed.drives.or(Some(11)), 100).unwrap();
        cells_are_a_bijection(&geometry, 100);
    }
}

#[test]
fn preservation_capacity_is_one_drive_in_twenty_begun() {
    for (drives, spares) in [(11, 1), (20, 1), (21, 2), (60, 3), (64, 4)] {
        assert_eq!(geometry(&format!("ddp:{drives}c"), 100).spares, spares);
    }
    let geometry = geometry("ddp:8d:60c:3s", 1000);
    let free = (0..60).flat_map(|seat| {
        (0..1000).map(move |row| Cell {
            seat: Seat(seat),
            row,
        })
    });
    let free = free
        .filter(|&cell| geometry.layout.role(cell) == Role::Unused)
        .count();
    assert!(
        (3000..3200).contains(&free),
        "three drives' worth, spread: {free}"
    );
}

#[test]
fn a_pool_keeps_all_of_its_space_until_it_is_as_full_as_it_may_be() {
    // The drives that fill up last have only each other left to pair with: balance must not leave space
    // unusable.
    for (drives, width) in [(11, 10), (12, 5), (17, 5), (60, 10), (61, 10)] {
        let pool = Pool::filled(shape(drives, width, 1), 500, Choice::PairBalanced);
        let held: u64 = (0..drives).map(|seat| pool.pieces_on(Seat(seat))).sum();
        let room = 500 * u64::from(drives - 1) / u64::from(drives) * u64::from(drives);
        assert!(
            held + u64::from(width) + 10 > room,
            "{drives} drives: {held} of {room}"
        );
    }
}

#[test]
fn growing_by_a_drive_moves_no_more_than_its_share() {
    for choice in [Choice::PairBalanced, Choice::Crush] {
        let mut pool = Pool::filled(shape(30, 10, 1), 300, choice);
        let before: u64 = (0..30).map(|seat| pool.pieces_on(Seat(seat))).sum();
        let seat = pool.add_drive();
        assert_eq!(seat, Seat(30));
        let held: Vec<u64> = (0..31).map(|seat| pool.pieces_on(Seat(seat))).collect();
        let least: u64 = held[..30]
            .iter()
            .map(|&h| h.saturating_sub(before.div_ceil(31)))
            .sum();
        let moves = pool.balance();
        assert!(
            moves.len() as u64 <= least + 31,
            "{} moves, {least} needed",
            moves.len()
        );
        for piece in &moves {
            assert_eq!(pool.cell(piece.group, piece.column), piece.to, "moved once");
            assert_eq!(pool.role(piece.from), Role::Unused);
        }
        let held: Vec<u64> = (0..31).map(|seat| pool.pieces_on(Seat(seat))).collect();
        let (least, most) = (held.iter().min().unwrap(), held.iter().max().unwrap());
        assert!(most - least <= 1, "{held:?}");
        check(&pool, 300);
        assert!(pool.add_group().is_some(), "there is room for more groups");
        check(&pool, 300);
    }
}

/// The pieces of each drive.
fn held(pool: &Pool) -> Vec<u64> {
    (0..pool.drives())
        .map(|seat| pool.pieces_on(Seat(seat)))
        .collect()
}

/// The largest part of a rebuild's reads that a survivor has, over the mean: the worst of all single failures.
#[expect(clippy::cast_precision_loss, reason = "counts of groups")]
fn rebuild_reads(pool: &Pool) -> f64 {
    let seats = || (0..pool.drives()).map(Seat);
    let of_failure = |failed: Seat| {
        let others = seats().filter(|&seat| seat != failed);
        let reads: Vec<u32> = others.map(|seat| pool.shared(failed, seat)).collect();
        let most = reads.iter().copied().max().unwrap_or(0);
        f64::from(most) * reads.len() as f64 / f64::from(reads.iter().sum::<u32>())
    };
    seats().map(of_failure).fold(0.0, f64::max)
}

/// A pool of 12 drives with 200 pieces of each in use.
fn in_use(choice: Choice) -> Pool {
    let mut pool = Pool::new(shape(12, 10, 1), 1000, choice);
    while pool.group_count() < 240 {
        pool.add_group().expect("there is room");
    }
    pool
}

/// Grows a pool, and checks what every growth promises. Returns the pool, the number of moves and the least possible one.
fn grow(pool: &Pool, drives: u16) -> (Pool, u64, u64) {
    let (after, moves) = pool.grown(drives, &|_| true);
    let before = pool.drives();
    assert_eq!(after.drives(), before + drives);
    assert_eq!(after.group_count(), pool.group_count());
    check(&after, 1000);
    let mut moved = moves.iter().peekable();
    for group in 0..pool.group_count() {
        for column in 0..pool.columns() {
            let (from, to) = (pool.cell(group, column), after.cell(group, column));
            match moved.next_if(|piece| (piece.group, piece.column) == (group, column)) {
                Some(piece) => {
                    assert_eq!((piece.from, piece.to), (from, to));
                    assert!(to.seat.0 >= before, "{to:?} is on a new drive");
                }
                None => assert_eq!(from, to, "it has not moved"),
            }
        }
    }
    assert_eq!(moved.next(), None);
    for seat in before..after.drives() {
        let below = |row| {
            after.role(Cell {
                seat: Seat(seat),
                row,
            }) != Role::Unused
        };
        assert!((0..after.pieces_on(Seat(seat))).all(below), "without gaps");
    }
    // A new drive is as full as the others when it has the mean.
    let pieces: u64 = held(pool).iter().sum();
    let least = u64::from(drives) * (pieces / u64::from(after.drives()));
    (after, moves.len() as u64, least)
}

#[test]
fn growing_one_by_one_or_at_once_moves_the_least_and_spreads_a_rebuild() {
    let pool = in_use(Choice::PairBalanced);
    assert!(rebuild_reads(&pool) <= 1.05);
    let (thirteen, moved, least) = grow(&pool, 1);
    assert!(moved * 100 <= least * 101, "{moved} moves, {least} needed");
    assert!(
        rebuild_reads(&thirteen) <= 1.05,
        "{}",
        rebuild_reads(&thirteen)
    );
    for (name, pool, drives) in [("12, 13, 20", &thirteen, 7), ("12, 20", &pool, 8)] {
        let (twenty, moved, least) = grow(pool, drives);
        assert!(
            moved * 100 <= least * 101,
            "{name}: {moved} moves, {least} needed"
        );
        let reads = rebuild_reads(&twenty);
        assert!(reads <= 1.05, "{name}: {reads}");
        let (fewest, most) = (
            held(&twenty).into_iter().min(),
            held(&twenty).into_iter().max(),
        );
        assert!(
            most.unwrap() - fewest.unwrap() <= 1,
            "{name}: {:?}",
            held(&twenty)
        );
        for drained in [Seat(0), Seat(12), Seat(19)] {
            let mut pool = twenty.clone();
            let had = pool.pieces_on(drained);
            let moves = pool.drain(drained).expect("there is room");
            assert_eq!((moves.len() as u64, pool.pieces_on(drained)), (had, 0));
            let mut left = held(&pool);
            left.remove(drained.index());
            let (fewest, most) = (left.iter().min().unwrap(), left.iter().max().unwrap());
            assert!(most - fewest <= 1, "{name}, {drained} drained: {left:?}");
            check(&pool, 1000);
        }
    }
}

#[test]
fn uneven_pools_give_the_new_drive_its_share_from_the_fullest_drives() {
    let pool = in_use(Choice::Crush);
    let (after, moved, _) = grow(&pool, 1);
    let held = held(&after);
    assert_eq!(held[12], moved);
    assert!(
        (183..=185).contains(&moved),
        "{moved} of 2400 pieces on 13 drives"
    );
    let fuller = held.iter().filter(|&&held| held > 200);
    let before = self::held(&pool);
    assert!(before.iter().filter(|&&held| held > 200).count() > fuller.count());
}

#[test]
fn a_pool_that_was_full_has_room_for_more_groups_after_it_has_grown() {
    for choice in [Choice::PairBalanced, Choice::Crush] {
        let full = Pool::filled(shape(12, 10, 1), 500, choice);
        assert_eq!(full.clone().fill_up(), 0, "{choice:?}");
        let (mut after, _) = full.grown(2, &|_| true);
        let more = after.fill_up();
        let whole = Pool::filled(shape(14, 10, 1), 500, choice).group_count();
        let (least, all) = (whole - whole / 50, after.group_count());
        assert!(
            all >= least && all <= whole + 10,
            "{choice:?}: {all} of {whole}"
        );
        assert_eq!(all, full.group_count() + more);
        check(&after, 500);
        let stored = after.stored().unwrap();
        let again = Pool::restore(shape(14, 10, 1), 500, choice, &stored).unwrap();
        assert_eq!(again.stored().unwrap(), stored);
        assert_eq!(again.clone().fill_up(), 0, "{choice:?}: it is full again");
    }
}

/// Table and inverse agree and groups are on different drives.
fn check(pool: &Pool, rows: u64) {
    for group in 0..pool.groups(rows) {
        let mut seats: Vec<Seat> = pool.group_seats(group).collect();
        for column in 0..pool.columns() {
            let role = pool.role(pool.cell(group, column));
            assert_eq!(role, Role::Column { group, column });
        }
        seats.sort();
        seats.dedup();
        assert_eq!(seats.len(), usize::from(pool.columns()));
    }
}

#[test]
fn a_drive_can_be_drained_if_there_is_room() {
    let mut pool = Pool::new(shape(12, 5, 0), 100, Choice::PairBalanced);
    for _ in 0..150 {
        pool.add_group().unwrap();
    }
    let held = pool.pieces_on(Seat(3));
    let moves = pool.drain(Seat(3)).expect("there is room");
    assert_eq!(moves.len() as u64, held);
    assert_eq!(pool.pieces_on(Seat(3)), 0);
    check(&pool, 100);
    let mut full = Pool::filled(shape(12, 5, 0), 100, Choice::PairBalanced);
    let table = full.stored();
    assert!(full.drain(Seat(3)).is_none(), "there is no room");
    assert_eq!(full.stored(), table, "and nothing was changed");
}

#[test]
fn stored_tables_come_back_and_damaged_ones_are_refused() {
    for scheme in ["ddp:8d:24c:2s", "crush2:8d:24c:2s", "ddp:4d:24c:2s:6f"] {
        let geometry = geometry(scheme, 50);
        let stored = geometry.stored().unwrap();
        let again = Geometry::restore(&geometry.scheme, None, 50, &stored).unwrap();
        assert_eq!(again.stored().unwrap(), stored);
        for group in 0..geometry.layout.groups(50) {
            for column in 0..geometry.layout.columns() {
                let cell = geometry.layout.cell(group, column);
                assert_eq!(again.layout.cell(group, column), cell);
            }
        }
        let refused = |bytes: &[u8]| {
            let error = Geometry::restore(&geometry.scheme, None, 50, bytes).unwrap_err();
            assert_eq!(error.field(), layout::Field::Stored, "{error}");
        };
        refused(&[]);
        refused(&stored[..stored.len() - 1]);
        refused(&[&[9], &stored[1..]].concat());
        let mut twice = stored.clone();
        twice.copy_within(9..15, 15);
        refused(&twice);
        let mut outside = stored.clone();
        outside[9..11].copy_from_slice(&999_u16.to_le_bytes());
        refused(&outside);
    }
}
