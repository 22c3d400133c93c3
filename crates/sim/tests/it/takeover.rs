//! Writes that a paused holder of a pool had in flight when another took the pool over.

#![expect(clippy::print_stdout, reason = "a test prints what it measured")]

use block::{BLOCK_BYTES, Fault, Request, RequestKind};
use rand::{Rng, RngExt};
use sim::{Oracle, World, WorldOptions};

const VOLUME: &str = "v";

/// A holder is paused at any moment. Another opens the pool, writes and flushes. Then the writes that the
/// first had in flight land, one after the other, over journal, pages and blocks. None of them is taken for
/// data of the second: not a byte is wrong. While they land on no more drives than the code survives, all
/// data is there; beyond that, lost blocks are read errors.
#[test]
fn what_a_paused_holder_had_in_flight_is_caught_by_its_old_generation() {
    let (mut landed, mut unreadable) = (0, 0);
    for seed in 0..60_u64 {
        let everywhere = seed % 2 == 0;
        let options = WorldOptions {
            drive_bytes: 14 << 20,
            seed,
            ..WorldOptions::small("raid6", 5)
        };
        let mut world = World::create(&options);
        let size = 6 * world.pool().geometry().group_data_bytes();
        world.create_volume(VOLUME, size).unwrap();
        let mut oracle = Oracle::new(size);
        let mut bytes = vec![0; usize::try_from(size).unwrap()];
        world.rng().fill_bytes(&mut bytes);
        world.write(VOLUME, 0, &bytes).unwrap();
        oracle.wrote(0, &bytes);
        world.settle();

        // The first holder has writes in flight; the client does not wait for their ends.
        let whole = usize::try_from(BLOCK_BYTES).unwrap();
        let unsure: Vec<u64> = (0..6)
            .map(|_| world.rng().random_range(0..size / BLOCK_BYTES) * BLOCK_BYTES)
            .collect();
        for &offset in &unsure {
            let request = Request {
                kind: RequestKind::Write,
                offset,
                length: BLOCK_BYTES,
                fua: false,
            };
            world.submit(VOLUME, request, &vec![0xab; whole]);
        }
        for _ in 0..seed * 3 {
            world.step();
        }
        let stray = world.clone().in_flight();
        let mut second = World::open(world.kill(), false, seed).unwrap();
        for &offset in &unsure {
            // Old or new: the takeover decides.
            let read = second.read(VOLUME, offset, BLOCK_BYTES).unwrap();
            oracle.wrote(offset, &read);
        }
        for _ in 0..12 {
            let offset = second.rng().random_range(0..size / BLOCK_BYTES) * BLOCK_BYTES;
            let mut bytes = vec![0; whole];
            second.rng().fill_bytes(&mut bytes);
            second.write(VOLUME, offset, &bytes).unwrap();
            oracle.wrote(offset, &bytes);
        }
        second.settle();
        for number in 0..stray.len() {
            if !everywhere && ![1, 3].contains(&stray.drive(number)) {
                continue;
            }
            stray.land(number, second.drives_mut());
            landed += 1;
        }
        // Now, and after the next opening.
        for again in ["at once", "after another opening"] {
            for offset in (0..size).step_by(whole) {
                match second.read(VOLUME, offset, BLOCK_BYTES) {
                    Ok(read) => oracle.check(offset, &read, &format!("seed {seed}, {again}")),
                    Err(Fault::Lost) if everywhere => unreadable += 1,
                    Err(other) => panic!("seed {seed}, {again}: {other:?}"),
                }
            }
            second.settle();
            second = World::open(second.kill(), false, seed + 1).unwrap();
        }
    }
    println!("{landed} stray writes landed; {unreadable} blocks could not be read");
    assert!(landed > 100, "{landed}");
}
