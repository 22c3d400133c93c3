//! Section 4: one drive fails, and is rebuilt.

use std::time::Duration;

use block::{Instant, Seat};
use layout::balance;
use sim::StudyVolume;
use sim::load::{Load, LoadOptions, Run, Target};
use sim::model::Preset;
use stats::{mean, to_f64};

use super::{
    DDP, DDP_MINUTES, DRIVE_BYTES, IMPLIED_RATE, MIB, RAID6_MINUTES, Scale, disk, throttled,
};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DDP_PAPER;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::runs::{finish, range, seconds};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Rebuild;

static ABOUT: About = About {
    id: "ddp-rebuild",
    paper: &DDP_PAPER,
    title: "Section 4: time to rebuild a drive, DDP against RAID-6 with hot spares",
    question: "One drive of 60 fails. RAID-6 writes a hot spare, and takes as long as that drive takes \
        to be written; the pool reads and writes all of its drives. How many times as fast is that, \
        where every drive gives the rebuild the same share of its time, and where nothing limits it?",
};

/// The bound of the speed-up for equal bytes of users: 59 · 48 ÷ (9 · 32).
const BOUND: f64 = 59.0 * 48.0 / (9.0 * 32.0);
/// Share of the bound, divided by the table's imbalance, that our pool must reach.
const SHARE: f64 = 0.9;
/// Minutes between which the pool's rebuild was calculated to end at the implied rate (`reference/layouts.md`, section
/// 7.1: 32.5 for 8 columns read and 36.1 for 9, and room for the table's imbalance).
const MINUTES: Rule = Rule::Between(32.0, 39.0);
const FAILED: Seat = Seat(17);
/// Of the RAID-6.
const FAILED_OF_GROUP: Seat = Seat(9);

/// By default drives, volumes and pieces are halved, and on disks an eighth: a rebuild is as many steps less, and a step
/// takes as long. With less than half of a drive the journal takes more than two parts in a hundred of it.
const DEFAULT: Size = Size {
    throttled: Scale(2),
    disks: Scale(8),
};

/// Length of an interval of the curves.
const INTERVAL: Duration = Duration::from_secs(60);
/// A curve begins so long before the drive fails.
const BEFORE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ddp,
    Raid6,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drives {
    /// At the implied rate.
    Throttled,
    /// The paper's drive.
    Disks,
}

/// A simulation; `reads`: under a load of 4 MiB, all reads or all writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    side: Side,
    drives: Drives,
    reads: Option<bool>,
}

struct Found {
    minutes: f64,
    /// Greatest ÷ mean of the bytes that survivors moved.
    imbalance: f64,
    /// Share of the rebuild's time that the drives of survivors were busy: mean, and the busiest.
    busy: (f64, f64),
    /// Minutes since the failure, and MB/s.
    curve: Vec<(f64, f64)>,
    trace: u64,
}

impl Study for Rebuild {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let size = match context.full() {
            true => Size {
                throttled: Scale::WHOLE,
                disks: Scale::WHOLE,
            },
            false => DEFAULT,
        };
        report(context, size)
    }
}

/// Scales of the runs.
#[derive(Clone, Copy, Debug)]
struct Size {
    throttled: Scale,
    disks: Scale,
}

impl Size {
    const fn of(self, task: Task) -> Scale {
        match task.drives {
            Drives::Throttled => self.throttled,
            Drives::Disks => self.disks,
        }
    }
}

fn report(context: &Context<'_>, size: Size) -> Result<Report, Stopped> {
    let mut tasks = Vec::new();
    let loads: &[Option<bool>] = match context.full() {
        true => &[None, Some(true), Some(false)],
        false => &[None],
    };
    for &reads in loads {
        for drives in [Drives::Throttled, Drives::Disks] {
            // At the implied rate a drive has nothing left for clients.
            if reads.is_some() && drives == Drives::Throttled {
                continue;
            }
            for side in [Side::Raid6, Side::Ddp] {
                tasks.push(Task {
                    side,
                    drives,
                    reads,
                });
            }
        }
    }
    let found = context.map(&tasks, |&task| measure(context, task, size.of(task)))?;
    let mut trace = Trace::default();
    found.iter().for_each(|found| trace.add(found.trace));
    let all = All {
        tasks: &tasks,
        found: &found,
        scale: size.throttled,
    };
    let charts = context.full().then(|| all.curves());
    Ok(Report {
        about: &ABOUT,
        seed: context.seed(),
        full: context.full(),
        model: format!(
            "Our whole pool with journal and checksums on both sides. DDP: `{DDP}`, pieces of 512 MiB, one \
             volume of 8 × 1230 GB. RAID-6: eight groups of 4+2 and two hot spares, all of the drives' \
             space in use. At the implied rate: drives without seeks at {:.2} MB/s, which is what 312 \
             minutes for 300 GB are; so 312 is an input and 36 the only result. Disks: 300 GB at 15,000 \
             rpm (preset 15k), nothing throttled. Drives, volumes and pieces have one part in {} of their \
             size at the implied rate and one in {} on disks, and minutes are multiplied by as much. No \
             clients; with `--full` also 16 clients that read or write 4 MiB in order, on disks, at priority \
             medium. Not modelled: controllers, their caches, \
             and the links to them. There is no chance in it, so the seed changes nothing but the clients.",
            to_f64(IMPLIED_RATE) / 1e6,
            size.throttled.0,
            size.disks.0,
        ),
        trace: trace.0,
        rows: all.rows(),
        charts: charts.into_iter().chain([all.times()]).collect(),
    })
}

fn drive_of(task: Task) -> Preset {
    match task.drives {
        Drives::Throttled => throttled(DRIVE_BYTES),
        Drives::Disks => disk(),
    }
}

fn measure(context: &Context<'_>, task: Task, scale: Scale) -> Result<Found, Stopped> {
    let (mut volume, failed) = match task.side {
        Side::Ddp => (scale.ddp(drive_of(task)), FAILED),
        Side::Raid6 => (scale.raid6(drive_of(task)), FAILED_OF_GROUP),
    };
    let busy_of = |volume: &StudyVolume| -> Vec<u64> {
        let survivors = (0..volume.seats()).map(Seat).filter(|&seat| seat != failed);
        let busy = survivors.map(|seat| volume.work(seat).map_or(0, |work| work.busy_ns));
        busy.collect()
    };
    let before = busy_of(&volume);
    let curve = match task.reads {
        None => {
            volume.fail(failed).expect("the drive is there");
            finish(context, &mut volume, |volume| volume.rebuild().ended)?;
            Vec::new()
        }
        Some(reads) => under_load(context, &mut volume, failed, reads)?,
    };
    let rebuild = volume.rebuild();
    assert_eq!(
        rebuild.cells_lost, 0,
        "one drive is within the code's reach"
    );
    let ended = rebuild.ended.expect("it has just ended");
    let took = to_f64(ended.0 - rebuild.began.0);
    let busy: Vec<f64> = { busy_of(&volume).into_iter().zip(before) }
        .map(|(after, before)| to_f64(after - before) / took)
        .collect();
    let survivors = (0..volume.seats()).map(Seat).filter(|&seat| seat != failed);
    let moved: Vec<f64> = survivors
        .map(|seat| rebuild.seats.get(&seat).copied().unwrap_or_default())
        .map(|moved| to_f64(moved.read_bytes + moved.write_bytes))
        .collect();
    Ok(Found {
        minutes: seconds(rebuild.began, ended) / 60.0 * to_f64(scale.0),
        imbalance: range(&moved).1 / mean(&moved),
        busy: (mean(&busy), range(&busy).1),
        curve,
        trace: volume.trace(),
    })
}

/// Loses a drive under the load of section 4, and returns what the clients got.
fn under_load(
    context: &Context<'_>,
    volume: &mut StudyVolume,
    failed: Seat,
    reads: bool,
) -> Result<Vec<(f64, f64)>, Stopped> {
    let options = LoadOptions::ior(4 * MIB, reads, false);
    let load = Load::new(&options, volume.capacity_bytes(), context.seed());
    let load = load.expect("4 MiB fit into the volume");
    let mut run = Run::new(load, Some(INTERVAL)).starting_at(volume.now());
    let began = run.now();
    let fails_at = began + BEFORE;
    run_until(context, &mut run, volume, fails_at)?;
    volume.fail(failed).expect("the drive is there");
    while volume.rebuild().ended.is_none() {
        let next = run.now() + Duration::from_secs(1);
        run_until(context, &mut run, volume, next)?;
    }
    let end = run.now() + BEFORE / 2;
    run_until(context, &mut run, volume, end)?;
    assert_eq!(run.numbers().errors(), 0);
    let intervals = run.numbers().series().iter();
    let length = INTERVAL.as_secs_f64();
    let at = |index: usize| to_f64(index as u64) * length - BEFORE.as_secs_f64();
    let mut curve: Vec<(f64, f64)> = { (0..).zip(intervals) }
        .map(|(index, interval)| (at(index) / 60.0, to_f64(interval.bytes) / length / 1e6))
        .collect();
    // The last one is not whole.
    curve.pop();
    Ok(curve)
}

fn run_until(
    context: &Context<'_>,
    run: &mut Run,
    volume: &mut StudyVolume,
    end: Instant,
) -> Result<(), Stopped> {
    while run.now() < end {
        context.check()?;
        let next = (run.now() + Duration::from_millis(100)).min(end);
        let began = run.now();
        run.until(volume, next);
        context.passed(run.now().0 - began.0);
    }
    Ok(())
}

/// Greatest ÷ mean of the units that survivors move, by the pool's table of members alone.
fn table_imbalance(scale: Scale) -> f64 {
    let volume = scale.ddp(throttled(DRIVE_BYTES));
    let geometry = volume.world().pool().geometry();
    let groups = volume
        .capacity_bytes()
        .div_ceil(geometry.group_data_bytes());
    let scheme = DDP.parse().expect("a scheme");
    let table = layout::Geometry::new(&scheme, None, geometry.rows()).expect("as the pool's");
    let work = balance::work(&table, geometry.rows(), groups, &[FAILED]);
    let total = { work.reads.iter().zip(&work.writes) }.map(|(reads, writes)| reads + writes);
    let survivors = { (0..).map(Seat).zip(total) }.filter(|(seat, _)| *seat != FAILED);
    let moved: Vec<f64> = survivors.map(|(_, units)| to_f64(units)).collect();
    range(&moved).1 / mean(&moved)
}

struct All<'a> {
    tasks: &'a [Task],
    found: &'a [Found],
    scale: Scale,
}

impl All<'_> {
    fn of(&self, side: Side, drives: Drives, reads: Option<bool>) -> Option<&Found> {
        let wanted = Task {
            side,
            drives,
            reads,
        };
        let at = self.tasks.iter().position(|&task| task == wanted)?;
        Some(&self.found[at])
    }

    fn rows(&self) -> Vec<Row> {
        let of = |side, drives| self.of(side, drives, None).expect("always run");
        let [raid6, ddp] = [Side::Raid6, Side::Ddp].map(|side| of(side, Drives::Throttled));
        let table = table_imbalance(self.scale);
        let least = SHARE * BOUND / table;
        let ratio = raid6.minutes / ddp.minutes;
        let idle = format!(
            "the pool's drives were busy for {:.0} % of the time: a step of a fill waits for the slowest of \
             its nine drives, and the memory for fills bounds how many others share a drive meanwhile",
            100.0 * ddp.busy.0
        );
        let minutes = |id: &str, name: &str, minutes: f64, why: &str| {
            Row::alone(format!("rebuild.{id}"), name, minutes, Unit::Minutes, why)
        };
        let mut rows = vec![
            minutes("raid6", "RAID-6, at the implied rate", raid6.minutes, "")
                .against(
                    RAID6_MINUTES,
                    Rule::WithinShare(0.02),
                    "the spare takes more than its cells: pages of checksums and labels",
                )
                .remark("an input: the rate of all drives is chosen for it"),
            minutes("ddp", "DDP, at the implied rate", ddp.minutes, "")
                .against(
                    DDP_MINUTES,
                    MINUTES,
                    format!("outside 32 to 39 minutes, and the bound is 32.5: {idle}"),
                )
                .remark("reads 8 of 9 columns that are left, and verifies them"),
            Row::alone(
                "rebuild.ratio",
                "RAID-6 ÷ DDP, at the implied rate",
                ratio,
                Unit::Ratio,
                "",
            )
            .against(
                RAID6_MINUTES / DDP_MINUTES,
                Rule::Between(least, f64::INFINITY),
                format!("below {SHARE} × {BOUND:.2} ÷ {table:.3} = {least:.2}: {idle}"),
            )
            .remark(format!(
                "holds from {least:.2} on, which is {SHARE} of the bound of {BOUND:.2} ÷ the table's {table:.3}"
            )),
            Row::alone(
                "rebuild.bound",
                "59 · 48 ÷ (9 · 32), the bound for equal bytes of users",
                BOUND,
                Unit::Ratio,
                "calculated, not measured",
            )
            .beside(RAID6_MINUTES / DDP_MINUTES),
            Row::alone(
                "rebuild.table",
                "rebuild by the table of members, greatest ÷ mean",
                table,
                Unit::Ratio,
                "a rebuild that reads all nine columns that are left takes this many times as long as \
                 an even one",
            ),
            Row::alone(
                "rebuild.moved",
                "bytes that survivors moved, greatest ÷ mean",
                ddp.imbalance,
                Unit::Ratio,
                "eight of nine columns are read, and which ones levels the drives",
            ),
            Row::alone(
                "rebuild.busy",
                "DDP at the implied rate: share of the time that drives were busy, mean",
                100.0 * ddp.busy.0,
                Unit::Percent,
                "the rest is lost to waiting: a step waits for the slowest of nine drives, and the last of \
                 some 400 pieces leave most drives without work",
            ),
            Row::alone(
                "rebuild.busiest",
                "DDP at the implied rate: share of the time that the busiest drive was busy",
                100.0 * ddp.busy.1,
                Unit::Percent,
                "shows how much longer the rebuild took than that drive needed",
            ),
        ];
        let [raid6, ddp] = [Side::Raid6, Side::Ddp].map(|side| of(side, Drives::Disks));
        let unthrottled = "the paper's rebuild left most of the drives' bandwidth unused";
        rows.extend([
            minutes("raid6.disks", "RAID-6, 15K disks, unthrottled", raid6.minutes, unthrottled)
                .beside(RAID6_MINUTES),
            minutes("ddp.disks", "DDP, 15K disks, unthrottled", ddp.minutes, unthrottled)
                .beside(DDP_MINUTES),
            Row::alone(
                "rebuild.ratio.disks",
                "RAID-6 ÷ DDP, 15K disks, unthrottled",
                raid6.minutes / ddp.minutes,
                Unit::Ratio,
                "a spare is written in order, while drives of the pool seek between reads and writes",
            )
            .beside(RAID6_MINUTES / DDP_MINUTES),
        ]);
        rows.extend(self.loaded());
        rows
    }

    /// What the clients got while the drive was rebuilt.
    fn loaded(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (side, id, name, paper) in [
            (Side::Raid6, "raid6", "RAID-6", RAID6_MINUTES),
            (Side::Ddp, "ddp", "DDP", DDP_MINUTES),
        ] {
            for (reads, word) in [(true, "reads"), (false, "writes")] {
                let Some(found) = self.of(side, Drives::Disks, Some(reads)) else {
                    continue;
                };
                let of = |during: bool| -> f64 {
                    let there = |&&(at, _): &&(f64, f64)| match during {
                        true => at >= 0.0 && at < found.minutes,
                        false => at < 0.0,
                    };
                    let rates = found.curve.iter().filter(there).map(|&(_, rate)| rate);
                    mean(&rates.collect::<Vec<_>>())
                };
                let part = |part: &str| format!("rebuild.{id}.{word}.{part}");
                rows.extend([
                    Row::alone(
                        part("minutes"),
                        format!("{name}, 15K disks, under {word} of 4 MiB"),
                        found.minutes,
                        Unit::Minutes,
                        "the paper's priority and load are not known",
                    )
                    .beside(paper),
                    Row::alone(
                        part("before"),
                        format!("{name}, {word} before the failure"),
                        of(false),
                        Unit::MegabytesPerSecond,
                        "the paper's curve is a picture that the text lacks",
                    ),
                    Row::alone(
                        part("kept"),
                        format!("{name}, {word} during the rebuild, of those before"),
                        100.0 * of(true) / of(false),
                        Unit::Percent,
                        "the paper calls it a slight drop, of both",
                    ),
                ]);
            }
        }
        rows
    }

    fn times(&self) -> Chart {
        let mut chart = Chart::new(
            "minutes",
            "Minutes until a drive is rebuilt",
            Mark::Bars,
            Axis::categories("", ["at 16.03 MB/s", "15K disks"]),
            Axis::linear("minutes"),
        );
        let sides = [
            (Side::Raid6, "RAID-6", RAID6_MINUTES),
            (Side::Ddp, "DDP", DDP_MINUTES),
        ];
        chart.series = sides
            .map(|(side, name, paper)| {
                let of = |drives| {
                    self.of(side, drives, None)
                        .map_or(0.0, |found| found.minutes)
                };
                Series {
                    name: name.to_owned(),
                    ours: vec![
                        Point::new(0.0, of(Drives::Throttled)),
                        Point::new(1.0, of(Drives::Disks)),
                    ],
                    paper: vec![Point::new(0.0, paper)],
                }
            })
            .to_vec();
        chart
    }

    fn curves(&self) -> Chart {
        let mut chart = Chart::new(
            "foreground",
            "4 MiB in order, while a drive fails and is rebuilt",
            Mark::Lines,
            Axis::linear("minutes since the failure"),
            Axis::linear("MB/s"),
        );
        for (side, name) in [(Side::Raid6, "RAID-6"), (Side::Ddp, "DDP")] {
            for (reads, word) in [(true, "reads"), (false, "writes")] {
                let Some(found) = self.of(side, Drives::Disks, Some(reads)) else {
                    continue;
                };
                let points = found.curve.iter().map(|&(x, y)| Point::new(x, y));
                chart.series.push(Series {
                    name: format!("{name}, {word}"),
                    ours: points.collect(),
                    paper: Vec::new(),
                });
            }
        }
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Progress;

    #[test]
    fn the_bound_is_that_of_equal_bytes() {
        assert!((BOUND - 9.83).abs() < 0.005, "{BOUND}");
        assert!((to_f64(IMPLIED_RATE) / 1e6 - 16.03).abs() < 0.005);
    }

    #[test]
    fn a_pool_is_rebuilt_several_times_as_fast_as_a_spare_is_written() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let size = Size {
            throttled: Scale(64),
            disks: Scale(64),
        };
        let report = report(&context, size).expect("nothing stops it");
        let ours = |id: &str| {
            report
                .row(&format!("rebuild.{id}"))
                .expect("it is there")
                .ours
        };
        // Journal and labels take a larger part of small drives, and a piece is two steps, of which each waits for the
        // queues of nine drives.
        let (raid6, ddp) = (ours("raid6"), ours("ddp"));
        assert!((295.0..=318.0).contains(&raid6), "{raid6}");
        assert!((32.0..=48.0).contains(&ddp), "{ddp}");
        assert!((60.0..=100.0).contains(&ours("busy")) && ours("ratio") > 6.0);
        assert!(ours("table") < 1.1 && ours("moved") < 1.1);
        assert!(ours("raid6.disks") < raid6 / 5.0 && ours("ddp.disks") < ddp / 5.0);
    }
}
