//! Recovery compares stripes that were written in place and may not have been flushed.
//!
//! ```text
//!   end of the log ─► Comparing (a round of stripes) ─► … ─► all can be made whole ─► repaired in place ─► Covering
//!                                                       └─► one cannot ─► the log is read again, and ends before it
//! ```
//!
//! The record of such a stripe has checksums and no content (`lane/direct.rs`), and one flush covers both. So a power
//! cut may leave the record and take part of the stripe:
//! - If the code survives this, the stripe is repaired: it was acknowledged, and counts.
//! - If more is missing, no flush came after the stripe, and so neither this batch nor a later one is durable: the log
//!   ends before this batch, as before one that is torn. Nothing counted in the stripe's place before, and nothing does
//!   now.
//!
//! Batches that are flushed by a later header are not compared, nor those that an earlier recovery has found: errors
//! there are damage, which reads and scrubs find.
//!
//! All is decided and repaired before the anchor is written. A drive that goes out or fails a read meanwhile may have
//! had blocks that the repair needs, and so may a block that turns out to be damaged: then everything is compared once
//! more, without these blocks.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use block::{BLOCK_BYTES, Outcome, Seat};
use erasure::ElementSet;
use format::seeded::{self, SeededFault};
use format::{BlockName, Entry, Form, GroupId, Sequence, StripeId};
use plan::ScratchId;
use plan::action::{Action, BufferId, Compute, Slice};

use super::{Lent, Next, Phase, Recovery};
use crate::context::Context;
use crate::op::{Op, Owner, Repair};
use crate::overlay::Bytes;
use crate::purpose::Computing;

/// How often stripes are compared while no drive goes out and some stripe cannot be repaired. Blocks that could not be
/// read count as lost in the next comparison, which so finds another end of the log. But a drive may read and fail
/// alternately.
const COMPARISONS_MAX: u32 = 8;

/// Blocks that a round reads, beyond those of its first stripe: 4 MiB, with 16 lanes 64 MiB.
const ROUND_BLOCKS: usize = 1024;

/// Stripes to be compared, and the results.
#[derive(Clone, Debug, Default)]
pub(super) struct Comparison {
    /// The drives that were there when it began.
    seats: Vec<Seat>,
    /// Blocks in place by group and stripe.
    stripes: VecDeque<((GroupId, StripeId), BTreeSet<BlockName>)>,
    /// The stripes of this round.
    round: Vec<((GroupId, StripeId), BTreeSet<BlockName>)>,
    /// The reads of this round, in order: first block, and memory.
    reads: Vec<(BlockName, Slice)>,
    failed: BTreeSet<usize>,
    scratch: Option<ScratchId>,
    in_flight: u64,
    /// The first batch with a stripe that cannot be made whole.
    limit: Option<Sequence>,
    /// Blocks that do not match their records, by group and stripe.
    torn: BTreeMap<(GroupId, StripeId), Vec<BlockName>>,
    /// Stripes that are being repaired.
    repairing: u64,
    /// Some stripes could not be repaired: blocks that the repair needs could not be read.
    unrepaired: bool,
}

impl Recovery {
    /// The log has been read: compares the stripes that are in place by its records.
    pub(super) fn compare_in_place(&mut self, lent: &mut Lent<'_>) -> Next {
        self.comparisons += 1;
        self.failed.clear();
        let seats = lent.cx.live_seats();
        let mut stripes: BTreeMap<(GroupId, StripeId), BTreeSet<BlockName>> = BTreeMap::new();
        if !seeded::is(SeededFault::DirectUncompared) {
            let mut names = lent.overlay.in_place(|sequence| sequence > self.flushed);
            names.retain(|&name| {
                let logged = lent.overlay.get(name).expect("it is in place");
                // What a conversion has given up has no content to compare.
                !lent.cx.geometry.is_of_map(name) && logged.entry != Entry::UNWRITTEN
            });
            for name in names {
                let stripe = lent.cx.geometry.stripe_of(name);
                stripes
                    .entry((name.group, stripe))
                    .or_default()
                    .insert(name);
            }
        }
        self.phase = Phase::Comparing(Comparison {
            stripes: stripes.into_iter().collect(),
            seats,
            ..Comparison::default()
        });
        self.next_round(lent)
    }

    fn comparison(&mut self) -> &mut Comparison {
        match &mut self.phase {
            Phase::Comparing(comparison) => comparison,
            other => unreachable!("nothing is compared in {other:?}"),
        }
    }

    /// Reads the next stripes, or decides when all have been compared.
    fn next_round(&mut self, lent: &mut Lent<'_>) -> Next {
        let comparison = self.comparison();
        while comparison.take_round() {
            if comparison.begin_round(lent) {
                return Next::Wait;
            }
            // None of its drives is there: nothing can be compared.
        }
        if let Some(fault) = self.undecided(lent) {
            return self.end(lent, Err(fault));
        }
        let comparison = self.comparison();
        match comparison.limit {
            Some(limit) if !seeded::is(SeededFault::DirectTornStays) => {
                // The log is read again, and ends before this batch.
                self.limit = Some(limit);
                lent.overlay.clear();
                self.go_to_anchor();
                Next::ReadAgain
            }
            _ => Next::Repair(comparison.repairs(lent)),
        }
    }

    /// The blocks that a round has read have these checksums.
    pub(super) fn round_summed(&mut self, lent: &mut Lent<'_>, sums: &[u32]) -> Next {
        let Phase::Comparing(comparison) = &mut self.phase else {
            unreachable!("nothing is compared in {:?}", self.phase);
        };
        comparison.summed(lent, sums, &self.bad);
        self.next_round(lent)
    }

    /// The repair of a torn stripe has ended, and the stripe is `whole` or not: then these blocks were `bad`. Also called
    /// once when all repairs have begun.
    pub(crate) fn repaired(
        &mut self,
        lent: &mut Lent<'_>,
        whole: bool,
        bad: Vec<BlockName>,
    ) -> Next {
        self.bad.extend(bad);
        let live = lent.cx.live_seats();
        let again = self.comparisons < COMPARISONS_MAX;
        let comparison = self.comparison();
        comparison.unrepaired |= !whole;
        comparison.repairing -= 1;
        if comparison.repairing > 0 {
            return Next::Wait;
        }
        let all = comparison.seats == live && !(comparison.unrepaired && again);
        if all {
            self.cover()
        } else {
            self.compare_in_place(lent)
        }
    }
}

impl Comparison {
    /// Takes the stripes of the next round; false if all have been compared.
    fn take_round(&mut self) -> bool {
        let mut blocks = 0;
        self.round.clear();
        while let Some((_, next)) = self.stripes.front()
            && (blocks == 0 || blocks + next.len() <= ROUND_BLOCKS)
        {
            blocks += next.len();
            let next = self.stripes.pop_front();
            self.round.extend(next);
        }
        !self.round.is_empty()
    }

    /// Reads the blocks of a round; false if none can be read.
    fn begin_round(&mut self, lent: &mut Lent<'_>) -> bool {
        let scratch = lent.cx.fresh_scratch();
        let names: Vec<BlockName> = { self.round.iter() }
            .flat_map(|(_, names)| names)
            .copied()
            .collect();
        let (mut reads, mut places) = (Vec::new(), Vec::new());
        let mut offset = 0;
        let follows = |a: &BlockName, b: &BlockName| {
            (a.group, a.column, a.block + 1) == (b.group, b.column, b.block)
        };
        for run in names.chunk_by(follows) {
            let column = lent
                .cx
                .view()
                .column(&lent.cx.geometry, run[0].group, run[0].column);
            let Some(cell) = column
                .source
                .filter(|cell| !lent.cx.view().is_out(cell.seat))
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
                lent.cx.geometry.block_offset(cell, run[0].block.into()),
            ));
        }
        let begun = !reads.is_empty();
        self.in_flight = reads.len() as u64;
        self.reads.clone_from(&reads);
        self.failed.clear();
        self.scratch = begun.then_some(scratch);
        if begun {
            lent.cx.actions.push_back(Action::Allocate(scratch, offset));
        }
        for (index, ((_, slice), (seat, offset))) in reads.into_iter().zip(places).enumerate() {
            lent.read((seat, offset), index, slice);
        }
        begun
    }

    /// A read of a round has ended.
    pub(super) fn read(&mut self, cx: &mut Context, index: usize, outcome: Outcome) {
        if outcome.is_err() {
            self.failed.insert(index);
        }
        self.in_flight -= 1;
        if self.in_flight == 0 {
            let work = Compute {
                sums: self.reads.iter().map(|&(_, slice)| slice).collect(),
                ..Compute::default()
            };
            cx.push_compute(Computing::Recovery, work);
        }
    }

    /// The blocks that a round has read have these checksums.
    fn summed(&mut self, lent: &mut Lent<'_>, sums: &[u32], bad: &BTreeSet<BlockName>) {
        let pool = lent.cx.geometry.regions().expect("a journal").pool;
        let round = std::mem::take(&mut self.round);
        let reads = std::mem::take(&mut self.reads);
        let failed = std::mem::take(&mut self.failed);
        if let Some(scratch) = self.scratch.take() {
            lent.ios.release(lent.cx, scratch);
        }
        let mut sums = sums.iter();
        let (mut right, mut wrong) = (BTreeSet::new(), BTreeSet::new());
        let mut unread = BTreeSet::new();
        for (index, (first, slice)) in reads.into_iter().enumerate() {
            for (block, &sum) in (first.block..).zip(sums.by_ref().take(blocks_of(slice))) {
                let name = BlockName { block, ..first };
                let logged = lent.overlay.get(name).expect("it is in place");
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
            let form = form_logged(lent, stripe);
            for &name in &torn {
                if !can_be_made_whole(lent, (name, form), &names, &right, bad) {
                    let logged = lent.overlay.get(name).expect("it is in place");
                    let sequence = logged.sequence;
                    self.limit = Some(self.limit.map_or(sequence, |limit| limit.min(sequence)));
                }
            }
            // Blocks where a read has failed may be torn, too. This is not known, so it does not end the log.
            let repairable =
                |name: &&BlockName| can_be_made_whole(lent, (**name, form), &names, &right, bad);
            torn.extend(names.intersection(&unread).filter(repairable));
            if !torn.is_empty() {
                self.torn.insert(stripe, torn);
            }
        }
    }

    /// The operations that repair what was found torn.
    fn repairs(&mut self, lent: &Lent<'_>) -> Vec<Op> {
        let mut ops = Vec::new();
        for ((group, stripe), names) in std::mem::take(&mut self.torn) {
            if seeded::is(SeededFault::DirectTornUnrepaired) {
                continue;
            }
            let per_chunk = lent.cx.geometry.chunk_bytes() / BLOCK_BYTES;
            let mut blocks = Vec::new();
            let mut entries = BTreeMap::new();
            let form = form_logged(lent, (group, stripe));
            for slot in 0..lent.cx.geometry.code_of(form).elements() {
                let (column, chunk) = lent.cx.geometry.place(group, stripe, form, slot);
                let first = chunk * per_chunk;
                let here = names.iter().filter(|name| {
                    let block = u64::from(name.block);
                    name.column == column && (first..first + per_chunk).contains(&block)
                });
                for &name in here {
                    let at = (slot, (u64::from(name.block) - first) * BLOCK_BYTES);
                    let entry = lent.overlay.get(name).map(|logged| logged.entry);
                    entries.extend(entry.map(|entry| (at, entry)));
                    blocks.push(at);
                }
            }
            let repair = Repair {
                blocks,
                entries,
                ..Repair::default()
            };
            let mut op = Op::repair(Owner::Recovery, group, stripe, repair);
            op.location.forms = std::iter::once(form).collect();
            ops.push(op);
        }
        // One more than there are, until all have begun.
        self.repairing = 1 + ops.len() as u64;
        ops
    }
}

/// The form of a stripe that has blocks in place by its records. Such records have the stripe's parity or copies beside
/// its data, and a later record of another form would have given these up.
fn form_logged(lent: &Lent<'_>, (group, stripe): (GroupId, StripeId)) -> Form {
    let logged = |&&form: &&Form| {
        let mut names = lent.cx.geometry.blocks_only_of(group, stripe, form);
        names.any(|name| {
            let logged = lent.overlay.get(name);
            logged.is_some_and(|logged| logged.entry != Entry::UNWRITTEN)
        })
    };
    let forms = lent.cx.geometry.forms().iter();
    forms.rev().find(logged).copied().unwrap_or_default()
}

/// True if a block can be reconstructed from the other blocks of its row. Of the blocks that are `compared`, only those
/// that are `right` count. Of the others, those do not count that a repair has found `bad`: the data of a stripe that was
/// converted is not in the record of its conversion.
fn can_be_made_whole(
    lent: &Lent<'_>,
    (name, form): (BlockName, Form),
    compared: &BTreeSet<BlockName>,
    right: &BTreeSet<BlockName>,
    bad: &BTreeSet<BlockName>,
) -> bool {
    let code = lent.cx.geometry.code_of(form);
    let mut lost = ElementSet::new(code.elements());
    for (slot, other) in lent.cx.geometry.row_of(name, form) {
        let column = lent
            .cx
            .view()
            .column(&lent.cx.geometry, other.group, other.column);
        let there = match lent.overlay.get(other).map(|logged| logged.bytes) {
            Some(Bytes::Memory(_)) => true,
            Some(Bytes::Nowhere) => false,
            Some(Bytes::InPlace) if compared.contains(&other) => right.contains(&other),
            Some(Bytes::InPlace) | None => column.readable() && !bad.contains(&other),
        };
        if !there {
            lost.insert(slot);
        }
    }
    code.is_recoverable(&lost)
}

/// Blocks of a slice.
fn blocks_of(slice: Slice) -> usize {
    usize::try_from(slice.length / BLOCK_BYTES).expect("a round is short")
}
