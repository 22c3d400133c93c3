//! Notifications to the process that started the daemon, if that is systemd (`sd_notify`): ready, status, watchdog,
//! stopping.
//!
//! `RELOADING` is never sent: the daemon has no configuration that it could read again.

#![expect(
    unsafe_code,
    reason = "descriptors that a process gets at its start are only numbers in its environment"
)]

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use export::fuse::kept::{Keeper, Kept};
use sd_notify::NotifyState;

use crate::Daemon;
use crate::kept::KeptFiles;

fn tell(states: &[NotifyState<'_>]) {
    // Without a supervisor this does nothing. If the supervisor's socket fails, the daemon goes on.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the supervisor is not told: {error}");
    }
}

/// The start is complete: pools and exports are restored as far as possible, and requests are answered.
pub(crate) fn ready(daemon: &Daemon) {
    let missing = match daemon.failed_restores().len() {
        0 => String::new(),
        missing => format!("; {missing} not brought back, see `ravelin pool list`"),
    };
    let status = format!("{} pools open at start{missing}", daemon.list().len());
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// systemd's store of descriptors.
struct Store;

impl Keeper for Store {
    fn keep(&self, name: &str, descriptor: BorrowedFd<'_>) -> io::Result<()> {
        let name = NotifyState::FdName(name);
        // Without polling: systemd would drop a descriptor that reports an end, and a mount cannot be polled.
        let states = [NotifyState::FdStore, name, NotifyState::Custom("FDPOLL=0")];
        sd_notify::notify_with_fds(&states, &[descriptor])
    }

    fn release(&self, name: &str) {
        tell(&[NotifyState::FdStoreRemove, NotifyState::FdName(name)]);
    }
}

/// True if the supervisor keeps descriptors for this service. systemd says so since version 254; the unit says so for
/// earlier ones.
fn keeps_descriptors() -> bool {
    let is_set =
        |name| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    is_set("NOTIFY_SOCKET") && (is_set("FDSTORE") || is_set("RAVELIN_FDSTORE"))
}

/// The files of volumes that the daemon before has left with the supervisor, and the means to leave more. To be called
/// once, before other descriptors are opened.
#[must_use]
pub fn kept_files() -> KeptFiles {
    let given = match sd_notify::listen_fds_with_names() {
        Ok(given) => given.collect(),
        Err(error) => {
            tracing::warn!("the supervisor's descriptors have no names: {error}");
            Vec::new()
        }
    };
    let owned = |(number, name): (i32, String)| {
        // SAFETY: the supervisor opened it for this process, which has opened nothing at this number and takes it once.
        (name, unsafe { OwnedFd::from_raw_fd(number) })
    };
    let (files, useless) = Kept::among(given.into_iter().map(owned).collect());
    useless.iter().for_each(|name| Store.release(name));
    match keeps_descriptors() {
        true => KeptFiles::new(Arc::new(Store), files),
        false => KeptFiles::default(),
    }
}

/// True if the supervisor starts the daemon again when it has stopped: it stops because of a restart. Then the files of
/// volumes stay for the next one; after a mere stop they would hang for ever.
pub(crate) fn restarts() -> bool {
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let in_cgroup = || {
        let unit = cgroup
            .lines()
            .next()?
            .rsplit('/')
            .find(|part| part.ends_with(".service"))?;
        Some(unit.to_owned())
    };
    let named = std::env::var("RAVELIN_UNIT").ok();
    let Some(unit) = named.or_else(in_cgroup) else {
        return false;
    };
    let manager = match rustix::process::geteuid().is_root() {
        true => "--system",
        false => "--user",
    };
    let jobs = Command::new("systemctl")
        .args([manager, "list-jobs", "--no-legend", "--plain", &unit])
        .stdin(Stdio::null())
        .output();
    match jobs {
        // A line is: number, unit, kind of job, state.
        Ok(jobs) => String::from_utf8_lossy(&jobs.stdout).lines().any(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            words.contains(&unit.as_str()) && words.iter().any(|word| word.ends_with("restart"))
        }),
        Err(error) => {
            tracing::debug!("systemctl: {error}");
            false
        }
    }
}

/// The daemon begins to stop.
pub(crate) fn stopping() {
    let status = "ending exports, closing pools";
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Sends the watchdog notification at half the interval that the supervisor demands. Sent only if the runtime
/// schedules tasks and no lock that every request needs is held for good. A drive that hangs does not count: the
/// daemon is alive all the same.
pub(crate) async fn live(daemon: Arc<Daemon>) {
    let Some(limit) = sd_notify::watchdog_enabled() else {
        return;
    };
    let mut beat = tokio::time::interval((limit / 2).max(Duration::from_millis(10)));
    loop {
        beat.tick().await;
        let daemon = Arc::clone(&daemon);
        if tokio::task::spawn_blocking(move || daemon.touch())
            .await
            .is_ok()
        {
            tell(&[NotifyState::Watchdog]);
        }
    }
}
