//! The only file of the file system: answers the kernel's requests.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use block::{Memory, PAGE_BYTES, Request, RequestKind};
use fuser::{Filesystem, InitFlags, KernelConfig};
use rustix::fs::{FallocateFlags, OFlags};
use rustix::io::Errno;

use super::in_flight::{InFlight, Wanted};
use super::inbox::{Left, Reader};
use super::replies::{Body, Reply, Ticket};
use super::seek;
use super::wire::{Ask, Attributes, WRITE_HEAD_BYTES, attributes, opened, parse, size_of_system};

/// The longest read and write: the kernel's limit without a raised `fs.fuse.max_pages_limit`.
const TRANSFER_BYTES_MAX: u32 = 1 << 20;
/// Maximum number of asynchronous requests that the kernel has in flight. A loop device has a queue of 128, and
/// splits long requests.
const BACKGROUND_MAX: u16 = 256;
/// The block size in `stat`, and the unit in which a loop device discards.
const BLOCK_BYTES: u32 = 4096;

/// Why a file is not served any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is unmounted.
    Unmounted,
    /// Another process will take it up.
    Left,
}

/// The device as an inode.
#[derive(Clone)]
pub(super) struct DeviceFile {
    in_flight: Arc<InFlight>,
    /// All times of the file.
    since: Duration,
}

impl DeviceFile {
    pub(super) fn new(in_flight: Arc<InFlight>) -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self::since(in_flight, now.unwrap_or_default())
    }

    /// One that has these times.
    pub(super) const fn since(in_flight: Arc<InFlight>, since: Duration) -> Self {
        Self { in_flight, since }
    }

    pub(super) const fn times(&self) -> Duration {
        self.since
    }

    /// Bytes of the longest message: every read of the FUSE device needs room for the longest write that was
    /// negotiated.
    pub(super) fn room(&self) -> usize {
        let longest = self.transfer_bytes_max() as usize + WRITE_HEAD_BYTES;
        longest.next_multiple_of(PAGE_BYTES) + PAGE_BYTES
    }

    fn size_bytes(&self) -> u64 {
        self.in_flight.device().limits().size_bytes
    }

    fn attributes(&self) -> Attributes {
        Attributes {
            size_bytes: self.size_bytes(),
            since: self.since,
            user: rustix::process::geteuid().as_raw(),
            group: rustix::process::getegid().as_raw(),
            block_bytes: BLOCK_BYTES,
        }
    }
}

/// The effect of a fallocate call on a device whose space is all allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Allocate {
    /// The space is allocated already.
    Nothing,
    /// Free it, or fill it with zeros.
    Do(RequestKind),
    /// The call would change the size, or its mode is unknown.
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

/// The handshake only. [`DeviceFile::serve`] handles all other requests.
impl Filesystem for DeviceFile {
    fn init(&mut self, _: &fuser::Request, config: &mut KernelConfig) -> io::Result<()> {
        let transfer = self.transfer_bytes_max();
        // Each setter keeps the kernel's own limit if that is lower.
        let _ = config.set_max_write(transfer);
        if let Err(most) = config.set_max_readahead(transfer) {
            let _ = config.set_max_readahead(most);
        }
        let _ = config.set_max_background(BACKGROUND_MAX);
        let _ = config.set_congestion_threshold(BACKGROUND_MAX);
        for wanted in [
            // Asynchronous direct I/O: this makes a loop device's queue deep.
            InitFlags::FUSE_ASYNC_DIO,
            // Permits mmap on files that are opened for direct I/O.
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ] {
            if config.add_capabilities(wanted).is_err() {
                tracing::debug!(?wanted, "not in this kernel");
            }
        }
        Ok(())
    }
}

impl DeviceFile {
    fn transfer_bytes_max(&self) -> u32 {
        let longest = self.in_flight.device().limits().request_bytes_max;
        TRANSFER_BYTES_MAX.min(longest.max(BLOCK_BYTES))
    }

    /// Serves the kernel's requests from `kernel` until the file is unmounted, or left to another process.
    pub(super) fn serve(&self, kernel: BorrowedFd<'_>) -> io::Result<Ended> {
        let inbox = self.in_flight.inbox();
        let mut own = match inbox {
            Some(_) => Vec::new(),
            None => vec![0; self.room()],
        };
        let mut reader = Reader::new();
        loop {
            let landing = inbox.map(|inbox| (inbox, inbox.vacant()));
            let message = match landing {
                Some((inbox, slot)) => inbox.landing(slot, &mut reader),
                None => &mut *own,
            };
            let length = loop {
                match rustix::io::read(kernel, &mut *message) {
                    Ok(length) => break length,
                    // A request was aborted before it was read.
                    Err(Errno::NOENT | Errno::INTR | Errno::AGAIN) => {}
                    // The file is unmounted.
                    Err(Errno::NODEV) => return Ok(Ended::Unmounted),
                    Err(error) => return Err(error.into()),
                }
            };
            if let Some((inbox, slot)) = landing {
                inbox.taken(slot);
                if self.in_flight.leaves() {
                    return Ok(Ended::Left);
                }
            }
            let slot = landing.map(|(_, slot)| slot);
            match parse(&message[..length]) {
                Some((unique, ask)) => self.answer(Ticket { unique, slot }, ask),
                None => {
                    let error = "the kernel sends requests of a form that is not known";
                    return Err(io::Error::new(io::ErrorKind::InvalidData, error));
                }
            }
        }
    }

    /// Answers what an earlier process has read and not answered.
    pub(super) fn take_up(&self, left: Vec<Left>) {
        for Left {
            slot,
            message,
            outcome,
        } in left
        {
            let Some((unique, ask)) = parse(&message) else {
                tracing::warn!("a request of the process before is not whole");
                continue;
            };
            let ticket = Ticket {
                unique,
                slot: Some(slot),
            };
            match outcome {
                None => self.answer(ticket, ask),
                Some(outcome) => self.reply(ticket, decided(ask, outcome)),
            }
        }
    }

    fn answer(&self, ticket: Ticket, ask: Ask<'_>) {
        let bytes = match ask {
            Ask::Forget => {
                if let (Some(inbox), Some(slot)) = (self.in_flight.inbox(), ticket.slot) {
                    inbox.free(slot);
                }
                return;
            }
            Ask::Read { offset, length } => return self.read(ticket, offset, length),
            Ask::Write {
                offset,
                flags,
                bytes,
            } => return self.write(ticket, offset, flags, bytes),
            Ask::Flush => return self.begin(ticket, RequestKind::Flush, 0, 0),
            Ask::Allocate {
                offset,
                length,
                mode,
            } => match allocate(mode.cast_signed(), offset, length, self.size_bytes()) {
                Allocate::Nothing => Ok(Vec::new()),
                Allocate::Refused(errno) => Err(errno),
                Allocate::Do(kind) => return self.begin(ticket, kind, offset, length),
            },
            // `O_TRUNC` requests a truncation to 0; like a block device, the file ignores it. The current size is
            // accepted, any other is refused. Changes of other attributes are ignored.
            Ask::SetAttributes(Some(size)) if size != 0 && size != self.size_bytes() => {
                Err(Errno::INVAL.raw_os_error())
            }
            Ask::GetAttributes | Ask::SetAttributes(_) => Ok(attributes(&self.attributes())),
            Ask::SizeOfSystem => {
                let blocks = self.size_bytes() / u64::from(BLOCK_BYTES);
                Ok(size_of_system(blocks, BLOCK_BYTES))
            }
            Ask::Open => {
                self.in_flight.opened();
                Ok(opened().to_vec())
            }
            Ask::Release => {
                self.in_flight.released();
                Ok(Vec::new())
            }
            Ask::Seek { offset, whence } => {
                let file = self.clone();
                return seek::begin(self.in_flight.device(), (offset, whence), move |found| {
                    let body = |at: u64| {
                        let bytes = at.to_ne_bytes();
                        Body::Data(Memory::from_bytes(&bytes), bytes.len())
                    };
                    file.reply(ticket, found.map(body).map_err(Errno::raw_os_error));
                });
            }
            Ask::Destroy => Ok(Vec::new()),
            Ask::Other => Err(Errno::NOSYS.raw_os_error()),
        };
        self.reply(
            ticket,
            bytes.map(|bytes| {
                let length = bytes.len();
                Body::Data(Memory::from_bytes(&bytes), length)
            }),
        );
    }

    fn reply(&self, ticket: Ticket, answer: Result<Body, i32>) {
        self.in_flight.reply(&mut [Reply::new(ticket, answer)]);
    }

    fn begin(&self, ticket: Ticket, kind: RequestKind, offset: u64, length: u64) {
        let request = Request {
            kind,
            offset,
            length,
            fua: false,
        };
        let done = (ticket, Wanted::Done);
        self.in_flight.submit(request, Memory::empty(), done);
    }

    fn read(&self, ticket: Ticket, offset: u64, size: u32) {
        let left = self.size_bytes().saturating_sub(offset);
        let length = u64::from(size).min(left);
        if length == 0 {
            return self.reply(ticket, Ok(Body::Nothing));
        }
        let request = Request {
            kind: RequestKind::Read,
            offset,
            length,
            fua: false,
        };
        let memory = self.in_flight.buffer(size as usize);
        self.in_flight
            .submit(request, memory, (ticket, Wanted::Data));
    }

    fn write(&self, ticket: Ticket, offset: u64, flags: u32, data: &[u8]) {
        if data.is_empty() {
            return self.reply(ticket, Ok(Body::Written(0)));
        }
        let left = self.size_bytes().saturating_sub(offset);
        let length = usize::try_from(left).map_or(data.len(), |left| left.min(data.len()));
        if length == 0 {
            return self.reply(ticket, Err(Errno::NOSPC.raw_os_error()));
        }
        let data = &data[..length];
        let mut memory = self.in_flight.buffer(length);
        let Some(bytes) = memory.unique_mut() else {
            return self.reply(ticket, Err(Errno::IO.raw_os_error()));
        };
        bytes[..length].copy_from_slice(data);
        let request = Request {
            kind: RequestKind::Write,
            offset,
            length: length as u64,
            fua: OFlags::from_bits_retain(flags).contains(OFlags::DSYNC),
        };
        let written = (ticket, Wanted::Written);
        self.in_flight.submit(request, memory, written);
    }
}

/// The answer to a request whose outcome an earlier process has recorded.
fn decided(ask: Ask<'_>, outcome: i32) -> Result<Body, i32> {
    match (u32::try_from(outcome), ask) {
        (Err(_), _) => Err(-outcome),
        (Ok(length), Ask::Write { .. }) => Ok(Body::Written(length)),
        (Ok(_), _) => Ok(Body::Nothing),
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
