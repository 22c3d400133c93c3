//! A drive that does not answer delays clients no longer than necessary, and its late answers change nothing.

#![expect(clippy::print_stdout, reason = "figures for the documents")]

use std::time::Duration;

use array::pool::{OutReason, Report, SeatState};
use block::{Request, RequestKind, Seat};
use rand::Rng;
use sim::{Counted, Drive, DriveFault, Oracle, Pace, Trigger, World, WorldOptions};
use testing::parts;

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A pool with a volume full of random bytes, all in place.
struct Filled {
    world: World,
    oracle: Oracle,
    size: u64,
}

fn options(scheme: &str, drives: u16) -> WorldOptions {
    WorldOptions {
        seed: 7,
        ..WorldOptions::small(scheme, drives)
    }
}

impl Filled {
    fn new(scheme: &str, drives: u16) -> Self {
        let mut world = World::create(&options(scheme, drives));
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

    /// Runs the world until the request has ended; returns its bytes.
    fn end(&mut self, id: u64) -> Vec<u8> {
        loop {
            if let Some(ended) = self.world.ended(id) {
                return ended.expect("the client sees no fault");
            }
            assert!(self.world.step(), "the request ends");
        }
    }

    /// Runs the world for `time`.
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

/// A test for each of the pools, so that they run side by side.
macro_rules! on_each_pool {
    ($name:ident: $holds:ident) => {
        parts! {
            $name {
                raid1 => $holds(POOLS[0]),
                raid5 => $holds(POOLS[1]),
                raid6 => $holds(POOLS[2]),
                dcode => $holds(POOLS[3]),
                pddl2 => $holds(POOLS[4]),
            }
        }
    };
}

/// Every operation that a hung drive has not answered ends when the drive is taken out: reads into the
/// client's own memory, writes that change part of a block, flushes. Late answers of the drive are ignored,
/// and do not land in memory that another request has by then.
fn goes_on_without_a_hung_drive((scheme, drives): (&str, u16)) {
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
    // A new drive is in the seat when the old drive answers at last.
    let fresh = Drive::new(16 << 20, Pace::Null);
    filled.world.replace_drive(Seat(1), fresh).unwrap();
    filled.world.release();
    filled.world.settle();
    filled.check_all(scheme);
}

on_each_pool!(what_waits_for_a_hung_drive_goes_on_when_it_is_taken_out: goes_on_without_a_hung_drive);

/// The same with writes and a flush in flight when the drive stops answering.
fn writes_without_a_hung_drive((scheme, drives): (&str, u16)) {
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

on_each_pool!(writes_that_a_hung_drive_got_are_done_without_it: writes_without_a_hung_drive);

/// Latencies of single-block reads, one after the other: the median and the 99th percentile.
fn latencies(filled: &mut Filled, count: u64) -> (Duration, Duration) {
    let blocks = filled.size / BLOCK;
    let mut took: Vec<Duration> = (0..count)
        .map(|index| {
            let offset = index * 7 % blocks * BLOCK;
            let begun = filled.world.now();
            let id = filled.submit_read(offset, BLOCK);
            let bytes = filled.end(id);
            filled.oracle.check(offset, &bytes, "a read");
            filled.world.now().since(begun)
        })
        .collect();
    took.sort_unstable();
    (took[took.len() / 2], took[took.len() * 99 / 100])
}

/// A drive that takes a thousand times as long is late a few times, then suspect; from then on reads avoid the
/// drive. Otherwise the slowest tenth of the reads would take 100 ms.
fn reads_beside_a_slow_drive((scheme, drives): (&str, u16)) {
    let mut filled = Filled::new(scheme, drives);
    let healthy = latencies(&mut filled, 4000);
    let slow = DriveFault::Slow { factor: 1000 };
    // Reads of a mirror go to the drive with the first copy.
    let seat = Seat(u16::from(!scheme.starts_with("raid1")));
    filled.world.drive(seat).inject(Trigger::nth(0), slow);
    let before = latencies(&mut filled, 100);
    let after = latencies(&mut filled, 1000);
    println!("{scheme}: healthy {healthy:?}, at first {before:?}, then {after:?}");
    assert!(filled.world.pool().is_suspect(seat), "{scheme}");
    assert!(
        after.1 < healthy.1 * 4,
        "{scheme}: {healthy:?} and {after:?}"
    );
    assert!(
        before.1 < Duration::from_millis(130),
        "{scheme}: {before:?}"
    );
    let out = |report: &Report| matches!(report, Report::DriveOut { .. });
    assert!(!filled.world.reports.iter().any(out), "{scheme}");
}

on_each_pool!(one_slow_drive_does_not_slow_reads: reads_beside_a_slow_drive);

/// The first read that meets a hung drive is answered from other drives as soon as the read counts as late,
/// not only when the drive is put out.
fn reads_beside_a_hung_drive((scheme, drives): (&str, u16)) {
    for (offset, length) in [(0, 3 * BLOCK), (512, 512), (BLOCK - 512, 8 * BLOCK)] {
        let mut filled = Filled::new(scheme, drives);
        latencies(&mut filled, 4000);
        for seat in 0..drives {
            let mut copy = Filled {
                world: filled.world.clone(),
                oracle: filled.oracle.clone(),
                size: filled.size,
            };
            copy.hang(seat);
            let begun = copy.world.now();
            let id = copy.submit_read(offset, length);
            let bytes = copy.end(id);
            copy.oracle.check(offset, &bytes, scheme);
            let took = copy.world.now().since(begun);
            assert!(
                took < Duration::from_millis(30),
                "{scheme} {seat}: {took:?}"
            );
        }
    }
}

on_each_pool!(a_read_does_not_wait_for_the_deadline_of_a_hung_drive: reads_beside_a_hung_drive);

/// A write that needs an old block from a hung drive gets the block from other drives. What the write must
/// store on the hung drive ends when the drive is put out, soon after the deadline.
fn puts_a_hung_drive_out((scheme, drives): (&str, u16)) {
    for seat in 0..drives {
        let mut filled = Filled::new(scheme, drives);
        filled.hang(seat);
        let begun = filled.world.now();
        for round in 0..8 {
            let mut ids = Vec::new();
            for index in 0..6 {
                let at = (round + 8 * index) * filled.size / 48;
                let offset = at / BLOCK * BLOCK + 512;
                let bytes = filled.random(1024);
                let request = Request {
                    kind: RequestKind::Write,
                    offset,
                    length: 1024,
                    fua: true,
                };
                ids.push(filled.world.submit(VOLUME, request, &bytes));
                filled.oracle.wrote(offset, &bytes);
            }
            for id in ids {
                filled.end(id);
            }
        }
        let took = filled.world.now().since(begun);
        let bound = array::DEADLINE + Duration::from_secs(2);
        assert!(took < bound, "{scheme} {seat}: {took:?}");
        let reason = filled.world.reports.iter().find_map(|report| match report {
            Report::DriveOut { seat, reason, .. } => Some((*seat, *reason)),
            _ => None,
        });
        assert_eq!(reason, Some((Seat(seat), OutReason::Hung)), "{scheme}");
        filled.check_all(scheme);
        filled.world.release();
        filled.world.settle();
        filled.check_all(scheme);
    }
}

on_each_pool!(a_hung_drive_is_put_out_at_its_deadline_and_clients_get_their_answers: puts_a_hung_drive_out);

fn outs(world: &World) -> usize {
    let out = |report: &&Report| matches!(report, Report::DriveOut { .. });
    world.reports.iter().filter(out).count()
}

/// A host that is slow, or stops for a while, makes all drives slow at once. No drive is put out or suspected.
fn puts_nobody_out((scheme, drives): (&str, u16)) {
    for fault in [
        DriveFault::Slow { factor: 1000 },
        DriveFault::Stall { millis: 8_000 },
        DriveFault::Stall { millis: 10_400 },
        DriveFault::Stall { millis: 30_000 },
    ] {
        let mut filled = Filled::new(scheme, drives);
        latencies(&mut filled, 4000);
        for seat in 0..drives {
            filled
                .world
                .drive(Seat(seat))
                .inject(Trigger::nth(0), fault);
        }
        let ids: Vec<u64> = (0..64)
            .map(|index| filled.submit_read(index * filled.size / 64 / BLOCK * BLOCK, BLOCK))
            .collect();
        let bytes = filled.random(filled.size / 2);
        let request = Request {
            kind: RequestKind::Write,
            offset: 0,
            length: bytes.len() as u64,
            fua: true,
        };
        let write = filled.world.submit(VOLUME, request, &bytes);
        filled.oracle.wrote(0, &bytes);
        for id in ids {
            filled.end(id);
        }
        filled.end(write);
        let reads = latencies(&mut filled, 200);
        println!("{scheme}, all {fault:?}: {reads:?}");
        let suspects = (0..drives).filter(|&seat| filled.world.pool().is_suspect(Seat(seat)));
        assert_eq!(
            (outs(&filled.world), suspects.count()),
            (0, 0),
            "{scheme} {fault:?}"
        );
        filled.world.settle();
        filled.check_all(scheme);
    }
}

on_each_pool!(when_all_drives_are_slow_nobody_is_put_out: puts_nobody_out);

/// raid5 survives the loss of one drive, and two do not answer. At most one of them is put out; requests that
/// do not need the other are served. When both answer again, all data is there.
#[test]
fn of_two_slow_drives_in_raid5_at_most_one_is_put_out() {
    for fault in [
        DriveFault::Slow { factor: 1000 },
        DriveFault::Slow { factor: 100_000 },
        DriveFault::Hang { for_good: true },
    ] {
        let mut filled = Filled::new("raid5", 6);
        latencies(&mut filled, 1000);
        for seat in [1, 4] {
            filled
                .world
                .drive(Seat(seat))
                .inject(Trigger::nth(0), fault);
        }
        let ids: Vec<(u64, u64)> = (0..filled.size / BLOCK)
            .map(|block| (block * BLOCK, filled.submit_read(block * BLOCK, BLOCK)))
            .collect();
        filled.run(Duration::from_mins(5));
        assert!(
            outs(&filled.world) <= 1,
            "{fault:?}: {:#?}",
            filled.world.reports
        );
        for seat in [1, 4] {
            filled.world.drive(Seat(seat)).recover();
        }
        filled.world.release();
        for (offset, id) in ids {
            let bytes = filled.end(id);
            filled.oracle.check(offset, &bytes, "a read");
        }
        filled.check_all("afterwards");
    }
}

/// Suspicion ends after a clean time, returns with the next slowness, and then lasts twice as long.
#[test]
fn a_drive_that_was_slow_is_trusted_again_after_a_clean_time() {
    let mut filled = Filled::new("raid6", 6);
    latencies(&mut filled, 1000);
    let mut spans = Vec::new();
    for _ in 0..3 {
        let slow = DriveFault::Slow { factor: 1000 };
        filled.world.drive(Seat(2)).inject(Trigger::nth(0), slow);
        while !filled.world.pool().is_suspect(Seat(2)) {
            latencies(&mut filled, 100);
        }
        filled.world.drive(Seat(2)).recover();
        let begun = filled.world.now();
        while filled.world.pool().is_suspect(Seat(2)) {
            latencies(&mut filled, 100);
            filled.run(Duration::from_millis(100));
        }
        spans.push(filled.world.now().since(begun).as_secs());
    }
    assert!((29..=31).contains(&spans[0]), "{spans:?}");
    assert!((58..=62).contains(&spans[1]), "{spans:?}");
    assert!((116..=124).contains(&spans[2]), "{spans:?}");
    assert_eq!(outs(&filled.world), 0);
}

/// An operation that fails once is tried again: one error puts no drive out.
#[test]
fn one_failed_write_puts_nobody_out() {
    for (scheme, drives) in POOLS {
        let mut filled = Filled::new(scheme, drives);
        for (seat, skip) in (0..drives).flat_map(|seat| [(seat, 0), (seat, 3)]) {
            let trigger = Trigger {
                counted: Counted::Writes,
                region: None,
                skip,
            };
            let eio = DriveFault::Eio { for_good: false };
            filled.world.drive(Seat(seat)).inject(trigger, eio);
        }
        for index in 0..8 {
            let offset = index * filled.size / 8 / BLOCK * BLOCK;
            let bytes = filled.random(2 * BLOCK);
            filled.world.write(VOLUME, offset, &bytes).unwrap();
            filled.oracle.wrote(offset, &bytes);
        }
        filled.world.settle();
        assert_eq!(
            outs(&filled.world),
            0,
            "{scheme}: {:#?}",
            filled.world.reports
        );
        filled.check_all(scheme);
    }
}

/// A spare takes the seat of a hung drive, and the hung drive gets another seat. The drive may not return
/// there before it has answered: its earlier operations could still be carried out.
#[test]
fn a_drive_that_hangs_is_not_put_in_again_where_a_spare_was() {
    let mut world = World::create(&WorldOptions {
        spares: 1,
        ..options("raid5", 4)
    });
    let size = 4 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    world.settle();
    let fault = DriveFault::Hang { for_good: true };
    world.drive(Seat(1)).inject(Trigger::nth(0), fault);
    let bytes = vec![1; usize::try_from(size).unwrap()];
    world.write(VOLUME, 0, &bytes).unwrap();
    for _ in 0..2000 {
        world.step();
    }
    let facts = world.pool().facts();
    assert!(facts.seats[1].state.takes_part(), "the spare sits there");
    let old = Seat(4);
    assert!(matches!(facts.seats[4].state, SeatState::Out { .. }));
    assert!(world.pool().is_draining(old), "it has not answered");
    assert!(!world.begin_return_drive(old, None));
    world.release();
    world.settle();
    assert!(!world.pool().is_draining(old));
}
