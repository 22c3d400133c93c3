//! The server: its options, and how its threads begin and end.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use block::BlockDevice;

use super::connection::Terms;
use super::handshake::TlsPolicy;
use super::listener::{Listen, Listener};
use super::mailbox::Mailbox;
use super::protocol::REQUEST_BYTES_MAX;
use super::tls::ServerTls;
use super::worker::{Shared, Worker};
use crate::socket::SocketFile;

/// The exports of a server. Queried again for every client, so volumes may be added and removed.
pub trait Exports: Send + Sync {
    /// Names of all exports, such as `tank/data`.
    fn list(&self) -> Vec<String>;

    /// The export `name`, if it exists. An empty name selects the only export.
    fn open(&self, name: &str) -> Option<Arc<dyn BlockDevice>>;
}

/// A server's options.
#[derive(Clone, Debug)]
pub struct Options {
    /// Worker threads; connections are assigned to them in turn.
    pub workers: usize,
    /// Maximum number of clients; further ones wait until others have gone.
    pub connections_max: usize,
    /// Bytes that one client may have in flight; its further requests wait in its socket. Not
    /// below 32 MiB, the longest request.
    pub in_flight_bytes_max: usize,
    /// How long a client may take to choose an export.
    pub handshake_timeout: Duration,
    /// How long [`Server::shutdown`] waits for requests in flight.
    pub shutdown_timeout: Duration,
    /// True if requests that change an export are refused.
    pub read_only: bool,
    /// Permission bits of a Unix socket's file.
    pub socket_mode: u32,
    /// Certificate and whether it must be used; `None` for no TLS.
    pub tls: Option<ServerTls>,
}

impl Default for Options {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            // One core that copies from and to sockets supplies several cores that compute parity, and every worker
            // is a thread that competes with the lanes.
            workers: cores.div_ceil(2).min(4),
            connections_max: 128,
            in_flight_bytes_max: REQUEST_BYTES_MAX as usize,
            handshake_timeout: Duration::from_secs(20),
            shutdown_timeout: Duration::from_secs(5),
            read_only: false,
            socket_mode: 0o600,
            tls: None,
        }
    }
}

/// A running NBD server. Dropping this shuts the server down.
pub struct Server {
    address: Listen,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    file: Option<SocketFile>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Server {
    /// Listens on `listen` and serves `exports` from threads of its own.
    ///
    /// # Errors
    /// If the address is not available ([`super::BindError`] inside has the reason, and names a socket that is in
    /// use), or the system refuses threads or descriptors.
    pub fn bind(listen: &Listen, exports: Arc<dyn Exports>, options: &Options) -> io::Result<Self> {
        let mut listener = Listener::bind(listen, options.socket_mode)?;
        let address = listener.address.clone();
        let file = listener.take_file();
        let mailboxes = (0..options.workers.max(1))
            .map(|_| Mailbox::new().map(Arc::new))
            .collect::<Result<Vec<_>, _>>()?;
        let policy = match &options.tls {
            None => TlsPolicy::Off,
            Some(tls) if tls.forced() => TlsPolicy::Forced,
            Some(_) => TlsPolicy::Optional,
        };
        let shared = Arc::new(Shared {
            exports,
            address: address.to_string(),
            terms: Terms {
                tls: options.tls.clone(),
                in_flight_bytes_max: options.in_flight_bytes_max.max(REQUEST_BYTES_MAX as usize),
            },
            tls: policy,
            read_only: options.read_only,
            connections_max: options.connections_max,
            handshake_timeout: options.handshake_timeout,
            shutdown_timeout: options.shutdown_timeout,
            connections: AtomicUsize::new(0),
            peers: Mutex::new(Vec::new()),
            mailboxes,
        });
        // The server exists before its threads, so a failure half-way stops the threads that run already.
        let mut server = Self {
            address,
            shared,
            threads: Vec::new(),
            file,
        };
        server.start(listener.socket)?;
        Ok(server)
    }

    fn start(&mut self, listener: OwnedFd) -> io::Result<()> {
        let mut listener = Some(listener);
        for (index, mailbox) in self.shared.mailboxes.iter().enumerate() {
            let worker = Worker::new(
                Arc::clone(&self.shared),
                Arc::clone(mailbox),
                listener.take(),
            )?;
            let thread = std::thread::Builder::new()
                .name(format!("nbd-{index}"))
                .spawn(move || worker.run())?;
            self.threads.push(thread);
        }
        Ok(())
    }

    /// The address, with the assigned port if port 0 was requested.
    #[must_use]
    pub const fn address(&self) -> &Listen {
        &self.address
    }

    /// Current clients, including those that have disconnected while the device still works on their requests.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::Relaxed)
    }

    /// The kernel's NBD devices that are connected to this server's Unix socket.
    #[must_use]
    pub fn devices(&self) -> Vec<PathBuf> {
        let peers = self.shared.peers().clone();
        super::devices::connected_by(&peers, Path::new("/sys"))
    }

    /// Takes no more requests, answers those in flight, closes all connections, ends the threads and removes the
    /// socket's file.
    pub fn shutdown(self) {
        drop(self);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // First, so that new clients do not find the socket of a server that will not serve them.
        self.file = None;
        for mailbox in &self.shared.mailboxes {
            mailbox.stop();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("an NBD worker had panicked");
            }
        }
    }
}
