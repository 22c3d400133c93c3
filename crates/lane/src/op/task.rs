//! What an operation does.

use std::collections::BTreeMap;
use std::sync::Arc;

use format::{BlockName, Column, DataStripe, Entry, Form, StripeId};
use layout::Cell;
use plan::action::FormCounts;
use plan::{AssessedRow, Piece};

use super::{Held, Prepared};
use crate::ids::JobId;

/// What an operation does.
#[derive(Clone, Debug)]
pub(crate) enum Task {
    Read(Vec<Piece>),
    Write(Prepared),
    Fill {
        column: Column,
        target: Cell,
        avoid: Vec<Column>,
        /// The blocks that the target already has.
        held: Option<Arc<Held>>,
    },
    Zero,
    Resync,
    Scrub,
    /// Stripes get their other form.
    Convert(Convert),
    /// Blocks are reconstructed and written again.
    Repair(Repair),
    /// Blocks that are logged and cannot be put in place: they are logged again.
    Relog(Vec<BlockName>),
    /// Space that holds nothing is discarded on its drives.
    Discard(Discarded),
}

impl Task {
    /// The blocks that the target of a fill already has.
    pub(crate) fn held(&self) -> Option<&Held> {
        match self {
            Self::Fill { held, .. } => held.as_deref(),
            _ => None,
        }
    }
}

/// The blocks of a repair, and what is known of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repair {
    /// Blocks (element, first byte in it) that are reconstructed and written again.
    pub(crate) blocks: Vec<(usize, u64)>,
    /// Their entries when they were found bad.
    pub(crate) entries: BTreeMap<(usize, u64), Entry>,
    /// The scrub that waits for it.
    pub(crate) scrub: Option<JobId>,
    /// The lost elements of its rows, by its plan.
    pub(crate) assessed: Assessed,
}

impl Repair {
    /// A repair of these blocks, whatever their entries are.
    #[cfg(test)]
    pub(crate) fn of_test(blocks: Vec<(usize, u64)>) -> Self {
        Self {
            blocks,
            ..Self::default()
        }
    }
}

/// By stripe and byte of its elements: the data elements that are lost there, and those that the repair writes again.
/// Other elements are not listed: not all blocks that count as readable have been read.
pub(crate) type Assessed = Vec<(DataStripe, AssessedRow)>;

/// A step of a conversion: its aim, and what is known since it was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Convert {
    /// The form that stripes should have; `None`: they are only counted.
    pub(crate) to: Option<Form>,
    /// Stripes that are converted at most.
    pub(crate) most: u64,
    /// The stripes that are converted, each with the stripe of the group's data that it holds.
    pub(crate) chosen: Vec<(StripeId, DataStripe)>,
    pub(crate) counts: FormCounts,
}

impl Convert {
    pub(crate) const fn new(to: Option<Form>, most: u64) -> Self {
        Self {
            to,
            most,
            chosen: Vec::new(),
            counts: FormCounts {
                written: 0,
                copies: 0,
                converted: 0,
                left: 0,
                short: 0,
            },
        }
    }

    /// A drive has refused what the new form needs: nothing is converted.
    pub(crate) fn give_up(&mut self) {
        self.counts.left += self.chosen.len() as u64;
        self.chosen.clear();
    }

    /// There is no room for what the new form needs: nothing is converted.
    pub(crate) fn lacks_room(&mut self) {
        self.counts.short += self.chosen.len() as u64;
        self.give_up();
    }

    /// The stripes as they are at the end.
    pub(crate) fn counts(&self) -> FormCounts {
        let converted = self.chosen.len() as u64;
        let copies = match self.to {
            Some(Form::Copies) => self.counts.copies + converted,
            Some(Form::Parity) => self.counts.copies - converted,
            None => self.counts.copies,
        };
        FormCounts {
            copies,
            converted,
            ..self.counts
        }
    }
}

/// Why an operation discards its stripes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Discarded {
    /// They were made unwritten.
    Stripes,
    /// What only this form of them keeps was made unwritten: they were converted, or were copies when they were made
    /// unwritten.
    Form(Form),
    /// Their group belongs to no volume any more.
    Group,
}
