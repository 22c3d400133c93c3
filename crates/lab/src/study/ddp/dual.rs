//! Two failures, which the paper leaves open (section 5): how long groups that lost both have no redundancy.

use std::collections::BTreeSet;
use std::time::Duration;

use block::Seat;
use rand::RngExt;
use sim::StudyVolume;
use sim::load::Target;
use stats::to_f64;

use super::{DDP, DRIVE_BYTES, DRIVES, IMPLIED_RATE, Scale, throttled};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DDP_PAPER;
use crate::report::Report;
use crate::row::{Row, Unit};
use crate::study::runs::{finish, seconds};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Dual;

static ABOUT: About = About {
    id: "ddp-dual",
    paper: &DDP_PAPER,
    title: "Section 5, left open: two failures, in order of redundancy and in order of address",
    question: "Two drives of 60 fail one after the other. A group that lost a column on each cannot lose \
        a third; about one in seven of a drive's groups did. How long is that until the last of them \
        has redundancy again, where they are rebuilt first, and where all are rebuilt in order of \
        address?",
};

/// Drives, volumes and pieces: the time of a rebuild shrinks by as much. A piece still takes eight steps, so that the
/// time of one step does not count.
const SCALE: Scale = Scale(16);
/// Pairs of failed drives.
const PAIRS: usize = 100;
/// Of these, the pairs that are rebuilt to the end by default. The time that takes hardly differs from pair to pair, so
/// its median stands for the others.
const WHOLE: usize = 5;
/// Pairs that a thread does on copies of one pool.
const PAIRS_AT_ONCE: usize = 5;

/// Looks in the time that two drives take.
const LOOKS: u32 = 400;

/// When the second drive fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Second {
    /// Ten seconds after the first.
    TenSeconds,
    /// When a third of the first rebuild's cells are done.
    Third,
}

const SECONDS: [(Second, &str, &str); 2] = [
    (Second::TenSeconds, "10s", "ten seconds after the first"),
    (Second::Third, "third", "at a third of the first rebuild"),
];

/// The order of cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Redundancy,
    Address,
}

const ORDERS: [(Order, &str, &str); 2] = [
    (Order::Redundancy, "redundancy", "in order of redundancy"),
    (Order::Address, "address", "in order of address"),
];

#[derive(Clone, Debug)]
struct Task {
    second: Second,
    order: Order,
    pairs: Vec<(Seat, Seat)>,
    /// They are rebuilt to the end.
    whole: bool,
}

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Size {
    scale: Scale,
    pairs: usize,
    /// Pairs that are rebuilt to the end, and in order of address.
    whole: usize,
}

/// What became of one pair, in seconds since the second failure.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// Groups that lost a column on each.
    groups: u64,
    /// Until the last of them had redundancy again.
    critical: f64,
    /// Until everything had its full redundancy again, if the pair was rebuilt to the end.
    full: Option<f64>,
}

impl Study for Dual {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let whole = match context.full() {
            true => PAIRS,
            false => WHOLE,
        };
        let size = Size {
            scale: SCALE,
            pairs: PAIRS,
            whole,
        };
        report(context, size)
    }
}

fn report(context: &Context<'_>, size: Size) -> Result<Report, Stopped> {
    let scale = size.scale;
    let pairs = choose(context, size.pairs);
    let (whole, others) = pairs.split_at(size.whole.min(pairs.len()));
    let mut tasks = Vec::new();
    for (second, ..) in SECONDS {
        for (order, ..) in ORDERS {
            let mut add = |pairs: &[(Seat, Seat)], whole| {
                tasks.extend(pairs.chunks(PAIRS_AT_ONCE).map(|pairs| Task {
                    second,
                    order,
                    pairs: pairs.to_vec(),
                    whole,
                }));
            };
            add(whole, true);
            // In order of address the last of these groups is among the last of all.
            if order == Order::Redundancy {
                add(others, false);
            }
        }
    }
    let found = context.map(&tasks, |task| measure(context, task, scale))?;
    let mut trace = Trace::default();
    found.iter().for_each(|(_, of_task)| trace.add(*of_task));
    let of = |second, order| -> Vec<Lost> {
        let these = tasks.iter().zip(&found);
        let these = these.filter(|(task, _)| (task.second, task.order) == (second, order));
        these.flat_map(|(_, (lost, _))| lost.clone()).collect()
    };
    let mut rows = Vec::new();
    let mut chart = Chart::new(
        "critical",
        "Time without redundancy of groups that lost both, of the time to full redundancy",
        Mark::Bars,
        Axis::categories("", SECONDS.map(|(_, _, name)| name)),
        Axis::linear("share, median of the pairs").from_to(0.0, 1.0),
    );
    chart.band = "a tenth of the pairs is below, a tenth above";
    for (order, order_id, order_name) in ORDERS {
        let mut series = Series {
            name: order_name.to_owned(),
            ..Series::default()
        };
        for (at, (second, id, name)) in SECONDS.into_iter().enumerate() {
            let lost = of(second, order);
            let spread = shares(&lost);
            series
                .ours
                .push(Point::new(to_f64(at as u64), spread.median).band((spread.low, spread.high)));
            rows.extend(of_order((id, name), (order_id, order_name), &lost, scale));
        }
        chart.series.push(series);
    }
    for (second, id, name) in SECONDS {
        let [first, address] = [Order::Redundancy, Order::Address].map(|order| of(second, order));
        let later = first.iter().zip(&address);
        let later = Spread::of(later.map(|(first, address)| address.critical / first.critical));
        rows.push(
            Row::alone(
                format!("dual.{id}.later"),
                format!("second failure {name}: by address ÷ by redundancy, median"),
                later.median,
                Unit::Ratio,
                "the paper leaves two failures open; expected: at least 2",
            )
            .band((later.low, later.high)),
        );
    }
    Ok(Report {
        about: &ABOUT,
        seed: context.seed(),
        full: context.full(),
        model: format!(
            "Our whole pool with journal and checksums, `{DDP}` with eight volumes of 1230 GB, at the rate \
             that 312 minutes imply ({:.2} MB/s of each drive, no seeks), no clients. Drives, volumes, \
             pieces and the ten seconds have one part in {} of their size, which leaves the number of \
             pieces and all shares of time as they are. {} pairs of drives by chance, the same for all \
             runs, of which {} are rebuilt to the end and in order of address, too; the others' time to full \
             redundancy is taken to be the median of those. Bands: a tenth of the pairs is below, a tenth \
             above.",
            to_f64(IMPLIED_RATE) / 1e6,
            scale.0,
            pairs.len(),
            whole.len(),
        ),
        trace: trace.0,
        rows,
        charts: vec![chart],
    })
}

/// Different pairs of drives.
fn choose(context: &Context<'_>, count: usize) -> Vec<(Seat, Seat)> {
    let mut random = context.random("pairs");
    let mut pairs = BTreeSet::new();
    let mut chosen = Vec::new();
    while chosen.len() < count {
        let pair = (
            Seat(random.random_range(0..DRIVES)),
            Seat(random.random_range(0..DRIVES)),
        );
        if pair.0 != pair.1 && pairs.insert(pair) {
            chosen.push(pair);
        }
    }
    chosen
}

fn measure(context: &Context<'_>, task: &Task, scale: Scale) -> Result<(Vec<Lost>, u64), Stopped> {
    let whole = scale.ddp(throttled(DRIVE_BYTES));
    let mut trace = Trace::default();
    let mut all = Vec::new();
    for &pair in &task.pairs {
        let mut volume = whole.clone();
        if task.order == Order::Address {
            volume.fill_by_address();
        }
        all.push(lose(context, &mut volume, pair, task, scale)?);
        trace.add(volume.trace());
    }
    Ok((all, trace.0))
}

fn lose(
    context: &Context<'_>,
    volume: &mut StudyVolume,
    (first, second): (Seat, Seat),
    task: &Task,
    scale: Scale,
) -> Result<Lost, Stopped> {
    volume.fail(first).expect("the drive is there");
    let began = volume.now();
    match task.second {
        Second::TenSeconds => {
            let delay = Duration::from_secs(10) / u32::try_from(scale.0).expect("a small scale");
            let at = began + delay;
            while volume.poll_timeout().is_some_and(|next| next <= at) {
                let next = volume.poll_timeout().expect("just seen");
                volume.handle_timeout(next);
            }
            volume.handle_timeout(at);
        }
        Second::Third => {
            let third = |volume: &StudyVolume| {
                let progress = volume.rebuild();
                let some = progress.cells_total > 0;
                (some && 3 * progress.cells_done >= progress.cells_total).then(|| volume.now())
            };
            finish(context, volume, third)?;
        }
    }
    let failed = volume.now();
    volume.fail(second).expect("the drive is there");
    // The time between two looks, a small part of the whole: looking goes through all groups.
    let look = Duration::from_secs(64 * 60) / LOOKS / u32::try_from(scale.0).expect("small");
    let mut groups = 0;
    let critical = loop {
        context.check()?;
        let next = volume.now() + look;
        while volume.poll_timeout().is_some_and(|at| at <= next) {
            let at = volume.poll_timeout().expect("just seen");
            volume.handle_timeout(at);
        }
        volume.handle_timeout(next);
        context.passed(u64::try_from(look.as_nanos()).unwrap_or(0));
        let now = volume.groups_without_redundancy();
        groups = now.max(groups);
        if groups > 0 && now == 0 {
            break seconds(failed, volume.now());
        }
    };
    let full = match (volume.rebuild().ended, task.whole) {
        (Some(ended), _) => Some(ended),
        (None, true) => Some(finish(context, volume, |volume| volume.rebuild().ended)?),
        (None, false) => None,
    };
    assert_eq!(volume.rebuild().cells_lost, 0, "the code survives two");
    Ok(Lost {
        groups,
        critical,
        full: full.map(|ended| seconds(failed, ended)),
    })
}

/// Time to full redundancy, of the pairs that were rebuilt to the end.
fn full(lost: &[Lost]) -> Spread {
    Spread::of(lost.iter().filter_map(|lost| lost.full))
}

/// Time without redundancy, of the time to full redundancy.
fn shares(lost: &[Lost]) -> Spread {
    let usual = full(lost).median;
    let share = |lost: &Lost| lost.critical / lost.full.unwrap_or(usual);
    Spread::of(lost.iter().map(share))
}

/// The median of some samples, and what a tenth of them is below and above.
#[derive(Clone, Copy, Debug)]
struct Spread {
    low: f64,
    median: f64,
    high: f64,
}

impl Spread {
    fn of(samples: impl Iterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.collect();
        samples.sort_by(f64::total_cmp);
        let at = |tenths: usize| samples[(samples.len() - 1) * tenths / 10];
        Self {
            low: at(1),
            median: at(5),
            high: at(9),
        }
    }

    fn scaled(self, factor: f64) -> Self {
        Self {
            low: self.low * factor,
            median: self.median * factor,
            high: self.high * factor,
        }
    }
}

fn of_order(
    (id, name): (&str, &str),
    (order_id, order_name): (&str, &str),
    lost: &[Lost],
    scale: Scale,
) -> Vec<Row> {
    let minutes = to_f64(scale.0) / 60.0;
    let row = |part: &str, what: &str, spread: Spread, unit: Unit, why: &str| {
        Row::alone(
            format!("dual.{id}.{order_id}.{part}"),
            format!("second failure {name}, {order_name}: {what}, median"),
            spread.median,
            unit,
            why,
        )
        .band((spread.low, spread.high))
    };
    let open = "the paper leaves two failures open";
    let expected = match order_id {
        "redundancy" => "the paper leaves two failures open; expected: at most 0.2",
        _ => open,
    };
    vec![
        row(
            "share",
            "groups that lost both have redundancy again, of the time to full redundancy",
            shares(lost),
            Unit::Ratio,
            expected,
        ),
        row(
            "critical",
            "until groups that lost both have redundancy again",
            Spread::of(lost.iter().map(|lost| lost.critical)).scaled(minutes),
            Unit::Minutes,
            open,
        ),
        row(
            "full",
            "until everything has full redundancy again",
            full(lost).scaled(minutes),
            Unit::Minutes,
            open,
        ),
        row(
            "groups",
            "groups that lost both",
            Spread::of(lost.iter().map(|lost| to_f64(lost.groups))),
            Unit::Groups,
            "9/59 of a drive's groups, if placement is even",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Progress;

    #[test]
    fn groups_that_lost_both_come_first_in_order_of_redundancy() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let size = Size {
            scale: Scale(64),
            pairs: 2,
            whole: 1,
        };
        let report = report(&context, size).expect("nothing stops it");
        let ours = |id: &str| report.row(&format!("dual.{id}")).expect("it is there").ours;
        for when in ["10s", "third"] {
            let share = ours(&format!("{when}.redundancy.share"));
            // Steps are a larger part of smaller pieces.
            assert!(share <= 0.3, "{when}: {share}");
            let later = ours(&format!("{when}.later"));
            assert!(later >= 2.0, "{when}: {later}");
        }
        // 9/59 of 382 pieces.
        let groups = ours("10s.redundancy.groups");
        assert!((48.0..=70.0).contains(&groups), "{groups}");
    }
}
