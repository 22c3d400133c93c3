//! The daemon's API: HTTP with JSON bodies on a Unix socket, and a client for it.
//!
//! ```text
//!  CLI, scripts ── client ──HTTP/1.1──► routes ──spawn_blocking──► Daemon ─┬─ pools by name
//!                                          │                               └─ NBD servers by address
//!                                      api::*  (the same structs at both ends)
//! ```
//!
//! Every answer is one JSON document. What fails answers with a status and
//! `{"error":{"what":…,"why":…,"try":…}}`: 400 where the request itself is wrong, 404 where what it
//! names is not there, 409 where the state of things forbids it, 500 where the daemon or a drive
//! failed.

pub mod api;
pub mod client;
mod connections;
mod daemon;
mod event_files;
pub mod exports;
mod failure;
pub mod hooks;
mod routes;
pub mod server;
pub mod state;
mod supervisor;

pub use client::{Client, ClientError};
pub use daemon::{Change, Daemon};
pub use failure::Failure;
