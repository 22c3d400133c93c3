//! The parts of a group's data that hold nothing (holes), found without I/O.
//!
//! ```text
//!   group never written ─────────────────────────────────────► hole, without any look-up
//!   block is logged ─────────────────────────────────────────► data
//!   stripe is trimmed, or the block's entry is unwritten ────► hole
//!   all else, and blocks whose page is not in memory ────────► data
//! ```
//!
//! By the same rules a read returns zeros without a drive (`blocks.rs`, [`LaneBlocks::state`]), so a reported hole
//! reads as zeros. A block that reads as zeros may be reported as data. An acknowledged block is never reported as a
//! hole, because acknowledgement comes after the block is in the overlay.
//!
//! Pages that are not in memory are read on demand ([`Command::ReadPages`]); later answers are more precise.
//!
//! [`LaneBlocks::state`]: super::blocks::LaneBlocks
//! [`Command::ReadPages`]: plan::Command::ReadPages

use std::collections::BTreeSet;
use std::ops::Range;

use block::{BLOCK_BYTES, Extent, Request, RequestKind, push_extent};
use format::{BlockName, DataStripe, Entry, Form, GroupId, MetaPage, PageName, StripeId, VolumeId};
use plan::GroupRequest;
use plan::geometry::Segment;

use super::context::Context;
use super::maps::{Known, MapEntries, StripeMaps};

/// The state from which the holes of groups are found: journal, pages and maps.
pub(super) struct Extents<'a> {
    pub(super) cx: &'a Context,
    pub(super) entries: MapEntries<'a>,
    pub(super) maps: &'a StripeMaps,
}

impl Extents<'_> {
    /// The extents of these bytes of a group's data.
    pub(super) fn of(&self, group: GroupId, bytes: Range<u64>) -> Vec<Extent> {
        let mut extents = Vec::new();
        let map = self.map_of(group);
        for (data, segments) in self.segments_of(group, bytes) {
            let Some(stripe) = map.stripe_holding(data) else {
                let length = segments.iter().map(|part| part.high - part.low).sum();
                let hole = false;
                push_extent(&mut extents, Extent { length, hole });
                continue;
            };
            for segment in segments {
                self.push_extents(&mut extents, group, stripe, &segment);
            }
        }
        extents
    }

    /// The pages that are not in memory and would make the answer of [`of`](Self::of) more precise.
    pub(super) fn pages_lacking(&self, group: GroupId, bytes: Range<u64>) -> BTreeSet<PageName> {
        let pages = self.entries.pages;
        let mut missing = self.maps.pages_lacking(self.cx, pages, group);
        let map = self.map_of(group);
        for (data, segments) in self.segments_of(group, bytes) {
            // The map is not in memory. Nearly all data is in its own place, or near it.
            let stripe = map.stripe_holding(data).unwrap_or(data.own_place());
            for segment in segments {
                let (first, count) = self.blocks_of_segment(group, stripe, &segment);
                missing.extend(pages.missing(first, count));
            }
        }
        missing
    }

    /// The known part of a group's map.
    pub(super) fn map_of(&self, group: GroupId) -> Known<'_> {
        self.maps.if_known(self.cx, self.entries, group)
    }

    fn segments_of(&self, group: GroupId, bytes: Range<u64>) -> Vec<(DataStripe, Vec<Segment>)> {
        let request = Request {
            kind: RequestKind::Read,
            offset: bytes.start,
            length: bytes.end - bytes.start,
            fua: false,
        };
        self.cx.geometry.stripes(&GroupRequest {
            group,
            request,
            buffer_offset: 0,
            volume: VolumeId::NONE,
        })
    }

    /// The blocks that a segment touches: the first, and how many.
    fn blocks_of_segment(
        &self,
        group: GroupId,
        stripe: StripeId,
        segment: &Segment,
    ) -> (BlockName, u32) {
        let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        // Data is at the same place in both forms.
        let place = { &self.cx.geometry }.place(group, stripe, Form::Parity, segment.slot);
        let (column, chunk) = place;
        let before = chunk * self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let (low, high) = (
            segment.low / BLOCK_BYTES,
            segment.high.div_ceil(BLOCK_BYTES),
        );
        let first = BlockName {
            group,
            column,
            block: number(before + low),
        };
        (first, number(high - low))
    }

    fn push_extents(
        &self,
        extents: &mut Vec<Extent>,
        group: GroupId,
        stripe: StripeId,
        segment: &Segment,
    ) {
        let (first, count) = self.blocks_of_segment(group, stripe, segment);
        let logged = self.entries.overlay.holds(first, count);
        let trimmed = self.entries.overlay.is_zeroed(group, stripe);
        let mut page: Option<(PageName, Option<&MetaPage>)> = None;
        let mut low = segment.low;
        for block in first.block..first.block + count {
            let name = BlockName { block, ..first };
            let of = name.page();
            let page = match page {
                Some((last, page)) if last == of => page,
                _ => page.insert((of, self.entries.pages.page(of))).1,
            };
            let unwritten = page.is_some_and(|page| page.get(name.entry()) == Entry::UNWRITTEN);
            let hole =
                (trimmed || unwritten) && !(logged && self.entries.overlay.get(name).is_some());
            let high = segment.high.min((low / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let length = high - low;
            push_extent(extents, Extent { length, hole });
            low = high;
        }
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, HeldIn, Sequence};
    use plan::ScratchId;
    use plan::action::{BufferId, Slice};

    use super::*;
    use crate::blocks::block;
    use crate::overlay::{Bytes, Logged, Overlay};
    use crate::pages::PageCache;

    /// A small group whose pages are all in memory, and all *unwritten*.
    struct Lab {
        cx: Context,
        overlay: Overlay,
        pages: PageCache,
        maps: StripeMaps,
    }

    const CHUNK: u64 = 16 << 10;

    fn page(column: Column) -> PageName {
        block(column, 0).page()
    }

    impl Lab {
        fn new(free_stripes: u64) -> Self {
            let change = |regions: &mut plan::Regions| regions.free_stripes = free_stripes;
            let mut lab = Self {
                cx: Context::of_test_with("raid6", 6, 256 << 10, change),
                overlay: Overlay::default(),
                pages: PageCache::new(64),
                maps: StripeMaps::default(),
            };
            for column in (0..6).map(Column) {
                lab.put(column, Entry::UNWRITTEN);
            }
            lab
        }

        fn put(&mut self, column: Column, entry: Entry) {
            self.pages.put(page(column), MetaPage::filled(entry, 1));
        }

        /// The place of the first block of a stripe's first data element.
        fn first_block(&self, stripe: StripeId) -> BlockName {
            let (column, chunk) = self.cx.geometry.place(GroupId(0), stripe, Form::Parity, 0);
            let at = chunk * CHUNK / BLOCK_BYTES;
            block(column, u32::try_from(at).unwrap())
        }

        fn log(&mut self, name: BlockName) {
            let slice = Slice {
                buffer: BufferId::Scratch(ScratchId(1)),
                offset: 0,
                length: BLOCK_BYTES,
            };
            let logged = Logged {
                bytes: Bytes::Memory(slice),
                entry: Entry::WRITTEN,
                sequence: Sequence(9),
            };
            self.overlay.insert(name, logged);
        }

        fn extents(&self) -> Extents<'_> {
            let entries = MapEntries {
                overlay: &self.overlay,
                pages: &self.pages,
                sequence: Sequence(10),
            };
            Extents {
                cx: &self.cx,
                entries,
                maps: &self.maps,
            }
        }

        /// The extents of these bytes: length, and true for a hole.
        fn of(&self, bytes: Range<u64>) -> Vec<(u64, bool)> {
            let extents = self.extents().of(GroupId(0), bytes).into_iter();
            extents.map(|extent| (extent.length, extent.hole)).collect()
        }
    }

    #[test]
    fn what_was_never_written_is_one_hole() {
        let lab = Lab::new(0);
        assert_eq!(lab.of(0..9 * CHUNK), [(9 * CHUNK, true)]);
        assert!(
            lab.extents()
                .pages_lacking(GroupId(0), 0..9 * CHUNK)
                .is_empty()
        );
    }

    #[test]
    fn a_logged_block_is_data_and_ranges_need_not_be_whole_blocks() {
        let mut lab = Lab::new(0);
        lab.log(lab.first_block(StripeId(0)));
        assert_eq!(lab.of(0..CHUNK), [(4096, false), (CHUNK - 4096, true)]);
        assert_eq!(lab.of(100..5000), [(3996, false), (904, true)]);
    }

    #[test]
    fn a_written_chunk_is_data_until_its_stripe_is_trimmed() {
        let mut lab = Lab::new(0);
        let first = lab.first_block(StripeId(0));
        lab.put(first.column, Entry::WRITTEN);
        let data = [(CHUNK, false), (3 * CHUNK, true)];
        assert_eq!(lab.of(0..4 * CHUNK), data);
        lab.overlay.zero(
            GroupId(0),
            StripeId::range(0..1),
            Sequence(9),
            std::iter::empty(),
        );
        assert_eq!(lab.of(0..4 * CHUNK), [(4 * CHUNK, true)]);
        lab.log(first);
        assert_eq!(lab.of(0..4096), [(4096, false)], "written since");
    }

    #[test]
    fn what_no_page_in_memory_says_is_data_and_its_page_is_lacking() {
        let mut lab = Lab::new(0);
        let column = lab.first_block(StripeId(0)).column;
        lab.pages = PageCache::new(64);
        for other in (0..6).map(Column).filter(|&other| other != column) {
            lab.put(other, Entry::UNWRITTEN);
        }
        assert_eq!(lab.of(0..2 * CHUNK), [(CHUNK, false), (CHUNK, true)]);
        let lacking = |bytes| lab.extents().pages_lacking(GroupId(0), bytes);
        assert_eq!(lacking(0..CHUNK), BTreeSet::from([page(column)]));
        assert!(lacking(CHUNK..2 * CHUNK).is_empty());
    }

    #[test]
    fn data_that_has_moved_is_looked_at_where_it_is() {
        let mut lab = Lab::new(2);
        let entries = MapEntries {
            overlay: &lab.overlay,
            pages: &lab.pages,
            sequence: Sequence(10),
        };
        assert_eq!(lab.maps.load(&lab.cx, entries, GroupId(0)), Ok(Vec::new()));
        assert!(lab.maps.moved(
            &mut lab.cx,
            (GroupId(0), DataStripe(1)),
            HeldIn::parity(StripeId(15)),
            Sequence(9)
        ));
        lab.log(lab.first_block(StripeId(15)));
        let stripe = lab.cx.geometry.stripe_data_bytes();
        assert_eq!(lab.of(stripe..stripe + 4096), [(4096, false)]);
        assert_eq!(
            lab.extents().map_of(GroupId(0)).data_held_by(StripeId(15)),
            Some(DataStripe(1))
        );
    }
}
