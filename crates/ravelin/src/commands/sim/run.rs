//! `ravelin sim run FILE.toml`: a load on an array of modelled drives, in virtual time.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use block::{ByteSize, Instant, Seat};
use clap::Args;
use serde::Serialize;
use sim::load::{Interval, Numbers, Run};
use stats::{Histogram, to_f64};

use super::super::common::{Context, Ended, Failure};
use super::file::{self, Setup};
use super::machine::RebuildState;
use super::plot;

/// Run a load on an array of modelled drives, in virtual time, as a file says.
#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    /// The file: drives, scheme, work, faults (docs/sim-run.md).
    #[arg(value_name = "FILE.toml")]
    file: PathBuf,
    /// Write the course over time as CSV.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    /// Write the course over time as an SVG picture.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// In place of the file's own seed.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// What a run prints.
#[derive(Debug, Serialize)]
struct RunReport {
    model: String,
    seed: u64,
    seconds: f64,
    requests: u64,
    reads: u64,
    writes: u64,
    errors: u64,
    iops: f64,
    bytes_per_second: f64,
    read_latency: Option<Latency>,
    write_latency: Option<Latency>,
    /// Mean of both in microseconds, and half the width of its 95 % interval.
    mean_us: f64,
    mean_us_half_width: Option<f64>,
    drive_ios: u64,
    drives: Vec<DriveReport>,
    rebuild: Option<RebuildReport>,
    series: Vec<SeriesRow>,
    /// A hash of everything that happened: equal for equal runs.
    trace: String,
}

/// How long requests took, in microseconds.
#[derive(Debug, Serialize)]
struct Latency {
    mean_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p999_us: f64,
    longest_us: f64,
}

/// A drive's work in the counted time.
#[derive(Debug, Serialize)]
struct DriveReport {
    seat: u16,
    reads: u64,
    writes: u64,
    read_bytes: u64,
    written_bytes: u64,
    busy_percent: f64,
    seeks: u64,
}

#[derive(Debug, Serialize)]
struct RebuildReport {
    /// After the end of the warm-up.
    began_seconds: f64,
    /// From its beginning; absent while it is under way.
    seconds: Option<f64>,
    cells: u64,
    cells_lost: u64,
    written_bytes: u64,
    bytes_per_second: f64,
}

/// One interval of the course.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SeriesRow {
    /// Its beginning, after the end of the warm-up.
    pub(super) seconds: f64,
    pub(super) iops: f64,
    pub(super) reads: u64,
    pub(super) writes: u64,
    pub(super) bytes_per_second: f64,
    pub(super) errors: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) longest_us: f64,
}

/// Three digits behind the point: more is noise, and prints differently.
fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

fn micros(ns: u64) -> f64 {
    rounded(to_f64(ns) / 1e3)
}

fn latency(histogram: &Histogram) -> Option<Latency> {
    (histogram.count() > 0).then(|| Latency {
        mean_us: rounded(histogram.mean() / 1e3),
        p50_us: micros(histogram.quantile(0.5)),
        p90_us: micros(histogram.quantile(0.9)),
        p99_us: micros(histogram.quantile(0.99)),
        p999_us: micros(histogram.quantile(0.999)),
        longest_us: micros(histogram.greatest()),
    })
}

/// A file to be written after the run. It is created before the run under another name: a folder that cannot be written
/// is detected early, and no file is left behind after another error.
#[derive(Debug)]
struct Output {
    path: PathBuf,
    part: PathBuf,
    kept: bool,
}

impl Output {
    fn reserve(path: &Path) -> Result<Self, Failure> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".part-{}", std::process::id()));
        let part = path.with_file_name(name);
        let cannot = |error| {
            Failure::usage(
                format!("cannot write {}", path.display()),
                format!("{error}"),
                "name a file in a folder that can be written",
            )
        };
        if path.is_dir() {
            return Err(cannot(io::Error::from(io::ErrorKind::IsADirectory)));
        }
        std::fs::write(&part, "").map_err(cannot)?;
        Ok(Self {
            path: path.to_owned(),
            part,
            kept: false,
        })
    }

    fn write(mut self, text: &str) -> Result<(), Failure> {
        std::fs::write(&self.part, text)?;
        std::fs::rename(&self.part, &self.path)?;
        self.kept = true;
        Ok(())
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.kept {
            // If this fails, an empty file is left.
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

impl RunArguments {
    pub(super) fn run(&self, context: &Context) -> Result<Ended, Failure> {
        let setup = file::read(&self.file, self.seed)?;
        let csv = self.csv.as_deref().map(Output::reserve).transpose()?;
        let svg = self.svg.as_deref().map(Output::reserve).transpose()?;
        let faults: Vec<f64> = setup
            .faults
            .iter()
            .map(|fault| to_f64(fault.at_ns) / 1e9)
            .collect();
        let report = run(setup)?;
        if let Some(csv) = csv {
            csv.write(&series_csv(&report.series))?;
        }
        if let Some(svg) = svg {
            let picture = plot::course(&report.model, &report.series, &faults);
            svg.write(&picture.map_err(io::Error::other)?)?;
        }
        context.print("sim run", &report, |out| print(out, &report))?;
        Ok(Ended(0))
    }
}

/// Runs a checked file.
fn run(setup: Setup) -> Result<RunReport, Failure> {
    let Setup {
        mut machine,
        load,
        warm_up_ns,
        run_ns,
        interval_ns,
        faults,
        seed,
        about,
    } = setup;
    let begin = machine.now().0 + warm_up_ns;
    let interval = std::time::Duration::from_nanos(interval_ns);
    let mut run = Run::new(load, Some(interval)).starting_at(machine.now());
    run.until(&mut machine, Instant(begin));
    run.count_anew();
    let seats = (0..machine.seats()).map(Seat);
    let before: Vec<_> = seats.clone().map(|seat| machine.work(seat)).collect();
    let ios_before = machine.ios();
    for fault in faults {
        let at = Instant(begin + fault.at_ns);
        run.until(&mut machine, at);
        machine
            .fail(at, fault.seat, fault.rebuild)
            .map_err(|error| {
                Failure::usage(
                    format!("seat {} cannot fail", fault.seat),
                    error,
                    "let fewer drives fail at once",
                )
            })?;
    }
    run.until(&mut machine, Instant(begin + run_ns));
    let numbers = run.numbers();
    let drives = seats
        .zip(before)
        .map(|(seat, before)| {
            let work = machine.work(seat);
            DriveReport {
                seat: seat.0,
                reads: work.reads - before.reads,
                writes: work.writes - before.writes,
                read_bytes: work.read_bytes - before.read_bytes,
                written_bytes: work.written_bytes - before.written_bytes,
                busy_percent: rounded(
                    100.0 * to_f64(work.busy_ns - before.busy_ns) / to_f64(run_ns),
                ),
                seeks: work.seeks - before.seeks,
            }
        })
        .collect();
    let mean = numbers.mean_ns();
    Ok(RunReport {
        model: about,
        seed,
        seconds: to_f64(run_ns) / 1e9,
        requests: numbers.requests(),
        reads: numbers.reads(),
        writes: numbers.writes(),
        errors: numbers.errors(),
        iops: rounded(numbers.per_second()),
        bytes_per_second: rounded(numbers.bytes_per_second()),
        read_latency: latency(numbers.read_latency()),
        write_latency: latency(numbers.write_latency()),
        mean_us: rounded(mean.mean / 1e3),
        mean_us_half_width: mean
            .half_width
            .is_finite()
            .then(|| rounded(mean.half_width / 1e3)),
        drive_ios: machine.ios() - ios_before,
        drives,
        rebuild: machine
            .rebuild()
            .map(|rebuild| rebuild_report(&rebuild, begin, begin + run_ns)),
        series: series(numbers, begin, interval_ns),
        trace: format!("{:016x}", machine.trace()),
    })
}

fn rebuild_report(rebuild: &RebuildState, begin: u64, now: u64) -> RebuildReport {
    let seconds = |ns: u64| rounded(to_f64(ns) / 1e9);
    let taken = rebuild.ended_ns.unwrap_or(now) - rebuild.began_ns;
    RebuildReport {
        began_seconds: seconds(rebuild.began_ns.saturating_sub(begin)),
        seconds: rebuild.ended_ns.map(|at| seconds(at - rebuild.began_ns)),
        cells: rebuild.cells,
        cells_lost: rebuild.lost,
        written_bytes: rebuild.written_bytes,
        bytes_per_second: rounded(to_f64(rebuild.written_bytes) / (to_f64(taken.max(1)) / 1e9)),
    }
}

fn series(numbers: &Numbers, begin: u64, interval_ns: u64) -> Vec<SeriesRow> {
    let length = to_f64(interval_ns) / 1e9;
    let row = |interval: &Interval| SeriesRow {
        seconds: rounded(to_f64(interval.begin_ns - begin) / 1e9),
        iops: rounded(to_f64(interval.reads + interval.writes) / length),
        reads: interval.reads,
        writes: interval.writes,
        bytes_per_second: rounded(to_f64(interval.bytes) / length),
        errors: interval.errors,
        p50_us: micros(interval.p50_ns),
        p99_us: micros(interval.p99_ns),
        longest_us: micros(interval.longest_ns),
    };
    numbers.series().iter().map(row).collect()
}

fn series_csv(series: &[SeriesRow]) -> String {
    use std::fmt::Write;
    let mut text =
        "seconds,iops,reads,writes,bytes_per_second,errors,p50_us,p99_us,longest_us\n".to_owned();
    for row in series {
        let SeriesRow {
            seconds,
            iops,
            reads,
            writes,
            bytes_per_second,
            errors,
            p50_us,
            p99_us,
            longest_us,
        } = row;
        writeln!(
            text,
            "{seconds},{iops},{reads},{writes},{bytes_per_second},{errors},{p50_us},{p99_us},{longest_us}"
        )
        .expect("writing to a string succeeds");
    }
    text
}

/// A rate in bytes per second for people.
fn per_second(bytes: f64) -> String {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rate for people"
    )]
    let whole = bytes as u64;
    format!("{}/s", ByteSize(whole))
}

fn print(out: &mut dyn Write, report: &RunReport) -> io::Result<()> {
    writeln!(out, "{}", report.model)?;
    writeln!(
        out,
        "{} s, seed {}: {} reads and {} writes, {} errors",
        report.seconds, report.seed, report.reads, report.writes, report.errors
    )?;
    writeln!(
        out,
        "{:.1} requests/s, {}, mean {:.3} ms{}",
        report.iops,
        per_second(report.bytes_per_second),
        report.mean_us / 1e3,
        report
            .mean_us_half_width
            .map_or(String::new(), |half| format!(" ± {:.3}", half / 1e3)),
    )?;
    for (what, latency) in [
        ("reads", &report.read_latency),
        ("writes", &report.write_latency),
    ] {
        if let Some(latency) = latency {
            writeln!(
                out,
                "{what}: 50 % within {:.3} ms, 99 % within {:.3}, 99.9 % within {:.3}, all within {:.3}",
                latency.p50_us / 1e3,
                latency.p99_us / 1e3,
                latency.p999_us / 1e3,
                latency.longest_us / 1e3
            )?;
        }
    }
    if let Some(rebuild) = &report.rebuild {
        let state = match rebuild.seconds {
            Some(seconds) => format!("took {seconds:.1} s"),
            None => "is under way at the end".to_owned(),
        };
        writeln!(
            out,
            "the rebuild {state}: {} cells, {} lost, {} at {}",
            rebuild.cells,
            rebuild.cells_lost,
            ByteSize(rebuild.written_bytes),
            per_second(rebuild.bytes_per_second)
        )?;
    }
    let busy = report.drives.iter().map(|drive| drive.busy_percent);
    let (least, most) = busy.fold((f64::INFINITY, 0.0), |(least, most), busy| {
        (f64::min(least, busy), f64::max(most, busy))
    });
    writeln!(
        out,
        "{} drive operations; drives are busy {least:.1} to {most:.1} % of the time",
        report.drive_ios
    )?;
    writeln!(out, "trace {}", report.trace)
}
