//! Completes requests at absolute times: one thread for all drives that delay or fail on purpose.
//!
//! Deadlines are absolute, so a late wake-up delays one answer and never those behind it: rates
//! stay exact. Each drive is a [`Group`]; closing a group answers its requests that still wait.

use std::cmp::{Ordering as Order, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Instant;

use block::{Fault, Outcome};

use super::ticket::Ticket;

/// How late the kernel may wake the timer thread. Its default of 50 µs would be a tenth of a fast
/// drive's latency.
const TIMER_SLACK_NANOSECONDS: NonZeroU64 = NonZeroU64::new(1_000).unwrap();

struct Entry {
    deadline: Instant,
    /// Equal deadlines are answered in the order of their submission.
    sequence: u64,
    group: Arc<Open>,
    ticket: Ticket,
    outcome: Outcome,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> Order {
        (self.deadline, self.sequence).cmp(&(other.deadline, other.sequence))
    }
}

/// Set to false, under the timer's lock, when the group is closed.
struct Open(AtomicBool);

struct State {
    heap: BinaryHeap<Reverse<Entry>>,
    sequence: u64,
    thread: Option<ThreadId>,
    /// The timer thread is outside the lock, answering.
    answering: bool,
}

struct Timer {
    state: Mutex<State>,
    /// The thread waits here for deadlines.
    due: Condvar,
    /// Threads that close a group wait here until the timer thread has finished answering.
    answered: Condvar,
}

static TIMER: Timer = Timer {
    state: Mutex::new(State {
        heap: BinaryHeap::new(),
        sequence: 0,
        thread: None,
        answering: false,
    }),
    due: Condvar::new(),
    answered: Condvar::new(),
};

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        // If it fails, answers are some 50 µs later, and nothing else is wrong.
        let _ = rustix::thread::set_current_timer_slack(Some(TIMER_SLACK_NANOSECONDS));
        let mut ready = Vec::new();
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            while state
                .heap
                .peek()
                .is_some_and(|Reverse(entry)| entry.deadline <= now)
            {
                ready.extend(state.heap.pop());
            }
            if !ready.is_empty() {
                state.answering = true;
                drop(state);
                for Reverse(entry) in ready.drain(..) {
                    entry.ticket.complete(entry.outcome);
                }
                state = self.lock();
                state.answering = false;
                self.answered.notify_all();
                continue;
            }
            let next = state.heap.peek().map(|Reverse(entry)| entry.deadline - now);
            state = match next {
                None => self.due.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(pause) => {
                    let waited = self.due.wait_timeout(state, pause);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

/// The requests of one drive. Dropping it answers those that still wait with [`Fault::Shutdown`].
pub(crate) struct Group(Arc<Open>);

impl Group {
    /// A new group; starts the timer thread if this is the first one. The thread then stays: it
    /// sleeps whenever nothing waits.
    pub(crate) fn new() -> io::Result<Self> {
        let mut state = TIMER.lock();
        if state.thread.is_none() {
            let builder = thread::Builder::new().name("drive-timer".to_owned());
            state.thread = Some(builder.spawn(|| TIMER.run())?.thread().id());
        }
        Ok(Self(Arc::new(Open(AtomicBool::new(true)))))
    }

    /// A handle that can schedule for this group, and does not keep the group open.
    pub(crate) fn scheduler(&self) -> Scheduler {
        Scheduler(Arc::clone(&self.0))
    }

    /// Answers `ticket` on the timer thread, at `deadline` or as soon as possible after it.
    pub(crate) fn complete_at(&self, deadline: Instant, ticket: Ticket, outcome: Outcome) {
        schedule(&self.0, deadline, ticket, outcome);
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut state = TIMER.lock();
        self.0.0.store(false, Relaxed);
        // Waits while the timer thread is answering: a request of this group may be among those.
        let on_timer = state.thread == Some(thread::current().id());
        while state.answering && !on_timer {
            state = TIMER
                .answered
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        let all = std::mem::take(&mut state.heap);
        let (ours, others): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|Reverse(entry)| Arc::ptr_eq(&entry.group, &self.0));
        state.heap = others.into();
        drop(state);
        for Reverse(entry) in ours {
            entry.ticket.complete(Err(Fault::Shutdown));
        }
    }
}

/// Schedules for a group that may be closed meanwhile.
#[derive(Clone)]
pub(crate) struct Scheduler(Arc<Open>);

impl Scheduler {
    /// Like [`Group::complete_at`]; answers [`Fault::Shutdown`] at once if the group is closed.
    pub(crate) fn complete_at(&self, deadline: Instant, ticket: Ticket, outcome: Outcome) {
        schedule(&self.0, deadline, ticket, outcome);
    }
}

fn schedule(group: &Arc<Open>, deadline: Instant, ticket: Ticket, outcome: Outcome) {
    let mut state = TIMER.lock();
    if !group.0.load(Relaxed) {
        drop(state);
        ticket.complete(Err(Fault::Shutdown));
        return;
    }
    let sequence = state.sequence;
    state.sequence += 1;
    let first = state
        .heap
        .peek()
        .is_none_or(|Reverse(entry)| deadline < entry.deadline);
    state.heap.push(Reverse(Entry {
        deadline,
        sequence,
        group: Arc::clone(group),
        ticket,
        outcome,
    }));
    drop(state);
    if first {
        TIMER.due.notify_one();
    }
}
