//! Neighbouring pages of checksums are one read, and are as safe as if each were read separately.
//!
//! Before, every copy of every page was a read of its own: a fill needed three such operations for each operation
//! on the cell itself.

use array::pool::Report;
use sim::load::Target;
use sim::model::preset;
use sim::{StudyOptions, StudyVolume, World, WorldOptions};

use block::Seat;

const VOLUME: &str = "v";
const PAGE: u64 = array::format::PAGE_BYTES;

/// A pool whose cells have five pages, with a fully written volume.
fn filled(scheme: &str, drives: u16) -> (World, Vec<u8>) {
    let mut world = World::create(&WorldOptions {
        drive_bytes: 48 << 20,
        chunk_bytes: 64 << 10,
        cell_bytes: 8 << 20,
        ..WorldOptions::small(scheme, drives)
    });
    let geometry = world.pool().geometry();
    assert_eq!(geometry.pages_per_cell(), 5);
    let size = geometry.group_data_bytes();
    world.create_volume(VOLUME, size).unwrap();
    let bytes: Vec<u8> = (0..size / 4096)
        .flat_map(|block| [u8::try_from(block % 251).expect("below 251") + 1; 4096])
        .collect();
    for (at, part) in (0..).step_by(1 << 20).zip(bytes.chunks(1 << 20)) {
        world.write(VOLUME, at, part).unwrap();
    }
    world.settle();
    (reopened(world), bytes)
}

/// Closes and opens the pool, so that no page is in memory.
fn reopened(world: World) -> World {
    World::open(world.close().unwrap(), false, 1).unwrap()
}

/// Makes one of the pages beside each cell of a drive unreadable.
fn spoil(world: &mut World, seat: Seat, place: u64) {
    let beside = world.pool().geometry().pages_beside_bytes();
    let rows = world.pool().geometry().rows();
    let drive = world.drive(seat);
    let map = *drive.map().expect("it has a label");
    for row in 0..rows {
        drive.spoil(map.metadata_offset + row * beside + place * PAGE);
    }
}

/// On every drive some page beside each cell cannot be read, and each page has one copy that can. If the neighbours
/// of a bad sector counted as bad, too, pages would be lost.
#[test]
fn a_bad_sector_costs_one_copy_of_one_page() {
    for (scheme, drives) in [("raid5", 4), ("raid6", 5), ("raid1:3r", 3)] {
        let (world, bytes) = filled(scheme, drives);
        let copies = world.pool().geometry().page_copies();
        for place in 0..copies * world.pool().geometry().pages_per_cell() {
            let mut world = world.clone();
            for seat in 0..drives {
                spoil(&mut world, Seat(seat), place);
            }
            world.reports.clear();
            world.scrub().unwrap();
            world.settle();
            let when = format!("{scheme}, place {place}: {:?}", world.reports);
            let lost = |report: &Report| matches!(report, Report::PageLost { .. });
            assert!(!world.reports.iter().any(lost), "{when}");
            assert!(!world.pool().has_lost_data(), "{when}");
            let read = world.read(VOLUME, 0, bytes.len() as u64).unwrap();
            assert!(read == bytes, "{when}");
        }
    }
}

/// A rebuild with checksums takes few more operations than one without.
#[test]
fn a_fill_reads_the_pages_beside_a_cell_a_few_times() {
    let operations = |journal| {
        let options = StudyOptions {
            journal,
            drive_bytes: Some(4 << 30),
            cell_bytes: Some(64 << 20),
            ..StudyOptions::new("pddl2:4d:13c:1s", preset("server").unwrap())
        };
        let mut pool = StudyVolume::create(&options, None).unwrap();
        let before = pool.ios();
        pool.fail(Seat(3)).unwrap();
        while pool.rebuild().ended.is_none() {
            let at = pool.poll_timeout().expect("the rebuild goes on");
            pool.handle_timeout(at);
        }
        assert_eq!(pool.rebuild().cells_lost, 0);
        let cells = pool.rebuild().cells_done;
        (pool.ios() - before) as f64 / cells as f64
    };
    let (with, without) = (operations(true), operations(false));
    eprintln!("{with} operations for each cell with journal, {without} without");
    // 16 steps of 4 MiB read four columns and write one; the pages are written when the cell is done.
    assert!(
        with < without + 50.0,
        "{with} with journal, {without} without"
    );
}
