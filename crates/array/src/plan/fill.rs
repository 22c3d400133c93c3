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
use super::{Kind, Lost, Plan, Scratch, Stripe, Transfer};
use crate::action::{ComputeStep, IoKind, Slice};

/// A chunk of a group: column and chunk number in the column's cell.
type Chunk = (u16, u64);

/// A run of stripes and what is to be done in each, before memory is laid out.
struct Run<'a> {
    first: Stripe<'a>,
    stripes: Range<u64>,
    reads: BTreeSet<Chunk>,
    computed: BTreeSet<Chunk>,
    steps: Vec<(u64, Vec<BandStep>)>,
    temporaries: usize,
}

impl<'a> Run<'a> {
    fn new(first: Stripe<'a>, stripes: Range<u64>) -> Self {
        Self {
            first,
            stripes,
            reads: BTreeSet::new(),
            computed: BTreeSet::new(),
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

    fn compute(&mut self, stripe: &Stripe<'_>, reads: &[usize], schedule: &erasure::Schedule) {
        let code = stripe.geometry.code();
        self.reads
            .extend(reads.iter().map(|&slot| Self::chunk(stripe, slot)));
        let steps = translate(code, schedule, 0, Operand::Old);
        self.computed
            .extend(steps.iter().filter_map(|step| match step.target {
                Operand::Old(slot) => Some(Self::chunk(stripe, slot)),
                Operand::New(_) | Operand::Temporary(_) => None,
            }));
        self.temporaries = self.temporaries.max(schedule.slots() - code.elements());
        self.steps.push((stripe.stripe, steps));
    }

    /// Lays out memory and turns everything into transfers and steps; `writes` says which chunks
    /// go where.
    fn plan(self, kind: Kind, writes: &[(Chunk, Cell)], scratch: Scratch) -> Plan {
        let geometry = self.first.geometry;
        let chunk_bytes = geometry.chunk_bytes();
        let regions: BTreeMap<Chunk, u64> = self
            .reads
            .union(&self.computed)
            .zip(0..)
            .map(|(&chunk, index)| (chunk, index * chunk_bytes))
            .collect();
        let chunks_bytes = regions.len() as u64 * chunk_bytes;
        let slice = |chunk: Chunk| scratch.slice(regions[&chunk], chunk_bytes);
        let transfer = |chunk: Chunk, cell: Cell, kind| Transfer {
            seat: cell.seat,
            column: chunk.0,
            kind,
            offset: geometry.drive_offset(cell, chunk.1),
            length: chunk_bytes,
            slice: Some(slice(chunk)),
        };
        let reads = self
            .reads
            .iter()
            .map(|&chunk| {
                let source = self.first.columns[usize::from(chunk.0)].source;
                let cell = source.expect("the planner reads only what is readable");
                transfer(chunk, cell, IoKind::Read)
            })
            .collect();
        let writes = writes
            .iter()
            .map(|&(chunk, cell)| transfer(chunk, cell, IoKind::Write))
            .collect();
        let mut steps = Vec::new();
        for (stripe, band) in &self.steps {
            let stripe = Stripe {
                stripe: *stripe,
                ..self.first
            };
            let operand = |operand: Operand| match operand {
                Operand::Old(slot) | Operand::New(slot) => slice(Self::chunk(&stripe, slot)),
                Operand::Temporary(index) => {
                    scratch.slice(chunks_bytes + index as u64 * chunk_bytes, chunk_bytes)
                }
            };
            steps.extend(band.iter().map(|step| {
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
        let mut plan = Plan {
            kind,
            scratch_bytes: chunks_bytes + self.temporaries as u64 * chunk_bytes,
            reads,
            steps,
            writes,
        };
        plan.merge_transfers();
        plan
    }
}

/// Plans to write `column` of the group into `target`, for the stripes `stripes` (`first.stripe` is
/// ignored): copied where the column can be read, reconstructed where not. Columns in `avoid` are
/// read only if it cannot be done without.
///
/// # Errors
/// [`Lost`] when an element of the column can neither be read nor reconstructed.
pub fn plan_fill(
    plans: &mut BandPlans,
    first: Stripe<'_>,
    stripes: Range<u64>,
    (column, target): (u16, Cell),
    avoid: &[u16],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = first.geometry.code();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
        let mut wanted = ElementSet::new(code.elements());
        for slot in 0..code.elements() {
            let chunk = Run::chunk(&stripe, slot);
            if chunk.0 == column {
                wanted.insert(slot);
                writes.push((chunk, target));
            }
        }
        if wanted.is_empty() {
            continue;
        }
        let readable = stripe.readable();
        if wanted.iter().all(|slot| readable.contains(slot)) {
            run.reads
                .extend(wanted.iter().map(|slot| Run::chunk(&stripe, slot)));
            continue;
        }
        let spared = stripe.slots_where(|column, state| {
            state.readable() && !stripe.unreadable.contains(&column) && !avoid.contains(&column)
        });
        let recovery = match plans.recover(code, &spared, &wanted) {
            Ok(recovery) => recovery,
            Err(Lost) => plans.recover(code, &readable, &wanted)?,
        };
        run.compute(&stripe, &recovery.reads, &recovery.schedule);
    }
    Ok(run.plan(Kind::Fill, &writes, scratch))
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
    let data: ElementSet = code.data_slots().collect();
    let mut run = Run::new(first, stripes);
    let mut writes = Vec::new();
    for stripe in run.stripes() {
        let readable = stripe.readable();
        if data.iter().any(|slot| !readable.contains(slot)) {
            return Err(Lost);
        }
        let mut parities = ElementSet::new(code.elements());
        for equation in code.equations() {
            let slot = code.index(equation.parity);
            let (column, place, chunk) = stripe.place(slot);
            for cell in place.cells() {
                parities.insert(slot);
                writes.push(((column, chunk), cell));
            }
        }
        if parities.is_empty() {
            continue;
        }
        let recovery = plans.recover(code, &data, &parities)?;
        run.compute(&stripe, &recovery.reads, &recovery.schedule);
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
    let mut plan = Plan {
        kind: Kind::Zero,
        scratch_bytes: 0,
        reads: Vec::new(),
        steps: Vec::new(),
        writes,
    };
    plan.merge_transfers();
    Ok(plan)
}
