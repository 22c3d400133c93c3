//! Figure 7: read speed with one disk lost.

use stats::to_f64;

use super::speed::{POLICIES, Policy, degraded};
use super::{NOT_MEASURED, PAPERS, PRIMES, Tested, cases};
use crate::chart::{Axis, Chart, Mark, Point, Reference, Series};
use crate::paper::DCODE;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig7;

static ABOUT: About = About {
    id: "dcode-fig7",
    paper: &DCODE,
    title: "Figure 7: degraded read speed",
    question: "How fast are the same reads with one disk gone? The paper rebuilds each lost element \
        from its horizontal equation, whose other elements are mostly wanted anyway: that is what \
        D-Code's order of elements is for. Beside it stand two policies that choose among all \
        equations: fewest reads, and least busy disk (which Ravelin's degraded reads use).",
};

/// D-Code ÷ other − 1, whole arrays, percent, least and greatest of all primes (section V-C).
const FASTER: [(&str, f64, f64); 2] = [("xcode", 11.6, 26.0), ("hdp", 4.1, 62.4)];
/// 1 − D-Code ÷ other, whole arrays.
const SLOWER: [(&str, f64, f64); 2] = [("rdp", 2.3, 4.9), ("hcode", 4.1, 9.6)];
/// D-Code ÷ other − 1 per disk, least and greatest.
const PER_DISK: [(&str, f64, f64); 2] = [("rdp", 5.3, 17.1), ("hcode", 3.3, 8.5)];
/// The same for HDP, by prime.
const PER_DISK_HDP: [f64; 4] = [30.0, 3.5, -3.5, -3.9];
/// Measured reads of a real array agree with the model within this many percentage points.
const POINTS: f64 = 1.6;

struct Found {
    tested: Tested,
    prime: u16,
    disks: u16,
    /// By policy: elements that the array reads while one disk reads one.
    speeds: Vec<f64>,
}

impl Study for Fig7 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&cases(), |&(tested, prime)| {
            let code = tested.code(prime);
            let speed = |(policy, _, _)| degraded(&code, policy, || context.check());
            Ok(Found {
                tested,
                prime,
                disks: code.columns(),
                speeds: POLICIES.into_iter().map(speed).collect::<Result<_, _>>()?,
            })
        })?;
        let mut trace = Trace::default();
        for speed in found.iter().flat_map(|found| &found.speeds) {
            trace.add(speed.to_bits());
        }
        let mut rows = Vec::new();
        for (code, least, most) in FASTER {
            rows.extend(range(
                &found,
                code,
                "",
                "faster than",
                faster,
                (least, most),
            ));
        }
        for (code, least, most) in SLOWER {
            rows.extend(range(
                &found,
                code,
                "",
                "slower than",
                slower,
                (least, most),
            ));
        }
        for (code, least, most) in PER_DISK {
            rows.extend(range(
                &found,
                code,
                "per-disk.",
                "per disk faster than",
                per_disk,
                (least, most),
            ));
        }
        rows.extend(PRIMES.into_iter().zip(PER_DISK_HDP).map(|(prime, paper)| {
            let row = Row::alone(
                format!("fig7.hdp.per-disk.p{prime}"),
                format!("D-Code per disk faster than HDP, p = {prime}"),
                per_disk(&found, of(&found, "hdp", prime)),
                Unit::Percent,
                NOT_MEASURED,
            );
            row.against(paper, Rule::Within(POINTS), SCATTER)
        }));
        for (at, (policy, id, name)) in POLICIES.into_iter().enumerate() {
            rows.extend(found.iter().map(|found| {
                let why = match policy {
                    Policy::Row => NOT_MEASURED,
                    Policy::FewestReads | Policy::SmallestMaximum => {
                        "the paper rebuilds from horizontal equations only"
                    }
                };
                Row::alone(
                    format!("fig7.{}.p{}.{id}", found.tested.name, found.prime),
                    format!(
                        "{}, p = {}, {name}: elements read while a disk reads one",
                        found.tested.title, found.prime
                    ),
                    found.speeds[at],
                    Unit::Ratio,
                    why,
                )
            }));
        }
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: "Reads of 1 to 20 consecutive data elements from anywhere, one disk gone, any of \
                    those that hold data: exact over all of them. Time as in figure 6. Each lost \
                    element is rebuilt from its horizontal equation (HDP's contains the other parity \
                    of its row; X-Code has none and takes the diagonal one); an element that is \
                    needed twice is read once. There is no chance in it, so the seed changes nothing."
                .to_owned(),
            trace: trace.0,
            rows,
            charts: charts(&found),
        })
    }
}

const SCATTER: &str = "beyond what measuring reads scatters";

fn of<'a>(found: &'a [Found], code: &str, prime: u16) -> &'a Found {
    let mut of_code = found.iter().filter(|found| found.tested.name == code);
    of_code
        .find(|found| found.prime == prime)
        .expect("every code with every prime")
}

/// D-Code's speed ÷ another's, under the paper's policy.
fn quotient(found: &[Found], other: &Found) -> f64 {
    of(found, "dcode", other.prime).speeds[0] / other.speeds[0]
}

fn faster(found: &[Found], other: &Found) -> f64 {
    100.0 * (quotient(found, other) - 1.0)
}

fn slower(found: &[Found], other: &Found) -> f64 {
    -faster(found, other)
}

fn per_disk(found: &[Found], other: &Found) -> f64 {
    let disks = f64::from(other.disks) / f64::from(of(found, "dcode", other.prime).disks);
    100.0 * (quotient(found, other) * disks - 1.0)
}

/// The least and the greatest over all primes, next to the paper's.
fn range(
    found: &[Found],
    code: &str,
    id: &str,
    word: &str,
    value: fn(&[Found], &Found) -> f64,
    paper: (f64, f64),
) -> [Row; 2] {
    let of_code = found.iter().filter(|found| found.tested.name == code);
    let mut values: Vec<(f64, &Found)> =
        of_code.map(|other| (value(found, other), other)).collect();
    values.sort_by(|a, b| a.0.total_cmp(&b.0));
    let row = |end: &str, (ours, other): (f64, &Found), paper| {
        let row = Row::alone(
            format!("fig7.{code}.{id}{end}"),
            format!("D-Code {word} {}, {end} of all primes", other.tested.title),
            ours,
            Unit::Percent,
            NOT_MEASURED,
        );
        let row = row.against(paper, Rule::Within(POINTS), SCATTER);
        row.remark(format!("at p = {}", other.prime))
    };
    let last = values.len() - 1;
    [
        row("least", values[0], paper.0),
        row("most", values[last], paper.1),
    ]
}

fn charts(found: &[Found]) -> Vec<Chart> {
    let primes = || Axis::categories("p", PRIMES);
    let unit = "elements while a disk reads one";
    let mut speeds = Chart::new(
        "speed",
        "Degraded read speed, horizontal equations",
        Mark::Bars,
        primes(),
        Axis::linear(unit),
    );
    let mut gain = Chart::new(
        "gain",
        "D-Code's degraded read speed against the others'",
        Mark::Bars,
        primes(),
        Axis::linear("D-Code ÷ other − 1, %"),
    );
    let mut per = Chart::new(
        "per-disk",
        "The same per disk",
        Mark::Bars,
        primes(),
        Axis::linear("D-Code ÷ other − 1 per disk, %"),
    );
    let names = PAPERS.iter().map(|tested| tested.title);
    let mut policies = Chart::new(
        "policies",
        "Three ways to rebuild, p = 13",
        Mark::Bars,
        Axis::categories("code", names),
        Axis::linear(unit),
    );
    for tested in PAPERS {
        let of_code: Vec<&Found> = found
            .iter()
            .filter(|found| found.tested == tested)
            .collect();
        let series = |name: &str, height: fn(&[Found], &Found) -> f64| Series {
            name: name.to_owned(),
            ours: of_code
                .iter()
                .enumerate()
                .map(|(at, other)| Point::new(to_f64(at as u64), height(found, other)))
                .collect(),
            paper: Vec::new(),
        };
        speeds
            .series
            .push(series(tested.title, |_, found| found.speeds[0]));
        if tested.name == "dcode" {
            continue;
        }
        let name = format!("against {}", tested.title);
        let mut whole = series(&name, faster);
        let mut by_disk = series(&name, per_disk);
        if tested.name == "hdp" {
            // The text gives the per-disk numbers by prime; they show at which ends 4.1 and 62.4
            // are.
            whole.paper = vec![Point::new(0.0, FASTER[1].2), Point::new(3.0, FASTER[1].1)];
            let numbered = PER_DISK_HDP.iter().enumerate();
            by_disk.paper = numbered
                .map(|(at, &percent)| Point::new(to_f64(at as u64), percent))
                .collect();
        }
        gain.series.push(whole);
        if tested.name != "xcode" {
            per.series.push(by_disk);
        }
    }
    gain.references = vec![
        Reference {
            name: "the paper: X-Code, all p".to_owned(),
            low: FASTER[0].1,
            high: FASTER[0].2,
            series: Some(3),
        },
        Reference {
            name: "the paper: RDP, all p".to_owned(),
            low: -SLOWER[0].2,
            high: -SLOWER[0].1,
            series: Some(0),
        },
        Reference {
            name: "the paper: H-Code, all p".to_owned(),
            low: -SLOWER[1].2,
            high: -SLOWER[1].1,
            series: Some(1),
        },
    ];
    for (at, (_, _, name)) in POLICIES.into_iter().enumerate() {
        let of_prime = PAPERS
            .iter()
            .enumerate()
            .map(|(x, tested)| Point::new(to_f64(x as u64), of(found, tested.name, 13).speeds[at]));
        policies.series.push(Series {
            name: name.to_owned(),
            ours: of_prime.collect(),
            paper: Vec::new(),
        });
    }
    vec![speeds, gain, per, policies]
}
