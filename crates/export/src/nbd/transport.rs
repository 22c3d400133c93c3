//! A non-blocking socket, with or without TLS on it.

use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recv, recvmsg, send, sendmsg,
};

use super::psk::{Context, PskStream};

/// Bytes of plain text and records that TLS buffers before it takes no more.
pub(super) const TLS_BUFFER_BYTES: usize = 256 << 10;

/// The socket. All calls return `WouldBlock` instead of waiting.
pub(super) struct Transport {
    socket: Arc<OwnedFd>,
    tls: Option<Tls>,
}

/// The TLS implementation.
enum Tls {
    /// With certificates.
    Rustls(Box<rustls::Connection>),
    /// With pre-shared keys.
    Psk(Box<PskStream>),
}

impl Transport {
    pub(super) fn plain(socket: OwnedFd) -> Self {
        let socket = Arc::new(socket);
        Self { socket, tls: None }
    }

    /// From here on all data goes through `tls`.
    pub(super) fn begin_tls(&mut self, mut tls: rustls::Connection) {
        tls.set_buffer_limit(Some(TLS_BUFFER_BYTES));
        self.tls = Some(Tls::Rustls(Box::new(tls)));
    }

    /// The same, as a server with pre-shared keys.
    pub(super) fn begin_psk(&mut self, context: &Context) -> io::Result<()> {
        let stream = PskStream::accept(context, Arc::clone(&self.socket))?;
        self.tls = Some(Tls::Psk(Box::new(stream)));
        Ok(())
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Receives into `buffers`, in order. 0: the peer sends no more.
    pub(super) fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let tls = match &mut self.tls {
            Some(Tls::Rustls(tls)) => tls,
            Some(Tls::Psk(tls)) => return tls.receive(buffers),
            None => return receive_plain(&self.socket, buffers),
        };
        loop {
            match read_plain(tls, buffers) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // A peer that closes the socket without close_notify counts as disconnected.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(0),
                other => return other,
            }
            if tls.read_tls(&mut Socket(&self.socket))? == 0 {
                return Ok(0);
            }
            let processed = tls.process_new_packets();
            // Send handshake messages, or the alert that reports the error.
            let written = write_tls(tls, &self.socket);
            processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            written?;
        }
    }

    /// Sends from `buffers`, in order. Returns how many bytes were taken.
    pub(super) fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let tls = match &mut self.tls {
            Some(Tls::Rustls(tls)) => tls,
            Some(Tls::Psk(tls)) => return tls.send(buffers),
            None => {
                let mut none = SendAncillaryBuffer::default();
                let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
                return Ok(sendmsg(&*self.socket, buffers, &mut none, flags)?);
            }
        };
        let mut count = 0;
        for buffer in buffers {
            let mut rest: &[u8] = buffer;
            while !rest.is_empty() {
                let taken = tls.writer().write(rest)?;
                rest = &rest[taken..];
                count += taken;
                if !rest.is_empty() && !write_tls(tls, &self.socket)? {
                    return match count {
                        0 => Err(io::ErrorKind::WouldBlock.into()),
                        _ => Ok(count),
                    };
                }
            }
        }
        write_tls(tls, &self.socket)?;
        Ok(count)
    }

    /// Sends records that TLS has buffered. True if all are sent.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        match &mut self.tls {
            Some(Tls::Rustls(tls)) => write_tls(tls, &self.socket),
            Some(Tls::Psk(tls)) => tls.flush(),
            None => Ok(true),
        }
    }

    /// True if TLS has buffered records to send.
    pub(super) fn wants_write(&self) -> bool {
        match &self.tls {
            Some(Tls::Rustls(tls)) => tls.wants_write(),
            Some(Tls::Psk(tls)) => tls.wants_write(),
            None => false,
        }
    }

    pub(super) const fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Sends close_notify if the connection uses TLS.
    pub(super) fn close_notify(&mut self) {
        match &mut self.tls {
            Some(Tls::Rustls(tls)) => {
                tls.send_close_notify();
                let _ = write_tls(tls, &self.socket);
            }
            Some(Tls::Psk(tls)) => tls.close_notify(),
            None => {}
        }
    }
}

fn receive_plain(socket: &OwnedFd, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    // There is no room for ancillary data, so the kernel closes descriptors that a peer passes.
    let mut none = RecvAncillaryBuffer::default();
    let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
    Ok(recvmsg(socket, buffers, &mut none, flags)?.bytes)
}

/// Takes decrypted bytes that are already buffered.
fn read_plain(tls: &mut rustls::Connection, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
    let mut count = 0;
    for buffer in buffers {
        let mut filled = 0;
        while filled < buffer.len() {
            match tls.reader().read(&mut buffer[filled..]) {
                Ok(read) if read > 0 => filled += read,
                // Return data first; the next call reports the end or the error.
                _ if count + filled > 0 => return Ok(count + filled),
                other => return other,
            }
        }
        count += filled;
    }
    Ok(count)
}

/// Sends records. True if all are sent, false if the socket takes no more.
fn write_tls(tls: &mut rustls::Connection, socket: &OwnedFd) -> io::Result<bool> {
    while tls.wants_write() {
        match tls.write_tls(&mut Socket(socket)) {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The socket as TLS's reader and writer.
struct Socket<'a>(&'a OwnedFd);

impl Read for Socket<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(self.0, buffer, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(
            self.0,
            bytes,
            SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
        )?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
