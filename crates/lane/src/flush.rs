//! Flushes: which drives have completed writes that no flush has covered yet, and what waits for flushes.

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Outcome, Seat};
use format::Sequence;
use format::seeded::{self, SeededFault};
use plan::RequestId;
use plan::action::{Io, IoKind, Origin, Service};

use super::context::Context;
use super::ids::JobId;
use super::io::{FaultReport, IoTable};
use super::purpose::Purpose;

/// What waits for a set of drives to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    /// A request (a flush, or a write with FUA).
    Request(RequestId),
    /// A job that must be durable before it reports.
    Job(JobId),
    /// The checkpoint under way.
    Checkpoint,
    /// The recovery under way.
    Recovery,
    /// Nothing. So much was written in place that the flush limits what recovery has to compare.
    Log,
    /// Vacated stripes, which are free when their record is flushed.
    Moves,
}

#[derive(Clone, Debug)]
struct Pending {
    waiter: Waiter,
    /// Batches up to this one were complete when the flush began.
    covers: Sequence,
    /// The number of drives whose flush has not ended.
    outstanding: u64,
    /// Drives whose flush failed, with the fault; the pool has yet to decide about them.
    failed: BTreeMap<Seat, Fault>,
    /// The fault of a drive whose flush failed and that the pool keeps.
    fault: Option<Fault>,
}

/// Flush bookkeeping of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    /// Drives with completed writes since their last flush began.
    dirty: BTreeSet<Seat>,
    /// The number of flushes in flight by drive: the writes that they cover are not durable yet either.
    in_flight: BTreeMap<Seat, u64>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
    /// These wait for a flush that begins when batches are relocated.
    held: Vec<Waiter>,
}

/// A flush has ended on all drives that it was begun on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Finished {
    pub(super) number: u64,
    pub(super) waiter: Waiter,
    pub(super) outcome: Outcome,
    /// Batches up to this one are durable, if it ended well.
    pub(super) covers: Sequence,
}

impl Flushes {
    /// A write to the drive has completed.
    pub(super) fn wrote(&mut self, seat: Seat) {
        self.dirty.insert(seat);
    }

    /// A write that its owner counts ([`Writes`](super::writes::Writes)) has ended. If it succeeded, the next flush
    /// covers it; if it failed, the pool is asked for a verdict. True if its drive is out, so that the outcome does not
    /// matter.
    pub(super) fn write_ended(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        seat: Seat,
        offset: u64,
        outcome: Outcome,
    ) -> bool {
        let out = cx.view().is_out(seat);
        match outcome {
            Ok(()) => self.wrote(seat),
            Err(fault) if !out => {
                let report = FaultReport::new(seat, IoKind::Write, offset, fault);
                ios.report_fault(cx, report.waiting(true));
            }
            Err(_) => {}
        }
        out
    }

    /// Flushes every drive that has writes not yet flushed. `covers`: batches up to this one are complete. False if
    /// there is no such drive, so that there is nothing to wait for.
    pub(super) fn begin(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        waiter: Waiter,
        covers: Sequence,
    ) -> bool {
        let overtakes = usize::from(seeded::is(SeededFault::FlushOvertakes));
        let mut seats: Vec<Seat> = self
            .dirty
            .iter()
            .chain(self.in_flight.keys().skip(overtakes * self.in_flight.len()))
            .copied()
            .filter(|&seat| !cx.view().is_out(seat))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if seeded::is(SeededFault::FlushLeavesOut) && seats.len() > 1 {
            seats.pop();
        }
        self.dirty.clear();
        // Writes that a failed flush should have covered are in no other flush, and no new write makes the drive dirty
        // again. So this flush waits for the pool's verdict, too.
        let failed: BTreeMap<Seat, Fault> = { self.pending.values() }
            .flat_map(|pending| &pending.failed)
            .filter(|_| !seeded::is(SeededFault::FlushForgetsFailed))
            .map(|(&seat, &fault)| (seat, fault))
            .collect();
        let number = self.next;
        self.next += 1;
        let begins = !seats.is_empty() || !failed.is_empty();
        ios.flush_begins(cx, begins.then_some(number));
        if !begins {
            return false;
        }
        let pending = Pending {
            waiter,
            covers,
            outstanding: seats.len() as u64,
            failed,
            fault: None,
        };
        self.pending.insert(number, pending);
        for seat in seats {
            *self.in_flight.entry(seat).or_default() += 1;
            ios.submit(cx, Purpose::Flush { number, seat }, |id| Io {
                id,
                seat,
                kind: IoKind::Flush,
                offset: 0,
                length: 0,
                slice: None,
                service: Service::prompt(Origin::Log),
            });
        }
        true
    }

    /// This waits for a flush that may not begin yet.
    pub(super) fn hold(&mut self, waiter: Waiter) {
        self.held.push(waiter);
    }

    /// Takes what waits for a flush that may begin now.
    pub(super) fn take_held(&mut self) -> Vec<Waiter> {
        std::mem::take(&mut self.held)
    }

    /// A drive's flush has ended. If it failed, its waiter waits for the pool's verdict.
    pub(super) fn ended(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        number: u64,
        seat: Seat,
        outcome: Outcome,
    ) -> Option<Finished> {
        match self.in_flight.get_mut(&seat) {
            Some(1) => {
                self.in_flight.remove(&seat);
            }
            Some(count) => *count -= 1,
            None => unreachable!("a flush that completes was in flight"),
        }
        let pending = self.pending.get_mut(&number).expect("it has a waiter");
        pending.outstanding -= 1;
        if let (Err(fault), false) = (outcome, cx.view().is_out(seat)) {
            let report = FaultReport::new(seat, IoKind::Flush, 0, fault);
            ios.report_fault(cx, report.waiting(true));
            pending.failed.insert(seat, fault);
        }
        self.finish(number)
    }

    /// The pool has decided about a drive: out (nothing there counts any more) or kept.
    pub(super) fn decided(&mut self, seat: Seat, out: bool) -> Vec<Finished> {
        if out {
            self.dirty.remove(&seat);
        }
        self.judged(seat, out)
    }

    /// The seat has another drive, which has everything that was flushed: faults of the drive before do not count any
    /// more.
    pub(super) fn superseded(&mut self, seat: Seat) -> Vec<Finished> {
        self.judged(seat, true)
    }

    fn judged(&mut self, seat: Seat, out: bool) -> Vec<Finished> {
        let numbers: Vec<u64> = self.pending.keys().copied().collect();
        let mut finished = Vec::new();
        for number in numbers {
            let pending = self.pending.get_mut(&number).expect("just listed");
            if let (Some(fault), false) = (pending.failed.remove(&seat), out) {
                pending.fault = Some(fault);
                // No other flush covers the writes of the failed flush yet.
                self.dirty.insert(seat);
            }
            finished.extend(self.finish(number));
        }
        finished
    }

    fn finish(&mut self, number: u64) -> Option<Finished> {
        let pending = &self.pending[&number];
        if pending.outstanding > 0 || !pending.failed.is_empty() {
            return None;
        }
        let pending = self.pending.remove(&number)?;
        Some(Finished {
            number,
            waiter: pending.waiter,
            outcome: pending.fault.map_or(Ok(()), Err),
            covers: pending.covers,
        })
    }
}

#[cfg(test)]
mod tests {
    use plan::action::{Action, Event};

    use super::*;

    /// The flushes of a small lane, with its I/O table.
    struct Lab {
        flushes: Flushes,
        cx: Context,
        ios: IoTable,
    }

    impl Lab {
        /// Completed writes are on these drives.
        fn with(seats: &[u16]) -> Self {
            let mut flushes = Flushes::default();
            for &seat in seats {
                flushes.wrote(Seat(seat));
            }
            Self {
                flushes,
                cx: Context::of_test("raid6", 6),
                ios: IoTable::new(6),
            }
        }

        /// Begins a flush for request `number` that covers as many batches. Returns the drives that are flushed.
        fn begin(&mut self, number: u64) -> Vec<u16> {
            let waiter = Waiter::Request(RequestId(number));
            let begun = self
                .flushes
                .begin(&mut self.cx, &mut self.ios, waiter, Sequence(number));
            let actions = self.cx.take_actions().into_iter();
            let seats: Vec<u16> = actions
                .map(|action| match action {
                    Action::Io(io) if io.kind == IoKind::Flush => io.seat.0,
                    other => panic!("{other:?} is no flush"),
                })
                .collect();
            assert_eq!(begun, !seats.is_empty());
            seats
        }

        /// A drive's part of the flush with this number, from 0 on, ends.
        fn end(&mut self, number: u64, seat: u16, outcome: Outcome) -> Vec<(u64, Outcome)> {
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            requests(self.flushes.ended(cx, ios, number, Seat(seat), outcome))
        }

        fn decide(&mut self, seat: u16, out: bool) -> Vec<(u64, Outcome)> {
            if out {
                self.cx.change_view(|view, _| view.seat_out(Seat(seat)));
            }
            requests(self.flushes.decided(Seat(seat), out))
        }
    }

    /// The requests whose flushes have ended, with the outcome.
    fn requests(finished: impl IntoIterator<Item = Finished>) -> Vec<(u64, Outcome)> {
        let ended = finished.into_iter().map(|finished| match finished.waiter {
            Waiter::Request(RequestId(id)) => {
                assert_eq!(finished.covers, Sequence(id));
                (id, finished.outcome)
            }
            other => panic!("{other:?} asked for no flush"),
        });
        ended.collect()
    }

    #[test]
    fn without_writes_there_is_nothing_to_flush() {
        assert!(Lab::with(&[]).begin(1).is_empty());
    }

    #[test]
    fn drives_that_were_written_are_flushed_and_no_others() {
        let mut lab = Lab::with(&[4, 1, 4]);
        assert_eq!(lab.begin(1), [1, 4]);
        assert_eq!(lab.end(0, 4, Ok(())), []);
        assert_eq!(lab.end(0, 1, Ok(())), [(1, Ok(()))]);
        assert!(lab.begin(2).is_empty(), "nothing was written since");
    }

    #[test]
    fn a_second_flush_waits_for_the_first_ones_drives() {
        let mut lab = Lab::with(&[3]);
        assert_eq!(lab.begin(7), [3]);
        assert_eq!(lab.begin(8), [3], "the first has not ended yet");
        assert_eq!(lab.end(0, 3, Ok(())), [(7, Ok(()))]);
        assert_eq!(lab.end(1, 3, Ok(())), [(8, Ok(()))]);
        assert!(lab.begin(9).is_empty());
    }

    #[test]
    fn flushes_end_in_any_order() {
        let mut lab = Lab::with(&[3]);
        lab.begin(7);
        lab.begin(8);
        assert_eq!(lab.end(1, 3, Ok(())), [(8, Ok(()))]);
        assert_eq!(lab.begin(9), [3], "the first has not ended yet");
        assert_eq!(lab.end(0, 3, Ok(())), [(7, Ok(()))]);
    }

    #[test]
    fn writes_that_complete_meanwhile_are_left_to_the_next_flush() {
        let mut lab = Lab::with(&[3]);
        lab.begin(7);
        lab.flushes.wrote(Seat(5));
        assert_eq!(lab.end(0, 3, Ok(())), [(7, Ok(()))]);
        assert_eq!(lab.begin(8), [5]);
    }

    #[test]
    fn a_drive_that_is_out_is_not_flushed() {
        let mut lab = Lab::with(&[1, 3]);
        lab.cx.change_view(|view, _| view.seat_out(Seat(3)));
        assert_eq!(lab.begin(7), [1]);
        let mut lab = Lab::with(&[3]);
        lab.cx.change_view(|view, _| view.seat_out(Seat(3)));
        assert!(lab.begin(7).is_empty());
    }

    #[test]
    fn a_failed_flush_is_reported_and_waits_for_the_verdict() {
        for (out, end) in [(true, Ok(())), (false, Err(Fault::Medium))] {
            let mut lab = Lab::with(&[0]);
            lab.begin(1);
            assert_eq!(lab.end(0, 0, Err(Fault::Medium)), []);
            let report = Event::DriveFault {
                seat: Seat(0),
                kind: IoKind::Flush,
                offset: 0,
                fault: Fault::Medium,
                waiting: true,
            };
            assert_eq!(lab.cx.take_events(), [report]);
            assert_eq!(lab.decide(1, true), [], "another drive");
            assert_eq!(lab.decide(0, out), [(1, end)]);
        }
    }

    #[test]
    fn a_flush_that_begins_before_the_verdict_waits_for_it() {
        for (out, end) in [(true, Ok(())), (false, Err(Fault::Medium))] {
            let mut lab = Lab::with(&[0, 1]);
            lab.begin(1);
            assert_eq!(lab.end(0, 0, Err(Fault::Medium)), []);
            assert_eq!(lab.end(0, 1, Ok(())), []);
            let waiter = Waiter::Request(RequestId(2));
            let (cx, ios) = (&mut lab.cx, &mut lab.ios);
            assert!(
                lab.flushes.begin(cx, ios, waiter, Sequence(2)),
                "no drive is asked"
            );
            assert!(lab.cx.take_actions().is_empty());
            lab.flushes.wrote(Seat(2));
            assert_eq!(lab.begin(3), [2]);
            assert_eq!(lab.end(2, 2, Ok(())), []);
            assert_eq!(lab.decide(0, out), [(1, end), (2, end), (3, end)]);
            assert_eq!(lab.begin(4), if out { vec![] } else { vec![0] });
        }
    }

    #[test]
    fn a_verdict_does_not_end_what_other_drives_still_flush() {
        let mut lab = Lab::with(&[0, 1]);
        lab.begin(1);
        assert_eq!(lab.end(0, 0, Err(Fault::Medium)), []);
        assert_eq!(lab.decide(0, true), []);
        assert_eq!(lab.end(0, 1, Ok(())), [(1, Ok(()))]);
    }

    #[test]
    fn the_flush_of_a_drive_that_is_out_counts_as_done() {
        let mut lab = Lab::with(&[0]);
        lab.begin(1);
        assert_eq!(lab.decide(0, true), [], "it has not ended");
        assert_eq!(lab.end(0, 0, Err(Fault::Gone)), [(1, Ok(()))]);
        assert!(lab.cx.take_events().is_empty(), "the pool knows");
    }

    #[test]
    fn one_verdict_ends_all_flushes_that_waited_for_it() {
        let mut lab = Lab::with(&[0]);
        lab.begin(1);
        lab.begin(2);
        assert_eq!(lab.end(0, 0, Err(Fault::Medium)), []);
        assert_eq!(lab.end(1, 0, Err(Fault::Medium)), []);
        assert_eq!(lab.cx.take_events().len(), 1, "it is asked for once");
        let failed = Err(Fault::Medium);
        assert_eq!(lab.decide(0, false), [(1, failed), (2, failed)]);
    }

    #[test]
    fn what_a_drive_failed_does_not_count_when_its_successor_has_the_seat() {
        let mut lab = Lab::with(&[0]);
        lab.begin(1);
        assert_eq!(lab.end(0, 0, Err(Fault::Medium)), []);
        assert_eq!(
            requests(lab.flushes.superseded(Seat(0))),
            [(1, Ok(()))],
            "the successor has all that was flushed"
        );
    }

    #[test]
    fn a_write_that_fails_is_reported_and_is_not_flushed() {
        let mut lab = Lab::with(&[]);
        let (cx, ios) = (&mut lab.cx, &mut lab.ios);
        let end = Err(Fault::Medium);
        assert!(!lab.flushes.write_ended(cx, ios, Seat(2), 8192, end));
        assert!(!lab.flushes.write_ended(cx, ios, Seat(4), 8192, Ok(())));
        let report = Event::DriveFault {
            seat: Seat(2),
            kind: IoKind::Write,
            offset: 8192,
            fault: Fault::Medium,
            waiting: true,
        };
        assert_eq!(lab.cx.take_events(), [report]);
        assert_eq!(lab.begin(1), [4]);
    }

    #[test]
    fn a_write_of_a_drive_that_is_out_is_no_fault() {
        let mut lab = Lab::with(&[]);
        lab.cx.change_view(|view, _| view.seat_out(Seat(2)));
        let (cx, ios) = (&mut lab.cx, &mut lab.ios);
        let end = Err(Fault::Gone);
        assert!(lab.flushes.write_ended(cx, ios, Seat(2), 8192, end));
        assert!(lab.cx.take_events().is_empty());
    }

    /// A drive that failed a flush and stayed was forgotten. The next flush of the lane had nothing to do, succeeded,
    /// and was reported as covering writes that no flush had covered.
    #[test]
    fn a_drive_that_failed_its_flush_and_stays_is_flushed_again() {
        let mut lab = Lab::with(&[0, 1]);
        lab.begin(1);
        assert_eq!(lab.end(0, 0, Ok(())), []);
        assert_eq!(lab.end(0, 1, Err(Fault::Medium)), []);
        assert_eq!(lab.decide(1, false).len(), 1);
        assert_eq!(lab.begin(2), [1]);
    }
}
