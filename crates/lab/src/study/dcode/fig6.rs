//! Figure 6: read speed with all disks present.

use stats::to_f64;

use super::speed::normal;
use super::{NOT_MEASURED, PAPERS, PRIMES, Tested, cases};
use crate::chart::{Axis, Chart, Mark, Point, Reference, Series};
use crate::paper::DCODE;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig6;

static ABOUT: About = About {
    id: "dcode-fig6",
    paper: &DCODE,
    title: "Figure 6: normal read speed",
    question: "How fast are reads of 1 to 20 elements with all disks there? A read takes as long as \
        its busiest disk, so what counts is over how many disks neighbouring data elements lie. One \
        of the paper's speeds (RDP, p = 7) says how many MB/s an element is; the others follow.",
};

/// By how many percent, at most, D-Code is faster than these (section V-B): whole arrays, and per
/// disk.
const UP_TO: [(&str, f64, f64); 3] = [
    ("rdp", 21.3, 45.6),
    ("hcode", 13.5, 36.2),
    ("hdp", 31.0, 12.2),
];
/// MB/s of whole arrays (section V-B). The first gives the size of an element.
const SPEEDS: [(&str, u16, f64); 5] = [
    ("rdp", 7, 86.3),
    ("rdp", 11, 127.5),
    ("hcode", 11, 127.5),
    ("hdp", 13, 128.4),
    ("dcode", 11, 130.8),
];
/// Measured reads of a real array agree with the model within this many percentage points.
const POINTS: f64 = 1.6;
/// Speeds agree within this share.
const SHARE: f64 = 0.016;

struct Found {
    tested: Tested,
    prime: u16,
    disks: u16,
    /// Elements that the array reads while one disk reads one.
    speed: f64,
}

impl Study for Fig6 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&cases(), |&(tested, prime)| {
            let code = tested.code(prime);
            Ok(Found {
                tested,
                prime,
                disks: code.columns(),
                speed: normal(&code),
            })
        })?;
        let mut trace = Trace::default();
        found
            .iter()
            .for_each(|found| trace.add(found.speed.to_bits()));
        let element = SPEEDS[0].2 / of(&found, SPEEDS[0].0, SPEEDS[0].1).speed;
        let mut rows = Vec::new();
        rows.extend(
            SPEEDS
                .iter()
                .enumerate()
                .map(|(at, speed)| megabytes(&found, at, speed, element)),
        );
        for (code, whole, per_disk) in UP_TO {
            rows.push(most(&found, code, "most", "", false, whole));
            rows.push(most(
                &found,
                code,
                "per-disk.most",
                " per disk",
                true,
                per_disk,
            ));
        }
        rows.push(as_fast_as_xcode(&found));
        rows.extend(found.iter().map(|found| {
            Row::alone(
                format!("fig6.{}.p{}.speed", found.tested.name, found.prime),
                format!(
                    "{}, p = {}: elements read while a disk reads one",
                    found.tested.title, found.prime
                ),
                found.speed,
                Unit::Ratio,
                NOT_MEASURED,
            )
        }));
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Reads of 1 to 20 consecutive data elements from anywhere, exact over all of them. \
                 Each element takes its disk the same time, disks work in parallel, a read is done \
                 when its busiest disk is. No seeks, no controller, no rotation of stripes. The \
                 paper's 86.3 MB/s of RDP with p = 7 is {element:.2} MB/s for an element's turn; the \
                 other speeds in MB/s use that. There is no chance in it, so the seed changes nothing."
            ),
            trace: trace.0,
            rows,
            charts: charts(&found, element),
        })
    }
}

fn of<'a>(found: &'a [Found], code: &str, prime: u16) -> &'a Found {
    let mut of_code = found.iter().filter(|found| found.tested.name == code);
    of_code
        .find(|found| found.prime == prime)
        .expect("every code with every prime")
}

/// How much faster D-Code is, in percent.
fn faster(found: &[Found], other: &Found, per_disk: bool) -> f64 {
    let dcode = of(found, "dcode", other.prime);
    let speed = |found: &Found| match per_disk {
        true => found.speed / f64::from(found.disks),
        false => found.speed,
    };
    100.0 * (speed(dcode) / speed(other) - 1.0)
}

fn megabytes(found: &[Found], at: usize, speed: &(&str, u16, f64), element: f64) -> Row {
    let &(code, prime, paper) = speed;
    let found = of(found, code, prime);
    let row = Row::alone(
        format!("fig6.speed.{code}.p{prime}"),
        format!("{}, p = {prime}: read speed", found.tested.title),
        found.speed * element,
        Unit::MegabytesPerSecond,
        "this speed of the paper's sets the scale for the others",
    );
    match at {
        0 => row.beside(paper),
        _ => row.against(
            paper,
            Rule::WithinShare(SHARE),
            "disks are not equally fast for all of these",
        ),
    }
}

fn most(found: &[Found], code: &str, id: &str, which: &str, per_disk: bool, paper: f64) -> Row {
    let of_code = found.iter().filter(|found| found.tested.name == code);
    let (ours, other) = of_code
        .map(|other| (faster(found, other, per_disk), other))
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .expect("four primes");
    let row = Row::alone(
        format!("fig6.{code}.{id}"),
        format!(
            "D-Code faster than {}{which}, greatest of all primes",
            other.tested.title
        ),
        ours,
        Unit::Percent,
        NOT_MEASURED,
    );
    let row = row.against(
        paper,
        Rule::Within(POINTS),
        "beyond what measuring reads scatters",
    );
    row.remark(format!("at p = {}", other.prime))
}

fn as_fast_as_xcode(found: &[Found]) -> Row {
    let of_code = found.iter().filter(|found| found.tested.name == "xcode");
    let most = of_code
        .map(|other| faster(found, other, false).abs())
        .fold(0.0, f64::max);
    let row = Row::alone(
        "fig6.xcode.most",
        "D-Code's speed against X-Code's, greatest difference",
        most,
        Unit::Percent,
        NOT_MEASURED,
    );
    let row = row.against(0.0, Rule::Within(POINTS), "their data lies alike");
    row.remark(
        "the paper says \u{201c}very close\u{201d}, for their data elements lie in the same places",
    )
}

fn charts(found: &[Found], element: f64) -> Vec<Chart> {
    let mut speeds = Chart::new(
        "speed",
        "Normal read speed of the array",
        Mark::Bars,
        Axis::categories("p", PRIMES),
        Axis::linear("MB/s"),
    );
    let mut gain = Chart::new(
        "gain",
        "How much faster D-Code reads",
        Mark::Bars,
        Axis::categories("p", PRIMES),
        Axis::linear("D-Code ÷ other − 1, %"),
    );
    for tested in PAPERS {
        let of_code: Vec<&Found> = found
            .iter()
            .filter(|found| found.tested == tested)
            .collect();
        let points = |height: &dyn Fn(&Found) -> f64| -> Vec<Point> {
            let numbered = of_code.iter().enumerate();
            numbered
                .map(|(at, found)| Point::new(to_f64(at as u64), height(found)))
                .collect()
        };
        let of_paper = SPEEDS.iter().filter(|(code, _, _)| *code == tested.name);
        let place = |prime| {
            PRIMES
                .iter()
                .position(|&other| other == prime)
                .unwrap_or_default()
        };
        speeds.series.push(Series {
            name: tested.title.to_owned(),
            ours: points(&|found| found.speed * element),
            paper: of_paper
                .map(|&(_, prime, speed)| Point::new(to_f64(place(prime) as u64), speed))
                .collect(),
        });
        if let Some((_, paper, _)) = UP_TO.iter().find(|(code, _, _)| *code == tested.name) {
            gain.series.push(Series {
                name: format!("over {}", tested.title),
                ours: points(&|other| faster(found, other, false)),
                paper: Vec::new(),
            });
            gain.references.push(Reference {
                name: format!("the paper: up to {paper} % over {}", tested.title),
                low: *paper,
                high: *paper,
                series: Some(gain.series.len() - 1),
            });
        }
    }
    vec![speeds, gain]
}
