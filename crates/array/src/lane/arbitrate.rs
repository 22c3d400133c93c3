//! What operations reconstruct is compared with its entries, and rows in doubt are read whole (`arbitration/`).

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault};

use super::arbitration::Reconstructed;
use super::blocks::{Entries, LaneBlocks};
use super::ids::OpId;
use super::ops::{Op, Owner, Task};
use super::{Lane, records};
use crate::action::{Action, Slice};
use crate::format::BlockName;
use crate::plan::{self, Row, Scratch, Stripe};

impl Lane {
    /// Whether what an operation reconstructs is yet to be compared.
    pub(super) fn must_check(&self, op: &Op) -> bool {
        let plan = op.plan.as_ref();
        let recovers = plan.is_some_and(|plan| !plan.recovered.is_empty());
        recovers && !op.checked && !self.cx.trusted && self.cx.geometry.store().is_some()
    }

    /// Whether all that an operation reconstructs is what it writes, so that one sum serves both.
    pub(super) fn writes_what_it_recovers(&self, id: OpId) -> bool {
        matches!(self.ops[id].task, Task::Heal(_) | Task::Fill { .. })
    }

    /// What is to be summed before an operation goes on, and after how many steps.
    pub(super) fn sums_to_check(&self, id: OpId) -> (Vec<Slice>, usize) {
        let op = &self.ops[id];
        let plan = op.plan.as_ref().expect("it was planned");
        if op.arbitration.is_trying() {
            return (op.arbitration.results().collect(), plan.steps.len());
        }
        if self.writes_what_it_recovers(id) {
            return (records::sums_of_writes(&self.cx, op), plan.steps.len());
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

    /// What an operation has reconstructed has these sums. False if it is not right, or that cannot be
    /// told yet: then the operation is planned again, or has ended.
    pub(super) fn recovered_is_right(&mut self, id: OpId, sums: &[u32]) -> bool {
        if self.end_orphan(id) {
            return false;
        }
        let op = &self.ops[id];
        let blocks = self.recovered_blocks(op);
        let written: BTreeMap<BlockName, u32> = match self.writes_what_it_recovers(id) {
            true => {
                let written = records::written_blocks(&self.cx, op).into_iter();
                written
                    .map(|(name, _)| name)
                    .zip(sums.iter().copied())
                    .collect()
            }
            false => BTreeMap::new(),
        };
        let sum_of = |index: usize, name: BlockName| match self.writes_what_it_recovers(id) {
            // What has no place any more is not written.
            true => written.get(&name).copied(),
            false => Some(sums[index]),
        };
        let blocks = blocks.into_iter().enumerate();
        let blocks = blocks.filter_map(|(index, (name, row))| {
            let sum = sum_of(index, name)?;
            Some(Reconstructed { name, row, sum })
        });
        let scrubs = matches!(op.task, Task::Scrub);
        let bad = scrubs.then_some(&op.bad);
        let doubts = { &op.arbitration }.compare(&self.cx, self.entries(), op.group, blocks, bad);
        let Some(doubts) = doubts else {
            self.ops.plan_again(&mut self.cx, id);
            return false;
        };
        if !doubts.is_empty() && matches!(op.owner, Owner::Hedge(_)) {
            // Its reader waits for the late drive, and finds out what is stale.
            self.end(id, Err(Fault::Lost));
            return false;
        }
        let op = &mut self.ops[id];
        if scrubs || doubts.is_empty() {
            if !doubts.is_empty() {
                op.arbitration.begin(doubts);
            } else if let Some(arbitration) = op.arbitration.written() {
                arbitration.begin(doubts);
            }
            op.checked = true;
            return true;
        }
        op.arbitration.doubt(&self.cx.geometry, op.group, doubts);
        self.ops.plan_again(&mut self.cx, id);
        false
    }

    /// Reads rows that are in doubt, and tries what they are without some columns.
    pub(super) fn arbitrate(&mut self, id: OpId) {
        let op = &self.ops[id];
        if !op.is_locked() {
            self.ops.lock(&mut self.cx, id);
            return;
        }
        let scratch = self.cx.fresh_scratch();
        let (op, plans) = self.ops.planning(id);
        let columns = self.cx.geometry.layout().columns();
        let (rows, doubted) = op.arbitration.next_rows(columns);
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
            distrusted: op.arbitration.distrusted(),
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
        let (plan, trials) = plan::plan_arbitrate(plans, stripe, &rows, doubted, Scratch(scratch));
        let missing = blocks.missing.into_inner();
        let pinned = blocks.pinned.into_inner();
        if !missing.is_empty() {
            self.fetch_pages(id, missing);
            return;
        }
        if trials.is_empty() {
            // The code cannot do without as many columns.
            for row in rows {
                op.arbitration.despair(&self.cx.geometry, op.group, row);
            }
            self.ops.plan_again(&mut self.cx, id);
            return;
        }
        for &sequence in &pinned {
            self.overlay.pin(sequence);
        }
        op.pinned = pinned.into_iter().collect();
        op.arbitration.begin_trials(trials);
        op.scratch = Some(scratch);
        self.cx
            .actions
            .push_back(Action::Allocate(scratch, plan.scratch_bytes));
        self.read(id, plan);
    }

    /// The trials of some rows have these sums.
    pub(super) fn arbitrated(&mut self, id: OpId, sums: &[u32]) {
        if self.end_orphan(id) {
            return;
        }
        let entries = Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        };
        let op = &mut self.ops[id];
        let (cx, group, next) = (&mut self.cx, op.group, self.log.next_sequence());
        let stale = op.arbitration.tried(cx, entries, group, sums, next);
        if let Task::Heal(blocks) = &mut op.task {
            for at in stale {
                if !blocks.contains(&at) {
                    blocks.push(at);
                }
            }
        }
        self.ops.plan_again(&mut self.cx, id);
    }
}
