//! Section 1's sweep: stripe width, parity ratio, utilisation, access pattern, redundancy level.

use block::Seat;
use sim::load::{Access, Arrivals, Load, LoadOptions, Run};
use sim::model::Work;
use stats::{mean, to_f64};

use super::{
    CELL_BYTES, GIB, KIB, array, imbalance, rebuild, requests, zfs_disk, zfs_rebuild, zfs_window,
};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DRAID;
use crate::report::Report;
use crate::row::{Row, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Sweep;

static ABOUT: About = About {
    id: "draid-sweep",
    paper: &DRAID,
    title: "Section 1: what stripe width, parity, fill, access and redundancy change",
    question: "The paper varied stripe width, parity ratio, storage utilisation, access pattern and \
        redundancy level, and measured throughput, access time, recovery time and the wear of a \
        recovery; its text has no numbers of it. Here each is varied alone, from 4+1 on 17 drives \
        with two drives' worth of spare space, half full, random records, nothing failed.",
};

const NO_NUMBER: &str = "the paper's text has no number for this";

/// The array's state while the load runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Whole,
    Degraded,
    Rebuilding,
}

/// One setting.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Setting {
    data: u16,
    parity: u16,
    fill: u32,
    access: Access,
    state: State,
}

const BASE: Setting = Setting {
    data: 4,
    parity: 1,
    fill: 50,
    access: Access::Uniform,
    state: State::Whole,
};
const DRIVES: u16 = 17;
const SPARES: u16 = 2;
const FAILED: Seat = Seat(3);
const CLIENTS: u32 = 64;
/// Random requests; IOR's smallest of the test platform's kind.
const REQUEST_BYTES: u64 = 64 * KIB;
const READ_PERCENT: u32 = 70;

/// A parameter: id, name, and the settings with their names. The base is one of them.
struct Parameter {
    id: &'static str,
    name: &'static str,
    settings: Vec<(&'static str, Setting)>,
}

fn parameters() -> Vec<Parameter> {
    let with = |change: fn(&mut Setting)| {
        let mut setting = BASE;
        change(&mut setting);
        setting
    };
    vec![
        Parameter {
            id: "width",
            name: "data columns of a stripe",
            settings: vec![
                ("2", with(|setting| setting.data = 2)),
                ("4", BASE),
                ("8", with(|setting| setting.data = 8)),
                ("14", with(|setting| setting.data = 14)),
            ],
        },
        Parameter {
            id: "parity",
            name: "parity columns of a stripe",
            settings: vec![
                ("1", BASE),
                ("2", with(|setting| setting.parity = 2)),
                ("3", with(|setting| setting.parity = 3)),
            ],
        },
        Parameter {
            id: "fill",
            name: "space in use, %",
            settings: vec![
                ("10", with(|setting| setting.fill = 10)),
                ("30", with(|setting| setting.fill = 30)),
                ("50", BASE),
                ("70", with(|setting| setting.fill = 70)),
                ("90", with(|setting| setting.fill = 90)),
            ],
        },
        Parameter {
            id: "access",
            name: "access pattern",
            settings: vec![
                ("uniform", BASE),
                (
                    "sequential",
                    with(|setting| setting.access = Access::Sequential { streams: 16 }),
                ),
                (
                    "hot",
                    with(|setting| {
                        setting.access = Access::Hot {
                            accesses_percent: 80,
                            space_percent: 20,
                        };
                    }),
                ),
                (
                    "zipf",
                    with(|setting| setting.access = Access::Zipf { exponent: 0.99 }),
                ),
            ],
        },
        Parameter {
            id: "redundancy",
            name: "state of the array",
            settings: vec![
                ("whole", BASE),
                ("degraded", with(|setting| setting.state = State::Degraded)),
                (
                    "rebuilding",
                    with(|setting| setting.state = State::Rebuilding),
                ),
            ],
        },
    ]
}

/// The results of a setting.
struct Found {
    bytes_per_second: f64,
    access_ms: f64,
    p99_ms: f64,
    /// Recovery time without load.
    recovery_s: f64,
    /// Mean bytes per surviving drive, and greatest ÷ mean.
    wear: (f64, f64),
    trace: u64,
}

impl Study for Sweep {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let (drive_gib, count) = match context.full() {
            true => (160, 100_000),
            false => (16, 12_000),
        };
        let parameters = parameters();
        let cases: Vec<(String, Setting)> = parameters
            .iter()
            .flat_map(|parameter| {
                let settings = parameter.settings.iter();
                settings.map(|(value, setting)| (format!("{}.{value}", parameter.id), *setting))
            })
            .collect();
        let found = context.map(&cases, |(_, setting)| {
            measure(context, setting, drive_gib * GIB, count)
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|found| trace.add(found.trace));
        let rows = cases.iter().zip(&found);
        let rows = rows.flat_map(|((id, _), found)| rows_of(id, found));
        let mut at = 0;
        let charts = parameters.iter().map(|parameter| {
            let some = &found[at..at + parameter.settings.len()];
            at += parameter.settings.len();
            chart(parameter, some)
        });
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Plain arrays with OpenZFS's map of {DRIVES} drives, {SPARES} drives' worth of spare \
                 space; 7,200 rpm disks (preset nearline), {drive_gib} GiB of each, C-LOOK queue over \
                 all that waits. Load: {CLIENTS} requests of 64 KiB in flight, {READ_PERCENT} % \
                 reads, in the part of the space that is in use; {count} requests. Recovery: one \
                 drive, in dRAID's order, all survivors read, 32 MiB per drive in flight, without \
                 load. Wear: bytes that a surviving drive writes in the recovery. Not modelled: \
                 ZFS's allocator, transaction groups, cache and compression."
            ),
            trace: trace.0,
            rows: rows.collect(),
            charts: charts.collect(),
        })
    }
}

fn measure(
    context: &Context<'_>,
    setting: &Setting,
    drive_bytes: u64,
    count: u64,
) -> Result<Found, Stopped> {
    let &Setting {
        data,
        parity,
        fill,
        access,
        state,
    } = setting;
    let scheme = format!("draid{parity}:{data}d:{DRIVES}c:{SPARES}s");
    let make = || {
        let mut array = array(&scheme, zfs_disk(), drive_bytes, CELL_BYTES);
        array.set_fill(f64::from(fill));
        array
    };
    let options = zfs_rebuild(zfs_window(DRIVES, data));
    let mut trace = Trace::default();

    let mut recovering = make();
    let recovery_s = rebuild(context, &mut recovering, FAILED, None, options)?;
    trace.add(recovering.trace());
    let written = |work: Work| work.written_bytes;
    let others = (0..DRIVES).map(Seat).filter(|&seat| seat != FAILED);
    let wear: Vec<f64> = others
        .map(|seat| to_f64(written(recovering.work(seat))))
        .collect();

    let mut loaded = make();
    let capacity = loaded.capacity_bytes();
    let used = capacity / 100 * u64::from(fill) / REQUEST_BYTES * REQUEST_BYTES;
    let load = LoadOptions {
        arrivals: Arrivals::Closed {
            clients: CLIENTS,
            think_ns: 0,
        },
        access,
        read_percent: READ_PERCENT,
        sizes: vec![(REQUEST_BYTES, 1)],
        region: Some((0, used)),
    };
    // One random stream for all settings: they differ only in the setting.
    let load = Load::new(&load, capacity, context.seed()).expect("requests fit into what is used");
    let mut run = Run::new(load, None);
    requests(context, &mut run, &mut loaded, count / 10)?;
    match state {
        State::Whole => {}
        State::Degraded => loaded.fail(run.now(), FAILED),
        State::Rebuilding => {
            loaded.fail(run.now(), FAILED);
            loaded.begin_rebuild(run.now(), options);
        }
    }
    run.count_anew();
    requests(context, &mut run, &mut loaded, count)?;
    trace.add(loaded.trace());
    let numbers = run.numbers();
    let latency = numbers.latency();
    Ok(Found {
        bytes_per_second: numbers.bytes_per_second(),
        access_ms: latency.mean() / 1e6,
        p99_ms: to_f64(latency.quantile(0.99)) / 1e6,
        recovery_s,
        wear: (mean(&wear), imbalance(&recovering, FAILED, written)),
        trace: trace.0,
    })
}

fn rows_of(id: &str, found: &Found) -> Vec<Row> {
    let row = |part: &str, name: &str, ours: f64, unit: Unit| {
        let title = format!("{}, {name}", id.replacen('.', " ", 1));
        Row::alone(format!("sweep.{id}.{part}"), title, ours, unit, NO_NUMBER)
    };
    vec![
        row(
            "throughput",
            "throughput",
            found.bytes_per_second / 1e6,
            Unit::MegabytesPerSecond,
        ),
        row(
            "access",
            "mean access time",
            found.access_ms,
            Unit::Milliseconds,
        ),
        row(
            "access-p99",
            "access time, 99 % within",
            found.p99_ms,
            Unit::Milliseconds,
        ),
        row("recovery", "recovery time", found.recovery_s, Unit::Seconds),
        row(
            "wear",
            "written per surviving drive in recovery",
            found.wear.0 / 1e9,
            Unit::Gigabytes,
        ),
        row(
            "wear-spread",
            "written in recovery, greatest ÷ mean",
            found.wear.1,
            Unit::Ratio,
        ),
    ]
}

/// All measures of a parameter's settings, each ÷ the base's.
fn chart(parameter: &Parameter, found: &[Found]) -> Chart {
    let base = parameter
        .settings
        .iter()
        .position(|(_, setting)| *setting == BASE)
        .expect("the base is one of them");
    let mut chart = Chart::new(
        parameter.id,
        format!("By {}", parameter.name),
        Mark::Bars,
        Axis::categories(
            parameter.name,
            parameter.settings.iter().map(|(value, _)| *value),
        ),
        Axis::linear("÷ that of 4+1, half full, random, whole"),
    );
    type Measure = fn(&Found) -> f64;
    let measures: [(&str, Measure); 4] = [
        ("throughput", |found| found.bytes_per_second),
        ("access time", |found| found.access_ms),
        ("recovery time", |found| found.recovery_s),
        ("written per drive in recovery", |found| found.wear.0),
    ];
    chart.series = measures
        .map(|(name, measure)| {
            let points = found.iter().enumerate();
            let points = points
                .map(|(at, of)| Point::new(to_f64(at as u64), measure(of) / measure(&found[base])));
            Series {
                name: name.to_owned(),
                ours: points.collect(),
                paper: Vec::new(),
            }
        })
        .to_vec();
    chart
}
