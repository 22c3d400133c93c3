//! Neighbouring writes of clients become one operation on their stripe, and neighbouring stripes begin together.
//!
//! ```text
//!   requests   [ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ]
//!   operations [             whole stripe             ][             whole stripe             ]
//!   on a drive [                        its chunks of both, as one                            ]
//! ```
//!
//! A page cache writes 64 KiB at a time, FUSE 128 KiB, and a request of 1 MiB rarely ends where a stripe does. Written
//! one by one, each part of a stripe would be logged with parity of its own, and would wait for the stripe's lock until
//! the part before it is done. Each stripe would also be an operation of its own on its drives. So long writes wait for
//! their neighbours:
//!
//! - until all inputs of the same moment have been delivered, as a batch of the log does; and
//! - while an operation of such writes has their stripe or the stripe before. The writes are part of a stream then, and
//!   the drives are busy with the earlier parts. Consecutive stripes wait as one run.
//!
//! A run of [`RUN_BYTES`] begins at once, except for an incomplete stripe at its end. A write without neighbours waits
//! only until the end of the moment in which it came.
//!
//! Invariants:
//! - A waiting write has not begun: it is planned later, by the state of that time, and nothing of it is acknowledged.
//! - A stripe that waits after its moment follows, directly or over other waiting stripes, an operation that does not
//!   wait for it. So every stripe begins in the end.
//! - The parts of an operation do not overlap.
//! - If an operation of several parts fails, each part is tried again as an operation of its own: each request gets the
//!   outcome of its own part.

use std::collections::BTreeMap;
use std::ops::Range;

use block::{BLOCK_BYTES, Instant, RequestKind};
use format::{DataStripe, GroupId};
use plan::geometry::Segment;
use plan::{Geometry, GroupRequest, RequestId};

/// Shorter requests do not wait: they are not part of a stream, and a client waits for them.
const PART_BYTES_MIN: u64 = 32 << 10;

/// A run of stripes of this length begins at once: it already gives drives long operations.
const RUN_BYTES: u64 = 1 << 20;

/// A request's part of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) request: RequestId,
    pub(super) segments: Vec<Segment>,
}

impl Part {
    pub(super) fn bytes(&self) -> u64 {
        let lengths = self
            .segments
            .iter()
            .map(|segment| segment.high - segment.low);
        lengths.sum()
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.segments.iter().any(|a| {
            let mut others = other.segments.iter();
            others.any(|b| a.slot == b.slot && a.low < b.high && b.low < a.high)
        })
    }
}

/// The waiting parts of a stripe.
#[derive(Clone, Debug, Default)]
struct Waiting {
    parts: Vec<Part>,
    bytes: u64,
}

/// Stripes, and the parts to be written to each.
pub(super) type Stripes = Vec<((GroupId, DataStripe), Vec<Part>)>;

/// Writes that wait for their neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalescing {
    /// By group and stripe of its data.
    stripes: BTreeMap<(GroupId, DataStripe), Waiting>,
    /// Set while something waits for the end of this moment.
    due: Option<Instant>,
    /// The number of operations in flight, made of parts that waited here, on each stripe of a group's data.
    occupied: BTreeMap<(GroupId, DataStripe), u32>,
}

impl Coalescing {
    pub(super) fn is_idle(&self) -> bool {
        self.stripes.is_empty()
    }

    /// True if a write waits for its neighbours: a long write of whole blocks.
    pub(super) fn takes(geometry: &Geometry, request: &GroupRequest) -> bool {
        let what = request.request;
        let least = PART_BYTES_MIN.min(geometry.stripe_data_bytes() / 2);
        what.kind == RequestKind::Write
            && !what.fua
            && what.length >= least
            && (what.offset | what.length).is_multiple_of(BLOCK_BYTES)
    }

    /// Adds a request's part of a stripe to the waiting parts. Returns the parts that must begin before it, because
    /// they overlap.
    pub(super) fn coalesce(
        &mut self,
        now: Instant,
        request: RequestId,
        stripe: (GroupId, DataStripe),
        segments: Vec<Segment>,
    ) -> Vec<Part> {
        self.due = Some(now);
        self.add(stripe, Part { request, segments })
    }

    /// All inputs of the moment in which the parts came have been delivered: returns the stripes that begin now.
    /// `whole`: bytes of a stripe.
    pub(super) fn take_due(&mut self, now: Instant, whole: u64) -> Stripes {
        if self.due.is_none_or(|due| due > now) {
            return Vec::new();
        }
        self.due = None;
        let occupied = std::mem::take(&mut self.occupied);
        let is_free = |group, stripe| !occupied.contains_key(&(group, stripe));
        let ready = self.take_ready(whole, is_free);
        self.occupied = occupied;
        ready
    }

    /// An operation on a stripe has ended: returns the stripes that waited for it, which begin now.
    pub(super) fn ended(&mut self, (group, stripe): (GroupId, DataStripe), whole: u64) -> Stripes {
        self.leave((group, stripe));
        match self.is_idle() {
            true => Vec::new(),
            false => self.take_unlocked(group, stripe..stripe.next(), whole),
        }
    }

    /// An operation of parts that waited here begins on a stripe.
    pub(super) fn occupy(&mut self, stripe: (GroupId, DataStripe)) {
        *self.occupied.entry(stripe).or_default() += 1;
    }

    /// An operation on a stripe has ended.
    fn leave(&mut self, stripe: (GroupId, DataStripe)) {
        let count = self.occupied.get_mut(&stripe).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.occupied.remove(&stripe);
        }
    }

    /// When the parts begin that wait for the end of a moment.
    pub(super) const fn due_at(&self) -> Option<Instant> {
        self.due
    }

    /// Adds a part. Returns the parts that overlap with it and begin before it.
    fn add(&mut self, stripe: (GroupId, DataStripe), part: Part) -> Vec<Part> {
        let waiting = self.stripes.entry(stripe).or_default();
        let overlaps = waiting.parts.iter().any(|other| other.overlaps(&part));
        let before = match overlaps {
            true => std::mem::take(waiting).parts,
            false => Vec::new(),
        };
        waiting.bytes += part.bytes();
        waiting.parts.push(part);
        before
    }

    /// Takes the stripes that follow no operation, and the runs that are long enough. A stripe of `whole` bytes is
    /// complete; `is_free` is true of a stripe that no operation has.
    fn take_ready(&mut self, whole: u64, is_free: impl Fn(GroupId, DataStripe) -> bool) -> Stripes {
        let mut ready = Vec::new();
        let mut run = Run::default();
        for (&(group, stripe), waiting) in &self.stripes {
            let before = stripe.0.checked_sub(1);
            let before = before.map(|before| (group, DataStripe(before)));
            let continues = before.is_some() && run.stripes.last().copied() == before;
            if !continues {
                ready.extend(std::mem::take(&mut run).that_is_long(whole));
            }
            let behind = continues
                || !is_free(group, stripe)
                || before.is_some_and(|(group, before)| !is_free(group, before));
            if behind {
                run.stripes.push((group, stripe));
                run.bytes += waiting.bytes;
                run.last_bytes = waiting.bytes;
            } else {
                ready.push((group, stripe));
            }
        }
        ready.extend(run.that_is_long(whole));
        self.take(ready)
    }

    /// An operation has released stripes: takes the stripes that waited for it. A stripe of `whole` bytes is complete.
    fn take_unlocked(
        &mut self,
        group: GroupId,
        unlocked: Range<DataStripe>,
        whole: u64,
    ) -> Stripes {
        let mut ready: Vec<(GroupId, DataStripe)> = Vec::new();
        let mut last_bytes = whole;
        // The stripe after the last one waited for it, too.
        let mut next = unlocked.end;
        let waiting = (group, unlocked.start)..(group, DataStripe(u64::MAX));
        for (&(_, stripe), waiting) in self.stripes.range(waiting) {
            if stripe > next {
                break;
            }
            next = next.max(stripe.next());
            last_bytes = waiting.bytes;
            ready.push((group, stripe));
        }
        // An incomplete stripe at the end goes on waiting, for the stripe before it that begins now.
        if let [.., before, last] = ready[..]
            && last.1 == before.1.next()
            && last_bytes < whole
        {
            ready.pop();
        }
        self.take(ready)
    }

    fn take(&mut self, stripes: Vec<(GroupId, DataStripe)>) -> Stripes {
        let parts = stripes.into_iter().filter_map(|stripe| {
            let waiting = self.stripes.remove(&stripe)?;
            Some((stripe, waiting.parts))
        });
        parts.collect()
    }
}

/// Consecutive stripes that wait for one operation.
#[derive(Default)]
struct Run {
    stripes: Vec<(GroupId, DataStripe)>,
    bytes: u64,
    /// Bytes of the last stripe.
    last_bytes: u64,
}

impl Run {
    /// The stripes that begin if the run is long enough: all but an incomplete stripe at the end.
    fn that_is_long(mut self, whole: u64) -> Vec<(GroupId, DataStripe)> {
        if self.bytes < RUN_BYTES {
            return Vec::new();
        }
        if self.last_bytes < whole {
            self.stripes.pop();
        }
        self.stripes
    }
}

#[cfg(test)]
mod tests {
    use block::Request;
    use format::VolumeId;

    use super::*;
    use crate::context::Context;

    fn part(request: u64, slot: usize, low: u64, high: u64) -> Part {
        let segment = Segment {
            slot,
            low,
            high,
            buffer_offset: 0,
        };
        Part {
            request: RequestId(request),
            segments: vec![segment],
        }
    }

    const WHOLE: u64 = RUN_BYTES / 4;

    fn stripe(request: u64) -> Part {
        part(request, 0, 0, WHOLE)
    }

    /// Stripes and requests that were taken.
    fn said(stripes: Stripes) -> Vec<(u64, Vec<u64>)> {
        let requests = |parts: Vec<Part>| parts.iter().map(|part| part.request.0).collect();
        let stripes = stripes.into_iter();
        stripes
            .map(|((_, stripe), parts)| (stripe.0, requests(parts)))
            .collect()
    }

    #[test]
    fn what_overlaps_begins_before() {
        let mut coalescing = Coalescing::default();
        let stripe = (GroupId(0), DataStripe(7));
        assert_eq!(coalescing.add(stripe, part(1, 0, 0, 10)), []);
        assert_eq!(coalescing.add(stripe, part(2, 1, 0, 5)), []);
        let before = coalescing.add(stripe, part(3, 1, 4, 10));
        assert_eq!(said(vec![(stripe, before)]), [(7, vec![1, 2])]);
        assert_eq!(coalescing.add(stripe, part(4, 1, 0, 4)), []);
        let taken = coalescing.take_ready(20, |_, _| true);
        assert_eq!(said(taken), [(7, vec![3, 4])]);
        assert!(coalescing.is_idle());
    }

    #[test]
    fn what_follows_an_operation_waits_until_it_has_ended() {
        let mut coalescing = Coalescing::default();
        for at in [3, 4, 6, 9] {
            coalescing.add((GroupId(0), DataStripe(at)), stripe(at));
        }
        // Operations are on stripes 2 and 6.
        let is_free = |_, at| at != DataStripe(2) && at != DataStripe(6);
        let taken = coalescing.take_ready(WHOLE, is_free);
        assert_eq!(said(taken), [(9, vec![9])]);
        assert_eq!(
            coalescing.take_unlocked(GroupId(1), DataStripe::range(0..9), WHOLE),
            []
        );
        assert_eq!(
            coalescing.take_unlocked(GroupId(0), DataStripe::range(0..2), WHOLE),
            []
        );
        assert_eq!(
            said(coalescing.take_unlocked(GroupId(0), DataStripe::range(2..3), WHOLE)),
            [(3, vec![3]), (4, vec![4])]
        );
        assert_eq!(
            said(coalescing.take_unlocked(GroupId(0), DataStripe::range(6..7), WHOLE)),
            [(6, vec![6])]
        );
        assert!(coalescing.is_idle());
    }

    #[test]
    fn a_long_run_begins_without_the_part_at_its_end() {
        let mut coalescing = Coalescing::default();
        let is_free = |_, at| at != DataStripe(9);
        for at in 10..13 {
            coalescing.add((GroupId(0), DataStripe(at)), stripe(at));
        }
        assert_eq!(coalescing.take_ready(WHOLE, is_free), []);
        coalescing.add((GroupId(0), DataStripe(13)), stripe(13));
        coalescing.add((GroupId(0), DataStripe(14)), part(14, 0, 0, 10));
        let taken = said(coalescing.take_ready(WHOLE, is_free));
        let stripes: Vec<u64> = taken.into_iter().map(|(stripe, _)| stripe).collect();
        assert_eq!(stripes, [10, 11, 12, 13]);
        coalescing.add((GroupId(0), DataStripe(15)), part(15, 0, 0, 10));
        let unlocked = said(coalescing.take_unlocked(GroupId(0), DataStripe::range(13..14), WHOLE));
        assert_eq!(unlocked, [(14, vec![14])]);
        let unlocked = said(coalescing.take_unlocked(GroupId(0), DataStripe::range(14..15), WHOLE));
        assert_eq!(unlocked, [(15, vec![15])]);
    }

    /// A write of one stripe waits.
    fn waits(coalescing: &mut Coalescing, now: u64, at: u64) -> Vec<Part> {
        coalescing.coalesce(
            Instant(now),
            RequestId(at),
            (GroupId(0), DataStripe(at)),
            stripe(at).segments,
        )
    }

    #[test]
    fn what_waits_begins_at_the_end_of_its_moment() {
        let mut coalescing = Coalescing::default();
        assert_eq!(coalescing.due_at(), None);
        assert!(waits(&mut coalescing, 5, 3).is_empty());
        assert_eq!(coalescing.due_at(), Some(Instant(5)));
        assert!(coalescing.take_due(Instant(4), WHOLE).is_empty());
        let due = said(coalescing.take_due(Instant(5), WHOLE));
        assert_eq!(due, [(3, vec![3])]);
        assert_eq!((coalescing.due_at(), coalescing.is_idle()), (None, true));
    }

    #[test]
    fn a_stream_waits_for_the_operation_before_it() {
        let mut coalescing = Coalescing::default();
        coalescing.occupy((GroupId(0), DataStripe(2)));
        for at in [3, 4] {
            waits(&mut coalescing, 5, at);
        }
        assert!(coalescing.take_due(Instant(5), WHOLE).is_empty());
        let began = said(coalescing.ended((GroupId(0), DataStripe(2)), WHOLE));
        assert_eq!(began, [(3, vec![3]), (4, vec![4])]);
    }

    #[test]
    fn a_stripe_is_free_when_the_last_of_its_operations_has_ended() {
        let mut coalescing = Coalescing::default();
        coalescing.occupy((GroupId(0), DataStripe(3)));
        coalescing.occupy((GroupId(0), DataStripe(3)));
        waits(&mut coalescing, 5, 4);
        assert!(coalescing.take_due(Instant(5), WHOLE).is_empty());
        // A stripe that waited for one of the operations does not wait for the other.
        assert_eq!(
            said(coalescing.ended((GroupId(0), DataStripe(3)), WHOLE)),
            [(4, vec![4])]
        );
        waits(&mut coalescing, 6, 4);
        assert!(coalescing.take_due(Instant(6), WHOLE).is_empty());
        assert_eq!(
            said(coalescing.ended((GroupId(0), DataStripe(3)), WHOLE)),
            [(4, vec![4])]
        );
    }

    #[test]
    fn operations_of_another_group_are_not_waited_for() {
        let mut coalescing = Coalescing::default();
        coalescing.occupy((GroupId(1), DataStripe(2)));
        waits(&mut coalescing, 5, 3);
        let due = said(coalescing.take_due(Instant(5), WHOLE));
        assert_eq!(due, [(3, vec![3])]);
        assert!(
            coalescing
                .ended((GroupId(1), DataStripe(2)), WHOLE)
                .is_empty()
        );
    }

    #[test]
    fn parts_of_one_stripe_begin_together() {
        let mut coalescing = Coalescing::default();
        for (request, slot) in [(1, 0), (2, 1), (3, 2)] {
            let part = part(request, slot, 0, 10);
            let before = coalescing.coalesce(
                Instant(5),
                part.request,
                (GroupId(0), DataStripe(7)),
                part.segments,
            );
            assert!(before.is_empty());
        }
        let due = said(coalescing.take_due(Instant(5), WHOLE));
        assert_eq!(due, [(7, vec![1, 2, 3])]);
    }

    #[test]
    fn only_long_writes_of_whole_blocks_wait() {
        let geometry = Context::of_test("raid6", 6).geometry;
        let takes = |kind, offset, length, fua| {
            let request = Request {
                kind,
                offset,
                length,
                fua,
            };
            let request = GroupRequest {
                group: GroupId(0),
                request,
                buffer_offset: 0,
                volume: VolumeId::NONE,
            };
            Coalescing::takes(&geometry, &request)
        };
        let long = PART_BYTES_MIN;
        assert!(takes(RequestKind::Write, 4096, long, false));
        assert!(!takes(RequestKind::Read, 4096, long, false));
        assert!(
            !takes(RequestKind::Write, 4096, long, true),
            "it is awaited"
        );
        assert!(!takes(RequestKind::Write, 4096, long - 4096, false));
        assert!(!takes(RequestKind::Write, 512, long, false));
        assert!(!takes(RequestKind::Write, 4096, long + 512, false));
    }
}
