//! A request while the kernel has it.

#![expect(unsafe_code, reason = "bytes are moved between a request's memories")]

use block::{Fault, Memory, Outcome, Permission, Request, RequestKind};

use super::target::Use;
use crate::drive::Ticket;

/// Who is to be told.
pub(super) enum Answer {
    One(Ticket),
    /// Flushes that one `fdatasync` serves.
    Flushes(Vec<Ticket>),
}

impl Answer {
    fn complete(self, outcome: Outcome) {
        match self {
            Self::One(ticket) => ticket.complete(outcome),
            Self::Flushes(tickets) => {
                for ticket in tickets {
                    ticket.complete(outcome);
                }
            }
        }
    }
}

/// A request that the kernel has, or is about to get.
pub(super) struct InKernel {
    pub(super) target: Use,
    pub(super) attachment: usize,
    pub(super) request: Request,
    /// What the kernel reads or writes.
    pub(super) memory: Memory,
    /// Where a read's bytes go in the end, if the kernel could not take that memory.
    pub(super) bounced: Option<Memory>,
    pub(super) done: usize,
    pub(super) again: u32,
    pub(super) answer: Answer,
}

impl InKernel {
    /// The kernel is done with it: answers.
    pub(super) fn end(self, outcome: Outcome) {
        let Self {
            target,
            request,
            memory,
            bounced,
            answer,
            ..
        } = self;
        if request.kind == RequestKind::Write && request.fua && outcome.is_err() {
            target.handle().durable_write_failed();
        }
        if let Some(bounced) = bounced
            && outcome.is_ok()
        {
            // SAFETY: the kernel is done with `memory`, which is the ring's own; `bounced` belongs
            // to this read alone until it is answered (the rule of `block::Memory`).
            unsafe { bounced.bytes_mut().copy_from_slice(memory.bytes()) };
        }
        drop(memory);
        answer.complete(outcome);
        drop(target);
    }

    /// Whether it may be handed to the kernel, as whoever asked for it says.
    pub(super) fn permission(&self) -> Permission {
        match &self.answer {
            Answer::One(ticket) if self.request.kind == RequestKind::Write => ticket.permission(),
            Answer::One(_) | Answer::Flushes(_) => Permission::Granted,
        }
    }

    /// Leaves a write that would wait in the kernel to the drive's own threads.
    pub(super) fn hand_over(self) {
        let Self {
            target,
            request,
            memory,
            answer,
            ..
        } = self;
        if let (Answer::One(ticket), Some(backlog)) = (answer, target.backlog()) {
            backlog.queue(request, memory, ticket);
        }
        drop(target);
    }

    /// Answers, and keeps for ever what the kernel may still use.
    pub(super) fn forget(self) {
        let Self {
            target,
            memory,
            answer,
            ..
        } = self;
        std::mem::forget(memory);
        // The file stays open, and its lock held: a late write must not meet a new owner.
        std::mem::forget(target);
        answer.complete(Err(Fault::Shutdown));
    }
}
