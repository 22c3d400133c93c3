//! Derived parity: parity that the journal leaves out, because it can be computed from the data in the same batch.
//!
//! ```text
//!   a whole row of a stripe   D0 D1 D2 D3 P Q
//!   on the ring               D0 D1 D2 D3       and the batch's own parity, as for every batch
//!   in the batch's memory     D0 D1 D2 D3 P Q   P and Q behind the columns: they go to their places from there
//! ```
//!
//! A write that covers all data of a row needs no parity in the journal: recovery reassembles the batch (its own parity
//! makes up for as many drives as the code survives), and computes P and Q from the data. So an overwrite of `raid6`
//! 4+2 costs 3 bytes on the drives for one of the user's, instead of 3.75. An overwrite of a mirror logs its block
//! once.
//!
//! Invariants:
//! - All data blocks of the row (in elastic pools: all that the block is computed from) are in the same unit, hence in the same batch, before the descriptors of its parity. No
//!   other unit of the batch has blocks of the row: the operation has the stripe's lock until the batch is complete.
//! - A derived block has memory like every logged block, from the time its batch is laid out or found until the block
//!   is in its place.
//! - If a block that recovery computes does not have the checksum of its descriptor, the batch does not count as whole.

use std::collections::{BTreeMap, BTreeSet};

use block::BLOCK_BYTES;
use erasure::ElementSet;
use format::seeded::{self, SeededFault};
use format::{BatchHeader, BlockName, Column, Descriptor, Form};
use plan::ScratchId;
use plan::action::{BufferId, ComputeStep, Slice};

use super::Unit;
use super::buffer::BatchBuffer;
use crate::context::Context;
use crate::op::{Op, Task};

/// How many blocks of a batch are derived.
pub(crate) fn blocks(header: &BatchHeader) -> u64 {
    names(header).count() as u64
}

fn names(header: &BatchHeader) -> impl Iterator<Item = (BlockName, u32)> + '_ {
    let descriptors = header.descriptors.iter();
    descriptors.filter_map(|descriptor| match *descriptor {
        Descriptor::Derived { name, crc } => Some((name, crc)),
        _ => None,
    })
}

/// The computation of a recovered batch's derived blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Derivation {
    pub(crate) steps: Vec<ComputeStep>,
    /// The derived blocks, whose checksums are computed.
    pub(crate) sums: Vec<Slice>,
    /// Blocks of temporary memory.
    pub(crate) temporaries: usize,
}

/// Takes parity out of units that have all data of its row.
pub(crate) fn leave_out(cx: &Context, op: &Op, units: &mut [Unit]) {
    let allowed = { cx.geometry.regions() }.is_some_and(|regions| regions.derived_parity);
    if !allowed || !matches!(op.task, Task::Write(_)) {
        return;
    }
    if cx.geometry.is_elastic() {
        leave_out_each(cx, op, units);
        return;
    }
    let per_chunk = cx.geometry.chunk_bytes() / BLOCK_BYTES;
    let (group, stripe) = (op.group, op.stripes.start);
    let slots = cx.geometry.code().data_slots();
    let mut data: Vec<(Column, u64)> = slots
        .map(|slot| cx.geometry.place(group, stripe, Form::Parity, slot))
        .collect();
    data.sort_unstable();
    let is_data = |&(name, ..): &(BlockName, Slice, u32)| {
        let place = (name.column, u64::from(name.block) / per_chunk);
        data.binary_search(&place).is_ok()
    };
    for unit in units.iter_mut() {
        let there = unit.blocks.iter().filter(|block| is_data(block)).count();
        if there == data.len() || seeded::is(SeededFault::DerivedFromPart) {
            let parity = unit.blocks.extract_if(.., |block| !is_data(block));
            unit.derived = parity.collect();
        }
    }
}

/// The same in elastic pools: each parity or copy is left out if all data that it is computed from is in its unit. So a
/// copy is never logged beside its data. (Versions without this feature derive parity only from all data of a row.)
fn leave_out_each(cx: &Context, op: &Op, units: &mut [Unit]) {
    let form = op.form();
    let code = cx.geometry.code_of(form);
    for unit in units.iter_mut() {
        let names: BTreeSet<BlockName> = unit.blocks.iter().map(|&(name, ..)| name).collect();
        let Some(&first) = names.first() else {
            continue;
        };
        // All blocks of a unit are of one row.
        let row: Vec<BlockName> = cx
            .geometry
            .row_of(first, form)
            .map(|(_, name)| name)
            .collect();
        let follows = |parity: usize| {
            let mut data = code.data_slots();
            let needed = |slot: &usize| code.coefficient(parity, *slot) != 0;
            data.all(|slot| !needed(&slot) || names.contains(&row[slot]))
        };
        let derived: BTreeSet<BlockName> = { code.parity_slots() }
            .filter(|&parity| follows(parity) || seeded::is(SeededFault::DerivedFromPart))
            .map(|parity| row[parity])
            .collect();
        let spared = unit
            .blocks
            .extract_if(.., |(name, ..)| derived.contains(name));
        unit.derived = spared.collect();
    }
}

/// The computation of a batch's derived blocks from its content; `temporary` is memory for intermediate results. `None`
/// if the batch does not have all the data that they are computed from.
pub(crate) fn derivation(
    cx: &Context,
    header: &BatchHeader,
    buffer: BatchBuffer,
    temporary: ScratchId,
) -> Option<Derivation> {
    let contents = header
        .descriptors
        .iter()
        .filter_map(|descriptor| match *descriptor {
            Descriptor::Content { name, .. } => Some(name),
            _ => None,
        });
    let contents: BTreeMap<BlockName, Slice> = contents
        .zip(0..)
        .map(|(name, index)| (name, buffer.content(index)))
        .collect();
    let mut wanted: BTreeMap<BlockName, Slice> = BTreeMap::new();
    let mut derivation = Derivation::default();
    for ((name, _), index) in names(header).zip(0..) {
        let target = buffer.derived(index);
        wanted.insert(name, target);
        derivation.sums.push(target);
    }
    while let Some((&name, _)) = wanted.first_key_value() {
        // What is derived is parity or a copy: its place shows the form.
        let form = cx.geometry.form_at(name)?;
        let code = cx.geometry.code_of(form);
        let mut known = ElementSet::new(code.elements());
        let mut lost = ElementSet::new(code.elements());
        let mut blocks: BTreeMap<usize, Slice> = BTreeMap::new();
        for (slot, name) in cx.geometry.row_of(name, form) {
            if let Some(target) = wanted.remove(&name) {
                lost.insert(slot);
                blocks.insert(slot, target);
            } else if code.is_data(slot)
                && let Some(&slice) = contents.get(&name)
            {
                known.insert(slot);
                blocks.insert(slot, slice);
            }
        }
        // `wanted` has a block that is not where this form has its blocks.
        if lost.is_empty() {
            return None;
        }
        let recovery = code.recover(&known, &lost).ok()?;
        let block = |slot: usize| match slot.checked_sub(code.elements()) {
            None => blocks.get(&slot).copied(),
            Some(index) => Some(Slice {
                buffer: BufferId::Scratch(temporary),
                offset: index as u64 * BLOCK_BYTES,
                length: BLOCK_BYTES,
            }),
        };
        let temporaries = recovery.schedule.temporaries();
        derivation.temporaries = derivation.temporaries.max(temporaries);
        for step in &recovery.schedule.steps {
            let terms = step.terms.iter();
            let terms = terms.map(|&(slot, factor)| Some((block(slot.into())?, factor)));
            derivation.steps.push(ComputeStep {
                target: block(step.target.into())?,
                accumulate: step.accumulate,
                terms: terms.collect::<Option<_>>()?,
            });
        }
    }
    Some(derivation)
}

/// True if the derived blocks have the checksums of their descriptors.
pub(crate) fn are_right(header: &BatchHeader, sums: &[u32]) -> bool {
    names(header).map(|(_, crc)| crc).eq(sums.iter().copied())
}
