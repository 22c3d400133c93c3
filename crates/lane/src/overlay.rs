//! The overlay: blocks that are logged and not yet in place. For these blocks the overlay is the current state.
//!
//! The bytes are in the batches' own buffers. A buffer is kept as long as one of its blocks counts here, or an
//! operation in flight may read it.

use std::collections::BTreeMap;
use std::ops::Range;

use format::seeded::{self, SeededFault};
use format::{BlockName, Entry, GroupId, Sequence, StripeId, VolumeId};
use plan::ScratchId;
use plan::action::Slice;

use super::block_map::BlockMap;
use super::shares::Ledger;

/// Where the bytes of a logged block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// In a batch's buffer.
    Memory(Slice),
    /// In their place already: only the entry is not in its page yet.
    InPlace,
    /// Nowhere: the block changed while its column was absent.
    Nowhere,
}

impl Bytes {
    pub(super) const fn memory(self) -> Option<Slice> {
        match self {
            Self::Memory(slice) => Some(slice),
            Self::InPlace | Self::Nowhere => None,
        }
    }
}

/// A block that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Logged {
    /// Its bytes.
    pub(super) bytes: Bytes,
    /// Its entry, for its page, once the bytes are in place.
    pub(super) entry: Entry,
    /// The batch that logged it.
    pub(super) sequence: Sequence,
}

#[derive(Clone, Debug)]
struct Buffer {
    scratch: ScratchId,
    bytes: u64,
    /// The number of overlay blocks in this buffer.
    live: u64,
    /// The number of operations, and other users, that may still read this buffer.
    pins: u64,
}

/// The overlay of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    blocks: BlockMap<Logged>,
    /// Stripes that read as zeros except for newer blocks, by group and stripe, and the batch that zeroed each.
    zeroed: BTreeMap<(GroupId, StripeId), Sequence>,
    buffers: BTreeMap<Sequence, Buffer>,
    bytes: u64,
    /// The volumes' shares of the buffers.
    shares: Ledger,
    /// The number of blocks whose bytes are nowhere.
    nowhere: u64,
    /// The number of blocks that are in place.
    in_place: u64,
    /// Buffers that are not needed any more.
    free: Vec<ScratchId>,
}

impl Overlay {
    /// Checks the counters. `next`: the number of the next batch.
    ///
    /// # Panics
    /// When a counter does not match the blocks, or a block belongs to a batch that has not begun.
    pub(super) fn check(&self, next: Sequence) {
        let newest = self.blocks.values().map(|logged| logged.sequence).max();
        assert!(
            newest.is_none_or(|newest| newest < next),
            "batch {newest:?} is complete, and {next} is the next one"
        );
        let (mut nowhere, mut in_place) = (0, 0);
        let mut live: BTreeMap<Sequence, u64> = BTreeMap::new();
        for logged in self.blocks.values() {
            match logged.bytes {
                Bytes::Memory(_) => *live.entry(logged.sequence).or_default() += 1,
                Bytes::InPlace => in_place += 1,
                Bytes::Nowhere => nowhere += 1,
            }
        }
        assert_eq!((nowhere, in_place), (self.nowhere, self.in_place));
        for (sequence, &live) in &live {
            let counted = self.buffers.get(sequence).map(|buffer| buffer.live);
            assert_eq!(counted, Some(live), "blocks of batch {sequence} in memory");
        }
        for (sequence, buffer) in &self.buffers {
            let live = live.get(sequence).copied().unwrap_or(0);
            assert_eq!(buffer.live, live, "blocks of batch {sequence} in memory");
            assert!(
                live > 0 || buffer.pins > 0,
                "batch {sequence} is still needed"
            );
        }
        let bytes: u64 = self.buffers.values().map(|buffer| buffer.bytes).sum();
        assert_eq!(bytes, self.bytes);
    }

    /// True if there are blocks whose bytes are nowhere.
    pub(super) const fn lacks_blocks(&self) -> bool {
        self.nowhere > 0
    }

    /// The number of blocks that are in place and whose entries are not.
    pub(super) const fn blocks_in_place(&self) -> u64 {
        self.in_place
    }

    /// The blocks in place that such batches logged, in order of their names.
    pub(super) fn in_place(&self, such: impl Fn(Sequence) -> bool) -> Vec<BlockName> {
        let there = |logged: &Logged| logged.bytes == Bytes::InPlace && such(logged.sequence);
        let blocks = self.blocks.select(there);
        blocks.into_iter().map(|(name, _)| name).collect()
    }

    /// Clears the overlay. Its buffers are released ([`take_free`](Self::take_free)).
    pub(super) fn clear(&mut self) {
        let buffers = std::mem::take(&mut self.buffers);
        let mut free = std::mem::take(&mut self.free);
        free.extend(buffers.into_values().map(|buffer| buffer.scratch));
        *self = Self {
            free,
            ..Self::default()
        };
    }

    /// Adds a batch's buffer, and the volumes' shares of its bytes. The buffer stays while it is pinned.
    pub(super) fn add_buffer(
        &mut self,
        sequence: Sequence,
        scratch: ScratchId,
        bytes: u64,
        shares: Vec<(VolumeId, u64)>,
    ) {
        self.bytes += bytes;
        self.shares.take(sequence, shares);
        let buffer = Buffer {
            scratch,
            bytes,
            live: 0,
            pins: 1,
        };
        self.buffers.insert(sequence, buffer);
    }

    pub(super) fn pin(&mut self, sequence: Sequence) {
        if let Some(buffer) = self.buffers.get_mut(&sequence) {
            buffer.pins += 1;
        }
    }

    pub(super) fn unpin(&mut self, sequence: Sequence) {
        self.change(sequence, |buffer| buffer.pins -= 1);
    }

    fn change(&mut self, sequence: Sequence, change: impl FnOnce(&mut Buffer)) {
        let Some(buffer) = self.buffers.get_mut(&sequence) else {
            return;
        };
        change(buffer);
        if buffer.live == 0 && buffer.pins == 0 {
            self.bytes -= buffer.bytes;
            self.free.push(buffer.scratch);
            self.buffers.remove(&sequence);
            self.shares.give_back(sequence);
        }
    }

    /// The volumes' shares of the buffers' bytes.
    pub(super) const fn shares(&self) -> &Ledger {
        &self.shares
    }

    /// Takes the buffers that are to be released.
    pub(super) fn take_free(&mut self) -> Vec<ScratchId> {
        std::mem::take(&mut self.free)
    }

    /// Bytes of all buffers.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn get(&self, name: BlockName) -> Option<&Logged> {
        self.blocks.get(name)
    }

    /// The block, if this batch was the last to log it.
    pub(super) fn get_of(&self, name: BlockName, sequence: Sequence) -> Option<&Logged> {
        { self.get(name) }.filter(|logged| logged.sequence == sequence)
    }

    /// The same as [`get_of`](Self::get_of), quicker for look-ups in order of the names.
    pub(super) fn get_in_order<'a>(
        &'a self,
    ) -> impl FnMut(BlockName, Sequence) -> Option<&'a Logged> {
        let mut blocks = self.blocks.in_order();
        move |name, sequence| {
            blocks
                .get(name)
                .filter(|logged| logged.sequence == sequence)
        }
    }

    /// True if any of `count` blocks from `first` on is logged.
    pub(super) fn holds(&self, first: BlockName, count: u32) -> bool {
        self.blocks.has_any(first, count)
    }

    /// True if anything is logged of groups from `first` on.
    pub(super) fn has_groups_from(&self, first: GroupId) -> bool {
        let zeroed = self.zeroed.range((first, StripeId(0))..).next().is_some();
        zeroed || self.blocks.has_groups_from(first)
    }

    /// True if any stripe of a group reads as zeros where no block is logged.
    pub(super) fn has_zeroed(&self, group: GroupId) -> bool {
        let stripes = (group, StripeId(0))..(group.next(), StripeId(0));
        self.zeroed.range(stripes).next().is_some()
    }

    /// True if any stripe reads as zeros where no block is logged.
    pub(super) fn any_zeroed(&self) -> bool {
        !self.zeroed.is_empty()
    }

    /// True if the stripe reads as zeros where no block is logged.
    pub(super) fn is_zeroed(&self, group: GroupId, stripe: StripeId) -> bool {
        self.zeroed.contains_key(&(group, stripe))
    }

    /// The batch since which the stripe reads as zeros.
    pub(super) fn zeroed_since(&self, group: GroupId, stripe: StripeId) -> Option<Sequence> {
        self.zeroed.get(&(group, stripe)).copied()
    }

    /// A batch is complete: this is the block's content from now on.
    pub(super) fn insert(&mut self, name: BlockName, logged: Logged) {
        if seeded::is(SeededFault::EarlierWins) && self.blocks.get(name).is_some() {
            return;
        }
        if logged.bytes.memory().is_some() {
            self.change(logged.sequence, |buffer| buffer.live += 1);
        }
        self.nowhere += u64::from(logged.bytes == Bytes::Nowhere);
        self.in_place += u64::from(logged.bytes == Bytes::InPlace);
        if let Some(old) = self.blocks.insert(name, logged) {
            self.forget(old);
        }
    }

    fn forget(&mut self, old: Logged) {
        self.nowhere -= u64::from(old.bytes == Bytes::Nowhere);
        self.in_place -= u64::from(old.bytes == Bytes::InPlace);
        if old.bytes.memory().is_some() {
            self.change(old.sequence, |buffer| buffer.live -= 1);
        }
    }

    /// Stripes read as zeros from now on; `names` are all their blocks.
    pub(super) fn zero(
        &mut self,
        group: GroupId,
        stripes: Range<StripeId>,
        sequence: Sequence,
        names: impl Iterator<Item = BlockName>,
    ) {
        for name in names {
            if let Some(old) = self.blocks.remove(name) {
                self.forget(old);
            }
        }
        for stripe in StripeId::each(stripes) {
            self.zeroed.insert((group, stripe), sequence);
        }
    }

    /// All blocks of batches up to `sequence`, in order of the names.
    pub(super) fn up_to(&self, sequence: Sequence) -> Vec<(BlockName, Logged)> {
        self.blocks.select(|logged| logged.sequence <= sequence)
    }

    /// Zeroed stripes of batches up to `sequence`.
    pub(super) fn zeroed_up_to(&self, sequence: Sequence) -> Vec<((GroupId, StripeId), Sequence)> {
        self.zeroed
            .iter()
            .filter(|&(_, &since)| since <= sequence)
            .map(|(&stripe, &since)| (stripe, since))
            .collect()
    }

    /// These blocks, given in order, are in place, and so are their entries. Blocks that no newer batch has logged are
    /// removed from the overlay. `known` is called with entries that have become known since the blocks were collected.
    pub(super) fn installed<'a>(
        &mut self,
        installed: impl IntoIterator<Item = &'a (BlockName, Logged)>,
        mut known: impl FnMut(BlockName, Entry),
    ) {
        let mut blocks = std::mem::take(&mut self.blocks);
        blocks.remove_in_order(installed, |&(name, was), logged| {
            let same = logged.sequence == was.sequence;
            if same && logged.entry != was.entry {
                known(name, logged.entry);
            }
            let leaves = same || seeded::is(SeededFault::ForgetChanged);
            if leaves {
                self.forget(*logged);
            }
            leaves
        });
        self.blocks = blocks;
    }

    /// The content of a block that was nowhere is known again, and is being written to its place.
    pub(super) fn known(&mut self, name: BlockName, entry: Entry) {
        if let Some(logged) = self.blocks.get_mut(name) {
            self.nowhere -= u64::from(logged.bytes == Bytes::Nowhere);
            self.in_place += u64::from(logged.bytes != Bytes::InPlace);
            logged.bytes = Bytes::InPlace;
            logged.entry = entry;
        }
    }

    /// The entries of a stripe are *unwritten* now.
    pub(super) fn zeroes_installed(&mut self, stripe: (GroupId, StripeId), sequence: Sequence) {
        if self.zeroed.get(&stripe) == Some(&sequence) {
            self.zeroed.remove(&stripe);
        }
    }
}
