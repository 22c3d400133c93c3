//! The paper's host and controllers (sections 2.1 to 2.3): XVM stripes over eight volumes in units of 1 MiB; each volume
//! has a link of its own, and one of two controllers.
//!
//! ```text
//!   a request of 4 MiB     volume 0   volume 1   volume 2   volume 3  …      four pieces, answered together
//!
//!   a piece that is written ─► link ─► controller ─► array ─► answered
//!   a piece that is read             ► controller ─► array ─► link ─► answered
//! ```
//!
//! Links and controllers are first-come first-served servers, the same on both sides of the comparison.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use block::{Instant, Outcome, Request, RequestKind};
use sim::load::Target;
use sim::plain::PlainArray;

use super::MIB;

/// `-unit 2048`, in sectors.
const UNIT_BYTES: u64 = MIB;
/// Threads that go through a part each begin on volumes of their own if the units of a volume are this number more than
/// a multiple of the next one.
const UNITS_OVER: u64 = 2;
const UNITS_STEP: u64 = 16;
/// A link of 8 Gb/s.
const LINK_BYTES_PER_SECOND: u64 = 800_000_000;
/// Volumes take turns with the controllers.
const CONTROLLERS: usize = 2;
/// Chosen: time of a controller for a piece.
pub(super) const CONTROLLER_NS: u64 = 10_000;

/// A volume: an array, its first byte there, and when its link is free, in each direction.
#[derive(Clone, Copy, Debug)]
struct Volume {
    array: usize,
    first: u64,
    link_in: u64,
    link_out: u64,
}

/// A request in flight.
#[derive(Clone, Copy, Debug)]
struct Pending {
    token: u64,
    pieces: u32,
    outcome: Outcome,
}

/// Part of a request on one volume.
#[derive(Clone, Copy, Debug)]
struct Piece {
    request: u64,
    volume: usize,
    reads: bool,
    length: u64,
}

/// What happens at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// A piece reaches its array.
    Begins,
    /// A piece is answered.
    Ends,
}

/// Stripes requests over volumes of one array or several.
#[derive(Clone, Debug)]
pub(super) struct Host {
    arrays: Vec<PlainArray>,
    volumes: Vec<Volume>,
    volume_bytes: u64,
    controllers: [u64; CONTROLLERS],
    pending: BTreeMap<u64, Pending>,
    next_request: u64,
    /// Pieces in flight, with the requests to their arrays.
    pieces: BTreeMap<u64, (Piece, Request)>,
    next_piece: u64,
    due: BinaryHeap<Reverse<(u64, Due, u64)>>,
    done: VecDeque<(u64, Outcome)>,
}

fn serve(free: &mut u64, now: u64, taken: u64) -> u64 {
    *free = now.max(*free) + taken;
    *free
}

const fn link_ns(bytes: u64) -> u64 {
    bytes * 1_000 / (LINK_BYTES_PER_SECOND / 1_000_000)
}

impl Host {
    /// `each` volumes in each of the arrays, side by side.
    pub(super) fn new(arrays: Vec<PlainArray>, each: u64) -> Self {
        let least = arrays.iter().map(PlainArray::capacity_bytes).min();
        let units = least.unwrap_or(0) / each / UNIT_BYTES;
        let units = (units - UNITS_OVER) / UNITS_STEP * UNITS_STEP + UNITS_OVER;
        let volume_bytes = units * UNIT_BYTES;
        let volumes = (0..arrays.len()).flat_map(|array| {
            (0..each).map(move |volume| Volume {
                array,
                first: volume * volume_bytes,
                link_in: 0,
                link_out: 0,
            })
        });
        Self {
            volumes: volumes.collect(),
            arrays,
            volume_bytes,
            controllers: [0; CONTROLLERS],
            pending: BTreeMap::new(),
            next_request: 0,
            pieces: BTreeMap::new(),
            next_piece: 0,
            due: BinaryHeap::new(),
            done: VecDeque::new(),
        }
    }

    pub(super) fn traces(&self) -> impl Iterator<Item = u64> + '_ {
        self.arrays.iter().map(PlainArray::trace)
    }

    /// Takes what an array has answered.
    fn collect(&mut self, now: Instant, array: usize) {
        while let Some((key, outcome)) = self.arrays[array].poll_done() {
            let (piece, _) = self.pieces[&key];
            let pending = self.pending.get_mut(&piece.request);
            let pending = pending.expect("its piece is in flight");
            pending.outcome = pending.outcome.and(outcome);
            let at = match piece.reads {
                true => {
                    let link = &mut self.volumes[piece.volume].link_out;
                    serve(link, now.0, link_ns(piece.length))
                }
                false => now.0,
            };
            self.due.push(Reverse((at, Due::Ends, key)));
        }
    }

    fn begins(&mut self, now: Instant, key: u64) {
        let (piece, request) = self.pieces[&key];
        let array = self.volumes[piece.volume].array;
        self.arrays[array].handle_request(now, key, request);
        self.collect(now, array);
    }

    fn ends(&mut self, key: u64) {
        let (piece, _) = self.pieces.remove(&key).expect("it is in flight");
        let pending = self.pending.get_mut(&piece.request);
        let pending = pending.expect("its piece was in flight");
        pending.pieces -= 1;
        if pending.pieces == 0 {
            let pending = self.pending.remove(&piece.request).expect("just seen");
            self.done.push_back((pending.token, pending.outcome));
        }
    }
}

impl Target for Host {
    fn capacity_bytes(&self) -> u64 {
        self.volume_bytes * self.volumes.len() as u64
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        let count = self.volumes.len() as u64;
        let end = request.offset + request.length;
        let reads = request.kind == RequestKind::Read;
        let (mut at, mut pieces) = (request.offset, 0);
        while at < end {
            let (unit, inside) = (at / UNIT_BYTES, at % UNIT_BYTES);
            let length = (UNIT_BYTES - inside).min(end - at);
            let index = usize::try_from(unit % count).expect("an index");
            let volume = &mut self.volumes[index];
            let offset = volume.first + unit / count * UNIT_BYTES + inside;
            let moved = match reads {
                true => now.0,
                false => serve(&mut volume.link_in, now.0, link_ns(length)),
            };
            let controller = &mut self.controllers[index % CONTROLLERS];
            let begins = serve(controller, moved, CONTROLLER_NS);
            let piece = Piece {
                request: self.next_request,
                volume: index,
                reads,
                length,
            };
            let to_array = Request {
                offset,
                length,
                ..request
            };
            self.pieces.insert(self.next_piece, (piece, to_array));
            self.due
                .push(Reverse((begins, Due::Begins, self.next_piece)));
            self.next_piece += 1;
            pieces += 1;
            at += length;
        }
        let pending = Pending {
            token,
            pieces,
            outcome: Ok(()),
        };
        self.pending.insert(self.next_request, pending);
        self.next_request += 1;
    }

    fn handle_timeout(&mut self, now: Instant) {
        for array in 0..self.arrays.len() {
            let due = self.arrays[array].poll_timeout();
            if due.is_some_and(|at| at <= now) {
                self.arrays[array].handle_timeout(now);
                self.collect(now, array);
            }
        }
        while let Some(&Reverse((at, due, key))) = self.due.peek()
            && at <= now.0
        {
            self.due.pop();
            match due {
                Due::Begins => self.begins(now, key),
                Due::Ends => self.ends(key),
            }
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        let arrays = self.arrays.iter().filter_map(PlainArray::poll_timeout);
        let due = self.due.peek().map(|&Reverse((at, ..))| Instant(at));
        arrays.chain(due).min()
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        self.done.pop_front()
    }
}
