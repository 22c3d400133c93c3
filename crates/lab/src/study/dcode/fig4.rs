//! Figure 4: the load balancing factor, greatest ÷ least accesses of any disk.

use rand_chacha::ChaCha8Rng;
use stats::to_f64;

use super::loads::{Loads, MIXES, Mix, Write, balance};
use super::{NOT_MEASURED, PAPERS, PRIMES, Tested, cases};
use crate::chart::{Axis, Chart, Mark, Point, Reference, Series};
use crate::paper::DCODE;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig4;

static ABOUT: About = About {
    id: "dcode-fig4",
    paper: &DCODE,
    title: "Figure 4: load balancing factor under three workloads",
    question: "How much more does the busiest disk do than the idlest one? Each number is the exact \
        expectation over all starts and lengths; the band is where 95 % of runs of 2000 random \
        operations, as the paper made one, come out. The parity disks of RDP and H-Code serve no \
        reads, so without writes their factor is infinite; the paper draws 30.",
};

/// H-Code, 7:3, by prime (section IV-C).
const HCODE_7R3W: [f64; 4] = [2.61, 2.35, 2.07, 1.97];
/// 1:1, over all primes (section IV-C): RDP, H-Code, and HDP, X-Code and D-Code together.
const RDP_1R1W: (f64, f64) = (1.66, 5.44);
const HCODE_1R1W: (f64, f64) = (1.38, 1.63);
const LEVEL_1R1W: (f64, f64) = (1.03, 1.07);

/// The paper prints two decimals.
const PRINTED: Rule = Rule::Band { rounding: 0.005 };

/// Share of the runs within a band.
const BAND: f64 = 0.95;

/// The results of a code with a prime.
struct Found {
    tested: Tested,
    prime: u16,
    /// By mix: exact, and under real read-modify-write.
    exact: Vec<(f64, f64)>,
    /// By mix, the factors of the sampled runs; none for codes that the paper does not measure.
    sampled: Vec<Vec<f64>>,
    trace: Trace,
}

impl Study for Fig4 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let runs = if context.full() { 10_000 } else { 1_000 };
        let found = context.map(&cases(), |&(tested, prime)| {
            let random = context.random(&format!("{}.{prime}", tested.name));
            measure(context, tested, prime, runs, random)
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|found| trace.add(found.trace.0));
        let mut rows = Vec::new();
        for (at, mix) in MIXES.iter().enumerate() {
            rows.extend(found.iter().map(|found| row(found, at, *mix)));
        }
        rows.extend(ranges(&found));
        for (at, mix) in MIXES
            .iter()
            .enumerate()
            .filter(|(_, mix)| mix.reads_of_ten < 10)
        {
            rows.extend(found.iter().map(|found| read_modify_write(found, at, *mix)));
        }
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Accesses of elements, by physical column, stripes not rotated. A read touches its \
                 data elements; a write touches them and every parity element that changes, and \
                 reads nothing beforehand. Start uniform over the stripe's data elements, length 1 \
                 to 20, repeated 1 to 1000 times; an operation that passes the end of the stripe \
                 goes on in the next. Bands: {runs} runs of 2000 operations, 7:3 and 1:1 by exact \
                 share. The paper does not write its model down; this one gives its numbers."
            ),
            trace: trace.0,
            rows,
            charts: charts(&found),
        })
    }
}

fn measure(
    context: &Context<'_>,
    tested: Tested,
    prime: u16,
    runs: u32,
    mut random: ChaCha8Rng,
) -> Result<Found, Stopped> {
    let loads = Loads::new(&tested.code(prime));
    let exact = MIXES.map(|mix| {
        let factor = |write| balance(&loads.expected(mix, write));
        (factor(Write::Paper), factor(Write::ReadModify))
    });
    let mut trace = Trace::default();
    let mut sampled = Vec::new();
    for mix in MIXES.iter().filter(|_| tested.in_paper()) {
        let mut factors = Vec::new();
        for _ in 0..runs {
            context.check()?;
            let run = loads.sampled(*mix, Write::Paper, &mut random);
            run.iter().for_each(|&accesses| trace.add(accesses));
            factors.push(balance(&run.into_iter().map(to_f64).collect::<Vec<_>>()));
        }
        sampled.push(factors);
    }
    Ok(Found {
        tested,
        prime,
        exact: exact.to_vec(),
        sampled,
        trace,
    })
}

/// The band of the sampled factors.
fn band(found: &Found, mix: usize) -> Option<(f64, f64)> {
    let finite = found.exact[mix].0.is_finite();
    let factors = found.sampled.get(mix).filter(|_| finite)?;
    stats::spread(factors, BAND)
}

fn row(found: &Found, at: usize, mix: Mix) -> Row {
    let Tested { name, title } = found.tested;
    let prime = found.prime;
    let ours = found.exact[at].0;
    let row = Row::alone(
        format!("fig4.{}.{name}.p{prime}", mix.id),
        format!("{title}, {}, p = {prime}", mix.name),
        ours,
        Unit::Ratio,
        NOT_MEASURED,
    );
    let row = match band(found, at) {
        Some(band) => row.band(band),
        None => row,
    };
    let position = PRIMES.iter().position(|&other| other == prime);
    match (mix.id, name, position) {
        ("7r3w", "hcode", Some(position)) => row
            .against(
                HCODE_7R3W[position],
                PRINTED,
                "no run of 2000 operations comes out there",
            )
            .remark("ours is the exact expectation, the paper's one run"),
        ("read", "rdp" | "hcode", _) => row
            .against(f64::INFINITY, Rule::AtLeast, "every disk serves reads")
            .remark("infinite: parity disks serve no reads"),
        _ if ours.is_infinite() => row.remark("infinite: a parity disk serves no reads"),
        _ => row,
    }
}

/// The paper's ranges over all primes: least and greatest of run r over all primes.
fn ranges(found: &[Found]) -> Vec<Row> {
    const MIX: usize = 2;
    let mut rows = Vec::new();
    let level: &[&str] = &["hdp", "xcode", "dcode"];
    for (id, name, codes, paper) in [
        ("rdp", "RDP", &["rdp"][..], RDP_1R1W),
        ("hcode", "H-Code", &["hcode"], HCODE_1R1W),
        ("level", "HDP, X-Code and D-Code", level, LEVEL_1R1W),
    ] {
        let of_codes: Vec<&Found> = found
            .iter()
            .filter(|found| codes.contains(&found.tested.name))
            .collect();
        let exact: Vec<f64> = of_codes.iter().map(|found| found.exact[MIX].0).collect();
        type Fold = fn(f64, f64) -> f64;
        for (end, word, fold, start, paper) in [
            ("least", "least", f64::min as Fold, f64::INFINITY, paper.0),
            ("most", "greatest", f64::max, 0.0, paper.1),
        ] {
            let runs = of_codes.first().map_or(0, |found| found.sampled[MIX].len());
            let sampled: Vec<f64> = (0..runs)
                .map(|run| {
                    let factors = of_codes.iter().map(|found| found.sampled[MIX][run]);
                    factors.fold(start, fold)
                })
                .collect();
            let exact = exact.iter().copied().fold(start, fold);
            // A code that is level on average is uneven in a single run: the exact 1.0x does not
            // describe a run.
            let (ours, remark) = match id {
                "level" => {
                    let mut sorted = sampled.clone();
                    sorted.sort_by(f64::total_cmp);
                    let median = stats::quantile(&sorted, 0.5).unwrap_or(exact);
                    (
                        median,
                        format!(
                            "ours is the median of the runs; the exact factor is {exact:.3}: what is left is chance"
                        ),
                    )
                }
                _ => (
                    exact,
                    "ours is the exact expectation, the paper's one run".to_owned(),
                ),
            };
            let row = Row::alone(
                format!("fig4.1r1w.{id}.{end}"),
                format!("{name}, 1:1, {word} of all primes"),
                ours,
                Unit::Ratio,
                NOT_MEASURED,
            );
            rows.push(
                row.band(stats::spread(&sampled, BAND).unwrap_or((exact, exact)))
                    .against(
                        paper,
                        PRINTED,
                        "no set of runs of 2000 operations comes out there",
                    )
                    .remark(remark),
            );
        }
    }
    rows
}

fn read_modify_write(found: &Found, at: usize, mix: Mix) -> Row {
    let Tested { name, title } = found.tested;
    Row::alone(
        format!("fig4.{}.{name}.p{}.rmw", mix.id, found.prime),
        format!(
            "{title}, {}, p = {}, real read-modify-write",
            mix.name, found.prime
        ),
        found.exact[at].1,
        Unit::Ratio,
        "writes read what they replace, which the paper does not count",
    )
}

fn charts(found: &[Found]) -> Vec<Chart> {
    let chart = |(at, mix): (usize, &Mix)| {
        let mut chart = Chart::new(
            mix.id,
            format!("Load balancing factor, {}", mix.name),
            Mark::Bars,
            Axis::categories("p", PRIMES),
            Axis::linear("greatest ÷ least accesses of a disk"),
        );
        chart.band = "95 % of such runs";
        if mix.reads_of_ten == 10 {
            chart.y = chart.y.from_to(0.0, 6.0);
        }
        chart.series = PAPERS
            .iter()
            .map(|tested| {
                let of_code = found.iter().filter(|found| found.tested == *tested);
                let ours = of_code.enumerate().map(|(place, found)| Point {
                    x: to_f64(place as u64),
                    y: found.exact[at].0,
                    band: band(found, at),
                });
                let paper = match (mix.id, tested.name) {
                    ("7r3w", "hcode") => &HCODE_7R3W[..],
                    _ => &[],
                };
                let paper = paper.iter().enumerate();
                Series {
                    name: tested.title.to_owned(),
                    ours: ours.collect(),
                    paper: paper
                        .map(|(x, &y)| Point::new(to_f64(x as u64), y))
                        .collect(),
                }
            })
            .collect();
        if mix.id == "1r1w" {
            chart.references = [
                ("the paper: RDP, all p", RDP_1R1W, 0),
                ("the paper: H-Code, all p", HCODE_1R1W, 1),
                ("the paper: HDP, X-Code, D-Code, all p", LEVEL_1R1W, 4),
            ]
            .map(|(name, (low, high), series)| Reference {
                name: name.to_owned(),
                low,
                high,
                series: Some(series),
            })
            .to_vec();
        }
        chart
    };
    MIXES.iter().enumerate().map(chart).collect()
}
