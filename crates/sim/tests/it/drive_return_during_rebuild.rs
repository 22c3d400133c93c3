//! Two cases that other implementations got wrong: more drives fail during a rebuild than the code
//! survives, and some return; and a failed drive is replaced or returns while spares are in use.

#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use array::pool::SeatState;
use block::{BLOCK_BYTES, Fault, Seat};
use rand::{Rng, RngExt};
use sim::{Drive, Oracle, World, WorldOptions};

const VOLUME: &str = "v";

struct Run {
    world: World,
    oracle: Oracle,
    size: u64,
    options: WorldOptions,
}

impl Run {
    fn new(scheme: &str, drives: u16, spares: u16, groups: u64) -> Self {
        let options = WorldOptions {
            spares,
            drive_bytes: 14 << 20,
            cell_bytes: 16 << 10,
            seed: u64::from(drives),
            ..WorldOptions::small(scheme, drives)
        };
        let mut world = World::create(&options);
        let size = groups * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut run = Self {
            oracle: Oracle::new(size),
            world,
            size,
            options,
        };
        let bytes = run.noise(size);
        run.world.write(VOLUME, 0, &bytes).unwrap();
        run.oracle.wrote(0, &bytes);
        run.world.settle();
        run
    }

    fn noise(&mut self, length: u64) -> Vec<u8> {
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        self.world.rng().fill_bytes(&mut bytes);
        bytes
    }

    /// Writes single blocks at random places. Returns those that could not be written: they may be old
    /// or new.
    fn scribble(&mut self, count: u64) -> Vec<u64> {
        let mut refused = Vec::new();
        for _ in 0..count {
            let at = self.world.rng().random_range(0..self.size / BLOCK_BYTES) * BLOCK_BYTES;
            let bytes = self.noise(BLOCK_BYTES);
            match self.world.write(VOLUME, at, &bytes) {
                Ok(()) => self.oracle.wrote(at, &bytes),
                Err(Fault::Lost | Fault::Gone) => refused.push(at),
                Err(other) => panic!("a write ends with {other:?}"),
            }
        }
        refused
    }

    /// Reads block by block. Returns the blocks that cannot be read, and checks the others.
    fn unreadable(&mut self, when: &str) -> Vec<u64> {
        let blocks = (0..self.size / BLOCK_BYTES).map(|block| block * BLOCK_BYTES);
        let mut lost = Vec::new();
        for at in blocks {
            match self.world.read(VOLUME, at, BLOCK_BYTES) {
                Ok(bytes) => self.oracle.check(at, &bytes, when),
                Err(Fault::Lost) => lost.push(at),
                Err(other) => panic!("{when}: a read ends with {other:?}"),
            }
        }
        lost
    }

    fn state(&self, seat: Seat) -> SeatState {
        self.world.pool().facts().seats[seat.index()].state
    }

    fn back(&mut self, seat: Seat, lost: Option<u64>) {
        self.world.plug_in(seat, lost);
        self.world.return_drive(seat).unwrap();
        self.world.settle();
    }
}

/// A pool that survives two failures is rebuilding two drives into spare space when a third and a fourth
/// fail. Groups that have lost too much refuse requests; the others are read and written. The last two
/// drives return as they were, with or without the writes in their caches: then all data is there again,
/// and not a byte is wrong at any time.
#[test]
fn more_than_p_drives_fault_during_a_distributed_rebuild_and_some_come_back() {
    for steps in [0, 150, 300] {
        for (lost, order) in [(None, [4, 7]), (Some(steps), [7, 4])] {
            if lost.is_some() != (steps == 150) && std::env::var_os("RAVELIN_LONG").is_none() {
                continue;
            }
            let mut run = Run::new("pddl2:4d:13c:2s", 13, 0, 24);
            run.world.pull(Seat(1));
            run.scribble(4);
            for _ in 0..steps {
                run.world.step();
            }
            run.world.pull(Seat(2));
            run.scribble(2);
            for _ in 0..steps / 2 {
                run.world.step();
            }
            for seat in [4, 7] {
                run.world.pull(Seat(seat));
            }
            // A fill of a cell that was about to end may yet make a group writable that refuses writes
            // now.
            run.scribble(10);
            run.world.give_up_gone();
            run.world.settle();
            let without = run.unreadable("four out");
            let refused = run.scribble(4);
            let group_bytes = run.world.pool().geometry().group_data_bytes();
            let broken: Vec<u64> = without.iter().map(|at| at / group_bytes).collect();
            assert!(
                refused
                    .iter()
                    .all(|at| broken.contains(&(at / group_bytes))),
                "{steps}: only groups that have lost too much refuse writes"
            );
            for seat in order {
                run.back(Seat(seat), lost);
            }
            let left = run.unreadable("two of them back");
            println!(
                "after {steps} steps: {} of {} blocks unreadable with four out, {} with two back",
                without.len(),
                run.size / BLOCK_BYTES,
                left.len()
            );
            assert_eq!(
                left, [0_u64; 0],
                "{steps}, {lost:?}: {:#?}",
                run.world.reports
            );
            // The columns of the drives that are still out are in spare space, so any two more may fail.
            assert_eq!(run.world.pool().absent_columns(), 0, "{steps}");
            for seat in [4, 9] {
                run.world.pull(Seat(seat));
            }
            assert_eq!(run.unreadable("two others out"), [0_u64; 0], "{steps}");
        }
    }
}

/// A failed drive's columns are in spare space. The drive returns, or another takes its seat, while a
/// second failure is filling other spare cells; and the other way round.
#[test]
fn a_failed_drive_with_an_active_spare_is_cleared_while_another_spare_is_in_use() {
    for (scheme, drives, spares) in [("pddl2:4d:14c:2s", 14, 0), ("raid6", 6, 2)] {
        for steps in [0, 700] {
            for clear in ["comes back", "is replaced"] {
                let when = format!("{scheme}, {steps} steps, the first {clear}");
                let mut run = Run::new(scheme, drives, spares, 14);
                let [first, second] = [Seat(2), Seat(3)];
                run.world.pull(first);
                run.scribble(6);
                run.world.settle();
                run.world.pull(second);
                run.scribble(6);
                for _ in 0..steps {
                    run.world.step();
                }
                // With waiting spares, one of them has taken the seat of the drive that failed.
                let facts = run.world.pool().facts();
                let out = facts
                    .seats()
                    .filter(|(_, facts)| matches!(facts.state, SeatState::Out { .. }));
                let seats: Vec<Seat> = out.map(|(seat, _)| seat).collect();
                let seat = if seats.contains(&first) {
                    first
                } else {
                    seats[0]
                };
                if clear == "comes back" {
                    run.world.plug_in(seat, None);
                    run.world.return_drive(seat).unwrap();
                } else {
                    let drive = Drive::new(run.options.drive_bytes, run.options.pace);
                    run.world.replace_drive(seat, drive).unwrap();
                }
                run.scribble(6);
                for _ in 0..steps {
                    run.world.step();
                }
                assert_eq!(run.unreadable(&when), [0_u64; 0], "{when}");
                run.world.settle();
                assert_eq!(run.unreadable(&when), [0_u64; 0], "{when}, settled");
                assert!(
                    !matches!(run.state(seat), SeatState::Out { .. } | SeatState::Filling),
                    "{when}: {:?}",
                    run.state(seat)
                );
                assert_eq!(run.world.pool().absent_columns(), 0, "{when}");
                // All redundancy is there: any two drives may fail.
                run.world.pull(Seat(0));
                run.world.pull(Seat(5));
                assert_eq!(run.unreadable(&when), [0_u64; 0], "{when}, two others out");
            }
        }
    }
}
