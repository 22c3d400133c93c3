//! What an operation has found out about blocks and drives. Its next plan goes by it, and repairs follow from it.

use std::collections::{BTreeMap, BTreeSet};

use block::Fault;
use format::Entry;
use plan::AssessedRow;

use crate::arbitration::Arbitration;
use crate::ids::JobId;
use crate::rare::{Blank, Rare};

/// The findings of one operation, over all of its plans.
#[derive(Clone, Debug, Default)]
pub(crate) struct Findings {
    /// Blocks (column, block of its cell) that could not be read, or were wrong: the plan avoids them.
    pub(crate) bad: BTreeSet<(u16, u64)>,
    /// Blocks whose entry was UNKNOWN although their column is readable.
    pub(crate) unknown: BTreeSet<(u16, u64)>,
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

/// By stripe and byte of its elements: the data elements that are lost there, and those that the repair writes again.
/// Other elements are not listed: not all blocks that count as readable have been read.
pub(crate) type Assessed = Vec<(u64, AssessedRow)>;

/// The input and the results of a repair.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// The lost elements of its rows, by its plan.
    pub(crate) assessed: Assessed,
    /// The entries of its blocks when they were found bad.
    pub(crate) entries: BTreeMap<(usize, u64), Entry>,
    /// The scrub that waits for it.
    pub(crate) scrub: Option<JobId>,
}

impl Blank for Repair {
    fn blank() -> &'static Self {
        static BLANK: Repair = Repair {
            assessed: Assessed::new(),
            entries: BTreeMap::new(),
            scrub: None,
        };
        &BLANK
    }
}
