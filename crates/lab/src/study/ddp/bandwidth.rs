//! Section 3: bandwidth in order and at random, by size of the requests.

use sim::load::{Load, LoadOptions, Run};
use sim::plain::{CacheOptions, PlainArray, PlainOptions};
use stats::to_f64;

use super::host::{CONTROLLER_NS, Host};
use super::{DDP, KIB, MIB, RAID6, VOLUMES, disk};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DDP_PAPER;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::runs::requests;
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Bandwidth;

static ABOUT: About = About {
    id: "ddp-bandwidth",
    paper: &DDP_PAPER,
    title: "Section 3: bandwidth of DDP and RAID-6, in order and at random",
    question: "Sixteen threads read or write, each through its own part of the space in order, or \
        anywhere, with requests of 1 KiB to 4 MiB. The paper's plots are pictures that its text lacks, \
        but it says four times which side is better. Do the placements alone, on the same disks under \
        the same cache, give the same four?",
};

/// Sizes in order; at random from 64 KiB on (section 3.2).
const SIZES: [u64; 7] = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB];
const RANDOM_FROM: u64 = 64 * KIB;
const CHUNK_BYTES: u64 = 128 * KIB;
/// Chosen: the controllers' memory that holds what is written, and waits for half of it.
const CACHE_BYTES: u64 = 256 * MIB;
const DESTAGE_PERCENT: u64 = 50;
/// Chosen: runs that the cache has in flight to the drives, of all volumes together.
const DESTAGES: usize = 128;
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Ddp,
    Raid6,
}

const SIDES: [(Side, &str, &str); 2] =
    [(Side::Ddp, "ddp", "DDP"), (Side::Raid6, "raid6", "RAID-6")];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Task {
    side: Side,
    random: bool,
    reads: bool,
    size: u64,
}

/// Kinds of access: id, name, random, reads.
const KINDS: [(&str, &str, bool, bool); 4] = [
    ("seq.read", "reads in order", false, true),
    ("seq.write", "writes in order", false, false),
    ("random.read", "random reads", true, true),
    ("random.write", "random writes", true, false),
];

impl Study for Bandwidth {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let bytes = match context.full() {
            true => 16 << 30,
            false => 2 << 30,
        };
        report(context, bytes, &SIZES)
    }
}

fn report(context: &Context<'_>, bytes: u64, sizes: &[u64]) -> Result<Report, Stopped> {
    let mut tasks = Vec::new();
    for (_, _, random, reads) in KINDS {
        for &size in sizes.iter().filter(|&&size| !random || size >= RANDOM_FROM) {
            tasks.extend(SIDES.map(|(side, ..)| Task {
                side,
                random,
                reads,
                size,
            }));
        }
    }
    let found = context.map(&tasks, |&task| measure(context, task, bytes))?;
    let mut trace = Trace::default();
    found.iter().for_each(|(_, of_task)| trace.add(*of_task));
    let all = All {
        tasks: &tasks,
        rates: found.iter().map(|&(rate, _)| rate).collect(),
    };
    Ok(Report {
        about: &ABOUT,
        seed: context.seed(),
        full: context.full(),
        model: format!(
            "Plain arrays: placement, code and drives, without journal and checksums, as controllers of the \
             paper's time. DDP: `{DDP}`; RAID-6: eight arrays of 4+2 ({RAID6} without its spares, which do \
             nothing here); chunks of 128 KiB; disks of 300 GB at 15,000 rpm (preset 15k) with their own \
             read-ahead. A cache of {} MiB on each side takes writes, and writes runs of up to a stripe to \
             the drives once half of it waits, {DESTAGES} runs at a time; it does not read ahead. The host \
             stripes over eight volumes in units of 1 MiB; each volume has a link of 800 MB/s and one of \
             two controllers, which take {} µs for each unit or part of one. Load: 16 clients with one \
             request each (IOR's threads); writes are measured after twice the cache has been written, over \
             {} MiB or 262,144 requests. Chosen, as the paper does not say: chunk, cache, runs, and the \
             controllers' time.",
            CACHE_BYTES / MIB,
            CONTROLLER_NS / 1000,
            bytes / MIB,
        ),
        trace: trace.0,
        rows: all.rows(),
        charts: vec![all.chart(false), all.chart(true)],
    })
}

fn array(scheme: &str, share: u64) -> PlainArray {
    let options = PlainOptions {
        chunk_bytes: CHUNK_BYTES,
        // Pieces of the pool; on the groups the size of a cell changes nothing.
        cell_bytes: Some(512 * MIB),
        cache: CacheOptions::WriteBack {
            bytes: CACHE_BYTES / share,
            destage_percent: DESTAGE_PERCENT,
        },
        destages: DESTAGES / usize::try_from(share).expect("at most eight"),
        ..PlainOptions::new(scheme, disk())
    };
    PlainArray::new(&options).expect("the paper's configurations are arrays")
}

fn measure(context: &Context<'_>, task: Task, bytes: u64) -> Result<(f64, u64), Stopped> {
    let mut host = match task.side {
        Side::Ddp => Host::new(vec![array(DDP, 1)], VOLUMES),
        Side::Raid6 => {
            let arrays = (0..VOLUMES).map(|_| array("raid6:4d:6c", VOLUMES));
            Host::new(arrays.collect(), 1)
        }
    };
    let options = LoadOptions::ior(task.size, task.reads, task.random);
    let capacity = sim::load::Target::capacity_bytes(&host);
    let load = Load::new(&options, capacity, context.seed()).expect("requests fit");
    let mut run = Run::new(load, None);
    // Reads have no cache to fill.
    let warm_up = match task.reads {
        true => CACHE_BYTES / 8,
        false => 2 * CACHE_BYTES,
    };
    // Small requests are as even over less.
    let bytes = bytes.min(task.size * 262_144);
    requests(context, &mut run, &mut host, warm_up / task.size)?;
    run.count_anew();
    requests(context, &mut run, &mut host, bytes / task.size)?;
    let mut trace = Trace::default();
    host.traces().for_each(|of_array| trace.add(of_array));
    Ok((run.numbers().bytes_per_second() / 1e6, trace.0))
}

fn name_of(size: u64) -> String {
    match size {
        MIB.. => format!("{} MiB", size / MIB),
        _ => format!("{} KiB", size / KIB),
    }
}

struct All<'a> {
    tasks: &'a [Task],
    /// MB/s.
    rates: Vec<f64>,
}

impl All<'_> {
    /// Size and MB/s of each size.
    fn curve(&self, side: Side, random: bool, reads: bool) -> Vec<(u64, f64)> {
        let all = self.tasks.iter().zip(&self.rates);
        all.filter(|(task, _)| (task.side, task.random, task.reads) == (side, random, reads))
            .map(|(task, &rate)| (task.size, rate))
            .collect()
    }

    fn rows(&self) -> Vec<Row> {
        let mut rows = self.orderings();
        for (id, name, random, reads) in KINDS {
            for (side, side_id, side_name) in SIDES {
                rows.extend(
                    self.curve(side, random, reads)
                        .into_iter()
                        .map(|(size, rate)| {
                            Row::alone(
                                format!("bandwidth.{id}.{side_id}.{}k", size / KIB),
                                format!("{side_name}, {name}, {}", name_of(size)),
                                rate,
                                Unit::MegabytesPerSecond,
                                "the paper's plots are pictures that its text lacks",
                            )
                        }),
                );
            }
        }
        rows
    }

    /// The four sentences of the paper. A ratio is the geometric mean over all sizes.
    fn orderings(&self) -> Vec<Row> {
        let curve = |side, random, reads| self.curve(side, random, reads);
        let both = |random, reads| {
            let mut all = curve(Side::Ddp, random, reads);
            all.extend(curve(Side::Raid6, random, reads));
            all
        };
        let row = |id: &str,
                   name: &str,
                   better: Vec<(u64, f64)>,
                   worse: Vec<(u64, f64)>,
                   why: &str| {
            let ratios: Vec<f64> = { better.iter().zip(&worse) }
                .map(|((_, better), (_, worse))| better / worse)
                .collect();
            let count = to_f64(ratios.len() as u64);
            let mean = (ratios.iter().map(|ratio| ratio.ln()).sum::<f64>() / count).exp();
            let wins = ratios.iter().filter(|&&ratio| ratio >= 1.0).count();
            let least = ratios.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ratios.iter().copied().fold(0.0, f64::max);
            Row::alone(format!("bandwidth.{id}"), name, mean, Unit::Ratio, "")
                .band((least, most))
                .against(1.0, Rule::AtLeast, why)
                .remark(format!(
                    "the paper says which is better and not by how much: 1 stands for that; ours is the \
                     geometric mean over sizes, and at least 1 at {wins} of {}",
                    ratios.len()
                ))
        };
        let exception = self.exception();
        vec![
            row(
                "order1",
                "reads in order: RAID-6 ÷ DDP",
                curve(Side::Raid6, false, true),
                curve(Side::Ddp, false, true),
                "the disks read ahead less where a stream's next chunk is on another drive of the pool",
            ),
            row(
                "order2",
                "writes in order: DDP ÷ RAID-6",
                curve(Side::Ddp, false, false),
                curve(Side::Raid6, false, false),
                "both sides write whole stripes from the cache; sixteen threads on eight volumes write \
                 at 128 places, of which a drive of the pool serves 21 and a drive of a group 16, so \
                 that it seeks more often from 256 KiB on; what slowed the paper's RAID-6 is not in its \
                 text",
            ),
            row(
                "order3",
                "in order: writes ÷ reads, of both",
                both(false, false),
                both(false, true),
                "the cache does not read ahead, and writes are answered from it: this should not happen",
            ),
            row(
                "order4",
                "random: writes ÷ reads, of both",
                both(true, false),
                both(true, true),
                "small writes read old data and parity once the cache is full",
            ),
            exception,
        ]
    }

    /// The paper's exception to the fourth: random reads of 4 MiB, in POSIX mode.
    fn exception(&self) -> Row {
        let largest = |reads| {
            let curve = self.curve(Side::Raid6, true, reads);
            curve.last().map_or(f64::NAN, |&(_, rate)| rate)
        };
        Row::alone(
            "bandwidth.order4.exception",
            "random, RAID-6, the largest requests: reads ÷ writes",
            largest(true) / largest(false),
            Unit::Ratio,
            "the paper finds reads better here in POSIX mode, writes in MPI-IO mode; there is one mode here",
        )
        .beside(1.0)
    }

    fn chart(&self, random: bool) -> Chart {
        let (id, title) = match random {
            true => ("random", "At random"),
            false => ("order", "In order"),
        };
        let mut chart = Chart::new(
            id,
            title,
            Mark::Lines,
            Axis::log("KiB of a request"),
            Axis::linear("MB/s"),
        );
        for (side, _, side_name) in SIDES {
            for (_, name, _, reads) in KINDS.into_iter().filter(|kind| kind.2 == random) {
                let points = self.curve(side, random, reads).into_iter();
                chart.series.push(Series {
                    name: format!("{side_name}, {name}"),
                    ours: points
                        .map(|(size, rate)| Point::new(to_f64(size / KIB), rate))
                        .collect(),
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
    fn the_four_orderings_are_the_papers() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let report = report(&context, 256 * MIB, &[64 * KIB, MIB]).expect("nothing stops it");
        for row in &report.rows {
            assert!(row.ours > 0.0 && row.ours.is_finite(), "{}", row.id);
        }
        for id in ["order1", "order2", "order3", "order4"] {
            let row = report.row(&format!("bandwidth.{id}")).expect("it is there");
            // Each has a cause, should it differ.
            assert!(row.note().is_some_and(|note| !note.is_empty()));
        }
        // Requests of a mebibyte move more than those of 64 KiB.
        let rate = |id: &str| {
            report
                .row(&format!("bandwidth.{id}"))
                .expect("it is there")
                .ours
        };
        assert!(rate("seq.read.ddp.1024k") > rate("random.read.ddp.64k"));
    }
}
