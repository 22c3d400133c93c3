//! Which copy serves a read: the one whose drive has least to do.
//!
//! A parity that has one data element as its only member, with coefficient 1, is a copy of it: mirrors, and single
//! parity over one data element. Where content is known by checksums, each copy is judged by its own entries, like any
//! other block. Without checksums copies may differ after a stop that was not clean, until they are computed anew: so
//! long the first copy serves all reads, lest a client sees a block change to and fro.
//!
//! What a drive has to do is what this lane has asked of it: other lanes of the pool are not known here.

use std::collections::BTreeSet;

use block::BLOCK_BYTES;

use super::Lane;
use super::op::{Op, Task};
use crate::Geometry;
use crate::action::IoKind;
use crate::format::{BlockName, PageName};
use crate::plan::{self, Kind, Piece, Plan, Transfer};

/// What a read that does not go on where its drive's last one ended counts more. Were it nothing, the chunks of a stream
/// would go to the copies in turn, and each drive would seek for each of them; with it a drive gets some 256 KiB on end.
const ELSEWHERE: u64 = 4;

/// Where else the bytes of a data element are.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    /// By slot of the code: the other slots with the same bytes.
    copies: Vec<Vec<usize>>,
    /// Whether the copies of a block are alike; the pool says when.
    pub(super) agree: bool,
}

impl Balance {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let code = geometry.code();
        let mut copies = vec![Vec::new(); code.elements()];
        for equation in code.equations() {
            if let [(member, 1)] = equation.members[..] {
                copies[code.index(member)].push(code.index(equation.parity));
            }
        }
        Self {
            copies,
            agree: false,
        }
    }
}

/// How a read can begin without looking further.
#[derive(Debug)]
pub(super) enum Sound {
    /// At once.
    Plan(Plan),
    /// When these pages of checksums are there.
    Pages(BTreeSet<PageName>),
}

/// A place from which a piece can be read as it is.
struct Candidate {
    transfer: Transfer,
    first: BlockName,
    blocks: u32,
    paged: bool,
}

impl Lane {
    /// The plan of a read of whole blocks that are all known to be where they belong: what
    /// [`plan::plan_read`] says of it too, without the search for what else could be done. Nearly all
    /// reads are of this kind. `None`: something is to be looked at more closely.
    pub(super) fn plan_of_sound(&self, op: &Op) -> Option<Sound> {
        let Task::Read(pieces) = &op.task else {
            return None;
        };
        if !op.bad.is_empty() || !op.avoid.is_empty() || !op.arbitration.distrusted.is_empty() {
            return None;
        }
        let mut plan = Plan::new(Kind::Read);
        let mut missing = BTreeSet::new();
        for piece in pieces {
            if !(piece.low | piece.slice.length).is_multiple_of(BLOCK_BYTES) {
                return None;
            }
            let found = self.least_busy(op, piece)?;
            if !found.paged {
                missing.extend(self.pages.missing(found.first, found.blocks));
            }
            plan.reads.push(found.transfer);
        }
        if !missing.is_empty() {
            return Some(Sound::Pages(missing));
        }
        plan::merge(&mut plan.reads);
        Some(Sound::Plan(plan))
    }

    fn least_busy(&self, op: &Op, piece: &Piece) -> Option<Candidate> {
        let copies = &self.balance.copies[piece.slot];
        let first = self.candidate(op, piece, piece.slot);
        if copies.is_empty() || !self.balance.agree {
            return first.filter(|first| first.paged);
        }
        let others = copies
            .iter()
            .filter_map(|&slot| self.candidate(op, piece, slot));
        first.into_iter().chain(others).min_by_key(|candidate| {
            let (seat, offset) = (candidate.transfer.seat, candidate.transfer.offset);
            let elsewhere = !self.ios.load().reads_on(seat, offset);
            let seek = if elsewhere { ELSEWHERE } else { 0 };
            let work = self.ios.load().queued(seat) + seek + u64::from(!candidate.paged);
            (work, elsewhere)
        })
    }

    /// Where `slot` holds the bytes of a piece, if they are in place there for all that is known.
    fn candidate(&self, op: &Op, piece: &Piece, slot: usize) -> Option<Candidate> {
        let stripe = op.stripes.start;
        let (column, chunk) = self.cx.geometry.place(op.group, stripe, slot);
        let cell = self
            .cx
            .view()
            .column(&self.cx.geometry, op.group, column)
            .source?;
        if !op.patient && self.ios.is_suspect(cell.seat) {
            return None;
        }
        let length = piece.slice.length;
        let offset = self.cx.geometry.drive_offset(cell, chunk) + piece.low;
        let first = BlockName {
            group: op.group,
            column,
            block: u32::try_from(self.cx.geometry.block_of(offset)).ok()?,
        };
        let blocks = u32::try_from(length / BLOCK_BYTES).ok()?;
        let mut paged = true;
        if self.cx.geometry.store().is_some() {
            if self.overlay.holds(first, blocks) || self.overlay.is_zeroed(op.group, stripe) {
                return None;
            }
            if !self.pages.are_written(first, blocks) {
                if self.pages.missing(first, blocks).is_empty() {
                    return None;
                }
                paged = false;
            }
        }
        Some(Candidate {
            transfer: Transfer {
                seat: cell.seat,
                column,
                kind: IoKind::Read,
                offset,
                length,
                slice: Some(piece.slice),
            },
            first,
            blocks,
            paged,
        })
    }
}
