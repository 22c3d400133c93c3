//! A request while the kernel has it.

use block::{Fault, Memory, Outcome, Permission, Request, RequestKind};

use super::target::Use;
use crate::drive::{Ticket, ranges_from, scatter};

/// The tickets that are answered when the request ends.
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
    /// The destination of a read, if the kernel could not take that memory; `memory` is then a
    /// bounce buffer.
    pub(super) bounced: Option<Memory>,
    /// The ranges as the kernel takes them, if the memory is joined of several.
    pub(super) ranges: Vec<libc::iovec>,
    pub(super) done: usize,
    pub(super) again: u32,
    pub(super) answer: Answer,
}

impl InKernel {
    /// The kernel is done with the request: answers it.
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
            // The kernel is done with `memory`, which is the ring's own.
            scatter(&memory, &bounced);
        }
        drop(memory);
        answer.complete(outcome);
        drop(target);
    }

    /// Puts the ranges of memory that are left into `ranges`, for one entry; returns their number.
    pub(super) fn list_ranges(&mut self) -> u32 {
        self.ranges.clear();
        let rest = ranges_from(&self.memory, self.done);
        self.ranges.extend(rest.map(|(part, start)| libc::iovec {
            // Inside the part, as `start` is less than its length.
            iov_base: part.as_ptr().wrapping_add(start).cast(),
            iov_len: part.len() - start,
        }));
        u32::try_from(self.ranges.len()).unwrap_or(0)
    }

    /// Whether the request may be handed to the kernel. Its submitter decides for a write; others
    /// always may.
    pub(super) fn permission(&self) -> Permission {
        match &self.answer {
            Answer::One(ticket) if self.request.kind == RequestKind::Write => ticket.permission(),
            Answer::One(_) | Answer::Flushes(_) => Permission::Granted,
        }
    }

    /// Hands a write that would wait in the kernel over to the drive's own threads.
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

    /// Answers, and leaks everything that the kernel may still use.
    pub(super) fn forget(self) {
        let Self {
            target,
            memory,
            ranges,
            answer,
            ..
        } = self;
        std::mem::forget(memory);
        std::mem::forget(ranges);
        // The file stays open, and its lock held: a late write must not meet a new owner.
        std::mem::forget(target);
        answer.complete(Err(Fault::Shutdown));
    }
}
