//! Gaps in the log: batches that recovery would not find.
//!
//! A batch of which drives that stay have refused so much that recovery would not find it, or not after as many more
//! losses as the pool survives, is a *gap*: recovery stops there. Who waited for it, or for one behind it, is told that
//! it failed; reads take it from memory, as ever. It is written again, to the same place, before anything else is logged;
//! until then nothing that it has superseded leaves the ring.

use block::{Fault, Seat};

use super::Columns;
use crate::lane::Lane;
use crate::lane::backoff::Work;

impl Lane {
    /// True if recovery would stop before what has been logged.
    pub(in crate::lane) fn has_gaps(&self) -> bool {
        !self.log.gaps.is_empty()
    }

    /// What a drive has refused a gap with.
    pub(in crate::lane) fn gap_fault(&self) -> Option<Fault> {
        let faults = { self.log.gaps.values() }.flat_map(|gap| gap.writes.kept().values());
        let any = || self.has_gaps().then_some(Fault::Medium);
        faults.copied().next().or_else(any)
    }

    /// Gaps are written again for a checkpoint that somebody waits for; false if they have been.
    pub(in crate::lane) fn fill_gaps_for_checkpoint(&mut self) -> bool {
        if !self.log.gaps_tried {
            self.log.gaps_tried = true;
            self.write_gaps();
        }
        self.log.gaps.values().any(|gap| gap.writing)
    }

    /// Writes what drives have refused of the gaps again.
    pub(super) fn write_gaps(&mut self) {
        let resting = { self.log.gaps.iter() }.filter(|(_, gap)| !gap.writing);
        let sequences: Vec<u64> = resting.map(|(&sequence, _)| sequence).collect();
        for sequence in sequences {
            let gap = self.log.gaps.get_mut(&sequence).expect("just listed");
            let refused = std::mem::take(&mut gap.writes);
            let seats: Vec<Seat> = { refused.kept().keys().copied() }
                .filter(|&seat| !self.cx.view().is_out(seat))
                .collect();
            gap.writing = true;
            let columns = Columns::of(gap, &seats);
            self.push_columns(sequence, &columns);
        }
        self.gaps_ended();
    }

    /// Gaps that have been written again are none any more, if the drives took them.
    pub(super) fn gaps_ended(&mut self) {
        if self.log.gaps.is_empty() {
            return;
        }
        let sequences: Vec<u64> = self.log.gaps.keys().copied().collect();
        let mut refused = None;
        for sequence in sequences {
            let gap = &self.log.gaps[&sequence];
            if !gap.writes.is_done() {
                continue;
            }
            let (_, live) = self.columns_there(gap);
            let kept = gap.writes.kept().values().next().copied();
            if self.is_gap(gap) {
                let gap = self.log.gaps.get_mut(&sequence).expect("just seen");
                if std::mem::take(&mut gap.writing) {
                    refused = refused.or(kept);
                }
                continue;
            }
            // It is found from now on; or it never will be, and a checkpoint must make it unnecessary.
            self.log.blocked |= kept.is_some() || live < gap.data_columns();
            self.log.gaps.remove(&sequence);
            self.overlay.unpin(sequence);
        }
        let first = self.log.gaps.keys().next().copied();
        self.log.sequences.gaps_filled(first);
        if let Some(fault) = refused {
            self.retries.failed(&mut self.cx, Work::Batch, fault);
            self.refuse_with(fault);
        } else if self.log.gaps.is_empty() && !self.log.blocked {
            self.retries.succeeded(&mut self.cx, Work::Batch);
        }
    }
}
