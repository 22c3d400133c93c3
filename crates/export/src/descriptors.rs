//! Reserve of file descriptors: clients of exports may use most of the process's descriptors, but never the last
//! ones.
//!
//! The kernel assigns the lowest free number to each new descriptor, so a number near the limit means that the table
//! is nearly full. The reserve is for the daemon itself: the control socket, new drives, a pool's labels.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::process::{Resource, getrlimit};

/// Descriptors reserved from clients of exports; at most a quarter of the limit.
const KEPT: u64 = 128;

/// True if a client's new connection uses a reserved descriptor. The caller must then close it.
pub(crate) fn is_kept_back(socket: &OwnedFd) -> bool {
    let Some(limit) = getrlimit(Resource::Nofile).current else {
        return false;
    };
    let kept = KEPT.min(limit / 4);
    u64::try_from(socket.as_raw_fd()).unwrap_or(0) >= limit - kept
}
