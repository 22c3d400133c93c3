//! The units that operations log: blocks with their checksums, sub-stripe by sub-stripe.

use std::collections::BTreeMap;

use block::BLOCK_BYTES;
use format::BlockName;
use plan::action::Slice;

use super::context::Context;
use super::ids::OpId;
use super::log::{Unit, Zeroed, derived};
use super::op::{Op, Task};
use super::overlay::Overlay;
use super::preserved;
use super::verify::blocks_of;

/// The blocks of which an operation needs checksums: those that it writes.
pub(super) fn sums_of_writes(cx: &Context, op: &Op) -> Vec<Slice> {
    let wanted = match &op.task {
        Task::Write(prepared) => prepared.is_staged(),
        Task::Repair(_) | Task::Fill { .. } | Task::Relog(_) | Task::Convert(_) => true,
        _ => false,
    };
    let trusted = cx.trusted && matches!(op.task, Task::Fill { .. });
    if !wanted || trusted || cx.geometry.regions().is_none() {
        return Vec::new();
    }
    let blocks = written_blocks(cx, op).into_iter();
    let absent = absent_blocks(cx, op).into_iter();
    let absent = absent.filter_map(|(_, slice)| slice);
    blocks.map(|(_, slice)| slice).chain(absent).collect()
}

/// Blocks that an operation changes while their columns are absent, sub-stripe by sub-stripe. With each block its new
/// bytes, if these are known and its checksum can be logged.
fn absent_blocks(cx: &Context, op: &Op) -> Vec<(BlockName, Option<Slice>)> {
    let keeps = cx.geometry.keeps_sums_of_absent();
    let absent = &op.plan.as_ref().expect("it was planned").absent;
    let mut blocks: Vec<(BlockName, Option<Slice>)> = absent
        .iter()
        .flat_map(|part| {
            let first = part.offset / BLOCK_BYTES;
            let group = op.group;
            (0..part.length / BLOCK_BYTES).map(move |index| {
                let name = BlockName {
                    group,
                    column: part.column,
                    block: u32::try_from(first + index).expect("cells have fewer than 2^32 blocks"),
                };
                let bytes = part.slice.filter(|_| keeps);
                let bytes = bytes.map(|all| all.part(index * BLOCK_BYTES, BLOCK_BYTES));
                (name, bytes)
            })
        })
        .collect();
    blocks.sort_by_key(|&(name, _)| (sub_stripe(cx, name), name));
    blocks
}

/// Each block that a plan writes, once, even if it goes to two cells. Blocks of one sub-stripe (the same place in the
/// elements of a stripe) are neighbours here.
pub(super) fn written_blocks(cx: &Context, op: &Op) -> Vec<(BlockName, Slice)> {
    let writes = &op.plan.as_ref().expect("it was planned").writes;
    let mut blocks: Vec<(BlockName, Slice)> = writes
        .iter()
        .flat_map(|&write| blocks_of(&cx.geometry, op.group, write))
        .map(|(name, _, slice)| (name, slice))
        .collect();
    blocks.sort_by_key(|&(name, _)| (sub_stripe(cx, name), name));
    blocks.dedup_by_key(|&mut (name, _)| name);
    blocks
}

/// The sub-stripe of a block: the position of the block in its element.
fn sub_stripe(cx: &Context, name: BlockName) -> u64 {
    u64::from(name.block) % (cx.geometry.chunk_bytes() / BLOCK_BYTES)
}

/// The units of an operation whose writes have these checksums, in the order of [`sums_of_writes`].
pub(super) fn units_of_writes(
    cx: &Context,
    overlay: &Overlay,
    (id, op): (OpId, &Op),
    sums: &[u32],
) -> Vec<Unit> {
    let mut sums = sums.iter().copied();
    let mut units: BTreeMap<u64, Unit> = BTreeMap::new();
    for (name, slice) in written_blocks(cx, op) {
        let sum = sums.next().expect("one for each block");
        let unit = units.entry(sub_stripe(cx, name));
        let unit = unit.or_insert_with(|| Unit::of(id));
        unit.blocks.push((name, slice, sum));
    }
    let absent = absent_blocks(cx, op).into_iter();
    let mut absent: Vec<(BlockName, Option<u32>)> = absent
        .map(|(name, slice)| (name, slice.and_then(|_| sums.next())))
        .collect();
    if let Task::Relog(names) = &op.task {
        absent.extend(preserved::relogged_absent(cx, overlay, names));
    }
    for (name, sum) in absent {
        let unit = units.entry(sub_stripe(cx, name));
        let unit = unit.or_insert_with(|| Unit::of(id));
        match sum {
            Some(sum) => unit.absent.push((name, sum)),
            None => unit.unknown.push(name),
        }
    }
    let mut units: Vec<Unit> = units.into_values().collect();
    derived::leave_out(cx, op, &mut units);
    units
}

/// Stripes are zeroed by a record alone.
pub(super) fn unit_of_zeroes(id: OpId, op: &Op) -> Unit {
    Unit {
        zeroed: Some(Zeroed {
            group: op.group,
            stripes: op.stripes.clone(),
            only: None,
        }),
        ..Unit::of(id)
    }
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, Entry, GroupId, Sequence, StripeId};
    use plan::action::{BufferId, IoKind};
    use plan::{Absent, Kind, Plan, ScratchId, Transfer};

    use super::*;
    use crate::blocks::block;
    use crate::op::{Owner, Prepared, Repair, Staging};
    use crate::overlay::{Bytes, Logged};

    const ID: OpId = OpId(1);

    /// The memory of a test's bytes.
    fn memory(offset: u64, blocks: u64) -> Slice {
        Slice {
            buffer: BufferId::Scratch(ScratchId(1)),
            offset,
            length: blocks * BLOCK_BYTES,
        }
    }

    /// An operation of a small lane whose chunks have four blocks.
    struct Lab {
        cx: Context,
        overlay: Overlay,
        op: Op,
    }

    impl Lab {
        fn new(task: Task) -> Self {
            let change = |regions: &mut plan::Regions| regions.page_copies = Some(2);
            let mut op = Op::new(Owner::Background, GroupId(0), StripeId::range(0..1), task);
            op.plan = Some(Plan::new(Kind::FullStripe));
            Self {
                cx: Context::of_test_with("raid6", 6, 256 << 10, change),
                overlay: Overlay::default(),
                op,
            }
        }

        fn writes() -> Self {
            Self::new(Task::Write(Prepared::of(Vec::new())))
        }

        fn plan(&mut self) -> &mut Plan {
            self.op.plan.as_mut().expect("it has one")
        }

        /// The plan writes blocks of a column, at this place of a drive.
        fn write(&mut self, seat: u16, column: Column, first: u64, blocks: u64) {
            let seat = Seat(seat);
            let cell = layout::Cell { seat, row: 0 };
            let write = Transfer {
                seat,
                column,
                kind: IoKind::Write,
                offset: self.cx.geometry.block_offset(cell, first),
                length: blocks * BLOCK_BYTES,
                slice: Some(memory(0, blocks)),
            };
            self.plan().writes.push(write);
        }

        /// A block of an absent column changes; `slice` is its new content, if known.
        fn absent(&mut self, column: Column, block: u64, slice: Option<Slice>) {
            let absent = Absent {
                column,
                offset: block * BLOCK_BYTES,
                length: BLOCK_BYTES,
                slice,
            };
            self.plan().absent.push(absent);
        }

        /// The units, with checksums from 10 on.
        fn units(&self) -> Vec<Unit> {
            let count = u32::try_from(sums_of_writes(&self.cx, &self.op).len()).unwrap();
            let sums: Vec<u32> = (10..10 + count).collect();
            units_of_writes(&self.cx, &self.overlay, (ID, &self.op), &sums)
        }
    }

    /// The blocks of a unit: column, block and checksum.
    fn blocks_of(unit: &Unit) -> Vec<(u16, u32, u32)> {
        let blocks = unit.blocks.iter();
        let blocks = blocks.map(|&(name, _, sum)| (name.column.0, name.block, sum));
        blocks.collect()
    }

    #[test]
    fn blocks_of_a_sub_stripe_are_one_unit_whatever_element_they_are_of() {
        let mut lab = Lab::writes();
        lab.write(0, Column(0), 0, 2);
        lab.write(1, Column(1), 4, 2);
        let units = lab.units();
        assert_eq!(units.len(), 2);
        assert_eq!(blocks_of(&units[0]), [(0, 0, 10), (1, 4, 11)]);
        assert_eq!(blocks_of(&units[1]), [(0, 1, 12), (1, 5, 13)]);
        assert!(units.iter().all(|unit| unit.op == ID));
    }

    #[test]
    fn a_block_that_goes_to_two_cells_is_logged_once() {
        let mut lab = Lab::writes();
        lab.write(0, Column(0), 0, 1);
        lab.write(5, Column(0), 0, 1);
        assert_eq!(blocks_of(&lab.units()[0]), [(0, 0, 10)]);
    }

    #[test]
    fn what_changes_in_an_absent_column_has_its_checksum_if_its_bytes_are_known() {
        let mut lab = Lab::writes();
        lab.write(0, Column(0), 0, 1);
        lab.absent(Column(2), 0, Some(memory(0, 1)));
        lab.absent(Column(3), 0, None);
        let units = lab.units();
        assert_eq!(units.len(), 1);
        assert_eq!(blocks_of(&units[0]), [(0, 0, 10)]);
        assert_eq!(units[0].absent, [(block(Column(2), 0), 11)]);
        assert_eq!(units[0].unknown, [block(Column(3), 0)]);
    }

    #[test]
    fn a_pool_with_one_copy_of_its_pages_keeps_no_checksum_of_what_is_absent() {
        let mut lab = Lab::writes();
        lab.cx = Context::of_test("raid6", 6);
        lab.absent(Column(2), 0, Some(memory(0, 1)));
        let units = lab.units();
        assert!(units[0].absent.is_empty());
        assert_eq!(units[0].unknown, [block(Column(2), 0)]);
    }

    #[test]
    fn what_is_logged_again_and_nowhere_keeps_what_is_known_of_it() {
        let mut lab = Lab::new(Task::Relog(vec![
            block(Column(1), 0),
            block(Column(1), 1),
            block(Column(1), 2),
        ]));
        let pool = lab.cx.geometry.regions().unwrap().pool;
        let known = Entry::new(pool, block(Column(1), 0), 7, Sequence(5));
        let written = Bytes::Memory(memory(0, 1));
        let all = [
            (0, Bytes::Nowhere, known),
            (1, Bytes::Nowhere, Entry::UNKNOWN),
            (2, written, known),
        ];
        for (at, bytes, entry) in all {
            let logged = Logged {
                bytes,
                entry,
                sequence: Sequence(5),
            };
            lab.overlay.insert(block(Column(1), at), logged);
        }
        lab.write(0, Column(1), 2, 1);
        let units = lab.units();
        assert_eq!(units.len(), 3);
        assert_eq!(units[0].absent, [(block(Column(1), 0), 7)]);
        assert_eq!(units[1].unknown, [block(Column(1), 1)]);
        assert_eq!(blocks_of(&units[2]), [(1, 2, 10)]);
    }

    #[test]
    fn checksums_are_wanted_of_what_is_logged_or_filled() {
        let count = |task: Task| {
            let mut lab = Lab::new(task);
            lab.write(0, Column(0), 0, 3);
            sums_of_writes(&lab.cx, &lab.op).len()
        };
        assert_eq!(count(Task::Write(Prepared::of(Vec::new()))), 3);
        assert_eq!(count(Task::Repair(Repair::default())), 3);
        assert_eq!(count(Task::Resync), 0);
        let mut staging = Prepared::of(Vec::new());
        staging.staging = Staging::Named(ScratchId(2), BLOCK_BYTES);
        assert_eq!(count(Task::Write(staging)), 0, "it is put together first");
    }
}
