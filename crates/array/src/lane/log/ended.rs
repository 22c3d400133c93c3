//! Batches are written, and end in order.

use block::{Fault, Outcome, Seat};

use super::batch::Batch;
use super::{BatchBuffer, Log};
use crate::action::{Compute, Computed};
use crate::format::BatchHeader;
use crate::lane::Computing;
use crate::lane::context::Context;
use crate::lane::ids::OpId;
use crate::lane::io::IoTable;
use crate::seeded::{self, Bug};

/// A batch that has ended, and all before it have.
#[derive(Debug)]
pub(in crate::lane) struct EndedBatch {
    batch: Batch,
    gap: bool,
    /// What drives say to the log: they have taken the batch, or one that stays has refused it.
    pub(in crate::lane) tried: Option<Outcome>,
    /// How it ends for what waits for it, and for what waits behind it.
    pub(in crate::lane) outcome: Outcome,
}

impl EndedBatch {
    /// What it says, and where its blocks are.
    pub(in crate::lane) const fn content(&self) -> (&BatchHeader, BatchBuffer) {
        (&self.batch.header, self.batch.buffer)
    }

    /// The operations that wait for it, once for each unit.
    pub(in crate::lane) fn take_ops(&mut self) -> Vec<OpId> {
        self.batch.take_ops()
    }
}

impl Log {
    /// A batch's parity is there: puts the header before each column.
    pub(in crate::lane) fn laid(&mut self, cx: &mut Context, sequence: u64, computed: Computed) {
        let batch = self.batches.get_mut(&sequence).expect("it was laid");
        batch.header.parity_crcs = computed.sums;
        let work = Compute {
            puts: batch.headers(cx),
            ..Compute::default()
        };
        cx.push_compute(Computing::Headed(sequence), work);
    }

    /// A batch is ready to be written. With a seeded fault, what waits for it ends now.
    pub(in crate::lane) fn headed(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        sequence: u64,
    ) -> Vec<OpId> {
        let batch = self.batches.get_mut(&sequence).expect("it was laid");
        let service = batch.service();
        batch.write(cx, ios, service, |cx, seat| !cx.view().is_out(seat));
        match seeded::is(Bug::AcknowledgeEarly) {
            true => batch.take_ops(),
            false => Vec::new(),
        }
    }

    /// A column has been written, or not. `out`: its drive is out.
    pub(in crate::lane) fn written(
        &mut self,
        sequence: u64,
        seat: Seat,
        outcome: Outcome,
        out: bool,
    ) {
        let batch = { self.batches.get_mut(&sequence) }.or_else(|| self.gaps.get_mut(&sequence));
        let batch = batch.expect("in flight");
        batch.writes.ended(seat, outcome, out);
    }

    /// The pool has decided about a drive.
    pub(in crate::lane) fn judged(&mut self, seat: Seat, out: bool) {
        for batch in self.batches.values_mut().chain(self.gaps.values_mut()) {
            batch.writes.decided(seat, out);
        }
    }

    /// The next batch, if it has ended. When what waits for it has heard of that: [`settle`](Self::settle).
    pub(in crate::lane) fn next_ended(&mut self, cx: &Context) -> Option<EndedBatch> {
        let (_, first) = self.batches.first_key_value()?;
        if !first.is_written() {
            return None;
        }
        let (sequence, batch) = self.batches.pop_first()?;
        let (there, _) = batch.columns_there(cx);
        let found = there >= batch.data_columns();
        let mut gap = false;
        let (tried, fault) = if let Some(refused) = batch.refused() {
            // A drive that failed its column stays in use, because nothing can be lost any more
            // but by losing data.
            gap = batch.is_gap(cx);
            // Recovery finds it on fewer drives than it should, or never.
            self.blocked |= !gap;
            let fault = (gap || !found).then_some(refused);
            (Some(Err(refused)), fault)
        } else if let Some(before) = self.gap_fault() {
            // Recovery does not come as far as this.
            (None, Some(before))
        } else if !found {
            // Its drives have gone out, more of them than it survives: it is in memory alone, where the stripe's blocks
            // are preserved, and is not acknowledged as durable.
            (None, Some(Fault::Lost))
        } else {
            (Some(Ok(())), None)
        };
        let complete = !gap && !self.has_gaps();
        self.sequences.ended(sequence, complete);
        Some(EndedBatch {
            batch,
            gap,
            tried,
            outcome: fault.map_or(Ok(()), Err),
        })
    }

    /// What has waited for a batch goes on: the batch whose buffer may be given back, unless it is a gap.
    pub(in crate::lane) fn settle(&mut self, ended: EndedBatch) -> Option<u64> {
        let mut batch = ended.batch;
        let sequence = batch.header.sequence;
        if !ended.gap {
            return Some(sequence);
        }
        batch.writing = false;
        self.gaps.insert(sequence, batch);
        None
    }
}
