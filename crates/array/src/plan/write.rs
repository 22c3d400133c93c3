//! Writing: bands, each by the cheaper of read-modify-write and reconstruct-write.

use block::BLOCK_BYTES;
use erasure::ElementSet;

use super::band::{BandPlans, Operand};
use super::bind::{Binder, bands};
use super::{Kind, Lost, Plan, Scratch, Stripe};
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
    let readable = stripe.readable();
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
    let mut plan = Plan {
        kind: Kind::FullStripe,
        scratch_bytes: 0,
        reads: Vec::new(),
        steps: Vec::new(),
        writes: Vec::new(),
    };
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
    }
    plan.kind = kind;
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    Ok(plan)
}
