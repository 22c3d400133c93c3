//! Priorities, which the paper leaves open (section 5): what each costs clients, and how long a rebuild takes with it.

use std::time::Duration;

use array::pool::Steering;
use array::priority;
use block::Seat;
use sim::StudyVolume;
use sim::load::{Access, Arrivals, Load, LoadOptions, Run, Target};
use stats::to_f64;

use super::{DDP, KIB, Scale, disk};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DDP_PAPER;
use crate::report::Report;
use crate::row::{Row, Unit};
use crate::study::runs::{requests, seconds};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Priority;

static ABOUT: About = About {
    id: "ddp-priority",
    paper: &DDP_PAPER,
    title: "Section 5, left open: priorities of the rebuild, other loads, one and two failures",
    question: "The paper rebuilt at the default priority under one load, and asks for other loads and for \
        two failures. What do clients wait, and how long does the rebuild take, at each of three \
        priorities, for reads, writes and a mix of them, after one failure and after two?",
};

const SCALE: Scale = Scale(128);
/// The paper's smallest random requests.
const REQUEST_BYTES: u64 = 64 * KIB;
const FAILED: [Seat; 2] = [Seat(17), Seat(40)];
/// Requests that find out what the pool gives, with so many in flight.
const CLIENTS: u32 = 128;
/// The load, of what the pool gives with the rebuild paused.
const LOAD: f64 = 0.5;
/// A rebuild that takes longer than this is cut off: four times as long as any should.
const SECONDS_MAX: f64 = 1200.0;

/// Id, name, percent of reads.
const LOADS: [(&str, &str, u32); 3] = [
    ("reads", "reads", 100),
    ("writes", "writes", 0),
    ("mix", "70 % reads", 70),
];
const PRIORITIES: [&str; 3] = ["low", "medium", "high"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    load: usize,
    failures: usize,
}

/// What a rebuild took, and what it cost.
#[derive(Clone, Copy, Debug)]
struct Cost {
    seconds: f64,
    p99_ms: f64,
    mean_ms: f64,
}

/// One load and number of failures.
struct Found {
    /// Requests per second of the load.
    per_second: f64,
    /// With the rebuild paused.
    paused: Cost,
    /// Seconds without clients.
    idle: f64,
    /// By priority.
    costs: Vec<Cost>,
    trace: u64,
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Size {
    scale: Scale,
    warm_up: u64,
    paused: u64,
}

impl Study for Priority {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let size = match context.full() {
            true => Size {
                scale: Scale(16),
                warm_up: 8_000,
                paused: 80_000,
            },
            false => Size {
                scale: SCALE,
                warm_up: 2_000,
                paused: 10_000,
            },
        };
        report(context, size)
    }
}

fn report(context: &Context<'_>, size: Size) -> Result<Report, Stopped> {
    let mut tasks = Vec::new();
    for load in 0..LOADS.len() {
        tasks.extend([1, 2].map(|failures| Task { load, failures }));
    }
    let found = context.map(&tasks, |&task| measure(context, task, size))?;
    let mut trace = Trace::default();
    found.iter().for_each(|found| trace.add(found.trace));
    let rows = tasks.iter().zip(&found);
    let rows = rows.flat_map(|(&task, found)| rows_of(task, found, size.scale));
    Ok(Report {
        about: &ABOUT,
        seed: context.seed(),
        full: context.full(),
        model: format!(
            "Our whole pool with journal and checksums, `{DDP}` with eight volumes of 1230 GB, on disks of \
             300 GB at 15,000 rpm (preset 15k), of which drives, volumes and pieces have one part in {}: \
             seeks are shorter than on whole disks, and minutes are those of the scale, times {}. Load: 64 \
             KiB anywhere, a Poisson process at {LOAD} of what the pool gives with its rebuild paused and \
             {CLIENTS} requests in flight. Two failures: the second at once. Groups that cannot lose \
             another column go at high, whatever is set.",
            size.scale.0, size.scale.0,
        ),
        trace: trace.0,
        rows: rows.collect(),
        charts: vec![chart(&tasks, &found, true), chart(&tasks, &found, false)],
    })
}

fn steer(volume: &mut StudyVolume, name: Option<&str>, paused: bool) {
    let agreed = volume.steer(Steering {
        priority: name.and_then(priority::named),
        paused: Some(paused),
        ..Steering::default()
    });
    assert!(agreed, "the pool can be steered");
}

fn run_of(context: &Context<'_>, volume: &StudyVolume, load: usize, arrivals: Arrivals) -> Run {
    let options = LoadOptions {
        arrivals,
        access: Access::Uniform,
        read_percent: LOADS[load].2,
        sizes: vec![(REQUEST_BYTES, 1)],
        region: None,
    };
    let load = Load::new(&options, volume.capacity_bytes(), context.seed());
    Run::new(load.expect("requests fit"), None).starting_at(volume.now())
}

fn measure(context: &Context<'_>, task: Task, size: Size) -> Result<Found, Stopped> {
    let mut degraded = size.scale.ddp(disk());
    steer(&mut degraded, None, true);
    for seat in &FAILED[..task.failures] {
        degraded.fail(*seat).expect("the drive is there");
    }
    let mut trace = Trace::default();

    let mut volume = degraded.clone();
    let closed = Arrivals::Closed {
        clients: CLIENTS,
        think_ns: 0,
    };
    let mut run = run_of(context, &volume, task.load, closed);
    requests(context, &mut run, &mut volume, size.warm_up)?;
    run.count_anew();
    requests(context, &mut run, &mut volume, size.paused)?;
    let per_second = LOAD * run.numbers().per_second();
    trace.add(volume.trace());

    let mut volume = degraded.clone();
    let open = Arrivals::Poisson { per_second };
    let mut run = run_of(context, &volume, task.load, open.clone());
    requests(context, &mut run, &mut volume, size.warm_up)?;
    run.count_anew();
    requests(context, &mut run, &mut volume, size.paused)?;
    assert_eq!(volume.rebuild().cells_done, 0, "nothing moves");
    let paused = cost(&run, f64::INFINITY);

    let mut volume = degraded.clone();
    let began = volume.now();
    steer(&mut volume, None, false);
    let ended = crate::study::runs::finish(context, &mut volume, |volume| volume.rebuild().ended)?;
    let idle = seconds(began, ended);

    let mut costs = Vec::new();
    for name in PRIORITIES {
        let mut volume = degraded.clone();
        let mut run = run_of(context, &volume, task.load, open.clone());
        requests(context, &mut run, &mut volume, size.warm_up)?;
        steer(&mut volume, Some(name), false);
        run.count_anew();
        let began = run.now();
        let cut_off =
            began + Duration::from_secs_f64(SECONDS_MAX * to_f64(SCALE.0) / to_f64(size.scale.0));
        while volume.rebuild().ended.is_none() && run.now() < cut_off {
            context.check()?;
            let next = run.now() + Duration::from_millis(100);
            run.until(&mut volume, next);
            context.passed(100_000_000);
        }
        let took = volume.rebuild().ended.map(|ended| seconds(began, ended));
        costs.push(cost(&run, took.unwrap_or(f64::INFINITY)));
        trace.add(volume.trace());
    }
    Ok(Found {
        per_second,
        paused,
        idle,
        costs,
        trace: trace.0,
    })
}

fn cost(run: &Run, seconds: f64) -> Cost {
    assert_eq!(run.numbers().errors(), 0);
    let latency = run.numbers().latency();
    Cost {
        seconds,
        p99_ms: to_f64(latency.quantile(0.99)) / 1e6,
        mean_ms: latency.mean() / 1e6,
    }
}

fn rows_of(task: Task, found: &Found, scale: Scale) -> Vec<Row> {
    let (id, name, _) = LOADS[task.load];
    let failures = ["one failure", "two failures"][task.failures - 1];
    let open = "the paper leaves priorities and other loads open";
    let minutes = to_f64(scale.0) / 60.0;
    let row = |part: &str, what: &str, ours: f64, unit: Unit| {
        Row::alone(
            format!("priority.{id}.f{}.{part}", task.failures),
            format!("{name}, {failures}: {what}"),
            ours,
            unit,
            open,
        )
    };
    let mut rows = vec![
        row(
            "load",
            "the load",
            found.per_second,
            Unit::OperationsPerSecond,
        ),
        row(
            "paused.p99",
            "99 % of requests within, rebuild paused",
            found.paused.p99_ms,
            Unit::Milliseconds,
        ),
        row(
            "paused.mean",
            "mean latency, rebuild paused",
            found.paused.mean_ms,
            Unit::Milliseconds,
        ),
        row(
            "idle.minutes",
            "rebuild without clients",
            found.idle * minutes,
            Unit::Minutes,
        ),
    ];
    for (priority, cost) in PRIORITIES.iter().zip(&found.costs) {
        let part = |part: &str| format!("{priority}.{part}");
        rows.extend([
            row(
                &part("minutes"),
                &format!("rebuild at {priority}"),
                cost.seconds * minutes,
                Unit::Minutes,
            ),
            row(
                &part("times"),
                &format!("rebuild at {priority}, ÷ that without clients"),
                cost.seconds / found.idle,
                Unit::Ratio,
            ),
            row(
                &part("p99"),
                &format!("99 % of requests within, at {priority}"),
                cost.p99_ms,
                Unit::Milliseconds,
            ),
            row(
                &part("p99.times"),
                &format!("99 % of requests within, at {priority}, ÷ that with the rebuild paused"),
                cost.p99_ms / found.paused.p99_ms,
                Unit::Ratio,
            ),
            row(
                &part("mean.times"),
                &format!("mean latency at {priority}, ÷ that with the rebuild paused"),
                cost.mean_ms / found.paused.mean_ms,
                Unit::Ratio,
            ),
        ]);
    }
    rows
}

/// Time of the rebuild, or latency of clients, by load and priority.
fn chart(tasks: &[Task], found: &[Found], times: bool) -> Chart {
    let names = tasks.iter().map(|task| {
        let failures = ["one failure", "two failures"][task.failures - 1];
        format!("{}, {failures}", LOADS[task.load].1)
    });
    let (id, title, y) = match times {
        true => ("time", "Time of the rebuild", "÷ that without clients"),
        false => (
            "latency",
            "99 % of requests within",
            "÷ that with the rebuild paused",
        ),
    };
    let mut chart = Chart::new(
        id,
        title,
        Mark::Bars,
        Axis::categories("", names),
        Axis::linear(y),
    );
    chart.series = { PRIORITIES.iter().enumerate() }
        .map(|(at, name)| {
            let of = |found: &Found| match times {
                true => found.costs[at].seconds / found.idle,
                false => found.costs[at].p99_ms / found.paused.p99_ms,
            };
            let points = found.iter().enumerate();
            Series {
                name: (*name).to_owned(),
                ours: points
                    .map(|(at, found)| Point::new(to_f64(at as u64), of(found)))
                    .collect(),
                paper: Vec::new(),
            }
        })
        .collect();
    chart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Progress;

    #[test]
    fn a_lower_priority_takes_longer_and_costs_clients_less() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let size = Size {
            scale: Scale(1024),
            warm_up: 500,
            paused: 2_000,
        };
        let task = Task {
            load: 0,
            failures: 1,
        };
        let found = measure(&context, task, size).expect("nothing stops it");
        let [low, medium, high] = [0, 1, 2].map(|at| found.costs[at]);
        assert!(low.seconds > medium.seconds && medium.seconds > high.seconds);
        assert!(high.seconds >= found.idle * 0.9);
        assert!(low.p99_ms < high.p99_ms);
    }
}
