//! Drives that the pool cannot do without fail their operations; the daemon neither spins nor hangs.
//!
//! `RAVELIN_REFUSAL_SECONDS=60` for the long run; a few seconds otherwise.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use export::nbd::Client;
use rustix::process::{Pid, Resource, Rlimit, prlimit};

use crate::support::bench::Bench;

const MIB: u64 = 1 << 20;
const BLOCK: usize = 64 << 10;
/// Blocks of the volume that are flushed before any fault, and not written afterwards.
const FLUSHED: u64 = 8;

fn seconds() -> Duration {
    let seconds = std::env::var("RAVELIN_REFUSAL_SECONDS");
    Duration::from_secs(seconds.map_or(6, |seconds| seconds.parse().unwrap()))
}

struct Pool {
    bench: Bench,
    client: Client,
    written: u64,
    /// Blocks after the first [`FLUSHED`] ones that were written and flushed without error: they keep their content.
    flushed: BTreeSet<u64>,
}

fn connect(bench: &Bench) -> Client {
    bench.ok(&["volume", "attach", "tank/v", "--nbd", "unix:nbd"]);
    let socket = bench.path("nbd").display().to_string();
    let uri = format!("nbd+unix:///tank/v?socket={socket}");
    let mut client = Client::connect(&uri.parse().unwrap(), None).unwrap();
    client.set_timeout(Some(Duration::from_secs(30)));
    client
}

fn content(block: u64) -> Vec<u8> {
    vec![u8::try_from(block % 251).unwrap(); BLOCK]
}

impl Pool {
    fn new(bench: Bench, drives: &[String]) -> Self {
        let made = bench.create("tank", "raid6", drives, &[]);
        assert_eq!(made.code, 0, "{}", made.stderr);
        bench.ok(&["volume", "create", "tank/v", "--size", "64M"]);
        let mut client = connect(&bench);
        for block in 0..FLUSHED {
            let offset = block * BLOCK as u64;
            client.write(offset, &content(block), false).unwrap();
        }
        client.flush().unwrap();
        Self {
            bench,
            client,
            written: FLUSHED,
            flushed: BTreeSet::new(),
        }
    }

    /// Writes and flushes; returns whether both succeeded. The client continues at once in either case.
    fn write(&mut self) -> bool {
        let block = FLUSHED + self.written % 500;
        self.written += 1;
        let offset = block * BLOCK as u64;
        // A block always has the same content, so a block that was flushed once has it whatever later writes do.
        let written = self.client.write(offset, &content(block), false).is_ok();
        let well = self.client.flush().is_ok() && written;
        if well {
            self.flushed.insert(block);
        }
        well
    }

    /// CPU time of the daemon in hundredths of a second.
    fn ticks(&self) -> u64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.bench.pid())).unwrap();
        let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
        fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
    }

    /// While drives refuse writes: less than 5 % of a core, and less than 1 MB of log in a minute.
    fn rests(&mut self) {
        // Until the drives refuse, and the lanes have met the errors.
        let until = Instant::now() + Duration::from_secs(60);
        while self.write() {
            assert!(Instant::now() < until, "the drives refuse");
        }
        let settled = Instant::now() + Duration::from_secs(2);
        while Instant::now() < settled {
            self.write();
        }
        let (ticks, begun) = (self.ticks(), Instant::now());
        let mut refused = 0;
        while begun.elapsed() < seconds() {
            refused += u64::from(!self.write());
        }
        let took = begun.elapsed();
        let share = (self.ticks() - ticks) as f64 / 100.0 / took.as_secs_f64();
        let log = self.bench.log().len();
        eprintln!(
            "{:.1} % of a core, {log} bytes of log, {refused} refused in {took:?}",
            share * 100.0
        );
        assert!(refused > 0, "the client is told");
        assert!(share < 0.05, "{:.1} % of a core", share * 100.0);
        assert!(log < 1_000_000, "{log} bytes of log");
    }

    /// The daemon ends on SIGTERM, although nothing can be written.
    fn ends(&mut self) {
        let begun = Instant::now();
        self.bench.terminate();
        let took = begun.elapsed();
        eprintln!("SIGTERM took {took:?}");
        assert!(took < Duration::from_secs(10), "{took:?}");
    }

    /// Every flushed block has its content, whenever it was flushed.
    fn is_right(&mut self) {
        let flushed = std::mem::take(&mut self.flushed);
        for block in (0..FLUSHED).chain(flushed.iter().copied()) {
            let read = self.client.read(block * BLOCK as u64, BLOCK).unwrap();
            assert!(read == content(block), "block {block}");
        }
        self.flushed = flushed;
    }

    /// After the end of the fault, a new daemon opens the pool.
    fn opens_again(&mut self) {
        self.bench.start();
        self.bench.run(&["pool", "export", "tank"]);
        self.bench.ok(&["pool", "import", "--dir", ".", "tank"]);
        self.bench.run(&["volume", "detach", "tank/v"]);
        self.client = connect(&self.bench);
        self.is_right();
    }
}

/// A limit on file length stands for a full file system: writes beyond the limit fail; writes below it (labels, the
/// daemon's log) succeed.
fn space(pool: &Pool, bytes: Option<u64>) {
    let pid = Pid::from_raw(i32::try_from(pool.bench.pid()).unwrap());
    let limit = Rlimit {
        current: bytes,
        maximum: None,
    };
    prlimit(pid, Resource::Fsize, limit).unwrap();
}

/// Regression: 28 MB of log a second, and a daemon that did not end.
#[test]
fn a_pool_on_full_drives_rests_and_goes_on_when_there_is_space() {
    let mut bench = Bench::without_daemon("full");
    bench.start_without_signal("XFSZ");
    let drives = bench.drives("d", 6, 128 * MIB);
    let mut pool = Pool::new(bench, &drives);
    space(&pool, Some(MIB));
    pool.rests();
    space(&pool, None);
    let begun = Instant::now();
    while !pool.write() {
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "goes on by itself"
        );
    }
    eprintln!("goes on after {:?}", begun.elapsed());
    assert!((0..20).all(|_| pool.write()));
    pool.is_right();
    space(&pool, Some(MIB));
    while pool.write() {}
    pool.ends();
    pool.opens_again();
}

/// Regression: the first label writes put all six drives out, so that every request ended at once as lost: 30 % of a
/// core, and 6 MB of log in a minute.
#[test]
fn a_pool_whose_flushes_fail_rests_and_ends_when_told() {
    let bench = Bench::new("flushes");
    let drives = bench.drives("d", 6, 128 * MIB);
    let faulty = |drive: &String| format!("faulty:{drive}?fail=eio&on=flush&nth=60&times=all");
    let faulty: Vec<String> = drives.iter().map(faulty).collect();
    let mut pool = Pool::new(bench, &faulty);
    pool.rests();
    pool.ends();
    pool.opens_again();
}

#[test]
fn a_pool_with_three_drives_that_refuse_writes_rests_and_ends_when_told() {
    let bench = Bench::new("writes");
    let drives = bench.drives("d", 6, 128 * MIB);
    let faulty = |(index, drive): (usize, &String)| match index {
        0..3 => format!("faulty:{drive}?fail=eio&on=write&nth=400&times=all"),
        _ => drive.clone(),
    };
    let faulty: Vec<String> = drives.iter().enumerate().map(faulty).collect();
    let mut pool = Pool::new(bench, &faulty);
    pool.rests();
    pool.ends();
    pool.opens_again();
}
