//! The daemon's API: HTTP with JSON bodies on a Unix socket, and a client for it.
//!
//! ```text
//!  CLI, scripts ── client ──HTTP/1.1──► routes ──spawn_blocking──► Daemon ─┬─ pools by name
//!                                          │                               └─ NBD servers by address
//!                                      api::*  (the same structs at both ends)
//! ```
//!
//! Every response is one JSON document. A failed request returns a status and `{"error":{"what":…,"why":…,"try":…}}`:
//! 400 if the request itself is wrong, 404 if an object that the request names does not exist, 409 if the current
//! state does not permit the operation, 500 if the daemon or a drive failed.

pub mod api;
pub mod client;
mod connections;
mod daemon;
mod event_files;
pub mod exports;
mod failure;
mod history;
pub mod hooks;
mod kept;
mod routes;
mod scrub_file;
pub mod server;
pub mod state;
mod supervisor;

pub use kept::KeptFiles;
pub use supervisor::kept_files;

pub use client::{Client, ClientError};
pub use daemon::{Change, Daemon, LinkPlaces};
pub use failure::Failure;
