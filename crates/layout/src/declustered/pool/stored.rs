//! A pool's table as bytes.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version, 1 |
//! | 8 | number of groups, little-endian like all that follows |
//! | 6 per column | seat (2), piece (4), group after group |

use block::Seat;

use super::{Choice, Pool};
use crate::Cell;
use crate::developed::Shape;

const VERSION: u8 = 1;

/// Why a stored table cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoredError {
    /// Another version, or nothing at all.
    #[error("version {version} of a pool's table is not known here")]
    Version {
        /// The first byte.
        version: u8,
    },
    /// The length does not match the number of groups.
    #[error("{bytes} bytes are not the table of {groups} groups of {width}")]
    Length {
        /// Bytes given.
        bytes: usize,
        /// Number of groups in the table's header.
        groups: u64,
        /// d + p.
        width: u16,
    },
    /// A piece that is not on a drive, or is taken twice, or is the group's second on a drive.
    #[error("group {group} column {column} lies at seat {seat} piece {row}, where it cannot be")]
    Piece {
        /// The group.
        group: u64,
        /// The column.
        column: u16,
        /// The seat.
        seat: Seat,
        /// The piece.
        row: u64,
    },
}

pub(super) fn encode(pool: &Pool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(9 + 6 * pool.members.len());
    bytes.push(VERSION);
    bytes.extend(pool.group_count().to_le_bytes());
    for cell in &pool.members {
        bytes.extend(cell.seat.0.to_le_bytes());
        let row = u32::try_from(cell.row).expect("pieces are large: fewer than 2^32 on a drive");
        bytes.extend(row.to_le_bytes());
    }
    bytes
}

impl Pool {
    /// Bytes of the stored table if it had so many groups.
    #[must_use]
    pub const fn stored_bytes(&self, groups: u64) -> u64 {
        9 + 6 * self.width as u64 * groups
    }

    /// The pool again from its stored table.
    ///
    /// # Errors
    /// When the table is damaged or belongs to another shape.
    pub fn restore(
        shape: Shape,
        rows: u64,
        choice: Choice,
        stored: &[u8],
    ) -> Result<Self, StoredError> {
        let mut pool = Self::new(shape, rows, choice);
        let Some((&[VERSION, ref count @ ..], entries)) = stored.split_first_chunk::<9>() else {
            let version = stored.first().copied().unwrap_or(0);
            return Err(StoredError::Version { version });
        };
        let groups = u64::from_le_bytes(*count);
        let (entries, rest) = entries.as_chunks::<6>();
        let wanted = groups.checked_mul(shape.width.into());
        if wanted != Some(entries.len() as u64) || !rest.is_empty() {
            return Err(StoredError::Length {
                bytes: stored.len(),
                groups,
                width: shape.width,
            });
        }
        let width = usize::from(shape.width);
        for (index, &[a, b, r0, r1, r2, r3]) in entries.iter().enumerate() {
            let seat = Seat(u16::from_le_bytes([a, b]));
            let row = u64::from(u32::from_le_bytes([r0, r1, r2, r3]));
            let first = index / width * width;
            let cell = Cell { seat, row };
            let possible = seat.0 < shape.drives
                && row < rows
                && pool.members[first..].iter().all(|other| other.seat != seat)
                && matches!(crate::Layout::role(&pool, cell), crate::Role::Unused);
            if !possible {
                return Err(StoredError::Piece {
                    group: (index / width) as u64,
                    column: crate::classic::small((index % width) as u64),
                    seat,
                    row,
                });
            }
            for at in first..index {
                let other = pool.members[at].seat;
                pool.meet(seat, other, 1);
            }
            pool.occupy(seat, row, index as u64);
            pool.members.push(cell);
        }
        Ok(pool)
    }
}
