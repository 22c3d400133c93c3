//! From a volume's bytes to groups: a snapshot that many threads use at once.

use block::Request;

use crate::pool::VolumeFacts;
use crate::{Geometry, GroupRequest};

/// A volume's space at one moment. Immutable: a change of the volume makes a new one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMap {
    size_bytes: u64,
    group_bytes: u64,
    lanes: u16,
    /// First byte in the volume, first group, number of groups.
    extents: Vec<(u64, u64, u64)>,
}

/// A part of a request, for one lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which lane serves it.
    pub lane: u16,
    /// What it is asked.
    pub request: GroupRequest,
}

impl VolumeMap {
    /// The volume as the facts have it.
    #[must_use]
    pub fn new(geometry: &Geometry, volume: &VolumeFacts) -> Self {
        let group_bytes = geometry.group_data_bytes();
        let mut begin = 0;
        let extents = volume
            .extents
            .iter()
            .map(|&(first, count)| {
                let extent = (begin, first, count);
                begin += count * group_bytes;
                extent
            })
            .collect();
        Self {
            size_bytes: volume.size_bytes,
            group_bytes,
            lanes: geometry.lanes(),
            extents,
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

    /// Cuts a request (not a flush) at group ends.
    ///
    /// # Panics
    /// When the request does not lie inside the volume.
    #[must_use]
    pub fn split(&self, request: &Request) -> Vec<Part> {
        assert!(self.contains(request), "requests are checked on entry");
        let end = request.offset + request.length;
        let mut parts = Vec::new();
        let mut offset = request.offset;
        while offset < end {
            let index = self.extents.partition_point(|&(begin, ..)| begin <= offset) - 1;
            let (begin, first, _) = self.extents[index];
            let group = first + (offset - begin) / self.group_bytes;
            let in_group = (offset - begin) % self.group_bytes;
            let length = (self.group_bytes - in_group).min(end - offset);
            parts.push(Part {
                lane: u16::try_from(group % u64::from(self.lanes)).expect("a remainder of a u16"),
                request: GroupRequest {
                    group,
                    request: Request {
                        offset: in_group,
                        length,
                        ..*request
                    },
                    buffer_offset: offset - request.offset,
                },
            });
            offset += length;
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use block::RequestKind;

    #[test]
    fn a_request_is_cut_at_group_ends_and_extent_ends() {
        let map = VolumeMap {
            size_bytes: 1000,
            group_bytes: 100,
            lanes: 4,
            extents: vec![(0, 7, 2), (200, 3, 8)],
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
                } = part.request;
                assert!(request.fua);
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
            [(0, 8, 50, 50, 0), (3, 3, 0, 100, 50), (0, 4, 0, 50, 150)]
        );
        assert!(!map.contains(&Request {
            offset: u64::MAX,
            ..request
        }));
    }
}
