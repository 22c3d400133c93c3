//! TLS with pre-shared keys (PSK), for users without certificates.
//!
//! rustls does not support PSK, so OpenSSL handles these connections: TLS 1.3 only, a fresh Diffie-Hellman exchange
//! for each connection, and no session resumption. A client that cannot prove that it has a key gets an alert.
//!
//! OpenSSL reads from the socket and writes into memory; from there records go to the socket as it takes them. So no
//! call of OpenSSL has to be repeated because its output could not be sent.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use openssl::error::ErrorStack;
use openssl::ssl::{
    Error, ErrorCode, Ssl, SslContext, SslMethod, SslOptions, SslSessionCacheMode, SslStream,
    SslVersion,
};
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::tls::TlsError;
use super::transport::TLS_BUFFER_BYTES;

/// Suites of TLS 1.3 with SHA-256: this hash applies to keys that do not specify one.
const SUITES: &str = "TLS_AES_128_GCM_SHA256:TLS_CHACHA20_POLY1305_SHA256";
/// The shortest key that is accepted, in bytes.
const KEY_BYTES_MIN: usize = 16;

/// Keys by the client's name.
type Keys = BTreeMap<Vec<u8>, Vec<u8>>;

/// Reads lines of `NAME:KEY`, the key in hexadecimal, as GnuTLS' `psktool` writes them.
fn parse(text: &str) -> Result<Keys, String> {
    let mut keys = Keys::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, key)) = line.split_once(':').filter(|(name, _)| !name.is_empty()) else {
            return Err(format!("line {number} is not NAME:KEY"));
        };
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
        let hex = key.bytes().all(|letter| letter.is_ascii_hexdigit()) && key.len() % 2 == 0;
        let bytes: Option<Vec<u8>> = key.as_bytes().chunks(2).map(byte).collect();
        let Some(bytes) = bytes.filter(|_| hex) else {
            return Err(format!("the key in line {number} is not hexadecimal"));
        };
        if bytes.len() < KEY_BYTES_MIN {
            let bits = 8 * KEY_BYTES_MIN;
            return Err(format!(
                "the key in line {number} has less than {bits} bits"
            ));
        }
        keys.insert(name.into(), bytes);
    }
    match keys.is_empty() {
        true => Err("no key in it".to_owned()),
        false => Ok(keys),
    }
}

/// A server's configuration for clients with keys.
pub(super) type Context = SslContext;

pub(super) fn context(file: &Path) -> Result<Context, TlsError> {
    let failed = |reason: String| TlsError::Keys {
        path: file.into(),
        reason,
    };
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let keys = parse(&text).map_err(failed)?;
    server(keys).map_err(|error| failed(error.to_string()))
}

fn server(keys: Keys) -> Result<SslContext, ErrorStack> {
    let mut builder = SslContext::builder(SslMethod::tls_server())?;
    builder.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    builder.set_ciphersuites(SUITES)?;
    builder.set_session_cache_mode(SslSessionCacheMode::OFF);
    builder.set_num_tickets(0)?;
    // A peer that closes the socket without close_notify counts as disconnected.
    builder.set_options(SslOptions::IGNORE_UNEXPECTED_EOF);
    builder.set_psk_server_callback(move |_, name, room| {
        // An unknown client gets a key of 0 bytes: the handshake fails.
        let key = name.and_then(|name| keys.get(name));
        let Some((key, room)) = key.and_then(|key| Some((key, room.get_mut(..key.len())?))) else {
            return Ok(0);
        };
        room.copy_from_slice(key);
        Ok(key.len())
    });
    Ok(builder.build())
}

/// OpenSSL's I/O: reads from the socket, writes to `out`.
struct Wire {
    socket: Arc<OwnedFd>,
    out: Vec<u8>,
}

impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(recv(&*self.socket, buffer, RecvFlags::DONTWAIT)?.0)
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A server's side of a connection.
pub(super) struct PskStream(SslStream<Wire>);

impl PskStream {
    pub(super) fn accept(context: &Context, socket: Arc<OwnedFd>) -> io::Result<Self> {
        let mut ssl = Ssl::new(context)?;
        ssl.set_accept_state();
        let out = Vec::new();
        Ok(Self(SslStream::new(ssl, Wire { socket, out })?))
    }

    /// As [`Transport::receive`](super::transport::Transport::receive).
    pub(super) fn receive(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for buffer in buffers {
            let mut filled = 0;
            while filled < buffer.len() {
                match self.0.ssl_read(&mut buffer[filled..]) {
                    Ok(read) => filled += read,
                    Err(error) => {
                        // Send handshake messages, or the alert that reports the error.
                        let flushed = self.flush();
                        // Return data first; the next call reports the end or the error.
                        if count + filled > 0 {
                            return Ok(count + filled);
                        }
                        flushed?;
                        return ended(error);
                    }
                }
            }
            count += filled;
        }
        Ok(count)
    }

    /// As [`Transport::send`](super::transport::Transport::send).
    pub(super) fn send(&mut self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut count = 0;
        for buffer in buffers {
            let mut rest: &[u8] = buffer;
            while !rest.is_empty() {
                let full = |stream: &Self| stream.0.get_ref().out.len() >= TLS_BUFFER_BYTES;
                if full(self) && !self.flush()? && full(self) {
                    return match count {
                        0 => Err(io::ErrorKind::WouldBlock.into()),
                        _ => Ok(count),
                    };
                }
                // A record holds at most 16 KiB, and each call writes one record.
                match self.0.ssl_write(&rest[..rest.len().min(16 << 10)]) {
                    Ok(taken) => {
                        rest = &rest[taken..];
                        count += taken;
                    }
                    Err(error) => return ended(error).map(|_| count),
                }
            }
        }
        self.flush()?;
        Ok(count)
    }

    /// Sends records. True if all are sent, false if the socket takes no more.
    pub(super) fn flush(&mut self) -> io::Result<bool> {
        let Wire { socket, out } = self.0.get_mut();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        while !out.is_empty() {
            match send(&**socket, out, flags).map_err(io::Error::from) {
                Ok(sent) => drop(out.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    pub(super) fn wants_write(&self) -> bool {
        !self.0.get_ref().out.is_empty()
    }

    pub(super) fn close_notify(&mut self) {
        // Fails before the end of the handshake: then there is nothing to close. A send error is ignored: the peer
        // may be gone.
        if self.0.shutdown().is_ok() {
            self.flush().ok();
        }
    }
}

/// Maps an OpenSSL error to a read result: `WouldBlock`, the end, or an error.
fn ended(error: Error) -> io::Result<usize> {
    match error.code() {
        ErrorCode::WANT_READ | ErrorCode::WANT_WRITE => Err(io::ErrorKind::WouldBlock.into()),
        ErrorCode::ZERO_RETURN => Ok(0),
        _ => match error.into_io_error() {
            Ok(error) => Err(error),
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_psktool_writes_them_and_short_ones_are_refused() {
        let key = "00ff10".to_owned() + &"ab".repeat(13);
        let keys = parse(&format!(
            "# ours\n\nalice:{key}\nbob:{}\n",
            key.to_uppercase()
        ))
        .unwrap();
        assert_eq!(keys.len(), 2);
        assert_eq!(keys[&b"alice"[..]], keys[&b"bob"[..]]);
        assert_eq!(keys[&b"alice"[..]][..4], [0, 0xff, 0x10, 0xab]);
        for (text, why) in [
            ("", "no key"),
            ("alice", "line 1 is not NAME:KEY"),
            (":00", "line 1 is not NAME:KEY"),
            ("\nalice:0g", "line 2 is not hexadecimal"),
            ("alice:+1", "line 1 is not hexadecimal"),
            ("alice:000", "line 1 is not hexadecimal"),
            ("alice:0011", "line 1 has less than 128 bits"),
        ] {
            let refused = parse(text).unwrap_err();
            assert!(refused.contains(why), "{text}: {refused}");
        }
    }
}
