//! Lost data of the pool, by group and by volume, and drives that returned bad blocks.
//!
//! Lanes find losses and their ends ([`Event::BlocksLost`](plan::Event::BlocksLost)). The pool keeps the losses in its
//! facts, so that every label has them, and passes them to the lanes at opening. The list is bounded: losses that do
//! not fit are kept only as a number of blocks, until the next complete scrub counts them again.
//!
//! Input: ranges that lanes report as lost or as found again, changes of the volumes, and the end of a complete scrub.
//! Output: the facts, committed; reports; [`Command::KnowLost`] at an opening.
//!
//! Invariant: since the last change of the list the facts have the ranges of the list.
//!
//! A change is committed at once. Changes that come while a generation is being written are part of the next one, so
//! that a flood of losses costs one label write after another and no queue.

use std::ops::Range;

use block::{BLOCK_BYTES, Seat};
use format::GroupId;
use plan::action::Command;
use plan::{Losses, LostRange};

use super::context::Context;
use super::space::VolumeSpace;
use super::{LostRun, PoolAction, PoolFacts, Report, VolumeFacts};

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

/// The volume that has a group.
pub(super) fn owner(volumes: &[VolumeFacts], group: GroupId) -> Option<&VolumeFacts> {
    volumes.iter().find(|volume| {
        let mut extents = volume.extents.iter();
        extents.any(|&(first, count)| (first..first.saturating_add(count)).contains(&group.0))
    })
}

/// The lost data of the pool, as far as a label has room for its ranges.
#[derive(Clone, Debug)]
pub(super) struct LossList {
    ranges: Losses,
}

impl LossList {
    /// The ranges in the facts, without those that are impossible.
    pub(super) fn of(facts: &PoolFacts, group_blocks: u64) -> Self {
        let ranges = facts.losses.ranges.iter();
        let ranges = ranges.filter(|&&(group, first, blocks)| {
            let end = first.checked_add(blocks);
            end.is_some_and(|end| end <= group_blocks)
                && owner(&facts.volumes, GroupId(group)).is_some()
        });
        let ranges = ranges.map(|&(group, first, blocks)| LostRange {
            group: GroupId(group),
            first,
            blocks,
        });
        Self {
            ranges: ranges.collect(),
        }
    }

    /// The group of each range.
    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + '_ {
        self.ranges.iter().map(|range| range.group)
    }

    /// Lost data, by volume and byte. A label holds ranges of groups; one of these is several ranges of an interleaved
    /// volume.
    pub(super) fn data(&self, cx: &Context) -> Vec<LostData> {
        let parts = self.ranges.iter();
        let mut parts: Vec<LostData> = parts.flat_map(|range| cx.locate(range)).collect();
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

    /// Whether data of volumes is lost because blocks are bad or unknown. Losses beyond the end of a volume that has
    /// shrunk do not count.
    pub(super) fn has_data(&self, cx: &Context) -> bool {
        let mut ranges = self.ranges.iter();
        cx.facts.losses.unlisted_blocks > 0 || ranges.any(|range| !cx.locate(range).is_empty())
    }

    /// A lane has found that data is lost.
    pub(super) fn lost(&mut self, cx: &mut Context, range: LostRange) {
        let parts = cx.locate(range);
        if parts.is_empty() {
            return;
        }
        let blocks = range.first..range.first + range.blocks;
        if self.ranges.len() < RANGES_MAX {
            if self.ranges.insert(range.group, blocks) == 0 {
                return;
            }
        } else {
            let listed = self.listed(range.group, blocks);
            if listed == range.blocks {
                return;
            }
            cx.facts.losses.unlisted_blocks += range.blocks - listed;
        }
        for data in parts {
            cx.report(Report::DataLost(LostRun::new(data)));
        }
        self.commit(cx);
    }

    fn listed(&self, group: GroupId, blocks: Range<u64>) -> u64 {
        let parts = self.ranges.within(group, blocks);
        parts.map(|part| part.end - part.start).sum()
    }

    /// A lane has found that lost data is available again.
    pub(super) fn found(&mut self, cx: &mut Context, range: LostRange) {
        let blocks = range.first..range.first + range.blocks;
        if self.ranges.remove(range.group, blocks) == 0 {
            return;
        }
        for data in cx.locate(range) {
            cx.report(Report::DataRestored(LostRun::new(data)));
        }
        self.commit(cx);
    }

    /// A complete scrub has ended and found so many blocks lost: those that have no room in the list are counted again.
    /// The facts are committed with the end of the scrub.
    pub(super) fn count_unlisted(&self, cx: &mut Context, lost: u64) {
        let unlisted = &mut cx.facts.losses.unlisted_blocks;
        if *unlisted > 0 {
            *unlisted = lost.saturating_sub(self.ranges.blocks());
        }
    }

    /// Volumes have been deleted or have become smaller. The facts are committed with that.
    pub(super) fn forget(&mut self, cx: &mut Context) {
        let volumes = &cx.facts.volumes;
        self.ranges
            .retain_groups(|group| owner(volumes, group).is_some());
        if volumes.is_empty() {
            cx.facts.losses.unlisted_blocks = 0;
        }
        self.note(cx);
    }

    /// The lanes have read their journals: gives them the losses that are known.
    pub(super) fn tell(&self, cx: &mut Context) {
        for lane in 0..cx.geometry.lanes() {
            let here = |range: &LostRange| cx.geometry.lane_of(range.group) == lane;
            let ranges: Vec<LostRange> = self.ranges.iter().filter(here).collect();
            if !ranges.is_empty() {
                cx.act(PoolAction::Lane(lane, Command::KnowLost(ranges)));
            }
        }
    }

    fn note(&self, cx: &mut Context) {
        let ranges = self.ranges.iter();
        cx.facts.losses.ranges = ranges
            .map(|range| (range.group.0, range.first, range.blocks))
            .collect();
    }

    fn commit(&self, cx: &mut Context) {
        self.note(cx);
        cx.commit(Vec::new());
    }
}

/// Where lost data is, and which drives had bad blocks.
impl Context {
    /// The range as parts of a volume, in order; empty if no volume has it.
    fn locate(&self, range: LostRange) -> Vec<LostData> {
        let Some(volume) = owner(&self.facts.volumes, range.group) else {
            return Vec::new();
        };
        let space = VolumeSpace::new(self.geometry.group_data_bytes(), volume);
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

    /// Blocks on the seat's drive that did not match what was written, since the drive took the seat.
    pub(crate) fn bad_blocks(&self, seat: Seat) -> u64 {
        let seat = self.facts.seats.get(seat.index());
        let counted = seat.and_then(|facts| self.facts.bad_blocks.get(&facts.drive));
        counted.copied().unwrap_or(0)
    }

    /// Blocks did not match what was written. The count is stored with the next change of the facts.
    pub(crate) fn count_bad(&mut self, seat: Seat, blocks: u64) {
        let PoolFacts {
            seats, bad_blocks, ..
        } = &mut self.facts;
        let Some(drive) = seats.get(seat.index()).map(|facts| facts.drive) else {
            return;
        };
        bad_blocks.retain(|drive, _| seats.iter().any(|facts| facts.drive == *drive));
        *bad_blocks.entry(drive).or_default() += blocks;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{commands, context, reports, volume};

    /// A volume `v` of the first groups, of which nothing is lost.
    fn intact(groups: u64) -> (LossList, Context) {
        let cx = context("raid6", 6, groups);
        (LossList::of(&cx.facts, group_blocks(&cx)), cx)
    }

    fn group_blocks(cx: &Context) -> u64 {
        cx.geometry.group_data_bytes() / BLOCK_BYTES
    }

    const fn range(group: GroupId, first: u64, blocks: u64) -> LostRange {
        LostRange {
            group,
            first,
            blocks,
        }
    }

    /// Part of the volume `v`, in blocks.
    fn part(first: u64, blocks: u64) -> LostData {
        LostData {
            volume: "v".to_owned(),
            offset_bytes: first * BLOCK_BYTES,
            length_bytes: blocks * BLOCK_BYTES,
        }
    }

    /// The list is full: ranges of one block each, two blocks apart, in group 0.
    fn full(cx: &mut Context) -> LossList {
        let ranges = (0..RANGES_MAX as u64).map(|index| (0, 2 * index, 1));
        cx.facts.losses.ranges = ranges.collect();
        let list = LossList::of(&cx.facts, u64::MAX);
        assert_eq!(list.ranges.len(), RANGES_MAX);
        list
    }

    #[test]
    fn a_loss_is_reported_and_is_in_the_facts_that_are_committed() {
        let (mut list, mut cx) = intact(2);
        let before = cx.labels.generation();
        list.lost(&mut cx, range(GroupId(1), 4, 2));
        let there = group_blocks(&cx) + 4;
        let lost = LostRun::new(part(there, 2));
        assert_eq!(reports(&mut cx), [Report::DataLost(lost)]);
        assert_eq!(cx.facts.losses.ranges, [(1, 4, 2)]);
        assert_eq!(cx.labels.generation(), before.next());
        assert!(list.has_data(&cx));
        assert_eq!(list.data(&cx), [part(there, 2)]);
    }

    #[test]
    fn a_loss_that_is_known_costs_no_label() {
        let (mut list, mut cx) = intact(2);
        list.lost(&mut cx, range(GroupId(1), 4, 4));
        reports(&mut cx);
        let before = cx.labels.generation();
        list.lost(&mut cx, range(GroupId(1), 5, 2));
        assert_eq!((reports(&mut cx), cx.labels.generation()), (vec![], before));
    }

    #[test]
    fn data_that_is_found_again_leaves_the_list() {
        let (mut list, mut cx) = intact(2);
        list.lost(&mut cx, range(GroupId(0), 4, 4));
        reports(&mut cx);
        list.found(&mut cx, range(GroupId(0), 5, 1));
        let found = LostRun::new(part(5, 1));
        assert_eq!(reports(&mut cx), [Report::DataRestored(found)]);
        assert_eq!(cx.facts.losses.ranges, [(0, 4, 1), (0, 6, 2)]);
        let before = cx.labels.generation();
        list.found(&mut cx, range(GroupId(0), 5, 1));
        assert_eq!((reports(&mut cx), cx.labels.generation()), (vec![], before));
    }

    #[test]
    fn losses_of_groups_without_a_volume_are_no_data() {
        let (mut list, mut cx) = intact(2);
        list.lost(&mut cx, range(GroupId(2), 0, 1));
        assert_eq!(reports(&mut cx), []);
        assert!(!list.has_data(&cx) && list.groups().next().is_none());
    }

    #[test]
    fn losses_beyond_the_end_of_a_volume_do_not_count() {
        let (mut list, mut cx) = intact(2);
        list.lost(&mut cx, range(GroupId(0), 4, 4));
        cx.facts.volumes[0].size_bytes = 6 * BLOCK_BYTES;
        assert_eq!(list.data(&cx), [part(4, 2)]);
        cx.facts.volumes[0].size_bytes = 4 * BLOCK_BYTES;
        assert!(!list.has_data(&cx));
        assert_eq!(list.data(&cx), []);
    }

    #[test]
    fn losses_of_two_groups_are_one_part_of_the_volume_if_they_are_neighbours_there() {
        let (mut list, mut cx) = intact(2);
        let blocks = group_blocks(&cx);
        list.lost(&mut cx, range(GroupId(0), blocks - 2, 2));
        list.lost(&mut cx, range(GroupId(1), 0, 3));
        assert_eq!(list.data(&cx), [part(blocks - 2, 5)]);
        assert_eq!(list.groups().collect::<Vec<_>>(), [GroupId(0), GroupId(1)]);
    }

    #[test]
    fn a_full_list_only_counts_blocks_that_it_does_not_have() {
        let (_, mut cx) = intact(2);
        let mut list = full(&mut cx);
        list.lost(&mut cx, range(GroupId(0), 0, 3));
        assert_eq!(list.ranges.len(), RANGES_MAX);
        assert_eq!(
            cx.facts.losses.unlisted_blocks, 1,
            "two of three are listed"
        );
        let before = cx.labels.generation();
        list.lost(&mut cx, range(GroupId(0), 2, 1));
        assert_eq!(cx.facts.losses.unlisted_blocks, 1);
        assert_eq!(cx.labels.generation(), before);
    }

    #[test]
    fn a_complete_scrub_counts_unlisted_blocks_again() {
        let (_, mut cx) = intact(2);
        let list = full(&mut cx);
        let listed = RANGES_MAX as u64;
        for (before, lost, after) in [
            (0, listed + 5, 0),
            (9, listed + 5, 5),
            (9, listed, 0),
            (9, 0, 0),
        ] {
            cx.facts.losses.unlisted_blocks = before;
            list.count_unlisted(&mut cx, lost);
            assert_eq!(cx.facts.losses.unlisted_blocks, after, "{before} {lost}");
        }
    }

    #[test]
    fn the_losses_of_a_volume_go_with_the_volume() {
        let (mut list, mut cx) = intact(2);
        let other = volume("w", vec![(2, 1)], &cx);
        cx.facts.volumes.push(other);
        for group in [GroupId(0), GroupId(2)] {
            list.lost(&mut cx, range(group, 7, 1));
        }
        cx.facts.losses.unlisted_blocks = 3;
        cx.facts.volumes.remove(0);
        list.forget(&mut cx);
        assert_eq!(cx.facts.losses.ranges, [(2, 7, 1)]);
        assert_eq!(cx.facts.losses.unlisted_blocks, 3, "they may be of `w`");
        cx.facts.volumes.clear();
        list.forget(&mut cx);
        assert_eq!(cx.facts.losses.ranges, []);
        assert_eq!(cx.facts.losses.unlisted_blocks, 0);
    }

    #[test]
    fn impossible_ranges_of_a_label_do_not_count() {
        let (_, mut cx) = intact(2);
        let blocks = group_blocks(&cx);
        cx.facts.losses.ranges = vec![
            (0, blocks - 1, 1),
            (0, blocks, 1),
            (1, u64::MAX, 2),
            (2, 0, 1),
        ];
        let list = LossList::of(&cx.facts, blocks);
        let left: Vec<LostRange> = list.ranges.iter().collect();
        assert_eq!(left, [range(GroupId(0), blocks - 1, 1)]);
    }

    #[test]
    fn each_lane_gets_the_losses_of_its_groups() {
        let (mut list, mut cx) = intact(3);
        list.tell(&mut cx);
        assert_eq!(commands(&mut cx), [], "no lane has losses");
        for group in 0..3 {
            list.lost(&mut cx, range(GroupId(group), group, 1));
        }
        list.tell(&mut cx);
        let mut groups = Vec::new();
        for (lane, command) in commands(&mut cx) {
            let Command::KnowLost(ranges) = command else {
                panic!("{command:?}");
            };
            for range in ranges {
                assert_eq!(cx.geometry.lane_of(range.group), lane);
                groups.push(range.group);
            }
        }
        groups.sort_unstable();
        assert_eq!(groups, [GroupId(0), GroupId(1), GroupId(2)]);
    }

    #[test]
    fn bad_blocks_count_for_the_drive_and_not_for_its_successor_in_the_seat() {
        let (_, mut cx) = intact(1);
        cx.count_bad(Seat(2), 3);
        cx.count_bad(Seat(2), 1);
        cx.count_bad(Seat(99), 1);
        assert_eq!((cx.bad_blocks(Seat(2)), cx.bad_blocks(Seat(99))), (4, 0));
        cx.facts.seats[2].drive = uuid::Uuid::from_u128(4711);
        assert_eq!(cx.bad_blocks(Seat(2)), 0);
        cx.count_bad(Seat(1), 1);
        assert_eq!(cx.facts.bad_blocks.len(), 1, "the drive is in no seat");
    }
}
