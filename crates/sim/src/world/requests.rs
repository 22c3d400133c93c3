//! Requests of clients: which are open, the data that their parts returned, and the order of the answers.

use std::collections::VecDeque;

use array::RequestId;
use block::{Fault, Outcome, RequestKind};

use super::ascending::Ascending;
use crate::buffer::Buffer;

/// A request in flight or answered.
#[derive(Clone, Debug)]
struct ClientRequest {
    kind: RequestKind,
    /// Parts not yet answered.
    open: usize,
    outcome: Outcome,
    /// By part, the data that it returned, if any.
    pieces: Vec<Option<Buffer>>,
}

impl ClientRequest {
    /// Records a lane's answer to a part. Returns true if all parts have been answered.
    fn part_ended(&mut self, part: usize, outcome: Outcome, buffer: Option<Buffer>) -> bool {
        self.open -= 1;
        self.outcome = self.outcome.and(outcome);
        if buffer.is_some() {
            let parts = self.pieces.len().max(part + 1);
            self.pieces.resize(parts, None);
            self.pieces[part] = buffer;
        }
        self.open == 0
    }
}

/// The client's request and the index of its part, from the id of a lane's request.
fn client_of(request: RequestId) -> (u64, usize) {
    (
        request.0 >> 16,
        usize::try_from(request.0 & 0xffff).expect("16 bits"),
    )
}

/// The id of a lane's request for a part of a client's request.
pub(super) const fn part_of(id: u64, index: usize) -> RequestId {
    RequestId((id << 16) | index as u64)
}

/// Requests of a world's clients.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    next: u64,
    /// Requests in flight, and answered requests whose outcome has not been taken.
    open: Ascending<ClientRequest>,
    /// In a study: answered requests, in order.
    answered_ids: VecDeque<u64>,
    answered: u64,
}

impl Requests {
    /// Begins a request with this number of parts.
    pub(super) fn begin(&mut self, kind: RequestKind, parts: usize) -> u64 {
        let id = self.next;
        self.next += 1;
        let state = ClientRequest {
            kind,
            open: parts,
            outcome: Ok(()),
            pieces: Vec::new(),
        };
        self.open.insert(id, state);
        id
    }

    /// Records a lane's answer. With `notes` the order of answers is kept for [`Requests::take_answered`].
    pub(super) fn part_ended(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        buffer: Option<Buffer>,
        notes: bool,
    ) {
        let (id, part) = client_of(request);
        let request = self.open.get_mut(id).expect("in flight");
        if request.part_ended(part, outcome, buffer) {
            self.answered += 1;
            if notes {
                self.answered_ids.push_back(id);
            }
        }
    }

    /// In a study: an answered request whose outcome has not been taken.
    pub(super) fn take_answered(&mut self) -> Option<u64> {
        self.answered_ids.pop_front()
    }

    /// Number of requests begun.
    pub(super) const fn begun(&self) -> u64 {
        self.next
    }

    /// Number of requests answered.
    pub(super) const fn answered(&self) -> u64 {
        self.answered
    }

    /// The outcome of a request, if it has ended; for a read, the data of its parts.
    pub(super) fn take_ended(&mut self, id: u64) -> Option<Result<Vec<Buffer>, Fault>> {
        if self.open.get_mut(id)?.open > 0 {
            return None;
        }
        let request = self.open.remove(id)?;
        let read = request.kind == RequestKind::Read;
        let pieces = request.pieces.into_iter().flatten();
        Some(
            request
                .outcome
                .map(|()| if read { pieces.collect() } else { Vec::new() }),
        )
    }
}
