//! The regions of a drive, from its size alone.

use std::borrow::Cow;

use block::{ByteSize, Hint};

use super::cells::{CELL_PAGE_BYTES, ENTRIES_PER_PAGE};
use super::page::{PAGE_BYTES, pages_per_cell};

const MIB: u64 = 1 << 20;

/// Two label copies and the untouched first page.
const LABELS_BYTES: u64 = MIB;
/// Kept free at the end of each drive.
const TAIL_BYTES: u64 = 8 * MIB;
/// Minimum of a lane's ring: a batch, which takes a quarter at most, must hold one block of every element of the widest
/// stripe.
const RING_BYTES_MIN: u64 = 512 << 10;
/// The journal takes a 64th of a drive, at most this.
const JOURNAL_BYTES_MAX: u64 = 1 << 30;
/// On small drives the journal takes up to a sixteenth, up to the amount that lanes keep of it in memory: the more a
/// checkpoint puts in place at once, the fewer pages it writes for each block.
const JOURNAL_BYTES_WANTED: u64 = 64 * MIB;
/// The metadata region is a multiple of this.
const METADATA_STEP_BYTES: u64 = 64 << 10;
/// Cells are at least this large; smaller ones cost more in bookkeeping than they give in balance.
const CELL_BYTES_MIN: u64 = 256 << 10;
/// Cells of large drives.
const CELL_BYTES_DEFAULT: u64 = 16 * MIB;
/// A drive should hold at least this many cells, so that a rebuild can be spread.
const CELLS_WANTED: u64 = 256;
/// A pool has at least this many rows.
const ROWS_MIN: u64 = 2;
/// Drives below this have fewer lanes.
const MANY_LANES_BYTES: u64 = 1 << 30;

/// What a cell and the pages beside it have, beyond the cell's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellShape {
    /// Copies of each metadata page.
    pub page_copies: u16,
    /// Map entries beside those of the cell's blocks.
    pub map_entries: u64,
    /// Planes of a cell: more than one in elastic pools.
    pub planes: u16,
}

/// Where the regions of a drive are; the same on every drive of a pool, decided by the smallest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveMap {
    /// First byte of the cell table.
    pub cell_table_offset: u64,
    /// Bytes of the cell table: two copies of each page.
    pub cell_table_bytes: u64,
    /// First byte of the journal ring.
    pub journal_offset: u64,
    /// Bytes of the journal ring.
    pub journal_bytes: u64,
    /// First byte of the metadata pages.
    pub metadata_offset: u64,
    /// Bytes of the metadata pages.
    pub metadata_bytes: u64,
    /// First byte of row 0.
    pub data_offset: u64,
    /// Cells in the data region.
    pub rows: u64,
    /// Bytes of a cell, all planes together.
    pub cell_bytes: u64,
    /// Cells of the free segment behind the data region.
    pub segment_rows: u64,
}

/// Why a drive cannot be divided.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriveMapError {
    /// Too small for the regions and two cells.
    #[error(
        "{} is too small: {} go to labels, journal, metadata and reserve, and at least two cells of {} and a spare one must fit",
        ByteSize(*size_bytes), ByteSize(*overhead_bytes), ByteSize(*cell_bytes)
    )]
    TooSmall {
        /// The drive's size.
        size_bytes: u64,
        /// Bytes of all regions but the data.
        overhead_bytes: u64,
        /// Bytes of a cell.
        cell_bytes: u64,
        /// A size that is enough.
        needed_bytes: u64,
    },
}

impl Hint for DriveMapError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let Self::TooSmall { needed_bytes, .. } = self;
        Some(format!("use drives of {} or more", ByteSize(*needed_bytes)).into())
    }
}

impl DriveMap {
    /// Divides drives of which the smallest has `size_bytes` (rounded down to 1 MiB), with cells
    /// of `cell_bytes` or, if `None`, of the default size for such drives.
    ///
    /// # Errors
    /// [`DriveMapError::TooSmall`] with the arithmetic.
    pub fn new(size_bytes: u64, cell_bytes: Option<u64>) -> Result<Self, DriveMapError> {
        let shape = CellShape {
            page_copies: 2,
            map_entries: 0,
            planes: 1,
        };
        Self::with_shape(size_bytes, cell_bytes, shape)
    }

    /// The same with cells of this shape, of whose planes each has `plane_bytes`.
    ///
    /// # Errors
    /// As [`DriveMap::new`].
    pub fn with_shape(
        size_bytes: u64,
        plane_bytes: Option<u64>,
        shape: CellShape,
    ) -> Result<Self, DriveMapError> {
        let sizes = (size_bytes, size_bytes);
        Self::with_journal_of(sizes, plane_bytes, shape)
    }

    /// The same for drives of `size_bytes` whose journal is that of drives of `journal_of` bytes, which is at most as much.
    ///
    /// # Errors
    /// As [`DriveMap::new`].
    pub fn with_journal_of(
        (size_bytes, journal_of): (u64, u64),
        plane_bytes: Option<u64>,
        shape: CellShape,
    ) -> Result<Self, DriveMapError> {
        let divide = |size: u64| {
            let sizes = (size, journal_of.min(size));
            // A drive that is too small is measured with the journal that a larger one would have.
            let sizes = match journal_of < size_bytes {
                true => sizes,
                false => (size, size),
            };
            Self::divide(sizes, plane_bytes, shape)
        };
        let map = divide(size_bytes);
        if map.rows >= ROWS_MIN {
            return Ok(map);
        }
        // The next size that works: regions grow with the drive, so it is searched for.
        let needed_bytes = (size_bytes / MIB + 1..)
            .map(|mebibytes| mebibytes * MIB)
            // The search ends at a terabyte: a cell size that does not fit there is not a sensible choice.
            .take(1 << 20)
            .find(|&size| divide(size).rows >= ROWS_MIN)
            .unwrap_or(u64::MAX);
        Err(DriveMapError::TooSmall {
            size_bytes,
            overhead_bytes: map.data_offset + TAIL_BYTES,
            cell_bytes: map.cell_bytes,
            needed_bytes,
        })
    }

    fn divide(
        (size_bytes, journal_of): (u64, u64),
        plane_bytes: Option<u64>,
        shape: CellShape,
    ) -> Self {
        let size = size_bytes / MIB * MIB;
        let planes = u64::from(shape.planes);
        let plane_bytes = plane_bytes.unwrap_or_else(|| Self::default_cell_bytes(size / planes));
        let cell_bytes = planes * plane_bytes;
        // Computed as if all of the drive were cells: a little more than needed.
        let pages = (size / cell_bytes).div_ceil(ENTRIES_PER_PAGE) * 2;
        let cell_table_bytes = (pages * CELL_PAGE_BYTES).next_multiple_of(MIB);
        let rings = RING_BYTES_MIN * u64::from(Self::default_lanes(journal_of));
        let size_of_journal = journal_of / MIB * MIB;
        let journal_bytes = (size_of_journal / 64)
            .max(JOURNAL_BYTES_WANTED.min(size_of_journal / 16))
            .clamp(rings, JOURNAL_BYTES_MAX)
            .next_multiple_of(MIB);
        let journal_offset = LABELS_BYTES + cell_table_bytes;
        let metadata_offset = journal_offset + journal_bytes;
        // Beside each cell are its pages, and those of as many columns before it as there are more copies.
        let pages_bytes = u64::from(shape.page_copies)
            * pages_per_cell(cell_bytes, shape.map_entries)
            * PAGE_BYTES;
        let left = size.saturating_sub(metadata_offset + TAIL_BYTES);
        let cells = left.saturating_sub(METADATA_STEP_BYTES) / (cell_bytes + pages_bytes);
        let metadata_bytes = (cells * pages_bytes).next_multiple_of(METADATA_STEP_BYTES);
        let data_offset = metadata_offset + metadata_bytes;
        let segment_rows = (cells / 128).max(1);
        Self {
            cell_table_offset: LABELS_BYTES,
            cell_table_bytes,
            journal_offset,
            journal_bytes,
            metadata_offset,
            metadata_bytes,
            data_offset,
            rows: cells.saturating_sub(segment_rows),
            cell_bytes,
            segment_rows,
        }
    }

    /// 16 MiB, or less on drives that would hold too few of those.
    fn default_cell_bytes(size_bytes: u64) -> u64 {
        let wanted = (size_bytes / CELLS_WANTED).max(1);
        // The power of two at or below.
        let power = 1 << wanted.ilog2();
        power.clamp(CELL_BYTES_MIN, CELL_BYTES_DEFAULT)
    }

    /// Bytes of one lane's ring.
    #[must_use]
    pub fn ring_bytes(&self, lanes: u16) -> u64 {
        self.journal_bytes / u64::from(lanes) / PAGE_BYTES * PAGE_BYTES
    }

    /// Lanes of a pool on drives of this size: enough threads for fast drives, and no more, because requests at the
    /// same time go into one batch of the journal only if they are on one lane.
    #[must_use]
    pub const fn default_lanes(size_bytes: u64) -> u16 {
        if size_bytes < MANY_LANES_BYTES { 4 } else { 8 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_follow_one_another_and_end_before_the_tail() {
        for shift in 25..46 {
            for extra in [0, MIB + 12345, 7 << 18] {
                let size = (1_u64 << shift) + extra;
                let map = DriveMap::new(size, None).unwrap();
                assert_eq!(
                    map.journal_offset,
                    map.cell_table_offset + map.cell_table_bytes
                );
                assert_eq!(map.metadata_offset, map.journal_offset + map.journal_bytes);
                assert_eq!(map.data_offset, map.metadata_offset + map.metadata_bytes);
                let end = map.data_offset + (map.rows + map.segment_rows) * map.cell_bytes;
                assert!(end + TAIL_BYTES <= size, "{size}");
                assert!(
                    end + TAIL_BYTES + map.cell_bytes + 2 * MIB > size,
                    "no cell is wasted"
                );
                let entries = map.cell_table_bytes / CELL_PAGE_BYTES / 2 * ENTRIES_PER_PAGE;
                assert!(entries >= map.rows + map.segment_rows);
                let pages = 2 * (map.rows + map.segment_rows) * pages_per_cell(map.cell_bytes, 0);
                assert!(map.metadata_bytes >= pages * PAGE_BYTES);
            }
        }
    }

    #[test]
    fn the_journal_is_as_long_as_lanes_use_it_but_for_small_drives() {
        let journal = |mebibytes: u64| DriveMap::new(mebibytes << 20, None).unwrap().journal_bytes;
        assert_eq!(journal(32), 2 * MIB);
        assert_eq!(journal(512), 32 * MIB);
        assert_eq!(journal(1 << 10), 64 * MIB);
        assert_eq!(journal(4 << 10), 64 * MIB);
        assert_eq!(journal(8 << 10), 128 * MIB);
        assert_eq!(journal(1 << 20), 1 << 30);
    }

    #[test]
    fn the_journal_is_that_of_the_physical_space_and_the_rest_that_of_the_size() {
        let (size, physical) = (64 << 30, 1 << 30);
        let shape = CellShape {
            page_copies: 3,
            map_entries: 0,
            planes: 1,
        };
        let map = DriveMap::with_journal_of((size, physical), None, shape).unwrap();
        let large = DriveMap::with_shape(size, None, shape).unwrap();
        let small = DriveMap::with_shape(physical, None, shape).unwrap();
        assert_eq!(map.journal_bytes, small.journal_bytes);
        assert_eq!(map.cell_bytes, large.cell_bytes);
        assert!(map.rows > large.rows && map.data_offset < large.data_offset);
    }

    #[test]
    fn drives_of_four_gib_and_more_have_cells_of_16_mib() {
        assert_eq!(DriveMap::new(4 << 30, None).unwrap().cell_bytes, 16 << 20);
        assert_eq!(DriveMap::new(64 << 20, None).unwrap().cell_bytes, 256 << 10);
        assert_eq!(DriveMap::new(256 << 20, None).unwrap().cell_bytes, 1 << 20);
    }

    #[test]
    fn a_drive_too_small_is_refused_with_a_size_that_works() {
        for size in [0, 1, MIB, 11 * MIB] {
            let Err(DriveMapError::TooSmall { needed_bytes, .. }) = DriveMap::new(size, None)
            else {
                panic!("{size} is too small");
            };
            assert!(DriveMap::new(needed_bytes, None).is_ok());
        }
    }
}
