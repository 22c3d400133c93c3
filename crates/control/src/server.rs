//! The control socket and the daemon's life cycle: listen, restore, serve, stop.

use std::borrow::Cow;
use std::io;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use block::Hint;
use engine::drive::Enclosures;
use export::socket::{SocketError, SocketFile};
use tokio::signal::unix::{SignalKind, signal};

use crate::hooks::{HookOptions, Hooks};
use crate::kept::{KeptFiles, WAIT_MAX};
use crate::state::{StateError, StateFile};
use crate::{Daemon, Failure, LinkPlaces, connections, routes, supervisor};

/// Signals that follow the first one within this time count as the same request to stop. Programs like `timeout`
/// signal a process and its group, and so do a terminal and a script together; that must not abort the clean end.
const ONE_ORDER: Duration = Duration::from_millis(500);

/// How long requests under way may go on after a stop was asked for.
const LAST_REQUESTS: Duration = Duration::from_secs(10);

/// Connections that may wait to be accepted.
const BACKLOG: i32 = 128;

/// Why the daemon does not run or did not end cleanly.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Another daemon answers at the socket.
    #[error("the socket {} is in use: another daemon answers there", path.display())]
    Busy {
        /// The socket.
        path: PathBuf,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket", path.display())]
    NotASocket {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused it.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen {
        /// The socket.
        path: PathBuf,
        /// Its reason.
        source: io::Error,
    },
    /// The state directory cannot be used.
    #[error("{0}")]
    State(#[from] StateError),
    /// Threads or signal handlers could not be set up.
    #[error("the daemon cannot run: {0}")]
    System(#[from] io::Error),
    /// Pools did not close cleanly.
    #[error(
        "the daemon has stopped, but not everything closed cleanly: {}",
        told(failures)
    )]
    Unclean {
        /// What went wrong.
        failures: Vec<Failure>,
    },
}

impl Hint for ServeError {
    fn hint(&self) -> Option<Cow<'_, str>> {
        match self {
            Self::Busy { .. } => Some("stop it, or choose another with --socket".into()),
            Self::NotASocket { .. } => Some("choose another path with --socket".into()),
            Self::Listen { .. } => Some("check the path, or choose another with --socket".into()),
            Self::State(error) => error.hint(),
            Self::System(_) | Self::Unclean { .. } => None,
        }
    }
}

fn told(failures: &[Failure]) -> String {
    let one = |failure: &Failure| failure.problem.to_string();
    failures.iter().map(one).collect::<Vec<_>>().join("; ")
}

/// A listening socket. Dropping this removes its file, unless another daemon has put its own socket there.
#[derive(Debug)]
pub struct Socket {
    listener: UnixListener,
    _file: SocketFile,
}

impl Socket {
    /// Gives members of a group access, too. They may then do everything that the daemon can.
    ///
    /// # Errors
    /// If there is no such group, or the socket cannot be given to it.
    pub fn open_to_group(&self, path: &Path, group: &str) -> io::Result<()> {
        use std::os::unix::fs::PermissionsExt;
        let number = group_number(group)?;
        std::os::unix::fs::chown(path, None, Some(number))?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o660))
    }

    /// Listens at `path`, accessible to this user only: a client can wipe drives. Replaces the file of a daemon that
    /// was killed.
    ///
    /// # Errors
    /// [`ServeError`] names the obstacle.
    pub fn bind(path: &Path) -> Result<Self, ServeError> {
        let path = path.to_owned();
        match export::socket::listen(&path, 0o600, BACKLOG) {
            Ok((listener, file)) => Ok(Self {
                listener: listener.into(),
                _file: file,
            }),
            Err(SocketError::Busy { .. }) => Err(ServeError::Busy { path }),
            Err(SocketError::NotASocket { .. }) => Err(ServeError::NotASocket { path }),
            Err(SocketError::System { source, .. }) => Err(ServeError::Listen { path, source }),
            Err(error @ (SocketError::TooLong { .. } | SocketError::Left { .. })) => {
                Err(ServeError::Listen {
                    path,
                    source: io::Error::other(error),
                })
            }
        }
    }
}

/// The number of a group of this machine, by its name or as a number.
fn group_number(group: &str) -> io::Result<u32> {
    if let Ok(number) = group.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")?;
    let number = groups.lines().find_map(|line| {
        let mut parts = line.split(':');
        let found = parts.next() == Some(group);
        parts.nth(1).filter(|_| found)?.parse().ok()
    });
    let unknown = || {
        io::Error::new(
            io::ErrorKind::NotFound,
            "there is no such group in /etc/group",
        )
    };
    number.ok_or_else(unknown)
}

/// The daemon's options besides its socket.
#[derive(Debug)]
pub struct Options {
    /// The state directory.
    pub state: StateFile,
    /// Programs to run for each event.
    pub hooks: Option<HookOptions>,
    /// Directory of stable names for the devices of attached volumes, `POOL/VOLUME`.
    pub links: Option<LinkPlaces>,
    /// Directory of the files below loop devices whose place the daemon chooses.
    pub files: PathBuf,
    /// How long the start waits for missing drives. A pool that is opened without a drive puts that drive out, and
    /// the drive would have to be filled again.
    pub late_drives: Duration,
    /// How often in ten minutes a drive that is back may return to its pool without a command.
    pub returns: usize,
    /// Files of volumes that outlive the daemon.
    pub kept: KeptFiles,
    /// The enclosures that drives are in.
    pub enclosures: Enclosures,
}

/// Restores the pools of the state directory, answers requests meanwhile, and serves until SIGTERM or SIGINT. Then
/// ends the exports, closes the pools and removes the socket. A second signal later than `ONE_ORDER` after the
/// first ends the process at once. Calls `ready` when the restoration is complete; requests are answered before that.
///
/// # Errors
/// If the start fails, or the end was not clean.
pub fn run(socket: &Socket, options: Options, ready: impl FnOnce()) -> Result<(), ServeError> {
    let Options {
        state,
        hooks,
        links,
        files,
        late_drives,
        returns,
        kept,
        enclosures,
    } = options;
    let (hooks, hooks_end) = hooks.map(Hooks::start).transpose()?.unzip();
    // After the hook thread's start, so that programs started by that thread do not inherit the setting.
    no_waiting_for_ourselves();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .thread_name("api")
        .build()?;
    let daemon = Arc::new(Daemon::new(state, hooks, links, files, kept, enclosures));
    let ended = runtime.block_on(async {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let pools = daemon.begin_restoring();
        let restoring = Arc::clone(&daemon);
        let mut restored =
            tokio::task::spawn_blocking(move || restoring.restore(&pools, late_drives));
        // Clients that connect meanwhile wait in the socket's queue.
        let first = Arc::clone(&daemon);
        tokio::task::spawn_blocking(move || first.wait_for_first())
            .await
            .map_err(io::Error::other)?;
        let listener = tokio::net::UnixListener::from_std(socket.listener.try_clone()?)?;
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let router = routes::router(Arc::clone(&daemon));
        let serving = tokio::spawn(connections::serve(listener, router, async move {
            // An error means that the sender is gone: stop as well.
            stopped.await.ok();
        }));
        let mut living = None;
        let mut late = None;
        let mut ready = Some(ready);
        let restored_well = |outcome: Result<(), tokio::task::JoinError>| {
            if let Err(error) = outcome {
                tracing::error!("bringing back what was open had panicked: {error}");
            }
        };
        loop {
            tokio::select! {
                outcome = &mut restored, if ready.is_some() => {
                    restored_well(outcome);
                    supervisor::ready(&daemon);
                    ready.take().into_iter().for_each(|ready| ready());
                    // A supervisor expects watchdog notifications from here on.
                    living = Some(tokio::spawn(supervisor::live(Arc::clone(&daemon))));
                    let waiting = Arc::clone(&daemon);
                    late = Some(tokio::task::spawn_blocking(move || waiting.open_late_pools()));
                    let waiting = Arc::clone(&daemon);
                    tokio::spawn(async move {
                        tokio::time::sleep(WAIT_MAX).await;
                        let ending = tokio::task::spawn_blocking(move || waiting.kept.end_waiting());
                        restored_well(ending.await);
                    });
                    let watching = Arc::clone(&daemon);
                    // Not waited for at the end: it may just be asking a drive that hangs.
                    drop(tokio::task::spawn_blocking(move || watching.return_drives(returns)));
                    continue;
                }
                _ = terminate.recv() => tracing::info!("SIGTERM: stopping"),
                _ = interrupt.recv() => tracing::info!("SIGINT: stopping"),
            }
            break;
        }
        supervisor::stopping();
        daemon.stop_restoring();
        if ready.is_some() {
            // Pools that are still being opened are closed together with the others.
            restored_well(restored.await);
        }
        if let Some(late) = late {
            // A pool that is being opened is closed with the others.
            restored_well(late.await);
        }
        living.inspect(tokio::task::JoinHandle::abort);
        let first = tokio::time::Instant::now();
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                if first.elapsed() >= ONE_ORDER {
                    break;
                }
            }
            tracing::error!("a second signal: ending at once; pools are not closed cleanly");
            std::process::exit(1);
        });
        stop.send(()).ok();
        if tokio::time::timeout(LAST_REQUESTS, serving).await.is_err() {
            tracing::warn!("requests are still under way; going on without them");
        }
        let closing = tokio::task::spawn_blocking(move || {
            let restarts = daemon.kept.are_kept() && supervisor::restarts();
            daemon.close(restarts)
        });
        match closing.await {
            Ok(closed) => closed.map_err(|failures| ServeError::Unclean { failures }),
            Err(error) => Err(io::Error::other(error).into()),
        }
    });
    // With a time limit: a request that hangs must not keep the process alive.
    runtime.shutdown_timeout(Duration::from_secs(1));
    // The daemon has ended, so no more events enter the queue.
    if let Some(end) = hooks_end {
        end.wait();
    }
    ended
}

/// Sets `PR_SET_IO_FLUSHER`. A file system on a volume writes its dirty pages through this process. When memory is
/// short, an allocation in this process must not wait for that write-back. All threads inherit the setting.
fn no_waiting_for_ourselves() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        let needs = "it needs CAP_SYS_RESOURCE";
        // Warn only as root: only root mounts file systems on volumes.
        if rustix::process::geteuid().is_root() {
            tracing::warn!(
                "no PR_SET_IO_FLUSHER, {needs}: when memory is short, file systems on volumes may hang: {error}"
            );
        } else {
            tracing::debug!("no PR_SET_IO_FLUSHER, {needs}: {error}");
        }
    }
}
