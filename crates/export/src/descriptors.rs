//! File descriptors: clients of exports get most of a process's, and never the last.
//!
//! The kernel gives each new descriptor the lowest free number, so one near the limit says that the table is nearly
//! full. What is kept back is for those who rule the process: the control socket, drives that come, a pool's labels.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Resource, getrlimit};

/// Descriptors that clients of exports do not get; of a short table a quarter.
const KEPT: u64 = 128;

/// Whether a client's new connection is among the descriptors that are kept back, and must be closed.
pub(crate) fn is_kept_back(socket: &OwnedFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return false;
    };
    let kept = KEPT.min(limit / 4);
    u64::try_from(socket.as_raw_fd()).unwrap_or(0) >= limit - kept
}
