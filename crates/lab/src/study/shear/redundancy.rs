//! Figures 14 to 16: the cost of writes, and obstacles to measuring it.

use block::{Instant, RequestKind};
use rand::{Rng, RngExt as _};
use sim::load::{Lone, Target};
use sim::model::{ModelOptions, Preset, preset};
use sim::plain::{CacheOptions, PlainArray, PlainOptions, ServersOptions, SmallWrites};
use stats::to_f64;

use super::volume::{array, blocks, burst, options};
use super::{KIB, REQUESTS};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::SHEAR;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

const BLOCK: u64 = 4 * KIB;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
const CHUNK_BYTES: u64 = 16 * KIB;
/// Bursts of each kind.
const TRIALS: u64 = 10;

/// Seconds of `requests` random requests of `bytes` within the first `region` bytes, all in flight
/// at once.
fn seconds(
    target: &mut impl Target,
    now: &mut Instant,
    kind: RequestKind,
    (requests, bytes, region): (u32, u64, u64),
    random: &mut impl Rng,
) -> f64 {
    let offsets: Vec<u64> = (0..requests)
        .map(|_| random.random_range(0..region / bytes) * bytes)
        .collect();
    let times = burst(target, *now, &blocks(kind, &offsets, bytes));
    let makespan = times.into_iter().max().unwrap_or(0);
    *now = Instant(now.0 + makespan);
    to_f64(makespan) / 1e9
}

/// Mean time of bursts of writes over that of as many reads.
fn ratio(
    context: &Context<'_>,
    target: &mut impl Target,
    size: (u32, u64, u64),
    name: &str,
) -> Result<f64, Stopped> {
    let mut random = context.random(name);
    let mut now = Instant::ZERO;
    let (mut reads, mut writes) = (0.0, 0.0);
    for _ in 0..TRIALS {
        context.check()?;
        let began = now;
        reads += seconds(target, &mut now, RequestKind::Read, size, &mut random);
        writes += seconds(target, &mut now, RequestKind::Write, size, &mut random);
        context.passed(now.0 - began.0);
    }
    Ok(writes / reads)
}

// --- figure 14 -------------------------------------------------------------------------------

/// The study of figure 14.
pub(crate) struct Fig14;

static ABOUT_14: About = About {
    id: "shear-fig14",
    paper: &SHEAR,
    title: "Figure 14: reads against writes",
    question: "How much longer do random small writes take than as many reads? Once for no redundancy, twice for a \
        mirror, four times for RAID-5 and six times for P+Q that read old data and parity; as many times as there are \
        drives where the rest of the stripe is read, which the paper found in Linux.",
};

struct Level {
    id: &'static str,
    title: &'static str,
    scheme: &'static str,
    small: SmallWrites,
    expected: f64,
    /// True if the paper's text gives it; otherwise it is derived from the operations.
    in_text: bool,
}

const fn level(
    id: &'static str,
    title: &'static str,
    scheme: &'static str,
    small: SmallWrites,
    (expected, in_text): (f64, bool),
) -> Level {
    Level {
        id,
        title,
        scheme,
        small,
        expected,
        in_text,
    }
}

const LEVELS: [Level; 11] = [
    level(
        "raid0x2",
        "RAID-0 on 2",
        "raid0:2c",
        SmallWrites::ReadModify,
        (1.0, true),
    ),
    level(
        "raid0x4",
        "RAID-0 on 4",
        "raid0:4c",
        SmallWrites::ReadModify,
        (1.0, true),
    ),
    level(
        "raid1x2",
        "RAID-1 on 2",
        "raid1:2c",
        SmallWrites::ReadModify,
        (2.0, true),
    ),
    level(
        "raid1x4",
        "RAID-1 on 4",
        "raid1:4c",
        SmallWrites::ReadModify,
        (2.0, true),
    ),
    level(
        "raid5x2",
        "RAID-5 on 2, cheaper write",
        "raid5:la:2c",
        SmallWrites::Cheaper,
        (2.0, true),
    ),
    level(
        "raid5x3",
        "RAID-5 on 3, whole stripes read",
        "raid5:la:3c",
        SmallWrites::Reconstruct,
        (3.0, false),
    ),
    level(
        "raid5x4",
        "RAID-5 on 4, whole stripes read",
        "raid5:la:4c",
        SmallWrites::Reconstruct,
        (4.0, false),
    ),
    level(
        "raid5x5",
        "RAID-5 on 5, whole stripes read",
        "raid5:la:5c",
        SmallWrites::Reconstruct,
        (5.0, true),
    ),
    level(
        "raid5x4.old",
        "RAID-5 on 4, old data and parity read",
        "raid5:la:4c",
        SmallWrites::ReadModify,
        (4.0, true),
    ),
    level(
        "raid5x5.old",
        "RAID-5 on 5, old data and parity read",
        "raid5:la:5c",
        SmallWrites::ReadModify,
        (4.0, true),
    ),
    level(
        "pqx6",
        "P+Q on 6, old data and parities read",
        "raid6:shear:6c",
        SmallWrites::ReadModify,
        (6.0, false),
    ),
];

impl Study for Fig14 {
    fn about(&self) -> &'static About {
        &ABOUT_14
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&LEVELS, |level| {
            let options = PlainOptions {
                small_writes: level.small,
                ..options(level.scheme, CHUNK_BYTES)
            };
            let mut array = array(&options);
            let region = array.capacity_bytes();
            ratio(context, &mut array, (REQUESTS, BLOCK, region), level.id)
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|ratio| trace.add(ratio.to_bits()));
        let mut rows = Vec::new();
        for (level, &ratio) in LEVELS.iter().zip(&found) {
            let row = Row::alone(
                format!("fig14.{}", level.id),
                format!("{}: time of writes ÷ reads", level.title),
                ratio,
                Unit::Ratio,
                "",
            );
            let row = row.against(
                level.expected,
                Rule::WithinShare(0.15),
                "more than the busiest drive and the shorter seeks of writes explain",
            );
            rows.push(match level.in_text {
                true => row,
                false => {
                    row.remark("drive operations of a write; the paper's text has no number for it")
                }
            });
        }
        let of = |id: &str| {
            let at = LEVELS.iter().position(|level| level.id == id);
            found[at.expect("one of the levels")]
        };
        let both = Row::alone(
            "fig14.raid5x2.as-mirror",
            "RAID-5 on 2 ÷ mirror of 2: \"not distinguishable\"",
            of("raid5x2") / of("raid1x2"),
            Unit::Ratio,
            "",
        );
        rows.push(both.against(1.0, Rule::WithinShare(0.15), "they can be told apart"));
        let mut chart = Chart::new(
            "ratio",
            "Time of random writes ÷ reads",
            Mark::Bars,
            Axis::categories("array", LEVELS.iter().map(|level| level.id)),
            Axis::linear("writes ÷ reads"),
        );
        chart.series.push(Series {
            name: "time of writes ÷ reads".to_owned(),
            ours: points(found.iter().copied()),
            paper: (0..)
                .zip(&LEVELS)
                .filter(|(_, level)| level.in_text)
                .map(|(at, level)| Point::new(to_f64(at), level.expected))
                .collect(),
        });
        Ok(Report {
            about: &ABOUT_14,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Whole IBM 9LZX in chunks of 16 KiB, no cache, queues in order of arrival; {TRIALS} bursts of {REQUESTS} \
                 reads and as many of {REQUESTS} writes of 4 KiB, anywhere. The paper's arrays were Linux' software \
                 RAID and a controller; here a policy of small writes stands for each."
            ),
            trace: trace.0,
            rows,
            charts: vec![chart],
        })
    }
}

fn points(heights: impl Iterator<Item = f64>) -> Vec<Point> {
    let numbered = (0..).zip(heights);
    numbered.map(|(at, y)| Point::new(to_f64(at), y)).collect()
}

// --- figure 15 -------------------------------------------------------------------------------

/// The study of figure 15.
pub(crate) struct Fig15;

static ABOUT_15: About = About {
    id: "shear-fig15",
    paper: &SHEAR,
    title: "Figure 15: reads against writes by size of the region",
    question: "Does the ratio of one drive's writes to its reads depend on how far the arm has to move? The paper's \
        Quantum shows about 1 in a small region and almost 2 over a few GB, which the authors put down to its long \
        settling; its IBM 9LZX does not.",
};

/// Additional settle time of a write on the second drive. Chosen as long as a mean read, so that a
/// write takes twice as long.
const SETTLE_NS: u64 = 8_000_000;
/// A track of the 9LZX has 136 KiB and a cylinder 1.3 MiB.
const REGIONS: [u64; 9] = [
    128 * KIB,
    512 * KIB,
    MIB,
    4 * MIB,
    16 * MIB,
    64 * MIB,
    256 * MIB,
    GIB,
    8 * GIB,
];
const SECTOR: u64 = 512;

fn settling(ns: u64) -> Preset {
    let mut drive = preset("9lzx").expect("a preset");
    if let ModelOptions::Disk(disk) = &mut drive.options {
        disk.write_settle_ns = ns;
    }
    // The drive's cache answers some requests without a seek.
    drive.with_cache(sim::model::disk::DiskCacheOptions::default())
}

impl Study for Fig15 {
    fn about(&self) -> &'static About {
        &ABOUT_15
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let drives = [
            ("9lzx", "IBM 9LZX", 0),
            ("settling", "long write settle", SETTLE_NS),
        ];
        let cases: Vec<(u64, u64)> = drives
            .iter()
            .flat_map(|&(_, _, settle)| REGIONS.map(|region| (settle, region)))
            .collect();
        let found = context.map(&cases, |&(settle, region)| {
            let preset = settling(settle);
            let mut drive = Lone {
                model: preset.build(),
                capacity_bytes: preset.capacity_bytes(),
            };
            let size = (REQUESTS, SECTOR, region);
            ratio(context, &mut drive, size, &format!("{settle}.{region}"))
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|ratio| trace.add(ratio.to_bits()));
        let mut rows = Vec::new();
        let mut chart = Chart::new(
            "region",
            "Time of random writes ÷ reads of one drive",
            Mark::Lines,
            Axis::log("region, MiB"),
            Axis::linear("writes ÷ reads"),
        );
        for ((id, title, _), ratios) in drives.iter().zip(found.chunks(REGIONS.len())) {
            for (region, &ratio) in REGIONS.iter().zip(ratios) {
                let row = Row::alone(
                    format!("fig15.{id}.{}k", region / KIB),
                    format!("{title}, {} KiB: time of writes ÷ reads", region / KIB),
                    ratio,
                    Unit::Ratio,
                    "the text gives the ends of the curve",
                );
                rows.push(match (*id, *region) {
                    ("9lzx", _) => row.against(1.0, Rule::WithinShare(0.1), CHANCE),
                    (_, region) if region == REGIONS[0] => {
                        row.against(1.0, Rule::WithinShare(0.1), CHANCE)
                    }
                    (_, region) if region == 8 * GIB => {
                        row.against(2.0, Rule::Between(1.7, 2.0), "not almost 2")
                    }
                    _ => row,
                });
            }
            chart.series.push(Series {
                name: (*title).to_owned(),
                ours: REGIONS
                    .iter()
                    .zip(ratios)
                    .map(|(&region, &ratio)| Point::new(to_f64(region) / to_f64(MIB), ratio))
                    .collect(),
                paper: Vec::new(),
            });
        }
        Ok(Report {
            about: &ABOUT_15,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "One drive without memory, {TRIALS} bursts of {REQUESTS} reads and as many of {REQUESTS} writes of one \
                 sector in the first bytes of it, in order of arrival. The second drive is a 9LZX whose writes settle \
                 {} ms longer after each move; the Quantum's own numbers are not in the text.",
                SETTLE_NS / 1_000_000
            ),
            trace: trace.0,
            rows,
            charts: vec![chart],
        })
    }
}

const CHANCE: &str = "further from 1 than bursts scatter";

// --- figure 16 -------------------------------------------------------------------------------

/// The study of figure 16.
pub(crate) struct Fig16;

static ABOUT_16: About = About {
    id: "shear-fig16",
    paper: &SHEAR,
    title: "Figure 16: avoiding the write buffer",
    question: "A controller with a write buffer answers from memory until that is full. At which length of a burst do \
        writes begin to wait for drives, and what does the array do from there on?",
};

const BUFFER_BYTES: u64 = 4 * MIB;
/// Lengths of bursts.
const LENGTHS: [u32; 12] = [
    64, 128, 256, 512, 768, 960, 1088, 1280, 1536, 2048, 4096, 8192,
];
/// A write into the buffer is answered within this time; a write that waits for a drive is not.
const MEMORY_NS: u64 = 1_000_000;

fn buffered() -> PlainArray {
    array(&PlainOptions {
        cache: CacheOptions::WriteBack {
            bytes: BUFFER_BYTES,
            destage_percent: 50,
        },
        servers: ServersOptions {
            link_bytes_per_second: 160_000_000,
            ..ServersOptions::default()
        },
        ..options("raid5:la:4c", CHUNK_BYTES)
    })
}

/// Times of a burst of random small writes to an array whose buffer is empty.
fn flood(context: &Context<'_>, mut array: PlainArray, writes: u32) -> Vec<u64> {
    let mut random = context.random("flood");
    let places = array.capacity_bytes() / BLOCK;
    let offsets: Vec<u64> = (0..writes)
        .map(|_| random.random_range(0..places) * BLOCK)
        .collect();
    burst(
        &mut array,
        Instant::ZERO,
        &blocks(RequestKind::Write, &offsets, BLOCK),
    )
}

/// Writes that were answered before the first gap longer than `MEMORY_NS`.
fn taken(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    let mut before = 0;
    for (count, &time) in (0..).zip(&sorted) {
        if time - before > MEMORY_NS {
            return count;
        }
        before = time;
    }
    sorted.len() as u64
}

impl Study for Fig16 {
    fn about(&self) -> &'static About {
        &ABOUT_16
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let floods = context.map(&LENGTHS, |&writes| {
            context.check()?;
            Ok(flood(context, buffered(), writes))
        })?;
        let rate = |times: &[u64]| {
            let longest = times.iter().copied().max().unwrap_or(1);
            to_f64(times.len() as u64 * BLOCK) / to_f64(longest) * 1e3
        };
        let rates: Vec<f64> = floods.iter().map(|times| rate(times)).collect();
        let longest = floods.last().expect("there are lengths");
        let bare = rate(&flood(
            context,
            array(&options("raid5:la:4c", CHUNK_BYTES)),
            1024,
        ));
        // The rate of the second half of the longest burst.
        let mut ends = longest.clone();
        ends.sort_unstable();
        let half = ends.len() / 2;
        let late = to_f64(half as u64 * BLOCK) / to_f64(ends[ends.len() - 1] - ends[half]) * 1e3;
        let mut trace = Trace::default();
        rates.iter().for_each(|rate| trace.add(rate.to_bits()));
        let full = Row::alone(
            "fig16.full",
            "Writes at which a buffer of 4 MiB is full",
            to_f64(taken(longest)),
            Unit::Requests,
            "",
        );
        let full = full
            .against(
                to_f64(BUFFER_BYTES / BLOCK),
                Rule::WithinShare(0.1),
                "the drives empty the buffer faster than that",
            )
            .remark("the number beside it is the buffer's size; the paper does not name its controller's");
        let drop = Row::alone(
            "fig16.drop",
            "Rate of 256 writes ÷ of 8192",
            rates[2] / rates[rates.len() - 1],
            Unit::Ratio,
            "the text says that the bandwidth drops",
        );
        let steady = Row::alone(
            "fig16.steady",
            "Rate of later writes ÷ of writes without a buffer",
            late / bare,
            Unit::Ratio,
            "the buffer sorts what waits: the array writes faster than without it, and not as memory",
        );
        let mut chart = Chart::new(
            "flood",
            "Small writes on RAID-5 with a write buffer of 4 MiB",
            Mark::Lines,
            Axis::log("writes of a burst"),
            Axis::log("MB/s"),
        );
        chart.series.push(Series {
            name: "random writes of 4 KiB".to_owned(),
            ours: LENGTHS
                .iter()
                .zip(&rates)
                .map(|(&length, &rate)| Point::new(f64::from(length), rate))
                .collect(),
            paper: Vec::new(),
        });
        Ok(Report {
            about: &ABOUT_16,
            seed: context.seed(),
            full: context.full(),
            model: "RAID-5 (LA) on four IBM 9LZX, 16 KiB chunks, 4 MiB of memory that answers writes and begins to \
                    write out when half of it waits, a link of 160 MB/s. Each burst meets an empty buffer. The paper's \
                    controller, an Adaptec 2200S, is not modelled in detail."
                .to_owned(),
            trace: trace.0,
            rows: vec![full, drop, steady],
            charts: vec![chart],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_memory_takes_ends_at_the_first_long_gap() {
        assert_eq!(taken(&[10, 30, 20]), 3);
        assert_eq!(taken(&[10, 20, 5_000_000, 30]), 3);
    }
}
