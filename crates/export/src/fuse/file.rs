//! The one file of the file system: what the kernel may ask of it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{Memory, Request, RequestKind};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, ReplyAttr, ReplyData, ReplyEmpty, ReplyOpen,
    ReplyStatfs, ReplyWrite, TimeOrNow, WriteFlags,
};
use rustix::fs::{FallocateFlags, OFlags};

use super::flights::{Flights, Reply};

/// The longest read and write: what the kernel takes without a raised `fs.fuse.max_pages_limit`.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Asynchronous requests that the kernel has in flight. A loop device has a queue of 128, and
/// splits long requests.
const BACKGROUND_MAX: u16 = 256;
/// How long the kernel believes the size. Not at all: a volume can be resized, and a mount whose
/// server was killed would pass for alive until then.
const ATTRIBUTES_TTL: Duration = Duration::ZERO;
/// What `stat` says, and the unit in which a loop device discards.
const BLOCK_BYTES: u32 = 4096;

/// The device as an inode.
pub(super) struct DeviceFile {
    flights: Arc<Flights>,
    /// All times of the file.
    since: SystemTime,
}

impl DeviceFile {
    pub(super) fn new(flights: Arc<Flights>) -> Self {
        Self {
            flights,
            since: SystemTime::now(),
        }
    }

    fn size_bytes(&self) -> u64 {
        self.flights.device().limits().size_bytes
    }

    fn attributes(&self) -> FileAttr {
        let size = self.size_bytes();
        FileAttr {
            ino: INodeNo::ROOT,
            size,
            blocks: size / 512,
            atime: self.since,
            mtime: self.since,
            ctime: self.since,
            crtime: self.since,
            kind: FileType::RegularFile,
            perm: 0o600,
            nlink: 1,
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            rdev: 0,
            blksize: BLOCK_BYTES,
            flags: 0,
        }
    }

    fn flush_device(&self, reply: ReplyEmpty) {
        let request = Request {
            kind: RequestKind::Flush,
            offset: 0,
            length: 0,
            fua: false,
        };
        self.flights
            .submit(request, Memory::empty(), Reply::Done(reply));
    }
}

/// What a call of fallocate asks of a device whose space is all its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocate {
    /// The space is there already.
    Nothing,
    /// Free it, or fill it with zeros.
    Do(RequestKind),
    /// It would change the size, or is not known.
    Refused(i32),
}

fn allocate(mode: i32, offset: u64, length: u64, size_bytes: u64) -> Allocate {
    let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
    let end = offset.checked_add(length);
    if end.is_none_or(|end| end > size_bytes) {
        return Allocate::Refused(rustix::io::Errno::NOSPC.raw_os_error());
    }
    let kind = flags - FallocateFlags::KEEP_SIZE;
    if kind.is_empty() {
        Allocate::Nothing
    } else if kind == FallocateFlags::PUNCH_HOLE {
        Allocate::Do(RequestKind::Trim)
    } else if kind == FallocateFlags::ZERO_RANGE {
        Allocate::Do(RequestKind::WriteZeroes)
    } else {
        Allocate::Refused(rustix::io::Errno::OPNOTSUPP.raw_os_error())
    }
}

impl Filesystem for DeviceFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let longest = self.flights.device().limits().request_bytes_max;
        let transfer = TRANSFER_BYTES_MAX.min(longest.max(BLOCK_BYTES));
        // Each setter keeps the kernel's own limit where it is lower.
        let _ = config.set_max_write(transfer);
        if let Err(most) = config.set_max_readahead(transfer) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        for wanted in [
            // Direct I/O that does not wait: what makes a loop device's queue deep.
            InitFlags::FUSE_ASYNC_DIO,
            // Files opened for direct I/O can be mapped all the same.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            if config.add_capabilities(wanted).is_err() {
                tracing::debug!(?wanted, "not in this kernel");
            }
        }
        Ok(())
    }

    fn getattr(&self, _: &fuser::Request, _: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        reply.attr(&ATTRIBUTES_TTL, &self.attributes());
    }

    /// A truncation to nothing is what opening with `O_TRUNC` asks, and like a block device the
    /// file takes no notice. Any other size is refused, and the rest is not kept.
    fn setattr(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: Option<u32>,
        _: Option<u32>,
        _: Option<u32>,
        size: Option<u64>,
        _: Option<TimeOrNow>,
        _: Option<TimeOrNow>,
        _: Option<SystemTime>,
        _: Option<FileHandle>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<SystemTime>,
        _: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        match size {
            Some(size) if size != 0 && size != self.size_bytes() => reply.error(Errno::EINVAL),
            _ => reply.attr(&ATTRIBUTES_TTL, &self.attributes()),
        }
    }

    fn statfs(&self, _: &fuser::Request, _: INodeNo, reply: ReplyStatfs) {
        let blocks = self.size_bytes() / u64::from(BLOCK_BYTES);
        reply.statfs(blocks, 0, 0, 1, 0, BLOCK_BYTES, 255, BLOCK_BYTES);
    }

    fn open(&self, _: &fuser::Request, _: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        self.flights.opened();
        reply.opened(
            FileHandle(0),
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES,
        );
    }

    fn release(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        self.flights.released();
        reply.ok();
    }

    fn read(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let left = self.size_bytes().saturating_sub(offset);
        let length = u64::from(size).min(left);
        if length == 0 {
            return reply.data(&[]);
        }
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        let memory = self.flights.buffer(size as usize);
        self.flights.submit(request, memory, Reply::Data(reply));
    }

    fn write(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        data: &[u8],
        _: WriteFlags,
        flags: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let left = self.size_bytes().saturating_sub(offset);
        let length = (data.len() as u64).min(left);
        if data.is_empty() {
            return reply.written(0);
        }
        if length == 0 {
            return reply.error(Errno::ENOSPC);
        }
        let mut memory = self.flights.buffer(data.len());
        let Some(bytes) = memory.unique_mut() else {
            return reply.error(Errno::EIO);
        };
        #[expect(
            clippy::cast_possible_truncation,
            reason = "at most the slice's length"
        )]
        let data = &data[..length as usize];
        bytes[..data.len()].copy_from_slice(data);
        let open = OFlags::from_bits_retain(flags.0.cast_unsigned());
        let request = Request {
            kind: RequestKind::Write,
            offset,
            length,
            fua: open.contains(OFlags::DSYNC),
        };
        self.flights.submit(request, memory, Reply::Written(reply));
    }

    fn flush(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        _: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.flush_device(reply);
    }

    fn fsync(&self, _: &fuser::Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        self.flush_device(reply);
    }

    fn fallocate(
        &self,
        _: &fuser::Request,
        _: INodeNo,
        _: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        match allocate(mode, offset, length, self.size_bytes()) {
            Allocate::Nothing => reply.ok(),
            Allocate::Refused(errno) => reply.error(Errno::from_i32(errno)),
            Allocate::Do(kind) => {
                let request = Request {
                    kind,
                    offset,
                    length,
                    fua: false,
                };
                self.flights
                    .submit(request, Memory::empty(), Reply::Done(reply));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn punching_trims_zeroing_writes_zeros_and_nothing_grows() {
        const KEEP: i32 = 1;
        const PUNCH: i32 = 2;
        const COLLAPSE: i32 = 8;
        const ZERO: i32 = 16;
        let size = 1 << 20;
        let at = |mode, offset, length| allocate(mode, offset, length, size);
        assert_eq!(at(PUNCH | KEEP, 0, size), Allocate::Do(RequestKind::Trim));
        assert_eq!(at(ZERO, 4096, 512), Allocate::Do(RequestKind::WriteZeroes));
        assert_eq!(
            at(ZERO | KEEP, 0, 1),
            Allocate::Do(RequestKind::WriteZeroes)
        );
        assert_eq!(at(0, 0, size), Allocate::Nothing);
        assert!(matches!(at(0, 1, size), Allocate::Refused(_)));
        assert!(matches!(at(PUNCH | KEEP, size, 1), Allocate::Refused(_)));
        assert!(matches!(at(ZERO, u64::MAX, 2), Allocate::Refused(_)));
        assert!(matches!(at(COLLAPSE, 0, 4096), Allocate::Refused(_)));
    }
}
