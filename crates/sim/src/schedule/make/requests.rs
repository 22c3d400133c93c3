//! Requests of clients.

use rand::RngExt;

use super::Maker;
use crate::schedule::Event;

/// Shares of the kinds of requests, in sixteenths. Each seed draws its own mix: a pool that is mostly written reaches
/// other states than a pool that is mostly read, and an average mix reaches neither.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mix {
    reads: u32,
    writes: u32,
    zeros: u32,
}

/// The rest are flushes. Mixes with few writes are more frequent, because they are cheaper.
pub(super) const MIXES: [Mix; 16] = [
    Mix::new(14, 1, 0),
    Mix::new(14, 1, 0),
    Mix::new(14, 1, 0),
    Mix::new(13, 1, 1),
    Mix::new(13, 2, 0),
    Mix::new(13, 2, 0),
    Mix::new(13, 2, 0),
    Mix::new(13, 2, 0),
    Mix::new(13, 2, 1),
    Mix::new(12, 2, 1),
    Mix::new(12, 3, 0),
    Mix::new(12, 3, 1),
    Mix::new(11, 3, 1),
    Mix::new(10, 5, 0),
    Mix::new(8, 6, 1),
    Mix::new(1, 13, 1),
];

impl Mix {
    const fn new(reads: u32, writes: u32, zeros: u32) -> Self {
        Self {
            reads,
            writes,
            zeros,
        }
    }
}

/// Long sequential writes, as of a client that copies a file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Stream {
    /// Where the next write begins, in bytes.
    next: u64,
    /// Length of the last write.
    last_bytes: u64,
    /// Writes that are still to come.
    left: u32,
}

impl Maker {
    /// The next write of a stream, if one is under way or begins.
    fn stream(&mut self) -> Option<Event> {
        let mut stream = self.stream?;
        let blocks = self.volume_bytes / 4096;
        if stream.left == 0 {
            if self.rng.random_range(0..12) > 0 {
                return None;
            }
            stream = Stream {
                next: self.rng.random_range(0..blocks) * 4096,
                last_bytes: 0,
                left: self.rng.random_range(3..16),
            };
        }
        // Some writes overwrite the last write, which may still be in flight, or a part of it.
        let again = match self.rng.random_range(0..8) {
            0 => stream.last_bytes / 8192 * 4096,
            1 => stream.last_bytes,
            _ => 0,
        };
        let offset = stream.next - again;
        let length = 4096 * self.rng.random_range(2..16);
        let length = length.min(blocks * 4096 - offset);
        let end = offset + length;
        self.stream = Some(Stream {
            next: if end < blocks * 4096 { end } else { 0 },
            last_bytes: if end < blocks * 4096 { length } else { 0 },
            left: stream.left - 1,
        });
        Some(Event::Write {
            offset,
            length,
            fua: false,
        })
    }

    fn range(&mut self) -> (u64, u64) {
        let length = match self.rng.random_range(0..16) {
            0..9 => 4096,
            9..12 => 512 * self.rng.random_range(1..12),
            12..15 => 4096 * self.rng.random_range(1..5),
            // Some are long: whole stripes, several groups.
            _ if self.rng.random_range(0..6) > 0 => 4096 * self.rng.random_range(1..12),
            _ => 512 * self.rng.random_range(1..=256),
        };
        let length = length.min(self.volume_bytes);
        let unit = if length.is_multiple_of(4096) {
            4096
        } else {
            512
        };
        // Half of all requests go to a small part of the volume, where they conflict.
        let end = if self.rng.random_range(0..2) == 0 {
            self.volume_bytes.min(length + (64 << 10))
        } else {
            self.volume_bytes
        };
        let offset = self.rng.random_range(0..=(end - length) / unit) * unit;
        (offset, length)
    }

    pub(super) fn request(&mut self) -> Event {
        if let Some(next) = self.stream() {
            return next;
        }
        let (offset, length) = self.range();
        let turn = self.rng.random_range(0..16);
        let Mix {
            reads,
            writes,
            zeros,
        } = self.mix;
        if turn < reads {
            Event::Read { offset, length }
        } else if turn < reads + writes {
            Event::Write {
                offset,
                length,
                fua: self.rng.random_range(0..6) == 0,
            }
        } else if turn < reads + writes + zeros {
            Event::Zero {
                offset,
                length,
                trim: self.rng.random_range(0..2) == 0,
            }
        } else {
            Event::Flush
        }
    }
}
