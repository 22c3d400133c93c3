//! Identities that more than one part of the array has in common.

/// The identity of a volume in lanes: the number of its first group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VolumeId(pub u64);

impl VolumeId {
    /// No volume: for requests that use none of the resources that volumes share.
    pub const NONE: Self = Self(u64::MAX);
}
