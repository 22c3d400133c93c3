//! What an operation finds out about blocks and drives.

use std::collections::BTreeMap;

use format::Entry;
use plan::AssessedRow;

use crate::ids::JobId;
use crate::rare::Blank;

/// Whether an operation has asked the drives that failed its reads for something else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Probe {
    None,
    /// So many drives have not answered yet; and whether one has failed.
    Asks {
        left: usize,
        failed: bool,
    },
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
