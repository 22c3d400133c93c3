//! Long writes that a lane's thread has not begun, because short requests come.
//!
//! ```text
//!   messages ─► short requests, answers of drives, … ────────────────► lanes
//!           └─► long writes ─► wait ──at the end of a turn, a part──►
//! ```
//!
//! A thread computes parity and checksums of the writes that it begins: for a mebibyte this takes half a millisecond
//! and more. A stream has several writes in flight, and with fast drives it waits for the thread. A commit comes to
//! the thread four times, with its request and with three answers of drives, and each time would wait for all writes
//! that the stream has submitted.
//!
//! Invariants:
//! - Beginning a request later is the same as if it had come later: requests without an answer have no order.
//! - Each turn begins one long write at least, and they begin in the order in which they came.

use std::collections::VecDeque;
use std::time::Duration;

use block::{Instant, RequestKind};

use super::lane::LaneMessage;

/// Writes of this many bytes are long. A page cache writes less at a time, and its writes are joined with their
/// neighbours of a turn.
const LONG_BYTES: u64 = 128 << 10;

/// Bytes of long writes that one turn begins while short requests come; at least one write begins.
const TURN_BYTES: u64 = 512 << 10;

/// After this long without a short request, no more are expected. Where they are rarer, they wait for drives rather
/// than for the thread.
const QUIET: Duration = Duration::from_millis(50);

/// Long writes that wait for short requests.
#[derive(Default)]
pub(super) struct LongWrites {
    waiting: VecDeque<LaneMessage>,
    /// When a short request last came.
    short_at: Option<Instant>,
}

/// The length of a read or write, and whether it is a write.
fn transfer(message: &LaneMessage) -> Option<(u64, bool)> {
    let LaneMessage::Request { request, .. } = message else {
        return None;
    };
    let request = request.request;
    match request.kind {
        RequestKind::Read => Some((request.length, false)),
        RequestKind::Write => Some((request.length, true)),
        _ => None,
    }
}

impl LongWrites {
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes a message; returns it unless it waits.
    pub(super) fn offer(&mut self, now: Instant, message: LaneMessage) -> Option<LaneMessage> {
        match transfer(&message) {
            Some((bytes, _)) if bytes < LONG_BYTES => self.short_at = Some(now),
            Some((_, true)) if self.limits(now) || !self.is_empty() => {
                self.waiting.push_back(message);
                return None;
            }
            _ => {}
        }
        Some(message)
    }

    fn limits(&self, now: Instant) -> bool {
        self.short_at.is_some_and(|at| now.since(at) <= QUIET)
    }

    /// The writes that a turn begins after it has taken all messages.
    pub(super) fn turn(&mut self, now: Instant) -> Vec<LaneMessage> {
        let limits = self.limits(now);
        let (mut begins, mut begun) = (Vec::new(), 0);
        while let Some((bytes, _)) = self.waiting.front().and_then(transfer) {
            if limits && begun > 0 && begun + bytes > TURN_BYTES {
                break;
            }
            begun += bytes;
            begins.extend(self.waiting.pop_front());
        }
        begins
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use array::format::GroupId;
    use array::{GroupRequest, VolumeId};
    use block::{Memory, Outcome, Request};

    use super::super::lane::{Answer, PartEnded};
    use super::*;

    const KIB: u64 = 1 << 10;
    const MS: Duration = Duration::from_millis(1);

    struct Unheard;

    impl PartEnded for Unheard {
        fn part_ended(&self, _: Outcome) -> Option<Answer> {
            None
        }
    }

    fn at(ms: u32) -> Instant {
        Instant::ZERO + ms * MS
    }

    fn request(kind: RequestKind, group: u64, length: u64) -> LaneMessage {
        LaneMessage::Request {
            lane: 0,
            request: GroupRequest {
                group: GroupId(group),
                request: Request {
                    kind,
                    offset: 0,
                    length,
                    fua: false,
                },
                buffer_offset: 0,
                volume: VolumeId::NONE,
            },
            memory: Memory::empty(),
            to: Arc::new(Unheard),
        }
    }

    fn write(group: u64, length: u64) -> LaneMessage {
        request(RequestKind::Write, group, length)
    }

    /// The groups of the long writes that a turn begins.
    fn turn(long: &mut LongWrites, now: Instant) -> Vec<u64> {
        let begins = long.turn(now).into_iter();
        begins
            .map(|message| match message {
                LaneMessage::Request { request, .. } => request.group.0,
                _ => unreachable!("only requests wait"),
            })
            .collect()
    }

    #[test]
    fn long_writes_pass_while_no_short_request_comes() {
        let mut long = LongWrites::default();
        for group in 0..8 {
            assert!(long.offer(at(1), write(group, 1024 * KIB)).is_some());
        }
        assert!(long.is_empty() && turn(&mut long, at(1)).is_empty());
    }

    #[test]
    fn beside_short_requests_a_turn_begins_some_and_one_at_least_in_order() {
        let mut long = LongWrites::default();
        assert!(long.offer(at(1), write(9, 4 * KIB)).is_some());
        let lengths = [1024, 128, 256, 128, 512, 2048];
        for (group, kib) in (0..).zip(lengths) {
            assert!(long.offer(at(1), write(group, kib * KIB)).is_none());
        }
        let turns: Vec<Vec<u64>> = (1..6).map(|ms| turn(&mut long, at(ms))).collect();
        assert_eq!(turns, [vec![0], vec![1, 2, 3], vec![4], vec![5], vec![]]);
    }

    #[test]
    fn all_that_waits_begins_when_short_requests_come_no_more_and_nothing_passes_it() {
        let mut long = LongWrites::default();
        assert!(
            long.offer(at(1), request(RequestKind::Read, 9, 4 * KIB))
                .is_some()
        );
        for group in 0..3 {
            assert!(long.offer(at(2), write(group, 1024 * KIB)).is_none());
        }
        assert_eq!(turn(&mut long, at(2)), [0]);
        assert!(long.offer(at(60), write(3, 1024 * KIB)).is_none());
        assert_eq!(turn(&mut long, at(60)), [1, 2, 3]);
        assert!(long.offer(at(60), write(4, 1024 * KIB)).is_some());
    }

    #[test]
    fn reads_and_requests_without_bytes_never_wait() {
        let mut long = LongWrites::default();
        long.offer(at(1), write(9, 4 * KIB));
        assert!(long.offer(at(1), write(0, 1024 * KIB)).is_none());
        for kind in [
            RequestKind::Read,
            RequestKind::Trim,
            RequestKind::WriteZeroes,
            RequestKind::Flush,
        ] {
            assert!(long.offer(at(1), request(kind, 1, 1024 * KIB)).is_some());
        }
        assert!(long.offer(at(1), LaneMessage::Stop).is_some());
    }
}
