//! Runs a program on memory: tile by tile, each operation of the program as one job of the kernel.

use std::mem::MaybeUninit;

use super::{Job, Kernel, ROWS_MAX, Stores, groups, vector};
use crate::program::{Operation, Program, ZERO};

/// Most bytes of all slices of a tile: about half of an L2 cache, so that sums computed at the
/// start of a tile are still in the cache at its end.
const TILE_SET_BYTES: usize = 512 << 10;

/// The same for slices that come from memory: a core's share of an L3 cache. The longer an operation runs on the same
/// slices, the less it waits for the first lines of each slice. This gains more than a second pass from L2 instead of
/// L3 (D-Code 7, Zen 4: 32 KiB 1.2 times as fast as 8).
const TILE_SET_STREAMING_BYTES: usize = 4 << 20;

/// Below this a tile's slices are too short for the memory's prefetchers: D-Code 7 from DRAM runs
/// at 13 GB/s with 1 KiB, at 18 GB/s with 4 KiB and more.
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
    // Not one chain of both: this check is a measurable part of the time in L1.
    let same = |bytes: usize| assert_eq!(bytes, length, "slices of one length");
    inputs.iter().for_each(|slice| same(slice.len()));
    outputs.iter().for_each(|slice| same(slice.len()));
    let stream = stores.streams(operands * length);
    if let ([operation], 0) = (program.operations(), program.temporaries()) {
        // SAFETY: the program's constructor asserted the shape and numbered the operands; the
        // slices have one length.
        unsafe { run_single(operation, kernel, inputs, outputs, stream) };
        return;
    }
    // Outputs that later operations read are stored past the cache, and in a copy to read from.
    let (operations, copies) = if stream {
        (program.streaming(), program.copies())
    } else {
        (program.operations(), 0)
    };
    let scratch_slices = program.temporaries() + copies;
    let tile = tile_bytes(program, operands + scratch_slices, length, stream);
    let mut scratch = vec![0u8; scratch_slices * tile];

    // The table of all operands; inputs are never written through it.
    let mut table = Room::<*mut u8, 96>::new(operands + scratch_slices);
    let scratch_start = scratch.as_mut_ptr();
    let temporaries = (0..scratch_slices).map(|i| scratch_start.wrapping_add(i * tile));
    let read = inputs.iter().map(|slice| slice.as_ptr().cast_mut());
    let written = outputs.iter_mut().map(|slice| slice.as_mut_ptr());
    let table = table.fill(read.chain(written).chain(temporaries));

    let mut targets = Room::<*mut u8, ROWS_MAX>::new(ROWS_MAX);
    let mut copied = Room::<*mut u8, ROWS_MAX>::new(ROWS_MAX);
    let mut initial = Room::<*const u8, ROWS_MAX>::new(ROWS_MAX);
    let mut sources = Room::<*const u8, 64>::new(program.sources_max());
    let mut at = 0;
    while at < length {
        let here = tile.min(length - at);
        for operation in operations {
            // Temporaries (from `operands` on) are as long as a tile and are reused in each tile.
            let pointer = |operand: u16| {
                let operand = usize::from(operand);
                table[operand].wrapping_add(if operand < operands { at } else { 0 })
            };
            let from = |operand: u16| match operand {
                ZERO => std::ptr::null(),
                _ => pointer(operand).cast_const(),
            };
            let copy = |operand: u16| match operand {
                ZERO => std::ptr::null_mut(),
                _ => pointer(operand),
            };
            let read = |&operand: &u16| pointer(operand).cast_const();
            let job = Job {
                targets: targets.fill(operation.targets.iter().map(|&o| pointer(o))),
                copies: copied.fill(operation.copies.iter().map(|&o| copy(o))),
                initial: initial.fill(operation.initial.iter().map(|&o| from(o))),
                sources: sources.fill(operation.sources.iter().map(read)),
                matrix: &operation.matrix,
                after: &operation.after,
                ones: operation.ones,
                powers: operation.powers,
                stream: stream && operation.streams,
                length: here,
            };
            debug_assert!(job.has_shape());
            // SAFETY: the program's constructor asserted the shape. Operand numbers are within the table (indexing
            // checks it); each pointer has `here` bytes behind it: inputs and outputs from `at`
            // on, temporaries from their start. Outputs are unique borrows, inputs are never
            // targets, and a target is read by its own operation only as its `initial`.
            unsafe { groups::combine(kernel, &job) };
        }
        at += here;
    }
    if stream {
        vector::fence();
    }
}

/// A program of one operation, such as P, P+Q and P+Q+R, without the table of operands: in L1 the
/// table takes a fifth of the time.
///
/// # Safety
///
/// The operation has its shape, its operands are among the slices, and these have one length.
#[inline(always)]
unsafe fn run_single(
    operation: &Operation,
    kernel: &Kernel,
    inputs: &[&[u8]],
    outputs: &mut [&mut [u8]],
    stream: bool,
) {
    let length = outputs[0].len();
    let mut targets = [std::ptr::null_mut(); ROWS_MAX];
    for (target, &o) in targets.iter_mut().zip(&operation.targets) {
        *target = outputs[usize::from(o) - inputs.len()].as_mut_ptr();
    }
    let from = |&o: &u16| match inputs.get(usize::from(o)) {
        Some(slice) => slice.as_ptr(),
        None if o == ZERO => std::ptr::null(),
        // An output starts from its own content.
        None => {
            let own = operation.targets.iter().position(|&t| t == o);
            targets[own.expect("its own target")].cast_const()
        }
    };
    let mut initial = [std::ptr::null(); ROWS_MAX];
    for (pointer, o) in initial.iter_mut().zip(&operation.initial) {
        *pointer = from(o);
    }
    let mut sources = Room::<*const u8, 64>::new(operation.sources.len());
    let job = Job {
        targets: &targets[..operation.targets.len()],
        copies: &[],
        initial: &initial[..operation.initial.len()],
        sources: sources.fill(
            operation
                .sources
                .iter()
                .map(|&o| inputs[usize::from(o)].as_ptr()),
        ),
        matrix: &operation.matrix,
        after: &operation.after,
        ones: operation.ones,
        powers: operation.powers,
        stream,
        length,
    };
    debug_assert!(job.has_shape());
    // SAFETY: the caller guarantees the shape; every pointer is of a slice of `length` bytes, those
    // of the targets of unique borrows.
    unsafe { groups::combine(kernel, &job) };
    if stream {
        vector::fence();
    }
}

/// Bytes of each operand per tile: tiles of nearly equal lengths.
fn tile_bytes(program: &Program, operands: usize, length: usize, stream: bool) -> usize {
    if program.operations().len() <= 1 {
        return length;
    }
    let set = if stream {
        TILE_SET_STREAMING_BYTES
    } else {
        TILE_SET_BYTES
    };
    let most = (set / operands.max(1)).max(TILE_BYTES_MIN);
    let tiles = length.div_ceil(most).max(1);
    let equal = length.div_ceil(tiles).next_multiple_of(TILE_BYTES_MIN);
    equal.min(length)
}

/// Space for a few items on the stack, or for many on the heap: an allocation takes as long as a
/// kilobyte of P+Q, and so does clearing space that is not used.
struct Room<T, const N: usize> {
    fixed: [MaybeUninit<T>; N],
    heap: Vec<MaybeUninit<T>>,
}

impl<T: Copy, const N: usize> Room<T, N> {
    /// For up to `most` items.
    fn new(most: usize) -> Self {
        let mut heap = Vec::new();
        if most > N {
            heap.resize_with(most, MaybeUninit::uninit);
        }
        Self {
            fixed: [const { MaybeUninit::uninit() }; N],
            heap,
        }
    }

    /// Stores the items at the start, and returns them.
    ///
    /// # Panics
    ///
    /// When there are more items than there is space for.
    #[inline(always)]
    fn fill(&mut self, items: impl Iterator<Item = T>) -> &[T] {
        let room: &mut [MaybeUninit<T>] = if self.heap.is_empty() {
            &mut self.fixed
        } else {
            &mut self.heap
        };
        let mut count = 0;
        // Not a `for` loop: internal iteration of a chain is a separate loop for each of its parts.
        items.for_each(|item| {
            room[count].write(item);
            count += 1;
        });
        // SAFETY: the first `count` items were just written.
        unsafe { room[..count].assume_init_ref() }
    }
}
