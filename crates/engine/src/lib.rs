//! Runs arrays on real devices, in real time: drives below, lanes and the pool above.
//!
//! ```text
//!   Volume (BlockDevice) ── split by group ──► lane threads ── Io ──► drives
//!                                               │    ▲  events / commands
//!                                               ▼    │
//!                                             pool thread ── labels, cell tables ──► drives
//! ```
//!
//! The state machines of `array` make all decisions; this crate has only threads, queues, clocks
//! and memory.

pub mod assemble;
pub mod drive;
pub mod load;
pub mod ring;
mod run;
pub mod status;
pub mod traffic;

pub use run::{Listener, Member, PoolHandle, RunOptions, StartError, Volume};
