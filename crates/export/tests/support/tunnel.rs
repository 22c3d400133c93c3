//! A plain socket into a server's TLS: bytes written at one end reach the server encrypted, and an end on either side
//! becomes an end on the other. So every plain-text conversation can be held over TLS, too.

use std::io::{self, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use export::nbd::ServerTls;
use export::nbd::protocol::{FLAG_FIXED_NEWSTYLE, FLAG_NO_ZEROES, encode_option, opt};
#[cfg(feature = "tls-psk")]
use openssl::ssl::{Ssl, SslContext, SslMethod, SslStream};
use rcgen::{CertificateParams, KeyPair};
use rustix::event::{PollFd, PollFlags, poll};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use testing::Directory;

/// How a client reaches the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    Plain,
    Certificates,
    #[cfg(feature = "tls-psk")]
    Keys,
}

#[cfg(feature = "tls-psk")]
const NAME: &str = "mallory";
#[cfg(feature = "tls-psk")]
const KEY: [u8; 32] = [0x5a; 32];

impl Way {
    /// The server's TLS settings for this way, with files written into a directory; plain-text clients are served as
    /// well.
    pub fn server(self, dir: &Directory) -> Option<ServerTls> {
        match self {
            Self::Plain => None,
            Self::Certificates => {
                let key = KeyPair::generate().unwrap();
                let names = vec!["localhost".to_owned()];
                let own = CertificateParams::new(names).unwrap().self_signed(&key);
                let (at, key_at) = (dir.join("cert.pem"), dir.join("key.pem"));
                std::fs::write(&at, own.unwrap().pem()).unwrap();
                std::fs::write(&key_at, key.serialize_pem()).unwrap();
                Some(ServerTls::from_files(&at, &key_at, false).unwrap())
            }
            #[cfg(feature = "tls-psk")]
            Self::Keys => {
                let hex: String = KEY.iter().map(|byte| format!("{byte:02x}")).collect();
                std::fs::write(dir.join("keys"), format!("{NAME}:{hex}\n")).unwrap();
                Some(ServerTls::from_keys(&dir.join("keys"), false).unwrap())
            }
        }
    }

    /// The number of options that a client has already sent when it is connected.
    pub fn options(self) -> usize {
        usize::from(self != Self::Plain)
    }

    /// A connection whose next message is the client's flags.
    pub fn connect(self, socket: &Path, dir: &Directory) -> UnixStream {
        let mut server = UnixStream::connect(socket).unwrap();
        let timeout = Some(Duration::from_secs(20));
        server.set_read_timeout(timeout).unwrap();
        server.read_exact(&mut [0; 18]).unwrap();
        if self == Self::Plain {
            return server;
        }
        // The server forgets all messages before TLS except the client's flags; the flags are sent once.
        let flags = u32::from(FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES);
        let mut bytes = flags.to_be_bytes().to_vec();
        encode_option(&mut bytes, opt::STARTTLS, &[]);
        server.write_all(&bytes).unwrap();
        server.read_exact(&mut [0; 20]).unwrap();
        server.set_nonblocking(true).unwrap();
        let session: Box<dyn Session> = match self {
            #[cfg(feature = "tls-psk")]
            Self::Keys => Box::new(by_key(server)),
            _ => Box::new(by_certificate(server, &dir.join("cert.pem"))),
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_read_timeout(timeout).unwrap();
        theirs.set_nonblocking(true).unwrap();
        std::thread::spawn(move || tunnel(session, theirs));
        ours
    }
}

/// A client's side of TLS on a socket that does not block.
trait Session: Read + Write + Send {
    /// Sends the end of the client's data.
    fn end(&mut self) -> io::Result<()>;
    fn socket(&self) -> &UnixStream;
    /// True after the handshake: a write waits for nothing but the socket.
    fn takes_bytes(&self) -> bool;
    /// True if TLS has records for the socket.
    fn wants_write(&self) -> bool;
}

struct ByCertificate(rustls::StreamOwned<ClientConnection, UnixStream>);

fn by_certificate(server: UnixStream, trusted: &Path) -> ByCertificate {
    use rustls::pki_types::{CertificateDer, pem::PemObject};
    let mut roots = RootCertStore::empty();
    let certificate = CertificateDer::from_pem_file(trusted).unwrap();
    roots.add(certificate).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    ByCertificate(rustls::StreamOwned::new(session, server))
}

impl Read for ByCertificate {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let rustls::StreamOwned { conn, sock } = &mut self.0;
        loop {
            match conn.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                ended => return ended,
            }
            // A server that has closed the connection accepts nothing more, but its earlier answers are still to be
            // read.
            while conn.wants_write() && conn.write_tls(sock).is_ok() {}
            if conn.read_tls(sock)? == 0 {
                return Ok(0);
            }
            conn.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

impl Write for ByCertificate {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.conn.wants_write() {
            self.0.flush()?;
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Session for ByCertificate {
    fn end(&mut self) -> io::Result<()> {
        self.0.conn.send_close_notify();
        self.0.flush()?;
        self.0.sock.shutdown(Shutdown::Write)
    }

    fn socket(&self) -> &UnixStream {
        &self.0.sock
    }

    fn takes_bytes(&self) -> bool {
        !self.0.conn.is_handshaking()
    }

    fn wants_write(&self) -> bool {
        self.0.conn.wants_write()
    }
}

#[cfg(feature = "tls-psk")]
struct ByKey(SslStream<UnixStream>);

#[cfg(feature = "tls-psk")]
fn by_key(server: UnixStream) -> ByKey {
    let mut context = SslContext::builder(SslMethod::tls_client()).unwrap();
    context.set_psk_client_callback(|_, _, name, key| {
        name[..NAME.len()].copy_from_slice(NAME.as_bytes());
        name[NAME.len()] = 0;
        key[..KEY.len()].copy_from_slice(&KEY);
        Ok(KEY.len())
    });
    let mut ssl = Ssl::new(&context.build()).unwrap();
    ssl.set_connect_state();
    ByKey(SslStream::new(ssl, server).unwrap())
}

#[cfg(feature = "tls-psk")]
impl Read for ByKey {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

#[cfg(feature = "tls-psk")]
impl Write for ByKey {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(feature = "tls-psk")]
impl Session for ByKey {
    fn end(&mut self) -> io::Result<()> {
        self.0.shutdown().map_err(io::Error::other)?;
        self.0.get_ref().shutdown(Shutdown::Write)
    }

    fn socket(&self) -> &UnixStream {
        self.0.get_ref()
    }

    fn takes_bytes(&self) -> bool {
        self.0.ssl().is_init_finished()
    }

    fn wants_write(&self) -> bool {
        false
    }
}

/// One direction.
#[derive(Default)]
struct Half {
    waiting: Vec<u8>,
    /// The source has ended; `ended`: the sink has been given the end.
    source_ended: bool,
    ended: bool,
}

impl Half {
    /// Moves bytes if possible; true if any were moved. An error means that one end is closed.
    fn pump(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
        write: impl FnOnce(&[u8]) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let later = |moved: io::Result<usize>| match moved {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(None),
            moved => moved.map(Some),
        };
        let mut moved = false;
        if self.waiting.is_empty() && !self.source_ended {
            let mut buffer = [0; 16 << 10];
            if let Some(count) = later(read(&mut buffer))? {
                self.waiting = buffer[..count].to_vec();
                self.source_ended = count == 0;
                moved = true;
            }
        }
        if !self.waiting.is_empty()
            && let Some(count) = later(write(&self.waiting))?
        {
            self.waiting.drain(..count);
            moved = true;
        }
        Ok(moved)
    }

    /// True once: when all bytes have been moved and the sink must be given the end.
    fn ends(&mut self) -> bool {
        self.source_ended && self.waiting.is_empty() && !std::mem::replace(&mut self.ended, true)
    }
}

/// Waits until a direction can go on. A socket from which nothing is wanted is not asked: its end would be reported at
/// once, again and again.
fn wait(session: &dyn Session, plain: &UnixStream, up: &Half, down: &Half) {
    let mut of_session = PollFlags::empty();
    of_session.set(PollFlags::IN, down.waiting.is_empty());
    let sends = session.takes_bytes() && !up.waiting.is_empty();
    of_session.set(PollFlags::OUT, sends || session.wants_write());
    let mut of_plain = PollFlags::empty();
    of_plain.set(PollFlags::IN, up.waiting.is_empty() && !up.source_ended);
    of_plain.set(PollFlags::OUT, !down.waiting.is_empty());
    let mut asked: Vec<_> = [(session.socket(), of_session), (plain, of_plain)]
        .into_iter()
        .filter(|(_, flags)| !flags.is_empty())
        .map(|(socket, flags)| PollFd::new(socket, flags))
        .collect();
    poll(&mut asked, None).unwrap();
}

/// Moves bytes until both sides have ended, or one is closed.
fn tunnel(session: Box<dyn Session>, mut plain: UnixStream) {
    let session = std::cell::RefCell::new(session);
    let (mut up, mut down) = (Half::default(), Half::default());
    let mut to_plain = plain.try_clone().unwrap();
    while !(up.ended && down.ended) {
        let mut sent = Ok(false);
        if !up.ended {
            sent = up.pump(
                |buffer| match plain.read(buffer) {
                    // A client that closes with answers unread: that is its end, and the server must hear of it.
                    Err(error) if error.kind() == ErrorKind::ConnectionReset => Ok(0),
                    read => read,
                },
                |bytes| session.borrow_mut().write(bytes),
            );
        }
        // A server that has closed the connection accepts nothing more; its earlier answers are still to be read.
        let sent = sent.unwrap_or_else(|_| {
            up.ended = true;
            true
        });
        let received = down.pump(
            |buffer| session.borrow_mut().read(buffer),
            |bytes| to_plain.write(bytes),
        );
        let Ok(received) = received else {
            return;
        };
        session.borrow_mut().flush().ok();
        if !up.ended && up.ends() && session.borrow_mut().end().is_err() {
            return;
        }
        if down.ends() {
            // A server that has ended the connection accepts nothing more.
            return;
        }
        if !sent && !received {
            wait(&**session.borrow(), &plain, &up, &down);
        }
    }
}
