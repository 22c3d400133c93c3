//! More drives leave than the code survives, and all return with their data: a shelf that blinks, a bus adapter, a hub.
//! What was flushed is there, in whatever order they left and return.
//!
//! ```text
//!   workload, flush ─► drives leave, one after the other ─► they return to the open pool ───────────────┐
//!                       (gone, or errors only)          └─► killed, power cut ─► opened ─► (again) ─────┴─► all read,
//!                                                              with some of them, until the pool opens       scrubbed
//! ```
//!
//! Meanwhile a read returns what was written, or an error. A pool that cannot do without a drive waits for it: it records
//! nothing of the drive's absence, and an opening without the drive is refused.

use std::time::Duration;

use array::pool::{PoolError, SeatState};
use block::{BLOCK_BYTES, Fault, Request, RequestKind, Seat};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng};
use sim::{CutSpec, Drive, DriveFault, Oracle, Trigger, World, WorldOptions};

pub(crate) const VOLUME: &str = "v";

/// Pools: scheme, and number of drives.
pub(crate) const POOLS: [(&str, u16); 7] = [
    ("raid5", 3),
    ("raid6", 5),
    ("raid1:3c", 3),
    ("raid10", 4),
    ("raid6:dcode", 5),
    ("pddl2:2d:7c:1s", 7),
    ("ddp:2d:8c", 8),
];

/// Events of the world within which requests end and drives that are all there have nothing left to do.
const EVENTS_MAX: u32 = 300_000;

/// What is flushed before the drives leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Workload {
    FirstWrites,
    WholeStripes,
    SmallWrites,
    Trims,
    Mix,
    /// Single writes after a restart: no page is in memory.
    AfterRestart,
}

pub(crate) const WORKLOADS: [Workload; 6] = [
    Workload::FirstWrites,
    Workload::WholeStripes,
    Workload::SmallWrites,
    Workload::Trims,
    Workload::Mix,
    Workload::AfterRestart,
];

/// What happens to the daemon while the drives are away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meanwhile {
    /// It runs, and the drives return to the open pool.
    Runs,
    /// It is killed; the pool is opened when all drives are there.
    Killed,
    /// The power of the host fails; the pool is opened when all drives are there.
    PowerCut,
    /// The same; openings are tried while some drives are still away.
    OpenedWithSome,
    /// The same; drives leave again during an opening.
    LeaveAgain,
}

const MEANWHILE: [Meanwhile; 5] = [
    Meanwhile::Runs,
    Meanwhile::Killed,
    Meanwhile::PowerCut,
    Meanwhile::OpenedWithSome,
    Meanwhile::LeaveAgain,
];

#[derive(Clone)]
pub(crate) struct Run {
    pub(crate) world: World,
    pub(crate) oracle: Oracle,
    /// What the volume held before each write since the last flush.
    pub(crate) earlier: Vec<Oracle>,
    pub(crate) size: u64,
    pub(crate) rng: SmallRng,
    pub(crate) when: String,
}

impl Run {
    pub(crate) fn new((scheme, drives): (&str, u16), when: String, mut rng: SmallRng) -> Self {
        let options = WorldOptions {
            drive_bytes: 14 << 20,
            seed: rng.random(),
            lazy: rng.random_bool(0.5),
            ..WorldOptions::small(scheme, drives).with_one_lane(128 << 10)
        };
        let mut world = World::create(&options);
        let size = 2 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        Self {
            world,
            oracle: Oracle::new(size),
            earlier: Vec::new(),
            size,
            rng,
            when,
        }
    }

    fn request(&mut self, kind: RequestKind, offset: u64, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        self.world.request(VOLUME, request, &[]).unwrap();
    }

    fn write(&mut self, offset: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.rng.fill_bytes(&mut bytes);
        self.world.write(VOLUME, offset, &bytes).unwrap();
        self.earlier.push(self.oracle.clone());
        self.oracle.wrote(offset, &bytes);
    }

    fn write_blocks(&mut self, count: u64) {
        for _ in 0..count {
            let block = self.rng.random_range(0..self.size / BLOCK_BYTES);
            self.write(block * BLOCK_BYTES, BLOCK_BYTES);
        }
    }

    fn trim(&mut self, offset: u64, length: u64) {
        self.request(RequestKind::Trim, offset, length);
        let zeros = vec![0; usize::try_from(length).unwrap()];
        self.earlier.push(self.oracle.clone());
        self.oracle.wrote(offset, &zeros);
    }

    fn load(&mut self, workload: Workload) {
        self.prepare(workload);
        self.write_all_of(workload);
        self.request(RequestKind::Flush, 0, 0);
    }

    /// What is on the drives before the writes.
    pub(crate) fn prepare(&mut self, workload: Workload) {
        if workload != Workload::FirstWrites {
            self.write(0, self.size);
            self.request(RequestKind::Flush, 0, 0);
            self.earlier.clear();
            self.world.settle();
        }
        if workload == Workload::AfterRestart {
            let drives = self.world.clone().kill();
            let opened = World::try_open(drives, self.rng.random());
            self.world = opened.unwrap_or_else(|(_, why)| panic!("{}: {why}", self.when));
        }
    }

    /// The writes, without the flush.
    pub(crate) fn write_all_of(&mut self, workload: Workload) {
        let size = self.size;
        match workload {
            Workload::FirstWrites | Workload::WholeStripes => self.write(0, size),
            Workload::SmallWrites => self.write_blocks(6),
            Workload::AfterRestart => self.write_blocks(1),
            Workload::Trims => {
                self.trim(0, size / 2);
                self.write_blocks(1);
            }
            Workload::Mix => {
                self.write(0, size / 2);
                self.trim(size / 4, size / 2);
                self.write_blocks(4);
            }
        }
    }

    fn steps(&mut self, most: u32) {
        for _ in 0..self.rng.random_range(0..most) {
            self.world.step();
        }
    }

    /// A drive leaves: it is gone, or returns errors only.
    fn leave(&mut self, seat: Seat) {
        match self.rng.random_bool(0.7) {
            true => self.world.pull(seat),
            false => {
                let fault = DriveFault::Eio { for_good: true };
                self.world.drive(seat).inject(Trigger::nth(0), fault);
            }
        }
        if self.rng.random_bool(0.5) {
            let read = Request {
                kind: RequestKind::Read,
                offset: 0,
                length: self.size,
                fua: false,
            };
            self.world.submit(VOLUME, read, &[]);
            self.steps(100);
        }
    }

    /// Lets time pass while drives are away: lanes and pool try again and again then.
    fn wait(&mut self) {
        for _ in 0..3000 {
            if self.world.is_quiet() || !self.world.step() {
                return;
            }
        }
    }

    pub(crate) fn passes(&mut self, time: Duration) {
        let until = self.world.now() + time;
        while self.world.now() < until && self.world.step() {}
    }

    pub(crate) fn settle(&mut self) {
        for _ in 0..EVENTS_MAX {
            if self.world.is_quiet() {
                self.world.settle();
                return;
            }
            self.world.step();
        }
        let left = self.world.what_is_left();
        panic!("{}: all are back, and it is never quiet: {left}", self.when);
    }

    pub(crate) fn read(&mut self, block: u64) -> Result<Vec<u8>, Fault> {
        let read = Request {
            kind: RequestKind::Read,
            offset: block * BLOCK_BYTES,
            length: BLOCK_BYTES,
            fua: false,
        };
        let id = self.world.submit(VOLUME, read, &[]);
        for _ in 0..EVENTS_MAX {
            if let Some(end) = self.world.ended(id) {
                return end;
            }
            assert!(self.world.step(), "{}: a read never ends", self.when);
        }
        panic!("{}: a read does not end", self.when);
    }

    /// Reads all blocks: each is what was written, or an error. Returns the number of errors.
    fn check(&mut self, now: &str) -> usize {
        let when = format!("{}, {now}", self.when);
        let mut errors = 0;
        for block in 0..self.size / BLOCK_BYTES {
            match self.read(block) {
                Ok(bytes) => self.oracle.check(block * BLOCK_BYTES, &bytes, &when),
                Err(_) => errors += 1,
            }
        }
        errors
    }

    pub(crate) fn is_out(&self, seat: Seat) -> bool {
        let state = self.world.pool().facts().seats[seat.index()].state;
        matches!(state, SeatState::Out { .. })
    }

    /// The pool is opened on its drives, as soon as enough of them are there.
    fn open(self, meanwhile: Meanwhile, seats: &[Seat]) -> Self {
        let Self {
            world,
            oracle,
            earlier,
            size,
            mut rng,
            when,
        } = self;
        let mut drives = match meanwhile {
            Meanwhile::Killed => world.kill(),
            _ => world.cut(CutSpec::Seed(rng.random())),
        };
        drives.iter_mut().for_each(Drive::come_back);
        let mut away: Vec<usize> = Vec::new();
        if meanwhile == Meanwhile::OpenedWithSome {
            away.extend(seats.iter().map(|seat| seat.index()));
            away.retain(|_| rng.random_bool(0.6));
            away.shuffle(&mut rng);
            away.iter().for_each(|&index| drives[index].pull());
        }
        if meanwhile == Meanwhile::LeaveAgain {
            let mut leaving = drives.clone();
            for &seat in seats {
                let skip = rng.random_range(0..60);
                leaving[seat.index()].inject(Trigger::nth(skip), DriveFault::Gone);
            }
            drives = match World::try_open(leaving, rng.random()) {
                Ok(mut world) => {
                    for _ in 0..rng.random_range(0..200) {
                        world.step();
                    }
                    world.kill()
                }
                Err((drives, _)) => drives,
            };
            drives.iter_mut().for_each(Drive::come_back);
        }
        let world = loop {
            match World::try_open(drives, rng.random()) {
                Ok(world) => break world,
                Err((refused, why)) => {
                    drives = refused;
                    let Some(back) = away.pop() else {
                        panic!("{when}: all are there, and it does not open: {why}");
                    };
                    drives[back].reconnect();
                }
            }
        };
        let mut run = Self {
            world,
            oracle,
            earlier,
            size,
            rng,
            when,
        };
        run.check("just opened");
        if run.rng.random_bool(0.5) {
            run.wait();
        }
        run
    }

    /// The drives return, in any order.
    fn come_back(&mut self, seats: &[Seat]) {
        let mut seats = seats.to_vec();
        seats.shuffle(&mut self.rng);
        for &seat in &seats {
            if let Some(drive) = self.world.drive_in(seat) {
                drive.come_back();
            }
            if self.rng.random_bool(0.3) {
                self.wait();
            }
        }
        seats.shuffle(&mut self.rng);
        for seat in seats {
            if !self.is_out(seat) {
                continue;
            }
            if self.world.drive_in(seat).is_none() {
                let found = self.world.find_absent(seat);
                assert!(found, "{}: no drive for seat {seat}", self.when);
                self.world.drive(seat).reconnect();
            }
            match self.world.return_drive(seat) {
                // The labels are written when the drives that have just come back take them.
                Ok(()) | Err(PoolError::Fault { .. }) => {}
                Err(error) => panic!("{}: {seat} does not return: {error}", self.when),
            }
            if self.rng.random_bool(0.5) {
                self.wait();
            }
            if self.rng.random_bool(0.3) {
                self.check("some are back");
            }
        }
    }
}

/// One history. Panics if a flushed block is not there in the end, or reads as anything else before.
pub(crate) fn history(pool: (&str, u16), workload: Workload, meanwhile: Meanwhile, seed: u64) {
    let mut rng = SmallRng::seed_from_u64(seed);
    let when = format!("{} {workload:?} {meanwhile:?}, seed {seed}", pool.0);
    let mut seats: Vec<Seat> = (0..pool.1).map(Seat).collect();
    seats.shuffle(&mut rng);
    let mut run = Run::new(pool, when, rng);
    let tolerance = run.world.pool().geometry().code().tolerance();
    seats.truncate(usize::from(run.rng.random_range(tolerance + 1..=pool.1)));
    run.load(workload);
    run.steps(60);
    for &seat in &seats {
        run.leave(seat);
    }
    if run.rng.random_bool(0.7) {
        run.check("the drives are away");
    }
    if run.rng.random_bool(0.3) {
        run.wait();
    }
    if meanwhile != Meanwhile::Runs {
        run = run.open(meanwhile, &seats);
    }
    run.come_back(&seats);
    run.settle();
    let errors = run.check("all are back");
    assert_eq!(errors, 0, "{}: all are back", run.when);
    run.world.scrub().unwrap();
    run.settle();
    let failed = run.world.pool().scrub_progress().failed;
    let errors = run.check("scrubbed");
    assert_eq!((failed, errors), (0, 0), "{}: scrubbed", run.when);
}

/// The same for a number of any kind of history.
pub(crate) fn numbered(number: u64) {
    let at = |count: usize, by: u64| {
        let count = u64::try_from(count).unwrap();
        usize::try_from(number / by % count).unwrap()
    };
    let pool = POOLS[at(POOLS.len(), 1)];
    let workload = WORKLOADS[at(WORKLOADS.len(), 7)];
    let meanwhile = MEANWHILE[at(MEANWHILE.len(), 42)];
    history(pool, workload, meanwhile, number);
}

/// Histories from this number on, as many for each pool, workload and event meanwhile.
fn all(first: u64) {
    let each = if std::env::var_os("RAVELIN_LONG").is_some() {
        400
    } else {
        4
    };
    let kinds = u64::try_from(POOLS.len() * WORKLOADS.len() * MEANWHILE.len()).unwrap();
    for number in first * kinds..(first + each) * kinds {
        numbered(number);
    }
}

#[test]
fn what_was_flushed_is_there_when_all_drives_are_back() {
    all(0);
}

#[test]
fn it_is_there_in_other_histories_too() {
    all(100_000);
}
