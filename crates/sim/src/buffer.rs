//! Memory of the simulator: bytes, one byte per sector (for sectors of one repeated byte), or only a length.

use std::sync::Arc;

use crate::content::{BLOCK, Block, Full, PRODUCTS, SECTOR, SECTORS};

/// What a world's memory and drives hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Bytes.
    #[default]
    Bytes,
    /// Sectors of one repeated byte, mostly.
    Sectors,
    /// Nothing: a study of timing.
    Lengths,
}

/// The memory behind a buffer's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Buffer {
    Bytes(Vec<u8>),
    Sectors(Sectors),
    /// So many bytes, without content.
    Length(usize),
}

/// Sectors, of which most are one repeated byte.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sectors {
    values: Vec<u8>,
    /// Whole blocks with other content: their first sector, and their bytes.
    whole: Vec<(usize, Arc<Full>)>,
    /// Single sectors that remain of such blocks after other parts of the block were overwritten.
    odd: Vec<Odd>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Odd {
    at: usize,
    full: Arc<Full>,
    /// Index of the sector in `full`.
    sector: usize,
}

fn sector_of(full: &Full, sector: usize) -> &[u8] {
    &full.bytes()[sector * SECTOR..(sector + 1) * SECTOR]
}

fn to_sectors(bytes: usize) -> usize {
    assert!(
        bytes.is_multiple_of(SECTOR),
        "requests on symbolic contents are whole sectors"
    );
    bytes / SECTOR
}

/// `sum ^= coefficient · source`
pub(crate) fn add(sum: &mut [u8], source: &[u8], coefficient: u8) {
    if coefficient == 1 {
        for (sum, &byte) in sum.iter_mut().zip(source) {
            *sum ^= byte;
        }
    } else {
        let products = &PRODUCTS[usize::from(coefficient)];
        for (sum, &byte) in sum.iter_mut().zip(source) {
            *sum ^= products[usize::from(byte)];
        }
    }
}

impl Sectors {
    /// These values, each standing for a sector.
    pub(crate) const fn new(values: Vec<u8>) -> Self {
        Self {
            values,
            whole: Vec::new(),
            odd: Vec::new(),
        }
    }

    pub(crate) fn values(&self) -> &[u8] {
        &self.values
    }

    /// Returns the memory for reuse.
    pub(crate) fn into_values(self) -> Vec<u8> {
        self.values
    }

    /// All sectors that are stored as bytes.
    fn bytes(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let whole = self.whole.iter().flat_map(|(first, full)| {
            (0..SECTORS).map(move |sector| (first + sector, sector_of(full, sector)))
        });
        let odd = self.odd.iter();
        whole.chain(odd.map(|odd| (odd.at, sector_of(&odd.full, odd.sector))))
    }

    /// The first sector that is not one repeated byte, if there is one.
    pub(crate) fn first_odd(&self) -> Option<usize> {
        self.bytes()
            .filter(|(_, bytes)| bytes.iter().any(|&byte| byte != bytes[0]))
            .map(|(at, _)| at)
            .min()
    }

    fn odd_in(&self, first: usize, count: usize) -> bool {
        let end = first + count;
        let whole = |&(at, _): &(usize, Arc<Full>)| at < end && first < at + SECTORS;
        self.whole.iter().any(whole) || self.odd.iter().any(|odd| (first..end).contains(&odd.at))
    }

    fn forget_odd(&mut self, first: usize, count: usize) {
        let range = first..first + count;
        if !self.odd.is_empty() {
            self.odd.retain(|odd| !range.contains(&odd.at));
        }
        let odd = &mut self.odd;
        self.whole.retain(|(at, full)| {
            let all = *at..at + SECTORS;
            if all.start >= range.end || range.start >= all.end {
                return true;
            }
            for (sector, at) in all.enumerate().filter(|(_, at)| !range.contains(at)) {
                let full = Arc::clone(full);
                odd.push(Odd { at, full, sector });
            }
            false
        });
    }

    fn sector_to(&self, at: usize, target: &mut [u8]) {
        match self.bytes().find(|&(other, _)| other == at) {
            Some((_, bytes)) => target.copy_from_slice(bytes),
            None => target.fill(self.values[at]),
        }
    }

    fn block(&self, first: usize) -> Block {
        if let Some((_, full)) = self.whole.iter().find(|&&(at, _)| at == first) {
            return Block::Bytes(Arc::clone(full));
        }
        if !self.odd_in(first, SECTORS) {
            let values = self.values[first..first + SECTORS].try_into();
            return Block::Sectors(values.expect("eight sectors"));
        }
        let mut bytes = [0; BLOCK];
        for (at, sector) in (first..).zip(bytes.chunks_exact_mut(SECTOR)) {
            self.sector_to(at, sector);
        }
        Block::from_bytes(&bytes)
    }

    fn set_block(&mut self, first: usize, block: &Block) {
        self.forget_odd(first, SECTORS);
        match block {
            Block::Sectors(values) => self.values[first..first + SECTORS].copy_from_slice(values),
            Block::Bytes(full) => self.whole.push((first, Arc::clone(full))),
        }
    }

    fn set_sector(&mut self, at: usize, bytes: &[u8]) {
        self.forget_odd(at, 1);
        if bytes.iter().all(|&byte| byte == bytes[0]) {
            self.values[at] = bytes[0];
            return;
        }
        let mut block = [0; BLOCK];
        block[..SECTOR].copy_from_slice(bytes);
        let Block::Bytes(full) = Block::from_bytes(&block) else {
            unreachable!("its first sector is not one repeated byte");
        };
        let sector = 0;
        self.odd.push(Odd { at, full, sector });
    }
}

impl Buffer {
    /// The whole block that begins at byte `offset`.
    pub(crate) fn block(&self, offset: usize) -> Block {
        match self {
            Self::Bytes(bytes) => Block::from_bytes(&bytes[offset..offset + BLOCK]),
            Self::Sectors(sectors) => sectors.block(to_sectors(offset)),
            Self::Length(_) => Block::ZERO,
        }
    }

    pub(crate) fn set_block(&mut self, offset: usize, block: &Block) {
        match self {
            Self::Bytes(bytes) => block.copy_to(&mut bytes[offset..offset + BLOCK]),
            Self::Sectors(sectors) => sectors.set_block(to_sectors(offset), block),
            Self::Length(_) => {}
        }
    }

    /// Bytes in it.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Sectors(sectors) => sectors.values.len() * SECTOR,
            Self::Length(bytes) => *bytes,
        }
    }

    /// `sum ^= coefficient · (the bytes at offset …)`; the sum is in the buffer's own unit, bytes or sectors.
    /// False if a sector there is not one repeated byte.
    pub(crate) fn add_to(&self, offset: usize, sum: &mut [u8], coefficient: u8) -> bool {
        let source = match self {
            Self::Bytes(bytes) => &bytes[offset..offset + sum.len()],
            Self::Sectors(sectors) => {
                let first = to_sectors(offset);
                if sectors.odd_in(first, sum.len()) {
                    return false;
                }
                &sectors.values[first..first + sum.len()]
            }
            Self::Length(_) => return true,
        };
        add(sum, source, coefficient);
        true
    }

    /// As [`Buffer::add_to`], on the bytes of every sector, repeated or not.
    pub(crate) fn add_bytes_to(&self, offset: usize, sum: &mut [u8], coefficient: u8) {
        let products = &PRODUCTS[usize::from(coefficient)];
        let mut sector = [0; SECTOR];
        let Self::Sectors(sectors) = self else {
            unreachable!("bytes are added as they are");
        };
        for (at, sum) in (to_sectors(offset)..).zip(sum.chunks_exact_mut(SECTOR)) {
            sectors.sector_to(at, &mut sector);
            for (sum, &byte) in sum.iter_mut().zip(&sector) {
                *sum ^= products[usize::from(byte)];
            }
        }
    }

    /// Stores a sum from [`Buffer::add_to`] at `offset`.
    pub(crate) fn set_sum(&mut self, offset: usize, sum: &[u8]) {
        match self {
            Self::Bytes(bytes) => bytes[offset..offset + sum.len()].copy_from_slice(sum),
            Self::Sectors(sectors) => {
                let first = to_sectors(offset);
                sectors.forget_odd(first, sum.len());
                sectors.values[first..first + sum.len()].copy_from_slice(sum);
            }
            Self::Length(_) => {}
        }
    }

    /// Stores real bytes at `offset`, whole sectors.
    pub(crate) fn set_sum_bytes(&mut self, offset: usize, sum: &[u8]) {
        match self {
            Self::Bytes(bytes) => bytes[offset..offset + sum.len()].copy_from_slice(sum),
            Self::Sectors(sectors) => {
                for (at, sector) in (to_sectors(offset)..).zip(sum.chunks_exact(SECTOR)) {
                    sectors.set_sector(at, sector);
                }
            }
            Self::Length(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use block::mix;

    use super::*;

    #[test]
    fn sums_over_sectors_are_sums_over_the_bytes_that_they_stand_for() {
        let values: Vec<u8> = (0..32).map(|at| mix(at) as u8).collect();
        let bytes = |values: &[u8]| -> Vec<u8> {
            values.iter().flat_map(|&value| [value; SECTOR]).collect()
        };
        let mut short = Buffer::Sectors(Sectors::new(values.clone()));
        let long = Buffer::Bytes(bytes(&values));
        let mut sum = vec![7; 8];
        assert!(short.add_to(3 * SECTOR, &mut sum, 29));
        let mut long_sum = vec![7; 8 * SECTOR];
        assert!(long.add_to(3 * SECTOR, &mut long_sum, 29));
        assert_eq!(bytes(&sum), long_sum);
        // With an odd sector, the slow way.
        let damaged = short.block(8 * SECTOR).flipped(3);
        short.set_block(8 * SECTOR, &damaged);
        assert!(!short.add_to(3 * SECTOR, &mut sum, 29));
        let mut slow = vec![7; 8 * SECTOR];
        short.add_bytes_to(3 * SECTOR, &mut slow, 29);
        slow[5 * SECTOR] ^= PRODUCTS[29][8];
        assert_eq!(slow, long_sum);
    }

    #[test]
    fn odd_blocks_come_back_whole_or_in_parts() {
        let mut buffer = Buffer::Sectors(Sectors::new(vec![5; 24]));
        let odd = Block::Sectors([1, 2, 3, 4, 5, 6, 7, 8]).flipped(5000);
        buffer.set_block(4 * SECTOR, &odd);
        assert_eq!(buffer.block(4 * SECTOR), odd);
        let part = buffer.block(8 * SECTOR).to_bytes();
        assert_eq!(part[..4 * SECTOR], odd.to_bytes()[4 * SECTOR..]);
        assert_eq!(part[4 * SECTOR..], [5; 4 * SECTOR]);
        buffer.set_block(0, &Block::ZERO);
        assert_eq!(buffer.block(0), Block::ZERO);
        let rest = buffer.block(8 * SECTOR).to_bytes();
        assert_eq!(rest, part, "the other half is untouched");
        let Buffer::Sectors(sectors) = buffer else {
            unreachable!()
        };
        assert_eq!(
            sectors.first_odd(),
            None,
            "the flipped sector was overwritten"
        );
    }
}
