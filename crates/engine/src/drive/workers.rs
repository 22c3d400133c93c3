//! The thread-pool back end: a shared queue and a few threads that perform one request at a time.
//!
//! Used for everything that blocks (files and devices where io_uring is off or costs more, and
//! their trims) and for the memory drive, because a drive must not complete a request inside
//! `submit`.
//!
//! ```text
//! submit ──► jobs: [write][flush][read]… ──► worker ──► perform ──► drop memory ──► ticket
//!                           │
//!                 flushes: [ticket, ticket]   a flush that finds one queued and not begun joins it
//! ```

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use block::{Fault, Limits, Memory, Outcome, Permission, Request, RequestKind};

use super::ticket::Ticket;
use crate::ring::{self, InlineIo};

/// How long a change that may not begin yet waits until permission is asked again.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(10);

/// Whether a change may begin: asked before each system call that makes one.
pub(crate) type Ask<'a> = dyn Fn() -> Permission + 'a;

/// Why a request has not been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// It failed.
    Fault(Fault),
    /// It may not begin, or go on, now. It must be performed again from its beginning.
    Pending,
}

impl From<Fault> for Halt {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// The result of carrying out a request.
pub(crate) type Performed = Result<(), Halt>;

/// Asks whether a change may begin.
pub(crate) fn begin(may_begin: &Ask<'_>) -> Performed {
    match may_begin() {
        Permission::Granted => Ok(()),
        Permission::Pending => Err(Halt::Pending),
        Permission::Revoked => Err(Fault::Shutdown.into()),
    }
}

/// Carries out requests for the workers.
pub(crate) trait Perform: Send + Sync + 'static {
    /// Carries out `request`, blocking, and asks `may_begin` before each system call that changes
    /// the drive. Flushes that were joined arrive here as one.
    fn perform(&self, request: &Request, memory: &Memory, may_begin: &Ask<'_>) -> Performed;

    /// Whether a flush may sleep. A flush that cannot sleep is done by the thread that submits it,
    /// if that thread has a ring.
    fn flush_sleeps(&self) -> bool {
        true
    }
}

enum Job {
    Io(Request, Memory, Ticket),
    /// Serves every ticket that is in `State::flushes` when it begins.
    Flush,
}

struct State {
    jobs: VecDeque<Job>,
    /// Flushes that wait for the one queued `Job::Flush`; empty when none is queued.
    flushes: Vec<Ticket>,
    /// Changes that may not begin yet.
    pending: Vec<Job>,
    idle: usize,
    closed: bool,
}

struct Shared {
    state: Mutex<State>,
    wake: Condvar,
    perform: Arc<dyn Perform>,
    threads: usize,
    batch_max: usize,
    inline_bytes_max: u64,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the critical sections can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut batch = Vec::with_capacity(self.batch_max);
        loop {
            {
                let mut state = self.lock();
                while state.jobs.is_empty() {
                    if state.closed {
                        return;
                    }
                    state.idle += 1;
                    if state.pending.is_empty() {
                        let woken = self.wake.wait(state);
                        state = woken.unwrap_or_else(PoisonError::into_inner);
                    } else {
                        let woken = self.wake.wait_timeout(state, ASK_AGAIN);
                        let (again, waited) = woken.unwrap_or_else(PoisonError::into_inner);
                        state = again;
                        if waited.timed_out() {
                            let pending = std::mem::take(&mut state.pending);
                            state.jobs.extend(pending);
                        }
                    }
                    state.idle -= 1;
                }
                // An equal share of the jobs: a batch saves lock traffic, but must not starve idle
                // workers.
                let share = state.jobs.len().div_ceil(self.threads).min(self.batch_max);
                batch.extend(state.jobs.drain(..share));
            }
            for job in batch.drain(..) {
                if let Some(job) = self.perform(job) {
                    self.lock().pending.push(job);
                }
            }
        }
    }

    /// Performs a job; returns it if it may not begin yet.
    fn perform(&self, job: Job) -> Option<Job> {
        match job {
            Job::Io(request, memory, ticket) => {
                let ask = || ticket.permission();
                let outcome = match self.perform.perform(&request, &memory, &ask) {
                    Ok(()) => Ok(()),
                    Err(Halt::Fault(fault)) => Err(fault),
                    Err(Halt::Pending) => return Some(Job::Io(request, memory, ticket)),
                };
                drop(memory);
                ticket.complete(outcome);
            }
            Job::Flush => {
                let tickets = std::mem::take(&mut self.lock().flushes);
                let request = Request {
                    kind: RequestKind::Flush,
                    offset: 0,
                    length: 0,
                    fua: false,
                };
                let always = || Permission::Granted;
                let performed = self.perform.perform(&request, &Memory::empty(), &always);
                let outcome = match performed {
                    Err(Halt::Fault(fault)) => Err(fault),
                    Ok(()) | Err(Halt::Pending) => Ok(()),
                };
                for ticket in tickets {
                    ticket.complete(outcome);
                }
            }
        }
        None
    }

    fn queue(&self, request: Request, memory: Memory, ticket: Ticket) {
        let mut state = self.lock();
        if state.closed {
            // Dropping the ticket answers the request.
            return;
        }
        if request.kind == RequestKind::Flush {
            state.flushes.push(ticket);
            if state.flushes.len() > 1 {
                return;
            }
            state.jobs.push_back(Job::Flush);
        } else {
            state.jobs.push_back(Job::Io(request, memory, ticket));
        }
        let wake = state.idle > 0;
        drop(state);
        if wake {
            self.wake.notify_one();
        }
    }
}

/// Takes those writes of a ring that would wait in the kernel.
pub(crate) struct Backlog(Arc<Shared>);

impl Backlog {
    pub(crate) fn queue(&self, request: Request, memory: Memory, ticket: Ticket) {
        self.0.queue(request, memory, ticket);
    }
}

/// A queue with its threads. Dropping it answers requests that have not begun with
/// [`Fault::Shutdown`], waits for the others, and joins the threads.
pub(crate) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Starts `threads` threads, each of which takes up to `batch_max` requests at once. More than
    /// one at once only pays where performing a request never sleeps. A thread that has a ring
    /// performs its own reads and writes of at most `inline_bytes_max` (0 where performing may
    /// sleep) in its ring's turn, and also its flushes if they never sleep.
    pub(crate) fn start(
        name: &str,
        threads: usize,
        batch_max: usize,
        inline_bytes_max: u64,
        perform: Arc<dyn Perform>,
    ) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            state: Mutex::new(State {
                jobs: VecDeque::new(),
                flushes: Vec::new(),
                pending: Vec::new(),
                idle: 0,
                closed: false,
            }),
            wake: Condvar::new(),
            perform,
            threads,
            batch_max,
            inline_bytes_max,
        });
        let mut workers = Self {
            shared,
            threads: Vec::with_capacity(threads),
        };
        for _ in 0..threads {
            let shared = Arc::clone(&workers.shared);
            // The kernel shows the first 15 bytes of a thread's name.
            let builder = thread::Builder::new().name(name.to_owned());
            workers.threads.push(builder.spawn(move || shared.run())?);
        }
        Ok(workers)
    }

    /// Queues a request.
    pub(crate) fn submit(&self, request: Request, memory: Memory, ticket: Ticket) {
        let short = match request.kind {
            RequestKind::Read | RequestKind::Write => {
                request.length <= self.shared.inline_bytes_max
            }
            RequestKind::Flush => !self.shared.perform.flush_sleeps(),
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => false,
        };
        if !short {
            return self.shared.queue(request, memory, ticket);
        }
        let inline = InlineIo {
            perform: Arc::clone(&self.shared.perform),
            request,
            memory,
            ticket,
        };
        if let Some(inline) = ring::submit_inline(inline) {
            let InlineIo {
                request,
                memory,
                ticket,
                ..
            } = inline;
            self.shared.queue(request, memory, ticket);
        }
    }

    /// The same queue, for the rings of the process.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog(Arc::clone(&self.shared))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        let (jobs, flushes) = {
            let mut state = self.shared.lock();
            state.closed = true;
            let pending = std::mem::take(&mut state.pending);
            state.jobs.extend(pending);
            (
                std::mem::take(&mut state.jobs),
                std::mem::take(&mut state.flushes),
            )
        };
        self.shared.wake.notify_all();
        for job in jobs {
            if let Job::Io(_, memory, ticket) = job {
                drop(memory);
                ticket.complete(Err(Fault::Shutdown));
            }
        }
        for ticket in flushes {
            ticket.complete(Err(Fault::Shutdown));
        }
        join_others(&mut self.threads);
    }
}

/// Joins threads, but never the calling one: the last owner of a drive may drop it inside a
/// completion, on a thread of that very drive, which then ends later.
pub(crate) fn join_others(threads: &mut Vec<JoinHandle<()>>) {
    for thread in threads.drain(..) {
        if thread.thread().id() != thread::current().id() {
            // A worker that panicked has answered its requests by dropping their tickets.
            let _ = thread.join();
        }
    }
}

/// Whether `request` with `memory` respects `limits`; [`Fault::Invalid`] if not.
pub(crate) fn check(limits: &Limits, request: &Request, memory: &Memory) -> Outcome {
    let carries = matches!(request.kind, RequestKind::Read | RequestKind::Write);
    if request.kind == RequestKind::Flush {
        return Ok(());
    }
    let align = u64::from(limits.block_bytes_min) - 1;
    let end = request.offset.checked_add(request.length);
    let inside = end.is_some_and(|end| end <= limits.size_bytes);
    let aligned = (request.offset | request.length) & align == 0;
    let sized = !carries
        || (memory.len() as u64 == request.length
            && request.length <= u64::from(limits.request_bytes_max));
    if inside && aligned && sized {
        Ok(())
    } else {
        Err(Fault::Invalid)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc;
    use std::time::Instant;

    use block::Completed;

    use super::*;
    use crate::drive::telemetry::Telemetry;
    use crate::drive::tests::support::{Collector, request};

    /// Reads wait until the test releases them; flushes are counted.
    struct Gated {
        reads: Mutex<mpsc::Receiver<()>>,
        flushes: AtomicUsize,
    }

    impl Perform for Gated {
        fn perform(&self, request: &Request, _: &Memory, may_begin: &Ask<'_>) -> Performed {
            if request.kind.mutates() {
                return begin(may_begin);
            }
            if request.kind == RequestKind::Flush {
                self.flushes.fetch_add(1, Ordering::SeqCst);
            } else {
                let _ = self.reads.lock().unwrap().recv();
            }
            Ok(())
        }
    }

    #[test]
    fn a_flush_joins_one_that_has_not_begun() {
        let (gate, reads) = mpsc::channel();
        let gated = Arc::new(Gated {
            reads: Mutex::new(reads),
            flushes: AtomicUsize::new(0),
        });
        let workers = Workers::start("gated", 1, 1, 0, Arc::clone(&gated) as _).unwrap();
        let telemetry = Arc::new(Telemetry::new());
        let collector = Arc::new(Collector::default());
        let to: Arc<dyn Completed> = Arc::clone(&collector) as _;
        let submit = |kind, token| {
            let request = request(kind, 0, 0);
            let ticket = Ticket::new(&telemetry, &request, token, &to, Instant::now());
            workers.submit(request, Memory::empty(), ticket);
        };
        // The one thread is in the read, so no flush can have begun.
        submit(RequestKind::Read, 0);
        (1..6).for_each(|token| submit(RequestKind::Flush, token));
        gate.send(()).unwrap();
        collector.wait(6);
        assert_eq!(gated.flushes.load(Ordering::SeqCst), 1);
        // A later flush is a flush of its own.
        submit(RequestKind::Flush, 6);
        collector.wait(7);
        assert_eq!(gated.flushes.load(Ordering::SeqCst), 2);
        assert!(collector.once_each(7).iter().all(Result::is_ok));
    }
}
