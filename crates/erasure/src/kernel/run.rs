//! A program on memory: tile by tile, each operation of the program one job of the kernel.

use super::{Job, Kernel, Stores, vector};
use crate::program::{Operation, Program, ZERO};

/// What a tile's slices may take together: about half of an L2 cache, so that sums computed at the
/// start of a tile are still there at its end.
const TILE_SET_BYTES: usize = 512 << 10;

/// Below this a tile's slices are too short for the memory's prefetchers (9.4 GB/s with 256 bytes,
/// 12.2 with 4 KiB, from DRAM).
const TILE_BYTES_MIN: usize = 4096;

/// Runs `program` on slices of one length.
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
    let stream = stores.streams(operands * length);
    let tile = tile_bytes(program, operands + program.temporaries(), length);
    let mut scratch = vec![0u8; program.temporaries() * tile];

    // The table of all operands; inputs are never written through it.
    let mut table = List::<*mut u8, 64>::new(std::ptr::null_mut());
    for slice in inputs {
        assert_eq!(slice.len(), length, "slices of one length");
        table.push(slice.as_ptr().cast_mut());
    }
    for slice in outputs {
        assert_eq!(slice.len(), length, "slices of one length");
        table.push(slice.as_mut_ptr());
    }
    let scratch_start = scratch.as_mut_ptr();
    for i in 0..program.temporaries() {
        table.push(scratch_start.wrapping_add(i * tile));
    }
    let table = table.as_slice();

    let mut pointers = Pointers::new();
    let mut at = 0;
    while at < length {
        let here = tile.min(length - at);
        for operation in program.operations() {
            pointers.gather(operation, table, operands, at);
            let job = Job {
                targets: pointers.targets.as_slice(),
                initial: pointers.initial.as_slice(),
                sources: pointers.sources.as_slice(),
                matrix: &operation.matrix,
                after: &operation.after,
                ones: operation.ones,
                stream: stream && !operation.reread,
                length: here,
            };
            job.assert_shape();
            // SAFETY: the shape was asserted. Operand numbers are within the table (indexing
            // checks it); each pointer has `here` bytes behind it: inputs and outputs from `at`
            // on, temporaries from their start. Outputs are unique borrows, inputs are never
            // targets, and a target is read by its own operation only as its `initial`.
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

/// The pointers of one job.
struct Pointers {
    targets: List<*mut u8, 4>,
    initial: List<*const u8, 4>,
    sources: List<*const u8, 32>,
}

impl Pointers {
    fn new() -> Self {
        Self {
            targets: List::new(std::ptr::null_mut()),
            initial: List::new(std::ptr::null()),
            sources: List::new(std::ptr::null()),
        }
    }

    /// Looks the operation's operands up; temporaries (from `operands` on) are as long as a tile
    /// and start anew in each.
    fn gather(&mut self, operation: &Operation, table: &[*mut u8], operands: usize, at: usize) {
        let pointer = |operand: u16| {
            let operand = usize::from(operand);
            let offset = if operand < operands { at } else { 0 };
            table[operand].wrapping_add(offset)
        };
        self.targets.clear();
        for &operand in &operation.targets {
            self.targets.push(pointer(operand));
        }
        self.initial.clear();
        for &operand in &operation.initial {
            self.initial.push(match operand {
                ZERO => std::ptr::null(),
                _ => pointer(operand).cast_const(),
            });
        }
        self.sources.clear();
        for &operand in &operation.sources {
            self.sources.push(pointer(operand).cast_const());
        }
    }
}

/// A list on the stack up to `N` items, on the heap beyond: an allocation takes as long as a
/// kilobyte of P+Q.
struct List<T, const N: usize> {
    fixed: [T; N],
    heap: Vec<T>,
    length: usize,
}

impl<T: Copy, const N: usize> List<T, N> {
    fn new(filler: T) -> Self {
        Self {
            fixed: [filler; N],
            heap: Vec::new(),
            length: 0,
        }
    }

    fn push(&mut self, item: T) {
        if self.length < N {
            self.fixed[self.length] = item;
        } else {
            if self.length == N {
                self.heap.clear();
                self.heap.extend_from_slice(&self.fixed);
            }
            self.heap.push(item);
        }
        self.length += 1;
    }

    fn clear(&mut self) {
        self.length = 0;
    }

    fn as_slice(&self) -> &[T] {
        if self.length <= N {
            &self.fixed[..self.length]
        } else {
            &self.heap
        }
    }
}
