//! Operations: what a lane does for requests and jobs, a stripe at a time.

mod op;
mod prepared;

pub(super) use self::op::{Destination, Hedge, Lock, Op, Owner, Phase, Task, waits_for_verdict};
pub(super) use self::prepared::{Prepared, Staging};
