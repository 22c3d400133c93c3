//! A blocking client, for the demo's copying tool and for tests.
//!
//! Requests are pipelined: [`Client::submit`] queues a request and [`Client::wait`] returns the next reply, of any
//! request. While the client waits, it both sends and receives; otherwise client and server could wait for each other
//! with full sockets. The plain methods (`read`, `write`, …) send one request and wait for its reply. Do not use them
//! while pipelined requests are in flight.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::time::Duration;

mod conversation;
mod negotiation;

use block::Hint;

use super::protocol::{Command, RequestHeader, Status, command_flag};
use super::tls::{ClientTls, TlsError};
use super::uri::{Place, Uri};
use conversation::Conversation;

/// Requests are sent once so many bytes of them are queued.
const SEND_BYTES: usize = 256 << 10;

/// Why a client's operation failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server answers.
    #[error("cannot connect to {place:?}: {source}")]
    Connect {
        /// The server's place.
        place: Place,
        /// The operating system's error.
        source: io::Error,
    },
    /// The server does not follow the protocol.
    #[error("the server does not speak NBD as expected: {what}")]
    Protocol {
        /// What was wrong.
        what: &'static str,
    },
    /// The server has no such export.
    #[error("the server does not serve `{name}`")]
    NoSuchExport {
        /// The name that was requested.
        name: String,
    },
    /// The server refuses without TLS.
    #[error("the server wants TLS")]
    TlsRequired,
    /// The server refuses another option.
    #[error("the server refuses {what}: {message}")]
    Refused {
        /// Which option.
        what: &'static str,
        /// The server's message.
        message: String,
    },
    /// TLS cannot be set up on this side.
    #[error("TLS is asked for without saying whom to trust")]
    NoTrust,
    /// The files for TLS cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The connection failed.
    #[error("the connection failed: {0}")]
    Io(#[from] io::Error),
    /// The server closed the connection.
    #[error("the server closed the connection")]
    Closed,
    /// The server answered a request with an error.
    #[error("the server answered with error {errno}: {}", io::Error::from_raw_os_error(errno.cast_signed()))]
    Remote {
        /// The protocol's number, which equals Linux's.
        errno: u32,
    },
}

impl Hint for ClientError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Connect { .. } => "check that the server is running",
            Self::Protocol { .. } => "check the address",
            Self::NoSuchExport { .. } => "list its exports to see the names",
            Self::TlsRequired => "use an nbds:// or nbds+unix:// URI",
            Self::NoTrust => "give a certificate",
            Self::Tls(error) => return error.hint(),
            Self::Io(_) | Self::Closed => "connect again",
            Self::Refused { .. } | Self::Remote { .. } => return None,
        };
        Some(hint.into())
    }
}

/// A server's description of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportInfo {
    /// Its full name.
    pub name: String,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// See [`super::protocol::export_flag`].
    pub flags: u16,
    /// Minimum, preferred and maximum request in bytes.
    pub block_sizes: (u32, u32, u32),
    /// True if block status can be queried.
    pub allocation: bool,
}

/// A request, with the memory that it needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Fill the buffer from `offset`.
    Read {
        /// First byte.
        offset: u64,
        /// Its length is the request's.
        buffer: Vec<u8>,
    },
    /// Store the buffer at `offset`.
    Write {
        /// First byte.
        offset: u64,
        /// The bytes.
        buffer: Vec<u8>,
        /// Durable before the reply.
        fua: bool,
    },
    /// Everything acknowledged becomes durable.
    Flush,
    /// The range is no longer needed.
    Trim {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
        /// Durable before the reply.
        fua: bool,
    },
    /// Make the range read as zeros.
    WriteZeroes {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
        /// See [`command_flag`].
        flags: u16,
    },
    /// The range will be read soon.
    Cache {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
    /// Report which parts of the range are allocated.
    BlockStatus {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        length: u32,
    },
}

/// The result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// What [`Client::submit`] returned for it.
    pub cookie: u64,
    /// 0, or the protocol's error number.
    pub errno: u32,
    /// The request's own buffer: the data that was read, or that was written, for reuse.
    pub buffer: Vec<u8>,
    /// Extents of a block status request.
    pub extents: Vec<Status>,
}

impl Reply {
    /// The reply, unless it carries an error.
    ///
    /// # Errors
    /// [`ClientError::Remote`] with the server's number.
    pub fn ok(self) -> Result<Self, ClientError> {
        match self.errno {
            0 => Ok(self),
            errno => Err(ClientError::Remote { errno }),
        }
    }
}

/// A connection to an export.
pub struct Client {
    info: ExportInfo,
    conversation: Conversation,
    pending: HashMap<u64, Pending>,
    next_cookie: u64,
}

/// A request without a reply so far.
#[derive(Default)]
struct Pending {
    reading: bool,
    /// First byte of a read. Chunks contain absolute offsets.
    offset: u64,
    buffer: Vec<u8>,
    extents: Vec<Status>,
    errno: u32,
}

impl Client {
    /// Connects to the export that `uri` names. `tls` has the trusted certificates, for a URI with TLS.
    ///
    /// # Errors
    /// If no server answers, or the server does not serve the export to this client.
    pub fn connect(uri: &Uri, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let mut conversation = Conversation::connect(uri, tls)?;
        let info = conversation.go(&uri.name)?;
        Ok(Self {
            info,
            conversation,
            pending: HashMap::new(),
            next_cookie: 1,
        })
    }

    /// Names of all exports of the server in `uri`.
    ///
    /// # Errors
    /// If no server answers, or the server refuses to list.
    pub fn list(uri: &Uri, tls: Option<&ClientTls>) -> Result<Vec<String>, ClientError> {
        let mut conversation = Conversation::connect(uri, tls)?;
        let names = conversation.list()?;
        conversation.abort();
        Ok(names)
    }

    /// The server's description of the export.
    #[must_use]
    pub const fn info(&self) -> &ExportInfo {
        &self.info
    }

    /// Sets how long to wait for any input from the server; a longer wait is an error. No limit by default.
    pub const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.conversation.set_timeout(timeout);
    }

    /// The number of requests without a reply so far.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.len()
    }

    /// Queues a request and returns its cookie. Queued requests are sent when [`Client::wait`] has no reply in its
    /// buffer, when enough bytes are queued, or by [`Client::send`].
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn submit(&mut self, operation: Operation) -> Result<u64, ClientError> {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        let (header, pending, payload) = operation.split(cookie);
        self.conversation.queue(&header.encode());
        if payload {
            // Copied: the caller gets the buffer back with the reply.
            self.conversation.queue(&pending.buffer);
        }
        self.pending.insert(cookie, pending);
        if self.conversation.queued_bytes() >= SEND_BYTES {
            self.conversation.send_some()?;
        }
        Ok(cookie)
    }

    /// Sends queued requests, as far as the socket takes them without waiting.
    ///
    /// # Errors
    /// When the connection has failed.
    pub fn send(&mut self) -> Result<(), ClientError> {
        self.conversation.send_some()
    }

    /// Waits for the next reply, of any request. `None` if nothing is in flight.
    ///
    /// # Errors
    /// When the connection fails. An error of the request itself is in the reply.
    pub fn wait(&mut self) -> Result<Option<Reply>, ClientError> {
        if self.pending.is_empty() {
            return Ok(None);
        }
        self.conversation.next_reply(&mut self.pending).map(Some)
    }

    fn one(&mut self, operation: Operation) -> Result<Reply, ClientError> {
        let cookie = self.submit(operation)?;
        loop {
            match self.wait()? {
                Some(reply) if reply.cookie == cookie => return reply.ok(),
                Some(_) => {}
                None => return Err(ClientError::Closed),
            }
        }
    }

    /// Reads `length` bytes.
    ///
    /// # Errors
    /// When the connection fails or the server answers with an error; likewise below.
    pub fn read(&mut self, offset: u64, length: usize) -> Result<Vec<u8>, ClientError> {
        let buffer = vec![0; length];
        Ok(self.one(Operation::Read { offset, buffer })?.buffer)
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn write(&mut self, offset: u64, bytes: &[u8], fua: bool) -> Result<(), ClientError> {
        let buffer = bytes.to_vec();
        self.one(Operation::Write {
            offset,
            buffer,
            fua,
        })
        .map(drop)
    }

    /// Makes everything acknowledged durable.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn flush(&mut self) -> Result<(), ClientError> {
        self.one(Operation::Flush).map(drop)
    }

    /// Trims a range.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn trim(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        let fua = false;
        self.one(Operation::Trim {
            offset,
            length,
            fua,
        })
        .map(drop)
    }

    /// Zeroes a range. `flags` as in [`command_flag`].
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn write_zeroes(
        &mut self,
        offset: u64,
        length: u32,
        flags: u16,
    ) -> Result<(), ClientError> {
        self.one(Operation::WriteZeroes {
            offset,
            length,
            flags,
        })
        .map(drop)
    }

    /// Sends the hint that a range will be read soon.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn cache(&mut self, offset: u64, length: u32) -> Result<(), ClientError> {
        self.one(Operation::Cache { offset, length }).map(drop)
    }

    /// Queries which parts of a range are allocated.
    ///
    /// # Errors
    /// As [`Client::read`].
    pub fn block_status(&mut self, offset: u64, length: u32) -> Result<Vec<Status>, ClientError> {
        Ok(self.one(Operation::BlockStatus { offset, length })?.extents)
    }

    /// Disconnects. The server finishes requests in flight before it closes; this waits for the close.
    ///
    /// # Errors
    /// When the connection had failed before.
    pub fn disconnect(mut self) -> Result<(), ClientError> {
        while self.wait()?.is_some() {}
        let header = RequestHeader {
            flags: 0,
            command: Command::Disconnect.number(),
            cookie: self.next_cookie,
            offset: 0,
            length: 0,
        };
        self.conversation.queue(&header.encode());
        self.conversation.drain()
    }
}

impl Operation {
    /// The request's header, the state until the reply, and whether the buffer is sent as payload.
    fn split(self, cookie: u64) -> (RequestHeader, Pending, bool) {
        let fua = |fua| if fua { command_flag::FUA } else { 0 };
        let mut pending = Pending::default();
        let (command, flags, offset, length) = match self {
            Self::Read { offset, buffer } => {
                pending.reading = true;
                pending.offset = offset;
                pending.buffer = buffer;
                (Command::Read, 0, offset, len32(&pending.buffer))
            }
            Self::Write {
                offset,
                buffer,
                fua: durable,
            } => {
                pending.buffer = buffer;
                (Command::Write, fua(durable), offset, len32(&pending.buffer))
            }
            Self::Flush => (Command::Flush, 0, 0, 0),
            Self::Trim {
                offset,
                length,
                fua: durable,
            } => (Command::Trim, fua(durable), offset, length),
            Self::WriteZeroes {
                offset,
                length,
                flags,
            } => (Command::WriteZeroes, flags, offset, length),
            Self::Cache { offset, length } => (Command::Cache, 0, offset, length),
            Self::BlockStatus { offset, length } => (Command::BlockStatus, 0, offset, length),
        };
        let header = RequestHeader {
            flags,
            command: command.number(),
            cookie,
            offset,
            length,
        };
        (header, pending, command == Command::Write)
    }
}

/// # Panics
/// If a buffer has 4 GiB or more, a hundred times a server's limit.
fn len32(buffer: &[u8]) -> u32 {
    u32::try_from(buffer.len()).expect("a request is shorter than 4 GiB")
}
