//! Submit and wait: for labels at assembly, for tools and for tests. Not for the data path.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use block::{BlockDevice, Completed, Fault, Memory, Outcome, Request, RequestKind};

use crate::ring;

/// How long a device may take for one request. A device that needs longer counts as gone: the
/// kernel's own command timeout is 30 s for disks, and assembly must not hang on a dead one.
const WAIT_MAX: Duration = Duration::from_secs(60);

#[derive(Default)]
struct Waiter {
    outcome: Mutex<Option<Outcome>>,
    done: Condvar,
}

impl Completed for Waiter {
    fn completed(&self, _token: u64, outcome: Outcome) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
        self.done.notify_all();
    }
}

/// Submits `request` and waits for its outcome; [`Fault::Gone`] after a minute without one.
pub fn run(device: &dyn BlockDevice, request: Request, memory: Memory) -> Outcome {
    let waiter = Arc::new(Waiter::default());
    let to: Arc<dyn Completed> = Arc::clone(&waiter) as _;
    ring::elsewhere(|| device.submit(request, memory, 0, &to));
    let guard = waiter
        .outcome
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let (outcome, _) = waiter
        .done
        .wait_timeout_while(guard, WAIT_MAX, |outcome| outcome.is_none())
        .unwrap_or_else(PoisonError::into_inner);
    outcome.unwrap_or(Err(Fault::Gone))
}

/// Calls `each(start, length)` for pieces no longer than the device takes in one request.
fn pieces(
    device: &dyn BlockDevice,
    length: usize,
    mut each: impl FnMut(usize, usize) -> Outcome,
) -> Outcome {
    let longest = device.limits().request_bytes_max as usize;
    let mut start = 0;
    while start < length {
        let piece = longest.min(length - start);
        each(start, piece)?;
        start += piece;
    }
    Ok(())
}

fn request(kind: RequestKind, offset: u64, length: u64) -> Request {
    Request {
        kind,
        offset,
        length,
        fua: false,
    }
}

/// Reads `length` bytes at `offset`.
pub fn read(device: &dyn BlockDevice, offset: u64, length: usize) -> Result<Vec<u8>, Fault> {
    let mut bytes = Vec::with_capacity(length);
    pieces(device, length, |start, piece| {
        let mut memory = Memory::zeroed(piece);
        let request = request(RequestKind::Read, offset + start as u64, piece as u64);
        run(device, request, memory.slice(0..piece))?;
        // A completed request's device holds no clone, so the memory is ours alone again.
        bytes.extend_from_slice(memory.unique().ok_or(Fault::Gone)?);
        Ok(())
    })?;
    Ok(bytes)
}

/// Writes `bytes` at `offset`. Not durable before a [`flush`].
pub fn write(device: &dyn BlockDevice, offset: u64, bytes: &[u8]) -> Outcome {
    pieces(device, bytes.len(), |start, piece| {
        let memory = Memory::from_bytes(&bytes[start..start + piece]);
        let request = request(RequestKind::Write, offset + start as u64, piece as u64);
        run(device, request, memory)
    })
}

/// Makes everything that was written before durable.
pub fn flush(device: &dyn BlockDevice) -> Outcome {
    run(device, request(RequestKind::Flush, 0, 0), Memory::empty())
}

/// Gives up the range; it reads as zeros afterwards.
pub fn trim(device: &dyn BlockDevice, offset: u64, length: u64) -> Outcome {
    run(
        device,
        request(RequestKind::Trim, offset, length),
        Memory::empty(),
    )
}

/// Makes the range read as zeros.
pub fn write_zeroes(device: &dyn BlockDevice, offset: u64, length: u64) -> Outcome {
    run(
        device,
        request(RequestKind::WriteZeroes, offset, length),
        Memory::empty(),
    )
}
