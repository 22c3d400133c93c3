//! Progress of filling cells.

use std::collections::BTreeMap;

use block::{Instant, Seat};

/// Bytes that the present rebuild has moved on one drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeatTraffic {
    /// Read from it.
    pub read_bytes: u64,
    /// Written to it.
    pub write_bytes: u64,
}

/// The rebuild under way, or the last one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Columns move to new drives, and none is lost.
    pub expands: bool,
    /// Columns move away from a drive that leaves, and none is lost.
    pub removes: bool,
    /// When it began.
    pub began: Instant,
    /// When it ended, if it has.
    pub ended: Option<Instant>,
    /// Cells that are filled.
    pub cells_done: u64,
    /// Cells in all; grows if another drive fails meanwhile.
    pub cells_total: u64,
    /// Cells that cannot be filled.
    pub cells_lost: u64,
    /// Bytes of a cell.
    pub cell_bytes: u64,
    /// Bytes written to the cells that are filled. Blocks that a drive had already, and blocks that read as zeros, are
    /// not copied.
    pub copied_bytes: u64,
    /// Bytes that steps have read.
    pub read_bytes: u64,
    /// Of these, bytes that were compared with their checksums.
    pub verified_bytes: u64,
    /// Blocks that were reconstructed and written again meanwhile.
    pub repaired_blocks: u64,
    /// Which drive moved how much.
    pub seats: BTreeMap<Seat, SeatTraffic>,
}

impl Progress {
    /// Counts a cell of which only `bytes` had to be moved.
    pub(super) fn caught_up(&mut self, sources: &[Seat], target: Seat, bytes: u64) {
        for &seat in sources {
            self.seats.entry(seat).or_default().read_bytes += bytes;
        }
        self.seats.entry(target).or_default().write_bytes += bytes;
    }

    /// Share done, 0 to 1.
    #[must_use]
    pub fn fraction(&self) -> f64 {
        if self.cells_total == 0 {
            return 1.0;
        }
        #[expect(clippy::cast_precision_loss, reason = "a share for display")]
        let fraction = self.cells_done as f64 / self.cells_total as f64;
        fraction
    }
}
