//! A thread that owns connections: waits in epoll, receives, submits requests, and sends replies.
//!
//! One turn of the loop takes new sockets, processes the completions that have collected, settles every connection
//! that has something to send, and only then waits. So all replies that have become ready meanwhile go out in one
//! send per connection.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use block::{Fault, Memory, Outcome};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, accept_with, sockopt};

use super::batching::Batching;
use super::connection::{Broken, Connection, Terms};
use super::handshake::{Handshake, HangUp, TlsPolicy};
use super::in_flight::InFlight;
use super::mailbox::Mailbox;
use super::server::Exports;
use super::slab::{Key, Slab};
use crate::descriptors::is_kept_back;

/// epoll's data for descriptors that are not connections. Keys of connections are smaller.
const WAKEUP: u64 = u64::MAX;
const LISTENER: u64 = u64::MAX - 1;
/// How long to stop accepting clients after running out of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Size of each socket's buffers, so that a batch of replies goes out in one send. The kernel grants less if its
/// limits are lower.
const SOCKET_BUFFER_BYTES: usize = 1 << 20;

/// The state that all workers of a server share.
pub(super) struct Shared {
    pub(super) exports: Arc<dyn Exports>,
    /// The address of the server, for the log.
    pub(super) address: String,
    pub(super) terms: Terms,
    pub(super) tls: TlsPolicy,
    pub(super) read_only: bool,
    pub(super) connections_max: usize,
    pub(super) handshake_timeout: Duration,
    pub(super) shutdown_timeout: Duration,
    /// Clients, including those that have disconnected while the device still works on their requests.
    pub(super) connections: AtomicUsize,
    /// Processes that have connected to a Unix socket, one entry per open connection.
    pub(super) peers: Mutex<Vec<u32>>,
    pub(super) mailboxes: Vec<Arc<Mailbox>>,
}

impl Shared {
    /// The processes that are connected to the Unix socket.
    pub(super) fn peers(&self) -> MutexGuard<'_, Vec<u32>> {
        self.peers.lock().expect("no holder of the lock panics")
    }
}

/// The process at the other end; `None` for TCP.
fn peer_of(socket: &OwnedFd) -> Option<u32> {
    let local = sockopt::socket_domain(socket).ok()? == AddressFamily::UNIX;
    let peer = local.then(|| sockopt::socket_peercred(socket));
    u32::try_from(peer?.ok()?.pid.as_raw_nonzero().get()).ok()
}

/// The other end in words: an address, or a process.
fn client_of(socket: &OwnedFd, process: Option<u32>) -> String {
    let address = || {
        let address = rustix::net::getpeername(socket).ok()??;
        std::net::SocketAddr::try_from(address).ok()
    };
    match (process, address()) {
        (Some(process), _) => format!("pid {process}"),
        (None, Some(address)) => address.to_string(),
        (None, None) => "unknown".to_owned(),
    }
}

struct Entry {
    connection: Connection,
    /// The process at the other end; `None` for TCP.
    peer: Option<u32>,
    /// The other end in words: it is not known any more once the client has gone.
    client: String,
    /// The events registered with epoll; `None` if the socket is not registered.
    watched: Option<epoll::EventFlags>,
    /// True if the connection is on the list `dirty`.
    dirty: bool,
    /// True if the log says whether the client was served or refused.
    logged: bool,
}

/// One worker.
pub(super) struct Worker {
    shared: Arc<Shared>,
    mailbox: Arc<Mailbox>,
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    accept_again: Option<Instant>,
    /// True if clients wait, because there are as many connections as there may be.
    full: bool,
    /// The worker that gets the next client.
    next: usize,
    connections: Slab<Entry>,
    in_flight: InFlight,
    dirty: Vec<Key>,
    outcomes: Vec<(u64, Outcome)>,
    /// Data of reads that the device returned in memory other than the request's. Their outcomes may come later.
    elsewhere: Vec<(u64, Memory)>,
    /// Handshakes in the order of their deadlines.
    handshakes: VecDeque<(Instant, Key)>,
    /// The deadline of a stop; `None` while no stop was requested.
    stop_by: Option<Instant>,
}

impl Worker {
    /// A worker with the mailbox `mailbox`. The worker with the listener accepts clients for all workers.
    pub(super) fn new(
        shared: Arc<Shared>,
        mailbox: Arc<Mailbox>,
        listener: Option<OwnedFd>,
    ) -> rustix::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wakeup = epoll::EventFlags::IN | epoll::EventFlags::ET;
        epoll::add(
            &epoll,
            mailbox.wakeup(),
            epoll::EventData::new_u64(WAKEUP),
            wakeup,
        )?;
        let in_flight = InFlight::new(&mailbox);
        let worker = Self {
            shared,
            mailbox,
            epoll,
            listener,
            accept_again: None,
            full: false,
            next: 0,
            connections: Slab::new(),
            in_flight,
            dirty: Vec::new(),
            outcomes: Vec::new(),
            elsewhere: Vec::new(),
            handshakes: VecDeque::new(),
            stop_by: None,
        };
        worker.watch_listener()?;
        Ok(worker)
    }

    /// Runs until a stop is requested and all requests in flight have been answered, or the stop's deadline has
    /// passed.
    pub(super) fn run(mut self) {
        let mut events = Vec::with_capacity(128);
        let mut batching = Batching::begin();
        loop {
            for socket in self.mailbox.take_sockets() {
                self.welcome(socket);
            }
            self.complete_requests();
            self.settle();
            self.check_timeouts();
            if self
                .stop_by
                .is_some_and(|by| self.connections.len() == 0 || by <= Instant::now())
            {
                return;
            }
            let queued = self.in_flight.take_queued();
            let mut rest = self.dirty.is_empty();
            if rest && batching.should_delay(Instant::now(), queued) {
                batching.delay();
                rest = !self.mailbox.has_outcomes();
            }
            let rest = rest && self.mailbox.fall_asleep(self.stop_by.is_some());
            let timeout = if rest {
                self.next_deadline()
            } else {
                Some(Duration::ZERO)
            };
            let timeout = timeout.map(|timeout| Timespec {
                tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: timeout.subsec_nanos().into(),
            });
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "epoll failed; this worker ends");
                    return;
                }
            }
            self.mailbox.wake();
            for event in &events {
                let (flags, data) = (event.flags, event.data.u64());
                match data {
                    WAKEUP => {}
                    LISTENER => self.accept(),
                    key => self.handle_event(Key::from_u64(key), flags),
                }
            }
        }
    }

    fn watch_listener(&self) -> rustix::io::Result<()> {
        let Some(listener) = &self.listener else {
            return Ok(());
        };
        let data = epoll::EventData::new_u64(LISTENER);
        epoll::add(&self.epoll, listener, data, epoll::EventFlags::IN)
    }

    fn accept(&mut self) {
        let Some(listener) = &self.listener else {
            return;
        };
        // Only this worker adds connections.
        let is_full =
            || self.shared.connections.load(Ordering::Relaxed) >= self.shared.connections_max;
        if is_full() {
            // The client waits in the socket's queue: others may be about to leave, as when a host connects again
            // before the server has noticed that its old connections are gone.
            if !self.full {
                tracing::warn!(
                    connections_max = self.shared.connections_max,
                    "a client waits: too many connections"
                );
            }
            self.full = true;
            let _ = epoll::delete(&self.epoll, listener);
            self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
            return;
        }
        self.full = false;
        // If it is full then and another client waits, epoll says so again.
        while !is_full() {
            match accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => {
                    if is_kept_back(&socket) {
                        tracing::warn!(
                            "a client was turned away: too few file descriptors are left"
                        );
                        continue;
                    }
                    self.shared.connections.fetch_add(1, Ordering::Relaxed);
                    self.next = (self.next + 1) % self.shared.mailboxes.len();
                    self.shared.mailboxes[self.next].put_socket(socket);
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => {
                    // Out of descriptors or memory: pause instead of spinning.
                    tracing::warn!(%error, "cannot accept a client; trying again shortly");
                    let _ = epoll::delete(&self.epoll, listener);
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Sets up the connection of a new client.
    fn welcome(&mut self, socket: OwnedFd) {
        // Failures only cost speed. A Unix socket has no TCP options.
        let _ = sockopt::set_tcp_nodelay(&socket, true);
        let _ = sockopt::set_socket_keepalive(&socket, true);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let peer = peer_of(&socket);
        self.shared.peers().extend(peer);
        let client = client_of(&socket, peer);
        let shared = &self.shared;
        let handshake = Handshake::new(Arc::clone(&shared.exports), shared.tls, shared.read_only);
        let mut connection = Connection::new(socket, handshake, shared.terms.clone());
        if self.stop_by.is_some() {
            connection.finish();
        }
        let key = self.connections.insert(Entry {
            connection,
            peer,
            client,
            watched: None,
            dirty: false,
            logged: false,
        });
        self.handshakes
            .push_back((Instant::now() + shared.handshake_timeout, key));
        self.mark(key);
    }

    fn handle_event(&mut self, key: Key, flags: epoll::EventFlags) {
        let Some(entry) = self.connections.get_mut(key) else {
            return;
        };
        let gone = flags.intersects(epoll::EventFlags::HUP | epoll::EventFlags::ERR);
        let connection = &mut entry.connection;
        let readable = flags.contains(epoll::EventFlags::IN) || (gone && connection.wants_read());
        if readable && let Err(broken) = connection.receive(key, &mut self.in_flight) {
            return self.end(key, &broken);
        }
        self.log_accepted(key);
        let Some(entry) = self.connections.get_mut(key) else {
            return;
        };
        let connection = &mut entry.connection;
        // Both directions are closed: the client cannot receive replies, and epoll would report this event again and
        // again.
        if gone && !connection.wants_read() {
            return self.close(key);
        }
        self.mark(key);
    }

    /// Puts a connection on the list `dirty`, for `settle`.
    fn mark(&mut self, key: Key) {
        if let Some(entry) = self.connections.get_mut(key)
            && !std::mem::replace(&mut entry.dirty, true)
        {
            self.dirty.push(key);
        }
    }

    fn complete_requests(&mut self) {
        let mut outcomes = std::mem::take(&mut self.outcomes);
        self.mailbox.take_outcomes(&mut outcomes);
        self.mailbox.take_elsewhere(&mut self.elsewhere);
        for (token, outcome) in outcomes.drain(..) {
            let Some(mut pending) = self.in_flight.complete(token, outcome) else {
                continue;
            };
            let bytes = self.elsewhere.iter().position(|(of, _)| *of == token);
            if let Some(index) = bytes {
                // These are the bytes of the whole read: devices take even the longest request of a client in one
                // piece.
                let (_, bytes) = self.elsewhere.swap_remove(index);
                if (bytes.len() as u64) < pending.request.length {
                    pending.fault = Some(Fault::Medium);
                }
                pending.memory = bytes;
            }
            let key = pending.connection;
            if let Some(entry) = self.connections.get_mut(key) {
                entry.connection.complete(pending, &mut self.in_flight);
                self.mark(key);
            }
        }
        self.outcomes = outcomes;
        for (token, extents) in self.mailbox.take_extents() {
            let completed = self.in_flight.complete_extents(token, &extents);
            let Some(((key, cookie, charge), status)) = completed else {
                continue;
            };
            if let Some(entry) = self.connections.get_mut(key) {
                entry.connection.complete_status(cookie, &status, charge);
                self.mark(key);
            }
        }
    }

    /// Sends output, and removes connections that are finished.
    fn settle(&mut self) {
        for key in std::mem::take(&mut self.dirty) {
            let Some(entry) = self.connections.get_mut(key) else {
                continue;
            };
            entry.dirty = false;
            let again = match entry.connection.settle(key, &mut self.in_flight) {
                Ok(again) => again,
                Err(broken) => {
                    self.end(key, &broken);
                    continue;
                }
            };
            if entry.connection.is_finished() {
                entry.connection.transport.close_notify();
                self.remove(key);
                continue;
            }
            if let Err(error) = entry.watch(&self.epoll, key) {
                self.end(key, &Broken::Io(error.into()));
                continue;
            }
            if again {
                self.mark(key);
            }
        }
    }

    /// Logs a client that has chosen an export, once.
    fn log_accepted(&mut self, key: Key) {
        let address = &self.shared.address;
        if let Some(entry) = self.connections.get_mut(key)
            && !entry.logged
            && !entry.connection.in_handshake()
        {
            entry.logged = true;
            let client = &entry.client;
            tracing::info!(at = %address, %client, "a client is served");
        }
    }

    /// Logs a client that ends without an export, once.
    fn log_refused(&mut self, key: Key, reason: &dyn std::fmt::Display) {
        let address = &self.shared.address;
        if let Some(entry) = self.connections.get_mut(key)
            && !entry.logged
            && entry.connection.in_handshake()
        {
            entry.logged = true;
            let client = &entry.client;
            tracing::warn!(at = %address, %client, %reason, "a client was not served");
        }
    }

    /// Ends a connection that broke the protocol or whose socket failed.
    fn end(&mut self, key: Key, broken: &Broken) {
        tracing::debug!(reason = %broken, "connection ended");
        self.log_refused(key, broken);
        if let (Some(entry), Broken::HangUp(_)) = (self.connections.get_mut(key), broken) {
            // The output may contain a last answer with the reason. It is sent if the socket takes it at once.
            entry.connection.finish();
            let _ = entry.connection.settle(key, &mut self.in_flight);
        }
        self.close(key);
    }

    /// Closes the connection of a client that is gone. The entry stays until the device has completed its requests;
    /// otherwise a client could use more memory by reconnecting repeatedly.
    fn close(&mut self, key: Key) {
        let Some(entry) = self.connections.get_mut(key) else {
            return;
        };
        if entry.watched.take().is_some() {
            let _ = epoll::delete(&self.epoll, entry.connection.transport.socket());
        }
        entry.connection.transport.close_notify();
        let _ = rustix::net::shutdown(
            entry.connection.transport.socket(),
            rustix::net::Shutdown::Both,
        );
        entry.connection.abort(&mut self.in_flight);
        if entry.connection.is_finished() {
            self.remove(key);
        }
    }

    fn remove(&mut self, key: Key) {
        self.log_refused(key, &"it chose no export, or one that it may not have");
        let Some(entry) = self.connections.remove(key) else {
            return;
        };
        self.shared.connections.fetch_sub(1, Ordering::Relaxed);
        let mut peers = self.shared.peers();
        if let Some(index) = peers.iter().position(|peer| Some(*peer) == entry.peer) {
            peers.swap_remove(index);
        }
    }

    /// Checks the deadlines of handshakes, the listener's pause, and whether a stop was requested.
    fn check_timeouts(&mut self) {
        if self.handshakes.is_empty() && self.accept_again.is_none() && !self.mailbox.stopping() {
            return;
        }
        let now = Instant::now();
        while let Some(&(by, key)) = self.handshakes.front() {
            let waiting = self.connections.get_mut(key).is_some_and(|entry| {
                entry.connection.in_handshake() && !entry.connection.is_dead()
            });
            if waiting && now < by {
                break;
            }
            self.handshakes.pop_front();
            if waiting {
                self.end(key, &Broken::HangUp(HangUp::Slow));
            }
        }
        if self.accept_again.is_some_and(|at| at <= now) {
            self.accept_again = None;
            if let Err(error) = self.watch_listener() {
                tracing::warn!(%error, "cannot listen again yet");
                self.accept_again = Some(now + ACCEPT_PAUSE);
            }
        }
        if self.mailbox.stopping() && self.stop_by.is_none() {
            self.stop_by = Some(now + self.shared.shutdown_timeout);
            self.accept_again = None;
            self.listener = None;
            for key in self.connections.keys() {
                if let Some(entry) = self.connections.get_mut(key) {
                    entry.connection.finish();
                }
                self.mark(key);
            }
            self.settle();
        }
    }

    fn next_deadline(&self) -> Option<Duration> {
        let handshake = self.handshakes.front().map(|&(by, _)| by);
        let earliest = [handshake, self.accept_again, self.stop_by]
            .into_iter()
            .flatten()
            .min()?;
        // Rounded up, so that the deadline has passed at the next check.
        Some(earliest.saturating_duration_since(Instant::now()) + Duration::from_millis(1))
    }
}

impl Entry {
    /// Updates the events registered with epoll if they have changed.
    fn watch(&mut self, epoll: &OwnedFd, key: Key) -> rustix::io::Result<()> {
        if self.connection.is_dead() {
            return Ok(());
        }
        let mut wanted = epoll::EventFlags::empty();
        wanted.set(epoll::EventFlags::IN, self.connection.wants_read());
        wanted.set(epoll::EventFlags::OUT, self.connection.wants_write());
        if self.watched == Some(wanted) {
            return Ok(());
        }
        let socket = self.connection.transport.socket();
        let data = epoll::EventData::new_u64(key.to_u64());
        match self.watched {
            Some(_) => epoll::modify(epoll, socket, data, wanted)?,
            None => epoll::add(epoll, socket, data, wanted)?,
        }
        self.watched = Some(wanted);
        Ok(())
    }
}
