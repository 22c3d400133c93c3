//! Applies a batch once it counts: it is complete, or recovery has found it.
//!
//! ```text
//!   content, derived   the block's bytes are in the batch's buffer             ─┐
//!   direct             the blocks are in their places                          │
//!   unknown, absent    the block has changed, and no drive has it              ├─► overlay
//!   zeroed             the stripes read as zeros; earlier records end          │
//!   of one form alone  its parity or copies are unwritten: in place, like all  │
//!   moved              a stripe of the group's data is in another stripe       ─┴─► maps
//! ```
//!
//! Descriptors are applied in their order: a unit zeroes its stripes before its other descriptors apply.

use std::ops::Range;

use format::{
    BatchHeader, BlockName, DataStripe, Descriptor, Entry, Form, GroupId, HeldIn, Sequence,
    StripeId,
};

use super::BatchBuffer;
use crate::context::Context;
use crate::direct_writes::DirectWrites;
use crate::maps::StripeMaps;
use crate::overlay::{Bytes, Logged, Overlay};

/// The state that batches change.
pub(crate) struct Applied<'a> {
    pub(crate) overlay: &'a mut Overlay,
    pub(crate) maps: &'a mut StripeMaps,
    pub(crate) direct: &'a mut DirectWrites,
}

impl Applied<'_> {
    /// Applies a batch, which counts from now on.
    pub(crate) fn apply(&mut self, cx: &mut Context, header: &BatchHeader, buffer: BatchBuffer) {
        let pool = cx.geometry.regions().expect("a log needs a journal").pool;
        let sequence = header.sequence;
        let (mut content, mut derived) = (0, 0);
        for descriptor in &header.descriptors {
            let (name, bytes, crc) = match *descriptor {
                Descriptor::Content { name, crc } => {
                    content += 1;
                    let slice = buffer.content(content - 1);
                    (name, Bytes::Memory(slice), Some(crc))
                }
                Descriptor::Derived { name, crc } => {
                    derived += 1;
                    let slice = buffer.derived(derived - 1);
                    (name, Bytes::Memory(slice), Some(crc))
                }
                Descriptor::Absent { name, crc } => (name, Bytes::Nowhere, Some(crc)),
                Descriptor::Unknown(name) => (name, Bytes::Nowhere, None),
                Descriptor::Direct { first, ref crcs } => {
                    self.direct.logged(sequence, crcs.len() as u64);
                    for (block, &crc) in (first.block..).zip(crcs) {
                        let name = BlockName { block, ..first };
                        let entry = Entry::new(pool, name, crc, sequence);
                        self.insert(name, Bytes::InPlace, entry, sequence);
                    }
                    continue;
                }
                Descriptor::Moved { group, data, to } => {
                    self.moved(cx, (group, data), to, sequence);
                    continue;
                }
                Descriptor::Zeroed {
                    group,
                    first,
                    count,
                    only,
                } => {
                    let stripes = first..first.plus(u64::from(count));
                    if let Some(form) = only {
                        self.given_up(cx, (group, stripes, form), sequence);
                        continue;
                    }
                    let names = cx.geometry.blocks_of_stripes(group, stripes.clone());
                    self.overlay
                        .zero(group, stripes, sequence, names.into_iter());
                    continue;
                }
            };
            let entry = crc.map(|crc| Entry::new(pool, name, crc, sequence));
            self.insert(name, bytes, entry.unwrap_or(Entry::UNKNOWN), sequence);
        }
    }

    fn insert(&mut self, name: BlockName, bytes: Bytes, entry: Entry, sequence: Sequence) {
        let logged = Logged {
            bytes,
            entry,
            sequence,
        };
        self.overlay.insert(name, logged);
    }

    /// Stripes have changed their form: what only the form from before keeps is unwritten.
    fn given_up(
        &mut self,
        cx: &Context,
        (group, stripes, form): (GroupId, Range<StripeId>, Form),
        sequence: Sequence,
    ) {
        if !cx.geometry.is_elastic() {
            return;
        }
        let end = stripes.end.min(StripeId(cx.geometry.stripes_per_group()));
        for stripe in StripeId::each(stripes.start..end) {
            let names: Vec<BlockName> = cx.geometry.blocks_only_of(group, stripe, form).collect();
            for name in names {
                self.insert(name, Bytes::InPlace, Entry::UNWRITTEN, sequence);
            }
        }
    }

    /// A stripe of the data has moved: the map of each column gets a new entry.
    fn moved(
        &mut self,
        cx: &mut Context,
        (group, data): (GroupId, DataStripe),
        to: HeldIn,
        sequence: Sequence,
    ) {
        if self.maps.moved(cx, (group, data), to, sequence) {
            for column in cx.geometry.columns() {
                let name = cx.geometry.map_name(group, column, data);
                self.insert(name, Bytes::InPlace, Entry::of_map(to, sequence), sequence);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, Generation};
    use plan::ScratchId;

    use super::*;
    use crate::blocks::block;

    /// Batch 9, with two rows of two data columns and two of parity. A stripe has four blocks of each column.
    struct Lab {
        cx: Context,
        overlay: Overlay,
        maps: StripeMaps,
        direct: DirectWrites,
    }

    impl Lab {
        fn new() -> Self {
            let change = |regions: &mut plan::Regions| regions.free_stripes = 2;
            Self {
                cx: Context::of_test_with("raid6", 6, 256 << 10, change),
                overlay: Overlay::default(),
                maps: StripeMaps::default(),
                direct: DirectWrites::default(),
            }
        }

        fn apply(&mut self, descriptors: Vec<Descriptor>) -> BatchBuffer {
            let header = BatchHeader {
                incarnation: Generation(1),
                sequence: Sequence(9),
                flushed: Sequence(0),
                seats: (0..4).map(Seat).collect(),
                data_columns: 2,
                rows: 2,
                parity_crcs: vec![0; 4],
                descriptors,
            };
            let buffer = BatchBuffer::new(&header, ScratchId(5));
            let mut applied = Applied {
                overlay: &mut self.overlay,
                maps: &mut self.maps,
                direct: &mut self.direct,
            };
            applied.apply(&mut self.cx, &header, buffer);
            buffer
        }

        fn logged(&self, name: BlockName) -> (Bytes, u64) {
            let logged = self.overlay.get(name).expect("it is logged");
            (logged.bytes, logged.sequence.0)
        }

        /// True if a block's entry has this checksum.
        fn has_sum(&self, name: BlockName, crc: u32) -> bool {
            let pool = self.cx.geometry.regions().expect("a journal").pool;
            let logged = self.overlay.get(name).expect("it is logged");
            logged.entry == Entry::new(pool, name, crc, Sequence(9))
        }
    }

    fn content(at: u32, crc: u32) -> Descriptor {
        let name = block(Column(1), at);
        Descriptor::Content { name, crc }
    }

    #[test]
    fn content_is_in_the_rows_of_the_data_columns_in_order() {
        let mut lab = Lab::new();
        let buffer = lab.apply((0..4).map(|at| content(at, at)).collect());
        for at in 0..4 {
            let column = buffer.rows(usize::try_from(at / 2).unwrap());
            let bytes = column.part(u64::from(at % 2) * 4096, 4096);
            assert_eq!(lab.logged(block(Column(1), at)), (Bytes::Memory(bytes), 9));
            assert!(lab.has_sum(block(Column(1), at), at));
        }
    }

    #[test]
    fn derived_parity_is_behind_all_columns() {
        let mut lab = Lab::new();
        let name = block(Column(5), 0);
        let derived = Descriptor::Derived { name, crc: 6 };
        let buffer = lab.apply(vec![content(0, 1), derived]);
        let (Bytes::Memory(slice), 9) = lab.logged(name) else {
            panic!("it is in memory");
        };
        let last = buffer.column(3);
        assert_eq!(slice.offset, last.offset + last.length);
        assert!(lab.has_sum(name, 6));
    }

    #[test]
    fn a_block_that_changed_while_its_column_was_away_is_nowhere() {
        let mut lab = Lab::new();
        let (known, unknown) = (block(Column(1), 0), block(Column(1), 1));
        let absent = Descriptor::Absent {
            name: known,
            crc: 4,
        };
        lab.apply(vec![absent, Descriptor::Unknown(unknown)]);
        assert_eq!(lab.logged(known), (Bytes::Nowhere, 9));
        assert!(lab.has_sum(known, 4));
        assert_eq!(lab.logged(unknown), (Bytes::Nowhere, 9));
        assert_eq!(lab.overlay.get(unknown).unwrap().entry, Entry::UNKNOWN);
    }

    #[test]
    fn blocks_in_place_are_counted_until_they_are_flushed() {
        let mut lab = Lab::new();
        let direct = Descriptor::Direct {
            first: block(Column(1), 2),
            crcs: vec![7, 8],
        };
        lab.apply(vec![direct]);
        assert_eq!(lab.logged(block(Column(1), 3)), (Bytes::InPlace, 9));
        assert!(lab.has_sum(block(Column(1), 2), 7) && lab.has_sum(block(Column(1), 3), 8));
        assert!(lab.overlay.get(block(Column(1), 4)).is_none());
        assert!(
            lab.direct.ask_flush(Sequence(9), u16::MAX),
            "of so many lanes each has one"
        );
    }

    #[test]
    fn what_a_batch_zeroes_is_before_what_it_says_next() {
        let mut lab = Lab::new();
        lab.apply(vec![content(3, 1), content(4, 1)]);
        let zeroed = Descriptor::Zeroed {
            group: GroupId(0),
            first: StripeId(0),
            count: 1,
            only: None,
        };
        lab.apply(vec![zeroed, content(2, 8)]);
        assert!(
            lab.overlay.is_zeroed(GroupId(0), StripeId(0))
                && !lab.overlay.is_zeroed(GroupId(0), StripeId(1))
        );
        assert!(lab.overlay.get(block(Column(1), 3)).is_none());
        assert!(lab.has_sum(block(Column(1), 2), 8));
        assert!(lab.has_sum(block(Column(1), 4), 1), "of the next stripe");
    }

    #[test]
    fn the_map_of_each_column_says_where_data_has_moved() {
        let mut lab = Lab::new();
        let moved = |data| Descriptor::Moved {
            group: GroupId(0),
            data,
            to: HeldIn::parity(StripeId(15)),
        };
        lab.apply(vec![moved(DataStripe(3))]);
        for column in (0..6).map(Column) {
            let name = lab.cx.geometry.map_name(GroupId(0), column, DataStripe(3));
            assert_eq!(lab.logged(name), (Bytes::InPlace, 9));
            assert_eq!(
                lab.overlay.get(name).unwrap().entry,
                Entry::of_map(HeldIn::parity(StripeId(15)), Sequence(9))
            );
        }
        let version = lab.maps.version();
        lab.apply(vec![moved(DataStripe(99))]);
        assert_eq!(lab.maps.version(), version, "there is no such data");
        let name = lab
            .cx
            .geometry
            .map_name(GroupId(0), Column(0), DataStripe(99));
        assert!(lab.overlay.get(name).is_none());
    }
}
