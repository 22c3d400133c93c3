//! Epochs: which operations in flight were planned by a view that has changed since.
//!
//! ```text
//!   epoch 4            │ epoch 5         │ epoch 6
//!   op 17 ─────────────┼────────► ends   │
//!          op 18 ──────┼─► ends          │
//!              Settled ┘  op 19 ─────────┼──────► ends
//!                         FillFailed ────┘
//!   Settled is reported when 17 and 18 have ended, FillFailed when 19 has, too.
//! ```
//!
//! A change closes the present epoch if operations that were planned earlier may still access what the change takes
//! away: the earlier cell of a column, the target of a fill, a stripe that data has left.
//!
//! Invariants:
//! - An operation is counted in one epoch, that of its latest plan. It is counted in none before its first plan and
//!   after its end.
//! - An epoch is drained when no operation in flight is counted in it or in an earlier epoch. Drained epochs stay
//!   drained.
//! - Events are reported in the order in which they closed their epochs.

use std::collections::{BTreeMap, VecDeque};

use plan::action::Event;

/// The number of an epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Epoch(u64);

/// The epochs of a lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Epochs {
    present: Epoch,
    /// The number of operations in flight, by the epoch in which they were planned.
    in_flight: BTreeMap<Epoch, u64>,
    /// Events that wait until an epoch has drained.
    events: VecDeque<(Epoch, Event)>,
}

impl Epochs {
    /// The epoch of a plan that is made now. Between two plans of the same epoch no cell has been taken away.
    pub(super) const fn present(&self) -> Epoch {
        self.present
    }

    /// Counts an operation that is planned now in the present epoch, and removes it from the epoch of its earlier plan.
    pub(super) fn enter(&mut self, member: &mut Option<Epoch>) {
        self.leave(member);
        *self.in_flight.entry(self.present).or_default() += 1;
        *member = Some(self.present);
    }

    /// Nothing of the operation's plan is in flight any more. No effect if it is counted in no epoch.
    pub(super) fn leave(&mut self, member: &mut Option<Epoch>) {
        let Some(epoch) = member.take() else {
            return;
        };
        let count = self.in_flight.get_mut(&epoch);
        let count = count.expect("what leaves an epoch was counted in it");
        *count -= 1;
        if *count == 0 {
            self.in_flight.remove(&epoch);
        }
    }

    /// Ends the present epoch: later plans do not use what is taken away. Returns the epoch to wait for.
    pub(super) const fn close(&mut self) -> Epoch {
        let closed = self.present;
        self.present.0 += 1;
        closed
    }

    /// True if no operation that was planned in this epoch or before is in flight.
    pub(super) fn has_drained(&self, epoch: Epoch) -> bool {
        let oldest = self.in_flight.first_key_value();
        oldest.is_none_or(|(&oldest, _)| epoch < oldest)
    }

    /// Ends the present epoch, and reports `event` when it has drained.
    pub(super) fn report_drained(&mut self, event: Event) {
        let closed = self.close();
        self.events.push_back((closed, event));
    }

    /// The next event whose epoch has drained.
    pub(super) fn pop_event(&mut self) -> Option<Event> {
        let (epoch, _) = self.events.front()?;
        if !self.has_drained(*epoch) {
            return None;
        }
        let (_, event) = self.events.pop_front()?;
        Some(event)
    }
}

#[cfg(test)]
mod tests {
    use format::{Column, GroupId};

    use super::*;

    fn settled(group: GroupId) -> Event {
        Event::Settled {
            group,
            column: Column(0),
        }
    }

    fn entered(epochs: &mut Epochs) -> Option<Epoch> {
        let mut member = None;
        epochs.enter(&mut member);
        member
    }

    #[test]
    fn an_event_is_reported_at_once_if_nothing_is_in_flight() {
        let mut epochs = Epochs::default();
        epochs.report_drained(settled(GroupId(1)));
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
        assert_eq!(epochs.pop_event(), None);
    }

    #[test]
    fn an_event_waits_for_what_was_planned_before_it() {
        let mut epochs = Epochs::default();
        let mut before = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(1)));
        assert_eq!(epochs.pop_event(), None);
        epochs.leave(&mut before);
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
    }

    #[test]
    fn an_event_does_not_wait_for_what_is_planned_after_it() {
        let mut epochs = Epochs::default();
        epochs.report_drained(settled(GroupId(1)));
        let mut after = entered(&mut epochs);
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
        epochs.leave(&mut after);
    }

    #[test]
    fn events_keep_their_order_and_a_later_one_waits_for_earlier_epochs_too() {
        let mut epochs = Epochs::default();
        let mut first = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(1)));
        let mut second = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(2)));
        epochs.leave(&mut second);
        assert_eq!(epochs.pop_event(), None, "the first is in flight");
        epochs.leave(&mut first);
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(2))));
    }

    #[test]
    fn only_the_events_of_drained_epochs_are_reported() {
        let mut epochs = Epochs::default();
        let mut first = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(1)));
        let _second = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(2)));
        epochs.leave(&mut first);
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
        assert_eq!(epochs.pop_event(), None);
    }

    #[test]
    fn what_is_planned_again_is_counted_where_it_was_planned_last() {
        let mut epochs = Epochs::default();
        let mut member = entered(&mut epochs);
        epochs.report_drained(settled(GroupId(1)));
        epochs.enter(&mut member);
        assert_eq!(epochs.pop_event(), Some(settled(GroupId(1))));
        assert_eq!(member, Some(epochs.present()));
    }

    #[test]
    fn an_epoch_drains_when_the_last_of_several_has_left() {
        let mut epochs = Epochs::default();
        let mut members: Vec<_> = (0..3).map(|_| entered(&mut epochs)).collect();
        let closed = epochs.close();
        for member in &mut members {
            assert!(!epochs.has_drained(closed));
            epochs.leave(member);
        }
        assert!(epochs.has_drained(closed));
    }

    #[test]
    fn what_has_not_entered_may_leave() {
        let mut epochs = Epochs::default();
        let mut member = entered(&mut epochs);
        let closed = epochs.close();
        epochs.leave(&mut None);
        assert!(!epochs.has_drained(closed));
        epochs.leave(&mut member);
        epochs.leave(&mut member);
        assert!(epochs.has_drained(closed));
    }

    #[test]
    fn each_change_has_an_epoch_of_its_own() {
        let mut epochs = Epochs::default();
        let first = epochs.close();
        let second = epochs.close();
        assert!(first < second && second < epochs.present());
        let mut member = entered(&mut epochs);
        assert!(epochs.has_drained(second));
        assert!(!epochs.has_drained(epochs.present()));
        epochs.leave(&mut member);
    }

    #[test]
    #[should_panic(expected = "what leaves an epoch was counted in it")]
    fn what_leaves_must_have_entered() {
        Epochs::default().leave(&mut Some(Epoch(3)));
    }

    /// Compares with a plain list of members as the oracle.
    #[test]
    fn random_runs_agree_with_a_list_of_members() {
        let mut random = block::SplitMix64::new(7);
        let mut next = |below| random.below(below);
        let mut epochs = Epochs::default();
        let mut members: Vec<Option<Epoch>> = vec![None; 8];
        let mut waiting: VecDeque<(Epoch, GroupId)> = VecDeque::new();
        for step in 0..20_000 {
            let member = usize::try_from(next(8)).unwrap();
            match next(4) {
                0 => {
                    waiting.push_back((epochs.present(), GroupId(step)));
                    epochs.report_drained(settled(GroupId(step)));
                }
                1 => epochs.leave(&mut members[member]),
                _ => epochs.enter(&mut members[member]),
            }
            let drained = |epoch: Epoch| members.iter().flatten().all(|&there| there > epoch);
            while let Some((_, group)) = waiting.pop_front_if(|(epoch, _)| drained(*epoch)) {
                assert_eq!(epochs.pop_event(), Some(settled(group)));
            }
            assert_eq!(epochs.pop_event(), None);
        }
    }
}
