//! The phases of an operation.
//!
//! ```text
//!      ┌─ pages ─► Fetching ─┐    ┌─ a read failed, or is not what was written: plan around it
//!      ▼                     │    │
//!   Locking ──── plan ───────┴─► Reading ─► Verifying ─► Computing ─┬─► Logging ─► (end)
//!      ▲                                                            ├─► Writing ─► (end)
//!      └────────────────── blocks staged ───────────────────────────┘
//! ```
//!
//! Writes of requests are logged. Whole stripes that a stream writes onto unwritten space are logged after they are in
//! place (`direct.rs`). Fills write a cell that does not count yet, so they write in place. In a pool without a journal
//! everything is written in place.

use std::collections::BTreeMap;

use block::{Fault, Outcome, Seat};

use super::Op;

/// The phase of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It waits for the locks of its stripes.
    Locking,
    /// The pages with the entries of its blocks are being read, or drives that have failed its reads are asked.
    Fetching,
    /// So many reads are in flight. `failed`: some of the blocks are not available.
    Reading { in_flight: u64, failed: bool },
    /// The blocks that it has read are compared with their checksums.
    Verifying,
    /// Its computation is in flight.
    Computing,
    /// It waits for a free stripe.
    Waiting,
    /// What it writes in place waits until the other stripes of its turn are computed.
    Gathering,
    /// So many of its units are waiting for the journal, or being written to it.
    Logging { units: u64 },
    /// So many writes are in flight. The pool decides about drives that have failed one. The writes have ended with the
    /// last write and the last verdict.
    Writing {
        in_flight: u64,
        failed: BTreeMap<Seat, Fault>,
    },
    /// Drives discard its space.
    Discarding,
}

/// True if the pool decides about a drive that has failed a write with this fault. A full drive is not broken: the
/// request fails, and the drive stays.
pub(crate) fn waits_for_verdict(fault: Fault) -> bool {
    fault != Fault::Full
}

impl Op {
    /// So many reads have been submitted.
    pub(crate) fn begin_reads(&mut self, in_flight: u64) {
        self.phase = Phase::Reading {
            in_flight,
            failed: false,
        };
    }

    /// So many writes have been submitted.
    pub(crate) fn begin_writes(&mut self, in_flight: u64) {
        self.phase = Phase::Writing {
            in_flight,
            failed: BTreeMap::new(),
        };
    }

    pub(crate) const fn is_reading(&self) -> bool {
        matches!(self.phase, Phase::Reading { .. })
    }

    /// True if drives have not answered all of its reads or writes.
    pub(crate) const fn is_in_flight(&self) -> bool {
        matches!(self.phase, Phase::Reading { in_flight, .. } | Phase::Writing { in_flight, .. } if in_flight > 0)
    }

    /// One of its units is logged, or refused; true if it was the last one.
    pub(crate) fn unit_ended(&mut self, outcome: Outcome) -> bool {
        let Phase::Logging { units } = &mut self.phase else {
            unreachable!("it waits for its units");
        };
        *units -= 1;
        self.fault = self.fault.or(outcome.err());
        *units == 0
    }

    /// A write has ended. True if all have, and the pool has decided about the drives that have failed one. `out`: the
    /// drive is out, so that the outcome does not matter.
    pub(crate) fn write_ended(&mut self, seat: Seat, outcome: Outcome, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            unreachable!("its writes are in flight");
        };
        match outcome {
            Err(fault) if !out && waits_for_verdict(fault) => {
                failed.insert(seat, fault);
            }
            Err(fault) if !out => self.fault = self.fault.or(Some(fault)),
            Ok(()) | Err(_) => {}
        }
        *in_flight -= 1;
        *in_flight == 0 && failed.is_empty()
    }

    /// True if a drive has failed one of its writes, and the pool has not decided about the drive.
    pub(crate) fn awaits_verdict(&self, seat: Seat) -> bool {
        matches!(&self.phase, Phase::Writing { failed, .. } if failed.contains_key(&seat))
    }

    /// The pool has decided about a drive; true if this was the last thing that the operation's writes waited for.
    /// `out`: the drive is out, so that its failed write does not count.
    pub(crate) fn judged(&mut self, seat: Seat, out: bool) -> bool {
        let Phase::Writing { in_flight, failed } = &mut self.phase else {
            return false;
        };
        let Some(fault) = failed.remove(&seat) else {
            return false;
        };
        if !out {
            self.fault = self.fault.or(Some(fault));
        }
        *in_flight == 0 && failed.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use format::{GroupId, StripeId};

    use super::*;
    use crate::op::{Owner, Task};

    const FIRST: Seat = Seat(1);
    const SECOND: Seat = Seat(2);

    /// An operation that has submitted so many writes.
    fn writing(writes: u64) -> Op {
        let mut op = Op::new(
            Owner::Background,
            GroupId(0),
            StripeId::range(0..1),
            Task::Resync,
        );
        op.begin_writes(writes);
        op
    }

    #[test]
    fn it_has_written_with_its_last_write() {
        let mut op = writing(2);
        assert!(!op.write_ended(FIRST, Ok(()), false));
        assert!(op.is_in_flight());
        assert!(op.write_ended(SECOND, Ok(()), false));
        assert!(!op.is_in_flight() && op.fault.is_none());
    }

    #[test]
    fn a_drive_that_fails_a_write_is_judged_first() {
        let mut op = writing(1);
        assert!(!op.write_ended(FIRST, Err(Fault::Medium), false));
        assert!(op.awaits_verdict(FIRST) && !op.awaits_verdict(SECOND));
        assert!(!op.judged(SECOND, true), "another drive");
        assert!(op.judged(FIRST, true));
        assert_eq!(
            op.fault, None,
            "what a drive failed that is out does not count"
        );
    }

    #[test]
    fn a_drive_that_stays_fails_what_it_has_refused() {
        let mut op = writing(1);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Medium));
    }

    #[test]
    fn the_fault_that_is_decided_first_is_the_operations() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.write_ended(SECOND, Err(Fault::Gone), false));
        assert!(!op.judged(SECOND, false));
        assert!(op.judged(FIRST, false));
        assert_eq!(op.fault, Some(Fault::Gone));
    }

    #[test]
    fn a_verdict_before_the_last_write_ends_nothing() {
        let mut op = writing(2);
        op.write_ended(FIRST, Err(Fault::Medium), false);
        assert!(!op.judged(FIRST, true), "a write is in flight");
        assert!(op.write_ended(SECOND, Ok(()), false));
    }

    #[test]
    fn a_full_drive_is_not_judged() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Full), false));
        assert_eq!(op.fault, Some(Fault::Full));
    }

    #[test]
    fn how_the_writes_of_a_drive_end_that_is_out_does_not_matter() {
        let mut op = writing(1);
        assert!(op.write_ended(FIRST, Err(Fault::Gone), true));
        assert_eq!(op.fault, None);
    }

    #[test]
    fn it_is_logged_with_its_last_unit_and_keeps_the_first_fault() {
        let mut op = writing(0);
        op.phase = Phase::Logging { units: 3 };
        assert!(!op.unit_ended(Err(Fault::Full)));
        assert!(!op.unit_ended(Err(Fault::Lost)));
        assert!(op.unit_ended(Ok(())));
        assert_eq!(op.fault, Some(Fault::Full));
    }
}
