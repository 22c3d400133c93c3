//! Memory that a ring has registered with the kernel, so that it is pinned once and not per request.

#![expect(unsafe_code, reason = "the kernel is told raw addresses")]

use std::io;
use std::ptr;

use block::Region;
use io_uring::IoUring;

/// Regions that one ring can have registered; requests in further regions work unregistered.
const REGIONS_MAX: usize = 1024;

/// The regions of one ring.
///
/// Soundness: memory in the kernel's table stays allocated, because `table` keeps it until the kernel has replaced
/// the entry. The owner of both drops the ring first.
#[derive(Default)]
pub(super) struct Regions {
    /// As the kernel has it; empty before the first registration.
    table: Vec<Option<Region>>,
    /// By address: start, end, index in the table.
    by_address: Vec<(usize, usize, u16)>,
}

impl Regions {
    /// Registers a region with the kernel, unless it is registered already.
    pub(super) fn register(&mut self, uring: &IoUring, region: &Region) -> io::Result<()> {
        if self.index_of(region.as_ptr() as usize, 1).is_some() {
            return Ok(());
        }
        if self.table.is_empty() {
            let regions = u32::try_from(REGIONS_MAX).unwrap_or(0);
            uring.submitter().register_buffers_sparse(regions)?;
            self.table = vec![None; REGIONS_MAX];
        }
        self.forget_unused(uring);
        let Some(index) = self.table.iter().position(Option::is_none) else {
            return Err(io::ErrorKind::QuotaExceeded.into());
        };
        self.set(uring, index, Some(region))?;
        let start = region.as_ptr() as usize;
        let number = u16::try_from(index).unwrap_or(u16::MAX);
        let at = self.after(start);
        self.by_address
            .insert(at, (start, start + region.len(), number));
        Ok(())
    }

    /// Unregisters regions without a buffer in use: nothing in the kernel can use them.
    pub(super) fn forget_unused(&mut self, uring: &IoUring) {
        let mut at = 0;
        while let Some(&(.., number)) = self.by_address.get(at) {
            let index = usize::from(number);
            let unused = |region: &Region| !region.is_used();
            if self.table[index].as_ref().is_some_and(unused)
                && self.set(uring, index, None).is_ok()
            {
                self.by_address.remove(at);
            } else {
                at += 1;
            }
        }
    }

    /// The kernel's index of the region that contains the whole buffer.
    pub(super) fn index_of(&self, start: usize, length: usize) -> Option<u16> {
        let &(_, end, index) = self.by_address.get(self.after(start).checked_sub(1)?)?;
        (start + length <= end).then_some(index)
    }

    /// The number of regions that begin at or before an address.
    fn after(&self, start: usize) -> usize {
        self.by_address.partition_point(|&(part, ..)| part <= start)
    }

    /// Sets an entry of the kernel's table; if the kernel refuses, nothing has changed.
    fn set(&mut self, uring: &IoUring, index: usize, region: Option<&Region>) -> io::Result<()> {
        let vector = libc::iovec {
            iov_base: region.map_or(ptr::null_mut(), |region| region.as_ptr().cast()),
            iov_len: region.map_or(0, Region::len),
        };
        let offset = u32::try_from(index).unwrap_or(u32::MAX);
        // SAFETY: the memory stays allocated as long as it is in the kernel's table (see `Regions`).
        unsafe {
            let submitter = uring.submitter();
            submitter.register_buffers_update(offset, &[vector], None)?;
        }
        self.table[index] = region.cloned();
        Ok(())
    }
}
