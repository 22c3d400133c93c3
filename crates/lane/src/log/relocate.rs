//! Batches that their drives leave before a flush are relocated: written again, to other drives.
//!
//! A small batch is on few drives. Where stripes are narrower than the pool, all of these can leave within a moment,
//! with what was in their caches, while no stripe is lost and the pool goes on. Recovery would end before that batch: it
//! would lose what was logged behind it, although that may be in place and durable by then. So the batch gets other
//! drives in its header, and is written there, at the same place of the ring, before anything else is logged. Meanwhile
//! it is a gap (`gaps.rs`), and whatever must be durable waits.
//!
//! A batch is kept in memory for this until a flush covers it.

use block::Fault;
use plan::action::Compute;

use super::Log;
use super::batch::{Batch, State};
use crate::context::Context;
use crate::purpose::Computing;
use crate::writes::Writes;

/// True if all drives of a batch may leave while the pool goes on: its stripes are narrower than the pool.
pub(super) fn can_be_relocated(cx: &Context) -> bool {
    let layout = cx.geometry.layout();
    layout.columns() < layout.drives()
}

impl Log {
    /// Drives have left: batches that too few drives have are relocated.
    pub(crate) fn relocate(&mut self, cx: &mut Context) {
        let relocated = self.unflushed.extract_if(.., |_, batch| batch.relocate(cx));
        self.gaps.extend(relocated);
        self.sequences
            .gaps_changed(self.gaps.keys().next().copied());
    }

    /// True if batches are being relocated whose operations have ended well.
    pub(crate) fn relocates(&self) -> bool {
        self.relocated().any(|gap| gap.state != State::Refused)
    }

    /// The fault with which drives have refused such a batch, if it is not being written any more.
    pub(crate) fn relocation_fault(&self) -> Option<Fault> {
        let mut refused = self.relocated().filter(|gap| gap.state == State::Refused);
        refused
            .next()
            .map(|gap| gap.refused().unwrap_or(Fault::Lost))
    }

    /// Gaps whose operations have ended well.
    fn relocated(&self) -> impl Iterator<Item = &Batch> {
        self.gaps.values().filter(|gap| gap.was_complete)
    }
}

impl Batch {
    /// Gives the batch other drives if too few of its own are in use. True if it has them, and is being laid out again;
    /// false if it needs none, or there are not enough.
    pub(super) fn relocate(&mut self, cx: &mut Context) -> bool {
        let (_, live) = self.columns_there(cx);
        if live >= self.data_columns() || !can_be_relocated(cx) {
            return false;
        }
        let seats = &self.header.seats;
        let others = cx.journal_seats().into_iter();
        let mut others = others
            .filter(|seat| !seats.contains(seat))
            .collect::<Vec<_>>();
        if live + others.len() < self.data_columns() {
            return false;
        }
        // Each batch begins with another drive, so that no drive is part of all batches.
        let first = usize::try_from(self.header.sequence.0).unwrap_or(0) % others.len();
        others.rotate_left(first);
        let mut others = others.into_iter();
        // Content first: where there are fewer drives than columns, parity keeps the drives that have left.
        for seat in &mut self.header.seats {
            if cx.view().is_out(*seat)
                && let Some(other) = others.next()
            {
                *seat = other;
            }
        }
        self.writes = Writes::default();
        self.state = State::Laying;
        let work = Compute {
            puts: self.headers(cx),
            ..Compute::default()
        };
        cx.push_compute(Computing::Headed(self.header.sequence), work);
        true
    }
}
