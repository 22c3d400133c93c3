//! Pool-wide state: labels, generation, membership, volumes, and the queue of cells to fill.
//!
//! [`Pool`] is a state machine like a lane: it takes events, returns actions, and does no I/O. Its decisions reach the
//! lanes as [`Command`]s, and only once they are durable: a fact is first written to the labels, a cell's new place
//! first to the cell table of the drive that holds the cell.
//!
//! ```text
//!   lane: drive 3 fails a write ──► Pool: seat 3 is out since generation 8
//!                                     │ labels on all other drives, flushed
//!                                     ▼
//!                                   lanes: SeatOut(3); requests that waited continue
//!                                     │ queue: columns of seat 3, least redundant groups first
//!                                     ▼
//!                                   lane: Fill … ──► Filled ──► cell table, flushed ──► Settle
//! ```

mod care;
mod catchup;
mod cells;
mod check;
mod clients;
mod closing;
mod context;
mod create;
mod draining;
mod elastic;
mod error;
mod fill;
#[cfg(test)]
mod fixture;
mod freed;
mod full;
mod generations;
mod grow;
mod initialize;
mod journal;
mod leave;
mod loss;
mod members;
mod open;
mod placement;
mod progress;
mod recovery;
mod redundancy;
mod replace;
mod report;
mod resync;
mod room;
pub mod router;
mod scrub;
mod space;
mod spec;
mod stall;
mod steer;
mod suspicion;
mod usage;
mod volumes;
mod work;

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{Instant, Outcome, Seat};
use format::runs::Runs;
use format::{Column, Form, Generation, GroupId, StripeId};
use layout::Cell;
use plan::action::{Command, Event, IoId};
use plan::{Geometry, SubStripePlans};
use uuid::Uuid;

use self::catchup::JournalWipes;
use self::clients::Clients;
use self::closing::Closing;
use self::context::Context;
use self::context::writes::{PoolWrite, WriteEnd};
use self::draining::Draining;
use self::elastic::Elastic;
use self::fill::Fills;
use self::grow::Growth;
use self::journal::JournalNeeds;
use self::leave::Leaving;
use self::loss::LossList;
use self::placement::Key;
use self::recovery::Recovering;
use self::replace::Replacements;
use self::resync::Resync;
use self::room::Rooms;
use self::scrub::{Found, SCRUB_PLAN_INTERVAL, Scrub};
use self::stall::{Stalls, TryAgain};
use self::steer::Meter;
use self::suspicion::Suspicions;
use self::volumes::Volumes;

pub use catchup::{Proof, Rejected};
pub use create::{CreateError, RegionSizes, create, create_with_regions};
pub use elastic::{
    ELASTIC_POLICIES, ElasticError, ElasticPolicy, ElasticReason, ElasticSpec, ElasticStatus,
    policy_of,
};
pub use error::PoolError;
pub use fill::order::{FILL_ORDERS, FillChoice, FillLoads, FillOrder};
pub use format::{
    Bay, Interleave, LossFacts, OutReason, PoolFacts, RegionFacts, ScrubFacts, SeatFacts,
    SeatState, SteerFacts, VolumeFacts,
};
pub use grow::{GrowError, GrowthPlan};
pub use leave::{LeaveError, LeavePlan};
pub use loss::LostData;
pub use open::{FoundDrive, OpenError, Opening, open};
pub use progress::{Progress, SeatTraffic};
pub use report::{LostRun, Report, Severity};
pub use room::{DriveRoom, RoomLevel, WritesWait};
pub use scrub::ScrubProgress;
pub use spec::{NewDrive, PoolSpec};
pub use steer::{RATE_BYTES_MIN, Steering};
pub use work::Work;

/// Names an administrator's command until it is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Work that the pool requests from its driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolAction {
    /// Write the bytes to the seat's drive, then flush it, then report through
    /// `handle_completion`.
    WriteDurably {
        /// Comes back with the completion.
        id: IoId,
        /// Whose drive.
        seat: Seat,
        /// First byte on the drive.
        offset: u64,
        /// What to write; whole blocks.
        bytes: Arc<[u8]>,
    },
    /// Give the lane this command (and its events back through `handle_event`).
    Lane(u16, Command),
    /// The drives of two seats change places, before any later action.
    Swap(Seat, Seat),
    /// The drive of the second seat moves to the first seat, whose old drive is detached. The driver does this in the
    /// same step in which it gives the lanes these commands, one per lane in order.
    Succeed(Seat, Seat, Vec<Command>),
    /// This seat is empty now: detach its drive.
    Vacate(Seat),
    /// The same; its drive was removed from the layout: wipe its label.
    Release(Seat),
    /// The volumes have changed: routers take a new snapshot.
    VolumesChanged,
    /// An administrator's command has ended.
    Done(Ticket, Result<(), PoolError>),
    /// A report, for the log.
    Report(Report),
    /// Sample the use of all drives now, and pass it on by `handle_usage`: writes may wait for it.
    SampleUsage,
}

/// Carried out once something is durable.
#[derive(Clone, Debug)]
enum OnDurable {
    Lanes(Command),
    /// At opening: the column is in this cell, by the cell tables.
    Place {
        group: GroupId,
        column: Column,
        cell: Cell,
    },
    /// A waiting spare drive takes the seat, if there is a spare and the seat needs it.
    SeatSpare(Seat),
    /// These columns are in their home cells on the seat's drive, unchanged since the drive left.
    Readmit(Seat, Vec<Key>),
    /// A successor takes its seat.
    Succeed(Seat),
    /// This seat, beyond the layout's seats, is empty.
    Vacate(Seat),
    /// This seat of the layout is vacant.
    Released(Seat),
    /// The layout has another table of pieces.
    Grow(Arc<Geometry>),
    /// Membership has changed: scan all groups again.
    Requeue,
    VolumesChanged,
    /// These groups belong to no volume any more.
    Freed(Runs),
    /// These groups have been made blank.
    Initialized(std::ops::Range<GroupId>),
    /// The lanes read their journals; then `then` is carried out.
    Recover {
        fresh: bool,
        then: Vec<Self>,
    },
    Resync,
    /// Parity and copies agree with the data: the last stop left nothing to resync.
    CopiesAgree,
    Done(Ticket, Result<(), PoolError>),
    Report(Report),
}

/// The half of a [`PoolAction::WriteDurably`] that a drive has answered last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Half {
    /// The write, successful or not.
    Write,
    /// The flush, successful or not.
    Flush,
}

/// The pool's state machine. The driver calls `handle_*` when something happens and then
/// [`poll_action`](Self::poll_action) until `None`. It is deterministic.
#[derive(Clone, Debug)]
pub struct Pool {
    cx: Context,
    fills: Fills,
    clients: Clients,
    meter: Meter,
    /// Drives that went out because they were gone, by identity: they have not failed, and may return by themselves.
    vanished: BTreeSet<Uuid>,
    /// Seats that no spare takes because data cannot be read without the drives that are out.
    without_spare: BTreeSet<Seat>,
    /// Drives that are brought in once their journal is overwritten.
    journal_wipes: JournalWipes,
    draining: Draining,
    replacements: Replacements,
    /// Data that is lost.
    losses: LossList,
    resync: Resync,
    growth: Growth,
    leaving: Leaving,
    volumes: Volumes,
    journal: JournalNeeds,
    closing: Closing,
    /// Set while lanes read their journals.
    recovering: Option<Recovering>,
    scrub: Scrub,
    elastic: Elastic,
    suspicions: Suspicions,
    stalls: Stalls,
    rooms: Rooms,
}

impl Pool {
    /// A pool with these facts and all drives that are in use or wait, and nothing in flight.
    fn assemble(geometry: Geometry, facts: PoolFacts, generation: Generation) -> Self {
        let group_blocks = geometry.group_data_bytes() / block::BLOCK_BYTES;
        let losses = LossList::of(&facts, group_blocks);
        let lanes = geometry.lanes();
        let leaving = Leaving::new(&facts);
        Self {
            cx: Context::new(geometry, facts, generation),
            losses,
            fills: Fills::default(),
            clients: Clients::default(),
            meter: Meter::default(),
            vanished: BTreeSet::new(),
            without_spare: BTreeSet::new(),
            journal_wipes: JournalWipes::default(),
            draining: Draining::default(),
            replacements: Replacements::default(),
            resync: Resync::default(),
            growth: Growth::default(),
            leaving,
            volumes: Volumes::default(),
            journal: JournalNeeds::default(),
            closing: Closing::default(),
            recovering: None,
            scrub: Scrub::default(),
            elastic: Elastic::default(),
            suspicions: Suspicions::default(),
            stalls: Stalls::default(),
            rooms: Rooms::new(lanes),
        }
    }

    /// The pool's facts as they are now (and soon on all labels).
    #[must_use]
    pub const fn facts(&self) -> &PoolFacts {
        &self.cx.facts
    }

    /// The generation of the facts.
    #[must_use]
    pub const fn generation(&self) -> Generation {
        self.cx.labels.generation()
    }

    /// The pool's shape.
    #[must_use]
    pub const fn geometry(&self) -> &Arc<Geometry> {
        &self.cx.geometry
    }

    /// A lane reports an event.
    pub fn handle_event(&mut self, now: Instant, event: &Event) {
        self.cx.now = now;
        match *event {
            Event::DriveFault {
                seat,
                kind,
                offset,
                fault,
                waiting,
            } => self.drive_fault(seat, kind, offset, fault, waiting),
            // Until the lanes have processed a change of the seat's drive, they report about the drive before it.
            Event::Late { seat } | Event::Hangs { seat, .. }
                if self.cx.placement.is_joining(seat) => {}
            // A slow successor delays nothing but its own copy.
            Event::Late { seat } if self.replacements.is_successor(seat) => {}
            Event::Late { seat } => {
                if self.suspicions.late(&mut self.cx, seat) {
                    self.take_out(seat, OutReason::Slow, Vec::new());
                }
            }
            Event::Hangs { lane, seat } => (self.suspicions).hangs(&self.cx, Some(lane), seat),
            Event::Answers { lane, seat } => self.suspicions.answers(Some(lane), seat),
            Event::Clients { lane, ask } => self.clients_ask(lane, ask),
            Event::FillStepped {
                group,
                column,
                bytes,
                read_bytes,
                verified_blocks,
            } => {
                self.fills.lane_verified(read_bytes, verified_blocks);
                (self.fills).lane_stepped(&self.cx, (group, column), bytes);
            }
            Event::WantsToMove { lane, bytes } => self.meter.wants_to_move(lane, bytes),
            Event::Copied { group, column } => self.fills.copied((group, column)),
            Event::Filled {
                group,
                column,
                target,
                copied_bytes,
            } => self.filled((group, column), target, copied_bytes),
            Event::FillFailed {
                group,
                column,
                target,
                fault,
            } => self.fill_failed((group, column), target, fault),
            Event::Settled { group, column } => self.settled((group, column)),
            Event::BlocksUnrecovered {
                group,
                column,
                blocks,
            } => {
                let scrub = &mut self.scrub;
                scrub.blocks_unrecovered(&mut self.cx, group, column, blocks);
            }
            Event::SeatDrained { seat, .. } => self.draining.drained(seat),
            Event::Zeroed { group, outcome } => self.zeroed(group, outcome),
            Event::WantsInitialized { group } => self.volumes.wants_initialized(&self.cx, group),
            Event::Resynced { group, outcome } => {
                self.resync.resynced(&mut self.cx, group, outcome);
            }
            Event::StripeLost { group, stripe, .. } => {
                self.cx.report(Report::StripeLost {
                    group,
                    stripe,
                    times: 1,
                });
            }
            Event::Recovered {
                lane,
                batches,
                outcome,
            } => self.lane_recovered(lane, batches, outcome),
            Event::Checkpointed { lane } => {
                if !self.replacements.checkpointed(&mut self.cx, lane) {
                    self.closing.checkpointed(lane);
                }
            }
            Event::JournalLeft { lane, seat } => {
                self.leaving.lane_has_left(&self.cx, lane, seat);
                if self.journal.left(&mut self.cx, lane, seat) {
                    self.cx.commit(vec![OnDurable::SeatSpare(seat)]);
                }
            }
            Event::JournalEmpty { lane } => {
                self.closing.is_empty_in(lane);
            }
            Event::Scrubbed {
                group,
                blocks,
                bad,
                mended,
                lost,
                outcome,
            } => {
                let found = Found {
                    blocks,
                    bad,
                    mended,
                    lost,
                };
                self.scrub.scrubbed(&mut self.cx, group, found, outcome);
                self.end_scrub();
            }
            Event::Converted {
                group,
                forms,
                outcome,
                ..
            } => self.elastic.converted(&self.cx, group, forms, outcome),
            Event::GroupsChanged(ref groups) => self.elastic.may_have_changed(&self.cx, groups),
            Event::BlocksLost(range) => self.losses.lost(&mut self.cx, range),
            Event::BlocksFound(range) => self.losses.found(&mut self.cx, range),
            Event::BlockBad {
                seat,
                offset,
                blocks,
                ..
            } => {
                self.cx.count_bad(seat, blocks);
                self.cx.report(Report::BlockBad {
                    seat,
                    blocks,
                    offset,
                    end: offset + blocks * block::BLOCK_BYTES,
                });
            }
            Event::Repaired {
                group,
                stripe,
                blocks,
            } => {
                self.fills.note_repaired(blocks);
                self.cx.report(Report::Repaired {
                    group,
                    stripe,
                    stripes: 1,
                    blocks,
                });
            }
            Event::PageLost { group, column } => {
                let scrub = &mut self.scrub;
                scrub.page_lost(&mut self.cx, group, column, self.fills.is_idle());
            }
            Event::PageMended { seat, damaged, .. } => {
                self.scrub.page_mended(&mut self.cx, seat, damaged);
            }
            Event::DriveOld {
                seat,
                anchor,
                newest,
            } => self.scrub.drive_old(&mut self.cx, seat, anchor, newest),
            Event::BlocksUnknown { group } => {
                let scrub = &mut self.scrub;
                scrub.blocks_unknown(&self.cx, group, self.fills.is_idle());
            }
            Event::DrivesFail => self.stalls.fails_and_stays(now),
            Event::WantsRoom { freed, .. } => self.rooms.lane_wants(&mut self.cx, freed),
            Event::Room(ref report) => {
                self.rooms.lane_reports(&mut self.cx, (**report).clone());
            }
            Event::Stalled { lane, fault } => (self.stalls).lane_stalled(&mut self.cx, lane, fault),
            Event::Resumed { lane } => {
                if self.stalls.lane_resumed(&mut self.cx, lane) {
                    self.requeue_fills();
                    self.write_refused_cell_pages();
                }
                self.cx.retry_labels();
            }
        }
        self.advance();
    }

    /// A `WriteDurably` has ended; `last` is the half that ended it. A write that fails with a medium error is tried
    /// again, as in lanes. A flush is never tried again: other writes that it should have covered may be lost.
    ///
    /// # Panics
    /// When `id` is not in flight.
    pub fn handle_completion(&mut self, now: Instant, id: IoId, last: Half, outcome: Outcome) {
        self.cx.now = now;
        let what = match self.cx.writes.ended(now, id, last, outcome) {
            WriteEnd::Forgotten => return,
            WriteEnd::Again(again) => return self.cx.act(again),
            WriteEnd::Over(what) => what,
        };
        let seat = what.seat();
        if !self.cx.writes.is_writing(seat) {
            self.suspicions.answers(None, seat);
        }
        match what {
            PoolWrite::Label { seat } => self.cx.label_written(seat, outcome),
            PoolWrite::CellPage { seat, first_row } => {
                self.cell_page_written(seat, first_row, outcome);
            }
            PoolWrite::WipeJournal { seat } => self.journal_wiped(seat, outcome),
        }
        self.advance();
    }

    /// When to call [`handle_timeout`](Self::handle_timeout).
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let scrub = self.cx.facts.scrub.every_days > 0;
        let times = [
            self.suspicions.poll_timeout(),
            suspicion::own_writes_at(&self.cx),
            self.cx.labels.retry_at(),
            self.stalls.try_at(),
            self.meter.grant_at(),
            self.rooms.poll_timeout(),
            scrub.then(|| self.cx.now + SCRUB_PLAN_INTERVAL),
        ];
        times.into_iter().flatten().min()
    }

    /// The clock has reached [`poll_timeout`](Self::poll_timeout).
    pub fn handle_timeout(&mut self, now: Instant) {
        self.cx.now = now;
        self.suspicions.trust_again(&mut self.cx);
        self.give_up_journal_wipes();
        self.suspicions.check_own_writes(&self.cx);
        for seat in self.suspicions.decide(&mut self.cx) {
            if self.cx.group_that_needs(seat).is_none() {
                self.take_out(seat, OutReason::Hung, Vec::new());
            } else {
                self.suspicions.cannot_be_spared(&mut self.cx, seat);
            }
        }
        self.advance();
    }

    /// The next action.
    pub fn poll_action(&mut self) -> Option<PoolAction> {
        self.cx.actions.pop_front()
    }

    /// Whether nothing is in flight and nothing waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.cx.writes.is_idle()
            && self.cx.labels.is_idle()
            && self.fills.is_idle()
            && self.resync.is_idle()
            && self.volumes.is_idle()
            && self.recovering.is_none()
            && self.scrub.is_idle()
            && self.elastic.is_idle()
            && !self.is_replacing()
            && self.growth.is_idle()
            && self.cx.actions.is_empty()
    }

    /// Whether a fill waits or is in flight. Cells that cannot be filled do not count.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        !self.fills.is_idle()
    }

    /// Whether parity is being computed again.
    #[must_use]
    pub fn is_resyncing(&self) -> bool {
        !self.resync.is_idle()
    }

    /// Closes the pool: fills in flight are abandoned, and the facts record "clean". The driver has stopped all
    /// clients' requests and flushed before.
    pub fn close(&mut self, now: Instant, ticket: Ticket) {
        self.cx.now = now;
        self.cx.closing = Some(ticket);
        self.growth.call_off(&mut self.cx, PoolError::Closing);
        self.fills.abandon_all(&mut self.cx);
        self.scrub.stop(&mut self.cx);
        self.elastic.stop(&mut self.cx);
        (self.closing).checkpoint(&mut self.cx, !self.elastic.is_idle());
        self.advance();
    }

    /// Advances everything that can proceed.
    fn advance(&mut self) {
        loop {
            self.pump_labels();
            self.advance_once();
            // A generation that no drive has to take is durable at once.
            if !self.cx.labels.is_answered() {
                return;
            }
        }
    }

    fn advance_once(&mut self) {
        self.cx.retry_labels_when_due();
        if let Some(TryAgain { fills }) = self.stalls.try_again(&mut self.cx) {
            if fills {
                self.requeue_fills();
            }
            self.write_refused_cell_pages();
        }
        self.rooms.ask_when_due(&mut self.cx);
        self.pump_fills();
        self.resync.pump(&mut self.cx);
        self.scrub.pump(&mut self.cx);
        self.pump_elastic();
        self.pump_volumes();
        self.pump_replacements();
        self.meter.pump(&mut self.cx);
        self.complete_seats();
        self.pump_growth();
        self.pump_leaving();
        self.finish_closing();
    }

    fn finish_closing(&mut self) {
        if self.cx.closing.is_some() {
            self.scrub.note(&mut self.cx);
        }
        (self.closing).checkpoint(&mut self.cx, !self.elastic.is_idle());
        let quiet = self.fills.in_flight() == 0
            && self.elastic.is_idle()
            && self.cx.writes.is_idle()
            && self.cx.labels.is_idle()
            && !self.volumes.is_initializing()
            && self.resync.in_flight() == 0
            && self.scrub.in_flight() == 0
            && self.closing.is_checkpointed();
        if quiet && let Some(ticket) = self.cx.closing.take() {
            // Parity that has not been resynced yet is left to the next opening.
            self.cx.facts.clean = self.resync.is_idle();
            self.cx.facts.journal_empty = self.closing.is_journal_empty(self.cx.geometry.lanes());
            self.cx.commit(vec![OnDurable::Done(ticket, Ok(()))]);
        }
    }

    fn carry_out(&mut self, effect: OnDurable) {
        match effect {
            OnDurable::Lanes(command) => {
                if let Command::SeatIn(seat) | Command::Twin { with: seat, .. } = command {
                    self.cx.placement.joined(seat);
                }
                self.cx.tell_lanes(&command);
            }
            OnDurable::Place {
                group,
                column,
                cell,
            } => self.cx.tell_lane(
                group,
                Command::Settle {
                    group,
                    column,
                    cell,
                },
            ),
            OnDurable::SeatSpare(seat) => self.seat_spare(seat),
            OnDurable::Readmit(seat, columns) => self.fills.readmit(&mut self.cx, seat, columns),
            OnDurable::Succeed(seat) => self.promoted(seat),
            OnDurable::Vacate(seat) => self.cx.vacate(seat),
            OnDurable::Released(seat) => self.leaving.released(&mut self.cx, seat),
            OnDurable::Grow(geometry) => self.growth.grown(&mut self.cx, geometry),
            OnDurable::Requeue => self.requeue_fills(),
            OnDurable::Recover { fresh, then } => self.recover_lanes(fresh, then),
            OnDurable::Resync => self.resync.begin(&mut self.cx),
            OnDurable::CopiesAgree => self.cx.tell_lanes(&Command::CopiesAgree),
            OnDurable::VolumesChanged => self.cx.act(PoolAction::VolumesChanged),
            OnDurable::Freed(groups) => {
                self.leaving.note_freed(&groups);
                self.discard_freed(&groups);
            }
            OnDurable::Initialized(groups) => self.cx.tell_initialized(&groups, Ok(())),
            OnDurable::Done(ticket, outcome) => self.cx.done(ticket, outcome),
            OnDurable::Report(report) => self.cx.report(report),
        }
    }
}

/// Whether a group's data can be read from these columns. All stripes of a group are alike except for rotation. Most
/// codes here are equally strong in every column, but mirrors are not, so every rotation is checked once.
fn is_recoverable(
    geometry: &Geometry,
    plans: &mut SubStripePlans,
    group: GroupId,
    readable: &BTreeSet<Column>,
) -> bool {
    let code = geometry.code();
    if readable.len() == usize::from(geometry.layout().columns()) {
        return true;
    }
    let stripes = geometry
        .stripes_per_group()
        .min(u64::from(geometry.layout().columns()) * u64::from(code.columns()));
    let data: erasure::ElementSet = code.data_slots().collect();
    StripeId::each(StripeId::range(0..stripes)).all(|stripe| {
        let mut known = erasure::ElementSet::new(code.elements());
        for slot in 0..code.elements() {
            if readable.contains(&geometry.place(group, stripe, Form::Parity, slot).0) {
                known.insert(slot);
            }
        }
        plans.recover(code, &known, &data).is_ok()
    })
}
