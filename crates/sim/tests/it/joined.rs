//! Neighbours on a drive go out as one operation: what this saves, and that whatever happens to the operation is
//! handled for each member separately.

use std::time::Duration;

use array::pool::{Report, SeatState};
use block::{Request, RequestKind, Seat};
use rand::Rng;
use sim::{Counted, CutSpec, Drive, DriveFault, Oracle, Region, Trigger, World, WorldOptions};

const VOLUME: &str = "v";
/// Bytes of a chunk: in small pools an operation that is not joined is at most a chunk long.
const CHUNK: u64 = 4 << 10;

struct Bench {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Bench {
    /// A pool with a volume of which nothing is written.
    fn empty(scheme: &str, drives: u16, seed: u64) -> Self {
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

    fn new(scheme: &str, drives: u16, seed: u64) -> Self {
        let mut bench = Self::empty(scheme, drives, seed);
        bench.write_all();
        bench.world.settle();
        bench
    }

    fn write_all(&mut self) {
        let mut bytes = vec![0; usize::try_from(self.size).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, 0, &bytes).unwrap();
        self.oracle.wrote(0, &bytes);
    }

    fn check_all(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size).unwrap();
        self.oracle.check(0, &read, when);
    }

    fn inject(&mut self, seat: u16, counted: Counted, skip: u64, fault: DriveFault) {
        let trigger = Trigger {
            counted,
            region: Some(Region::Data),
            skip,
        };
        self.world.drive(Seat(seat)).inject(trigger, fault);
    }

    /// Reads and writes of all drives so far, and bytes that were written.
    fn work(&self) -> (u64, u64, u64) {
        let drives = self.world.drives().iter();
        drives.fold((0, 0, 0), |(reads, writes, bytes), drive| {
            let (read, written) = drive.operations();
            (
                reads + read,
                writes + written,
                bytes + drive.written_bytes(),
            )
        })
    }

    fn is_out(&self, seat: u16) -> bool {
        let state = &self.world.pool().facts().seats[usize::from(seat)].state;
        matches!(state, SeatState::Out { .. })
    }

    /// Runs a scrub; returns how many bad blocks it finds.
    fn scrub(&mut self) -> u64 {
        self.world.reports.clear();
        assert!(self.world.begin_scrub());
        self.world.settle();
        self.bad_blocks()
    }

    fn bad_blocks(&self) -> u64 {
        let reports = self.world.reports.iter();
        let bad = reports.filter_map(|report| match report {
            Report::BlockBad { blocks, .. } => Some(*blocks),
            _ => None,
        });
        bad.max().unwrap_or(0)
    }
}

const POOLS: [(&str, u16); 5] = [
    ("raid1:2r", 2),
    ("raid5", 4),
    ("raid6", 6),
    ("raid6:dcode:5c", 5),
    ("pddl2:2d:7c:1s", 7),
];

/// Before, a checkpoint wrote in place block by block: neighbours on a drive lie in different batches and columns of
/// memory.
#[test]
fn a_checkpoint_writes_neighbours_in_few_operations() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::empty(scheme, drives, 3);
        // First writes of whole stripes are in place without a checkpoint.
        bench.write_all();
        bench.world.settle();
        bench.write_all();
        let before = bench.work();
        bench.world.settle();
        let after = bench.work();
        let (writes, bytes) = (after.1 - before.1, after.2 - before.2);
        assert!(bytes / writes > 2 * CHUNK, "{scheme}: {bytes} in {writes}");
        bench.check_all(scheme);
        assert_eq!(bench.scrub(), 0, "{scheme}");
    }
}

/// A client's long read has several chunks of each drive, which are neighbours on the drive and not in the client's
/// memory.
#[test]
fn a_long_read_is_few_operations() {
    let mut bench = Bench::new("raid0", 3, 4);
    let before = bench.work().0;
    bench.check_all("raid0");
    let reads = bench.work().0 - before;
    assert!(
        reads * 4 * CHUNK <= bench.size,
        "{reads} reads of {}",
        bench.size
    );
}

/// The classic fault of joining: after one bad block, all members of the operation count as unreadable.
#[test]
fn a_bad_block_in_a_joined_read_takes_no_other_with_it() {
    for (scheme, drives) in POOLS {
        for skip in 0..6 {
            let mut bench = Bench::new(scheme, drives, 5 + skip);
            let before = bench.work().0;
            bench.inject(1, Counted::Reads, skip, DriveFault::Lse);
            bench.check_all(scheme);
            bench.world.settle();
            let what = format!("{scheme} {skip}: {:?}", bench.world.reports);
            assert!(bench.work().0 > before && bench.bad_blocks() <= 1, "{what}");
            assert!(!bench.is_out(1), "{what}");
            // If the drive has fewer reads than `skip`, the scrub meets the fault.
            let found = bench.bad_blocks();
            assert!(bench.scrub() <= 1 - found, "{what}");
            assert_eq!(bench.scrub(), 0, "{what}: the block was written anew");
        }
    }
}

/// Whatever happens to any write of a checkpoint, on any drive: no data is lost, and every drive that stays has the
/// right blocks.
#[test]
fn each_write_of_a_checkpoint_may_fail_hang_or_take_its_drive_with_it() {
    let faults = [
        DriveFault::Eio { for_good: false },
        DriveFault::Eio { for_good: true },
        DriveFault::Full { for_good: false },
        DriveFault::Gone,
        DriveFault::Hang { for_good: true },
        DriveFault::Stall { millis: 400 },
    ];
    for (scheme, drives) in POOLS {
        for fault in faults {
            for skip in 0..5 {
                let what = format!("{scheme} {fault:?} {skip}");
                let mut bench = Bench::empty(scheme, drives, 11 + skip);
                bench.inject(0, Counted::Writes, skip, fault);
                bench.write_all();
                // Long enough for a drive that hangs to be put out.
                bench.world.settle();
                let once = matches!(
                    fault,
                    DriveFault::Eio { for_good: false } | DriveFault::Stall { .. }
                );
                assert!(!once || !bench.is_out(0), "{what}: a second try is enough");
                bench.check_all(&what);
                bench.write_all();
                bench.world.release();
                bench.world.settle();
                bench.check_all(&what);
                assert_eq!(bench.scrub(), 0, "{what}");
            }
        }
    }
}

/// The same with a write that fails while another drive is out already, where the code survives both: a member that was
/// not written must not count as written.
#[test]
fn a_member_that_failed_is_not_taken_for_written() {
    for skip in 0..12 {
        let mut bench = Bench::empty("raid6", 6, 40 + skip);
        bench.inject(
            0,
            Counted::Writes,
            skip,
            DriveFault::Eio { for_good: false },
        );
        bench.write_all();
        bench.world.settle();
        for seat in [2, 4] {
            bench.world.fail_drive(Seat(seat), false).unwrap();
        }
        bench.check_all("every block of the drive that failed once counts now");
    }
}

/// A joined read that is late is hedged. The memory of its members may be used again only when the drive has answered.
#[test]
fn a_late_joined_read_is_hedged_member_by_member() {
    for (scheme, drives) in POOLS {
        let mut bench = Bench::new(scheme, drives, 21);
        bench.inject(1, Counted::Reads, 0, DriveFault::Hang { for_good: true });
        let request = Request {
            kind: RequestKind::Read,
            offset: 0,
            length: bench.size,
            fua: false,
        };
        let begun = bench.world.now();
        let id = bench.world.submit(VOLUME, request, &[]);
        let read = loop {
            if let Some(ended) = bench.world.ended(id) {
                break ended.unwrap();
            }
            assert!(bench.world.step(), "{scheme}: the request ends");
        };
        let took = bench.world.now().since(begun);
        assert!(took < Duration::from_secs(1), "{scheme}: {took:?}");
        bench.oracle.check(0, &read, scheme);
        // The drive answers at last, when the read has long ended.
        bench.write_all();
        bench.world.release();
        bench.world.settle();
        bench.check_all(scheme);
    }
}

/// The power goes while joined writes are in flight: each of them may be on its medium whole, in part, or not at all.
#[test]
fn a_joined_write_may_be_torn_anywhere() {
    for (scheme, drives) in POOLS {
        for steps in 0..4 {
            let mut bench = Bench::new(scheme, drives, 60 + steps);
            // Logged and flushed: from here on these blocks must survive.
            bench.write_all();
            let flush = Request {
                kind: RequestKind::Flush,
                offset: 0,
                length: 0,
                fua: false,
            };
            let id = bench.world.submit(VOLUME, flush, &[]);
            while bench.world.ended(id).is_none() {
                assert!(bench.world.step());
            }
            // The checkpoint's long writes begin.
            let (_, before, bytes) = bench.work();
            let long = |(_, writes, now): (u64, u64, u64)| {
                writes > before && (now - bytes) / (writes - before) > 2 * CHUNK
            };
            while !long(bench.work()) {
                assert!(bench.world.step(), "a checkpoint comes by itself");
            }
            for _ in 0..7 * steps {
                bench.world.step();
            }
            let loss = bench.world.lose_power();
            for number in 0..loss.writes() {
                for sectors in [1, 11, 40] {
                    let drives = loss.with(CutSpec::TornAt(number, sectors));
                    let mut world = World::open(drives, false, 1).unwrap();
                    let read = world.read(VOLUME, 0, bench.size).unwrap();
                    bench.oracle.check(0, &read, scheme);
                }
            }
        }
    }
}

/// A drive that is new in its seat gets the writes of a checkpoint, joined or not.
#[test]
fn a_replaced_drive_has_every_member() {
    let mut bench = Bench::new("raid5", 4, 80);
    bench.world.fail_drive(Seat(3), false).unwrap();
    let fresh = Drive::new(16 << 20, sim::Pace::Null);
    assert!(bench.world.begin_replace_drive(Seat(3), fresh));
    for _ in 0..40 {
        bench.world.step();
    }
    bench.write_all();
    bench.world.settle();
    assert_eq!(bench.scrub(), 0);
    bench.world.fail_drive(Seat(0), false).unwrap();
    bench.check_all("the new drive has all that the others lack");
}
