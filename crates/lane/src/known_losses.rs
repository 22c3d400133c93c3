//! The list of a lane's data that is known to be lost.
//!
//! The pool gets one event when a block is lost, and one when the block is valid again: a write over it has ended, a
//! read of it has succeeded, or a scrub has found it right. Ranges are blocks of a group's data, so they do not depend
//! on where a stripe lies.
//!
//! The list also makes each bad block count once. Blocks that are known to be lost do not count against a drive again,
//! nor do the blocks of their stripe at the same byte, which could not be repaired either.

use std::ops::Range;

use block::BLOCK_BYTES;
use format::{BlockName, DataStripe, Form, GroupId, StripeId};
use plan::action::Event;
use plan::{Losses, LostRange};

use super::context::Context;
use super::maps::StripeMaps;
use super::op::{Assessed, Op, Task};

/// Ranges that a lane remembers: 1.5 MiB at most. Further losses are reported again each time they are found.
const LANE_RANGES_MAX: usize = 16_384;

/// The losses of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownLosses {
    ranges: Losses,
}

impl KnownLosses {
    /// Adds what was known to be lost when the pool was opened.
    pub(super) fn know(&mut self, ranges: &[LostRange]) {
        for range in ranges {
            self.ranges
                .insert(range.group, range.first..range.first + range.blocks);
        }
    }

    /// A repair has found which blocks of its rows are lost. Returns the number of lost blocks.
    pub(super) fn assessed(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        assessed: &Assessed,
    ) -> u64 {
        let (mut lost, mut found) = (Losses::default(), Losses::default());
        for (data, row) in assessed {
            for (slots, losses) in [(&row.lost, &mut lost), (&row.mended, &mut found)] {
                for &slot in slots {
                    if let Some(block) = cx.geometry.data_block(*data, slot, row.low) {
                        losses.insert(group, block..block + 1);
                    }
                }
            }
        }
        for range in found.iter() {
            self.found(cx, group, range.first..range.first + range.blocks);
        }
        for range in lost.iter() {
            self.lost(cx, range);
        }
        lost.blocks()
    }

    /// No column's map has the place of a stripe of a group's data: all of the stripe is lost.
    pub(super) fn unfindable(&mut self, cx: &mut Context, group: GroupId, data: DataStripe) {
        let blocks = cx.geometry.stripe_data_bytes() / BLOCK_BYTES;
        self.lost(
            cx,
            LostRange {
                group,
                first: data.0 * blocks,
                blocks,
            },
        );
    }

    /// Reports lost blocks of a group's data, unless all of them are known to be lost.
    fn lost(&mut self, cx: &mut Context, range: LostRange) {
        let blocks = range.first..range.first + range.blocks;
        let known = self.ranges.within(range.group, blocks.clone());
        let known: u64 = known.map(|part| part.end - part.start).sum();
        if known == range.blocks {
            return;
        }
        if self.ranges.len() < LANE_RANGES_MAX {
            self.ranges.insert(range.group, blocks);
        }
        cx.events.push_back(Event::BlocksLost(range));
    }

    /// Blocks of a group's data are right: lost blocks among them are lost no longer.
    pub(super) fn found(&mut self, cx: &mut Context, group: GroupId, blocks: Range<u64>) {
        if !self.ranges.touch(group, blocks.clone()) {
            return;
        }
        let parts: Vec<_> = self.ranges.within(group, blocks.clone()).collect();
        self.ranges.remove(group, blocks);
        let found = parts.into_iter().map(|part| LostRange {
            group,
            first: part.start,
            blocks: part.end - part.start,
        });
        cx.events.extend(found.map(Event::BlocksFound));
    }

    /// The group is made blank: forgets its losses.
    pub(super) fn forget(&mut self, group: GroupId) {
        self.ranges.remove(group, 0..u64::MAX);
    }

    /// An operation has ended well: data that it has written or read is not lost.
    pub(super) fn op_ended_well(&mut self, cx: &mut Context, maps: &StripeMaps, op: &Op) {
        if self.is_empty() {
            return;
        }
        let group = op.group;
        let per_stripe = cx.geometry.stripe_data_bytes() / BLOCK_BYTES;
        let data = op.data_stripes();
        let all = data.map_or(0..u64::MAX, |data| {
            data.start.0 * per_stripe..data.end.0 * per_stripe
        });
        if !self.touch(group, all.clone()) {
            return;
        }
        let data = op.data.unwrap_or(op.stripes.start.own_data());
        match &op.task {
            Task::Write(prepared) => {
                let sources = prepared.sources.iter();
                let parts: Vec<_> = sources
                    .map(|source| (source.slot, source.low, source.slice.length))
                    .collect();
                self.parts_found(cx, group, data, &parts);
            }
            Task::Read(pieces) => {
                let pieces = pieces.iter();
                let parts: Vec<_> = pieces
                    .map(|piece| (piece.slot, piece.low, piece.slice.length))
                    .collect();
                self.parts_found(cx, group, data, &parts);
            }
            Task::Zero if op.data.is_some() => self.found(cx, group, all),
            Task::Scrub => self.scrub_found(cx, maps, op),
            Task::Zero
            | Task::Fill { .. }
            | Task::Resync
            | Task::Convert(_)
            | Task::Repair(_)
            | Task::Relog(_)
            | Task::Discard(_) => {}
        }
    }

    /// A scrub has read the blocks on drives: those that were neither bad nor unknown are right.
    fn scrub_found(&mut self, cx: &mut Context, maps: &StripeMaps, op: &Op) {
        let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
        for stripe in StripeId::each(op.stripes.clone()) {
            let Some(data) = maps.data_held_by(cx, op.group, stripe) else {
                continue;
            };
            let slots: Vec<usize> = cx.geometry.code().data_slots().collect();
            for slot in slots {
                let Some(first) = cx.geometry.data_block(data, slot, 0) else {
                    continue;
                };
                let here = self.within(op.group, first..first + per_chunk);
                let here: Vec<u64> = here.flatten().collect();
                // Data is at the same place in both forms.
                let place = { &cx.geometry }.place(op.group, stripe, Form::Parity, slot);
                let (column, chunk) = place;
                let readable = cx.view().column(&cx.geometry, op.group, column).readable();
                for block in here {
                    let at = (column, chunk * per_chunk + (block - first));
                    if readable && !op.found.bad.contains(&at) && !op.found.unknown.contains(&at) {
                        self.found(cx, op.group, block..block + 1);
                    }
                }
            }
        }
    }

    /// True if data of the block's stripe, at the block's byte of its elements, is known to be lost.
    pub(super) fn has(&self, cx: &Context, maps: &StripeMaps, name: BlockName) -> bool {
        if self.is_empty() || !self.touch(name.group, 0..u64::MAX) {
            return false;
        }
        let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let stripe = cx.geometry.stripe_of(name);
        let Some(data) = maps.data_held_by(cx, name.group, stripe) else {
            return false;
        };
        let low = u64::from(name.block) % per_chunk * BLOCK_BYTES;
        cx.geometry.code().data_slots().any(|slot| {
            let block = cx.geometry.data_block(data, slot, low);
            block.is_some_and(|block| self.touch(name.group, block..block + 1))
        })
    }

    /// Parts of a stripe of the data (slot, first byte, bytes) are right.
    fn parts_found(
        &mut self,
        cx: &mut Context,
        group: GroupId,
        data: DataStripe,
        parts: &[(usize, u64, u64)],
    ) {
        for &(slot, low, length) in parts {
            if let Some(first) = cx.geometry.data_block(data, slot, low) {
                let blocks = (low + length).div_ceil(BLOCK_BYTES) - low / BLOCK_BYTES;
                self.found(cx, group, first..first + blocks);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// True if any of these blocks of a group's data is lost.
    fn touch(&self, group: GroupId, blocks: Range<u64>) -> bool {
        self.ranges.touch(group, blocks)
    }

    /// The lost ranges among these blocks of a group's data.
    fn within(&self, group: GroupId, blocks: Range<u64>) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.within(group, blocks)
    }
}

#[cfg(test)]
mod tests {
    use format::Column;
    use plan::AssessedRow;

    use super::*;
    use crate::ids::JobId;
    use crate::op::Owner;

    fn begun() -> (KnownLosses, Context) {
        (KnownLosses::default(), Context::of_test("raid6", 6))
    }

    fn range(group: GroupId, first: u64, blocks: u64) -> LostRange {
        LostRange {
            group,
            first,
            blocks,
        }
    }

    fn lost(group: GroupId, first: u64, blocks: u64) -> Event {
        Event::BlocksLost(range(group, first, blocks))
    }

    fn found(group: GroupId, first: u64, blocks: u64) -> Event {
        Event::BlocksFound(range(group, first, blocks))
    }

    #[test]
    fn a_loss_is_reported_once() {
        let (mut losses, mut cx) = begun();
        losses.lost(&mut cx, range(GroupId(1), 10, 4));
        losses.lost(&mut cx, range(GroupId(1), 10, 4));
        losses.lost(&mut cx, range(GroupId(1), 11, 2));
        assert_eq!(cx.take_events(), [lost(GroupId(1), 10, 4)]);
    }

    #[test]
    fn a_loss_that_is_known_in_part_is_reported_as_a_whole() {
        let (mut losses, mut cx) = begun();
        losses.lost(&mut cx, range(GroupId(1), 10, 4));
        cx.take_events();
        losses.lost(&mut cx, range(GroupId(1), 12, 4));
        assert_eq!(cx.take_events(), [lost(GroupId(1), 12, 4)]);
    }

    #[test]
    fn what_was_known_at_opening_is_not_reported() {
        let (mut losses, mut cx) = begun();
        losses.know(&[range(GroupId(1), 10, 4), range(GroupId(2), 0, 1)]);
        losses.lost(&mut cx, range(GroupId(1), 12, 2));
        assert!(cx.take_events().is_empty());
        assert!(losses.touch(GroupId(2), 0..1));
    }

    #[test]
    fn what_is_right_is_lost_no_more() {
        let (mut losses, mut cx) = begun();
        losses.know(&[range(GroupId(1), 10, 4)]);
        losses.found(&mut cx, GroupId(1), 11..13);
        assert_eq!(cx.take_events(), [found(GroupId(1), 11, 2)]);
        let left: Vec<_> = losses.within(GroupId(1), 0..100).collect();
        assert_eq!(left, [10..11, 13..14]);
    }

    #[test]
    fn only_what_was_lost_of_a_range_is_reported_as_found() {
        let (mut losses, mut cx) = begun();
        losses.know(&[range(GroupId(1), 10, 2), range(GroupId(1), 20, 1)]);
        losses.found(&mut cx, GroupId(1), 0..100);
        assert_eq!(
            cx.take_events(),
            [found(GroupId(1), 10, 2), found(GroupId(1), 20, 1)]
        );
        assert!(losses.is_empty());
        losses.found(&mut cx, GroupId(1), 0..100);
        assert!(cx.take_events().is_empty(), "once");
    }

    #[test]
    fn groups_are_apart() {
        let (mut losses, mut cx) = begun();
        losses.know(&[range(GroupId(1), 10, 4)]);
        losses.found(&mut cx, GroupId(2), 10..14);
        assert!(cx.take_events().is_empty());
        assert!(losses.touch(GroupId(1), 13..20) && !losses.touch(GroupId(2), 0..100));
    }

    #[test]
    fn a_group_that_begins_a_new_life_has_lost_nothing() {
        let (mut losses, mut cx) = begun();
        losses.know(&[range(GroupId(1), 10, 4), range(GroupId(2), 10, 4)]);
        losses.forget(GroupId(1));
        assert!(cx.take_events().is_empty(), "what was lost stays lost");
        assert!(!losses.touch(GroupId(1), 0..100) && losses.touch(GroupId(2), 10..11));
    }

    #[test]
    fn a_stripe_that_no_map_finds_is_lost_as_a_whole() {
        let (mut losses, mut cx) = begun();
        let blocks = cx.geometry.stripe_data_bytes() / BLOCK_BYTES;
        losses.unfindable(&mut cx, GroupId(3), DataStripe(2));
        assert_eq!(cx.take_events(), [lost(GroupId(3), 2 * blocks, blocks)]);
    }

    #[test]
    fn a_repair_finds_some_and_loses_others() {
        let (mut losses, mut cx) = begun();
        let code = cx.geometry.code();
        let slots: Vec<usize> = code.data_slots().collect();
        let block = |slot| {
            cx.geometry
                .data_block(DataStripe(0), slot, 0)
                .expect("data")
        };
        let (mended, gone) = (block(slots[0]), block(slots[1]));
        losses.know(&[range(GroupId(1), mended, 1)]);
        let row = AssessedRow {
            low: 0,
            lost: vec![slots[1]],
            mended: vec![slots[0]],
        };
        let count = losses.assessed(&mut cx, GroupId(1), &vec![(DataStripe(0), row)]);
        assert_eq!(count, 1);
        assert_eq!(
            cx.take_events(),
            [found(GroupId(1), mended, 1), lost(GroupId(1), gone, 1)]
        );
    }

    #[test]
    fn a_write_of_parts_of_blocks_makes_these_blocks_right() {
        let (mut losses, mut cx) = begun();
        let slot = cx.geometry.code().data_slots().next().expect("data");
        let first = cx
            .geometry
            .data_block(DataStripe(0), slot, 0)
            .expect("data");
        losses.know(&[range(GroupId(1), first, 4)]);
        losses.parts_found(&mut cx, GroupId(1), DataStripe(0), &[(slot, 4096, 4096)]);
        assert_eq!(cx.take_events(), [found(GroupId(1), first + 1, 1)]);
    }

    /// The number of a block of stripe 0 of the data, and the name of the block that holds it.
    fn first_block(cx: &Context, at: u64) -> (u64, BlockName) {
        let slot = cx.geometry.code().data_slots().next().expect("data");
        let block = cx
            .geometry
            .data_block(DataStripe(0), slot, at * BLOCK_BYTES);
        let (column, chunk) = cx
            .geometry
            .place(GroupId(0), StripeId(0), Form::Parity, slot);
        let name = BlockName {
            group: GroupId(0),
            column,
            block: u32::try_from(chunk * cx.geometry.chunk_bytes() / BLOCK_BYTES + at).unwrap(),
        };
        (block.expect("data"), name)
    }

    #[test]
    fn a_scrub_finds_what_was_neither_bad_nor_unknown() {
        let (mut losses, mut cx) = begun();
        let maps = StripeMaps::default();
        let (first, name) = first_block(&cx, 0);
        losses.know(&[range(GroupId(0), first, 3)]);
        let mut op = Op::new(
            Owner::Job(JobId(1)),
            GroupId(0),
            StripeId::range(0..2),
            Task::Scrub,
        );
        op.found.bad.insert((name.column, name.block.into()));
        op.found
            .unknown
            .insert((name.column, u64::from(name.block) + 1));
        losses.op_ended_well(&mut cx, &maps, &op);
        assert_eq!(cx.take_events(), [found(GroupId(0), first + 2, 1)]);
        // The column is absent, so it was not read.
        losses.know(&[range(GroupId(0), first, 3)]);
        let seat = cx.geometry.home(GroupId(0), name.column).seat;
        cx.change_view(|view, _| view.seat_out(seat));
        losses.op_ended_well(&mut cx, &maps, &op);
        assert_eq!(cx.take_events(), []);
    }

    #[test]
    fn a_trim_of_the_data_finds_all_of_its_stripes_and_a_new_life_of_a_group_does_not() {
        let (mut losses, mut cx) = begun();
        let maps = StripeMaps::default();
        let blocks = cx.geometry.stripe_data_bytes() / BLOCK_BYTES;
        losses.know(&[
            range(GroupId(0), blocks, 2),
            range(GroupId(0), 4 * blocks, 1),
        ]);
        let op = Op::new(
            Owner::Job(JobId(1)),
            GroupId(0),
            StripeId::range(0..3),
            Task::Zero,
        );
        losses.op_ended_well(&mut cx, &maps, &op);
        assert_eq!(cx.take_events(), []);
        let data = DataStripe::range(0..3);
        let op = Op::of_data(Owner::Job(JobId(1)), GroupId(0), data, Task::Zero);
        losses.op_ended_well(&mut cx, &maps, &op);
        assert_eq!(cx.take_events(), [found(GroupId(0), blocks, 2)]);
    }

    #[test]
    fn blocks_beside_what_is_lost_are_known_too() {
        let (mut losses, cx) = begun();
        let maps = StripeMaps::default();
        let (first, name) = first_block(&cx, 1);
        assert!(!losses.has(&cx, &maps, name));
        losses.know(&[range(GroupId(0), first, 1)]);
        assert!(losses.has(&cx, &maps, name));
        let column = Column((name.column.0 + 1) % 6);
        assert!(losses.has(&cx, &maps, BlockName { column, ..name }));
        let block = name.block + 1;
        assert!(!losses.has(&cx, &maps, BlockName { block, ..name }));
    }
}
