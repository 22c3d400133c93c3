//! The map from a volume's bytes to groups: a snapshot that many threads use at once.

use block::{Request, RequestKind};
use format::{GroupId, VolumeId};
use plan::{Geometry, GroupRequest};

use crate::VolumeFacts;
use crate::space::{Piece, VolumeSpace};

/// A volume's space at one moment. Immutable: a change of the volume makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMap {
    size_bytes: u64,
    lanes: u16,
    space: VolumeSpace,
    id: VolumeId,
}

/// A part of a request, for one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which lane serves it.
    pub lane: u16,
    /// The request to that lane.
    pub request: GroupRequest,
}

impl VolumeMap {
    /// The map of the volume as it is in the facts.
    #[must_use]
    pub fn new(geometry: &Geometry, volume: &VolumeFacts) -> Self {
        Self {
            size_bytes: volume.size_bytes,
            lanes: geometry.lanes(),
            space: VolumeSpace::new(geometry.group_data_bytes(), volume),
            id: volume.id(),
        }
    }

    /// Bytes that clients see.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Whether a request lies inside the volume.
    #[must_use]
    pub fn contains(&self, request: &Request) -> bool {
        request
            .offset
            .checked_add(request.length)
            .is_some_and(|end| end <= self.size_bytes)
    }

    /// The volume's byte at `in_group` of a group; `None` if the group is another volume's.
    #[must_use]
    pub fn offset_of(&self, group: GroupId, in_group: u64) -> Option<u64> {
        Some(self.space.piece_of(group, in_group)?.offset)
    }

    /// Cuts a request (not a flush) where the next byte is in another group. A request without content has one part for
    /// each group and set.
    ///
    /// # Panics
    /// When the request does not lie inside the volume.
    #[must_use]
    pub fn split(&self, request: &Request) -> Vec<Part> {
        assert!(self.contains(request), "requests are checked on entry");
        let mut parts = Vec::new();
        let part = |piece: Piece| {
            let lane = piece.group.0 % u64::from(self.lanes);
            parts.push(Part {
                lane: u16::try_from(lane).expect("a remainder of a u16"),
                request: GroupRequest {
                    group: piece.group,
                    request: Request {
                        offset: piece.in_group,
                        length: piece.length,
                        ..*request
                    },
                    buffer_offset: piece.offset - request.offset,
                    volume: self.id,
                },
            });
        };
        match request.kind {
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                self.space.shares(request.offset, request.length, part);
            }
            RequestKind::Read | RequestKind::Write | RequestKind::Flush => {
                self.space.pieces(request.offset, request.length, part);
            }
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interleave;

    #[test]
    fn a_request_is_cut_at_group_ends_and_extent_ends() {
        let volume = VolumeFacts {
            name: "v".to_owned(),
            uuid: uuid::Uuid::nil(),
            size_bytes: 1000,
            extents: vec![(7, 2), (3, 8)],
            interleave: None,
        };
        let map = VolumeMap {
            size_bytes: 1000,
            lanes: 4,
            space: VolumeSpace::new(100, &volume),
            id: volume.id(),
        };
        let request = Request {
            kind: RequestKind::Write,
            offset: 150,
            length: 200,
            fua: true,
        };
        let parts: Vec<_> = map
            .split(&request)
            .iter()
            .map(|part| {
                let GroupRequest {
                    group,
                    request,
                    buffer_offset,
                    volume,
                } = part.request;
                assert!(request.fua);
                assert_eq!(volume, VolumeId(7));
                (
                    part.lane,
                    group,
                    request.offset,
                    request.length,
                    buffer_offset,
                )
            })
            .collect();
        assert_eq!(
            parts,
            [
                (0, GroupId(8), 50, 50, 0),
                (3, GroupId(3), 0, 100, 50),
                (0, GroupId(4), 0, 50, 150)
            ]
        );
        assert!(!map.contains(&Request {
            offset: u64::MAX,
            ..request
        }));
    }

    #[test]
    fn a_discard_over_many_units_has_a_part_for_each_group() {
        let volume = VolumeFacts {
            name: "v".to_owned(),
            uuid: uuid::Uuid::nil(),
            size_bytes: 500,
            extents: vec![(7, 5)],
            interleave: Some(Interleave {
                groups: 3,
                unit_bytes: 20,
            }),
        };
        let map = VolumeMap {
            size_bytes: 500,
            lanes: 4,
            space: VolumeSpace::new(100, &volume),
            id: volume.id(),
        };
        let parts = |kind| {
            let request = Request {
                kind,
                offset: 10,
                length: 300,
                fua: false,
            };
            map.split(&request)
        };
        let of: Vec<_> = parts(RequestKind::Trim)
            .iter()
            .map(|part| part.request)
            .map(|part| (part.group, part.request.offset, part.request.length))
            .collect();
        assert_eq!(
            of,
            [
                (GroupId(7), 10, 90),
                (GroupId(8), 0, 100),
                (GroupId(9), 0, 100),
                (GroupId(10), 0, 10)
            ],
            "two sets: of three groups, and of what is left"
        );
        assert_eq!(parts(RequestKind::Write).len(), 16);
    }
}
