//! Drives that compress, filled to the end: no drive goes out, every acknowledged byte is there, and the pool writes
//! again after a trim.

use array::pool::{SeatState, WritesWait};
use block::{Fault, Request, RequestKind, Seat};
use rand::{Rng, RngExt};
use sim::schedule::{Runner, SETTINGS, Schedule, Scope};
use sim::{Counted, CutSpec, DriveFault, Trigger, World, WorldOptions};

const VOLUME: &str = "v";
const STEP: usize = 16 << 10;

/// Scheme, drives, lanes and their rings.
const POOLS: [(&str, u16, u16); 6] = [
    ("raid1:2r", 2, 1),
    ("raid5", 4, 1),
    ("raid5", 4, 4),
    ("raid6", 6, 1),
    ("raid6:dcode:5c", 5, 1),
    ("pddl1:3d:6c:1s", 6, 2),
];

struct Bench {
    world: World,
    /// What the volume must hold.
    data: Vec<u8>,
}

impl Bench {
    fn new((scheme, drives, lanes): (&str, u16, u16), seed: u64) -> Self {
        let options = WorldOptions {
            drive_bytes: 22 << 20,
            physical_blocks: Some(160 + 60 * u64::from(lanes)),
            seed,
            ..WorldOptions::small(scheme, drives)
        };
        let regions = Some(array::pool::RegionSizes {
            lanes: Some(lanes),
            ring_bytes: Some(40 * block::BLOCK_BYTES),
            first_format: false,
        });
        let mut world = World::create(&WorldOptions { regions, ..options });
        let size = world.pool().free_bytes() / 2;
        world.create_volume(VOLUME, size).unwrap();
        world.settle();
        Self {
            world,
            data: vec![0; usize::try_from(size).unwrap() / STEP * STEP],
        }
    }

    /// Writes bytes, a part of which are noise.
    fn write(&mut self, at: usize, noise: usize) -> Result<(), Fault> {
        let mut bytes = vec![0; STEP];
        self.world.rng().fill_bytes(&mut bytes[..noise]);
        let ended = self.world.write(VOLUME, at as u64, &bytes);
        match ended {
            Ok(()) => self.data[at..at + STEP].copy_from_slice(&bytes),
            // It may be there, wholly or in part: the client knows that from the error.
            Err(_) => {
                let there = self.world.read(VOLUME, at as u64, STEP as u64).unwrap();
                for (at, byte) in (at..).zip(there) {
                    self.data[at] = byte;
                }
            }
        }
        ended
    }

    /// Writes noise from `first` on until there is no space; returns the end of what was written.
    fn fill(&mut self, first: usize) -> usize {
        for at in (first..self.data.len()).step_by(STEP) {
            match self.write(at, STEP) {
                Ok(()) => {}
                Err(Fault::Full) => return at,
                Err(other) => panic!("at {at}: {other}"),
            }
        }
        panic!("the volume is larger than physical space");
    }

    fn trim(&mut self, at: usize, length: usize) {
        let request = Request {
            kind: RequestKind::Trim,
            offset: at as u64,
            length: length as u64,
            fua: false,
        };
        self.world.request(VOLUME, request, &[]).unwrap();
        self.data[at..at + length].fill(0);
    }

    fn check(&mut self, about: &str) {
        for at in (0..self.data.len()).step_by(STEP) {
            let there = self.world.read(VOLUME, at as u64, STEP as u64).unwrap();
            assert!(there == self.data[at..at + STEP], "{about}: at {at}");
        }
        for (seat, facts) in self.world.pool().facts().seats() {
            assert_eq!(facts.state, SeatState::Current, "{about}: seat {seat}");
        }
    }

    /// No drive has ever had to refuse a write.
    fn assert_within_space(&self, about: &str) {
        for drive in self.world.drives() {
            let usage = drive.usage().unwrap();
            assert!(usage.used_bytes <= usage.physical_bytes, "{about}");
        }
        let full =
            |report: &array::pool::Report| matches!(report, array::pool::Report::DriveFull { .. });
        assert!(!self.world.reports.iter().any(full), "{about}");
    }
}

#[test]
fn a_pool_filled_to_the_end_says_no_space_and_writes_again_after_a_trim() {
    for (pool, seed) in POOLS.into_iter().zip(1..) {
        let about = format!("{pool:?}");
        let mut bench = Bench::new(pool, seed);
        let end = bench.fill(0);
        assert!(end > 4 * STEP, "{about}: {end}");
        let wait = bench.world.pool().writes_wait();
        assert!(
            matches!(wait, Some(WritesWait::NoSpace(_))),
            "{about}: {wait:?}"
        );
        bench.assert_within_space(&about);
        bench.check(&about);
        let half = end / 2 / STEP * STEP;
        bench.trim(0, half);
        // Data that compresses a little, behind what was written.
        let more = half / 4 / STEP * STEP;
        for at in (end..end + more).step_by(STEP) {
            bench
                .write(at, STEP / 2)
                .unwrap_or_else(|fault| panic!("{about}: {fault}"));
        }
        bench.check(&about);
        bench.assert_within_space(&about);
        bench.world.settle();
    }
}

#[test]
fn a_full_pool_is_cut_and_opened_again_with_all_that_was_acknowledged() {
    for (pool, seed) in POOLS.into_iter().zip(100..) {
        let about = format!("{pool:?}");
        let mut bench = Bench::new(pool, seed);
        let end = bench.fill(0);
        let flush = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        bench.world.request(VOLUME, flush, &[]).unwrap();
        let Bench { world, data } = bench;
        let world = World::open(world.cut(CutSpec::None), false, seed).unwrap();
        let mut bench = Bench { world, data };
        bench.check(&about);
        let at = bench.world.rng().random_range(0..end / STEP) * STEP;
        bench.trim(0, end);
        bench
            .write(at, STEP)
            .unwrap_or_else(|fault| panic!("{about}: {fault}"));
        bench.check(&about);
    }
}

/// A drive of a pool whose drives do not know their use refuses one write for lack of space, or all from then on: which
/// write, by number. No drive goes out, and what was acknowledged is there.
pub(super) fn numbered(number: u64) {
    let (scheme, drives) = match number % 3 {
        0 => ("raid5", 4),
        1 => ("raid6", 6),
        _ => ("raid1:3r", 3),
    };
    let options = WorldOptions {
        seed: number,
        ..WorldOptions::small(scheme, drives)
    };
    let mut world = World::create(&options);
    let size = 4 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    world.settle();
    let mut bench = Bench {
        world,
        data: vec![0; usize::try_from(size).unwrap() / STEP * STEP],
    };
    let trigger = Trigger {
        counted: Counted::Writes,
        ..Trigger::nth(number / 3)
    };
    let for_good = number.is_multiple_of(2);
    let seat = Seat(u16::try_from(number / 7 % 3).unwrap());
    bench
        .world
        .drive(seat)
        .inject(trigger, DriveFault::Full { for_good });
    for step in 0..8 {
        let at = step * 5 * STEP % bench.data.len();
        let ended = bench.write(at, STEP);
        assert!(
            matches!(ended, Ok(()) | Err(Fault::Full)),
            "{number}: {ended:?}"
        );
    }
    bench.world.drive(seat).stop_faults();
    bench.world.drive(seat).recover();
    bench.world.settle();
    bench.check(&number.to_string());
    // The lane may still wait before it tries again.
    let written = (0..5).any(|_| bench.write(0, STEP).is_ok());
    assert!(written, "{number}: it takes writes again");
    bench.world.settle();
    bench.check(&number.to_string());
}

#[test]
fn a_drive_that_refuses_a_write_for_lack_of_space_does_not_go_out() {
    (0..90).for_each(numbered);
}

/// Data stops compressing in the middle of histories of all kinds: no drive goes out for that (the simulator checks it), no
/// byte is wrong, and writes end with "no space".
#[test]
fn no_history_of_drives_that_fill_up_violates_anything() {
    let (most, mut runner) = (40, Runner::new());
    let full = |schedule: &Schedule| SETTINGS[schedule.setting].physical_blocks > 0;
    let schedules = (0..).map(|seed| Schedule::from_seed(seed, Scope::Reported));
    let (mut runs, mut refused) = (0, 0);
    for schedule in schedules.filter(full).take(most) {
        let verdict = runner.run(&schedule);
        assert_eq!(verdict.violation, None, "seed {}", schedule.seed);
        runs += u32::from(verdict.no_space > 0);
        refused += verdict.no_space;
    }
    assert!(
        runs > 1 && refused > 10,
        "{refused} writes in {runs} histories"
    );
}
