//! A batch: its units, its header, and the state of its columns on drives.
//!
//! ```text
//! none ── begin ──► laying
//! laying ── headed ──► writing
//! writing ── next_ended ──► none
//! writing ── next_ended ──► kept
//! writing ── next_ended ──► refused
//! writing ── next_ended ──► laying
//! writing ── gaps_ended ──► none
//! writing ── gaps_ended ──► kept
//! writing ── gaps_ended ──► refused
//! writing ── gaps_ended ──► laying
//! refused ── write_gaps ──► writing
//! refused ── gaps_ended ──► none
//! refused ── gaps_ended ──► kept
//! refused ── gaps_ended ──► laying
//! kept ── relocate ──► laying
//! kept ── flush_covered ──► none
//! ```
//!
//! The methods are those of the log. Next ended: the columns are written for the first time. Gaps ended: the batch is a gap
//! that was written again (`gaps.rs`), or the drives have left that had refused it. Kept: it has ended, and no flush has
//! covered it. Laying again: too few of its drives are left, and it gets others (`relocate.rs`).

use std::collections::BTreeMap;
use std::sync::Arc;

use block::{Fault, Seat};
use erasure::Code;
use format::seeded::{self, SeededFault};
use format::{BatchHeader, VolumeId};
use plan::action::{Compute, ComputeStep, IoKind, Origin, Service, Slice};

use super::buffer::BatchBuffer;
use super::unit::Unit;
use super::waiting::Lot;
use crate::context::Context;
use crate::ids::OpId;
use crate::io::IoTable;
use crate::purpose::Purpose;
use crate::writes::Writes;

/// CRC-32C of a block of zeros.
const ZEROS_CRC: u32 = 0x98f9_4189;

/// What is being done about a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is being laid out in memory.
    Laying,
    /// Its columns are being written to their drives, or have been.
    Writing,
    /// A gap that drives have refused, and that is not being written again.
    Refused,
}

/// A batch in flight, or a gap (`gaps.rs`), or a batch that has ended and that no flush has covered (`relocate.rs`).
#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) units: Vec<Unit>,
    pub(super) lot: Lot,
    /// Its volume, if all of it belongs to one volume.
    pub(super) volume: Option<VolumeId>,
    pub(super) header: BatchHeader,
    pub(super) position: u64,
    pub(super) buffer: BatchBuffer,
    pub(super) writes: Writes,
    pub(super) state: State,
    /// It was complete, and its operations have ended well.
    pub(super) was_complete: bool,
}

impl Batch {
    /// Copies its blocks into place and computes parity. Checksums of parity that can be computed from those of the
    /// blocks are put into the header now; the others are part of the computation.
    pub(super) fn lay(&mut self, codes: &mut ColumnCodes) -> Compute {
        let (header, buffer) = (&mut self.header, self.buffer);
        let (columns, data) = (header.seats.len(), usize::from(header.data_columns));
        let (parities, rows) = (columns - data, usize::from(header.rows));
        let step = |target: Slice, terms| ComputeStep {
            target,
            accumulate: false,
            terms,
        };
        let mut work = Compute::default();
        let mut crcs = Vec::with_capacity(data * rows);
        let blocks = self.units.iter().flat_map(|unit| &unit.blocks);
        for (index, &(_, slice, crc)) in (0..).zip(blocks) {
            let copy = step(buffer.content(index), vec![(slice, 1)]);
            work.steps.push(copy);
            crcs.push(crc);
        }
        let derived = self.units.iter().flat_map(|unit| &unit.derived);
        for (index, &(_, slice, _)) in (0..).zip(derived) {
            let copy = step(buffer.derived(index), vec![(slice, 1)]);
            work.steps.push(copy);
        }
        for index in crcs.len()..data * rows {
            let zeros = step(buffer.content(index as u64), Vec::new());
            work.steps.push(zeros);
            crcs.push(ZEROS_CRC);
        }
        if rows > 0 && data > 1 {
            let parities = u16::try_from(parities).expect("at most 2^16");
            let code = codes.of(header.data_columns, parities);
            for parity in data..columns {
                let terms = (0..data)
                    .map(|index| (buffer.rows(index), code.coefficient(parity, index)))
                    .collect();
                work.steps.push(step(buffer.rows(parity), terms));
                if parities > 1 {
                    work.sums.push(buffer.rows(parity));
                }
            }
        }
        if data == 1 {
            header.parity_crcs = crcs.repeat(parities);
        } else if parities == 1 {
            header.parity_crcs = (0..rows).map(|row| crc_of_sum(&crcs, row, rows)).collect();
        }
        work
    }

    /// The header before each of its columns.
    pub(super) fn headers(&self, cx: &Context) -> Vec<(Slice, Arc<[u8]>)> {
        let regions = cx.geometry.regions().expect("a log needs a journal");
        let bytes: Arc<[u8]> = self.header.encode(regions.pool, cx.lane).into();
        (0..self.buffer.columns())
            .map(|index| (self.buffer.header(index), Arc::clone(&bytes)))
            .collect()
    }

    /// The service class of its writes.
    pub(super) fn service(&self) -> Service {
        Service {
            origin: Origin::Log,
            bulk: self.lot == Lot::Streams,
            volume: self.volume,
        }
    }

    /// Writes its columns on the seats for which `such` is true.
    pub(super) fn write(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        service: Service,
        such: impl Fn(&Context, Seat) -> bool,
    ) {
        self.state = State::Writing;
        let offset = cx.ring_offset(self.position);
        for (index, &seat) in self.header.seats.iter().enumerate() {
            if such(cx, seat) {
                self.writes.begin();
                let purpose = Purpose::Batch {
                    sequence: self.header.sequence,
                    seat,
                };
                let column = self.buffer.column(index);
                ios.submit_slice(cx, purpose, service, IoKind::Write, (seat, offset), column);
            }
        }
    }

    /// Takes the operations that wait for it, once for each unit.
    pub(super) fn take_ops(&mut self) -> Vec<OpId> {
        let units = std::mem::take(&mut self.units).into_iter();
        units.map(|unit| unit.op).collect()
    }

    /// True if all writes have ended, and the pool has decided about those that were refused.
    pub(super) fn is_written(&self) -> bool {
        self.state == State::Writing && self.writes.is_done()
    }

    /// The fault of a drive that has refused a column and stays.
    pub(super) fn refused(&self) -> Option<Fault> {
        self.writes.kept().values().next().copied()
    }

    /// The number of its columns that are on their drives, and the number of its columns whose drives are in use.
    pub(super) fn columns_there(&self, cx: &Context) -> (usize, usize) {
        let seats = self.header.seats.iter();
        let live = seats.filter(|&&seat| !cx.view().is_out(seat));
        let kept = self.writes.kept();
        let there = live.clone().filter(|&seat| !kept.contains_key(seat));
        (there.count(), live.count())
    }

    pub(super) fn data_columns(&self) -> usize {
        usize::from(self.header.data_columns)
    }

    /// The number of columns that must be on their drives before the batch is acknowledged as durable: as many as
    /// recovery needs, and one for each drive that may still be lost. If drives in use refuse their columns, the number
    /// stays the same: a drive that has its column may go out next.
    fn columns_needed(&self, cx: &Context) -> usize {
        let layout = cx.geometry.layout();
        let vacant = match seeded::is(SeededFault::VacantCountsAsLost) {
            true => 0,
            false => layout.vacant().len(),
        };
        let drives = usize::from(layout.drives()) - vacant;
        let out = drives.saturating_sub(cx.live_seats().len());
        let tolerance = usize::from(cx.geometry.code().tolerance());
        self.data_columns() + tolerance.saturating_sub(out)
    }

    /// True if recovery finds the batch after as many more losses as the pool survives, once drives have all of its
    /// columns. If fewer drives are in use than the batch's code has columns, nothing more can be done.
    pub(super) fn is_safe(&self, cx: &Context) -> bool {
        let columns = self.header.seats.len();
        columns >= self.columns_needed(cx) || columns >= cx.journal_seats().len()
    }

    /// True if recovery would not find the batch now, or not after losses that the pool survives, and would find it if
    /// drives took the columns that they have refused.
    pub(super) fn is_gap(&self, cx: &Context) -> bool {
        let (there, live) = self.columns_there(cx);
        live >= self.data_columns() && there < self.columns_needed(cx).min(live)
    }
}

/// Codes of batches, by their data and parity columns.
#[derive(Clone, Debug, Default)]
pub(crate) struct ColumnCodes(BTreeMap<(u16, u16), Arc<Code>>);

impl ColumnCodes {
    /// P, Q and R; copies if there is one data column.
    pub(crate) fn of(&mut self, data: u16, parity: u16) -> Arc<Code> {
        let make = || {
            let name = match (data, parity) {
                (_, 0) => "none",
                (1, _) => "mirror",
                (_, 1) => "parity",
                (_, 2) => "pq",
                _ => "pqr",
            };
            let code = erasure::by_columns(name, data + parity);
            Arc::new(code.expect("these codes exist in every width"))
        };
        Arc::clone(self.0.entry((data, parity)).or_insert_with(make))
    }
}

/// CRC-32C of the XOR of row `row`'s blocks, from the checksums of the blocks, column by column. CRC-32C is linear
/// except for a constant, so each pair of blocks contributes the checksum of a block of zeros.
fn crc_of_sum(crcs: &[u32], row: usize, rows: usize) -> u32 {
    let of_row = crcs.iter().skip(row).step_by(rows);
    let (sum, count) = of_row.fold((0, 0_u32), |(sum, count), crc| (sum ^ crc, count + 1));
    match count % 2 {
        0 => sum ^ ZEROS_CRC,
        _ => sum,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_of_a_sum_follows_from_those_of_its_terms() {
        let block = |seed: u8| -> Vec<u8> {
            (0..=255)
                .cycle()
                .map(|b: u8| b.wrapping_mul(seed))
                .take(4096)
                .collect()
        };
        assert_eq!(block::crc32c(&block(0)), ZEROS_CRC);
        for (data, rows) in [(2, 1), (2, 3), (3, 2), (4, 2), (5, 1)] {
            let blocks: Vec<Vec<u8>> = (0..data * rows)
                .map(|index| block(u8::try_from(index).unwrap() * 2 + 1))
                .collect();
            let crcs: Vec<u32> = blocks.iter().map(|block| block::crc32c(block)).collect();
            for row in 0..rows {
                let mut sum = vec![0; 4096];
                for column in 0..data {
                    for (byte, &more) in sum.iter_mut().zip(&blocks[column * rows + row]) {
                        *byte ^= more;
                    }
                }
                assert_eq!(crc_of_sum(&crcs, row, rows), block::crc32c(&sum));
            }
        }
    }
}
