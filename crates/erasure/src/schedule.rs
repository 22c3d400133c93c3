//! Schedules: what to add to what, in which order. A schedule is a value; [`Program`] runs it.
//!
//! [`Program`]: crate::Program

use std::fmt;

/// `target (^)= Σ coefficient · slot`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// The target of the sum: an element's slot or a temporary.
    pub target: u16,
    /// Add to the target's content instead of overwriting it.
    pub accumulate: bool,
    /// `(slot, coefficient)`: never empty, no slot twice, the target not among them.
    pub terms: Vec<(u16, u8)>,
}

/// Steps in order. Slots `0..elements` are the stripe's elements; higher slots are temporaries,
/// which exist while the schedule runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    /// The steps, in the order of execution.
    pub steps: Vec<Step>,
    elements: usize,
    temporaries: usize,
}

impl Schedule {
    /// A schedule over `elements` elements; higher slots are temporaries.
    ///
    /// # Panics
    ///
    /// When a step has no terms, a coefficient 0, or its own target among them.
    pub fn new(elements: usize, steps: Vec<Step>) -> Self {
        let mut slots = elements;
        for step in &steps {
            assert!(!step.terms.is_empty(), "a step adds nothing");
            for &(slot, coefficient) in &step.terms {
                assert!(
                    coefficient != 0 && slot != step.target,
                    "a step's term is void"
                );
                slots = slots.max(usize::from(slot) + 1);
            }
            slots = slots.max(usize::from(step.target) + 1);
        }
        Self {
            steps,
            elements,
            temporaries: slots - elements,
        }
    }

    /// Elements of the stripe.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// Elements, then temporaries: how many slots there are.
    pub fn slots(&self) -> usize {
        self.elements + self.temporaries
    }

    /// Temporaries, each of an element's length.
    pub fn temporaries(&self) -> usize {
        self.temporaries
    }

    /// Additions of one element to another. A sum of k terms costs k − 1, and one more if it is
    /// added to the target's content.
    pub fn xors(&self) -> usize {
        let cost = |step: &Step| step.terms.len() - 1 + usize::from(step.accumulate);
        self.steps.iter().map(cost).sum()
    }

    /// Multiplications of an element by a coefficient other than 1.
    pub fn multiplications(&self) -> usize {
        let terms = self.steps.iter().flat_map(|step| &step.terms);
        terms.filter(|&&(_, coefficient)| coefficient != 1).count()
    }

    /// The element slots that are read before they are written, ascending. A slot that is
    /// accumulated into is an output, not an input.
    pub fn inputs(&self) -> Vec<u16> {
        let mut written = vec![false; self.slots()];
        for step in &self.steps {
            written[usize::from(step.target)] = true;
        }
        let mut read = vec![false; self.elements];
        for &(slot, _) in self.steps.iter().flat_map(|step| &step.terms) {
            if usize::from(slot) < self.elements && !written[usize::from(slot)] {
                read[usize::from(slot)] = true;
            }
        }
        marked(&read)
    }

    /// The element slots that are written, ascending.
    pub fn outputs(&self) -> Vec<u16> {
        let mut written = vec![false; self.elements];
        for step in &self.steps {
            if usize::from(step.target) < self.elements {
                written[usize::from(step.target)] = true;
            }
        }
        marked(&written)
    }
}

fn marked(marks: &[bool]) -> Vec<u16> {
    let slots = marks.iter().enumerate().filter(|(_, mark)| **mark);
    slots.map(|(i, _)| crate::equations::slot(i)).collect()
}

impl fmt::Display for Schedule {
    /// One step a line: `12 = 3 + 4 + 2·5`, `12 += t0`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |slot: u16| match usize::from(slot).checked_sub(self.elements) {
            Some(temporary) => format!("t{temporary}"),
            None => format!("{slot}"),
        };
        for step in &self.steps {
            let sign = if step.accumulate { "+=" } else { "=" };
            write!(f, "{} {sign}", name(step.target))?;
            for (i, &(slot, coefficient)) in step.terms.iter().enumerate() {
                let plus = if i == 0 { "" } else { " +" };
                match coefficient {
                    1 => write!(f, "{plus} {}", name(slot))?,
                    c => write!(f, "{plus} {c}·{}", name(slot))?,
                }
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn costs_and_ends_follow_from_the_steps() {
        let step = |target, accumulate, terms: &[(u16, u8)]| Step {
            target,
            accumulate,
            terms: terms.to_vec(),
        };
        let schedule = Schedule::new(
            6,
            vec![
                step(6, false, &[(0, 1), (1, 1)]),
                step(4, false, &[(6, 1), (2, 1)]),
                step(5, true, &[(4, 1), (6, 3)]),
            ],
        );
        assert_eq!((schedule.xors(), schedule.multiplications()), (4, 1));
        assert_eq!((schedule.slots(), schedule.temporaries()), (7, 1));
        assert_eq!(schedule.inputs(), [0, 1, 2]);
        assert_eq!(schedule.outputs(), [4, 5]);
        assert_eq!(
            schedule.to_string(),
            "t0 = 0 + 1\n4 = t0 + 2\n5 += 4 + 3·t0\n"
        );
    }
}
