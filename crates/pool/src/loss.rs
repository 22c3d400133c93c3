//! Lost data of the pool, by group and by volume, and drives that returned bad blocks.
//!
//! Lanes find losses and their ends ([`Event::BlocksLost`](plan::Event::BlocksLost)). The pool keeps the losses in its
//! facts, so that every label has them, and passes them to the lanes at opening. The list is bounded: losses that do
//! not fit are kept only as a number of blocks, until the next complete scrub counts them again.
//!
//! A change is committed at once. Changes that come while a generation is being written are part of the next one, so
//! that a flood of losses costs one label write after another and no queue.

use std::ops::Range;

use block::{BLOCK_BYTES, Seat};
use plan::action::Command;
use plan::{Losses, LostRange};

use super::space::VolumeSpace;
use super::{LossFacts, LostRun, Pool, Report, VolumeFacts};

/// Ranges in a label: 30 KiB of the 500 that it has.
const RANGES_MAX: usize = 1024;

/// Part of a volume whose data is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LostData {
    /// The volume's name.
    pub volume: String,
    /// First byte of the volume.
    pub offset_bytes: u64,
    /// Number of bytes.
    pub length_bytes: u64,
}

/// The ranges in the facts, without those that are impossible.
pub(super) fn listed(facts: &LossFacts, volumes: &[VolumeFacts], group_blocks: u64) -> Losses {
    let known = |group| owner(volumes, group).is_some();
    let ranges = facts.ranges.iter().filter(|&&(group, first, blocks)| {
        let inside = first
            .checked_add(blocks)
            .is_some_and(|end| end <= group_blocks);
        inside && known(group)
    });
    ranges
        .map(|&(group, first, blocks)| LostRange {
            group,
            first,
            blocks,
        })
        .collect()
}

/// The volume that has a group.
pub(super) fn owner(volumes: &[VolumeFacts], group: u64) -> Option<&VolumeFacts> {
    volumes.iter().find(|volume| {
        let mut extents = volume.extents.iter();
        extents.any(|&(first, count)| (first..first.saturating_add(count)).contains(&group))
    })
}

impl Pool {
    /// Lost data, by volume and byte. A label holds ranges of groups; one of these is several ranges of an interleaved
    /// volume.
    #[must_use]
    pub fn lost_data(&self) -> Vec<LostData> {
        let parts = self.losses.iter();
        let mut parts: Vec<LostData> = parts.flat_map(|range| self.locate(range)).collect();
        parts.sort_by(|a, b| (&a.volume, a.offset_bytes).cmp(&(&b.volume, b.offset_bytes)));
        // Ranges of two groups may be neighbours in the volume.
        parts.dedup_by(|next, last| {
            let joined = next.volume == last.volume
                && last.offset_bytes + last.length_bytes == next.offset_bytes;
            if joined {
                last.length_bytes += next.length_bytes;
            }
            joined
        });
        parts
    }

    /// Bytes of data that are lost and for which [`lost_data`](Self::lost_data) has no room.
    #[must_use]
    pub const fn unlisted_lost_bytes(&self) -> u64 {
        self.cx.facts.losses.unlisted_blocks * BLOCK_BYTES
    }

    /// Whether data of volumes is lost because blocks are bad or unknown. Losses beyond the end of a volume that has
    /// shrunk do not count.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        let mut ranges = self.losses.iter();
        self.cx.facts.losses.unlisted_blocks > 0
            || ranges.any(|range| !self.locate(range).is_empty())
    }

    /// Blocks on the seat's drive that did not match what was written, since the drive took the seat.
    #[must_use]
    pub fn bad_blocks(&self, seat: Seat) -> u64 {
        let drive = self
            .cx
            .facts
            .seats
            .get(seat.index())
            .map(|facts| facts.drive);
        let counted = drive.and_then(|drive| self.cx.facts.bad_blocks.get(&drive));
        counted.copied().unwrap_or(0)
    }

    /// The range as parts of a volume, in order; empty if no volume has it.
    fn locate(&self, range: LostRange) -> Vec<LostData> {
        let Some(volume) = owner(&self.cx.facts.volumes, range.group) else {
            return Vec::new();
        };
        let space = VolumeSpace::new(self.cx.geometry.group_data_bytes(), volume);
        let (first, length) = (range.first * BLOCK_BYTES, range.blocks * BLOCK_BYTES);
        let pieces = space.pieces_of(range.group, first, length).into_iter();
        let inside = pieces.filter_map(|piece| {
            let left = volume.size_bytes.checked_sub(piece.offset)?;
            let length_bytes = left.min(piece.length);
            (length_bytes > 0).then(|| LostData {
                volume: volume.name.clone(),
                offset_bytes: piece.offset,
                length_bytes,
            })
        });
        inside.collect()
    }

    /// A lane has found that data is lost.
    pub(super) fn blocks_lost(&mut self, range: LostRange) {
        let parts = self.locate(range);
        if parts.is_empty() {
            return;
        }
        let blocks = range.first..range.first + range.blocks;
        if self.losses.len() < RANGES_MAX {
            if self.losses.insert(range.group, blocks) == 0 {
                return;
            }
        } else {
            let listed = self.listed(range.group, blocks);
            if listed == range.blocks {
                return;
            }
            self.cx.facts.losses.unlisted_blocks += range.blocks - listed;
        }
        for data in parts {
            self.cx.report(Report::DataLost(LostRun::new(data)));
        }
        self.commit_losses();
    }

    fn listed(&self, group: u64, blocks: Range<u64>) -> u64 {
        let parts = self.losses.within(group, blocks);
        parts.map(|part| part.end - part.start).sum()
    }

    /// A lane has found that lost data is available again.
    pub(super) fn blocks_found(&mut self, range: LostRange) {
        let blocks = range.first..range.first + range.blocks;
        if self.losses.remove(range.group, blocks) == 0 {
            return;
        }
        for data in self.locate(range) {
            self.cx.report(Report::DataRestored(LostRun::new(data)));
        }
        self.commit_losses();
    }

    /// A complete scrub has ended: lost blocks that have no room in the list are counted again.
    pub(super) fn count_unlisted(&mut self, lost: u64) {
        let unlisted = &mut self.cx.facts.losses.unlisted_blocks;
        if *unlisted > 0 {
            *unlisted = lost.saturating_sub(self.losses.blocks());
        }
    }

    /// Volumes have been deleted or have become smaller.
    pub(super) fn forget_lost(&mut self) {
        let volumes = &self.cx.facts.volumes;
        self.losses
            .retain_groups(|group| owner(volumes, group).is_some());
        if volumes.is_empty() {
            self.cx.facts.losses.unlisted_blocks = 0;
        }
        self.note_losses();
    }

    /// The lanes have read their journals: gives them the losses that are known.
    pub(super) fn tell_lost(&mut self) {
        for lane in 0..self.cx.geometry.lanes() {
            let here = |range: &LostRange| self.cx.geometry.lane_of(range.group) == lane;
            let ranges: Vec<LostRange> = self.losses.iter().filter(here).collect();
            if !ranges.is_empty() {
                let command = Command::KnowLost(ranges);
                self.cx.act(super::PoolAction::Lane(lane, command));
            }
        }
    }

    fn note_losses(&mut self) {
        let ranges = self.losses.iter();
        self.cx.facts.losses.ranges = ranges
            .map(|range| (range.group, range.first, range.blocks))
            .collect();
    }

    fn commit_losses(&mut self) {
        self.note_losses();
        self.cx.commit(Vec::new());
    }

    /// Blocks did not match what was written. The count is stored with the next change of the facts.
    pub(super) fn count_bad(&mut self, seat: Seat, blocks: u64) {
        let Some(drive) = self
            .cx
            .facts
            .seats
            .get(seat.index())
            .map(|facts| facts.drive)
        else {
            return;
        };
        let seats = &self.cx.facts.seats;
        self.cx
            .facts
            .bad_blocks
            .retain(|drive, _| seats.iter().any(|facts| facts.drive == *drive));
        *self.cx.facts.bad_blocks.entry(drive).or_default() += blocks;
    }
}
