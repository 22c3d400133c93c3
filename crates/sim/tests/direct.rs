//! Whole stripes onto space that holds nothing go in place at once: what that saves, and that nothing is lost by it.

use block::{Request, RequestKind, Seat};
use rand::Rng;
use sim::{CutSpec, Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";

struct Bench {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Bench {
    fn new(scheme: &str, drives: u16, seed: u64) -> Self {
        let mut world = World::create(&WorldOptions {
            seed,
            ..WorldOptions::small(scheme, drives)
        });
        let size = 8 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        world.settle();
        Self {
            world,
            oracle: Oracle::new(size),
            size,
        }
    }

    fn write_all(&mut self) {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, 0, &bytes).unwrap();
        self.oracle.wrote(0, &bytes);
    }

    fn written_bytes(&self) -> u64 {
        self.world.drives().iter().map(Drive::written_bytes).sum()
    }

    fn check(&self, drives: Vec<Drive>, when: &str) {
        let mut world = World::open(drives, true, 1).unwrap();
        world.settle();
        let read = world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }
}

/// Scheme, drives, data and all columns of a stripe.
const POOLS: [(&str, u16, u64, u64); 7] = [
    ("raid0", 4, 1, 1),
    ("raid1:2r", 2, 1, 2),
    ("raid10", 4, 1, 2),
    ("raid5", 4, 3, 4),
    ("raid6", 6, 4, 6),
    ("raid6:dcode:5c", 5, 3, 5),
    ("pddl2:2d:7c:1s", 7, 2, 4),
];

/// Through the journal they were on the drives twice, and its parity with them.
#[test]
fn a_first_write_is_on_the_drives_once() {
    for (scheme, drives, data, all) in POOLS {
        let mut bench = Bench::new(scheme, drives, 3);
        let before = bench.written_bytes();
        bench.write_all();
        bench.world.settle();
        let first = bench.written_bytes() - before;
        bench.write_all();
        bench.world.settle();
        let second = bench.written_bytes() - before - first;
        let least = bench.size * all / data;
        assert!(first < least * 2, "{scheme}: {first} for {least}");
        assert!(second > first * 3 / 2, "{scheme}: {second} for {least}");
    }
}

/// The record is flushed with what it is about.
#[test]
fn what_is_flushed_survives_the_power_and_each_drive() {
    for (scheme, drives, _, _) in POOLS {
        let mut bench = Bench::new(scheme, drives, 5);
        bench.write_all();
        let flush = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        bench.world.request(VOLUME, flush, &[]).unwrap();
        let left = bench.world.clone().cut(CutSpec::None);
        bench.check(left.clone(), scheme);
        if scheme == "raid0" {
            continue;
        }
        for gone in 0..drives {
            let mut left = left.clone();
            left.remove(Seat(gone).index());
            bench.check(left, &format!("{scheme} without drive {gone}"));
        }
    }
}
