//! Bookkeeping of direct writes, which go in place before they are logged (`direct.rs`): which stripes are written
//! together, and how much recovery would have to compare.
//!
//! ```text
//!   planned ─► computing ── the last of its turn ─► all of the turn are written ─► logged ── flushed ─► (forgotten)
//!                                                                                    └─ too much: flush ─┘
//! ```
//!
//! Invariants:
//! - Stripes that are planned in one turn, one call of a handler, are written together: neighbours on a drive become
//!   one operation.
//! - Blocks that are not known to be flushed are counted by batch, in the order of batches.

use std::collections::{BTreeMap, VecDeque};

use block::BLOCK_BYTES;
use format::Sequence;

use super::ids::OpId;

/// Bytes of all lanes that are in place and not known to be flushed. From this number on a lane begins a flush of its
/// own accord, so that recovery compares no more than about this.
const UNFLUSHED_MAX: u64 = 256 << 20;

/// The number of a turn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(u64);

/// Stripes that were planned in one turn.
#[derive(Clone, Debug, Default)]
struct Gathering {
    /// The number of stripes whose computation is in flight.
    computing: usize,
    ready: Vec<OpId>,
}

/// The direct writes of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct DirectWrites {
    gathering: BTreeMap<Turn, Gathering>,
    turn: Turn,
    /// Stripes that are being written to their places.
    in_flight: usize,
    /// Numbers of blocks by batch, for batches that are not known to be flushed.
    unflushed: VecDeque<(Sequence, u64)>,
    unflushed_blocks: u64,
    /// The last batch that a requested flush was to cover.
    asked: Sequence,
}

impl DirectWrites {
    /// Direct writes that have begun and not ended.
    pub(super) const fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Ends the turn: stripes that are planned later belong to the next one.
    pub(super) const fn turn_ends(&mut self) {
        self.turn.0 += 1;
    }

    /// A planned stripe goes in place. Returns its turn.
    pub(super) fn begin(&mut self) -> Turn {
        self.in_flight += 1;
        self.gathering.entry(self.turn).or_default().computing += 1;
        self.turn
    }

    /// A stripe is computed. With the last stripe of its turn, returns all stripes of the turn: they are written now.
    pub(super) fn computed(&mut self, turn: Turn, op: OpId) -> Vec<OpId> {
        let gathering = self.gathering.get_mut(&turn);
        let gathering = gathering.expect("its stripes are counted");
        gathering.computing -= 1;
        gathering.ready.push(op);
        if gathering.computing > 0 {
            return Vec::new();
        }
        let gathering = self.gathering.remove(&turn);
        gathering.expect("just seen").ready
    }

    /// A stripe is in place, or goes through the journal after all.
    pub(super) const fn end(&mut self) {
        self.in_flight -= 1;
    }

    /// A batch has recorded so many blocks as in place.
    pub(super) fn logged(&mut self, sequence: Sequence, blocks: u64) {
        self.unflushed.push_back((sequence, blocks));
        self.unflushed_blocks += blocks;
    }

    /// Batches up to this one are flushed.
    pub(super) fn flushed(&mut self, sequence: Sequence) {
        while let Some((_, blocks)) = self.unflushed.pop_front_if(|(at, _)| *at <= sequence) {
            self.unflushed_blocks -= blocks;
        }
    }

    /// True if recovery would have to compare too much: the caller begins a flush that covers batches up to
    /// `completed`. The next flush is requested when as much again has accumulated.
    pub(super) fn ask_flush(&mut self, completed: Sequence, lanes: u16) -> bool {
        let most = UNFLUSHED_MAX / BLOCK_BYTES / u64::from(lanes);
        if self.unflushed_blocks < most || self.asked >= completed {
            return false;
        }
        let later = self.unflushed.iter().rev();
        let since = later.take_while(|(at, _)| *at > self.asked);
        let since: u64 = since.map(|(_, blocks)| blocks).sum();
        let asks = since >= most;
        if asks {
            self.asked = completed;
        }
        asks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of blocks that one of four lanes may have in place and not flushed.
    const MOST: u64 = UNFLUSHED_MAX / BLOCK_BYTES / 4;

    fn ops(ids: &[u64]) -> Vec<OpId> {
        ids.iter().map(|&id| OpId(id)).collect()
    }

    #[test]
    fn the_stripes_of_a_turn_are_written_with_the_last_of_them() {
        let mut direct = DirectWrites::default();
        let turns = [direct.begin(), direct.begin(), direct.begin()];
        assert_eq!(direct.computed(turns[0], OpId(7)), []);
        assert_eq!(direct.computed(turns[2], OpId(9)), []);
        assert_eq!(direct.computed(turns[1], OpId(8)), ops(&[7, 9, 8]));
    }

    #[test]
    fn a_stripe_alone_in_its_turn_is_written_when_it_is_computed() {
        let mut direct = DirectWrites::default();
        let turn = direct.begin();
        assert_eq!(direct.computed(turn, OpId(7)), ops(&[7]));
    }

    #[test]
    fn turns_do_not_wait_for_each_other() {
        let mut direct = DirectWrites::default();
        let first = direct.begin();
        direct.turn_ends();
        let second = direct.begin();
        assert_ne!(first, second);
        assert_eq!(direct.computed(second, OpId(8)), ops(&[8]));
        assert_eq!(direct.computed(first, OpId(7)), ops(&[7]));
    }

    #[test]
    fn a_turn_may_be_complete_and_have_more_stripes_later() {
        let mut direct = DirectWrites::default();
        let turn = direct.begin();
        assert_eq!(direct.computed(turn, OpId(7)), ops(&[7]));
        let again = direct.begin();
        assert_eq!(turn, again, "no turn has ended between");
        assert_eq!(direct.computed(again, OpId(8)), ops(&[8]));
    }

    #[test]
    fn a_stripe_is_in_flight_until_it_ends() {
        let mut direct = DirectWrites::default();
        let turn = direct.begin();
        direct.begin();
        assert_eq!(direct.in_flight(), 2);
        direct.computed(turn, OpId(7));
        assert_eq!(direct.in_flight(), 2);
        direct.end();
        assert_eq!(direct.in_flight(), 1);
    }

    #[test]
    #[should_panic(expected = "its stripes are counted")]
    fn what_was_not_begun_is_not_computed() {
        DirectWrites::default().computed(Turn(3), OpId(7));
    }

    #[test]
    fn what_is_flushed_does_not_count() {
        let mut direct = DirectWrites::default();
        direct.logged(Sequence(4), 100);
        direct.logged(Sequence(6), 10);
        direct.flushed(Sequence(5));
        assert_eq!(direct.unflushed_blocks, 10);
        direct.flushed(Sequence(6));
        assert_eq!(direct.unflushed_blocks, 0);
    }

    #[test]
    fn a_lane_flushes_when_its_share_is_in_place() {
        let mut direct = DirectWrites::default();
        direct.logged(Sequence(4), MOST - 1);
        assert!(!direct.ask_flush(Sequence(4), 4));
        assert!(
            direct.ask_flush(Sequence(4), 8),
            "of more lanes each has less"
        );
        let mut direct = DirectWrites::default();
        direct.logged(Sequence(4), MOST - 1);
        direct.logged(Sequence(5), 1);
        assert!(direct.ask_flush(Sequence(5), 4));
    }

    #[test]
    fn one_flush_is_asked_for_the_same_batches() {
        let mut direct = DirectWrites::default();
        direct.logged(Sequence(4), MOST);
        assert!(direct.ask_flush(Sequence(4), 4));
        assert!(!direct.ask_flush(Sequence(4), 4));
        direct.logged(Sequence(5), MOST - 1);
        assert!(!direct.ask_flush(Sequence(5), 4), "less than as much again");
        direct.logged(Sequence(6), 1);
        assert!(direct.ask_flush(Sequence(6), 4));
    }

    #[test]
    fn a_flush_by_others_counts_too() {
        let mut direct = DirectWrites::default();
        direct.logged(Sequence(4), MOST);
        direct.flushed(Sequence(4));
        assert!(!direct.ask_flush(Sequence(4), 4));
        direct.logged(Sequence(5), MOST - 1);
        assert!(!direct.ask_flush(Sequence(5), 4));
    }
}
