//! `ravelin daemon`: serves the API in the foreground.

use std::io::{self, IsTerminal};
use std::os::unix::fs::DirBuilderExt;

use clap::Args;
use control::server::{self, ServeError, Socket};
use serde_json::json;

use super::common::{Context, Failure};

/// Run the daemon in the foreground.
#[derive(Debug, Args)]
pub(crate) struct DaemonArguments {}

impl DaemonArguments {
    /// Serves until SIGTERM or SIGINT.
    #[expect(clippy::unused_self, reason = "every verb is run alike")]
    pub(crate) fn run(&self, context: &Context) -> Result<(), Failure> {
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
        tracing_subscriber::fmt()
            .with_writer(io::stderr)
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .init();
        more_files();
        no_waiting_for_ourselves();
        let ready = || {
            tracing::info!("answers at {}", path.display());
            let pid = std::process::id();
            let fields = json!({ "socket": path, "pid": pid });
            // A daemon runs on when nobody reads where it is.
            let _ = context.print("daemon", &fields, |out| {
                writeln!(out, "ravelin daemon {pid} answers at {}", path.display())
            });
        };
        Ok(server::run(&socket, ready)?)
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

/// A file system on a volume writes its dirty pages through this process. When memory is short, an
/// allocation here must not wait for just that; all threads inherit this.
fn no_waiting_for_ourselves() {
    if let Err(error) = rustix::process::configure_io_flusher_behavior(true) {
        tracing::debug!("no PR_SET_IO_FLUSHER, it needs CAP_SYS_RESOURCE: {error}");
    }
}
