//! `ravelin daemon`: serves the API in the foreground.

use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use control::LinkPlaces;
use control::hooks::HookOptions;
use control::server::{self, ServeError, Socket};
use control::state::StateFile;
use engine::drive::Enclosures;
use serde_json::json;

use super::common::{Context, Failure};
use super::journal;

/// Run the daemon in the foreground. It opens the pools that were open when it last ran, and serves
/// their volumes where they were served.
#[derive(Debug, Args)]
pub(crate) struct DaemonArguments {
    /// Where it keeps what it needs to know when it starts again.
    ///
    /// If not given, `$STATE_DIRECTORY`; else beside a socket that is given, `PATH.state`; else
    /// `/var/lib/ravelin` for root and `~/.local/state/ravelin` for others.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// How long a start waits for drives that are not there.
    ///
    /// Opening a pool without a drive puts it out, and it would have to be filled again.
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    wait_drives: u64,
    /// How often in ten minutes a drive that was pulled, missing or hung may return without a command;
    /// 0: never.
    #[arg(long, value_name = "COUNT", default_value_t = 5)]
    returns: usize,
    /// Keep all memory that it has touched in memory: no swapping, and no reading of its own code
    /// from a disk that may be a volume of its own.
    #[arg(long)]
    lock_memory: bool,
    /// Where the block devices of attached volumes get names that stay: DIR/POOL/VOLUME. For root at the usual
    /// socket `/dev/ravelin`.
    #[arg(long, value_name = "DIR")]
    links: Option<PathBuf>,
    /// A group whose members may use the daemon, and so do all that it can; else only its own user may.
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// Programs that are run when a drive goes out, a rebuild begins or ends, data is lost, and so
    /// on; the event is on their standard input, as JSON.
    #[arg(long, value_name = "DIR")]
    hooks: Option<PathBuf>,
    /// How long one of them may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 30, requires = "hooks")]
    hook_seconds: u64,
    /// A copy of the machine's `sys` and `dev`, in which drives are looked up in their enclosures: for tests.
    #[arg(long, value_name = "DIR", hide = true)]
    sysroot: Option<PathBuf>,
}

impl DaemonArguments {
    /// Serves until SIGTERM or SIGINT.
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
        if let Some(hooks) = &self.hooks
            && !hooks.is_dir()
        {
            return Err(Failure::usage(
                "the daemon did not start",
                format!("--hooks {}: there is no such directory", hooks.display()),
                "make the directory, or leave out --hooks",
            ));
        }
        let path = context.socket();
        if context.socket.is_none()
            && let Some(directory) = path.parent()
        {
            std::fs::DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(directory)
                .map_err(|source| ServeError::Listen {
                    path: path.clone(),
                    source,
                })?;
        }
        let socket = Socket::bind(&path)?;
        let state = self.state_directory(context);
        let log = tracing_subscriber::fmt().with_writer(io::stderr);
        match journal::has_stderr() {
            true => log
                .with_ansi(false)
                .event_format(journal::Priorities)
                .init(),
            false => log
                .with_ansi(io::stderr().is_terminal())
                .with_target(false)
                .init(),
        }
        // After the log is set up: these may write log messages.
        let kept = control::kept_files();
        let state = StateFile::open(&state).map_err(ServeError::from)?;
        if let Some(group) = &self.group
            && let Err(error) = socket.open_to_group(&path, group)
        {
            // The daemon goes on: its own user can still use the socket.
            tracing::warn!("the group `{group}` cannot use the socket: {error}");
        }
        more_files();
        if self.lock_memory {
            lock_memory();
        }
        let ready = || {
            tracing::info!("answers at {}", path.display());
            let pid = std::process::id();
            let fields = json!({ "socket": path, "pid": pid });
            // The daemon runs on if its stdout is closed.
            let _ = context.print("daemon", &fields, |out| {
                writeln!(out, "ravelin daemon {pid} answers at {}", path.display())
            });
        };
        let hooks = self.hooks.as_ref().map(|directory| HookOptions {
            // Hook programs run in another directory than the daemon was started in.
            directory: std::path::absolute(directory).unwrap_or_else(|_| directory.clone()),
            time_limit: Duration::from_secs(self.hook_seconds),
            socket: std::path::absolute(&path).unwrap_or_else(|_| path.clone()),
        });
        let usual = context.socket.is_none() && rustix::process::geteuid().is_root();
        let links = match &self.links {
            Some(links) => std::path::absolute(links).ok(),
            None => usual.then(|| PathBuf::from("/dev/ravelin")),
        };
        let links = links.map(|links| LinkPlaces {
            links,
            // udev's rule is for the usual daemon.
            udev: usual.then(|| PathBuf::from("/run/ravelin/devices")),
        });
        let mut files = std::path::absolute(&path)
            .unwrap_or_else(|_| path.clone())
            .into_os_string();
        files.push(".volumes");
        let options = server::Options {
            files: files.into(),
            state,
            hooks,
            links,
            late_drives: Duration::from_secs(self.wait_drives),
            returns: self.returns,
            kept,
            enclosures: self
                .sysroot
                .clone()
                .map_or_else(Enclosures::default, Enclosures::below),
        };
        Ok(server::run(&socket, options, ready)?)
    }

    fn state_directory(&self, context: &Context) -> PathBuf {
        let named = |variable| std::env::var_os(variable).filter(|value| !value.is_empty());
        if let Some(state) = &self.state {
            return state.clone();
        }
        // systemd separates several directories by colons; our unit has one.
        if let Some(state) = named("STATE_DIRECTORY") {
            return PathBuf::from(state);
        }
        // A daemon at a socket of its own has a state of its own, beside the socket.
        let home = named("HOME").map(PathBuf::from);
        match (&context.socket, home) {
            (Some(_), _) => {}
            (None, _) if rustix::process::geteuid().is_root() => {
                return PathBuf::from("/var/lib/ravelin");
            }
            (None, Some(home)) => {
                let state = named("XDG_STATE_HOME").map(PathBuf::from);
                return state
                    .unwrap_or_else(|| home.join(".local/state"))
                    .join("ravelin");
            }
            (None, None) => {}
        }
        let mut beside = context.socket().into_os_string();
        beside.push(".state");
        PathBuf::from(beside)
    }
}

/// A pool of hundreds of drives takes more descriptors than the usual soft limit.
fn more_files() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        tracing::warn!("the limit of open files stays low: {error}");
    }
}

/// Locks pages that are in use. A page that has not been touched yet takes no memory before it is touched.
fn lock_memory() {
    use rustix::mm::{MlockAllFlags, mlockall};
    use rustix::process::{Resource, Rlimit, setrlimit};
    // With a limit, an allocation beyond the limit would fail later, which is worse than what the lock prevents.
    // Raising it takes CAP_SYS_RESOURCE, or LimitMEMLOCK= in systemd's unit.
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    let flags = MlockAllFlags::CURRENT | MlockAllFlags::FUTURE | MlockAllFlags::ONFAULT;
    let locked = setrlimit(Resource::Memlock, unlimited).and_then(|()| mlockall(flags));
    if let Err(error) = locked {
        tracing::warn!("memory is not locked, it needs CAP_IPC_LOCK and no limit of it: {error}");
    }
}
