//! Chooses the copy that serves a read: the one whose drive has the least work queued.
//!
//! A parity whose only member is one data element, with coefficient 1, is a copy of that element: mirrors, and single
//! parity over one data element. In a pool with checksums each copy is checked by its own entries, like any other
//! block. Without checksums copies may differ after an unclean stop until a resync has computed them again. Until then
//! the first copy serves all reads, so that a client does not see a block alternate between two contents.
//!
//! The load of a drive is what this lane has in flight at it. The load from other lanes of the pool is not known here.

use std::collections::BTreeSet;

use block::BLOCK_BYTES;
use format::{BlockName, Form, PageName};
use plan::action::IoKind;
use plan::{Geometry, Kind, Piece, Plan, Transfer};

use super::context::Context;
use super::io::IoTable;
use super::op::{Op, Task};
use super::overlay::Overlay;
use super::pages::PageCache;

/// The extra cost of a read that does not continue where the drive's last read ended. With no extra cost the chunks of
/// a stream would alternate between the copies, and each drive would seek for each chunk. With this cost a drive gets
/// some 256 KiB in sequence.
const ELSEWHERE: u64 = 4;

/// For each data element, the other elements with the same bytes.
#[derive(Clone, Debug)]
pub(super) struct Balance {
    /// By form, and slot of its code: the other slots with the same bytes.
    copies: Vec<Vec<Vec<usize>>>,
    /// True if the copies of a block are alike; the pool decides when.
    agree: bool,
}

impl Balance {
    pub(super) fn new(geometry: &Geometry) -> Self {
        let copies_of = |&form: &Form| {
            let code = geometry.code_of(form);
            let mut copies = vec![Vec::new(); code.elements()];
            for equation in code.equations() {
                if let [(member, 1)] = equation.members[..] {
                    copies[code.index(member)].push(code.index(equation.parity));
                }
            }
            copies
        };
        Self {
            copies: geometry.forms().iter().map(copies_of).collect(),
            agree: geometry.is_elastic(),
        }
    }
}

/// How a read begins that needs no detailed plan.
#[derive(Debug)]
pub(super) enum Sound {
    /// At once, with this plan.
    Plan(Plan),
    /// When these pages of checksums are in memory.
    Pages(BTreeSet<PageName>),
}

/// A place from which a piece can be read directly.
struct Candidate {
    transfer: Transfer,
    first: BlockName,
    blocks: u32,
    paged: bool,
}

/// The state by which a copy is chosen: where blocks are, and the load of the drives.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    pub(super) cx: &'a Context,
    pub(super) ios: &'a IoTable,
    pub(super) overlay: &'a Overlay,
    pub(super) pages: &'a PageCache,
}

impl Known<'_> {
    /// The place of a piece's bytes in `slot`, unless something is known that keeps them from being read there.
    fn candidate(&self, op: &Op, piece: &Piece, slot: usize) -> Option<Candidate> {
        let stripe = op.stripes.start;
        let (column, chunk) = self.cx.geometry.place(op.group, stripe, op.form(), slot);
        let cell = self
            .cx
            .view()
            .column(&self.cx.geometry, op.group, column)
            .source?;
        if !op.detour.waits && self.ios.is_suspect(cell.seat) {
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
        if self.cx.geometry.regions().is_some() {
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

impl Balance {
    /// The plan of a read of whole blocks that are all in their places. The result is that of [`plan::plan_read`],
    /// without its search for alternatives. Nearly all reads are of this kind. `None`: the read needs a detailed plan.
    pub(super) fn plan(&self, known: &Known<'_>, op: &Op) -> Option<Sound> {
        let Task::Read(pieces) = &op.task else {
            return None;
        };
        if !op.found.bad.is_empty()
            || !op.detour.avoid.is_empty()
            || !op.found.arbitration.distrusted().is_empty()
        {
            return None;
        }
        let mut plan = Plan::new(Kind::Read);
        let mut missing = BTreeSet::new();
        for piece in pieces {
            if !(piece.low | piece.slice.length).is_multiple_of(BLOCK_BYTES) {
                return None;
            }
            let found = self.least_busy(known, op, piece)?;
            if !found.paged {
                missing.extend(known.pages.missing(found.first, found.blocks));
            }
            plan.reads.push(found.transfer);
        }
        if !missing.is_empty() {
            return Some(Sound::Pages(missing));
        }
        plan::merge(&mut plan.reads);
        Some(Sound::Plan(plan))
    }

    fn least_busy(&self, known: &Known<'_>, op: &Op, piece: &Piece) -> Option<Candidate> {
        let copies = &self.copies[op.form().index()][piece.slot];
        let first = known.candidate(op, piece, piece.slot);
        if copies.is_empty() || !self.agree {
            return first.filter(|first| first.paged);
        }
        let others = copies
            .iter()
            .filter_map(|&slot| known.candidate(op, piece, slot));
        first.into_iter().chain(others).min_by_key(|candidate| {
            let (seat, offset) = (candidate.transfer.seat, candidate.transfer.offset);
            let elsewhere = !known.ios.load().reads_on(seat, offset);
            let seek = if elsewhere { ELSEWHERE } else { 0 };
            let work = known.ios.load().queued(seat) + seek + u64::from(!candidate.paged);
            (work, elsewhere)
        })
    }

    /// The pool's decision: the copies of each block are alike from now on.
    pub(super) const fn copies_agree(&mut self) {
        self.agree = true;
    }
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, Entry, GroupId, MetaPage, Sequence, StripeId};
    use plan::action::{BufferId, Origin, Service, Slice};
    use plan::{RequestId, ScratchId};

    use super::*;
    use crate::blocks::block;
    use crate::op::Owner;
    use crate::overlay::{Bytes, Logged};
    use crate::purpose::Purpose;

    struct Lab {
        balance: Balance,
        cx: Context,
        ios: IoTable,
        overlay: Overlay,
        pages: PageCache,
    }

    fn slice(offset: u64, blocks: u64) -> Slice {
        Slice {
            buffer: BufferId::Request(RequestId(1)),
            offset,
            length: blocks * BLOCK_BYTES,
        }
    }

    fn piece(slot: usize, block: u64, blocks: u64) -> Piece {
        Piece {
            slot,
            low: block * BLOCK_BYTES,
            slice: slice(0, blocks),
        }
    }

    fn op(pieces: Vec<Piece>) -> Op {
        Op::new(
            Owner::Request(RequestId(1)),
            GroupId(0),
            StripeId::range(0..1),
            Task::Read(pieces),
        )
    }

    impl Lab {
        /// All blocks of group 0 are written and in their places, and their pages are in memory.
        fn new(scheme: &str, drives: u16) -> Self {
            let cx = Context::of_test(scheme, drives);
            let pages = PageCache::all_written(cx.geometry.layout().columns());
            Self {
                balance: Balance::new(&cx.geometry),
                cx,
                ios: IoTable::new(drives),
                overlay: Overlay::default(),
                pages,
            }
        }

        fn raid6() -> Self {
            Self::new("raid6", 6)
        }

        /// Two drives with the same content, as the pool has decided.
        fn mirror() -> Self {
            let mut lab = Self::new("raid1", 2);
            lab.balance.copies_agree();
            lab
        }

        fn plan(&self, op: &Op) -> Option<Sound> {
            let known = Known {
                cx: &self.cx,
                ios: &self.ios,
                overlay: &self.overlay,
                pages: &self.pages,
            };
            self.balance.plan(&known, op)
        }

        /// The drives that a read of so many blocks of the first data element goes to, if it can begin at once.
        fn seats(&self, first: u64, blocks: u64) -> Option<Vec<u16>> {
            let slot = self.cx.geometry.code().data_slots().next()?;
            match self.plan(&op(vec![piece(slot, first, blocks)]))? {
                Sound::Plan(plan) => Some(plan.reads.iter().map(|read| read.seat.0).collect()),
                Sound::Pages(_) => None,
            }
        }

        /// The column and the drive of the first data element.
        fn home(&self) -> (Column, Seat) {
            let slot = self.cx.geometry.code().data_slots().next().unwrap();
            let (column, _) = self
                .cx
                .geometry
                .place(GroupId(0), StripeId(0), Form::Parity, slot);
            (column, self.cx.geometry.home(GroupId(0), column).seat)
        }

        /// A drive has a read in flight of a block of its column, at this block of its cell.
        fn reads(&mut self, column: Column, at: u64) {
            let cell = self.cx.geometry.home(GroupId(0), column);
            let offset = self.cx.geometry.drive_offset(cell, 0) + at * BLOCK_BYTES;
            let memory = Slice {
                buffer: BufferId::Scratch(ScratchId(1)),
                ..slice(0, 1)
            };
            self.ios.submit_slice(
                &mut self.cx,
                Purpose::Restore { seat: cell.seat },
                Service::prompt(Origin::Client),
                IoKind::Read,
                (cell.seat, offset),
                memory,
            );
        }
    }

    #[test]
    fn a_block_in_its_place_is_read_from_its_drive() {
        let lab = Lab::raid6();
        let (_, seat) = lab.home();
        assert_eq!(lab.seats(2, 1), Some(vec![seat.0]));
    }

    #[test]
    fn neighbours_in_place_and_memory_are_one_read() {
        let lab = Lab::raid6();
        let slot = lab.cx.geometry.code().data_slots().next().unwrap();
        let behind = Piece {
            slice: slice(BLOCK_BYTES, 2),
            ..piece(slot, 1, 2)
        };
        let Some(Sound::Plan(plan)) = lab.plan(&op(vec![piece(slot, 0, 1), behind])) else {
            panic!("all is in place");
        };
        assert_eq!(plan.reads.len(), 1);
        assert_eq!(plan.reads[0].length, 3 * BLOCK_BYTES);
    }

    #[test]
    fn what_is_logged_is_looked_at_more_closely() {
        let mut lab = Lab::raid6();
        let (column, _) = lab.home();
        let logged = Logged {
            bytes: Bytes::InPlace,
            entry: Entry::WRITTEN,
            sequence: Sequence(7),
        };
        lab.overlay.insert(block(column, 2), logged);
        assert_eq!(lab.seats(1, 2), None);
        assert!(lab.seats(0, 2).is_some());
    }

    #[test]
    fn what_is_trimmed_is_looked_at_more_closely() {
        let mut lab = Lab::raid6();
        lab.overlay.zero(
            GroupId(0),
            StripeId::range(0..1),
            Sequence(7),
            std::iter::empty(),
        );
        assert_eq!(lab.seats(0, 1), None);
    }

    #[test]
    fn what_is_unwritten_or_unknown_is_looked_at_more_closely() {
        for entry in [Entry::UNWRITTEN, Entry::UNKNOWN] {
            let mut lab = Lab::raid6();
            let (column, _) = lab.home();
            lab.pages.set(block(column, 2), entry);
            assert_eq!(lab.seats(2, 1), None);
            assert!(lab.seats(3, 1).is_some());
        }
    }

    #[test]
    fn a_column_that_is_away_is_looked_at_more_closely() {
        let mut lab = Lab::raid6();
        let (_, seat) = lab.home();
        lab.cx.change_view(|view, _| view.seat_out(seat));
        assert_eq!(lab.seats(0, 1), None);
    }

    #[test]
    fn a_read_that_has_found_something_bad_is_looked_at_more_closely() {
        let lab = Lab::raid6();
        let mut op = op(vec![piece(0, 0, 1)]);
        assert!(lab.plan(&op).is_some());
        op.found.bad.insert((Column(5), 9));
        assert!(lab.plan(&op).is_none());
    }

    #[test]
    fn parts_of_blocks_are_looked_at_more_closely() {
        let lab = Lab::raid6();
        let mut part = piece(0, 0, 1);
        part.low += 512;
        part.slice.length -= 512;
        assert!(lab.plan(&op(vec![part])).is_none());
    }

    #[test]
    fn a_slow_drive_is_asked_by_reads_that_have_no_way_around_it() {
        let mut lab = Lab::raid6();
        let (_, seat) = lab.home();
        lab.ios.suspect(seat, true);
        let mut op = op(vec![piece(0, 0, 1)]);
        assert!(lab.plan(&op).is_none());
        op.detour.waits = true;
        assert!(lab.plan(&op).is_some());
    }

    #[test]
    fn of_copies_the_one_whose_drive_has_less_to_do_is_read() {
        let mut lab = Lab::mirror();
        lab.reads(Column(0), 50);
        assert_eq!(lab.seats(0, 1), Some(vec![1]));
        lab.reads(Column(1), 50);
        lab.reads(Column(1), 60);
        assert_eq!(lab.seats(0, 1), Some(vec![0]));
    }

    #[test]
    fn a_stream_goes_on_at_the_drive_where_it_is() {
        let mut lab = Lab::mirror();
        lab.reads(Column(1), 1);
        assert_eq!(lab.seats(2, 1), Some(vec![1]), "though it has more to do");
        for _ in 0..ELSEWHERE {
            lab.reads(Column(1), 1);
        }
        assert_eq!(lab.seats(2, 1), Some(vec![0]), "but not with any amount");
    }

    #[test]
    fn copies_that_may_differ_are_not_read() {
        let mut lab = Lab::new("raid1", 2);
        lab.reads(Column(0), 50);
        assert_eq!(lab.seats(0, 1), Some(vec![0]));
    }

    #[test]
    fn a_copy_that_is_away_or_slow_is_not_read() {
        let mut lab = Lab::mirror();
        lab.ios.suspect(Seat(0), true);
        assert_eq!(lab.seats(0, 1), Some(vec![1]));
        lab.cx.change_view(|view, _| view.seat_out(Seat(1)));
        assert_eq!(lab.seats(0, 1), None);
        lab.ios.suspect(Seat(0), false);
        assert_eq!(lab.seats(0, 1), Some(vec![0]));
    }

    #[test]
    fn a_copy_whose_page_is_here_comes_before_one_whose_page_is_not() {
        let mut lab = Lab::mirror();
        lab.pages = PageCache::new(64);
        let Some(Sound::Pages(missing)) = lab.plan(&op(vec![piece(0, 0, 1)])) else {
            panic!("no page is here");
        };
        assert_eq!(missing.len(), 1, "one copy is enough");
        let page = MetaPage::filled(Entry::WRITTEN, 1);
        lab.pages.put(block(Column(1), 0).page(), page);
        assert_eq!(lab.seats(0, 1), Some(vec![1]));
    }
}
