//! Gaps in the log: batches that recovery would not find.
//!
//! If drives that stay in use refuse so many columns of a batch that recovery would not find it, or not after as many
//! more losses as the pool survives, the batch is a *gap*: recovery stops there. Operations that wait for the gap, or
//! for a batch behind it, end with its fault; reads take its blocks from memory, as always. The gap is written again,
//! to the same place, before anything else is logged. Until then no record that it has superseded leaves the ring.
//!
//! A batch that was complete becomes a gap, too, if its drives leave before a flush: it is relocated (`relocate.rs`).

use block::{Fault, Outcome, Seat};
use format::Sequence;
use plan::action::{Origin, Service};

use super::Log;
use super::batch::{Batch, State};
use super::relocate::can_be_relocated;
use crate::context::Context;
use crate::io::IoTable;

/// The result of gaps that were written again.
#[derive(Debug, Default)]
pub(crate) struct Filled {
    /// Batches that are gaps no more: their buffers may be released.
    pub(crate) sequences: Vec<Sequence>,
    /// The result for the log's back-off: drives have taken all gaps, or a drive that stays has refused one again.
    pub(crate) tried: Option<Outcome>,
}

impl Log {
    /// True if recovery would stop before the end of the log.
    pub(crate) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty()
    }

    /// The fault with which drives have refused a gap.
    pub(crate) fn gap_fault(&self) -> Option<Fault> {
        let fault = self.gaps.values().find_map(|gap| gap.refused());
        let any = || self.has_gaps().then_some(Fault::Medium);
        fault.or_else(any)
    }

    /// True if gaps are to be written again for a checkpoint that something waits for: once for each checkpoint.
    pub(crate) const fn try_gaps(&mut self) -> bool {
        !std::mem::replace(&mut self.gaps_tried, true)
    }

    /// True while gaps are being written again.
    pub(crate) fn writes_gaps(&self) -> bool {
        self.gaps.values().any(|gap| gap.state != State::Refused)
    }

    /// Writes those columns of the gaps again that drives have refused.
    pub(crate) fn write_gaps(&mut self, cx: &mut Context, ios: &mut IoTable) {
        let refused = |gap: &&mut Batch| gap.state == State::Refused;
        for gap in self.gaps.values_mut().filter(refused) {
            let refused = std::mem::take(&mut gap.writes);
            let again = |cx: &Context, seat: Seat| {
                refused.kept().contains_key(&seat) && !cx.view().is_out(seat)
            };
            gap.write(cx, ios, Service::prompt(Origin::Log), again);
        }
    }

    /// Removes gaps that have been written again, if the drives took them.
    pub(crate) fn gaps_ended(&mut self, cx: &mut Context) -> Filled {
        let mut filled = Filled::default();
        if self.gaps.is_empty() {
            return filled;
        }
        let mut refused = None;
        let done: Vec<Sequence> = { self.gaps.iter() }
            .filter(|(_, gap)| gap.state != State::Laying && gap.writes.is_done())
            .map(|(&sequence, _)| sequence)
            .collect();
        for sequence in done {
            let gap = self.gaps.get_mut(&sequence).expect("just listed");
            if gap.is_gap(cx) {
                if std::mem::replace(&mut gap.state, State::Refused) == State::Writing {
                    refused = refused.or(gap.refused());
                }
                continue;
            }
            if gap.relocate(cx) {
                continue;
            }
            let (_, live) = gap.columns_there(cx);
            // Recovery finds the batch from now on; or it never will, and a checkpoint must make the batch unnecessary.
            if gap.refused().is_some() || live < gap.data_columns() {
                self.blocked = self.blocked.max(Some(sequence));
            }
            let batch = self.gaps.remove(&sequence).expect("just listed");
            if live >= batch.data_columns() && can_be_relocated(cx) {
                self.unflushed.insert(sequence, batch);
            } else {
                filled.sequences.push(sequence);
            }
        }
        self.sequences
            .gaps_changed(self.gaps.keys().next().copied());
        filled.tried = match refused {
            Some(fault) => Some(Err(fault)),
            None if self.gaps.is_empty() && !self.is_blocked() => Some(Ok(())),
            None => None,
        };
        filled
    }
}
