//! The operations on one stripe, decided as a value before anything is done.
//!
//! A [`Plan`] is lists of reads, of computations and of writes, carried out in this order, and nothing else. Deciding
//! (here) uses the code, the layout and the missing columns; doing (the lane) needs none of these. So a plan can be
//! printed, counted and tested alone, and the cost of a code on a workload *is* the count of its plans.
//!
//! ```text
//!   sub-stripe     a range of bytes that is the same in every element of the stripe: parity
//!                  at offset x depends only on data at offset x, so a write that covers elements unevenly
//!                  is cut into sub-stripes, each of which touches a fixed set of elements
//!
//!            element 0  |......########|      sub-stripe 2 (bytes 6..14 of elements 0, 1)
//!            element 1  |##############|      sub-stripe 1 (bytes 0..6 of elements 1, 2)
//!            element 2  |######........|
//! ```
//!
//! Commit point: the writes of a plan are logged as one record when its computations are done, and the request is
//! acknowledged when the record is logged; the blocks are put in place at the next checkpoint. Without a journal the
//! writes are issued together, and the request is acknowledged when all of them have completed.
//!
//! Beside plans the crate has what lanes and the pool agree on, as values: the pool's shape ([`Geometry`]), where columns
//! are ([`view`]), what goes into a lane and comes out of it ([`action`]), and what these say of lost data ([`Losses`]),
//! of room ([`room`]) and of making way for clients ([`priority`]).

pub mod action;
mod arbitrate;
mod bind;
mod convert;
mod fill;
pub mod geometry;
mod losses;
mod lost;
pub mod priority;
mod read;
pub mod room;
mod sub_stripe;
pub mod view;
mod write;

use std::fmt;
use std::ops::Range;

use block::{BLOCK_BYTES, Seat};
use erasure::{Code, ElementSet};
use format::{Column, Form, GroupId, StripeId};

pub use action::{
    Action, BufferId, Command, Compute, ComputeId, ComputeStep, Computed, DEADLINE, Event,
    FILL_STEP_BYTES, FormCounts, Io, IoId, IoKind, Joined, Origin, Reply, RequestId, ScratchId,
    Service, Slice, Steer, WRITE_RETRIES,
};
pub use arbitrate::{Row, Trial, plan_arbitrate, trials_of_row};
pub use convert::{data_of, may_become, plan_convert};
pub use fill::{plan_fill, plan_resync, plan_scrub, plan_zero};
pub use geometry::{Geometry, GeometryError, GroupRequest, Regions};
pub use losses::{Losses, LostRange};
use lost::lost_data;
pub use read::{Piece, plan_read};
pub use sub_stripe::{Operand, Preference, SubStripePlan, SubStripePlans, SubStripeStep};
use view::ColumnState;
pub use write::{AssessedRow, Source, assess_lost, plan_repair, plan_write};

/// The kind of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Every byte is read from its place.
    Read,
    /// Some bytes are reconstructed.
    DegradedRead,
    /// All data of the stripe is new: no reads.
    FullStripe,
    /// Parity changes by the difference of the data: reads old data and old parity.
    ReadModifyWrite,
    /// Parity is computed again: reads the data that does not change.
    ReconstructWrite,
    /// One of the two above, after reconstructing old elements that it needs.
    DegradedWrite,
    /// There is no parity to update.
    PlainWrite,
    /// A cell gets its column's elements.
    Fill,
    /// Parity is computed from data.
    Resync,
    /// A range is zeroed, parity included.
    Zero,
    /// Everything is read and compared with its checksums.
    Scrub,
    /// Blocks that were found bad are reconstructed.
    Repair,
    /// Blocks that are logged and have no place are logged again.
    Relog,
    /// Rows of a stripe that contradict themselves are read completely, to find the stale column.
    Arbitrate,
    /// Stripes get what their other form has beside their data.
    Convert,
}

/// One transfer between a drive and a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transfer {
    /// Whose drive.
    pub seat: Seat,
    /// Column of the group that it belongs to.
    pub column: Column,
    /// Read, write or zeroes.
    pub kind: IoKind,
    /// First byte on the drive.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The buffer's part; `None` for zeroes.
    pub slice: Option<Slice>,
}

impl Transfer {
    /// The drive operation.
    #[must_use]
    pub const fn io(&self, id: IoId, service: Service) -> Io {
        Io {
            id,
            seat: self.seat,
            kind: self.kind,
            offset: self.offset,
            length: self.length,
            slice: self.slice,
            service,
        }
    }

    /// Numbers of the cell's blocks that it covers.
    #[must_use]
    pub fn blocks(&self, geometry: &Geometry) -> Range<u64> {
        let first = geometry.block_of(self.offset);
        first..first + self.length / BLOCK_BYTES
    }
}

/// The operations on a stripe (or on a run of stripes that are filled together).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// The kind of the plan.
    pub kind: Kind,
    /// Bytes of scratch memory that its slices refer to.
    pub scratch_bytes: u64,
    /// Carried out first, together.
    pub reads: Vec<Transfer>,
    /// Carried out next, in order.
    pub steps: Vec<ComputeStep>,
    /// Parts that the first `first_steps` steps reconstruct. Each block is compared with its checksum before a later
    /// step uses it, and before it is returned, logged or written.
    pub recovered: Vec<Recovered>,
    /// Number of steps before that comparison.
    pub first_steps: usize,
    /// Carried out last, together.
    pub writes: Vec<Transfer>,
    /// Changes in columns that have no cell; for a fill, parts that no drive has.
    pub absent: Vec<Absent>,
    /// Blocks that a fill or a repair leaves as they are, because they can neither be read nor reconstructed. For a
    /// write, parity that becomes unknown because other blocks of the stripe are lost.
    pub lost: Vec<Absent>,
}

/// Part of a column that a plan reconstructs, or computes again to compare it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Which column of the group.
    pub column: Column,
    /// First byte in the column's cell.
    pub offset: u64,
    /// The row of its first block; the others follow.
    pub row: Row,
    /// Where its bytes are, whole blocks.
    pub slice: Slice,
}

/// Part of a column for which there is no cell, or no content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Absent {
    /// Which column of the group.
    pub column: Column,
    /// First byte in the column's cell.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Its content, if that is in memory.
    pub slice: Option<Slice>,
}

/// Where a block of a column can be found now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockState {
    /// In the column's cell, if the column has one.
    OnDrive,
    /// In memory, logged and not yet in place.
    InMemory(Slice),
    /// Never written: zeros.
    Zero,
    /// Not available: a read has failed, or the checksum does not match or is unknown.
    Unreadable,
}

/// The state of the blocks of a group.
pub trait Blocks: fmt::Debug {
    /// The form of a stripe.
    fn form(&self, stripe: StripeId) -> Form;

    /// State of block `block` of the column's cell, which belongs to `stripe`.
    fn state(&self, stripe: StripeId, column: Column, block: u64) -> BlockState;

    /// Whether the cell that is being filled with the column has the block already.
    fn is_held(&self, _column: Column, _block: u64) -> bool {
        false
    }

    /// Whether the cell that is being filled may have the block: its own entry is the same, which is no proof that the
    /// block was written. The checksum is compared when the block is read. Such a block is used if no other drive has
    /// it.
    fn may_be_held(&self, _column: Column, _block: u64) -> bool {
        false
    }

    /// Whether a fill continues where a block can neither be read nor reconstructed.
    fn leaves_out_lost(&self) -> bool {
        false
    }

    /// Whether all blocks of a chunk always have one state, so that the state of one of them is enough.
    fn is_uniform(&self) -> bool {
        false
    }

    /// Whether no block is known to be `Unreadable`, so that the states of untouched blocks need not be checked one by
    /// one.
    fn all_sound(&self) -> bool {
        false
    }
}

/// Every block is in its place.
#[derive(Clone, Copy, Debug)]
pub struct AllOnDrive;

impl Blocks for AllOnDrive {
    fn form(&self, _stripe: StripeId) -> Form {
        Form::Parity
    }

    fn state(&self, _stripe: StripeId, _column: Column, _block: u64) -> BlockState {
        BlockState::OnDrive
    }

    fn is_uniform(&self) -> bool {
        true
    }
}

/// More is lost than the code survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A planner's input about a stripe.
#[derive(Clone, Copy, Debug)]
pub struct Stripe<'a> {
    /// Code, layout and sizes.
    pub geometry: &'a Geometry,
    /// Which group.
    pub group: GroupId,
    /// Which of its stripes.
    pub stripe: StripeId,
    /// The form that the stripe has.
    pub form: Form,
    /// Where the group's columns are.
    pub columns: &'a [ColumnState],
    /// Where their blocks are.
    pub blocks: &'a dyn Blocks,
}

impl<'a> Stripe<'a> {
    /// Another stripe of the group, in the form that it has.
    pub fn at(&self, stripe: StripeId) -> Self {
        let form = self.blocks.form(stripe);
        Self {
            stripe,
            form,
            ..*self
        }
    }

    /// The code of its form.
    fn code(&self) -> &'a Code {
        self.geometry.code_of(self.form)
    }

    /// Where a slot is: its column, where the column is, and the chunk of the cell.
    fn place(&self, slot: usize) -> (Column, ColumnState, u64) {
        let place = (self.geometry).place(self.group, self.stripe, self.form, slot);
        let (column, chunk) = place;
        (column, self.columns[column.index()], chunk)
    }

    /// State of the block at byte `at` of an element.
    fn state(&self, slot: usize, at: u64) -> BlockState {
        let (column, place, chunk) = self.place(slot);
        let block = (chunk * self.geometry.chunk_bytes() + at) / BLOCK_BYTES;
        match self.blocks.state(self.stripe, column, block) {
            BlockState::OnDrive if !place.readable() => BlockState::Unreadable,
            state => state,
        }
    }

    /// Whether the cell that is being filled has the block at byte `at` of an element already.
    fn is_held(&self, slot: usize, at: u64) -> bool {
        let (column, _, chunk) = self.place(slot);
        let block = (chunk * self.geometry.chunk_bytes() + at) / BLOCK_BYTES;
        self.blocks.is_held(column, block)
    }

    /// Whether that cell may have the block.
    fn may_be_held(&self, slot: usize, at: u64) -> bool {
        let (column, _, chunk) = self.place(slot);
        let block = (chunk * self.geometry.chunk_bytes() + at) / BLOCK_BYTES;
        self.blocks.may_be_held(column, block)
    }

    /// Cuts `low..high` of a chunk into the longest runs of blocks for which `at` returns the same.
    fn runs<T: PartialEq>(&self, low: u64, high: u64, at: impl Fn(u64) -> T) -> Vec<(u64, u64, T)> {
        if self.blocks.is_uniform() && low < high {
            return vec![(low, high, at(low))];
        }
        runs(low, high, at)
    }

    fn is_readable(&self, slot: usize, at: u64) -> bool {
        self.state(slot, at) != BlockState::Unreadable
    }

    /// Elements that could be read at byte `at` if every block on a drive were valid.
    fn by_column(&self, at: u64) -> ElementSet {
        let logged = |slot| {
            let state = self.state(slot, at);
            matches!(state, BlockState::InMemory(_) | BlockState::Zero)
        };
        self.slots_where(|slot| self.place(slot).1.readable() || logged(slot))
    }

    /// Elements that can be read at byte `at`.
    fn readable_at(&self, at: u64) -> ElementSet {
        if self.blocks.all_sound() && self.columns.iter().all(ColumnState::readable) {
            return ElementSet::full(self.code().elements());
        }
        self.slots_where(|slot| self.is_readable(slot, at))
    }

    fn writable(&self) -> ElementSet {
        if self.columns.iter().all(ColumnState::writable) {
            return ElementSet::full(self.code().elements());
        }
        self.slots_where(|slot| self.place(slot).1.writable())
    }

    fn slots_where(&self, holds: impl Fn(usize) -> bool) -> ElementSet {
        let elements = self.code().elements();
        let mut set = ElementSet::new(elements);
        for slot in (0..elements).filter(|&slot| holds(slot)) {
            set.insert(slot);
        }
        set
    }

    /// Adds to the plan the operations that bring bytes `low..high` of an element into `slice`.
    fn fetch(&self, plan: &mut Plan, slot: usize, (low, high): (u64, u64), slice: Slice) {
        let (column, place, chunk) = self.place(slot);
        let kinds = self.runs(low, high, |at| match self.state(slot, at) {
            // Not joined with its neighbour: each block has memory of its own.
            BlockState::InMemory(memory) => (BlockState::InMemory(memory), at),
            state => (state, 0),
        });
        for (from, to, (state, _)) in kinds {
            let part = slice.part(from - low, to - from);
            let step = |terms| ComputeStep {
                target: part,
                accumulate: false,
                terms,
            };
            match state {
                BlockState::OnDrive => {
                    let cell = place
                        .source
                        .expect("the planner reads only what is readable");
                    plan.reads.push(Transfer {
                        seat: cell.seat,
                        column,
                        kind: IoKind::Read,
                        offset: self.geometry.drive_offset(cell, chunk) + from,
                        length: to - from,
                        slice: Some(part),
                    });
                }
                BlockState::InMemory(memory) => plan.steps.push(step(vec![(memory, 1)])),
                BlockState::Zero => plan.steps.push(step(Vec::new())),
                BlockState::Unreadable => unreachable!("the planner reads only what is readable"),
            }
        }
    }
}

/// Cuts `low..high` into the longest runs of blocks for which `at` returns the same.
fn runs<T: PartialEq>(low: u64, high: u64, at: impl Fn(u64) -> T) -> Vec<(u64, u64, T)> {
    let mut runs: Vec<(u64, u64, T)> = Vec::new();
    let mut from = low;
    while from < high {
        let to = high.min((from / BLOCK_BYTES + 1) * BLOCK_BYTES);
        let here = at(from);
        match runs.last_mut() {
            Some((_, end, last)) if *last == here => *end = to,
            _ => runs.push((from, to, here)),
        }
        from = to;
    }
    runs
}

/// Names of the buffers that a plan's slices refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scratch(pub ScratchId);

impl Scratch {
    fn slice(self, offset: u64, length: u64) -> Slice {
        Slice {
            buffer: BufferId::Scratch(self.0),
            offset,
            length,
        }
    }
}

impl Plan {
    /// A plan without operations.
    #[must_use]
    pub const fn new(kind: Kind) -> Self {
        Self {
            kind,
            scratch_bytes: 0,
            reads: Vec::new(),
            steps: Vec::new(),
            recovered: Vec::new(),
            first_steps: 0,
            writes: Vec::new(),
            absent: Vec::new(),
            lost: Vec::new(),
        }
    }

    /// Records that bytes `low..` of an element are reconstructed into `slice`.
    fn recovers(&mut self, stripe: &Stripe<'_>, slot: usize, low: u64, slice: Slice) {
        let (column, _, chunk) = stripe.place(slot);
        self.recovered.push(Recovered {
            column,
            offset: chunk * stripe.geometry.chunk_bytes() + low,
            row: Row {
                stripe: stripe.stripe,
                form: stripe.form,
                low,
            },
            slice,
        });
    }

    /// Joins transfers that are adjacent on the drive and in memory.
    fn merge_transfers(&mut self) {
        merge(&mut self.reads);
        merge(&mut self.writes);
    }

    /// Number of drive operations.
    #[must_use]
    pub fn io_count(&self) -> usize {
        self.reads.len() + self.writes.len()
    }
}

/// Joins transfers that are adjacent on the drive and in memory.
pub fn merge(transfers: &mut Vec<Transfer>) {
    transfers.sort_by_key(|transfer| (transfer.seat, transfer.offset));
    transfers.dedup_by(|next, last| {
        let adjacent = last.seat == next.seat
            && last.column == next.column
            && last.kind == next.kind
            && last.offset + last.length == next.offset;
        let joined = match (last.slice, next.slice) {
            (None, None) => None,
            (Some(a), Some(b)) if a.buffer == b.buffer && a.offset + a.length == b.offset => {
                Some(Slice {
                    length: a.length + b.length,
                    ..a
                })
            }
            _ => return false,
        };
        if adjacent {
            last.length += next.length;
            last.slice = joined;
        }
        adjacent
    });
}

impl fmt::Display for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = match self.kind {
            IoKind::Read => "read ",
            IoKind::Write => "write",
            IoKind::WriteZeroes => "zero ",
            IoKind::Discard => "drop ",
            IoKind::Flush => "flush",
        };
        write!(
            f,
            "{verb} seat {:<3} {:#010x} +{:<7}",
            self.seat.0, self.offset, self.length
        )?;
        match self.slice {
            Some(slice) => write!(f, " {slice}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.buffer {
            BufferId::Request(_) => "request",
            BufferId::Scratch(_) => "scratch",
        };
        write!(f, "{name}[{:#x} +{:#x}]", self.offset, self.length)
    }
}

impl fmt::Display for ComputeStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.accumulate { "^=" } else { "=" };
        write!(f, "compute {} {sign}", self.target)?;
        if self.terms.is_empty() {
            return write!(f, " 0");
        }
        for (index, (slice, coefficient)) in self.terms.iter().enumerate() {
            let plus = if index == 0 { "" } else { " ^" };
            match coefficient {
                1 => write!(f, "{plus} {slice}")?,
                _ => write!(f, "{plus} {coefficient}·{slice}")?,
            }
        }
        Ok(())
    }
}

impl fmt::Display for Plan {
    /// One line per read, computation and write, in the order in which they happen.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.kind)?;
        for transfer in &self.reads {
            writeln!(f, "  {transfer}")?;
        }
        for step in &self.steps {
            writeln!(f, "  {step}")?;
        }
        for transfer in &self.writes {
            writeln!(f, "  {transfer}")?;
        }
        if !self.writes.is_empty() {
            writeln!(f, "  commit when all writes have completed")?;
        }
        Ok(())
    }
}
