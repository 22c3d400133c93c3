//! A server's listening sockets and their addresses.

use std::borrow::Cow;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::str::FromStr;

use block::Hint;
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};

use crate::socket::{SocketError, SocketFile};

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 64;

/// An address to listen on, written `unix:PATH` or `tcp:ADDRESS:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// A socket file.
    Unix(PathBuf),
    /// An IP address and port; port 0 takes a free one.
    Tcp(SocketAddr),
}

/// Why a text is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not an address to listen on")]
pub struct ParseListenError {
    /// What was given.
    pub text: String,
}

impl Hint for ParseListenError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        Some("write unix:PATH or tcp:127.0.0.1:PORT".into())
    }
}

impl FromStr for Listen {
    type Err = ParseListenError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.split_once(':') {
            Some(("unix", path)) if !path.is_empty() => Some(Self::Unix(path.into())),
            Some(("tcp", address)) => address.parse().map(Self::Tcp).ok(),
            _ => None,
        }
        .ok_or_else(|| ParseListenError {
            text: text.to_owned(),
        })
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => write!(f, "tcp:{address}"),
        }
    }
}

/// Why a server could not begin to listen.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// A Unix socket's path is not available.
    #[error(transparent)]
    Socket(#[from] SocketError),
    /// The operating system refused it.
    #[error("cannot listen on {listen}: {source}")]
    System {
        /// The address.
        listen: Listen,
        /// Its reason.
        source: io::Error,
    },
}

impl Hint for BindError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Socket(error) => error.hint(),
            Self::System { .. } => Some("check the address and its permissions".into()),
        }
    }
}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        let kind = match &error {
            BindError::Socket(SocketError::Busy { .. }) => io::ErrorKind::AddrInUse,
            BindError::Socket(SocketError::NotASocket { .. } | SocketError::Left { .. }) => {
                io::ErrorKind::AlreadyExists
            }
            BindError::Socket(SocketError::TooLong { .. }) => io::ErrorKind::InvalidInput,
            BindError::Socket(SocketError::System { source, .. })
            | BindError::System { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// A listening socket. Dropping this closes the socket and removes its file.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// The address, with the port that was assigned.
    pub(super) address: Listen,
    file: Option<SocketFile>,
}

impl Listener {
    /// Listens. A Unix socket's file gets the permission bits `mode`.
    pub(super) fn bind(listen_on: &Listen, mode: u32) -> Result<Self, BindError> {
        let system = |source: io::Error| BindError::System {
            listen: listen_on.clone(),
            source,
        };
        match listen_on {
            Listen::Unix(path) => {
                let (socket, file) = crate::socket::listen_anew(path, mode, BACKLOG)?;
                Ok(Self {
                    socket,
                    address: listen_on.clone(),
                    file: Some(file),
                })
            }
            Listen::Tcp(address) => {
                let tcp = || -> rustix::io::Result<_> {
                    let family = if address.is_ipv4() {
                        AddressFamily::INET
                    } else {
                        AddressFamily::INET6
                    };
                    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
                    sockopt::set_socket_reuseaddr(&socket, true)?;
                    bind(&socket, address)?;
                    listen(&socket, BACKLOG)?;
                    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
                    Ok((socket, bound))
                };
                let (socket, bound) = tcp().map_err(|error| system(error.into()))?;
                Ok(Self {
                    socket,
                    address: Listen::Tcp(bound),
                    file: None,
                })
            }
        }
    }

    /// Transfers the removal of the file to the caller. The socket can then be closed independently of it.
    pub(super) const fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_print() {
        for text in [
            "unix:/run/ravelin/x.sock",
            "tcp:127.0.0.1:10809",
            "tcp:[::1]:1",
        ] {
            assert_eq!(text.parse::<Listen>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "unix:",
            "tcp:localhost",
            "127.0.0.1:1",
            "udp:127.0.0.1:1",
        ] {
            assert!(text.parse::<Listen>().is_err(), "{text}");
        }
    }
}
