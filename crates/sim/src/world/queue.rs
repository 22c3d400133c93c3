//! Future events, by time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use array::{Command, Compute, IoId};
use block::{Instant, Seat};

use crate::drive::Admitted;
use crate::replay::Asked;

/// A future event.
#[derive(Clone, Debug)]
pub(super) enum WorldEvent {
    /// An operation on the drive that sat in the seat when the lane submitted it.
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
    /// In a lane's view, two drives swap seats.
    Swap(u16, Seat, Seat),
    /// In a lane's view, the drive of the second seat moves to the first; then the lane gets the command.
    Succeed(u16, Seat, Seat, Command),
    /// In a lane's view, a drive takes a seat.
    Seated(u16, Seat, usize),
    ToPool(array::Event),
    /// A lane's timer.
    Timer(u16),
    /// The pool's timer.
    PoolTimer,
    /// A sample of the drives' use.
    Sample,
}

/// Events by time; events of the same time in order of insertion.
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

    /// Time of the first event.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.order.peek().map(|&Reverse((at, ..))| at)
    }

    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Removes all events, in order.
    pub(super) fn drain(&mut self) -> Vec<WorldEvent> {
        std::iter::from_fn(|| self.pop().map(|(_, event)| event)).collect()
    }
}
