//! The shape of a batch of the log: its number of columns and of rows.

use format::BatchHeader;

/// Blocks of a header at most. Recovery reads none that is longer.
pub(crate) const HEADER_BLOCKS_MAX: u64 = 4;

/// The cost of a drive operation beside its bytes, in blocks: 1 to 2 us of CPU time, while copying a block takes 0.3 to
/// 0.5 us.
const OPERATION_BLOCKS: u64 = 3;

/// How a batch is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) data: usize,
    pub(super) rows: usize,
    header: u64,
}

impl Shape {
    /// The shape with at most `width` data columns, for so many blocks and bytes of descriptors.
    pub(super) fn new(width: usize, parity: usize, blocks: usize, bytes: usize) -> Self {
        let rows = blocks.div_ceil(width);
        let data = blocks.div_ceil(rows.max(1)).max(1);
        let header = BatchHeader::blocks(data + parity, parity * rows, bytes);
        Self { data, rows, header }
    }

    /// The cheapest shape that fits. Few blocks are cheapest as copies on as many drives as required; many blocks are
    /// spread, with parity.
    pub(super) fn cheapest(
        (widest, parity): (usize, usize),
        (blocks, bytes): (usize, usize),
        limit: u64,
    ) -> Self {
        let cost = |shape: &Self| {
            (shape.data + parity) as u64 * (shape.header + shape.rows as u64 + OPERATION_BLOCKS)
        };
        let shapes = (1..=widest.min(blocks.max(1)))
            .map(|width| Self::new(width, parity, blocks, bytes))
            .filter(|shape| shape.fits(limit));
        let widest = || Self::new(widest, parity, blocks, bytes);
        shapes.min_by_key(cost).unwrap_or_else(widest)
    }

    pub(super) const fn length(&self) -> u64 {
        self.header + self.rows as u64
    }

    pub(super) const fn fits(&self, limit: u64) -> bool {
        self.length() <= limit && self.header <= HEADER_BLOCKS_MAX
    }
}

/// The largest number of data columns of a batch with `parity` other columns.
pub(super) fn data_columns_max(live: u16, parity: u16) -> u16 {
    // P+Q+R exists for fewer columns than others; a mirror of more than three copies is a mirror.
    if parity > 3 {
        1
    } else {
        (live - parity).min(64)
    }
}

#[cfg(test)]
mod tests {
    use format::DESCRIPTOR_BYTES;

    use super::*;
    use crate::log::DESCRIPTORS_MAX;

    const LIMIT: u64 = 1000;

    #[test]
    fn few_blocks_are_copied_and_many_are_spread() {
        let shape = |blocks| Shape::cheapest((5, 1), (blocks, blocks * DESCRIPTOR_BYTES), LIMIT);
        assert_eq!((shape(2).data, shape(2).rows), (1, 2));
        assert_eq!(shape(480).data, 5);
    }

    #[test]
    fn a_batch_takes_no_more_of_the_ring_and_of_its_header_than_it_may() {
        for parity in 0..=3 {
            for widest in 1..=8 {
                for blocks in 0..=DESCRIPTORS_MAX {
                    for limit in [16, 63, 255, 4096] {
                        let bytes = blocks * DESCRIPTOR_BYTES;
                        let most = Shape::new(widest, parity, blocks, bytes);
                        let shape = Shape::cheapest((widest, parity), (blocks, bytes), limit);
                        assert!(shape.fits(limit) || !most.fits(limit));
                        assert!(shape.data * shape.rows >= blocks && shape.data <= widest);
                    }
                }
            }
        }
    }
}
