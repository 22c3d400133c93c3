//! Models of drives: when a drive answers.
//!
//! [`Drive`](crate::Drive) has the content and the faults of a drive. A model decides *when* the drive answers: it is a
//! state machine that accepts operations, chooses the next one from its queue, and reports when one is done. A model
//! stores no bytes, so a drive of 20 TB costs as much memory as a drive of 1 MB.
//!
//! ```text
//!   handle_operation ──► queue ──► mechanics ──► poll_done
//!                          ▲           │
//!                          └── handle_timeout at poll_timeout
//! ```
//!
//! A driver calls [`Model::handle_operation`] any number of times, then empties [`Model::poll_done`], then asks
//! [`Model::poll_timeout`] when to call [`Model::handle_timeout`]:
//!
//! ```
//! use block::Instant;
//! use sim::model::{IoKind, Operation, preset};
//!
//! let mut drive = preset("9lzx").unwrap().build();
//! drive.handle_operation(Instant::ZERO, Operation { token: 7, kind: IoKind::Read, offset: 0, length: 4096 });
//! let at = drive.poll_timeout().unwrap();
//! drive.handle_timeout(at);
//! assert_eq!(drive.poll_done(), Some(7));
//! ```
//!
//! Times are whole nanoseconds and all arithmetic is on integers, so that every platform computes the same run.
//!
//! | file | model |
//! | --- | --- |
//! | `disk/` | rotating disk: zones, seek curve, angle of rotation, switches and skews, caches |
//! | `ssd/` | flash: channels, dies, page mapping, greedy cleaning |
//! | `server` | one first-come first-served server, the rule of `slow:` drives; no time at all |
//! | `slowed` | any model at a fraction of its speed |
//! | `order` | queue disciplines: FIFO, SSTF, C-LOOK, SPTF |
//! | `preset` | drives by name, each number with its source |

pub mod disk;
mod order;
mod preset;
mod server;
mod slowed;
pub mod ssd;
mod work;

use std::fmt::Debug;

pub use array::IoKind;
use block::Instant;

pub use self::order::{Order, QueueOptions};
pub use self::preset::{ModelOptions, PRESETS, Preset, preset};
pub(crate) use self::server::transfer_ns;
pub use self::server::{Null, Server, ServerOptions};
pub use self::slowed::Slowed;
pub use self::work::Work;

/// One operation on a drive. Offsets and lengths are bytes, in whole sectors of 512.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operation {
    /// The submitter's id of the operation; [`Model::poll_done`] returns it.
    pub token: u64,
    /// What to do.
    pub kind: IoKind,
    /// First byte on the drive.
    pub offset: u64,
    /// Number of bytes; 0 for a flush.
    pub length: u64,
}

/// The timing of a drive. See the [module](self) for the order of calls.
pub trait Model: Debug + Send {
    /// Accepts an operation. `now` never runs backwards, over all calls.
    fn handle_operation(&mut self, now: Instant, operation: Operation);

    /// Call this when time has reached [`Model::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);

    /// The token of an operation that is done, in the order in which they were done.
    fn poll_done(&mut self) -> Option<u64>;

    /// Time of the next event; `None` while nothing is in the drive.
    fn poll_timeout(&self) -> Option<Instant>;

    /// Operations that have been accepted and are not done.
    fn queued(&self) -> usize;

    /// Work done so far.
    fn work(&self) -> Work;

    /// A copy in the same state.
    fn boxed(&self) -> Box<dyn Model>;
}

impl Clone for Box<dyn Model> {
    fn clone(&self) -> Self {
        self.boxed()
    }
}
