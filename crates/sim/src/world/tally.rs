//! What lanes ask of their drives, in bytes: by purpose and place, and the content of the log.
//!
//! ```text
//!   a batch of the log on its drives              counted as
//!     [header|D0 D1 P0 …]  data column            headers; data, parity or padding, block by block
//!     [header|D5 P5 …   ]  data column
//!     [header|Σ  Σ  …   ]  parity column          headers; redundancy
//! ```
//!
//! Nothing is calculated: operations are counted when a lane submits them, and blocks of the log by the header that is
//! written in front of them, where memory has contents. An operation counts whether it succeeds or not.

use std::collections::BTreeMap;

use array::format::{BatchHeader, Descriptor, RING_HEAD_BYTES};
use array::{Geometry, IoKind, Origin};
use block::BLOCK_BYTES;

use crate::replay::Asked;
use crate::scratch::Scratch;

/// The place of an operation on its drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Where {
    /// The anchors at the beginning of the rings.
    Anchors,
    /// The batches of the log.
    Ring,
    /// Pages of checksums and states.
    Pages,
    /// The cells.
    Cells,
}

impl Where {
    /// The place of an operation that begins at byte `offset` of its drive.
    fn of(geometry: &Geometry, offset: u64) -> Self {
        let Some(regions) = geometry.regions() else {
            return Self::Cells;
        };
        if offset >= geometry.data_offset() {
            return Self::Cells;
        }
        if offset >= regions.metadata_offset {
            return Self::Pages;
        }
        let in_ring = offset.saturating_sub(regions.journal_offset) % regions.ring_bytes.max(1);
        match in_ring < RING_HEAD_BYTES {
            true => Self::Anchors,
            false => Self::Ring,
        }
    }
}

/// Operations of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many.
    pub operations: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Blocks of the log, on all drives together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBlocks {
    /// Columns of batches.
    pub columns: u64,
    /// Blocks of headers.
    pub headers: u64,
    /// Blocks of clients' data.
    pub data: u64,
    /// Blocks of stripes' parity, and copies.
    pub parity: u64,
    /// Blocks of zeros at the end of a batch.
    pub padding: u64,
    /// Blocks of the batches' own redundancy: their parity columns, or their further copies.
    pub redundancy: u64,
}

/// Everything that lanes have asked of their drives.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    moved: BTreeMap<(u8, u8, Where), Moved>,
    log: LogBlocks,
}

const fn number_of(origin: Origin) -> u8 {
    match origin {
        Origin::Client => 0,
        Origin::Log => 1,
        Origin::Checkpoint => 2,
        Origin::Rebuild => 3,
        Origin::Scrub => 4,
    }
}

const fn kind_of(kind: IoKind) -> u8 {
    match kind {
        IoKind::Read => 0,
        IoKind::Write => 1,
        IoKind::WriteZeroes => 2,
        IoKind::Discard => 3,
        IoKind::Flush => 4,
    }
}

impl Tally {
    /// The operations of one purpose and kind in one place.
    #[must_use]
    pub fn moved(&self, origin: Origin, kind: IoKind, place: Where) -> Moved {
        let key = (number_of(origin), kind_of(kind), place);
        self.moved.get(&key).copied().unwrap_or_default()
    }

    /// The operations of one kind, of all purposes, in all places.
    #[must_use]
    pub fn of_kind(&self, kind: IoKind) -> Moved {
        let all = self.moved.iter();
        let these = all.filter(|((_, other, _), _)| *other == kind_of(kind));
        these.fold(Moved::default(), |all, (_, moved)| Moved {
            operations: all.operations + moved.operations,
            bytes: all.bytes + moved.bytes,
        })
    }

    /// The blocks of the log.
    #[must_use]
    pub const fn log(&self) -> &LogBlocks {
        &self.log
    }

    /// Counts an operation that a lane submits.
    pub(super) fn count(&mut self, geometry: &Geometry, lane: u16, io: &Asked, memory: &Scratch) {
        let place = match io.kind {
            IoKind::Flush => Where::Cells,
            _ => Where::of(geometry, io.offset),
        };
        let key = (number_of(io.origin), kind_of(io.kind), place);
        let moved = self.moved.entry(key).or_default();
        moved.operations += 1;
        moved.bytes += io.length;
        if io.kind == IoKind::Write && place == Where::Ring && !memory.keeps_nothing() {
            let mut bytes = Vec::new();
            for &slice in io.slices.all() {
                memory
                    .blocks(slice)
                    .for_each(|block| block.append_to(&mut bytes));
            }
            self.count_columns(geometry, lane, io, &bytes);
        }
    }

    /// Counts the columns of batches that a write holds: one, or neighbours that were joined.
    fn count_columns(&mut self, geometry: &Geometry, lane: u16, io: &Asked, bytes: &[u8]) {
        let regions = geometry.regions().expect("a ring is in the regions");
        let mut left = bytes;
        while !left.is_empty() {
            let header = BatchHeader::parse(regions.pool, lane, left);
            let header = header.expect("each column of a batch begins with a header");
            let seat = header.seats.iter().position(|&seat| seat == io.seat);
            self.count_column(geometry, &header, seat.expect("the column is the seat's"));
            let length = usize::try_from(header.length() * BLOCK_BYTES).expect("a batch is short");
            left = &left[length.min(left.len())..];
        }
    }

    fn count_column(&mut self, geometry: &Geometry, header: &BatchHeader, column: usize) {
        let rows = u64::from(header.rows);
        let log = &mut self.log;
        log.columns += 1;
        log.headers += header.header_blocks();
        if column >= usize::from(header.data_columns) {
            log.redundancy += rows;
            return;
        }
        let names = header.descriptors.iter();
        let names = names.filter_map(|descriptor| match *descriptor {
            Descriptor::Content { name, .. } => Some(name),
            _ => None,
        });
        let mut here = 0;
        let rows_before = column * usize::from(header.rows);
        for name in names.skip(rows_before).take(header.rows.into()) {
            here += 1;
            match geometry.is_data(name) {
                true => log.data += 1,
                false => log.parity += 1,
            }
        }
        log.padding += rows - here;
    }
}
