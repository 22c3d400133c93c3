//! What can go wrong with a drive, and when it does.

use std::ops::Range;
use std::time::Duration;

use array::IoKind;
use array::format::DriveMap;
use block::Fault;

use crate::content::SECTORS;

/// A fault, which hits the operation that triggers it, or all operations from that one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriveFault {
    /// From now on every operation fails with [`Fault::Gone`].
    Gone,
    /// The operation fails with [`Fault::Medium`] and nothing is done; every later one too if
    /// `for_good`.
    Eio {
        /// True if the drive never works again.
        for_good: bool,
    },
    /// The operation does not end until [`World::release`](crate::World::release).
    Hang {
        /// True if later operations hang too.
        for_good: bool,
    },
    /// From now on no operation ends for this long; then all of them do.
    Stall {
        /// How long.
        millis: u32,
    },
    /// From now on every operation takes this many times as long.
    Slow {
        /// How many times.
        factor: u32,
    },
    /// The first block of the range cannot be read until it is written again.
    Lse,
    /// Rot: a bit of the range's first block changes, on the medium and in reads.
    Flip {
        /// Which bit of the block.
        bit: u32,
    },
    /// A write is acknowledged and not carried out.
    Dropped,
    /// A write goes that many blocks further on (or, if negative, before), and not to its own place.
    Stray {
        /// How far.
        blocks: i32,
    },
    /// A write is acknowledged and carried out in part.
    Shorn(Pieces),
    /// A read returns the content that many blocks further on.
    WrongRead {
        /// How far.
        blocks: i32,
    },
    /// The write fails with [`Fault::Full`]; every later one too if `for_good`.
    Full {
        /// True if space never becomes free again.
        for_good: bool,
    },
    /// From now on flushes are acknowledged and not carried out.
    IgnoreFlush,
}

impl DriveFault {
    /// True if the drive does not report the fault.
    #[must_use]
    pub const fn is_silent(self) -> bool {
        match self {
            Self::Flip { .. }
            | Self::Dropped
            | Self::Stray { .. }
            | Self::Shorn(_)
            | Self::WrongRead { .. }
            | Self::IgnoreFlush => true,
            Self::Gone
            | Self::Eio { .. }
            | Self::Hang { .. }
            | Self::Slow { .. }
            | Self::Stall { .. }
            | Self::Lse
            | Self::Full { .. } => false,
        }
    }

    /// True if the fault makes sense for such an operation.
    #[must_use]
    pub const fn concerns(self, kind: IoKind) -> bool {
        match self {
            Self::Gone
            | Self::Eio { .. }
            | Self::Hang { .. }
            | Self::Stall { .. }
            | Self::Slow { .. } => true,
            Self::Lse | Self::Flip { .. } => !matches!(kind, IoKind::Flush | IoKind::Discard),
            Self::Dropped | Self::Full { .. } => {
                matches!(kind, IoKind::Write | IoKind::WriteZeroes)
            }
            Self::Stray { .. } | Self::Shorn(_) => matches!(kind, IoKind::Write),
            Self::WrongRead { .. } => matches!(kind, IoKind::Read),
            Self::IgnoreFlush => matches!(kind, IoKind::Flush),
        }
    }
}

/// The sectors of a write that reach the medium: one or two runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// First sector and the sector behind the last, of both runs; the second run may be empty.
    pub runs: [(u32, u32); 2],
}

impl Pieces {
    /// The first `sectors` sectors.
    #[must_use]
    pub const fn prefix(sectors: u32) -> Self {
        Self {
            runs: [(0, sectors), (0, 0)],
        }
    }

    /// The sectors of block `index` of the write that are included, as bits.
    pub(crate) fn mask(self, index: usize) -> u8 {
        let first = u32::try_from(index * SECTORS).expect("writes are short");
        (0..8)
            .filter(|bit| {
                let sector = first + bit;
                let inside = |&(low, high): &(u32, u32)| (low..high).contains(&sector);
                self.runs.iter().any(inside)
            })
            .fold(0, |mask, bit| mask | 1 << bit)
    }
}

/// A part of a drive, by its purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Region {
    /// Both copies of the label.
    Label,
    /// Which foreign cells the drive holds.
    CellTable,
    /// The rings of the lanes.
    Journal,
    /// Checksums and states.
    Metadata,
    /// Rows of cells.
    Data,
}

impl Region {
    /// All regions, in the order in which they lie on a drive.
    pub const ALL: [Self; 5] = [
        Self::Label,
        Self::CellTable,
        Self::Journal,
        Self::Metadata,
        Self::Data,
    ];

    /// The region's bytes.
    #[must_use]
    pub const fn range(self, map: &DriveMap) -> Range<u64> {
        match self {
            Self::Label => 0..map.cell_table_offset,
            Self::CellTable => map.cell_table_offset..map.journal_offset,
            Self::Journal => map.journal_offset..map.metadata_offset,
            Self::Metadata => map.metadata_offset..map.data_offset,
            Self::Data => map.data_offset..u64::MAX,
        }
    }
}

/// Some of a drive's regions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Regions(u8);

impl Regions {
    /// All of them: the whole drive.
    pub const ALL: Self = Self(0b1_1111);

    /// These.
    #[must_use]
    pub fn of(regions: &[Region]) -> Self {
        let bits = regions.iter().map(|&region| 1 << region as u8);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// True if these regions include `region`.
    #[must_use]
    pub const fn contains(self, region: Region) -> bool {
        self.0 & 1 << region as u8 != 0
    }

    /// The regions, in the order in which they lie on a drive.
    pub fn iter(self) -> impl Iterator<Item = Region> {
        let regions = Region::ALL.into_iter();
        regions.filter(move |&region| self.contains(region))
    }
}

/// Which operations a trigger counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// All of them.
    Any,
    /// Reads.
    Reads,
    /// Writes and writes of zeros.
    Writes,
    /// Flushes.
    Flushes,
}

/// When a fault happens: at operation number `skip` (from 0) of those that the trigger counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// Which kinds count.
    pub counted: Counted,
    /// Only operations that begin in this region; flushes are in none.
    pub region: Option<Region>,
    /// How many operations go well before.
    pub skip: u64,
}

impl Trigger {
    /// The `skip`-th operation from now on, whatever it is.
    #[must_use]
    pub const fn nth(skip: u64) -> Self {
        Self {
            counted: Counted::Any,
            region: None,
            skip,
        }
    }

    fn counts(&self, kind: IoKind, offset: u64, map: Option<&DriveMap>) -> bool {
        let kind_counts = match self.counted {
            Counted::Any => true,
            Counted::Reads => kind == IoKind::Read,
            Counted::Writes => matches!(kind, IoKind::Write | IoKind::WriteZeroes),
            Counted::Flushes => kind == IoKind::Flush,
        };
        let here = |region: Region| {
            kind != IoKind::Flush && map.is_none_or(|map| region.range(map).contains(&offset))
        };
        kind_counts && self.region.is_none_or(here)
    }
}

/// What becomes of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The operation is carried out.
    #[default]
    Done,
    Fail(Fault),
    Dropped,
    Stray(i32),
    Shorn(Pieces),
    WrongRead(i32),
}

/// The faults of one drive: planned ones, and those that have happened and last.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    waiting: Vec<(Trigger, DriveFault)>,
    pub(crate) gone: bool,
    pub(crate) broken: bool,
    pub(crate) hanging: bool,
    pub(crate) full: bool,
    pub(crate) lies: bool,
    /// How long operations are held, from the next one on.
    pub(crate) stall: Option<Duration>,
    /// How many times as long operations take, if the drive is slow.
    pub(crate) slow: Option<u32>,
    /// How often the drive has lacked space, and how often it has failed or left otherwise.
    pub(crate) fulls: u64,
    pub(crate) others: u64,
    /// Number of faults that have happened.
    pub(crate) happened: u64,
}

impl Faults {
    pub(crate) fn add(&mut self, trigger: Trigger, fault: DriveFault) {
        self.waiting.push((trigger, fault));
    }

    /// Cancels planned faults; faults that last stay.
    pub(crate) fn stop(&mut self) {
        self.waiting.clear();
    }

    /// No planned fault makes the drive full any more.
    pub(crate) fn space_is_freed(&mut self) {
        { &mut self.waiting }.retain(|(_, fault)| !matches!(fault, DriveFault::Full { .. }));
    }

    /// True if a fault is still planned.
    pub(crate) const fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Counts an operation. Returns the faults that it triggers.
    pub(crate) fn triggered(
        &mut self,
        kind: IoKind,
        offset: u64,
        map: Option<&DriveMap>,
    ) -> Vec<DriveFault> {
        let mut now = Vec::new();
        self.waiting.retain_mut(|(trigger, fault)| {
            if !trigger.counts(kind, offset, map) || !fault.concerns(kind) {
                return true;
            }
            if trigger.skip > 0 {
                trigger.skip -= 1;
                return true;
            }
            now.push(*fault);
            false
        });
        self.happened += now.len() as u64;
        now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_name_sectors_across_blocks() {
        let pieces = Pieces {
            runs: [(0, 3), (9, 16)],
        };
        assert_eq!(pieces.mask(0), 0b0000_0111);
        assert_eq!(pieces.mask(1), 0b1111_1110);
        assert_eq!(pieces.mask(2), 0);
    }

    #[test]
    fn a_trigger_counts_only_what_it_names() {
        let map = DriveMap::new(64 << 20, None).unwrap();
        let mut faults = Faults::default();
        faults.add(
            Trigger {
                counted: Counted::Writes,
                region: Some(Region::Data),
                skip: 1,
            },
            DriveFault::Dropped,
        );
        let mut hits = Vec::new();
        for (index, (kind, offset)) in [
            (IoKind::Write, 4096),
            (IoKind::Write, map.data_offset),
            (IoKind::Read, map.data_offset),
            (IoKind::Flush, 0),
            (IoKind::WriteZeroes, map.data_offset + 4096),
            (IoKind::Write, map.data_offset),
        ]
        .into_iter()
        .enumerate()
        {
            if !faults.triggered(kind, offset, Some(&map)).is_empty() {
                hits.push(index);
            }
        }
        assert_eq!(hits, [4]);
    }
}
