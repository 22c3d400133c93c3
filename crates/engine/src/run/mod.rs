//! The driver in real time.

mod admission;
mod compute;
mod events;
mod handle;
mod hash;
mod held;
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

use self::admission::Admission;
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
pub(crate) struct Seats(Vec<Option<Seated>>);

/// A drive in its seat.
#[derive(Clone, Debug)]
struct Seated {
    drive: Drive,
    /// Shared by all that ask it for something.
    admission: Arc<Admission>,
}

impl From<Drive> for Seated {
    fn from(drive: Drive) -> Self {
        let admission = Arc::default();
        Self { drive, admission }
    }
}

impl Seats {
    pub(crate) fn new(drives: Vec<Option<Drive>>) -> Self {
        Self(
            drives
                .into_iter()
                .map(|drive| drive.map(Seated::from))
                .collect(),
        )
    }

    pub(crate) fn drive(&self, seat: Seat) -> Option<&Drive> {
        Some(&self.0.get(seat.index())?.as_ref()?.drive)
    }

    pub(crate) fn admission(&self, seat: Seat) -> Option<&Arc<Admission>> {
        Some(&self.0.get(seat.index())?.as_ref()?.admission)
    }

    pub(crate) fn device(&self, seat: Seat) -> Option<&Arc<dyn BlockDevice>> {
        self.drive(seat).map(|drive| &drive.device)
    }

    /// All drives and where they sit.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seat, &Drive)> {
        (0..)
            .zip(&self.0)
            .filter_map(|(seat, drive)| Some((Seat(seat), &drive.as_ref()?.drive)))
    }

    pub(crate) fn set(&mut self, seat: Seat, drive: Option<Drive>) {
        if self.0.len() <= seat.index() {
            self.0.resize(seat.index() + 1, None);
        }
        self.0[seat.index()] = drive.map(Seated::from);
    }

    pub(crate) fn swap(&mut self, a: Seat, b: Seat) {
        self.0.swap(a.index(), b.index());
    }
}
