//! Section III-D: properties that follow from D-Code's equations alone.

use std::collections::BTreeSet;

use erasure::Code;
use stats::to_f64;

use super::speed::by_rows;
use super::{NOT_MEASURED, OTHERS, PAPERS, PRIMES, Tested};
use crate::chart::{Axis, Chart, Mark, Point, Reference, Series};
use crate::paper::DCODE;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Features;

static ABOUT: About = About {
    id: "dcode-features",
    paper: &DCODE,
    title: "Section III-D: features of the code",
    question: "Is D-Code what its equations promise: any two disks recoverable, no more additions \
        than the bound to encode and to decode, two parities per update, a quarter fewer reads to \
        recover one disk? Counted on the equations and on the schedules that Ravelin runs.",
};

/// Reads saved in the recovery of one disk, percent: "about 25 %", after Xu et al. on X-Code.
const READS_SAVED: f64 = 25.0;
/// Tolerance of "about", in percentage points.
const ABOUT_POINTS: f64 = 2.5;
/// The literature's limit is for many disks: one more prime shows the trend.
const LARGE: u16 = 17;

/// The results from a code's equations.
struct Found {
    tested: Tested,
    prime: u16,
    /// Additions to encode, per data element.
    encode: f64,
    /// Additions per lost element, over all pairs of lost columns.
    decode: f64,
    /// Parities that change with one data element: mean over all elements.
    update: f64,
    /// Reads to recover one column, mean over all columns: by horizontal equations, and the fewest
    /// found.
    reads: (f64, f64),
    /// Data elements ÷ all elements.
    efficiency: f64,
    /// True if every pair of columns can be recovered.
    any_two: bool,
}

impl Study for Features {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let primes = PRIMES.into_iter().chain([LARGE]);
        let all = PAPERS.into_iter().chain(OTHERS);
        let cases: Vec<(Tested, u16)> = all
            .flat_map(|code| primes.clone().map(move |prime| (code, prime)))
            .collect();
        let found = context.map(&cases, |&(tested, prime)| measure(context, tested, prime))?;
        let mut trace = Trace::default();
        for found in &found {
            trace.add(found.encode.to_bits());
            trace.add(found.decode.to_bits());
            trace.add(found.reads.1.to_bits());
        }
        let mut rows: Vec<Row> = found
            .iter()
            .filter(|found| found.tested.name == "dcode")
            .flat_map(of_dcode)
            .collect();
        rows.push(composite());
        let others = found.iter().filter(|found| found.tested.name != "dcode");
        rows.extend(others.flat_map(of_other));
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: "Counts on the codes' equations and on the schedules made from them: additions of \
                    whole elements, sums shared where several parities need them. Decoding: all pairs \
                    of lost columns, all elements of both. Recovery of one column: every lost data \
                    element by its horizontal equation and every lost parity by its own, against the \
                    fewest reads that a search over all choices of equations finds; mean over all \
                    columns. There is no chance in it, so the seed changes nothing."
                .to_owned(),
            trace: trace.0,
            rows,
            charts: charts(&found),
        })
    }
}

fn measure(context: &Context<'_>, tested: Tested, prime: u16) -> Result<Found, Stopped> {
    let code = tested.code(prime);
    let data = to_f64(code.data().len() as u64);
    let columns = code.columns();
    let (mut additions, mut lost) = (0, 0);
    let mut any_two = true;
    for first in 0..columns {
        context.check()?;
        for second in first + 1..columns {
            let pair = [first, second];
            match code.recover(&code.without_columns(&pair), &code.columns_set(&pair)) {
                Ok(recovery) => {
                    additions += recovery.schedule.xors();
                    lost += 2 * usize::from(code.rows());
                }
                Err(_) => any_two = false,
            }
        }
    }
    let changes: usize = code
        .data_slots()
        .map(|slot| code.parities_of(slot).len())
        .sum();
    let mut reads = (0, 0);
    for column in 0..columns {
        context.check()?;
        reads.0 += by_horizontal(&code, column);
        let fewest = code.recover_column(column);
        reads.1 += fewest.map_or(0, |found| found.recovery.reads.len());
    }
    let mean = |sum: usize| to_f64(sum as u64) / f64::from(columns);
    Ok(Found {
        tested,
        prime,
        encode: to_f64(code.encode().xors() as u64) / data,
        decode: to_f64(additions as u64) / to_f64(lost.max(1) as u64),
        update: to_f64(changes as u64) / data,
        reads: (mean(reads.0), mean(reads.1)),
        efficiency: 100.0 * data / to_f64(code.elements() as u64),
        any_two,
    })
}

/// Elements read to recover a column the usual way: data by horizontal equations, parities by
/// their own.
fn by_horizontal(code: &Code, column: u16) -> usize {
    let known = code.without_columns(&[column]);
    let lost: Vec<usize> = code
        .column(column)
        .filter(|&slot| code.is_data(slot))
        .collect();
    let mut reads: BTreeSet<usize> = by_rows(code, &known, &lost).into_iter().collect();
    let parities = code
        .equations()
        .iter()
        .filter(|equation| equation.parity.column == column);
    for equation in parities {
        // A member in the same column has already been recovered.
        let members = equation
            .members
            .iter()
            .map(|&(member, _)| code.index(member));
        reads.extend(members.filter(|&slot| known.contains(slot)));
    }
    reads.retain(|&slot| known.contains(slot));
    reads.len()
}

fn of_dcode(found: &Found) -> Vec<Row> {
    let prime = found.prime;
    let n = f64::from(prime);
    let row = |id: &str, name: &str, ours, unit| {
        Row::alone(
            format!("features.dcode.p{prime}.{id}"),
            format!("D-Code, n = {prime}: {name}"),
            ours,
            unit,
            NOT_MEASURED,
        )
    };
    let exact = Rule::Within(1e-9);
    let not = "the schedule does not reach the bound";
    let saved = 100.0 * (1.0 - found.reads.1 / found.reads.0);
    let reads = row(
        "reads-saved",
        "reads saved in the recovery of one disk",
        saved,
        Unit::Percent,
    );
    vec![
        row(
            "any-two",
            "pairs of disks whose loss is survived",
            if found.any_two { 100.0 } else { 0.0 },
            Unit::Percent,
        )
        .against(100.0, exact, "some pair cannot be recovered"),
        row(
            "efficiency",
            "share of data",
            found.efficiency,
            Unit::Percent,
        )
        .against(100.0 * (n - 2.0) / n, exact, "the code is not MDS"),
        row(
            "encode",
            "XORs per data element to encode",
            found.encode,
            Unit::Xors,
        )
        .against(2.0 - 2.0 / (n - 2.0), exact, not),
        row(
            "decode",
            "XORs per lost element, two disks lost",
            found.decode,
            Unit::Xors,
        )
        .against(n - 3.0, exact, not),
        row(
            "update",
            "parities that change with a data element",
            found.update,
            Unit::Elements,
        )
        .against(2.0, exact, not),
        reads
            .against(
                READS_SAVED,
                Rule::Within(ABOUT_POINTS),
                "25 % is the limit for many disks; with fewer there is less to choose from",
            )
            .remark(format!(
                "{:.1} elements instead of {:.1}",
                found.reads.1, found.reads.0
            )),
    ]
}

/// The converse of theorem 2: n must be a prime.
fn composite() -> Row {
    let made = [9, 15, 21]
        .into_iter()
        .filter(|&n| erasure::by_parameter("dcode", n).is_ok());
    let row = Row::alone(
        "features.dcode.composite",
        "D-Code, composite n below 25 that is accepted",
        to_f64(made.count() as u64),
        Unit::Ratio,
        NOT_MEASURED,
    );
    row.against(
        0.0,
        Rule::Within(0.0),
        "a code was made that loses pairs of disks",
    )
    .remark("n = 9, 15 and 21 are refused: pairs of disks would be lost for good")
}

fn of_other(found: &Found) -> Vec<Row> {
    let Tested { name, title } = found.tested;
    let prime = found.prime;
    let saved = 100.0 * (1.0 - found.reads.1 / found.reads.0);
    [
        (
            "encode",
            "XORs per data element to encode",
            found.encode,
            Unit::Xors,
        ),
        (
            "decode",
            "XORs per lost element, two disks lost",
            found.decode,
            Unit::Xors,
        ),
        (
            "update",
            "parities that change with a data element",
            found.update,
            Unit::Elements,
        ),
        (
            "reads-saved",
            "reads saved in the recovery of one disk",
            saved,
            Unit::Percent,
        ),
    ]
    .map(|(id, what, ours, unit)| {
        Row::alone(
            format!("features.{name}.p{prime}.{id}"),
            format!("{title}, p = {prime}: {what}"),
            ours,
            unit,
            NOT_MEASURED,
        )
    })
    .to_vec()
}

fn charts(found: &[Found]) -> Vec<Chart> {
    let chart = |id: &str, title: &str, unit: &str, value: fn(&Found) -> f64| {
        let mut chart = Chart::new(
            id,
            title,
            Mark::Lines,
            Axis::categories("p", PRIMES.into_iter().chain([LARGE])),
            Axis::linear(unit),
        );
        chart.series = PAPERS
            .iter()
            .map(|tested| {
                let of_code = found.iter().filter(|found| found.tested == *tested);
                let numbered = of_code.enumerate();
                Series {
                    name: tested.title.to_owned(),
                    ours: numbered
                        .map(|(at, found)| Point::new(to_f64(at as u64), value(found)))
                        .collect(),
                    paper: Vec::new(),
                }
            })
            .collect();
        chart
    };
    let mut encode = chart("encode", "Encoding", "XORs per data element", |found| {
        found.encode
    });
    let formula = PRIMES.into_iter().chain([LARGE]).enumerate();
    if let Some(dcode) = encode.series.last_mut() {
        dcode.paper = formula
            .map(|(at, n)| Point::new(to_f64(at as u64), 2.0 - 2.0 / (f64::from(n) - 2.0)))
            .collect();
    }
    let mut reads = chart(
        "reads-saved",
        "Recovery of one disk",
        "reads saved, %",
        |found| 100.0 * (1.0 - found.reads.1 / found.reads.0),
    );
    reads.references.push(Reference {
        name: "the paper: about 25 % for D-Code".to_owned(),
        low: READS_SAVED,
        high: READS_SAVED,
        series: Some(4),
    });
    vec![encode, reads]
}
