//! A thread that runs some of a pool's lanes.

use std::collections::VecDeque;
use std::mem::take;
use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;
use std::time::Duration;

use array::record::{Input, Output, Record};
use array::{
    Action, BufferId, Command, Geometry, GroupRequest, Io, IoId, IoKind, Joined, Origin, RequestId,
    Service, Slice,
};
use block::{
    Completed, Fault, Instant, Memory, Outcome, Permission, Region, Request, RequestKind, Seat,
    Submission,
};
use erasure::kernel;

use super::admission::{Kind, LOOK, RECORD_BYTES_MAX, Waiter};
use super::compute::{Computer, Patch};
use super::extents::{Question, Turn};
use super::hash::NameMap;
use super::held::{Held, PIECES, Released};
use super::lease::Lease;
use super::long_writes::LongWrites;
use super::meter::Counted;
use super::pool::PoolMessage;
use super::queue::Queue;
use super::scratch::{Named, Spare};
use super::{Clock, Seats};
use crate::ring::LocalRing;

/// Receives the end of a lane's part of a request.
pub(crate) trait PartEnded: Send + Sync {
    /// Called once per part, after the lane has dropped all memory of the request. The call for the last part returns
    /// the answer: the lane hands out many answers at once.
    fn part_ended(&self, outcome: Outcome) -> Option<Answer>;

    /// Called before `part_ended` if some bytes of a read are in a bounce buffer: a late drive may still write to the
    /// request's own memory.
    fn part_is_elsewhere(&self, _memory: &Memory, _patches: Vec<Patch>) {
        unreachable!("whoever reads says what to do with bytes that are elsewhere");
    }
}

/// The end of a client's request.
pub(crate) struct Answer {
    pub(crate) to: Arc<dyn Completed>,
    pub(crate) token: u64,
    pub(crate) outcome: Outcome,
    /// The request's counters.
    pub(crate) counted: Counted,
    /// The bytes of a read, if they are not in the request's own memory.
    pub(crate) elsewhere: Option<Memory>,
}

impl Answer {
    /// Delivers the answer to the client.
    pub(crate) fn give(self) {
        match (self.outcome, self.elsewhere) {
            (Ok(()), Some(bytes)) => self.to.completed_elsewhere(self.token, bytes),
            (outcome, _) => self.to.completed(self.token, outcome),
        }
    }
}

/// Messages that a lane's thread takes before it hands out the resulting operations and answers. A guess: enough to
/// save most wakes at depth, few enough to keep answers prompt.
const TURN_MAX: usize = 64;

/// Inputs that are fed to a lane at once. A guess: far more than follow from one message as a rule.
const FOLLOWING_MAX: usize = 10_000;

/// Messages after which drives get the operations that were asked for so far. Measured on four loop devices at depth
/// 32, where drives otherwise wait for the whole turn: 8 is faster than no limit, whether the host gives two CPUs or
/// fewer. 4 is faster still in the one case, and costs a tenth more CPU in the other.
const SUBMIT_EVERY: usize = 8;

/// Requests that a lane thread's ring has in the kernel at once; more wait in memory. As many as for one ring thread:
/// ring threads used to serve all lanes together.
const RING_DEPTH: u32 = 256;

/// A message to a lane's thread.
pub(crate) enum LaneMessage {
    Request {
        lane: u16,
        request: GroupRequest,
        memory: Memory,
        to: Arc<dyn PartEnded>,
    },
    Completion {
        lane: u16,
        id: IoId,
        outcome: Outcome,
    },
    Command {
        lane: u16,
        command: Command,
    },
    /// Asks which bytes of a group are data and which are holes.
    Question(Question),
    Seats(Arc<Seats>),
    /// The same with the commands that go with the change: no operation is submitted in between.
    SeatsAnd(Arc<Seats>, Vec<(u16, Command)>),
    /// Registers memory that many requests will lie in.
    Lend(Region),
    /// Several at once, in order.
    Batch(Vec<Self>),
    /// Hands over the records so far.
    Records {
        lane: u16,
        to: Sender<Vec<Record>>,
    },
    /// A drive may have room for an operation that was held back.
    Room,
    Stop,
}

/// Sends messages to a lane.
#[derive(Clone)]
pub(crate) struct LaneSender {
    lane: u16,
    thread: u16,
    queue: Arc<Queue>,
}

impl LaneSender {
    pub(crate) const fn lane(&self) -> u16 {
        self.lane
    }

    /// Lanes of one thread share a queue: their messages can go together.
    pub(crate) const fn thread(&self) -> u16 {
        self.thread
    }

    /// Sends a message. A lane that has stopped drops the message; the drop answers any request in it.
    pub(crate) fn send(&self, message: LaneMessage) {
        if self.queue.send(message).is_err() {
            tracing::debug!(lane = self.lane, "message to a stopped lane");
        }
    }
}

/// Bits of a token below the lane's number: a lane that starts a million operations a second has enough
/// for nine years.
const ID_BITS: u32 = 48;

/// The token with which a drive answers an operation of one of a thread's lanes.
pub(super) fn token(lane: u16, id: IoId) -> u64 {
    debug_assert!(id.0 >> ID_BITS == 0, "lanes count from 1");
    u64::from(lane) << ID_BITS | id.0
}

/// The lane and the operation of a token.
pub(super) fn operation(token: u64) -> (u16, IoId) {
    let lane = u16::try_from(token >> ID_BITS).expect("16 bits are left");
    (lane, IoId(token & ((1 << ID_BITS) - 1)))
}

fn completion(token: u64, outcome: Outcome) -> LaneMessage {
    let (lane, id) = operation(token);
    LaneMessage::Completion { lane, id, outcome }
}

/// Passes drives' completions to the thread of the lanes that submitted the operations.
struct Sink {
    queue: Arc<Queue>,
    lease: Arc<Lease>,
}

impl Sink {
    fn send(&self, message: LaneMessage) {
        if self.queue.send(message).is_err() {
            tracing::debug!("a drive's answer to a stopped lane");
        }
    }
}

impl Completed for Sink {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.send(completion(token, outcome));
    }

    fn permission(&self) -> Permission {
        self.lease.permission()
    }

    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        let all = outcomes.iter().copied();
        let messages = all.map(|(token, outcome)| completion(token, outcome));
        self.send(LaneMessage::Batch(messages.collect()));
    }
}

struct InFlight {
    memory: Memory,
    to: Arc<dyn PartEnded>,
}

/// One lane and the memory behind its buffer names.
struct Lane {
    name: u16,
    array: array::Lane,
    scratch: Named,
    requests: NameMap<RequestId, InFlight>,
    next_request: u64,
    records: Option<Vec<Record>>,
}

/// A thread's lanes.
struct LaneThread {
    /// Every n-th lane of the pool, from the thread's own number on, where n is the number of threads.
    lanes: Vec<Lane>,
    /// The index of each lane of the pool in its thread: a division for every message is expensive.
    places: Vec<usize>,
    thread: u16,
    sink: Arc<dyn Completed>,
    /// The time of the current input, as the lanes see it.
    now: Instant,
    spare: Spare,
    seats: Arc<Seats>,
    pool: Sender<PoolMessage>,
    clock: Clock,
    computer: Computer,
    /// Drive operations asked for in this turn, by seat.
    outgoing: Vec<Vec<Submission>>,
    /// Requests that have ended in this turn.
    answers: Vec<Answer>,
    lease: Arc<Lease>,
    /// Inputs for a lane: empty between two messages.
    inputs: VecDeque<Input>,
    /// Inputs that are left for the next turn, each with its lane.
    left: VecDeque<(u16, Input)>,
    /// Memory to register with the ring.
    lent: Vec<Region>,
    /// Operations held back from drives, and the counted ones that drives have.
    held: Held,
    /// Long writes that have not begun.
    long_writes: LongWrites,
    /// Questions that wait for pages.
    questions: Vec<Question>,
    /// Woken when a drive may have room for operations that this thread holds back.
    waiter: Arc<dyn Waiter>,
    stopped: bool,
}

impl Waiter for Queue {
    fn wake(&self) {
        // A thread that has stopped holds nothing back.
        self.send(LaneMessage::Room).ok();
    }
}

/// Closes a thread's queue however the thread ends.
struct CloseAtEnd<'a>(&'a Queue);

impl Drop for CloseAtEnd<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Starts `threads` threads for the geometry's lanes. With `record`, all inputs and outputs of the lanes are kept.
pub(crate) fn start(
    geometry: &Arc<Geometry>,
    threads: u16,
    seats: &Arc<Seats>,
    pool: &Sender<PoolMessage>,
    (clock, lease): (Clock, &Arc<Lease>),
    record: bool,
) -> std::io::Result<(Vec<LaneSender>, Vec<JoinHandle<()>>)> {
    let threads = threads.clamp(1, geometry.lanes());
    let mut senders = Vec::new();
    let mut handles = Vec::new();
    let queues: Vec<Arc<Queue>> = (0..threads).map(|_| Arc::default()).collect();
    for lane in 0..geometry.lanes() {
        senders.push(LaneSender {
            lane,
            thread: lane % threads,
            queue: Arc::clone(&queues[usize::from(lane % threads)]),
        });
    }
    for (index, queue) in queues.into_iter().enumerate() {
        let lanes = senders
            .iter()
            .filter(|sender| usize::from(sender.lane % threads) == index)
            .map(|sender| Lane {
                name: sender.lane,
                array: array::Lane::new(Arc::clone(geometry), sender.lane),
                scratch: Named::default(),
                requests: NameMap::default(),
                next_request: 0,
                records: record.then(Vec::new),
            })
            .collect();
        let thread = LaneThread {
            lanes,
            places: (0..geometry.lanes())
                .map(|lane| usize::from(lane / threads))
                .collect(),
            thread: u16::try_from(index).expect("there are no more threads than lanes"),
            sink: Arc::new(Sink {
                queue: Arc::clone(&queue),
                lease: Arc::clone(lease),
            }),
            now: clock.now(),
            seats: Arc::clone(seats),
            pool: pool.clone(),
            clock,
            spare: Spare::default(),
            computer: Computer::new(kernel::best()),
            outgoing: Vec::new(),
            answers: Vec::new(),
            lease: Arc::clone(lease),
            inputs: VecDeque::new(),
            left: VecDeque::new(),
            lent: Vec::new(),
            held: Held::default(),
            long_writes: LongWrites::default(),
            questions: Vec::new(),
            waiter: Arc::clone(&queue) as Arc<dyn Waiter>,
            stopped: false,
        };
        let handle = std::thread::Builder::new()
            .name(format!("lane-{index}"))
            .spawn(move || thread.run(&queue))?;
        handles.push(handle);
    }
    Ok((senders, handles))
}

impl LaneThread {
    fn run(mut self, queue: &Queue) {
        let _closed_at_the_end = CloseAtEnd(queue);
        queue.adopt();
        // From here on what this thread submits to drives by io_uring goes into this ring.
        let mut ring = LocalRing::install(RING_DEPTH)
            .inspect_err(|error| tracing::debug!("a lane thread without a ring: {error}"))
            .ok();
        if let Some(ring) = &mut ring {
            ring.guard(Arc::clone(&self.sink));
            queue.wake_by(ring.waker());
        }
        let mut messages = Vec::new();
        loop {
            queue.take(&mut messages);
            self.now = self.clock.now();
            for (lane, input) in take(&mut self.left) {
                self.feed(lane, input);
            }
            self.take_all(&mut messages, ring.as_mut());
            self.begin_long_writes();
            if !self.questions.is_empty() {
                self.ask_again();
            }
            self.lent.append(&mut self.spare.take_regions());
            if !self.lent.is_empty() {
                self.register(ring.as_mut());
            }
            let mut timeout = self.time_out();
            self.hand_out();
            if self.stopped {
                return;
            }
            if !self.long_writes.is_empty() || !self.left.is_empty() {
                timeout = Some(Duration::ZERO);
            }
            match &mut ring {
                Some(ring) => {
                    if let Err(error) = ring.turn(timeout, || !queue.is_empty()) {
                        // The requests in the kernel keep their memory, so the thread must go on.
                        tracing::error!("io_uring_enter failed: {error}");
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
                None => queue.wait(timeout),
            }
        }
    }

    /// Handles all timeouts that have passed; returns how long it is until the next one.
    fn time_out(&mut self) -> Option<Duration> {
        loop {
            let mut next = self.spare.trim(self.now);
            let mut fed = false;
            for index in 0..self.lanes.len() {
                let lane = &self.lanes[index];
                match lane.array.poll_timeout() {
                    Some(at) if at <= self.now => {
                        self.feed(lane.name, Input::Timeout);
                        fed = true;
                    }
                    at => next = next.into_iter().chain(at).min(),
                }
            }
            if !self.held.is_empty() {
                self.release();
                next = next.into_iter().chain([self.now + LOOK]).min();
            }
            // The inputs may have set new timeouts.
            if !fed {
                let at: Instant = next?;
                let now = self.clock.now();
                if at > now {
                    return Some(at.since(now));
                }
                self.now = now;
            }
        }
    }

    /// Takes the messages of a turn. Drives get operations while messages are left: otherwise they would be idle
    /// meanwhile, and asleep when the operations come.
    fn take_all(&mut self, messages: &mut Vec<LaneMessage>, mut ring: Option<&mut LocalRing>) {
        let mut taken = 0;
        for message in messages.drain(..) {
            let (one, several) = match message {
                LaneMessage::Batch(several) => (None, several),
                one => (Some(one), Vec::new()),
            };
            for message in one.into_iter().chain(several) {
                let Some(message) = self.long_writes.offer(self.now, message) else {
                    continue;
                };
                self.take(message);
                taken += 1;
                if taken % TURN_MAX == 0 {
                    self.hand_out();
                    self.now = self.clock.now();
                }
                if taken % SUBMIT_EVERY == 0
                    && let Some(ring) = &mut ring
                {
                    self.submit_all();
                    if let Err(error) = ring.submit() {
                        // Entries that are left in the ring's queue go with its next turn.
                        tracing::debug!("io_uring_enter failed: {error}");
                    }
                }
            }
        }
    }

    /// Begins the long writes of this turn, after the short requests: those need not wait for them.
    fn begin_long_writes(&mut self) {
        for message in self.long_writes.turn(self.now) {
            self.take(message);
        }
    }

    fn take(&mut self, message: LaneMessage) {
        match message {
            LaneMessage::Request {
                lane,
                request,
                memory,
                to,
            } => self.request(lane, request, memory, to),
            LaneMessage::Completion { lane, id, outcome } => {
                self.held.ended(self.now, token(lane, id));
                if lane != PIECES {
                    self.feed(lane, Input::Completion(id, outcome));
                } else if let Some((token, outcome)) = self.held.piece_ended(id.0, outcome) {
                    let (lane, id) = operation(token);
                    self.feed(lane, Input::Completion(id, outcome));
                }
            }
            LaneMessage::Command { lane, command } => self.feed(lane, Input::Command(command)),
            LaneMessage::Question(question) => self.question(question),
            LaneMessage::Room => self.release(),
            LaneMessage::Seats(seats) => {
                self.part_with_drives();
                self.seats = seats;
            }
            LaneMessage::SeatsAnd(seats, commands) => {
                self.part_with_drives();
                self.seats = seats;
                for (lane, command) in commands {
                    self.feed(lane, Input::Command(command));
                }
            }
            LaneMessage::Batch(messages) => {
                for message in messages {
                    self.take(message);
                }
            }
            LaneMessage::Records { lane, to } => {
                let records = self.lane(lane).records.as_mut().map(std::mem::take);
                // The receiver may have gone.
                to.send(records.unwrap_or_default()).ok();
            }
            LaneMessage::Lend(region) => self.lent.push(region),
            LaneMessage::Stop => self.stopped = true,
        }
    }

    fn question(&mut self, mut question: Question) {
        loop {
            let lane = question.lane;
            match question.turn(&self.lane(lane).array) {
                Turn::Answered => return,
                Turn::Wait(question) => return self.questions.push(question),
                Turn::Tell(again, command) => {
                    self.feed(lane, Input::Command(command));
                    question = again;
                }
            }
        }
    }

    /// Pages may have arrived.
    fn ask_again(&mut self) {
        for question in take(&mut self.questions) {
            self.question(question);
        }
    }

    /// Registers lent memory with the ring.
    fn register(&mut self, ring: Option<&mut LocalRing>) {
        let lent = take(&mut self.lent);
        let Some(ring) = ring else { return };
        for region in lent {
            if let Err(error) = ring.register(&region) {
                tracing::debug!("memory that is not registered: {error}");
            }
        }
    }

    /// Whether this thread may still write and answer. If not, drops its operations, fails its answers, and stops it.
    fn may_go_on(&mut self) -> bool {
        if self.lease.may_go_on() {
            return true;
        }
        // Another opening has taken the pool over: this one writes no more blocks, and acknowledges nothing that was
        // written since.
        self.outgoing.clear();
        self.held.clear();
        for answer in take(&mut self.answers) {
            answer.to.completed(answer.token, Err(Fault::Shutdown));
        }
        self.stopped = true;
        false
    }

    /// Submits the operations and gives the answers of this turn: once per drive and client, because a wake costs
    /// more than a small request. Drives check for themselves whether they may begin.
    fn hand_out(&mut self) {
        if self.answers.is_empty() {
            self.submit_all();
        } else if self.may_go_on() {
            self.submit_all();
            self.answer_all();
        }
    }

    /// Submits earlier operations to the drives of before, as the seats are about to change.
    fn part_with_drives(&mut self) {
        let released = self.held.release_all(self.now, &self.seats);
        self.let_go(released);
        self.hand_out();
    }

    /// Submits operations that were held back, where there is room.
    fn release(&mut self) {
        let released = self.held.release(self.now, &self.seats, &self.waiter);
        self.let_go(released);
    }

    fn let_go(&mut self, released: Released) {
        for (seat, submission) in released {
            self.put(seat, submission);
        }
    }

    /// Submits the operations that were queued for drives so far.
    fn submit_all(&mut self) {
        for (seat, batch) in (0..).map(Seat).zip(&mut self.outgoing) {
            if batch.is_empty() {
                continue;
            }
            match self.seats.device(seat) {
                Some(device) => device.submit_all(batch, &self.sink),
                None => {
                    for submission in batch.drain(..) {
                        self.sink.completed(submission.token, Err(Fault::Gone));
                    }
                }
            }
        }
    }

    fn answer_all(&mut self) {
        let now = self.clock.now();
        for answer in &self.answers {
            answer.counted.answered(self.thread, now, answer.outcome);
        }
        let late = self
            .answers
            .extract_if(.., |answer| answer.elsewhere.is_some());
        late.for_each(Answer::give);
        let mut rest = &self.answers[..];
        while let Some(first) = rest.first() {
            let same = |answer: &&Answer| Arc::ptr_eq(&answer.to, &first.to);
            let run = rest.iter().take_while(same).count();
            let outcomes: Vec<(u64, Outcome)> = rest[..run]
                .iter()
                .map(|answer| (answer.token, answer.outcome))
                .collect();
            first.to.completed_all(&outcomes);
            rest = &rest[run..];
        }
        self.answers.clear();
    }

    fn lane(&mut self, lane: u16) -> &mut Lane {
        // Messages go to the thread that runs the lane.
        &mut self.lanes[self.places[usize::from(lane)]]
    }

    fn request(
        &mut self,
        lane: u16,
        request: GroupRequest,
        memory: Memory,
        to: Arc<dyn PartEnded>,
    ) {
        let target = self.lane(lane);
        target.next_request += 1;
        let id = RequestId(target.next_request);
        let bytes = match (&target.records, request.request.kind) {
            (Some(_), RequestKind::Write) => super::compute::bytes_of_write(&memory),
            _ => Vec::new(),
        };
        target.requests.insert(id, InFlight { memory, to });
        self.feed(lane, Input::Request(id, request, bytes));
    }

    /// Feeds an input to a lane and carries out its actions, until there are none left. A computation is carried out
    /// on the spot, and its end is fed next. After many of them the rest is left for the next turn: however much a lane
    /// computes, drives' completions are taken.
    fn feed(&mut self, lane: u16, input: Input) {
        let now = self.now;
        let place = self.places[usize::from(lane)];
        let mut next = Some(input);
        let mut fed = 0;
        while let Some(input) = next {
            fed += 1;
            if fed > FOLLOWING_MAX {
                self.left.push_back((lane, input));
                let rest = self.inputs.drain(..);
                self.left.extend(rest.map(|input| (lane, input)));
                return;
            }
            let target = &mut self.lanes[place];
            if let Some(records) = &mut target.records {
                records.push(Record {
                    at: now,
                    input: input.clone(),
                    outputs: Vec::new(),
                });
            }
            array::record::tell(&mut target.array, now, input);
            while let Some(action) = self.lanes[place].array.poll_action() {
                self.lanes[place].record(|| Output::Action(action.clone()));
                self.act(place, &action);
            }
            while let Some(event) = self.lanes[place].array.poll_event() {
                self.lanes[place].record(|| Output::Event(event.clone()));
                // The pool's thread outlives the lanes, except for a panic.
                self.pool.send(PoolMessage::Event(event)).ok();
            }
            next = self.inputs.pop_front();
        }
    }

    /// Carries out what the lane at this place asks for.
    fn act(&mut self, place: usize, action: &Action) {
        match action {
            Action::Io(io) => self.submit(place, io),
            Action::Joined(io) => self.submit_joined(place, io),
            &Action::Allocate(id, bytes) => {
                let bytes = usize::try_from(bytes).expect("a plan fits into memory");
                let memory = self.spare.take(bytes);
                self.lanes[place].scratch.insert(id, memory);
            }
            &Action::Release(id) => {
                if let Some(memory) = self.lanes[place].scratch.remove(&id) {
                    self.spare.give(memory);
                }
            }
            Action::Reply(reply) => {
                let patches: Vec<Patch> = reply
                    .elsewhere
                    .iter()
                    .map(|&(home, at)| {
                        let low = usize::try_from(home.offset).expect("inside a buffer");
                        let bytes = self.lanes[place].memory(at);
                        (low..low + bytes.len(), bytes)
                    })
                    .collect();
                let ended = self.lanes[place].requests.remove(&reply.request);
                let InFlight { memory, to } = ended.expect("a lane answers once");
                if !patches.is_empty() {
                    to.part_is_elsewhere(&memory, patches);
                }
                drop(memory);
                self.answers.extend(to.part_ended(reply.outcome));
            }
            Action::Compute(work) => {
                let target = &self.lanes[place];
                let end = self.computer.carry_out(work, |slice| target.bytes(slice));
                self.inputs.push_back(Input::Computed(work.id, end));
            }
        }
    }

    fn submit(&mut self, place: usize, io: &Io) {
        if io.kind == IoKind::Discard && !self.takes_discards(io.seat) {
            let refused = Input::Completion(io.id, Err(Fault::Invalid));
            self.inputs.push_back(refused);
            return;
        }
        let memory = match io.slice {
            Some(slice) => self.lanes[place].memory(slice),
            None => Memory::empty(),
        };
        self.ask(
            (self.lanes[place].name, io.id),
            io.seat,
            (request(io.kind, io.offset, io.length), memory),
            io.service,
        );
    }

    fn takes_discards(&self, seat: Seat) -> bool {
        let device = self.seats.device(seat);
        device.is_some_and(|device| device.limits().trims)
    }

    fn submit_joined(&mut self, place: usize, io: &Joined) {
        let slices = io.slices.iter();
        let parts = slices.map(|&slice| self.lanes[place].memory(slice));
        let memory = Memory::joined(parts.collect());
        self.ask(
            (self.lanes[place].name, io.id),
            io.seat,
            (request(io.kind, io.offset, io.length), memory),
            io.service,
        );
    }

    fn ask(
        &mut self,
        (lane, id): (u16, IoId),
        seat: Seat,
        (request, memory): (Request, Memory),
        service: Service,
    ) {
        if let Some(asked) = self.seats.asked(seat) {
            asked.count(self.thread, service.origin, request.kind, request.length);
        }
        let submission = Submission {
            request,
            memory,
            token: token(lane, id),
        };
        if self.may_wait(seat, service, request) {
            self.put_or_hold((lane, seat), service, submission);
            return;
        }
        if service.origin == Origin::Log && request.kind != RequestKind::Flush {
            self.release_log(lane);
        }
        self.put(seat, submission);
    }

    /// Whether an operation waits outside of its drive if the drive has enough. Records the operations that others
    /// make way for.
    fn may_wait(&self, seat: Seat, service: Service, request: Request) -> bool {
        let Some(admission) = self.seats.admission(seat) else {
            return service.bulk;
        };
        let is_flush = request.kind == RequestKind::Flush;
        match service.origin {
            Origin::Log if service.bulk => {
                let is_record = !is_flush && request.bytes_moved() <= RECORD_BYTES_MAX;
                if is_record {
                    admission.record(self.now);
                }
                !is_record
            }
            _ if service.bulk => true,
            Origin::Client | Origin::Log if !is_flush => {
                admission.short(self.now);
                let shares = |volume| admission.is_shared(self.now, volume);
                service.origin == Origin::Client && service.volume.is_some_and(shares)
            }
            _ => false,
        }
    }

    /// Submits the held batches of a lane's log before a new one: a batch counts only if all earlier ones do.
    fn release_log(&mut self, lane: u16) {
        if !self.held.is_empty() {
            let released = self.held.release_log(self.now, &self.seats, lane);
            self.let_go(released);
        }
    }

    /// Submits or holds an operation, and submits the held operations that the drive may have by now.
    fn put_or_hold(&mut self, at: (u16, Seat), service: Service, submission: Submission) {
        if self.held.passes(&self.seats, at.1, Kind::of(service)) {
            self.put(at.1, submission);
            return;
        }
        let shared = (self.now, &*self.seats, &self.waiter);
        let released = self.held.offer(shared, at, service, submission);
        self.let_go(released);
    }

    /// Puts an operation among those that the seat's drive gets at the end of the turn.
    fn put(&mut self, seat: Seat, submission: Submission) {
        if self.outgoing.len() <= seat.index() {
            self.outgoing.resize_with(seat.index() + 1, Vec::new);
        }
        self.outgoing[seat.index()].push(submission);
    }
}

fn request(kind: IoKind, offset: u64, length: u64) -> Request {
    let kind = match kind {
        IoKind::Read => RequestKind::Read,
        IoKind::Write => RequestKind::Write,
        IoKind::WriteZeroes => RequestKind::WriteZeroes,
        IoKind::Discard => RequestKind::Discard,
        IoKind::Flush => RequestKind::Flush,
    };
    Request {
        kind,
        offset,
        length,
        fua: false,
    }
}

impl Lane {
    /// Adds an output of the lane to its records, if they are kept.
    fn record(&mut self, output: impl FnOnce() -> Output) {
        if let Some(record) = self.records.as_mut().and_then(|all| all.last_mut()) {
            record.outputs.push(output());
        }
    }

    /// The bytes of a slice, valid for as long as the caller keeps them.
    fn memory(&self, slice: Slice) -> Memory {
        let (whole, range) = self.bytes(slice);
        whole.slice(range)
    }

    /// The buffer of a slice and the slice's range in it.
    fn bytes(&self, slice: Slice) -> (&Memory, Range<usize>) {
        let whole = match slice.buffer {
            BufferId::Request(id) => &self.requests[&id].memory,
            BufferId::Scratch(id) => &self.scratch[&id],
        };
        let low = usize::try_from(slice.offset).expect("inside a buffer");
        let length = usize::try_from(slice.length).expect("inside a buffer");
        (whole, low..low + length)
    }
}
