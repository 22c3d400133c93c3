//! Neighbouring writes of clients become one operation on their stripe, and neighbouring stripes begin together.
//!
//! ```text
//!   requests   [ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ][ 64 KiB ]
//!   operations [             whole stripe             ][             whole stripe             ]
//!   on a drive [                        its chunks of both, as one                            ]
//! ```
//!
//! A page cache writes 64 KiB at a time, FUSE 128 KiB, and a request of 1 MiB rarely ends where a stripe does. Written one by
//! one, each part of a stripe would be logged with parity of its own, and wait for the stripe's lock until the part before it
//! is done; and each stripe would be an operation of its own on its drives. So long writes wait for their neighbours:
//!
//! - until everything of this moment has been told, as a batch of the log does; and
//! - while an operation of such writes has their stripe or the stripe before. They are part of a stream then, and the
//!   drives are busy with what comes first. Stripes that follow one another wait as one run.
//!
//! A run of [`RUN_BYTES`] begins at once, but for a stripe at its end that is not whole yet. A write that has no neighbours
//! waits for nothing but the end of the moment in which it came.
//!
//! Invariants:
//! - What waits has not begun: it is planned afterwards, by what holds then, and nothing of it is acknowledged.
//! - A stripe that waits after its moment follows, directly or over others that wait, an operation that does not wait for it.
//!   So its turn comes.
//! - The parts of an operation do not overlap.
//! - An operation of several parts that fails is done again part by part: each request hears what became of it alone.

use std::collections::BTreeMap;
use std::ops::Range;

use block::{BLOCK_BYTES, Instant, Outcome, RequestKind};

use super::Lane;
use super::op::{Op, Owner, Prepared, Task};
use crate::geometry::Segment;
use crate::seeded::{self, Bug};
use crate::{GroupRequest, RequestId, Service};

/// Shorter requests are not part of a stream, and somebody waits for them.
const PART_BYTES_MIN: u64 = 32 << 10;

/// A run of stripes that is so long begins at once: drives have long operations from it.
const RUN_BYTES: u64 = 1 << 20;

/// What one request writes to a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Part {
    request: RequestId,
    segments: Vec<Segment>,
}

impl Part {
    fn bytes(&self) -> u64 {
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

/// The parts of a stripe that wait.
#[derive(Clone, Debug, Default)]
struct Waiting {
    parts: Vec<Part>,
    bytes: u64,
}

/// Stripes, and what is to be written to each.
type Stripes = Vec<((u64, u64), Vec<Part>)>;

/// What waits for its neighbours.
#[derive(Clone, Debug, Default)]
pub(super) struct Coalescing {
    /// By group and stripe.
    stripes: BTreeMap<(u64, u64), Waiting>,
    /// There is something that waits for the end of this moment.
    due: Option<Instant>,
    /// How many operations of parts that have waited here are on each stripe of a group's data.
    occupied: BTreeMap<(u64, u64), u32>,
}

impl Coalescing {
    pub(super) fn is_idle(&self) -> bool {
        self.stripes.is_empty()
    }

    /// An operation on a stripe begins.
    fn occupy(&mut self, stripe: (u64, u64)) {
        *self.occupied.entry(stripe).or_default() += 1;
    }

    /// It has ended.
    fn leave(&mut self, stripe: (u64, u64)) {
        let count = self.occupied.get_mut(&stripe).expect("it was counted");
        *count -= 1;
        if *count == 0 {
            self.occupied.remove(&stripe);
        }
    }

    /// When what waits for the end of a moment begins.
    pub(super) const fn due_at(&self) -> Option<Instant> {
        self.due
    }

    /// Adds a part. Returns what overlaps with it and begins before it.
    fn add(&mut self, stripe: (u64, u64), part: Part) -> Vec<Part> {
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

    /// Takes what follows no operation, and runs that are long enough. A stripe of `whole` bytes lacks nothing; `is_free`
    /// says that no operation has it.
    fn take_ready(&mut self, whole: u64, is_free: impl Fn(u64, u64) -> bool) -> Stripes {
        let mut ready = Vec::new();
        let mut run = Run::default();
        for (&(group, stripe), waiting) in &self.stripes {
            let before = stripe.checked_sub(1).map(|before| (group, before));
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

    /// An operation has given back stripes: takes what waits for it. A stripe of `whole` bytes lacks nothing.
    fn take_unlocked(&mut self, group: u64, unlocked: Range<u64>, whole: u64) -> Stripes {
        let mut ready: Vec<(u64, u64)> = Vec::new();
        let mut last_bytes = whole;
        // The stripe behind the last one waits for it, too.
        let mut next = unlocked.end;
        let waiting = (group, unlocked.start)..(group, u64::MAX);
        for (&(_, stripe), waiting) in self.stripes.range(waiting) {
            if stripe > next {
                break;
            }
            next = next.max(stripe + 1);
            last_bytes = waiting.bytes;
            ready.push((group, stripe));
        }
        // A part at the end goes on waiting, for the stripe before it that begins now.
        if let [.., before, last] = ready[..]
            && last.1 == before.1 + 1
            && last_bytes < whole
        {
            ready.pop();
        }
        self.take(ready)
    }

    fn take(&mut self, stripes: Vec<(u64, u64)>) -> Stripes {
        let parts = stripes.into_iter().filter_map(|stripe| {
            let waiting = self.stripes.remove(&stripe)?;
            Some((stripe, waiting.parts))
        });
        parts.collect()
    }
}

/// Stripes that follow one another and wait for one operation.
#[derive(Default)]
struct Run {
    stripes: Vec<(u64, u64)>,
    bytes: u64,
    /// Of the last of them.
    last_bytes: u64,
}

impl Run {
    /// The stripes that begin if it is long enough: all but a part at the end.
    fn that_is_long(mut self, whole: u64) -> Vec<(u64, u64)> {
        if self.bytes < RUN_BYTES {
            return Vec::new();
        }
        if self.last_bytes < whole {
            self.stripes.pop();
        }
        self.stripes
    }
}

impl Lane {
    /// Whether what a request writes waits for its neighbours.
    pub(super) fn coalesces(&self, request: &GroupRequest) -> bool {
        let what = request.request;
        let least = PART_BYTES_MIN.min(self.cx.geometry.stripe_data_bytes() / 2);
        what.kind == RequestKind::Write
            && !what.fua
            && what.length >= least
            && (what.offset | what.length).is_multiple_of(BLOCK_BYTES)
    }

    /// A request writes to a stripe, or to a part of it.
    pub(super) fn coalesce(
        &mut self,
        request: RequestId,
        stripe: (u64, u64),
        segments: Vec<Segment>,
    ) {
        let before = self.coalescing.add(stripe, Part { request, segments });
        if seeded::is(Bug::CoalescedOverlap) {
            for part in before {
                self.request_op_ended(part.request, Ok(()));
            }
        } else {
            self.begin_parts(stripe, before);
        }
        self.coalescing.due = Some(self.cx.now);
    }

    /// Everything of the moment in which the parts came has been told.
    pub(super) fn coalescing_due(&mut self) {
        if self.coalescing.due.is_none_or(|due| due > self.cx.now) {
            return;
        }
        self.coalescing.due = None;
        let whole = self.cx.geometry.stripe_data_bytes();
        let occupied = std::mem::take(&mut self.coalescing.occupied);
        let is_free = |group, stripe| !occupied.contains_key(&(group, stripe));
        let ready = self.coalescing.take_ready(whole, is_free);
        self.coalescing.occupied = occupied;
        for (stripe, parts) in ready {
            self.begin_parts(stripe, parts);
        }
    }

    /// An operation of parts that had waited here has ended.
    pub(super) fn neighbours_ended(&mut self, op: &Op) {
        let stripe = op.data.expect("parts are of the group's data");
        self.coalescing.leave((op.group, stripe));
        if self.coalescing.is_idle() {
            return;
        }
        let whole = self.cx.geometry.stripe_data_bytes();
        for (stripe, parts) in self
            .coalescing
            .take_unlocked(op.group, stripe..stripe + 1, whole)
        {
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
        op.service = Service::of_client(self.volume_of(first.request), self.is_bulk(bytes));
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
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Stripes and requests of what is taken.
    fn said(stripes: Stripes) -> Vec<(u64, Vec<u64>)> {
        let requests = |parts: Vec<Part>| parts.iter().map(|part| part.request.0).collect();
        let stripes = stripes.into_iter();
        stripes
            .map(|((_, stripe), parts)| (stripe, requests(parts)))
            .collect()
    }

    #[test]
    fn what_overlaps_begins_before() {
        let mut coalescing = Coalescing::default();
        let stripe = (0, 7);
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
            coalescing.add((0, at), stripe(at));
        }
        // Operations have 2 and 6.
        let is_free = |_, at| at != 2 && at != 6;
        let taken = coalescing.take_ready(WHOLE, is_free);
        assert_eq!(said(taken), [(9, vec![9])]);
        assert_eq!(coalescing.take_unlocked(1, 0..9, WHOLE), []);
        assert_eq!(coalescing.take_unlocked(0, 0..2, WHOLE), []);
        assert_eq!(
            said(coalescing.take_unlocked(0, 2..3, WHOLE)),
            [(3, vec![3]), (4, vec![4])]
        );
        assert_eq!(
            said(coalescing.take_unlocked(0, 6..7, WHOLE)),
            [(6, vec![6])]
        );
        assert!(coalescing.is_idle());
    }

    #[test]
    fn a_long_run_begins_without_the_part_at_its_end() {
        let mut coalescing = Coalescing::default();
        let is_free = |_, at| at != 9;
        for at in 10..13 {
            coalescing.add((0, at), stripe(at));
        }
        assert_eq!(coalescing.take_ready(WHOLE, is_free), []);
        coalescing.add((0, 13), stripe(13));
        coalescing.add((0, 14), part(14, 0, 0, 10));
        let taken = said(coalescing.take_ready(WHOLE, is_free));
        let stripes: Vec<u64> = taken.into_iter().map(|(stripe, _)| stripe).collect();
        assert_eq!(stripes, [10, 11, 12, 13]);
        coalescing.add((0, 15), part(15, 0, 0, 10));
        let unlocked = said(coalescing.take_unlocked(0, 13..14, WHOLE));
        assert_eq!(unlocked, [(14, vec![14])]);
        let unlocked = said(coalescing.take_unlocked(0, 14..15, WHOLE));
        assert_eq!(unlocked, [(15, vec![15])]);
    }
}
