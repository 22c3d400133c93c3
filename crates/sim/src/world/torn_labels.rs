//! Drives fail and return while power cuts interrupt label writes again and again. Never do more drives fail than the
//! code survives. So the pool must open without an administrator each time, and all data must be there at the end.

use array::pool::SeatState;
use block::{Request, RequestKind, Seat};
use rand::rngs::SmallRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use super::{CutSpec, World, WorldOptions};
use crate::drive::Drive;

const VOLUME: &str = "v";

fn filled(scheme: &str, drives: u16) -> (Vec<Drive>, u64) {
    let mut world = World::create(&WorldOptions {
        drive_bytes: 14 << 20,
        ..WorldOptions::small(scheme, drives)
    });
    let size = world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let bytes = vec![7; usize::try_from(size).unwrap()];
    world.write(VOLUME, 0, &bytes).unwrap();
    world.settle();
    (world.close().unwrap(), size)
}

fn steps(world: &mut World, rng: &mut SmallRng, most: u32) {
    for _ in 0..rng.random_range(0..=most) {
        world.step();
    }
}

/// One incarnation, from an opening to a power cut.
fn live(mut drives: Vec<Drive>, bad: &[Seat], rng: &mut SmallRng) -> Result<Vec<Drive>, String> {
    for seat in bad {
        if rng.random_bool(0.4) {
            drives[seat.index()].pull();
        }
    }
    let seed = rng.random();
    let opened = World::begin_open(&mut drives, false, seed, false);
    let mut world = opened.map_err(|error| error.to_string())?;
    steps(&mut world, rng, 40);
    if world.opened().is_some() {
        for &seat in bad {
            let out = matches!(
                world.pool().facts().seats[seat.index()].state,
                SeatState::Out { .. }
            );
            if out && rng.random_bool(0.5) && world.drive_at(seat).is_some_and(|it| !it.is_gone()) {
                world.begin_return_drive(seat, None);
            } else if rng.random_bool(0.3) {
                world.pull(seat);
            }
            steps(&mut world, rng, 10);
        }
        let request = Request {
            kind: RequestKind::Write,
            offset: 0,
            length: 16384,
            fua: true,
        };
        world.submit(VOLUME, request, &[7; 16384]);
        steps(&mut world, rng, 80);
    }
    let mut drives = world.cut(CutSpec::Seed(rng.random()));
    for drive in &mut drives {
        drive.plug_in(None);
    }
    Ok(drives)
}

/// The last number: how many drives may fail, at most half.
fn opens_by_itself(scheme: &str, count: u16, tolerance: usize) {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let (template, size) = filled(scheme, count);
    for seed in 0..if long { 100_000 } else { 1000 } {
        let when = format!("{scheme} on {count} drives, seed {seed}");
        let mut rng = SmallRng::seed_from_u64(seed);
        let mut seats: Vec<Seat> = (0..count).map(Seat).collect();
        seats.shuffle(&mut rng);
        let bad = &seats[..tolerance];
        let mut drives = template.clone();
        for life in 0..rng.random_range(1..5) {
            drives = live(drives, bad, &mut rng)
                .unwrap_or_else(|error| panic!("{when}, life {life}: {error}"));
        }
        let mut world = World::open(drives, false, seed)
            .unwrap_or_else(|error| panic!("{when}, at the end: {error}"));
        let read = world
            .read(VOLUME, 0, size)
            .expect("no more than it survives");
        assert!(read.iter().all(|&byte| byte == 7), "{when}");
    }
}

/// A test for each pool, so that they run side by side.
mod the_pool_opens_by_itself_whatever_the_power_left_of_its_labels {
    use super::opens_by_itself;

    #[test]
    fn raid6_of_5() {
        opens_by_itself("raid6", 5, 2);
    }

    #[test]
    fn raid6_of_6() {
        opens_by_itself("raid6", 6, 2);
    }

    #[test]
    fn pddl2() {
        opens_by_itself("pddl2:2d:7c:1s", 7, 2);
    }

    #[test]
    fn raid1() {
        opens_by_itself("raid1:3c", 3, 1);
    }

    #[test]
    fn raid5() {
        opens_by_itself("raid5", 4, 1);
    }
}
