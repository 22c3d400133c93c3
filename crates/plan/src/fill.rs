//! Plans over a run of stripes: fill a cell, compute parity again, zero.
//!
//! These move whole chunks of neighbouring stripes, so their scratch memory is laid out by
//! (column, chunk): what is contiguous on a drive is contiguous in memory, and one operation per
//! drive moves all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use erasure::ElementSet;
use format::{Column, StripeId};
use layout::Cell;

use super::sub_stripe::{Operand, SubStripePlans, SubStripeStep, translate};
use super::{Absent, BlockState, Kind, Lost, Plan, Scratch, Stripe, Transfer, runs};
use crate::action::{ComputeStep, IoKind, Slice};

/// A chunk of a group: column and chunk number in the column's cell.
pub(super) type Chunk = (Column, u64);

/// Part of one element of one stripe.
type Part = (StripeId, usize, u64, u64);

/// A run of stripes and the operations in each, before memory is laid out.
pub(super) struct Run<'a> {
    first: Stripe<'a>,
    stripes: Range<StripeId>,
    /// Stripe, slot, first and last byte of each read.
    reads: Vec<Part>,
    /// Chunks that need memory.
    chunks: BTreeSet<Chunk>,
    steps: Vec<(StripeId, u64, u64, Vec<SubStripeStep>)>,
    temporaries: usize,
    /// Parts that are reconstructed into the chunks' memory.
    recovered: Vec<Part>,
    /// Parts that are computed again, beside the bytes that were read.
    compared: Vec<Part>,
}

impl<'a> Run<'a> {
    pub(super) fn new(first: Stripe<'a>, stripes: Range<StripeId>) -> Self {
        Self {
            first,
            stripes,
            reads: Vec::new(),
            chunks: BTreeSet::new(),
            steps: Vec::new(),
            temporaries: 0,
            recovered: Vec::new(),
            compared: Vec::new(),
        }
    }

    fn stripes(&self) -> impl Iterator<Item = Stripe<'a>> + use<'a> {
        let first = self.first;
        StripeId::each(self.stripes.clone()).map(move |stripe| first.at(stripe))
    }

    pub(super) fn chunk(stripe: &Stripe<'_>, slot: usize) -> Chunk {
        let (column, _, chunk) = stripe.place(slot);
        (column, chunk)
    }

    pub(super) fn read(&mut self, stripe: &Stripe<'_>, slot: usize, low: u64, high: u64) {
        self.chunks.insert(Self::chunk(stripe, slot));
        self.reads.push((stripe.stripe, slot, low, high));
    }

    pub(super) fn compute(
        &mut self,
        stripe: &Stripe<'_>,
        recovery: &erasure::Recovery,
        (low, high): (u64, u64),
    ) {
        let code = stripe.code();
        for &slot in &recovery.reads {
            self.read(stripe, slot, low, high);
        }
        let schedule = &recovery.schedule;
        let steps = translate(code, schedule, 0, Operand::Old);
        let targets = steps.iter().filter_map(|step| match step.target {
            Operand::Old(slot) => Some(Self::chunk(stripe, slot)),
            Operand::New(_) | Operand::Temporary(_) => None,
        });
        self.chunks.extend(targets);
        self.temporaries = self.temporaries.max(schedule.slots() - code.elements());
        self.steps.push((stripe.stripe, low, high, steps));
    }

    /// Computes parities from the data that is read, into memory beside the parities that are read.
    fn compare(
        &mut self,
        stripe: &Stripe<'_>,
        encode: &erasure::Recovery,
        parities: &ElementSet,
        (low, high): (u64, u64),
    ) {
        let code = stripe.code();
        let data = |slot| match code.is_data(slot) {
            true => Operand::Old(slot),
            false => Operand::New(slot),
        };
        let steps = translate(code, &encode.schedule, 0, data);
        self.temporaries = self
            .temporaries
            .max(encode.schedule.slots() - code.elements());
        self.steps.push((stripe.stripe, low, high, steps));
        let parts = parities.iter().map(|slot| (stripe.stripe, slot, low, high));
        self.compared.extend(parts);
    }

    /// Lays out memory and turns everything into transfers and steps; `writes` lists which bytes of which chunks go to
    /// which cell.
    fn plan(self, kind: Kind, writes: &[(Chunk, u64, u64, Cell)], scratch: Scratch) -> Plan {
        let writes = writes.iter();
        let writes: Vec<_> = writes
            .map(|&(chunk, low, high, cell)| (chunk, chunk, low, high, cell))
            .collect();
        self.plan_from(kind, &writes, scratch)
    }

    /// The same with writes of which each lists its chunk, and the chunk whose memory it writes.
    pub(super) fn plan_from(
        self,
        kind: Kind,
        writes: &[(Chunk, Chunk, u64, u64, Cell)],
        scratch: Scratch,
    ) -> Plan {
        let geometry = self.first.geometry;
        let chunk_bytes = geometry.chunk_bytes();
        let regions: BTreeMap<Chunk, u64> = self
            .chunks
            .iter()
            .zip(0..)
            .map(|(&chunk, index)| (chunk, index * chunk_bytes))
            .collect();
        let mut chunks_bytes = regions.len() as u64 * chunk_bytes;
        let mut anew: BTreeMap<Chunk, u64> = BTreeMap::new();
        for &(stripe, slot, ..) in &self.compared {
            let stripe = self.first.at(stripe);
            anew.entry(Self::chunk(&stripe, slot)).or_insert_with(|| {
                chunks_bytes += chunk_bytes;
                chunks_bytes - chunk_bytes
            });
        }
        let chunks_bytes = chunks_bytes;
        let slice = |chunk: Chunk, low, high| scratch.slice(regions[&chunk] + low, high - low);
        let at = |stripe| self.first.at(stripe);
        let mut plan = Plan::new(kind);
        plan.scratch_bytes = chunks_bytes + self.temporaries as u64 * chunk_bytes;
        for &(stripe, slot, low, high) in &self.reads {
            let stripe = at(stripe);
            let memory = slice(Self::chunk(&stripe, slot), low, high);
            stripe.fetch(&mut plan, slot, (low, high), memory);
        }
        for &(chunk, memory, low, high, cell) in writes {
            plan.writes.push(Transfer {
                seat: cell.seat,
                column: chunk.0,
                kind: IoKind::Write,
                offset: geometry.drive_offset(cell, chunk.1) + low,
                length: high - low,
                slice: Some(slice(memory, low, high)),
            });
        }
        for (stripe, low, high, sub_stripe) in &self.steps {
            let stripe = at(*stripe);
            let operand = |operand: Operand| match operand {
                Operand::Old(slot) => slice(Self::chunk(&stripe, slot), *low, *high),
                Operand::New(slot) => {
                    scratch.slice(anew[&Self::chunk(&stripe, slot)] + low, high - low)
                }
                Operand::Temporary(index) => {
                    scratch.slice(chunks_bytes + index as u64 * chunk_bytes + low, high - low)
                }
            };
            plan.steps.extend(sub_stripe.iter().map(|step| {
                ComputeStep {
                    target: operand(step.target),
                    accumulate: step.accumulate,
                    terms: step
                        .terms
                        .iter()
                        .map(|&(term, c)| (operand(term), c))
                        .collect(),
                }
            }));
        }
        for &(stripe, slot, low, high) in &self.recovered {
            let stripe = at(stripe);
            let memory = slice(Self::chunk(&stripe, slot), low, high);
            plan.recovers(&stripe, slot, low, memory);
        }
        for &(stripe, slot, low, high) in &self.compared {
            let stripe = at(stripe);
            let memory = scratch.slice(anew[&Self::chunk(&stripe, slot)] + low, high - low);
            plan.recovers(&stripe, slot, low, memory);
        }
        plan.first_steps = plan.steps.len();
        plan.merge_transfers();
        plan
    }
}

/// Plans to write `column` of the group into `target`, for the stripes `stripes` (`first.stripe` is ignored): copied if
/// the column can be read, otherwise reconstructed. Columns in `avoid` are read only if there is no other way. Blocks
/// that were never written, and blocks that the target holds, are left out.
///
/// Blocks that can neither be read nor reconstructed because others are bad or unknown are left out and listed in the
/// plan's `lost`: one bad block does not keep the rest of the cell from having its redundancy. Their entries stay, so
/// that the old content of the target does not pass for them, and they can be repaired if another drive that has them
/// returns. If the target holds part of the column, they are listed in `absent`.
///
/// # Errors
/// [`Lost`] when too many columns are missing: then a drive that returns may have more than the target could.
pub fn plan_fill(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    stripes: Range<StripeId>,
    (column, target): (Column, Cell),
    avoid: &[Column],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let chunk_bytes = first.geometry.chunk_bytes();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    let (mut absent, mut lost) = (Vec::new(), Vec::new());
    for stripe in run.stripes() {
        let code = stripe.code();
        let slots: Vec<usize> = (0..code.elements())
            .filter(|&slot| Run::chunk(&stripe, slot).0 == column)
            .collect();
        let written_at = |at: u64| -> ElementSet {
            let written = slots
                .iter()
                .copied()
                .filter(|&slot| stripe.state(slot, at) != BlockState::Zero)
                .filter(|&slot| !stripe.is_held(slot, at));
            written.collect()
        };
        for (low, high, written) in stripe.runs(0, chunk_bytes, written_at) {
            if written.is_empty() {
                continue;
            }
            for (low, high, readable) in stripe.runs(low, high, |at| stripe.readable_at(at)) {
                let to_target = |slot| (Run::chunk(&stripe, slot), low, high, target);
                if written.iter().all(|slot| readable.contains(slot)) {
                    for slot in written.iter() {
                        run.read(&stripe, slot, low, high);
                    }
                    writes.extend(written.iter().map(to_target));
                    continue;
                }
                let mut spared = readable.clone();
                for slot in readable.iter() {
                    if avoid.contains(&Run::chunk(&stripe, slot).0) {
                        spared.remove(slot);
                    }
                }
                let (written, unrecoverable) = plans.split_lost(code, &readable, &written);
                let part = |slot, low, high| {
                    let (column, chunk) = Run::chunk(&stripe, slot);
                    Absent {
                        column,
                        offset: chunk * chunk_bytes + low,
                        length: high - low,
                        slice: None,
                    }
                };
                let nowhere = unrecoverable.iter().map(|slot| part(slot, low, high));
                if first.blocks.leaves_out_lost() {
                    for slot in unrecoverable.iter() {
                        let kept = stripe.runs(low, high, |at| stripe.may_be_held(slot, at));
                        let others = kept.into_iter().filter(|&(.., kept)| !kept);
                        absent.extend(others.map(|(low, high, _)| part(slot, low, high)));
                    }
                } else if plans
                    .recover(code, &stripe.by_column(low), &unrecoverable)
                    .is_ok()
                {
                    lost.extend(nowhere);
                } else {
                    return Err(Lost);
                }
                let recovery = match plans.recover(code, &spared, &written) {
                    Ok(recovery) => recovery,
                    Err(Lost) => plans.recover(code, &readable, &written)?,
                };
                writes.extend(written.iter().map(to_target));
                run.compute(&stripe, &recovery, (low, high));
                let absent = written.iter().filter(|&slot| !readable.contains(slot));
                run.recovered
                    .extend(absent.map(|slot| (stripe.stripe, slot, low, high)));
            }
        }
    }
    let chunks = writes.iter().map(|&(chunk, ..)| chunk);
    run.chunks.extend(chunks);
    let mut plan = run.plan(Kind::Fill, &writes, scratch);
    plan.absent = absent;
    plan.lost = lost;
    Ok(plan)
}

/// Plans to read everything that was written to the stripes, to compare it with its checksums. Where all data can be
/// read, parity is computed again from it, to compare parity with data.
pub fn plan_scrub(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    stripes: Range<StripeId>,
    scratch: Scratch,
) -> Plan {
    let chunk_bytes = first.geometry.chunk_bytes();
    let mut run = Run::new(first, stripes);
    for stripe in run.stripes() {
        let code = stripe.code();
        let data: ElementSet = code.data_slots().collect();
        let parities: ElementSet = code.parity_slots().collect();
        let encode = plans
            .recover(code, &data, &parities)
            .expect("parity follows from all data");
        // Where nothing was written there is nothing to compare.
        let comparable = |at| {
            let states = (0..code.elements()).map(|slot| (slot, stripe.state(slot, at)));
            let mut written = false;
            let mut readable = !parities.is_empty();
            for (slot, state) in states {
                written |= state != BlockState::Zero;
                readable &= state != BlockState::Unreadable || !data.contains(slot);
            }
            readable && written
        };
        for (low, high, comparable) in runs(0, chunk_bytes, comparable) {
            for slot in 0..code.elements() {
                // Data that only the journal has, or that was never written, is part of the sum too.
                let summed = comparable && data.contains(slot);
                let read = |at| summed || stripe.state(slot, at) == BlockState::OnDrive;
                for (low, high, read) in runs(low, high, read) {
                    if read {
                        run.read(&stripe, slot, low, high);
                    }
                }
            }
            if comparable {
                run.compare(&stripe, &encode, &parities, (low, high));
            }
        }
    }
    run.plan(Kind::Scrub, &[], scratch)
}

/// Plans to compute all parity of the stripes from their data.
///
/// # Errors
/// [`Lost`] when data cannot be read; it is not reconstructed, because the parity is not trusted.
pub fn plan_resync(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    stripes: Range<StripeId>,
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let chunk_bytes = first.geometry.chunk_bytes();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
        let code = stripe.code();
        let data: ElementSet = code.data_slots().collect();
        let unreadable = |slot| {
            runs(0, chunk_bytes, |at| stripe.is_readable(slot, at)) != [(0, chunk_bytes, true)]
        };
        if data.iter().any(unreadable) {
            return Err(Lost);
        }
        let mut parities = ElementSet::new(code.elements());
        for equation in code.equations() {
            let slot = code.index(equation.parity);
            let (column, place, chunk) = stripe.place(slot);
            for cell in place.cells() {
                parities.insert(slot);
                writes.push(((column, chunk), 0, chunk_bytes, cell));
            }
        }
        if parities.is_empty() {
            continue;
        }
        let recovery = plans.recover(code, &data, &parities)?;
        run.compute(&stripe, &recovery, (0, chunk_bytes));
    }
    Ok(run.plan(Kind::Resync, &writes, scratch))
}

/// Plans to make the stripes `stripes` read as zeros. All data zero means all parity zero, for
/// every linear code, so there is nothing to read or compute.
///
/// # Errors
/// [`Lost`] when the zeros could not be read back.
pub fn plan_zero(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    stripes: Range<StripeId>,
) -> Result<Plan, Lost> {
    let run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
        let code = stripe.code();
        let data: ElementSet = code.data_slots().collect();
        let writable = stripe.writable();
        if data.iter().any(|slot| !writable.contains(slot)) {
            plans.recover(code, &writable, &data)?;
        }
        for slot in 0..code.elements() {
            let (column, place, chunk) = stripe.place(slot);
            writes.extend(place.cells().map(|cell| Transfer {
                seat: cell.seat,
                column,
                kind: IoKind::WriteZeroes,
                offset: stripe.geometry.drive_offset(cell, chunk),
                length: stripe.geometry.chunk_bytes(),
                slice: None::<Slice>,
            }));
        }
    }
    let mut plan = Plan::new(Kind::Zero);
    plan.writes = writes;
    plan.merge_transfers();
    Ok(plan)
}
