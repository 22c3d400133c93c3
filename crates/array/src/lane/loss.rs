//! What of a lane's data is lost, and when it is not any more.
//!
//! An operation that has met bad or unknown blocks starts a heal of their stripe. The heal's plan shows
//! what cannot be reconstructed; under the stripe's lock that is exactly what is lost ([`assess_lost`]). A
//! block leaves the list when a write over it has ended, a read of it has succeeded, or a scrub has
//! found it right.
//!
//! The list is also why a bad block counts once: what is known to be lost, and the blocks of its stripe at
//! the same byte, which nobody could mend, are not blamed on a drive again.

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault, Outcome};

use super::Lane;
use super::ids::OpId;
use super::op::{Op, Owner, Task};
use super::overlay::Bytes;
use crate::action::Event;
use crate::format::{BlockName, Entry};
use crate::plan::Row;

impl Lane {
    /// An operation has ended well: what it has written or seen is not lost.
    pub(super) fn note_right(&mut self, op: &Op) {
        if self.losses.is_empty() {
            return;
        }
        let group = op.group;
        let per_stripe = self.cx.geometry.stripe_data_bytes() / BLOCK_BYTES;
        let data = op.data_stripes();
        let all = data.map_or(0..u64::MAX, |data| {
            data.start * per_stripe..data.end * per_stripe
        });
        if !self.losses.touch(group, all.clone()) {
            return;
        }
        let stripe = op.data.unwrap_or(op.stripes.start);
        match &op.task {
            Task::Write(prepared) => {
                let sources = prepared.sources.iter();
                let parts: Vec<_> = sources
                    .map(|source| (source.slot, source.low, source.slice.length))
                    .collect();
                self.losses.parts_found(&mut self.cx, group, stripe, &parts);
            }
            Task::Read(pieces) => {
                let pieces = pieces.iter();
                let parts: Vec<_> = pieces
                    .map(|piece| (piece.slot, piece.low, piece.slice.length))
                    .collect();
                self.losses.parts_found(&mut self.cx, group, stripe, &parts);
            }
            Task::Zero if op.data.is_some() => self.losses.found(&mut self.cx, group, all),
            Task::Scrub => self.scrub_found(op),
            Task::Zero
            | Task::Fill { .. }
            | Task::Resync
            | Task::Heal(_)
            | Task::Relog(_)
            | Task::Discard(_) => {}
        }
    }

    /// A scrub has read what is on drives: what of it was neither bad nor unknown is right.
    fn scrub_found(&mut self, op: &Op) {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        for stripe in op.stripes.clone() {
            let Some(data) = self.maps.data_held_by(&self.cx, op.group, stripe) else {
                continue;
            };
            let slots: Vec<usize> = self.cx.geometry.code().data_slots().collect();
            for slot in slots {
                let Some(first) = self.cx.geometry.data_block(data, slot, 0) else {
                    continue;
                };
                let here = self.losses.within(op.group, first..first + per_chunk);
                let here: Vec<u64> = here.flatten().collect();
                let (column, chunk) = self.cx.geometry.place(op.group, stripe, slot);
                let readable = self
                    .cx
                    .view()
                    .column(&self.cx.geometry, op.group, column)
                    .readable();
                for block in here {
                    let at = (column, chunk * per_chunk + (block - first));
                    if readable && !op.bad.contains(&at) && !op.unknown.contains(&at) {
                        self.losses.found(&mut self.cx, op.group, block..block + 1);
                    }
                }
            }
        }
    }

    /// Whether data of the stripe at the block's byte of its elements is known to be lost.
    pub(super) fn is_known_lost(&self, name: BlockName) -> bool {
        if self.losses.is_empty() || !self.losses.touch(name.group, 0..u64::MAX) {
            return false;
        }
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let stripe = self.cx.geometry.stripe_of(name);
        let Some(data) = self.maps.data_held_by(&self.cx, name.group, stripe) else {
            return false;
        };
        let low = u64::from(name.block) % per_chunk * BLOCK_BYTES;
        self.cx.geometry.code().data_slots().any(|slot| {
            let block = self.cx.geometry.data_block(data, slot, low);
            block.is_some_and(|block| self.losses.touch(name.group, block..block + 1))
        })
    }

    /// Starts heals for what an operation has found bad or unknown, stripe by stripe.
    pub(super) fn begin_heals(&mut self, op: &Op, outcome: Outcome) {
        // What a client was refused is looked into, too: is it lost?
        let asked = matches!(op.task, Task::Read(_) | Task::Write(_));
        let refused = matches!(outcome, Err(Fault::Lost | Fault::Medium));
        let gone = op.read_fault == Some(Fault::Gone);
        if outcome.is_err() && (gone || !(asked && refused)) {
            return;
        }
        if op.bad.is_empty() && op.unknown.is_empty() && op.arbitration.is_blank() {
            return;
        }
        let mut bad = op.bad.clone();
        bad.extend(&op.unknown);
        let stale = match outcome {
            Ok(()) => self.rows_to_mend(op),
            Err(_) => BTreeSet::new(),
        };
        if bad.is_empty() && stale.is_empty() {
            return;
        }
        let job = match (op.owner, &op.task) {
            (Owner::Job(job), Task::Scrub) => Some(job),
            _ => None,
        };
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        for stripe in op.stripes.clone() {
            let mut blocks = Vec::new();
            let mut entries = BTreeMap::new();
            for slot in 0..self.cx.geometry.code().elements() {
                let (column, chunk) = self.cx.geometry.place(op.group, stripe, slot);
                let first = chunk * per_chunk;
                for &(_, block) in bad.range((column, first)..(column, first + per_chunk)) {
                    let name = BlockName {
                        group: op.group,
                        column,
                        block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
                    };
                    let entry = self.present_entry(name);
                    let known = entry.is_some_and(|entry| entry != Entry::UNKNOWN);
                    let logged = self.overlay.get(name).map(|logged| logged.bytes);
                    // The operation itself may have written it anew.
                    if matches!(logged, Some(Bytes::Memory(_)))
                        || known && !op.bad.contains(&(column, block))
                    {
                        continue;
                    }
                    let at = (slot, (block - first) * BLOCK_BYTES);
                    blocks.push(at);
                    entries.extend(entry.map(|entry| (at, entry)));
                }
            }
            let doubts: BTreeMap<Row, usize> = stale
                .iter()
                .filter(|row| row.stripe == stripe)
                .map(|&row| (row, 0))
                .collect();
            if (blocks.is_empty() && doubts.is_empty()) || !self.healing.insert((op.group, stripe))
            {
                continue;
            }
            let mut heal = Op::repair(Owner::Lane, op.group, stripe, blocks);
            // Under its own lock the heal finds out anew what is stale.
            heal.arbitration.doubts = doubts;
            heal.repair.entries = entries;
            heal.repair.scrub = job;
            if let Some(job) = job {
                self.jobs.repair_begins(job);
            }
            self.start(heal);
        }
    }

    /// What is known of a block now.
    fn present_entry(&self, name: BlockName) -> Option<Entry> {
        let logged = self.overlay.get(name).map(|logged| logged.entry);
        logged.or_else(|| self.pages.entry(name))
    }

    /// Blocks that have been written anew since they were found bad are not healed: a heal waits for its lock,
    /// and may be planned more than once.
    pub(super) fn drop_written_anew(&mut self, id: OpId) {
        let op = &self.ops[&id];
        let Task::Heal(blocks) = &op.task else {
            return;
        };
        let (group, stripe) = (op.group, op.stripes.start);
        let same = |&&(slot, low): &&(usize, u64)| {
            let (column, chunk) = self.cx.geometry.place(group, stripe, slot);
            let block = (chunk * self.cx.geometry.chunk_bytes() + low) / BLOCK_BYTES;
            let now = self.present_entry(BlockName {
                group,
                column,
                block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
            });
            let then = op.repair.entries.get(&(slot, low)).copied();
            now.is_none() || then.is_none() || now == then
        };
        let left: Vec<(usize, u64)> = blocks.iter().filter(same).copied().collect();
        let op = self.ops.get_mut(id).expect("just seen");
        op.task = Task::Heal(left);
    }

    /// A heal has ended.
    pub(super) fn healed(&mut self, op: &Op, blocks: usize, outcome: Outcome) {
        self.healing.remove(&(op.group, op.stripes.start));
        let (mut mended, mut lost) = (0, 0);
        if outcome.is_ok() {
            let plan = op.plan.as_ref();
            let left = plan.map_or(0, |plan| plan.lost.len());
            mended = (blocks - left.min(blocks)) as u64;
            lost = self
                .losses
                .assessed(&mut self.cx, op.group, &op.repair.assessed);
            if mended > 0 {
                self.cx.events.push_back(Event::Healed {
                    group: op.group,
                    stripe: op.stripes.start,
                    blocks: mended,
                });
            }
        }
        if let Some(job) = op.repair.scrub
            && self.jobs.repair_ended(job, mended, lost)
        {
            self.step_job(job);
        }
    }
}
