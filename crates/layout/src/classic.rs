//! The common part of the classic levels: a group is one cell of every drive of an island, and a
//! rotation turns chunks inside it.
//!
//! ```text
//!   raid6:4d:14c:2s          seats 0…5          seats 6…11       12   13
//!                    row 0   g0.c0 … g0.c5      g1.c0 … g1.c5    S0   S1
//!                    row 1   g2.c0 … g2.c5      g3.c0 … g3.c5    S0   S1
//! ```
//!
//! One island is the usual array. With the field `d`, drives are cut into islands of d + p. The
//! field `s` gives the number of hot spares: seats whose every cell is a spare, so that rebuild
//! treats them like distributed spares.

use std::fmt;

use block::Seat;

use crate::divide::Divisor;
use crate::{Cell, Layout, Place, Role};

/// How stripes turn inside a group of `width` columns. The arguments are those of [`Layout`].
pub(crate) trait Rotation: fmt::Debug + Send + Sync {
    /// Slots after which the rotation repeats.
    fn period(&self) -> u64;
    fn stripes(&self, slots: u64) -> u64;
    fn place(&self, stripe: u64, index: u64, unit: u16) -> Place;
    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)>;
}

/// Islands of `width` drives with one rotation, and hot spares.
#[derive(Clone, Debug)]
pub(crate) struct Islands<R> {
    width: u16,
    islands: u16,
    hot: u16,
    count: Divisor,
    rotation: R,
}

impl<R: Rotation> Islands<R> {
    pub(crate) fn new(width: u16, islands: u16, hot: u16, rotation: R) -> Self {
        Self {
            width,
            islands,
            hot,
            count: Divisor::new(islands.into()),
            rotation,
        }
    }
}

impl<R: Rotation> Layout for Islands<R> {
    fn drives(&self) -> u16 {
        self.width * self.islands + self.hot
    }

    fn columns(&self) -> u16 {
        self.width
    }

    fn spares(&self) -> u16 {
        self.hot
    }

    fn groups(&self, rows: u64) -> u64 {
        rows * u64::from(self.islands)
    }

    #[inline]
    fn cell(&self, group: u64, column: u16) -> Cell {
        let (row, island) = self.count.div_rem(group);
        Cell {
            seat: Seat(small(island) * self.width + column),
            row,
        }
    }

    fn role(&self, cell: Cell) -> Role {
        let seat = cell.seat.0;
        let members = self.width * self.islands;
        if seat >= members {
            return Role::Spare {
                index: seat - members,
            };
        }
        Role::Column {
            group: cell.row * u64::from(self.islands) + u64::from(seat / self.width),
            column: seat % self.width,
        }
    }

    fn spare(&self, _row: u64, index: u16) -> Seat {
        Seat(self.width * self.islands + index)
    }

    fn pattern_rows(&self) -> u64 {
        1
    }

    fn rotation_slots(&self) -> u64 {
        self.rotation.period()
    }

    fn stripes_per_group(&self, slots: u64) -> u64 {
        self.rotation.stripes(slots)
    }

    #[inline]
    fn place(&self, stripe: u64, index: u64, unit: u16) -> Place {
        self.rotation.place(stripe, index, unit)
    }

    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)> {
        self.rotation.unplace(first, place)
    }
}

/// A remainder of a 16-bit divisor, as 16 bits.
#[inline]
pub(crate) const fn small(remainder: u64) -> u16 {
    debug_assert!(remainder <= u16::MAX as u64);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "a remainder of a 16-bit divisor"
    )]
    {
        remainder as u16
    }
}
