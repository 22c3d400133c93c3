//! Bounce buffers: memory of its own for a read whose memory a drive may still write into (`io/stragglers.rs`).

use block::BLOCK_BYTES;

use super::Lane;
use super::ids::OpId;
use super::ops::{Staging, Task};
use crate::action::{Action, BufferId, Slice};
use crate::plan::Piece;
use crate::{RequestId, ScratchId};

/// Where the bytes of a read are, if not in the memory that came with its request.
#[derive(Clone, Debug)]
pub(super) struct BounceBuffer {
    pub(super) scratch: ScratchId,
    /// Where the bytes of each piece should have gone.
    pub(super) home: Vec<Slice>,
}

impl Lane {
    /// Before an operation is planned: what it will read goes to memory that no straggler writes.
    pub(super) fn use_bounce_buffer(&mut self, id: OpId) {
        if self.ios.stragglers().is_empty() {
            return;
        }
        let op = &self.ops[id];
        match &op.task {
            Task::Read(pieces) if self.touched(pieces) => self.take_bounce_buffer(id),
            Task::Write(prepared) => {
                let Staging::Provided(old, bytes) = prepared.staging else {
                    return;
                };
                if !self.ios.stragglers().hold(BufferId::Scratch(old)) {
                    return;
                }
                let new = self.cx.fresh_scratch();
                let op = &mut self.ops[id];
                let Task::Write(prepared) = &mut op.task else {
                    unreachable!("just seen");
                };
                prepared.move_staging((old, new), bytes);
                self.ios.release(&mut self.cx, old);
            }
            _ => {}
        }
    }

    fn touched(&self, pieces: &[Piece]) -> bool {
        let mut slices = pieces.iter().map(|piece| piece.slice);
        slices.any(|slice| self.ios.stragglers().touch(slice))
    }

    /// Has a read put its bytes into scratch memory of its own.
    fn take_bounce_buffer(&mut self, id: OpId) {
        let scratch = self.cx.fresh_scratch();
        let op = &mut self.ops[id];
        let Task::Read(pieces) = &mut op.task else {
            unreachable!("only reads have pieces");
        };
        let home = match &op.bounce_buffer {
            Some(buffer) => buffer.home.clone(),
            None => pieces.iter().map(|piece| piece.slice).collect(),
        };
        let bytes = move_pieces(pieces, scratch);
        let old = op.bounce_buffer.replace(BounceBuffer { scratch, home });
        self.cx.actions.push_back(Action::Allocate(scratch, bytes));
        if let Some(old) = old {
            self.ios.release(&mut self.cx, old.scratch);
        }
    }

    /// A read has ended. If it has a bounce buffer: hand the buffer to the request, or free it.
    pub(super) fn leave_bounce_buffer(
        &mut self,
        buffer: BounceBuffer,
        task: &Task,
        reader: Option<RequestId>,
    ) {
        match (reader, task) {
            (Some(reader), Task::Read(pieces)) => {
                let now = pieces.iter().map(|piece| piece.slice);
                self.requests.bytes_elsewhere(reader, buffer, now);
            }
            _ => self.ios.release(&mut self.cx, buffer.scratch),
        }
    }
}

/// Moves pieces of a read into one buffer, where they are as aligned as on the drives; its size.
pub(super) fn move_pieces(pieces: &mut [Piece], scratch: ScratchId) -> u64 {
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
