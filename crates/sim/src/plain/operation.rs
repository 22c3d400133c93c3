//! Operations: what a request or a rebuild does to drives, in stages.
//!
//! ```text
//!   read          all reads at once                                            ─► end
//!   write         lock the stripe ─► reads ─► parity ─► writes ─► unlock       ─► end
//!   rebuild step  lock the stripes ─► reads ─► parity ─► writes ─► unlock      ─► end
//! ```

use std::ops::Range;

use array::format::{Form, GroupId, StripeId};
use array::plan::{
    AllOnDrive, Piece, Plan, Scratch, Source, Stripe, Transfer, plan_read, plan_write,
};
use array::view::ColumnState;
use array::{BufferId, IoKind, RequestId, ScratchId, Slice};
use block::{BLOCK_BYTES, Fault, Outcome, Request, RequestKind, Seat};

use super::{PlainArray, Timer};
use crate::model::Operation;

/// Part of an element: slot, first byte, end.
type Segment = (usize, u64, u64);

/// The originator of an operation.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A request, by its key.
    Request(usize),
    /// The cache, for this range.
    Destage { offset: u64, length: u64 },
    /// A step of the rebuild, of the cell with this key.
    Rebuild { cell: usize, bytes: u64 },
}

/// One transfer of one drive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DriveIo {
    pub(super) seat: Seat,
    pub(super) kind: IoKind,
    pub(super) offset: u64,
    pub(super) length: u64,
}

impl From<&Transfer> for DriveIo {
    fn from(transfer: &Transfer) -> Self {
        Self {
            seat: transfer.seat,
            kind: transfer.kind,
            offset: transfer.offset,
            length: transfer.length,
        }
    }
}

/// The work of an operation, which is planned once the operation has its lock.
#[derive(Clone, Debug)]
pub(super) enum Task {
    /// Everything has been submitted to the drives already.
    Started,
    /// Blocks of elements of one stripe: slot, first byte, bytes.
    Write(Vec<Segment>),
    /// Part of a cell.
    Rebuild,
}

/// An operation.
#[derive(Clone, Debug)]
pub(super) struct Op {
    pub(super) owner: Owner,
    task: Task,
    /// Drive operations in flight.
    in_flight: u32,
    /// Bytes that go through the processor between reads and writes.
    compute_bytes: u64,
    /// Writes to submit after the reads.
    writes: Vec<DriveIo>,
    /// Group and stripes that are locked.
    locked: Option<(GroupId, Range<StripeId>)>,
}

impl Op {
    fn new(owner: Owner, task: Task) -> Self {
        Self {
            owner,
            task,
            in_flight: 0,
            compute_bytes: 0,
            writes: Vec::new(),
            locked: None,
        }
    }
}

/// The one buffer that plans of an array without bytes refer to.
fn nothing(offset: u64, length: u64) -> Slice {
    Slice {
        buffer: BufferId::Request(RequestId(0)),
        offset,
        length,
    }
}

/// Joins reads that are neighbours on a drive.
fn join(ios: &mut Vec<DriveIo>) {
    if ios.len() < 2 {
        return;
    }
    ios.sort_by_key(|io| (io.seat, io.offset));
    ios.dedup_by(|next, last| {
        let adjacent = last.seat == next.seat
            && last.kind == next.kind
            && last.offset + last.length == next.offset;
        if adjacent {
            last.length += next.length;
        }
        adjacent
    });
}

/// Bytes that the steps of a plan process, for the time of the computation.
fn compute_bytes(plan: &Plan) -> u64 {
    let steps = plan.steps.iter();
    steps
        .map(|step| step.terms.len() as u64 * step.target.length)
        .sum()
}

impl PlainArray {
    // --- drives ------------------------------------------------------------------------------

    fn submit(&mut self, op: usize, io: DriveIo) {
        let spindle = self.spindles[io.seat.index()];
        let operation = Operation {
            token: op as u64,
            kind: io.kind,
            offset: spindle.offset + io.offset,
            length: io.length,
        };
        self.ops[op].in_flight += 1;
        self.drives[spindle.drive].handle_operation(block::Instant(self.now), operation);
        self.note_due(spindle.drive);
    }

    /// A drive has done one of an operation's transfers.
    pub(super) fn io_ended(&mut self, token: u64) {
        self.ios += 1;
        self.note(token);
        let key = usize::try_from(token).expect("a key");
        let op = &mut self.ops[key];
        op.in_flight -= 1;
        if op.in_flight == 0 {
            self.stage_ended(key);
        }
    }

    /// No transfer of an operation is in flight: the operation computes, writes, or ends.
    fn stage_ended(&mut self, key: usize) {
        let op = &mut self.ops[key];
        if op.writes.is_empty() {
            self.end(key, Ok(()));
            return;
        }
        let bytes = std::mem::take(&mut op.compute_bytes);
        match self.servers.compute(self.now, bytes) {
            at if at > self.now => self.set_timer(at, Timer::Computed(key)),
            _ => self.begin_writes(key),
        }
    }

    pub(super) fn begin_writes(&mut self, key: usize) {
        for io in std::mem::take(&mut self.ops[key].writes) {
            self.submit(key, io);
        }
    }

    /// Hands an operation's reads to the drives.
    fn begin_reads(&mut self, key: usize, reads: &[DriveIo]) {
        for &io in reads {
            self.submit(key, io);
        }
        if reads.is_empty() {
            self.stage_ended(key);
        }
    }

    fn end(&mut self, key: usize, outcome: Outcome) {
        let op = self.ops.remove(key);
        // Release the lock first: an operation that begins now may get the same key.
        let ready = match op.locked {
            Some((group, stripes)) => self.locks.release(key as u64, group, stripes),
            None => Vec::new(),
        };
        match op.owner {
            Owner::Request(request) => self.part_ended(request, outcome),
            Owner::Destage { offset, length } => self.destaged(offset, length),
            Owner::Rebuild { cell, bytes } => self.rebuild_step_ended(cell, bytes, outcome),
        }
        for next in ready {
            self.locked(usize::try_from(next).expect("a key"));
        }
    }

    /// Queues an operation for the locks of its stripes.
    fn lock(&mut self, op: Op, group: GroupId, stripes: Range<StripeId>) {
        let key = self.ops.insert(op);
        self.ops[key].locked = Some((group, stripes.clone()));
        if self.locks.acquire(key as u64, group, stripes) {
            self.locked(key);
        }
    }

    /// An operation has the locks of its stripes.
    fn locked(&mut self, key: usize) {
        let op = &mut self.ops[key];
        let (group, stripes) = op.locked.clone().expect("it has just got them");
        match std::mem::replace(&mut op.task, Task::Started) {
            Task::Write(segments) => self.write_stripe(key, group, stripes.start, &segments),
            Task::Rebuild => {
                let Owner::Rebuild { cell, .. } = op.owner else {
                    unreachable!("only a rebuild has such a task");
                };
                match self.plan_rebuild_step(cell, group, stripes) {
                    Some((reads, writes, bytes)) => {
                        let op = &mut self.ops[key];
                        op.writes = writes;
                        op.compute_bytes = bytes;
                        self.begin_reads(key, &reads);
                    }
                    None => self.end(key, Err(Fault::Lost)),
                }
            }
            Task::Started => unreachable!("it had no lock to wait for"),
        }
    }

    pub(super) fn lock_rebuild_step(
        &mut self,
        (cell, bytes): (usize, u64),
        group: GroupId,
        stripes: Range<StripeId>,
    ) {
        let op = Op::new(Owner::Rebuild { cell, bytes }, Task::Rebuild);
        self.lock(op, group, stripes);
    }

    fn open(&mut self, owner: Owner) {
        if let Owner::Request(request) = owner {
            self.requests[request].open += 1;
        }
    }

    pub(super) fn columns(&self, group: GroupId) -> Vec<ColumnState> {
        self.view.columns(&self.geometry, group)
    }

    // --- reads -------------------------------------------------------------------------------

    /// Reads a range of the volume.
    pub(super) fn read_range(&mut self, owner: Owner, offset: u64, length: u64) {
        let low = offset / BLOCK_BYTES * BLOCK_BYTES;
        let high = (offset + length).next_multiple_of(BLOCK_BYTES);
        if low == high {
            return;
        }
        let key = self.ops.insert(Op::new(owner, Task::Started));
        self.open(owner);
        if self.whole && self.lies_in_one_chunk(low, high) {
            let io = self.locate(low, high - low);
            self.submit(key, io);
            return;
        }
        let mut ios = Vec::new();
        let mut compute = 0;
        let mut lost = false;
        for (group, stripe, segments) in self.stripes_of(low, high) {
            if self.whole {
                let columns: &[ColumnState] = &[];
                for &(slot, low, high) in &segments {
                    let slot = self.choose_copy(group, stripe, slot, columns);
                    ios.push(self.chunk_io(group, stripe, slot, (low, high)));
                }
                continue;
            }
            let columns = self.columns(group);
            if self.copies > 1 && columns.iter().any(ColumnState::readable) {
                for &(slot, low, high) in &segments {
                    let slot = self.choose_copy(group, stripe, slot, &columns);
                    let (column, chunk) = self.geometry.place(group, stripe, Form::Parity, slot);
                    let cell = columns[column.index()].source;
                    let cell = cell.expect("the choice is readable");
                    ios.push(DriveIo {
                        seat: cell.seat,
                        kind: IoKind::Read,
                        offset: self.geometry.drive_offset(cell, chunk) + low,
                        length: high - low,
                    });
                }
                continue;
            }
            let pieces: Vec<Piece> = segments
                .iter()
                .map(|&(slot, low, high)| Piece {
                    slot,
                    low,
                    slice: nothing(0, high - low),
                })
                .collect();
            let at = Stripe {
                geometry: &self.geometry,
                group,
                stripe,
                columns: &columns,
                form: Form::Parity,
                blocks: &AllOnDrive,
            };
            match plan_read(&mut self.plans, &at, &pieces, Scratch(ScratchId(0))) {
                Ok(plan) => {
                    compute += compute_bytes(&plan);
                    ios.extend(plan.reads.iter().map(DriveIo::from));
                }
                Err(_) => lost = true,
            }
        }
        if lost {
            self.end(key, Err(Fault::Lost));
            return;
        }
        join(&mut ios);
        self.ops[key].compute_bytes = compute;
        self.begin_reads(key, &ios);
    }

    fn lies_in_one_chunk(&self, low: u64, high: u64) -> bool {
        let chunk = self.geometry.chunk_bytes();
        low / chunk == (high - 1) / chunk
    }

    /// The single transfer of a read inside one chunk, in an array that is whole.
    fn locate(&mut self, low: u64, length: u64) -> DriveIo {
        let geometry = &self.geometry;
        let chunk_bytes = geometry.chunk_bytes();
        let group_bytes = geometry.group_data_bytes();
        let (group, in_group) = (GroupId(low / group_bytes), low % group_bytes);
        let stripe_bytes = geometry.stripe_data_bytes();
        let (stripe, in_stripe) = (StripeId(in_group / stripe_bytes), in_group % stripe_bytes);
        let element = usize::try_from(in_stripe / chunk_bytes).expect("an index");
        let slot = geometry.code().index(geometry.code().data()[element]);
        let at = in_stripe % chunk_bytes;
        let slot = self.choose_copy(group, stripe, slot, &[]);
        self.chunk_io(group, stripe, slot, (at, at + length))
    }

    fn chunk_io(
        &self,
        group: GroupId,
        stripe: StripeId,
        slot: usize,
        (low, high): (u64, u64),
    ) -> DriveIo {
        let (column, chunk) = self.geometry.place(group, stripe, Form::Parity, slot);
        let cell = self.geometry.home(group, column);
        DriveIo {
            seat: cell.seat,
            kind: IoKind::Read,
            offset: self.geometry.drive_offset(cell, chunk) + low,
            length: high - low,
        }
    }

    /// The element to read instead of `slot`: in a mirror any copy. If `columns` is empty, all copies are readable.
    fn choose_copy(
        &mut self,
        group: GroupId,
        stripe: StripeId,
        slot: usize,
        columns: &[ColumnState],
    ) -> usize {
        if self.copies < 2 {
            return slot;
        }
        self.turn += 1;
        let geometry = &self.geometry;
        let seat_of = |copy: usize| {
            let (column, _) = geometry.place(group, stripe, Form::Parity, copy);
            match columns.get(column.index()) {
                Some(column) => column.source.map(|cell| cell.seat),
                None => Some(geometry.home(group, column).seat),
            }
        };
        let queued = |seat: Seat| self.drives[self.spindles[seat.index()].drive].queued();
        let copies = (0..usize::from(self.copies))
            .filter_map(|copy| seat_of(copy).map(|seat| (copy, queued(seat))));
        self.mirror.choose(self.turn, copies).unwrap_or(slot)
    }

    /// Groups, stripes and elements of a range of whole blocks of the volume.
    fn stripes_of(&self, low: u64, high: u64) -> Vec<(GroupId, StripeId, Vec<Segment>)> {
        let group_bytes = self.geometry.group_data_bytes();
        let mut all = Vec::new();
        let mut at = low;
        while at < high {
            let group = at / group_bytes;
            let end = high.min((group + 1) * group_bytes);
            let request = array::GroupRequest {
                group: GroupId(group),
                request: Request {
                    kind: RequestKind::Read,
                    offset: at - group * group_bytes,
                    length: end - at,
                    fua: false,
                },
                buffer_offset: 0,
                volume: array::VolumeId::NONE,
            };
            for (stripe, segments) in self.geometry.stripes(&request) {
                let segments = segments.iter();
                let elements = segments.map(|part| (part.slot, part.low, part.high));
                all.push((GroupId(group), stripe.own_place(), elements.collect()));
            }
            at = end;
        }
        all
    }

    // --- writes ------------------------------------------------------------------------------

    /// Writes a range of the volume, stripe by stripe.
    pub(super) fn write_range(&mut self, owner: Owner, offset: u64, length: u64) {
        let low = offset / BLOCK_BYTES * BLOCK_BYTES;
        let high = (offset + length).next_multiple_of(BLOCK_BYTES);
        for (group, stripe, segments) in self.stripes_of(low, high) {
            self.open(owner);
            let op = Op::new(owner, Task::Write(segments));
            self.lock(op, group, stripe..stripe.next());
        }
    }

    fn write_stripe(&mut self, key: usize, group: GroupId, stripe: StripeId, segments: &[Segment]) {
        let columns = self.columns(group);
        let at = Stripe {
            geometry: &self.geometry,
            group,
            stripe,
            columns: &columns,
            form: Form::Parity,
            blocks: &AllOnDrive,
        };
        let mut offset = 0;
        let sources: Vec<Source> = segments
            .iter()
            .map(|&(slot, low, high)| {
                let slice = nothing(offset, high - low);
                offset += high - low;
                Source { slot, low, slice }
            })
            .collect();
        match plan_write(&mut self.plans, &at, &sources, Scratch(ScratchId(0))) {
            Ok(plan) => {
                let reads: Vec<DriveIo> = plan.reads.iter().map(DriveIo::from).collect();
                let op = &mut self.ops[key];
                op.compute_bytes = compute_bytes(&plan);
                op.writes = plan.writes.iter().map(DriveIo::from).collect();
                self.begin_reads(key, &reads);
            }
            Err(_) => self.end(key, Err(Fault::Lost)),
        }
    }

    /// Flushes the drives of all seats that are in.
    pub(super) fn flush_drives(&mut self, request: usize) {
        let owner = Owner::Request(request);
        let key = self.ops.insert(Op::new(owner, Task::Started));
        self.open(owner);
        let seats = (0..self.seats()).map(Seat);
        let flushes: Vec<DriveIo> = seats
            .filter(|&seat| !self.view.is_out(seat))
            .map(|seat| DriveIo {
                seat,
                kind: IoKind::Flush,
                offset: 0,
                length: 0,
            })
            .collect();
        self.begin_reads(key, &flushes);
    }
}
