//! Plans over a run of stripes: fill a cell, compute parity anew, zero.
//!
//! These move whole chunks of neighbouring stripes, so their scratch memory is laid out by
//! (column, chunk): what is contiguous on a drive is contiguous in memory, and one operation per
//! drive moves all of it.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use erasure::ElementSet;
use layout::Cell;

use super::band::{BandPlans, BandStep, Operand, translate};
use super::{Absent, BlockState, Kind, Lost, Plan, Scratch, Stripe, Transfer, runs};
use crate::action::{ComputeStep, IoKind, Slice};

/// A chunk of a group: column and chunk number in the column's cell.
type Chunk = (u16, u64);

/// Part of one element of one stripe.
type Part = (u64, usize, u64, u64);

/// A run of stripes and what is to be done in each, before memory is laid out.
struct Run<'a> {
    first: Stripe<'a>,
    stripes: Range<u64>,
    /// Stripe, slot, first and last byte of what is read.
    reads: Vec<Part>,
    /// Chunks that need memory.
    chunks: BTreeSet<Chunk>,
    steps: Vec<(u64, u64, u64, Vec<BandStep>)>,
    temporaries: usize,
}

impl<'a> Run<'a> {
    fn new(first: Stripe<'a>, stripes: Range<u64>) -> Self {
        Self {
            first,
            stripes,
            reads: Vec::new(),
            chunks: BTreeSet::new(),
            steps: Vec::new(),
            temporaries: 0,
        }
    }

    fn stripes(&self) -> impl Iterator<Item = Stripe<'a>> + use<'a> {
        let first = self.first;
        self.stripes
            .clone()
            .map(move |stripe| Stripe { stripe, ..first })
    }

    fn chunk(stripe: &Stripe<'_>, slot: usize) -> Chunk {
        stripe.geometry.place(stripe.group, stripe.stripe, slot)
    }

    fn read(&mut self, stripe: &Stripe<'_>, slot: usize, low: u64, high: u64) {
        self.chunks.insert(Self::chunk(stripe, slot));
        self.reads.push((stripe.stripe, slot, low, high));
    }

    fn compute(
        &mut self,
        stripe: &Stripe<'_>,
        recovery: &erasure::Recovery,
        (low, high): (u64, u64),
    ) {
        let code = stripe.geometry.code();
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

    /// Lays out memory and turns everything into transfers and steps; `writes` says which bytes of
    /// which chunks go where.
    fn plan(self, kind: Kind, writes: &[(Chunk, u64, u64, Cell)], scratch: Scratch) -> Plan {
        let geometry = self.first.geometry;
        let chunk_bytes = geometry.chunk_bytes();
        let regions: BTreeMap<Chunk, u64> = self
            .chunks
            .iter()
            .zip(0..)
            .map(|(&chunk, index)| (chunk, index * chunk_bytes))
            .collect();
        let chunks_bytes = regions.len() as u64 * chunk_bytes;
        let slice = |chunk: Chunk, low, high| scratch.slice(regions[&chunk] + low, high - low);
        let at = |stripe| Stripe {
            stripe,
            ..self.first
        };
        let mut plan = Plan::new(kind);
        plan.scratch_bytes = chunks_bytes + self.temporaries as u64 * chunk_bytes;
        for &(stripe, slot, low, high) in &self.reads {
            let stripe = at(stripe);
            let memory = slice(Self::chunk(&stripe, slot), low, high);
            stripe.fetch(&mut plan, slot, (low, high), memory);
        }
        for &(chunk, low, high, cell) in writes {
            plan.writes.push(Transfer {
                seat: cell.seat,
                column: chunk.0,
                kind: IoKind::Write,
                offset: geometry.drive_offset(cell, chunk.1) + low,
                length: high - low,
                slice: Some(slice(chunk, low, high)),
            });
        }
        for (stripe, low, high, band) in &self.steps {
            let stripe = at(*stripe);
            let operand = |operand: Operand| match operand {
                Operand::Old(slot) | Operand::New(slot) => {
                    slice(Self::chunk(&stripe, slot), *low, *high)
                }
                Operand::Temporary(index) => {
                    scratch.slice(chunks_bytes + index as u64 * chunk_bytes + low, high - low)
                }
            };
            plan.steps.extend(band.iter().map(|step| {
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
        plan.merge_transfers();
        plan
    }
}

/// Plans to write `column` of the group into `target`, for the stripes `stripes` (`first.stripe` is
/// ignored): copied where the column can be read, reconstructed where not. Columns in `avoid` are
/// read only if it cannot be done without. Blocks that nothing was written to, and those that the
/// target holds, are left out.
///
/// # Errors
/// [`Lost`] when an element of the column can neither be read nor reconstructed; where the target
/// holds part of the column, such an element is named in the plan's `absent` instead.
pub fn plan_fill(
    plans: &mut BandPlans,
    first: Stripe<'_>,
    stripes: Range<u64>,
    (column, target): (u16, Cell),
    avoid: &[u16],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = first.geometry.code();
    let chunk_bytes = first.geometry.chunk_bytes();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    let mut lost = Vec::new();
    for stripe in run.stripes() {
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
        for (low, high, written) in runs(0, chunk_bytes, written_at) {
            if written.is_empty() {
                continue;
            }
            for (low, high, readable) in runs(low, high, |at| stripe.readable_at(at)) {
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
                let recovery = match plans.recover(code, &spared, &written) {
                    Ok(recovery) => recovery,
                    Err(Lost) => match plans.recover(code, &readable, &written) {
                        Ok(recovery) => recovery,
                        Err(Lost) if first.blocks.leaves_out_lost() => {
                            lost.extend(written.iter().map(|slot| {
                                let (column, chunk) = Run::chunk(&stripe, slot);
                                let offset = chunk * chunk_bytes + low;
                                let length = high - low;
                                Absent {
                                    column,
                                    offset,
                                    length,
                                }
                            }));
                            continue;
                        }
                        Err(Lost) => return Err(Lost),
                    },
                };
                writes.extend(written.iter().map(to_target));
                run.compute(&stripe, &recovery, (low, high));
            }
        }
    }
    let chunks = writes.iter().map(|&(chunk, ..)| chunk);
    run.chunks.extend(chunks);
    let mut plan = run.plan(Kind::Fill, &writes, scratch);
    plan.absent = lost;
    Ok(plan)
}

/// Plans to read everything that was written to the stripes, so that it is compared with its
/// checksums.
#[must_use]
pub fn plan_scrub(first: Stripe<'_>, stripes: Range<u64>, scratch: Scratch) -> Plan {
    let code = first.geometry.code();
    let chunk_bytes = first.geometry.chunk_bytes();
    let mut run = Run::new(first, stripes);
    for stripe in run.stripes() {
        for slot in 0..code.elements() {
            let on_drive = |at| stripe.state(slot, at) == BlockState::OnDrive;
            for (low, high, on_drive) in runs(0, chunk_bytes, on_drive) {
                if on_drive {
                    run.read(&stripe, slot, low, high);
                }
            }
        }
    }
    run.plan(Kind::Scrub, &[], scratch)
}

/// Plans to compute all parity of the stripes from their data.
///
/// # Errors
/// [`Lost`] when data cannot be read; it is not reconstructed, for the parity is not trusted.
pub fn plan_resync(
    plans: &mut BandPlans,
    first: Stripe<'_>,
    stripes: Range<u64>,
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = first.geometry.code();
    let chunk_bytes = first.geometry.chunk_bytes();
    let data: ElementSet = code.data_slots().collect();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
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
    plans: &mut BandPlans,
    first: Stripe<'_>,
    stripes: Range<u64>,
) -> Result<Plan, Lost> {
    let code = first.geometry.code();
    let data: ElementSet = code.data_slots().collect();
    let run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
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
