//! Wakes the thread of a ring.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicU8, Ordering::SeqCst};
use std::thread::{self, Thread};

use rustix::event::EventfdFlags;

/// The ring's thread runs.
const AWAKE: u8 = 0;
/// The thread waits in the kernel for its requests, or is about to; the eventfd ends the wait.
const WAITING: u8 = 1;
/// The thread has nothing in the kernel and is parked, which is the cheaper sleep to end.
const PARKED: u8 = 2;

/// Ends a ring's waiting from any thread.
pub struct Waker {
    eventfd: OwnedFd,
    thread: Thread,
    /// Set by the ring before its last check for work, so that waking a thread that is awake needs
    /// no system call.
    sleep: AtomicU8,
}

impl Waker {
    /// For the calling thread.
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            eventfd: rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            thread: thread::current(),
            sleep: AtomicU8::new(AWAKE),
        })
    }

    /// Ends the ring's waiting, if it waits. Cheap if it does not.
    pub fn wake(&self) {
        if self.sleep.load(SeqCst) == AWAKE {
            return;
        }
        match self.sleep.swap(AWAKE, SeqCst) {
            AWAKE => {}
            PARKED => self.thread.unpark(),
            _ => {
                // The write fails only if the counter is full, and then the ring is awake already.
                let _ = rustix::io::write(&self.eventfd, &1_u64.to_ne_bytes());
            }
        }
    }

    /// From here on a wake makes a system call: it unparks the thread if it `parks`, else it uses
    /// the eventfd. Check for work once more after this.
    pub(super) fn fall_asleep(&self, parks: bool) {
        self.sleep
            .store(if parks { PARKED } else { WAITING }, SeqCst);
    }

    /// The thread runs again.
    pub(super) fn awake(&self) {
        self.sleep.store(AWAKE, SeqCst);
    }

    /// Readable when a ring that waits in the kernel has been woken.
    pub(super) fn fd(&self) -> RawFd {
        self.eventfd.as_raw_fd()
    }

    /// Consumes the wake-up.
    pub(super) fn take(&self) {
        let mut count = [0; 8];
        // Empty if the poll ended for another reason.
        let _ = rustix::io::read(&self.eventfd, &mut count);
    }
}
