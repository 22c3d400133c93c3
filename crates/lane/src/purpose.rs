//! Why a drive operation or a computation is in flight. Its answer is routed by this purpose (`routes/ends.rs`, and
//! [`Lane::handle_computed`](super::Lane::handle_computed)).

use block::Seat;
use format::{PageName, Sequence};
use plan::{RequestId, ScratchId, Transfer};

use super::ids::{JobId, OpId};

/// The purpose of a drive operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Transfer number `index` of the reads (or writes) of an operation's plan.
    Transfer { op: OpId, transfer: Transfer },
    /// A drive's part of flush number `number`.
    Flush { number: u64, seat: Seat },
    /// A column of a batch of the log.
    Batch { sequence: Sequence, seat: Seat },
    /// Copies of pages that lie side by side (`pages/reads.rs`).
    PageRead { read: u64, seat: Seat },
    /// A read that shows whether a drive works at all.
    Probe { op: OpId },
    /// Logged blocks that are being written to their place.
    Install { transfer: Transfer },
    /// A page that is being written to one of its places.
    PageWrite { seat: Seat, offset: u64 },
    /// An anchor.
    Anchor { seat: Seat },
    /// A column of a batch that recovery writes again.
    Restore { seat: Seat },
    /// The pages of a cell whose drive has returned with part of its column.
    PageScan { job: JobId, seat: Seat },
    /// A read of recovery.
    Recovery { seat: Seat, index: usize },
    /// The second copy of a write, which goes to a drive's successor.
    Second { pair: u64 },
    /// A discard of an operation.
    Discard { op: OpId },
    /// A discard of the ring, which is empty.
    DiscardRing,
}

/// The purpose of a computation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) enum Computing {
    /// The steps and checksums of an operation's plan.
    Op(OpId),
    /// The checksums of the blocks that an operation has read.
    Verify(OpId),
    /// The blocks and parity of a batch, laid out in memory.
    Laid(Sequence),
    /// The headers of a batch.
    Headed(Sequence),
    /// The check of the copies of a page that were read.
    Page(PageName),
    /// The pages that the checkpoint writes.
    Paged,
    /// An anchor in this memory.
    Anchor(ScratchId),
    /// The pages of the cell that this job fills.
    PageScan(JobId),
    /// A read of a group that was never written: zeros.
    Zeros(RequestId),
    /// A step of recovery.
    Recovery,
}
