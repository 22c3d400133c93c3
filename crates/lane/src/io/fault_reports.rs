//! Reports of failed operations to the pool.
//!
//! A lane asks for each verdict once: the pool's decision holds for all operations of the drive that have failed by
//! then. Faults of a drive that has left its seat are not reported.

use std::collections::BTreeMap;

use block::{Fault, Seat};
use plan::action::{Event, IoKind};

use crate::context::Context;

/// An operation that a drive has failed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FaultReport {
    seat: Seat,
    kind: IoKind,
    /// First byte on the drive.
    offset: u64,
    fault: Fault,
    /// Something waits for the pool's verdict.
    waiting: bool,
}

impl FaultReport {
    /// Nothing waits for the verdict: there is another way to carry on.
    pub(crate) const fn new(seat: Seat, kind: IoKind, offset: u64, fault: Fault) -> Self {
        Self {
            seat,
            kind,
            offset,
            fault,
            waiting: false,
        }
    }

    /// The same for a read.
    pub(crate) const fn of_read(seat: Seat, offset: u64, fault: Fault) -> Self {
        Self::new(seat, IoKind::Read, offset, fault)
    }

    /// Sets whether something waits for the verdict.
    pub(crate) const fn waiting(self, waiting: bool) -> Self {
        Self { waiting, ..self }
    }
}

/// The reports of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct FaultReports {
    /// Set while operations of a drive that has left its seat are handled: their faults are not reported.
    pub(super) muted: bool,
    /// Drives about which the pool has been asked for a verdict, and the fault that each had returned.
    awaited: BTreeMap<Seat, Fault>,
}

impl FaultReports {
    /// Reports a fault to the pool, unless a verdict on the same fault is awaited already.
    pub(super) fn report(&mut self, cx: &mut Context, report: FaultReport) {
        let FaultReport {
            seat,
            kind,
            offset,
            fault,
            waiting,
        } = report;
        if self.muted {
            return;
        }
        if waiting && self.awaited.insert(seat, fault) == Some(fault) {
            return;
        }
        cx.events.push_back(Event::DriveFault {
            seat,
            kind,
            offset,
            fault,
            waiting,
        });
    }

    /// The pool has decided about a drive, or it has left its seat.
    pub(super) fn decided(&mut self, seat: Seat) {
        self.awaited.remove(&seat);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reports a fault of a write.
    fn report(faults: &mut FaultReports, cx: &mut Context, seat: u16, fault: Fault, waiting: bool) {
        let report = FaultReport::new(Seat(seat), IoKind::Write, 4096, fault);
        faults.report(cx, report.waiting(waiting));
    }

    fn reported(cx: &mut Context) -> Vec<(u16, Fault, bool)> {
        let events = cx.take_events().into_iter();
        events
            .map(|event| match event {
                Event::DriveFault {
                    seat,
                    kind: IoKind::Write,
                    offset: 4096,
                    fault,
                    waiting,
                } => (seat.0, fault, waiting),
                other => panic!("{other:?} is no report of this fault"),
            })
            .collect()
    }

    #[test]
    fn a_verdict_is_asked_for_once() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        for _ in 0..3 {
            report(&mut faults, &mut cx, 2, Fault::Medium, true);
        }
        assert_eq!(reported(&mut cx), [(2, Fault::Medium, true)]);
    }

    #[test]
    fn another_fault_of_the_same_drive_is_news() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        report(&mut faults, &mut cx, 2, Fault::Gone, true);
        report(&mut faults, &mut cx, 2, Fault::Gone, true);
        let both = [(2, Fault::Medium, true), (2, Fault::Gone, true)];
        assert_eq!(reported(&mut cx), both);
    }

    #[test]
    fn each_drive_has_a_verdict_of_its_own() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        report(&mut faults, &mut cx, 3, Fault::Medium, true);
        assert_eq!(reported(&mut cx).len(), 2);
    }

    #[test]
    fn what_waits_for_no_verdict_is_always_reported() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        report(&mut faults, &mut cx, 2, Fault::Medium, false);
        report(&mut faults, &mut cx, 2, Fault::Medium, false);
        assert_eq!(reported(&mut cx), [(2, Fault::Medium, false); 2]);
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        assert_eq!(reported(&mut cx), [(2, Fault::Medium, true)]);
    }

    #[test]
    fn after_a_verdict_the_next_fault_asks_again() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        report(&mut faults, &mut cx, 3, Fault::Medium, true);
        faults.decided(Seat(2));
        cx.take_events();
        report(&mut faults, &mut cx, 3, Fault::Medium, true);
        assert!(reported(&mut cx).is_empty(), "about 3 nothing is decided");
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        assert_eq!(reported(&mut cx), [(2, Fault::Medium, true)]);
    }

    #[test]
    fn nothing_is_reported_of_a_drive_that_has_left() {
        let (mut faults, mut cx) = (FaultReports::default(), Context::of_test("raid6", 6));
        faults.muted = true;
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        report(&mut faults, &mut cx, 2, Fault::Medium, false);
        faults.muted = false;
        assert!(reported(&mut cx).is_empty());
        report(&mut faults, &mut cx, 2, Fault::Medium, true);
        assert_eq!(reported(&mut cx).len(), 1, "and no verdict was asked for");
    }
}
