//! One operation on one stripe (or a run of stripes) and what it is waiting for.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use block::{BLOCK_BYTES, Fault, Instant, Outcome, Seat};
use layout::Cell;

use super::arbitration::Arbitration;
use super::bounce::BounceBuffer;
use super::coalesce::Part;
use super::direct::Direct;
use super::discard::Discarded;
use super::epochs::Epoch;
use super::ids::{JobId, OpId};
use super::jobs::Held;
use super::known_losses::Assessed;
use super::rare::{Blank, Rare};
use crate::action::{ComputeStep, Origin, Service, Slice};
use crate::format::{BlockName, Entry};
use crate::geometry::Segment;
use crate::plan::{Piece, Plan, Source};
use crate::seeded::{self, Bug};
use crate::{BufferId, RequestId, ScratchId};

/// What an operation is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Request(RequestId),
    Job(JobId),
    /// A second read of what this operation reads, which is late.
    Hedge(OpId),
    /// Nothing waits for it: the lane repairs what it has found, logs preserved blocks again, discards.
    Background,
    /// Recovery has found the stripe torn.
    Recovery,
}

/// What an operation does.
#[derive(Clone, Debug)]
pub(super) enum Task {
    Read(Vec<Piece>),
    Write(Prepared),
    Fill {
        column: u16,
        target: Cell,
        avoid: Vec<u16>,
        /// What the target has already.
        held: Option<Arc<Held>>,
    },
    Zero,
    Resync,
    Scrub,
    /// Blocks (element, first byte in it) to be reconstructed and written again.
    Heal(Vec<(usize, u64)>),
    /// Blocks that are logged and cannot be put in place, to be logged again.
    Relog(Vec<BlockName>),
    /// What holds nothing that counts is discarded on its drives.
    Discard(Discarded),
}

impl Task {
    /// What the cell that it fills has already.
    pub(super) fn held(&self) -> Option<&Held> {
        match self {
            Self::Fill { held, .. } => held.as_deref(),
            _ => None,
        }
    }
}

/// Where an operation stands. Transitions are in `step.rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// In line for its stripes.
    Locking,
    /// The pages that tell about its blocks are being read.
    Fetching,
    /// So many reads are in flight. `failed`: some of what was planned cannot be had.
    Reading { in_flight: u64, failed: bool },
    /// What it has read is compared with its checksums.
    Verifying,
    /// Its computation is in flight.
    Computing,
    /// It waits for a free stripe.
    Waiting,
    /// What it writes in place waits for the other stripes of its turn.
    Gathering,
    /// So many of its units are on their way to the journal.
    Logging { units: u64 },
    /// So many writes are in flight. The pool decides about drives that have failed one: with the last write and the last verdict
    /// all are written.
    Writing {
        in_flight: u64,
        failed: BTreeMap<Seat, Fault>,
    },
    /// Drives discard what it is about.
    Discarding,
}

/// Whose locks of its stripes an operation has, or is in line for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lock {
    /// It has none.
    None,
    /// Its own.
    Own,
    /// Those of its reader: nothing else can have them meanwhile.
    Borrowed,
}

/// Which stripe a write goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Destination {
    /// The one that holds its data, or a free one if it may go there.
    Open,
    /// A free one, in place of this one.
    Free { from: u64 },
    /// The one that holds its data.
    Home,
}

/// What an operation does about drives that are late.
#[derive(Clone, Debug, Default)]
pub(super) struct Detour {
    /// Blocks that are read only if they must be, for their drive is late.
    pub(super) avoid: BTreeSet<(u16, u64)>,
    /// It waits for late drives: there is no way around them.
    pub(super) waits: bool,
    pub(super) hedge: Hedge,
}

/// What has been done about a late read, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Hedge {
    #[default]
    None,
    /// This second read is under way.
    Running(OpId),
    /// The second read has ended, or the operation was planned again around what is late.
    Over,
}

/// Whether the pool decides about a drive that has failed a write. A full drive is not a broken one: the request fails, the drive
/// stays.
pub(super) fn waits_for_verdict(fault: Fault) -> bool {
    fault != Fault::Full
}

#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) owner: Owner,
    /// What it writes for whom, if it writes for several requests: the owner is the first of them.
    pub(super) parts: Option<Box<[Part]>>,
    /// What its drive operations are for.
    pub(super) service: Service,
    pub(super) group: u64,
    /// Of one for a client: the first stripe of the group's data that it is about.
    pub(super) data: Option<u64>,
    /// The stripes that it is planned for and locks. Of one for a client those that hold its data, once it is `located`.
    pub(super) stripes: Range<u64>,
    /// The version of the maps by which it knows where its data is.
    pub(super) located: Option<u64>,
    pub(super) destination: Destination,
    /// Writes that follow it wait for their neighbours as long as it runs.
    pub(super) occupies: bool,
    pub(super) task: Task,
    pub(super) phase: Phase,
    /// When it got in line.
    pub(super) begun: Instant,
    pub(super) lock: Lock,
    pub(super) plan: Option<Plan>,
    pub(super) scratch: Option<ScratchId>,
    /// Blocks (column, block of its cell) that could not be read or were wrong: planned around.
    pub(super) bad: BTreeSet<(u16, u64)>,
    pub(super) detour: Detour,
    /// Nobody needs it any more.
    pub(super) orphan: bool,
    /// Blocks of which nothing was known, though their column is there.
    pub(super) unknown: BTreeSet<(u16, u64)>,
    /// The search for stale blocks among those that it reads.
    pub(super) arbitration: Rare<Arbitration>,
    /// What its plan reconstructs has been compared with its entries.
    pub(super) checked: bool,
    /// What a heal is for, and what it finds.
    pub(super) repair: Rare<Repair>,
    /// Blocks that were compared with their checksums.
    pub(super) verified: u64,
    /// Batches whose memory its plan uses.
    pub(super) pinned: Vec<u64>,
    /// Bytes to lay into memory before its computation.
    pub(super) puts: Vec<(Slice, Arc<[u8]>)>,
    /// Its blocks go in place before they are logged.
    pub(super) direct: Option<Box<Direct>>,
    /// How often reads that failed have been tried again.
    pub(super) retries: u8,
    /// The worst that a read of it was told.
    pub(super) read_fault: Option<Fault>,
    /// Set when the operation cannot succeed any more.
    pub(super) fault: Option<Fault>,
    /// Where its bytes go instead, for a read whose own memory a straggler may write.
    pub(super) bounce_buffer: Option<BounceBuffer>,
    /// The epoch in which it was last planned.
    pub(super) epoch: Option<Epoch>,
}

impl Op {
    pub(super) fn new(owner: Owner, group: u64, stripes: Range<u64>, task: Task) -> Self {
        Self {
            service: Service::of(owner, &task),
            owner,
            parts: None,
            group,
            data: None,
            stripes,
            located: None,
            destination: Destination::Open,
            occupies: false,
            task,
            phase: Phase::Locking,
            begun: Instant::ZERO,
            lock: Lock::None,
            plan: None,
            scratch: None,
            bad: BTreeSet::new(),
            detour: Detour::default(),
            orphan: false,
            unknown: BTreeSet::new(),
            arbitration: Rare::BLANK,
            checked: false,
            repair: Rare::BLANK,
            verified: 0,
            pinned: Vec::new(),
            puts: Vec::new(),
            direct: None,
            retries: 0,
            read_fault: None,
            fault: None,
            bounce_buffer: None,
            epoch: None,
        }
    }

    pub(super) fn is_locked(&self) -> bool {
        self.lock != Lock::None
    }

    /// The stripe in whose place it writes a free one.
    pub(super) const fn moves_from(&self) -> Option<u64> {
        match self.destination {
            Destination::Free { from } => Some(from),
            Destination::Open | Destination::Home => None,
        }
    }

    /// So many reads have been asked for.
    pub(super) fn begin_reads(&mut self, in_flight: u64) {
        self.phase = Phase::Reading {
            in_flight,
            failed: false,
        };
    }

    /// So many writes have been asked for.
    pub(super) fn begin_writes(&mut self, in_flight: u64) {
        self.phase = Phase::Writing {
            in_flight,
            failed: BTreeMap::new(),
        };
    }

    pub(super) const fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    /// Whether drives still have something of its own to do.
    pub(super) const fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::Reading { in_flight, .. } | Phase::Writing { in_flight, .. } if in_flight > 0)
    }

    /// One of its units is logged, or will not be; true if it was the last.
    pub(super) fn unit_ended(&mut self, outcome: Outcome) -> bool {
        let Phase::Logging { units } = &mut self.phase else {
            unreachable!("it waits for its units");
        };
        *units -= 1;
        self.fault = self.fault.or(outcome.err());
        *units == 0
    }

    /// A write has ended; true if all have, and the pool has decided about drives that have failed one. `out`: the drive is, so
    /// that it does not matter how.
    pub(super) fn write_ended(&mut self, seat: Seat, outcome: Outcome, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            unreachable!("its writes are in flight");
        };
        match outcome {
            Err(fault) if !out && waits_for_verdict(fault) => {
                failed.insert(seat, fault);
            }
            Err(fault) if !out => self.fault = Some(fault),
            Ok(()) | Err(_) => {}
        }
        *in_flight -= 1;
        *in_flight == 0 && failed.is_empty()
    }

    /// Whether a drive has failed a write of it, and the pool has not decided about that.
    pub(super) fn awaits_verdict(&self, seat: Seat) -> bool {
        matches!(&self.phase, Phase::Writing { failed, .. } if failed.contains_key(&seat))
    }

    /// The pool has decided about a drive; true if all that it writes has ended with that. `out`: what the drive has failed does
    /// not count.
    pub(super) fn judged(&mut self, seat: Seat, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            return false;
        };
        let Some(fault) = failed.remove(&seat) else {
            return false;
        };
        if !out {
            self.fault = self.fault.or(Some(fault));
        }
        *in_flight == 0 && failed.is_empty()
    }

    /// Its stripes are stripes of the group's data.
    pub(super) const fn of_data(mut self) -> Self {
        self.data = Some(self.stripes.start);
        self
    }

    /// The stripes of the group's data that it is about.
    pub(super) fn data_stripes(&self) -> Option<Range<u64>> {
        let count = self.stripes.end - self.stripes.start;
        self.data.map(|first| first..first + count)
    }

    /// One that reconstructs blocks (element, first byte in it) of a stripe and writes them again.
    pub(super) fn repair(owner: Owner, group: u64, stripe: u64, blocks: Vec<(usize, u64)>) -> Self {
        Self::new(owner, group, stripe..stripe + 1, Task::Heal(blocks))
    }
}

impl Service {
    fn of(owner: Owner, task: &Task) -> Self {
        match (owner, task) {
            (Owner::Request(_) | Owner::Hedge(_), _) => Self::prompt(Origin::Client),
            (_, Task::Scrub) => Self::bulk(Origin::Scrub),
            (_, Task::Discard(_)) => Self::bulk(Origin::Checkpoint),
            (Owner::Job(_), _) => Self::bulk(Origin::Rebuild),
            (Owner::Background | Owner::Recovery, _) => Self::prompt(Origin::Scrub),
        }
    }
}

/// What a heal is for, and what it finds.
#[derive(Clone, Debug, Default)]
pub(super) struct Repair {
    /// What of its rows is lost, by its plan.
    pub(super) assessed: Assessed,
    /// What was known of its blocks when they were found bad.
    pub(super) entries: BTreeMap<(usize, u64), Entry>,
    /// The scrub that waits for it.
    pub(super) scrub: Option<JobId>,
}

impl Blank for Repair {
    fn blank() -> &'static Self {
        static BLANK: Repair = Repair {
            assessed: Assessed::new(),
            entries: BTreeMap::new(),
            scrub: None,
        };
        &BLANK
    }
}

/// A write whose bytes are (or will be) whole blocks.
///
/// Blocks that a request covers only in part, and all blocks of a write of zeros, are put together
/// in staging memory: the old block is read there and the new bytes laid over it.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    /// Whole blocks to write.
    pub(super) sources: Vec<Source>,
    /// Old blocks to read into staging memory first.
    pub(super) reads: Vec<Piece>,
    /// New bytes to lay over them.
    pub(super) overlay: Vec<ComputeStep>,
    pub(super) staging: Staging,
}

/// Memory in which blocks are put together, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Staging {
    /// All blocks are there.
    Unneeded,
    /// It has a name.
    Named(ScratchId, u64),
    /// The driver has provided it. Old blocks are read, and new bytes laid over them.
    Provided(ScratchId, u64),
    /// It holds the blocks.
    Filled(ScratchId, u64),
}

impl Staging {
    /// The memory that the driver has provided.
    pub(super) const fn memory(self) -> Option<ScratchId> {
        match self {
            Self::Unneeded | Self::Named(..) => None,
            Self::Provided(memory, _) | Self::Filled(memory, _) => Some(memory),
        }
    }
}

impl Prepared {
    /// A write of the request's bytes (`Some(request)`) or of zeros (`None`) to `segments`.
    /// `staging` is a fresh name; it is used only if needed.
    pub(super) fn new(
        segments: &[Segment],
        request: Option<RequestId>,
        staging: ScratchId,
    ) -> Self {
        let mut prepared = Self::of(Vec::new());
        let mut bytes = 0;
        for segment in segments {
            let low = segment.low / BLOCK_BYTES * BLOCK_BYTES;
            let high = segment.high.next_multiple_of(BLOCK_BYTES);
            let new_bytes = |low: u64, high: u64| {
                request.map(|id| Slice {
                    buffer: BufferId::Request(id),
                    offset: segment.buffer_offset + (low - segment.low),
                    length: high - low,
                })
            };
            let mut inner_low = segment.low.next_multiple_of(BLOCK_BYTES);
            let mut inner_high = segment.high / BLOCK_BYTES * BLOCK_BYTES;
            if inner_low >= inner_high || request.is_none() {
                // No whole block of the request's own bytes: all goes through staging memory.
                (inner_low, inner_high) = (high, high);
            }
            if inner_low < inner_high {
                prepared
                    .sources
                    .extend(new_bytes(inner_low, inner_high).map(|slice| Source {
                        slot: segment.slot,
                        low: inner_low,
                        slice,
                    }));
            }
            for (low, high) in [(low, inner_low), (inner_high, high)] {
                if low == high {
                    continue;
                }
                let staged = Slice {
                    buffer: BufferId::Scratch(staging),
                    offset: bytes,
                    length: high - low,
                };
                bytes += high - low;
                prepared.stage(segment, low, staged, new_bytes);
            }
        }
        if bytes > 0 {
            prepared.staging = Staging::Named(staging, bytes);
        }
        prepared
    }

    /// A write of whole blocks that are all there.
    pub(super) const fn of(sources: Vec<Source>) -> Self {
        Self {
            sources,
            reads: Vec::new(),
            overlay: Vec::new(),
            staging: Staging::Unneeded,
        }
    }

    /// Whether its blocks are there. If not they are put together first.
    pub(super) const fn is_staged(&self) -> bool {
        matches!(self.staging, Staging::Unneeded | Staging::Filled(..))
    }

    /// The staging memory that the driver is to provide now, and its size, if it has not yet.
    pub(super) const fn provide(&mut self) -> Option<(ScratchId, u64)> {
        let Staging::Named(memory, bytes) = self.staging else {
            return None;
        };
        self.staging = Staging::Provided(memory, bytes);
        Some((memory, bytes))
    }

    /// The blocks have been put together.
    pub(super) const fn filled(&mut self) {
        if let Staging::Provided(memory, bytes) = self.staging {
            self.staging = Staging::Filled(memory, bytes);
        }
    }

    /// Adds blocks from `low` on that are put together in `staged`.
    fn stage(
        &mut self,
        segment: &Segment,
        low: u64,
        staged: Slice,
        new_bytes: impl Fn(u64, u64) -> Option<Slice>,
    ) {
        let high = low + staged.length;
        let (new_low, new_high) = (segment.low.max(low), segment.high.min(high));
        self.sources.push(Source {
            slot: segment.slot,
            low,
            slice: staged,
        });
        self.overlay.push(ComputeStep {
            target: staged.part(new_low - low, new_high - new_low),
            accumulate: false,
            terms: new_bytes(new_low, new_high)
                .map(|slice| (slice, 1))
                .into_iter()
                .collect(),
        });
        // The first and the last block are read if they keep some old bytes.
        let first = (new_low > low).then_some(low);
        let last = (new_high < high).then_some(high - BLOCK_BYTES);
        let second = last.filter(|&last| first != Some(last));
        let first = first.filter(|_| !seeded::is(Bug::PartialKeepsScratch));
        for block in first.into_iter().chain(second) {
            self.reads.push(Piece {
                slot: segment.slot,
                low: block,
                slice: staged.part(block - low, BLOCK_BYTES),
            });
        }
    }

    /// Puts the staging memory elsewhere. It holds nothing yet.
    pub(super) fn move_staging(&mut self, (old, new): (ScratchId, ScratchId), bytes: u64) {
        let moved = |slice: &mut Slice| {
            if slice.buffer == BufferId::Scratch(old) {
                slice.buffer = BufferId::Scratch(new);
            }
        };
        for source in &mut self.sources {
            moved(&mut source.slice);
        }
        for piece in &mut self.reads {
            moved(&mut piece.slice);
        }
        for step in &mut self.overlay {
            moved(&mut step.target);
        }
        self.staging = Staging::Named(new, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: Seat = Seat(1);
    const SECOND: Seat = Seat(2);

    /// An operation that has asked for so many writes.
    fn writing(writes: u64) -> Op {
        let mut op = Op::new(Owner::Background, 0, 0..1, Task::Resync);
        op.begin_writes(writes);
        op
    }

    #[test]
    fn it_has_written_with_its_last_write() {
        let mut op = writing(2);
        assert!(!op.write_ended(FIRST, Ok(()), false));
        assert!(op.is_in_flight());
        assert!(op.write_ended(SECOND, Ok(()), false));
        assert!(!op.is_in_flight() && op.fault.is_none());
    }

    #[test]
    fn a_drive_that_fails_a_write_is_judged_first() {
        let mut op = writing(1);
        assert!(!op.write_ended(FIRST, Err(Fault::Medium), false));
        assert!(op.awaits_verdict(FIRST) && !op.awaits_verdict(SECOND));
        assert!(!op.judged(SECOND, true), "another drive");
        assert!(op.judged(FIRST, true));
        assert_eq!(
            op.fault, None,
            "what a drive failed that is out does not count"
        );
    }

    #[test]
    fn a_drive_that_stays_fails_what_it_has_refused() {
        let mut op = writing(1);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Medium));
    }

    #[test]
    fn the_fault_that_is_decided_first_is_the_operations() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.write_ended(SECOND, Err(Fault::Gone), false));
        assert!(!op.judged(SECOND, false));
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Gone));
    }

    #[test]
    fn a_verdict_before_the_last_write_ends_nothing() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.judged(FIRST, true), "a write is in flight");
        assert!(op.write_ended(SECOND, Ok(()), false));
    }

    #[test]
    fn a_full_drive_is_not_judged() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Full), false));
        assert_eq!(op.fault, Some(Fault::Full));
    }

    #[test]
    fn how_the_writes_of_a_drive_end_that_is_out_does_not_matter() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Gone), true));
        assert_eq!(op.fault, None);
    }

    /// A client's write of these bytes of the first chunk, or one of zeros.
    fn prepared(low: u64, high: u64, bytes: bool) -> Prepared {
        let segment = Segment {
            slot: 0,
            low,
            high,
            buffer_offset: 0,
        };
        Prepared::new(&[segment], bytes.then_some(RequestId(1)), ScratchId(9))
    }

    /// Old blocks that it reads: the first byte of each.
    fn reads(prepared: &Prepared) -> Vec<u64> {
        prepared.reads.iter().map(|piece| piece.low).collect()
    }

    #[test]
    fn whole_blocks_are_written_from_the_requests_memory() {
        let mut prepared = prepared(BLOCK_BYTES, 3 * BLOCK_BYTES, true);
        assert!(prepared.is_staged() && prepared.provide().is_none());
        assert_eq!(prepared.sources.len(), 1);
        assert_eq!(prepared.staging.memory(), None);
    }

    #[test]
    fn a_block_that_is_written_in_part_is_put_together_in_staging_memory() {
        let mut prepared = prepared(512, 3 * BLOCK_BYTES - 512, true);
        assert_eq!(reads(&prepared), [0, 2 * BLOCK_BYTES]);
        assert_eq!(prepared.sources.len(), 3, "the middle is the request's");
        assert!(!prepared.is_staged());
        assert_eq!(prepared.staging.memory(), None, "it has only a name");
        assert_eq!(prepared.provide(), Some((ScratchId(9), 2 * BLOCK_BYTES)));
        assert_eq!(prepared.provide(), None, "it is asked for once");
        assert_eq!(prepared.staging.memory(), Some(ScratchId(9)));
        prepared.filled();
        assert!(prepared.is_staged());
        assert_eq!(prepared.staging.memory(), Some(ScratchId(9)));
    }

    #[test]
    fn a_part_in_the_middle_of_a_block_reads_the_block_once() {
        let prepared = prepared(512, 1024, true);
        assert_eq!(reads(&prepared), [0]);
    }

    #[test]
    fn zeros_are_laid_into_staging_memory_and_need_no_old_blocks_if_they_are_whole() {
        let prepared = prepared(0, 2 * BLOCK_BYTES, false);
        assert!(!prepared.is_staged());
        assert!(reads(&prepared).is_empty());
        assert!(prepared.overlay.iter().all(|step| step.terms.is_empty()));
    }

    #[test]
    fn staging_memory_that_a_straggler_writes_is_asked_for_anew() {
        let mut prepared = prepared(512, 1024, true);
        prepared.provide();
        prepared.move_staging((ScratchId(9), ScratchId(10)), BLOCK_BYTES);
        assert_eq!(prepared.provide(), Some((ScratchId(10), BLOCK_BYTES)));
        let new = BufferId::Scratch(ScratchId(10));
        assert_eq!(prepared.reads[0].slice.buffer, new);
        assert_eq!(prepared.overlay[0].target.buffer, new);
        assert_eq!(prepared.sources[0].slice.buffer, new);
    }

    #[test]
    fn it_is_logged_with_its_last_unit_and_keeps_the_first_fault() {
        let mut op = writing(0);
        op.phase = Phase::Logging { units: 3 };
        assert!(!op.unit_ended(Err(Fault::Full)));
        assert!(!op.unit_ended(Err(Fault::Lost)));
        assert!(op.unit_ended(Ok(())));
        assert_eq!(op.fault, Some(Fault::Full));
    }
}
