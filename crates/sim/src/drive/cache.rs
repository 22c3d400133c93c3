//! The volatile cache of a drive: writes that have not been flushed, and what a power cut leaves of them.

use super::fault::Pieces;
use crate::content::{Block, SECTORS};
use crate::image::Image;

/// What a power cut leaves of one write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Survival {
    /// Nothing.
    Lost,
    /// All of it.
    Kept,
    /// Some of its sectors.
    Torn(Pieces),
}

/// One write in the cache.
#[derive(Clone, Debug)]
struct Cached {
    /// Its place among all writes to all drives.
    sequence: u64,
    first: u64,
    blocks: usize,
}

/// Writes that no flush has covered, oldest first.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cache {
    writes: Vec<Cached>,
    /// Contents of all of them, one after another.
    blocks: Vec<Block>,
    /// Writes that have left the cache since the drive was created.
    flushed: u64,
}

impl Cache {
    /// Adds a write.
    pub(crate) fn push(&mut self, sequence: u64, first: u64, blocks: impl Iterator<Item = Block>) {
        let before = self.blocks.len();
        self.blocks.extend(blocks);
        self.writes.push(Cached {
            sequence,
            first,
            blocks: self.blocks.len() - before,
        });
    }

    /// The mark of a flush that begins now: the flush covers all writes before it.
    pub(crate) const fn mark(&self) -> u64 {
        self.flushed + self.writes.len() as u64
    }

    /// A flush that began at `mark` has ended.
    pub(crate) fn flush(&mut self, mark: u64, durable: &mut Image) {
        let count = mark.saturating_sub(self.flushed);
        let count = usize::try_from(count).expect("fits into memory");
        let mut blocks = 0;
        for write in &self.writes[..count] {
            let contents = &self.blocks[blocks..blocks + write.blocks];
            for (at, block) in (write.first..).zip(contents) {
                durable.set(at, block.clone());
            }
            blocks += write.blocks;
        }
        self.flushed = self.flushed.max(mark);
        if count == self.writes.len() {
            self.writes.clear();
            self.blocks.clear();
        } else {
            self.writes.drain(..count);
            self.blocks.drain(..blocks);
        }
    }

    /// Writes in it: place among all writes, and sectors.
    pub(crate) fn writes(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.writes.iter().map(|write| {
            let sectors = u32::try_from(write.blocks * SECTORS).expect("writes are short");
            (write.sequence, sectors)
        })
    }

    /// Cuts the power: `decide` decides about each write, in order.
    pub(crate) fn cut(
        &mut self,
        durable: &mut Image,
        mut decide: impl FnMut(u64, u32) -> Survival,
    ) {
        let mut begin = 0;
        for write in &self.writes {
            let contents = &self.blocks[begin..begin + write.blocks];
            begin += write.blocks;
            let sectors = u32::try_from(write.blocks * SECTORS).expect("writes are short");
            let pieces = match decide(write.sequence, sectors) {
                Survival::Lost => continue,
                Survival::Kept => None,
                Survival::Torn(pieces) => Some(pieces),
            };
            for (index, (at, block)) in (write.first..).zip(contents).enumerate() {
                let mask = pieces.map_or(u8::MAX, |pieces| pieces.mask(index));
                if mask == u8::MAX {
                    durable.set(at, block.clone());
                } else if mask != 0 {
                    let mut torn = durable.get(at).clone();
                    torn.splice(block, mask);
                    durable.set(at, torn);
                }
            }
        }
        self.flushed += self.writes.len() as u64;
        self.writes.clear();
        self.blocks.clear();
    }
}
