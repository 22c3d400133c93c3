//! The cell tables: which cell holds which column, durable on the drive that holds it.
//!
//! A page is written once at a time. Changes that come meanwhile are in its next write; records are returned when the write
//! that has their entry has ended.

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use format::{CellEntry, CellPage};
use layout::Cell;

use super::{Placement, Record};

/// One drive's table in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct CellTable {
    pages: BTreeMap<u64, CellPage>,
    /// Pages being written.
    writing: BTreeSet<u64>,
    /// Records of the present write of a page.
    in_write: BTreeMap<u64, Vec<Record>>,
    /// Pages that have changed since then, and the records of their next write.
    waiting: BTreeMap<u64, Vec<Record>>,
    /// Pages that their full drive has refused: they are written again later.
    refused: BTreeSet<u64>,
}

/// A page to be written.
#[derive(Debug)]
pub(crate) struct PageWrite {
    pub(crate) seat: Seat,
    pub(crate) first_row: u64,
    /// First byte, from the beginning of the table.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
}

impl CellTable {
    pub(super) fn new(pages: impl IntoIterator<Item = CellPage>) -> Self {
        let pages = pages.into_iter().map(|page| (page.first_row, page));
        Self {
            pages: pages.collect(),
            ..Self::default()
        }
    }

    /// The table's entry for a cell.
    pub(super) fn at(&self, row: u64) -> Option<CellEntry> {
        let page = self.pages.get(&CellPage::first_row_of(row))?;
        page.entries[usize::try_from(row - page.first_row).ok()?]
    }

    /// Every cell that has an entry.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u64, CellEntry)> + '_ {
        self.pages.values().flat_map(|page| {
            let rows = page.first_row..;
            rows.zip(&page.entries)
                .filter_map(|(row, entry)| entry.map(|entry| (row, entry)))
        })
    }

    /// No entry counts any more. The sequence numbers of the pages go on: the drive has these pages.
    fn clear(&mut self) {
        for page in self.pages.values_mut() {
            page.entries.fill(None);
        }
        self.in_write.clear();
        self.waiting.clear();
    }

    /// Whether a change is not durable yet.
    fn is_writing(&self) -> bool {
        !self.writing.is_empty() || !self.refused.is_empty()
    }
}

impl Placement {
    /// Changes the entry of a cell. Returns its page, unless the page is being written: then it is written again after that.
    #[must_use]
    pub(super) fn enter(
        &mut self,
        cell: Cell,
        entry: Option<CellEntry>,
        record: Option<Record>,
    ) -> Option<PageWrite> {
        let first_row = CellPage::first_row_of(cell.row);
        let table = self.tables.entry(cell.seat).or_default();
        let page = table.pages.entry(first_row);
        let page = page.or_insert_with(|| CellPage::empty(first_row));
        let index = usize::try_from(cell.row - first_row).expect("an index into a page");
        page.entries[index] = entry;
        table.waiting.entry(first_row).or_default().extend(record);
        self.write_page(cell.seat, first_row)
    }

    /// An entry that is superseded is removed.
    #[must_use]
    pub(crate) fn clear_entry(&mut self, cell: Cell) -> Option<PageWrite> {
        self.enter(cell, None, None)
    }

    /// An entry for a column that is there already.
    #[must_use]
    pub(crate) fn enter_again(&mut self, record: Record) -> Option<PageWrite> {
        self.enter(record.cell, Some(record.entry()), None)
    }

    /// A drive joins. Pages from its earlier use carry another identity, and do not count, unless it was to succeed a drive
    /// before the last opening: then they have been cleared since.
    pub(crate) fn begin_table(&mut self, seat: Seat) {
        self.tables.entry(seat).or_default().clear();
    }

    /// The drives of two seats change places.
    pub(crate) fn exchange_tables(&mut self, a: Seat, b: Seat) {
        let (of_a, of_b) = (self.tables.remove(&a), self.tables.remove(&b));
        self.tables.extend(of_a.map(|table| (b, table)));
        self.tables.extend(of_b.map(|table| (a, table)));
    }

    fn write_page(&mut self, seat: Seat, first_row: u64) -> Option<PageWrite> {
        let drive = self.standings[seat.index()].drive;
        let table = self.tables.get_mut(&seat).expect("its page has changed");
        if !table.writing.insert(first_row) {
            return None;
        }
        let page = table.pages.get_mut(&first_row).expect("it has changed");
        page.sequence += 1;
        let records = table.waiting.remove(&first_row).unwrap_or_default();
        table.in_write.insert(first_row, records);
        Some(PageWrite {
            seat,
            first_row,
            offset: page.offset(),
            bytes: page.encode(drive),
        })
    }

    /// The write of a page has ended. Returns its records, which are durable if it was successful; `None` if the drive went
    /// out meanwhile, and its table with it.
    #[must_use]
    pub(crate) fn page_written(&mut self, seat: Seat, first_row: u64) -> Option<Vec<Record>> {
        let table = self.tables.get_mut(&seat)?;
        let written = table.writing.remove(&first_row);
        written.then(|| table.in_write.remove(&first_row).unwrap_or_default())
    }

    /// A page that was written has changed since: its next write.
    #[must_use]
    pub(crate) fn next_write(&mut self, seat: Seat, first_row: u64) -> Option<PageWrite> {
        let changed = self.tables[&seat].waiting.contains_key(&first_row);
        changed.then(|| self.write_page(seat, first_row)).flatten()
    }

    /// A full drive has refused a page: its records wait, and the page is written again later.
    pub(crate) fn page_refused(&mut self, seat: Seat, first_row: u64, mut records: Vec<Record>) {
        let table = self.tables.get_mut(&seat).expect("its page was written");
        let waiting = table.waiting.entry(first_row).or_default();
        records.append(waiting);
        *waiting = records;
        table.refused.insert(first_row);
    }

    /// Pages that full drives have refused are written again.
    #[must_use]
    pub(crate) fn write_refused(&mut self) -> Vec<PageWrite> {
        let tables = self.tables.iter_mut();
        let refused = tables.flat_map(|(&seat, table)| {
            let rows = std::mem::take(&mut table.refused).into_iter();
            rows.map(move |row| (seat, row))
        });
        let refused: Vec<(Seat, u64)> = refused.collect();
        let pages = refused.into_iter();
        pages
            .filter_map(|(seat, row)| self.write_page(seat, row))
            .collect()
    }

    /// The drive is out: its table does not count. Returns the records that will not be durable.
    #[must_use]
    pub(crate) fn drop_table(&mut self, seat: Seat) -> Vec<Record> {
        let table = self.tables.remove(&seat).unwrap_or_default();
        let records = table
            .in_write
            .into_values()
            .chain(table.waiting.into_values());
        records.flatten().collect()
    }

    /// Whether a change of the drive's table is not durable yet.
    pub(crate) fn is_writing(&self, seat: Seat) -> bool {
        self.tables.get(&seat).is_some_and(CellTable::is_writing)
    }

    /// The same for any drive.
    pub(crate) fn is_any_writing(&self) -> bool {
        self.tables.values().any(CellTable::is_writing)
    }
}
