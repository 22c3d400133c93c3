//! Requests: cut into operations, answered when the last of them has ended.

use std::ops::Range;

use block::{Fault, Outcome, RequestKind};

use super::backoff::Work;
use super::coalesce::{Coalescing, Part, Stripes};
use super::flush::Waiter;
use super::op::{Op, Owner, Prepared, Task};
use super::requests::Done;
use super::{Computing, Lane};
use crate::action::{BufferId, Compute, ComputeStep, Slice};
use crate::plan::Piece;
use crate::seeded::{self, Bug};
use crate::{GroupRequest, RequestId, Service};

/// Stripes that one operation zeroes at most: it holds all their locks at once.
const ZERO_STRIPES_MAX: u64 = 64;

/// From this length on, or if it has a stripe, a request is one of those that move much: shorter ones may pass it in the
/// log and at drives.
const BULK_BYTES: u64 = 128 << 10;

impl Lane {
    pub(super) fn begin_request(&mut self, id: RequestId, request: GroupRequest) {
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

    pub(super) fn begin_ops(&mut self, id: RequestId, request: GroupRequest) {
        let kind = request.request.kind;
        if kind == RequestKind::Write {
            self.uninitialized.written(&mut self.cx, request.group);
        }
        let ops = match kind {
            RequestKind::Read => return self.begin_read(id, &request),
            RequestKind::Write if Coalescing::takes(&self.cx.geometry, &request) => {
                return self.begin_write(id, &request);
            }
            RequestKind::Write => self.write_ops(id, &request, Some(id)),
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                self.zero_ops(id, &request)
            }
            RequestKind::Flush => unreachable!("handled above"),
        };
        if ops.is_empty() {
            self.reply(id, Ok(()));
            return;
        }
        self.requests.expect_ops(id, ops.len());
        let service = self.service_for(&request);
        for mut op in ops {
            op.service = service;
            self.start(op);
        }
    }

    /// What is written to each stripe waits for its neighbours.
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
            if seeded::is(Bug::CoalescedOverlap) {
                for part in before {
                    self.request_op_ended(part.request, Ok(()));
                }
            } else {
                self.begin_parts(stripe, before);
            }
        }
    }

    /// Writes that have waited for their neighbours begin.
    pub(super) fn begin_stripes(&mut self, stripes: Stripes) {
        for (stripe, parts) in stripes {
            self.begin_parts(stripe, parts);
        }
    }

    /// One operation for all of them, if there are any.
    fn begin_parts(&mut self, (group, stripe): (u64, u64), parts: Vec<Part>) {
        let Some(first) = parts.first() else {
            return;
        };
        let owner = Owner::Request(first.request);
        let mut bytes = 0;
        let mut sources = Vec::new();
        for part in &parts {
            bytes += part.bytes();
            let name = self.cx.fresh_scratch();
            let prepared = Prepared::new(&part.segments, Some(part.request), name);
            debug_assert!(prepared.staging.is_none(), "parts are whole blocks");
            sources.extend(prepared.sources);
        }
        sources.sort_unstable_by_key(|source| (source.slot, source.low));
        let task = Task::Write(Prepared::of(sources));
        let mut op = Op::new(owner, group, stripe..stripe + 1, task).of_data();
        op.service = Service::of_client(self.requests.volume(first.request), self.is_bulk(bytes));
        if parts.len() > 1 {
            op.parts = Some(parts.into());
        }
        op.occupies = true;
        self.coalescing.occupy((group, stripe));
        self.start(op);
    }

    /// An operation of several parts has ended.
    pub(super) fn parts_ended(
        &mut self,
        (group, stripe): (u64, u64),
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

    fn service_for(&self, request: &GroupRequest) -> Service {
        Service::of_client(request.volume, self.is_bulk(request.request.length))
    }

    /// Whether so many bytes are much.
    pub(super) fn is_bulk(&self, bytes: u64) -> bool {
        bytes >= BULK_BYTES.min(self.cx.geometry.stripe_data_bytes())
    }

    fn begin_read(&mut self, id: RequestId, request: &GroupRequest) {
        let stripes = self.cx.geometry.stripes(request);
        if stripes.is_empty() {
            self.reply(id, Ok(()));
            return;
        }
        self.requests.expect_ops(id, stripes.len());
        for (stripe, segments) in stripes {
            let pieces = segments
                .iter()
                .map(|segment| Piece {
                    slot: segment.slot,
                    low: segment.low,
                    slice: Slice {
                        buffer: BufferId::Request(id),
                        offset: segment.buffer_offset,
                        length: segment.high - segment.low,
                    },
                })
                .collect();
            let stripes = stripe..stripe + 1;
            let read = Task::Read(pieces);
            let op = Op::new(Owner::Request(id), request.group, stripes, read);
            let mut op = op.of_data();
            op.service = self.service_for(request);
            self.start(op);
        }
    }

    /// Operations that write the request's bytes, or zeros where `bytes` is `None`.
    fn write_ops(
        &mut self,
        id: RequestId,
        request: &GroupRequest,
        bytes: Option<RequestId>,
    ) -> Vec<Op> {
        let stripes = self.cx.geometry.stripes(request).into_iter();
        stripes
            .map(|(stripe, segments)| {
                let prepared = Prepared::new(&segments, bytes, self.cx.fresh_scratch());
                Op::new(
                    Owner::Request(id),
                    request.group,
                    stripe..stripe + 1,
                    Task::Write(prepared),
                )
                .of_data()
            })
            .collect()
    }

    /// Whole stripes are zeroed on the drives; what is left at both ends is written as zeros.
    fn zero_ops(&mut self, id: RequestId, request: &GroupRequest) -> Vec<Op> {
        let stripe_bytes = self.cx.geometry.stripe_data_bytes();
        let start = request.request.offset;
        let end = start + request.request.length;
        let first = start.div_ceil(stripe_bytes);
        let last = end / stripe_bytes;
        if first >= last {
            return self.write_ops(id, request, None);
        }
        let mut ops = Vec::new();
        for (low, high) in [(start, first * stripe_bytes), (last * stripe_bytes, end)] {
            let mut part = *request;
            part.request.offset = low;
            part.request.length = high - low;
            ops.extend(self.write_ops(id, &part, None));
        }
        let mut stripe = first;
        while stripe < last {
            let next = last.min(stripe + ZERO_STRIPES_MAX);
            let op = Op::new(Owner::Request(id), request.group, stripe..next, Task::Zero);
            ops.push(op.of_data());
            stripe = next;
        }
        ops
    }

    /// A request to a group that was never written.
    pub(super) fn begin_uninitialized(&mut self, id: RequestId, request: GroupRequest) {
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

    /// Groups of a volume that is new.
    pub(super) fn leave_uninitialized(&mut self, runs: &[(u64, u64)]) {
        for &(first, count) in runs {
            self.discards.forget(first..first + count);
        }
        for (id, _) in self.uninitialized.insert(runs) {
            self.reply(id, Err(Fault::Shutdown));
        }
    }

    /// Groups have been made blank, or could not be.
    pub(super) fn initialized(&mut self, groups: &Range<u64>, outcome: Outcome) {
        if outcome.is_ok() && self.check_here(groups.start).is_ok() {
            self.uninitialized.mark(groups.start);
        }
        for (id, request) in self.uninitialized.ended(groups, outcome) {
            match outcome {
                Ok(()) => self.begin_ops(id, request),
                Err(fault) => self.reply(id, Err(fault)),
            }
        }
    }

    /// One of the request's operations has ended.
    pub(super) fn request_op_ended(&mut self, id: RequestId, outcome: Outcome) {
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
    pub(super) fn flushed_for(&mut self, request: RequestId, outcome: Outcome) {
        match outcome {
            Ok(()) => self.retries.succeeded(&mut self.cx, Work::Flush),
            Err(fault) => self.retries.failed(&mut self.cx, Work::Flush, fault),
        }
        self.reply(request, outcome);
    }

    /// Time has passed: begins the flushes whose wait is over.
    pub(super) fn begin_due_flushes(&mut self) {
        for request in self.retries.take_due_flushes(self.cx.now) {
            if !self.begin_flush(Waiter::Request(request)) {
                self.flushed_for(request, Ok(()));
            }
        }
    }

    pub(super) fn reply(&mut self, id: RequestId, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        self.requests.reply(cx, ios, id, outcome);
    }
}
