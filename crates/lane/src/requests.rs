//! Client requests in flight. A request is answered when the last of its operations has ended.
//!
//! A request of several operations ends with the first fault of any of them, but not before all have ended: its memory
//! is in use until then. A request that must be durable (FUA) is flushed after its operations have ended well.

use std::collections::BTreeMap;

use block::{Fault, Outcome, Request, RequestKind};
use format::VolumeId;
use format::seeded::{self, SeededFault};
use plan::action::{Action, Reply, Slice};
use plan::{RequestId, ScratchId};

use super::context::Context;
use super::io::IoTable;
use super::op::BounceBuffer;

/// A request in flight.
#[derive(Clone, Debug)]
struct Pending {
    kind: RequestKind,
    volume: VolumeId,
    fua: bool,
    /// The number of operations that have not ended.
    ops: u64,
    fault: Option<Fault>,
    /// Bytes that are not in the request's memory: where they belong, and where they are.
    elsewhere: Vec<(Slice, Slice)>,
    /// The bounce buffers that hold these bytes.
    bounce_buffers: Vec<ScratchId>,
}

/// The next step of a request when one of its operations has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// Other operations are in flight.
    Pending,
    /// The request is answered.
    Reply(Outcome),
    /// The request's writes are flushed before the answer.
    Flush,
}

/// The requests of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Requests {
    pending: BTreeMap<RequestId, Pending>,
}

impl Requests {
    /// Adds a request.
    ///
    /// # Panics
    /// When a request of this name is in flight.
    pub(super) fn begin(&mut self, id: RequestId, what: Request, volume: VolumeId) {
        let pending = Pending {
            kind: what.kind,
            volume,
            fua: what.fua,
            ops: 0,
            fault: None,
            elsewhere: Vec::new(),
            bounce_buffers: Vec::new(),
        };
        let previous = self.pending.insert(id, pending);
        assert!(previous.is_none(), "request {id:?} is already in flight");
    }

    fn pending(&mut self, id: RequestId) -> &mut Pending {
        let pending = self.pending.get_mut(&id);
        pending.expect("a request lives until its last operation")
    }

    /// The request is answered when so many operations have ended.
    pub(super) fn expect_ops(&mut self, id: RequestId, ops: usize) {
        self.pending(id).ops = ops as u64;
    }

    /// The request has so many more operations to wait for.
    pub(super) fn expect_more_ops(&mut self, id: RequestId, ops: u64) {
        self.pending(id).ops += ops;
    }

    /// The request begins once more: none of its operations is in flight.
    pub(super) fn begin_again(&mut self, id: RequestId) {
        self.pending(id).fault = None;
    }

    /// One of its operations has ended.
    pub(super) fn op_ended(&mut self, id: RequestId, outcome: Outcome) -> Done {
        let pending = self.pending(id);
        pending.ops -= 1;
        if let (None, Err(fault)) = (pending.fault, outcome) {
            pending.fault = Some(fault);
        }
        let flush = pending.fua && pending.kind.mutates();
        let flush = flush && !seeded::is(SeededFault::FuaWithoutFlush);
        match (pending.ops, pending.fault) {
            (1.., _) => Done::Pending,
            (0, Some(fault)) => Done::Reply(Err(fault)),
            (0, None) if flush => Done::Flush,
            (0, None) => Done::Reply(Ok(())),
        }
    }

    /// A read of a request has its bytes in a bounce buffer, part by part at `now`, and not where they belong.
    pub(super) fn bytes_elsewhere(
        &mut self,
        id: RequestId,
        buffer: BounceBuffer,
        now: impl Iterator<Item = Slice>,
    ) {
        let pending = self.pending(id);
        pending.elsewhere.extend(buffer.home.into_iter().zip(now));
        pending.bounce_buffers.push(buffer.scratch);
    }

    /// Answers a request.
    pub(super) fn reply(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        id: RequestId,
        outcome: Outcome,
    ) {
        let pending = self.pending.remove(&id);
        let Pending {
            mut elsewhere,
            bounce_buffers,
            ..
        } = pending.expect("only a pending request is answered");
        if outcome.is_err() {
            elsewhere.clear();
        }
        cx.actions.push_back(Action::Reply(Reply {
            request: id,
            outcome,
            elsewhere,
        }));
        for scratch in bounce_buffers {
            ios.release(cx, scratch);
        }
    }

    /// The kind of the client's request, for reports.
    pub(super) fn kind(&self, id: RequestId) -> RequestKind {
        self.pending[&id].kind
    }

    /// The volume of the request.
    pub(super) fn volume(&self, id: RequestId) -> VolumeId {
        self.pending[&id].volume
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use plan::BufferId;

    use super::*;

    const MEDIUM: Outcome = Err(Fault::Medium);

    fn slice(buffer: BufferId, offset: u64) -> Slice {
        Slice {
            buffer,
            offset,
            length: 4096,
        }
    }

    /// Request 1, with so many operations.
    fn begun(kind: RequestKind, fua: bool, ops: usize) -> Requests {
        let mut requests = Requests::default();
        let what = Request {
            kind,
            offset: 0,
            length: 1 << 20,
            fua,
        };
        requests.begin(RequestId(1), what, VolumeId(7));
        requests.expect_ops(RequestId(1), ops);
        requests
    }

    fn reply(requests: &mut Requests, outcome: Outcome) -> Vec<Action> {
        let mut cx = Context::of_test("raid6", 6);
        let mut ios = IoTable::new(6);
        requests.reply(&mut cx, &mut ios, RequestId(1), outcome);
        cx.take_actions()
    }

    #[test]
    fn it_is_answered_when_the_last_operation_has_ended() {
        let mut requests = begun(RequestKind::Read, false, 3);
        for _ in 0..2 {
            assert_eq!(requests.op_ended(RequestId(1), Ok(())), Done::Pending);
        }
        let done = requests.op_ended(RequestId(1), Ok(()));
        assert_eq!(done, Done::Reply(Ok(())));
    }

    #[test]
    fn it_ends_with_the_first_fault_and_not_before_all_have_ended() {
        let mut requests = begun(RequestKind::Write, true, 3);
        assert_eq!(requests.op_ended(RequestId(1), MEDIUM), Done::Pending);
        let other = requests.op_ended(RequestId(1), Err(Fault::Lost));
        assert_eq!(other, Done::Pending);
        let done = requests.op_ended(RequestId(1), Ok(()));
        assert_eq!(done, Done::Reply(MEDIUM), "and nothing is flushed for it");
    }

    #[test]
    fn what_must_be_durable_is_flushed_before() {
        for kind in [RequestKind::Write, RequestKind::WriteZeroes] {
            let mut requests = begun(kind, true, 1);
            assert_eq!(requests.op_ended(RequestId(1), Ok(())), Done::Flush);
        }
    }

    #[test]
    fn a_read_flushes_nothing() {
        let mut requests = begun(RequestKind::Read, true, 1);
        let done = requests.op_ended(RequestId(1), Ok(()));
        assert_eq!(done, Done::Reply(Ok(())));
    }

    #[test]
    fn an_answer_ends_the_request() {
        let mut requests = begun(RequestKind::Read, false, 1);
        assert!(!requests.is_empty());
        let answer = Reply {
            request: RequestId(1),
            outcome: MEDIUM,
            elsewhere: Vec::new(),
        };
        assert_eq!(reply(&mut requests, MEDIUM), [Action::Reply(answer)]);
        assert!(requests.is_empty());
    }

    #[test]
    fn bytes_in_a_bounce_buffer_are_named_before_it_is_released() {
        let mut requests = begun(RequestKind::Read, false, 1);
        let (home, scratch) = (BufferId::Request(RequestId(1)), ScratchId(5));
        let there = [slice(home, 0), slice(home, 8192)];
        let now = [0, 4096].map(|at| slice(BufferId::Scratch(scratch), at));
        let buffer = BounceBuffer {
            scratch,
            home: there.to_vec(),
        };
        requests.bytes_elsewhere(RequestId(1), buffer, now.into_iter());
        let answer = Reply {
            request: RequestId(1),
            outcome: Ok(()),
            elsewhere: vec![(there[0], now[0]), (there[1], now[1])],
        };
        let actions = reply(&mut requests, Ok(()));
        assert_eq!(actions, [Action::Reply(answer), Action::Release(scratch)]);
    }

    #[test]
    fn the_bytes_of_a_failed_request_are_nowhere() {
        let mut requests = begun(RequestKind::Read, false, 1);
        let (home, scratch) = (BufferId::Request(RequestId(1)), ScratchId(5));
        let buffer = BounceBuffer {
            scratch,
            home: vec![slice(home, 0)],
        };
        let now = std::iter::once(slice(BufferId::Scratch(scratch), 0));
        requests.bytes_elsewhere(RequestId(1), buffer, now);
        let actions = reply(&mut requests, MEDIUM);
        assert!(matches!(&actions[0], Action::Reply(reply) if reply.elsewhere.is_empty()));
        assert_eq!(actions[1], Action::Release(scratch));
    }

    #[test]
    fn an_operation_may_become_several() {
        let mut requests = begun(RequestKind::Trim, false, 1);
        requests.expect_more_ops(RequestId(1), 2);
        for _ in 0..2 {
            assert_eq!(requests.op_ended(RequestId(1), Ok(())), Done::Pending);
        }
        let done = requests.op_ended(RequestId(1), Ok(()));
        assert_eq!(done, Done::Reply(Ok(())));
    }

    #[test]
    fn reports_name_what_the_client_asked_for() {
        let requests = begun(RequestKind::Trim, false, 1);
        let named = (requests.kind(RequestId(1)), requests.volume(RequestId(1)));
        assert_eq!(named, (RequestKind::Trim, VolumeId(7)));
    }

    #[test]
    #[should_panic(expected = "already in flight")]
    fn a_name_is_used_once_at_a_time() {
        let what = Request {
            kind: RequestKind::Read,
            offset: 0,
            length: 4096,
            fua: false,
        };
        begun(RequestKind::Read, false, 1).begin(RequestId(1), what, VolumeId(7));
    }
}
