//! Runs a pool in virtual time: the same state machines that the engine runs, on modelled drives.
//!
//! - [`Drive`] is a drive as a state: its bytes (or none), its pace, and whether it still answers.
//! - [`World`] holds a pool, its lanes and its drives, and one queue of future events. It carries out the actions of
//!   the state machines and delivers the completions. One seed decides every latency and so the order of completions;
//!   the same seed gives the same run.
//! - [`Oracle`] records what the client writes, and so has the correct value of every byte.
//! - [`replay`] feeds a recording to a single lane, to show that the engine and the simulator agree.
//!
//! No operating system: no files, clocks or threads.

#![cfg_attr(
    test,
    allow(
        clippy::cast_possible_truncation,
        reason = "patterns of bytes from counters"
    )
)]

mod buffer;
mod content;
mod drive;
pub mod enumerate;
mod image;
mod ledger;
pub mod load;
pub mod model;
mod oracle;
mod panics;
pub mod plain;
mod replay;
pub mod schedule;
mod scratch;
mod world;

pub use array::format::Form;
pub use array::seeded::SeededFault;
#[cfg(debug_assertions)]
pub use array::seeded::seed_fault;
pub use drive::{Counted, Drive, DriveFault, Pace, Pieces, Region, Regions, Survival, Trigger};
pub use oracle::Oracle;
pub use panics::quiet_panics;
pub use replay::{replay, replay_on_drives};
pub use world::{
    CutSpec, InFlight, LogBlocks, Moved, PowerLoss, StudyError, StudyOptions, StudyVolume, Tally,
    Where, World, WorldOptions,
};
