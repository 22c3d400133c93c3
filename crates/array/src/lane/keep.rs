//! Blocks that are logged and have no place: they stay in the journal until they have one. So does the knowledge that a
//! block has changed, while all copies of the page that should say so are away.
//!
//! A stripe that has lost more columns than its code survives cannot tell what its missing blocks are; nor can one in
//! which parity is unknown, because its drive was away when it changed and has come back before the others. If such a block is logged, the journal alone has it, and were it let go, the drive that should hold it
//! could come back and the block would still be lost. So it is kept: it stays in the overlay and holds the
//! ring's tail. It is logged anew, among the drives that are there, after one has gone out (its batch may
//! be there once less) and when the ring wants room. Only if there is no room even for that is it let go.
//!
//! What is kept is little: what was logged when the drives went. A stripe that cannot be read is not
//! written to; nor is one that what is kept makes whole, where that would change a block of a column that is
//! absent: its drive may come back and be taken as it is.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use block::BLOCK_BYTES;

use super::Lane;
use super::ids::OpId;
use super::op::{Op, Owner, Task};
use super::overlay::{Bytes, Logged};
use super::pages;
use crate::action::IoKind;
use crate::format::{BlockName, Entry, PageName};
use crate::plan::{Kind, Plan, Transfer};

/// What the lane keeps.
#[derive(Clone, Debug, Default)]
pub(super) struct Keeping {
    /// As of the last checkpoint that has put blocks in place.
    names: BTreeSet<BlockName>,
    /// Operations that log some of it again.
    relogs: u64,
    /// Batches before this one may be on a drive that has gone out since.
    thinned: u64,
    /// Stripes of which something is to be logged again, and somebody had them locked.
    locked: BTreeSet<(u64, u64)>,
    /// There was no room: the next checkpoint keeps nothing.
    gives_up: bool,
}

impl Keeping {
    /// Whether something is being logged again.
    pub(super) const fn relogs(&self) -> bool {
        self.relogs > 0
    }
}

impl Lane {
    /// Blocks that only the journal and memory have, because their stripes have lost more columns than
    /// the code survives.
    #[must_use]
    pub fn kept_blocks(&self) -> usize {
        self.keeping.names.len()
    }

    /// What was logged before is there once less.
    pub(super) const fn batches_thinned(&mut self) {
        self.keeping.thinned = self.log.next_sequence;
    }

    /// A column is there again: what was kept may have a place now.
    pub(super) fn place_kept(&mut self) {
        if !self.keeping.names.is_empty() {
            self.want_checkpoint();
        }
    }

    /// Of blocks that a checkpoint would let go those that have no place. None of `forgotten` groups, and
    /// no more than can be logged again if the ring wants `room`.
    pub(super) fn keep(
        &mut self,
        blocks: &[(BlockName, Logged)],
        forgotten: &BTreeSet<u64>,
        room: bool,
    ) -> BTreeSet<BlockName> {
        let mut names = BTreeSet::new();
        if !self.log.blocked && !self.keeping.gives_up && !self.cx.view().is_whole() {
            let kept = blocks.iter().filter(|&&(name, logged)| {
                let now = self.overlay.get(name);
                now.is_some_and(|now| now.sequence == logged.sequence)
                    && !forgotten.contains(&name.group)
                    && self.is_in_the_journal_alone(name, logged)
            });
            let kept = kept.map(|&(name, _)| name);
            let most = if room {
                self.relogs_at_most()
            } else {
                usize::MAX
            };
            names.extend(kept.take(most));
        }
        self.keeping.names.clone_from(&names);
        names
    }

    /// Whether the journal alone has a block, or alone knows that it has changed.
    fn is_in_the_journal_alone(&self, name: BlockName, logged: Logged) -> bool {
        match logged.bytes {
            Bytes::Memory(_) => {
                let column = self
                    .cx
                    .view()
                    .column(&self.cx.geometry, name.group, name.column);
                !column.readable() && !self.can_be_reconstructed(name)
            }
            // All copies of its page are away, and say something else when they are back.
            Bytes::Nowhere => pages::is_away(&self.cx, name.page()),
            Bytes::InPlace => false,
        }
    }

    /// Whether the other blocks of a stripe tell a block of a column that cannot be read. A drive that comes back can
    /// bring a column of which a block is unknown: parity that a write did not reach because its drive was away, and
    /// that cannot be computed before other columns are there.
    fn can_be_reconstructed(&self, name: BlockName) -> bool {
        let code = self.cx.geometry.code();
        let mut lost = erasure::ElementSet::new(code.elements());
        for (slot, other) in self.cx.geometry.row_of(name) {
            let column = self
                .cx
                .view()
                .column(&self.cx.geometry, other.group, other.column);
            let known = match self.overlay.get(other) {
                Some(logged) => !matches!(logged.bytes, Bytes::Nowhere),
                // A page that is not in memory says nothing: the next checkpoint reads it first.
                None => { self.pages.entry(other) }.is_some_and(|entry| entry != Entry::UNKNOWN),
            };
            if !column.readable() || !known {
                lost.insert(slot);
            }
        }
        code.is_recoverable(&lost)
    }

    /// The pages that say whether blocks of columns that cannot be read can be reconstructed without what is logged.
    pub(super) fn pages_to_keep_by(&self, blocks: &[(BlockName, Logged)]) -> BTreeSet<PageName> {
        if self.cx.view().is_whole() {
            return BTreeSet::new();
        }
        let absent = |&&(name, logged): &&(BlockName, Logged)| {
            logged.bytes.memory().is_some()
                && !self
                    .cx
                    .view()
                    .column(&self.cx.geometry, name.group, name.column)
                    .readable()
        };
        { blocks.iter().filter(absent) }
            .flat_map(|&(name, _)| self.cx.geometry.row_of(name))
            .map(|(_, other)| other.page())
            .collect()
    }

    /// The same of more blocks, beside those that are kept already.
    pub(super) fn keep_more(
        &mut self,
        blocks: &[(BlockName, Logged)],
        forgotten: &BTreeSet<u64>,
        room: bool,
    ) -> BTreeSet<BlockName> {
        let before = std::mem::take(&mut self.keeping.names);
        let more = self.keep(blocks, forgotten, room);
        self.keeping.names.extend(before);
        more
    }

    /// Blocks that may be logged again to make room: they take no more than a part of the ring and the
    /// memory.
    fn relogs_at_most(&self) -> usize {
        let ring = self.log.ring.batch_blocks_max();
        let memory = self.batch_memory() / BLOCK_BYTES / 8;
        usize::try_from(ring.min(memory)).expect("a ring fits into memory")
    }

    /// Logs again what is kept and must be: everything if the ring wants `room`. A stripe that somebody
    /// has locked is left to the checkpoint that begins when it is free, for its holder may wait for this one.
    pub(super) fn relog_kept(&mut self, room: bool) {
        let mut stripes: BTreeMap<(u64, u64), Vec<BlockName>> = BTreeMap::new();
        for &name in &self.keeping.names {
            let logged = self.overlay.get(name).expect("it is kept");
            if room || logged.sequence < self.keeping.thinned {
                let stripe = self.cx.geometry.stripe_of(name);
                stripes.entry((name.group, stripe)).or_default().push(name);
            }
        }
        self.keeping.locked.clear();
        for ((group, stripe), names) in stripes {
            if self.locks.is_free(group, stripe) {
                self.keeping.relogs += 1;
                let task = Task::Relog(names);
                self.start(Op::new(Owner::Lane, group, stripe..stripe + 1, task));
            } else {
                self.keeping.locked.insert((group, stripe));
            }
        }
    }

    /// An operation has let go of stripes: what could not be logged again because of it can be now.
    pub(super) fn unlocked(&mut self, group: u64, stripes: Range<u64>) {
        let locked = &mut self.keeping.locked;
        if locked.is_empty() {
            return;
        }
        let waiting = locked.extract_if((group, stripes.start)..(group, stripes.end), |_| true);
        if waiting.count() > 0 {
            self.want_checkpoint();
        }
    }

    /// Logs blocks again from the memory in which they are.
    pub(super) fn relog(&mut self, id: OpId, names: &[BlockName]) {
        let group = self.ops[&id].group;
        let mut plan = Plan::new(Kind::Relog);
        let mut pinned = BTreeSet::new();
        for &name in names {
            let logged = self.overlay.get(name);
            let Some((slice, sequence)) =
                logged.and_then(|logged| Some((logged.bytes.memory()?, logged.sequence)))
            else {
                continue;
            };
            pinned.insert(sequence);
            let home = self.cx.geometry.layout().cell(group, name.column);
            plan.writes.push(Transfer {
                seat: home.seat,
                column: name.column,
                kind: IoKind::Write,
                offset: self.cx.geometry.block_offset(home, name.block.into()),
                length: BLOCK_BYTES,
                slice: Some(slice),
            });
        }
        for &sequence in &pinned {
            self.overlay.pin(sequence);
        }
        let op = self.ops.get_mut(id).expect("the operation exists");
        op.pinned = pinned.into_iter().collect();
        op.plan = Some(plan);
        self.compute(id);
    }

    /// Of the blocks that an operation logs again those that nobody has, with their plain CRC-32C where it is known.
    pub(super) fn relogged_absent(&self, op: &Op) -> Vec<(BlockName, Option<u32>)> {
        let Task::Relog(names) = &op.task else {
            return Vec::new();
        };
        let pool = self.cx.geometry.store().expect("a log needs a store").pool;
        let absent = names.iter().filter_map(|&name| {
            let logged = self.overlay.get(name)?;
            let crc = (logged.entry != Entry::UNKNOWN).then(|| logged.entry.plain_crc(pool, name));
            (logged.bytes == Bytes::Nowhere).then_some((name, crc))
        });
        absent.collect()
    }

    /// One of the operations that log again has ended.
    pub(super) fn relogged(&mut self) {
        self.keeping.relogs -= 1;
        self.checkpoint_relogged();
    }

    /// A checkpoint has ended that wanted `room` and could not move the tail as far as it should have.
    pub(super) fn kept_in_the_way(&mut self, room: bool) {
        // Where no drive is there nothing is logged, whatever is let go.
        let nowhere = self.cx.live_seats().is_empty();
        let crowded = self.log.crowded && !nowhere;
        self.keeping.gives_up = room && crowded && !self.keeping.names.is_empty();
    }

    /// The next checkpoint keeps nothing.
    pub(super) const fn let_kept_go(&mut self) {
        self.keeping.gives_up = true;
    }
}
