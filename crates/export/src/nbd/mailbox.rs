//! A worker's inbox for other threads: completed requests, new sockets, and the request to stop.

use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};

use block::{Completed, Extent, Memory, Outcome};
use rustix::event::{EventfdFlags, eventfd};
use rustix::io;

/// One worker's mailbox. The worker sets `asleep` before it waits. The first thread that adds something clears the
/// flag and writes to the eventfd, so a burst of completions costs one wake-up.
pub(super) struct Mailbox {
    outcomes: Mutex<Vec<(u64, Outcome)>>,
    /// Data of reads that the device returned in memory other than the request's. Rare.
    elsewhere: Mutex<Vec<(u64, Memory)>>,
    /// Devices' answers to extents queries.
    extents: Mutex<Vec<(u64, Vec<Extent>)>>,
    sockets: Mutex<Vec<OwnedFd>>,
    stop: AtomicBool,
    asleep: AtomicBool,
    wakeup: OwnedFd,
}

impl Mailbox {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            outcomes: Mutex::default(),
            elsewhere: Mutex::default(),
            extents: Mutex::default(),
            sockets: Mutex::default(),
            stop: AtomicBool::new(false),
            asleep: AtomicBool::new(false),
            wakeup: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
        })
    }

    /// The eventfd. Register it edge-triggered with epoll; then it need never be read.
    pub(super) const fn wakeup(&self) -> &OwnedFd {
        &self.wakeup
    }

    /// Hands over a connected socket.
    pub(super) fn put_socket(&self, socket: OwnedFd) {
        lock(&self.sockets).push(socket);
        self.ring_if_asleep();
    }

    /// Requests that the worker finishes and ends.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.ring_if_asleep();
    }

    pub(super) fn stopping(&self) -> bool {
        self.stop.load(Ordering::SeqCst)
    }

    /// Moves the outcomes that have collected into `into`, which must be empty.
    pub(super) fn take_outcomes(&self, into: &mut Vec<(u64, Outcome)>) {
        std::mem::swap(&mut *lock(&self.outcomes), into);
    }

    /// Appends the data of reads that devices returned in their own memory to `into`. For every outcome that has been
    /// taken, its data is included.
    pub(super) fn take_elsewhere(&self, into: &mut Vec<(u64, Memory)>) {
        into.append(&mut lock(&self.elsewhere));
    }

    /// Adds a device's answer to an extents query.
    pub(super) fn put_extents(&self, token: u64, extents: Vec<Extent>) {
        lock(&self.extents).push((token, extents));
        self.ring_if_asleep();
    }

    pub(super) fn take_extents(&self) -> Vec<(u64, Vec<Extent>)> {
        std::mem::take(&mut *lock(&self.extents))
    }

    pub(super) fn has_outcomes(&self) -> bool {
        !lock(&self.outcomes).is_empty() || !lock(&self.extents).is_empty()
    }

    pub(super) fn take_sockets(&self) -> Vec<OwnedFd> {
        std::mem::take(&mut *lock(&self.sockets))
    }

    /// Announces that the worker is about to wait. False if the mailbox is not empty.
    pub(super) fn fall_asleep(&self, was_stopping: bool) -> bool {
        // The order matters: set the flag, then check. A thread that adds something after the check sees the flag.
        self.asleep.store(true, Ordering::SeqCst);
        let empty = lock(&self.outcomes).is_empty()
            && lock(&self.extents).is_empty()
            && lock(&self.sockets).is_empty()
            && self.stopping() == was_stopping;
        if !empty {
            self.wake();
        }
        empty
    }

    /// Call this when the worker is awake. It checks the mailbox before it waits again.
    pub(super) fn wake(&self) {
        self.asleep.store(false, Ordering::SeqCst);
    }

    fn ring_if_asleep(&self) {
        if self.asleep.swap(false, Ordering::SeqCst) {
            // The counter cannot overflow, and a failure could not be reported.
            let _ = io::write(&self.wakeup, &1_u64.to_ne_bytes());
        }
    }
}

impl Completed for Mailbox {
    fn completed(&self, token: u64, outcome: Outcome) {
        lock(&self.outcomes).push((token, outcome));
        self.ring_if_asleep();
    }

    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        lock(&self.outcomes).extend_from_slice(outcomes);
        self.ring_if_asleep();
    }

    fn completed_elsewhere(&self, token: u64, bytes: Memory) {
        lock(&self.elsewhere).push((token, bytes));
        self.completed(token, Ok(()));
    }
}

/// Ignores poisoning: no operation leaves a list inconsistent.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
