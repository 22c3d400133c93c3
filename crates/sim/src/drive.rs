//! A modelled drive.

use std::collections::BTreeMap;
use std::time::Duration;

use block::{BLOCK_BYTES, Fault, Instant};

const BLOCK: usize = 4096;
const _: () = assert!(BLOCK as u64 == BLOCK_BYTES);

/// How long a drive takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No time at all but what the world adds: a null disk in the sense of queueing.
    Null,
    /// One first-come first-served server: size / bandwidth + 1 / iops.
    Server {
        /// Bytes per second.
        bytes_per_second: u64,
        /// Time per operation.
        per_operation: Duration,
    },
}

/// A drive: sparse bytes, a pace, and whether it answers.
#[derive(Clone, Debug)]
pub struct Drive {
    size_bytes: u64,
    /// Blocks that are not all zero; `None` for a drive that stores nothing (studies of timing).
    blocks: Option<BTreeMap<u64, Box<[u8; BLOCK]>>>,
    pace: Pace,
    busy_until: Instant,
    gone: bool,
    /// Blocks that cannot be read until they are written again.
    bad: Vec<u64>,
    reads: u64,
    writes: u64,
}

impl Drive {
    /// A drive of zeros.
    #[must_use]
    pub const fn new(size_bytes: u64, pace: Pace) -> Self {
        Self {
            size_bytes,
            blocks: Some(BTreeMap::new()),
            pace,
            busy_until: Instant::ZERO,
            gone: false,
            bad: Vec::new(),
            reads: 0,
            writes: 0,
        }
    }

    /// A null disk: takes any bytes and keeps none.
    #[must_use]
    pub fn null(size_bytes: u64, pace: Pace) -> Self {
        let mut drive = Self::new(size_bytes, pace);
        drive.blocks = None;
        drive
    }

    /// Its size.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// Operations done: reads and writes.
    #[must_use]
    pub const fn operations(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }

    /// From now on nothing is answered but with [`Fault::Gone`].
    pub const fn pull(&mut self) {
        self.gone = true;
    }

    /// Whether it has been pulled.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.gone
    }

    /// The block that holds `offset` cannot be read until it is written.
    pub fn spoil(&mut self, offset: u64) {
        self.bad.push(offset / BLOCK_BYTES);
    }

    /// When an operation that is handed over at `now` is done.
    pub fn serve(&mut self, now: Instant, bytes: u64) -> Instant {
        if let Pace::Server {
            bytes_per_second,
            per_operation,
        } = self.pace
        {
            let begin = now.max(self.busy_until);
            let moving = u128::from(bytes) * 1_000_000_000 / u128::from(bytes_per_second);
            let moving = u64::try_from(moving).unwrap_or(u64::MAX);
            self.busy_until = begin + Duration::from_nanos(moving) + per_operation;
            return self.busy_until;
        }
        now
    }

    /// Reads into `bytes`.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled, [`Fault::Medium`] on a spoiled block.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        self.check(offset, bytes.len())?;
        self.reads += 1;
        let Some(blocks) = &self.blocks else {
            return Ok(());
        };
        for (chunk, block) in bytes.chunks_mut(BLOCK).zip(offset / BLOCK_BYTES..) {
            if self.bad.contains(&block) {
                return Err(Fault::Medium);
            }
            match blocks.get(&block) {
                Some(stored) => chunk.copy_from_slice(&stored[..]),
                None => chunk.fill(0),
            }
        }
        Ok(())
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        self.check(offset, bytes.len())?;
        self.writes += 1;
        let Some(blocks) = &mut self.blocks else {
            return Ok(());
        };
        for (chunk, block) in bytes.chunks(BLOCK).zip(offset / BLOCK_BYTES..) {
            self.bad.retain(|&bad| bad != block);
            if chunk.iter().all(|&byte| byte == 0) {
                blocks.remove(&block);
            } else {
                let stored = blocks.entry(block).or_insert_with(|| Box::new([0; BLOCK]));
                stored.copy_from_slice(chunk);
            }
        }
        Ok(())
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        let bytes = usize::try_from(length).map_err(|_| Fault::Invalid)?;
        self.check(offset, bytes)?;
        self.writes += 1;
        let range = offset / BLOCK_BYTES..(offset + length) / BLOCK_BYTES;
        self.bad.retain(|bad| !range.contains(bad));
        if let Some(blocks) = &mut self.blocks {
            let keys: Vec<u64> = blocks.range(range).map(|(&block, _)| block).collect();
            for block in keys {
                blocks.remove(&block);
            }
        }
        Ok(())
    }

    /// Flushes: this drive has no volatile cache.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn flush(&self) -> Result<(), Fault> {
        if self.gone { Err(Fault::Gone) } else { Ok(()) }
    }

    /// Every request is answered, but only whole blocks inside the drive are good.
    fn check(&self, offset: u64, bytes: usize) -> Result<(), Fault> {
        if self.gone {
            return Err(Fault::Gone);
        }
        let end = offset.checked_add(bytes as u64).ok_or(Fault::Invalid)?;
        let aligned = offset.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
        assert!(
            aligned,
            "the array asks for whole blocks: {offset} +{bytes}"
        );
        assert!(
            end <= self.size_bytes,
            "the array stays inside its drives: {offset} +{bytes}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_server_takes_size_over_bandwidth_plus_time_per_operation() {
        let mut drive = Drive::null(
            1 << 20,
            Pace::Server {
                bytes_per_second: 1_000_000,
                per_operation: Duration::from_millis(2),
            },
        );
        // Two at once: the second waits for the first.
        assert_eq!(drive.serve(Instant(0), 8_000), Instant(10_000_000));
        assert_eq!(drive.serve(Instant(0), 8_000), Instant(20_000_000));
        // After a pause there is no burst.
        assert_eq!(drive.serve(Instant(90_000_000), 0), Instant(92_000_000));
    }

    #[test]
    fn a_spoiled_block_reads_again_once_written() {
        let mut drive = Drive::new(1 << 20, Pace::Null);
        let mut block = [1; BLOCK];
        drive.spoil(8192 + 17);
        assert_eq!(drive.read(8192, &mut block), Err(Fault::Medium));
        drive.write(8192, &[7; BLOCK]).unwrap();
        drive.read(8192, &mut block).unwrap();
        assert_eq!(block, [7; BLOCK]);
        drive.pull();
        assert_eq!(drive.flush(), Err(Fault::Gone));
    }
}
