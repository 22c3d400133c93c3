//! One lane: requests in, drive operations out.

mod arbitrate;
mod backoff;
mod balance;
mod block_map;
mod blocks;
mod bounce;
mod checkpoint;
mod coalesce;
mod context;
mod direct;
mod direct_writes;
mod discard;
mod epochs;
mod extents;
mod flush;
mod heal;
mod hedge;
mod ids;
mod io;
mod jobs;
mod known_losses;
mod locks;
mod log;
mod loss;
mod maps;
mod moves;
mod op;
mod overlay;
mod pages;
mod preserved;
mod rare;
mod recover;
mod request;
mod requests;
mod ring;
mod seats;
mod sequence_map;
mod step;
mod trusted;
mod uninitialized;
mod writes;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use block::{Fault, Instant, Outcome, Seat};

use self::backoff::Retries;
use self::balance::Balance;
use self::blocks::Entries;
use self::checkpoint::{Checkpoints, Wanting};
use self::coalesce::Coalescing;
use self::context::Context;
use self::direct_writes::DirectWrites;
use self::discard::{Discarded, Discards, Look, RingUse, Run};
use self::flush::{Finished, Flushes, Waiter};
use self::ids::{JobId, OpId};
pub use self::io::DEADLINE;
pub(crate) use self::io::WRITE_RETRIES;
use self::io::{Answered, Ended, IoTable};
pub(crate) use self::jobs::FILL_STEP_BYTES;
use self::jobs::{Begun, GroupJobs, Job, Next};
use self::known_losses::KnownLosses;
pub use self::locks::StripeLocks;
use self::log::Log;
use self::maps::{MapEntries, StripeMaps};
use self::op::{Op, Owner, Phase, Task};
use self::overlay::Overlay;
use self::pages::{Loaded, PageCache};
use self::preserved::Preserved;
use self::recover::Recovery;
use self::requests::Requests;
use self::sequence_map::SequenceMap;
use self::uninitialized::Uninitialized;
use crate::action::{Action, Command, ComputeId, Computed, Event, IoId};
use crate::format::PageName;
use crate::plan::{BandPlans, Transfer};
use crate::seeded::{self, Bug};
use crate::{Geometry, GroupRequest, RequestId, ScratchId};

/// What a drive operation in flight is for.
#[derive(Clone, Copy, Debug)]
enum Purpose {
    /// Transfer number `index` of the reads (or writes) of an operation's plan.
    Transfer { op: OpId, transfer: Transfer },
    /// A drive's part of flush number `number`.
    Flush { number: u64, seat: Seat },
    /// A column of a batch of the log.
    Batch { sequence: u64, seat: Seat },
    /// Copies of pages that lie side by side (`pages/reads.rs`).
    PageRead { read: u64, seat: Seat },
    /// Logged blocks on their way to their place.
    Install { transfer: Transfer },
    /// Pages on their way to one of their places.
    PageWrite { seat: Seat, offset: u64 },
    /// An anchor.
    Anchor { seat: Seat },
    /// A column that recovery writes again.
    Restore { seat: Seat },
    /// The pages of a cell that a drive brings back.
    Look { job: JobId, seat: Seat },
    /// Part of what recovery reads.
    Recovery { seat: Seat, index: usize },
    /// The part of a write that goes to a drive's successor.
    Second { pair: u64 },
    /// Part of what an operation discards.
    Discard { op: OpId },
    /// The ring, when nothing is in it.
    DiscardRing,
}

/// What a computation in flight is for.
#[derive(Clone, Copy, Debug)]
enum Computing {
    /// An operation's sums.
    Op(OpId),
    /// The checksums of what an operation has read.
    Verify(OpId),
    /// A batch's blocks and parity.
    Laid(u64),
    /// A batch's headers.
    Headed(u64),
    /// A look at a page.
    Page(PageName),
    /// The checkpoint's pages.
    Paged,
    /// An anchor in this memory.
    Anchor(ScratchId),
    /// The pages of the cell that this job fills.
    Look(JobId),
    /// A read of what was never written.
    Zeros(RequestId),
    /// A step of recovery.
    Recovery,
}

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
/// Each event is finished before the next one: handlers only mark what has changed, and
/// `advance` then moves every operation that can move, so no handler finds another half done.
#[derive(Clone, Debug)]
pub struct Lane {
    cx: Context,
    plans: BandPlans,
    locks: StripeLocks<OpId>,
    flushes: Flushes,
    requests: Requests,
    coalescing: Coalescing,
    jobs: GroupJobs,
    uninitialized: Uninitialized,
    /// Boxed: a map moves what it holds.
    ops: SequenceMap<OpId, Box<Op>>,
    /// Operations that can be planned now.
    runnable: VecDeque<OpId>,
    ios: IoTable,
    balance: Balance,
    /// Second reads under way.
    hedges: usize,
    overlay: Overlay,
    pages: PageCache,
    maps: StripeMaps,
    log: Log,
    direct: DirectWrites,
    checkpoints: Checkpoints,
    discards: Discards,
    retries: Retries,
    preserved: Preserved,
    recovery: Option<Recovery>,
    /// Stripes that are being mended.
    healing: BTreeSet<(u64, u64)>,
    /// Data that is known to be lost.
    losses: KnownLosses,
    /// What is being told is that time has passed: nothing else has happened before now that was not
    /// told yet.
    timed_out: bool,
}

/// Why a command cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// The group belongs to another lane or does not exist.
    #[error("group {group} is not on lane {lane}")]
    NotHere {
        /// Which group.
        group: u64,
        /// This lane.
        lane: u16,
    },
}

impl Lane {
    /// A lane whose every column is current at home.
    ///
    /// # Panics
    /// When `lane` is not below the geometry's number of lanes.
    #[must_use]
    pub fn new(geometry: Arc<Geometry>, lane: u16) -> Self {
        assert!(lane < geometry.lanes(), "lane {lane} exists");
        // A code whose rows do not divide the cell leaves its end unused, and nothing is known of that.
        let rows_bytes = geometry.chunk_bytes() * u64::from(geometry.code().rows());
        let used_bytes = geometry.cell_bytes() / rows_bytes * rows_bytes;
        let used_blocks = used_bytes / block::BLOCK_BYTES;
        let seats = geometry.layout().drives();
        Self {
            balance: Balance::new(&geometry),
            cx: Context::new(geometry, lane),
            plans: BandPlans::default(),
            locks: StripeLocks::default(),
            flushes: Flushes::default(),
            requests: Requests::default(),
            coalescing: Coalescing::default(),
            jobs: GroupJobs::default(),
            uninitialized: Uninitialized::default(),
            ops: SequenceMap::default(),
            runnable: VecDeque::new(),
            ios: IoTable::new(seats),
            hedges: 0,
            overlay: Overlay::default(),
            pages: PageCache::new(used_blocks),
            maps: StripeMaps::default(),
            log: Log::default(),
            direct: DirectWrites::default(),
            checkpoints: Checkpoints::default(),
            discards: Discards::default(),
            retries: Retries::default(),
            preserved: Preserved::default(),
            recovery: None,
            healing: BTreeSet::new(),
            losses: KnownLosses::default(),
            timed_out: false,
        }
    }

    /// From now on content is right by definition, for a driver whose drives store nothing: every block counts as written
    /// and as what was written there. Pages, journal and parity cost their operations and computations as ever; nothing
    /// that comes back is looked at. Before the first call of any handler.
    pub const fn trust_content(&mut self) {
        self.cx.trusted = true;
    }

    /// Reads of at least `long_bytes` wait for a drive that has more than `enough_bytes` of them, instead of the limits that
    /// suit drives: for a driver whose pools are thousands of times smaller. Before the first call of any handler.
    pub fn hold_reads(&mut self, long_bytes: u64, enough_bytes: u64) {
        self.ios.hold_reads(long_bytes, enough_bytes);
    }

    /// A client's request, cut to one group. Ends with a `Reply`, in any order.
    pub fn handle_request(&mut self, now: Instant, id: RequestId, request: GroupRequest) {
        self.cx.now = now;
        self.jobs.client_asks(&mut self.cx);
        self.discards.resume();
        self.begin_request(id, request);
        self.advance();
    }

    /// A drive operation has ended. Every `Action::Io` and `Action::Joined` is answered exactly once, also when its
    /// drive is gone; how late does not matter once the pool has said that it is out.
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
            Computing::Laid(sequence) => self.laid(sequence, computed),
            Computing::Headed(sequence) => self.headed(sequence),
            Computing::Page(name) => self.page_computed(name, &computed),
            Computing::Paged => self.paged(),
            Computing::Anchor(scratch) => self.anchor_laid(scratch),
            Computing::Look(job) => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.jobs.look_computed(cx, ios, job, &computed);
                self.step_job(job);
            }
            Computing::Zeros(request) => self.request_op_ended(request, Ok(())),
            Computing::Recovery => self.recovery_computed(&computed),
        }
        self.advance();
    }

    /// The pool's word. Ends with an event where [`Command`] says so.
    ///
    /// # Errors
    /// [`CommandError`] when the command is about a group of another lane; nothing has changed.
    pub fn handle_command(&mut self, now: Instant, command: Command) -> Result<(), CommandError> {
        self.cx.now = now;
        match command {
            Command::SeatOut(seat) => self.seats_out(&[seat]),
            Command::SeatsOut(seats) => self.seats_out(&seats),
            Command::SeatKept(seat) => self.decide(seat, false),
            Command::SeatIn(seat) => {
                self.ios.forget_pace(seat);
                self.cx.change_view(|view, _| view.seat_in(seat));
            }
            Command::Suspect(seat) => self.ios.suspect(seat, true),
            Command::Trust(seat) => self.ios.suspect(seat, false),
            Command::Twin { seat, with } => self.begin_twin(seat, with),
            Command::Succeed { seat, with, filled } => self.succeed(seat, with, filled.as_ref()),
            Command::SeatCurrent(seat) => {
                self.cx
                    .change_view(|view, geometry| view.seat_current(geometry, seat));
                self.forget_nowhere(None);
                self.want_anchor();
            }
            Command::Fill {
                group,
                column,
                target,
                avoid,
                holds,
            } => {
                self.check_here(group)?;
                // What is written to a drive goes to its successor anyway.
                if !self.ios.twins().succeeds(target.seat) {
                    self.cx.change_view(|view, geometry| {
                        view.begin_fill(geometry, group, column, target);
                    });
                }
                let mut job = Job::fill(group, column, target, avoid, holds);
                if self.cx.view().is_out(target.seat) && !seeded::is(Bug::FillBeforeJoined) {
                    // Its writes would be skipped, and the cell taken for filled.
                    job.fail(Fault::Gone);
                } else if self.pages.lacks_beside(&self.cx, group, column) {
                    // The target may have the last copies of them.
                    job.fail(Fault::Lost);
                }
                self.begin_job(job);
            }
            Command::Settle {
                group,
                column,
                cell,
            } => {
                self.check_here(group)?;
                let before = self.cx.view().column(&self.cx.geometry, group, column);
                self.cx
                    .change_view(|view, _| view.settle(group, column, cell));
                if !before.writable() {
                    self.column_is_back(group, column);
                    // Its drive may have left after those whose copies of pages are in memory, with later ones.
                    let checkpoint = self.checkpoints.pages(self.log.anchor);
                    self.pages.compare_copies(&self.cx, &checkpoint, group);
                }
                self.forget_nowhere(Some(group));
                if !self.preserved.is_empty() {
                    // It may have a place now.
                    self.want_checkpoint();
                }
                let settled = Event::Settled { group, column };
                self.cx.epochs.report_drained(settled);
            }
            Command::Abandon { group, column } => {
                self.check_here(group)?;
                self.jobs.abandon_fill(group, column);
            }
            Command::Zero { group } => {
                self.check_here(group)?;
                if seeded::is(Bug::InitializedUnwritten) && self.uninitialized.contains(group) {
                    let outcome = Ok(());
                    self.cx.events.push_back(Event::Zeroed { group, outcome });
                    return Ok(());
                }
                self.discards.forget(group..group + 1);
                self.cx.change_view(|view, _| view.begin_life(group));
                self.begin_job(Job::zero(group));
            }
            Command::Uninitialized(runs) => self.leave_uninitialized(&runs),
            Command::Freed(runs) => {
                self.discards.groups_freed(&self.cx, &runs);
                self.begin_discard();
            }
            Command::Initialized { groups, outcome } => self.initialized(&groups, outcome),
            Command::Resync { group } => {
                self.check_here(group)?;
                self.begin_job(Job::resync(group));
            }
            Command::ReportClients(wanted) => {
                if self.jobs.report_clients(&mut self.cx, wanted) {
                    self.resume_jobs();
                }
            }
            Command::MakeWay(makes_way) => {
                if self.jobs.make_way(now, makes_way) {
                    self.resume_jobs();
                }
            }
            Command::ReadPages { group, bytes } => {
                self.check_here(group)?;
                self.read_pages(group, bytes);
            }
            Command::CopiesAgree => self.balance.copies_agree(),
            Command::Recover { incarnation, fresh } => self.begin_recovery(incarnation, fresh),
            Command::KnowLost(ranges) => self.losses.know(&ranges),
            Command::Checkpoint => {
                if self.cx.geometry.store().is_some() {
                    if self.ios.twins().any() {
                        // A successor may be all that is left after the next stop, and must say where the log begins.
                        self.want_anchor();
                    }
                    self.discards.pause();
                    self.await_checkpoint(Wanting::Pool, []);
                } else {
                    self.cx
                        .events
                        .push_back(Event::Checkpointed { lane: self.cx.lane });
                }
            }
            Command::Scrub { group } => {
                self.check_here(group)?;
                // Copies of pages are compared when they are read: those in memory hide a bad one.
                if !seeded::is(Bug::ScrubKeepsPages) {
                    let checkpoint = self.checkpoints.pages(self.log.anchor);
                    self.pages.compare_copies(&self.cx, &checkpoint, group);
                }
                self.begin_job(Job::scrub(group));
            }
        }
        self.advance();
        Ok(())
    }

    /// The clock has reached [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cx.now = now;
        self.timed_out = true;
        let whole = self.cx.geometry.stripe_data_bytes();
        let due = self.coalescing.take_due(now, whole);
        self.begin_stripes(due);
        self.idle_checkpoint();
        self.look_for_late();
        self.begin_due_flushes();
        let waiting = !self.requests.is_empty();
        self.jobs.clients_gone(&mut self.cx, waiting);
        self.resume_jobs();
        self.advance();
        self.timed_out = false;
    }

    /// The next thing to do.
    pub fn poll_action(&mut self) -> Option<Action> {
        self.cx.actions.pop_front()
    }

    /// The next thing to report.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.cx.events.pop_front()
    }

    /// When to call `handle_timeout`: then, and after everything else that has happened until then has
    /// been told.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let times = [
            self.batch_due_at(),
            self.coalescing.due_at(),
            self.idle_checkpoint_at(),
            self.ios.look_at(),
            self.jobs.resume_at(),
            self.jobs.clients_gone_at(),
            self.retries
                .retry_at(self.cx.now, self.log.waits(), self.checkpoint_waits()),
        ];
        times.into_iter().flatten().min()
    }

    /// The pool's shape.
    #[must_use]
    pub fn geometry(&self) -> &Geometry {
        &self.cx.geometry
    }

    /// Whether nothing is in flight or waiting. What drives have not answered and nobody waits for
    /// does not count ([`stragglers`](Self::stragglers)).
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.ops.is_empty()
            && self.requests.is_empty()
            && self.coalescing.is_idle()
            && self.jobs.is_empty()
            && self.ios.is_idle()
            && self.locks.is_idle()
            && self.log.is_idle()
            && self.checkpoints.is_idle()
            && self.recovery.is_none()
    }

    /// Blocks that only the journal and memory have, because their stripes have lost more columns than
    /// the code survives.
    #[must_use]
    pub fn preserved_blocks(&self) -> usize {
        self.preserved.len()
    }

    /// Abandoned operations that drives have not answered.
    #[must_use]
    pub fn stragglers(&self) -> usize {
        self.ios.stragglers().len()
    }

    /// A drive has answered: hands what has ended to its purpose.
    fn route_answer(&mut self, answered: Answered) {
        match answered {
            Answered::Ended(ended) => self.io_ended(ended),
            Answered::Pending => {}
            Answered::Members(members) => {
                for (member, outcome) in members {
                    let answered = self.ios.member_answered(&mut self.cx, member, outcome);
                    self.route_answer(answered);
                }
            }
            Answered::Late(late) => {
                let checkpoint = self.checkpoints.pages(self.log.anchor);
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.pages
                    .late_copies_came(cx, ios, &checkpoint, late.seat, late.copies);
                self.ios.straggler_came_back(&mut self.cx);
            }
        }
    }

    /// A drive operation has ended: its purpose goes on.
    fn io_ended(&mut self, ended: Ended) {
        let outcome = ended.outcome;
        if ended.left {
            self.ios.mute(true);
        }
        match ended.purpose {
            Purpose::Second { .. } => unreachable!("it ends with its pair"),
            Purpose::Transfer { op, transfer } => self.transferred(op, transfer, outcome),
            Purpose::Flush { number, seat } => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                let finished = self.flushes.ended(cx, ios, number, seat, outcome);
                self.flush_finished(finished);
            }
            Purpose::Batch { sequence, seat } => self.batch_written(sequence, seat, outcome),
            Purpose::PageRead { read, seat } => {
                let checkpoint = self.checkpoints.pages(self.log.anchor);
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.pages
                    .read_ended(cx, ios, &checkpoint, (read, seat), outcome);
            }
            Purpose::Install { transfer } => self.install_written(transfer, outcome),
            Purpose::PageWrite { seat, offset } => self.page_written(seat, offset, outcome),
            Purpose::Anchor { seat } => self.anchor_written(seat, outcome),
            Purpose::Restore { seat } => self.column_restored(seat, outcome),
            Purpose::Look { job, seat } => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                if self.jobs.looked(cx, ios, (job, seat), outcome) {
                    self.step_job(job);
                }
            }
            Purpose::Recovery { seat, index } => self.recovery_read(seat, index, outcome),
            Purpose::Discard { op } => {
                if self.discards.discarded(outcome) {
                    self.end_discard(op);
                }
            }
            Purpose::DiscardRing => self.discards.ring_discarded(&mut self.cx),
        }
        if ended.left {
            self.ios.mute(false);
        }
    }

    /// Does something about reads that are late, if it is time to look for them.
    fn look_for_late(&mut self) {
        if let Some(late) = self.ios.look(&mut self.cx) {
            for id in late {
                self.hedge(id);
            }
            self.ios.looked(self.cx.now);
        }
    }

    fn check_here(&self, group: u64) -> Result<(), CommandError> {
        match self.cx.has_group(group) {
            true => Ok(()),
            false => Err(CommandError::NotHere {
                group,
                lane: self.cx.lane,
            }),
        }
    }

    /// Moves every operation that can move.
    fn advance(&mut self) {
        loop {
            while let Some(op) = self.runnable.pop_front() {
                self.plan(op);
            }
            // What recovery reads is not in place before it is all there; and without a journal
            // there is nothing to put in place.
            if self.recovery.is_none() && self.cx.geometry.store().is_some() {
                self.pump_log();
                self.pump_checkpoint();
                self.pump_moves();
            }
            if self.runnable.is_empty() {
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

    /// Loads pages for an operation, which is planned again when they are here.
    fn fetch_pages(&mut self, id: OpId, names: BTreeSet<PageName>) {
        let op = &self.ops[&id];
        // A job, or a stream, is about to ask for those behind them.
        let streams = op.service.bulk && matches!(op.task, Task::Write(_));
        let ahead = match matches!(op.owner, Owner::Job(_)) || streams {
            true => PageCache::ahead(&self.cx, &names),
            false => Vec::new(),
        };
        self.load_pages(names.iter().copied().chain(ahead));
        if !self.pages.wait(id, names) {
            self.runnable.push_back(id);
        }
    }

    /// Begins to load pages, but for those that are here or on their way.
    fn load_pages(&mut self, names: impl IntoIterator<Item = PageName>) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let nowhere = self.pages.load(cx, ios, self.log.anchor, names);
        self.pages_nowhere(nowhere);
    }

    fn pages_nowhere(&mut self, names: Vec<PageName>) {
        for name in names {
            let checkpoint = self.checkpoints.pages(self.log.anchor);
            let ready = { &mut self.pages }.without_copies(&self.cx, &checkpoint, name);
            self.page_here(ready);
        }
    }

    /// The copies of a page are in memory.
    fn page_computed(&mut self, name: PageName, computed: &Computed) {
        let checkpoint = self.checkpoints.pages(self.log.anchor);
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        match { &mut self.pages }.computed(cx, ios, &checkpoint, name, computed) {
            Loaded::Again(nowhere) => self.pages_nowhere(nowhere),
            Loaded::Here { ready, readable } => {
                self.page_here(ready);
                if readable {
                    self.pages.report_unknown(&mut self.cx, name);
                }
            }
            Loaded::Alike => {}
            Loaded::Differ => self.want_checkpoint(),
        }
    }

    /// A page has come, and these operations have waited for it.
    fn page_here(&mut self, ready: Vec<OpId>) {
        self.runnable.extend(ready);
        self.checkpoint_page_here();
    }

    /// Brings the map of a group into memory; else the pages that it needs.
    fn load_map(&mut self, group: u64) -> Result<(), BTreeSet<PageName>> {
        let entries = MapEntries {
            overlay: &self.overlay,
            pages: &self.pages,
            sequence: self.log.next_sequence,
        };
        for (name, entry) in self.maps.load(&self.cx, entries, group)? {
            self.pages.set(name, entry);
        }
        Ok(())
    }

    /// Columns can be read again, of one group or of any.
    fn forget_nowhere(&mut self, group: Option<u64>) {
        if self.pages.has_nowhere() {
            let checkpoint = self.checkpoints.pages(self.log.anchor);
            self.pages.forget_nowhere(&checkpoint, group);
            self.maps.drop_unknown();
        }
    }

    fn begin_job(&mut self, job: Job) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let (id, begun) = self.jobs.begin(cx, ios, job, self.log.next_sequence);
        match begun {
            Begun::Looks => {}
            Begun::Checkpoint => self.await_checkpoint(Wanting::Job(id), []),
            Begun::Steps => self.step_job(id),
        }
    }

    /// Keeps the job's steps in flight; ends it when there are no more.
    fn step_job(&mut self, id: JobId) {
        loop {
            match self.jobs.next(&mut self.cx, id) {
                Next::Step {
                    group,
                    stripes,
                    task,
                } => self.start(Op::new(Owner::Job(id), group, stripes, task)),
                Next::Wait => return,
                Next::Checkpoint(pages) => {
                    self.await_checkpoint(Wanting::Job(id), pages);
                    return;
                }
                Next::Flush if self.begin_flush(Waiter::Job(id)) => return,
                Next::Flush => return self.end_job(id, Ok(())),
                Next::End(outcome) => return self.end_job(id, outcome),
            }
        }
    }

    /// The checkpoint that a job waited for has ended.
    fn job_checkpointed(&mut self, id: JobId) {
        match self.jobs.checkpointed(id, self.checkpoint_fault()) {
            Some(group) => {
                self.pages.drop_group(group);
                self.maps.drop_group(group);
                self.losses.forget(group);
                self.step_job(id);
            }
            None => self.end_job(id, Ok(())),
        }
    }

    /// Jobs that have made way for clients go on, if it is time.
    fn resume_jobs(&mut self) {
        for id in self.jobs.due(self.cx.now) {
            self.step_job(id);
        }
    }

    /// The job is done and durable, or has failed with nothing of it in flight.
    fn end_job(&mut self, id: JobId, outcome: Outcome) {
        match self.jobs.end(&mut self.cx, id, outcome) {
            jobs::Ended::Reported => {}
            jobs::Ended::Scrubbed => {
                if self.pages.dirty().next().is_some() {
                    self.want_checkpoint();
                }
            }
            jobs::Ended::FillFailed {
                group,
                column,
                target,
                fault,
            } => {
                self.cx
                    .change_view(|view, geometry| view.abandon_fill(geometry, group, column));
                // Requests planned before this still write to the target: it must not be given
                // to anyone else before they have ended.
                self.cx.epochs.report_drained(Event::FillFailed {
                    group,
                    column,
                    target,
                    fault,
                });
            }
        }
    }

    /// Begins to discard the next run, if none is under way.
    fn begin_discard(&mut self) {
        if self.recovery.is_some() {
            return;
        }
        let past_ring = self.ring_is_checkpointed();
        if let Some(run) = self.discards.next(&self.cx, past_ring) {
            let task = Task::Discard(run.what);
            self.start(Op::new(Owner::Lane, run.group, run.stripes, task));
        }
    }

    /// The stripes of a run are locked.
    fn discard(&mut self, id: OpId, what: Discarded) {
        let op = &self.ops[&id];
        let run = Run {
            group: op.group,
            stripes: op.stripes.clone(),
            what,
        };
        let past_ring = self.ring_is_checkpointed();
        if self.discards.looks_at_map(&run, past_ring)
            && let Err(missing) = self.load_map(run.group)
        {
            self.ops.get_mut(id).expect("just seen").phase = Phase::Fetching;
            self.fetch_pages(id, missing);
            return;
        }
        let look = Look {
            entries: Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            },
            maps: &self.maps,
            checkpoint: self.checkpoints.pages(self.log.anchor),
            has_job: self.jobs.has(run.group),
        };
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        match { &mut self.discards }.begin(cx, ios, &look, (id, &run), past_ring) {
            discard::Begun::Asked => {
                self.ops.get_mut(id).expect("just seen").phase = Phase::Writing;
            }
            discard::Begun::Missing(names) => {
                self.ops.get_mut(id).expect("just seen").phase = Phase::Fetching;
                self.fetch_pages(id, names);
            }
            discard::Begun::Nothing => self.end_discard(id),
        }
    }

    fn end_discard(&mut self, id: OpId) {
        self.end(id, Ok(()));
        self.discards.end(&mut self.cx);
        self.begin_discard();
    }

    /// A checkpoint has ended. `whole`: it has held nothing back, and all that it has changed is durable.
    fn discard_after_checkpoint(&mut self, whole: bool) {
        if !{ &mut self.discards }.checkpoint_ended(&self.cx, &self.maps, whole) {
            return;
        }
        self.begin_discard();
        let ring = &self.log.ring;
        let unused = ring.is_empty() && self.log.is_idle() && !self.has_gaps();
        let ring = RingUse {
            blocks: ring.blocks(),
            taken: ring.taken(),
            unused: unused && self.logs_nothing_lately(),
        };
        { &mut self.discards }.begin_ring(&mut self.cx, &mut self.ios, ring);
    }

    /// Flushes every drive that holds writes not yet flushed; false if there is none.
    fn begin_flush(&mut self, waiter: Waiter) -> bool {
        let covers = self.log.completed;
        let begun = self
            .flushes
            .begin(&mut self.cx, &mut self.ios, waiter, covers);
        if !begun {
            self.log.flushed = self.log.flushed.max(covers);
        }
        begun
    }

    fn flush_finished(&mut self, finished: impl IntoIterator<Item = Finished>) {
        for finished in finished {
            let outcome = finished.outcome;
            if outcome.is_ok() {
                self.log.flushed = self.log.flushed.max(finished.covers);
                self.direct.flushed(self.log.flushed);
            }
            match finished.waiter {
                Waiter::Request(id) => self.flushed_for(id, outcome),
                Waiter::Job(id) => self.end_job(id, outcome),
                Waiter::Checkpoint => self.checkpoint_flushed(outcome),
                Waiter::Recovery => self.recovery_flushed(),
                // The next batch's header says it.
                Waiter::Log => {}
                Waiter::Moves => self.moves_flushed(outcome),
            }
        }
    }
}
