//! Table 1: blocks read and written per block of random access, of parity and of copies.

use array::pool::RegionSizes;
use array::{IoKind, Origin};
use block::{BLOCK_BYTES, Seat};
use sim::load::{Access, Arrivals, Load, LoadOptions, Run, Target};
use sim::model::{ModelOptions, Preset, preset};
use sim::{LogBlocks, StudyOptions, StudyVolume, Tally, Where};
use stats::to_f64;

use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::ELASTIC;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::runs::requests;
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Table1;

static ABOUT: About = About {
    id: "elastic-table1",
    paper: &ELASTIC,
    title: "Table 1: write and read amplification under random access",
    question: "A block of 4 KiB is overwritten at random, or read while a drive is away. How many \
        blocks do the drives read and write for that, where stripes are kept as parity and where \
        they are kept as copies? The paper calculates; here the operations are counted that our \
        planner and log submit.",
};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Data columns; one parity.
const DATA: u16 = 3;
const DRIVES: u16 = DATA + 1;
/// The paper's strip (section 5).
const CHUNK_BYTES: u64 = 4 * KIB;
/// Distance from the paper's number at which ours holds.
const NEAR: f64 = 0.02;
const AWAY: Seat = Seat(2);

const MODEL: &str = "one server, 20 µs and 2 GB/s";

/// The size of a run.
#[derive(Clone, Copy, Debug)]
struct Size {
    volume_bytes: u64,
    ring_bytes: u64,
    clients: u32,
    overwrites: u64,
    reads: u64,
}

const DEFAULT: Size = Size {
    volume_bytes: 1024 * MIB,
    ring_bytes: MIB,
    clients: 768,
    overwrites: 40_000,
    reads: 40_000,
};

const FULL: Size = Size {
    overwrites: 400_000,
    reads: 400_000,
    ..DEFAULT
};

/// The form that all stripes have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Parity,
    Copies,
}

const FORMS: [(Form, &str, &str); 2] = [
    (Form::Parity, "parity", "RAID 5"),
    (Form::Copies, "copies", "RAID 10"),
];

/// What was counted of one form.
struct Found {
    overwrites: u64,
    written: Tally,
    reads: u64,
    degraded: Tally,
    /// Greatest ÷ mean of the reads of the drives that are left.
    busiest: f64,
    /// Bytes of the volume ÷ most bytes of the overlay.
    overlay: f64,
    trace: u64,
}

impl Study for Table1 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let size = match context.full() {
            true => FULL,
            false => DEFAULT,
        };
        report(context, size)
    }
}

fn report(context: &Context<'_>, size: Size) -> Result<Report, Stopped> {
    let found = context.map(&FORMS, |&(form, ..)| measure(context, form, size))?;
    let mut trace = Trace::default();
    found.iter().for_each(|found| trace.add(found.trace));
    let rows: Vec<Row> = { FORMS.iter().zip(&found) }
        .flat_map(|(&(form, id, name), found)| rows(form, id, name, found))
        .collect();
    Ok(Report {
        about: &ABOUT,
        seed: context.seed(),
        full: context.full(),
        model: format!(
            "Our whole pool, `elastic5` on {DRIVES} drives with chunks of 4 KiB, all stripes parity or \
             all copies; drives: {MODEL}, and store what is written. A volume of {} MiB that was written \
             whole; one lane, a ring of {} KiB on each drive, so that batches are full ({} blocks of a \
             drive at most) and the overlay is small. Overwrites of 4 KiB anywhere, {} in flight, {}; \
             then a drive fails and {} blocks are read anywhere. Blocks are counted when a lane submits \
             them, those of the log by the headers of its batches; per overwrite or read of a client.",
            size.volume_bytes / MIB,
            size.ring_bytes / KIB,
            size.ring_bytes / BLOCK_BYTES / 4,
            size.clients,
            size.overwrites,
            size.reads,
        ),
        trace: trace.0,
        charts: vec![chart(&rows)],
        rows,
    })
}

/// A server that is fast enough not to matter: only counts are of interest.
fn drive() -> Preset {
    let mut drive = preset("server").expect("a preset");
    if let ModelOptions::Server(options) = &mut drive.options {
        options.bytes_per_second = 2_000_000_000;
        options.per_operation_ns = 20_000;
    }
    drive
}

fn measure(context: &Context<'_>, form: Form, size: Size) -> Result<Found, Stopped> {
    // Two planes for the data of the volume and its parity, and as much again for what lies before the cells.
    let plane_bytes = size.volume_bytes / u64::from(DATA) * 5 / 4 + 256 * MIB;
    let options = StudyOptions {
        drives: Some(DRIVES),
        drive_bytes: Some(2 * plane_bytes / MIB * MIB),
        chunk_bytes: Some(CHUNK_BYTES),
        stores: true,
        regions: Some(RegionSizes {
            lanes: Some(1),
            ring_bytes: Some(size.ring_bytes),
            first_format: false,
        }),
        seed: context.seed(),
        ..StudyOptions::new("elastic5", drive())
    };
    let volume = &mut StudyVolume::create(&options, Some(size.volume_bytes))
        .expect("the pool of this study fits its drives");
    assert!(volume.share_copies(0), "the pool is elastic");
    fill(context, volume, size)?;
    let share = match form {
        Form::Parity => 0,
        Form::Copies => 100,
    };
    assert!(volume.share_copies(share), "the pool is elastic");
    rest(context, volume, form)?;

    let mut run = load(context, volume, size, 0);
    requests(context, &mut run, volume, u64::from(size.clients) * 8)?;
    let mut most = 0;
    run.count_anew();
    volume.count_anew();
    let pieces = 64;
    for _ in 0..pieces {
        requests(context, &mut run, volume, size.overwrites / pieces)?;
        most = volume.world().logged_bytes().max(most);
    }
    let written = volume.tally().cloned().unwrap_or_default();
    let overwrites = run.numbers().writes();
    run.stop();
    requests(context, &mut run, volume, u64::from(size.clients))?;
    rest(context, volume, form)?;

    volume.fail(AWAY).expect("the drive is there");
    rest(context, volume, form)?;
    let mut run = load(context, volume, size, 100);
    requests(context, &mut run, volume, size.reads / 10)?;
    run.count_anew();
    volume.count_anew();
    let others = || (0..DRIVES).map(Seat).filter(|&seat| seat != AWAY);
    let reads_of = |volume: &StudyVolume, seat| volume.work(seat).map_or(0, |work| work.read_bytes);
    let before: Vec<u64> = others().map(|seat| reads_of(volume, seat)).collect();
    requests(context, &mut run, volume, size.reads)?;
    let after = others().map(|seat| reads_of(volume, seat));
    let did: Vec<f64> = { after.zip(before) }
        .map(|(after, before)| to_f64(after - before))
        .collect();
    let mean = stats::mean(&did);
    Ok(Found {
        overwrites,
        written,
        reads: run.numbers().reads(),
        degraded: volume.tally().cloned().unwrap_or_default(),
        busiest: did.iter().copied().fold(0.0, f64::max) / mean,
        overlay: to_f64(size.volume_bytes) / to_f64(most.max(1)),
        trace: volume.trace(),
    })
}

/// Writes the whole volume in order.
fn fill(context: &Context<'_>, volume: &mut StudyVolume, size: Size) -> Result<(), Stopped> {
    // Whole stripes.
    let bytes = 192 * KIB;
    let options = LoadOptions {
        arrivals: Arrivals::Closed {
            clients: 4,
            think_ns: 0,
        },
        access: Access::Sequential { streams: 1 },
        read_percent: 0,
        sizes: vec![(bytes, 1)],
        region: None,
    };
    let load = Load::new(&options, size.volume_bytes, 1).expect("whole stripes fit");
    let mut run = Run::new(load, None).starting_at(volume.now());
    requests(context, &mut run, volume, size.volume_bytes.div_ceil(bytes))?;
    run.stop();
    requests(context, &mut run, volume, 4)?;
    assert_eq!(run.numbers().errors(), 0);
    Ok(())
}

/// Runs until all stripes have their form and the pool is at rest.
fn rest(context: &Context<'_>, volume: &mut StudyVolume, form: Form) -> Result<(), Stopped> {
    let seconds = 5;
    let mut quiet_since = volume.now();
    let mut last = None;
    loop {
        context.check()?;
        let began = volume.now();
        let until = began + std::time::Duration::from_secs(1);
        while let Some(at) = volume.poll_timeout().filter(|&at| at <= until) {
            volume.handle_timeout(at);
        }
        volume.handle_timeout(until);
        context.passed(volume.now().0 - began.0);
        let status = volume.elastic().expect("the pool is elastic");
        let wanted = match form {
            Form::Parity => 0,
            Form::Copies => status.written,
        };
        let now = (status.copies, volume.ios());
        if last.replace(now) != Some(now) || status.copies != wanted {
            quiet_since = volume.now();
        }
        if volume.now().since(quiet_since).as_secs() >= seconds {
            return Ok(());
        }
    }
}

fn load(context: &Context<'_>, volume: &StudyVolume, size: Size, read_percent: u32) -> Run {
    let options = LoadOptions {
        arrivals: Arrivals::Closed {
            clients: size.clients,
            think_ns: 0,
        },
        access: Access::Uniform,
        read_percent,
        sizes: vec![(BLOCK_BYTES, 1)],
        region: None,
    };
    let load = Load::new(&options, size.volume_bytes, context.seed()).expect("blocks fit");
    Run::new(load, None).starting_at(volume.now())
}

/// Blocks of some operations.
fn blocks(tally: &Tally, origin: Origin, kind: IoKind, place: Where) -> f64 {
    to_f64(tally.moved(origin, kind, place).bytes / BLOCK_BYTES)
}

/// What the batches' own redundancy adds to a block of their content.
fn with_redundancy(log: &LogBlocks) -> f64 {
    let content = log.data + log.parity + log.padding;
    1.0 + to_f64(log.redundancy) / to_f64(content.max(1))
}

fn rows(form: Form, id: &str, name: &str, found: &Found) -> Vec<Row> {
    let n = f64::from(DATA);
    let per = |blocks: f64| blocks / to_f64(found.overwrites);
    let per_read = |blocks: f64| blocks / to_f64(found.reads);
    let (written, log) = (&found.written, found.written.log());
    let factor = with_redundancy(log);
    let parity = form == Form::Parity;
    let reads = per(blocks(written, Origin::Client, IoKind::Read, Where::Cells));
    let in_place = per(
        blocks(written, Origin::Checkpoint, IoKind::Write, Where::Cells)
            + blocks(written, Origin::Client, IoKind::Write, Where::Cells),
    );
    let data = per(to_f64(log.data)) * factor;
    let of_parity = per(to_f64(log.parity)) * factor;
    let degraded = per_read(blocks(
        &found.degraded,
        Origin::Client,
        IoKind::Read,
        Where::Cells,
    ));

    let row = |part: &str, what: &str, ours: f64, unit: Unit, why: &str| {
        Row::alone(
            format!("table1.{id}.{part}"),
            format!("{name}: {what}"),
            ours,
            unit,
            why,
        )
    };
    let reason = "blocks that were in memory still, or were changed twice before a checkpoint, are \
                  counted once: the overlay is too large for this volume";
    let of_paper = |part: &str, what: &str, ours: f64, paper: f64| {
        row(part, what, ours, Unit::Blocks, "").against(paper, Rule::Within(NEAR), reason)
    };
    let own =
        |part: &str, what: &str, ours: f64, why: &str| row(part, what, ours, Unit::Blocks, why);
    let overhead = "the paper does not count it";
    let checkpoint = |kind, place| per(blocks(written, Origin::Checkpoint, kind, place));
    vec![
        of_paper(
            "reads",
            "read per overwrite",
            reads,
            if parity { 2.0 } else { 0.0 },
        ),
        of_paper("in-place", "written in place per overwrite", in_place, 2.0),
        of_paper(
            "records.data",
            "records of data per overwrite",
            data,
            (n + 1.0) / n,
        ),
        own(
            "records.parity",
            "records of parity or copies per overwrite",
            of_parity,
            "the paper logs data only and computes parity after the answer; ours logs the new parity \
             beside the data, unless it can be computed from data beside it, as a copy can",
        )
        .beside(0.0),
        of_paper(
            "wa",
            "write amplification, in place and records of data",
            in_place + data,
            2.0 + (n + 1.0) / n,
        ),
        of_paper(
            "degraded",
            "read per degraded read",
            degraded,
            if parity { 2.0 * n / (n + 1.0) } else { 1.0 },
        ),
        own(
            "headers",
            "headers of batches per overwrite",
            per(to_f64(log.headers)),
            overhead,
        ),
        own(
            "padding",
            "zeros at the end of batches per overwrite",
            per(to_f64(log.padding)) * factor,
            overhead,
        ),
        own(
            "pages.read",
            "pages of checksums read per overwrite",
            checkpoint(IoKind::Read, Where::Pages),
            overhead,
        ),
        own(
            "pages.written",
            "pages of checksums written per overwrite",
            checkpoint(IoKind::Write, Where::Pages),
            "the paper does not count it; at most two pages and two copies of each: the ring is short here, so \
             that hardly two blocks of a checkpoint share a page",
        ),
        own(
            "anchors",
            "anchors written per overwrite",
            checkpoint(IoKind::Write, Where::Anchors),
            overhead,
        ),
        own(
            "flushes",
            "flushes per overwrite",
            per(to_f64(written.of_kind(IoKind::Flush).operations)),
            overhead,
        ),
        own(
            "discards",
            "blocks discarded per overwrite",
            per(to_f64(written.of_kind(IoKind::Discard).bytes / BLOCK_BYTES)),
            overhead,
        ),
        own(
            "degraded.pages",
            "pages of checksums read per degraded read",
            per_read(blocks(
                &found.degraded,
                Origin::Checkpoint,
                IoKind::Read,
                Where::Pages,
            )),
            overhead,
        ),
        row(
            "degraded.busiest",
            "reads of the busiest drive that is left, ÷ the mean",
            found.busiest,
            Unit::Ratio,
            "the paper does not measure it",
        ),
        own(
            "columns",
            "blocks of content in a batch's data column",
            to_f64(log.data + log.parity) / f64::from(DATA) * f64::from(DRIVES)
                / to_f64(log.columns.max(1)),
            "shows that batches are full",
        ),
        row(
            "overlay",
            "volume ÷ the largest overlay",
            found.overlay,
            Unit::Ratio,
            "at least twenty, so that few blocks are still in memory",
        ),
    ]
}

fn chart(rows: &[Row]) -> Chart {
    let parts = [
        ("reads", "read"),
        ("in-place", "in place"),
        ("records.data", "records of data"),
        ("records.parity", "records of parity"),
        ("degraded", "degraded read"),
    ];
    let mut chart = Chart::new(
        "blocks",
        "Blocks per 4 KiB overwrite, and per degraded read",
        Mark::Bars,
        Axis::categories("", parts.map(|(_, name)| name)),
        Axis::linear("blocks"),
    );
    chart.series = FORMS
        .iter()
        .map(|&(_, id, name)| {
            let of = |part: &str| {
                let id = format!("table1.{id}.{part}");
                rows.iter().find(|row| row.id == id).expect("it is counted")
            };
            let points = |value: fn(&Row) -> Option<f64>| {
                let all = parts.iter().enumerate();
                let all = all.filter_map(|(at, (part, _))| Some((at, value(of(part))?)));
                all.map(|(at, y)| Point::new(to_f64(at as u64), y))
                    .collect()
            };
            Series {
                name: name.to_owned(),
                ours: points(|row| Some(row.ours)),
                paper: points(|row| row.paper),
            }
        })
        .collect();
    chart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runner::Progress;

    /// The distance from the table at this size: more blocks are in memory still.
    const FAR: f64 = 0.05;

    #[test]
    fn overwrites_and_degraded_reads_cost_what_the_table_says() {
        let progress = Progress::default();
        let context = Context::new(ABOUT.id, 1, false, &progress);
        let size = Size {
            volume_bytes: 256 * MIB,
            overwrites: 8_000,
            reads: 8_000,
            ..DEFAULT
        };
        let report = report(&context, size).expect("nothing stops it");
        let third = 4.0 / 3.0;
        for (part, parity, copies) in [
            ("reads", 2.0, 0.0),
            ("in-place", 2.0, 2.0),
            ("records.data", third, third),
            ("records.parity", third, 0.0),
            ("wa", 2.0 + third, 2.0 + third),
            ("degraded", 1.5, 1.0),
            ("discards", 0.0, 0.0),
        ] {
            for (form, expected) in [("parity", parity), ("copies", copies)] {
                let row = report.row(&format!("table1.{form}.{part}"));
                let ours = row.expect("it is counted").ours;
                assert!((ours - expected).abs() <= FAR, "{form}, {part}: {ours}");
            }
        }
        for form in ["parity", "copies"] {
            let part = |part: &str| report.row(&format!("table1.{form}.{part}")).unwrap().ours;
            assert!(part("overlay") >= 20.0 && part("degraded.busiest") <= 1.05);
            // A short ring: headers and anchors are there, and are not among the records.
            assert!(part("headers") > 0.0 && part("anchors") > 0.0 && part("pages.written") > 0.0);
        }
    }
}
