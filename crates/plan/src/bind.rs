//! Maps a sub-stripe's operands to bytes in buffers.

use std::collections::BTreeMap;

use super::sub_stripe::{Operand, SubStripeStep};
use super::{Plan, Scratch, Stripe, Transfer};
use crate::action::{ComputeStep, IoKind, Slice};

/// Bytes of an operand that are not in scratch memory.
#[derive(Clone, Copy, Debug)]
struct Fixed {
    operand: Operand,
    low: u64,
    high: u64,
    slice: Slice,
}

/// Gives every operand of a stripe's plan its bytes. An operand's scratch region is as long as the
/// hull of all the plan's sub-stripes, so that neighbouring sub-stripes of one element are neighbours in memory
/// and their transfers can be joined.
#[derive(Debug)]
pub(super) struct Binder {
    scratch: Scratch,
    hull: (u64, u64),
    regions: BTreeMap<Operand, u64>,
    fixed: Vec<Fixed>,
}

impl Binder {
    pub(super) fn new(scratch: Scratch, hull: (u64, u64)) -> Self {
        Self {
            scratch,
            hull,
            regions: BTreeMap::new(),
            fixed: Vec::new(),
        }
    }

    /// Bytes `low..` of the operand are in `slice`.
    pub(super) fn fix(&mut self, operand: Operand, low: u64, slice: Slice) {
        if slice.length > 0 {
            self.fixed.push(Fixed {
                operand,
                low,
                high: low + slice.length,
                slice,
            });
        }
    }

    /// Where bytes `low..high` of the operand are. The range is in one sub-stripe, so it is either entirely fixed or
    /// entirely in scratch memory.
    pub(super) fn slice(&mut self, operand: Operand, low: u64, high: u64) -> Slice {
        let fixed = self
            .fixed
            .iter()
            .find(|fixed| fixed.operand == operand && fixed.low <= low && high <= fixed.high);
        match fixed {
            Some(fixed) => fixed.slice.part(low - fixed.low, high - low),
            None => self.scratch_slice(operand, low, high),
        }
    }

    fn scratch_slice(&mut self, operand: Operand, low: u64, high: u64) -> Slice {
        let hull_bytes = self.hull.1 - self.hull.0;
        let next = self.scratch_bytes();
        let region = *self.regions.entry(operand).or_insert(next);
        assert!(
            self.hull.0 <= low && high <= self.hull.1,
            "a sub_stripe lies in the hull"
        );
        debug_assert!(high - low <= hull_bytes);
        self.scratch.slice(region + (low - self.hull.0), high - low)
    }

    pub(super) fn scratch_bytes(&self) -> u64 {
        self.regions.len() as u64 * (self.hull.1 - self.hull.0)
    }

    /// Adds the steps of a sub-stripe to the plan. A parity that is a plain copy of one element needs no
    /// computation: its bytes are the element's.
    pub(super) fn push_steps(
        &mut self,
        plan: &mut Plan,
        steps: &[SubStripeStep],
        low: u64,
        high: u64,
    ) {
        let accumulated = |operand| {
            steps
                .iter()
                .any(|step| step.accumulate && step.target == operand)
        };
        for step in steps {
            if let ([(source, 1)], false) = (step.terms.as_slice(), step.accumulate)
                && matches!(step.target, Operand::New(_))
                && !accumulated(step.target)
            {
                let slice = self.slice(*source, low, high);
                self.fix(step.target, low, slice);
                continue;
            }
            let terms = step
                .terms
                .iter()
                .map(|&(operand, coefficient)| (self.slice(operand, low, high), coefficient))
                .collect();
            plan.steps.push(ComputeStep {
                target: self.slice(step.target, low, high),
                accumulate: step.accumulate,
                terms,
            });
        }
    }

    /// Brings bytes `low..high` of an element into its `Old` operand.
    pub(super) fn push_read(
        &mut self,
        plan: &mut Plan,
        stripe: &Stripe<'_>,
        slot: usize,
        low: u64,
        high: u64,
    ) {
        let slice = self.slice(Operand::Old(slot), low, high);
        stripe.fetch(plan, slot, (low, high), slice);
    }

    /// Writes an operand as bytes `low..high` of an element, to every cell that takes writes.
    pub(super) fn push_write(
        &mut self,
        plan: &mut Plan,
        stripe: &Stripe<'_>,
        slot: usize,
        operand: Operand,
        (low, high): (u64, u64),
    ) {
        let (column, place, chunk) = stripe.place(slot);
        for cell in place.cells() {
            plan.writes.push(Transfer {
                seat: cell.seat,
                column,
                kind: IoKind::Write,
                offset: stripe.geometry.drive_offset(cell, chunk) + low,
                length: high - low,
                slice: Some(self.slice(operand, low, high)),
            });
        }
    }
}

/// Cuts `lows..highs` ranges into sub-stripes: the ranges between neighbouring bounds that at least one
/// of the ranges covers.
pub(super) fn sub_stripes(ranges: &[(u64, u64)]) -> Vec<(u64, u64)> {
    let mut bounds: Vec<u64> = ranges.iter().flat_map(|&(low, high)| [low, high]).collect();
    bounds.sort_unstable();
    bounds.dedup();
    bounds
        .windows(2)
        .map(|pair| (pair[0], pair[1]))
        .filter(|&(low, high)| {
            ranges
                .iter()
                .any(|&(range_low, range_high)| range_low <= low && high <= range_high)
        })
        .collect()
}
