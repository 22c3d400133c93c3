//! The end of batches: their columns are written, and they end in order.

use block::{Fault, Outcome, Seat};
use format::seeded::{self, SeededFault};
use format::{BatchHeader, Sequence};
use plan::action::{Compute, Computed};

use super::batch::State;
use super::relocate::can_be_relocated;
use super::{BatchBuffer, Log};
use crate::context::Context;
use crate::ids::OpId;
use crate::io::IoTable;
use crate::purpose::Computing;

/// A batch that has ended; all batches before it have ended.
#[derive(Debug)]
pub(crate) struct EndedBatch {
    /// Its descriptors.
    pub(crate) header: BatchHeader,
    /// The layout of its buffer.
    pub(crate) buffer: BatchBuffer,
    /// The operations that wait for it, once for each unit.
    pub(crate) ops: Vec<OpId>,
    /// Its buffer may be released. Otherwise the batch may have to be written again.
    pub(crate) is_done: bool,
    /// The result for the log's back-off: drives have taken the batch, or a drive that stays has refused it.
    pub(crate) tried: Option<Outcome>,
    /// The outcome for the operations that wait for it, and for those behind it.
    pub(crate) outcome: Outcome,
}

impl Log {
    /// A batch's parity is computed: puts the header before each column.
    pub(crate) fn laid(&mut self, cx: &mut Context, sequence: Sequence, computed: Computed) {
        let batch = self.batches.get_mut(&sequence).expect("it was laid");
        batch.header.parity_crcs = computed.sums;
        let work = Compute {
            puts: batch.headers(cx),
            ..Compute::default()
        };
        cx.push_compute(Computing::Headed(sequence), work);
    }

    /// A batch is laid out: writes its columns. It may be a batch that is relocated. With a seeded fault, the operations
    /// that wait for it end now.
    pub(crate) fn headed(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        sequence: Sequence,
    ) -> Vec<OpId> {
        let batch = { self.batches.get_mut(&sequence) }.or_else(|| self.gaps.get_mut(&sequence));
        let batch = batch.expect("it was laid");
        let service = batch.service();
        batch.write(cx, ios, service, |cx, seat| !cx.view().is_out(seat));
        match seeded::is(SeededFault::AcknowledgeEarly) {
            true => batch.take_ops(),
            false => Vec::new(),
        }
    }

    /// The write of a column has ended. `out`: its drive is out.
    pub(crate) fn written(&mut self, sequence: Sequence, seat: Seat, outcome: Outcome, out: bool) {
        let batch = { self.batches.get_mut(&sequence) }.or_else(|| self.gaps.get_mut(&sequence));
        let batch = batch.expect("in flight");
        batch.writes.ended(seat, outcome, out);
    }

    /// The pool has decided about a drive: it is out, or it is kept.
    pub(crate) fn judged(&mut self, seat: Seat, out: bool) {
        for batch in self.batches.values_mut().chain(self.gaps.values_mut()) {
            batch.writes.decided(seat, out);
        }
    }

    /// The next batch, if it has ended. If it is a gap, it is added to the gaps now: an operation that waits for it and
    /// logs again must not let a checkpoint pass that gap. While gaps are being written again, the batches behind them
    /// wait.
    pub(crate) fn next_ended(&mut self, cx: &mut Context) -> Option<EndedBatch> {
        let (_, first) = self.batches.first_key_value()?;
        if !first.is_written() || self.writes_gaps() {
            return None;
        }
        let (sequence, mut batch) = self.batches.pop_first()?;
        if batch.relocate(cx) {
            self.batches.insert(sequence, batch);
            return None;
        }
        let (there, _) = batch.columns_there(cx);
        let found = there >= batch.data_columns();
        let mut gap = false;
        let (tried, fault) = if let Some(refused) = batch.refused() {
            // A drive that failed its column stays in use, because the pool can spare no more drives without data loss.
            gap = batch.is_gap(cx);
            // Recovery finds the batch on fewer drives than required, or not at all.
            if !gap {
                self.blocked = self.blocked.max(Some(sequence));
            }
            // Recovery also stops before this batch if an earlier one is a gap.
            let behind = self.has_gaps();
            let fault = (gap || behind || !found).then_some(refused);
            (Some(Err(refused)), fault)
        } else if let Some(before) = self.gap_fault() {
            // Recovery stops before this batch.
            (None, Some(before))
        } else if !found {
            // More of its drives have gone out than it survives: the batch is in memory alone. Its blocks are preserved
            // there, and the batch is not acknowledged as durable.
            (None, Some(Fault::Lost))
        } else {
            (Some(Ok(())), None)
        };
        let complete = !gap && !self.has_gaps();
        self.sequences.ended(sequence, complete);
        let (buffer, ops) = (batch.buffer, batch.take_ops());
        let is_kept = gap || found && can_be_relocated(cx);
        let header = match is_kept {
            true => {
                let header = batch.header.clone();
                batch.was_complete = fault.is_none();
                let kept = match gap {
                    true => &mut self.gaps,
                    false => &mut self.unflushed,
                };
                if gap {
                    batch.state = State::Refused;
                }
                kept.insert(sequence, batch);
                header
            }
            false => batch.header,
        };
        Some(EndedBatch {
            header,
            buffer,
            ops,
            is_done: !is_kept,
            tried,
            outcome: fault.map_or(Ok(()), Err),
        })
    }
}
