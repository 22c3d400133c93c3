//! Figures 3, 5, 6 and 8 to 13: what the published steps show of whole arrays, and what our procedure finds.
//!
//! ```text
//! pattern     N requests at stride p: slowest where p is a multiple of the pattern P
//! boundaries  N at offset c and N just before it: fast where c begins another drive
//! pairs       N in chunk a and N in chunk b: slow where both are on one drive
//! ```

use stats::{mean, to_f64};
use std::collections::BTreeSet;

use super::volume::{Run, Seen, Step, array, options};
use super::{KIB, REQUESTS, TRIALS, kib, published};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::SHEAR;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// An array of the paper's.
struct Case {
    id: &'static str,
    title: &'static str,
    scheme: &'static str,
    chunk_kib: u64,
    /// The pattern in sections 2.3 and 3.
    pattern_kib: u64,
    drives: u16,
}

/// What a figure plots.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Panel {
    Pattern,
    Boundaries,
    Pairs,
}

/// A figure of these plots.
pub(crate) struct Striping {
    about: &'static About,
    figure: &'static str,
    panels: &'static [Panel],
    cases: &'static [Case],
}

const QUESTION: &str = "The published procedure and ours on the same simulated arrays: do both find what the array is, \
    and are the published procedure's times in the ratios that the paper gives?";

const fn about(id: &'static str, title: &'static str) -> About {
    About {
        id,
        paper: &SHEAR,
        title,
        question: QUESTION,
    }
}

const fn case(
    (id, title, scheme): (&'static str, &'static str, &'static str),
    chunk_kib: u64,
    pattern_kib: u64,
    drives: u16,
) -> Case {
    Case {
        id,
        title,
        scheme,
        chunk_kib,
        pattern_kib,
        drives,
    }
}

const RAID0: Case = case(("raid0", "RAID-0", "raid0:6c"), 8, 48, 6);
const LS: Case = case(("ls", "left-symmetric", "raid5:ls:6c"), 8, 48, 6);
const LA: Case = case(("la", "left-asymmetric", "raid5:la:6c"), 8, 240, 6);
const RS: Case = case(("rs", "right-symmetric", "raid5:rs:6c"), 8, 240, 6);
const RA: Case = case(("ra", "right-asymmetric", "raid5:ra:6c"), 8, 240, 6);
const ZIGZAG: Case = case(("zigzag", "zig-zag", "zigzag:6c"), 8, 96, 6);

pub(crate) static FIG3: Striping = Striping {
    about: &about("shear-fig3", "Figure 3: pattern size of RAID-0"),
    figure: "fig3",
    panels: &[Panel::Pattern],
    cases: &[
        case(("raid0x4", "4 drives × 16 KiB", "raid0:4c"), 16, 64, 4),
        case(("raid0x6", "6 drives × 16 KiB", "raid0:6c"), 16, 96, 6),
        case(("raid0x8", "8 drives × 16 KiB", "raid0:8c"), 16, 128, 8),
    ],
};

pub(crate) static FIG5: Striping = Striping {
    about: &about("shear-fig5", "Figure 5: boundaries of striping and zig-zag"),
    figure: "fig5",
    panels: &[Panel::Boundaries],
    cases: &[
        case(("raid0x4", "4 drives × 16 KiB", "raid0:4c"), 16, 64, 4),
        case(("raid0x8", "8 drives × 8 KiB", "raid0:8c"), 8, 64, 8),
        case(("raid0x16", "16 drives × 4 KiB", "raid0:16c"), 4, 64, 16),
        ZIGZAG,
    ],
};

pub(crate) static FIG6: Striping = Striping {
    about: &about("shear-fig6", "Figure 6: chunk pairs of RAID-0 and zig-zag"),
    figure: "fig6",
    panels: &[Panel::Pairs],
    cases: &[RAID0, ZIGZAG],
};

pub(crate) static FIG8: Striping = Striping {
    about: &about("shear-fig8", "Figure 8: RAID-0 on six drives"),
    figure: "fig8",
    panels: &[Panel::Pattern, Panel::Boundaries],
    cases: &[RAID0],
};

pub(crate) static FIG9: Striping = Striping {
    about: &about("shear-fig9", "Figure 9: pattern size of four RAID-5"),
    figure: "fig9",
    panels: &[Panel::Pattern],
    cases: &[LS, LA, RS, RA],
};

pub(crate) static FIG10: Striping = Striping {
    about: &about("shear-fig10", "Figure 10: chunk pairs of four RAID-5"),
    figure: "fig10",
    panels: &[Panel::Pairs],
    cases: &[LS, LA, RS, RA],
};

pub(crate) static FIG11: Striping = Striping {
    about: &about("shear-fig11", "Figure 11: P+Q"),
    figure: "fig11",
    panels: &[Panel::Pattern, Panel::Boundaries],
    cases: &[case(("pq", "P+Q", "raid6:shear:6c"), 8, 48, 6)],
};

pub(crate) static FIG12: Striping = Striping {
    about: &about("shear-fig12", "Figure 12: RAID-1"),
    figure: "fig12",
    panels: &[Panel::Pattern, Panel::Boundaries],
    cases: &[
        case(("raid1", "RAID-1", "raid1:6c"), 8, 24, 6),
        // For comparison: "exactly half of that when on RAID-0" (section 3.2).
        RAID0,
    ],
};

pub(crate) static FIG13: Striping = Striping {
    about: &about("shear-fig13", "Figure 13: chained declustering"),
    figure: "fig13",
    panels: &[Panel::Pattern, Panel::Boundaries, Panel::Pairs],
    cases: &[case(
        ("chained", "chained declustering", "chained:6c"),
        8,
        48,
        6,
    )],
};

/// Ratios of times agree if they differ by at most this share of the paper's.
const RATIO: Rule = Rule::WithinShare(0.1);

struct Found {
    case: &'static Case,
    published: Seen,
    ours: Seen,
}

impl Study for Striping {
    fn about(&self) -> &'static About {
        self.about
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let last = match self.panels.last() {
            Some(Panel::Pairs) => Step::Layout,
            Some(Panel::Boundaries) => Step::Boundaries,
            Some(Panel::Pattern) | None => Step::Pattern,
        };
        let (requests, trials) = self.size(context.full());
        let cases: Vec<&'static Case> = self.cases.iter().collect();
        let found = context.map(&cases, |&case| {
            let options = options(case.scheme, case.chunk_kib * KIB);
            let method = published(requests, trials, case.pattern_kib * KIB);
            let published = Run::published(method, last, context.seed());
            Ok(Found {
                case,
                published: published.on(context, &mut array(&options))?,
                ours: Run::ours(context.seed()).on(context, &mut array(&options))?,
            })
        })?;
        let mut trace = Trace::default();
        for found in &found {
            trace.add(found.published.trace);
            trace.add(found.ours.trace);
        }
        let mut rows: Vec<Row> = found.iter().flat_map(|found| self.rows(found)).collect();
        rows.extend(self.worst(&found));
        let panels = self.panels.iter();
        let charts = panels.flat_map(|panel| found.iter().map(move |found| chart(*panel, found)));
        Ok(Report {
            about: self.about,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Arrays of whole IBM 9LZX (sim::plain) without cache, queues in order of arrival, reads of mirrors to \
                 the drive with least to do. Published: N = {requests}, R = {trials}, steps of 4 KiB up to twice the \
                 pattern; the paper says \"approximately 500\" and no R. Times are the means of R bursts. Ours: \
                 reads, and writes of what is there.{}",
                self.smaller(context.full())
            ),
            trace: trace.0,
            rows,
            charts: charts.collect(),
        })
    }
}

impl Striping {
    /// N and R. All pairs of the long patterns are 14 million reads at the paper's size. R is not reduced: at a stride
    /// of half the pattern half of all start positions keep the burst on one drive, and few trials might hit only
    /// these.
    fn size(&self, full: bool) -> (u32, u32) {
        let pairs = self.panels.contains(&Panel::Pairs);
        let long = self.cases.iter().any(|case| case.pattern_kib > 100);
        match pairs && long && !full {
            true => (REQUESTS / 5, TRIALS),
            false => (REQUESTS, TRIALS),
        }
    }

    fn smaller(&self, full: bool) -> &'static str {
        match self.size(full) {
            (REQUESTS, _) => "",
            _ => " N is a fifth of the paper's here: 465 pairs at each of three layouts.",
        }
    }

    fn rows(&self, found: &Found) -> Vec<Row> {
        let Found {
            case,
            published,
            ours,
        } = found;
        let row = |id: &str, name: &str, ours: f64, unit, paper: f64, rule, reason: &str| {
            let row = Row::alone(
                format!("{}.{}.{id}", self.figure, case.id),
                format!("{}, {name}", case.title),
                ours,
                unit,
                "",
            );
            row.against(paper, rule, reason)
        };
        let exact = |id, name: &str, seen: Option<u64>, paper: u64| {
            let seen = seen.map_or(0.0, kib);
            let paper = to_f64(paper);
            row(
                id,
                name,
                seen,
                Unit::Kibibytes,
                paper,
                Rule::Within(0.0),
                WRONG,
            )
        };
        let drives = |id, name: &str, seen: Option<u16>, paper: u16| {
            let (seen, paper) = (f64::from(seen.unwrap_or(0)), f64::from(paper));
            row(
                id,
                name,
                seen,
                Unit::Drives,
                paper,
                Rule::Within(0.0),
                WRONG,
            )
        };
        let mut rows = vec![exact(
            "pattern",
            "pattern",
            published.belief.pattern_bytes,
            case.pattern_kib,
        )];
        if !published.boundaries.is_empty() {
            let chunk = published.belief.chunk_bytes;
            rows.push(exact("chunk", "chunk", chunk, case.chunk_kib));
            let apart = if case.id == "chained" { 2.0 / 3.0 } else { 0.5 };
            if let Some(ratio) = border_ratio(&published.boundaries) {
                let name = "time at a boundary ÷ within a chunk";
                rows.push(row(
                    "boundary",
                    name,
                    ratio,
                    Unit::Ratio,
                    apart,
                    RATIO,
                    CHANCE,
                ));
            }
        }
        if !published.pairs.is_empty() {
            let seen = published.belief.drives;
            rows.push(drives("drives", "drives", seen, case.drives));
            for (id, name, paper, between) in pair_levels(case) {
                let ratio = pair_mean(&published.pairs, between);
                rows.push(row(id, name, ratio, Unit::Ratio, paper, RATIO, CHANCE));
            }
        }
        let belief = &ours.belief;
        rows.push(exact(
            "ours.pattern",
            "ours: pattern",
            belief.pattern_bytes,
            case.pattern_kib,
        ));
        rows.push(exact(
            "ours.chunk",
            "ours: chunk",
            belief.chunk_bytes,
            case.chunk_kib,
        ));
        let class = format!("cannot be told apart: {}", belief.layout.join(", "));
        rows.push(drives("ours.drives", "ours: drives", belief.drives, case.drives).remark(class));
        rows.push(Row::alone(
            format!("{}.{}.ours.requests", self.figure, case.id),
            format!("{}, ours: requests, writes included", case.title),
            to_f64(ours.ios),
            Unit::Requests,
            format!(
                "the published procedure took {} up to the step of this figure, without writes",
                published.ios
            ),
        ));
        rows
    }

    /// "The worst-case time for the workload on RAID-1 is exactly half of that when on RAID-0" (section 3.2).
    fn worst(&self, found: &[Found]) -> Option<Row> {
        let worst = |id: &str| {
            let of_case = found.iter().find(|found| found.case.id == id)?;
            let times = of_case.published.curve.iter().map(|&(_, time)| time);
            Some(times.fold(0.0, f64::max))
        };
        let (mirrored, striped) = (worst("raid1")?, worst("raid0")?);
        let row = Row::alone(
            format!("{}.worst", self.figure),
            "Slowest stride of RAID-1 ÷ of RAID-0",
            mirrored / striped,
            Unit::Ratio,
            "",
        );
        let remark = format!(
            "{mirrored:.2} s and {striped:.2} s; the paper shows 1.0 s and 2.0 s, and names no N"
        );
        Some(row.against(0.5, RATIO, CHANCE).remark(remark))
    }
}

const WRONG: &str = "the procedure is wrong about this array";
const CHANCE: &str = "further from the ratio of drives than the busiest of several drives explains";

/// Mean time of the faster cluster of offsets over that of the slower one; `None` if there is only one cluster.
fn border_ratio(boundaries: &[(u64, f64)]) -> Option<f64> {
    let times: Vec<f64> = boundaries.iter().map(|&(_, time)| time).collect();
    let slowest = times.iter().copied().fold(0.0, f64::max);
    let (slow, fast): (Vec<f64>, Vec<f64>) = times.iter().partition(|&&time| time > 0.82 * slowest);
    (!fast.is_empty()).then(|| mean(&fast) / mean(&slow))
}

/// True for the pairs of different chunks that count.
type Between = fn(&(u32, u32, f64)) -> bool;

/// Levels of pairs that the paper names: id, name, time relative to a single chunk, and which
/// pairs.
fn pair_levels(case: &Case) -> Vec<(&'static str, &'static str, f64, Between)> {
    let neighbours: Between = |&(a, b, _)| b == a + 1 || (a, b) == (0, 5);
    let others: Between = |&(a, b, _)| b > a + 1 && (a, b) != (0, 5);
    match case.id {
        "chained" => vec![
            (
                "neighbours",
                "neighbouring chunks ÷ one chunk",
                2.0 / 3.0,
                neighbours,
            ),
            ("apart", "chunks further apart ÷ one chunk", 0.5, others),
        ],
        _ => vec![(
            "neighbours",
            "chunks 0 and 1 ÷ one chunk",
            0.5,
            |&(a, b, _)| (a, b) == (0, 1),
        )],
    }
}

fn pair_mean(pairs: &[(u32, u32, f64)], between: Between) -> f64 {
    let of = |keep: &dyn Fn(&(u32, u32, f64)) -> bool| {
        let chosen = pairs.iter().filter(|pair| keep(pair));
        mean(&chosen.map(|&(_, _, ratio)| ratio).collect::<Vec<_>>())
    };
    of(&between) / of(&|&(a, b, _)| a == b)
}

fn chart(panel: Panel, found: &Found) -> Chart {
    let Found {
        case, published, ..
    } = found;
    match panel {
        Panel::Pattern => lines("pattern", "stride, KiB", case, &published.curve),
        Panel::Boundaries => lines("boundaries", "offset, KiB", case, &published.boundaries),
        Panel::Pairs => pair_map(case.id, case.title, &published.pairs),
    }
}

fn lines(what: &str, x: &str, case: &Case, points: &[(u64, f64)]) -> Chart {
    let mut chart = Chart::new(
        format!("{what}-{}", case.id),
        format!("{}: {what}", case.title),
        Mark::Lines,
        Axis::linear(x),
        Axis::linear("seconds of a burst"),
    );
    chart.series.push(Series {
        name: "published procedure".to_owned(),
        ours: points
            .iter()
            .map(|&(at, time)| Point::new(kib(at), time))
            .collect(),
        paper: Vec::new(),
    });
    chart
}

/// The map of all pairs. Times are classified by thirds between one drive (1) and no drive in
/// common (a half).
pub(super) fn pair_map(id: &str, title: &str, pairs: &[(u32, u32, f64)]) -> Chart {
    let chunks: BTreeSet<u32> = pairs.iter().map(|&(_, b, _)| b).collect();
    let end = f64::from(chunks.last().copied().unwrap_or(0)) + 0.5;
    let axis = || Axis::linear("chunk of the pattern").from_to(-0.5, end);
    let mut chart = Chart::new(
        format!("pairs-{id}"),
        format!("{title}: chunk pairs"),
        Mark::Squares,
        axis(),
        axis(),
    );
    let alone: Vec<f64> = pairs
        .iter()
        .filter(|pair| pair.0 == pair.1)
        .map(|pair| pair.2)
        .collect();
    let one = mean(&alone);
    for (name, low, high) in [
        ("one drive", 0.83, f64::INFINITY),
        ("some drives in common", 0.58, 0.83),
        ("no drive in common", 0.0, 0.58),
    ] {
        let inside = pairs
            .iter()
            .filter(|pair| (low..high).contains(&(pair.2 / one)));
        let both = inside.flat_map(|&(a, b, _)| [(a, b), (b, a)]);
        let distinct: BTreeSet<(u32, u32)> = both.collect();
        chart.series.push(Series {
            name: name.to_owned(),
            ours: distinct
                .into_iter()
                .map(|(a, b)| Point::new(f64::from(a), f64::from(b)))
                .collect(),
            paper: Vec::new(),
        });
    }
    chart
}
