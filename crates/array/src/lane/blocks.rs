//! What a lane knows of the blocks of a group while it plans an operation.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::jobs::Held;
use super::ops::Op;
use super::overlay::{Bytes, Overlay};
use super::pages::PageCache;
use crate::format::{BlockName, Entry, PageName};
use crate::plan::{BlockState, Blocks};

/// What journal and pages say of blocks, as of an input.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries<'a> {
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
}

impl Entries<'_> {
    /// What is known of a block, wherever it is. `None` if its page is not in memory.
    pub(super) fn present(self, name: BlockName) -> Option<Entry> {
        let logged = self.overlay.get(name).map(|logged| logged.entry);
        logged.or_else(|| self.pages.entry(name))
    }

    /// What is known of a block that lies on its drive.
    pub(super) fn in_place(self, name: BlockName) -> Option<Entry> {
        match self.overlay.get(name) {
            Some(logged) if logged.bytes == Bytes::InPlace => Some(logged.entry),
            _ => self.pages.entry(name),
        }
    }
}

/// What a lane knows of a group's blocks while it plans an operation.
#[derive(Clone, Debug)]
pub(super) struct LaneBlocks<'a> {
    /// Without metadata every block is on its drive.
    pub(super) journaled: bool,
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
    pub(super) group: u64,
    /// What the cell that it fills has already.
    pub(super) held: Option<&'a Held>,
    /// A fill of a column that is nowhere goes on where nothing is left to go on from.
    pub(super) leaves_out_lost: bool,
    /// Blocks (column, block of its cell) that the operation has found bad.
    pub(super) bad: &'a BTreeSet<(u16, u64)>,
    /// Blocks that it should do without.
    pub(super) avoid: &'a BTreeSet<(u16, u64)>,
    /// Blocks whose entries are stale, or of rows of which nobody can tell what is stale in them.
    pub(super) distrusted: &'a BTreeSet<(u16, u64)>,
    /// Columns that it should do without.
    pub(super) avoided: &'a [u16],
    /// Pages that must be here before the plan can be trusted.
    pub(super) missing: RefCell<BTreeSet<PageName>>,
    /// Blocks that should be readable by where they are, and of which nothing is known.
    pub(super) unknown: RefCell<BTreeSet<(u16, u64)>>,
    /// Batches whose memory the plan may use.
    pub(super) pinned: RefCell<BTreeSet<u64>>,
}

impl<'a> LaneBlocks<'a> {
    /// What an operation finds in a pool with metadata, if it does without nothing but what it has found bad.
    pub(super) fn new(entries: Entries<'a>, op: &'a Op) -> Self {
        static NOTHING: BTreeSet<(u16, u64)> = BTreeSet::new();
        Self {
            journaled: true,
            overlay: entries.overlay,
            pages: entries.pages,
            group: op.group,
            held: None,
            leaves_out_lost: false,
            bad: &op.bad,
            avoid: &NOTHING,
            distrusted: op.arbitration.distrusted(),
            avoided: &[],
            missing: RefCell::default(),
            unknown: RefCell::default(),
            pinned: RefCell::default(),
        }
    }
}

impl Blocks for LaneBlocks<'_> {
    /// Of blocks whose pages are not here nothing is known. Should a plan touch one, its page is
    /// loaded, and the plan made anew.
    fn all_sound(&self) -> bool {
        let lacking = self.overlay.lacks_blocks() || self.pages.lack_entries();
        let nothing_against =
            self.bad.is_empty() && self.avoid.is_empty() && self.avoided.is_empty();
        let nothing_against = nothing_against && self.distrusted.is_empty();
        nothing_against && !(self.journaled && lacking)
    }

    fn state(&self, stripe: u64, column: u16, block: u64) -> BlockState {
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

    fn is_held(&self, column: u16, block: u64) -> bool {
        self.is_at_target(column, block, Held::holds)
    }

    fn may_be_held(&self, column: u16, block: u64) -> bool {
        self.is_at_target(column, block, Held::has_entry)
    }
}

impl LaneBlocks<'_> {
    fn is_at_target(
        &self,
        column: u16,
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

/// A block of group 0, for tests of single machines.
#[cfg(test)]
pub(super) const fn block(column: u16, block: u32) -> BlockName {
    BlockName {
        group: 0,
        column,
        block,
    }
}
