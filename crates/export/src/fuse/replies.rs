//! Sends replies to the kernel, many in one system call.
//!
//! A reply completes the kernel's request at once, and wakes the process that waits for it. A reply sent alone gives
//! up the CPU each time. Requests that the device completes together are therefore answered through an io_uring of
//! the thread's own: its single system call gives up the CPU once. The kernel carries out these writes before the
//! call returns. Where it does not (older kernels hand them to a thread), or without io_uring, one write after the
//! other costs less.

#![expect(
    unsafe_code,
    reason = "submission entries carry raw addresses; they are reaped before anything is freed"
)]

use std::cell::RefCell;
use std::io::IoSlice;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use block::Memory;
use io_uring::types::Fd;
use io_uring::{IoUring, opcode};

use super::wire::{REPLY_HEAD_BYTES, reply_head, written};

/// Maximum number of replies in one system call.
const TOGETHER_MAX: usize = 64;

/// What follows a reply's head.
pub(super) enum Body {
    Nothing,
    /// The number of bytes written.
    Written(u32),
    /// A buffer without other references, and how many of its bytes to send.
    Data(Memory, usize),
}

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    /// The kernel's number of the request.
    pub(super) unique: u64,
    /// Its message's slot, if the file has an inbox.
    pub(super) slot: Option<u32>,
}

/// A reply to a request.
pub(super) struct Reply {
    ticket: Ticket,
    /// Bytes, or a negative error number; `None` if the reply has data, which only the device knows.
    outcome: Option<i32>,
    head: [u8; REPLY_HEAD_BYTES + 8],
    head_bytes: usize,
    body: Option<(Memory, usize)>,
}

impl Reply {
    pub(super) fn new(ticket: Ticket, answer: Result<Body, i32>) -> Self {
        let outcome = match &answer {
            Ok(Body::Data(..)) => None,
            Ok(Body::Nothing) => Some(0),
            Ok(Body::Written(length)) => Some(length.cast_signed()),
            Err(errno) => Some(-errno),
        };
        let unique = ticket.unique;
        let (errno, body) = match answer {
            Ok(body) => (0, body),
            Err(errno) => (errno, Body::Nothing),
        };
        let mut head = [0; REPLY_HEAD_BYTES + 8];
        let (more, head_bytes) = match &body {
            Body::Nothing => (0, REPLY_HEAD_BYTES),
            Body::Written(length) => {
                head[REPLY_HEAD_BYTES..].copy_from_slice(&written(*length));
                (8, REPLY_HEAD_BYTES + 8)
            }
            Body::Data(_, length) => (*length, REPLY_HEAD_BYTES),
        };
        head[..REPLY_HEAD_BYTES].copy_from_slice(&reply_head(unique, errno, more));
        let body = match body {
            Body::Data(memory, length) => Some((memory, length)),
            Body::Nothing | Body::Written(_) => None,
        };
        Self {
            ticket,
            outcome,
            head,
            head_bytes,
            body,
        }
    }

    /// The slot of its request, and the outcome if it has no data.
    pub(super) fn slot(&self) -> Option<(u32, Option<i32>)> {
        Some((self.ticket.slot?, self.outcome))
    }

    /// The buffer of its data.
    pub(super) fn into_memory(self) -> Option<Memory> {
        self.body.map(|(memory, _)| memory)
    }

    /// Its parts in memory, one or two, and their number.
    fn parts(&self) -> ([libc::iovec; 2], u32) {
        let part = |start: *const u8, length| libc::iovec {
            iov_base: start.cast_mut().cast(),
            iov_len: length,
        };
        let head = part(self.head.as_ptr(), self.head_bytes);
        match &self.body {
            Some((memory, length)) => ([head, part(memory.as_ptr(), *length)], 2),
            None => ([head, part(std::ptr::null(), 0)], 1),
        }
    }

    fn send(&mut self, device: BorrowedFd<'_>) {
        let head = IoSlice::new(&self.head[..self.head_bytes]);
        let sent = match &mut self.body {
            None => rustix::io::writev(device, &[head]),
            Some((memory, length)) => match memory.unique() {
                Some(bytes) => rustix::io::writev(device, &[head, IoSlice::new(&bytes[..*length])]),
                None => Err(rustix::io::Errno::FAULT),
            },
        };
        if let Err(error) = sent {
            report(error.raw_os_error());
        }
    }
}

/// Logs a reply that the kernel refused. Usually the request was aborted, or the file is unmounted.
fn report(errno: i32) {
    let error = std::io::Error::from_raw_os_error(errno);
    tracing::debug!("a FUSE reply was not taken: {error}");
}

/// How a thread sends several replies.
enum Way {
    Unknown,
    Together(Box<IoUring>),
    OneByOne,
}

thread_local! {
    static WAY: RefCell<Way> = const { RefCell::new(Way::Unknown) };
}

/// Sends all of `replies`. The kernel refuses a reply if it no longer needs it; that is only logged.
pub(super) fn send(device: BorrowedFd<'_>, replies: &mut [Reply]) {
    if let [one] = replies {
        return one.send(device);
    }
    WAY.with_borrow_mut(|way| {
        if matches!(way, Way::Unknown) {
            let entries = u32::try_from(TOGETHER_MAX).unwrap_or(1);
            *way = match IoUring::new(entries) {
                Ok(ring) => Way::Together(Box::new(ring)),
                Err(_) => Way::OneByOne,
            };
        }
        for some in replies.chunks_mut(TOGETHER_MAX) {
            match way {
                Way::Together(ring) => {
                    if !send_together(ring, device, some) {
                        *way = Way::OneByOne;
                    }
                }
                Way::OneByOne | Way::Unknown => {
                    some.iter_mut().for_each(|reply| reply.send(device));
                }
            }
        }
    });
}

/// Sends replies, at most as many as the ring has entries. True if the kernel completed all writes before the first
/// call returned.
fn send_together(ring: &mut IoUring, device: BorrowedFd<'_>, replies: &[Reply]) -> bool {
    let parts: Vec<([libc::iovec; 2], u32)> = replies.iter().map(Reply::parts).collect();
    let file = Fd(device.as_fd().as_raw_fd());
    for (vectors, count) in &parts {
        let entry = match count {
            1 => {
                let length = u32::try_from(vectors[0].iov_len).unwrap_or(0);
                opcode::Write::new(file, vectors[0].iov_base.cast(), length).build()
            }
            _ => opcode::Writev::new(file, vectors.as_ptr(), *count).build(),
        };
        // SAFETY: `parts`, `replies` and `device` are borrowed for longer than this function, which
        // does not return before each entry has been reaped.
        let pushed = unsafe { ring.submission().push(&entry) };
        assert!(pushed.is_ok(), "there is an entry for each of a chunk");
    }
    let mut at_once = true;
    let mut left = parts.len();
    let mut wanted = 0;
    while left > 0 {
        if let Err(error) = ring.submit_and_wait(wanted) {
            // Interrupted, or out of memory for a moment. Entries may be in flight: free nothing and try again.
            tracing::trace!("io_uring_enter: {error}");
            std::thread::yield_now();
        }
        for entry in ring.completion() {
            left -= 1;
            if entry.result() < 0 {
                report(-entry.result());
            }
        }
        at_once &= left == 0;
        wanted = left;
    }
    at_once
}
