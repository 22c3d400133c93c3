//! Runs seeds and prints the rate: `swarm FIRST COUNT [SCOPE [SETTING]]`, of all pools or of those whose name begins
//! with SETTING (`pddl2`).

#![expect(clippy::print_stdout, reason = "an example prints what it found")]

use sim::schedule::{Runner, SETTINGS, Schedule, Scope, shrink};

/// The allocator of `ravelin`, whose `sim swarm` does the same.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let first: u64 = args[1].parse().expect("a seed");
    let count: u64 = args[2].parse().expect("a count");
    let scope = match args.get(3).map(String::as_str) {
        Some("reported") => Scope::Reported,
        Some("silent") => Scope::Silent,
        _ => Scope::Orderly,
    };
    sim::quiet_panics();
    let mut runner = Runner::new();
    let mut findings = std::collections::BTreeMap::new();
    let (mut ios, mut requests, mut faults, mut full) = (0, 0, 0, 0);
    let mut failed = 0;
    let mut least = u64::MAX;
    let begun = testing::thread_cpu_time();
    let only = args.get(4).map_or("", String::as_str);
    let all = (first..).map(|seed| Schedule::from_seed(seed, scope));
    let wanted = all.filter(|schedule| SETTINGS[schedule.setting].name.starts_with(only));
    for schedule in wanted.take(usize::try_from(count).expect("a number")) {
        let verdict = runner.run(&schedule);
        ios += verdict.ios;
        least = least.min(verdict.ios);
        requests += verdict.requests;
        faults += verdict.faults;
        full += u64::from(verdict.is_full());
        if let Some(violation) = verdict.violation {
            failed += 1;
            let kind = (violation.signature(), schedule.setting);
            let (count, _) = findings.entry(kind).or_insert((0, schedule));
            *count += 1;
        }
    }
    let seconds = (testing::thread_cpu_time() - begun).as_secs_f64();
    eprintln!(
        "{count} schedules, {full} full, {failed} failed, {:.3} ms each, {:.0} full ones per CPU-hour, {} ios ({least} least), {} requests, {:.2} faults",
        seconds * 1e3 / count as f64,
        full as f64 * 3600.0 / seconds,
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
