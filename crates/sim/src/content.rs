//! The content of a block, stored in eight bytes where that is enough.
//!
//! Bytes are what makes a simulation slow. A client of the simulator therefore writes sectors (512 bytes) of one
//! repeated byte, and a block of eight such sectors is stored as eight bytes:
//!
//! ```text
//!   Sectors [a b c d e f g h]   =   aaaa…a bbbb…b cccc…c …      eight bytes for 4096
//!   Bytes                           anything else: labels, headers, pages, damaged blocks
//! ```
//!
//! This is a representation and not an abstraction. Sums over GF(2^8) act byte by byte, so a sum of such blocks is such
//! a block. CRC-32C is affine, so its value for the 4096 bytes is eight table look-ups. A write that is torn at a
//! sector leaves such a block. All other content (a flipped bit) becomes `Bytes`. The array sees exactly what it would
//! see with real bytes.

use std::sync::{Arc, LazyLock, OnceLock};

use block::{BLOCK_BYTES, mix};

/// Bytes of a block.
pub(crate) const BLOCK: usize = 4096;
/// Bytes of a sector. A power cut never leaves a sector half written.
pub(crate) const SECTOR: usize = 512;
/// Sectors of a block.
pub(crate) const SECTORS: usize = BLOCK / SECTOR;

const _: () = assert!(BLOCK as u64 == BLOCK_BYTES);

/// The content of one block. Equal contents have equal representations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    /// Each sector repeats one byte.
    Sectors([u8; SECTORS]),
    /// At least one sector does not repeat one byte.
    Bytes(Arc<Full>),
}

/// A block of bytes, and its hash once it has been computed.
#[derive(Debug)]
pub(crate) struct Full {
    bytes: [u8; BLOCK],
    digest: OnceLock<u64>,
}

impl PartialEq for Full {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}

impl Eq for Full {}

impl Full {
    pub(crate) const fn bytes(&self) -> &[u8; BLOCK] {
        &self.bytes
    }
}

impl Block {
    /// Zeros.
    pub(crate) const ZERO: Self = Self::Sectors([0; SECTORS]);

    /// A block of these 4096 bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let bytes: &[u8; BLOCK] = bytes.try_into().expect("a block has 4096 bytes");
        let mut sectors = [0; SECTORS];
        for (value, sector) in sectors.iter_mut().zip(bytes.chunks_exact(SECTOR)) {
            *value = sector[0];
            // All bytes are equal if each byte equals the one before it: one comparison of memory.
            if sector[1..] != sector[..SECTOR - 1] {
                return Self::Bytes(Arc::new(Full {
                    digest: OnceLock::new(),
                    bytes: *bytes,
                }));
            }
        }
        Self::Sectors(sectors)
    }

    pub(crate) fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// Copies the block's bytes into `target`.
    pub(crate) fn copy_to(&self, target: &mut [u8]) {
        match self {
            Self::Sectors(sectors) => {
                for (value, sector) in sectors.iter().zip(target.chunks_exact_mut(SECTOR)) {
                    sector.fill(*value);
                }
            }
            Self::Bytes(full) => target.copy_from_slice(&full.bytes),
        }
    }

    pub(crate) fn to_bytes(&self) -> [u8; BLOCK] {
        let mut bytes = [0; BLOCK];
        self.copy_to(&mut bytes);
        bytes
    }

    /// Appends the block's bytes.
    pub(crate) fn append_to(&self, target: &mut Vec<u8>) {
        match self {
            Self::Sectors(sectors) => {
                for &value in sectors {
                    target.resize(target.len() + SECTOR, value);
                }
            }
            Self::Bytes(full) => target.extend_from_slice(&full.bytes),
        }
    }

    /// CRC-32C of its 4096 bytes.
    pub(crate) fn crc(&self) -> u32 {
        match self {
            Self::Sectors(sectors) => crc_of_sectors(sectors),
            Self::Bytes(full) => block::crc32c(&full.bytes),
        }
    }

    /// A hash of the block as block number `at`; zero for zeros.
    pub(crate) fn digest(&self, at: u64) -> u64 {
        let content = match self {
            Self::Sectors([0, 0, 0, 0, 0, 0, 0, 0]) => return 0,
            Self::Sectors(sectors) => u64::from_le_bytes(*sectors),
            Self::Bytes(full) => *full.digest.get_or_init(|| digest_bytes(&full.bytes)),
        };
        mix(content ^ mix(at.wrapping_add(0x9e37_79b9_7f4a_7c15)))
    }

    /// Replaces the sectors whose bit in `mask` is set by those of `other`.
    pub(crate) fn splice(&mut self, other: &Self, mask: u8) {
        if mask == u8::MAX {
            self.clone_from(other);
        } else if let (Self::Sectors(mine), Self::Sectors(theirs)) = (&mut *self, other) {
            for sector in 0..SECTORS {
                if mask >> sector & 1 == 1 {
                    mine[sector] = theirs[sector];
                }
            }
        } else if mask != 0 {
            let mut mine = self.to_bytes();
            let theirs = other.to_bytes();
            for sector in 0..SECTORS {
                if mask >> sector & 1 == 1 {
                    let range = sector * SECTOR..(sector + 1) * SECTOR;
                    mine[range.clone()].copy_from_slice(&theirs[range]);
                }
            }
            *self = Self::from_bytes(&mine);
        }
    }

    /// The block with one bit changed.
    pub(crate) fn flipped(&self, bit: u32) -> Self {
        let mut bytes = self.to_bytes();
        let bit = usize::try_from(bit).expect("fits into memory") % (8 * BLOCK);
        bytes[bit / 8] ^= 1 << (bit % 8);
        Self::from_bytes(&bytes)
    }
}

/// Computes eight independent sums: a processor can begin a multiplication before the last one has finished.
fn digest_bytes(bytes: &[u8; BLOCK]) -> u64 {
    let (words, _) = bytes.as_chunks::<8>();
    let (rows, _) = words.as_chunks::<8>();
    let mut sums = [1_u64, 2, 3, 4, 5, 6, 7, 8];
    for row in rows {
        for (sum, &word) in sums.iter_mut().zip(row) {
            let next = (*sum ^ u64::from_le_bytes(word)).wrapping_mul(0x9fb2_1c65_1e98_df25);
            *sum = next ^ next >> 32;
        }
    }
    sums.iter().fold(0, |all, &sum| mix(all ^ sum))
}

/// By sector and value: the change in the CRC of a block of zeros if this sector has this value.
static CRC_CHANGES: LazyLock<(u32, Box<[[u32; 256]; SECTORS]>)> = LazyLock::new(|| {
    let mut block = [0; BLOCK];
    let zeros = block::crc32c(&block);
    let mut changes = Box::new([[0; 256]; SECTORS]);
    for (sector, changes) in changes.iter_mut().enumerate() {
        for (value, change) in (0..=u8::MAX).zip(changes) {
            block[sector * SECTOR..(sector + 1) * SECTOR].fill(value);
            *change = block::crc32c(&block) ^ zeros;
        }
        block[sector * SECTOR..(sector + 1) * SECTOR].fill(0);
    }
    (zeros, changes)
});

fn crc_of_sectors(sectors: &[u8; SECTORS]) -> u32 {
    let (zeros, changes) = &*CRC_CHANGES;
    let changed = sectors.iter().zip(changes.iter());
    changed.fold(*zeros, |sum, (&value, changes)| {
        sum ^ changes[usize::from(value)]
    })
}

/// The products of all bytes with each coefficient over GF(2^8), polynomial 0x11d, by shift and add. Written again here
/// so that the simulator does not depend on the kernels that it checks.
pub(crate) static PRODUCTS: LazyLock<Box<[[u8; 256]; 256]>> = LazyLock::new(|| {
    let mut all = Box::new([[0; 256]; 256]);
    for (coefficient, products) in (0..=u8::MAX).zip(all.iter_mut()) {
        for (byte, product) in (0..=u8::MAX).zip(products) {
            let mut shifted = coefficient;
            for bit in 0..8 {
                if byte >> bit & 1 == 1 {
                    *product ^= shifted;
                }
                let carry = shifted >> 7;
                shifted = (shifted << 1) ^ (carry * 0x1d);
            }
        }
    }
    all
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_have_the_crc_of_the_4096_that_they_stand_for() {
        for seed in 0..100 {
            let block = Block::Sectors(mix(seed).to_le_bytes());
            assert_eq!(block.crc(), block::crc32c(&block.to_bytes()));
            assert_eq!(Block::from_bytes(&block.to_bytes()), block);
        }
    }

    #[test]
    fn a_flipped_bit_makes_bytes_and_flipping_it_back_makes_sectors_again() {
        let block = Block::Sectors([1, 2, 3, 4, 5, 6, 7, 8]);
        let damaged = block.flipped(12345);
        assert!(matches!(damaged, Block::Bytes(_)));
        assert_ne!(damaged.crc(), block.crc());
        assert_ne!(damaged.digest(3), block.digest(3));
        assert_eq!(damaged.flipped(12345), block);
    }

    #[test]
    fn a_torn_block_has_each_sector_old_or_new() {
        let old = Block::Sectors([1; 8]);
        let new = Block::Sectors([2; 8]);
        let mut torn = old.clone();
        torn.splice(&new, 0b0110_0001);
        assert_eq!(torn, Block::Sectors([2, 1, 1, 1, 1, 2, 2, 1]));
        // The same through bytes.
        let mut torn = old.flipped(8 * 4095);
        torn.splice(&new, 0b0110_0001);
        assert_eq!(
            torn.flipped(8 * 4095),
            Block::Sectors([2, 1, 1, 1, 1, 2, 2, 1])
        );
        torn.splice(&new, 0b1000_0000);
        assert_eq!(torn, Block::Sectors([2, 1, 1, 1, 1, 2, 2, 2]));
    }
}
