//! The types that every other crate uses: addresses, requests, outcomes, time, memory, and the one trait for drives
//! below and volumes above.
//!
//! This crate decides nothing. It has no I/O, no clock and no policy; it only defines what the other crates exchange.

mod checksum;
mod closest;
mod device;
mod hint;
mod memory;
mod random;
mod time;
mod units;

pub use checksum::crc32c;
pub use closest::closest;
pub use device::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Fault, Limits, Outcome, Permission, Request,
    RequestKind, Submission, Usage, push_extent,
};
pub use hint::{Full, Hint};
pub use memory::{Memory, PAGE_BYTES, Region};
pub use random::{SplitMix64, mix};
pub use time::Instant;
pub use units::{ByteSize, ParseByteSizeError, Seat};

/// Bytes of one block, the unit of checksums and of volumes. Smaller requests are served by
/// read-modify-write of whole blocks.
pub const BLOCK_BYTES: u64 = 4096;
