//! Runs a pool in virtual time: the very machines that the engine runs, on modelled drives.
//!
//! - [`Drive`] is a drive as a state: its bytes (or none), its pace, whether it still answers.
//! - [`World`] holds a pool, its lanes and its drives, and one queue of things that will happen.
//!   It carries out what the machines ask for and tells them when it is done. One seed decides
//!   every latency and so every order of completions; the same seed gives the same run.
//! - [`Oracle`] knows from the client's side alone what every byte must be.
//! - [`replay`] drives a single lane by a recording, to show that engine and simulator agree.
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

#[cfg(feature = "seeded-faults")]
pub use array::seeded::{SeededFault, seed_fault};
pub use drive::{Counted, Drive, DriveFault, Pace, Pieces, Region, Regions, Survival, Trigger};
pub use oracle::Oracle;
pub use panics::quiet_panics;
pub use replay::{replay, replay_on_drives};
pub use world::{
    CutSpec, InFlight, PowerLoss, StudyError, StudyOptions, StudyVolume, World, WorldOptions,
};
