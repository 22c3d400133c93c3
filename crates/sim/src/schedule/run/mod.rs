//! Running a schedule against the oracle.

mod beyond;
mod blink;
mod drives;
mod end;
mod neighbour;

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use array::pool::RegionSizes;
use block::{BLOCK_BYTES, Fault, Instant, Request, RequestKind, Seat, mix};

use super::{
    CHUNK_BYTES, DRIVE_BYTES, ELASTIC_DRIVE_BYTES, Event, SEEDED, SETTINGS, Schedule, VOLUME, check,
};
use crate::buffer::Buffer;
use crate::content::SECTOR;
use crate::drive::{Drive, DriveFault, Pace, Regions, Trigger};
use crate::ledger::{Ledger, Tick};
use crate::panics::caught;
use crate::world::{World, WorldOptions};

/// Virtual time within which everything must have ended once faults have stopped (I4).
const BOUND: Duration = Duration::from_secs(60);
/// While something is waited for, a drive does not hang for longer than this: the pool's deadline is shorter.
const HANG_MAX: Duration = Duration::from_secs(15);
/// Additional time if a drive is slow: an opening reads some thousand blocks of the drive one after the other, and each
/// read takes up to a thousand times as long as normal.
const SLOW_BOUND: Duration = Duration::from_secs(15 * 60);
/// The same bound in events, because an endless loop takes hardly any virtual time. Schedules have a few thousand
/// events.
const STEPS_MAX: u64 = 3_000_000;
/// One of so many runs ends with the loss of drives and a second read of everything.
const LOSSES_ONE_IN: u64 = 4;

/// An error that a schedule has revealed, by the invariant of `faults.md` that it violates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// I1 to I6; "panic" when an assertion failed, "open" when the pool did not open.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
}

impl Violation {
    pub(crate) fn new(invariant: &'static str, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { invariant, what }
    }
}

impl Violation {
    /// The key that distinguishes findings: the invariant; for a failed assertion also its place.
    #[must_use]
    pub fn signature(&self) -> String {
        match self.invariant {
            "panic" => {
                let place = self.what.rfind(" (").map_or("", |at| &self.what[at..]);
                format!("panic{place}")
            }
            "open" => self.what.chars().filter(|c| !c.is_ascii_digit()).collect(),
            invariant => invariant.to_owned(),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.what)
    }
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// What was wrong, if something was.
    pub violation: Option<Violation>,
    /// Client requests.
    pub requests: u64,
    /// Drive operations.
    pub ios: u64,
    /// Faults that happened, not counting cuts: planned ones, and drives failed by command.
    pub faults: u64,
    /// Power cuts and kills, each with its recovery.
    pub cuts: u64,
    /// Writes that ended because no space was left.
    pub no_space: u64,
    /// A hash of all that happened, in order.
    pub trace: u64,
}

impl Verdict {
    /// True if the run meets the minimum for a schedule of the swarm: at least 100 client requests and 300 drive
    /// operations, a cut with recovery and two further faults. (Pools of the swarm have six drives and more; every run
    /// ends with all redundancy restored and all data read back.)
    #[must_use]
    pub const fn is_full(&self) -> bool {
        self.requests >= 100 && self.ios >= 300 && self.cuts >= 1 && self.faults >= 2
    }
}

/// Runs schedules. Each pool is created once and copied for each run.
#[derive(Default)]
pub struct Runner {
    templates: Vec<Option<World>>,
}

impl Runner {
    /// A runner that has created no pool yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            templates: Vec::new(),
        }
    }

    fn template(&mut self, setting: usize) -> &World {
        self.templates.resize_with(SETTINGS.len(), || None);
        self.templates[setting].get_or_insert_with(|| {
            let of = SETTINGS[setting];
            let mut world = World::create_symbolic(&options(setting));
            let group_bytes = world.pool().geometry().group_data_bytes();
            assert!(of.volume_bytes.is_multiple_of(group_bytes), "{}", of.name);
            world
                .create_volume(VOLUME, of.volume_bytes)
                .expect("there is room");
            world.settle();
            world
        })
    }

    /// The beginning of a schedule's run.
    pub(crate) fn begin(&mut self, schedule: &Schedule, log: Option<Log>) -> Run {
        let mut world = self.template(schedule.setting).clone();
        world.reseed(schedule.seed);
        Run {
            depth: schedule.depth,
            silent: schedule.is_silent(),
            log,
            // The small pools of enumerations survive the loss of half of their drives and more.
            degraded: schedule.setting >= SEEDED,
            may_fill: SETTINGS[schedule.setting].physical_blocks > 0,
            ..Run::on(world, schedule.seed, schedule.setting)
        }
    }

    /// Runs a schedule. A failed assertion in the logic is a violation too.
    pub fn run(&mut self, schedule: &Schedule) -> Verdict {
        self.run_with(schedule, None)
    }

    /// The same, with a line for each event and for each report of the pool.
    pub fn explain(&mut self, schedule: &Schedule) -> (Verdict, Vec<String>) {
        let log = Arc::new(Mutex::new(Vec::new()));
        let verdict = self.run_with(schedule, Some(Arc::clone(&log)));
        let lines = std::mem::take(&mut *log.lock().expect("one thread"));
        (verdict, lines)
    }

    fn run_with(&mut self, schedule: &Schedule, log: Option<Log>) -> Verdict {
        // The creation of the pool is part of the run: a check may fail there.
        let outcome = caught(|| {
            let mut run = self.begin(schedule, log);
            for drive in run.world().drives_mut() {
                drive.forgo_digest();
            }
            let violation = run.all(&schedule.events).err();
            run.report();
            run.count();
            Verdict {
                violation,
                requests: run.requests,
                ios: run.ios,
                faults: run.faults + run.failed,
                cuts: run.cuts,
                no_space: run.no_space,
                trace: run.trace,
            }
        });
        outcome.unwrap_or_else(|what| Verdict {
            violation: Some(Violation::new("panic", what)),
            requests: 0,
            ios: 0,
            faults: 0,
            cuts: 0,
            no_space: 0,
            trace: 0,
        })
    }
}

/// The options of a setting's pool.
pub(crate) fn options(setting: usize) -> WorldOptions {
    let of = SETTINGS[setting];
    WorldOptions {
        scheme: of.scheme.to_owned(),
        drives: of.drives,
        spares: of.spares,
        drive_bytes: match of.is_elastic() {
            true => ELASTIC_DRIVE_BYTES,
            false => DRIVE_BYTES,
        },
        chunk_bytes: CHUNK_BYTES,
        cell_bytes: of.cell_bytes,
        regions: Some(RegionSizes {
            lanes: Some(of.lanes),
            ring_bytes: (of.ring_blocks > 0).then_some(of.ring_blocks * BLOCK_BYTES),
            first_format: false,
        }),
        lazy: of.lazy,
        // The default of new pools.
        interleave: of.lazy,
        free_stripes: of.free_stripes,
        physical_blocks: (of.physical_blocks > 0).then_some(of.physical_blocks),
        pace: Pace::Null,
        // Not a seed of schedules, whose new drives would have the names of the first ones.
        seed: !(setting as u64),
    }
}

/// Log lines that survive a panic.
pub(crate) type Log = Arc<Mutex<Vec<String>>>;

/// A request in flight, as the ledger identifies it.
#[derive(Clone, Copy, Debug)]
enum Asked {
    Read { begun: Tick, low: usize },
    Write(usize),
    Flush(Tick),
}

/// A run under way.
#[derive(Clone)]
pub(crate) struct Run {
    /// `None` only while the power is off.
    world: Option<World>,
    ledger: Ledger,
    in_flight: Vec<(u64, Asked)>,
    /// Writes to the other volume that have not ended.
    neighbours: Vec<u64>,
    depth: usize,
    /// Answers of the world that have been processed.
    answered: u64,
    requests: u64,
    ios: u64,
    /// `World::ios` of the present world at the last count.
    before: u64,
    faults: u64,
    /// Drives failed by command.
    failed: u64,
    cuts: u64,
    /// Writes that ended because no space was left.
    no_space: u64,
    /// True if the schedule has silent faults: then only a scrub has checked everything.
    silent: bool,
    trace: u64,
    reopened: u64,
    seed: u64,
    setting: usize,
    log: Option<Log>,
    /// Reports of the present world that are in the log.
    reported: usize,
    /// True if a fault has been planned that makes a drive full.
    may_fill: bool,
    /// Earlier states of drives, restored when the pool is opened next.
    stale: Vec<(usize, Regions, Drive)>,
    /// Decides the names of the drives at the next opening, if they are other ones then.
    pub(crate) names: Option<u64>,
    /// More drives than the code survives are gone: requests may end with errors.
    blinks: bool,
    /// True if an administrator opens the pool although half of its drives are missing.
    pub(crate) degraded: bool,
    /// The state after each write and flush, if these are collected.
    pub(crate) moments: Option<Vec<Moment>>,
    /// Whether only writes and flushes of the pool itself count for that: of labels and cell tables.
    pub(crate) moments_of_pool: bool,
    /// Events handled.
    steps: u64,
}

/// A run at one moment: everything from which the outcomes of a power cut follow.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) world: World,
    pub(crate) ledger: Ledger,
}

pub(crate) type Checked = Result<(), Violation>;

fn sector(bytes: u64) -> usize {
    usize::try_from(bytes).expect("volumes are small") / SECTOR
}

impl Run {
    pub(crate) fn world(&mut self) -> &mut World {
        self.world.as_mut().expect("the power is on")
    }

    /// The values that its clients may read.
    pub(crate) const fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// A run on a pool whose volume has never been written.
    pub(crate) fn on(world: World, seed: u64, setting: usize) -> Self {
        let sectors = sector(SETTINGS[setting].volume_bytes);
        Self {
            before: world.ios(),
            world: Some(world),
            ..Self::after(Ledger::new(sectors), seed, setting)
        }
    }

    /// A run that continues after a power cut. `ledger` has the values that the drives may hold.
    pub(crate) const fn after(ledger: Ledger, seed: u64, setting: usize) -> Self {
        Self {
            world: None,
            ledger,
            in_flight: Vec::new(),
            neighbours: Vec::new(),
            depth: 1,
            answered: 0,
            requests: 0,
            ios: 0,
            before: 0,
            faults: 0,
            failed: 0,
            cuts: 0,
            no_space: 0,
            silent: false,
            trace: 0,
            reopened: 0,
            seed,
            setting,
            log: None,
            reported: 0,
            may_fill: false,
            stale: Vec::new(),
            names: None,
            blinks: false,
            degraded: true,
            moments: None,
            moments_of_pool: false,
            steps: 0,
        }
    }

    pub(crate) fn events(&mut self, events: &[Event]) -> Checked {
        for &event in events {
            self.say(|| event.to_string());
            self.event(event)?;
        }
        Ok(())
    }

    /// Runs these events, then checks everything that must hold at the end.
    pub(crate) fn all(&mut self, events: &[Event]) -> Checked {
        self.events(events)?;
        self.say(|| "quiesce".to_owned());
        self.quiesce()?;
        self.read_back()?;
        if self.silent {
            self.scrub_until_clean()?;
        }
        check::drives_agree(self.world())?;
        self.neighbour_goes()?;
        // The agreement of the drives implies this. A part of the runs also checks it from the client's side.
        if mix(self.seed).is_multiple_of(LOSSES_ONE_IN) {
            self.lose_and_read_back()?;
        } else if self.silent && mix(self.seed) % LOSSES_ONE_IN == 1 {
            self.rot_beyond()?;
        }
        Ok(())
    }

    fn event(&mut self, event: Event) -> Checked {
        match event {
            Event::Read { .. } | Event::Write { .. } | Event::Zero { .. } | Event::Flush => {
                self.room(self.depth - 1)?;
                if let Event::Read { offset, length } = event {
                    self.check_holes(offset, length)?;
                }
                self.ask(event);
                self.reap()
            }
            Event::Steps(count) => {
                for _ in 0..count {
                    self.step()?;
                }
                Ok(())
            }
            Event::Fault {
                seat,
                trigger,
                fault,
            } => {
                self.inject(seat, trigger, fault);
                Ok(())
            }
            Event::Drain => {
                self.room(0)?;
                self.ask(Event::Flush);
                self.room(0)
            }
            Event::Settle => self.settle(),
            Event::Kill => self.power(None),
            Event::Cut(spec) => self.power(Some(spec)),
            Event::Reopen => self.reopen(),
            Event::Scrub => {
                self.world().begin_scrub();
                Ok(())
            }
            Event::Elastic(share) => {
                self.world().set_elastic_share(share);
                Ok(())
            }
            Event::Steer {
                priority,
                megabytes,
                paused,
            } => {
                self.world().steer_to(priority, megabytes, paused);
                Ok(())
            }
            Event::Neighbour => self.neighbour(),
            Event::Fail(seat) => {
                self.failed += u64::from(self.fail(seat)?);
                Ok(())
            }
            Event::Insert(seat) => {
                self.insert(seat);
                Ok(())
            }
            Event::Replace(seat) => self.replace(seat),
            Event::Return { seat, lost } => self.bring_back(seat, lost),
            Event::Blink {
                seats,
                leave,
                steps,
                back,
            } => self.blink((seats, leave), steps, back),
            Event::Moves(seat) => self.moves(seat),
            Event::Names(seed) => {
                self.names = Some(seed);
                Ok(())
            }
            Event::Rename(number) => {
                self.world().begin_rename(&format!("sim-{number}"));
                Ok(())
            }
            Event::Expand(drives) => {
                let fresh = self.world().drives()[0].another();
                let drives = vec![fresh; usize::from(drives)];
                // A pool that lacks redundancy, or that is being expanded, does not grow.
                self.world().begin_expand(drives, &[]).ok();
                Ok(())
            }
            Event::Remove(seat) => {
                let world = self.world();
                if world.pool().leaving() == Some(seat) {
                    world.begin_keep(seat).ok();
                } else {
                    // A pool that lacks redundancy or room, or that is being expanded, keeps its drives.
                    world.begin_remove(seat).ok();
                }
                Ok(())
            }
            Event::Succeed(seat) => {
                let fresh = self.world().drives()[0].another();
                // A drive that is out, or leaves, or is being replaced, gets no successor.
                self.world().replace_working(seat, fresh).ok();
                Ok(())
            }
            Event::Stale(seat) => {
                self.remember(seat, Regions::ALL);
                Ok(())
            }
            Event::SetBack { seat, regions } => {
                self.remember(seat, regions);
                Ok(())
            }
        }
    }

    /// Stores the present content of a drive. When the pool is opened next, these regions of the drive get it back.
    fn remember(&mut self, seat: Seat, regions: Regions) {
        let index = self.world().drive_index(seat);
        let then = index.map(|index| (index, regions, self.world().drives()[index].clone()));
        self.stale.extend(then);
    }

    fn say(&mut self, what: impl FnOnce() -> String) {
        self.report();
        if let (Some(log), Some(world)) = (&self.log, &self.world) {
            let line = format!("{} {}", world.now(), what());
            log.lock().expect("one thread").push(line);
        }
    }

    /// Appends the new reports of the pool to the log.
    fn report(&mut self) {
        if let (Some(log), Some(world)) = (&self.log, &self.world) {
            let new = &world.reports[self.reported..];
            self.reported = world.reports.len();
            let lines = new.iter().map(|report| format!("    {report}"));
            log.lock().expect("one thread").extend(lines);
        }
    }

    fn inject(&mut self, seat: Seat, trigger: Trigger, fault: DriveFault) {
        self.may_fill |= matches!(fault, DriveFault::Full { .. });
        if let Some(drive) = self.world().drive_in(seat) {
            drive.inject(trigger, fault);
        }
    }

    // --- requests ----------------------------------------------------------------------------

    fn ask(&mut self, event: Event) {
        self.requests += 1;
        let request = |kind, offset, length, fua| Request {
            kind,
            offset,
            length,
            fua,
        };
        let (request, values, asked) = match event {
            Event::Read { offset, length } => {
                let begun = self.ledger.read_begins();
                let low = sector(offset);
                let asked = Asked::Read { begun, low };
                let request = request(RequestKind::Read, offset, length, false);
                (request, Vec::new(), asked)
            }
            Event::Write {
                offset,
                length,
                fua,
            } => {
                let range = (sector(offset), sector(offset + length));
                let (index, values) = self.ledger.write_begins(range.0, range.1, fua, false);
                let request = request(RequestKind::Write, offset, length, fua);
                (request, values, Asked::Write(index))
            }
            Event::Zero {
                offset,
                length,
                trim,
            } => {
                let range = (sector(offset), sector(offset + length));
                let (index, _) = self.ledger.write_begins(range.0, range.1, false, true);
                let kind = if trim {
                    RequestKind::Trim
                } else {
                    RequestKind::WriteZeroes
                };
                let request = request(kind, offset, length, false);
                (request, Vec::new(), Asked::Write(index))
            }
            _ => {
                let begun = self.ledger.flush_begins();
                let request = request(RequestKind::Flush, 0, 0, false);
                (request, Vec::new(), Asked::Flush(begun))
            }
        };
        let id = self.world().submit_sectors(VOLUME, request, values);
        self.in_flight.push((id, asked));
    }

    /// Runs until at most `most` requests are in flight.
    pub(crate) fn room(&mut self, most: usize) -> Checked {
        let limit = self.world().now() + BOUND;
        self.reap()?;
        while self.in_flight.len() > most {
            self.go_on(limit, "a request")?;
        }
        Ok(())
    }

    /// Handles the next event; false if there is none, not even a completion that was held back.
    fn step(&mut self) -> Result<bool, Violation> {
        self.steps += 1;
        let boundaries = match self.moments_of_pool {
            false => World::boundaries,
            true => World::pool_boundaries,
        };
        let boundary = boundaries(self.world());
        let mut stepped = self.world().step();
        if !stepped {
            // Completions that a hanging drive holds back come last.
            self.world().release();
            stepped = self.world().step();
        }
        self.reap()?;
        let world = self.world.as_ref().expect("the power is on");
        if let Some(moments) = &mut self.moments
            && boundaries(world) != boundary
        {
            moments.push(Moment {
                world: world.clone(),
                ledger: self.ledger.clone(),
            });
        }
        Ok(stepped)
    }

    fn go_on(&mut self, limit: Instant, what: &str) -> Checked {
        let now = self.world().now();
        if self.world().is_quiet_but_for_held() || now + BOUND > limit + HANG_MAX {
            // Only the pool's timer for a suspect is due, perhaps in minutes, or moves are paused and the pool asks its
            // lanes for room again and again. Release the completions of a hanging drive now, as when nothing is due: no
            // work takes so long.
            self.world().release();
        }
        if !self.step()? || self.is_over(limit) || self.steps > STEPS_MAX {
            let (now, left) = (self.world().now(), self.world().what_is_left());
            return Err(Violation::new(
                "I4",
                format!("{what} has not ended at {now}: {left}"),
            ));
        }
        Ok(())
    }

    /// True if work that began with this limit has taken too long.
    fn is_over(&mut self, limit: Instant) -> bool {
        let world = self.world();
        let now = world.now();
        let is_slow = world.drives().iter().any(Drive::is_slow);
        now > limit && (now > limit + SLOW_BOUND || !is_slow) && !world.is_at_rest()
    }

    fn reap(&mut self) -> Checked {
        let answered = self.world().answered();
        if answered == self.answered {
            return Ok(());
        }
        self.answered = answered;
        let mut index = 0;
        while index < self.in_flight.len() {
            let (id, asked) = self.in_flight[index];
            match self.world().ended_pieces(id) {
                None => index += 1,
                Some(outcome) => {
                    self.in_flight.swap_remove(index);
                    self.ended(asked, outcome)?;
                }
            }
        }
        Ok(())
    }

    fn ended(&mut self, asked: Asked, outcome: Result<Vec<Buffer>, Fault>) -> Checked {
        // The client gets the error of a full drive: the write is not acknowledged, and may be there.
        let may_fill = self.may_fill || self.world().drives().iter().any(Drive::has_been_full);
        if outcome == Err(Fault::Full) && may_fill && matches!(asked, Asked::Write(_)) {
            self.no_space += 1;
            return Ok(());
        }
        if self.blinks && outcome.is_err() {
            return Ok(());
        }
        let pieces = outcome.map_err(|fault| {
            Violation::new(
                "I3",
                format!("{asked:?} ended with {fault:?} within the budget"),
            )
        })?;
        match asked {
            Asked::Write(index) => self.ledger.write_ends(index),
            Asked::Flush(begun) => self.ledger.flush_ends(begun),
            Asked::Read { begun, mut low } => {
                for piece in pieces {
                    let Buffer::Sectors(sectors) = piece else {
                        unreachable!("schedules have symbolic contents");
                    };
                    if let Some(odd) = sectors.first_odd() {
                        let what = format!("sector {} is of no client", low + odd);
                        return Err(Violation::new("I1", what));
                    }
                    let values = sectors.values();
                    self.ledger
                        .read_ends(begun, low, values)
                        .map_err(|illegal| Violation::new("I1", illegal.to_string()))?;
                    low += values.len();
                }
            }
        }
        Ok(())
    }

    pub(crate) fn settle(&mut self) -> Checked {
        self.world().go_on();
        let limit = self.world().now() + BOUND;
        while !self.world().is_quiet() {
            self.go_on(limit, "work in the background")?;
        }
        self.world().check_places();
        self.world().check_identities();
        Ok(())
    }

    /// Adds the counters of the present world.
    fn count(&mut self) {
        if let Some(world) = &self.world {
            self.ios += world.ios() - self.before;
            self.before = world.ios();
            self.trace = mix(self.trace ^ world.trace());
            self.faults = world.drives().iter().map(Drive::faults_happened).sum();
        }
    }
}
