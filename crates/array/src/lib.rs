//! The logic of the array, without I/O.
//!
//! Two state machines, both driven from outside through `handle_*` (in) and `poll_*` (out):
//!
//! - [`Lane`] is one *lane*: a share of the groups with its own stripe locks and plans. It serves
//!   requests, degraded or not, and fills cells. A pool has a fixed number of lanes and they share
//!   nothing on the data path.
//! - [`pool::Pool`] owns what is pool-wide: labels, generation, membership, volumes, and the queue
//!   of cells to rebuild, which it hands to the lanes one by one.
//!
//! Neither touches a disk, a clock, a thread or a random source; `engine` drives them on real
//! drives in real time and `sim` on modelled drives in virtual time.
//!
//! Between them is [`plan`]: the operations of a request or a fill on one stripe are decided there as a value (reads,
//! computations, writes) that can be printed, counted and tested alone.

pub mod action;
pub mod fair_queue;
pub mod geometry;
mod lane;
mod losses;
pub mod plan;
pub mod pool;
pub mod priority;
pub mod record;
pub mod room;
pub mod router;
pub mod view;

pub use ::format;
pub use action::{
    Action, BufferId, Command, Compute, ComputeId, ComputeStep, Computed, DEADLINE, Event,
    FormCounts, Io, IoId, IoKind, Joined, Origin, Reply, RequestId, ScratchId, Service, Slice,
    Steer,
};
pub use format::{VolumeId, seeded};
pub use geometry::{Geometry, GeometryError, GroupRequest, Regions};
pub use lane::{Lane, StripeLocks};
pub use losses::{Losses, LostRange};
