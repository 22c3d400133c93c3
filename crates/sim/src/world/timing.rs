//! Drives that answer when a model says.
//!
//! A world has such drives or torture's own clock (`World::admit`), not both: schedules keep their latencies of chance.
//! Here nothing is left to chance. An operation goes to its drive's model, and what is to happen at its end waits until
//! the model is done with it. Parity takes a processor's time, one processor for each lane.

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
    /// What happens at the ends of the operations in the models.
    flying: Slab<WorldEvent>,
    /// What has happened and is not told yet.
    ended: Vec<u64>,
    parity_bytes_per_second: u64,
    /// When each lane's processor is free.
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

    /// When a drive is due, if one is.
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

    /// Lets the drives that are due by `now` go on.
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
        // Taken from the back.
        self.ended.reverse();
    }

    /// What happens next of what the last [`Timing::advance`] brought.
    pub(super) fn pop(&mut self) -> Option<WorldEvent> {
        let token = self.ended.pop()?;
        let key = usize::try_from(token).expect("a key");
        Some(self.flying.remove(key))
    }

    /// Whether ends wait for [`Timing::pop`].
    pub(super) const fn has_ended(&self) -> bool {
        !self.ended.is_empty()
    }

    /// When a lane's processor is through with a computation.
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
