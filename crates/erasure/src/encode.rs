//! Encoding and updating; sums that several steps need are computed once.
//!
//! EVENODD shows why: its S, the sum of one diagonal, is a part of every Q equation. Written out, S
//! costs p − 2 additions in each of p − 1 equations; computed once it costs p − 2 in all, and the
//! total falls from nearly 3 to nearly 2 per data element. The search below has no special case for
//! S. It makes the pair of slots that most steps contain a temporary, and repeats (Paar's greedy
//! elimination of common subexpressions; C. Paar, "Optimized arithmetic for Reed-Solomon encoders",
//! ISIT 1997). A temporary with only one user is folded back into this user.

use std::collections::BTreeMap;

use crate::equations::{Code, slot};
use crate::schedule::{Schedule, Step};

/// The effect of a write of some data elements on the parities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// The parity slots that change, in evaluation order.
    pub parities: Vec<usize>,
    /// From deltas (old ^ new) in the changed data slots to new parities, accumulated onto the old
    /// ones in the parity slots.
    pub schedule: Schedule,
}

pub(crate) fn encode(code: &Code) -> Schedule {
    let steps = code.checks().iter().map(|check| Step {
        target: check[0].0,
        accumulate: false,
        terms: check[1..].to_vec(),
    });
    Schedule::new(
        code.elements(),
        share(steps.collect(), slot(code.elements())),
    )
}

impl Code {
    /// The parities that change when the data in the slots `changed` changes, and how to compute
    /// them from deltas.
    ///
    /// Parities are expanded to data. A parity is left out if its changes cancel whatever the
    /// deltas are; a parity that is reached only through another parity is included.
    ///
    /// # Panics
    ///
    /// When a slot in `changed` does not hold data.
    pub fn update(&self, changed: &[usize]) -> Update {
        let mut parities = Vec::new();
        let mut steps = Vec::new();
        assert!(
            changed.iter().all(|&d| self.is_data(d)),
            "deltas are of data"
        );
        for parity in self.parity_slots() {
            let terms: Vec<_> = changed
                .iter()
                .map(|&d| (slot(d), self.coefficient(parity, d)))
                .filter(|&(_, coefficient)| coefficient != 0)
                .collect();
            if !terms.is_empty() {
                parities.push(parity);
                steps.push(Step {
                    target: slot(parity),
                    accumulate: true,
                    terms,
                });
            }
        }
        Update {
            parities,
            schedule: Schedule::new(self.elements(), share(steps, slot(self.elements()))),
        }
    }
}

/// Above this many pairs in all steps together, sums are not shared: the search would take longer
/// than sharing can save (Cauchy over hundreds of columns).
const PAIRS_MAX: usize = 1 << 20;

/// Turns sums that several steps have in common into temporaries, numbered from `first` on.
///
/// Only terms with coefficient 1 are shared. Slots that the steps read must not change between
/// their first and last use, which holds where every slot is written once.
pub(crate) fn share(steps: Vec<Step>, first: u16) -> Vec<Step> {
    let pairs_in = |step: &Step| step.terms.len() * step.terms.len() / 2;
    if steps.iter().map(pairs_in).sum::<usize>() > PAIRS_MAX {
        return steps;
    }
    let mut pool = Pool::new(&steps);
    let mut temporaries: Vec<(u16, u16)> = Vec::new();
    while let Some((a, b)) = pool.most_common() {
        let temporary = first + slot(temporaries.len());
        pool.replace(a, b, temporary);
        temporaries.push((a, b));
    }
    emit(steps, &pool.terms, &temporaries, first)
}

/// The steps' terms with coefficient 1, and how many steps have each pair of them.
struct Pool {
    terms: Vec<Vec<u16>>,
    pairs: BTreeMap<(u16, u16), u32>,
}

impl Pool {
    fn new(steps: &[Step]) -> Self {
        let ones = |step: &Step| {
            let terms = step.terms.iter().filter(|&&(_, c)| c == 1);
            terms.map(|&(s, _)| s).collect::<Vec<_>>()
        };
        let terms: Vec<Vec<u16>> = steps.iter().map(ones).collect();
        let mut pairs = BTreeMap::new();
        for list in &terms {
            for (i, &a) in list.iter().enumerate() {
                for &b in &list[i + 1..] {
                    *pairs.entry(ordered(a, b)).or_insert(0) += 1;
                }
            }
        }
        pairs.retain(|_, count| *count > 1);
        Self { terms, pairs }
    }

    /// The pair that the most steps share, the first of equals.
    fn most_common(&self) -> Option<(u16, u16)> {
        let best = self.pairs.iter().rev().max_by_key(|(_, count)| **count)?;
        (*best.1 > 1).then_some(*best.0)
    }

    fn replace(&mut self, a: u16, b: u16, temporary: u16) {
        let mut fresh: BTreeMap<(u16, u16), u32> = BTreeMap::new();
        for list in &mut self.terms {
            if !(list.contains(&a) && list.contains(&b)) {
                continue;
            }
            list.retain(|&x| x != a && x != b);
            for &x in list.iter() {
                for y in [a, b] {
                    if let Some(count) = self.pairs.get_mut(&ordered(x, y)) {
                        *count -= 1;
                    }
                }
                *fresh.entry(ordered(x, temporary)).or_insert(0) += 1;
            }
            list.push(temporary);
        }
        self.pairs.remove(&ordered(a, b));
        self.pairs.retain(|_, count| *count > 1);
        fresh.retain(|_, count| *count > 1);
        self.pairs.append(&mut fresh);
    }
}

fn ordered(a: u16, b: u16) -> (u16, u16) {
    (a.min(b), a.max(b))
}

/// The steps with their new terms. Every temporary is computed before its first use; a temporary
/// with one user is expanded inside this user.
fn emit(steps: Vec<Step>, terms: &[Vec<u16>], temporaries: &[(u16, u16)], first: u16) -> Vec<Step> {
    let mut uses = vec![0; temporaries.len()];
    let inner = temporaries.iter().flat_map(|&(a, b)| [a, b]);
    for used in terms.iter().flatten().copied().chain(inner) {
        if used >= first {
            uses[usize::from(used - first)] += 1;
        }
    }
    let mut number = vec![None; temporaries.len()];
    let mut next = first;
    let mut out = Vec::new();
    for (step, ones) in steps.into_iter().zip(terms) {
        let mut sum: Vec<(u16, u8)> = Vec::new();
        for &term in ones {
            expand(
                term,
                first,
                temporaries,
                &uses,
                &mut number,
                &mut next,
                &mut out,
                &mut sum,
            );
        }
        sum.extend(step.terms.iter().filter(|&&(_, c)| c != 1));
        sum.sort_unstable();
        out.push(Step { terms: sum, ..step });
    }
    out
}

/// Adds `term` to `sum`. A temporary with one user is replaced by its two halves.
#[expect(clippy::too_many_arguments, reason = "one recursion over emit's state")]
fn expand(
    term: u16,
    first: u16,
    temporaries: &[(u16, u16)],
    uses: &[u32],
    number: &mut [Option<u16>],
    next: &mut u16,
    out: &mut Vec<Step>,
    sum: &mut Vec<(u16, u8)>,
) {
    let Some(index) = term.checked_sub(first).map(usize::from) else {
        sum.push((term, 1));
        return;
    };
    let (a, b) = temporaries[index];
    if uses[index] == 1 {
        expand(a, first, temporaries, uses, number, next, out, sum);
        expand(b, first, temporaries, uses, number, next, out, sum);
        return;
    }
    if number[index].is_none() {
        let mut inner = Vec::new();
        expand(a, first, temporaries, uses, number, next, out, &mut inner);
        expand(b, first, temporaries, uses, number, next, out, &mut inner);
        inner.sort_unstable();
        out.push(Step {
            target: *next,
            accumulate: false,
            terms: inner,
        });
        number[index] = Some(*next);
        *next += 1;
    }
    sum.push((number[index].expect("just set"), 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_common_to_three_steps_is_computed_once_in_one_step() {
        let step = |target, slots: &[u16]| Step {
            target,
            accumulate: false,
            terms: slots.iter().map(|&s| (s, 1)).collect(),
        };
        let shared = share(
            vec![
                step(10, &[0, 1, 2, 3]),
                step(11, &[0, 1, 2, 4]),
                step(12, &[0, 1, 2, 5]),
            ],
            20,
        );
        assert_eq!(
            Schedule::new(20, shared).to_string(),
            "t0 = 0 + 1 + 2\n10 = 3 + t0\n11 = 4 + t0\n12 = 5 + t0\n"
        );
    }
}
