//! The log: what its batches say, and what waits for them.

use crate::format::BatchHeader;
use crate::lane::Lane;
use crate::lane::log::{Applied, BatchBuffer};

impl Lane {
    /// A batch counts from now on: what it says is the truth.
    pub(in crate::lane) fn apply_batch(&mut self, header: &BatchHeader, buffer: BatchBuffer) {
        let mut applied = Applied {
            overlay: &mut self.overlay,
            maps: &mut self.maps,
            direct: &mut self.direct,
        };
        applied.apply(&mut self.cx, header, buffer);
    }
}
