//! Finds out how a RAID volume is striped: the volume gets bursts of reads, and the striping follows from their times.
//!
//! The idea is that of T. Denehy, J. Bent, F. Popovici, A. and R. Arpaci-Dusseau, "Deconstructing
//! Storage Arrays" (ASPLOS 2004), section 2.3: requests on one drive wait for each other, requests on
//! different drives do not.
//!
//! ```text
//!   next_probe() ─► driver ─► volume          burst of 8: one drive   ████████  8
//!   record()     ◄─ times  ◄─                             two drives  ████      4
//!   belief()                                              scattered   ██        2
//! ```
//!
//! The paper measures every stride, boundary and pair with thousands of requests. Here each question gets bursts of a
//! few requests until its answer is sure, and questions are chosen so that few are needed:
//!
//! - *Strides* that keep to one drive are the multiples of the pattern P. Therefore the search begins with a stride
//!   that many patterns divide, and removes its prime factors as long as the stride stays slow.
//! - *Chunks*: two places of the pattern are on one drive or not; doubling and halving find where that changes.
//! - *Drives*: chunks are compared with one representative of each drive.
//! - The result is matched with the layouts of [`layout::equivalence`]: the answer is a class of them. Writes separate
//!   layouts that reads cannot separate.
//!
//! This crate does no I/O, reads no clock, and is independent of Ravelin's own arrays: [`Shear`] is a state machine.
//! The driver asks it for bursts and hands back their times.

mod belief;
mod desk;
mod ours;
mod probe;
mod published;

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

pub use belief::{Belief, Family, Redundancy};
pub use probe::{Kind, Probe, Request, Sample, Stop};

use desk::Desk;

/// The procedure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// Sequential decisions, as few I/Os as they need.
    #[default]
    Ours,
    /// The paper's four steps.
    Published {
        /// N: requests of a burst.
        requests: u32,
        /// R: bursts of a point.
        trials: u32,
        /// Strides and boundaries are tried at multiples of this, in bytes.
        step_bytes: u64,
        /// The longest stride, in bytes.
        pattern_bytes_max: u64,
    },
}

/// Choices and limits of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Size of the volume.
    pub size_bytes: u64,
    /// Whether ranges may be written back.
    pub writes: bool,
    /// Largest number of I/Os.
    pub ios_max: u64,
    /// Seed of all choices.
    pub seed: u64,
    /// The procedure.
    pub method: Method,
}

/// The state machine. Until [`Shear::next_probe`] returns `None`: carry out the burst, then [`Shear::record`] its
/// times.
pub struct Shear {
    procedure: Option<Pin<Box<dyn Future<Output = ()>>>>,
    desk: Desk,
}

impl std::fmt::Debug for Shear {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shear")
            .field("desk", &self.desk)
            .finish_non_exhaustive()
    }
}

impl Shear {
    /// The state before the first burst.
    #[must_use]
    pub fn new(options: Options) -> Self {
        let desk = Desk::new(options.ios_max);
        let procedure: Pin<Box<dyn Future<Output = ()>>> = match options.method {
            Method::Ours => Box::pin(ours::run(options, desk.clone())),
            Method::Published { .. } => Box::pin(published::run(options, desk.clone())),
        };
        Self {
            procedure: Some(procedure),
            desk,
        }
    }

    /// The burst to carry out next: the same one until its times are recorded. `None`: the procedure has ended.
    pub fn next_probe(&mut self) -> Option<Probe> {
        if let Some(probe) = self.desk.question() {
            return Some(probe);
        }
        let procedure = self.procedure.as_mut()?;
        let mut context = Context::from_waker(Waker::noop());
        if procedure.as_mut().poll(&mut context).is_ready() {
            self.procedure = None;
        }
        self.desk.question()
    }

    /// Takes the times of the burst that [`Shear::next_probe`] returned.
    pub fn record(&mut self, sample: Sample) {
        self.desk.answer(Ok(sample));
    }

    /// Takes the reason why the burst was not carried out, and why no more will be. The belief so far stays.
    pub fn stop(&mut self, why: Stop) {
        self.desk.answer(Err(why));
    }

    /// The belief so far.
    #[must_use]
    pub fn belief(&self) -> Belief {
        self.desk.belief()
    }

    /// Requests of all bursts so far.
    #[must_use]
    pub fn ios(&self) -> u64 {
        self.desk.ios()
    }

    /// Bursts so far.
    #[must_use]
    pub fn bursts(&self) -> u64 {
        self.desk.bursts()
    }

    /// Pattern curve: stride in bytes and mean seconds of its bursts.
    #[must_use]
    pub fn curve(&self) -> Vec<(u64, f64)> {
        self.desk.curve()
    }

    /// Boundary curve of the published method: offset in the pattern in bytes, and mean seconds of bursts on both sides
    /// of the offset. Our method finds boundaries by bisection and has no such curve.
    #[must_use]
    pub fn boundaries(&self) -> Vec<(u64, f64)> {
        self.desk.boundaries()
    }

    /// Chunk-pair map: two chunks of the pattern, and the time of a burst on both divided by the time of a burst on one
    /// of them. The ratio is 1 if the two are on one drive, and a half if they share no drive.
    #[must_use]
    pub fn pairs(&self) -> Vec<(u32, u32, f64)> {
        self.desk.pairs()
    }
}
