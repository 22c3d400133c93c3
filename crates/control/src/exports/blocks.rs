//! A view of a volume whose requests are aligned to blocks.

use std::sync::Arc;

use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Limits, Memory, Region, Request, Submission,
    Usage,
};

/// A view whose limits ask for whole blocks. A volume accepts any request; servers refuse what the limits forbid.
pub(super) struct Blocks {
    pub(super) volume: Arc<dyn BlockDevice>,
    /// A power of two.
    pub(super) block_bytes: u32,
}

impl BlockDevice for Blocks {
    fn limits(&self) -> Limits {
        let limits = self.volume.limits();
        Limits {
            block_bytes_min: self.block_bytes.max(limits.block_bytes_min),
            block_bytes_preferred: self.block_bytes.max(limits.block_bytes_preferred),
            ..limits
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.volume.submit(request, memory, token, to);
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        self.volume.submit_all(batch, to);
    }

    fn lend(&self, region: &Region) {
        self.volume.lend(region);
    }

    fn usage(&self) -> Option<Usage> {
        self.volume.usage()
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.volume.extents(offset, length)
    }

    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        self.volume.find_extents(offset, length, answer);
    }
}
