//! Copies: RAID-1, md's three forms of RAID-10, chained declustering.
//!
//! ```text
//!   near (k = 2)        offset = chained      far, height 4
//!   D0 D0' D1 D1'       D0  D1  D2  D3        D0  D1  D2  D3
//!   D2 D2' D3 D3'       D3' D0' D1' D2'       D4  D5  D6  D7
//!                       D4  D5  D6  D7        D3' D0' D1' D2'
//!                       D7' D4' D5' D6'       D7' D4' D5' D6'
//! ```
//!
//! *Near* fills rows with the copies side by side. Where k does not divide n a chunk's copies
//! continue in the next row, and a period ends only every k/gcd(n,k) rows. Groups hold whole
//! periods, so the last few slots of a cell may stay empty. *Offset* puts the copies of a row one
//! drive further on in the rows below it; with two copies this is chained declustering (Hsiao and
//! DeWitt, 1990). When drive d fails its load goes to d+1 and d−1, and can be passed on along the
//! chain until every drive carries n/(n−1). Data is lost only if neighbours fail. *Far* puts the
//! copies into the next part of every drive, so that sequential reads use all drives as RAID-0
//! does, on the outer tracks. A far group therefore has a cell for each (copy, drive).

use block::Seat;

use crate::classic::{Rotation, small};
use crate::divide::Divisor;
use crate::{Cell, Layout, Place, Role};

/// md's `near` layout: copies side by side.
#[derive(Clone, Debug)]
pub(crate) struct Near {
    width: Divisor,
    copies: u64,
    /// Slots of a period and stripes in it.
    period: (u64, u64),
}

impl Near {
    pub(crate) fn new(width: u16, copies: u16) -> Self {
        let (width, copies) = (u64::from(width), u64::from(copies));
        let common = gcd(width, copies);
        Self {
            width: Divisor::new(width),
            copies,
            period: (copies / common, width / common),
        }
    }
}

impl Rotation for Near {
    fn period(&self) -> u64 {
        self.period.0
    }

    fn stripes(&self, slots: u64) -> u64 {
        slots / self.period.0 * self.period.1
    }

    #[inline]
    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        let (slot, column) = self.width.div_rem(index * self.copies + u64::from(unit));
        Place {
            column: small(column),
            slot,
        }
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        let q = place.slot * self.width.get() + u64::from(place.column);
        Some((q / self.copies, small(q % self.copies)))
    }
}

/// md's `offset` layout: copies one drive further on in the rows below.
#[derive(Clone, Debug)]
pub(crate) struct Offset {
    width: Divisor,
    copies: u64,
}

impl Offset {
    pub(crate) fn new(width: u16, copies: u16) -> Self {
        Self {
            width: Divisor::new(width.into()),
            copies: copies.into(),
        }
    }
}

impl Rotation for Offset {
    fn period(&self) -> u64 {
        self.copies
    }

    fn stripes(&self, slots: u64) -> u64 {
        slots / self.copies * self.width.get()
    }

    #[inline]
    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        let (row, along) = self.width.div_rem(index);
        let unit = u64::from(unit);
        let column = along + unit;
        let width = self.width.get();
        Place {
            column: small(if column >= width {
                column - width
            } else {
                column
            }),
            slot: row * self.copies + unit,
        }
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        let (row, unit) = (place.slot / self.copies, place.slot % self.copies);
        let width = self.width.get();
        let along = (u64::from(place.column) + width - unit) % width;
        Some((row * width + along, small(unit)))
    }
}

/// md's `far` layout. Its groups have a cell for each copy and drive, at different heights, so the
/// layout depends on the height of the drives.
#[derive(Clone, Debug)]
pub(crate) struct Far {
    width: u16,
    copies: u16,
    hot: u16,
    /// Rows of one part: floor(rows / copies).
    part_rows: u64,
    by_width: Divisor,
}

impl Far {
    pub(crate) fn new(width: u16, copies: u16, hot: u16, rows: u64) -> Self {
        Self {
            width,
            copies,
            hot,
            part_rows: rows / u64::from(copies),
            by_width: Divisor::new(width.into()),
        }
    }
}

impl Layout for Far {
    fn drives(&self) -> u16 {
        self.width + self.hot
    }

    fn columns(&self) -> u16 {
        self.width * self.copies
    }

    fn spares(&self) -> u16 {
        self.hot
    }

    fn groups(&self, rows: u64) -> u64 {
        let others = self.part_rows * u64::from(self.copies - 1);
        self.part_rows.min(rows.saturating_sub(others))
    }

    fn cell(&self, group: u64, column: u16) -> Cell {
        let (part, seat) = self.by_width.div_rem(column.into());
        Cell {
            seat: Seat(small(seat)),
            row: part * self.part_rows + group,
        }
    }

    fn role(&self, cell: Cell) -> Role {
        if cell.seat.0 >= self.width {
            return Role::Spare {
                index: cell.seat.0 - self.width,
            };
        }
        if cell.row >= self.part_rows * u64::from(self.copies) {
            return Role::Unused;
        }
        let part = small(cell.row / self.part_rows);
        Role::Column {
            group: cell.row % self.part_rows,
            column: part * self.width + cell.seat.0,
        }
    }

    fn spare(&self, _row: u64, index: u16) -> Seat {
        Seat(self.width + index)
    }

    fn pattern_rows(&self) -> u64 {
        self.part_rows.max(1) * u64::from(self.copies)
    }

    fn stripes_per_group(&self, slots: u64) -> u64 {
        slots * self.by_width.get()
    }

    fn place(&self, _stripe: u64, index: u64, unit: u16) -> Place {
        let (slot, along) = self.by_width.div_rem(index);
        let (_, seat) = self.by_width.div_rem(along + u64::from(unit));
        Place {
            column: unit * self.width + small(seat),
            slot,
        }
    }

    fn unplace(&self, _first: u64, place: Place) -> Option<(u64, u16)> {
        let unit = place.column / self.width;
        let seat = place.column % self.width;
        let along = (seat + self.width - unit % self.width) % self.width;
        Some((place.slot * self.by_width.get() + u64::from(along), unit))
    }
}

pub(crate) const fn gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}
