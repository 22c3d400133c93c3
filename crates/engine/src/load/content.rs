//! What a load writes: blocks that compress to a given share, all of them different.
//!
//! ```text
//!    │ number │      noise       │             one byte             │
//!    0        8               noise_bytes                         4096
//! ```
//!
//! The noise of a block is copied from a pool of random bytes, beginning at a random place. The number makes blocks
//! with the same noise different. All blocks have their noise in the same part, so that sums of blocks (parity)
//! compress as well as the blocks themselves, which parity of other data does not: what a drive stores of parity is
//! known in advance.

use block::{SplitMix64, mix};

/// Bytes of a block, the unit in which drives compress.
const BLOCK_BYTES: usize = 4096;

/// What LZ4 needs for a block that ends in one repeated byte, beside the noise itself: two bytes of tokens and an
/// offset, a byte for each 255 of noise and of repetition, and the last five bytes as they are.
const OVERHEAD_BYTES: usize = 27;

/// A block has at least the number and eight bytes of noise, else it would count as zeros.
const NOISE_BYTES_MIN: usize = 16;

/// Blocks begin in the pool at multiples of these.
const STEP_BYTES: usize = 64;

/// The pool stays in a processor's cache beside the blocks that are written.
const POOL_STEPS: usize = 4096;

/// The byte that is repeated. It is not zero, so that no part of a block is a hole.
const REPEATED: u8 = 0xa5;

/// Makes blocks.
#[derive(Debug)]
pub(super) struct Content {
    pool: Vec<u8>,
    noise_bytes: usize,
    random: SplitMix64,
    /// The next block's number.
    next: u64,
}

impl Content {
    /// Blocks that get `percent` smaller. Those of jobs with different numbers differ.
    pub(super) fn new(percent: u8, job: u64) -> Self {
        let mut random = SplitMix64::new(job);
        let pool = (0..(POOL_STEPS * STEP_BYTES + BLOCK_BYTES) / 8)
            .flat_map(|_| random.draw().to_le_bytes())
            .collect();
        let length = BLOCK_BYTES * usize::from(100 - percent.min(100)) / 100;
        Self {
            pool,
            noise_bytes: match percent {
                0 => BLOCK_BYTES,
                _ => length.saturating_sub(OVERHEAD_BYTES).max(NOISE_BYTES_MIN),
            },
            random,
            // Sixteen bits are more than the jobs that a load may have.
            next: job << 48,
        }
    }

    /// Writes new blocks over all of `bytes`, whole blocks.
    pub(super) fn fill(&mut self, bytes: &mut [u8]) {
        for block in bytes.chunks_exact_mut(BLOCK_BYTES) {
            let step = self.random.below(POOL_STEPS as u64);
            let at = usize::try_from(step).unwrap_or(0) * STEP_BYTES;
            let (noise, rest) = block.split_at_mut(self.noise_bytes);
            noise.copy_from_slice(&self.pool[at..at + noise.len()]);
            noise[..8].copy_from_slice(&mix(self.next).to_le_bytes());
            rest.fill(REPEATED);
            self.next += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn length(block: &[u8]) -> usize {
        lz4_flex::block::compress(block).len().min(BLOCK_BYTES)
    }

    #[test]
    fn blocks_and_their_parity_compress_to_their_share() {
        for percent in 0..100 {
            let mut blocks = vec![0; 3 * BLOCK_BYTES];
            Content::new(percent, 1).fill(&mut blocks);
            let expected = BLOCK_BYTES * usize::from(100 - percent) / 100;
            let mut parity = vec![0; BLOCK_BYTES];
            for block in blocks.chunks(BLOCK_BYTES) {
                assert!(length(block).abs_diff(expected) < 24, "{percent}");
                for (sum, byte) in parity.iter_mut().zip(block) {
                    *sum ^= byte;
                }
            }
            assert!(length(&parity).abs_diff(expected) < 24, "{percent}");
        }
    }

    #[test]
    fn blocks_of_all_jobs_are_different_and_none_is_zeros() {
        let mut seen = HashSet::new();
        for job in 0..4 {
            let mut blocks = vec![0; 2000 * BLOCK_BYTES];
            let mut content = Content::new(99, job);
            for _ in 0..2 {
                content.fill(&mut blocks);
                for block in blocks.chunks(BLOCK_BYTES) {
                    assert!(block != [0; BLOCK_BYTES]);
                    assert!(seen.insert(block[..NOISE_BYTES_MIN].to_vec()));
                }
            }
        }
    }
}
