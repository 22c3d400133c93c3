//! Where requests go.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::LoadError;
use super::zipf::Zipf;

/// Which places of the region a load touches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Access {
    /// All places are equally likely.
    Uniform,
    /// Streams: each goes through its own part of the region, and then again from the beginning of the part. All parts
    /// have the same size. Client c follows stream c mod streams.
    Sequential {
        /// How many.
        streams: u32,
    },
    /// A share of the accesses goes to a share of the region, its first part: 80 and 20 for "80/20".
    Hot {
        /// Share of the accesses in percent.
        accesses_percent: u32,
        /// Share of the region in percent.
        space_percent: u32,
    },
    /// The k-th most popular place gets requests in proportion to k^-exponent; popular places are scattered.
    Zipf {
        /// More than 0; 0.99 is common for stores of keys and values.
        exponent: f64,
    },
}

/// The state of an access pattern.
#[derive(Clone, Debug)]
pub(super) struct Places {
    access: Access,
    bytes: u64,
    align: u64,
    zipf: Option<Zipf>,
    /// Next byte of each stream.
    streams: Vec<u64>,
}

impl Places {
    pub(super) fn new(access: Access, bytes: u64, align: u64) -> Result<Self, LoadError> {
        let places = bytes / align;
        let mut zipf = None;
        let mut streams = Vec::new();
        match access {
            Access::Uniform => {}
            Access::Sequential { streams: 0 } => {
                return Err(LoadError::Zero {
                    what: "the number of streams",
                });
            }
            Access::Sequential { streams: count } => {
                let part = places / u64::from(count) * align;
                streams = (0..u64::from(count)).map(|stream| stream * part).collect();
            }
            Access::Hot {
                accesses_percent,
                space_percent,
            } => {
                for (what, given) in [
                    ("the share of the accesses", accesses_percent),
                    ("the share of the space", space_percent),
                ] {
                    if given > 100 {
                        return Err(LoadError::Percent { what, given });
                    }
                }
            }
            Access::Zipf { exponent } => {
                if !(exponent.is_finite() && exponent > 0.0) {
                    return Err(LoadError::Zero {
                        what: "Zipf's exponent",
                    });
                }
                zipf = Some(Zipf::new(places, exponent));
            }
        }
        Ok(Self {
            access,
            bytes,
            align,
            zipf,
            streams,
        })
    }

    /// Offset in the region of the next request, of `length` bytes, of a client.
    pub(super) fn next(&mut self, rng: &mut ChaCha8Rng, client: u32, length: u64) -> u64 {
        // The last place where the request still fits.
        let last = (self.bytes - length) / self.align;
        match self.access {
            Access::Uniform => rng.random_range(0..=last) * self.align,
            Access::Hot {
                accesses_percent,
                space_percent,
            } => {
                let hot = (last + 1) * u64::from(space_percent) / 100;
                let in_hot = rng.random_range(0..100) < accesses_percent;
                let range = if (in_hot && hot > 0) || hot > last {
                    0..hot.max(1)
                } else {
                    hot..last + 1
                };
                rng.random_range(range) * self.align
            }
            Access::Zipf { .. } => {
                let zipf = self.zipf.as_ref().expect("made with the pattern");
                zipf.place(rng).min(last) * self.align
            }
            Access::Sequential { streams } => {
                let index = client % streams;
                let part = self.bytes / self.align / u64::from(streams) * self.align;
                let begin = u64::from(index) * part;
                let next = &mut self.streams[index as usize];
                if *next + length > begin + part.max(length) || *next + length > self.bytes {
                    *next = begin.min(last * self.align);
                }
                let at = *next;
                *next += length;
                at
            }
        }
    }
}
