//! Counts the outcomes of writes and flushes, to check [`Flushes`](crate::flush::Flushes). `Flushes` does not use
//! these counts.
//!
//! ```text
//!   written   1  2  3          4            a drive's writes, as their ends come
//!   flush          └── begins after 2 ──► ended well: it covers 2, and not 3
//! ```
//!
//! Invariant: a flush that has succeeded covers each write that had ended when it began, on each drive that is not out.
//! So what counts as durable is durable.
//!
//! Only builds with assertions count.

use std::collections::BTreeMap;

use block::{Outcome, Seat};
use plan::Transfer;
use plan::action::IoKind;

use crate::context::Context;
use crate::purpose::Purpose;

/// Writes of one drive.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// How many have ended without a fault.
    ended: u64,
    /// How many of these a flush has covered.
    covered: u64,
}

/// Writes and flushes of all drives.
#[derive(Clone, Debug, Default)]
pub(super) struct Unflushed {
    seats: BTreeMap<Seat, Written>,
    /// By number of a flush of all drives: how many writes of each drive had ended when it began.
    begun: BTreeMap<u64, Vec<(Seat, u64)>>,
}

impl Unflushed {
    /// An operation has ended.
    pub(super) fn ended(&mut self, purpose: Purpose, outcome: Outcome) {
        if !cfg!(debug_assertions) || outcome.is_err() {
            return;
        }
        if let Purpose::Flush { number, seat } = purpose {
            let begun = self.begun.get(&number).into_iter().flatten();
            if let Some(&(_, ended)) = begun.into_iter().find(|&&(at, _)| at == seat) {
                let written = self.seats.entry(seat).or_default();
                written.covered = written.covered.max(ended);
            }
        } else if let Some(seat) = written_to(purpose) {
            self.seats.entry(seat).or_default().ended += 1;
        }
    }

    /// A flush of all drives with unflushed writes begins. `None`: no drive has any.
    pub(super) fn flush_begins(&mut self, cx: &Context, number: Option<u64>) {
        if !cfg!(debug_assertions) {
            return;
        }
        let there = self
            .seats
            .iter()
            .filter(|&(&seat, _)| !cx.view().is_out(seat));
        match number {
            Some(number) => {
                let ended = there.map(|(&seat, written)| (seat, written.ended));
                self.begun.insert(number, ended.collect());
            }
            None => {
                for (seat, written) in there {
                    assert_eq!(
                        written.covered, written.ended,
                        "drive {seat} has unflushed writes"
                    );
                }
            }
        }
    }

    /// A flush has ended on all drives.
    ///
    /// # Panics
    /// When the flush counts as successful, and some drive has not flushed all writes that had ended before it.
    pub(super) fn flush_finished(&mut self, cx: &Context, number: u64, outcome: Outcome) {
        let begun = self.begun.remove(&number).unwrap_or_default();
        let there = begun.iter().filter(|&&(seat, _)| !cx.view().is_out(seat));
        for &(seat, ended) in there.filter(|_| outcome.is_ok()) {
            let covered = self.seats[&seat].covered;
            assert!(
                covered >= ended,
                "a flush ended well with {} writes of drive {seat} not flushed",
                ended - covered
            );
        }
    }

    /// A seat's drive is out, or the seat has another drive that has all of the writes: no write to it waits for a
    /// flush.
    pub(super) fn forget(&mut self, seat: Seat) {
        if let Some(written) = self.seats.get_mut(&seat) {
            written.covered = written.ended;
        }
    }
}

/// The drive that an operation has written to.
fn written_to(purpose: Purpose) -> Option<Seat> {
    match purpose {
        Purpose::Transfer { transfer, .. } | Purpose::Install { transfer } => {
            let Transfer { seat, kind, .. } = transfer;
            matches!(kind, IoKind::Write | IoKind::WriteZeroes).then_some(seat)
        }
        Purpose::Batch { seat, .. }
        | Purpose::PageWrite { seat, .. }
        | Purpose::Anchor { seat }
        | Purpose::Restore { seat } => Some(seat),
        Purpose::Flush { .. }
        | Purpose::PageRead { .. }
        | Purpose::Probe { .. }
        | Purpose::PageScan { .. }
        | Purpose::Recovery { .. }
        | Purpose::Second { .. }
        | Purpose::Discard { .. }
        | Purpose::DiscardRing => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Drives 0 and 1 have one write each that has ended.
    fn lab() -> (Unflushed, Context) {
        let mut unflushed = Unflushed::default();
        for seat in [0, 1] {
            unflushed.ended(Purpose::Anchor { seat: Seat(seat) }, Ok(()));
        }
        (unflushed, Context::of_test("raid6", 6))
    }

    fn flush(number: u64, seat: u16) -> Purpose {
        Purpose::Flush {
            number,
            seat: Seat(seat),
        }
    }

    #[test]
    fn a_flush_covers_what_had_ended_when_it_began() {
        let (mut unflushed, cx) = lab();
        unflushed.flush_begins(&cx, Some(1));
        unflushed.ended(Purpose::Restore { seat: Seat(0) }, Ok(()));
        unflushed.ended(flush(1, 0), Ok(()));
        unflushed.ended(flush(1, 1), Ok(()));
        unflushed.flush_finished(&cx, 1, Ok(()));
        unflushed.flush_begins(&cx, Some(2));
        unflushed.ended(flush(2, 0), Ok(()));
        unflushed.flush_finished(&cx, 2, Ok(()));
        unflushed.flush_begins(&cx, None);
    }

    #[test]
    #[should_panic(expected = "1 writes of drive 1 not flushed")]
    fn one_that_leaves_out_a_drive_is_noticed() {
        let (mut unflushed, cx) = lab();
        unflushed.flush_begins(&cx, Some(1));
        unflushed.ended(flush(1, 0), Ok(()));
        unflushed.flush_finished(&cx, 1, Ok(()));
    }

    #[test]
    #[should_panic(expected = "drive 0 has unflushed writes")]
    fn none_is_spared_while_a_drive_has_unflushed_writes() {
        let (mut unflushed, cx) = lab();
        unflushed.flush_begins(&cx, None);
    }

    #[test]
    fn what_failed_or_is_out_is_not_waited_for() {
        let (mut unflushed, mut cx) = lab();
        unflushed.ended(Purpose::Anchor { seat: Seat(2) }, Err(block::Fault::Medium));
        unflushed.flush_begins(&cx, Some(1));
        unflushed.ended(flush(1, 0), Err(block::Fault::Medium));
        unflushed.flush_finished(&cx, 1, Err(block::Fault::Medium));
        cx.change_view(|view, _| view.seat_out(Seat(0)));
        unflushed.forget(Seat(0));
        unflushed.flush_begins(&cx, Some(2));
        unflushed.ended(flush(2, 1), Ok(()));
        unflushed.flush_finished(&cx, 2, Ok(()));
        unflushed.flush_begins(&cx, None);
    }
}
