//! The lab that tests of operations share: a small lane whose blocks of stripe 1 (blocks 4 to 7 of six columns) are all
//! written, and an operation on that stripe.

use block::BLOCK_BYTES;
use format::{Column, Form, GroupId, StripeId};
use plan::action::{BufferId, IoKind, Slice};
use plan::{Kind, Piece, Plan, RequestId, Row, ScratchId, Source, SubStripePlans, Transfer};

use crate::context::Context;
use crate::entries::Entries;
use crate::io::IoTable;
use crate::op::{Op, Owner, Task};
use crate::overlay::Overlay;
use crate::pages::PageCache;

pub(super) const ROW: Row = Row {
    stripe: StripeId(1),
    form: Form::Parity,
    low: 0,
};

pub(super) struct Lab {
    pub(super) cx: Context,
    pub(super) ios: IoTable,
    pub(super) overlay: Overlay,
    pub(super) pages: PageCache,
    pub(super) plans: SubStripePlans,
    pub(super) op: Op,
}

/// Blocks of some memory.
pub(super) fn memory(first: u64, blocks: u64) -> Slice {
    Slice {
        buffer: BufferId::Scratch(ScratchId(1)),
        offset: first * BLOCK_BYTES,
        length: blocks * BLOCK_BYTES,
    }
}

/// A read of so many blocks of an element.
pub(super) fn read(slot: usize, blocks: u64) -> Task {
    Task::Read(vec![Piece {
        slot,
        low: 0,
        slice: memory(0, blocks),
    }])
}

/// New bytes for so many blocks of an element.
pub(super) fn source(slot: usize, blocks: u64) -> Source {
    Source {
        slot,
        low: 0,
        slice: memory(8 * slot as u64, blocks),
    }
}

impl Lab {
    pub(super) fn new(task: Task) -> Self {
        Self::of(Context::of_test("raid6", 6), task)
    }

    pub(super) fn of(cx: Context, task: Task) -> Self {
        let pages = PageCache::of_test(&cx);
        let mut op = Op::new(
            Owner::Request(RequestId(1)),
            GroupId(0),
            StripeId::range(1..2),
            task,
        );
        op.plan = Some(Plan::new(Kind::Read));
        Self {
            cx,
            ios: IoTable::new(6),
            overlay: Overlay::default(),
            pages,
            plans: SubStripePlans::default(),
            op,
        }
    }

    /// A pool without a journal.
    pub(super) fn without_journal(task: Task) -> Self {
        let mut lab = Self::new(task);
        let scheme: layout::Scheme = "raid6".parse().unwrap();
        let shape = layout::Geometry::new(&scheme, Some(6), 64).unwrap();
        let code = erasure::by_columns(&shape.code.name, shape.code.columns).unwrap();
        let (chunk, cell) = (16 << 10, 256 << 10);
        let bare = plan::Geometry::new(code.into(), shape.layout, chunk, cell, 64, 1 << 20, 1);
        lab.cx = Context::new(bare.unwrap().into(), 0);
        lab
    }

    pub(super) const fn entries(&self) -> Entries<'_> {
        Entries {
            overlay: &self.overlay,
            pages: &self.pages,
        }
    }

    /// Blocks of a column of the stripe, from block 4 on.
    pub(super) fn transfer(&self, column: Column, kind: IoKind, blocks: u64) -> Transfer {
        let cell = self.cx.geometry.home(GroupId(0), column);
        Transfer {
            seat: cell.seat,
            column,
            kind,
            offset: self.cx.geometry.block_offset(cell, 4),
            length: blocks * BLOCK_BYTES,
            slice: Some(memory(8 * u64::from(column.0), blocks)),
        }
    }

    pub(super) fn plan(&mut self) -> &mut Plan {
        self.op.plan.as_mut().unwrap()
    }

    /// The drive of a column is out.
    pub(super) fn out(&mut self, column: Column) {
        let seat = self.cx.geometry.home(GroupId(0), column).seat;
        self.cx.change_view(|view, _| view.seat_out(seat));
    }
}
