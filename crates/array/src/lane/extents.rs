//! Which parts of a group's data hold nothing.
//!
//! ```text
//!   group never written ─────────────────────────────────────► hole, without a look at anything
//!   block is logged ─────────────────────────────────────────► data
//!   stripe is trimmed, or the block's entry says unwritten ──► hole
//!   all else, and blocks whose page is not in memory ────────► data
//! ```
//!
//! These are the rules by which a read answers zeros without a drive (`blocks.rs`, [`LaneBlocks::state`]), so that what is
//! called a hole reads as zeros. A block may be called data that reads as zeros; one that was acknowledged is never
//! called a hole, for acknowledgement comes after it is in the overlay.
//!
//! Pages that are not in memory are read on demand ([`Command::ReadPages`]): whoever asks, asks again when they are.
//!
//! [`LaneBlocks::state`]: super::blocks::LaneBlocks
//! [`Command::ReadPages`]: crate::Command::ReadPages

use std::collections::BTreeSet;
use std::ops::Range;

use block::{BLOCK_BYTES, Extent, Request, RequestKind, push_extent};

use super::Lane;
use super::maps::{Known, MapEntries};
use crate::format::{BlockName, Entry, MetaPage, PageName};
use crate::geometry::Segment;
use crate::{GroupRequest, VolumeId};

impl Lane {
    /// Which of these bytes of a group's data hold nothing, as far as it is known without I/O.
    #[must_use]
    pub fn extents(&self, group: u64, bytes: Range<u64>) -> Vec<Extent> {
        let length = bytes.end - bytes.start;
        let whole = |hole| vec![Extent { length, hole }];
        if self.uninitialized.contains(group) {
            return whole(true);
        }
        if !self.knows_blocks(group) {
            return whole(false);
        }
        let mut extents = Vec::new();
        let map = self.map_of(group);
        for (data, segments) in self.segments_of(group, bytes) {
            let Some(stripe) = map.stripe_holding(data) else {
                let length = segments.iter().map(|part| part.high - part.low).sum();
                push_extent(
                    &mut extents,
                    Extent {
                        length,
                        hole: false,
                    },
                );
                continue;
            };
            for segment in segments {
                self.push_extents(&mut extents, group, stripe, &segment);
            }
        }
        extents
    }

    /// True if asking for the pages of these bytes would make [`extents`](Self::extents) know more.
    #[must_use]
    pub fn lacks_pages(&self, group: u64, bytes: Range<u64>) -> bool {
        !self.pages_lacking(group, bytes).is_empty()
    }

    /// True while pages of the group are on their way into memory.
    #[must_use]
    pub fn reads_pages(&self, group: u64) -> bool {
        self.pages.reads_group(group)
    }

    /// The stripe of a group's data that a stripe holds, as far as that is known without I/O; `None` also if it holds none.
    #[must_use]
    pub fn data_of_stripe(&self, group: u64, stripe: u64) -> Option<u64> {
        self.map_of(group).data_held_by(stripe)
    }

    /// What is known of a group's map without I/O.
    fn map_of(&self, group: u64) -> Known<'_> {
        let entries = MapEntries {
            overlay: &self.overlay,
            pages: &self.pages,
            sequence: self.log.next_sequence(),
        };
        self.maps.if_known(&self.cx, entries, group)
    }

    /// For [`Command::ReadPages`](crate::Command::ReadPages).
    pub(super) fn read_pages(&mut self, group: u64, bytes: Range<u64>) {
        let names = self.pages_lacking(group, bytes);
        self.load_pages(names);
    }

    /// Whether pages and overlay say what the group's blocks hold: not in a pool without them, and not before recovery
    /// has found all that is logged.
    fn knows_blocks(&self, group: u64) -> bool {
        let store = self.cx.geometry.store().is_some() && !self.cx.trusted;
        store && self.recovery.is_none() && self.check_here(group).is_ok()
    }

    fn pages_lacking(&self, group: u64, bytes: Range<u64>) -> BTreeSet<PageName> {
        let mut missing = BTreeSet::new();
        if self.uninitialized.contains(group) || !self.knows_blocks(group) {
            return missing;
        }
        missing.extend(self.maps.pages_lacking(&self.cx, &self.pages, group));
        let map = self.map_of(group);
        for (data, segments) in self.segments_of(group, bytes) {
            // Until the map is here: nearly all data is in its own place, or near it.
            let stripe = map.stripe_holding(data).unwrap_or(data);
            for segment in segments {
                let (first, count) = self.blocks_of_segment(group, stripe, &segment);
                missing.extend(self.pages.missing(first, count));
            }
        }
        missing
    }

    fn segments_of(&self, group: u64, bytes: Range<u64>) -> Vec<(u64, Vec<Segment>)> {
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
    fn blocks_of_segment(&self, group: u64, stripe: u64, segment: &Segment) -> (BlockName, u32) {
        let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        let (column, chunk) = self.cx.geometry.place(group, stripe, segment.slot);
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

    fn push_extents(&self, extents: &mut Vec<Extent>, group: u64, stripe: u64, segment: &Segment) {
        let (first, count) = self.blocks_of_segment(group, stripe, segment);
        let logged = self.overlay.holds(first, count);
        let trimmed = self.overlay.is_zeroed(group, stripe);
        let mut page: Option<(PageName, Option<&MetaPage>)> = None;
        let mut low = segment.low;
        for block in first.block..first.block + count {
            let name = BlockName { block, ..first };
            let of = name.page();
            let page = match page {
                Some((last, page)) if last == of => page,
                _ => page.insert((of, self.pages.page(of))).1,
            };
            let unwritten = page.is_some_and(|page| page.get(name.entry()) == Entry::UNWRITTEN);
            let hole = (trimmed || unwritten) && !(logged && self.overlay.get(name).is_some());
            let high = segment.high.min((low / BLOCK_BYTES + 1) * BLOCK_BYTES);
            let length = high - low;
            push_extent(extents, Extent { length, hole });
            low = high;
        }
    }
}
