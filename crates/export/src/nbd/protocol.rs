//! The bytes of the protocol: numbers, headers, and parsers that never panic.
//!
//! Everything is big-endian. Names of constants are those of the protocol document without their `NBD_` prefix.
//! Parsers take slices of exactly the length that they document. Invalid messages are returned as error values; the
//! caller decides between an error reply and hanging up.

mod option;
mod reply;
mod request;

pub use option::{
    InfoRequest, MetaRequest, OPTION_HEADER_BYTES, OPTION_REPLY_HEADER_BYTES, OptionHeader,
    OptionProblem, OptionReplyHeader, OptionRequest, encode_info_block_size, encode_info_export,
    encode_option, encode_option_reply,
};
pub use reply::{
    ReplyHeader, SIMPLE_REPLY_BYTES, STRUCTURED_REPLY_BYTES, Status, encode_block_status,
    encode_error_chunk, encode_read_chunk, encode_simple_reply, encode_structured_header,
};
pub use request::{Command, REQUEST_BYTES, RequestHeader};

/// "NBDMAGIC", the first eight bytes that a server sends.
pub const NBDMAGIC: u64 = 0x4e42_444d_4147_4943;
/// "IHAVEOPT", the server's next eight bytes, and the start of each option.
pub const IHAVEOPT: u64 = 0x4948_4156_454f_5054;
/// Start of a server's answer to an option.
pub const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
/// Start of a request.
pub const REQUEST_MAGIC: u32 = 0x2560_9513;
/// Start of a simple reply.
pub const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
/// Start of a structured reply chunk.
pub const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

/// Handshake flag, server and client: options get answers ("fixed newstyle").
pub const FLAG_FIXED_NEWSTYLE: u16 = 1 << 0;
/// Handshake flag, server and client: no 124 zeros after the answer to `EXPORT_NAME`.
pub const FLAG_NO_ZEROES: u16 = 1 << 1;

/// The longest option that is read; a longer one ends the connection. Export names and context queries are at most
/// [`STRING_BYTES_MAX`] each, so there is room for several.
pub const OPTION_BYTES_MAX: u32 = 32 << 10;
/// Maximum number of options before an export is chosen; then the server hangs up. Enough to list and query several
/// hundred exports on one connection.
pub const OPTIONS_MAX: u32 = 1024;
/// The longest string of the protocol ("Terminology": 4096 bytes).
pub const STRING_BYTES_MAX: usize = 4096;
/// The longest read or write that is served. Clients assume the same limit if none was negotiated ("Block size
/// constraints": 2^25).
pub const REQUEST_BYTES_MAX: u32 = 32 << 20;

/// Numbers of options.
pub mod opt {
    /// Choose an export, the old way: no error can be returned.
    pub const EXPORT_NAME: u32 = 1;
    /// End the session.
    pub const ABORT: u32 = 2;
    /// Names of all exports.
    pub const LIST: u32 = 3;
    /// Begin TLS.
    pub const STARTTLS: u32 = 5;
    /// Query an export.
    pub const INFO: u32 = 6;
    /// Choose an export.
    pub const GO: u32 = 7;
    /// Ask for structured replies.
    pub const STRUCTURED_REPLY: u32 = 8;
    /// List metadata contexts.
    pub const LIST_META_CONTEXT: u32 = 9;
    /// Choose metadata contexts.
    pub const SET_META_CONTEXT: u32 = 10;
}

/// Types of answers to options.
pub mod rep {
    /// Done.
    pub const ACK: u32 = 1;
    /// One export's name.
    pub const SERVER: u32 = 2;
    /// One piece of information.
    pub const INFO: u32 = 3;
    /// One metadata context.
    pub const META_CONTEXT: u32 = 4;
    /// Set in all error types.
    pub const FLAG_ERROR: u32 = 1 << 31;
    /// The option is not supported.
    pub const ERR_UNSUP: u32 = FLAG_ERROR | 1;
    /// The option is not allowed here.
    pub const ERR_POLICY: u32 = FLAG_ERROR | 2;
    /// The option's data is not well formed, or it came at the wrong time.
    pub const ERR_INVALID: u32 = FLAG_ERROR | 3;
    /// TLS is needed first.
    pub const ERR_TLS_REQD: u32 = FLAG_ERROR | 5;
    /// There is no such export.
    pub const ERR_UNKNOWN: u32 = FLAG_ERROR | 6;
    /// The server is shutting down.
    pub const ERR_SHUTDOWN: u32 = FLAG_ERROR | 7;
    /// The option is longer than the server accepts.
    pub const ERR_TOO_BIG: u32 = FLAG_ERROR | 9;
}

/// Types of information in the answers to `INFO` and `GO`.
pub mod info {
    /// Size and transmission flags.
    pub const EXPORT: u16 = 0;
    /// The export's canonical name.
    pub const NAME: u16 = 1;
    /// Minimum, preferred and maximum request size.
    pub const BLOCK_SIZE: u16 = 3;
}

/// Transmission flags: what an export can do.
pub mod export_flag {
    /// Always set.
    pub const HAS_FLAGS: u16 = 1 << 0;
    /// Writes are refused.
    pub const READ_ONLY: u16 = 1 << 1;
    /// Flush is supported.
    pub const SEND_FLUSH: u16 = 1 << 2;
    /// Force unit access is supported.
    pub const SEND_FUA: u16 = 1 << 3;
    /// Trim is supported.
    pub const SEND_TRIM: u16 = 1 << 5;
    /// Writing zeros is supported.
    pub const SEND_WRITE_ZEROES: u16 = 1 << 6;
    /// "Don't fragment" is supported (structured replies only).
    pub const SEND_DF: u16 = 1 << 7;
    /// A flush on one connection covers what was acknowledged on all.
    pub const CAN_MULTI_CONN: u16 = 1 << 8;
    /// The cache hint is supported.
    pub const SEND_CACHE: u16 = 1 << 10;
    /// "Zero only if that is fast" is supported.
    pub const SEND_FAST_ZERO: u16 = 1 << 11;
}

/// Flags of a request.
pub mod command_flag {
    /// Durable before the reply.
    pub const FUA: u16 = 1 << 0;
    /// The zeros must occupy space.
    pub const NO_HOLE: u16 = 1 << 1;
    /// The read's data must come in one piece.
    pub const DF: u16 = 1 << 2;
    /// One extent is enough.
    pub const REQ_ONE: u16 = 1 << 3;
    /// Fail rather than write zeros slowly.
    pub const FAST_ZERO: u16 = 1 << 4;
    /// All flags that this server supports.
    pub const KNOWN: u16 = FUA | NO_HOLE | DF | REQ_ONE | FAST_ZERO;
}

/// Error numbers in replies ("Error values").
pub mod errno {
    /// Not permitted: a write to a read-only export.
    pub const EPERM: u32 = 1;
    /// Input or output error.
    pub const EIO: u32 = 5;
    /// Not a valid request.
    pub const EINVAL: u32 = 22;
    /// No space left, or a write past the end.
    pub const ENOSPC: u32 = 28;
    /// Not supported: zeroing would not be fast.
    pub const ENOTSUP: u32 = 95;
    /// The server is shutting down.
    pub const ESHUTDOWN: u32 = 108;
}

/// Types of structured reply chunks, their flag, and the states of extents.
pub mod chunk {
    /// Flag: the last chunk of its reply.
    pub const FLAG_DONE: u16 = 1 << 0;
    /// Nothing but the flag.
    pub const NONE: u16 = 0;
    /// Offset and data.
    pub const OFFSET_DATA: u16 = 1;
    /// Offset and length of a hole.
    pub const OFFSET_HOLE: u16 = 2;
    /// Context and extents.
    pub const BLOCK_STATUS: u16 = 5;
    /// Error number and message.
    pub const ERROR: u16 = (1 << 15) | 1;
    /// Error number, message and offset.
    pub const ERROR_OFFSET: u16 = (1 << 15) | 2;
    /// `base:allocation`: the extent occupies no space.
    pub const STATE_HOLE: u32 = 1 << 0;
    /// `base:allocation`: the extent reads as zeros.
    pub const STATE_ZERO: u32 = 1 << 1;
}

/// The one metadata context that is served.
pub const BASE_ALLOCATION: &str = "base:allocation";
/// Its number on the wire.
pub const BASE_ALLOCATION_ID: u32 = 1;

/// Takes big-endian fields off the front of a message.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(head)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }

    fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// A string that is preceded by its length in 32 bits.
    fn string(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.u32()?).ok()?;
        if length > STRING_BYTES_MAX {
            return None;
        }
        std::str::from_utf8(self.bytes(length)?).ok()
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
