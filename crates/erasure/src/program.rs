//! A schedule compiled for execution.
//!
//! Consecutive steps that sum the same sources become one operation of up to three rows, so that
//! the sources are read once: P, Q and R of a stripe, or the two syndromes of a decoding, where P
//! and Q themselves are the rows' initial values. Later steps that only mix these rows become the
//! operation's `after` matrix. Everything else stays, above all the order.

use crate::equations::slot;
use crate::gf;
use crate::kernel::{self, Coefficient, Kernel, ROWS_MAX, Stores};
use crate::schedule::{Schedule, Step};

/// Operand number that means "start from zero".
pub(crate) const ZERO: u16 = u16::MAX;

/// One pass over some sources, in operand numbers (see [`kernel::Job`] for the arithmetic).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) targets: Vec<u16>,
    pub(crate) initial: Vec<u16>,
    pub(crate) sources: Vec<u16>,
    pub(crate) matrix: Vec<Coefficient>,
    pub(crate) after: Vec<Coefficient>,
    pub(crate) ones: bool,
    pub(crate) powers: bool,
    /// For streaming runs: for each target a second operand, stored through the cache, or [`ZERO`].
    /// Empty if no target has one.
    pub(crate) copies: Vec<u16>,
    /// Every target may be stored past the cache: later operations read it only from a copy.
    pub(crate) streams: bool,
}

/// A schedule, fused and with its operands numbered: inputs, outputs, temporaries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Program {
    inputs: Vec<u16>,
    outputs: Vec<u16>,
    temporaries: usize,
    /// The operations of streaming runs, with copies of the outputs that later operations read.
    streaming: Vec<Operation>,
    copies: usize,
    /// Sources of the operation that has the most.
    sources_max: usize,
    operations: Vec<Operation>,
}

impl Program {
    /// Compiles a schedule. This takes some time: keep the program of a schedule that runs often.
    pub fn new(schedule: &Schedule) -> Self {
        let (inputs, outputs) = (schedule.inputs(), schedule.outputs());
        let mut number = vec![ZERO; schedule.slots()];
        let temporaries = schedule.elements()..schedule.slots();
        let slots = inputs.iter().chain(&outputs).map(|&s| usize::from(s));
        for (operand, s) in slots.chain(temporaries).enumerate() {
            number[s] = slot(operand);
        }
        let mut operations = Vec::new();
        let mut rest = &schedule.steps[..];
        while !rest.is_empty() {
            let (operation, taken) = fuse(rest, schedule.elements());
            operations.push(operation);
            rest = &rest[taken..];
        }
        for operation in &mut operations {
            let lists = [
                &mut operation.targets,
                &mut operation.initial,
                &mut operation.sources,
            ];
            for operand in lists.into_iter().flatten().filter(|s| **s != ZERO) {
                *operand = number[usize::from(*operand)];
            }
        }
        for o in &operations {
            let (sources, rows) = (o.sources.len(), o.initial.len());
            let fits = kernel::shape(sources, rows, o.targets.len(), &o.after);
            assert!(
                fits && o.matrix.len() == rows * sources,
                "an operation is of one piece"
            );
        }
        let sources_max = operations.iter().map(|o| o.sources.len()).max();
        let operands = inputs.len() + outputs.len();
        let used = |o: &Operation| {
            let mut all = o.targets.iter().chain(&o.initial).chain(&o.sources);
            all.any(|&s| s != ZERO && usize::from(s) >= operands)
        };
        // Temporaries that became rows of a mixing operation need no memory.
        let temporaries = if operations.iter().any(used) {
            schedule.temporaries()
        } else {
            0
        };
        let (streaming, copies) = with_copies(&operations, inputs.len()..operands, temporaries);
        Self {
            inputs,
            outputs,
            temporaries,
            streaming,
            copies,
            sources_max: sources_max.unwrap_or(0),
            operations,
        }
    }

    /// The element slots that are read, ascending.
    pub fn inputs(&self) -> &[u16] {
        &self.inputs
    }

    /// The element slots that are written, ascending.
    pub fn outputs(&self) -> &[u16] {
        &self.outputs
    }

    /// Passes over memory: steps that share their sources count once.
    pub fn passes(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn sources_max(&self) -> usize {
        self.sources_max
    }

    pub(crate) fn temporaries(&self) -> usize {
        self.temporaries
    }

    /// How many copies a streaming run keeps; their numbers follow the temporaries.
    pub(crate) fn copies(&self) -> usize {
        self.copies
    }

    pub(crate) fn streaming(&self) -> &[Operation] {
        &self.streaming
    }

    pub(crate) fn operations(&self) -> &[Operation] {
        &self.operations
    }

    /// Runs on memory: a slice for each of [`inputs`](Self::inputs) and
    /// [`outputs`](Self::outputs), in their order, of any one length and any alignment. Outputs
    /// that the schedule accumulates into hold their old content.
    ///
    /// # Panics
    ///
    /// When the numbers of slices differ from these, or their lengths from each other.
    pub fn run(
        &self,
        kernel: &Kernel,
        inputs: &[&[u8]],
        outputs: &mut [&mut [u8]],
        stores: Stores,
    ) {
        kernel::run(self, kernel, inputs, outputs, stores);
    }
}

impl Schedule {
    /// Compiles the schedule.
    pub fn program(&self) -> Program {
        Program::new(self)
    }

    /// Runs the schedule on a stripe, one element for each slot.
    ///
    /// # Panics
    ///
    /// When there are fewer elements than slots, or elements that are used differ in length.
    pub fn run(&self, kernel: &Kernel, stripe: &mut [Vec<u8>]) {
        let program = self.program();
        let outputs = program.outputs().iter().map(|&s| usize::from(s));
        let mut written: Vec<(usize, Vec<u8>)> = outputs
            .map(|s| (s, std::mem::take(&mut stripe[s])))
            .collect();
        let inputs = program
            .inputs()
            .iter()
            .map(|&s| &stripe[usize::from(s)][..]);
        let inputs: Vec<&[u8]> = inputs.collect();
        let mut slices: Vec<&mut [u8]> = written.iter_mut().map(|(_, v)| &mut v[..]).collect();
        program.run(kernel, &inputs, &mut slices, Stores::Auto);
        for (s, element) in written {
            stripe[s] = element;
        }
    }
}

/// The operations with copies of some outputs (operands in `range`), and the number of copies. An
/// output is copied if one operation writes it from other operands only and later operations read
/// it.
///
/// Without a copy such an output would be written through the cache, and its lines would be fetched
/// from memory before they are overwritten.
fn with_copies(
    operations: &[Operation],
    range: std::ops::Range<usize>,
    temporaries: usize,
) -> (Vec<Operation>, usize) {
    let reads = |o: &Operation, t: u16| o.sources.contains(&t) || o.initial.contains(&t);
    let mut streaming = operations.to_vec();
    let mut copies = 0;
    for (i, this) in operations.iter().enumerate() {
        let (before, later) = (&operations[..i], &operations[i + 1..]);
        let mut own = vec![ZERO; this.targets.len()];
        for (own, &t) in own.iter_mut().zip(&this.targets) {
            if !later.iter().any(|o| reads(o, t)) {
                continue;
            }
            let once = !reads(this, t)
                && !before.iter().any(|o| reads(o, t) || o.targets.contains(&t))
                && !later.iter().any(|o| o.targets.contains(&t));
            if !once || !range.contains(&usize::from(t)) {
                streaming[i].streams = false;
                continue;
            }
            *own = slot(range.end + temporaries + copies);
            copies += 1;
            let users = streaming[i + 1..].iter_mut();
            let operands = users.flat_map(|o| o.sources.iter_mut().chain(&mut o.initial));
            operands.filter(|s| **s == t).for_each(|s| *s = *own);
        }
        if own.iter().any(|&copy| copy != ZERO) {
            streaming[i].copies = own;
        }
    }
    (streaming, copies)
}

/// Fuses the first steps into an operation; returns it and the number of steps that it takes.
fn fuse(steps: &[Step], elements: usize) -> (Operation, usize) {
    let most = ROWS_MAX.min(steps.len());
    let fused = (2..=most)
        .rev()
        .find_map(|rows| Some((rows, Rows::of(&steps[..rows])?)));
    let (rows, parts) = fused.unwrap_or_else(|| (1, Rows::single(&steps[0])));
    let (targets, after) = mixed(steps, rows, elements);
    let mixes = if after.is_empty() { 0 } else { targets.len() };
    (parts.into_operation(targets, after), rows + mixes)
}

/// Rows over common sources.
struct Rows {
    initial: Vec<u16>,
    sources: Vec<u16>,
    coefficients: Vec<Vec<u8>>,
}

impl Rows {
    fn single(step: &Step) -> Self {
        let initial = if step.accumulate { step.target } else { ZERO };
        Self {
            initial: vec![initial],
            sources: step.terms.iter().map(|&(s, _)| s).collect(),
            coefficients: vec![step.terms.iter().map(|&(_, c)| c).collect()],
        }
    }

    /// Rows of steps that sum the same sources, except for at most one term with coefficient 1
    /// each.
    fn of(steps: &[Step]) -> Option<Self> {
        let has = |step: &Step, s: u16| step.terms.iter().find(|&&(t, _)| t == s).map(|&(_, c)| c);
        let own: Vec<u16> = steps.iter().map(|step| step.target).collect();
        let twice = (1..own.len()).any(|i| own[..i].contains(&own[i]));
        if twice
            || own
                .iter()
                .any(|&t| steps.iter().any(|step| has(step, t).is_some()))
        {
            return None;
        }
        let common = steps[0].terms.iter().map(|&(s, _)| s);
        let sources: Vec<u16> = common
            .filter(|&s| steps.iter().all(|step| has(step, s).is_some()))
            .collect();
        if sources.is_empty() {
            return None;
        }
        let mut initial = Vec::new();
        for step in steps {
            let mut private = step.terms.iter().filter(|(s, _)| !sources.contains(s));
            initial.push(match (private.next(), step.accumulate) {
                (None, false) => ZERO,
                (None, true) => step.target,
                (Some(&(s, 1)), false) => s,
                (Some(_), _) => return None,
            });
            if private.next().is_some() {
                return None;
            }
        }
        let row = |step: &Step| {
            sources
                .iter()
                .map(|&s| has(step, s).expect("common"))
                .collect()
        };
        Some(Self {
            initial,
            coefficients: steps.iter().map(row).collect(),
            sources,
        })
    }

    /// Moves a row of ones, if there is one, to the front: kernels are faster for this order.
    fn into_operation(mut self, targets: Vec<u16>, mut after: Vec<u8>) -> Operation {
        let rows = self.initial.len();
        let ones = |row: &Vec<u8>| row.iter().all(|&c| c == 1);
        let first = self.coefficients.iter().position(ones);
        let mut targets = targets;
        if let Some(first) = first {
            self.coefficients.swap(0, first);
            self.initial.swap(0, first);
            if after.is_empty() {
                targets.swap(0, first);
            } else {
                after
                    .chunks_exact_mut(rows)
                    .for_each(|row| row.swap(0, first));
            }
        }
        let matrix: Vec<Coefficient> = self
            .coefficients
            .concat()
            .into_iter()
            .map(Into::into)
            .collect();
        let from_zero = after.is_empty() && self.initial.iter().all(|&s| s == ZERO);
        Operation {
            targets,
            powers: kernel::powers(&matrix, self.sources.len(), from_zero),
            initial: self.initial,
            sources: self.sources,
            matrix,
            after: after.into_iter().map(Into::into).collect(),
            ones: first.is_some(),
            copies: Vec::new(),
            streams: true,
        }
    }
}

/// If the steps after the first `rows` only mix the temporaries of these rows: the targets and the
/// matrix of the mixing. Otherwise the first steps' own targets.
fn mixed(steps: &[Step], rows: usize, elements: usize) -> (Vec<u16>, Vec<u8>) {
    let own: Vec<u16> = steps[..rows].iter().map(|step| step.target).collect();
    let plain = (own.clone(), Vec::new());
    if rows == 1 || own.iter().any(|&t| usize::from(t) < elements) {
        return plain;
    }
    let mut targets: Vec<u16> = Vec::new();
    let mut after: Vec<u8> = Vec::new();
    for step in steps[rows..].iter().take(rows) {
        if step.accumulate {
            break;
        }
        let mut row = vec![0; rows];
        let mut inside = true;
        for &(s, coefficient) in &step.terms {
            if let Some(t) = own.iter().position(|&t| t == s) {
                row[t] ^= coefficient;
            } else if let Some(k) = targets.iter().position(|&t| t == s) {
                for (r, &a) in row.iter_mut().zip(&after[k * rows..]) {
                    *r ^= gf::multiply(coefficient, a);
                }
            } else {
                inside = false;
            }
        }
        if !inside {
            break;
        }
        targets.push(step.target);
        after.extend(row);
    }
    let rest = &steps[rows + targets.len()..];
    let used_later = rest
        .iter()
        .flat_map(|step| &step.terms)
        .any(|(s, _)| own.contains(s));
    if targets.is_empty() || used_later {
        return plain;
    }
    (targets, after)
}
