//! High: no rests, several steps of a lane in flight, and longer ones. Clients wait behind them.

use std::time::Duration;

use super::Priority;

#[derive(Debug)]
pub(super) struct High;

impl Priority for High {
    fn name(&self) -> &'static str {
        "high"
    }

    fn summary(&self) -> &'static str {
        "clients wait for it"
    }

    /// A change of the priority takes effect when the steps in flight have ended: within a second.
    fn budget(&self) -> Duration {
        Duration::from_millis(500)
    }

    fn rest(&self, _took: Duration) -> Duration {
        Duration::ZERO
    }

    fn steps(&self) -> u64 {
        16
    }

    fn step_bytes_max(&self) -> u64 {
        4 << 20
    }
}
