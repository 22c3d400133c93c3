//! Inputs and outputs of a lane: commands and requests, actions and events.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use block::{Fault, Outcome, RequestKind, Seat};
use format::{Column, Form, Generation, GroupId, Sequence, StripeId, VolumeId};
use layout::Cell;

use crate::Geometry;
use crate::losses::LostRange;
use crate::priority::{self, Priority};
use crate::room::RoomReport;

/// Names a request; chosen by the driver, unique among those in flight on a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Names a drive operation of this lane. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IoId(pub u64);

/// Names a computation of this lane. Never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ComputeId(pub u64);

/// Names scratch memory that the lane asked for. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ScratchId(pub u64);

/// A buffer by name. The lane never has the bytes: the engine provides aligned memory, a fault run small vectors, and a
/// study no memory at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BufferId {
    /// The memory that came with a request.
    Request(RequestId),
    /// Memory that the driver provides from `Action::Allocate` to `Action::Release`.
    Scratch(ScratchId),
}

/// Part of a buffer, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Whose bytes.
    pub buffer: BufferId,
    /// First byte in the buffer.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
}

impl Slice {
    /// The part of this slice that begins at `offset` and has `length` bytes.
    #[must_use]
    pub fn part(self, offset: u64, length: u64) -> Self {
        assert!(offset + length <= self.length, "part of a slice lies in it");
        Self {
            offset: self.offset + offset,
            length,
            ..self
        }
    }
}

/// The kind of a drive operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Fill the slice.
    Read,
    /// Write the slice.
    Write,
    /// Make the range read as zeros.
    WriteZeroes,
    /// The range holds no data any more: its space may be used for something else, and it may read as anything
    /// afterwards. A drive that takes no discards ends the operation with [`Fault::Invalid`].
    Discard,
    /// Make all completed writes durable.
    Flush,
}

/// The purpose of a drive operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client's request: its reads, and its writes where there is no log.
    Client,
    /// The log, and flushes.
    Log,
    /// Putting logged blocks in place; pages and anchors.
    Checkpoint,
    /// Filling cells, computing parity again, making groups blank, recovery.
    Rebuild,
    /// Scrubs, and repairing the errors that are found.
    Scrub,
}

/// The purpose of a drive operation, and whether others may pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// Its purpose.
    pub origin: Origin,
    /// Part of a large transfer, or no request waits for it: a drive that has both does short requests of clients
    /// first.
    pub bulk: bool,
    /// The volume whose client sent the request; `None` for the pool's own operations, or for clients of several
    /// volumes.
    pub volume: Option<VolumeId>,
}

impl Service {
    /// An operation that a request waits for.
    #[must_use]
    pub const fn prompt(origin: Origin) -> Self {
        Self {
            origin,
            bulk: false,
            volume: None,
        }
    }

    /// An operation that others may pass.
    #[must_use]
    pub const fn bulk(origin: Origin) -> Self {
        Self {
            origin,
            bulk: true,
            volume: None,
        }
    }

    /// A client's request.
    #[must_use]
    pub const fn of_client(volume: VolumeId, bulk: bool) -> Self {
        Self {
            origin: Origin::Client,
            bulk,
            volume: Some(volume),
        }
    }
}

/// One operation on one drive. The range is in bytes from the drive's start, block-aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Io {
    /// Comes back with the completion.
    pub id: IoId,
    /// Whose drive.
    pub seat: Seat,
    /// What to do.
    pub kind: IoKind,
    /// First byte on the drive.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Where the bytes come from or go to; `None` for zeroes and flush.
    pub slice: Option<Slice>,
    /// Its purpose.
    pub service: Service,
}

/// One operation on one drive whose bytes are in several buffers: neighbours on the drive that were begun together. The
/// range is like that of an [`Io`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Comes back with the completion. One outcome for the whole operation.
    pub id: IoId,
    /// Whose drive.
    pub seat: Seat,
    /// Read or write.
    pub kind: IoKind,
    /// First byte on the drive.
    pub offset: u64,
    /// Number of bytes, in all slices together.
    pub length: u64,
    /// Where the bytes come from or go to, in order; whole blocks.
    pub slices: Box<[Slice]>,
    /// Its purpose: bulk if all members are bulk.
    pub service: Service,
}

/// `target (^)= Σ coefficient · source` over GF(2^8), byte by byte. Without terms: zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ComputeStep {
    /// Where the sum goes.
    pub target: Slice,
    /// Whether the target's old bytes are one of the summands.
    pub accumulate: bool,
    /// Sources, all of the target's length.
    pub terms: Vec<(Slice, u8)>,
}

/// Work on memory, to be carried out in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compute {
    /// Comes back with `handle_computed`.
    pub id: ComputeId,
    /// Bytes of the lane's own (headers, metadata) to copy into buffers; whole blocks. Shared: the header of a batch
    /// goes before each of its columns.
    pub puts: Vec<(Slice, Arc<[u8]>)>,
    /// Carried out in this order.
    pub steps: Vec<ComputeStep>,
    /// Whole blocks of which to compute the CRC-32C.
    pub sums: Vec<Slice>,
    /// Whole blocks whose bytes are returned to the lane.
    pub takes: Vec<Slice>,
}

/// The results of a [`Compute`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Computed {
    /// CRC-32C of each 4 KiB block of `sums`, in order.
    pub sums: Vec<u32>,
    /// The bytes of `takes`, in order.
    pub bytes: Vec<Vec<u8>>,
}

/// The end of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request.
    pub request: RequestId,
    /// How it ended.
    pub outcome: Outcome,
    /// Parts of the request's memory that a drive may still write into, each with the bounce buffer that has the bytes
    /// instead. The driver takes the bytes before it carries out another action. Empty except for reads that were
    /// answered while a drive had not answered yet.
    pub elsewhere: Vec<(Slice, Slice)>,
}

/// An action of the lane, for the driver to carry out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Provide `bytes` bytes under this name; their content does not matter.
    Allocate(ScratchId, u64),
    /// Start a drive operation and report its end through `handle_completion`.
    Io(Io),
    /// The same for neighbours on a drive, as one operation.
    Joined(Joined),
    /// Compute and report through `handle_computed`.
    Compute(Compute),
    /// The memory is no longer used.
    Release(ScratchId),
    /// Answer the client.
    Reply(Reply),
}

/// How long a drive may take for one operation before the pool is asked to do without it. Disks made for arrays give up
/// an operation after seven seconds; the limit must not be below that.
pub const DEADLINE: Duration = Duration::from_secs(10);

/// How often a write that a drive has failed is tried again before the fault is reported to the pool. Disks have tried
/// for seconds themselves; one more attempt helps against faults of a cable or a path. A failed read is not tried
/// again: its data is reconstructed and written again, which is the better repair. A failed flush is never tried again,
/// because the data that it should have covered may be gone.
pub const WRITE_RETRIES: u8 = 2;

/// Bytes of one cell that a step of a fill moves at most. A disk turns to another fill after each step: in a rebuild at
/// 7,200 rpm, arm and rotation take 42 % of its time with 1 MiB, 22 % with 4 MiB. The memory of a step is this many bytes
/// for each column that is read or written. Steps are shorter in rebuilds of many drives
/// ([`Geometry::fill_step_bytes`](crate::Geometry::fill_step_bytes)), and while clients send requests
/// (`lane/jobs/pace.rs`).
pub const FILL_STEP_BYTES: u64 = 4 << 20;

/// A command from the pool to a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The seat's drive is out, and that is durable on enough labels: from now on nothing waits for the drive, reads
    /// from it or writes to it. Its cells are absent.
    SeatOut(Seat),
    /// The same for several drives that are out since one generation. They go out in one step: a group that cannot be
    /// read without all of them has not changed since any of them was in.
    SeatsOut(Vec<Seat>),
    /// The seat's drive stays in use although an operation failed: data would be lost without it. Requests that waited
    /// for this decision end in an error.
    SeatKept(Seat),
    /// Drives that stay have refused the lane's work: it tries again now, also if nothing waits for it.
    TryAgain,
    /// A drive has the seat and answers, but none of its cells is current yet.
    SeatIn(Seat),
    /// Every cell of the seat is at home and current.
    SeatCurrent(Seat),
    /// The seat's drive is being replaced: everything that is written to it is also written to its successor.
    Twin {
        /// Whose drive.
        seat: Seat,
        /// The seat beyond the layout's that the successor has meanwhile.
        with: Seat,
    },
    /// The successor is the seat's drive, and that is durable. The driver attaches it to the seat in the same step.
    Succeed {
        /// The seat.
        seat: Seat,
        /// The seat that the successor had before.
        with: Seat,
        /// The columns (group, column) of this lane that the successor has; `None`: all columns of the old drive.
        filled: Option<BTreeSet<(GroupId, Column)>>,
    },
    /// The seat's drive is slow: read it only if no other drive can supply the data.
    Suspect(Seat),
    /// The drive is as quick as others again.
    Trust(Seat),
    /// Read the pages that describe these bytes of the group's data into memory, for callers that ask for their content
    /// (`Lane::extents`).
    ReadPages {
        /// Which group.
        group: GroupId,
        /// Range in its data.
        bytes: Range<u64>,
    },
    /// All copies of a block agree, even without checksums: any copy may be read.
    CopiesAgree,
    /// The seat's drive leaves the pool: no new batch of the journal is written to it. [`Event::JournalLeft`] follows when
    /// none counts there any more. `None`: no drive leaves.
    Leave(Option<Seat>),
    /// True: report [`Event::Clients`] from now on. False: stop that, and fills need not make way.
    ReportClients(bool),
    /// True: clients send requests to some lane, so fills make way. False: no clients do.
    MakeWay(bool),
    /// What an administrator has set for fills and scrubs.
    Steer(Steer),
    /// The pool grants what [`Event::WantsToMove`] has requested.
    MayMove {
        /// How much.
        bytes: u64,
    },
    /// Fill `target` completely with this column of the group. `avoid` names columns whose drives should not be read if
    /// the code can do without them.
    Fill {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// The cell to fill.
        target: Cell,
        /// Columns not to read, if possible.
        avoid: Vec<Column>,
        /// The target has everything of the column that was logged before this batch.
        holds: Option<Sequence>,
    },
    /// The record that makes `cell` the column's home is durable; at opening, it was before.
    Settle {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// Where it is now.
        cell: Cell,
    },
    /// Abandon a fill: write nothing more to its target.
    Abandon {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
    },
    /// A fill takes no further step while a more urgent one uses one of its drives, or goes on.
    Yield {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// It takes no further step.
        yields: bool,
    },
    /// Make the whole group read as zeros, parity included.
    Zero {
        /// Which group.
        group: GroupId,
    },
    /// These groups of volumes (first and count) were never written: they read as zeros, whatever drives hold. Writes
    /// to them wait for `Initialized`.
    Uninitialized(Vec<(u64, u64)>),
    /// These groups (first and count) belong to no volume any more, durably in the labels. Discard their cells once the
    /// journal holds nothing about them. Nothing waits for that.
    Freed(Vec<(u64, u64)>),
    /// The groups have been made blank, durably in the labels; or that failed, and the writes that wait for them fail.
    /// When a part of the first group has been written, report it: the groups behind them will soon be written.
    Initialized {
        /// Which groups, also of other lanes.
        groups: Range<GroupId>,
        /// How it ended.
        outcome: Outcome,
    },
    /// Compute the group's parity again from its data (after a stop that was not clean, in a pool without a journal).
    Resync {
        /// Which group.
        group: GroupId,
    },
    /// Before the first request: begin an empty journal (`fresh`), or read the existing one.
    Recover {
        /// The pool's generation.
        incarnation: Generation,
        /// Nothing has ever been logged.
        fresh: bool,
        /// Seats that are out and whose drives have no part of the journal that counts.
        gone: Vec<Seat>,
        /// Seats that are out and whose drives are there: only the journal on them is read.
        sources: Vec<Seat>,
    },
    /// At opening: this data of the lane's groups is lost.
    KnowLost(Vec<LostRange>),
    /// Report about room on drives that know their use (`Event::Room`), and give back what is not used.
    AskRoom {
        /// The number of the round.
        round: u64,
        /// Whether writes wait for room, in some lane: then put in place what is logged.
        pressed: bool,
    },
    /// Writes may charge so much in all, by seat; `None`: without limit.
    GrantRoom {
        /// By seat.
        limits: Vec<Option<u64>>,
        /// There is no more room, and none will be freed: writes that find none end.
        last: bool,
    },
    /// Put everything that is logged in place.
    Checkpoint,
    /// The pool has another table of pieces, with more drives or more groups, and that is durable. Columns whose home the
    /// table changes were settled where they are before. The drives in new seats answer, and have no cells yet.
    Grow(GrownGeometry),
    /// Give stripes of the group this form, where they are and as far as they can be converted now, and count them.
    Convert {
        /// Which group.
        group: GroupId,
        /// Which of its stripes.
        stripes: Range<StripeId>,
        /// The form; `None`: they are only counted.
        to: Option<Form>,
        /// Stripes that are converted at most.
        most: u64,
    },
    /// Convert no more stripes of a group, or of any: what is under way ends, as [`Event::Converted`] with the fault
    /// `Shutdown`.
    StopConverting {
        /// Which group; `None`: all.
        group: Option<GroupId>,
    },
    /// Read the whole group, compare it with its checksums, and repair what is wrong.
    Scrub {
        /// Which group.
        group: GroupId,
    },
    /// Take no more steps of this scrub; it ends with [`Event::Scrubbed`] and [`Fault::Shutdown`].
    AbandonScrub {
        /// Which group.
        group: GroupId,
    },
}

/// The geometry of a pool from now on. Two of them are equal if they are the same one.
#[derive(Clone, Debug)]
pub struct GrownGeometry(pub Arc<Geometry>);

impl PartialEq for GrownGeometry {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for GrownGeometry {}

/// How fills and scrubs go on: what an administrator has set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steer {
    /// How they make way for clients.
    pub priority: &'static dyn Priority,
    /// No step begins.
    pub paused: bool,
    /// The pool meters the bytes that are moved: each step is requested by [`Event::WantsToMove`], and moves at most so
    /// many bytes (or one stripe).
    pub metered_bytes: Option<u64>,
}

impl Default for Steer {
    fn default() -> Self {
        Self {
            priority: priority::standard(),
            paused: false,
            metered_bytes: None,
        }
    }
}

/// Some stripes of a group, and how many of them have each form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FormCounts {
    /// Stripes that hold data of which something was written.
    pub written: u64,
    /// How many of them are copies now.
    pub copies: u64,
    /// How many have been converted.
    pub converted: u64,
    /// How many should have been converted, and could not be for now.
    pub left: u64,
    /// How many of these because there was no room for them.
    pub short: u64,
}

impl FormCounts {
    /// Adds others.
    pub const fn add(&mut self, others: Self) {
        self.written += others.written;
        self.copies += others.copies;
        self.converted += others.converted;
        self.left += others.left;
        self.short += others.short;
    }
}

/// A report of a lane. The pool acts on it; logs and the console show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation failed on a seat that is in, as far as the lane has been informed. Requests that need the decision
    /// about the seat wait for `SeatOut`.
    DriveFault {
        /// Whose drive.
        seat: Seat,
        /// The operation.
        kind: IoKind,
        /// First byte of the range.
        offset: u64,
        /// Its error.
        fault: Fault,
        /// Whether requests wait for `SeatOut` or `SeatKept` (writes and flushes do; a failed read is
        /// reconstructed at once).
        waiting: bool,
    },
    /// An operation of a drive takes much longer than others usually do.
    Late {
        /// Whose.
        seat: Seat,
    },
    /// A drive has not answered for [`DEADLINE`]. Reported repeatedly.
    Hangs {
        /// The lane that waits for it.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// A drive reported by `Hangs` has answered all operations that were so late.
    Answers {
        /// The lane that waited for it.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// Clients of a lane have begun to send requests, or have sent none for a while. Reported between
    /// [`Command::ReportClients`] with `true` and with `false`.
    Clients {
        /// Whose.
        lane: u16,
        /// Whether clients send requests.
        ask: bool,
    },
    /// A fill has covered more bytes of its column: they are at the target, though not durable yet.
    FillStepped {
        /// Which group.
        group: GroupId,
        /// Which column.
        column: Column,
        /// In this step.
        bytes: u64,
        /// Bytes that were read for it.
        read_bytes: u64,
        /// Blocks that were compared with their checksums.
        verified_blocks: u64,
    },
    /// A fill or a scrub waits until it may move so many bytes ([`Command::MayMove`]). A lane has one request open.
    WantsToMove {
        /// Whose.
        lane: u16,
        /// How much.
        bytes: u64,
    },
    /// A fill's target has the blocks of its column; the next checkpoint writes its pages. The drives that the fill
    /// read are not needed for it any more.
    Copied {
        /// Which group.
        group: GroupId,
        /// Which column.
        column: Column,
    },
    /// The target holds the column, and has been flushed.
    Filled {
        /// Which group.
        group: GroupId,
        /// Which column.
        column: Column,
        /// Where.
        target: Cell,
        /// Bytes that were written there; the target had the rest already, or the rest is zeros.
        copied_bytes: u64,
    },
    /// The fill could not be done: the drive failed, or the data is lost.
    FillFailed {
        /// Which group.
        group: GroupId,
        /// Which column.
        column: Column,
        /// Where it should have gone.
        target: Cell,
        /// Why.
        fault: Fault,
    },
    /// No operation that uses the column's old place is in flight.
    Settled {
        /// Which group.
        group: GroupId,
        /// Which column.
        column: Column,
    },
    /// A returned drive holds part of a column, and these blocks of the rest cannot be recovered.
    BlocksUnrecovered {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// How many blocks.
        blocks: u64,
    },
    /// The lane has no operation in flight any more on the drive of a seat that is out.
    SeatDrained {
        /// Which lane.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// The group reads as zeros.
    Zeroed {
        /// Which group.
        group: GroupId,
        /// How it ended.
        outcome: Outcome,
    },
    /// A group that was never written is to be written: it must be made blank first. Or, if no request waits: a part
    /// of a marked group has been written, so the groups behind it will soon be.
    WantsInitialized {
        /// Which group.
        group: GroupId,
    },
    /// The group's parity agrees with its data.
    Resynced {
        /// Which group.
        group: GroupId,
        /// How it ended.
        outcome: Outcome,
    },
    /// The journal has been read; requests may come.
    Recovered {
        /// Which lane.
        lane: u16,
        /// Batches that were found.
        batches: u64,
        /// `Lost` when a batch that had been flushed cannot be assembled.
        outcome: Outcome,
    },
    /// The checkpoint that the pool has requested leaves nothing in the lane's journal.
    JournalEmpty {
        /// This lane.
        lane: u16,
    },
    /// A drive that is out, or leaves, is not needed for the lane's journal any more: every batch that was written to it is
    /// in place, or is logged again on other drives.
    JournalLeft {
        /// This lane.
        lane: u16,
        /// Whose drive.
        seat: Seat,
    },
    /// Everything that was logged when the lane got `Checkpoint` is in place.
    Checkpointed {
        /// Which lane.
        lane: u16,
    },
    /// The group has been scrubbed.
    Scrubbed {
        /// Which group.
        group: GroupId,
        /// Blocks read.
        blocks: u64,
        /// How many of them were wrong.
        bad: u64,
        /// How many blocks were reconstructed and written again.
        mended: u64,
        /// How many blocks of data are lost.
        lost: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Stripes of the group have been counted, and converted as far as they could be.
    Converted {
        /// Which group.
        group: GroupId,
        /// Which of its stripes.
        stripes: Range<StripeId>,
        /// Their forms.
        forms: FormCounts,
        /// How it ended.
        outcome: Outcome,
    },
    /// In elastic pools: a checkpoint has put blocks of these groups in place, or made them unwritten. Stripes may count
    /// that did not, and stripes may be converted that could not be.
    GroupsChanged(Vec<GroupId>),
    /// Data that can neither be read nor reconstructed, and was not known to be so.
    BlocksLost(LostRange),
    /// Data that was lost has been written again, or was found to be right.
    BlocksFound(LostRange),
    /// Neighbouring blocks on a drive do not match what was written.
    BlockBad {
        /// Whose drive.
        seat: Seat,
        /// First byte on the drive.
        offset: u64,
        /// How many blocks.
        blocks: u64,
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
    },
    /// Blocks of a stripe that were bad have been reconstructed and written again.
    Repaired {
        /// Which group.
        group: GroupId,
        /// Which stripe of the group.
        stripe: StripeId,
        /// How many blocks.
        blocks: u64,
    },
    /// A copy of a page of checksums differed from the others: it is written again.
    PageMended {
        /// Whose drive.
        seat: Seat,
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
        /// The copy failed its own check; else it was intact, and older than the others.
        damaged: bool,
    },
    /// A drive that is in has only anchors that were overwritten long ago: it is older than its label.
    DriveOld {
        /// Whose.
        seat: Seat,
        /// The newest anchor that it has.
        anchor: u64,
        /// The newest of all drives.
        newest: u64,
    },
    /// No copy of a page of checksums is intact: its blocks are reconstructed.
    PageLost {
        /// Which group.
        group: GroupId,
        /// Which of its columns.
        column: Column,
    },
    /// The lane lacks room on drives that know their use, or will soon.
    WantsRoom {
        /// Which lane.
        lane: u16,
        /// Something may have become free since the last round.
        freed: bool,
    },
    /// The answer to [`Command::AskRoom`].
    Room(Box<RoomReport>),
    /// An operation has failed because drives that stay do not work: they have failed reads at two places.
    DrivesFail,
    /// A page read from a drive that is in has blocks with unknown checksums. They can be reconstructed.
    BlocksUnknown {
        /// Which group.
        group: GroupId,
    },
    /// Drives that cannot be spared refuse what the lane must write or flush. The lane tries again after waits that
    /// grow to seconds; requests end with the drives' error. Reported once, not for each try.
    Stalled {
        /// Which lane.
        lane: u16,
        /// The error of the drives.
        fault: Fault,
    },
    /// The lane's drives accept all operations again.
    Resumed {
        /// Which lane.
        lane: u16,
    },
    /// A stripe could not be read or written: more is lost than the code survives.
    StripeLost {
        /// Which group.
        group: GroupId,
        /// Which stripe of the group.
        stripe: StripeId,
        /// The kind of request.
        kind: RequestKind,
    },
}

impl fmt::Display for BufferId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Request(id) => write!(f, "request {}", id.0),
            Self::Scratch(id) => write!(f, "scratch {}", id.0),
        }
    }
}
