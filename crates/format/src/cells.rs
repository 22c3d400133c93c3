//! The cell table: the cells of this drive that hold a column although layout and seat state do not imply it, that is
//! spare cells in use and filled cells of a drive that is still being filled.
//!
//! The table is on the drive whose cells it describes: if the drive fails, its table is not needed any more. A page has
//! two copies, written alternately; the newer intact one counts.

use zerocopy::little_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use uuid::Uuid;

use super::ids::{Column, GroupId};

/// Bytes of a page.
pub const CELL_PAGE_BYTES: u64 = 4096;
/// Cells that a page describes.
pub const ENTRIES_PER_PAGE: u64 = 252;
const ENTRIES: usize = 252;
const MAGIC: [u8; 4] = *b"RVCT";

/// The content of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellEntry {
    /// Group of the column that the cell holds.
    pub group: GroupId,
    /// The column, which the cell holds completely.
    pub column: Column,
    /// Of several entries for one column, the one with the highest generation is the latest.
    pub generation: u32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawEntry {
    group: U64,
    column: U16,
    /// 1: holds the column. 0: no entry.
    state: U16,
    generation: U32,
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct RawPage {
    magic: [u8; 4],
    /// Over everything behind this field.
    crc32c: U32,
    sequence: U64,
    /// The drive's identity: a page of another drive does not count.
    drive: [u8; 16],
    /// First cell that the page describes.
    first_row: U64,
    reserved: [u8; 24],
    entries: [RawEntry; ENTRIES],
}

const _: () = assert!(size_of::<RawPage>() == 4096, "a page is a block");

/// A page of the table in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CellPage {
    /// Of a page's two copies, the one with the higher sequence is the newer.
    pub sequence: u64,
    /// First cell that the page describes.
    pub first_row: u64,
    /// One entry per cell.
    pub entries: Vec<Option<CellEntry>>,
}

impl CellPage {
    /// A page without entries.
    #[must_use]
    pub fn empty(first_row: u64) -> Self {
        Self {
            sequence: 0,
            first_row,
            entries: vec![None; ENTRIES],
        }
    }

    /// The first row of the page that describes this one.
    #[must_use]
    pub const fn first_row_of(row: u64) -> u64 {
        row / ENTRIES_PER_PAGE * ENTRIES_PER_PAGE
    }

    /// Bytes from the table's start to the copy that a page with this sequence goes to.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        (self.first_row / ENTRIES_PER_PAGE * 2 + self.sequence % 2) * CELL_PAGE_BYTES
    }

    /// The page as 4096 bytes.
    #[must_use]
    pub fn encode(&self, drive: Uuid) -> Vec<u8> {
        let mut raw = RawPage::read_from_bytes(&[0; 4096]).expect("a page has 4096 bytes");
        raw.magic = MAGIC;
        raw.sequence = self.sequence.into();
        raw.drive = drive.into_bytes();
        raw.first_row = self.first_row.into();
        for (raw, entry) in raw.entries.iter_mut().zip(&self.entries) {
            if let Some(entry) = entry {
                *raw = RawEntry {
                    group: entry.group.0.into(),
                    column: entry.column.0.into(),
                    state: 1.into(),
                    generation: entry.generation.into(),
                };
            }
        }
        raw.crc32c = page_crc(&raw).into();
        raw.as_bytes().to_vec()
    }

    /// Reads a page; `None` unless it is intact and this drive's page for `first_row`. A page that was never written, a
    /// torn one and another drive's are all the same: no entries.
    #[must_use]
    pub fn parse(bytes: &[u8], drive: Uuid, first_row: u64) -> Option<Self> {
        let raw = RawPage::read_from_bytes(bytes).ok()?;
        let whole = raw.magic == MAGIC
            && raw.crc32c.get() == page_crc(&raw)
            && raw.drive == drive.into_bytes()
            && raw.first_row.get() == first_row;
        whole.then(|| Self {
            sequence: raw.sequence.get(),
            first_row,
            entries: raw
                .entries
                .iter()
                .map(|raw| {
                    (raw.state.get() == 1).then(|| CellEntry {
                        group: GroupId(raw.group.get()),
                        column: Column(raw.column.get()),
                        generation: raw.generation.get(),
                    })
                })
                .collect(),
        })
    }

    /// The newer intact copy of a page, or an empty page.
    #[must_use]
    pub fn newest(copies: [&[u8]; 2], drive: Uuid, first_row: u64) -> Self {
        copies
            .into_iter()
            .filter_map(|bytes| Self::parse(bytes, drive, first_row))
            .max_by_key(|page| page.sequence)
            .unwrap_or_else(|| Self::empty(first_row))
    }
}

fn page_crc(raw: &RawPage) -> u32 {
    block::crc32c(&raw.as_bytes()[8..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newer_whole_copy_counts() {
        let drive = Uuid::from_u128(7);
        let mut old = CellPage::empty(252);
        old.sequence = 4;
        old.entries[3] = Some(CellEntry {
            group: GroupId(99),
            column: Column(5),
            generation: 1,
        });
        let mut new = old.clone();
        new.sequence = 5;
        new.entries[3] = None;
        let (old_bytes, mut new_bytes) = (old.encode(drive), new.encode(drive));
        assert_ne!(old.offset(), new.offset(), "copies alternate");
        assert_eq!(CellPage::newest([&old_bytes, &new_bytes], drive, 252), new);
        new_bytes[4000] ^= 1;
        assert_eq!(CellPage::newest([&old_bytes, &new_bytes], drive, 252), old);
        assert_eq!(
            CellPage::newest([&old_bytes, &new_bytes], Uuid::from_u128(8), 252),
            CellPage::empty(252),
            "another drive's page says nothing"
        );
        assert_eq!(CellPage::parse(&old_bytes[1..], drive, 252), None);
    }
}
