//! A modelled drive: blocks, a volatile cache, a pace, and faults.
//!
//! ```text
//!   write ─► cache (in order) ── flush ─► medium          reads see the cache
//!                 │
//!                 └── power cut: any subset, each write whole or torn ─► medium
//! ```

mod cache;
mod compress;
mod discard;
mod fault;

use std::collections::BTreeMap;
use std::time::Duration;

use array::IoKind;
use array::format::DriveMap;
use block::{BLOCK_BYTES, Fault, Instant};

use self::cache::Cache;
pub use self::cache::Survival;
use self::compress::Budget;
pub(crate) use self::discard::rubbish;
pub(crate) use self::fault::Effect;
use self::fault::Faults;
pub use self::fault::{Counted, DriveFault, Pieces, Region, Regions, Trigger};
use crate::content::{BLOCK, Block};
use crate::image::Image;

/// The timing of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// No time except what the world adds: a null disk in the sense of queueing.
    Null,
    /// One first-come first-served server: size / bandwidth + 1 / iops.
    Server {
        /// Bytes per second.
        bytes_per_second: u64,
        /// Time per operation.
        per_operation: Duration,
    },
}

/// A drive. Cheap to clone: copies share what neither of them changes.
#[derive(Clone, Debug)]
pub struct Drive {
    size_bytes: u64,
    /// False for a drive that stores nothing (studies of timing).
    stores: bool,
    /// Content of the medium.
    durable: Image,
    /// Content that reads return.
    current: Image,
    cache: Cache,
    pace: Pace,
    busy_until: Instant,
    /// No operation ends before this time.
    stalled_until: Instant,
    faults: Faults,
    /// Blocks that cannot be read until they are written again.
    bad: Vec<u64>,
    map: Option<DriveMap>,
    /// The drive has a label of the pool.
    pub(crate) takes_part: bool,
    /// Physical space, if the drive compresses.
    budget: Option<Budget>,
    reads: u64,
    writes: u64,
    written_bytes: u64,
    flushes: u64,
    discards: u64,
    /// Discarded bytes, by region.
    discarded: BTreeMap<Region, u64>,
}

/// How a drive treats an operation, decided when the operation is submitted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    /// What becomes of the operation.
    pub(crate) effect: Effect,
    /// For a flush: the writes that it covers.
    pub(crate) mark: u64,
    /// True if the end of the operation is held back.
    pub(crate) hangs: bool,
    /// How many times as long the operation takes.
    pub(crate) slow: u32,
}

impl Drive {
    /// A drive of zeros.
    #[must_use]
    pub fn new(size_bytes: u64, pace: Pace) -> Self {
        Self {
            size_bytes,
            stores: true,
            durable: Image::default(),
            current: Image::without_digest(),
            cache: Cache::default(),
            pace,
            busy_until: Instant::ZERO,
            stalled_until: Instant::ZERO,
            faults: Faults::default(),
            bad: Vec::new(),
            map: None,
            takes_part: false,
            budget: None,
            reads: 0,
            writes: 0,
            written_bytes: 0,
            flushes: 0,
            discards: 0,
            discarded: BTreeMap::new(),
        }
    }

    /// A fresh drive of the same kind.
    pub(crate) fn another(&self) -> Self {
        let mut drive = Self::new(self.size_bytes, self.pace);
        drive.stores = self.stores;
        drive.map = self.map;
        drive = drive.with_physical(self.physical_bytes());
        if !self.durable.keeps_digest() {
            drive.forgo_digest();
        }
        drive
    }

    /// A null disk: accepts any bytes and stores none.
    #[must_use]
    pub fn null(size_bytes: u64, pace: Pace) -> Self {
        let mut drive = Self::new(size_bytes, pace);
        drive.stores = false;
        drive
    }

    /// Sets the regions of the drive, for faults that name one.
    #[must_use]
    pub const fn with_map(mut self, map: DriveMap) -> Self {
        self.map = Some(map);
        self
    }

    /// Its size.
    #[must_use]
    pub const fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// The regions of the drive, if they are set.
    #[must_use]
    pub const fn map(&self) -> Option<&DriveMap> {
        self.map.as_ref()
    }

    /// Operations done: reads and writes.
    #[must_use]
    pub const fn operations(&self) -> (u64, u64) {
        (self.reads, self.writes)
    }

    /// Operations handed over in all: reads, writes, flushes and discards.
    #[must_use]
    pub const fn admitted(&self) -> u64 {
        self.reads + self.writes + self.flushes + self.discards
    }

    /// Bytes written since the drive was created.
    #[must_use]
    pub const fn written_bytes(&self) -> u64 {
        self.written_bytes
    }

    /// A hash of the content of the medium.
    #[must_use]
    pub const fn digest(&self) -> u64 {
        self.durable.digest()
    }

    /// Stops updating the hash.
    pub(crate) const fn forgo_digest(&mut self) {
        self.durable.forgo_digest();
    }

    // --- faults ------------------------------------------------------------------------------

    /// From now on every operation fails with [`Fault::Gone`].
    pub const fn pull(&mut self) {
        self.faults.gone = true;
        self.faults.others += 1;
    }

    /// Connects a drive again that was gone or returned errors only: nothing on it has changed, and its cache is kept.
    pub const fn reconnect(&mut self) {
        self.faults.gone = false;
        self.faults.broken = false;
    }

    /// A drive that left for a while is there again: nothing that was planned goes wrong any more, and nothing is lost.
    pub fn come_back(&mut self) {
        self.stop_faults();
        self.reconnect();
    }

    /// Plugs the drive in again. The content stays. With `survival` the drive had lost power: this decides about its
    /// un-flushed writes.
    pub(crate) fn plug_in(&mut self, survival: Option<&mut dyn FnMut(u32) -> Survival>) {
        self.faults.gone = false;
        if let Some(survival) = survival {
            self.cut(|_, sectors| survival(sectors));
        }
    }

    /// True if the drive has been pulled.
    #[must_use]
    pub const fn is_gone(&self) -> bool {
        self.faults.gone
    }

    /// Plans a fault.
    pub fn inject(&mut self, trigger: Trigger, fault: DriveFault) {
        self.faults.add(trigger, fault);
    }

    /// Cancels all planned faults; a drive that is broken stays broken.
    pub fn stop_faults(&mut self) {
        self.faults.stop();
    }

    /// True if a planned fault has not happened yet.
    #[must_use]
    pub const fn has_planned_faults(&self) -> bool {
        self.faults.is_waiting()
    }

    /// Planned faults that have happened.
    #[must_use]
    pub const fn faults_happened(&self) -> u64 {
        self.faults.happened
    }

    /// True if a planned fault has made the drive refuse writes for lack of space, for a while or for good.
    pub(crate) const fn has_been_full(&self) -> bool {
        self.faults.fulls > 0
    }

    /// True if the drive has had no other faults than a lack of space.
    pub(crate) const fn has_only_been_full(&self) -> bool {
        self.faults.fulls > 0 && self.faults.others == 0
    }

    /// Counts a fault that was not planned as a fault of an operation.
    pub(crate) const fn note_fault(&mut self) {
        self.faults.others += 1;
        self.faults.happened += 1;
    }

    /// True if every operation fails.
    #[must_use]
    pub const fn is_broken(&self) -> bool {
        self.faults.broken
    }

    /// True if operations of the drive take longer than they should.
    #[must_use]
    pub const fn is_slow(&self) -> bool {
        self.faults.slow.is_some()
    }

    /// True if there are blocks that cannot be read.
    #[must_use]
    pub const fn has_bad_blocks(&self) -> bool {
        !self.bad.is_empty()
    }

    /// The drive is not full any more.
    pub(crate) fn is_given_space(&mut self) {
        self.faults.full = false;
        self.faults.space_is_freed();
    }

    /// Ends the states full, hanging, stalled and slow, and carries out flushes again.
    pub const fn recover(&mut self) {
        self.stalled_until = Instant::ZERO;
        self.faults.stall = None;
        self.faults.full = false;
        self.faults.lies = false;
        self.faults.hanging = false;
        self.faults.slow = None;
    }

    /// The drive is as good as new, and keeps its content: the fault was in the cable.
    pub(crate) fn mend(&mut self) {
        self.stop_faults();
        self.recover();
        self.faults.gone = false;
        self.faults.broken = false;
    }

    /// The block that holds `offset` cannot be read until it is written.
    pub fn spoil(&mut self, offset: u64) {
        self.bad.push(offset / BLOCK_BYTES);
    }

    /// Changes a bit of the block that holds `offset`, on the medium.
    pub fn flip(&mut self, offset: u64, bit: u32) {
        let at = offset / BLOCK_BYTES;
        for image in [&mut self.durable, &mut self.current] {
            let damaged = image.get(at).flipped(bit);
            image.set(at, damaged);
        }
        self.count_again();
    }

    /// Counts an operation that is submitted, and decides what becomes of the operation.
    pub(crate) fn admit(&mut self, kind: IoKind, offset: u64) -> Admitted {
        match kind {
            IoKind::Read => self.reads += 1,
            IoKind::Write | IoKind::WriteZeroes => self.writes += 1,
            IoKind::Flush => self.flushes += 1,
            IoKind::Discard => self.discards += 1,
        }
        let mut admitted = Admitted {
            effect: Effect::Done,
            mark: self.cache.mark(),
            hangs: false,
            slow: self.faults.slow.unwrap_or(1),
        };
        if self.faults.is_waiting() {
            let triggered = self.faults.triggered(kind, offset, self.map.as_ref());
            for fault in triggered {
                self.begin_fault(fault, offset, &mut admitted);
            }
        }
        admitted.hangs |= self.faults.hanging;
        if self.faults.broken {
            admitted.effect = Effect::Fail(Fault::Medium);
        }
        if self.faults.full && matches!(kind, IoKind::Write | IoKind::WriteZeroes) {
            admitted.effect = Effect::Fail(Fault::Full);
        }
        if self.faults.lies && kind == IoKind::Flush {
            admitted.effect = Effect::Dropped;
        }
        admitted
    }

    fn begin_fault(&mut self, fault: DriveFault, offset: u64, admitted: &mut Admitted) {
        match fault {
            DriveFault::Full { .. } => self.faults.fulls += 1,
            _ => self.faults.others += 1,
        }
        match fault {
            DriveFault::Gone => self.faults.gone = true,
            DriveFault::Eio { for_good } => {
                self.faults.broken |= for_good;
                admitted.effect = Effect::Fail(Fault::Medium);
            }
            DriveFault::Hang { for_good } => {
                self.faults.hanging |= for_good;
                admitted.hangs = true;
            }
            DriveFault::Stall { millis } => {
                self.faults.stall = Some(Duration::from_millis(millis.into()));
            }
            DriveFault::Slow { factor } => {
                self.faults.slow = Some(factor);
                admitted.slow = factor;
            }
            DriveFault::Lse => self.spoil(offset),
            DriveFault::Flip { bit } => self.flip(offset, bit),
            DriveFault::Dropped => admitted.effect = Effect::Dropped,
            DriveFault::Stray { blocks } => admitted.effect = Effect::Stray(blocks),
            DriveFault::Shorn(pieces) => admitted.effect = Effect::Shorn(pieces),
            DriveFault::WrongRead { blocks } => admitted.effect = Effect::WrongRead(blocks),
            DriveFault::Full { for_good } => {
                self.faults.full |= for_good;
                admitted.effect = Effect::Fail(Fault::Full);
            }
            DriveFault::IgnoreFlush => self.faults.lies = true,
        }
    }

    // --- time --------------------------------------------------------------------------------

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

    /// The clock of the next world begins at zero, which is `now` of the world that ends. The drive's remaining work
    /// takes as long as it would have.
    pub(crate) fn begin_clock_at(&mut self, now: Instant) {
        for time in [&mut self.busy_until, &mut self.stalled_until] {
            *time = Instant(time.0.saturating_sub(now.0));
        }
    }

    /// When the end of an operation that is handed over at `now` and done at `at` is reported.
    pub(crate) fn answer_at(&mut self, now: Instant, at: Instant) -> Instant {
        if let Some(stall) = self.faults.stall.take() {
            self.stalled_until = now + stall;
        }
        at.max(self.stalled_until)
    }

    // --- blocks ------------------------------------------------------------------------------

    /// Hands every block of a range to `take`, in order.
    pub(crate) fn read_blocks(
        &self,
        (offset, length): (u64, u64),
        effect: Effect,
        mut take: impl FnMut(usize, &Block),
    ) -> Result<(), Fault> {
        self.check(offset, length)?;
        let (first, count) = (offset / BLOCK_BYTES, length / BLOCK_BYTES);
        let from = match effect {
            Effect::Fail(fault) => return Err(fault),
            Effect::WrongRead(blocks) => self.moved(first, count, blocks),
            Effect::Done | Effect::Dropped | Effect::Stray(_) | Effect::Shorn(_) => first,
        };
        if !self.bad.is_empty()
            && self
                .bad
                .iter()
                .any(|bad| (first..first + count).contains(bad))
        {
            return Err(Fault::Medium);
        }
        if self.stores {
            for (index, at) in (from..from + count).enumerate() {
                take(index, self.current.get(at));
            }
        }
        Ok(())
    }

    /// Writes `blocks` into the cache. `sequence` is the write's place among all writes.
    pub(crate) fn write_blocks(
        &mut self,
        (offset, length): (u64, u64),
        effect: Effect,
        sequence: u64,
        blocks: impl Iterator<Item = Block>,
    ) -> Result<(), Fault> {
        self.check(offset, length)?;
        self.written_bytes += length;
        let count = length / BLOCK_BYTES;
        let mut first = offset / BLOCK_BYTES;
        let mut pieces = None;
        match effect {
            Effect::Done | Effect::WrongRead(_) => {}
            Effect::Fail(fault) => return Err(fault),
            Effect::Dropped => return Ok(()),
            Effect::Stray(blocks) => first = self.moved(first, count, blocks),
            Effect::Shorn(kept) => pieces = Some(kept),
        }
        let mut blocks = blocks;
        let mut counted = Vec::new();
        if self.budget.is_some() {
            counted.extend(&mut blocks);
            self.take_space(first, &counted)?;
        }
        let blocks = counted.into_iter().chain(blocks);
        if !self.bad.is_empty() {
            self.bad.retain(|bad| !(first..first + count).contains(bad));
        }
        if !self.stores {
            return Ok(());
        }
        let current = &mut self.current;
        let written = (first..)
            .zip(blocks)
            .enumerate()
            .map(|(index, (at, block))| {
                let mut now = block;
                if let Some(pieces) = pieces {
                    let mut torn = current.get(at).clone();
                    torn.splice(&now, pieces.mask(index));
                    now = torn;
                }
                current.set(at, now.clone());
                now
            });
        self.cache.push(sequence, first, written);
        if pieces.is_some() {
            self.count_again();
        }
        Ok(())
    }

    /// The place that a stray write or read of `count` blocks at `first` goes to: inside the drive, and not `first`.
    fn moved(&self, first: u64, count: u64, by: i32) -> u64 {
        let blocks = self.size_bytes / BLOCK_BYTES - count;
        let to = first.saturating_add_signed(i64::from(by)).min(blocks);
        if to == first {
            first.saturating_sub(1)
        } else {
            to
        }
    }

    /// A flush that began at `mark` ends.
    pub(crate) fn flush_to(&mut self, mark: u64, effect: Effect) -> Result<(), Fault> {
        if self.faults.gone {
            return Err(Fault::Gone);
        }
        match effect {
            Effect::Fail(fault) => Err(fault),
            Effect::Dropped => Ok(()),
            Effect::Done | Effect::Stray(_) | Effect::Shorn(_) | Effect::WrongRead(_) => {
                self.cache.flush(mark, &mut self.durable);
                Ok(())
            }
        }
    }

    /// Writes that a power cut would decide about: place among all writes, and sectors.
    pub(crate) fn cached_writes(&self) -> impl Iterator<Item = (u64, u32)> + '_ {
        self.cache.writes()
    }

    /// Cuts the power: flushed writes stay, and `decide` decides about the others. It gets each write's place among all
    /// writes and its sectors, oldest first.
    pub(crate) fn cut(&mut self, decide: impl FnMut(u64, u32) -> Survival) {
        self.cache.cut(&mut self.durable, decide);
        self.current = self.durable.clone();
        self.current.forgo_digest();
        self.count_again();
        self.busy_until = Instant::ZERO;
        self.stalled_until = Instant::ZERO;
        self.faults.hanging = false;
    }

    /// Silently sets some regions back to their content in `then`, the same drive at an earlier moment.
    ///
    /// # Panics
    /// When the regions of the drive are not set.
    pub fn set_back(&mut self, then: &Self, regions: Regions) {
        self.cut(|_, _| Survival::Kept);
        let map = self.map.expect("drives of pools know their regions");
        let end = self.size_bytes / BLOCK_BYTES;
        for region in regions.iter() {
            let range = region.range(&map);
            for at in range.start / BLOCK_BYTES..(range.end / BLOCK_BYTES).min(end) {
                let block = then.current.get(at);
                if self.current.get(at) != block {
                    self.durable.set(at, block.clone());
                    self.current.set(at, block.clone());
                }
            }
        }
        self.count_again();
        self.note_fault();
    }

    /// A block as it is on the medium or in the cache, even if it cannot be read.
    pub(crate) fn block(&self, at: u64) -> &Block {
        self.current.get(at)
    }

    // --- bytes -------------------------------------------------------------------------------

    /// Reads into `bytes`.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled, [`Fault::Medium`] on a spoiled block.
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> Result<(), Fault> {
        let admitted = self.admit(IoKind::Read, offset);
        if admitted.hangs {
            return Err(Fault::Medium);
        }
        self.read_blocks(
            (offset, bytes.len() as u64),
            admitted.effect,
            |index, block| {
                block.copy_to(&mut bytes[index * BLOCK..(index + 1) * BLOCK]);
            },
        )
    }

    /// As [`Drive::read`], but only up to the last block of the range that is not zero.
    ///
    /// # Errors
    /// As [`Drive::read`].
    pub fn read_used(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let first = offset / BLOCK_BYTES;
        let used = self.current.used(first, first + length / BLOCK_BYTES);
        let mut bytes = vec![0; usize::try_from(used * BLOCK_BYTES).expect("fits into memory")];
        self.read(offset, &mut bytes).map(|()| bytes)
    }

    /// Writes `bytes` into the cache.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Fault> {
        let admitted = self.admit(IoKind::Write, offset);
        let blocks = bytes.chunks(BLOCK).map(Block::from_bytes);
        self.write_blocks((offset, bytes.len() as u64), admitted.effect, 0, blocks)
    }

    /// Makes a range read as zeros.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn zero(&mut self, offset: u64, length: u64) -> Result<(), Fault> {
        let admitted = self.admit(IoKind::WriteZeroes, offset);
        let blocks = (0..length / BLOCK_BYTES).map(|_| Block::ZERO);
        self.write_blocks((offset, length), admitted.effect, 0, blocks)
    }

    /// Makes everything written before durable.
    ///
    /// # Errors
    /// [`Fault::Gone`] when pulled.
    pub fn flush(&mut self) -> Result<(), Fault> {
        let admitted = self.admit(IoKind::Flush, 0);
        self.flush_to(admitted.mark, admitted.effect)
    }

    /// Checks the range of an operation: the array must submit whole blocks inside the drive.
    fn check(&self, offset: u64, length: u64) -> Result<(), Fault> {
        if self.faults.gone {
            return Err(Fault::Gone);
        }
        let end = offset.checked_add(length).ok_or(Fault::Invalid)?;
        let aligned = offset.is_multiple_of(BLOCK_BYTES) && end.is_multiple_of(BLOCK_BYTES);
        assert!(
            aligned,
            "the array asks for whole blocks: {offset} +{length}"
        );
        assert!(
            end <= self.size_bytes,
            "the array stays inside its drives: {offset} +{length}"
        );
        Ok(())
    }
}

#[cfg(test)]
mod tests;
