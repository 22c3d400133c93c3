//! Allocates space in the lane's ring, which is the same range on every drive.

use std::collections::VecDeque;
use std::ops::RangeInclusive;

use format::seeded::{self, SeededFault};
use format::{Sequence, VolumeId};

use super::shares::Ledger;

/// A batch in the ring that has not been released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) sequence: Sequence,
    /// In blocks from the start of the ring's batches.
    pub(super) position: u64,
    pub(super) length: u64,
}

/// The ring's blocks, and the batches that occupy them. Batches follow one another. A batch that does not fit before
/// the end begins at the start; a reader of the ring looks for it there, too.
#[derive(Clone, Debug, Default)]
pub(super) struct Ring {
    blocks: u64,
    head: u64,
    live: VecDeque<Placed>,
    /// Blocks of all live batches.
    used: u64,
    /// Blocks that batches have taken since the beginning, all together.
    taken: u64,
    /// The volumes' shares of the blocks in use.
    shares: Ledger,
}

impl Ring {
    pub(super) fn new(blocks: u64) -> Self {
        Self {
            blocks,
            ..Self::default()
        }
    }

    /// A batch takes at most a quarter, so that one can be written while others are in place.
    pub(super) const fn batch_blocks_max(&self) -> u64 {
        self.blocks / 4
    }

    /// True if so much is used that a checkpoint should begin. The more a checkpoint puts in place at once, the more
    /// blocks share a page; the other half of the ring is for batches that come meanwhile.
    pub(super) const fn wants_checkpoint(&self) -> bool {
        self.used >= self.blocks / 2
    }

    /// Checks that batches lie one behind the other and do not overlap.
    ///
    /// # Panics
    /// When they do not, or the count of blocks in use is wrong.
    pub(super) fn check(&self) {
        let used: u64 = self.live.iter().map(|placed| placed.length).sum();
        assert_eq!(used, self.used, "blocks in use");
        let mut wraps = 0;
        let pairs = self.live.iter().zip(self.live.iter().skip(1));
        for (before, next) in pairs {
            assert!(
                before.sequence < next.sequence,
                "{before:?} is before {next:?}"
            );
            if next.position < before.position {
                wraps += 1;
            } else {
                let end = before.position + before.length;
                assert!(end <= next.position, "{before:?} ends before {next:?}");
            }
        }
        let (first, last) = (self.live.front(), self.live.back());
        let end = last.map_or(0, |last| last.position + last.length);
        assert!(end <= self.blocks && wraps <= 1);
        // Once the ring has wrapped, the newest batch is before the oldest.
        assert!(
            wraps == 0 || first.is_some_and(|first| end <= first.position),
            "the ring's newest batch ends at {end}, and {first:?} is its oldest"
        );
    }

    pub(super) fn is_empty(&self) -> bool {
        self.live.is_empty()
    }

    pub(super) const fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Blocks of all batches that have not been released.
    pub(super) const fn used(&self) -> u64 {
        self.used
    }

    /// Blocks that batches have taken, all together.
    pub(super) const fn taken(&self) -> u64 {
        self.taken
    }

    /// Where a batch of `length` blocks would go, if there is room.
    pub(super) fn place(&self, length: u64) -> Option<u64> {
        let fits_at_head = self.head + length <= self.blocks;
        if seeded::is(SeededFault::RingOverwrites) {
            return Some(if fits_at_head { self.head } else { 0 });
        }
        let Some(tail) = self.live.front().map(|placed| placed.position) else {
            return Some(if fits_at_head { self.head } else { 0 });
        };
        if tail < self.head {
            if fits_at_head {
                Some(self.head)
            } else {
                (length < tail).then_some(0)
            }
        } else {
            (self.head + length < tail).then_some(self.head)
        }
    }

    /// The same, if no more than `most` blocks are in use afterwards.
    pub(super) fn place_up_to(&self, length: u64, most: u64) -> Option<u64> {
        (self.used + length <= most || self.live.is_empty())
            .then(|| self.place(length))
            .flatten()
    }

    /// A batch occupies its place (written there, or found there by recovery); `shares`: the volumes' blocks of it.
    pub(super) fn take(&mut self, placed: Placed, shares: Vec<(VolumeId, u64)>) {
        self.shares.take(placed.sequence, shares);
        self.head = placed.position + placed.length;
        self.used += placed.length;
        self.taken += placed.length;
        self.live.push_back(placed);
    }

    /// Where the next batch goes by default.
    pub(super) const fn head(&self) -> u64 {
        self.head
    }

    /// Empties the ring; the next batch goes to `head`.
    pub(super) fn begin_at(&mut self, head: u64) {
        self.live.clear();
        self.shares.clear();
        self.used = 0;
        self.head = head;
    }

    /// The place of the oldest batch from `sequence` on, or of the next batch if there is none.
    pub(super) fn position_of(&self, sequence: Sequence) -> u64 {
        let mut live = self.live.iter();
        let found = live.find(|placed| placed.sequence >= sequence);
        found.map_or(self.head, |placed| placed.position)
    }

    /// True if nothing before `sequence` is in the ring.
    pub(super) fn is_oldest(&self, sequence: Sequence) -> bool {
        self.live
            .front()
            .is_none_or(|placed| placed.sequence >= sequence)
    }

    /// Blocks of the batches in a range of sequence numbers.
    pub(super) fn used_by(&self, sequences: RangeInclusive<Sequence>) -> u64 {
        let live = self.live.iter();
        let batches = live.filter(|placed| sequences.contains(&placed.sequence));
        batches.map(|placed| placed.length).sum()
    }

    /// Releases the batches before `sequence`.
    pub(super) fn release_before(&mut self, sequence: Sequence) {
        while let Some(placed) = self.live.pop_front_if(|placed| placed.sequence < sequence) {
            self.used -= placed.length;
            self.shares.give_back(placed.sequence);
        }
    }

    /// The volumes' shares of the blocks in use.
    pub(super) const fn shares(&self) -> &Ledger {
        &self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_never_overwrites_one_that_counts() {
        let mut ring = Ring::new(100);
        let mut live: VecDeque<Placed> = VecDeque::new();
        let mut random = block::SplitMix64::new(1);
        let mut stalls = 0;
        for sequence in (1..10_000).map(Sequence) {
            let length = 1 + random.below(25);
            let Some(position) = ring.place(length) else {
                stalls += 1;
                let keep = live.len() / 2;
                live.drain(..live.len() - keep);
                ring.release_before(live.front().map_or(sequence, |placed| placed.sequence));
                continue;
            };
            let placed = Placed {
                sequence,
                position,
                length,
            };
            assert!(position + length <= 100);
            for other in &live {
                let apart = position + length <= other.position
                    || other.position + other.length <= position;
                assert!(apart, "{placed:?} overwrites {other:?}");
            }
            // A reader that follows the chain looks for the batch at the head or at the start.
            assert!(position == ring.head() || position == 0);
            ring.take(placed, Vec::new());
            live.push_back(placed);
        }
        assert!(stalls > 100, "the ring was full now and then");
    }
}
