//! The thread that runs a pool's state machine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use array::format::{LABEL_OFFSETS, label_copies};
use array::pool::{
    Half, NewDrive, OutReason, Pool, PoolAction, PoolError, Proof, Report, Severity, Steering,
    Ticket,
};
use array::router::VolumeMap;
use array::{Command, Event, IoId};
use block::{Completed, Fault, Instant, Memory, Outcome, Permission, Request, RequestKind, Seat};
use uuid::Uuid;

use super::events::{EventLog, Gather};
use super::lane::{LaneMessage, LaneSender};
use super::lease::{InUse, Lease, in_use};
use super::members::{Member, members};
use super::names::Names;
use super::usage::{Sample, Sampler};
use super::volume::Volume;
use super::{Clock, Seats};
use crate::assemble::{self, ExpandPlan, RemovalPlan, new_drive};
use crate::drive::Drive;
use crate::status::{LoggedEvent, PoolStatus, drive_traffic};
use crate::traffic::{PoolTraffic, VolumeLine};

/// The longest preferred request of a volume: NBD's longest request.
const PREFERRED_BYTES_MAX: u64 = 32 << 20;

/// The pool's volumes by name, shared with all code that opens them.
pub(crate) type Volumes = RwLock<BTreeMap<String, Arc<Volume>>>;

/// Receives the outcome of an administrator's command.
pub(crate) type Answer = Sender<Result<(), PoolError>>;

/// An administrator's command. A seat is given by the number of its drive, as the status shows it.
pub(crate) enum Admin {
    CreateVolume {
        name: String,
        size_bytes: u64,
    },
    ResizeVolume {
        name: String,
        size_bytes: u64,
    },
    DeleteVolume {
        name: String,
    },
    Rename {
        name: String,
    },
    RenameVolume {
        name: String,
        new: String,
    },
    /// Removes a spare, for good.
    RemoveSpare {
        seat: Seat,
    },
    /// Removes a drive of the layout: its columns move to others.
    RemoveDrive {
        seat: Seat,
    },
    /// Calls that off.
    KeepDrive {
        seat: Seat,
    },
    /// Forgets the errors counted against a drive.
    ClearDrive {
        seat: Seat,
    },
    FailDrive {
        seat: Seat,
        reason: OutReason,
        force: bool,
    },
    /// Puts a new drive into a seat.
    InsertDrive {
        seat: Seat,
        drive: Drive,
    },
    /// Returns the drive that left the seat.
    ReturnDrive {
        seat: Seat,
        drive: Drive,
        proof: Option<Box<Proof>>,
    },
    AddSpare {
        drive: Drive,
    },
    /// Replaces a working drive, which stays in use until the new one is complete.
    ReplaceDrive {
        seat: Seat,
        drive: Drive,
    },
    /// Takes fresh drives and waiting spares into the layout.
    Expand {
        drives: Vec<Drive>,
        waiting: Vec<Seat>,
    },
    PauseRebuild {
        paused: bool,
    },
    /// The priority, rate or pause of rebuild and scrub.
    Steer(Steering),
    /// Ends when the scrub has.
    Scrub,
    PauseScrub {
        paused: bool,
    },
    PlanScrub {
        every_days: u32,
    },
    /// How many stripes should be copies.
    ElasticShare {
        share: Option<u8>,
    },
    Close,
}

impl Admin {
    /// The same command with the seat that the drive of this number has now.
    fn with_seat(
        mut self,
        of: impl Fn(Seat) -> Result<Seat, PoolError>,
    ) -> Result<Self, PoolError> {
        match &mut self {
            Self::RemoveSpare { seat }
            | Self::RemoveDrive { seat }
            | Self::KeepDrive { seat }
            | Self::ClearDrive { seat }
            | Self::FailDrive { seat, .. }
            | Self::InsertDrive { seat, .. }
            | Self::ReturnDrive { seat, .. }
            | Self::ReplaceDrive { seat, .. } => *seat = of(*seat)?,
            Self::Expand { waiting, .. } => {
                for seat in waiting {
                    *seat = of(*seat)?;
                }
            }
            _ => {}
        }
        Ok(self)
    }
}

/// Called with every event, on the pool's thread: it must not wait.
pub type Listener = Box<dyn Fn(&LoggedEvent) + Send>;

/// A message to the pool's thread.
pub(crate) enum PoolMessage {
    Event(Event),
    /// The write of a `WriteDurably` has ended.
    Written(IoId, Outcome),
    /// Its flush has ended.
    Flushed(IoId, Outcome),
    Admin(Box<Admin>, Answer),
    Status(Sender<PoolStatus>),
    Traffic(Sender<PoolTraffic>),
    Members(Sender<(Uuid, Vec<Member>)>),
    /// How much of their physical space drives use.
    /// The first of them was sampled no earlier than this.
    Usage(Instant, Vec<Sample>),
    /// Numbers events as those that follow the one with this number.
    NumberAfter(u64),
    /// Asks what an expansion by these drives and the waiting spares of these numbers would do.
    PlanExpand(
        Vec<NewDrive>,
        Vec<Seat>,
        Sender<Result<ExpandPlan, PoolError>>,
    ),
    /// Asks what the removal of the drive of this number would do.
    PlanRemoval(Seat, Sender<Result<RemovalPlan, PoolError>>),
    /// Asks for the drive that is attached to a seat.
    Drive(Seat, Sender<Result<Drive, PoolError>>),
    /// Answers when nothing is being filled, resynced or recorded.
    WaitIdle(Sender<()>),
    /// Waiting spares take the seats of missing drives after this time.
    UseSpares(Duration),
    /// Another opening has taken the pool over.
    TakenOver(Uuid),
    /// Adds a listener, which gets all earlier and later events.
    Listen(Listener),
    Stop,
}

/// Passes a drive's completions to the pool's thread.
struct Sink {
    pool: Sender<PoolMessage>,
    flush: bool,
    lease: Arc<Lease>,
}

impl Completed for Sink {
    fn completed(&self, token: u64, outcome: Outcome) {
        let id = IoId(token);
        let message = if self.flush {
            PoolMessage::Flushed(id, outcome)
        } else {
            PoolMessage::Written(id, outcome)
        };
        // A pool that has stopped does not wait for the answer.
        self.pool.send(message).ok();
    }

    fn permission(&self) -> Permission {
        self.lease.permission()
    }
}

pub(crate) struct PoolThread {
    pool: Pool,
    seats: Seats,
    sampler: Sampler,
    lanes: Arc<[LaneSender]>,
    volumes: Arc<Volumes>,
    clock: Clock,
    write_sink: Arc<dyn Completed>,
    flush_sink: Arc<dyn Completed>,
    /// Drives of the writes in flight.
    writes: BTreeMap<IoId, Option<Drive>>,
    /// Labels in flight that are still to be written at the end of the drive, too.
    label_copies: BTreeMap<IoId, (u64, Memory)>,
    /// Labels whose copy at the end is being written.
    copying: BTreeSet<IoId>,
    answers: BTreeMap<Ticket, Answer>,
    next_ticket: u64,
    names: Names,
    gather: Gather,
    events: EventLog,
    listeners: Vec<Listener>,
    waiting: Vec<Sender<()>>,
    lease: Arc<Lease>,
    in_use: InUse,
    /// The opening that has taken the pool over.
    usurper: Option<Uuid>,
    /// When waiting spares take the seats of missing drives.
    spares_at: Option<Instant>,
}

impl PoolThread {
    /// `opened` answers the ticket with which the pool was created or opened.
    pub(crate) fn new(
        pool: Pool,
        (seats, sampler): (Seats, Sampler),
        lanes: Arc<[LaneSender]>,
        volumes: Arc<Volumes>,
        (clock, sender): (Clock, &Sender<PoolMessage>),
        opened: (Ticket, Answer),
        (lease, in_use): (Arc<Lease>, InUse),
    ) -> Self {
        let sink = |flush| -> Arc<dyn Completed> {
            Arc::new(Sink {
                pool: sender.clone(),
                flush,
                lease: Arc::clone(&lease),
            })
        };
        Self {
            names: Names::new(pool.facts()),
            pool,
            seats,
            sampler,
            lanes,
            volumes,
            clock,
            write_sink: sink(false),
            flush_sink: sink(true),
            writes: BTreeMap::new(),
            label_copies: BTreeMap::new(),
            copying: BTreeSet::new(),
            next_ticket: opened.0.0 + 1,
            answers: BTreeMap::from([opened]),
            gather: Gather::default(),
            events: EventLog::default(),
            listeners: Vec::new(),
            waiting: Vec::new(),
            lease,
            in_use,
            usurper: None,
            spares_at: None,
        }
    }

    pub(crate) fn run(mut self, receiver: &Receiver<PoolMessage>) {
        self.poll();
        self.serve(receiver);
        for report in self.gather.all() {
            self.add_event(&report);
        }
    }

    fn serve(&mut self, receiver: &Receiver<PoolMessage>) {
        loop {
            let Some(message) = self.next(receiver) else {
                return;
            };
            if let Ok(since) = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH) {
                let now = self.clock.now();
                self.pool.handle_wall_clock(now, since.as_secs());
            }
            for report in self.gather.due(self.clock.now()) {
                self.add_event(&report);
            }
            self.use_spares();
            let Some(message) = message else {
                self.pool.handle_timeout(self.clock.now());
                self.poll();
                continue;
            };
            match message {
                PoolMessage::Event(event) => self.pool.handle_event(self.clock.now(), &event),
                PoolMessage::Written(id, outcome) => self.written(id, outcome),
                PoolMessage::Flushed(id, outcome) => {
                    self.writes.remove(&id);
                    let now = self.clock.now();
                    self.pool.handle_completion(now, id, Half::Flush, outcome);
                }
                PoolMessage::Admin(command, answer) => self.admin(*command, answer),
                // The receiver may have gone.
                PoolMessage::Status(to) => to.send(self.status()).unwrap_or_default(),
                PoolMessage::Traffic(to) => to.send(self.traffic()).unwrap_or_default(),
                PoolMessage::Members(to) => {
                    let members = members(&self.pool, &self.seats);
                    let uuid = self.pool.facts().uuid;
                    to.send((uuid, members)).unwrap_or_default();
                }
                PoolMessage::PlanExpand(drives, waiting, to) => {
                    let planned = self.plan_expand(&drives, &waiting);
                    to.send(planned).unwrap_or_default();
                }
                PoolMessage::PlanRemoval(number, to) => {
                    let planned = self.seat_of(number).and_then(|seat| {
                        RemovalPlan::new(&self.pool, seat).map_err(|error| self.in_numbers(error))
                    });
                    to.send(planned).unwrap_or_default();
                }
                PoolMessage::Usage(taken_at, samples) => self.sampled(taken_at, &samples),
                PoolMessage::NumberAfter(last) => self.events.number_after(last),
                PoolMessage::Drive(seat, to) => to.send(self.drive(seat)).unwrap_or_default(),
                PoolMessage::WaitIdle(to) => self.waiting.push(to),
                PoolMessage::UseSpares(after) => self.spares_at = Some(self.clock.now() + after),
                PoolMessage::TakenOver(by) => self.taken_over(by),
                PoolMessage::Listen(listener) => {
                    self.events.events().iter().for_each(&listener);
                    self.listeners.push(listener);
                }
                PoolMessage::Stop => return,
            }
            self.poll();
            if !self.waiting.is_empty() && self.is_quiet() {
                for waiting in self.waiting.drain(..) {
                    waiting.send(()).unwrap_or_default();
                }
            }
        }
    }

    /// Stops all volumes and lanes; commands that wait fail.
    fn taken_over(&mut self, by: Uuid) {
        self.usurper = Some(by);
        self.log(&Report::TakenOver { by });
        let volumes = self.volumes.read().expect("no holder of the lock panics");
        for volume in volumes.values() {
            volume.close();
        }
        for lane in &*self.lanes {
            lane.send(LaneMessage::Stop);
        }
        for answer in std::mem::take(&mut self.answers).into_values() {
            answer.send(Err(PoolError::TakenOver)).unwrap_or_default();
        }
        // They cannot get what they wait for: dropping them ends their wait.
        self.waiting.clear();
    }

    /// Waiting spares take the seats of drives that have not come back in time.
    fn use_spares(&mut self) {
        let now = self.clock.now();
        if self.spares_at.is_some_and(|at| at <= now) {
            self.spares_at = None;
            self.pool.use_spares(now);
            self.poll();
        }
    }

    /// The next message; `Some(None)` when a timeout comes first, `None` at the end.
    fn next(&self, receiver: &Receiver<PoolMessage>) -> Option<Option<PoolMessage>> {
        let times = [
            self.pool.poll_timeout(),
            self.gather.poll_timeout(),
            self.spares_at,
        ];
        let Some(at) = times.into_iter().flatten().min() else {
            return receiver.recv().ok().map(Some);
        };
        match receiver.recv_timeout(at.since(self.clock.now())) {
            Ok(message) => Some(Some(message)),
            Err(RecvTimeoutError::Timeout) => Some(None),
            Err(RecvTimeoutError::Disconnected) => None,
        }
    }

    fn is_quiet(&self) -> bool {
        self.pool.is_idle()
    }

    fn status(&self) -> PoolStatus {
        let events = self.events.events();
        let now = self.clock.now();
        let mut status = PoolStatus::new(&self.pool, &self.seats, now, events);
        let waits = self.spares_at.filter(|_| self.pool.could_use_spares());
        status.spares_in_seconds = waits.map(|at| at.since(now).as_secs());
        match self.usurper {
            Some(by) => status.taken_over(by),
            None => status,
        }
    }

    fn traffic(&self) -> PoolTraffic {
        let volumes = self.volumes.read().expect("no holder of the lock panics");
        let volumes = volumes.values().map(|volume| VolumeLine {
            name: volume.name().to_owned(),
            traffic: volume.traffic(),
        });
        PoolTraffic {
            drives: drive_traffic(&self.pool, &self.seats),
            volumes: volumes.collect(),
        }
    }

    /// The bytes are written: flushes them.
    fn written(&mut self, id: IoId, mut outcome: Outcome) {
        let copy = self.label_copies.remove(&id);
        let is_copy = self.copying.remove(&id);
        let Some(Some(drive)) = self.writes.get(&id).cloned() else {
            return;
        };
        if is_copy {
            // The label itself is written. Without its copy, the drive is as one that was written by an earlier version.
            if let Err(fault) = std::mem::replace(&mut outcome, Ok(())) {
                tracing::warn!(drive = %drive.uri, "its label has no copy at its end: {fault}");
            }
        } else if let (Ok(()), Some((offset, memory))) = (&outcome, copy) {
            // One flush covers both: a generation counts when it is at both ends.
            self.copying.insert(id);
            return self.submit_write(&drive, id, offset, memory);
        }
        let device = drive.device;
        if outcome.is_err() {
            self.writes.remove(&id);
            let now = self.clock.now();
            self.pool.handle_completion(now, id, Half::Write, outcome);
            return;
        }
        let flush = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        device.submit(flush, Memory::empty(), id.0, &self.flush_sink);
    }

    fn admin(&mut self, command: Admin, answer: Answer) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let now = self.clock.now();
        if self.lease.is_lost() {
            answer.send(Err(PoolError::TakenOver)).unwrap_or_default();
            return;
        }
        let command = match command.with_seat(|number| self.seat_of(number)) {
            Ok(command) => command,
            Err(error) => {
                answer.send(Err(error)).unwrap_or_default();
                return;
            }
        };
        let started = match command {
            Admin::CreateVolume { name, size_bytes } => {
                self.pool
                    .create_volume(now, &name, Uuid::new_v4(), size_bytes, ticket)
            }
            Admin::ResizeVolume { name, size_bytes } => {
                self.pool.resize_volume(now, &name, size_bytes, ticket)
            }
            Admin::DeleteVolume { name } => self.pool.delete_volume(now, &name, ticket),
            Admin::Rename { name } => self.pool.rename(now, &name, ticket),
            Admin::RenameVolume { name, new } => self.pool.rename_volume(now, &name, &new, ticket),
            Admin::RemoveSpare { seat } => self.pool.remove_spare(now, seat, ticket),
            Admin::RemoveDrive { seat } => self.pool.remove_drive(now, seat, ticket),
            Admin::KeepDrive { seat } => self.pool.keep_drive(now, seat, ticket),
            Admin::ClearDrive { seat } => {
                if let Some(drive) = self.seats.drive(seat) {
                    drive.telemetry.forget_errors();
                }
                self.pool.clear_drive(now, seat, ticket)
            }
            Admin::FailDrive {
                seat,
                reason,
                force,
            } => self.pool.fail_drive(now, seat, reason, force, ticket),
            Admin::InsertDrive { seat, drive } => {
                let admitted = self.pool.check_new_drive(&new_drive(&drive));
                admitted.and_then(|()| {
                    self.seat_drive(seat, drive, |pool, facts| {
                        pool.insert_drive(now, seat, facts, ticket)
                    })
                })
            }
            Admin::ReturnDrive { seat, drive, proof } => {
                self.seat_drive(seat, drive, |pool, facts| {
                    pool.return_drive(now, seat, facts, proof.as_deref(), ticket)
                })
            }
            Admin::AddSpare { drive } => {
                self.seat_behind(drive, |pool, facts| pool.add_spare(now, facts, ticket))
            }
            Admin::ReplaceDrive { seat, drive } => self.seat_behind(drive, |pool, facts| {
                pool.replace_drive(now, seat, facts, ticket)
            }),
            Admin::Expand { drives, waiting } => self.seats_behind(drives, |pool, facts| {
                pool.expand(now, facts, &waiting, ticket)
            }),
            Admin::PauseRebuild { paused } => {
                self.pool.pause_fills(now, paused);
                answer.send(Ok(())).unwrap_or_default();
                return;
            }
            Admin::Steer(change) => self.pool.steer(now, change, ticket),
            Admin::Scrub => self.pool.scrub(now, ticket),
            Admin::PauseScrub { paused } => {
                self.pool.pause_scrub(now, paused);
                answer.send(Ok(())).unwrap_or_default();
                return;
            }
            Admin::PlanScrub { every_days } => self.pool.plan_scrub(now, every_days, ticket),
            Admin::ElasticShare { share } => self.pool.set_elastic_share(now, share, ticket),
            Admin::Close => {
                self.pool.close(now, ticket);
                Ok(())
            }
        };
        match started {
            Ok(()) => {
                self.answers.insert(ticket, answer);
            }
            Err(error) => answer.send(Err(self.in_numbers(error))).unwrap_or_default(),
        }
    }

    /// The seat that the drive of this number has now.
    fn seat_of(&self, number: Seat) -> Result<Seat, PoolError> {
        let facts = self.pool.facts();
        facts.seat_numbered(number.0).ok_or_else(|| {
            let numbers = facts.seats().map(|(seat, _)| facts.number(seat));
            PoolError::NoSeat {
                seat: number,
                last: numbers.max().unwrap_or(0),
            }
        })
    }

    fn plan_expand(&self, drives: &[NewDrive], waiting: &[Seat]) -> Result<ExpandPlan, PoolError> {
        let seats = waiting.iter().map(|&number| self.seat_of(number));
        let seats = seats.collect::<Result<Vec<Seat>, _>>()?;
        for drive in drives {
            self.pool.check_new_drive(drive)?;
        }
        ExpandPlan::new(&self.pool, drives, &seats).map_err(|error| self.in_numbers(error))
    }

    /// An error with drive numbers in place of seats.
    fn in_numbers(&self, error: PoolError) -> PoolError {
        let facts = self.pool.facts();
        error.renumbered(|seat| Seat(facts.number(seat)))
    }

    fn drive(&self, seat: Seat) -> Result<Drive, PoolError> {
        let last = self.pool.facts().seats.len().saturating_sub(1);
        let last = u16::try_from(last).unwrap_or(u16::MAX);
        let there = self.pool.facts().seat_numbered(seat.0);
        let drive = there.and_then(|seat| self.seats.drive(seat).cloned());
        drive.ok_or(PoolError::NoSeat { seat, last })
    }

    /// Attaches a drive to a seat, and informs the pool by `tell`.
    fn seat_drive(
        &mut self,
        seat: Seat,
        drive: Drive,
        tell: impl FnOnce(&mut Pool, NewDrive) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let operations = drive.telemetry.snapshot().in_flight;
        if operations > 0 {
            return Err(PoolError::StillBusy { seat, operations });
        }
        // Lanes must not get the new drive while they still use the seat.
        self.pool.check_free(seat, drive.size_bytes)?;
        let old = self.seats.drive(seat).cloned();
        let facts = new_drive(&drive);
        self.seats.set(seat, Some(drive));
        self.tell_seats();
        let started = tell(&mut self.pool, facts);
        if started.is_err() {
            self.seats.set(seat, old);
            self.tell_seats();
        }
        // The seat has another drive now.
        self.names = Names::new(self.pool.facts());
        started
    }

    /// Attaches a drive to the seat behind the last one.
    fn seat_behind(
        &mut self,
        drive: Drive,
        tell: impl FnOnce(&mut Pool, NewDrive) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        self.seats_behind(vec![drive], |pool, mut facts| tell(pool, facts.remove(0)))
    }

    /// Attaches drives to the seats behind the last one, in their order.
    fn seats_behind(
        &mut self,
        drives: Vec<Drive>,
        tell: impl FnOnce(&mut Pool, Vec<NewDrive>) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let facts: Vec<NewDrive> = drives.iter().map(new_drive).collect();
        for drive in &facts {
            self.pool.check_new_drive(drive)?;
        }
        let first = u16::try_from(self.pool.facts().seats.len()).unwrap_or(u16::MAX);
        let seats = || (first..=u16::MAX).map(Seat).take(facts.len());
        for (seat, drive) in seats().zip(drives) {
            self.seats.set(seat, Some(drive));
        }
        self.tell_seats();
        let begun = tell(&mut self.pool, facts.clone());
        if begun.is_err() {
            for seat in seats() {
                self.seats.set(seat, None);
            }
            self.tell_seats();
        }
        begun
    }

    /// A successor takes the seat of the drive that it replaces. The replaced drive is closed when it has ended its
    /// operations.
    fn succeed(&mut self, seat: Seat, with: Seat, commands: Vec<Command>) {
        self.seats.swap(seat, with);
        self.seats.set(with, None);
        self.sampler.seats_changed(&self.seats);
        let seats = Arc::new(self.seats.clone());
        let mut by_thread: BTreeMap<u16, (LaneSender, Vec<(u16, Command)>)> = BTreeMap::new();
        for (lane, command) in self.lanes.iter().zip(commands) {
            let told = by_thread.entry(lane.thread());
            let told = told.or_insert_with(|| (lane.clone(), Vec::new()));
            told.1.push((lane.lane(), command));
        }
        for (sender, commands) in by_thread.into_values() {
            sender.send(LaneMessage::SeatsAnd(Arc::clone(&seats), commands));
        }
    }

    /// The samples of drives that have left their seats meanwhile do not count.
    fn sampled(&mut self, taken_at: Instant, samples: &[Sample]) {
        let now = self.clock.now();
        let of_seats = self.seats.iter().map(|(seat, drive)| {
            let own = Arc::downgrade(&drive.device);
            let sample = { samples.iter() }.find(|sample| sample.device.ptr_eq(&own));
            (seat, sample.and_then(|sample| sample.usage))
        });
        let of_seats: Vec<_> = of_seats.collect();
        self.pool.handle_usage(now, taken_at, &of_seats);
    }

    fn tell_seats(&self) {
        self.sampler.seats_changed(&self.seats);
        let seats = Arc::new(self.seats.clone());
        for lane in &*self.lanes {
            lane.send(LaneMessage::Seats(Arc::clone(&seats)));
        }
    }

    fn poll(&mut self) {
        self.share_drives();
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably {
                    id,
                    seat,
                    offset,
                    bytes,
                } => self.write(id, seat, offset, &bytes),
                PoolAction::Lane(lane, command) => {
                    self.lanes[usize::from(lane)].send(LaneMessage::Command { lane, command });
                }
                PoolAction::Swap(a, b) => {
                    self.seats.swap(a, b);
                    self.tell_seats();
                    self.names = Names::new(self.pool.facts());
                }
                PoolAction::Succeed(seat, with, commands) => {
                    self.succeed(seat, with, commands);
                    self.names = Names::new(self.pool.facts());
                }
                PoolAction::Vacate(seat) => {
                    self.seats.set(seat, None);
                    self.tell_seats();
                }
                PoolAction::Release(seat) => {
                    let drive = self.seats.drive(seat).cloned();
                    self.seats.set(seat, None);
                    self.tell_seats();
                    drive.into_iter().for_each(release);
                }
                PoolAction::VolumesChanged => self.change_volumes(),
                PoolAction::Done(ticket, outcome) => {
                    if let Some(answer) = self.answers.remove(&ticket) {
                        let outcome = outcome.map_err(|error| self.in_numbers(error));
                        answer.send(outcome).unwrap_or_default();
                    }
                }
                PoolAction::Report(report) => self.log(&report),
                PoolAction::SampleUsage => self.sampler.sample_now(),
            }
        }
        self.names = Names::new(self.pool.facts());
    }

    fn write(&mut self, id: IoId, seat: Seat, offset: u64, bytes: &[u8]) {
        if !self.lease.may_go_on() {
            // No command waits for this write any more.
            return;
        }
        let drive = self.seats.drive(seat).cloned();
        self.writes.insert(id, drive.clone());
        match drive {
            Some(drive) => {
                let memory = Memory::from_bytes(bytes);
                let slot = LABEL_OFFSETS.iter().position(|&of| of == offset);
                let copies = label_copies(drive.size_bytes, self.pool.facts().used_bytes());
                if let (Some(slot), Some(copies)) = (slot, copies) {
                    let copy = (copies[slot], memory.clone());
                    self.label_copies.insert(id, copy);
                }
                self.submit_write(&drive, id, offset, memory);
            }
            None => self.flush_sink.completed(id.0, Err(Fault::Gone)),
        }
    }

    fn submit_write(&self, drive: &Drive, id: IoId, offset: u64, memory: Memory) {
        let request = Request {
            kind: RequestKind::Write,
            offset,
            length: memory.len() as u64,
            fua: false,
        };
        drive.device.submit(request, memory, id.0, &self.write_sink);
    }

    /// Gives the drives in use to the thread that renews the lease.
    fn share_drives(&self) {
        let facts = self.pool.facts();
        let takes_part = |seat: Seat| {
            let facts = facts.seats.get(seat.index());
            facts.is_some_and(|facts| facts.state.takes_part() || facts.is_successor())
        };
        let drives = in_use(&self.seats, takes_part);
        *self.in_use.lock().unwrap_or_else(PoisonError::into_inner) = drives;
    }

    fn change_volumes(&self) {
        let geometry = self.pool.geometry();
        // A full stripe, if clients can use its size: NBD has powers of two, and the longest request bounds them.
        let stripe_bytes = geometry.stripe_data_bytes();
        let usable = stripe_bytes.is_power_of_two() && stripe_bytes <= PREFERRED_BYTES_MAX;
        let preferred = match usable {
            true => stripe_bytes,
            false => geometry.chunk_bytes(),
        };
        let preferred = u32::try_from(preferred).unwrap_or(u32::MAX);
        let mut volumes = self.volumes.write().expect("no holder of the lock panics");
        let facts = &self.pool.facts().volumes;
        volumes.retain(|name, volume| {
            let stays = facts.iter().any(|facts| facts.name == *name);
            if !stays {
                volume.close();
            }
            stays
        });
        for facts in facts {
            let map = VolumeMap::new(geometry, facts);
            if let Some(volume) = volumes.get(&facts.name) {
                volume.remap(map);
            } else {
                let lanes = Arc::clone(&self.lanes);
                let identity = (facts.name.clone(), facts.uuid);
                let volume = Volume::new(identity, map, lanes, self.clock, preferred);
                volumes.insert(facts.name.clone(), Arc::new(volume));
            }
        }
    }

    fn log(&mut self, report: &Report) {
        let report = self.names.renumbered(self.pool.facts(), report.clone());
        for report in self.gather.push(self.clock.now(), report) {
            self.add_event(&report);
        }
    }

    fn add_event(&mut self, report: &Report) {
        let facts = self.pool.facts();
        let path = report
            .seat()
            .and_then(|number| self.names.path(facts, number));
        let event = self.events.add(report, path);
        let (pool, text) = (&facts.name, &event.text);
        match report.severity() {
            Severity::Info => tracing::info!(%pool, "{text}"),
            Severity::Warning => tracing::warn!(%pool, "{text}"),
            Severity::Error => tracing::error!(%pool, "{text}"),
        }
        for listener in &self.listeners {
            listener(&event);
        }
    }
}

/// A drive that was removed from the layout gives up its label. Whatever it answers, nothing waits for that.
fn release(drive: Drive) {
    let spawned = std::thread::Builder::new()
        .name("release".to_owned())
        .spawn(move || match assemble::give_up(&drive) {
            Ok(()) => tracing::info!(drive = %drive.uri, "removed, and its label is wiped"),
            Err(error) => {
                tracing::warn!(drive = %drive.uri, %error, "removed, and its label stays");
            }
        });
    if let Err(error) = spawned {
        tracing::warn!(%error, "a drive was removed, and its label stays");
    }
}
