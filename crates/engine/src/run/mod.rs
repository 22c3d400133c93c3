//! The driver in real time.

mod admission;
mod compute;
mod events;
mod extents;
mod gate;
mod handle;
mod hash;
mod held;
mod lane;
pub(crate) mod lease;
mod long_writes;
mod members;
mod meter;
mod names;
mod pool;
pub(crate) mod purposes;
mod queue;
mod scratch;
mod usage;
mod volume;

pub use handle::{PoolHandle, RunOptions, StartError};
pub use members::Member;
pub use pool::Listener;
pub use volume::Volume;

use std::sync::Arc;
use std::time;

use block::{BlockDevice, Instant, Seat};

use self::admission::Admission;
use self::purposes::Asked;
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
#[derive(Clone, Debug)]
pub(crate) struct Seats {
    seats: Vec<Option<Seated>>,
    /// The number of lane threads that submit operations.
    threads: u16,
}

/// A drive in its seat.
#[derive(Clone, Debug)]
struct Seated {
    drive: Drive,
    /// Shared by all threads that use the drive. `None` for memory, which has no queue in which a short operation
    /// waits.
    admission: Option<Arc<Admission>>,
    /// Counters of the operations that the threads have asked for.
    asked: Arc<Asked>,
}

impl Seated {
    fn new(drive: Drive, threads: u16) -> Self {
        let queues = drive.uri.spec.has_queue();
        Self {
            drive,
            admission: queues.then(Arc::default),
            asked: Arc::new(Asked::new(threads)),
        }
    }
}

impl Seats {
    pub(crate) fn new(drives: Vec<Option<Drive>>, threads: u16) -> Self {
        let seat = |drive: Option<Drive>| drive.map(|drive| Seated::new(drive, threads));
        Self {
            seats: drives.into_iter().map(seat).collect(),
            threads,
        }
    }

    fn seated(&self, seat: Seat) -> Option<&Seated> {
        self.seats.get(seat.index())?.as_ref()
    }

    pub(crate) fn drive(&self, seat: Seat) -> Option<&Drive> {
        Some(&self.seated(seat)?.drive)
    }

    /// `None` if the seat is empty, or its drive has no queue.
    pub(crate) fn admission(&self, seat: Seat) -> Option<&Arc<Admission>> {
        self.seated(seat)?.admission.as_ref()
    }

    pub(crate) fn asked(&self, seat: Seat) -> Option<&Asked> {
        Some(&self.seated(seat)?.asked)
    }

    pub(crate) fn device(&self, seat: Seat) -> Option<&Arc<dyn BlockDevice>> {
        self.drive(seat).map(|drive| &drive.device)
    }

    /// All drives and where they sit.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Seat, &Drive)> {
        (0..)
            .zip(&self.seats)
            .filter_map(|(seat, drive)| Some((Seat(seat), &drive.as_ref()?.drive)))
    }

    pub(crate) fn set(&mut self, seat: Seat, drive: Option<Drive>) {
        if self.seats.len() <= seat.index() {
            self.seats.resize(seat.index() + 1, None);
        }
        self.seats[seat.index()] = drive.map(|drive| Seated::new(drive, self.threads));
    }

    pub(crate) fn swap(&mut self, a: Seat, b: Seat) {
        self.seats.swap(a.index(), b.index());
    }
}
