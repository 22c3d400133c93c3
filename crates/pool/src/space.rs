//! The map from a volume's bytes to groups: which group has them, and where in the group.
//!
//! ```text
//!   volume   0 1 2 3 4 5 6 7 8 9 …        units of an interleaved volume; a set has three groups here
//!   group 0  0     3     6     9
//!   group 1    1     4     7
//!   group 2      2     5     8
//! ```
//!
//! In a declustered pool only some of the drives have cells of a group. A stream that filled one group after the other
//! would be as fast as these drives. So neighbouring groups, a *set*, take turns: each takes a *unit* of the volume. An
//! extent is cut into sets from its beginning; the rest at its end is a smaller set. Volumes grow by extents, and a
//! volume that shrinks keeps whole sets, so no byte moves. A volume that is not interleaved has sets of one group.

use block::BLOCK_BYTES;
use format::GroupId;
use format::seeded::{self, SeededFault};
use plan::Geometry;

use super::{Interleave, VolumeFacts};

/// Bytes of a unit on each drive: the most that a lane joins. With this, thirteen drives of 100 MB/s and 500 operations
/// a second take first writes of 1 MiB (depth 8) at 311 MiB/s; with 256 KiB at 240, and with 1 MiB at 271.
const UNIT_PER_DRIVE_BYTES: u64 = 512 << 10;
/// Maximum of groups in a set.
const SET_MAX: u64 = 32;
/// A set is large enough if its drives have on average this part of the cells that the busiest drive has.
const EVEN: (u64, u64) = (95, 100);

/// Groups that take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Set {
    /// First byte of the volume.
    begin: u64,
    first: u64,
    groups: u64,
}

/// Neighbouring groups of a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extent {
    /// First byte of the volume.
    begin: u64,
    first: u64,
    groups: u64,
}

/// A part of a volume that lies in one group, in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// First byte of the volume.
    pub(crate) offset: u64,
    pub(crate) group: GroupId,
    /// Byte of the group's data.
    pub(crate) in_group: u64,
    pub(crate) length: u64,
}

/// The groups of a volume, by byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct VolumeSpace {
    group_bytes: u64,
    unit_bytes: u64,
    /// Groups of a set; fewer at the end of an extent.
    set_groups: u64,
    /// By first byte.
    extents: Vec<Extent>,
}

/// For new volumes of a pool: the smallest number of neighbouring groups whose cells are spread evenly over all
/// drives. `None` if a single group's cells are, or if no number of groups is better.
pub(super) fn interleave_for(geometry: &Geometry) -> Option<Interleave> {
    let layout = geometry.layout();
    if !geometry.stripes_use_all_columns() {
        return None;
    }
    let mut cells = vec![0_u64; usize::from(layout.drives())];
    let mut best = None;
    for group in 0..SET_MAX.min(geometry.groups()) {
        for column in 0..layout.columns() {
            cells[layout.cell(group, column).seat.index()] += 1;
        }
        let busiest = cells.iter().copied().max().unwrap_or(0);
        let all: u64 = cells.iter().sum();
        // The mean of the drives as a fraction of the busiest one.
        let evenness = (all, busiest * cells.len() as u64);
        let better = best.is_none_or(|(_, (mean, most))| evenness.0 * most > mean * evenness.1);
        if better {
            best = Some((group + 1, evenness));
        }
        if evenness.0 * EVEN.1 >= evenness.1 * EVEN.0 {
            break;
        }
    }
    let (groups, _) = best.filter(|&(groups, _)| groups > 1)?;
    Some(Interleave {
        groups,
        unit_bytes: unit_stripes(geometry) * geometry.stripe_data_bytes(),
    })
}

/// True if units are whole stripes and groups whole units. Labels are input: they may have any values.
pub(super) fn fits(how: Interleave, geometry: &Geometry) -> bool {
    how.groups > 0
        && how.unit_bytes > 0
        && how.unit_bytes.is_multiple_of(geometry.stripe_data_bytes())
        && geometry.group_data_bytes().is_multiple_of(how.unit_bytes)
}

/// Stripes of a unit: a divisor of the stripes of a group's data.
fn unit_stripes(geometry: &Geometry) -> u64 {
    let per_drive = geometry.chunk_bytes() * u64::from(geometry.code().rows());
    let all = geometry.data_stripes();
    // A group has at least four turns, also where cells are small.
    let wanted = UNIT_PER_DRIVE_BYTES.div_ceil(per_drive).min(all / 4).max(1);
    let divides = |stripes: &u64| all.is_multiple_of(*stripes);
    (1..=wanted).rev().find(divides).unwrap_or(1)
}

impl Set {
    /// Of the first `bytes` of the set, the number of bytes in its group number `index`.
    fn share(self, unit_bytes: u64, bytes: u64, index: u64) -> u64 {
        let round_bytes = unit_bytes * self.groups;
        let last_round = (bytes % round_bytes).saturating_sub(index * unit_bytes);
        bytes / round_bytes * unit_bytes + last_round.min(unit_bytes)
    }
}

impl VolumeSpace {
    pub(crate) fn new(group_bytes: u64, volume: &VolumeFacts) -> Self {
        let mut begin = 0;
        let extent = |&(first, groups): &(u64, u64)| {
            let extent = Extent {
                begin,
                first,
                groups,
            };
            begin += groups * group_bytes;
            extent
        };
        Self {
            group_bytes,
            unit_bytes: volume.interleave.map_or(group_bytes, |how| how.unit_bytes),
            set_groups: volume.interleave.map_or(1, |how| how.groups),
            extents: volume.extents.iter().map(extent).collect(),
        }
    }

    /// The set at `groups` groups behind the beginning of an extent.
    fn set(&self, extent: Extent, groups: u64) -> Set {
        let before = groups / self.set_groups * self.set_groups;
        Set {
            begin: extent.begin + before * self.group_bytes,
            first: extent.first + before,
            groups: self.set_groups.min(extent.groups - before),
        }
    }

    /// The set that has a byte.
    ///
    /// # Panics
    /// When the volume has no such byte.
    fn set_of(&self, offset: u64) -> Set {
        let index = self
            .extents
            .partition_point(|extent| extent.begin <= offset)
            - 1;
        let extent = self.extents[index];
        self.set(extent, (offset - extent.begin) / self.group_bytes)
    }

    /// Bytes of a unit in a set: if the set has one group, the whole group.
    const fn unit_bytes(&self, set: Set) -> u64 {
        match set.groups {
            1 => self.group_bytes,
            _ => self.unit_bytes,
        }
    }

    /// The piece from a byte to the end of its unit.
    fn piece(&self, offset: u64) -> Piece {
        let set = self.set_of(offset);
        let unit_bytes = self.unit_bytes(set);
        let unit = (offset - set.begin) / unit_bytes;
        let in_unit = (offset - set.begin) % unit_bytes;
        Piece {
            offset,
            group: GroupId(set.first + unit % set.groups),
            in_group: unit / set.groups * unit_bytes + in_unit,
            length: unit_bytes - in_unit,
        }
    }

    /// Calls `with` for each piece of a range, in the volume's order.
    pub(crate) fn pieces(&self, offset: u64, length: u64, mut with: impl FnMut(Piece)) {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let piece = self.piece(at);
            let length = piece.length.min(end - at);
            with(Piece { length, ..piece });
            at += length;
        }
    }

    /// Calls `with` once for each group of a set in which the range has bytes. Units that follow one another in a group are
    /// one piece, although the volume has others between them: for requests without content.
    pub(crate) fn shares(&self, offset: u64, length: u64, mut with: impl FnMut(Piece)) {
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let set = self.set_of(at);
            let unit_bytes = self.unit_bytes(set);
            let next = end.min(set.begin + set.groups * self.group_bytes);
            for index in 0..set.groups {
                let low = set.share(unit_bytes, at - set.begin, index);
                let mut high = set.share(unit_bytes, next - set.begin, index);
                if seeded::is(SeededFault::DiscardWholeUnits) {
                    high = high.next_multiple_of(unit_bytes);
                }
                if low < high {
                    with(Piece {
                        offset: at,
                        group: GroupId(set.first + index),
                        in_group: low,
                        length: high - low,
                    });
                }
            }
            at = next;
        }
    }

    /// The piece of the volume from `in_group` of a group to the end of its unit; `None` if the group is not the
    /// volume's.
    pub(crate) fn piece_of(&self, group: GroupId, in_group: u64) -> Option<Piece> {
        let has = |extent: &&Extent| {
            (extent.first..extent.first.saturating_add(extent.groups)).contains(&group.0)
        };
        let extent = *self.extents.iter().find(has)?;
        let set = self.set(extent, group.0 - extent.first);
        let unit_bytes = self.unit_bytes(set);
        let unit = in_group / unit_bytes * set.groups + (group.0 - set.first);
        let in_unit = in_group % unit_bytes;
        Some(Piece {
            offset: set.begin + unit * unit_bytes + in_unit,
            group,
            in_group,
            length: unit_bytes - in_unit,
        })
    }

    /// The pieces of the volume in a range of a group, in order.
    pub(crate) fn pieces_of(&self, group: GroupId, in_group: u64, length: u64) -> Vec<Piece> {
        debug_assert!(in_group.is_multiple_of(BLOCK_BYTES), "whole blocks");
        let end = in_group + length;
        let mut pieces = Vec::new();
        let mut at = in_group;
        while at < end
            && let Some(piece) = self.piece_of(group, at)
        {
            let length = piece.length.min(end - at);
            pieces.push(Piece { length, ..piece });
            at += length;
        }
        pieces
    }

    /// Groups that a volume of this size keeps: the whole last set, because its groups take turns.
    pub(crate) fn groups_kept(&self, size_bytes: u64) -> u64 {
        let kept = |extent: &Extent| {
            let bytes = size_bytes.saturating_sub(extent.begin);
            let sets = bytes.div_ceil(self.set_groups * self.group_bytes);
            extent.groups.min(sets * self.set_groups)
        };
        self.extents.iter().map(kept).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volume(extents: &[(u64, u64)], groups: u64) -> VolumeFacts {
        VolumeFacts {
            name: "v".to_owned(),
            uuid: uuid::Uuid::nil(),
            size_bytes: 0,
            extents: extents.to_vec(),
            interleave: (groups > 1).then_some(Interleave {
                groups,
                unit_bytes: 20,
            }),
        }
    }

    fn at(space: &VolumeSpace, offset: u64) -> (u64, u64, u64) {
        let piece = space.piece(offset);
        (piece.group.0, piece.in_group, piece.length)
    }

    #[test]
    fn units_go_round_over_the_groups_of_a_set() {
        let space = VolumeSpace::new(100, &volume(&[(7, 5)], 3));
        assert_eq!(at(&space, 0), (7, 0, 20));
        assert_eq!(at(&space, 25), (8, 5, 15));
        assert_eq!(at(&space, 40), (9, 0, 20));
        assert_eq!(at(&space, 60), (7, 20, 20));
        assert_eq!(at(&space, 299), (9, 99, 1));
        // The rest of the extent is a set of two.
        assert_eq!(at(&space, 300), (10, 0, 20));
        assert_eq!(at(&space, 320), (11, 0, 20));
        assert_eq!(at(&space, 340), (10, 20, 20));
    }

    #[test]
    fn a_group_that_is_alone_lies_in_one_piece() {
        let space = VolumeSpace::new(100, &volume(&[(7, 4)], 3));
        assert_eq!(at(&space, 330), (10, 30, 70));
        let plain = VolumeSpace::new(100, &volume(&[(7, 2), (3, 8)], 1));
        assert_eq!(at(&plain, 150), (8, 50, 50));
        assert_eq!(at(&plain, 250), (3, 50, 50));
    }

    #[test]
    fn each_byte_has_one_place_and_is_found_from_there() {
        for groups in [1, 2, 3, 5, 9] {
            let space = VolumeSpace::new(100, &volume(&[(7, 5), (30, 1), (2, 4)], groups));
            let mut places = std::collections::BTreeSet::new();
            for offset in 0..1000 {
                let piece = space.piece(offset);
                assert!(places.insert((piece.group, piece.in_group)), "{offset}");
                assert_eq!(space.piece_of(piece.group, piece.in_group), Some(piece));
            }
            assert_eq!(space.piece_of(GroupId(6), 0), None);
        }
    }

    #[test]
    fn a_request_without_content_names_each_group_of_a_set_once() {
        let space = VolumeSpace::new(100, &volume(&[(7, 5), (30, 1)], 3));
        for low in 0..600 {
            for high in [low + 1, low + 19, low + 70, low + 333, 600] {
                let high = high.min(600);
                let mut by_piece = std::collections::BTreeSet::new();
                space.pieces(low, high - low, |piece| {
                    by_piece.extend((0..piece.length).map(|at| (piece.group, piece.in_group + at)));
                });
                let mut by_share = Vec::new();
                let mut groups = Vec::new();
                space.shares(low, high - low, |piece| {
                    groups.push(piece.group);
                    by_share.extend((0..piece.length).map(|at| (piece.group, piece.in_group + at)));
                });
                let count = groups.len();
                groups.sort_unstable();
                groups.dedup();
                assert_eq!(groups.len(), count, "{low}..{high}");
                by_share.sort_unstable();
                assert!(by_share.iter().eq(&by_piece), "{low}..{high}");
            }
        }
    }

    #[test]
    fn what_is_there_does_not_move_when_a_volume_grows_or_shrinks() {
        let space = VolumeSpace::new(100, &volume(&[(7, 5)], 3));
        let grown = VolumeSpace::new(100, &volume(&[(7, 5), (12, 2)], 3));
        assert_eq!(space.groups_kept(310), 5);
        assert_eq!(space.groups_kept(300), 3);
        assert_eq!(space.groups_kept(120), 3);
        assert_eq!(grown.groups_kept(310), 5);
        assert_eq!(grown.groups_kept(501), 7);
        let shrunk = VolumeSpace::new(100, &volume(&[(7, 3)], 3));
        for offset in 0..500 {
            assert_eq!(space.piece(offset), grown.piece(offset));
            if offset < 300 {
                assert_eq!(space.piece(offset), shrunk.piece(offset));
            }
        }
        let plain = VolumeSpace::new(100, &volume(&[(7, 5)], 1));
        assert_eq!(plain.groups_kept(120), 2);
    }
}
