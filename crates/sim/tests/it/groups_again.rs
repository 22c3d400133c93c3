//! A volume leaves groups with columns in spare space, and the next volume gets these groups when the home drive is back:
//! the columns are at home from the beginning, and nothing is copied.

use array::pool::{Report, SeatState};
use block::Seat;
use rand::Rng;
use sim::{Drive, DriveFault, Trigger, World, WorldOptions};

const VOLUME: &str = "v";
const SEAT: Seat = Seat(1);

fn size(world: &World) -> u64 {
    12 * world.pool().geometry().group_data_bytes()
}

fn create(world: &mut World) {
    let size = size(world);
    world.create_volume(VOLUME, size).unwrap();
}

/// Writes all of the volume. Returns what was written.
fn write(world: &mut World) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(size(world)).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, 0, &bytes).unwrap();
    bytes
}

/// A pool without a volume. All drives are complete, and groups have columns in spare space.
fn with_columns_in_spare_space(lazy: bool) -> World {
    let options = WorldOptions {
        lazy,
        ..WorldOptions::small("pddl2:2d:7c:1s", 7)
    };
    let mut world = World::create(&options);
    create(&mut world);
    write(&mut world);
    world.fail_drive(SEAT, false).unwrap();
    world.settle();
    assert!(
        world.pool().progress().cells_done > 0,
        "rebuilt into spares"
    );
    world.delete_volume(VOLUME).unwrap();
    let drive = Drive::new(options.drive_bytes, options.pace);
    world.replace_drive(SEAT, drive).unwrap();
    world.settle();
    assert_eq!(
        world.pool().facts().seats[SEAT.index()].state,
        SeatState::Current
    );
    world
}

fn rebuilds(world: &World) -> usize {
    let begins = |report: &&Report| matches!(report, Report::RebuildBegins { .. });
    world.reports.iter().filter(begins).count()
}

#[test]
fn columns_of_groups_that_are_given_again_are_at_home() {
    for lazy in [false, true] {
        let mut world = with_columns_in_spare_space(lazy);
        let before = (rebuilds(&world), world.pool().progress().copied_bytes);
        create(&mut world);
        let bytes = write(&mut world);
        world.settle();
        let after = (rebuilds(&world), world.pool().progress().copied_bytes);
        assert_eq!(after, before, "nothing is copied, lazy: {lazy}");
        for first in 0..7 {
            for second in 0..first {
                let mut world = world.clone();
                for seat in [first, second] {
                    world.pull(Seat(seat));
                }
                let read = world.read(VOLUME, 0, size(&world)).unwrap();
                assert!(read == bytes, "without {first} and {second}, lazy: {lazy}");
            }
        }
    }
}

#[test]
fn a_drive_with_spare_cells_may_leave_while_groups_are_made_blank() {
    for lazy in [false, true] {
        let begun = with_columns_in_spare_space(lazy);
        for other in (0..7).map(Seat).filter(|&seat| seat != SEAT) {
            for operations in 0..40 {
                let mut world = begun.clone();
                let trigger = Trigger::nth(operations);
                world.drive(other).inject(trigger, DriveFault::Gone);
                create(&mut world);
                let bytes = write(&mut world);
                world.settle();
                // All columns are in spare space or at home: two more drives may fail.
                for further in [1, 2] {
                    world.pull(Seat((other.0 + further) % 7));
                }
                let read = world.read(VOLUME, 0, size(&world)).unwrap();
                assert!(read == bytes, "without {other}, lazy: {lazy}");
            }
        }
    }
}
