//! Replies of the transmission phase.
//!
//! A simple reply is sixteen bytes and, after a successful read, the data. A structured reply is a sequence of
//! chunks, the last one flagged. Here a read's data is one chunk, because the device returns the data in one piece;
//! an error is a chunk with a message.

use super::{BASE_ALLOCATION_ID, Fields, SIMPLE_REPLY_MAGIC, STRUCTURED_REPLY_MAGIC, chunk};

/// Bytes of a simple reply without data.
pub const SIMPLE_REPLY_BYTES: usize = 16;
/// Bytes of a chunk's header.
pub const STRUCTURED_REPLY_BYTES: usize = 20;

/// A simple reply's header. `error` 0 is success.
#[must_use]
pub fn encode_simple_reply(error: u32, cookie: u64) -> [u8; SIMPLE_REPLY_BYTES] {
    let mut bytes = [0; SIMPLE_REPLY_BYTES];
    bytes[0..4].copy_from_slice(&SIMPLE_REPLY_MAGIC.to_be_bytes());
    bytes[4..8].copy_from_slice(&error.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes
}

/// The header of a reply's last chunk.
#[must_use]
pub fn encode_structured_header(
    kind: u16,
    cookie: u64,
    length: u32,
) -> [u8; STRUCTURED_REPLY_BYTES] {
    let mut bytes = [0; STRUCTURED_REPLY_BYTES];
    bytes[0..4].copy_from_slice(&STRUCTURED_REPLY_MAGIC.to_be_bytes());
    bytes[4..6].copy_from_slice(&chunk::FLAG_DONE.to_be_bytes());
    bytes[6..8].copy_from_slice(&kind.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..20].copy_from_slice(&length.to_be_bytes());
    bytes
}

/// What precedes the `length` bytes of a read's data: header and offset.
#[must_use]
pub fn encode_read_chunk(
    cookie: u64,
    offset: u64,
    length: u32,
) -> [u8; STRUCTURED_REPLY_BYTES + 8] {
    let mut bytes = [0; STRUCTURED_REPLY_BYTES + 8];
    let header = encode_structured_header(chunk::OFFSET_DATA, cookie, length.saturating_add(8));
    bytes[..STRUCTURED_REPLY_BYTES].copy_from_slice(&header);
    bytes[STRUCTURED_REPLY_BYTES..].copy_from_slice(&offset.to_be_bytes());
    bytes
}

/// A whole error chunk. The message is for people and is cut at 255 bytes.
#[must_use]
pub fn encode_error_chunk(cookie: u64, error: u32, message: &str) -> Vec<u8> {
    let message = &message.as_bytes()[..message.len().min(255)];
    let length = u16::try_from(message.len()).unwrap_or(0);
    let mut bytes = encode_structured_header(chunk::ERROR, cookie, 6 + u32::from(length)).to_vec();
    bytes.extend(error.to_be_bytes());
    bytes.extend(length.to_be_bytes());
    bytes.extend(message);
    bytes
}

/// A whole block status chunk for `base:allocation`. `extents` are (bytes, state) pairs.
#[must_use]
pub fn encode_block_status(cookie: u64, extents: &[(u32, u32)]) -> Vec<u8> {
    let length = u32::try_from(4 + 8 * extents.len()).unwrap_or(u32::MAX);
    let mut bytes = encode_structured_header(chunk::BLOCK_STATUS, cookie, length).to_vec();
    bytes.extend(BASE_ALLOCATION_ID.to_be_bytes());
    for (length, state) in extents {
        bytes.extend(length.to_be_bytes());
        bytes.extend(state.to_be_bytes());
    }
    bytes
}

/// One extent of a block status reply, as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Number of bytes.
    pub length: u32,
    /// See [`chunk::STATE_HOLE`] and [`chunk::STATE_ZERO`].
    pub state: u32,
}

/// The header of a reply as a client sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyHeader {
    /// Complete, but for a successful read's data.
    Simple {
        /// The request's.
        cookie: u64,
        /// 0 for success.
        error: u32,
    },
    /// A chunk; `length` more bytes follow.
    Chunk {
        /// The request's.
        cookie: u64,
        /// See [`chunk`].
        kind: u16,
        /// True if this is the reply's last chunk.
        done: bool,
        /// Bytes that follow.
        length: u32,
    },
}

impl ReplyHeader {
    /// Bytes of the header that begins with this magic number.
    #[must_use]
    pub fn bytes(magic: [u8; 4]) -> Option<usize> {
        match u32::from_be_bytes(magic) {
            SIMPLE_REPLY_MAGIC => Some(SIMPLE_REPLY_BYTES),
            STRUCTURED_REPLY_MAGIC => Some(STRUCTURED_REPLY_BYTES),
            _ => None,
        }
    }

    /// Reads a header from the front of `bytes`; `None` if it is short or has the wrong magic.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut fields = Fields(bytes);
        match fields.u32()? {
            SIMPLE_REPLY_MAGIC => {
                let error = fields.u32()?;
                let cookie = fields.u64()?;
                Some(Self::Simple { cookie, error })
            }
            STRUCTURED_REPLY_MAGIC => {
                let flags = fields.u16()?;
                let kind = fields.u16()?;
                Some(Self::Chunk {
                    cookie: fields.u64()?,
                    kind,
                    done: flags & chunk::FLAG_DONE != 0,
                    length: fields.u32()?,
                })
            }
            _ => None,
        }
    }
}

impl Status {
    /// Reads the payload of a block status chunk of `base:allocation`.
    #[must_use]
    pub fn parse_all(payload: &[u8]) -> Option<Vec<Self>> {
        let mut fields = Fields(payload);
        if fields.u32()? != BASE_ALLOCATION_ID {
            return None;
        }
        let mut extents = Vec::new();
        while !fields.is_empty() {
            extents.push(Self {
                length: fields.u32()?,
                state: fields.u32()?,
            });
        }
        Some(extents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_parse_back() {
        assert_eq!(
            ReplyHeader::parse(&encode_simple_reply(28, 9)),
            Some(ReplyHeader::Simple {
                cookie: 9,
                error: 28
            })
        );
        assert_eq!(
            ReplyHeader::parse(&encode_read_chunk(7, 4096, 100)),
            Some(ReplyHeader::Chunk {
                cookie: 7,
                kind: chunk::OFFSET_DATA,
                done: true,
                length: 108
            })
        );
    }

    #[test]
    fn extents_parse_back_and_a_cut_one_is_refused() {
        let bytes = encode_block_status(3, &[(4096, 0), (8192, 3)]);
        let payload = &bytes[STRUCTURED_REPLY_BYTES..];
        let extents = Status::parse_all(payload).unwrap();
        assert_eq!(extents.len(), 2);
        assert_eq!(extents[1].length, 8192);
        assert_eq!(Status::parse_all(&payload[..payload.len() - 1]), None);
    }
}
