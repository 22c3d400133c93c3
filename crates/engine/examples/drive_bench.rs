//! CPU time per request of the back ends for drives, as docs/history/performance-drives.md reports it.
//!
//! ```text
//! drive_bench [--seconds S] [--rounds N] [--depth N] [--block BYTES] NAME=PATH…
//! ```
//!
//! Each PATH (a file or device that is overwritten) is measured with every back end, reading and writing
//! at random, one after another in rounds, so that a noisy minute affects all alike. The program prints
//! medians. CPU time is that of this process, including the kernel's io_uring workers; other CPU time of
//! the kernel (a loop device's own worker) is not included.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use block::{Completed, Full, Memory, Outcome, Region, Request, RequestKind, SplitMix64};
use engine::drive::{Drive, DriveUri, Open, open, sync};
use engine::load::cpu_time;
use engine::ring::LocalRing;

/// Ways to do I/O, in the order of the table.
const WAYS: [&str; 5] = [
    "pread",
    "threads",
    "ring threads",
    "own ring",
    "own ring, registered",
];

struct Options {
    time: Duration,
    rounds: usize,
    depth: usize,
    block: usize,
    targets: Vec<(String, String)>,
}

/// Requests that have ended and have not been handled yet.
#[derive(Default)]
struct Ended {
    tokens: Mutex<Vec<u64>>,
    more: Condvar,
}

impl Completed for Ended {
    fn completed(&self, token: u64, outcome: Outcome) {
        outcome.expect("the drive works");
        let mut tokens = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        tokens.push(token);
        if tokens.len() == 1 {
            self.more.notify_one();
        }
    }
}

/// One measurement.
#[derive(Clone, Copy)]
struct Cost {
    cpu_microseconds: f64,
    per_second: f64,
}

fn main() -> Result<(), String> {
    let options = parse()?;
    let mut costs: BTreeMap<(usize, bool, usize), Vec<Cost>> = BTreeMap::new();
    for round in 0..options.rounds {
        for (index, (name, path)) in options.targets.iter().enumerate() {
            if round == 0 {
                fill(path)?;
            }
            for (way, _) in WAYS.iter().enumerate() {
                for write in [false, true] {
                    let cost = measure(&options, path, way, write)
                        .map_err(|error| format!("{name}: {error}"))?;
                    costs.entry((index, write, way)).or_default().push(cost);
                }
            }
        }
    }
    println!("| drive | | {} |", WAYS.join(" | "));
    println!("| --- | --- |{}", " --: |".repeat(WAYS.len()));
    for (index, (name, _)) in options.targets.iter().enumerate() {
        for write in [false, true] {
            let cells: Vec<String> = (0..WAYS.len())
                .map(|way| {
                    let cost = median(&costs[&(index, write, way)]);
                    let (cpu, rate) = (cost.cpu_microseconds, cost.per_second / 1000.0);
                    format!("{cpu:.2} ({rate:.0} k/s)")
                })
                .collect();
            let direction = if write { "write" } else { "read" };
            println!("| {name} | {direction} | {} |", cells.join(" | "));
        }
    }
    Ok(())
}

fn parse() -> Result<Options, String> {
    let mut options = Options {
        time: Duration::from_millis(500),
        rounds: 5,
        depth: 32,
        block: 4096,
        targets: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut number = || {
            let value = arguments
                .next()
                .ok_or(format!("{argument} needs a number"))?;
            value
                .parse::<f64>()
                .map_err(|error| format!("{argument} {value}: {error}"))
        };
        match argument.as_str() {
            "--seconds" => options.time = Duration::from_secs_f64(number()?),
            "--rounds" => options.rounds = whole(number()?),
            "--depth" => options.depth = whole(number()?),
            "--block" => options.block = whole(number()?),
            target => {
                let pair = target
                    .split_once('=')
                    .ok_or(format!("{target} is not NAME=PATH"))?;
                options.targets.push((pair.0.to_owned(), pair.1.to_owned()));
            }
        }
    }
    if options.targets.is_empty() {
        return Err("nothing to measure: give NAME=PATH…".to_owned());
    }
    Ok(options)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers from the command line"
)]
fn whole(number: f64) -> usize {
    number.max(1.0) as usize
}

fn open_drive(path: &str, backend: &str) -> Result<Drive, String> {
    let uri = format!("{path}?backend={backend}");
    let how = Open {
        create_size: None,
        exclusive: true,
        read_only: false,
    };
    let uri = uri
        .parse::<DriveUri>()
        .map_err(|error| Full(error).to_string())?;
    open(&uri, how).map_err(|error| Full(error).to_string())
}

/// Writes all of the drive, with bytes that do not compress.
fn fill(path: &str) -> Result<(), String> {
    let drive = open_drive(path, "threads")?;
    let mut random = SplitMix64::new(1);
    let mut offset = 0;
    while offset < drive.size_bytes {
        let length = (drive.size_bytes - offset).min(1 << 20);
        let bytes = random.bytes(usize::try_from(length).map_err(|error| error.to_string())?);
        sync::write(&*drive.device, offset, &bytes).map_err(|fault| format!("{path}: {fault}"))?;
        offset += length;
    }
    sync::flush(&*drive.device).map_err(|fault| format!("{path}: {fault}"))
}

fn measure(options: &Options, path: &str, way: usize, write: bool) -> Result<Cost, String> {
    // A thread of its own, so that its ring is created and destroyed with the measurement.
    std::thread::scope(|scope| {
        let worker = scope.spawn(|| match way {
            0 => blocking(options, path, write),
            1 => drive(options, &open_drive(path, "threads")?, None, write),
            2 => drive(options, &open_drive(path, "uring")?, None, write),
            _ => {
                let depth = u32::try_from(options.depth).map_err(|error| error.to_string())?;
                let ring = LocalRing::install(depth).map_err(|error| error.to_string())?;
                let registered = way == 4;
                drive(
                    options,
                    &open_drive(path, "uring")?,
                    Some((ring, registered)),
                    write,
                )
            }
        });
        worker
            .join()
            .map_err(|_| "a measurement panicked".to_owned())?
    })
}

fn cost(begun: Instant, cpu_begun: Duration, requests: u64) -> Cost {
    #[expect(clippy::cast_precision_loss, reason = "a count of requests")]
    let requests = requests as f64;
    Cost {
        cpu_microseconds: (cpu_time() - cpu_begun).as_secs_f64() * 1e6 / requests,
        per_second: requests / begun.elapsed().as_secs_f64(),
    }
}

/// The lower bound: one thread, one system call per request, nothing around it.
fn blocking(options: &Options, path: &str, write: bool) -> Result<Cost, String> {
    use rustix::fs::{Mode, OFlags};
    let flags = OFlags::RDWR | OFlags::DIRECT;
    let fail = |error: rustix::io::Errno| format!("{path}: {error}");
    let file = rustix::fs::open(path, flags, Mode::empty()).map_err(fail)?;
    let size = rustix::fs::seek(&file, rustix::fs::SeekFrom::End(0)).map_err(fail)?;
    let blocks = size / options.block as u64;
    let mut memory = Memory::zeroed(options.block);
    let bytes = memory.unique_mut().ok_or("memory is shared")?;
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    let (mut random, mut requests) = (SplitMix64::new(7), 0);
    while begun.elapsed() < options.time {
        for _ in 0..options.depth {
            let offset = random.below(blocks) * options.block as u64;
            if write {
                rustix::io::pwrite(&file, &*bytes, offset).map_err(fail)?;
            } else {
                rustix::io::pread(&file, &mut *bytes, offset).map_err(fail)?;
            }
            requests += 1;
        }
    }
    Ok(cost(begun, cpu_begun, requests))
}

fn drive(
    options: &Options,
    drive: &Drive,
    mut ring: Option<(LocalRing, bool)>,
    write: bool,
) -> Result<Cost, String> {
    let ended = Arc::new(Ended::default());
    let to: Arc<dyn Completed> = Arc::clone(&ended) as _;
    let block = options.block as u64;
    let blocks = drive.size_bytes / block;
    let (region, mut buffers) = Region::cut(1, options.depth * options.block);
    let memory = buffers.remove(0);
    if let Some((ring, true)) = &mut ring {
        ring.register(&region).map_err(|error| error.to_string())?;
    }
    let mut random = SplitMix64::new(7);
    let mut submit = |token: u64| {
        let slot = usize::try_from(token).unwrap_or(0) * options.block;
        let request = Request {
            kind: if write {
                RequestKind::Write
            } else {
                RequestKind::Read
            },
            offset: random.below(blocks) * block,
            length: block,
            fua: false,
        };
        let part = memory.slice(slot..slot + options.block);
        drive.device.submit(request, part, token, &to);
    };
    let (begun, cpu_begun) = (Instant::now(), cpu_time());
    let mut requests = 0_u64;
    let mut in_flight = 0;
    let mut batch: Vec<u64> = (0..options.depth as u64).collect();
    let mut running = true;
    loop {
        running &= begun.elapsed() < options.time;
        if running {
            in_flight += batch.len();
            batch.drain(..).for_each(&mut submit);
        }
        batch.clear();
        if in_flight == 0 {
            break;
        }
        if let Some((ring, _)) = &mut ring {
            ring.turn(None, || false)
                .map_err(|error| error.to_string())?;
        }
        let mut tokens = ended.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        while tokens.is_empty() && ring.is_none() {
            tokens = ended
                .more
                .wait(tokens)
                .unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::swap(&mut *tokens, &mut batch);
        drop(tokens);
        in_flight -= batch.len();
        requests += batch.len() as u64;
    }
    Ok(cost(begun, cpu_begun, requests))
}

fn median(costs: &[Cost]) -> Cost {
    let middle = |of: fn(&Cost) -> f64| {
        let mut all: Vec<f64> = costs.iter().map(of).collect();
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    Cost {
        cpu_microseconds: middle(|cost| cost.cpu_microseconds),
        per_second: middle(|cost| cost.per_second),
    }
}
