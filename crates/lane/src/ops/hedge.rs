//! Hedges: if a drive takes too long, the same bytes are read from other drives.
//!
//! ```text
//!   a client's read     a second read of the same bytes, without the late drive, into memory of its
//!                       own; the first answer is used, and the other is ignored
//!   what holds a lock   (a write that must read first, a repair, a fill) is planned again around the
//!                       late blocks; the late answer of the drive is ignored
//!   a page              the other copy is enough
//! ```
//!
//! A late drive counts as temporarily lost, so the guarantees are those of a pool without that drive. Each operation is
//! hedged once: if the second way is late too, or there is none, the operation waits for all of its reads.

use block::Outcome;
use format::Column;
use plan::action::{Action, IoId, IoKind};

use super::Operations;
use super::bounce::move_pieces;
use crate::context::Context;
use crate::ids::OpId;
use crate::io::IoTable;
use crate::op::{BounceBuffer, Hedge, Lock, Op, Owner, Task};
use crate::purpose::Purpose;

/// The largest number of second reads at a time, so that a slow drive does not slow down the others.
const HEDGES_MAX: usize = 64;

impl Operations {
    /// Hedges an operation with a late read. True if nothing more is to be done for this read.
    pub(crate) fn hedge(&mut self, cx: &mut Context, ios: &mut IoTable, id: OpId) -> bool {
        let op = &self[id];
        // A third read could outlast the lock that the second read has borrowed. Then it would see blocks written
        // later, and take them for bad ones.
        let is_second = matches!(op.owner, Owner::Hedge(_));
        if !op.is_reading() || op.detour.hedge != Hedge::None || op.detour.orphan || is_second {
            return true;
        }
        let late = ios
            .in_flight()
            .filter_map(|(_, flight)| match flight.purpose {
                Purpose::Transfer { op, transfer } if op == id && flight.late => Some(transfer),
                _ => None,
            });
        let late: Vec<(Column, u64)> = late
            .flat_map(|transfer| {
                let blocks = transfer.blocks(&cx.geometry);
                blocks.map(move |block| (transfer.column, block))
            })
            .collect();
        match &op.task {
            Task::Read(_) if self.hedges >= HEDGES_MAX => return false,
            Task::Read(_) => self.read_beside(cx, id, late),
            Task::Write(_) | Task::Repair(_) | Task::Fill { .. } => {
                let op = &mut self[id];
                op.detour.hedge = Hedge::Over;
                op.detour.avoid.extend(late);
                self.abandon_reads(ios, id);
                self.plan_again(cx, id);
            }
            // These work in the background on everything there is, so they can wait. Or they read nothing.
            Task::Zero
            | Task::Resync
            | Task::Scrub
            | Task::Convert(_)
            | Task::Relog(_)
            | Task::Discard(_) => {}
        }
        true
    }

    /// Begins a second read of the bytes that an operation reads, without the late blocks.
    fn read_beside(&mut self, cx: &mut Context, id: OpId, late: Vec<(Column, u64)>) {
        let scratch = cx.fresh_scratch();
        let hedge = cx.fresh_op();
        let op = &mut self[id];
        let Task::Read(pieces) = &op.task else {
            unreachable!("only reads are hedged by reads");
        };
        let mut pieces = pieces.clone();
        let home = match &op.memory.bounce_buffer {
            Some(buffer) => buffer.home.clone(),
            None => pieces.iter().map(|piece| piece.slice).collect(),
        };
        let bytes = move_pieces(&mut pieces, scratch);
        op.detour.hedge = Hedge::Running(hedge);
        let read = Task::Read(pieces);
        let mut second = Op::new(Owner::Hedge(id), op.group, op.stripes.clone(), read);
        second.data = op.data;
        second.location.version = op.location.version;
        second.found.bad = op.found.bad.clone();
        second.detour.avoid = op.detour.avoid.clone();
        second.detour.avoid.extend(late);
        second.memory.bounce_buffer = Some(BounceBuffer { scratch, home });
        // If the reader has the lock, the second read uses it: no other operation can have it meanwhile.
        let locked = op.is_locked();
        if locked {
            second.lock = Lock::Borrowed;
        }
        self.hedges += 1;
        cx.actions.push_back(Action::Allocate(scratch, bytes));
        self.ops.insert(hedge, Box::new(second));
        match locked {
            true => self.run(hedge),
            false => self.lock(cx, hedge),
        }
    }

    /// A second read has ended, possibly after its reader has ended or was planned again. True if the reader gets its
    /// bytes, and ends.
    pub(crate) fn second_read_ended(
        &mut self,
        cx: &mut Context,
        ios: &mut IoTable,
        (reader, hedge): (OpId, OpId),
        mut op: Op,
        outcome: Outcome,
    ) -> bool {
        self.hedges -= 1;
        let buffer = op.memory.bounce_buffer.take();
        let buffer = buffer.expect("a hedge has memory of its own");
        let waiting = self.ops.get_mut(reader);
        let waiting = waiting.filter(|waiting| waiting.detour.hedge == Hedge::Running(hedge));
        let Some(waiting) = waiting else {
            ios.release(cx, buffer.scratch);
            return false;
        };
        waiting.detour.hedge = Hedge::Over;
        if outcome.is_err() || !waiting.is_reading() {
            ios.release(cx, buffer.scratch);
            return false;
        }
        waiting.task = op.task;
        let old = waiting.memory.bounce_buffer.replace(buffer);
        // Reads that still go into the old memory must become stragglers before the memory is released.
        self.abandon_reads(ios, reader);
        if let Some(old) = old {
            ios.release(cx, old.scratch);
        }
        true
    }

    /// Abandons the reads of an operation.
    fn abandon_reads(&mut self, ios: &mut IoTable, id: OpId) {
        let reads = ios.in_flight().filter(|(_, flight)| {
            matches!(flight.purpose, Purpose::Transfer { op, transfer }
                if op == id && transfer.kind == IoKind::Read)
        });
        let ids: Vec<IoId> = reads.map(|(id, _)| id).collect();
        for id in ids {
            ios.abandon(id);
        }
        self[id].begin_reads(0);
    }

    /// The reader of a second read has ended: the second read ends as soon as it can.
    pub(crate) fn orphan(&mut self, hedge: OpId) {
        if let Some(hedge) = self.ops.get_mut(hedge) {
            hedge.detour.orphan = true;
        }
    }
}

/// Columns of an operation's group that are read only if there is no other way, because the pool has declared their
/// drives slow.
pub(super) fn avoided(cx: &Context, ios: &IoTable, op: &Op) -> Vec<Column> {
    let reads = match op.task {
        Task::Read(_) | Task::Write(_) | Task::Repair(_) | Task::Fill { .. } => true,
        Task::Zero
        | Task::Resync
        | Task::Scrub
        | Task::Convert(_)
        | Task::Relog(_)
        | Task::Discard(_) => false,
    };
    if !ios.any_suspect() || op.detour.waits || !reads {
        return Vec::new();
    }
    let columns = cx.view().columns(&cx.geometry, op.group);
    let suspect = |cell: layout::Cell| ios.is_suspect(cell.seat);
    cx.geometry
        .columns()
        .zip(columns)
        .filter(|(_, column)| column.source.is_some_and(suspect))
        .map(|(column, _)| column)
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use block::{BLOCK_BYTES, Fault, Seat};
    use format::{GroupId, StripeId};
    use plan::action::{BufferId, Slice};
    use plan::{Piece, RequestId, ScratchId, Transfer};

    use super::*;
    use crate::op::{Phase, Repair};

    /// The operations of a small lane whose drives do not answer.
    struct Lab {
        cx: Context,
        ios: IoTable,
        ops: Operations,
    }

    impl Lab {
        fn new() -> Self {
            Self {
                cx: Context::of_test("raid6", 6),
                ios: IoTable::new(6),
                ops: Operations::default(),
            }
        }

        /// An operation with reads in flight of the first block of columns 1 and 2. The read of column 1 is late.
        fn late(&mut self, task: Task) -> OpId {
            let owner = Owner::Request(RequestId(1));
            let id = self.ops.begin(
                &mut self.cx,
                Op::new(owner, GroupId(0), StripeId::range(0..1), task),
            );
            self.ops[id].begin_reads(2);
            self.submit(id, Column(1));
            self.cx.now += Duration::from_secs(5);
            self.submit(id, Column(2));
            self.ios.check(&mut self.cx);
            self.cx.take_actions();
            id
        }

        fn submit(&mut self, op: OpId, column: Column) {
            let cell = self.cx.geometry.home(GroupId(0), column);
            let transfer = Transfer {
                seat: cell.seat,
                column,
                kind: IoKind::Read,
                offset: self.cx.geometry.block_offset(cell, 0),
                length: BLOCK_BYTES,
                slice: Some(memory(u64::from(column.0))),
            };
            let purpose = Purpose::Transfer { op, transfer };
            let service = self.ops[op].service;
            let cx = &mut self.cx;
            self.ios.submit_transfer(cx, purpose, service, &transfer);
        }

        fn hedge(&mut self, id: OpId) -> bool {
            self.ops.hedge(&mut self.cx, &mut self.ios, id)
        }

        /// The second read in flight of an operation.
        fn second(&self, id: OpId) -> OpId {
            match self.ops[id].detour.hedge {
                Hedge::Running(second) => second,
                other => panic!("{other:?} is no second read"),
            }
        }

        /// The memory of an operation that reads.
        fn buffer_of(&self, id: OpId) -> ScratchId {
            let buffer = self.ops[id].memory.bounce_buffer.as_ref();
            buffer.expect("it reads").scratch
        }

        /// The second read ends.
        fn end(&mut self, (reader, second): (OpId, OpId), outcome: Outcome) -> bool {
            let op = *self.ops.end(&mut self.cx, second);
            let (cx, ios) = (&mut self.cx, &mut self.ios);
            { &mut self.ops }.second_read_ended(cx, ios, (reader, second), op, outcome)
        }

        fn released(&mut self) -> Vec<ScratchId> {
            let actions = self.cx.take_actions().into_iter();
            let released = actions.filter_map(|action| match action {
                Action::Release(scratch) => Some(scratch),
                _ => None,
            });
            released.collect()
        }

        fn in_flight(&self) -> usize {
            self.ios.in_flight().count()
        }
    }

    /// One block of a request's memory.
    fn memory(block: u64) -> Slice {
        Slice {
            buffer: BufferId::Request(RequestId(1)),
            offset: block * BLOCK_BYTES,
            length: BLOCK_BYTES,
        }
    }

    fn read() -> Task {
        let slice = memory(0);
        let piece = Piece {
            slot: 0,
            low: 0,
            slice,
        };
        Task::Read(vec![piece])
    }

    #[test]
    fn a_late_read_has_a_second_one_without_the_late_blocks_in_memory_of_its_own() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        assert!(lab.hedge(reader));
        let second = lab.second(reader);
        let op = &lab.ops[second];
        assert_eq!(op.owner, Owner::Hedge(reader));
        assert_eq!(
            op.detour.avoid,
            [(Column(1), 0)].into(),
            "column 2 is in time"
        );
        let buffer = op.memory.bounce_buffer.as_ref().unwrap();
        assert_eq!(buffer.home, [memory(0)]);
        let Task::Read(pieces) = &op.task else {
            panic!("it reads");
        };
        assert_eq!(pieces[0].slice.buffer, BufferId::Scratch(buffer.scratch));
        assert_eq!(op.lock, Lock::Own, "the reader has no lock to lend");
        assert_eq!(lab.ops.next(), Some(second));
        assert_eq!(lab.in_flight(), 2, "the first read goes on");
    }

    #[test]
    fn a_second_read_is_under_the_lock_that_its_reader_has() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.ops[reader].lock = Lock::Own;
        lab.hedge(reader);
        let second = lab.second(reader);
        assert_eq!(lab.ops[second].lock, Lock::Borrowed);
        assert_eq!(lab.ops.next(), Some(second));
    }

    #[test]
    fn an_operation_is_hedged_once() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.hedge(reader);
        let second = lab.second(reader);
        assert!(lab.hedge(reader));
        assert_eq!(lab.second(reader), second);
        assert!(!lab.end((reader, second), Err(Fault::Lost)));
        assert_eq!(lab.ops[reader].detour.hedge, Hedge::Over);
        assert!(lab.hedge(reader));
        assert_eq!(lab.ops[reader].detour.hedge, Hedge::Over);
    }

    #[test]
    fn a_second_read_that_is_late_is_waited_for() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        assert!(lab.hedge(reader));
        let second = lab.second(reader);
        lab.ops[second].begin_reads(1);
        lab.submit(second, Column(3));
        lab.cx.now += Duration::from_secs(5);
        lab.ios.check(&mut lab.cx);
        assert!(lab.hedge(second));
        assert_eq!(lab.ops[second].detour.hedge, Hedge::None);
        assert_eq!(lab.ops.iter().count(), 2);
    }

    #[test]
    fn what_waits_for_something_else_is_not_hedged() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.ops[reader].phase = Phase::Verifying;
        assert!(lab.hedge(reader));
        assert_eq!(lab.ops[reader].detour.hedge, Hedge::None);
    }

    #[test]
    fn with_many_second_reads_under_way_a_late_read_is_looked_at_again_later() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.ops.hedges = HEDGES_MAX;
        assert!(!lab.hedge(reader));
        lab.ops.hedges -= 1;
        assert!(lab.hedge(reader));
        lab.second(reader);
    }

    #[test]
    fn what_holds_a_lock_is_planned_again_around_late_blocks() {
        let mut lab = Lab::new();
        let repairs = lab.late(Task::Repair(Repair::default()));
        lab.ops[repairs].lock = Lock::Own;
        assert!(lab.hedge(repairs));
        assert_eq!(lab.ops[repairs].detour.avoid, [(Column(1), 0)].into());
        assert_eq!(lab.ops.next(), Some(repairs));
        assert_eq!(lab.in_flight(), 0, "what was asked for is abandoned");
        assert!(!lab.ops[repairs].is_in_flight());
    }

    #[test]
    fn a_scrub_has_time() {
        let mut lab = Lab::new();
        let scrub = lab.late(Task::Scrub);
        assert!(lab.hedge(scrub));
        assert_eq!(lab.ops[scrub].detour.hedge, Hedge::None);
        assert_eq!(lab.in_flight(), 2);
    }

    #[test]
    fn a_reader_ends_with_its_second_read_and_has_its_memory() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.hedge(reader);
        let second = lab.second(reader);
        let buffer = lab.buffer_of(second);
        assert!(lab.end((reader, second), Ok(())));
        assert_eq!(lab.buffer_of(reader), buffer);
        assert_eq!(lab.in_flight(), 0, "the first read is abandoned");
        assert!(lab.released().is_empty());
        assert_eq!(lab.ops.hedges, 0);
    }

    #[test]
    fn a_second_read_that_fails_gives_back_its_memory_and_the_reader_waits() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.hedge(reader);
        let second = lab.second(reader);
        let buffer = lab.buffer_of(second);
        assert!(!lab.end((reader, second), Err(Fault::Lost)));
        assert_eq!(lab.released(), [buffer]);
        assert!(lab.ops[reader].is_in_flight());
    }

    #[test]
    fn a_second_read_whose_reader_has_ended_is_an_orphan_and_gives_back_its_memory() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.hedge(reader);
        let second = lab.second(reader);
        lab.ops[reader].begin_reads(0);
        lab.ops.end(&mut lab.cx, reader);
        lab.ops.orphan(second);
        assert!(lab.ops[second].detour.orphan);
        lab.released();
        assert!(!lab.end((reader, second), Ok(())));
        assert_eq!(lab.released().len(), 1);
        lab.ops.orphan(second);
    }

    #[test]
    fn a_second_read_that_comes_while_its_reader_is_planned_again_is_of_no_use() {
        let mut lab = Lab::new();
        let reader = lab.late(read());
        lab.hedge(reader);
        let second = lab.second(reader);
        lab.ops[reader].phase = Phase::Locking;
        assert!(!lab.end((reader, second), Ok(())));
        assert!(lab.ops[reader].memory.bounce_buffer.is_none());
    }

    #[test]
    fn columns_of_slow_drives_are_avoided_by_what_has_another_way() {
        let mut lab = Lab::new();
        let mut op = Op::new(Owner::Background, GroupId(0), StripeId::range(0..1), read());
        assert!(avoided(&lab.cx, &lab.ios, &op).is_empty());
        lab.ios.suspect(Seat(3), true);
        let columns = avoided(&lab.cx, &lab.ios, &op);
        let seats = columns
            .iter()
            .map(|&c| lab.cx.geometry.home(GroupId(0), c).seat);
        assert_eq!(seats.collect::<Vec<_>>(), [Seat(3)]);
        op.detour.waits = true;
        assert!(avoided(&lab.cx, &lab.ios, &op).is_empty());
        op.detour.waits = false;
        op.task = Task::Scrub;
        assert!(avoided(&lab.cx, &lab.ios, &op).is_empty());
    }
}
