//! Whole stripes that are overwritten go to free stripes: what that saves, and that nothing is lost by it.

use std::collections::VecDeque;

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
    /// Groups of eight stripes, two of which are free; chunks are so long that headers, pages and anchors are little beside
    /// them.
    fn new(scheme: &str, drives: u16, code_rows: u64, seed: u64) -> Self {
        let chunk_bytes = 64 << 10;
        let mut world = World::create(&WorldOptions {
            drive_bytes: 128 << 20,
            chunk_bytes,
            cell_bytes: 8 * chunk_bytes * code_rows.next_power_of_two(),
            free_stripes: true,
            seed,
            ..WorldOptions::small(scheme, drives)
        });
        assert!(world.pool().facts().has("free-stripes"), "{scheme}");
        let size = 2 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        world.settle();
        Self {
            world,
            oracle: Oracle::new(size),
            size,
        }
    }

    fn stripe_bytes(&self) -> u64 {
        self.world.pool().geometry().stripe_data_bytes()
    }

    /// Writes everything, a stripe in each request, so many at a time.
    fn write_all(&mut self, depth: usize) {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        let length = self.stripe_bytes();
        let mut in_flight = VecDeque::new();
        for (index, part) in bytes.chunks(usize::try_from(length).unwrap()).enumerate() {
            let request = Request {
                kind: RequestKind::Write,
                offset: index as u64 * length,
                length: part.len() as u64,
                fua: false,
            };
            in_flight.push_back(self.world.submit(VOLUME, request, part));
            if in_flight.len() == depth {
                self.await_first(&mut in_flight);
            }
        }
        while !in_flight.is_empty() {
            self.await_first(&mut in_flight);
        }
        self.oracle.wrote(0, &bytes);
    }

    fn await_first(&mut self, in_flight: &mut VecDeque<u64>) {
        let id = in_flight.pop_front().unwrap();
        loop {
            if let Some(outcome) = self.world.ended(id) {
                outcome.unwrap();
                return;
            }
            assert!(self.world.step(), "a write ends");
        }
    }

    fn flush(&mut self) {
        let flush = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        self.world.request(VOLUME, flush, &[]).unwrap();
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

/// Scheme, drives, data and all columns of a stripe, rows of its code.
const POOLS: [(&str, u16, u64, u64, u64); 7] = [
    ("raid0", 4, 1, 1, 1),
    ("raid1:2r", 2, 1, 2, 1),
    ("raid10", 4, 1, 2, 1),
    ("raid5", 4, 3, 4, 1),
    ("raid6", 6, 4, 6, 1),
    ("raid6:dcode:5c", 5, 3, 5, 5),
    ("pddl2:2d:7c:1s", 7, 2, 4, 1),
];

/// Through the journal they are on the drives twice.
#[test]
fn an_overwrite_is_on_the_drives_once() {
    for (scheme, drives, data, all, rows) in POOLS {
        let mut bench = Bench::new(scheme, drives, rows, 3);
        bench.write_all(4);
        bench.world.settle();
        for turn in 0..3 {
            let before = bench.written_bytes();
            bench.write_all(4);
            bench.world.settle();
            let written = bench.written_bytes() - before;
            let most = bench.size * all / data * 11 / 10;
            assert!(
                written < most,
                "{scheme}, {turn}: {written}, and {most} would be much"
            );
        }
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}

/// The map is durable with the flush that covers its record, wherever it is: in the journal, or in all columns' pages.
#[test]
fn what_has_moved_is_found_after_the_power_and_each_drive() {
    for (scheme, drives, _, _, rows) in POOLS {
        let mut bench = Bench::new(scheme, drives, rows, 5);
        bench.write_all(3);
        bench.write_all(3);
        for settled in [false, true] {
            bench.flush();
            if settled {
                bench.world.settle();
            }
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
}

/// Small writes, trims and reads meet stripes that are not where they were.
#[test]
fn what_has_moved_is_written_trimmed_and_read_in_its_new_place() {
    for (scheme, drives, _, _, rows) in POOLS {
        let mut bench = Bench::new(scheme, drives, rows, 7);
        bench.write_all(4);
        bench.write_all(4);
        let stripe = bench.stripe_bytes();
        for number in 0..bench.size / stripe {
            let offset = number * stripe + 4096;
            let bytes = vec![u8::try_from(number).unwrap() + 1; 8192];
            bench.world.write(VOLUME, offset, &bytes).unwrap();
            bench.oracle.wrote(offset, &bytes);
        }
        let trim = Request {
            kind: RequestKind::Trim,
            offset: stripe,
            length: 3 * stripe,
            fua: false,
        };
        bench.world.request(VOLUME, trim, &[]).unwrap();
        let zeros = vec![0; usize::try_from(3 * stripe).unwrap()];
        bench.oracle.wrote(stripe, &zeros);
        let read = bench.world.read(VOLUME, 0, bench.size).unwrap();
        bench.oracle.check(0, &read, scheme);
        bench.world.settle();
        bench.world.scrub().unwrap();
        bench.world.settle();
        assert_eq!(bench.world.scrub_progress().bad, 0, "{scheme}");
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}
