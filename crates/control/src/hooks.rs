//! Programs that are run for events: the executables of a directory, one after the other in the order of their names,
//! once for each event.
//!
//! ```text
//!  pool threads ── try_send ──► queue of 256 ──► one thread ── spawn, wait ──► hooks
//! ```
//!
//! A pool's thread only queues the event: a pool must not wait for a program, and memory must not grow if a program
//! is slow. If the queue is full, events are dropped, and the next event that is delivered carries their count. A
//! program that exceeds its time limit is killed with its children.
//!
//! Each program gets the event on its standard input, as one line of JSON, and its main parts in the environment. Its
//! standard error is the daemon's, so its messages go where the daemon's log goes.

use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use engine::status::Severity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use serde::Serialize;

/// Events that may be queued. A guess: a rebuild makes a few, a drive failure some tens.
const QUEUE_MAX: usize = 256;
/// How long a stop of the daemon waits for hooks that still run.
const LAST_HOOKS: Duration = Duration::from_secs(5);

/// `PATH` of hooks.
const HOOK_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// An event as it is passed to hooks.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct HookEvent {
    /// `pool_open`, `pool_closed`, `pool_missing`, or a report of the pool: `drive_out`, …
    pub(crate) event: String,
    pub(crate) pool: String,
    pub(crate) severity: Severity,
    pub(crate) at_milliseconds: u64,
    /// The event in words.
    pub(crate) text: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) seat: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) path: Option<String>,
}

impl HookEvent {
    pub(crate) fn new(
        event: &str,
        severity: Severity,
        pool: &str,
        at: SystemTime,
        text: String,
    ) -> Self {
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self {
            event: event.to_owned(),
            pool: pool.to_owned(),
            severity,
            at_milliseconds: u64::try_from(since.as_millis()).unwrap_or(u64::MAX),
            text,
            seat: None,
            path: None,
        }
    }
}

/// The hooks' directory and limits.
#[derive(Clone, Debug)]
pub struct HookOptions {
    /// The directory; it need not exist yet.
    pub directory: PathBuf,
    /// How long one program may run.
    pub time_limit: Duration,
    /// The daemon's socket, for hooks that use the API.
    pub socket: PathBuf,
}

/// The sending end of the event queue.
#[derive(Clone, Debug)]
pub struct Hooks {
    queue: SyncSender<HookEvent>,
    dropped: Arc<AtomicU64>,
}

/// Reports when the last event has been delivered.
#[derive(Debug)]
pub struct HooksEnd(Receiver<()>);

impl Hooks {
    /// Starts the thread that runs hooks.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(options: HookOptions) -> std::io::Result<(Self, HooksEnd)> {
        let (queue, events) = sync_channel(QUEUE_MAX);
        let (alive, end) = sync_channel::<()>(0);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        std::thread::Builder::new()
            .name("hooks".to_owned())
            .spawn(move || {
                while let Ok(event) = events.recv() {
                    deliver(&options, &event, counter.swap(0, Ordering::Relaxed));
                }
                drop(alive);
            })?;
        Ok((Self { queue, dropped }, HooksEnd(end)))
    }

    /// Queues an event, or drops and counts the event if the queue is full. Never waits.
    pub(crate) fn send(&self, event: HookEvent) {
        match self.queue.try_send(event) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl HooksEnd {
    /// Waits, for [`LAST_HOOKS`] at most, until all queued events have been delivered. All senders must have been
    /// dropped.
    pub(crate) fn wait(&self) {
        if let Err(std::sync::mpsc::RecvTimeoutError::Timeout) = self.0.recv_timeout(LAST_HOOKS) {
            tracing::warn!("hooks still run; going on without them");
        }
    }
}

/// The programs of a directory, in the order of their names.
fn programs(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Vec::new();
    };
    let mut programs: Vec<PathBuf> = entries
        .flatten()
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.as_encoded_bytes();
            // Skip hidden files and what editors and package managers leave behind.
            !name.starts_with(b".") && !name.ends_with(b"~") && !name.contains(&b'#')
        })
        .map(|entry| entry.path())
        .filter(|path| may_run(path))
        .collect();
    programs.sort();
    programs
}

/// True if a file is executable, and only root or the daemon's user can change it: a hook runs with the daemon's
/// rights.
fn may_run(path: &Path) -> bool {
    let Ok(found) = std::fs::metadata(path) else {
        return false;
    };
    let mode = found.permissions().mode();
    if !found.is_file() || mode & 0o111 == 0 {
        return false;
    }
    let ours = found.uid() == 0 || found.uid() == rustix::process::geteuid().as_raw();
    if !ours || mode & 0o022 != 0 {
        tracing::warn!("{} is not run: others may write it", path.display());
        return false;
    }
    true
}

fn deliver(options: &HookOptions, event: &HookEvent, dropped: u64) {
    let programs = programs(&options.directory);
    if programs.is_empty() {
        return;
    }
    let mut document = serde_json::json!({
        "ravelin": env!("CARGO_PKG_VERSION"),
        "kind": "event",
        "dropped": dropped,
    });
    if let (Some(all), Ok(serde_json::Value::Object(fields))) =
        (document.as_object_mut(), serde_json::to_value(event))
    {
        all.extend(fields);
    }
    let line = format!("{document}\n");
    for program in programs {
        run(options, &program, event, &line);
    }
}

/// The severity as JSON has it.
const fn word(severity: Severity) -> &'static str {
    match severity {
        Severity::Info => "info",
        Severity::Warning => "warning",
        Severity::Error => "error",
    }
}

fn run(options: &HookOptions, program: &Path, event: &HookEvent, line: &str) {
    let mut command = Command::new(program);
    command
        // The daemon's environment may contain secrets, and no hook needs it.
        .env_clear()
        .env("PATH", HOOK_PATH)
        .env("LANG", "C.UTF-8")
        .env("RAVELIN_EVENT", &event.event)
        .env("RAVELIN_POOL", &event.pool)
        .env("RAVELIN_SEVERITY", word(event.severity))
        .env("RAVELIN_TEXT", &event.text)
        .env("RAVELIN_SOCKET", &options.socket)
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .process_group(0);
    if let Some(seat) = event.seat {
        command.env("RAVELIN_SEAT", seat.to_string());
    }
    let said = |what: &str| tracing::warn!("hook {}: {what}", program.display());
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return said(&error.to_string()),
    };
    if let Some(mut input) = child.stdin.take() {
        // The line fits into the pipe's buffer, so this does not wait. An error is no fault: a hook need not read its
        // input.
        let _ = input.write_all(line.as_bytes());
    }
    let in_time = wait(&child, options.time_limit);
    if !in_time {
        said("killed, it took too long");
        let _ = kill_process_group(Pid::from_child(&child), Signal::KILL);
    }
    match child.wait() {
        Ok(status) if in_time && !status.success() => said(&status.to_string()),
        Ok(_) => {}
        Err(error) => said(&error.to_string()),
    }
}

/// True if a child ends in time.
fn wait(child: &Child, limit: Duration) -> bool {
    let Ok(descriptor) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else {
        // Kernels before 5.3 have no pidfd: no time limit there.
        return true;
    };
    let limit = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: limit.subsec_nanos().into(),
    };
    let mut ended = [PollFd::new(&descriptor, PollFlags::IN)];
    loop {
        match poll(&mut ended, Some(&limit)) {
            Ok(ready) => return ready > 0,
            Err(rustix::io::Errno::INTR) => {}
            Err(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_is_full_is_not_waited_for_and_counts_what_was_dropped() {
        let (queue, events) = sync_channel(2);
        let hooks = Hooks {
            queue,
            dropped: Arc::default(),
        };
        for number in 0..5 {
            let text = number.to_string();
            let now = SystemTime::now();
            hooks.send(HookEvent::new("x", Severity::Info, "tank", now, text));
        }
        assert_eq!(hooks.dropped.load(Ordering::Relaxed), 3);
        let texts: Vec<String> = events.try_iter().map(|event| event.text).collect();
        assert_eq!(texts, ["0", "1"]);
    }

    #[test]
    fn only_programs_that_nobody_else_may_change_are_run() {
        let directory = testing::Directory::new();
        std::fs::create_dir_all(directory.join("a-directory")).unwrap();
        for (name, mode) in [
            ("20-second", 0o755),
            ("10-first", 0o700),
            ("plain", 0o644),
            ("anyones", 0o757),
            (".hidden", 0o755),
            ("10-first~", 0o755),
        ] {
            let path = directory.join(name);
            std::fs::write(&path, "").unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let names = ["10-first", "20-second"].map(|name| directory.join(name));
        assert_eq!(programs(&directory), names);
        let missing = directory.join("missing");
        assert_eq!(programs(&missing), [] as [PathBuf; 0]);
    }
}
