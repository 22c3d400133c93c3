//! Recovery of some elements of a stripe from others: peeling, and elimination where peeling stops.
//!
//! Every equation is a sum that is zero. An equation with a single unknown gives this unknown
//! (*peeling*); D-Code's two chains and RDP's zig-zag are peeling. When every remaining equation
//! has several unknowns, they are solved as a linear system, but for one unknown only: the unknown
//! that needs the fewest equations. Peeling usually continues from there. The known part of an
//! equation that the system uses is summed once, into a temporary (a *syndrome*); a later peeling
//! of the same equation reuses the syndrome. For P+Q this gives the textbook's decoding: two
//! syndromes, one multiplication each, and D_y = P' + D_x.

use std::borrow::Cow;

use crate::element::ElementSet;
use crate::equations::{Code, slot};
use crate::gf;
use crate::schedule::{Schedule, Step};

/// How to compute some elements from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// The slots to read, ascending: known slots that are wanted or that the schedule uses.
    pub reads: Vec<usize>,
    /// Computes the wanted elements that are not known from the reads.
    pub schedule: Schedule,
}

/// The known elements do not determine the wanted ones.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} of the wanted elements do not follow from the {known} known ones, because {code} survives the loss of {tolerance} columns and more are missing here",
    elements.len()
)]
pub struct Unrecoverable {
    /// The wanted slots that are lost.
    pub elements: Vec<usize>,
    /// How many elements are known.
    pub known: usize,
    /// The code's name.
    pub code: String,
    /// How many lost columns the code survives.
    pub tolerance: u16,
}

impl Unrecoverable {
    /// One thing to try, in small letters and without a full stop.
    pub fn hint(&self) -> Option<Cow<'_, str>> {
        Some("bring back a drive".into())
    }
}

impl Code {
    /// How to compute the `wanted` elements from few of the `known` ones.
    ///
    /// Wanted elements that are known are only read. Elements that are neither wanted nor known are
    /// not written: where such an element is an intermediate result, it is a temporary.
    ///
    /// # Errors
    ///
    /// [`Unrecoverable`] when a wanted element is not determined by the known ones.
    pub fn recover(
        &self,
        known: &ElementSet,
        wanted: &ElementSet,
    ) -> Result<Recovery, Unrecoverable> {
        let targets = wanted.difference(known);
        let mut reads = wanted.intersection(known);
        if targets.is_empty() {
            return Ok(self.recovery(&reads, &targets, Vec::new()));
        }
        let data_known = self.data_slots().all(|d| known.contains(d));
        let steps = if data_known {
            self.encode().steps.clone()
        } else if let Some(steps) = self.single_column(known, &targets, &reads) {
            steps
        } else {
            Solver::new(self, self.checks(), known, &targets, &mut reads).solve()?
        };
        Ok(self.recovery(&wanted.intersection(known), &targets, steps))
    }

    /// Solves for the targets, using only the given checks.
    pub(crate) fn solve_by(
        &self,
        checks: &[Vec<(u16, u8)>],
        known: &ElementSet,
        targets: &ElementSet,
    ) -> Result<Vec<Step>, Unrecoverable> {
        let mut reads = ElementSet::default();
        Solver::new(self, checks, known, targets, &mut reads).solve()
    }

    /// Keeps the steps that the targets need, turns intermediate results into temporaries, and
    /// collects the reads.
    pub(crate) fn recovery(
        &self,
        also_read: &ElementSet,
        targets: &ElementSet,
        mut steps: Vec<Step>,
    ) -> Recovery {
        let mut needed = targets.clone();
        let mut kept = Vec::new();
        while let Some(step) = steps.pop() {
            if needed.remove(usize::from(step.target)) {
                needed.extend(step.terms.iter().map(|&(s, _)| usize::from(s)));
                kept.push(step);
            }
        }
        kept.reverse();
        needed.union_with(also_read);

        let mut names = std::collections::BTreeMap::new();
        let mut next = slot(self.elements());
        for step in &mut kept {
            for (s, _) in &mut step.terms {
                *s = names.get(s).copied().unwrap_or(*s);
            }
            if !targets.contains(usize::from(step.target)) {
                names.insert(step.target, next);
                step.target = next;
                next += 1;
            }
        }
        Recovery {
            reads: needed.iter().collect(),
            schedule: Schedule::new(self.elements(), kept),
        }
    }

    /// True if the elements outside of `lost` determine all elements of `lost`.
    pub fn is_recoverable(&self, lost: &ElementSet) -> bool {
        let unknowns: Vec<usize> = lost.iter().collect();
        let is_lost = |s| lost.contains(s);
        let mut system = System::new(self.checks(), self.elements(), &unknowns, is_lost, false);
        system.reduce() == unknowns.len()
    }
}

/// The equations' unknown parts as a matrix and, on request, which equations were combined.
struct System {
    unknowns: usize,
    checks: Vec<usize>,
    rows: Vec<Vec<u8>>,
    /// The row in which unknown `i` is the pivot.
    pivots: Vec<Option<usize>>,
}

impl System {
    fn new(
        all_checks: &[Vec<(u16, u8)>],
        elements: usize,
        unknowns: &[usize],
        is_unknown: impl Fn(usize) -> bool,
        track: bool,
    ) -> Self {
        let mut number = vec![usize::MAX; elements];
        for (i, &u) in unknowns.iter().enumerate() {
            number[u] = i;
        }
        let mut checks = Vec::new();
        let mut rows = Vec::new();
        for (k, check) in all_checks.iter().enumerate() {
            if !check.iter().any(|&(s, _)| is_unknown(usize::from(s))) {
                continue;
            }
            let mut row = vec![0; unknowns.len()];
            for &(s, coefficient) in check {
                if is_unknown(usize::from(s)) {
                    row[number[usize::from(s)]] = coefficient;
                }
            }
            checks.push(k);
            rows.push(row);
        }
        if track {
            let count = rows.len();
            for (i, row) in rows.iter_mut().enumerate() {
                row.resize(unknowns.len() + count, 0);
                row[unknowns.len() + i] = 1;
            }
        }
        Self {
            unknowns: unknowns.len(),
            checks,
            rows,
            pivots: vec![None; unknowns.len()],
        }
    }

    /// Gauss-Jordan; returns the rank.
    fn reduce(&mut self) -> usize {
        let mut rank = 0;
        for column in 0..self.unknowns {
            let Some(found) = (rank..self.rows.len()).find(|&r| self.rows[r][column] != 0) else {
                continue;
            };
            self.rows.swap(rank, found);
            let pivot = std::mem::take(&mut self.rows[rank]);
            let scale = gf::invert(pivot[column]);
            let pivot: Vec<u8> = pivot.iter().map(|&x| gf::multiply(x, scale)).collect();
            for row in &mut self.rows {
                let factor = row.get(column).copied().unwrap_or(0);
                match factor {
                    0 => {}
                    1 => row.iter_mut().zip(&pivot).for_each(|(a, &b)| *a ^= b),
                    _ => {
                        for (a, &b) in row.iter_mut().zip(&pivot) {
                            *a ^= gf::multiply(factor, b);
                        }
                    }
                }
            }
            self.rows[rank] = pivot;
            self.pivots[column] = Some(rank);
            rank += 1;
        }
        rank
    }

    /// The equations, with factors, whose sum contains unknown `i` only; `None` if the equations do
    /// not determine it.
    fn combination(&self, i: usize) -> Option<Vec<(usize, u8)>> {
        let row = &self.rows[self.pivots[i]?];
        let alone = row[..self.unknowns]
            .iter()
            .enumerate()
            .all(|(j, &x)| (j == i) == (x != 0));
        let used = row[self.unknowns..].iter().zip(&self.checks);
        alone.then(|| {
            used.filter(|(f, _)| **f != 0)
                .map(|(&f, &k)| (k, f))
                .collect()
        })
    }
}

/// The known part of a check, summed in a temporary.
#[derive(Clone)]
struct Syndrome {
    temporary: u16,
    /// The members that are summed in it.
    folded: ElementSet,
}

struct Solver<'a> {
    code: &'a Code,
    /// Sums that are zero: all of the code's equations, or some.
    checks: &'a [Vec<(u16, u8)>],
    /// The checks that contain each slot.
    checks_of: Vec<Vec<usize>>,
    known: &'a ElementSet,
    targets: &'a ElementSet,
    /// Targets not solved yet.
    open: ElementSet,
    /// By slot: known or solved.
    have: Vec<bool>,
    /// By check: number of members that are neither known nor solved.
    unknown_count: Vec<usize>,
    syndromes: Vec<Option<Syndrome>>,
    /// Reads of the targets solved so far.
    reads: &'a mut ElementSet,
    steps: Vec<Step>,
    temporaries: u16,
}

impl<'a> Solver<'a> {
    fn new(
        code: &'a Code,
        checks: &'a [Vec<(u16, u8)>],
        known: &'a ElementSet,
        targets: &'a ElementSet,
        reads: &'a mut ElementSet,
    ) -> Self {
        let have: Vec<bool> = (0..code.elements()).map(|s| known.contains(s)).collect();
        let unknowns = |check: &Vec<(u16, u8)>| {
            let unknown = check.iter().filter(|&&(s, _)| !have[usize::from(s)]);
            unknown.count()
        };
        let mut checks_of = vec![Vec::new(); code.elements()];
        for (k, check) in checks.iter().enumerate() {
            for &(s, _) in check {
                checks_of[usize::from(s)].push(k);
            }
        }
        Self {
            code,
            checks,
            checks_of,
            known,
            targets,
            open: targets.clone(),
            unknown_count: checks.iter().map(unknowns).collect(),
            have,
            syndromes: vec![None; checks.len()],
            reads,
            steps: Vec::new(),
            temporaries: slot(code.elements()),
        }
    }

    fn solve(mut self) -> Result<Vec<Step>, Unrecoverable> {
        while !self.open.is_empty() {
            if !self.peel() {
                self.eliminate()?;
            }
        }
        Ok(self.steps)
    }

    /// Solves one unknown by an equation in which it is the only unknown. Order of preference: a
    /// target, the fewest new reads, the first equation.
    fn peel(&mut self) -> bool {
        let ready = (0..self.unknown_count.len()).filter(|&k| self.unknown_count[k] == 1);
        let best = ready.min_by_key(|&k| {
            let check = &self.checks[k];
            let unknown = self.unknown_of(k);
            let new = check.iter().map(|&(s, _)| usize::from(s));
            let new = new.filter(|&s| self.known.contains(s) && !self.reads.contains(s));
            (!self.targets.contains(unknown), new.count(), k)
        });
        let Some(check) = best else { return false };
        let unknown = self.unknown_of(check);
        let members = &self.checks[check];
        let own = members.iter().find(|&&(s, _)| usize::from(s) == unknown);
        let factor = gf::invert(own.expect("it is a member").1);
        let mut sum = Sum::default();
        self.add_known_part(&mut sum, check, factor);
        self.finish(unknown, sum);
        true
    }

    fn unknown_of(&self, check: usize) -> usize {
        let mut slots = self.checks[check].iter().map(|&(s, _)| usize::from(s));
        slots.find(|&s| !self.have[s]).expect("one is unknown")
    }

    /// Solves one unknown by a combination of equations.
    fn eliminate(&mut self) -> Result<(), Unrecoverable> {
        let unknowns: Vec<usize> = (0..self.have.len()).filter(|&s| !self.have[s]).collect();
        let have = &self.have;
        let mut system = System::new(self.checks, have.len(), &unknowns, |s| !have[s], true);
        system.reduce();
        let solutions: Vec<_> = (0..unknowns.len()).map(|i| system.combination(i)).collect();
        let mut lost = unknowns
            .iter()
            .zip(&solutions)
            .filter(|(u, s)| s.is_none() && self.open.contains(**u))
            .map(|(&u, _)| u)
            .peekable();
        if lost.peek().is_some() {
            return Err(Unrecoverable {
                elements: lost.collect(),
                known: self.known.len(),
                code: self.code.name().to_owned(),
                tolerance: self.code.tolerance(),
            });
        }
        // With one target left, solving another unknown first gains nothing.
        let last = self.open.len() == 1;
        let solved = unknowns.iter().zip(&solutions);
        let solved = solved.filter_map(|(&u, s)| s.as_ref().map(|s| (u, s)));
        let best = solved.min_by_key(|&(u, s)| {
            let open = self.open.contains(u);
            (last && !open, s.len(), !open, u)
        });
        let (unknown, combination) = best.expect("the open ones are solved");
        let mut sum = Sum::default();
        for &(check, factor) in combination {
            self.make_syndrome(check);
            self.add_known_part(&mut sum, check, factor);
        }
        self.finish(unknown, sum);
        Ok(())
    }

    fn make_syndrome(&mut self, check: usize) {
        if self.syndromes[check].is_some() {
            return;
        }
        let members = &self.checks[check];
        let known = members.iter().filter(|&&(s, _)| self.have[usize::from(s)]);
        let terms: Vec<(u16, u8)> = known.copied().collect();
        if terms.len() < 2 {
            return;
        }
        self.syndromes[check] = Some(Syndrome {
            temporary: self.temporaries,
            folded: terms.iter().map(|&(s, _)| usize::from(s)).collect(),
        });
        self.steps.push(Step {
            target: self.temporaries,
            accumulate: false,
            terms,
        });
        self.temporaries += 1;
    }

    /// Adds `factor` times the check's members that are known or solved.
    fn add_known_part(&self, sum: &mut Sum, check: usize, factor: u8) {
        let syndrome = self.syndromes[check].as_ref();
        if let Some(syndrome) = syndrome {
            sum.add(syndrome.temporary, factor);
        }
        for &(s, coefficient) in &self.checks[check] {
            let index = usize::from(s);
            if self.have[index] && !syndrome.is_some_and(|y| y.folded.contains(index)) {
                sum.add(s, gf::multiply(coefficient, factor));
            }
        }
    }

    fn finish(&mut self, unknown: usize, sum: Sum) {
        let terms: Vec<(u16, u8)> = sum.0.into_iter().filter(|&(_, c)| c != 0).collect();
        if self.targets.contains(unknown) {
            let slots = terms.iter().map(|&(s, _)| usize::from(s));
            self.reads.extend(slots.filter(|&s| self.known.contains(s)));
        }
        self.steps.push(Step {
            target: slot(unknown),
            accumulate: false,
            terms,
        });
        self.open.remove(unknown);
        self.have[unknown] = true;
        for &k in &self.checks_of[unknown] {
            self.unknown_count[k] -= 1;
        }
    }
}

/// Slots with coefficients, summed up.
#[derive(Default)]
struct Sum(std::collections::BTreeMap<u16, u8>);

impl Sum {
    fn add(&mut self, slot: u16, coefficient: u8) {
        *self.0.entry(slot).or_insert(0) ^= coefficient;
    }
}
