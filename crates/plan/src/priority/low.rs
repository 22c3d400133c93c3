//! Low: clients hardly notice.

use std::time::Duration;

use super::Priority;

#[derive(Debug)]
pub(super) struct Low;

impl Priority for Low {
    fn name(&self) -> &'static str {
        "low"
    }

    fn summary(&self) -> &'static str {
        "clients hardly notice it"
    }

    fn budget(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn rest(&self, took: Duration) -> Duration {
        took * 4
    }

    fn steps(&self) -> u64 {
        1
    }
}
