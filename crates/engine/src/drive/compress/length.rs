//! The compressed length of blocks.

use std::cell::RefCell;

use block::Memory;
use lz4_flex::block::{CompressTable, compress_into_with_table, get_maximum_output_size};

use super::super::handle::copy_out;
use super::ledger::BLOCK_BYTES;

/// The length of a block that does not get shorter: it is stored as it is.
pub(super) const WHOLE: u16 = 4096;
const _: () = assert!(WHOLE as usize == BLOCK_BYTES);

/// What compressing needs beside the block.
struct Scratch {
    table: CompressTable,
    output: Vec<u8>,
    block: [u8; BLOCK_BYTES],
}

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch {
        table: CompressTable::small(),
        output: vec![0; get_maximum_output_size(BLOCK_BYTES)],
        block: [0; BLOCK_BYTES],
    });
}

impl Scratch {
    /// The physical bytes of `self.block`: its length as an LZ4 block, at most its own; 0 if it is all zeros.
    fn length(&mut self) -> u16 {
        if self.block == [0; BLOCK_BYTES] {
            return 0;
        }
        let length = compress_into_with_table(&self.block, &mut self.output, &mut self.table);
        let length = length.ok().and_then(|length| u16::try_from(length).ok());
        length.map_or(WHOLE, |length| length.min(WHOLE))
    }
}

/// The physical bytes of each block of `memory`, whose parts are whole blocks.
pub(super) fn lengths(memory: &Memory) -> Vec<u16> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut lengths = Vec::with_capacity(memory.len() / BLOCK_BYTES);
        for part in memory.parts() {
            for start in (0..part.len()).step_by(BLOCK_BYTES) {
                copy_out(part, start..start + BLOCK_BYTES, &mut scratch.block);
                lengths.push(scratch.length());
            }
        }
        lengths
    })
}

#[cfg(test)]
mod tests {
    use block::SplitMix64;

    use super::*;

    #[test]
    fn zeros_take_nothing_noise_takes_all_and_half_noise_takes_half() {
        let noise = SplitMix64::new(3).bytes(BLOCK_BYTES);
        let mut bytes = vec![0; 4 * BLOCK_BYTES];
        bytes[BLOCK_BYTES..2 * BLOCK_BYTES].copy_from_slice(&noise);
        bytes[2 * BLOCK_BYTES..][..BLOCK_BYTES / 2].copy_from_slice(&noise[..BLOCK_BYTES / 2]);
        bytes[4 * BLOCK_BYTES - 1] = 1;
        let found = lengths(&Memory::from_bytes(&bytes));
        assert_eq!((found[0], found[1]), (0, WHOLE));
        assert!((2048..2200).contains(&found[2]), "{found:?}");
        assert!((1..64).contains(&found[3]), "{found:?}");
    }

    #[test]
    fn memory_in_parts_counts_as_the_same_bytes_in_one() {
        let bytes = Memory::from_bytes(&SplitMix64::new(5).bytes(3 * BLOCK_BYTES));
        let part = |first: usize| bytes.slice(first * BLOCK_BYTES..(first + 1) * BLOCK_BYTES);
        let joined = Memory::joined(vec![part(0), part(1), part(2)]);
        assert_eq!(lengths(&joined), lengths(&bytes));
    }
}
