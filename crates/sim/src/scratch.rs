//! Buffers of one lane, and its computations on them.

use std::collections::BTreeMap;

use array::{Action, BufferId, Compute, ComputeStep, Computed, RequestId, ScratchId, Slice};

/// The bytes behind a lane's buffer names.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    buffers: BTreeMap<BufferId, Vec<u8>>,
}

impl Scratch {
    pub(crate) fn allocate(&mut self, id: ScratchId, bytes: u64) {
        // Not zeros: a plan that relies on the content of fresh memory is wrong.
        let bytes = vec![0xa5; usize::try_from(bytes).expect("fits into memory")];
        let previous = self.buffers.insert(BufferId::Scratch(id), bytes);
        assert!(previous.is_none(), "{id:?} is allocated once");
    }

    pub(crate) fn release(&mut self, id: ScratchId) {
        let buffer = self.buffers.remove(&BufferId::Scratch(id));
        assert!(buffer.is_some(), "{id:?} is released once");
    }

    pub(crate) fn lend(&mut self, id: RequestId, bytes: Vec<u8>) {
        self.buffers.insert(BufferId::Request(id), bytes);
    }

    pub(crate) fn take_back(&mut self, id: RequestId) -> Vec<u8> {
        self.buffers
            .remove(&BufferId::Request(id))
            .unwrap_or_default()
    }

    pub(crate) fn bytes(&self, slice: Slice) -> &[u8] {
        &self.buffers[&slice.buffer][range(slice)]
    }

    pub(crate) fn bytes_mut(&mut self, slice: Slice) -> &mut [u8] {
        let buffer = self.buffers.get_mut(&slice.buffer);
        &mut buffer.expect("the buffer lives")[range(slice)]
    }

    /// Whether all scratch memory has been given back.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Carries out a computation: puts, steps, sums, takes.
    pub(crate) fn compute(&mut self, work: &Compute) -> Computed {
        for (slice, bytes) in &work.puts {
            self.bytes_mut(*slice).copy_from_slice(bytes);
        }
        self.run(&work.steps);
        let sums = work.sums.iter().flat_map(|&slice| {
            let blocks = self.bytes(slice).chunks(4096);
            blocks.map(crc32c::crc32c).collect::<Vec<_>>()
        });
        Computed {
            sums: sums.collect(),
            bytes: work
                .takes
                .iter()
                .map(|&slice| self.bytes(slice).to_vec())
                .collect(),
        }
    }

    /// `target (^)= Σ coefficient · source`, the slow way.
    fn run(&mut self, steps: &[ComputeStep]) {
        for step in steps {
            let mut sum = if step.accumulate {
                self.bytes(step.target).to_vec()
            } else {
                vec![0; usize::try_from(step.target.length).expect("fits into memory")]
            };
            for &(slice, coefficient) in &step.terms {
                let products = products_of(coefficient);
                for (sum, &byte) in sum.iter_mut().zip(self.bytes(slice)) {
                    *sum ^= products[usize::from(byte)];
                }
            }
            self.bytes_mut(step.target).copy_from_slice(&sum);
        }
    }

    /// Carries out an action on memory; whether it was one.
    pub(crate) fn carry_out(&mut self, action: &Action) -> bool {
        match action {
            Action::Allocate(id, bytes) => self.allocate(*id, *bytes),
            Action::Release(id) => self.release(*id),
            Action::Io(_) | Action::Compute(_) | Action::Reply(_) => return false,
        }
        true
    }
}

fn range(slice: Slice) -> std::ops::Range<usize> {
    let low = usize::try_from(slice.offset).expect("fits into memory");
    low..low + usize::try_from(slice.length).expect("fits into memory")
}

/// The products of all bytes with `coefficient` over GF(2^8), polynomial 0x11d: shift and add,
/// written again here so that the simulator does not trust the kernels that it checks.
fn products_of(coefficient: u8) -> [u8; 256] {
    let mut products = [0; 256];
    for (byte, product) in (0..=u8::MAX).zip(&mut products) {
        let mut shifted = coefficient;
        for bit in 0..8 {
            if byte >> bit & 1 == 1 {
                *product ^= shifted;
            }
            let carry = shifted >> 7;
            shifted = (shifted << 1) ^ (carry * 0x1d);
        }
    }
    products
}
