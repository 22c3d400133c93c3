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
