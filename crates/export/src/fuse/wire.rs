//! Requests from `/dev/fuse` and their replies as bytes: the part of `linux/fuse.h` that a file system of one file
//! needs. All numbers are in native byte order.

use rustix::fs::Mode;

/// Bytes of the header that all requests have.
const HEADER_BYTES: usize = 40;
/// Bytes before a write's data.
pub(super) const WRITE_HEAD_BYTES: usize = HEADER_BYTES + 40;

/// Flag of setattr: the size is set.
const SET_SIZE: u32 = 1 << 3;
/// Flag of open: I/O bypasses the page cache.
const OPEN_DIRECT_IO: u32 = 1;
/// Flag of open: direct writes may run in parallel.
const OPEN_PARALLEL_DIRECT_WRITES: u32 = 1 << 6;

/// A request of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ask<'a> {
    GetAttributes,
    /// With the new size, if the size is set.
    SetAttributes(Option<u64>),
    Open,
    Read {
        offset: u64,
        length: u32,
    },
    Write {
        offset: u64,
        /// The open flags of the file (`O_…`).
        flags: u32,
        bytes: &'a [u8],
    },
    SizeOfSystem,
    Release,
    /// `fsync`, or a descriptor of the file was closed.
    Flush,
    Allocate {
        offset: u64,
        length: u64,
        mode: u32,
    },
    /// Where the next data or hole begins.
    Seek {
        offset: u64,
        whence: u32,
    },
    /// Has no reply.
    Forget,
    /// The file system is unmounted.
    Destroy,
    /// Any other request; a file system of this kind need not support it.
    Other,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?.try_into().ok()?;
    Some(u32::from_ne_bytes(four))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?.try_into().ok()?;
    Some(u64::from_ne_bytes(eight))
}

/// Parses the message of one read of the device: the request's number, and the request. `None` if the message is
/// incomplete.
pub(super) fn parse(message: &[u8]) -> Option<(u64, Ask<'_>)> {
    let length = usize::try_from(u32_at(message, 0)?).ok()?;
    if length != message.len() || length < HEADER_BYTES {
        return None;
    }
    let unique = u64_at(message, 8)?;
    let body = &message[HEADER_BYTES..];
    let ask = match u32_at(message, 4)? {
        2 | 42 => Ask::Forget,
        3 => Ask::GetAttributes,
        4 => {
            let sets_size = u32_at(body, 0)? & SET_SIZE != 0;
            let size = u64_at(body, 16)?;
            Ask::SetAttributes(sets_size.then_some(size))
        }
        14 => Ask::Open,
        15 => Ask::Read {
            offset: u64_at(body, 8)?,
            length: u32_at(body, 16)?,
        },
        16 => {
            let length = usize::try_from(u32_at(body, 16)?).ok()?;
            let from = WRITE_HEAD_BYTES - HEADER_BYTES;
            Ask::Write {
                offset: u64_at(body, 8)?,
                flags: u32_at(body, 32)?,
                bytes: body.get(from..from.checked_add(length)?)?,
            }
        }
        17 => Ask::SizeOfSystem,
        18 => Ask::Release,
        20 | 25 => Ask::Flush,
        38 => Ask::Destroy,
        43 => Ask::Allocate {
            offset: u64_at(body, 8)?,
            length: u64_at(body, 16)?,
            mode: u32_at(body, 24)?,
        },
        46 => Ask::Seek {
            offset: u64_at(body, 8)?,
            whence: u32_at(body, 16)?,
        },
        _ => Ask::Other,
    };
    Some((unique, ask))
}

/// Bytes of a reply's head.
pub(super) const REPLY_HEAD_BYTES: usize = 16;

/// The head of a reply to request `unique` with `more` bytes of data, or with an error and no data.
pub(super) fn reply_head(unique: u64, errno: i32, more: usize) -> [u8; REPLY_HEAD_BYTES] {
    let length = u32::try_from(REPLY_HEAD_BYTES + more).expect("replies are short");
    let mut head = [0; REPLY_HEAD_BYTES];
    head[..4].copy_from_slice(&length.to_ne_bytes());
    head[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    head[8..].copy_from_slice(&unique.to_ne_bytes());
    head
}

/// The reply to [`Ask::Write`].
pub(super) fn written(length: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&length.to_ne_bytes());
    bytes
}

/// The reply to [`Ask::Open`].
pub(super) fn opened() -> [u8; 16] {
    let mut bytes = [0; 16];
    let flags = OPEN_DIRECT_IO | OPEN_PARALLEL_DIRECT_WRITES;
    bytes[8..12].copy_from_slice(&flags.to_ne_bytes());
    bytes
}

/// The file's attributes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attributes {
    pub(super) size_bytes: u64,
    /// All its times, since 1970.
    pub(super) since: std::time::Duration,
    pub(super) user: u32,
    pub(super) group: u32,
    pub(super) block_bytes: u32,
}

/// The reply to [`Ask::GetAttributes`] and [`Ask::SetAttributes`]. Its validity time is 0, so the kernel does not
/// cache it: a volume can be resized, and with cached attributes a mount would look alive after its server was
/// killed.
pub(super) fn attributes(of: &Attributes) -> Vec<u8> {
    let mode = libc_regular() | (Mode::RUSR | Mode::WUSR).bits();
    let seconds = of.since.as_secs();
    let nanos = of.since.subsec_nanos();
    let inode = 1_u64;
    let mut bytes = vec![0; 16];
    for word in [
        inode,
        of.size_bytes,
        of.size_bytes / 512,
        seconds,
        seconds,
        seconds,
    ] {
        bytes.extend(word.to_ne_bytes());
    }
    let (links, device, flags) = (1, 0, 0);
    for word in [
        nanos,
        nanos,
        nanos,
        mode,
        links,
        of.user,
        of.group,
        device,
        of.block_bytes,
        flags,
    ] {
        bytes.extend(word.to_ne_bytes());
    }
    bytes
}

fn libc_regular() -> u32 {
    rustix::fs::FileType::RegularFile.as_raw_mode()
}

/// The reply to [`Ask::SizeOfSystem`]: no free space, one file.
pub(super) fn size_of_system(blocks: u64, block_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(80);
    let (free, available, files, files_free) = (0, 0, 1, 0);
    for word in [blocks, free, available, files, files_free] {
        bytes.extend(u64::to_ne_bytes(word));
    }
    let name_bytes_max = 255;
    for word in [block_bytes, name_bytes_max, block_bytes] {
        bytes.extend(u32::to_ne_bytes(word));
    }
    bytes.resize(80, 0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(opcode: u32, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap();
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(opcode.to_ne_bytes());
        bytes.extend(77_u64.to_ne_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend(body);
        bytes
    }

    #[test]
    fn a_write_is_told_with_its_bytes_and_a_cut_one_is_none() {
        let mut body = vec![0; 40];
        body[8..16].copy_from_slice(&8192_u64.to_ne_bytes());
        body[16..20].copy_from_slice(&5_u32.to_ne_bytes());
        body[32..36].copy_from_slice(&3_u32.to_ne_bytes());
        body.extend(b"hello");
        let whole = message(16, &body);
        let write = Ask::Write {
            offset: 8192,
            flags: 3,
            bytes: b"hello",
        };
        assert_eq!(parse(&whole), Some((77, write)));
        for length in 0..whole.len() {
            assert_eq!(parse(&whole[..length]), None, "{length} bytes");
        }
        // Its length field exceeds the message.
        body[16..20].copy_from_slice(&u32::MAX.to_ne_bytes());
        assert_eq!(parse(&message(16, &body)), None);
    }

    #[test]
    fn what_is_not_known_is_other_and_what_is_short_is_none() {
        assert_eq!(parse(&message(9999, &[])), Some((77, Ask::Other)));
        for opcode in [4, 15, 16, 43, 46] {
            assert_eq!(parse(&message(opcode, &[0; 4])), None, "{opcode}");
        }
    }

    #[test]
    fn replies_have_the_lengths_that_the_kernel_expects() {
        let attributes = attributes(&Attributes {
            size_bytes: 1 << 30,
            since: std::time::Duration::new(5, 6),
            user: 1,
            group: 2,
            block_bytes: 4096,
        });
        assert_eq!(attributes.len(), 104);
        assert_eq!(u32_at(&attributes, 76), Some(0o100_600), "a regular file");
        assert_eq!(size_of_system(1, 4096).len(), 80);
        let head = reply_head(9, 5, 0);
        assert_eq!((u32_at(&head, 0), u64_at(&head, 8)), (Some(16), Some(9)));
        assert_eq!(head[4..8], (-5_i32).to_ne_bytes());
    }
}
