//! Figure 2: recovery speed of dRAID against RAIDZ.

use block::Seat;
use sim::model::{ModelOptions, Preset, ServerOptions, Work};
use sim::plain::rebuild::{CellOrder, ReadColumns, RebuildOptions};
use sim::{StudyOptions, StudyVolume};
use stats::{mean, to_f64};

use super::{
    CELL_BYTES, GIB, MIB, array, disk, finish, imbalance, range, rebuild, seconds, zfs_disk,
    zfs_rebuild, zfs_window,
};
use crate::chart::{Axis, Chart, Mark, Point, Series};
use crate::paper::DRAID;
use crate::report::Report;
use crate::row::{Row, Rule, Unit};
use crate::study::{About, Context, Stopped, Study};
use crate::trace::Trace;

/// The study.
pub(crate) struct Fig2;

static ABOUT: About = About {
    id: "draid-fig2",
    paper: &DRAID,
    title: "Figure 2: recovery speed of dRAID against RAIDZ",
    question: "One drive fails. RAIDZ reads the drives of one group and writes one spare drive; \
        dRAID reads and writes all drives. How many times as fast is that: on ideal drives, on disks \
        in dRAID's order, and with our own pool and its queue? Both sides hold the same data.",
};

/// A configuration of the figure.
struct Case {
    id: &'static str,
    name: &'static str,
    draid: &'static str,
    /// Our layout on the same drives.
    pddl: &'static str,
    /// One group of the RAIDZ.
    raidz: &'static str,
    /// d, p, s, n.
    data: u16,
    parity: u16,
    spares: u16,
    drives: u16,
    /// The paper's number (section 3).
    paper: f64,
    /// Expected range for dRAID's order on disks, computed beforehand with a simpler model.
    band: (f64, f64),
}

static CASES: [Case; 3] = [
    Case {
        id: "4p1x17",
        name: "4+1, 17 drives",
        draid: "draid1:4d:17c:2s",
        pddl: "pddl1:4d:17c:2s",
        raidz: "raid5:5c",
        data: 4,
        parity: 1,
        spares: 2,
        drives: 17,
        paper: 2.69,
        band: (2.5, 2.9),
    },
    Case {
        id: "8p3x36",
        name: "8+3, 36 drives",
        draid: "draid3:8d:36c:3s",
        pddl: "pddl3:8d:36c:3s",
        raidz: "raid7:11c",
        data: 8,
        parity: 3,
        spares: 3,
        drives: 36,
        paper: 2.22,
        band: (2.2, 2.8),
    },
    Case {
        id: "4p1x34",
        name: "4+1, 34 drives",
        draid: "draid1:4d:34c:4s",
        pddl: "pddl1:4d:34c:4s",
        raidz: "raid5:5c",
        data: 4,
        parity: 1,
        spares: 4,
        drives: 34,
        paper: 4.35,
        band: (4.1, 4.8),
    },
];

/// Section 3: "the storage utilization is 10%".
const FILL_PERCENT: u64 = 10;

/// Windows of the second chart, in steps of 1 MiB of each column.
const WINDOWS: [usize; 3] = [128, 256, 512];

impl Case {
    /// The bound of the rebuild when `reads` columns are read for each written column.
    fn bound(&self, reads: u16) -> f64 {
        let [n, s, moved] = [self.drives, self.spares, reads + 1].map(f64::from);
        n * (n - 1.0) / ((n - s) * moved)
    }

    /// The paper's formula without its H.
    fn phi(&self) -> f64 {
        let [d, p, s, n] = [self.data, self.parity, self.spares, self.drives].map(f64::from);
        let groups = (n - s) / (d + p);
        (groups * (d + p) + s - 1.0) / (d + p - 1.0)
    }

    /// Drives that fail, one in each run.
    fn seats(&self, count: u16) -> Vec<Seat> {
        (0..count)
            .map(|part| Seat(part * self.drives / count))
            .collect()
    }
}

/// The size of the runs.
#[derive(Clone, Copy, Debug)]
struct Size {
    drive_bytes: u64,
    /// Drives of our pool that fail, one in each run.
    seats: u16,
    /// True if our pool also runs on dRAID's map.
    maps: bool,
}

/// One of the simulations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    /// Rebuild of a drive of RAIDZ's group onto a spare drive.
    Raidz,
    /// On ideal drives that are full; reads all survivors, or only as many as needed.
    Ideal(ReadColumns),
    /// dRAID's order on disks, with this many steps in flight.
    Hdd(usize),
    /// Our whole pool, with or without journal and checksums, on its own layout or on dRAID's.
    Pool { journal: bool, own_layout: bool },
}

/// Speed-ups by failed seat (seconds for RAIDZ).
struct Found {
    samples: Vec<f64>,
    /// For ideal drives: greatest ÷ mean of the bytes that drives moved.
    imbalance: f64,
    trace: u64,
}

impl Study for Fig2 {
    fn about(&self) -> &'static About {
        &ABOUT
    }

    fn run(&self, context: &Context<'_>) -> Result<Report, Stopped> {
        let size = match context.full() {
            true => Size {
                drive_bytes: 320 * GIB,
                seats: 2,
                maps: true,
            },
            false => Size {
                drive_bytes: 60 * GIB,
                seats: 1,
                maps: false,
            },
        };
        let tasks: Vec<(usize, Task)> = (0..CASES.len())
            .flat_map(|case| {
                tasks(&CASES[case], size)
                    .into_iter()
                    .map(move |task| (case, task))
            })
            .collect();
        let found = context.map(&tasks, |&(case, task)| {
            run(context, &CASES[case], task, size)
        })?;
        let mut trace = Trace::default();
        found.iter().for_each(|found| trace.add(found.trace));
        let all = All {
            tasks: &tasks,
            found: &found,
        };
        Ok(Report {
            about: &ABOUT,
            seed: context.seed(),
            full: context.full(),
            model: format!(
                "Speed-up: time of RAIDZ ÷ time of dRAID for the same data; mean over runs with \
                 other failed drives ({} for our pool, four for `.hdd`, else two), the band is the \
                 least and the greatest. Disks: 7,200 rpm (preset nearline), {} GiB of each, {FILL_PERCENT} % of it in use (the paper names no size); as ZFS's \
                 queue of each drive is ordered by address, C-LOOK over all that waits. RAIDZ: one \
                 group, sequentially into one fresh drive; its resilver by block pointers is not \
                 modelled. `.hdd`: dRAID's order, cells of 16 MiB by address, steps of 1 MiB of each \
                 column, all survivors read, 32 MiB per drive in flight as OpenZFS had it \
                 (zfs_rebuild_vdev_limit until 2023; a step counts its data columns): {}, {} and {} \
                 steps. `.ideal`: drives of 200 MB/s without seeks, full. `.ours`: our whole pool \
                 with its own queue on its own layout, disks with their own queue (shortest \
                 positioning of 32); it reads the needed columns only and verifies checksums. \
                 Not modelled: transaction groups, metaslabs, host links. There is no chance in it, \
                 so the seed changes nothing.",
                size.seats,
                size.drive_bytes / GIB,
                zfs_window(CASES[0].drives, CASES[0].data),
                zfs_window(CASES[1].drives, CASES[1].data),
                zfs_window(CASES[2].drives, CASES[2].data),
            ),
            trace: trace.0,
            rows: (0..CASES.len())
                .flat_map(|case| all.rows(case, size))
                .collect(),
            charts: vec![all.speedups(), all.windows()],
        })
    }
}

fn tasks(case: &Case, size: Size) -> Vec<Task> {
    let mut tasks = vec![Task::Raidz, Task::Ideal(ReadColumns::All)];
    if case.parity > 1 {
        tasks.push(Task::Ideal(ReadColumns::Needed));
    }
    let windows = WINDOWS
        .into_iter()
        .chain([zfs_window(case.drives, case.data)]);
    tasks.extend(windows.map(Task::Hdd));
    for own_layout in [true, false] {
        if own_layout || size.maps {
            tasks.extend([true, false].map(|journal| Task::Pool {
                journal,
                own_layout,
            }));
        }
    }
    tasks
}

fn run(context: &Context<'_>, case: &Case, task: Task, size: Size) -> Result<Found, Stopped> {
    let drive_bytes = size.drive_bytes;
    let mut trace = Trace::default();
    let mut imbalances = Vec::new();
    let seats = match task {
        // RAIDZ's groups and drives are all alike.
        Task::Raidz => vec![Seat(1)],
        Task::Hdd(window) if window == zfs_window(case.drives, case.data) => case.seats(4),
        Task::Ideal(_) | Task::Hdd(_) => case.seats(2),
        Task::Pool { .. } => case.seats(size.seats),
    };
    // Created once: this searches for the layout's bases.
    let whole = match task {
        Task::Pool {
            journal,
            own_layout,
        } => Some(pool(case, own_layout, journal, drive_bytes)),
        Task::Raidz | Task::Ideal(_) | Task::Hdd(_) => None,
    };
    let mut samples = Vec::new();
    for seat in seats {
        let sample = match task {
            Task::Raidz => {
                let drive = zfs_disk();
                let mut group = array(case.raidz, drive.clone(), drive_bytes, CELL_BYTES);
                group.set_fill(to_f64(FILL_PERCENT));
                let window = zfs_window(case.data + case.parity, case.data);
                let took = rebuild(context, &mut group, seat, Some(&drive), zfs_rebuild(window))?;
                trace.add(group.trace());
                took
            }
            Task::Ideal(read) => {
                let (took, uneven, of_run) = ideal(context, case, seat, read)?;
                imbalances.push(uneven);
                trace.add(of_run);
                took
            }
            Task::Hdd(window) => {
                let mut draid = array(case.draid, zfs_disk(), drive_bytes, CELL_BYTES);
                draid.set_fill(to_f64(FILL_PERCENT));
                let took = rebuild(context, &mut draid, seat, None, zfs_rebuild(window))?;
                trace.add(draid.trace());
                took
            }
            Task::Pool { .. } => {
                let whole = whole.clone().expect("made above");
                let (took, of_run) = lose(context, whole, seat)?;
                trace.add(of_run);
                took
            }
        };
        samples.push(sample);
    }
    Ok(Found {
        samples,
        imbalance: mean(&imbalances),
        trace: trace.0,
    })
}

/// Bytes per second of an ideal drive.
const IDEAL_RATE: u64 = 200_000_000;
/// Rows of an ideal array. A few periods of the maps would be millions of operations; these rows show the layout's
/// balance, which is measured on the same rows.
const IDEAL_ROWS: u64 = 4096;

/// Full drives without seeks, nearly all operations in flight at once. The speed-up, the layout's imbalance, the trace.
fn ideal(
    context: &Context<'_>,
    case: &Case,
    seat: Seat,
    read: ReadColumns,
) -> Result<(f64, f64, u64), Stopped> {
    let bytes = IDEAL_ROWS * MIB;
    let drive = Preset {
        name: "ideal",
        about: "a drive without seeks",
        options: ModelOptions::Server(ServerOptions {
            capacity_bytes: bytes,
            bytes_per_second: IDEAL_RATE,
            per_operation_ns: 0,
            latency_ns: 0,
        }),
    };
    let mut draid = array(case.draid, drive, bytes, MIB);
    let options = RebuildOptions {
        order: CellOrder::Lba { window: 2048 },
        read,
        ..zfs_rebuild(0)
    };
    let took = rebuild(context, &mut draid, seat, None, options)?;
    // The time that one spare needs for the drive's share of an island with the same data.
    let held = draid
        .rebuild()
        .map_or(0, sim::plain::rebuild::Rebuild::written_bytes);
    let [n, s] = [case.drives, case.spares].map(f64::from);
    let island = to_f64(held) * n / (n - s) / to_f64(IDEAL_RATE);
    let moved = |work: Work| work.read_bytes + work.written_bytes;
    Ok((island / took, imbalance(&draid, seat, moved), draid.trace()))
}

/// Our pool with as much data as the dRAID.
fn pool(case: &Case, own_layout: bool, journal: bool, drive_bytes: u64) -> StudyVolume {
    let scheme = if own_layout { case.pddl } else { case.draid };
    let options = StudyOptions {
        drives: Some(case.drives),
        drive_bytes: Some(drive_bytes),
        cell_bytes: Some(CELL_BYTES),
        journal,
        ..StudyOptions::new(scheme, disk())
    };
    let capacity = array(case.draid, disk(), drive_bytes, CELL_BYTES).capacity_bytes();
    let used = capacity / 100 * FILL_PERCENT / MIB * MIB;
    StudyVolume::create(&options, Some(used)).expect("the pools of this study fit their drives")
}

/// Seconds that the pool takes to rebuild a drive, and the trace.
fn lose(context: &Context<'_>, mut volume: StudyVolume, seat: Seat) -> Result<(f64, u64), Stopped> {
    volume.fail(seat).expect("the drive is there");
    finish(context, &mut volume, |volume| volume.rebuild().ended)?;
    let rebuild = volume.rebuild();
    assert_eq!(
        rebuild.cells_lost, 0,
        "one drive is within the code's reach"
    );
    let ended = rebuild.ended.expect("it has just ended");
    Ok((seconds(rebuild.began, ended), volume.trace()))
}

/// The results of all tasks.
struct All<'a> {
    tasks: &'a [(usize, Task)],
    found: &'a [Found],
}

impl All<'_> {
    fn of(&self, case: usize, task: Task) -> &Found {
        let at = self.tasks.iter().position(|&other| other == (case, task));
        &self.found[at.expect("it was run")]
    }

    /// Speed-ups over RAIDZ, by failed seat.
    fn speedup(&self, case: usize, task: Task) -> Vec<f64> {
        let raidz = self.of(case, Task::Raidz).samples[0];
        let of = self.of(case, task).samples.iter();
        match task {
            Task::Ideal(_) => of.copied().collect(),
            _ => of.map(|took| raidz / took).collect(),
        }
    }

    fn rows(&self, at: usize, size: Size) -> Vec<Row> {
        let case = &CASES[at];
        let all = case.data + case.parity - 1;
        let mut rows = vec![self.ideal(at, ReadColumns::All, all, "ideal")];
        if case.parity > 1 {
            rows.push(self.ideal(at, ReadColumns::Needed, case.data, "ideal-needed"));
        }
        let row = |id: &str, name: &str, samples: &[f64], why: &str| {
            Row::alone(
                format!("fig2.{}.{id}", case.id),
                format!("{}, {name}", case.name),
                mean(samples),
                Unit::Ratio,
                why,
            )
            .band(range(samples))
        };
        let window = zfs_window(case.drives, case.data);
        let hdd = self.speedup(at, Task::Hdd(window));
        let h = mean(&hdd) / case.phi();
        rows.push(
            row("hdd", "dRAID's order on disks", &hdd, "")
                .against(
                    case.paper,
                    Rule::Between(case.band.0, case.band.1),
                    format!(
                        "outside {} to {}: the more rows are in use, the more even is dRAID's map \
                         (of 34 drives the busiest moves 1.28 times the mean with 6 GiB of each in \
                         use, 1.13 times with 32 GiB), and the paper names no size; see also the \
                         rows for other windows",
                        case.band.0, case.band.1
                    ),
                )
                .remark(format!(
                    "{window} steps in flight: 32 MiB per drive, as OpenZFS until 2023; holds \
                     between {} and {}",
                    case.band.0, case.band.1
                )),
        );
        let ours = self.speedup(
            at,
            Task::Pool {
                journal: true,
                own_layout: true,
            },
        );
        rows.push(
            row("ours", "our pool, with journal and checksums", &ours, "")
                .against(
                    case.paper,
                    Rule::AtLeast,
                    "our fills move steps of 4 MiB of several cells per drive in turn, and read pages \
                     of checksums beside them: the disk seeks after each step",
                )
                .remark("holds if at least the paper's; what is read is verified"),
        );
        for (id, name, journal, own_layout) in [
            ("ours.draid-map", "our pool on dRAID's map", true, false),
            (
                "ours.bare",
                "our pool without journal and checksums",
                false,
                true,
            ),
            (
                "ours.bare.draid-map",
                "our pool on dRAID's map without journal and checksums",
                false,
                false,
            ),
        ] {
            if !own_layout && !size.maps {
                continue;
            }
            let found = self.speedup(
                at,
                Task::Pool {
                    journal,
                    own_layout,
                },
            );
            let why = "another setting of our pool than the one that is compared";
            rows.push(row(id, name, &found, why).beside(case.paper));
        }
        for window in WINDOWS {
            let found = self.speedup(at, Task::Hdd(window));
            let why = "another window than OpenZFS's";
            let (id, name) = (
                format!("hdd.w{window}"),
                format!("dRAID's order on disks, {window} steps in flight"),
            );
            rows.push(row(&id, &name, &found, why).beside(case.paper));
        }
        rows.push(
            Row::alone(
                format!("fig2.{}.h", case.id),
                format!(
                    "{}, H that the paper's Φ and its measurement imply",
                    case.name
                ),
                case.paper / case.phi(),
                Unit::Ratio,
                "",
            )
            .against(
                1.0,
                Rule::Within(0.1),
                format!(
                    "Φ with H = 1 is {:.2} and the paper measured {}: \"H → 1\" does not follow \
                     from its own data",
                    case.phi(),
                    case.paper
                ),
            ),
        );
        rows.push(
            Row::alone(
                format!("fig2.{}.h.hdd", case.id),
                format!("{}, H that ours on disks implies", case.name),
                h,
                Unit::Ratio,
                "the paper's formula counts drives; drives that also read all survivors and seek \
                 do less",
            )
            .beside(case.paper / case.phi()),
        );
        rows
    }

    fn ideal(&self, at: usize, read: ReadColumns, reads: u16, id: &str) -> Row {
        let case = &CASES[at];
        let found = self.of(at, Task::Ideal(read));
        let bound = case.bound(reads);
        let expected = bound / found.imbalance;
        let ours = mean(&found.samples);
        let what = match read {
            ReadColumns::All => "all survivors read",
            ReadColumns::Needed => "only the needed columns read",
        };
        Row::alone(
            format!("fig2.{}.{id}", case.id),
            format!("{}, ideal drives, {what}", case.name),
            ours,
            Unit::Ratio,
            format!(
                "drives without seeks, full: the bound is {bound:.2}, ÷ the layout's imbalance of \
                 {:.3} is {expected:.3}, and ours is {:+.1} % from that",
                found.imbalance,
                100.0 * (ours / expected - 1.0)
            ),
        )
        .band(range(&found.samples))
        .beside(case.paper)
    }

    fn speedups(&self) -> Chart {
        let mut chart = Chart::new(
            "speedup",
            "Recovery speed, RAIDZ = 1",
            Mark::Bars,
            Axis::categories("", CASES.iter().map(|case| case.name)),
            Axis::linear("times as fast as RAIDZ"),
        );
        chart.band = "least and greatest of the failed drives";
        let bars = |task: fn(&Case) -> Task| -> Vec<Point> {
            let cases = CASES.iter().enumerate();
            cases
                .map(|(at, case)| {
                    let samples = self.speedup(at, task(case));
                    Point::new(to_f64(at as u64), mean(&samples)).band(range(&samples))
                })
                .collect()
        };
        let paper = CASES.iter().enumerate();
        let paper = paper.map(|(at, case)| Point::new(to_f64(at as u64), case.paper));
        let hdd: fn(&Case) -> Task = |case| Task::Hdd(zfs_window(case.drives, case.data));
        chart.series = vec![
            Series {
                name: "ideal drives".to_owned(),
                ours: bars(|_| Task::Ideal(ReadColumns::All)),
                paper: Vec::new(),
            },
            Series {
                name: "disks, dRAID's order".to_owned(),
                ours: bars(hdd),
                paper: paper.collect(),
            },
            Series {
                name: "disks, our pool".to_owned(),
                ours: bars(|_| Task::Pool {
                    journal: true,
                    own_layout: true,
                }),
                paper: Vec::new(),
            },
            Series {
                name: "disks, our pool without checksums".to_owned(),
                ours: bars(|_| Task::Pool {
                    journal: false,
                    own_layout: true,
                }),
                paper: Vec::new(),
            },
        ];
        chart
    }

    fn windows(&self) -> Chart {
        let mut chart = Chart::new(
            "window",
            "dRAID's order on disks: what the window does",
            Mark::Lines,
            Axis::log("steps of 1 MiB in flight"),
            Axis::linear("times as fast as RAIDZ"),
        );
        chart.band = "least and greatest of the failed drives";
        chart.series = CASES
            .iter()
            .enumerate()
            .map(|(at, case)| {
                let points = WINDOWS.iter().map(|&window| {
                    let samples = self.speedup(at, Task::Hdd(window));
                    Point::new(to_f64(window as u64), mean(&samples)).band(range(&samples))
                });
                let window = zfs_window(case.drives, case.data);
                Series {
                    name: case.name.to_owned(),
                    ours: points.collect(),
                    paper: vec![Point::new(to_f64(window as u64), case.paper)],
                }
            })
            .collect();
        chart
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_phi_are_those_worked_out_by_hand() {
        let near = |ours: f64, expected: f64| assert!((ours - expected).abs() < 0.005, "{ours}");
        for (case, all, needed, h) in [
            (&CASES[0], 3.627, 3.627, 0.672),
            (&CASES[1], 3.471, 4.242, 0.634),
            (&CASES[2], 7.480, 7.480, 0.527),
        ] {
            near(case.bound(case.data + case.parity - 1), all);
            near(case.bound(case.data), needed);
            near(case.paper / case.phi(), h);
        }
        // 32 MiB for each drive; a step takes 1 MiB for each data column.
        let windows = CASES
            .each_ref()
            .map(|case| zfs_window(case.drives, case.data));
        assert_eq!(windows, [136, 144, 272]);
    }
}
