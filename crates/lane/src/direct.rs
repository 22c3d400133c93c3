//! Direct writes: a stream that writes onto space that holds nothing goes in place first, stripe by stripe. Then a
//! record of its checksums is logged, without content.
//!
//! ```text
//!   Computing ─► Gathering ───────────────► Writing ──────────────► Logging ─► (end)
//!                (the other stripes of      (data and parity,       (checksums, no content)
//!                its turn: neighbours       in place)
//!                become one operation)         └─ a drive refuses or leaves ─► Logging (with content) ─► (end)
//! ```
//!
//! Why nothing is lost: until the record is complete the entries of the blocks are *unwritten*. So the bytes in their
//! places do not count, whole or torn. The record and the stripe may both be in volatile caches when the power fails.
//! So recovery compares stripes whose record is not known to be flushed with their checksums (`recover/compare.rs`).
//!
//! Invariants:
//! - The stripe is locked from before its entries are read until its record is complete.
//! - A record lists a block as in place only if its drive has completed the write, and has not left since.
//! - A stripe whose trim is not flushed counts as written: the overlay still has the trim.

use std::collections::{BTreeMap, BTreeSet};

use block::BLOCK_BYTES;
use format::seeded::{self, SeededFault};
use format::{
    BlockName, DESCRIPTOR_BYTES, DataStripe, Descriptor, GroupId, HeldIn, PageName, Sequence,
    StripeId,
};
use plan::{Plan, Transfer};

use super::context::Context;
use super::entries::Entries;
use super::ids::OpId;
use super::io::IoTable;
use super::log::{Unit, Zeroed};
use super::op::{Convert, Op, Owner, Staging, Task};
use super::overlay::Overlay;
use super::pages::PageCache;
use super::records::written_blocks;

/// Blocks of a lane that are in place and whose entries are in memory only. From this number on a checkpoint begins: 64
/// MiB. The checkpoint goes through all of them at once, and commits on the same thread wait for it. At four times this
/// number nothing more goes in place before the checkpoint has ended.
pub(super) const IN_PLACE_MAX: u64 = 16_384;

/// Bytes of a unit's descriptors at most: several units, and the other parts of a batch, fit into one header.
const UNIT_BYTES_MAX: usize = 4 << 10;

/// The number of blocks of each element that one unit describes, in a stripe of so many elements; `None` if not even
/// one fits.
fn rows_of_unit(elements: usize) -> Option<u64> {
    let room = UNIT_BYTES_MAX / elements;
    let rows =
        room.checked_sub(DESCRIPTOR_BYTES)? / (Descriptor::bytes_of_direct(1) - DESCRIPTOR_BYTES);
    u64::try_from(rows).ok().filter(|&rows| rows > 0)
}

/// True if a write may go in place before it is logged, provided that nothing counts there. Only parts of streams may:
/// the direct way takes one step more than the journal, and its gain is fewer bytes.
pub(super) fn may_go(cx: &Context, ios: &IoTable, overlay: &Overlay, op: &Op, plan: &Plan) -> bool {
    let (Task::Write(prepared), Owner::Request(_)) = (&op.task, op.owner) else {
        return false;
    };
    op.service.bulk
        && { cx.geometry.regions() }.is_some_and(|regions| regions.direct_writes)
        && prepared.staging == Staging::Unneeded
        && plan.reads.is_empty()
        && plan.recovered.is_empty()
        && plan.absent.is_empty()
        && plan.lost.is_empty()
        && !cx.trusted
        && !ios.twins().any()
        && overlay.blocks_in_place() < 4 * IN_PLACE_MAX
        && rows_of_unit(cx.geometry.code_of(op.form()).elements()).is_some()
}

/// The pages of the blocks that a plan writes, as far as they are not in memory.
pub(super) fn pages_of_writes(
    cx: &Context,
    pages: &PageCache,
    group: GroupId,
    plan: &Plan,
) -> BTreeSet<PageName> {
    let writes = plan.writes.iter();
    let missing = writes.flat_map(|write| {
        let (first, count) = run_of(cx, group, write);
        pages.missing(first, count)
    });
    missing.collect()
}

/// The blocks of a transfer: the first, and how many.
pub(super) fn run_of(cx: &Context, group: GroupId, write: &Transfer) -> (BlockName, u32) {
    let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
    let first = BlockName {
        group,
        column: write.column,
        block: number(cx.geometry.block_of(write.offset)),
    };
    (first, number(write.length / BLOCK_BYTES))
}

/// True if none of the blocks that a plan writes counts, and each block has one place, on a drive that is not slow.
/// Then the other blocks of these rows are zero: if one were not, the parity of its row, which the plan writes, would
/// count. `flushed`: the last batch that a flush has covered.
pub(super) fn holds_nothing(
    cx: &Context,
    ios: &IoTable,
    entries: Entries<'_>,
    flushed: Sequence,
    (op, plan): (&Op, &Plan),
) -> bool {
    let group = op.group;
    let trimmed = entries.overlay.zeroed_since(group, op.stripes.start);
    // The entries of a vacated stripe become *unwritten* with the next checkpoint; the stripe is free already
    // (`ops/moves.rs`). Blocks of a trimmed stripe may still be on their way to their places.
    let is_vacated = |since| {
        let durable = since <= flushed || seeded::is(SeededFault::VacatedNotFlushed);
        op.moves_from().is_some() && durable
    };
    let unwritten = trimmed
        .is_some_and(|since| is_vacated(since) || seeded::is(SeededFault::DirectOntoTrimmed));
    (trimmed.is_none() || unwritten)
        && plan.writes.iter().all(|write| {
            let state = cx.view().column(&cx.geometry, group, write.column);
            let swift = !cx.view().is_out(write.seat) && !ios.is_suspect(write.seat);
            let (first, count) = run_of(cx, group, write);
            let free = !entries.overlay.holds(first, count)
                && (unwritten || entries.pages.are_unwritten(first, count));
            swift
                && state.source.is_some()
                && state.target.is_none()
                && (free || seeded::is(SeededFault::DirectOntoWritten))
        })
}

/// The units for blocks that are in place: their checksums. All of a stripe that moves is one unit.
pub(super) fn units(cx: &Context, (id, op): (OpId, &Op), sums: &[u32]) -> Vec<Unit> {
    if let Task::Convert(convert) = &op.task {
        return units_of_conversion(cx, (id, op, convert), sums);
    }
    let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let rows = rows_of_unit(cx.geometry.code_of(op.form()).elements()).expect("it was considered");
    let unit_of = |name: &BlockName| match op.moves_from() {
        Some(_) => 0,
        None => u64::from(name.block) % per_chunk / rows,
    };
    let names = written_blocks(cx, op).into_iter().map(|(name, _)| name);
    let mut blocks: Vec<(BlockName, u32)> = names.zip(sums.iter().copied()).collect();
    blocks.sort_unstable_by_key(|&(name, _)| (unit_of(&name), name));
    let units = blocks.chunk_by(|(a, _), (b, _)| unit_of(a) == unit_of(b));
    units
        .map(|blocks| {
            let direct = runs_of(blocks);
            match op.moves_from() {
                Some(from) => unit_of_move(id, op, from, direct),
                None => Unit {
                    direct,
                    ..Unit::of(id)
                },
            }
        })
        .collect()
}

/// The unit of an operation that moves from a stripe to the one for which it is planned: either all of it counts, or
/// nothing.
fn unit_of_move(id: OpId, op: &Op, from: StripeId, direct: Vec<(BlockName, Vec<u32>)>) -> Unit {
    let data = op.data.expect("what moves is data");
    // A stripe that is written whole takes the form of parity.
    let to = HeldIn::parity(op.stripes.start);
    let vacates = !seeded::is(SeededFault::MovedNotVacated);
    Unit {
        direct,
        zeroed: vacates.then_some(Zeroed {
            group: op.group,
            stripes: from..from.next(),
            only: None,
        }),
        moved: Some((op.group, data, to)),
        ..Unit::of(id)
    }
}

/// The units of stripes that have been converted, one for each.
fn units_of_conversion(
    cx: &Context,
    (id, op, convert): (OpId, &Op, &Convert),
    sums: &[u32],
) -> Vec<Unit> {
    let Some(to) = convert.to else {
        return Vec::new();
    };
    let mut written: BTreeMap<StripeId, Vec<(BlockName, u32)>> = BTreeMap::new();
    for ((name, _), &sum) in written_blocks(cx, op).into_iter().zip(sums) {
        let stripe = cx.geometry.stripe_of(name);
        written.entry(stripe).or_default().push((name, sum));
    }
    let unit = |&(stripe, data): &(StripeId, DataStripe)| {
        let mut blocks = written.remove(&stripe).unwrap_or_default();
        blocks.sort_unstable();
        Unit {
            direct: runs_of(&blocks),
            zeroed: (!seeded::is(SeededFault::OldFormStays)).then_some(Zeroed {
                group: op.group,
                stripes: stripe..stripe.next(),
                only: Some(to.other()),
            }),
            moved: Some((op.group, data, HeldIn::new(stripe, to))),
            ..Unit::of(id)
        }
    };
    convert.chosen.iter().map(unit).collect()
}

/// Runs of consecutive blocks: the first block of each run, and the checksums of all its blocks.
fn runs_of(blocks: &[(BlockName, u32)]) -> Vec<(BlockName, Vec<u32>)> {
    let follows = |(a, _): &(BlockName, u32), (b, _): &(BlockName, u32)| {
        a.column == b.column && a.block + 1 == b.block
    };
    let runs = blocks.chunk_by(follows);
    runs.map(|run| (run[0].0, run.iter().map(|&(_, crc)| crc).collect()))
        .collect()
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, Entry, MetaPage};
    use plan::action::{BufferId, IoKind, Service, Slice};
    use plan::{Kind, RequestId, ScratchId};

    use super::*;
    use crate::blocks::block;
    use crate::op::{Destination, Prepared};
    use crate::overlay::{Bytes, Logged};

    const ID: OpId = OpId(1);

    /// A small lane with nothing written, and a part of a stream that covers stripe 1: one chunk of four blocks on each
    /// of six drives.
    struct Lab {
        cx: Context,
        ios: IoTable,
        overlay: Overlay,
        pages: PageCache,
        op: Op,
        plan: Plan,
    }

    impl Lab {
        fn new() -> Self {
            let change = |regions: &mut plan::Regions| regions.direct_writes = true;
            let cx = Context::of_test_with("raid6", 6, 256 << 10, change);
            let mut pages = PageCache::new(64);
            for column in (0..6).map(Column) {
                let page = MetaPage::filled(Entry::UNWRITTEN, 1);
                pages.put(block(column, 0).page(), page);
            }
            let task = Task::Write(Prepared::of(Vec::new()));
            let mut op = Op::of_data(
                Owner::Request(RequestId(1)),
                GroupId(0),
                DataStripe::range(1..2),
                task,
            );
            op.service = Service::of_client(format::VolumeId(1), true);
            let mut plan = Plan::new(Kind::FullStripe);
            for column in (0..6).map(Column) {
                let seat = Seat(column.0);
                let cell = layout::Cell { seat, row: 0 };
                let slice = Slice {
                    buffer: BufferId::Scratch(ScratchId(1)),
                    offset: u64::from(column.0) * 4 * BLOCK_BYTES,
                    length: 4 * BLOCK_BYTES,
                };
                plan.writes.push(Transfer {
                    seat,
                    column,
                    kind: IoKind::Write,
                    offset: cx.geometry.block_offset(cell, 4),
                    length: slice.length,
                    slice: Some(slice),
                });
            }
            op.plan = Some(plan.clone());
            Self {
                cx,
                ios: IoTable::new(6),
                overlay: Overlay::default(),
                pages,
                op,
                plan,
            }
        }

        fn may_go(&self) -> bool {
            may_go(&self.cx, &self.ios, &self.overlay, &self.op, &self.plan)
        }

        /// True if the stripe holds nothing when batches up to this one are flushed.
        fn holds_nothing(&self, flushed: Sequence) -> bool {
            let entries = Entries {
                overlay: &self.overlay,
                pages: &self.pages,
            };
            let about = (&self.op, &self.plan);
            holds_nothing(&self.cx, &self.ios, entries, flushed, about)
        }

        /// The units of a stripe whose blocks have checksums from 0 on.
        fn units(&self) -> Vec<Unit> {
            units(&self.cx, (ID, &self.op), &(0..24).collect::<Vec<u32>>())
        }
    }

    #[test]
    fn parts_of_streams_go_in_place_and_commits_do_not() {
        let mut lab = Lab::new();
        assert!(lab.may_go());
        lab.op.service.bulk = false;
        assert!(!lab.may_go());
    }

    #[test]
    fn a_write_that_reads_or_that_a_drive_lacks_does_not_go_in_place() {
        let mut lab = Lab::new();
        let write = lab.plan.writes[0];
        lab.plan.reads.push(write);
        assert!(!lab.may_go());
        let mut lab = Lab::new();
        lab.plan.absent.push(plan::Absent {
            column: Column(0),
            offset: 0,
            length: BLOCK_BYTES,
            slice: None,
        });
        assert!(!lab.may_go());
        let mut lab = Lab::new();
        lab.cx = Context::of_test("raid6", 6);
        assert!(!lab.may_go(), "the pool does not have the feature");
    }

    #[test]
    fn a_stripe_of_which_a_block_is_written_or_logged_holds_something() {
        assert!(Lab::new().holds_nothing(Sequence(0)));
        let mut lab = Lab::new();
        lab.pages.set(block(Column(3), 5), Entry::WRITTEN);
        assert!(!lab.holds_nothing(Sequence(0)));
        let mut lab = Lab::new();
        let logged = Logged {
            bytes: Bytes::InPlace,
            entry: Entry::WRITTEN,
            sequence: Sequence(9),
        };
        lab.overlay.insert(block(Column(3), 8), logged);
        assert!(lab.holds_nothing(Sequence(0)), "of another stripe");
        lab.overlay.insert(block(Column(3), 7), logged);
        assert!(!lab.holds_nothing(Sequence(0)));
    }

    #[test]
    fn a_stripe_on_a_slow_drive_goes_through_the_journal() {
        let mut lab = Lab::new();
        lab.ios.suspect(Seat(2), true);
        assert!(!lab.holds_nothing(Sequence(0)));
        let mut lab = Lab::new();
        lab.cx.change_view(|view, _| view.seat_out(Seat(2)));
        assert!(!lab.holds_nothing(Sequence(0)));
    }

    #[test]
    fn a_trimmed_stripe_holds_nothing_only_if_its_data_has_left_it_durably() {
        let mut lab = Lab::new();
        lab.overlay.zero(
            GroupId(0),
            StripeId::range(1..2),
            Sequence(9),
            std::iter::empty(),
        );
        assert!(
            !lab.holds_nothing(Sequence(9)),
            "blocks may be on their way there"
        );
        lab.op.location.destination = Destination::Free { from: StripeId(5) };
        assert!(!lab.holds_nothing(Sequence(8)) && lab.holds_nothing(Sequence(9)));
    }

    #[test]
    fn pages_that_are_not_in_memory_are_read_first() {
        let mut lab = Lab::new();
        let missing = |lab: &Lab| pages_of_writes(&lab.cx, &lab.pages, GroupId(0), &lab.plan);
        assert!(missing(&lab).is_empty());
        lab.pages = PageCache::new(64);
        let all: BTreeSet<PageName> = (0..6)
            .map(|column| block(Column(column), 0).page())
            .collect();
        assert_eq!(missing(&lab), all);
    }

    #[test]
    fn what_is_in_place_is_logged_as_runs_with_the_checksum_of_each_block() {
        let lab = Lab::new();
        let units = lab.units();
        assert_eq!(units.len(), 1);
        // Checksums come sub-stripe by sub-stripe: those of column 0 are every sixth.
        let first = (block(Column(0), 4), vec![0, 6, 12, 18]);
        assert_eq!((units[0].direct.len(), &units[0].direct[0]), (6, &first));
        assert!(units[0].blocks.is_empty() && units[0].moved.is_none());
    }

    #[test]
    fn a_stripe_that_moves_vacates_the_one_where_it_was() {
        let mut lab = Lab::new();
        lab.op.location.destination = Destination::Free { from: StripeId(5) };
        let units = lab.units();
        assert_eq!((units.len(), units[0].direct.len()), (1, 6));
        let vacated = Zeroed {
            group: GroupId(0),
            stripes: StripeId::range(5..6),
            only: None,
        };
        assert_eq!(units[0].zeroed, Some(vacated));
        assert_eq!(
            units[0].moved,
            Some((GroupId(0), DataStripe(1), HeldIn::parity(StripeId(1))))
        );
    }

    #[test]
    fn a_unit_describes_as_many_rows_as_a_header_has_room_for() {
        assert_eq!(rows_of_unit(6), Some(164));
        assert_eq!(rows_of_unit(49), Some(14));
        assert_eq!(rows_of_unit(200), None);
        for elements in 1..170 {
            if let Some(rows) = rows_of_unit(elements) {
                let run = Descriptor::bytes_of_direct(usize::try_from(rows).unwrap());
                assert!(elements * run <= UNIT_BYTES_MAX);
            }
        }
    }
}
