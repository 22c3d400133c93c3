//! A pool, its lanes, its drives, and one queue of future events.
//!
//! ```text
//! mod.rs            the parts, the queue, and the actions of lanes
//! admin.rs          the administrator's commands        client.rs, requests.rs   a client's requests
//! pool_actions.rs   the actions of the pool             study.rs                 drives by models
//! tally.rs          counts of what lanes ask of drives
//! ```

mod admin;
mod ascending;
mod back;
mod client;
mod open;
mod pool_actions;
mod power;
mod queue;
mod requests;
mod scrub;
mod study;
mod tally;
mod timing;
#[cfg(test)]
mod torn_labels;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use array::format::{Column, GroupId};
use array::pool::{Half, Pool, PoolError, RegionSizes, Report, Ticket};
use array::router::VolumeMap;
use array::{Action, IoKind, Lane, Reply};
use block::{Fault, Instant, Outcome, Seat, mix};
use layout::Cell;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

use self::queue::{Queue, WorldEvent};
use self::requests::Requests;
use self::timing::Timing;
use crate::buffer::Contents;
use crate::drive::{Admitted, Drive, Pace};
use crate::replay::{Asked, perform};
use crate::scratch::Scratch;

pub(crate) use self::open::wipe;
pub use self::power::{CutSpec, InFlight, PowerLoss};
pub use self::study::{StudyError, StudyOptions, StudyVolume};
pub use self::tally::{LogBlocks, Moved, Tally, Where};

/// How long a pool that waits for drives is watched: it tries again at growing intervals of at most two seconds.
const WAITS: Duration = Duration::from_secs(10);
/// Delay of a hand-over between the pool and a lane. It is the same for all hand-overs, so they arrive in order.
const HAND_OVER: Duration = Duration::from_nanos(200);
/// Duration of a computation.
const COMPUTATION: Duration = Duration::from_nanos(100);

/// Options of a world.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Scheme string.
    pub scheme: String,
    /// Drives of the layout.
    pub drives: u16,
    /// Drives that wait as spares.
    pub spares: u16,
    /// Size of each drive.
    pub drive_bytes: u64,
    /// `-o chunk=`.
    pub chunk_bytes: u64,
    /// `-o cell=`.
    pub cell_bytes: u64,
    /// Number of lanes and sizes of their journals; `None`: derived from the size of the drives.
    pub regions: Option<RegionSizes>,
    /// True if a group is made blank at its first write; false if the creation of the volume does that.
    pub lazy: bool,
    /// True if volumes are interleaved over several groups of a declustered pool.
    pub interleave: bool,
    /// True if each group has two free stripes for overwrites.
    pub free_stripes: bool,
    /// Blocks of physical space of each drive, beside those of labels, ring and pages, if the drives compress.
    pub physical_blocks: Option<u64>,
    /// Pace of each drive.
    pub pace: Pace,
    /// Seed of all latencies.
    pub seed: u64,
}

impl WorldOptions {
    /// The smallest pool that uses every mechanism: drives of 16 MiB that take no time, cells of 32 KiB and chunks of 4
    /// KiB.
    #[must_use]
    pub fn small(scheme: &str, drives: u16) -> Self {
        Self {
            scheme: scheme.to_owned(),
            drives,
            spares: 0,
            drive_bytes: 16 << 20,
            chunk_bytes: 4 << 10,
            cell_bytes: 32 << 10,
            regions: None,
            lazy: false,
            interleave: false,
            free_stripes: false,
            physical_blocks: None,
            pace: Pace::Null,
            seed: 1,
        }
    }

    /// Sets one lane, with a ring of `ring_bytes` bytes on each drive.
    #[must_use]
    pub fn with_one_lane(self, ring_bytes: u64) -> Self {
        let regions = Some(RegionSizes {
            lanes: Some(1),
            ring_bytes: Some(ring_bytes),
            first_format: false,
        });
        Self { regions, ..self }
    }
}

/// A simulated pool.
#[derive(Clone)]
pub struct World {
    pool: Pool,
    lanes: Vec<Lane>,
    scratch: Vec<Scratch>,
    contents: Contents,
    /// Set if the drives answer by models.
    timing: Option<Timing>,
    /// All drives that exist, including those that have left their seat.
    drives: Vec<Drive>,
    /// By seat, the index of its drive in `drives`, as the pool sees it.
    seats: Vec<Option<usize>>,
    /// The same as each lane sees it: changes reach a lane in order with the pool's commands.
    lane_seats: Vec<Vec<Option<usize>>>,
    now: Instant,
    queue: Queue,
    /// Operations of hanging drives: each end is held back until [`World::release`].
    held: Vec<WorldEvent>,
    /// By lane, when its timer is due.
    armed: Vec<Option<Instant>>,
    /// When the pool's timer is due.
    pool_armed: Option<Instant>,
    /// Events of the pool's timer in the queue.
    pool_timers: usize,
    rng: ChaCha8Rng,
    volumes: BTreeMap<String, VolumeMap>,
    requests: Requests,
    tickets: BTreeMap<Ticket, Option<Result<(), PoolError>>>,
    next_ticket: u64,
    /// The last command by which a drive returned to a seat.
    returning: BTreeMap<Seat, Ticket>,
    /// Sequence number of the last write, over all drives.
    write_sequence: u64,
    trace: u64,
    ios: u64,
    /// Counts what lanes ask of their drives, if that is wanted.
    tally: Option<Box<Tally>>,
    /// Groups need no zeroing, and it takes no time.
    skips_zeroing: bool,
    /// The order of answers is kept for [`World::take_answered`].
    notes_answers: bool,
    /// Number of lane checks.
    checks: u64,
    /// Number of polls of the pool, each of which is followed by a check.
    pool_checks: u64,
    /// Writes and flushes that have ended.
    boundaries: u64,
    /// Those of them that were the pool's own: of labels and cell tables.
    pool_boundaries: u64,
    /// Everything that the pool reported.
    pub reports: Vec<Report>,
}

impl World {
    fn around(
        pool: Pool,
        drives: Vec<Drive>,
        seats: Vec<Option<usize>>,
        rng: ChaCha8Rng,
        symbolic: bool,
    ) -> Self {
        let contents = match symbolic {
            false => Contents::Bytes,
            true => Contents::Sectors,
        };
        Self::assemble(pool, drives, seats, rng, (contents, None))
    }

    /// A world of drives that answer by models.
    fn around_models(
        pool: Pool,
        drives: Vec<Drive>,
        seats: Vec<Option<usize>>,
        rng: ChaCha8Rng,
        (contents, timing): (Contents, Timing),
    ) -> Self {
        let mut world = Self::assemble(pool, drives, seats, rng, (contents, Some(timing)));
        world.notes_answers = true;
        world
    }

    fn assemble(
        pool: Pool,
        drives: Vec<Drive>,
        seats: Vec<Option<usize>>,
        rng: ChaCha8Rng,
        (contents, timing): (Contents, Option<Timing>),
    ) -> Self {
        let geometry = Arc::clone(pool.geometry());
        let mut lanes: Vec<Lane> = (0..geometry.lanes())
            .map(|lane| Lane::new(Arc::clone(&geometry), lane))
            .collect();
        if contents == Contents::Lengths {
            lanes.iter_mut().for_each(Lane::trust_content);
        }
        // Simulated requests have a few chunks, too few bytes to reach the limits for real drives: set lower limits.
        // Studies have requests of real sizes, and no free stripes.
        if geometry.free_stripes() > 0 && geometry.code().data().len() > 1 {
            let chunk = geometry.chunk_bytes();
            lanes
                .iter_mut()
                .for_each(|lane| lane.hold_reads(chunk, 2 * chunk));
        }
        let mut world = Self {
            scratch: lanes.iter().map(|_| Scratch::new(contents)).collect(),
            contents,
            timing,
            armed: vec![None; lanes.len()],
            pool_armed: None,
            pool_timers: 0,
            pool,
            lanes,
            drives,
            lane_seats: vec![seats.clone(); usize::from(geometry.lanes())],
            seats,
            now: Instant::ZERO,
            queue: Queue::default(),
            held: Vec::new(),
            rng,
            volumes: BTreeMap::new(),
            requests: Requests::default(),
            tickets: BTreeMap::from([(Ticket(0), None)]),
            next_ticket: 1,
            returning: BTreeMap::new(),
            write_sequence: 0,
            trace: 0,
            ios: 0,
            tally: None,
            skips_zeroing: false,
            notes_answers: false,
            checks: 0,
            pool_checks: 0,
            boundaries: 0,
            pool_boundaries: 0,
            reports: Vec::new(),
        };
        world.sample();
        world.poll_pool();
        world
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The current virtual time.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A hash of everything that has happened, in order: equal for equal runs.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// Drive operations that have ended, the pool's own included.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.ios
    }

    /// Counts from now on, from zero, what lanes ask of their drives.
    pub fn count_anew(&mut self) {
        self.tally = Some(Box::default());
    }

    /// What lanes have asked of their drives since [`World::count_anew`].
    #[must_use]
    pub fn tally(&self) -> Option<&Tally> {
        self.tally.as_deref()
    }

    /// Bytes of memory that the logs of all lanes hold.
    #[must_use]
    pub fn logged_bytes(&self) -> u64 {
        self.lanes.iter().map(Lane::logged_bytes).sum()
    }

    /// Writes and flushes that have ended: the power may be cut after each of them.
    #[must_use]
    pub const fn boundaries(&self) -> u64 {
        self.boundaries
    }

    /// Writes and flushes of labels and cell tables that have ended.
    pub(crate) const fn pool_boundaries(&self) -> u64 {
        self.pool_boundaries
    }

    /// A hash of the media of all drives, and of which drives are gone.
    #[must_use]
    pub fn image_digest(drives: &[Drive]) -> u64 {
        drives.iter().fold(0, |all, drive| {
            mix(all ^ drive.digest()).wrapping_add(u64::from(drive.is_gone()))
        })
    }

    /// The drive of a seat.
    ///
    /// # Panics
    /// When the seat has no drive.
    pub fn drive(&mut self, seat: Seat) -> &mut Drive {
        let index = self.seats[seat.index()].expect("a drive sits there");
        &mut self.drives[index]
    }

    /// Index into [`World::drives`] of the drive in a seat, if there is one.
    pub(crate) fn drive_index(&self, seat: Seat) -> Option<usize> {
        self.seats.get(seat.index()).copied().flatten()
    }

    /// Index into [`World::drives`] of the drive in a seat.
    ///
    /// # Panics
    /// When the seat has no drive.
    #[must_use]
    pub fn drive_index_of(&self, seat: Seat) -> usize {
        self.drive_index(seat).expect("a drive sits there")
    }

    /// The drive that sits in a seat, if one does.
    pub fn drive_in(&mut self, seat: Seat) -> Option<&mut Drive> {
        let index = self.seats.get(seat.index()).copied().flatten()?;
        Some(&mut self.drives[index])
    }

    /// The same, read-only.
    #[must_use]
    pub fn drive_at(&self, seat: Seat) -> Option<&Drive> {
        let index = self.seats.get(seat.index()).copied().flatten()?;
        Some(&self.drives[index])
    }

    /// From now on latencies follow from `seed`.
    pub fn reseed(&mut self, seed: u64) {
        self.rng = ChaCha8Rng::seed_from_u64(seed);
    }

    /// All drives that exist, including those that have left their seat.
    #[must_use]
    pub fn drives(&self) -> &[Drive] {
        &self.drives
    }

    /// The same, mutable, to inject faults.
    pub fn drives_mut(&mut self) -> &mut [Drive] {
        &mut self.drives
    }

    /// The generator that decides latencies, for a test's own choices.
    pub const fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    /// True if no event is left.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        self.held.is_empty() && self.is_quiet_but_for_held()
    }

    /// True if no event is left except completions that a hanging drive holds back and that no lane waits for.
    pub(crate) fn is_quiet_but_for_held(&self) -> bool {
        // The pool's timers do not count: the time at which a suspect is trusted again may be far away.
        let flying = self.timing.as_ref().map_or(0, Timing::flying);
        let quiet = self.queue.len() == self.pool_timers && flying == 0;
        quiet && self.pool.is_idle() && self.lanes_idle()
    }

    /// True if what is left are times at which lanes no longer have anything to do.
    pub(crate) fn is_at_rest(&self) -> bool {
        let flying = self.timing.as_ref().map_or(0, Timing::flying);
        let waits = self.lanes.iter().any(|lane| lane.poll_timeout().is_some());
        flying == 0 && self.held.is_empty() && !waits && self.pool.is_idle() && self.lanes_idle()
    }

    /// Describes what keeps the world from being quiet.
    #[must_use]
    pub fn what_is_left(&self) -> String {
        let lanes = self.lanes.iter().enumerate();
        let busy: Vec<usize> = lanes
            .filter(|(_, lane)| !lane.is_idle())
            .map(|(index, _)| index)
            .collect();
        format!(
            "{} ends held back, {} events due of which {} are timers of the pool, {} operations under way, pool {}, busy lanes {busy:?}",
            self.held.len(),
            self.queue.len(),
            self.pool_timers,
            self.timing.as_ref().map_or(0, Timing::flying),
            if self.pool.is_idle() { "idle" } else { "busy" },
        )
    }

    /// Checks that the pool and its lanes agree on the place of each column, in a world that is quiet.
    pub(crate) fn check_places(&self) {
        self.pool
            .check_places(|group, column| self.lane_of(group).place(group, column));
    }

    /// The cell from which a column's lane reads it, if there is one.
    #[must_use]
    pub fn place(&self, group: GroupId, column: Column) -> Option<Cell> {
        self.lane_of(group).place(group, column)
    }

    /// The lane that serves a group.
    pub(crate) fn lane_of(&self, group: GroupId) -> &Lane {
        &self.lanes[usize::from(self.pool.geometry().lane_of(group))]
    }

    fn lanes_idle(&self) -> bool {
        self.lanes.iter().all(Lane::is_idle)
    }

    /// Runs until no event is left.
    ///
    /// # Panics
    /// When a lane or the pool still waits then: it hangs.
    pub fn settle(&mut self) {
        self.go_on();
        // Includes the work that an idle lane starts when its timer is due.
        while !self.is_quiet() || self.armed.iter().any(Option::is_some) {
            if !self.step() {
                break;
            }
        }
        for (index, lane) in self.lanes.iter().enumerate() {
            assert!(lane.is_idle(), "lane {index} hangs: {lane:#?}");
            let idle = self.scratch[index].is_idle()
                || lane.stragglers() > 0
                || lane.preserved_blocks() > 0
                || lane.is_stalled();
            assert!(idle, "lane {index} keeps memory");
        }
        assert!(self.pool.is_idle(), "the pool hangs: {:#?}", self.pool);
        self.check_places();
    }

    /// Whether a lane has reported to the pool that drives refuse its writes or flushes.
    pub(crate) fn is_stalled(&self) -> bool {
        self.lanes.iter().any(array::Lane::is_stalled)
    }

    /// Runs until no event is left, or until the pool has waited for drives for a while.
    pub fn settle_or_wait(&mut self) {
        let until = self.now + WAITS;
        while self.now < until && !self.is_quiet() && self.step() {}
    }

    // --- the queue ---------------------------------------------------------------------------

    fn push(&mut self, at: Instant, event: WorldEvent) {
        self.queue.push(at, event);
    }

    /// Delivers the completions that a hanging drive held back.
    pub fn release(&mut self) {
        for event in std::mem::take(&mut self.held) {
            self.push(self.now, event);
        }
    }

    /// A random latency, so that any two operations in flight may end in either order.
    fn jitter(&mut self) -> Duration {
        Duration::from_nanos(self.rng.random_range(1_000..200_000))
    }

    /// Hands an operation to a drive. Returns how the drive admitted it, and when its end is due.
    fn admit(
        &mut self,
        drive: Option<usize>,
        (kind, offset, length): (IoKind, u64, u64),
    ) -> (Option<Admitted>, Instant) {
        if self.timing.is_some() {
            // The drive's model decides when the operation ends.
            let admitted = drive.map(|drive| self.drives[drive].admit(kind, offset));
            return (admitted, self.now + HAND_OVER);
        }
        let jitter = self.jitter();
        let Some(drive) = drive else {
            return (None, self.now + jitter);
        };
        let drive = &mut self.drives[drive];
        let admitted = drive.admit(kind, offset);
        // A discard names a range and moves nothing.
        let moved = if kind == IoKind::Discard { 0 } else { length };
        let served = drive.serve(self.now, moved);
        let taken = served.since(self.now) + jitter;
        let at = self.now + taken * admitted.slow;
        (Some(admitted), drive.answer_at(self.now, at))
    }

    /// Submits an operation to a drive; `event` happens at its end.
    fn push_io(
        &mut self,
        (drive, what): (Option<usize>, (IoKind, u64, u64)),
        (admitted, at): (Option<Admitted>, Instant),
        event: WorldEvent,
    ) {
        if admitted.is_some_and(|admitted| admitted.hangs) {
            self.held.push(event);
        } else if let (Some(timing), Some(drive)) = (&mut self.timing, drive) {
            timing.submit(self.now, drive, what, event);
        } else {
            self.push(at, event);
        }
    }

    /// Time of the next event.
    pub(crate) fn next_at(&self) -> Option<Instant> {
        let queued = self.queue.next_at();
        let Some(timing) = &self.timing else {
            return queued;
        };
        if timing.has_ended() {
            return Some(self.now);
        }
        match (timing.next_due(), queued) {
            (Some(due), Some(queued)) => Some(due.min(queued)),
            (due, queued) => due.or(queued),
        }
    }

    /// Advances the clock to `now`. No event may be due before `now`.
    pub(crate) fn come_to(&mut self, now: Instant) {
        debug_assert!(self.next_at().is_none_or(|at| at >= now));
        self.now = self.now.max(now);
    }

    /// Work done by the model of a seat's drive, if the drive has a model.
    pub(crate) fn model_work(&self, seat: Seat) -> Option<crate::model::Work> {
        let drive = self.drive_index(seat)?;
        self.timing.as_ref()?.work(drive)
    }

    fn note(&mut self, what: u64) {
        self.trace = mix(self.trace ^ what).wrapping_add(self.now.0);
    }

    /// Handles the next event; false if there is none.
    pub fn step(&mut self) -> bool {
        if let Some(timing) = &mut self.timing {
            let queued = self.queue.next_at();
            let due = timing.next_due();
            if !timing.has_ended()
                && let Some(due) = due.filter(|&due| queued.is_none_or(|queued| due <= queued))
            {
                self.now = self.now.max(due);
                timing.advance(self.now);
            }
            if let Some(event) = timing.pop() {
                self.handle(event);
                return true;
            }
            // A drive was due but completed no operation: only the state of its model advanced.
            if due.is_some_and(|due| queued.is_none_or(|queued| due <= queued)) {
                return true;
            }
        }
        let Some((at, event)) = self.queue.pop() else {
            return false;
        };
        self.now = at;
        self.handle(event);
        true
    }

    fn handle(&mut self, event: WorldEvent) {
        let at = self.now;
        match event {
            WorldEvent::LaneIo {
                lane,
                drive,
                io,
                admitted,
            } => {
                let index = usize::from(lane);
                let outcome = match (drive, admitted) {
                    // A late operation whose request was answered without it: the memory is the client's again, and the
                    // result is not used.
                    (Some(_), _) if self.scratch[index].has_none_of(io.slices.all()) => Ok(()),
                    (Some(drive), Some(admitted)) => perform(
                        &mut self.drives[drive],
                        &io,
                        admitted,
                        &mut self.write_sequence,
                        &mut self.scratch[index],
                    ),
                    _ => Err(Fault::Gone),
                };
                self.ios += 1;
                self.boundaries += u64::from(io.kind != IoKind::Read);
                self.note(io.offset << 16 | (u64::from(lane) << 8) | code_of(outcome));
                self.lanes[index].handle_completion(at, io.id, outcome);
                self.poll_lane(lane);
            }
            WorldEvent::LaneCompute(lane, compute) => {
                let index = usize::from(lane);
                let computed = self.scratch[index].compute(&compute);
                let sums = computed.sums.iter().map(|&sum| u64::from(sum));
                self.note(sums.fold(u64::from(lane), |all, sum| mix(all ^ sum)));
                self.lanes[index].handle_computed(at, compute.id, computed);
                self.poll_lane(lane);
            }
            WorldEvent::PoolWrite {
                id,
                drive,
                offset,
                bytes,
                admitted,
            } => self.pool_write(id, (drive, admitted), offset, &bytes),
            WorldEvent::PoolFlush {
                id,
                drive,
                admitted,
            } => {
                let outcome = self.drives[drive].flush_to(admitted.mark, admitted.effect);
                self.drives[drive].takes_part |= outcome.is_ok();
                self.pool_ended(id, Half::Flush, outcome);
            }
            // Drives without content need no zeroing.
            WorldEvent::ToLane(_, array::Command::Zero { group }) if self.skips_zeroing => {
                let outcome = Ok(());
                let zeroed = array::Event::Zeroed { group, outcome };
                self.push(at + HAND_OVER, WorldEvent::ToPool(zeroed));
            }
            WorldEvent::ToLane(lane, command) => {
                self.lanes[usize::from(lane)]
                    .handle_command(at, command)
                    .expect("the pool knows the lanes' groups");
                self.poll_lane(lane);
            }
            WorldEvent::Swap(lane, a, b) => {
                self.lane_seats[usize::from(lane)].swap(a.index(), b.index());
            }
            WorldEvent::Seated(lane, seat, drive) => {
                seat_at(&mut self.lane_seats[usize::from(lane)], seat, Some(drive));
            }
            WorldEvent::Succeed(lane, seat, with, command) => {
                let index = usize::from(lane);
                let seats = &mut self.lane_seats[index];
                seats[seat.index()] = seats[with.index()].take();
                self.lanes[index]
                    .handle_command(at, command)
                    .expect("every lane is told");
                self.poll_lane(lane);
            }
            WorldEvent::ToPool(event) => {
                self.pool.handle_event(at, &event);
                self.poll_pool();
            }
            WorldEvent::Sample => {
                self.sample();
                self.poll_pool();
            }
            WorldEvent::PoolTimer => {
                self.pool_timers -= 1;
                if self.pool_armed == Some(at) {
                    self.pool_armed = None;
                    if self.pool.poll_timeout().is_some_and(|due| due <= at) {
                        self.pool.handle_timeout(at);
                    }
                    self.poll_pool();
                }
            }
            WorldEvent::Timer(lane) => {
                let index = usize::from(lane);
                if self.armed[index] == Some(at) {
                    self.armed[index] = None;
                    // The timer may have been moved to a later time since.
                    if self.lanes[index]
                        .poll_timeout()
                        .is_some_and(|due| due <= at)
                    {
                        self.lanes[index].handle_timeout(at);
                    }
                    self.poll_lane(lane);
                }
            }
        }
    }

    fn poll_lane(&mut self, lane: u16) {
        let index = usize::from(lane);
        while let Some(action) = self.lanes[index].poll_action() {
            if self.scratch[index].carry_out(&action) {
                continue;
            }
            match action {
                Action::Io(io) => self.begin_lane_io(lane, Asked::from(io)),
                Action::Joined(io) => self.begin_lane_io(lane, Asked::from(io)),
                Action::Compute(compute) => {
                    let mut at = self.now + COMPUTATION;
                    if let Some(timing) = &mut self.timing {
                        at = timing.compute(lane, at, &compute);
                    }
                    self.push(at, WorldEvent::LaneCompute(lane, compute));
                }
                Action::Reply(reply) => self.replied(lane, &reply),
                Action::Allocate(..) | Action::Release(_) => unreachable!("memory is done"),
            }
        }
        while let Some(event) = self.lanes[index].poll_event() {
            self.push(self.now + HAND_OVER, WorldEvent::ToPool(event));
        }
        if let Some(timeout) = self.lanes[index].poll_timeout() {
            let at = timeout.max(self.now);
            if self.armed[index].is_none_or(|armed| at < armed) {
                self.armed[index] = Some(at);
                self.push(at, WorldEvent::Timer(lane));
            }
        }
        self.check_lane(index);
    }

    /// Checks the invariants of a lane between two events. Every sixteenth check includes the checks that count
    /// everything again.
    fn check_lane(&mut self, index: usize) {
        // Pools of studies are too large to be checked at each event.
        if cfg!(debug_assertions) && self.timing.is_none() {
            self.checks += 1;
            self.lanes[index].check(self.checks.is_multiple_of(16));
        }
    }

    fn begin_lane_io(&mut self, lane: u16, io: Asked) {
        let drive = self.lane_seats[usize::from(lane)][io.seat.index()];
        let what = (io.kind, io.offset, io.length);
        if let Some(tally) = &mut self.tally {
            let geometry = self.pool.geometry();
            tally.count(geometry, lane, &io, &self.scratch[usize::from(lane)]);
        }
        let (admitted, at) = self.admit(drive, what);
        let event = WorldEvent::LaneIo {
            lane,
            drive,
            io,
            admitted,
        };
        self.push_io((drive, what), (admitted, at), event);
    }

    fn replied(&mut self, lane: u16, reply: &Reply) {
        let scratch = &mut self.scratch[usize::from(lane)];
        scratch.bring_home(&reply.elsewhere);
        let buffer = scratch.take_back(reply.request);
        self.note(reply.request.0 << 8 | code_of(reply.outcome));
        let notes = self.notes_answers;
        self.requests
            .part_ended(reply.request, reply.outcome, buffer, notes);
    }
}

/// Puts a drive, or none, into a seat. Extends the table if necessary.
fn seat_at(seats: &mut Vec<Option<usize>>, seat: Seat, drive: Option<usize>) {
    if seats.len() <= seat.index() {
        seats.resize(seat.index() + 1, None);
    }
    seats[seat.index()] = drive;
}

/// An outcome as a number, for the trace.
const fn code_of(outcome: Outcome) -> u64 {
    match outcome {
        Ok(()) => 0,
        Err(Fault::Medium) => 1,
        Err(Fault::Gone) => 2,
        Err(Fault::Full) => 3,
        Err(Fault::Invalid) => 4,
        Err(Fault::Shutdown) => 5,
        Err(Fault::Lost) => 6,
    }
}

fn random_uuid(rng: &mut ChaCha8Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
