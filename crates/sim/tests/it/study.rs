//! The whole pool without bytes: its cost, and that nothing in it depends on content.

use block::{Instant, Seat};
use sim::load::{Access, Arrivals, Load, LoadOptions, Run, Target};
use sim::model::{ModelOptions, Preset, preset};
use sim::plain::{PlainArray, PlainOptions};
use sim::{StudyOptions, StudyVolume};

/// Drives of 256 MiB, one server each, 50 µs and 200 MB/s.
fn small_drive() -> Preset {
    let mut drive = preset("server").unwrap();
    if let ModelOptions::Server(options) = &mut drive.options {
        options.capacity_bytes = 256 << 20;
        options.per_operation_ns = 50_000;
    }
    drive
}

fn pool(scheme: &str, journal: bool) -> StudyVolume {
    let options = StudyOptions {
        journal,
        ..StudyOptions::new(scheme, small_drive())
    };
    StudyVolume::create(&options, None).unwrap()
}

fn load(clients: u32, read_percent: u32) -> LoadOptions {
    LoadOptions {
        arrivals: Arrivals::Closed {
            clients,
            think_ns: 0,
        },
        read_percent,
        ..LoadOptions::default()
    }
}

fn run(pool: &mut StudyVolume, options: &LoadOptions, requests: u64) -> Run {
    let load = Load::new(options, pool.capacity_bytes(), 7).unwrap();
    let mut run = Run::new(load, None).starting_at(pool.now());
    run.requests(pool, requests);
    run
}

#[test]
fn a_fresh_volume_counts_as_written() {
    // Without metadata a read is one operation; an unwritten block would cost none.
    let mut plain = pool("raid5:4c", false);
    let before = plain.ios();
    let run_plain = run(&mut plain, &load(1, 100), 200);
    assert_eq!(run_plain.numbers().reads(), 200);
    assert_eq!(plain.ios() - before, 200);
}

#[test]
fn checksum_pages_cost_their_operations() {
    let mut journalled = pool("raid5:4c", true);
    let before = journalled.ios();
    let run = run(&mut journalled, &load(1, 100), 2000);
    let extra = journalled.ios() - before - 2000;
    assert_eq!((run.numbers().reads(), run.numbers().errors()), (2000, 0));
    assert!(extra > 100, "{extra} operations on pages");
}

#[test]
fn deep_queues_of_writes_and_reads_go_through_the_journal() {
    for scheme in [
        "raid5:6c",
        "pddl2:4d:13c:1s",
        "raid10:4c",
        "raid6:dcode:7c",
        "raid0:4c",
    ] {
        let mut pool = pool(scheme, true);
        let mut run = run(&mut pool, &load(500, 50), 20_000);
        assert_eq!(run.numbers().errors(), 0, "{scheme}");
        assert!(run.numbers().requests() >= 20_000, "{scheme}");
        // All requests in flight end.
        run.stop();
        run.requests(&mut pool, u64::MAX);
        assert_eq!(run.numbers().errors(), 0, "{scheme}");
    }
}

#[test]
fn a_failed_drive_is_rebuilt_under_load() {
    for (scheme, journal) in [
        ("pddl2:4d:13c:1s", true),
        ("ddp:4d:12c:2s", true),
        ("pddl1:4d:11c:1s", false),
    ] {
        let mut pool = pool(scheme, journal);
        let options = load(4, 70);
        let load = Load::new(&options, pool.capacity_bytes(), 7).unwrap();
        let mut run = Run::new(load, None).starting_at(pool.now());
        run.requests(&mut pool, 500);
        pool.fail(Seat(3)).unwrap();
        run.requests(&mut pool, 500);
        run.stop();
        run.finish(&mut pool, |pool| pool.rebuild().ended.is_some());
        let rebuild = pool.rebuild();
        assert!(rebuild.ended.is_some(), "{scheme}");
        assert_eq!(
            (rebuild.cells_done, rebuild.cells_lost),
            (rebuild.cells_total, 0),
            "{scheme}"
        );
        assert!(
            rebuild.copied_bytes >= rebuild.cells_done * rebuild.cell_bytes / 2,
            "{scheme}"
        );
        assert_eq!(run.numbers().errors(), 0, "{scheme}");
    }
}

#[test]
fn a_fresh_drive_is_filled_where_there_is_no_spare_space() {
    let mut pool = pool("raid5:4c", true);
    pool.fail(Seat(1)).unwrap();
    let mut run = run(&mut pool, &load(4, 50), 500);
    assert!(!pool.replace(Seat(0)), "a drive sits there");
    assert!(pool.replace(Seat(1)));
    run.requests(&mut pool, 500);
    run.stop();
    run.finish(&mut pool, |pool| {
        let rebuild = pool.rebuild();
        rebuild.cells_total > 0 && rebuild.ended.is_some()
    });
    let rebuild = pool.rebuild();
    assert!(rebuild.ended.is_some() && rebuild.cells_lost == 0);
    assert!(pool.work(Seat(1)).unwrap().written_bytes >= rebuild.cells_done * rebuild.cell_bytes);
    assert_eq!(run.numbers().errors(), 0);
}

/// The same on every platform and in every build: if these numbers change, a model or a load has changed, on purpose or
/// by a bug.
#[test]
fn traces_are_what_they_were() {
    let mut traces = Vec::new();
    for (name, access) in [
        ("zipf", Access::Zipf { exponent: 0.99 }),
        ("sequential", Access::Sequential { streams: 4 }),
    ] {
        let options = PlainOptions::new("raid6:8c", preset("9lzx").unwrap());
        let mut array = PlainArray::new(&options).unwrap();
        let options = LoadOptions {
            access,
            arrivals: Arrivals::Poisson { per_second: 200.0 },
            ..load(8, 70)
        };
        let load = Load::new(&options, array.capacity_bytes(), 7).unwrap();
        Run::new(load, None).requests(&mut array, 5_000);
        traces.push((name, array.trace()));
    }
    let expected = [
        ("zipf", 14_376_990_383_483_455_063),
        ("sequential", 3_708_611_440_132_983_979),
    ];
    assert_eq!(traces, expected);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let trace = |seed| {
        let options = StudyOptions {
            seed,
            ..StudyOptions::new("pddl2:4d:13c:1s", small_drive())
        };
        let mut pool = StudyVolume::create(&options, Some(64 << 20)).unwrap();
        run(&mut pool, &load(32, 50), 2_000);
        pool.trace()
    };
    assert_eq!(trace(1), trace(1));
}

#[test]
fn what_does_not_fit_is_told_in_a_sentence() {
    let said = |change: fn(&mut StudyOptions), volume| {
        let mut options = StudyOptions::new("raid5:4c", small_drive());
        change(&mut options);
        StudyVolume::create(&options, volume)
            .unwrap_err()
            .to_string()
    };
    assert!(said(|options| options.scheme = "raid9".to_owned(), None).contains("raid9"));
    assert!(said(|options| options.scheme = "raid5".to_owned(), None).contains("number of drives"));
    assert!(said(|options| options.drive_bytes = Some(1 << 40), None).contains("has 268435456"));
    assert!(!said(|_| {}, Some(1 << 40)).is_empty());
}

/// 60 drives of 300 GB, one of them fails: `RAVELIN_LONG=1 cargo test --release -p ravelin-sim --test it --
/// --nocapture study::sixty` prints how long this takes. A rebuild runs in one thread, so its wall-clock time is no less than
/// its CPU time.
#[test]
fn sixty_drives_of_300_gb_are_rebuilt() {
    if std::env::var_os("RAVELIN_LONG").is_none() {
        eprintln!("skipped: it takes minutes in a build for tests; set RAVELIN_LONG=1");
        return;
    }
    for journal in [true, false] {
        #[expect(
            clippy::disallowed_methods,
            reason = "how long it takes on this machine is what it says"
        )]
        let begun = std::time::Instant::now();
        let options = StudyOptions {
            journal,
            ..StudyOptions::new("ddp:8d:60c:3s", preset("15k").unwrap())
        };
        let mut pool = StudyVolume::create(&options, None).unwrap();
        let before = (pool.ios(), pool.now());
        pool.fail(Seat(17)).unwrap();
        while pool.rebuild().ended.is_none() {
            let at = pool.poll_timeout().expect("the rebuild goes on");
            pool.handle_timeout(at);
        }
        let rebuild = pool.rebuild().clone();
        assert_eq!(rebuild.cells_lost, 0);
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let peak = status.lines().find(|line| line.starts_with("VmHWM"));
        eprintln!(
            "journal {journal}: {} cells of {} bytes in {} virtual, {} drive operations; {:.1} s by the clock, {}",
            rebuild.cells_done,
            rebuild.cell_bytes,
            Instant(rebuild.ended.unwrap().0 - before.1.0),
            pool.ios() - before.0,
            begun.elapsed().as_secs_f64(),
            peak.unwrap_or("peak memory unknown"),
        );
    }
}

/// Virtual time of 4000 random reads at depth 16.
fn reads_take(scheme: &str, journal: bool) -> u64 {
    let mut pool = pool(scheme, journal);
    // These reads load the checksum pages of all copies.
    let mut run = run(&mut pool, &load(16, 100), 4000);
    let begun = pool.now();
    run.requests(&mut pool, 4000);
    pool.now().since(begun).as_nanos().try_into().unwrap()
}

#[test]
fn mirrors_read_from_the_drive_that_has_least_to_do() {
    for journal in [false, true] {
        let stripes = reads_take("raid0:4c", journal);
        for scheme in ["raid10:4c", "raid1:2r:4c"] {
            let copies = reads_take(scheme, journal);
            // With the first copies alone, two of the four drives would serve all reads: twice the time.
            assert!(
                copies < stripes * 5 / 4,
                "{scheme}, journal: {journal}: {copies} ns beside {stripes}"
            );
        }
    }
}
