//! Long reads wait while their drive has enough of them, and go out with their neighbours. Whatever happens to the
//! drive meanwhile, the reads end with the data that was written.

use block::Seat;
use rand::RngExt;
use sim::{DriveFault, Trigger, WorldOptions};

use crate::support::Bench;

/// Schemes whose lanes hold reads in the simulator, as they have free stripes and no mirrors.
const POOLS: [(&str, u16); 4] = [
    ("raid5", 4),
    ("raid6", 6),
    ("raid6:dcode:5c", 5),
    ("pddl2:2d:7c:1s", 7),
];

/// A full volume.
fn full(scheme: &str, drives: u16) -> Bench {
    let small = WorldOptions::small(scheme, drives);
    let options = WorldOptions {
        drive_bytes: 56 << 20,
        cell_bytes: 4 * small.cell_bytes,
        free_stripes: true,
        ..small
    };
    let mut bench = Bench::of(&options, 2);
    bench.write_all();
    bench.world.settle();
    bench
}

#[test]
fn a_stream_of_many_requests_takes_few_operations() {
    for (scheme, drives) in POOLS {
        let mut bench = full(scheme, drives);
        let chunk = bench.world.pool().geometry().chunk_bytes();
        let before = bench.world.ios();
        bench.read_in_parts(4 * chunk, |_| {});
        bench.world.settle();
        let operations = bench.world.ios() - before;
        let chunks = bench.size / chunk;
        assert!(
            operations * 2 <= chunks,
            "{scheme}: {operations} operations for {chunks} chunks"
        );
    }
}

#[test]
fn reads_end_when_a_drive_fails_or_stalls_or_has_a_bad_block_while_they_wait() {
    for (scheme, drives) in POOLS {
        let whole = full(scheme, drives);
        let length = 4 * whole.world.pool().geometry().chunk_bytes();
        for round in 0..30_u64 {
            let mut bench = whole.clone();
            bench.world.reseed(round);
            let seat = Seat(u16::try_from(round % u64::from(drives)).unwrap());
            let steps = bench.world.rng().random_range(0..40);
            bench.read_in_parts(length, |world| {
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
            bench.world.settle();
            // Again, with a drive that is out or suspect.
            bench.read_in_parts(length, |_| {});
            bench.world.settle();
        }
    }
}
