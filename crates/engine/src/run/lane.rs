//! A thread that runs some of a pool's lanes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;

use array::record::{Input, Output, Record};
use array::{
    Action, Array, BufferId, Command, Geometry, GroupRequest, Io, IoId, IoKind, RequestId,
    ScratchId, Slice,
};
use block::{Completed, Fault, Memory, Outcome, Request, RequestKind};
use erasure::kernel::{self, Kernel};

use super::compute::compute;
use super::pool::PoolMessage;
use super::{Clock, Seats};

/// Told when a lane has ended its part of a request.
pub(crate) trait PartEnded: Send + Sync {
    /// Called once per part, with no memory of the request held any more.
    fn part_ended(&self, outcome: Outcome);
}

/// What reaches a lane's thread.
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
    Seats(Arc<Seats>),
    /// Hand over what has been recorded.
    Records {
        lane: u16,
        to: Sender<Vec<Record>>,
    },
    Stop,
}

/// Where a lane's messages go.
#[derive(Clone)]
pub(crate) struct LaneSender {
    lane: u16,
    sender: Sender<LaneMessage>,
}

impl LaneSender {
    pub(crate) const fn lane(&self) -> u16 {
        self.lane
    }

    /// Sends; a lane that has stopped drops the message, and with it whatever waits for an answer
    /// is answered by its own drop.
    pub(crate) fn send(&self, message: LaneMessage) {
        if self.sender.send(message).is_err() {
            tracing::debug!(lane = self.lane, "message to a stopped lane");
        }
    }
}

/// Passes a drive's completions to the lane that asked.
struct Sink(LaneSender);

impl Completed for Sink {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.0.send(LaneMessage::Completion {
            lane: self.0.lane,
            id: IoId(token),
            outcome,
        });
    }
}

struct InFlight {
    memory: Memory,
    to: Arc<dyn PartEnded>,
}

/// One lane and the memory behind its buffer names.
struct Lane {
    array: Array,
    sink: Arc<dyn Completed>,
    scratch: HashMap<ScratchId, Memory>,
    requests: HashMap<RequestId, InFlight>,
    next_request: u64,
    records: Option<Vec<Record>>,
}

/// A thread's lanes.
struct LaneThread {
    lanes: HashMap<u16, Lane>,
    seats: Arc<Seats>,
    pool: Sender<PoolMessage>,
    clock: Clock,
    kernel: &'static Kernel,
}

/// Starts `threads` threads for the geometry's lanes. `record` keeps everything that the lanes are
/// told.
pub(crate) fn start(
    geometry: &Arc<Geometry>,
    threads: u16,
    seats: &Arc<Seats>,
    pool: &Sender<PoolMessage>,
    clock: Clock,
    record: bool,
) -> std::io::Result<(Vec<LaneSender>, Vec<JoinHandle<()>>)> {
    let threads = threads.clamp(1, geometry.lanes());
    let mut senders = Vec::new();
    let mut handles = Vec::new();
    let mut channels: Vec<(Sender<LaneMessage>, Receiver<LaneMessage>)> =
        (0..threads).map(|_| std::sync::mpsc::channel()).collect();
    for lane in 0..geometry.lanes() {
        senders.push(LaneSender {
            lane,
            sender: channels[usize::from(lane % threads)].0.clone(),
        });
    }
    for (index, (_, receiver)) in channels.drain(..).enumerate() {
        let lanes = senders
            .iter()
            .filter(|sender| usize::from(sender.lane % threads) == index)
            .map(|sender| {
                let lane = Lane {
                    array: Array::new(Arc::clone(geometry), sender.lane),
                    sink: Arc::new(Sink(sender.clone())),
                    scratch: HashMap::new(),
                    requests: HashMap::new(),
                    next_request: 0,
                    records: record.then(Vec::new),
                };
                (sender.lane, lane)
            })
            .collect();
        let thread = LaneThread {
            lanes,
            seats: Arc::clone(seats),
            pool: pool.clone(),
            clock,
            kernel: kernel::best(),
        };
        let handle = std::thread::Builder::new()
            .name(format!("lane-{index}"))
            .spawn(move || thread.run(&receiver))?;
        handles.push(handle);
    }
    Ok((senders, handles))
}

impl LaneThread {
    fn run(mut self, receiver: &Receiver<LaneMessage>) {
        while let Ok(message) = receiver.recv() {
            match message {
                LaneMessage::Request {
                    lane,
                    request,
                    memory,
                    to,
                } => self.request(lane, request, memory, to),
                LaneMessage::Completion { lane, id, outcome } => {
                    self.feed(lane, Input::Completion(id, outcome));
                }
                LaneMessage::Command { lane, command } => self.feed(lane, Input::Command(command)),
                LaneMessage::Seats(seats) => self.seats = seats,
                LaneMessage::Records { lane, to } => {
                    let records = self.lane(lane).records.as_mut().map(std::mem::take);
                    // Whoever asked may have gone.
                    to.send(records.unwrap_or_default()).ok();
                }
                LaneMessage::Stop => return,
            }
        }
    }

    fn lane(&mut self, lane: u16) -> &mut Lane {
        self.lanes
            .get_mut(&lane)
            .expect("messages go to the thread that runs the lane")
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

    /// Tells a lane something and carries out what it answers, until it has nothing more to say.
    fn feed(&mut self, lane: u16, input: Input) {
        let mut next = Some(input);
        while let Some(input) = next.take() {
            let now = self.clock.now();
            let target = self.lane(lane);
            let mut outputs = array::record::feed(&mut target.array, now, &input);
            if let Some(records) = &mut target.records {
                records.push(Record {
                    at: now,
                    input,
                    outputs: outputs.clone(),
                });
            }
            // A computation is carried out on the spot and its end told at once; there can be
            // several, so they queue.
            let mut computed = Vec::new();
            for output in outputs.drain(..) {
                match output {
                    Output::Event(event) => {
                        // The pool outlives its lanes but for a panic.
                        self.pool.send(PoolMessage::Event(event)).ok();
                    }
                    Output::Action(Action::Compute(work)) => {
                        let kernel = self.kernel;
                        let target = self.lane(lane);
                        compute(kernel, &work.steps, |slice| target.memory(slice));
                        computed.push(Input::Computed(work.id));
                    }
                    Output::Action(action) => self.act(lane, action),
                }
            }
            let mut computed = computed.into_iter();
            next = computed.next();
            for more in computed {
                self.feed(lane, more);
            }
        }
    }

    fn act(&mut self, lane: u16, action: Action) {
        match action {
            Action::Io(io) => self.submit(lane, &io),
            Action::Allocate(id, bytes) => {
                let bytes = usize::try_from(bytes).expect("a plan fits into memory");
                self.lane(lane).scratch.insert(id, Memory::zeroed(bytes));
            }
            Action::Release(id) => {
                self.lane(lane).scratch.remove(&id);
            }
            Action::Reply(reply) => {
                let ended = self.lane(lane).requests.remove(&reply.request);
                let InFlight { memory, to } = ended.expect("a lane answers once");
                drop(memory);
                to.part_ended(reply.outcome);
            }
            Action::Compute(_) => unreachable!("carried out by `feed`"),
        }
    }

    fn submit(&mut self, lane: u16, io: &Io) {
        let kind = match io.kind {
            IoKind::Read => RequestKind::Read,
            IoKind::Write => RequestKind::Write,
            IoKind::WriteZeroes => RequestKind::WriteZeroes,
            IoKind::Flush => RequestKind::Flush,
        };
        let request = Request {
            kind,
            offset: io.offset,
            length: io.length,
            fua: false,
        };
        let seats = Arc::clone(&self.seats);
        let target = self.lane(lane);
        match seats.device(io.seat) {
            Some(device) => {
                let memory = io.slice.map_or_else(Memory::empty, |slice| target.memory(slice));
                device.submit(request, memory, io.id.0, &target.sink);
            }
            None => target.sink.completed(io.id.0, Err(Fault::Gone)),
        }
    }
}

impl Lane {
    fn memory(&self, slice: Slice) -> Memory {
        let whole = match slice.buffer {
            BufferId::Request(id) => &self.requests[&id].memory,
            BufferId::Scratch(id) => &self.scratch[&id],
        };
        let low = usize::try_from(slice.offset).expect("inside a buffer");
        let length = usize::try_from(slice.length).expect("inside a buffer");
        whole.slice(low..low + length)
    }
}
