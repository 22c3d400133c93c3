//! Which drives that are out the journal may need.
//!
//! A batch of the journal survives as many losses as a stripe. While a drive is out, batches that were written to it have
//! one copy less. Each lane puts these batches in place, or logs them again, and reports that it does not need the drive
//! any more. The labels say of which drives this has not been reported yet: if more of them are away at an opening than a
//! batch survives, the end of the log is not known, and the pool waits for its drives (`open.rs`).

use std::collections::{BTreeMap, BTreeSet};

use block::Seat;
use format::SeatState;

use super::context::Context;

/// What lanes may need of drives that are out.
#[derive(Clone, Debug, Default)]
pub(super) struct JournalNeeds {
    /// The lanes whose journal may need the drive of a seat.
    lanes: BTreeMap<Seat, BTreeSet<u16>>,
    /// During an opening: drives that are out and that have a part of the journal.
    pub(super) sources: BTreeSet<Seat>,
}

impl JournalNeeds {
    /// The drive of a seat goes out: the journal may need it.
    pub(super) fn goes_out(&mut self, cx: &mut Context, seat: Seat) {
        if cx.facts.regions.is_none() || seat.0 >= cx.geometry.layout().drives() {
            return;
        }
        cx.facts.seats[seat.index()].in_journal = true;
        let lanes = (0..cx.geometry.lanes()).collect();
        self.lanes.insert(seat, lanes);
    }

    /// The journal is read now: each lane reports about the drives that are out when its first checkpoint has ended, which
    /// may be before other lanes have read theirs.
    pub(super) fn is_read(&mut self, cx: &mut Context) {
        let seats: Vec<Seat> = cx.layout_seats().collect();
        for seat in seats {
            if cx.facts.seats[seat.index()].in_journal {
                self.goes_out(cx, seat);
            }
        }
    }

    /// A lane's journal does not need a drive that is out. Returns whether no lane's does, and the facts say so from now on.
    pub(super) fn left(&mut self, cx: &mut Context, lane: u16, seat: Seat) -> bool {
        let Some(lanes) = self.lanes.get_mut(&seat) else {
            return false;
        };
        lanes.remove(&lane);
        if !lanes.is_empty() {
            return false;
        }
        self.lanes.remove(&seat);
        let facts = &mut cx.facts.seats[seat.index()];
        let left = facts.in_journal && matches!(facts.state, SeatState::Out { .. });
        facts.in_journal &= !left;
        left
    }
}

impl Context {
    /// Whether the journal may need a drive that is out and was not given up.
    pub(crate) fn journal_needs(&self, seat: Seat) -> bool {
        let facts = &self.facts.seats[seat.index()];
        facts.in_journal && !facts.is_given_up()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::OutReason;
    use crate::fixture::{context, is_out};

    #[test]
    fn a_drive_that_goes_out_is_needed_until_every_lane_has_left_it() {
        let mut cx = context("raid6", 6, 1);
        let mut needs = JournalNeeds::default();
        is_out(&mut cx, Seat(2), OutReason::Hung);
        needs.goes_out(&mut cx, Seat(2));
        for lane in 0..cx.geometry.lanes() {
            assert!(cx.journal_needs(Seat(2)));
            let last = lane + 1 == cx.geometry.lanes();
            assert_eq!(needs.left(&mut cx, lane, Seat(2)), last);
        }
        assert!(!cx.journal_needs(Seat(2)));
        assert!(!needs.left(&mut cx, 0, Seat(2)), "once");
    }

    #[test]
    fn a_drive_that_is_in_again_is_still_named_by_the_facts() {
        let mut cx = context("raid6", 6, 1);
        let mut needs = JournalNeeds::default();
        needs.goes_out(&mut cx, Seat(2));
        let left = (0..cx.geometry.lanes()).any(|lane| needs.left(&mut cx, lane, Seat(2)));
        assert!(!left && cx.facts.seats[2].in_journal);
    }

    #[test]
    fn neither_spares_nor_drives_of_pools_without_a_journal_are_needed() {
        let mut cx = context("raid6", 6, 1);
        let mut needs = JournalNeeds::default();
        needs.goes_out(&mut cx, Seat(6));
        cx.facts.regions = None;
        needs.goes_out(&mut cx, Seat(2));
        assert!(cx.facts.seats.iter().all(|seat| !seat.in_journal));
    }

    #[test]
    fn after_an_opening_lanes_report_about_the_drives_that_the_facts_name() {
        let mut cx = context("raid6", 6, 1);
        is_out(&mut cx, Seat(2), OutReason::Hung);
        cx.facts.seats[2].in_journal = true;
        let mut needs = JournalNeeds::default();
        assert!(!needs.left(&mut cx, 0, Seat(2)), "it is not read yet");
        needs.is_read(&mut cx);
        let left = (0..cx.geometry.lanes()).any(|lane| needs.left(&mut cx, lane, Seat(2)));
        assert!(left);
    }

    #[test]
    fn a_drive_that_was_given_up_is_not_needed() {
        let mut cx = context("raid6", 6, 1);
        let mut needs = JournalNeeds::default();
        is_out(&mut cx, Seat(2), OutReason::FailedByAdministrator);
        needs.goes_out(&mut cx, Seat(2));
        assert!(!cx.journal_needs(Seat(2)));
    }
}
