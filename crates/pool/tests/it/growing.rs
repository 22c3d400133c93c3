//! Pools that cannot grow, or not by these drives: each is refused with what is wrong, and nothing changes.

use block::{Hint, Instant, Seat};
use pool::{GrowError, NewDrive, OutReason, Pool, PoolError, PoolSpec, Ticket, create};
use uuid::Uuid;

use crate::support::{DRIVE_BYTES, spec};

fn pool(scheme: &str, drives: u128, spares: u128) -> Pool {
    let spec = PoolSpec {
        scheme: scheme.parse().unwrap(),
        ..spec(drives, spares)
    };
    create(&spec, Ticket(0)).unwrap()
}

fn fresh(number: u128, size_bytes: u64) -> NewDrive {
    let path = format!("/dev/new{number}");
    NewDrive::new(Uuid::from_u128(0xF000 + number), path, size_bytes)
}

/// The error of an expansion, which has changed nothing.
fn refused(pool: &mut Pool, drives: &[NewDrive], waiting: &[Seat]) -> GrowError {
    let before = (pool.facts().clone(), pool.generation());
    let error = pool.expand(Instant::ZERO, drives.to_vec(), waiting, Ticket(9));
    let Err(PoolError::Grow { error }) = error else {
        panic!("{error:?}");
    };
    assert_eq!((pool.facts().clone(), pool.generation()), before);
    assert!(!pool.is_growing());
    assert!(error.hint().is_some(), "{error}");
    error
}

#[test]
fn only_pools_of_pieces_grow() {
    for scheme in ["raid6", "raid10", "pddl1:2d:1s"] {
        let error = refused(&mut pool(scheme, 8, 0), &[fresh(0, DRIVE_BYTES)], &[]);
        assert!(matches!(error, GrowError::NotPieces { .. }), "{error}");
        assert!(error.hint().unwrap().contains("ddp"));
    }
    let error = refused(
        &mut pool("ddp:2d:2p:4f", 8, 0),
        &[fresh(0, DRIVE_BYTES)],
        &[],
    );
    assert!(matches!(error, GrowError::Domains { .. }), "{error}");
}

#[test]
fn drives_that_cannot_join_are_refused_by_name() {
    let mut pool = pool("ddp:2d:1p", 6, 1);
    assert_eq!(refused(&mut pool, &[], &[]), GrowError::NoDrives);
    let (one, small) = (fresh(1, DRIVE_BYTES), fresh(2, DRIVE_BYTES / 2));
    let twice = refused(&mut pool, &[one.clone(), one.clone()], &[]);
    assert_eq!(twice.to_string(), "/dev/new1 was named twice");
    let needed_bytes = pool.needed_bytes();
    let error = refused(&mut pool, &[one, small], &[]);
    let said = format!(
        "/dev/new2 has {} bytes, the pool needs {needed_bytes} of each drive",
        DRIVE_BYTES / 2
    );
    assert_eq!(error.to_string(), said);
    for seat in [Seat(2), Seat(7)] {
        assert_eq!(
            refused(&mut pool, &[], &[seat]),
            GrowError::NotWaiting { seat }
        );
    }
    let twice = refused(&mut pool, &[], &[Seat(6), Seat(6)]);
    assert!(matches!(twice, GrowError::Twice { .. }), "{twice}");
}

#[test]
fn a_pool_without_a_drive_or_one_that_grows_already_does_not_grow() {
    let mut grows = pool("ddp:2d:1p", 6, 0);
    let drive = fresh(1, DRIVE_BYTES);
    let planned = grows.plan_growth(1).unwrap();
    assert_eq!((planned.drives, planned.columns), ((6, 7), 0));
    assert!(planned.capacity_bytes.1 > planned.capacity_bytes.0);
    grows
        .expand(Instant::ZERO, vec![drive.clone()], &[], Ticket(1))
        .unwrap();
    assert!(grows.is_growing());
    assert_eq!(
        grows.check_expand(std::slice::from_ref(&drive), &[]),
        Err(GrowError::Grows)
    );
    let mut degraded = pool("ddp:2d:1p", 6, 0);
    let failed = OutReason::FailedByAdministrator;
    degraded
        .fail_drive(Instant::ZERO, Seat(3), failed, false, Ticket(1))
        .unwrap();
    let (seat, out) = (Seat(3), true);
    assert_eq!(
        refused(&mut degraded, &[drive], &[]),
        GrowError::NotWhole { seat, out }
    );
}

/// A table has six bytes for each piece, in hexadecimal twelve, and three quarters of a label.
#[test]
fn a_table_that_would_not_fit_into_a_label_names_the_pieces_with_which_it_would() {
    let mut drives = spec(12, 0).drives;
    for drive in &mut drives {
        drive.size_bytes = 64 * DRIVE_BYTES;
    }
    let with = |cell_bytes, drives| PoolSpec {
        scheme: "ddp:2d:1p:1s".parse().unwrap(),
        cell_bytes,
        drives,
        ..spec(0, 0)
    };
    let mut full = create(&with(None, drives.clone()), Ticket(0)).unwrap();
    let mut joins = 1;
    let error = loop {
        let drives: Vec<NewDrive> = (0..joins).map(|of| fresh(of, 64 * DRIVE_BYTES)).collect();
        match full.check_expand(&drives, &[]) {
            Ok(()) => joins += 4,
            Err(_) => break refused(&mut full, &drives, &[]),
        }
        assert!(joins < 2000, "a label has room for {joins} drives");
    };
    let GrowError::TableTooLarge {
        bytes,
        room,
        piece_bytes,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert!(bytes > room);
    // On so many drives a new pool with these pieces has a table that fits.
    let more = (0..joins).map(|of| fresh(of, 64 * DRIVE_BYTES));
    drives.extend(more);
    let made = create(&with(Some(piece_bytes), drives), Ticket(0)).unwrap();
    let table = made.facts().layout_table.as_ref().unwrap().len();
    assert!(u64::try_from(table).unwrap() <= room);
}
