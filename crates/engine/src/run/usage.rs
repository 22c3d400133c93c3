//! Samples how much of their physical space the drives of a pool use.
//!
//! A thread of its own asks the drives once a second, because they may read files of the kernel for the answer: no lane
//! waits for that, nor does the pool's thread. While no drive knows its use, the thread sleeps. It holds no drive open.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Weak};
use std::time::Duration;

use block::{BlockDevice, Instant, Usage};

use super::pool::PoolMessage;
use super::{Clock, Seats};

/// The time between two samples. A drive of 4 GiB that takes 500 MB/s of new data is filled by an eighth meanwhile.
const EVERY: Duration = Duration::from_secs(1);

/// The use of one drive.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) device: Weak<dyn BlockDevice>,
    pub(crate) usage: Option<Usage>,
}

impl Sample {
    fn take(device: &Weak<dyn BlockDevice>) -> Self {
        Self {
            usage: device.upgrade().and_then(|device| device.usage()),
            device: Weak::clone(device),
        }
    }
}

enum Wanted {
    /// These are the drives from now on.
    Drives(Vec<Weak<dyn BlockDevice>>),
    /// A sample now: writes may wait for it.
    Now,
    Stop,
}

/// The thread that samples.
#[derive(Clone)]
pub(crate) struct Sampler(Sender<Wanted>);

impl Sampler {
    /// Begins to sample the drives. `known`: a first sample has shown that some of them know their use.
    pub(crate) fn start(
        seats: &Seats,
        known: bool,
        (clock, pool): (Clock, Sender<PoolMessage>),
    ) -> std::io::Result<Self> {
        let (wanted, requests) = channel();
        let drives = devices(seats);
        std::thread::Builder::new()
            .name("usage".to_owned())
            .spawn(move || run(drives, known, &requests, (clock, &pool)))?;
        Ok(Self(wanted))
    }

    /// The seats have other drives: samples these at once.
    pub(crate) fn seats_changed(&self, seats: &Seats) {
        // A thread that has ended samples nothing.
        self.0.send(Wanted::Drives(devices(seats))).ok();
    }

    /// Samples at once.
    pub(crate) fn sample_now(&self) {
        self.0.send(Wanted::Now).ok();
    }

    /// Ends the thread; does not wait for a drive that does not answer.
    pub(crate) fn stop(&self) {
        self.0.send(Wanted::Stop).ok();
    }
}

fn devices(seats: &Seats) -> Vec<Weak<dyn BlockDevice>> {
    let devices = seats.iter().map(|(_, drive)| &drive.device);
    devices.map(Arc::downgrade).collect()
}

fn run(
    mut drives: Vec<Weak<dyn BlockDevice>>,
    mut known: bool,
    requests: &Receiver<Wanted>,
    (clock, pool): (Clock, &Sender<PoolMessage>),
) {
    loop {
        let request = match known {
            true => requests.recv_timeout(EVERY),
            false => requests.recv().map_err(RecvTimeoutError::from),
        };
        let asked = matches!(request, Ok(Wanted::Now));
        match request {
            Ok(Wanted::Drives(others)) => drives = others,
            Ok(Wanted::Now) | Err(RecvTimeoutError::Timeout) => {}
            Ok(Wanted::Stop) | Err(RecvTimeoutError::Disconnected) => return,
        }
        // What was in place by now is in the samples.
        let taken_at: Instant = clock.now();
        let samples: Vec<Sample> = drives.iter().map(Sample::take).collect();
        let knows = samples.iter().any(|sample| sample.usage.is_some());
        // The last sample of a drive that does not know its use any more must not stay.
        if (known || knows || asked) && pool.send(PoolMessage::Usage(taken_at, samples)).is_err() {
            return;
        }
        known = knows;
    }
}
