//! Drives that were away come back: what they missed is copied, and nothing else is believed.

use array::pool::{Misfit, Report, SeatState};
use block::Seat;
use rand::{Rng, RngExt};
use sim::{Drive, Oracle, Pace, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

fn options(scheme: &str, drives: u16, cell_bytes: u64) -> WorldOptions {
    WorldOptions {
        scheme: scheme.to_owned(),
        drives,
        spares: 0,
        drive_bytes: 64 << 20,
        chunk_bytes: 64 << 10,
        cell_bytes,
        pace: Pace::Null,
        seed: u64::from(drives),
    }
}

struct Life {
    world: World,
    oracle: Oracle,
    size: u64,
}

impl Life {
    fn new(options: &WorldOptions, groups: u64) -> Self {
        let mut world = World::create(options);
        let size = groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut life = Self {
            world,
            oracle: Oracle::new(size),
            size,
        };
        life.write(0, size);
        life.world.settle();
        life
    }

    fn write(&mut self, offset: u64, length: u64) {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        self.world.write(VOLUME, offset, &bytes).unwrap();
        self.oracle.wrote(offset, &bytes);
    }

    /// Changes `blocks` blocks anywhere.
    fn scribble(&mut self, blocks: u64) {
        for _ in 0..blocks {
            let at = self.world.rng().random_range(0..self.size / BLOCK);
            self.write(at * BLOCK, BLOCK);
        }
    }

    fn check(&mut self, when: &str) {
        let read = self.world.read(VOLUME, 0, self.size);
        let read =
            read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", self.world.reports));
        self.oracle.check(0, &read, when);
    }

    fn reopen(self, drives: impl FnOnce(Vec<Drive>) -> Vec<Drive>) -> Self {
        let drives = drives(self.world.close().unwrap());
        Self {
            world: World::open(drives, false, 7).unwrap(),
            ..self
        }
    }

    fn is_complete(&self, seat: Seat) -> bool {
        self.world.pool().facts().seats[seat.index()].state == SeatState::Current
    }

    fn misfit(&self) -> Option<Misfit> {
        self.world.reports.iter().find_map(|report| match report {
            Report::FilledAnew { why, .. } => Some(*why),
            _ => None,
        })
    }

    fn copied(&self) -> Option<u64> {
        self.world.reports.iter().find_map(|report| match report {
            Report::CaughtUp { copied_bytes, .. } => Some(*copied_bytes),
            _ => None,
        })
    }

    /// Everything is right, a scrub finds nothing, and as many drives may go as the code survives.
    fn stands(&mut self, others: &[u16]) {
        self.check("caught up");
        self.world.scrub().unwrap();
        self.world.settle();
        assert_eq!(
            self.world.pool().scrub_progress().bad,
            0,
            "a scrub finds nothing"
        );
        for &seat in others {
            self.world.pull(Seat(seat));
        }
        self.check("and others lost");
    }
}

/// What a fill of a whole drive writes to it, for comparison.
fn whole_fill(options: &WorldOptions, groups: u64, seat: Seat) -> u64 {
    let mut life = Life::new(options, groups);
    life.world.fail_drive(seat, false).unwrap();
    life.world.settle();
    let drive = Drive::new(options.drive_bytes, options.pace);
    life.world.replace_drive(seat, drive).unwrap();
    life.world.settle();
    life.world.drive(seat).written_bytes()
}

#[test]
fn a_drive_that_missed_a_hundredth_is_written_less_than_a_twentieth_of_a_full_fill() {
    for (scheme, drives, groups) in [("raid6", 6, 8), ("raid5", 4, 8), ("pddl2:2d:7c:1s", 7, 10)] {
        let options = options(scheme, drives, 2 << 20);
        let seat = Seat(2);
        let mut life = Life::new(&options, groups);
        life.world.pull(seat);
        life.scribble(life.size / BLOCK / 100);
        // With distributed spares, what it held is on other drives meanwhile, and is copied back.
        life.world.settle();
        assert!(!life.is_complete(seat), "{scheme}: it is out");
        life.world.plug_in(seat, None);
        let before = life.world.drive(seat).written_bytes();
        life.world.return_drive(seat).unwrap();
        life.world.settle();
        let written = life.world.drive(seat).written_bytes() - before;
        assert!(
            life.is_complete(seat),
            "{scheme}: {:#?}",
            life.world.reports
        );
        assert_eq!(life.misfit(), None, "{scheme}");
        let whole = whole_fill(&options, groups, seat);
        let copied = life.copied().expect("it says what was copied");
        println!("{scheme}: {copied} bytes copied, {written} written, a full fill writes {whole}");
        assert!(written * 20 < whole, "{scheme}: {written} of {whole}");
        assert!(copied > 0 && copied <= written, "{scheme}: {copied}");
        life.stands(&[0]);
    }
}
