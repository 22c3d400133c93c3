//! A metadata page: the checksums and states of 496 neighbouring blocks of a column.
//!
//! ```text
//!   page = 8 sectors of 512 bytes, each valid on its own:
//!     0   4    CRC-32C of bytes 4 to 511, mixed with pool, group, column, page and sector
//!     4   4    0
//!     8   8    clock: of two copies the later one counts
//!     16  62 × 8   entries: CRC-32C of the block, mixed with its name (4), generation (4)
//! ```
//!
//! A torn write leaves each sector old or new, and the journal has everything newer than either; so a page is written
//! in place, without a copy elsewhere first.

use std::sync::{Arc, LazyLock};

use block::{BLOCK_BYTES, mix};
use uuid::Uuid;

use super::form::HeldIn;
use super::ids::{Column, GroupId, Sequence};
use crate::seeded::{self, SeededFault};

/// Bytes of a page.
pub const PAGE_BYTES: u64 = 4096;
/// Blocks that a page describes.
pub const ENTRIES_PER_META_PAGE: u32 = 496;

/// Generations of written blocks: 32 bits without 0 and `u32::MAX`.
const GENERATIONS: u64 = 0xffff_fffe;
const ENTRIES: usize = 496;
const PAGE: usize = 4096;
const SECTORS: usize = 8;
const SECTOR_BYTES: usize = 512;
const ENTRIES_PER_SECTOR: usize = 62;
const ENTRIES_AT: usize = 16;
const _: () = assert!(ENTRIES_AT + ENTRIES_PER_SECTOR * 8 == SECTOR_BYTES);
const _: () = assert!(SECTORS * SECTOR_BYTES == PAGE && PAGE as u64 == PAGE_BYTES);
const _: () = assert!(SECTORS * ENTRIES_PER_SECTOR == ENTRIES);
const _: () = assert!(ENTRIES as u64 == ENTRIES_PER_META_PAGE as u64);

/// A block's name: independent of the drive on which it lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockName {
    /// Which group.
    pub group: GroupId,
    /// Which of its columns.
    pub column: Column,
    /// Which block of the column's cell.
    pub block: u32,
}

impl BlockName {
    /// The value that is mixed into the block's checksum, so that a block of another place does not match.
    #[must_use]
    pub fn seed(self, pool: Uuid) -> u32 {
        let (high, low) = pool.as_u64_pair();
        if seeded::is(SeededFault::UnboundChecksum) {
            return 0;
        }
        let place = self.group.0 ^ (u64::from(self.column.0) << 48);
        let mixed = mix(mix(mix(high ^ low).wrapping_add(place)).wrapping_add(self.block.into()));
        u32::try_from((mixed ^ (mixed >> 32)) & 0xffff_ffff).expect("the low half")
    }

    /// The page that describes the block.
    #[must_use]
    pub fn page(self) -> PageName {
        PageName {
            group: self.group,
            column: self.column,
            index: self.block / ENTRIES_PER_META_PAGE,
        }
    }

    /// Index of the block's entry in that page.
    #[must_use]
    pub const fn entry(self) -> usize {
        self.block as usize % ENTRIES
    }
}

/// A page's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PageName {
    /// Which group.
    pub group: GroupId,
    /// Which of its columns.
    pub column: Column,
    /// Which page of the column.
    pub index: u32,
}

/// The checksum and state of a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// CRC-32C of the bytes, mixed with the name ([`BlockName::seed`]).
    pub crc: u32,
    /// 0: nothing has been written. [`Entry::UNKNOWN`]'s value: that is not known. Otherwise low bits of the record's
    /// sequence.
    pub generation: u32,
}

impl Entry {
    /// Nothing was written: the block reads as zeros.
    pub const UNWRITTEN: Self = Self {
        crc: 0,
        generation: 0,
    };
    /// The entry was lost: the block cannot be trusted.
    pub const UNKNOWN: Self = Self {
        crc: u32::MAX,
        generation: u32::MAX,
    };

    /// Something was written; for models, whose blocks have no content.
    pub const WRITTEN: Self = Self {
        crc: 0,
        generation: 1,
    };

    const fn to_bytes(self) -> [u8; 8] {
        ((self.generation as u64) << 32 | self.crc as u64).to_le_bytes()
    }

    const fn from_bytes(bytes: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = bytes;
        Self {
            crc: u32::from_le_bytes([a, b, c, d]),
            generation: u32::from_le_bytes([e, f, g, h]),
        }
    }

    /// The entry of a block with this plain CRC-32C.
    #[must_use]
    pub fn new(pool: Uuid, name: BlockName, crc: u32, sequence: Sequence) -> Self {
        Self {
            crc: crc ^ name.seed(pool),
            generation: generation_of(sequence),
        }
    }

    /// The plain CRC-32C of the block that has this entry.
    #[must_use]
    pub fn plain_crc(self, pool: Uuid, name: BlockName) -> u32 {
        self.crc ^ name.seed(pool)
    }

    /// Number of batches within which it is certain which of two is the later: half of the range of 32 bits would be
    /// just enough, and batches that are logged during the comparison count too.
    pub const AGE_MAX: u64 = 1 << 30;

    /// Whether a batch before number `sequence` wrote the block. Correct for entries less than [`Entry::AGE_MAX`]
    /// batches away from that number on either side; older entries may count as later.
    #[must_use]
    pub fn is_before(self, sequence: Sequence) -> bool {
        if self == Self::UNWRITTEN || self == Self::UNKNOWN {
            return false;
        }
        let limit = sequence.0 % GENERATIONS;
        let own = u64::from(self.generation - 1);
        (1..GENERATIONS / 2).contains(&((limit + GENERATIONS - own) % GENERATIONS))
    }

    /// The entry of a map (`lane/maps/`): the stripe that holds a stripe of the data, and
    /// its form, since batch number `sequence`.
    #[must_use]
    pub fn of_map(held: HeldIn, sequence: Sequence) -> Self {
        Self {
            crc: held.encode(),
            generation: generation_of(sequence),
        }
    }

    /// How many batches before number `sequence` the block was written, as far as 32 bits show; unwritten blocks are
    /// the oldest. Entries compare correctly if they are less than 2^32 batches apart.
    #[must_use]
    pub fn age(self, sequence: Sequence) -> u64 {
        match self {
            Self::UNWRITTEN | Self::UNKNOWN => u64::MAX,
            written => {
                let now = sequence.0 % GENERATIONS;
                (now + GENERATIONS - u64::from(written.generation - 1)) % GENERATIONS
            }
        }
    }

    /// Whether a block with this plain CRC-32C is the one that was written there.
    #[must_use]
    pub fn matches(self, pool: Uuid, name: BlockName, crc: u32) -> bool {
        self.plain_crc(pool, name) == crc
    }
}

/// The generation of entries of a batch: neither 0 nor `u32::MAX`.
fn generation_of(sequence: Sequence) -> u32 {
    u32::try_from(sequence.0 % GENERATIONS).expect("below 2^32") + 1
}

/// A page in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetaPage {
    clocks: [u64; SECTORS],
    /// Shared by pages that are alike in all entries.
    entries: Arc<[Entry; ENTRIES]>,
}

impl MetaPage {
    /// A page all of whose entries are `entry`.
    #[must_use]
    pub fn filled(entry: Entry, clock: u64) -> Self {
        Self {
            clocks: [clock; SECTORS],
            entries: Arc::new([entry; ENTRIES]),
        }
    }

    /// A page of a model, all of whose blocks were written. All such pages are one in memory until one is changed.
    #[must_use]
    pub fn all_written() -> Self {
        static ENTRIES_WRITTEN: LazyLock<Arc<[Entry; ENTRIES]>> =
            LazyLock::new(|| Arc::new([Entry::WRITTEN; ENTRIES]));
        Self {
            clocks: [0; SECTORS],
            entries: Arc::clone(&ENTRIES_WRITTEN),
        }
    }

    /// Entry number `index`.
    #[must_use]
    pub fn get(&self, index: usize) -> Entry {
        self.entries[index]
    }

    /// Changes an entry; the sector's clock becomes `clock`.
    pub fn set(&mut self, index: usize, entry: Entry, clock: u64) {
        Arc::make_mut(&mut self.entries)[index] = entry;
        let sector = &mut self.clocks[index / ENTRIES_PER_SECTOR];
        *sector = clock.max(*sector);
    }

    /// Whether any sector of `other` that differs from this page's would count as the later one.
    #[must_use]
    pub fn is_overruled_by(&self, other: &Self) -> bool {
        (0..SECTORS).any(|index| {
            let range = index * ENTRIES_PER_SECTOR..(index + 1) * ENTRIES_PER_SECTOR;
            self.clocks[index] <= other.clocks[index]
                && self.entries[range.clone()] != other.entries[range]
        })
    }

    /// The clock of its latest sector.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.clocks.iter().copied().max().unwrap_or(0)
    }

    /// Raises every sector's clock to at least `clock`.
    pub fn renew(&mut self, clock: u64) {
        for sector in &mut self.clocks {
            *sector = clock.max(*sector);
        }
    }

    /// The page as bytes.
    #[must_use]
    pub fn encode(&self, pool: Uuid, name: PageName) -> Vec<u8> {
        let mut bytes = vec![0; PAGE];
        for (index, sector) in bytes.chunks_mut(SECTOR_BYTES).enumerate() {
            sector[8..16].copy_from_slice(&self.clocks[index].to_le_bytes());
            let entries = &self.entries[index * ENTRIES_PER_SECTOR..][..ENTRIES_PER_SECTOR];
            let (places, _) = sector[ENTRIES_AT..].as_chunks_mut();
            for (entry, place) in entries.iter().zip(places) {
                *place = entry.to_bytes();
            }
            let check = sector_check(pool, name, index, sector);
            sector[..4].copy_from_slice(&check.to_le_bytes());
        }
        bytes
    }

    /// Assembles a page from its copies: of each sector the latest intact one, and unknown entries if no copy is
    /// intact. Also returns whether the copies differ, so that they should be written again, and how many sectors no
    /// copy had.
    #[must_use]
    pub fn merge<'a>(pool: Uuid, name: PageName, copies: &[&'a [u8]]) -> (Self, Merged) {
        let mut page = Self::filled(Entry::UNKNOWN, 0);
        let mut merged = Merged::default();
        for index in 0..SECTORS {
            let sector_of = |copy: &&'a [u8]| -> Option<&'a [u8]> {
                copy.get(index * SECTOR_BYTES..(index + 1) * SECTOR_BYTES)
            };
            let whole = |copy: &&'a [u8]| {
                let sector = sector_of(copy)?;
                let check = u32::from_le_bytes(sector[..4].try_into().ok()?);
                let clock = u64::from_le_bytes(sector[8..16].try_into().ok()?);
                (check == sector_check(pool, name, index, sector)).then_some((clock, sector))
            };
            // Nearly always all copies are equal, and one check is enough.
            let alike = copies
                .windows(2)
                .all(|pair| sector_of(&pair[0]) == sector_of(&pair[1]));
            let found: Vec<_> = match alike {
                true => copies.iter().take(1).map(whole).collect(),
                false => copies.iter().map(whole).collect(),
            };
            merged.differ |= found.windows(2).any(|pair| pair[0] != pair[1]);
            let latest = found.iter().flatten().map(|&(clock, _)| clock).max();
            for (copy, found) in found.iter().enumerate() {
                let bits = if alike {
                    (1 << copies.len()) - 1
                } else {
                    1 << copy
                };
                match found {
                    None => merged.damaged |= bits,
                    Some((clock, _)) if Some(*clock) < latest => merged.older |= bits,
                    Some(_) => {}
                }
            }
            let found = found.into_iter().flatten();
            let counts = match seeded::is(SeededFault::OlderPage) {
                false => found.max(),
                true => found.min(),
            };
            let Some((clock, sector)) = counts else {
                merged.lost += 1;
                continue;
            };
            page.clocks[index] = clock;
            let entries = Arc::make_mut(&mut page.entries);
            let entries = &mut entries[index * ENTRIES_PER_SECTOR..][..ENTRIES_PER_SECTOR];
            let (places, _) = sector[ENTRIES_AT..].as_chunks();
            for (entry, &place) in entries.iter_mut().zip(places) {
                *entry = Entry::from_bytes(place);
            }
        }
        (page, merged)
    }
}

/// The result of [`MetaPage::merge`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// The copies are not all equal.
    pub differ: bool,
    /// Sectors that were intact in no copy.
    pub lost: usize,
    /// Copies, one bit each, with a damaged sector.
    pub damaged: u32,
    /// Copies with a sector that is older than that of another copy.
    pub older: u32,
}

/// Pages of a cell: for its blocks, and for the entries of a map behind them.
#[must_use]
pub const fn pages_per_cell(cell_bytes: u64, map_entries: u64) -> u64 {
    (cell_bytes / BLOCK_BYTES + map_entries).div_ceil(ENTRIES_PER_META_PAGE as u64)
}

fn sector_check(pool: Uuid, name: PageName, index: usize, sector: &[u8]) -> u32 {
    let block = BlockName {
        group: name.group,
        column: name.column,
        block: name.index * 8 + u32::try_from(index).expect("eight sectors"),
    };
    // Inverted, unlike a block's: a page must not pass for a block of data, or vice versa.
    block::crc32c(&sector[4..]) ^ !block.seed(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: PageName = PageName {
        group: GroupId(7),
        column: Column(3),
        index: 1,
    };

    fn page() -> MetaPage {
        let mut page = MetaPage::filled(Entry::UNWRITTEN, 1);
        for index in 0..ENTRIES {
            let entry = Entry {
                crc: u32::try_from(index).unwrap() * 77,
                generation: 1,
            };
            page.set(index, entry, 5);
        }
        page
    }

    #[test]
    fn a_page_comes_back_as_it_was_written() {
        let pool = Uuid::from_u128(99);
        let bytes = page().encode(pool, NAME);
        assert_eq!(
            MetaPage::merge(pool, NAME, &[&bytes, &bytes]),
            (page(), Merged::default())
        );
    }

    #[test]
    fn an_entry_knows_whether_it_was_written_before_a_batch() {
        let pool = Uuid::from_u128(99);
        let name = BlockName {
            group: GroupId(0),
            column: Column(0),
            block: 0,
        };
        let entry = |sequence| Entry::new(pool, name, 7, Sequence(sequence));
        let around = [0xffff_fff0, 0xffff_fffe, 0x1_0000_0004, 0x2_0000_0000];
        for limit in [1, 2, 1000].into_iter().chain(around) {
            let of = Sequence(limit);
            for sequence in limit - limit.min(30)..limit + 30 {
                let before = entry(sequence).is_before(of);
                assert_eq!(before, sequence < limit, "{sequence} and {limit}");
            }
            // An entry that is too far away counts as later: its block is written once more.
            assert!(!entry(limit + Entry::AGE_MAX).is_before(of));
            assert!(!Entry::UNWRITTEN.is_before(of));
            assert!(!Entry::UNKNOWN.is_before(of));
        }
    }

    #[test]
    fn a_torn_page_is_old_or_new_sector_by_sector() {
        let pool = Uuid::from_u128(99);
        let old = page().encode(pool, NAME);
        let mut newer = page();
        newer.set(0, Entry::UNWRITTEN, 9);
        newer.set(495, Entry::UNWRITTEN, 9);
        let new = newer.encode(pool, NAME);
        let torn = [&new[..512], &old[512..]].concat();
        let (merged, found) = MetaPage::merge(pool, NAME, &[&torn]);
        assert_eq!(merged.get(0), Entry::UNWRITTEN);
        assert_eq!(merged.get(495), page().get(495));
        assert_eq!(found, Merged::default());
        // The other copy is newer in the last sector.
        let (merged, found) = MetaPage::merge(pool, NAME, &[&torn, &new]);
        assert_eq!(merged, newer);
        assert!(found.differ);
        assert_eq!((found.older, found.damaged), (0b01, 0));
    }

    #[test]
    fn a_page_of_another_place_or_a_flipped_bit_is_unknown() {
        let pool = Uuid::from_u128(99);
        let mut bytes = page().encode(pool, NAME);
        let other = PageName {
            column: Column(4),
            ..NAME
        };
        assert_eq!(MetaPage::merge(pool, other, &[&bytes]).1.lost, 8);
        bytes[1000] ^= 1;
        let (merged, found) = MetaPage::merge(pool, NAME, &[&bytes]);
        assert_eq!((found.lost, found.damaged), (1, 0b1));
        assert_eq!(merged.get(62), Entry::UNKNOWN);
        assert_eq!(merged.get(61), page().get(61));
        assert_eq!(MetaPage::merge(pool, NAME, &[&bytes[..100]]).1.lost, 8);
    }
}
