//! Notifications to the process that started the daemon, if that is systemd (`sd_notify`): ready, status, watchdog,
//! stopping.
//!
//! `RELOADING` is never sent: the daemon has no configuration that it could read again.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::Daemon;

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
