//! What a lane's thread is told, and how it is woken.
//!
//! ```text
//!   anyone: send ─► messages ──take (all at once)──► lane thread ─► its ring's turn
//!             └──── asleep? wake                         ▲                │
//!                                                        └─ drives' answers
//! ```
//!
//! A thread with a ring sleeps in the ring's turn, where answers of drives and messages end its
//! sleep alike; one without (no io_uring here) sleeps on the queue.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::lane::LaneMessage;
use crate::ring::Waker;

#[derive(Default)]
struct State {
    messages: Vec<LaneMessage>,
    /// The thread sleeps on the queue itself.
    asleep: bool,
    /// Nobody takes messages any more.
    closed: bool,
}

/// The messages that wait for a lane's thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Set, before anything is taken, by a thread that has a ring.
    waker: OnceLock<Arc<Waker>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the critical sections can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message; gives it back when the thread has stopped.
    pub(super) fn send(&self, message: LaneMessage) -> Result<(), LaneMessage> {
        let mut state = self.lock();
        if state.closed {
            return Err(message);
        }
        state.messages.push(message);
        let asleep = state.asleep;
        drop(state);
        match self.waker.get() {
            Some(waker) => waker.wake(),
            None if asleep => self.more.notify_one(),
            None => {}
        }
        Ok(())
    }

    /// From now on `waker` is told of messages.
    pub(super) fn wake_by(&self, waker: Arc<Waker>) {
        assert!(self.waker.set(waker).is_ok(), "a thread has one ring");
    }

    /// Everything that waits, into the empty `into`.
    pub(super) fn take(&self, into: &mut Vec<LaneMessage>) {
        std::mem::swap(into, &mut self.lock().messages);
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().messages.is_empty()
    }

    /// Sleeps until something waits, or `timeout` is over: for a thread without a ring.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        let mut state = self.lock();
        state.asleep = true;
        let is_empty = |state: &mut State| state.messages.is_empty();
        let mut state = match timeout {
            None => self
                .more
                .wait_while(state, is_empty)
                .unwrap_or_else(PoisonError::into_inner),
            Some(timeout) => {
                let woken = self.more.wait_timeout_while(state, timeout, is_empty);
                woken.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.asleep = false;
    }

    /// Refuses all further messages, and drops those that nobody took.
    pub(super) fn close(&self) {
        let left = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.messages)
        };
        // Outside of the lock: whoever waits for an answer is answered by the drop.
        drop(left);
    }
}
