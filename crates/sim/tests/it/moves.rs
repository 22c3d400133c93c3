//! Overwrites of whole stripes go to free stripes: how many bytes this saves, and that no data is lost.

use block::Seat;
use sim::{CutSpec, WorldOptions};

use crate::support::Bench;

/// Groups of eight stripes, two of which are free. Chunks are long, so that headers, pages and anchors are small in
/// comparison.
fn bench(scheme: &str, drives: u16, code_rows: u64, seed: u64) -> Bench {
    let chunk_bytes = 64 << 10;
    let options = WorldOptions {
        drive_bytes: 128 << 20,
        chunk_bytes,
        cell_bytes: 8 * chunk_bytes * code_rows.next_power_of_two(),
        free_stripes: true,
        seed,
        ..WorldOptions::small(scheme, drives)
    };
    let bench = Bench::of(&options, 2);
    assert!(bench.world.pool().facts().has("free-stripes"), "{scheme}");
    bench
}

/// Writes the whole volume, one stripe in each request, `depth` requests at a time.
fn write_stripes(bench: &mut Bench, depth: usize) {
    bench.write_in_parts(bench.stripe_bytes(), depth);
}

/// Scheme, drives, a stripe's data and all of its columns as a ratio, rows of its code.
const POOLS: [(&str, u16, u64, u64, u64); 7] = [
    ("raid0", 4, 1, 1, 1),
    ("raid1:2r", 2, 1, 2, 1),
    ("raid10", 4, 1, 2, 1),
    ("raid5", 4, 3, 4, 1),
    ("raid6", 6, 4, 6, 1),
    ("raid6:dcode:5c", 5, 3, 5, 5),
    ("pddl2:2d:7c:1s", 7, 2, 4, 1),
];

/// Through the journal, these stripes would be on the drives twice.
#[test]
fn an_overwrite_is_on_the_drives_once() {
    for (scheme, drives, data, all, rows) in POOLS {
        let mut bench = bench(scheme, drives, rows, 3);
        write_stripes(&mut bench, 4);
        bench.world.settle();
        for turn in 0..3 {
            let before = bench.written_bytes();
            write_stripes(&mut bench, 4);
            bench.world.settle();
            let written = bench.written_bytes() - before;
            let most = bench.size * all / data * 11 / 10;
            assert!(
                written < most,
                "{scheme}, {turn}: {written}, and {most} would be much"
            );
        }
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}

/// The map of moved stripes is durable with the flush that covers its record, whether the record is in the journal or
/// in the pages of all columns.
#[test]
fn what_has_moved_is_found_after_the_power_and_each_drive() {
    for (scheme, drives, _, _, rows) in POOLS {
        let mut bench = bench(scheme, drives, rows, 5);
        write_stripes(&mut bench, 3);
        write_stripes(&mut bench, 3);
        for settled in [false, true] {
            bench.flush();
            if settled {
                bench.world.settle();
            }
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
}

/// Small writes, trims and reads of stripes that are not in their home place.
#[test]
fn what_has_moved_is_written_trimmed_and_read_in_its_new_place() {
    for (scheme, drives, _, _, rows) in POOLS {
        let mut bench = bench(scheme, drives, rows, 7);
        write_stripes(&mut bench, 4);
        write_stripes(&mut bench, 4);
        let stripe = bench.stripe_bytes();
        for number in 0..bench.size / stripe {
            let offset = number * stripe + 4096;
            let bytes = vec![u8::try_from(number).unwrap() + 1; 8192];
            bench.write(offset, &bytes);
        }
        bench.trim(stripe, 3 * stripe);
        bench.check_here(scheme);
        bench.world.settle();
        bench.world.scrub().unwrap();
        bench.world.settle();
        assert_eq!(bench.world.scrub_progress().bad, 0, "{scheme}");
        let left = bench.world.clone().cut(CutSpec::All);
        bench.check(left, scheme);
    }
}
