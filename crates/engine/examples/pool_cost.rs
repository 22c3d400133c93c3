//! The cost of journal and checksums, as docs/performance.md reports it: two pools of one scheme on memory drives,
//! one with both and one with neither, under the same load in turn.
//!
//! ```text
//! pool_cost [--seconds S] [--rounds N] [--depth N] [--size MIB] [--threads N] [--full]
//!           [--large] [--drive URI]… [SCHEME…]
//! ```
//!
//! The program prints medians over the rounds: CPU time of the whole process per request (including the load
//! generator), requests per second, and medians of the rounds' ratios. A pool with a journal gets time for the
//! checkpoint that follows when the pool is idle, and the checkpoint counts as part of its cost. `--full` measures
//! only the pool with both, which may then have drives of other kinds: for a profile. `--large` measures requests of
//! 1 MiB at depth 8 instead: CPU time per MiB of first writes, overwrites and reads in order, each of the whole
//! volume, in pools that are created anew for each round.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use block::{BlockDevice, Completed, Memory, Outcome, Request, RequestKind};
use engine::assemble::{NewPool, create, prepare};
use engine::load::{Load, Pattern, cpu_time, run};
use engine::{PoolHandle, RunOptions};

/// A lane puts logged blocks in place when it has been idle for a second.
const SETTLE: Duration = Duration::from_millis(1300);

/// The same allocator as in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

struct Options {
    time: Duration,
    rounds: usize,
    depth: u32,
    mebibytes: u64,
    full: bool,
    large: bool,
    threads: Option<u16>,
    drives: Vec<String>,
    schemes: Vec<String>,
}

/// The options, or the error message.
fn options() -> Result<Options, String> {
    let mut options = Options {
        time: Duration::from_secs(1),
        rounds: 5,
        depth: 32,
        mebibytes: 64,
        full: false,
        large: false,
        threads: None,
        drives: Vec::new(),
        schemes: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut text = || arguments.next().ok_or(format!("{argument} needs a value"));
        let mut number = || text()?.parse::<f64>().map_err(|error| error.to_string());
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "small numbers from a command line"
        )]
        match argument.as_str() {
            "--seconds" => options.time = Duration::from_secs_f64(number()?),
            "--rounds" => options.rounds = number()? as usize,
            "--depth" => options.depth = number()? as u32,
            "--size" => options.mebibytes = number()? as u64,
            "--threads" => options.threads = Some(number()? as u16),
            "--full" => options.full = true,
            "--large" => options.large = true,
            "--drive" => options.drives.push(text()?),
            _ => options.schemes.push(argument),
        }
    }
    if options.schemes.is_empty() {
        options.schemes = vec!["raid5".to_owned(), "raid6".to_owned()];
    }
    Ok(options)
}

fn pool(scheme: &str, options: &Options, journal: bool) -> PoolHandle {
    let mebibytes = options.mebibytes;
    let mut drives = options.drives.clone();
    if drives.is_empty() {
        drives = vec![format!("mem:{}M", mebibytes + 192); 6];
    }
    let new = NewPool {
        name: "cost".to_owned(),
        scheme: scheme.parse().expect("a scheme"),
        chunk_bytes: None,
        cell_bytes: None,
        journal,
        drives: drives
            .iter()
            .map(|uri| uri.parse().expect("a drive"))
            .collect(),
        spares: Vec::new(),
        force: true,
    };
    let run = RunOptions {
        threads: options.threads,
        record: false,
    };
    let pool = create(prepare(&new).expect("a pool"), run).expect("a pool");
    pool.create_volume("v", mebibytes << 20).expect("a volume");
    assert!(pool.wait_idle(Duration::from_secs(60)), "it is quiet");
    pool
}

fn device(pool: &PoolHandle) -> Arc<dyn BlockDevice> {
    pool.volume("v").expect("just created")
}

/// Writes the whole volume: blocks that were never written are read without a drive.
fn fill(device: &dyn BlockDevice, mebibytes: u64) {
    in_order(device, RequestKind::Write, mebibytes, 1);
}

/// Writes or reads the whole volume in order, a mebibyte at a time.
fn in_order(device: &dyn BlockDevice, kind: RequestKind, mebibytes: u64, depth: u64) {
    struct Ended(Mutex<Sender<u64>>);
    impl Completed for Ended {
        fn completed(&self, token: u64, outcome: Outcome) {
            outcome.expect("memory does not fail");
            let sender = self.0.lock().expect("no panics");
            sender.send(token).expect("somebody waits");
        }
    }
    let (sender, ended) = channel();
    let to: Arc<dyn Completed> = Arc::new(Ended(Mutex::new(sender)));
    let bytes: Vec<u8> = (0..1 << 20)
        .map(|i: u32| i.to_le_bytes()[(i % 4) as usize])
        .collect();
    let memories: Vec<Memory> = (0..depth).map(|_| Memory::from_bytes(&bytes)).collect();
    for at in 0..mebibytes {
        // A new request takes the memory of the request that has ended: the token is the index of the memory.
        let slot = match at < depth {
            true => at,
            false => ended.recv().expect("an answer"),
        };
        let request = Request {
            kind,
            offset: at << 20,
            length: 1 << 20,
            fua: false,
        };
        let index = usize::try_from(slot).expect("it is small");
        device.submit(request, memories[index].clone(), slot, &to);
    }
    for _ in 0..depth.min(mebibytes) {
        ended.recv().expect("an answer");
    }
}

/// Drive operations so far, and KiB that went to and from drives.
#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn traffic(pool: &PoolHandle) -> (f64, f64) {
    let status = pool.status().expect("it runs");
    let all = status.seats.iter().map(|seat| &seat.traffic);
    let sums = all.fold((0, 0), |sums, one| {
        (
            sums.0 + one.reads + one.writes,
            sums.1 + one.read_bytes + one.write_bytes,
        )
    });
    (sums.0 as f64, sums.1 as f64 / 1024.0)
}

struct Measured {
    /// CPU microseconds per request.
    cost: f64,
    /// Requests per second.
    rate: f64,
    /// Drive operations per request.
    operations: f64,
    /// KiB to and from drives per request.
    kibibytes: f64,
}

fn measure(pool: &PoolHandle, pattern: Pattern, options: &Options, settle: bool) -> Measured {
    let load = Load {
        pattern,
        block_bytes: 4096,
        depth: options.depth,
        jobs: 1,
        time: options.time,
        sync: false,
        read_percent: None,
        compressible_percent: None,
        hot: None,
        total_bytes: None,
        rate_bytes: None,
    };
    let (before, (operations, kibibytes)) = (cpu_time().as_secs_f64(), traffic(pool));
    let report = run(&device(pool), load).expect("a load");
    if settle {
        std::thread::sleep(SETTLE);
    }
    let count = report.iops * options.time.as_secs_f64();
    let cost = (cpu_time().as_secs_f64() - before) * 1e6 / count;
    let (more, more_kibibytes) = traffic(pool);
    Measured {
        cost,
        rate: report.iops,
        operations: (more - operations) / count,
        kibibytes: (more_kibibytes - kibibytes) / count,
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

/// CPU milliseconds per MiB of first writes, overwrites and reads of the whole volume. The checkpoint that a pool
/// with a journal makes after its writes counts as part of their cost.
fn large(scheme: &str, options: &Options, journal: bool) -> [f64; 3] {
    let pool = pool(scheme, options, journal);
    let device = device(&pool);
    let kinds = [RequestKind::Write, RequestKind::Write, RequestKind::Read];
    kinds.map(|kind| {
        let before = cpu_time().as_secs_f64();
        in_order(&*device, kind, options.mebibytes, 8);
        if journal && kind == RequestKind::Write {
            std::thread::sleep(SETTLE);
        }
        #[expect(clippy::cast_precision_loss, reason = "a small number")]
        let mebibytes = options.mebibytes as f64;
        (cpu_time().as_secs_f64() - before) * 1e3 / mebibytes
    })
}

fn print_large(options: &Options) {
    println!("| scheme, 1 MiB, depth 8 | both on: CPU ms per MiB | off | ratio |");
    println!("| --- | --: | --: | --: |");
    for scheme in &options.schemes {
        let rounds: Vec<[[f64; 3]; 2]> = (0..options.rounds)
            .map(|_| [true, false].map(|journal| large(scheme, options, journal)))
            .collect();
        for (index, word) in ["first writes", "overwrites", "reads"].iter().enumerate() {
            let of = |which: usize| median(rounds.iter().map(|round| round[which][index]));
            let ratio = median(rounds.iter().map(|round| round[0][index] / round[1][index]));
            println!(
                "| {scheme} {word} | {:.3} | {:.3} | {ratio:.2} |",
                of(0),
                of(1)
            );
        }
    }
}

fn main() -> Result<(), String> {
    let options = options()?;
    if options.large {
        print_large(&options);
        return Ok(());
    }
    println!(
        "| scheme, 4 KiB at random | both on: CPU µs | off | ratio | on: rate /s | off | ratio \
         | on: drive operations, KiB | off |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: | --: | --: |");
    for scheme in &options.schemes {
        let kinds: &[bool] = if options.full {
            &[true]
        } else {
            &[true, false]
        };
        let pools: Vec<PoolHandle> = kinds
            .iter()
            .map(|&journal| pool(scheme, &options, journal))
            .collect();
        for pool in &pools {
            fill(&*device(pool), options.mebibytes);
        }
        std::thread::sleep(SETTLE);
        for (pattern, word) in [(Pattern::RandWrite, "write"), (Pattern::RandRead, "read")] {
            let mut all: Vec<Vec<Measured>> = pools.iter().map(|_| Vec::new()).collect();
            for _ in 0..options.rounds {
                for (index, pool) in pools.iter().enumerate() {
                    let settle = index == 0 && pattern == Pattern::RandWrite;
                    all[index].push(measure(pool, pattern, &options, settle));
                }
            }
            print_line(&format!("{scheme} {word}"), &all);
        }
    }
    Ok(())
}

fn print_line(name: &str, all: &[Vec<Measured>]) {
    let on = &all[0];
    let off = all.last().unwrap_or(on);
    let of = |all: &[Measured], what: fn(&Measured) -> f64| median(all.iter().map(what));
    let ratio = |what: fn(&Measured) -> f64| {
        median(on.iter().zip(off).map(|(on, off)| what(on) / what(off)))
    };
    println!(
        "| {name} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} | {:.1}, {:.0} | {:.1}, {:.0} |",
        of(on, |one| one.cost),
        of(off, |one| one.cost),
        ratio(|one| one.cost),
        of(on, |one| one.rate),
        of(off, |one| one.rate),
        ratio(|one| one.rate),
        of(on, |one| one.operations),
        of(on, |one| one.kibibytes),
        of(off, |one| one.operations),
        of(off, |one| one.kibibytes),
    );
}
