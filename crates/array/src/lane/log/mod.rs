//! Logging: records gather into batches, batches go to the ring.
//!
//! ```text
//!   waiting ─► Laying (copy, parity) ─► (Heading) ─► Writing ─► complete, in order of sequence
//! ```
//!
//! Heading is a step of its own where the checksums of parity must be known first: P's follow from
//! those of the data, and copies have theirs.
//!
//! What drives refuse of a batch may leave a gap in the log (`gaps.rs`).
//!
//! What is part of a stream waits apart from what somebody waits for (`waiting.rs`): a batch has one or the other. Ring and
//! memory are shared among volumes (`shares.rs`).
//!
//! What waits are units (`unit.rs`): blocks that count only together.

mod apply;
mod batch;
mod buffer;
pub(super) mod derived;
mod gaps;
mod sequences;
mod shape;
pub(super) mod shares;
mod unit;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{Fault, Instant, Outcome, Seat};
use erasure::Code;

pub(super) use self::apply::Applied;
use self::batch::{Batch, Columns, ZEROS_CRC, crc_of_sum};
pub(super) use self::buffer::BatchBuffer;
use self::sequences::Sequences;
use self::shape::{Shape, data_columns_max};
use self::shares::{Weights, divide};
pub(super) use self::unit::Unit;
use self::unit::descriptors_of;
use self::waiting::{Lot, Waiting, weight};
use super::backoff::Work;
use super::direct::IN_PLACE_MAX;
use super::op::Task;
use super::ring::{Placed, Ring};
use super::writes::Writes;
use super::{Computing, Lane, Purpose};
use crate::VolumeId;
use crate::action::{Action, Compute, ComputeStep, Computed, IoKind, Origin, Service, Slice};
use crate::format::{Anchor, BatchHeader, DESCRIPTOR_BYTES};
use crate::seeded::{self, Bug};

/// Batches in flight.
const IN_FLIGHT_MAX: usize = 4;
/// Descriptors that must have gathered before a batch begins while another is in flight: with fewer
/// the next one costs less if it takes along what comes meanwhile, for headers and drive operations
/// are by batch. With many more, few requests of a lane are under way at once, and it waits for its
/// drives (`docs/performance.md`).
const GATHERED: usize = 12;
/// Batches of streams in flight while commits come: a commit counts when those before it do.
const STREAM_IN_FLIGHT_MAX: usize = 2;
/// Descriptors of a batch of a stream while commits come.
const STREAM_DESCRIPTORS_MAX: usize = 192;
/// Blocks and other descriptors of one batch: a header of three blocks, or four with the checksums
/// of parity.
const DESCRIPTORS_MAX: usize = 480;
/// Bytes of batches in memory, over all lanes, from which on nothing more is logged before a
/// checkpoint has ended; one begins at half of that. A stream over what counts is in one lane at a time on classic levels, and must
/// not run out while a checkpoint of that lane goes through its flushes: with 64 MiB `raid6` on drives of 100 MB/s and 500 operations
/// a second overwrites 65 MiB/s, with 128 it is 81, with 256 100, with 1024 107.
const MEMORY_MAX: u64 = 256 << 20;

/// A unit, and whose it is.
type Owned = (Option<VolumeId>, Unit);

/// What is written where, in which order.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    waiting: Waiting,
    /// When the next batch should begin: as soon as everything that has happened until then has
    /// been told.
    due: Option<Instant>,
    batches: BTreeMap<u64, Batch>,
    /// Batches that have ended and that recovery would not find; `writing` if they are being written again.
    gaps: BTreeMap<u64, Batch>,
    /// The gaps have been tried for the checkpoint that is awaited.
    gaps_tried: bool,
    ring: Ring,
    incarnation: u64,
    sequences: Sequences,
    /// Number of the newest anchor.
    anchor: u64,
    /// A batch could not be written as it must: nothing more before a checkpoint has made it
    /// unnecessary.
    blocked: bool,
    /// What waits could not be logged for want of room in the ring or in memory.
    out_of_space: bool,
    /// Why checkpoints make no room: drives that stay refuse what is to be put in place, or there is no drive. Writes end with it
    /// while the ring is full.
    tail_fault: Option<Fault>,
    codes: BTreeMap<(u16, u16), Arc<Code>>,
}

impl Log {
    pub(super) fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.batches.is_empty()
    }

    /// True if something waits to be logged.
    pub(super) fn waits(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Batches of a lot in flight.
    fn in_flight(&self, lot: Lot) -> usize {
        let batches = self.batches.values();
        batches.filter(|batch| batch.lot == lot).count()
    }

    /// True if a checkpoint should make room, or a batch unnecessary.
    pub(super) const fn wants_checkpoint(&self) -> bool {
        self.ring.wants_checkpoint() || self.blocked
    }

    /// True if nothing more is logged before a checkpoint has ended.
    pub(super) const fn needs_checkpoint(&self) -> bool {
        self.blocked || self.out_of_space
    }

    /// True if a batch could not be written as it must, and is not unnecessary yet.
    pub(super) const fn is_blocked(&self) -> bool {
        self.blocked
    }

    /// True if what waits finds no room.
    pub(super) const fn is_out_of_space(&self) -> bool {
        self.out_of_space
    }

    /// Why checkpoints make no room, if they do not.
    pub(super) const fn tail_fault(&self) -> Option<Fault> {
        self.tail_fault
    }

    /// A checkpoint has put in place what it could; drives that stay have refused some of it.
    pub(super) const fn installs_ended(&mut self, refused: Option<Fault>) {
        self.tail_fault = refused;
    }

    /// A checkpoint has ended that covers batches up to `covers`; the oldest that still counts is `first`.
    pub(super) fn checkpoint_ended(&mut self, covers: u64, first: u64) {
        self.gaps_tried = false;
        self.ring.release_before(first);
        if covers == self.completed() && first > covers {
            self.blocked = false;
        }
    }

    /// The lane's ring.
    pub(super) const fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The last batch that is complete, with no gap before it.
    pub(super) const fn completed(&self) -> u64 {
        self.sequences.completed()
    }

    /// The last batch that a flush has covered.
    pub(super) const fn flushed(&self) -> u64 {
        self.sequences.flushed()
    }

    /// The batch that begins next.
    pub(super) const fn next_sequence(&self) -> u64 {
        self.sequences.next()
    }

    /// A flush has covered batches up to this one.
    pub(super) fn flush_covered(&mut self, sequence: u64) {
        self.sequences.flush_covered(sequence);
    }

    /// Number of the newest anchor.
    pub(super) const fn anchor(&self) -> u64 {
        self.anchor
    }

    /// The next anchor: the log begins with this batch.
    pub(super) fn next_anchor(&mut self, first: u64) -> Anchor {
        self.anchor += 1;
        Anchor {
            incarnation: self.incarnation,
            first,
            position: self.ring.position_of(first),
            inherited: self.sequences.inherited(),
            number: self.anchor,
        }
    }

    /// An incarnation begins to read its ring.
    pub(super) fn begin_ring(&mut self, blocks: u64, incarnation: u64) {
        self.ring = Ring::new(blocks);
        self.incarnation = incarnation;
    }

    /// The log is read anew from where this anchor says.
    pub(super) fn begin_at(&mut self, anchor: &Anchor) {
        self.ring = Ring::new(self.ring.blocks());
        self.ring.begin_at(anchor.position);
        self.anchor = anchor.number;
    }

    /// Recovery has found a batch.
    pub(super) fn found(&mut self, placed: Placed) {
        self.ring.take(placed, Vec::new());
    }

    /// All of the log is read: it goes on with batch `next`.
    pub(super) const fn go_on_at(&mut self, next: u64) {
        self.sequences.go_on_at(next);
    }

    /// The code of a batch of `data` and `parity` columns: P, Q and R; copies where there is one
    /// data column.
    pub(super) fn code(&mut self, data: u16, parity: u16) -> Arc<Code> {
        let make = || {
            let name = match (data, parity) {
                (_, 0) => "none",
                (1, _) => "mirror",
                (_, 1) => "parity",
                (_, 2) => "pq",
                _ => "pqr",
            };
            let code = erasure::by_columns(name, data + parity);
            Arc::new(code.expect("these codes exist in every width"))
        };
        Arc::clone(self.codes.entry((data, parity)).or_insert_with(make))
    }
}

impl Lane {
    /// Seats that batches are written to: none whose drive is slow, if there are enough others to
    /// survive as many losses.
    fn batch_seats(&self) -> Vec<Seat> {
        let live = self.cx.live_seats();
        if !self.ios.any_suspect() {
            return live;
        }
        let swift = live.iter().copied();
        let swift: Vec<Seat> = swift.filter(|&seat| !self.ios.is_suspect(seat)).collect();
        if swift.len() > usize::from(self.cx.geometry.code().tolerance()) {
            swift
        } else {
            live
        }
    }

    /// Queues units; the operation of each hears when it is logged.
    pub(super) fn log(&mut self, units: impl IntoIterator<Item = Unit>) {
        for unit in units {
            let op = &self.ops[&unit.op];
            let (lot, volume) = (Lot::of(op), op.service.volume);
            self.log.waiting.push(lot, volume, unit, self.cx.now);
        }
    }

    /// The same before all that waits: it makes room for them.
    pub(super) fn log_first(&mut self, units: Vec<Unit>) {
        self.log.waiting.push_first(units);
    }

    /// Of what waits to be logged nothing is there to be logged again any more: there is no room, and
    /// the checkpoint that would make some waits for it.
    fn refuse_relogs(&mut self) {
        if !self.preserved.relogs() {
            return;
        }
        let ops = &self.ops;
        let again = |unit: &Unit| matches!(ops[&unit.op].task, Task::Relog(_));
        for unit in self.log.waiting.take_if(again) {
            self.unit_ended(unit.op, Err(Fault::Full));
        }
    }

    /// What the writes of a batch are for.
    fn batch_service(&self, sequence: u64) -> Service {
        let batch = self.log.batches.get(&sequence);
        Service {
            origin: Origin::Log,
            bulk: batch.is_some_and(|batch| batch.lot == Lot::Streams),
            volume: batch.and_then(|batch| batch.volume),
        }
    }

    /// Bytes of batches in memory from which on this lane logs nothing more.
    pub(super) fn batch_memory(&self) -> u64 {
        MEMORY_MAX / u64::from(self.cx.geometry.lanes())
    }

    /// When a batch begins that waits for nothing but to be filled.
    pub(super) const fn batch_due_at(&self) -> Option<Instant> {
        self.log.due
    }

    /// Starts the batches that should be in flight. One that nothing else is before begins when
    /// everything of this moment has been told (`due`), others when enough has gathered or nothing
    /// is before them any more.
    pub(super) fn pump_log(&mut self) {
        let memory = self.batch_memory();
        let due = self.log.due.is_some_and(|due| due <= self.cx.now) && self.timed_out;
        self.refuse_overdue();
        let refused = self.retries.batches_wait(self.cx.now);
        if self.log.waiting.is_empty() || due || refused {
            self.log.due = None;
        }
        if !refused && (self.log.waits() || self.checkpoints.waits()) {
            self.write_gaps();
        }
        while !self.log.waiting.is_empty()
            && self.log.batches.len() < IN_FLIGHT_MAX
            && !self.log.blocked
            && self.log.gaps.is_empty()
            && !self.discards.hold_log()
            && !refused
        {
            let ready = self.lots_ready(due);
            // One lot may be due though the other finds no room.
            if self.log.due.is_none() && self.some_lot_may_be_due(ready) {
                self.log.due = Some(self.cx.now);
            }
            let mut ready = ready.into_iter().flatten().peekable();
            if ready.peek().is_none() {
                break;
            }
            let started = ready.any(|lot| self.start_batch(lot));
            self.log.out_of_space = !started;
            if self.log.out_of_space {
                let fails = self.retries.checkpoints_fail().is_some();
                if let Some(fault) = self.log.tail_fault
                    && !fails
                    && !self.checkpoints.is_running()
                {
                    // The ring is full and nothing can be done about it.
                    self.retries.failed(&mut self.cx, Work::Batch, fault);
                    self.refuse_with(fault);
                } else {
                    self.refuse_relogs();
                    // What is kept makes way for what clients write, not for itself.
                    self.log.out_of_space = self.log.waits();
                    if self.log.out_of_space {
                        self.checkpoints.want();
                    }
                }
                break;
            }
        }
        if self.log.blocked || self.has_gaps() {
            self.refuse_relogs();
        }
        self.flush_direct();
        if self.log.wants_checkpoint()
            || self.overlay.bytes() >= memory / 2
            || self.overlay.blocks_in_place() >= IN_PLACE_MAX
        {
            self.checkpoints.want();
        }
    }

    /// Lots of which a batch should begin, the one whose turn it is first. `due`: everything of this moment has
    /// been told.
    fn lots_ready(&self, due: bool) -> [Option<Lot>; 2] {
        let log = &self.log;
        let ready = |&lot: &Lot| match log.waiting.urgent(lot) {
            _ if !log.waiting.has(lot) => false,
            enough if enough >= GATHERED => {
                lot == Lot::Commits
                    || !log.waiting.has_commits(self.cx.now)
                    || log.in_flight(lot) < STREAM_IN_FLIGHT_MAX
            }
            _ => due && self.may_begin_lone(lot),
        };
        log.waiting.in_turn().map(|lot| Some(lot).filter(ready))
    }

    /// Whether a batch of little may begin: one that is under way would take along what comes meanwhile.
    fn may_begin_lone(&self, lot: Lot) -> bool {
        match lot {
            Lot::Commits => self.log.in_flight(lot) == 0,
            // What is in place takes no room, and must not wait for commits that never end. It waits for as many as are on
            // their way to their places: each batch is an operation on several drives.
            Lot::Streams if self.log.waiting.urgent(lot) == 0 => {
                self.log.in_flight(lot) == 0
                    && self.log.waiting.count(lot) >= self.direct.in_flight()
            }
            Lot::Streams => self.log.batches.is_empty(),
        }
    }

    /// Whether something waits for nothing but that all of this moment be told.
    fn some_lot_may_be_due(&self, ready: [Option<Lot>; 2]) -> bool {
        let mut lots = self.log.waiting.in_turn().into_iter();
        lots.any(|lot| {
            let waits = self.log.waiting.has(lot) && !ready.contains(&Some(lot));
            waits && self.may_begin_lone(lot)
        })
    }

    /// What has waited long enough for drives that refuse does not wait for the next try, too.
    fn refuse_overdue(&mut self) {
        let Some((fault, since)) = self
            .retries
            .refusal(self.cx.now, self.log.needs_checkpoint())
        else {
            return;
        };
        let ops = &self.ops;
        let overdue = |unit: &Unit| ops[&unit.op].begun <= since;
        for unit in self.log.waiting.take_if(overdue) {
            self.unit_ended(unit.op, Err(fault));
        }
    }

    /// A try has failed: what waited for it ends with it.
    pub(super) fn refuse_with(&mut self, fault: Fault) {
        for unit in self.log.waiting.take_if(|_| true) {
            self.unit_ended(unit.op, Err(fault));
        }
    }

    /// Takes what fits into one batch; false if there is no room for it.
    fn start_batch(&mut self, lot: Lot) -> bool {
        if self.overlay.bytes() >= lot.share(self.batch_memory()) {
            return false;
        }
        let seats = self.batch_seats();
        let live = u16::try_from(seats.len()).expect("seats are 16 bits");
        if live == 0 {
            self.log.tail_fault = self.log.tail_fault.or(Some(Fault::Lost));
            return false;
        }
        let parity = self.cx.geometry.code().tolerance().min(live - 1);
        let parity = parity.saturating_sub(u16::from(seeded::is(Bug::LessParity)));
        let widest = usize::from(data_columns_max(live, parity));
        let sides = (widest, usize::from(parity));
        let limit = self.log.ring.batch_blocks_max();
        let most = match lot {
            Lot::Streams if self.log.waiting.has_commits(self.cx.now) => STREAM_DESCRIPTORS_MAX,
            _ => DESCRIPTORS_MAX,
        };
        let fits = |blocks, bytes| {
            bytes <= most * DESCRIPTOR_BYTES
                && Shape::new(widest, sides.1, blocks, bytes).fits(limit)
        };
        let (owned, blocks, bytes) = self.gather(lot, fits);
        let shape = Shape::cheapest(sides, (blocks, bytes), limit);
        let Shape { data, rows, .. } = shape;
        let length = shape.length();
        let most = lot.share(self.log.ring.blocks());
        let place = self.log.ring.place_up_to(length, most);
        let Some(position) = place.filter(|_| !owned.is_empty()) else {
            self.log.waiting.give_back(lot, owned);
            return false;
        };
        self.log.waiting.went(lot);
        let sequence = self.log.sequences.begin();
        let weights = weights_of(&owned);
        let units: Vec<Unit> = owned.into_iter().map(|(_, unit)| unit).collect();
        let placed = Placed {
            sequence,
            position,
            length,
        };
        self.log.ring.take(placed, divide(length, &weights));
        // Another drive first each time, so that none is always written to.
        let first = usize::try_from(sequence % u64::from(live)).expect("below 2^16");
        let columns = data + usize::from(parity);
        let header = BatchHeader {
            incarnation: self.log.incarnation,
            sequence,
            flushed: self.log.flushed(),
            seats: (0..columns)
                .map(|i| seats[(first + i) % seats.len()])
                .collect(),
            data_columns: u16::try_from(data).expect("at most 64"),
            rows: u16::try_from(rows).expect("a batch is short"),
            // They are computed when the blocks are laid out, and count towards the header's length.
            parity_crcs: vec![0; usize::from(parity) * rows],
            descriptors: descriptors_of(&units),
        };
        assert_eq!(
            header.length(),
            length,
            "the header is as long as was planned"
        );
        self.lay(sequence, (lot, units, weights), header, position);
        true
    }

    /// Takes units of a lot for a batch, as many as fit: of each of the volumes that have room, by turns. With their blocks and the
    /// bytes of their descriptors.
    fn gather(
        &mut self,
        lot: Lot,
        fits: impl Fn(usize, usize) -> bool,
    ) -> (Vec<Owned>, usize, usize) {
        let shared = self.log.waiting.is_shared(self.cx.now) && self.log.tail_fault.is_none();
        let memory_left = lot.share(self.batch_memory()) - self.overlay.bytes();
        let ring_left = lot
            .share(self.log.ring.blocks())
            .saturating_sub(self.log.ring.used());
        let (mut units, mut blocks, mut bytes) = (Vec::new(), 0, 0);
        loop {
            let log = &self.log;
            let may = |volume| {
                !shared
                    || (log.ring.shares().may_take(volume, ring_left)
                        && self.overlay.shares().may_take(volume, memory_left))
            };
            let Some((volume, unit)) = log.waiting.next(lot, may) else {
                break;
            };
            let (more, all) = (blocks + unit.blocks.len(), bytes + unit.bytes());
            if !fits(more, all) && !units.is_empty() {
                break;
            }
            (blocks, bytes) = (more, all);
            let unit = self.log.waiting.take(lot, volume).expect("just seen");
            units.push((volume, unit));
        }
        (units, blocks, bytes)
    }

    /// Copies the blocks into place and computes the parity.
    fn lay(
        &mut self,
        sequence: u64,
        (lot, units, weights): (Lot, Vec<Unit>, Weights),
        mut header: BatchHeader,
        position: u64,
    ) {
        let scratch = self.cx.fresh_scratch();
        let columns = header.seats.len();
        let rows = usize::from(header.rows);
        let data = usize::from(header.data_columns);
        let parities = columns - data;
        let buffer = BatchBuffer::new(&header, scratch);
        let bytes = buffer.bytes(derived::blocks(&header));
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        let memory = divide(bytes, &weights);
        self.overlay.add_buffer(sequence, scratch, bytes, memory);
        let mut volumes = weights.into_keys();
        let alone = volumes.next().filter(|_| volumes.next().is_none());
        let mut work = Compute::default();
        let all = units.iter().flat_map(|unit| &unit.blocks);
        let mut crcs = Vec::with_capacity(data * rows);
        for (index, &(_, slice, crc)) in (0..).zip(all) {
            work.steps.push(ComputeStep {
                target: buffer.content(index),
                accumulate: false,
                terms: vec![(slice, 1)],
            });
            crcs.push(crc);
        }
        let derived = units.iter().flat_map(|unit| &unit.derived);
        for (index, &(_, slice, _)) in (0..).zip(derived) {
            work.steps.push(ComputeStep {
                target: buffer.derived(index),
                accumulate: false,
                terms: vec![(slice, 1)],
            });
        }
        for index in crcs.len()..data * rows {
            work.steps.push(ComputeStep {
                target: buffer.content(index as u64),
                accumulate: false,
                terms: Vec::new(),
            });
            crcs.push(ZEROS_CRC);
        }
        if rows > 0 && data > 1 {
            let parities = u16::try_from(parities).expect("at most 2^16");
            let code = self.log.code(header.data_columns, parities);
            for parity in data..columns {
                let terms = (0..data)
                    .map(|index| (buffer.rows(index), code.coefficient(parity, index)))
                    .collect();
                work.steps.push(ComputeStep {
                    target: buffer.rows(parity),
                    accumulate: false,
                    terms,
                });
                if parities > 1 {
                    work.sums.push(buffer.rows(parity));
                }
            }
        }
        if data == 1 {
            header.parity_crcs = crcs.repeat(parities);
        } else if parities == 1 {
            header.parity_crcs = (0..rows).map(|row| crc_of_sum(&crcs, row, rows)).collect();
        }
        let batch = Batch {
            units,
            lot,
            volume: alone.flatten(),
            header,
            position,
            buffer,
            writes: Writes::default(),
            writing: false,
        };
        if work.sums.is_empty() {
            work.puts = self.headers(&batch);
            self.cx.push_compute(Computing::Headed(sequence), work);
        } else {
            self.cx.push_compute(Computing::Laid(sequence), work);
        }
        self.log.batches.insert(sequence, batch);
    }

    /// The batch's parity is there: put the header before each column.
    pub(super) fn laid(&mut self, sequence: u64, computed: Computed) {
        let batch = self.log.batches.get_mut(&sequence).expect("it was laid");
        batch.header.parity_crcs = computed.sums;
        let puts = self.headers(&self.log.batches[&sequence]);
        self.cx.push_compute(
            Computing::Headed(sequence),
            Compute {
                puts,
                ..Compute::default()
            },
        );
    }

    /// The header before each of a batch's columns.
    fn headers(&self, batch: &Batch) -> Vec<(Slice, Arc<[u8]>)> {
        let store = self.cx.geometry.store().expect("a log needs a store");
        let bytes: Arc<[u8]> = batch.header.encode(store.pool, self.cx.lane).into();
        (0..batch.buffer.columns())
            .map(|index| (batch.buffer.header(index), Arc::clone(&bytes)))
            .collect()
    }

    /// The batch is ready to be written.
    pub(super) fn headed(&mut self, sequence: u64) {
        let batch = self.log.batches.get_mut(&sequence).expect("it was laid");
        batch.writing = true;
        let seats: Vec<Seat> = { batch.header.seats.iter().copied() }
            .filter(|&seat| !self.cx.view().is_out(seat))
            .collect();
        let columns = Columns::of(batch, &seats);
        self.push_columns(sequence, &columns);
        if seeded::is(Bug::AcknowledgeEarly) {
            let batch = self.log.batches.get_mut(&sequence).expect("it was laid");
            for unit in std::mem::take(&mut batch.units) {
                self.unit_ended(unit.op, Ok(()));
            }
        }
        if seats.is_empty() {
            self.batches_ended();
        }
    }

    pub(super) fn batch_written(
        &mut self,
        sequence: u64,
        (seat, offset): (Seat, u64),
        outcome: Outcome,
    ) {
        let (cx, ios) = (&mut self.cx, &mut self.ios);
        let out = self.flushes.write_ended(cx, ios, seat, offset, outcome);
        let log = &mut self.log;
        let batch = { log.batches.get_mut(&sequence) }.or_else(|| log.gaps.get_mut(&sequence));
        batch.expect("in flight").writes.ended(seat, outcome, out);
        self.batches_ended();
        self.gaps_ended();
    }

    /// Writes these of a batch's columns.
    fn push_columns(&mut self, sequence: u64, columns: &Columns) {
        let offset = self.cx.ring_offset(columns.position);
        let service = self.batch_service(sequence);
        for &(seat, slice) in &columns.slices {
            let purpose = Purpose::Batch { sequence, seat };
            self.ios.submit_slice(
                &mut self.cx,
                purpose,
                service,
                IoKind::Write,
                (seat, offset),
                slice,
            );
        }
    }

    /// The pool has decided about a drive.
    pub(super) fn batches_judged(&mut self, seat: Seat, out: bool) {
        let log = &mut self.log;
        for batch in log.batches.values_mut().chain(log.gaps.values_mut()) {
            batch.writes.decided(seat, out);
        }
        self.batches_ended();
        self.gaps_ended();
    }

    /// How many of a batch's columns are on their drives, and how many could be.
    fn columns_there(&self, batch: &Batch) -> (usize, usize) {
        let seats = &batch.header.seats;
        let live = seats.iter().filter(|&&seat| !self.cx.view().is_out(seat));
        let kept = batch.writes.kept();
        let there = live.clone().filter(|&seat| !kept.contains_key(seat));
        (there.count(), live.count())
    }

    /// How many of a batch's columns must be on their drives before anybody is told that it is durable: as many as
    /// recovery needs, and one for each drive that may still be lost. Drives that are in use and refuse their columns
    /// do not excuse the others: one that has its column may go out next.
    fn columns_needed(&self, batch: &Batch) -> usize {
        let drives = self.cx.geometry.layout().drives();
        let out = usize::from(drives) - self.cx.live_seats().len();
        let tolerance = usize::from(self.cx.geometry.code().tolerance());
        batch.data_columns() + tolerance.saturating_sub(out)
    }

    /// True if recovery would not find a batch now, or not after losses that the pool survives, and would if drives
    /// took what they have refused.
    fn is_gap(&self, batch: &Batch) -> bool {
        let (there, live) = self.columns_there(batch);
        live >= batch.data_columns() && there < self.columns_needed(batch).min(live)
    }

    /// Completes batches in order of their sequence: recovery stops at the first gap, so a
    /// request must not be answered before all batches before its own are there.
    fn batches_ended(&mut self) {
        while let Some((&sequence, batch)) = self.log.batches.first_key_value()
            && batch.writing
            && batch.writes.is_done()
        {
            let batch = self.log.batches.remove(&sequence).expect("just seen");
            self.complete(sequence, batch);
        }
    }

    fn complete(&mut self, sequence: u64, mut batch: Batch) {
        let mut fault = None;
        let mut gap = false;
        if let Some(&kept) = batch.writes.kept().values().next() {
            // A drive that failed its column stays in use, because nothing can be lost any more
            // but by losing data.
            gap = self.is_gap(&batch);
            if gap || self.columns_there(&batch).0 < batch.data_columns() {
                fault = Some(kept);
            }
            // Recovery finds it on fewer drives than it should, or never.
            self.log.blocked |= !gap;
            self.retries.failed(&mut self.cx, Work::Batch, kept);
        } else if let Some(before) = self.gap_fault() {
            // Recovery does not come as far as this.
            fault = Some(before);
        } else if self.columns_there(&batch).0 < batch.data_columns() {
            // Its drives have gone out, more of them than it survives: it is in memory alone, where the stripe's blocks
            // are kept, and nobody is told that it is durable.
            fault = Some(Fault::Lost);
        } else {
            self.retries.succeeded(&mut self.cx, Work::Batch);
        }
        self.apply_batch(&batch.header, batch.buffer);
        let complete = !gap && self.log.gaps.is_empty();
        self.log.sequences.ended(sequence, complete);
        self.checkpoints.logged(self.cx.now);
        for unit in std::mem::take(&mut batch.units) {
            self.unit_ended(unit.op, fault.map_or(Ok(()), Err));
        }
        if gap {
            batch.writing = false;
            self.log.gaps.insert(sequence, batch);
        } else {
            self.overlay.unpin(sequence);
        }
        if let Some(fault) = fault {
            self.refuse_with(fault);
        }
    }
}

/// How much of a batch is whose.
fn weights_of(units: &[Owned]) -> Weights {
    let mut weights = Weights::new();
    for (volume, unit) in units {
        *weights.entry(*volume).or_default() += weight(unit);
    }
    weights
}
