//! A read-only view of a volume.

use std::sync::Arc;

use block::{
    BlockDevice, Completed, Extent, ExtentsAnswer, Limits, Memory, Region, Request, Submission,
};

/// A read-only view: requests that change the volume are moved beyond its end, so the volume refuses them as out of
/// range.
pub(super) struct ReadOnly(pub(super) Arc<dyn BlockDevice>);

impl ReadOnly {
    /// Beyond any volume's end.
    const OUTSIDE: u64 = 1 << 62;

    const fn allowed(request: Request) -> Request {
        match request.kind.mutates() {
            true => Request {
                offset: Self::OUTSIDE,
                ..request
            },
            false => request,
        }
    }
}

impl BlockDevice for ReadOnly {
    fn limits(&self) -> Limits {
        Limits {
            trims: false,
            ..self.0.limits()
        }
    }

    fn submit(&self, request: Request, memory: Memory, token: u64, to: &Arc<dyn Completed>) {
        self.0.submit(Self::allowed(request), memory, token, to);
    }

    fn submit_all(&self, batch: &mut Vec<Submission>, to: &Arc<dyn Completed>) {
        for one in batch.iter_mut() {
            one.request = Self::allowed(one.request);
        }
        self.0.submit_all(batch, to);
    }

    fn lend(&self, region: &Region) {
        self.0.lend(region);
    }

    fn extents(&self, offset: u64, length: u64) -> Vec<Extent> {
        self.0.extents(offset, length)
    }

    fn find_extents(&self, offset: u64, length: u64, answer: ExtentsAnswer) {
        self.0.find_extents(offset, length, answer);
    }
}
