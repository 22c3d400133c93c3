//! Plans in a pool whose content is right by definition ([`Lane::trust_content`](super::Lane::trust_content)).
//!
//! If nothing is logged of a group and nothing was found bad, every block of the group is in its place. So the state of
//! a chunk's blocks need not be looked up one by one. The content of the pages is known, but they are read all the
//! same: a fill is planned when all pages of its range are in memory.

use std::collections::BTreeSet;
use std::ops::Range;

use format::{BlockName, ENTRIES_PER_META_PAGE, PageName, StripeId};
use plan::Geometry;

use super::context::Context;
use super::op::{Op, Task};
use super::overlay::Overlay;
use super::pages::PageCache;

/// Blocks of each column's cell that the operation's stripes take.
fn blocks_of_stripes(geometry: &Geometry, op: &Op) -> Range<u32> {
    let per_chunk = geometry.chunk_bytes() / block::BLOCK_BYTES;
    let per_stripe = per_chunk * u64::from(geometry.code().rows());
    let narrow = |value| u32::try_from(value).expect("cells have fewer than 2^32 blocks");
    narrow(op.stripes.start.0 * per_stripe)..narrow(op.stripes.end.0 * per_stripe)
}

/// True if a fill can be planned without looking up single blocks.
pub(super) fn is_plain_fill(cx: &Context, overlay: &Overlay, op: &Op) -> bool {
    let fills = matches!(op.task, Task::Fill { .. }) && op.task.held().is_none();
    let sound = op.found.bad.is_empty()
        && op.detour.avoid.is_empty()
        && op.found.arbitration.distrusted().is_empty();
    // Rows and slots are the same in all columns, except in layouts that keep several copies on one drive.
    let alike =
        cx.geometry.layout().columns() == cx.geometry.code().columns() && !cx.geometry.is_elastic();
    if !(cx.trusted && fills && sound && alike && cx.geometry.regions().is_some()) {
        return false;
    }
    let blocks = blocks_of_stripes(&cx.geometry, op);
    let count = blocks.end - blocks.start;
    let logged = cx.geometry.columns().any(|column| {
        let first = BlockName {
            group: op.group,
            column,
            block: blocks.start,
        };
        overlay.holds(first, count)
    });
    let mut stripes = StripeId::each(op.stripes.clone());
    !logged && !stripes.any(|stripe| overlay.is_zeroed(op.group, stripe))
}

/// Pages of the operation's stripes that are not in memory.
pub(super) fn missing_pages(cx: &Context, pages: &PageCache, op: &Op) -> BTreeSet<PageName> {
    let blocks = blocks_of_stripes(&cx.geometry, op);
    let first = blocks.start / ENTRIES_PER_META_PAGE;
    let last = blocks.end.saturating_sub(1) / ENTRIES_PER_META_PAGE;
    let columns = cx.geometry.columns();
    let names = columns.flat_map(|column| {
        (first..=last).map(move |index| PageName {
            group: op.group,
            column,
            index,
        })
    });
    names.filter(|&name| !pages.contains(name)).collect()
}

#[cfg(test)]
mod tests {
    use format::{Column, Entry, GroupId, MetaPage, Sequence};

    use super::*;
    use crate::blocks::block;
    use crate::ids::JobId;
    use crate::op::Owner;
    use crate::overlay::{Bytes, Logged};

    /// A step of a fill in a pool whose content is right by definition.
    fn begun(stripes: Range<StripeId>) -> (Context, Overlay, Op) {
        let mut cx = Context::of_test_with("raid6", 6, 16 << 20, |_| {});
        cx.trusted = true;
        let task = Task::Fill {
            column: Column(2),
            target: cx.geometry.home(GroupId(0), Column(2)),
            avoid: Vec::new(),
            held: None,
        };
        let op = Op::new(Owner::Job(JobId(1)), GroupId(0), stripes, task);
        (cx, Overlay::default(), op)
    }

    #[test]
    fn a_fill_of_trusted_content_needs_no_look_at_blocks() {
        let (mut cx, overlay, op) = begun(StripeId::range(0..4));
        assert!(is_plain_fill(&cx, &overlay, &op));
        cx.trusted = false;
        assert!(!is_plain_fill(&cx, &overlay, &op));
    }

    #[test]
    fn a_scrub_of_trusted_content_looks_at_blocks() {
        let (cx, overlay, mut op) = begun(StripeId::range(0..4));
        op.task = Task::Scrub;
        assert!(!is_plain_fill(&cx, &overlay, &op));
    }

    #[test]
    fn a_block_that_was_found_bad_is_looked_at() {
        let (cx, overlay, mut op) = begun(StripeId::range(0..4));
        op.found.bad.insert((Column(3), 1));
        assert!(!is_plain_fill(&cx, &overlay, &op));
    }

    #[test]
    fn what_is_logged_in_the_stripes_is_looked_at() {
        let (cx, mut overlay, op) = begun(StripeId::range(4..8));
        let logged = Logged {
            bytes: Bytes::InPlace,
            entry: Entry::WRITTEN,
            sequence: Sequence(7),
        };
        // Stripes 4 to 7 are blocks 16 to 31 of each column.
        for around in [15, 32] {
            overlay.insert(block(Column(5), around), logged);
        }
        assert!(is_plain_fill(&cx, &overlay, &op));
        overlay.insert(block(Column(5), 31), logged);
        assert!(!is_plain_fill(&cx, &overlay, &op));
    }

    #[test]
    fn a_stripe_that_is_trimmed_is_looked_at() {
        let (cx, mut overlay, op) = begun(StripeId::range(4..8));
        overlay.zero(
            GroupId(0),
            StripeId::range(8..9),
            Sequence(7),
            std::iter::empty(),
        );
        assert!(is_plain_fill(&cx, &overlay, &op));
        overlay.zero(
            GroupId(0),
            StripeId::range(7..8),
            Sequence(7),
            std::iter::empty(),
        );
        assert!(!is_plain_fill(&cx, &overlay, &op));
    }

    #[test]
    fn the_pages_of_all_columns_are_needed() {
        // 124 stripes are described by one page of each column.
        let (cx, _, op) = begun(StripeId::range(123..125));
        let mut pages = PageCache::new(4096);
        assert_eq!(missing_pages(&cx, &pages, &op).len(), 12);
        let here = block(Column(3), 496).page();
        pages.put(here, MetaPage::all_written());
        let missing = missing_pages(&cx, &pages, &op);
        assert!(missing.len() == 11 && !missing.contains(&here));
    }
}
