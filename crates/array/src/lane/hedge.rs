//! Ways around a drive that takes too long: the same bytes from other drives.
//!
//! ```text
//!   a client's read     a second read of the same bytes, without the late drive, into memory of its
//!                       own; the first answer wins, and the other is looked at by nobody
//!   what holds a lock   (a write that must read first, a heal, a fill) is planned again around the
//!                       late blocks; what the drive says later is looked at by nobody
//!   a page              the other copy is enough
//! ```
//!
//! A late drive counts as one that is lost for the moment, so nothing is weaker here than
//! without that drive. Each operation is hedged once: if the way around is late too, or there is
//! none, it waits for all that were asked.

use block::{Fault, Outcome};

use super::bounce::{BounceBuffer, move_pieces};
use super::ids::OpId;
use super::ops::{Hedge, Lock, Op, Owner, Task};
use super::{Lane, Purpose};
use crate::action::{Action, IoId, IoKind};

/// Second reads at a time, so that a slow drive does not make the others slow.
const HEDGES_MAX: usize = 64;

impl Lane {
    /// Looks for a way around an operation that is late.
    pub(super) fn hedge(&mut self, id: IoId) {
        let Some(purpose) = self.ios.purpose_of(id) else {
            return;
        };
        let hedged = match purpose {
            Purpose::Transfer { op, transfer } if transfer.kind == IoKind::Read => {
                self.hedge_op(op)
            }
            Purpose::PageRead { read, .. } => {
                let (cx, ios) = (&mut self.cx, &mut self.ios);
                self.pages.hedge(cx, ios, read)
            }
            _ => true,
        };
        if hedged {
            self.ios.is_hedged(id);
        }
    }

    /// Whether nothing more is to be done for an operation with a late read.
    fn hedge_op(&mut self, id: OpId) -> bool {
        let op = &self.ops[id];
        if !op.is_reading() || op.detour.hedge != Hedge::None || op.orphan {
            return true;
        }
        let late = self
            .ios
            .in_flight()
            .filter_map(|(_, flight)| match flight.purpose {
                Purpose::Transfer { op, transfer } if op == id && flight.late => Some(transfer),
                _ => None,
            });
        let late: Vec<(u16, u64)> = late
            .flat_map(|transfer| {
                let blocks = self.cx.geometry.blocks_of(&transfer);
                blocks.map(move |block| (transfer.column, block))
            })
            .collect();
        match &op.task {
            Task::Read(_) => {
                if self.ops.hedges >= HEDGES_MAX {
                    return false;
                }
                self.read_beside(id, late);
            }
            Task::Write(_) | Task::Heal(_) | Task::Fill { .. } => {
                let op = &mut self.ops[id];
                op.detour.hedge = Hedge::Over;
                op.detour.avoid.extend(late);
                self.abandon_reads(id);
                self.ops.plan_again(&mut self.cx, id);
            }
            // In the background, and of everything there is: it has time. Or it reads nothing.
            Task::Zero | Task::Resync | Task::Scrub | Task::Relog(_) | Task::Discard(_) => {}
        }
        true
    }

    /// Begins a second read of what an operation reads, without the late blocks.
    fn read_beside(&mut self, id: OpId, late: Vec<(u16, u64)>) {
        let scratch = self.cx.fresh_scratch();
        let hedge = self.cx.fresh_op();
        let op = &mut self.ops[id];
        let Task::Read(pieces) = &op.task else {
            unreachable!("only reads are hedged by reads");
        };
        let mut pieces = pieces.clone();
        let home = match &op.bounce_buffer {
            Some(buffer) => buffer.home.clone(),
            None => pieces.iter().map(|piece| piece.slice).collect(),
        };
        let bytes = move_pieces(&mut pieces, scratch);
        op.detour.hedge = Hedge::Running(hedge);
        let mut second = Op::new(
            Owner::Hedge(id),
            op.group,
            op.stripes.clone(),
            Task::Read(pieces),
        );
        second.data = op.data;
        second.located = op.located;
        second.bad = op.bad.clone();
        second.detour.avoid = op.detour.avoid.clone();
        second.detour.avoid.extend(late);
        second.bounce_buffer = Some(BounceBuffer { scratch, home });
        // Under the reader's lock if it has one: nobody else can have it meanwhile.
        let locked = op.is_locked();
        if locked {
            second.lock = Lock::Borrowed;
        }
        self.ops.hedges += 1;
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        self.ops.insert(hedge, second);
        if locked {
            self.ops.run(hedge);
        } else {
            self.ops.lock(&mut self.cx, hedge);
        }
    }

    /// A second read has ended: in time, or its reader has ended or gone another way.
    pub(super) fn hedge_ended(&mut self, reader: OpId, hedge: OpId, mut op: Op, outcome: Outcome) {
        self.ops.hedges -= 1;
        let buffer = op
            .bounce_buffer
            .take()
            .expect("a hedge has memory of its own");
        let waiting = self.ops.find(reader);
        let waiting = waiting.filter(|waiting| waiting.detour.hedge == Hedge::Running(hedge));
        let Some(waiting) = waiting else {
            self.ios.release(&mut self.cx, buffer.scratch);
            return;
        };
        waiting.detour.hedge = Hedge::Over;
        if outcome.is_err() || !waiting.is_reading() {
            self.ios.release(&mut self.cx, buffer.scratch);
            return;
        }
        waiting.task = op.task;
        let old = waiting.bounce_buffer.replace(buffer);
        // What is still being read into the old memory must be known before that may be given back.
        self.abandon_reads(reader);
        if let Some(old) = old {
            self.ios.release(&mut self.cx, old.scratch);
        }
        self.end(reader, Ok(()));
    }

    /// Nobody waits for an operation's reads any more.
    fn abandon_reads(&mut self, id: OpId) {
        let reads = self.ios.in_flight().filter(|(_, flight)| {
            matches!(flight.purpose, Purpose::Transfer { op, transfer }
                if op == id && transfer.kind == IoKind::Read)
        });
        let ids: Vec<IoId> = reads.map(|(id, _)| id).collect();
        for id in ids {
            self.ios.abandon(id);
        }
        let op = &mut self.ops[id];
        op.begin_reads(0);
    }

    /// An operation has ended; its second read, if one is under way, ends as soon as it can.
    pub(super) fn orphan_hedge(&mut self, hedge: OpId) {
        if let Some(hedge) = self.ops.find(hedge) {
            hedge.orphan = true;
        }
    }

    /// Ends an operation that nobody needs any more; whether it was one.
    pub(super) fn end_orphan(&mut self, id: OpId) -> bool {
        let orphan = self.ops[id].orphan;
        if orphan {
            self.end(id, Err(Fault::Shutdown));
        }
        orphan
    }

    /// Columns of a group that are read only if they must be.
    pub(super) fn avoided(&self, id: OpId) -> Vec<u16> {
        let op = &self.ops[id];
        let reads = match op.task {
            Task::Read(_) | Task::Write(_) | Task::Heal(_) | Task::Fill { .. } => true,
            Task::Zero | Task::Resync | Task::Scrub | Task::Relog(_) | Task::Discard(_) => false,
        };
        if !self.ios.any_suspect() || op.detour.waits || !reads {
            return Vec::new();
        }
        let columns = self.cx.view().columns(&self.cx.geometry, op.group);
        let suspect = |cell: layout::Cell| self.ios.is_suspect(cell.seat);
        (0..)
            .zip(columns)
            .filter(|(_, column)| column.source.is_some_and(suspect))
            .map(|(column, _)| column)
            .collect()
    }
}
