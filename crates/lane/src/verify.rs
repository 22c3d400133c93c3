//! Compares the blocks that an operation has read with their checksums.
//!
//! Under the operation's lock a block that differs is bad: other columns are read instead, and the block is repaired
//! when the operation has ended. Without the lock another operation may be changing the block, so the operation is
//! planned again, under its lock.

use block::{BLOCK_BYTES, Seat};
use format::seeded::{self, SeededFault};
use format::{BlockName, GroupId, StripeId};
use plan::action::{Event, Slice};
use plan::{Geometry, Transfer};

use super::context::Context;
use super::entries::Entries;
use super::known_losses::KnownLosses;
use super::maps::StripeMaps;
use super::op::{Op, Task};
use super::overlay::Bytes;

/// A block whose content is not what was written there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BadBlock {
    pub(super) name: BlockName,
    seat: Seat,
    /// First byte on the drive.
    offset: u64,
}

/// The result of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verified {
    /// So many blocks were compared; these are bad.
    Blocks(u64, Vec<BadBlock>),
    /// Not known yet: the operation is planned again.
    Again,
}

/// The blocks of a transfer: name, first byte on the drive, bytes.
pub(super) fn blocks_of(
    geometry: &Geometry,
    group: GroupId,
    transfer: Transfer,
) -> impl Iterator<Item = (BlockName, u64, Slice)> + use<> {
    let first = geometry.block_of(transfer.offset);
    let slice = transfer.slice.expect("reads and writes have bytes");
    (0..transfer.length / BLOCK_BYTES).map(move |index| {
        let name = BlockName {
            group,
            column: transfer.column,
            block: u32::try_from(first + index).expect("cells have fewer than 2^32 blocks"),
        };
        let at = index * BLOCK_BYTES;
        (name, transfer.offset + at, slice.part(at, BLOCK_BYTES))
    })
}

/// Compares the blocks that an operation has read: `sums` are their plain CRC-32C, in the order of its plan.
pub(super) fn verify(cx: &Context, entries: Entries<'_>, op: &Op, sums: &[u32]) -> Verified {
    let pool = cx.geometry.regions().expect("it has a journal").pool;
    let (group, locked) = (op.group, op.is_locked());
    let believes = (seeded::is(SeededFault::UnverifiedParity) && matches!(op.task, Task::Write(_)))
        || (seeded::is(SeededFault::UnverifiedRead) && matches!(op.task, Task::Read(_)))
        || (seeded::is(SeededFault::UnverifiedConversion) && matches!(op.task, Task::Convert(_)));
    // Without the lock a stripe may have been vacated meanwhile. Until the next checkpoint its pages have the entries
    // from before it was last written in place. If a drive lost that write, its old block would match these entries.
    let mut stripes = StripeId::each(op.stripes.clone());
    let vacated = !locked && stripes.any(|stripe| entries.overlay.is_zeroed(group, stripe));
    let reads = &op.plan.as_ref().expect("it was planned").reads;
    let mut sums = sums.iter();
    let (mut blocks, mut again) = (0, false);
    let mut bad = Vec::new();
    for &read in reads {
        for (name, offset, _) in blocks_of(&cx.geometry, group, read) {
            let sum = *sums.next().expect("one for each block");
            blocks += 1;
            if op.found.bad.contains(&(name.column, name.block.into())) {
                // The block's read has failed; a scrub goes on with the rest.
                continue;
            }
            let page_is_older = match entries.overlay.get(name) {
                None => vacated,
                // The block may have been written in place before, also since its page's entry was changed.
                Some(logged) => !locked && logged.bytes != Bytes::InPlace,
            };
            if page_is_older {
                again = true;
                continue;
            }
            match entries.in_place(name) {
                // The page was dropped meanwhile.
                None => again = true,
                Some(entry) if believes || entry.matches(pool, name, sum) => {}
                Some(_) if !locked => again = true,
                Some(_) => bad.push(BadBlock {
                    name,
                    seat: read.seat,
                    offset,
                }),
            }
        }
    }
    match again {
        true => Verified::Again,
        false => Verified::Blocks(blocks, bad),
    }
}

/// Reports bad blocks, neighbours together. Blocks that are known to be lost, and blocks that cannot be repaired
/// because of them, were reported before.
pub(super) fn report_bad(
    cx: &mut Context,
    losses: &KnownLosses,
    maps: &StripeMaps,
    bad: &[BadBlock],
) {
    let mut runs: Vec<(BadBlock, u64)> = Vec::new();
    for &block in bad {
        if losses.has(cx, maps, block.name) {
            continue;
        }
        match runs.last_mut() {
            Some((first, blocks))
                if (first.name.column, first.seat) == (block.name.column, block.seat)
                    && first.offset + *blocks * BLOCK_BYTES == block.offset =>
            {
                *blocks += 1;
            }
            _ => runs.push((block, 1)),
        }
    }
    let events = runs.into_iter().map(|(first, blocks)| Event::BlockBad {
        seat: first.seat,
        offset: first.offset,
        blocks,
        group: first.name.group,
        column: first.name.column,
    });
    cx.events.extend(events);
}

#[cfg(test)]
mod tests {
    use format::{Column, DataStripe, Entry, Sequence};
    use plan::action::{BufferId, IoKind};
    use plan::{Kind, LostRange, Plan, RequestId, ScratchId};

    use super::*;
    use crate::blocks::block;
    use crate::ids::JobId;
    use crate::op::{Lock, Owner};
    use crate::overlay::{Logged, Overlay};
    use crate::pages::{PageCache, sum_of};

    /// A small lane whose blocks were all written by batch 9, and an operation on stripe 1: blocks 4 to 7 of each
    /// column.
    struct Lab {
        cx: Context,
        overlay: Overlay,
        pages: PageCache,
        op: Op,
    }

    impl Lab {
        /// A read of these runs of blocks (column, first, blocks), with its lock.
        fn new(runs: &[(Column, u64, u64)]) -> Self {
            let cx = Context::of_test("raid6", 6);
            let pages = PageCache::of_test(&cx);
            let owner = Owner::Request(RequestId(1));
            let mut op = Op::new(
                owner,
                GroupId(0),
                StripeId::range(1..2),
                Task::Read(Vec::new()),
            );
            op.lock = Lock::Own;
            let mut plan = Plan::new(Kind::Read);
            for &(column, first, blocks) in runs {
                let cell = cx.geometry.home(GroupId(0), column);
                let length = blocks * BLOCK_BYTES;
                plan.reads.push(Transfer {
                    seat: cell.seat,
                    column,
                    kind: IoKind::Read,
                    offset: cx.geometry.block_offset(cell, first),
                    length,
                    slice: Some(Slice {
                        buffer: BufferId::Scratch(ScratchId(1)),
                        offset: 0,
                        length,
                    }),
                });
            }
            op.plan = Some(plan);
            Self {
                cx,
                overlay: Overlay::default(),
                pages,
                op,
            }
        }

        /// The operation has read what was written, except for these blocks.
        fn verify(&self, wrong: &[(u16, u32)]) -> Verified {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            let reads = &self.op.plan.as_ref().unwrap().reads;
            let blocks = reads
                .iter()
                .flat_map(|&read| blocks_of(&self.cx.geometry, GroupId(0), read));
            let sums = blocks.map(|(name, ..)| {
                let is_wrong = wrong.contains(&(name.column.0, name.block));
                sum_of(name) + u32::from(is_wrong)
            });
            let sums: Vec<u32> = sums.collect();
            verify(&self.cx, entries, &self.op, &sums)
        }

        /// The bad blocks of a comparison of so many blocks.
        fn bad(&self, wrong: &[(u16, u32)], compared: u64) -> Vec<(u16, u32)> {
            match self.verify(wrong) {
                Verified::Blocks(blocks, bad) => {
                    assert_eq!(blocks, compared);
                    let names = bad.iter().map(|bad| (bad.name.column.0, bad.name.block));
                    names.collect()
                }
                Verified::Again => panic!("it is known"),
            }
        }

        fn log(&mut self, column: Column, at: u32, bytes: Bytes, sum: u32) {
            let pool = self.cx.geometry.regions().unwrap().pool;
            let name = block(column, at);
            let logged = Logged {
                bytes,
                entry: Entry::new(pool, name, sum, Sequence(10)),
                sequence: Sequence(10),
            };
            self.overlay.insert(name, logged);
        }

        /// The reports about wrong blocks: drive, first block and number of blocks.
        fn reported(&mut self, wrong: &[(u16, u32)], losses: &KnownLosses) -> Vec<(u16, u64, u64)> {
            let Verified::Blocks(_, bad) = self.verify(wrong) else {
                panic!("it is known");
            };
            report_bad(&mut self.cx, losses, &StripeMaps::default(), &bad);
            let events = self.cx.take_events().into_iter();
            let events = events.map(|event| match event {
                Event::BlockBad {
                    seat,
                    offset,
                    blocks,
                    ..
                } => (seat.0, self.cx.geometry.block_of(offset), blocks),
                other => panic!("{other:?} is something else"),
            });
            events.collect()
        }
    }

    /// A block in memory.
    fn slice() -> Slice {
        Slice {
            buffer: BufferId::Scratch(ScratchId(2)),
            offset: 0,
            length: BLOCK_BYTES,
        }
    }

    #[test]
    fn what_was_written_is_right() {
        let lab = Lab::new(&[(Column(1), 4, 4), (Column(3), 6, 1)]);
        assert_eq!(lab.bad(&[], 5), []);
    }

    #[test]
    fn under_the_lock_what_differs_is_bad() {
        let lab = Lab::new(&[(Column(1), 4, 4), (Column(3), 6, 1)]);
        assert_eq!(lab.bad(&[(1, 5), (3, 6)], 5), [(1, 5), (3, 6)]);
    }

    #[test]
    fn without_the_lock_what_differs_is_read_again() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.op.lock = Lock::None;
        assert_eq!(lab.bad(&[], 4), []);
        assert_eq!(lab.verify(&[(1, 5)]), Verified::Again);
    }

    #[test]
    fn a_page_that_was_dropped_is_read_again() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.pages = PageCache::new(64);
        assert_eq!(lab.verify(&[]), Verified::Again);
    }

    #[test]
    fn a_block_that_is_in_place_before_its_entry_is_compared_with_what_is_logged() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.log(Column(1), 5, Bytes::InPlace, 7);
        assert_eq!(lab.bad(&[], 4), [(1, 5)], "what was there before");
        let name = block(Column(1), 5);
        lab.log(Column(1), 5, Bytes::InPlace, sum_of(name));
        assert_eq!(lab.bad(&[], 4), []);
    }

    #[test]
    fn a_block_that_is_logged_and_not_in_place_is_compared_with_its_page() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.log(Column(1), 5, Bytes::Memory(slice()), 7);
        assert_eq!(lab.bad(&[], 4), []);
    }

    #[test]
    fn without_the_lock_a_block_that_was_logged_is_read_again() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.op.lock = Lock::None;
        for bytes in [Bytes::Memory(slice()), Bytes::Nowhere] {
            lab.log(Column(1), 5, bytes, 7);
            assert_eq!(lab.verify(&[]), Verified::Again, "{bytes:?}");
        }
        lab.log(Column(1), 5, Bytes::InPlace, sum_of(block(Column(1), 5)));
        assert_eq!(lab.bad(&[], 4), [], "its place has what is logged");
    }

    #[test]
    fn a_block_whose_read_has_failed_is_not_compared() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.op.task = Task::Scrub;
        lab.op.owner = Owner::Job(JobId(1));
        lab.op.found.bad.insert((Column(1), 5));
        assert_eq!(lab.bad(&[(1, 5), (1, 6)], 4), [(1, 6)]);
    }

    #[test]
    fn without_the_lock_a_stripe_that_was_vacated_is_read_again() {
        let mut lab = Lab::new(&[(Column(1), 4, 4)]);
        lab.overlay.zero(
            GroupId(0),
            StripeId::range(1..2),
            Sequence(11),
            std::iter::empty(),
        );
        assert_eq!(lab.bad(&[], 4), [], "with it nothing has changed");
        lab.op.lock = Lock::None;
        assert_eq!(lab.verify(&[]), Verified::Again);
        for at in 4..8 {
            lab.log(Column(1), at, Bytes::InPlace, sum_of(block(Column(1), at)));
        }
        assert_eq!(lab.bad(&[], 4), [], "its new blocks are logged");
    }

    #[test]
    fn neighbours_on_a_drive_are_reported_together() {
        let mut lab = Lab::new(&[(Column(1), 4, 4), (Column(2), 4, 4)]);
        let wrong = [(1, 4), (1, 6), (1, 7), (2, 4)];
        let reported = lab.reported(&wrong, &KnownLosses::default());
        assert_eq!(reported, [(1, 4, 1), (1, 6, 2), (2, 4, 1)]);
    }

    #[test]
    fn what_is_known_to_be_lost_is_not_reported_again_nor_what_lies_beside_it() {
        let mut lab = Lab::new(&[(Column(1), 4, 4), (Column(2), 4, 4)]);
        let slot = lab.cx.geometry.code().data_slots().next().unwrap();
        let first = lab
            .cx
            .geometry
            .data_block(DataStripe(1), slot, BLOCK_BYTES)
            .unwrap();
        let mut losses = KnownLosses::default();
        losses.know(&[LostRange {
            group: GroupId(0),
            first,
            blocks: 1,
        }]);
        let wrong = [(1, 5), (1, 6), (2, 5)];
        assert_eq!(lab.reported(&wrong, &losses), [(1, 6, 1)]);
    }
}
