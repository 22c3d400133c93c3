//! Medium: a lane has one step in flight, and rests after it for as long as it took.

use std::time::Duration;

use super::Priority;

#[derive(Debug)]
pub(super) struct Medium;

impl Priority for Medium {
    fn name(&self) -> &'static str {
        "medium"
    }

    fn summary(&self) -> &'static str {
        "about equal turns with clients"
    }

    /// A step reads and then writes, so it takes a drive twice this.
    fn budget(&self) -> Duration {
        Duration::from_millis(20)
    }

    fn rest(&self, took: Duration) -> Duration {
        took
    }

    fn steps(&self) -> u64 {
        1
    }
}
