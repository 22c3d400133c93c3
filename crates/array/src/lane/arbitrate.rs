//! What is reconstructed is compared with its entry; where it differs, the stale column is found.
//!
//! ```text
//!   reconstructed ── agrees ─────────────────────────────────► returned, logged, written
//!        │
//!        └─ differs: the row is in doubt ─► read whole, one column doubted, then two, … ─┬─► stale blocks
//!                                           (`plan/arbitrate.rs`)                        │   are planned
//!                                                                                        │   around, and
//!                                                                                        │   mended after
//!                                                                                        └─► nobody can
//!                                                                                            tell: `Lost`
//! ```
//!
//! A drive that was set back has blocks and entries that agree with each other, so each block passes by
//! itself. They do not agree with the rest of the row: with the entries of what is reconstructed from
//! them, and with parity.
//!
//! A trial is accepted when
//!
//! - everything that it does not doubt agrees: each believed parity is what the data says, and each
//!   block that cannot be read, and whose entry is known, follows from the rest as that entry says;
//! - there is such evidence at all: what is believed and what is checked is more than the data;
//! - each block that it finds stale is older, by its generation, than a block that is written whenever
//!   the stale one is (parity for data, data for parity). A write that was computed from a stale block
//!   spoils parity and makes the block's entry as new as that parity: it must not be taken for stale;
//! - no other trial of as many columns is accepted.
//!
//! Without evidence (all columns of a code that survives one loss are there) only a parity or a copy in a
//! mirror is mended, by its generation; data is never made from what nothing confirms.

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault};
use erasure::Code;
use uuid::Uuid;

use super::Lane;
use super::blocks::LaneBlocks;
use super::context::Context;
use super::ids::OpId;
use super::op::{Op, Owner, Phase, Task};
use super::rare::Blank;
use crate::Geometry;
use crate::action::{Action, Event, Slice};
use crate::format::{BlockName, Entry};
use crate::plan::{self, Row, Scratch, Stripe, Trial, trials_of_row};

/// Trials of one plan. Each takes a handful of blocks of memory.
const TRIALS_MAX: usize = 128;

/// An operation's search for stale blocks.
#[derive(Clone, Debug, Default)]
pub(super) struct Arbitration {
    /// Rows whose blocks contradict each other, and how many columns are doubted next.
    pub(super) doubts: BTreeMap<Row, usize>,
    /// Rows of which it has been decided what is stale in them, if anything is.
    pub(super) judged: BTreeSet<Row>,
    /// What is being tried to find that out; empty but for then.
    pub(super) trials: Vec<Trial>,
    /// Blocks (column, block of its cell) whose entries are stale, and with them what lies there.
    pub(super) overruled: BTreeSet<(u16, u64)>,
    /// These, and all blocks of rows of which nobody can tell what is stale in them.
    pub(super) distrusted: BTreeSet<(u16, u64)>,
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

impl Arbitration {
    /// Rows that an operation leaves to be repaired: the repair finds out under its own lock what is stale in them.
    pub(super) fn rows_to_repair(&self, cx: &Context, group: u64) -> BTreeSet<Row> {
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

/// What should be in a block of a row.
#[derive(Clone, Copy, Debug)]
struct Element {
    name: BlockName,
    entry: Entry,
}

impl Element {
    /// Whether anything is known of the block.
    fn is_known(&self) -> bool {
        self.entry != Entry::UNKNOWN
    }

    /// Whether a block with this plain CRC-32C is what the entry says.
    fn agrees(&self, pool: Uuid, sum: u32) -> bool {
        match self.entry {
            Entry::UNWRITTEN => sum == zero_sum(),
            entry => entry.matches(pool, self.name, sum),
        }
    }
}

/// CRC-32C of a block of zeros.
fn zero_sum() -> u32 {
    block::crc32c(&[0; 4096])
}

/// What a round of trials says of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Judgement {
    /// Nothing in it is stale.
    Sound,
    /// These slots are.
    Stale(Vec<usize>),
    /// More columns must be doubted.
    Open,
}

/// A row and what is known of its blocks.
struct Facts<'a> {
    code: &'a Code,
    pool: Uuid,
    elements: &'a [Element],
    /// The last batch that is complete: ages are counted from there.
    sequence: u64,
}

impl Facts<'_> {
    fn age(&self, slot: usize) -> u64 {
        self.elements[slot].entry.age(self.sequence)
    }

    /// Slots that are written whenever `slot` is, or whose writes change it.
    fn relatives(&self, slot: usize) -> Vec<usize> {
        match self.code.is_data(slot) {
            true => self.code.parities_of(slot).to_vec(),
            false => self
                .code
                .data_slots()
                .filter(|&data| self.code.coefficient(slot, data) != 0)
                .collect(),
        }
    }

    fn is_doubted(&self, trial: &Trial, slot: usize) -> bool {
        trial.doubted.contains(&self.elements[slot].name.column)
    }

    /// The slots that are stale if the trial is right, and how much confirms it; `None` if it is not
    /// right.
    fn weigh(&self, trial: &Trial, sums: &[u32]) -> Option<(Vec<usize>, usize)> {
        let mut stale = Vec::new();
        let mut checks = trial.believed.len();
        for (&(slot, _), &sum) in trial.results.iter().zip(sums) {
            let element = &self.elements[slot];
            if !element.is_known() {
                continue;
            }
            let agrees = element.agrees(self.pool, sum);
            if self.is_doubted(trial, slot) {
                if !agrees {
                    stale.push(slot);
                }
            } else if !agrees {
                return None;
            } else if !trial.believed.contains(slot) {
                checks += 1;
            }
        }
        let evidence = checks.checked_sub(self.code.data().len())?;
        let outdated = |&slot: &usize| {
            let newer = |other: &usize| {
                !self.is_doubted(trial, *other)
                    && self.elements[*other].is_known()
                    && self.age(*other) < self.age(slot)
            };
            self.relatives(slot).iter().any(newer)
        };
        stale.iter().all(outdated).then_some((stale, evidence))
    }

    /// Whether a trial that nothing confirms may be believed by generations alone.
    fn may_do_without_evidence(&self, trial: &Trial, stale: &[usize]) -> bool {
        let copies = self.code.data().len() == 1;
        let whole = trial.believed.iter().count()
            + (0..self.elements.len())
                .filter(|&slot| self.is_doubted(trial, slot))
                .count()
            == self.elements.len();
        let believed_parity = |slot: &usize| !self.code.is_data(*slot);
        // No data that is believed is newer than a parity that is.
        let in_order = trial.believed.iter().filter(believed_parity).all(|parity| {
            let data = self.relatives(parity);
            let mut believed = data.iter().filter(|&&data| trial.believed.contains(data));
            believed.all(|&data| self.age(parity) <= self.age(data))
        });
        whole && (copies || in_order && stale.iter().all(|&slot| !self.code.is_data(slot)))
    }

    /// Judges a row by its trials, all of which doubt as many columns, and the sums of their results.
    fn judge(&self, trials: &[(&Trial, &[u32])]) -> Judgement {
        let mut confirmed = Vec::new();
        let mut likely = Vec::new();
        for &(trial, sums) in trials {
            let Some((stale, evidence)) = self.weigh(trial, sums) else {
                continue;
            };
            if trial.doubted.is_empty() {
                return Judgement::Sound;
            }
            if stale.is_empty() {
                // As it would be without doubting these columns.
                continue;
            }
            if evidence > 0 {
                confirmed.push(stale);
            } else if self.may_do_without_evidence(trial, &stale) {
                likely.push(stale);
            }
        }
        for mut found in [confirmed, likely] {
            found.dedup();
            match found.len() {
                0 => {}
                1 => return Judgement::Stale(found.remove(0)),
                _ => return Judgement::Open,
            }
        }
        Judgement::Open
    }
}

/// Names of a row's blocks by slot.
fn row_blocks(geometry: &Geometry, group: u64, row: Row) -> Vec<BlockName> {
    let per_chunk = geometry.chunk_bytes() / BLOCK_BYTES;
    (0..geometry.code().elements())
        .map(|slot| {
            let (column, chunk) = geometry.place(group, row.stripe, slot);
            let block = chunk * per_chunk + row.low / BLOCK_BYTES;
            BlockName {
                group,
                column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            }
        })
        .collect()
}

impl Lane {
    /// Whether what an operation reconstructs is yet to be compared.
    pub(super) fn must_check(&self, op: &Op) -> bool {
        let plan = op.plan.as_ref();
        let recovers = plan.is_some_and(|plan| !plan.recovered.is_empty());
        recovers && !op.checked && !self.cx.trusted && self.cx.geometry.store().is_some()
    }

    /// Whether all that an operation reconstructs is what it writes, so that one sum serves both.
    pub(super) fn writes_what_it_recovers(&self, id: OpId) -> bool {
        matches!(self.ops[&id].task, Task::Heal(_) | Task::Fill { .. })
    }

    /// What is to be summed before an operation goes on, and after how many steps.
    pub(super) fn sums_to_check(&self, id: OpId) -> (Vec<Slice>, usize) {
        let op = &self.ops[&id];
        let plan = op.plan.as_ref().expect("it was planned");
        if !op.arbitration.trials.is_empty() {
            let results = op
                .arbitration
                .trials
                .iter()
                .flat_map(|trial| &trial.results);
            return (results.map(|&(_, slice)| slice).collect(), plan.steps.len());
        }
        if self.writes_what_it_recovers(id) {
            return (self.sums_of_writes(id), plan.steps.len());
        }
        let slices = plan.recovered.iter().map(|recovered| recovered.slice);
        (slices.collect(), plan.first_steps)
    }

    /// The blocks that a plan reconstructs, one by one.
    fn recovered_blocks(&self, op: &Op) -> Vec<(BlockName, Row)> {
        let plan = op.plan.as_ref().expect("it was planned");
        let blocks = plan.recovered.iter().flat_map(|part| {
            let first = part.offset / BLOCK_BYTES;
            (0..part.slice.length / BLOCK_BYTES).map(move |index| {
                let name = BlockName {
                    group: op.group,
                    column: part.column,
                    block: u32::try_from(first + index).expect("cells have fewer than 2^32 blocks"),
                };
                let low = part.row.low + index * BLOCK_BYTES;
                let row = Row { low, ..part.row };
                (name, row)
            })
        });
        blocks.collect()
    }

    /// What a block should be, wherever it is; `None` if its page is not here.
    fn element_of(&self, name: BlockName, stripe: u64) -> Option<Element> {
        let entry = match self.overlay.get(name) {
            Some(logged) => logged.entry,
            None if self.overlay.is_zeroed(name.group, stripe) => Entry::UNWRITTEN,
            None => self.pages.entry(name)?,
        };
        Some(Element { name, entry })
    }

    /// Whether blocks are compared with the whole row where their own entry is not known: where a drive
    /// that lies may have all copies of an entry that another drive has lost.
    fn checks_unknown(&self) -> bool {
        let survives = u64::from(self.cx.geometry.code().tolerance());
        self.cx.geometry.page_copies() <= survives
    }

    /// What an operation has reconstructed has these sums. False if it is not right, or nobody can tell
    /// yet: then the operation is planned again, or has ended.
    pub(super) fn recovered_is_right(&mut self, id: OpId, sums: &[u32]) -> bool {
        if self.end_orphan(id) {
            return false;
        }
        let pool = self.cx.geometry.store().expect("a store").pool;
        let op = &self.ops[&id];
        let blocks = self.recovered_blocks(op);
        let written: BTreeMap<BlockName, u32> = match self.writes_what_it_recovers(id) {
            true => {
                let written = self.written_blocks(op).into_iter();
                written
                    .map(|(name, _)| name)
                    .zip(sums.iter().copied())
                    .collect()
            }
            false => BTreeMap::new(),
        };
        let mut doubts: BTreeMap<Row, usize> = BTreeMap::new();
        let mut again = false;
        for (index, &(name, row)) in blocks.iter().enumerate() {
            let sum = match self.writes_what_it_recovers(id) {
                // What has no place any more is not written.
                true => match written.get(&name) {
                    Some(&sum) => sum,
                    None => continue,
                },
                false => sums[index],
            };
            if op
                .arbitration
                .overruled
                .contains(&(name.column, name.block.into()))
            {
                continue;
            }
            match self.element_of(name, row.stripe) {
                None => again = true,
                Some(element) if !element.is_known() => {
                    let scrubs = matches!(op.task, Task::Scrub);
                    if self.checks_unknown() && !scrubs && !op.arbitration.judged.contains(&row) {
                        doubts.entry(row).or_insert(0);
                    }
                }
                Some(element) if element.agrees(pool, sum) => {}
                Some(_) => {
                    doubts.insert(row, 1);
                }
            }
        }
        let (scrub, hedge) = (
            matches!(op.task, Task::Scrub),
            matches!(op.owner, Owner::Hedge(_)),
        );
        if again {
            self.plan_again(id);
            return false;
        }
        if scrub {
            // A row with a block that is bad by itself is compared when that is mended.
            doubts.retain(|&row, _| {
                let names = row_blocks(&self.cx.geometry, self.ops[&id].group, row);
                let bad = &self.ops[&id].bad;
                !names
                    .iter()
                    .any(|name| bad.contains(&(name.column, name.block.into())))
            });
        }
        if !doubts.is_empty() && hedge {
            // Its reader waits for the late drive, and finds out what is stale.
            self.end(id, Err(Fault::Lost));
            return false;
        }
        let op = self.ops.get_mut(id).expect("the operation exists");
        if scrub || doubts.is_empty() {
            if !doubts.is_empty() {
                op.arbitration.doubts = doubts;
            } else if let Some(arbitration) = op.arbitration.written() {
                arbitration.doubts.clear();
            }
            op.checked = true;
            return true;
        }
        let judged: Vec<Row> = doubts
            .keys()
            .filter(|row| op.arbitration.judged.contains(row))
            .copied()
            .collect();
        for row in judged {
            // As it was judged it is still not what its entries say.
            doubts.remove(&row);
            self.despair(id, row);
        }
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.arbitration.doubts = doubts;
        self.plan_again(id);
        false
    }

    /// Nobody can tell what is stale in a row: nothing is reconstructed from it.
    fn despair(&mut self, id: OpId, row: Row) {
        let names = row_blocks(&self.cx.geometry, self.ops[&id].group, row);
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.arbitration.doubts.remove(&row);
        op.arbitration.judged.insert(row);
        let blocks = names.iter().map(|name| (name.column, name.block.into()));
        op.arbitration.distrusted.extend(blocks);
    }

    /// Reads rows that are in doubt, and tries what they are without some columns.
    pub(super) fn arbitrate(&mut self, id: OpId) {
        let op = &self.ops[&id];
        if !op.locked {
            self.lock(id);
            return;
        }
        let scratch = self.cx.fresh_scratch();
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.replan = false;
        let doubted = op
            .arbitration
            .doubts
            .values()
            .next()
            .copied()
            .expect("a doubt");
        let each = trials_of_row(self.cx.geometry.layout().columns(), doubted).max(1);
        let rows: Vec<Row> = op
            .arbitration
            .doubts
            .iter()
            .filter(|&(_, &count)| count == doubted)
            .map(|(&row, _)| row)
            .take((TRIALS_MAX / each).max(1))
            .collect();
        let columns = self.cx.view().columns(&self.cx.geometry, op.group);
        let nothing = BTreeSet::new();
        let blocks = LaneBlocks {
            store: true,
            overlay: &self.overlay,
            pages: &self.pages,
            group: op.group,
            held: None,
            leaves_out_lost: false,
            bad: &op.bad,
            avoid: &nothing,
            distrusted: &op.arbitration.distrusted,
            avoided: &[],
            missing: std::cell::RefCell::default(),
            unknown: std::cell::RefCell::default(),
            pinned: std::cell::RefCell::default(),
        };
        let stripe = Stripe {
            geometry: &self.cx.geometry,
            group: op.group,
            stripe: op.stripes.start,
            columns: &columns,
            blocks: &blocks,
        };
        let (plan, trials) =
            plan::plan_arbitrate(&mut self.plans, stripe, &rows, doubted, Scratch(scratch));
        let missing = blocks.missing.into_inner();
        let pinned = blocks.pinned.into_inner();
        if !missing.is_empty() {
            op.phase = Phase::Fetching;
            self.fetch_pages(id, missing);
            return;
        }
        if trials.is_empty() {
            // The code cannot do without as many columns.
            for row in rows {
                self.despair(id, row);
            }
            self.plan_again(id);
            return;
        }
        for &sequence in &pinned {
            self.overlay.pin(sequence);
        }
        op.pinned = pinned.into_iter().collect();
        op.arbitration.trials = trials;
        op.scratch = Some(scratch);
        self.cx
            .actions
            .push_back(Action::Allocate(scratch, plan.scratch_bytes));
        self.read(id, plan);
    }

    /// The trials of some rows have these sums.
    pub(super) fn arbitrated(&mut self, id: OpId, sums: &[u32]) {
        let op = self.ops.get_mut(id).expect("the operation exists");
        let trials = std::mem::take(&mut op.arbitration.trials);
        let group = op.group;
        if self.end_orphan(id) {
            return;
        }
        let mut rows: BTreeMap<Row, Vec<(&Trial, &[u32])>> = BTreeMap::new();
        let mut rest = sums;
        for trial in &trials {
            let (here, next) = rest.split_at(trial.results.len());
            rest = next;
            rows.entry(trial.row).or_default().push((trial, here));
        }
        for (row, trials) in rows {
            let names = row_blocks(&self.cx.geometry, group, row);
            let elements: Option<Vec<Element>> = names
                .iter()
                .map(|&name| self.element_of(name, row.stripe))
                .collect();
            let Some(elements) = elements else {
                // A page was dropped meanwhile: once more.
                continue;
            };
            let facts = Facts {
                code: self.cx.geometry.code(),
                pool: self.cx.geometry.store().expect("a store").pool,
                elements: &elements,
                sequence: self.log.next_sequence,
            };
            let judgement = facts.judge(&trials);
            self.judged(id, row, &names, judgement);
        }
        self.plan_again(id);
    }

    /// What the trials of a row have come to.
    fn judged(&mut self, id: OpId, row: Row, names: &[BlockName], judgement: Judgement) {
        let tolerance = usize::from(self.cx.geometry.code().tolerance());
        let op = self.ops.get_mut(id).expect("the operation exists");
        match judgement {
            Judgement::Sound => {
                op.arbitration.doubts.remove(&row);
                op.arbitration.judged.insert(row);
            }
            Judgement::Open => {
                let doubted = op.arbitration.doubts.entry(row).or_default();
                *doubted += 1;
                if *doubted > tolerance {
                    self.despair(id, row);
                }
            }
            Judgement::Stale(slots) => {
                op.arbitration.doubts.remove(&row);
                op.arbitration.judged.insert(row);
                for slot in slots {
                    self.overrule(id, row, slot, names[slot]);
                }
            }
        }
    }

    /// A block's entry is stale. What lies there is not read; a heal writes it anew.
    fn overrule(&mut self, id: OpId, row: Row, slot: usize, name: BlockName) {
        let op = self.ops.get_mut(id).expect("the operation exists");
        let block = u64::from(name.block);
        op.arbitration.overruled.insert((name.column, block));
        op.arbitration.distrusted.insert((name.column, block));
        let column = self
            .cx
            .view()
            .column(&self.cx.geometry, name.group, name.column);
        let Some(cell) = column.source else {
            return;
        };
        if let Task::Heal(blocks) = &mut op.task
            && !blocks.contains(&(slot, row.low))
        {
            blocks.push((slot, row.low));
        }
        self.cx.events.push_back(Event::BlockBad {
            seat: cell.seat,
            offset: self.cx.geometry.block_offset(cell, block),
            blocks: 1,
            group: name.group,
            column: name.column,
        });
    }
}

#[cfg(test)]
mod tests {
    use erasure::ElementSet;

    use super::*;
    use crate::ScratchId;
    use crate::action::BufferId;

    const POOL: Uuid = Uuid::from_u128(7);

    /// What should be in each slot: plain sum, and the batch that wrote it.
    fn elements(of: &[(u32, u64)]) -> Vec<Element> {
        let element = |(column, &(sum, sequence)): (u16, &(u32, u64))| {
            let name = BlockName {
                group: 0,
                column,
                block: 3,
            };
            let entry = Entry::new(POOL, name, sum, sequence);
            Element { name, entry }
        };
        (0..).zip(of).map(element).collect()
    }

    /// A trial in a row of one element per column, all of which were read.
    fn trial(code: &Code, doubted: u16) -> Trial {
        let believed: ElementSet = (0..code.elements())
            .filter(|&slot| slot != usize::from(doubted))
            .collect();
        let slice = Slice {
            buffer: BufferId::Scratch(ScratchId(1)),
            offset: 0,
            length: BLOCK_BYTES,
        };
        let computed = |&slot: &usize| !code.is_data(slot) || !believed.contains(slot);
        let results = (0..code.elements()).filter(computed);
        Trial {
            row: Row { stripe: 0, low: 0 },
            doubted: vec![doubted],
            results: results.map(|slot| (slot, slice)).collect(),
            believed,
        }
    }

    fn judge(code: &Code, of: &[(u32, u64)], trials: &[(u16, Vec<u32>)]) -> Judgement {
        let elements = elements(of);
        let facts = Facts {
            code,
            pool: POOL,
            elements: &elements,
            sequence: 100,
        };
        let made: Vec<Trial> = trials.iter().map(|(at, _)| trial(code, *at)).collect();
        let sums = trials.iter().map(|(_, sums)| sums.as_slice());
        facts.judge(&made.iter().zip(sums).collect::<Vec<_>>())
    }

    /// Slots of P+Q with two columns of data, data first.
    fn pq() -> (Code, [usize; 2]) {
        let code = erasure::by_columns("pq", 4).unwrap();
        let data: Vec<usize> = code.data_slots().collect();
        (code, [data[0], data[1]])
    }

    /// Sums by slot in the order of a trial's results: `anew` for the doubted slot, else what is there.
    fn sums(code: &Code, of: &[(u32, u64)], doubted: usize, anew: u32) -> Vec<u32> {
        let results = trial(code, u16::try_from(doubted).unwrap()).results;
        let sum = |&(slot, _): &(usize, Slice)| if slot == doubted { anew } else { of[slot].0 };
        results.iter().map(sum).collect()
    }

    #[test]
    fn the_column_without_which_all_else_agrees_is_stale_if_it_is_older() {
        let (code, [first, second]) = pq();
        let mut of = vec![(10, 9), (20, 9), (30, 9), (40, 9)];
        of[first].1 = 5;
        let one = u16::try_from(first).unwrap();
        let other = u16::try_from(second).unwrap();
        let right = (one, sums(&code, &of, first, 77));
        // Whoever else is doubted, parity does not come out as it is.
        let wrong = (other, vec![1; right.1.len()]);
        let judged = judge(&code, &of, &[right.clone(), wrong]);
        assert_eq!(judged, Judgement::Stale(vec![first]));
        // Written by the batch that wrote the parity: that was computed from what is stale, and spoilt.
        of[first].1 = 9;
        assert_eq!(judge(&code, &of, &[right]), Judgement::Open);
    }

    #[test]
    fn two_columns_that_may_each_be_stale_are_left_as_they_are() {
        let (code, [first, second]) = pq();
        let of: Vec<(u32, u64)> = (0..4)
            .map(|slot| if code.is_data(slot) { (10, 5) } else { (30, 9) })
            .collect();
        let may = |slot: usize| {
            let column = u16::try_from(slot).unwrap();
            (column, sums(&code, &of, slot, 77))
        };
        let judged = judge(&code, &of, &[may(first), may(second)]);
        assert_eq!(judged, Judgement::Open);
    }

    #[test]
    fn of_two_copies_the_newer_counts_and_data_is_not_made_from_one_parity() {
        let mirror = erasure::by_columns("mirror", 2).unwrap();
        let of = [(10, 5), (20, 7)];
        // Either copy follows from the other.
        let trials = |code: &Code, of: &[(u32, u64)]| {
            (0..2)
                .map(|slot| {
                    let other = of[1 - slot].0;
                    let results = trial(code, u16::try_from(slot).unwrap()).results;
                    (u16::try_from(slot).unwrap(), vec![other; results.len()])
                })
                .collect::<Vec<_>>()
        };
        let judged = judge(&mirror, &of, &trials(&mirror, &of));
        assert_eq!(judged, Judgement::Stale(vec![0]));

        let parity = erasure::by_columns("parity", 3).unwrap();
        let slot = parity.data_slots().next().unwrap();
        let mut of = vec![(10, 9), (20, 9), (30, 9)];
        of[slot].1 = 5;
        let one = (u16::try_from(slot).unwrap(), sums(&parity, &of, slot, 77));
        assert_eq!(judge(&parity, &of, &[one]), Judgement::Open);
        // A parity that is older than its data is.
        let slot = parity.parity_slots().next().unwrap();
        let mut of = vec![(10, 9), (20, 9), (30, 9)];
        of[slot].1 = 5;
        let one = (u16::try_from(slot).unwrap(), sums(&parity, &of, slot, 77));
        assert_eq!(judge(&parity, &of, &[one]), Judgement::Stale(vec![slot]));
    }
}
