//! The bytes that an operation writes, as whole blocks.

use block::BLOCK_BYTES;
use format::seeded::{self, SeededFault};
use plan::action::{ComputeStep, Slice};
use plan::geometry::Segment;
use plan::{BufferId, Piece, RequestId, ScratchId, Source};

/// A write whose bytes are (or will be) whole blocks.
///
/// Blocks that a request covers only in part, and all blocks of a write of zeros, are put together in staging memory:
/// the old block is read into it, and the new bytes are copied over it.
#[derive(Clone, Debug)]
pub(crate) struct Prepared {
    /// Whole blocks to write.
    pub(crate) sources: Vec<Source>,
    /// Old blocks to read into staging memory first.
    pub(crate) reads: Vec<Piece>,
    /// New bytes to copy over them.
    pub(crate) overlay: Vec<ComputeStep>,
    pub(crate) staging: Staging,
}

/// Memory in which blocks are put together, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Staging {
    /// Not needed: all blocks are in the request's memory.
    Unneeded,
    /// It has a name, and is not allocated.
    Named(ScratchId, u64),
    /// The driver has allocated it. Old blocks are read into it, and new bytes copied over them.
    Provided(ScratchId, u64),
    /// It holds the complete blocks.
    Filled(ScratchId, u64),
}

impl Staging {
    /// The memory, if the driver has allocated it.
    pub(crate) const fn memory(self) -> Option<ScratchId> {
        match self {
            Self::Unneeded | Self::Named(..) => None,
            Self::Provided(memory, _) | Self::Filled(memory, _) => Some(memory),
        }
    }
}

impl Prepared {
    /// A write of the request's bytes (`Some(request)`) or of zeros (`None`) to `segments`.
    /// `staging` is a fresh name; it is used only if needed.
    pub(crate) fn new(
        segments: &[Segment],
        request: Option<RequestId>,
        staging: ScratchId,
    ) -> Self {
        let mut prepared = Self::of(Vec::new());
        let mut bytes = 0;
        for segment in segments {
            let low = segment.low / BLOCK_BYTES * BLOCK_BYTES;
            let high = segment.high.next_multiple_of(BLOCK_BYTES);
            let new_bytes = |low: u64, high: u64| {
                request.map(|id| Slice {
                    buffer: BufferId::Request(id),
                    offset: segment.buffer_offset + (low - segment.low),
                    length: high - low,
                })
            };
            let mut inner_low = segment.low.next_multiple_of(BLOCK_BYTES);
            let mut inner_high = segment.high / BLOCK_BYTES * BLOCK_BYTES;
            if inner_low >= inner_high || request.is_none() {
                // The request has no whole block of its own bytes: all goes through staging memory.
                (inner_low, inner_high) = (high, high);
            }
            if inner_low < inner_high {
                prepared
                    .sources
                    .extend(new_bytes(inner_low, inner_high).map(|slice| Source {
                        slot: segment.slot,
                        low: inner_low,
                        slice,
                    }));
            }
            for (low, high) in [(low, inner_low), (inner_high, high)] {
                if low == high {
                    continue;
                }
                let staged = Slice {
                    buffer: BufferId::Scratch(staging),
                    offset: bytes,
                    length: high - low,
                };
                bytes += high - low;
                prepared.stage(segment, low, staged, new_bytes);
            }
        }
        if bytes > 0 {
            prepared.staging = Staging::Named(staging, bytes);
        }
        prepared
    }

    /// A write of whole blocks that are all in memory.
    pub(crate) const fn of(sources: Vec<Source>) -> Self {
        Self {
            sources,
            reads: Vec::new(),
            overlay: Vec::new(),
            staging: Staging::Unneeded,
        }
    }

    /// True if its blocks are complete in memory. If not they are put together first.
    pub(crate) const fn is_staged(&self) -> bool {
        matches!(self.staging, Staging::Unneeded | Staging::Filled(..))
    }

    /// The staging memory that the driver must allocate now, and its size; `None` if it is allocated or not needed.
    pub(crate) const fn provide(&mut self) -> Option<(ScratchId, u64)> {
        let Staging::Named(memory, bytes) = self.staging else {
            return None;
        };
        self.staging = Staging::Provided(memory, bytes);
        Some((memory, bytes))
    }

    /// The blocks have been put together.
    pub(crate) const fn filled(&mut self) {
        if let Staging::Provided(memory, bytes) = self.staging {
            self.staging = Staging::Filled(memory, bytes);
        }
    }

    /// Adds blocks from `low` on that are put together in `staged`.
    fn stage(
        &mut self,
        segment: &Segment,
        low: u64,
        staged: Slice,
        new_bytes: impl Fn(u64, u64) -> Option<Slice>,
    ) {
        let high = low + staged.length;
        let (new_low, new_high) = (segment.low.max(low), segment.high.min(high));
        self.sources.push(Source {
            slot: segment.slot,
            low,
            slice: staged,
        });
        self.overlay.push(ComputeStep {
            target: staged.part(new_low - low, new_high - new_low),
            accumulate: false,
            terms: new_bytes(new_low, new_high)
                .map(|slice| (slice, 1))
                .into_iter()
                .collect(),
        });
        // The first and the last block are read if some of their old bytes stay.
        let first = (new_low > low).then_some(low);
        let last = (new_high < high).then_some(high - BLOCK_BYTES);
        let second = last.filter(|&last| first != Some(last));
        let first = first.filter(|_| !seeded::is(SeededFault::PartialKeepsScratch));
        for block in first.into_iter().chain(second) {
            self.reads.push(Piece {
                slot: segment.slot,
                low: block,
                slice: staged.part(block - low, BLOCK_BYTES),
            });
        }
    }

    /// Replaces the staging memory by another one. It holds nothing yet.
    pub(crate) fn move_staging(&mut self, (old, new): (ScratchId, ScratchId), bytes: u64) {
        let moved = |slice: &mut Slice| {
            if slice.buffer == BufferId::Scratch(old) {
                slice.buffer = BufferId::Scratch(new);
            }
        };
        for source in &mut self.sources {
            moved(&mut source.slice);
        }
        for piece in &mut self.reads {
            moved(&mut piece.slice);
        }
        for step in &mut self.overlay {
            moved(&mut step.target);
        }
        self.staging = Staging::Named(new, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client's write of these bytes of the first chunk, or one of zeros.
    fn prepared(low: u64, high: u64, bytes: bool) -> Prepared {
        let segment = Segment {
            slot: 0,
            low,
            high,
            buffer_offset: 0,
        };
        Prepared::new(&[segment], bytes.then_some(RequestId(1)), ScratchId(9))
    }

    /// The old blocks that it reads: the first byte of each.
    fn reads(prepared: &Prepared) -> Vec<u64> {
        prepared.reads.iter().map(|piece| piece.low).collect()
    }

    #[test]
    fn whole_blocks_are_written_from_the_requests_memory() {
        let mut prepared = prepared(BLOCK_BYTES, 3 * BLOCK_BYTES, true);
        assert!(prepared.is_staged() && prepared.provide().is_none());
        assert_eq!(prepared.sources.len(), 1);
        assert_eq!(prepared.staging.memory(), None);
    }

    #[test]
    fn a_block_that_is_written_in_part_is_put_together_in_staging_memory() {
        let mut prepared = prepared(512, 3 * BLOCK_BYTES - 512, true);
        assert_eq!(reads(&prepared), [0, 2 * BLOCK_BYTES]);
        assert_eq!(prepared.sources.len(), 3, "the middle is the request's");
        assert!(!prepared.is_staged());
        assert_eq!(prepared.staging.memory(), None, "it has only a name");
        assert_eq!(prepared.provide(), Some((ScratchId(9), 2 * BLOCK_BYTES)));
        assert_eq!(prepared.provide(), None, "it is asked for once");
        assert_eq!(prepared.staging.memory(), Some(ScratchId(9)));
        prepared.filled();
        assert!(prepared.is_staged());
        assert_eq!(prepared.staging.memory(), Some(ScratchId(9)));
    }

    #[test]
    fn a_part_in_the_middle_of_a_block_reads_the_block_once() {
        let prepared = prepared(512, 1024, true);
        assert_eq!(reads(&prepared), [0]);
    }

    #[test]
    fn zeros_are_laid_into_staging_memory_and_need_no_old_blocks_if_they_are_whole() {
        let prepared = prepared(0, 2 * BLOCK_BYTES, false);
        assert!(!prepared.is_staged());
        assert!(reads(&prepared).is_empty());
        assert!(prepared.overlay.iter().all(|step| step.terms.is_empty()));
    }

    #[test]
    fn staging_memory_that_a_straggler_writes_is_asked_for_anew() {
        let mut prepared = prepared(512, 1024, true);
        prepared.provide();
        prepared.move_staging((ScratchId(9), ScratchId(10)), BLOCK_BYTES);
        assert_eq!(prepared.provide(), Some((ScratchId(10), BLOCK_BYTES)));
        let new = BufferId::Scratch(ScratchId(10));
        assert_eq!(prepared.reads[0].slice.buffer, new);
        assert_eq!(prepared.overlay[0].target.buffer, new);
        assert_eq!(prepared.sources[0].slice.buffer, new);
    }
}
