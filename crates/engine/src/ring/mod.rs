//! The io_uring back end of files and block devices.
//!
//! ```text
//!   lane thread with a LocalRing                     any other thread
//!   submit ─► this thread's inbox (no lock)          submit ─► queue of a ring thread, eventfd
//!   turn   ─► SQEs ─► one enter ─► CQEs ─► answers   ring thread: the same turn, for ever
//! ```
//!
//! A ring belongs to one thread. Only that thread submits to it and reaps it (`SINGLE_ISSUER`, `DEFER_TASKRUN`): the
//! kernel then takes no lock and interrupts no thread. One `turn` submits all waiting requests and reaps all
//! completions in a single system call. That saves more than any registration of files or memory.
//!
//! A lane thread installs a [`LocalRing`]. From then on, drives that use io_uring put the requests that this thread
//! submits into the thread's own ring, behind the same `BlockDevice::submit`. Drives in memory leave their small
//! requests to the thread, too, as inline I/O: such a request never waits, so it needs no kernel queue and no other
//! thread. It runs in the turn and not inside `submit`. A few ring threads of the process serve all other threads.
//! They start with the first drive that needs them, and sleep when there is nothing to do.
//!
//! `SQPOLL` and `IOPOLL` are not used: polling threads cost 10 to 100 times more where runnable
//! threads outnumber cores, and polled I/O never ends on devices that only look pollable (zram).

mod core;
mod in_kernel;
mod probe;
mod regions;
mod target;
mod threads;
mod waker;

use std::cell::RefCell;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use block::{Completed, Fault, Memory, Outcome, Region, Request};

pub use probe::{Support, support};
pub(crate) use target::{Submission, Target};
pub(crate) use threads::start;
pub use waker::Waker;

use self::core::Ring;
use crate::drive::{ASK_AGAIN, Halt, Perform, Ticket};

/// A submission that waits for the thread's next turn.
enum Entry {
    Ring(Submission),
    /// A request that never waits. The thread performs it: that is cheaper than handing it to another thread.
    InlineIo(InlineIo),
}

/// A request that is performed by the thread that submitted it, in its turn.
pub(crate) struct InlineIo {
    pub(crate) perform: Arc<dyn Perform>,
    pub(crate) request: Request,
    pub(crate) memory: Memory,
    pub(crate) ticket: Ticket,
}

impl InlineIo {
    /// Performs the request and appends its answer to `ended`; returns the request if it may not begin yet.
    fn run(self, ended: &mut Vec<(Ticket, Outcome)>) -> Option<Self> {
        let ask = || self.ticket.permission();
        let performed = self.perform.perform(&self.request, &self.memory, &ask);
        let outcome = match performed {
            Ok(()) => Ok(()),
            Err(Halt::Fault(fault)) => Err(fault),
            Err(Halt::Pending) => return Some(self),
        };
        drop(self.memory);
        ended.push((self.ticket, outcome));
        None
    }
}

thread_local! {
    /// Submissions of this thread since its ring's last turn; `None` if the thread has no ring.
    static INBOX: RefCell<Option<Vec<Entry>>> = const { RefCell::new(None) };
}

/// Hands a submission to this thread's ring, or to a ring thread if it has none.
pub(crate) fn submit(submission: Submission) {
    let left = INBOX.with_borrow_mut(|inbox| match inbox {
        Some(inbox) => {
            inbox.push(Entry::Ring(submission));
            None
        }
        None => Some(submission),
    });
    if let Some(submission) = left {
        threads::submit(submission);
    }
}

/// Queues inline I/O for this thread's next turn; returns it if the thread has no ring.
pub(crate) fn submit_inline(inline: InlineIo) -> Option<InlineIo> {
    INBOX.with_borrow_mut(|inbox| match inbox {
        Some(inbox) => {
            inbox.push(Entry::InlineIo(inline));
            None
        }
        None => Some(inline),
    })
}

/// Runs `submit` so that its submissions go to the ring threads even if this thread has a ring: for callers that wait
/// for the answers and do not turn the ring.
pub(crate) fn elsewhere(submit: impl FnOnce()) {
    let inbox = INBOX.take();
    submit();
    INBOX.set(inbox);
}

/// This thread's own ring. It stays on the thread that made it.
///
/// Call [`turn`](Self::turn) after each round of submissions: requests reach the kernel only in `turn` and
/// [`submit`](Self::submit), and only `turn` reaps completions. Dropping the ring waits for the requests in the
/// kernel, and answers the rest with [`block::Fault::Shutdown`]. Writes that the ring has handed over to a drive's
/// threads, because they would have waited in the kernel, end on those threads.
pub struct LocalRing {
    ring: Ring,
    spare: Vec<Entry>,
    /// Inline I/O that may not begin yet.
    pending: Vec<InlineIo>,
    /// Inline I/O that is done but not yet answered: empty between two turns.
    ended: Vec<(Ticket, Outcome)>,
    not_send: PhantomData<*const ()>,
}

impl LocalRing {
    /// Makes a ring for `depth` requests in the kernel at once (more requests wait in memory), and routes all later
    /// submissions of this thread to it. Fails where [`support`] does, and when the thread has a ring already.
    pub fn install(depth: u32) -> io::Result<Self> {
        if INBOX.with_borrow(Option::is_some) {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        let ring = Ring::new(depth)?;
        INBOX.set(Some(Vec::with_capacity(depth as usize)));
        Ok(Self {
            ring,
            spare: Vec::with_capacity(depth as usize),
            pending: Vec::new(),
            ended: Vec::new(),
            not_send: PhantomData,
        })
    }

    /// Sets the submitter of all of the ring's requests: the ring asks it for permission once per entry into the
    /// kernel, and not once per write.
    pub fn guard(&mut self, guard: Arc<dyn Completed>) {
        self.ring.guard(guard);
    }

    /// Registers memory that many requests will lie in: the kernel pins its pages once and not per request. The ring
    /// unregisters the memory some time after its last buffer was dropped. At most 1 GiB; needs `CAP_IPC_LOCK` or a
    /// large enough `RLIMIT_MEMLOCK`, and one of the 1024 entries that a ring has. If it fails, requests in that
    /// memory work unregistered.
    pub fn register(&mut self, region: &Region) -> io::Result<()> {
        self.ring.register_region(region)
    }

    /// The handle by which other threads wake this ring.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        self.ring.waker()
    }

    /// Submits this thread's requests, answers those that have ended, and returns how many requests were answered.
    ///
    /// If none has ended, waits for a completion, the waker, or the end of `wait` (without a limit if `None`, not at
    /// all if zero). It may return early with 0, for example when some drive is closed. `pending` is called after the
    /// waker has been armed; if it returns true, the turn does not wait. So it does not sleep while work is queued
    /// that other threads added just before.
    pub fn turn(
        &mut self,
        wait: Option<Duration>,
        pending: impl FnOnce() -> bool,
    ) -> io::Result<usize> {
        let performed = self.take_inbox();
        let wait = match wait {
            _ if performed > 0 => Some(Duration::ZERO),
            wait if self.pending.is_empty() => wait,
            wait => Some(wait.unwrap_or(ASK_AGAIN).min(ASK_AGAIN)),
        };
        // The answers may have submitted more requests meanwhile.
        let submitted =
            || INBOX.with_borrow(|inbox| inbox.as_ref().is_some_and(|all| !all.is_empty()));
        let answered = self.ring.turn(wait, || pending() || submitted())?;
        Ok(performed + answered)
    }

    /// Hands this thread's submissions to the kernel, and neither waits nor reaps: drives begin while the thread
    /// still has work to do.
    pub fn submit(&mut self) -> io::Result<()> {
        self.take_inbox();
        self.ring.submit()
    }

    /// Hands the submissions to the ring, performs inline I/O, and returns how many inline requests have ended.
    fn take_inbox(&mut self) -> usize {
        INBOX.with_borrow_mut(|inbox| {
            if let Some(inbox) = inbox {
                std::mem::swap(inbox, &mut self.spare);
            }
        });
        for inline in std::mem::take(&mut self.pending) {
            self.pending.extend(inline.run(&mut self.ended));
        }
        for entry in self.spare.drain(..) {
            match entry {
                Entry::Ring(submission) => self.ring.push(submission),
                Entry::InlineIo(inline) => self.pending.extend(inline.run(&mut self.ended)),
            }
        }
        let performed = self.ended.len();
        Ticket::complete_all(&mut self.ended);
        performed
    }
}

impl Drop for LocalRing {
    fn drop(&mut self) {
        // From here on this thread's submissions go to the ring threads.
        if let Some(inbox) = INBOX.take() {
            for entry in inbox {
                match entry {
                    Entry::Ring(submission) => submission.refuse(),
                    Entry::InlineIo(InlineIo { memory, ticket, .. }) => {
                        drop(memory);
                        ticket.complete(Err(Fault::Shutdown));
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
