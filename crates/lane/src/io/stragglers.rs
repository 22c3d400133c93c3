//! Abandoned operations that drives have not answered.
//!
//! A *straggler* is still with its drive, which may yet write into the memory of the operation. So scratch memory is
//! released only when its last straggler has ended, and nothing is read into it again before. A request whose memory
//! has a straggler is answered from a bounce buffer (`lane/ops/bounce.rs`). A drive that is out is drained when its
//! last straggler has ended: it must not return before.

use std::collections::BTreeMap;

use block::Seat;
use format::PageName;
use plan::ScratchId;
use plan::action::{Action, BufferId, Event, IoId, Slice};

use crate::context::Context;

/// Abandoned operations, and the memory that they use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stragglers {
    in_flight: BTreeMap<IoId, (Seat, Option<Slice>)>,
    /// Stragglers that read copies of pages.
    copies: BTreeMap<IoId, Vec<PageName>>,
    /// Scratch memory to be released when no straggler is in it.
    kept: Vec<ScratchId>,
    /// Drives that are out and have not answered all operations, each with the number of times that it has gone out
    /// since.
    draining: BTreeMap<Seat, u32>,
}

/// A straggler that its drive has answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Late {
    pub(crate) seat: Seat,
    /// Pages whose copies it was to read.
    pub(crate) copies: Vec<PageName>,
}

fn overlap(a: Slice, b: Slice) -> bool {
    a.buffer == b.buffer && a.offset < b.offset + b.length && b.offset < a.offset + a.length
}

impl Stragglers {
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// True if a drive still has stragglers.
    fn are_with(&self, seat: Seat) -> bool {
        self.in_flight.values().any(|&(other, _)| other == seat)
    }

    /// True if a drive may still write into a buffer.
    pub(crate) fn hold(&self, buffer: BufferId) -> bool {
        let slices = self.in_flight.values().filter_map(|&(_, slice)| slice);
        slices.map(|slice| slice.buffer).any(|held| held == buffer)
    }

    /// True if a drive may still write into part of a slice.
    pub(crate) fn touch(&self, slice: Slice) -> bool {
        let mut slices = self.in_flight.values().filter_map(|&(_, slice)| slice);
        slices.any(|held| overlap(held, slice))
    }

    /// An operation that a drive has is abandoned.
    pub(super) fn insert(&mut self, id: IoId, seat: Seat, slice: Option<Slice>) {
        self.in_flight.insert(id, (seat, slice));
    }

    /// An abandoned operation reads copies of these pages.
    pub(super) fn insert_copies(&mut self, id: IoId, names: Vec<PageName>) {
        self.copies.insert(id, names);
    }

    /// A drive has answered an abandoned operation. Then [`came_back`](Self::came_back).
    ///
    /// # Panics
    /// When it was never in flight.
    pub(super) fn ended(&mut self, id: IoId) -> Late {
        let known = self.in_flight.remove(&id);
        let (seat, _) = known.unwrap_or_else(|| panic!("{id:?} is in flight"));
        let copies = self.copies.remove(&id).unwrap_or_default();
        Late { seat, copies }
    }

    /// After the end of a straggler: releases its memory, and reports its drive as drained if that was the last.
    pub(super) fn came_back(&mut self, cx: &mut Context) {
        for scratch in std::mem::take(&mut self.kept) {
            self.release(cx, scratch);
        }
        self.report_drained(cx);
    }

    /// Releases scratch memory as soon as no straggler is in it.
    pub(super) fn release(&mut self, cx: &mut Context, scratch: ScratchId) {
        if !self.is_empty() && self.hold(BufferId::Scratch(scratch)) {
            self.kept.push(scratch);
        } else {
            cx.actions.push_back(Action::Release(scratch));
        }
    }

    /// A drive is out. It must not return while an operation that was submitted to it before may still be carried out.
    pub(super) fn drain(&mut self, cx: &mut Context, seat: Seat) {
        *self.draining.entry(seat).or_default() += 1;
        self.report_drained(cx);
    }

    /// Reports drives that have answered all operations that were submitted before they were out.
    fn report_drained(&mut self, cx: &mut Context) {
        let drained = |seat: &Seat| !self.are_with(*seat);
        let drained: Vec<Seat> = self.draining.keys().copied().filter(drained).collect();
        for seat in drained {
            let times = self.draining.remove(&seat).unwrap_or(0);
            let lane = cx.lane;
            cx.events
                .extend((0..times).map(|_| Event::SeatDrained { lane, seat }));
        }
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, GroupId};

    use super::*;

    const LENGTH: u64 = 8192;

    fn slice(scratch: u64, offset: u64) -> Slice {
        Slice {
            buffer: BufferId::Scratch(ScratchId(scratch)),
            offset,
            length: LENGTH,
        }
    }

    /// A lane, and stragglers 1, 2 … of these (seat, scratch memory).
    fn with(there: &[(u16, u64)]) -> (Stragglers, Context) {
        let mut stragglers = Stragglers::default();
        for (id, &(seat, scratch)) in (1..).zip(there) {
            stragglers.insert(IoId(id), Seat(seat), Some(slice(scratch, 0)));
        }
        (stragglers, Context::of_test("raid6", 6))
    }

    fn ended(stragglers: &mut Stragglers, cx: &mut Context, id: u64) -> Late {
        let late = stragglers.ended(IoId(id));
        stragglers.came_back(cx);
        late
    }

    fn released(cx: &mut Context) -> Vec<u64> {
        let actions = cx.take_actions().into_iter();
        actions
            .map(|action| match action {
                Action::Release(scratch) => scratch.0,
                other => panic!("{other:?} gives back nothing"),
            })
            .collect()
    }

    fn drained(seat: u16) -> Event {
        Event::SeatDrained {
            lane: 0,
            seat: Seat(seat),
        }
    }

    #[test]
    fn memory_without_stragglers_is_given_back_at_once() {
        let (mut stragglers, mut cx) = with(&[(1, 7)]);
        stragglers.release(&mut cx, ScratchId(8));
        assert_eq!(released(&mut cx), [8]);
    }

    #[test]
    fn memory_is_given_back_with_its_last_straggler() {
        let (mut stragglers, mut cx) = with(&[(1, 7), (2, 7), (3, 8)]);
        stragglers.release(&mut cx, ScratchId(7));
        for id in [1, 3] {
            ended(&mut stragglers, &mut cx, id);
            assert!(released(&mut cx).is_empty(), "drive 2 may write into it");
        }
        ended(&mut stragglers, &mut cx, 2);
        assert_eq!(released(&mut cx), [7]);
    }

    #[test]
    fn memory_that_is_still_used_stays_when_its_straggler_comes_back() {
        let (mut stragglers, mut cx) = with(&[(1, 7)]);
        ended(&mut stragglers, &mut cx, 1);
        assert!(released(&mut cx).is_empty(), "it was not released before");
        stragglers.release(&mut cx, ScratchId(7));
        assert_eq!(released(&mut cx), [7]);
    }

    #[test]
    fn a_drive_without_stragglers_is_drained_at_once() {
        let (mut stragglers, mut cx) = with(&[(1, 7)]);
        stragglers.drain(&mut cx, Seat(2));
        assert_eq!(cx.take_events(), [drained(2)]);
    }

    #[test]
    fn a_drive_is_drained_when_its_last_straggler_comes_back() {
        let (mut stragglers, mut cx) = with(&[(1, 7), (1, 8), (2, 9)]);
        stragglers.drain(&mut cx, Seat(1));
        for id in [1, 3] {
            ended(&mut stragglers, &mut cx, id);
            assert!(cx.take_events().is_empty());
        }
        ended(&mut stragglers, &mut cx, 2);
        assert_eq!(cx.take_events(), [drained(1)]);
    }

    #[test]
    fn a_drive_that_has_gone_out_twice_is_reported_twice() {
        let (mut stragglers, mut cx) = with(&[(1, 7)]);
        stragglers.drain(&mut cx, Seat(1));
        stragglers.drain(&mut cx, Seat(1));
        ended(&mut stragglers, &mut cx, 1);
        assert_eq!(cx.take_events(), [drained(1), drained(1)]);
        stragglers.came_back(&mut cx);
        assert!(cx.take_events().is_empty(), "and then no more");
    }

    #[test]
    fn memory_is_given_back_before_the_drive_is_reported() {
        let (mut stragglers, mut cx) = with(&[(1, 7)]);
        stragglers.release(&mut cx, ScratchId(7));
        stragglers.drain(&mut cx, Seat(1));
        ended(&mut stragglers, &mut cx, 1);
        assert_eq!(released(&mut cx), [7]);
        assert_eq!(cx.take_events(), [drained(1)]);
    }

    #[test]
    fn late_copies_come_back_with_their_read_alone() {
        let (mut stragglers, mut cx) = with(&[(4, 7), (5, 8)]);
        let name = PageName {
            group: GroupId(3),
            column: Column(1),
            index: 0,
        };
        stragglers.insert_copies(IoId(2), vec![name]);
        let late = ended(&mut stragglers, &mut cx, 1);
        assert_eq!((late.seat, late.copies), (Seat(4), Vec::new()));
        let late = ended(&mut stragglers, &mut cx, 2);
        assert_eq!((late.seat, late.copies), (Seat(5), vec![name]));
    }

    #[test]
    fn a_slice_is_touched_where_it_overlaps() {
        let (stragglers, _) = with(&[(1, 7)]);
        assert!(stragglers.touch(slice(7, 0)) && stragglers.touch(slice(7, LENGTH - 1)));
        assert!(!stragglers.touch(slice(7, LENGTH)), "behind it");
        assert!(!stragglers.touch(slice(8, 0)), "other memory");
    }

    #[test]
    fn an_operation_without_bytes_keeps_a_drive_and_no_memory() {
        let (mut stragglers, mut cx) = with(&[]);
        stragglers.insert(IoId(1), Seat(3), None);
        stragglers.release(&mut cx, ScratchId(7));
        stragglers.drain(&mut cx, Seat(3));
        assert_eq!(released(&mut cx), [7]);
        assert!(cx.take_events().is_empty());
        ended(&mut stragglers, &mut cx, 1);
        assert_eq!(cx.take_events(), [drained(3)]);
    }

    #[test]
    #[should_panic(expected = "is in flight")]
    fn an_answer_to_nothing_is_an_error_of_the_driver() {
        let (mut stragglers, _) = with(&[(1, 7)]);
        stragglers.ended(IoId(2));
    }
}
