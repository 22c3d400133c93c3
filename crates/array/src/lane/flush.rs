//! Which drives hold completed writes that no flush has covered yet, and who waits for flushes.

use std::collections::{BTreeMap, BTreeSet};

use block::{Fault, Seat};

use super::ids::JobId;
use crate::seeded::{self, Bug};

/// Who waits for a set of drives to be flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Waiter {
    /// A request (a flush, or a write with FUA).
    Request(u64),
    /// A job that must be durable before it reports.
    Job(JobId),
    /// The checkpoint under way.
    Checkpoint,
    /// The recovery under way.
    Recovery,
    /// Nobody: so much was written in place that recovery should not have to look at more.
    Log,
    /// Stripes that hold nothing any more are free when their record is flushed.
    Moves,
}

#[derive(Clone, Debug)]
struct Pending {
    waiter: Waiter,
    /// Batches up to this one were complete when the flush began.
    covers: u64,
    /// Flushes not yet completed.
    outstanding: u64,
    /// Drives whose flush failed, and what they said; the pool has yet to decide.
    failed: BTreeMap<Seat, Fault>,
    /// The pool decided to keep a drive whose flush failed.
    fault: Option<Fault>,
}

/// Flush bookkeeping of one lane.
#[derive(Clone, Debug, Default)]
pub(super) struct Flushes {
    /// Completed writes since the drive's last flush began.
    dirty: BTreeSet<Seat>,
    /// Flushes in flight by drive: what they cover is not durable yet either.
    in_flight: BTreeMap<Seat, u64>,
    pending: BTreeMap<u64, Pending>,
    next: u64,
}

/// A waiter whose flushes have all ended, how, and which batches are durable if they ended well.
pub(super) type Finished = (Waiter, Result<(), Fault>, u64);

impl Flushes {
    /// A write to the drive has completed.
    pub(super) fn wrote(&mut self, seat: Seat) {
        self.dirty.insert(seat);
    }

    /// Begins a flush of all drives that need one and take part; returns its number and the drives.
    /// With no drives there is nothing to wait for and nothing is kept.
    pub(super) fn begin(
        &mut self,
        waiter: Waiter,
        covers: u64,
        takes_part: impl Fn(Seat) -> bool,
    ) -> (u64, Vec<Seat>) {
        let overtakes = usize::from(seeded::is(Bug::FlushOvertakes));
        let mut seats: Vec<Seat> = self
            .dirty
            .iter()
            .chain(self.in_flight.keys().skip(overtakes * self.in_flight.len()))
            .copied()
            .filter(|&seat| takes_part(seat))
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect();
        if seeded::is(Bug::FlushLeavesOut) && seats.len() > 1 {
            seats.pop();
        }
        self.dirty.clear();
        let number = self.next;
        self.next += 1;
        for &seat in &seats {
            *self.in_flight.entry(seat).or_default() += 1;
        }
        if !seats.is_empty() {
            self.pending.insert(
                number,
                Pending {
                    waiter,
                    covers,
                    outstanding: seats.len() as u64,
                    failed: BTreeMap::new(),
                    fault: None,
                },
            );
        }
        (number, seats)
    }

    /// A drive's flush has ended. A failed one makes its waiter wait for the pool's verdict.
    pub(super) fn completed(
        &mut self,
        number: u64,
        seat: Seat,
        outcome: Result<(), Fault>,
        out: bool,
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
        if let (Err(fault), false) = (outcome, out) {
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

    /// The seat has another drive, which has all that was flushed: nothing waits for what the one before it failed.
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
                // What the flush should have covered is covered by no other one yet.
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
        let outcome = pending.fault.map_or(Ok(()), Err);
        Some((pending.waiter, outcome, pending.covers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_flush_waits_for_the_first_ones_drives() {
        let mut flushes = Flushes::default();
        flushes.wrote(Seat(3));
        let (first, seats) = flushes.begin(Waiter::Request(1), 7, |_| true);
        assert_eq!(seats, [Seat(3)]);
        let (second, seats) = flushes.begin(Waiter::Request(2), 8, |_| true);
        assert_eq!(seats, [Seat(3)], "the first has not ended yet");
        assert_eq!(
            flushes.completed(first, Seat(3), Ok(()), false),
            Some((Waiter::Request(1), Ok(()), 7))
        );
        assert_eq!(
            flushes.completed(second, Seat(3), Ok(()), false),
            Some((Waiter::Request(2), Ok(()), 8))
        );
        assert!(flushes.begin(Waiter::Request(3), 9, |_| true).1.is_empty());
    }

    #[test]
    fn a_failed_flush_waits_for_the_verdict() {
        for (out, end) in [(true, Ok(())), (false, Err(Fault::Medium))] {
            let mut flushes = Flushes::default();
            flushes.wrote(Seat(0));
            let (number, _) = flushes.begin(Waiter::Job(JobId(9)), 1, |_| true);
            assert_eq!(
                flushes.completed(number, Seat(0), Err(Fault::Medium), false),
                None
            );
            assert!(flushes.decided(Seat(1), true).is_empty());
            assert_eq!(
                flushes.decided(Seat(0), out),
                [(Waiter::Job(JobId(9)), end, 1)]
            );
        }
    }

    /// A drive that failed a flush and stayed was forgotten: the next flush of the lane had nothing to do,
    /// succeeded, and vouched for writes that no flush had covered.
    #[test]
    fn a_drive_that_failed_its_flush_and_stays_is_flushed_again() {
        let mut flushes = Flushes::default();
        flushes.wrote(Seat(0));
        flushes.wrote(Seat(1));
        let (number, _) = flushes.begin(Waiter::Request(1), 1, |_| true);
        assert_eq!(flushes.completed(number, Seat(0), Ok(()), false), None);
        assert_eq!(
            flushes.completed(number, Seat(1), Err(Fault::Medium), false),
            None
        );
        assert_eq!(flushes.decided(Seat(1), false).len(), 1);
        let (_, seats) = flushes.begin(Waiter::Request(2), 1, |_| true);
        assert_eq!(seats, [Seat(1)]);
    }
}
