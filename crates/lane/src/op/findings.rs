//! What an operation has found out about blocks and drives. Its next plan goes by it, and repairs follow from it.

use std::collections::BTreeSet;

use block::Fault;
use format::Column;

use crate::arbitration::Arbitration;
use crate::rare::Rare;

/// The findings of one operation, over all of its plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Blocks (column, block of its cell) that could not be read, or were wrong: the plan avoids them.
    pub(crate) bad: BTreeSet<(Column, u64)>,
    /// Blocks whose entry was UNKNOWN although their column is readable.
    pub(crate) unknown: BTreeSet<(Column, u64)>,
    /// The search for stale blocks among the blocks that it reads.
    pub(crate) arbitration: Rare<Arbitration>,
    /// The blocks that its plan reconstructs have been compared with their entries.
    pub(crate) checked: bool,
    /// The number of blocks that were compared with their checksums.
    pub(crate) verified: u64,
    /// The number of times that failed reads have been tried again.
    pub(crate) retries: u8,
    pub(crate) probe: Probe,
    /// The worst fault of its reads.
    pub(crate) read_fault: Option<Fault>,
}

/// Whether an operation has asked the drives that failed its reads for something else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Probe {
    #[default]
    None,
    /// So many drives have not answered yet; and whether one has failed.
    Asks { left: usize, failed: bool },
    /// All of them have answered: the blocks are on bad sectors if they cannot be read now.
    Answered,
}
