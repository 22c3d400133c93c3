//! One client's connection: received input, output to be sent, and the phase of the protocol.

use std::io::{self, IoSliceMut};
use std::os::fd::OwnedFd;

use block::{Fault, Memory, RequestKind};

use super::handshake::{Handshake, HangUp, Step};
use super::in_flight::{InFlight, PendingRequest};
use super::output::Output;
use super::protocol::{
    OPTION_BYTES_MAX, OPTION_HEADER_BYTES, REQUEST_BYTES, RequestHeader, chunk,
    encode_block_status, encode_error_chunk, encode_read_chunk, encode_simple_reply,
    encode_structured_header,
};
use super::session::{Decision, EXTENTS_MAX, Session, fault_errno};
use super::slab::Key;
use super::tls::ServerTls;
use super::transport::Transport;

/// Maximum bytes per receive besides a payload. Must exceed the longest option.
const INPUT_BYTES: usize = 128 << 10;
const _: () = assert!(INPUT_BYTES > OPTION_BYTES_MAX as usize + OPTION_HEADER_BYTES);
/// From this length on, a write's payload should bypass the input buffer, which costs a copy: while such writes come,
/// a receive takes little besides the current payload.
const BULK_BYTES: usize = 64 << 10;
const INPUT_BYTES_IN_BULK: usize = 4096;
/// The minimum charge of a request against the limit: for its entry, its reply and the like.
const CHARGE_BYTES_MIN: usize = 4096;
/// No further option is handled while more bytes of answers than this wait to be sent.
const HANDSHAKE_OUTPUT_BYTES_MAX: usize = 64 << 10;

/// Why a connection ends before its client disconnects.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    HangUp(#[from] HangUp),
    #[error(transparent)]
    Io(#[from] io::Error),
}

enum Phase {
    Handshake(Handshake),
    /// The answer to STARTTLS must be sent before TLS begins.
    StartingTls(Handshake),
    Serving(Session),
}

/// A write whose payload is incomplete.
struct Payload {
    request: block::Request,
    memory: Memory,
    filled: usize,
    /// The payload's length; the buffer may be longer.
    len: usize,
    cookie: u64,
    charge: usize,
}

/// The server's parameters for its connections.
#[derive(Clone)]
pub(super) struct Terms {
    pub(super) tls: Option<ServerTls>,
    /// Limit for requests and replies in flight, in bytes; beyond it no more input is read.
    pub(super) in_flight_bytes_max: usize,
}

/// One client's connection.
pub(super) struct Connection {
    pub(super) transport: Transport,
    terms: Terms,
    phase: Option<Phase>,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    payload: Option<Payload>,
    /// True if the last request was a long write; the next one probably is, too.
    bulk: bool,
    /// Bytes of a refused write's payload that have not arrived yet.
    discard: usize,
    output: Output,
    /// Sum of the charges of all requests that are in flight or whose replies have not been sent.
    charged: usize,
    /// Requests in flight on the device.
    in_flight: usize,
    /// Input waits until charges have been released or output has been sent.
    stalled: bool,
    /// No more input is taken. Requests in flight are answered, then the connection ends.
    finishing: bool,
    /// The client is gone. The connection only waits for the device's completions.
    dead: bool,
}

impl Connection {
    pub(super) fn new(socket: OwnedFd, handshake: Handshake, terms: Terms) -> Self {
        let mut output = Output::default();
        output.push_head(Handshake::greeting(), 0);
        Self {
            transport: Transport::plain(socket),
            terms,
            phase: Some(Phase::Handshake(handshake)),
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            payload: None,
            bulk: false,
            discard: 0,
            output,
            charged: 0,
            in_flight: 0,
            stalled: false,
            finishing: false,
            dead: false,
        }
    }

    /// True if the client has not chosen an export yet.
    pub(super) const fn in_handshake(&self) -> bool {
        !matches!(self.phase, Some(Phase::Serving(_)))
    }

    pub(super) const fn is_dead(&self) -> bool {
        self.dead
    }

    /// True if nothing is left to do and the connection can be dropped.
    pub(super) fn is_finished(&self) -> bool {
        self.in_flight == 0
            && (self.dead
                || (self.finishing && self.output.is_empty() && !self.transport.wants_write()))
    }

    /// True if input may be received now.
    pub(super) const fn wants_read(&self) -> bool {
        !self.dead && !self.finishing && !self.stalled
    }

    /// True if output waits for the socket.
    pub(super) fn wants_write(&self) -> bool {
        !self.dead && (!self.output.is_empty() || self.transport.wants_write())
    }

    /// Takes no more requests; those in flight are still answered.
    pub(super) const fn finish(&mut self) {
        self.finishing = true;
    }

    /// Drops everything except the requests in flight on the device.
    pub(super) fn abort(&mut self, in_flight: &mut InFlight) {
        self.dead = true;
        self.finishing = true;
        self.output.clear(&mut in_flight.buffers);
        if let Some(payload) = self.payload.take() {
            in_flight.buffers.give(payload.memory);
        }
        self.input = Box::default();
        (self.start, self.end) = (0, 0);
    }

    /// Receives and handles input. Without TLS once: epoll reports whether there is more. With TLS until its internal
    /// buffer is empty, because epoll does not see that buffer.
    pub(super) fn receive(&mut self, key: Key, in_flight: &mut InFlight) -> Result<(), Broken> {
        while self.wants_read() && self.receive_once(key, in_flight)? && self.transport.is_tls() {}
        Ok(())
    }

    /// True if the input filled all room: there may be more.
    fn receive_once(&mut self, key: Key, in_flight: &mut InFlight) -> Result<bool, Broken> {
        self.make_room();
        let input_end = if self.bulk {
            self.end + INPUT_BYTES_IN_BULK
        } else {
            INPUT_BYTES
        };
        let input_end = input_end.min(INPUT_BYTES);
        let mut none = [0; 0];
        let rest = match &mut self.payload {
            Some(payload) => {
                let (filled, len) = (payload.filled, payload.len);
                // Not submitted yet, so there is no other reference.
                payload
                    .memory
                    .unique_mut()
                    .map_or(&mut none[..], |bytes| &mut bytes[filled..len])
            }
            None => &mut none[..],
        };
        let rest_len = rest.len();
        let mut buffers = [
            IoSliceMut::new(rest),
            IoSliceMut::new(&mut self.input[self.end..input_end]),
        ];
        let skip = usize::from(rest_len == 0);
        let room: usize = buffers.iter().map(|buffer| buffer.len()).sum();
        let count = match self.transport.receive(&mut buffers[skip..]) {
            Ok(0) => {
                self.finishing = true;
                return Ok(false);
            }
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        let direct = count.min(rest_len);
        if let Some(payload) = &mut self.payload {
            payload.filled += direct;
        }
        self.end += count - direct;
        self.handle_input(key, in_flight)?;
        Ok(count == room)
    }

    /// Moves the incomplete message to the front of the input buffer.
    fn make_room(&mut self) {
        if self.start > 0 {
            self.input.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// Handles all messages that are complete, as far as the limits allow.
    fn handle_input(&mut self, key: Key, in_flight: &mut InFlight) -> Result<(), Broken> {
        self.stalled = false;
        while !self.finishing {
            match self.phase.take() {
                Some(Phase::Handshake(handshake)) => {
                    if !self.handle_options(handshake)? {
                        break;
                    }
                    if let Some(Phase::Serving(session)) = &self.phase {
                        in_flight.buffers.lend_to(&*session.device);
                    }
                }
                Some(Phase::Serving(session)) => {
                    let result = self.handle_requests(&session, key, in_flight);
                    in_flight.submit(&*session.device);
                    self.phase = Some(Phase::Serving(session));
                    result?;
                    break;
                }
                starting @ (Some(Phase::StartingTls(_)) | None) => {
                    self.phase = starting;
                    self.stalled = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Handles one message of the handshake. True if the input may contain another one.
    fn handle_options(&mut self, mut handshake: Handshake) -> Result<bool, Broken> {
        if self.output.bytes() > HANDSHAKE_OUTPUT_BYTES_MAX {
            // The client sends options and does not read the answers.
            self.stalled = true;
            self.phase = Some(Phase::Handshake(handshake));
            return Ok(false);
        }
        let mut out = Vec::new();
        let result = handshake.handle_input(&self.input[self.start..self.end], &mut out);
        if !out.is_empty() {
            self.output.push_bytes(out, 0);
        }
        let (used, step) = match result {
            Ok(next) => next,
            Err(hang_up) => {
                self.phase = Some(Phase::Handshake(handshake));
                return Err(hang_up.into());
            }
        };
        self.start += used;
        let (phase, more) = match step {
            Step::More => (Phase::Handshake(handshake), false),
            Step::Next => (Phase::Handshake(handshake), true),
            Step::StartTls => (Phase::StartingTls(handshake), true),
            Step::Transmit(session) => (Phase::Serving(session), true),
            Step::Close => {
                self.finishing = true;
                (Phase::Handshake(handshake), false)
            }
        };
        self.phase = Some(phase);
        Ok(more)
    }

    fn handle_requests(
        &mut self,
        session: &Session,
        key: Key,
        in_flight: &mut InFlight,
    ) -> Result<(), Broken> {
        // Queried for every receive: the volume may have been resized.
        let limits = session.device.limits();
        loop {
            let available = self.end - self.start;
            if self.discard > 0 {
                let count = available.min(self.discard);
                self.discard -= count;
                self.start += count;
                if self.discard > 0 {
                    return Ok(());
                }
                continue;
            }
            if let Some(mut payload) = self.payload.take() {
                self.fill(&mut payload);
                if payload.filled < payload.len {
                    self.payload = Some(payload);
                    return Ok(());
                }
                let Payload {
                    request,
                    memory,
                    cookie,
                    charge,
                    ..
                } = payload;
                self.in_flight += 1;
                let ticket = (key, cookie, charge);
                in_flight.queue(&limits, request, memory, ticket);
                continue;
            }
            let input = &self.input[self.start..self.end];
            let Some((header, _)) = input.split_first_chunk::<REQUEST_BYTES>() else {
                return Ok(());
            };
            let header = RequestHeader::parse(header).ok_or(HangUp::RequestMagic)?;
            let decision = session.decide(&header, &limits);
            let charge = match &decision {
                Decision::Submit(request) if transfers(request.kind) => header.length as usize,
                Decision::Status { .. } => EXTENTS_MAX * size_of::<u64>(),
                _ => 0,
            }
            .max(CHARGE_BYTES_MIN);
            if self.charged > 0 && self.charged + charge > self.terms.in_flight_bytes_max {
                self.stalled = true;
                return Ok(());
            }
            self.start += REQUEST_BYTES;
            match decision {
                Decision::Disconnect => {
                    self.finishing = true;
                    return Ok(());
                }
                Decision::Submit(request) => {
                    self.charged += charge;
                    self.accept(key, in_flight, &limits, request, header.cookie, charge);
                }
                Decision::Done => {
                    self.charged += charge;
                    // Only a successful read must have a structured reply.
                    if session.structured && header.command == 0 {
                        let reply = encode_structured_header(chunk::NONE, header.cookie, 0);
                        self.output.push_head(reply, charge);
                    } else {
                        self.output
                            .push_head(encode_simple_reply(0, header.cookie), charge);
                    }
                }
                Decision::Refuse(error, reason) => {
                    self.charged += charge;
                    self.discard = header.payload_bytes() as usize;
                    self.refuse(session.structured, header.cookie, error, reason, charge);
                }
                Decision::Status {
                    offset,
                    length,
                    one,
                } => {
                    self.charged += charge;
                    self.in_flight += 1;
                    let range = (offset, length, one);
                    in_flight.ask(&*session.device, range, (key, header.cookie, charge));
                }
            }
        }
    }

    /// Queues a request, or begins to receive its payload.
    fn accept(
        &mut self,
        key: Key,
        in_flight: &mut InFlight,
        limits: &block::Limits,
        request: block::Request,
        cookie: u64,
        charge: usize,
    ) {
        let len = if transfers(request.kind) {
            byte_count(request.length)
        } else {
            0
        };
        let memory = if len > 0 {
            in_flight.buffers.take(len)
        } else {
            Memory::empty()
        };
        self.bulk = request.kind == RequestKind::Write && len >= BULK_BYTES;
        if request.kind == RequestKind::Write {
            self.payload = Some(Payload {
                request,
                memory,
                filled: 0,
                len,
                cookie,
                charge,
            });
            return;
        }
        self.in_flight += 1;
        in_flight.queue(limits, request, memory, (key, cookie, charge));
    }

    /// Moves the payload's bytes from the input to the request's buffer.
    fn fill(&mut self, payload: &mut Payload) {
        let count = (self.end - self.start).min(payload.len - payload.filled);
        if count == 0 {
            return;
        }
        let input = &self.input[self.start..self.start + count];
        if let Some(bytes) = payload.memory.unique_mut() {
            bytes[payload.filled..payload.filled + count].copy_from_slice(input);
        }
        payload.filled += count;
        self.start += count;
    }

    fn refuse(&mut self, structured: bool, cookie: u64, error: u32, reason: &str, charge: usize) {
        if structured {
            self.output
                .push_bytes(encode_error_chunk(cookie, error, reason), charge);
        } else {
            self.output
                .push_head(encode_simple_reply(error, cookie), charge);
        }
    }

    /// Queues the reply of a request that the device has completed.
    pub(super) fn complete(&mut self, mut pending: PendingRequest, in_flight: &mut InFlight) {
        self.in_flight -= 1;
        let structured = match &self.phase {
            Some(Phase::Serving(session)) if !self.dead => session.structured,
            _ => return in_flight.buffers.give(pending.memory),
        };
        let PendingRequest {
            cookie,
            request,
            charge,
            ..
        } = pending;
        let reading = request.kind == RequestKind::Read;
        if reading && pending.fault.is_none() && pending.memory.unique().is_none() {
            // The device still has a reference and might write to the memory, against its contract.
            debug_assert!(false, "a device completed a read and kept its memory");
            pending.fault = Some(Fault::Medium);
        }
        if let Some(fault) = pending.fault {
            in_flight.buffers.give(pending.memory);
            let reason = fault.to_string();
            return self.refuse(structured, cookie, fault_errno(fault), &reason, charge);
        }
        if !reading {
            in_flight.buffers.give(pending.memory);
            self.output
                .push_head(encode_simple_reply(0, cookie), charge);
            return;
        }
        let len = byte_count(request.length);
        let length = u32::try_from(len).unwrap_or(u32::MAX);
        if structured {
            let head = encode_read_chunk(cookie, request.offset, length);
            self.output.push_memory(head, pending.memory, len, charge);
        } else {
            let head = encode_simple_reply(0, cookie);
            self.output.push_memory(head, pending.memory, len, charge);
        }
    }

    /// Queues the reply of a block status request.
    pub(super) fn complete_status(&mut self, cookie: u64, status: &[(u32, u32)], charge: usize) {
        self.in_flight -= 1;
        if matches!(self.phase, Some(Phase::Serving(_))) && !self.dead {
            let reply = encode_block_status(cookie, status);
            self.output.push_bytes(reply, charge);
        }
    }

    /// Sends what the socket takes, begins TLS once the answer to STARTTLS has been sent, and handles input that was
    /// stalled. True if there is more to do at once.
    pub(super) fn settle(&mut self, key: Key, in_flight: &mut InFlight) -> Result<bool, Broken> {
        if self.dead {
            return Ok(false);
        }
        if !self.output.is_empty() {
            let released = self
                .output
                .send(&mut self.transport, &mut in_flight.buffers)?;
            self.charged -= released;
        } else if self.transport.wants_write() {
            self.transport.flush()?;
        }
        if self.output.is_empty() {
            self.begin_tls()?;
        }
        if !self.stalled || self.finishing {
            return Ok(false);
        }
        let start = self.start;
        self.handle_input(key, in_flight)?;
        if self.transport.is_tls() {
            // Input that TLS had decrypted before the stall.
            self.receive(key, in_flight)?;
        }
        Ok(self.start != start)
    }

    fn begin_tls(&mut self) -> Result<(), Broken> {
        match (self.phase.take(), &self.terms.tls) {
            (Some(Phase::StartingTls(mut handshake)), Some(tls)) => {
                tls.begin(&mut self.transport)?;
                handshake.secured();
                self.phase = Some(Phase::Handshake(handshake));
            }
            (phase, _) => self.phase = phase,
        }
        Ok(())
    }
}

const fn transfers(kind: RequestKind) -> bool {
    matches!(kind, RequestKind::Read | RequestKind::Write)
}

/// A read's or write's length; at most 32 MiB.
fn byte_count(length: u64) -> usize {
    usize::try_from(length).expect("reads and writes are at most 32 MiB")
}
