//! Closing a pool: fills, scrubs and conversions end, each lane puts its journal in place, and the facts record "clean".
//!
//! ```text
//!   open ── close ──► ending ── conversions have ended ──► checkpointing ── all lanes, and nothing is in flight ──► closed
//! ```
//!
//! Ending: a pool without a journal has no checkpoints, and is closed from there.

use std::collections::BTreeSet;

use plan::action::Command;

use super::context::Context;

/// How far the lanes are.
#[derive(Clone, Debug, Default)]
pub(super) struct Closing {
    /// Lanes that have yet to complete their checkpoint.
    checkpointing: Option<BTreeSet<u16>>,
    /// The lanes whose journal holds nothing.
    empty: BTreeSet<u16>,
}

impl Closing {
    /// While the pool is being closed: a checkpoint of each lane, which leaves its journal empty. `converts`: conversions
    /// have yet to end; they log.
    pub(super) fn checkpoint(&mut self, cx: &mut Context, converts: bool) {
        let waits = cx.closing.is_some() && self.checkpointing.is_none();
        if waits && cx.facts.regions.is_some() && !converts {
            self.empty.clear();
            self.checkpointing = Some((0..cx.geometry.lanes()).collect());
            cx.tell_lanes(&Command::Checkpoint);
        }
    }

    /// A lane has completed a checkpoint that was asked for here.
    pub(super) fn checkpointed(&mut self, lane: u16) {
        if let Some(lanes) = &mut self.checkpointing {
            lanes.remove(&lane);
        }
    }

    /// A lane's journal holds nothing.
    pub(super) fn is_empty_in(&mut self, lane: u16) {
        self.empty.insert(lane);
    }

    /// Whether no lane has yet to complete its checkpoint.
    pub(super) fn is_checkpointed(&self) -> bool {
        self.checkpointing.as_ref().is_none_or(BTreeSet::is_empty)
    }

    /// Whether the journals of so many lanes, which are all, hold nothing.
    pub(super) fn is_journal_empty(&self, lanes: u16) -> bool {
        self.empty.len() == usize::from(lanes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ticket;
    use crate::fixture::{commands, context};

    #[test]
    fn each_lane_is_asked_for_one_checkpoint_when_conversions_have_ended() {
        let mut cx = context("raid6", 6, 1);
        let mut closing = Closing::default();
        closing.checkpoint(&mut cx, false);
        assert_eq!(commands(&mut cx), [], "the pool is open");
        cx.closing = Some(Ticket(1));
        closing.checkpoint(&mut cx, true);
        assert_eq!(commands(&mut cx), []);
        for _ in 0..2 {
            closing.checkpoint(&mut cx, false);
        }
        let asked = (0..cx.geometry.lanes()).map(|lane| (lane, Command::Checkpoint));
        assert_eq!(commands(&mut cx), asked.collect::<Vec<_>>());
    }

    #[test]
    fn it_waits_for_every_lane() {
        let mut cx = context("raid6", 6, 1);
        cx.closing = Some(Ticket(1));
        let mut closing = Closing::default();
        closing.checkpoint(&mut cx, false);
        for lane in 0..cx.geometry.lanes() {
            assert!(!closing.is_checkpointed());
            closing.checkpointed(lane);
        }
        assert!(closing.is_checkpointed());
    }

    #[test]
    fn a_pool_without_a_journal_waits_for_no_checkpoint() {
        let mut cx = context("raid6", 6, 1);
        cx.facts.regions = None;
        cx.closing = Some(Ticket(1));
        let mut closing = Closing::default();
        closing.checkpoint(&mut cx, false);
        assert!(closing.is_checkpointed());
        assert_eq!(commands(&mut cx), []);
    }

    #[test]
    fn the_journal_is_empty_when_all_lanes_have_said_so_since_their_checkpoints_were_asked_for() {
        let mut cx = context("raid6", 6, 1);
        let lanes = cx.geometry.lanes();
        let mut closing = Closing::default();
        (0..lanes).for_each(|lane| closing.is_empty_in(lane));
        assert!(closing.is_journal_empty(lanes));
        cx.closing = Some(Ticket(1));
        closing.checkpoint(&mut cx, false);
        assert!(
            !closing.is_journal_empty(lanes),
            "something may be logged since"
        );
    }
}
