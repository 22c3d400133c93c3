//! Requests that the device works on, and the replies that they owe the kernel.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Instant;

use block::{BlockDevice, Completed, Fault, Memory, Outcome, Request};
use fuser::{Errno, ReplyData, ReplyEmpty, ReplyWrite};

use crate::nbd::buffers::Buffers;
use crate::nbd::slab::{Key, Slab};

/// What the kernel waits for.
pub(super) enum Reply {
    /// The bytes.
    Data(ReplyData),
    /// That they were written.
    Written(ReplyWrite),
    /// That it was done.
    Done(ReplyEmpty),
}

struct Flight {
    reply: Reply,
    /// The whole buffer; the device has a slice of it.
    memory: Memory,
    /// Bytes of the buffer that the request is about.
    length: usize,
}

struct State {
    flights: Slab<Flight>,
    buffers: Buffers,
    /// Bytes of the buffers of all flights.
    bytes: usize,
    /// The reader waits until there are fewer.
    waits: bool,
}

/// Bytes in flight beyond which the reader takes no more. The kernel would have 256 requests of a
/// megabyte under way, and where memory is short the daemon must not be who takes it. The same as
/// an NBD client may have.
const IN_FLIGHT_BYTES_MAX: usize = 32 << 20;

/// All requests in flight to one device.
pub(super) struct Flights {
    device: Arc<dyn BlockDevice>,
    state: Mutex<State>,
    landed: Condvar,
    opens: AtomicUsize,
}

fn errno(fault: Fault) -> Errno {
    match fault {
        Fault::Medium | Fault::Lost => Errno::EIO,
        Fault::Gone => Errno::ENODEV,
        Fault::Full => Errno::ENOSPC,
        Fault::Invalid => Errno::EINVAL,
        Fault::Shutdown => Errno::from_i32(rustix::io::Errno::SHUTDOWN.raw_os_error()),
    }
}

impl Flights {
    pub(super) fn new(device: Arc<dyn BlockDevice>) -> Self {
        Self {
            device,
            state: Mutex::new(State {
                flights: Slab::new(),
                buffers: Buffers::new(),
                bytes: 0,
                waits: false,
            }),
            landed: Condvar::new(),
            opens: AtomicUsize::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }

    pub(super) fn device(&self) -> &dyn BlockDevice {
        &*self.device
    }

    pub(super) fn opens(&self) -> usize {
        self.opens.load(Ordering::Relaxed)
    }

    pub(super) fn opened(&self) {
        self.opens.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn released(&self) {
        self.opens.fetch_sub(1, Ordering::Relaxed);
    }

    /// A buffer of at least `length` bytes, at least 1. Waits while too much is in flight; what
    /// lands does so on other threads.
    pub(super) fn buffer(&self, length: usize) -> Memory {
        let mut state = self.state();
        while state.bytes > 0 && state.bytes + length > IN_FLIGHT_BYTES_MAX {
            state.waits = true;
            let waited = self.landed.wait(state);
            state = waited.expect("no holder of the lock panics");
        }
        state.waits = false;
        state.buffers.take(length)
    }

    /// Hands a request to the device. `memory` is a whole buffer, or empty.
    pub(super) fn submit(self: &Arc<Self>, request: Request, memory: Memory, reply: Reply) {
        let length = match reply {
            Reply::Data(_) | Reply::Written(_) => {
                usize::try_from(request.length).expect("a request fits in memory")
            }
            Reply::Done(_) => 0,
        };
        let part = memory.slice(0..length);
        let flight = Flight {
            reply,
            memory,
            length,
        };
        let mut state = self.state();
        state.bytes += flight.memory.len();
        let key = state.flights.insert(flight);
        drop(state);
        let to: Arc<dyn Completed> = Arc::clone(self) as _;
        self.device.submit(request, part, key.to_u64(), &to);
    }

    /// Waits until nothing is in flight; whether that came before the deadline.
    pub(super) fn wait_landed(&self, deadline: Instant) -> bool {
        let mut state = self.state();
        while state.flights.len() > 0 {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let (again, _) = self
                .landed
                .wait_timeout(state, left)
                .expect("no holder of the lock panics");
            state = again;
        }
        true
    }
}

impl Flights {
    /// Answers; `elsewhere` has the bytes if the flight's own memory has not.
    fn land(&self, token: u64, outcome: Outcome, elsewhere: Option<Memory>) {
        let flight = self.state().flights.remove(Key::from_u64(token));
        let Some(Flight {
            reply,
            mut memory,
            length,
        }) = flight
        else {
            tracing::error!("a request was completed twice");
            return;
        };
        let charge = memory.len();
        if let Some(elsewhere) = elsewhere {
            memory = elsewhere;
        }
        // The kernel copies the bytes during the reply, outside of the lock.
        match (reply, outcome) {
            (Reply::Data(reply), Ok(())) => match memory.unique() {
                Some(bytes) => reply.data(&bytes[..length]),
                // The device broke its promise to hold no clone.
                None => reply.error(Errno::EIO),
            },
            (Reply::Written(reply), Ok(())) => {
                reply.written(u32::try_from(length).expect("a request is shorter than 4 GiB"));
            }
            (Reply::Done(reply), Ok(())) => reply.ok(),
            (Reply::Data(reply), Err(fault)) => reply.error(errno(fault)),
            (Reply::Written(reply), Err(fault)) => reply.error(errno(fault)),
            (Reply::Done(reply), Err(fault)) => reply.error(errno(fault)),
        }
        let mut state = self.state();
        state.bytes -= charge;
        state.buffers.give(memory);
        if state.flights.len() == 0 || state.waits {
            self.landed.notify_all();
        }
    }
}

impl Completed for Flights {
    fn completed(&self, token: u64, outcome: Outcome) {
        self.land(token, outcome, None);
    }

    fn completed_elsewhere(&self, token: u64, bytes: Memory) {
        self.land(token, Ok(()), Some(bytes));
    }
}
