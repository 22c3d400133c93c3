//! Numbers of a lane's operations and jobs. One counter gives these and the numbers of drive operations, computations
//! and memory. Each kind has a type, so that one kind cannot be used as another.

/// An operation on a stripe or on a run of stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct OpId(pub(super) u64);

/// A job, which works on every stripe of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobId(pub(super) u64);
