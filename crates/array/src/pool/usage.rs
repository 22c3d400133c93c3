//! How much of their physical space the drives use. The driver samples that about once a second; drives that do not
//! know it have no usage.

use block::{Instant, Seat, Usage};

use super::Pool;

impl Pool {
    /// The driver has sampled the drive in a seat. Ignored for seats that have no drive in the pool.
    pub fn handle_usage(&mut self, now: Instant, seat: Seat, usage: Option<Usage>) {
        self.now = now;
        if let Some(drive) = self.drives.get_mut(&seat) {
            drive.usage = usage;
        }
    }

    /// The use of the drive in a seat at the last sample.
    #[must_use]
    pub fn usage(&self, seat: Seat) -> Option<Usage> {
        self.drives.get(&seat)?.usage
    }
}
