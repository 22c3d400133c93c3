use block::{Fault, Hint};

use super::rebuild::{CellOrder, ReadColumns, RebuildOptions};
use super::*;
use crate::model::{ModelOptions, Preset, preset};

/// Drives of 64 MiB, one server each, that take 1 ms per operation.
fn small_drive() -> Preset {
    let mut drive = preset("server").unwrap();
    if let ModelOptions::Server(options) = &mut drive.options {
        options.capacity_bytes = 64 << 20;
        options.bytes_per_second = 100_000_000;
        options.per_operation_ns = 1_000_000;
    }
    drive
}

fn options(scheme: &str) -> PlainOptions {
    PlainOptions {
        chunk_bytes: 16 << 10,
        cell_bytes: Some(1 << 20),
        ..PlainOptions::new(scheme, small_drive())
    }
}

fn array(scheme: &str) -> PlainArray {
    PlainArray::new(&options(scheme)).unwrap()
}

fn request(kind: RequestKind, offset: u64, length: u64) -> Request {
    Request {
        kind,
        offset,
        length,
        fua: false,
    }
}

/// Runs until nothing is due.
fn settle(array: &mut PlainArray) -> Vec<(u64, Outcome)> {
    let mut done = Vec::new();
    while let Some(at) = array.poll_timeout() {
        array.handle_timeout(at);
        done.extend(std::iter::from_fn(|| array.poll_done()));
    }
    done.extend(std::iter::from_fn(|| array.poll_done()));
    done
}

/// Runs one request. Returns its outcome, the reads and writes of drives, and the time that the request took.
fn run(array: &mut PlainArray, request: Request) -> (Outcome, u64, u64, u64) {
    let count = |array: &PlainArray| {
        let works = (0..array.seats()).map(|seat| array.work(Seat(seat)));
        works.fold((0, 0), |sum, work| {
            (sum.0 + work.reads, sum.1 + work.writes)
        })
    };
    let (before, begun) = (count(array), array.now());
    array.handle_request(begun, 9, request);
    let done = settle(array);
    assert_eq!(done.len(), 1);
    let after = count(array);
    let taken = array.now().0 - begun.0;
    (done[0].1, after.0 - before.0, after.1 - before.1, taken)
}

fn read(array: &mut PlainArray, offset: u64, length: u64) -> (u64, u64) {
    let (outcome, reads, writes, _) = run(array, request(RequestKind::Read, offset, length));
    assert_eq!(outcome, Ok(()));
    (reads, writes)
}

fn write(array: &mut PlainArray, offset: u64, length: u64) -> (u64, u64) {
    let (outcome, reads, writes, _) = run(array, request(RequestKind::Write, offset, length));
    assert_eq!(outcome, Ok(()));
    (reads, writes)
}

#[test]
fn a_write_costs_what_its_way_to_new_parity_costs() {
    for (policy, cost) in [
        (SmallWrites::Cheaper, (2, 2)),
        (SmallWrites::ReadModify, (2, 2)),
        (SmallWrites::Reconstruct, (4, 2)),
    ] {
        let options = PlainOptions {
            small_writes: policy,
            ..options("raid5:6c")
        };
        let mut array = PlainArray::new(&options).unwrap();
        assert_eq!(write(&mut array, 4096, 4096), cost, "{policy:?}");
        let stripe = array.geometry().stripe_data_bytes();
        assert_eq!(write(&mut array, 0, stripe), (0, 6), "{policy:?}");
    }
    assert_eq!(write(&mut array("raid6:8c"), 0, 4096), (3, 3));
    assert_eq!(write(&mut array("raid1:2c"), 0, 4096), (0, 2));
    assert_eq!(write(&mut array("raid0:4c"), 0, 4096), (0, 1));
}

#[test]
fn a_read_takes_one_operation_per_drive_and_run() {
    let mut array = array("raid5:5c");
    assert_eq!(read(&mut array, 20 << 10, 4096), (1, 0));
    assert_eq!(read(&mut array, 12 << 10, 8192), (2, 0), "two chunks");
    let stripe = array.geometry().stripe_data_bytes();
    // Left-symmetric: four stripes are 16 chunks on 5 drives, and only parity breaks runs.
    let (reads, _) = read(&mut array, 0, 4 * stripe);
    assert!((5..=9).contains(&reads), "{reads}");
    array.fail(array.now(), Seat(0));
    assert_eq!(
        read(&mut array, 0, 4096),
        (4, 0),
        "reconstructed from the others"
    );
}

#[test]
fn a_whole_arrays_short_way_to_a_chunk_is_the_planners() {
    for scheme in [
        "raid0:4c",
        "raid5:5c",
        "raid6:dcode:7c",
        "pddl2:4d:13c:1s",
        "draid1:4d:11c:1s",
        "raid10:6c",
    ] {
        let mut short = array(scheme);
        let mut planned = array(scheme);
        // The planner is used when the array does not count as whole.
        planned.whole = false;
        planned.copies = 1;
        short.mirror = MirrorReads::First;
        for at in 0..60 {
            let offset = block::mix(at) % short.capacity_bytes() / 4096 * 4096;
            for (array, kind) in [(&mut short, "short"), (&mut planned, "planned")] {
                assert_eq!(read(array, offset, 4096), (1, 0), "{scheme} {kind}");
            }
            for seat in (0..short.seats()).map(Seat) {
                assert_eq!(
                    short.work(seat).reads,
                    planned.work(seat).reads,
                    "{scheme} {seat}"
                );
            }
        }
    }
}

#[test]
fn mirrors_are_read_as_the_policy_says() {
    let reads = |policy| {
        let options = PlainOptions {
            mirror_reads: policy,
            ..options("raid1:2c")
        };
        let mut array = PlainArray::new(&options).unwrap();
        for token in 0..8 {
            array.handle_request(Instant::ZERO, token, request(RequestKind::Read, 0, 4096));
        }
        settle(&mut array);
        [0, 1].map(|seat| array.work(Seat(seat)).reads)
    };
    assert_eq!(reads(MirrorReads::First), [8, 0]);
    assert_eq!(reads(MirrorReads::Alternate), [4, 4]);
    assert_eq!(reads(MirrorReads::LeastQueued), [4, 4]);
}

#[test]
fn writes_of_one_stripe_come_one_after_the_other() {
    let mut array = array("raid5:4c");
    for token in 0..2 {
        array.handle_request(Instant::ZERO, token, request(RequestKind::Write, 0, 4096));
    }
    array.handle_request(Instant::ZERO, 2, request(RequestKind::Write, 1 << 20, 4096));
    let done = settle(&mut array);
    let tokens: Vec<u64> = done.iter().map(|&(token, _)| token).collect();
    assert_eq!(tokens, [0, 2, 1], "the other stripe does not wait");
    assert!(
        array.now().0 >= 4_000_000,
        "two reads and two writes at 1 ms"
    );
}

#[test]
fn more_failures_than_the_code_survives_are_errors_and_not_hangs() {
    let mut array = array("raid5:4c");
    array.fail(Instant::ZERO, Seat(0));
    array.fail(Instant::ZERO, Seat(1));
    let stripe = array.geometry().stripe_data_bytes();
    let (outcome, ..) = run(&mut array, request(RequestKind::Read, 0, stripe));
    assert_eq!(outcome, Err(Fault::Lost));
    let (outcome, ..) = run(&mut array, request(RequestKind::Write, 0, 4096));
    assert_eq!(outcome, Err(Fault::Lost));
}

const ORDERS: [RebuildOptions; 3] = [
    RebuildOptions {
        order: CellOrder::Lba { window: 16 },
        step_bytes: 256 << 10,
        read: ReadColumns::All,
        bytes_per_second_max: 0,
    },
    RebuildOptions {
        order: CellOrder::LeastQueued { cells: 8, steps: 2 },
        step_bytes: 256 << 10,
        read: ReadColumns::Needed,
        bytes_per_second_max: 0,
    },
    RebuildOptions {
        order: CellOrder::Lba { window: 1 },
        step_bytes: 1 << 20,
        read: ReadColumns::Needed,
        bytes_per_second_max: 50_000_000,
    },
];

#[test]
fn a_rebuild_restores_every_cell_with_what_its_order_reads() {
    for scheme in [
        "pddl2:4d:13c:1s",
        "draid2:4d:14c:2s",
        "ddp:4d:20c:2s",
        "raid6:4d:13c:1s",
    ] {
        for options in ORDERS {
            let mut array = array(scheme);
            array.fail(Instant::ZERO, Seat(3));
            let lost = array.lost_cells(Seat(3)).len() as u64;
            assert!(lost > 0);
            array.begin_rebuild(Instant::ZERO, options);
            settle(&mut array);
            let rebuild = array.rebuild().unwrap();
            assert!(rebuild.ended().is_some());
            assert_eq!(
                (rebuild.cells(), rebuild.unrecoverable()),
                (lost, 0),
                "{scheme}"
            );
            assert_eq!(rebuild.written_bytes(), lost << 20);
            let columns = match options.read {
                ReadColumns::All => 5,
                ReadColumns::Needed => 4,
            };
            assert_eq!(
                rebuild.read_bytes(),
                (columns * lost) << 20,
                "{scheme} {options:?}"
            );
            assert!(array.lost_cells(Seat(3)).is_empty(), "{scheme}");
            let reads = array.work(Seat(3)).reads;
            for at in 0..200 {
                let offset = block::mix(at) % array.capacity_bytes() / 4096 * 4096;
                assert_eq!(read(&mut array, offset, 4096), (1, 0), "{scheme}");
            }
            assert_eq!(
                array.work(Seat(3)).reads,
                reads,
                "nothing is read from the drive that failed"
            );
            let seconds = rebuild_seconds(&array);
            if options.bytes_per_second_max > 0 {
                let least = lost as f64 * 1048576.0 / 50e6;
                assert!(
                    (least * 0.9..least * 1.2).contains(&seconds),
                    "{seconds} for {least}"
                );
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "seconds for an assertion")]
fn rebuild_seconds(array: &PlainArray) -> f64 {
    let rebuild = array.rebuild().unwrap();
    let taken = rebuild.ended().unwrap().since(rebuild.began());
    taken.as_nanos() as f64 / 1e9
}

#[test]
fn a_second_failure_in_the_midst_is_rebuilt_too() {
    for options in ORDERS {
        let mut array = array("pddl2:4d:14c:2s");
        array.fail(Instant::ZERO, Seat(3));
        let mut lost = array.lost_cells(Seat(3)).len();
        array.begin_rebuild(Instant::ZERO, options);
        // Foreground writes go on, to cells that are being filled too.
        for token in 0..50 {
            let offset = block::mix(token) % array.capacity_bytes() / 4096 * 4096;
            array.handle_request(
                array.now(),
                token,
                request(RequestKind::Write, offset, 4096),
            );
            let at = array.poll_timeout().unwrap();
            array.handle_timeout(at);
        }
        array.fail(array.now(), Seat(7));
        lost += array.lost_cells(Seat(7)).len();
        settle(&mut array);
        let rebuild = array.rebuild().unwrap();
        assert!(rebuild.ended().is_some(), "{options:?}");
        assert_eq!(rebuild.unrecoverable(), 0);
        assert!(rebuild.cells() <= lost as u64);
        for seat in (0..14).map(Seat) {
            assert!(array.lost_cells(seat).is_empty(), "{options:?} {seat}");
        }
    }
}

#[test]
fn a_fresh_drive_is_filled_where_there_is_no_spare_space() {
    let mut array = array("raid5:4c");
    array.fail(Instant::ZERO, Seat(2));
    array.replace(Instant::ZERO, Seat(2), small_drive().build());
    array.begin_rebuild(Instant::ZERO, ORDERS[0]);
    settle(&mut array);
    assert_eq!(array.work(Seat(2)).written_bytes, 64 << 20);
    assert_eq!(array.rebuild().unwrap().cells(), 64);
    assert_eq!(read(&mut array, 0, 4096), (1, 0));
}

#[test]
fn writes_into_the_cache_are_quick_until_it_is_full_and_none_is_lost() {
    let options = PlainOptions {
        cache: CacheOptions::WriteBack {
            bytes: 1 << 20,
            destage_percent: 50,
        },
        ..options("raid5:4c")
    };
    let mut array = PlainArray::new(&options).unwrap();
    let writes = 600_u64;
    let mut quick = 0;
    for token in 0..writes {
        let offset = block::mix(token) % array.capacity_bytes() / 4096 * 4096;
        array.handle_request(
            Instant::ZERO,
            token,
            request(RequestKind::Write, offset, 4096),
        );
        quick += u64::from(array.poll_done().is_some());
    }
    assert!((128..=260).contains(&quick), "{quick} of 256 lines");
    let done = settle(&mut array);
    assert_eq!(done.len() as u64, writes - quick);
    // Half may stay in memory; the rest has gone to the drives, data and parity.
    let written: u64 = (0..4).map(|seat| array.work(Seat(seat)).writes).sum();
    assert!(written >= 2 * (writes - 256), "{written}");
    let last = block::mix(writes - 1) % array.capacity_bytes() / 4096 * 4096;
    assert_eq!(read(&mut array, last, 4096).0, 0, "from memory");
}

#[test]
fn controller_link_and_parity_take_their_time() {
    let mut slow = options("raid5:4c");
    slow.servers = ServersOptions {
        controller_ns: 7_000,
        link_bytes_per_second: 4_096_000_000,
        parity_bytes_per_second: 1_000_000_000,
    };
    let taken = |options: &PlainOptions, kind| {
        let mut array = PlainArray::new(options).unwrap();
        run(&mut array, request(kind, 0, 4096)).3
    };
    let plain = options("raid5:4c");
    let more = taken(&slow, RequestKind::Read) - taken(&plain, RequestKind::Read);
    assert_eq!(
        more,
        7_000 + 1_000,
        "controller, and the answer over the link"
    );
    let more = taken(&slow, RequestKind::Write) - taken(&plain, RequestKind::Write);
    assert_eq!(
        more,
        1_000 + 7_000 + 3 * 4_096,
        "three elements go into parity"
    );
}

#[test]
fn two_seats_on_one_spindle_share_its_time() {
    let mut shared = array("raid0:4c");
    shared.share_spindle(Seat(3), Seat(0), 32 << 20);
    for (token, offset) in [(0, 0), (1, 48 << 10)] {
        shared.handle_request(
            Instant::ZERO,
            token,
            request(RequestKind::Read, offset, 4096),
        );
    }
    settle(&mut shared);
    assert_eq!(shared.work(Seat(0)).reads, 2);
    assert!(shared.now().0 > 2_000_000);
}

#[test]
fn wrong_options_are_told_in_a_sentence() {
    let said = |options: &PlainOptions| PlainArray::new(options).unwrap_err().to_string();
    assert!(said(&options("raid9")).contains("raid9"));
    let mut narrow = options("raid6:4d");
    narrow.drives = Some(5);
    assert!(!said(&narrow).is_empty());
    let large = PlainOptions {
        drive_bytes: Some(1 << 40),
        ..options("raid5:4c")
    };
    assert_eq!(
        said(&large),
        "1099511627776 bytes of each drive are asked for, and `server` has 67108864"
    );
    let error = PlainArray::new(&large).unwrap_err();
    assert_eq!(error.hint().unwrap(), "use less, or a larger drive");
}
