//! Long reads wait for a drive that has enough of them and go out with their neighbours; whatever happens to the drive
//! meanwhile, they end, with what was written.

use block::{Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{DriveFault, Oracle, Trigger, World, WorldOptions};

const VOLUME: &str = "v";

/// Schemes whose lanes hold reads in the simulator, as they have free stripes and no mirrors.
const POOLS: [(&str, u16); 4] = [
    ("raid5", 4),
    ("raid6", 6),
    ("raid6:dcode:5c", 5),
    ("pddl2:2d:7c:1s", 7),
];

/// A full volume, and what is in it.
fn full(scheme: &str, drives: u16) -> (World, Oracle) {
    let small = WorldOptions::small(scheme, drives);
    let mut world = World::create(&WorldOptions {
        drive_bytes: 56 << 20,
        cell_bytes: 4 * small.cell_bytes,
        free_stripes: true,
        ..small
    });
    let size = 2 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, 0, &bytes).unwrap();
    let mut oracle = Oracle::new(size);
    oracle.wrote(0, &bytes);
    world.settle();
    (world, oracle)
}

const fn read(offset: u64, length: u64) -> Request {
    Request {
        kind: RequestKind::Read,
        offset,
        length,
        fua: false,
    }
}

/// A stream of reads of four chunks each, all at once; then `happens`; then all of them end.
fn stream(world: &mut World, oracle: &Oracle, size: u64, happens: impl FnOnce(&mut World)) {
    let length = 4 * world.pool().geometry().chunk_bytes();
    let asked: Vec<(u64, u64)> = (0..size / length)
        .map(|number| number * length)
        .map(|offset| (offset, world.submit(VOLUME, read(offset, length), &[])))
        .collect();
    happens(world);
    for (offset, id) in asked {
        let bytes = loop {
            if let Some(end) = world.ended(id) {
                break end.unwrap();
            }
            assert!(world.step(), "every request ends");
        };
        oracle.check(offset, &bytes, "a stream");
    }
    world.settle();
}

#[test]
fn a_stream_of_many_requests_takes_few_operations() {
    for (scheme, drives) in POOLS {
        let (mut world, oracle) = full(scheme, drives);
        let size = 2 * world.pool().geometry().group_data_bytes();
        let chunk = world.pool().geometry().chunk_bytes();
        let before = world.ios();
        stream(&mut world, &oracle, size, |_| {});
        let operations = world.ios() - before;
        let chunks = size / chunk;
        assert!(
            operations * 2 <= chunks,
            "{scheme}: {operations} operations for {chunks} chunks"
        );
    }
}

#[test]
fn reads_end_when_a_drive_fails_or_hangs_or_has_bad_blocks_while_they_wait() {
    for (scheme, drives) in POOLS {
        let (whole, oracle) = full(scheme, drives);
        let size = 2 * whole.pool().geometry().group_data_bytes();
        for round in 0..30_u64 {
            let mut world = whole.clone();
            world.reseed(round);
            let seat = Seat(u16::try_from(round % u64::from(drives)).unwrap());
            let steps = world.rng().random_range(0..40);
            stream(&mut world, &oracle, size, |world| {
                for _ in 0..steps {
                    world.step();
                }
                let next = Trigger::nth(0);
                match round % 4 {
                    0 => world.fail_drive(seat, false).unwrap(),
                    1 => world.drive(seat).inject(next, DriveFault::Gone),
                    2 => {
                        let stall = DriveFault::Stall { millis: 700 };
                        world.drive(seat).inject(next, stall);
                    }
                    _ => world.drive(seat).inject(next, DriveFault::Lse),
                }
            });
            // And again, of a drive that is out or in doubt.
            stream(&mut world, &oracle, size, |_| {});
        }
    }
}
