//! `ravelin sim`: the logic under faults, in virtual time, and `sim run`: arrays on modelled drives. Threads and clocks
//! are here; the simulations are in `sim`.

mod file;
mod machine;
mod plot;
mod run;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use sim::enumerate::{
    Share, Story, Tally, Workload, cuts, joins, phases, reported, silent, stories, workloads,
};
use sim::schedule::{Runner, Schedule, Scope, shrink};
use stats::ratio;

use super::common::{Context, Ended, Failure};
use super::examples;

/// Failing seeds that are printed, at most; more add no information.
const SEEDS_NAMED_MAX: usize = 20;
/// Without `--exhaustive`, one case in this many is run.
const SHARE: u64 = 50;

/// Run the logic in virtual time: loads on modelled drives, or faults that try to break it.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a load on an array of modelled drives, in virtual time, as a file says.
    #[command(after_long_help = examples::SIM_RUN)]
    Run(run::RunArguments),
    /// Run schedules of requests, faults and power cuts, one from each seed.
    #[command(after_long_help = examples::SIM_SWARM)]
    Swarm(SwarmArguments),
    /// Cut the power everywhere and let every operation go wrong, on small workloads.
    #[command(after_long_help = examples::SIM_FAULTS)]
    Faults(FaultsArguments),
    /// Run the schedule of one seed again, say what happens in it, and cut it down if it fails.
    #[command(after_long_help = examples::SIM_REPLAY)]
    Replay(ReplayArguments),
}

/// Run schedules of requests, faults and power cuts, one from each seed.
#[derive(Debug, Args)]
pub(crate) struct SwarmArguments {
    /// How long, by the clock on the wall.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    first_seed: u64,
    /// Threads; as many as there are cores if not given.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// What goes wrong.
    #[arg(long, value_enum, default_value_t = Faults::Reported)]
    faults: Faults,
}

/// Run enumerations of faults.
#[derive(Debug, Args)]
pub(crate) struct FaultsArguments {
    /// Every case; otherwise a fixed fiftieth of them.
    #[arg(long)]
    exhaustive: bool,
    /// Only this part.
    #[arg(long, value_enum)]
    only: Option<Part>,
    /// Only workloads with this in their name, as `elastic` or `raid6-small`.
    #[arg(long, value_name = "NAME")]
    workload: Option<String>,
}

/// Run the schedule of one seed again.
#[derive(Debug, Args)]
pub(crate) struct ReplayArguments {
    /// Which.
    seed: u64,
    /// What goes wrong.
    #[arg(long, value_enum, default_value_t = Faults::Reported)]
    faults: Faults,
}

/// Which faults.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Faults {
    /// Power cuts, and errors that drives report.
    Reported,
    /// Also damage that drives do not report.
    Silent,
}

impl From<Faults> for Scope {
    fn from(faults: Faults) -> Self {
        match faults {
            Faults::Reported => Self::Reported,
            Faults::Silent => Self::Silent,
        }
    }
}

/// A part of `sim faults`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// Power cuts, and again while recovering.
    Cuts,
    /// Every operation fails, in each way that a drive reports.
    Reported,
    /// Every operation goes wrong, in each way that a drive does not report.
    Silent,
    /// Every operation fails while a pool is made, opened and closed.
    Phases,
    /// Power cuts at every label, while drives are exchanged, return and take over, and a pool takes another name.
    Joins,
}

impl SimCommand {
    pub(crate) fn run(self, context: &Context) -> Result<Ended, Failure> {
        if !matches!(self, Self::Run(_)) {
            sim::quiet_panics();
        }
        match self {
            Self::Run(arguments) => arguments.run(context),
            Self::Swarm(arguments) => arguments.run(context),
            Self::Faults(arguments) => arguments.run(context),
            Self::Replay(arguments) => arguments.run(context),
        }
    }
}

/// What `sim swarm` prints.
#[derive(Debug, Serialize)]
struct SwarmReport {
    schedules: u64,
    /// Schedules with all that a full schedule must have.
    full: u64,
    violations: u64,
    failing_seeds: Vec<u64>,
    cpu_seconds: f64,
    /// Of the full schedules only.
    schedules_per_cpu_hour: f64,
    ios_per_cpu_second: f64,
    io_per_schedule: f64,
    requests_per_schedule: f64,
    first_seed: u64,
}

/// Sums over the threads of a swarm.
#[derive(Debug, Default)]
struct Sums {
    schedules: u64,
    full: u64,
    ios: u64,
    requests: u64,
    cpu: Duration,
    failing: Vec<u64>,
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

impl SwarmArguments {
    fn run(&self, context: &Context) -> Result<Ended, Failure> {
        let end = Instant::now() + Duration::from_secs(self.seconds);
        let threads = self
            .threads
            .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
            .unwrap_or(1);
        let next = AtomicU64::new(self.first_seed);
        let sums = Mutex::new(Sums::default());
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let own = run_seeds(&next, end, self.faults.into());
                    let mut all = sums.lock().expect("no thread panics with it");
                    all.schedules += own.schedules;
                    all.full += own.full;
                    all.ios += own.ios;
                    all.requests += own.requests;
                    all.cpu += own.cpu;
                    all.failing.extend(own.failing);
                });
            }
        });
        let mut sums = sums.into_inner().expect("no thread panics with it");
        sums.failing.sort_unstable();
        let violations = sums.failing.len() as u64;
        sums.failing.truncate(SEEDS_NAMED_MAX);
        let cpu_seconds = sums.cpu.as_secs_f64();
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let per_second = |count: u64| count as f64 / cpu_seconds.max(1e-9);
        let report = SwarmReport {
            schedules: sums.schedules,
            full: sums.full,
            violations,
            failing_seeds: sums.failing,
            cpu_seconds,
            schedules_per_cpu_hour: 3600.0 * per_second(sums.full),
            ios_per_cpu_second: per_second(sums.ios),
            io_per_schedule: ratio(sums.ios, sums.schedules),
            requests_per_schedule: ratio(sums.requests, sums.schedules),
            first_seed: self.first_seed,
        };
        context.print("sim.swarm", &report, |out| {
            writeln!(
                out,
                "{} schedules from seed {}, {} violations; {} of them full",
                report.schedules, report.first_seed, report.violations, report.full
            )?;
            writeln!(
                out,
                "{:.0} full schedules per CPU-hour; each {:.0} requests and {:.0} drive operations, {:.0} of these per CPU-second",
                report.schedules_per_cpu_hour,
                report.requests_per_schedule,
                report.io_per_schedule,
                report.ios_per_cpu_second
            )?;
            for seed in &report.failing_seeds {
                writeln!(out, "seed {seed} fails: ravelin sim replay {seed}")?;
            }
            Ok(())
        })?;
        Ok(Ended(u8::from(violations > 0)))
    }
}

/// Runs seeds until the time is over.
fn run_seeds(next: &AtomicU64, end: Instant, scope: Scope) -> Sums {
    let begun = cpu_time();
    let mut runner = Runner::new();
    let mut sums = Sums::default();
    while Instant::now() < end {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        let verdict = runner.run(&Schedule::from_seed(seed, scope));
        sums.schedules += 1;
        sums.full += u64::from(verdict.is_full());
        sums.ios += verdict.ios;
        sums.requests += verdict.requests;
        if verdict.violation.is_some() {
            sums.failing.push(seed);
        }
    }
    sums.cpu = cpu_time().saturating_sub(begun);
    sums
}

/// What is enumerated.
enum Case {
    Workload(Workload),
    Story(Story),
}

/// What `sim faults` prints.
#[derive(Debug, Serialize)]
struct FaultsReport {
    points: u64,
    states: u64,
    /// Distinct states, which were recovered and read.
    merged: u64,
    /// Of those, the states in which a pool was not made, opened or closed at the first attempt, with an error.
    refused: u64,
    violations: u64,
    findings: Vec<String>,
}

impl FaultsArguments {
    fn run(&self, context: &Context) -> Result<Ended, Failure> {
        let one_in = if self.exhaustive { 1 } else { SHARE };
        let share = Share::one_in(one_in);
        let named = |workload: &Workload| match &self.workload {
            Some(name) => workload.name.contains(name),
            None => true,
        };
        let workloads = workloads().into_iter().filter(named).map(Case::Workload);
        let stories = stories().into_iter().map(Case::Story);
        let stories = stories.filter(|_| self.workload.is_none());
        let all: Vec<Case> = workloads.chain(stories).collect();
        if all.is_empty() {
            let name = self.workload.as_deref().unwrap_or_default();
            return Err(Failure::usage(
                "nothing is enumerated",
                format!("no workload has `{name}` in its name"),
                "a scheme as `raid6`, or `elastic`",
            ));
        }
        let next = AtomicU64::new(0);
        let tally = Mutex::new(Tally::default());
        let threads = std::thread::available_parallelism().map_or(1, Into::into);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut runner = Runner::new();
                    while let Ok(index) = usize::try_from(next.fetch_add(1, Ordering::Relaxed))
                        && let Some(case) = all.get(index)
                    {
                        let own = match case {
                            Case::Workload(workload) => self.workload(&mut runner, workload, share),
                            Case::Story(story) if self.wants(Part::Joins) => {
                                joins(&mut runner, story, share)
                            }
                            Case::Story(_) => Tally::default(),
                        };
                        tally.lock().expect("no thread panics with it").add(own);
                    }
                });
            }
        });
        let tally = tally.into_inner().expect("no thread panics with it");
        let report = FaultsReport {
            points: tally.points,
            states: tally.states,
            merged: tally.merged,
            refused: tally.refused,
            violations: tally.violations.len() as u64,
            findings: tally.violations.into_iter().take(SEEDS_NAMED_MAX).collect(),
        };
        context.print("sim.faults", &report, |out| {
            writeln!(
                out,
                "{} points, {} states, {} of them different, {} refused, {} violations",
                report.points, report.states, report.merged, report.refused, report.violations
            )?;
            report
                .findings
                .iter()
                .try_for_each(|finding| writeln!(out, "{finding}"))
        })?;
        Ok(Ended(u8::from(report.violations > 0)))
    }

    fn wants(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    fn workload(&self, runner: &mut Runner, workload: &Workload, share: Share) -> Tally {
        let mut tally = Tally::default();
        let wanted = |part| self.wants(part);
        if wanted(Part::Cuts) {
            let again_one_in = workload.again_one_in();
            let share = Share {
                again_one_in,
                ..share
            };
            tally.add(cuts(runner, workload, share));
        }
        if wanted(Part::Reported) {
            tally.add(reported(runner, workload, share));
        }
        if wanted(Part::Silent) {
            tally.add(silent(runner, workload, share));
        }
        if wanted(Part::Phases) {
            tally.add(phases(runner, workload, share));
        }
        tally
    }
}

/// What `sim replay` prints.
#[derive(Debug, Serialize)]
struct ReplayReport {
    seed: u64,
    violation: Option<String>,
    trace: String,
    requests: u64,
    ios: u64,
    /// What happened, line by line.
    log: Vec<String>,
    /// The smallest schedule that fails in the same way.
    shrunk: Option<String>,
}

impl ReplayArguments {
    fn run(&self, context: &Context) -> Result<Ended, Failure> {
        let mut runner = Runner::new();
        let schedule = Schedule::from_seed(self.seed, self.faults.into());
        let (verdict, log) = runner.explain(&schedule);
        let failed = verdict.violation.is_some();
        let report = ReplayReport {
            seed: self.seed,
            violation: verdict.violation.map(|violation| violation.to_string()),
            trace: format!("{:016x}", verdict.trace),
            requests: verdict.requests,
            ios: verdict.ios,
            log,
            shrunk: failed.then(|| shrink(&mut runner, &schedule).to_string()),
        };
        context.print("sim.replay", &report, |out| {
            report
                .log
                .iter()
                .try_for_each(|line| writeln!(out, "{line}"))?;
            match (&report.violation, &report.shrunk) {
                (Some(violation), Some(shrunk)) => {
                    writeln!(out, "\n{violation}\n\nthe same with less:\n{shrunk}")
                }
                _ => writeln!(
                    out,
                    "\nnothing is wrong: {} requests, {} drive operations, trace {}",
                    report.requests, report.ios, report.trace
                ),
            }
        })?;
        Ok(Ended(u8::from(failed)))
    }
}
