//! A file or block device: threads that each carry out one request at a time, past the page cache.
//!
//! A burst has at most some hundreds of requests, and drives answer in hundreds of microseconds and more. The time to
//! wake a thread is small in comparison, and blocking calls work on every file that can be opened.

use std::fs::{File, Metadata, OpenOptions};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use rustix::fs::{Advice, OFlags};
use shear::{Kind, Probe, Request, Sample};

use super::super::common::Failure;
use super::target::{Target, refused};

/// Threads at most: the number of requests of the deepest burst of reads.
const THREADS_MAX: usize = 256;
/// Alignment of the memory of requests, as `O_DIRECT` requires, in bytes.
const ALIGN: usize = 4096;

/// One request for a thread.
struct Job {
    index: usize,
    request: Request,
    /// What is written back; of the request's length.
    buffer: Aligned,
}

/// How a request went: its index, when it ended, what went wrong.
type Answer = (usize, Instant, Result<(), String>);

/// Bytes that begin at a multiple of [`ALIGN`].
struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    fn new(length: usize) -> Self {
        let bytes = vec![0; length + ALIGN];
        let from = bytes.as_ptr().align_offset(ALIGN);
        Self {
            bytes,
            from,
            length,
        }
    }

    fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}

/// A file or device that is open.
pub(super) struct FileTarget {
    file: Arc<File>,
    size_bytes: u64,
    jobs: Option<Sender<Job>>,
    queue: Arc<Mutex<Receiver<Job>>>,
    answers: (Sender<Answer>, Receiver<Answer>),
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl FileTarget {
    pub(super) fn open(path: &Path, writes: bool) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let metadata = path
            .metadata()
            .map_err(|error| refused(&name, error.to_string(), "check the path"))?;
        let kind = metadata.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(refused(
                &name,
                "it is no file and no block device: it cannot be read at any place",
                "give a file, a block device, an NBD URI, or sim:SCHEME",
            ));
        }
        // The kernel opens a read-only device for writing, and then refuses the writes.
        if writes && kind.is_block_device() && is_read_only(&metadata) {
            return Err(refused_read_only(&name));
        }
        let open = |direct: bool| {
            let mut flags = OFlags::NOCTTY;
            if direct {
                flags |= OFlags::DIRECT;
            }
            // The exclusive claim that mounts, md and LVM take, too.
            if writes && kind.is_block_device() {
                flags |= OFlags::EXCL;
            }
            OpenOptions::new()
                .read(true)
                .write(writes)
                .custom_flags(flags.bits().cast_signed())
                .open(path)
        };
        // A file system without direct I/O refuses the flag. Then each burst drops its ranges from the page cache.
        let file = open(true)
            .or_else(|error| match error.raw_os_error() {
                Some(22) => open(false),
                _ => Err(error),
            })
            .map_err(|error| match error.raw_os_error() {
                Some(16) => refused(
                    &name,
                    "it is mounted or in use",
                    "measure it without --writes, or unmount it first",
                ),
                Some(30) => refused_read_only(&name),
                _ => refused(&name, error.to_string(), "check who may read it"),
            })?;
        let size_bytes = match metadata.is_file() {
            true => metadata.len(),
            false => {
                use std::io::{Seek, SeekFrom};
                (&file).seek(SeekFrom::End(0)).unwrap_or(0)
            }
        };
        let target = Self {
            file: Arc::new(file),
            size_bytes,
            jobs: None,
            queue: Arc::new(Mutex::new(channel().1)),
            answers: channel(),
            threads: Vec::new(),
        };
        target.look(&name)?;
        Ok(target)
    }

    /// Refuses files that are not a volume.
    fn look(&self, name: &str) -> Result<(), Failure> {
        if self.size_bytes < 64 << 20 {
            return Err(refused(
                name,
                format!(
                    "it has {} bytes, and at least 64 MiB are needed",
                    self.size_bytes
                ),
                "give a larger volume",
            ));
        }
        let mut head = Aligned::new(2 * ALIGN);
        self.file
            .read_exact_at(head.slice(), 0)
            .map_err(|error| refused(name, error.to_string(), "check that it can be read"))?;
        let at = engine::drive::RAVELIN_MAGIC_OFFSET;
        if head.slice()[at..].starts_with(&engine::drive::RAVELIN_MAGIC) {
            return Err(refused(
                name,
                "it is a drive of a Ravelin pool",
                "attach a volume of the pool and measure that",
            ));
        }
        Ok(())
    }

    /// Starts as many threads as the burst has requests.
    fn staff(&mut self, wanted: usize) {
        if self.jobs.is_none() {
            let (sender, receiver) = channel();
            self.jobs = Some(sender);
            self.queue = Arc::new(Mutex::new(receiver));
        }
        while self.threads.len() < wanted.min(THREADS_MAX) {
            let queue = Arc::clone(&self.queue);
            let file = Arc::clone(&self.file);
            let answers = self.answers.0.clone();
            self.threads.push(std::thread::spawn(move || {
                loop {
                    let job = queue.lock().map(|queue| queue.recv());
                    let Ok(Ok(mut job)) = job else { return };
                    let Request { offset, .. } = job.request;
                    let outcome = match job.request.kind {
                        Kind::Read => file.read_exact_at(job.buffer.slice(), offset),
                        Kind::Rewrite => file.write_all_at(job.buffer.slice(), offset),
                    };
                    let ended = Instant::now();
                    let outcome = outcome.map_err(|error| error.to_string());
                    if answers.send((job.index, ended, outcome)).is_err() {
                        return;
                    }
                }
            }));
        }
    }
}

fn refused_read_only(name: &str) -> Failure {
    refused(name, "it is read-only", "measure it without --writes")
}

/// Whether the kernel refuses writes to a block device.
fn is_read_only(device: &Metadata) -> bool {
    let (major, minor) = (
        rustix::fs::major(device.rdev()),
        rustix::fs::minor(device.rdev()),
    );
    let flag = format!("/sys/dev/block/{major}:{minor}/ro");
    std::fs::read_to_string(flag).is_ok_and(|flag| flag.trim() == "1")
}

impl Drop for FileTarget {
    fn drop(&mut self) {
        self.jobs = None;
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Target for FileTarget {
    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn burst(&mut self, probe: &Probe) -> Result<Sample, String> {
        self.staff(probe.requests.len());
        let mut jobs = Vec::with_capacity(probe.requests.len());
        for (index, request) in probe.requests.iter().enumerate() {
            let length = usize::try_from(request.length).map_err(|error| error.to_string())?;
            let mut buffer = Aligned::new(length);
            if request.kind == Kind::Rewrite {
                let read = self.file.read_exact_at(buffer.slice(), request.offset);
                read.map_err(|error| error.to_string())?;
            }
            // Without direct I/O, cached bytes must be dropped before the read; with direct I/O this does nothing.
            let length = std::num::NonZeroU64::new(request.length);
            let _ = rustix::fs::fadvise(&self.file, request.offset, length, Advice::DontNeed);
            jobs.push(Job {
                index,
                request: *request,
                buffer,
            });
        }
        let count = jobs.len();
        let sender = self.jobs.as_ref().ok_or("no threads")?;
        let start = Instant::now();
        for job in jobs {
            sender.send(job).map_err(|error| error.to_string())?;
        }
        let mut nanoseconds = vec![0; count];
        let mut wrong = None;
        for _ in 0..count {
            let (index, ended, outcome) =
                self.answers.1.recv().map_err(|error| error.to_string())?;
            if let Err(why) = outcome {
                wrong.get_or_insert(why);
            }
            let time = ended.saturating_duration_since(start).as_nanos();
            nanoseconds[index] = u64::try_from(time).unwrap_or(u64::MAX);
        }
        match wrong {
            Some(why) => Err(why),
            None => Ok(Sample { nanoseconds }),
        }
    }
}
