//! What journal and checksums cost, as docs/performance.md reports it: two pools of one scheme on
//! memory drives, one with both and one with neither, under the same load in turn.
//!
//! ```text
//! pool_cost [--seconds S] [--rounds N] [--depth N] [--size MIB] [--threads N] [--full]
//!           [--drive URI]… [SCHEME…]
//! ```
//!
//! Printed are medians over the rounds, CPU time of the whole process per request (the generator's is
//! in it) and requests per second, and medians of the rounds' ratios. A pool that has journalled is
//! given the time for the checkpoint that follows when it is idle, and charged for it.
//! `--full` measures the pool with both alone, which may then have drives of other kinds: for a
//! profile.

#![expect(clippy::print_stdout, reason = "a program that prints a table")]

use std::sync::Arc;
use std::time::Duration;

use block::BlockDevice;
use engine::assemble::{NewPool, create, prepare};
use engine::load::{Load, Pattern, run};
use engine::{PoolHandle, RunOptions};
use rustix::time::{ClockId, clock_gettime};

/// A lane puts what is logged in place when it has been idle for a second.
const SETTLE: Duration = Duration::from_millis(1300);

struct Options {
    time: Duration,
    rounds: usize,
    depth: u32,
    mebibytes: u64,
    full: bool,
    threads: u16,
    drives: Vec<String>,
    schemes: Vec<String>,
}

/// The options, or what to say instead.
fn options() -> Result<Options, String> {
    let mut options = Options {
        time: Duration::from_secs(1),
        rounds: 5,
        depth: 32,
        mebibytes: 64,
        full: false,
        threads: RunOptions::default().threads,
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
            "--threads" => options.threads = number()? as u16,
            "--full" => options.full = true,
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
    assert!(pool.wait_quiet(Duration::from_secs(60)), "it is quiet");
    pool
}

fn device(pool: &PoolHandle) -> Arc<dyn BlockDevice> {
    pool.volume("v").expect("just created")
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "times are short")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9;
    seconds
}

/// CPU microseconds per request, and requests per second.
fn measure(pool: &PoolHandle, pattern: Pattern, options: &Options, settle: bool) -> (f64, f64) {
    let load = Load {
        pattern,
        block_bytes: 4096,
        depth: options.depth,
        jobs: 1,
        time: options.time,
    };
    let before = cpu();
    let report = run(&device(pool), load).expect("a load");
    if settle {
        std::thread::sleep(SETTLE);
    }
    let count = report.iops * options.time.as_secs_f64();
    ((cpu() - before) * 1e6 / count, report.iops)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0
}

fn main() -> Result<(), String> {
    let options = options()?;
    println!(
        "| scheme, 4 KiB at random | both on: CPU µs | both off: CPU µs | CPU, on to off | on: rate /s | off: rate /s | rate, on to off |"
    );
    println!("| --- | --: | --: | --: | --: | --: | --: |");
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
            let fill = Load {
                pattern: Pattern::Write,
                block_bytes: 1 << 20,
                depth: 4,
                jobs: 1,
                time: Duration::from_millis(1500),
            };
            run(&device(pool), fill).map_err(|error| error.to_string())?;
        }
        std::thread::sleep(SETTLE);
        for pattern in [Pattern::RandWrite, Pattern::RandRead] {
            let mut costs = vec![Vec::new(); pools.len()];
            let mut rates = vec![Vec::new(); pools.len()];
            for _ in 0..options.rounds {
                for (index, pool) in pools.iter().enumerate() {
                    let settle = index == 0 && pattern == Pattern::RandWrite;
                    let (cost, rate) = measure(pool, pattern, &options, settle);
                    costs[index].push(cost);
                    rates[index].push(rate);
                }
            }
            let ratio = |values: &[Vec<f64>]| {
                let off = values.get(1).unwrap_or(&values[0]);
                median(
                    values[0]
                        .iter()
                        .zip(off)
                        .map(|(on, off)| on / off)
                        .collect(),
                )
            };
            println!(
                "| {scheme} {} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.2} |",
                if pattern == Pattern::RandRead {
                    "read"
                } else {
                    "write"
                },
                median(costs[0].clone()),
                costs.get(1).map_or(f64::NAN, |off| median(off.clone())),
                ratio(&costs),
                median(rates[0].clone()),
                rates.get(1).map_or(f64::NAN, |off| median(off.clone())),
                ratio(&rates),
            );
        }
    }
    Ok(())
}
