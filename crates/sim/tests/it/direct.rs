//! Writes of whole stripes to space that holds no data go in place at once: how many bytes this saves, and that no data
//! is lost.

use block::{BLOCK_BYTES, Seat};
use sim::{CutSpec, WorldOptions};

use crate::support::Bench;

const GROUPS: u64 = 8;

fn bench(scheme: &str, drives: u16, seed: u64) -> Bench {
    let options = WorldOptions {
        seed,
        ..WorldOptions::small(scheme, drives)
    };
    Bench::of(&options, GROUPS)
}

/// With chunks so long that headers, pages and anchors are small beside the blocks.
fn bench_with_long_chunks(scheme: &str, drives: u16) -> Bench {
    let options = WorldOptions {
        drive_bytes: 128 << 20,
        chunk_bytes: 64 << 10,
        cell_bytes: 512 << 10,
        ..WorldOptions::small(scheme, drives)
    };
    Bench::of(&options, GROUPS)
}

/// Requests of a little more than half a stripe, sixteen at a time.
fn write_neighbours(bench: &mut Bench) {
    let length = (bench.stripe_bytes() / 2 / BLOCK_BYTES + 1) * BLOCK_BYTES;
    bench.write_in_parts(length, 16);
}

/// Scheme, drives, a stripe's data and all of its columns as a ratio.
const POOLS: [(&str, u16, u64, u64); 7] = [
    ("raid0", 4, 1, 1),
    ("raid1:2r", 2, 1, 2),
    ("raid10", 4, 1, 2),
    ("raid5", 4, 3, 4),
    ("raid6", 6, 4, 6),
    ("raid6:dcode:5c", 5, 3, 5),
    ("pddl2:2d:7c:1s", 7, 2, 4),
];

/// Through the journal, these blocks were on the drives twice, with the journal's parity in addition.
#[test]
fn a_first_write_is_on_the_drives_once() {
    for (scheme, drives, data, all) in POOLS {
        let mut bench = bench(scheme, drives, 3);
        let before = bench.written_bytes();
        bench.write_all();
        bench.world.settle();
        let first = bench.written_bytes() - before;
        bench.write_all();
        bench.world.settle();
        let second = bench.written_bytes() - before - first;
        let least = bench.size * all / data;
        assert!(first < least * 2, "{scheme}: {first} for {least}");
        assert!(second > first * 3 / 2, "{scheme}: {second} for {least}");
    }
}

/// An overwrite of whole stripes is on the drives once in its place, and its data once in the journal, with the parity
/// of batches. A tenth is allowed for headers, pages and anchors; the stripes' parity in the journal would be 17 to 50
/// percent.
#[test]
fn the_journal_has_no_parity_that_follows_from_its_data() {
    for (scheme, drives, data, all) in POOLS {
        let mut bench = bench_with_long_chunks(scheme, drives);
        bench.write_all();
        bench.world.settle();
        let before = bench.written_bytes();
        bench.write_all();
        bench.world.settle();
        let written = bench.written_bytes() - before;
        let drives = u64::from(drives);
        let tolerance = u64::from(bench.world.pool().geometry().code().tolerance());
        let in_batches = bench.size * drives / (drives - tolerance);
        let most = (bench.size * all / data + in_batches) * 11 / 10;
        assert!(
            written < most,
            "{scheme}: {written}, and {most} would be much"
        );
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}

/// A page cache writes 64 KiB at a time: several such requests are in flight, and none covers a whole stripe. Parts of
/// stripes are logged where such a stream begins and ends, and at the ends of groups.
#[test]
fn neighbours_in_flight_become_whole_stripes() {
    for (scheme, drives, data, all) in POOLS {
        // A group of this small pool has one stripe of this code: parts at its end are too short to wait.
        if scheme.contains("dcode") {
            continue;
        }
        let mut bench = bench(scheme, drives, 9);
        let before = bench.written_bytes();
        write_neighbours(&mut bench);
        bench.world.settle();
        let first = bench.written_bytes() - before;
        let least = bench.size * all / data;
        assert!(first < least * 9 / 4, "{scheme}: {first} for {least}");
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}

/// The record is flushed with the blocks that it describes.
#[test]
fn what_is_flushed_survives_the_power_and_each_drive() {
    for (scheme, drives, _, _) in POOLS {
        let mut bench = bench(scheme, drives, 5);
        bench.write_all();
        bench.flush();
        let left = bench.world.clone().cut(CutSpec::None);
        bench.check(left.clone(), scheme);
        if scheme == "raid0" {
            continue;
        }
        for gone in 0..drives {
            let mut left = left.clone();
            left.remove(Seat(gone).index());
            bench.check(left, &format!("{scheme} without drive {gone}"));
        }
    }
}
