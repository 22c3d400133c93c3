//! Pools of format 1 as earlier versions left them on drives: every later version opens them and reads
//! every byte.
//!
//! `format1/*.txt` are the blocks of each drive that are not zero. They are never written anew, for a
//! pool that today's version makes is not the one that must stay readable. A later format, or a feature
//! of this one, gets pools of its own: add a history to [`HISTORIES`] and run with
//! `RAVELIN_WRITE_POOLS=1`.

use std::fmt::Write as _;
use std::path::PathBuf;

use array::format::LAZY_INITIALIZATION;
use array::pool::Report;
use block::{Request, RequestKind, Seat};
use sim::{CutSpec, Drive, Pace, World, WorldOptions};
use testing::parts;

const VOLUME: &str = "v";
const BLOCK: usize = 4096;
const SECTOR: u64 = 512;

/// What happens to a pool until its drives are stored.
struct History {
    name: &'static str,
    scheme: &'static str,
    drives: u16,
    /// Drives that may be missing at the opening, one at a time.
    spared: &'static [usize],
    /// Whether the journal has blocks that are nowhere else.
    journalled: bool,
    live: fn(World) -> Vec<Drive>,
}

const HISTORIES: [History; 13] = [
    History {
        name: "raid5-cut",
        scheme: "raid5",
        drives: 4,
        spared: &[0, 1, 2, 3],
        journalled: true,
        live: cut,
    },
    History {
        name: "dcode-closed",
        scheme: "raid6:dcode:5c",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: false,
        live: closed,
    },
    History {
        name: "pddl2-rebuilt",
        scheme: "pddl2:2d:5c:1s",
        drives: 5,
        spared: &[0, 2, 3, 4],
        journalled: true,
        live: rebuilt,
    },
    History {
        name: "ddp-table",
        scheme: "ddp:2d:5c:1s",
        drives: 5,
        spared: &[0, 2, 3, 4],
        journalled: true,
        live: rebuilt,
    },
    History {
        name: "raid1-away",
        scheme: "raid1:3r",
        drives: 3,
        spared: &[0, 2],
        journalled: true,
        live: away,
    },
    // The feature `page-copies`.
    History {
        name: "copies-raid6-lost",
        scheme: "raid6",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: true,
        live: lost,
    },
    // The feature `lazy-initialization`: a group that was never written.
    History {
        name: "lazy-raid5-cut",
        scheme: "raid5",
        drives: 4,
        spared: &[0, 1, 2, 3],
        journalled: true,
        live: cut,
    },
    // The feature `direct-writes`: the journal has checksums of blocks that are in place.
    History {
        name: "direct-raid6-cut",
        scheme: "raid6",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: true,
        live: cut_at_once,
    },
    // The feature `derived-parity`: the journal has whole rows without their parity.
    History {
        name: "derived-dcode-cut",
        scheme: "raid6:dcode:5c",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: true,
        live: cut,
    },
    // The feature `interleaved-volumes`: a set of five groups, and a set of the remaining three.
    History {
        name: "interleaved-pddl2-cut",
        scheme: "pddl2:2d:5c:1s",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: true,
        live: cut,
    },
    // The feature `free-stripes`: some stripes of the data are not in their home place.
    History {
        name: "moved-raid6-cut",
        scheme: "raid6",
        drives: 5,
        spared: &[0, 1, 2, 3, 4],
        journalled: true,
        live: cut,
    },
    // Before the rule that a pool waits for drives: labels say that more drives are out than the code survives, and all
    // drives are there.
    History {
        name: "vanished-direct-raid6",
        scheme: "raid6",
        drives: 5,
        spared: &[],
        journalled: true,
        live: vanished_at_once,
    },
    // A table with a vacant seat (version 2): a drive has joined, and another one has left.
    History {
        name: "ddp-vacant",
        scheme: "ddp:2d:6c:1s",
        drives: 6,
        spared: &[0, 1, 2, 3, 4, 5],
        journalled: true,
        live: joined_and_left,
    },
];

/// Content of a sector of the volume after its `version`th write. Version 0: never written, or trimmed.
fn content(sector: u64, version: u64) -> u8 {
    let mixed = (sector * 37 + version * 101) % 251 + 1;
    match version {
        0 => 0,
        _ => u8::try_from(mixed).expect("below 252"),
    }
}

/// Content of sector `sector` of `sectors` at the end of each history. All histories write the same:
/// first everything but the last eighth, then from a quarter to a half again, then trim from three
/// eighths to a half.
fn at_the_end(sector: u64, sectors: u64) -> u8 {
    let eighth = sector * 8 / sectors;
    content(
        sector,
        [1, 1, 2, 0, 1, 1, 1, 0][usize::try_from(eighth).expect("0 to 7")],
    )
}

fn size(world: &World) -> u64 {
    // Two groups, on two lanes, or a little less, so that an eighth is whole blocks. Or a group for each
    // eighth.
    let groups = match world.pool().facts().has(LAZY_INITIALIZATION) {
        true => 8,
        false => 2,
    };
    groups * world.pool().geometry().group_data_bytes() / 32768 * 32768
}

/// Writes eighths `from` to `to`.
fn write(world: &mut World, from: u64, to: u64, version: u64) {
    let eighth = size(world) / 8;
    let bytes: Vec<u8> = (from * eighth..to * eighth)
        .map(|byte| content(byte / SECTOR, version))
        .collect();
    world.write(VOLUME, from * eighth, &bytes).unwrap();
}

/// The last change, a trim, and a flush.
fn trim_and_flush(world: &mut World) {
    let eighth = size(world) / 8;
    let request = |kind, offset, length| Request {
        kind,
        offset,
        length,
        fua: false,
    };
    let trim = request(RequestKind::Trim, 3 * eighth, eighth);
    world.request(VOLUME, trim, &[]).unwrap();
    world
        .request(VOLUME, request(RequestKind::Flush, 0, 0), &[])
        .unwrap();
}

/// The power goes while the last writes are only in the journal.
fn cut(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    world.settle();
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.cut(CutSpec::None)
}

/// The power goes before a checkpoint: only direct writes are in place.
fn cut_at_once(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.cut(CutSpec::None)
}

fn closed(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.close().unwrap()
}

/// A drive is lost, and its columns are in spare cells; then the daemon is killed.
fn rebuilt(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    world.fail_drive(Seat(1), false).unwrap();
    world.settle();
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.kill()
}

/// A drive joins the layout, another one leaves it; then the daemon is killed.
fn joined_and_left(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    let fresh = Drive::new(14 << 20, Pace::Null);
    world.expand(vec![fresh], &[]).unwrap();
    world.settle();
    world.remove(Seat(2)).unwrap();
    world.settle();
    assert_eq!(world.pool().geometry().layout().vacant(), [Seat(2)]);
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    let mut drives = world.kill();
    drives.remove(2);
    drives
}

/// A drive is lost, and the journal has checksums of the blocks that it has missed.
fn lost(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    world.settle();
    world.fail_drive(Seat(1), false).unwrap();
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.cut(CutSpec::None)
}

/// A drive has missed the last writes, and is catching up.
fn away(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    world.fail_drive(Seat(1), false).unwrap();
    world.settle();
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    world.return_drive(Seat(1)).unwrap();
    world.cut(CutSpec::None)
}

/// More drives are gone than the code survives, and come back after the daemon was killed. There was no checkpoint: stripes
/// are in place, and only the journal says so.
fn vanished_at_once(mut world: World) -> Vec<Drive> {
    write(&mut world, 0, 7, 1);
    write(&mut world, 2, 4, 2);
    trim_and_flush(&mut world);
    vanish(world, &[3, 0, 1])
}

fn vanish(mut world: World, seats: &[u16]) -> Vec<Drive> {
    let all = size(&world);
    for &seat in seats {
        world.pull(Seat(seat));
        let _lost = world.read(VOLUME, 0, all);
    }
    for _ in 0..300 {
        world.step();
    }
    for &seat in seats {
        world.plug_in(Seat(seat), None);
    }
    world.kill()
}

fn path(history: &History) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/format1");
    place.join(history.name).with_extension("txt")
}

/// A line for each drive with its size, and one for each block that is not zero: its offset, then runs
/// of a byte as `BYTExTIMES` and other bytes one after the other, in hexadecimal.
fn as_text(drives: &mut [Drive]) -> String {
    let mut text = String::new();
    for drive in drives {
        writeln!(text, "drive {}", drive.size_bytes()).unwrap();
        for offset in (0..drive.size_bytes()).step_by(BLOCK) {
            let mut bytes = [0; BLOCK];
            drive.read(offset, &mut bytes).unwrap();
            if bytes == [0; BLOCK] {
                continue;
            }
            write!(text, "{offset:x}").unwrap();
            let mut after_run = true;
            for run in bytes.chunk_by(|a, b| a == b) {
                let is_run = run.len() > 6;
                if is_run || after_run {
                    text.push(' ');
                }
                if is_run {
                    write!(text, "{:02x}x{}", run[0], run.len()).unwrap();
                } else {
                    run.iter()
                        .for_each(|byte| write!(text, "{byte:02x}").unwrap());
                }
                after_run = is_run;
            }
            text.push('\n');
        }
    }
    text
}

fn from_text(text: &str) -> Vec<Drive> {
    let hex = |digits: &str| u8::from_str_radix(digits, 16).unwrap();
    let mut drives = Vec::new();
    for line in text.lines() {
        if let Some(size) = line.strip_prefix("drive ") {
            drives.push(Drive::new(size.parse().unwrap(), Pace::Null));
            continue;
        }
        let mut words = line.split(' ');
        let offset = u64::from_str_radix(words.next().unwrap(), 16).unwrap();
        let mut bytes = Vec::with_capacity(BLOCK);
        for word in words {
            if let Some((byte, times)) = word.split_once('x') {
                let times: usize = times.parse().unwrap();
                bytes.resize(bytes.len() + times, hex(byte));
            } else {
                bytes.extend((0..word.len()).step_by(2).map(|at| hex(&word[at..at + 2])));
            }
        }
        assert_eq!(bytes.len(), BLOCK, "{offset:x}");
        let drive = drives.last_mut().expect("a drive comes before its blocks");
        drive.write(offset, &bytes).unwrap();
        drive.flush().unwrap();
    }
    drives
}

/// Opens the pool, reads everything, scrubs and overwrites the volume, and opens the pool again.
fn check(history: &History, drives: Vec<Drive>, when: &str) {
    let mut world = World::open(drives, true, 1).unwrap_or_else(|error| panic!("{when}: {error}"));
    let mut reports = world.reports.iter();
    let replayed = reports.any(|report| matches!(report, Report::Replayed { .. }));
    assert_eq!(replayed, history.journalled, "{when}");
    let size = size(&world);
    let sectors = size / SECTOR;
    let expect = |world: &mut World, when: &str, version: u64| {
        let read = world.read(VOLUME, 0, size);
        let read = read.unwrap_or_else(|fault| panic!("{when}: {fault}: {:#?}", world.reports));
        for (sector, bytes) in read.chunks(512).enumerate() {
            let sector = sector as u64;
            let byte = match version {
                0 => at_the_end(sector, sectors),
                _ => content(sector, version),
            };
            assert!(
                bytes.iter().all(|&is| is == byte),
                "{when}: sector {sector}"
            );
        }
    };
    expect(&mut world, when, 0);
    world.settle();
    expect(&mut world, when, 0);
    world.scrub().unwrap();
    world.settle();
    assert_eq!(world.scrub_progress().bad, 0, "{when}");
    write(&mut world, 0, 8, 9);
    expect(&mut world, when, 9);
    let mut world = World::open(world.close().unwrap(), true, 2).unwrap();
    expect(&mut world, when, 9);
}

fn opens(name: &str) {
    let history = HISTORIES.iter().find(|history| history.name == name);
    let history = history.expect("it is of the list");
    if std::env::var_os("RAVELIN_WRITE_POOLS").is_some() && !path(history).exists() {
        let options = WorldOptions {
            drive_bytes: 14 << 20,
            lazy: history.name.starts_with("lazy") || history.name.starts_with("interleaved"),
            interleave: history.name.starts_with("interleaved"),
            free_stripes: history.name.starts_with("moved"),
            ..WorldOptions::small(history.scheme, history.drives)
        };
        let mut world = World::create(&options);
        let size = size(&world);
        world.create_volume(VOLUME, size).unwrap();
        let mut drives = (history.live)(world);
        std::fs::write(path(history), as_text(&mut drives)).unwrap();
    }
    let text = std::fs::read_to_string(path(history)).unwrap();
    check(history, from_text(&text), history.name);
    for &gone in history.spared {
        let mut drives = from_text(&text);
        drives.remove(gone);
        check(
            history,
            drives,
            &format!("{} without drive {gone}", history.name),
        );
    }
}

parts! {
    pools_of_format_1_open_and_every_byte_is_there {
        raid5_cut => opens("raid5-cut"),
        dcode_closed => opens("dcode-closed"),
        pddl2_rebuilt => opens("pddl2-rebuilt"),
        ddp_table => opens("ddp-table"),
        raid1_away => opens("raid1-away"),
        copies_raid6_lost => opens("copies-raid6-lost"),
        lazy_raid5_cut => opens("lazy-raid5-cut"),
        direct_raid6_cut => opens("direct-raid6-cut"),
        derived_dcode_cut => opens("derived-dcode-cut"),
        interleaved_pddl2_cut => opens("interleaved-pddl2-cut"),
        moved_raid6_cut => opens("moved-raid6-cut"),
        vanished_direct_raid6 => opens("vanished-direct-raid6"),
        ddp_vacant => opens("ddp-vacant"),
    }
}

/// A pool of before growth existed needs nothing for it: its table is as it was.
#[test]
fn a_stored_pool_of_pieces_grows_and_every_byte_is_there() {
    let history = HISTORIES.iter().find(|of| of.name == "ddp-table").unwrap();
    let text = std::fs::read_to_string(path(history)).unwrap();
    let fresh = || Drive::new(14 << 20, Pace::Null);
    let mut world = World::open(from_text(&text), true, 1).unwrap();
    world.settle();
    // The drive that had failed.
    world.replace_drive(Seat(1), fresh()).unwrap();
    world.settle();
    let before = world.pool().capacity_bytes();
    world.expand(vec![fresh(), fresh()], &[]).unwrap();
    world.settle();
    assert_eq!(world.pool().geometry().layout().drives(), 7);
    assert!(world.pool().capacity_bytes() > before);
    let history = History {
        journalled: false,
        ..*history
    };
    check(&history, world.close().unwrap(), "grown");
}

/// A history without a part above would never be opened.
#[test]
fn each_history_has_a_test() {
    let source = include_str!("format1.rs");
    for history in &HISTORIES {
        let test = format!("opens(\"{}\")", history.name);
        assert!(source.contains(&test), "{}", history.name);
    }
}
