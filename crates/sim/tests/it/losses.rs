//! Damage beyond what the code survives: the pool names as lost exactly the blocks that cannot be reconstructed.
//!
//! Blocks of drives are overwritten behind the pool's back. After a scrub every block of the volume is read: its
//! content is what was written, or the read is an error. The blocks with errors are exactly those that the pool
//! names. This holds after a restart, too, and until the blocks are written again.

use std::collections::BTreeSet;

use array::format::DriveMap;
use array::pool::{LostData, Report};
use block::Seat;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use sim::{Drive, Region, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// Schemes and the number of their drives.
const POOLS: [(&str, u16); 6] = [
    ("raid5", 3),
    ("raid5", 5),
    ("raid6", 5),
    ("raid1:3r", 3),
    ("pddl2:3d:7c:1s", 7),
    ("raid6:dcode", 5),
];

fn content(block: u64, version: u64) -> Vec<u8> {
    let mut generator = ChaCha8Rng::seed_from_u64(block << 8 | version);
    let mut bytes = vec![0; 4096];
    generator.fill_bytes(&mut bytes);
    bytes
}

/// A pool with a fully written volume, all blocks in place.
fn filled(scheme: &str, drives: u16) -> (World, u64) {
    let mut world = World::create(&WorldOptions {
        chunk_bytes: 8 << 10,
        cell_bytes: 64 << 10,
        // As in new pools. Has no effect on the classic levels.
        interleave: true,
        ..WorldOptions::small(scheme, drives)
    });
    let size = 3 * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    for block in 0..size / BLOCK {
        world
            .write(VOLUME, block * BLOCK, &content(block, 0))
            .unwrap();
    }
    world.settle();
    let drives = world.close().unwrap();
    (World::open(drives, false, 1).unwrap(), size)
}

fn blocks_of(lost: &[LostData]) -> BTreeSet<u64> {
    lost.iter()
        .inspect(|data| assert_eq!((&*data.volume, data.offset_bytes % BLOCK), (VOLUME, 0)))
        .flat_map(|data| {
            let first = data.offset_bytes / BLOCK;
            first..first + data.length_bytes / BLOCK
        })
        .collect()
}

/// Reads every block separately; returns those whose read is an error, and checks the others.
fn unreadable(world: &mut World, size: u64, version: u64, when: &str) -> BTreeSet<u64> {
    let mut errors = BTreeSet::new();
    for block in 0..size / BLOCK {
        match world.read(VOLUME, block * BLOCK, BLOCK) {
            Ok(bytes) => assert!(bytes == content(block, version), "{when}: block {block}"),
            Err(_) => {
                errors.insert(block);
            }
        }
    }
    errors
}

fn scrub(world: &mut World) {
    world.scrub().unwrap();
    world.settle();
}

/// Checks that the pool names exactly the unreadable blocks, also after a restart, and none once all are written
/// again.
fn is_exact(mut world: World, size: u64, when: &str) -> usize {
    scrub(&mut world);
    let named = blocks_of(&world.pool().lost_data());
    assert_eq!(world.pool().unlisted_lost_bytes(), 0, "{when}");
    assert_eq!(world.pool().has_lost_data(), !named.is_empty(), "{when}");
    let errors = unreadable(&mut world, size, 0, when);
    assert_eq!(named, errors, "{when}: named, and an error");
    let progress = world.scrub_progress();
    assert_eq!(progress.lost, errors.len() as u64, "{when}: {progress:?}");
    let mut world = World::open(world.close().unwrap(), false, 2).unwrap();
    let kept = blocks_of(&world.pool().lost_data());
    assert_eq!(kept, named, "{when}: after a restart");
    assert_eq!(unreadable(&mut world, size, 0, when), errors, "{when}");
    // Block by block, with their neighbours still lost, until everything is new.
    for block in 0..size / BLOCK {
        let written = world.write(VOLUME, block * BLOCK, &content(block, 1));
        assert_eq!(written, Ok(()), "{when}: block {block}");
        assert_eq!(
            world.read(VOLUME, block * BLOCK, BLOCK).as_deref(),
            Ok(&*content(block, 1)),
            "{when}: block {block}"
        );
    }
    world.settle();
    assert_eq!(world.pool().lost_data(), [], "{when}: all written again");
    scrub(&mut world);
    assert_eq!(unreadable(&mut world, size, 1, when), [].into(), "{when}");
    scrub(&mut world);
    let progress = world.scrub_progress();
    assert_eq!(
        (progress.bad, progress.lost, progress.failed),
        (0, 0, 0),
        "{when}"
    );
    let mut world = World::open(world.close().unwrap(), false, 3).unwrap();
    assert!(!world.pool().has_lost_data(), "{when}");
    // Redundancy is complete: the loss of a drive loses no data.
    world.pull(Seat(0));
    assert_eq!(unreadable(&mut world, size, 1, when), [].into(), "{when}");
    errors.len()
}

fn map_of(world: &World) -> DriveMap {
    *world.drive_at(Seat(0)).and_then(Drive::map).expect("a map")
}

/// Damages random data blocks of `drives` drives: some return wrong bytes, some cannot be read.
#[test]
fn what_is_named_as_lost_is_what_cannot_be_read() {
    let mut lost = 0;
    for (scheme, drives) in POOLS {
        let (world, size) = filled(scheme, drives);
        for seed in 0..16 {
            let mut world = world.clone();
            let mut generator = ChaCha8Rng::seed_from_u64(seed);
            let map = map_of(&world);
            let used = 4 * world.pool().geometry().cell_bytes();
            for _ in 0..generator.random_range(1..60) {
                let seat = Seat(generator.random_range(0..drives));
                let offset = map.data_offset + generator.random_range(0..used / BLOCK) * BLOCK;
                // Sixteen unreadable blocks put a drive out, if it can be spared.
                match generator.random_range(0..10) {
                    0 => world.drive(seat).spoil(offset),
                    _ => world.drive(seat).flip(offset, 77),
                }
            }
            lost += is_exact(world, size, &format!("{scheme} seed {seed}"));
        }
    }
    assert!(
        lost > 100,
        "{lost} blocks were lost: the damage is too small"
    );
}

/// The metadata pages of one to all drives are overwritten: blocks that have no checksum left are reconstructed,
/// or lost.
#[test]
fn pages_that_are_lost_lose_what_cannot_be_reconstructed_and_no_more() {
    for (scheme, drives) in POOLS {
        let (world, size) = filled(scheme, drives);
        for first in 0..drives {
            for count in 1..=drives {
                let mut world = world.clone();
                let map = map_of(&world);
                for number in 0..count {
                    let drive = world.drive(Seat((first + number) % drives));
                    let mut noise =
                        vec![0; usize::try_from(map.data_offset - map.metadata_offset).unwrap()];
                    ChaCha8Rng::seed_from_u64(number.into()).fill_bytes(&mut noise);
                    drive.write(map.metadata_offset, &noise).unwrap();
                }
                is_exact(world, size, &format!("{scheme}, {count} from {first}"));
            }
        }
    }
}

/// Labels, cell tables or journals of up to all drives but one are overwritten while the pool is closed: the
/// pool opens with all data, or the opening says why not.
#[test]
fn a_region_that_is_lost_is_made_up_for_or_told() {
    for (scheme, drives) in POOLS {
        let (world, size) = filled(scheme, drives);
        let closed = world.close().unwrap();
        for region in [Region::Label, Region::CellTable, Region::Journal] {
            for count in 1..drives {
                let when = format!("{scheme}, {region:?} of {count}");
                let mut drives = closed.clone();
                for (number, drive) in drives.iter_mut().take(count.into()).enumerate() {
                    let range = region.range(drive.map().unwrap());
                    let mut noise = vec![0; usize::try_from(range.end - range.start).unwrap()];
                    ChaCha8Rng::seed_from_u64(number as u64).fill_bytes(&mut noise);
                    drive.write(range.start, &noise).unwrap();
                }
                match World::open(drives, false, 4) {
                    Ok(mut world) => {
                        world.settle();
                        assert!(!world.pool().has_lost_data(), "{when}");
                        let errors = unreadable(&mut world, size, 0, &when);
                        assert!(errors.is_empty(), "{when}: {errors:?}");
                    }
                    Err(error) => assert!(!error.to_string().is_empty(), "{when}"),
                }
            }
        }
    }
}

/// Before, 1,280 neighbouring blocks of two drives out of three were called "reconstructed", and the pool
/// healthy. Now they are lost, by volume and byte, in one report for each run.
#[test]
fn damage_that_cannot_be_repaired_is_not_called_repaired() {
    let (mut world, size) = filled("raid5", 3);
    let map = map_of(&world);
    for seat in [Seat(0), Seat(2)] {
        for block in 4..12 {
            world.drive(seat).flip(map.data_offset + block * BLOCK, 5);
        }
    }
    scrub(&mut world);
    let progress = world.scrub_progress().clone();
    assert_eq!(progress.bad, 16);
    assert!(progress.mended < progress.bad, "{progress:?}");
    let named = world.pool().lost_data();
    assert_eq!(blocks_of(&named).len() as u64, progress.lost);
    let told = world.reports.iter().filter_map(|report| match report {
        Report::DataLost(data) => Some(data.bytes / BLOCK),
        _ => None,
    });
    assert_eq!(told.sum::<u64>(), progress.lost, "each block once");
    for seat in [0, 1, 2] {
        let bad = world.pool().bad_blocks(Seat(seat));
        assert_eq!(bad, if seat == 1 { 0 } else { 8 }, "seat {seat}");
    }
    // A second scrub finds the same, and does not count it against the drives again.
    scrub(&mut world);
    assert_eq!(world.pool().lost_data(), named);
    assert_eq!(world.pool().bad_blocks(Seat(0)), 8);
    // More reads of the same blocks make no new reports.
    let before = world.reports.len();
    let errors = unreadable(&mut world, size, 0, "asked");
    assert_eq!(errors, blocks_of(&named));
    let news = |report: &&Report| matches!(report, Report::DataLost(_) | Report::BlockBad { .. });
    assert_eq!(world.reports[before..].iter().find(news), None);
}

/// Before, one bad block stopped the fill of the whole cell for ever. Now all blocks that can be reconstructed
/// are filled, the others are named, and when these are written again nothing is missing.
#[test]
fn a_rebuild_fills_everything_but_what_nobody_has() {
    for (scheme, drives, out) in [
        ("raid5", 4, 1),
        ("raid6", 5, 2),
        ("pddl2:3d:7c:1s", 7, 2),
        ("raid6:dcode", 5, 2),
    ] {
        let (mut world, size) = filled(scheme, drives);
        let map = map_of(&world);
        let cell_bytes = world.pool().geometry().cell_bytes();
        for row in 0..3 {
            let offset = map.data_offset + row * cell_bytes + 3 * BLOCK;
            world.drive(Seat(3)).flip(offset, 9);
        }
        for seat in 0..out {
            world.pull(Seat(seat));
            // A pulled drive is detected only at its next operation.
            world.fail_drive(Seat(seat), true).unwrap();
        }
        world.settle();
        for seat in 0..out {
            let fresh = Drive::new(
                world.drive_at(Seat(3)).unwrap().size_bytes(),
                sim::Pace::Null,
            );
            let fresh = fresh.with_map(map);
            world.replace_drive(Seat(seat), fresh).unwrap();
        }
        world.settle();
        assert_eq!(world.pool().absent_columns(), 0, "{scheme}: all is filled");
        assert_eq!(world.pool().progress().cells_lost, 0, "{scheme}");
        let named = blocks_of(&world.pool().lost_data());
        let errors = unreadable(&mut world, size, 0, scheme);
        assert_eq!(named, errors, "{scheme}");
        // Where there is spare space, one column may be rebuilt before the next drive fails.
        let spares = world.pool().geometry().layout().spares() > 0;
        assert!(spares || !named.is_empty(), "{scheme}");
        assert!(named.len() < 40, "{scheme}: {named:?}");
        for &block in &named {
            world
                .write(VOLUME, block * BLOCK, &content(block, 0))
                .unwrap();
        }
        world.settle();
        assert!(!world.pool().has_lost_data(), "{scheme}");
        scrub(&mut world);
        scrub(&mut world);
        let progress = world.scrub_progress();
        assert_eq!((progress.bad, progress.lost), (0, 0), "{scheme}");
        world.pull(Seat(3));
        assert_eq!(
            unreadable(&mut world, size, 0, scheme),
            [].into(),
            "{scheme}"
        );
    }
}
