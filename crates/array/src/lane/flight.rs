//! Drive operations in flight, and those that nobody waits for any more.
//!
//! ```text
//!   in flight ──── its drive answers ───────────────────────────► (its purpose goes on)
//!       └── its drive is out, or something else was quicker ──► straggler ── it answers ──► (its memory is free)
//! ```
//!
//! A *straggler* is still with the drive, which may yet write into the memory that it was given. So
//! scratch memory is given back only when the last straggler in it has come back, nothing is read
//! there again, and a request whose memory one holds is answered with its bytes elsewhere
//! ([`BounceBuffer`]).

use std::collections::BTreeMap;

use block::{BLOCK_BYTES, Fault, Instant, Outcome, Seat};

use super::ids::OpId;
use super::op::Task;
use super::{Lane, Purpose};
use crate::action::{Action, BufferId, Io, IoId, IoKind, Origin, Service, Slice};
use crate::format::PageName;
use crate::plan::{Piece, Transfer};
use crate::{RequestId, ScratchId};

/// How often a write that a drive could not do is tried again before the pool hears of it. Disks
/// have tried for seconds themselves; what one more attempt is good for is a cable or a path. A
/// failed read is not tried again but reconstructed and written anew, which is the better repair;
/// and a failed flush never, for what it should have covered may be gone.
pub(crate) const WRITE_RETRIES: u8 = 2;

/// A drive operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flight {
    pub(super) purpose: Purpose,
    pub(super) io: Io,
    /// When it was handed out.
    pub(super) since: Instant,
    /// How often it has been tried before.
    pub(super) tries: u8,
    /// Bytes of the drive operation that it is, or is a part of (`join.rs`).
    pub(super) span: u64,
    /// Not to be joined with others: it has failed with them.
    pub(super) alone: bool,
    /// It has been noticed to take long.
    pub(super) late: bool,
    /// What could be done about that has been done.
    pub(super) hedged: bool,
    /// It is the first part of a write to two drives (`twin.rs`).
    pub(super) pair: Option<u64>,
    /// Its drive has left the seat since: how it ends says nothing of the one that has it now.
    pub(super) left: bool,
}

impl Flight {
    /// Whether its drive may get it together with its neighbours; what has failed once goes alone.
    pub(super) const fn may_be_joined(&self) -> bool {
        !self.alone && self.tries == 0
    }
}

/// Operations that nobody waits for, and the memory that they keep.
#[derive(Clone, Debug, Default)]
pub(super) struct Stragglers {
    in_flight: BTreeMap<IoId, (Seat, Option<Slice>)>,
    /// Those that read copies of pages.
    copies: BTreeMap<IoId, Vec<PageName>>,
    /// Scratch memory to be given back when none of them is in it.
    kept: Vec<ScratchId>,
}

/// Where the bytes of a read are, if not in the memory that came with its request.
#[derive(Clone, Debug)]
pub(super) struct BounceBuffer {
    pub(super) scratch: ScratchId,
    /// Where the bytes of each piece should have gone.
    pub(super) home: Vec<Slice>,
}

fn overlap(a: Slice, b: Slice) -> bool {
    a.buffer == b.buffer && a.offset < b.offset + b.length && b.offset < a.offset + a.length
}

impl Stragglers {
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    /// Whether a drive still has some of them.
    pub(super) fn are_with(&self, seat: Seat) -> bool {
        self.in_flight.values().any(|&(other, _)| other == seat)
    }

    pub(super) fn hold(&self, buffer: BufferId) -> bool {
        let slices = self.in_flight.values().filter_map(|&(_, slice)| slice);
        slices.map(|slice| slice.buffer).any(|held| held == buffer)
    }

    fn touch(&self, slice: Slice) -> bool {
        let mut slices = self.in_flight.values().filter_map(|&(_, slice)| slice);
        slices.any(|held| overlap(held, slice))
    }
}

impl Lane {
    pub(super) fn push_io(&mut self, purpose: Purpose, io: impl FnOnce(IoId) -> Io) {
        let id = IoId(self.cx.fresh());
        let io = io(id);
        self.push_flight(Flight {
            purpose,
            io,
            since: self.cx.now,
            tries: 0,
            span: io.length,
            alone: false,
            late: false,
            hedged: false,
            pair: None,
            left: false,
        });
    }

    /// Reads or writes the whole of a slice.
    pub(super) fn push_slice(
        &mut self,
        purpose: Purpose,
        seat: Seat,
        kind: IoKind,
        offset: u64,
        slice: Slice,
    ) {
        let service = self.service_of(purpose);
        self.push_io(purpose, |id| Io {
            id,
            seat,
            kind,
            offset,
            length: slice.length,
            slice: Some(slice),
            service,
        });
    }

    /// Begins what a plan says.
    pub(super) fn push_transfer_for(&mut self, purpose: Purpose, transfer: &Transfer) {
        let service = self.service_of(purpose);
        self.push_io(purpose, |id| transfer.io(id, service));
    }

    /// What an operation of this purpose is for.
    fn service_of(&self, purpose: Purpose) -> Service {
        match purpose {
            Purpose::Transfer { op, .. } => self.ops[&op].service,
            Purpose::Batch { sequence, .. } => self.batch_service(sequence),
            Purpose::Flush { .. } | Purpose::Second { .. } => Service::prompt(Origin::Log),
            Purpose::PageRead { .. } | Purpose::Anchor { .. } => {
                Service::prompt(Origin::Checkpoint)
            }
            Purpose::Install { .. }
            | Purpose::PageWrite { .. }
            | Purpose::Discard { .. }
            | Purpose::DiscardRing => Service::bulk(Origin::Checkpoint),
            Purpose::Restore { .. } | Purpose::Recovery { .. } => Service::prompt(Origin::Rebuild),
            Purpose::Look { .. } => Service::bulk(Origin::Rebuild),
        }
    }

    pub(super) fn push_flight(&mut self, mut flight: Flight) {
        let second = self.pair_up(&mut flight);
        for flight in [Some(flight), second].into_iter().flatten() {
            self.cx.actions.push_back(Action::Io(flight.io));
            self.joins.begins(&flight.io);
            self.balance.begins(&flight.io);
            self.ios.insert(flight.io.id, flight);
        }
        self.watch_begins();
    }

    /// A drive has answered.
    pub(super) fn answered(&mut self, id: IoId, outcome: Outcome) {
        self.joins.reads.ended(id);
        let Some(flight) = self.ios.remove(id) else {
            if !self.joined_ended(id, outcome) {
                self.straggler_ended(id);
            }
            return;
        };
        self.balance.ended(&flight.io);
        self.watch_ended(&flight);
        let write = matches!(flight.io.kind, IoKind::Write | IoKind::WriteZeroes);
        if write
            && outcome == Err(Fault::Medium)
            && flight.tries < WRITE_RETRIES
            && !self.cx.view.is_out(flight.io.seat)
        {
            let id = IoId(self.cx.fresh());
            self.push_flight(Flight {
                io: Io { id, ..flight.io },
                since: self.cx.now,
                tries: flight.tries + 1,
                late: false,
                ..flight
            });
            return;
        }
        self.flight_ended(&flight, outcome);
    }

    pub(super) fn flight_ended(&mut self, flight: &Flight, outcome: Outcome) {
        match (flight.pair, flight.purpose) {
            (_, Purpose::Second { pair }) => self.second_ended(pair, outcome),
            (Some(pair), _) => self.first_ended(pair, outcome),
            (None, purpose) if flight.left => self.left_ended(purpose, outcome),
            (None, purpose) => self.io_ended(purpose, outcome),
        }
    }

    pub(super) fn io_ended(&mut self, purpose: Purpose, outcome: Outcome) {
        match purpose {
            Purpose::Second { .. } => unreachable!("it ends with its pair"),
            Purpose::Transfer { op, transfer } => self.transferred(op, transfer, outcome),
            Purpose::Flush { number, seat } => self.flushed(number, seat, outcome),
            Purpose::Batch { sequence, seat } => self.batch_written(sequence, seat, outcome),
            Purpose::PageRead { read, seat } => self.page_read(read, seat, outcome),
            Purpose::Install { transfer } => self.install_written(transfer, outcome),
            Purpose::PageWrite { seat, offset } => self.page_written(seat, offset, outcome),
            Purpose::Anchor { seat } => self.anchor_written(seat, outcome),
            Purpose::Restore { seat } => self.column_restored(seat, outcome),
            Purpose::Look { job, seat } => self.looked(job, seat, outcome),
            Purpose::Recovery { seat, index } => self.recovery_read(seat, index, outcome),
            Purpose::Discard { op } => self.discarded(op, outcome),
            Purpose::DiscardRing => self.ring_discarded(),
        }
    }

    /// From now on nobody waits for an operation.
    pub(super) fn abandon(&mut self, id: IoId) -> Option<Flight> {
        let flight = self.ios.remove(id)?;
        self.balance.ended(&flight.io);
        let reads = &mut self.joins.reads;
        if reads.is_long(&flight.io) && reads.withdraw(id, flight.io.seat) {
            return Some(flight);
        }
        let straggler = (flight.io.seat, flight.io.slice);
        self.stragglers.in_flight.insert(id, straggler);
        Some(flight)
    }

    /// The same for a read of copies of these pages.
    pub(super) fn abandon_copies(&mut self, id: IoId, names: Vec<PageName>) {
        if self.abandon(id).is_some() {
            self.stragglers.copies.insert(id, names);
        }
    }

    /// The seat's drive is out: whatever it was asked has failed, whether it answers or not.
    pub(super) fn abandon_seat(&mut self, seat: Seat) {
        // The end of one may be the beginning of another.
        loop {
            let mut there = self.ios.iter();
            let found = there.find(|(_, flight)| flight.io.seat == seat);
            let Some(id) = found.map(|(id, _)| id) else {
                break;
            };
            drop(there);
            if let Some(flight) = self.abandon(id) {
                self.flight_ended(&flight, Err(Fault::Gone));
            }
        }
        self.joins.reads.forget(seat);
    }

    /// A drive has answered what nobody waits for.
    pub(super) fn straggler_ended(&mut self, id: IoId) {
        let known = self.stragglers.in_flight.remove(&id);
        let (seat, _) = known.unwrap_or_else(|| panic!("{id:?} is in flight"));
        let late = self.stragglers.copies.remove(&id);
        self.late_copies_came(seat, late.unwrap_or_default());
        let kept = std::mem::take(&mut self.stragglers.kept);
        for scratch in kept {
            self.release(scratch);
        }
        self.left();
    }

    /// Operations that drives have not answered and nobody waits for.
    #[must_use]
    pub fn stragglers(&self) -> usize {
        self.stragglers.len()
    }

    /// Gives scratch memory back as soon as no straggler is in it.
    pub(super) fn release(&mut self, scratch: ScratchId) {
        if self.stragglers.len() > 0 && self.stragglers.hold(BufferId::Scratch(scratch)) {
            self.stragglers.kept.push(scratch);
        } else {
            self.cx.actions.push_back(Action::Release(scratch));
        }
    }

    /// Before an operation is planned: what it will read goes to memory that no straggler writes.
    pub(super) fn use_bounce_buffer(&mut self, id: OpId) {
        if self.stragglers.len() == 0 {
            return;
        }
        let op = &self.ops[&id];
        match &op.task {
            Task::Read(pieces) if self.touched(pieces) => self.take_bounce_buffer(id),
            Task::Write(prepared) if prepared.allocated && !prepared.staged => {
                let (old, bytes) = prepared.staging.expect("it was allocated");
                if !self.stragglers.hold(BufferId::Scratch(old)) {
                    return;
                }
                let new = self.cx.fresh_scratch();
                let op = self.ops.get_mut(id).expect("just seen");
                let Task::Write(prepared) = &mut op.task else {
                    unreachable!("just seen");
                };
                prepared.move_staging((old, new), bytes);
                self.release(old);
            }
            _ => {}
        }
    }

    fn touched(&self, pieces: &[Piece]) -> bool {
        let mut slices = pieces.iter().map(|piece| piece.slice);
        slices.any(|slice| self.stragglers.touch(slice))
    }

    /// Has a read put its bytes into scratch memory of its own.
    fn take_bounce_buffer(&mut self, id: OpId) {
        let scratch = self.cx.fresh_scratch();
        let op = self.ops.get_mut(id).expect("the operation exists");
        let Task::Read(pieces) = &mut op.task else {
            unreachable!("only reads have pieces");
        };
        let home = match &op.bounce_buffer {
            Some(buffer) => buffer.home.clone(),
            None => pieces.iter().map(|piece| piece.slice).collect(),
        };
        let bytes = move_pieces(pieces, scratch);
        let old = op.bounce_buffer.replace(BounceBuffer { scratch, home });
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        if let Some(old) = old {
            self.release(old.scratch);
        }
    }

    /// A read has ended. If it has a bounce buffer: hand the buffer to the request, or free it.
    pub(super) fn leave_bounce_buffer(
        &mut self,
        buffer: BounceBuffer,
        task: &Task,
        reader: Option<RequestId>,
    ) {
        let request = reader.and_then(|reader| self.requests.get_mut(&reader));
        match (request, task) {
            (Some(request), Task::Read(pieces)) => {
                let now = pieces.iter().map(|piece| piece.slice);
                request.elsewhere.extend(buffer.home.into_iter().zip(now));
                request.bounce_buffers.push(buffer.scratch);
            }
            _ => self.release(buffer.scratch),
        }
    }
}

/// Moves pieces of a read into one buffer, where they are as aligned as on the drives; its size.
pub(super) fn move_pieces(pieces: &mut [Piece], scratch: ScratchId) -> u64 {
    let mut end = 0;
    for piece in pieces {
        let offset = end + piece.low % BLOCK_BYTES;
        piece.slice = Slice {
            buffer: BufferId::Scratch(scratch),
            offset,
            length: piece.slice.length,
        };
        end = (offset + piece.slice.length).next_multiple_of(BLOCK_BYTES);
    }
    end
}
