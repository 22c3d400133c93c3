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
//!
//! The code is in four crates, and this one only names them as one, for drivers and what is above these:
//!
//! ```text
//!            array            a face
//!        lane     pool        the two state machines; neither knows the other
//!            plan             plans, and what they are made of; what lanes and the pool say to one another
//!           format            bytes on drives, their names, the pool's facts; seeded faults
//! ```

pub use ::{format, plan, pool};
pub use format::{VolumeId, seeded};
pub use lane::{Lane, StripeLocks, fair_queue, record};
pub use plan::{
    Action, BufferId, Command, Compute, ComputeId, ComputeStep, Computed, DEADLINE, Event,
    FormCounts, Geometry, GeometryError, GroupRequest, Io, IoId, IoKind, Joined, Losses, LostRange,
    Origin, Regions, Reply, RequestId, ScratchId, Service, Slice, Steer, action, geometry,
    priority, room, view,
};
pub use pool::router;
