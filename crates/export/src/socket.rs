//! A Unix socket's file: replaces the file of a server that has ended, never that of a running one.
//!
//! A server that is killed leaves its socket's file behind. No process listens there any more: a connection is
//! refused. Two races follow. Between this check and the bind of a new socket, another server may do the same.
//! Between `bind` and `listen` a running server refuses connections, too. So all of it happens under a lock on the
//! directory; the kernel releases the lock if its process ends.

use std::borrow::Cow;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use block::Hint;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen as listen_on,
    socket_with,
};

/// How long to wait for another server's lock on the directory; then go on without the lock. The lock is held for a
/// few system calls, unless a process blocks it on purpose.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// Why a path could not be listened at.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// Another server answers there.
    #[error("the socket {} is in use: another server answers there", path.display())]
    Busy {
        /// The socket file.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The file.
        path: PathBuf,
    },
    /// The path is a socket on which no process listens, and this program has not created it.
    #[error("{} is a socket that another program has left behind", path.display())]
    Left {
        /// The file.
        path: PathBuf,
    },
    /// The path does not fit into a socket address.
    #[error("the socket path {} is too long: at most 107 bytes fit", path.display())]
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused it.
    #[error("cannot listen at {}: {source}", path.display())]
    System {
        /// The path.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
}

impl Hint for SocketError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        let hint = match self {
            Self::Busy { .. } => "stop it or choose another path",
            Self::NotASocket { .. } => "choose another path",
            Self::Left { .. } => "remove it, or choose another path",
            Self::TooLong { .. } => "choose a shorter one",
            Self::System { .. } => "check the path and its permissions",
        };
        Some(hint.into())
    }
}

/// A socket's file. Dropping this removes the file, unless another server has put its own there.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = std::fs::symlink_metadata(&self.path)
            .is_ok_and(|found| found.dev() == self.device && found.ino() == self.inode);
        if ours && let Err(error) = std::fs::remove_file(&self.path) {
            tracing::warn!("{} stays: {error}", self.path.display());
        }
    }
}

/// Listens at `path` with a non-blocking socket. Its file has the permission bits `mode` before any client can
/// connect. Replaces the file of a server that has ended.
///
/// # Errors
/// [`SocketError`].
pub fn listen(path: &Path, mode: u32, backlog: i32) -> Result<(OwnedFd, SocketFile), SocketError> {
    listen_and(path, mode, backlog, remove_if_dead)
}

/// The same, but never replaces a file.
///
/// # Errors
/// As [`listen`]; and [`SocketError::Left`] if there is a file of a server that has ended.
pub fn listen_anew(
    path: &Path,
    mode: u32,
    backlog: i32,
) -> Result<(OwnedFd, SocketFile), SocketError> {
    listen_and(path, mode, backlog, |path, address| {
        match is_dead(path, address)? {
            true => Err(SocketError::Left { path: path.into() }),
            false => Ok(()),
        }
    })
}

fn listen_and(
    path: &Path,
    mode: u32,
    backlog: i32,
    make_room: impl FnOnce(&Path, &SocketAddrUnix) -> Result<(), SocketError>,
) -> Result<(OwnedFd, SocketFile), SocketError> {
    let address = address(path)?;
    let system = |source: io::Error| SocketError::System {
        path: path.to_owned(),
        source,
    };
    let socket = new_socket(path)?;
    let _lock = lock_directory(path);
    if let Err(error) = bind(&socket, &address) {
        if error != Errno::ADDRINUSE {
            return Err(system(error.into()));
        }
        make_room(path, &address)?;
        bind(&socket, &address).map_err(|error| system(error.into()))?;
    }
    let finish = || -> io::Result<SocketFile> {
        let found = std::fs::symlink_metadata(path)?;
        let file = SocketFile {
            path: path.into(),
            device: found.dev(),
            inode: found.ino(),
        };
        // No client can connect before `listen`, so the bits are set in time.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        listen_on(&socket, backlog)?;
        Ok(file)
    };
    let file = finish().map_err(system)?;
    Ok((socket, file))
}

/// Removes the socket file at `path` if no process listens there.
///
/// # Errors
/// If the path is something else, or a server listens there.
pub fn remove_dead(path: &Path) -> Result<(), SocketError> {
    let address = address(path)?;
    let _lock = lock_directory(path);
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        _ => remove_if_dead(path, &address),
    }
}

fn address(path: &Path) -> Result<SocketAddrUnix, SocketError> {
    SocketAddrUnix::new(path).map_err(|_| SocketError::TooLong { path: path.into() })
}

fn new_socket(path: &Path) -> Result<OwnedFd, SocketError> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).map_err(|error| {
        SocketError::System {
            path: path.to_owned(),
            source: error.into(),
        }
    })
}

/// Opens and locks the directory of `path`. `None` if that fails.
fn lock_directory(path: &Path) -> Option<File> {
    let parent = path.parent().filter(|parent| *parent != Path::new(""));
    let directory = File::open(parent.unwrap_or(Path::new("."))).ok()?;
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Some(directory),
            Err(Errno::WOULDBLOCK | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => {
                tracing::debug!("{} is not locked: {error}", path.display());
                return None;
            }
        }
    }
}

/// Removes a socket file on which no process listens.
fn remove_if_dead(path: &Path, address: &SocketAddrUnix) -> Result<(), SocketError> {
    if !is_dead(path, address)? {
        return Ok(());
    }
    std::fs::remove_file(path).map_err(|source| SocketError::System {
        path: path.to_owned(),
        source,
    })
}

/// True if the path is a socket on which no process listens. False if the file does not exist.
fn is_dead(path: &Path, address: &SocketAddrUnix) -> Result<bool, SocketError> {
    let system = |source: io::Error| SocketError::System {
        path: path.to_owned(),
        source,
    };
    let found = match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        found => found.map_err(system)?,
    };
    if !found.file_type().is_socket() {
        return Err(SocketError::NotASocket { path: path.into() });
    }
    match connect(new_socket(path)?, address) {
        Err(Errno::CONNREFUSED) => Ok(true),
        Err(error @ (Errno::ACCESS | Errno::PERM)) => Err(system(error.into())),
        // A full backlog (EAGAIN) means a server that runs but is busy.
        _ => Err(SocketError::Busy { path: path.into() }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn a_busy_socket_is_refused_by_name_and_a_stale_one_replaced() {
        let dir = testing::Directory::new();
        let path = dir.join("s");
        let first = listen(&path, 0o600, 1).unwrap();
        let busy = listen(&path, 0o600, 1).unwrap_err();
        assert!(matches!(&busy, SocketError::Busy { path: named } if *named == path));
        assert!(busy.to_string().contains(path.to_str().unwrap()));
        assert!(matches!(remove_dead(&path), Err(SocketError::Busy { .. })));

        drop(first);
        assert!(!path.exists(), "a server that ends removes its file");
        // A server that was killed leaves its file behind.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let anew = listen_anew(&path, 0o600, 1).map(drop);
        assert!(matches!(anew, Err(SocketError::Left { path: named }) if named == path));
        assert!(path.exists(), "nothing is removed");
        let second = listen(&path, 0o600, 1).unwrap();
        let bits = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(bits & 0o777, 0o600);
        drop(second);

        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        remove_dead(&path).unwrap();
        assert!(!path.exists());
        remove_dead(&path).unwrap();

        std::fs::write(&path, "precious").unwrap();
        let anew = listen_anew(&path, 0o600, 1).map(drop);
        for result in [listen(&path, 0o600, 1).map(drop), anew, remove_dead(&path)] {
            assert!(matches!(result, Err(SocketError::NotASocket { .. })));
        }
        assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    }

    #[test]
    fn a_socket_with_a_full_queue_belongs_to_a_living_server() {
        let dir = testing::Directory::new();
        let path = dir.join("s");
        let server = listen(&path, 0o600, 0).unwrap();
        let address = address(&path).unwrap();
        let mut clients = Vec::new();
        loop {
            let client = new_socket(&path).unwrap();
            if connect(&client, &address).is_err() {
                break;
            }
            clients.push(client);
        }
        assert!(matches!(
            listen(&path, 0o600, 1),
            Err(SocketError::Busy { .. })
        ));
        drop(server);
    }

    #[test]
    fn of_many_who_find_a_dead_socket_one_takes_it() {
        let dir = testing::Directory::new();
        let path = dir.join("s");
        for round in 0..20 {
            drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
            let taken = AtomicUsize::new(0);
            let start = std::sync::Barrier::new(8);
            let end = std::sync::Barrier::new(8);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        start.wait();
                        let server = listen(&path, 0o600, 1);
                        if server.is_ok() {
                            taken.fetch_add(1, Ordering::SeqCst);
                        }
                        end.wait();
                    });
                }
            });
            assert_eq!(taken.load(Ordering::SeqCst), 1, "round {round}");
            assert!(!path.exists());
        }
    }
}
