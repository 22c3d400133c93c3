//! Figure 5: the I/O cost, all accesses of a workload together.

use stats::to_f64;

use super::loads::{Loads, MIXES, Mix, Write};
use super::{NOT_MEASURED, PAPERS, PRIMES, Tested, cases};
use crate::chart::{Axis, Chart, Mark, Point, Reference, Series};
use crate::paper::DCODE;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig5;

static ABOUT: About = About {
    id: "dcode-fig5",
    paper: &DCODE,
    title: "Figure 5: I/O cost under three workloads",
    question: "How many accesses does the same work take? Costs are compared with D-Code's. The \
        paper says that D-Code's cost is so many percent lower than the others'; its percentages \
        are how much higher the others' are than D-Code's, which is more. RDP and H-Code cost less \
        than D-Code, the paper says by at most 3.4 %: with p = 5 it is more.",
};

/// p = 13 (section IV-C): workload, code, percent.
const PAPER: [(&str, &str, f64); 4] = [
    ("7r3w", "hdp", 16.0),
    ("7r3w", "xcode", 15.3),
    ("1r1w", "hdp", 23.1),
    ("1r1w", "xcode", 22.2),
];
/// RDP and H-Code against D-Code, anywhere (section IV-C).
const AT_MOST: f64 = 3.4;
/// A figure from one random run agrees with the expectation within this many percentage points.
const POINTS: f64 = 1.6;

/// What a code costs with a prime, by mix: mean accesses of an operation.
struct Found {
    tested: Tested,
    prime: u16,
    paper: Vec<f64>,
    read_modify: Vec<f64>,
    /// The sum of one sampled run, for the trace.
    run: u64,
}

impl Study for Fig5 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&cases(), |&(tested, prime)| {
            let loads = Loads::new(&tested.code(prime));
            let cost = |write| {
                MIXES
                    .map(|mix| loads.expected(mix, write).iter().sum())
                    .to_vec()
            };
            let mut random = context.random(&format!("{}.{prime}", tested.name));
            Ok(Found {
                tested,
                prime,
                paper: cost(Write::Paper),
                read_modify: cost(Write::ReadModify),
                run: loads
                    .sampled(MIXES[2], Write::Paper, &mut random)
                    .iter()
                    .sum(),
            })
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|found| trace.add(found.run));
        let mut rows = Vec::new();
        for (at, mix) in MIXES.iter().enumerate() {
            rows.extend(others(&found).map(|other| row(&found, other, at, *mix)));
        }
        rows.extend(sentences(&found));
        for (at, mix) in MIXES.iter().enumerate() {
            rows.extend(found.iter().flat_map(|found| absolute(found, at, *mix)));
        }
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: "Accesses of elements, as in figure 4, exact expectation over all starts and \
                    lengths: mean accesses of an operation. Reading old data and old parity is not \
                    counted, as in the paper; under real read-modify-write every access of a write \
                    is two."
                .to_owned(),
            trace: trace.0,
            rows,
            charts: charts(&found),
        })
    }
}

fn others(found: &[Found]) -> impl Iterator<Item = &Found> + Clone {
    found.iter().filter(|found| found.tested.name != "dcode")
}

fn dcode(found: &[Found], prime: u16) -> &Found {
    let mut of_prime = found.iter().filter(|found| found.prime == prime);
    of_prime
        .find(|found| found.tested.name == "dcode")
        .expect("D-Code is among the codes")
}

/// How much more a code costs than D-Code, in percent.
fn above(found: &[Found], other: &Found, mix: usize) -> f64 {
    100.0 * (other.paper[mix] / dcode(found, other.prime).paper[mix] - 1.0)
}

fn row(found: &[Found], other: &Found, at: usize, mix: Mix) -> Row {
    let Tested { name, title } = other.tested;
    let row = Row::alone(
        format!("fig5.{}.{name}.p{}", mix.id, other.prime),
        format!("{title} ÷ D-Code − 1, {}, p = {}", mix.name, other.prime),
        above(found, other, at),
        Unit::Percent,
        NOT_MEASURED,
    );
    let paper = PAPER
        .iter()
        .find(|(mix_id, code, _)| *mix_id == mix.id && *code == name && other.prime == 13);
    match paper {
        Some(&(_, _, percent)) => row.against(
            percent,
            Rule::Within(POINTS),
            "beyond what one run of 2000 operations scatters",
        ),
        None => row,
    }
}

/// Rows for the two sentences of the paper that do not hold.
fn sentences(found: &[Found]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for &(mix_id, code, percent) in &PAPER {
        let at = MIXES
            .iter()
            .position(|mix| mix.id == mix_id)
            .expect("one of the three");
        let mut of_code = others(found).filter(|other| other.prime == 13);
        let other = of_code
            .find(|other| other.tested.name == code)
            .expect("one of the codes");
        let lower = 100.0 * (1.0 - dcode(found, 13).paper[at] / other.paper[at]);
        let row = Row::alone(
            format!("fig5.sentence.lower.{mix_id}.{code}"),
            format!(
                "\u{201c}D-Code's cost is lower than {}'s\u{201d}, {}, p = 13",
                other.tested.title, MIXES[at].name
            ),
            lower,
            Unit::Percent,
            NOT_MEASURED,
        );
        rows.push(row.against(
            percent,
            Rule::Within(POINTS),
            format!(
                "the paper's percentage is {} ÷ D-Code − 1: the other costs so much more, D-Code does not cost so much less",
                other.tested.title
            ),
        ));
    }
    let below = |other: &&Found| ["rdp", "hcode"].contains(&other.tested.name);
    // By the paper's own arithmetic: how much more the costlier code costs.
    let more = |other: &Found, at: usize| {
        100.0 * (dcode(found, other.prime).paper[at] / other.paper[at] - 1.0)
    };
    let of_all = others(found)
        .filter(below)
        .flat_map(|other| (0..MIXES.len()).map(move |at| (more(other, at), other, at)));
    let most = of_all
        .clone()
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("two codes, four primes");
    let later = of_all
        .filter(|(_, other, _)| other.prime > 5)
        .map(|(percent, _, _)| percent);
    let row = Row::alone(
        "fig5.sentence.at-most",
        "\u{201c}D-Code costs at most so much more than RDP and H-Code\u{201d}",
        most.0,
        Unit::Percent,
        NOT_MEASURED,
    );
    rows.push(row.against(
        AT_MOST,
        Rule::AtMost,
        format!(
            "so it is with p = {} under {} against {}; with larger primes it is {:.1} % at most",
            most.1.prime,
            MIXES[most.2].name,
            most.1.tested.title,
            later.fold(0.0, f64::max),
        ),
    ));
    rows
}

fn absolute(found: &Found, at: usize, mix: Mix) -> [Row; 2] {
    let Tested { name, title } = found.tested;
    let prime = found.prime;
    let row = |suffix, which, cost: &[f64], why| {
        Row::alone(
            format!("fig5.{}.{name}.p{prime}.{suffix}", mix.id),
            format!(
                "{title}, {}, p = {prime}: accesses of an operation{which}",
                mix.name
            ),
            cost[at],
            Unit::Elements,
            why,
        )
    };
    let rmw = "writes read what they replace, which the paper does not count";
    [
        row("cost", "", &found.paper, NOT_MEASURED),
        row("rmw", ", real read-modify-write", &found.read_modify, rmw),
    ]
}

fn charts(found: &[Found]) -> Vec<Chart> {
    let chart = |(at, mix): (usize, &Mix)| {
        let mut chart = Chart::new(
            mix.id,
            format!("I/O cost against D-Code's, {}", mix.name),
            Mark::Bars,
            Axis::categories("p", PRIMES),
            Axis::linear("other ÷ D-Code − 1, %"),
        );
        for tested in PAPERS.iter().filter(|tested| tested.name != "dcode") {
            let of_code = found.iter().filter(|found| found.tested == *tested);
            let ours = of_code
                .enumerate()
                .map(|(place, other)| Point::new(to_f64(place as u64), above(found, other, at)));
            let last = to_f64(PRIMES.len() as u64 - 1);
            let of_paper = PAPER
                .iter()
                .filter(|(id, code, _)| *id == mix.id && *code == tested.name);
            chart.series.push(Series {
                name: tested.title.to_owned(),
                ours: ours.collect(),
                paper: of_paper
                    .map(|&(_, _, percent)| Point::new(last, percent))
                    .collect(),
            });
        }
        chart.references.push(Reference {
            name: "the paper: RDP and H-Code not below".to_owned(),
            low: -AT_MOST,
            high: -AT_MOST,
            series: None,
        });
        chart
    };
    MIXES
        .iter()
        .enumerate()
        .filter(|(_, mix)| mix.reads_of_ten < 10)
        .map(chart)
        .collect()
}
