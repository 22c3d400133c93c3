//! RAID-0 and zig-zag: no redundancy, one chunk per stripe.
//!
//! ```text
//!   raid0    D0 D1 D2 D3        zigzag   D0 D1 D2 D3
//!            D4 D5 D6 D7                 D7 D6 D5 D4
//! ```
//!
//! Zig-zag reverses its direction at the end of each row, which halves the seeks of a
//! drive-by-drive scan. It is one of the patterns that Shear (USENIX ATC 2004, section 3) has to
//! distinguish. Its pattern is two rows.

use crate::Place;
use crate::classic::{Rotation, small};
use crate::divide::Divisor;

/// Chunks along the row; with zig-zag, backwards along every second row.
#[derive(Clone, Debug)]
pub(crate) struct Striping {
    width: Divisor,
    zigzag: bool,
}

impl Striping {
    pub(crate) fn new(width: u16, zigzag: bool) -> Self {
        Self {
            width: Divisor::new(width.into()),
            zigzag,
        }
    }
}

impl Rotation for Striping {
    fn period(&self) -> u64 {
        1 + u64::from(self.zigzag)
    }

    fn stripes(&self, slots: u64) -> u64 {
        slots * self.width.get()
    }

    #[inline]
    fn place(&self, stripe: u64, index: u64, _unit: u16) -> Place {
        let (row, along) = self.width.div_rem(stripe);
        let column = if self.zigzag && row % 2 == 1 {
            self.width.get() - 1 - along
        } else {
            along
        };
        Place {
            column: small(column),
            slot: self.width.div_rem(index).0,
        }
    }

    fn unplace(&self, first: u64, place: Place) -> Option<(u64, u16)> {
        let width = self.width.get();
        let column = u64::from(place.column);
        let row = first / width + place.slot;
        let along = if self.zigzag && row % 2 == 1 {
            width - 1 - column
        } else {
            column
        };
        Some((place.slot * width + along, 0))
    }
}
