//! Writing: sub-stripes, each by the cheaper of read-modify-write and reconstruct-write.

use std::collections::BTreeMap;
use std::sync::Arc;

use block::BLOCK_BYTES;
use erasure::ElementSet;

use super::bind::{Binder, sub_stripes};
use super::sub_stripe::{Operand, SubStripePlans, translate};
use super::{Absent, BlockState, Kind, Lost, Plan, Scratch, Stripe};
use crate::action::Slice;

/// New bytes for whole blocks of one element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// Which element.
    pub slot: usize,
    /// First byte in the element.
    pub low: u64,
    /// The bytes.
    pub slice: Slice,
}

/// Plans to write `sources` into one stripe. They do not overlap and consist of whole blocks
/// (a request's partly covered blocks are completed by reading them first).
///
/// # Errors
/// [`Lost`] when the stripe cannot be kept consistent and readable.
pub fn plan_write(
    plans: &mut SubStripePlans,
    stripe: &Stripe<'_>,
    sources: &[Source],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = stripe.code();
    let writable = stripe.writable();
    let range = |source: &Source| (source.low, source.low + source.slice.length);
    let mut binder = Binder::new(
        scratch,
        sources
            .iter()
            .map(range)
            .fold((u64::MAX, 0), |hull, (low, high)| {
                (hull.0.min(low), hull.1.max(high))
            }),
    );
    for source in sources {
        let (low, high) = range(source);
        assert!(
            low.is_multiple_of(BLOCK_BYTES) && high.is_multiple_of(BLOCK_BYTES),
            "writes are planned in whole blocks"
        );
        binder.fix(Operand::New(source.slot), low, source.slice);
    }
    let mut plan = Plan::new(Kind::FullStripe);
    // New parity is computed after everything that is reconstructed has been compared.
    let mut later = Plan::new(Kind::FullStripe);
    // The plan has the kind of its most expensive sub-stripe.
    let cost = |kind| match kind {
        Kind::PlainWrite => 0,
        Kind::FullStripe => 1,
        Kind::ReconstructWrite => 2,
        Kind::ReadModifyWrite => 3,
        _ => 4,
    };
    let mut kind = Kind::PlainWrite;
    let ranges: Vec<_> = sources.iter().map(range).collect();
    for (low, high) in sub_stripes(&ranges) {
        let mut changed = ElementSet::new(code.elements());
        for source in sources {
            let (source_low, source_high) = range(source);
            if source_low <= low && high <= source_high {
                changed.insert(source.slot);
            }
        }
        for (low, high, readable) in stripe.runs(low, high, |at| stripe.readable_at(at)) {
            let sub_stripe = match plans.write(code, &readable, &writable, &changed) {
                Ok(sub_stripe) => sub_stripe,
                // If more columns are missing than the code survives, the journal must not preserve more blocks.
                Err(Lost) => {
                    let data: ElementSet = code.data_slots().collect();
                    plans.recover(code, &stripe.by_column(low), &data)?;
                    Arc::new(plans.write_around(code, &readable, &writable, &changed)?)
                }
            };
            if cost(sub_stripe.kind) > cost(kind) {
                kind = sub_stripe.kind;
            }
            for &slot in &sub_stripe.reads {
                binder.push_read(&mut plan, stripe, slot, low, high);
            }
            let (recovery, encode) = sub_stripe.steps.split_at(sub_stripe.recovery_steps);
            binder.push_steps(&mut plan, recovery, low, high);
            for &slot in &sub_stripe.recovered {
                let slice = binder.slice(Operand::Old(slot), low, high);
                plan.recovers(stripe, slot, low, slice);
            }
            binder.push_steps(&mut later, encode, low, high);
            for &(slot, operand) in &sub_stripe.writes {
                binder.push_write(&mut plan, stripe, slot, operand, (low, high));
            }
            let parities = changed.iter().flat_map(|slot| code.parities_of(slot));
            let touched: ElementSet = changed.iter().chain(parities.copied()).collect();
            for slot in touched.iter() {
                let unknown = sub_stripe.unknown.contains(&slot);
                if writable.contains(slot) && !unknown {
                    continue;
                }
                let (column, _, chunk) = stripe.place(slot);
                let new = changed.contains(slot) && !unknown;
                let absent = Absent {
                    column,
                    offset: chunk * stripe.geometry.chunk_bytes() + low,
                    length: high - low,
                    slice: new.then(|| binder.slice(Operand::New(slot), low, high)),
                };
                plan.absent.push(absent);
                plan.lost.extend(unknown.then_some(absent));
            }
        }
    }
    plan.kind = kind;
    plan.first_steps = plan.steps.len();
    plan.steps.append(&mut later.steps);
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    Ok(plan)
}

/// Plans to reconstruct blocks (element and first byte in it) of one stripe, and to write them again. The blocks count
/// as unreadable, except those that have been written again meanwhile: these are left alone. Blocks that cannot be
/// reconstructed are listed in the plan's `lost`; the others are repaired all the same.
pub fn plan_repair(
    plans: &mut SubStripePlans,
    stripe: &Stripe<'_>,
    blocks: &[(usize, u64)],
    scratch: Scratch,
) -> Plan {
    let code = stripe.code();
    let chunk = (0, stripe.geometry.chunk_bytes());
    let mut binder = Binder::new(scratch, chunk);
    let mut plan = Plan::new(Kind::Repair);
    for (low, wanted, readable) in rows_to_repair(stripe, blocks) {
        let high = low + BLOCK_BYTES;
        let (wanted, lost) = plans.split_lost(code, &readable, &wanted);
        for slot in lost.iter() {
            let (column, _, chunk) = stripe.place(slot);
            plan.lost.push(Absent {
                column,
                offset: chunk * stripe.geometry.chunk_bytes() + low,
                length: BLOCK_BYTES,
                slice: None,
            });
        }
        let Ok(recovery) = plans.recover(code, &readable, &wanted) else {
            unreachable!("what can be reconstructed one by one can be together");
        };
        for &slot in &recovery.reads {
            binder.push_read(&mut plan, stripe, slot, low, high);
        }
        let steps = translate(code, &recovery.schedule, 0, Operand::Old);
        binder.push_steps(&mut plan, &steps, low, high);
        for slot in wanted.iter() {
            let slice = binder.slice(Operand::Old(slot), low, high);
            plan.recovers(stripe, slot, low, slice);
            binder.push_write(&mut plan, stripe, slot, Operand::Old(slot), (low, high));
        }
    }
    plan.first_steps = plan.steps.len();
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    plan
}

/// By byte of the elements: the slots to reconstruct there, and the readable slots.
fn rows_to_repair(
    stripe: &Stripe<'_>,
    blocks: &[(usize, u64)],
) -> Vec<(u64, ElementSet, ElementSet)> {
    let mut rows: BTreeMap<u64, ElementSet> = BTreeMap::new();
    for &(slot, low) in blocks {
        let state = stripe.state(slot, low);
        if !matches!(state, BlockState::InMemory(_) | BlockState::Zero) {
            rows.entry(low).or_default().insert(slot);
        }
    }
    let row = |(low, wanted): (u64, ElementSet)| {
        let mut readable = stripe.readable_at(low);
        for slot in wanted.iter() {
            readable.remove(slot);
        }
        (low, wanted, readable)
    };
    rows.into_iter().map(row).collect()
}

/// The effect of a repair on the data at one byte of the elements of a stripe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssessedRow {
    /// Byte of the elements.
    pub low: u64,
    /// Data elements that are lost there, whether or not the repair was to write them again.
    pub lost: Vec<usize>,
    /// Elements that the repair restores.
    pub mended: Vec<usize>,
}

/// The data of a stripe that is lost, and that is repaired, if these blocks are repaired (as by [`plan_repair`]).
pub fn assess_lost(
    plans: &mut SubStripePlans,
    stripe: &Stripe<'_>,
    blocks: &[(usize, u64)],
) -> Vec<AssessedRow> {
    let code = stripe.code();
    let rows = rows_to_repair(stripe, blocks).into_iter();
    rows.map(|(low, wanted, readable)| AssessedRow {
        low,
        lost: super::lost_data(plans, stripe, low, &readable),
        mended: plans
            .split_lost(code, &readable, &wanted)
            .0
            .iter()
            .collect(),
    })
    .collect()
}
