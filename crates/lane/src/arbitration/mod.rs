//! Compares reconstructed blocks with their entries; if one differs, finds the stale column.
//!
//! ```text
//!   reconstructed ── agrees ─────────────────────────────────► returned, logged, written
//!        │
//!        └─ differs: the row is in doubt ─► read whole, one column doubted, then two, … ─┬─► stale blocks
//!                                           (`plan/arbitrate.rs`)                        │   are planned
//!                                                                                        │   around, and
//!                                                                                        │   repaired after
//!                                                                                        └─► they cannot be
//!                                                                                            found: `Lost`
//! ```
//!
//! A drive that was set back has blocks and entries that agree with each other, so each block alone passes its check.
//! But they do not agree with the rest of the row: with the entries of blocks that are reconstructed from them, and
//! with parity.
//!
//! [`Arbitration`] is the state of an operation's search: the rows in doubt, the trials, and their results. `judge.rs`
//! decides whether a trial is accepted; `plan/arbitrate.rs` plans the trials.
//!
//! Invariants:
//! - All rows of a plan are tried with the same number of doubted columns. For a row this number grows by one with each
//!   round that decides nothing.
//! - A row is judged once. If it is in doubt again after that, nothing is reconstructed from it.

mod judge;

use std::collections::{BTreeMap, BTreeSet};

use block::BLOCK_BYTES;
use format::{BlockName, Column, Form, GroupId, Sequence};
use plan::action::{Event, Slice};
use plan::{Geometry, Row, Trial, trials_of_row};

use self::judge::{Element, Facts, Judgement};
use super::context::Context;
use super::entries::Entries;
use super::rare::Blank;

/// Trials of one plan. Each takes a handful of blocks of memory.
const TRIALS_MAX: usize = 128;

/// An operation's search for stale blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Arbitration {
    /// Rows whose blocks contradict each other, and how many columns are doubted next.
    doubts: BTreeMap<Row, usize>,
    /// Rows for which the search has ended.
    judged: BTreeSet<Row>,
    /// The trials that are under way, if any are.
    trials: Vec<Trial>,
    /// Blocks (column, block of its cell) that are stale, both entry and content.
    overruled: BTreeSet<(Column, u64)>,
    /// These, and all blocks of rows in which the stale blocks cannot be found.
    distrusted: BTreeSet<(Column, u64)>,
}

impl Blank for Arbitration {
    fn blank() -> &'static Self {
        static BLANK: Arbitration = Arbitration {
            doubts: BTreeMap::new(),
            judged: BTreeSet::new(),
            trials: Vec::new(),
            overruled: BTreeSet::new(),
            distrusted: BTreeSet::new(),
        };
        &BLANK
    }
}

/// A block that an operation has reconstructed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reconstructed {
    pub(super) name: BlockName,
    pub(super) row: Row,
    /// Its plain CRC-32C.
    pub(super) sum: u32,
}

/// Names of a row's blocks by slot.
fn row_blocks(geometry: &Geometry, group: GroupId, row: Row) -> Vec<BlockName> {
    let per_chunk = geometry.chunk_bytes() / BLOCK_BYTES;
    (0..geometry.code_of(row.form).elements())
        .map(|slot| {
            let (column, chunk) = geometry.place(group, row.stripe, row.form, slot);
            let block = chunk * per_chunk + row.low / BLOCK_BYTES;
            BlockName {
                group,
                column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            }
        })
        .collect()
}

/// True if blocks whose own entry is not known are compared with the whole row. This is needed where a drive that was
/// set back may have all copies of an entry that another drive has lost.
fn checks_unknown(geometry: &Geometry) -> bool {
    let survives = u64::from(geometry.code().tolerance());
    geometry.page_copies() <= survives
}

impl Arbitration {
    /// Rows that are in doubt.
    pub(super) fn in_doubt(&self) -> usize {
        self.doubts.len()
    }

    /// Blocks (column, block of its cell) that must not be read.
    pub(super) const fn distrusted(&self) -> &BTreeSet<(Column, u64)> {
        &self.distrusted
    }

    /// Finds the rows in doubt among those of reconstructed blocks, and how many columns are doubted first in each:
    /// none where only entries are not known. `None` if a page has been dropped meanwhile. `scrubbed`: blocks that a
    /// scrub has found bad by their own checksums. A row with such a block is compared when the block is repaired.
    pub(super) fn compare(
        &self,
        cx: &Context,
        entries: Entries<'_>,
        group: GroupId,
        blocks: impl Iterator<Item = Reconstructed>,
        scrubbed: Option<&BTreeSet<(Column, u64)>>,
    ) -> Option<BTreeMap<Row, usize>> {
        let pool = cx.geometry.regions().expect("it has a journal").pool;
        let mut doubts: BTreeMap<Row, usize> = BTreeMap::new();
        let mut again = false;
        for Reconstructed { name, row, sum } in blocks {
            let block = (name.column, name.block.into());
            if self.overruled.contains(&block) {
                continue;
            }
            match Element::of(entries, name, row.stripe) {
                None => again = true,
                Some(element) if !element.is_known() => {
                    let checks = checks_unknown(&cx.geometry) && scrubbed.is_none();
                    if checks && !self.judged.contains(&row) {
                        doubts.entry(row).or_insert(0);
                    }
                }
                Some(element) if element.agrees(pool, sum) => {}
                Some(_) => {
                    doubts.insert(row, 1);
                }
            }
        }
        if let Some(bad) = scrubbed {
            doubts.retain(|&row, _| {
                let names = row_blocks(&cx.geometry, group, row);
                !{ names.iter() }.any(|name| bad.contains(&(name.column, name.block.into())))
            });
        }
        (!again).then_some(doubts)
    }

    /// Sets the rows that are in doubt.
    pub(super) fn begin(&mut self, doubts: BTreeMap<Row, usize>) {
        self.doubts = doubts;
    }

    /// The same. Rows that were judged before still do not match their entries: nothing is reconstructed from these any
    /// more.
    pub(super) fn doubt(
        &mut self,
        geometry: &Geometry,
        group: GroupId,
        mut doubts: BTreeMap<Row, usize>,
    ) {
        let judged = doubts.extract_if(.., |row, _| self.judged.contains(row));
        let judged: Vec<Row> = judged.map(|(row, _)| row).collect();
        for row in judged {
            self.despair(geometry, group, row);
        }
        self.doubts = doubts;
    }

    /// The stale blocks of a row cannot be found: nothing is reconstructed from it.
    pub(super) fn despair(&mut self, geometry: &Geometry, group: GroupId, row: Row) {
        let names = row_blocks(geometry, group, row);
        self.doubts.remove(&row);
        self.judged.insert(row);
        let blocks = names.iter().map(|name| (name.column, name.block.into()));
        self.distrusted.extend(blocks);
    }

    /// The rows that are tried next, and how many of their `columns` columns are doubted.
    pub(super) fn next_rows(&self, columns: u16) -> (Vec<Row>, usize) {
        let doubted = self.doubts.values().next().copied().expect("a doubt");
        let each = trials_of_row(columns, doubted).max(1);
        let rows = self
            .doubts
            .iter()
            .filter(|&(_, &count)| count == doubted)
            .map(|(&row, _)| row)
            .take((TRIALS_MAX / each).max(1));
        (rows.collect(), doubted)
    }

    /// These trials are under way from now on.
    pub(super) fn begin_trials(&mut self, trials: Vec<Trial>) {
        self.trials = trials;
    }

    /// Drops the trials: the memory that they were read into is released.
    pub(super) fn drop_trials(&mut self) {
        self.trials.clear();
    }

    pub(super) const fn is_trying(&self) -> bool {
        !self.trials.is_empty()
    }

    /// The results of the trials, which are to be summed.
    pub(super) fn results(&self) -> impl Iterator<Item = Slice> + '_ {
        let results = self.trials.iter().flat_map(|trial| &trial.results);
        results.map(|&(_, slice)| slice)
    }

    /// The trials have these sums. Reports stale blocks that lie on a drive, and returns them (element, first byte in
    /// it) to be written again. `next_sequence`: the number of the next batch.
    pub(super) fn tried(
        &mut self,
        cx: &mut Context,
        entries: Entries<'_>,
        group: GroupId,
        sums: &[u32],
        next_sequence: Sequence,
    ) -> Vec<(usize, u64)> {
        let trials = std::mem::take(&mut self.trials);
        let mut rows: BTreeMap<Row, Vec<(&Trial, &[u32])>> = BTreeMap::new();
        let mut rest = sums;
        for trial in &trials {
            let (here, next) = rest.split_at(trial.results.len());
            rest = next;
            rows.entry(trial.row).or_default().push((trial, here));
        }
        let mut stale = Vec::new();
        for (row, trials) in rows {
            let names = row_blocks(&cx.geometry, group, row);
            let elements: Option<Vec<Element>> = names
                .iter()
                .map(|&name| Element::of(entries, name, row.stripe))
                .collect();
            let Some(elements) = elements else {
                // A page was dropped meanwhile: the row is tried again.
                continue;
            };
            let facts = Facts {
                code: cx.geometry.code_of(row.form),
                families: row.form == Form::Copies,
                pool: cx.geometry.regions().expect("it has a journal").pool,
                elements: &elements,
                sequence: next_sequence,
            };
            let judgement = facts.judge(&trials);
            for slot in self.judged(&cx.geometry, group, row, judgement) {
                if self.overrule(cx, names[slot]) {
                    stale.push((slot, row.low));
                }
            }
        }
        stale
    }

    /// Enters the judgement of a row. Returns the slots that are stale.
    fn judged(
        &mut self,
        geometry: &Geometry,
        group: GroupId,
        row: Row,
        judgement: Judgement,
    ) -> Vec<usize> {
        let stale = match judgement {
            Judgement::Open => {
                let doubted = self.doubts.entry(row).or_default();
                *doubted += 1;
                if *doubted > usize::from(geometry.code().tolerance()) {
                    self.despair(geometry, group, row);
                }
                return Vec::new();
            }
            Judgement::Sound => Vec::new(),
            Judgement::Stale(slots) => slots,
        };
        self.doubts.remove(&row);
        self.judged.insert(row);
        stale
    }

    /// A block's entry is stale: the block is not read any more. True if it lies on a drive, where a repair writes it
    /// again.
    fn overrule(&mut self, cx: &mut Context, name: BlockName) -> bool {
        let block = u64::from(name.block);
        self.overruled.insert((name.column, block));
        self.distrusted.insert((name.column, block));
        let column = cx.view().column(&cx.geometry, name.group, name.column);
        let Some(cell) = column.source else {
            return false;
        };
        cx.events.push_back(Event::BlockBad {
            seat: cell.seat,
            offset: cx.geometry.block_offset(cell, block),
            blocks: 1,
            group: name.group,
            column: name.column,
        });
        true
    }

    /// Rows that an operation leaves to a repair, which finds their stale blocks under its own lock.
    pub(super) fn rows_to_repair(&self, cx: &Context, group: GroupId) -> BTreeSet<Row> {
        let mut rows: BTreeSet<Row> = self.doubts.keys().copied().collect();
        rows.extend(self.judged.iter().filter(|&&row| {
            let names = row_blocks(&cx.geometry, group, row);
            names.iter().any(|name| {
                let block = (name.column, u64::from(name.block));
                let column = cx.view().column(&cx.geometry, group, name.column);
                self.overruled.contains(&block) && column.readable()
            })
        }));
        rows
    }
}

#[cfg(test)]
mod tests;
