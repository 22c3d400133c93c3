//! What whoever started the daemon is told, where that is systemd: that it is ready, what it does,
//! that it lives, that it ends.
//!
//! There is no `RELOADING`: the daemon has no configuration that it could read again.

use std::sync::Arc;
use std::time::Duration;

use sd_notify::NotifyState;

use crate::Daemon;

fn tell(states: &[NotifyState<'_>]) {
    // Without a supervisor this does nothing. One that does not listen is none of our business.
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!("the supervisor is not told: {error}");
    }
}

/// What came back after the start is there, and requests are answered.
pub(crate) fn ready(daemon: &Daemon) {
    let missing = match daemon.failed_restores().len() {
        0 => String::new(),
        missing => format!("; {missing} not brought back, see `ravelin pool list`"),
    };
    let status = format!("{} pools open at start{missing}", daemon.list().len());
    tell(&[NotifyState::Ready, NotifyState::Status(&status)]);
}

/// The end begins.
pub(crate) fn stopping() {
    let status = "ending exports, closing pools";
    tell(&[NotifyState::Stopping, NotifyState::Status(status)]);
}

/// Says that the daemon lives, as often as the supervisor wants to hear it, for as long as it does:
/// the runtime turns and nobody sits on the locks that every request needs. A drive that hangs does
/// not make a daemon dead.
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
