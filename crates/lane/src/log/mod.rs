//! The log: units gather into batches, and batches are written to the ring.
//!
//! ```text
//!   units ─► waiting ─► Laying (copy, parity) ─► (Heading) ─► Writing ─► ended, in order of sequence ─► applied
//!                │                                                        └─ refused ─► a gap, written again
//!                └─ no room: a checkpoint ends ─► … or the waiting units are refused
//! ```
//!
//! Heading is a step of its own if checksums of parity must be computed first. It is not needed for P, whose checksums
//! follow from those of the data, nor for copies, whose checksums are those of the data.
//!
//! [`Log`] decides which batch begins (`begin.rs`), writes it (`batch.rs`) and finds how it has ended (`ended.rs`). It
//! does not interpret the contents of batches: [`Applied`] does. It identifies operations by the units for which they
//! wait (`unit.rs`).
//!
//! Commits and streams wait in separate lots (`waiting.rs`): a batch holds units of one of them. Ring and memory are
//! shared among volumes (`lane/shares.rs`).
//!
//! Invariants:
//! - Batches end in order: recovery stops at the first batch that it does not find, so nothing is acknowledged before
//!   all batches before its own are complete.
//! - Nothing is logged behind a batch that recovery would not find (`gaps.rs`), before the batch is found or a
//!   checkpoint has made it unnecessary.
//! - A batch never overwrites a batch in the ring that still counts.

mod apply;
mod batch;
mod begin;
mod buffer;
pub(super) mod derived;
mod ended;
mod gaps;
mod relocate;
mod sequences;
mod shape;
#[cfg(test)]
mod tests;
mod unit;
mod waiting;

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault, Instant};
use format::{Anchor, Generation, Sequence};

pub(super) use self::apply::Applied;
use self::batch::Batch;
pub(super) use self::batch::ColumnCodes;
pub(super) use self::begin::{Begun, Inputs};
pub(super) use self::buffer::BatchBuffer;
use self::sequences::Sequences;
pub(super) use self::shape::HEADER_BLOCKS_MAX;
pub(super) use self::unit::{Unit, Zeroed};
use self::waiting::{Lot, Waiting};
use super::context::Context;
use super::ids::OpId;
use super::op::{Op, Task};
use super::overlay::Overlay;
use super::ring::Ring;

/// The largest number of descriptors of a batch: their header has three blocks, or four with the checksums of parity.
const DESCRIPTORS_MAX: usize = 480;
/// Bytes of batches in memory, over all lanes. At this number nothing more is logged before a checkpoint has ended; a
/// checkpoint begins at half of it. On classic levels a stream of overwrites is in one lane at a time, and must not run
/// out of memory while a checkpoint of that lane goes through its flushes. `raid6` on drives of 100 MB/s and 500
/// operations a second overwrites 65 MiB/s with 64 MiB, 81 with 128, 100 with 256, and 107 with 1024.
const MEMORY_MAX: u64 = 256 << 20;

/// Bytes of batches in memory at which this lane logs nothing more.
pub(super) fn batch_memory(cx: &Context) -> u64 {
    MEMORY_MAX / u64::from(cx.geometry.lanes())
}

/// The log of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    waiting: Waiting,
    /// When the next batch should begin: as soon as all inputs up to that time are known.
    due: Option<Instant>,
    batches: BTreeMap<Sequence, Batch>,
    /// Batches that have ended and that recovery would not find.
    gaps: BTreeMap<Sequence, Batch>,
    /// Complete batches that no flush has covered, where they may have to be relocated.
    unflushed: BTreeMap<Sequence, Batch>,
    /// The gaps have been written again for the checkpoint that something waits for.
    gaps_tried: bool,
    ring: Ring,
    incarnation: Generation,
    sequences: Sequences,
    /// Number of the newest anchor.
    anchor: u64,
    /// The last batch that could not be written to as many drives as required: before a checkpoint has made it
    /// unnecessary, only blocks are logged again that this checkpoint preserves.
    blocked: Option<Sequence>,
    /// The waiting units find no room in the ring or in memory.
    out_of_space: bool,
    /// Why checkpoints make no room: drives that stay refuse the blocks that are to be put in place, or there is no
    /// drive. Writes end with this fault while the ring is full.
    tail_fault: Option<Fault>,
    codes: ColumnCodes,
}

/// Where the log goes on after recovery.
#[derive(Clone, Debug)]
pub(super) struct Recovered {
    /// The batches in the ring.
    pub(super) ring: Ring,
    /// The incarnation that continues the log.
    pub(super) incarnation: Generation,
    /// The oldest batch that counts.
    pub(super) first: Sequence,
    /// The first batch to be written.
    pub(super) next: Sequence,
}

/// Waiting units.
impl Log {
    /// An operation logs these units. Units that are logged again go before all that wait: they make room for these.
    pub(super) fn push(&mut self, now: Instant, op: &Op, mut units: Vec<Unit>) {
        let again = matches!(op.task, Task::Relog(_));
        for unit in &mut units {
            unit.begun = op.begun;
            unit.again = again;
        }
        if again {
            self.waiting.push_first(units);
            return;
        }
        let (lot, volume) = (Lot::of(op), op.service.volume);
        for unit in units {
            self.waiting.push(lot, volume, unit, now);
        }
    }

    /// Refuses all waiting units. Returns their operations, once for each unit.
    pub(super) fn refuse_all(&mut self) -> Vec<OpId> {
        self.refuse(|_| true)
    }

    /// The same for operations that have begun at this time or before.
    pub(super) fn refuse_overdue(&mut self, since: Instant) -> Vec<OpId> {
        self.refuse(|unit| unit.begun <= since)
    }

    /// The same for units that log again: there is no room, and the checkpoint that would make some waits for them.
    pub(super) fn refuse_relogs(&mut self) -> Vec<OpId> {
        self.refuse(|unit| unit.again)
    }

    /// The same for these operations.
    pub(super) fn refuse_ops(&mut self, ops: &BTreeSet<OpId>) -> Vec<OpId> {
        self.refuse(|unit| ops.contains(&unit.op))
    }

    fn refuse(&mut self, such: impl Fn(&Unit) -> bool) -> Vec<OpId> {
        let refused = self.waiting.take_if(such).into_iter();
        refused.map(|unit| unit.op).collect()
    }

    /// True if units wait to be logged.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.batches.is_empty() && !self.writes_gaps()
    }
}

/// Room, and the reasons why there is none.
impl Log {
    /// True if a checkpoint should make room, or make a batch unnecessary.
    pub(super) fn wants_checkpoint(&self, cx: &Context, overlay: &Overlay) -> bool {
        self.is_blocked() || self.wants_room(cx, overlay)
    }

    /// True if a checkpoint should make room.
    pub(super) fn wants_room(&self, cx: &Context, overlay: &Overlay) -> bool {
        self.ring.wants_checkpoint() || overlay.bytes() >= batch_memory(cx) / 2
    }

    /// True if there is much more room after `count` blocks, of batches from `oldest` to `covers`, have been logged again:
    /// these batches hold little else.
    pub(super) fn gains_by_relog(
        &self,
        cx: &Context,
        overlay: &Overlay,
        count: usize,
        (oldest, covers): (Sequence, Sequence),
    ) -> bool {
        let live = u16::try_from(cx.journal_seats().len()).expect("seats are 16 bits");
        let parity = cx.geometry.code().tolerance().min(live.saturating_sub(1));
        let columns = shape::data_columns_max(live, parity).max(1);
        let rows = count.div_ceil(usize::from(columns)) as u64;
        let memory = count as u64 * BLOCK_BYTES;
        self.ring.used_by(oldest..=covers) >= rows + self.ring.batch_blocks_max()
            || overlay.bytes() >= memory + batch_memory(cx) / 4
    }

    /// True if nothing more is logged before a checkpoint has ended.
    pub(super) const fn needs_checkpoint(&self) -> bool {
        self.is_blocked() || self.out_of_space
    }

    /// True if a batch could not be written to as many drives as required, and no checkpoint has made it unnecessary
    /// yet.
    pub(crate) const fn is_blocked(&self) -> bool {
        self.blocked.is_some()
    }

    /// The last such batch.
    pub(super) const fn blocked(&self) -> Option<Sequence> {
        self.blocked
    }

    /// True if waiting units find no room.
    pub(super) const fn is_out_of_space(&self) -> bool {
        self.out_of_space
    }

    /// True if units still wait for room. Preserved blocks are released to make room for clients' writes, but not to
    /// make room for themselves.
    pub(super) fn still_waits_for_room(&mut self) -> bool {
        self.out_of_space = self.waits();
        self.out_of_space
    }

    /// The fault because of which checkpoints make no room, if there is one.
    pub(super) const fn tail_fault(&self) -> Option<Fault> {
        self.tail_fault
    }

    /// A checkpoint has put in place what it could. `refused`: the fault of drives that stay and have refused some of
    /// it.
    pub(super) const fn installs_ended(&mut self, refused: Option<Fault>) {
        self.tail_fault = refused;
    }

    /// A checkpoint has ended; `first` is the oldest batch that still counts.
    pub(super) fn checkpoint_ended(&mut self, first: Sequence) {
        self.gaps_tried = false;
        self.ring.release_before(first);
        self.blocked = self.blocked.filter(|&last| last >= first);
    }

    /// Checks what holds between events.
    ///
    /// # Panics
    /// When an invariant does not hold.
    pub(super) fn check(&self) {
        self.sequences.check();
        self.ring.check();
        let placed = |sequence| self.ring.position_of(sequence);
        let kept = self.gaps.iter().chain(&self.unflushed);
        for (&sequence, batch) in self.batches.iter().chain(kept) {
            assert_eq!(batch.header.sequence, sequence);
            assert_eq!(
                batch.position,
                placed(sequence),
                "batch {sequence} has its place in the ring"
            );
        }
    }

    /// The lane's ring.
    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }
}

/// The state of the log in sequence numbers.
impl Log {
    /// The last batch that is complete, with no gap before it.
    pub(super) const fn completed(&self) -> Sequence {
        self.sequences.completed()
    }

    /// The last batch that a flush has covered.
    pub(super) const fn flushed(&self) -> Sequence {
        self.sequences.flushed()
    }

    /// The batch that begins next.
    pub(super) const fn next_sequence(&self) -> Sequence {
        self.sequences.next()
    }

    /// A flush has covered batches up to this one, except those that have become gaps since it began. Returns batches
    /// whose buffers may be released.
    pub(super) fn flush_covered(&mut self, sequence: Sequence) -> Vec<Sequence> {
        let sequence = sequence.min(self.completed());
        self.sequences.flush_covered(sequence);
        let covered = self.unflushed.extract_if(..=sequence, |_, _| true);
        covered.map(|(sequence, _)| sequence).collect()
    }

    /// Number of the newest anchor.
    pub(super) const fn anchor(&self) -> u64 {
        self.anchor
    }

    /// The next anchor: the log begins with batch `first`.
    pub(super) fn next_anchor(&mut self, first: Sequence) -> Anchor {
        self.anchor += 1;
        Anchor {
            incarnation: self.incarnation,
            first,
            position: self.ring.position_of(first),
            inherited: self.sequences.inherited(),
            number: self.anchor,
        }
    }

    /// Recovery has found the newest anchor.
    pub(super) const fn anchored(&mut self, number: u64) {
        self.anchor = number;
    }

    /// Recovery has read all of the log.
    pub(super) fn go_on(&mut self, recovered: Recovered) {
        self.ring = recovered.ring;
        self.incarnation = recovered.incarnation;
        self.sequences.go_on_at(recovered.next);
    }
}
