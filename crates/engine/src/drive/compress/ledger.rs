//! The use of a budget of physical space, block by block.
//!
//! ```text
//!   begin ──► growth is reserved ──► the drive below ──► end: the new lengths count
//!     └─► refused: the growth is more than what is left
//! ```
//!
//! Invariants:
//! - `used_bytes` is the sum of `lengths`, the physical bytes of each block.
//! - Used and reserved bytes together exceed the budget only if the content did so when it was counted, or if a change
//!   has failed halfway.
//! - A change has its blocks alone from [`begin`](Ledger::begin) to [`end`](Ledger::end): the caller sees to that. So
//!   the lengths are those of what the drive holds, whatever the order in which requests end.
//!
//! A change that makes blocks shorter gives their room back when it ends: until then the drive below may hold the
//! longer ones.

use std::ops::Range;

use block::Usage;

/// The unit that is counted.
pub(super) const BLOCK_BYTES: usize = 4096;

/// Physical bytes of the blocks of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// Zeros, which take no space.
    Zeros,
    /// By block.
    Lengths(Vec<u16>),
}

impl Content {
    /// The length of block `index` of the change.
    fn of(&self, index: usize) -> u16 {
        match self {
            Self::Zeros => 0,
            Self::Lengths(lengths) => lengths[index],
        }
    }

    fn sum(&self) -> u64 {
        match self {
            Self::Zeros => 0,
            Self::Lengths(lengths) => sum(lengths),
        }
    }
}

fn sum(lengths: &[u16]) -> u64 {
    lengths.iter().copied().map(u64::from).sum()
}

/// A budget has too little room for a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRoom;

/// A budget and its use.
#[derive(Debug)]
pub(super) struct Ledger {
    physical_bytes: u64,
    lengths: Vec<u16>,
    used_bytes: u64,
    /// Growth of changes that have begun and not ended.
    reserved_bytes: u64,
}

impl Ledger {
    /// A budget for `blocks` blocks of zeros.
    pub(super) fn new(physical_bytes: u64, blocks: usize) -> Self {
        Self {
            physical_bytes,
            lengths: vec![0; blocks],
            used_bytes: 0,
            reserved_bytes: 0,
        }
    }

    pub(super) const fn usage(&self) -> Usage {
        Usage {
            physical_bytes: self.physical_bytes,
            used_bytes: self.used_bytes + self.reserved_bytes,
        }
    }

    /// A change of `blocks` begins. Returns the bytes that are reserved for it. A change that adds nothing is never
    /// refused.
    pub(super) fn begin(&mut self, blocks: Range<usize>, content: &Content) -> Result<u64, NoRoom> {
        let before = sum(&self.lengths[blocks]);
        let growth = content.sum().saturating_sub(before);
        let used = self.used_bytes + self.reserved_bytes + growth;
        if growth > 0 && used > self.physical_bytes {
            return Err(NoRoom);
        }
        self.reserved_bytes += growth;
        Ok(growth)
    }

    /// The change for which `growth` was reserved has ended: this is what the blocks hold.
    pub(super) fn end(&mut self, blocks: Range<usize>, content: &Content, growth: u64) {
        self.reserved_bytes -= growth;
        self.set(blocks, content);
    }

    /// The change has failed, and nothing shows which blocks it has reached: each counts with the longer of its old and
    /// new content.
    pub(super) fn end_unknown(&mut self, blocks: Range<usize>, content: &Content, growth: u64) {
        let before = self.lengths[blocks.clone()].iter().enumerate();
        let longer = before.map(|(index, &before)| before.max(content.of(index)));
        let longer = Content::Lengths(longer.collect());
        self.end(blocks, &longer, growth);
    }

    /// What blocks hold, as it was counted.
    pub(super) fn set(&mut self, blocks: Range<usize>, content: &Content) {
        let lengths = &mut self.lengths[blocks];
        self.used_bytes -= sum(lengths);
        self.used_bytes += content.sum();
        for (index, length) in lengths.iter_mut().enumerate() {
            *length = content.of(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lengths(lengths: &[u16]) -> Content {
        Content::Lengths(lengths.to_vec())
    }

    #[test]
    fn two_changes_in_flight_do_not_share_the_last_room() {
        let mut ledger = Ledger::new(10, 4);
        let first = ledger.begin(0..2, &lengths(&[3, 3])).unwrap();
        assert_eq!(ledger.begin(2..3, &lengths(&[5])), Err(NoRoom));
        let second = ledger.begin(2..3, &lengths(&[4])).unwrap();
        assert_eq!(ledger.usage().used_bytes, 10);
        ledger.end(0..2, &lengths(&[3, 3]), first);
        ledger.end(2..3, &lengths(&[4]), second);
        assert_eq!(ledger.usage().used_bytes, 10);
        assert_eq!(ledger.begin(3..4, &lengths(&[1])), Err(NoRoom));
    }

    #[test]
    fn room_that_a_change_frees_is_free_when_it_has_ended() {
        let mut ledger = Ledger::new(10, 2);
        ledger.set(0..2, &lengths(&[8, 0]));
        let shrinks = ledger.begin(0..1, &Content::Zeros).unwrap();
        assert_eq!(ledger.begin(1..2, &lengths(&[3])), Err(NoRoom));
        ledger.end(0..1, &Content::Zeros, shrinks);
        assert_eq!(ledger.begin(1..2, &lengths(&[3])), Ok(3));
    }

    #[test]
    fn where_more_is_used_than_the_budget_what_adds_nothing_goes_on() {
        let mut ledger = Ledger::new(10, 3);
        ledger.set(0..3, &lengths(&[8, 8, 0]));
        assert_eq!(ledger.begin(2..3, &lengths(&[1])), Err(NoRoom));
        assert_eq!(ledger.begin(0..2, &lengths(&[9, 7])), Ok(0));
        assert_eq!(ledger.begin(2..3, &Content::Zeros), Ok(0));
    }

    #[test]
    fn a_change_that_failed_halfway_counts_the_longer_content_of_each_block() {
        let mut ledger = Ledger::new(20, 2);
        ledger.set(0..2, &lengths(&[5, 2]));
        let growth = ledger.begin(0..2, &lengths(&[1, 7])).unwrap();
        assert_eq!(growth, 1);
        ledger.end_unknown(0..2, &lengths(&[1, 7]), growth);
        assert_eq!(ledger.usage().used_bytes, 12);
    }

    /// Every sequence of four changes of three blocks, each of which ends at once, ends later or fails, against a sum
    /// that is computed anew each time.
    #[test]
    fn every_short_sequence_of_changes_counts_as_the_plain_sum_does() {
        const CONTENTS: [u16; 3] = [0, 2, 3];
        const BUDGET: u64 = 6;
        // A block, its content, and whether the change succeeds: 18 changes.
        let changes = 3 * CONTENTS.len() * 2;
        for sequence in 0..changes.pow(4) {
            let mut ledger = Ledger::new(BUDGET, 3);
            let mut model = [0_u16; 3];
            for step in 0..4 {
                let change = sequence / changes.pow(step) % changes;
                let (block, succeeds) = (change % 3, change / 9 == 0);
                let content = CONTENTS[change / 3 % 3];
                let mut after = model;
                after[block] = content;
                let fits = after[block] <= model[block] || sum(&after) <= BUDGET;
                let begun = ledger.begin(block..block + 1, &lengths(&[content]));
                assert_eq!(begun.is_ok(), fits, "sequence {sequence}, step {step}");
                if let Ok(growth) = begun {
                    model = if succeeds { after } else { model };
                    ledger.end(block..block + 1, &lengths(&[model[block]]), growth);
                }
                assert_eq!(ledger.usage().used_bytes, sum(&model));
                assert!(sum(&model) <= BUDGET);
            }
        }
    }

    proptest! {
        /// Changes of blocks that no other change in flight has, ending in any order.
        #[test]
        fn changes_in_flight_never_exceed_the_budget_and_leave_the_exact_sum(
            steps in prop::collection::vec((0_usize..8, prop::collection::vec(0_u16..=4096, 1..4), 0_usize..3), 1..60),
            budget in 1_u64..40_000,
        ) {
            let mut ledger = Ledger::new(budget, 12);
            let mut model = [0_u16; 12];
            let mut in_flight: Vec<(Range<usize>, Vec<u16>, u64)> = Vec::new();
            for (first, new, ends) in steps {
                let blocks = first..first + new.len();
                let free = |other: &(Range<usize>, Vec<u16>, u64)| other.0.end <= blocks.start || blocks.end <= other.0.start;
                if in_flight.iter().all(free)
                    && let Ok(growth) = ledger.begin(blocks.clone(), &Content::Lengths(new.clone()))
                {
                    in_flight.push((blocks, new, growth));
                }
                prop_assert!(ledger.usage().used_bytes <= budget);
                for _ in 0..ends.min(in_flight.len()) {
                    let (blocks, new, growth) = in_flight.swap_remove(0);
                    ledger.end(blocks.clone(), &Content::Lengths(new.clone()), growth);
                    model[blocks].copy_from_slice(&new);
                }
                let reserved: u64 = in_flight.iter().map(|(_, _, growth)| growth).sum();
                prop_assert_eq!(ledger.usage().used_bytes, sum(&model) + reserved);
            }
        }
    }
}
