//! The driver in real time.

mod compute;
mod events;
mod handle;
mod hash;
pub(crate) mod hold;
mod lane;
mod meter;
mod names;
mod pool;
mod queue;
mod scratch;
mod volume;

pub use handle::{PoolHandle, RunOptions, StartError};
pub use pool::Listener;
pub use volume::Volume;

use std::sync::Arc;
use std::time;

use block::{BlockDevice, Instant, Seat};

use crate::drive::Drive;

/// The clock of a pool: nanoseconds since it was started.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(time::Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(time::Instant::now())
    }

    pub(crate) fn now(self) -> Instant {
        let nanos = self.0.elapsed().as_nanos();
        Instant(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// Which drive sits in which seat. A change makes a new table, which reaches each lane in order
/// with the pool's commands.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats(Vec<Option<Drive>>);

impl Seats {
    pub(crate) fn new(drives: Vec<Option<Drive>>) -> Self {
        Self(drives)
    }

    pub(crate) fn drive(&self, seat: Seat) -> Option<&Drive> {
        self.0.get(seat.index())?.as_ref()
    }

    pub(crate) fn device(&self, seat: Seat) -> Option<&Arc<dyn BlockDevice>> {
        self.drive(seat).map(|drive| &drive.device)
    }

    /// All drives and where they sit.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seat, &Drive)> {
        (0..)
            .zip(&self.0)
            .filter_map(|(seat, drive)| Some((Seat(seat), drive.as_ref()?)))
    }

    pub(crate) fn set(&mut self, seat: Seat, drive: Option<Drive>) {
        if self.0.len() <= seat.index() {
            self.0.resize(seat.index() + 1, None);
        }
        self.0[seat.index()] = drive;
    }

    pub(crate) fn swap(&mut self, a: Seat, b: Seat) {
        self.0.swap(a.index(), b.index());
    }
}
