//! Reading the journal when a pool is opened.
//!
//! ```text
//!   Anchors ─► Headers ─► Columns ─► Checking ─► (Mending ─► Checking) ─► (Restoring) ─► (Deriving) ─► Headers …
//!                 └─ nothing there: the log's end ─► Comparing (`compare.rs`) ─► Covering ─► Anchoring ─► Flushing ─► (end)
//! ```
//!
//! What is found is put into the overlay as if it had just been logged, so there is nothing else to
//! replay, and nothing on the drives changes but the anchor, and batches that are not whole on the
//! drives that live: these are written again where they are, so that they survive as many losses
//! from now on as others do.

mod compare;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use block::{BLOCK_BYTES, Fault, Outcome, PAGE_BYTES, Seat};
use erasure::ElementSet;

use self::compare::Comparison;
use crate::ScratchId;
use crate::action::{
    Action, BufferId, Compute, ComputeStep, Computed, Event, IoKind, Origin, Service, Slice,
};
use crate::format::{Anchor, BatchHeader, RING_HEAD_BYTES};
use crate::lane::flush::Waiter;
use crate::lane::io::FaultReport;
use crate::lane::log::{BatchBuffer, derived};
use crate::lane::ring::Placed;
use crate::lane::writes::Writes;
use crate::lane::{Computing, Lane, Purpose};
use crate::seeded::{self, Bug};

/// Blocks of a header at most: [`super::log`] writes none that is longer.
pub(super) const HEADER_BLOCKS_MAX: u64 = 4;

#[derive(Clone, Debug)]
enum Phase {
    Anchors,
    /// Headers at `at`; `seek` is what is looked for.
    Headers {
        at: u64,
        seek: Seek,
    },
    Columns(Found),
    Checking(Found),
    Mending(Found),
    Restoring(Found),
    /// Parity that the batch leaves out is computed.
    Deriving(Found),
    /// What the log says to be in place is looked at, and mended.
    Comparing(Comparison),
    /// What was found is flushed.
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
    /// Proof that the batch that cannot be put together had been flushed.
    Proof,
}

#[derive(Clone, Debug)]
struct Found {
    header: BatchHeader,
    position: u64,
    buffer: BatchBuffer,
    /// Columns whose drive did not answer.
    missing: BTreeSet<usize>,
    mended: bool,
    /// Every column that should be there is, header and all.
    whole: bool,
}

/// A recovery under way.
#[derive(Clone, Debug)]
pub(super) struct Recovery {
    phase: Phase,
    anchor: Anchor,
    /// Reads in flight.
    in_flight: u64,
    /// What was read where: buffer and seats in order, those that failed left out.
    scratch: Option<ScratchId>,
    reads: BTreeMap<usize, Slice>,
    /// Whose drives the indexes of what is read everywhere are.
    seats: Vec<Seat>,
    writes: Writes,
    /// Columns are being written again.
    restoring: bool,
    expected: u64,
    /// A batch of an earlier incarnation, and where it is: perhaps one that was left out.
    candidate: Option<(BatchHeader, u64)>,
    batches: u64,
    /// A header says that batches up to this one are flushed.
    flushed: u64,
    /// The log ends before this batch, whatever is there.
    limit: Option<u64>,
    /// How often what it says to be in place has been compared.
    comparisons: u32,
}

impl Lane {
    pub(super) fn begin_recovery(&mut self, incarnation: u64, fresh: bool) {
        let Some(store) = self.cx.geometry.store().copied() else {
            self.recovered(0, Ok(()));
            return;
        };
        let blocks = (store.ring_bytes - RING_HEAD_BYTES) / BLOCK_BYTES;
        self.log.begin_ring(blocks, incarnation);
        self.pages.begin_clock(incarnation);
        self.recovery = Some(Recovery {
            phase: Phase::Anchors,
            anchor: Anchor {
                first: 1,
                ..Anchor::default()
            },
            in_flight: 0,
            scratch: None,
            reads: BTreeMap::new(),
            seats: Vec::new(),
            writes: Writes::default(),
            restoring: false,
            expected: 1,
            candidate: None,
            batches: 0,
            flushed: 0,
            limit: None,
            comparisons: 0,
        });
        if fresh {
            self.write_first_anchor();
            return;
        }
        let ring = store.journal_offset + u64::from(self.cx.lane) * store.ring_bytes;
        self.read_everywhere(ring, RING_HEAD_BYTES);
    }

    fn recovery(&mut self) -> &mut Recovery {
        self.recovery.as_mut().expect("a recovery runs")
    }

    /// Reads a range of every drive that takes part.
    fn read_everywhere(&mut self, offset: u64, length: u64) {
        let seats = self.cx.live_seats();
        let scratch = self.cx.fresh_scratch();
        let bytes = seats.len() as u64 * length;
        if seats.is_empty() {
            self.recovered(0, Err(Fault::Lost));
            return;
        }
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        let recovery = self.recovery();
        recovery.scratch = Some(scratch);
        recovery.reads.clear();
        recovery.in_flight = seats.len() as u64;
        recovery.seats.clone_from(&seats);
        for (index, seat) in seats.into_iter().enumerate() {
            let slice = Slice {
                buffer: BufferId::Scratch(scratch),
                offset: index as u64 * length,
                length,
            };
            self.recovery().reads.insert(index, slice);
            self.ios.submit_slice(
                &mut self.cx,
                Purpose::Recovery { seat, index },
                Service::prompt(Origin::Rebuild),
                IoKind::Read,
                (seat, offset),
                slice,
            );
        }
    }

    /// A read of the recovery's has ended.
    pub(super) fn recovery_read(
        &mut self,
        (seat, offset): (Seat, u64),
        index: usize,
        outcome: Outcome,
    ) {
        if let (Err(fault), false) = (outcome, self.cx.view().is_out(seat)) {
            self.ios
                .report_fault(&mut self.cx, FaultReport::of_read(seat, offset, fault));
        }
        if matches!(self.recovery().phase, Phase::Comparing(_)) {
            self.compared_read(index, outcome);
            return;
        }
        let recovery = self.recovery();
        recovery.in_flight -= 1;
        if outcome.is_err() {
            recovery.reads.remove(&index);
            if let Phase::Columns(found) = &mut recovery.phase {
                found.missing.insert(index);
            }
        }
        if recovery.in_flight > 0 {
            return;
        }
        if let Phase::Columns(found) = &recovery.phase {
            let memory = BufferId::Scratch(found.buffer.scratch());
            if self.ios.stragglers().hold(memory) {
                // What is put together in this memory would not stay so.
                self.read_columns_again();
            } else {
                self.check_columns();
            }
            return;
        }
        let takes = recovery.reads.values().copied().collect();
        self.cx.push_compute(
            Computing::Recovery,
            Compute {
                takes,
                ..Compute::default()
            },
        );
    }

    /// A computation of the recovery's has ended.
    pub(super) fn recovery_computed(&mut self, computed: &Computed) {
        if matches!(self.recovery().phase, Phase::Comparing(_)) {
            self.round_summed(&computed.sums);
            return;
        }
        if let Some(scratch) = self.recovery().scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        match std::mem::replace(&mut self.recovery().phase, Phase::Anchors) {
            Phase::Anchors => self.anchors_read(&computed.bytes),
            Phase::Headers { at, seek } => self.headers_read(at, seek, &computed.bytes),
            Phase::Checking(found) => self.columns_checked(found, &computed.sums),
            Phase::Mending(found) => self.check(found),
            Phase::Restoring(found) => self.write_columns(found),
            Phase::Deriving(found) => self.derived(found, &computed.sums),
            other => unreachable!("nothing is computed in {other:?}"),
        }
    }

    fn anchors_read(&mut self, copies: &[Vec<u8>]) {
        let pool = self.cx.geometry.store().expect("a journal").pool;
        let newest_of = |bytes: &Vec<u8>| {
            let anchors = bytes.chunks(PAGE_BYTES);
            let anchors = anchors.filter_map(|block| Anchor::parse(pool, self.cx.lane, block));
            anchors.max_by_key(|anchor| anchor.number)
        };
        let of_drives: Vec<Option<Anchor>> = copies.iter().map(newest_of).collect();
        let newest = of_drives.iter().flatten().copied();
        let Some(anchor) = newest.max_by_key(|anchor| anchor.number) else {
            // Not one of the drives knows where the journal begins.
            self.recovered(0, Err(Fault::Lost));
            return;
        };
        self.compare_anchors(anchor.number, &of_drives);
        let recovery = self.recovery();
        recovery.anchor = anchor;
        recovery.expected = anchor.first;
        // The recovery before this one has mended and flushed all that it found.
        recovery.flushed = anchor.inherited;
        self.log.begin_at(&anchor);
        self.read_headers(anchor.position, Seek::Next);
    }

    /// Every anchor is flushed on all drives before the next one is written: a drive that lags by more than one,
    /// and whose home cells count, was set back or has lost writes.
    fn compare_anchors(&mut self, newest: u64, of_drives: &[Option<Anchor>]) {
        let recovery = self.recovery.as_ref().expect("a recovery runs");
        let read = recovery.reads.keys().map(|&index| recovery.seats[index]);
        let view = self.cx.view();
        let old = read.zip(of_drives).filter_map(|(seat, anchor)| {
            let anchor = anchor.map(|anchor| anchor.number)?;
            let old = anchor + 1 < newest && view.is_complete(seat);
            old.then_some(Event::DriveOld {
                seat,
                anchor,
                newest,
            })
        });
        let old: Vec<Event> = old.collect();
        self.cx.events.extend(old);
    }

    fn read_headers(&mut self, at: u64, seek: Seek) {
        let recovery = self.recovery();
        if seek == Seek::Next && recovery.limit == Some(recovery.expected) {
            self.end_of_log();
            return;
        }
        let left = self.log.ring().blocks().saturating_sub(at);
        let blocks = left.min(HEADER_BLOCKS_MAX);
        self.recovery().phase = Phase::Headers { at, seek };
        if blocks == 0 {
            self.headers_read(at, seek, &[]);
            return;
        }
        let offset = self.cx.ring_offset(at);
        self.read_everywhere(offset, blocks * BLOCK_BYTES);
    }

    fn headers_read(&mut self, at: u64, seek: Seek, copies: &[Vec<u8>]) {
        let pool = self.cx.geometry.store().expect("a journal").pool;
        let lane = self.cx.lane;
        let recovery = self.recovery();
        let (expected, anchor) = (recovery.expected, recovery.anchor);
        let headers = copies
            .iter()
            .filter_map(|bytes| BatchHeader::parse(pool, lane, bytes))
            .filter(|header| {
                header.sequence <= anchor.inherited
                    || header.incarnation >= anchor.incarnation
                    || seeded::is(Bug::AnyIncarnation)
            });
        if seek == Seek::Proof {
            let flushed = headers
                .filter(|header| header.sequence > expected)
                .any(|header| header.flushed >= expected);
            if flushed {
                self.recovered(0, Err(Fault::Lost));
            } else {
                self.end_of_log();
            }
            return;
        }
        let found = headers
            .filter(|header| header.sequence == expected)
            .max_by_key(|header| header.incarnation)
            .map(|header| (header, at));
        if seek == Seek::Later {
            let earlier = self.recovery().candidate.take();
            let incarnation = |found: &(BatchHeader, u64)| found.0.incarnation;
            // Two are never of one incarnation.
            let latest = [found, earlier].into_iter().flatten();
            let (header, at) = latest.max_by_key(incarnation).expect("there was one");
            self.read_columns(header, at);
            return;
        }
        match found {
            Some(found) if at != 0 && found.0.incarnation < anchor.incarnation => {
                // Of several incarnations that have written this batch, all but the last were left out, and
                // that one may not have had room here.
                self.recovery().candidate = Some(found);
                self.read_headers(0, Seek::Later);
            }
            Some((header, at)) => self.read_columns(header, at),
            None if at != 0 => self.read_headers(0, Seek::Next),
            None => self.end_of_log(),
        }
    }

    /// Reads a batch's columns to where they were when it was written.
    fn read_columns(&mut self, header: BatchHeader, position: u64) {
        let length = header.length();
        if position + length > self.log.ring().blocks() {
            self.end_of_log();
            return;
        }
        let scratch = self.cx.fresh_scratch();
        let buffer = BatchBuffer::with_all_columns(&header, scratch);
        let bytes = buffer.bytes(derived::blocks(&header));
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        self.overlay
            .add_buffer(header.sequence, scratch, bytes, Vec::new());
        let offset = self.cx.ring_offset(position);
        let there: Vec<(usize, Seat)> = header.seats.iter().copied().enumerate().collect();
        let live = self.cx.live_seats();
        let (there, missing): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|(_, seat)| live.contains(seat));
        let recovery = self.recovery();
        recovery.in_flight = there.len() as u64;
        recovery.phase = Phase::Columns(Found {
            header,
            position,
            buffer,
            missing: missing.into_iter().map(|(index, _)| index).collect(),
            mended: false,
            whole: true,
        });
        for &(index, seat) in &there {
            let slice = buffer.column(index);
            self.ios.submit_slice(
                &mut self.cx,
                Purpose::Recovery { seat, index },
                Service::prompt(Origin::Rebuild),
                IoKind::Read,
                (seat, offset),
                slice,
            );
        }
        if there.is_empty() {
            self.check_columns();
        }
    }

    /// Reads the columns into other memory, without drives that are out by now.
    fn read_columns_again(&mut self) {
        let phase = std::mem::replace(&mut self.recovery().phase, Phase::Anchors);
        let Phase::Columns(found) = phase else {
            unreachable!("columns were read")
        };
        self.overlay.unpin(found.header.sequence);
        self.read_columns(found.header, found.position);
    }

    fn check_columns(&mut self) {
        let phase = std::mem::replace(&mut self.recovery().phase, Phase::Anchors);
        let Phase::Columns(found) = phase else {
            unreachable!("columns were read")
        };
        self.check(found);
    }

    /// Asks for the checksums of all blocks of a batch: its columns', then their headers'.
    fn check(&mut self, found: Found) {
        let columns = 0..found.header.seats.len();
        let bodies = { columns.clone() }
            .filter(|_| found.header.rows > 0)
            .map(|index| found.buffer.rows(index));
        let sums = bodies
            .chain(columns.map(|index| found.buffer.header(index)))
            .collect();
        self.recovery().phase = Phase::Checking(found);
        self.cx.push_compute(
            Computing::Recovery,
            Compute {
                sums,
                ..Compute::default()
            },
        );
    }

    fn columns_checked(&mut self, mut found: Found, sums: &[u32]) {
        let header = &found.header;
        let rows = usize::from(header.rows);
        let data = usize::from(header.data_columns);
        let contents: Vec<u32> = header
            .descriptors
            .iter()
            .filter_map(|descriptor| match descriptor {
                crate::format::Descriptor::Content { crc, .. } => Some(*crc),
                _ => None,
            })
            .collect();
        let (bodies, heads) = sums.split_at(rows * header.seats.len());
        let mut bad: BTreeSet<(usize, usize)> = BTreeSet::new();
        for (index, &sum) in bodies.iter().enumerate() {
            let (column, row) = (index / rows, index % rows);
            let wanted = if column < data {
                // Behind the last block there are zeros.
                contents.get(index).copied()
            } else {
                Some(header.parity_crcs[(column - data) * rows + row])
            };
            let missing = found.missing.contains(&column) && !found.mended;
            if missing || wanted.is_some_and(|wanted| wanted != sum) {
                bad.insert((row, column));
            }
        }
        let live = self.cx.live_seats();
        let lives = |column: usize| live.contains(&header.seats[column]);
        let lacks = bad.iter().any(|&(_, column)| lives(column));
        // The header that told of this batch may have been on a drive that has gone out since: those count
        // that were read with the columns, and are on drives that live.
        let head = self.header_sums(header);
        let has_head = |column: usize| {
            let sums = heads.iter().skip(column * head.len());
            !found.missing.contains(&column) && sums.take(head.len()).eq(&head)
        };
        let headless = (0..header.seats.len()).any(|column| lives(column) && !has_head(column));
        found.whole &= !lacks && !headless;
        let header = &found.header;
        if seeded::is(Bug::StopAtBadColumn) && lacks {
            self.overlay.unpin(found.header.sequence);
            self.end_of_log();
            return;
        }
        if bad.iter().all(|&(_, column)| column >= data) {
            if found.whole || seeded::is(Bug::LeaveUnrestored) {
                self.columns_found(found);
            } else {
                self.restore(found, contents.len());
            }
            return;
        }
        let columns = header.seats.len();
        let parity = u16::try_from(columns - data).expect("at most 2^16");
        let code = self.log.codes().of(header.data_columns, parity);
        let temporary = self.cx.fresh_scratch();
        let mut temporaries = 0;
        // A column that is missing lacks its zeros too.
        let mut steps = padding(&found, contents.len());
        let mut unrecoverable = found.mended;
        for row in 0..rows {
            let lost: ElementSet = (0..data).filter(|&c| bad.contains(&(row, c))).collect();
            if lost.is_empty() {
                continue;
            }
            let known: ElementSet = (0..columns).filter(|&c| !bad.contains(&(row, c))).collect();
            let Ok(recovery) = code.recover(&known, &lost) else {
                unrecoverable = true;
                break;
            };
            let block = |slot: usize| match slot.checked_sub(columns) {
                None => found
                    .buffer
                    .rows(slot)
                    .part(row as u64 * BLOCK_BYTES, BLOCK_BYTES),
                Some(index) => Slice {
                    buffer: BufferId::Scratch(temporary),
                    offset: index as u64 * BLOCK_BYTES,
                    length: BLOCK_BYTES,
                },
            };
            temporaries = temporaries.max(recovery.schedule.temporaries());
            steps.extend(recovery.schedule.steps.iter().map(|step| {
                ComputeStep {
                    target: block(step.target.into()),
                    accumulate: step.accumulate,
                    terms: step
                        .terms
                        .iter()
                        .map(|&(slot, c)| (block(slot.into()), c))
                        .collect(),
                }
            }));
        }
        if unrecoverable {
            self.not_whole(&found);
            return;
        }
        found.mended = true;
        if temporaries > 0 {
            let bytes = temporaries as u64 * BLOCK_BYTES;
            self.cx
                .actions
                .push_back(Action::Allocate(temporary, bytes));
            self.recovery().scratch = Some(temporary);
        }
        self.recovery().phase = Phase::Mending(found);
        self.cx.push_compute(
            Computing::Recovery,
            Compute {
                steps,
                ..Compute::default()
            },
        );
    }

    /// A batch cannot be put together: the log ends before it, unless a header says that it was flushed.
    fn not_whole(&mut self, found: &Found) {
        let next = found.position + found.header.length();
        self.overlay.unpin(found.header.sequence);
        if seeded::is(Bug::PastTorn) {
            self.recovery().expected += 1;
            self.read_headers(next, Seek::Next);
            return;
        }
        self.read_headers(next, Seek::Proof);
    }

    /// Computes the parity that a batch leaves out.
    fn derive(&mut self, found: Found) {
        let temporary = self.cx.fresh_scratch();
        let derivation = derived::derivation(&self.cx, &found.header, found.buffer, temporary);
        let Some(derivation) = derivation else {
            self.not_whole(&found);
            return;
        };
        if derivation.temporaries > 0 {
            let bytes = derivation.temporaries as u64 * BLOCK_BYTES;
            self.cx
                .actions
                .push_back(Action::Allocate(temporary, bytes));
            self.recovery().scratch = Some(temporary);
        }
        let mut work = Compute {
            steps: derivation.steps,
            sums: derivation.sums,
            ..Compute::default()
        };
        if seeded::is(Bug::DerivedNotComputed) {
            work.steps.clear();
        }
        self.recovery().phase = Phase::Deriving(found);
        self.cx.push_compute(Computing::Recovery, work);
    }

    fn derived(&mut self, found: Found, sums: &[u32]) {
        let right = derived::are_right(&found.header, sums) || self.cx.trusted;
        if right || seeded::is(Bug::DerivedNotComputed) {
            self.batch_found(found);
        } else {
            self.not_whole(&found);
        }
    }

    /// The checksums of a header's blocks, as they are before each of its batch's columns.
    fn header_sums(&self, header: &BatchHeader) -> Vec<u32> {
        let pool = self.cx.geometry.store().expect("a journal").pool;
        let bytes = header.encode(pool, self.cx.lane);
        bytes.chunks(PAGE_BYTES).map(block::crc32c).collect()
    }

    /// A batch is known, but not all of it is on the drives that live: lay it out anew.
    fn restore(&mut self, found: Found, contents: usize) {
        let pool = self.cx.geometry.store().expect("a journal").pool;
        let header = &found.header;
        let data = usize::from(header.data_columns);
        let columns = header.seats.len();
        let bytes: Arc<[u8]> = header.encode(pool, self.cx.lane).into();
        let puts = (0..columns).map(|index| (found.buffer.header(index), Arc::clone(&bytes)));
        let mut work = Compute {
            puts: puts.collect(),
            steps: padding(&found, contents),
            ..Compute::default()
        };
        if header.rows > 0 {
            let parity = u16::try_from(columns - data).expect("at most 2^16");
            let code = self.log.codes().of(header.data_columns, parity);
            work.steps.extend((data..columns).map(|parity| {
                let terms = (0..data)
                    .map(|index| (found.buffer.rows(index), code.coefficient(parity, index)))
                    .collect();
                ComputeStep {
                    target: found.buffer.rows(parity),
                    accumulate: false,
                    terms,
                }
            }));
        }
        self.recovery().phase = Phase::Restoring(found);
        self.cx.push_compute(Computing::Recovery, work);
    }

    fn write_columns(&mut self, found: Found) {
        let live = self.cx.live_seats();
        let (buffer, offset) = (found.buffer, self.cx.ring_offset(found.position));
        let columns = found.header.seats.iter().copied().enumerate();
        let columns: Vec<_> = columns.filter(|(_, seat)| live.contains(seat)).collect();
        let recovery = self.recovery();
        recovery.phase = Phase::Restoring(found);
        recovery.restoring = true;
        for _ in &columns {
            recovery.writes.begin();
        }
        for (index, seat) in columns {
            let slice = buffer.column(index);
            self.ios.submit_slice(
                &mut self.cx,
                Purpose::Restore { seat },
                Service::prompt(Origin::Rebuild),
                IoKind::Write,
                (seat, offset),
                slice,
            );
        }
        self.restoring_ended();
    }

    /// A column has been written again.
    pub(super) fn column_restored(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        self.recovery_wrote(seat, offset, outcome);
        self.restoring_ended();
    }

    fn restoring_ended(&mut self) {
        let recovery = self.recovery();
        if !recovery.writes.is_done() {
            return;
        }
        match std::mem::replace(&mut recovery.phase, Phase::Anchors) {
            Phase::Restoring(found) => {
                recovery.restoring = false;
                self.columns_found(found);
            }
            other => recovery.phase = other,
        }
    }

    /// All columns of a batch are there.
    fn columns_found(&mut self, found: Found) {
        match derived::blocks(&found.header) {
            0 => self.batch_found(found),
            _ => self.derive(found),
        }
    }

    /// A batch is whole: it counts.
    fn batch_found(&mut self, found: Found) {
        let Found {
            header,
            position,
            buffer,
            ..
        } = found;
        let placed = Placed {
            sequence: header.sequence,
            position,
            length: header.length(),
        };
        self.log.found(placed);
        self.apply_batch(&header, buffer);
        self.overlay.unpin(header.sequence);
        let recovery = self.recovery();
        recovery.batches += 1;
        recovery.flushed = recovery.flushed.max(header.flushed);
        recovery.expected = header.sequence + 1;
        let head = self.log.ring().head();
        self.read_headers(head, Seek::Next);
    }

    /// Nothing follows.
    fn end_of_log(&mut self) {
        self.compare_in_place();
    }

    /// What was found may be in caches only; the anchor will vouch for it, so it must not survive what it vouches
    /// for.
    fn cover_log(&mut self) {
        self.recovery().phase = Phase::Covering;
        for seat in self.cx.live_seats() {
            self.flushes.wrote(seat);
        }
        if !self.begin_flush(Waiter::Recovery) {
            self.recovery_flushed();
        }
    }

    /// From here on this incarnation writes.
    fn write_first_anchor(&mut self) {
        let recovery = self.recovery();
        let (expected, first) = (recovery.expected, recovery.anchor.first);
        recovery.phase = Phase::Anchoring;
        let expected = if seeded::is(Bug::SequencesAnew) {
            1
        } else {
            expected
        };
        self.log.go_on_at(expected);
        self.push_anchor(first);
    }

    /// The anchor is on its way to so many drives.
    pub(super) fn recovery_anchor_begins(&mut self, scratch: ScratchId, drives: usize) {
        let recovery = self.recovery();
        recovery.scratch = Some(scratch);
        for _ in 0..drives {
            recovery.writes.begin();
        }
        if drives == 0 {
            self.recovered(0, Err(Fault::Lost));
        }
    }

    pub(super) fn recovery_anchor_written(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        self.recovery_wrote(seat, offset, outcome);
        self.recovery_anchors_ended();
    }

    fn recovery_wrote(&mut self, seat: Seat, offset: u64, outcome: Outcome) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        self.recovery().writes.ended(seat, outcome, out);
    }

    /// The pool has decided about a drive.
    pub(super) fn recovery_judged(&mut self, seat: Seat, out: bool) {
        if let Some(recovery) = self.recovery.as_mut() {
            recovery.writes.decided(seat, out);
            if recovery.restoring {
                self.restoring_ended();
            } else {
                self.recovery_anchors_ended();
            }
        }
    }

    fn recovery_anchors_ended(&mut self) {
        let recovery = self.recovery();
        if !matches!(recovery.phase, Phase::Anchoring)
            || recovery.scratch.is_none()
            || !recovery.writes.is_done()
        {
            return;
        }
        recovery.phase = Phase::Flushing;
        if let Some(scratch) = recovery.scratch.take() {
            self.ios.release(&mut self.cx, scratch);
        }
        if !self.begin_flush(Waiter::Recovery) {
            self.recovery_flushed();
        }
    }

    /// What was found is durable, or the anchor is, too.
    pub(super) fn recovery_flushed(&mut self) {
        if matches!(self.recovery().phase, Phase::Covering) {
            self.write_first_anchor();
            return;
        }
        let batches = self.recovery().batches;
        self.log.flush_covered(self.log.completed());
        self.recovered(batches, Ok(()));
    }

    pub(super) fn recovered(&mut self, batches: u64, outcome: Outcome) {
        if let Some(recovery) = self.recovery.take()
            && let Some(scratch) = recovery.scratch
        {
            self.ios.release(&mut self.cx, scratch);
        }
        if batches > 0 && outcome.is_ok() {
            self.preserved.drive_out(self.log.next_sequence());
            self.checkpoints.want();
        }
        self.cx.events.push_back(Event::Recovered {
            lane: self.cx.lane,
            batches,
            outcome,
        });
    }
}

/// Zeros behind the last block of a batch's content, up to the end of its data columns.
fn padding(found: &Found, contents: usize) -> Vec<ComputeStep> {
    let blocks = u64::from(found.header.rows) * u64::from(found.header.data_columns);
    (contents as u64..blocks)
        .map(|index| ComputeStep {
            target: found.buffer.content(index),
            accumulate: false,
            terms: Vec::new(),
        })
        .collect()
}
