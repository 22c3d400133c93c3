//! Bloated segments: room for a stripe as parity or as copies (elastic RAID, section 3.1).
//!
//! A *segment* is the slots of one stripe, one for each copy that its redundancy allows: two for
//! RAID 5 ↔ 10, three for P+Q ↔ three copies. As parity it fills the first slot and the other slots
//! are trimmed. As copies every slot holds the data once, each time one unit further round, so that
//! no two copies share a drive:
//!
//! ```text
//!   parity          D0  D1  D2  P        copies          D0  D1  D2  ·
//!                   ·   ·   ·   ·                        ·   D0  D1  D2
//! ```
//!
//! A conversion never overwrites data that is still needed: the second slot is empty while the
//! first is parity, and the parity's place is free while there are copies. On drives that compress,
//! the unused address space costs nothing.

use crate::{Layout, Place};

/// Segments of a layout whose stripes take one slot each.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    layout: &'a dyn Layout,
    /// Units of a stripe, parity included.
    columns: u16,
    /// Slots of a segment: copies that it can hold.
    copies: u16,
}

impl<'a> Segments<'a> {
    /// Segments of parity + 1 slots, for a code of `columns` units of which `parity` may be lost.
    ///
    /// # Panics
    /// When `parity` is not less than `columns`: two copies would share a drive.
    #[must_use]
    pub fn new(layout: &'a dyn Layout, columns: u16, parity: u16) -> Self {
        assert!(parity < columns, "copies of a unit are on different drives");
        Self {
            layout,
            columns,
            copies: parity + 1,
        }
    }

    /// Slots of a segment.
    #[must_use]
    pub const fn slots(&self) -> u16 {
        self.copies
    }

    /// Segments in a group whose cells have `slots` slots.
    #[must_use]
    pub fn per_group(&self, slots: u64) -> u64 {
        self.layout
            .stripes_per_group(slots / u64::from(self.copies))
    }

    /// Where unit `unit` (data or parity) is while the segment is parity. `segment` is the
    /// segment's number over all groups, `index` its number in its group.
    #[must_use]
    pub fn parity_place(&self, segment: u64, index: u64, unit: u16) -> Place {
        self.copy_place(segment, index, unit, 0)
    }

    /// Where copy `copy < slots()` of data unit `unit` is while the segment is copies. Copy 0 is
    /// where the unit is as parity.
    #[must_use]
    pub fn copy_place(&self, segment: u64, index: u64, unit: u16, copy: u16) -> Place {
        let turned = (unit + copy) % self.columns;
        let place = self.layout.place(segment, index, turned);
        Place {
            column: place.column,
            slot: place.slot * u64::from(self.copies) + u64::from(copy),
        }
    }
}
