//! What a drive returns for space that was discarded: bytes that no client has written.
//!
//! Real drives return zeros, the old content, or anything. These drives return the worst case. A discard is in the
//! cache like a write of these bytes, so a power cut loses it, keeps it, or tears it.

use std::sync::LazyLock;

use block::{BLOCK_BYTES, Fault, mix};

use super::fault::Effect;
use super::{Drive, Region};
use crate::content::{BLOCK, Block};

/// Different blocks, so that those of a row form a codeword only by chance.
static RUBBISH: LazyLock<Vec<Block>> = LazyLock::new(|| {
    let block = |number: u64| {
        let words = (0..BLOCK as u64 / 8).map(|at| mix(number << 32 | at | 1 << 62));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        Block::from_bytes(&bytes)
    };
    (0..32).map(block).collect()
});

/// Content of block `at` after discard number `sequence`.
pub(crate) fn rubbish(sequence: u64, at: u64) -> Block {
    let number = mix(sequence ^ mix(at)) % RUBBISH.len() as u64;
    RUBBISH[usize::try_from(number).expect("there are few")].clone()
}

/// Whether a block is of discarded space.
pub(super) fn is_rubbish(block: &Block) -> bool {
    RUBBISH.contains(block)
}

impl Drive {
    /// Discards a range. `sequence` is the discard's place among all writes.
    pub(crate) fn discard_blocks(
        &mut self,
        (offset, length): (u64, u64),
        effect: Effect,
        sequence: u64,
    ) -> Result<(), Fault> {
        let first = offset / BLOCK_BYTES;
        let blocks = (first..first + length / BLOCK_BYTES).map(|at| rubbish(sequence, at));
        let written_bytes = self.written_bytes;
        let outcome = self.write_blocks((offset, length), effect, sequence, blocks);
        self.written_bytes = written_bytes;
        if let Some(map) = &self.map {
            let mut regions = Region::ALL.into_iter();
            let region = regions.find(|region| region.range(map).contains(&offset));
            let bytes = self
                .discarded
                .entry(region.expect("the last one has no end"));
            *bytes.or_default() += length;
        }
        outcome
    }

    /// Bytes of a region that were discarded since the drive was created, if it is a pool's drive.
    #[must_use]
    pub fn discarded_bytes(&self, region: Region) -> u64 {
        self.discarded.get(&region).copied().unwrap_or(0)
    }
}
