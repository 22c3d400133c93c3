//! The layout of a batch in memory.
//!
//! ```text
//!   [header|rows…][header|rows…] … [header|rows…] [derived blocks]
//!    └ data columns ──┘              └ parity ─┘    not on the ring (`derived.rs`)
//! ```
//!
//! Content fills the data columns one after another. With one data column, all other columns are copies of it: a batch
//! that is being logged has these bytes in memory once, while recovery reads all columns.

use block::BLOCK_BYTES;
use format::BatchHeader;
use plan::ScratchId;
use plan::action::{BufferId, Slice};

/// The memory of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BatchBuffer {
    scratch: ScratchId,
    columns: usize,
    header_blocks: u64,
    rows: u64,
}

impl BatchBuffer {
    /// The memory of a batch that is logged.
    pub(super) fn new(header: &BatchHeader, scratch: ScratchId) -> Self {
        let columns = match header.data_columns {
            1 => 1,
            _ => header.seats.len(),
        };
        Self {
            columns,
            ..Self::with_all_columns(header, scratch)
        }
    }

    /// The memory of a batch that recovery reads.
    pub(crate) fn with_all_columns(header: &BatchHeader, scratch: ScratchId) -> Self {
        Self {
            scratch,
            columns: header.seats.len(),
            header_blocks: header.header_blocks(),
            rows: header.rows.into(),
        }
    }

    pub(crate) const fn scratch(self) -> ScratchId {
        self.scratch
    }

    /// Columns in memory.
    pub(crate) const fn columns(self) -> usize {
        self.columns
    }

    /// The size of the memory, with so many derived blocks.
    pub(crate) const fn bytes(self, derived: u64) -> u64 {
        (self.columns as u64 * self.column_blocks() + derived) * BLOCK_BYTES
    }

    const fn column_blocks(self) -> u64 {
        self.header_blocks + self.rows
    }

    fn slice(self, block: u64, blocks: u64) -> Slice {
        Slice {
            buffer: BufferId::Scratch(self.scratch),
            offset: block * BLOCK_BYTES,
            length: blocks * BLOCK_BYTES,
        }
    }

    /// A column, from its header on.
    pub(crate) fn column(self, index: usize) -> Slice {
        let index = index.min(self.columns - 1) as u64;
        self.slice(index * self.column_blocks(), self.column_blocks())
    }

    /// The header before a column.
    pub(crate) fn header(self, index: usize) -> Slice {
        self.column(index).part(0, self.header_blocks * BLOCK_BYTES)
    }

    /// A column without its header.
    pub(crate) fn rows(self, index: usize) -> Slice {
        let column = self.column(index);
        column.part(self.header_blocks * BLOCK_BYTES, self.rows * BLOCK_BYTES)
    }

    /// Block `index` of the data columns.
    pub(crate) fn content(self, index: u64) -> Slice {
        let (column, row) = (index / self.rows, index % self.rows);
        self.slice(column * self.column_blocks() + self.header_blocks + row, 1)
    }

    /// Derived block `index`.
    pub(crate) fn derived(self, index: u64) -> Slice {
        self.slice(self.columns as u64 * self.column_blocks() + index, 1)
    }
}
