//! A batch: its units, its header, and what of it is on drives.

use block::Seat;

use super::buffer::BatchBuffer;
use super::unit::Unit;
use super::waiting::Lot;
use crate::VolumeId;
use crate::action::Slice;
use crate::format::BatchHeader;
use crate::lane::writes::Writes;

/// CRC-32C of a block of zeros.
pub(super) const ZEROS_CRC: u32 = 0x98f9_4189;

/// A batch in flight, or one that drives have refused (`gaps.rs`).
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) units: Vec<Unit>,
    pub(super) lot: Lot,
    /// Whose it is, if all of it is one volume's.
    pub(super) volume: Option<VolumeId>,
    pub(super) header: BatchHeader,
    pub(super) position: u64,
    pub(super) buffer: BatchBuffer,
    pub(super) writes: Writes,
    pub(super) writing: bool,
}

impl Batch {
    pub(super) fn data_columns(&self) -> usize {
        usize::from(self.header.data_columns)
    }
}

/// Columns of a batch that are to be written.
pub(super) struct Columns {
    pub(super) position: u64,
    pub(super) slices: Vec<(Seat, Slice)>,
}

impl Columns {
    /// Those on these seats; they count as in flight from now on.
    pub(super) fn of(batch: &mut Batch, seats: &[Seat]) -> Self {
        let columns = batch.header.seats.iter().enumerate();
        let slices = columns
            .filter(|(_, seat)| seats.contains(seat))
            .map(|(index, &seat)| (seat, batch.buffer.column(index)));
        let slices: Vec<_> = slices.collect();
        for _ in &slices {
            batch.writes.begin();
        }
        Self {
            position: batch.position,
            slices,
        }
    }
}

/// CRC-32C of the XOR of row `row`'s blocks, from those of the blocks, column by column. A checksum is
/// linear but for a constant, so that each two blocks leave that of zeros.
pub(super) fn crc_of_sum(crcs: &[u32], row: usize, rows: usize) -> u32 {
    let of_row = crcs.iter().skip(row).step_by(rows);
    let (sum, count) = of_row.fold((0, 0_u32), |(sum, count), crc| (sum ^ crc, count + 1));
    match count % 2 {
        0 => sum ^ ZEROS_CRC,
        _ => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_sum_follows_from_those_of_its_terms() {
        let block = |seed: u8| -> Vec<u8> {
            (0..=255)
                .cycle()
                .map(|b: u8| b.wrapping_mul(seed))
                .take(4096)
                .collect()
        };
        assert_eq!(block::crc32c(&block(0)), ZEROS_CRC);
        for (data, rows) in [(2, 1), (2, 3), (3, 2), (4, 2), (5, 1)] {
            let blocks: Vec<Vec<u8>> = (0..data * rows)
                .map(|index| block(u8::try_from(index).unwrap() * 2 + 1))
                .collect();
            let crcs: Vec<u32> = blocks.iter().map(|block| block::crc32c(block)).collect();
            for row in 0..rows {
                let mut sum = vec![0; 4096];
                for column in 0..data {
                    for (byte, &more) in sum.iter_mut().zip(&blocks[column * rows + row]) {
                        *byte ^= more;
                    }
                }
                assert_eq!(crc_of_sum(&crcs, row, rows), block::crc32c(&sum));
            }
        }
    }
}
