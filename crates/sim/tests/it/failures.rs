//! Drives fail one after another. Every byte stays right as long as the code survives; data that is lost
//! beyond that is reported.

use block::{Fault, Seat};
use rand::{Rng, RngExt};
use sim::load::Target;
use sim::model::preset;
use sim::{Drive, Oracle, StudyOptions, StudyVolume, World, WorldOptions};

const VOLUME: &str = "v";

fn options(scheme: &str, drives: u16) -> WorldOptions {
    WorldOptions {
        cell_bytes: 8192,
        // As in new pools. Has no effect on the classic levels.
        interleave: true,
        free_stripes: false,
        seed: u64::from(drives),
        ..WorldOptions::small(scheme, drives)
    }
}

/// A world with one volume over a whole pattern of the layout, full of random bytes.
fn filled_world(options: &WorldOptions, groups: u64) -> (World, Oracle) {
    let mut world = World::create(options);
    let size = groups * world.pool().geometry().group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let mut oracle = Oracle::new(size);
    let mut bytes = vec![0; usize::try_from(size).unwrap()];
    world.rng().fill_bytes(&mut bytes);
    world.write(VOLUME, 0, &bytes).unwrap();
    oracle.wrote(0, &bytes);
    (world, oracle)
}

/// Writes of all sizes and alignments.
fn scribble(world: &mut World, oracle: &mut Oracle, size: u64, count: usize) {
    for _ in 0..count {
        let length = match world.rng().random_range(0..4) {
            0 => 4096,
            1 => world.rng().random_range(1..8192),
            2 => 4096 * world.rng().random_range(1..16),
            _ => world.rng().random_range(1..100_000),
        };
        let length = u64::min(length, size);
        let mut offset = world.rng().random_range(0..=size - length);
        if length.is_multiple_of(4096) {
            offset = offset / 4096 * 4096;
        }
        let mut bytes = vec![0; usize::try_from(length).unwrap()];
        world.rng().fill_bytes(&mut bytes);
        world.write(VOLUME, offset, &bytes).unwrap();
        oracle.wrote(offset, &bytes);
    }
}

fn check_all(world: &mut World, oracle: &Oracle, size: u64, when: &str) {
    let read = world.read(VOLUME, 0, size);
    let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
    oracle.check(0, &read, when);
}

/// A closed pool like [`filled_world`]'s: opening a copy of its drives is quicker than searching a
/// layout's bases and filling a volume anew for each pair.
struct Template {
    options: WorldOptions,
    size: u64,
    drives: Vec<Drive>,
    oracle: Oracle,
}

impl Template {
    fn new(options: WorldOptions, groups: u64) -> Self {
        let (world, oracle) = filled_world(&options, groups);
        let size = groups * world.pool().geometry().group_data_bytes();
        let drives = world.close().unwrap();
        Self {
            options,
            size,
            drives,
            oracle,
        }
    }
}

/// The first failure, writes during its rebuild, the second failure, and a full read after each step.
fn fail_pair(template: &Template, first: Seat, second: Seat, wait: bool) {
    let Template { options, size, .. } = template;
    let size = *size;
    let mut oracle = template.oracle.clone();
    let seed = u64::from(first.0) << 16 | u64::from(second.0);
    let mut world = World::open(template.drives.clone(), false, seed).unwrap();
    let step = |name| format!("{} {first} then {second}: {name}", options.scheme);

    world.fail_drive(first, false).unwrap();
    check_all(&mut world, &oracle, size, &step("one out"));
    scribble(&mut world, &mut oracle, size, 3);
    check_all(&mut world, &oracle, size, &step("written with one out"));
    if wait {
        world.settle();
        check_all(&mut world, &oracle, size, &step("first rebuilt"));
    }
    // Pulled, not failed by command: the pool has to detect the failure.
    world.pull(second);
    scribble(&mut world, &mut oracle, size, 3);
    check_all(&mut world, &oracle, size, &step("two out"));
    world.settle();
    check_all(&mut world, &oracle, size, &step("quiet"));
    scribble(&mut world, &mut oracle, size, 2);

    for seat in [second, first] {
        let drive = Drive::new(options.drive_bytes, options.pace);
        world.fail_drive(seat, true).ok();
        world.settle();
        world.replace_drive(seat, drive).unwrap();
        scribble(&mut world, &mut oracle, size, 1);
        world.settle();
        check_all(&mut world, &oracle, size, &step("replaced"));
    }
    let facts = world.pool().facts();
    for (seat, facts) in facts.seats() {
        assert_eq!(
            facts.state,
            array::pool::SeatState::Current,
            "{}: seat {seat}",
            step("redundancy is back")
        );
    }
    // Redundancy is indeed back: any other two drives may fail.
    let others: Vec<Seat> = (0..options.drives)
        .map(Seat)
        .filter(|&seat| seat != first && seat != second)
        .take(2)
        .collect();
    for &seat in &others {
        world.pull(seat);
    }
    check_all(&mut world, &oracle, size, &step("two others out"));
}

fn all_pairs(options: WorldOptions, groups: u64) {
    let template = Template::new(options, groups);
    let options = &template.options;
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let mut turn = 0;
    for first in 0..options.drives {
        for second in (0..options.drives).filter(|&second| second != first) {
            // With and without the wait in the long form; alternating otherwise.
            for wait in [false, true] {
                if long || usize::from(wait) == turn % 2 {
                    fail_pair(&template, Seat(first), Seat(second), wait);
                }
            }
            turn += 1;
        }
    }
}

#[test]
fn every_ordered_pair_of_failures_on_raid6_of_6_loses_nothing() {
    all_pairs(options("raid6", 6), 12);
}

#[test]
fn every_ordered_pair_of_failures_on_raid6_of_12_loses_nothing() {
    all_pairs(options("raid6", 12), 12);
}

#[test]
fn every_ordered_pair_of_failures_on_pddl2_of_13_loses_nothing() {
    all_pairs(options("pddl2:4d:13c:1s", 13), 26);
}

#[test]
fn every_ordered_pair_of_failures_on_pddl2_of_14_loses_nothing() {
    all_pairs(options("pddl2:4d:14c:2s", 14), 28);
}

/// Codes with several rows, mirrors, and three parities: the same steps, with fewer pairs.
#[test]
fn other_codes_and_layouts_survive_pairs_of_failures_too() {
    for (scheme, drives, groups) in [
        ("raid6:dcode", 5, 6),
        ("raid6:dcode", 7, 4),
        ("raid6:xcode", 5, 6),
        ("raid6:rdp", 6, 6),
        ("raid6:evenodd", 7, 6),
        ("raid6:hcode", 6, 6),
        ("raid6:hdp", 6, 6),
        ("raid6:liberation", 6, 4),
        ("raid6:blaumroth", 6, 4),
        ("raid6:cauchy", 6, 6),
        ("pddl2:rdp:4d:13c:1s", 13, 26),
        ("raid7", 7, 8),
        ("raid1:3r", 3, 6),
        ("raid10:far:3r", 6, 8),
    ] {
        a_few_pairs(scheme, drives, groups);
    }
}

#[test]
fn every_declustered_layout_survives_pairs_of_failures() {
    for kind in layout::declustered::KINDS {
        let example: layout::Scheme = kind.examples[0].parse().expect("a scheme");
        let drives = example.drives.expect("an example says its drives");
        a_few_pairs(kind.examples[0], drives, 14);
    }
}

fn a_few_pairs(scheme: &str, drives: u16, groups: u64) {
    let mut options = options(scheme, drives);
    // Eleven rows of chunks for the widest code, and some more.
    options.cell_bytes = 64 << 10;
    let template = Template::new(options, groups);
    for (first, second, wait) in [(0, 1, false), (2, 0, true), (drives - 1, 1, false)] {
        fail_pair(&template, Seat(first), Seat(second), wait);
    }
}

#[test]
fn a_third_failure_is_reported_and_what_can_be_read_is_right() {
    let options = options("pddl2:4d:13c:1s", 13);
    let (mut world, oracle) = filled_world(&options, 26);
    let group_bytes = world.pool().geometry().group_data_bytes();
    // All blocks are in place: blocks in memory could be read without any drive.
    world.settle();
    for seat in [2, 5, 11] {
        world.pull(Seat(seat));
    }
    // The pool waits for the third drive, until it is given up.
    for block in 0..26 * group_bytes / 4096 {
        if let Ok(bytes) = world.read(VOLUME, block * 4096, 4096) {
            oracle.check(block * 4096, &bytes, "three gone");
        }
    }
    world.give_up_gone();
    let (mut lost, mut right) = (0, 0);
    for block in 0..26 * group_bytes / 4096 {
        match world.read(VOLUME, block * 4096, 4096) {
            Ok(bytes) => {
                oracle.check(block * 4096, &bytes, "three out");
                right += 1;
            }
            Err(fault) => {
                assert_eq!(fault, Fault::Lost, "block {block}");
                lost += 1;
            }
        }
    }
    assert!(lost > 0 && right > lost, "{lost} lost, {right} right");
    assert!(
        world
            .reports
            .iter()
            .any(|report| matches!(report, array::pool::Report::StripeLost { .. })),
        "the loss is reported"
    );
    assert!(world.write(VOLUME, 0, &vec![1; 4096]).is_ok() || lost > 0);
    world.settle();
}

#[test]
fn failing_a_drive_that_is_needed_is_refused_unless_forced() {
    let options = options("raid5", 4);
    let (mut world, oracle) = filled_world(&options, 8);
    let size = 8 * world.pool().geometry().group_data_bytes();
    world.fail_drive(Seat(1), false).unwrap();
    let refused = world.fail_drive(Seat(2), false).unwrap_err().to_string();
    assert!(refused.contains("without the drive in seat 2"), "{refused}");
    check_all(&mut world, &oracle, size, "still one out");
    // All blocks are in place: logged blocks could be read without any drive.
    world.settle();
    world.fail_drive(Seat(2), true).unwrap();
    world.settle();
    let read = world.read(VOLUME, 0, size);
    assert_eq!(read.map(|bytes| bytes.len()), Err(Fault::Lost));
    world.settle();
}

#[test]
fn a_waiting_spare_takes_the_seat_by_itself() {
    let mut options = options("raid6", 6);
    options.spares = 1;
    let (mut world, oracle) = filled_world(&options, 12);
    let size = 12 * world.pool().geometry().group_data_bytes();
    world.pull(Seat(4));
    check_all(&mut world, &oracle, size, "one out");
    world.write(VOLUME, 0, oracle.expected(0, 65536)).unwrap();
    world.settle();
    let facts = world.pool().facts();
    assert_eq!(facts.seats[4].state, array::pool::SeatState::Current);
    assert!(matches!(
        facts.seats[6].state,
        array::pool::SeatState::Out { .. }
    ));
    // A new drive in the seat of the failed one is a waiting spare again, and takes the next seat that
    // needs a drive.
    let drive = Drive::new(options.drive_bytes, options.pace);
    world.replace_drive(Seat(6), drive).unwrap();
    let waiting = world.pool().facts().seats[6].state;
    assert_eq!(waiting, array::pool::SeatState::Waiting);
    world.pull(Seat(0));
    world.pull(Seat(1));
    check_all(&mut world, &oracle, size, "two more out");
    world.settle();
    let facts = world.pool().facts();
    let current = |seat: usize| facts.seats[seat].state == array::pool::SeatState::Current;
    assert!(current(0) != current(1), "one of the two was replaced");
}

/// Before, a drive that returned while its columns were on their way into spare space stayed "filling"
/// for ever: a column that reached a spare cell only after its home had returned was not moved home,
/// since it was in flight when the queue was made anew. And a move home must not begin before the lanes
/// know of the new drive; otherwise they skip its writes, and the cell holds zeros.
#[test]
fn a_drive_that_comes_back_during_its_rebuild_is_filled_to_the_end() {
    let options = options("pddl2:4d:14c:2s", 14);
    // More cells than are filled at once: some still wait when the drive returns.
    let template = Template::new(options, 140);
    for steps in 0..40 {
        let drives = template.drives.clone();
        let mut world = World::open(drives, false, steps).unwrap();
        world.fail_drive(Seat(5), false).unwrap();
        for _ in 0..steps * 12 {
            world.step();
        }
        let drive = Drive::new(template.options.drive_bytes, template.options.pace);
        world.replace_drive(Seat(5), drive).unwrap();
        world.settle();
        let state = world.pool().facts().seats[5].state;
        assert_eq!(state, array::pool::SeatState::Current, "{steps} steps");
        check_all(&mut world, &template.oracle, template.size, "filled");
    }
}

/// Half of a RAID-10's drives can fail without a loss if every mirror keeps a copy. Before, the count of
/// missing columns alone made such a pool unusable.
#[test]
fn a_mirror_that_has_a_copy_of_everything_has_lost_nothing() {
    let (mut world, oracle) = filled_world(&options("raid10", 4), 8);
    let size = 8 * world.pool().geometry().group_data_bytes();
    for seat in [1, 3] {
        world.fail_drive(Seat(seat), false).unwrap();
    }
    world.settle();
    check_all(&mut world, &oracle, size, "one of each pair out");
    assert_eq!(world.pool().lost_groups(), 0);
    world.fail_drive(Seat(0), true).unwrap();
    world.settle();
    assert_eq!(world.pool().lost_groups(), 8);
}

#[test]
fn rebuild_onto_distributed_spares_is_faster_than_onto_one_drive() {
    let seconds = |scheme: &str| {
        let options = StudyOptions {
            drives: Some(13),
            drive_bytes: Some(1 << 30),
            cell_bytes: Some(1 << 20),
            ..StudyOptions::new(scheme, preset("server").unwrap())
        };
        // Full, because cells that were never written cost only their pages.
        let mut pool = StudyVolume::create(&options, Some(6 << 30)).unwrap();
        pool.fail(Seat(3)).unwrap();
        while pool.rebuild().ended.is_none() {
            let at = pool.poll_timeout().expect("the rebuild goes on");
            pool.handle_timeout(at);
        }
        let rebuild = pool.rebuild();
        let ended = rebuild.ended.expect("it has just ended");
        ended.since(rebuild.began).as_secs_f64()
    };
    let ratio = seconds("raid6:4d:13c:1s") / seconds("pddl2:4d:13c:1s");
    let bound = 13.0 * 12.0 / (12.0 * 5.0);
    assert!(
        ratio > 0.9 * bound && ratio < 1.1 * bound,
        "{ratio} against a bound of {bound}"
    );
}

#[test]
fn a_pool_that_was_killed_opens_with_everything_that_was_acknowledged() {
    for seed in 0..20 {
        let mut options = options("pddl2:4d:13c:1s", 13);
        options.seed = seed;
        let (mut world, mut oracle) = filled_world(&options, 26);
        let size = 26 * world.pool().geometry().group_data_bytes();
        scribble(&mut world, &mut oracle, size, 5);
        world.pull(Seat(7));
        scribble(&mut world, &mut oracle, size, 2);
        // At some step of the rebuild.
        for _ in 0..seed * 40 {
            world.step();
        }
        let drives = world.kill();
        let mut world = World::open(drives, false, seed).unwrap();
        check_all(&mut world, &oracle, size, "opened again");
        scribble(&mut world, &mut oracle, size, 3);
        world.settle();
        check_all(&mut world, &oracle, size, "and quiet");
        let drives = world.close().unwrap();
        let mut world = World::open(drives, false, seed).unwrap();
        check_all(&mut world, &oracle, size, "closed and opened");
        // One drive has been rebuilt: two more may fail.
        world.pull(Seat(0));
        world.pull(Seat(12));
        check_all(&mut world, &oracle, size, "two out");
        world.settle();
    }
}

/// Before, trims and writes of zeros were planned only as whole stripes. A part of a stripe made of
/// whole blocks reads nothing before it is written, and such a read plan without pieces failed.
#[test]
fn zeroes_and_trims_of_any_range_read_back_as_zeros() {
    for (scheme, drives, out) in [
        ("raid6", 6, 2),
        ("pddl2:4d:13c:1s", 13, 2),
        ("raid10", 4, 1),
    ] {
        let (mut world, mut oracle) = filled_world(&options(scheme, drives), 12);
        let size = 12 * world.pool().geometry().group_data_bytes();
        for step in 0..=out {
            for turn in 0..40 {
                let mut length = world.rng().random_range(1..200_000).min(size);
                let mut offset = world.rng().random_range(0..=size - length);
                if turn % 2 == 0 {
                    length = length.next_multiple_of(4096).min(size);
                    offset = offset.min(size - length) / 4096 * 4096;
                }
                let kind = if turn % 3 == 0 {
                    block::RequestKind::Trim
                } else {
                    block::RequestKind::WriteZeroes
                };
                let request = block::Request {
                    kind,
                    offset,
                    length,
                    fua: turn % 5 == 0,
                };
                world.request(VOLUME, request, &[]).unwrap();
                oracle.wrote(offset, &vec![0; usize::try_from(length).unwrap()]);
                scribble(&mut world, &mut oracle, size, 1);
            }
            check_all(&mut world, &oracle, size, &format!("{scheme}, {step} out"));
            if step < out {
                world.pull(Seat(step));
            }
        }
        world.settle();
    }
}

#[test]
fn a_bad_block_is_read_around_and_mended() {
    let (mut world, oracle) = filled_world(&options("raid5", 5), 8);
    let size = 8 * world.pool().geometry().group_data_bytes();
    let data_offset = world.pool().facts().data_offset;
    world.settle();
    for block in 0..4 {
        world.drive(Seat(2)).spoil(data_offset + block * 4096);
    }
    check_all(&mut world, &oracle, size, "bad blocks on one drive");
    world.settle();
    // The bad block was repaired: now the same block of another drive may go bad.
    world.drive(Seat(3)).spoil(data_offset);
    check_all(&mut world, &oracle, size, "one bad block after the other");
    world.settle();
    for seat in [2, 3] {
        world.drive(Seat(seat)).spoil(data_offset);
    }
    assert_eq!(world.read(VOLUME, 0, size), Err(Fault::Medium));
    world.settle();
}
