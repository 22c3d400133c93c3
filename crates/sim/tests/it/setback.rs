//! A drive, or a region of it, silently returns to the state of an earlier moment.
//!
//! The blocks and checksums of such a drive agree with each other. If this drive and the lost drives together
//! are no more than the code survives, a read returns the data that was written last. With one drive more, a
//! read may return the old data or an error; never data that was not written there.

use array::pool::{RegionSizes, Report};
use block::{Fault, Request, RequestKind, Seat};
use sim::{CutSpec, Drive, Region, Regions, World, WorldOptions};

const VOLUME: &str = "v";
const BLOCK: u64 = 4096;

/// A pool, and the number of lost drives that its code survives.
struct Pool {
    scheme: &'static str,
    drives: u16,
    survives: usize,
    /// In elastic pools: the percentage of copies at first, and after the second writes.
    shares: Option<[u8; 2]>,
}

const POOLS: [Pool; 9] = [
    Pool {
        scheme: "raid5",
        drives: 4,
        survives: 1,
        shares: None,
    },
    Pool {
        scheme: "raid6",
        drives: 6,
        survives: 2,
        shares: None,
    },
    Pool {
        scheme: "raid1:3r",
        drives: 3,
        survives: 2,
        shares: None,
    },
    Pool {
        scheme: "pddl2:2d:6c:1s",
        drives: 6,
        survives: 2,
        shares: None,
    },
    Pool {
        scheme: "raid6:dcode",
        drives: 5,
        survives: 2,
        shares: None,
    },
    elastic("elastic5", 4, [100, 100]),
    elastic("elastic5", 4, [0, 100]),
    elastic("elastic5", 4, [100, 0]),
    Pool {
        survives: 2,
        ..elastic("elastic6", 5, [50, 100])
    },
];

const fn elastic(scheme: &'static str, drives: u16, shares: [u8; 2]) -> Pool {
    Pool {
        scheme,
        drives,
        survives: 1,
        shares: Some(shares),
    }
}

/// Sets the share of copies, and waits until they are in place.
fn share(world: &mut World, share: Option<u8>) {
    if share.is_some() {
        assert!(world.set_elastic_share(share));
        for _ in 0..4 {
            world.settle();
        }
    }
}

/// What is set back: each region alone, metadata with data, all but the journal, and the whole drive.
fn regions() -> Vec<Regions> {
    let mut all: Vec<Regions> = Region::ALL.map(|region| Regions::of(&[region])).to_vec();
    all.push(Regions::of(&[Region::Metadata, Region::Data]));
    all.push(Regions::of(&[
        Region::Label,
        Region::CellTable,
        Region::Metadata,
        Region::Data,
    ]));
    all.push(Regions::ALL);
    all
}

/// Content of block `block` after its `version`th write.
fn content(block: u64, version: u64) -> u8 {
    u8::try_from((block * 37 + version * 101) % 251 + 1).expect("below 252")
}

fn size(world: &World) -> u64 {
    2 * world.pool().geometry().group_data_bytes()
}

fn flush(world: &mut World) {
    let request = Request {
        kind: RequestKind::Flush,
        offset: 0,
        length: 0,
        fua: false,
    };
    world.request(VOLUME, request, &[]).unwrap();
}

/// Writes the blocks that `chosen` selects.
fn write(world: &mut World, version: u64, chosen: impl Fn(u64) -> bool) {
    let blocks = size(world) / BLOCK;
    let mut from = 0;
    while from < blocks {
        let run = (from..blocks).take_while(|&block| chosen(block)).count() as u64;
        if run == 0 {
            from += 1;
            continue;
        }
        let bytes: Vec<u8> = (from * BLOCK..(from + run) * BLOCK)
            .map(|byte| content(byte / BLOCK, version))
            .collect();
        world.write(VOLUME, from * BLOCK, &bytes).unwrap();
        from += run;
    }
    flush(world);
}

/// What a read of a block returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    New,
    Old,
    Error,
    Garbage,
}

/// Reads every block separately, so that an error of one does not hide another.
fn read_all(world: &mut World, new: impl Fn(u64) -> u8, old: impl Fn(u64) -> u8) -> Vec<Seen> {
    let blocks = size(world) / BLOCK;
    let mut all = Vec::new();
    for block in 0..blocks {
        let seen = match world.read(VOLUME, block * BLOCK, BLOCK) {
            Err(Fault::Lost | Fault::Medium) => Seen::Error,
            Err(fault) => panic!("block {block}: {fault}"),
            Ok(bytes) if bytes.iter().all(|&byte| byte == new(block)) => Seen::New,
            Ok(bytes) if bytes.iter().all(|&byte| byte == old(block) || byte == 0) => Seen::Old,
            Ok(_) => Seen::Garbage,
        };
        all.push(seen);
    }
    all
}

/// A third of all blocks is written once, the others twice, so that stripes are changed in part and as a whole.
fn rewritten(block: u64) -> bool {
    block % 3 != 1
}

fn new(block: u64) -> u8 {
    content(block, if rewritten(block) { 2 } else { 1 })
}

fn old(block: u64) -> u8 {
    content(block, 1)
}

fn begin(pool: &Pool, first_format: bool) -> World {
    let options = WorldOptions {
        // Two planes or three of whole mebibytes.
        drive_bytes: if pool.shares.is_some() {
            18 << 20
        } else {
            14 << 20
        },
        regions: Some(RegionSizes {
            first_format: first_format && pool.shares.is_none(),
            ..RegionSizes::default()
        }),
        ..WorldOptions::small(pool.scheme, pool.drives)
    };
    let mut world = World::create(&options);
    let size = size(&world);
    world.create_volume(VOLUME, size).unwrap();
    write(&mut world, 1, |_| true);
    world.settle();
    share(&mut world, pool.shares.map(|[first, _]| first));
    world
}

/// All sets of at most `most` of the drives other than `back`.
fn losses(drives: u16, back: u16, most: usize) -> Vec<Vec<Seat>> {
    let others = (0..drives).filter(|&seat| seat != back).map(Seat);
    let mut sets = vec![Vec::new()];
    for seat in others {
        let larger: Vec<Vec<Seat>> = sets
            .iter()
            .filter(|set: &&Vec<Seat>| set.len() < most)
            .map(|set| [set.as_slice(), &[seat]].concat())
            .collect();
        sets.extend(larger);
    }
    sets
}

fn count(seen: &[Seen], what: Seen) -> usize {
    seen.iter().filter(|&&seen| seen == what).count()
}

/// This failed before reconstructed blocks were compared with their checksums: `raid6` of six, every block
/// written and flushed, overwritten and flushed, the pool closed; metadata and data of one drive set back to
/// the first state; the pool opened, and another drive failed. The stale blocks passed their stale entries and
/// were used to reconstruct the lost column, whose right entries were known and not compared: 1,280 blocks of
/// 40 MiB were neither old nor new nor an error. A scrub found nothing.
///
/// Pools of the first format keep two copies of a page: without the neighbour's copy the old entries count.
/// With one copy more everything is new.
#[test]
fn what_is_reconstructed_beside_a_drive_that_was_set_back_is_what_was_written() {
    let pool = &POOLS[1];
    for first_format in [true, false] {
        let mut world = begin(pool, first_format);
        let then = world.drives().to_vec();
        write(&mut world, 2, |_| true);
        let now = world.close().unwrap();
        for back in 0..pool.drives {
            for lost in (0..pool.drives).filter(|&lost| lost != back) {
                let story = format!("drive {back} is old, drive {lost} lost");
                let mut drives = now.clone();
                let at = usize::from(back);
                drives[at].set_back(&then[at], Regions::of(&[Region::Metadata, Region::Data]));
                let mut world = World::open(drives, false, 7).unwrap();
                world.fail_drive(Seat(lost), false).unwrap();
                let seen = read_all(&mut world, |block| content(block, 2), old);
                assert_eq!(count(&seen, Seen::Garbage), 0, "{story}: {seen:?}");
                assert_eq!(count(&seen, Seen::Error), 0, "{story}: {seen:?}");
                if !first_format || lost != (back + 1) % pool.drives {
                    assert_eq!(count(&seen, Seen::Old), 0, "{story}: {seen:?}");
                }
            }
        }
    }
}

/// When the other drives are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// After the pool has been opened with the old drive.
    Last,
    /// Before the second writes, so that the changes for the lost drives are written nowhere.
    First,
}

/// The pool after the second writes: closed, or stopped by a power cut with these writes in the journal.
fn stopped(world: &World, pool: &Pool, lost: &[Seat], closed: bool) -> Vec<Drive> {
    let mut world = world.clone();
    for &seat in lost {
        world.fail_drive(seat, false).unwrap();
    }
    if pool.scheme.starts_with("pddl") {
        world.settle();
    }
    write(&mut world, 2, rewritten);
    if lost.is_empty() {
        share(&mut world, pool.shares.map(|[_, second]| second));
    }
    match closed {
        true => world.close().unwrap(),
        false => world.cut(CutSpec::None),
    }
}

/// Every drive, and each element of `regions()`, with every set of as many lost drives as the code survives
/// (lost before the last writes, or after the pool has been opened), after a clean stop and after a power cut
/// that leaves the last writes in the journal. In the largest sets the old drive is one drive too many: a read
/// returns an old block or an error. In the other sets everything is new.
fn set_back(when: When) {
    let long = std::env::var_os("RAVELIN_LONG").is_some();
    let mut cases = 0;
    for (number, pool) in POOLS.iter().enumerate() {
        let world = begin(pool, false);
        let then = world.drives().to_vec();
        let sets = losses(pool.drives, pool.drives, pool.survives);
        for (which, lost) in sets.iter().enumerate() {
            for closed in [true, false] {
                let mut now: Option<Vec<Drive>> = None;
                for back in (0..pool.drives).filter(|&back| !lost.contains(&Seat(back))) {
                    for (kind, regions) in regions().into_iter().enumerate() {
                        let case = number + usize::from(back) + kind + which + usize::from(closed);
                        // Without RAVELIN_LONG only a part of the cases.
                        if !long && !case.is_multiple_of(5) {
                            continue;
                        }
                        cases += 1;
                        let story = format!(
                            "{} {:?}, closed {closed}: {regions:?} of drive {back} is old, {lost:?} lost {when:?}",
                            pool.scheme, pool.shares
                        );
                        let first: &[Seat] = match when {
                            When::First => lost,
                            When::Last => &[],
                        };
                        let now = now.get_or_insert_with(|| stopped(&world, pool, first, closed));
                        let mut drives = now.clone();
                        let at = usize::from(back);
                        drives[at].set_back(&then[at], regions);
                        let within = lost.len() < pool.survives;
                        let mut world = match World::open(drives, true, 7) {
                            Ok(world) => world,
                            // More is missing than the code survives, and the opening says so.
                            Err(_) if !within => continue,
                            Err(error) => panic!("{story}: {error}"),
                        };
                        if when == When::Last {
                            lost.iter().for_each(|&seat| world.pull(seat));
                        }
                        let seen = read_all(&mut world, new, old);
                        assert_eq!(count(&seen, Seen::Garbage), 0, "{story}: {seen:?}");
                        if within {
                            assert_eq!(count(&seen, Seen::New), seen.len(), "{story}: {seen:?}");
                        }
                    }
                }
            }
        }
    }
    assert!(cases > 300, "{cases}");
}

#[test]
fn nothing_that_was_not_written_is_read_from_a_drive_that_was_set_back() {
    set_back(When::Last);
}

#[test]
fn nothing_that_was_not_written_is_read_if_drives_were_lost_before() {
    set_back(When::First);
}

/// All drives are there, and one is old. Reads, and a scrub that compares parity with data and copies with each
/// other, restore the drive; then as many drives can be lost as before.
#[test]
fn a_scrub_makes_a_drive_that_was_set_back_as_it_was() {
    for pool in &POOLS {
        for first_format in [true, false] {
            let mut world = begin(pool, first_format);
            let then = world.drives().to_vec();
            write(&mut world, 2, rewritten);
            share(&mut world, pool.shares.map(|[_, second]| second));
            let now = world.close().unwrap();
            for back in 0..pool.drives {
                let story = format!("{} {:?} drive {back}", pool.scheme, pool.shares);
                let mut drives = now.clone();
                let at = usize::from(back);
                drives[at].set_back(&then[at], Regions::of(&[Region::Metadata, Region::Data]));
                if drives[at].digest() == now[at].digest() {
                    // The drive has only spare cells of these groups.
                    continue;
                }
                let mut world = World::open(drives, false, 7).unwrap();
                world.scrub().unwrap();
                world.settle();
                assert!(world.scrub_progress().bad > 0, "{story}");
                let mended = |report: &Report| matches!(report, Report::PagesMended { seat, .. } if seat.index() == at);
                assert!(world.reports.iter().any(mended), "{story}");
                world.scrub().unwrap();
                world.settle();
                assert_eq!(world.scrub_progress().bad, 0, "{story}");
                let others = (0..pool.drives).filter(|&seat| seat != back);
                for seat in others.take(pool.survives) {
                    world.pull(Seat(seat));
                }
                let seen = read_all(&mut world, new, old);
                assert_eq!(count(&seen, Seen::New), seen.len(), "{story}: {seen:?}");
            }
        }
    }
}

/// One drive more than the code survives is set back under an open pool, as a controller does that loses its cache.
/// Memory has the checksums of what was written, and no drive has them any more. A block reads as what was written
/// last or as an error, before a scrub and after it, and after the pool has been closed and opened again.
///
/// A scrub dropped these checksums and believed the old ones: blocks read as zeros, and as what they had been.
#[test]
fn a_scrub_of_more_old_drives_than_the_code_survives_makes_no_block_an_old_one() {
    for pool in POOLS.iter().filter(|pool| pool.survives == 2) {
        let mut errors = 0;
        for first in 0..pool.drives - 2 {
            let mut world = begin(pool, false);
            let then = world.drives().to_vec();
            write(&mut world, 2, rewritten);
            world.settle();
            for back in first..first + 3 {
                let then = &then[usize::from(back)];
                let regions = Regions::of(&[Region::Metadata, Region::Data]);
                world.drive(Seat(back)).set_back(then, regions);
            }
            let story = |when| format!("{} from drive {first}, {when}", pool.scheme);
            let before = read_all(&mut world, new, old);
            world.scrub().unwrap();
            world.settle();
            let scrubbed = read_all(&mut world, new, old);
            let mut world = World::open(world.close().unwrap(), false, 7).unwrap();
            let opened = read_all(&mut world, new, old);
            let all = [
                (before, "before"),
                (scrubbed, "scrubbed"),
                (opened, "opened"),
            ];
            for (seen, when) in &all {
                let wrong = count(seen, Seen::Old) + count(seen, Seen::Garbage);
                assert_eq!(wrong, 0, "{}: {seen:?}", story(when));
                errors += count(seen, Seen::Error);
            }
        }
        assert!(
            errors > 0,
            "{}: more is gone than the code survives",
            pool.scheme
        );
    }
}

/// Both copies of a drive's checksums are old, its own and its neighbour's, and so are its blocks. Only the
/// other blocks of the row contradict such a block: parity does not match.
#[test]
fn a_scrub_finds_old_blocks_whose_checksums_are_all_old() {
    let pool = &POOLS[1];
    let mut world = begin(pool, true);
    let then = world.drives().to_vec();
    // Only blocks of a stripe's first data element: one column of each stripe changes, and its parities.
    let data = world.pool().geometry().code().data().len() as u64;
    let changed = move |block: u64| block.is_multiple_of(data);
    write(&mut world, 2, changed);
    let now = world.close().unwrap();
    for back in 0..pool.drives {
        let mut drives = now.clone();
        let (own, next) = (usize::from(back), usize::from((back + 1) % pool.drives));
        drives[own].set_back(&then[own], Regions::of(&[Region::Metadata, Region::Data]));
        drives[next].set_back(&then[next], Regions::of(&[Region::Metadata]));
        let mut world = World::open(drives, false, 7).unwrap();
        world.scrub().unwrap();
        world.settle();
        let newest = |block| content(block, if changed(block) { 2 } else { 1 });
        let seen = read_all(&mut world, newest, old);
        assert_eq!(
            count(&seen, Seen::New),
            seen.len(),
            "drive {back}: {seen:?}"
        );
        world.scrub().unwrap();
        world.settle();
        assert_eq!(world.scrub_progress().bad, 0, "drive {back}");
    }
}

/// A drive whose label is current and whose journal was set back is reported.
#[test]
fn a_drive_whose_journal_is_older_than_its_label_is_named() {
    let pool = &POOLS[0];
    let mut world = begin(pool, false);
    let then = world.drives().to_vec();
    for version in 2..5 {
        write(&mut world, version, |_| true);
        world.settle();
    }
    let mut drives = world.close().unwrap();
    drives[2].set_back(&then[2], Regions::of(&[Region::Journal]));
    let world = World::open(drives, false, 7).unwrap();
    let old: Vec<Seat> = world
        .reports
        .iter()
        .filter_map(|report| match report {
            Report::DriveOld { seat, .. } => Some(*seat),
            _ => None,
        })
        .collect();
    assert_eq!(old, [Seat(2)]);
}
