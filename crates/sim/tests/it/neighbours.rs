//! A volume that writes faster than checkpoints can put blocks in place waits for the checkpoints. Another volume in
//! the same lane does not wait with it.

use std::collections::VecDeque;
use std::time::Duration;

use block::{Request, RequestKind};
use rand::RngExt;
use sim::{Pace, World, WorldOptions};

const KIB: u64 = 1 << 10;

/// A pool of slow drives with one lane and a short ring, and two full volumes.
fn pool() -> World {
    let small = WorldOptions::small("raid6", 6).with_one_lane(2 << 20);
    let mut world = World::create(&WorldOptions {
        drive_bytes: 32 << 20,
        chunk_bytes: 16 * KIB,
        cell_bytes: 256 * KIB,
        pace: Pace::Server {
            bytes_per_second: 100 << 20,
            per_operation: Duration::from_micros(500),
        },
        ..small
    });
    for volume in ["hog", "neighbour"] {
        let size = world.pool().geometry().group_data_bytes() * 4;
        world.create_volume(volume, size).unwrap();
        world
            .write(volume, 0, &vec![1; usize::try_from(size).unwrap()])
            .unwrap();
    }
    world.settle();
    world
}

fn submit(world: &mut World, volume: &str, length: u64) -> u64 {
    let size = world.pool().geometry().group_data_bytes() * 4;
    let write = Request {
        kind: RequestKind::Write,
        offset: world.rng().random_range(0..size / length) * length,
        length,
        fua: false,
    };
    world.submit(volume, write, &vec![7; usize::try_from(length).unwrap()])
}

/// The sorted times of 400 writes of the neighbour, made one after the other while the other volume has `depth` writes
/// in flight; and how many writes of the other volume ended.
fn commits(world: &mut World, depth: usize) -> (Vec<Duration>, usize) {
    let (mut in_flight, mut ended) = (VecDeque::new(), 0);
    let mut times = Vec::new();
    let mut own = None;
    while times.len() < 400 {
        while in_flight.len() < depth {
            in_flight.push_back(submit(world, "hog", 48 * KIB));
        }
        let (id, since) = *own.get_or_insert_with(|| {
            let now = world.now();
            (submit(world, "neighbour", 4 * KIB), now)
        });
        assert!(world.step(), "every request ends");
        if let Some(outcome) = world.ended(id) {
            outcome.unwrap();
            times.push(world.now().since(since));
            own = None;
        }
        let before = in_flight.len();
        in_flight.retain(|&id| match world.ended(id) {
            Some(outcome) => outcome.is_err(),
            None => true,
        });
        ended += before - in_flight.len();
    }
    times.sort_unstable();
    (times, ended)
}

#[test]
fn a_writer_that_fills_the_ring_waits_and_its_neighbour_does_not() {
    let mut world = pool();
    let (alone, _) = commits(&mut world, 0);
    world.settle();
    let (beside, hogs) = commits(&mut world, 64);
    let median = |times: &[Duration]| times[times.len() / 2];
    let (alone, beside) = (median(&alone), median(&beside));
    // The factor is twenty if both volumes wait together.
    assert!(
        beside < 4 * alone,
        "{beside:?} beside a writer, {alone:?} alone"
    );
    assert!(hogs > 1_000, "the writer goes on: {hogs} writes");
}
