//! Drives whose models decide when operations end.
//!
//! A world has either such drives or the random latencies of torture (`World::admit`), not both; schedules use random
//! latencies. Here nothing is random. An operation goes to the model of its drive, and the event of its end waits until
//! the model is done with it. Parity takes time on a processor; each lane has one processor.

use array::Compute;
use block::Instant;
use slab::Slab;

use super::queue::WorldEvent;
use crate::model::{IoKind, Model, Operation, Work, transfer_ns};

/// Models of a world's drives.
#[derive(Clone, Debug)]
pub(super) struct Timing {
    /// By drive.
    models: Vec<Box<dyn Model>>,
    due: Vec<u64>,
    next_due: u64,
    /// Events at the ends of the operations in the models.
    flying: Slab<WorldEvent>,
    /// Ended operations that [`Timing::pop`] has not returned yet.
    ended: Vec<u64>,
    parity_bytes_per_second: u64,
    /// By lane, when its processor is free.
    processors: Vec<u64>,
}

impl Timing {
    pub(super) fn new(models: Vec<Box<dyn Model>>, parity_bytes_per_second: u64) -> Self {
        Self {
            due: vec![u64::MAX; models.len()],
            models,
            next_due: u64::MAX,
            flying: Slab::new(),
            ended: Vec::new(),
            parity_bytes_per_second,
            processors: Vec::new(),
        }
    }

    pub(super) fn push_model(&mut self, model: Box<dyn Model>) {
        self.models.push(model);
        self.due.push(u64::MAX);
    }

    pub(super) fn pop_model(&mut self) {
        self.models.pop();
        self.due.pop();
    }

    /// When the next drive is due, if one is.
    pub(super) const fn next_due(&self) -> Option<Instant> {
        match self.next_due {
            u64::MAX => None,
            at => Some(Instant(at)),
        }
    }

    /// Operations in the models.
    pub(super) fn flying(&self) -> usize {
        self.flying.len()
    }

    pub(super) fn work(&self, drive: usize) -> Option<Work> {
        self.models.get(drive).map(|model| model.work())
    }

    /// Hands an operation to a drive; `event` is its end.
    pub(super) fn submit(
        &mut self,
        now: Instant,
        drive: usize,
        (kind, offset, length): (IoKind, u64, u64),
        event: WorldEvent,
    ) {
        let token = self.flying.insert(event) as u64;
        let operation = Operation {
            token,
            kind,
            offset,
            length,
        };
        self.models[drive].handle_operation(now, operation);
        self.note_due(drive);
    }

    fn note_due(&mut self, drive: usize) {
        let at = self.models[drive].poll_timeout();
        self.due[drive] = at.map_or(u64::MAX, |at| at.0);
        self.next_due = self.next_due.min(self.due[drive]);
    }

    /// Advances the models of the drives that are due by `now`.
    pub(super) fn advance(&mut self, now: Instant) {
        for drive in 0..self.models.len() {
            if self.due[drive] > now.0 {
                continue;
            }
            self.models[drive].handle_timeout(now);
            while let Some(token) = self.models[drive].poll_done() {
                self.ended.push(token);
            }
            self.note_due(drive);
        }
        self.next_due = self.due.iter().copied().min().unwrap_or(u64::MAX);
        // `pop` takes from the back.
        self.ended.reverse();
    }

    /// The next event of those that the last [`Timing::advance`] brought.
    pub(super) fn pop(&mut self) -> Option<WorldEvent> {
        let token = self.ended.pop()?;
        let key = usize::try_from(token).expect("a key");
        Some(self.flying.remove(key))
    }

    /// True if ended operations wait for [`Timing::pop`].
    pub(super) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// The time at which a lane's processor finishes a computation.
    pub(super) fn compute(&mut self, lane: u16, now: Instant, work: &Compute) -> Instant {
        let steps = work.steps.iter();
        let bytes = steps
            .map(|step| step.terms.len() as u64 * step.target.length)
            .sum();
        let taken = transfer_ns(bytes, self.parity_bytes_per_second);
        let lane = usize::from(lane);
        if self.processors.len() <= lane {
            self.processors.resize(lane + 1, 0);
        }
        let free = &mut self.processors[lane];
        *free = now.0.max(*free) + taken;
        Instant(*free)
    }
}
