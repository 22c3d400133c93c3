//! Finding the stale column of a row.
//!
//! ```text
//!   a row      the same block of every element of one stripe
//!   a trial    assumes that some columns are stale: their blocks are computed from the rest, and with
//!              them every block that cannot be read, and every parity once more
//! ```
//!
//! The plan reads a row completely and computes all trials at once. A trial that leaves the stale columns out gives
//! blocks that agree with every other checksum of the row; any other trial mixes new blocks with old ones and disagrees
//! (a code of distance p + 1 keeps a distance of at least 2 while fewer than p columns are missing).
//! `lane/arbitration/judge.rs` decides; this file has only the arithmetic.

use block::BLOCK_BYTES;
use erasure::{Code, ElementSet};
use format::{Column, Form, StripeId};

use super::sub_stripe::{Operand, SubStripePlans, translate};
use super::{Kind, Plan, Scratch, Stripe};
use crate::action::{ComputeStep, Slice};

/// The same block of every element of a stripe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// Which stripe of the group.
    pub stripe: StripeId,
    /// The form of the stripe, which decides where its elements are.
    pub form: Form,
    /// First byte of the block in each element.
    pub low: u64,
}

/// The content of a row, if some columns are not trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trial {
    /// Which row.
    pub row: Row,
    /// Slots that are trusted: they were read, and match their checksums.
    pub believed: ElementSet,
    /// Columns of the group that are not trusted.
    pub doubted: Vec<Column>,
    /// Every parity, and every other slot that is not trusted, computed from the trusted slots.
    pub results: Vec<(usize, Slice)>,
}

/// All sets of `count` numbers below `of`, in order.
fn subsets(of: u16, count: usize) -> Vec<Vec<u16>> {
    let mut sets = vec![Vec::new()];
    for _ in 0..count {
        sets = sets
            .into_iter()
            .flat_map(|set: Vec<u16>| {
                let first = set.last().map_or(0, |last| last + 1);
                (first..of).map(move |next| [set.as_slice(), &[next]].concat())
            })
            .collect();
    }
    sets
}

/// Number of trials of a row in which `count` columns are not trusted.
#[must_use]
pub fn trials_of_row(columns: u16, count: usize) -> usize {
    let mut trials = 1;
    for taken in 0..count {
        trials = trials * usize::from(columns).saturating_sub(taken) / (taken + 1);
    }
    trials
}

/// Plans to read `rows` of the group completely (`first.stripe` is ignored) and to try, for each row, every set of
/// `doubted` columns that the code can do without.
pub fn plan_arbitrate(
    plans: &mut SubStripePlans,
    first: Stripe<'_>,
    rows: &[Row],
    doubted: usize,
    scratch: Scratch,
) -> (Plan, Vec<Trial>) {
    let columns = first.geometry.layout().columns();
    let mut memory = Memory { scratch, bytes: 0 };
    let mut plan = Plan::new(Kind::Arbitrate);
    let mut trials = Vec::new();
    for &row in rows {
        let stripe = Stripe {
            stripe: row.stripe,
            form: row.form,
            ..first
        };
        let code = stripe.code();
        let readable = stripe.readable_at(row.low);
        let old: Vec<Slice> = (0..code.elements()).map(|_| memory.block()).collect();
        for slot in readable.iter() {
            let range = (row.low, row.low + BLOCK_BYTES);
            stripe.fetch(&mut plan, slot, range, old[slot]);
        }
        for doubted in subsets(columns, doubted) {
            let doubted: Vec<Column> = doubted.into_iter().map(Column).collect();
            let believes = |slot: &usize| !doubted.contains(&stripe.place(*slot).0);
            let believed: ElementSet = readable.iter().filter(believes).collect();
            let steps = &mut plan.steps;
            if let Some(results) = compute(plans, code, &believed, &old, &mut memory, steps) {
                trials.push(Trial {
                    row,
                    believed,
                    doubted,
                    results,
                });
            }
        }
    }
    plan.scratch_bytes = memory.bytes;
    plan.first_steps = plan.steps.len();
    plan.merge_transfers();
    (plan, trials)
}

/// Scratch memory, a block at a time.
struct Memory {
    scratch: Scratch,
    bytes: u64,
}

impl Memory {
    fn block(&mut self) -> Slice {
        self.bytes += BLOCK_BYTES;
        self.scratch.slice(self.bytes - BLOCK_BYTES, BLOCK_BYTES)
    }
}

/// Computes the slots that are not trusted from the trusted ones, and then all parity; `None` if the code cannot.
fn compute(
    plans: &mut SubStripePlans,
    code: &Code,
    believed: &ElementSet,
    old: &[Slice],
    memory: &mut Memory,
    steps: &mut Vec<ComputeStep>,
) -> Option<Vec<(usize, Slice)>> {
    let data: ElementSet = code.data_slots().collect();
    let parities: ElementSet = code.parity_slots().collect();
    let missing = data.difference(believed);
    let decode = plans.recover(code, believed, &missing).ok()?;
    let encode = plans
        .recover(code, &data, &parities)
        .expect("parity follows from all data");
    let anew: Vec<Option<Slice>> = (0..code.elements())
        .map(|slot| (missing.contains(slot) || parities.contains(slot)).then(|| memory.block()))
        .collect();
    let temporaries = [&decode, &encode].map(|all| all.schedule.slots() - code.elements());
    let temporaries: Vec<Slice> = (0..temporaries[0].max(temporaries[1]))
        .map(|_| memory.block())
        .collect();
    let slice = |operand: Operand| match operand {
        Operand::Old(slot) => old[slot],
        Operand::New(slot) => anew[slot].expect("only what is not believed is computed"),
        Operand::Temporary(index) => temporaries[index],
    };
    // Decoding reads parity as it is on the drives; encoding computes it beside that.
    let decoded = |slot| match missing.contains(slot) {
        true => Operand::New(slot),
        false => Operand::Old(slot),
    };
    let encoded = |slot| match parities.contains(slot) {
        true => Operand::New(slot),
        false => decoded(slot),
    };
    let decode = translate(code, &decode.schedule, 0, decoded);
    let encode = translate(code, &encode.schedule, 0, encoded);
    steps.extend(decode.iter().chain(&encode).map(|step| {
        ComputeStep {
            target: slice(step.target),
            accumulate: step.accumulate,
            terms: step
                .terms
                .iter()
                .map(|&(term, by)| (slice(term), by))
                .collect(),
        }
    }));
    let results = anew.iter().enumerate();
    Some(
        results
            .filter_map(|(slot, slice)| slice.map(|slice| (slot, slice)))
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subsets_are_all_sets_of_a_size() {
        assert_eq!(subsets(4, 0), [Vec::<u16>::new()]);
        assert_eq!(subsets(3, 2), [vec![0, 1], vec![0, 2], vec![1, 2]]);
        for (columns, count) in [(6, 0), (6, 1), (6, 2), (24, 3)] {
            assert_eq!(
                subsets(columns, count).len(),
                trials_of_row(columns, count),
                "{columns} {count}"
            );
        }
    }
}
