//! Drives that are regular files or block devices, and names with a path.

use std::fmt;
use std::fs;
use std::io::{self, Seek as _, SeekFrom};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use block::{BlockDevice, Completed, Extent, Limits, Memory, Request, RequestKind, Usage};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use super::claim::claims;
use super::handle::{Handle, Medium, is_read_only, lock_exclusive, lock_shared};
use super::telemetry::Telemetry;
use super::ticket::Ticket;
use super::uri::{
    DriveKind, DriveSpec, NameText, Named, ParseDriveUriError, parse_word, path_text, word_of,
    write_options,
};
use super::workers::Workers;
use super::{BackEnd, Open, OpenDriveError, Opened, Opening};
use crate::ring::{self, Submission, Target};

/// Threads of a drive whose I/O sleeps: as many requests as a disk usefully reorders. Deeper queues are left to
/// io_uring.
const THREADS_SLEEPING: usize = 4;
/// Threads of a drive whose I/O a ring does, for requests that would wait in the kernel: mostly writes that allocate
/// space. As many as for a drive without a ring.
const THREADS_BESIDE_RING: usize = 4;
/// Threads of a file in memory or a zram device: its I/O is a copy or a compression, and as many run at once as these
/// machines have cores. A guess.
const THREADS_COPYING: usize = 2;
/// Requests that a thread takes at once where requests never sleep.
const BATCH_COPYING: usize = 8;
/// Up to this length a lane's thread does I/O on memory itself; longer copies are worth a second core. A guess: a
/// hand-over costs as much as copying some 16 KiB. Batches of the log under small writes are shorter than this, a
/// chunk of 64 KiB is not.
pub(super) const INLINE_BYTES_MAX: u64 = 48 << 10;

/// How long opening is tried again while the drive is in use.
const TAKEN_AT_MOST: Duration = Duration::from_millis(300);
/// How long opening is tried again while a device is claimed and no owner shows: udev reads its partition table.
/// A guess: seconds on an emulated machine. A look at a drive takes longer before it is given up.
const UDEV_AT_MOST: Duration = Duration::from_secs(8);
/// How long while another program has the device open: udev's rules run some that end soon.
const PROGRAM_AT_MOST: Duration = Duration::from_secs(2);
/// How long the search for a process may take. What processes have open cannot be read while one of them is just being
/// started and waits for a drive that hangs.
const SEARCH_AT_MOST: Duration = Duration::from_secs(1);
/// How often opening is tried meanwhile.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// What udev's processes are called, from version to version.
const UDEV: [&str; 5] = ["systemd-udevd", "(udev-worker)", "udevd", "eudev", "mdev"];

pub(super) static KIND: DriveKind = DriveKind {
    word: "file",
    names: &["/dev/sdb", "disk.img", "file:disk.img"],
    what: "a block device, or a regular file",
    options: OPTIONS,
    parse: |text| Ok(DriveSpec::new(FileName::parse(text)?)),
};

/// What a block device is in status.
const BLOCK: &str = "block";

/// The options of all kinds with a path.
pub(super) const OPTIONS: &str = "backend= and direct=; write %3F for a ? in a path";

/// Values of `backend=`.
const BACK_ENDS: [(&str, Backend); 3] = [
    ("auto", Backend::Auto),
    ("uring", Backend::Uring),
    ("threads", Backend::Threads),
];

/// A file or device, and how to do I/O on it.
#[derive(Clone, Debug)]
pub(super) struct FileName {
    path: PathBuf,
    /// `backend=`: what carries out reads, writes and flushes.
    backend: Backend,
    /// `direct=`: bypass the page cache where the file can (the default).
    direct: bool,
}

/// What carries out a file drive's reads, writes and flushes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Backend {
    /// io_uring where it works and pays, else threads.
    #[default]
    Auto,
    /// io_uring, or the drive does not open.
    Uring,
    /// `pread` and `pwrite` on a few threads.
    Threads,
}

impl FileName {
    pub(super) fn plain(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            backend: Backend::Auto,
            direct: true,
        }
    }

    pub(super) fn parse(text: &NameText<'_>) -> Result<Self, ParseDriveUriError> {
        let mut name = Self::plain(&text.path()?);
        for (key, value) in text.options() {
            match key {
                "backend" => {
                    let wanted = "auto, uring or threads";
                    name.backend = parse_word("backend", value, &BACK_ENDS, wanted)?;
                }
                "direct" => {
                    let words = [("on", true), ("off", false)];
                    name.direct = parse_word("direct", value, &words, "on or off")?;
                }
                _ => return Err(text.unknown(key)),
            }
        }
        Ok(name)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn with_path(&self, path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            ..*self
        }
    }

    /// The path and the options, without the word of a kind.
    pub(super) fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&path_text(&self.path))?;
        let backend = (self.backend != Backend::Auto).then(|| word_of(&self.backend, &BACK_ENDS));
        let direct = (!self.direct).then(|| "off".to_owned());
        write_options(f, [("backend", backend), ("direct", direct)])
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = self.path.as_os_str().as_bytes();
        if !start.starts_with(b"/") && start.contains(&b':') {
            // A relative path that could be taken for a kind of drive.
            f.write_str("file:")?;
        }
        self.write(f)
    }
}

impl Named for FileName {
    fn open(&self, opening: &Opening<'_>) -> Result<Opened, OpenDriveError> {
        let telemetry = Arc::new(Telemetry::new());
        let (drive, kind) = FileDrive::open(self, &opening.how, &telemetry)?;
        Ok(Opened {
            direct: drive.handle.is_direct(),
            back_end: drive.back_end.clone(),
            works_in_caller: drive.works_in_caller(),
            identity: Some(drive.handle.identity()),
            device: Arc::new(drive),
            kind,
            telemetry,
            faults: None,
        })
    }

    fn size_bytes(&self) -> io::Result<u64> {
        fs::File::open(&self.path)?.seek(SeekFrom::End(0))
    }

    fn path(&self) -> Option<&Path> {
        Some(&self.path)
    }

    fn with_path(&self, path: &Path) -> Option<DriveSpec> {
        Some(DriveSpec::new(self.with_path(path)))
    }
}

/// A regular file or block device.
struct FileDrive {
    /// Gets reads, writes and flushes, if there is one; the workers always get everything else.
    target: Option<Arc<Target>>,
    workers: Workers,
    handle: Arc<Handle>,
    telemetry: Arc<Telemetry>,
    back_end: BackEnd,
}

impl FileDrive {
    /// Returns the drive, and `file` or `block`.
    fn open(
        name: &FileName,
        open: &Open,
        telemetry: &Arc<Telemetry>,
    ) -> Result<(Self, &'static str), OpenDriveError> {
        let path = &*name.path;
        let fail = |doing: &'static str| {
            let path = path.to_owned();
            move |source: io::Error| OpenDriveError::Io {
                path,
                doing,
                source,
            }
        };
        let (fd, kind) = open_and_lock(path, open)?;
        let handle = Handle::new(fd, name.direct).map_err(fail("probing"))?;
        let handle = Arc::new(handle);
        let back_end = match (name.backend, choose(name.backend, &handle)) {
            (_, Ok(())) => BackEnd::Uring,
            (Backend::Uring, Err(reason)) => {
                return Err(OpenDriveError::NoUring {
                    path: path.to_owned(),
                    reason,
                });
            }
            (Backend::Auto | Backend::Threads, Err(reason)) => BackEnd::Threads { reason },
        };
        let uring = back_end == BackEnd::Uring;
        let (threads, batch, inline_bytes_max) = match handle.medium() {
            // Trims, writes of zeros, and writes that would wait in the kernel.
            _ if uring => (THREADS_BESIDE_RING, 1, 0),
            Medium::MemoryFile | Medium::MemoryBlock => {
                (THREADS_COPYING, BATCH_COPYING, INLINE_BYTES_MAX)
            }
            Medium::File | Medium::Block => (THREADS_SLEEPING, 1, 0),
        };
        let perform = Arc::clone(&handle) as _;
        let workers = Workers::start("drive-file", threads, batch, inline_bytes_max, perform)
            .map_err(fail("starting threads for"))?;
        let drive = Self {
            target: uring.then(|| Target::new(Arc::clone(&handle), Some(workers.backlog()))),
            workers,
            handle,
            telemetry: Arc::clone(telemetry),
            back_end,
        };
        Ok((drive, kind))
    }

    /// Whether a read or write is more than a copy for the lane's thread that submits it.
    fn works_in_caller(&self) -> bool {
        self.target.is_none() && self.handle.medium() == Medium::MemoryBlock
    }
}

/// Whether io_uring should do a file's reads and writes; if not, the reason.
fn choose(asked: Backend, handle: &Handle) -> Result<(), String> {
    match (asked, handle.medium()) {
        (Backend::Threads, _) => return Err("as asked for".to_owned()),
        (Backend::Auto, Medium::MemoryFile | Medium::MemoryBlock) => {
            return Err("what is in memory never waits, and costs less so".to_owned());
        }
        (Backend::Auto, _) if !handle.is_direct() => {
            return Err("buffered I/O would wait in the kernel's own threads".to_owned());
        }
        (Backend::Auto | Backend::Uring, _) => {}
    }
    ring::support().as_ref().map_err(Clone::clone)?;
    ring::start().map_err(|error| format!("the ring threads do not start: {error}"))
}

impl BlockDevice for FileDrive {
    fn limits(&self) -> Limits {
        self.handle.limits()
    }

    fn usage(&self) -> Option<Usage> {
        self.handle.usage()
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.handle.extents(offset, length)
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        let ticket = Ticket::new(&self.telemetry, &request, token, to, Instant::now());
        self.begin(request, memory, ticket);
    }

    fn submit_all(&self, batch: &mut Vec<block::Submission>, to: &Arc<dyn Completed>) {
        let begun = Instant::now();
        for block::Submission {
            request,
            memory,
            token,
        } in batch.drain(..)
        {
            let ticket = Ticket::new(&self.telemetry, &request, token, to, begun);
            self.begin(request, memory, ticket);
        }
    }
}

impl FileDrive {
    fn begin(&self, request: Request, memory: Memory, ticket: Ticket) {
        match (&self.target, request.kind) {
            // A write that cannot be asked not to wait may wait in the kernel's own threads, which do not ask for
            // permission.
            (Some(_), RequestKind::Write) if !self.handle.takes_nowait() => {
                self.workers.submit(request, memory, ticket);
            }
            (Some(target), RequestKind::Read | RequestKind::Write | RequestKind::Flush) => {
                ring::submit(Submission::new(target, request, memory, ticket));
            }
            _ => self.workers.submit(request, memory, ticket),
        }
    }
}

impl Drop for FileDrive {
    fn drop(&mut self) {
        if let Some(target) = &self.target {
            target.close();
        }
    }
}

/// Opens a file (making it if asked) or a block device, and takes its lock if `open.exclusive`.
fn open_and_lock(path: &Path, open: &Open) -> Result<(OwnedFd, &'static str), OpenDriveError> {
    let fail = |doing: &'static str, source: io::Error| match source.kind() {
        io::ErrorKind::NotFound => OpenDriveError::NotFound {
            path: path.to_owned(),
        },
        io::ErrorKind::PermissionDenied => OpenDriveError::Denied {
            path: path.to_owned(),
        },
        _ => OpenDriveError::Io {
            path: path.to_owned(),
            doing,
            source,
        },
    };
    let access = match open.read_only {
        true => OFlags::RDONLY,
        false => OFlags::RDWR,
    };
    let mut flags = access | OFlags::CLOEXEC | OFlags::NOCTTY;
    let kind = match (fs::metadata(path), open.create_size) {
        (Ok(metadata), _) => {
            let file_type = metadata.file_type();
            if file_type.is_file() {
                KIND.word
            } else if file_type.is_block_device() {
                BLOCK
            } else {
                return Err(OpenDriveError::NotADrive {
                    path: path.to_owned(),
                });
            }
        }
        (Err(error), Some(size_bytes)) if error.kind() == io::ErrorKind::NotFound => {
            create_sparse(path, size_bytes).map_err(|error| fail("creating", error))?;
            KIND.word
        }
        (Err(error), _) => return Err(fail("opening", error)),
    };
    if kind == BLOCK && open.exclusive {
        // Without O_CREAT, O_EXCL takes the device's exclusive claim, which mounts and md hold, too.
        flags |= OFlags::EXCL;
    }
    let fd = open_when_free(path, flags)?.map_err(|errno| fail("opening", errno.into()))?;
    if open.read_only && !could_write(path, &fd) {
        return Err(OpenDriveError::Denied {
            path: path.to_owned(),
        });
    }
    if open.exclusive {
        let locked =
            |error: &io::Error| matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES));
        let lock = || match open.read_only {
            // The other kind of lock takes a descriptor that can write. Both exclude the lock of a pool.
            true => lock_shared(fd.as_fd()),
            false => lock_exclusive(fd.as_fd()),
        };
        match patiently(lock, locked) {
            Ok(()) => {}
            Err(error) if locked(&error) => {
                return Err(OpenDriveError::InUse {
                    path: path.to_owned(),
                    holder: holder_in_time(path, 1),
                });
            }
            Err(error) => return Err(fail("locking", error)),
        }
    }
    Ok((fd, kind))
}

/// Opens a drive. Tries again while it is claimed, longer if no owner shows. The inner error is any other one.
fn open_when_free(path: &Path, flags: OFlags) -> Result<Result<OwnedFd, Errno>, OpenDriveError> {
    let begun = Instant::now();
    let mut searched_at: Option<Duration> = None;
    loop {
        match rustix::fs::open(path, flags, Mode::empty()) {
            Err(Errno::BUSY) => {}
            outcome => return Ok(outcome),
        }
        let waited = begun.elapsed();
        if waited < TAKEN_AT_MOST {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        }
        let claims = claims(path);
        if !claims.is_empty() || waited >= UDEV_AT_MOST {
            return Err(OpenDriveError::Busy {
                path: path.to_owned(),
                claims,
            });
        }
        // A search through all processes is dear: one at first, and one before a program is blamed.
        if searched_at.is_none_or(|at| at < PROGRAM_AT_MOST && waited >= PROGRAM_AT_MOST) {
            searched_at = Some(waited);
            let holder = holder_in_time(path, 0);
            let at_once = holder.as_ref().is_some_and(Holder::is_another_daemon);
            if at_once || holder.is_some() && waited >= PROGRAM_AT_MOST {
                return Err(OpenDriveError::InUse {
                    path: path.to_owned(),
                    holder,
                });
            }
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// Whether a drive that is open for reading could be opened for writing, too.
fn could_write(path: &Path, fd: &OwnedFd) -> bool {
    let access = rustix::fs::accessat(
        rustix::fs::CWD,
        path,
        rustix::fs::Access::WRITE_OK,
        rustix::fs::AtFlags::EACCESS,
    );
    let denied = [Errno::ACCESS, Errno::PERM, Errno::ROFS];
    !matches!(access, Err(errno) if denied.contains(&errno)) && !is_read_only(fd.as_fd())
}

/// Tries again for a while if an attempt fails because the drive is in use: a process that is just being started has
/// all descriptors of the process that starts it until its own program runs, even those that were just closed here.
fn patiently<T, E>(
    attempt: impl Fn() -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let until = Instant::now() + TAKEN_AT_MOST;
    loop {
        match attempt() {
            Err(error) if is_taken(&error) && Instant::now() < until => {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome => return outcome,
        }
    }
}

/// Makes a file of `size_bytes` that occupies no space yet. The file must not exist.
pub fn create_sparse(path: &Path, size_bytes: u64) -> io::Result<()> {
    let file = fs::File::create_new(path)?;
    file.set_len(size_bytes).inspect_err(|_| {
        // The file is empty, and a drive of no bytes would only confuse.
        let _ = fs::remove_file(path);
    })
}

/// A process that has a drive open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    pid: u32,
    command: String,
}

impl Holder {
    /// Whether it is a Ravelin daemon. A lock whose holder cannot be seen is a daemon's: few other programs lock drives.
    pub(super) fn is_ravelin(holder: Option<&Self>) -> bool {
        holder.is_none_or(|holder| holder.pid == std::process::id() || holder.command == "ravelin")
    }

    /// Whether it is a Ravelin daemon, and not this one: a drive that is open here is about to be closed.
    fn is_another_daemon(&self) -> bool {
        self.command == "ravelin" && self.pid != std::process::id()
    }

    /// Its words in errors.
    pub(super) fn named(holder: Option<&Self>) -> String {
        let kind = match Self::is_ravelin(holder) {
            true => "another Ravelin daemon",
            false => "another program",
        };
        let process = holder.map(|holder| format!(" (pid {}, {})", holder.pid, holder.command));
        kind.to_owned() + &process.unwrap_or_default()
    }
}

/// The same as [`holder_of`], on a thread of its own, which is not waited for without end.
fn holder_in_time(path: &Path, ours: usize) -> Option<Holder> {
    let path = path.to_owned();
    let (to, found) = std::sync::mpsc::channel();
    std::thread::Builder::new()
        .name("drive-holder".to_owned())
        // The receiver does not wait for a late answer.
        .spawn(move || to.send(holder_of(&path, ours)).ok())
        .ok()?;
    found.recv_timeout(SEARCH_AT_MOST).ok().flatten()
}

/// Whether a process is the command by which udev finds out what a drive is (`ravelin drive identify --udev`).
fn is_run_by_udev(process: &Path) -> bool {
    let arguments = fs::read(process.join("cmdline")).unwrap_or_default();
    let mut words = arguments.split(|&byte| byte == 0);
    words.any(|word| word == b"identify") && words.any(|word| word == b"--udev")
}

/// The process that has `path` open, as far as /proc shows it to us. udev's do not count: they end soon. The kernel does
/// not report the holder of an open-file-description lock. `ours` of this process's own descriptors do not count.
fn holder_of(path: &Path, ours: usize) -> Option<Holder> {
    let target = fs::canonicalize(path).ok()?;
    for entry in fs::read_dir("/proc").ok()?.flatten() {
        let name = entry.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let command = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let command = command.trim().to_owned();
        if UDEV.contains(&&*command) || is_run_by_udev(&entry.path()) {
            continue;
        }
        let own = if pid == std::process::id() { ours } else { 0 };
        let open = descriptors
            .flatten()
            .filter(|descriptor| fs::read_link(descriptor.path()).is_ok_and(|link| link == target))
            .count();
        if open > own {
            return Some(Holder { pid, command });
        }
    }
    None
}
