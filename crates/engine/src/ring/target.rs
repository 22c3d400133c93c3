//! An open file or device that rings use, and the count of its uses.
//!
//! A ring keeps a registered file open, with its lock and its claim on the device. So dropping a
//! drive closes its target, wakes every ring, and waits until the target is unused. Each ring drops
//! its uses once it has answered its requests to the target.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use block::{Fault, Memory, Request};

use super::waker::Waker;
use crate::drive::{Backlog, Handle, Ticket};

/// How long dropping a drive waits for rings to release it. The process's own ring threads always
/// do. A lane that does not turn must not block the thread that drops the drive.
const CLOSE_WAIT_MAX: Duration = Duration::from_secs(10);

/// Counts closed targets: one load shows a ring that it must check its targets.
static CLOSED: AtomicU64 = AtomicU64::new(0);

/// The wakers of all rings of the process.
static RINGS: Mutex<Vec<Weak<Waker>>> = Mutex::new(Vec::new());

thread_local! {
    static RUNS_A_RING: Cell<bool> = const { Cell::new(false) };
}

/// Adds the waker of a new ring: closing a target wakes it.
pub(super) fn announce(waker: &Arc<Waker>) {
    RUNS_A_RING.set(true);
    let mut rings = RINGS.lock().unwrap_or_else(PoisonError::into_inner);
    rings.retain(|ring| ring.strong_count() > 0);
    rings.push(Arc::downgrade(waker));
}

/// The calling thread's ring has ended.
pub(super) fn retire() {
    RUNS_A_RING.set(false);
}

/// How many targets have been closed so far.
pub(super) fn closed_count() -> u64 {
    CLOSED.load(SeqCst)
}

/// An open file or device that rings do I/O on.
pub(crate) struct Target {
    /// Unique in this process, counted from 0.
    id: u32,
    handle: Arc<Handle>,
    /// Takes writes that would wait in the kernel.
    backlog: Option<Backlog>,
    uses: AtomicUsize,
    closed: AtomicBool,
    lock: Mutex<()>,
    unused: Condvar,
}

impl Target {
    pub(crate) fn new(handle: Arc<Handle>, backlog: Option<Backlog>) -> Arc<Self> {
        static IDS: AtomicU32 = AtomicU32::new(0);
        Arc::new(Self {
            id: IDS.fetch_add(1, SeqCst),
            handle,
            backlog,
            uses: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            lock: Mutex::new(()),
            unused: Condvar::new(),
        })
    }

    pub(super) fn id(&self) -> usize {
        self.id as usize
    }

    pub(super) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(super) const fn backlog(&self) -> Option<&Backlog> {
        self.backlog.as_ref()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed.load(SeqCst)
    }

    /// Refuses requests that have not begun, and waits until the others have ended and every ring
    /// has released the target. Does not wait on a thread that runs a ring, since it could wait for
    /// that very ring: then the rings release the target soon afterwards.
    pub(crate) fn close(self: &Arc<Self>) {
        self.closed.store(true, SeqCst);
        CLOSED.fetch_add(1, SeqCst);
        for ring in RINGS.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if let Some(waker) = ring.upgrade() {
                waker.wake();
            }
        }
        if RUNS_A_RING.get() {
            return;
        }
        let guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        let (guard, waited) = self
            .unused
            .wait_timeout_while(guard, CLOSE_WAIT_MAX, |()| self.uses.load(SeqCst) > 0)
            .unwrap_or_else(PoisonError::into_inner);
        // A user that has counted itself out may need the lock before it drops the file.
        drop(guard);
        if waited.timed_out() {
            tracing::warn!(
                "a drive was closed while a ring still holds it: its lane does not turn"
            );
            return;
        }
        // The last user has counted itself out, but may not have dropped its reference to the file
        // yet.
        while Arc::strong_count(self) > 1 {
            std::thread::yield_now();
        }
    }
}

/// One use of a target: a request, or a ring's registration.
pub(crate) struct Use(Arc<Target>);

impl Use {
    pub(crate) fn new(target: &Arc<Target>) -> Self {
        target.uses.fetch_add(1, SeqCst);
        Self(Arc::clone(target))
    }

    pub(super) fn another(&self) -> Self {
        Self::new(&self.0)
    }
}

impl Deref for Use {
    type Target = Target;

    fn deref(&self) -> &Target {
        &self.0
    }
}

impl Drop for Use {
    fn drop(&mut self) {
        if self.0.uses.fetch_sub(1, SeqCst) == 1 && self.0.is_closed() {
            // Under the lock: the notification must not fall between the waiter's check and its
            // sleep.
            let _guard = self.0.lock.lock().unwrap_or_else(PoisonError::into_inner);
            self.0.unused.notify_all();
        }
    }
}

/// A read, write or flush on its way to a ring.
pub(crate) struct Submission {
    pub(super) target: Use,
    pub(super) request: Request,
    pub(super) memory: Memory,
    pub(super) ticket: Ticket,
}

impl Submission {
    pub(crate) fn new(
        target: &Arc<Target>,
        request: Request,
        memory: Memory,
        ticket: Ticket,
    ) -> Self {
        Self {
            target: Use::new(target),
            request,
            memory,
            ticket,
        }
    }

    /// Answers that the drive is being shut down.
    pub(super) fn refuse(self) {
        drop(self.memory);
        self.ticket.complete(Err(Fault::Shutdown));
        drop(self.target);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    /// Found at the end of a benchmark: the closer held the lock while it waited for a thread that
    /// needed it.
    #[test]
    fn a_use_that_ends_while_the_target_is_closed_holds_up_neither() {
        let sleep = &crate::ring::tests::SLEEP;
        let _disturbing = sleep.lock().unwrap_or_else(PoisonError::into_inner);
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let handle = Arc::new(Handle::new(file.into(), false).unwrap());
        let (to_user, uses) = mpsc::channel::<(Use, u32)>();
        let user = thread::spawn(move || {
            for (last, pause) in uses {
                (0..pause).for_each(|_| std::hint::spin_loop());
                drop(last);
            }
        });
        let (to_end, end) = mpsc::channel();
        let closer = thread::spawn(move || {
            for round in 0..100_000 {
                let target = Target::new(Arc::clone(&handle), None);
                to_user.send((Use::new(&target), round % 50)).unwrap();
                target.close();
            }
            to_end.send(()).unwrap();
        });
        end.recv_timeout(Duration::from_secs(60))
            .expect("every close ends");
        closer.join().unwrap();
        user.join().unwrap();
    }
}
