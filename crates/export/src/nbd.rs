//! A server and a client of the Network Block Device protocol.
//!
//! The protocol is described in <https://github.com/NetworkBlockDevice/nbd/blob/master/doc/proto.md>;
//! section names in this module refer to that document. A connection begins with a *handshake*, in
//! which the client asks for options and names an export, and goes on with the *transmission
//! phase*, in which it sends requests, each with a cookie, and gets replies in any order.
//!
//! ```text
//!  client ── socket ── connection ──┬─ handshake   bytes in, bytes out, ends in a session
//!                      (worker's)   └─ session     one request in, one decision out
//!                          │
//!                       in_flight ── submit ──► BlockDevice ── completed ──► mailbox ── wakes ─┐
//!                          ▲                                                                 │
//!                          └──────────────────────── worker ◄────────────────────────────────┘
//! ```
//!
//! A few worker threads own all connections. A worker sleeps in epoll on its sockets and on one eventfd. One receive
//! takes all requests that wait in a socket. Completions from the device's threads collect in the worker's mailbox,
//! and one send carries all replies that have collected. The parsers ([`protocol`], [`Handshake`], [`Session`]) do no
//! I/O, so they can be fuzzed.
//!
//! Memory is bounded by back-pressure: a connection whose requests in flight and unsent replies reach its limit is
//! not read until some of the replies have been sent.

mod batching;
pub(crate) mod buffers;
mod client;
mod connection;
mod copy;
mod devices;
mod handshake;
mod in_flight;
mod listener;
mod mailbox;
mod output;
pub mod protocol;
#[cfg(feature = "tls-psk")]
mod psk;
#[cfg(not(feature = "tls-psk"))]
#[path = "nbd/no_psk.rs"]
mod psk;
mod server;
mod session;
pub(crate) mod slab;
mod tls;
mod transport;
mod uri;
mod worker;

pub use client::{Client, ClientError, ExportInfo, Operation, Reply};
pub use copy::{CopyOptions, copy_in, copy_out};
pub use handshake::{Handshake, HangUp, Step, TlsPolicy};
pub use listener::{BindError, Listen, ParseListenError};
pub use server::{Exports, Options, Server};
pub use session::{Decision, Session, status_of};
pub use tls::{ClientTls, ServerTls, TlsError};
pub use uri::{Place, Uri, UriError};
