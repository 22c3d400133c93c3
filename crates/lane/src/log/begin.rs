//! Decides which batch begins next, and which units are in it.
//!
//! If no batch is before it, a batch begins when all earlier inputs of this moment are known (`due`). Otherwise it
//! begins when enough units have gathered, or when no batch is before it any more.

use block::{Fault, Instant, Seat};
use format::seeded::{self, SeededFault};
use format::{BatchHeader, DESCRIPTOR_BYTES, VolumeId};
use plan::action::Action;

use super::batch::{Batch, State};
use super::shape::{Shape, data_columns_max};
use super::unit::descriptors_of;
use super::waiting::{Lot, weight};
use super::{BatchBuffer, DESCRIPTORS_MAX, Log, Unit, batch_memory, derived};
use crate::context::Context;
use crate::io::IoTable;
use crate::overlay::Overlay;
use crate::purpose::Computing;
use crate::ring::Placed;
use crate::shares::{Weights, divide};
use crate::writes::Writes;

/// The largest number of batches in flight.
const IN_FLIGHT_MAX: usize = 4;
/// Descriptors that must have gathered before a batch begins while another is in flight. With fewer it is cheaper if
/// the next batch takes later units along, because headers and drive operations are per batch. With many more, few
/// requests of a lane would be under way at once, and the lane would wait for its drives (`docs/performance.md`).
const GATHERED: usize = 12;
/// The largest number of stream batches in flight while commits come: a commit counts only when the batches before its
/// own do.
const STREAM_IN_FLIGHT_MAX: usize = 2;
/// The largest number of descriptors of a stream's batch while commits come.
const STREAM_DESCRIPTORS_MAX: usize = 192;

/// A unit, and its volume; `None` is the pool itself.
type Owned = (Option<VolumeId>, Unit);

/// The inputs, beside the log's own state, that decide whether a batch begins.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    /// The I/O table, for drives that are slow.
    pub(crate) ios: &'a IoTable,
    /// All earlier inputs of this moment are known: [`Log::take_due`].
    pub(crate) due: bool,
    /// Discards must end before a batch begins.
    pub(crate) held: bool,
    /// The number of stripes that are being written in place: their records follow.
    pub(crate) direct: usize,
    /// A checkpoint that makes room is under way, or will be tried again.
    pub(crate) room_comes: bool,
}

/// The result of an attempt to begin a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begun {
    /// Nothing has begun: nothing waits, or the waiting units may not begin yet.
    Nothing,
    /// A batch has begun. Another one may begin.
    Batch,
    /// No batch finds room before a checkpoint has ended.
    NoRoom,
    /// No batch finds room, and no checkpoint can make room: the waiting units are to be refused with this fault.
    Full(Fault),
}

impl Log {
    /// When [`take_due`](Self::take_due) is to be called.
    pub(crate) const fn due_at(&self) -> Option<Instant> {
        self.due
    }

    /// True if units that have waited for all inputs of their moment begin now. `timed_out`: all inputs before `now`
    /// are known. `refused`: nothing begins.
    pub(crate) fn take_due(&mut self, now: Instant, timed_out: bool, refused: bool) -> bool {
        let due = timed_out && !refused && self.due.is_some_and(|due| due <= now);
        if due || refused || self.waiting.is_empty() {
            self.due = None;
        }
        due
    }

    /// Begins the next batch, if one may begin now.
    pub(crate) fn begin(
        &mut self,
        cx: &mut Context,
        overlay: &mut Overlay,
        inputs: Inputs<'_>,
    ) -> Begun {
        if self.waiting.is_empty()
            || self.batches.len() >= IN_FLIGHT_MAX
            || self.is_blocked() && !self.waiting.logs_again()
            || self.has_gaps()
            || inputs.held
        {
            return Begun::Nothing;
        }
        let ready = self.lots_ready(cx.now, inputs);
        // One lot may be due although the other finds no room.
        if self.due.is_none() && self.some_lot_may_be_due(ready, inputs) {
            self.due = Some(cx.now);
        }
        if ready == [None, None] {
            return Begun::Nothing;
        }
        let mut ready = ready.into_iter().flatten();
        self.out_of_space = !ready.any(|lot| self.begin_batch(cx, overlay, inputs.ios, lot));
        match self.tail_fault {
            _ if !self.out_of_space => Begun::Batch,
            Some(fault) if !inputs.room_comes => Begun::Full(fault),
            _ => Begun::NoRoom,
        }
    }

    /// The lots of which a batch should begin, the lot whose turn it is first.
    fn lots_ready(&self, now: Instant, inputs: Inputs<'_>) -> [Option<Lot>; 2] {
        let ready = |&lot: &Lot| match self.waiting.urgent(lot) {
            _ if !self.waiting.has(lot) => false,
            _ if self.is_blocked() && lot == Lot::Streams => false,
            enough if enough >= GATHERED => {
                lot == Lot::Commits
                    || !self.waiting.has_commits(now)
                    || self.in_flight(lot) < STREAM_IN_FLIGHT_MAX
            }
            _ => inputs.due && self.may_begin_lone(lot, inputs),
        };
        self.waiting.in_turn().map(|lot| Some(lot).filter(ready))
    }

    /// True if a batch of few units may begin: none is in flight that it should wait for to take later units along.
    fn may_begin_lone(&self, lot: Lot, inputs: Inputs<'_>) -> bool {
        match lot {
            Lot::Commits => self.in_flight(lot) == 0,
            // Records of blocks in place take no room, and must not wait for commits that never end. They wait until as
            // many stripes are recorded as are still being written: each batch is an operation on several drives.
            Lot::Streams if self.waiting.urgent(lot) == 0 => {
                self.in_flight(lot) == 0 && self.waiting.count(lot) >= inputs.direct
            }
            Lot::Streams => self.batches.is_empty(),
        }
    }

    /// True if something waits only for the other inputs of this moment.
    fn some_lot_may_be_due(&self, ready: [Option<Lot>; 2], inputs: Inputs<'_>) -> bool {
        let mut lots = self.waiting.in_turn().into_iter();
        lots.any(|lot| {
            let waits = self.waiting.has(lot) && !ready.contains(&Some(lot));
            waits && self.may_begin_lone(lot, inputs)
        })
    }

    /// The number of batches of a lot in flight.
    fn in_flight(&self, lot: Lot) -> usize {
        let batches = self.batches.values();
        batches.filter(|batch| batch.lot == lot).count()
    }

    /// Takes the units that fit into one batch; false if there is no room for it.
    fn begin_batch(
        &mut self,
        cx: &mut Context,
        overlay: &mut Overlay,
        ios: &IoTable,
        lot: Lot,
    ) -> bool {
        if overlay.bytes() >= lot.share(batch_memory(cx)) {
            return false;
        }
        let seats = batch_seats(cx, ios);
        let live = u16::try_from(seats.len()).expect("seats are 16 bits");
        if live == 0 {
            self.tail_fault = self.tail_fault.or(Some(Fault::Lost));
            return false;
        }
        let parity = cx.geometry.code().tolerance().min(live - 1);
        let parity = parity.saturating_sub(u16::from(seeded::is(SeededFault::LessParity)));
        let widest = usize::from(data_columns_max(live, parity));
        let sides = (widest, usize::from(parity));
        let limit = self.ring.batch_blocks_max();
        let most = match lot {
            Lot::Streams if self.waiting.has_commits(cx.now) => STREAM_DESCRIPTORS_MAX,
            _ => DESCRIPTORS_MAX,
        };
        let fits = |blocks, bytes| {
            bytes <= most * DESCRIPTOR_BYTES
                && Shape::new(widest, sides.1, blocks, bytes).fits(limit)
        };
        let (owned, blocks, bytes) = self.gather(cx, overlay, lot, fits);
        let shape = Shape::cheapest(sides, (blocks, bytes), limit);
        let length = shape.length();
        let most = lot.share(self.ring.blocks());
        let place = self.ring.place_up_to(length, most);
        let Some(position) = place.filter(|_| !owned.is_empty()) else {
            self.waiting.give_back(lot, owned);
            return false;
        };
        self.waiting.went(lot);
        let sequence = self.sequences.begin();
        let weights = weights_of(&owned);
        let units: Vec<Unit> = owned.into_iter().map(|(_, unit)| unit).collect();
        let placed = Placed {
            sequence,
            position,
            length,
        };
        self.ring.take(placed, divide(length, &weights));
        // Each batch begins with another drive, so that no drive is part of all batches.
        let first = usize::try_from(sequence.0 % u64::from(live)).expect("below 2^16");
        let columns = shape.data + usize::from(parity);
        let header = BatchHeader {
            incarnation: self.incarnation,
            sequence,
            flushed: self.flushed(),
            seats: (0..columns)
                .map(|i| seats[(first + i) % seats.len()])
                .collect(),
            data_columns: u16::try_from(shape.data).expect("at most 64"),
            rows: u16::try_from(shape.rows).expect("a batch is short"),
            // These are computed when the blocks are laid out, but count towards the header's length.
            parity_crcs: vec![0; usize::from(parity) * shape.rows],
            descriptors: descriptors_of(&units),
        };
        assert_eq!(header.length(), length, "it is as long as was planned");
        self.lay(cx, overlay, (lot, units, weights), header, position);
        true
    }

    /// Takes the units of a lot for a batch, as many as fit, in turns from each of the volumes that have room. Returns
    /// them with the number of their blocks and the bytes of their descriptors.
    fn gather(
        &mut self,
        cx: &Context,
        overlay: &Overlay,
        lot: Lot,
        fits: impl Fn(usize, usize) -> bool,
    ) -> (Vec<Owned>, usize, usize) {
        let shared = self.waiting.is_shared(cx.now) && self.tail_fault.is_none();
        let memory_left = lot.share(batch_memory(cx)) - overlay.bytes();
        let ring_left = { lot.share(self.ring.blocks()) }.saturating_sub(self.ring.used());
        let ring = &self.ring;
        let may = |volume| {
            !shared
                || (ring.shares().may_take(volume, ring_left)
                    && overlay.shares().may_take(volume, memory_left))
        };
        let (mut units, mut blocks, mut bytes) = (Vec::new(), 0, 0);
        while let Some((volume, unit)) = self.waiting.next(lot, may) {
            let (more, all) = (blocks + unit.blocks.len(), bytes + unit.bytes());
            if !units.is_empty() && (!fits(more, all) || self.is_blocked() && !unit.again) {
                break;
            }
            (blocks, bytes) = (more, all);
            let unit = self.waiting.take(lot, volume).expect("just seen");
            units.push((volume, unit));
        }
        (units, blocks, bytes)
    }

    /// Begins to lay out a batch in memory of its own.
    fn lay(
        &mut self,
        cx: &mut Context,
        overlay: &mut Overlay,
        (lot, units, weights): (Lot, Vec<Unit>, Weights),
        header: BatchHeader,
        position: u64,
    ) {
        let sequence = header.sequence;
        let scratch = cx.fresh_scratch();
        let buffer = BatchBuffer::new(&header, scratch);
        let bytes = buffer.bytes(derived::blocks(&header));
        cx.actions.push_back(Action::Allocate(scratch, bytes));
        overlay.add_buffer(sequence, scratch, bytes, divide(bytes, &weights));
        let mut volumes = weights.into_keys();
        let alone = volumes.next().filter(|_| volumes.next().is_none());
        let mut batch = Batch {
            units,
            lot,
            volume: alone.flatten(),
            header,
            position,
            buffer,
            writes: Writes::default(),
            state: State::Laying,
            was_complete: false,
        };
        debug_assert!(
            batch.is_safe(cx),
            "batch {sequence} survives as many losses as the pool"
        );
        let mut work = batch.lay(&mut self.codes);
        if work.sums.is_empty() {
            work.puts = batch.headers(cx);
            cx.push_compute(Computing::Headed(sequence), work);
        } else {
            cx.push_compute(Computing::Laid(sequence), work);
        }
        self.batches.insert(sequence, batch);
    }
}

/// The seats that batches are written to: none with a slow drive, if there are enough others to survive as many losses.
fn batch_seats(cx: &Context, ios: &IoTable) -> Vec<Seat> {
    let live = cx.journal_seats();
    if !ios.any_suspect() {
        return live;
    }
    let swift = live.iter().copied();
    let swift: Vec<Seat> = swift.filter(|&seat| !ios.is_suspect(seat)).collect();
    if swift.len() > usize::from(cx.geometry.code().tolerance()) {
        swift
    } else {
        live
    }
}

/// The volumes' weights in a batch.
fn weights_of(units: &[Owned]) -> Weights {
    let mut weights = Weights::new();
    for (volume, unit) in units {
        *weights.entry(*volume).or_default() += weight(unit);
    }
    weights
}
