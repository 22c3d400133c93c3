//! Prints the trace of each seed, for comparison with another build: `traces FIRST COUNT [SCOPE]`.
//!
//! A line is a seed, the hash of all that happened in its run, and the counts of requests and drive operations. Two
//! builds whose lines agree do the same things in the same order (`bench/same_traces.sh`).

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use sim::schedule::{Runner, Schedule, Scope};

/// The allocator of `ravelin`, whose `sim swarm` does the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args[1].parse().expect("a seed");
    let count: u64 = args[2].parse().expect("a count");
    let scope = match args.get(3).map(String::as_str) {
        None | Some("orderly") => Scope::Orderly,
        Some("reported") => Scope::Reported,
        Some("silent") => Scope::Silent,
        Some(other) => panic!("{other} is no scope: orderly, reported, silent"),
    };
    sim::quiet_panics();
    let mut runner = Runner::new();
    for seed in first..first + count {
        let verdict = runner.run(&Schedule::from_seed(seed, scope));
        let violation = verdict.violation.map(|violation| format!(" {violation}"));
        println!(
            "{seed} {:016x} {} {}{}",
            verdict.trace,
            verdict.requests,
            verdict.ios,
            violation.unwrap_or_default()
        );
    }
}
