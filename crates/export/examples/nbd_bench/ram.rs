//! Two kinds of memory as the back end of the server under test.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};

use block::{
    BlockDevice, Completed, Fault, Limits, Memory, Outcome, Request, RequestKind, Submission,
};
use testing::thread_cpu_time;

pub(crate) const SIZE: u64 = 256 << 20;
const LIMITS: Limits = Limits {
    size_bytes: SIZE,
    block_bytes_min: 1,
    block_bytes_preferred: 4096,
    request_bytes_max: 32 << 20,
    trims: true,
};

/// Memory behind a thread, like a lane of the engine: requests arrive in batches.
pub(crate) struct Threaded {
    jobs: Arc<(Mutex<Vec<Job>>, Condvar)>,
}

struct Job {
    what: Submission,
    to: Arc<dyn Completed>,
}

impl Threaded {
    pub(crate) fn new() -> Self {
        let jobs: Arc<(Mutex<Vec<Job>>, Condvar)> = Arc::default();
        let theirs = Arc::clone(&jobs);
        std::thread::Builder::new()
            .name("back-end".to_owned())
            .spawn(move || back_end(&theirs))
            .expect("a thread");
        Self { jobs }
    }
}

fn back_end((jobs, arrived): &(Mutex<Vec<Job>>, Condvar)) {
    let mut bytes = vec![0x5a_u8; SIZE as usize];
    let mut batch = Vec::new();
    let mut outcomes = Vec::new();
    loop {
        {
            let mut waiting = jobs.lock().expect("no panics");
            while waiting.is_empty() {
                waiting = arrived.wait(waiting).expect("no panics");
            }
            std::mem::swap(&mut *waiting, &mut batch);
        }
        // Here all jobs belong to one worker.
        let to = Arc::clone(&batch[0].to);
        for Job { what, .. } in batch.drain(..) {
            outcomes.push((what.token, carry_out(&what, &mut bytes)));
        }
        to.completed_all(&outcomes);
        outcomes.clear();
    }
}

fn carry_out(
    Submission {
        request, memory, ..
    }: &Submission,
    bytes: &mut [u8],
) -> Outcome {
    let start = request.offset as usize;
    let stored = bytes
        .get_mut(start..start + request.length as usize)
        .ok_or(Fault::Invalid)?;
    match request.kind {
        // SAFETY: the submitter does not touch the memory until the completion, and each request
        // has memory of its own.
        RequestKind::Read => unsafe { memory.bytes_mut() }.copy_from_slice(stored),
        // SAFETY: as above.
        RequestKind::Write => stored.copy_from_slice(unsafe { memory.bytes() }),
        RequestKind::Trim | RequestKind::WriteZeroes => stored.fill(0),
        RequestKind::Flush | RequestKind::Discard => {}
    }
    Ok(())
}

impl BlockDevice for Threaded {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.submit_all(
            &mut vec![Submission {
                request,
                memory,
                token,
            }],
            to,
        );
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        let (jobs, arrived) = &*self.jobs;
        let mut waiting = jobs.lock().expect("no panics");
        let first = waiting.is_empty();
        waiting.extend(batch.drain(..).map(|what| Job {
            what,
            to: Arc::clone(to),
        }));
        drop(waiting);
        if first {
            arrived.notify_one();
        }
    }
}

/// CPU time in nanoseconds that [`Inline`] has used for copying so far.
pub(crate) static COPYING_NS: AtomicU64 = AtomicU64::new(0);

/// Memory that is copied in the call, as in `nbdkit memory`.
pub(crate) struct Inline {
    bytes: Mutex<Vec<u8>>,
}

impl Inline {
    pub(crate) fn new() -> Self {
        let bytes = Mutex::new(vec![0x5a; SIZE as usize]);
        Self { bytes }
    }
}

impl BlockDevice for Inline {
    fn limits(&self) -> Limits {
        LIMITS
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.submit_all(
            &mut vec![Submission {
                request,
                memory,
                token,
            }],
            to,
        );
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        let began = thread_cpu_time();
        let mut bytes = self.bytes.lock().expect("no panics");
        let outcomes: Vec<(u64, Outcome)> = batch
            .drain(..)
            .map(|what| (what.token, carry_out(&what, &mut bytes)))
            .collect();
        drop(bytes);
        COPYING_NS.fetch_add((thread_cpu_time() - began).as_nanos() as u64, Relaxed);
        to.completed_all(&outcomes);
    }
}
