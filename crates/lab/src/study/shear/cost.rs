//! Figure 7: how many requests the procedures need.
//!
//! The published procedure makes N·R requests for every stride and 2·N·R for every boundary and every pair of chunks,
//! however long the answers take. So it is counted against a target that computes times from the layout alone: a burst
//! takes as long as its busiest drive has requests. Our procedure decides by its observations and is counted on
//! simulated disks.

use ::array::format::{GroupId, StripeId};
use shear::{Belief, Kind, Probe};
use sim::Form;
use sim::plain::PlainArray;
use stats::to_f64;

use super::volume::{Answer, Run, Step, array, options};
use super::{KIB, REQUESTS, STEP_BYTES, TRIALS, published};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::SHEAR;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig7;

static ABOUT: About = About {
    id: "shear-fig7",
    paper: &SHEAR,
    title: "Figure 7: requests until the array is known",
    question: "How many requests does the published procedure take for RAID-0, RAID-1 and left-asymmetric RAID-5 on \
        4, 8 and 16 drives with chunks of 32 KiB, and how many does ours? The paper: a few millions, and days for \
        RAID-5 on 16 drives, whose 240 chunks are compared pair by pair.",
};

const CHUNK_BYTES: u64 = 32 * KIB;
/// N for RAID-5 on 16 drives, where the full N would take minutes. R is not reduced: at a stride of half the pattern
/// half of all start positions keep the burst on one drive, and few trials might hit only these.
const SHORT_REQUESTS: u32 = 20;

#[derive(Clone, Copy)]
struct Case {
    kind: &'static str,
    title: &'static str,
    drives: u16,
    pattern_chunks: u64,
    /// Millions of requests of the procedure as described, rounded as in the issue.
    millions: Option<f64>,
    /// Ours makes at most the published number divided by this.
    saving: Option<f64>,
}

const fn case(
    (kind, title): (&'static str, &'static str),
    drives: u16,
    pattern_chunks: u64,
    millions: Option<f64>,
    saving: Option<f64>,
) -> Case {
    Case {
        kind,
        title,
        drives,
        pattern_chunks,
        millions,
        saving,
    }
}

const RAID0: (&str, &str) = ("raid0", "RAID-0");
const RAID1: (&str, &str) = ("raid1", "RAID-1");
const LA: (&str, &str) = ("la", "RAID-5 LA");

/// The paper's figure has bars; its text says "in the few millions" and "a few days". The millions here are computed
/// from its procedure with N = 500, R = 10 and strides of 4 KiB up to twice the pattern.
const CASES: [Case; 9] = [
    case(RAID0, 4, 4, Some(0.7), Some(30.0)),
    case(RAID0, 8, 8, Some(1.6), Some(30.0)),
    case(RAID0, 16, 16, Some(3.8), Some(30.0)),
    case(RAID1, 4, 2, None, Some(30.0)),
    case(RAID1, 8, 4, None, Some(30.0)),
    case(RAID1, 16, 8, None, Some(30.0)),
    case(LA, 4, 12, Some(2.6), None),
    case(LA, 8, 56, Some(24.0), Some(100.0)),
    case(LA, 16, 240, Some(325.0), Some(1000.0)),
];

impl Case {
    fn scheme(&self) -> String {
        match self.kind {
            "la" => format!("raid5:la:{}c", self.drives),
            kind => format!("{kind}:{}c", self.drives),
        }
    }

    fn pattern_bytes(&self) -> u64 {
        self.pattern_chunks * CHUNK_BYTES
    }

    /// Offsets in the second step.
    const fn borders(&self) -> u64 {
        self.pattern_chunks * CHUNK_BYTES / STEP_BYTES
    }

    /// Pairs in the third step, each chunk with itself included.
    const fn pairs(&self) -> u64 {
        self.pattern_chunks * (self.pattern_chunks + 1) / 2
    }

    fn name(&self) -> String {
        format!("{} on {}", self.title, self.drives)
    }

    /// Requests, trials, and the factor for the count.
    fn size(&self, full: bool) -> (u32, u32, u64) {
        if full || self.pattern_chunks < 200 {
            return (REQUESTS, TRIALS, 1);
        }
        let share = REQUESTS / SHORT_REQUESTS;
        (SHORT_REQUESTS, TRIALS, u64::from(share))
    }

    fn right(&self, belief: &Belief) -> bool {
        belief.pattern_bytes == Some(self.pattern_bytes())
            && belief.chunk_bytes == Some(CHUNK_BYTES)
    }
}

struct Found {
    case: Case,
    /// By step: pattern, boundaries, pairs, redundancy.
    steps: [u64; 4],
    published_right: bool,
    /// The pattern that the published procedure finds, in bytes.
    pattern: u64,

    ours: u64,
    ours_right: bool,
}

impl Found {
    fn published(&self) -> u64 {
        self.steps.iter().sum()
    }
}

impl Study for Fig7 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let found = context.map(&CASES, |&case| {
            let (requests, trials, share) = case.size(context.full());
            let method = published(requests, trials, case.pattern_bytes());
            let mut placement = Placement::of(&case);
            let run = Run {
                writes: true,
                ..Run::published(method, Step::Redundancy, context.seed())
            };
            let seen = run.on(context, &mut placement)?;
            let each = u64::from(requests) * u64::from(trials);
            let (strides, borders) = (seen.curve.len() as u64, seen.boundaries.len() as u64);
            let pairs = 2 * each * seen.pairs.len() as u64;
            let first = [each * strides, 2 * each * borders, pairs];
            let writes = seen.ios - first.iter().sum::<u64>();
            let published_right = case.right(&seen.belief);
            let [first, second, third] = match published_right {
                true => first,
                false => [first[0], 2 * each * case.borders(), 2 * each * case.pairs()],
            };
            let options = options(&case.scheme(), CHUNK_BYTES);
            let ours = Run::ours(context.seed()).on(context, &mut array(&options))?;
            Ok(Found {
                case,
                steps: [first, second, third, writes].map(|count| count * share),
                published_right,
                pattern: seen.belief.pattern_bytes.unwrap_or(0),
                ours: ours.ios,
                ours_right: case.right(&ours.belief) && ours.belief.drives == Some(case.drives),
            })
        })?;
        let mut trace = Trace::default();
        for found in &found {
            found.steps.iter().for_each(|&count| trace.add(count));
            trace.add(found.ours);
        }
        let short = match context.full() {
            true => "",
            false => {
                " RAID-5 LA on 16 drives is asked with N = 20, and its count multiplied by 25: the count is \
                 N·R times the number of strides, boundaries and pairs."
            }
        };
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Published: N = {REQUESTS}, R = {TRIALS}, strides of 4 KiB up to twice the pattern, asked of a target \
                 that answers from the layout alone. Ours: on \
                 simulated 9LZX, all steps, reads and writes.{short}"
            ),
            trace: trace.0,
            rows: found.iter().flat_map(rows).collect(),
            charts: vec![steps_chart(&found), both_chart(&found)],
        })
    }
}

fn rows(found: &Found) -> Vec<Row> {
    let case = &found.case;
    let id = |what: &str| format!("fig7.{}x{}.{what}", case.kind, case.drives);
    let millions = to_f64(found.published()) / 1e6;
    let mut count = Row::alone(
        id("published"),
        format!("{}: millions of requests, published procedure", case.name()),
        millions,
        Unit::Requests,
        "the text gives \"in the few millions\" for RAID-0 and RAID-1",
    );
    if let Some(paper) = case.millions {
        count = count.against(
            paper,
            Rule::WithinShare(0.08),
            "the procedure does not come to what N = 500 and R = 10 give",
        );
    }
    if !found.published_right {
        count = count.remark(format!(
            "the published procedure takes {} KiB for the pattern, and not {}: too few of its strides keep to one drive for \
             x-means to set them apart; its later steps are counted for the right pattern",
            found.pattern / KIB,
            case.pattern_bytes() / KIB
        ));
    }
    let saving = to_f64(found.published()) / to_f64(found.ours);
    let mut saved = Row::alone(
        id("saving"),
        format!("{}: published requests ÷ ours", case.name()),
        saving,
        Unit::Ratio,
        "no number was set for this array",
    );
    if let Some(least) = case.saving {
        saved = saved
            .against(least, Rule::AtLeast, "ours takes more than was set")
            .remark("the number beside it is the one that was set for ours: the paper has none");
    }
    let ours = Row::alone(
        id("ours"),
        format!("{}: requests, ours", case.name()),
        to_f64(found.ours),
        Unit::Requests,
        match found.ours_right {
            true => "pattern, chunk and drives are right",
            false => "the answer is wrong or missing",
        },
    );
    vec![count, ours, saved]
}

fn steps_chart(found: &[Found]) -> Chart {
    let mut chart = Chart::new(
        "steps",
        "Requests of the published procedure by step",
        Mark::Lines,
        Axis::categories("array", found.iter().map(|one| one.case.name())),
        Axis::log("requests"),
    );
    for (at, name) in ["pattern", "boundaries", "pairs", "redundancy"]
        .into_iter()
        .enumerate()
    {
        chart.series.push(series(name, found, |one| one.steps[at]));
    }
    chart.series.push(series("total", found, Found::published));
    chart
}

fn both_chart(found: &[Found]) -> Chart {
    let mut chart = Chart::new(
        "both",
        "Requests of both procedures",
        Mark::Lines,
        Axis::categories("array", found.iter().map(|one| one.case.name())),
        Axis::log("requests"),
    );
    chart
        .series
        .push(series("published", found, Found::published));
    chart.series.push(series("ours", found, |one| one.ours));
    chart
}

fn series(name: &str, found: &[Found], count: impl Fn(&Found) -> u64) -> Series {
    let points = (0..).zip(found);
    Series {
        name: name.to_owned(),
        ours: points
            .map(|(at, one)| Point::new(to_f64(at), to_f64(count(one))))
            .collect(),
        paper: Vec::new(),
    }
}

/// An array reduced to its layout: the drives of each chunk.
struct Placement {
    chunk_bytes: u64,
    copies: usize,
    /// `copies` seats for each chunk.
    seats: Vec<u16>,
    /// Requests of the burst by seat.
    load: Vec<u64>,
}

impl Placement {
    fn of(case: &Case) -> Self {
        Self::new(&array(&options(&case.scheme(), CHUNK_BYTES)))
    }

    fn new(array: &PlainArray) -> Self {
        let geometry = array.geometry();
        let copies = match geometry.code().name() {
            "mirror" => usize::from(geometry.code().columns()),
            _ => 1,
        };
        let data: Vec<usize> = geometry.code().data_slots().collect();
        let mut seats = Vec::new();
        for group in (0..geometry.groups()).map(GroupId) {
            for stripe in (0..geometry.stripes_per_group()).map(StripeId) {
                for &slot in &data {
                    for copy in 0..copies {
                        let (column, _) = geometry.place(group, stripe, Form::Parity, slot + copy);
                        seats.push(geometry.home(group, column).seat.0);
                    }
                }
            }
        }
        Self {
            chunk_bytes: geometry.chunk_bytes(),
            copies,
            seats,
            load: vec![0; usize::from(array.seats())],
        }
    }
}

impl Answer for Placement {
    fn size_bytes(&self) -> u64 {
        (self.seats.len() / self.copies) as u64 * self.chunk_bytes
    }

    /// One millisecond for each request of the same drive. A read goes to the copy with the fewest requests; a write
    /// goes to all copies. Parity is left out: it changes the write's time, not the number of requests.
    fn answer(&mut self, probe: &Probe) -> Vec<u64> {
        self.load.fill(0);
        let mut times = Vec::with_capacity(probe.requests.len());
        for request in &probe.requests {
            let chunk = usize::try_from(request.offset / self.chunk_bytes).expect("in the volume");
            let copies = &self.seats[chunk * self.copies..][..self.copies];
            if request.kind == Kind::Rewrite {
                let done = copies.iter().map(|&seat| {
                    let load = &mut self.load[usize::from(seat)];
                    *load += 1;
                    *load
                });
                times.push(done.max().unwrap_or(0) * 1_000_000);
                continue;
            }
            let least = copies
                .iter()
                .min_by_key(|&&seat| self.load[usize::from(seat)]);
            let seat = usize::from(*least.expect("at least one copy"));
            self.load[seat] += 1;
            times.push(self.load[seat] * 1_000_000);
        }
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layout_answers_as_long_as_its_busiest_drive_is() {
        for kind in ["raid0", "raid1", "la"] {
            let case = CASES
                .iter()
                .find(|case| case.kind == kind && case.drives == 4);
            let case = case.unwrap();
            let mut placement = Placement::of(case);
            let mut time = |stride: u64, count: u64| {
                let requests = (0..count).map(|at| shear::Request {
                    offset: at * stride,
                    length: 4096,
                    kind: shear::Kind::Read,
                });
                let requests = requests.collect();
                placement.answer(&Probe { requests }).into_iter().max()
            };
            let copies = if kind == "raid1" { 2 } else { 1 };
            let all = time(case.pattern_bytes(), 8);
            assert_eq!(
                all,
                Some(8_000_000 / copies),
                "{kind}: a pattern apart is one drive"
            );
            let two = time(CHUNK_BYTES, 2);
            assert_eq!(two, Some(1_000_000), "{kind}: a chunk apart is another");
        }
    }
}
