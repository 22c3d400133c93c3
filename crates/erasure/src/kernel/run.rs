//! A program on memory: tile by tile, each operation of the program one job of the kernel.

use super::{Job, Kernel, Stores, vector};
use crate::program::{Operation, Program, ZERO};

/// What a tile's slices may take together: about half of an L2 cache, so that sums computed at the
/// start of a tile are still there at its end.
const TILE_SET_BYTES: usize = 512 << 10;

/// Below this a tile's slices are too short for the memory's prefetchers (9.4 GB/s with 256 bytes,
/// 12.2 with 4 KiB, from DRAM).
const TILE_BYTES_MIN: usize = 4096;

/// Runs `program`; the caller has checked that all slices have one length.
pub(crate) fn run(
    program: &Program,
    kernel: &Kernel,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    stores: Stores,
) {
    let Some(length) = outputs.first().map(|slice| slice.len()) else {
        return;
    };
    let operands = inputs.len() + outputs.len();
    assert_eq!(inputs.len(), program.inputs().len(), "an input each");
    assert_eq!(outputs.len(), program.outputs().len(), "an output each");
    assert!(
        inputs.iter().all(|slice| slice.len() == length),
        "one length"
    );
    assert!(
        outputs.iter().all(|slice| slice.len() == length),
        "one length"
    );

    let stream = stores.streams(operands * length);
    let tile = tile_bytes(program, operands + program.temporaries(), length);
    let mut scratch = vec![0u8; program.temporaries() * tile];
    // The table of all operands; inputs are never written through it.
    let mut table: Vec<*mut u8> = inputs
        .iter()
        .map(|slice| slice.as_ptr().cast_mut())
        .collect();
    table.extend(outputs.iter_mut().map(|slice| slice.as_mut_ptr()));
    let scratch_start = scratch.as_mut_ptr();
    table.extend((0..program.temporaries()).map(|i| scratch_start.wrapping_add(i * tile)));

    let mut pointers = Pointers::default();
    let mut at = 0;
    while at < length {
        let here = tile.min(length - at);
        for operation in program.operations() {
            pointers.gather(operation, &table, operands, at);
            let job = Job {
                targets: &pointers.targets,
                initial: &pointers.initial,
                sources: &pointers.sources,
                matrix: &operation.matrix,
                after: &operation.after,
                ones: operation.ones,
                stream: stream && !operation.reread,
                length: here,
            };
            // SAFETY: `Program` keeps the shape that `assert_shape` states (asserted when it was
            // made). Operand numbers are within the table; each pointer has `here` bytes behind
            // it: inputs and outputs from `at` on, temporaries from their start. Outputs are
            // unique borrows, inputs are never targets, and a target is a source of its own
            // operation only as its `initial`.
            unsafe { (kernel.combine)(&job) };
        }
        at += here;
    }
    if stream {
        vector::fence();
    }
}

/// How many bytes of each operand to do at a time.
fn tile_bytes(program: &Program, operands: usize, length: usize) -> usize {
    if program.operations().len() <= 1 {
        return length;
    }
    let fair = TILE_SET_BYTES / operands.max(1) / TILE_BYTES_MIN * TILE_BYTES_MIN;
    fair.max(TILE_BYTES_MIN).min(length)
}

/// The pointers of one job, kept for their allocations.
#[derive(Default)]
struct Pointers {
    targets: Vec<*mut u8>,
    initial: Vec<*const u8>,
    sources: Vec<*const u8>,
}

impl Pointers {
    /// Looks the operation's operands up; temporaries (from `operands` on) are as long as a tile
    /// and start anew in each.
    fn gather(&mut self, operation: &Operation, table: &[*mut u8], operands: usize, at: usize) {
        let pointer = |&operand: &u16| {
            let operand = usize::from(operand);
            let offset = if operand < operands { at } else { 0 };
            table[operand].wrapping_add(offset)
        };
        self.targets.clear();
        self.targets.extend(operation.targets.iter().map(pointer));
        self.initial.clear();
        self.initial
            .extend(operation.initial.iter().map(|operand| match *operand {
                ZERO => std::ptr::null(),
                _ => pointer(operand).cast_const(),
            }));
        self.sources.clear();
        let sources = operation.sources.iter().map(pointer);
        self.sources.extend(sources.map(<*mut u8>::cast_const));
    }
}
