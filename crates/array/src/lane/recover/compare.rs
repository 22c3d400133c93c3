//! Recovery looks at what went in place and may not have been flushed.
//!
//! ```text
//!   end of the log ─► Comparing (a round of stripes) ─► … ─► all can be made whole ─► mended in place ─► Covering
//!                                                       └─► one cannot ─► recovery begins anew, and the log ends before it
//! ```
//!
//! The record of such a stripe has checksums and no content (`lane/direct.rs`), and one flush covers both. So the power
//! may leave the record and take some of the stripe:
//! - What the code survives is mended: the stripe was acknowledged, and counts.
//! - If more is missing no flush came after it, and so nothing of this batch or of a later one is durable: the log ends
//!   before it, as before a batch that is torn. In the stripe's place nothing counted, and nothing does.
//!
//! Batches of which a later header says that they are flushed are not looked at, nor those that an earlier recovery has
//! found: what is wrong there is damage, which reads and scrubs find.
//!
//! All is decided and mended before the anchor says so. A drive that goes out or fails a read meanwhile may have had what
//! the mending needs: then everything is compared once more, without it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::{BLOCK_BYTES, Outcome, Seat};
use erasure::ElementSet;

use super::Phase;
use crate::ScratchId;
use crate::action::{Action, BufferId, Compute, IoKind, Origin, Service, Slice};
use crate::format::BlockName;
use crate::lane::op::{Op, Owner};
use crate::lane::overlay::Bytes;
use crate::lane::{Computing, Lane, Purpose};
use crate::seeded::{self, Bug};

/// How often stripes are compared while all drives stay and some stripe cannot be mended. What could not be read is
/// lost to the next comparison, so that it finds another end; but a drive may read and fail by turns.
const COMPARISONS_MAX: u32 = 8;

/// Blocks that a round reads, beyond those of its first stripe: 4 MiB, with 16 lanes 64 MiB.
const ROUND_BLOCKS: usize = 1024;

/// Stripes to be looked at, and what was found.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// The drives that were there when it began.
    seats: Vec<Seat>,
    /// Blocks in place by group and stripe.
    stripes: VecDeque<((u64, u64), BTreeSet<BlockName>)>,
    /// Those of this round.
    round: Vec<((u64, u64), BTreeSet<BlockName>)>,
    /// Where what is read of this round goes, in order: first block and how many.
    reads: Vec<(BlockName, Slice)>,
    failed: BTreeSet<usize>,
    scratch: Option<ScratchId>,
    in_flight: u64,
    /// The first batch with a stripe that cannot be made whole.
    limit: Option<u64>,
    /// Blocks that are not what their records say, by group and stripe.
    torn: BTreeMap<(u64, u64), Vec<BlockName>>,
    /// Stripes that are being mended.
    mending: u64,
    /// Some could not be: what they were to be reconstructed from could not be read.
    unmended: bool,
}

impl Lane {
    /// The log has been read: are the stripes there that it says to be in place?
    pub(super) fn compare_in_place(&mut self) {
        let recovery = self.recovery();
        recovery.comparisons += 1;
        let flushed = recovery.flushed;
        let seats = self.cx.live_seats();
        let mut stripes: BTreeMap<(u64, u64), BTreeSet<BlockName>> = BTreeMap::new();
        if !seeded::is(Bug::DirectUncompared) {
            let mut names = self.overlay.in_place(|sequence| sequence > flushed);
            names.retain(|&name| !self.cx.geometry.is_of_map(name));
            for name in names {
                let stripe = self.cx.geometry.stripe_of(name);
                stripes
                    .entry((name.group, stripe))
                    .or_default()
                    .insert(name);
            }
        }
        self.recovery().phase = Phase::Comparing(Comparison {
            stripes: stripes.into_iter().collect(),
            seats,
            ..Comparison::default()
        });
        self.next_round();
    }

    fn comparison(&mut self) -> &mut Comparison {
        match &mut self.recovery().phase {
            Phase::Comparing(comparison) => comparison,
            other => unreachable!("nothing is compared in {other:?}"),
        }
    }

    fn next_round(&mut self) {
        loop {
            let comparison = self.comparison();
            let mut blocks = 0;
            comparison.round.clear();
            while let Some((_, next)) = comparison.stripes.front()
                && (blocks == 0 || blocks + next.len() <= ROUND_BLOCKS)
            {
                blocks += next.len();
                let next = comparison.stripes.pop_front();
                comparison.round.extend(next);
            }
            if comparison.round.is_empty() {
                self.compared();
                return;
            }
            if self.begin_round() {
                return;
            }
            // Not one of its drives is there: nothing can be said.
        }
    }

    /// Reads the blocks of a round; false if none can be read.
    fn begin_round(&mut self) -> bool {
        let scratch = self.cx.fresh_scratch();
        let round = &self.comparison().round;
        let names: Vec<BlockName> = round.iter().flat_map(|(_, names)| names).copied().collect();
        let (mut reads, mut places) = (Vec::new(), Vec::new());
        let mut offset = 0;
        let follows = |a: &BlockName, b: &BlockName| {
            (a.group, a.column, a.block + 1) == (b.group, b.column, b.block)
        };
        for run in names.chunk_by(follows) {
            let column = self
                .cx
                .view()
                .column(&self.cx.geometry, run[0].group, run[0].column);
            let Some(cell) = column
                .source
                .filter(|cell| !self.cx.view().is_out(cell.seat))
            else {
                continue;
            };
            let slice = Slice {
                buffer: BufferId::Scratch(scratch),
                offset,
                length: run.len() as u64 * BLOCK_BYTES,
            };
            offset += slice.length;
            reads.push((run[0], slice));
            places.push((
                cell.seat,
                self.cx.geometry.block_offset(cell, run[0].block.into()),
            ));
        }
        let begun = !reads.is_empty();
        let comparison = self.comparison();
        comparison.in_flight = reads.len() as u64;
        comparison.reads.clone_from(&reads);
        comparison.failed.clear();
        comparison.scratch = begun.then_some(scratch);
        if begun {
            self.cx.actions.push_back(Action::Allocate(scratch, offset));
        }
        for (index, ((_, slice), (seat, offset))) in reads.into_iter().zip(places).enumerate() {
            let purpose = Purpose::Recovery { seat, index };
            self.ios.submit_slice(
                &mut self.cx,
                purpose,
                Service::prompt(Origin::Rebuild),
                IoKind::Read,
                (seat, offset),
                slice,
            );
        }
        begun
    }

    /// A read of a round has ended.
    pub(super) fn compared_read(&mut self, index: usize, outcome: Outcome) {
        let comparison = self.comparison();
        if outcome.is_err() {
            comparison.failed.insert(index);
        }
        comparison.in_flight -= 1;
        if comparison.in_flight == 0 {
            let sums = comparison.reads.iter().map(|&(_, slice)| slice).collect();
            self.cx.push_compute(
                Computing::Recovery,
                Compute {
                    sums,
                    ..Compute::default()
                },
            );
        }
    }

    /// What a round has read has these checksums.
    pub(super) fn round_summed(&mut self, sums: &[u32]) {
        let pool = self.cx.geometry.store().expect("a journal").pool;
        let comparison = self.comparison();
        let scratch = comparison.scratch.take();
        let round = std::mem::take(&mut comparison.round);
        let reads = std::mem::take(&mut comparison.reads);
        let failed = std::mem::take(&mut comparison.failed);
        scratch
            .into_iter()
            .for_each(|scratch| self.ios.release(&mut self.cx, scratch));
        let mut sums = sums.iter();
        let (mut right, mut wrong) = (BTreeSet::new(), BTreeSet::new());
        let mut unread = BTreeSet::new();
        for (index, (first, slice)) in reads.into_iter().enumerate() {
            for (block, &sum) in (first.block..).zip(sums.by_ref().take(blocks_of(slice))) {
                let name = BlockName { block, ..first };
                let logged = self.overlay.get(name).expect("it is in place");
                if failed.contains(&index) {
                    unread.insert(name);
                    continue;
                }
                match logged.entry.matches(pool, name, sum) {
                    true => right.insert(name),
                    false => wrong.insert(name),
                };
            }
        }
        for (stripe, names) in round {
            let mut torn: Vec<BlockName> = names.intersection(&wrong).copied().collect();
            for &name in &torn {
                if !self.can_be_made_whole(name, &names, &right) {
                    let logged = self.overlay.get(name).expect("it is in place");
                    let sequence = logged.sequence;
                    let limit = &mut self.comparison().limit;
                    *limit = Some(limit.map_or(sequence, |limit| limit.min(sequence)));
                }
            }
            // What lies where a read has failed may be torn, too. That is not known, so it does not end the log.
            let mendable = |name: &&BlockName| self.can_be_made_whole(**name, &names, &right);
            torn.extend(names.intersection(&unread).filter(mendable));
            if !torn.is_empty() {
                self.comparison().torn.insert(stripe, torn);
            }
        }
        self.next_round();
    }

    /// Whether the other blocks of a block's row tell it. Of those that are `compared` these count that are `right`.
    fn can_be_made_whole(
        &self,
        name: BlockName,
        compared: &BTreeSet<BlockName>,
        right: &BTreeSet<BlockName>,
    ) -> bool {
        let code = self.cx.geometry.code();
        let mut lost = ElementSet::new(code.elements());
        for (slot, other) in self.cx.geometry.row_of(name) {
            let column = self
                .cx
                .view()
                .column(&self.cx.geometry, other.group, other.column);
            let there = match self.overlay.get(other).map(|logged| logged.bytes) {
                Some(Bytes::Memory(_)) => true,
                Some(Bytes::Nowhere) => false,
                Some(Bytes::InPlace) if compared.contains(&other) => right.contains(&other),
                Some(Bytes::InPlace) | None => column.readable(),
            };
            if !there {
                lost.insert(slot);
            }
        }
        code.is_recoverable(&lost)
    }

    /// All stripes have been looked at.
    fn compared(&mut self) {
        match self.comparison().limit {
            Some(limit) if !seeded::is(Bug::DirectTornStays) => self.recover_up_to(limit),
            _ => self.mend_torn(),
        }
    }

    /// Reads the log anew, and no further than to before this batch.
    fn recover_up_to(&mut self, limit: u64) {
        self.overlay.clear();
        self.direct.flushed(u64::MAX);
        let recovery = self.recovery();
        let anchor = recovery.anchor;
        recovery.limit = Some(limit);
        recovery.expected = anchor.first;
        recovery.batches = 0;
        recovery.flushed = anchor.inherited;
        self.log.begin_at(&anchor);
        self.read_headers(anchor.position, super::Seek::Next);
    }

    /// Mends what was found torn.
    fn mend_torn(&mut self) {
        // One more than there are, until all have begun.
        self.comparison().mending = 1;
        for ((group, stripe), names) in std::mem::take(&mut self.comparison().torn) {
            if seeded::is(Bug::DirectTornUnmended) {
                continue;
            }
            let per_chunk = self.cx.geometry.chunk_bytes() / BLOCK_BYTES;
            let mut blocks = Vec::new();
            let mut entries = BTreeMap::new();
            for slot in 0..self.cx.geometry.code().elements() {
                let (column, chunk) = self.cx.geometry.place(group, stripe, slot);
                let first = chunk * per_chunk;
                let here = names.iter().filter(|name| {
                    let block = u64::from(name.block);
                    name.column == column && (first..first + per_chunk).contains(&block)
                });
                for &name in here {
                    let at = (slot, (u64::from(name.block) - first) * BLOCK_BYTES);
                    let entry = self.overlay.get(name).map(|logged| logged.entry);
                    entries.extend(entry.map(|entry| (at, entry)));
                    blocks.push(at);
                }
            }
            let mut op = Op::repair(Owner::Recovery, group, stripe, blocks);
            op.repair.entries = entries;
            self.comparison().mending += 1;
            self.start(op);
        }
        self.torn_mended(true);
    }

    /// A torn stripe is whole again, or not all of it.
    pub(in crate::lane) fn torn_mended(&mut self, whole: bool) {
        let live = self.cx.live_seats();
        let again = self.recovery().comparisons < COMPARISONS_MAX;
        let comparison = self.comparison();
        comparison.unmended |= !whole;
        comparison.mending -= 1;
        if comparison.mending > 0 {
            return;
        }
        let all = comparison.seats == live && !(comparison.unmended && again);
        if all {
            self.cover_log();
        } else {
            self.compare_in_place();
        }
    }
}

/// Blocks of a slice.
fn blocks_of(slice: Slice) -> usize {
    usize::try_from(slice.length / BLOCK_BYTES).expect("a round is short")
}
