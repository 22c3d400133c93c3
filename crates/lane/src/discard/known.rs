//! Checks whether stripes or a group hold nothing that counts, as far as this is known without I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::BLOCK_BYTES;
use format::runs::{self, Runs};
use format::seeded::{self, SeededFault};
use format::{BlockName, Column, ENTRIES_PER_META_PAGE, Form, GroupId, PageName, StripeId};

use crate::context::Context;
use crate::entries::Entries;
use crate::maps::StripeMaps;
use crate::pages::CheckpointPages;

/// What is known of space that may be discarded, at the time of one input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KnownSpace<'a> {
    pub(crate) entries: Entries<'a>,
    pub(crate) maps: &'a StripeMaps,
    pub(crate) checkpoint: CheckpointPages<'a>,
    /// A job works on the group, and reads its entries.
    pub(crate) has_job: bool,
}

/// The result of a check of stripes or of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// These chunks hold nothing that counts, by column.
    Nothing(BTreeMap<Column, Runs>),
    /// Pages must be read first.
    Missing(BTreeSet<PageName>),
    /// The check must be repeated after the next checkpoint.
    Later,
}

impl KnownSpace<'_> {
    /// Finds which of these stripes still hold nothing. The others have been written since: a trim makes them
    /// candidates again.
    pub(super) fn at_stripes(
        &self,
        cx: &Context,
        group: GroupId,
        stripes: Range<StripeId>,
    ) -> Found {
        let Entries { overlay, pages } = self.entries;
        let mut empty: BTreeMap<Column, Runs> = BTreeMap::new();
        let mut missing = BTreeSet::new();
        let early = seeded::is(SeededFault::DiscardUnflushed);
        let has_free = cx.geometry.free_stripes() > 0;
        let leaves_free = has_free && !self.group_holds_nothing(cx, group);
        for stripe in StripeId::each(stripes) {
            if overlay.is_zeroed(group, stripe) != early {
                continue;
            }
            if leaves_free && self.maps.is_known_free(group, stripe) {
                continue;
            }
            let elements = 0..cx.geometry.code().elements();
            let places: Vec<(Column, u64)> = elements
                .map(|slot| cx.geometry.place(group, stripe, Form::Parity, slot))
                .collect();
            let blocks = places
                .iter()
                .map(|&(column, chunk)| blocks_of_chunk(cx, group, column, chunk));
            if blocks
                .clone()
                .any(|(first, count)| overlay.holds(first, count))
            {
                continue;
            }
            let mut unwritten = true;
            for (first, count) in blocks.filter(|_| !early) {
                for name in pages_of(first, count) {
                    if !pages.contains(name) {
                        missing.insert(name);
                    } else if !pages.is_clean(name) || self.checkpoint.written.contains(&name) {
                        return Found::Later;
                    }
                }
                unwritten &= pages.are_unwritten(first, count);
            }
            if unwritten {
                for (column, chunk) in places {
                    let runs = empty.entry(column).or_default();
                    runs::insert(runs, &(chunk..chunk + 1));
                }
            }
        }
        match missing.is_empty() {
            true => Found::Nothing(empty),
            false => Found::Missing(missing),
        }
    }

    /// The same for what only one form of these stripes keeps, chunk by chunk.
    pub(super) fn at_form(
        &self,
        cx: &Context,
        group: GroupId,
        stripes: Range<StripeId>,
        form: Form,
    ) -> Found {
        let Entries { overlay, pages } = self.entries;
        let mut empty: BTreeMap<Column, Runs> = BTreeMap::new();
        let mut missing = BTreeSet::new();
        for stripe in StripeId::each(stripes) {
            let free = self.maps.is_known_free(group, stripe);
            if overlay.is_zeroed(group, stripe) || (free && form == Form::Parity) {
                continue;
            }
            for slot in cx.geometry.code_of(form).parity_slots() {
                let (column, chunk) = cx.geometry.place(group, stripe, form, slot);
                let (first, count) = blocks_of_chunk(cx, group, column, chunk);
                if overlay.holds(first, count) {
                    continue;
                }
                for name in pages_of(first, count) {
                    if !pages.contains(name) {
                        missing.insert(name);
                    } else if !pages.is_clean(name) || self.checkpoint.written.contains(&name) {
                        return Found::Later;
                    }
                }
                if pages.are_unwritten(first, count) {
                    let runs = empty.entry(column).or_default();
                    runs::insert(runs, &(chunk..chunk + 1));
                }
            }
        }
        match missing.is_empty() {
            true => Found::Nothing(empty),
            false => Found::Missing(missing),
        }
    }

    /// Checks that the journal holds nothing of a group that belongs to no volume. The entries of such a group do not
    /// count any more.
    pub(super) fn at_group(&self, cx: &Context, group: GroupId) -> Found {
        let chunks = cx.geometry.cell_bytes() / cx.geometry.chunk_bytes();
        let columns = cx.geometry.columns();
        let overlay = self.entries.overlay;
        let mut written = self.checkpoint.written.iter();
        let logged = overlay.has_zeroed(group)
            || written.any(|name| name.group == group)
            || columns.clone().any(|column| {
                let (first, count) = entries_of_cell(cx, group, column);
                overlay.holds(first, count)
            });
        if self.has_job || (logged && !seeded::is(SeededFault::DiscardDescribed)) {
            return Found::Later;
        }
        let whole = |column| (column, vec![(0, chunks)]);
        Found::Nothing(columns.map(whole).collect())
    }
}

/// The blocks of a column's cell, and behind them the entries of its map.
pub(super) fn entries_of_cell(cx: &Context, group: GroupId, column: Column) -> (BlockName, u32) {
    let pages = u32::try_from(cx.geometry.pages_per_cell()).expect("few pages");
    let block = 0;
    let first = BlockName {
        group,
        column,
        block,
    };
    (first, pages * ENTRIES_PER_META_PAGE)
}

fn blocks_of_chunk(cx: &Context, group: GroupId, column: Column, chunk: u64) -> (BlockName, u32) {
    let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
    let first = BlockName {
        group,
        column,
        block: number(chunk * per_chunk),
    };
    (first, number(per_chunk))
}

/// The pages of `count` blocks from `first` on.
fn pages_of(first: BlockName, count: u32) -> impl Iterator<Item = PageName> {
    let end = first.block + count;
    let pages = first.block / ENTRIES_PER_META_PAGE..end.div_ceil(ENTRIES_PER_META_PAGE);
    pages.map(move |page| {
        let block = page * ENTRIES_PER_META_PAGE;
        BlockName { block, ..first }.page()
    })
}
