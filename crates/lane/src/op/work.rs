//! What it takes to carry out the plan of an operation.

use std::sync::Arc;

use format::Sequence;
use plan::ScratchId;
use plan::action::Slice;

use crate::direct_writes::Turn;
use crate::room::Needs;

/// The memory that an operation has, and what it needs there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Memory {
    /// The memory of its plan.
    pub(crate) scratch: Option<ScratchId>,
    /// Batches whose buffers its plan reads.
    pub(crate) pinned: Vec<Sequence>,
    /// Bytes that are copied into memory before its computation.
    pub(crate) puts: Vec<(Slice, Arc<[u8]>)>,
    /// The bounce buffer of a read, if a straggler may write into the read's own memory.
    pub(crate) bounce_buffer: Option<BounceBuffer>,
}

/// The memory of a read whose bytes are not in the memory of its request.
#[derive(Clone, Debug)]
pub(crate) struct BounceBuffer {
    pub(crate) scratch: ScratchId,
    /// Where the bytes of each piece belong.
    pub(crate) home: Vec<Slice>,
}

/// The state of an operation that writes in place.
#[derive(Clone, Debug)]
pub(crate) struct Direct {
    /// Plain CRC-32C of the blocks that it writes, in the order of `records::written_blocks`.
    pub(crate) sums: Vec<u32>,
    /// A drive has failed one of the writes.
    pub(crate) failed: bool,
    /// The turn in which it was planned.
    pub(crate) turn: Turn,
    /// What a conversion has been charged with, by drive.
    pub(crate) charged: Needs,
}
