//! What it takes to carry out the plan of an operation.

use plan::ScratchId;
use plan::action::Slice;

use crate::direct_writes::Turn;
use crate::room::Needs;

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
