//! `compress:`: another drive behind a budget of physical space, as drives have that compress.
//!
//! ```text
//! submit ─► lengths of the new blocks ─► begin ─────────► inner drive ─► the lengths count ─► answer
//!           (long writes: on the drive's   │ └─► no room: Full, before a byte has changed
//!            own thread)                   └─► a change of the same blocks is in flight: waits for its end
//! ```
//!
//! Bytes stay where they are on the inner drive. Each block of 4 KiB counts with its length as an LZ4 block, at most
//! 4,096, and a block of zeros with nothing. Trims, discards and writes of zeros free what they cover. A discard below
//! may leave anything in its range, so the inner drive gets a trim in its place, which leaves zeros.
//!
//! The lengths are in memory only. They are counted from the bytes when the drive is opened, so no crash can make the
//! two differ. Until they are counted, changes wait and reads do not.
//!
//! A change that fails on the inner drive may have reached some of its blocks: they are read and counted again before
//! the change is answered. Blocks that cannot be read count with the longer content ([`ledger`]).

mod ledger;
mod length;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use block::{
    BlockDevice, ByteSize, Completed, Extent, Fault, Limits, Memory, Outcome, Permission, Region,
    Request, RequestKind, Usage,
};

use self::ledger::{BLOCK_BYTES, Content, Ledger};
use self::length::{WHOLE, lengths};
use super::faulty::Relay;
use super::file::INLINE_BYTES_MAX;
use super::sync;
use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::uri::{
    DriveKind, DriveSpec, NameText, ParseDriveUriError, Wrapper, parse_size, size_text, wrapped,
    write_options,
};
use super::workers::{check, join_others};
use super::{Open, OpenDriveError, Opened, Opening};

pub(super) static KIND: DriveKind = DriveKind {
    word: "compress",
    names: &["compress:disk.img?physical=1G&exposed=4G"],
    what: "another drive as one that compresses, with a budget of physical space",
    options: "physical= and exposed=",
    parse: wrapped::<Budget>,
};

/// The parameters of `compress:`.
#[derive(Clone, Copy, Debug)]
struct Budget {
    /// `physical=`: physical capacity in bytes, not zero.
    physical_bytes: u64,
    /// `exposed=`: the drive's size in bytes, at least `physical_bytes`; the inner drive's size by default.
    exposed_bytes: Option<u64>,
}

impl Wrapper for Budget {
    fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError> {
        let mut physical = None;
        let mut exposed_bytes = None;
        for (key, value) in text.options() {
            match key {
                "physical" => physical = Some(parse_size("physical", value)?),
                "exposed" => exposed_bytes = Some(parse_size("exposed", value)?),
                _ => return Err(text.unknown(key)),
            }
        }
        let physical_bytes = physical.ok_or_else(|| ParseDriveUriError::Refused {
            reason: "`compress:` needs physical=".to_owned(),
            hint: "such as compress:disk.img?physical=1G",
        })?;
        if let Some(exposed) = exposed_bytes.filter(|&exposed| exposed < physical_bytes) {
            let (exposed, physical) = (ByteSize(exposed), ByteSize(physical_bytes));
            return Err(ParseDriveUriError::Refused {
                reason: format!("exposed={exposed} is less than physical={physical}"),
                hint: "leave out exposed=, or expose more: data that compresses takes less physical space",
            });
        }
        Ok(Self {
            physical_bytes,
            exposed_bytes,
        })
    }

    fn open(&self, inner: &DriveSpec, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let create_size = opening.how.create_size;
        let opened = inner.open(&Opening {
            how: Open {
                create_size: create_size.map(|size| self.exposed_bytes.unwrap_or(size)),
                ..opening.how
            },
            ..*opening
        })?;
        let size_bytes = opened.device.limits().size_bytes;
        let exposed_bytes = self.exposed_bytes.unwrap_or(size_bytes);
        if exposed_bytes > size_bytes {
            return Err(OpenDriveError::TooSmall {
                drive: inner.to_string(),
                size_bytes,
                option: "exposed",
                needed_bytes: exposed_bytes,
            });
        }
        let telemetry = Arc::new(Telemetry::new());
        let drive = CompressDrive::new(opened.device, *self, exposed_bytes, &telemetry)
            .map_err(KIND.start_error())?;
        Ok(Opened {
            device: Arc::new(drive),
            kind: KIND.word,
            works_in_caller: true,
            telemetry,
            ..opened
        })
    }

    fn size_bytes(&self, inner: &DriveSpec) -> io::Result<u64> {
        self.exposed_bytes.map_or_else(|| inner.size_bytes(), Ok)
    }
}

impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_options(
            f,
            [
                ("physical", Some(size_text(self.physical_bytes))),
                ("exposed", self.exposed_bytes.map(size_text)),
            ],
        )
    }
}

/// Bytes that are read at once to be counted.
const COUNT_BYTES: u64 = 1 << 20;
/// Bytes about which the inner drive is asked at once, whether they are a hole.
const EXTENT_BYTES: u64 = 1 << 30;

/// A request that changes blocks, and has not begun.
struct Change {
    request: Request,
    memory: Memory,
    ticket: Ticket,
    blocks: Range<usize>,
    content: Content,
}

/// A change that the inner drive has.
struct Begun {
    ticket: Ticket,
    blocks: Range<usize>,
    content: Content,
    growth: u64,
}

/// What becomes of a change that need not wait.
enum Admitted {
    /// The inner drive gets it.
    Pass(Request, Memory, Begun),
    /// There is no room for it.
    Refuse(Memory, Ticket),
}

/// What the drive's thread does.
enum Work {
    /// Counts the new blocks of a change, and begins it.
    Begin(Request, Memory, Ticket),
    /// Begins changes that have waited for others.
    BeginWaiting,
    /// Counts the blocks of a change that has failed, and answers it.
    Recount(Begun, Fault),
    /// Answers a request.
    Answer(Ticket, Outcome),
}

struct State {
    ledger: Ledger,
    /// The lengths are those of the bytes on the inner drive.
    counted: bool,
    /// The drive is being dropped.
    closed: bool,
    /// Runs of blocks that changes in flight have: first block to end.
    in_flight: BTreeMap<usize, usize>,
    /// Changes of blocks that others have, in order.
    waiting: VecDeque<Change>,
    work: VecDeque<Work>,
}

impl State {
    fn is_in_flight(&self, blocks: &Range<usize>) -> bool {
        let before = self.in_flight.range(..blocks.end).next_back();
        before.is_some_and(|(_, &end)| end > blocks.start)
    }

    /// Whether a change must wait: one that is in flight, or waits in front of it, has some of its blocks.
    fn must_wait<'a>(
        &self,
        blocks: &Range<usize>,
        mut in_front: impl Iterator<Item = &'a Change>,
    ) -> bool {
        let overlaps =
            |other: &Change| other.blocks.start < blocks.end && blocks.start < other.blocks.end;
        self.is_in_flight(blocks) || in_front.any(overlaps)
    }

    /// Begins a change that need not wait, if there is room.
    fn begin(&mut self, change: Change) -> Admitted {
        let Change {
            request,
            memory,
            ticket,
            blocks,
            content,
        } = change;
        let Ok(growth) = self.ledger.begin(blocks.clone(), &content) else {
            return Admitted::Refuse(memory, ticket);
        };
        if !blocks.is_empty() {
            self.in_flight.insert(blocks.start, blocks.end);
        }
        let begun = Begun {
            ticket,
            blocks,
            content,
            growth,
        };
        Admitted::Pass(request, memory, begun)
    }

    /// The blocks of a change are free again.
    fn ended(&mut self, blocks: &Range<usize>) {
        if !blocks.is_empty() {
            self.in_flight.remove(&blocks.start);
        }
        if !self.waiting.is_empty() {
            self.work.push_back(Work::BeginWaiting);
        }
    }

    /// Takes the first waiting change that need not wait any more.
    fn take_ready(&mut self) -> Option<Change> {
        let ready = (0..self.waiting.len()).find(|&index| {
            let in_front = self.waiting.iter().take(index);
            !self.must_wait(&self.waiting[index].blocks, in_front)
        })?;
        self.waiting.remove(ready)
    }
}

struct Shared {
    state: Mutex<State>,
    /// The thread waits here for work.
    work: Condvar,
    /// [`CompressDrive::usage`] waits here until the blocks are counted.
    counted: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, work: Work) {
        let mut state = self.lock();
        if !state.closed {
            state.work.push_back(work);
            self.work.notify_one();
        }
    }
}

/// Waits for the inner drive's answer to a change.
struct Waiting {
    shared: Arc<Shared>,
    begun: Mutex<Option<Begun>>,
}

impl Waiting {
    fn lock(&self) -> MutexGuard<'_, Option<Begun>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Completed for Waiting {
    fn completed(&self, _token: u64, outcome: Outcome) {
        let Some(begun) = self.lock().take() else {
            return;
        };
        let mut state = self.shared.lock();
        match outcome {
            Ok(()) => {
                (state.ledger).end(begun.blocks.clone(), &begun.content, begun.growth);
                state.ended(&begun.blocks);
            }
            // Nothing can be read any more.
            Err(Fault::Gone | Fault::Shutdown) => {
                (state.ledger).end_unknown(begun.blocks.clone(), &begun.content, begun.growth);
                state.ended(&begun.blocks);
            }
            Err(fault) if !state.closed => {
                state.work.push_back(Work::Recount(begun, fault));
                self.shared.work.notify_one();
                return;
            }
            Err(_) => {}
        }
        if !state.work.is_empty() {
            self.shared.work.notify_one();
        }
        drop(state);
        begun.ticket.complete(outcome);
    }

    fn permission(&self) -> Permission {
        let begun = self.lock();
        begun
            .as_ref()
            .map_or(Permission::Revoked, |begun| begun.ticket.permission())
    }
}

/// The inner drive, and what is counted of it.
#[derive(Clone)]
struct Inner {
    device: Arc<dyn BlockDevice>,
    shared: Arc<Shared>,
    limits: Limits,
}

impl Inner {
    /// Counts a change and begins it, unless it must wait or has no room.
    fn begin(&self, request: Request, memory: Memory, ticket: Ticket) {
        let block = |bytes: u64| usize::try_from(bytes / BLOCK_BYTES as u64).expect("in memory");
        let change = Change {
            blocks: block(request.offset)..block(request.offset + request.length),
            content: match request.kind {
                RequestKind::Write => Content::Lengths(lengths(&memory)),
                _ => Content::Zeros,
            },
            request,
            memory,
            ticket,
        };
        let admitted = {
            let mut state = self.shared.lock();
            if state.must_wait(&change.blocks, state.waiting.iter()) {
                state.waiting.push_back(change);
                return;
            }
            state.begin(change)
        };
        self.go_on(admitted);
    }

    /// Passes a change on to the inner drive, or refuses it.
    fn go_on(&self, admitted: Admitted) {
        let (request, memory, begun) = match admitted {
            Admitted::Pass(request, memory, begun) => (request, memory, begun),
            Admitted::Refuse(memory, ticket) => {
                drop(memory);
                self.shared.push(Work::Answer(ticket, Err(Fault::Full)));
                return;
            }
        };
        let request = match request.kind {
            RequestKind::Discard => Request {
                kind: RequestKind::Trim,
                ..request
            },
            _ => request,
        };
        let waiting: Arc<dyn Completed> = Arc::new(Waiting {
            shared: Arc::clone(&self.shared),
            begun: Mutex::new(Some(begun)),
        });
        self.device.submit(request, memory, 0, &waiting);
    }

    /// The drive's thread: counts all blocks, then does what is queued.
    fn run(&self) {
        self.count_all();
        loop {
            let work = {
                let mut state = self.shared.lock();
                loop {
                    if state.closed {
                        return;
                    }
                    if let Some(work) = state.work.pop_front() {
                        break work;
                    }
                    state =
                        { self.shared.work.wait(state) }.unwrap_or_else(PoisonError::into_inner);
                }
            };
            match work {
                Work::Begin(request, memory, ticket) => self.begin(request, memory, ticket),
                Work::BeginWaiting => {
                    while let Some(admitted) = self.begin_waiting() {
                        self.go_on(admitted);
                    }
                }
                Work::Recount(begun, fault) => self.recount(begun, fault),
                Work::Answer(ticket, outcome) => ticket.complete(outcome),
            }
        }
    }

    fn begin_waiting(&self) -> Option<Admitted> {
        let mut state = self.shared.lock();
        let change = state.take_ready()?;
        Some(state.begin(change))
    }

    /// Counts the whole drive. Stops when the drive is dropped.
    fn count_all(&self) {
        let size = self.limits.size_bytes;
        let mut at = 0;
        while at < size {
            let asked = EXTENT_BYTES.min(size - at);
            let mut extents = self.device.extents(at, asked);
            if extents.is_empty() {
                // Nothing is known of them: they may hold data.
                extents.push(Extent {
                    length: asked,
                    hole: false,
                });
            }
            for Extent { length, hole } in extents {
                let end = (at + length).min(size);
                // A hole's blocks are zeros. A block of which only a part is a hole belongs to the data.
                let start = at - at % BLOCK_BYTES as u64;
                at = end;
                let mut from = start;
                while !hole && from < end {
                    let to = (from + COUNT_BYTES).min(end.next_multiple_of(BLOCK_BYTES as u64));
                    if self.shared.lock().closed {
                        return;
                    }
                    self.count(from, to);
                    from = to;
                }
            }
        }
        self.shared.lock().counted = true;
        self.shared.counted.notify_all();
    }

    /// Counts the blocks in a range of bytes. Blocks that cannot be read count whole.
    fn count(&self, start: u64, end: u64) {
        let index = |bytes: u64| usize::try_from(bytes / BLOCK_BYTES as u64).expect("in memory");
        let blocks = index(start)..index(end);
        let content = self.lengths_at(start, end).unwrap_or_else(|_| {
            let each = (start..end).step_by(BLOCK_BYTES);
            each.flat_map(|at| {
                let block = self.lengths_at(at, at + BLOCK_BYTES as u64);
                block.unwrap_or_else(|_| vec![WHOLE])
            })
            .collect()
        });
        let content = Content::Lengths(content);
        self.shared.lock().ledger.set(blocks, &content);
    }

    /// The physical bytes of the blocks in a range of bytes, as they are on the inner drive.
    fn lengths_at(&self, start: u64, end: u64) -> Result<Vec<u16>, Fault> {
        let mut found = Vec::new();
        let mut from = start;
        while from < end {
            let length = usize::try_from(COUNT_BYTES.min(end - from)).expect("it fits into memory");
            let bytes = sync::read(&*self.device, from, length)?;
            found.append(&mut lengths(&Memory::from_bytes(&bytes)));
            from += length as u64;
        }
        Ok(found)
    }

    /// Counts what a failed change has left in its blocks, which it still has alone, and answers it.
    fn recount(&self, begun: Begun, fault: Fault) {
        let Begun {
            ticket,
            blocks,
            content,
            growth,
        } = begun;
        let bytes = |block: usize| (block * BLOCK_BYTES) as u64;
        let found = self.lengths_at(bytes(blocks.start), bytes(blocks.end));
        {
            let mut state = self.shared.lock();
            match found {
                Ok(found) => (state.ledger).end(blocks.clone(), &Content::Lengths(found), growth),
                Err(_unreadable) => (state.ledger).end_unknown(blocks.clone(), &content, growth),
            }
            state.ended(&blocks);
        }
        ticket.complete(Err(fault));
    }
}

/// A drive with a budget of physical space.
struct CompressDrive {
    inner: Inner,
    thread: Vec<JoinHandle<()>>,
    telemetry: Arc<Telemetry>,
}

impl CompressDrive {
    /// Shows the first `exposed_bytes` of `device`. Begins to count what they hold.
    fn new(
        device: Arc<dyn BlockDevice>,
        budget: Budget,
        exposed_bytes: u64,
        telemetry: &Arc<Telemetry>,
    ) -> io::Result<Self> {
        let below = device.limits();
        let block_bytes = below.block_bytes_min.max(4096);
        let blocks = exposed_bytes / BLOCK_BYTES as u64;
        let too_large = |_| io::ErrorKind::OutOfMemory;
        let ledger = Ledger::new(
            budget.physical_bytes,
            usize::try_from(blocks).map_err(too_large)?,
        );
        let inner = Inner {
            limits: Limits {
                size_bytes: exposed_bytes - exposed_bytes % u64::from(block_bytes),
                block_bytes_min: block_bytes,
                block_bytes_preferred: below.block_bytes_preferred.max(block_bytes),
                // Where the inner drive cannot free space, the budget can.
                trims: true,
                ..below
            },
            device,
            shared: Arc::new(Shared {
                state: Mutex::new(State {
                    ledger,
                    counted: false,
                    closed: false,
                    in_flight: BTreeMap::new(),
                    waiting: VecDeque::new(),
                    work: VecDeque::new(),
                }),
                work: Condvar::new(),
                counted: Condvar::new(),
            }),
        };
        let of_thread = inner.clone();
        let builder = std::thread::Builder::new().name("drive-compress".to_owned());
        let thread = builder.spawn(move || of_thread.run())?;
        Ok(Self {
            inner,
            thread: vec![thread],
            telemetry: Arc::clone(telemetry),
        })
    }
}

impl BlockDevice for CompressDrive {
    fn limits(&self) -> Limits {
        self.inner.limits
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        let shared = &self.inner.shared;
        if let Err(fault) = check(&self.inner.limits, &request, &memory) {
            drop(memory);
            shared.push(Work::Answer(ticket, Err(fault)));
            return;
        }
        if !request.kind.mutates() {
            let relay: Arc<dyn Completed> = Arc::new(Relay::new(ticket));
            self.inner.device.submit(request, memory, 0, &relay);
            return;
        }
        // A long write is worth the hand-over to another thread.
        let long = request.bytes_moved() > INLINE_BYTES_MAX;
        if long || !shared.lock().counted {
            shared.push(Work::Begin(request, memory, ticket));
        } else {
            self.inner.begin(request, memory, ticket);
        }
    }

    fn lend(&self, region: &Region) {
        self.inner.device.lend(region);
    }

    /// Waits until the blocks are counted.
    fn usage(&self) -> Option<Usage> {
        let shared = &self.inner.shared;
        let state = shared.lock();
        let state = { &shared.counted }
            .wait_while(state, |state| !state.counted)
            .unwrap_or_else(PoisonError::into_inner);
        Some(state.ledger.usage())
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset
            .saturating_add(length)
            .min(self.inner.limits.size_bytes);
        { &self.inner.device }.extents(offset, end.saturating_sub(offset))
    }
}

impl Drop for CompressDrive {
    /// Requests that the inner drive does not have are answered; it answers the others when it is dropped.
    fn drop(&mut self) {
        let (work, waiting) = {
            let mut state = self.inner.shared.lock();
            state.closed = true;
            (
                std::mem::take(&mut state.work),
                std::mem::take(&mut state.waiting),
            )
        };
        self.inner.shared.work.notify_all();
        // Their tickets answer.
        drop((work, waiting));
        join_others(&mut self.thread);
    }
}
