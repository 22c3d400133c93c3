//! The state of a group's blocks, as far as a lane has it in memory while it plans an operation.

use std::cell::RefCell;
use std::collections::BTreeSet;

use format::{BlockName, Column, Entry, Form, GroupId, PageName, Sequence, StripeId};
use plan::{BlockState, Blocks};

use super::entries::Entries;
use super::op::{Forms, Held, Op};
use super::overlay::{Bytes, Overlay};
use super::pages::PageCache;

/// The state of a group's blocks while an operation is planned.
#[derive(Clone, Debug)]
pub(super) struct LaneBlocks<'a> {
    /// False in a pool without metadata: there every block is on its drive.
    pub(super) journaled: bool,
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
    pub(super) group: GroupId,
    /// First of the operation's stripes, and the forms of all of them.
    pub(super) forms: (StripeId, &'a Forms),
    /// The blocks that the target of a fill already has.
    pub(super) held: Option<&'a Held>,
    /// A fill skips blocks that can neither be read nor reconstructed: its column has no other source.
    pub(super) leaves_out_lost: bool,
    /// Blocks (column, block of its cell) that the operation has found bad.
    pub(super) bad: &'a BTreeSet<(Column, u64)>,
    /// Blocks that are read only if there is no other way.
    pub(super) avoid: &'a BTreeSet<(Column, u64)>,
    /// Blocks whose entries are stale, and all blocks of rows in which the stale blocks cannot be identified.
    pub(super) distrusted: &'a BTreeSet<(Column, u64)>,
    /// Columns that are read only if there is no other way.
    pub(super) avoided: &'a [Column],
    /// Pages that must be in memory before the plan can be trusted.
    pub(super) missing: RefCell<BTreeSet<PageName>>,
    /// Blocks whose column is readable and whose entry is UNKNOWN.
    pub(super) unknown: RefCell<BTreeSet<(Column, u64)>>,
    /// Batches whose buffers the plan may read.
    pub(super) pinned: RefCell<BTreeSet<Sequence>>,
}

impl<'a> LaneBlocks<'a> {
    /// The blocks for an operation in a pool with metadata. Only blocks that the operation has found bad are avoided.
    pub(super) fn new(entries: Entries<'a>, op: &'a Op) -> Self {
        static NOTHING: BTreeSet<(Column, u64)> = BTreeSet::new();
        Self {
            journaled: true,
            overlay: entries.overlay,
            pages: entries.pages,
            group: op.group,
            forms: (op.stripes.start, &op.location.forms),
            held: None,
            leaves_out_lost: false,
            bad: &op.found.bad,
            avoid: &NOTHING,
            distrusted: op.found.arbitration.distrusted(),
            avoided: &[],
            missing: RefCell::default(),
            unknown: RefCell::default(),
            pinned: RefCell::default(),
        }
    }
}

impl Blocks for LaneBlocks<'_> {
    fn form(&self, stripe: StripeId) -> Form {
        let (first, forms) = self.forms;
        forms.of_stripe(stripe.0.wrapping_sub(first.0))
    }

    /// Blocks whose pages are not in memory count as sound. If a plan touches one of them, its page is loaded, and the
    /// operation is planned again.
    fn all_sound(&self) -> bool {
        let lacking = self.overlay.lacks_blocks() || self.pages.lack_entries();
        let nothing_against =
            self.bad.is_empty() && self.avoid.is_empty() && self.avoided.is_empty();
        let nothing_against = nothing_against && self.distrusted.is_empty();
        nothing_against && !(self.journaled && lacking)
    }

    fn state(&self, stripe: StripeId, column: Column, block: u64) -> BlockState {
        let sound = || {
            let without = self.bad.contains(&(column, block))
                || self.avoid.contains(&(column, block))
                || self.avoided.contains(&column);
            match without {
                true => BlockState::Unreadable,
                false => BlockState::OnDrive,
            }
        };
        if !self.journaled {
            return sound();
        }
        if self.distrusted.contains(&(column, block)) {
            return BlockState::Unreadable;
        }
        let name = BlockName {
            group: self.group,
            column,
            block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
        };
        if let Some(logged) = self.overlay.get(name) {
            return match logged.bytes {
                Bytes::Memory(slice) => {
                    self.pinned.borrow_mut().insert(logged.sequence);
                    BlockState::InMemory(slice)
                }
                // Given up by a conversion.
                Bytes::InPlace if logged.entry == Entry::UNWRITTEN => BlockState::Zero,
                Bytes::InPlace => sound(),
                Bytes::Nowhere => BlockState::Unreadable,
            };
        }
        if self.overlay.is_zeroed(self.group, stripe) {
            return BlockState::Zero;
        }
        match self.pages.entry(name) {
            None => {
                self.missing.borrow_mut().insert(name.page());
                sound()
            }
            Some(Entry::UNWRITTEN) => BlockState::Zero,
            Some(Entry::UNKNOWN) => {
                self.unknown.borrow_mut().insert((column, block));
                BlockState::Unreadable
            }
            Some(_) => sound(),
        }
    }

    fn is_uniform(&self) -> bool {
        let by_block = [self.bad, self.avoid, self.distrusted];
        !self.journaled && self.held.is_none() && by_block.iter().all(|blocks| blocks.is_empty())
    }

    fn leaves_out_lost(&self) -> bool {
        self.leaves_out_lost
    }

    fn is_held(&self, column: Column, block: u64) -> bool {
        self.is_at_target(column, block, Held::holds)
    }

    fn may_be_held(&self, column: Column, block: u64) -> bool {
        self.is_at_target(column, block, Held::has_entry)
    }
}

impl LaneBlocks<'_> {
    fn is_at_target(
        &self,
        column: Column,
        block: u64,
        has: impl Fn(&Held, BlockName, Entry) -> bool,
    ) -> bool {
        let Some(held) = self.held.filter(|held| held.column == column) else {
            return false;
        };
        let name = BlockName {
            group: self.group,
            column,
            block: u32::try_from(block).expect("cells have fewer than 2^32 blocks"),
        };
        let entry = self.pages.entry(name);
        self.overlay.get(name).is_none() && entry.is_some_and(|entry| has(held, name, entry))
    }
}

/// A block of group 0, for tests of single state machines.
#[cfg(test)]
pub(super) const fn block(column: Column, block: u32) -> BlockName {
    BlockName {
        group: GroupId(0),
        column,
        block,
    }
}
