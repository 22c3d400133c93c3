//! A pool's table as bytes.
//!
//! | bytes | what |
//! | --- | --- |
//! | 1 | version: 1, or 2 if there are vacant seats |
//! | 8 | number of groups, little-endian like all that follows |
//! | 2, and 2 per seat | only in version 2: the number of vacant seats, and these, ascending |
//! | 6 per column | seat (2), piece (4), group after group |

use block::Seat;

use super::{Choice, Pool};
use crate::Cell;
use crate::developed::Shape;

const VERSION: u8 = 1;
const VERSION_WITH_VACANT: u8 = 2;

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
    /// Vacant seats that are none, or leave too few drives for a group.
    #[error("its vacant seats are no seats of the layout, or leave too few drives")]
    Vacant,
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
    let has_vacant = !pool.vacant.is_empty();
    bytes.push(if has_vacant {
        VERSION_WITH_VACANT
    } else {
        VERSION
    });
    bytes.extend(pool.group_count().to_le_bytes());
    if has_vacant {
        let count = u16::try_from(pool.vacant.len()).expect("they are seats");
        bytes.extend(count.to_le_bytes());
        let seats = pool.vacant.iter();
        bytes.extend(seats.flat_map(|seat| seat.0.to_le_bytes()));
    }
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
        let unknown = || StoredError::Version {
            version: stored.first().copied().unwrap_or(0),
        };
        let (&[version, ref count @ ..], entries) =
            stored.split_first_chunk::<9>().ok_or_else(unknown)?;
        let groups = u64::from_le_bytes(*count);
        let entries = match version {
            VERSION => entries,
            VERSION_WITH_VACANT => {
                let (vacant, entries) = vacant_seats(entries, shape).ok_or(StoredError::Vacant)?;
                pool = pool.with_vacant(vacant);
                entries
            }
            _ => return Err(unknown()),
        };
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
                && !pool.is_vacant(seat)
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

/// The vacant seats, and the bytes behind them.
fn vacant_seats(stored: &[u8], shape: Shape) -> Option<(Vec<Seat>, &[u8])> {
    let (count, rest) = stored.split_first_chunk::<2>()?;
    let bytes = 2 * usize::from(u16::from_le_bytes(*count));
    let (seats, rest) = rest.split_at_checked(bytes)?;
    let seats = seats.as_chunks::<2>().0.iter();
    let seats: Vec<Seat> = seats.map(|&seat| Seat(u16::from_le_bytes(seat))).collect();
    let ascending = seats.is_sorted_by(|a, b| a < b);
    let exist = seats.last().is_some_and(|last| last.0 < shape.drives);
    let enough = seats.len() + usize::from(shape.width) <= usize::from(shape.drives);
    (ascending && exist && enough).then_some((seats, rest))
}
