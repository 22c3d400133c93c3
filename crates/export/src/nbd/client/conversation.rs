//! The client's end of the connection: queues output, waits, and assembles replies.

use std::collections::HashMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt;

use super::super::protocol::{ReplyHeader, Status, chunk};
use super::super::tls::ClientTls;
use super::super::transport::Transport;
use super::super::uri::{Place, Uri};
use super::{ClientError, Pending, Reply};

/// Maximum bytes per receive besides a read's data. Must exceed the longest chunk without data.
const INPUT_BYTES: usize = 256 << 10;

/// A read's data that is being received into the request's buffer.
struct Data {
    cookie: u64,
    at: usize,
    left: usize,
    done: bool,
}

/// A socket with its output and input buffers.
pub(super) struct Conversation {
    pub(super) transport: Transport,
    timeout: Option<Duration>,
    output: Vec<u8>,
    /// Bytes of the output that have been sent.
    sent: usize,
    input: Box<[u8]>,
    start: usize,
    end: usize,
    data: Option<Data>,
}

impl Conversation {
    /// Connects, handles the greeting, and begins TLS if the URI requests it.
    pub(super) fn connect(uri: &Uri, tls: Option<&ClientTls>) -> Result<Self, ClientError> {
        let socket = open_socket(&uri.place).map_err(|source| ClientError::Connect {
            place: uri.place.clone(),
            source,
        })?;
        let mut conversation = Self {
            transport: Transport::plain(socket),
            timeout: None,
            output: Vec::new(),
            sent: 0,
            input: vec![0; INPUT_BYTES].into_boxed_slice(),
            start: 0,
            end: 0,
            data: None,
        };
        conversation.greet()?;
        if uri.tls {
            let tls = tls.ok_or(ClientError::NoTrust)?;
            // A Unix socket has no host name; certificates for it are issued to localhost.
            let host = match &uri.place {
                Place::Unix(_) => "localhost",
                Place::Tcp(host, _) => host,
            };
            conversation.start_tls(tls, host)?;
        }
        Ok(conversation)
    }

    pub(super) const fn set_timeout(&mut self, timeout: Option<Duration>) {
        self.timeout = timeout;
    }

    /// Appends bytes to the output.
    pub(super) fn queue(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Bytes of the output that have not been sent.
    pub(super) const fn queued_bytes(&self) -> usize {
        self.output.len() - self.sent
    }

    /// Sends as much of the output as the socket takes.
    pub(super) fn send_some(&mut self) -> Result<(), ClientError> {
        while self.queued_bytes() > 0 {
            match self
                .transport
                .send(&[IoSlice::new(&self.output[self.sent..])])
            {
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
        }
        // Move the rest to the front only after more than half was sent: then moving costs less than sending did.
        if self.sent > self.output.len() / 2 {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        if self.transport.wants_write() {
            self.transport.flush()?;
        }
        Ok(())
    }

    /// Waits until the socket is readable or, if there is output, writable.
    fn wait_for_socket(&mut self) -> Result<(), ClientError> {
        let mut flags = PollFlags::IN;
        if self.queued_bytes() > 0 || self.transport.wants_write() {
            flags |= PollFlags::OUT;
        }
        let timeout = self.timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        });
        let mut descriptors = [PollFd::new(self.transport.socket(), flags)];
        match poll(&mut descriptors, timeout.as_ref()) {
            Ok(0) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(io::Error::from(error).into()),
        }
    }

    /// Waits for input and receives once; sends output meanwhile. Input fills `rest`, the rest of a read's buffer,
    /// first. Returns how many bytes went there.
    fn receive(&mut self, rest: &mut [u8]) -> Result<usize, ClientError> {
        loop {
            self.send_some()?;
            if self.start > 0 {
                self.input.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            }
            let rest_len = rest.len();
            let mut buffers = [
                IoSliceMut::new(&mut *rest),
                IoSliceMut::new(&mut self.input[self.end..]),
            ];
            let skip = usize::from(rest_len == 0);
            match self.transport.receive(&mut buffers[skip..]) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(count) => {
                    let direct = count.min(rest_len);
                    self.end += count - direct;
                    return Ok(direct);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait_for_socket()?;
                }
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => {
                    return Err(ClientError::Closed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The next `count` bytes; waits for them.
    pub(super) fn take(&mut self, count: usize) -> Result<&[u8], ClientError> {
        if count > INPUT_BYTES {
            return Err(ClientError::Protocol {
                what: "a message is far too long",
            });
        }
        while self.end - self.start < count {
            self.receive(&mut [])?;
        }
        self.start += count;
        Ok(&self.input[self.start - count..self.start])
    }

    /// True if all received input has been used.
    pub(super) const fn input_is_empty(&self) -> bool {
        self.start == self.end
    }

    /// Sends everything and waits until the server closes.
    pub(super) fn drain(&mut self) -> Result<(), ClientError> {
        loop {
            (self.start, self.end) = (0, 0);
            match self.receive(&mut []) {
                Ok(_) => {}
                Err(ClientError::Closed) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until one of `pending` is answered, and removes it.
    pub(super) fn next_reply(
        &mut self,
        pending: &mut HashMap<u64, Pending>,
    ) -> Result<Reply, ClientError> {
        loop {
            if let Some(data) = self.data.take() {
                let (cookie, done) = (data.cookie, data.done);
                self.receive_data(data, pending)?;
                if done {
                    return finish(cookie, pending);
                }
            }
            let magic = {
                let bytes = self.peek(4)?;
                [bytes[0], bytes[1], bytes[2], bytes[3]]
            };
            let protocol = |what| ClientError::Protocol { what };
            let length = ReplyHeader::bytes(magic).ok_or_else(|| protocol("a reply's magic"))?;
            let header = ReplyHeader::parse(self.take(length)?)
                .ok_or_else(|| protocol("a reply's header"))?;
            let (ReplyHeader::Simple { cookie, .. } | ReplyHeader::Chunk { cookie, .. }) = header;
            let request = pending
                .get_mut(&cookie)
                .ok_or_else(|| protocol("a reply to a request that was not sent"))?;
            match header {
                ReplyHeader::Simple { error, .. } => {
                    if error == 0 && request.reading {
                        let left = request.buffer.len();
                        self.data = Some(Data {
                            cookie,
                            at: 0,
                            left,
                            done: true,
                        });
                        continue;
                    }
                    request.errno = error;
                    return finish(cookie, pending);
                }
                ReplyHeader::Chunk {
                    kind, done, length, ..
                } => {
                    self.take_chunk(cookie, kind, done, length, request)?;
                    if self.data.is_none() && done {
                        return finish(cookie, pending);
                    }
                }
            }
        }
    }

    fn peek(&mut self, count: usize) -> Result<&[u8], ClientError> {
        self.take(count)?;
        self.start -= count;
        Ok(&self.input[self.start..self.start + count])
    }

    fn take_chunk(
        &mut self,
        cookie: u64,
        kind: u16,
        done: bool,
        length: u32,
        request: &mut Pending,
    ) -> Result<(), ClientError> {
        let protocol = |what| ClientError::Protocol { what };
        let length = length as usize;
        match kind {
            chunk::NONE if length == 0 => {}
            chunk::OFFSET_DATA if length > 8 && request.reading => {
                let offset = be64(self.take(8)?);
                let left = length - 8;
                let at = offset
                    .checked_sub(request.offset)
                    .and_then(|at| usize::try_from(at).ok())
                    .filter(|at| {
                        at.checked_add(left)
                            .is_some_and(|end| end <= request.buffer.len())
                    })
                    .ok_or_else(|| protocol("data outside of what was asked for"))?;
                self.data = Some(Data {
                    cookie,
                    at,
                    left,
                    done,
                });
            }
            chunk::OFFSET_HOLE if length == 12 && request.reading => {
                let payload = self.take(12)?;
                let (offset, count) = (be64(payload), be32(&payload[8..]));
                let hole = offset
                    .checked_sub(request.offset)
                    .and_then(|at| usize::try_from(at).ok())
                    .and_then(|at| Some(at..at.checked_add(count as usize)?))
                    .and_then(|range| request.buffer.get_mut(range))
                    .ok_or_else(|| protocol("a hole outside of what was asked for"))?;
                hole.fill(0);
            }
            chunk::BLOCK_STATUS => {
                request.extents = Status::parse_all(self.take(length)?)
                    .ok_or_else(|| protocol("a block status chunk"))?;
            }
            _ if kind & (1 << 15) != 0 && length >= 6 => {
                let errno = be32(self.take(length)?);
                request.errno = if errno == 0 {
                    super::super::protocol::errno::EIO
                } else {
                    errno
                };
            }
            _ => return Err(protocol("an unexpected chunk")),
        }
        Ok(())
    }

    /// Moves a read's data into the request's buffer, from the input first, then from the socket.
    fn receive_data(
        &mut self,
        mut data: Data,
        pending: &mut HashMap<u64, Pending>,
    ) -> Result<(), ClientError> {
        let Some(request) = pending.get_mut(&data.cookie) else {
            return Err(ClientError::Protocol {
                what: "data for nobody",
            });
        };
        while data.left > 0 {
            let target = &mut request.buffer[data.at..data.at + data.left];
            let available = (self.end - self.start).min(data.left);
            let count = if available > 0 {
                let input = &self.input[self.start..self.start + available];
                target[..available].copy_from_slice(input);
                self.start += available;
                available
            } else {
                self.receive(target)?
            };
            data.at += count;
            data.left -= count;
        }
        Ok(())
    }
}

fn finish(cookie: u64, pending: &mut HashMap<u64, Pending>) -> Result<Reply, ClientError> {
    let request = pending.remove(&cookie).ok_or(ClientError::Protocol {
        what: "a reply to a request that was not sent",
    })?;
    Ok(Reply {
        cookie,
        errno: request.errno,
        buffer: request.buffer,
        extents: request.extents,
    })
}

/// The big-endian number at the front; 0 if the bytes are too few, which callers have excluded.
pub(super) fn be64(bytes: &[u8]) -> u64 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u64::from_be_bytes(*bytes))
}

/// As [`be64`].
pub(super) fn be32(bytes: &[u8]) -> u32 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

/// As [`be64`].
pub(super) fn be16(bytes: &[u8]) -> u16 {
    bytes
        .first_chunk()
        .map_or(0, |bytes| u16::from_be_bytes(*bytes))
}

fn open_socket(place: &Place) -> io::Result<OwnedFd> {
    let socket: OwnedFd = match place {
        Place::Unix(path) => UnixStream::connect(path)?.into(),
        Place::Tcp(host, port) => {
            let addresses: Vec<_> = (host.as_str(), *port).to_socket_addrs()?.collect();
            let stream = TcpStream::connect(&*addresses)?;
            stream.set_nodelay(true)?;
            stream.into()
        }
    };
    // Errors only cost speed.
    let _ = sockopt::set_socket_send_buffer_size(&socket, 1 << 20);
    let _ = sockopt::set_socket_recv_buffer_size(&socket, 1 << 20);
    Ok(socket)
}
