//! One lost column from the fewest reads, and degraded reads under three policies.
//!
//! Each lost element is in two equations or more, and the reads of equations overlap. For D-Code
//! with n = 7 and column 0 lost, rebuilding every data element by its horizontal equation reads 31
//! elements. A well-chosen mix of three equations of one kind and two of the other reads 26:
//!
//! ```text
//!   lost element       0,0  1,0  2,0  3,0  4,0  P5,0  P6,0
//!   horizontal only    26 reads for the data, 31 with the two parities
//!   mixed               H    H    D    D    H   (say): rows and diagonals cross in what they read
//! ```
//!
//! [`search`](crate::search) makes the choice among the equations whose unknown part lies within
//! the wanted elements. (Sums of two equations were tried as well, for all codes up to p = 13: they
//! never saved a read.)

use std::collections::BTreeSet;

use crate::decode::{Recovery, Unrecoverable};
use crate::element::ElementSet;
use crate::equations::Code;
use crate::schedule::Step;
use crate::search::{Objective, Search, Word};

/// A column's recovery, and whether it is optimal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ColumnRecovery {
    /// The reads and the computation.
    pub recovery: Recovery,
    /// True if no choice of equations reads fewer elements: the search was exhaustive. False if
    /// this is the best choice of a long search.
    pub optimal: bool,
}

/// Which equations a degraded read uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPolicy {
    /// The first equation of each lost element, in evaluation order: for most codes the horizontal
    /// one, for X-Code the diagonal one. The D-Code paper measures this policy.
    FirstEquation,
    /// The fewest elements read in all.
    FewestReads,
    /// The smallest number of elements read from any one column, then the fewest in all: the
    /// shortest time on drives that work in parallel.
    SmallestMaximum,
}

/// Search nodes for a whole column: all choices for D-Code up to n = 17, some milliseconds of
/// searching beyond.
const COLUMN_NODES: usize = 60_000;

/// Search nodes for a read that is waiting: below a millisecond.
const READ_NODES: usize = 2_000;

impl Code {
    /// How to rebuild column `column` from the fewest elements of the others. Computed once.
    ///
    /// # Errors
    ///
    /// [`Unrecoverable`] when the code has no redundancy.
    pub fn recover_column(&self, column: u16) -> Result<&ColumnRecovery, Unrecoverable> {
        let cell = &self.columns_recovery[usize::from(column)];
        let result = cell.get_or_init(|| {
            let known = self.without_columns(&[column]);
            let wanted = self.columns_set(&[column]);
            let none = ElementSet::default();
            let found = self.choose(&known, &wanted, &none, Objective::Reads, COLUMN_NODES);
            let (steps, optimal) = match found {
                Some(found) => found,
                None => (self.solve_by(self.checks(), &known, &wanted)?, false),
            };
            Ok(ColumnRecovery {
                recovery: self.recovery(&none, &wanted, steps),
                optimal,
            })
        });
        result.as_ref().map_err(Clone::clone)
    }

    /// How to read the `wanted` elements when only the `known` ones can be read.
    ///
    /// Wanted elements that are known are read; an element that is needed for several lost ones is
    /// read once. Where the policy's equations do not suffice (for example several columns lost),
    /// the plan is that of [`recover`](Self::recover).
    ///
    /// # Errors
    ///
    /// [`Unrecoverable`] when a wanted element is not determined by the known ones.
    pub fn plan_read(
        &self,
        known: &ElementSet,
        wanted: &ElementSet,
        policy: ReadPolicy,
    ) -> Result<Recovery, Unrecoverable> {
        let targets = wanted.difference(known);
        let also_read = wanted.intersection(known);
        let objective = match policy {
            ReadPolicy::FirstEquation => {
                return match self.first_equations(known, &targets) {
                    Some(steps) => Ok(self.recovery(&also_read, &targets, steps)),
                    None => self.recover(known, wanted),
                };
            }
            ReadPolicy::FewestReads => Objective::Reads,
            ReadPolicy::SmallestMaximum => Objective::Maximum,
        };
        if targets.is_empty() {
            return Ok(self.recovery(&also_read, &targets, Vec::new()));
        }
        match self.choose(known, &targets, &also_read, objective, COLUMN_NODES) {
            Some((steps, _)) => Ok(self.recovery(&also_read, &targets, steps)),
            None => self.recover(known, wanted),
        }
    }

    /// Solves each target by its first equation that has no other unknown.
    fn first_equations(&self, known: &ElementSet, targets: &ElementSet) -> Option<Vec<Step>> {
        let alone = |target: usize| {
            let checks = self
                .checks_of(target)
                .iter()
                .map(|&k| &self.checks()[usize::from(k)]);
            let mut alone = checks.filter(|check| {
                let others = check.iter().map(|&(s, _)| usize::from(s));
                others.filter(|&s| s != target).all(|s| known.contains(s))
            });
            alone.next().cloned()
        };
        let checks: Option<Vec<_>> = targets.iter().map(alone).collect();
        self.solve_by(&checks?, known, targets).ok()
    }

    /// The recovery of elements of one column, for [`recover`](Self::recover).
    pub(crate) fn single_column(
        &self,
        known: &ElementSet,
        targets: &ElementSet,
        also_read: &ElementSet,
    ) -> Option<Vec<Step>> {
        let column = self.element(targets.iter().next()?).column;
        if targets.iter().any(|t| self.element(t).column != column) {
            return None;
        }
        let whole = targets.len() == usize::from(self.rows());
        if whole && known.len() + targets.len() == self.elements() {
            let cached = self.recover_column(column).ok()?;
            return Some(cached.recovery.schedule.steps.clone());
        }
        let found = self.choose(known, targets, also_read, Objective::Reads, READ_NODES)?;
        Some(found.0)
    }

    /// Chooses equations for the targets: the steps, and whether they are proven best. `None` where
    /// the equations do not suffice.
    fn choose(
        &self,
        known: &ElementSet,
        targets: &ElementSet,
        also_read: &ElementSet,
        objective: Objective,
        nodes: usize,
    ) -> Option<(Vec<Step>, bool)> {
        let numbered: Vec<usize> = targets.iter().collect();
        // The search's algebra is over GF(2). A code with coefficients is searched only for a
        // single target, which takes one equation and needs no algebra.
        if numbered.len() > 128 || (!self.is_xor() && numbered.len() > 1) {
            return None;
        }
        let near: BTreeSet<usize> = numbered
            .iter()
            .flat_map(|&t| self.checks_of(t).iter().map(|&k| usize::from(k)))
            .collect();
        let mut checks: Vec<Vec<(u16, u8)>> = Vec::new();
        let mut words: Vec<Word> = Vec::new();
        let mut add = |check: Vec<(u16, u8)>| {
            if let Some(word) = word(&check, known, &numbered) {
                words.push(word);
                checks.push(check);
            }
        };
        for &k in &near {
            add(self.checks()[k].clone());
        }
        let search = Search {
            words: &words,
            targets: numbered.len(),
            columns: usize::from(self.columns()),
            also_read,
            objective,
            nodes,
        };
        let choice = search.run()?;
        let chosen: Vec<_> = choice.words.iter().map(|&w| checks[w].clone()).collect();
        let steps = self.solve_by(&chosen, known, targets).ok()?;
        Some((steps, choice.optimal))
    }
}

/// A check in the form of the search; `None` if it has no target, or an unknown that is no target.
fn word(check: &[(u16, u8)], known: &ElementSet, targets: &[usize]) -> Option<Word> {
    let mut word = Word {
        unknown: 0,
        known: ElementSet::default(),
    };
    for &(s, _) in check {
        let s = usize::from(s);
        if known.contains(s) {
            word.known.insert(s);
        } else {
            word.unknown |= 1 << targets.binary_search(&s).ok()?;
        }
    }
    (word.unknown != 0).then_some(word)
}
