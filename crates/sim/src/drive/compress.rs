//! A drive that compresses: each block takes physical space by its content, and a write beyond the budget is refused
//! whole, before a byte changes.
//!
//! Zeros and discarded blocks take nothing. A block of repeated bytes takes an eighth of a sector for some bytes and a
//! whole sector for others: the ratio is between one and eight, and changes with the values that clients write. Other
//! blocks take a byte for each byte that is not zero.

use block::{BLOCK_BYTES, Fault, Usage, mix};

use super::Drive;
use super::discard::is_rubbish;
use crate::content::{Block, SECTOR};

/// A drive's physical space.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    physical_bytes: u64,
    used_bytes: u64,
}

/// The physical space of a block.
fn length(block: &Block) -> u64 {
    match block {
        Block::Sectors(sectors) => {
            let of_sector = |&value: &u8| match value {
                0 => 0,
                value if mix(u64::from(value)).is_multiple_of(2) => SECTOR as u64 / 8,
                _ => SECTOR as u64,
            };
            sectors.iter().map(of_sector).sum()
        }
        Block::Bytes(_) if is_rubbish(block) => 0,
        Block::Bytes(full) => full.bytes().iter().filter(|byte| **byte != 0).count() as u64,
    }
}

impl Drive {
    /// With so much physical space.
    #[must_use]
    pub const fn with_physical(mut self, physical_bytes: Option<u64>) -> Self {
        self.budget = match physical_bytes {
            Some(physical_bytes) => Some(Budget {
                physical_bytes,
                used_bytes: 0,
            }),
            None => None,
        };
        self
    }

    /// Its physical capacity, if it compresses.
    pub(super) fn physical_bytes(&self) -> Option<u64> {
        self.budget.map(|budget| budget.physical_bytes)
    }

    /// How much of its physical space it uses, if it compresses.
    #[must_use]
    pub fn usage(&self) -> Option<Usage> {
        let budget = self.budget?;
        Some(Usage {
            physical_bytes: budget.physical_bytes,
            used_bytes: budget.used_bytes,
        })
    }

    /// Counts a write of these blocks from block `first` on; refuses it if there is no room.
    pub(super) fn take_space(&mut self, first: u64, blocks: &[Block]) -> Result<(), Fault> {
        let Some(budget) = self.budget else {
            return Ok(());
        };
        let after: u64 = blocks.iter().map(length).sum();
        let there = (first..).take(blocks.len());
        let before: u64 = there.map(|at| length(self.current.get(at))).sum();
        let used_bytes = budget.used_bytes.saturating_sub(before) + after;
        if after > before && used_bytes > budget.physical_bytes {
            self.faults.fulls += 1;
            return Err(Fault::Full);
        }
        self.budget = Some(Budget {
            used_bytes,
            ..budget
        });
        Ok(())
    }

    /// Counts all blocks again: their content has changed otherwise.
    pub(super) fn count_again(&mut self) {
        if let Some(budget) = &mut self.budget {
            let blocks = 0..self.size_bytes / BLOCK_BYTES;
            let lengths = blocks.map(|at| length(self.current.get(at)));
            budget.used_bytes = lengths.sum();
        }
    }
}
