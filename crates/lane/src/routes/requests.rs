//! Routes for requests: a client's request may be held back first, then begins as operations, and is answered when the
//! last of these has ended.

use std::ops::Range;

use block::{Fault, Outcome, RequestKind};
use format::seeded::{self, SeededFault};
use format::{DataStripe, GroupId};
use plan::action::{BufferId, Compute, ComputeStep, Slice};
use plan::{GroupRequest, RequestId};

use crate::Lane;
use crate::backoff::Work;
use crate::coalesce::{Coalescing, Part, Stripes};
use crate::flush::Waiter;
use crate::op::Op;
use crate::purpose::Computing;
use crate::request::{read_ops, service_for, write_ops, write_parts, zero_ops};
use crate::requests::Done;

impl Lane {
    pub(crate) fn begin_request(&mut self, id: RequestId, request: GroupRequest) {
        let what = request.request;
        let inside = what
            .offset
            .checked_add(what.length)
            .is_some_and(|end| end <= self.cx.geometry.group_data_bytes());
        let here = self.check_here(request.group).is_ok();
        self.requests.begin(id, what, request.volume);
        if what.kind == RequestKind::Flush {
            if !self.flush_for(id) {
                self.reply(id, Ok(()));
            }
            return;
        }
        if !inside || !here {
            self.reply(id, Err(Fault::Invalid));
            return;
        }
        if self.uninitialized.contains(request.group) {
            self.begin_uninitialized(id, request);
            return;
        }
        self.begin_ops(id, request);
    }

    pub(crate) fn begin_ops(&mut self, id: RequestId, request: GroupRequest) {
        if !self.waits_for_room(id, &request) {
            self.begin_with_room(id, request);
        }
    }

    /// Begins a request for which there is room.
    pub(crate) fn begin_with_room(&mut self, id: RequestId, request: GroupRequest) {
        let kind = request.request.kind;
        if kind == RequestKind::Write {
            let bytes = request.request.length;
            self.uninitialized
                .written(&mut self.cx, request.group, bytes);
        }
        match kind {
            RequestKind::Read => {
                let ops = read_ops(&self.cx, id, &request);
                self.start_all(id, &request, ops);
            }
            RequestKind::Write if Coalescing::takes(&self.cx.geometry, &request) => {
                self.begin_write(id, &request);
            }
            RequestKind::Write => {
                let ops = write_ops(&mut self.cx, id, &request, Some(id));
                self.start_all(id, &request, ops.into_iter());
            }
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                let ops = zero_ops(&mut self.cx, id, &request);
                self.start_all(id, &request, ops.into_iter());
            }
            RequestKind::Flush => unreachable!("handled above"),
        }
    }

    fn start_all(
        &mut self,
        id: RequestId,
        request: &GroupRequest,
        ops: impl ExactSizeIterator<Item = Op>,
    ) {
        if ops.len() == 0 {
            self.reply(id, Ok(()));
            return;
        }
        self.requests.expect_ops(id, ops.len());
        let service = service_for(&self.cx.geometry, request);
        for mut op in ops {
            op.service = service;
            self.start(op);
        }
    }

    /// The parts of each stripe wait for their neighbours.
    fn begin_write(&mut self, id: RequestId, request: &GroupRequest) {
        let stripes = self.cx.geometry.stripes(request);
        if stripes.is_empty() {
            self.reply(id, Ok(()));
            return;
        }
        self.requests.expect_ops(id, stripes.len());
        for (stripe, segments) in stripes {
            let stripe = (request.group, stripe);
            let before = self.coalescing.coalesce(self.cx.now, id, stripe, segments);
            if seeded::is(SeededFault::CoalescedOverlap) {
                for part in before {
                    self.request_op_ended(part.request, Ok(()));
                }
            } else {
                self.begin_parts(stripe, before);
            }
        }
    }

    /// Writes that have waited for their neighbours begin.
    pub(crate) fn begin_stripes(&mut self, stripes: Stripes) {
        for (stripe, parts) in stripes {
            self.begin_parts(stripe, parts);
        }
    }

    /// Begins one operation for all parts, if there are any.
    fn begin_parts(&mut self, (group, stripe): (GroupId, DataStripe), parts: Vec<Part>) {
        let Some(first) = parts.first() else {
            return;
        };
        let volume = self.requests.volume(first.request);
        let op = write_parts(&mut self.cx, volume, (group, stripe), parts);
        self.coalescing.occupy((group, stripe));
        self.start(op);
    }

    /// An operation of several parts has ended.
    pub(crate) fn parts_ended(
        &mut self,
        (group, stripe): (GroupId, DataStripe),
        parts: Box<[Part]>,
        outcome: Outcome,
    ) {
        for part in parts {
            match outcome {
                Ok(()) => self.request_op_ended(part.request, Ok(())),
                Err(_) => self.begin_parts((group, stripe), vec![part]),
            }
        }
    }

    /// Begins a request to a group that was never written.
    pub(crate) fn begin_uninitialized(&mut self, id: RequestId, request: GroupRequest) {
        match request.request.kind {
            RequestKind::Read => {
                self.requests.expect_ops(id, 1);
                let zeros = ComputeStep {
                    target: Slice {
                        buffer: BufferId::Request(id),
                        offset: request.buffer_offset,
                        length: request.request.length,
                    },
                    accumulate: false,
                    terms: Vec::new(),
                };
                let work = Compute {
                    steps: vec![zeros],
                    ..Compute::default()
                };
                self.cx.push_compute(Computing::Zeros(id), work);
            }
            RequestKind::Write => {
                self.uninitialized.wait(&mut self.cx, id, request);
            }
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                self.reply(id, Ok(()));
            }
            RequestKind::Flush => unreachable!("it is of no group"),
        }
    }

    /// These groups belong to a new volume.
    pub(crate) fn leave_uninitialized(&mut self, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            self.discards.forget(GroupId::range(first..first + count));
        }
        let next = self.log.next_sequence();
        for (id, _) in self.uninitialized.insert(runs, next) {
            self.reply(id, Err(Fault::Shutdown));
        }
    }

    /// Groups have been made blank, or could not be made blank.
    pub(crate) fn initialized(&mut self, groups: &Range<GroupId>, outcome: Outcome) {
        if outcome.is_ok() && self.check_here(groups.start).is_ok() {
            self.uninitialized.mark(&self.cx, groups.start);
        }
        for (id, request) in self.uninitialized.ended(groups, outcome) {
            match outcome {
                Ok(()) => self.begin_ops(id, request),
                Err(fault) => self.reply(id, Err(fault)),
            }
        }
    }

    /// One of the request's operations has ended.
    pub(crate) fn request_op_ended(&mut self, id: RequestId, outcome: Outcome) {
        match self.requests.op_ended(id, outcome) {
            Done::Pending => {}
            Done::Flush if self.flush_for(id) => {}
            Done::Flush => self.reply(id, Ok(())),
            Done::Reply(outcome) => self.reply(id, outcome),
        }
    }

    /// Flushes drives for a request; false if nothing needs a flush.
    fn flush_for(&mut self, request: RequestId) -> bool {
        self.retries.hold_flush(self.cx.now, request) || self.begin_flush(Waiter::Request(request))
    }

    /// The flush of a request has ended.
    pub(crate) fn flushed_for(&mut self, request: RequestId, outcome: Outcome) {
        match outcome {
            Ok(()) => self.retries.succeeded(&mut self.cx, Work::Flush),
            Err(fault) => self.retries.failed(&mut self.cx, Work::Flush, fault),
        }
        self.reply(request, outcome);
    }

    /// Time has passed: begins the flushes whose wait is over.
    pub(crate) fn begin_due_flushes(&mut self) {
        for request in self.retries.take_due_flushes(self.cx.now) {
            if !self.begin_flush(Waiter::Request(request)) {
                self.flushed_for(request, Ok(()));
            }
        }
    }

    pub(crate) fn reply(&mut self, id: RequestId, outcome: Outcome) {
        if self.room.is_on() && self.room.ended(&mut self.cx, id, outcome) {
            self.requests.begin_again(id);
            return;
        }
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.requests.reply(cx, ios, id, outcome);
    }
}
