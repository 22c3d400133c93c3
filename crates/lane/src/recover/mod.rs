//! Recovery: reads the journal when a pool is opened.
//!
//! ```text
//!   Anchors ─► Headers ─► Columns ─► Checking ─► (Reconstructing ─► Checking) ─► (Restoring) ─► (Deriving) ─► Headers …
//!                 └─ nothing there: the log's end ─► Comparing (`compare.rs`) ─► Covering ─► Anchoring ─► Flushing ─► (end)
//! ```
//!
//! All changes, by the methods of [`Recovery`] that make them, each with the reading of the next header where that follows
//! at once:
//!
//! ```text
//! anchors ── begin ──► anchoring
//! anchors ── begin ──► over
//! anchors ── computed ──► headers
//! anchors ── computed ──► over
//! headers ── computed ──► columns
//! headers ── computed ──► checking
//! headers ── computed ──► comparing
//! headers ── computed ──► over
//! columns ── read ──► checking
//! checking ── computed ──► reconstructing
//! checking ── computed ──► restoring
//! checking ── computed ──► deriving
//! checking ── computed ──► headers
//! checking ── computed ──► comparing
//! checking ── computed ──► over
//! reconstructing ── computed ──► checking
//! restoring ── computed ──► deriving
//! restoring ── computed ──► headers
//! restoring ── computed ──► over
//! restoring ── written ──► deriving
//! restoring ── written ──► headers
//! restoring ── written ──► comparing
//! restoring ── written ──► over
//! restoring ── judged ──► deriving
//! restoring ── judged ──► headers
//! restoring ── judged ──► comparing
//! restoring ── judged ──► over
//! deriving ── computed ──► headers
//! deriving ── computed ──► comparing
//! deriving ── computed ──► over
//! comparing ── computed ──► headers
//! comparing ── computed ──► over
//! comparing ── repaired ──► covering
//! comparing ── repaired ──► over
//! covering ── flushed ──► anchoring
//! covering ── flushed ──► over
//! anchoring ── anchor_submitted ──► over
//! anchoring ── written ──► flushing
//! anchoring ── judged ──► flushing
//! flushing ── flushed ──► over
//! ```
//!
//! To headers: a batch counts, or headers behind one that is not whole are read for proof, or the log is read again and ends
//! earlier. To comparing: the log ends here. To over from a phase that reads: too many drives are away, or a batch that was
//! flushed is lost. Columns without any drive are checked at once, and restored without a write.
//!
//! The blocks of the batches found are put into the overlay as if they had just been logged, so there is nothing else
//! to replay. On the drives only this changes: the anchor, torn stripes (`compare.rs`), and batches that are not whole
//! on the drives that are there. Such batches are written again in their places, so that they survive as many losses
//! from now on as others do.
//!
//! [`Recovery`] runs before everything else of the lane. It returns its next step ([`Next`]), and ends with the place
//! where the log goes on ([`Recovered`]).
//!
//! Invariants:
//! - A batch counts only if all batches before it count.
//! - The anchor is written when all batches that count by it are durable, and nothing is logged before the anchor is
//!   durable.

mod columns;
mod compare;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use block::{BLOCK_BYTES, Fault, Outcome, PAGE_BYTES, Seat};
use format::seeded::{self, SeededFault};
use format::{Anchor, BatchHeader, BlockName, Generation, RING_HEAD_BYTES, Sequence};
use plan::ScratchId;
use plan::action::{Action, BufferId, Compute, Computed, Event, IoKind, Origin, Service, Slice};

use self::columns::Found;
use self::compare::Comparison;
use super::context::Context;
use super::io::{FaultReport, IoTable};
use super::log::{BatchBuffer, ColumnCodes, HEADER_BLOCKS_MAX, Recovered};
use super::op::Op;
use super::overlay::Overlay;
use super::purpose::{Computing, Purpose};
use super::ring::Ring;
use super::writes::Writes;

#[derive(Clone, Debug)]
enum Phase {
    Anchors,
    /// The headers at `at` are being read, in search of `seek`.
    Headers {
        at: u64,
        seek: Seek,
    },
    Columns(Found),
    Checking(Found),
    Reconstructing(Found),
    Restoring(Found),
    /// Parity that the batch leaves out is being computed.
    Deriving(Found),
    /// Blocks that are in place by the log are being compared, and repaired.
    Comparing(Comparison),
    /// The blocks of the batches found are being flushed.
    Covering,
    Anchoring,
    Flushing,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seek {
    /// The next batch.
    Next,
    /// The same batch of a later incarnation, at the start of the ring.
    Later,
    /// Proof that the batch that cannot be reconstructed had been flushed.
    Proof,
}

/// What the lane passes to each step of a recovery.
pub(super) struct Lent<'a> {
    pub(super) cx: &'a mut Context,
    pub(super) ios: &'a mut IoTable,
    /// Gets the blocks of the batches found.
    pub(super) overlay: &'a mut Overlay,
}

/// What a recovery does next.
#[derive(Clone, Debug)]
pub(super) enum Next {
    /// Wait until something in flight has ended.
    Wait,
    /// The newest anchor has this number; then [`Recovery::read_next`].
    Anchored(u64),
    /// A batch counts: its blocks are to be entered into the overlay; then [`Recovery::read_next`].
    Found(BatchHeader, BatchBuffer),
    /// None of the batches found counts any more: the overlay is empty; then [`Recovery::read_next`].
    ReadAgain,
    /// These operations repair torn stripes; then [`Recovery::repaired`] for each that has ended, and once when all
    /// have begun.
    Repair(Vec<Op>),
    /// The batches found are to be flushed on all drives; then [`Recovery::flushed`].
    Cover,
    /// The log goes on from here, and its anchor is to be laid out; then [`Recovery::anchor_submitted`].
    Anchor(Recovered),
    /// The anchor is to be flushed; then [`Recovery::flushed`].
    Flush,
    /// The end: this many batches were found and are durable, or the recovery has failed.
    End(Result<u64, Fault>),
}

/// A recovery under way.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    phase: Phase,
    incarnation: Generation,
    anchor: Anchor,
    /// The batches found, by place.
    ring: Ring,
    codes: ColumnCodes,
    /// Reads in flight.
    in_flight: u64,
    /// Memory of the reads. `reads` has the slice of each read by its index, without those that failed.
    scratch: Option<ScratchId>,
    reads: BTreeMap<usize, Slice>,
    /// The seats of reads from all drives, by index.
    seats: Vec<Seat>,
    writes: Writes,
    /// Columns are being written again.
    restoring: bool,
    expected: Sequence,
    /// A batch of an earlier incarnation, and its position. A later incarnation may have left this batch out of the
    /// log.
    candidate: Option<(BatchHeader, u64)>,
    batches: u64,
    /// By some header, batches up to this one are flushed.
    flushed: Sequence,
    /// The log ends before this batch, even if later ones are found.
    limit: Option<Sequence>,
    /// How often the blocks in place have been compared.
    comparisons: u32,
    /// Blocks that repairs needed and found damaged or unreadable.
    bad: BTreeSet<BlockName>,
    /// Drives that have no part of the log: they were out before the pool was opened.
    gone: Vec<Seat>,
    /// Drives that are out, and whose part of the log is read.
    sources: Vec<Seat>,
    /// Drives that have failed a read since the last batch was found, with the last fault of each.
    failed: BTreeMap<Seat, Fault>,
}

impl Recovery {
    /// A recovery of a lane with a ring of `ring_bytes`.
    pub(super) fn new(
        ring_bytes: u64,
        incarnation: Generation,
        (gone, sources): (Vec<Seat>, Vec<Seat>),
    ) -> Self {
        Self {
            phase: Phase::Anchors,
            incarnation,
            anchor: Anchor {
                first: Sequence(1),
                ..Anchor::default()
            },
            ring: Ring::new((ring_bytes - RING_HEAD_BYTES) / BLOCK_BYTES),
            codes: ColumnCodes::default(),
            in_flight: 0,
            scratch: None,
            reads: BTreeMap::new(),
            seats: Vec::new(),
            writes: Writes::default(),
            restoring: false,
            expected: Sequence(1),
            candidate: None,
            batches: 0,
            flushed: Sequence(0),
            limit: None,
            comparisons: 0,
            bad: BTreeSet::new(),
            gone,
            sources,
            failed: BTreeMap::new(),
        }
    }

    /// Begins. `fresh`: nothing was ever logged.
    pub(super) fn begin(&mut self, lent: &mut Lent<'_>, fresh: bool) -> Next {
        if fresh {
            return self.write_anchor();
        }
        let head = lent.cx.ring_offset(0) - RING_HEAD_BYTES;
        self.read_everywhere(lent, head, RING_HEAD_BYTES)
    }

    /// The drives that are read: those in use, and those that are out but have a part of the log.
    fn readable_seats(&self, lent: &Lent<'_>) -> Vec<Seat> {
        let mut seats = lent.cx.live_seats();
        seats.extend(
            self.sources
                .iter()
                .filter(|&&seat| lent.cx.view().is_out(seat)),
        );
        seats.sort_unstable();
        seats
    }

    /// Reads a range of every drive that may have a part of the log.
    fn read_everywhere(&mut self, lent: &mut Lent<'_>, offset: u64, length: u64) -> Next {
        let seats = self.readable_seats(lent);
        let scratch = lent.cx.fresh_scratch();
        let bytes = seats.len() as u64 * length;
        if seats.is_empty() {
            return self.end(lent, Err(Fault::Lost));
        }
        lent.cx.actions.push_back(Action::Allocate(scratch, bytes));
        self.scratch = Some(scratch);
        self.reads.clear();
        self.in_flight = seats.len() as u64;
        self.seats.clone_from(&seats);
        for (index, seat) in seats.into_iter().enumerate() {
            let slice = Slice {
                buffer: BufferId::Scratch(scratch),
                offset: index as u64 * length,
                length,
            };
            self.reads.insert(index, slice);
            lent.read((seat, offset), index, slice);
        }
        Next::Wait
    }

    /// A read has ended.
    pub(super) fn read(
        &mut self,
        lent: &mut Lent<'_>,
        (seat, offset): (Seat, u64),
        index: usize,
        outcome: Outcome,
    ) -> Next {
        if let Err(fault) = outcome {
            if !lent.cx.view().is_out(seat) {
                let report = FaultReport::of_read(seat, offset, fault);
                lent.ios.report_fault(lent.cx, report);
            }
            self.failed.insert(seat, fault);
        }
        if let Phase::Comparing(comparison) = &mut self.phase {
            comparison.read(lent.cx, index, outcome);
            return Next::Wait;
        }
        self.in_flight -= 1;
        if outcome.is_err() {
            self.reads.remove(&index);
            if let Phase::Columns(found) = &mut self.phase {
                found.missing.insert(index);
            }
        }
        if self.in_flight > 0 {
            return Next::Wait;
        }
        if matches!(self.phase, Phase::Columns(_)) {
            return self.columns_read(lent);
        }
        let takes = self.reads.values().copied().collect();
        lent.compute(Compute {
            takes,
            ..Compute::default()
        })
    }

    /// A computation has ended.
    pub(super) fn computed(&mut self, lent: &mut Lent<'_>, computed: &Computed) -> Next {
        if matches!(self.phase, Phase::Comparing(_)) {
            return self.round_summed(lent, &computed.sums);
        }
        self.release_scratch(lent);
        match std::mem::replace(&mut self.phase, Phase::Anchors) {
            Phase::Anchors => self.anchors_read(lent, &computed.bytes),
            Phase::Headers { at, seek } => self.headers_read(lent, at, seek, &computed.bytes),
            Phase::Checking(found) => self.columns_checked(lent, found, &computed.sums),
            Phase::Reconstructing(found) => self.check(lent, found),
            Phase::Restoring(found) => self.write_columns(lent, found),
            Phase::Deriving(found) => self.derived(lent, found, &computed.sums),
            other => unreachable!("nothing is computed in {other:?}"),
        }
    }

    fn anchors_read(&mut self, lent: &mut Lent<'_>, copies: &[Vec<u8>]) -> Next {
        let pool = lent.cx.geometry.regions().expect("a journal").pool;
        let newest_of = |bytes: &Vec<u8>| {
            let anchors = bytes.chunks(PAGE_BYTES);
            let anchors = anchors.filter_map(|block| Anchor::parse(pool, lent.cx.lane, block));
            anchors.max_by_key(|anchor| anchor.number)
        };
        let of_drives: Vec<Option<Anchor>> = copies.iter().map(newest_of).collect();
        let newest = of_drives.iter().flatten().copied();
        let Some(anchor) = newest.max_by_key(|anchor| anchor.number) else {
            // None of the drives has an anchor: the beginning of the log is not known.
            return self.end(lent, Err(Fault::Lost));
        };
        self.compare_anchors(lent.cx, anchor.number, &of_drives);
        self.anchor = anchor;
        self.go_to_anchor();
        Next::Anchored(anchor.number)
    }

    /// Every anchor is flushed on all drives before the next one is written. So a drive whose anchor lags by more than
    /// one, and whose home cells count, was set back or has lost writes.
    fn compare_anchors(&self, cx: &mut Context, newest: u64, of_drives: &[Option<Anchor>]) {
        for (&index, anchor) in self.reads.keys().zip(of_drives) {
            let seat = self.seats[index];
            if let &Some(Anchor { number: anchor, .. }) = anchor
                && anchor + 1 < newest
                && cx.view().is_complete(seat)
            {
                cx.events.push_back(Event::DriveOld {
                    seat,
                    anchor,
                    newest,
                });
            }
        }
    }

    /// No batch is found yet, and the first one is where the anchor points.
    fn go_to_anchor(&mut self) {
        self.ring = Ring::new(self.ring.blocks());
        self.ring.begin_at(self.anchor.position);
        self.expected = self.anchor.first;
        self.batches = 0;
        self.failed.clear();
        // The recovery before this one has repaired and flushed all that it found.
        self.flushed = self.anchor.inherited;
    }

    /// Reads the header of the next batch.
    pub(super) fn read_next(&mut self, lent: &mut Lent<'_>) -> Next {
        self.read_headers(lent, self.ring.head(), Seek::Next)
    }

    fn read_headers(&mut self, lent: &mut Lent<'_>, at: u64, seek: Seek) -> Next {
        if seek == Seek::Next && self.limit == Some(self.expected) {
            return self.end_of_log(lent);
        }
        let left = self.ring.blocks().saturating_sub(at);
        let blocks = left.min(HEADER_BLOCKS_MAX);
        self.phase = Phase::Headers { at, seek };
        if blocks == 0 {
            return self.headers_read(lent, at, seek, &[]);
        }
        let offset = lent.cx.ring_offset(at);
        self.read_everywhere(lent, offset, blocks * BLOCK_BYTES)
    }

    fn headers_read(
        &mut self,
        lent: &mut Lent<'_>,
        at: u64,
        seek: Seek,
        copies: &[Vec<u8>],
    ) -> Next {
        let pool = lent.cx.geometry.regions().expect("a journal").pool;
        let (expected, anchor) = (self.expected, self.anchor);
        let parse = |bytes: &Vec<u8>| BatchHeader::parse(pool, lent.cx.lane, bytes);
        let seats = self.reads.keys().map(|&index| self.seats[index]);
        let headers = { seats.zip(copies) }
            .filter_map(|(seat, bytes)| Some((seat, parse(bytes)?)))
            .filter(|(_, header)| {
                header.sequence <= anchor.inherited
                    || header.incarnation >= anchor.incarnation
                    || seeded::is(SeededFault::AnyIncarnation)
            });
        if seek == Seek::Proof {
            let flushed = headers
                .filter(|(_, header)| header.sequence > expected)
                .any(|(_, header)| header.flushed >= expected);
            return match flushed {
                true => {
                    let fault = self.undecided(lent).unwrap_or(Fault::Lost);
                    self.end(lent, Err(fault))
                }
                false => self.end_of_log(lent),
            };
        }
        // A drive may have written a column at a wrong place, over a batch that counts. Such a column would be restored to
        // the other drives there. The log has written a batch only where its ring had room for it.
        let belongs = |header: &BatchHeader| self.ring.place(header.length()) == Some(at);
        let found = headers.filter(|(_, header)| header.sequence == expected && belongs(header));
        let found = newest_header(found).map(|header| (header, at));
        if seek == Seek::Later {
            let earlier = self.candidate.take();
            let incarnation = |found: &(BatchHeader, u64)| found.0.incarnation;
            // No two of them are of one incarnation.
            let latest = [found, earlier].into_iter().flatten();
            let (header, at) = latest.max_by_key(incarnation).expect("there was one");
            return self.read_columns(lent, header, at);
        }
        match found {
            Some(found) if at != 0 && found.0.incarnation < anchor.incarnation => {
                // If several incarnations have written this batch, all but the last were left out of the log, and the
                // last one may not have had room here.
                self.candidate = Some(found);
                self.read_headers(lent, 0, Seek::Later)
            }
            Some((header, at)) => self.read_columns(lent, header, at),
            None if at != 0 => self.read_headers(lent, 0, Seek::Next),
            None => self.end_of_log(lent),
        }
    }

    /// No batch follows.
    fn end_of_log(&mut self, lent: &mut Lent<'_>) -> Next {
        match self.undecided(lent) {
            Some(fault) => self.end(lent, Err(fault)),
            None => self.compare_in_place(lent),
        }
    }

    /// If more drives of the log are away than a batch survives, the drives that are there cannot tell where the log
    /// ends: a batch that was flushed may be on the others alone. Returns the fault with which the recovery ends then.
    /// It can begin again when the drives are back.
    fn undecided(&self, lent: &Lent<'_>) -> Option<Fault> {
        let drives = (0..lent.cx.geometry.layout().drives()).map(Seat);
        let away = drives.filter(|seat| {
            let is_out = lent.cx.view().is_out(*seat) && !self.sources.contains(seat);
            let vacant = lent.cx.geometry.layout().vacant().contains(seat);
            !vacant && !self.gone.contains(seat) && (is_out || self.failed.contains_key(seat))
        });
        let survives = usize::from(lent.cx.geometry.code().tolerance());
        let decided = away.count() <= survives || seeded::is(SeededFault::LogCutShort);
        (!decided).then(|| {
            self.failed
                .values()
                .next_back()
                .copied()
                .unwrap_or(Fault::Gone)
        })
    }

    /// The batches found may be in drives' caches only. They count by the anchor, so the anchor must not become durable
    /// before they are.
    fn cover(&mut self) -> Next {
        self.phase = Phase::Covering;
        Next::Cover
    }

    /// From here on this incarnation writes to the log.
    fn write_anchor(&mut self) -> Next {
        self.phase = Phase::Anchoring;
        let next = match seeded::is(SeededFault::SequencesAnew) {
            true => Sequence(1),
            false => self.expected,
        };
        Next::Anchor(Recovered {
            ring: std::mem::take(&mut self.ring),
            incarnation: self.incarnation,
            first: self.anchor.first,
            next,
        })
    }

    /// The anchor is being written to `drives` drives.
    pub(super) fn anchor_submitted(
        &mut self,
        lent: &mut Lent<'_>,
        scratch: ScratchId,
        drives: usize,
    ) -> Next {
        self.scratch = Some(scratch);
        for _ in 0..drives {
            self.writes.begin();
        }
        match drives {
            0 => self.end(lent, Err(Fault::Lost)),
            _ => Next::Wait,
        }
    }

    /// A drive has written a column again, or the anchor, or has failed to. `out`: the drive is out.
    pub(super) fn written(
        &mut self,
        lent: &mut Lent<'_>,
        seat: Seat,
        outcome: Outcome,
        out: bool,
    ) -> Next {
        self.writes.ended(seat, outcome, out);
        self.writes_ended(lent)
    }

    /// The pool has decided about a drive.
    pub(super) fn judged(&mut self, lent: &mut Lent<'_>, seat: Seat, out: bool) -> Next {
        self.writes.decided(seat, out);
        self.writes_ended(lent)
    }

    fn writes_ended(&mut self, lent: &mut Lent<'_>) -> Next {
        if !self.writes.is_done() {
            return Next::Wait;
        }
        if self.restoring {
            return self.columns_written(lent);
        }
        if !matches!(self.phase, Phase::Anchoring) || self.scratch.is_none() {
            return Next::Wait;
        }
        self.phase = Phase::Flushing;
        self.release_scratch(lent);
        Next::Flush
    }

    /// The flush of the batches found has ended, or that of the anchor. If it has failed, no anchor may make these
    /// batches count, and the recovery has failed.
    pub(super) fn flushed(&mut self, lent: &mut Lent<'_>, outcome: Outcome) -> Next {
        match (outcome, &self.phase) {
            (Err(fault), _) => self.end(lent, Err(fault)),
            (Ok(()), Phase::Covering) => self.write_anchor(),
            (Ok(()), _) => self.end(lent, Ok(self.batches)),
        }
    }

    fn end(&mut self, lent: &mut Lent<'_>, ended: Result<u64, Fault>) -> Next {
        self.release_scratch(lent);
        Next::End(ended)
    }

    fn release_scratch(&mut self, lent: &mut Lent<'_>) {
        if let Some(scratch) = self.scratch.take() {
            lent.ios.release(lent.cx, scratch);
        }
    }
}

/// The header of the newest incarnation. A batch that was relocated (`log/relocate.rs`) has two, which differ in their
/// drives: this is the one of which more drives have a column.
fn newest_header(headers: impl Iterator<Item = (Seat, BatchHeader)>) -> Option<BatchHeader> {
    let mut found: Vec<(BatchHeader, usize)> = Vec::new();
    for (seat, header) in headers {
        let named = usize::from(header.seats.contains(&seat));
        match found.iter_mut().find(|(other, _)| *other == header) {
            Some((_, count)) => *count += named,
            None => found.push((header, named)),
        }
    }
    let newest = { found.into_iter() }.max_by_key(|(header, there)| (header.incarnation, *there));
    newest.map(|(header, _)| header)
}

impl Lent<'_> {
    /// Reads the whole of a slice. `index`: its number among the reads.
    fn read(&mut self, place: (Seat, u64), index: usize, slice: Slice) {
        let seat = place.0;
        let purpose = Purpose::Recovery { seat, index };
        let service = Service::prompt(Origin::Rebuild);
        { &mut *self.ios }.submit_slice(self.cx, purpose, service, IoKind::Read, place, slice);
    }

    /// Submits a computation; its end goes to [`Recovery::computed`].
    fn compute(&mut self, work: Compute) -> Next {
        self.cx.push_compute(Computing::Recovery, work);
        Next::Wait
    }
}
