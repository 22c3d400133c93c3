//! Requests in flight on the device, and their replies to the kernel.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use block::{BlockDevice, Completed, Fault, Memory, Outcome, Request};
use rustix::io::Errno;

use super::inbox::Inbox;
use super::replies::{self, Body, Reply, Ticket};
use crate::nbd::buffers::Buffers;
use crate::nbd::slab::{Key, Slab};

/// The kind of reply that the kernel expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The bytes.
    Data,
    /// The number of bytes written.
    Written,
    /// Success without data.
    Done,
}

struct PendingRequest {
    ticket: Ticket,
    wanted: Wanted,
    /// The whole buffer; the device has a slice of it.
    memory: Memory,
    /// Bytes of the buffer that the request uses.
    length: usize,
}

struct State {
    in_flight: Slab<PendingRequest>,
    buffers: Buffers,
    /// Bytes of the buffers of all requests in flight.
    bytes: usize,
    /// The reader waits until fewer bytes are in flight.
    waits: bool,
}

/// Bytes in flight beyond which the reader takes no more requests. Without this limit the kernel would have 256
/// requests of a megabyte in flight, and when memory is short the daemon must not use it up. An NBD client has the
/// same limit.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// All requests in flight to one device.
pub(super) struct InFlight {
    device: Arc<dyn BlockDevice>,
    /// Where replies go; set when the file is mounted.
    kernel: OnceLock<OwnedFd>,
    state: Mutex<State>,
    completed: Condvar,
    opens: AtomicUsize,
    /// Where messages outlive this process; set when the file is mounted, if a supervisor keeps it.
    inbox: OnceLock<Inbox>,
    /// Another process takes up the file: what this one does not answer any more, that one does.
    leaves: AtomicBool,
}

const fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::Medium | Fault::Lost => Errno::IO,
        Fault::Gone => Errno::NODEV,
        Fault::Full => Errno::NOSPC,
        Fault::Invalid => Errno::INVAL,
        Fault::Shutdown => Errno::SHUTDOWN,
    }
}

impl InFlight {
    pub(super) fn new(device: Arc<dyn BlockDevice>) -> Self {
        let buffers = Buffers::stocked();
        buffers.lend_to(&*device);
        Self {
            device,
            kernel: OnceLock::new(),
            state: Mutex::new(State {
                in_flight: Slab::new(),
                buffers,
                bytes: 0,
                waits: false,
            }),
            completed: Condvar::new(),
            opens: AtomicUsize::new(0),
            inbox: OnceLock::new(),
            leaves: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    pub(super) fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// From now on replies go to `kernel`.
    pub(super) fn reply_to(&self, kernel: OwnedFd) {
        assert!(self.kernel.set(kernel).is_ok(), "a file is mounted once");
    }

    /// From now on messages outlive this process.
    pub(super) fn keep_in(&self, inbox: Inbox) {
        let opens = inbox.opens().load(Ordering::Relaxed);
        self.opens.store(opens as usize, Ordering::Relaxed);
        assert!(self.inbox.set(inbox).is_ok(), "a file has one inbox");
    }

    pub(super) fn inbox(&self) -> Option<&Inbox> {
        self.inbox.get()
    }

    /// From now on requests that the device has not completed are left to the process that takes up the file.
    pub(super) fn leave(&self) {
        self.leaves.store(true, Ordering::SeqCst);
    }

    pub(super) fn leaves(&self) -> bool {
        self.leaves.load(Ordering::SeqCst)
    }

    /// Sends replies, outside of the lock: the kernel copies their bytes.
    pub(super) fn reply(&self, replies: &mut [Reply]) {
        if let Some(inbox) = self.inbox() {
            for (slot, outcome) in replies.iter().filter_map(Reply::slot) {
                if let Some(outcome) = outcome {
                    inbox.decided(slot, outcome);
                }
            }
        }
        if let (Some(kernel), false) = (self.kernel.get(), replies.is_empty()) {
            replies::send(kernel.as_fd(), replies);
        }
        if let Some(inbox) = self.inbox() {
            let slots = replies.iter().filter_map(Reply::slot);
            slots.for_each(|(slot, _)| inbox.free(slot));
        }
    }

    pub(super) fn opens(&self) -> usize {
        self.opens.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.set_opens(self.opens() + 1);
    }

    pub(super) fn released(&self) {
        // A process that was killed may have counted an open file and not recorded it.
        self.set_opens(self.opens().saturating_sub(1));
    }

    /// Only the reader counts.
    fn set_opens(&self, opens: usize) {
        self.opens.store(opens, Ordering::Relaxed);
        if let Some(inbox) = self.inbox() {
            let opens = u32::try_from(opens).unwrap_or(u32::MAX);
            inbox.opens().store(opens, Ordering::Relaxed);
        }
    }

    /// A buffer of at least `length` bytes, at least 1. Waits while too much is in flight: requests complete on other
    /// threads.
    pub(super) fn buffer(&self, length: usize) -> Memory {
        let mut state = self.state();
        while state.bytes > 0 && state.bytes + length > IN_FLIGHT_BYTES_MAX {
            state.waits = true;
            let waited = self.completed.wait(state);
            state = waited.expect("no holder of the lock panics");
        }
        state.waits = false;
        state.buffers.take(length)
    }

    /// Hands a request to the device. `memory` is a whole buffer, or empty.
    pub(super) fn submit(
        self: &Arc<Self>,
        request: Request,
        memory: Memory,
        (ticket, wanted): (Ticket, Wanted),
    ) {
        let length = match wanted {
            Wanted::Data | Wanted::Written => {
                usize::try_from(request.length).expect("a request fits in memory")
            }
            Wanted::Done => 0,
        };
        let part = memory.slice(0..length);
        let pending = PendingRequest {
            ticket,
            wanted,
            memory,
            length,
        };
        let mut state = self.state();
        state.bytes += pending.memory.len();
        let key = state.in_flight.insert(pending);
        drop(state);
        let to: Arc<dyn Completed> = Arc::clone(self) as _;
        self.device.submit(request, part, key.to_u64(), &to);
    }

    /// Waits until nothing is in flight, until `deadline` at most. True if nothing is.
    pub(super) fn wait_completed(&self, deadline: Instant) -> bool {
        let mut state = self.state();
        while state.in_flight.len() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (again, _) = self
                .completed
                .wait_timeout(state, left)
                .expect("no holder of the lock panics");
            state = again;
        }
        true
    }
}

/// The reply of a completed request, and the request's buffer if the reply does not contain it.
fn complete(
    PendingRequest {
        ticket,
        wanted,
        mut memory,
        length,
    }: PendingRequest,
    outcome: Outcome,
) -> (Reply, Memory) {
    let answer = match (outcome, wanted) {
        (Err(fault), _) => Err(errno(fault).raw_os_error()),
        (Ok(()), Wanted::Done) => Ok(Body::Nothing),
        (Ok(()), Wanted::Written) => {
            let length = u32::try_from(length).expect("a request is shorter than 4 GiB");
            Ok(Body::Written(length))
        }
        (Ok(()), Wanted::Data) => match memory.unique() {
            Some(_) => Ok(Body::Data(std::mem::take(&mut memory), length)),
            // The device still has a reference to the buffer, against its contract.
            None => Err(Errno::IO.raw_os_error()),
        },
    };
    (Reply::new(ticket, answer), memory)
}

impl InFlight {
    /// Replies to completed requests. If `elsewhere` is set, the bytes of the first one are there and not in the
    /// request's own memory.
    fn complete_all(&self, outcomes: &[(u64, Outcome)], mut elsewhere: Option<Memory>) {
        let mut state = self.state();
        let mut completed = Vec::with_capacity(outcomes.len());
        for &(token, outcome) in outcomes {
            match state.in_flight.remove(Key::from_u64(token)) {
                Some(pending) => completed.push((pending, outcome)),
                None => tracing::error!("a request was completed twice"),
            }
        }
        drop(state);
        let mut charge = 0;
        let mut buffers = Vec::with_capacity(completed.len());
        let mut replies = Vec::with_capacity(completed.len());
        for (mut pending, outcome) in completed {
            charge += pending.memory.len();
            if let Some(elsewhere) = elsewhere.take() {
                pending.memory = elsewhere;
            }
            // The pool closes under the request: the next process asks again.
            if outcome == Err(Fault::Shutdown) && self.inbox().is_some() && self.leaves() {
                buffers.push(pending.memory);
                continue;
            }
            let (reply, memory) = complete(pending, outcome);
            replies.push(reply);
            buffers.push(memory);
        }
        self.reply(&mut replies);
        buffers.extend(replies.into_iter().filter_map(Reply::into_memory));
        let mut state = self.state();
        state.bytes -= charge;
        for memory in buffers {
            state.buffers.give(memory);
        }
        if state.in_flight.len() == 0 || state.waits {
            self.completed.notify_all();
        }
    }
}

impl Completed for InFlight {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.complete_all(&[(token, outcome)], None);
    }

    fn completed_all(&self, outcomes: &[(u64, Outcome)]) {
        self.complete_all(outcomes, None);
    }

    fn completed_elsewhere(&self, token: u64, bytes: Memory) {
        self.complete_all(&[(token, Ok(()))], Some(bytes));
    }
}
