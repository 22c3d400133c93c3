//! Options of an array without bytes.

use std::borrow::Cow;
use std::sync::Arc;

use array::{Geometry, GeometryError};
use block::Hint;

use super::cache::CacheOptions;
use super::mirror::MirrorReads;
use super::servers::ServersOptions;
use super::small_write::SmallWrites;
use crate::model::Preset;

/// 16 MiB, the cell of dRAID, if a drive holds at least 256 of them.
const CELL_BYTES: u64 = 16 << 20;
const CELLS_MIN: u64 = 256;
const CELL_BYTES_MIN: u64 = 256 << 10;

/// Runs in flight to the drives: enough to keep some drives busy.
const DESTAGES: usize = 16;

/// Options of an array. [`PlainOptions::new`] sets usual values; change fields from there.
#[derive(Clone, Debug, PartialEq)]
pub struct PlainOptions {
    /// Scheme string, as in `pool create`.
    pub scheme: String,
    /// Number of drives, if the scheme does not give it.
    pub drives: Option<u16>,
    /// The model of all drives.
    pub drive: Preset,
    /// Bytes of each drive that are used, from its beginning; `None`: all of them.
    pub drive_bytes: Option<u64>,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// Bytes of a cell; `None`: as the pool chooses.
    pub cell_bytes: Option<u64>,
    /// Which copy a read takes.
    pub mirror_reads: MirrorReads,
    /// How a part of a stripe is written.
    pub small_writes: SmallWrites,
    /// The array's memory.
    pub cache: CacheOptions,
    /// Maximum number of runs that the memory has in flight to the drives.
    pub destages: usize,
    /// Controller, link and processor.
    pub servers: ServersOptions,
}

/// Why an array cannot be created.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlainError {
    /// The scheme string.
    #[error("{0}")]
    Scheme(#[from] layout::SchemeError),
    /// The scheme on these drives.
    #[error("{0}")]
    Layout(#[from] layout::GeometryError),
    /// The code at this width.
    #[error("{0}")]
    Code(#[from] erasure::CodeError),
    /// Chunks and cells.
    #[error("{0}")]
    Sizes(#[from] GeometryError),
    /// More bytes of a drive are requested than the drive has.
    #[error("{asked} bytes of each drive are asked for, and `{name}` has {capacity}")]
    DriveTooSmall {
        /// Bytes requested.
        asked: u64,
        /// The drive's name.
        name: &'static str,
        /// The drive's capacity in bytes.
        capacity: u64,
    },
    /// The number of drives is not the number of the scheme's seats.
    #[error("the scheme takes {needed} drives, and {given} were given")]
    Drives {
        /// Drives given.
        given: usize,
        /// Drives that the scheme needs.
        needed: u16,
    },
}

impl Hint for PlainError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Scheme(error) => error.hint(),
            Self::Layout(error) => error.hint(),
            Self::Code(error) => error.hint(),
            Self::Sizes(error) => error.hint(),
            Self::DriveTooSmall { .. } => Some("use less, or a larger drive".into()),
            Self::Drives { .. } => None,
        }
    }
}

impl PlainOptions {
    /// `scheme` on whole drives of one kind: chunks of 64 KiB, no cache, nothing but drives takes time.
    #[must_use]
    pub fn new(scheme: &str, drive: Preset) -> Self {
        Self {
            scheme: scheme.to_owned(),
            drives: None,
            drive,
            drive_bytes: None,
            chunk_bytes: 64 << 10,
            cell_bytes: None,
            mirror_reads: MirrorReads::LeastQueued,
            small_writes: SmallWrites::Cheaper,
            cache: CacheOptions::Off,
            destages: DESTAGES,
            servers: ServersOptions::default(),
        }
    }

    pub(super) fn geometry(&self) -> Result<Geometry, PlainError> {
        let capacity = self.drive.capacity_bytes();
        let bytes = self.drive_bytes.unwrap_or(capacity);
        if bytes > capacity {
            return Err(PlainError::DriveTooSmall {
                asked: bytes,
                name: self.drive.name,
                capacity,
            });
        }
        let cell_bytes = self.cell_bytes.unwrap_or_else(|| {
            let power = 1 << (bytes / CELLS_MIN).max(1).ilog2();
            // A stripe of an array code takes several chunks of a cell.
            power
                .clamp(CELL_BYTES_MIN, CELL_BYTES)
                .max(self.chunk_bytes)
        });
        let rows = bytes / cell_bytes.max(1);
        let scheme = self.scheme.parse()?;
        let shape = layout::Geometry::new(&scheme, self.drives, rows)?;
        let code = erasure::by_columns(&shape.code.name, shape.code.columns)?;
        let geometry = Geometry::new(
            Arc::new(code),
            shape.layout,
            self.chunk_bytes,
            cell_bytes,
            rows,
            0,
            1,
        )?;
        Ok(geometry)
    }
}
