//! Writing: bands, each by the cheaper of read-modify-write and reconstruct-write.

use block::BLOCK_BYTES;
use erasure::ElementSet;

use super::band::{BandPlans, Operand, translate};
use super::bind::{Binder, bands};
use super::{Absent, Kind, Lost, Plan, Scratch, Stripe, runs};
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
    plans: &mut BandPlans,
    stripe: &Stripe<'_>,
    sources: &[Source],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = stripe.geometry.code();
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
    // The plan is called after the dearest of its bands.
    let cost = |kind| match kind {
        Kind::PlainWrite => 0,
        Kind::FullStripe => 1,
        Kind::ReconstructWrite => 2,
        Kind::ReadModifyWrite => 3,
        _ => 4,
    };
    let mut kind = Kind::PlainWrite;
    let ranges: Vec<_> = sources.iter().map(range).collect();
    for (low, high) in bands(&ranges) {
        let mut changed = ElementSet::new(code.elements());
        for source in sources {
            let (source_low, source_high) = range(source);
            if source_low <= low && high <= source_high {
                changed.insert(source.slot);
            }
        }
        for (low, high, readable) in runs(low, high, |at| stripe.readable_at(at)) {
            let band = plans.write(code, &readable, &writable, &changed)?;
            if cost(band.kind) > cost(kind) {
                kind = band.kind;
            }
            for &slot in &band.reads {
                binder.push_read(&mut plan, stripe, slot, low, high);
            }
            binder.push_steps(&mut plan, &band.steps, low, high);
            for &(slot, operand) in &band.writes {
                binder.push_write(&mut plan, stripe, slot, operand, (low, high));
            }
            let parities = changed.iter().flat_map(|slot| code.parities_of(slot));
            let touched: ElementSet = changed.iter().chain(parities.copied()).collect();
            for slot in touched.iter().filter(|&slot| !writable.contains(slot)) {
                let (column, _, chunk) = stripe.place(slot);
                plan.absent.push(Absent {
                    column,
                    offset: chunk * stripe.geometry.chunk_bytes() + low,
                    length: high - low,
                });
            }
        }
    }
    plan.kind = kind;
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    Ok(plan)
}

/// Plans to reconstruct blocks (element and first byte in it) of one stripe, and to write them again.
/// They count as unreadable.
///
/// # Errors
/// [`Lost`] when one of them cannot be reconstructed.
pub fn plan_heal(
    plans: &mut BandPlans,
    stripe: &Stripe<'_>,
    blocks: &[(usize, u64)],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = stripe.geometry.code();
    let chunk = (0, stripe.geometry.chunk_bytes());
    let mut binder = Binder::new(scratch, chunk);
    let mut plan = Plan::new(Kind::Heal);
    let mut rows: Vec<u64> = blocks.iter().map(|&(_, low)| low).collect();
    rows.sort_unstable();
    rows.dedup();
    for low in rows {
        let high = low + BLOCK_BYTES;
        let here = blocks.iter().filter(|&&(_, at)| at == low);
        let wanted: ElementSet = here.map(|&(slot, _)| slot).collect();
        let mut readable = stripe.readable_at(low);
        for slot in wanted.iter() {
            readable.remove(slot);
        }
        let recovery = plans.recover(code, &readable, &wanted)?;
        for &slot in &recovery.reads {
            binder.push_read(&mut plan, stripe, slot, low, high);
        }
        let steps = translate(code, &recovery.schedule, 0, Operand::Old);
        binder.push_steps(&mut plan, &steps, low, high);
        for slot in wanted.iter() {
            binder.push_write(&mut plan, stripe, slot, Operand::Old(slot), (low, high));
        }
    }
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    Ok(plan)
}
