//! What operations log: units of blocks with their checksums, band by band.

use block::{BLOCK_BYTES, Outcome};

use super::ids::OpId;
use super::log::{Unit, derived};
use super::op::{Op, Phase, Task};
use super::verify::blocks_of;
use super::{Lane, preserved};
use crate::action::Slice;
use crate::format::BlockName;

impl Lane {
    /// The blocks that an operation writes: what their checksums are wanted of.
    pub(super) fn sums_of_writes(&self, id: OpId) -> Vec<Slice> {
        let op = &self.ops[&id];
        let wanted = match &op.task {
            Task::Write(prepared) => prepared.staged,
            Task::Heal(_) | Task::Fill { .. } | Task::Relog(_) => true,
            _ => false,
        };
        let trusted = self.cx.trusted && matches!(op.task, Task::Fill { .. });
        if !wanted || trusted || self.cx.geometry.store().is_none() {
            return Vec::new();
        }
        let blocks = self.written_blocks(op).into_iter();
        let absent = self.absent_blocks(op).into_iter();
        let absent = absent.filter_map(|(_, slice)| slice);
        blocks.map(|(_, slice)| slice).chain(absent).collect()
    }

    /// Blocks that an operation changes while their columns are nowhere, with the bytes that they should
    /// have where these are known and can be logged; band by band.
    fn absent_blocks(&self, op: &Op) -> Vec<(BlockName, Option<Slice>)> {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let keeps = self.cx.geometry.keeps_sums_of_absent();
        let absent = &op.plan.as_ref().expect("it was planned").absent;
        let mut blocks: Vec<(BlockName, Option<Slice>)> = absent
            .iter()
            .flat_map(|part| {
                let first = part.offset / BLOCK_BYTES;
                let group = op.group;
                (0..part.length / BLOCK_BYTES).map(move |index| {
                    let name = BlockName {
                        group,
                        column: part.column,
                        block: u32::try_from(first + index)
                            .expect("cells have fewer than 2^32 blocks"),
                    };
                    let bytes = part.slice.filter(|_| keeps);
                    let bytes = bytes.map(|all| all.part(index * BLOCK_BYTES, BLOCK_BYTES));
                    (name, bytes)
                })
            })
            .collect();
        blocks.sort_by_key(|&(name, _)| (u64::from(name.block) % per_chunk, name));
        blocks
    }

    /// Each block that a plan writes, once, though it may go to two cells; neighbours in the
    /// elements of a stripe (a band) are neighbours here.
    pub(super) fn written_blocks(&self, op: &Op) -> Vec<(BlockName, Slice)> {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let writes = &op.plan.as_ref().expect("it was planned").writes;
        let mut blocks: Vec<(BlockName, Slice)> = writes
            .iter()
            .flat_map(|&write| blocks_of(&self.cx.geometry, op.group, write))
            .map(|(name, _, slice)| (name, slice))
            .collect();
        blocks.sort_by_key(|&(name, _)| (u64::from(name.block) % per_chunk, name));
        blocks.dedup_by_key(|&mut (name, _)| name);
        blocks
    }

    /// What an operation writes is computed: to the journal with it, band by band.
    pub(super) fn log_writes(&mut self, id: OpId, sums: &[u32]) {
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let band = |name: &BlockName| u64::from(name.block) % per_chunk;
        let op = &self.ops[&id];
        let blocks = self.written_blocks(op);
        let absent = self.absent_blocks(op);
        let mut units: Vec<(u64, Unit)> = Vec::new();
        let unit_at = |units: &mut Vec<(u64, Unit)>, band| {
            let place = units.partition_point(|(other, _)| *other < band);
            if units.get(place).is_none_or(|(other, _)| *other != band) {
                let unit = Unit::of(id);
                units.insert(place, (band, unit));
            }
            place
        };
        let mut sums = sums.iter().copied();
        for (name, slice) in blocks {
            let place = unit_at(&mut units, band(&name));
            let sum = sums.next().expect("one for each block");
            units[place].1.blocks.push((name, slice, sum));
        }
        for (name, slice) in absent {
            let place = unit_at(&mut units, band(&name));
            match slice.and_then(|_| sums.next()) {
                Some(sum) => units[place].1.absent.push((name, sum)),
                None => units[place].1.unknown.push(name),
            }
        }
        if let Task::Relog(names) = &self.ops[&id].task {
            for (name, sum) in preserved::relogged_absent(&self.cx, &self.overlay, names) {
                let place = unit_at(&mut units, band(&name));
                match sum {
                    Some(sum) => units[place].1.absent.push((name, sum)),
                    None => units[place].1.unknown.push(name),
                }
            }
        }
        let mut units: Vec<Unit> = units.into_iter().map(|(_, unit)| unit).collect();
        derived::leave_out(&self.cx, &self.ops[&id], &mut units);
        self.log_units(id, units);
    }

    /// Stripes become zero by a record alone.
    pub(super) fn log_zeroes(&mut self, id: OpId) {
        let op = &self.ops[&id];
        let unit = Unit {
            zeroed: Some((op.group, op.stripes.clone())),
            ..Unit::of(id)
        };
        self.log_units(id, vec![unit]);
    }

    pub(super) fn log_units(&mut self, id: OpId, units: Vec<Unit>) {
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.phase = Phase::Logging;
        op.units = units.len() as u64;
        let again = matches!(op.task, Task::Relog(_));
        // What it was computed from is not needed any more; were it kept while the operation waits
        // for memory, none would become free. What is logged again is itself in a batch's buffer.
        let pinned = match again {
            true => Vec::new(),
            false => std::mem::take(&mut op.pinned),
        };
        for sequence in pinned {
            self.overlay.unpin(sequence);
        }
        if units.is_empty() {
            self.end(id, Ok(()));
        } else {
            self.log.push(self.cx.now, &self.ops[&id], units);
        }
    }

    /// One of an operation's units is logged, or will not be.
    pub(super) fn unit_ended(&mut self, id: OpId, outcome: Outcome) {
        let op = self.ops.get_mut(id).expect("it waits for its units");
        op.units -= 1;
        if let (None, Err(fault)) = (op.fault, outcome) {
            op.fault = Some(fault);
        }
        if op.units == 0 {
            self.end(id, Ok(()));
        }
    }
}
