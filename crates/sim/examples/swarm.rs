//! Runs seeds and prints how fast that goes: `swarm FIRST COUNT [SCOPE]`.

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use sim::schedule::{Runner, Schedule, Scope, shrink};

#[expect(
    clippy::disallowed_methods,
    reason = "it measures the simulator, from outside"
)]
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args[1].parse().expect("a seed");
    let count: u64 = args[2].parse().expect("a count");
    let scope = match args.get(3).map(String::as_str) {
        Some("said") => Scope::Said,
        Some("silent") => Scope::Silent,
        _ => Scope::Orderly,
    };
    sim::quiet_panics();
    let mut runner = Runner::new();
    let mut findings = std::collections::BTreeMap::new();
    let (mut ios, mut requests, mut faults) = (0, 0, 0);
    let mut failed = 0;
    let mut least = u64::MAX;
    let begun = std::time::Instant::now();
    for seed in first..first + count {
        let schedule = Schedule::from_seed(seed, scope);
        let verdict = runner.run(&schedule);
        ios += verdict.ios;
        least = least.min(verdict.ios);
        requests += verdict.requests;
        faults += verdict.faults;
        if let Some(violation) = verdict.violation {
            failed += 1;
            let kind = (violation.signature(), schedule.setting);
            let (count, _) = findings.entry(kind).or_insert((0, schedule));
            *count += 1;
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    eprintln!(
        "{count} schedules, {failed} failed, {:.3} ms each, {} ios ({least} least), {} requests, {:.2} faults",
        seconds * 1e3 / count as f64,
        ios / count,
        requests / count,
        faults as f64 / count as f64
    );
    for ((signature, _), (count, schedule)) in findings {
        let small = shrink(&mut runner, &schedule);
        let (verdict, lines) = runner.explain(&small);
        let what = verdict.violation.map(|violation| violation.to_string());
        println!(
            "== {count} times {signature}, seed {}: {}\n{small}--\n{}\n",
            schedule.seed,
            what.unwrap_or_default(),
            lines.join("\n")
        );
    }
}
