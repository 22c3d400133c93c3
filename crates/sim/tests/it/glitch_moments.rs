//! The same as `glitch.rs`, moment by moment: from the last flush on, drives leave at every event of the world, in every
//! order and number beyond what the code survives, and come back in each way.
//!
//! With `RAVELIN_LONG` a fixed part of all histories, spread evenly; without it a small part of that. Counts are printed.

#![expect(clippy::print_stdout, reason = "a test prints what it has tried")]

use std::time::Duration;

use array::pool::PoolError;
use block::{BLOCK_BYTES, Request, RequestKind, Seat};
use rand::SeedableRng;
use rand::rngs::SmallRng;
use sim::{CutSpec, Drive, DriveFault, Oracle, Trigger, World};

use crate::glitch::{POOLS, Run, VOLUME, WORKLOADS, Workload};

/// Events of the world after the flush began at which drives leave, at most: after these it rests.
const MOMENTS_MAX: usize = 600;

/// Histories that are tried of each pool.
const QUICK: usize = 60;
const LONG: usize = 30_000;

/// After this long the pool has decided about drives that hang.
const DECIDED: Duration = Duration::from_secs(40);

/// How drives leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leave {
    Gone,
    /// Every operation is an error.
    Errors,
    /// No operation ends.
    Hangs,
}

/// How drives come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Into the open pool.
    Open,
    /// The daemon is killed; the pool is opened with all drives.
    Killed,
    /// The host's power fails.
    PowerCut,
    /// The drives that left lose the writes in their caches; the daemon is killed.
    ShelfCut,
    /// As killed; the power fails after so many events of the opening, and of what follows.
    CutAgain(u32),
}

const LEAVES: [Leave; 3] = [Leave::Gone, Leave::Errors, Leave::Hangs];
/// Events between a drive that leaves and the next one.
const GAPS: [u32; 3] = [0, 9, 70];
const WAYS: [Way; 8] = [
    Way::Open,
    Way::Killed,
    Way::PowerCut,
    Way::ShelfCut,
    Way::CutAgain(5),
    Way::CutAgain(40),
    Way::CutAgain(150),
    Way::CutAgain(500),
];

/// All ordered choices of more than `tolerance` of `drives` seats.
fn choices(drives: u16, tolerance: u16) -> Vec<Vec<Seat>> {
    let mut all: Vec<Vec<Seat>> = vec![Vec::new()];
    let mut begin = 0;
    for _ in 0..drives {
        let end = all.len();
        for index in begin..end {
            for seat in (0..drives).map(Seat) {
                if !all[index].contains(&seat) {
                    all.push([&all[index][..], &[seat]].concat());
                }
            }
        }
        begin = end;
    }
    all.retain(|seats| seats.len() > usize::from(tolerance));
    all
}

/// A moment: the world, and whether the flush has ended.
struct Moment {
    run: Run,
    flushed: bool,
}

/// The moments from the flush on.
fn moments(pool: (&str, u16), workload: Workload) -> Vec<Moment> {
    let when = format!("{} {workload:?}", pool.0);
    let mut run = Run::new(pool, when, SmallRng::seed_from_u64(7));
    run.prepare(workload);
    run.write_all_of(workload);
    let flush = Request {
        kind: RequestKind::Flush,
        offset: 0,
        length: 0,
        fua: false,
    };
    let id = run.world.submit(VOLUME, flush, &[]);
    let mut flushed = false;
    let mut moments = Vec::new();
    while moments.len() < MOMENTS_MAX {
        flushed |= run.world.ended(id).is_some_and(|end| end.is_ok());
        let run_now = run.clone();
        moments.push(Moment {
            run: run_now,
            flushed,
        });
        if !run.world.step() {
            break;
        }
    }
    moments
}

/// The drive has lost nothing.
fn works_again(drive: &mut Drive) {
    drive.recover();
    drive.come_back();
}

/// Whether one of these says that the volume held these bytes.
fn was(earlier: &[Oracle], offset: u64, bytes: &[u8]) -> bool {
    let is = |oracle: &Oracle| oracle.expected(offset, BLOCK_BYTES) == bytes;
    earlier.iter().any(is)
}

struct History<'a> {
    moment: &'a Moment,
    seats: &'a [Seat],
    leave: Leave,
    gap: u32,
    way: Way,
    reversed: bool,
}

impl History<'_> {
    fn check(&self, run: &mut Run, all: bool, now: &str) {
        let loses_caches = matches!(self.way, Way::PowerCut | Way::ShelfCut | Way::CutAgain(_));
        let unsure = !self.moment.flushed && loses_caches;
        let mut errors = 0;
        for block in 0..run.size / BLOCK_BYTES {
            let offset = block * BLOCK_BYTES;
            match run.read(block) {
                Ok(bytes) if unsure && was(&run.earlier, offset, &bytes) => {}
                Ok(bytes) => {
                    let when = format!("{}, {now}", run.when);
                    run.oracle.check(offset, &bytes, &when);
                }
                Err(_) => errors += 1,
            }
        }
        assert!(!all || errors == 0, "{}, {now}: {errors} errors", run.when);
    }

    fn reopened(&self, run: Run, cut: Option<CutSpec>) -> Run {
        let mut drives = match cut {
            None => run.world.kill(),
            Some(spec) => run.world.cut(spec),
        };
        drives.iter_mut().for_each(works_again);
        match World::try_open(drives, 5) {
            Ok(world) => Run { world, ..run },
            Err((_, why)) => panic!("{}: does not open: {why}", run.when),
        }
    }

    fn run(&self) {
        let mut run = self.moment.run.clone();
        let Self {
            leave, gap, way, ..
        } = *self;
        let seats: Vec<u16> = self.seats.iter().map(|seat| seat.0).collect();
        run.when = format!("{}, {seats:?} {leave:?} every {gap}, {way:?}", run.when);
        for &seat in self.seats {
            match self.leave {
                Leave::Gone => run.world.pull(seat),
                Leave::Errors => {
                    let fault = DriveFault::Eio { for_good: true };
                    run.world.drive(seat).inject(Trigger::nth(0), fault);
                }
                Leave::Hangs => {
                    let fault = DriveFault::Hang { for_good: true };
                    run.world.drive(seat).inject(Trigger::nth(0), fault);
                }
            }
            for _ in 0..self.gap {
                run.world.step();
            }
        }
        match self.leave {
            Leave::Gone | Leave::Errors => self.check(&mut run, false, "away"),
            // Reads that only these drives can answer wait for them.
            Leave::Hangs => run.passes(DECIDED),
        }
        let mut back = self.seats.to_vec();
        if self.reversed {
            back.reverse();
        }
        run = match self.way {
            Way::Open => {
                for &seat in &back {
                    if let Some(drive) = run.world.drive_in(seat) {
                        works_again(drive);
                    }
                    for _ in 0..self.gap {
                        run.world.step();
                    }
                }
                run.world.release();
                run
            }
            Way::Killed => self.reopened(run, None),
            Way::PowerCut => self.reopened(run, Some(CutSpec::Seed(11))),
            Way::ShelfCut => {
                for &seat in &back {
                    if run.world.drive_in(seat).is_some() {
                        run.world.plug_in(seat, Some(u64::from(seat.0)));
                    }
                }
                self.reopened(run, None)
            }
            Way::CutAgain(events) => {
                let mut drives = run.world.kill();
                drives.iter_mut().for_each(works_again);
                let drives = World::cut_opening(drives, 5, events, CutSpec::Seed(13));
                match World::try_open(drives, 6) {
                    Ok(world) => Run { world, ..run },
                    Err((_, why)) => panic!("{}: does not open: {why}", run.when),
                }
            }
        };
        for seat in back {
            if !run.is_out(seat) {
                continue;
            }
            if run.world.drive_in(seat).is_none() {
                assert!(run.world.find_absent(seat), "{}: no drive", run.when);
                run.world.drive(seat).reconnect();
            }
            match run.world.return_drive(seat) {
                Ok(()) | Err(PoolError::Fault { .. }) => {}
                Err(error) => panic!("{}: {seat} does not return: {error}", run.when),
            }
        }
        // What no request waits for is tried again in the pool's own time.
        run.passes(Duration::from_secs(5));
        run.settle();
        self.check(&mut run, true, "all are back");
        run.world.scrub().unwrap();
        run.settle();
        let progress = run.world.pool().scrub_progress();
        assert_eq!((progress.failed, progress.lost), (0, 0), "{}", run.when);
        self.check(&mut run, true, "scrubbed");
    }
}

fn every_moment(pool: (&str, u16)) {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let each = if long { LONG } else { QUICK } / WORKLOADS.len();
    let (mut all, mut tried) = (0, 0);
    for workload in WORKLOADS {
        let moments = moments(pool, workload);
        let tolerance = moments[0].run.world.pool().geometry().code().tolerance();
        let choices = choices(pool.1, tolerance);
        let kinds = LEAVES.len() * GAPS.len() * WAYS.len() * 2;
        let count = moments.len() * choices.len() * kinds;
        all += count;
        // Prime to the numbers of all parts, so that each part takes all of its values.
        let mut stride = (count / each).max(1) | 1;
        while [3, 5, 7].iter().any(|&prime| stride.is_multiple_of(prime)) {
            stride += 2;
        }
        for number in (0..count).step_by(stride) {
            let (number, moment) = (number / moments.len(), number % moments.len());
            let (number, way) = (number / WAYS.len(), number % WAYS.len());
            let (number, leave) = (number / LEAVES.len(), number % LEAVES.len());
            let (number, gap) = (number / GAPS.len(), number % GAPS.len());
            let (seats, reversed) = (number / 2, number % 2);
            let history = History {
                moment: &moments[moment],
                seats: &choices[seats],
                leave: LEAVES[leave],
                gap: GAPS[gap],
                way: WAYS[way],
                reversed: reversed == 1,
            };
            history.run();
            tried += 1;
        }
    }
    println!("{}: {tried} of {all} histories", pool.0);
}

macro_rules! pools {
    ($($name:ident = $index:literal,)*) => {
        $(
            #[test]
            fn $name() {
                every_moment(POOLS[$index]);
            }
        )*
    };
}

pools! {
    raid5_at_every_moment = 0,
    raid6_at_every_moment = 1,
    mirrors_at_every_moment = 2,
    raid10_at_every_moment = 3,
    dcode_at_every_moment = 4,
    pddl2_at_every_moment = 5,
    ddp_at_every_moment = 6,
}
