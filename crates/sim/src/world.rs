//! A pool, its lanes, its drives, and one queue of things that will happen.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use array::pool::{
    Blueprint, FoundDrive, NewDrive, OpenError, OutReason, Pool, PoolAction, PoolError, Report,
    Ticket,
};
use array::router::VolumeMap;
use array::{Action, Array, Command, Compute, Io, IoId, RequestId, format};
use block::{Fault, Instant, Outcome, Request, RequestKind, Seat};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

use crate::drive::{Drive, Pace};
use crate::replay::perform;
use crate::scratch::Scratch;

/// How a world is made.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Scheme string.
    pub scheme: String,
    /// Drives of the layout.
    pub drives: u16,
    /// Drives that wait as spares.
    pub spares: u16,
    /// Size of each.
    pub drive_bytes: u64,
    /// `-o chunk=`.
    pub chunk_bytes: u64,
    /// `-o cell=`.
    pub cell_bytes: u64,
    /// Pace of each drive.
    pub pace: Pace,
    /// Decides all latencies.
    pub seed: u64,
}

#[derive(Debug)]
enum Happening {
    /// An operation on the drive that sat in the seat when it was asked for.
    LaneIo(u16, Option<usize>, Io),
    LaneCompute(u16, Compute),
    PoolWrite {
        id: IoId,
        drive: Option<usize>,
        offset: u64,
        bytes: Vec<u8>,
    },
    ToLane(u16, Command),
    /// For a lane, two drives change places.
    Swap(u16, Seat, Seat),
    ToPool(array::Event),
}

#[derive(Debug)]
struct ClientRequest {
    parts: usize,
    outcome: Outcome,
}

/// A simulated pool.
pub struct World {
    pool: Pool,
    lanes: Vec<Array>,
    scratch: Vec<Scratch>,
    /// All drives there are, also those that have left their seat.
    drives: Vec<Drive>,
    /// Which of them sits where, as the pool sees it.
    seats: BTreeMap<Seat, usize>,
    /// The same as each lane sees it: it hears of changes in order with the pool's commands.
    lane_seats: Vec<BTreeMap<Seat, usize>>,
    now: Instant,
    queue: BTreeMap<(Instant, u64), Happening>,
    sequence: u64,
    rng: ChaCha8Rng,
    volumes: BTreeMap<String, VolumeMap>,
    next_request: u64,
    requests: BTreeMap<u64, ClientRequest>,
    /// Lane request to client request and place in its buffer.
    parts: BTreeMap<(u16, RequestId), (u64, usize)>,
    returned: BTreeMap<u64, Vec<(usize, Vec<u8>)>>,
    tickets: BTreeMap<Ticket, Option<Result<(), PoolError>>>,
    next_ticket: u64,
    /// Everything that the pool reported.
    pub reports: Vec<Report>,
}

impl World {
    /// Creates a pool on fresh drives.
    ///
    /// # Panics
    /// When the options do not make a pool: tests state what must work.
    #[must_use]
    pub fn create(options: &WorldOptions) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(options.seed);
        let new_drive = |uuid, index: u16| NewDrive {
            uuid,
            path: format!("sim:{index}"),
            size_bytes: options.drive_bytes,
            domain: None,
        };
        let total = options.drives + options.spares;
        let mut all: Vec<NewDrive> = (0..total)
            .map(|index| new_drive(random_uuid(&mut rng), index))
            .collect();
        let spares = all.split_off(usize::from(options.drives));
        let blueprint = Blueprint {
            name: "sim".to_owned(),
            uuid: random_uuid(&mut rng),
            scheme: options.scheme.parse().expect("a scheme"),
            chunk_bytes: Some(options.chunk_bytes),
            cell_bytes: Some(options.cell_bytes),
            journal: true,
            drives: all,
            spares,
        };
        let pool = array::pool::create(&blueprint, Ticket(0)).expect("a pool");
        let drives = (0..total)
            .map(|_| Drive::new(options.drive_bytes, options.pace))
            .collect();
        let seats = (0..total)
            .map(|seat| (Seat(seat), usize::from(seat)))
            .collect();
        let mut world = Self::around(pool, drives, seats, rng);
        world
            .await_ticket(Ticket(0))
            .expect("a new pool is written");
        world
    }

    fn around(
        pool: Pool,
        drives: Vec<Drive>,
        seats: BTreeMap<Seat, usize>,
        rng: ChaCha8Rng,
    ) -> Self {
        let geometry = Arc::clone(pool.geometry());
        let lanes: Vec<Array> = (0..geometry.lanes())
            .map(|lane| Array::new(Arc::clone(&geometry), lane))
            .collect();
        let mut world = Self {
            scratch: lanes.iter().map(|_| Scratch::default()).collect(),
            pool,
            lanes,
            drives,
            lane_seats: vec![seats.clone(); usize::from(geometry.lanes())],
            seats,
            now: Instant::ZERO,
            queue: BTreeMap::new(),
            sequence: 0,
            rng,
            volumes: BTreeMap::new(),
            next_request: 0,
            requests: BTreeMap::new(),
            parts: BTreeMap::new(),
            returned: BTreeMap::new(),
            tickets: BTreeMap::from([(Ticket(0), None)]),
            next_ticket: 1,
            reports: Vec::new(),
        };
        world.poll_pool();
        world
    }

    /// Stops everything at this instant, as `kill -9` does: what is in flight is gone, what the
    /// drives have, they keep.
    #[must_use]
    pub fn kill(self) -> Vec<Drive> {
        self.drives
    }

    /// Opens the pool that is on `drives`.
    ///
    /// # Errors
    /// As [`array::pool::open`].
    pub fn open(mut drives: Vec<Drive>, degraded: bool, seed: u64) -> Result<Self, OpenError> {
        let mut found = Vec::new();
        let mut places = Vec::new();
        for (index, drive) in drives.iter_mut().enumerate() {
            let slots = format::LABEL_OFFSETS.map(|offset| {
                let mut bytes = vec![0; format::LABEL_SLOT_BYTES];
                drive.read(offset, &mut bytes).map(|()| bytes)
            });
            let [Ok(first), Ok(second)] = slots else {
                continue;
            };
            if let Ok((label_slot, label)) = format::newest_label([&first, &second]) {
                found.push(FoundDrive {
                    path: format!("sim:{index}"),
                    label,
                    label_slot,
                    size_bytes: drive.size_bytes(),
                });
                places.push(index);
            }
        }
        let opening = array::pool::open(&found, degraded)?;
        let seated = opening.seated().clone();
        let facts = opening.facts().clone();
        let mut tables = BTreeMap::new();
        let mut slots = BTreeMap::new();
        let mut in_seats = BTreeMap::new();
        for (&seat, &at) in &seated {
            let drive = &mut drives[places[at]];
            let mut pages = Vec::new();
            for first_row in (0..facts.rows).step_by(252) {
                let mut empty = format::CellPage::empty(first_row);
                let copies = [0, 1].map(|sequence| {
                    empty.sequence = sequence;
                    let mut bytes = vec![0; 4096];
                    drive
                        .read(facts.cell_table_offset + empty.offset(), &mut bytes)
                        .expect("a seated drive answers");
                    bytes
                });
                pages.push(format::CellPage::newest(
                    [&copies[0], &copies[1]],
                    found[at].label.drive,
                    first_row,
                ));
            }
            tables.insert(seat, pages);
            slots.insert(seat, found[at].label_slot);
            in_seats.insert(seat, places[at]);
        }
        let pool = opening.finish(tables, &slots, Ticket(0))?;
        let mut world = Self::around(pool, drives, in_seats, ChaCha8Rng::seed_from_u64(seed));
        world
            .await_ticket(Ticket(0))
            .expect("an opened pool is written");
        Ok(world)
    }

    /// The pool.
    #[must_use]
    pub const fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Now.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    /// A seat's drive.
    ///
    /// # Panics
    /// When there is none.
    pub fn drive(&mut self, seat: Seat) -> &mut Drive {
        &mut self.drives[self.seats[&seat]]
    }

    /// The generator that decides latencies, for a test's own choices.
    pub const fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }

    // --- administrator -----------------------------------------------------------------------

    fn ticket(&mut self) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.tickets.insert(ticket, None);
        ticket
    }

    fn await_ticket(&mut self, ticket: Ticket) -> Result<(), PoolError> {
        loop {
            if let Some(Some(_)) = self.tickets.get(&ticket) {
                return self.tickets.remove(&ticket).flatten().expect("just seen");
            }
            assert!(self.step(), "{ticket:?} ends before everything is quiet");
        }
    }

    fn command(
        &mut self,
        act: impl FnOnce(&mut Pool, Instant, Ticket) -> Result<(), PoolError>,
    ) -> Result<(), PoolError> {
        let ticket = self.ticket();
        let started = act(&mut self.pool, self.now, ticket);
        self.poll_pool();
        started?;
        self.await_ticket(ticket)
    }

    /// Creates a volume.
    ///
    /// # Errors
    /// As [`Pool::create_volume`].
    pub fn create_volume(&mut self, name: &str, size_bytes: u64) -> Result<(), PoolError> {
        let uuid = random_uuid(&mut self.rng);
        self.command(|pool, now, ticket| pool.create_volume(now, name, uuid, size_bytes, ticket))
    }

    /// Fails a drive by command; returns when that is durable.
    ///
    /// # Errors
    /// As [`Pool::fail_drive`].
    pub fn fail_drive(&mut self, seat: Seat, force: bool) -> Result<(), PoolError> {
        self.command(|pool, now, ticket| {
            pool.fail_drive(now, seat, OutReason::Failed, force, ticket)
        })
    }

    /// Puts a fresh drive into an empty seat.
    ///
    /// # Errors
    /// As [`Pool::insert_drive`].
    pub fn replace_drive(&mut self, seat: Seat, drive: Drive) -> Result<(), PoolError> {
        let uuid = random_uuid(&mut self.rng);
        let size_bytes = drive.size_bytes();
        for seats in self.lane_seats.iter_mut().chain([&mut self.seats]) {
            seats.insert(seat, self.drives.len());
        }
        self.drives.push(drive);
        self.command(|pool, now, ticket| {
            pool.insert_drive(now, seat, (uuid, "sim:new".to_owned(), size_bytes), ticket)
        })
    }

    /// Pulls a drive: from now on it answers nothing.
    pub fn pull(&mut self, seat: Seat) {
        self.drive(seat).pull();
    }

    /// Closes the pool cleanly.
    ///
    /// # Errors
    /// As the pool says.
    pub fn close(mut self) -> Result<Vec<Drive>, PoolError> {
        self.settle();
        self.command(|pool, now, ticket| {
            pool.close(now, ticket);
            Ok(())
        })?;
        self.settle();
        Ok(self.kill())
    }

    /// Runs until nothing is left to happen.
    ///
    /// # Panics
    /// When then something is still waiting: that is a hang.
    pub fn settle(&mut self) {
        while self.step() {}
        for (index, lane) in self.lanes.iter().enumerate() {
            assert!(lane.is_idle(), "lane {index} hangs: {lane:#?}");
            assert!(self.scratch[index].is_idle(), "lane {index} keeps memory");
        }
        assert!(self.pool.is_idle(), "the pool hangs: {:#?}", self.pool);
    }

    // --- client ------------------------------------------------------------------------------

    /// Starts a request; its bytes (for a write) or length come with it.
    ///
    /// # Panics
    /// When there is no such volume or the request is outside.
    pub fn submit(&mut self, volume: &str, request: Request, bytes: &[u8]) -> u64 {
        let id = self.next_request;
        self.next_request += 1;
        let parts: Vec<_> = if request.kind == RequestKind::Flush {
            (0..self.lanes.len())
                .map(|lane| array::router::Part {
                    lane: u16::try_from(lane).expect("few lanes"),
                    request: array::GroupRequest {
                        group: lane as u64,
                        request,
                        buffer_offset: 0,
                    },
                })
                .collect()
        } else {
            self.volumes[volume].split(&request)
        };
        let outcome = Ok(());
        self.requests.insert(
            id,
            ClientRequest {
                parts: parts.len(),
                outcome,
            },
        );
        self.returned.insert(id, Vec::new());
        for (index, mut part) in parts.into_iter().enumerate() {
            let lane_request = RequestId((id << 16) | index as u64);
            let at = usize::try_from(part.request.buffer_offset).expect("fits");
            let length = usize::try_from(part.request.request.length).expect("fits");
            let buffer = match request.kind {
                RequestKind::Write => bytes[at..at + length].to_vec(),
                RequestKind::Read => vec![0xee; length],
                _ => Vec::new(),
            };
            part.request.buffer_offset = 0;
            self.parts.insert((part.lane, lane_request), (id, at));
            let lane = usize::from(part.lane);
            self.scratch[lane].lend(lane_request, buffer);
            self.lanes[lane].handle_request(self.now, lane_request, part.request);
            self.poll_lane(part.lane);
        }
        id
    }

    /// Whether a request has ended, and how; for a read, with its bytes.
    pub fn ended(&mut self, id: u64) -> Option<Result<Vec<u8>, Fault>> {
        if self.requests[&id].parts > 0 {
            return None;
        }
        let request = self.requests.remove(&id)?;
        let mut pieces = self.returned.remove(&id).unwrap_or_default();
        pieces.sort_by_key(|&(at, _)| at);
        let bytes = pieces.into_iter().flat_map(|(_, bytes)| bytes).collect();
        Some(request.outcome.map(|()| bytes))
    }

    /// Submits a request and runs until it has ended.
    ///
    /// # Errors
    /// What the client is told.
    ///
    /// # Panics
    /// When it never ends.
    pub fn request(
        &mut self,
        volume: &str,
        request: Request,
        bytes: &[u8],
    ) -> Result<Vec<u8>, Fault> {
        let id = self.submit(volume, request, bytes);
        loop {
            if let Some(end) = self.ended(id) {
                return end;
            }
            assert!(self.step(), "the request ends before everything is quiet");
        }
    }

    /// Writes.
    ///
    /// # Errors
    /// What the client is told.
    pub fn write(&mut self, volume: &str, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let request = Request {
            kind: RequestKind::Write,
            offset,
            length: bytes.len() as u64,
            fua: false,
        };
        self.request(volume, request, bytes).map(drop)
    }

    /// Reads.
    ///
    /// # Errors
    /// What the client is told.
    pub fn read(&mut self, volume: &str, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        self.request(volume, request, &[])
    }

    // --- the queue ---------------------------------------------------------------------------

    fn push(&mut self, at: Instant, happening: Happening) {
        self.sequence += 1;
        self.queue.insert((at, self.sequence), happening);
    }

    fn serve(&mut self, drive: Option<usize>, bytes: u64) -> Instant {
        drive.map_or(self.now, |drive| self.drives[drive].serve(self.now, bytes))
    }

    /// A latency that makes any two operations in flight end in either order.
    fn jitter(&mut self) -> Duration {
        Duration::from_nanos(self.rng.random_range(1_000..200_000))
    }

    /// Lets the next thing happen; false if there is none.
    pub fn step(&mut self) -> bool {
        let due = self.lanes.iter().zip(0..);
        let due = due.filter_map(|(lane, index)| Some((lane.poll_timeout()?, index)));
        if let Some((at, lane)) = due.min()
            && self
                .queue
                .first_key_value()
                .is_none_or(|(&(next, _), _)| at <= next)
        {
            self.now = self.now.max(at);
            self.lanes[usize::from(lane)].handle_timeout(self.now);
            self.poll_lane(lane);
            return true;
        }
        let Some(((at, _), happening)) = self.queue.pop_first() else {
            return false;
        };
        self.now = at;
        match happening {
            Happening::LaneIo(lane, drive, io) => {
                let index = usize::from(lane);
                let outcome = match drive.map(|drive| &mut self.drives[drive]) {
                    Some(drive) => perform(drive, &io, &mut self.scratch[index]),
                    None => Err(Fault::Gone),
                };
                self.lanes[index].handle_completion(at, io.id, outcome);
                self.poll_lane(lane);
            }
            Happening::LaneCompute(lane, compute) => {
                let index = usize::from(lane);
                let computed = self.scratch[index].compute(&compute);
                self.lanes[index].handle_computed(at, compute.id, computed);
                self.poll_lane(lane);
            }
            Happening::PoolWrite {
                id,
                drive,
                offset,
                bytes,
            } => {
                let outcome = match drive.map(|drive| &mut self.drives[drive]) {
                    Some(drive) => drive.write(offset, &bytes).and_then(|()| drive.flush()),
                    None => Err(Fault::Gone),
                };
                self.pool.handle_completion(at, id, outcome);
                self.poll_pool();
            }
            Happening::ToLane(lane, command) => {
                self.lanes[usize::from(lane)]
                    .handle_command(at, command)
                    .expect("the pool knows the lanes' groups");
                self.poll_lane(lane);
            }
            Happening::Swap(lane, a, b) => swap(&mut self.lane_seats[usize::from(lane)], a, b),
            Happening::ToPool(event) => {
                self.pool.handle_event(at, &event);
                self.poll_pool();
            }
        }
        true
    }

    fn poll_lane(&mut self, lane: u16) {
        let index = usize::from(lane);
        while let Some(action) = self.lanes[index].poll_action() {
            if self.scratch[index].carry_out(&action) {
                continue;
            }
            match action {
                Action::Io(io) => {
                    let drive = self.lane_seats[index].get(&io.seat).copied();
                    let served = self.serve(drive, io.length);
                    let at = served + self.jitter();
                    self.push(at, Happening::LaneIo(lane, drive, io));
                }
                Action::Compute(compute) => {
                    let at = self.now + Duration::from_nanos(100);
                    self.push(at, Happening::LaneCompute(lane, compute));
                }
                Action::Reply(reply) => {
                    let bytes = self.scratch[index].take_back(reply.request);
                    let (id, at) = self.parts.remove(&(lane, reply.request)).expect("sent");
                    let request = self.requests.get_mut(&id).expect("in flight");
                    request.parts -= 1;
                    request.outcome = request.outcome.and(reply.outcome);
                    self.returned.entry(id).or_default().push((at, bytes));
                }
                Action::Allocate(..) | Action::Release(_) => unreachable!("memory is done"),
            }
        }
        while let Some(event) = self.lanes[index].poll_event() {
            let at = self.now + Duration::from_nanos(200);
            self.push(at, Happening::ToPool(event));
        }
    }

    fn poll_pool(&mut self) {
        while let Some(action) = self.pool.poll_action() {
            match action {
                PoolAction::WriteDurably {
                    id,
                    seat,
                    offset,
                    bytes,
                } => {
                    let drive = self.seats.get(&seat).copied();
                    let served = self.serve(drive, bytes.len() as u64);
                    let at = served + self.jitter();
                    self.push(
                        at,
                        Happening::PoolWrite {
                            id,
                            drive,
                            offset,
                            bytes,
                        },
                    );
                }
                // In order per lane: the same delay for all, ties by sequence.
                PoolAction::Lane(lane, command) => {
                    let at = self.now + Duration::from_nanos(200);
                    self.push(at, Happening::ToLane(lane, command));
                }
                PoolAction::Swap(a, b) => {
                    swap(&mut self.seats, a, b);
                    let at = self.now + Duration::from_nanos(200);
                    for lane in 0..self.pool.geometry().lanes() {
                        self.push(at, Happening::Swap(lane, a, b));
                    }
                }
                PoolAction::VolumesChanged => {
                    let geometry = self.pool.geometry();
                    self.volumes = self
                        .pool
                        .facts()
                        .volumes
                        .iter()
                        .map(|volume| (volume.name.clone(), VolumeMap::new(geometry, volume)))
                        .collect();
                }
                PoolAction::Done(ticket, outcome) => {
                    self.tickets.insert(ticket, Some(outcome));
                }
                PoolAction::Report(report) => self.reports.push(report),
            }
        }
    }
}

fn swap(seats: &mut BTreeMap<Seat, usize>, a: Seat, b: Seat) {
    let (one, other) = (seats.remove(&a), seats.remove(&b));
    seats.extend(one.map(|drive| (b, drive)));
    seats.extend(other.map(|drive| (a, drive)));
}

fn random_uuid(rng: &mut ChaCha8Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}
