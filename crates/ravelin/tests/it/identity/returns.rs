//! Drives that return without a command.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use block::SplitMix64;
use export::nbd::Client;
use rustix::process::{Pid, Signal, kill_process};

use super::MIB;
use super::stories::{
    come_back_exchanged, content, filled_with, holds_its_content, import_without, moves, served,
    status,
};
use crate::support::bench::{Bench, checksum};

/// How long a drive that is back may stay out: two looks, the return, and what other tests take of the processor.
const SOON: Duration = Duration::from_secs(60);
/// Long enough for looks at a drive that must stay out.
const LOOKS: Duration = Duration::from_secs(7);
/// A pool without requests puts in place what was logged, after a second.
const CHECKPOINT: Duration = Duration::from_millis(2500);

fn seat(bench: &Bench, number: usize) -> serde_json::Value {
    status(bench)["seats"][number].clone()
}

#[track_caller]
fn becomes(bench: &Bench, what: &str, is_so: impl Fn(&Bench) -> bool) {
    let begun = Instant::now();
    while !is_so(bench) {
        if begun.elapsed() > SOON {
            let log = std::fs::read_to_string(bench.path("daemon.log")).unwrap();
            panic!("not {what}: {}\n{log}", status(bench));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[track_caller]
fn becomes_healthy(bench: &Bench) {
    becomes(bench, "healthy", |bench| {
        bench.run(&["pool", "status", "--check"]).code == 0
            && status(bench)["rebuild"]["running"] == false
    });
}

/// A pool on drives that return errors like pulled ones while `pulled-NAME` exists.
fn pullable(test: &str, scheme: &str, count: usize, returns: &str, more: &[&str]) -> Bench {
    let drive = |name: String| format!("faulty:{name}?fail=gone&times=all&while=pulled-{name}");
    filled_with(test, scheme, count, &["--returns", returns], more, drive)
}

fn pull(bench: &Bench, name: &str) {
    std::fs::write(bench.path(&format!("pulled-{name}")), "").unwrap();
}

/// As another device with the same content, as a disk in another bay is one.
fn plug(bench: &Bench, name: &str, from: &str, to: &str) {
    std::fs::copy(bench.path(from), bench.path("plugging")).unwrap();
    std::fs::remove_file(bench.path(from)).unwrap();
    moves(bench, "plugging", to);
    std::fs::remove_file(bench.path(&format!("pulled-{name}"))).unwrap();
}

/// What the load does and has done.
#[derive(Default)]
struct Control {
    stops: AtomicBool,
    pauses: AtomicBool,
    written: AtomicU64,
}

/// Writes at random places and reads back, until told to stop; counts the bytes written.
fn load(client: &mut Client, control: &Control) -> Vec<u8> {
    const BLOCK: usize = 4096;
    let mut expected = content();
    let blocks = expected.len() / BLOCK;
    let mut random = SplitMix64::new(1);
    while !control.stops.load(Ordering::SeqCst) {
        if control.pauses.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let at = usize::try_from(random.below(blocks as u64)).unwrap() * BLOCK;
        let range = at..at + BLOCK;
        let read = client.read(at as u64, BLOCK).unwrap();
        assert!(read == expected[range.clone()], "byte {at}");
        let block = [random.draw().to_be_bytes()[0]; BLOCK];
        let fua = random.below(8) == 0;
        client.write(at as u64, &block, fua).unwrap();
        expected[range].copy_from_slice(&block);
        control.written.fetch_add(BLOCK as u64, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(2));
    }
    expected
}

/// Must show, 4: pulled and plugged in under another name again and again, under a load that is verified.
#[test]
fn a_drive_that_is_pulled_and_plugged_in_under_another_name_returns_each_time() {
    let rounds = match std::env::var_os("RAVELIN_LONG") {
        Some(_) => 30,
        None => 3,
    };
    const DRIVES: u64 = 4;
    let bench = pullable("plugged", "raid5", 4, "1000", &[]);
    let mut client = served(&bench);
    let control = Control::default();
    let mut name = "d1".to_owned();
    let expected = std::thread::scope(|scope| {
        struct Stop<'a>(&'a Control);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.stops.store(true, Ordering::SeqCst);
            }
        }
        let stopper = Stop(&control);
        let load = scope.spawn(|| load(&mut client, &control));
        for round in 0..rounds {
            let copied = |bench: &Bench| seat(bench, 1)["rebuild_write_bytes"].as_u64().unwrap();
            // What was written before is in place on the drive by then: after a second without requests.
            control.pauses.store(true, Ordering::SeqCst);
            std::thread::sleep(CHECKPOINT);
            let before = control.written.load(Ordering::SeqCst);
            control.pauses.store(false, Ordering::SeqCst);
            pull(&bench, "d1");
            becomes(&bench, "out", |bench| seat(bench, 1)["state"] == "out");
            std::thread::sleep(Duration::from_millis(300));
            let next = format!("e{round}");
            plug(&bench, "d1", &name, &next);
            name = next;
            becomes(&bench, "in", |bench| seat(bench, 1)["state"] != "out");
            let meanwhile = control.written.load(Ordering::SeqCst) - before;
            becomes_healthy(&bench);
            let path = seat(&bench, 1)["path"].as_str().unwrap().to_owned();
            assert!(path.contains(&format!("/{name}?")), "{path}");
            // Each block changes one block of data and one of parity, on two of the drives.
            // Of this return: each one counts anew.
            let copied = copied(&bench);
            assert!(copied > 0);
            eprintln!("round {round}: {meanwhile} bytes written, {copied} copied");
            let missed = meanwhile * 2 / DRIVES;
            assert!(
                copied <= missed + missed / 5 + (256 << 10),
                "{copied} of {missed}"
            );
        }
        drop(stopper);
        load.join().expect("no error and no wrong byte")
    });
    assert!(client.read(0, expected.len()).unwrap() == expected);
    client.disconnect().unwrap();
    let scrub = bench.run(&["pool", "scrub", "tank", "--wait"]);
    assert_eq!(scrub.code, 0, "{}", scrub.stdout);
}

#[test]
fn a_drive_that_comes_and_goes_waits_for_a_command() {
    let bench = pullable("damped", "raid5", 4, "2", &[]);
    for _ in 0..2 {
        pull(&bench, "d1");
        bench.run(&["volume", "create", "tank/t", "--size", "1M"]);
        becomes(&bench, "out", |bench| seat(bench, 1)["state"] == "out");
        plug(&bench, "d1", "d1", "d1");
        becomes_healthy(&bench);
        bench.run(&["volume", "delete", "tank/t", "--yes"]);
    }
    pull(&bench, "d1");
    bench.run(&["volume", "create", "tank/t", "--size", "1M"]);
    becomes(&bench, "out", |bench| seat(bench, 1)["state"] == "out");
    plug(&bench, "d1", "d1", "d1");
    std::thread::sleep(LOOKS);
    assert_eq!(seat(&bench, 1)["state"], "out");
    let log = std::fs::read_to_string(bench.path("daemon.log")).unwrap();
    assert!(
        log.contains("has come and gone 2 times in 10 minutes"),
        "{log}"
    );
    bench.ok(&["drive", "online", "tank", "1"]);
    becomes_healthy(&bench);
    holds_its_content(&bench);
}

#[test]
fn missing_drives_return_to_their_own_seats_under_exchanged_names() {
    for (test, scheme, count, order) in [
        ("two", "raid5", 5, &[("d1", "d2"), ("d2", "d1")][..]),
        (
            "three",
            "raid6",
            6,
            &[("d1", "d2"), ("d2", "d4"), ("d4", "d1")],
        ),
        ("halves", "raid1", 3, &[("d0", "d2"), ("d2", "d0")]),
    ] {
        let plain = |name: String| name;
        let test = format!("returns-{test}");
        let bench = filled_with(&test, scheme, count, &["--returns", "5"], &[], plain);
        come_back_exchanged(&bench, order);
        becomes_healthy(&bench);
        for (name, to) in order {
            let number: usize = name[1..].parse().unwrap();
            let path = seat(&bench, number)["path"].clone();
            assert!(
                path.as_str().unwrap().ends_with(&format!("/{to}")),
                "{path}"
            );
        }
        holds_its_content(&bench);
    }
}

#[test]
fn a_spare_that_is_plugged_in_again_is_ready_again() {
    let bench = filled_with(
        "returns-spare",
        "raid5",
        4,
        &["--returns", "5"],
        &["spare", "s0"],
        |name| name,
    );
    import_without(&bench, &["s0"]);
    assert_eq!(seat(&bench, 4)["state"], "out");
    moves(&bench, "away/s0", "s1");
    becomes(&bench, "ready", |bench| {
        seat(bench, 4)["state"] == "waiting"
    });
    holds_its_content(&bench);
}

fn stays_as_it_is(bench: &Bench, at: &Path) {
    let before = checksum(at);
    std::thread::sleep(LOOKS);
    assert_eq!(checksum(at), before);
    assert_eq!(seat(bench, 1)["state"], "out");
}

#[test]
fn drives_that_a_command_took_out_and_ones_that_others_used_do_not_return() {
    let bench = filled_with(
        "returns-not",
        "raid6",
        5,
        &["--returns", "5"],
        &[],
        |name| name,
    );
    // By command, and under another name since.
    bench.ok(&["drive", "fail", "tank", "1"]);
    std::fs::copy(bench.path("d1"), bench.path("e1")).unwrap();
    std::fs::remove_file(bench.path("d1")).unwrap();
    stays_as_it_is(&bench, &bench.path("e1"));
    bench.ok(&["drive", "online", "tank", "1"]);
    becomes_healthy(&bench);
    // The whole pool was in use elsewhere with a drive that is out here.
    bench.ok(&["pool", "export", "--force", "tank"]);
    let other = Bench::new("returns-not-other");
    for name in ["d0", "e1", "d2", "d3", "d4"] {
        std::fs::copy(bench.path(name), other.path(name)).unwrap();
    }
    other.ok(&["pool", "import", "--dir", ".", "tank"]);
    for index in 0..8 {
        let name = format!("tank/w{index}");
        other.ok(&["volume", "create", &name, "--size", "1M"]);
    }
    other.ok(&["pool", "export", "tank"]);
    std::fs::remove_file(bench.path("e1")).unwrap();
    bench.ok(&["pool", "import", "--dir", ".", "--degraded", "tank"]);
    std::fs::copy(other.path("e1"), bench.path("f1")).unwrap();
    stays_as_it_is(&bench, &bench.path("f1"));
    // Of two copies none is taken.
    std::fs::copy(other.path("e1"), bench.path("g1")).unwrap();
    stays_as_it_is(&bench, &bench.path("g1"));
    holds_its_content(&bench);
}

/// Must show, 5: a drive of each of three pools hangs when the daemon starts.
#[test]
fn drives_that_hang_at_the_start_delay_nobody_and_return_when_they_answer() {
    const POOLS: [&str; 3] = ["one", "two", "three"];
    let mut bench = Bench::new("hang-start");
    // The drives are files that another daemon serves.
    let other = Bench::new("hang-start-below");
    let below = other.drives("b", 1, 300 * MIB);
    assert_eq!(other.create("below", "raid0", &below, &[]).code, 0);
    for pool in POOLS {
        let (volume, at) = (format!("below/{pool}"), format!("{pool}-2"));
        other.ok(&["volume", "create", &volume, "--size", "40M"]);
        let at = bench.path(&at).display().to_string();
        let served = other.run(&["volume", "attach", &volume, "--fuse", &at]);
        if served.code != 0 {
            eprintln!("skipped: drives that hang, for there is no /dev/fuse");
            return;
        }
        let mut drives = bench.drives(&format!("{pool}-"), 2, 40 * MIB);
        drives.push(format!("{pool}-2"));
        assert_eq!(bench.create(pool, "raid5", &drives, &[]).code, 0);
        bench.ok(&["volume", "create", &format!("{pool}/v"), "--size", "12M"]);
    }
    let signal = |signal| {
        let pid = Pid::from_raw(i32::try_from(other.pid()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    };
    struct Continues<F: Fn(Signal)>(F);
    impl<F: Fn(Signal)> Drop for Continues<F> {
        fn drop(&mut self) {
            (self.0)(Signal::CONT);
        }
    }
    assert_eq!(bench.terminate(), Some(0));
    signal(Signal::STOP);
    let continues = Continues(signal);
    let began = Instant::now();
    bench.start_with(&["--wait-drives", "1", "--returns", "5"]);
    let ready = began.elapsed();
    assert!(
        ready < Duration::from_secs(15),
        "{ready:?}\n{}",
        bench.log()
    );
    let client = |pool: &str| {
        let (volume, at) = (format!("{pool}/v"), format!("unix:nbd-{pool}"));
        bench.run(&["volume", "detach", &volume]);
        let export = bench.json(&["volume", "attach", &volume, "--nbd", &at]);
        Client::connect(&export["uri"].as_str().unwrap().parse().unwrap(), None).unwrap()
    };
    for pool in POOLS {
        assert_eq!(bench.json(&["pool", "status", pool])["health"], "degraded");
        let mut client = client(pool);
        client.write(0, &content(), true).unwrap();
        assert!(client.read(0, content().len()).unwrap() == content());
        client.disconnect().unwrap();
    }
    if std::env::var_os("RAVELIN_LONG").is_some() {
        // They are looked for once a minute.
        drop(continues);
        let begun = Instant::now();
        for pool in POOLS {
            while bench.run(&["pool", "status", "--check", pool]).code != 0 {
                assert!(begun.elapsed() < 2 * SOON, "{}", bench.log());
                std::thread::sleep(Duration::from_millis(100));
            }
            let mut client = client(pool);
            assert!(client.read(0, content().len()).unwrap() == content());
            client.disconnect().unwrap();
        }
    }
    let began = Instant::now();
    assert_eq!(bench.terminate(), Some(0));
    assert!(began.elapsed() < Duration::from_secs(10));
}

/// Regression: a spare that was pulled stayed "ready" until it was needed.
#[test]
fn a_spare_that_is_pulled_is_ready_no_more_and_is_again_when_it_is_back() {
    let drive = |name: String| name;
    let spare = "faulty:s0?fail=gone&times=all&while=pulled-s0";
    let options = ["--returns", "5"];
    let more = ["spare", spare];
    let bench = filled_with("pulled-spare", "raid5", 4, &options, &more, drive);
    assert_eq!(seat(&bench, 4)["state"], "waiting");
    pull(&bench, "s0");
    becomes(&bench, "out", |bench| seat(bench, 4)["state"] == "out");
    let status = bench.ok(&["pool", "status", "tank"]);
    assert!(!status.contains("a spare is ready"), "{status}");
    plug(&bench, "s0", "s0", "s1");
    becomes(&bench, "ready", |bench| {
        seat(bench, 4)["state"] == "waiting"
    });
    holds_its_content(&bench);
}
