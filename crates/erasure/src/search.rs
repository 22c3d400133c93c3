//! Choice of the equations: for the fewest reads, or for the least loaded drives.
//!
//! For targets e_1 … e_m choose m equations whose unknown parts are independent; the reads are the
//! union of their known parts. Any such choice can be ordered so that the i-th equation contains
//! e_i (a nonsingular matrix has a nonzero diagonal after some permutation). So the search goes
//! target by target, drops dependent choices at once, and cuts branches that already read as much
//! as the best choice so far. Half the equations of X-Code, D-Code and RDP overlap with the other
//! half. This overlap saves about a quarter of the reads (Xu et al., "Single Disk Failure Recovery
//! for X-code-based Parallel Storage Systems", IEEE Trans. Computers, 2013; Khan et al.,
//! "Rethinking Erasure Codes for Cloud File Systems", FAST 2012).
//!
//! Within [`Search::nodes`] the search is exhaustive over the equations given. Beyond that, it
//! keeps the best choice found and improves it by exchanging one or two equations until this does
//! not help.

use crate::element::ElementSet;

/// The quantity to minimise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objective {
    /// Elements read, then terms added.
    Reads,
    /// The largest number of elements read from one column, then as above.
    Maximum,
}

/// One equation in the form that the search uses.
#[derive(Clone, Debug)]
pub(crate) struct Word {
    /// The targets that it contains, by number.
    pub(crate) unknown: u128,
    /// The known elements that it contains.
    pub(crate) known: ElementSet,
}

pub(crate) struct Search<'a> {
    pub(crate) words: &'a [Word],
    pub(crate) targets: usize,
    pub(crate) columns: usize,
    /// Elements that are read in any case.
    pub(crate) also_read: &'a ElementSet,
    pub(crate) objective: Objective,
    pub(crate) nodes: usize,
}

/// Compared from left to right: maximum (or 0), reads, terms.
type Cost = (usize, usize, usize);

/// A choice of words, one for each target, and whether it is proven best.
pub(crate) struct Choice {
    pub(crate) words: Vec<usize>,
    pub(crate) optimal: bool,
}

impl Search<'_> {
    pub(crate) fn run(&self) -> Option<Choice> {
        let mut options: Vec<Vec<usize>> = (0..self.targets)
            .map(|t| {
                let with = |&w: &usize| self.words[w].unknown >> t & 1 == 1;
                (0..self.words.len()).filter(with).collect()
            })
            .collect();
        // Targets with few options first: they prune the others.
        options.sort_by_key(Vec::len);
        let mut state = State {
            search: self,
            options,
            chosen: Vec::new(),
            basis: Vec::new(),
            best: None,
            nodes: 0,
        };
        let counts = Counts::new(self, self.also_read);
        state.descend(self.also_read, &counts, 0);
        let optimal = state.nodes < self.nodes;
        let (_, mut words) = state.best?;
        if !optimal {
            self.improve(&mut words);
        }
        Some(Choice { words, optimal })
    }

    fn cost_of(&self, words: &[usize]) -> Option<Cost> {
        let mut basis = Vec::new();
        let mut reads = self.also_read.clone();
        let mut terms = 0;
        for &w in words {
            basis.push(independent(&basis, self.words[w].unknown)?);
            reads.union_with(&self.words[w].known);
            terms += self.words[w].known.len();
        }
        Some(Counts::new(self, &reads).cost(self, reads.len(), terms))
    }

    /// Exchanges one word, then pairs of words, as long as that helps.
    fn improve(&self, words: &mut [usize]) {
        let mut best = self.cost_of(words).expect("a choice is independent");
        let count = words.len();
        loop {
            let before = best;
            for i in 0..count {
                for other in 0..self.words.len() {
                    self.exchange(words, &[(i, other)], &mut best);
                }
            }
            // Pairs only where both equations have an alternative in one target.
            let alternatives: Vec<Vec<usize>> = words
                .iter()
                .map(|&w| {
                    let meets = |&o: &usize| self.words[o].unknown & self.words[w].unknown != 0;
                    (0..self.words.len()).filter(meets).collect()
                })
                .collect();
            for i in 0..count {
                for j in i + 1..count {
                    for &a in &alternatives[i] {
                        for &b in &alternatives[j] {
                            self.exchange(words, &[(i, a), (j, b)], &mut best);
                        }
                    }
                }
            }
            if best == before {
                return;
            }
        }
    }

    fn exchange(&self, words: &mut [usize], changes: &[(usize, usize)], best: &mut Cost) {
        let old: Vec<usize> = changes.iter().map(|&(i, _)| words[i]).collect();
        changes.iter().for_each(|&(i, w)| words[i] = w);
        match self.cost_of(words) {
            Some(cost) if cost < *best => *best = cost,
            _ => changes
                .iter()
                .zip(old)
                .for_each(|(&(i, _), w)| words[i] = w),
        }
    }
}

/// Reads from each column.
#[derive(Clone)]
struct Counts(Vec<usize>);

impl Counts {
    fn new(search: &Search<'_>, reads: &ElementSet) -> Self {
        let mut counts = Self(Vec::new());
        if search.objective == Objective::Maximum {
            counts.0 = vec![0; search.columns];
            reads
                .iter()
                .for_each(|slot| counts.0[slot % search.columns] += 1);
        }
        counts
    }

    fn cost(&self, search: &Search<'_>, reads: usize, terms: usize) -> Cost {
        let maximum = match search.objective {
            Objective::Reads => 0,
            Objective::Maximum => self.0.iter().copied().max().unwrap_or(0),
        };
        (maximum, reads, terms)
    }
}

struct State<'a> {
    search: &'a Search<'a>,
    options: Vec<Vec<usize>>,
    chosen: Vec<usize>,
    basis: Vec<u128>,
    best: Option<(Cost, Vec<usize>)>,
    nodes: usize,
}

impl State<'_> {
    fn descend(&mut self, reads: &ElementSet, counts: &Counts, terms: usize) {
        let cost = counts.cost(self.search, reads.len(), terms);
        if self.best.as_ref().is_some_and(|(best, _)| cost >= *best) {
            return;
        }
        let depth = self.chosen.len();
        if depth == self.options.len() {
            self.best = Some((cost, self.chosen.clone()));
            return;
        }
        // The word that adds the fewest reads first, so that good choices come early.
        let mut order: Vec<(usize, usize)> = self.options[depth]
            .iter()
            .map(|&w| (reads.missing(&self.search.words[w].known), w))
            .collect();
        order.sort_unstable();
        for (_, w) in order {
            // Until a first choice is found the search gets eight times its nodes, then it gives
            // up.
            let budget = if self.best.is_some() { 1 } else { 8 };
            if self.nodes >= budget * self.search.nodes {
                return;
            }
            let word = &self.search.words[w];
            let Some(reduced) = independent(&self.basis, word.unknown) else {
                continue;
            };
            self.nodes += 1;
            self.basis.push(reduced);
            self.chosen.push(w);
            let union = reads.union(&word.known);
            let counts = match self.search.objective {
                Objective::Reads => counts.clone(),
                Objective::Maximum => Counts::new(self.search, &union),
            };
            self.descend(&union, &counts, terms + word.known.len());
            self.chosen.pop();
            self.basis.pop();
        }
    }
}

/// The vector reduced by the basis, or `None` if it depends on the basis. The highest bit of each
/// basis vector is unset in all later ones.
fn independent(basis: &[u128], vector: u128) -> Option<u128> {
    let reduced = basis.iter().fold(vector, |v, &b| v.min(v ^ b));
    (reduced != 0).then_some(reduced)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_equations_are_preferred_and_dependent_ones_refused() {
        let word = |unknown, known: &[usize]| Word {
            unknown,
            known: known.iter().copied().collect(),
        };
        let words = [
            word(0b01, &[0, 1, 2]),
            word(0b01, &[3, 4, 5]),
            word(0b10, &[3, 4, 6]),
            word(0b11, &[0]),
        ];
        let search = Search {
            words: &words,
            targets: 2,
            columns: 7,
            also_read: &ElementSet::default(),
            objective: Objective::Reads,
            nodes: 1000,
        };
        let choice = search.run().expect("there is one");
        assert!(choice.optimal);
        // {0,1,2} with {0}: three reads in all; {3,4,5} with {3,4,6} would be four.
        let mut chosen = choice.words;
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 3]);
        let dependent = [word(0b01, &[0]), word(0b01, &[1])];
        assert!(
            Search {
                words: &dependent,
                ..search
            }
            .run()
            .is_none()
        );
    }
}
