//! Devices for tests and the benchmark: bytes in memory, completed by a thread of their own, at
//! once or in random order after random delays.

#![expect(
    unsafe_code,
    reason = "a device fills memory that its submitter still holds"
)]
#![allow(
    dead_code,
    unreachable_pub,
    clippy::allow_attributes,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "each test uses another part; sizes here are small; tests say what they skip"
)]

pub mod descriptors;
pub mod tunnel;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use block::{
    BlockDevice, Completed, Extent, Fault, Limits, Memory, Outcome, Request, RequestKind,
    SplitMix64,
};
use export::nbd::{Exports, Listen, Options, Place, Server, Uri};
use testing::Directory;

/// The granularity of the device's holes.
pub const PAGE: u64 = 4096;

/// When requests complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As fast as the thread can, in order.
    Fast,
    /// In random order, each after up to so many microseconds.
    Shuffled { seed: u64, delay_us_max: u64 },
}

struct Job {
    request: Request,
    memory: Memory,
    token: u64,
    to: Arc<dyn Completed>,
}

/// A device in memory.
pub struct MemoryDevice {
    shared: Arc<State>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

struct State {
    jobs: Mutex<Vec<Job>>,
    arrived: Condvar,
    end: AtomicBool,
    /// While set, no request completes.
    held: AtomicBool,
    pace: Pace,
    limits: Mutex<Limits>,
    bytes: Mutex<Vec<u8>>,
    /// For each page: written at least once, and not trimmed since.
    written: Mutex<Vec<bool>>,
    /// Whether a completed write is not covered by a flush or FUA.
    unflushed: AtomicBool,
    fault: Mutex<Option<(Range<u64>, Fault)>>,
    flushes: AtomicU64,
    requests: AtomicU64,
    /// Bytes of request memory that the device holds now, and the maximum so far.
    held_bytes: AtomicUsize,
    held_bytes_max: AtomicUsize,
}

pub fn limits(size_bytes: u64) -> Limits {
    Limits {
        size_bytes,
        block_bytes_min: 1,
        block_bytes_preferred: 4096,
        request_bytes_max: 1 << 20,
        trims: true,
    }
}

impl MemoryDevice {
    pub fn new(limits: Limits, pace: Pace) -> Arc<Self> {
        let size = usize::try_from(limits.size_bytes).unwrap();
        let shared = Arc::new(State {
            jobs: Mutex::default(),
            arrived: Condvar::new(),
            end: AtomicBool::new(false),
            held: AtomicBool::new(false),
            pace,
            limits: Mutex::new(limits),
            bytes: Mutex::new(vec![0; size]),
            written: Mutex::new(vec![false; size.div_ceil(PAGE as usize)]),
            unflushed: AtomicBool::new(false),
            fault: Mutex::default(),
            flushes: AtomicU64::new(0),
            requests: AtomicU64::new(0),
            held_bytes: AtomicUsize::new(0),
            held_bytes_max: AtomicUsize::new(0),
        });
        let state = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("memory-device".to_owned())
            .spawn(move || state.run())
            .unwrap();
        Arc::new(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// The current content.
    pub fn bytes(&self) -> Vec<u8> {
        self.shared.bytes.lock().unwrap().clone()
    }

    pub fn fill(&self, bytes: &[u8]) {
        self.shared.bytes.lock().unwrap()[..bytes.len()].copy_from_slice(bytes);
    }

    /// Requests that touch the range end with this fault.
    pub fn set_fault(&self, fault: Option<(Range<u64>, Fault)>) {
        *self.shared.fault.lock().unwrap() = fault;
    }

    /// No request completes until the returned value is dropped. A test that panics drops it too: otherwise the files
    /// that it closes would wait for a flush that never ends.
    pub fn hold(&self) -> Held {
        self.shared.set_held(true);
        Held(Arc::clone(&self.shared))
    }

    pub fn resize(&self, size_bytes: u64) {
        let size = usize::try_from(size_bytes).unwrap();
        self.shared.bytes.lock().unwrap().resize(size, 0);
        self.shared
            .written
            .lock()
            .unwrap()
            .resize(size.div_ceil(PAGE as usize), false);
        self.shared.limits.lock().unwrap().size_bytes = size_bytes;
    }

    pub fn unflushed(&self) -> bool {
        self.shared.unflushed.load(Ordering::SeqCst)
    }

    pub fn flushes(&self) -> u64 {
        self.shared.flushes.load(Ordering::SeqCst)
    }

    /// Requests submitted so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::SeqCst)
    }

    /// Requests submitted and not completed.
    pub fn waiting(&self) -> usize {
        self.shared.jobs.lock().unwrap().len()
    }

    /// Whether a read at each of these offsets, in bytes, is submitted and not completed.
    pub fn has_reads_waiting(&self, offsets: &[u64]) -> bool {
        let jobs = self.shared.jobs.lock().unwrap();
        offsets.iter().all(|&offset| {
            jobs.iter()
                .any(|job| job.request.kind == RequestKind::Read && job.request.offset == offset)
        })
    }

    /// The maximum of request memory that was with the device at one time, in bytes.
    pub fn held_bytes_max(&self) -> usize {
        self.shared.held_bytes_max.load(Ordering::SeqCst)
    }
}

/// Keeps the requests of a device from completing.
pub struct Held(Arc<State>);

impl Drop for Held {
    fn drop(&mut self) {
        self.0.set_held(false);
    }
}

impl Drop for MemoryDevice {
    fn drop(&mut self) {
        {
            let _jobs = self.shared.jobs.lock().unwrap();
            self.shared.end.store(true, Ordering::SeqCst);
            self.shared.arrived.notify_all();
        }
        if let Some(thread) = self.thread.lock().unwrap().take() {
            let _ = thread.join();
        }
    }
}

impl BlockDevice for MemoryDevice {
    fn limits(&self) -> Limits {
        *self.shared.limits.lock().unwrap()
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let state = &self.shared;
        let held = state.held_bytes.fetch_add(memory.len(), Ordering::SeqCst) + memory.len();
        state.held_bytes_max.fetch_max(held, Ordering::SeqCst);
        state.requests.fetch_add(1, Ordering::SeqCst);
        let mut jobs = state.jobs.lock().unwrap();
        let first = jobs.is_empty();
        let to = Arc::clone(to);
        jobs.push(Job {
            request,
            memory,
            token,
            to,
        });
        if first {
            state.arrived.notify_one();
        }
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let written = self.shared.written.lock().unwrap();
        let mut extents: Vec<Extent> = Vec::new();
        let (mut at, end) = (offset, offset + length);
        while at < end {
            let next = ((at / PAGE + 1) * PAGE).min(end);
            let hole = !written[usize::try_from(at / PAGE).unwrap()];
            match extents.last_mut() {
                Some(last) if last.hole == hole => last.length += next - at,
                _ => extents.push(Extent {
                    length: next - at,
                    hole,
                }),
            }
            at = next;
        }
        extents
    }
}

impl State {
    fn set_held(&self, held: bool) {
        let _jobs = self.jobs.lock().unwrap();
        self.held.store(held, Ordering::SeqCst);
        self.arrived.notify_all();
    }

    fn run(&self) {
        let mut random = match self.pace {
            Pace::Shuffled { seed, .. } => SplitMix64::new(seed),
            Pace::Fast => SplitMix64::new(0),
        };
        loop {
            let batch = {
                let mut jobs = self.jobs.lock().unwrap();
                while !self.end.load(Ordering::SeqCst)
                    && (jobs.is_empty() || self.held.load(Ordering::SeqCst))
                {
                    jobs = self.arrived.wait(jobs).unwrap();
                }
                if jobs.is_empty() {
                    return;
                }
                match self.pace {
                    Pace::Fast => std::mem::take(&mut *jobs),
                    Pace::Shuffled { .. } => {
                        let index = random.below(jobs.len() as u64);
                        vec![jobs.swap_remove(usize::try_from(index).unwrap())]
                    }
                }
            };
            for job in batch {
                if let Pace::Shuffled { delay_us_max, .. } = self.pace {
                    let delay = random.below(delay_us_max + 1);
                    if delay > 0 && random.below(8) == 0 {
                        std::thread::sleep(Duration::from_micros(delay));
                    }
                }
                let outcome = self.serve(job.request, &job.memory);
                self.held_bytes
                    .fetch_sub(job.memory.len(), Ordering::SeqCst);
                // Drop all clones of the memory before the completion.
                drop(job.memory);
                job.to.completed(job.token, outcome);
            }
        }
    }

    fn serve(&self, request: Request, memory: &Memory) -> Outcome {
        if request.kind == RequestKind::Flush {
            self.flushes.fetch_add(1, Ordering::SeqCst);
            self.unflushed.store(false, Ordering::SeqCst);
            return Ok(());
        }
        let range = request.offset..request.offset + request.length;
        if let Some((bad, fault)) = &*self.fault.lock().unwrap()
            && bad.start < range.end
            && range.start < bad.end
        {
            return Err(*fault);
        }
        let limits = *self.limits.lock().unwrap();
        let transfers = matches!(request.kind, RequestKind::Read | RequestKind::Write);
        if range.end > limits.size_bytes
            || !(range.start | request.length).is_multiple_of(u64::from(limits.block_bytes_min))
            || (transfers && request.length > u64::from(limits.request_bytes_max))
        {
            return Err(Fault::Invalid);
        }
        let mut stored = self.bytes.lock().unwrap();
        let place = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        match request.kind {
            RequestKind::Read => {
                // SAFETY: the submitter gives each request a range of its own and does not touch
                // the range until the completion.
                unsafe { memory.bytes_mut() }.copy_from_slice(&stored[place]);
                return Ok(());
            }
            RequestKind::Write => {
                // SAFETY: as above.
                stored[place].copy_from_slice(unsafe { memory.bytes() });
            }
            RequestKind::Trim | RequestKind::WriteZeroes => stored[place].fill(0),
            // What a discarded range reads as is undefined.
            RequestKind::Flush | RequestKind::Discard => {}
        }
        drop(stored);
        self.mark_pages(request);
        if !request.fua {
            self.unflushed.store(true, Ordering::SeqCst);
        }
        Ok(())
    }

    fn mark_pages(&self, request: Request) {
        let mut written = self.written.lock().unwrap();
        let end = request.offset + request.length;
        let (first, last) = match request.kind {
            // Only whole pages become holes.
            RequestKind::Trim => (request.offset.div_ceil(PAGE), end / PAGE),
            _ => (request.offset / PAGE, end.div_ceil(PAGE)),
        };
        for page in first..last {
            written[usize::try_from(page).unwrap()] = request.kind != RequestKind::Trim;
        }
    }
}

/// Exports by name.
#[derive(Default)]
pub struct Table(pub Mutex<BTreeMap<String, Arc<dyn BlockDevice>>>);

impl Table {
    pub fn of(devices: &[(&str, Arc<MemoryDevice>)]) -> Arc<Self> {
        let table = Self::default();
        for (name, device) in devices {
            table
                .0
                .lock()
                .unwrap()
                .insert((*name).to_owned(), Arc::clone(device) as _);
        }
        Arc::new(table)
    }
}

impl Exports for Table {
    fn list(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>> {
        self.0.lock().unwrap().get(name).cloned()
    }
}

/// A server on a Unix socket in a directory of its own.
pub struct Fixture {
    pub server: Option<Server>,
    pub socket: PathBuf,
    pub dir: Directory,
}

impl Fixture {
    pub fn serve(exports: Arc<dyn Exports>, options: &Options) -> Self {
        Self::serve_in(Directory::new(), exports, options)
    }

    /// Uses a directory that already holds the server's files.
    pub fn serve_in(dir: Directory, exports: Arc<dyn Exports>, options: &Options) -> Self {
        let socket = dir.join("nbd.sock");
        let server = Server::bind(&Listen::Unix(socket.clone()), exports, options).unwrap();
        Self {
            server: Some(server),
            socket,
            dir,
        }
    }

    /// Serves one device as `tank/data`.
    pub fn of(device: &Arc<MemoryDevice>) -> Self {
        Self::serve(
            Table::of(&[("tank/data", Arc::clone(device))]),
            &Options::default(),
        )
    }

    pub fn uri(&self, name: &str) -> Uri {
        uri(&self.socket, name)
    }
}

pub fn uri(socket: &Path, name: &str) -> Uri {
    Uri {
        place: Place::Unix(socket.to_owned()),
        name: name.to_owned(),
        tls: false,
    }
}

/// Whether a program can be run; otherwise reports that it is missing.
pub fn installed(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        println!("skipped: {tool} is not installed");
    }
    found
}

/// Runs a program that must succeed, and returns its standard output.
#[track_caller]
pub fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {arguments:?}: {}\n{stdout}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}
