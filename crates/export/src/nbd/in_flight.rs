//! Requests in flight on the devices.

use std::sync::Arc;

use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Fault, Limits, Memory, Outcome, Request,
    RequestKind, Submission,
};

use super::buffers::Buffers;
use super::mailbox::Mailbox;
use super::session::status_of;
use super::slab::{Key, Slab};

/// One client request between submission and reply.
pub(super) struct PendingRequest {
    /// The request's connection, which may be gone when the device completes the request.
    pub(super) connection: Key,
    /// The client's identifier of the request.
    pub(super) cookie: u64,
    pub(super) request: Request,
    /// The whole buffer; the device has slices of it.
    pub(super) memory: Memory,
    /// The first fault of any piece.
    pub(super) fault: Option<Fault>,
    /// The request's charge against its connection's limit, in bytes.
    pub(super) charge: usize,
    pieces_left: u32,
}

/// A block status request in flight.
struct StatusFlight {
    /// Connection, cookie, and charge against the connection's limit.
    ticket: (Key, u64, usize),
    length: u32,
    one: bool,
}

/// The result of a block status request: connection, cookie, charge, and extents.
pub(super) type CompletedStatus = ((Key, u64, usize), Vec<(u32, u32)>);

/// All requests of one worker that are in flight, and its buffers.
pub(super) struct InFlight {
    table: Slab<PendingRequest>,
    statuses: Slab<StatusFlight>,
    mailbox: Arc<Mailbox>,
    pub(super) buffers: Buffers,
    to: Arc<dyn Completed>,
    /// Queued requests that have not been passed to the device.
    batch: Vec<Submission>,
    queued: u32,
}

impl InFlight {
    pub(super) fn new(mailbox: &Arc<Mailbox>) -> Self {
        Self {
            table: Slab::new(),
            statuses: Slab::new(),
            mailbox: Arc::clone(mailbox),
            buffers: Buffers::stocked(),
            to: Arc::clone(mailbox) as _,
            batch: Vec::new(),
            queued: 0,
        }
    }

    /// The number of requests queued since the last call.
    pub(super) const fn take_queued(&mut self) -> u32 {
        std::mem::replace(&mut self.queued, 0)
    }

    /// Queues `request`, split into pieces if it is longer than the device's limit. The next [`InFlight::submit`]
    /// passes it to the device. For reads and writes, `memory` is a buffer of at least the request's length;
    /// otherwise it is empty.
    pub(super) fn queue(
        &mut self,
        limits: &Limits,
        request: Request,
        memory: Memory,
        (connection, cookie, charge): (Key, u64, usize),
    ) {
        self.queued += 1;
        let transfers = matches!(request.kind, RequestKind::Read | RequestKind::Write);
        let pieces = if transfers {
            split(request.offset, request.length, limits)
        } else {
            vec![]
        };
        let whole = memory.clone();
        let key = self.table.insert(PendingRequest {
            connection,
            cookie,
            request,
            memory,
            fault: None,
            charge,
            pieces_left: u32::try_from(pieces.len()).unwrap_or(0).max(1),
        });
        let token = key.to_u64();
        if pieces.is_empty() {
            let memory = if transfers {
                slice(&whole, 0, request.length)
            } else {
                Memory::empty()
            };
            self.batch.push(Submission {
                request,
                memory,
                token,
            });
            return;
        }
        for (offset, length) in pieces {
            let piece = Request {
                offset,
                length,
                ..request
            };
            let memory = slice(&whole, offset - request.offset, length);
            self.batch.push(Submission {
                request: piece,
                memory,
                token,
            });
        }
    }

    /// Passes all queued requests to `device`. All of them must be for this device.
    pub(super) fn submit(&mut self, device: &dyn BlockDevice) {
        if !self.batch.is_empty() {
            device.submit_all(&mut self.batch, &self.to);
        }
    }

    /// Queries the extents of `device` in a range; one extent is enough if `one`.
    pub(super) fn ask(
        &mut self,
        device: &dyn BlockDevice,
        (offset, length, one): (u64, u32, bool),
        ticket: (Key, u64, usize),
    ) {
        self.queued += 1;
        let key = self.statuses.insert(StatusFlight {
            ticket,
            length,
            one,
        });
        let mailbox = Arc::clone(&self.mailbox);
        let answer = ExtentsAnswer::new(move |extents| mailbox.put_extents(key.to_u64(), extents));
        device.find_extents(offset, length.into(), answer);
    }

    /// Processes a device's answer to an extents query.
    pub(super) fn complete_extents(
        &mut self,
        token: u64,
        extents: &[Extent],
    ) -> Option<CompletedStatus> {
        let pending = self.statuses.remove(Key::from_u64(token))?;
        let status = status_of(extents, pending.length, pending.one);
        Some((pending.ticket, status))
    }

    /// Records the outcome of a piece. Returns the request if this was its last piece.
    pub(super) fn complete(&mut self, token: u64, outcome: Outcome) -> Option<PendingRequest> {
        let key = Key::from_u64(token);
        let pending = self.table.get_mut(key)?;
        if let Err(fault) = outcome {
            pending.fault.get_or_insert(fault);
        }
        pending.pieces_left -= 1;
        if pending.pieces_left > 0 {
            return None;
        }
        self.table.remove(key)
    }
}

/// The `length` bytes at `start` of `memory`. Both are within the memory, so they fit a `usize`.
fn slice(memory: &Memory, start: u64, length: u64) -> Memory {
    let start = usize::try_from(start).unwrap_or(usize::MAX);
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    memory.slice(start..start.saturating_add(length))
}

/// Cuts a range into (offset, length) pieces within the device's limit, at preferred boundaries if there are any.
/// Empty if no cut is needed.
fn split(offset: u64, length: u64, limits: &Limits) -> Vec<(u64, u64)> {
    let min = u64::from(limits.block_bytes_min.max(1));
    let longest = (u64::from(limits.request_bytes_max) & !(min - 1)).max(min);
    if length <= longest {
        return vec![];
    }
    let preferred = u64::from(limits.block_bytes_preferred).max(min);
    let end = offset + length;
    let mut pieces = Vec::new();
    let mut at = offset;
    while at < end {
        let mut next = end.min(at + longest);
        let boundary = next & !(preferred - 1);
        if next < end && boundary > at {
            next = boundary;
        }
        pieces.push((at, next - at));
        at = next;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_cover_the_range_and_meet_at_preferred_boundaries() {
        let limits = Limits {
            size_bytes: 1 << 30,
            block_bytes_min: 512,
            block_bytes_preferred: 4096,
            request_bytes_max: 10_000,
            trims: false,
        };
        assert!(split(512, 9_728, &limits).is_empty());
        let pieces = split(512, 30_208, &limits);
        assert_eq!(pieces.first(), Some(&(512, 7_680)));
        let mut at = 512;
        for &(offset, length) in &pieces {
            assert_eq!(offset, at);
            assert!(length > 0 && length <= 10_000);
            at += length;
            assert!(at % 4096 == 0 || at == 512 + 30_208);
        }
        assert_eq!(at, 512 + 30_208);
    }
}
