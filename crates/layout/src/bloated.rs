//! Planes: room for a stripe as parity or as copies (elastic RAID, section 3.1).
//!
//! A cell has one *plane* for each copy that the redundancy allows: two for RAID 5 ↔ 10, three for P+Q ↔ three copies.
//! Plane 0 is the cell as it is without copies: data and parity are there. Plane c holds copy c of the data. A copy lies
//! at the place of another unit of its stripe, further round by a shift, so that no two copies share a drive:
//!
//! ```text
//!   parity   plane 0   D0  D1  D2  P        copies   plane 0   D0  D1  D2  ·
//!            plane 1   ·   ·   ·   ·                 plane 1   ·   D0  D1  D2      shift 1
//!                                                    plane 1   D2  ·   D0  D1      of the next stripe: shift 2
//! ```
//!
//! The shift turns with the stripe. So the copies of a drive's data are spread over all other drives, and when the drive
//! is lost, each of them serves as many of its reads.
//!
//! A conversion never overwrites data that is still needed: data stays where it is, the copies' places are empty while
//! there is parity, and the parity's place is empty while there are copies. On drives that compress, empty places cost
//! nothing.

use crate::{Layout, Place};

/// Where copies of a layout's stripes are.
#[derive(Clone, Copy, Debug)]
pub struct Planes<'a> {
    layout: &'a dyn Layout,
    /// Units of a stripe, parity included.
    units: u16,
    /// Planes of a cell: parity + 1.
    planes: u16,
}

impl<'a> Planes<'a> {
    /// Parity + 1 planes, for a code of `units` units of which `parity` may be lost.
    ///
    /// # Panics
    /// When `parity` is not less than `units`: two copies would share a drive.
    #[must_use]
    pub fn new(layout: &'a dyn Layout, units: u16, parity: u16) -> Self {
        assert!(parity < units, "copies of a unit are on different drives");
        Self {
            layout,
            units,
            planes: parity + 1,
        }
    }

    /// Planes of a cell.
    #[must_use]
    pub const fn planes(&self) -> u16 {
        self.planes
    }

    /// Column, and slot within plane `copy < planes()`, of a copy of data unit `unit`. `stripe` is the stripe's number
    /// over all groups, `index` its number in its group. Copy 0 is where the unit is as parity.
    #[must_use]
    pub fn copy_place(&self, stripe: u64, index: u64, unit: u16, copy: u16) -> Place {
        let turned = (unit + self.shift(stripe, copy)) % self.units;
        self.layout.place(stripe, index, turned)
    }

    /// By how many units a copy lies further round than its data. Different copies have different shifts.
    fn shift(&self, stripe: u64, copy: u16) -> u16 {
        if copy == 0 {
            return 0;
        }
        let others = u64::from(self.units) - 1;
        let turned = (stripe + u64::from(copy) - 1) % others;
        1 + u16::try_from(turned).expect("below a u16")
    }
}
