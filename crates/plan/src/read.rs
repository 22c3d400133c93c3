//! Reading: directly where possible, by reconstruction where not.

use block::BLOCK_BYTES;
use erasure::ElementSet;

use super::bind::{Binder, sub_stripes};
use super::sub_stripe::{Operand, SubStripePlans, translate};
use super::{Kind, Lost, Plan, Scratch, Stripe};
use crate::action::{ComputeStep, Slice};

/// A range of bytes of one element, and where the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Which element.
    pub slot: usize,
    /// First byte in the element.
    pub low: u64,
    /// Where the bytes go; as many as the slice has.
    pub slice: Slice,
}

impl Piece {
    fn high(&self) -> u64 {
        self.low + self.slice.length
    }

    /// The whole blocks that the piece touches.
    fn widened(&self) -> (u64, u64) {
        (
            self.low / BLOCK_BYTES * BLOCK_BYTES,
            self.high().next_multiple_of(BLOCK_BYTES),
        )
    }

    /// The whole blocks that the piece covers; empty if there are none.
    fn inner(&self) -> (u64, u64) {
        let low = self.low.next_multiple_of(BLOCK_BYTES);
        (low, low.max(self.high() / BLOCK_BYTES * BLOCK_BYTES))
    }
}

/// Plans to read `pieces` of one stripe. Drives are read in whole blocks; bytes of blocks that a
/// piece covers only in part go through scratch memory.
///
/// # Errors
/// [`Lost`] when a piece can neither be read nor reconstructed.
pub fn plan_read(
    plans: &mut SubStripePlans,
    stripe: &Stripe<'_>,
    pieces: &[Piece],
    scratch: Scratch,
) -> Result<Plan, Lost> {
    let code = stripe.code();
    let mut plan = Plan::new(Kind::Read);
    let widened = || pieces.iter().map(Piece::widened);
    // Without pieces (a write of zeros that covers whole blocks reads nothing) there is no hull.
    let hull = (
        widened().map(|(low, _)| low).min().unwrap_or(0),
        widened().map(|(_, high)| high).max().unwrap_or(0),
    );
    let mut binder = Binder::new(scratch, hull);
    for piece in pieces {
        let (low, high) = piece.inner();
        if low < high {
            let slice = piece.slice.part(low - piece.low, high - low);
            binder.fix(Operand::Old(piece.slot), low, slice);
        }
    }
    let ranges = pieces
        .iter()
        .flat_map(|piece| {
            let ((low, high), (inner_low, inner_high)) = (piece.widened(), piece.inner());
            // A piece inside one block has no inner part, and its "inner" bounds cross.
            if inner_low < inner_high {
                vec![
                    (low, inner_low),
                    (inner_low, inner_high),
                    (inner_high, high),
                ]
            } else {
                vec![(low, high)]
            }
        })
        .filter(|(low, high)| low < high)
        .collect::<Vec<_>>();
    for (low, high) in sub_stripes(&ranges) {
        let mut wanted = ElementSet::new(code.elements());
        for piece in pieces {
            let (piece_low, piece_high) = piece.widened();
            if piece_low <= low && high <= piece_high {
                wanted.insert(piece.slot);
            }
        }
        let whole = |at| wanted.iter().all(|slot| stripe.is_readable(slot, at));
        for (low, high, whole) in stripe.runs(low, high, whole) {
            if whole {
                for slot in wanted.iter() {
                    binder.push_read(&mut plan, stripe, slot, low, high);
                }
                continue;
            }
            plan.kind = Kind::DegradedRead;
            for (low, high, readable) in stripe.runs(low, high, |at| stripe.readable_at(at)) {
                let recovery = plans.recover(code, &readable, &wanted)?;
                for &slot in &recovery.reads {
                    binder.push_read(&mut plan, stripe, slot, low, high);
                }
                let steps = translate(code, &recovery.schedule, 0, Operand::Old);
                binder.push_steps(&mut plan, &steps, low, high);
                for slot in wanted.iter().filter(|&slot| !readable.contains(slot)) {
                    let slice = binder.slice(Operand::Old(slot), low, high);
                    plan.recovers(stripe, slot, low, slice);
                }
            }
        }
    }
    plan.first_steps = plan.steps.len();
    for piece in pieces {
        copy_edges(&mut plan, &mut binder, piece);
    }
    plan.scratch_bytes = binder.scratch_bytes();
    plan.merge_transfers();
    Ok(plan)
}

/// Copies the bytes of partly covered blocks from scratch memory to their destination.
fn copy_edges(plan: &mut Plan, binder: &mut Binder, piece: &Piece) {
    let (inner_low, inner_high) = piece.inner();
    let edges = if inner_low < inner_high {
        vec![(piece.low, inner_low), (inner_high, piece.high())]
    } else {
        // At most two blocks, both partly covered; they are neighbours in scratch memory.
        vec![(piece.low, piece.high())]
    };
    for (low, high) in edges {
        if low < high {
            plan.steps.push(ComputeStep {
                target: piece.slice.part(low - piece.low, high - low),
                accumulate: false,
                terms: vec![(binder.slice(Operand::Old(piece.slot), low, high), 1)],
            });
        }
    }
}
