//! Carries out a lane's computations on the engine's memory.

#![expect(
    unsafe_code,
    reason = "operands are ranges of shared memory; see block::Memory's rule"
)]

use std::ops::Range;

use array::{Compute, ComputeStep, Computed, Slice};
use block::{Memory, PAGE_BYTES};
use erasure::kernel::{Kernel, Stores};
use erasure::{Program, Schedule, Step};

use super::hash::NameMap;

/// Programs that are kept. All requests have one of a few shapes; at this number the table is simply emptied.
const PROGRAMS_MAX: usize = 256;

/// Up to this many operands are searched one by one.
const OPERANDS_FEW: usize = 16;

/// Carries out computations, and caches their programs.
#[derive(Debug)]
pub(crate) struct Computer {
    kernel: &'static Kernel,
    /// By the shape of the steps.
    programs: NameMap<Box<[u32]>, Program>,
    /// The distinct slices of the current steps, in the order in which they first appear, and the shape of the steps:
    /// kept to reuse their memory.
    operands: Vec<Slice>,
    shape: Vec<u32>,
    /// The numbers of further slices, which are found by hash.
    numbers: NameMap<Slice, u32>,
}

impl Computer {
    pub(crate) fn new(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            programs: NameMap::default(),
            operands: Vec::new(),
            shape: Vec::new(),
            numbers: NameMap::default(),
        }
    }

    /// Carries out a computation: puts, steps, sums, takes. `memory` returns the plain memory and the range of a
    /// slice.
    pub(crate) fn carry_out<'a>(
        &mut self,
        work: &Compute,
        memory: impl Fn(Slice) -> (&'a Memory, Range<usize>),
    ) -> Computed {
        for &(slice, ref bytes) in &work.puts {
            let (target, range) = memory(slice);
            // SAFETY: the lane gives each operation ranges that nothing else in flight touches.
            unsafe { target.bytes_mut_at(range) }.copy_from_slice(bytes);
        }
        self.compute(&work.steps, &memory);
        let mut computed = Computed::default();
        for &slice in &work.sums {
            let (blocks, range) = memory(slice);
            // SAFETY: as above.
            let blocks = unsafe { blocks.bytes_at(range) }.chunks(PAGE_BYTES);
            computed.sums.extend(blocks.map(block::crc32c));
        }
        for &slice in &work.takes {
            let (bytes, range) = memory(slice);
            // SAFETY: as above.
            computed
                .bytes
                .push(unsafe { bytes.bytes_at(range) }.to_vec());
        }
        computed
    }

    /// Runs steps in order. `memory` returns the memory and the range of a slice.
    ///
    /// Neighbouring steps on slices of one length are compiled together, so that those that share
    /// their sources (P and Q of a stripe) read them once.
    fn compute<'a>(
        &mut self,
        steps: &[ComputeStep],
        memory: &impl Fn(Slice) -> (&'a Memory, Range<usize>),
    ) {
        let mut rest = steps;
        while let Some(first) = rest.first() {
            if is_copy(first) {
                copy(first, memory);
                rest = &rest[1..];
                continue;
            }
            let length = first.target.length;
            let run = rest
                .iter()
                .take_while(|step| step.target.length == length && !is_copy(step))
                .count();
            let (now, later) = rest.split_at(run);
            rest = later;
            self.run_program(now, memory);
        }
    }

    fn run_program<'a>(
        &mut self,
        steps: &[ComputeStep],
        memory: &impl Fn(Slice) -> (&'a Memory, Range<usize>),
    ) {
        self.look_at(steps);
        if !self.programs.contains_key(&self.shape[..]) {
            if self.programs.len() >= PROGRAMS_MAX {
                self.programs.clear();
            }
            let program = Schedule::new(self.operands.len(), steps_of(&self.shape)).program();
            self.programs.insert(self.shape.clone().into(), program);
        }
        // Steps name every operand, so the steps alone decide how many there are.
        let program = &self.programs[&self.shape[..]];
        let operand = |&slot: &u16| memory(self.operands[usize::from(slot)]);
        let inputs: Vec<&[u8]> = program
            .inputs()
            .iter()
            .map(operand)
            // SAFETY: nothing in flight writes these ranges, and no output is the same range: a
            // program lists a slot as output if any step writes it.
            .map(|(bytes, range)| unsafe { bytes.bytes_at(range) })
            .collect();
        let mut outputs: Vec<&mut [u8]> = program
            .outputs()
            .iter()
            .map(operand)
            // SAFETY: each slot is listed once, and different slots are disjoint ranges.
            .map(|(bytes, range)| unsafe { bytes.bytes_mut_at(range) })
            .collect();
        program.run(self.kernel, &inputs, &mut outputs, Stores::Cached);
    }

    /// Numbers the slices of the steps, and records their shape: of each step the target's number, whether it
    /// accumulates, how many terms there are, and each term as its slice's number and its coefficient.
    fn look_at(&mut self, steps: &[ComputeStep]) {
        self.operands.clear();
        self.shape.clear();
        self.numbers.clear();
        for step in steps {
            let target = self.number(step.target);
            let terms = u32::try_from(step.terms.len()).expect("a step has few terms");
            self.shape.extend([target, step.accumulate.into(), terms]);
            for &(slice, coefficient) in &step.terms {
                let number = self.number(slice);
                self.shape.push(number << 8 | u32::from(coefficient));
            }
        }
    }

    /// The number of a slice. Slices of one plan are equal or disjoint.
    fn number(&mut self, slice: Slice) -> u32 {
        let mut first = self.operands.iter().take(OPERANDS_FEW);
        if let Some(index) = first.position(|&operand| operand == slice) {
            return u32::try_from(index).expect("they are few");
        }
        let next = u32::try_from(self.operands.len()).expect("a plan fits into memory");
        let number = match self.operands.len() < OPERANDS_FEW {
            true => next,
            false => *self.numbers.entry(slice).or_insert(next),
        };
        if number == next {
            self.operands.push(slice);
        }
        number
    }
}

/// The steps of a shape.
fn steps_of(shape: &[u32]) -> Vec<Step> {
    let slot = |number: u32| u16::try_from(number).expect("a plan has few operands");
    let mut steps = Vec::new();
    let mut rest = shape;
    while let &[target, accumulate, terms, ref after @ ..] = rest {
        let (terms, after) = after.split_at(terms as usize);
        let terms = terms
            .iter()
            .map(|term| (slot(term >> 8), term.to_le_bytes()[0]));
        steps.push(Step {
            target: slot(target),
            accumulate: accumulate != 0,
            terms: terms.collect(),
        });
        rest = after;
    }
    steps
}

/// Whether a step needs no arithmetic.
fn is_copy(step: &ComputeStep) -> bool {
    matches!(
        (step.terms.as_slice(), step.accumulate),
        ([] | [(_, 1)], false)
    )
}

/// Zeros or a plain copy: no arithmetic.
fn copy<'a>(step: &ComputeStep, memory: &impl Fn(Slice) -> (&'a Memory, Range<usize>)) {
    let (target, range) = memory(step.target);
    // SAFETY: the plan gives each operation ranges that nothing else in flight touches, and
    // source and target of one step are different ranges.
    let bytes = unsafe { target.bytes_mut_at(range) };
    match step.terms.first() {
        None => bytes.fill(0),
        Some(&(source, _)) => {
            let (source, range) = memory(source);
            // SAFETY: as above.
            bytes.copy_from_slice(unsafe { source.bytes_at(range) });
        }
    }
}

/// A copy of the bytes of a write request, for a recording.
pub(crate) fn bytes_of_write(memory: &Memory) -> Vec<u8> {
    // SAFETY: nothing writes the bytes of a write request while it is in flight.
    unsafe { memory.bytes() }.to_vec()
}

/// Bytes of a request that are in a bounce buffer: their range in the request, and the buffer.
pub(super) type Patch = (Range<usize>, Memory);

/// A copy of a read's bytes, with patches in place of the ranges that a drive may still write to.
pub(super) fn assemble(memory: &Memory, mut patches: Vec<Patch>) -> Memory {
    patches.sort_by_key(|(range, _)| range.start);
    let mut bytes = Vec::with_capacity(memory.len());
    for (range, patch) in patches {
        let before = memory.slice(bytes.len()..range.start);
        // SAFETY: all parts of the request have ended. What drives may still write lies in ranges that have patches,
        // and these are not read; the patches' own memory has no other user.
        bytes.extend_from_slice(unsafe { before.bytes() });
        // SAFETY: as above.
        bytes.extend_from_slice(unsafe { patch.bytes() });
    }
    let rest = memory.slice(bytes.len()..memory.len());
    // SAFETY: as above.
    bytes.extend_from_slice(unsafe { rest.bytes() });
    Memory::from_bytes(&bytes)
}
