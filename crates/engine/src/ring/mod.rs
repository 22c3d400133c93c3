//! The io_uring back end of files and block devices.
//!
//! ```text
//!   lane thread with a LocalRing                     any other thread
//!   submit ─► this thread's inbox (no lock)          submit ─► queue of a ring thread, eventfd
//!   turn   ─► SQEs ─► one enter ─► CQEs ─► answers   ring thread: the same turn, for ever
//! ```
//!
//! A ring belongs to one thread, which alone submits to it and reaps it (`SINGLE_ISSUER`,
//! `DEFER_TASKRUN`): the kernel then takes no lock and interrupts nobody. One `turn` hands over
//! everything that waits and takes everything that has ended in a single system call; that saves
//! more than anything that can be registered.
//!
//! A lane thread installs a [`LocalRing`]; from then on drives that do their I/O by io_uring put
//! what this thread submits into its own ring, behind the same `BlockDevice::submit`. Drives that
//! are memory leave it their small requests too, as inline I/O: what never waits needs no kernel queue
//! and no other thread, only a moment that is not inside `submit`. All other
//! threads are served by a few ring threads of the process, started with the first drive that
//! needs them, asleep when there is nothing to do.
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

/// What a thread has for its next turn.
enum Entry {
    Ring(Submission),
    /// Never waits, so that the thread does it itself: cheaper than to hand it to another.
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
    /// Performs it and puts its answer among those that have `ended`; gives it back if it may not begin yet.
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
    /// What this thread has submitted since its ring's last turn; nothing if it has no ring.
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

/// Leaves inline I/O for this thread's next turn; gives it back if the thread takes no turns.
pub(crate) fn submit_inline(inline: InlineIo) -> Option<InlineIo> {
    INBOX.with_borrow_mut(|inbox| match inbox {
        Some(inbox) => {
            inbox.push(Entry::InlineIo(inline));
            None
        }
        None => Some(inline),
    })
}

/// Runs `submit` so that what it submits goes to the ring threads even if this thread has a ring:
/// for those who then wait, and do not turn.
pub(crate) fn elsewhere(submit: impl FnOnce()) {
    let inbox = INBOX.take();
    submit();
    INBOX.set(inbox);
}

/// This thread's own ring. It stays on the thread that made it.
///
/// Call [`turn`](Self::turn) after each round of submissions: nothing reaches the kernel before,
/// and nothing is answered but inside it. Dropping the ring waits for what the kernel has, and
/// answers the rest with [`block::Fault::Shutdown`]. Writes that it has left to a drive's threads, because
/// the kernel would have let them wait, end there.
pub struct LocalRing {
    ring: Ring,
    spare: Vec<Entry>,
    /// Inline I/O that may not begin yet.
    pending: Vec<InlineIo>,
    /// Inline I/O that is done and not yet answered: empty between two turns.
    ended: Vec<(Ticket, Outcome)>,
    not_send: PhantomData<*const ()>,
}

impl LocalRing {
    /// Makes a ring for `depth` requests at once (more than that wait in memory) and puts it in
    /// the way of everything that this thread submits. Fails where [`support`] does, and when the
    /// thread has a ring already.
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

    /// All of the ring's requests are of one submitter: whether they may begin is asked of it once for each
    /// entry into the kernel, and not for each write.
    pub fn guard(&mut self, guard: Arc<dyn Completed>) {
        self.ring.guard(guard);
    }

    /// Registers memory that many requests will lie in, so that the kernel pins its pages once and
    /// not for each request; the ring lets go of it some time after its last buffer has gone. At most
    /// 1 GiB; needs `CAP_IPC_LOCK` or a large enough `RLIMIT_MEMLOCK`, and a place among the 1024 that
    /// a ring has. Where it fails, requests in that memory are as all others.
    pub fn register(&mut self, region: &Region) -> io::Result<()> {
        self.ring.register_region(region)
    }

    /// What other threads use to end this ring's waiting.
    #[must_use]
    pub fn waker(&self) -> Arc<Waker> {
        self.ring.waker()
    }

    /// Submits what was submitted on this thread, answers what has ended, and returns how many
    /// requests were answered.
    ///
    /// When nothing had ended it waits for something: an answer, the waker, or the end of `wait`
    /// (for ever if none is given, not at all if it is zero). It may return early with nothing, as
    /// when a drive is closed somewhere. `pending` is asked after the waker
    /// has been armed; if it returns true there is no waiting, so work that came in from other
    /// threads just before is not slept over.
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
        // Answers given meanwhile may have submitted more.
        let submitted =
            || INBOX.with_borrow(|inbox| inbox.as_ref().is_some_and(|all| !all.is_empty()));
        let answered = self.ring.turn(wait, || pending() || submitted())?;
        Ok(performed + answered)
    }

    /// Hands what was submitted on this thread to the kernel, and neither waits nor answers: for drives
    /// to begin while the thread still has work to do.
    pub fn submit(&mut self) -> io::Result<()> {
        self.take_inbox();
        self.ring.submit()
    }

    /// Hands what was submitted to the ring, performs inline I/O, and returns how many those were.
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
