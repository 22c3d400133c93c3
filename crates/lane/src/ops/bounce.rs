//! Bounce buffers: memory that stands in for a read's own memory while a drive may still write into that
//! (`io/stragglers.rs`).

use block::BLOCK_BYTES;
use plan::action::{Action, BufferId, Slice};
use plan::{Piece, ScratchId};

use crate::context::Context;
use crate::io::IoTable;
use crate::op::{BounceBuffer, Op, Staging, Task};

/// Before an operation is planned: moves its reads to memory that no straggler writes into.
pub(crate) fn avoid_stragglers(cx: &mut Context, ios: &mut IoTable, op: &mut Op) {
    let stragglers = ios.stragglers();
    if stragglers.is_empty() {
        return;
    }
    match &mut op.task {
        Task::Read(pieces) if pieces.iter().any(|piece| stragglers.touch(piece.slice)) => {
            let scratch = cx.fresh_scratch();
            let home = match &op.memory.bounce_buffer {
                Some(buffer) => buffer.home.clone(),
                None => pieces.iter().map(|piece| piece.slice).collect(),
            };
            let bytes = move_pieces(pieces, scratch);
            let old = op
                .memory
                .bounce_buffer
                .replace(BounceBuffer { scratch, home });
            cx.actions.push_back(Action::Allocate(scratch, bytes));
            if let Some(old) = old {
                ios.release(cx, old.scratch);
            }
        }
        Task::Write(prepared) => {
            if let Staging::Provided(old, bytes) = prepared.staging
                && stragglers.hold(BufferId::Scratch(old))
            {
                let new = cx.fresh_scratch();
                prepared.move_staging((old, new), bytes);
                ios.release(cx, old);
            }
        }
        _ => {}
    }
}

/// Moves pieces of a read into one buffer, with the same alignment as on the drives. Returns the size of the buffer.
pub(crate) fn move_pieces(pieces: &mut [Piece], scratch: ScratchId) -> u64 {
    let mut end = 0;
    for piece in pieces {
        let offset = end + piece.low % BLOCK_BYTES;
        piece.slice = Slice {
            buffer: BufferId::Scratch(scratch),
            offset,
            length: piece.slice.length,
        };
        end = (offset + piece.slice.length).next_multiple_of(BLOCK_BYTES);
    }
    end
}

#[cfg(test)]
mod tests {
    use block::Seat;
    use format::{Column, GroupId, StripeId};
    use plan::action::{IoId, IoKind, Origin, Service};
    use plan::{RequestId, Transfer};

    use super::*;
    use crate::ids::OpId;
    use crate::op::{Owner, Prepared};
    use crate::purpose::Purpose;

    /// A lane whose drive 1 has abandoned reads.
    struct Lab {
        cx: Context,
        ios: IoTable,
    }

    fn slice(buffer: BufferId, block: u64, length: u64) -> Slice {
        Slice {
            buffer,
            offset: block * BLOCK_BYTES,
            length,
        }
    }

    const REQUEST: BufferId = BufferId::Request(RequestId(1));

    impl Lab {
        /// A drive may still write into this memory.
        fn new(slice: Slice) -> Self {
            let mut cx = Context::of_test("raid6", 6);
            let mut ios = IoTable::new(6);
            let transfer = Transfer {
                seat: Seat(1),
                column: Column(1),
                kind: IoKind::Read,
                offset: 0,
                length: slice.length,
                slice: Some(slice),
            };
            let purpose = Purpose::Transfer {
                op: OpId(1),
                transfer,
            };
            let service = Service::prompt(Origin::Client);
            ios.submit_transfer(&mut cx, purpose, service, &transfer);
            let ids: Vec<IoId> = ios.in_flight().map(|(id, _)| id).collect();
            ios.abandon(ids[0]);
            cx.take_actions();
            Self { cx, ios }
        }

        fn avoid(&mut self, op: &mut Op) -> Vec<Action> {
            avoid_stragglers(&mut self.cx, &mut self.ios, op);
            self.cx.take_actions()
        }
    }

    /// A read of half a block and of a whole one.
    fn read() -> Op {
        let half = Piece {
            slot: 0,
            low: 512,
            slice: slice(REQUEST, 0, 1024),
        };
        let whole = Piece {
            slot: 1,
            low: 0,
            slice: slice(REQUEST, 1, BLOCK_BYTES),
        };
        let owner = Owner::Request(RequestId(1));
        Op::new(
            owner,
            GroupId(0),
            StripeId::range(0..1),
            Task::Read(vec![half, whole]),
        )
    }

    fn pieces(op: &Op) -> Vec<Slice> {
        match &op.task {
            Task::Read(pieces) => pieces.iter().map(|piece| piece.slice).collect(),
            other => panic!("{other:?} is no read"),
        }
    }

    #[test]
    fn a_read_whose_memory_no_drive_writes_is_left_as_it_is() {
        let mut lab = Lab::new(slice(REQUEST, 7, BLOCK_BYTES));
        let mut op = read();
        assert!(lab.avoid(&mut op).is_empty());
        assert!(op.memory.bounce_buffer.is_none());
    }

    #[test]
    fn a_read_goes_to_memory_of_its_own_and_knows_where_its_bytes_belong() {
        let mut lab = Lab::new(slice(REQUEST, 1, BLOCK_BYTES));
        let mut op = read();
        let home = pieces(&op);
        let actions = lab.avoid(&mut op);
        let buffer = op.memory.bounce_buffer.as_ref().unwrap();
        assert_eq!(buffer.home, home);
        let bytes = 2 * BLOCK_BYTES;
        assert_eq!(actions, [Action::Allocate(buffer.scratch, bytes)]);
        let now: Vec<u64> = pieces(&op).iter().map(|slice| slice.offset).collect();
        assert_eq!(now, [512, BLOCK_BYTES], "as aligned as on the drives");
    }

    #[test]
    fn a_bounce_buffer_that_a_drive_writes_is_replaced_and_the_home_is_the_first_one() {
        let mut lab = Lab::new(slice(REQUEST, 1, BLOCK_BYTES));
        let mut op = read();
        let home = pieces(&op);
        lab.avoid(&mut op);
        let first = op.memory.bounce_buffer.as_ref().unwrap().scratch;
        let mut lab = Lab::new(slice(BufferId::Scratch(first), 0, BLOCK_BYTES));
        lab.cx.fresh();
        lab.cx.fresh();
        let actions = lab.avoid(&mut op);
        let second = op.memory.bounce_buffer.as_ref().unwrap();
        assert_ne!(second.scratch, first);
        assert_eq!(second.home, home);
        // The old buffer is kept until the straggler has ended.
        assert!(!actions.contains(&Action::Release(first)));
    }

    /// A write that puts a block together in memory 9.
    fn write() -> Op {
        let mut prepared = Prepared::of(Vec::new());
        prepared.staging = Staging::Named(ScratchId(9), BLOCK_BYTES);
        Op::new(
            Owner::Background,
            GroupId(0),
            StripeId::range(0..1),
            Task::Write(prepared),
        )
    }

    fn staging(op: &mut Op) -> &mut Prepared {
        match &mut op.task {
            Task::Write(prepared) => prepared,
            other => panic!("{other:?} is no write"),
        }
    }

    #[test]
    fn blocks_are_put_together_where_no_drive_writes() {
        let mut lab = Lab::new(slice(BufferId::Scratch(ScratchId(9)), 0, BLOCK_BYTES));
        let mut op = write();
        staging(&mut op).provide();
        lab.avoid(&mut op);
        let Staging::Named(new, bytes) = staging(&mut op).staging else {
            panic!("it is asked for anew");
        };
        assert!(new != ScratchId(9) && bytes == BLOCK_BYTES);
    }

    #[test]
    fn staging_memory_that_is_not_provided_or_holds_its_blocks_is_left_as_it_is() {
        let mut lab = Lab::new(slice(BufferId::Scratch(ScratchId(9)), 0, BLOCK_BYTES));
        let mut op = write();
        lab.avoid(&mut op);
        let named = Staging::Named(ScratchId(9), BLOCK_BYTES);
        assert_eq!(staging(&mut op).staging, named);
        staging(&mut op).provide();
        staging(&mut op).filled();
        lab.avoid(&mut op);
        let filled = Staging::Filled(ScratchId(9), BLOCK_BYTES);
        assert_eq!(staging(&mut op).staging, filled);
    }

    #[test]
    fn other_operations_have_no_memory_that_comes_from_outside() {
        let mut lab = Lab::new(slice(REQUEST, 0, BLOCK_BYTES));
        let mut op = Op::new(
            Owner::Background,
            GroupId(0),
            StripeId::range(0..1),
            Task::Scrub,
        );
        assert!(lab.avoid(&mut op).is_empty());
    }
}
