//! Small workloads: twenty by scheme and state of the pool, six with first writes to groups that are made blank for
//! them, ten with whole stripes onto space that holds nothing, six with whole stripes that move, and thirteen with
//! elastic stripes that change their form.

use block::Seat;

use crate::schedule::{Event, SETTINGS, Schedule, Setting};

/// The state of the pool while the client writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Healthy,
    /// One drive is out.
    Degraded,
    /// Two drives are out.
    TwoOut,
    /// One drive was out, and a fresh one is being filled.
    Rebuild,
    /// A scrub is running.
    Scrub,
}

/// A small workload: its preparation, and then the client's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    /// Scheme and state.
    pub name: String,
    /// Brings the pool into its state.
    pub prepare: Vec<Event>,
    /// The events that are enumerated: at most 64 writes and flushes of drives.
    pub events: Vec<Event>,
    /// True if the creation of the pool is enumerated too: in one workload of each scheme.
    pub(crate) makes: bool,
    /// Seed, setting and depth.
    pub(crate) frame: Schedule,
    /// Drives that may still be lost.
    pub(crate) spare_losses: usize,
    /// Seats that still have their first drive.
    pub(crate) seats: Vec<Seat>,
}

/// Recoveries of elastic pools in which the power is cut again, one in so many: their conversions have more than a
/// million different states.
const ELASTIC_AGAIN_ONE_IN: u64 = 10_000;

impl Workload {
    /// The power is cut again in one in so many recoveries of its cuts, if all cuts are tried.
    #[must_use]
    pub fn again_one_in(&self) -> u64 {
        match SETTINGS[self.frame.setting].is_elastic() {
            true => ELASTIC_AGAIN_ONE_IN,
            false => 1,
        }
    }
}

/// Events of a rebuild before the client continues: then its drive has joined, and cells are being filled.
const REBUILD_BEGUN: u32 = 70;

const fn write(offset: u64, length: u64, fua: bool) -> Event {
    Event::Write {
        offset,
        length,
        fua,
    }
}

/// The client's requests: few writes, with each kind of interaction between them.
fn client(pattern: usize, volume_bytes: u64) -> Vec<Event> {
    match pattern % 4 {
        // A block that overwrites a block, a part of a block, flushes.
        0 => vec![
            write(0, 4096, false),
            write(4096, 512, false),
            Event::Flush,
            write(0, 4096, true),
        ],
        // Overlapping ranges that end inside blocks.
        1 => vec![
            write(512, 3072, false),
            write(3584, 4608, false),
            Event::Flush,
            write(4096, 4096, false),
        ],
        // A whole stripe, then a part of it.
        2 => vec![
            write(0, volume_bytes / 2, false),
            write(4096, 4096, false),
            Event::Flush,
        ],
        // Overlapping writes at the same time, and zeros.
        _ => vec![
            write(0, 8192, false),
            write(4096, 8192, true),
            Event::Zero {
                offset: 0,
                length: 4096,
                trim: false,
            },
            Event::Flush,
        ],
    }
}

/// All workloads.
///
/// # Panics
/// Never: all settings have a name.
#[must_use]
pub fn workloads() -> Vec<Workload> {
    use State::{Degraded, Healthy, Rebuild, Scrub, TwoOut};
    let mut all = Vec::new();
    for (index, (name, states)) in [
        ("raid1-small", [Healthy, Degraded, TwoOut, Rebuild]),
        ("raid5-small", [Healthy, Scrub, Degraded, Rebuild]),
        ("raid6-small", [Healthy, Degraded, TwoOut, Rebuild]),
        ("dcode-small", [Healthy, Degraded, TwoOut, Rebuild]),
        ("pddl2-small", [Healthy, Degraded, TwoOut, Rebuild]),
    ]
    .into_iter()
    .enumerate()
    {
        for (turn, state) in states.into_iter().enumerate() {
            // Each scheme has each pattern, each time in another state.
            all.push(workload(name, state, index + turn));
        }
    }
    // First writes, to groups that are made blank for them.
    for (name, states) in [
        ("raid5-small-lazy", [Healthy, Degraded]),
        ("raid6-small-lazy", [Healthy, TwoOut]),
        ("pddl2-small-lazy", [Healthy, Degraded]),
    ] {
        all.extend(states.map(|state| Workload {
            // Pages and a label for it, and no more.
            events: vec![write(0, 8192, false), write(4096, 512, true)],
            ..workload(name, state, 0)
        }));
    }
    // Whole stripes that go to their place directly, with a small write to one of them; and whole stripes onto trimmed
    // space.
    for name in [
        "raid1-small",
        "raid5-small",
        "raid6-small",
        "dcode-small",
        "pddl2-small",
    ] {
        let healthy = workload(name, Healthy, 0);
        let volume_bytes = SETTINGS[healthy.frame.setting].volume_bytes;
        let whole = write(0, volume_bytes, false);
        let trim = Event::Zero {
            offset: 0,
            length: volume_bytes,
            trim: true,
        };
        let lives = [
            ("first", vec![whole, write(4096, 4096, false), Event::Flush]),
            ("trimmed", vec![whole, trim, whole]),
        ];
        all.extend(lives.map(|(what, events)| Workload {
            name: format!("{name} {what}"),
            prepare: Vec::new(),
            events,
            makes: false,
            ..healthy.clone()
        }));
    }
    // Whole stripes that go to free stripes; again when all free stripes are used up; and a small write to a stripe
    // that has moved.
    for name in ["raid5-small-free", "raid6-small-free", "pddl2-small-free"] {
        let healthy = workload(name, Healthy, 0);
        let setting = SETTINGS[healthy.frame.setting];
        // Two of six stripes: as many as are free.
        let two = write(0, setting.volume_bytes / 3, false);
        let lives = [
            ("moved", vec![two, write(4096, 4096, false), Event::Flush]),
            ("moved twice", vec![two, two]),
        ];
        all.extend(lives.map(|(what, events)| Workload {
            name: format!("{name} {what}"),
            events,
            makes: false,
            ..healthy.clone()
        }));
    }
    all.extend(conversions());
    all
}

/// Events of a pool before the client continues beside its conversions.
const CONVERSIONS_BEGUN: u32 = 12;

/// Stripes that become copies, and parity again, beside the client's requests; and what happens beside them.
fn conversions() -> Vec<Workload> {
    let mut all = Vec::new();
    for name in ["elastic5-small", "elastic6-small", "elastic5-small-free"] {
        let healthy = workload(name, State::Healthy, 0);
        let volume_bytes = SETTINGS[healthy.frame.setting].volume_bytes;
        let whole = write(0, volume_bytes, false);
        let share = |percent| Event::Elastic(Some(percent));
        let trim = Event::Zero {
            offset: 0,
            length: volume_bytes / 2,
            trim: true,
        };
        let block = write(0, 4096, false);
        let begun = Event::Steps(CONVERSIONS_BEGUN);
        let back = Event::Return {
            seat: Seat(0),
            lost: None,
        };
        let lives = [
            ("promote", 0, vec![share(100), begun, block, Event::Flush]),
            ("demote", 100, vec![share(0), begun, block, Event::Flush]),
            ("both ways", 50, vec![share(0), Event::Flush]),
            ("trim", 100, vec![share(0), begun, trim, Event::Flush]),
            ("stream", 100, vec![block, share(50), begun, whole]),
            ("scrub", 0, vec![share(100), Event::Scrub, begun, block]),
            // The label of the drive, and the first cells.
            ("rebuild", 50, vec![Event::Insert(Seat(0)), begun, block]),
            // What was written while it was away, and then the stripe that the block is in.
            ("catch-up", 50, vec![back, share(60), begun, block]),
        ];
        for (what, before, events) in lives {
            let away = ["rebuild", "catch-up"].contains(&what);
            // The others have more than 64 boundaries where stripes have three copies, or groups have more stripes.
            let fits = match name {
                "elastic6-small" => ["promote", "demote", "rebuild", "catch-up"].contains(&what),
                "elastic5-small-free" => ["promote", "demote", "trim"].contains(&what),
                _ => true,
            };
            if !fits {
                continue;
            }
            let mut prepare = vec![
                share(before),
                whole,
                Event::Drain,
                Event::Settle,
                Event::Settle,
            ];
            match what {
                "rebuild" => prepare.extend([Event::Fail(Seat(0)), Event::Settle]),
                "catch-up" => prepare.extend([Event::Fail(Seat(0)), block, Event::Settle]),
                // The stripes that are to be copies are on their way.
                "both ways" => prepare.extend([share(100), begun]),
                _ => {}
            }
            let mut workload = healthy.clone();
            workload.name = format!("{name} {what}");
            workload.prepare = prepare;
            workload.events = events;
            workload.makes = false;
            if away {
                workload.spare_losses -= 1;
                workload.seats.retain(|seat| seat.0 > 0);
            }
            all.push(workload);
        }
    }
    all
}

fn workload(name: &str, state: State, pattern: usize) -> Workload {
    let setting = Setting::by_name(name).expect("all settings have a name");
    let of = SETTINGS[setting];
    let mut prepare = match of.lazy {
        true => Vec::new(),
        false => vec![write(0, of.volume_bytes, false), Event::Drain],
    };
    let out = match state {
        State::Healthy | State::Scrub => 0,
        State::Degraded | State::Rebuild => 1,
        State::TwoOut => 2,
    };
    for seat in 0..out {
        prepare.push(Event::Fail(Seat(seat)));
    }
    // Spare space is filled before the client continues, or, in a rebuild, while it does.
    prepare.push(Event::Settle);
    if state == State::Rebuild {
        prepare.push(Event::Insert(Seat(0)));
        // Without these steps a rebuild and the client beside it have more than 64 boundaries.
        prepare.push(Event::Steps(REBUILD_BEGUN));
    }
    let mut events = client(pattern, of.volume_bytes);
    if state == State::Scrub {
        events.insert(0, Event::Scrub);
    }
    Workload {
        name: format!("{name} {state:?} {}", pattern % 4).to_lowercase(),
        prepare,
        events,
        makes: state == State::Healthy,
        frame: Schedule {
            seed: pattern as u64,
            setting,
            depth: 2,
            events: Vec::new(),
        },
        spare_losses: of.tolerance - usize::from(out),
        seats: (0..of.drives)
            .map(Seat)
            .filter(|seat| seat.0 >= out)
            .collect(),
    }
}
