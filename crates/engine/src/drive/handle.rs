//! One open file or block device: blocking system calls, with the kernel's peculiarities handled.
//!
//! Handled: short transfers continue; `EINTR` and a passing `EAGAIN` are tried again; memory that is not aligned for
//! `O_DIRECT` goes through a bounce buffer; memory that is joined of more ranges than the kernel takes at once goes
//! in several calls.
//!
//! Not handled: an error of `fdatasync` means that written data may be lost (the kernel marks the pages clean and the
//! next call succeeds). So after the first such error every later flush fails, too.

#![expect(
    unsafe_code,
    reason = "I/O memory as slices, and the OFD lock and the discard that rustix lacks"
)]

use std::fs;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use block::{
    Extent, Fault, Limits, Memory, Outcome, PAGE_BYTES, Request, RequestKind, Usage, push_extent,
};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::{Errno, ReadWriteFlags};

use super::uri::Identity;
use super::workers::{Ask, Halt, Perform, Performed, begin, check};
use super::zram;

/// The longest read or write: a whole cell in one request with room to spare.
const REQUEST_BYTES_MAX: u32 = 64 << 20;
/// The length of the zeros that are written at once where the kernel cannot make them.
const ZEROS_BYTES: usize = 1 << 20;
/// Ranges of memory that the kernel takes in one call (`IOV_MAX`).
const RANGES_MAX: usize = 1024;
/// `_IO(0x12, 119)` of `linux/fs.h`.
const BLKDISCARD: libc::Ioctl = 0x1277;
/// How often a transfer without progress is tried again, a millisecond apart.
pub(crate) const AGAIN_MAX: u32 = 100;

/// What holds the bytes, as far as it decides how to do I/O.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Medium {
    /// A regular file on a file system that keeps files in memory (tmpfs, ramfs).
    MemoryFile,
    /// A block device that is memory and does its work in the thread that submits (zram, brd).
    MemoryBlock,
    /// A regular file on any other file system.
    File,
    /// A block device.
    Block,
}

/// An open file or block device.
pub(crate) struct Handle {
    fd: OwnedFd,
    medium: Medium,
    identity: Identity,
    limits: Limits,
    /// The counters of the zram device that holds the bytes.
    zram: Option<zram::Counters>,
    /// The alignment that memory must have; 1 where I/O goes through the page cache.
    memory_align: usize,
    sync_failed: AtomicBool,
    punches: AtomicBool,
    discards: AtomicBool,
    zero_ranges: AtomicBool,
    nowait: AtomicBool,
}

impl Handle {
    /// Takes over `fd`, which is open for reading and mostly for writing, without `O_DIRECT`; turns `O_DIRECT` on if `direct` is
    /// set and the file takes it.
    pub(crate) fn new(fd: OwnedFd, direct: bool) -> io::Result<Self> {
        let stat = rustix::fs::fstat(&fd)?;
        let is_block = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device();
        let medium = if is_block && device_is_memory(&stat) {
            Medium::MemoryBlock
        } else if is_block {
            Medium::Block
        } else if lives_in_memory(&fd)? {
            Medium::MemoryFile
        } else {
            Medium::File
        };
        let identity = match is_block {
            true => Identity::Device(stat.st_rdev),
            false => Identity::File(stat.st_dev, stat.st_ino),
        };
        let mut preferred = PAGE_BYTES;
        let mut trims = true;
        let mut sector = 512;
        if is_block {
            sector = rustix::fs::ioctl_blksszget(&fd)?.max(sector);
            preferred = preferred.max(rustix::fs::ioctl_blkpbszget(&fd)? as usize);
            trims = queue_number(&stat, "discard_max_bytes").is_some_and(|bytes| bytes > 0);
        }
        // Direct I/O on a file in memory only adds alignment rules: there is no device to reach.
        let wanted = direct && medium != Medium::MemoryFile;
        let (block, memory_align) = match wanted.then(|| try_direct(&fd)).flatten() {
            Some((block, memory_align)) => (block, memory_align),
            None => (sector, 1),
        };
        skip_access_times(&fd);
        let size = rustix::fs::seek(&fd, rustix::fs::SeekFrom::End(0))?;
        let limits = Limits {
            size_bytes: size - size % u64::from(block),
            block_bytes_min: block,
            block_bytes_preferred: u32::try_from(preferred).unwrap_or(block).max(block),
            request_bytes_max: REQUEST_BYTES_MAX,
            trims,
        };
        Ok(Self {
            fd,
            medium,
            identity,
            limits,
            zram: is_block
                .then(|| zram::Counters::find(&sysfs(&stat)))
                .flatten(),
            memory_align,
            sync_failed: AtomicBool::new(false),
            punches: AtomicBool::new(true),
            discards: AtomicBool::new(limits.trims),
            zero_ranges: AtomicBool::new(true),
            nowait: AtomicBool::new(true),
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits {
            trims: self.discards.load(Relaxed),
            ..self.limits
        }
    }

    /// The identity of the open file or device, whatever its name leads to by now.
    pub(crate) const fn identity(&self) -> Identity {
        self.identity
    }

    pub(crate) fn medium(&self) -> Medium {
        self.medium
    }

    /// The use of the physical space, if the drive knows it.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.zram.as_ref().and_then(zram::Counters::usage)
    }

    /// What the range holds, in order, as [`BlockDevice::extents`](block::BlockDevice::extents) says. Holes of files
    /// are known; devices only report data.
    pub(crate) fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        let end = offset.saturating_add(length).min(self.limits.size_bytes);
        let mut extents = Vec::new();
        let mut at = offset;
        while at < end {
            let to = |seek| rustix::fs::seek(&self.fd, seek).map(|found| found.min(end));
            let data = match to(SeekFrom::Data(at)) {
                _ if self.is_block() => at,
                Ok(data) => data,
                // There is no data up to the end of the file.
                Err(Errno::NXIO) => end,
                Err(_) => at,
            };
            let hole = match to(SeekFrom::Hole(data)) {
                _ if data == end || self.is_block() => end,
                Ok(hole) if hole > data => hole,
                Ok(_) | Err(_) => end,
            };
            for (length, hole) in [(data - at, true), (hole - data, false)] {
                push_extent(&mut extents, Extent { length, hole });
            }
            at = hole;
        }
        extents
    }

    fn is_block(&self) -> bool {
        matches!(self.medium, Medium::Block | Medium::MemoryBlock)
    }

    /// Whether I/O bypasses the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.memory_align > 1
    }

    fn read(&self, memory: &Memory, offset: u64) -> Performed {
        if !self.takes(memory) {
            let bounce = Memory::zeroed(memory.len());
            self.read(&bounce, offset)?;
            scatter(&bounce, memory);
            return Ok(());
        }
        if memory.parts().len() > 1 {
            return self.transfer(memory.len(), offset, None, |done| {
                let mut rest: Vec<IoSliceMut<'_>> = ranges_from(memory, done)
                    // SAFETY: the memory belongs to this read alone until it is completed.
                    .map(|(part, start)| IoSliceMut::new(unsafe { &mut part.bytes_mut()[start..] }))
                    .collect();
                rustix::io::preadv(&self.fd, &mut rest, offset + done as u64)
            });
        }
        // SAFETY: the memory belongs to this read alone until it is completed.
        let bytes = unsafe { memory.bytes_mut() };
        let mut done = 0;
        self.transfer(bytes.len(), offset, None, |start| {
            let got = rustix::io::pread(&self.fd, &mut bytes[start..], offset + start as u64);
            done = got.unwrap_or(0);
            got
        })
    }

    fn write(&self, memory: &Memory, offset: u64, fua: bool, may_begin: &Ask<'_>) -> Performed {
        if !self.takes(memory) {
            return self.write(&gather(memory), offset, fua, may_begin);
        }
        let flags = if fua {
            ReadWriteFlags::DSYNC
        } else {
            ReadWriteFlags::empty()
        };
        let outcome = self.transfer(memory.len(), offset, Some(may_begin), |done| {
            let at = offset + done as u64;
            let mut rest = ranges_from(memory, done).map(|(part, start)| {
                // SAFETY: nothing writes the memory of a write in flight (the rule of `block::Memory`).
                unsafe { &part.bytes()[start..] }
            });
            if memory.parts().len() > 1 || fua {
                let rest: Vec<IoSlice<'_>> = rest.map(IoSlice::new).collect();
                rustix::io::pwritev2(&self.fd, &rest, at, flags)
            } else {
                rustix::io::pwrite(&self.fd, rest.next().unwrap_or_default(), at)
            }
        });
        if fua && matches!(outcome, Err(Halt::Fault(fault)) if fault != Fault::Shutdown) {
            self.durable_write_failed();
        }
        outcome
    }

    /// Records that a durable write has failed. The failure may have been the sync's: the write has then consumed the
    /// report of lost pages that the next `fdatasync` would have returned.
    pub(crate) fn durable_write_failed(&self) {
        self.sync_failed.store(true, Relaxed);
    }

    /// Whether writes can be asked not to wait, as far as is known.
    pub(crate) fn takes_nowait(&self) -> bool {
        self.nowait.load(Relaxed)
    }

    /// Records that the file system has no writes that do not wait.
    pub(crate) fn refuses_nowait(&self) {
        self.nowait.store(false, Relaxed);
    }

    /// Whether the kernel can use `memory` directly; if not, a bounce buffer is needed.
    pub(crate) fn takes(&self, memory: &Memory) -> bool {
        let takes = |part: &Memory| {
            // An empty part has no address.
            part.is_empty() || (part.as_ptr() as usize).is_multiple_of(self.memory_align)
        };
        memory.parts().iter().all(takes)
    }

    /// Repeats `step(done)` until `length` bytes are done, and asks `may_begin` before each step. `step` returns the
    /// number of bytes that it did.
    fn transfer(
        &self,
        length: usize,
        offset: u64,
        may_begin: Option<&Ask<'_>>,
        mut step: impl FnMut(usize) -> Result<usize, Errno>,
    ) -> Performed {
        let mut done = 0;
        let mut again = 0;
        while done < length {
            if let Some(may_begin) = may_begin {
                begin(may_begin)?;
            }
            match step(done) {
                // The end of the file or device: it has shrunk since the drive was opened.
                Ok(0) => return Err(Fault::Gone.into()),
                Ok(count) => {
                    done += count;
                    again = 0;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) if again < AGAIN_MAX => {
                    again += 1;
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(errno) => {
                    let end = offset + length as u64;
                    return Err(self.fault(errno, end, may_begin.is_some()).into());
                }
            }
        }
        Ok(())
    }

    /// The fault for an `errno` of an operation that reached up to byte `end`. `adds`: the operation may need physical
    /// space.
    pub(crate) fn fault(&self, errno: Errno, end: u64, adds: bool) -> Fault {
        // A device that was pulled keeps its open files and has no bytes left; writes to it fail
        // with ENOSPC and reads with EIO.
        let shrunk = || {
            let size = rustix::fs::seek(&self.fd, rustix::fs::SeekFrom::End(0));
            size.is_ok_and(|size| size < end)
        };
        if self.is_block() && shrunk() {
            return Fault::Gone;
        }
        // A zram device at its memory limit fails writes with EIO. The counters are numbers in the kernel's memory:
        // reading them waits for nothing.
        let is_full = || self.zram.as_ref().is_some_and(zram::Counters::is_full);
        if adds && errno == Errno::IO && is_full() {
            return Fault::Full;
        }
        fault_of(errno)
    }

    fn flush(&self) -> Outcome {
        self.flushable()?;
        self.flushed(rustix::fs::fdatasync(&self.fd))
    }

    /// Fails if an earlier flush has failed: later flushes mean nothing then.
    pub(crate) fn flushable(&self) -> Outcome {
        if self.sync_failed.load(Relaxed) {
            Err(Fault::Medium)
        } else {
            Ok(())
        }
    }

    /// The outcome of an `fdatasync`; records an error for all later flushes.
    pub(crate) fn flushed(&self, result: Result<(), Errno>) -> Outcome {
        result.map_err(|errno| {
            self.sync_failed.store(true, Relaxed);
            match self.fault(errno, self.limits.size_bytes, false) {
                Fault::Gone => Fault::Gone,
                _ => Fault::Medium,
            }
        })
    }

    /// Frees space and leaves zeros. `FALLOC_FL_PUNCH_HOLE` does both for files, and for devices that promise zeros
    /// after a discard; a bare `BLKDISCARD` promises nothing.
    fn trim(&self, offset: u64, length: u64, may_begin: &Ask<'_>) -> Performed {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        begin(may_begin)?;
        match self.allocate(&self.punches, flags, offset, length)? {
            true => Ok(()),
            false => self.write_zeroes(offset, length, may_begin),
        }
    }

    /// Frees space and promises nothing about the content. If that does not work, [`Limits::trims`] is false from
    /// then on.
    fn discard(&self, offset: u64, length: u64, may_begin: &Ask<'_>) -> Performed {
        begin(may_begin)?;
        if self.is_block() {
            self.try_out(&self.discards, offset + length, || {
                discard_device(self.fd.as_fd(), offset, length)
            })?;
        } else {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            self.allocate(&self.discards, flags, offset, length)?;
        }
        Ok(())
    }

    /// On devices `FALLOC_FL_ZERO_RANGE` is `BLKZEROOUT`: the device or the kernel writes zeros. On files a hole is
    /// tried first: a sparse drive stays sparse.
    fn write_zeroes(&self, offset: u64, length: u64, may_begin: &Ask<'_>) -> Performed {
        begin(may_begin)?;
        if !self.is_block() {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            if self.allocate(&self.punches, flags, offset, length)? {
                return Ok(());
            }
        }
        let flags = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        if self.allocate(&self.zero_ranges, flags, offset, length)? {
            return Ok(());
        }
        let zeros = zeros();
        let end = offset + length;
        let mut at = offset;
        while at < end {
            let piece = usize::try_from(end - at).map_or(ZEROS_BYTES, |left| left.min(ZEROS_BYTES));
            self.write(&zeros.slice(0..piece), at, false, may_begin)?;
            at += piece as u64;
        }
        Ok(())
    }

    /// Calls `fallocate` unless `works` is false; returns false, now and later, if the file does not support it.
    fn allocate(
        &self,
        works: &AtomicBool,
        flags: FallocateFlags,
        offset: u64,
        length: u64,
    ) -> Result<bool, Fault> {
        if length == 0 {
            return Ok(true);
        }
        self.try_out(works, offset + length, || {
            rustix::fs::fallocate(&self.fd, flags, offset, length)
        })
    }

    /// Makes a call that reaches up to byte `end`, unless `works` is false; returns false, now and later, if the file
    /// or device does not support it.
    fn try_out(
        &self,
        works: &AtomicBool,
        end: u64,
        call: impl Fn() -> Result<(), Errno>,
    ) -> Result<bool, Fault> {
        if !works.load(Relaxed) {
            return Ok(false);
        }
        loop {
            match call() {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(
                    Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOTTY | Errno::INVAL | Errno::PERM,
                ) => {
                    works.store(false, Relaxed);
                    return Ok(false);
                }
                Err(errno) => return Err(self.fault(errno, end, true)),
            }
        }
    }
}

impl Drop for Handle {
    /// Closing would unlock, too, but only when the kernel drops its last reference, and an io_uring worker or a
    /// forked child may have one for a moment longer.
    fn drop(&mut self) {
        #[expect(clippy::cast_possible_truncation, reason = "libc's constant is 2")]
        let _ = set_lock(self.fd.as_fd(), libc::F_UNLCK as libc::c_short);
    }
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Perform for Handle {
    fn perform(&self, request: &Request, memory: &Memory, may_begin: &Ask<'_>) -> Performed {
        check(&self.limits, request, memory)?;
        match request.kind {
            RequestKind::Read => self.read(memory, request.offset),
            RequestKind::Write => self.write(memory, request.offset, request.fua, may_begin),
            RequestKind::Flush => Ok(self.flush()?),
            RequestKind::Trim | RequestKind::Discard | RequestKind::WriteZeroes => {
                let (offset, length) = (request.offset, request.length);
                match request.kind {
                    RequestKind::Trim => self.trim(offset, length, may_begin)?,
                    RequestKind::Discard => self.discard(offset, length, may_begin)?,
                    _ => self.write_zeroes(offset, length, may_begin)?,
                }
                if request.fua {
                    self.flush()?;
                }
                Ok(())
            }
        }
    }

    /// A file system in memory has nothing to write back.
    fn flush_sleeps(&self) -> bool {
        self.medium != Medium::MemoryFile
    }
}

/// The fault for a system call's error, as far as the number alone shows.
pub(crate) fn fault_of(errno: Errno) -> Fault {
    match errno {
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => Fault::Full,
        Errno::NODEV | Errno::NXIO | Errno::NOMEDIUM | Errno::SHUTDOWN => Fault::Gone,
        _ => Fault::Medium,
    }
}

/// Shared zeros for devices that cannot make their own.
fn zeros() -> &'static Memory {
    static ZEROS: OnceLock<Memory> = OnceLock::new();
    ZEROS.get_or_init(|| Memory::zeroed(ZEROS_BYTES))
}

/// Whether the file's bytes are in the page cache and nowhere else.
fn lives_in_memory(fd: &OwnedFd) -> io::Result<bool> {
    const TMPFS_MAGIC: i64 = 0x0102_1994;
    const RAMFS_MAGIC: i64 = 0x8584_58f6;
    let magic = rustix::fs::fstatfs(fd)?.f_type;
    Ok(magic == TMPFS_MAGIC || magic == RAMFS_MAGIC)
}

/// Turns `O_DIRECT` on and returns the alignment of offsets and of memory. If the file does not take direct I/O in
/// pages, leaves it as it is and returns nothing.
fn try_direct(fd: &OwnedFd) -> Option<(u32, usize)> {
    const PAGE: u32 = 4096;
    const { assert!(PAGE as usize == PAGE_BYTES) };
    let wanted = rustix::fs::StatxFlags::DIOALIGN;
    let told = rustix::fs::statx(fd, c"", rustix::fs::AtFlags::EMPTY_PATH, wanted).ok();
    let (mut block, mut memory) = (PAGE, PAGE_BYTES);
    if let Some(told) = told.filter(|told| told.stx_mask & wanted.bits() != 0) {
        if told.stx_dio_offset_align == 0 || told.stx_dio_offset_align > PAGE {
            return None;
        }
        block = told.stx_dio_offset_align.max(512);
        memory = (told.stx_dio_mem_align as usize).clamp(2, PAGE_BYTES);
    }
    let flags = rustix::fs::fcntl_getfl(fd).ok()?;
    rustix::fs::fcntl_setfl(fd, flags | OFlags::DIRECT).ok()?;
    // Some file systems accept the flag and refuse the I/O.
    let mut probe = Memory::zeroed(PAGE_BYTES);
    let works = probe
        .unique_mut()
        .is_some_and(|bytes| rustix::io::pread(fd, bytes, 0).is_ok());
    if works {
        return Some((block, memory));
    }
    let _ = rustix::fs::fcntl_setfl(fd, flags);
    None
}

/// Turns access times off: they have no use for a drive, and each read would check whether to update one. A process
/// that does not own the file may not turn them off, and goes on without.
fn skip_access_times(fd: &OwnedFd) {
    if let Ok(flags) = rustix::fs::fcntl_getfl(fd) {
        let _ = rustix::fs::fcntl_setfl(fd, flags | OFlags::NOATIME);
    }
}

/// A block device's directory in sysfs.
fn sysfs(stat: &rustix::fs::Stat) -> PathBuf {
    let major = rustix::fs::major(stat.st_rdev);
    let minor = rustix::fs::minor(stat.st_rdev);
    Path::new("/sys/dev/block").join(format!("{major}:{minor}"))
}

/// Whether a block device keeps its bytes in memory.
fn device_is_memory(stat: &rustix::fs::Stat) -> bool {
    let Ok(target) = fs::read_link(sysfs(stat)) else {
        return false;
    };
    let name = target.file_name().unwrap_or_default().as_encoded_bytes();
    name.starts_with(b"zram") || name.starts_with(b"ram")
}

/// Discards a range of a block device (`BLKDISCARD`).
fn discard_device(fd: BorrowedFd<'_>, offset: u64, length: u64) -> Result<(), Errno> {
    let range = [offset, length];
    // SAFETY: `fd` is open for the call, and `BLKDISCARD` reads two numbers of 64 bits.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), BLKDISCARD, range.as_ptr()) };
    if result == 0 {
        Ok(())
    } else {
        Err(Errno::from_io_error(&io::Error::last_os_error()).unwrap_or(Errno::IO))
    }
}

/// A number from a block device's `queue` directory in sysfs; partitions use their disk's.
fn queue_number(stat: &rustix::fs::Stat, name: &str) -> Option<u64> {
    let device = sysfs(stat);
    ["queue", "../queue"].iter().find_map(|queue| {
        let text = fs::read_to_string(device.join(queue).join(name)).ok()?;
        text.trim().parse().ok()
    })
}

/// Takes the exclusive open-file-description lock on all of the file. The lock belongs to `fd`, not to the process: a
/// second open of the same drive conflicts with it even in the same daemon. It ends with the last copy of `fd`,
/// however the daemon ends.
pub(crate) fn lock_exclusive(fd: BorrowedFd<'_>) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "libc's constant is 1")]
    set_lock(fd, libc::F_WRLCK as libc::c_short)
}

/// The same, shared: it takes a descriptor that reads, and excludes [`lock_exclusive`].
pub(crate) fn lock_shared(fd: BorrowedFd<'_>) -> io::Result<()> {
    #[expect(clippy::cast_possible_truncation, reason = "libc's constant is 0")]
    set_lock(fd, libc::F_RDLCK as libc::c_short)
}

/// Whether an open block device takes no writes at all, as its `ro` in sysfs says.
pub(crate) fn is_read_only(fd: BorrowedFd<'_>) -> bool {
    let stat = rustix::fs::fstat(fd).ok();
    let block =
        stat.filter(|stat| rustix::fs::FileType::from_raw_mode(stat.st_mode).is_block_device());
    let text = block.and_then(|stat| fs::read_to_string(sysfs(&stat).join("ro")).ok());
    text.is_some_and(|text| text.trim() == "1")
}

fn set_lock(fd: BorrowedFd<'_>, kind: libc::c_short) -> io::Result<()> {
    // SAFETY: `flock` is a plain C structure; all zeros is a value of it ("from 0 to the end").
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // `SEEK_SET`, the start of the file, is 0 and thus set already.
    lock.l_type = kind;
    // SAFETY: `fd` is open for the call, and `lock` is a valid `flock` that outlives it.
    let result = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// The memory that is left after `done` bytes: its parts, each with the offset at which to begin. At most as many
/// parts as the kernel takes at once.
pub(crate) fn ranges_from(memory: &Memory, done: usize) -> impl Iterator<Item = (&Memory, usize)> {
    let mut end = 0;
    let rest = memory.parts().iter().filter_map(move |part| {
        let start = end;
        end += part.len();
        (end > done).then(|| (part, done.saturating_sub(start)))
    });
    rest.take(RANGES_MAX)
}

/// A contiguous copy of the bytes of a write.
pub(crate) fn gather(memory: &Memory) -> Memory {
    let mut whole = Memory::zeroed(memory.len());
    let mut rest = whole.unique_mut().unwrap_or_default();
    for part in memory.parts() {
        let (target, later) = rest.split_at_mut(part.len());
        copy_out(part, 0..part.len(), target);
        rest = later;
    }
    whole
}

/// Copies the bytes of `whole`, which nothing else uses, into the memory of a read.
pub(crate) fn scatter(whole: &Memory, memory: &Memory) {
    // SAFETY: the caller guarantees that nothing else uses `whole`.
    let mut rest = unsafe { whole.bytes() };
    for part in memory.parts() {
        let (bytes, later) = rest.split_at(part.len());
        if !bytes.is_empty() {
            copy_in(part, 0..part.len(), bytes);
        }
        rest = later;
    }
}

/// Copies `bytes` into the memory of a read, or zeros if `bytes` is empty.
///
/// # Panics
/// When `bytes` is neither empty nor as long as `memory`.
pub(crate) fn copy_in(memory: &Memory, range: Range<usize>, bytes: &[u8]) {
    // SAFETY: the memory belongs to the read that is being performed, alone, until it is completed
    // (the rule of `block::Memory`); `bytes` is the drive's own.
    let target = unsafe { memory.bytes_mut_at(range) };
    if bytes.is_empty() {
        target.fill(0);
    } else {
        target.copy_from_slice(bytes);
    }
}

/// Copies the bytes of a write to `target`.
///
/// # Panics
/// When the lengths differ.
pub(crate) fn copy_out(memory: &Memory, range: Range<usize>, target: &mut [u8]) {
    // SAFETY: nothing writes the memory of a write in flight (the rule of `block::Memory`).
    target.copy_from_slice(unsafe { memory.bytes_at(range) });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn handle() -> Handle {
        let fd = rustix::fs::memfd_create("drive", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&fd, 1 << 16).unwrap();
        Handle::new(fd, true).unwrap()
    }

    #[test]
    fn after_one_failed_sync_no_flush_is_believed_again() {
        // fsyncgate (2018): the kernel reports lost pages once, marks them clean, and the next
        // fsync succeeds over data that is gone.
        for durable_write in [false, true] {
            let handle = handle();
            assert_eq!(handle.flush(), Ok(()));
            if durable_write {
                handle.durable_write_failed();
            } else {
                assert_eq!(handle.flushed(Err(Errno::IO)), Err(Fault::Medium));
            }
            assert_eq!(handle.flush(), Err(Fault::Medium));
            assert_eq!(handle.flushable(), Err(Fault::Medium));
            let memory = Memory::zeroed(4096);
            assert_eq!(handle.read(&memory, 0), Ok(()), "reads go on");
        }
    }

    #[test]
    fn short_transfers_go_on_and_interrupted_ones_are_tried_again() {
        let handle = handle();
        let mut steps = [Ok(3), Err(Errno::INTR), Err(Errno::AGAIN), Ok(1), Ok(6)].into_iter();
        let mut seen = Vec::new();
        let outcome = handle.transfer(10, 0, None, |done| {
            seen.push(done);
            steps.next().unwrap()
        });
        assert_eq!((outcome, seen), (Ok(()), vec![0, 3, 3, 3, 4]));
        for (errno, fault) in [
            (Errno::NOSPC, Fault::Full),
            (Errno::NODEV, Fault::Gone),
            (Errno::NXIO, Fault::Gone),
            (Errno::IO, Fault::Medium),
            (Errno::AGAIN, Fault::Medium),
        ] {
            assert_eq!(
                handle.transfer(10, 0, None, |_| Err(errno)),
                Err(Halt::Fault(fault)),
                "{errno}"
            );
        }
    }

    #[test]
    fn who_cannot_discard_is_asked_once_and_writes_nothing() {
        let handle = handle();
        assert!(handle.limits().trims);
        let asked = std::cell::Cell::new(0);
        let refuse = || {
            asked.set(asked.get() + 1);
            Err(Errno::OPNOTSUPP)
        };
        for _ in 0..2 {
            assert_eq!(handle.try_out(&handle.discards, 4096, refuse), Ok(false));
        }
        assert_eq!(asked.get(), 1);
        assert!(!handle.limits().trims, "it says so");
        let memory = Memory::from_bytes(&[7; 4096]);
        let granted = || block::Permission::Granted;
        assert_eq!(handle.write(&memory, 0, false, &granted), Ok(()));
        assert_eq!(handle.discard(0, 4096, &granted), Ok(()));
        let read = Memory::zeroed(4096);
        assert_eq!(handle.read(&read, 0), Ok(()));
        let mut bytes = vec![0; 4096];
        copy_out(&read, 0..4096, &mut bytes);
        assert_eq!(bytes, [7; 4096], "what is there stays");
    }

    #[test]
    fn files_in_memory_are_told_from_others() {
        assert_eq!(handle().medium(), Medium::MemoryFile);
    }
}
