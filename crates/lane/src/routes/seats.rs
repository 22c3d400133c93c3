//! Drives that leave their seats, and drives that take one: what a lane does then, in order.
//!
//! All drives that are out are marked out in the view before anything continues that waited for the pool's verdict,
//! because operations that continue are planned by the view.

use std::collections::BTreeSet;
use std::sync::Arc;

use block::Seat;
use format::{Column, GroupId, Sequence};
use plan::Geometry;
use plan::action::Event;

use crate::Lane;
use crate::ids::OpId;

impl Lane {
    /// Drives are out. The view has all of them before operations that wait for a verdict continue.
    pub(crate) fn seats_out(&mut self, seats: &[Seat]) {
        for &seat in seats {
            self.ios.forget_pace(seat);
            match self.ios.twins().succeeds(seat) {
                true => self.cx.change_view(|view, _| view.successor_out(seat)),
                false => self.cx.change_view(|view, _| view.seat_out(seat)),
            }
        }
        self.log.relocate(&mut self.cx);
        for &seat in seats {
            for ended in self.ios.twin_out(seat) {
                self.io_ended(ended);
            }
            self.jobs.lost_seat(self.cx.now, seat);
            self.abandon_seat(seat);
            self.ios.drain(&mut self.cx, seat);
            self.decide(seat, true);
        }
        if self.log_has_end() {
            self.preserved.drive_out(self.log.next_sequence());
            self.retries.end_waits();
            self.journal_leaves(seats.iter().copied());
            self.checkpoints.want();
        }
    }

    /// True if it is known where the log ends: not before recovery has ended, and not if it has failed. Until then nothing
    /// is decided by what the journal holds.
    pub(crate) fn log_has_end(&self) -> bool {
        let journaled = self.cx.geometry.regions().is_some();
        journaled && self.recovery.is_none() && self.log.next_sequence() > Sequence(0)
    }

    /// A drive leaves the pool: batches that have begun by now may be on it, and no other ones will be.
    pub(crate) fn drive_leaves(&mut self, seat: Option<Seat>) {
        let journaled = self.cx.geometry.regions().is_some();
        if let Some(before) = std::mem::replace(&mut self.cx.leaving, seat) {
            self.out_in_journal.remove(&before);
        }
        if let Some(seat) = seat.filter(|_| journaled) {
            self.journal_leaves([seat]);
            self.checkpoints.want();
        }
    }

    /// These drives are out: batches that have begun by now may be on them. When the journal does not hold these batches
    /// any more, the pool is told.
    pub(crate) fn journal_leaves(&mut self, seats: impl IntoIterator<Item = Seat>) {
        let next = self.log.next_sequence();
        self.out_in_journal
            .extend(seats.into_iter().map(|seat| (seat, next)));
        if self.log.ring().is_empty() {
            self.journal_begins_at(next);
        }
    }

    /// The journal holds no batch before this one any more.
    pub(crate) fn journal_begins_at(&mut self, first: Sequence) {
        let lane = self.cx.lane;
        let left = self.out_in_journal.extract_if(.., |_, next| *next <= first);
        let left = left.map(|(seat, _)| Event::JournalLeft { lane, seat });
        self.cx.events.extend(left);
    }

    /// The seat's drive is out: all its operations in flight have failed, whether it answers or not.
    fn abandon_seat(&mut self, seat: Seat) {
        while let Some(answered) = self.ios.fail_next_at(&mut self.cx, seat) {
            self.route_answer(answered);
        }
        self.ios.seat_abandoned(seat);
    }

    /// From now on all writes to the seat also go to its drive's successor.
    pub(crate) fn begin_twin(&mut self, seat: Seat, with: Seat) {
        self.cx.change_view(|view, _| view.successor_in(with));
        self.ios.begin_twin(seat, with);
    }

    /// The successor takes the seat. `filled`: the columns that it has; `None`: all of them.
    pub(crate) fn succeed(
        &mut self,
        seat: Seat,
        with: Seat,
        filled: Option<&BTreeSet<(GroupId, Column)>>,
    ) {
        self.ios.end_twin(seat, with);
        if let Some(filled) = filled {
            self.cx
                .change_view(|view, geometry| view.succeed(geometry, seat, filled));
            self.jobs.lost_seat(self.cx.now, seat);
        }
        // Fills in flight fail. The writes that they have done are not used.
        self.cx.change_view(|view, _| view.successor_out(with));
        self.jobs.lost_seat(self.cx.now, with);
        for id in self.ios.in_flight_at(with, false) {
            if let Some(ended) = self.ios.fail(id) {
                self.io_ended(ended);
            }
        }
        self.decide(with, true);
        // Earlier writes to the successor count for the seat now.
        self.ios.seconds_succeed(seat, with);
        self.flushes.wrote(seat);
        for id in self.ios.in_flight_at(seat, false) {
            if let Some(ended) = self.ios.leave_to_successor(id, filled.is_none()) {
                self.io_ended(ended);
            }
        }
        for ended in self.ios.pairs_succeed(seat) {
            self.io_ended(ended);
        }
        self.superseded(seat);
        if self.cx.geometry.regions().is_some() && self.recovery.is_none() {
            if filled.is_some() {
                self.preserved.drive_out(self.log.next_sequence());
            }
            self.want_anchor();
        }
    }

    /// The pool has another table of pieces: homes change, and no column's place does. So operations in flight go on as
    /// they are. The drives in new seats take part from now on, without any cell.
    pub(crate) fn grow(&mut self, geometry: Arc<Geometry>) {
        let before = self.cx.geometry.layout().drives();
        let after = geometry.layout().drives();
        // Groups that are given up belong to no volume, and nothing of them is logged or under way.
        let first = GroupId(geometry.groups());
        assert!(
            self.ops.iter().all(|(_, op)| op.group < first) && !self.overlay.has_groups_from(first),
            "no group goes that is in use"
        );
        for group in self.pages.groups_from(first) {
            self.pages.drop_group(group);
            self.maps.drop_group(group);
            self.losses.forget(group);
        }
        self.discards.forget(first..GroupId(u64::MAX));
        self.cx.change_geometry(geometry);
        self.ios.measure(after);
        for seat in (before..after).map(Seat) {
            // It may have been the seat of a spare, or of a successor.
            self.ios.forget_pace(seat);
            self.out_in_journal.remove(&seat);
            self.cx.change_view(|view, _| view.seat_in(seat));
        }
    }

    /// The pool has decided about a drive: everything that waited for the decision continues.
    pub(crate) fn decide(&mut self, seat: Seat, out: bool) {
        self.ios.decided(seat);
        if out {
            self.ios.forget_unflushed(seat);
        }
        let finished = self.flushes.decided(seat, out);
        self.flush_finished(finished);
        self.verdict(seat, out);
    }

    /// The seat has another drive now. Blocks that the earlier drive failed to write are on this drive, or are absent.
    fn superseded(&mut self, seat: Seat) {
        self.ios.decided(seat);
        self.ios.forget_unflushed(seat);
        let finished = self.flushes.superseded(seat);
        self.flush_finished(finished);
        self.verdict(seat, true);
    }

    fn verdict(&mut self, seat: Seat, out: bool) {
        self.batches_judged(seat, out);
        self.checkpoint_judged(seat, out);
        self.recovery_judged(seat, out);
        let writes: Vec<OpId> = { self.ops.iter() }
            .filter(|(_, op)| op.awaits_verdict(seat))
            .map(|(id, _)| id)
            .collect();
        for id in writes {
            let op = &mut self.ops[id];
            if op.judged(seat, out) {
                self.written(id);
            }
        }
    }
}
