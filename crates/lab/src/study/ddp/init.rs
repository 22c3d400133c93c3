//! Section 2.4: initialisation of the volumes.

use block::{Instant, Request, RequestKind};
use sim::StudyVolume;
use sim::load::Target;
use sim::model::{IoKind, Operation};
use stats::to_f64;

use super::{DDP, DRIVE_BYTES, IMPLIED_RATE, MIB, Scale, disk, throttled};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DDP_PAPER;
use crate::report::Report;
use crate::row::{Row, Unit};
use crate::study::runs::seconds;
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Init;

static ABOUT: About = About {
    id: "ddp-init",
    paper: &DDP_PAPER,
    title: "Section 2.4: time to initialise eight volumes",
    question: "The paper's pool zeroed all space of its eight volumes, and took four hours for that. Ours \
        zeroes nothing before it is written. How long would zeroing take at the rate of the paper's \
        rebuild, and how long is it until our pool accepts the first write?",
};

/// Section 2.4: 4 hours and 17 minutes, for all eight in parallel.
const MINUTES: f64 = 257.0;
/// Bytes of an operation that zeroes.
const STEP_BYTES: u64 = 64 * MIB;

impl Study for Init {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let zeroed = zero(context)?;
        context.check()?;
        let (first, trace) = first_write();
        let trace = {
            let mut all = Trace::default();
            all.add(trace);
            all.add(zeroed.to_bits());
            all.0
        };
        let mut chart = Chart::new(
            "minutes",
            "Minutes until eight volumes are initialised, or accept writes",
            Mark::Bars,
            Axis::categories("", ["zeroed", "first write accepted"]),
            Axis::linear("minutes"),
        );
        chart.series = vec![Series {
            name: "DDP".to_owned(),
            ours: vec![Point::new(0.0, zeroed), Point::new(1.0, first / 60.0)],
            paper: vec![Point::new(0.0, MINUTES)],
        }];
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Zeroing: the pieces that `{DDP}` gives to eight volumes of 1230 GB, by our table of \
                 members, each drive zeroing its own at {:.2} MB/s, the rate that 312 minutes for 300 GB \
                 imply. First write: our whole pool on 60 disks of 300 GB at 15,000 rpm (preset 15k), from \
                 the beginning of its creation: labels of all drives, the volume, 4 KiB written and \
                 answered. There is no chance in it, so the seed changes nothing.",
                to_f64(IMPLIED_RATE) / 1e6,
            ),
            trace,
            rows: rows(zeroed, first),
            charts: vec![chart],
        })
    }
}

/// Minutes until the busiest drive has zeroed its pieces.
fn zero(context: &Context<'_>) -> Result<f64, Stopped> {
    let drive = throttled(DRIVE_BYTES);
    let pool = Scale::WHOLE.ddp(drive.clone());
    let geometry = pool.world().pool().geometry();
    let layout = geometry.layout();
    let groups = pool.capacity_bytes().div_ceil(geometry.group_data_bytes());
    let mut pieces = vec![0_u64; usize::from(layout.drives())];
    for group in 0..groups {
        for column in 0..layout.columns() {
            pieces[layout.cell(group, column).seat.index()] += 1;
        }
    }
    let mut last = Instant::ZERO;
    for count in pieces {
        context.check()?;
        let mut model = drive.build();
        for token in 0..count * geometry.cell_bytes() / STEP_BYTES {
            let operation = Operation {
                token,
                kind: IoKind::Write,
                offset: token * STEP_BYTES,
                length: STEP_BYTES,
            };
            model.handle_operation(Instant::ZERO, operation);
        }
        while let Some(at) = model.poll_timeout() {
            model.handle_timeout(at);
            while model.poll_done().is_some() {}
            last = last.max(at);
        }
    }
    context.passed(last.0);
    Ok(seconds(Instant::ZERO, last) / 60.0)
}

/// Seconds until our pool has answered the first write, from the beginning of its creation.
fn first_write() -> (f64, u64) {
    let mut volume: StudyVolume = Scale::WHOLE.lazy_ddp(disk());
    let request = Request {
        kind: RequestKind::Write,
        offset: 0,
        length: block::BLOCK_BYTES,
        fua: false,
    };
    let began = volume.now();
    volume.handle_request(began, 1, request);
    let mut outcome = volume.poll_done();
    while outcome.is_none() {
        let at = volume.poll_timeout().expect("the write goes on");
        volume.handle_timeout(at);
        outcome = volume.poll_done();
    }
    assert_eq!(outcome, Some((1, Ok(()))));
    (seconds(Instant::ZERO, volume.now()), volume.trace())
}

fn rows(zeroed: f64, first: f64) -> Vec<Row> {
    vec![
        Row::alone(
            "init.zeroed",
            "eight volumes of 1230 GB zeroed, at the implied rate",
            zeroed,
            Unit::Minutes,
            "the rate is that of the paper's RAID-6 rebuild, while its initialisation had a rate of its own \
             (205 GB of each drive in 257 minutes are 13.3 MB/s)",
        )
        .beside(MINUTES),
        Row::alone(
            "init.first-write",
            "our pool: until the first write is accepted",
            first,
            Unit::Seconds,
            "the paper's volumes accept writes at once, too, and are zeroed behind that; ours are never \
             zeroed: a group is made blank when it is first written, so there is nothing to wait for and \
             no initialisation that costs clients bandwidth",
        )
        .beside(MINUTES * 60.0),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Progress;

    #[test]
    fn zeroing_takes_hours_and_the_first_write_does_not_wait_for_it() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let report = Init.run(&context).expect("nothing stops it");
        let ours = |id: &str| report.row(&format!("init.{id}")).expect("it is there").ours;
        assert!((ours("zeroed") - 213.0).abs() <= 3.0, "{}", ours("zeroed"));
        let first = ours("first-write");
        assert!(first > 0.0 && first < 5.0, "{first}");
        assert_eq!(report.verdicts().not_comparable, 2);
    }
}
