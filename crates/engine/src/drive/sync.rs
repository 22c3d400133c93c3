//! Submit and wait: for labels at assembly, for tools and for tests. Not for the data path.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use block::{BlockDevice, Completed, Fault, Memory, Outcome, Request, RequestKind};

use crate::ring;

/// How long a device may take for one request. A device that needs longer counts as gone: the
/// kernel's own command timeout is 30 s for disks, and assembly must not hang on a dead one.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// How a request ended; with its bytes, if they are not in its own memory.
type End = Result<Option<Memory>, Fault>;

#[derive(Default)]
struct Waiter {
    end: Mutex<Option<End>>,
    done: Condvar,
}

impl Waiter {
    fn ended(&self, end: End) {
        *self.end.lock().unwrap_or_else(PoisonError::into_inner) = Some(end);
        self.done.notify_all();
    }
}

impl Completed for Waiter {
    fn completed(&self, _token: u64, outcome: Outcome) {
        self.ended(outcome.map(|()| None));
    }

    fn completed_elsewhere(&self, _token: u64, bytes: Memory) {
        self.ended(Ok(Some(bytes)));
    }
}

/// Submits `request` and waits for its end; [`Fault::Gone`] after a minute without one.
fn wait_for(device: &dyn BlockDevice, request: Request, memory: Memory) -> End {
    let waiter = Arc::new(Waiter::default());
    let to: Arc<dyn Completed> = Arc::clone(&waiter) as _;
    ring::elsewhere(|| device.submit(request, memory, 0, &to));
    let guard = waiter.end.lock().unwrap_or_else(PoisonError::into_inner);
    let (mut end, _) = waiter
        .done
        .wait_timeout_while(guard, WAIT_MAX, |end| end.is_none())
        .unwrap_or_else(PoisonError::into_inner);
    end.take().unwrap_or(Err(Fault::Gone))
}

/// Submits `request` and waits for its outcome; [`Fault::Gone`] after a minute without one. For reads of volumes use
/// [`read`]: if a drive is late, a volume returns the bytes in a bounce buffer and not in `memory`, which is
/// [`Fault::Medium`] here.
pub fn run(device: &dyn BlockDevice, request: Request, memory: Memory) -> Outcome {
    match wait_for(device, request, memory)? {
        None => Ok(()),
        Some(_elsewhere) => Err(Fault::Medium),
    }
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
        match wait_for(device, request, memory.slice(0..piece))? {
            // A completed request's device holds no clone, so the memory is ours alone again.
            None => bytes.extend_from_slice(memory.unique().ok_or(Fault::Gone)?),
            Some(mut elsewhere) => {
                bytes.extend_from_slice(elsewhere.unique().ok_or(Fault::Gone)?);
            }
        }
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

/// Frees the range; it reads as zeros afterwards.
pub fn trim(device: &dyn BlockDevice, offset: u64, length: u64) -> Outcome {
    run(
        device,
        request(RequestKind::Trim, offset, length),
        Memory::empty(),
    )
}

/// Frees the range; it may read as anything afterwards.
pub fn discard(device: &dyn BlockDevice, offset: u64, length: u64) -> Outcome {
    run(
        device,
        request(RequestKind::Discard, offset, length),
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

#[cfg(test)]
mod tests {
    use block::Limits;

    use super::*;

    /// Returns the bytes of every read in other memory, as volumes do when a drive does not answer, and keeps the
    /// memory that came with the read.
    #[derive(Default)]
    struct Elsewhere(Mutex<Vec<Memory>>);

    impl BlockDevice for Elsewhere {
        fn limits(&self) -> Limits {
            Limits {
                size_bytes: 1 << 20,
                block_bytes_min: 1,
                block_bytes_preferred: 4096,
                request_bytes_max: 4096,
                trims: false,
            }
        }

        fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
            let bytes = vec![u8::try_from(request.offset >> 12).unwrap(); memory.len()];
            self.0.lock().unwrap().push(memory);
            let to = Arc::clone(to);
            std::thread::spawn(move || to.completed_elsewhere(token, Memory::from_bytes(&bytes)));
        }
    }

    #[test]
    fn bytes_that_are_not_in_the_reads_own_memory_are_read() {
        let device = Elsewhere::default();
        let bytes = read(&device, 4096, 3 * 4096).unwrap();
        assert!(bytes.chunks(4096).eq([[1; 4096], [2; 4096], [3; 4096]]));
    }
}
