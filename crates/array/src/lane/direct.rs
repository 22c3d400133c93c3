//! What streams write onto space that holds nothing that counts goes in place at once, stripe by stripe, and then a record
//! of its checksums is logged.
//!
//! ```text
//!   Computing ─► Gathering ───────────────► Writing ──────────────► Logging ─► (end)
//!                (the other stripes of      (data and parity,       (checksums, no content)
//!                its turn: neighbours       in place)
//!                go as one operation)          └─ a drive refuses or leaves ─► Logging (with content) ─► (end)
//! ```
//!
//! Why nothing is lost: until the record is complete the blocks' entries say that they are unwritten, so what lies in their
//! places does not count, whole or torn. The record and the stripe may both be in caches when the power goes. So
//! recovery compares stripes whose record is not known to be flushed with their checksums (`recover/compare.rs`).
//!
//! Invariants:
//! - The stripe is locked from before its entries are looked at until its record is complete.
//! - A record says of a block that it is in place only if its drive has taken it, and has not left since.
//! - A trim whose record is not flushed leaves its stripe written: its blocks are still in the overlay.

use std::collections::BTreeSet;

use block::BLOCK_BYTES;

use super::direct_writes::Turn;
use super::flush::Waiter;
use super::ids::OpId;
use super::log::Unit;
use super::op::{Op, Owner, Phase, Task};
use super::{Lane, records};
use crate::format::{BlockName, DESCRIPTOR_BYTES, Descriptor, PageName};
use crate::plan::{Plan, Transfer};
use crate::seeded::{self, Bug};

/// Blocks of a lane that are in place and whose entries are in memory only, from which on a checkpoint begins: 64 MiB. It goes
/// through all of them at once, and commits of the same thread wait for that.
/// At four times as many nothing more goes in place before it has ended.
pub(super) const IN_PLACE_MAX: u64 = 16_384;

/// Bytes of a unit's descriptors: several units, and what else a batch has, fit into one header.
const UNIT_BYTES_MAX: usize = 4 << 10;

/// What an operation that writes in place knows.
#[derive(Clone, Debug, Default)]
pub(super) struct Direct {
    /// Plain CRC-32C of the blocks that it writes, in the order of [`records::written_blocks`].
    sums: Vec<u32>,
    /// A drive has not taken what it should have.
    failed: bool,
    /// The turn in which it was planned.
    turn: Turn,
}

/// How many blocks of each element one unit describes, of a stripe of so many elements; `None` if not even one.
fn rows_of_unit(elements: usize) -> Option<u64> {
    let room = UNIT_BYTES_MAX / elements;
    let rows =
        room.checked_sub(DESCRIPTOR_BYTES)? / (Descriptor::bytes_of_direct(1) - DESCRIPTOR_BYTES);
    u64::try_from(rows).ok().filter(|&rows| rows > 0)
}

impl Lane {
    /// A write that was planned goes in place before it is logged.
    pub(super) fn begin_direct(&mut self, id: OpId) {
        let turn = self.direct.begin();
        let op = self.ops.get_mut(id).expect("it was planned");
        op.direct = Some(Box::new(Direct {
            turn,
            ..Direct::default()
        }));
    }

    /// Whether a write may go in place before it is logged, if nothing counts there. Parts of streams only: it takes one step
    /// more than the journal, and what it saves are bytes.
    pub(super) fn may_go_direct(&self, op: &Op, plan: &Plan) -> bool {
        let (Task::Write(prepared), Owner::Request(_)) = (&op.task, op.owner) else {
            return false;
        };
        op.service.bulk
            && self
                .cx
                .geometry
                .store()
                .is_some_and(|store| store.direct_writes)
            && prepared.staging.is_none()
            && plan.reads.is_empty()
            && plan.recovered.is_empty()
            && plan.absent.is_empty()
            && plan.lost.is_empty()
            && !self.cx.trusted
            && !self.ios.twins().any()
            && self.overlay.blocks_in_place() < 4 * IN_PLACE_MAX
            && rows_of_unit(self.cx.geometry.code().elements()).is_some()
    }

    /// The pages of what a plan writes that are not in memory.
    pub(super) fn pages_of_writes(&self, group: u64, plan: &Plan) -> BTreeSet<PageName> {
        let writes = plan.writes.iter();
        let missing = writes.flat_map(|write| {
            let (first, count) = self.run_of(group, write);
            self.pages.missing(first, count)
        });
        missing.collect()
    }

    /// The blocks of a transfer: the first, and how many.
    pub(super) fn run_of(&self, group: u64, write: &Transfer) -> (BlockName, u32) {
        let number = |blocks| u32::try_from(blocks).expect("cells have fewer than 2^32 blocks");
        let first = BlockName {
            group,
            column: write.column,
            block: number(self.cx.geometry.block_of(write.offset)),
        };
        (first, number(write.length / BLOCK_BYTES))
    }

    /// Whether no block counts of those that a plan writes, and each has one place, on a drive that is quick enough. What the
    /// plan does not write of their rows is zero then, by its own parity: were it not, parity would be written.
    pub(super) fn holds_nothing(&self, op: &Op, plan: &Plan) -> bool {
        let group = op.group;
        let trimmed = self.overlay.zeroed_since(group, op.stripes.start);
        // The entries of a stripe that was vacated say so from the next checkpoint on; it is free already (`moves.rs`). Of one
        // that was trimmed blocks may still be on their way to their places.
        let is_vacated = |since| {
            let durable = since <= self.log.flushed() || seeded::is(Bug::VacatedNotFlushed);
            op.moves_from.is_some() && durable
        };
        let unwritten =
            trimmed.is_some_and(|since| is_vacated(since) || seeded::is(Bug::DirectOntoTrimmed));
        (trimmed.is_none() || unwritten)
            && plan.writes.iter().all(|write| {
                let state = self
                    .cx
                    .view()
                    .column(&self.cx.geometry, group, write.column);
                let swift = !self.cx.view().is_out(write.seat) && !self.ios.is_suspect(write.seat);
                let (first, count) = self.run_of(group, write);
                let free = !self.overlay.holds(first, count)
                    && (unwritten || self.pages.are_unwritten(first, count));
                swift
                    && state.source.is_some()
                    && state.target.is_none()
                    && (free || seeded::is(Bug::DirectOntoWritten))
            })
    }

    /// What goes in place is computed: with the turn's last stripe all of them are begun.
    pub(super) fn gather_direct(&mut self, id: OpId, sums: &[u32]) {
        let op = self.ops.get_mut(id).expect("just computed");
        op.phase = Phase::Gathering;
        let direct = op.direct.as_mut().expect("it goes in place");
        direct.sums = sums.to_vec();
        let turn = direct.turn;
        for id in self.direct.computed(turn, id) {
            self.write_direct(id);
        }
    }

    fn write_direct(&mut self, id: OpId) {
        let op = &self.ops[&id];
        let writes = &op.plan.as_ref().expect("it was planned").writes;
        let writes: Vec<Transfer> = writes.clone();
        if writes.iter().any(|write| self.cx.view().is_out(write.seat)) {
            self.log_content(id);
            return;
        }
        let op = self.ops.get_mut(id).expect("just seen");
        op.phase = Phase::Writing;
        op.in_flight = writes.len() as u64;
        for &transfer in &writes {
            self.push_transfer(id, transfer);
        }
    }

    /// A drive has not taken what an operation writes.
    pub(super) fn direct_failed(&mut self, id: OpId) {
        let op = self.ops.get_mut(id).expect("its writes are in flight");
        if let Some(direct) = &mut op.direct {
            direct.failed = true;
        }
    }

    /// All that goes in place has ended, and the pool has decided about drives that refused it.
    pub(super) fn direct_written(&mut self, id: OpId) {
        let op = self.ops.get_mut(id).expect("its writes have ended");
        // Nothing counts of what is in place: the journal takes it, whatever a drive has said.
        op.fault = None;
        let failed = op.direct.as_ref().is_some_and(|direct| direct.failed);
        if failed {
            self.log_content(id);
        } else {
            self.log_direct(id);
        }
    }

    fn end_direct(&mut self, id: OpId) -> Box<Direct> {
        self.direct.end();
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.direct.take().expect("it went in place")
    }

    /// It goes through the journal after all.
    fn log_content(&mut self, id: OpId) {
        let direct = self.end_direct(id);
        if self.ops[&id].moves_from.is_some() {
            self.cancel_move(id);
            return;
        }
        self.log_writes(id, &direct.sums);
    }

    /// What is in place is logged by its checksums.
    fn log_direct(&mut self, id: OpId) {
        let direct = self.end_direct(id);
        let op = &self.ops[&id];
        let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
        let rows = rows_of_unit(self.cx.geometry.code().elements()).expect("it was considered");
        let unit_of = |name: &BlockName| u64::from(name.block) % per_chunk / rows;
        let mut blocks: Vec<(BlockName, u32)> =
            { records::written_blocks(&self.cx, op).into_iter() }
                .map(|(name, _)| name)
                .zip(direct.sums)
                .collect();
        let runs_of = |blocks: &[(BlockName, u32)]| -> Vec<(BlockName, Vec<u32>)> {
            let follows = |(a, _): &(BlockName, u32), (b, _): &(BlockName, u32)| {
                a.column == b.column && a.block + 1 == b.block
            };
            let runs = blocks.chunk_by(follows);
            runs.map(|run| (run[0].0, run.iter().map(|&(_, crc)| crc).collect()))
                .collect()
        };
        if op.moves_from.is_some() {
            blocks.sort_unstable();
            let unit = self.unit_of_move(id, runs_of(&blocks));
            self.log_units(id, vec![unit]);
            return;
        }
        blocks.sort_unstable_by_key(|&(name, _)| (unit_of(&name), name));
        let mut units: Vec<Unit> = Vec::new();
        for same in blocks.chunk_by(|(a, _), (b, _)| unit_of(a) == unit_of(b)) {
            units.push(Unit {
                direct: runs_of(same),
                ..Unit::of(id)
            });
        }
        self.log_units(id, units);
    }

    /// Flushes if recovery would have to look at too much.
    pub(super) fn flush_direct(&mut self) {
        let lanes = self.cx.geometry.lanes();
        if self.direct.ask_flush(self.log.completed(), lanes) {
            self.begin_flush(Waiter::Log);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_describes_as_many_rows_as_a_header_has_room_for() {
        assert_eq!(rows_of_unit(6), Some(164));
        assert_eq!(rows_of_unit(49), Some(14));
        assert_eq!(rows_of_unit(200), None);
        for elements in 1..170 {
            if let Some(rows) = rows_of_unit(elements) {
                let run = Descriptor::bytes_of_direct(usize::try_from(rows).unwrap());
                assert!(elements * run <= UNIT_BYTES_MAX);
            }
        }
    }
}
