//! What will happen, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use array::{Command, Compute, IoId};
use block::{Instant, Seat};

use crate::drive::Admitted;
use crate::replay::Asked;

/// Something that will happen.
#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    /// An operation on the drive that sat in the seat when it was asked for.
    LaneIo {
        lane: u16,
        drive: Option<usize>,
        io: Asked,
        admitted: Option<Admitted>,
    },
    LaneCompute(u16, Compute),
    /// The first half of a `WriteDurably`.
    PoolWrite {
        id: IoId,
        drive: Option<usize>,
        offset: u64,
        bytes: Arc<[u8]>,
        admitted: Option<Admitted>,
    },
    /// The second half.
    PoolFlush {
        id: IoId,
        drive: usize,
        admitted: Admitted,
    },
    ToLane(u16, Command),
    /// For a lane, two drives change places.
    Swap(u16, Seat, Seat),
    /// The drive of the second seat takes the first, and the lane is told so.
    Succeed(u16, Seat, Seat, Command),
    /// For a lane, a drive comes to sit in a seat.
    Seated(u16, Seat, usize),
    ToPool(array::Event),
    /// A lane's clock.
    Timer(u16),
    /// The pool's clock.
    PoolTimer,
}

/// Events by time; those of one time in the order in which they were put in.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    order: BinaryHeap<Reverse<(Instant, u64, usize)>>,
    slots: Vec<Option<WorldEvent>>,
    free: Vec<usize>,
    next: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Instant, event: WorldEvent) {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        self.slots[slot] = Some(event);
        self.next += 1;
        self.order.push(Reverse((at, self.next, slot)));
    }

    pub(super) fn pop(&mut self) -> Option<(Instant, WorldEvent)> {
        let Reverse((at, _, slot)) = self.order.pop()?;
        let event = self.slots[slot].take().expect("it was put there");
        self.free.push(slot);
        Some((at, event))
    }

    /// When the first of them is.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.order.peek().map(|&Reverse((at, ..))| at)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Takes everything out, in order.
    pub(super) fn drain(&mut self) -> Vec<WorldEvent> {
        std::iter::from_fn(|| self.pop().map(|(_, event)| event)).collect()
    }
}
