//! The state machine of one lane: requests go in, drive operations come out.

mod arbitration;
mod backoff;
mod balance;
mod blank;
mod block_map;
mod blocks;
mod check;
mod checkpoint;
mod coalesce;
mod context;
mod convert;
mod direct;
mod direct_writes;
mod discard;
mod entries;
mod epochs;
mod extents;
pub mod fair_queue;
mod fills;
mod flush;
mod ids;
mod io;
mod jobs;
mod known_losses;
mod locks;
mod log;
mod maps;
mod op;
mod ops;
mod overlay;
mod pages;
mod preserved;
mod purpose;
mod rare;
pub mod record;
mod records;
mod recover;
mod repairs;
mod request;
mod requests;
mod ring;
mod room;
mod routes;
mod sequence_map;
mod shares;
mod trusted;
mod uninitialized;
mod verify;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{Instant, Outcome, Seat};
use format::{Column, GroupId, Sequence};
use layout::Cell;
use plan::action::{Action, ComputeId, Computed, Event, IoId};
use plan::{Geometry, GroupRequest, RequestId};

use self::backoff::Retries;
use self::balance::Balance;
use self::checkpoint::Checkpoints;
use self::coalesce::Coalescing;
use self::context::Context;
use self::direct_writes::DirectWrites;
use self::discard::Discards;
use self::entries::Entries;
use self::flush::Flushes;
use self::io::IoTable;
use self::jobs::GroupJobs;
use self::known_losses::KnownLosses;
pub use self::locks::StripeLocks;
use self::log::Log;
use self::maps::StripeMaps;
use self::ops::Operations;
use self::overlay::Overlay;
use self::pages::PageCache;
use self::preserved::Preserved;
use self::purpose::Computing;
use self::recover::Recovery;
use self::repairs::Repairs;
use self::requests::Requests;
use self::room::Room;
use self::uninitialized::Uninitialized;

/// Rounds of one call of `advance`. A call needs few rounds, because the work that a round begins waits for a drive or
/// a computation. More rounds are a livelock, which tests should end.
const TURNS_MAX: u32 = 100_000;

/// The state machine of one lane: a share of the pool's groups.
///
/// The driver calls, in any order and one at a time:
///
/// 1. [`handle_request`](Self::handle_request), [`handle_completion`](Self::handle_completion),
///    [`handle_computed`](Self::handle_computed), [`handle_command`](Self::handle_command) when
///    something happens; then
/// 2. [`poll_action`](Self::poll_action) until `None`, carrying out each action, and
///    [`poll_event`](Self::poll_event) until `None`, passing each event to the pool and the log.
///
/// It performs no I/O, reads no clock, and is deterministic: the same calls give the same actions
/// and events, byte for byte.
///
/// Each event is finished before the next one: handlers only mark what has changed, and `advance` then moves every
/// operation that can move. So no handler finds the work of another one half done.
#[derive(Clone, Debug)]
pub struct Lane {
    cx: Context,
    flushes: Flushes,
    requests: Requests,
    room: Room,
    coalescing: Coalescing,
    jobs: GroupJobs,
    uninitialized: Uninitialized,
    ops: Operations,
    ios: IoTable,
    balance: Balance,
    overlay: Overlay,
    pages: PageCache,
    maps: StripeMaps,
    log: Log,
    direct: DirectWrites,
    checkpoints: Checkpoints,
    discards: Discards,
    retries: Retries,
    preserved: Preserved,
    /// Drives that are out, each with the first batch that was not written to it: the journal may need the drive for
    /// earlier ones.
    out_in_journal: BTreeMap<Seat, Sequence>,
    recovery: Option<Recovery>,
    repairs: Repairs,
    /// Data that is known to be lost.
    losses: KnownLosses,
    /// Set while `handle_timeout` runs: all earlier inputs have been delivered.
    timed_out: bool,
}

impl Lane {
    /// A lane whose every column is current at home.
    ///
    /// # Panics
    /// When `lane` is not below the geometry's number of lanes.
    #[must_use]
    pub fn new(geometry: Arc<Geometry>, lane: u16) -> Self {
        assert!(lane < geometry.lanes(), "lane {lane} exists");
        // A code whose rows do not divide the cell leaves the end of the cell unused: these blocks have no entries.
        let rows_bytes = geometry.chunk_bytes() * u64::from(geometry.code().rows());
        let used_bytes = geometry.cell_bytes() / rows_bytes * rows_bytes;
        let used_blocks = used_bytes / block::BLOCK_BYTES;
        let seats = geometry.layout().drives();
        Self {
            balance: Balance::new(&geometry),
            cx: Context::new(geometry, lane),
            flushes: Flushes::default(),
            requests: Requests::default(),
            room: Room::default(),
            coalescing: Coalescing::default(),
            jobs: GroupJobs::default(),
            uninitialized: Uninitialized::default(),
            ops: Operations::default(),
            ios: IoTable::new(seats),
            overlay: Overlay::default(),
            pages: PageCache::new(used_blocks),
            maps: StripeMaps::default(),
            log: Log::default(),
            direct: DirectWrites::default(),
            checkpoints: Checkpoints::default(),
            discards: Discards::default(),
            retries: Retries::default(),
            preserved: Preserved::default(),
            out_in_journal: BTreeMap::new(),
            recovery: None,
            repairs: Repairs::default(),
            losses: KnownLosses::default(),
            timed_out: false,
        }
    }

    /// Declares all content right, for a driver whose drives store nothing: every block counts as written, with the
    /// bytes that were written to it. Pages, journal and parity cost their operations and computations as usual, but
    /// the content of reads is not checked. Call this before any handler.
    pub const fn trust_content(&mut self) {
        self.cx.trusted = true;
    }

    /// Sets the limits by which long reads are held back: reads of at least `long_bytes` wait while their drive has
    /// more than `enough_bytes` of such reads. The default limits suit real drives; this is for a driver whose pools
    /// are thousands of times smaller. Call this before any handler.
    pub fn hold_reads(&mut self, long_bytes: u64, enough_bytes: u64) {
        self.ios.hold_reads(long_bytes, enough_bytes);
    }

    /// A client's request, cut to one group. A `Reply` answers each request; replies come in any order.
    pub fn handle_request(&mut self, now: Instant, id: RequestId, request: GroupRequest) {
        self.cx.now = now;
        self.jobs.client_asks(&mut self.cx);
        self.discards.resume();
        self.begin_request(id, request);
        self.advance();
    }

    /// A drive operation has ended. The driver answers every `Action::Io` and `Action::Joined` exactly once, also if
    /// the drive is gone. The answer may come at any time once the pool has declared the drive out.
    ///
    /// # Panics
    /// When `id` is not in flight.
    pub fn handle_completion(&mut self, now: Instant, id: IoId, outcome: Outcome) {
        self.cx.now = now;
        let answered = self.ios.answered(&mut self.cx, id, outcome);
        self.route_answer(answered);
        self.advance();
    }

    /// A computation has ended.
    ///
    /// # Panics
    /// When `id` is not in flight.
    pub fn handle_computed(&mut self, now: Instant, id: ComputeId, computed: Computed) {
        self.cx.now = now;
        let computing = self.cx.computes.remove(id);
        match computing.expect("the computation is in flight") {
            Computing::Op(op) => self.computed(op, &computed),
            Computing::Verify(op) => self.verified(op, &computed.sums),
            Computing::Laid(sequence) => self.log.laid(&mut self.cx, sequence, computed),
            Computing::Headed(sequence) => self.batch_headed(sequence),
            Computing::Page(name) => self.page_computed(name, &computed),
            Computing::Paged => self.paged(),
            Computing::Anchor(scratch) => self.anchor_laid(scratch),
            Computing::PageScan(job) => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.jobs.scan_computed(cx, ios, job, &computed);
                self.step_job(job);
            }
            Computing::Zeros(request) => self.request_op_ended(request, Ok(())),
            Computing::Recovery => self.recovery_computed(&computed),
        }
        self.advance();
    }

    /// The clock has reached [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cx.now = now;
        self.timed_out = true;
        let whole = self.cx.geometry.stripe_data_bytes();
        let due = self.coalescing.take_due(now, whole);
        self.begin_stripes(due);
        self.idle_checkpoint();
        self.check_timeouts();
        self.begin_due_flushes();
        self.give_up_waiting();
        let waiting = !self.requests.is_empty();
        self.jobs.clients_gone(&mut self.cx, waiting);
        self.resume_jobs();
        self.advance();
        self.timed_out = false;
    }

    /// The next action for the driver to carry out.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.cx.actions.pop_front()
    }

    /// The next event for the driver to pass on.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.cx.events.pop_front()
    }

    /// When to call `handle_timeout`. All other inputs up to that time must be delivered before.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let times = [
            self.log.due_at(),
            self.coalescing.due_at(),
            self.idle_checkpoint_at(),
            self.ios.check_at(),
            self.jobs.resume_at(),
            self.jobs.clients_gone_at(),
            self.room.gives_up_at(),
            self.retries
                .retry_at(self.cx.now, self.log.waits(), self.checkpoints.waits()),
        ];
        times.into_iter().flatten().min()
    }

    /// The pool's shape.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.cx.geometry
    }

    /// True if nothing is in flight or waiting. Operations that drives have not answered and that nothing waits for do
    /// not count ([`stragglers`](Self::stragglers)).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ops.is_idle()
            && self.requests.is_empty()
            && self.coalescing.is_idle()
            && self.jobs.is_empty()
            && self.ios.is_idle()
            && self.log.is_idle()
            && self.checkpoints.is_idle()
            && self.recovery.is_none()
    }

    /// Blocks that only the journal and memory hold, because their stripes have lost more columns than the code
    /// survives.
    #[must_use]
    pub fn preserved_blocks(&self) -> usize {
        self.preserved.len()
    }

    /// Bytes of memory that logged blocks take until they are in their places.
    #[must_use]
    pub const fn logged_bytes(&self) -> u64 {
        self.overlay.bytes()
    }

    /// True if drives that stay have refused the lane's work, and it has not been tried again since with success.
    #[must_use]
    pub const fn is_stalled(&self) -> bool {
        self.retries.is_stalled()
    }

    /// The cell from which a column is read, if there is one.
    #[must_use]
    pub fn place(&self, group: GroupId, column: Column) -> Option<Cell> {
        self.cx
            .view()
            .column(&self.cx.geometry, group, column)
            .source
    }

    /// The entries of blocks as of now, from journal and pages.
    const fn entries(&self) -> Entries<'_> {
        Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        }
    }

    /// Abandoned operations that drives have not answered.
    #[must_use]
    pub fn stragglers(&self) -> usize {
        self.ios.stragglers().len()
    }

    /// Moves every operation that can move, until all of them wait.
    fn advance(&mut self) {
        for turn in 0.. {
            debug_assert!(
                turn < TURNS_MAX,
                "a turn ends: each operation moves or waits"
            );
            while let Some(op) = self.ops.next() {
                self.plan(op);
            }
            // Log and checkpoints wait until recovery has read all of the journal. A pool without a journal has
            // neither.
            if self.recovery.is_none() && self.cx.geometry.regions().is_some() {
                self.pump_log();
                self.pump_checkpoint();
                self.pump_moves();
            }
            if !self.ops.has_runnable() {
                break;
            }
        }
        for scratch in self.overlay.take_free() {
            self.ios.release(&mut self.cx, scratch);
        }
        while let Some(event) = self.cx.epochs.pop_event() {
            self.cx.events.push_back(event);
        }
        self.ios.end_turn(&mut self.cx);
        self.direct.turn_ends();
    }
}
