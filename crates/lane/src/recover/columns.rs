//! Recovery reconstructs a batch from its columns: any of them suffice that are as many as its data columns.
//!
//! ```text
//!   Columns ─► Checking ─┬─ all there ───────────────────────► (Deriving) ─► found
//!      ▲                 ├─ some are missing, all data is there ─► Restoring (laid out, written again) ─► (Deriving) ─► found
//!      │                 ├─ data is missing ─► Reconstructing (from the others) ─► Checking
//!      │                 └─ too much is missing ─► not whole
//!      └─ a straggler may still write into the memory: read again, into other memory
//! ```

use std::collections::BTreeSet;
use std::sync::Arc;

use block::{BLOCK_BYTES, PAGE_BYTES, Seat};
use erasure::ElementSet;
use format::seeded::{self, SeededFault};
use format::{BatchHeader, Descriptor};
use plan::ScratchId;
use plan::action::{Action, BufferId, Compute, ComputeStep, IoKind, Origin, Service, Slice};

use super::{Lent, Next, Phase, Recovery, Seek};
use crate::context::Context;
use crate::log::{BatchBuffer, derived};
use crate::purpose::Purpose;
use crate::ring::Placed;

/// A batch whose header was found.
#[derive(Clone, Debug)]
pub(super) struct Found {
    header: BatchHeader,
    position: u64,
    buffer: BatchBuffer,
    /// Columns that could not be read.
    pub(super) missing: BTreeSet<usize>,
    reconstructed: bool,
    /// Every column that should be there is, with its header.
    whole: bool,
}

impl Recovery {
    /// Reads a batch's columns into a buffer with the layout of the one that it was written from.
    pub(super) fn read_columns(
        &mut self,
        lent: &mut Lent<'_>,
        header: BatchHeader,
        position: u64,
    ) -> Next {
        if position + header.length() > self.ring.blocks() {
            return self.end_of_log(lent);
        }
        let scratch = lent.cx.fresh_scratch();
        let buffer = BatchBuffer::with_all_columns(&header, scratch);
        let bytes = buffer.bytes(derived::blocks(&header));
        lent.cx.actions.push_back(Action::Allocate(scratch, bytes));
        lent.overlay
            .add_buffer(header.sequence, scratch, bytes, Vec::new());
        let offset = lent.cx.ring_offset(position);
        let there: Vec<(usize, Seat)> = header.seats.iter().copied().enumerate().collect();
        let live = self.readable_seats(lent);
        let (there, missing): (Vec<_>, Vec<_>) =
            there.into_iter().partition(|(_, seat)| live.contains(seat));
        self.in_flight = there.len() as u64;
        self.phase = Phase::Columns(Found {
            header,
            position,
            buffer,
            missing: missing.into_iter().map(|(index, _)| index).collect(),
            reconstructed: false,
            whole: true,
        });
        for &(index, seat) in &there {
            lent.read((seat, offset), index, buffer.column(index));
        }
        match there.is_empty() {
            true => self.columns_read(lent),
            false => Next::Wait,
        }
    }

    /// All reads of a batch's columns have ended.
    pub(super) fn columns_read(&mut self, lent: &mut Lent<'_>) -> Next {
        let found = self.take_found();
        let memory = BufferId::Scratch(found.buffer.scratch());
        if lent.ios.stragglers().hold(memory) {
            // Stragglers may still write into this memory, and change what is reconstructed there. Read again, without
            // drives that are out by now.
            lent.overlay.unpin(found.header.sequence);
            return self.read_columns(lent, found.header, found.position);
        }
        self.check(lent, found)
    }

    fn take_found(&mut self) -> Found {
        match std::mem::replace(&mut self.phase, Phase::Anchors) {
            Phase::Columns(found) | Phase::Restoring(found) => found,
            other => unreachable!("no columns are read or written in {other:?}"),
        }
    }

    /// Asks for the checksums of all blocks of a batch: its columns', then their headers'.
    pub(super) fn check(&mut self, lent: &mut Lent<'_>, found: Found) -> Next {
        let columns = 0..found.header.seats.len();
        let bodies = { columns.clone() }
            .filter(|_| found.header.rows > 0)
            .map(|index| found.buffer.rows(index));
        let sums = bodies
            .chain(columns.map(|index| found.buffer.header(index)))
            .collect();
        self.phase = Phase::Checking(found);
        lent.compute(Compute {
            sums,
            ..Compute::default()
        })
    }

    pub(super) fn columns_checked(
        &mut self,
        lent: &mut Lent<'_>,
        mut found: Found,
        sums: &[u32],
    ) -> Next {
        let header = &found.header;
        let rows = usize::from(header.rows);
        let data = usize::from(header.data_columns);
        let (bodies, heads) = sums.split_at(rows * header.seats.len());
        let bad = found.bad_blocks(bodies);
        let live = lent.cx.live_seats();
        let is_live = |column: usize| live.contains(&header.seats[column]);
        let lacks = bad.iter().any(|&(_, column)| is_live(column));
        // The header that was found may have been on a drive that has gone out since. Only headers count that were read
        // with the columns and are on drives that are there.
        let head = encoded(lent.cx, header);
        let head: Vec<u32> = head.chunks(PAGE_BYTES).map(block::crc32c).collect();
        let has_head = |column: usize| {
            let sums = heads.iter().skip(column * head.len());
            !found.missing.contains(&column) && sums.take(head.len()).eq(&head)
        };
        let headless = (0..header.seats.len()).any(|column| is_live(column) && !has_head(column));
        found.whole &= !lacks && !headless;
        if seeded::is(SeededFault::StopAtBadColumn) && lacks {
            lent.overlay.unpin(found.header.sequence);
            return self.end_of_log(lent);
        }
        if bad.iter().any(|&(_, column)| column < data) {
            return self.reconstruct(lent, found, &bad);
        }
        if found.whole || seeded::is(SeededFault::SkipRestore) {
            self.columns_found(lent, found)
        } else {
            self.restore(lent, found)
        }
    }

    /// Computes data that is missing or bad from the other columns. This is tried once: if data is bad afterwards, the
    /// batch is not whole.
    fn reconstruct(
        &mut self,
        lent: &mut Lent<'_>,
        mut found: Found,
        bad: &BTreeSet<(usize, usize)>,
    ) -> Next {
        let header = &found.header;
        let (columns, data) = (header.seats.len(), usize::from(header.data_columns));
        let parity = u16::try_from(columns - data).expect("at most 2^16");
        let code = self.codes.of(header.data_columns, parity);
        let temporary = lent.cx.fresh_scratch();
        let mut temporaries = 0;
        // A column that is missing lacks its zeros too.
        let mut steps = found.padding();
        let mut unrecoverable = found.reconstructed;
        for row in 0..usize::from(header.rows) {
            let lost: ElementSet = (0..data).filter(|&c| bad.contains(&(row, c))).collect();
            if lost.is_empty() {
                continue;
            }
            let known: ElementSet = (0..columns).filter(|&c| !bad.contains(&(row, c))).collect();
            let Ok(recovery) = code.recover(&known, &lost) else {
                unrecoverable = true;
                break;
            };
            let block = |slot: usize| match slot.checked_sub(columns) {
                None => { found.buffer.rows(slot) }.part(row as u64 * BLOCK_BYTES, BLOCK_BYTES),
                Some(index) => Slice {
                    buffer: BufferId::Scratch(temporary),
                    offset: index as u64 * BLOCK_BYTES,
                    length: BLOCK_BYTES,
                },
            };
            temporaries = temporaries.max(recovery.schedule.temporaries());
            steps.extend(recovery.schedule.steps.iter().map(|step| {
                let terms = step.terms.iter();
                ComputeStep {
                    target: block(step.target.into()),
                    accumulate: step.accumulate,
                    terms: terms.map(|&(slot, c)| (block(slot.into()), c)).collect(),
                }
            }));
        }
        if unrecoverable {
            return self.not_whole(lent, &found);
        }
        found.reconstructed = true;
        self.phase = Phase::Reconstructing(found);
        self.allocate(lent, temporary, temporaries);
        lent.compute(Compute {
            steps,
            ..Compute::default()
        })
    }

    /// Allocates memory for intermediate results, if there are any.
    fn allocate(&mut self, lent: &mut Lent<'_>, scratch: ScratchId, blocks: usize) {
        if blocks > 0 {
            let bytes = blocks as u64 * BLOCK_BYTES;
            lent.cx.actions.push_back(Action::Allocate(scratch, bytes));
            self.scratch = Some(scratch);
        }
    }

    /// A batch cannot be reconstructed: the log ends before it, unless a later header shows that it was flushed.
    fn not_whole(&mut self, lent: &mut Lent<'_>, found: &Found) -> Next {
        let next = found.position + found.header.length();
        lent.overlay.unpin(found.header.sequence);
        if seeded::is(SeededFault::PastTorn) {
            self.expected = self.expected.next();
            return self.read_headers(lent, next, Seek::Next);
        }
        self.read_headers(lent, next, Seek::Proof)
    }

    /// All of a batch is known, but not all of it is on the drives that are there: lays it out again.
    fn restore(&mut self, lent: &mut Lent<'_>, found: Found) -> Next {
        let header = &found.header;
        let data = usize::from(header.data_columns);
        let columns = header.seats.len();
        let bytes: Arc<[u8]> = encoded(lent.cx, header).into();
        let puts = (0..columns).map(|index| (found.buffer.header(index), Arc::clone(&bytes)));
        let mut work = Compute {
            puts: puts.collect(),
            steps: found.padding(),
            ..Compute::default()
        };
        if header.rows > 0 {
            let parity = u16::try_from(columns - data).expect("at most 2^16");
            let code = self.codes.of(header.data_columns, parity);
            work.steps.extend((data..columns).map(|parity| {
                let terms = (0..data)
                    .map(|index| (found.buffer.rows(index), code.coefficient(parity, index)))
                    .collect();
                ComputeStep {
                    target: found.buffer.rows(parity),
                    accumulate: false,
                    terms,
                }
            }));
        }
        self.phase = Phase::Restoring(found);
        lent.compute(work)
    }

    pub(super) fn write_columns(&mut self, lent: &mut Lent<'_>, found: Found) -> Next {
        let live = lent.cx.live_seats();
        let offset = lent.cx.ring_offset(found.position);
        let columns = found.header.seats.iter().copied().enumerate();
        for (index, seat) in columns.filter(|(_, seat)| live.contains(seat)) {
            self.writes.begin();
            lent.ios.submit_slice(
                lent.cx,
                Purpose::Restore { seat },
                Service::prompt(Origin::Rebuild),
                IoKind::Write,
                (seat, offset),
                found.buffer.column(index),
            );
        }
        self.restoring = true;
        self.phase = Phase::Restoring(found);
        self.writes_ended(lent)
    }

    /// A batch has been written again.
    pub(super) fn columns_written(&mut self, lent: &mut Lent<'_>) -> Next {
        self.restoring = false;
        let found = self.take_found();
        self.columns_found(lent, found)
    }

    /// All columns of a batch are there: computes the parity that the batch leaves out.
    fn columns_found(&mut self, lent: &mut Lent<'_>, found: Found) -> Next {
        if derived::blocks(&found.header) == 0 {
            return self.batch_found(found);
        }
        let temporary = lent.cx.fresh_scratch();
        let derivation = derived::derivation(lent.cx, &found.header, found.buffer, temporary);
        let Some(derivation) = derivation else {
            return self.not_whole(lent, &found);
        };
        self.allocate(lent, temporary, derivation.temporaries);
        let mut work = Compute {
            steps: derivation.steps,
            sums: derivation.sums,
            ..Compute::default()
        };
        if seeded::is(SeededFault::DerivedNotComputed) {
            work.steps.clear();
        }
        self.phase = Phase::Deriving(found);
        lent.compute(work)
    }

    pub(super) fn derived(&mut self, lent: &mut Lent<'_>, found: Found, sums: &[u32]) -> Next {
        let right = derived::are_right(&found.header, sums) || lent.cx.trusted;
        if right || seeded::is(SeededFault::DerivedNotComputed) {
            self.batch_found(found)
        } else {
            self.not_whole(lent, &found)
        }
    }

    /// A batch is whole: it counts.
    fn batch_found(&mut self, found: Found) -> Next {
        let header = found.header;
        let placed = Placed {
            sequence: header.sequence,
            position: found.position,
            length: header.length(),
        };
        self.ring.take(placed, Vec::new());
        self.batches += 1;
        self.failed.clear();
        self.flushed = self.flushed.max(header.flushed);
        self.expected = header.sequence.next();
        Next::Found(header, found.buffer)
    }
}

impl Found {
    /// Checksums of its content.
    fn contents(&self) -> impl Iterator<Item = u32> + '_ {
        let descriptors = self.header.descriptors.iter();
        descriptors.filter_map(|descriptor| match *descriptor {
            Descriptor::Content { crc, .. } => Some(crc),
            _ => None,
        })
    }

    /// Blocks, by row and column, that are missing or do not match the header's checksums.
    fn bad_blocks(&self, sums: &[u32]) -> BTreeSet<(usize, usize)> {
        let header = &self.header;
        let rows = usize::from(header.rows);
        let data = usize::from(header.data_columns);
        let contents: Vec<u32> = self.contents().collect();
        let mut bad = BTreeSet::new();
        for (index, &sum) in sums.iter().enumerate() {
            let (column, row) = (index / rows, index % rows);
            let wanted = if column < data {
                // Behind the last block there are zeros.
                contents.get(index).copied()
            } else {
                Some(header.parity_crcs[(column - data) * rows + row])
            };
            let missing = self.missing.contains(&column) && !self.reconstructed;
            if missing || wanted.is_some_and(|wanted| wanted != sum) {
                bad.insert((row, column));
            }
        }
        bad
    }

    /// Zeros behind the last block of its content, up to the end of its data columns.
    fn padding(&self) -> Vec<ComputeStep> {
        let contents = self.contents().count() as u64;
        let blocks = u64::from(self.header.rows) * u64::from(self.header.data_columns);
        (contents..blocks)
            .map(|index| ComputeStep {
                target: self.buffer.content(index),
                accumulate: false,
                terms: Vec::new(),
            })
            .collect()
    }
}

/// A header as it is written before each of its batch's columns.
fn encoded(cx: &Context, header: &BatchHeader) -> Vec<u8> {
    let pool = cx.geometry.regions().expect("a journal").pool;
    header.encode(pool, cx.lane)
}
