//! The process's ring threads: io_uring for threads that have no ring of their own.

use std::io;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::thread;
use std::time::Duration;

use super::core::Ring;
use super::target::Submission;
use super::waker::Waker;

/// Requests that one ring thread has in the kernel at once.
const DEPTH: u32 = 256;
/// More ring threads than this only make the batches smaller. A guess: these machines have two
/// cores.
const THREADS_MAX: usize = 4;

struct RingThread {
    queue: Mutex<Vec<Submission>>,
    waker: Arc<Waker>,
}

static THREADS: OnceLock<Vec<Arc<RingThread>>> = OnceLock::new();

/// Starts the ring threads if they do not run yet. They stay: an idle one sleeps in the kernel.
pub(crate) fn start() -> io::Result<()> {
    static STARTING: Mutex<()> = Mutex::new(());
    let _guard = STARTING.lock().unwrap_or_else(PoisonError::into_inner);
    if THREADS.get().is_some() {
        return Ok(());
    }
    let count = thread::available_parallelism().map_or(1, usize::from);
    let threads: io::Result<Vec<_>> = (0..count.min(THREADS_MAX)).map(start_one).collect();
    let threads = threads?;
    THREADS.get_or_init(|| threads);
    Ok(())
}

fn start_one(index: usize) -> io::Result<Arc<RingThread>> {
    let (sender, receiver) = mpsc::channel();
    let builder = thread::Builder::new().name(format!("drive-ring-{index}"));
    builder.spawn(move || {
        // The ring is made by the thread that uses it: the kernel allows no other.
        let ring = match Ring::new(DEPTH) {
            Ok(ring) => ring,
            Err(error) => {
                let _ = sender.send(Err(error));
                return;
            }
        };
        let thread = Arc::new(RingThread {
            queue: Mutex::new(Vec::new()),
            waker: ring.waker(),
        });
        if sender.send(Ok(Arc::clone(&thread))).is_ok() {
            thread.run(ring);
        }
    })?;
    receiver.recv().map_err(io::Error::other)?
}

impl RingThread {
    fn run(&self, mut ring: Ring) {
        let mut batch = Vec::new();
        loop {
            std::mem::swap(&mut batch, &mut *self.lock());
            for submission in batch.drain(..) {
                ring.push(submission);
            }
            let pending = || !self.lock().is_empty();
            if let Err(error) = ring.turn(None, pending) {
                // The requests in the kernel keep their memory, so the thread must go on.
                tracing::error!("io_uring_enter failed: {error}");
                thread::sleep(Duration::from_millis(100));
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Submission>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Queues a submission for the ring thread of its drive; drives are assigned to the threads in
/// turn.
///
/// # Panics
/// When no ring thread runs: opening a drive for io_uring starts the threads first.
pub(super) fn submit(submission: Submission) {
    let threads = THREADS
        .get()
        .expect("ring threads run before drives use them");
    let thread = &threads[submission.target.id() % threads.len()];
    thread.lock().push(submission);
    thread.waker.wake();
}
