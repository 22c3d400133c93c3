//! Whole stripes onto space that holds nothing go in place at once: what that saves, and that nothing is lost by it.

use std::collections::VecDeque;

use block::{BLOCK_BYTES, Request, RequestKind, Seat};
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
        Self::of(&WorldOptions {
            seed,
            ..WorldOptions::small(scheme, drives)
        })
    }

    /// With chunks so long that headers, pages and anchors are little beside the blocks.
    fn with_long_chunks(scheme: &str, drives: u16) -> Self {
        Self::of(&WorldOptions {
            drive_bytes: 128 << 20,
            chunk_bytes: 64 << 10,
            cell_bytes: 512 << 10,
            ..WorldOptions::small(scheme, drives)
        })
    }

    fn of(options: &WorldOptions) -> Self {
        let mut world = World::create(options);
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

    /// Requests of a little more than half a stripe, sixteen at a time.
    fn write_neighbours(&mut self) {
        let stripe = self.world.pool().geometry().stripe_data_bytes();
        let length = (stripe / 2 / BLOCK_BYTES + 1) * BLOCK_BYTES;
        let mut bytes = vec![0; usize::try_from(self.size).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        let mut in_flight = VecDeque::new();
        for (index, part) in bytes.chunks(usize::try_from(length).unwrap()).enumerate() {
            let request = Request {
                kind: RequestKind::Write,
                offset: index as u64 * length,
                length: part.len() as u64,
                fua: false,
            };
            in_flight.push_back(self.world.submit(VOLUME, request, part));
            if in_flight.len() == 16 {
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

/// An overwrite of whole stripes is on the drives once in its place, and its data once in the journal, with the parity of
/// batches. A tenth is for headers, pages and anchors; the stripes' parity in the journal would be 17 to 50 in a hundred.
#[test]
fn the_journal_has_no_parity_that_follows_from_its_data() {
    for (scheme, drives, data, all) in POOLS {
        let mut bench = Bench::with_long_chunks(scheme, drives);
        bench.write_all();
        bench.world.settle();
        let before = bench.written_bytes();
        bench.write_all();
        bench.world.settle();
        let written = bench.written_bytes() - before;
        let drives = u64::from(drives);
        let tolerance = u64::from(bench.world.pool().geometry().code().tolerance());
        let in_batches = bench.size * drives / (drives - tolerance);
        let most = (bench.size * all / data + in_batches) * 11 / 10;
        assert!(
            written < most,
            "{scheme}: {written}, and {most} would be much"
        );
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}

/// A page cache writes 64 KiB at a time: several of these are in flight, and none has a stripe of its own. Where such a
/// stream begins and ends, and at the ends of groups, parts of stripes are logged.
#[test]
fn neighbours_in_flight_become_whole_stripes() {
    for (scheme, drives, data, all) in POOLS {
        // A group of this small pool has one stripe of this code: parts at its end are too short to wait.
        if scheme.contains("dcode") {
            continue;
        }
        let mut bench = Bench::new(scheme, drives, 9);
        let before = bench.written_bytes();
        bench.write_neighbours();
        bench.world.settle();
        let first = bench.written_bytes() - before;
        let least = bench.size * all / data;
        assert!(first < least * 9 / 4, "{scheme}: {first} for {least}");
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
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
