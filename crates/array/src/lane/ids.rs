//! Numbers of a lane's operations and jobs. One counter gives both, and those of drive operations, computations and
//! memory; each kind has a type, so that one cannot be taken for another.

/// An operation on a stripe or on a run of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpId(pub(super) u64);

/// Something that is done to every stripe of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId(pub(super) u64);
