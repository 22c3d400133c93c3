//! Writes are acknowledged, and before they are in place more drives fail than the code survives. The drives return
//! in reverse order of failure: as soon as no more drives are out than the code survives, all data is there.
//!
//! In another order data may be lost. Blocks that are logged for the drive that failed first are released while the
//! other drives can reconstruct them. If one of these fails, and the first drive returns alone, the blocks cannot be
//! reconstructed.

use std::collections::BTreeSet;

use array::pool::Report;
use block::{BLOCK_BYTES, Fault, Request, RequestKind, Seat};
use rand::seq::SliceRandom;
use rand::{Rng, RngExt, SeedableRng, rngs::SmallRng};
use sim::{Oracle, World, WorldOptions};

const VOLUME: &str = "v";

struct Run {
    world: World,
    oracle: Oracle,
    blocks: u64,
    rng: SmallRng,
    /// Blocks of which a write was refused: their content is old or new.
    refused: BTreeSet<u64>,
}

impl Run {
    fn new(scheme: &str, drives: u16, seed: u64) -> Self {
        let options = WorldOptions {
            drive_bytes: 14 << 20,
            seed,
            ..WorldOptions::small(scheme, drives)
        };
        let mut world = World::create(&options);
        let size = 8 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        rng.fill_bytes(&mut bytes);
        world.write(VOLUME, 0, &bytes).unwrap();
        world.settle();
        let mut oracle = Oracle::new(size);
        oracle.wrote(0, &bytes);
        Self {
            world,
            oracle,
            blocks: size / BLOCK_BYTES,
            rng,
            refused: BTreeSet::new(),
        }
    }

    fn write(&mut self) {
        let block = self.rng.random_range(0..self.blocks);
        let mut bytes = vec![0; usize::try_from(BLOCK_BYTES).unwrap()];
        self.rng.fill_bytes(&mut bytes);
        match self.world.write(VOLUME, block * BLOCK_BYTES, &bytes) {
            Ok(()) => {
                self.oracle.wrote(block * BLOCK_BYTES, &bytes);
                self.refused.remove(&block);
            }
            Err(Fault::Lost | Fault::Gone) => {
                self.refused.insert(block);
            }
            Err(other) => panic!("a write ends with {other:?}"),
        }
    }

    fn writes(&mut self, most: u64) {
        for _ in 0..self.rng.random_range(1..=most) {
            self.write();
        }
    }

    /// Drives that have gone out, the last one last.
    fn out_in_order(&self) -> Vec<Seat> {
        let out = self.world.reports.iter().filter_map(|report| match report {
            Report::DriveOut { seat, .. } => Some(*seat),
            _ => None,
        });
        out.collect()
    }

    fn steps(&mut self, most: u64) {
        for _ in 0..self.rng.random_range(0..=most) {
            self.world.step();
        }
    }

    /// Returns the blocks that cannot be read, and checks the others.
    fn unreadable(&mut self, when: &str) -> Vec<u64> {
        let mut lost = Vec::new();
        for block in 0..self.blocks {
            match self.world.read(VOLUME, block * BLOCK_BYTES, BLOCK_BYTES) {
                Ok(_) if self.refused.contains(&block) => {}
                Ok(bytes) => self.oracle.check(block * BLOCK_BYTES, &bytes, when),
                Err(Fault::Lost | Fault::Gone) => lost.push(block),
                Err(other) => panic!("{when}: a read ends with {other:?}"),
            }
        }
        lost
    }
}

/// Makes `load` more writes while the drives are out. Groups that can be written need room in the journal for them.
fn live(scheme: &str, drives: u16, seed: u64, load: u64) {
    let mut run = Run::new(scheme, drives, seed);
    let tolerance = run.world.pool().geometry().code().tolerance();
    for round in 0..2 {
        let when = format!("{scheme}, seed {seed}, round {round}");
        run.writes(20);
        let mut seats: Vec<Seat> = (0..drives).map(Seat).collect();
        seats.shuffle(&mut run.rng);
        let most = (drives - 1).min(tolerance + 3);
        let count = usize::from(run.rng.random_range(tolerance + 1..=most));
        let mut out: Vec<Seat> = seats.drain(..count).collect();
        for &seat in &out {
            run.world.pull(seat);
        }
        run.steps(300);
        // Reads detect which drives are out. The pool waits for those that it cannot do without, until they are given up.
        run.unreadable(&when);
        run.world.give_up_gone();
        for _ in 0..load {
            run.write();
        }
        if run.rng.random_bool(0.7) {
            run.world.settle();
        }
        let order = run.out_in_order();
        out.sort_by_key(|seat| order.iter().rposition(|gone| gone == seat));
        assert!(out.iter().all(|seat| order.contains(seat)), "all are out");
        while let Some(seat) = out.pop() {
            run.world.plug_in(seat, None);
            run.world.return_drive(seat).unwrap();
            if run.rng.random_bool(0.3) {
                run.steps(300);
                continue;
            }
            run.world.settle();
            if out.len() <= usize::from(tolerance) {
                let when = format!("{when}, {out:?} still out");
                let lost = run.unreadable(&when);
                assert!(
                    lost.is_empty(),
                    "{when}: {lost:?}, {:#?}",
                    run.world.reports
                );
            }
        }
        run.world.settle();
        assert!(run.unreadable(&when).is_empty(), "{when}, all back");
    }
}

fn all(load: u64, seeds: u64) {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    for (scheme, drives) in [
        ("raid5", 4),
        ("raid6", 6),
        ("raid1:3c", 3),
        ("raid6:dcode", 7),
        ("pddl2:4d:13c:2s", 13),
    ] {
        for seed in 0..if long { seeds * 20 } else { seeds } {
            live(scheme, drives, seed, load);
        }
    }
}

#[test]
fn what_was_acknowledged_before_too_many_drives_went_is_there_when_enough_are_back() {
    all(0, 10);
}

#[test]
fn it_is_there_after_the_journal_has_been_round_many_times_too() {
    all(1000, 1);
}

/// A group that is given to a new volume must have no blocks of its earlier volume in the journal. Preserved blocks
/// of other groups make room without being lost.
#[test]
fn what_is_kept_survives_a_new_volume() {
    for seed in 0..20 {
        let mut run = Run::new("raid5", 5, seed);
        let when = format!("seed {seed}");
        let group = run.world.pool().geometry().group_data_bytes();
        let old = vec![0xee; usize::try_from(group).unwrap()];
        run.world.create_volume("old", group).unwrap();
        run.world.write("old", 0, &old).unwrap();
        run.writes(20);
        for seat in [1, 3] {
            run.world.pull(Seat(seat));
        }
        run.unreadable(&when);
        run.world.give_up_gone();
        // The group of the volume `old` is given to a new volume while blocks are preserved.
        run.world.write("old", 0, &old).ok();
        run.world.delete_volume("old").unwrap();
        run.world.create_volume("new", group).unwrap();
        run.world.settle();
        for seat in run.out_in_order().into_iter().rev() {
            run.world.plug_in(seat, None);
            run.world.return_drive(seat).unwrap();
            run.world.settle();
            assert!(run.unreadable(&when).is_empty(), "{when}, {seat} is back");
        }
        let new = run.world.read("new", 0, group).unwrap();
        assert!(new.iter().all(|&byte| byte == 0), "{when}");
    }
}

/// Two drives of a RAID 10 go at any moment while more is written than a batch may hold. Where a batch is left without
/// enough copies, all preserved blocks of it are logged again, however many they are; until then the log is blocked.
/// Steps are counted: checkpoints that change nothing could follow one another for ever.
#[test]
fn more_is_logged_again_than_fits_into_a_batch() {
    const STEPS: u64 = 20_000;
    let options = WorldOptions {
        drive_bytes: 14 << 20,
        ..WorldOptions::small("raid10", 4).with_one_lane(512 << 10)
    };
    for (first, second) in [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)] {
        for moment in 0..40 {
            let when = format!("{first} and {second} go at {moment}");
            let mut world = World::create(&options);
            let size = 16 * world.pool().geometry().group_data_bytes();
            world.create_volume(VOLUME, size).unwrap();
            let bytes = vec![0x5a; 320 << 10];
            let ids: Vec<u64> = { bytes.chunks(64 << 10).zip(0..) }
                .map(|(bytes, at)| {
                    let request = Request {
                        kind: RequestKind::Write,
                        offset: at * (64 << 10) + BLOCK_BYTES,
                        length: bytes.len() as u64,
                        fua: false,
                    };
                    world.submit(VOLUME, request, bytes)
                })
                .collect();
            for _ in 0..moment {
                world.step();
            }
            world.pull(Seat(first));
            world.pull(Seat(second));
            world.settle_or_wait();
            world.give_up_gone();
            let mut steps = 0;
            while !world.is_quiet() && world.step() {
                steps += 1;
                assert!(steps < STEPS, "{when}: {}", world.what_is_left());
            }
            let out = { world.reports.iter().rev() }.filter_map(|report| match *report {
                Report::DriveOut { seat, .. } => Some(seat),
                _ => None,
            });
            for seat in out.collect::<Vec<_>>() {
                world.plug_in(seat, None);
                world.return_drive(seat).unwrap();
            }
            world.settle();
            for (id, at) in ids.into_iter().zip(0..) {
                let Some(Ok(_)) = world.ended(id) else {
                    continue;
                };
                let offset = at * (64 << 10) + BLOCK_BYTES;
                let read = world.read(VOLUME, offset, 64 << 10);
                let read =
                    read.unwrap_or_else(|fault| panic!("{when}: {fault:?}, {:#?}", world.reports));
                assert!(read.iter().all(|&byte| byte == 0x5a), "{when}");
            }
        }
    }
}
