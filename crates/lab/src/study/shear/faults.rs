//! Figures 17 to 19: faulty and misconfigured arrays.
//!
//! Two logical drives on one spindle appear as one drive in chunk pairs. A slow or fast drive changes the times of its
//! chunks. A missing drive's chunks are read from all other drives, so its boundaries disappear.

use block::{Instant, Seat};
use shear::Belief;
use sim::model::Model;
use sim::plain::{PlainArray, PlainOptions};
use stats::{mean, to_f64};

use super::striping::pair_map;
use super::volume::{Run, Seen, Step, array, options};
use super::{KIB, kib, published};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::SHEAR;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// N and R of the maps and curves here: enough to show the effect of one drive.
const REQUESTS: u32 = 100;
const TRIALS: u32 = 10;

/// Number of seeds for our procedure.
const fn seeds(context: &Context<'_>) -> u64 {
    if context.full() { 100 } else { 3 }
}

/// Percentage of seeds for which our procedure, by reads only, finds the right answer; its result for the first seed.
fn named(
    context: &Context<'_>,
    fresh: impl Fn() -> PlainArray,
    right: impl Fn(&Belief) -> bool,
    trace: &mut Trace,
) -> Result<(f64, Belief), Stopped> {
    let mut first = None;
    let mut count = 0;
    for seed in 0..seeds(context) {
        let run = Run {
            writes: false,
            ..Run::ours(context.seed() + seed)
        };
        let seen = run.on(context, &mut fresh())?;
        trace.add(seen.trace);
        count += u64::from(right(&seen.belief));
        first.get_or_insert(seen.belief);
    }
    let percent = 100.0 * to_f64(count) / to_f64(seeds(context));
    Ok((percent, first.expect("at least one seed")))
}

/// The row of this percentage.
fn named_row(
    context: &Context<'_>,
    id: &str,
    what: &str,
    (percent, belief): &(f64, Belief),
) -> Row {
    let row = Row::alone(
        format!("{id}.ours.named"),
        format!("{what}: runs of ours that name it, of {}", seeds(context)),
        *percent,
        Unit::Percent,
        "",
    );
    let said = format!(
        "said: spindles shared {:?}, odd {:?}, missing {:?}",
        belief.misconfigured, belief.odd_drives, belief.degraded
    );
    row.against(99.0, Rule::AtLeast, "not sure enough with some seeds")
        .remark(format!("{said}; the paper shows one run each"))
}

/// Time of a pair of chunks over the mean of single chunks.
fn pair(seen: &Seen, chunks: (u32, u32)) -> f64 {
    let alone: Vec<f64> = seen
        .pairs
        .iter()
        .filter(|&&(a, b, _)| a == b)
        .map(|pair| pair.2)
        .collect();
    let found = seen
        .pairs
        .iter()
        .find(|&&(a, b, _)| (a, b) == chunks)
        .map_or(0.0, |pair| pair.2);
    found / mean(&alone)
}

// --- figure 17 -------------------------------------------------------------------------------

/// The study of figure 17.
pub(crate) struct Fig17;

static ABOUT_17: About = About {
    id: "shear-fig17",
    paper: &SHEAR,
    title: "Figure 17: two logical drives on one spindle",
    question: "Four logical drives, of which the second and the third are halves of one disk: does the map of chunk \
        pairs show it, and does ours name the two?",
};

const SHARED_CHUNK: u64 = 32 * KIB;
/// Size of each logical drive: two of them fit onto a 9LZX.
const SHARED_BYTES: u64 = 4 << 30;
const SHARED: (u16, u16) = (1, 2);

/// Id, scheme, chunks of the pattern, and two chunks of the first stripe on seats 1 and 2.
const SHARED_LAYOUTS: [(&str, &str, u64, (u32, u32)); 5] = [
    ("raid0", "raid0:4c", 4, (1, 2)),
    ("la", "raid5:la:4c", 12, (1, 2)),
    ("ls", "raid5:ls:4c", 4, (1, 2)),
    ("ra", "raid5:ra:4c", 12, (0, 1)),
    ("rs", "raid5:rs:4c", 12, (0, 1)),
];

fn on_shared(scheme: &str, shared: bool) -> PlainArray {
    let mut array = array(&PlainOptions {
        drive_bytes: Some(SHARED_BYTES),
        ..options(scheme, SHARED_CHUNK)
    });
    if shared {
        array.share_spindle(Seat(SHARED.1), Seat(SHARED.0), SHARED_BYTES);
    }
    array
}

impl Study for Fig17 {
    fn about(&self) -> &'static About {
        &ABOUT_17
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&SHARED_LAYOUTS, |&(_, scheme, chunks, _)| {
            let method = published(REQUESTS, TRIALS, chunks * SHARED_CHUNK);
            let run = Run::published(method, Step::Layout, context.seed());
            let whole = run.on(context, &mut on_shared(scheme, false))?;
            let wrong = run.on(context, &mut on_shared(scheme, true))?;
            let mut trace = Trace::default();
            let right = |belief: &Belief| belief.misconfigured == [SHARED];
            let named = named(context, || on_shared(scheme, true), right, &mut trace)?;
            Ok((whole, wrong, named, trace.0))
        })?;
        let mut trace = Trace::default();
        let (mut rows, mut charts) = (Vec::new(), Vec::new());
        for ((id, scheme, _, chunks), (whole, wrong, named, of_ours)) in
            SHARED_LAYOUTS.iter().zip(&found)
        {
            for hash in [whole.trace, wrong.trace, *of_ours] {
                trace.add(hash);
            }
            let row = |what: &str, name: &str, seen, paper, rule| {
                let name = format!("{scheme}, {name}: chunks of seats 1 and 2 ÷ one chunk");
                let row = Row::alone(
                    format!("fig17.{id}.{what}"),
                    name,
                    pair(seen, *chunks),
                    Unit::Ratio,
                    "",
                );
                row.against(paper, rule, "the pair does not show it")
            };
            rows.push(row(
                "apart",
                "as it should be",
                whole,
                0.5,
                Rule::WithinShare(0.15),
            ));
            let longer = "the arm goes from one half of the disk to the other, which takes longer than within one";
            rows.push(
                row(
                    "shared",
                    "misconfigured",
                    wrong,
                    1.0,
                    Rule::Between(0.85, 1.6),
                )
                .remark(longer),
            );
            rows.push(named_row(context, &format!("fig17.{id}"), scheme, named));
            charts.push(pair_map(
                id,
                &format!("{scheme}, as it should be"),
                &whole.pairs,
            ));
            let title = format!("{scheme}, misconfigured");
            charts.push(pair_map(&format!("{id}-shared"), &title, &wrong.pairs));
        }
        Ok(Report {
            about: &ABOUT_17,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Four logical drives of 4 GiB in chunks of 32 KiB, each on a 9LZX of its own, or the second and third on \
                 one. The published procedure with N = {REQUESTS}, R = {TRIALS}; ours by reads alone, with {} seeds. \
                 The paper's arrays were Linux' on real disks.",
                seeds(context)
            ),
            trace: trace.0,
            rows,
            charts,
        })
    }
}

// --- figure 18 -------------------------------------------------------------------------------

/// The study of figure 18.
pub(crate) struct Fig18;

static ABOUT_18: About = About {
    id: "shear-fig18",
    paper: &SHEAR,
    title: "Figure 18: one drive that differs",
    question: "One drive of four turns, or moves its arm, one and a half times as fast or as slowly as the others: \
        do boundaries and pairs show it, and does ours name it?",
};

const ODD_CHUNK: u64 = 16 * KIB;
const ODD_SEAT: u16 = 2;
const ODD_PATTERN: u64 = 4 * ODD_CHUNK;

/// Id, title, and thousandths of the rotation time and of the seek time.
const ODD: [(&str, &str, u64, u64); 4] = [
    ("fast-rotating", "fast rotating", 667, 1000),
    ("slow-rotating", "slow rotating", 1500, 1000),
    ("fast-seeking", "fast seeking", 1000, 667),
    ("slow-seeking", "slow seeking", 1000, 1500),
];

fn with_odd(turn: u64, seek: u64) -> PlainArray {
    let options = options("raid0:4c", ODD_CHUNK);
    let drives = (0..4).map(|seat| -> Box<dyn Model> {
        match seat == ODD_SEAT {
            true => options.drive.clone().with_times(turn, seek).build(),
            false => options.drive.build(),
        }
    });
    PlainArray::with_drives(&options, drives.collect()).expect("four drives of one size")
}

impl Study for Fig18 {
    fn about(&self) -> &'static About {
        &ABOUT_18
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&ODD, |&(_, _, turn, seek)| {
            let method = published(REQUESTS, TRIALS, ODD_PATTERN);
            let run = Run::published(method, Step::Layout, context.seed());
            let seen = run.on(context, &mut with_odd(turn, seek))?;
            let mut trace = Trace::default();
            let slower = turn > 1000 || seek > 1000;
            let right = |belief: &Belief| match belief.odd_drives[..] {
                [(seat, ratio)] => seat == ODD_SEAT && (ratio > 1.0) == slower,
                _ => false,
            };
            let named = named(context, || with_odd(turn, seek), right, &mut trace)?;
            Ok((seen, named, trace.0))
        })?;
        let mut trace = Trace::default();
        let mut rows = Vec::new();
        let mut alone = Chart::new(
            "chunks",
            "Bursts on one chunk, by its drive",
            Mark::Bars,
            Axis::categories("drive", 0..4),
            Axis::linear("time ÷ mean of the other drives"),
        );
        let mut borders = Vec::new();
        for ((id, title, _, _), (seen, named, of_ours)) in ODD.iter().zip(&found) {
            trace.add(seen.trace);
            trace.add(*of_ours);
            let others = mean(&[0, 1, 3].map(|chunk| pair(seen, (chunk, chunk))));
            let ratios = [0, 1, 2, 3].map(|chunk| pair(seen, (chunk, chunk)) / others);
            rows.push(Row::alone(
                format!("fig18.{id}.time"),
                format!("{title}: time of its chunk ÷ mean of the others'"),
                ratios[usize::from(ODD_SEAT)],
                Unit::Ratio,
                "the paper shows it as shades of its map",
            ));
            rows.push(named_row(context, &format!("fig18.{id}"), title, named));
            alone.series.push(Series {
                name: (*title).to_owned(),
                ours: (0..)
                    .zip(ratios)
                    .map(|(at, y)| Point::new(to_f64(at), y))
                    .collect(),
                paper: Vec::new(),
            });
            borders.push(boundaries(id, title, seen));
        }
        let mut charts = vec![alone];
        charts.extend(borders);
        Ok(Report {
            about: &ABOUT_18,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "RAID-0 on four 9LZX in chunks of 16 KiB; of the third, the turn or all seek times are 1.5 times as long \
                 or as short. The published procedure with N = {REQUESTS}, R = {}; ours by reads alone, with {} seeds.",
                TRIALS,
                seeds(context)
            ),
            trace: trace.0,
            rows,
            charts,
        })
    }
}

fn boundaries(id: &str, title: &str, seen: &Seen) -> Chart {
    let mut chart = Chart::new(
        format!("boundaries-{id}"),
        format!("{title}: boundaries"),
        Mark::Lines,
        Axis::linear("offset, KiB"),
        Axis::linear("seconds of a burst"),
    );
    let points = seen.boundaries.iter();
    chart.series.push(Series {
        name: "published procedure".to_owned(),
        ours: points
            .map(|&(at, time)| Point::new(kib(at), time))
            .collect(),
        paper: Vec::new(),
    });
    chart
}

// --- figure 19 -------------------------------------------------------------------------------

/// The study of figure 19.
pub(crate) struct Fig19;

static ABOUT_19: About = About {
    id: "shear-fig19",
    paper: &SHEAR,
    title: "Figure 19: the fifth of ten drives is missing",
    question: "A RAID-5 on ten drives loses the fifth: do its boundaries disappear from the published curve, how high is its \
        plateau, and does ours name it?",
};

const MISSING: u16 = 4;
const MISSING_CHUNK: u64 = 16 * KIB;
const MISSING_PATTERN: u64 = 10 * MISSING_CHUNK;

fn of_ten(missing: bool) -> PlainArray {
    let mut array = array(&options("raid5:ls:10c", MISSING_CHUNK));
    if missing {
        array.fail(Instant::ZERO, Seat(MISSING));
    }
    array
}

/// Number of offsets that take less than three quarters of the median, and the mean of the other offsets inside and
/// outside of the missing drive's chunk.
fn borders(seen: &Seen) -> (u64, f64, f64) {
    let mut times: Vec<f64> = seen.boundaries.iter().map(|&(_, time)| time).collect();
    times.sort_by(f64::total_cmp);
    let median = times[times.len() / 2];
    let fast = |time: f64| time < 0.75 * median;
    let begin = u64::from(MISSING) * MISSING_CHUNK;
    let inside = |at: u64| (begin + 4 * KIB..begin + MISSING_CHUNK).contains(&at);
    let plateau = |within: bool| {
        let of = seen.boundaries.iter().filter(|&&(at, time)| {
            !fast(time) && inside(at) == within && !at.is_multiple_of(MISSING_CHUNK)
        });
        mean(&of.map(|&(_, time)| time).collect::<Vec<_>>())
    };
    let count = times.iter().filter(|&&time| fast(time)).count();
    (count as u64, plateau(true), plateau(false))
}

impl Study for Fig19 {
    fn about(&self) -> &'static About {
        &ABOUT_19
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let seen = context.map(&[false, true], |&missing| {
            let method = published(super::REQUESTS, TRIALS, MISSING_PATTERN);
            let run = Run::published(method, Step::Boundaries, context.seed());
            run.on(context, &mut of_ten(missing))
        })?;
        let mut trace = Trace::default();
        seen.iter().for_each(|seen| trace.add(seen.trace));
        let right = |belief: &Belief| belief.degraded == [MISSING];
        let named = named(context, || of_ten(true), right, &mut trace)?;
        let (whole, missing) = (borders(&seen[0]), borders(&seen[1]));
        let count = |id: &str, name: &str, seen, paper| {
            let row = Row::alone(
                format!("fig19.{id}"),
                name,
                to_f64(seen),
                Unit::Boundaries,
                "",
            );
            row.against(
                paper,
                Rule::Within(0.0),
                "other boundaries than the chunk's are gone",
            )
        };
        let plateau = Row::alone(
            "fig19.missing.plateau",
            "Plateau of the missing drive's chunk ÷ of the others",
            missing.1 / missing.2,
            Unit::Ratio,
            "the paper: \"higher due to the extra overhead of performing on-the-fly reconstruction\"; here the other nine \
             drives have as many requests each as one has elsewhere, and adding up takes no time",
        );
        let rows = vec![
            count(
                "whole.boundaries",
                "Boundaries seen, all drives there",
                whole.0,
                10.0,
            ),
            count(
                "missing.boundaries",
                "Boundaries seen, the fifth drive missing",
                missing.0,
                8.0,
            ),
            plateau,
            named_row(context, "fig19", "the missing drive", &named),
        ];
        let titles = [
            ("whole", "All drives there"),
            ("missing", "The fifth drive missing"),
        ];
        let charts = titles.iter().zip(&seen);
        Ok(Report {
            about: &ABOUT_19,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "RAID-5 (LS) on ten 9LZX in chunks of 16 KiB. The published procedure with N = {}, R = {TRIALS}; ours by \
                 reads alone, with {} seeds. The paper pulled a disk from Linux' software RAID.",
                super::REQUESTS,
                seeds(context)
            ),
            trace: trace.0,
            rows,
            charts: charts
                .map(|((id, title), seen)| boundaries(id, title, seen))
                .collect(),
        })
    }
}
