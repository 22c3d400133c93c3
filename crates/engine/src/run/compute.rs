//! Carries out a lane's computations on the engine's memory.

#![expect(
    unsafe_code,
    reason = "operands are ranges of shared memory; see block::Memory's rule"
)]

use std::collections::hash_map::Entry;

use array::{Compute, ComputeStep, Computed, Slice};
use block::{Memory, PAGE_BYTES};
use erasure::kernel::{Kernel, Stores};
use erasure::{Program, Schedule, Step};

use super::hash::NameMap;

/// Programs that are kept. The same handful of shapes comes back for every request; at this number
/// the table is simply emptied.
const PROGRAMS_MAX: usize = 256;

/// Carries out computations, and remembers how.
#[derive(Debug)]
pub(crate) struct Computer {
    kernel: &'static Kernel,
    /// By the steps, with operands numbered in the order in which they first appear.
    programs: NameMap<Vec<Step>, Program>,
}

impl Computer {
    pub(crate) fn new(kernel: &'static Kernel) -> Self {
        Self {
            kernel,
            programs: NameMap::default(),
        }
    }

    /// Carries out a computation: puts, steps, sums, takes. `memory` gives the bytes of a slice.
    pub(crate) fn carry_out(
        &mut self,
        work: &Compute,
        memory: impl Fn(Slice) -> Memory,
    ) -> Computed {
        for (slice, bytes) in &work.puts {
            let target = memory(*slice);
            // SAFETY: the lane gives each operation ranges that nothing else in flight touches.
            unsafe { target.bytes_mut() }.copy_from_slice(bytes);
        }
        self.compute(&work.steps, &memory);
        let mut computed = Computed::default();
        for &slice in &work.sums {
            let blocks = memory(slice);
            // SAFETY: as above.
            let blocks = unsafe { blocks.bytes() }.chunks(PAGE_BYTES);
            computed.sums.extend(blocks.map(block::crc32c));
        }
        for &slice in &work.takes {
            let bytes = memory(slice);
            // SAFETY: as above.
            computed.bytes.push(unsafe { bytes.bytes() }.to_vec());
        }
        computed
    }

    /// Runs steps in order. `memory` gives the bytes of a slice.
    ///
    /// Neighbouring steps on slices of one length are compiled together, so that those that share
    /// their sources (P and Q of a stripe) read them once.
    fn compute(&mut self, steps: &[ComputeStep], memory: &impl Fn(Slice) -> Memory) {
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

    fn run_program(&mut self, steps: &[ComputeStep], memory: &impl Fn(Slice) -> Memory) {
        // Each distinct slice is an operand. Slices of one plan are equal or disjoint.
        let mut operands: Vec<Memory> = Vec::new();
        let mut numbers: NameMap<Slice, u16> = NameMap::default();
        let mut number = |slice: Slice| {
            *numbers.entry(slice).or_insert_with(|| {
                operands.push(memory(slice));
                u16::try_from(operands.len() - 1).expect("a plan has few operands")
            })
        };
        let steps: Vec<Step> = steps
            .iter()
            .map(|step| Step {
                target: number(step.target),
                accumulate: step.accumulate,
                terms: step
                    .terms
                    .iter()
                    .map(|&(slice, coefficient)| (number(slice), coefficient))
                    .collect(),
            })
            .collect();
        if self.programs.len() >= PROGRAMS_MAX && !self.programs.contains_key(&steps) {
            self.programs.clear();
        }
        // Steps name every operand, so they alone decide how many there are.
        let program = match self.programs.entry(steps) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => {
                let program = Schedule::new(operands.len(), new.key().clone()).program();
                new.insert(program)
            }
        };
        let inputs: Vec<&[u8]> = program
            .inputs()
            .iter()
            // SAFETY: nothing in flight writes these ranges, and no output is the same range: a
            // program lists a slot as output if any step writes it.
            .map(|&slot| unsafe { operands[usize::from(slot)].bytes() })
            .collect();
        let mut outputs: Vec<&mut [u8]> = program
            .outputs()
            .iter()
            // SAFETY: each slot is listed once, and different slots are disjoint ranges.
            .map(|&slot| unsafe { operands[usize::from(slot)].bytes_mut() })
            .collect();
        program.run(self.kernel, &inputs, &mut outputs, Stores::Cached);
    }
}

/// Whether a step is no arithmetic.
fn is_copy(step: &ComputeStep) -> bool {
    matches!(
        (step.terms.as_slice(), step.accumulate),
        ([] | [(_, 1)], false)
    )
}

/// Zeros or a plain copy: no arithmetic.
fn copy(step: &ComputeStep, memory: &impl Fn(Slice) -> Memory) {
    let target = memory(step.target);
    // SAFETY: the plan gives each operation ranges that nothing else in flight touches, and
    // source and target of one step are different ranges.
    let bytes = unsafe { target.bytes_mut() };
    match step.terms.first() {
        None => bytes.fill(0),
        Some(&(source, _)) => {
            let source = memory(source);
            // SAFETY: as above.
            bytes.copy_from_slice(unsafe { source.bytes() });
        }
    }
}

/// A copy of what a client asks to write, for a recording.
pub(crate) fn bytes_of_write(memory: &Memory) -> Vec<u8> {
    // SAFETY: nothing writes the bytes of a write request while it is in flight.
    unsafe { memory.bytes() }.to_vec()
}

/// Bytes of a request that are not in its memory: which, and where they are.
pub(super) type Patch = (std::ops::Range<usize>, Memory);

/// A copy of a read's bytes, patches in place of what a drive may still be writing.
pub(super) fn assemble(memory: &Memory, mut patches: Vec<Patch>) -> Memory {
    patches.sort_by_key(|(range, _)| range.start);
    let mut bytes = Vec::with_capacity(memory.len());
    for (range, patch) in patches {
        let before = memory.slice(bytes.len()..range.start);
        // SAFETY: all parts of the request have ended. What drives may still write lies in ranges
        // that have patches, which are not looked at; the patches' own memory is nobody else's.
        bytes.extend_from_slice(unsafe { before.bytes() });
        // SAFETY: as above.
        bytes.extend_from_slice(unsafe { patch.bytes() });
    }
    let rest = memory.slice(bytes.len()..memory.len());
    // SAFETY: as above.
    bytes.extend_from_slice(unsafe { rest.bytes() });
    Memory::from_bytes(&bytes)
}
