//! Where a server listens, and how it takes a Unix socket's path over.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, listen,
    socket_with, sockopt,
};

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
#[error("`{text}` is not an address to listen on: write unix:PATH or tcp:127.0.0.1:PORT")]
pub struct ParseListenError {
    /// What was given.
    pub text: String,
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
    /// Another server answers at the path.
    #[error(
        "the socket {} is in use: another server answers there; stop it or choose another path",
        path.display()
    )]
    Busy {
        /// The socket file.
        path: PathBuf,
    },
    /// Something else than a socket is at the path.
    #[error("{} exists and is not a socket; choose another path", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error(
        "the socket path {} is too long: at most 107 bytes fit; choose a shorter one",
        path.display()
    )]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// The operating system says no.
    #[error("cannot listen on {listen}: {source}; check the address and its permissions")]
    System {
        /// The address.
        listen: Listen,
        /// Its reason.
        source: io::Error,
    },
}

impl From<BindError> for io::Error {
    fn from(error: BindError) -> Self {
        let kind = match &error {
            BindError::Busy { .. } => io::ErrorKind::AddrInUse,
            BindError::NotASocket { .. } => io::ErrorKind::AlreadyExists,
            BindError::TooLong { .. } => io::ErrorKind::InvalidInput,
            BindError::System { source, .. } => source.kind(),
        };
        Self::new(kind, error)
    }
}

/// A listening socket. Dropping it closes it and removes its file.
#[derive(Debug)]
pub(super) struct Listener {
    pub(super) socket: OwnedFd,
    /// With the port that was taken.
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
                let (socket, file) = bind_unix(path, mode, &system)?;
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
                    let socket = new_socket(family)?;
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

    /// Takes the file's removal over; the socket may now be closed elsewhere.
    pub(super) const fn take_file(&mut self) -> Option<SocketFile> {
        self.file.take()
    }
}

/// Removes the socket's file when dropped, unless another server has put its own there.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn new_socket(family: AddressFamily) -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family, SocketType::STREAM, flags, None)
}

fn bind_unix(
    path: &Path,
    mode: u32,
    system: &dyn Fn(io::Error) -> BindError,
) -> Result<(OwnedFd, SocketFile), BindError> {
    let address =
        SocketAddrUnix::new(path).map_err(|_| BindError::TooLong { path: path.into() })?;
    let socket = new_socket(AddressFamily::UNIX).map_err(|error| system(error.into()))?;
    if let Err(error) = bind(&socket, &address) {
        if error != rustix::io::Errno::ADDRINUSE {
            return Err(system(error.into()));
        }
        remove_stale(path, &address, system)?;
        bind(&socket, &address).map_err(|error| system(error.into()))?;
    }
    let finish = || -> io::Result<SocketFile> {
        let found = std::fs::symlink_metadata(path)?;
        let file = SocketFile {
            path: path.into(),
            device: found.dev(),
            inode: found.ino(),
        };
        // Nobody can connect before `listen`, so nobody slips in before the bits are set.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        listen(&socket, BACKLOG)?;
        Ok(file)
    };
    let file = finish().map_err(system)?;
    Ok((socket, file))
}

/// Removes a socket file at which nobody answers.
fn remove_stale(
    path: &Path,
    address: &SocketAddrUnix,
    system: &dyn Fn(io::Error) -> BindError,
) -> Result<(), BindError> {
    let found = std::fs::symlink_metadata(path).map_err(system)?;
    if !found.file_type().is_socket() {
        return Err(BindError::NotASocket { path: path.into() });
    }
    let probe = new_socket(AddressFamily::UNIX).map_err(|error| system(error.into()))?;
    match connect(&probe, address) {
        Err(rustix::io::Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(system),
        // A full backlog (EAGAIN) is a server too, only a busy one.
        _ => Err(BindError::Busy { path: path.into() }),
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

    #[test]
    fn a_busy_socket_is_refused_by_name_and_a_stale_one_replaced() {
        let dir = std::env::temp_dir().join(format!("ravelin-listen-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let path = dir.join("s");
        let listen_on = Listen::Unix(path.clone());
        let first = Listener::bind(&listen_on, 0o600).unwrap();
        let busy = Listener::bind(&listen_on, 0o600).unwrap_err();
        assert!(matches!(&busy, BindError::Busy { path: named } if *named == path));
        assert!(busy.to_string().contains(path.to_str().unwrap()));

        // A server that was killed leaves its file behind.
        drop(first);
        assert!(!path.exists(), "a server that ends removes its file");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let second = Listener::bind(&listen_on, 0o600).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        drop(second);

        std::fs::write(&path, "precious").unwrap();
        assert!(matches!(
            Listener::bind(&listen_on, 0o600),
            Err(BindError::NotASocket { .. })
        ));
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
