//! The cell tables: which cell holds which column, durable on the drive that holds it.

use std::collections::{BTreeMap, BTreeSet};

use block::{Outcome, Seat};
use format::{CellEntry, CellPage};
use layout::Cell;

use super::{OnDurable, Pool, PoolWrite};

/// One drive's table in memory.
#[derive(Clone, Debug, Default)]
pub(super) struct CellTable {
    pages: BTreeMap<u64, CellPage>,
    /// Pages being written.
    writing: BTreeSet<u64>,
    /// Actions to carry out when the present write of a page has ended.
    in_write: BTreeMap<u64, Vec<OnDurable>>,
    /// Actions to carry out when its next write has ended.
    waiting: BTreeMap<u64, Vec<OnDurable>>,
    /// Pages that their full drive has refused: they are written again later.
    refused: BTreeSet<u64>,
}

impl CellTable {
    pub(super) fn new(pages: impl IntoIterator<Item = CellPage>) -> Self {
        Self {
            pages: pages
                .into_iter()
                .map(|page| (page.first_row, page))
                .collect(),
            ..Self::default()
        }
    }

    /// Whether a change of the table is not durable yet.
    pub(super) fn is_writing(&self) -> bool {
        !self.writing.is_empty() || !self.refused.is_empty()
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
}

impl Pool {
    /// Changes an entry in the table of the cell's drive. Once that is durable, `effects` are carried out.
    pub(super) fn write_entry(
        &mut self,
        cell: Cell,
        entry: Option<CellEntry>,
        effects: Vec<OnDurable>,
    ) {
        let first_row = CellPage::first_row_of(cell.row);
        let table = self.tables.entry(cell.seat).or_default();
        let page = table
            .pages
            .entry(first_row)
            .or_insert_with(|| CellPage::empty(first_row));
        let index = usize::try_from(cell.row - first_row).expect("an index into a page");
        page.entries[index] = entry;
        table.waiting.entry(first_row).or_default().extend(effects);
        if !table.writing.contains(&first_row) {
            self.write_cell_page(cell.seat, first_row);
        }
    }

    fn write_cell_page(&mut self, seat: Seat, first_row: u64) {
        let drive = self.facts.seats[seat.index()].drive;
        let table = self.tables.get_mut(&seat).expect("its page has changed");
        let page = table.pages.get_mut(&first_row).expect("it has changed");
        page.sequence += 1;
        let (offset, bytes) = (page.offset(), page.encode(drive));
        let effects = table.waiting.remove(&first_row).unwrap_or_default();
        table.in_write.insert(first_row, effects);
        table.writing.insert(first_row);
        let offset = self.facts.cell_table_offset + offset;
        self.write_durably(PoolWrite::CellPage { seat, first_row }, offset, bytes);
    }

    pub(super) fn cell_page_written(&mut self, seat: Seat, first_row: u64, outcome: Outcome) {
        let Some(table) = self.tables.get_mut(&seat) else {
            // The drive went out meanwhile, and its table with it.
            return;
        };
        if !table.writing.remove(&first_row) {
            return;
        }
        let effects = table.in_write.remove(&first_row).unwrap_or_default();
        if let Err(fault) = outcome
            && self.stays_although_full(seat, fault)
        {
            self.cell_page_refused(seat, first_row, effects);
            return;
        }
        if let Err(fault) = outcome {
            // The entry is not recorded: a drive that cannot write its table cannot hold cells.
            self.drop_effects(effects);
            self.take_out_for(seat, fault);
            return;
        }
        let table = &self.tables[&seat];
        if table.waiting.contains_key(&first_row) {
            self.write_cell_page(seat, first_row);
        }
        for effect in effects {
            self.carry_out(effect);
        }
    }

    /// A full drive has refused a page: what waits for the page goes on waiting, and the page is written again later.
    fn cell_page_refused(&mut self, seat: Seat, first_row: u64, mut effects: Vec<OnDurable>) {
        let table = self.tables.get_mut(&seat).expect("its page was written");
        let waiting = table.waiting.entry(first_row).or_default();
        effects.append(waiting);
        *waiting = effects;
        table.refused.insert(first_row);
        self.drive_is_full(seat, false);
        self.try_again_later();
    }

    /// Writes pages again that full drives have refused.
    pub(super) fn write_refused_cell_pages(&mut self) {
        let refused = { self.tables.iter_mut() }
            .flat_map(|(&seat, table)| {
                let rows = std::mem::take(&mut table.refused).into_iter();
                rows.map(move |row| (seat, row))
            })
            .collect::<Vec<_>>();
        for (seat, first_row) in refused {
            if !self.tables[&seat].writing.contains(&first_row) {
                self.write_cell_page(seat, first_row);
            }
        }
    }

    /// The drive is out: its table does not count, and actions that waited for the table are dropped.
    pub(super) fn drop_table(&mut self, seat: Seat) {
        let Some(table) = self.tables.remove(&seat) else {
            return;
        };
        let effects = table
            .in_write
            .into_values()
            .chain(table.waiting.into_values());
        self.drop_effects(effects.flatten().collect());
    }

    fn drop_effects(&mut self, effects: Vec<OnDurable>) {
        for effect in effects {
            match effect {
                OnDurable::Settle { group, column, .. } => self.fill_unrecorded(group, column),
                OnDurable::Cleared => {}
                other => unreachable!("{other:?} does not wait for a cell table"),
            }
        }
    }
}
