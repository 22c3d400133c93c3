//! A drive that does not answer holds nobody up for longer than it must, and what it says at last
//! touches nothing.

use std::time::Duration;

use block::{Request, RequestKind, Seat};
use rand::Rng;
use sim::{Drive, DriveFault, Oracle, Pace, Trigger, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A pool with a volume full of random bytes, all in place.
struct Filled {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Filled {
    fn new(scheme: &str, drives: u16) -> Self {
        let mut world = World::create(&WorldOptions {
            scheme: scheme.to_owned(),
            drives,
            spares: 0,
            drive_bytes: 16 << 20,
            chunk_bytes: 4096,
            cell_bytes: 32768,
            division: None,
            pace: Pace::Null,
            seed: 7,
        });
        let size = 8 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut filled = Self {
            world,
            oracle: Oracle::new(size),
            size,
        };
        let bytes = filled.random(size);
        filled.world.write(VOLUME, 0, &bytes).unwrap();
        filled.oracle.wrote(0, &bytes);
        filled.world.settle();
        filled
    }

    fn random(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        bytes
    }

    /// From now on the seat's drive answers nothing.
    fn hang(&mut self, seat: u16) {
        let fault = DriveFault::Hang { for_good: true };
        self.world.drive(Seat(seat)).inject(Trigger::nth(0), fault);
    }

    fn submit_read(&mut self, offset: u64, length: u64) -> u64 {
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        self.world.submit(VOLUME, request, &[])
    }

    /// Lets things happen until a request has ended; what it brought.
    fn end(&mut self, id: u64) -> Vec<u8> {
        loop {
            if let Some(ended) = self.world.ended(id) {
                return ended.expect("the client sees no fault");
            }
            assert!(self.world.step(), "the request ends");
        }
    }

    /// Lets things happen for a while.
    fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while self.world.now() < until && self.world.step() {}
    }

    fn check_all(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }
}

const POOLS: [(&str, u16); 5] = [
    ("raid1:2r", 2),
    ("raid5", 5),
    ("raid6", 6),
    ("raid6:dcode:5c", 5),
    ("pddl2:2d:7c:1s", 7),
];

/// Whatever a hung drive was asked ends when it is taken out: reads in the client's own memory, writes
/// that change part of a block, flushes. What it says afterwards is looked at by nobody, and does not
/// land in memory that is another's by then.
#[test]
fn what_waits_for_a_hung_drive_goes_on_when_it_is_taken_out() {
    for (scheme, drives) in POOLS {
        let mut filled = Filled::new(scheme, drives);
        filled.hang(1);
        let size = filled.size;
        let reads: Vec<(u64, u64)> = (0..size / BLOCK / 4)
            .map(|index| (index * 4 * BLOCK, 3 * BLOCK))
            .map(|(offset, length)| (offset + 512, length))
            .collect();
        let ids: Vec<(u64, u64, u64)> = reads
            .iter()
            .map(|&(offset, length)| (filled.submit_read(offset, length), offset, length))
            .collect();
        filled.run(Duration::from_millis(1));
        filled.world.fail_drive(Seat(1), false).unwrap();
        for (id, offset, length) in ids {
            let bytes = filled.end(id);
            assert_eq!(bytes.len() as u64, length);
            filled.oracle.check(offset, &bytes, scheme);
        }
        for (offset, length) in [
            (512, 1024),
            (size / 2 - 512, BLOCK + 512),
            (size / 3 / 512 * 512, 2048),
        ] {
            let bytes = filled.random(length);
            filled.world.write(VOLUME, offset, &bytes).unwrap();
            filled.oracle.wrote(offset, &bytes);
        }
        filled.world.settle();
        filled.check_all(scheme);
        // A new drive sits in the seat when the old one answers at last.
        let fresh = Drive::new(16 << 20, Pace::Null);
        filled.world.replace_drive(Seat(1), fresh).unwrap();
        filled.world.release();
        filled.world.settle();
        filled.check_all(scheme);
    }
}

/// The same with writes and a flush under way when the drive goes silent.
#[test]
fn writes_that_a_hung_drive_got_are_done_without_it() {
    for (scheme, drives) in POOLS {
        for seat in 0..drives {
            let mut filled = Filled::new(scheme, drives);
            filled.hang(seat);
            let mut ids = Vec::new();
            for index in 0..12 {
                let (offset, length) = (index * filled.size / 12 / 512 * 512, 3 * BLOCK + 512);
                let length = length.min(filled.size - offset);
                let bytes = filled.random(length);
                let request = Request {
                    kind: RequestKind::Write,
                    offset,
                    length,
                    fua: index % 3 == 0,
                };
                ids.push(filled.world.submit(VOLUME, request, &bytes));
                filled.oracle.wrote(offset, &bytes);
            }
            filled.run(Duration::from_millis(2));
            filled.world.fail_drive(Seat(seat), false).unwrap();
            for id in ids {
                filled.end(id);
            }
            filled.check_all(scheme);
            filled.world.release();
            filled.world.settle();
            filled.check_all(scheme);
        }
    }
}
