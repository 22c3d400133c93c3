//! The messages to a lane's thread, and how the thread is woken.
//!
//! ```text
//!   anyone: send ─► messages ──take (all at once)──► lane thread ─► its ring's turn
//!             └──── asleep? wake                         ▲                │
//!                                                        └─ drives' answers
//! ```
//!
//! Messages that the thread sends to itself (answers of drives that its own turn performed or
//! reaped) take neither lock nor wake: they wait in a list of the thread's own.
//!
//! A thread with a ring sleeps in the ring's turn: both messages and the answers of drives end that
//! sleep. A thread without a ring (no io_uring here) sleeps on the queue.

use std::cell::{Cell, RefCell};
use std::ptr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use super::lane::LaneMessage;
use crate::ring::Waker;

#[derive(Default)]
struct State {
    messages: Vec<LaneMessage>,
    /// The thread sleeps on the queue itself.
    asleep: bool,
    /// The thread takes no more messages.
    closed: bool,
}

thread_local! {
    /// The queue that this thread takes from; compared, never dereferenced.
    static MINE: Cell<*const Queue> = const { Cell::new(ptr::null()) };
    /// Messages that this thread has sent to itself.
    static OWN: RefCell<Vec<LaneMessage>> = const { RefCell::new(Vec::new()) };
}

/// The messages that wait for a lane's thread.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    /// Set by a thread that has a ring, before it takes any message.
    waker: OnceLock<Arc<Waker>>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in the critical sections can leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the calling thread the one that takes, until it closes the queue.
    pub(super) fn adopt(&self) {
        MINE.set(self);
    }

    fn is_mine(&self) -> bool {
        // A thread that is being torn down takes no more messages.
        MINE.try_with(|mine| ptr::eq(mine.get(), self))
            .unwrap_or(false)
    }

    fn has_own(&self) -> bool {
        self.is_mine() && OWN.with_borrow(|own| !own.is_empty())
    }

    /// Queues a message; returns it if the thread has stopped.
    pub(super) fn send(&self, message: LaneMessage) -> Result<(), LaneMessage> {
        if self.is_mine() {
            OWN.with_borrow_mut(|own| own.push(message));
            return Ok(());
        }
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

    /// From now on, messages wake `waker`.
    pub(super) fn wake_by(&self, waker: Arc<Waker>) {
        assert!(self.waker.set(waker).is_ok(), "a thread has one ring");
    }

    /// Moves all waiting messages into `into`, which must be empty.
    pub(super) fn take(&self, into: &mut Vec<LaneMessage>) {
        std::mem::swap(into, &mut self.lock().messages);
        if self.is_mine() {
            OWN.with_borrow_mut(|own| into.append(own));
        }
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        !self.has_own() && self.lock().messages.is_empty()
    }

    /// Sleeps until a message waits, or `timeout` is over: for a thread without a ring.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        if self.has_own() {
            return;
        }
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

    /// Refuses all further messages, and drops those that were not taken.
    pub(super) fn close(&self) {
        if self.is_mine() {
            MINE.set(ptr::null());
            drop(OWN.take());
        }
        let left = {
            let mut state = self.lock();
            state.closed = true;
            std::mem::take(&mut state.messages)
        };
        // Outside of the lock: the drop answers the requests in the messages.
        drop(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(messages: &[LaneMessage]) -> usize {
        let is_stop = |message: &&LaneMessage| matches!(message, LaneMessage::Stop);
        messages.iter().filter(is_stop).count()
    }

    #[test]
    fn what_a_thread_sends_itself_keeps_it_awake_and_stays_its_own() {
        let (mine, other) = (Queue::default(), Queue::default());
        mine.adopt();
        assert!(mine.is_empty() && other.is_empty());
        assert!(mine.send(LaneMessage::Stop).is_ok());
        assert!(other.send(LaneMessage::Stop).is_ok());
        assert!(!mine.is_empty() && !other.is_empty());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(mine.lock().messages.is_empty(), "sent without the lock");
                assert!(mine.send(LaneMessage::Stop).is_ok());
            });
        });
        // Would sleep for ever if it did not see its own message.
        mine.wait(None);
        let mut taken = Vec::new();
        other.take(&mut taken);
        assert_eq!(stops(&taken), 1);
        taken.clear();
        mine.take(&mut taken);
        assert_eq!(stops(&taken), 2);
        assert!(mine.is_empty());
        assert!(mine.send(LaneMessage::Stop).is_ok());
        mine.close();
        assert!(
            mine.send(LaneMessage::Stop).is_err(),
            "closed for itself too"
        );
        taken.clear();
        mine.take(&mut taken);
        assert_eq!(stops(&taken), 0, "what was left has been dropped");
    }
}
