//! Drives that cannot be spared refuse operations: lanes try again at growing intervals, and requests end
//! in errors. When the drives accept all operations again, the pool goes on without a command.
//!
//! Before, a lane began the next try as soon as the last one had failed: 20 million events in three
//! minutes, and no request ever ended.

use std::time::Duration;

use array::pool::Report;
use block::{BLOCK_BYTES, Fault, Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::{Counted, DriveFault, Oracle, Region, Trigger, World, WorldOptions};

const VOLUME: &str = "v";
/// Requests that the client has in flight.
const DEPTH: usize = 8;
/// More faults than a lane may meet in a minute. A lane without back-off meets them within a second.
const FAULTS: u64 = 4_000;
/// A request ends after two waits at the most: its own, and that of the checkpoint before it.
const ENDS_WITHIN: Duration = Duration::from_secs(6);

/// What the drives refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refused {
    Writes(Fault),
    Flushes,
}

struct Bench {
    world: World,
    oracle: Oracle,
    size: u64,
    blocks: u64,
}

impl Bench {
    fn new(scheme: &str, drives: u16, seed: u64) -> Self {
        let mut world = World::create(&WorldOptions {
            seed,
            ..WorldOptions::small(scheme, drives)
        });
        let size = 8 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        world.rng().fill_bytes(&mut bytes);
        world.write(VOLUME, 0, &bytes).unwrap();
        oracle.wrote(0, &bytes);
        world.settle();
        Self {
            world,
            oracle,
            size,
            blocks: size / BLOCK_BYTES,
        }
    }

    /// From now on the drives in these seats refuse. The regions before the journal have their space
    /// already.
    fn refuse(&mut self, seats: &[u16], refused: Refused) {
        let (counted, regions, fault) = match refused {
            Refused::Writes(fault) => (
                Counted::Writes,
                vec![
                    Some(Region::Journal),
                    Some(Region::Metadata),
                    Some(Region::Data),
                ],
                fault,
            ),
            Refused::Flushes => (Counted::Flushes, vec![None], Fault::Medium),
        };
        let fault = match fault {
            Fault::Full => DriveFault::Full { for_good: false },
            _ => DriveFault::Eio { for_good: false },
        };
        for &seat in seats {
            for &region in &regions {
                for skip in 0..FAULTS {
                    let trigger = Trigger {
                        counted,
                        region,
                        skip,
                    };
                    self.world.drive(Seat(seat)).inject(trigger, fault);
                }
            }
        }
    }

    fn submit(&mut self, kind: RequestKind) -> (u64, block::Instant) {
        let length = if kind == RequestKind::Write {
            BLOCK_BYTES
        } else {
            0
        };
        // The first half of the volume is never written.
        let block = self.world.rng().random_range(self.blocks / 2..self.blocks);
        let offset = if length > 0 { block * BLOCK_BYTES } else { 0 };
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        (self.world.submit(VOLUME, request, &bytes), self.world.now())
    }

    /// A client that writes and flushes for `time`, and begins a new request after each end, success or
    /// error. Returns how many of its requests succeeded, and how many failed.
    fn hammer(&mut self, time: Duration, requests_max: u64) -> (u64, u64) {
        let until = self.world.now() + time;
        let mut open = Vec::new();
        let (mut well, mut ill, mut next) = (0, 0, 0_u64);
        let begun = self.world.ios();
        while self.world.now() < until {
            let (now, ios) = (self.world.now(), self.world.ios() - begun);
            assert!(
                next < requests_max,
                "{next} requests, {well} well and {ill} not, {ios} operations by {now} of {until}: {:#?}",
                self.world.reports
            );
            while open.len() < DEPTH {
                next += 1;
                let kind = if next.is_multiple_of(4) {
                    RequestKind::Flush
                } else {
                    RequestKind::Write
                };
                open.push(self.submit(kind));
            }
            assert!(self.world.step(), "requests wait, and nothing happens");
            let now = self.world.now();
            let world = &mut self.world;
            open.retain(|&(id, since)| match world.ended(id) {
                Some(end) => {
                    well += u64::from(end.is_ok());
                    ill += u64::from(end.is_err());
                    false
                }
                None => {
                    assert!(now.since(since) < ENDS_WITHIN, "a request waits for {now}");
                    true
                }
            });
        }
        while let Some((id, _)) = open.pop() {
            while self.world.ended(id).is_none() {
                assert!(self.world.step(), "every request ends");
            }
        }
        (well, ill)
    }

    fn run(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while self.world.now() < until && self.world.step() {}
    }

    fn end_of_faults(&mut self) {
        for drive in self.world.drives_mut() {
            drive.stop_faults();
        }
    }

    fn count(&self, what: impl Fn(&Report) -> bool) -> usize {
        self.world
            .reports
            .iter()
            .filter(|&report| what(report))
            .count()
    }
}

/// A minute of refusals: few tries, few reports, every request ends. Then the pool goes on.
fn a_minute_of(refused: Refused, out: &[u16], seats: &[u16], seed: u64) {
    let what = format!("{refused:?} on {seats:?} with {out:?} out, seed {seed}");
    let mut bench = Bench::new("raid6", 6, seed);
    for &seat in out {
        bench.world.fail_drive(Seat(seat), false).unwrap();
    }
    bench.world.settle();
    bench.refuse(seats, refused);
    bench.world.reports.clear();
    let before = bench.world.ios();
    // The first failures put out the drives that can be spared, and fill the journal's memory.
    bench.hammer(Duration::from_secs(10), 20_000);
    let begun = bench.world.ios();
    let (_, ill) = bench.hammer(Duration::from_secs(50), 20_000);
    assert!(ill > 0, "{what}: the client is told");
    let ios = bench.world.ios() - begun;
    assert!(ios < 20_000, "{what}: {ios} operations in 50 s");
    let reports = bench.world.reports.len();
    assert!(
        reports < 40,
        "{what}: {reports} reports: {:#?}",
        bench.world.reports
    );
    assert_eq!(
        bench.count(|report| matches!(report, Report::WritesStall { .. })),
        1,
        "{what}: {:#?}",
        bench.world.reports
    );
    assert_eq!(bench.count(|report| *report == Report::WritesResume), 0);
    assert!(begun > before);

    bench.end_of_faults();
    // Until no lane waits for its next try any more.
    let until = bench.world.now() + Duration::from_secs(3);
    while bench.world.now() < until {
        bench.hammer(Duration::from_millis(1), u64::MAX);
        bench.run(Duration::from_millis(200));
    }
    let (well, ill) = bench.hammer(Duration::from_millis(20), u64::MAX);
    assert!(ill == 0 && well > 0, "{what}: {well} well, {ill} not");
    assert_eq!(
        bench.count(|report| *report == Report::WritesResume),
        1,
        "{what}: {:#?}",
        bench.world.reports
    );
    bench.world.settle();
    // Blocks that were flushed before, and not written since, are unchanged: now, and after an opening.
    for again in 0..2 {
        let half = bench.size / 2;
        let read = bench.world.read(VOLUME, 0, half).unwrap();
        bench.oracle.check(0, &read, &what);
        // All other blocks can be read, too.
        bench.world.read(VOLUME, half, half).unwrap();
        bench.world = World::open(bench.world.kill(), false, seed + again).unwrap();
    }
}

#[test]
fn a_pool_without_space_rests_between_tries_and_goes_on_when_there_is_some() {
    for seed in 0..2 {
        a_minute_of(Refused::Writes(Fault::Full), &[], &[0, 1, 2, 3, 4, 5], seed);
    }
}

#[test]
fn a_pool_whose_flushes_fail_rests_between_tries_and_goes_on_when_they_succeed() {
    for seed in 0..2 {
        a_minute_of(Refused::Flushes, &[1, 4], &[0, 2, 3, 5], seed);
    }
}

#[test]
fn a_pool_with_more_failing_drives_than_it_can_spare_rests_between_tries() {
    for seed in 0..2 {
        a_minute_of(Refused::Writes(Fault::Medium), &[], &[0, 2, 5], seed);
    }
}

/// Before, a lane went on with a checkpoint whose flush had failed, and so put blocks in place whose
/// records the journal might not have. A cut then left a stripe half written, and its record nowhere.
#[test]
fn nothing_is_put_in_place_before_a_flush_covers_its_record() {
    let mut bench = Bench::new("raid6", 6, 5);
    for seat in [1, 4] {
        bench.world.fail_drive(Seat(seat), false).unwrap();
    }
    bench.world.settle();
    let offset = bench.world.pool().facts().data_offset;
    let data = |world: &mut World| -> Vec<Vec<u8>> {
        [0, 2, 3, 5]
            .map(|seat| {
                let drive = world.drive(Seat(seat));
                drive
                    .read_used(offset, drive.size_bytes() - offset)
                    .unwrap()
            })
            .into()
    };
    let before = data(&mut bench.world);
    bench.refuse(&[0, 2, 3, 5], Refused::Flushes);
    bench.world.write(VOLUME, 0, &[7; 4096]).unwrap();
    // The lane is idle for long enough to begin a checkpoint.
    bench.run(Duration::from_secs(5));
    assert!(before == data(&mut bench.world), "installed unflushed");
}
