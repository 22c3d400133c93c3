//! The blocks that the target of a fill holds already: its drive was away, and has returned (`jobs/catchup.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::BLOCK_BYTES;
use format::{
    BlockName, Column, ENTRIES_PER_META_PAGE, Entry, GroupId, MetaPage, PageName, Sequence,
    StripeId,
};
use plan::Geometry;

/// What the target of a fill has already.
#[derive(Clone, Debug)]
pub(crate) struct Held {
    /// The column whose blocks it may hold.
    pub(crate) column: Column,
    /// Everything logged before this batch is on it.
    before: Sequence,
    /// Its pages of the column, and those of the columns before it in the group.
    pages: BTreeMap<PageName, MetaPage>,
}

impl Held {
    pub(crate) const fn new(
        column: Column,
        before: Sequence,
        pages: BTreeMap<PageName, MetaPage>,
    ) -> Self {
        Self {
            column,
            before,
            pages,
        }
    }

    /// True if the target has the block that this entry of the column describes.
    pub(crate) fn holds(&self, name: BlockName, entry: Entry) -> bool {
        entry.is_before(self.before) && self.has_entry(name, entry)
    }

    /// True if the entry is known, and the target's own page has the same one.
    pub(crate) fn has_entry(&self, name: BlockName, entry: Entry) -> bool {
        let page = self.pages.get(&name.page());
        entry != Entry::UNKNOWN && page.is_some_and(|page| page.get(name.entry()) == entry)
    }

    /// The target's own page.
    pub(crate) fn page(&self, name: PageName) -> Option<&MetaPage> {
        self.pages.get(&name)
    }

    /// The pages beside the target that describe these stripes, in their order on the drive.
    pub(crate) fn pages_of(
        &self,
        geometry: &Geometry,
        group: GroupId,
        stripes: &Range<StripeId>,
    ) -> Vec<PageName> {
        let per_column = usize::try_from(geometry.pages_per_cell()).expect("few pages");
        let copies = usize::try_from(geometry.page_copies()).expect("few copies");
        let per_chunk = geometry.chunk_bytes() / BLOCK_BYTES;
        // The places of both forms: what a form does not keep must be *unwritten* at the target, too.
        let places = StripeId::each(stripes.clone())
            .flat_map(|stripe| geometry.places_of_stripe(group, stripe));
        let chunks = places.filter(|&(column, _)| column == self.column);
        let mut indexes: BTreeSet<usize> = BTreeSet::new();
        for (_, chunk) in chunks {
            let page = |block: u64| {
                usize::try_from(block / u64::from(ENTRIES_PER_META_PAGE)).expect("few pages")
            };
            indexes.extend(page(chunk * per_chunk)..=page((chunk + 1) * per_chunk - 1));
        }
        if stripes.end.0 == geometry.stripes_per_group() {
            // Behind the last stripe a cell may have blocks that no stripe uses.
            let last = indexes.last().copied().unwrap_or(0);
            indexes.extend(last..per_column);
        }
        let beside = pages_beside(geometry, group, self.column).into_iter();
        let names = beside.filter(|name| indexes.contains(&(name.index as usize)));
        let names: Vec<PageName> = names.collect();
        debug_assert_eq!(names.len(), indexes.len() * copies);
        names
    }
}

/// The pages beside a cell that holds this column, in their order on the drive.
pub(crate) fn pages_beside(geometry: &Geometry, group: GroupId, column: Column) -> Vec<PageName> {
    let beside = geometry.pages_beside(column).into_iter();
    let names = beside.map(|(column, index)| PageName {
        group,
        column,
        index,
    });
    names.collect()
}

#[cfg(test)]
impl Held {
    /// Of a target that has no page of its own.
    pub(crate) const fn of_test(column: Column) -> Self {
        Self {
            column,
            before: Sequence(0),
            pages: BTreeMap::new(),
        }
    }

    /// The same with one more page.
    pub(crate) fn with_page(mut self, name: PageName, page: MetaPage) -> Self {
        self.pages.insert(name, page);
        self
    }
}
