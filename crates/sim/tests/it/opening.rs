//! Which drives count when a pool is opened.

use array::pool::{OpenError, SeatState};
use block::Seat;
use sim::{Drive, World, WorldOptions};

const VOLUME: &str = "v";

fn options(scheme: &str, drives: u16) -> WorldOptions {
    WorldOptions {
        cell_bytes: 8192,
        ..WorldOptions::small(scheme, drives)
    }
}

/// The drives of a closed pool with a volume of known bytes.
fn closed(scheme: &str, drives: u16) -> (Vec<Drive>, Vec<u8>) {
    let mut world = World::create(&options(scheme, drives));
    let size = 12 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let bytes: Vec<u8> = (0..size).map(|at| (at / 511 % 251) as u8).collect();
    world.write(VOLUME, 0, &bytes).unwrap();
    (world.close().unwrap(), bytes)
}

fn read_all(world: &mut World, bytes: &[u8]) {
    let read = world.read(VOLUME, 0, bytes.len() as u64).unwrap();
    assert!(read == bytes, "every byte is right");
}

#[test]
fn a_pool_opens_with_its_drives_in_any_order() {
    let (mut drives, bytes) = closed("raid6", 6);
    drives.reverse();
    drives.swap(1, 4);
    let mut world = World::open(drives, false, 2).unwrap();
    read_all(&mut world, &bytes);
    world.settle();
}

#[test]
fn missing_drives_are_out_and_what_is_left_is_served() {
    let (mut drives, bytes) = closed("raid6", 6);
    drives.remove(4);
    drives.remove(1);
    let mut world = World::open(drives, false, 2).unwrap();
    read_all(&mut world, &bytes);
    world.settle();
    let facts = world.pool().facts();
    let out: Vec<u16> = facts
        .seats()
        .filter(|(_, facts)| matches!(facts.state, SeatState::Out { .. }))
        .map(|(seat, _)| seat.0)
        .collect();
    assert_eq!(out, [1, 4]);
}

#[test]
fn half_of_the_drives_do_not_open_by_themselves() {
    // RAID-10: half of the drives can have all the data.
    let (drives, bytes) = closed("raid10", 4);
    let half = || vec![drives[0].clone(), drives[2].clone()];
    let error = World::open(half(), false, 2).err().expect("refused");
    assert!(
        matches!(
            error,
            OpenError::TooFewDrives {
                found: 2,
                expected: 4,
                ..
            }
        ),
        "{error}"
    );
    let message = block::Full(&error).to_string();
    assert!(
        message.contains("only 2 of 4") && message.contains("--degraded"),
        "{message}"
    );
    let mut world = World::open(half(), true, 2).unwrap();
    read_all(&mut world, &bytes);
    world.settle();
}

#[test]
fn too_many_missing_drives_are_refused_though_more_than_half_are_there() {
    let (mut drives, _) = closed("raid5", 6);
    drives.truncate(4);
    let error = World::open(drives, false, 2).err().expect("refused");
    assert!(matches!(error, OpenError::DataLost { .. }), "{error}");
}

#[test]
fn two_halves_that_went_on_alone_are_refused() {
    let (drives, _) = closed("raid10", 4);
    let half = |which: [usize; 2]| {
        let drives = which.map(|at| drives[at].clone()).to_vec();
        let mut world = World::open(drives, true, 2).unwrap();
        world.settle();
        world.close().unwrap()
    };
    let (one, other) = (half([0, 2]), half([1, 3]));
    let together = [one.clone(), other.clone()].concat();
    for degraded in [false, true] {
        let error = World::open(together.clone(), degraded, 3)
            .err()
            .expect("refused");
        assert!(matches!(error, OpenError::SplitBrain { .. }), "{error}");
    }
    // Each half alone still opens.
    assert!(World::open(one, true, 4).is_ok());
    assert!(World::open(other, true, 4).is_ok());
}

#[test]
fn a_minority_that_went_on_alone_does_not_overrule_the_others() {
    let (drives, _) = closed("raid6", 5);
    let opened = |drives: &[Drive]| World::open(drives.to_vec(), true, 2).unwrap();
    let (few, all) = (opened(&drives[..2]), opened(&drives));
    // The labels of the three do not contradict those of the two, which say that the three are out.
    assert_eq!(few.pool().generation(), all.pool().generation());
    let together = [&few.kill()[..], &all.kill()[2..]].concat();
    for degraded in [false, true] {
        let error = World::open(together.clone(), degraded, 3)
            .err()
            .expect("refused");
        assert!(matches!(error, OpenError::SplitBrain { .. }), "{error}");
    }
}

#[test]
fn a_drive_that_missed_something_is_no_read_source() {
    let (mut drives, mut bytes) = closed("raid5", 4);
    let stale = drives.remove(2);
    let mut world = World::open(drives, false, 2).unwrap();
    bytes[..100_000].fill(7);
    world.write(VOLUME, 0, &bytes[..100_000]).unwrap();
    let mut drives = world.close().unwrap();
    drives.insert(0, stale);
    let mut world = World::open(drives, false, 3).unwrap();
    assert!(matches!(
        world.pool().facts().seats[2].state,
        SeatState::Out { .. }
    ));
    read_all(&mut world, &bytes);
    world.settle();
}

#[test]
fn an_old_snapshot_of_a_drive_is_out_as_stale() {
    let (drives, mut bytes) = closed("raid5", 4);
    let snapshot = drives[1].clone();
    let mut world = World::open(drives, false, 2).unwrap();
    bytes.fill(3);
    world.write(VOLUME, 0, &bytes).unwrap();
    let mut drives = world.close().unwrap();
    drives[1] = snapshot;
    let mut world = World::open(drives, false, 3).unwrap();
    assert!(matches!(
        world.pool().facts().seats[1].state,
        SeatState::Out { .. }
    ));
    read_all(&mut world, &bytes);
    world.settle();
}

#[test]
fn a_copied_drive_beside_the_original_is_refused() {
    let (mut drives, _) = closed("raid5", 4);
    drives.push(drives[3].clone());
    let error = World::open(drives, false, 2).err().expect("refused");
    assert!(
        matches!(error, OpenError::Duplicate { seat: Seat(3), .. }),
        "{error}"
    );
}

#[test]
fn parity_is_computed_anew_after_a_kill() {
    let mut world = World::create(&options("raid5", 4));
    let size = 12 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let bytes: Vec<u8> = (0..size).map(|at| (at / 777 % 251) as u8).collect();
    world.write(VOLUME, 0, &bytes).unwrap();
    // A write is interrupted: some drives have it, some do not.
    let request = block::Request {
        kind: block::RequestKind::Write,
        offset: 0,
        length: size,
        fua: false,
    };
    world.submit(VOLUME, request, &vec![0xcc; bytes.len()]);
    for _ in 0..60 {
        world.step();
    }
    let mut world = World::open(world.kill(), false, 2).unwrap();
    world.settle();
    let before = world.read(VOLUME, 0, size).unwrap();
    // Parity agrees with the data that is there now: any drive may be lost.
    world.pull(Seat(0));
    assert!(world.read(VOLUME, 0, size).unwrap() == before);
    for (at, (block, old)) in before.chunks(4096).zip(bytes.chunks(4096)).enumerate() {
        let new = block.iter().all(|&byte| byte == 0xcc);
        assert!(new || block == old, "block {at} is old or new");
    }
    world.settle();
}

/// When a spare takes a seat, the failed drive gets a seat behind those of the layout. Before, an
/// opening counted this seat as one of the layout's: the pool opened with a layout of one drive more,
/// and found no data.
#[test]
fn a_pool_opens_as_wide_as_it_was_after_a_spare_took_a_seat() {
    let mut options = options("raid5", 6);
    options.spares = 1;
    let mut world = World::create(&options);
    let size = 12 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let bytes: Vec<u8> = (0..size).map(|at| (at / 511 % 251) as u8).collect();
    world.write(VOLUME, 0, &bytes).unwrap();
    world.fail_drive(Seat(3), false).unwrap();
    let mut world = World::open(world.close().unwrap(), false, 2).unwrap();
    assert_eq!(world.pool().geometry().layout().drives(), 6);
    read_all(&mut world, &bytes);
    world.settle();
}
