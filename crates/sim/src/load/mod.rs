//! Loads for arrays and drives, and their results.
//!
//! ```text
//!   Load: which request when ──► Run ──► Target: a plain array, a lone drive, a whole pool
//!                                 └──► Numbers: throughput, latency, as totals and over time
//! ```
//!
//! A [`Run`] advances in pieces ([`Run::until`], [`Run::requests`]), so that the actions of a study in between (a drive
//! fails, a rebuild begins) are plain code:
//!
//! ```
//! use std::time::Duration;
//! use block::{Instant, Seat};
//! use sim::load::{Load, LoadOptions, Run};
//! use sim::plain::{PlainArray, PlainOptions};
//!
//! let options = PlainOptions::new("raid6:4d:8c:2s", sim::model::preset("9lzx").unwrap());
//! let mut array = PlainArray::new(&options).unwrap();
//! let load = LoadOptions { read_percent: 70, ..LoadOptions::default() };
//! let mut run = Run::new(Load::new(&load, array.capacity_bytes(), 1).unwrap(), Some(Duration::from_secs(1)));
//! run.until(&mut array, Instant(2_000_000_000));
//! array.fail(array.now(), Seat(0));
//! run.until(&mut array, Instant(4_000_000_000));
//! assert!(run.numbers().requests() > 100);
//! ```
//!
//! One seeded generator makes all choices. Logarithms and powers come from the `libm` crate, so that every platform
//! makes the same choices.

mod access;
mod numbers;
mod run;
pub mod trace;
mod zipf;

use block::{Instant, Outcome, Request, RequestKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use stats::to_f64;

pub use self::access::Access;
use self::access::Places;
pub use self::numbers::{Interval, Numbers};
pub use self::run::Run;
use self::trace::Record;
use crate::model::{Model, Operation};
use crate::plain::PlainArray;

/// A system that serves requests in virtual time.
pub trait Target {
    /// Bytes that a request may lie in.
    fn capacity_bytes(&self) -> u64;
    /// Accepts a request. Time never runs backwards.
    fn handle_request(&mut self, now: Instant, token: u64, request: Request);
    /// Call this when time has reached [`Target::poll_timeout`].
    fn handle_timeout(&mut self, now: Instant);
    /// Time of the next event.
    fn poll_timeout(&self) -> Option<Instant>;
    /// A request that has ended, at the time of the last call.
    fn poll_done(&mut self) -> Option<(u64, Outcome)>;
}

impl Target for PlainArray {
    fn capacity_bytes(&self) -> u64 {
        Self::capacity_bytes(self)
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        Self::handle_request(self, now, token, request);
    }

    fn handle_timeout(&mut self, now: Instant) {
        Self::handle_timeout(self, now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        Self::poll_timeout(self)
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        Self::poll_done(self)
    }
}

/// A single drive.
#[derive(Clone, Debug)]
pub struct Lone {
    /// The drive.
    pub model: Box<dyn Model>,
    /// Its size.
    pub capacity_bytes: u64,
}

impl Target for Lone {
    fn capacity_bytes(&self) -> u64 {
        self.capacity_bytes
    }

    fn handle_request(&mut self, now: Instant, token: u64, request: Request) {
        let kind = match request.kind {
            RequestKind::Read => array::IoKind::Read,
            RequestKind::Write => array::IoKind::Write,
            RequestKind::Flush => array::IoKind::Flush,
            RequestKind::Trim | RequestKind::WriteZeroes => array::IoKind::WriteZeroes,
            RequestKind::Discard => array::IoKind::Discard,
        };
        let operation = Operation {
            token,
            kind,
            offset: request.offset,
            length: request.length,
        };
        self.model.handle_operation(now, operation);
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.model.handle_timeout(now);
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.model.poll_timeout()
    }

    fn poll_done(&mut self) -> Option<(u64, Outcome)> {
        self.model.poll_done().map(|token| (token, Ok(())))
    }
}

/// When requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Arrivals {
    /// Each of so many clients has one request in flight, and a think time between two requests.
    Closed {
        /// Requests in flight at most.
        clients: u32,
        /// Time between an answer and the client's next request.
        think_ns: u64,
    },
    /// A Poisson process.
    Poisson {
        /// Requests per second in the mean.
        per_second: f64,
    },
    /// At equal intervals.
    Regular {
        /// Requests per second.
        per_second: f64,
    },
    /// The recorded requests at the recorded times; the load's own access, mix and sizes have no effect.
    Recorded(Vec<Record>),
    /// The recorded requests in order, each as soon as fewer than `clients` requests are in flight.
    Replayed {
        /// What was recorded.
        records: Vec<Record>,
        /// Requests in flight at most.
        clients: u32,
    },
}

/// A load.
#[derive(Clone, Debug, PartialEq)]
pub struct LoadOptions {
    /// When.
    pub arrivals: Arrivals,
    /// Where.
    pub access: Access,
    /// Share of reads.
    pub read_percent: u32,
    /// Bytes of requests, and weights. Requests are aligned to the largest power of two that divides all sizes.
    pub sizes: Vec<(u64, u32)>,
    /// First byte and number of bytes that the load uses; `None`: the whole volume.
    pub region: Option<(u64, u64)>,
}

impl Default for LoadOptions {
    /// 16 clients that read 4 KiB anywhere.
    fn default() -> Self {
        Self {
            arrivals: Arrivals::Closed {
                clients: 16,
                think_ns: 0,
            },
            access: Access::Uniform,
            read_percent: 100,
            sizes: vec![(4096, 1)],
            region: None,
        }
    }
}

impl LoadOptions {
    /// The IOR runs of the DDP paper (section 2.5): 16 threads, each through its own part of the file, in order or at
    /// random.
    #[must_use]
    pub fn ior(transfer_bytes: u64, reads: bool, random: bool) -> Self {
        Self {
            access: match random {
                false => Access::Sequential { streams: 16 },
                true => Access::Uniform,
            },
            read_percent: if reads { 100 } else { 0 },
            sizes: vec![(transfer_bytes, 1)],
            ..Self::default()
        }
    }
}

/// Why a load cannot be created.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LoadError {
    /// A request of that many bytes has no place.
    #[error("requests of {bytes} bytes do not fit into a region of {region}: use smaller ones")]
    TooLarge {
        /// Bytes of a request.
        bytes: u64,
        /// Bytes of the region.
        region: u64,
    },
    /// The region is not in the volume.
    #[error("the load's region ends at byte {end}, and the volume at {capacity}")]
    Outside {
        /// End of the region.
        end: u64,
        /// End of the volume.
        capacity: u64,
    },
    /// A size that is 0 or not a multiple of the sector size.
    #[error("requests have whole sectors of 512 bytes, at least one: {bytes} bytes are not")]
    Size {
        /// What was given.
        bytes: u64,
    },
    /// A value that must be more than 0 is 0.
    #[error("{what} must be more than 0")]
    Zero {
        /// The name of the value.
        what: &'static str,
    },
    /// A percentage.
    #[error("{what} is a percentage: {given} is more than 100")]
    Percent {
        /// The name of the value.
        what: &'static str,
        /// What was given.
        given: u32,
    },
}

/// A load that has begun: generates the next request.
#[derive(Clone, Debug)]
pub struct Load {
    arrivals: Arrivals,
    places: Places,
    read_percent: u32,
    sizes: Vec<(u64, u32)>,
    weights: u32,
    region: (u64, u64),
    rng: ChaCha8Rng,
    /// Number of records returned.
    next_record: usize,
}

impl Load {
    /// Begins a load on a volume of `capacity_bytes`. The same seed gives the same requests.
    ///
    /// # Errors
    /// [`LoadError`] if the options do not fit the volume.
    pub fn new(options: &LoadOptions, capacity_bytes: u64, seed: u64) -> Result<Self, LoadError> {
        let (first, bytes) = options.region.unwrap_or((0, capacity_bytes));
        let end = first.saturating_add(bytes);
        if end > capacity_bytes {
            return Err(LoadError::Outside {
                end,
                capacity: capacity_bytes,
            });
        }
        for &(size, _) in &options.sizes {
            if size == 0 || !size.is_multiple_of(512) {
                return Err(LoadError::Size { bytes: size });
            }
            if size > bytes {
                return Err(LoadError::TooLarge {
                    bytes: size,
                    region: bytes,
                });
            }
        }
        if options.read_percent > 100 {
            return Err(LoadError::Percent {
                what: "the share of reads",
                given: options.read_percent,
            });
        }
        let weights = options.sizes.iter().map(|&(_, weight)| weight).sum();
        if weights == 0 {
            return Err(LoadError::Zero {
                what: "the weight of some size",
            });
        }
        let positive = match &options.arrivals {
            Arrivals::Closed { clients, .. } | Arrivals::Replayed { clients, .. } => *clients > 0,
            Arrivals::Poisson { per_second } | Arrivals::Regular { per_second } => {
                per_second.is_finite() && *per_second > 0.0
            }
            Arrivals::Recorded(_) => true,
        };
        if !positive {
            return Err(LoadError::Zero {
                what: "the number of clients, or of requests per second,",
            });
        }
        let align = options
            .sizes
            .iter()
            .fold(1 << 62, |align: u64, &(size, _)| {
                align.min(1 << size.trailing_zeros())
            });
        Ok(Self {
            places: Places::new(options.access, bytes, align)?,
            arrivals: options.arrivals.clone(),
            read_percent: options.read_percent,
            sizes: options.sizes.clone(),
            weights,
            region: (first, bytes),
            rng: ChaCha8Rng::seed_from_u64(seed),
            next_record: 0,
        })
    }

    /// The next request of a client.
    fn request(&mut self, client: u32) -> Option<Request> {
        if let Arrivals::Recorded(records) | Arrivals::Replayed { records, .. } = &self.arrivals {
            let record = *records.get(self.next_record)?;
            self.next_record += 1;
            return Some(self.fit(record));
        }
        let length = self.size();
        let read = match self.read_percent {
            100 => true,
            0 => false,
            percent => self.rng.random_range(0..100) < percent,
        };
        let offset = self.places.next(&mut self.rng, client, length);
        Some(Request {
            kind: if read {
                RequestKind::Read
            } else {
                RequestKind::Write
            },
            offset: self.region.0 + offset,
            length,
            fua: false,
        })
    }

    fn size(&mut self) -> u64 {
        if let [(size, _)] = self.sizes[..] {
            return size;
        }
        let mut at = self.rng.random_range(0..self.weights);
        for &(size, weight) in &self.sizes {
            if at < weight {
                return size;
            }
            at -= weight;
        }
        unreachable!("the weights add up")
    }

    /// Fits a record of another device into this region: larger offsets wrap around.
    fn fit(&self, record: Record) -> Request {
        let (first, bytes) = self.region;
        let length = record.length.min(bytes);
        let room = bytes - length;
        let offset = if record.offset <= room {
            record.offset
        } else {
            record.offset % (room + 1) / 512 * 512
        };
        Request {
            kind: record.kind,
            offset: first + offset,
            length,
            fua: false,
        }
    }

    /// Nanoseconds from one arrival to the next; `None` if arrivals do not follow a rate.
    fn gap_ns(&mut self) -> Option<u64> {
        let seconds = match &self.arrivals {
            Arrivals::Poisson { per_second } => {
                // 53 random bits in (0, 1].
                let bits = (self.rng.random::<u64>() >> 11) + 1;
                let share = to_f64(bits) / to_f64(1 << 53);
                -libm::log(share) / per_second
            }
            Arrivals::Regular { per_second } => 1.0 / per_second,
            Arrivals::Closed { .. } | Arrivals::Recorded(_) | Arrivals::Replayed { .. } => {
                return None;
            }
        };
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "the cast saturates, and gaps are positive"
        )]
        let gap = (seconds * 1e9 + 0.5) as u64;
        Some(gap)
    }

    /// When the next record is due, relative to the first one.
    fn recorded_at(&self) -> Option<u64> {
        match &self.arrivals {
            Arrivals::Recorded(records) => {
                let begin = records.first()?.at_ns;
                let next = records.get(self.next_record)?;
                Some(next.at_ns.saturating_sub(begin))
            }
            _ => None,
        }
    }

    /// Number of clients and their think time, if requests come when others have ended.
    const fn clients(&self) -> Option<(u32, u64)> {
        match &self.arrivals {
            Arrivals::Closed { clients, think_ns } => Some((*clients, *think_ns)),
            Arrivals::Replayed { clients, .. } => Some((*clients, 0)),
            Arrivals::Poisson { .. } | Arrivals::Regular { .. } | Arrivals::Recorded(_) => None,
        }
    }
}

#[cfg(test)]
mod tests;
