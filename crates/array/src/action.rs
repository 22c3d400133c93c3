//! What goes into a lane and what comes out of it.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use block::{Fault, Outcome, RequestKind, Seat};
use layout::Cell;

use crate::VolumeId;
use crate::losses::LostRange;

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

/// A buffer by name. The lane never sees bytes: the engine lends aligned memory, a fault run
/// carries small vectors, and a study runs without any.
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

/// What a drive is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoKind {
    /// Fill the slice.
    Read,
    /// Write the slice.
    Write,
    /// Make the range read as zeros.
    WriteZeroes,
    /// Nothing in the range counts: its space may be used for something else, and it may read as anything afterwards. A
    /// drive that takes no discards ends it with [`Fault::Invalid`].
    Discard,
    /// Make all completed writes durable.
    Flush,
}

/// What a drive operation is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    /// A client's request: its reads, and its writes where there is no log.
    Client,
    /// The log, and flushes.
    Log,
    /// Putting in place what is logged; pages and anchors.
    Checkpoint,
    /// Filling cells, computing parity anew, making groups blank, recovery.
    Rebuild,
    /// Scrubs, and mending what is found to be bad.
    Scrub,
}

/// What a drive operation is for, and whether others may pass it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Service {
    /// What it is for.
    pub origin: Origin,
    /// It is part of much, or nobody waits for it: a drive that has both does short requests of clients first.
    pub bulk: bool,
    /// The volume whose client asks; `None` where the pool itself does, or clients of several volumes.
    pub volume: Option<VolumeId>,
}

impl Service {
    /// One for which somebody waits.
    #[must_use]
    pub const fn prompt(origin: Origin) -> Self {
        Self {
            origin,
            bulk: false,
            volume: None,
        }
    }

    /// One that others may pass.
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
    /// What it is for.
    pub service: Service,
}

/// One operation on one drive whose bytes lie in several places: neighbours that were begun together.
/// The range is as that of an [`Io`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// Comes back with the completion. One outcome for all of it.
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
    /// What it is for: bulk if all of it is.
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
    /// Bytes of the lane's own (headers, metadata) to lay into buffers; whole blocks. Shared: the
    /// header of a batch goes before each of its columns.
    pub puts: Vec<(Slice, Arc<[u8]>)>,
    /// In this order.
    pub steps: Vec<ComputeStep>,
    /// Whole blocks whose CRC-32C is wanted.
    pub sums: Vec<Slice>,
    /// Whole blocks that the lane wants to see.
    pub takes: Vec<Slice>,
}

/// What came out of a [`Compute`].
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
    /// Parts of the request's memory that a drive may still write into, and scratch memory that has
    /// their bytes. The driver takes them before it carries out another action. Empty but for
    /// reads that were answered without a drive that has not come back.
    pub elsewhere: Vec<(Slice, Slice)>,
}

/// What the driver must do.
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

/// What the pool tells a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// The seat's drive is out, and that is durable on enough labels: from now on nothing waits
    /// for it, reads from it or writes to it. Its cells are absent.
    SeatOut(Seat),
    /// The same for drives that are out since one generation: nothing happens between them, so that a group that
    /// cannot be read without all of them has not changed since any of them was there.
    SeatsOut(Vec<Seat>),
    /// The seat's drive stays in use although an operation failed: there is no redundancy left to
    /// do without it. What waited for the verdict ends in an error.
    SeatKept(Seat),
    /// A drive sits in the seat and answers, but none of its cells holds anything yet.
    SeatIn(Seat),
    /// Every cell of the seat is at home and current.
    SeatCurrent(Seat),
    /// The seat's drive is being replaced: all that is written to it is written to its successor too.
    Twin {
        /// Whose drive.
        seat: Seat,
        /// The seat behind the layout's that the successor has meanwhile.
        with: Seat,
    },
    /// The successor is the seat's drive, and that is durable. The driver attaches it to the seat in the same moment.
    Succeed {
        /// The seat.
        seat: Seat,
        /// The one that the successor had before.
        with: Seat,
        /// The columns (group, column) of this lane that it has; `None`: all that were on the drive before it.
        filled: Option<BTreeSet<(u64, u16)>>,
    },
    /// The seat's drive is slow: it is asked only what nobody else can answer.
    Suspect(Seat),
    /// It is as quick as others again.
    Trust(Seat),
    /// Pages that describe these bytes of the group's data are read into memory, for whoever asks what they hold
    /// (`Lane::extents`).
    ReadPages {
        /// Which group.
        group: u64,
        /// Of its data.
        bytes: Range<u64>,
    },
    /// Copies of a block are alike everywhere, though no checksums say so: any of them may be read.
    CopiesAgree,
    /// From now on [`Event::Clients`] is wanted; or not any more, and fills need not make way.
    ReportClients(bool),
    /// Clients ask for something, at some lane: fills make way for them. Or they do not any more.
    MakeWay(bool),
    /// Fill `target` with this column of the group, whole. `avoid` names columns whose drives
    /// should be spared if the code can do without them.
    Fill {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
        /// Where to.
        target: Cell,
        /// Columns not to read, if possible.
        avoid: Vec<u16>,
        /// The target has everything of the column that was logged before this batch.
        holds: Option<u64>,
    },
    /// The record that makes `cell` the column's home is durable; or, at opening, was.
    Settle {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
        /// Where it is now.
        cell: Cell,
    },
    /// Give up a fill: nothing is written to its target any more.
    Abandon {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// Make the whole group read as zeros, parity included.
    Zero {
        /// Which group.
        group: u64,
    },
    /// These groups of volumes (first and count) were never written: they read as zeros, whatever drives hold. Writes
    /// wait for `Initialized`.
    Uninitialized(Vec<(u64, u64)>),
    /// These groups (first and count) are of no volume any more, and the labels say so: their cells are discarded once
    /// nothing of the journal is about them. Nobody waits for that.
    Freed(Vec<(u64, u64)>),
    /// The groups have been made blank, and the labels say so; or they could not be, and what waits for them fails. The
    /// first write to the first of them is reported: those behind them will soon be written.
    Initialized {
        /// Which groups, also of other lanes.
        groups: Range<u64>,
        /// How it ended.
        outcome: Outcome,
    },
    /// Compute the group's parity anew from its data (after a stop that was not clean, in a pool
    /// without a journal).
    Resync {
        /// Which group.
        group: u64,
    },
    /// Before the first request: begin the journal anew (`fresh`), or read what is in it.
    Recover {
        /// The pool's generation.
        incarnation: u64,
        /// Nothing was ever logged.
        fresh: bool,
    },
    /// At opening: this data of the lane's groups is lost.
    KnowLost(Vec<LostRange>),
    /// Put everything that is logged in place.
    Checkpoint,
    /// Read the whole group, compare it with its checksums, and mend what is wrong.
    Scrub {
        /// Which group.
        group: u64,
    },
}

/// What a lane reports. The pool acts on it; logs and the console show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation failed on a seat that the lane believes to be well. Requests that need the
    /// seat's verdict wait for `SeatOut`.
    DriveFault {
        /// Whose drive.
        seat: Seat,
        /// What was asked of it.
        kind: IoKind,
        /// First byte of the range.
        offset: u64,
        /// What it said.
        fault: Fault,
        /// Whether requests wait for `SeatOut` or `SeatKept` (writes and flushes do; a failed read is
        /// reconstructed at once).
        waiting: bool,
    },
    /// A drive takes much longer than others usually do.
    Late {
        /// Whose.
        seat: Seat,
    },
    /// A drive has not answered for [`DEADLINE`](crate::DEADLINE). Told again and again.
    Hangs {
        /// Who waits for it.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// A drive of which `Hangs` was told has answered everything that it was asked so long ago.
    Answers {
        /// Who waited for it.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// Clients of a lane have begun to ask, or have asked for nothing for a while. Told between
    /// [`Command::ReportClients`] with `true` and with `false`.
    Clients {
        /// Whose.
        lane: u16,
        /// Whether they do.
        ask: bool,
    },
    /// A fill has gone past so many bytes of its column: they are at the target, though not for good yet.
    FillStepped {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
        /// In this step.
        bytes: u64,
    },
    /// A fill's target has the blocks of its column; the next checkpoint writes its pages. The drives that the fill
    /// read have nothing more to do for it.
    Copied {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
    },
    /// The target holds the column, and has been flushed.
    Filled {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
        /// Where.
        target: Cell,
        /// Bytes that were written there; the rest was there, or is zeros.
        copied_bytes: u64,
    },
    /// The fill could not be done: the drive failed, or the data is lost.
    FillFailed {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
        /// Where it should have gone.
        target: Cell,
        /// Why.
        fault: Fault,
    },
    /// No operation that still knew the column's old place is in flight.
    Settled {
        /// Which group.
        group: u64,
        /// Which column.
        column: u16,
    },
    /// A drive that came back holds part of a column, and of the rest these blocks are nowhere.
    BlocksUnrecovered {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
        /// How many blocks.
        blocks: u64,
    },
    /// Nothing that the lane has asked of the drive in a seat that is out is under way any more.
    SeatDrained {
        /// Which lane.
        lane: u16,
        /// Whose.
        seat: Seat,
    },
    /// The group reads as zeros.
    Zeroed {
        /// Which group.
        group: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// A group that was never written is to be: it must be made blank first. Or, where nothing waits, one that was
    /// marked has been written: those behind it will soon be.
    WantsInitialized {
        /// Which group.
        group: u64,
    },
    /// The group's parity agrees with its data.
    Resynced {
        /// Which group.
        group: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// The journal has been read; requests may come.
    Recovered {
        /// Which lane.
        lane: u16,
        /// Batches that were found.
        batches: u64,
        /// `Lost` when a batch that had been flushed cannot be put together.
        outcome: Outcome,
    },
    /// Everything that was logged when `Checkpoint` was told is in place.
    Checkpointed {
        /// Which lane.
        lane: u16,
    },
    /// The group has been scrubbed.
    Scrubbed {
        /// Which group.
        group: u64,
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
    /// Data that can neither be read nor reconstructed, and was not known to be so.
    BlocksLost(LostRange),
    /// Data that was lost has been written again, or was found to be right.
    BlocksFound(LostRange),
    /// Neighbouring blocks on a drive are not what was written there.
    BlockBad {
        /// Whose drive.
        seat: Seat,
        /// First byte on the drive.
        offset: u64,
        /// How many blocks.
        blocks: u64,
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// Blocks of a stripe that were bad have been reconstructed and written again.
    Repaired {
        /// Which group.
        group: u64,
        /// Which stripe of the group.
        stripe: u64,
        /// How many blocks.
        blocks: u64,
    },
    /// A copy of a page of checksums was not what the others are: it is written anew.
    PageMended {
        /// Whose drive.
        seat: Seat,
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
        /// It failed its own check; else it was whole, and older than the others.
        damaged: bool,
    },
    /// A drive that counts has only anchors that were overwritten long ago: it is older than its label.
    DriveOld {
        /// Whose.
        seat: Seat,
        /// The newest anchor that it has.
        anchor: u64,
        /// The newest of all drives.
        newest: u64,
    },
    /// A page of checksums was whole in none of its places: its blocks are reconstructed.
    PageLost {
        /// Which group.
        group: u64,
        /// Which of its columns.
        column: u16,
    },
    /// Of blocks on a drive that counts, no checksum is known, and that is how it was found: they can be reconstructed.
    BlocksUnknown {
        /// Which group.
        group: u64,
    },
    /// Drives that cannot be spared refuse what the lane must write or flush. The lane tries again after
    /// waits that grow to seconds; requests end with the drives' error. Told once, not for each try.
    Stalled {
        /// Which lane.
        lane: u16,
        /// What the drives say.
        fault: Fault,
    },
    /// The lane's drives take everything again.
    Resumed {
        /// Which lane.
        lane: u16,
    },
    /// A stripe could not be read or written: more is lost than the code survives.
    StripeLost {
        /// Which group.
        group: u64,
        /// Which stripe of the group.
        stripe: u64,
        /// What was asked.
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
