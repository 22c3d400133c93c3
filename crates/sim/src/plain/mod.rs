//! An array without bytes: planner, layout, code and stripe locks, on modelled drives, and nothing else.
//!
//! It is what md, a RAID controller or a dRAID is in a study: no journal, no checksums, no labels. Requests become
//! plans of the same planner that the pool uses ([`array::plan`]), plans become drive operations, and the models of the
//! drives decide when these end. Nothing has content, so terabytes cost nothing and all of the volume counts as
//! written. The whole pool, with all its other parts, is [`World`](crate::World).
//!
//! ```text
//!   handle_request ─► controller, link ─► cache ─► stripes: lock, plan ─► drives ─► parity ─► drives ─► poll_done
//!                                           └ destage ┘        ▲
//!                                                    rebuild ──┘
//! ```
//!
//! It is a state machine like a drive's model: pass in requests, call [`PlainArray::handle_timeout`] at
//! [`PlainArray::poll_timeout`], and take ended requests from [`PlainArray::poll_done`]. [`load`](crate::load) does
//! that for whole workloads; a client whose requests depend on earlier answers does it by hand:
//!
//! ```
//! use block::{Instant, Request, RequestKind};
//! use sim::plain::{PlainArray, PlainOptions};
//!
//! let options = PlainOptions::new("raid5:4c", sim::model::preset("9lzx").unwrap());
//! let mut array = PlainArray::new(&options).unwrap();
//! let read = Request { kind: RequestKind::Read, offset: 0, length: 65536, fua: false };
//! array.handle_request(Instant::ZERO, 1, read);
//! let end = loop {
//!     let now = array.poll_timeout().unwrap();
//!     array.handle_timeout(now);
//!     if let Some((token, outcome)) = array.poll_done() {
//!         assert_eq!((token, outcome), (1, Ok(())));
//!         break now;
//!     }
//! };
//! assert!(end.0 > 0);
//! ```
//!
//! | file | policy |
//! | --- | --- |
//! | `mirror` | which copy a read takes: first, alternate, least queued |
//! | `small_write` | read-modify-write, reconstruct-write, or the cheaper |
//! | `cache/` | the array's memory: off, for reads, for reads and writes |
//! | `rebuild/` | which cell next, and which columns are read |
//!
//! Simplifications: requests are rounded outwards to blocks of 4 KiB, reads take no locks, and operations that were
//! submitted to a drive before it failed still succeed.

mod cache;
mod mirror;
mod operation;
mod options;
pub mod rebuild;
mod servers;
mod small_write;
mod target;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use array::plan::SubStripePlans;
use array::view::View;
use array::{Geometry, StripeLocks};
use block::{Instant, Outcome, Request, RequestKind, Seat, mix};
use slab::Slab;

use self::cache::Cache;
pub use self::cache::CacheOptions;
pub use self::mirror::MirrorReads;
use self::operation::{Op, Owner};
pub use self::options::{PlainError, PlainOptions};
use self::rebuild::Rebuild;
use self::servers::Servers;
pub use self::servers::ServersOptions;
pub use self::small_write::SmallWrites;
pub use self::target::{Target, TargetError};
use crate::model::{Model, Work};

/// An event that does not come from the drives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    /// A request has passed the controller and the link.
    Arrived(usize),
    /// An operation's parity is computed.
    Computed(usize),
    /// A request's answer has gone out.
    Answered(usize),
    /// The rebuild may take its next step.
    Rebuild,
}

/// A request in the array.
#[derive(Clone, Copy, Debug)]
struct Pending {
    token: u64,
    request: Request,
    /// Operations that have not ended.
    open: u32,
    outcome: Outcome,
}

/// The drive of a seat, and the byte of the drive at which the seat begins.
#[derive(Clone, Copy, Debug)]
struct Spindle {
    drive: usize,
    offset: u64,
}

/// An array without bytes.
#[derive(Clone, Debug)]
pub struct PlainArray {
    geometry: Arc<Geometry>,
    capacity_bytes: u64,
    /// Groups that hold data; a rebuild does nothing for the others.
    used_groups: u64,
    drives: Vec<Box<dyn Model>>,
    /// When each drive is due, `u64::MAX` for never.
    due: Vec<u64>,
    /// The earliest time in `due`.
    next_due: u64,
    spindles: Vec<Spindle>,
    view: View,
    /// True if every column is in its home cell: then a read needs no plan.
    whole: bool,
    plans: SubStripePlans,
    locks: StripeLocks,
    ops: Slab<Op>,
    requests: Slab<Pending>,
    /// Writes that wait for room in the cache.
    stalled: VecDeque<usize>,
    done: VecDeque<(u64, Outcome)>,
    timers: BinaryHeap<Reverse<(u64, u64, Timer)>>,
    timers_set: u64,
    servers: Servers,
    mirror: MirrorReads,
    copies: u16,
    turn: u64,
    cache: Cache,
    rebuild: Option<Rebuild>,
    now: u64,
    ios: u64,
    trace: u64,
}

impl PlainArray {
    /// An array of fresh drives of one kind.
    ///
    /// # Errors
    /// [`PlainError`] if the scheme, its width or the sizes do not fit.
    pub fn new(options: &PlainOptions) -> Result<Self, PlainError> {
        let geometry = options.geometry()?;
        let drives = (0..geometry.layout().drives())
            .map(|_| options.drive.build())
            .collect();
        Ok(Self::on_drives(options, geometry, drives))
    }

    /// The same on drives that may differ: slow ones ([`Slowed`](crate::model::Slowed)), other makes. There must be as
    /// many as the scheme has seats, each at least as large as in `options`.
    ///
    /// # Errors
    /// As [`PlainArray::new`], and when the number of drives is not the scheme's.
    pub fn with_drives(
        options: &PlainOptions,
        drives: Vec<Box<dyn Model>>,
    ) -> Result<Self, PlainError> {
        let geometry = options.geometry()?;
        let needed = geometry.layout().drives();
        if drives.len() != usize::from(needed) {
            return Err(PlainError::Drives {
                given: drives.len(),
                needed,
            });
        }
        Ok(Self::on_drives(options, geometry, drives))
    }

    fn on_drives(options: &PlainOptions, geometry: Geometry, drives: Vec<Box<dyn Model>>) -> Self {
        let capacity_bytes = geometry.groups() * geometry.group_data_bytes();
        let copies = match geometry.code().name() {
            "mirror" => geometry.code().columns(),
            _ => 1,
        };
        Self {
            capacity_bytes,
            used_groups: geometry.groups(),
            due: vec![u64::MAX; drives.len()],
            next_due: u64::MAX,
            spindles: (0..drives.len())
                .map(|drive| Spindle { drive, offset: 0 })
                .collect(),
            view: View::default(),
            whole: true,
            plans: SubStripePlans::preferring(options.small_writes.preference()),
            locks: StripeLocks::default(),
            ops: Slab::new(),
            requests: Slab::new(),
            stalled: VecDeque::new(),
            done: VecDeque::new(),
            timers: BinaryHeap::new(),
            timers_set: 0,
            servers: Servers::new(options.servers),
            mirror: options.mirror_reads,
            copies,
            turn: 0,
            cache: Cache::new(
                options.cache,
                geometry.stripe_data_bytes(),
                options.destages,
            ),
            rebuild: None,
            now: 0,
            ios: 0,
            trace: 0,
            geometry: Arc::new(geometry),
            drives,
        }
    }

    // --- looking -----------------------------------------------------------------------------

    /// Bytes that a client can address.
    #[must_use]
    pub const fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    /// Code, layout and sizes.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The time of the last call.
    #[must_use]
    pub const fn now(&self) -> Instant {
        Instant(self.now)
    }

    /// Number of seats.
    #[must_use]
    pub fn seats(&self) -> u16 {
        self.geometry.layout().drives()
    }

    /// Work done by the drive of a seat.
    #[must_use]
    pub fn work(&self, seat: Seat) -> Work {
        self.drives[self.spindles[seat.index()].drive].work()
    }

    /// Operations that the drive of a seat has not finished.
    #[must_use]
    pub fn queued(&self, seat: Seat) -> usize {
        self.drives[self.spindles[seat.index()].drive].queued()
    }

    /// Drive operations done.
    #[must_use]
    pub const fn ios(&self) -> u64 {
        self.ios
    }

    /// A hash of the end of every drive operation and every request, with its time: equal for equal runs.
    #[must_use]
    pub const fn trace(&self) -> u64 {
        self.trace
    }

    /// The last rebuild and its progress, if there was one.
    #[must_use]
    pub const fn rebuild(&self) -> Option<&Rebuild> {
        self.rebuild.as_ref()
    }

    /// Number of requests in the array.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.requests.len()
    }

    // --- arranging ---------------------------------------------------------------------------

    /// Only the first `percent` % of the groups hold data: a rebuild skips the others.
    pub fn set_fill(&mut self, percent: f64) {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count below 2^53"
        )]
        let groups = (self.geometry.groups() as f64 * percent / 100.0).round() as u64;
        self.used_groups = groups.min(self.geometry.groups());
    }

    /// Puts a seat onto another seat's drive, from byte `offset` of the drive on: an array that was put together
    /// wrongly, with two logical disks on one spindle. Call this before the first request.
    ///
    /// # Panics
    /// When operations are in flight.
    pub fn share_spindle(&mut self, seat: Seat, with: Seat, offset: u64) {
        assert!(
            self.ops.is_empty(),
            "drives are arranged before the first request"
        );
        let drive = self.spindles[with.index()].drive;
        self.spindles[seat.index()] = Spindle { drive, offset };
    }

    /// The drive of a seat fails: from now on nothing is read from it or written to it.
    pub fn fail(&mut self, now: Instant, seat: Seat) {
        self.begin(now);
        self.view.seat_out(seat);
        self.whole = false;
        self.rebuild_lost_seat(seat);
    }

    /// Puts a fresh drive into the seat of a failed one. A rebuild fills the drive where the layout has no spare space.
    pub fn replace(&mut self, now: Instant, seat: Seat, drive: Box<dyn Model>) {
        self.begin(now);
        self.view.seat_in(seat);
        let index = self.drives.len();
        self.drives.push(drive);
        self.due.push(u64::MAX);
        self.spindles[seat.index()] = Spindle {
            drive: index,
            offset: 0,
        };
    }

    // --- time --------------------------------------------------------------------------------

    /// Accepts a request. `token` is the client's id of the request.
    ///
    /// # Panics
    /// When the request lies outside [`PlainArray::capacity_bytes`]: clients check that.
    pub fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        self.begin(now);
        let end = request.offset.checked_add(request.length);
        let inside =
            request.kind == RequestKind::Flush || end.is_some_and(|end| end <= self.capacity_bytes);
        assert!(inside, "{request:?} lies in the array");
        let key = self.requests.insert(Pending {
            token,
            request,
            open: 0,
            outcome: Ok(()),
        });
        let written = match request.kind {
            RequestKind::Write => request.length,
            _ => 0,
        };
        match self.servers.arrive(self.now, written) {
            at if at > self.now => self.set_timer(at, Timer::Arrived(key)),
            _ => self.start_request(key),
        }
    }

    /// Call this when time has reached [`PlainArray::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        self.begin(now);
        if self.next_due <= self.now {
            for index in 0..self.due.len() {
                if self.due[index] <= self.now {
                    self.drives[index].handle_timeout(now);
                    while let Some(token) = self.drives[index].poll_done() {
                        self.io_ended(token);
                    }
                    self.note_due(index);
                }
            }
            self.next_due = self.due.iter().copied().min().unwrap_or(u64::MAX);
        }
        while let Some(&Reverse((at, _, timer))) = self.timers.peek()
            && at <= self.now
        {
            self.timers.pop();
            match timer {
                Timer::Arrived(key) => self.start_request(key),
                Timer::Computed(op) => self.begin_writes(op),
                Timer::Answered(key) => self.answer(key),
                Timer::Rebuild => self.step_rebuild(),
            }
        }
    }

    /// Time of the next event; `None` when nothing is in the array.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let timer = self.timers.peek().map_or(u64::MAX, |&Reverse((at, ..))| at);
        let next = timer.min(self.next_due);
        (next < u64::MAX).then_some(Instant(next))
    }

    /// A request that has ended, at the time of the last call: its token and its outcome.
    pub fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        self.done.pop_front()
    }

    // --- within ------------------------------------------------------------------------------

    fn begin(&mut self, now: Instant) {
        assert!(now.0 >= self.now, "time does not run backwards");
        self.now = now.0;
    }

    fn set_timer(&mut self, at: u64, timer: Timer) {
        self.timers_set += 1;
        self.timers.push(Reverse((at, self.timers_set, timer)));
    }

    fn note(&mut self, what: u64) {
        self.trace = mix(self.trace ^ what).wrapping_add(self.now);
    }

    /// Updates the time at which a drive is due.
    fn note_due(&mut self, index: usize) {
        let at = self.drives[index].poll_timeout();
        let at = at.map_or(u64::MAX, |at| at.0);
        self.due[index] = at;
        self.next_due = self.next_due.min(at);
    }

    /// A request has passed the controller and the link: its work begins.
    fn start_request(&mut self, key: usize) {
        let request = self.requests[key].request;
        // Held open until all of its operations have begun.
        self.requests[key].open = 1;
        match request.kind {
            RequestKind::Read => {
                if !self.cache.read(request.offset, request.length) {
                    self.read_range(Owner::Request(key), request.offset, request.length);
                }
            }
            RequestKind::Write if self.cache.holds_writes() => {
                if !self.stalled.is_empty() || !self.cache.write(request.offset, request.length) {
                    self.stalled.push_back(key);
                    self.destage();
                    return;
                }
                self.destage();
            }
            RequestKind::Write => {
                self.cache.forget(request.offset, request.length);
                self.write_range(Owner::Request(key), request.offset, request.length);
            }
            RequestKind::Flush => self.flush_drives(key),
            // Nothing to do: this array has no map of the space that holds nothing.
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {}
        }
        self.part_ended(key, Ok(()));
    }

    /// A part of a request has ended.
    fn part_ended(&mut self, key: usize, outcome: Outcome) {
        let pending = &mut self.requests[key];
        pending.open -= 1;
        pending.outcome = pending.outcome.and(outcome);
        if pending.open > 0 {
            return;
        }
        let request = pending.request;
        let read = match request.kind {
            RequestKind::Read => request.length,
            _ => 0,
        };
        if request.kind == RequestKind::Read && pending.outcome.is_ok() {
            self.cache.filled(request.offset, request.length);
        }
        match self.servers.leave(self.now, read) {
            at if at > self.now => self.set_timer(at, Timer::Answered(key)),
            _ => self.answer(key),
        }
    }

    fn answer(&mut self, key: usize) {
        let pending = self.requests.remove(key);
        self.note(pending.token << 1 | u64::from(pending.outcome.is_err()));
        self.done.push_back((pending.token, pending.outcome));
    }

    /// Writes ranges from the cache to the drives while too much waits to be written.
    fn destage(&mut self) {
        while let Some((offset, length)) = self.cache.destage(!self.stalled.is_empty()) {
            self.write_range(Owner::Destage { offset, length }, offset, length);
        }
    }

    fn destaged(&mut self, offset: u64, length: u64) {
        self.cache.destaged(offset, length);
        while let Some(&key) = self.stalled.front() {
            let request = self.requests[key].request;
            if !self.cache.write(request.offset, request.length) {
                break;
            }
            self.stalled.pop_front();
            self.part_ended(key, Ok(()));
        }
        self.destage();
    }
}

#[cfg(test)]
mod tests;
