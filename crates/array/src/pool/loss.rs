//! What the pool has lost, where its volumes show it, and which drives returned what was not written.
//!
//! Lanes find losses and their ends ([`Event::BlocksLost`](crate::Event::BlocksLost)); the pool keeps them in
//! its facts, so that every label has them, and gives them back to the lanes at opening. The list is bounded: of
//! what has no room only a number of blocks is kept, until a scrub that has ended counts anew.
//!
//! A change is committed at once. What comes while a generation is being written is part of the next one, so
//! that a flood of losses costs one label after another and no queue.

use std::ops::Range;

use block::{BLOCK_BYTES, Seat};

use super::{LossFacts, LostRun, Pool, Report, VolumeFacts};
use crate::action::Command;
use crate::losses::{Losses, LostRange};

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

impl LossFacts {
    /// The ranges that the facts name, but for those that cannot be.
    pub(super) fn losses(&self, volumes: &[VolumeFacts], group_blocks: u64) -> Losses {
        let known = |group| owner(volumes, group).is_some();
        let ranges = self.ranges.iter().filter(|&&(group, first, blocks)| {
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
}

/// The volume that has a group, and how many of the volume's groups come before it.
pub(super) fn owner(volumes: &[VolumeFacts], group: u64) -> Option<(&VolumeFacts, u64)> {
    volumes.iter().find_map(|volume| {
        let mut before = 0;
        for &(first, count) in &volume.extents {
            if (first..first.saturating_add(count)).contains(&group) {
                return Some((volume, before + (group - first)));
            }
            before += count;
        }
        None
    })
}

impl Pool {
    /// Data that is lost, by volume and byte; at most as many ranges as a label holds.
    #[must_use]
    pub fn lost_data(&self) -> Vec<LostData> {
        let parts = self.losses.iter();
        let mut parts: Vec<LostData> = parts.filter_map(|range| self.locate(range)).collect();
        parts.sort_by(|a, b| (&a.volume, a.offset_bytes).cmp(&(&b.volume, b.offset_bytes)));
        // Where two groups are neighbours in the volume.
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
        self.facts.losses.unlisted_blocks * BLOCK_BYTES
    }

    /// Whether data is lost because blocks are bad or unknown.
    #[must_use]
    pub fn has_lost_data(&self) -> bool {
        !self.losses.is_empty() || self.facts.losses.unlisted_blocks > 0
    }

    /// Blocks on the seat's drive that were not what had been written there, since it took the seat.
    #[must_use]
    pub fn bad_blocks(&self, seat: Seat) -> u64 {
        let drive = self.facts.seats.get(seat.index()).map(|facts| facts.drive);
        let counted = drive.and_then(|drive| self.facts.bad_blocks.get(&drive));
        counted.copied().unwrap_or(0)
    }

    /// The range as part of a volume; `None` where no volume has it.
    fn locate(&self, range: LostRange) -> Option<LostData> {
        let (volume, before) = owner(&self.facts.volumes, range.group)?;
        let offset_bytes = before * self.geometry.group_data_bytes() + range.first * BLOCK_BYTES;
        let left = volume.size_bytes.checked_sub(offset_bytes)?;
        let length_bytes = left.min(range.blocks * BLOCK_BYTES);
        (length_bytes > 0).then(|| LostData {
            volume: volume.name.clone(),
            offset_bytes,
            length_bytes,
        })
    }

    /// A lane has found that data is lost.
    pub(super) fn blocks_lost(&mut self, range: LostRange) {
        let Some(data) = self.locate(range) else {
            return;
        };
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
            self.facts.losses.unlisted_blocks += range.blocks - listed;
        }
        self.report(Report::DataLost(LostRun::new(data)));
        self.commit_losses();
    }

    fn listed(&self, group: u64, blocks: Range<u64>) -> u64 {
        let parts = self.losses.within(group, blocks);
        parts.map(|part| part.end - part.start).sum()
    }

    /// A lane has found that data which was lost is not any more.
    pub(super) fn blocks_found(&mut self, range: LostRange) {
        let blocks = range.first..range.first + range.blocks;
        if self.losses.remove(range.group, blocks) == 0 {
            return;
        }
        if let Some(data) = self.locate(range) {
            self.report(Report::DataRestored(LostRun::new(data)));
        }
        self.commit_losses();
    }

    /// A scrub of everything has ended: what it found to be lost and has no room is counted anew.
    pub(super) fn count_unlisted(&mut self, lost: u64) {
        let unlisted = &mut self.facts.losses.unlisted_blocks;
        if *unlisted > 0 {
            *unlisted = lost.saturating_sub(self.losses.blocks());
        }
    }

    /// Volumes have been deleted or have become smaller.
    pub(super) fn forget_lost(&mut self) {
        let volumes = &self.facts.volumes;
        self.losses
            .retain_groups(|group| owner(volumes, group).is_some());
        if volumes.is_empty() {
            self.facts.losses.unlisted_blocks = 0;
        }
        self.note_losses();
    }

    /// The lanes have read their journals: what is lost is known to them from the beginning.
    pub(super) fn tell_lost(&mut self) {
        for lane in 0..self.geometry.lanes() {
            let here = |range: &LostRange| self.geometry.lane_of(range.group) == lane;
            let ranges: Vec<LostRange> = self.losses.iter().filter(here).collect();
            if !ranges.is_empty() {
                let command = Command::KnowLost(ranges);
                self.actions
                    .push_back(super::PoolAction::Lane(lane, command));
            }
        }
    }

    fn note_losses(&mut self) {
        let ranges = self.losses.iter();
        self.facts.losses.ranges = ranges
            .map(|range| (range.group, range.first, range.blocks))
            .collect();
    }

    fn commit_losses(&mut self) {
        self.note_losses();
        self.commit(Vec::new());
    }

    /// Blocks were not what had been written there. The number is written down with the next change of the facts.
    pub(super) fn count_bad(&mut self, seat: Seat, blocks: u64) {
        let Some(drive) = self.facts.seats.get(seat.index()).map(|facts| facts.drive) else {
            return;
        };
        let seats = &self.facts.seats;
        self.facts
            .bad_blocks
            .retain(|drive, _| seats.iter().any(|facts| facts.drive == *drive));
        *self.facts.bad_blocks.entry(drive).or_default() += blocks;
    }
}
